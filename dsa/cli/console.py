"""The Rich console over the terminal, for commands that draw on it. It is a module by itself because Rich takes long to load."""

import sys

from rich.console import Console

from dsa.cli.terminal import patient

_NARROWEST = 20


def terminal() -> Console:
    """Return a console over standard output, at least 20 columns wide."""
    console = Console(file=patient(sys.stdout))
    console.width = max(console.width, _NARROWEST)
    return console
