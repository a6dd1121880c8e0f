"""XState modules: a machine as JavaScript for XState 5, a `createMachine` with guards and assignments as functions.

Effects are actions with the names of the table, without an implementation: `machine.provide({ actions })` binds them. An event carries its verdicts:
`{ type: 'verdict', verdicts: { g: 'passed' } }`. An event that the table refuses changes nothing.
"""

import json
from collections.abc import Iterator

from dsa.declarations import STAR, Cancel
from dsa.expr import TRUE, Expr, Leaf, Name, Symbol, Value, Verdict, show_value, unparse, walk
from dsa.machine import Machine
from dsa.system import counter
from dsa.targets.closed_model import initial_values
from dsa.targets.spelling import Identifiers, Syntax
from dsa.targets.state_tree import LeafTransition, Leaves, Node, Timer, start_of, timer, timers_of, tree
from dsa.trace import show_values

SYNTAX = Syntax("&&", "||", "!", {"==": "===", "!=": "!=="})


def xstate(machine: Machine) -> str:
    """Write a machine as an XState module at its parameter values. Raises DsaError."""
    return "\n".join(_XStateModule(machine).lines()) + "\n"


class _XStateModule:
    def __init__(self, machine: Machine) -> None:
        self._machine, self._initial = machine, initial_values(machine)
        self._leaves = Leaves(machine)
        self._leaves.require_exact("JavaScript")
        self._context = Identifiers({"waiting", "__proto__"})
        self._flags = Identifiers({"__proto__"})
        self._numbers = {counter(effect).name: effect for effect in machine.numbered_effects}
        self._states = Identifiers({"__proto__"})

    def lines(self) -> Iterator[str]:
        machine = self._machine
        at = show_values(machine.constants.items())
        yield f"// {machine.name}, for XState 5, written by `dsa export --to xstate`{f' for {at}' if at else ''}."
        yield "// Bind the effects: machine.provide({ actions: { name: () => .. } }); when a final state is reached, stop what still runs."
        yield "import { assign, cancel, createMachine, raise } from 'xstate';"
        yield ""
        yield "export const machine = createMachine({"
        yield f"  id: {_quote(machine.name.replace('.', '_'))},"
        yield f"  context: {self._start()},"
        yield f"  initial: {_quote(self._state(start_of(machine)))},"
        if everywhere := timers_of(machine, STAR):
            yield f"  entry: [{', '.join(map(_start_timer, everywhere))}],"
        yield "  states: {"
        for node in tree(machine):
            yield from self._node(node, "    ")
        yield "  },"
        yield "});"

    def _start(self) -> str:
        values = [f"{self._variable(name)}: {_value(value)}" for name, value in self._initial.items()]
        numbers = self._machine.numbered_effects
        starts = ((effect, "0" if effect in numbers else "false") for effect in self._machine.answers)
        flags = ", ".join(f"{self._flag(effect)}: {start}" for effect, start in starts)
        return "{ " + ", ".join([*values, f"waiting: {{ {flags} }}" if flags else "waiting: {}"]) + " }"

    def _state(self, name: str) -> str:
        return self._states.give("", name)

    def _variable(self, name: str) -> str:
        return self._context.give("", name)

    def _flag(self, effect: str) -> str:
        return self._flags.give("", effect)

    def _node(self, node: Node, indent: str) -> Iterator[str]:
        yield f"{indent}{_key(self._state(node.name))}: {{"
        inner = indent + "  "
        yield f"{inner}id: {_quote(self._state(node.name))},"
        if node.is_final:
            yield f"{inner}type: 'final',"
        if not node.children:
            yield f"{inner}tags: [{_quote(node.name)}],"
        if (end := self._machine.ends.get(node.name)) is not None:
            yield f"{inner}// end when {unparse(end)}"
        if node.timers:
            yield f"{inner}entry: [{', '.join(map(_start_timer, node.timers))}],"
            yield f"{inner}exit: [{', '.join(map(_cancel_timer, node.timers))}],"
        if node.drops:
            yield f"{inner}entry: [{', '.join(map(_cancel_timer, node.drops))}],"
        if node.initial is not None:
            yield f"{inner}initial: {_quote(self._state(node.initial))},"
            yield f"{inner}states: {{"
            for child in node.children:
                yield from self._node(child, inner + "  ")
            yield f"{inner}}},"
        else:
            yield from self._transitions(node.name, inner)
        yield f"{indent}}},"

    def _transitions(self, leaf: str, indent: str) -> Iterator[str]:
        by_event: dict[str, list[LeafTransition]] = {}
        for arrow in self._leaves.arrows(leaf):
            source, event = arrow.key
            by_event.setdefault(_event(event) if source is None else timer(source, event).event, []).append(arrow)
        if not by_event:
            return
        yield f"{indent}on: {{"
        for event, arrows in by_event.items():
            yield f"{indent}  {_key(event)}: ["
            for arrow in arrows:
                yield f"{indent}    // {arrow.comment}"
                yield f"{indent}    {{ {', '.join(self._arrow(arrow))} }},"
            yield f"{indent}  ],"
        yield f"{indent}}},"

    def _arrow(self, arrow: LeafTransition) -> Iterator[str]:
        if arrow.condition != TRUE:
            yield f"guard: ({self._read(arrow.condition)}) => {self._write(arrow.condition)}"
        if arrow.target is not None:
            yield f"target: {_quote(f'#{self._state(arrow.target)}')}"
            if arrow.target == arrow.leaf:
                yield "reenter: true"
        if actions := list(self._actions(arrow)):
            yield f"actions: [{', '.join(actions)}]"

    def _read(self, condition: Expr) -> str:
        """Return the parameters that a condition needs."""
        is_verdict = [isinstance(node, Verdict) for node in walk(condition) if isinstance(node, Name | Verdict)]
        parts = ["context: c"] * (not all(is_verdict)) + ["event: e"] * any(is_verdict)
        return f"{{ {', '.join(parts)} }}" if parts else ""

    def _actions(self, arrow: LeafTransition) -> Iterator[str]:
        parts = [f"{self._variable(name)}: {self._write(value)}" for name, value in arrow.updates]
        changes = [(name, _value(value)) for name, value in arrow.flags]
        changes += [(name, self._write(number)) for name, number in arrow.numbers]
        if changes:
            flags = ", ".join(f"{self._flag(name)}: {value}" for name, value in changes)
            parts.append(f"waiting: {{ ...c.waiting, {flags} }}")
        if parts:
            read = "{ context: c }" if any("c." in part for part in parts) else ""
            yield f"assign(({read}) => ({{ {', '.join(parts)} }}))"
        if arrow.again:
            again = timer(*arrow.key)  # type: ignore[arg-type]  # only a timer's own row starts it again
            yield from (_cancel_timer(again), _start_timer(again))
        for item in arrow.row.effects:
            if isinstance(item, Cancel):
                which = "null" if item.effect is None else _quote(item.effect)
                yield f"{{ type: 'cancel', params: {{ effect: {which} }} }}"
            else:
                yield f"{{ type: {_quote(item.effect)} }}"

    def _write(self, expr: Expr) -> str:
        return SYNTAX.write(expr, self._leaf)

    def _leaf(self, node: Leaf) -> str:
        match node:
            case Symbol(value):
                return _quote(value)
            case Verdict(guard, outcome):
                return f"(e.verdicts?.[{_quote(guard)}] === {_quote(outcome)})"
            case Name(name, "variable") if name in self._numbers:
                return f"c.waiting.{self._flag(self._numbers[name])}"
            case Name(name, "variable"):
                return f"c.{self._variable(name)}"
            case Name(name, _):
                return f"c.waiting.{self._flag(name)}"


def _event(name: str) -> str:
    """Return an event's type: its name, unless the name is special in XState or JavaScript."""
    return f"event {name}" if name.startswith("xstate.") or name == "__proto__" else name


def _start_timer(what: Timer) -> str:
    event = _quote(what.event)
    return f"raise({{ type: {event} }}, {{ id: {event}, delay: {what.duration_ms} }})"


def _cancel_timer(what: Timer) -> str:
    return f"cancel({_quote(what.event)})"


def _quote(text: str) -> str:
    return "'" + json.dumps(text)[1:-1] + "'"


def _key(text: str) -> str:
    return text if text.isidentifier() and text.isascii() else _quote(text)


def _value(value: Value) -> str:
    return _quote(value) if isinstance(value, str) else show_value(value)
