"""Properties that say little: what they speak of never happens.

Takes what was judged at each valuation, gives a warning for each property whose left side is never true in any exploration.

The moments of one run, as properties see them: what every name of a property is worth at each.

Takes a machine and the steps of a trace, gives a `TraceMoment` for the start and for each step (specs/semantics.md, "What properties
mean"). Where `dsa.system` decides names for all runs at once, here everything has a value.

Properties judged exactly at one valuation of the parameters, by exhaustive search.

Takes a system whose machine has its parameters' values, and forms; gives a `PropertyValue` for each. Forms that need no memory share one
search; each other form searches the system that remembers what it needs. Limits hold for each search: one that stops
leaves UNKNOWN whatever was not found by then. A violation is explained: what is wrong at the end, others that take other rows, the nearest run
that passes.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Literal, TypeVar

import attrs

from dsa.checks.observers import NOW, WAITING, Observer, WatchedCondition, observed
from dsa.checks.places import place
from dsa.checks.search.engine import Engine, SearchLimits, stopped_by
from dsa.checks.search.exploration import Exploration
from dsa.checks.search.property_search import (
    FinishedSearch,
    Hit,
    Obligations,
    conditions,
    search,
    search_all,
    search_ground,
    searched,
)
from dsa.checks.search.state_graph import unable
from dsa.declarations import (
    Always,
    AtMost,
    Emit,
    EverywherePossible,
    ExpectedCount,
    Form,
    LeadsTo,
    Never,
    OnlyAfter,
    Possible,
    Probability,
    Property,
    UnchangedClaim,
)
from dsa.errors import Diagnostic
from dsa.expr import FALSE, Environment, Expr, Name, Value, any_of, evaluate, holds, show_value, unparse
from dsa.ground_system import LateError
from dsa.machine import Machine, environment
from dsa.semantics import Configuration, Occurrence, Taken, is_over, start, step
from dsa.system import GuardedCommand, System, at_location, happens
from dsa.trace import Trace, show_loop


def subject(form: Form) -> Expr | None:
    """Return what a property speaks of: where that never happens, it holds and says nothing. None for the forms that need none."""
    match form:
        case LeadsTo(cause, _, _):
            return cause
        case UnchangedClaim(trigger, _):
            return trigger
        case OnlyAfter(later, _):
            return later
        case AtMost(_, counted, between):
            return between[0] if between else counted
        case _:
            return None


def vacuous(claim: Property, text: str, idle: Sequence[str], where: str) -> Diagnostic | None:
    """Report a property whose subject happens in none of the explorations; `idle` has what never happens in each."""
    if not idle or not all(idle):
        return None
    what = "no scope opens: " if isinstance(claim.form, AtMost) and claim.form.between else ""
    message = f"'{text}' holds because {what}{idle[0]} never happens{where}"
    return Diagnostic("DSA313", "warning", message, place(claim.span), "mend the property, or the rows it speaks of")


#: What a guard that was not asked has said: none of its verdicts.
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
    found = [TraceMoment(first, quiet | _lasting(machine, first))]
    for occurrence in occurrences:
        taken = step(machine, found[-1].configuration, occurrence)
        if not isinstance(taken, Taken):
            raise ValueError(f"{occurrence.event} is refused: {taken.message}")  # noqa: TRY004  (not its type)
        happened = {occurrence.event: True, **dict.fromkeys(taken.effects, True), **dict(occurrence.verdicts)}
        after = taken.configuration
        found.append(TraceMoment(after, {**quiet, **_lasting(machine, after), **happened}))
    return tuple(found)


def _lasting(machine: Machine, here: Configuration) -> dict[str, Value]:
    """Return the names that a configuration decides."""
    inside = set(machine.ancestry(here.state))
    return {
        **environment(machine, here.values),
        **{state.name: state.name in inside for state in machine.states},
        **{f"pending {effect}": effect in here.outstanding for effect in machine.answers},
    }


def _nothing_happens(machine: Machine) -> dict[str, Value]:
    """Return events, effects and verdicts as they are at the start."""
    emitted = {item.effect for row in machine.transitions for item in row.effects if isinstance(item, Emit)}
    return {
        **dict.fromkeys((effect.name for effect in machine.effects), False),
        **dict.fromkeys(sorted(emitted), False),
        **dict.fromkeys(machine.event_named, False),
        **{guard.name: _NOT_ASKED for guard in machine.guards},
    }


PropertyVerdict = Literal["PROVED", "HOLDS", "VIOLATED", "NOT INDUCTIVE", "UNKNOWN"]
#: Judges the two forms that speak of odds, within limits: gives a verdict, a sentence, and what the number assumes.
Odds = Callable[[Machine, Form, SearchLimits], tuple[PropertyVerdict, str, tuple[str, ...]]]


@attrs.frozen
class PropertyValue:
    """What a property is worth at one valuation.

    `trace` is a shortest counterexample, or the witness of a `possible` that holds; its steps from `loop` on can be repeated for ever
    (at its end: the run rests there). `more` are counterexamples that take other rows, each with its `loop`, `passing` a run that begins like the
    first one and ends well. `idle` is what never happens, so that the verdict says little. `relies_on` are the effects without whose answers a
    `leads to` would not hold (S12), in the order of Effects; `ignored` those whose failure a row ignores where Q is owed and nothing is left that would
    bring it: such a row counts as none.
    """

    verdict: PropertyVerdict
    reason: str = ""
    trace: Trace | None = None
    loop: int | None = None
    assumes: tuple[str, ...] = ()
    idle: str = ""
    more: tuple[tuple[Trace, int | None], ...] = ()
    passing: Trace | None = None
    relies_on: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()


class Questions:
    """What the first search of a system is to look out for, so that properties that need no memory are judged by it alone."""

    def __init__(self, system: System, forms: Sequence[Form]) -> None:
        self.system, self.forms = system, tuple(dict.fromkeys(forms))
        plain = [form for form in self.forms if isinstance(form, _WITHOUT_MEMORY)]
        self.plain: dict[Form, Observer] = {form: observed(system, form) for form in plain}
        self.subjects = {form: observed(system, Possible(what)) for form in self.forms if (what := subject(form))}

    @cached_property
    def groups(self) -> list[Sequence[WatchedCondition]]:
        """The sights of each question."""
        return [seen.sights for seen in (*self.plain.values(), *self.subjects.values())]

    @cached_property
    def conditions(self) -> list[tuple[int, Expr]]:
        """Conditions at locations, as an exploration takes them."""
        return conditions(self.groups)

    def answered(self, exploration: Exploration) -> FinishedSearch:
        """Return the search that an exploration of the system did."""
        return searched(exploration.ground, exploration.found, self.groups, exploration.also)

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

    With more than one of `traces`, a violated property comes with up to so many counterexamples and the nearest run that passes.
    """
    return _PropertyJudge(questions, base, limits, traces, lambda _form: engine, odds).run()


