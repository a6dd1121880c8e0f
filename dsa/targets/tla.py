"""TLA+ modules: a machine for TLC, with its configuration file.

TLC's distinct states are the machine's configurations. Behaviours in TLA+ may stutter, so a step that changes nothing is invisible; the fairness
conditions here take that into account.
"""

import re
from collections.abc import Iterable, Iterator

import attrs

from dsa.declarations import (
    Always,
    Form,
    LeadsTo,
    Never,
    Possible,
    Property,
    UnchangedClaim,
    Variable,
    expressions,
    show,
)
from dsa.expr import FALSE, TRUE, BooleanDomain, EnumDomain, Expr, Leaf, Name, Symbol, Value, all_of, negation, walk
from dsa.ground_system import Field
from dsa.machine import Machine
from dsa.system import after, at_start, happens
from dsa.targets.closed_model import ClosedCommand, closed_model, happened_on, require_small, timer_text
from dsa.targets.spelling import Identifiers, Syntax

_CONDITION = re.compile(r"[=#<>~]|/\\|\\/")
_MODULE = re.compile(r"(?!WF_|SF_)[A-Za-z0-9_]*[A-Za-z][A-Za-z0-9_]*")
#: Modules that an export extends, and words that TLC's parser does not accept as a module's name (tested with all reserved words).
_OTHER_MODULES = frozenset(
    {"Integers", "Naturals", "ASSUMPTION", "AXIOM", "COROLLARY", "LEMMA", "PROPOSITION", "THEOREM"}
)
SYNTAX = Syntax("/\\", "\\/", "~", {"==": "=", "!=": "#"}, "(IF {} THEN 1 ELSE 0)", "TRUE", "FALSE")


def tla(machine: Machine, module: str | None = None) -> str:
    """Write a machine as a TLA+ module at its parameter values; TLC wants it in a file of the module's name. Raises DsaError."""
    return "\n".join(_TlaModule(machine, module).lines()) + "\n"


def tla_config(machine: Machine) -> str:
    """Write the configuration for TLC: the properties that must hold. `possible` is left out: its violation is a witness."""
    claims = [_claim(number, item) for number, item in enumerate(machine.properties, 1)]
    lines = ["SPECIFICATION Spec", "INVARIANT InDomains"]
    lines += [f"{claim.keyword} Property_{claim.number}" for claim in claims if claim.keyword]
    return "\n".join(lines) + "\n"


def tla_unsaid(machine: Machine) -> tuple[str, ...]:
    """Return the properties that the module leaves out, and why."""
    claims = (_claim(number, item) for number, item in enumerate(machine.properties, 1))
    return tuple(f"{show(claim.item.form)}: {claim.words}" for claim in claims if claim.words)


def is_module_name(name: str) -> bool:
    """Return whether TLC accepts this name for a module; names that begin with WF_ or SF_ have a meaning in TLA+."""
    return _MODULE.fullmatch(name) is not None and name not in _OTHER_MODULES


def module_name(machine: Machine) -> str:
    """Return the module's name: the machine's, with `_` for dots, and `m_` before it where TLC would not take it."""
    name = machine.name.replace(".", "_")
    return name if is_module_name(name) else f"m_{name}"


@attrs.frozen
class _TlaProperty:
    """A property, its keyword in TLC's configuration (empty if it is not there), and why the module leaves it out, if so."""

    number: int
    item: Property
    keyword: str = ""
    words: str = ""


def _claim(number: int, item: Property) -> _TlaProperty:
    match item.form:
        case Always() | Never():
            return _TlaProperty(number, item, "INVARIANT")
        case Possible():
            return _TlaProperty(number, item)
        case UnchangedClaim():
            return _TlaProperty(number, item, "PROPERTY")
        case LeadsTo(doubts=(_, *_)):
            return _TlaProperty(
                number,
                item,
                words="the module does not contain effects that fail or never answer; dsa check judges this property",
            )
        case LeadsTo(is_weak=True):
            return _TlaProperty(
                number, item, words="the module contains only strong fairness; dsa check judges this property"
            )
        case LeadsTo(cause, goal) if not happens(cause) and not happens(goal):
            return _TlaProperty(number, item, "PROPERTY")
        case LeadsTo():
            return _TlaProperty(
                number, item, words="the property is about what happens at a step; the export to promela contains it"
            )
        case _:
            return _TlaProperty(
                number, item, words="the property needs memory or probabilities; see the exports to promela and prism"
            )


