"""Seed plans: the faults that can strike a run, what is to happen in the story of one seed, and what all stories of a machine share.

A `Subject` is what is simulated: a machine at its parameters' values, its document's text, the policies that are real, and everything that is
computed from them once. A `Guide` knows ways through its explored graph: to a row that is aimed at, and from anywhere to an end.

A `SeedPlan` says which triple a seed aims at, on which way the run comes there, what else goes wrong, and what it may cost. The same seed is the same
plan, whichever others are played.

`possible` takes a machine's graph and gives every triple of row, boundary and fault: the denominator of coverage. How faults are made is in
`dsa.testing.simulation.mishaps`.

`Chance` follows from a seed: the same question gets the same answer, whenever and however often it is asked. So a run that is cut off and
taken up again meets the world that it would have met, and one seed tells one story.
"""

import hashlib
import heapq
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Literal, TypeVar

import attrs

from dsa.checks.monitor import MonitorableForm, is_monitor
from dsa.compiled_step import compiled_step
from dsa.declarations import OUTSIDE, Effect, show
from dsa.edge.binding import effect_names
from dsa.lang import digest
from dsa.machine import Machine, sleeping_effects
from dsa.runtime.costs import RUN, BudgetLimit
from dsa.runtime.ledger import EventEntry
from dsa.runtime.policy.policies import Policy
from dsa.semantics import Configuration, Occurrence, Refusal, Taken, is_over
from dsa.testing.explored_graph import ExploredGraph, GraphEdge, graph_of

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
    "durable": "event, row and intents are on the disk, no effect has begun",
    "performing": "an effect of the row is under way and has not happened",
    "performed": "an effect has happened, but its result is not written",
    "result unsynced": "the result of an effect is written, but not synced",
    "recorded": "the result of an effect is on the disk, but nothing that follows from it has begun",
    "resting": "nothing that the row asked for is under way",
    "releasing": "the run has come to rest, and its process releases it",
    "recovering": "the next process takes the run up",
    "after hold": "a process (the next one, or the same again) holds the run, but has not continued it",
    "after resumed": "the process has recorded on the disk what it will do about the effects under way, and does that next",
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
    "power cut": "the machine ends; what was not synced is lost, incomplete or intact",
    "write fails": "the disk is full, now or until somebody makes room; the process can write nothing any more",
    "sync fails": "the disk reports that it could not sync; the frame may be there or not",
    "damage": "a byte of the ledger has changed when it is read",
    "takeover": "another process takes the run; the first one goes on and does not know that",
    "second holder": "another process asks for the run, and does not take it",
    "clock forward": "somebody sets the wall clock forward, by up to a day",
    "clock back": "somebody sets the wall clock back",
    "lost answer": "an effect happens, but its answer never arrives",
    "failure": "an effect fails before it happens",
    "garbled answer": "a policy gives something that is not an answer",
    "doubled answer": "an answer arrives twice",
    "late answer": "an effect that was cancelled answers anyway",
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


# --- plans ---

T = TypeVar("T")

_PERCENT = 100


class Chance:
    """Draws of one seed. `about` says what a draw is about; draws about different things are independent."""

    def __init__(self, seed: int) -> None:
        self._seed = hashlib.blake2b(b"%d" % seed, digest_size=8)

    def number(self, *about: object) -> int:
        """Draw a number of 64 bits."""
        hasher = self._seed.copy()
        hasher.update("\x1f".join(map(str, about)).encode())
        return int.from_bytes(hasher.digest(), "big")

    def below(self, limit: int, *about: object) -> int:
        """Draw a number from 0 to `limit` - 1."""
        return self.number(*about) % limit

    def one_of(self, options: Sequence[T], *about: object) -> T:
        """Draw one of some options; there is at least one."""
        return options[self.number(*about) % len(options)]

    def happens(self, percent: int, *about: object) -> bool:
        """Return whether something happens that happens in `percent` of all cases."""
        return self.number(*about) % _PERCENT < percent


#: What a move costs on a way; timers are dear, because other timers may be due before them.
_COST, _TIMER_COST = 1, 4
_STRAIGHT_PERCENT = 75
_SEVERAL = 8


