"""Equivalence: whether two machines do the same for ever from where they are, and if not, a shortest trace that distinguishes them.

Takes a `Pair` of machines at their parameters' values; gives a `Comparison`. As long as nothing distinguishes them, both are in the same
configuration. So the search explores the configurations of one machine and compares at each: what may come, which guards are read, which
row is taken or why it is refused, which effects follow in which order, which timers start, and where it leads. What may come is what S12
and the closed system say: events from outside that have rows there, answers of outstanding effects (`E.failed` where some row names it),
and armed timers.

Variables that only one machine has take part in what it does and are not compared. An event from outside that one machine does not know counts as one
that it has no row for. `prospect` looks for a fault that the new machine can reach and the old one cannot.
"""

from collections.abc import Iterator, Mapping
from itertools import product
from math import prod
from typing import Literal, TypeVar

import attrs

from dsa.checks.search.engine import SearchLimits
from dsa.compiled_step import compiled_step
from dsa.declarations import OUTSIDE, Variable
from dsa.errors import OccurrenceError, UndecidedError
from dsa.expr import OUTCOMES, BooleanDomain, EnumDomain, Outcome, Value, show_value
from dsa.machine import ArmTimer, Machine, Precedence, read_guards, spelled_like, timers_after, timers_before
from dsa.semantics import Configuration, Occurrence, Refusal, Taken, is_over, start
from dsa.system import MAX_COMBINATIONS

#: An event by its name, or a timer by `after DURATION` and its source.
Key = tuple[str, str | None]
Timers = frozenset[tuple[str, str]]
Place = TypeVar("Place")
#: The place before each place, and the occurrence between them; None where the search began.
Predecessors = dict[Place, tuple[Place, Occurrence] | None]


@attrs.frozen
class Input:
    """Something that may come: whether rows are for it there, the guards that they read, whether it must be taken (S7, S11)."""

    has_rows: bool
    guards: tuple[str, ...]
    must_be_taken: bool


