"""Search of systems that are nearly the same: what the first search found at a configuration is not worked out again.

As for the mutants of a machine: most rules of two of them are the same. An `Again` is an engine. Its first search is a usual one and is kept, step by step. In every later one, a
configuration that was found then takes the steps it took then, but for those of rules that are gone, and only rules that are new are tried on it.
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import ClassVar

import attrs

from dsa.checks.search.engine import Data, RuleStep, SearchLimits, SearchPlan, SearchResult, Writer, first_where
from dsa.checks.search.exploration import automatic
from dsa.checks.search.python_engine import Leave, Lists
from dsa.checks.search.state_graph import graph
from dsa.expr import Expr
from dsa.ground_system import Ground, GroundWatch, LateError
from dsa.system import Location

#: A first search that found more configurations is not kept: its steps would take some hundred bytes each.
_MOST = 50_000
#: A rule, wherever its location stands: where it leads, when it is taken, what it sets.
_Form = tuple[Location, Expr, tuple[tuple[int, Expr], ...]]


@attrs.frozen
class _Before:
    """What the first search found at one location.

    `moves` has for each of its data the forms taken there, each with the data it leads to; `at` where each form is taken, with the same, and `leads` the same
    moves by the location they lead to. `quiet` remembers which conditions are true nowhere here.
    """

    moves: dict[int, list[tuple[_Form, int]]] = attrs.field(factory=dict)
    at: dict[_Form, dict[int, int]] = attrs.field(factory=dict)
    leads: dict[Location, dict[int, list[int]]] = attrs.field(factory=dict)
    quiet: dict[Expr, bool] = attrs.field(factory=dict)

    def is_quiet(self, writer: Writer, condition: Expr) -> bool:
        """Return whether a condition is true nowhere here."""
        if condition not in self.quiet:
            self.quiet[condition] = first_where(writer, condition)(list(self.moves)) is None
        return self.quiet[condition]


class Again:
    """An engine that keeps its first search, for systems that are nearly that one: they share what is known of their conditions (`Ground.known`)."""

    def __init__(self) -> None:
        self._first: Ground | None = None
        self._before: dict[Location, _Before] = {}

    def __call__(self, ground: Ground, watches: Sequence[GroundWatch], limits: SearchLimits) -> SearchResult:
        """Search a system: the first as `automatic` does, a later one by what is known of that."""
        if self._first is None:
            found = automatic()(ground, watches, limits)
            self._first = ground
            if found.complete and found.configurations <= _MOST:
                with suppress(LateError):  # later searches are late as well
                    self._before = _kept(ground, found)
            return found
        if self._before and ground.conditions is self._first.conditions:
            return automatic(first=self._later)(ground, watches, limits)
        return automatic()(ground, watches, limits)

    def _later(
        self, ground: Ground, watches: Sequence[GroundWatch], limits: SearchLimits, most_trials: float
    ) -> SearchResult:
        return _Later(ground, watches, limits, self._before).run(most_trials)


def _kept(ground: Ground, found: SearchResult) -> dict[Location, _Before]:
    """Sort the steps of a search by location."""
    locations, volume = ground.system.locations, ground.volume
    before = {location: _Before() for location in locations}
    forms = [_form(ground, rule.target, rule.condition, rule.updates) for rule in ground.rules]
    for rule, form in zip(ground.rules, forms, strict=True):
        before[locations[rule.source]].at[form] = {}
    listed = graph(ground, found)
    for number in listed.numbers:
        before[locations[number // volume]].moves[number % volume] = []
    for source, target, rule in zip(listed.sources, listed.targets, listed.rules, strict=True):
        number, after = listed.numbers[source], listed.numbers[target] % volume
        here, data, form = before[locations[number // volume]], number % volume, forms[rule]
        if data not in here.at[form]:  # of rules that do the same, one move is kept
            here.at[form][data] = after
            here.moves[data].append((form, after))
            here.leads.setdefault(form[0], {}).setdefault(data, []).append(after)
    return before


def _form(ground: Ground, target: int, condition: Expr, updates: tuple[tuple[int, Expr], ...]) -> _Form:
    return ground.system.locations[target], condition, updates


@attrs.frozen
class _Change:
    """What is otherwise at a location: `lost` are the data at which a form is taken that is `gone`, `added` leaves by the steps that are new."""

    gone: frozenset[_Form]
    lost: frozenset[int]
    added: Leave | None
    quiet: frozenset[int]


class _Later(Lists):
    engine: ClassVar[str] = "again"

    def __init__(
        self, ground: Ground, watches: Sequence[GroundWatch], limits: SearchLimits, before: Mapping[Location, _Before]
    ) -> None:
        super().__init__(ground, watches, limits, Writer(ground))
        self.plan = SearchPlan(self.plan.steps, frozenset(range(len(ground.system.locations))))
        self.in_bytes = False
        self._before, self._watches = before, watches
        self._changes: dict[int, _Change] = {}
        self._met: dict[int, list[int]] = {}

    def _pass(self, location: int, data: Data, following: dict[int, list[Data]]) -> int:
        before = self._before.get(self.ground.system.locations[location])
        if before is None:
            return super()._pass(location, data, following)
        known = [each for each in data if each in before.moves]
        new = 0
        if len(known) < len(data):
            new = super()._pass(location, [each for each in data if each not in before.moves], following)
        return new + self._again(location, before, known, following) if known else new

    def _again(self, location: int, before: _Before, data: list[int], following: dict[int, list[Data]]) -> int:
        """Leave configurations of one location that the first search found."""
        if location not in self._changes:
            self._changes[location] = self._change(location, before)
        change = self._changes[location]
        self._lookout.look(location, data, change.quiet)
        self._met.setdefault(location, []).extend(data)
        entered: dict[Location, set[int]] = {}
        kept = [each for each in data if each not in change.lost] if change.lost else data
        for there, leads in before.leads.items():
            entered[there] = set(chain.from_iterable([leads[each] for each in kept if each in leads]))
        for each in change.lost.intersection(data):
            for form, after in before.moves[each]:
                if form not in change.gone:
                    entered[form[0]].add(after)
        new = 0
        for there, found in entered.items():
            new += self._enter(there, found, following)
        for target, added in change.added(data) if change.added else ():
            following.setdefault(target, []).append(added)
            new += len(added)
        return new

    def _enter(self, there: Location, data: set[int], following: dict[int, list[Data]]) -> int:
        """Come to configurations; tell how many of them are new."""
        if not data:
            return 0
        target = self.ground.system.index[there]
        known = self._known_at(target)
        data -= known
        known |= data
        if data:
            following.setdefault(target, []).append(list(data))
        return len(data)

    def _change(self, location: int, before: _Before) -> _Change:
        forms = {self._form_of(step): step for step in self.plan.steps[location]}
        gone = before.at.keys() - forms.keys()
        lost = frozenset(chain.from_iterable(before.at[form] for form in gone))
        fresh = tuple(step for form, step in forms.items() if form not in before.at)
        here = [(index, watch.condition) for index, watch in enumerate(self._watches) if watch.location == location]
        quiet = frozenset(index for index, condition in here if before.is_quiet(self.writer, condition))
        return _Change(frozenset(gone), lost, self._leaving(fresh), quiet)

    def _form_of(self, step: RuleStep) -> _Form:
        return _form(self.ground, step.rule.target, step.rule.condition, step.rule.updates)

    def _found(self, found: int, *, complete: bool) -> SearchResult:
        for location, data in self._met.items():
            before, met = self._before[self.ground.system.locations[location]], set(data)
            for step in self.plan.steps[location]:
                times = len(met & before.at.get(self._form_of(step), {}).keys())
                for place in step.places:
                    self._taken[place] += times
        found_all = super()._found(found, complete=complete)
        return attrs.evolve(found_all, known_at=self._known_data, known_step=self._known_step)

    def _known_data(self, location: int) -> Collection[int]:
        before = self._before.get(self.ground.system.locations[location])
        return before.moves if before else ()

    def _known_step(self, step: RuleStep) -> Mapping[int, int] | None:
        before = self._before.get(self.ground.system.locations[step.rule.source])
        return before.at.get(self._form_of(step)) if before else None
