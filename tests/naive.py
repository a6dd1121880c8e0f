"""What properties mean, read off specs/semantics.md as plainly as it can be said, over explicit graphs made with the rulebook alone.

Slow, and written apart from `dsa.checks` and `dsa.semantics`: it shares no notion of steps, systems, observers, engines or components with them.
"""

from collections.abc import Callable, Hashable, Iterator
from itertools import chain, combinations

import attrs
import rulebook

from dsa.declarations import (
    Always,
    AtMost,
    Doubt,
    Emit,
    EverywherePossible,
    Form,
    LeadsTo,
    Never,
    OnlyAfter,
    Possible,
    UnchangedClaim,
)
from dsa.expr import evaluate, holds
from dsa.machine import Machine, environment
from dsa.semantics import Configuration, Occurrence, Taken

NOTHING = Occurrence("nothing")
#: The forms that speak of one run at a time.
TRACED = Always | Never | UnchangedClaim | LeadsTo | OnlyAfter | AtMost


@attrs.frozen
class Moment:
    """A row taken (at the start: none), and the configuration after it."""

    occurrence: Occurrence
    effects: tuple[str, ...]
    before: Configuration | None
    after: Configuration
    cancelled: tuple[str, ...] = ()
    moved: bool = False

    def names(self, machine: Machine) -> dict:
        """Everything that a property may name."""
        state = self.after.state
        said = dict(self.occurrence.verdicts)
        effects = {e.name for e in machine.effects} | {
            i.effect for row in machine.transitions for i in row.effects if isinstance(i, Emit)
        }
        return {
            **environment(machine, self.after.values),
            **{s.name: state == s.name or state.startswith(f"{s.name}.") for s in machine.states},
            **{f"pending {effect}": effect in self.after.outstanding for effect in machine.answers},
            "pending": bool(self.after.outstanding),
            **{effect: effect in self.effects for effect in effects},
            **{event: event == self.occurrence.event for event in machine.event_named},
            **{guard.name: said.get(guard.name) for guard in machine.guards},
        }

    def true(self, machine: Machine, condition) -> bool:
        return holds(condition, self.names(machine))


def occurrences(machine: Machine, here: Configuration) -> Iterator[Occurrence]:
    """What may come (S3, S7, S11)."""
    for event, source, rows in rulebook.what_may_come(machine, here):
        for verdicts in rulebook.verdicts_on(machine, rows):
            yield Occurrence(event, verdicts, source)


def following(machine: Machine, here: Configuration) -> list[Moment]:
    """Every moment that may be next."""
    found = []
    for occurrence in occurrences(machine, here):
        result = rulebook.follow(machine, here, occurrence)
        if isinstance(result, Taken):
            moved = result.transition.target != "="
            found.append(Moment(occurrence, result.effects, here, result.configuration, result.cancelled, moved))
    return found


def first(machine: Machine) -> Moment:
    return Moment(NOTHING, (), None, rulebook.begin(machine))


class TooLargeError(Exception):
    """Raised when a graph is larger than this is made for."""


Memory = Hashable


@attrs.frozen
class Graph:
    """All runs with a memory: nodes are (configuration, memory), edges moments. `moments` has every one, with its memory."""

    start: tuple[Configuration, Memory]
    edges: dict[tuple[Configuration, Memory], list[tuple[Moment, tuple[Configuration, Memory]]]]
    depth: dict[tuple[Configuration, Memory], int]


def graph(machine: Machine, remember: Callable[[Memory, Moment], Memory], most: int = 400) -> Graph:
    """`remember(memory, moment)` gives the memory after a moment; at the start the memory is None before."""
    begin = first(machine)
    root = (begin.after, remember(None, begin))
    edges, depth, layer = {}, {root: 0}, [root]
    moments: dict[Configuration, list[Moment]] = machine.worked_out.setdefault("moments of the oracle", {})
    while layer:
        further = []
        for node in layer:
            if node[0] not in moments:
                moments[node[0]] = following(machine, node[0])
            edges[node] = []
            for moment in moments[node[0]]:
                target = (moment.after, remember(node[1], moment))
                edges[node].append((moment, target))
                if target not in depth:
                    depth[target] = depth[node] + 1
                    further.append(target)
        if len(depth) > most:
            raise TooLargeError
        layer = further
    return Graph(root, edges, depth)


