"""Hypothesis strategies for machines, configurations and occurrences.

Gives random machines that are valid documents (every name declared, every type right) and otherwise anything: rows that
overlap, updates that leave their domain, effects emitted twice, answers nobody handles. For tests of whatever claims
to hold for every machine. Documents with Steps are not drawn. Properties, scenarios, cases and prompts are well formed and well typed, and
mostly not true.
"""

from collections.abc import Callable
from typing import Any

import attrs
from hypothesis import strategies as st

from dsa import claims
from dsa.declarations import STAR, STAY, Cancel, Case, Cases, Emit, Prompt, Transition
from dsa.expr import OUTCOMES, Expr, concrete
from dsa.machine import Machine, read_guards
from dsa.meaning import Configuration, Occurrence
from dsa.testing.declared import Skeleton, skeletons, values_in
from dsa.testing.expressions import Vocabulary, chosen, condition, label, number, one_in
from dsa.timers import Timer, precedence_at_start

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
            return claims.Property(claims.Probability(p, chosen(draw, (0.01, 0.5, 0.99, 1.0)), draw(st.booleans())))
        case 6:
            return claims.Property(claims.Expected(label(draw, moments), chosen(draw, (0.5, 2.0, 12.25))))
        case 7:
            lasting = (condition(draw, skeleton.vocabulary), number(draw, skeleton.vocabulary))
            return claims.Property(claims.Unchanged(p, lasting[: draw(st.integers(1, 2))]))
        case 8:
            return claims.Property(leads_to(draw, skeleton.machine, p, q))
        case _:
            limits = Vocabulary(numbers=tuple(name for name in skeleton.vocabulary.numbers if name.kind == "parameter"))
            bound, counted = number(draw, limits), label(draw, moments)
            return claims.Property(claims.AtMost(bound, counted, chosen(draw, (None, (p, q)))))


_CONDITIONS: dict[int, Callable[[Expr], claims.Form]] = {
    0: claims.Always, 1: claims.Never, 2: claims.Possible, 3: claims.EverywherePossible,
}  # fmt: skip


def leads_to(draw: st.DrawFn, machine: Machine, cause: Expr, goal: Expr) -> claims.LeadsTo:
    """Draw the fairness that a `leads to` assumes, and what it does without."""
    names = [event.name for event in machine.events] + [effect.name for effect in machine.effects]
    names += [f"{guard.name}.{outcome}" for guard in machine.guards for outcome in guard.outcomes if one_in(draw, 3)]
    fair = tuple(name for name in names if one_in(draw, 5))
    doubts = tuple(
        claims.Doubt(
            effect.name, "never answers" if effect.name in machine.answers and draw(st.booleans()) else "fails"
        )
        for effect in machine.effects
        if one_in(draw, 5)
    )
    return claims.LeadsTo(cause, goal, fair, bool(fair) and one_in(draw, 3), doubts)


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


@st.composite
def machines(draw: st.DrawFn, *, claims: bool = True) -> Machine:
    """Draw a machine; with `claims` it has properties, scenarios, cases, prompts and constraints too."""
    skeleton = draw(skeletons())
    rows = tuple(drawn_row(draw, skeleton) for _ in range(draw(st.integers(1, 12))))
    machine = with_end(draw, attrs.evolve(skeleton.machine, transitions=rows), skeleton)
    if not claims:
        return machine
    return attrs.evolve(
        machine,
        properties=tuple(claim(draw, skeleton) for _ in range(draw(st.integers(0, 3)))),
        scenarios=tuple(scenario(draw, machine, name) for name in ("refinement loop", "2")[: draw(st.integers(0, 2))]),
        cases=cases(draw, machine),
        prompts=prompts(draw, machine),
        constraints=draw(st.sampled_from(("", "Write plain Python.", "No network.\n\nNo files."))),
    )


def with_end(draw: st.DrawFn, machine: Machine, skeleton: Skeleton) -> Machine:
    """Let a run be finished in one of the leaves that are not final, of one machine in three."""
    if not one_in(draw, 3):
        return machine
    leaf = chosen(draw, [leaf for leaf in machine.leaves if leaf not in machine.final_states])
    end = condition(draw, skeleton.vocabulary)
    states = (attrs.evolve(state, end=end) if state.name == leaf else state for state in machine.states)
    return attrs.evolve(machine, states=tuple(states))


