"""Machines built in Python, for tests of what comes after the language: no text, so no spans.

The dual-state agent of the paper, Die Hard's jugs (Lamport's exercise), two-phase commit (Gray and Lamport, "Consensus on
Transaction Commit"), and a table of any length.
"""

from collections.abc import Iterable

from dsa.declarations import Assign, Cancel, Effect, Emit, Event, Guard, RunParameter, State, Transition, Variable
from dsa.errors import Span
from dsa.expr import (
    TRUE,
    And,
    Arithmetic,
    Boolean,
    BooleanDomain,
    Compare,
    EnumDomain,
    Expr,
    Integer,
    Name,
    Outcome,
    RangeDomain,
    Symbol,
    Value,
    Verdict,
    conjunction,
)
from dsa.machine import Machine

FALSE = Boolean(value=False)
COLUMNS = ("source", "event", "if", "update", "effects", "target")


def constant(value: Value) -> Expr:
    if isinstance(value, bool):
        return Boolean(value)
    return Integer(value) if isinstance(value, int) else Symbol(value)


def var(name: str) -> Name:
    return Name(name, "variable")


def compare(left: str | Expr, sign: str, right: str | Value | Expr) -> Compare:
    """`compare("retries", "<", var("rmax"))`; a text on the left is a variable, a value on the right a constant."""
    return Compare(
        var(left) if isinstance(left, str) else left,
        ((sign, constant(right) if isinstance(right, bool | int | str) else right),),
    )


def assign(variable: str, value: Value | Expr) -> Assign:
    return Assign(variable, constant(value) if isinstance(value, bool | int | str) else value)


def add(variable: str, amount: int) -> Assign:
    return Assign(variable, Arithmetic("+", var(variable), Integer(amount)))


def emits(*names: str) -> tuple[Emit | Cancel, ...]:
    """Write effects as a cell has them: `query_llm`, `cancel query_llm`, `cancel`."""
    return tuple(
        Cancel(name.removeprefix("cancel").strip() or None) if name.split()[0] == "cancel" else Emit(name)
        for name in names
    )


def ranged(low: int, high: int | str | None) -> RangeDomain:
    upper = Name(high, "parameter") if isinstance(high, str) else None if high is None else Integer(high)
    return RangeDomain(Integer(low), upper)


def passed(guard: str = "g") -> Verdict:
    return Verdict(guard, "passed")


def failed(guard: str = "g") -> Verdict:
    return Verdict(guard, "failed")


def fatal(guard: str = "g") -> Verdict:
    return Verdict(guard, "fatal")


def placed(rows: Iterable[Transition], first_line: int = 40) -> tuple[Transition, ...]:
    """Return the rows places as a table has them: one line each, one span for each column, 10 columns wide."""
    found = []
    for line, row in enumerate(rows, first_line):
        text = str(row)
        spans = tuple(
            (column, Span("m.md", line, 3 + 10 * place, 12 + 10 * place, text)) for place, column in enumerate(COLUMNS)
        )
        found.append(
            Transition(
                row.source, row.event, row.target, row.condition, row.is_else, row.updates, row.effects,
                span=Span("m.md", line, 1, 70, text), spans=spans,
            )
        )  # fmt: skip
    return tuple(found)


DUAL_STATE_ROWS: dict[str, Transition] = {
    "begin": Transition("idle", "specification", "generating", effects=emits("query_llm")),
    "judge": Transition("generating", "artifact", "validating", effects=emits("execute_guard")),
    "pass": Transition(
        "validating", "verdict", "succeeded", passed(),
        updates=(assign("satisfied", TRUE), assign("retries", 0)), effects=emits("advance_state", "reply_to_user"),
    ),
    "refine": Transition(
        "validating", "verdict", "generating", And((failed(), compare("retries", "<", Name("rmax", "parameter")))),
        updates=(add("retries", 1),), effects=emits("refine_context", "query_llm"),
    ),
    "escalate": Transition("validating", "verdict", "escalated", fatal(), effects=emits("escalate_to_user")),
    "exhaust": Transition(
        "validating", "verdict", "failed", TRUE, is_else=True, effects=emits("refine_context", "reply_failure")
    ),
}  # fmt: skip


def states(initial: str, others: Iterable[str] = (), final: Iterable[str] = ()) -> tuple[State, ...]:
    """Declare states from line 20 on."""
    named = [(initial, "initial"), *((name, "") for name in others), *((name, "final") for name in final)]
    return tuple(
        State(name, kind, span=Span("m.md", line, 3, 3 + len(name), f"| {name} |"))
        for line, (name, kind) in enumerate(named, 20)
    )


def dual_state(
    rmax: int = 3, guards: tuple[Outcome, ...] = ("passed", "failed", "fatal"), **rows: Transition | None
) -> Machine:
    """The dual-state agent; a keyword replaces the row of that name, None deletes it, another name adds one."""
    wanted = (row for row in (DUAL_STATE_ROWS | rows).values() if row is not None)
    return Machine(
        "dual_state",
        placed(wanted),
        states("idle", ("generating", "validating"), ("succeeded", "failed", "escalated")),
        "idle",
        parameters=(RunParameter("rmax", ranged(0, None), rmax),),
        variables=(
            Variable("satisfied", "workflow", BooleanDomain(), FALSE),
            Variable("retries", "environment", ranged(0, "rmax"), Integer(0)),
        ),
        events=(Event("specification"), Event("artifact", "query_llm"), Event("verdict", "execute_guard")),
        guards=(Guard("g", ("verdict",), outcomes=guards),),
    )