def met(machine: Machine, seen: Callable[[Memory, Moment], bool], remember=lambda _memory, _moment: None) -> int | None:
    """After how many steps a moment comes first at which `seen(memory before, moment)` is true."""
    found = graph(machine, remember)
    if seen(None, first(machine)):
        return 0
    steps = [
        found.depth[node] + 1 for node, edges in found.edges.items() for moment, _ in edges if seen(node[1], moment)
    ]
    return min(steps, default=None)


def violated(machine: Machine, form: Form) -> int | None:
    """After how many steps a form is broken at the earliest; None when it holds. Of `possible`: when P comes."""

    def true(condition, moment: Moment) -> bool:
        return moment.true(machine, condition)

    match form:
        case Never(p) | Possible(p):
            return met(machine, lambda _, now: true(p, now))
        case UnchangedClaim(trigger, expressions):

            def changed(_: Memory, now: Moment) -> bool:
                if now.before is None or not true(trigger, now):
                    return False
                old = Moment(NOTHING, (), None, now.before).names(machine)
                new = Moment(NOTHING, (), None, now.after).names(machine)
                return any(evaluate(expr, old) != evaluate(expr, new) for expr in expressions)

            return met(machine, changed)
        case OnlyAfter(later, earlier):
            return met(
                machine,
                lambda before, now: true(later, now) and not true(earlier, now) and not before,
                lambda before, now: bool(before) or true(earlier, now),
            )
        case AtMost(bound, counted, None):
            most = evaluate(bound, machine.constants)
            return met(
                machine,
                lambda before, now: (before or 0) + true(counted, now) > most,
                lambda before, now: min((before or 0) + true(counted, now), max(most, 0) + 1),
            )
        case AtMost(bound, counted, (opens, closes)):
            most = evaluate(bound, machine.constants)

            def scope(before: Memory, now: Moment) -> int | None:
                """The count in the open scope; None when none is open."""
                count = before
                if count is not None and true(closes, now):
                    count = None
                if count is None and true(opens, now):
                    count = 0
                if count is not None and true(counted, now):
                    count = min(count + 1, max(most, 0) + 1)
                return count

            def over(before: Memory, now: Moment) -> bool:
                count = scope(before, now)
                return count is not None and count > most

            return met(machine, over, scope)
        case EverywherePossible(p):
            return _stuck(graph(machine, lambda _, now: true(p, now)))
        case LeadsTo():
            return _owed_for_ever(machine, form)
        case _:
            return met(machine, lambda _, now: not true(form.condition, now))


def _stuck(found: Graph) -> int | None:
    able = {node for node in found.edges if node[1]}
    grown = True
    while grown:
        more = {node for node, edges in found.edges.items() if node not in able and any(to in able for _, to in edges)}
        able |= more
        grown = bool(more)
    return min((found.depth[node] for node in found.edges if node not in able), default=None)


