"""Kinds that come with dsa, as a table names them: DSA215 for a misspelt one, for its options, and for guards that need cases and have none.

Takes a machine, gives warnings: a user's own module may give a kind of any name, and is not looked at here (`dsa check --with MODULE` does).
"""

from collections.abc import Iterator, Mapping

from dsa.checks.places import place
from dsa.declarations import Generator, Guard
from dsa.errors import Diagnostic, Span
from dsa.machine import Machine
from dsa.shipped_kinds import GENERATORS, GUARDS, Options
from dsa.words import closest, nearest

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
        yield _warning(f"{what} is no kind that comes with dsa", span, closest(name, known))


def _options(
    owner: str, kind: str, given: tuple[tuple[str, str], ...], known: Options, span: Span | None
) -> Iterator[Diagnostic]:
    for name, text in given:
        form = known.get(name, "").removesuffix("!")
        if not form:
            yield _warning(f"{owner} is of kind {kind}, which has no option '{name}'", span, closest(name, known))
        elif not _fits(text.strip(), form):
            yield _warning(f"option '{name}' of {owner} is '{text}', not {_FORMS[form]}", span, "")
    strangers = [name for name, _ in given if name not in known]
    for name, form in known.items():
        if form.endswith("!") and name not in dict(given) and nearest(name, strangers) is None:
            hint = f"write into the column options: {name} = {_FORMS[form.removesuffix('!')]}"
            yield _warning(f"{owner} is of kind {kind}, which needs the option '{name}'", span, hint)


def _fits(text: str, form: str) -> bool:
    """Tell whether the text of an option is of its form."""
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
    """Tell whether a guard is a part of another one only, whose section it may take."""
    return any(name in dict(row.options).get("of", "") for row in machine.guards)


def _needs_cases(owner: str, section: str, span: Span | None) -> Diagnostic:
    return _warning(f"{owner} tries cases, and there are none", span, f"write a section '## Cases: {section}'")


def _warning(message: str, span: Span | None, hint: str) -> Diagnostic:
    return Diagnostic("DSA215", "warning", message, place(span), hint)
