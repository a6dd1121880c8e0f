"""Check reports: everything that `dsa check` finds out about one machine, as one frozen value.

`check` takes a machine, and a clock when time matters; it reads no files and prints nothing. `combine_results` makes one verdict for each
property out of its values at each valuation: a property that is violated somewhere is VIOLATED, and one that is not judged somewhere is
UNKNOWN. `reliance` warns of each effect that a verdict relies on and that has no time limit, or whose failure no row handles (S12).
`missing_data` warns of data that may be missing when a prompt or a guard reads it (DSA316, rule D5), with a shortest way there. The
functions at the end write totals as sentences: the commands print them, and pages of documentation show them.
"""

import importlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import attrs

from dsa.checks.places import place
from dsa.checks.properties import Odds, PropertyValue, PropertyVerdict, Questions, judge, vacuous, violated_forms
from dsa.checks.reachability import from_explorations
from dsa.checks.scenarios import ScenarioResult, from_scenarios, run_scenarios
from dsa.checks.search.engine import Engine, Progress, SearchLimits
from dsa.checks.search.exploration import MAX_STATES, Clock, Exploration, explore_system, limits_until
from dsa.checks.table_faults import row_findings, start_outside
from dsa.data_use import Use, uses
from dsa.declarations import OUTSIDE, AtMost, ExpectedCount, Form, OnlyAfter, Probability, Property, show, show_instance
from dsa.errors import Diagnostic, ParameterError, Span
from dsa.expr import Integer, Name, Value, show_value
from dsa.machine import FEW_VALUATIONS, Machine, every_valuation, minima
from dsa.semantics import accepted_events
from dsa.system import System, closed_system
from dsa.text import plural
from dsa.trace import Trace, show_events, show_values

#: With one of these errors, nothing but a violation is concluded.
BLOCKING_ERRORS = {
    "DSA205": "a start outside its domain",
    "DSA304": "rows enabled at once",
    "DSA305": "an unhandled answer",
    "DSA306": "a value outside its domain",
    "DSA307": "an effect emitted twice",
}


@attrs.frozen
class PropertyResult:
    """A property as written, its line, and its verdict.

    `values` are the valuations that the verdict is about: those explored, or the one at which it is violated. `trace`
    is a shortest counterexample there, or a witness of `possible`; from its step `loop` on it can go on for ever.
    `more` are counterexamples by other rows, each with its `loop`, `passing_run` the nearest run that is not one.
    `assumes` says what the verdict rests on. `blocking_codes` are the codes of the errors that block the verdict: it is
    UNKNOWN for that reason alone. `relies_on` are the effects without whose answers it would not hold, `must_not_fail`
    those of them whose failure no row names (S12).
    """

    text: str
    line: int
    verdict: PropertyVerdict
    reason: str = ""
    values: tuple[tuple[tuple[str, Value], ...], ...] = ()
    trace: Trace | None = None
    loop: int | None = None
    assumes: tuple[str, ...] = ()
    more: tuple[tuple[Trace, int | None], ...] = ()
    passing_run: Trace | None = None
    claim: Property | None = attrs.field(default=None, repr=False)
    blocking_codes: tuple[str, ...] = ()
    relies_on: tuple[str, ...] = ()
    must_not_fail: tuple[str, ...] = ()

    @property
    def condition(self) -> str:
        """What the verdict relies on, as written after `if`; empty when it relies on nothing."""
        return relied_on(self.relies_on, self.must_not_fail)

    @property
    def failed(self) -> bool:
        """Return whether the verdict makes a check fail: it is VIOLATED or UNKNOWN."""
        return self.verdict in {"VIOLATED", "UNKNOWN"}


@attrs.frozen
class ValuationReport:
    """The judgements of all properties at one valuation."""

    machine: Machine = attrs.field(repr=False)
    judgements: tuple[PropertyValue, ...]


def judged_at(
    questions: Questions,
    exploration: Exploration,
    limits: SearchLimits,
    *,
    traces: int = 1,
    engine: Engine | None = None,
) -> ValuationReport:
    """Judge every property of a machine that was explored with these questions."""
    machine = questions.system.machine
    base = questions.search_from(exploration)
    judgements = judge(questions, base, limits, traces=traces, engine=engine, odds=_odds(machine))
    return ValuationReport(machine, tuple(judgements[claim.form] for claim in machine.properties))


