"""The states of a machine as a tree, with the timers of each: what statechart tools nest.

Takes a machine, gives frozen nodes. The tree is entered at the machine's start only: arrows lead to leaves.
"""

import attrs

from dsa.declarations import STAR, TIMER_PREFIX, parse_duration
from dsa.machine import Machine


@attrs.frozen
class Timer:
    """A timer of one source. `event` names it with its source, as no event of a machine is named."""

    source: str
    duration: str
    event: str

    @property
    def duration_ms(self) -> int:
        """The duration."""
        duration_ms = parse_duration(self.duration.removeprefix(TIMER_PREFIX))
        assert duration_ms is not None, "timers are read as durations"
        return duration_ms


@attrs.frozen
class Node:
    """A state. `initial` is the child entered at the start, or the first one marked; `dropped` are the timers that end here.

    `timers` start when it is entered and are dropped when it is left (S11). A final leaf drops those of everything around it.
    """

    name: str
    is_final: bool
    children: tuple["Node", ...]
    initial: str | None
    timers: tuple[Timer, ...]
    dropped: tuple[Timer, ...] = ()


def timer(source: str, duration: str) -> Timer:
    """Give a timer: `after 30s` of `review`."""
    return Timer(source, duration, f"{duration} of {source}")


def timers_of(machine: Machine, source: str) -> tuple[Timer, ...]:
    """Give the timers of a source; `*` has some too."""
    events = machine.events_from.get(source, ())
    return tuple(timer(source, event) for event in events if event.startswith(TIMER_PREFIX))


def tree(machine: Machine) -> tuple[Node, ...]:
    """Give the states at the top level, those inside them within."""
    start = machine.entered(machine.initial)
    path = {start, *machine.ancestry(start)}
    return tuple(_node(machine, state.name, path) for state in machine.states if state.parent is None)


def _node(machine: Machine, name: str, path: set[str]) -> Node:
    inside = [state for state in machine.states if state.parent == name]
    first = [s for s in inside if s.name in path] or [s for s in inside if s.kind == "initial"] or inside
    is_final = name in machine.final_states
    dropped: list[Timer] = []
    if is_final:
        around = name
        while around := around.rpartition(".")[0]:
            dropped += timers_of(machine, around)
        dropped += timers_of(machine, STAR)
    children = tuple(_node(machine, state.name, path) for state in inside)
    initial = first[0].name if first else None
    return Node(name, is_final, children, initial, timers_of(machine, name), tuple(dropped))


def start_of(machine: Machine) -> str:
    """Give the state at the top level in which a run begins."""
    return machine.entered(machine.initial).partition(".")[0]
