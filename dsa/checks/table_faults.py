"""Faults of a table: what its rows and declarations alone show at the machine's parameter values. Nothing is explored.

Takes a machine, gives diagnostics.

`definition4` reports rows that set workflow state although a guard may not have passed (S9, Definition 4 of the paper). It goes through the
verdicts to decide whether a condition implies that its guards passed, and takes everything else in the condition (comparisons, Boolean
variables) as free. That is sound: a row that is not reported cannot break the rule. It may report a row whose condition would need
arithmetic to be understood (`x < 1 and x > 2 or g.passed`); such a condition can be written more plainly.

Other functions report dead ends, effects that are cancelled or emitted in vain, names that are never used, and initial values outside their domain.
`kinds` checks the rows of Guards, Generators and Steps against the kinds that come with dsa (DSA215). It only warns: a user's own module may define a
kind of any name, which `dsa check --with MODULE` checks. `tests/unit/test_shipped_kinds.py` compares `GUARDS` and `GENERATORS` with what
`dsa.guards.guard_kinds` and `dsa.generators.generator_kinds` build.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

from dsa.checks.places import cell, changed_by, place, read_by
from dsa.data_use import DEFAULT_GENERATOR, GENERATING_EFFECT
from dsa.declarations import (
    EFFECT_COLUMNS,
    OUTSIDE,
    STAY,
    Assign,
    Cancel,
    Effect,
    Emit,
    Generator,
    Guard,
    Revoke,
    RunParameter,
    Transition,
    Variable,
    expressions,
    index_in,
    show,
    without_index,
)
from dsa.errors import Diagnostic, MachineError, Span
from dsa.expr import (
    And,
    Boolean,
    Count,
    Domain,
    Expr,
    Name,
    Not,
    Or,
    Outcome,
    RangeDomain,
    Verdict,
    conjunction,
    disjunction,
    evaluate,
    guards_read,
    names,
    pending_effects,
    show_value,
    unparse,
    unparse_domain,
    walk,
)
from dsa.machine import Machine, read_guards, sleeping_effects
from dsa.semantics import accepted_events
from dsa.text import closest, nearest, some_of
from dsa.trace import show_values

Decisions = Mapping[Expr | str, object]


def definition4(machine: Machine) -> tuple[Diagnostic, ...]:
    """Return the rows that set workflow state without their guards having passed, and (as information) those that may."""
    workflow = {variable.name for variable in machine.variables if variable.scope == "workflow"}
    judged_events = machine.judged_events | {row.event for row in machine.transitions if guards_read(row.condition)}
    diagnostics: list[Diagnostic] = []
    for rows in machine.rows_from.values():
        for row in rows:
            updates = [update for update in row.updates if update.variable in workflow]
            if updates:
                diagnostics += _row_verdict(machine, row, rows, updates, is_judged=row.event in judged_events)
    return tuple(diagnostics)


def _row_verdict(
    machine: Machine, row: Transition, rows: tuple[Transition, ...], updates: list[Assign | Revoke], *, is_judged: bool
) -> Iterator[Diagnostic]:
    event = _as_written(row.event, cell(row, "event"))
    for update in updates:
        span = place(update.span, cell(row, "update"))
        variable = _as_written(update.variable, span)
        if isinstance(update, Revoke):
            yield Diagnostic(
                "DSA211", "info", f"the row for '{event}' in state '{row.source}' revokes '{variable}'", span
            )
        elif is_judged and _is_of_several(machine, row, update.variable):
            message = f"the row for '{event}' in state '{row.source}' sets '{variable}', but it looks only at the verdicts on one answer, and another answer may have failed before"
            yield Diagnostic("DSA211", "info", message, span, _failed_answer_hint(machine, rows, update.variable))
        elif not is_judged:
            message = f"the row for '{event}' in state '{row.source}' sets '{variable}', but the event '{event}' does not carry the verdict of a guard"
            yield Diagnostic("DSA211", "info", message, span)
    assignments = [update for update in updates if isinstance(update, Assign)]
    why, guard = _unguarded_reason(machine, row, rows) if is_judged and assignments else ("", "")
    if why:
        kind = "the workflow variable" if len(assignments) == 1 else "the workflow variables"
        names_here = [_as_written(update.variable, place(update.span, cell(row, "update"))) for update in assignments]
        quoted_names = ", ".join(f"'{name}'" for name in names_here)
        message = f"this row sets {kind} {quoted_names}, but {why} (Definition 4)"
        judges = [guard] if guard else [g.name for g in machine.guards if row.event in g.judges]
        passed = f"write {judges[0]}.passed in the condition" if judges else "ask for a verdict in the condition"
        hint = f"{passed}; or give '{names_here[0]}' the scope 'environment'; or, if the row is to unset '{names_here[0]}', write 'revoke {names_here[0]}'"
        yield Diagnostic("DSA210", "error", message, place(assignments[0].span, cell(row, "update")), hint)


def _as_written(name: str, span: Span) -> str:
    """Return a name as it stands at its place: `done[c]` for `done[1]`."""
    base, bracket, rest = name.partition("[")
    if not bracket:
        return name
    pattern = rf"(?<![\w.]){re.escape(base)}\[[^\]]*\]{re.escape(rest.partition(']')[2])}"
    match = re.search(pattern, span.text[span.column - 1 :])
    return match[0] if match else name


def _failed_answer_hint(machine: Machine, rows: tuple[Transition, ...], variable: str) -> str:
    """Return what is missing for a variable that one answer among several sets: one that remembers a failed answer, a property over both, or nothing."""
    failure_rows = [row for row in rows if _unguarded_reason(machine, row, rows)[0]]
    others = {
        without_index(update.variable): _as_written(update.variable, place(update.span, cell(row, "update")))
        for row in failure_rows
        for update in row.updates
        if without_index(update.variable) != without_index(variable)
    }
    if not others:
        return f"add a variable that is set when an answer fails, and a property that this variable and '{variable}' are never both true"
    for claim in machine.properties:
        claim_names = {without_index(name) for expr in expressions(claim.form) for name in names(expr)}
        both = claim_names & others.keys() if without_index(variable) in claim_names else set()
        for other in sorted(both):
            return f"'{others[other]}' remembers a failed answer, and the property '{show(claim.form)}' is about both variables: nothing is missing if this property says what you mean"
    remembers = " or ".join(f"'{name}'" for name in others.values())
    return f"a row for a failed answer already sets {remembers}: add a property that this variable and '{without_index(variable)}' are never both true"


def _is_of_several(machine: Machine, row: Transition, variable: str) -> bool:
    """Return whether a row is for one answer among several: of an effect or of a family's effects, where the variable is not of the same index."""
    origin = None if row.is_timer else machine.event_named[row.event].origin
    index = index_in(origin or "")
    return origin in machine.numbered_effects or (index is not None and index != index_in(variable))