class Guide:
    """The cheapest way to every move, and the distance of every configuration from a final state."""

    def __init__(self, graph: ExploredGraph) -> None:
        self._graph = graph
        self._arrivals: list[GraphEdge | None] = [None] * len(graph.configurations)
        self._cost = self._explore()
        self._left = graph.distances(
            n for n, configuration in enumerate(graph.configurations) if is_over(graph.machine, configuration)
        )

    def _explore(self) -> list[int]:
        """Return the cost of reaching each configuration; record the move that reaches it."""
        unknown = 1 + _TIMER_COST * len(self._graph.configurations)
        cost = [unknown] * len(self._graph.configurations)
        cost[0] = 0
        queue = [(0, 0)]
        while queue:
            so_far, place = heapq.heappop(queue)
            if so_far > cost[place]:
                continue
            for move in self._graph.moves_from[place]:
                then = so_far + _cost(move)
                if then < cost[move.target]:
                    cost[move.target], self._arrivals[move.target] = then, move
                    heapq.heappush(queue, (then, move.target))
        return cost

    def nearest(self, moves: tuple[GraphEdge, ...]) -> tuple[GraphEdge, ...]:
        """Return some of these moves, the one that is cheapest to come to first."""
        return tuple(sorted(moves, key=lambda move: self._cost[move.source] + _cost(move))[:_SEVERAL])

    def way(self, goal: GraphEdge) -> tuple[GraphEdge, ...]:
        """Return the cheapest way from the start that ends with a move."""
        way, place = [goal], goal.source
        while (move := self._arrivals[place]) is not None:
            way.append(move)
            place = move.source
        return tuple(way[::-1])

    def where(self, move: GraphEdge) -> Configuration:
        """Return the configuration in which a move is taken."""
        return self._graph.configurations[move.source]

    def onwards(self, here: Configuration, chance: Chance, position: int) -> GraphEdge | None:
        """Return the next move of a run that nothing is planned for: mostly towards an end. None where nothing can happen."""
        moves = self._graph.moves_from[self._graph.index[here]]
        if not moves:
            return None
        if chance.happens(_STRAIGHT_PERCENT, "straight", position):
            lefts = [left for move in moves if (left := self._left[move.target]) is not None]
            if lefts:
                moves = tuple(move for move in moves if self._left[move.target] == min(lefts))
        return chance.one_of(moves, "onwards", position)


def _cost(move: GraphEdge) -> int:
    return _COST if move.occurrence.source is None else _TIMER_COST


#: The id of every simulated run: each has a disk of its own.
RUN_ID = "sim"


@attrs.frozen(slots=False)
class Subject:
    """A machine to be simulated. `handlers` are the real policies, by effect; an effect without one is made up.

    `properties` are watched in every run: those of the machine, or of the spec that adds to it.
    """

    machine: Machine
    text: str
    handlers: Mapping[str, Policy] = attrs.field(factory=dict)
    properties: tuple[tuple[str, MonitorableForm], ...] = ()

    #: The moves at which triples are aimed, the cheapest to come to first.
    goal_moves: dict[Triple, tuple[GraphEdge, ...]] = attrs.field(factory=dict, init=False, repr=False)
    #: The occurrences of events, by all that the table reads: most runs take the same.
    occurrences: dict[tuple[object, ...], Occurrence] = attrs.field(factory=dict, init=False, repr=False)
    #: The violation of the properties by the rows that a run has taken, or None; most runs take the same.
    violations: dict[tuple[Occurrence, ...], str | None] = attrs.field(factory=dict, init=False, repr=False)

    @cached_property
    def graph(self) -> ExploredGraph:
        """All that the machine can do. Raises DsaError."""
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
        """All triples of row, boundary and fault."""
        return tuple(possible(self.rows))

    @cached_property
    def step(self) -> Callable[[Configuration, Occurrence], Taken | Refusal]:
        """The compiled step, which keeps its results."""
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
    def emitted_effects(self) -> tuple[str, ...]:
        """The effects that rows emit."""
        return tuple(name for name, _ in effect_names(self.machine))

    @cached_property
    def has_timers(self) -> bool:
        """Return whether any row is a timer's."""
        return any(row.is_timer for row in self.machine.transitions)

    @cached_property
    def sleeps(self) -> Mapping[str, int]:
        """The effects that sleep, with the milliseconds."""
        return sleeping_effects(self.machine)

    def prepare(self) -> None:
        """Compute what all stories share, before they are shared out. Raises DsaError."""
        _ = self.triples, self.guide, self.step, self.digest

    def goals(self, aim: Triple) -> tuple[GraphEdge, ...]:
        """Return the moves at which a triple can be hit, the cheapest to come to first."""
        moves = self.goal_moves.get(aim)
        if moves is None:
            moves = self.goal_moves[aim] = self.guide.nearest(self.rows[aim.row].moves_for(aim.boundary, aim.fault))
        return moves

    def occurrence(self, event: EventEntry) -> Occurrence:
        """Return what the table reads of an event, which is not its data."""
        key = event.event, event.verdicts, event.source
        occurrence = self.occurrences.get(key)
        if occurrence is None:
            occurrence = self.occurrences[key] = Occurrence(*key)
        return occurrence

    def declaration(self, effect: str) -> Effect:
        """Return an effect as the Effects table declares it; without a row, one with its name alone."""
        declaration = self.effects.get(effect)
        if declaration is None:
            declaration = self.effects[effect] = Effect(effect)
        return declaration

    def handling(self, effect: str) -> str:
        """Return the handling of an effect in doubt: `retry`, `ask` or `fail`, as the column says, or its kind."""
        about = self.declaration(effect)
        return about.in_doubt or ("ask" if about.kind == "actuator" else "retry")