def _owed_for_ever(machine: Machine, form: LeadsTo) -> int | None:
    """The steps to the nearest configuration from which Q can stay owed with everything that must happen happening again and again.

    A run that rests is taken as one that does nothing again and again. For each set of fair events that are to happen, the others
    must not be possible: so what is left is a search for a cycle with something of each of several sets of moves.
    """

    def owed(before: Memory, now: Moment) -> bool:
        return bool(before or now.true(machine, form.cause)) and not now.true(machine, form.goal)

    found = graph(machine, owed)
    nodes = {node for node in found.edges if node[1]}

    silent = {doubt.effect for doubt in form.doubts if doubt.what == "never answers"}
    named = {row.event for row in machine.transitions}
    failing = {d.effect for d in form.doubts if d.what == "fails" and f"{d.effect}.failed" not in named}
    best = [found.depth[n] for n in nodes if failing.intersection(n[0].outstanding)]  # the run may end there
    best += [
        found.depth[node] + 1
        for node, edges in found.edges.items()
        for moment, to in edges
        if to in nodes and (failing - machine.answers.keys()) & {*moment.effects}
    ]

    def may(name: str, node) -> bool:
        return any(is_fair(name, moment) for moment, _ in found.edges[node])

    strong = () if form.is_weak else form.fair
    for happening in chain.from_iterable(combinations(strong, n) for n in range(len(strong) + 1)):
        left = {n for n in nodes if not any(may(name, n) for name in strong if name not in happening)}
        moves = [(n, moment, to) for n in left for moment, to in found.edges[n] if to in left]
        moves += [(n, first(machine), n) for n in left if not promises(machine, n[0]) - silent]
        wanted = [[(a, m, b) for a, m, b in moves if is_fair(name, m)] for name in happening]
        if form.is_weak:
            wanted += [[(a, m, b) for a, m, b in moves if is_fair(name, m) or not may(name, a)] for name in form.fair]
        every = {promise for n in left for promise in promises(machine, n[0]) - silent}
        wanted += [[(a, m, b) for a, m, b in moves if _ends(machine, promise, a[0], m)] for promise in every]
        best += [found.depth[n] for n in _for_ever(left, moves, wanted)]
    return min(best, default=None)


def is_fair(name: str, moment: Moment) -> bool:
    """Return whether an event, an effect or a verdict happens at a moment."""
    said = [f"{guard}.{outcome}" for guard, outcome in moment.occurrence.verdicts]
    return name in (moment.occurrence.event, *moment.effects, *said)


def relied_on(machine: Machine, form: LeadsTo) -> list[str]:
    """The effects that a verdict of HOLDS relies on, read off S12."""
    given_up, needed = form.doubts, []
    listed = [effect.name for effect in machine.effects]
    asked = [item.effect for row in machine.transitions for item in row.effects if isinstance(item, Emit)]
    for effect in dict.fromkeys([*listed, *asked]):
        if effect in machine.answers:
            without = attrs.evolve(form, doubts=(*given_up, Doubt(effect, "never answers")))
            if violated(machine, without) is None:
                given_up = without.doubts
            else:
                needed.append(effect)
    return needed


def promises(machine: Machine, here: Configuration) -> set:
    return set(here.outstanding) | set(machine.armed_timers(here.state))


def _ends(machine: Machine, promise, before: Configuration, moment: Moment) -> bool:
    """Return whether the promise is kept by this move, or not given where it starts."""
    if promise not in promises(machine, before):
        return True
    if moment.occurrence is NOTHING:
        return False
    if isinstance(promise, str):
        return (
            machine.event_named.get(moment.occurrence.event) is not None
            and (machine.event_named[moment.occurrence.event].origin == promise)
        ) or promise in moment.cancelled
    source, timer = promise
    if (moment.occurrence.source, moment.occurrence.event) == (source, timer):
        return True
    old, new = before.state, moment.after.state
    if not moment.moved:
        return False
    if old == new:
        return source == old
    return source not in list(machine.ancestry(new))


def _for_ever(nodes, moves, wanted) -> set:
    """The nodes that some run can visit again and again, that takes a move of each wanted set again and again (Emerson and Lei)."""
    left = set(nodes)
    while True:
        keep = set(left)
        inside = [(a, m, b) for a, m, b in moves if a in left and b in left]
        after = {a: set() for a in left}
        for a, _, b in inside:
            after[a].add(b)
        reached = {n: _from(n, after) for n in left}
        keep &= {n for n in left if any(n in reached[b] for b in after[n])}
        for moves_wanted in wanted:
            ends = [(a, b) for a, m, b in moves_wanted if a in left and b in left]
            keep &= {n for n in left if any(a in reached[n] and n in reached[b] for a, b in ends)}
        if keep == left:
            return left
        left = keep


