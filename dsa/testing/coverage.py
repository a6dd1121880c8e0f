"""What tests have taken of a machine: rows, states, verdicts; and the gate that asks for enough of it.

Takes what happened step by step, gives figures and what is missing. What cannot be reached at the machine's parameters is not
asked for; it is listed apart.
"""

from collections.abc import Callable, Iterable

import attrs

from dsa.declarations import Transition
from dsa.machine import Machine
from dsa.meaning import Occurrence
from dsa.testing.graph import Graph

Verdict = tuple[str, str]


class CoverageError(AssertionError):
    """Raised when tests have taken too few rows."""


@attrs.define
class Coverage:
    """What has been taken so far: indexes of rows, names of leaves, pairs of guard and verdict. It grows in place."""

    machine: Machine = attrs.field(repr=False)
    rows: set[int] = attrs.field(factory=set)
    states: set[str] = attrs.field(factory=set)
    verdicts: set[Verdict] = attrs.field(factory=set)
    tests: int = 0
    steps: int = 0

    def begin(self, state: str) -> None:
        """Count a test that begins in a state."""
        self.tests += 1
        self.states.add(state)

    def took(self, row: int, occurrence: Occurrence, state: str) -> None:
        """Count a row taken, and the state after it."""
        self.steps += 1
        self.rows.add(row)
        self.states.add(state)
        self.verdicts.update(occurrence.verdicts)

    def require(self, share: float, graph: Graph) -> None:
        """Raise CoverageError unless this share of the rows that can be taken was taken."""
        missing = sorted(graph.rows - self.rows)
        if len(missing) > (1 - share) * len(graph.rows) + 1e-9:
            rows = self.machine.transitions
            listed = "\n".join(f"  {described(rows[number], number)}" for number in missing)
            raise CoverageError(
                f"{len(graph.rows) - len(missing)} of {len(graph.rows)} rows that can be taken were taken, "
                f"{share:.0%} are required; not taken:\n{listed}"
            )

    def report(self, graph: Graph) -> str:
        """Say what was taken of what can be taken, and what is missing, as lines of text."""
        leaves = {configuration.state for configuration in graph.configurations}
        rows = self.machine.transitions
        figures = (
            f"rows {len(self.rows & graph.rows)} of {len(graph.rows)}, states {len(self.states & leaves)} of {len(leaves)}, "
            f"verdicts {len(self.verdicts & graph.verdicts)} of {len(graph.verdicts)}"
        )
        lines = [f"{self.tests} tests, {self.steps} steps: {figures}"]
        lines += _listed("rows not taken", (described(rows[n], n) for n in sorted(graph.rows - self.rows)))
        lines += _listed("states not reached", sorted(leaves - self.states))
        lines += _listed("verdicts not given", (f"{g}.{said}" for g, said in sorted(graph.verdicts - self.verdicts)))
        dead = sorted(set(range(len(rows))) - graph.rows)
        lines += _listed("rows that cannot be taken at these parameters", (described(rows[n], n) for n in dead))
        return "\n".join(lines)


def _listed(title: str, items: Iterable[str]) -> list[str]:
    found = list(items)
    return [f"{title}: {'; '.join(found)}"] if found else []


def described(row: Transition, number: int) -> str:
    """Name a row for people: its line, or its place when it has none, then source, event and target."""
    place = f"line {row.span.line}" if row.span else f"row {number + 1}"
    return f"{place} ({row})"


#: Is told the machine, what happened, the row taken, and the state after it: `pytest --machine-coverage` listens.
Listener = Callable[[Machine, Occurrence, Transition, str], None]

_listeners: list[Listener] = []


def listen(listener: Listener) -> None:
    """Call a function with every row that tests take from now on."""
    _listeners.append(listener)


def forget_listener(listener: Listener) -> None:
    """Call it no more."""
    _listeners.remove(listener)


def tell_listeners(machine: Machine, occurrence: Occurrence, row: Transition, state: str) -> None:
    """Say that a row was taken."""
    for listener in _listeners:
        listener(machine, occurrence, row, state)