def _unguarded_reason(machine: Machine, row: Transition, rows: tuple[Transition, ...]) -> tuple[str, str]:
    """Return how the row can be taken without every guard it reads having passed, and that guard; empty when it cannot."""
    condition, guards = row.condition, tuple(sorted(guards_read(row.condition)))
    if row.is_else:
        plain = [other.condition for other in rows if not other.is_else]
        condition, guards = conjunction([condition, Not(disjunction(plain))]), read_guards(rows)
    if not guards:
        return f"the row's condition reads no verdict, although '{row.event}' carries one", ""
    outcomes = {guard.name: guard.outcomes for guard in machine.guards}
    for guard in guards:
        for outcome in outcomes[guard]:
            if outcome != "passed" and possible(condition, outcomes, {guard: outcome}):
                return f"the row can also be taken when the verdict is {guard}.{outcome}", guard
    return "", ""


def possible(condition: Expr, outcomes: Mapping[str, tuple[Outcome, ...]], decisions: Decisions) -> bool:
    """Return whether a condition can be true, given the verdicts and atoms known; all others are free.

    Decides one unknown at a time, and only those that the condition then still depends on.
    """
    unknown = _value(condition, decisions)
    if isinstance(unknown, bool):
        return unknown
    if isinstance(unknown, Verdict):
        guard = unknown.guard
        return any(possible(condition, outcomes, {**decisions, guard: outcome}) for outcome in outcomes[guard])
    return any(possible(condition, outcomes, {**decisions, unknown: choice}) for choice in (True, False))