def drawn_row(draw: st.DrawFn, skeleton: Skeleton) -> Transition:
    """Draw a row of a machine, well typed and otherwise anything."""
    machine = skeleton.machine
    event = chosen(draw, [*machine.event_named, "after 30s", "after 250ms", "after 2m"])
    sources = [state.name for state in machine.states if state.kind != "final"]
    judged = tuple((guard.name, said) for guard in machine.guards if event in guard.judges for said in guard.outcomes)
    row = Transition(
        chosen(draw, [*sources, *sources, STAR]),
        event,
        chosen(draw, [*(state.name for state in machine.states), STAY]),
        is_else=one_in(draw, 5),
        updates=skeleton.updates(draw),
        effects=items(draw, machine, 3),
    )
    if draw(st.booleans()):
        return row
    return attrs.evolve(row, condition=condition(draw, skeleton.vocabulary.judged_by(judged)))


def configurations(machine: Machine) -> st.SearchStrategy[Configuration]:
    """Draw any configuration: any leaf, any value of each domain, any of the effects that have answers outstanding, any order of its timers."""
    values = st.tuples(*(values_in(machine.values_of[variable.name]) for variable in machine.variables))
    answered = sorted(machine.answers)
    outstanding = st.frozensets(st.sampled_from(answered)) if answered else st.just(frozenset[str]())

    def at(leaf: str) -> st.SearchStrategy[Configuration]:
        pairs = sorted(precedence_at_start(machine, leaf))
        precedence = st.frozensets(st.sampled_from(pairs)) if pairs else st.just(frozenset[tuple[Timer, Timer]]())
        return st.builds(Configuration, st.just(leaf), values, outstanding, precedence)

    return st.sampled_from(machine.leaves).flatmap(at)


def occurrences(
    machine: Machine, at: Configuration | None = None, *, malformed: bool = True
) -> st.SearchStrategy[Occurrence]:
    """Draw an occurrence, mostly with exactly the verdicts that some rows read; the machine must have rows.

    Given `at`, most are for rows of that configuration's state and their verdicts are those read there. One in twelve is
    malformed (`step` raises OccurrenceError, or, where nothing is checked any more, refuses), unless `malformed` is False.
    """
    return _occurrences(machine, at, malformed)


@st.composite
def _occurrences(draw: st.DrawFn, machine: Machine, at: Configuration | None, malformed: bool) -> Occurrence:  # noqa: FBT001  (behind a keyword)
    keys = list(machine.rows_from)
    if at is not None and not one_in(draw, 10):
        sources = set(machine.ancestry(at.state))
        keys = [key for key in keys if key[0] in sources] or keys
    source, event = chosen(draw, keys)
    rows = machine.rows_from[source, event]
    is_timer = rows[0].is_timer
    if at is not None and not is_timer:
        rows = machine.rows_for(at.state, event)
    verdicts = {guard: chosen(draw, machine.guard_named[guard].outcomes) for guard in read_guards(rows)}
    occurrence = Occurrence(event, verdicts, source if is_timer else None)
    return _spoilt(draw, machine, occurrence) if malformed and one_in(draw, 12) else occurrence


def _spoilt(draw: st.DrawFn, machine: Machine, occurrence: Occurrence) -> Occurrence:
    guards = [*(guard.name for guard in machine.guards), "no_guard"]
    said: tuple[Any, ...] = (*OUTCOMES, "maybe")  # no outcome is called that, on purpose
    other = {guard: chosen(draw, said) for guard in guards if draw(st.booleans())}
    spoilt = (
        attrs.evolve(occurrence, verdicts=other),
        attrs.evolve(occurrence, event="no_event", source=None),
        attrs.evolve(occurrence, source=None if occurrence.source else machine.initial),
        Occurrence("after 7d", source=machine.initial),
    )
    return chosen(draw, spoilt)
