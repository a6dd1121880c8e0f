"""Incremental search of systems that are nearly the same: the steps that the first search found are taken again, not worked out again.

The mutants of a machine are such systems: most of their rules are the same. An `IncrementalEngine` is an engine. Its first search is a usual one, whose
steps are kept. In every later one, a configuration that was found before takes the same steps again, except those of rules that are gone,
and only new rules are tried on it.
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import ClassVar

import attrs

from dsa.checks.search.engine import Data, RuleStep, SearchLimits, SearchPlan, SearchResult, Writer, first_where
from dsa.checks.search.exploration import automatic
from dsa.checks.search.python_engine import Leave, ListSearch
from dsa.checks.search.state_graph import graph
from dsa.errors import UndecidedError
from dsa.expr import Expr
from dsa.ground_system import Ground, GroundWatch
from dsa.system import Location

#: A first search that found more configurations is not stored: its steps would take some hundred bytes each.
_MOST = 50_000
#: A rule without its location: where it leads, when it is taken, what it sets.
_Form = tuple[Location, Expr, tuple[tuple[int, Expr], ...]]


@attrs.frozen
class _LocationHistory:
    """What the first search found at one location.

    `moves` has for each of its data the forms taken there, each with the data it leads to; `at` where each form is
    taken, with the same, and `leads` the same moves by the location they lead to. `quiet` remembers which conditions
    are never true here.
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


class IncrementalEngine:
    """An engine that keeps its first search, for systems that are nearly that one: they share what is known of their conditions (`Ground.known`)."""

    def __init__(self) -> None:
        self._first: Ground | None = None
        self._before: dict[Location, _LocationHistory] = {}

    def __call__(self, ground: Ground, watches: Sequence[GroundWatch], limits: SearchLimits) -> SearchResult:
        """Search a system: the first as `automatic` does, a later one with the steps of the first."""
        if self._first is None:
            result = automatic()(ground, watches, limits)
            self._first = ground
            if result.complete and result.configurations <= _MOST:
                with suppress(UndecidedError):  # later searches are late as well
                    self._before = _steps_by_location(ground, result)
            return result
        if self._before and ground.conditions is self._first.conditions:
            return automatic(first=self._later)(ground, watches, limits)
        return automatic()(ground, watches, limits)

    def _later(
        self, ground: Ground, watches: Sequence[GroundWatch], limits: SearchLimits, most_trials: float
    ) -> SearchResult:
        return _LaterSearch(ground, watches, limits, self._before).run(most_trials)


def _steps_by_location(ground: Ground, result: SearchResult) -> dict[Location, _LocationHistory]:
    """Sort the steps of a search by location."""
    locations, volume = ground.system.locations, ground.volume
    before = {location: _LocationHistory() for location in locations}
    forms = [_form(ground, rule.target, rule.condition, rule.updates) for rule in ground.rules]
    for rule, form in zip(ground.rules, forms, strict=True):
        before[locations[rule.source]].at[form] = {}
    state_graph = graph(ground, result)
    for number in state_graph.numbers:
        before[locations[number // volume]].moves[number % volume] = []
    for source, target, rule in zip(state_graph.sources, state_graph.targets, state_graph.rules, strict=True):
        number, after = state_graph.numbers[source], state_graph.numbers[target] % volume
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
    """The change at a location.

    `removed_forms` are no longer there, `affected_data` are the data at which one of them was taken, `new_steps` takes the steps that are new.
    """

    removed_forms: frozenset[_Form]
    affected_data: frozenset[int]
    new_steps: Leave | None
    quiet: frozenset[int]


class _LaterSearch(ListSearch):
    engine: ClassVar[str] = "again"

    def __init__(
        self,
        ground: Ground,
        watches: Sequence[GroundWatch],
        limits: SearchLimits,
        before: Mapping[Location, _LocationHistory],
    ) -> None:
        super().__init__(ground, watches, limits, Writer(ground))
        self.plan = SearchPlan(self.plan.steps, frozenset(range(len(ground.system.locations))))
        self.in_bytes = False
        self._before, self._watches = before, watches
        self._changes: dict[int, _Change] = {}
        self._data_met: dict[int, list[int]] = {}

    def _pass(self, location: int, data: Data, following: dict[int, list[Data]]) -> int:
        before = self._before.get(self.ground.system.locations[location])
        if before is None:
            return super()._pass(location, data, following)
        known_data = [each for each in data if each in before.moves]
        new = 0
        if len(known_data) < len(data):
            new = super()._pass(location, [each for each in data if each not in before.moves], following)
        return new + self._leave_known(location, before, known_data, following) if known_data else new

    def _leave_known(
        self, location: int, before: _LocationHistory, data: list[int], following: dict[int, list[Data]]
    ) -> int:
        """Leave configurations of one location that the first search found."""
        if location not in self._changes:
            self._changes[location] = self._change(location, before)
        change = self._changes[location]
        self._lookout.look(location, data, change.quiet)
        self._data_met.setdefault(location, []).extend(data)
        arrivals: dict[Location, set[int]] = {}
        same_data = [each for each in data if each not in change.affected_data] if change.affected_data else data
        for there, leads in before.leads.items():
            arrivals[there] = set(chain.from_iterable([leads[each] for each in same_data if each in leads]))
        for each in change.affected_data.intersection(data):
            for form, after in before.moves[each]:
                if form not in change.removed_forms:
                    arrivals[form[0]].add(after)
        new = 0
        for there, targets in arrivals.items():
            new += self._enter(there, targets, following)
        for target, new_data in change.new_steps(data) if change.new_steps else ():
            following.setdefault(target, []).append(new_data)
            new += len(new_data)
        return new

    def _enter(self, there: Location, data: set[int], following: dict[int, list[Data]]) -> int:
        """Enter configurations; return how many of them are new."""
        if not data:
            return 0
        target = self.ground.system.index[there]
        memory = self._known_at(target)
        data -= memory
        memory |= data
        if data:
            following.setdefault(target, []).append(list(data))
        return len(data)

    def _change(self, location: int, before: _LocationHistory) -> _Change:
        forms = {self._form_of(step): step for step in self.plan.steps[location]}
        removed_forms = before.at.keys() - forms.keys()
        affected_data = frozenset(chain.from_iterable(before.at[form] for form in removed_forms))
        fresh = tuple(step for form, step in forms.items() if form not in before.at)
        here = [(index, watch.condition) for index, watch in enumerate(self._watches) if watch.location == location]
        quiet = frozenset(index for index, condition in here if before.is_quiet(self.writer, condition))
        return _Change(frozenset(removed_forms), affected_data, self._leave_for(fresh), quiet)

    def _form_of(self, step: RuleStep) -> _Form:
        return _form(self.ground, step.rule.target, step.rule.condition, step.rule.updates)

    def _result(self, count: int, *, complete: bool) -> SearchResult:
        for location, data in self._data_met.items():
            before, data_met = self._before[self.ground.system.locations[location]], set(data)
            for step in self.plan.steps[location]:
                times = len(data_met & before.at.get(self._form_of(step), {}).keys())
                for place in step.places:
                    self._taken[place] += times
        found_all = super()._result(count, complete=complete)
        return attrs.evolve(found_all, known_at=self._known_data, known_step=self._known_step)

    def _known_data(self, location: int) -> Collection[int]:
        before = self._before.get(self.ground.system.locations[location])
        return before.moves if before else ()

    def _known_step(self, step: RuleStep) -> Mapping[int, int] | None:
        before = self._before.get(self.ground.system.locations[step.rule.source])
        return before.at.get(self._form_of(step)) if before else None
