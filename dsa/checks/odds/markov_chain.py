"""A system as a chain: every configuration that can be met, with the odds of what comes next; and the odds of guards, which a document or a user assumes.

Takes a ground system and the odds of its guards, gives a `Chain` of numbered nodes. What comes (docs/how-to/odds.md):

- While something is outstanding, one of its answers; no timer fires then, nothing comes from outside, and no effect fails
  unless odds are given for its failure.
- Else an armed timer fires, unless an outside event with odds comes before it.
- Else the run waits for something from outside, and that is its end; only at the start does an outside event come, or where
  odds are given for it.

Where several things can come and no odds say which, the node has several choices. The result is then the least and the most over all ways to choose.

`guard_odds` gives the odds of each verdict, by retry number: how many times in a row a guard has said `failed` when it is asked (docs/decisions/0008).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import product
from math import fsum, prod
from typing import Literal, Protocol

import attrs

from dsa.checks.search.engine import SearchLimits
from dsa.declarations import Guard
from dsa.errors import ParameterError, UndecidedError
from dsa.expr import OUTCOMES, Outcome, count, show_value
from dsa.ground_system import Ground, GroundRule, python_source
from dsa.machine import Machine
from dsa.semantics import is_over
from dsa.system import GuardedCommand, Location, System
from dsa.text import closest

#: Odds are written in decimals, which do not add up exactly.
ROUNDING = 1e-9
#: What several numbers below 1 are rounded by, together.
_EPSILON = 1e-15
#: Compositions that need all of their parts; the second stops at the first part that does not pass.
_ALL, _IN_ORDER = "all", "in_order"
_MOST_PARTS = 8

Numbers = Sequence[float]


def left_over(*chances: float) -> float:
    """Return what odds leave to 1: nothing where it is no more than their rounding, as of 0.57, 0.41 and 0.02."""
    left = 1.0 - fsum(chances)
    return left if left > (_EPSILON if sum(map(bool, chances)) > 1 else 0.0) else 0.0


def odds_error(message: str) -> ParameterError:
    """Return the error for odds that cannot be worked out, or do not fit the machine."""
    return ParameterError(message, code="OddsError")


@attrs.frozen
class Odds:
    """The odds of one guard: `passed` and `fatal` have one number per retry number, the last one repeated."""

    passed: tuple[float, ...]
    fatal: tuple[float, ...] = (0.0,)

    @property
    def memory(self) -> int:
        """How many retry numbers differ from each other: 1 when the odds never change."""
        longest = max(len(self.passed), len(self.fatal))
        while longest > 1 and self.at(longest - 1) == self.at(longest - 2):
            longest -= 1
        return longest

    @property
    def is_memoryless(self) -> bool:
        """Whether one number is given for all retries: however often the guard has failed, the odds are the same."""
        return len(self.passed) == len(self.fatal) == 1

    def at(self, retry: int) -> dict[Outcome, float]:
        """Return the odds of each verdict at a retry number."""
        passed, fatal = (numbers[min(retry, len(numbers) - 1)] for numbers in (self.passed, self.fatal))
        return {"passed": passed, "failed": left_over(passed, fatal), "fatal": fatal}

    def corners(self, retry: int) -> tuple[dict[Outcome, float]]:
        """Return the odds at a retry number as the only ones that they can be."""
        return (self.at(retry),)


@attrs.frozen
class GuardOdds:
    """What is known of each guard that may be asked; a guard without odds is in neither."""

    odds: Mapping[str, Odds]
    sentences: tuple[str, ...] = ()


def guard_odds(
    machine: Machine, passes: Mapping[str, Numbers] | None = None, fatals: Mapping[str, Numbers] | None = None
) -> GuardOdds:
    """Return the odds of a machine's guards: as given, else as declared, else put together from a composition's parts.

    Fatal odds that nobody gives are 0. Raises ParameterError for a guard that is not declared, and for numbers that are not odds.
    """
    passes, fatals = dict(passes or {}), dict(fatals or {})
    for name in (*passes, *fatals):
        if name not in machine.guard_named:
            raise odds_error(f"machine {machine.name} has no guard '{name}'; {closest(name, machine.guard_named)}")
    odds_by_guard: dict[str, Odds] = {}
    without_fatal = []
    for guard in machine.guards:
        odds = _of(machine, guard, passes, fatals)
        if odds is not None:
            _require(guard, odds)
            _require_own_retries(machine, guard, odds)
            odds_by_guard[guard.name] = odds
            if guard.judges and guard.name not in fatals and not any(odds.fatal) and not guard.fatal_odds:
                without_fatal.append(guard.name)
    sentence = f"fatal odds that are not given are 0 ({', '.join(without_fatal)})"
    can = [name for name in without_fatal if "fatal" in machine.guard_named[name].outcomes]
    return GuardOdds(odds_by_guard, (sentence,) if can else ())


def _of(
    machine: Machine, guard: Guard, passes: Mapping[str, Numbers], fatals: Mapping[str, Numbers], depth: int = 0
) -> Odds | None:
    passed = tuple(passes.get(guard.name, guard.pass_odds))
    fatal = tuple(fatals.get(guard.name, guard.fatal_odds))
    if passed and not fatal and "failed" not in guard.outcomes:
        fatal = tuple(1.0 - number for number in passed)  # it has no other verdict
    if passed:
        return Odds(passed, fatal or (0.0,))
    if len(guard.outcomes) == 1:
        return Odds((float("passed" in guard.outcomes),), (float("fatal" in guard.outcomes),))
    if fatal and "passed" not in guard.outcomes:
        return Odds((0.0,), fatal)
    options = dict(guard.options)
    names = [name.strip() for name in options.get("of", "").split(",") if name.strip()] or [guard.kind]
    parts = [machine.guard_named[name] for name in names if name in machine.guard_named and name != guard.name]
    if len(parts) != len(names) or len(parts) > _MOST_PARTS or depth > len(machine.guards):
        return None
    odds = [_of(machine, part, passes, fatals, depth + 1) for part in parts]
    if fatal or any(part is None for part in odds):
        return None
    part_odds = [part for part in odds if part is not None]
    if len(part_odds) == 1:
        return part_odds[0]
    kind = guard.kind if "of" in options else _ALL
    return _together(kind, part_odds, options.get("k", "1"))


def _together(kind: str, parts: list[Odds], at_least: str) -> Odds | None:
    """Put independent parts together as their composition does: a fatal part makes the whole fatal."""
    passes_needed = {
        _ALL: len(parts),
        _IN_ORDER: len(parts),
        "any": 1,
        "at_least": int(at_least) if at_least.isdigit() else 0,
    }
    if not 1 <= passes_needed.get(kind, 0) <= len(parts) or any(part.memory > 1 for part in parts):
        return None  # a part's own retry number is not the composition's
    odds = [part.at(0) for part in parts]
    passed = fatal = 0.0
    for outcomes in product(OUTCOMES, repeat=len(parts)):
        chance = prod(part[outcome] for part, outcome in zip(odds, outcomes, strict=True))
        outcomes_asked = outcomes
        if kind == _IN_ORDER:  # it stops at the first that does not pass
            stop = next((place for place, outcome in enumerate(outcomes) if outcome != "passed"), len(outcomes))
            outcomes_asked = outcomes[: stop + 1]
        if "fatal" in outcomes_asked:
            fatal += chance
        elif outcomes_asked.count("passed") >= passes_needed[kind]:
            passed += chance
    return Odds((passed,), (fatal,))


def _require_own_retries(machine: Machine, guard: Guard, odds: Odds) -> None:
    """Raise ParameterError for odds by retry number of answers of which several are awaited: the guard's retries then mix theirs."""
    for event in guard.judges if odds.memory > 1 else ():
        effect = machine.event_named[event].origin
        if effect in machine.numbered_effects:
            line = f"line {guard.span.line}: " if guard.span else ""
            raise odds_error(
                f"{line}the odds of guard {guard.name} change with the retry number, but the guard judges '{event}', and several of "
                f"{effect} may be outstanding, so the guard cannot tell their retries apart; give one number for pass and one for fatal"
            )


