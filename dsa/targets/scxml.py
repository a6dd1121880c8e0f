"""SCXML documents (W3C, 2015): a machine with nested states, transitions on leaves, and effects sent to the parent session.

Expressions use what ECMAScript and python-statemachine's loader have in common, so truth values are 0 and 1. An event carries its verdicts as data:
`_event.data.g == 'passed'`. An event that the table refuses changes nothing.
"""

from collections.abc import Iterator, Mapping
from keyword import kwlist
from xml.sax.saxutils import quoteattr

from dsa import expr
from dsa.declarations import STAR, Cancel
from dsa.expr import Leaf
from dsa.machine import Machine
from dsa.system import counter
from dsa.targets.closed_model import initial_values, sequential
from dsa.targets.spelling import Identifiers, Syntax
from dsa.targets.state_tree import LeafTransition, Leaves, Node, Timer, start_of, timer, timers_of, tree
from dsa.trace import show_values

#: The loader knows `&&`, `||` and `false`, and no `!` and no `?`. A truth value that is added to a number is 0 or 1, to ECMAScript too.
SYNTAX = Syntax("&&", "||", "{} == false", {}, "(0 + ({}))", "(1 == 1)", "(1 == 0)")
#: The namespace for domains, for which SCXML has no word.
NAMESPACE = "urn:dsa:machine"
#: Names of python-statemachine's own classes: states and events with these names get another one, and
#: so do names that begin with `_`, which belong to Python and the library.
TAKEN = frozenset({
    "activate_initial_state", "active_listeners", "add_event", "add_from_attributes", "add_inherited", "add_listener",
    "add_state", "allow_event_without_transition", "allowed_events", "atomic_configuration_update", "bind_events_to",
    "cancel_event", "catch_errors_as_events", "configuration", "configuration_values", "current_state",
    "current_state_value", "enable_self_transition_entries", "enabled_events", "events", "final_states",
    "history_values", "id", "initial_state", "is_terminated", "listeners", "model", "mro", "name", "prepare",
    "prepare_event", "raise_", "send", "start_configuration_values", "state_field", "states", "states_map",
    "TransitionNotAllowed", "validate_disconnected_states", "validate_final_reachability", "validate_trap_states",
})  # fmt: skip
#: The loader reads these words as operators and constants, in texts too.
_WORDS = frozenset({"v", "null", "true", "false"})
#: Names of guards that mean something else to the loader or the engine.
_OTHER_DATA = _WORDS | frozenset({
    *kwlist, "get", "machine", "model", "event", "event_data", "source", "state", "target", "transition", "self", "delay",
    "internal", "send_id", "args", "kwargs", "trigger_data", "error", "key", "cache_key", "on_error",
})  # fmt: skip


def scxml(machine: Machine) -> str:
    """Return a machine as SCXML at its parameter values. Raises DsaError."""
    return "\n".join(_Document(machine, initial_values(machine)).lines()) + "\n"