def _value(expr: Expr, decisions: Decisions) -> bool | Expr:
    """Return the value of a condition, or the first atom that it depends on and that is not decided yet."""
    match expr:
        case Boolean(value):
            return value
        case Verdict(guard, outcome):
            return decisions[guard] == outcome if guard in decisions else expr
        case Not(operand):
            inner = _value(operand, decisions)
            return not inner if isinstance(inner, bool) else inner
        case And(operands):
            return _junction_value(operands, decisions, decides=False)
        case Or(operands):
            return _junction_value(operands, decisions, decides=True)
        case _ if expr in decisions:
            return bool(decisions[expr])
        case _ if guards_read(expr) and not any(isinstance(node, Name) for node in walk(expr)):
            return _comparison_value(expr, decisions)
        case _:
            return expr


def _comparison_value(expr: Expr, decisions: Decisions) -> bool | Expr:
    """Return the value of a comparison of verdicts alone, such as `count(g.passed, h.passed) == 2`, or the first verdict that is not decided yet."""
    unknown = next((node for node in walk(expr) if isinstance(node, Verdict) and node.guard not in decisions), None)
    if unknown is not None:
        return unknown
    return bool(evaluate(expr, {guard: str(decisions[guard]) for guard in guards_read(expr)}))


def _junction_value(operands: tuple[Expr, ...], decisions: Decisions, *, decides: bool) -> bool | Expr:
    values = [_value(operand, decisions) for operand in operands]
    if decides in values:
        return decides
    return next((value for value in values if not isinstance(value, bool)), not decides)


#: The kind of guard that calls a generator: that of its option `by`, or the default one.
_ASKING_KIND = "judge"


def dead_ends(machine: Machine) -> tuple[Diagnostic, ...]:
    """Return the states that are not final and have no row, neither their own nor an ancestor's nor one of `*`."""
    diagnostics = []
    for leaf in machine.leaves:
        if leaf in machine.ends:
            continue  # a run that gets there may be finished; where it is not, it is stuck, which exploring shows
        if leaf not in machine.final_states and not accepted_events(machine, leaf):
            message = f"state '{leaf}' is not final, and no row leaves it: a run that gets there stays for ever"
            hint = "add a row that leaves this state, or give it the kind 'final' or 'end when CONDITION' in the States table"
            diagnostics.append(Diagnostic("DSA303", "error", message, place(machine.state_named[leaf].span), hint))
    return tuple(diagnostics)


def vain_effects(machine: Machine) -> tuple[Diagnostic, ...]:
    """Return effects that are cancelled or read as outstanding although they cannot be, or emitted although no answer can be handled (S3, S7)."""
    emitted_effects = {item.effect for row in machine.transitions for item in row.effects if isinstance(item, Emit)}
    diagnostics: list[Diagnostic] = []
    for row in machine.transitions:
        diagnostics += _cancelled_in_vain(machine, row, emitted_effects)
        diagnostics += _cancelled_at_once(machine, row)
        diagnostics += _emitted_into_final(machine, row)
    return (*diagnostics, *_limits_in_vain(machine), *_pending_in_vain(machine, emitted_effects))


def _pending_in_vain(machine: Machine, emitted_effects: set[str]) -> Iterator[Diagnostic]:
    """Yield each `pending E` of a condition that is never true. A row with several events is one: it may be true for another of them."""
    rows_as_written: dict[object, list[Transition]] = {}
    for row in machine.transitions:
        rows_as_written.setdefault(row.span or id(row), []).append(row)
    for rows in rows_as_written.values():
        origins = {OUTSIDE if row.is_timer else machine.event_named[row.event].origin for row in rows}
        for effect in sorted(pending_effects(rows[0].condition) - {""}):
            if effect not in emitted_effects:
                why, hint = f"no row emits '{effect}'", f"emit '{effect}' in a row, or delete 'pending {effect}'"
            elif origins == {effect} and effect not in machine.numbered_effects:
                why = f"the event of this row is the answer of '{effect}', so '{effect}' has ended when the condition is read"
                hint = f"delete this part of the condition; in this row, 'pending' can only be about other effects than '{effect}'"
            else:
                continue
            message = f"'pending {effect}' is never true here: {why}"
            yield Diagnostic("DSA213", "warning", message, cell(rows[0], "if"), hint)


