"""Liveness proofs: that Q comes while it is owed, that P can be reached, that every run comes to rest.

Each takes a system that remembers what it needs, and gives lemmas and a rank that steps make smaller. A run owes Q for ever when it rests
where nothing is promised, or takes steps for ever. The first must be impossible. In the second, the rank would fall without end, or
something expected would never come, which S12 or the property's fairness rules out. P is reached by a strategy, read off shortest ways at
small parameter values: one of its commands must always be enabled until P is true, for all values. A machine need not come to rest when
nothing comes from outside: one that polls by a timer goes on for ever.

`RankSearch` finds a rank: for each location, parts that are compared lexicographically and that every step that counts makes smaller.
Locations are put in order by what can follow what. Inside a loop, some number (`rmax - retries`, `n - done`) or truth value must never grow
and sometimes fall; the rest of the loop, without the commands that make it fall, is ranked again (Colon and Sipma; Alias et al.). Where no
number ranks a loop, a promise may end it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Literal

import attrs

from dsa.checks.observers import NOW, OBLIGATION, Observer
from dsa.checks.proof.induction import Fair, Lemmas, Needs, RankEvidence, Region, Slicer, before, whole
from dsa.checks.proof.proof_session import ProofSession, Sample, Sampler
from dsa.checks.search.property_search import happens_with
from dsa.checks.search.state_graph import components
from dsa.declarations import OUTSIDE, LeadsTo, Variable
from dsa.expr import (
    FALSE,
    TRUE,
    Arithmetic,
    Boolean,
    BooleanDomain,
    EnumDomain,
    Expr,
    Integer,
    Name,
    RangeDomain,
    Symbol,
    all_of,
    any_of,
    comparison,
    negation,
    simplify,
)
from dsa.semantics import Occurrence
from dsa.system import GuardedCommand, Promise, System

Change = Literal["less", "same or less", "more"]
Expectation = Promise | Fair
_ZERO = Integer(0)
#: Sums of two numbers are tried when there are at most this many numbers.
_MOST_SUMMED = 8


@attrs.frozen
class CountedCommands:
    """The commands that count, each with the conditions under which it does; and where a rank counts, the condition for it."""

    system: System
    commands: Mapping[int, Sequence[Expr]]
    places: frozenset[int]
    condition: Expr


@attrs.frozen
class Rank:
    """A rank for each location, as many parts everywhere; where it stays the same, what is expected there."""

    parts: tuple[tuple[Expr, ...], ...]
    expectations: tuple[Expectation | None, ...]


@attrs.frozen
class _RankPart:
    """The ranks of some locations."""

    ranks: Mapping[int, tuple[Expr, ...]]
    expectations: Mapping[int, Expectation] = attrs.field(factory=dict)


def measures(variables: Iterable[Variable]) -> Iterator[Expr]:
    """Yield what may fall in a loop: a number's distance from its bounds, sums of two of these, truth values, values of enumerations."""
    numbers: list[Expr] = []
    others: list[Expr] = []
    for variable in variables:
        here = Name(variable.name, "variable")
        match variable.domain:
            case RangeDomain(low, high):
                if high is not None:
                    numbers.append(simplify(Arithmetic("-", high, here)))
                numbers.append(simplify(Arithmetic("-", here, low)))
            case BooleanDomain():
                others += [here, negation(here)]
            case EnumDomain(values):
                for value in values:
                    others += [comparison(here, sign, Symbol(value)) for sign in ("==", "!=")]
    yield from numbers
    yield from others
    if len(numbers) <= _MOST_SUMMED:
        yield from (Arithmetic("+", one, other) for one, other in combinations(numbers, 2))