class Moves:
    """One machine's moves. What does not depend on the variables' values is computed once for each leaf and outstanding effects."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self._step = compiled_step(machine).step
        self._inputs: dict[tuple[str, tuple[str, ...], Precedence], dict[Key, Input]] = {}
        self._ways: dict[tuple[Key, tuple[str, ...]], tuple[Occurrence, ...]] = {}

    def inputs(self, here: Configuration) -> dict[Key, Input]:
        """Return all that may come, in declared order; nothing in a final state."""
        place = (here.state, here.outstanding, here.precedence)
        if place not in self._inputs:
            self._inputs[place] = {} if here.state in self.machine.final_states else dict(self._may_come(here))
        return self._inputs[place]

    def _may_come(self, here: Configuration) -> Iterator[tuple[Key, Input]]:
        machine = self.machine
        for event in machine.event_named.values():
            rows = machine.rows_for(here.state, event.name)
            is_failure = event.name == f"{event.origin}.failed" and event.origin in machine.answers
            is_read = not is_failure or event.origin in machine.failures_handled
            comes = bool(rows) if event.origin == OUTSIDE else is_read and event.origin in here.outstanding
            if comes:
                yield (event.name, None), Input(bool(rows), read_guards(rows), event.origin != OUTSIDE)
        for source, timer in machine.armed_timers(here.state):
            if timers_before(here.precedence, (source, timer)):
                continue
            guards = read_guards(machine.rows_from[source, timer])
            yield (timer, source), Input(has_rows=True, guards=guards, must_be_taken=True)

    def ways(self, key: Key, guards: tuple[str, ...]) -> tuple[Occurrence, ...]:
        """Return an event with each combination of what the guards can say. Raises UndecidedError."""
        if (key, guards) not in self._ways:
            choices = [self.machine.guard_named[guard].outcomes for guard in guards]
            self._ways[key, guards] = tuple(occurrences(key, guards, choices))
        return self._ways[key, guards]

    def react(self, here: Configuration, occurrence: Occurrence) -> Taken | Refusal | None:
        """Return what `step` gives; None where the machine does not know the event or a verdict."""
        try:
            return self._step(here, occurrence)
        except OccurrenceError:
            return None

    def is_over(self, here: Configuration) -> bool:
        """Return whether a run is finished here."""
        return is_over(self.machine, here)

    def timers_started(self, before: str, taken: Taken) -> Timers:
        """Return the timers that a row starts from zero: those of the states entered, and its own when it stays (S11)."""
        timers = timers_after(self.machine, before, taken.transition, taken.configuration.state)
        return frozenset((timer.source, timer.event) for timer in timers if isinstance(timer, ArmTimer))


def occurrences(key: Key, guards: tuple[str, ...], choices: list[tuple[Outcome, ...]]) -> Iterator[Occurrence]:
    """Yield an event with each combination of verdicts. Raises UndecidedError."""
    event, source = key
    if prod(map(len, choices)) > MAX_COMBINATIONS:
        raise UndecidedError(f"{event}, which has more than {MAX_COMBINATIONS} combinations of verdicts")
    for outcomes in product(*choices):
        yield Occurrence(event, tuple(zip(guards, outcomes, strict=True)), source)


def way_to(predecessors: Mapping[Place, tuple[Place, Occurrence] | None], place: Place) -> tuple[Occurrence, ...]:
    """Return what happened on the way to a place."""
    steps = []
    before = predecessors[place]
    while before is not None:
        place, occurrence = before
        steps.append(occurrence)
        before = predecessors[place]
    return tuple(reversed(steps))


#: Where both machines are: the configurations of the old one and of the new one.
ConfigurationPair = tuple[Configuration, Configuration]
#: A text for the old machine and one for the new one.
TextPair = tuple[str, str]


@attrs.frozen
class Reaction:
    """How one machine reacts, from where it was: the row it takes, or its refusal; `words` where there is neither.

    `timers_started` are the timers that the row starts from zero, `ends` is true when the run is finished after it.
    """

    here: Configuration
    outcome: Taken | Refusal | None = None
    words: str = ""
    timers_started: Timers = frozenset()
    ends: bool = False


@attrs.frozen
class Arrival:
    """One way in which something may come, as an occurrence for each machine.

    `is_strange`: one of them has no row for it, and need not declare it.
    """

    old: Occurrence
    new: Occurrence
    is_strange: bool = False


@attrs.frozen
class InputPlan:
    """All that may come to either machine.

    `apart` is an arrival that distinguishes them, by coming to one alone or by its guards, with words for each.
    """

    ways: tuple[Arrival, ...]
    apart: tuple[Arrival, TextPair] | None = None


class Pair:
    """Two machines, the old one and the new one, whose timers are spelled alike."""

    def __init__(self, old: Machine, new: Machine) -> None:
        new = spelled_like(new, old)
        self.old, self.new = Moves(old), Moves(new)
        places = {variable.name: place for place, variable in enumerate(new.variables)}
        #: The places of each variable that both have.
        self._places = tuple((place, places[v.name]) for place, v in enumerate(old.variables) if v.name in places)
        in_order = all(place == there for place, there in self._places)
        self._is_in_order = in_order and len(old.variables) == len(new.variables) == len(self._places)
        self._type_change = next(
            ((old.variables[o], new.variables[n]) for o, n in self._places if _kind(old.variables[o]) != _kind(new.variables[n])),
            None,
        )  # fmt: skip
        #: The leaves in which a run may be finished for one of them alone.
        self._finality = (old.final_states ^ new.final_states) | {
            leaf for leaf in old.ends.keys() | new.ends.keys() if old.ends.get(leaf) != new.ends.get(leaf)
        }
        self._plans: dict[tuple[str, tuple[str, ...], Precedence, Precedence], InputPlan] = {}

    @property
    def start(self) -> ConfigurationPair:
        """Where both begin."""
        return start(self.old.machine), start(self.new.machine)

    # -- where they are -----------------------------------------------------------------------------------------

    def common_values(self, configuration: Configuration, *, of_new: bool) -> tuple[Value, ...]:
        """Return the values of the variables that both machines have, in the old one's order."""
        return tuple(configuration.values[pair[of_new]] for pair in self._places)

    def are_alike(self, here: ConfigurationPair) -> bool:
        """Return whether both are in the same configuration: state, what is outstanding, values; and both at their end, or neither.

        The order of timers is not compared here: it shows in what may come next.
        """
        old, new = here
        if self._is_in_order:
            same = (old.state, old.outstanding, old.values) == (new.state, new.outstanding, new.values)
            return same and self._type_change is None and not self._is_over_for_one(here)
        return self.apart(here) is None

    def _is_over_for_one(self, here: ConfigurationPair) -> bool:
        old, new = here
        return old.state in self._finality and self.old.is_over(old) != self.new.is_over(new)

    def apart(self, here: ConfigurationPair) -> TextPair | None:
        """Return what is not the same where both are; None when all is."""
        old, new = here
        if old.state != new.state:
            return f"in {old.state}", f"in {new.state}"
        if self._is_over_for_one(here):
            kind = "an end" if old.state in self.old.machine.ends.keys() | self.new.machine.ends.keys() else "final"
            words = f"{old.state} is not {kind}", f"{old.state} is {kind}"
            return words[self.old.is_over(old)], words[self.new.is_over(new)]
        if old.outstanding != new.outstanding:
            return _outstanding_text(old), _outstanding_text(new)
        if self._type_change is not None:
            one, other = self._type_change
            return f"{one.name} is {_kind(one)}", f"{other.name} is {_kind(other)}"
        for place, there in self._places:
            if old.values[place] != new.values[there]:
                name = self.old.machine.variables[place].name
                return (f"{name} = {show_value(old.values[place])}", f"{name} = {show_value(new.values[there])}")
        return None

    # -- what may come there ------------------------------------------------------------------------------------

    def plan(self, here: ConfigurationPair) -> InputPlan:
        """Return what may come where both are alike. Raises UndecidedError."""
        place = (here[0].state, here[0].outstanding, here[0].precedence, here[1].precedence)
        if place not in self._plans:
            mine, theirs = self.old.inputs(here[0]), self.new.inputs(here[1])
            plans = [self._ways(key, mine.get(key), theirs.get(key)) for key in dict.fromkeys([*mine, *theirs])]
            apart = next((plan.apart for plan in plans if plan.apart is not None), None)
            self._plans[place] = InputPlan(tuple(way for plan in plans for way in plan.ways), apart)
        return self._plans[place]

    def _ways(self, key: Key, mine: Input | None, theirs: Input | None) -> InputPlan:
        """Return the ways in which one thing may come to either."""
        there = [event_input for event_input in (mine, theirs) if event_input is not None]
        inputs_with_rows = [event_input for event_input in there if event_input.has_rows]
        guards = inputs_with_rows[0].guards if inputs_with_rows else ()
        ways = tuple(self._arrivals(key, guards, mine, theirs))
        if len(there) == 1 and there[0].must_be_taken:
            text = self._missing(key)
            return InputPlan((), (ways[0], ("", text) if theirs is None else (text, "")))
        if len(inputs_with_rows) > 1 and inputs_with_rows[0].guards != inputs_with_rows[1].guards:
            unsaid = Occurrence(key[0], (), key[1])
            return InputPlan((), (Arrival(unsaid, unsaid), (_asks(inputs_with_rows[0]), _asks(inputs_with_rows[1]))))
        return InputPlan(ways)

    def _arrivals(
        self, key: Key, guards: tuple[str, ...], mine: Input | None, theirs: Input | None
    ) -> Iterator[Arrival]:
        """Yield each combination of what the guards can say in either machine; a machine without rows for it gets no verdicts."""
        guard_tables = (self.old.machine.guard_named, self.new.machine.guard_named)
        choices = [
            tuple(o for o in OUTCOMES if any(guard in each and o in each[guard].outcomes for each in guard_tables))
            for guard in guards
        ]
        silent = Occurrence(key[0], (), key[1])
        has_rows = [event_input is not None and event_input.has_rows for event_input in (mine, theirs)]
        for occurrence in occurrences(key, guards, choices):
            old, new = (occurrence if rows else silent for rows in has_rows)
            yield Arrival(old, new, is_strange=mine is None or theirs is None)

    def _missing(self, key: Key) -> str:
        """Return why an answer or a timer of one machine cannot come to the other."""
        event, source = key
        if source is not None:
            return f"the timer {event} of {source} is not armed"
        effect = event.removesuffix(".failed")
        if effect != event and effect in self.old.machine.answers and effect in self.new.machine.answers:
            return f"no row handles {event}, so the run stops here and can be resumed"
        return f"{event} is not an answer of an outstanding effect"

    # -- what they make of it -----------------------------------------------------------------------------------

    def reactions(self, here: ConfigurationPair, way: Arrival, words: TextPair = ("", "")) -> tuple[Reaction, Reaction]:
        """Return how each machine reacts to an arrival, for reports; a text of `words` that is not empty takes the place of a reaction."""
        old = self._reaction(self.old, here[0], way.old, words[0])
        return old, self._reaction(self.new, here[1], way.new, words[1])

    def _reaction(self, moves: Moves, here: Configuration, occurrence: Occurrence, words: str) -> Reaction:
        outcome = None if words else moves.react(here, occurrence)
        if isinstance(outcome, Taken):
            is_final = moves.is_over(outcome.configuration)
            return Reaction(here, outcome, "", moves.timers_started(here.state, outcome), is_final)
        return Reaction(here, outcome, words if outcome is not None else words or "does not know this event or verdict")

    def try_arrival(self, here: ConfigurationPair, way: Arrival) -> tuple[bool, ConfigurationPair | None]:
        """Return whether both react in the same way, and where that leads; None when nothing is taken."""
        old, new = self.old.react(here[0], way.old), self.new.react(here[1], way.new)
        if isinstance(old, Taken) and isinstance(new, Taken):
            same = old.effects == new.effects and old.cancelled == new.cancelled and self._alike_after(here, old, new)
            return same, (old.configuration, new.configuration)
        if isinstance(old, Taken) or isinstance(new, Taken):
            return False, None
        unknown = "invalid_state" if way.is_strange else ""
        return (old.reason if old else unknown) == (new.reason if new else unknown), None

    def _alike_after(self, here: ConfigurationPair, old: Taken, new: Taken) -> bool:
        same_timers = self.old.timers_started(here[0].state, old) == self.new.timers_started(here[1].state, new)
        return same_timers and self.are_alike((old.configuration, new.configuration))


