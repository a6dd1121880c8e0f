"""`make bench`: the speeds this project promises, as ratios measured in one run against a named peer or limit.

`run.py bench_spin bench_large` runs only these.
"""

import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
sys.path.insert(0, str(Path(__file__).parent))

import additions
import artifacts
import chatting
import durable_peers
import exploring
import guarded
import peers
import runtime
import sandboxed
import simulation
import streams
import waiting
import web_page
import working
from documents import slowest
from markdown_it import MarkdownIt
from timing import median_ratio, missed, process_seconds, rounds, verdict

from dsa.checks.report import check
from dsa.compiled_step import CompiledStep, compiled_step
from dsa.declarations import Emit, Event, State, Transition
from dsa.edge.document_files import load
from dsa.lang import dumps, loads, read_machine
from dsa.machine import Machine
from dsa.semantics import Occurrence, Taken, start, step

EVENTS, ROUNDS, START_ROUNDS = 20_000, 7, 11


def ours(machine: Machine, move: Callable[..., Taken], events: int) -> Callable[[], int]:
    """The dual-state machine, each event giving its full frozen result."""
    artifact, failed = Occurrence("artifact"), Occurrence("verdict", {"g": "failed"})

    def work() -> int:
        now = move(start(machine), Occurrence("specification")).configuration
        for _ in range(events // 2):
            now = move(now, artifact).configuration
            now = move(now, failed).configuration
        return events

    return work


def ring(size: int) -> Machine:
    """A machine of `size` rows: one state after the other, round and round."""
    states = tuple(State(f"s{i}", "initial" if i == 0 else "") for i in range(size))
    rows = tuple(Transition(f"s{i}", "go", f"s{(i + 1) % size}", effects=(Emit("note"),)) for i in range(size))
    return loads(dumps(Machine("ring", rows, states, "s0", events=(Event("go"),))))


def walk(machine: Machine, events: int) -> Callable[[], int]:
    """Walk round a ring with the compiled step."""
    move, go = compiled_step(machine).step, Occurrence("go")

    def work() -> int:
        now = start(machine)
        for _ in range(events):
            now = move(now, go).configuration
        return events

    return work


def bench_step() -> None:
    """Compiled step against the same machine by hand and in other libraries."""
    machine = load("dual_state").at(rmax=peers.RMAX)
    remembering = compiled_step(machine).step
    contenders = {
        "if/elif by hand": peers.by_hand(EVENTS),
        "dsa compiled step": ours(machine, remembering, EVENTS),
        "dsa, nothing met before": lambda: ours(machine, CompiledStep(machine).step, EVENTS)(),  # noqa: PLW0108  (compiled anew each time)
        "dsa reference step": ours(machine, lambda now, what: step(machine, now, what), EVENTS // 10),
        "automat": peers.automat(EVENTS // 4),
        "transitions": peers.transitions(EVENTS // 20),
        "sismic": peers.sismic(EVENTS // 100),
        "python-statemachine": peers.python_statemachine(EVENTS // 100),
    }
    taken = rounds(contenders, ROUNDS)
    print(f"\none event of dual_state, microseconds of processor time, median of {ROUNDS} rounds")
    print(
        "(a compiled step remembers its results, so a run soon finds them all; the line after it starts afresh each round)"
    )
    for name, times in taken.items():
        ratio = median_ratio(taken, name, "dsa compiled step")
        print(f"  {name:<24} {statistics.median(times):9.2f} us   {ratio:8.2f} x compiled step")
    hand = median_ratio(taken, "dsa compiled step", "if/elif by hand")
    chart = median_ratio(taken, "python-statemachine", "dsa compiled step")
    print(f"  compiled / by hand              {hand:6.1f}   limit 10    {verdict(good=hand <= 10)}")
    print(f"  python-statemachine / compiled  {chart:6.0f}   at least 100 {verdict(good=chart >= 100)}")
    rings = rounds({"6 rows": walk(ring(6), EVENTS), "1,000 rows": walk(ring(1000), EVENTS)}, ROUNDS)
    size = median_ratio(rings, "1,000 rows", "6 rows")
    print(f"  event of 1,000 rows / of 6 rows {size:6.2f}   limit 1.3   {verdict(good=size <= 1.3)}")


def typical_rows(size: int) -> str:
    """A document of `size` rows with conditions, updates and effects, twelve for each step of a long workflow."""
    steps = [
        f"| s{i} | {f's{i - 1}' if i else ''} | llm | syntax | | 3 | Write part {i} |" for i in range(size // 12 + 1)
    ]
    from dsa.lang import spell_out

    head = "| step | requires | generator | guard | uses | rmax | task |\n| - | - | - | - | - | - | - |\n"
    return dumps(spell_out(loads("# long\n\n## Steps\n" + head + "\n".join(steps) + "\n")))


def bench_load() -> None:
    """Reading and checking 1,000 rows against markdown-it's tokenising of the same text."""
    text = typical_rows(1000)
    tokenizer = MarkdownIt("commonmark").enable("table")
    ratios = []
    for _ in range(3):
        begun = time.process_time()
        tokenizer.parse(text)
        tokenised = time.process_time()
        check(loads(text))
        done = time.process_time()
        limit = 2 * (tokenised - begun) + 1
        ratios.append((done - tokenised, tokenised - begun, limit))
    ours_s, theirs_s, limit_s = sorted(ratios)[1]
    rows = len(loads(text).transitions)
    print(f"\nload and check of {rows} rows: {ours_s:.2f} s; markdown-it tokenises it in {theirs_s:.2f} s")
    print(f"  limit 2 x that + 1 s = {limit_s:.2f} s   {verdict(good=ours_s <= limit_s)}")


def bench_start() -> None:
    """Whole processes: `dsa --help` and `dsa check` against `import click`; installed, and from this tree as it is."""
    program = ["-c", "from dsa.cli.main import main; main()"]
    for installed, where in ((True, "installed, with byte code"), (False, "from this tree as it is")):
        click, shown, checked = [], [], []
        for _ in range(START_ROUNDS):
            click.append(process_seconds(["-c", "import click"], installed=installed))
            shown.append(process_seconds([*program, "--help"], installed=installed))
            checked.append(process_seconds([*program, "check", "dual_state"], installed=installed))
        ratio = statistics.median(a / b for a, b in zip(shown, click, strict=True))
        above = statistics.median(a - b for a, b in zip(checked, shown, strict=True))
        print(f"\nstart-up, {where}, median of {START_ROUNDS} rounds")
        print(f"  dsa --help / python -c 'import click'  {ratio:.2f}   limit 3       {verdict(good=ratio <= 3)}")
        print(f"  dsa check dual_state - dsa --help      {above:.2f} s limit 0.3 s   {verdict(good=above <= 0.3)}")


def bench_fuzz() -> None:
    """The slowest of the fuzzed documents."""
    seconds, text = slowest(2000, 1, read_machine)
    print(f"\nslowest of 2,000 fuzzed documents: {seconds * 1000:.0f} ms for {len(text)} characters")


BENCHES = (
    bench_step,
    bench_load,
    bench_start,
    bench_fuzz,
    *exploring.BENCHES,
    *additions.BENCHES,
    *artifacts.BENCHES,
    *durable_peers.BENCHES,
    *runtime.BENCHES,
    *guarded.BENCHES,
    *simulation.BENCHES,
    *sandboxed.BENCHES,
    *streams.BENCHES,
    *chatting.BENCHES,
    *waiting.BENCHES,
    *working.BENCHES,
    *web_page.BENCHES,
)


def main(names: Sequence[str]) -> None:
    """Run one bench here, or several, each in a process of its own: what one leaves behind slows the next one down."""
    if unknown := {*names} - {bench.__name__ for bench in BENCHES}:
        sys.exit(f"there is no {', '.join(sorted(unknown))}")
    wanted = [bench for bench in BENCHES if not names or bench.__name__ in names]
    if len(wanted) == 1:
        wanted[0]()
        sys.exit(f"\nlimits MISSED: {missed()}" if missed() else 0)
    failed = [
        bench.__name__
        for bench in wanted
        if subprocess.run([sys.executable, __file__, bench.__name__], check=False).returncode
    ]
    if failed:
        sys.exit(f"\nMISSED a limit, or failed: {', '.join(failed)}")


if __name__ == "__main__":
    main(sys.argv[1:])
