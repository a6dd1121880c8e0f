"""Promela models: a machine for SPIN, as one process with one `d_step` for each command.

Without `-DPROPERTY_k` the states of the model are exactly the machine's configurations. The memory of a property is compiled in only with its option.
"""

from collections.abc import Callable, Iterable, Iterator

import attrs

from dsa import declarations
from dsa.declarations import Variable
from dsa.expr import TRUE, BooleanDomain, Expr, Leaf, Name, Symbol, Value, Verdict, show_value, walk
from dsa.ground_system import Field
from dsa.machine import Machine
from dsa.system import GuardedCommand
from dsa.targets.closed_model import ClosedCommand, ClosedModel, closed_model, happened_on, require_small, sequential
from dsa.targets.spelling import Identifiers, Syntax

SYNTAX = Syntax("&&", "||", "!", number="({} -> 1 : 0)")
_BYTE, _SHORT = 256, 2**15


def promela(machine: Machine) -> str:
    """Write a machine as a Promela model at its parameter values. Raises DsaError."""
    model = closed_model(machine)
    require_small(model, "SPIN")
    return "\n".join(_PromelaModel(model).lines()) + "\n"


def promela_unsaid(machine: Machine) -> tuple[str, ...]:
    """Return the properties that the model leaves out, and why."""
    reasons = ((item, _unsaid(item.form)) for item in machine.properties)
    return tuple(f"{declarations.show(item.form)}: {words}" for item, words in reasons if words)


def _unsaid(form: declarations.Form) -> str:
    match form:
        case declarations.EverywherePossible():
            return "no temporal formula over single runs expresses it"
        case declarations.LeadsTo(doubts=(_, *_)):
            return "the model does not contain effects that fail or never answer; dsa check judges this property"
        case declarations.LeadsTo(is_weak=True):
            return "the model contains only strong fairness; dsa check judges this property"
        case declarations.Probability() | declarations.ExpectedCount():
            return "SPIN has no probabilities; export to prism"
    return "" if isinstance(form, _WrittenForm) else "the model cannot express this form; dsa check judges it"


#: The forms that a `_PropertyWatch` writes.
_WrittenForm = (
    declarations.Always
    | declarations.Never
    | declarations.UnchangedClaim
    | declarations.OnlyAfter
    | declarations.AtMost
    | declarations.Possible
    | declarations.LeadsTo
)