class RankSearch:
    """A search for a rank."""

    def __init__(
        self,
        needs: Needs,
        counted_commands: CountedCommands,
        variables: Iterable[Variable],
        awaitable: Callable[[frozenset[int], Sequence[int]], Expectation | None] = lambda _places, _commands: None,
    ) -> None:
        self._needs, self._counted_commands, self._system = needs, counted_commands, counted_commands.system
        self._numbers = {v.name for v in variables if isinstance(v.domain, RangeDomain)}
        self._measures = tuple(measures(variables))
        self._awaitable = awaitable
        self._changes: dict[tuple[int, Expr], Change] = {}

    def rank(self) -> Rank | None:
        """Return a rank, or None."""
        places = frozenset(range(len(self._system.locations)))
        rank_part = self._rank_places(places, tuple(self._counted_commands.commands))
        if rank_part is None:
            return None
        width = max((len(parts) for parts in rank_part.ranks.values()), default=0)
        rows = tuple(
            (*rank_part.ranks[place], *[_ZERO] * (width - len(rank_part.ranks[place]))) for place in sorted(places)
        )
        return Rank(_without_idle_columns(rows), tuple(rank_part.expectations.get(place) for place in sorted(places)))

    def _rank_places(self, places: frozenset[int], commands: Sequence[int]) -> _RankPart | None:
        """Rank locations: first by what can follow what, then inside each loop."""
        ends = {index: (self._system.commands[index].source, self._system.commands[index].target) for index in commands}
        following: dict[int, list[int]] = {place: [] for place in places}
        for source, target in ends.values():
            following[source].append(target)
        ranks: dict[int, tuple[Expr, ...]] = {}
        expectations: dict[int, Expectation] = {}
        height: dict[int, int] = {}
        for part in map(frozenset, components(sorted(places), following.__getitem__)):  # what can follow comes first
            below = [height[t] for place in part for t in following[place] if t not in part]
            level = max(below, default=-1) + 1
            height |= dict.fromkeys(part, level)
            inner = [index for index, (source, target) in ends.items() if source in part and target in part]
            inside = self._loop(part, inner) if inner else _RankPart(dict.fromkeys(part, ()))
            if inside is None:
                return None
            ranks |= {place: (Integer(level), *inside.ranks[place]) for place in part}
            expectations |= inside.expectations
        return _RankPart(ranks, expectations)

    def _loop(self, part: frozenset[int], inner: Sequence[int]) -> _RankPart | None:
        """Rank the locations of a loop by something that falls in it; else let a promise end it."""
        for measure in self._measures:
            changes = {index: self._change(index, measure) for index in inner}
            if "more" in changes.values() or "less" not in changes.values() or not self._is_bounded(part, measure):
                continue
            rest = [index for index, change in changes.items() if change != "less"]
            inside = self._rank_places(part, rest)
            if inside is not None:
                return _RankPart({place: (measure, *inside.ranks[place]) for place in part}, inside.expectations)
        expectation = self._awaitable(part, inner)
        return None if expectation is None else _RankPart(dict.fromkeys(part, ()), dict.fromkeys(part, expectation))

    def _is_bounded(self, part: frozenset[int], measure: Expr) -> bool:
        if not self._is_number(measure):
            return True
        negative = [self._counted_commands.condition, comparison(measure, "<", _ZERO)]
        return all(self._needs.impossible(place, negative) for place in part & self._counted_commands.places)

    def _is_number(self, measure: Expr) -> bool:
        return isinstance(measure, Arithmetic) or (isinstance(measure, Name) and measure.name in self._numbers)

    def _change(self, index: int, measure: Expr) -> Change:
        key = index, measure
        if key not in self._changes:
            self._changes[key] = self._compute_change(index, measure)
        return self._changes[key]

    def _compute_change(self, index: int, measure: Expr) -> Change:
        later = before(self._system.commands[index], measure)
        if later == measure:
            return "same or less"
        if self._is_number(measure):
            not_less, more = comparison(later, ">=", measure), comparison(later, ">", measure)
        else:
            not_less, more = negation(all_of([measure, negation(later)])), all_of([later, negation(measure)])
        source, conditions = self._system.commands[index].source, self._counted_commands.commands[index]
        if self._needs.impossible(source, [*conditions, not_less]):
            return "less"
        return "same or less" if self._needs.impossible(source, [*conditions, more]) else "more"


def _without_idle_columns(parts: tuple[tuple[Expr, ...], ...]) -> tuple[tuple[Expr, ...], ...]:
    """Leave out the parts that are the same number everywhere."""
    columns = [
        column for column in zip(*parts, strict=True) if len(set(column)) > 1 or not isinstance(column[0], Integer)
    ]
    return tuple(zip(*columns, strict=True)) if columns else tuple(() for _ in parts)


_IS_OWED = Name(OBLIGATION, "variable")