def _require(guard: Guard, odds: Odds) -> None:
    for number in (*odds.passed, *odds.fatal):
        if not 0 <= number <= 1:
            raise odds_error(f"{number:g} is not a probability of guard {guard.name}: it must lie between 0 and 1")
    for retry in range(max(len(odds.passed), len(odds.fatal))):
        here = odds.at(retry)
        if here["passed"] + here["fatal"] > 1 + ROUNDING:
            total = here["passed"] + here["fatal"]
            raise odds_error(f"pass and fatal of guard {guard.name} add up to {total:g} at retry {retry}, more than 1")
        for outcome, chance in here.items():
            if chance > ROUNDING and outcome not in guard.outcomes:
                raise odds_error(
                    f"guard {guard.name} never says {outcome}, so the odds of that verdict must be 0, not {chance:g}; "
                    f"it says: {', '.join(guard.outcomes)}"
                )


# -- the chain -------------------------------------------------------------------------------------------------------------

#: The most configurations of a chain.
MAX_NODES = 1_000_000
_LIMITS = SearchLimits(MAX_NODES)
#: The clock is checked once for this many nodes.
_NODES_PER_CHECK = 1024

EndKind = Literal["final", "waits", "refused", "reached"]
#: An edge: its probability, the node it leads to, and the command taken (an index into the system's); -1 for none.
Edge = tuple[float, int, int]
Choice = tuple[Edge, ...]