def _kind(variable: Variable) -> str:
    if isinstance(variable.domain, BooleanDomain):
        return "a truth value"
    return "a name" if isinstance(variable.domain, EnumDomain) else "a number"


def _outstanding_text(here: Configuration) -> str:
    return f"outstanding: {', '.join(sorted(here.outstanding)) or 'nothing'}"


def _asks(event_input: Input) -> str:
    return f"asks {', '.join(event_input.guards)}" if event_input.guards else "asks no guard"


Verdict = Literal["EQUAL", "DIFFERENT", "UNKNOWN"]
#: A search checks the clock once in this many configurations.
EVERY = 256


@attrs.frozen
class Divergence:
    """Where two machines diverge: the `way` that both take alike, what comes then, and how each reacts to it.

    `occurrence` is None when they are not in the same configuration to begin with.
    """

    way: tuple[Occurrence, ...]
    occurrence: Occurrence | None
    old: Reaction
    new: Reaction


@attrs.frozen
class Comparison:
    """EQUAL: in all of the `configurations`; DIFFERENT: there is a shortest divergence; UNKNOWN: a limit was reached first, which `limit` names."""

    verdict: Verdict
    configurations: int
    divergence: Divergence | None = None
    limit: str = ""


def compare(pair: Pair, here: ConfigurationPair, limits: SearchLimits) -> Comparison:
    """Compare two machines from where they are."""
    apart = pair.apart(here)
    if apart is not None:
        old, new = (Reaction(one, words=words) for one, words in zip(here, apart, strict=True))
        return Comparison("DIFFERENT", 1, Divergence((), None, old, new))
    search = _PairSearch(pair, here)
    try:
        return search.run(limits)
    except UndecidedError as fault:
        return Comparison("UNKNOWN", len(search.order), limit=str(fault))


