"""Fits: whether a run in flight fits another table, decided the plain way: both fold its history, and everything that may follow is walked through.

Written with `dsa.semantics.step` alone, apart from `dsa.checks` and from runs. Slow, and for small machines only.
"""

from collections.abc import Iterable

from naive import occurrences
from oracle import is_end, timers_ended

from dsa.declarations import Emit
from dsa.errors import OccurrenceError
from dsa.machine import Machine
from dsa.runtime.ledger import EventEntry
from dsa.semantics import Configuration, Occurrence, Refusal, Taken, start, step

MOST = 3_000


class TooLargeError(Exception):
    """Raised when there is more to walk through than this is made for."""


def shared(old: Machine, new: Machine) -> list[str]:
    """The variables that both have."""
    return [v.name for v in old.variables if v.name in {w.name for w in new.variables}]


def seen(machine: Machine, here: Configuration, names: list[str]):
    """Return the part of a configuration that must be the same."""
    values = dict(zip((v.name for v in machine.variables), here.values, strict=True))
    known = tuple((name, type(values[name]), values[name]) for name in names)
    return (
        here.state,
        here.state in machine.final_states,
        here.outstanding,
        known,
        frozenset(machine.armed_timers(here.state)),
    )


def did(machine: Machine, here: Configuration, occurrence: Occurrence):
    """Return what `step` answers to an occurrence, and None for a malformed one."""
    try:
        return step(machine, here, occurrence)
    except OccurrenceError:
        return None


def restarted(machine: Machine, here: Configuration, taken: Taken) -> frozenset:
    """The timers that run from zero after a step."""
    ended = timers_ended(machine, here, taken)
    before = machine.armed_timers(here.state)
    return frozenset(t for t in machine.armed_timers(taken.configuration.state) if t in ended or t not in before)


# -- the history ------------------------------------------------------------------------------------------------------


class Fold:
    """One machine taking recorded events, keys and all."""

    def __init__(self, machine: Machine) -> None:
        self.machine, self.here, self.keys = machine, start(machine), {}

    def take(self, entry: EventEntry, names: list[str]):
        """Take an event; return everything about it that must be the same."""
        machine, here = self.machine, self.here
        occurrence = Occurrence(entry.event, entry.verdicts, entry.source)
        result = did(machine, here, occurrence)
        origin = None
        if entry.source is None and entry.event in machine.event_named:
            origin = machine.event_named[entry.event].origin
        known = result is not None or _known(machine, occurrence)
        if (
            known
            and entry.key is not None
            and here.state not in machine.final_states
            and self.keys.get(entry.key) != origin
        ):
            return "late"
        if not isinstance(result, Taken):
            return result and result.reason
        answered = entry.key or next((key for key, effect in self.keys.items() if effect == origin), None)
        older = {key: effect for key, effect in self.keys.items() if key != answered}
        begun, keys = self._performed(result, entry.seq, older)
        stopped = set(older) - set(keys)
        values = dict(zip((v.name for v in machine.variables), here.values, strict=True))
        after = dict(zip((v.name for v in machine.variables), result.configuration.values, strict=True))
        changed = {name: value for name, value in after.items() if values[name] != value}
        timers = restarted(machine, here, result)
        self.here, self.keys = result.configuration, keys
        return begun, stopped, changed, timers, keys, seen(machine, self.here, names)

    def _performed(self, result: Taken, seq: int, older: dict) -> tuple[list[tuple[str, str]], dict]:
        """Go through the effects of a row in order (S7, S10); return the emissions that begin, and the keys outstanding after the row."""
        machine, keys, emissions = self.machine, dict(older), []
        for item in result.transition.effects:
            if isinstance(item, Emit):
                emissions.append((item.effect, f"{seq}/{len(emissions) + 1}"))
                if item.effect in machine.answers:
                    keys[emissions[-1][1]] = item.effect
            else:
                keys = {key: effect for key, effect in keys.items() if item.effect not in {None, effect}}
        if result.configuration.state in machine.final_states:
            keys = {}
        return [(effect, key) for effect, key in emissions if effect not in machine.answers or key in keys], keys


def _known(machine: Machine, occurrence: Occurrence) -> bool:
    if occurrence.source is not None:
        return (occurrence.source, occurrence.event) in machine.rows_from
    if occurrence.event not in machine.event_named:
        return False
    return all(g in machine.guard_named and o in machine.guard_named[g].outcomes for g, o in occurrence.verdicts)


# -- the future -------------------------------------------------------------------------------------------------------


def faults(machine: Machine, here: Configuration, names: list[str]) -> list[tuple]:
    """Every configuration that can be come to, with what must be the same there: each event that may come, how it may come, how it is refused."""
    found, known, order = [], {here}, [here]
    outside = {event.name for event in machine.events if event.origin == "outside"}
    for at in order:  # grows while it is walked
        comes, refused, taken = {}, {}, []
        for occurrence in occurrences(machine, at):
            what = (occurrence.event, occurrence.source)
            comes.setdefault(what, []).append(dict(occurrence.verdicts))
            result = step(machine, at, occurrence)
            if isinstance(result, Taken):
                taken.append(result.configuration)
            elif occurrence.event not in outside or result.reason != "invalid_state":
                refused.setdefault((*what, result.reason), []).append(dict(occurrence.verdicts))
        is_over = at.state in machine.final_states or is_end(machine, at)
        if not taken and not at.outstanding and not machine.armed_timers(at.state) and not is_over:
            refused[None, None, "deadlock"] = comes[None, None] = [{}]
        seen_here = seen(machine, at, names)
        found.append(((seen_here[0], seen_here[2], seen_here[3]), comes, refused))
        for there in taken:
            if there not in known:
                known.add(there)
                order.append(there)
        if len(order) > MOST:
            raise TooLargeError
    return found


