"""The Steps table: its reader, and its expansion into a machine.

`read_steps` returns the steps with their retry bounds, the goal and the result. `expand` returns what a Transitions document would declare (specs/table.md,
"Steps"). Steps run one at a time. If every requirement is a list of earlier steps that are not optional, they form a chain. Otherwise a state
`choosing` takes the first step that is ready, and the conditions are made exclusive (S3).
"""

import re
from collections.abc import Mapping

import attrs

from dsa.data_use import DEFAULT_GENERATOR, FEEDBACK, SPECIFICATION
from dsa.declarations import (
    Assign,
    Cancel,
    Emit,
    Event,
    Guard,
    Revoke,
    RunParameter,
    State,
    StepRow,
    Transition,
    Variable,
)
from dsa.errors import Span
from dsa.expr import (
    TRUE,
    Arithmetic,
    Boolean,
    BooleanDomain,
    Compare,
    Expr,
    Integer,
    Name,
    Not,
    Outcome,
    RangeDomain,
    Verdict,
    children,
    conjunction,
    names,
    with_children,
)
from dsa.lang import cells
from dsa.lang.cells import TableRecord, each_declaration
from dsa.lang.expression_parser import NAME, ExpressionParser, Findings
from dsa.lang.markdown import Cell
from dsa.lang.namespace import Resolver, Scope
from dsa.machine import Machine
from dsa.text import closest

DEFAULT_RMAX = 3
ANY_COUNT = RangeDomain(Integer(0), None)
_OWN_PLACEHOLDERS = (SPECIFICATION, FEEDBACK)
_NAMES_ONLY = re.compile(r"[\w\s.,`]*")


@attrs.frozen
class Steps:
    """All steps in table order, each step's retry bound, the goal (None: every step that is not optional), and the step that is the result (None: the last that has passed)."""

    steps: tuple[StepRow, ...]
    rmax: dict[str, int]
    goal: Expr | None
    result: str | None = None


@attrs.frozen
class StepLines:
    """The lines of a Steps document beside its table: `Goal: EXPRESSION` and `Result: STEP`, each None if missing."""

    goal: Cell | None
    result: Cell | None


def read_steps(records: list[TableRecord], lines: StepLines, with_cases: frozenset[str], findings: Findings) -> Steps:
    """Read the Steps table and the lines beside it. `with_cases` are the names that have a Cases section."""
    rows = _named_rows(records, findings)
    step_names = [name.name for name, _ in rows]
    steps, rmax = [], {}
    for name, record in rows:
        steps.append(_step(name, record, step_names, with_cases, findings))
        rmax[name.name] = DEFAULT_RMAX if (count := cells.whole_number(record["rmax"], findings)) is None else count
    goal = None if lines.goal is None else _goal(lines.goal, step_names, findings)
    result = None if lines.result is None else _result(lines.result, step_names, findings)
    plan = Steps(tuple(steps), rmax, goal, result)
    for name, record in rows:
        _require_made_before(name.name, record, plan, findings)
    return plan


def _named_rows(records: list[TableRecord], findings: Findings) -> list[tuple[cells.WrittenName, TableRecord]]:
    """Return the rows whose step has a unique name without dots: dots nest the states made of it."""
    rows: dict[str, tuple[cells.WrittenName, TableRecord]] = {}
    for record in each_declaration(records, findings):
        name = cells.declared_name(record["step"], "a step", findings)
        if name is None:
            continue
        if "." in name.name:
            findings.error(
                "DSA203", f"'{name.name}' cannot be the name of a step", name.span, "this name must not contain dots"
            )
        elif name.name in rows:
            first = rows[name.name][0].span.line
            message = f"'{name.name}' is already a step (line {first})"
            findings.error("DSA202", message, name.span, "names are unique over the whole document")
        else:
            rows[name.name] = (name, record)
    return list(rows.values())


