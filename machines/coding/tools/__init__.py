"""The tools of the coding machine: files, commands, git, and those of MCP servers, which are programs of the user's."""