class _TlaModule:
    def __init__(self, machine: Machine, module: str | None) -> None:
        self._name = module or module_name(machine)
        self._model = model = closed_model(machine)
        require_small(model, "TLC")
        self._spell = Identifiers().give
        self._places = [f'"{model.label(place)}"' for place in range(len(model.locations))]
        self._claims = [_claim(number, item) for number, item in enumerate(machine.properties, 1)]

    def lines(self) -> Iterator[str]:
        model, machine = self._model, self._model.machine
        yield f"---- MODULE {self._name} ----"
        yield f"\\* {machine.name}, written by `dsa export --to tla` for {model.made_for}; export it again for other values."
        yield "EXTENDS Integers"
        yield ""
        for name, value in machine.constants.items():
            yield f"{self._spell('p_', name)} == {_value(value)}"
        names = ["at", *(self._variable(field.name) for field in model.fields)]
        yield f"VARIABLES {', '.join(names)}"
        yield f"vars == <<{', '.join(names)}>>"
        yield ""
        yield "Init =="
        yield f"  /\\ at = {self._places[0]}"
        for field in model.fields:
            yield f"  /\\ {self._variable(field.name)} = {_value(model.initial[field.name])}"
        yield ""
        for step in model.steps:
            yield from self._step(step)
        yield "Next =="
        yield from (f"  \\/ Step{step.number}" for step in model.steps)
        yield "  \\/ UNCHANGED vars \\* a run may end anywhere here; `dsa check` reports runs that get stuck"
        yield "Spec == Init /\\ [][Next]_vars"
        yield ""
        yield "InDomains =="
        yield f"  /\\ at \\in {_set(self._places)}"
        for variable, field in model.declared_fields:
            yield f"  /\\ {self._variable(field.name)} \\in {_domain(variable, field)}"
        yield ""
        yield from self._properties()
        yield "===="

    def _step(self, step: ClosedCommand) -> Iterator[str]:
        command = step.command
        yield f"\\* {step.comment}"
        yield f"Step{step.number} =="
        yield f"  /\\ at = {self._places[command.source]}"
        if step.condition != TRUE:
            yield f"  /\\ {_parenthesize(self.write(step.condition))}"
        yield f"  /\\ at' = {self._places[command.target]}"
        for name, value in command.updates:
            yield f"  /\\ {self._variable(name)}' = {_parenthesize(self.write(value))}"
        same = [self._variable(field.name) for field in self._model.fields if field.name not in command.after]
        if same:
            yield f"  /\\ UNCHANGED <<{', '.join(same)}>>"
        yield ""

    def _variable(self, name: str) -> str:
        return self._spell("v_", name)

    def write(self, expr: Expr) -> str:
        """Write an expression over a configuration."""
        return SYNTAX.write(expr, self._leaf)

    def _leaf(self, node: Leaf) -> str:
        match node:
            case Symbol(value):
                return f'"{value}"'
            case Name(name, "variable"):
                return self._variable(name)
            case Name(name, "parameter"):
                return self._spell("p_", name)
            case Name(name, "state" | "pending" as kind):
                return self._spell("in_" if kind == "state" else "pending_", name)
            case _:
                raise AssertionError("what happens is decided at a step")

    # -- properties ---------------------------------------------------------------------------------------------------

    def _properties(self) -> Iterator[str]:
        claims = [claim for claim in self._claims if not claim.words]
        yield from self._atoms(claim.item.form for claim in claims)
        if any(isinstance(claim.item.form, LeadsTo) for claim in claims):
            yield from self._progress()
        for claim in self._claims:
            place = f"line {claim.item.span.line}: " if claim.item.span else ""
            yield f"\\* {place}{show(claim.item.form)}"
            if claim.words:
                yield f"\\* Property {claim.number} is not expressed here: {claim.words}."
            else:
                if isinstance(claim.item.form, Possible):
                    yield "\\* A violation of this INVARIANT would be a witness, so the configuration does not contain it."
                yield f"Property_{claim.number} == {self._formula(claim.item.form)}"
            yield ""

    def _formula(self, form: Form) -> str:
        match form:
            case Always(condition):
                return self._never(condition, is_forbidden=False)
            case Never(condition) | Possible(condition):
                return self._never(condition, is_forbidden=True)
            case UnchangedClaim(trigger, values):
                return f"[][{self._unchanged_formula(trigger, values)}]_vars"
            case LeadsTo(cause, goal, fair):
                claim = f"({self.write(cause)}) ~> ({self.write(goal)})"
                assumptions = ["Progress", *(self._fair(name) for name in fair)]
                return f"({_all(assumptions)}) => ({claim})"
            case _:
                raise AssertionError("every other form is said in words")

    def _never(self, condition: Expr, *, is_forbidden: bool) -> str:
        """Return the formula that a condition is never true (`is_forbidden`), or never false, at any moment."""
        if not happens(condition):
            text = self.write(condition)
            return f"~({text})" if is_forbidden else text
        model = self._model
        bad = condition if is_forbidden else negation(condition)
        moments = ((step, after(model.system, step.command, bad)) for step in model.steps)
        parts = [f"~({self._taken(step, here)})" for step, here in moments if here != FALSE]
        if model.ground.ground_condition(at_start(model.system, bad)) != FALSE:
            parts.append("FALSE \\* at the start already")
        return "".join(f"\n  /\\ {part}" for part in parts) or "TRUE"

    def _taken(self, step: ClosedCommand, condition: Expr = TRUE) -> str:
        """Return the condition that a step can be taken with `condition` true."""
        whole = all_of([step.condition, condition])
        here = f"at = {self._places[step.command.source]}"
        return here if whole == TRUE else f"{here} /\\ {_parenthesize(self.write(whole))}"

    def _unchanged_formula(self, trigger: Expr, values: tuple[Expr, ...]) -> str:
        moments = ((step, after(self._model.system, step.command, trigger)) for step in self._model.steps)
        steps = [
            f"Step{step.number}" if here == TRUE else f"(Step{step.number} /\\ {_parenthesize(self.write(here))})"
            for step, here in moments
            if here != FALSE
        ]
        if not steps:
            return "TRUE"
        same = _all(f"({self.write(expr)})' = ({self.write(expr)})" for expr in values)
        return f"({_any(steps)}) => ({same})"

    def _progress(self) -> Iterator[str]:
        """Yield the formula that what must end does end (S12). A step that changes nothing is invisible, so waiting is allowed where one could be taken."""
        model = self._model
        yield "\\* Every outstanding effect is answered or cancelled, every armed timer fires or is dropped."
        yield "Progress =="
        for promise in model.promises:
            ending = [step for step in model.steps if promise in step.command.endings]
            yield f"  /\\ {self._some_time(ending, model.promise_places(promise))} \\* {timer_text(promise)}"
        yield "  /\\ TRUE"
        yield ""

    def _some_time(self, ending: list[ClosedCommand], waiting_places: tuple[tuple[int, Expr], ...]) -> str:
        steps = _any(f"Step{step.number}" for step in ending)
        idle = [(step, self._model.is_idle(step)) for step in ending]
        unseen = [f"({self._taken(step, here)})" for step, here in idle if here != FALSE]
        if not ending:
            return "TRUE"
        if not unseen and all(condition == TRUE for _, condition in waiting_places):
            return f"WF_vars({steps})"
        waits_not = _any([f"~({self._within(waiting_places)})", *unseen])
        return f"([]<>({waits_not}) \\/ []<><<{steps}>>_vars)"

    def _within(self, places: Iterable[tuple[int, Expr]]) -> str:
        """Return the condition of being at one of some locations while what is given with it is true."""
        places_by_condition: dict[Expr, list[str]] = {}
        for place, condition in places:
            places_by_condition.setdefault(condition, []).append(self._places[place])
        parts = [
            (f"at \\in {_set(names)}", "" if condition == TRUE else f" /\\ ({self.write(condition)})")
            for condition, names in places_by_condition.items()
        ]
        return _any(f"({at}{more})" if more else at for at, more in parts) or "FALSE"

    def _fair(self, name: str) -> str:
        """Return the formula that what is possible again and again happens again and again; it is invisible where it changes nothing."""
        steps = [s for s in self._model.steps if happened_on(s.command.occurrence, s.command.effects, name)]
        idle = [(step, self._model.is_idle(step)) for step in steps]
        unseen = [f"({self._taken(step, here)})" for step, here in idle if here != FALSE]
        taken = _any(f"Step{step.number}" for step in steps)
        if not steps:
            return "TRUE"
        if not unseen:
            return f"SF_vars({taken})"
        possible = _any(f"({self._taken(step)})" for step in steps)
        return f"(<>[]~({possible}) \\/ []<>({_any(unseen)}) \\/ []<><<{taken}>>_vars)"

    def _atoms(self, forms: Iterable[Form]) -> Iterator[str]:
        """Define the states and pending effects that formulas name."""
        nodes = (node for form in forms for expr in expressions(form) for node in walk(expr))
        for node in dict.fromkeys(n for n in nodes if isinstance(n, Name) and n.kind in {"state", "pending"}):
            model = self._model
            inside = [(place, TRUE) for place in model.inside(node.name)] if node.kind == "state" else []
            yield f"{self._leaf(node)} == {self._within(inside or model.pending(node.name))}"
        yield ""


def _parenthesize(text: str) -> str:
    """Put a condition into parentheses: TLA+ refuses `a' = b < c`."""
    return f"({text})" if _CONDITION.search(text) else text


def _all(parts: Iterable[str]) -> str:
    return " /\\ ".join(parts)


def _any(parts: Iterable[str]) -> str:
    return " \\/ ".join(parts)


def _set(items: Iterable[str]) -> str:
    return "{" + ", ".join(items) + "}"


def _value(value: Value) -> str:
    if isinstance(value, bool):
        return str(value).upper()
    return f'"{value}"' if isinstance(value, str) else str(value) if value >= 0 else f"({value})"


def _domain(variable: Variable, field: Field) -> str:
    match variable.domain:
        case BooleanDomain():
            return "BOOLEAN"
        case EnumDomain(values):
            return _set(f'"{value}"' for value in values)
        case _:
            return f"({field.low})..({field.low + field.size - 1})"