class ObligationProof:
    """An attempt to prove that nothing is owed for ever."""

    def __init__(self, session: ProofSession, form: LeadsTo, observer: Observer) -> None:
        self._session, self._fair = session, form.fair
        self._system = attrs.evolve(observer.system, silent=form.doubtful_effects("never answers"))
        session.logic.learn(observer.system)
        guesses = session.guesses(self._system, session.samples(Sampler(self._system)), (OBLIGATION,))
        region = whole(self._system)
        lemmas = session.inductive(region, guesses, session.lemmas)
        self._region = Region(self._system, region.commands, _IS_OWED)
        self._needs = Needs(Slicer(region, session.logic, lemmas))

    def evidence(self) -> RankEvidence | None:
        """Return lemmas and a rank, or None."""
        system = self._system
        places = range(len(system.locations))
        owed_places = frozenset(place for place in places if not self._needs.impossible(place, [_IS_OWED]))
        if not all(self._goes_on(place) for place in owed_places):
            return None
        staying_commands: dict[int, Sequence[Expr]] = {}
        for index, command in enumerate(system.commands):
            conditions = [*self._region.condition(index), before(command, _IS_OWED)]
            if command.source in owed_places and not self._needs.impossible(command.source, conditions):
                staying_commands[index] = conditions
        counted_commands = CountedCommands(system, staying_commands, owed_places, _IS_OWED)
        rank = RankSearch(self._needs, counted_commands, self._system.own_variables, self._awaitable).rank()
        return None if rank is None else self._rank_evidence(rank, owed_places)

    def _rank_evidence(self, rank: Rank, owed_places: frozenset[int]) -> RankEvidence | None:
        expectations = list(rank.expectations)
        for place in owed_places:
            if expectations[place] is None and self._may_rest(place):
                expectations[place] = next(Fair(name) for name in self._fair if self._always(place, name))
        lemmas = self._needs.lemmas()
        entries = tuple(expectations) if any(item is not None for item in expectations) else ()
        return None if lemmas is None else RankEvidence(lemmas, rank.parts, expectations=entries)

    def _goes_on(self, place: int) -> bool:
        """Return whether a run cannot rest at a location while Q is owed."""
        return not self._may_rest(place) or any(self._always(place, name) for name in self._fair)

    def _may_rest(self, place: int) -> bool:
        """Return whether a run might rest at a location while Q is owed."""
        rests = self._system.may_rest(place)
        if isinstance(rests, Boolean):
            return rests.value
        return not self._needs.impossible(place, [_IS_OWED, rests])

    def _always(self, place: int, name: str) -> bool:
        """Return whether something fair is always possible at a location while Q is owed."""
        conditions = [command.condition for command in self._system.commands_at[place] if happens_with(name, command)]
        return bool(conditions) and self._needs.impossible(place, [_IS_OWED, negation(any_of(conditions))])

    def _awaitable(self, places: frozenset[int], inner: Sequence[int]) -> Expectation | None:
        """Return what ends a loop although no number falls in it: a promise that the loop never keeps, or something fair that it never does."""
        commands: list[GuardedCommand] = [self._system.commands[index] for index in inner]
        by_place = [(place, self._system.promises(place)) for place in sorted(places)]
        promises = frozenset[Promise](by_place[0][1]).difference(*(command.endings for command in commands))
        for promise in sorted(promises, key=str):
            if all(self._lasts(place, here.get(promise, FALSE)) for place, here in by_place):
                return promise
        for name in self._fair:
            never = not any(happens_with(name, command) for command in commands)
            if never and all(self._always(place, name) for place in places):
                return Fair(name)
        return None

    def _lasts(self, place: int, condition: Expr) -> bool:
        """Return whether a promise is there at a location whenever Q is owed; `condition` is when it is."""
        return condition == TRUE or (
            condition != FALSE and self._needs.impossible(place, [_IS_OWED, negation(condition)])
        )


_NOW = Name(NOW, "variable")
_NOT_YET = negation(_NOW)


