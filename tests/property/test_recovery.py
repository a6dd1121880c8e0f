"""Recovery: however often a run is cut off, it comes to the same end, nothing acknowledged is lost, no result is worked out twice."""

import asyncio
import random
from collections import Counter

from crashes import RUN, Constant, World, live, saying
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from property.test_driver import BUSY_MACHINES, SLOW
from sample_sizes import sample_size

from dsa.declarations import OUTSIDE
from dsa.edge.document_files import load
from dsa.edge.stores.memory_store import MemoryStore
from dsa.runtime.ledger import EventEntry, ResultEntry, ResumedEntry, RowEntry
from dsa.runtime.run import begin, replay
from dsa.runtime.timeline import event_records
from dsa.semantics import Occurrence
from dsa.testing.strategies import machines

LIVES = st.lists(st.tuples(st.integers(1, 12), st.booleans()), max_size=6)


def lived(machine, seed, crashes, *, threads=True):
    """Let a run live through crashes; give its world and its ledger. Without threads for its guards nothing is left to chance."""
    chance = random.Random(seed)
    outside = [event.name for event in machine.events if event.origin == OUTSIDE]
    sent = [Occurrence(chance.choice(outside)) for _ in range(5)] if outside else []
    world = World(machine, MemoryStore(), saying(seed))
    guards = {guard.name: Constant(seed, guard.outcomes, blocks=threads) for guard in machine.guards}
    asyncio.run(asyncio.wait_for(live(machine, sent, world, guards, crashes), 60))
    return world, world.store.read(RUN).entries


def what_happened(ledger):
    """Return what the table sees: events with their verdicts, rows, results; not how often the run was cut off."""
    return [entry for entry in ledger if isinstance(entry, EventEntry | RowEntry | ResultEntry)]


def most_outstanding(machine, ledger):
    """How many effects the run waits for at once, at most. With several, which answers first may change when it is cut off."""
    run, most = begin(machine, RUN)[0], 0
    for happening in event_records(ledger):
        if happening.event is not None:
            run, _ = run.feed(happening.occurrence, happening.event.key)
            most = max(most, len(run.keys))
    return most


def retry_after_failure(happened, would_have):
    """Return where the lists part because the resumed run tries a failed effect again while the undisturbed run took another event; None if they do not."""
    keys = set()
    for place, entry in enumerate(happened):
        if isinstance(entry, ResultEntry):
            if entry.key in keys and place < len(would_have) and isinstance(would_have[place], EventEntry):
                return place
            keys.add(entry.key)
    return None


def require_safe(machine, seed, crashes):
    world, ledger = lived(machine, seed, crashes)
    replay(machine, ledger)
    results = Counter(entry.key for entry in ledger if isinstance(entry, ResultEntry))
    doubts = Counter(key for entry in ledger if isinstance(entry, ResumedEntry) for key, _ in entry.effects)
    for key, times in world.performed.items():
        assert times <= results[key] + doubts[key] + 1, f"{key} was performed again and not reported"
    undisturbed, expected = lived(machine, seed, [])
    if max(most_outstanding(machine, ledger), most_outstanding(machine, expected)) <= 1:
        happened, would_have = what_happened(ledger), what_happened(expected)
        if any(each.is_tired or each.is_cut for each in (world, undisturbed)):  # a resumed run goes on where it stopped
            shorter = min(len(happened), len(would_have))
            happened, would_have = happened[:shorter], would_have[:shorter]
        tried_again = retry_after_failure(happened, would_have)
        assert happened[:tried_again] == would_have[:tried_again]
    return doubts


@settings(max_examples=sample_size(18, full=60), phases=(Phase.generate,), deadline=None, suppress_health_check=SLOW)
@given(machines(claims=False), st.integers(0, 2**32), LIVES)
def test_run_of_any_machine_survives_crashes(machine, seed, crashes):
    require_safe(machine, seed, crashes)


def test_run_with_many_effects_at_once_survives_crashes():
    doubted = 0
    for seed in range(60):
        chance = random.Random(seed)
        crashes = [(chance.randint(1, 12), chance.random() < 0.5) for _ in range(chance.randint(1, 6))]
        doubted += sum(require_safe(BUSY_MACHINES[seed % 2], seed, crashes).values())
    assert doubted > 20


def test_shipped_agent_survives_a_crash_at_every_boundary():
    machine = load("dual_state")
    for seed in range(3):
        for countdown in range(1, 25):
            for late in (False, True):
                require_safe(machine, seed, [(countdown, late), (1, False), (1, True), (2, False), (2, True)])
