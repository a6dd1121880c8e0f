"""What `-o` may overwrite: never the document that is read, and what a user goes on editing only with `--force`."""

from pathlib import Path

import click


def require_other(output: Path | None, file: Path | str) -> None:
    """Raise UsageError when a command would write over what it reads."""
    if output is not None and output.exists() and Path(file).exists() and output.samefile(file):
        raise click.UsageError(f"{output} is what is read here; nothing was written; give -o another name")


def require_free(output: Path | None, *, force: bool) -> None:
    """Raise UsageError when something is there already: what is written is for the user to edit, and may have been."""
    if output is not None and output.exists() and not force:
        raise click.UsageError(f"{output} is there already; nothing was written; --force overwrites it")
