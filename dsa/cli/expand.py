"""`dsa expand FILE`: the Transitions document that a Steps document stands for."""

import click

from dsa.cli.command_line import write
from dsa.edge.document_files import load
from dsa.lang import dumps, expand_steps


@click.command("expand")
@click.argument("file")
def command(file: str) -> None:
    """Print the transitions that a Steps document stands for. Any other document is printed in canonical form."""
    write(dumps(expand_steps(load(file))))