def monitored_properties(machine: Machine) -> tuple[tuple[str, MonitorableForm], ...]:
    """Return the properties that a single run can break, with their texts."""
    return tuple((show(prop.form), prop.form) for prop in machine.properties if is_monitor(prop.form))


#: The rows that a run goes on beyond its way before the last event is sent to it.
_BEYOND = 8
#: How many further faults a seed has, and before how many boundaries they strike.
_FURTHER, _WITHIN = (0, 0, 1, 1, 2), 60
_LIMITED_PERCENT, _MOST_CALLS = 12, 6


@attrs.define
class SeedPlan:
    """One seed's plan. `way` are the moves that lead to the row aimed at; `further` are the boundaries, counted, at which more goes wrong."""

    seed: int
    chance: Chance
    aim: Triple
    way: tuple[GraphEdge, ...]
    further: frozenset[int]
    limits: tuple[BudgetLimit, ...]
    _guide: Guide = attrs.field(repr=False)
    #: After this number of rows nothing is sent to the run any more.
    longest: int = attrs.field(init=False)
    _next_occurrences: dict[int, tuple[Configuration, Occurrence | None]] = attrs.field(factory=dict, repr=False)

    def __attrs_post_init__(self) -> None:
        """Compute what is needed again and again."""
        self.longest = len(self.way) + _BEYOND

    @property
    def sends_first(self) -> bool:
        """Return whether the run is begun with its first event, and not before it: nobody can take a run that is not there yet."""
        return not (len(self.way) == 1 and self.aim.fault in {"takeover", "damage"}) and self.chance.happens(
            80, "sends first"
        )

    def next_occurrence(self, position: int, here: Configuration) -> Occurrence | None:
        """Return the next occurrence after `position` rows: as planned, else by chance. None when nothing can come."""
        entry = self._next_occurrences.get(position)
        if entry is None or (entry[0] is not here and entry[0] != here):
            entry = self._next_occurrences[position] = (here, self._next(position, here))
        return entry[1]

    def _next(self, position: int, here: Configuration) -> Occurrence | None:
        if position < len(self.way) and self._guide.where(self.way[position]) == here:
            return self.way[position].occurrence
        move = self._guide.onwards(here, self.chance, position)
        return None if move is None else move.occurrence


def plan_of(subject: Subject, seed: int) -> SeedPlan:
    """Return a seed's plan. As many seeds as there are triples aim at each of them once, on the cheapest way and with nothing else wrong."""
    chance = Chance(seed)
    lap, place = divmod(seed, len(subject.triples))
    aim = subject.triples[place]
    moves = subject.goals(aim)
    goal = chance.one_of(moves, "goal") if lap else moves[0]
    count = chance.one_of(_FURTHER, "further") if lap else 0
    further = frozenset(chance.below(_WITHIN, "further", number) for number in range(count))
    limits: tuple[BudgetLimit, ...] = ()
    if lap and chance.happens(_LIMITED_PERCENT, "limited"):
        effect = chance.one_of(
            (RUN, *sorted(set(subject.emitted_effects) & subject.machine.answers.keys())), "limited effect"
        )
        limits = (BudgetLimit("calls", 1 + chance.below(_MOST_CALLS, "limit"), effect),)
    return SeedPlan(seed, chance, aim, subject.guide.way(goal), further, limits, subject.guide)
