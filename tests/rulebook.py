"""The rulebook: what follows an occurrence, written anew from rules S2 to S7 and S11 of specs/semantics.md. Slow.

It shares declarations and syntax trees with the package, and nothing else: no fact that `dsa.machine` derives, no line of `dsa.semantics` but its classes of
values; `value` works out expressions anew. It answers like `step`, with a reason in place of a refusal, for occurrences that are well formed.
"""

import operator
from collections import Counter
from itertools import pairwise, product

from dsa import expr
from dsa.declarations import Assign, Cancel, Emit
from dsa.expr import BooleanDomain, RangeDomain, guards_read
from dsa.machine import Machine
from dsa.semantics import Configuration, Taken

Timer = tuple[str, str]


_SIGNS = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
    "+": operator.add, "-": operator.sub, "*": operator.mul,
}  # fmt: skip


def value(node: expr.Expr, known: dict):
    """What an expression is where names and verdicts are known: all its parts, then the whole (`Words` of the semantics)."""
    match node:
        case expr.Boolean(constant) | expr.Integer(constant) | expr.Symbol(constant):
            return constant
        case expr.Name(name, "pending"):
            return known[f"pending {name}".rstrip()]
        case expr.Name(name):
            return known[name]
        case expr.Verdict(guard, outcome):
            return known[guard] == outcome
        case expr.Not(operand):
            return not value(operand, known)
        case expr.Negate(operand):
            return 0 - value(operand, known)
        case expr.Arithmetic(sign, left, right):
            return _SIGNS[sign](value(left, known), value(right, known))
        case expr.Compare(first, rest):
            sides = [value(first, known), *(value(side, known) for _, side in rest)]
            pairs = zip(rest, pairwise(sides), strict=True)
            return False not in [_SIGNS[sign](*pair) for (sign, _), pair in pairs]
        case expr.Member(operand, choices):
            return value(operand, known) in [value(choice, known) for choice in choices]
        case expr.And(operands):
            return False not in [value(each, known) for each in operands]
        case expr.Or(operands):
            return True in [value(each, known) for each in operands]
        case expr.Count(operands):
            return [value(each, known) for each in operands].count(True)


def begin(machine: Machine) -> Configuration:
    """S1: the leaf of the initial state, initial values, nothing outstanding; all timers start together."""
    leaf = entered(machine, machine.initial)
    values = tuple(value(variable.initial, constants(machine)) for variable in machine.variables)
    armed = timers_at(machine, leaf)
    pairs = {(short, long) for short in armed for long in armed if length(machine, short) < length(machine, long)}
    return Configuration(leaf, values, (), frozenset(pairs))


def follow(machine: Machine, here: Configuration, occurrence) -> Taken | str:
    """S4: ask the questions in their order."""
    if kind(machine, here.state) == "final":
        return "finished"
    numbers, source = Counter(here.outstanding), occurrence.source
    answered = "outside" if source else asked_by(machine, occurrence.event)
    if source and (source, occurrence.event) not in timers_at(machine, here.state):
        return "late"
    if not source and answered != "outside" and numbers[answered] == 0:
        return "late"
    if any(then == (source, occurrence.event) for _, then in here.precedence):
        return "early"
    rows = rows_on(machine, here.state, occurrence.event, source)
    if answered != "outside":
        numbers[answered] -= 1  # S7, step 1
    known = known_at(machine, here.values) | dict(occurrence.verdicts) | pending(machine, numbers)
    plain = [row for row in rows if not row.is_else and value(row.condition, known)]
    enabled = plain or [row for row in rows if row.is_else and value(row.condition, known)]
    if len(enabled) != 1:
        return "ambiguous" if enabled else "invalid_state"
    (row,) = enabled
    values = updated(machine, row, here.values, known)
    if values is None:
        return "out_of_domain"
    leaf = here.state if row.target == "=" else entered(machine, row.target)
    after = numbers_after(machine, row, numbers, is_over=kind(machine, leaf) == "final")
    if after is None:
        return "emitted_twice"
    now, cancelled = after
    effects = tuple(item.effect for item in row.effects if isinstance(item, Emit))
    return Taken(
        Configuration(leaf, values, sorted(now.elements()), order_after(machine, here, row, leaf)),
        row,
        effects,
        tuple(sorted(cancelled)),
    )


def numbers_after(machine: Machine, row, older: Counter, *, is_over: bool) -> tuple[Counter, set[str]] | None:
    """S7, steps 2 and 3: the numbers, and the effects of which something older than the row was removed; None if too many."""
    answers = {event.origin for event in machine.events} - {"outside"}
    limits = {effect.name: effect.at_once for effect in machine.effects}
    total, old, cancelled = Counter(older), Counter(older), set[str]()
    for item in row.effects:
        if isinstance(item, Cancel):
            for name in [item.effect] if item.effect else sorted(answers):
                cancelled |= {name} if old[name] else set()
                total[name] = old[name] = 0
        elif item.effect in answers:
            limit = limits.get(item.effect)
            if total[item.effect] == (1 if limit is None else value(limit, constants(machine))):
                return None
            total[item.effect] += 1
    if is_over:
        return Counter(), cancelled | {name for name, number in old.items() if number}
    return total, cancelled


