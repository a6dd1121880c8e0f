"""`dsa expand FILE`: the document whose rows are those that Steps or families stand for."""

import click

from dsa.cli.command_line import write
from dsa.edge.document_files import load
from dsa.lang import dumps, spell_out


@click.command("expand")
@click.argument("file")
def command(file: str) -> None:
    """Print the rows that a document with Steps or families stands for. Any other document is printed in canonical form."""
    write(dumps(spell_out(load(file))))
