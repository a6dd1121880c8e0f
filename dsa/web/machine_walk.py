"""Walks through a machine: what may happen at each place, where it leads according to `step`, and the graph of all places.

A walk has an address: the events so far, after a number of rows of a run. A graph is for a page without a server: it has every possible walk.
"""

from collections.abc import Iterator, Sequence
from itertools import islice, product
from urllib.parse import urlencode

import attrs

from dsa.checks.places import RowView, rows_at
from dsa.checks.search.exploration import explore
from dsa.errors import DsaError
from dsa.machine import Machine, read_guards
from dsa.semantics import Configuration, Occurrence, Refusal, Taken, candidates, is_over, start, step
from dsa.trace import show_occurrence, show_values

#: The most combinations of verdicts that are offered for an event, and the most events of a walk in an address.
_MOST_VERDICTS, _MOST_STEPS = 81, 500
#: The most configurations of a graph that is computed in advance.
MOST_PLACES = 5_000


@attrs.frozen
class WalkPlace:
    """A machine at its parameters, and the addresses of its walks.

    `address` is that of the explorer, with `pairs` in each address. `home` is the page that it belongs to, `lines` the page with the lines of the
    document, if there is one. `occurrences` are those that a run has recorded.
    """

    machine: Machine
    address: str
    home: str
    pairs: tuple[tuple[str, str], ...] = ()
    lines: str | None = None
    occurrences: tuple[Occurrence, ...] | None = None

    def at(self, names: Sequence[str], rows: int) -> str:
        """Return the address of a place, by the events after a number of recorded rows."""
        rows_taken = [("at", str(rows))] if self.occurrences is not None else []
        return f"{self.address}?{urlencode([*self.pairs, *rows_taken, *(('do', name) for name in names)])}"


@attrs.frozen
class MachineWalk:
    """A walk: the events after a number of recorded rows, and the result of each row and event. `fault` says why the address leads no further."""

    place: WalkPlace
    names: tuple[str, ...]
    steps: tuple[Taken, ...]
    rows: int = 0
    fault: str = ""

    @property
    def machine(self) -> Machine:
        """The machine at its parameters."""
        return self.place.machine

    @property
    def here(self) -> Configuration:
        """The configuration that it has reached."""
        return self.steps[-1].configuration if self.steps else start(self.machine)

    def address(self, number: int) -> str:
        """Return the address of the place after a number of steps."""
        return self.place.at(self.names[: max(0, number - self.rows)], min(number, self.rows))


def walk(place: WalkPlace, names: Sequence[str], rows: int = 0) -> MachineWalk:
    """Walk through a machine by recorded rows, and then by events as `show_occurrence` writes them; stop where one is not taken."""
    machine = place.machine
    here, steps = start(machine), list[Taken]()
    for occurrence in (place.occurrences or ())[:rows]:
        outcome = step(machine, here, occurrence)
        if not isinstance(outcome, Taken):
            fault = f"the table does not take {show_occurrence(occurrence)} as the run did: {outcome.message}"
            return MachineWalk(place, (), tuple(steps), len(steps), fault)
        steps.append(outcome)
        here = outcome.configuration
    rows = len(steps)
    for name in names[:_MOST_STEPS]:
        taken = next(
            (step(machine, here, each) for each in occurrences(machine, here.state) if show_occurrence(each) == name),
            None,
        )
        if not isinstance(taken, Taken):
            why = taken.message if isinstance(taken, Refusal) else "there is no such event here"
            fault = f"'{name}' cannot be taken in {here.state}: {why}"
            return MachineWalk(place, tuple(names[: len(steps) - rows]), tuple(steps), rows, fault)
        steps.append(taken)
        here = taken.configuration
    return MachineWalk(place, tuple(names[: len(steps) - rows]), tuple(steps), rows)