def counts_of_one(machine: Machine) -> tuple[Diagnostic, ...]:
    """Return each `count(pending E)` of an effect of which several may be outstanding: it is 0 or 1, however many are."""
    warnings: dict[tuple[Span, str], Diagnostic] = {}
    conditions = [(row.condition, cell(row, "if")) for row in machine.transitions]
    conditions += [(each, place(claim.span)) for claim in machine.properties for each in expressions(claim.form)]
    for condition, span in conditions:
        for node in walk(condition):
            match node:
                case Count((Name(effect, "pending"),)) if effect in machine.numbered_effects:
                    message = f"'count(pending {effect})' is always 0 or 1: count(..) counts true conditions, and 'pending {effect}' is one condition, even if the effect is outstanding several times"
                    hint = "the column 'at once' of Effects limits how often an effect may be outstanding; to know the present number, keep count in a variable"
                    warnings[span, effect] = Diagnostic("DSA213", "warning", message, span, hint)
                case _:
                    pass
    return tuple(warnings.values())


def _cancelled_in_vain(machine: Machine, row: Transition, emitted_effects: set[str]) -> Iterator[Diagnostic]:
    for item in row.effects:
        if not isinstance(item, Cancel) or item.effect is None:
            continue
        if item.effect not in machine.answers:
            message = f"the effect '{item.effect}' has no answers, so a run never waits for it, and 'cancel {item.effect}' has no meaning"
            hint = f"declare an event with '{item.effect}' in the column 'from', or delete 'cancel {item.effect}'"
            yield _effect_error(row, item, message, hint)
        elif item.effect not in emitted_effects:
            message = f"no row emits the effect '{item.effect}', so 'cancel {item.effect}' has no meaning"
            yield _effect_error(row, item, message, f"emit it in some row, or delete 'cancel {item.effect}'")


def _limits_in_vain(machine: Machine) -> Iterator[Diagnostic]:
    """Yield the numbers in the column `at once` of effects that are never outstanding."""
    for effect in machine.effects:
        if effect.at_once is not None and effect.name not in machine.answers:
            message = f"the effect '{effect.name}' has no answers, so the column 'at once' has no meaning for it"
            yield Diagnostic(
                "DSA213", "error", message, place(effect.span), "declare an event that answers it, or empty the cell"
            )


def sleeps(machine: Machine) -> tuple[Diagnostic, ...]:
    """Return an error for each sleep that does not have one answer, and a warning for each row for its failure."""
    diagnostics: list[Diagnostic] = []
    for name in sleeping_effects(machine):
        events, span = machine.answers.get(name, ()), place(machine.effect_named[name].span)
        if not events:
            message = f"no event answers the sleep '{name}'"
            hint = f"declare an event in Events, with '{name}' in its column 'from'"
            diagnostics.append(Diagnostic("DSA215", "error", message, span, hint))
        elif len(events) > 1:
            message = f"the effect '{name}' is of the kind sleep, which can have only one answer, but Events declares several: {', '.join(events)}"
            hint = "keep one event: a sleep can end in only one way"
            diagnostics.append(Diagnostic("DSA215", "error", message, span, hint))
    for row in machine.transitions:
        if machine.is_failure(row.event) and (name := row.event.removesuffix(".failed")) in sleeping_effects(machine):
            message = f"this row can never be taken: the sleep '{name}' never fails"
            diagnostics.append(Diagnostic("DSA302", "warning", message, cell(row, "event"), "delete the row"))
    return tuple({each.span: each for each in reversed(diagnostics)}.values())[::-1]  # once for a whole family


def _cancelled_at_once(machine: Machine, row: Transition) -> Iterator[Diagnostic]:
    fresh = set[str]()
    for item in row.effects:
        if isinstance(item, Emit):
            fresh.add(item.effect)
            continue
        cancelled_effects = sorted(fresh & set(machine.answers) if item.effect is None else fresh & {item.effect})
        if cancelled_effects:
            message = f"this row emits {some_of(cancelled_effects)}, and then cancels it"
            yield _effect_error(row, item, message, "to restart an effect, write its 'cancel' first")


