"""What is simulated: a machine at its parameters' values with its text, everything that is worked out about it once.

Takes a machine, its document's text and the policies that are real; gives a `Subject` that all stories share.
"""

from collections.abc import Callable, Mapping
from functools import cached_property

import attrs

from dsa.checks.monitors import Monitored, is_monitor
from dsa.claims import show
from dsa.compiled_step import compiled_step
from dsa.declarations import Effect
from dsa.edge.binding import effect_names
from dsa.lang import digest
from dsa.machine import Machine
from dsa.meaning import Configuration, Occurrence, Refusal, Taken
from dsa.runtime.ledger import EventEntry
from dsa.runtime.policies import Policy
from dsa.testing.graph import Graph, Move, graph_of
from dsa.testing.simulation.faults import RowFacts, Triple, possible, rows_of
from dsa.testing.simulation.guide import Guide

#: The id of every simulated run: each has a disk of its own.
RUN = "sim"


@attrs.frozen(slots=False)
class Subject:
    """A machine to be simulated. `handlers` are the real policies, by effect; an effect without one is made up.

    `properties` are watched in every run: those of the machine, or of the spec that adds to it.
    """

    machine: Machine
    text: str
    handlers: Mapping[str, Policy] = attrs.field(factory=dict)
    properties: tuple[tuple[str, Monitored], ...] = ()

    #: The moves at which triples are aimed, the cheapest to come to first.
    aimed: dict[Triple, tuple[Move, ...]] = attrs.field(factory=dict, init=False, repr=False)
    #: What events are to the table, by all that it looks at: most runs take the same.
    occurrences: dict[tuple[object, ...], Occurrence] = attrs.field(factory=dict, init=False, repr=False)
    #: What the properties said of the rows that runs have taken, by these; most runs take the same.
    known: dict[tuple[Occurrence, ...], str | None] = attrs.field(factory=dict, init=False, repr=False)

    @cached_property
    def graph(self) -> Graph:
        """All that the machine can do. Raises TooLargeError."""
        return graph_of(self.machine)

    @cached_property
    def guide(self) -> Guide:
        """Ways through it."""
        return Guide(self.graph)

    @cached_property
    def rows(self) -> dict[int, RowFacts]:
        """The rows that can be taken, by index."""
        return rows_of(self.graph)

    @cached_property
    def triples(self) -> tuple[Triple, ...]:
        """Every row, boundary and fault there is."""
        return tuple(possible(self.rows))

    @cached_property
    def step(self) -> Callable[[Configuration, Occurrence], Taken | Refusal]:
        """The compiled step; it remembers what it was asked."""
        return compiled_step(self.machine).step

    @cached_property
    def row_index(self) -> dict[int, int]:
        """The index of a row by its identity."""
        return {id(row): place for place, row in enumerate(self.machine.transitions)}

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the machine's canonical text."""
        return digest(self.machine)

    @cached_property
    def effects(self) -> dict[str, Effect]:
        """What the Effects table says, by name."""
        return {effect.name: effect for effect in self.machine.effects}

    @cached_property
    def emitted(self) -> tuple[str, ...]:
        """The effects that rows emit."""
        return tuple(name for name, _ in effect_names(self.machine))

    @cached_property
    def has_timers(self) -> bool:
        """Tell whether any row is a timer's."""
        return any(row.is_timer for row in self.machine.transitions)

    def prepare(self) -> None:
        """Work out what all stories share, before they are shared out. Raises TooLargeError."""
        _ = self.triples, self.guide, self.step, self.digest

    def goals(self, aim: Triple) -> tuple[Move, ...]:
        """Give the moves at which a triple can be hit, the cheapest to come to first."""
        found = self.aimed.get(aim)
        if found is None:
            found = self.aimed[aim] = self.guide.nearest(self.rows[aim.row].moves_for(aim.boundary, aim.fault))
        return found

    def occurrence(self, event: EventEntry) -> Occurrence:
        """Give what the table looks at of an event: its data is nothing to it."""
        key = event.event, event.verdicts, event.source
        found = self.occurrences.get(key)
        if found is None:
            found = self.occurrences[key] = Occurrence(*key)
        return found

    def declared(self, effect: str) -> Effect:
        """Give what the Effects table says of an effect, or that it says nothing."""
        found = self.effects.get(effect)
        if found is None:
            found = self.effects[effect] = Effect(effect)
        return found

    def handling(self, effect: str) -> str:
        """Give what is done about an effect in doubt: `retry`, `ask` or `fail`, as the column says, or its kind."""
        about = self.declared(effect)
        return about.in_doubt or ("ask" if about.kind == "actuator" else "retry")


def monitored(machine: Machine) -> tuple[tuple[str, Monitored], ...]:
    """Give the properties that a single run can break, with their texts."""
    return tuple((show(prop.form), prop.form) for prop in machine.properties if is_monitor(prop.form))
