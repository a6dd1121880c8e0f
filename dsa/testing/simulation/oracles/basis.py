"""What an oracle is: a small function that says what is wrong, and the rule or the promise that it stands for."""

from collections.abc import Callable
from typing import Any

import attrs

from dsa.testing.simulation.facts import Facts

#: Given the facts and what is about to be added to them, says what is wrong; None when all is well.
Judge = Callable[[Facts, Any], str | None]


@attrs.frozen
class Oracle:
    """A rule that every run must keep. `cites` is the rule of specs/semantics.md or the promise of docs/how-to/simulate.md."""

    name: str
    cites: str
    judge: Judge = attrs.field(repr=False, eq=False)

    def __str__(self) -> str:
        return f"{self.name} ({self.cites})"


@attrs.frozen
class Violation:
    """An oracle that was broken, and how."""

    oracle: Oracle
    message: str

    def __str__(self) -> str:
        return f"{self.oracle}: {self.message}"


def oracle(cites: str) -> Callable[[Judge], Oracle]:
    """Make an oracle of a function; its name, with spaces, is the rule in words."""

    def named(judge: Judge) -> Oracle:
        return Oracle(judge.__name__.replace("_", " "), cites, judge)

    return named