def violated_at(
    questions: Questions, exploration: Exploration, limits: SearchLimits, engine: Callable[[Form], Engine]
) -> Iterator[Form]:
    """Return the properties violated of a machine that was explored with these questions, those first that are soon judged."""
    return violated_forms(
        questions, questions.search_from(exploration), limits, engine, _odds(questions.system.machine)
    )


def _odds(machine: Machine) -> Odds | None:
    """Return the judge of the two forms about odds; it is loaded by name, since most documents have none of them."""
    if not any(isinstance(claim.form, Probability | ExpectedCount) for claim in machine.properties):
        return None
    odds: Odds = importlib.import_module("dsa.checks.odds.run_odds").judge
    return odds


def combine_results(
    machine: Machine, reports: Sequence[ValuationReport], errors: Iterable[Diagnostic]
) -> tuple[PropertyResult, ...]:
    """Return the verdict of each property; `errors` are the other findings of the run."""
    codes = sorted({error.code for error in errors if error.severity == "error"} & BLOCKING_ERRORS.keys())
    return tuple(_combine(claim, number, reports, tuple(codes)) for number, claim in enumerate(machine.properties))


def _combine(
    claim: Property, number: int, reports: Sequence[ValuationReport], codes: tuple[str, ...]
) -> PropertyResult:
    # The smallest parameters are explored for rows and counts; odds without any retry are of no interest.
    reports_used = reports[:1] if isinstance(claim.form, Probability | ExpectedCount) else reports
    each = [(_values(at.machine), at.judgements[number]) for at in reports_used]
    text, line = text_of(claim), claim.span.line if claim.span else 0
    worst: PropertyValue | None = None
    for verdict in ("VIOLATED", "UNKNOWN"):
        worst = worst or next((judgement for _, judgement in each if judgement.verdict == verdict), None)
    everywhere = tuple(values for values, _ in each)
    if worst is not None and worst.verdict == "VIOLATED":
        where = next(values for values, judgement in each if judgement is worst)
        return _result(claim, worst, (where,))
    if codes or not each:
        errors = ", ".join(f"{BLOCKING_ERRORS[code]} ({code})" for code in codes)
        reason = f"no property can be shown to hold until this is fixed: {errors}" if errors else "nothing was explored"
        return PropertyResult(text, line, "UNKNOWN", reason, everywhere, claim=claim, blocking_codes=codes)
    if worst is not None:
        return _result(claim, worst, tuple(values for values, judgement in each if judgement.verdict == "UNKNOWN"))
    assumes = dict.fromkeys(sentence for _, judgement in each for sentence in judgement.assumes)
    result = _result(claim, each[0][1], everywhere)
    effects_used = {effect for _, judgement in each for effect in judgement.relies_on}
    machine = reports[0].machine
    relies_on = tuple(effect for effect in machine.effects_with_answers if effect in effects_used)
    must_not_fail = tuple(effect for effect in relies_on if effect not in machine.failures_handled)
    return attrs.evolve(result, assumes=tuple(assumes), relies_on=relies_on, must_not_fail=must_not_fail)


def relied_on(effects: Sequence[str], must_not_fail: Sequence[str]) -> str:
    """Return what a verdict relies on: `ocr, classify answer and do not fail`; `must_not_fail` are those of the effects that must not fail."""
    if not effects:
        return ""
    answer = f"{', '.join(effects)} {'answers' if len(effects) == 1 else 'answer'}"
    does = "does not fail" if len(must_not_fail) == 1 else "do not fail"
    if not must_not_fail:
        return answer
    return (
        f"{answer} and {does}"
        if len(must_not_fail) == len(effects)
        else f"{answer}, and {', '.join(must_not_fail)} {does}"
    )


def _result(
    claim: Property, judgement: PropertyValue, values: tuple[tuple[tuple[str, Value], ...], ...]
) -> PropertyResult:
    return PropertyResult(
        text_of(claim),
        claim.span.line if claim.span else 0,
        judgement.verdict,
        judgement.reason,
        values,
        judgement.trace,
        judgement.loop,
        judgement.assumes,
        judgement.more,
        judgement.passing_run,
        claim,
    )


