"""Faults and boundaries: what can go wrong in a simulated run, and the boundaries of a row at which it makes sense.

`possible` takes a machine's graph and gives every triple of row, boundary and fault: the denominator of coverage. How faults are made is in
`dsa.testing.simulation.mishaps`.
"""

from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from typing import Literal

import attrs

from dsa.declarations import OUTSIDE
from dsa.machine import Machine, sleeping_effects
from dsa.semantics import Configuration
from dsa.testing.explored_graph import ExploredGraph, GraphEdge

Boundary = Literal[
    "before", "unsynced", "durable", "performing", "performed", "result unsynced", "recorded", "resting", "releasing",
    "recovering", "after hold", "after resumed",
]  # fmt: skip
Fault = Literal[
    "kill", "power cut", "write fails", "sync fails", "damage", "takeover", "second holder", "clock forward",
    "clock back", "lost answer", "failure", "garbled answer", "doubled answer", "late answer", "stray event",
]  # fmt: skip

_ENDS: tuple[Fault, ...] = ("kill", "power cut")
_OTHERS: tuple[Fault, ...] = ("takeover", "second holder", "clock forward", "clock back", "stray event")

#: What a run is doing at each boundary of a row, in the order in which a row passes them.
BOUNDARIES: dict[Boundary, str] = {
    "before": "the row is chosen, nothing of it is written",
    "unsynced": "event, row and intents are written, not synced",
    "durable": "they are on the disk, no effect has begun",
    "performing": "an effect of the row is under way and has not happened",
    "performed": "it has happened, its result is not written",
    "result unsynced": "its result is written, not synced",
    "recorded": "its result is on the disk, nothing that follows from it has begun",
    "resting": "nothing that the row asked for is under way",
    "releasing": "the run has come to rest, and its process lets go of it",
    "recovering": "the next process takes the run up",
    "after hold": "a process holds the run, the next one or the same again, and has not gone on with it",
    "after resumed": "it has said what it does about the effects under way, on the disk, and does it next",
}
#: The faults that make sense at each boundary.
FAULTS_AT: dict[Boundary, tuple[Fault, ...]] = {
    "before": (*_ENDS, "write fails", "takeover", "doubled answer"),
    "unsynced": (*_ENDS, "sync fails"),
    "durable": _ENDS,
    "performing": (*_ENDS, *_OTHERS, "lost answer", "failure", "garbled answer"),
    "performed": (*_ENDS, "write fails", "takeover"),
    "result unsynced": (*_ENDS, "sync fails"),
    "recorded": _ENDS,
    "resting": (*_ENDS, *_OTHERS, "late answer"),
    "releasing": (*_ENDS, "write fails", "sync fails", "takeover"),
    "recovering": (*_ENDS, "write fails", "sync fails", "damage"),
    "after hold": (*_ENDS, "takeover", "second holder"),
    "after resumed": _ENDS,
}
#: What each fault does.
FAULTS: dict[Fault, str] = {
    "kill": "the process ends; what it has written stays",
    "power cut": "the machine ends; what was not synced is lost, torn or there",
    "write fails": "the disk is full, now or until somebody makes room; the process can write nothing any more",
    "sync fails": "the disk says so; the frame may be there or not",
    "damage": "a byte of the ledger is another one when it is read",
    "takeover": "another process takes the run; this one goes on and does not know",
    "second holder": "another process asks for the run, and does not take it",
    "clock forward": "somebody sets the clock on the wall, up to a day",
    "clock back": "somebody sets it back",
    "lost answer": "an effect happens and never comes back",
    "failure": "an effect fails before it happens",
    "garbled answer": "a policy gives what is no answer",
    "doubled answer": "an answer arrives twice",
    "late answer": "an effect that was cancelled answers all the same",
    "stray event": "an event from outside that nobody waits for",
}
_WITH_EFFECTS: tuple[Boundary, ...] = ("performing", "performed", "result unsynced", "recorded", "after resumed")


@attrs.frozen
class Triple:
    """A row, by its index, a boundary of it and a fault there."""

    row: int
    boundary: Boundary
    fault: Fault


