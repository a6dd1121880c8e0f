"""What runs cost that are started through the door: an effect, a replay, opening, listing, following, attempts of the dual-state agent.

Processor time, median of rounds; where it is a ratio, both sides are measured in the same round. Beside each stands what is aimed at.
"""

import asyncio
import gc
import resource
import sqlite3
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from artifact_runs import memory_folder
from timing import in_plain_python, process_seconds, verdict

import dsa
from dsa.edge.binding import Bindings
from dsa.edge.document_files import load
from dsa.edge.stores.sqlite_store import SqliteStore
from dsa.generators.substitutes import ScriptedGenerator
from dsa.lang import loads
from dsa.machine import Machine
from dsa.runs.door import Runs
from dsa.runs.place import MEMORY
from dsa.runtime.content import Artifact, GuardInterface, GuardResult
from dsa.runtime.ledger import EventEntry, MachineEntry
from dsa.runtime.policy.policies import Action, PolicyContext, Step, answering, event_step
from dsa.runtime.run import Run, replay
from dsa.runtime.run_store import Summary
from dsa.runtime.secrets import Secrets
from dsa.runtime.status import Rest
from machines.dual_state import bindings

Performed = Callable[[Action, PolicyContext], Awaitable[list[Step]]]
LISTED, LIST_ROUNDS = 10_000, 5
ROUNDS, EFFECTS, RUNS, EVENTS = 9, 1_000, 200, 10_000
SIZES = (10, 100, 1_000, 10_000, 100_000)
RUN_ID, RECORD = "20260131T120000-agent-9f3a1c", "x" * 300
#: An event that is folded again, or read from a place and folded; an attempt and a whole run: how much plain Python each is at most
#: (docs/decisions/0026-what-an-effect-costs.md).
MOST_REPLAYED = {"one effect after the other": 4.3, "dual_state": 6.6}
MOST_OPENED, MOST_ATTEMPT, MOST_WHOLE = 29.0, 550, 900
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
    """Rejects all attempts but the last of a given number."""

    blocks = False

    def __init__(self, attempts: int) -> None:
        self._left = attempts

    def validate(self, artifact: Artifact, **dependencies: Artifact) -> GuardResult:
        self._left -= 1
        return GuardResult(self._left <= 0, "" if self._left <= 0 else "no")


async def run_to_rest(runs: Runs, machine: Machine, data: str, binding: Bindings) -> Rest:
    """Start a run through the door, and wait until it rests."""
    handle = await runs.start(machine, data, bindings=lambda _machine, _settings: binding)
    return await handle.rest()


def chained(machine: Machine, where: Path | str = MEMORY, policy: Performed = work) -> Run:
    """Perform as many effects as the machine says, one after the other."""

    async def whole() -> Run:
        async with dsa.open_runs(where) as runs:
            return (await run_to_rest(runs, machine, "now", Bindings({"work": policy}, secrets=NO_SECRETS))).run

    return asyncio.run(whole())


def chain(effects: int) -> Machine:
    return loads(CHAIN).at(most=effects - 1)


async def attempted(runs: Runs, machine: Machine, attempts: int) -> Rest:
    """Let the dual-state agent make `attempts` attempts, of which the last passes."""
    generators = {"llm": ScriptedGenerator([TEXT] * attempts)}
    binding = Bindings(bindings.effects, {"g": Passing(attempts)}, generators, NO_SECRETS)
    return await run_to_rest(runs, machine, "Write add", binding)


def attempts_made(machine: Machine, attempts: int, repeated: int = 1) -> Run:
    """Make runs in memory, one after the other, each with that number of attempts; return the last."""

    async def several() -> Run:
        async with dsa.open_runs(MEMORY) as runs:
            for _ in range(repeated):
                rest = await attempted(runs, machine, attempts)
                assert rest.outcome == "succeeded"
        return rest.run

    return asyncio.run(several())


def agent_run(attempts: int) -> Run:
    return attempts_made(load("dual_state").at(rmax=attempts), attempts)


def taken_us(work: Callable[[], object]) -> float:
    """Return the processor time of one call in microseconds."""
    gc.collect()
    begun = time.process_time()
    work()
    return (time.process_time() - begun) * 1e6


# -- a durable effect ---------------------------------------------------------------------------------------------------


class Rows:
    """A file of rows, each committed by itself: what a run would write by hand."""

    def __init__(self, folder: Path) -> None:
        self._connection = sqlite3.connect(folder / "raw.db", isolation_level=None)
        self._connection.executescript(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; CREATE TABLE t (n INTEGER PRIMARY KEY, r TEXT)"
        )

    def insert(self) -> None:
        """Commit one row."""
        self._connection.execute("INSERT INTO t (r) VALUES (?)", (RECORD,))

    def close(self) -> None:
        """Close the file."""
        self._connection.close()


def repeat(action: Callable[[], object], times: int) -> None:
    """Do the same again and again."""
    for _ in range(times):
        action()


