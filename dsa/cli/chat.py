"""`dsa chat`: the command of the shipped chat machine, found by its entry point, since nothing here imports a machine."""

from importlib.metadata import entry_points

import click

_found, *_ = entry_points(group="dsa.commands", name="chat")
command: click.Command = _found.load()
