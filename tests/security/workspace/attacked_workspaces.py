"""Targets of attacks through a workspace: a secret beside it, every call that takes a path, and all that must stay unchanged."""

import os
from pathlib import Path

SECRET = "the secret of another user"


def everything(folder):
    """Return all that is in a folder: contents, targets of links, modes."""
    found = {}
    for parent, folders, names in os.walk(folder):
        for name in (*folders, *names):
            path = Path(parent, name)
            state = path.lstat()
            content = path.readlink() if path.is_symlink() else path.read_bytes() if path.is_file() else None
            found[str(path)] = (state.st_mode, state.st_nlink if path.is_file() else 0, content)
    return found


def calls_of(path):
    """Return every call that a path can be put into."""
    return {
        "list_dir": {"path": path},
        "read_file": {"path": path},
        "search": {"pattern": "secret", "path": path},
        "write_file": {"path": path, "content": "attacked"},
        "write_files": {"files": [{"path": "new", "content": "x"}, {"path": path, "content": "attacked"}]},
        "edit": {"path": path, "old": "secret", "new": "attacked", "all": True},
    }


WRITES = ("write_file", "write_files", "edit")


TOOLS = tuple(calls_of(""))