def violated(
    questions: Questions,
    base: FinishedSearch,
    limits: SearchLimits,
    engine: Callable[[Form], Engine],
    odds: Odds | None = None,
) -> Iterator[Form]:
    """Return the forms that `judge` finds violated, those first that are soon decided; no counterexample is made of them. `engine` gives what searches for one.

    As for mutants, of which there are many, and each is looked at once: of conditions nothing is decided that a short search shows.
    """
    return _PropertyJudge(questions, base, limits, 1, engine, odds, hurries=True).violated()


class _PropertyJudge:
    def __init__(
        self,
        questions: Questions,
        base: FinishedSearch,
        limits: SearchLimits,
        traces: int,
        engine: Callable[[Form], Engine | None],
        odds: Odds | None,
        *,
        hurries: bool = False,
    ) -> None:
        self._questions, self._base, self._limits = questions, base, limits
        self._traces, self._engine, self._odds, self._hurries = traces, engine, odds, hurries
        self._system, self._constants = questions.system, questions.system.machine.constants

    def run(self) -> dict[Form, PropertyValue]:
        """Judge each form; say what never happens."""
        plain, subjects = self._questions.plain, self._questions.subjects
        hits = dict(zip(plain, self._base.hits, strict=False))
        met = dict(zip(subjects, self._base.hits[len(plain) :], strict=True))
        found = {}
        for form in self._questions.forms:
            is_late = form not in plain and self._limits.expired()
            try:
                judgement = self._judged(form, hits.get(form))
            except LateError:
                judgement = _LATE
            if is_late and judgement.verdict == "UNKNOWN" and not isinstance(form, Probability | ExpectedCount):
                judgement = attrs.evolve(judgement, reason=_USED_UP)
            what = subject(form)
            if what and self._met(subjects[form], met[form]) is None and self._base.complete:
                judgement = attrs.evolve(judgement, idle=unparse(what))
            found[form] = judgement
        return found

    def violated(self) -> Iterator[Form]:
        """Yield the forms that are violated: first those of the search that was done, then those of a search each, then those of a graph."""
        hits = dict(zip(self._questions.plain, self._base.hits, strict=False))
        searches = [form for form in self._questions.forms if isinstance(form, OnlyAfter | AtMost)]
        rest = [form for form in self._questions.forms if form not in hits and not isinstance(form, OnlyAfter | AtMost)]
        for form in (*hits, *searches, *rest):
            if self._is_violated(form, hits.get(form)):
                yield form

    def _is_violated(self, form: Form, hit: Hit | None) -> bool:
        match form:
            case Possible():
                return self._met(self._questions.plain[form], hit) is None and self._base.complete
            case Always() | Never() | UnchangedClaim():
                return self._met(self._questions.plain[form], hit) is not None
            case OnlyAfter() | AtMost():
                seen = observed(self._system, form, self._constants)
                at_start = evaluate(seen.at_start, self._constants) is True
                return at_start or self._searched(form, seen).hits[0] is not None
            case LeadsTo():
                searched = self._searched(form, observed(self._system, form, self._constants))
                try:
                    return searched.is_listed and Obligations(searched, form).is_ever
                except LateError:
                    return False
            case EverywherePossible() | Probability() | ExpectedCount():
                return self._judged(form, hit).verdict == "VIOLATED"

    def _searched(self, form: Form, seen: Observer) -> FinishedSearch:
        return search(seen, self._limits, self._engine(form), hurries=self._hurries)

    def _judged(self, form: Form, hit: Hit | None) -> PropertyValue:
        match form:
            case Possible():
                return self._possible(self._met(self._questions.plain[form], hit))
            case Always() | Never() | UnchangedClaim():
                seen = self._questions.plain[form]
                return self._safe(form, seen, self._base, self._met(seen, hit))
            case OnlyAfter() | AtMost():
                return self._remembered(form)
            case LeadsTo():
                return self._leads_to(form)
            case EverywherePossible():
                return self._everywhere(form)
            case Probability() | ExpectedCount():
                return self._by_odds(form)

    def _met(self, seen: Observer, hit: Hit | None) -> Hit | None:
        """Return where a sight was met first, the start included."""
        at_start = evaluate(seen.at_start, self._constants) is True
        return Hit(self._base.ground.start, ()) if at_start else hit

    def _possible(self, hit: Hit | None) -> PropertyValue:
        if hit is not None:
            return PropertyValue("HOLDS", trace=self._base.trace(hit.way))
        return self._unless_stopped(self._base, PropertyValue("VIOLATED", "it is never true"))

    def _remembered(self, form: OnlyAfter | AtMost) -> PropertyValue:
        seen = observed(self._system, form, self._constants)
        if evaluate(seen.at_start, self._constants) is True:  # then what is counted may not fit its variable
            return self._violated(form, self._base, Hit(self._base.ground.start, ()), seen)
        searched = self._searched(form, seen)
        return self._safe(form, seen, searched, searched.hits[0])

    def _safe(self, form: Form, seen: Observer, searched: FinishedSearch, hit: Hit | None) -> PropertyValue:
        if hit is None:
            return self._unless_stopped(searched, PropertyValue("HOLDS"))
        return self._violated(form, searched, hit, seen)

    def _violated(self, form: Form, searched: FinishedSearch, hit: Hit, seen: Observer) -> PropertyValue:
        def look(other: FinishedSearch) -> tuple[tuple[GuardedCommand, ...], tuple[Trace, int | None]] | None:
            again = other.hits[0]
            return None if again is None else (again.way, (searched.trace(again.way), None))

        judgement = self._shown(form, searched, hit.way)
        if self._traces == 1 or not hit.way:
            return judgement
        more = similar(searched, hit.way, look, self._traces - 1, self._limits, self._engine(form), seen.sights)
        return attrs.evolve(judgement, more=more, passing=passing(searched, hit.way, seen.sights))

    def _shown(
        self, form: Form, searched: FinishedSearch, way: Sequence[GuardedCommand], loop: int | None = None
    ) -> PropertyValue:
        """Return the judgement that a counterexample shows."""
        trace = searched.trace(way)
        timers = (
            ("a timer may fire at any time after those that precede it",)
            if any(t.occurrence.source for t in trace.steps)
            else ()
        )
        return PropertyValue("VIOLATED", reason_for(form, self._system.machine, trace, loop), trace, loop, timers)

    def _leads_to(self, form: LeadsTo) -> PropertyValue:
        searched = self._searched(form, observed(self._system, form, self._constants))
        if not searched.is_listed:
            return self._unless_stopped(searched, _TOO_MANY)
        owed = Obligations(searched, form)
        strength = "weak" if form.is_weak else "strong"
        fair = (f"{strength} fairness of {', '.join(form.fair)}",) if form.fair else ()
        lasso = owed.lasso()
        if lasso is None:
            timers = map(_kept, sorted(promise for promise in owed.promises() if not isinstance(promise, str)))
            return PropertyValue("HOLDS", assumes=(*timers, *fair), relies_on=owed.relied_on())

        def look(other: FinishedSearch) -> tuple[tuple[GuardedCommand, ...], tuple[Trace, int | None]] | None:
            again = owed.lasso(other)
            way = () if again is None else (*again.stem, *again.cycle)
            return None if again is None else (way, (searched.trace(way), len(again.stem)))

        whole = (*lasso.stem, *lasso.cycle)
        judgement = self._shown(form, searched, whole, len(lasso.stem))
        judgement = attrs.evolve(judgement, assumes=judgement.assumes + fair, ignored=owed.ignored_failures())
        if self._traces == 1:
            return judgement
        more = similar(searched, whole, look, self._traces - 1, self._limits, self._engine(form))
        near = passing(searched, whole, (), lambda number: not searched.ground.values(number)[WAITING])
        return attrs.evolve(judgement, more=more, passing=near)

    def _everywhere(self, form: EverywherePossible) -> PropertyValue:
        needs_memory = happens(form.condition)
        searched = self._base
        if needs_memory:
            searched = self._searched(form, observed(self._system, form, self._constants))
        if not searched.is_listed:
            return self._unless_stopped(searched, _TOO_MANY)
        places = range(len(self._system.locations))
        now = {
            place: Name(NOW, "variable")
            if needs_memory
            else searched.ground.ground_condition(at_location(self._system, place, form.condition))
            for place in places
        }
        stuck = unable(searched.graph, searched.graph.holding(now))
        if not stuck:
            return PropertyValue("HOLDS")
        return self._shown(form, searched, searched.way_to(int(searched.graph.numbers[stuck[0]])))

    def _by_odds(self, form: Form) -> PropertyValue:
        if self._odds is None:
            return PropertyValue("UNKNOWN", "odds are not judged here")
        verdict, reason, assumes = self._odds(self._system.machine, form, self._limits)
        return PropertyValue(verdict, reason, assumes=assumes)

    def _unless_stopped(self, searched: FinishedSearch, judgement: PropertyValue) -> PropertyValue:
        """Return the judgement if everything was searched, else UNKNOWN."""
        if searched.complete:
            return judgement
        limit, count = stopped_by(searched.found, self._limits), searched.found.configurations
        why = searched.system.left_out or (f"the search stopped at {limit}, after {count} configurations",)
        return PropertyValue("UNKNOWN", "; ".join(why))


