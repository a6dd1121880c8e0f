"""Properties judged exactly at one valuation of the parameters, by exhaustive search.

Takes a system whose machine has values for its parameters, and forms of properties; gives a `PropertyValue` for each. Forms that need no memory
share one search. Each other form searches a system that remembers what it needs. Limits apply to each search: one that stops early leaves UNKNOWN
whatever it did not find. A violation comes with an explanation: what is wrong at the end, counterexamples that take other rows, and the nearest run
that passes.

A `TraceMoment` has the value of every name at one moment of a run (specs/semantics.md, "What properties mean"). `vacuous` warns of a property whose
subject never happens.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import Literal, TypeVar

import attrs

from dsa.checks.observers import NOW, OBLIGATION, ObservableForm, Observer, WatchedCondition, observer_of
from dsa.checks.places import place
from dsa.checks.search.engine import Engine, SearchLimits, stopped_by
from dsa.checks.search.exploration import Exploration
from dsa.checks.search.property_search import (
    FinishedSearch,
    Hit,
    Obligations,
    conditions,
    finish_search,
    search,
    search_all,
    search_ground,
)
from dsa.checks.search.state_graph import unable_positions
from dsa.declarations import (
    Always,
    AtMost,
    Emit,
    EverywherePossible,
    ExpectedCount,
    Form,
    HistoryForm,
    LeadsTo,
    Never,
    OnlyAfter,
    Possible,
    Probability,
    Property,
    StepForm,
    UnchangedClaim,
)
from dsa.errors import Diagnostic, UndecidedError
from dsa.expr import FALSE, Environment, Expr, Name, Value, any_of, evaluate, holds, show_value, unparse
from dsa.machine import Machine, environment, sleeping_effects
from dsa.semantics import Configuration, Occurrence, Taken, is_over, pending_values, start, step
from dsa.system import GuardedCommand, System, at_location, happens
from dsa.trace import Trace, show_loop


def vacuous(claim: Property, text: str, idle: Sequence[str], where: str) -> Diagnostic | None:
    """Report a property whose subject happens in none of the explorations; `idle` has what never happens in each."""
    if not idle or not all(idle):
        return None
    what = "'between' never begins: " if isinstance(claim.form, AtMost) and claim.form.between else ""
    message = f"'{text}' holds only because {what}'{idle[0]}' is never true{where}"
    return Diagnostic("DSA313", "warning", message, place(claim.span), "fix the property, or the rows that it is about")


#: The value of a guard that did not run: none of its verdicts.
_NOT_ASKED = "not asked"


@attrs.frozen
class TraceMoment:
    """A row taken, or the start, and the configuration after it; `names` has the value of every name there."""

    configuration: Configuration
    names: Environment = attrs.field(repr=False)

    def holds(self, condition: Expr) -> bool:
        """Return whether a condition is true at this moment."""
        return holds(condition, self.names)

    def value(self, expr: Expr) -> Value:
        """Return the value of an expression at this moment."""
        return evaluate(expr, self.names)


def moments(machine: Machine, occurrences: Iterable[Occurrence]) -> tuple[TraceMoment, ...]:
    """Run a machine from its start; raises ValueError at an occurrence that is refused."""
    quiet = _nothing_happens(machine)
    first = start(machine)
    run = [TraceMoment(first, quiet | _configuration_names(machine, first))]
    for occurrence in occurrences:
        taken = step(machine, run[-1].configuration, occurrence)
        if not isinstance(taken, Taken):
            raise ValueError(f"{occurrence.event} is refused: {taken.message}")  # noqa: TRY004  (not its type)
        momentary_names = {occurrence.event: True, **dict.fromkeys(taken.effects, True), **dict(occurrence.verdicts)}
        after = taken.configuration
        run.append(TraceMoment(after, {**quiet, **_configuration_names(machine, after), **momentary_names}))
    return tuple(run)


def _configuration_names(machine: Machine, here: Configuration) -> dict[str, Value]:
    """Return the names that a configuration decides."""
    inside = set(machine.ancestry(here.state))
    return {
        **environment(machine, here.values),
        **{state.name: state.name in inside for state in machine.states},
        **pending_values(machine, here.outstanding),
    }


def _nothing_happens(machine: Machine) -> dict[str, Value]:
    """Return events, effects and verdicts as they are at the start."""
    emitted_effects = {item.effect for row in machine.transitions for item in row.effects if isinstance(item, Emit)}
    return {
        **dict.fromkeys((effect.name for effect in machine.effects), False),
        **dict.fromkeys(sorted(emitted_effects), False),
        **dict.fromkeys(machine.event_named, False),
        **{guard.name: _NOT_ASKED for guard in machine.guards},
    }


PropertyVerdict = Literal["PROVED", "HOLDS", "VIOLATED", "NOT INDUCTIVE", "UNKNOWN"]
#: Judges the two forms about odds, within limits: returns a verdict, a sentence, and the assumptions of the number.
Odds = Callable[[Machine, Form, SearchLimits], tuple[PropertyVerdict, str, tuple[str, ...]]]


@attrs.frozen
class PropertyValue:
    """The judgement of a property at one valuation.

    `trace` is a shortest counterexample, or the witness of a `possible` that holds; its steps from `loop` on can be
    repeated for ever (at its end: the run rests there). `more` are counterexamples that take other rows, each with its
    `loop`, `passing_run` a run that begins like the first one and ends well. `idle` is what never happens, so that the
    verdict says little. `relies_on` are the effects without whose answers a `leads to` would not hold (S12), in the
    order of Effects; `ignored_failures` those whose failure a row ignores where Q is owed and nothing is left that
    would bring it: such a row counts as none.
    """

    verdict: PropertyVerdict
    reason: str = ""
    trace: Trace | None = None
    loop: int | None = None
    assumes: tuple[str, ...] = ()
    idle: str = ""
    more: tuple[tuple[Trace, int | None], ...] = ()
    passing_run: Trace | None = None
    relies_on: tuple[str, ...] = ()
    ignored_failures: tuple[str, ...] = ()


class Questions:
    """The sights that the first search of a system looks out for, so that it decides all properties that need no memory."""

    def __init__(self, system: System, forms: Sequence[Form]) -> None:
        self.system, self.forms = system, tuple(dict.fromkeys(forms))
        plain = [form for form in self.forms if isinstance(form, StepForm | Possible)]
        self.plain: dict[Form, Observer] = {form: observer_of(system, form) for form in plain}
        self.subjects = {form: observer_of(system, Possible(what)) for form in self.forms if (what := form.subject)}

    @cached_property
    def groups(self) -> list[Sequence[WatchedCondition]]:
        """The sights of each question."""
        return [observer.sights for observer in (*self.plain.values(), *self.subjects.values())]

    @cached_property
    def conditions(self) -> list[tuple[int, Expr]]:
        """Conditions at locations, as an exploration takes them."""
        return conditions(self.groups)

    def search_from(self, exploration: Exploration) -> FinishedSearch:
        """Return the finished search of an exploration of the system."""
        return finish_search(exploration.ground, exploration.result, self.groups, exploration.also)

    def search(self, limits: SearchLimits, engine: Engine | None = None) -> FinishedSearch:
        """Search the system."""
        return search_all(self.system, self.groups, limits, engine)


def judge(
    questions: Questions,
    base: FinishedSearch,
    limits: SearchLimits,
    *,
    traces: int = 1,
    engine: Engine | None = None,
    odds: Odds | None = None,
) -> dict[Form, PropertyValue]:
    """Judge the properties asked about, at the parameter values of the system's machine; `base` is the search for the questions.

    With more than one of `traces`, a violated property comes with at most that many counterexamples and the nearest run that passes.
    """
    return _PropertyJudge(questions, base, limits, traces, lambda _form: engine, odds).run()


def violated_forms(
    questions: Questions,
    base: FinishedSearch,
    limits: SearchLimits,
    engine: Callable[[Form], Engine],
    odds: Odds | None = None,
) -> Iterator[Form]:
    """Yield the forms that `judge` finds violated, without counterexamples, those first that take little time.

    `engine` returns the engine for a form. Meant for mutants, of which there are many, each judged once: conditions are
    not simplified where a short search decides as well.
    """
    return _PropertyJudge(questions, base, limits, 1, engine, odds, hurries=True).violated_forms()


#: A counterexample: its commands; its trace, and the step to which it returns.
_Breach = tuple[tuple[GuardedCommand, ...], tuple[Trace, int | None]]


@attrs.frozen
class _PropertyJudge:
    _questions: Questions
    _base: FinishedSearch
    _limits: SearchLimits
    _traces: int
    _engine: Callable[[Form], Engine | None]
    _odds: Odds | None
    _hurries: bool = False

    @property
    def _system(self) -> System:
        return self._questions.system

    @property
    def _constants(self) -> Mapping[str, Value]:
        return self._system.machine.constants

    def run(self) -> dict[Form, PropertyValue]:
        """Judge each form, and add what never happens."""
        plain, subjects = self._questions.plain, self._questions.subjects
        hits = dict(zip(plain, self._base.hits, strict=False))
        subject_hits = dict(zip(subjects, self._base.hits[len(plain) :], strict=True))
        judgements = {}
        for form in self._questions.forms:
            is_late = form not in plain and self._limits.is_expired()
            try:
                judgement = self._judge(form, hits.get(form))
            except UndecidedError:
                judgement = _LATE
            if is_late and judgement.verdict == "UNKNOWN" and not isinstance(form, Probability | ExpectedCount):
                judgement = attrs.evolve(judgement, reason=_USED_UP)
            what = form.subject
            if what and self._first_hit(subjects[form], subject_hits[form]) is None and self._base.complete:
                judgement = attrs.evolve(judgement, idle=unparse(what))
            judgements[form] = judgement
        return judgements

    def violated_forms(self) -> Iterator[Form]:
        """Yield the forms that are violated: first those of the search that was done, then those of a search each, then those of a graph."""
        hits = dict(zip(self._questions.plain, self._base.hits, strict=False))
        searches = [form for form in self._questions.forms if isinstance(form, HistoryForm)]
        rest = [form for form in self._questions.forms if form not in hits and not isinstance(form, HistoryForm)]
        for form in (*hits, *searches, *rest):
            if self._is_violated(form, hits.get(form)):
                yield form

    def _is_violated(self, form: Form, hit: Hit | None) -> bool:
        match form:
            case Possible():
                return self._first_hit(self._questions.plain[form], hit) is None and self._base.complete
            case StepForm():
                return self._first_hit(self._questions.plain[form], hit) is not None
            case HistoryForm():
                observer = observer_of(self._system, form, self._constants)
                at_start = evaluate(observer.at_start, self._constants) is True
                return at_start or self._search(form, observer).hits[0] is not None
            case LeadsTo():
                result = self._search(form, observer_of(self._system, form, self._constants))
                try:
                    return result.is_listed and Obligations(result, form).is_ever
                except UndecidedError:
                    return False
            case EverywherePossible() | Probability() | ExpectedCount():
                return self._judge(form, hit).verdict == "VIOLATED"

    def _search(self, form: Form, observer: Observer) -> FinishedSearch:
        return search(observer, self._limits, self._engine(form), hurries=self._hurries)

    def _judge(self, form: Form, hit: Hit | None) -> PropertyValue:
        match form:
            case Possible():
                return self._possible(self._first_hit(self._questions.plain[form], hit))
            case StepForm():
                observer = self._questions.plain[form]
                return self._safe(form, observer, self._base, self._first_hit(observer, hit))
            case HistoryForm():
                return self._with_memory(form)
            case LeadsTo():
                return self._leads_to(form)
            case EverywherePossible():
                return self._everywhere(form)
            case Probability() | ExpectedCount():
                return self._by_odds(form)

    def _first_hit(self, observer: Observer, hit: Hit | None) -> Hit | None:
        """Return where a sight was met first, the start included."""
        at_start = evaluate(observer.at_start, self._constants) is True
        return Hit(self._base.ground.start, ()) if at_start else hit

    def _possible(self, hit: Hit | None) -> PropertyValue:
        if hit is not None:
            return PropertyValue("HOLDS", trace=self._base.trace(hit.way))
        return self._unless_stopped(self._base, PropertyValue("VIOLATED", "the condition is never true"))

    def _with_memory(self, form: ObservableForm) -> PropertyValue:
        observer = observer_of(self._system, form, self._constants)
        if evaluate(observer.at_start, self._constants) is True:  # then the count may not fit its variable
            return self._violation(form, self._base, Hit(self._base.ground.start, ()), observer)
        result = self._search(form, observer)
        return self._safe(form, observer, result, result.hits[0])

    def _safe(self, form: Form, observer: Observer, result: FinishedSearch, hit: Hit | None) -> PropertyValue:
        if hit is None:
            return self._unless_stopped(result, PropertyValue("HOLDS"))
        return self._violation(form, result, hit, observer)

    def _violation(self, form: Form, result: FinishedSearch, hit: Hit, observer: Observer) -> PropertyValue:
        def look(other: FinishedSearch) -> _Breach | None:
            again = other.hits[0]
            return None if again is None else (again.way, (result.trace(again.way), None))

        judgement = self._counterexample(form, result, hit.way)
        if self._traces == 1 or not hit.way:
            return judgement
        more = similar(hit.way, partial(self._look_without, form, result, observer.sights, look), self._traces - 1)
        return attrs.evolve(judgement, more=more, passing_run=passing_run(result, hit.way, observer.sights))

    def _look_without(
        self,
        form: Form,
        result: FinishedSearch,
        sights: Sequence[WatchedCondition],
        look: Callable[[FinishedSearch], _Breach | None],
        rows: frozenset[int],
    ) -> _Breach | None:
        """Look for a counterexample in what can happen when some rows are never taken."""
        commands = result.system.commands
        left = tuple(rule for rule in result.ground.rules if commands[rule.command].row not in rows)
        remaining_sights = [sight for sight in sights if sight.command is None or sight.command.row not in rows]
        ground = attrs.evolve(result.ground, rules=left)
        return look(search_ground(ground, [remaining_sights], self._limits, self._engine(form)))

    def _counterexample(
        self, form: Form, result: FinishedSearch, way: Sequence[GuardedCommand], loop: int | None = None
    ) -> PropertyValue:
        """Return the judgement that a counterexample shows."""
        trace = result.trace(way)
        timers = (
            ("a timer may fire at any time after the timers that precede it",)
            if any(t.occurrence.source for t in trace.steps)
            else ()
        )
        return PropertyValue("VIOLATED", reason_for(form, self._system.machine, trace, loop), trace, loop, timers)

    def _leads_to(self, form: LeadsTo) -> PropertyValue:
        result = self._search(form, observer_of(self._system, form, self._constants))
        if not result.is_listed:
            return self._unless_stopped(result, _TOO_MANY)
        obligations = Obligations(result, form)
        strength = "weak" if form.is_weak else "strong"
        fair = (f"{strength} fairness of {', '.join(form.fair)}",) if form.fair else ()
        lasso = obligations.lasso()
        if lasso is None:
            promises, kept_effects = obligations.promises(), sleeping_effects(self._system.machine)
            timers = map(_timer_promise, sorted(promise for promise in promises if not isinstance(promise, str)))
            sleeps = (f"the sleep {effect} ends or is cancelled" for effect in kept_effects if effect in promises)
            return PropertyValue("HOLDS", assumes=(*timers, *sleeps, *fair), relies_on=obligations.relied_on())

        def look(other: FinishedSearch) -> _Breach | None:
            again = obligations.lasso(other)
            way = () if again is None else (*again.stem, *again.cycle)
            return None if again is None else (way, (result.trace(way), len(again.stem)))

        whole = (*lasso.stem, *lasso.cycle)
        judgement = self._counterexample(form, result, whole, len(lasso.stem))
        judgement = attrs.evolve(
            judgement, assumes=judgement.assumes + fair, ignored_failures=obligations.ignored_failures()
        )
        if self._traces == 1:
            return judgement
        more = similar(whole, partial(self._look_without, form, result, (), look), self._traces - 1)
        near = passing_run(result, whole, (), lambda number: not result.ground.values(number)[OBLIGATION])
        return attrs.evolve(judgement, more=more, passing_run=near)

    def _everywhere(self, form: EverywherePossible) -> PropertyValue:
        needs_memory = happens(form.condition)
        result = self._base
        if needs_memory:
            result = self._search(form, observer_of(self._system, form, self._constants))
        if not result.is_listed:
            return self._unless_stopped(result, _TOO_MANY)
        places = range(len(self._system.locations))
        now = {
            place: Name(NOW, "variable")
            if needs_memory
            else result.ground.ground_condition(at_location(self._system, place, form.condition))
            for place in places
        }
        dead_places = unable_positions(result.graph, result.graph.marks_where(now))
        if not dead_places:
            return PropertyValue("HOLDS")
        return self._counterexample(form, result, result.way_to(int(result.graph.numbers[dead_places[0]])))

    def _by_odds(self, form: Form) -> PropertyValue:
        if self._odds is None:
            return PropertyValue("UNKNOWN", "odds are not judged here")
        verdict, reason, assumes = self._odds(self._system.machine, form, self._limits)
        return PropertyValue(verdict, reason, assumes=assumes)

    def _unless_stopped(self, result: FinishedSearch, judgement: PropertyValue) -> PropertyValue:
        """Return the judgement if everything was searched, else UNKNOWN."""
        if result.complete:
            return judgement
        limit, count = stopped_by(result.result, self._limits), result.result.configurations
        why = result.system.left_out or (f"the search stopped at {limit}, after {count} configurations",)
        return PropertyValue("UNKNOWN", "; ".join(why))


_TOO_MANY = PropertyValue("UNKNOWN", "this form needs a list of all configurations, and there are too many")
_LATE = PropertyValue("UNKNOWN", "the time limit was reached before the results were examined")
_USED_UP = "the time limit was used up before this property was searched"


def _timer_promise(promise: tuple[str, str]) -> str:
    """Write what S12 promises of a timer."""
    source, timer = promise
    return f"the timer '{timer}' of {source} fires or is dropped"


# -- counterexamples explained ----------------------------------------------------------------------------------------


#: The most searches without some rows for each counterexample.
_SEARCHES_EACH = 8


def reason_for(form: Form, machine: Machine, trace: Trace, loop: int | None = None) -> str:
    """Return what is wrong at the end of a counterexample."""
    run = moments(machine, [taken.occurrence for taken in trace.steps])
    last = len(trace.steps)
    where = f"at step {last}" if last else "at the start"
    match form:
        case Always(condition):
            return f"{unparse(condition)} is false {where}"
        case Never(condition):
            return f"{unparse(condition)} is true {where}"
        case UnchangedClaim(_, expressions):
            return f"{_changes(run, expressions)} {where}"
        case OnlyAfter(later, earlier):
            return f"{unparse(later)} {where}, but never {unparse(earlier)} before"
        case AtMost(bound, counted, _):
            most = run[-1].value(bound)
            assert isinstance(most, int), "a bound is a number"
            return f"the count of {unparse(counted)} {where} is more than {most}"
        case LeadsTo():
            return _never_comes(form, machine, run, len(run) - 1 if loop is None else loop)
        case EverywherePossible(condition):
            return f"{unparse(condition)} can no longer become true {'after step ' + str(last) if last else where}"
        case _:
            return f"the property is broken {where}"


def _changes(run: tuple[TraceMoment, ...], expressions: Sequence[Expr]) -> str:
    changes = []
    for expr in expressions:
        before, after = run[-2].value(expr), run[-1].value(expr)
        if before != after:
            changes.append(f"{unparse(expr)} changes from {show_value(before)} to {show_value(after)}")
    return ", ".join(changes)


def _never_comes(form: LeadsTo, machine: Machine, run: tuple[TraceMoment, ...], loop: int) -> str:
    cause_place = next(place for place in range(loop, -1, -1) if run[place].holds(form.cause))
    first = f"at step {cause_place}" if cause_place else "at the start"
    last = len(run) - 1
    rest = _rests(form, machine, run[-1]) if loop == last else f"{show_loop(loop, last)} can repeat for ever"
    return f"{unparse(form.cause)} {first}, then never {unparse(form.goal)}: {rest}"


def _rests(form: LeadsTo, machine: Machine, last: TraceMoment) -> str:
    """Return why nothing more needs to happen after the last moment of a run."""
    here, failing_effects = last.configuration, form.doubtful_effects("fails") - machine.failures_handled
    failed = sorted(
        effect for effect in failing_effects if effect in here.outstanding or last.names.get(effect) is True
    )
    silent = sorted(form.doubtful_effects("never answers").intersection(here.outstanding))
    if is_over(machine, here):
        return f"the run ends in {here.state}"
    if silent:
        return f"{', '.join(silent)} may never answer, and the run rests in {here.state} for ever"
    if failed and (here.outstanding or machine.armed_timers(here.state)):
        return f"{failed[0]} may fail, and the run stops in {here.state}"
    return f"the run may rest in {here.state} for ever"


Counterexample = TypeVar("Counterexample")


def similar(
    first: Sequence[GuardedCommand],
    look_without: Callable[[frozenset[int]], tuple[Sequence[GuardedCommand], Counterexample] | None],
    most: int,
) -> tuple[Counterexample, ...]:
    """Return at most `most` further counterexamples, each a shortest one without some rows of the others.

    `look_without` takes rows to leave out, by their numbers: it returns the commands of a counterexample without them,
    and the counterexample. Each takes other rows than those before.
    """
    counterexamples: list[Counterexample] = []
    row_sets, exclusions = {_rows(first)}, set[frozenset[int]]()
    todo = deque(frozenset({row}) for row in sorted(_rows(first), reverse=True))
    while todo and len(counterexamples) < most and len(exclusions) < _SEARCHES_EACH * most:
        without = todo.popleft()
        if without in exclusions:
            continue
        exclusions.add(without)
        candidate = look_without(without)
        if candidate is not None:
            way, counterexample = candidate
            if _rows(way) not in row_sets:
                row_sets.add(_rows(way))
                counterexamples.append(counterexample)
            todo.extend(without | {row} for row in sorted(_rows(way), reverse=True))
    return tuple(counterexamples)


def _rows(way: Sequence[GuardedCommand]) -> frozenset[int]:
    return frozenset(command.row for command in way)


def passing_run(
    result: FinishedSearch,
    way: Sequence[GuardedCommand],
    sights: Sequence[WatchedCondition],
    well: Callable[[int], bool] = lambda _: True,
) -> Trace | None:
    """Return a run that begins like a counterexample for as long as possible, and comes to rest without a violation.

    Rest: in a final state, or where only outside events could go on. None when there is no such run.
    """
    bad = _BreachTest(result, sights)
    along = _along(result, way)
    hopeless: set[int] = set()
    for prefix in range(len(way) - 1, -1, -1):
        rest = _rest_from(result, along[prefix], way[prefix], bad, well, hopeless)
        if rest is not None:
            return result.trace((*way[:prefix], *rest))
    return None


class _BreachTest:
    """Decides which moments break a property."""

    def __init__(self, result: FinishedSearch, sights: Sequence[WatchedCondition]) -> None:
        self._ground = result.ground
        self._conditions: dict[object, Expr] = {}
        for sight in sights:
            key = _key(sight.command) if sight.command else sight.location
            self._conditions[key] = any_of([self._conditions.get(key, FALSE), sight.condition])

    def __call__(self, before: int, command: GuardedCommand, after: int) -> bool:
        """Return whether taking a command at a configuration is such a moment."""
        return self._true(_key(command), before) or self._true(after // self._ground.volume, after)

    def _true(self, key: object, number: int) -> bool:
        if key not in self._conditions:
            return False
        condition = self._ground.ground_condition(self._conditions[key])
        return evaluate(condition, self._ground.values(number)) is True


def _key(command: GuardedCommand) -> tuple[int, Occurrence, int]:
    """Return what a command and its copies in a system with observers have in common."""
    return command.source, command.occurrence, command.row


def _along(result: FinishedSearch, way: Sequence[GuardedCommand]) -> list[int]:
    """Return the configurations that a way goes through, the start first."""
    numbers = [result.ground.start]
    for command in way[:-1]:
        numbers.append(next(after for taken, after in result.moves(numbers[-1]) if _key(taken) == _key(command)))
    return numbers


def _rest_from(
    result: FinishedSearch,
    start: int,
    other_than: GuardedCommand,
    bad: _BreachTest,
    well: Callable[[int], bool],
    hopeless: set[int],
) -> list[GuardedCommand] | None:
    """Return a shortest way from a configuration, not by one command, to where a run may rest; remember what has none."""
    ways: dict[int, list[GuardedCommand]] = {}
    todo: deque[int] = deque()
    for command, after in result.moves(start):
        fresh = after not in ways and after not in hopeless
        if fresh and _key(command) != _key(other_than) and not bad(start, command, after):
            ways[after] = [command]
            todo.append(after)
    while todo:
        number = todo.popleft()
        if result.may_rest(number) and well(number):
            return ways[number]
        for command, after in result.moves(number):
            if after not in ways and after not in hopeless and not bad(number, command, after):
                ways[after] = [*ways[number], command]
                todo.append(after)
    hopeless |= ways.keys()
    return None