def occurrences(machine: Machine, state: str) -> Iterator[Occurrence]:
    """Yield what may happen in a state, taken or refused: each event, failure with rows, and armed timer, with each combination of the verdicts that its rows read."""
    failures = [f"{effect}.failed" for effect in machine.answers if effect in machine.failures_handled]
    events = [Occurrence(name) for name in (*(event.name for event in machine.events), *failures)]
    timers = [Occurrence(event, source=source) for source, event in machine.armed_timers(state)]
    for each in (*events, *timers):
        guards = read_guards(candidates(machine, state, each))
        choices = product(*(machine.guard_named[guard].outcomes for guard in guards))
        for outcomes in islice(choices, _MOST_VERDICTS):
            yield attrs.evolve(each, verdicts=tuple(zip(guards, outcomes, strict=True)))


# -- the graph of all places -----------------------------------------------------------------------------------------------


class GraphTexts:
    """The texts of a graph, each once; a graph refers to them by number."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def number(self, text: str) -> int:
        """Return the number of a text."""
        return self.numbers.setdefault(text, len(self.numbers))


def walk_graph(machine: Machine, arrows: "dict[int, str]") -> "dict[str, list[object]]":
    """Return all places of a machine, as JSON for the script `walk.js`. `arrows` has the names of the diagram's arrows by the lines of rows.

    `texts` are the texts to which everything else refers by number. Each of `places` is a list: state, values, outstanding effects, 1 if a run is over, choices,
    refusals. A choice is an event, the place it leads to, its effects, its arrow, and its rows; a refusal is an event, the reason, and its rows. The start is
    place 0. Raises DsaError for a machine that has too many places: the engine of the checker, which is fast, counts them first.
    """
    if explore(machine, max_states=MOST_PLACES + 1).configurations > MOST_PLACES:
        raise _too_many_places(machine)
    texts, first = GraphTexts(), start(machine)
    texts.number("")
    positions, places = {first: 0}, list[object]()
    todo = [first]
    for here in todo:  # it grows during the loop
        choices, refusals = list[list[object]](), list[list[object]]()
        for occurrence in occurrences(machine, here.state):
            outcome, views = step(machine, here, occurrence), rows_at(machine, here, occurrence)
            name = texts.number(show_occurrence(occurrence))
            rows = [texts.number(row_text(view)) for view in views]
            if isinstance(outcome, Taken):
                there = outcome.configuration
                if there not in positions:
                    if len(todo) == MOST_PLACES:  # the checker leaves out what it cannot number
                        raise _too_many_places(machine)
                    positions[there] = len(todo)
                    todo.append(there)
                line = outcome.transition.span.line if outcome.transition.span else 0
                numbers = [texts.number(text) for text in (", ".join(outcome.effects), arrows.get(line, ""))]
                choices.append([name, positions[there], *numbers, rows])
            elif views or occurrence.event in machine.events_from_outside:
                refusals.append([name, texts.number(f"{outcome.reason}: {outcome.message}"), rows])
        names = [variable.name for variable in machine.variables]
        facts = (
            here.state,
            show_values(zip(names, here.values, strict=True)),
            ", ".join(here.outstanding) or "nothing",
        )
        places.append([*map(texts.number, facts), int(is_over(machine, here)), choices, refusals])
    return {"texts": list(texts.numbers), "places": places}


def _too_many_places(machine: Machine) -> DsaError:
    return DsaError(
        f"{machine.name} has more than {MOST_PLACES:,} configurations, the most that fit into a page; choose smaller "
        "default values for its parameters, or walk through it with `dsa web FILE`, which has no such limit"
    )


def row_text(view: RowView) -> str:
    """Return a row that might take an event: whether it does, where it is, and which part of its condition is false."""
    line = f"line {view.row.span.line} " if view.row.span else ""
    wrong = ", ".join(text for text, is_true in view.conjuncts if not is_true)
    return f"{'✓' if view.is_enabled else '✗'} {line}{view.row}{f' false: {wrong}' if wrong else ''}"