_TOO_MANY = PropertyValue("UNKNOWN", "there are more configurations than can be listed, as this form asks for")
_LATE = PropertyValue("UNKNOWN", "the time limit was met before what was found was looked at")
_USED_UP = "the time limit was used up before this property was searched"
_WITHOUT_MEMORY = Always | Never | UnchangedClaim | Possible


def _kept(promise: tuple[str, str]) -> str:
    """Write what S12 promises of a timer."""
    source, timer = promise
    return f"'{timer}' of {source} fires or is dropped"


# -- P leads to Q -----------------------------------------------------------------------------------------------------
# A run stays owed for ever when it rests where only outside events could go on, or goes round a cycle that S12 allows: every promise
# (outstanding effect, armed timer) of the cycle is kept somewhere on it, or is absent somewhere. With fairness, what is possible again and again
# must happen; a run that rests is in its last configuration again and again. Exact: of a component that breaks fairness, what is left without
# the configurations where the event is possible is searched again. With weak fairness nothing is left then: where something is possible at every
# configuration and never happens, that is so of every part too. What `even if` names is promised nothing, or may end the run where it fails.


#: A step: the command, and the position of the configuration it leads to.


# -- counterexamples explained ----------------------------------------------------------------------------------------


#: So many searches without some rows are made for each counterexample that is asked for.
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
            return f"{unparse(later)} {where}, and {unparse(earlier)} never before"
        case AtMost(bound, counted, _):
            most = run[-1].value(bound)
            assert isinstance(most, int), "a bound is a number"
            return f"{unparse(counted)} {where} is one more than {most}"
        case LeadsTo():
            return _never_comes(form, machine, run, len(run) - 1 if loop is None else loop)
        case EverywherePossible(condition):
            return f"{unparse(condition)} cannot come any more {'after step ' + str(last) if last else where}"
        case _:
            return ""


