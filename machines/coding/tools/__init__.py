"""The tools of the coding machine: files, commands, git, and those of other servers."""