class _Document:
    def __init__(self, machine: Machine, initial: Mapping[str, expr.Value]) -> None:
        self._machine, self._initial = machine, initial
        self._leaves = Leaves(machine)
        self._leaves.require_exact("ECMAScript")
        self._ids, self._events = Identifiers(TAKEN), Identifiers(TAKEN)
        self._effects_as_events = Identifiers(machine.effect_named)
        self._data, self._symbols, self._guards = Identifiers(), Identifiers(_WORDS), Identifiers(_OTHER_DATA)
        self._flags = {effect: self._data.give("waits_", effect) for effect in machine.answers}
        self._numbers = {counter(effect).name: self._flags[effect] for effect in machine.numbered_effects}

    def lines(self) -> Iterator[str]:
        machine = self._machine
        at = show_values(machine.constants.items())
        yield '<?xml version="1.0" encoding="UTF-8"?>'
        yield f"<!-- {machine.name}, written by dsa export{f' for {at}' if at else ''}. Effects go to the parent session. -->"
        yield f'<scxml xmlns="http://www.w3.org/2005/07/scxml" xmlns:dsa="{NAMESPACE}" version="1.0" datamodel="ecmascript"'
        yield f"       name={quoteattr(machine.name)} initial={quoteattr(self._start)}>"
        yield from self._datamodel()
        nodes = tree(machine)
        if not timers_of(machine, STAR):
            yield from (line for node in nodes for line in self._node(node, "  "))
        else:
            yield from self._around([node for node in nodes if not node.is_final])
            yield from (line for node in nodes if node.is_final for line in self._node(node, "  "))
        yield "</scxml>"

    @property
    def _start(self) -> str:
        """Return the id of the initial state. A state around all that are not final starts and ends the timers of `*`."""
        start = start_of(self._machine)
        around = timers_of(self._machine, STAR) and start not in self._machine.final_states
        return self._ids.give("", "any state") if around else self._id(start)

    def _around(self, nodes: list[Node]) -> Iterator[str]:
        timers = timers_of(self._machine, STAR)
        start = start_of(self._machine)
        first = start if start in {node.name for node in nodes} else nodes[0].name
        yield f'  <state id="{self._ids.give("", "any state")}" initial={quoteattr(self._id(first))}>'
        yield "    <onentry>"
        yield from (f"      {_start_timer(what, self._timer(what))}" for what in timers)
        yield "    </onentry>"
        yield "    <onexit>"
        yield from (f'      <cancel sendid="{self._timer(what)}"/>' for what in timers)
        yield "    </onexit>"
        yield from (line for node in nodes for line in self._node(node, "    "))
        yield "  </state>"

    def _datamodel(self) -> Iterator[str]:
        machine = self._machine
        if not machine.variables and not self._flags:
            return
        yield "  <datamodel>"
        for variable in machine.variables:
            name, value = self._variable(variable.name), self._value(self._initial[variable.name])
            yield f"    <data id={quoteattr(name)} expr={quoteattr(value)} dsa:domain={quoteattr(self._domain(variable.name))}/>"
        old_names = {
            name for leaf in machine.leaves for a in self._leaves.arrows(leaf) for name in sequential(a.updates)[0]
        }
        for name in sorted(old_names):
            yield f'    <data id="{self._data.give("old_", name)}" expr="0" dsa:domain="scratch"/>'
        for effect, name in self._flags.items():
            yield f'    <data id="{name}" expr="0" dsa:domain="0..{machine.most_outstanding[effect]}"/>'
        yield "  </datamodel>"

    def _domain(self, name: str) -> str:
        domain = next(variable.domain for variable in self._machine.variables if variable.name == name)
        if isinstance(domain, expr.BooleanDomain):
            return "0..1"
        if isinstance(domain, expr.EnumDomain):
            return "{" + ", ".join(self._symbols.give("", value) for value in domain.values) + "}"
        return str(self._machine.values_of[name])

    def _id(self, state: str) -> str:
        return self._ids.give("s" if state.startswith("_") else "", state)

    def _event(self, name: str) -> str:
        return self._events.give("e" if name.startswith("_") else "", name)

    def _sent_event(self, effect: str) -> str:
        """Return the name of an effect as an event that is sent: as it is, since no brackets may be in it but those of an index."""
        return self._effects_as_events.give("", effect) if "[" in effect else effect

    def _variable(self, name: str) -> str:
        return self._data.give("v_", name)

    def _timer(self, what: Timer) -> str:
        return self._events.give("", what.event)

    def _node(self, node: Node, indent: str) -> Iterator[str]:
        tag = "final" if node.is_final else "state"
        name = f"<{tag} id={quoteattr(self._id(node.name))}"
        inner = indent + "  "
        lines = list(self._inside(node, inner))
        if not lines:
            yield f"{indent}{name}/>"
            return
        initial = "" if node.initial is None else f" initial={quoteattr(self._id(node.initial))}"
        yield from (f"{indent}{name}{initial}>", *lines, f"{indent}</{tag}>")

    def _inside(self, node: Node, indent: str) -> Iterator[str]:
        if node.timers or node.drops:
            yield f"{indent}<onentry>"
            yield from (f"{indent}  {_start_timer(what, self._timer(what))}" for what in node.timers)
            yield from (f'{indent}  <cancel sendid="{self._timer(what)}"/>' for what in node.drops)
            yield f"{indent}</onentry>"
        if node.timers:
            yield f"{indent}<onexit>"
            yield from (f'{indent}  <cancel sendid="{self._timer(what)}"/>' for what in node.timers)
            yield f"{indent}</onexit>"
        for child in node.children:
            yield from self._node(child, indent)
        if not node.children:
            if (end := self._machine.ends.get(node.name)) is not None:
                yield f"{indent}<!-- end when {expr.unparse(end).replace('--', '- -')} -->"
            for arrow in self._leaves.arrows(node.name):
                yield f"{indent}<!-- {arrow.comment.replace('--', '- -')} -->"
                yield from self._transition(arrow, indent)

    def _transition(self, arrow: LeafTransition, indent: str) -> Iterator[str]:
        source, event = arrow.key
        name = self._event(event) if source is None else self._timer(timer(source, event))
        parts = [f'<transition event="{name}"']
        if arrow.condition != expr.TRUE:
            parts.append(f"cond={quoteattr(self._write(arrow.condition))}")
        if arrow.target is not None:
            parts.append(f'target="{self._id(arrow.target)}"')
        content = list(self._content(arrow))
        if not content:
            yield f"{indent}{' '.join(parts)}/>"
            return
        yield f"{indent}{' '.join(parts)}>"
        yield from (f"{indent}  {line}" for line in content)
        yield f"{indent}</transition>"

    def _content(self, arrow: LeafTransition) -> Iterator[str]:
        old_names, updates = sequential(arrow.updates)
        for name in old_names:
            yield f'<assign location="{self._data.give("old_", name)}" expr="{self._variable(name)}"/>'
        for name, value in updates:
            yield from self._assign(self._variable(name), value, frozenset(old_names))
        for effect, waits in arrow.flags:
            yield f'<assign location="{self._flags[effect]}" expr="{int(waits)}"/>'
        for effect, number in arrow.numbers:
            yield f'<assign location="{self._flags[effect]}" expr={quoteattr(self._write(number))}/>'
        if arrow.again:
            again = timer(*arrow.key)  # type: ignore[arg-type]  # only a timer's own row starts it again
            yield f'<cancel sendid="{self._timer(again)}"/>'
            yield _start_timer(again, self._timer(again))
        for item in arrow.row.effects:
            name = self._sent_event(item.effect) if item.effect else str(item)
            event = f"cancel.{name}" if isinstance(item, Cancel) and item.effect else name
            yield f'<send event="{event}" target="#_parent"/>'

    def _assign(self, location: str, value: expr.Expr, old_names: frozenset[str]) -> Iterator[str]:
        if isinstance(value, expr.Boolean):
            yield f'<assign location="{location}" expr="{int(value.value)}"/>'
        elif isinstance(value, expr.Name) and self._is_condition(value):
            yield f'<assign location="{location}" expr="{self._data.give("old_" if value.name in old_names else "v_", value.name)}"/>'
        elif self._is_condition(value):
            yield f"<if cond={quoteattr(self._write(value, old_names))}>"
            yield f'  <assign location="{location}" expr="1"/>'
            yield "<else/>"
            yield f'  <assign location="{location}" expr="0"/>'
            yield "</if>"
        else:
            yield f"<assign location={quoteattr(location)} expr={quoteattr(self._write(value, old_names))}/>"

    def _is_condition(self, node: expr.Expr) -> bool:
        if isinstance(node, expr.Name):
            domain = next(variable.domain for variable in self._machine.variables if variable.name == node.name)
            return isinstance(domain, expr.BooleanDomain)
        return not isinstance(node, expr.Integer | expr.Symbol | expr.Arithmetic | expr.Negate | expr.Count)

    def _write(self, whole: expr.Expr, old_names: frozenset[str] = frozenset()) -> str:
        return SYNTAX.write(whole, lambda node: self._leaf(node, old_names))

    def _leaf(self, node: Leaf, old_names: frozenset[str]) -> str:
        match node:
            case expr.Symbol(value):
                return f"'{self._symbols.give('', value)}'"
            case expr.Verdict(guard, outcome):
                name = self._guards.give("g" if guard.startswith("_") else "", guard)
                return f"(_event.data.{name} == '{outcome}')"
            case expr.Name(name, "variable") if name in self._numbers:
                return self._numbers[name]
            case expr.Name(name, "variable"):
                identifier = self._data.give("old_" if name in old_names else "v_", name)
                return f"({identifier} == 1)" if self._is_condition(node) else identifier
            case expr.Name(name, _):
                return f"({self._flags[name]} == 1)"

    def _value(self, value: expr.Value) -> str:
        if isinstance(value, str):
            return f"'{self._symbols.give('', value)}'"
        return str(int(value))


def _start_timer(what: Timer, event: str) -> str:
    return f'<send event="{event}" id="{event}" delay="{what.duration_ms}ms"/>'
