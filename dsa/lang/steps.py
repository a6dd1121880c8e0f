"""The Steps table: its rows as `WorkflowStep` values, and what they require of each other.

Takes records, gives steps with their retry bounds and the goal; `dsa.lang.expand` makes them a machine.
"""

import re

import attrs

from dsa.declarations import WorkflowStep
from dsa.expr import BooleanDomain, Expr, Integer, Name, RangeDomain, names
from dsa.lang import cells, typed
from dsa.lang.columns import Record, declaring
from dsa.lang.exprs import NAME, Parser
from dsa.lang.findings import Findings
from dsa.lang.markdown import Cell
from dsa.uses import DEFAULT_GENERATOR, FEEDBACK, SPECIFICATION
from dsa.words import closest

DEFAULT_RMAX = 3
ANY_COUNT = RangeDomain(Integer(0), None)
_OWN_PLACEHOLDERS = (SPECIFICATION, FEEDBACK)
_NAMES_ONLY = re.compile(r"[\w\s.,`]*")


@attrs.frozen
class Steps:
    """All steps in table order, each step's retry bound, and the goal (None: every step that is not optional)."""

    steps: tuple[WorkflowStep, ...]
    rmax: dict[str, int]
    goal: Expr | None


def read_steps(records: list[Record], goal: Cell | None, with_cases: frozenset[str], findings: Findings) -> Steps:
    """Read the Steps table and the line `Goal: EXPRESSION`. `with_cases` are the names that have a Cases section."""
    named = _named(records, findings)
    step_names = [name.name for name, _ in named]
    steps, rmax = [], {}
    for name, record in named:
        steps.append(_step(name, record, step_names, with_cases, findings))
        rmax[name.name] = DEFAULT_RMAX if (bound := cells.whole_number(record["rmax"], findings)) is None else bound
    plan = Steps(tuple(steps), rmax, None if goal is None else _goal(goal, step_names, findings))
    for name, record in named:
        _require_made_before(name.name, record, plan, findings)
    return plan


def _named(records: list[Record], findings: Findings) -> list[tuple[cells.Written, Record]]:
    """Give the rows whose step has a name of its own, which no dot splits: dots nest the states made of it."""
    found: dict[str, tuple[cells.Written, Record]] = {}
    for record in declaring(records, findings):
        name = cells.declared_name(record["step"], "a step", findings)
        if name is None:
            continue
        if "." in name.name:
            findings.error("DSA203", f"'{name.name}' cannot name a step", name.span, "a step's name has no dots")
        elif name.name in found:
            first = found[name.name][0].span.line
            message = f"'{name.name}' is already a step (line {first})"
            findings.error("DSA202", message, name.span, "names are unique over the whole document")
        else:
            found[name.name] = (name, record)
    return list(found.values())


def _step(
    name: cells.Written, record: Record, step_names: list[str], with_cases: frozenset[str], findings: Findings
) -> WorkflowStep:
    guards = tuple(part.name for part in cells.name_list(record["guard"], "a guard", findings))
    if not guards and name.name in with_cases:
        guards = ("cases",)
    if not guards and not record["guard"].text:
        hint = f"name one, or write a section '## Cases: {name.name}'"
        findings.error("DSA106", f"step {name.name} has no guard", record["guard"].span(), hint)
    generators = cells.name_list(record["generator"], "a generator", findings)
    if len(generators) > 1:
        findings.error("DSA107", "a step has one generator", generators[1].span, "write one name")
    uses = _uses(name.name, record["uses"], step_names, findings)
    return WorkflowStep(
        name.name,
        generators[0].name if generators else DEFAULT_GENERATOR,
        guards,
        _requires(name.name, record["requires"], step_names, findings),
        uses,
        record["task"].plain,
        cells.one_of(record["optional"], ("yes", "no"), "no", findings) == "yes",
        span=name.span,
    )


def _requires(step: str, cell: Cell, step_names: list[str], findings: Findings) -> tuple[str, ...] | Expr:
    """Read a list of steps, or an expression over them."""
    before = findings.count
    found = _required(step, cell, step_names, findings)
    if findings.count > before:
        findings.doubt(step)  # what it may use follows from what it requires
    return found