class VerdictOdds(Protocol):
    """How likely each verdict of a guard is, at a retry number."""

    @property
    def memory(self) -> int:
        """How many retry numbers have odds of their own."""

    @property
    def is_memoryless(self) -> bool:
        """Whether the odds never change, however often the guard has failed before."""

    def corners(self, retry: int) -> Sequence[Mapping[Outcome, float]]:
        """Return the odds; several when all that is known is that the truth lies between them."""


@attrs.frozen
class End:
    """How a run ends: in a final state, waiting for an outside event, or at an event that the table refuses.

    For a property, also where its condition has become true.
    """

    kind: EndKind
    state: str


@attrs.frozen(slots=False)
class Chain:
    """What can be met, from the first node on. A node with an end has no choices.

    `numbers` are the configurations' in the ground. `missing` names what has no odds, with what to write: then no edge
    has a probability that means anything. `stop_reason` says why the rest was left out: at a limit, edges may lead to nodes that
    have no choices here. `unused_events` names events whose odds were given and that never come, `unanswered_states` states in which a
    timer fires though an outside event without odds could come. `is_expired` returns whether the time is over.
    """

    ground: Ground
    numbers: tuple[int, ...]
    choices: tuple[tuple[Choice, ...], ...]
    ends: Mapping[int, End]
    missing: tuple[str, ...]
    stop_reason: str = ""
    unused_events: tuple[str, ...] = ()
    unanswered_states: frozenset[str] = frozenset()
    is_expired: Callable[[], bool] = lambda: False

    @property
    def complete(self) -> bool:
        """Return whether the chain has everything."""
        return not self.stop_reason

    def require_time(self) -> None:
        """Raise UndecidedError when the time is over."""
        if self.is_expired():
            raise UndecidedError("the time limit was reached before the odds were worked out")

    @property
    def system(self) -> System:
        """The system that the chain is of."""
        return self.ground.system

    @cached_property
    def is_chosen(self) -> bool:
        """Return whether there are choices anywhere."""
        return any(len(choices) > 1 for choices in self.choices)

    def edges(self) -> Iterator[tuple[int, Edge]]:
        """Yield every edge with the node it leaves."""
        for node, choices in enumerate(self.choices):
            for choice in choices:
                for edge in choice:
                    yield node, edge


@attrs.frozen
class ChainAssumptions:
    """What is assumed beside the guards' odds.

    `events` gives the odds of events: of an answer among the answers of its effect, of an outside event where the run
    would wait, and that it comes before the timer where one is armed. With `outside`, outside events come too where the
    run would wait or a timer would fire, by choice, for as long as any is accepted.
    """

    guards: Mapping[str, VerdictOdds]
    events: Mapping[str, float] = attrs.field(factory=dict)
    outside: bool = False


