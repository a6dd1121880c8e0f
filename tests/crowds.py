"""Crowds: random machines in which several emissions of one effect are outstanding, for most of them at many configurations.

The machines of `dsa.testing.strategies` can be anything, and few of them get far. These have names of their own, rows for most events, conditions on
`pending`, and rows that emit an effect twice.
"""

import attrs
from hypothesis import strategies as st

from dsa.declarations import (
    OUTSIDE,
    Assign,
    Cancel,
    Effect,
    Emit,
    Event,
    Guard,
    Revoke,
    RunParameter,
    State,
    Transition,
    Variable,
)
from dsa.expr import (
    TRUE,
    And,
    Arithmetic,
    Boolean,
    BooleanDomain,
    Compare,
    Count,
    Integer,
    Name,
    Not,
    RangeDomain,
    Verdict,
)
from dsa.machine import Machine
from dsa.testing.strategies import Skeleton, Vocabulary, claim, one_in, pick

SIZE, COUNT, FLAG, FOUND = (
    Name("size", "parameter"), Name("count", "variable"), Name("flag", "variable"), Name("found", "variable"),
)  # fmt: skip
_MORE = Arithmetic("+", SIZE, Integer(1))
_ITEMS = (
    Emit("look"), Emit("look"), Emit("look"), Emit("ask"), Emit("ask"), Emit("tell"), Cancel("look"), Cancel("ask"), Cancel(),
)  # fmt: skip
_VOCABULARY = Vocabulary((SIZE, COUNT), (FLAG, FOUND))


@st.composite
def crowded_machines(draw: st.DrawFn, *, claims: int = 0) -> Machine:
    """Draw a machine with `claims` properties."""
    machine = Machine(
        "crowd",
        (),
        (State("idle", "initial"), State("busy"), State("busy.early", "initial"), State("busy.late"), State("over", "final")),
        "idle",
        parameters=(RunParameter("size", RangeDomain(Integer(0), Integer(3)), draw(st.integers(0, 2))),),
        variables=(
            Variable("count", "environment", RangeDomain(Integer(0), pick(draw, (_MORE, Integer(2)))), Integer(0)),
            Variable("flag", "environment", BooleanDomain(), Boolean(value=False)),
            Variable("found", "workflow", BooleanDomain(), Boolean(value=False)),
        ),
        events=(
            Event("go", OUTSIDE), Event("stop", OUTSIDE), Event("seen", "look"), Event("missing", "look"), Event("told", "ask"),
        ),
        effects=(
            Effect("look", at_once=pick(draw, (_MORE, Integer(2), Integer(3), _MORE))),
            Effect("ask", at_once=pick(draw, (None, Integer(2), _MORE)), on_failure=pick(draw, ("", "stop"))),
            Effect("tell"),
        ),
        guards=(Guard("good", ("seen",), outcomes=("passed", "failed")),),
    )  # fmt: skip
    machine = attrs.evolve(machine, transitions=tuple(_rows(draw)))
    skeleton = Skeleton(machine, _VOCABULARY)
    return attrs.evolve(machine, properties=tuple(claim(draw, skeleton) for _ in range(claims)))


def _rows(draw: st.DrawFn):
    """Yield the rows: for most events of most sources one, or one with a condition and one with `else`."""
    events = ("go", "seen", "missing", "told", "stop", "look.failed", "ask.failed", "after 30s", "after 2m")
    for source in ("*", "busy", "busy.late", "idle"):
        for event in events:
            is_seldom = event in events[5:] or source not in {"*", "idle"}
            if one_in(draw, 4) if is_seldom else not one_in(draw, 4):
                condition = _condition(draw, event) if draw(st.booleans()) else TRUE
                yield _row(draw, source, event, condition)
                if condition != TRUE and not one_in(draw, 4):
                    yield attrs.evolve(_row(draw, source, event, TRUE), is_else=not one_in(draw, 8))


def _row(draw: st.DrawFn, source: str, event: str, condition) -> Transition:
    updates = draw(st.integers(0, 8))
    step = Arithmetic(pick(draw, ("+", "-")), COUNT, Integer(1))
    several = {
        1: Assign("count", step),
        2: Assign("count", pick(draw, (Integer(0), Integer(1), _several(draw)))),
        3: Assign("flag", Not(FLAG)),
        4: Assign("flag", Boolean(value=True)),
        5: Assign("found", Boolean(value=True)),
        6: Revoke("found"),
    }
    targets = ("=", "=", "busy", "idle", "busy.late", "busy", "over")
    items = tuple(pick(draw, _ITEMS) for _ in range(draw(st.integers(0, 2))))
    items = tuple(item for item in items for _ in range(2 if item == Emit("look") and one_in(draw, 4) else 1))
    return Transition(
        source,
        event,
        pick(draw, targets),
        condition=condition,
        updates=(several[updates],) if updates in several else (),
        effects=items,
    )


def _several(draw: st.DrawFn):
    flags = [FLAG, FOUND, Compare(COUNT, (("<", SIZE),)), Not(FLAG)]
    return Count(tuple(flags[: draw(st.integers(1, 4))]))


def _condition(draw: st.DrawFn, event: str):
    names = [Name("look", "pending"), Name("ask", "pending"), Name("", "pending"), FLAG]
    atoms = [*names, *map(Not, names), Compare(COUNT, (("<", SIZE),)), Compare(COUNT, (("==", Integer(1)),))]
    several = Count((*draw(st.permutations(names)), Not(FOUND))[: draw(st.integers(1, 5))])
    atoms += [
        Compare(several, ((pick(draw, ("<", "<=", "==", "!=", ">=")), pick(draw, (Integer(1), Integer(2), COUNT))),))
    ] * 3
    atoms += [Verdict("good", "passed")] * 3 if event == "seen" else []
    first = pick(draw, atoms)
    return And((first, pick(draw, atoms))) if one_in(draw, 4) else first