def _changes(run: tuple[TraceMoment, ...], expressions: Sequence[Expr]) -> str:
    changed = []
    for expr in expressions:
        before, after = run[-2].value(expr), run[-1].value(expr)
        if before != after:
            changed.append(f"{unparse(expr)} changes from {show_value(before)} to {show_value(after)}")
    return ", ".join(changed)


def _never_comes(form: LeadsTo, machine: Machine, run: tuple[TraceMoment, ...], loop: int) -> str:
    caused = next(place for place in range(loop, -1, -1) if run[place].holds(form.cause))
    first = f"at step {caused}" if caused else "at the start"
    last = len(run) - 1
    rest = _rests(form, machine, run[-1]) if loop == last else f"{show_loop(loop, last)} can repeat for ever"
    return f"{unparse(form.cause)} {first}, then never {unparse(form.goal)}: {rest}"


def _rests(form: LeadsTo, machine: Machine, last: TraceMoment) -> str:
    """Return why nothing more needs to happen after the last moment of a run."""
    here, failing = last.configuration, form.doubtful_effects("fails") - machine.failures_handled
    failed = sorted(effect for effect in failing if effect in here.outstanding or last.names.get(effect) is True)
    silent = sorted(form.doubtful_effects("never answers") & here.outstanding)
    if is_over(machine, here):
        return f"the run ends in {here.state}"
    if silent:
        return f"{', '.join(silent)} may never answer, and the run rests in {here.state} for ever"
    if failed and (here.outstanding or machine.armed_timers(here.state)):
        return f"{failed[0]} may fail, and the run stops in {here.state}"
    return f"the run may rest in {here.state} for ever"


