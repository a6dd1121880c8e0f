"""A replay gives what the plain fold gives, and refuses what it refuses: the same entry, in the same words."""

import random
from collections import Counter

import attrs
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from property.test_driver import BUSY_MACHINES
from sample_sizes import sample_size
from unit.runtime.test_run import MACHINE as LOOP

from dsa.compiled_step import compiled_step
from dsa.edge.document_files import load
from dsa.errors import OccurrenceError
from dsa.machine import Machine, step_of
from dsa.runtime.ledger import (
    ArtifactEntry,
    DecidedEntry,
    EventEntry,
    GuardVerdict,
    MachineEntry,
    Record,
    ResultEntry,
    ResumedEntry,
    VerdictEntry,
)
from dsa.runtime.run import ReplayError, begin, guards_for, oldest_key, replay
from dsa.semantics import Occurrence, accepted_events
from dsa.testing.strategies import machines, occurrences

SLOW = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example)
#: More often than a row's event has to be met before the compiled step knows it.
WARM = 17


def plain_fold(machine, entries):
    """What a replay means, entry by entry."""
    if not entries or not isinstance(entries[0], MachineEntry):
        raise ReplayError(0, "a ledger begins with its machine")
    first = entries[0]
    run, _ = begin(machine, first.run, digest=first.digest, settings=dict(first.started), at_ms=first.at_ms)
    for position, entry in enumerate(entries):
        if position >= len(run.ledger):
            if isinstance(entry, EventEntry):
                occurrence = Occurrence(entry.event, entry.verdicts, entry.source, entry.data)
                run, _ = run.feed(occurrence, entry.key, at_ms=entry.at_ms)
            elif isinstance(entry, Record):
                run = run.record(entry)
            else:
                raise ReplayError(position, f"no earlier entry leads to {entry}")
        if run.ledger[position] != entry:
            raise ReplayError(position, f"the ledger has {entry}, but the machine gives {run.ledger[position]}")
    return run


def told(fold, machine, entries):
    """Return the result of a fold: the run, or what it raises."""
    try:
        return fold(machine, entries)
    except ReplayError as fault:
        return fault.position, str(fault)
    except OccurrenceError as fault:
        return str(fault)


def cold(machine: Machine):
    """The same machine, of which nothing has been worked out."""
    return attrs.evolve(machine)


def a_record(chance, run):
    """Something that policies do."""
    step = chance.choice([step_of(run.machine, run.configuration.state)] * 3 + ["other"])
    key, name = f"r/{run.seq}/1", f"a{chance.randint(1, 3)}"
    said = [GuardVerdict("g", chance.choice(["passed", "failed", "fatal"]), chance.choice(["", "no"]))]
    return chance.choice(
        [
            ArtifactEntry(key, step, 1, name, "digest"),
            VerdictEntry(key, step, 1, name, said * chance.randint(1, 2)),
            ResultEntry(key, ({"type": "event", "payload": {"n": 1}},)),
            ResumedEntry("ann", 5, effects={key: "retry"}, calls={f"{key}/1.1": "fail"}),
            DecidedEntry(key, "retry", chance.choice(["", "1.1"])),
        ]
    )


def played(machine, chance, occurrence_in, length):
    """A run of a machine, with whatever policies may do in between."""
    run, _ = begin(machine, "r", digest="d", settings={"seed": 1}, at_ms=3)
    for _ in range(length):
        if run.is_finished and chance.random() < 0.3:
            break
        if chance.random() < 0.4:
            run = run.record(a_record(chance, run))
            continue
        occurrence = occurrence_in(run)
        event = machine.event_named.get(occurrence.event)
        key = (oldest_key(run.keys, event.origin) or None) if event and occurrence.source is None else None
        try:
            run, _ = run.feed(occurrence, chance.choice([key] * 8 + [None, "1/1"]), at_ms=chance.choice([0, 5]))
        except OccurrenceError:
            continue
    return run


