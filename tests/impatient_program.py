"""The program `dsa`, but a sender of an event learns at once, and not after 2 s, what the command waits for."""

from dsa.cli import send
from dsa.cli.main import main

send._LONG_S = 0.0  # noqa: SLF001  (no option sets it)
main()
