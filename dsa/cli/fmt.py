"""`dsa fmt FILE...`: lay out the tables of documents in place, or only say which would change."""

from pathlib import Path

import click

from dsa.edge.files import read_text
from dsa.lang import formatted


@click.command("fmt")
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--check", "only_check", is_flag=True, help="Change nothing; exit 1 when a file would change.")
def command(files: tuple[Path, ...], *, only_check: bool) -> None:
    """Lay out the tables of documents: columns aligned, expressions spaced alike. Prose stays byte for byte."""
    changed = 0
    for path in files:
        text = read_text(path)
        laid_out = formatted(text)
        if laid_out == text:
            continue
        changed += 1
        if not only_check:
            path.write_bytes(laid_out.encode("utf-8"))
        click.echo(f"{'would lay out' if only_check else 'laid out'} {path}")
    verb = ("is" if only_check else "was") if len(files) == 1 else ("are" if only_check else "were")
    noun = "file" if len(files) == 1 else "files"
    click.echo(f"{len(files) - changed} of {len(files)} {noun} {verb} in canonical layout")
    if only_check and changed:
        raise SystemExit(1)