def effect_us(most: int) -> tuple[float, float, float, float]:
    """Return what a bare commit takes in a loop, an effect in memory, one that inserts a row by itself, a durable one: microseconds."""
    machine = chain(most)
    with memory_folder() as folder:
        rows = Rows(folder)

        @answering("done", is_eager=True)
        async def inserting(_action: Action, _context: PolicyContext) -> list[Step]:
            rows.insert()
            return [event_step("work", "done")]

        raw = taken_us(partial(repeat, rows.insert, most))
        in_memory = taken_us(lambda: chained(machine))
        inserted = taken_us(lambda: chained(machine, policy=inserting))
        durable = taken_us(lambda: chained(machine, folder / "runs"))
        rows.close()
    return raw / most, in_memory / most, inserted / most, durable / most


def commit_us() -> float:
    """Return what a bare commit takes in a loop, in microseconds: what other times are measured in, on whatever machine."""
    with memory_folder() as folder:
        rows = Rows(folder)
        took = statistics.median(taken_us(partial(repeat, rows.insert, EFFECTS)) for _ in range(ROUNDS))
        rows.close()
    return took / EFFECTS


def bench_durable_effect() -> None:
    """An effect through the door, in memory and durable, beside bare commits of SQLite."""
    taken = [effect_us(EFFECTS) for _ in range(ROUNDS)]
    print(
        f"\na durable effect on tmpfs (result, event, row, intent: one commit), median of {ROUNDS} rounds of {EFFECTS:,}"
    )
    names = ("a bare commit in a loop", "an effect in memory", "one that commits a row itself", "a durable effect")
    for name, column in zip(names, zip(*taken, strict=True), strict=True):
        print(f"  {name:<32} {statistics.median(column):7.1f} us")
    ratios = {
        "durable / bare commit": (14, [durable / raw for raw, _, _, durable in taken]),
        "what the store adds / the row adds": (8, [(d - m) / max(i - m, 0.1) for _, m, i, d in taken]),
        "in memory / bare commit": (6.5, [memory / raw for raw, memory, _, _ in taken]),
    }
    for name, (limit, found) in ratios.items():
        ratio = statistics.median(found)
        print(f"  {name:<36} {ratio:6.2f}   limit {limit:g}   {verdict(good=ratio <= limit)}")


def bench_many_runs() -> None:
    """Runs side by side in one event loop, each with one durable effect after the other."""
    machine, each = chain(50), 50
    binding = Bindings({"work": work}, secrets=NO_SECRETS)

    async def side_by_side(folder: Path) -> None:
        async with dsa.open_runs(folder) as runs:
            rests = await asyncio.gather(*(run_to_rest(runs, machine, "now", binding) for _ in range(RUNS)))
        assert all(rest.run.seq == each + 1 for rest in rests)

    with memory_folder() as folder:
        took = taken_us(lambda: asyncio.run(side_by_side(folder)))
    rate = RUNS * each / took * 1e6
    print(f"\n{RUNS} runs in one event loop, {each} durable effects each, on tmpfs")
    print(f"  {rate:9,.0f} effects a second of processor time   at least 3,000   {verdict(good=rate >= 3_000)}")


# -- replaying, and opening ------------------------------------------------------------------------------------------------