class _PromelaModel:
    def __init__(self, model: ClosedModel) -> None:
        self._model = model
        self.spell = Identifiers().give
        self._places = [self.spell("at_", model.label(place)) for place in range(len(model.locations))]
        numbers_and_items = enumerate(model.machine.properties, 1)
        self._watches = [(number, item, _PropertyWatch(self, item.form)) for number, item in numbers_and_items]

    def lines(self) -> Iterator[str]:
        model = self._model
        watches = [each for each in self._watches if not _unsaid(each[2].form)]
        properties = [(number, item, list(watch.lines())) for number, item, watch in watches]
        yield from self._heading([number for number, _, _ in properties])
        for name, value in model.machine.constants.items():
            yield f"#define {self.spell('p_', name)} {model.ground.number(value)}"
        for symbol, value in model.symbols.items():
            yield f"#define {self.spell('k_', symbol)} {value}"
        yield from (f"#define {name} {place}" for place, name in enumerate(self._places))
        yield ""
        yield f"{_width(0, len(self._places) + 1)} at = {self._places[0]};"
        for variable, field in model.declared_fields:
            yield self._declaration(variable, field)
        old_names = {name for step in model.steps for name in sequential(step.command.updates)[0]}
        for field in model.fields:
            if field.name in old_names:
                yield f"hidden int {self.spell('old_', field.name)};  /* scratch of one d_step */"
        yield ""
        yield from self._words()
        yield from self._atoms()
        for number, item, lines in properties:
            place = f", line {item.span.line}" if item.span else ""
            yield f"#ifdef PROPERTY_{number}  /* {_comment(declarations.show(item.form))}{place} */"
            yield from (*lines, "#endif", "")
        if properties:
            for hook in _HOOKS:
                yield from (f"#ifndef {hook.partition('(')[0]}", f"#define {hook}", "#endif")
            yield ""
        yield from self._process(has_properties=bool(properties))

    def _heading(self, numbers: list[int]) -> Iterator[str]:
        yield f"/* {self._model.machine.name}, for SPIN 6, written by `dsa export --to promela`"
        yield f" * for {_comment(self._model.made_for)}; export it again for other values."
        yield " * All configurations: spin -a FILE && gcc -O2 -DSAFETY -o pan pan.c && ./pan -m1000000"
        if numbers:
            yield " * One property: spin -DPROPERTY_1 -a FILE && gcc -O2 -o pan pan.c && ./pan -a -m1000000"
            yield " * An error is a counterexample (of `possible`, a witness); spin -t -p FILE shows it."
        yield " * A run may end anywhere here; `dsa check` reports runs that get stuck. */"
        yield ""

    def _words(self) -> Iterator[str]:
        for number, item, watch in self._watches:
            if words := _unsaid(watch.form):
                yield f"/* Property {number} is not expressed here: {_comment(declarations.show(item.form))}: {words}. */"

    def _declaration(self, variable: Variable, field: Field) -> str:
        is_bool = isinstance(variable.domain, BooleanDomain)
        width = "bool" if is_bool else _width(field.low, field.low + field.size)
        initial = self._value(self._model.initial[field.name])
        return f"{width} {self.spell('v_', field.name)} = {initial};"

    def _value(self, value: Value) -> str:
        return self.spell("k_", value) if isinstance(value, str) else show_value(value)

    def write(self, expr: Expr, old_names: Iterable[str] = ()) -> str:
        """Return an expression at a configuration or a moment; variables in `old_names` have their old values saved."""
        return SYNTAX.write(expr, lambda node: self._leaf(node, frozenset(old_names)))

    def _leaf(self, node: Leaf, old_names: frozenset[str]) -> str:
        match node:
            case Symbol(value):
                return self.spell("k_", value)
            case Verdict(guard, outcome):
                return self.spell("said_", f"{guard}.{outcome}")
            case Name(name, "variable"):
                return self.spell("old_" if name in old_names else "v_", name)
            case Name(name, kind):
                return self.spell(_PREFIXES[kind], name)

    def _atoms(self) -> Iterator[str]:
        """Define the states, pending effects, events, effects and verdicts that properties name."""
        model = self._model
        for node in dict.fromkeys(n for _, _, watch in self._watches if not _unsaid(watch.form) for n in watch.atoms()):
            match node:
                case Name(name, "state"):
                    places = [f"at == {self._places[place]}" for place in model.inside(name)]
                case Name(name, "pending"):
                    places = list(map(self._where, model.pending(name)))
                case Name(name, _):
                    places = self.steps_at(lambda c, name=name: happened_on(c.occurrence, c.effects, name))  # type: ignore[misc]  # mypy cannot infer the default
                case Verdict(guard, outcome):
                    verdict = (guard, outcome)
                    places = self.steps_at(lambda c, verdict=verdict: verdict in c.occurrence.verdicts)  # type: ignore[misc]  # as above
            yield f"#define {self._leaf(node, frozenset())} ({' || '.join(places) or 'false'})"
        yield ""

    def steps_at(self, predicate: Callable[[GuardedCommand], bool]) -> list[str]:
        """Return the conditions that the step taken is one of those with `predicate`."""
        return [f"step == {number}" for number in self._model.numbers(lambda step: predicate(step.command))]

    def _process(self, *, has_properties: bool) -> Iterator[str]:
        yield "active proctype machine()"
        yield "{"
        if has_properties:
            yield "  START"
        yield "end:"
        yield "  do"
        for step in self._model.steps:
            yield f"  /* {step.number}. {_comment(step.comment)} */"
            yield f"  :: d_step {{ {self._guard(step)} -> {self._body(step, has_properties=has_properties)} }}"
        yield from self._read_all()
        if has_properties:
            yield "  REST"
        yield "  od"
        yield "}"

    def _read_all(self) -> Iterator[str]:
        """Yield a step that reads every variable, as SPIN leaves unread ones out of its states."""
        total = " + ".join(self.spell("v_", field.name) for field in self._model.fields) or "0"
        yield "  /* Never taken: without this step, SPIN would drop variables that are never read. */"
        yield f"  :: d_step {{ at == {len(self._places)} && {total} == 0 -> skip }}"

    def _guard(self, step: ClosedCommand) -> str:
        here = f"at == {self._places[step.command.source]}"
        if step.condition == TRUE:
            return here
        return SYNTAX.conjunction.join((f"{here} ", f" {self._within(step.condition)}"))

    def _within(self, condition: Expr) -> str:
        text = self.write(condition)
        return f"({text})" if " || " in text else text

    def _body(self, step: ClosedCommand, *, has_properties: bool) -> str:
        old_names, updates = sequential(step.command.updates)
        parts = [f"{self.spell('old_', name)} = {self.spell('v_', name)}" for name in old_names]
        parts += [f"{self.spell('v_', name)} = {self.write(value, old_names)}" for name, value in updates]
        parts.append(f"at = {self._places[step.command.target]}")
        body = "; ".join(parts)
        return f"BEFORE {body} TAKEN({step.number})" if has_properties else body

    def fairness(self, form: declarations.LeadsTo) -> tuple[list[str], list[str]]:
        """Return the conditions that recur in every fair run (S12, `assuming fair`), and those that make a run that gave up an event unfair."""
        conditions, violations = [], []
        for promise in self._model.promises:
            endings = self.steps_at(lambda c, promise=promise: promise in c.endings)  # type: ignore[misc]  # as above
            places = " || ".join(map(self._where, self._model.promise_places(promise)))
            conditions.append(" || ".join((f"!({places})", *endings)))
        for number, name in enumerate(form.fair, 1):
            steps = [s for s in self._model.steps if happened_on(s.command.occurrence, s.command.effects, name)]
            can = " || ".join(f"({self._guard(step)})" for step in steps) or "false"
            violations.append(f"gave_up_{number} && ({can})")
            conditions.append(" || ".join([f"gave_up_{number}", *(f"step == {step.number}" for step in steps)]))
        return conditions, violations

    def rest_condition(self) -> str:
        """Return the condition under which a run may stay for ever (S12)."""
        system = self._model.system
        return " || ".join(map(self._where, self._model.where(system.may_rest))) or "false"

    def _where(self, here: tuple[int, Expr]) -> str:
        """Return the condition of being at a location while something is true there."""
        place, condition = here
        at = f"at == {self._places[place]}"
        return at if condition == TRUE else f"({at} && {self._within(condition)})"


