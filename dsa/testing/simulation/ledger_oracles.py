"""Oracles of the ledger: what was acknowledged is there, what is there is what the table makes of the events.

Each takes the facts so far and one new fact, and says what is wrong with it.
"""

import attrs

from dsa.declarations import Assign
from dsa.expr import guards_read
from dsa.runtime.ledger import EffectEntry, Entry, EventEntry, MachineEntry, RefusalEntry, RowEntry
from dsa.semantics import Taken
from dsa.testing.simulation.facts import LedgerRead, LedgerWrite, RunFacts, oracle

# -- what a process reads as it takes a run up ------------------------------------------------------------------------


@oracle("P1")
def what_was_acknowledged_survives(facts: RunFacts, ledger_read: LedgerRead) -> str | None:
    """Whatever ended the process: kill, power cut, full disk."""
    entries = facts.entries
    if list(ledger_read.entries[: len(entries)]) == entries:
        return None
    missing = next((n for n, entry in enumerate(entries) if ledger_read.entries[n : n + 1] != (entry,)), len(entries))
    return f"entry {missing} was acknowledged as {entry_label(entries[missing])}, and is not there"


@oracle("P2")
def what_is_read_was_written(facts: RunFacts, ledger_read: LedgerRead) -> str | None:
    """No torn and no foreign row: beyond what was acknowledged, at most the append that was under way, all of it or nothing."""
    beyond = ledger_read.entries[len(facts.entries) :]
    if beyond in ((), facts.being_written):
        return None
    return f"beyond what was acknowledged there is {entry_label(beyond[0])}, which is not all that was being written"


# -- what becomes durable -----------------------------------------------------------------------------------------------


@oracle("P7")
def who_lost_a_run_writes_nothing(facts: RunFacts, write: LedgerWrite) -> str | None:
    """Entries of an old epoch never come after a newer one has begun."""
    if write.epoch == facts.epoch:
        return None
    return f"{entry_label(write.entries[0])} was written under epoch {write.epoch}, and the run is held under {facts.epoch}"


@oracle("P5")
def a_handle_that_failed_writes_nothing(_facts: RunFacts, write: LedgerWrite) -> str | None:
    """After an error nobody knows what is on the disk: its writer stops."""
    return None if write.may_write else f"{entry_label(write.entries[0])} was written after the store had failed"


@oracle("P6")
def an_event_is_durable_with_all_that_follows(facts: RunFacts, _write: LedgerWrite) -> str | None:
    """An event, its row, its intents and its timers are one append: a crash leaves all of it or nothing."""
    if not facts.expected_entries:
        return None
    return f"{entry_label(facts.expected_entries[0])} follows from an event that is durable, and is not"


@oracle("S10")
def a_ledger_begins_with_its_machine(facts: RunFacts, entry: MachineEntry | EventEntry) -> str | None:
    """Which machine, by name and digest; once."""
    if bool(facts.entries) is not isinstance(entry, MachineEntry):
        return None
    return f"entry {len(facts.entries)} is {entry_label(entry)}"


@oracle("S10")
def a_run_is_the_fold_of_its_events(facts: RunFacts, entry: Entry) -> str | None:
    """What follows an event is what `step` makes of it, and nothing else."""
    if isinstance(entry, MachineEntry):
        return None
    expected_entry = facts.expected_entries[0]
    if isinstance(entry, RowEntry) and isinstance(expected_entry, RowEntry):
        same = _row(entry) == _row(expected_entry)
    elif isinstance(entry, RefusalEntry) and isinstance(expected_entry, RefusalEntry):
        same = (entry.reason, entry.accepted) == (expected_entry.reason, expected_entry.accepted)
    else:
        same = entry == expected_entry
    return None if same else f"the table gives {_entry_details(expected_entry)}, the ledger has {_entry_details(entry)}"


def _row(entry: RowEntry) -> tuple[object, ...]:
    """Return what the table alone says of a row; it does not know which artifacts were accepted."""
    return entry.line, entry.source, entry.target, entry.changed


@oracle("S10")
def nothing_stands_there_that_nothing_led_to(
    facts: RunFacts, entry: RowEntry | RefusalEntry | EffectEntry
) -> str | None:
    """Rows, refusals and effects come from events."""
    return None if facts.expected_entries else f"nothing leads to {entry_label(entry)}"


@oracle("S10")
def events_are_numbered_without_a_gap(facts: RunFacts, event: EventEntry) -> str | None:
    """Refused ones too."""
    return None if event.seq == facts.seq + 1 else f"event {event.seq} stands behind event {facts.seq}"


@oracle("S11")
def an_entry_says_when_it_was_written(facts: RunFacts, entry: MachineEntry | EventEntry) -> str | None:
    """By the wall clock, or, where that was put back, as the event before it: the deadlines of timers are counted from it."""
    expected_ms = max(facts.written_ms, facts.read_ms)
    if entry.at_ms == expected_ms:
        return None
    return f"{entry_label(entry)} says that it came at {entry.at_ms}, and was written at {expected_ms}"


@oracle("S4")
def a_refusal_changes_nothing(facts: RunFacts, _entry: RefusalEntry) -> str | None:
    """It follows its event, and no effect and no timer follows it."""
    last = facts.entries[-1]
    return None if isinstance(last, EventEntry) else f"a refusal stands behind {entry_label(last)}"


@oracle("S9")
def workflow_state_changes_on_passed_verdicts_only(facts: RunFacts, entry: RowEntry) -> str | None:
    """Definition 4, over what was recorded: a row that sets workflow state had only passed verdicts to read."""
    taken, occurrence = facts.taken[-1], facts.occurrences[-1]
    if not occurrence.verdicts and occurrence.event not in facts.machine.judged_events:
        return None
    workflow = {v.name for v in facts.machine.variables if v.scope == "workflow"}
    assigned_names = {u.variable for u in taken.transition.updates if isinstance(u, Assign)}
    names = sorted(workflow & assigned_names & {name for name, _ in entry.changed})
    return f"{names[0]} changed at {occurrence.verdicts}" if names and not _all_passed(taken, facts) else None


def _all_passed(taken: Taken, facts: RunFacts) -> bool:
    read, verdicts = guards_read(taken.transition.condition), dict(facts.occurrences[-1].verdicts)
    return all(verdicts.get(guard) == "passed" for guard in read or verdicts)


# -- what the driver shows ------------------------------------------------------------------------------------------------


@oracle("P1")
def only_what_is_durable_is_shown(facts: RunFacts, moment: tuple[int, Entry]) -> str | None:
    """An observer of a run sees its entries in order, each once it is durable."""
    place, entry = moment
    if place < len(facts.entries) and facts.entries[place] == entry:
        return None
    return f"{entry_label(entry)} was shown before it was durable"


def entry_label(entry: Entry) -> str:
    """Return an entry in a few words: `the result query_llm 1/1`."""
    word = type(entry).__name__.removesuffix("Entry").lower()
    name = next((value for field in ("effect", "event", "reason") if (value := getattr(entry, field, None))), "")
    key = getattr(entry, "key", None) or ""
    return " ".join(filter(None, ("the", word, name, key)))


def _entry_details(entry: Entry) -> str:
    """Return an entry with all its fields, in one line."""
    fields = ((field.name, getattr(entry, field.name)) for field in attrs.fields(type(entry)))
    details = ", ".join(f"{name} = {value}" for name, value in fields if value not in (None, ""))
    return f"{entry_label(entry)} ({details})"