def _emitted_into_final(machine: Machine, row: Transition) -> Iterator[Diagnostic]:
    if row.target == STAY or machine.entry_leaf(row.target) not in machine.final_states:
        return
    for item in row.effects:
        if isinstance(item, Emit) and item.effect in machine.answers:
            message = f"this row emits '{item.effect}' and ends the run, since state '{row.target}' is final: nothing can receive the answers of '{item.effect}'"
            hint = "emit an effect without answers, or wait in a state that is not final"
            yield _effect_error(row, item, message, hint)


def _effect_error(row: Transition, item: Emit | Cancel, message: str, hint: str) -> Diagnostic:
    return Diagnostic("DSA213", "error", message, place(item.span, cell(row, "effects")), hint)


def unused_names(machine: Machine) -> tuple[Diagnostic, ...]:
    """Return the parameters, variables, events, effects, guards and generators that nothing uses.

    With Steps, where most names come from the expansion, only generators.
    """
    diagnostics = list(_generators(machine))
    if not machine.steps:
        used_names = _used_values(machine)
        diagnostics += _unused_warnings(used_names, "parameter", machine.parameters, "nothing reads it")
        diagnostics += _unused_warnings(
            used_names, "variable", machine.variables, "no row, property or scenario uses it"
        )
        diagnostics += _events(machine)
        diagnostics += _effects(machine)
        diagnostics += _guards(machine)
    return tuple(_of_all_members(machine, diagnostics))


def _of_all_members(machine: Machine, diagnostics: Iterable[Diagnostic]) -> Iterator[Diagnostic]:
    """Yield the findings; one about names that a declaration with an index stands for only if it is about all of them, and once."""
    declarations = (*machine.variables, *machine.events, *machine.effects) if machine.families else ()
    members = Counter(item.span for item in declarations if item.span is not None)
    findings: dict[Span, list[Diagnostic]] = {}
    for finding in diagnostics:
        findings.setdefault(finding.span, []).append(finding)
    for span, several in findings.items():
        count = members.get(span, 1)
        yield from several if count == 1 else several[:1] if len(several) >= count else []


def _unused_warning(kind: str, name: str, why: str, span: Span | None) -> Diagnostic:
    return Diagnostic("DSA212", "warning", f"{kind} '{name}' is never used: {why}", place(span), "use it, or delete it")


def _unused_warnings(
    used_names: frozenset[str], kind: str, declarations: tuple[RunParameter, ...] | tuple[Variable, ...], why: str
) -> Iterator[Diagnostic]:
    for item in declarations:
        if item.name not in used_names:
            yield _unused_warning(kind, item.name, why, item.span)


def _used_values(machine: Machine) -> frozenset[str]:
    """Return the parameters and variables that rows, domains, properties or scenarios name."""
    value_names = set(read_by(machine.transitions) | changed_by(machine.transitions))
    for variable in machine.variables:
        value_names |= names(variable.initial) | _bounds(variable.domain)
    for limit in machine.number_limits.values():
        value_names |= names(limit)
    for claim in machine.properties:
        for expr in expressions(claim.form):
            value_names |= names(expr)
    for scenario in machine.scenarios:
        value_names |= {name for name, _ in scenario.parameters}
        value_names |= {name for step in scenario.steps for name, _ in step.values}
    return frozenset(value_names)


def _bounds(domain: Domain) -> frozenset[str]:
    if not isinstance(domain, RangeDomain):
        return frozenset()
    return names(domain.low) | (names(domain.high) if domain.high else frozenset())


def _events(machine: Machine) -> Iterator[Diagnostic]:
    taken = {row.event for row in machine.transitions}
    for event in machine.events:
        if event.name not in taken:
            yield _unused_warning("event", event.name, "no row handles it", event.span)


def _effects(machine: Machine) -> Iterator[Diagnostic]:
    emitted_effects = {item.effect for row in machine.transitions for item in row.effects if isinstance(item, Emit)}
    cancelled_effects = {item.effect for row in machine.transitions for item in row.effects if isinstance(item, Cancel)}
    for effect in machine.effects:
        # What is cancelled but not emitted is an error already.
        if effect.name not in emitted_effects | cancelled_effects:
            yield _unused_warning("effect", effect.name, "no row emits it", effect.span)


