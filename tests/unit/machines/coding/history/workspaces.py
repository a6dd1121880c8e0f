"""Workspaces for tests of the history: one with a file of each kind, changes as an agent makes them, and the full state to compare."""

import os
import subprocess
from pathlib import Path


def make_workspace(folder):
    """Make files, a program, a link and an empty folder."""
    (folder / "src").mkdir(parents=True)
    (folder / "src" / "a.py").write_text("a = 1\n", "utf-8")
    (folder / "src" / "b.py").write_text("b = 1\n", "utf-8")
    (folder / "run.sh").write_text("#!/bin/sh\n", "utf-8")
    (folder / "run.sh").chmod(0o755)
    (folder / "link").symlink_to("src/a.py")
    (folder / "empty").mkdir()
    return folder


def change_all(root):
    """Change everything, as an agent may."""
    (root / "src" / "a.py").write_text("a = 2\n", "utf-8")
    (root / "src" / "b.py").unlink()
    (root / "run.sh").chmod(0o644)
    (root / "link").unlink()
    (root / "link").write_text("no link any more", "utf-8")
    (root / "new" / "inner").mkdir(parents=True)
    (root / "new" / "inner" / "c.py").write_text("c\n", "utf-8")
    (root / "empty").rmdir()
    (root / "empty2").mkdir()


def state(root):
    """Return everything in a folder: targets of links, contents of files with their modes, and folders."""
    found = {}
    for path in (Path(parent, name) for parent, folders, files in os.walk(root) for name in (*folders, *files)):
        if path.is_symlink():
            found[str(path.relative_to(root))] = str(path.readlink())
        else:
            content = "folder" if path.is_dir() else path.read_bytes()
            found[str(path.relative_to(root))] = (path.stat().st_mode, content)
    return found


def git_of_history(folder, *arguments):
    """Run git on the history in a folder; return what it prints."""
    command = ["git", f"--git-dir={folder / 'history'}", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