def _from(node, after) -> set:
    reached, todo = {node}, [node]
    while todo:
        for other in after[todo.pop()]:
            if other not in reached:
                reached.add(other)
                todo.append(other)
    return reached


def run(machine: Machine, happened) -> list[Moment]:
    """The moments of one run, the start included."""
    moments = [first(machine)]
    for occurrence in happened:
        now = moments[-1].after
        moments.append(next(m for m in following(machine, now) if m.occurrence == occurrence))
    return moments


def lasso_is_real(machine: Machine, form: LeadsTo, moments: list[Moment], loop: int) -> bool:
    """Return whether the moments after the first `loop` steps can be repeated for ever, with Q owed, as S12 and fairness allow."""
    owed = [False]
    for moment in moments:
        owed.append((owed[-1] or moment.true(machine, form.cause)) and not moment.true(machine, form.goal))
    round_ = moments[loop + 1 :] or [attrs.evolve(first(machine), before=moments[-1].after, after=moments[-1].after)]
    closes = moments[loop].after == moments[-1].after and all(owed[loop + 1 :])
    silent = {doubt.effect for doubt in form.doubts if doubt.what == "never answers"}
    failing = {doubt.effect for doubt in form.doubts if doubt.what == "fails"}
    failing -= {row.event.removesuffix(".failed") for row in machine.transitions}
    last = moments[-1]
    if loop == len(moments) - 1 and owed[-1] and failing & {*last.after.outstanding, *last.effects}:
        return True  # the run ends there
    every = {promise for moment in round_ for promise in promises(machine, moment.before) - silent}
    kept = all(any(_ends(machine, promise, moment.before, moment) for moment in round_) for promise in every)

    def may(name: str, moment: Moment) -> bool:
        return any(is_fair(name, other) for other in following(machine, moment.before))

    among = all if form.is_weak else any
    fair = all(
        any(is_fair(name, moment) for moment in round_) or not among(may(name, moment) for moment in round_)
        for name in form.fair
    )
    return closes and kept and fair


def watched(machine: Machine, form: Form, moments: list[Moment]) -> str:
    """What a monitor has to say of a run: by all ways to read the table of forms at every prefix."""

    def true(condition, place: int) -> bool:
        return moments[place].true(machine, condition)

    def old(place: int, expr):
        return evaluate(expr, attrs.evolve(moments[place], occurrence=NOTHING, effects=()).names(machine))

    places = range(len(moments))
    ended = moments[-1].after.state in machine.final_states
    match form:
        case LeadsTo(cause, goal):
            owed = any(true(cause, p) and not any(true(goal, q) for q in places if q >= p) for p in places)
            return ("violated" if owed else "satisfied") if ended else "pending"
        case OnlyAfter(later, earlier):
            if any(true(later, p) and not any(true(earlier, q) for q in places if q <= p) for p in places):
                return "violated"
            return "satisfied" if ended or any(true(earlier, p) for p in places) else "pending"
        case UnchangedClaim(trigger, expressions):
            broken = any(
                true(trigger, p) and any(old(p - 1, expr) != old(p, expr) for expr in expressions) for p in places[1:]
            )
        case AtMost(bound, counted, None):
            broken = sum(true(counted, p) for p in places) > evaluate(bound, machine.constants)
        case AtMost(bound, counted, (opens, closes)):
            broken = False
            opened = None
            for p in places:
                if opened is not None and true(closes, p):
                    opened = None
                if opened is None and true(opens, p):
                    opened = p
                if opened is not None:
                    counts = sum(true(counted, q) for q in range(opened, p + 1))
                    broken = broken or counts > evaluate(bound, machine.constants)
        case Never(p):
            broken = any(true(p, q) for q in places)
        case _:
            broken = not all(true(form.condition, p) for p in places)
    return "violated" if broken else "satisfied" if ended else "pending"