def has_fault(place, what, said: dict, old: list[tuple]) -> bool:
    """Return whether the old machine refuses the same for the same reason, however guards that it alone asks decide."""
    for where_it_is, comes, refused in old:
        if where_it_is == place and what[:2] in comes:
            alike = [
                v for v in comes[what[:2]] if all(said.get(guard, outcome) == outcome for guard, outcome in v.items())
            ]
            if alike and what in refused and all(verdicts in refused[what] for verdicts in alike):
                return True
    return False


def fits(old: Machine, new: Machine, entries: Iterable) -> bool:
    """Return whether a run of `old` may go on under `new`: the definition, word by word."""
    names = shared(old, new)
    one, other = Fold(old), Fold(new)
    if seen(old, one.here, names) != seen(new, other.here, names):
        return False
    for entry in entries:
        if isinstance(entry, EventEntry) and one.take(entry, names) != other.take(entry, names):
            return False
    if any(
        answer not in new.answers.get(effect, ()) for effect in one.here.outstanding for answer in old.answers[effect]
    ):
        return False
    before = faults(old, one.here, names)
    return all(
        has_fault(place, what, said, before)
        for place, _, refused in faults(new, other.here, names)
        for what, ways in refused.items()
        for said in ways
    )


def where(machine: Machine, entries: Iterable) -> Configuration:
    """Where a machine is after recorded events."""
    fold = Fold(machine)
    for entry in entries:
        if isinstance(entry, EventEntry):
            fold.take(entry, [])
    return fold.here


def told_apart(old: Machine, new: Machine, here: Configuration, there: Configuration) -> int | None:
    """After how many steps something tells two machines apart, None when nothing ever does."""
    names = shared(old, new)
    depth, order = {(here, there): 0}, [(here, there)]
    for a, b in order:  # grows while it is walked
        if seen(old, a, names)[:4] != seen(new, b, names)[:4]:
            return depth[a, b]
        if _promised(old, a) != _promised(new, b) or _asked(old, new, a, b):
            return depth[a, b] + 1
        for occurrence in _all(old, new, a, b):
            x, y = (_outcome(machine, at, occurrence) for machine, at in ((old, a), (new, b)))
            if not (isinstance(x, Taken) and isinstance(y, Taken)):
                if x != y:
                    return depth[a, b] + 1
                continue
            after = (x.configuration, y.configuration)
            same = (x.effects, x.cancelled, restarted(old, a, x)) == (y.effects, y.cancelled, restarted(new, b, y))
            if not same or seen(old, after[0], names)[:4] != seen(new, after[1], names)[:4]:
                return depth[a, b] + 1
            if after not in depth:
                depth[after] = depth[a, b] + 1
                order.append(after)
        if len(order) > MOST:
            raise TooLargeError
    return None


def _has_rows(machine: Machine, here: Configuration, occurrence: Occurrence) -> bool:
    if occurrence.source is not None:
        return (occurrence.source, occurrence.event) in machine.rows_from
    return occurrence.event in machine.event_named and bool(machine.rows_for(here.state, occurrence.event))


def _all(old: Machine, new: Machine, here: Configuration, there: Configuration) -> set[Occurrence]:
    """Return every occurrence that either can meet; what only one has rows for comes as that one has it."""
    mine, theirs = set(occurrences(old, here)), set(occurrences(new, there))
    return {o for o in mine if _has_rows(old, here, o) or not _has_rows(new, there, o)} | {
        o for o in theirs if _has_rows(new, there, o) or not _has_rows(old, here, o)
    }


def _outcome(machine: Machine, here: Configuration, occurrence: Occurrence):
    """Return what a machine does; one without a row for the event gets no verdicts, and one that does not declare it refuses it."""
    has_rows = _has_rows(machine, here, occurrence)
    result = did(machine, here, occurrence if has_rows else Occurrence(occurrence.event, (), occurrence.source))
    if isinstance(result, Refusal):
        return result.reason
    if result is None:
        return "cannot be said" if has_rows else "invalid_state"
    return result


def _promised(machine: Machine, here: Configuration) -> set:
    """The answers and timers that may come."""
    outside = {event.name for event in machine.events if event.origin == "outside"}
    return {(o.event, o.source) for o in occurrences(machine, here) if o.event not in outside}


def _asked(old: Machine, new: Machine, here: Configuration, there: Configuration) -> bool:
    """Return whether for something that both have rows for, other guards are asked, or could say other things."""
    asked = []
    for machine, at in ((old, here), (new, there)):
        found = {}
        for occurrence in occurrences(machine, at):
            if _has_rows(machine, at, occurrence):
                found[occurrence.event, occurrence.source] = {guard for guard, _ in occurrence.verdicts}
        asked.append(found)
    return any(asked[0][key] != asked[1][key] for key in asked[0].keys() & asked[1].keys())