def jugs() -> Machine:
    """A jug of 3 and one of 5 gallons: fill, empty, pour. 16 configurations."""
    small, big = var("small"), var("big")
    total = Arithmetic("+", small, big)
    rows = [
        ("fill_small", TRUE, (assign("small", 3),)),
        ("fill_big", TRUE, (assign("big", 5),)),
        ("empty_small", TRUE, (assign("small", 0),)),
        ("empty_big", TRUE, (assign("big", 0),)),
        ("pour_into_big", compare(total, "<=", 5), (assign("small", 0), assign("big", total))),
        (
            "pour_into_big",
            compare(total, ">", 5),
            (assign("small", Arithmetic("-", total, Integer(5))), assign("big", 5)),
        ),
        ("pour_into_small", compare(total, "<=", 3), (assign("small", total), assign("big", 0))),
        (
            "pour_into_small",
            compare(total, ">", 3),
            (assign("small", 3), assign("big", Arithmetic("-", total, Integer(3)))),
        ),
    ]
    return Machine(
        "jugs",
        placed(Transition("pouring", event, "=", condition, updates=updates) for event, condition, updates in rows),
        states("pouring"),
        "pouring",
        variables=(
            Variable("small", "environment", ranged(0, 3), Integer(0)),
            Variable("big", "environment", ranged(0, 5), Integer(0)),
        ),
        events=tuple(Event(name) for name in dict.fromkeys(event for event, _, _ in rows)),
    )


def two_phase_commit(count: int = 3) -> Machine:
    """`count` resource managers and a coordinator, all events from outside. 288 configurations at 3."""
    numbers = range(1, count + 1)
    rows: list[Transition] = []
    for i in numbers:
        working = compare(f"rm_{i}", "==", "working")
        rows += [
            Transition(
                "*", f"prepare_{i}", "=", working, updates=(assign(f"rm_{i}", "prepared"), assign(f"sent_{i}", TRUE))
            ),
            Transition("*", f"refuse_{i}", "=", working, updates=(assign(f"rm_{i}", "aborted"),)),
            Transition("deciding", f"see_{i}", "=", var(f"sent_{i}"), updates=(assign(f"seen_{i}", TRUE),)),
            Transition("commit_sent", f"hear_{i}", "=", updates=(assign(f"rm_{i}", "committed"),)),
            Transition("abort_sent", f"hear_{i}", "=", updates=(assign(f"rm_{i}", "aborted"),)),
        ]
    rows.append(Transition("deciding", "commit", "commit_sent", conjunction([var(f"seen_{i}") for i in numbers])))
    rows.append(Transition("deciding", "abort", "abort_sent"))
    domain = EnumDomain(("working", "prepared", "committed", "aborted"))
    variables: list[Variable] = []
    for i in numbers:
        variables.append(Variable(f"rm_{i}", "environment", domain, Symbol("working")))
        variables += [Variable(f"{name}_{i}", "environment", BooleanDomain(), FALSE) for name in ("sent", "seen")]
    return Machine(
        "two_phase_commit",
        placed(rows),
        states("deciding", ("commit_sent", "abort_sent")),
        "deciding",
        variables=tuple(variables),
        events=tuple(Event(name) for name in dict.fromkeys(row.event for row in rows)),
    )


def chain(length: int) -> Machine:
    """A table of `length` rows: a step, then a verdict with three rows, over and over; for measuring."""
    count = max(1, (length - 1) // 4)
    rows: list[Transition] = []
    for i in range(count):
        after = f"make_{i + 1}" if i + 1 < count else "done"
        rows += [
            Transition(f"make_{i}", "artifact", f"check_{i}", effects=emits("execute_guard")),
            Transition(f"check_{i}", "verdict", after, passed(), updates=(assign("retries", 0),), effects=emits("query_llm") if after != "done" else ()),
            Transition(f"check_{i}", "verdict", f"make_{i}", And((failed(), compare("retries", "<", 3))), updates=(add("retries", 1),), effects=emits("query_llm")),
            Transition(f"check_{i}", "verdict", "failed", TRUE, is_else=True),
        ]  # fmt: skip
    rows.insert(0, Transition("idle", "specification", "make_0", effects=emits("query_llm")))
    return Machine(
        "chain",
        placed(rows),
        states("idle", [f"{name}_{i}" for i in range(count) for name in ("make", "check")], ("done", "failed")),
        "idle",
        variables=(Variable("retries", "environment", ranged(0, 3), Integer(0)),),
        events=(Event("specification"), Event("artifact", "query_llm"), Event("verdict", "execute_guard")),
        effects=(Effect("query_llm"), Effect("execute_guard")),
        guards=(Guard("g", ("verdict",)),),
    )