class ReachabilityProof:
    """An attempt to prove that P can be reached: from the start alone, or from everywhere."""

    def __init__(self, session: ProofSession, observer: Observer, *, everywhere: bool) -> None:
        self._session, self._system, self._everywhere = session, observer.system, everywhere
        session.logic.learn(observer.system)
        self._sampler = Sampler(self._system)
        self._samples = session.samples(self._sampler)
        self._place_of_now = self._sampler.variables.index(NOW)

    def evidence(self) -> RankEvidence | None:
        """Return lemmas, a strategy and a rank, or None."""
        for strategy in dict.fromkeys(self._strategies()):
            result = self._evidence_for(strategy)
            if result is not None:
                return result
        return None

    def _evidence_for(self, strategy: frozenset[int]) -> RankEvidence | None:
        region, lemmas = self._region_and_lemmas(strategy)
        needs = Needs(Slicer(region, self._session.logic, lemmas))
        system = self._system
        open_places = frozenset(p for p in range(len(system.locations)) if not needs.impossible(p, [_NOT_YET]))
        for place in open_places:
            here = [system.commands[i].condition for i in sorted(strategy) if system.commands[i].source == place]
            if not needs.impossible(place, [_NOT_YET, negation(any_of(here))]):
                return None
        counted_commands: dict[int, Sequence[Expr]] = {}
        following = Region(system, tuple(sorted(strategy)), _NOT_YET)
        for index in following.commands:
            command = system.commands[index]
            conditions = [*following.condition(index), before(command, _NOT_YET)]
            if command.source in open_places and not needs.impossible(command.source, conditions):
                counted_commands[index] = conditions
        rank = RankSearch(
            needs, CountedCommands(system, counted_commands, open_places, _NOT_YET), system.own_variables
        ).rank()
        lemmas_used = needs.lemmas() if rank is not None else None
        return None if rank is None or lemmas_used is None else RankEvidence(lemmas_used, rank.parts, strategy)

    def _region_and_lemmas(self, strategy: frozenset[int]) -> tuple[Region, Lemmas]:
        """Return what holds wherever P must be reached from: everywhere, or where the strategy leads from the start."""
        session, system = self._session, self._system
        if self._everywhere:
            region, samples = whole(system), self._samples
        else:
            region = Region(system, tuple(sorted(strategy)), _NOT_YET)
            samples = session.samples(Sampler(system, strategy, _NOT_YET))
        guesses = session.guesses(system, samples, (NOW,))
        return region, session.inductive(region, guesses, session.lemmas if self._everywhere else {})

    def _strategies(self) -> Iterable[frozenset[int]]:
        """Yield sets of commands that lead to P in the samples: as few as do, then all that come next on shortest ways."""
        choices = [self._nearest(sample) for sample in self._samples]
        if not self._everywhere:
            choices = [self._from_start(sample, near) for sample, near in zip(self._samples, choices, strict=True)]
        if any(not near for near in choices):
            return
        yield self._few(choices)
        yield frozenset(command for near in choices for options in near.values() for command in options)

    def _nearest(self, sample: Sample) -> dict[int, tuple[int, ...]]:
        """Return for each configuration from which P can be reached the commands that are next on a shortest way."""
        edges_into: dict[int, list[tuple[int, int]]] = {}
        for source, command, target in sample.edges:
            edges_into.setdefault(target, []).append((source, command))
        distance = {i: 0 for i, (_, values) in enumerate(sample.configurations) if values[self._place_of_now] is True}
        todo = list(distance)
        options: dict[int, list[int]] = {place: [] for place in distance}
        for place in todo:  # grows while it is walked
            for source, command in edges_into.get(place, ()):
                if source not in distance:
                    distance[source] = distance[place] + 1
                    options[source] = []
                    todo.append(source)
                if distance[source] == distance[place] + 1:
                    options[source].append(command)
        return {place: tuple(commands) for place, commands in options.items()}

    def _from_start(self, sample: Sample, near: dict[int, tuple[int, ...]]) -> dict[int, tuple[int, ...]]:
        """Return only the configurations that lie on shortest ways from the start."""
        if 0 not in near:
            return {}
        target_of = {(source, command): target for source, command, target in sample.edges}
        places, todo = {0}, [0]
        for place in todo:  # grows while it is walked
            for command in near[place]:
                target = target_of[place, command]
                if target not in places:
                    places.add(target)
                    todo.append(target)
        return {place: near[place] for place in places}

    def _few(self, choices: Iterable[dict[int, tuple[int, ...]]]) -> frozenset[int]:
        """Choose few commands of which one is next on a shortest way wherever P can be reached (greedy)."""
        todo = [set(options) for near in choices for options in near.values() if options]
        strategy: set[int] = set()
        while todo:
            counts: dict[int, int] = {}
            for options in todo:
                for command in options:
                    counts[command] = counts.get(command, 0) + 1
            best = max(sorted(counts), key=lambda command: counts[command])
            strategy.add(best)
            todo = [options for options in todo if best not in options]
        return frozenset(strategy)


def comes_to_rest(session: ProofSession) -> RankEvidence | None:
    """Prove that retry loops end: return lemmas and a rank that every step without an event from outside makes smaller, or None."""
    system, region, needs = session.system, whole(session.system), Needs(session.slicer)
    counted_commands = {
        index: region.condition(index)
        for index, command in enumerate(system.commands)
        if not from_outside(system, command.occurrence)
        and not needs.impossible(command.source, region.condition(index))
    }
    places = frozenset(range(len(system.locations)))
    rank = RankSearch(needs, CountedCommands(system, counted_commands, places, TRUE), system.own_variables).rank()
    lemmas = None if rank is None else needs.lemmas()
    return None if rank is None or lemmas is None else RankEvidence(lemmas, rank.parts)


def from_outside(system: System, occurrence: Occurrence) -> bool:
    """Return whether an event comes from outside."""
    return occurrence.source is None and system.machine.event_named[occurrence.event].origin == OUTSIDE