def chain_of(ground: Ground, world: ChainAssumptions, limits: SearchLimits = _LIMITS) -> Chain:
    """Build the chain: empty when a variable starts outside its domain.

    Raises ParameterError for events that do not exist or whose odds add up to more than 1.
    """
    machine = ground.system.machine
    _require_events(machine, world.events)
    for variable, value in zip(machine.variables, machine.initial_values, strict=True):
        if not (values := machine.values_of[variable.name]).contains(value):
            why = f"{variable.name} starts as {show_value(value)}, outside {values}"
            return Chain(ground, (), (), {}, (), why)
    return _ChainLayout(ground, world, limits).run()


def _require_events(machine: Machine, events: Mapping[str, float]) -> None:
    for name, chance in events.items():
        if name not in machine.event_named:
            raise odds_error(f"machine {machine.name} has no event '{name}'; {closest(name, machine.event_named)}")
        if not 0 <= chance <= 1:
            raise odds_error(f"{chance:g} is not a probability of event {name}: it must lie between 0 and 1")
        origin = machine.event_named[name].origin
        if name == f"{origin}.failed" and origin not in machine.failures_handled:
            raise odds_error(f"no row handles {name}, so this failure stops the run and cannot have odds")


#: What a rule does to a configuration's data: the data after it, or None when it is not taken.
_Act = Callable[[int], int | None]


@attrs.frozen
class _Way:
    """One event at a location: its rules by the verdicts of its guards. `guards` may be empty."""

    event: str
    guards: tuple[str, ...]
    rules: tuple[tuple[tuple[Outcome, ...], tuple[tuple[_Act, int, int], ...]], ...]


