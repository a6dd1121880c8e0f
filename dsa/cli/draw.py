"""`dsa draw FILE`: the machine as a picture or as text for other tools to draw."""

from pathlib import Path

import click

from dsa.checks.replay import replay
from dsa.cli.outputs import output_option, require_file, require_other
from dsa.cli.parameters import Word
from dsa.cli.records import read_record
from dsa.cli.terminal import say, write
from dsa.declarations import Transition
from dsa.edge.files import load
from dsa.edge.render import png, svg
from dsa.errors import DocumentError
from dsa.machine import Machine
from dsa.targets import dot, emit

_FORMATS = ("mermaid", "dot", "svg", "png", "table")
_ENDINGS = {f".{form}": form for form in ("dot", "svg", "png")} | {".gv": "dot"}
#: The formats in which a trace can be shown.
_TRACED = ("dot", "svg", "png")


@click.command("draw")
@click.argument("file")
@click.option("--format", "form", type=Word(_FORMATS), help="Default: by the ending of what is written, else mermaid.")
@click.option("--trace", metavar="FILE", help="Draw the rows that this recorded trace takes, the others faintly.")
@output_option
def command(file: str, form: str | None, output: Path | None, trace: str | None) -> None:
    """Draw a machine; what each state waits for is shown in it."""
    require_other(output, file)
    require_file(output, "-o")
    form = form or (_ENDINGS.get(output.suffix.lower()) if output else None) or "mermaid"
    machine = load(file)
    if trace is not None and form not in _TRACED:
        raise click.UsageError(f"--trace needs --format {', '.join(_TRACED[:-1])} or {_TRACED[-1]}")
    taken = None if trace is None else _rows(machine, trace)
    if form == "png":
        target = output or Path(f"{machine.name}.png")
        target.write_bytes(png(dot(machine, trace=taken)))
        say(f"wrote {target}")
        return
    drawn = dot(machine, trace=taken) if form in _TRACED else emit(machine, form)
    text = svg(drawn) if form == "svg" else drawn
    if output is None:
        write(text if text.endswith("\n") else f"{text}\n")
    else:
        output.write_text(text, encoding="utf-8")
        say(f"wrote {output}")


def _rows(machine: Machine, trace: str) -> list[Transition]:
    """Give the rows that a recorded trace takes. Raises DocumentError when the machine does otherwise."""
    found = replay(machine, read_record(trace))
    if found.mismatch is not None:
        raise DocumentError(trace, found.mismatch.message)
    return [taken.row for taken in found.trace.steps]
