"""One verdict for each property out of what it is worth at each valuation.

Takes a machine's properties, its system and the valuations to judge them at; gives a `PropertyResult` for each, and warnings about those
that say nothing. A property that is violated somewhere is VIOLATED; one that is not judged somewhere is UNKNOWN.
"""

import importlib
from collections.abc import Callable, Iterable, Iterator, Sequence

import attrs

from dsa.checks.engines.found import Engine, Limits
from dsa.checks.explore import Exploration
from dsa.checks.properties import Judgement, Odds, PropertyVerdict, Questions, judge, violated
from dsa.checks.vacuity import vacuous
from dsa.claims import Expected, Form, Probability, Property, show
from dsa.errors import Diagnostic
from dsa.expr import Value
from dsa.machine import Machine
from dsa.trace import Trace, show_values

#: While one of these stands, nothing but a violation is concluded.
STANDING = {
    "DSA205": "a start outside its domain",
    "DSA304": "rows enabled at once",
    "DSA305": "an unhandled answer",
    "DSA306": "a value outside its domain",
    "DSA307": "an effect emitted twice",
}


@attrs.frozen
class PropertyResult:
    """A property as written, its line, and its verdict.

    `values` are the valuations that the verdict is about: those explored, or the one at which it is violated. `trace` is a shortest
    counterexample there, or a witness of `possible`; from its step `loop` on it can go on for ever. `more` are
    counterexamples by other rows, each with its `loop`, `passing` the nearest run that is none. `assumes` says what the verdict rests on.
    `standing` are the codes of the errors while which it is not judged: UNKNOWN for that reason alone. `relies_on` are the effects without whose answers
    it would not hold, `unfailing` those of them whose failure no row names (S12).
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
    passing: Trace | None = None
    claim: Property | None = attrs.field(default=None, repr=False)
    standing: tuple[str, ...] = ()
    relies_on: tuple[str, ...] = ()
    unfailing: tuple[str, ...] = ()

    @property
    def condition(self) -> str:
        """What the verdict relies on, as it stands behind `if`; empty when on nothing."""
        return relied_on(self.relies_on, self.unfailing)

    @property
    def failed(self) -> bool:
        """Tell whether the verdict makes a check fail: it is VIOLATED or UNKNOWN."""
        return self.verdict in {"VIOLATED", "UNKNOWN"}


@attrs.frozen
class Judged:
    """The judgements of all properties at one valuation."""

    machine: Machine = attrs.field(repr=False)
    judgements: tuple[Judgement, ...]


def judged_at(
    questions: Questions, exploration: Exploration, limits: Limits, *, traces: int = 1, engine: Engine | None = None
) -> Judged:
    """Judge every property of a machine that was explored with these questions."""
    machine = questions.system.machine
    base = questions.answered(exploration)
    found = judge(questions, base, limits, traces=traces, engine=engine, odds=_odds(machine))
    return Judged(machine, tuple(found[claim.form] for claim in machine.properties))


def violated_at(
    questions: Questions, exploration: Exploration, limits: Limits, engine: Callable[[Form], Engine]
) -> Iterator[Form]:
    """Give the properties violated of a machine that was explored with these questions, those first that are soon judged."""
    return violated(questions, questions.answered(exploration), limits, engine, _odds(questions.system.machine))


def _odds(machine: Machine) -> Odds | None:
    """Give what judges the two forms that speak of odds; it is loaded by name, since most documents have none of them."""
    if not any(isinstance(claim.form, Probability | Expected) for claim in machine.properties):
        return None
    odds: Odds = importlib.import_module("dsa.checks.odds.judge").judge
    return odds


def combined(machine: Machine, judged: Sequence[Judged], errors: Iterable[Diagnostic]) -> tuple[PropertyResult, ...]:
    """Give the verdict of each property; `errors` are what else the run found."""
    codes = sorted({error.code for error in errors if error.severity == "error"} & STANDING.keys())
    return tuple(_combined(claim, number, judged, tuple(codes)) for number, claim in enumerate(machine.properties))


def _combined(claim: Property, number: int, judged: Sequence[Judged], standing: tuple[str, ...]) -> PropertyResult:
    # The smallest parameters are explored for the sake of rows and counts; nobody asks for the odds without any retry.
    asked = judged[:1] if isinstance(claim.form, Probability | Expected) else judged
    each = [(_values(at.machine), at.judgements[number]) for at in asked]
    text, line = text_of(claim), claim.span.line if claim.span else 0
    worst: Judgement | None = None
    for verdict in ("VIOLATED", "UNKNOWN"):
        worst = worst or next((judgement for _, judgement in each if judgement.verdict == verdict), None)
    everywhere = tuple(values for values, _ in each)
    if worst is not None and worst.verdict == "VIOLATED":
        where = next(values for values, judgement in each if judgement is worst)
        return _result(claim, worst, (where,))
    if standing or not each:
        errors = ", ".join(f"{STANDING[code]} ({code})" for code in standing)
        reason = f"while this error stands, no property holds: {errors}" if errors else "nothing was explored"
        return PropertyResult(text, line, "UNKNOWN", reason, everywhere, claim=claim, standing=standing)
    if worst is not None:
        return _result(claim, worst, tuple(values for values, judgement in each if judgement.verdict == "UNKNOWN"))
    assumes = dict.fromkeys(sentence for _, judgement in each for sentence in judgement.assumes)
    result = _result(claim, each[0][1], everywhere)
    relied = {effect for _, judgement in each for effect in judgement.relies_on}
    machine = judged[0].machine
    relies_on = tuple(effect for effect in machine.effects_with_answers if effect in relied)
    unfailing = tuple(effect for effect in relies_on if effect not in machine.failures_handled)
    return attrs.evolve(result, assumes=tuple(assumes), relies_on=relies_on, unfailing=unfailing)


def relied_on(effects: Sequence[str], unfailing: Sequence[str]) -> str:
    """Write what a verdict relies on: `ocr, classify answer and do not fail`; `unfailing` are those of the effects that must not fail."""
    if not effects:
        return ""
    answer = f"{', '.join(effects)} {'answers' if len(effects) == 1 else 'answer'}"
    does = "does not fail" if len(unfailing) == 1 else "do not fail"
    if not unfailing:
        return answer
    return f"{answer} and {does}" if len(unfailing) == len(effects) else f"{answer}, and {', '.join(unfailing)} {does}"


def _result(claim: Property, judgement: Judgement, values: tuple[tuple[tuple[str, Value], ...], ...]) -> PropertyResult:
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
        judgement.passing,
        claim,
    )


def from_judged(machine: Machine, judged: Sequence[Judged]) -> tuple[Diagnostic, ...]:
    """Give a warning for each property that speaks of what never happens in any exploration."""
    found = []
    at = "; ".join(filter(None, (show_values(_values(each.machine)) for each in judged)))
    for number, claim in enumerate(machine.properties):
        judgements = [each.judgements[number] for each in judged]
        if all(judgement.verdict != "VIOLATED" for judgement in judgements):
            idle = [judgement.idle for judgement in judgements]
            found.append(vacuous(claim, text_of(claim), idle, f" (explored: {at})" if at else ""))
    return tuple(finding for finding in found if finding is not None)


def _values(machine: Machine) -> tuple[tuple[str, Value], ...]:
    return tuple(machine.constants.items())


def text_of(claim: Property) -> str:
    """Give a property as it stands in the document."""
    span = claim.span
    return " ".join(span.text[span.column - 1 : span.end - 1].split()) if span else show(claim.form)
