"""`dsa draw FILE`: the machine as a picture or as text for other tools to draw."""

from pathlib import Path

import click

from dsa.edge.files import load
from dsa.edge.render import png, svg
from dsa.targets import emit

_FORMATS = ("mermaid", "dot", "svg", "png", "table")


@click.command("draw")
@click.argument("file")
@click.option("--format", "form", type=click.Choice(_FORMATS), default="mermaid", show_default=True)
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="Write here, not to the terminal."
)
def command(file: str, form: str, output: Path | None) -> None:
    """Draw a machine; what each state waits for is shown in it."""
    machine = load(file)
    if form == "png":
        target = output or Path(f"{machine.name}.png")
        target.write_bytes(png(emit(machine, "dot")))
        click.echo(f"wrote {target}")
        return
    text = svg(emit(machine, "dot")) if form == "svg" else emit(machine, form)
    if output is None:
        click.echo(text, nl=not text.endswith("\n"))
    else:
        output.write_text(text, encoding="utf-8")
        click.echo(f"wrote {output}")