def from_judged(machine: Machine, reports: Sequence[ValuationReport]) -> tuple[Diagnostic, ...]:
    """Return a warning for each property whose subject never happens in any exploration."""
    warnings = []
    at = " and with ".join(filter(None, (show_values(_values(each.machine)) for each in reports)))
    for number, claim in enumerate(machine.properties):
        judgements = [each.judgements[number] for each in reports]
        if all(judgement.verdict != "VIOLATED" for judgement in judgements):
            idle = [judgement.idle for judgement in judgements]
            warnings.append(vacuous(claim, text_of(claim), idle, f" (explored with {at})" if at else ""))
    return tuple(finding for finding in warnings if finding is not None)


def _values(machine: Machine) -> tuple[tuple[str, Value], ...]:
    return tuple(machine.constants.items())


def text_of(claim: Property) -> str:
    """Return a property as it stands in the document."""
    span = claim.span
    if span is None:
        return show(claim.form)
    return " ".join([*span.text[span.column - 1 : span.end - 1].split(), *_instance_words(claim)])


def _instance_words(claim: Property) -> list[str]:
    return [f"({show_instance(claim.instance)})"] if claim.instance else []


def reliance(
    machine: Machine, results: Sequence[PropertyResult], reports: Sequence[ValuationReport]
) -> tuple[Diagnostic, ...]:
    """Return a warning for each effect that a verdict relies on and that has no time limit, or whose failure would stop the run."""
    return (
        *_silent(machine, results),
        *_failing_effects(machine, results),
        *_ignored_failures(machine, results, reports),
    )


def _silent(machine: Machine, results: Sequence[PropertyResult]) -> Iterator[Diagnostic]:
    for effect in machine.effects_with_answers:
        dependent_result = next((result for result in results if effect in result.relies_on), None)
        declaration = machine.effect_named[effect]
        if dependent_result is not None and declaration.time_limit_ms is None:
            message = f"the effect '{effect}' has no time limit, and may never answer; the property '{dependent_result.text}' holds only if '{effect}' answers"
            hint = f"fill in the column 'time limit' for '{effect}', or add a row 'after ..' to the states that wait for it. To see what happens without an answer, end the property with 'even if {effect} never answers'"
            yield Diagnostic("DSA314", "warning", message, place(declaration.span), hint)


def _failing_effects(machine: Machine, results: Sequence[PropertyResult]) -> Iterator[Diagnostic]:
    for effect in machine.effects_with_answers:
        dependent_result = next((result for result in results if effect in result.must_not_fail), None)
        declaration = machine.effect_named[effect]
        if dependent_result is not None and not declaration.on_failure:
            message = f"no row handles '{effect}.failed', so the run stops if '{effect}' fails; the property '{dependent_result.text}' holds only if '{effect}' never fails"
            yield Diagnostic("DSA315", "warning", message, place(declaration.span), _hint(effect))


def _ignored_failures(
    machine: Machine, results: Sequence[PropertyResult], reports: Sequence[ValuationReport]
) -> Iterator[Diagnostic]:
    """Yield the failures that a row ignores where nothing is left that would bring what is owed: such a row does not count."""
    for effect in machine.effects_with_answers:
        declaration = machine.effect_named[effect]
        for number, result in enumerate(results):
            if declaration.on_failure or not any(effect in at.judgements[number].ignored_failures for at in reports):
                continue
            message = f"a row for '{effect}.failed' does not leave the state, and nothing else is under way there; so the property '{result.text}' does not hold if '{effect}' fails"
            yield Diagnostic("DSA315", "warning", message, place(declaration.span), _hint(effect))
            break


def _hint(effect: str) -> str:
    return f"add a row for '{effect}.failed' that leads to another state; if the run is meant to stop there, write 'stop' in the column 'on failure' of Effects"


def missing_data(system: System, limits: SearchLimits, engine: Engine | None = None) -> dict[Use, Diagnostic]:
    """Return a warning for each use of data that may not be there, by a prompt or a guard."""
    use_forms = [(use, form) for use in uses(system.machine) for form in _forms(use)]
    if not use_forms:
        return {}
    questions = Questions(system, [form for _, form in use_forms])
    judgements = judge(questions, questions.search(limits, engine), limits, engine=engine)
    warnings: dict[Use, Diagnostic] = {}
    for use, form in use_forms:
        judgement = judgements[form]
        if judgement.verdict == "VIOLATED" and judgement.trace is not None:
            warnings.setdefault(use, _warning(use, form, judgement.trace))
    return warnings


