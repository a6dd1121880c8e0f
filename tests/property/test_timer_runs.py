"""The real driver and the order of timers (S11): whatever the clock does, no timer is refused as early, and checked properties of the order hold in runs."""

import random
from collections import Counter
from itertools import permutations

import attrs
import pytest
from simulations import written

from dsa.checks.report import check
from dsa.declarations import STAR, STAY, Effect, Emit, Event, OnlyAfter, Property, State, Transition
from dsa.expr import Name
from dsa.lang import dumps, loads
from dsa.machine import Machine
from dsa.runtime.ledger import EventEntry, RefusalEntry
from dsa.testing.simulation.seed_plan import Subject
from dsa.testing.simulation.story import Story

DURATIONS = ("after 1m", "after 90s", "after 6h", "after 24h", "after 48h", "after 7d")
STATES = {"a": "initial", "a.one": "initial", "a.two": "", "b": "", "b.one": "initial"}
#: Seeds from here on have also other faults than the one they aim at, and other ways.
LATER = 10_000

#: Reminders: a shorter timer that starts no later fires first, and starts again and again.
REMINDER = """# reminder
## Events
| event | from |
| - | - |
| submit | outside |
| answer | outside |
## States
| state | kind |
| - | - |
| idle | initial |
| waiting | |
| closed | final |
## Transitions
| source | event | effects | target |
| - | - | - | - |
| idle | submit | | waiting |
| waiting | after {short} | remind | = |
| waiting | after {middle} | escalate | = |
| waiting | after {long} | give_up | closed |
| waiting | answer | | closed |
## Properties
- escalate only after remind
- give_up only after escalate
"""
#: A child that is left by its own timer alone, and a parent whose timers run all the while; each reminder takes its time.
NESTED = """# nested
## Events
| event | from |
| - | - |
| submit | outside |
| more | outside |
| sent | send |
## States
| state | kind |
| - | - |
| idle | initial |
| open | |
| open.new | initial |
| open.old | |
| closed | final |
## Transitions
| source | event | effects | target |
| - | - | - | - |
| idle | submit | | open |
| open.new | after 24h | send | open.old |
| open.old | more | | open.old |
| open.old | after 36h | nag | = |
| open | sent | | = |
| open | after 7d | give_up, cancel | closed |
## Properties
- give_up only after send
- nag only after send
"""
KNOWN = {
    "reminder": REMINDER.format(short="24h", middle="48h", long="7d"),
    "a minute beside days": REMINDER.format(short="1m", middle="24h", long="7d"),
    "close together": REMINDER.format(short="1000ms", middle="1001ms", long="1002ms"),
    "nested": NESTED,
}


def timed_machine(number: int) -> Machine:
    """Return a machine of two parents and three leaves whose timers each have an effect of their own; it claims an order of every two."""
    chance = random.Random(number)
    sources, targets = (STAR, *STATES), (STAY, STAY, "a", "b", "a.one", "a.two", "b.one")
    timers = {(chance.choice(sources), chance.choice(DURATIONS)) for _ in range(chance.randint(2, 6))}
    effects = {timer: f"rung_{place}" for place, timer in enumerate(sorted(timers), 1)}
    rows = [
        Transition(s, what, chance.choice(targets), effects=(Emit(effects[s, what]),)) for s, what in sorted(timers)
    ]
    rows += [Transition(source, name, chance.choice(targets)) for source in ("a", "b") for name in ("go", "on")]
    claims = (
        OnlyAfter(Name(later, "effect"), Name(first, "effect")) for first, later in permutations(effects.values(), 2)
    )
    return Machine(
        f"timed_{number}",
        tuple(rows),
        tuple(State(name, kind) for name, kind in STATES.items()),  # type: ignore[arg-type]  # of the kinds above
        "a",
        events=(Event("go"), Event("on")),
        effects=tuple(Effect(name) for name in effects.values()),
        properties=tuple(map(Property, claims)),
    )


def holding(text: str) -> tuple[Subject, int]:
    """Return a document with those of its properties that are checked to hold, and how many those are."""
    machine = loads(text)
    verdicts = check(machine).properties
    kept = tuple(item for item, found in zip(machine.properties, verdicts, strict=True) if found.verdict == "HOLDS")
    return written(dumps(attrs.evolve(machine, properties=kept))), len(kept)


def played(text: str, seeds: range) -> Counter[str]:
    """Play seeds, and count what they show; none may break an oracle, the properties among them, or have a timer refused as early."""
    about, claimed = holding(text)
    found = Counter(properties=claimed)
    for seed in seeds:
        told = Story(about, seed, keep_log=True).play()
        assert told.violation is None, f"seed {seed}: {told.violation}\n{text}"
        refused = [entry.reason for entry in told.log if isinstance(entry, RefusalEntry)]
        assert "early" not in refused, f"seed {seed}\n{text}"
        rung = sum(isinstance(entry, EventEntry) and entry.source is not None for entry in told.log)
        found.update(runs=1, rung=rung, ringing=bool(rung), lives=told.lives, refused=len(refused))
        found.update(fault for fault in told.faults)
    return found


@pytest.mark.parametrize("name", KNOWN)
def test_checked_properties_of_reminders_hold_in_runs(name):
    found = played(KNOWN[name], range(LATER, LATER + 60))
    assert found["properties"] == 2
    assert found["rung"] > 60


def test_random_timers_fire_and_keep_checked_properties():
    found = Counter[str]()
    for number in range(12):
        found += played(dumps(timed_machine(number)), range(LATER, LATER + 12))
    assert found["rung"] > 300
    assert found["properties"] > 12
    assert found["clock back"] > 0
    assert found["clock forward"] > 0


def test_shorter_timer_fires_with_the_longer_one_after_the_clock_was_set_back():
    """A process whose clock says that a timer of 1m has an hour to go takes the run up; a timer of 90s that starts then is due first."""
    found = played(dumps(timed_machine(2)), range(10_038, 10_039))
    assert (found["clock back"], found["takeover"], found["rung"] > 1) == (1, 1, True)


@pytest.mark.full
def test_checked_properties_hold_in_ten_thousand_runs(figures):
    found = Counter[str]()
    for text in KNOWN.values():
        found += played(text, range(LATER, LATER + 1_000))
    for number in range(100):
        found += played(dumps(timed_machine(number)), range(LATER, LATER + 60))
    assert found["runs"] == 10_000
    names = (
        "runs",
        "ringing",
        "rung",
        "lives",
        "properties",
        "kill",
        "power cut",
        "takeover",
        "clock forward",
        "clock back",
    )
    figures("real driver, order of timers", "10,000 runs", **{name.replace(" ", "_"): found[name] for name in names})
