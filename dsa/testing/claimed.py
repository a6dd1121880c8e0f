"""Hypothesis strategies for what a document says beside its rows: properties, scenarios, cases, prompts.

Takes a drawn machine and its vocabulary; what is drawn is well formed and well typed, and mostly not true.
"""

from collections.abc import Callable

from hypothesis import strategies as st

from dsa import claims
from dsa.declarations import Cancel, Case, Cases, Emit, Prompt
from dsa.expr import Expr, concrete
from dsa.machine import Machine
from dsa.testing.declared import Skeleton, values_in
from dsa.testing.expressions import Vocabulary, chosen, condition, label, number, one_in

CASES = (
    Case("add(2, 3)", "5"),
    Case('join("a|b", sep="`")', "'a|b'"),
    Case("f([1, 2], {'k': None})", "{'k': [True, None]}"),
)
TEXTS = (
    "Write a function for {specification}.",
    "Two lines,\n\nand {{braces}}.",
    "```python\ndef f():\n    return 1\n```",
    "| a | b |\n## not a heading",
)


def items(draw: st.DrawFn, machine: Machine, most: int) -> tuple[Emit | Cancel, ...]:
    """Draw an effects cell."""
    return tuple(_item(draw, machine) for _ in range(draw(st.integers(0, most))))


def _item(draw: st.DrawFn, machine: Machine) -> Emit | Cancel:
    if not machine.effects:
        return Cancel()
    effect = chosen(draw, machine.effects).name
    several: tuple[Emit | Cancel, ...] = (Emit(effect), Emit(effect), Emit(effect), Cancel(effect), Cancel())
    return chosen(draw, several)


def claim(draw: st.DrawFn, skeleton: Skeleton) -> claims.Property:
    """Draw a property of any form."""
    moments = skeleton.moments()
    form = draw(st.integers(0, 9))
    if form in _CONDITIONS:
        return claims.Property(_CONDITIONS[form](condition(draw, moments)))
    p, q = condition(draw, moments), condition(draw, moments)
    match form:
        case 4:
            return claims.Property(claims.OnlyAfter(p, q))
        case 5:
            return claims.Property(claims.Probability(p, chosen(draw, (0.01, 0.5, 0.99, 1.0))))
        case 6:
            return claims.Property(claims.Expected(label(draw, moments), chosen(draw, (0.5, 2.0, 12.25))))
        case 7:
            lasting = (condition(draw, skeleton.vocabulary), number(draw, skeleton.vocabulary))
            return claims.Property(claims.Unchanged(p, lasting[: draw(st.integers(1, 2))]))
        case 8:
            machine = skeleton.machine
            names = [event.name for event in machine.events] + [effect.name for effect in machine.effects]
            return claims.Property(claims.LeadsTo(p, q, tuple(name for name in names if one_in(draw, 5))))
        case _:
            limits = Vocabulary(numbers=tuple(name for name in skeleton.vocabulary.numbers if name.kind == "parameter"))
            return claims.Property(
                claims.AtMost(number(draw, limits), label(draw, moments), chosen(draw, (None, (p, q))))
            )


_CONDITIONS: dict[int, Callable[[Expr], claims.Form]] = {
    0: claims.Always, 1: claims.Never, 2: claims.Possible, 3: claims.EverywherePossible,
}  # fmt: skip


def scenario(draw: st.DrawFn, machine: Machine, name: str) -> claims.Scenario:
    """Draw a scenario over the events and timers of a machine with rows."""
    domains = {parameter.name: parameter.domain for parameter in machine.parameters if draw(st.booleans())}
    given = {named: draw(values_in(concrete(domain, {}))) for named, domain in domains.items()}
    there = machine.at(given)
    events = [*machine.event_named, *(row.event for row in machine.transitions if row.is_timer)]
    steps = tuple(_percept(draw, there, chosen(draw, events)) for _ in range(draw(st.integers(1, 4))))
    return claims.Scenario(name, steps, tuple(given.items()))


def _percept(draw: st.DrawFn, machine: Machine, event: str) -> claims.ScenarioStep:
    judging = [guard for guard in machine.guards if event in guard.judges]
    verdicts = [(guard.name, chosen(draw, guard.outcomes)) for guard in judging if draw(st.booleans())]
    action: tuple[Emit | Cancel, ...] | claims.Refused = items(draw, machine, 2)
    if draw(st.integers(0, 3)) == 0:
        action = claims.Refused(chosen(draw, (None, "late", "invalid_state")))
    compared = [variable.name for variable in machine.variables if draw(st.booleans())]
    values = tuple((name, draw(values_in(machine.values_of[name]))) for name in compared)
    state = chosen(draw, [None, *(state.name for state in machine.states)])
    return claims.ScenarioStep(event, tuple(sorted(verdicts)), action, state, values)


def cases(draw: st.DrawFn, machine: Machine) -> tuple[Cases, ...]:
    """Draw cases for some of the guards."""
    return tuple(
        Cases(guard.name, tuple(draw(st.lists(st.sampled_from(CASES), min_size=1, max_size=2))))
        for guard in machine.guards
        if draw(st.booleans())
    )


def prompts(draw: st.DrawFn, machine: Machine) -> tuple[Prompt, ...]:
    """Draw prompts for some of the effects; a part that is not there is empty."""
    part = st.sampled_from(("", *TEXTS))
    return tuple(
        Prompt(effect.name, draw(part), draw(part), draw(st.sampled_from(TEXTS)), draw(part))
        for effect in machine.effects
        if draw(st.integers(0, 2)) == 0
    )