class _PairSearch:
    """A breadth-first search that ends where the machines diverge."""

    def __init__(self, pair: Pair, here: ConfigurationPair) -> None:
        self._pair = pair
        self.order = [here]
        self._predecessors: Predecessors[ConfigurationPair] = {here: None}

    def run(self, limits: SearchLimits) -> Comparison:
        for count, here in enumerate(self.order):  # grows while it is walked
            if limit := limit_reached(limits, count, len(self.order)):
                return Comparison("UNKNOWN", len(self.order), limit=limit)
            divergence = self._divergence(here)
            if divergence is not None:
                return Comparison("DIFFERENT", len(self.order), divergence)
        return Comparison("EQUAL", len(self.order))

    def _divergence(self, here: ConfigurationPair) -> Divergence | None:
        """Try all that may come, and record where it leads; return the first divergence."""
        pair, plan = self._pair, self._pair.plan(here)
        if plan.apart is not None:
            way, words = plan.apart
            return Divergence(
                way_to(self._predecessors, here), _fuller(way.old, way.new), *pair.reactions(here, way, words)
            )
        for way in plan.ways:
            same, there = pair.try_arrival(here, way)
            if not same:
                return Divergence(
                    way_to(self._predecessors, here), _fuller(way.old, way.new), *pair.reactions(here, way)
                )
            if there is not None and there not in self._predecessors:
                self._predecessors[there] = (here, way.old)
                self.order.append(there)
        return None