#: Values that may replace that of a field, beside those of the same field in other entries.
OTHER_VALUES = {str: ("", "x"), int: (0, 1, 99), tuple: ((),), dict: ({}, 5)}


def changed(chance, entry, entries):
    """An entry with another value in one of its fields."""
    field = chance.choice(attrs.fields(type(entry))).name
    others = [getattr(other, field) for other in entries if type(other) is type(entry)]
    return attrs.evolve(entry, **{field: chance.choice([*others, *OTHER_VALUES.get(type(getattr(entry, field)), ())])})


def spoilt(chance, entries):
    """The entries with one of them changed, lost, doubled, moved, or one from elsewhere put in."""
    position, found = chance.randrange(len(entries)), list(entries)
    entry = found[position]
    match chance.choice(["change"] * 6 + ["lose", "double", "move", "cut", "insert"]):
        case "change":
            found[position] = changed(chance, entry, entries)
        case "lose":
            del found[position]
        case "double":
            found.insert(position, entry)
        case "move":
            found.insert(chance.randrange(len(found)), found.pop(position))
        case "cut":
            del found[position:]
        case "insert":
            found.insert(position, chance.choice(entries))
    return found


def require_same(machine, run, chance, times=12):
    """Compare the fold that was worked out before with the plain one; return how often each thing came of it."""
    entries = list(run.ledger)
    for _ in range(WARM):
        replay(machine, entries)
    assert replay(machine, entries) == plain_fold(cold(machine), entries) == run
    seen = Counter()
    for _ in range(times):
        other = spoilt(chance, entries)
        expected = told(plain_fold, cold(machine), other)
        assert told(replay, machine, other) == expected
        seen[type(expected).__name__] += 1
    return seen


@settings(max_examples=sample_size(24, full=100), deadline=None, suppress_health_check=SLOW)
@given(st.data(), st.integers(0, 2**32))
def test_replay_agrees_with_the_plain_fold_on_any_ledger_right_or_damaged(data, seed):
    machine, chance = data.draw(machines(claims=False)), random.Random(seed)
    length = data.draw(st.integers(1, 25))
    run = played(machine, chance, lambda run: data.draw(occurrences(machine, run.configuration)), length)
    require_same(machine, run, chance)


def a_sensible_event(chance, run):
    """An event that the state has rows for, most of them such as the outstanding effects give."""
    machine, state = run.machine, run.configuration.state
    timers = [Occurrence(event, source=source) for source, event in machine.armed_timers(state)]
    origins = compiled_step(machine).origins
    events = [each for each in accepted_events(machine, state) if origins.get(each) in {"outside", *run.keys}]
    if not events or chance.random() < 0.05:
        return chance.choice([*timers, *map(Occurrence, origins)])
    event = chance.choice(events)
    said = {
        guard: chance.choice(["failed"] * 5 + ["passed"] * 2 + ["fatal"]) for guard in guards_for(machine, state, event)
    }
    return chance.choice([Occurrence(event, said, data={"n": 1})] * 5 + timers)


#: What passed is taken back without a new task, and a new task takes nothing back.
OTHER_ROWS = {"passed": {"event": "again"}, "stuck": {"updates": ()}}
OTHER_LOOP = attrs.evolve(
    LOOP, transitions=tuple(attrs.evolve(row, **OTHER_ROWS.get(row.source, {})) for row in LOOP.transitions)
)
MACHINES = [*BUSY_MACHINES, load("dual_state").at(rmax=50), LOOP.at(rmax=9), OTHER_LOOP.at(rmax=9), load("workflow")]


def test_replay_agrees_with_the_plain_fold_on_long_ledgers():
    seen = Counter()
    for seed in range(30):
        chance = random.Random(seed)
        machine = MACHINES[seed % len(MACHINES)]
        run = played(machine, chance, lambda run, chance=chance: a_sensible_event(chance, run), 120)
        seen += require_same(machine, run, chance, 40)
    assert seen["Run"] > 50
    assert seen["tuple"] > 400
