"""S9, Definition 4 of the paper: workflow state changes only when the guards have passed.

Takes a machine, gives diagnostics, one row at a time, for all values at once: nothing is explored. Whether a condition implies
that its guards passed is decided by going through the verdicts and taking everything else in it (comparisons, Boolean
variables) as free. That is sound: a row that is not reported cannot break the rule. It may report a row whose
condition would need arithmetic to be understood (`x < 1 and x > 2 or g.passed`); such a condition can be written plainer.

What can be told from the table without running it: dead ends, effects cancelled or emitted in vain, names that are never used.

Takes a machine, gives diagnostics. Looks at no values, so it holds for all of them.

The kinds of guards and generators that come with dsa, and their options, for who checks a table and builds nothing.

`dsa.guards.guard_kinds` and `dsa.generators.generator_kinds` build them; `tests/unit/test_shipped_kinds.py` holds this list to them.

Kinds that come with dsa, as a table names them: DSA215 for a misspelt one, for its options, and for guards that need cases and have none.

Takes a machine, gives warnings: a user's own module may give a kind of any name, and is not looked at here (`dsa check --with MODULE` does).

Faults of a table: what its rows and declarations alone show, at the machine's parameter values. Nothing is explored.
"""

from collections.abc import Callable, Iterator, Mapping

import attrs

from dsa.checks.places import cell, changed_by, place, read_by
from dsa.data_use import DEFAULT_GENERATOR, GENERATING_EFFECT
from dsa.declarations import (
    STAY,
    Assign,
    Cancel,
    Effect,
    Emit,
    Form,
    Generator,
    Guard,
    Revoke,
    RunParameter,
    Transition,
    Variable,
    show_duration,
)
from dsa.errors import Diagnostic, MachineError, Span
from dsa.expr import (
    And,
    Boolean,
    Domain,
    Expr,
    Not,
    Or,
    Outcome,
    RangeDomain,
    Verdict,
    conjunction,
    disjunction,
    guards_read,
    names,
    show_value,
    unparse,
    unparse_domain,
)
from dsa.machine import Machine, read_guards
from dsa.semantics import accepted_events
from dsa.text import closest, nearest
from dsa.trace import show_values

Known = Mapping[Expr | str, object]


def definition4(machine: Machine) -> tuple[Diagnostic, ...]:
    """Return the rows that set workflow state without their guards having passed, and (as information) those that may."""
    workflow = {variable.name for variable in machine.variables if variable.scope == "workflow"}
    judged = machine.judged_events | {row.event for row in machine.transitions if guards_read(row.condition)}
    found: list[Diagnostic] = []
    for rows in machine.rows_from.values():
        for row in rows:
            touched = [update for update in row.updates if update.variable in workflow]
            if touched:
                found += _row_verdict(machine, row, rows, touched, judged=row.event in judged)
    return tuple(found)


def _row_verdict(
    machine: Machine, row: Transition, rows: tuple[Transition, ...], touched: list[Assign | Revoke], *, judged: bool
) -> Iterator[Diagnostic]:
    for update in touched:
        span = place(update.span, cell(row, "update"))
        if isinstance(update, Revoke):
            yield Diagnostic("DSA211", "info", f"{row.source} on {row.event} takes back {update.variable}", span)
        elif not judged:
            message = f"{row.source} on {row.event} sets {update.variable}, and no guard judges {row.event}"
            yield Diagnostic("DSA211", "info", message, span)
    assigned = [update for update in touched if isinstance(update, Assign)]
    why = _unguarded(machine, row, rows) if judged and assigned else ""
    if why:
        names = ", ".join(update.variable for update in assigned)
        message = f"workflow state ({names}) is set although {why} (Definition 4)"
        judges = sorted(guards_read(row.condition)) or [g.name for g in machine.guards if row.event in g.judges]
        passed = f"write {judges[0]}.passed in the condition" if judges else "ask for a verdict in the condition"
        hint = f"{passed}, make {assigned[0].variable} an environment variable, or take it back with 'revoke {assigned[0].variable}'"
        yield Diagnostic("DSA210", "error", message, place(assigned[0].span, cell(row, "update")), hint)


