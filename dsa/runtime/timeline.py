"""What a ledger tells: its events one by one with all that came of each, the percepts a table saw, where another table differs.

Takes entries, and a machine where what was done must be read off its rows; gives values to be written down. Pure, and without a look at
anything but the ledger: the same ledger gives the same values in every process.
"""

from collections.abc import Iterable

import attrs

from dsa.declarations import Cancel, Emit, Transition
from dsa.errors import OccurrenceError
from dsa.expr import Value
from dsa.machine import Machine
from dsa.meaning import Configuration, Occurrence, Refusal, Taken, start, step
from dsa.runtime.intents import Intent, Intents
from dsa.runtime.ledger import Entry, EventEntry, MachineEntry, Record, RefusalEntry, RowEntry
from dsa.runtime.run import ArmTimer, Command, DropTimer, Run, begin


@attrs.frozen
class Happening:
    """One event, what the table made of it, and what was recorded until the next event, in this order.

    `event` and `outcome` are None for what was recorded before the first event.
    """

    event: EventEntry | None
    outcome: RowEntry | RefusalEntry | None
    after: tuple[Entry, ...] = ()

    @property
    def intents(self) -> tuple[Intent, ...]:
        """The effects that the row asked for."""
        entries = (self.event, self.outcome, *self.after)
        return tuple(Intents(entry for entry in entries if entry is not None).values())

    @property
    def occurrence(self) -> Occurrence:
        """The event as the table saw it."""
        assert self.event is not None, "something happened"
        return Occurrence(self.event.event, self.event.verdicts, self.event.source, self.event.data)


def happenings(entries: Iterable[Entry]) -> tuple[Happening, ...]:
    """Give a run's events with all that came of them; what stands before the first event comes first, if there is anything."""
    found: list[Happening] = []
    event: EventEntry | None = None
    outcome: RowEntry | RefusalEntry | None = None
    after: list[Entry] = []
    for entry in entries:
        match entry:
            case EventEntry():
                found.append(Happening(event, outcome, tuple(after)))
                event, outcome, after = entry, None, []
            case RowEntry() | RefusalEntry():
                outcome = entry
            case MachineEntry():
                pass
            case _:
                after.append(entry)
    found.append(Happening(event, outcome, tuple(after)))
    return tuple(found if found[0].after or found[0].event else found[1:])


@attrs.frozen
class Refused:
    """An event that was refused, why, and the state that the run was in."""

    event: EventEntry
    refusal: RefusalEntry
    state: str


def refused_from_outside(run: Run, since: int) -> tuple[Refused, ...]:
    """Give the events from outside, and the answers of people, that a run has refused; `since` is the first entry that is looked at."""
    state, found = start(run.machine).state, list[Refused]()
    for position, entry in enumerate(run.ledger):
        if isinstance(entry, RowEntry):
            state = entry.target
        elif isinstance(entry, RefusalEntry) and position > since:
            event = run.ledger[position - 1]
            assert isinstance(event, EventEntry), "a refusal stands behind its event"
            is_sent = event.source is None and (event.key is None or event.at is not None)
            found += [Refused(event, entry, state)] if is_sent else []
    return tuple(found)


# -- what the table saw -----------------------------------------------------------------------------------------------


@attrs.frozen
class Percept:
    """An occurrence with the action it led to: the items of the row's effects, or why it was refused; the state then, what changed.

    `by_key` tells that it was late only because of its key: `step` alone, which knows no keys, would say something else.
    """

    occurrence: Occurrence
    action: tuple[Emit | Cancel, ...] | str
    state: str
    changed: tuple[tuple[str, Value], ...] = ()
    by_key: bool = False


def percepts(machine: Machine, entries: Iterable[Entry]) -> tuple[Percept, ...]:
    """Give what a run perceived and did. The entries must be those of a run of this machine (`dsa.runtime.run.replay` says so)."""
    here, found = start(machine), []
    for happening in happenings(entries):
        if happening.event is None:
            continue
        result, recorded = _stepped(machine, here, happening.occurrence), happening.outcome
        if isinstance(recorded, RowEntry):
            assert isinstance(result, Taken), "the ledger is one of this machine"
            here = result.configuration
            found.append(Percept(happening.occurrence, result.transition.effects, here.state, recorded.changed))
        elif recorded is not None:
            by_key = not isinstance(result, Refusal) or result.reason != recorded.reason
            found.append(Percept(happening.occurrence, recorded.reason, here.state, by_key=by_key))
    return tuple(found)


