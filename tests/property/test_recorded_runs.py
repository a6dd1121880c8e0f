"""Recorded runs of any machine, cut off anywhere: each can be shown, is a scenario, and replays on its own table without a difference."""

from collections import Counter
from pathlib import Path

import attrs
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from property.test_driver import BUSY_MACHINES, SLOW
from property.test_recovery import LIVES, lived
from sample_sizes import sample_size

from dsa.checks.mutants import row_mutants
from dsa.checks.scenarios import run_scenarios
from dsa.cli.command_line import CommandExit
from dsa.cli.ledger_view import story
from dsa.cli.show import percept_lines, scenario_lines
from dsa.errors import OccurrenceError
from dsa.lang import dumps, loads
from dsa.runs.archive import RunRecord
from dsa.runs.summary import summary_of_record
from dsa.runtime.ledger import EffectEntry, EventEntry, Ledger, MachineEntry, Record, RefusalEntry, RowEntry
from dsa.runtime.run import begin, replay
from dsa.runtime.run_store import StoredRun
from dsa.runtime.status import status_of
from dsa.runtime.timeline import first_difference
from dsa.semantics import Occurrence
from dsa.testing.strategies import machines


def kept(machine, entries):
    entries = Ledger([attrs.evolve(entries[0], parameters=machine.constants), *list(entries)[1:]])
    run = replay(machine, entries)
    return RunRecord(StoredRun("r", dumps(machine), entries, 1), entries[0], run, status_of(run))


def whole_prefixes(entries):
    """Return every ledger that a crash can leave: an event, its row and what it asks for are written together."""
    for length in range(1, len(entries) + 1):
        following = entries[length] if length < len(entries) else None
        if not isinstance(following, RowEntry | RefusalEntry | EffectEntry):
            yield Ledger(list(entries)[:length])


def by_hand(machine, entries):
    """Return the number of the first event with which a machine does something else, from entries alone."""
    run, _ = begin(machine, entries[0].run)
    for position, entry in enumerate(entries):
        if isinstance(entry, EventEntry):
            try:
                run, _ = run.feed(Occurrence(entry.event, entry.verdicts, entry.source, entry.data), entry.key)
            except OccurrenceError:
                return entry.seq
            derived = list(run.ledger)[position + 1 :]
            recorded = list(entries)[position + 1 : position + 1 + len(derived)]
            if [without_line(each) for each in derived] != [without_line(each) for each in recorded]:
                return entry.seq
            following = position + 1 + len(derived)
            if following < len(entries) and isinstance(entries[following], EffectEntry):
                return entry.seq
        elif isinstance(entry, Record):
            run = run.record(entry)
    return None


def without_line(entry):
    if isinstance(entry, RefusalEntry):
        return entry.reason
    return attrs.evolve(entry, line=None) if hasattr(entry, "line") else entry


def require_told(machine, ledger):
    for entries in whole_prefixes(ledger):
        record = kept(machine, entries)
        assert list(story(record, Path(".dsa"), summary_of_record(record)))
        list(percept_lines(kept(machine, entries)))
    found = kept(machine, ledger)
    assert first_difference(machine, ledger, machine) is None
    try:
        section = "\n".join(scenario_lines(found))
    except CommandExit as fault:
        return "cannot be said" in fault.message
    results = run_scenarios(loads(f"{dumps(attrs.evolve(machine, scenarios=()))}\n{section}\n"))
    assert [result.ok for result in results] == [True], (section, results)
    return False


@settings(max_examples=sample_size(15, full=40), phases=(Phase.generate,), deadline=None, suppress_health_check=SLOW)
@given(machines(claims=False), st.integers(0, 2**32), LIVES)
def test_run_of_any_machine_can_be_shown_and_becomes_a_scenario(machine, seed, crashes):
    _, ledger = lived(machine, seed, crashes)
    require_told(machine, ledger)


def test_first_difference_of_a_mutant_is_the_event_found_by_hand():
    found = Counter()
    for seed in range(4):
        for machine in BUSY_MACHINES:
            _, ledger = lived(machine, seed, [])
            assert isinstance(ledger[0], MachineEntry)
            for mutant in row_mutants(machine):
                difference = first_difference(mutant.machine, ledger)
                seq = difference and difference.record.event.seq
                assert seq == by_hand(mutant.machine, ledger), mutant
                found[difference is None] += 1
    assert found[True] > 10
    assert found[False] > 10