def _guards(machine: Machine) -> Iterator[Diagnostic]:
    read = {guard for row in machine.transitions for guard in guards_read(row.condition)}
    read |= {part for guard in machine.guards for part in parts(guard)}
    for guard in machine.guards:
        if guard.name not in read:
            yield _unused_warning("guard", guard.name, "no condition reads its verdict", guard.span)


def parts(guard: Guard) -> tuple[str, ...]:
    """Return the guards that a composition is made of: its option `of`."""
    return tuple(name.strip() for name in dict(guard.options).get("of", "").split(",") if name.strip())


def _generators(machine: Machine) -> Iterator[Diagnostic]:
    used_generators = {step.generator for step in machine.steps}
    used_generators |= {DEFAULT_GENERATOR for guard in machine.guards if (guard.kind or guard.name) == _ASKING_KIND}
    used_generators |= {dict(guard.options)["by"].strip() for guard in machine.guards if "by" in dict(guard.options)}
    emitted_effects = {item.effect for row in machine.transitions for item in row.effects if isinstance(item, Emit)}
    if not machine.steps and GENERATING_EFFECT in emitted_effects:  # it calls the only generator, or `llm`
        used_generators |= {
            DEFAULT_GENERATOR,
            *(row.name for row in machine.generators[:1] if len(machine.generators) == 1),
        }
    unused_generators: list[Generator] = [
        generator for generator in machine.generators if generator.name not in used_generators
    ]
    for generator in unused_generators:
        why = "no step names it" if machine.steps else "nothing calls it"
        yield _unused_warning("generator", generator.name, why, generator.span)


#: What an option may be: `text`, `number`, `whole` (a whole number), `flag` (true or false), `names`. With `!` the table must give it.
Options = Mapping[str, str]

_SANDBOX_OPTIONS = {"require": "names", "rung": "text"}
_TEST_OPTIONS = {
    "module": "text",
    "timeout_s": "number",
    "hardened": "flag",
    "show_expected": "flag",
    **_SANDBOX_OPTIONS,
}
_TOGETHER = {"of": "names!"}
_AT_ONCE = {**_TOGETHER, "parallel": "flag", "timeout_s": "number"}

GUARDS: Mapping[str, Options] = {
    "syntax": {},
    "cases": {"timeout_s": "number", "show_expected": "flag", **_SANDBOX_OPTIONS},
    "forbidden": {"imports": "names", "calls": "names", "fatal": "flag"},
    "regex": {"pattern": "text!", "whole": "flag", "absent": "flag", "hint": "text", "timeout_s": "number"},
    "review": {"question": "text"},
    "in_order": _TOGETHER,
    "tests": _TEST_OPTIONS,
    "are_tests": {"module": "text", "timeout_s": "number", **_SANDBOX_OPTIONS},
    "pytest": {"file": "text!", **_TEST_OPTIONS},
    "judge": {"question": "text!", "by": "text"},
    "command": {
        "command": "text!", "file": "text", "fence": "text", "timeout_s": "number", "memory_mb": "whole", "read": "names", **_SANDBOX_OPTIONS,
    },
    "ruff": {"select": "names", "ignore": "names", "line_length": "whole", "timeout_s": "number", **_SANDBOX_OPTIONS},
    "mypy": {"strict": "flag", "allow_ignores": "flag", "timeout_s": "number", **_SANDBOX_OPTIONS},
    "pydantic": {"model": "text!", "show_expected": "flag"},
    "json": {"schema": "text!", "show_expected": "flag"},
    "all": _AT_ONCE,
    "any": _AT_ONCE,
    "at_least": {**_AT_ONCE, "k": "whole!"},
}  # fmt: skip

_MODEL = {"temperature": "number", "max_tokens": "whole", "max_prompt_tokens": "whole"}
_SERVER = {**_MODEL, "model": "text!", "timeout_s": "number", "retries": "whole"}

