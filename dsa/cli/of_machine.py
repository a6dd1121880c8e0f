"""Commands of shipped machines, found by their entry points, since nothing here imports a machine."""

from importlib.metadata import entry_points

import click


def command_of(name: str) -> click.Command:
    """Give a command by its name."""
    found, *_ = entry_points(group="dsa.commands", name=name)
    command: click.Command = found.load()
    return command