class _ChainLayout:
    def __init__(self, ground: Ground, world: ChainAssumptions, limits: SearchLimits) -> None:
        self._ground, self._world, self._limits = ground, world, limits
        self._used_events: set[str] = set()
        self._unanswered_states: set[str] = set()
        self._ways: dict[int, dict[str, _Way]] = {}
        self._memory = tuple(sorted(guard for guard, says in world.guards.items() if says.memory > 1))
        self._place: dict[object, int] = {}
        self._keys: list[tuple[int, tuple[int, ...], EndKind | None]] = []
        self._ends: dict[int, End] = {}
        self._missing: dict[str, None] = {}

    def run(self) -> Chain:
        first = (self._ground.start, (0,) * len(self._memory))
        self._node(*first, end=None, key="start")
        choices: list[tuple[Choice, ...]] = []
        stop_reason = ""
        for node, (number, counts, end) in enumerate(self._keys):  # grows while it is walked
            if stop_reason := self._limit_reached(node):
                break
            choices.append(() if end else tuple(self._choices(node, number, counts)))
        choices += [()] * (len(self._keys) - len(choices))  # a node beyond a limit leads nowhere
        numbers = tuple(number for number, _, _ in self._keys)
        unused_events = (
            () if stop_reason else tuple(name for name in self._world.events if name not in self._used_events)
        )
        missing, unanswered_states = tuple(self._missing), frozenset(self._unanswered_states)
        layout = (self._ground, numbers, tuple(choices), self._ends)
        return Chain(*layout, missing, stop_reason, unused_events, unanswered_states, self._limits.is_expired)

    def _limit_reached(self, node: int) -> str:
        """Return which limit is reached before the choices of a node are added."""
        if node >= self._limits.max_states:
            return f"more than {self._limits.max_states} configurations"
        if node % _NODES_PER_CHECK == 0 and self._limits.is_expired():
            return f"the time limit was reached after {node} configurations"
        return ""

    def _node(self, number: int, counts: tuple[int, ...], *, end: EndKind | None, key: object = None) -> int:
        place = self._place.setdefault(key or (number, counts, end), len(self._keys))
        if place == len(self._keys):
            self._keys.append((number, counts, end))
            state = self._location(number).state
            if end is None and is_over(self._ground.system.machine, self._ground.decode(number)):
                end = "final"
                self._keys[place] = (number, counts, end)
            if end is not None:
                self._ends[place] = End(end, state)
        return place

    def _location(self, number: int) -> Location:
        return self._ground.system.locations[number // self._ground.volume]

    def _choices(self, node: int, number: int, counts: tuple[int, ...]) -> Iterator[Choice]:
        """Yield what can come at a node: each choice has the edges of all its outcomes."""
        machine = self._ground.system.machine
        if outstanding := self._ground.outstanding(number):
            for effect in dict.fromkeys(outstanding):
                answers = (*machine.answers[effect], f"{effect}.failed")
                for mixture in self._mixtures(effect, answers):
                    yield from self._mixture_choices(number, counts, mixture, waits=0.0)
            return
        ways = self._ways_at(number // self._ground.volume)
        timers = [event for event, way in ways.items() if way.event not in machine.event_named]
        free = self._world.outside or (node == 0 and not timers)
        yield from self._idle_choices(number, counts, timers, free=free)

    def _idle_choices(
        self, number: int, counts: tuple[int, ...], timers: Sequence[str], *, free: bool
    ) -> Iterator[Choice]:
        """Yield what comes where nothing is outstanding: outside events with odds, else a timer, else a choice."""
        ways = self._ways_at(number // self._ground.volume)
        accepted = [event for event in ways if event not in timers and self._accepts(number, event)]
        event_odds = {event: self._world.events[event] for event in accepted if event in self._world.events}
        total = sum(event_odds.values())
        if total > 1 + ROUNDING:
            raise odds_error(
                f"the odds of {', '.join(event_odds)} add up to {total:g} where the run waits, more than 1"
            )
        self._used_events |= event_odds.keys()
        rest = left_over(*event_odds.values())
        others = [*timers, *(event for event in accepted if event not in event_odds and free)]
        if timers and not free and accepted != list(event_odds):
            self._unanswered_states.add(self._location(number).state)
        if not others:
            yield from self._mixture_choices(number, counts, event_odds, waits=rest)
        for event in others:
            yield from self._mixture_choices(number, counts, {**event_odds, event: rest}, waits=0.0)

    def _accepts(self, number: int, event: str) -> bool:
        data = number % self._ground.volume
        way = self._ways_at(number // self._ground.volume)[event]
        return all(any(act(data) is not None for act, _, _ in rules) for _, rules in way.rules)

    def _mixtures(self, effect: str, answers: Sequence[str]) -> Iterator[dict[str, float]]:
        """Yield the odds of the answers to an effect: as given, and the rest to one of the others, each in turn."""
        event_odds = {event: self._world.events[event] for event in answers if event in self._world.events}
        self._used_events |= event_odds.keys()
        total = sum(event_odds.values())
        others = [event for event in answers if event not in event_odds and event != f"{effect}.failed"]
        if total > 1 + ROUNDING or (not others and abs(total - 1) > ROUNDING):
            raise odds_error(
                f"the odds of the answers to {effect} ({', '.join(event_odds)}) add up to {total:g}, not 1"
            )
        if not others:
            yield event_odds
        for event in others:
            yield {**event_odds, event: left_over(*event_odds.values())}

    def _mixture_choices(
        self, number: int, counts: tuple[int, ...], mixture: Mapping[str, float], *, waits: float
    ) -> Iterator[Choice]:
        """Yield the choices that a mixture of events stands for: one, or one for each corner of the guards' odds."""
        parts: list[list[Choice]] = []
        if waits > 0:
            parts.append([((waits, self._node(number, counts, end="waits"), -1),)])
        for event, chance in mixture.items():
            corners = self._event(number, counts, event)
            parts.append([tuple((chance * p, target, index) for p, target, index in edges) for edges in corners])
        for together in product(*parts):
            yield tuple(edge for edges in together for edge in edges)

    def _event(self, number: int, counts: tuple[int, ...], event: str) -> list[Choice]:
        place, data = divmod(number, self._ground.volume)
        way = self._ways_at(place).get(event)
        if way is None:  # an answer that no row handles here
            return [((1.0, self._node(number, counts, end="refused"), -1),)]
        targets = []
        for verdicts, rules in way.rules:
            taken = [(after, target, index) for act, target, index in rules if (after := act(data)) is not None]
            targets.append((verdicts, self._after(number, counts, way.guards, verdicts, taken)))
        return [
            tuple((self._chance(corner, verdicts), node, index) for verdicts, (node, index) in targets)
            for corner in self._corners(way.guards, counts)
        ]

    def _after(
        self,
        number: int,
        counts: tuple[int, ...],
        guards: tuple[str, ...],
        verdicts: tuple[Outcome, ...],
        taken: list[tuple[int, int, int]],
    ) -> tuple[int, int]:
        if len(taken) != 1:
            return self._node(number, counts, end="refused"), -1
        ((data, target, index),) = taken
        outcomes = dict(zip(guards, verdicts, strict=True))
        return self._node(target * self._ground.volume + data, self._next_counts(counts, outcomes), end=None), index

    def _next_counts(self, counts: tuple[int, ...], outcomes: Mapping[str, Outcome]) -> tuple[int, ...]:
        """Return the guards' retry numbers after a moment: one more for each that failed, from zero for each that did not."""
        if not self._memory:
            return counts
        after = list(counts)
        for place, guard in enumerate(self._memory):
            if guard in outcomes:
                last = self._world.guards[guard].memory - 1
                after[place] = min(counts[place] + 1, last) if outcomes[guard] == "failed" else 0
        return tuple(after)

    def _corners(
        self, guards: tuple[str, ...], counts: tuple[int, ...]
    ) -> Iterator[tuple[Mapping[Outcome, float], ...]]:
        corners: list[Sequence[Mapping[Outcome, float]]] = []
        for guard in guards:
            says = self._world.guards.get(guard)
            if says is None:
                self._missing[guard] = None
                corners.append([{}])
            else:
                retry = counts[self._memory.index(guard)] if guard in self._memory else 0
                corners.append(says.corners(retry))
        return product(*corners)

    @staticmethod
    def _chance(corner: tuple[Mapping[Outcome, float], ...], verdicts: tuple[Outcome, ...]) -> float:
        return prod(odds.get(outcome, 0.0) for odds, outcome in zip(corner, verdicts, strict=True))

    def _ways_at(self, place: int) -> dict[str, _Way]:
        """Return the events that can come at a location, a timer under its source and duration."""
        if place not in self._ways:
            rules_by_event: dict[str, dict[tuple[Outcome, ...], list[tuple[_Act, int, int]]]] = {}
            shapes: dict[str, tuple[str, tuple[str, ...]]] = {}
            for command in self._ground.system.commands_at[place]:
                if _key(command) not in rules_by_event:
                    guards = tuple(guard for guard, _ in command.occurrence.verdicts)
                    choices = [self._ground.system.machine.guard_named[guard].outcomes for guard in guards]
                    shapes[_key(command)] = (_key(command), guards)
                    rules_by_event[_key(command)] = {verdicts: [] for verdicts in product(*choices)}
            for rule in self._ground.rules_at[place]:
                command = self._ground.system.commands[rule.command]
                verdicts = tuple(outcome for _, outcome in command.occurrence.verdicts)
                rules_by_event[_key(command)][verdicts].append((_act(self._ground, rule), rule.target, rule.command))
            self._ways[place] = {
                key: _Way(*shapes[key], tuple((verdicts, tuple(rules)) for verdicts, rules in by_verdicts.items()))
                for key, by_verdicts in rules_by_event.items()
            }
        return self._ways[place]


def _key(command: GuardedCommand) -> str:
    source = command.occurrence.source
    return command.occurrence.event if source is None else f"{command.occurrence.event} of {source}"


def _act(ground: Ground, rule: GroundRule) -> _Act:
    """Compile a rule: from a configuration's data to the data after it, or None where it is not taken."""
    field_sources = {}
    for field in ground.fields:
        value = f"(data // {field.stride} % {field.size})"
        field_sources[field.name] = f"({value} == 1)" if field.is_bool else f"({field.low} + {value})"
    changes = []
    for index, after in rule.updates:
        field = ground.fields[index]
        changes.append(
            f" + (int({python_source(after, field_sources)}) - {field_sources[field.name]}) * {field.stride}"
        )
    condition = python_source(rule.condition, field_sources)
    source = f"lambda data: (data{''.join(changes)}) if ({condition}) else None"
    act: _Act = eval(source, {"__builtins__": {"int": int, "count": count}})  # noqa: S307  (of our own writing: numbers and operators)
    return act
