"""`dsa draw FILE`: a machine as a picture, or as text for other tools to draw.

The functions that read and write recorded traces are here, too; several commands use them.
"""

import importlib
from pathlib import Path, PurePath

import click

from dsa.checks.monitor import replay
from dsa.checks.report import CheckReport
from dsa.cli.command_line import Word, output_option, require_file, require_other, say, write
from dsa.declarations import Transition
from dsa.edge.document_files import load, locate, read_document, read_text
from dsa.edge.images import png, svg
from dsa.errors import DocumentError
from dsa.lang import spell_out
from dsa.machine import Machine
from dsa.targets import dot, emit, mermaid
from dsa.trace import RecordedTrace, from_text, to_itf, to_jsonl, to_record


def read_record(name: str) -> RecordedTrace:
    """Read a trace in either format. Raises DocumentError."""
    try:
        return from_text(read_text(name))
    except ValueError as fault:
        raise DocumentError(name, str(fault)) from None


def place_in(name: str, step: int) -> str:
    """Return the place of a step in the file of a trace, with 0 for its start: `FILE:LINE` in JSON Lines, else the file."""
    lines = [number for number, line in enumerate(read_text(name).splitlines(), 1) if line.strip()]
    steps = len(read_record(name).steps)
    if len(lines) not in {steps, steps + 1}:
        return name  # one object over many lines
    first = len(lines) - steps
    return f"{name}:{lines[max(0, first + step - 1)]}"


def save_traces(folder: Path, report: CheckReport, *, itf: bool) -> list[Path]:
    """Write the traces of all properties, `DOCUMENT-line12-1.jsonl` and so on; return the files written."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for place, result in enumerate(report.properties, 1):
        traces = [(result.trace, result.loop)] if result.trace else []
        traces += result.more
        for number, (trace, loop) in enumerate(traces, 1):
            record = to_record(trace, report.name, loop)
            span = result.claim.span if result.claim else None
            which = f"{PurePath(span.path).stem}-line{span.line}" if span else f"property{place}"
            name = f"{which}-{number}.{'itf.json' if itf else 'jsonl'}"
            (folder / name).write_text(to_itf(record) if itf else to_jsonl(record), encoding="utf-8")
            paths.append(folder / name)
    return paths


_FORMATS = ("mermaid", "dot", "svg", "png", "table", "html")
_ENDINGS = {f".{form}": form for form in ("dot", "svg", "png", "html")} | {".gv": "dot"}
#: The formats that can show a trace.
_TRACE_FORMATS = ("dot", "svg", "png")


@click.command("draw")
@click.argument("file")
@click.option(
    "--format",
    "form",
    type=Word(_FORMATS),
    help="Default: chosen by the ending of the file name after -o, otherwise mermaid.",
)
@click.option(
    "--trace", metavar="FILE", help="Draw the rows that this recorded trace takes, and draw all other rows faintly."
)
@click.option("--rows", is_flag=True, help="Draw the rows that a Steps document expands to, not its steps.")
@click.option(
    "--full", is_flag=True, help="Label every arrow with its whole row, even if the picture becomes wider than a page."
)
@output_option
def command(file: str, form: str | None, output: Path | None, trace: str | None, *, rows: bool, full: bool) -> None:
    """Draw a machine and what each state waits for. For a Steps document, draw its steps."""
    require_other(output, file)
    require_file(output, "-o")
    form = form or (_ENDINGS.get(output.suffix.lower()) if output else None) or "mermaid"
    if form == "html" and (rows or full):
        raise click.UsageError("--format html shows the document as it is written, so leave out --rows and --full")
    machine = spell_out(load(file)) if rows else load(file)
    if trace is not None and form not in _TRACE_FORMATS:
        raise click.UsageError(f"--trace needs --format {', '.join(_TRACE_FORMATS[:-1])} or {_TRACE_FORMATS[-1]}")
    taken = None if trace is None else _rows(machine, trace)
    if form == "png":
        target = output or Path(f"{machine.name}.png")
        target.write_bytes(png(dot(machine, trace=taken, full=full)))
        say(f"wrote {target}")
        return
    if form in _TRACE_FORMATS:
        text = dot(machine, trace=taken, full=full)
        text = svg(text) if form == "svg" else text
    elif form == "html":
        text = _page(file, machine)
    else:
        text = mermaid(machine, full=full) if form == "mermaid" else emit(machine, form)
    if output is None:
        write(text if text.endswith("\n") else f"{text}\n")
    else:
        output.write_text(text, encoding="utf-8")
        say(f"wrote {output}")


def _page(file: str, machine: Machine) -> str:
    """Return one file with the table, the diagram, the verdicts and an explorer."""
    page = importlib.import_module("dsa.web.static_page")
    return str(page.static_page(read_text(locate(file)), read_document(file), machine))


def _rows(machine: Machine, trace: str) -> list[Transition]:
    """Return the rows that a recorded trace takes. Raises DocumentError when the machine does otherwise."""
    result = replay(machine, read_record(trace))
    if result.mismatch is not None:
        raise DocumentError(trace, result.mismatch.message)
    return [taken.row for taken in result.trace.steps]
