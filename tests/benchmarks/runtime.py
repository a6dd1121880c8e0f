"""What a run costs: one durable effect, a replay, opening a long run, an attempt of the dual-state agent, a whole run of it.

Processor time, median of rounds; where it is a ratio, both sides are measured in the same round. Beside each stands what is aimed at.
"""

import asyncio
import gc
import sqlite3
import statistics
import time
from collections.abc import Callable
from pathlib import Path

from artifact_runs import memory_folder
from timing import verdict

from dsa.edge.binding import Bindings
from dsa.edge.driver import Driver
from dsa.edge.files import load
from dsa.edge.stores.memory import MemoryStore
from dsa.edge.stores.sqlite import SqliteStore
from dsa.generators.scripted import ScriptedGenerator
from dsa.lang import loads
from dsa.machine import Machine
from dsa.meaning import Occurrence
from dsa.runtime.artifacts import MemoryArtifacts
from dsa.runtime.content import Artifact, GuardInterface, GuardResult
from dsa.runtime.journal import Beginning, RunStore
from dsa.runtime.ledger import Entry, EventEntry, Ledger, ResultEntry
from dsa.runtime.policies import Action, PolicyContext, Step, answering, event_step
from dsa.runtime.recovery import unfinished
from dsa.runtime.rest import Rest
from dsa.runtime.run import Run, begin, replay
from dsa.runtime.secrets import Secrets
from dsa.runtime.standing import standing
from machines.dual_state import bindings

ROUNDS, EFFECTS, RUNS, EVENTS = 9, 1_000, 200, 10_000
SIZES = (10, 100, 1_000, 10_000, 100_000)
RUN_ID, RECORD = "20260131T120000-agent-9f3a1c", "x" * 300
TEXT = "def add(a, b):\n    return a + b\n"
NO_SECRETS = Secrets()

#: One effect after the other, as often as wanted: an event, its row, an intent, a result each.
CHAIN = """# chain
## Parameters
| parameter | domain | default |
| - | - | - |
| most | 0.. | 10 |
## Variables
| variable | domain | initial |
| - | - | - |
| count | 0..most | 0 |
## Events
| event | from |
| - | - |
| go | outside |
| done | work |
## Transitions
| source | event | if | update | effects | target |
| - | - | - | - | - | - |
| idle | go | | | work | working |
| working | done | count < most | count += 1 | work | working |
| working | done | else | | | idle |
"""


@answering("done", is_eager=True)
async def work(_action: Action, _context: PolicyContext) -> list[Step]:
    return [event_step("work", "done")]


class Passing(GuardInterface):
    """Rejects until the last of so many attempts."""

    blocks = False

    def __init__(self, attempts: int) -> None:
        self._left = attempts

    def validate(self, _artifact: Artifact, **_dependencies: Artifact) -> GuardResult:
        self._left -= 1
        return GuardResult(self._left <= 0, "" if self._left <= 0 else "no")


def driver_of(machine: Machine, binding: Bindings, store: RunStore) -> Driver:
    run, commands = begin(machine, RUN_ID)
    journal = Beginning(store, run.run_id, "text")
    return Driver(run, binding, MemoryArtifacts(), commands=commands, journal=journal)


def chained(machine: Machine, store: RunStore) -> Run:
    """Perform as many effects as the machine says, one after the other."""
    driver = driver_of(machine, Bindings({"work": work}, secrets=NO_SECRETS), store)
    return asyncio.run(driver.drive(Occurrence("go"))).run


def chain(effects: int) -> Machine:
    return loads(CHAIN).at(most=effects - 1)


async def attempted(machine: Machine, attempts: int) -> Rest:
    """Let the dual-state agent make so many attempts, of which the last passes."""
    generators = {"llm": ScriptedGenerator([TEXT] * attempts)}
    binding = Bindings(bindings.effects, {"g": Passing(attempts)}, generators, NO_SECRETS)
    return await driver_of(machine, binding, MemoryStore()).drive(Occurrence("specification", data="Write add"))


def agent_run(attempts: int) -> Run:
    return asyncio.run(attempted(load("dual_state").at(rmax=attempts), attempts)).run


def taken_us(work: Callable[[], object]) -> float:
    """Give the processor time of one call in microseconds."""
    gc.collect()
    begun = time.process_time()
    work()
    return (time.process_time() - begun) * 1e6


# -- a durable effect ---------------------------------------------------------------------------------------------------


def raw_us(folder: Path) -> float:
    """Give what a commit of one record costs when nothing else is done, or of all that is said of an effect: an INSERT by itself."""
    connection = sqlite3.connect(folder / "raw.db", isolation_level=None)
    connection.executescript(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; CREATE TABLE t (n INTEGER PRIMARY KEY, r TEXT)"
    )
    insert = "INSERT INTO t VALUES (?, ?)"
    took = taken_us(lambda: [connection.execute(insert, (number, RECORD)) for number in range(EFFECTS)])
    connection.close()
    return took / EFFECTS


def stored_us(store: SqliteStore, entries: Ledger[Entry]) -> float:
    """Give what the store does for an effect: one append of its result and of what follows from that."""
    journal, appends = store.create("again", "text", []), [entries[1:2]]
    for entry in entries.after(2):
        if isinstance(entry, ResultEntry):
            appends.append(())
        appends[-1] += (entry,)
    return taken_us(lambda: [journal.append(each) for each in appends]) / EFFECTS


