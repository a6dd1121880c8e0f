"""`dsa import FILE.scxml`: an SCXML file as a document."""

from pathlib import Path

import click

from dsa.cli.faults import Ended
from dsa.cli.outputs import require_free, require_other
from dsa.edge.files import read_bytes
from dsa.lang import dumps
from dsa.lang.from_scxml import Imported, from_scxml
from dsa.lang.scxml_tree import read_tree, same
from dsa.targets import ExportError
from dsa.targets.scxml import scxml

_FINDINGS = 1


@click.command("import")
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="Write here, not to the terminal."
)
@click.option(
    "--states",
    "states_wanted",
    is_flag=True,
    help="Read the states and transitions, even where the file carries the document that it was exported from.",
)
@click.option("--force", is_flag=True, help="Overwrite OUTPUT, with whatever you have changed in it.")
def command(file: Path, output: Path | None, *, states_wanted: bool, force: bool) -> None:
    """Write an SCXML file as a document, and say with lines what of it is not read; exit 1 when that matters."""
    require_other(output, file)
    require_free(output, force=force)
    content = read_bytes(file)
    imported = from_scxml(content, carried=not states_wanted)
    if imported.document is not None and _is_changed(imported, content):
        click.echo(f"{file}: changed since dsa wrote it, so its states and transitions are read", err=True)
        imported = from_scxml(content, carried=False)
    for finding in imported.findings:
        kind = "not read" if finding.is_error else "note"
        click.echo(f"{file}:{finding.line}: {kind}: {finding.message}", err=True)
    if imported.machine is None:
        raise Ended(f"{file}: no machine was written", _FINDINGS)
    text = dumps(imported.machine)
    if output is None:
        click.echo(text, nl=False)
    else:
        output.write_text(text, encoding="utf-8")
        click.echo(f"wrote {output}")


def _is_changed(imported: Imported, content: bytes) -> bool:
    """Tell whether a file is not what its own document gives: someone has edited it, or another release wrote it."""
    assert imported.machine is not None, "a document was read"
    try:
        now = scxml(imported.machine, imported.document)
    except ExportError:
        return True
    return not same(read_tree(now), read_tree(content))