def bench_replay() -> None:
    """Ledgers folded again from memory."""
    runs = {"one effect after the other": chained(chain(EVENTS)), "dual_state": agent_run(EVENTS // 2)}
    print(f"\nreplay from memory: events folded a second, all other entries compared too, median of {ROUNDS}")
    for name, run in runs.items():
        events = sum(isinstance(entry, EventEntry) for entry in run.ledger)
        us, many = in_plain_python(lambda run=run, events=events: replay(run.machine, run.ledger) and events, ROUNDS)
        most = MOST_REPLAYED[name]
        said = f"{1e6 / us:9,.0f}/s  an event {many:5.2f} x plain Python   limit {most}   {verdict(good=many <= most)}"
        print(f"  {name:<27} {said}")


def bench_open() -> None:
    """A long run read from its place: verified, replayed, how it stands."""
    with memory_folder() as folder:
        run_id = chained(chain(EVENTS), folder).run_id
        with dsa.open_runs(folder) as runs:
            us, many = in_plain_python(lambda: runs.get(run_id) and EVENTS, ROUNDS)
            entries = runs.summary(run_id).entries
    print(f"\nopening a run on tmpfs: read, chain verified, replayed, how it stands; median of {ROUNDS}")
    said = f"an event {many:5.2f} x plain Python   limit {MOST_OPENED}   {verdict(good=many <= MOST_OPENED)}"
    print(f"  {us * EVENTS / 1e6:6.3f} s   {EVENTS:,} events, {entries:,} entries   {said}")


def bench_list() -> None:
    """`dsa runs` as a whole process: over many short runs, and over a long one."""
    with memory_folder() as folder:
        short = chained(chain(9), folder / "one").run_id
        with dsa.open_runs(folder / "one") as runs:
            first, summary = runs.stored_run(short), runs.summary(short).summary
        with SqliteStore(folder / "many.db") as store:  # as the door has written the first
            for number in range(LISTED):
                store.create(f"{short}{number:05}", first.text, tuple(first.entries), summary).release()
        (folder / "many").mkdir()
        (folder / "many.db").rename(folder / "many" / "ledger.db")
        chained(chain(2 * EVENTS), folder / "long")
        print(f"\n`dsa runs`, processor time of the whole process, median of {LIST_ROUNDS}")
        for name, what, limit in (
            ("many", f"{LISTED:,} runs of 10 events", 1.0),
            ("long", f"one run of {2 * EVENTS:,} events", 0.3),
        ):
            took = statistics.median(listed_s(folder / name) for _ in range(LIST_ROUNDS))
            print(f"  {what:<28} {took:6.3f} s   limit {limit:g} s   {verdict(good=took < limit)}")


def listed_s(folder: Path) -> float:
    """Return the processor time of `dsa runs` over a folder, with byte code as an installed package has it."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    process_seconds(["-c", "from dsa.cli.main import main; main()", "runs", "--runs", str(folder)])
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


FOLLOWED, WATCHED = 50_000, 100
#: Another process that goes on with a run: it waits, then says in each event when it was written.
WRITER = """
import sys, time
from pathlib import Path
from dsa.edge.stores.sqlite_store import SqliteStore
from dsa.runtime.run_store import Summary
from dsa.runtime.ledger import EventEntry
with SqliteStore(Path(sys.argv[1])) as store:
    journal, _ = store.hold(sys.argv[2])
    print("ready", flush=True)
    for number in range(int(sys.argv[3])):
        time.sleep(0.03)
        journal.append([EventEntry(number, "went", data=time.monotonic_ns())], Summary(state=str(number)))
    journal.release(Summary("finished"))
"""


def bench_follow() -> None:
    """From a commit of another process to who follows the run, wall time."""
    with memory_folder() as folder:
        with SqliteStore(folder / "ledger.db") as store:
            journal = store.create(RUN_ID, "text", [MachineEntry(RUN_ID, "chain", "0" * 64)])
            for first in range(0, FOLLOWED, 100):
                journal.append([EventEntry(number, "went") for number in range(first, first + 100)])
            journal.release(Summary("waiting"))
        arguments = [sys.executable, "-c", WRITER, str(folder / "ledger.db"), RUN_ID, str(WATCHED)]
        delays = list[float]()

        async def follow() -> None:
            with dsa.open_runs(folder) as runs:
                async for moment in runs.follow(RUN_ID, after=FOLLOWED + 1):
                    assert isinstance(moment.entry, EventEntry)
                    delays.append((time.monotonic_ns() - moment.entry.data) / 1e6)

        with subprocess.Popen(arguments, stdout=subprocess.PIPE) as writer:
            assert writer.stdout is not None
            writer.stdout.readline()
            asyncio.run(follow())
    median = statistics.median(delays)
    print(f"\nfollowing a run of {FOLLOWED:,} entries that another process writes, median of {len(delays)} commits")
    print(f"  {median:6.1f} ms   limit 20 ms   {verdict(good=median < 20)}")


# -- the dual-state agent ------------------------------------------------------------------------------------------------


def bench_attempts() -> None:
    """Attempts of the dual-state agent in memory, in short and in long runs."""
    print(
        "\nan attempt of dual_state in memory (generated, stored, judged, refined: two rows, three effects), by the attempts of its run"
    )
    for size in SIZES:
        repeated, rounds = max(1, 500 // size), ROUNDS if size <= SIZES[-2] // 10 else 1
        machine = load("dual_state").at(rmax=size)
        us, many = in_plain_python(lambda: attempts_made(machine, size, repeated) and repeated * size, rounds)  # noqa: B023  (it is called at once)
        print(f"  {size:>9,} {_in_python(us, many, MOST_ATTEMPT)}")


def _in_python(us: float, many: float, most: float) -> str:
    """Say a time, and how much plain Python that is."""
    return f"{us:8.1f} us   {many:5.0f} x plain Python   limit {most}   {verdict(good=many <= most)}"


def bench_whole_run() -> None:
    """The dual-state agent from its beginning to its end, in memory."""
    machine = load("dual_state")
    us, many = in_plain_python(lambda: attempts_made(machine, 1, RUNS) and RUNS, ROUNDS)
    print(f"\na whole run of dual_state in memory, started through the door, median of {ROUNDS} rounds of {RUNS}")
    print(f"  {_in_python(us, many, MOST_WHOLE)}")


BENCHES = (
    bench_durable_effect,
    bench_many_runs,
    bench_replay,
    bench_open,
    bench_list,
    bench_follow,
    bench_attempts,
    bench_whole_run,
)