def pending(machine: Machine, numbers: Counter) -> dict:
    """S3: `pending E` and `pending`, once the answer has discharged its own."""
    answers = {event.origin for event in machine.events} - {"outside"}
    return {f"pending {name}": numbers[name] > 0 for name in answers} | {"pending": sum(numbers.values()) > 0}


def updated(machine: Machine, row, values: tuple, known: dict) -> tuple | None:
    """S5: the values after the updates; None if one is outside its domain."""
    after = []
    for variable, before in zip(machine.variables, values, strict=True):
        after_update = before
        for update in row.updates:
            if update.variable == variable.name:
                after_update = value(update.value if isinstance(update, Assign) else variable.initial, known)
        if isinstance(variable.domain, RangeDomain):
            low, high = (value(end, constants(machine)) for end in (variable.domain.low, variable.domain.high))
            if not low <= after_update <= high:
                return None
        elif after_update not in (
            (False, True) if isinstance(variable.domain, BooleanDomain) else variable.domain.values
        ):
            return None
        after.append(after_update)
    return tuple(after)


def order_after(machine: Machine, here: Configuration, row, leaf: str) -> frozenset:
    """S11: pairs without timers that were dropped or start anew, and new pairs before each timer that starts."""
    old, new = lineage(machine, here.state), lineage(machine, leaf)
    if row.target == "=":
        left = []
    elif leaf == here.state:
        left = [leaf]
    else:
        left = [state for state in old if state not in new]
    armed = timers_at(machine, leaf)
    fresh = {timer for timer in armed if timer[0] in left or timer[0] not in old}
    if row.event.startswith("after ") and row.source not in left:
        fresh |= {(row.source, row.event)} & armed
    kept = {pair for pair in here.precedence if not {*pair} & fresh and {*pair} <= armed}
    return frozenset(
        kept | {(short, long) for long in fresh for short in armed if length(machine, short) < length(machine, long)}
    )


def what_may_come(machine: Machine, here: Configuration):
    """Yield (event, source, rows) for everything that may come (S3, S7, S11)."""
    if kind(machine, here.state) == "final":
        return
    answers = {event.origin for event in machine.events} - {"outside"}
    failures = [
        f"{name}.failed" for name in answers if any(row.event == f"{name}.failed" for row in machine.transitions)
    ]
    for name in [*(event.name for event in machine.events), *failures]:
        origin, rows = asked_by(machine, name), rows_on(machine, here.state, name, None)
        if rows if origin == "outside" else origin in here.outstanding:
            yield name, None, rows
    behind = {then for _, then in here.precedence}
    for source, timer in sorted(timers_at(machine, here.state) - behind):
        yield timer, source, rows_on(machine, here.state, timer, source)


def verdicts_on(machine: Machine, rows):
    """Yield each combination of verdicts of the guards that rows read (S2)."""
    guards = sorted({guard for row in rows for guard in guards_read(row.condition)})
    said = {guard.name: guard.outcomes for guard in machine.guards}
    for outcomes in product(*(said[guard] for guard in guards)):
        yield tuple(zip(guards, outcomes, strict=True))


def constants(machine: Machine) -> dict:
    return {parameter.name: parameter.default for parameter in machine.parameters}


def known_at(machine: Machine, values: tuple) -> dict:
    return constants(machine) | {v.name: value for v, value in zip(machine.variables, values, strict=True)}


def kind(machine: Machine, state: str) -> str:
    return next(each.kind for each in machine.states if each.name == state)


def asked_by(machine: Machine, event: str) -> str:
    """The effect that an event answers, or `outside`."""
    origins = {each.name: each.origin for each in machine.events}
    return origins[event] if event in origins else event.removesuffix(".failed")


def entered(machine: Machine, target: str) -> str:
    while inside := [each for each in machine.states if each.name.rpartition(".")[0] == target]:
        target = next(each.name for each in inside if each.kind == "initial")
    return target


def lineage(machine: Machine, state: str) -> list[str]:
    """The sources of rows from the inside out; a final state has no `*`."""
    parts = state.split(".")
    above = [".".join(parts[:count]) for count in range(len(parts), 0, -1)]
    return above if kind(machine, state) == "final" else [*above, "*"]


def rows_on(machine: Machine, state: str, event: str, source: str | None) -> list:
    for origin in [source] if source else lineage(machine, state):
        if rows := [row for row in machine.transitions if (row.source, row.event) == (origin, event)]:
            return rows
    return []


def timers_at(machine: Machine, state: str) -> set[Timer]:
    if kind(machine, state) == "final":
        return set()
    there = lineage(machine, state)
    return {
        (row.source, row.event) for row in machine.transitions if row.event.startswith("after ") and row.source in there
    }


def length(machine: Machine, timer: Timer) -> int:
    return next(row.duration_ms for row in machine.transitions if (row.source, row.event) == timer)