GENERATORS: Mapping[str, Options] = {
    "local": {**_MODEL, "signature": "text"},
    "litellm": {**_SERVER, "model": "text", "api_base": "text"},
    "openai_compatible": {**_SERVER, "key_variable": "text", "silence_s": "number"},
    "command": {"command": "text!", "timeout_s": "number", "most_bytes": "whole"},
    "scripted": {"file": "text!"},
    "llm": {**_SERVER, "model": "text", "signature": "text", "api_base": "text"},
    "machine": {"file": "text!", "step": "text"},
}


_FORMS = {
    "text": "a text", "number": "a number", "whole": "a whole number", "flag": "true or false", "names": "names separated by commas",
}  # fmt: skip
_PLACES = {"text": "TEXT", "number": "NUMBER", "whole": "NUMBER", "flag": "true", "names": "NAME, NAME"}
_FLAGS = frozenset({"true", "false", "yes", "no"})
_CASES, _DEFAULT_GENERATOR = "cases", "llm"


def kinds(machine: Machine) -> tuple[Diagnostic, ...]:
    """Return a warning for each row of Guards, Generators and Steps that no kind of dsa's can be built from as it is written."""
    return (*_of_guards(machine), *_of_steps(machine), *_of_generators(machine), *_without_cases(machine))


def _of_guards(machine: Machine) -> Iterator[Diagnostic]:
    steps = {step.name for step in machine.steps}
    for row in machine.guards:
        if row.name not in steps:
            yield from _row(f"guard '{row.name}'", row, GUARDS, {*machine.guard_named}, row.name)


def _of_generators(machine: Machine) -> Iterator[Diagnostic]:
    for row in machine.generators:
        kind = row.name if row.name in GENERATORS else _DEFAULT_GENERATOR
        yield from _row(f"generator '{row.name}'", row, GENERATORS, set(), kind)


def _row(
    owner: str, row: Guard | Generator, kind_options: Mapping[str, Options], own: set[str], otherwise: str
) -> Iterator[Diagnostic]:
    kind = row.kind or otherwise
    if kind in kind_options:
        yield from _options(owner, kind, row.options, kind_options[kind], row.span)
    elif row.kind and row.kind not in own:
        yield from _misspelt(f"{owner}: '{row.kind}'", row.kind, kind_options, row.span)


def _of_steps(machine: Machine) -> Iterator[Diagnostic]:
    """Report the guards that only the column `guard` of Steps names, where another name was meant."""
    for step in machine.steps:
        for name in step.guards:
            if name not in GUARDS and name not in machine.guard_named:
                yield from _misspelt(f"guard '{name}' of step '{step.name}'", name, GUARDS, step.span)


def _misspelt(what: str, name: str, kind_options: Mapping[str, Options], span: Span | None) -> Iterator[Diagnostic]:
    if nearest(name, kind_options) is not None:
        yield _kind_warning(f"{what} is not a kind that comes with dsa", span, closest(name, kind_options))


def _options(
    owner: str, kind: str, settings: tuple[tuple[str, str], ...], forms: Options, span: Span | None
) -> Iterator[Diagnostic]:
    for name, text in settings:
        form = forms.get(name, "").removesuffix("!")
        if not form:
            yield _kind_warning(
                f"{owner}: the kind '{kind}' has no option '{name}'",
                span,
                closest(name, forms, f"the kind '{kind}' has no options"),
            )
        elif not _fits(text.strip(), form):
            yield _kind_warning(f"{owner}: the option '{name}' must be {_FORMS[form]}, but is '{text}'", span, "")
    strangers = [name for name, _ in settings if name not in forms]
    for name, form in forms.items():
        if form.endswith("!") and name not in dict(settings) and nearest(name, strangers) is None:
            hint = f"in the column 'options', write: {name} = {_PLACES[form.removesuffix('!')]}"
            yield _kind_warning(f"{owner}: the kind '{kind}' needs the option '{name}'", span, hint)


def _fits(text: str, form: str) -> bool:
    """Return whether the text of an option is of its form."""
    if form == "flag":
        return text.lower() in _FLAGS
    if form not in {"number", "whole"}:
        return True
    try:
        (float if form == "number" else int)(text)
    except ValueError:
        return False
    return True


