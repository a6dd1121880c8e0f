"""How fast everything that can happen is searched: our engines and other checkers on the same models, with the same counts."""

import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import families
import outside
from outside import MissingError, Took
from timing import process_seconds, verdict

from dsa.lang import dumps

ROUNDS = 3
WHOLE_ROUNDS = 7  # whole programs, which start on both processors
Contender = Callable[[], Took]


def ours(engine: str, family: str, *sizes: int) -> Took:
    """Search with one of our engines, in a process of its own; processor time from the machine to the answer."""
    command = [sys.executable, str(Path(__file__).parent / "one_search.py"), engine, family, *map(str, sizes)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    configurations, complete, seconds, compiling, peak_mb = json.loads(done.stdout)
    assert complete
    return Took(configurations, seconds, compiling, peak_mb)


def measured(contenders: Mapping[str, Contender], expected: int, rounds: int = ROUNDS) -> dict[str, list[Took]]:
    """Time every contender once a round and print the medians; all must find the same number of configurations."""
    taken: dict[str, list[Took]] = {}
    here = dict(contenders)
    for _ in range(rounds):
        for name, work in list(here.items()):
            try:
                took = work()
            except MissingError as missing:
                print(f"  {name:<10} skipped: {missing}")
                del here[name]
                continue
            assert took.configurations == expected, f"{name}: {took.configurations}, not {expected}"
            taken.setdefault(name, []).append(took)
    for name, all_took in taken.items():
        seconds = statistics.median(took.seconds for took in all_took)
        before_s = statistics.median(took.before_s for took in all_took)
        peak_mb = max(took.peak_mb for took in all_took)
        before = f"   {before_s:.1f} s of compiling before" if before_s else ""
        memory = f"{peak_mb:8.0f} MB" if peak_mb else " " * 11
        print(f"  {name:<10} {seconds:9.3f} s {expected / seconds:15,.0f} a second {memory}{before}")
    return taken


def compare(taken: Mapping[str, list[Took]], peer: str, limits: Mapping[str, float]) -> None:
    """Print how many times faster than a peer each engine is, the median of the rounds' ratios; 0 means no limit."""
    for name, least in limits.items():
        if peer in taken and name in taken:
            pairs = zip(taken[peer], taken[name], strict=True)
            ratio = statistics.median(theirs.seconds / own.seconds for theirs, own in pairs)
            wanted = f"   at least {least:g}   {verdict(good=ratio >= least)}" if least else ""
            print(f"  {peer} / {name:<14} {ratio:7.1f}{wanted}")


def bench_spin() -> None:
    """Searches against SPIN's."""
    for family, sizes, limits in (
        ("any_order", (8, 3), {"C": 10, "NumPy": 5, "Python": 1}),
        ("ordered", (1_000, 1_000), {"C": 2, "NumPy": 2, "Python": 0}),
    ):
        expected = getattr(families, f"{family}_configurations")(*sizes)
        print(
            f"\n{family} {sizes[0]}/{sizes[1]}: {expected:,} configurations, processor time, median of {ROUNDS} rounds"
        )
        contenders: dict[str, Contender] = {"SPIN": lambda f=family, s=sizes: outside.spin(f, *s)}  # type: ignore[misc]
        contenders |= {name: lambda n=name, f=family, s=sizes: ours(n, f, *s) for name in limits}  # type: ignore[misc]
        compare(measured(contenders, expected), "SPIN", limits)


def checked(family: str, *sizes: int) -> Took:
    """Run `dsa check` as an installed program, start-up included, on the clock."""
    with tempfile.TemporaryDirectory() as folder:
        document = Path(folder, f"{family}.md")
        document.write_text(dumps(getattr(families, family)(*sizes)))
        most = getattr(families, f"{family}_configurations")(*sizes)
        program = "import sys; from dsa.cli.main import main; sys.exit(main())"
        arguments = ["-c", program, "check", "--max-states", str(most), str(document)]
        return Took(most, process_seconds(arguments))


def bench_whole_programs() -> None:
    """`dsa check` against TLC, and against a second."""
    expected = families.any_order_configurations(7, 3)
    print(f"\nany_order 7/3: {expected:,} configurations, whole programs on the clock, median of {WHOLE_ROUNDS} rounds")
    contenders: dict[str, Contender] = {
        "TLC": lambda: outside.tlc(7, 3),
        "dsa check": lambda: checked("any_order", 7, 3),
    }
    compare(measured(contenders, expected, WHOLE_ROUNDS), "TLC", {"dsa check": 15})
    for family, sizes in (("any_order", (5, 3)), ("ordered", (128, 128))):
        took = statistics.median(checked(family, *sizes).seconds for _ in range(ROUNDS))
        count = getattr(families, f"{family}_configurations")(*sizes)
        print(f"  dsa check of {family}, {count:,} configurations   {took:.2f} s limit 1 s   {verdict(good=took <= 1)}")


def bench_side_by_side() -> None:
    """`dsa check` of many effects side by side, whose numbers are variables."""
    for count, most_s in ((16, 2), (24, 10)):
        took = statistics.median(checked("side_by_side", count).seconds for _ in range(ROUNDS))
        what = f"  dsa check of {count} effects side by side, {families.SIDE_BY_SIDE[count]:,} configurations"
        print(f"{what}   {took:.2f} s   limit {most_s} s   {verdict(good=took <= most_s)}")


def bench_python_checkers() -> None:
    """Searches against other checkers written in Python."""
    expected = families.any_order_configurations(7, 3)
    print(f"\nany_order 7/3: {expected:,} configurations, processor time of the search, median of {ROUNDS} rounds")
    contenders: dict[str, Contender] = {
        "minicheck": lambda: outside.minicheck(7, 3),
        "musil": lambda: outside.musil(7, 3),
        "NumPy": lambda: ours("NumPy", "any_order", 7, 3),
        "Python": lambda: ours("Python", "any_order", 7, 3),
    }
    taken = measured(contenders, expected)
    for peer in ("minicheck", "musil"):
        compare(taken, peer, {"NumPy": 20, "Python": 8})


def bench_large() -> None:
    """What takes memory: 119,537,665 configurations one by one, and more than a million times as many as diagrams."""
    expected = families.any_order_configurations(11, 2)
    print(f"\nany_order 11/2: {expected:,} configurations, processor time, once")
    contenders: dict[str, Contender] = {
        "C": lambda: ours("C", "any_order", 11, 2),
        "NumPy": lambda: ours("NumPy", "any_order", 11, 2),
    }
    for name, all_took in measured(contenders, expected, 1).items():
        peak_mb = all_took[0].peak_mb
        print(f"  {name}: peak {peak_mb:,.0f} MB   limit 4,096 MB   {verdict(good=peak_mb <= 4_096)}")
    expected = families.any_order_configurations(16, 3)
    print(f"\nany_order 16/3: {expected:,} configurations, processor time, once")
    measured({"BDD": lambda: ours("BDD", "any_order", 16, 3)}, expected, 1)


BENCHES = (bench_spin, bench_whole_programs, bench_side_by_side, bench_python_checkers, bench_large)
