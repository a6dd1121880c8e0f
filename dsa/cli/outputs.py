"""Files and folders that a command is asked to write: it is noticed before the work what cannot or must not be written.

`-o` never overwrites the document that is read, and what a user goes on editing only with `--force`.
"""

import os
from pathlib import Path

import click

output_option = click.option(
    "-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="Write here, not to the terminal."
)


def require_other(output: Path | None, file: Path | str) -> None:
    """Raise UsageError when a command would write over what it reads."""
    if output is not None and output.exists() and Path(file).exists() and output.samefile(file):
        raise click.UsageError(f"{output} is what is read here; nothing was written; give -o another name")


def require_free(output: Path | None, *, force: bool) -> None:
    """Raise UsageError when something is there already: what is written is for the user to edit, and may have been."""
    if output is not None and output.exists() and not force:
        raise click.UsageError(f"{output} is there already; nothing was written; --force overwrites it")


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