def _unguarded(machine: Machine, row: Transition, rows: tuple[Transition, ...]) -> str:
    """Return how the row can be taken without every guard it reads having passed; empty when it cannot."""
    condition, guards = row.condition, tuple(sorted(guards_read(row.condition)))
    if row.is_else:
        plain = [other.condition for other in rows if not other.is_else]
        condition, guards = conjunction([condition, Not(disjunction(plain))]), read_guards(rows)
    if not guards:
        return f"the row reads no verdict, and {row.event} is judged"
    outcomes = {guard.name: guard.outcomes for guard in machine.guards}
    for guard in guards:
        for outcome in outcomes[guard]:
            if outcome != "passed" and possible(condition, outcomes, {guard: outcome}):
                return f"the row can be taken on {guard}.{outcome}"
    return ""


def possible(condition: Expr, outcomes: Mapping[str, tuple[Outcome, ...]], known: Known) -> bool:
    """Return whether a condition can be true, given the verdicts and atoms known; all others are free.

    Decides one unknown at a time, and only those that the condition then still hangs on.
    """
    unknown = _value(condition, known)
    if isinstance(unknown, bool):
        return unknown
    if isinstance(unknown, Verdict):
        guard = unknown.guard
        return any(possible(condition, outcomes, {**known, guard: said}) for said in outcomes[guard])
    return any(possible(condition, outcomes, {**known, unknown: choice}) for choice in (True, False))


def _value(expr: Expr, known: Known) -> bool | Expr:
    """Return the value of a condition, or the first atom that it hangs on and that is not known yet."""
    match expr:
        case Boolean(value):
            return value
        case Verdict(guard, outcome):
            return known[guard] == outcome if guard in known else expr
        case Not(operand):
            inner = _value(operand, known)
            return not inner if isinstance(inner, bool) else inner
        case And(operands):
            return _joined(operands, known, decides=False)
        case Or(operands):
            return _joined(operands, known, decides=True)
        case _:
            return bool(known[expr]) if expr in known else expr


def _joined(operands: tuple[Expr, ...], known: Known, *, decides: bool) -> bool | Expr:
    values = [_value(operand, known) for operand in operands]
    if decides in values:
        return decides
    return next((value for value in values if not isinstance(value, bool)), not decides)


#: The kind of guard that asks a generator: that of its option `by`, or the usual one.
_ASKING = "judge"


def dead_ends(machine: Machine) -> tuple[Diagnostic, ...]:
    """Return the states that are not final and have no row, neither their own nor an ancestor's nor one of `*`."""
    found = []
    for leaf in machine.leaves:
        if leaf in machine.ends:
            continue  # a run that gets there may be finished; where it is not, it is stuck, which exploring shows
        if leaf not in machine.final_states and not accepted_events(machine, leaf):
            message = f"{leaf} is not final, and no row leaves it: a run that gets there stays for ever"
            span = place(machine.state_named[leaf].span)
            found.append(
                Diagnostic(
                    "DSA303",
                    "error",
                    message,
                    span,
                    "add a row with this source, mark it final, or write 'end when ..'",
                )
            )
    return tuple(found)


def vain_effects(machine: Machine) -> tuple[Diagnostic, ...]:
    """Return effects that are cancelled although they cannot be outstanding, or emitted although nothing can come of it (S7)."""
    emitted = {item.effect for row in machine.transitions for item in row.effects if isinstance(item, Emit)}
    found: list[Diagnostic] = []
    for row in machine.transitions:
        found += _cancelled_in_vain(machine, row, emitted)
        found += _cancelled_at_once(machine, row)
        found += _emitted_into_final(machine, row)
    return tuple(found)


def _cancelled_in_vain(machine: Machine, row: Transition, emitted: set[str]) -> Iterator[Diagnostic]:
    for item in row.effects:
        if not isinstance(item, Cancel) or item.effect is None:
            continue
        if item.effect not in machine.answers:
            message = f"{item.effect} has no answers, so it is never outstanding and cannot be cancelled"
            yield _wrong(row, item, message, "declare an event that answers it, or delete this")
        elif item.effect not in emitted:
            yield _wrong(row, item, f"no row emits {item.effect}, so it cannot be cancelled", "emit it, or delete this")


