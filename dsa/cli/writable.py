"""Files and folders that a command is asked to write: it is noticed before the work whether that can be done."""

import os
from pathlib import Path

import click


def require_file(path: Path | str | None, option: str) -> None:
    """Raise click.UsageError when a file cannot be written there; None is no file."""
    if path is None:
        return
    path = Path(path)
    if path.is_dir():
        raise click.UsageError(f"{option} {path}: that is a folder; name a file")
    if path.exists():
        if not os.access(path, os.W_OK):
            raise click.UsageError(f"{option} {path}: the file may not be written")
    elif not path.parent.is_dir():
        raise click.UsageError(f"{option} {path}: there is no folder {path.parent}")
    elif not os.access(path.parent, os.W_OK):
        raise click.UsageError(f"{option} {path}: nothing may be written in {path.parent}")


def require_folder(path: Path | None, option: str) -> None:
    """Make a folder for files, unless it is there; raise click.UsageError when that cannot be done. None is no folder."""
    if path is None:
        return
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as fault:
        raise click.UsageError(f"{option} {path}: the folder cannot be made ({fault.strerror})") from None
    if not os.access(path, os.W_OK):
        raise click.UsageError(f"{option} {path}: nothing may be written in it")
