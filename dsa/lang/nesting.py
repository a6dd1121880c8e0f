"""The tree of states: parents that are only implied, initial children, the machine's initial state.

Takes the states as declared (or the names that rows mention), gives all states, parents before their children, and
the initial one. Faults go to the findings.
"""

from collections.abc import Iterable

from dsa.declarations import State
from dsa.errors import Span
from dsa.lang.findings import Findings


def with_parents(states: Iterable[State]) -> tuple[State, ...]:
    """Add the parents that dotted names imply, each before its first child."""
    listed = tuple(states)
    known = {state.name for state in listed}
    found: list[State] = []
    for state in listed:
        parts = state.name.split(".")
        for length in range(1, len(parts)):
            parent = ".".join(parts[:length])
            if parent not in known:
                known.add(parent)
                found.append(State(parent, span=state.span))
        found.append(state)
    return tuple(found)


def from_rows(mentioned: list[tuple[str, Span]], initial: str) -> tuple[State, ...]:
    """Give the states of a document without a States table: those its rows mention. `initial` is the initial one."""
    names = dict.fromkeys(name for name, _ in mentioned)
    spans = dict(reversed(mentioned))
    return with_parents(State(name, "initial" if name == initial else "", span=spans[name]) for name in names)


def initial_state(states: tuple[State, ...], targets: Iterable[tuple[str, Span]], at: Span, findings: Findings) -> str:
    """Find the machine's initial state, and check that every parent that is entered has one initial child.

    The initial state is the top-level state marked initial; when no top-level state is marked and exactly one state
    is, it is that one.
    """
    marked = [state for state in states if state.kind == "initial"]
    _require_leaves_final(states, findings)
    for state in marked:
        twins = [other for other in marked if other.parent == state.parent]
        if len(twins) > 1 and state is not twins[0]:
            where = f"of {state.parent}" if state.parent else "of the machine"
            message = f"{twins[0].name} and {state.name} are both the initial state {where}"
            findings.error("DSA206", message, state.span or at, "mark one of them")
    top = [state for state in marked if state.parent is None] or marked
    if not marked:
        hint = "mark one with kind 'initial' in the States table"
        findings.error("DSA206", "no state is initial", at, hint, about=_all(states))
        return states[0].name if states else ""
    if top[0].parent is not None and len({state.parent for state in top}) > 1:
        message = "no top-level state is initial, and several nested ones are"
        findings.error("DSA206", message, at, "mark the top-level state that the machine starts in")
    _require_entries(states, [(top[0].name, top[0].span or at), *targets], findings)
    return top[0].name


def _require_leaves_final(states: tuple[State, ...], findings: Findings) -> None:
    parents = {state.parent for state in states}
    for state in states:
        if state.kind == "final" and state.name in parents and state.span is not None:
            message = f"{state.name} is final and has children"
            findings.error("DSA206", message, state.span, "mark the children that are final instead")


def _require_entries(states: tuple[State, ...], targets: Iterable[tuple[str, Span]], findings: Findings) -> None:
    finals = {state.name for state in states if state.kind == "final"}  # reported already
    parents = {state.parent for state in states} - finals
    entries = {state.parent: state.name for state in states if state.kind == "initial"}
    for target, span in targets:
        inner = target
        while inner in parents and inner in entries:
            inner = entries[inner]
        if inner in parents:
            hint = "mark one of its children with kind 'initial' in the States table, or name the child"
            message = f"{inner} has children and none is initial, so it cannot be entered"
            children = (state for state in states if state.parent == inner)
            findings.error("DSA206", message, span, hint, about=_all(children))


def _all(states: Iterable[State]) -> str:
    """Name several states at once: that none of them is initial may follow from a fault in the row of one."""
    return ".".join(state.name for state in states)
