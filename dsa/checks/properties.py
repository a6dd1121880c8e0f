"""Properties judged exactly at one valuation of the parameters, by exhaustive search.

Takes a system whose machine has its parameters' values, and forms; gives a `Judgement` for each. Forms that need no memory share one
search; each other form searches the system that remembers what it needs. Limits hold for each search: one that stops
leaves UNKNOWN whatever was not found by then.
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Literal

import attrs

from dsa.checks.components import unable
from dsa.checks.engines.found import Engine, Limits, stopped_by
from dsa.checks.explore import Exploration
from dsa.checks.leads_to import Owed
from dsa.checks.observers import NOW, WAITING, Observed, Sight, observed
from dsa.checks.searching import Hit, Searched, conditions, search, search_all, searched
from dsa.checks.vacuity import subject
from dsa.checks.violations import passing, reason_for, similar
from dsa.claims import (
    Always,
    AtMost,
    EverywherePossible,
    Expected,
    Form,
    LeadsTo,
    Never,
    OnlyAfter,
    Possible,
    Probability,
    Unchanged,
)
from dsa.expr import Expr, Name, evaluate, unparse
from dsa.machine import Machine
from dsa.moments import at_location, happens
from dsa.system import Command, Promise, System
from dsa.trace import Trace

PropertyVerdict = Literal["PROVED", "HOLDS", "VIOLATED", "NOT INDUCTIVE", "UNKNOWN"]
#: Judges the two forms that speak of odds, within limits: gives a verdict, a sentence, and what the number assumes.
Odds = Callable[[Machine, Form, Limits], tuple[PropertyVerdict, str, tuple[str, ...]]]


@attrs.frozen
class Judgement:
    """What a property is worth at one valuation.

    `trace` is a shortest counterexample, or the witness of a `possible` that holds; its steps from `loop` on can be repeated for ever
    (at its end: the run rests there). `more` are counterexamples that take other rows, each with its `loop`, `passing` a run that begins like the
    first one and ends well. `idle` is what never happens, so that the verdict says little.
    """

    verdict: PropertyVerdict
    reason: str = ""
    trace: Trace | None = None
    loop: int | None = None
    assumes: tuple[str, ...] = ()
    idle: str = ""
    more: tuple[tuple[Trace, int | None], ...] = ()
    passing: Trace | None = None


class Questions:
    """What the first search of a system is to look out for, so that properties that need no memory are judged by it alone."""

    def __init__(self, system: System, forms: Sequence[Form]) -> None:
        self.system, self.forms = system, tuple(dict.fromkeys(forms))
        self.plain: dict[Form, Observed] = {
            form: observed(system, form) for form in self.forms if isinstance(form, _WITHOUT_MEMORY)
        }
        self.subjects = {form: observed(system, Possible(what)) for form in self.forms if (what := subject(form))}

    @cached_property
    def groups(self) -> list[Sequence[Sight]]:
        """The sights of each question."""
        return [seen.sights for seen in (*self.plain.values(), *self.subjects.values())]

    @cached_property
    def conditions(self) -> list[tuple[int, Expr]]:
        """Conditions at locations, as an exploration takes them."""
        return conditions(self.groups)

    def answered(self, exploration: Exploration) -> Searched:
        """Give the search that an exploration of the system did."""
        return searched(exploration.ground, exploration.found, self.groups, exploration.also)

    def search(self, limits: Limits, engine: Engine | None = None) -> Searched:
        """Search the system."""
        return search_all(self.system, self.groups, limits, engine)


def judge(
    questions: Questions,
    base: Searched,
    limits: Limits,
    *,
    traces: int = 1,
    engine: Engine | None = None,
    odds: Odds | None = None,
) -> dict[Form, Judgement]:
    """Judge the properties asked about, at the parameter values of the system's machine; `base` is the search for the questions.

    With more than one of `traces`, a violated property comes with up to so many counterexamples and the nearest run that passes.
    """
    return _Judging(questions, base, limits, traces, engine, odds).run()


class _Judging:
    def __init__(
        self,
        questions: Questions,
        base: Searched,
        limits: Limits,
        traces: int,
        engine: Engine | None,
        odds: Odds | None,
    ) -> None:
        self._questions, self._base, self._limits = questions, base, limits
        self._traces, self._engine, self._odds = traces, engine, odds
        self._system, self._constants = questions.system, questions.system.machine.constants

    def run(self) -> dict[Form, Judgement]:
        """Judge each form; say what never happens."""
        plain, subjects = self._questions.plain, self._questions.subjects
        hits = dict(zip(plain, self._base.hits, strict=False))
        met = dict(zip(subjects, self._base.hits[len(plain) :], strict=True))
        found = {}
        for form in self._questions.forms:
            is_late = form not in plain and self._limits.expired()
            judgement = self._judged(form, hits.get(form))
            if is_late and judgement.verdict == "UNKNOWN" and not isinstance(form, Probability | Expected):
                judgement = attrs.evolve(judgement, reason=_USED_UP)
            what = subject(form)
            if what and self._met(subjects[form], met[form]) is None and self._base.complete:
                judgement = attrs.evolve(judgement, idle=unparse(what))
            found[form] = judgement
        return found

    def _judged(self, form: Form, hit: Hit | None) -> Judgement:
        match form:
            case Possible():
                return self._possible(self._met(self._questions.plain[form], hit))
            case Always() | Never() | Unchanged():
                seen = self._questions.plain[form]
                return self._safe(form, seen, self._base, self._met(seen, hit))
            case OnlyAfter() | AtMost():
                return self._remembered(form)
            case LeadsTo():
                return self._leads_to(form)
            case EverywherePossible():
                return self._everywhere(form)
            case Probability() | Expected():
                return self._by_odds(form)

    def _met(self, seen: Observed, hit: Hit | None) -> Hit | None:
        """Give where a sight was met first, the start included."""
        at_start = evaluate(seen.at_start, self._constants) is True
        return Hit(self._base.ground.start, ()) if at_start else hit

    def _possible(self, hit: Hit | None) -> Judgement:
        if hit is not None:
            return Judgement("HOLDS", trace=self._base.trace(hit.way))
        return self._unless_stopped(self._base, Judgement("VIOLATED", "it is never true"))

    def _remembered(self, form: OnlyAfter | AtMost) -> Judgement:
        seen = observed(self._system, form, self._constants)
        if evaluate(seen.at_start, self._constants) is True:  # then what is counted may not fit its variable
            return self._violated(form, self._base, Hit(self._base.ground.start, ()), seen)
        searched = search(seen, self._limits, self._engine)
        return self._safe(form, seen, searched, searched.hits[0])

    def _safe(self, form: Form, seen: Observed, searched: Searched, hit: Hit | None) -> Judgement:
        if hit is None:
            return self._unless_stopped(searched, Judgement("HOLDS"))
        return self._violated(form, searched, hit, seen)

    def _violated(self, form: Form, searched: Searched, hit: Hit, seen: Observed) -> Judgement:
        def look(other: Searched) -> tuple[tuple[Command, ...], tuple[Trace, int | None]] | None:
            again = other.hits[0]
            return None if again is None else (again.way, (searched.trace(again.way), None))

        judgement = self._shown(form, searched, hit.way)
        if self._traces == 1 or not hit.way:
            return judgement
        more = similar(searched, hit.way, look, self._traces - 1, self._limits, self._engine, seen.sights)
        return attrs.evolve(judgement, more=more, passing=passing(searched, hit.way, seen.sights))

    def _shown(self, form: Form, searched: Searched, way: Sequence[Command], loop: int | None = None) -> Judgement:
        """Give the judgement that a counterexample shows."""
        trace = searched.trace(way)
        timers = ("a timer may fire at any time",) if any(t.occurrence.source for t in trace.steps) else ()
        return Judgement("VIOLATED", reason_for(form, self._system.machine, trace, loop), trace, loop, timers)

    def _leads_to(self, form: LeadsTo) -> Judgement:
        searched = search(observed(self._system, form, self._constants), self._limits, self._engine)
        if not searched.is_listed:
            return self._unless_stopped(searched, _TOO_MANY)
        owed = Owed(searched, WAITING, form.fair)
        fair = (f"strong fairness of {', '.join(form.fair)}",) if form.fair else ()
        lasso = owed.lasso()
        if lasso is None:
            return Judgement("HOLDS", assumes=(*map(_kept, sorted(owed.promises(), key=str)), *fair))

        def look(other: Searched) -> tuple[tuple[Command, ...], tuple[Trace, int | None]] | None:
            again = owed.lasso(other)
            way = () if again is None else (*again.stem, *again.cycle)
            return None if again is None else (way, (searched.trace(way), len(again.stem)))

        whole = (*lasso.stem, *lasso.cycle)
        judgement = self._shown(form, searched, whole, len(lasso.stem))
        judgement = attrs.evolve(judgement, assumes=judgement.assumes + fair)
        if self._traces == 1:
            return judgement
        more = similar(searched, whole, look, self._traces - 1, self._limits, self._engine)
        near = passing(searched, whole, (), lambda number: not searched.ground.values(number)[WAITING])
        return attrs.evolve(judgement, more=more, passing=near)

    def _everywhere(self, form: EverywherePossible) -> Judgement:
        needs_memory = happens(form.condition)
        searched = self._base
        if needs_memory:
            searched = search(observed(self._system, form, self._constants), self._limits, self._engine)
        if not searched.is_listed:
            return self._unless_stopped(searched, _TOO_MANY)
        places = range(len(self._system.locations))
        now = {
            place: Name(NOW, "variable")
            if needs_memory
            else searched.ground.grounded(at_location(self._system, place, form.condition))
            for place in places
        }
        stuck = unable(searched.graph, searched.graph.holding(now))
        if not stuck:
            return Judgement("HOLDS")
        return self._shown(form, searched, searched.way_to(int(searched.graph.numbers[stuck[0]])))

    def _by_odds(self, form: Form) -> Judgement:
        if self._odds is None:
            return Judgement("UNKNOWN", "odds are not judged here")
        verdict, reason, assumes = self._odds(self._system.machine, form, self._limits)
        return Judgement(verdict, reason, assumes=assumes)

    def _unless_stopped(self, searched: Searched, judgement: Judgement) -> Judgement:
        """Give the judgement if everything was searched, else UNKNOWN."""
        if searched.complete:
            return judgement
        limit = stopped_by(searched.found, self._limits)
        why = searched.system.left_out or (
            f"the search stopped at {limit}, after {searched.found.configurations} configurations",
        )
        return Judgement("UNKNOWN", "; ".join(why))


_TOO_MANY = Judgement("UNKNOWN", "there are more configurations than can be listed, as this form asks for")
_USED_UP = "the time limit was used up before this property was searched"
_WITHOUT_MEMORY = Always | Never | Unchanged | Possible


def _kept(promise: Promise) -> str:
    """Write what S12 promises."""
    if isinstance(promise, str):
        return f"{promise} is answered or cancelled"
    source, timer = promise
    return f"'{timer}' of {source} fires or is dropped"