def _required(step: str, cell: Cell, step_names: list[str], findings: Findings) -> tuple[str, ...] | Expr:
    words = cell.text.replace("`", " ").split()
    if _NAMES_ONLY.fullmatch(cell.text) and not {"and", "or", "not", "true", "false"} & set(words):
        listed = cells.name_list(cell, "a step", findings)
        for name in listed:
            _require_step(step, name, step_names, findings)
        return tuple(name.name for name in listed)
    expr = cells.parsed(cell, Parser.expression, findings, "DSA108")
    resolved = () if expr is None else _over_steps(expr, cell, step_names, findings, "a requirement")
    if isinstance(resolved, Name):
        return (resolved.name,)
    if not isinstance(resolved, tuple) and step in names(resolved):
        findings.error("DSA214", f"step {step} requires itself", cell.span())
    return resolved


def _require_step(step: str, name: cells.Written, step_names: list[str], findings: Findings) -> None:
    if name.name not in step_names:
        hint = closest(name.name, step_names)
        findings.error("DSA214", f"'{name.name}' is no step", name.span, hint, about=name.name)
    elif name.name == step:
        findings.error("DSA214", f"step {step} requires itself", name.span)


def _over_steps(expr: Expr, cell: Cell, step_names: list[str], findings: Findings, place: str) -> Expr:
    scope = typed.Scope(place, variables=dict.fromkeys(step_names, BooleanDomain()))
    return typed.Resolver(scope, findings, cell.span()).condition(expr)


def _goal(cell: Cell, step_names: list[str], findings: Findings) -> Expr | None:
    expr = cells.parsed(cell, Parser.expression, findings, "DSA108")
    return None if expr is None else _over_steps(expr, cell, step_names, findings, "the goal")


def _uses(step: str, cell: Cell, step_names: list[str], findings: Findings) -> tuple[tuple[str, str], ...]:
    before = findings.count
    uses = cells.pair_cells(cell, ";,", findings)
    for name, used in uses:
        if name in _OWN_PLACEHOLDERS:
            message = f"'{name}' means something else in prompts; use the artifact under another name"
            findings.error("DSA202", message, cell.span())
        if used.text not in step_names or used.text == step:
            hint = closest(used.text, [name for name in step_names if name != step])
            missed = "" if used.text == step else used.text
            findings.error("DSA214", f"'{used.text}' is no other step", used.span(), hint, about=missed)
    if findings.count > before:
        findings.doubt(" ".join({*NAME.findall(cell.text)} - {*step_names}))  # placeholders of these names are meant
    return tuple((name, used.text) for name, used in uses)


def is_chain(plan: Steps) -> bool:
    """Tell whether the steps can simply follow each other in table order."""
    seen: set[str] = set()
    for step in plan.steps:
        if not isinstance(step.requires, tuple) or not seen.issuperset(step.requires):
            return False
        seen |= set() if step.optional else {step.name}
    return plan.goal is None


def _require_made_before(name: str, record: Record, plan: Steps, findings: Findings) -> None:
    """Report the uses of a step that may not have passed when this one starts, where that can be told."""
    passed = _passed_before(name, plan)
    known = {step.name for step in plan.steps} - {name}
    for _, used in cells.pair_cells(record["uses"], ";,", Findings()):
        if passed is not None and used.text in known - passed:
            hint = f"put {used.text} into the column requires" + ("" if is_chain(plan) else ", as a list")
            message = f"step {name} uses what {used.text} made, but {used.text} may not have passed by then"
            findings.error("DSA214", message, used.span(), hint, about=name)


def _passed_before(name: str, plan: Steps) -> set[str] | None:
    """Give the steps that have surely passed when a step starts; None when a requirement is no list."""
    if is_chain(plan):
        order = [step.name for step in plan.steps]
        return {step.name for step in plan.steps[: order.index(name)] if not step.optional}
    required = {step.name: step.requires for step in plan.steps}
    found: set[str] = set()
    todo = [name]
    while todo:
        needs = required.get(todo.pop(), ())
        if not isinstance(needs, tuple):
            return None
        todo += [need for need in needs if need not in found]
        found |= set(needs)
    return found