@attrs.frozen
class _PropertyWatch:
    """The watch for one property."""

    model: _PromelaModel
    form: declarations.Form

    def atoms(self) -> Iterator[Name | Verdict]:
        """Yield the names other than variables' and parameters', and the verdicts."""
        for node in (node for expr in declarations.expressions(self.form) for node in walk(expr)):
            if isinstance(node, Verdict) or (isinstance(node, Name) and node.kind in _ATOM_KINDS):
                yield node

    def lines(self) -> Iterator[str]:
        """Yield the declarations of the property's memory, and its check after each step."""
        write = self.model.write
        match self.form:
            case declarations.LeadsTo():
                yield from self._liveness(self.form)
                return
            case declarations.UnchangedClaim(trigger, expressions):
                yield from (f"hidden int before_{place};" for place in range(len(expressions)))
                copies = "; ".join(f"before_{place} = ({write(expr)})" for place, expr in enumerate(expressions))
                yield f"#define BEFORE {copies};"
                same = " && ".join(f"before_{place} == ({write(expr)})" for place, expr in enumerate(expressions))
                yield f"inline watch() {{ assert(!({write(trigger)}) || ({same})) }}"
                yield "#define START skip;"
            case _:
                memory, watch = self._safety()
                yield from memory
                yield f"inline watch() {{ {watch} }}"
                yield "#define START d_step { step = 0; watch() }"
        yield "hidden int step;  /* which step was taken: scratch */"
        yield "#define TAKEN(number) ; step = number; watch()"

    def _liveness(self, form: declarations.LeadsTo) -> Iterator[str]:
        """Yield a never claim: a fair run in which Q is due for ever. In a fair run each condition comes true in turn, again and again.

        It is written out, because SPIN's translation of the same formula takes hours if several things must be fair.
        """
        cause, goal = self.model.write(form.cause), self.model.write(form.goal)
        fair, violations = self.model.fairness(form)
        yield "int step = 0;  /* which step was taken; 0 at the start and while a run rests */"
        yield "byte turn = 0;  /* which condition of fairness comes next; 255: this run is not fair */"
        yield "bool round = false;"
        yield from (
            f"bool gave_up_{number} = false;  /* {name} is never possible again */"
            for number, name in enumerate(form.fair, 1)
        )
        yield "inline watch() {"
        yield "  round = false;"
        yield from (f"  if :: {condition} -> turn = 255 :: else fi;" for condition in violations)
        yield from (
            f"  if :: turn == {n} && ({condition}) -> turn = {n + 1} :: else fi;" for n, condition in enumerate(fair)
        )
        yield f"  if :: turn == {len(fair)} -> turn = 0; round = true :: else fi"
        yield "}"
        yield "#define TAKEN(number) ; step = number; watch()"
        giving_up = "".join(
            f" :: d_step {{ !gave_up_{n} -> gave_up_{n} = true; round = false }}" for n in range(1, len(form.fair) + 1)
        )
        yield f"#define REST :: d_step {{ {self.model.rest_condition()} -> step = 0; watch() }}{giving_up}"
        yield "never {"
        yield f"  do :: ({cause}) && !({goal}) -> break :: true od;"
        yield "owed:"
        yield f"  do :: !({goal}) && !round :: !({goal}) && round -> goto accept_owed od;"
        yield "accept_owed:"
        yield f"  if :: !({goal}) -> goto owed fi"
        yield "}"

    def _safety(self) -> tuple[list[str], str]:
        write = self.model.write
        match self.form:
            case declarations.Always(condition):
                return [], f"assert({write(condition)})"
            case declarations.Never(condition) | declarations.Possible(condition):
                return [], f"assert(!({write(condition)}))"
            case declarations.OnlyAfter(later, earlier):
                watch = f"seen = (seen || ({write(earlier)})); assert(!({write(later)}) || seen)"
                return ["bool seen = false;"], watch
            case declarations.AtMost(bound, moment, between):
                count = f"if :: ({write(moment)}) -> assert(count < {write(bound)}); count = count + 1 :: else fi"
                if between is None:
                    return ["int count = 0;"], count
                opens, closes = map(write, between)
                watch = (
                    f"if :: open && ({closes}) -> open = false; count = 0 :: else fi; "
                    f"if :: !open && ({opens}) -> open = true :: else fi; "
                    f"if :: open -> {count} :: else fi"
                )
                return ["bool open = false;", "int count = 0;"], watch
            case _:
                raise AssertionError("every other form is said otherwise")


_PREFIXES = {"parameter": "p_", "state": "in_", "pending": "pending_", "event": "event_", "effect": "effect_"}
_ATOM_KINDS = {"state", "pending", "event", "effect"}
_HOOKS = ("BEFORE", "TAKEN(number)", "START", "REST")


def _width(low: int, end: int) -> str:
    """Return the narrowest type that holds the numbers from `low` to before `end`."""
    if low >= 0 and end <= _BYTE:
        return "byte"
    return "short" if low >= -_SHORT and end <= _SHORT else "int"


def _comment(text: str) -> str:
    """Return a text that does not end its comment."""
    return text.replace("*/", "* /").replace("/*", "/ *")
