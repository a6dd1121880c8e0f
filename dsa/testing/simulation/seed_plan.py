"""Seed plans: what is to happen in the story of one seed, and what all stories of a machine share.

A `Subject` is what is simulated: a machine at its parameters' values, its document's text, the policies that are real, and everything that is
computed from them once. A `Guide` knows ways through its explored graph: to a row that is aimed at, and from anywhere to an end.

A `SeedPlan` says which triple a seed aims at, on which way the run comes there, what else goes wrong, and what it may cost. The same seed is the same
plan, whichever others are played.

`Chance` follows from a seed: the same question gets the same answer, whenever and however often it is asked. So a run that is cut off and
taken up again meets the world that it would have met, and one seed tells one story.
"""

import hashlib
import heapq
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TypeVar

import attrs

from dsa.checks.monitor import MonitorableForm, is_monitor
from dsa.compiled_step import compiled_step
from dsa.declarations import Effect, show
from dsa.edge.binding import effect_names
from dsa.lang import digest
from dsa.machine import Machine, sleeping_effects
from dsa.runtime.costs import RUN, BudgetLimit
from dsa.runtime.ledger import EventEntry
from dsa.runtime.policy.policies import Policy
from dsa.semantics import Configuration, Occurrence, Refusal, Taken, is_over
from dsa.testing.explored_graph import ExploredGraph, GraphEdge, graph_of
from dsa.testing.simulation.faults import RowFacts, Triple, possible, rows_of

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