def _step(
    name: cells.WrittenName, record: TableRecord, step_names: list[str], with_cases: frozenset[str], findings: Findings
) -> StepRow:
    guards = tuple(part.name for part in cells.name_list(record["guard"], "a guard", findings))
    if not guards and name.name in with_cases:
        guards = ("cases",)
    if not guards and not record["guard"].text:
        hint = f"write the name of a guard here, or add a section '## Cases: {name.name}'"
        findings.error("DSA106", f"step '{name.name}' has no guard", record["guard"].span(), hint)
    generators = cells.name_list(record["generator"], "a generator", findings)
    if len(generators) > 1:
        findings.error("DSA107", "a step has one generator", generators[1].span, "write one name")
    uses = _uses(name.name, record["uses"], step_names, findings)
    return StepRow(
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
    requirement = _read_requirement(step, cell, step_names, findings)
    if findings.count > before:
        findings.doubt(step)  # what it may use follows from what it requires
    return requirement


def _read_requirement(step: str, cell: Cell, step_names: list[str], findings: Findings) -> tuple[str, ...] | Expr:
    words = cell.text.replace("`", " ").split()
    if _NAMES_ONLY.fullmatch(cell.text) and not {"and", "or", "not", "true", "false"} & set(words):
        steps = cells.name_list(cell, "a step", findings)
        for name in steps:
            _require_step(step, name, step_names, findings)
        return tuple(name.name for name in steps)
    expr = cells.parse_cell(cell, ExpressionParser.expression, findings, "DSA108")
    requirement = () if expr is None else _over_steps(expr, cell, step_names, findings, "a requirement")
    if isinstance(requirement, Name):
        return (requirement.name,)
    if not isinstance(requirement, tuple) and step in names(requirement):
        findings.error("DSA214", f"step '{step}' requires itself", cell.span(), f"delete '{step}' here")
    return requirement


def _require_step(step: str, name: cells.WrittenName, step_names: list[str], findings: Findings) -> None:
    if name.name not in step_names:
        hint = closest(name.name, step_names)
        findings.error("DSA214", f"'{name.name}' is not a step", name.span, hint, about=name.name)
    elif name.name == step:
        findings.error("DSA214", f"step '{step}' requires itself", name.span, f"delete '{step}' here")


def _over_steps(expr: Expr, cell: Cell, step_names: list[str], findings: Findings, place: str) -> Expr:
    scope = Scope(place, variables=dict.fromkeys(step_names, BooleanDomain()))
    return Resolver(scope, findings, cell.span()).condition(expr)


def _goal(cell: Cell, step_names: list[str], findings: Findings) -> Expr | None:
    expr = cells.parse_cell(cell, ExpressionParser.expression, findings, "DSA108")
    return None if expr is None else _over_steps(expr, cell, step_names, findings, "the goal")


def _result(cell: Cell, step_names: list[str], findings: Findings) -> str | None:
    """Read the name of the step that is the result."""
    before = findings.count
    names = cells.name_list(cell, "a step", findings)
    if len(names) != 1:
        if findings.count == before:
            findings.error("DSA107", "a workflow has one result", cell.span(), "write the name of one step")
        return None
    (name,) = names
    if name.name not in step_names:
        findings.error(
            "DSA214", f"'{name.name}' is not a step", name.span, closest(name.name, step_names), about=name.name
        )
    return name.name


def _uses(step: str, cell: Cell, step_names: list[str], findings: Findings) -> tuple[tuple[str, str], ...]:
    before = findings.count
    uses = cells.pair_cells(cell, ";,", findings)
    for name, source in uses:
        if name in _OWN_PLACEHOLDERS:
            message = f"'{name}' cannot be the name of an artifact here: in prompts, {{{name}}} already has another meaning; choose another name"
            findings.error("DSA202", message, cell.span())
        if source.text not in step_names or source.text == step:
            hint = closest(source.text, [name for name in step_names if name != step])
            about = "" if source.text == step else source.text
            what = "is this step itself; write the name of another step" if source.text == step else "is not a step"
            findings.error("DSA214", f"'{source.text}' {what}", source.span(), hint, about=about)
    if findings.count > before:
        findings.doubt(" ".join({*NAME.findall(cell.text)} - {*step_names}))  # placeholders of these names are meant
    return tuple((name, source.text) for name, source in uses)


def is_chain(plan: Steps) -> bool:
    """Return whether the steps can simply follow each other in table order."""
    passed: set[str] = set()
    for step in plan.steps:
        if not isinstance(step.requires, tuple) or not passed.issuperset(step.requires):
            return False
        passed |= set() if step.optional else {step.name}
    return plan.goal is None


def _require_made_before(name: str, record: TableRecord, plan: Steps, findings: Findings) -> None:
    """Report the uses of steps that may not have passed when this one starts, if that is known."""
    passed = _passed_before(name, plan)
    others = {step.name for step in plan.steps} - {name}
    for _, source in cells.pair_cells(record["uses"], ";,", Findings()):
        if passed is not None and source.text in others - passed:
            hint = f"put '{source.text}' into the column 'requires'" + (
                "" if is_chain(plan) else " (several steps are separated by ',')"
            )
            message = (
                f"step '{name}' uses the artifact of '{source.text}', but may start before '{source.text}' has passed"
            )
            findings.error("DSA214", message, source.span(), hint, about=name)


def _passed_before(name: str, plan: Steps) -> set[str] | None:
    """Return the steps that have surely passed when a step starts; None if a requirement is not a list."""
    if is_chain(plan):
        order = [step.name for step in plan.steps]
        return {step.name for step in plan.steps[: order.index(name)] if not step.optional}
    requirements = {step.name: step.requires for step in plan.steps}
    names: set[str] = set()
    todo = [name]
    while todo:
        needs = requirements.get(todo.pop(), ())
        if not isinstance(needs, tuple):
            return None
        todo += [need for need in needs if need not in names]
        names |= set(needs)
    return names


GRANTS, GRANTS_USED = "grants", "grants_used"
DEFAULT_GRANTS = 1
_FALSE = Boolean(value=False)


@attrs.frozen
class Expansion:
    """The declarations of a Steps table."""

    parameters: tuple[RunParameter, ...]
    variables: tuple[Variable, ...]
    events: tuple[Event, ...]
    guards: tuple[Guard, ...]
    states: tuple[State, ...]
    rows: tuple[Transition, ...]


def sigma(step: str) -> Name:
    """Return the workflow variable that says a step has passed."""
    return Name(f"sigma.{step}", "variable")


def goal_of(plan: Steps) -> Expr:
    """Return the goal over workflow variables: as written, or every step that is not optional."""
    if plan.goal is not None:
        return over_sigma(plan.goal)
    return conjunction([sigma(step.name) for step in plan.steps if not step.optional])


def over_sigma(expr: Expr) -> Expr:
    """Turn an expression over step names into one over workflow variables."""
    match expr:
        case Name(name):
            return attrs.evolve(sigma(name), span=expr.span)
        case _:
            return with_children(expr, map(over_sigma, children(expr)))


def expand(plan: Steps) -> Expansion:
    """Return the machine's declarations for a Steps table that has at least one step."""
    chain = is_chain(plan)
    parameters = [RunParameter(f"rmax.{s.name}", ANY_COUNT, plan.rmax[s.name], span=s.span) for s in plan.steps]
    return Expansion(
        (*parameters, RunParameter(GRANTS, ANY_COUNT, DEFAULT_GRANTS, span=plan.steps[0].span)),
        _variables(plan, chain=chain),
        _events(plan, chain=chain),
        tuple(_guard(step) for step in plan.steps),
        _states(plan, chain=chain),
        tuple(_Rows(plan, chain=chain).all()),
    )


def _variables(plan: Steps, *, chain: bool) -> tuple[Variable, ...]:
    variables = [Variable(f"sigma.{s.name}", "workflow", BooleanDomain(), _FALSE, span=s.span) for s in plan.steps]
    for step in plan.steps:
        bound = RangeDomain(Integer(0), Name(f"rmax.{step.name}", "parameter"))
        variables.append(Variable(f"retries.{step.name}", "environment", bound, Integer(0), span=step.span))
    if not chain:
        optional = [step for step in plan.steps if step.optional]
        variables += [
            Variable(f"given_up.{s.name}", "environment", BooleanDomain(), _FALSE, span=s.span) for s in optional
        ]
    grants = RangeDomain(Integer(0), Name(GRANTS, "parameter"))
    return (*variables, Variable(GRANTS_USED, "environment", grants, Integer(0), span=plan.steps[0].span))


def _events(plan: Steps, *, chain: bool) -> tuple[Event, ...]:
    answers = {"artifact": "query_llm", "verdict": "execute_guard"}
    if not chain:
        answers["advanced"] = "advance_state"
    people = ("approved", "amended", "rejected", "granted", "aborted")
    outside = [Event(name, span=plan.steps[0].span) for name in people]
    events = [Event(name, origin, span=plan.steps[0].span) for name, origin in answers.items()]
    return (Event("specification", span=plan.steps[0].span), *events, *outside)


def _guard(step: StepRow) -> Guard:
    if len(step.guards) == 1:
        return Guard(step.name, ("verdict",), step.guards[0], span=step.span)
    return Guard(step.name, ("verdict",), "in_order", (("of", ", ".join(step.guards)),), span=step.span)


def _states(plan: Steps, *, chain: bool) -> tuple[State, ...]:
    span = plan.steps[0].span
    states = [State("idle", "initial", span=span)]
    if not chain:
        states.append(State("choosing", span=span))
    for parent in ("generating", "validating", "escalated"):
        states.append(State(parent, span=span))
        states += [State(f"{parent}.{step.name}", span=step.span) for step in plan.steps]
    return (*states, State("succeeded", "final", span=span), State("failed", "final", span=span))


class _Rows:
    """A writer of the rows of one plan; every row has the place of its step."""

    def __init__(self, plan: Steps, *, chain: bool) -> None:
        self._plan, self._chain = plan, chain
        self._next = {a.name: b for a, b in zip(plan.steps, plan.steps[1:], strict=False)}

    def all(self) -> list[Transition]:
        first = self._plan.steps[0]
        go, target = (("query_llm",), f"generating.{first.name}") if self._chain else (("advance_state",), "choosing")
        rows = [_row(first.span, "idle", "specification", target, go)]
        rows += [] if self._chain else self._choosing_rows()
        for step in self._plan.steps:
            rows += self._generating_rows(step) + self._escalated_rows(step)
        return rows

    def _choosing_rows(self) -> list[Transition]:
        goal, span = goal_of(self._plan), self._plan.steps[0].span
        rows = [_row(span, "choosing", "advanced", "succeeded", ("reply_to_user",), goal)]
        earlier: list[Expr] = [Not(goal)]
        for step in self._plan.steps:
            ready = self._ready(step)
            go = conjunction([*earlier, ready])
            rows.append(_row(step.span, "choosing", "advanced", f"generating.{step.name}", ("query_llm",), go))
            earlier.append(Not(ready))
        failure = _row(span, "choosing", "advanced", "failed", ("reply_precondition_not_met",))
        return [*rows, attrs.evolve(failure, is_else=True)]

    def _ready(self, step: StepRow) -> Expr:
        requirement = step.requires
        needs = [sigma(name) for name in requirement] if isinstance(requirement, tuple) else [over_sigma(requirement)]
        given_up = [Not(Name(f"given_up.{step.name}", "variable"))] if step.optional else []
        return conjunction([*needs, Not(sigma(step.name)), *given_up])

    def _generating_rows(self, step: StepRow) -> list[Transition]:
        name, span, here = step.name, step.span, f"validating.{step.name}"
        below = Compare(_retries(name), (("<", Name(f"rmax.{name}", "parameter")),))
        failed = conjunction([_verdict(name, "failed"), below])
        retry = (Assign(f"retries.{name}", Arithmetic("+", _retries(name), Integer(1))),)
        again = ("refine_context", "query_llm")
        return [
            _row(span, f"generating.{name}", "artifact", here, ("execute_guard",)),
            self._passed_row(step, here, "verdict", _verdict(name, "passed")),
            _row(span, here, "verdict", f"generating.{name}", again, failed, retry),
            _row(span, here, "verdict", f"escalated.{name}", ("escalate_to_user",), _verdict(name, "fatal")),
            self._exhausted_row(step, here, "verdict"),
        ]

    def _escalated_rows(self, step: StepRow) -> list[Transition]:
        name, span, here = step.name, step.span, f"escalated.{step.name}"
        below = Compare(_retries(name), (("<", Name(f"rmax.{name}", "parameter")),))
        retry = (Assign(f"retries.{name}", Arithmetic("+", _retries(name), Integer(1))),)
        grants_used = Name(GRANTS_USED, "variable")
        left = Compare(grants_used, (("<", Name(GRANTS, "parameter")),))
        grant = (Assign(f"retries.{name}", Integer(0)), Assign(GRANTS_USED, Arithmetic("+", grants_used, Integer(1))))
        refusal = _row(span, here, "granted", "=", ("escalate_to_user",))
        return [
            self._passed_row(step, here, "approved", TRUE),
            _row(span, here, "amended", f"validating.{name}", ("execute_guard",)),
            _row(span, here, "rejected", f"generating.{name}", ("refine_context", "query_llm"), below, retry),
            self._exhausted_row(step, here, "rejected"),
            _row(span, here, "granted", f"generating.{name}", ("query_llm",), left, grant),
            attrs.evolve(refusal, is_else=True),
            _row(span, here, "aborted", "failed", ("reply_failure",)),
        ]

    def _onward(self, step: StepRow, effects: tuple[str, ...]) -> tuple[tuple[str, ...], str]:
        """Return the effects and the target for the continuation after a step."""
        following = self._next.get(step.name)
        if not self._chain:
            return (*(effect for effect in effects if effect != "advance_state"), "advance_state"), "choosing"
        if following is None:
            return (*effects, "reply_to_user"), "succeeded"
        return (*effects, "query_llm"), f"generating.{following.name}"

    def _passed_row(self, step: StepRow, source: str, event: str, condition: Expr) -> Transition:
        effects, target = self._onward(step, ("advance_state",))
        updates = (Assign(f"sigma.{step.name}", Boolean(value=True)), Assign(f"retries.{step.name}", Integer(0)))
        return _row(step.span, source, event, target, effects, condition, updates)

    def _exhausted_row(self, step: StepRow, source: str, event: str) -> Transition:
        effects: tuple[str, ...] = ("refine_context", "reply_failure")
        target, updates = "failed", tuple[Assign, ...]()
        if step.optional:
            effects, target = self._onward(step, ("refine_context",))
            updates = () if self._chain else (Assign(f"given_up.{step.name}", Boolean(value=True)),)
        return attrs.evolve(_row(step.span, source, event, target, effects, TRUE, updates), is_else=True)


def _retries(step: str) -> Name:
    return Name(f"retries.{step}", "variable")


def _verdict(step: str, outcome: Outcome) -> Verdict:
    return Verdict(step, outcome)


def _row(
    span: Span | None,
    source: str,
    event: str,
    target: str,
    effects: tuple[str, ...],
    condition: Expr = TRUE,
    updates: tuple[Assign | Revoke, ...] = (),
) -> Transition:
    emits: tuple[Emit | Cancel, ...] = tuple(Emit(effect) for effect in effects)
    return Transition(source, event, target, condition, updates=updates, effects=emits, span=span)


def with_parameters(
    generated_parameters: tuple[RunParameter, ...], own_parameters: tuple[RunParameter, ...]
) -> tuple[RunParameter, ...]:
    """Return the generated parameters; those of a Parameters table replace the ones of the same name, and others are added."""
    own: Mapping[str, RunParameter] = {parameter.name: parameter for parameter in own_parameters}
    names = {parameter.name for parameter in generated_parameters}
    result = tuple(own.get(parameter.name, parameter) for parameter in generated_parameters)
    return result + tuple(parameter for parameter in own_parameters if parameter.name not in names)


def unmet_requirements(plan: Steps) -> list[StepRow]:
    """Return the steps whose listed requirements can never hold, as they wait for each other in a circle."""
    passed: set[str] = set()
    left = list(plan.steps)
    while True:
        ready = [s for s in left if passed.issuperset(s.requires if isinstance(s.requires, tuple) else ())]
        if not ready:
            return left
        passed |= {step.name for step in ready}
        left = [step for step in left if step not in ready]


def spell_out(machine: Machine) -> Machine:
    """Return the machine whose document has the rows that Steps or families stand for; another machine as it is. Its meaning stays the same.

    Steps, goal, result, the steps' prompts and the dependencies in scenarios are left out: they are about calls of generators,
    not about the moves of the machine.
    """
    if machine.families:
        rows = tuple(attrs.evolve(row, instance=()) for row in machine.transitions)
        machine = attrs.evolve(machine, transitions=rows, families=(), source_tables=())
    if not machine.steps:
        return machine
    steps = {step.name for step in machine.steps}
    prompts = tuple(prompt for prompt in machine.prompts if prompt.name not in steps)
    scenarios = tuple(
        attrs.evolve(scenario, steps=tuple(attrs.evolve(step, dependencies=None) for step in scenario.steps))
        for scenario in machine.scenarios
    )
    return attrs.evolve(machine, steps=(), goal=None, result=None, prompts=prompts, scenarios=scenarios)