def _fuller(old: Occurrence, new: Occurrence) -> Occurrence:
    """Return the occurrence that has verdicts."""
    return old if old.verdicts else new


def limit_reached(limits: SearchLimits, count: int, total: int) -> str:
    """Name the limit that a search has met after `count` of the `total` configurations found; empty when there is none."""
    if total > limits.max_states:
        return f"the limit of {limits.max_states} configurations"
    if count % EVERY == 0:
        limits.progress(total, 0)
        if limits.is_expired():
            return "the time limit"
    return ""


# -- what can go wrong ------------------------------------------------------------------------------------------------
# A fault is what `check` calls an error at a configuration that can be reached: an answer or a timer that no row takes, an event on which two
# rows are enabled, an update that leaves its domain, an effect emitted twice, or nothing that can go on before the end (S3, S5, S7, S11).


Verdicts = tuple[tuple[str, Outcome], ...]


@attrs.frozen
class Trouble:
    """A fault, and a shortest way to it: what is refused there, or, without an occurrence, a configuration where nothing goes on."""

    way: tuple[Occurrence, ...]
    here: Configuration
    occurrence: Occurrence | None = None
    refusal: Refusal | None = None

    @property
    def verdicts(self) -> Verdicts:
        """What the guards said."""
        return () if self.occurrence is None else self.occurrence.verdicts


@attrs.frozen
class Prospect:
    """A trouble that the new machine can reach and the old one cannot, or none; `limit` when that is not known."""

    trouble: Trouble | None = None
    limit: str = ""