def _forms(use: Use) -> tuple[Form, ...]:
    """Return the properties by which the data is there; none for data that may be missing."""
    if use.reference.is_optional:
        return ()
    event = Name(use.reference.event, "event")
    forms: list[Form] = [OnlyAfter(use.when, event)]
    if use.reference.since not in {None, use.reference.event}:
        forms.append(AtMost(Integer(0), use.when, (Name(str(use.reference.since), "event"), event)))
    return tuple(forms)


def _warning(use: Use, form: Form, trace: Trace) -> Diagnostic:
    event, since = use.reference.event, use.reference.since
    moment = f" since '{since}'" if isinstance(form, AtMost) else " by then"
    way = show_events([step.occurrence for step in trace.steps])
    is_guard = use.reader.startswith("guard ")
    reader = f"the guard '{use.reader.removeprefix('guard ')}'" if is_guard else use.reader
    message = f"{reader} uses the data '{use.reference}', but in some runs the event '{event}' has not occurred{moment}; an example of such a run: {way}"
    optional = attrs.evolve(use.reference, is_optional=True)
    hint = f"make sure that '{event}' occurs on every path to '{use.at}', or write '{optional}' if it may be missing"
    return Diagnostic("DSA316", "warning", message, place(use.span), hint)


@attrs.frozen
class CheckReport:
    """What one run of the checks found.

    `diagnostics` are sorted: causes first, then by line and code. `properties` are in the document's order. `rests` are
    the leaves in which a run may stay with nothing outstanding, no timer armed, and not final, as far as was explored; `timer_waits` are those in which nothing
    but a timer is under way.
    """

    name: str
    explorations: tuple[Exploration, ...]
    diagnostics: tuple[Diagnostic, ...]
    properties: tuple[PropertyResult, ...]
    scenarios: tuple[ScenarioResult, ...]
    rests: tuple[str, ...] = ()
    timer_waits: tuple[str, ...] = ()
    strict: bool = False

    @property
    def failed(self) -> bool:
        """Return whether there is an error, or, when the check is strict, a warning, or a property that does not hold."""
        fatal = {"error", "warning"} if self.strict else {"error"}
        wrong = any(diagnostic.severity in fatal for diagnostic in self.diagnostics)
        return wrong or any(result.failed for result in self.properties)


def check(
    machine: Machine,
    *,
    parameters: Mapping[str, Value] | None = None,
    each_value: bool = False,
    strict: bool = False,
    max_states: int = MAX_STATES,
    time_limit_s: float | None = None,
    clock: Clock | None = None,
    progress: Progress | None = None,
    engine: Engine | None = None,
    traces: int = 1,
) -> CheckReport:
    """Check a machine: structure, exploration, Definition 4, scenarios, properties.

    Explores at all defaults and at all minima of the parameters, or only at `parameters` when given; with `each_value` at every combination of
    values, those of `parameters` fixed (ParameterError when there are more than `FEW_VALUATIONS`). `max_states` holds for each search,
    `time_limit_s` (which needs a `clock`) for all of it together. With more than one of `traces`, a violated property has at most that many
    counterexamples. Raises ParameterError for an unknown parameter or a value outside its domain.
    """
    outside, missing = tuple[Diagnostic, ...](), dict[Use, Diagnostic]()
    outcomes: list[tuple[Exploration, ValuationReport]] = []
    look = _Look(limits_until(max_states, time_limit_s, clock, progress), clock, engine, traces)
    system = closed_system(machine, look.limits.is_expired)
    for there in _valuations(machine, parameters, each_value=each_value):
        outside += (wrong := start_outside(there))
        if not wrong:
            here = attrs.evolve(system, machine=there)
            outcomes.append(look.at(here))
            missing = look.missing_data(here) | missing
    explorations, reports = tuple(e for e, _ in outcomes), tuple(j for _, j in outcomes)
    results = run_scenarios(machine)
    diagnostics = [*outside, *row_findings(machine), *missing.values()]
    if explorations:
        diagnostics += from_explorations(explorations, has_parameters=parameters is not None and not each_value)
    diagnostics += [*from_scenarios(machine, results), *from_judged(machine, reports)]
    properties = combine_results(machine, reports, diagnostics)
    findings = _sort(machine, [*diagnostics, *reliance(machine, properties, reports)])
    idle = _idle_leaves(machine, explorations)
    return CheckReport(machine.name, explorations, findings, properties, results, *idle, strict)


