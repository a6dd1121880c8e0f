"""What the additions to the language cost: machines without them, families, and the chat machine.

Machines without additions are given in microseconds for each configuration, beside the same machine written with them: a family of managers beside
managers written one by one, a number outstanding that is a variable beside one that is part of the location.
"""

import resource
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import families
from timing import in_plain_python, verdict

from dsa import check
from dsa.edge.document_files import load
from dsa.lang import dumps, loads, spell_out
from dsa.machine import Machine

ROUNDS = 5
LOAD_S, CHAT_S = 1.5, 4.0
ROWS, OF_A_FAMILY = 10_000, 50
FAMILIES = Path(__file__).parent.parent / "golden" / "families"


def two_phase_commit() -> Machine:
    """Five managers as one family, without properties."""
    text = (FAMILIES / "two_phase_commit.md").read_text(encoding="utf-8").partition("## Properties")[0]
    return loads(text, families={"p": "1..5"})


#: Machines without additions that check within a second or so, with their parameters.
PLAIN: dict[str, Callable[[], Machine]] = {
    "dual_state, rmax 1,000": lambda: load("dual_state").at(rmax=1_000),
    "ordered 128/128": lambda: families.ordered(128, 128),
    "any_order 5/3": lambda: families.any_order(5, 3),
    "two_phase_commit 5, spelled out": lambda: loads(dumps(spell_out(two_phase_commit()))),
}
ADDED: dict[str, Callable[[], Machine]] = {
    "two_phase_commit 5, a family": two_phase_commit,
    "12 effects side by side": lambda: families.side_by_side(12),
    "16 effects side by side": lambda: families.side_by_side(16),
}


def bench_configurations() -> None:
    """Checks of machines without and with additions, by configuration."""
    print(
        f"\nreading and checking a machine, in microseconds of processor time a configuration, medians of {ROUNDS} rounds"
    )
    for title, machines in (("without additions", PLAIN), ("with additions", ADDED)):
        print(f"  {title}")
        for name, make in machines.items():

            def work(make: Callable[[], Machine] = make) -> int:
                return max(each.configurations for each in check(make()).explorations)

            count = work()

            each_us, ratio = in_plain_python(work, ROUNDS)
            print(f"    {name:<32}{count:>8,} configurations {each_us:8.1f} us {ratio:8.1f} x plain Python")


def family_text(rows: int) -> str:
    """Return a document with families that expands to that number of rows: each with a condition, an update and an effect."""
    places = range(rows // OF_A_FAMILY)
    states = [f"| s{place} | {'' if place else 'initial'} |" for place in places]
    written = [
        f"| s{place} | go[f] | x[f] < 2 and (f != 3 or pending look[f]) | x[f] += 1 | look[f] | s{(place + 1) % len(places)} |"
        for place in places
    ]
    return "\n".join([
        "# large", "", "## Families", "| family | index |", "| - | - |", f"| f | 1..{OF_A_FAMILY} |", "",
        "## Variables", "| variable | domain | initial |", "| - | - | - |", "| x[f] | 0..2 | 0 |", "",
        "## Events", "| event | from |", "| - | - |", "| go[f] | outside |", "| seen[f] | look[f] |", "",
        "## States", "| state | kind |", "| - | - |", *states, "",
        "## Transitions", "| source | event | if | update | effects | target |", "| - | - | - | - | - | - |", *written, "",
    ])  # fmt: skip


def bench_family_load() -> None:
    """Reading a document with families that stands for 10,000 rows."""
    text = family_text(ROWS)
    count = len(loads(text).transitions)

    def work() -> int:
        loads(text)
        return 1

    us, ratio = in_plain_python(work, ROUNDS)
    seconds = us / 1e6
    print(f"\nload of {count:,} rows that families stand for, processor time, median of {ROUNDS} rounds")
    print(f"  {seconds:.2f} s ({ratio:,.0f} x plain Python)   limit {LOAD_S:g} s   {verdict(good=seconds <= LOAD_S)}")


def processor_seconds(arguments: list[str]) -> float:
    """Return the processor time of a program and its children."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def bench_chat_check() -> None:
    """`dsa check chat` at its defaults, the whole program."""
    program = "import sys; from dsa.cli.main import main; sys.exit(main())"
    taken = statistics.median(processor_seconds(["-c", program, "check", "chat"]) for _ in range(ROUNDS))
    print(f"\ndsa check chat, processor time of the whole program, median of {ROUNDS} rounds")
    print(f"  {taken:.2f} s   limit {CHAT_S:g} s   {verdict(good=taken <= CHAT_S)}")


BENCHES = (bench_configurations, bench_family_load, bench_chat_check)
