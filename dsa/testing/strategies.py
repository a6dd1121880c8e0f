"""Hypothesis strategies for machines, configurations and occurrences.

Gives random machines that are valid documents (every name declared, every type right) and otherwise anything: rows that
overlap, updates that leave their domain, effects emitted twice, answers nobody handles. For tests of whatever claims
to hold for every machine. Documents with Steps are not drawn.
"""

from typing import Any

import attrs
from hypothesis import strategies as st

from dsa.declarations import STAR, STAY, Transition
from dsa.expr import OUTCOMES
from dsa.machine import Machine, read_guards
from dsa.meaning import Configuration, Occurrence
from dsa.testing import claimed
from dsa.testing.declared import Skeleton, skeletons, values_in
from dsa.testing.expressions import chosen, condition, one_in


@st.composite
def machines(draw: st.DrawFn, *, claims: bool = True) -> Machine:
    """Draw a machine; with `claims` it has properties, scenarios, cases, prompts and constraints too."""
    skeleton = draw(skeletons())
    rows = tuple(_row(draw, skeleton) for _ in range(draw(st.integers(1, 12))))
    machine = attrs.evolve(skeleton.machine, transitions=rows)
    if not claims:
        return machine
    return attrs.evolve(
        machine,
        properties=tuple(claimed.claim(draw, skeleton) for _ in range(draw(st.integers(0, 3)))),
        scenarios=tuple(
            claimed.scenario(draw, machine, name) for name in ("refinement loop", "2")[: draw(st.integers(0, 2))]
        ),
        cases=claimed.cases(draw, machine),
        prompts=claimed.prompts(draw, machine),
        constraints=draw(st.sampled_from(("", "Write plain Python.", "No network.\n\nNo files."))),
    )


def _row(draw: st.DrawFn, skeleton: Skeleton) -> Transition:
    machine = skeleton.machine
    event = chosen(draw, [*machine.event_named, "after 30s", "after 250ms"])
    sources = [state.name for state in machine.states if state.kind != "final"]
    judged = tuple((guard.name, said) for guard in machine.guards if event in guard.judges for said in guard.outcomes)
    row = Transition(
        chosen(draw, [*sources, *sources, STAR]),
        event,
        chosen(draw, [*(state.name for state in machine.states), STAY]),
        is_else=one_in(draw, 5),
        updates=skeleton.updates(draw),
        effects=claimed.items(draw, machine, 3),
    )
    if draw(st.booleans()):
        return row
    return attrs.evolve(row, condition=condition(draw, skeleton.vocabulary.judged_by(judged)))


def configurations(machine: Machine) -> st.SearchStrategy[Configuration]:
    """Draw any configuration: any leaf, any value of each domain, any of the effects that have answers outstanding."""
    values = st.tuples(*(values_in(machine.values_of[variable.name]) for variable in machine.variables))
    answered = sorted(machine.answers)
    outstanding = st.frozensets(st.sampled_from(answered)) if answered else st.just(frozenset[str]())
    return st.builds(Configuration, st.sampled_from(machine.leaves), values, outstanding)


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