def prospect(pair: Pair, here: ConfigurationPair, limits: SearchLimits) -> Prospect:
    """Look for a fault that the new machine can reach from where it is, and the old one cannot.

    It is the same fault when state, values of the variables that both have, and what is outstanding are the same there, and the same
    thing is refused for the same reason, whatever the verdicts of guards that only one of them reads.
    """
    troubles, old_faults, doubt = _Troubles(pair.new, here[1], limits), None, ""
    for trouble in troubles:
        old_faults = old_faults or _OldFaults(pair, here[0], limits)
        if not old_faults.has(trouble):
            if not old_faults.limit:
                return Prospect(trouble)
            doubt = old_faults.limit
    return Prospect(limit=troubles.limit or doubt)


class _OldFaults:
    """The faults of the old machine."""

    def __init__(self, pair: Pair, here: Configuration, limits: SearchLimits) -> None:
        self._pair = pair
        #: By what makes a fault the same, but verdicts: for each configuration the verdicts on which it is refused.
        self._refusals: dict[object, dict[Configuration, set[Verdicts]]] = {}
        troubles = _Troubles(pair.old, here, limits)
        for trouble in troubles:
            verdicts = self._refusals.setdefault(self._key(trouble, of_new=False), {}).setdefault(trouble.here, set())
            verdicts.add(trouble.verdicts)
        self.limit = troubles.limit

    def has(self, trouble: Trouble) -> bool:
        """Return whether a fault of the new machine is one of the old machine too."""
        verdict_sets = self._refusals.get(self._key(trouble, of_new=True), {})
        verdicts = dict(trouble.verdicts)
        ways = [
            way for way in self._ways(trouble) if all(verdicts.get(guard, outcome) == outcome for guard, outcome in way)
        ]
        return bool(ways) and any(verdict_set.issuperset(ways) for verdict_set in verdict_sets.values())

    def _ways(self, trouble: Trouble) -> tuple[Verdicts, ...]:
        """Return the verdicts with which the same thing may come to the old machine where the fault is."""
        if trouble.occurrence is None:
            return ((),)
        key = (trouble.occurrence.event, trouble.occurrence.source)
        event_input = self._pair.old.inputs(trouble.here).get(key)  # values of variables do not matter here
        return (
            () if event_input is None else tuple(way.verdicts for way in self._pair.old.ways(key, event_input.guards))
        )

    def _key(self, trouble: Trouble, *, of_new: bool) -> object:
        here, occurrence, refusal = trouble.here, trouble.occurrence, trouble.refusal
        what = None if occurrence is None or refusal is None else (occurrence.event, occurrence.source, refusal.reason)
        return here.state, here.outstanding, self._pair.common_values(here, of_new=of_new), what


class _Troubles:
    """All faults of a machine from where it is, the nearest first; afterwards `limit` names what ended the search before its end."""

    def __init__(self, moves: Moves, here: Configuration, limits: SearchLimits) -> None:
        self._moves, self._here, self._limits = moves, here, limits
        self._predecessors: Predecessors[Configuration] = {here: None}
        self.limit = ""

    def __iter__(self) -> Iterator[Trouble]:
        order = [self._here]
        for count, here in enumerate(order):  # grows while it is walked
            self.limit = limit_reached(self._limits, count, len(order))
            if self.limit:
                return
            try:
                yield from self._at(here, order)
            except UndecidedError as fault:
                self.limit = str(fault)
                return

    def _at(self, here: Configuration, order: list[Configuration]) -> Iterator[Trouble]:
        moves, is_stuck = self._moves, not (self._moves.is_over(here) or here.outstanding)
        for key, event_input in moves.inputs(here).items():
            is_stuck = is_stuck and not event_input.must_be_taken
            for occurrence in moves.ways(key, event_input.guards):
                outcome = moves.react(here, occurrence)
                if isinstance(outcome, Taken):
                    is_stuck = False
                    there = outcome.configuration
                    if there not in self._predecessors:
                        self._predecessors[there] = (here, occurrence)
                        order.append(there)
                elif outcome is not None and (event_input.must_be_taken or outcome.reason != "invalid_state"):
                    yield Trouble(way_to(self._predecessors, here), here, occurrence, outcome)
        if is_stuck:
            yield Trouble(way_to(self._predecessors, here), here)
