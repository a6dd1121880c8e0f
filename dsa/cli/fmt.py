"""`dsa fmt FILE...`: format the tables of documents in place, or only print which would change."""

import sys
from pathlib import Path

import click

from dsa.cli.command_line import JsonCommand, json_option, print_json, say
from dsa.edge.document_files import read_text
from dsa.edge.files import replace_file
from dsa.lang import format_document


@click.command("fmt", cls=JsonCommand)
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--check", "only_check", is_flag=True, help="Change nothing; exit 1 if a file would change.")
@json_option
def command(files: tuple[Path, ...], *, only_check: bool, json_wanted: bool) -> None:
    """Format the tables of documents: align the columns, and write all expressions with the same spacing. Text outside tables is not changed."""
    texts = {path: read_text(path) for path in files}  # all are read before one is written
    new_texts = {path: new for path, text in texts.items() if (new := format_document(text)) != text}
    for path, text in new_texts.items() if not only_check else ():
        replace_file(path, text.encode("utf-8"), texts[path].encode("utf-8"))
    if json_wanted:
        files_told = [{"file": str(path), "changed": path in new_texts} for path in texts]
        print_json({"files": files_told, "written": not only_check})
    else:
        _print_result(texts, new_texts, only_check=only_check)
    sys.exit(int(only_check and bool(new_texts)))


def _print_result(files: dict[Path, str], new_texts: dict[Path, str], *, only_check: bool) -> None:
    for path in new_texts:
        say(f"{'would format' if only_check else 'formatted'} {path}")
    verb = ("is" if only_check else "was") if len(files) == 1 else ("are" if only_check else "were")
    noun = "file" if len(files) == 1 else "files"
    say(f"{len(files) - len(new_texts)} of {len(files)} {noun} {verb} already formatted")