def _without_cases(machine: Machine) -> Iterator[Diagnostic]:
    """Report guards of kind `cases` for which there is no section with the name of the step or of the guard."""
    sections = {section.name for section in machine.cases}
    rows = {row.name for row in machine.guards if (row.kind or row.name) == _CASES} | {_CASES}
    for step in machine.steps:
        for name in step.guards:
            if name in rows and not sections & {step.name, name}:
                yield _needs_cases(f"guard '{name}' of step '{step.name}'", step.name, step.span)
    for row in machine.guards if not machine.steps else ():
        if row.name in rows and row.name not in sections and not _inner_part(machine, row.name):
            yield _needs_cases(f"guard '{row.name}'", row.name, row.span)


def _inner_part(machine: Machine, name: str) -> bool:
    """Return whether a guard is a part of another one only, whose section it may take."""
    return any(name in dict(row.options).get("of", "") for row in machine.guards)


def _needs_cases(owner: str, section: str, span: Span | None) -> Diagnostic:
    return _kind_warning(
        f"{owner} is of kind 'cases', but the document has no cases for it",
        span,
        f"write a section '## Cases: {section}'",
    )


def _kind_warning(message: str, span: Span | None, hint: str) -> Diagnostic:
    return Diagnostic("DSA215", "warning", message, place(span), hint)


#: How fields of declarations are written that are not texts.
_FIELD_WRITERS: dict[str, Callable[..., str]] = {
    **{column.field: column.text for column in EFFECT_COLUMNS},
    "domain": unparse_domain,
    "initial": unparse,
}


def require_sound(machine: Machine) -> None:
    """Raise MachineError for the errors of a table: with one of them nothing runs."""
    errors: tuple[Diagnostic, ...] | None = machine.worked_out.get("errors")
    if errors is None:
        diagnostics = (*start_outside(machine), *row_findings(machine))
        errors = machine.worked_out["errors"] = tuple(each for each in diagnostics if each.severity == "error")
    if errors:
        raise MachineError(errors)


def row_findings(machine: Machine) -> tuple[Diagnostic, ...]:
    """Return the findings of rows and declarations at any values of the parameters: errors, warnings, information."""
    return (
        *spec_differences(machine),
        *dead_ends(machine),
        *vain_effects(machine),
        *counts_of_one(machine),
        *sleeps(machine),
        *definition4(machine),
        *unused_names(machine),
        *kinds(machine),
    )


def spec_differences(machine: Machine) -> tuple[Diagnostic, ...]:
    """Return where a machine declares an effect or a variable differently from its spec."""
    diagnostics = []
    for statement in machine.spec_declarations:
        declaration = statement.declaration
        kind, declarations = (
            ("effect", machine.effects) if isinstance(declaration, Effect) else ("variable", machine.variables)
        )
        for own in (each for each in declarations if each.name == declaration.name):
            for column, field in statement.columns:
                own_value, spec_value = getattr(own, field), getattr(declaration, field)
                if own_value != spec_value:
                    texts = [
                        f"'{_FIELD_WRITERS.get(field, str)(value)}'" if value not in {None, ""} else "empty"
                        for value in (own_value, spec_value)
                    ]
                    message = f"{kind} '{own.name}': the column '{column}' is {texts[1]} in this spec, but {texts[0]} in the machine '{machine.name}'"
                    hint = "decide which is right, and change the other"
                    diagnostics.append(Diagnostic("DSA317", "error", message, place(statement.span), hint))
    return tuple(diagnostics)


def start_outside(machine: Machine) -> tuple[Diagnostic, ...]:
    """Return the variables whose initial value lies outside their domain at the machine's parameter values."""
    diagnostics = []
    for variable, value in zip(machine.variables, machine.initial_values, strict=True):
        values = machine.values_of[variable.name]
        if not values.contains(value):
            at = show_values(machine.constants.items())
            message = f"variable '{variable.name}' starts as {show_value(value)}, outside {values}" + (
                f", at {at}" if at else ""
            )
            hint = "give it an initial value and bounds that fit all values of the parameters"
            diagnostics.append(Diagnostic("DSA205", "error", message, place(variable.span), hint))
    return tuple(diagnostics)
