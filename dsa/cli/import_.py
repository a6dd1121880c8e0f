"""`dsa import FILE.scxml`: an SCXML file as a document."""

import sys
from pathlib import Path
from typing import Any

import click

from dsa.cli.faults import JsonCommand, json_option, tell_json
from dsa.cli.outputs import output_option, require_file, require_free, require_other
from dsa.cli.terminal import say, write
from dsa.edge.files import read_bytes
from dsa.lang import dumps
from dsa.lang.from_scxml import Imported, from_scxml
from dsa.lang.scxml_tree import read_tree, same
from dsa.targets import ExportError
from dsa.targets.scxml import scxml


@click.command("import", cls=JsonCommand)
@click.argument("file", type=click.Path(path_type=Path))
@output_option
@click.option(
    "--states",
    "states_wanted",
    is_flag=True,
    help="Read the states and transitions, even where the file carries the document that it was exported from.",
)
@click.option("--force", is_flag=True, help="Overwrite OUTPUT, with whatever you have changed in it.")
@json_option
def command(file: Path, output: Path | None, *, states_wanted: bool, force: bool, json_wanted: bool) -> None:
    """Write an SCXML file as a document, and name with lines what of it is not read; exit 1 when that matters.

    With --json the document is in the object, unless -o names a file for it.
    """
    require_other(output, file)
    require_free(output, force=force)
    require_file(output, "-o")
    content = read_bytes(file)
    imported = from_scxml(content, carried=not states_wanted)
    if imported.document is not None and _is_changed(imported, content):
        say(f"{file}: changed since dsa wrote it, so its states and transitions are read", err=True)
        imported = from_scxml(content, carried=False)
    for finding in imported.findings:
        kind = "not read" if finding.is_error else "note"
        say(f"{file}:{finding.line}: {kind}: {finding.message}", err=True)
    text = None if imported.machine is None else dumps(imported.machine)
    if text is not None and output is not None:
        output.write_text(text, encoding="utf-8")
    if json_wanted:
        tell_json(_as_json(file, output, imported, text))
    elif text is not None:
        write(f"wrote {output}\n" if output else text)
    if text is None:
        say(f"{file}: no machine was written", err=True)
        sys.exit(1)


def _as_json(file: Path, output: Path | None, imported: Imported, text: str | None) -> dict[str, Any]:
    findings = [
        {"line": found.line, "severity": "error" if found.is_error else "info", "message": found.message}
        for found in imported.findings
    ]
    where = {"document": None if output else text, "output": str(output) if output and text is not None else None}
    machine = imported.machine
    return {"file": str(file), "machine": machine and machine.name, "findings": findings, **where}


def _is_changed(imported: Imported, content: bytes) -> bool:
    """Tell whether a file is not what its own document gives: someone has edited it, or another release wrote it."""
    assert imported.machine is not None, "a document was read"
    try:
        now = scxml(imported.machine, imported.document)
    except ExportError:
        return True
    return not same(read_tree(now), read_tree(content))