@attrs.frozen
class _Look:
    """How to check a system: the limits, the engine, and how many counterexamples to show."""

    limits: SearchLimits
    clock: Clock | None
    engine: Engine | None
    traces: int

    def at(self, system: System) -> tuple[Exploration, ValuationReport]:
        """Explore a system at its machine's parameter values, and judge the machine's properties."""
        questions = Questions(system, [claim.form for claim in system.machine.properties])
        exploration = explore_system(
            system, self.limits, clock=self.clock, engine=self.engine, also=questions.conditions
        )
        return exploration, judged_at(questions, exploration, self.limits, traces=self.traces, engine=self.engine)

    def missing_data(self, system: System) -> dict[Use, Diagnostic]:
        """Look for data that may be missing when it is read."""
        return missing_data(system, self.limits, self.engine)


def _distinct(machine: Machine, diagnostics: Iterable[Diagnostic]) -> list[Diagnostic]:
    """Return the findings, and of those that say the same of several names that a declaration with an index stands for the first."""
    if not machine.families:
        return list(diagnostics)
    first: dict[tuple[str, Span, str], Diagnostic] = {}
    for finding in diagnostics:
        first.setdefault((finding.code, finding.span, _INDEX.sub("", finding.message)), finding)
    return list(first.values())


_INDEX = re.compile(r"\[\w+\]")