def _stepped(machine: Machine, here: Configuration, occurrence: Occurrence) -> Taken | Refusal | None:
    """Give what `step` makes of an occurrence; None for one that means nothing there."""
    try:
        return step(machine, here, occurrence)
    except OccurrenceError:
        return None


# -- another table ----------------------------------------------------------------------------------------------------


@attrs.frozen
class Difference:
    """The first recorded event with which another machine does something else.

    `happening` is what was recorded and `commands` what it led to, `here` where the other machine was. `outcome` is what that one makes of the
    event, by which `row` (None: by none), and `instead` what it leads to; or `fault` says why the event means nothing to it.
    """

    happening: Happening
    commands: tuple[Command, ...]
    here: Configuration
    outcome: RowEntry | RefusalEntry | None = None
    instead: tuple[Command, ...] = ()
    row: Transition | None = None
    fault: str = ""


def first_difference(machine: Machine, entries: Iterable[Entry], own: Machine | None = None) -> Difference | None:
    """Let a machine take the events of any run; give the first with which it does something else, None when there is none.

    The same means: taken or refused for the same reason, the same states, values, accepted artifacts, and effects under the same keys; lines
    may differ. With `own`, the machine that the run is of, also: the same effects and timers are stopped and started, of which a
    ledger says nothing. Both are at the run's parameters. ValueError when the entries are those of no machine.
    """
    entries = tuple(entries)
    if not entries or not isinstance(entries[0], MachineEntry):
        raise ValueError("a run of a machine begins with it")
    run, _ = begin(machine, entries[0].run)
    was = None if own is None else begin(own, entries[0].run)[0]
    for happening in happenings(entries):
        if happening.event is not None:
            occurrence, key, at = happening.occurrence, happening.event.key, happening.event.at
            before, recorded = run, tuple[Command, ...](happening.intents)
            if was is not None:
                was, recorded = was.feed(occurrence, key, at=at)
            try:
                run, commands = run.feed(occurrence, key, at=at)
            except OccurrenceError as fault:
                return Difference(happening, recorded, before.configuration, fault=str(fault))
            if was is None:
                commands = tuple(command for command in commands if isinstance(command, Intent))
            outcome = _outcome(run, before)
            if _told(outcome, commands) != _told(happening.outcome, recorded):
                taken = _stepped(machine, before.configuration, occurrence)
                row = taken.transition if isinstance(taken, Taken) and isinstance(outcome, RowEntry) else None
                return Difference(happening, recorded, before.configuration, outcome, commands, row)
        run, was = _with(run, happening.after), was and _with(was, happening.after)
    return None


def _outcome(run: Run, before: Run) -> RowEntry | RefusalEntry:
    """Give what stands behind the event that a run was fed last."""
    outcome = run.ledger[len(before.ledger) + 1]
    assert isinstance(outcome, RowEntry | RefusalEntry), "an event is followed by what became of it"
    return outcome


def _with(run: Run, entries: Iterable[Entry]) -> Run:
    for entry in entries:
        run = run.record(entry) if isinstance(entry, Record) else run
    return run


def _told(outcome: RowEntry | RefusalEntry | None, commands: tuple[Command, ...]) -> object:
    """Give what must be the same: the effects in their order; what is stopped, and which timers run from zero or no more, in any order.

    A timer that is dropped and started again at once runs from zero, as one does that is started again.
    """
    if isinstance(outcome, RefusalEntry):
        return outcome.reason
    intents = tuple(attrs.evolve(command, line=None) for command in commands if isinstance(command, Intent))
    others = {command for command in commands if not isinstance(command, Intent)}
    started = {(command.source, command.event) for command in others if isinstance(command, ArmTimer)}
    again = {DropTimer(source, event) for source, event in started}
    return outcome and attrs.evolve(outcome, line=None), intents, frozenset(others - again)