def _cancelled_at_once(machine: Machine, row: Transition) -> Iterator[Diagnostic]:
    fresh = set[str]()
    for item in row.effects:
        if isinstance(item, Emit):
            fresh.add(item.effect)
            continue
        dropped = sorted(fresh & set(machine.answers) if item.effect is None else fresh & {item.effect})
        if dropped:
            hint = "to start it anew, write the cancel first"
            yield _wrong(row, item, f"{', '.join(dropped)} is emitted and cancelled by the same row", hint)


def _emitted_into_final(machine: Machine, row: Transition) -> Iterator[Diagnostic]:
    if row.target == STAY or machine.entry_leaf(row.target) not in machine.final_states:
        return
    for item in row.effects:
        if isinstance(item, Emit) and item.effect in machine.answers:
            message = f"{item.effect} has answers, but {row.target} is final: nobody waits for them"
            hint = "emit an effect without answers, or wait in a state that is not final"
            yield _wrong(row, item, message, hint)


def _wrong(row: Transition, item: Emit | Cancel, message: str, hint: str) -> Diagnostic:
    return Diagnostic("DSA213", "error", message, place(item.span, cell(row, "effects")), hint)


def unused(machine: Machine) -> tuple[Diagnostic, ...]:
    """Return the parameters, variables, events, effects, guards and generators that nothing uses; with Steps, where most names come from the expansion, only generators."""
    found = list(_generators(machine))
    if not machine.steps:
        used = _used_values(machine)
        found += _unless(used, "parameter", machine.parameters, "nothing reads it")
        found += _unless(used, "variable", machine.variables, "no row, property or scenario uses it")
        found += _events(machine)
        found += _effects(machine)
        found += _guards(machine)
    return tuple(found)


def _unused_warning(kind: str, name: str, why: str, span: Span | None) -> Diagnostic:
    return Diagnostic("DSA212", "warning", f"{kind} {name} is never used: {why}", place(span), "use it, or delete it")


def _unless(
    used: frozenset[str], kind: str, declared: tuple[RunParameter, ...] | tuple[Variable, ...], why: str
) -> Iterator[Diagnostic]:
    for item in declared:
        if item.name not in used:
            yield _unused_warning(kind, item.name, why, item.span)


def _used_values(machine: Machine) -> frozenset[str]:
    """Return the parameters and variables that rows, domains, properties or scenarios name."""
    found = set(read_by(machine.transitions) | changed_by(machine.transitions))
    for variable in machine.variables:
        found |= names(variable.initial) | _bounds(variable.domain)
    for claim in machine.properties:
        for expr in expressions(claim.form):
            found |= names(expr)
    for scenario in machine.scenarios:
        found |= {name for name, _ in scenario.parameters}
        found |= {name for step in scenario.steps for name, _ in step.values}
    return frozenset(found)


def _bounds(domain: Domain) -> frozenset[str]:
    if not isinstance(domain, RangeDomain):
        return frozenset()
    return names(domain.low) | (names(domain.high) if domain.high else frozenset())


def expressions(form: Form) -> Iterator[Expr]:
    """Yield the expressions of a property."""
    for value in attrs.asdict(form, recurse=False).values():
        for item in value if isinstance(value, tuple) else (value,):
            if isinstance(item, Expr):
                yield item


def _events(machine: Machine) -> Iterator[Diagnostic]:
    taken = {row.event for row in machine.transitions}
    for event in machine.events:
        if event.name not in taken:
            yield _unused_warning("event", event.name, "no row is for it", event.span)


def _effects(machine: Machine) -> Iterator[Diagnostic]:
    emitted = {item.effect for row in machine.transitions for item in row.effects if isinstance(item, Emit)}
    reported = {item.effect for row in machine.transitions for item in row.effects if isinstance(item, Cancel)}
    for effect in machine.effects:
        if effect.name not in emitted | reported:  # what is cancelled but not emitted is an error already
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
    used = {step.generator for step in machine.steps}
    used |= {DEFAULT_GENERATOR for guard in machine.guards if (guard.kind or guard.name) == _ASKING}
    used |= {dict(guard.options)["by"].strip() for guard in machine.guards if "by" in dict(guard.options)}
    emitted = {item.effect for row in machine.transitions for item in row.effects if isinstance(item, Emit)}
    if not machine.steps and GENERATING_EFFECT in emitted:  # it asks the only generator that there is, or `llm`
        used |= {DEFAULT_GENERATOR, *(row.name for row in machine.generators[:1] if len(machine.generators) == 1)}
    found: list[Generator] = [generator for generator in machine.generators if generator.name not in used]
    for generator in found:
        why = "no step names it" if machine.steps else "nothing asks it"
        yield _unused_warning("generator", generator.name, why, generator.span)