def _idle_leaves(machine: Machine, explorations: Sequence[Exploration]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the leaves in which a run may rest, and those in which it may wait for nothing but a timer, in the order of the states."""
    idle = {leaf for exploration in explorations for leaf in exploration.idle_states}
    leaves = [leaf for leaf in machine.leaves if leaf in idle]
    with_timer = [leaf for leaf in leaves if machine.armed_timers(leaf)]
    outside = {event.name for event in machine.events if event.origin == OUTSIDE}
    alone = tuple(leaf for leaf in with_timer if outside.isdisjoint(accepted_events(machine, leaf)))
    return tuple(leaf for leaf in leaves if leaf not in with_timer), alone


def _valuations(machine: Machine, parameters: Mapping[str, Value] | None, *, each_value: bool) -> tuple[Machine, ...]:
    """Return the machine at the parameter values that a run explores."""
    if each_value:
        usual = machine.at(parameters or {})
        every = every_valuation(usual, FEW_VALUATIONS, parameters)
        if every is None:
            many = f"the parameters have more than {FEW_VALUATIONS} combinations of values"
            raise ParameterError(
                f"{many}: give some parameters one value (--param), or prove the claims for all values (dsa prove)"
            )
        others = (machine.at(values) for values in every if values != usual.constants)
        return (usual, *others)  # what is judged at one valuation alone is judged at the usual one
    if parameters is not None:
        return (machine.at(parameters),)
    smallest = machine.at(minima(machine))
    return (machine,) if smallest == machine else (machine, smallest)


def _sort(machine: Machine, diagnostics: list[Diagnostic]) -> tuple[Diagnostic, ...]:
    """Sort by place; of a dead end, keep what explains it: unreachable, or else without a way out."""
    ends = {f.span for f in diagnostics if f.code == "DSA303"}
    unreachable_spans = {f.span for f in diagnostics if f.code == "DSA301"}
    explanations = {"DSA308": ends, "DSA303": unreachable_spans}
    distinct = _distinct(machine, diagnostics)
    remaining = [f for f in distinct if f.span not in explanations.get(f.code, ())]
    return tuple(
        sorted(remaining, key=lambda f: (*_rank(f), f.span.path, f.span.line, f.code, f.span.column, f.message))
    )


def _rank(finding: Diagnostic) -> tuple[int, bool]:
    """Put causes before what may only follow from them: states and rows not reached, deadlocks, scenarios."""
    severity = ("error", "warning", "info").index(finding.severity)
    return severity, finding.code in {"DSA301", "DSA302", "DSA308", "DSA310"}


def explored_text(exploration: Exploration) -> str:
    """Return how much was explored, and at which parameter values."""
    values = ", ".join(f"{name} = {show_value(value)}" for name, value in exploration.parameters.items())
    at = f" at {values}" if values else ""
    rest = "" if exploration.complete else f", stopped at {exploration.limit or 'a limit'}"
    counts = plural(exploration.configurations, "configuration"), plural(exploration.transitions, "transition")
    return f"{', '.join(counts)}{at}{rest}"


def findings_text(diagnostics: Iterable[Diagnostic]) -> str:
    """Return how many errors, warnings and, where there are any, notes there are."""
    counts = Counter[str](diagnostic.severity for diagnostic in diagnostics)
    words = [plural(counts[severity], severity) for severity in ("error", "warning")]
    words += [plural(counts["info"], "note")] if counts["info"] else []
    return ", ".join(words)


def rest_texts(report: CheckReport) -> tuple[str, ...]:
    """Return the lines about states in which nothing is under way, or nothing but a timer; no line where there is no such state."""
    kinds = ("rests in", report.rests), ("waits only for a timer in", report.timer_waits)
    return tuple(f"{words}: {', '.join(leaves)}" for words, leaves in kinds if leaves)


def codes_text(diagnostics: Sequence[Diagnostic]) -> str:
    """Return how many errors, warnings and notes there are, errors and warnings with their codes: `3 errors (DSA302, 2 of DSA306), 0 warnings`."""
    parts = []
    for severity, noun in (("error", "error"), ("warning", "warning"), ("info", "note")):
        codes = Counter(each.code for each in diagnostics if each.severity == severity)
        names = ", ".join(code if count == 1 else f"{count} of {code}" for code, count in sorted(codes.items()))
        if codes or severity != "info":
            parts.append(plural(codes.total(), noun) + (f" ({names})" if names and severity != "info" else ""))
    return ", ".join(parts)


def totals_text(diagnostics: Iterable[Diagnostic], report: CheckReport) -> str:
    """Return the last line of `dsa check`: findings, scenarios that pass, properties by their verdicts."""
    good = sum(result.ok for result in report.scenarios)
    scenarios = f", {good} of {len(report.scenarios)} scenarios pass" if report.scenarios else ""
    return f"{findings_text(diagnostics)}{scenarios}{_properties_text(report)}"


def _properties_text(report: CheckReport) -> str:
    """Return how many properties have which verdict, behind a comma; nothing where there are none."""
    if not report.properties:
        return ""
    verdicts = [result.verdict for result in report.properties]
    good = verdicts.count("HOLDS")
    others = [f", {verdicts.count(bad)} {bad}" for bad in ("VIOLATED", "UNKNOWN") if bad in verdicts]
    where = values_text(report) if good else ""
    return f", {good} of {len(verdicts)} properties HOLD{where}{''.join(others)}"


def values_text(report: CheckReport) -> str:
    """Return the parameter values that a report is about, as ` at n = 3 and at n = 1`; nothing where there are no parameters."""
    each = filter(None, (show_values(exploration.parameters.items()) for exploration in report.explorations))
    at = " and at ".join(each)
    return f" at {at}" if at else ""


def check_word(report: CheckReport) -> str:
    """Return the result of a check in a word or two, the worst first: `violated`, `has errors`, `not judged`, `good`."""
    verdicts = {each.verdict for each in report.properties}
    if "VIOLATED" in verdicts:
        return "violated"
    if any(each.severity == "error" for each in report.diagnostics):
        return "has errors"
    return "not judged" if report.failed else "good"


def check_sentences(diagnostics: Sequence[Diagnostic], report: CheckReport) -> str:
    """Return the result of a check in sentences: properties by their verdicts, scenarios, and the mistakes of the text itself."""
    counts = codes_text(diagnostics)
    is_clean = all(each.severity == "info" for each in diagnostics)
    text = f"The text itself has no mistakes ({counts})." if is_clean else f"The text itself has {counts}."
    good, total = sum(each.ok for each in report.scenarios), len(report.scenarios)
    scenarios = f"{good} of {total} {'scenario passes' if total == 1 else 'scenarios pass'}." if total else ""
    return " ".join(filter(None, (_property_sentence(report), scenarios, text)))


def _property_sentence(report: CheckReport) -> str:
    total, counts = len(report.properties), Counter[str](each.verdict for each in report.properties)
    parts = [
        f"{counts[verdict]} of {plural(total, 'property', 'properties')} {'is' if counts[verdict] == 1 else 'are'} {verdict}"
        for verdict in ("VIOLATED", "UNKNOWN")
        if counts[verdict]
    ]
    if counts["HOLDS"]:
        parts.append(f"{counts['HOLDS']} of {total} properties HOLD{values_text(report)}")
    return f"{'; '.join(parts)}." if parts else "No property is stated here."