def bench_durable_effect() -> None:
    """An effect whose intent and result are durable, on tmpfs, and two bare commits."""
    rows, machine = [], chain(EFFECTS)
    for _ in range(ROUNDS):
        with memory_folder() as folder, SqliteStore(folder / "ledger.db") as store:
            runs = list[Run]()
            whole = taken_us(lambda store=store, runs=runs: runs.append(chained(machine, store))) / EFFECTS
            rows.append((raw_us(folder), stored_us(store, runs[0].ledger), whole))
    raw, stored, whole = (statistics.median(column) for column in zip(*rows, strict=True))
    print(
        f"\na durable effect on tmpfs (result, event, row, intent: one commit), median of {ROUNDS} rounds of {EFFECTS:,}"
    )
    print(f"  one commit of {len(RECORD)} characters          {raw:7.1f} us")
    shares = [statistics.median(row[column] / row[0] for row in rows) for column in (1, 2)]
    print(f"  what the store does of it      {stored:7.1f} us   {shares[0]:5.2f} x one commit")
    print(f"  all of it                      {whole:7.1f} us   {shares[1]:5.2f} x one commit   limit 2.5   "
          f"{verdict(good=shares[1] <= 2.5)}")  # fmt: skip


# -- replaying, and opening ------------------------------------------------------------------------------------------------


def bench_replay() -> None:
    """Ledgers folded again from memory."""
    runs = {"one effect after the other": chained(chain(EVENTS), MemoryStore()), "dual_state": agent_run(EVENTS // 2)}
    print(f"\nreplay from memory: events folded a second, all other entries compared too, median of {ROUNDS}")
    for name, run in runs.items():
        events = sum(isinstance(entry, EventEntry) for entry in run.ledger)
        took = statistics.median(taken_us(lambda run=run: replay(run.machine, run.ledger)) for _ in range(ROUNDS))
        rate = events / took * 1e6
        said = f"{events:,} events of {len(run.ledger):,} entries"
        print(f"  {name:<27} {rate:9,.0f}/s  {said:<34} at least 200,000   {verdict(good=rate >= 200_000)}")


def bench_open() -> None:
    """Long runs taken up from SQLite: read, verified, replayed, and what is left to do in them."""
    print(f"\nopening a run on tmpfs: read, chain verified, replayed, how it stands, what is left; median of {ROUNDS}")
    limited = chained(chain(EVENTS), MemoryStore())
    for name, run in (("one effect after the other", limited), ("dual_state", agent_run(EVENTS // 2))):
        with memory_folder() as folder, SqliteStore(folder / "ledger.db") as store:
            journal = store.create(run.run_id, "text", run.ledger[:1])
            for position in range(1, len(run.ledger), 2):
                journal.append(run.ledger[position : position + 2])
            took = statistics.median(taken_us(lambda run=run, store=store: opened(run, store)) for _ in range(ROUNDS))
        limit = f"   limit 0.5 s   {verdict(good=took <= 5e5)}" if run is limited else ""
        print(f"  {name:<27} {took / 1e6:6.3f} s   {EVENTS:,} events, {len(run.ledger):,} entries{limit}")


def opened(run: Run, store: SqliteStore) -> None:
    again = replay(run.machine, store.hold(run.run_id, take=True)[1].entries)
    assert standing(again).kind == "finished" or not unfinished(again).in_flight


# -- the dual-state agent ------------------------------------------------------------------------------------------------


def bench_attempts() -> None:
    """Attempts of the dual-state agent in memory, in short and in long runs."""
    print(
        "\nan attempt of dual_state in memory (generated, stored, judged, refined: two rows, three effects), by the attempts of its run"
    )
    medians = []
    for size in SIZES:
        repeated, rounds = max(1, 500 // size), ROUNDS if size <= SIZES[-2] // 10 else 1
        machine = load("dual_state").at(rmax=size)

        async def several(machine: Machine = machine, size: int = size, repeated: int = repeated) -> None:
            for _ in range(repeated):
                assert (await attempted(machine, size)).run.outcome == "succeeded"

        took = [taken_us(lambda several=several: asyncio.run(several())) / repeated / size for _ in range(rounds)]
        medians.append(statistics.median(took))
        print(f"  {size:>9,} {medians[-1]:8.1f} us")
    flat = medians[-1] / medians[1]
    print(f"  at {SIZES[2]:,}  {medians[2]:8.1f} us   limit 60 us   {verdict(good=medians[2] <= 60)}")
    print(f"  at {SIZES[-1]:,} / at {SIZES[1]:,}   {flat:5.2f}   limit 1.5   {verdict(good=flat <= 1.5)}")


def bench_whole_run() -> None:
    """The dual-state agent from its beginning to its end, in memory."""
    machine = load("dual_state")

    async def several() -> None:
        for _ in range(RUNS):
            await attempted(machine, 1)

    took = statistics.median(taken_us(lambda: asyncio.run(several())) / RUNS for _ in range(ROUNDS))
    print(f"\na whole run of dual_state in memory, driver and stores made anew, median of {ROUNDS} rounds of {RUNS}")
    print(f"  {took:8.1f} us   limit 500 us   {verdict(good=took <= 500)}")


BENCHES = (bench_durable_effect, bench_replay, bench_open, bench_attempts, bench_whole_run)