Found = TypeVar("Found")


def similar(
    searched: FinishedSearch,
    first: Sequence[GuardedCommand],
    look: Callable[[FinishedSearch], tuple[Sequence[GuardedCommand], Found] | None],
    most: int,
    limits: SearchLimits,
    engine: Engine | None = None,
    sights: Sequence[WatchedCondition] = (),
) -> tuple[Found, ...]:
    """Give up to so many further counterexamples, each a shortest one without some rows of the others.

    `look` is asked of searches that leave out rows, one after the other: it gives the commands of a counterexample found there,
    and what is wanted of it. Each takes other rows than those before.
    """
    found: list[Found] = []
    known, tried = {_rows(first)}, set[frozenset[int]]()
    todo = deque(frozenset({row}) for row in sorted(_rows(first), reverse=True))
    while todo and len(found) < most and len(tried) < _SEARCHES_EACH * most:
        without = todo.popleft()
        if without in tried:
            continue
        tried.add(without)
        seen = look(_without(searched, sights, without, limits, engine))
        if seen is not None:
            way, wanted = seen
            if _rows(way) not in known:
                known.add(_rows(way))
                found.append(wanted)
            todo.extend(without | {row} for row in sorted(_rows(way), reverse=True))
    return tuple(found)


def _rows(way: Sequence[GuardedCommand]) -> frozenset[int]:
    return frozenset(command.row for command in way)