@attrs.frozen(slots=False)
class RowFacts:
    """A row with the moves that take it; there is at least one."""

    graph: ExploredGraph
    moves: tuple[GraphEdge, ...]

    @cached_property
    def starting_moves(self) -> tuple[GraphEdge, ...]:
        """The moves that begin some effect that is performed."""
        return tuple(move for move in self.moves if _performed_effects(self.graph, move))

    @cached_property
    def cancelling_moves(self) -> tuple[GraphEdge, ...]:
        """The moves that cancel an effect while the run goes on."""
        return tuple(move for move in self.moves if not self._is_final(move) and _cancelled_effects(self.graph, move))

    @cached_property
    def resting_moves(self) -> tuple[GraphEdge, ...]:
        """The moves after which none of the row's effects is awaited, but for sleeps."""
        answers = self.graph.machine.answers
        return tuple(m for m in self.moves if not answers.keys() & set(_performed_effects(self.graph, m)))

    @cached_property
    def releasing_moves(self) -> tuple[GraphEdge, ...]:
        """The moves after which a run rests, so that its process releases it."""
        graph, resting_moves = self.graph, set(self.resting_moves)
        return tuple(m for m in self.moves if m in resting_moves and _rests(graph, graph.configurations[m.target]))

    @property
    def is_answer(self) -> bool:
        """Return whether the row is for an answer of an effect."""
        return _origin(self.graph.machine, self.moves[0]) is not None

    def _is_final(self, move: GraphEdge) -> bool:
        return self.graph.configurations[move.target].state in self.graph.machine.final_states

    def moves_for(self, boundary: Boundary, fault: Fault) -> tuple[GraphEdge, ...]:
        """Return the moves at which a fault can strike at a boundary of the row; none where it makes no sense."""
        if boundary in _WITH_EFFECTS:
            moves = self.starting_moves
        elif boundary == "resting":
            moves = self.cancelling_moves if fault == "late answer" else self.resting_moves
            if fault.startswith("clock"):
                moves = tuple(move for move in moves if not self._is_final(move))
        elif boundary == "releasing":
            moves = self.releasing_moves
        else:
            moves = self.moves
        if fault == "doubled answer" and not self.is_answer:
            return ()
        if fault == "stray event" and not outside_events(self.graph.machine):
            return ()
        return moves


def rows_of(graph: ExploredGraph) -> dict[int, RowFacts]:
    """Return the facts of each row that can be taken, by its index."""
    moves: dict[int, list[GraphEdge]] = {}
    for move in graph.moves:
        moves.setdefault(move.row, []).append(move)
    return {row: RowFacts(graph, tuple(moves[row])) for row in sorted(moves)}


def possible(rows: dict[int, RowFacts]) -> Iterator[Triple]:
    """Yield every triple, row by row."""
    for row, facts in rows.items():
        for boundary, faults in FAULTS_AT.items():
            yield from (Triple(row, boundary, fault) for fault in faults if facts.moves_for(boundary, fault))


def outside_events(machine: Machine) -> tuple[str, ...]:
    """Return the events that come from outside."""
    return tuple(event.name for event in machine.events if event.origin == OUTSIDE)


def started_effects(graph: ExploredGraph, move: GraphEdge) -> tuple[str, ...]:
    """Return the effects that a move begins: not those that it cancels itself, or that a final state does."""
    after = graph.configurations[move.target].outstanding
    return tuple(e for e in move.effects if e not in graph.machine.answers or e in after)


def _performed_effects(graph: ExploredGraph, move: GraphEdge) -> tuple[str, ...]:
    sleeps = sleeping_effects(graph.machine)
    return tuple(effect for effect in started_effects(graph, move) if effect not in sleeps)


def _cancelled_effects(graph: ExploredGraph, move: GraphEdge) -> frozenset[str]:
    """Return the effects of which a move cancels older emissions; it may emit new ones."""
    older = Counter(graph.configurations[move.source].outstanding)
    older.subtract(filter(None, (_origin(graph.machine, move),)))
    after, new = Counter(graph.configurations[move.target].outstanding), Counter(move.effects)
    return frozenset(effect for effect in older if 0 < older[effect] != after[effect] - new[effect])


def _rests(graph: ExploredGraph, where: Configuration) -> bool:
    """Return whether a run rests there: it is over, or no effect is awaited and no timer runs."""
    machine = graph.machine
    return where.state in machine.final_states or not (where.outstanding or machine.armed_timers(where.state))


def _origin(machine: Machine, move: GraphEdge) -> str | None:
    """Return the effect that a move's event answers."""
    if move.occurrence.source is not None:
        return None
    origin = machine.event_named[move.occurrence.event].origin
    return None if origin == OUTSIDE else origin