#: What an option may be: `text`, `number`, `whole` (a whole number), `flag` (true or false), `names`. With `!` the table must give it.
Options = Mapping[str, str]

_SANDBOXED = {"require": "names", "rung": "text"}
_TESTED = {"module": "text", "timeout_s": "number", "hardened": "flag", "show_expected": "flag", **_SANDBOXED}
_TOGETHER = {"of": "names!"}
_AT_ONCE = {**_TOGETHER, "parallel": "flag", "timeout_s": "number"}

GUARDS: Mapping[str, Options] = {
    "syntax": {},
    "cases": {"timeout_s": "number", "show_expected": "flag", **_SANDBOXED},
    "forbidden": {"imports": "names", "calls": "names", "fatal": "flag"},
    "regex": {"pattern": "text!", "whole": "flag", "absent": "flag", "hint": "text", "timeout_s": "number"},
    "review": {"question": "text"},
    "in_order": _TOGETHER,
    "tests": _TESTED,
    "are_tests": {"module": "text", "timeout_s": "number", **_SANDBOXED},
    "pytest": {"file": "text!", **_TESTED},
    "judge": {"question": "text!", "by": "text"},
    "command": {
        "command": "text!", "file": "text", "fence": "text", "timeout_s": "number", "memory_mb": "whole", "read": "names", **_SANDBOXED,
    },
    "ruff": {"select": "names", "ignore": "names", "line_length": "whole", "timeout_s": "number", **_SANDBOXED},
    "mypy": {"strict": "flag", "allow_ignores": "flag", "timeout_s": "number", **_SANDBOXED},
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
_FLAGS = frozenset({"true", "false", "yes", "no"})
_CASES, _DEFAULT_GENERATOR = "cases", "llm"


def kinds(machine: Machine) -> tuple[Diagnostic, ...]:
    """Return a warning for each row of Guards, Generators and Steps that no kind of dsa's can be built from as it is written."""
    return (*_of_guards(machine), *_of_steps(machine), *_of_generators(machine), *_without_cases(machine))


def _of_guards(machine: Machine) -> Iterator[Diagnostic]:
    steps = {step.name for step in machine.steps}
    for row in machine.guards:
        if row.name not in steps:
            yield from _row(f"guard {row.name}", row, GUARDS, {*machine.guard_named}, row.name)


def _of_generators(machine: Machine) -> Iterator[Diagnostic]:
    for row in machine.generators:
        kind = row.name if row.name in GENERATORS else _DEFAULT_GENERATOR
        yield from _row(f"generator {row.name}", row, GENERATORS, set(), kind)


def _row(
    owner: str, row: Guard | Generator, known: Mapping[str, Options], own: set[str], otherwise: str
) -> Iterator[Diagnostic]:
    kind = row.kind or otherwise
    if kind in known:
        yield from _options(owner, kind, row.options, known[kind], row.span)
    elif row.kind and row.kind not in own:
        yield from _misspelt(f"{owner} is of kind '{row.kind}', which", row.kind, known, row.span)


def _of_steps(machine: Machine) -> Iterator[Diagnostic]:
    """Report the guards that only the column `guard` of Steps names, where another name was meant."""
    for step in machine.steps:
        for name in step.guards:
            if name not in GUARDS and name not in machine.guard_named:
                yield from _misspelt(f"guard {name} of step {step.name}", name, GUARDS, step.span)


def _misspelt(what: str, name: str, known: Mapping[str, Options], span: Span | None) -> Iterator[Diagnostic]:
    if nearest(name, known) is not None:
        yield _kind_warning(f"{what} is no kind that comes with dsa", span, closest(name, known))


def _options(
    owner: str, kind: str, given: tuple[tuple[str, str], ...], known: Options, span: Span | None
) -> Iterator[Diagnostic]:
    for name, text in given:
        form = known.get(name, "").removesuffix("!")
        if not form:
            yield _kind_warning(f"{owner} is of kind {kind}, which has no option '{name}'", span, closest(name, known))
        elif not _fits(text.strip(), form):
            yield _kind_warning(f"option '{name}' of {owner} is '{text}', not {_FORMS[form]}", span, "")
    strangers = [name for name, _ in given if name not in known]
    for name, form in known.items():
        if form.endswith("!") and name not in dict(given) and nearest(name, strangers) is None:
            hint = f"write into the column options: {name} = {_FORMS[form.removesuffix('!')]}"
            yield _kind_warning(f"{owner} is of kind {kind}, which needs the option '{name}'", span, hint)


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
    """Report guards of kind `cases` for which there is no section: it is called like the step, or like the guard."""
    sections = {section.name for section in machine.cases}
    rows = {row.name for row in machine.guards if (row.kind or row.name) == _CASES} | {_CASES}
    for step in machine.steps:
        for name in step.guards:
            if name in rows and not sections & {step.name, name}:
                yield _needs_cases(f"guard {name} of step {step.name}", step.name, step.span)
    for row in machine.guards if not machine.steps else ():
        if row.name in rows and row.name not in sections and not _inner_part(machine, row.name):
            yield _needs_cases(f"guard {row.name}", row.name, row.span)


def _inner_part(machine: Machine, name: str) -> bool:
    """Return whether a guard is a part of another one only, whose section it may take."""
    return any(name in dict(row.options).get("of", "") for row in machine.guards)


def _needs_cases(owner: str, section: str, span: Span | None) -> Diagnostic:
    return _kind_warning(f"{owner} tries cases, and there are none", span, f"write a section '## Cases: {section}'")


def _kind_warning(message: str, span: Span | None, hint: str) -> Diagnostic:
    return Diagnostic("DSA215", "warning", message, place(span), hint)


#: How fields of declarations are written, those that are no texts.
_SHOWN: dict[str, Callable[..., str]] = {"time_limit_ms": show_duration, "domain": unparse_domain, "initial": unparse}


def require_sound(machine: Machine) -> None:
    """Raise MachineError for the errors of a table: with one of them nothing runs."""
    errors: tuple[Diagnostic, ...] | None = machine.worked_out.get("errors")
    if errors is None:
        found = (*start_outside(machine), *row_findings(machine))
        errors = machine.worked_out["errors"] = tuple(each for each in found if each.severity == "error")
    if errors:
        raise MachineError(errors)


def row_findings(machine: Machine) -> tuple[Diagnostic, ...]:
    """Return what rows and declarations show, at whatever values of the parameters: errors, warnings, information."""
    return (
        *said_otherwise(machine),
        *dead_ends(machine),
        *vain_effects(machine),
        *definition4(machine),
        *unused(machine),
        *kinds(machine),
    )


def said_otherwise(machine: Machine) -> tuple[Diagnostic, ...]:
    """Return where a machine declares an effect or a variable otherwise than its spec says."""
    found = []
    for stated in machine.spec_declarations:
        said = stated.declaration
        kind, known = ("effect", machine.effects) if isinstance(said, Effect) else ("variable", machine.variables)
        for own in (each for each in known if each.name == said.name):
            for column, field in stated.columns:
                has, wanted = getattr(own, field), getattr(said, field)
                if has != wanted:
                    shown = [
                        _SHOWN.get(field, str)(value) if value not in {None, ""} else "not given"
                        for value in (has, wanted)
                    ]
                    message = f"{kind} {own.name}: {column} is {shown[0]} in {machine.name}, and {shown[1]} in its spec"
                    hint = "decide which is right, and change the other"
                    found.append(Diagnostic("DSA317", "error", message, place(stated.span), hint))
    return tuple(found)


def start_outside(machine: Machine) -> tuple[Diagnostic, ...]:
    """Return the variables whose initial value lies outside their domain at the machine's parameter values."""
    found = []
    for variable, value in zip(machine.variables, machine.initial_values, strict=True):
        values = machine.values_of[variable.name]
        if not values.contains(value):
            at = show_values(machine.constants.items())
            message = f"{variable.name} starts as {show_value(value)}, outside {values}" + (f", at {at}" if at else "")
            hint = "give it an initial value and bounds that fit all values of the parameters"
            found.append(Diagnostic("DSA205", "error", message, place(variable.span), hint))
    return tuple(found)