def _without(
    searched: FinishedSearch,
    sights: Sequence[WatchedCondition],
    rows: frozenset[int],
    limits: SearchLimits,
    engine: Engine | None,
) -> FinishedSearch:
    """Search what can happen when some rows are never taken."""
    commands = searched.system.commands
    left = tuple(rule for rule in searched.ground.rules if commands[rule.command].row not in rows)
    seen = [sight for sight in sights if sight.command is None or sight.command.row not in rows]
    return search_ground(attrs.evolve(searched.ground, rules=left), [seen], limits, engine)


def passing(
    searched: FinishedSearch,
    way: Sequence[GuardedCommand],
    sights: Sequence[WatchedCondition],
    well: Callable[[int], bool] = lambda _: True,
) -> Trace | None:
    """Return a run that begins like a counterexample for as long as possible, and comes to rest without a violation.

    Rest: in a final state, or where only outside events could go on. None when there is no such run.
    """
    bad = _Bad(searched, sights)
    along = _along(searched, way)
    hopeless: set[int] = set()
    for kept in range(len(way) - 1, -1, -1):
        rest = _rest_from(searched, along[kept], way[kept], bad, well, hopeless)
        if rest is not None:
            return searched.trace((*way[:kept], *rest))
    return None


class _Bad:
    """Tells the moments that break a property."""

    def __init__(self, searched: FinishedSearch, sights: Sequence[WatchedCondition]) -> None:
        self._ground = searched.ground
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


def _along(searched: FinishedSearch, way: Sequence[GuardedCommand]) -> list[int]:
    """Return the configurations that a way goes through, the start first."""
    found = [searched.ground.start]
    for command in way[:-1]:
        found.append(next(after for taken, after in searched.moves(found[-1]) if _key(taken) == _key(command)))
    return found


def _rest_from(
    searched: FinishedSearch,
    start: int,
    other_than: GuardedCommand,
    bad: _Bad,
    well: Callable[[int], bool],
    hopeless: set[int],
) -> list[GuardedCommand] | None:
    """Return a shortest way from a configuration, not by one command, to where a run may rest; remember what has none."""
    arrived: dict[int, list[GuardedCommand]] = {}
    todo: deque[int] = deque()
    for command, after in searched.moves(start):
        fresh = after not in arrived and after not in hopeless
        if fresh and _key(command) != _key(other_than) and not bad(start, command, after):
            arrived[after] = [command]
            todo.append(after)
    while todo:
        number = todo.popleft()
        if searched.system.may_rest(number // searched.ground.volume) and well(number):
            return arrived[number]
        for command, after in searched.moves(number):
            if after not in arrived and after not in hopeless and not bad(number, command, after):
                arrived[after] = [*arrived[number], command]
                todo.append(after)
    hopeless |= arrived.keys()
    return None
