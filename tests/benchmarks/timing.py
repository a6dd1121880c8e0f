"""Ratios in one run: every contender is timed in every round, and the median of the rounds' ratios is reported.

Machines are shared and noisy, so absolute times mean little; a ratio taken within one round drifts with the machine.
"""

import gc
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence

import attrs

#: Byte code of all modules, as pip writes it for a package that it installs; this tree may have none.
_BYTE_CODE = tempfile.TemporaryDirectory(prefix="dsa-bench-")
_WRITTEN: set[tuple[str, ...]] = set()
_MISSED: list[bool] = []
_THINGS = 20_000
FULL_SPEED_US = 0.8  # what a unit of plain Python takes where the processor is at its full speed


def per_call_us(work: Callable[[], int]) -> float:
    """Return microseconds of processor time per unit; `work` does something and says how many units it did."""
    gc.collect()
    begun = time.process_time()
    units = work()
    return (time.process_time() - begun) * 1e6 / units


def rounds(contenders: Mapping[str, Callable[[], int]], count: int) -> dict[str, list[float]]:
    """Time every contender once a round."""
    taken: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(count):
        for name, work in contenders.items():
            taken[name].append(per_call_us(work))
    return taken


def median_ratio(taken: Mapping[str, Sequence[float]], name: str, base: str) -> float:
    """Return the median over the rounds of one contender's time over another's."""
    return statistics.median(a / b for a, b in zip(taken[name], taken[base], strict=True))


@attrs.frozen
class _Thing:
    number: int
    name: str


def _plain_python() -> int:
    """Make frozen values, keep and compare some: what a run does, without a run. Gives how many."""
    kept = dict[tuple[int, str], _Thing]()
    for number in range(_THINGS):
        thing = _Thing(number, f"{number % 7}")
        if kept.get((number % 50, thing.name)) != thing:
            kept[number % 50, thing.name] = thing
    return _THINGS


def plain_python_us() -> float:
    """Return the processor time of a unit of plain Python now, in microseconds: FULL_SPEED_US where the processor is at its full speed, up to twice that at other times."""
    return per_call_us(_plain_python)


def speed_between(before_us: float, after_us: float) -> float:
    """Return the speed of the processor between two times of plain Python, as a part of its full speed: what was taken meanwhile, times this, is what it takes then."""
    return 2 * FULL_SPEED_US / (before_us + after_us)


def in_plain_python(work: Callable[[], int], count: int) -> tuple[float, float]:
    """Return the processor time of a unit of work in microseconds, and in units of plain Python: medians of the rounds.

    The processor of a shared machine is at times twice as fast as at others; plain Python is timed before and after each round of the work.
    """
    taken, ratios = list[float](), list[float]()
    for _ in range(count):
        before = plain_python_us()
        taken.append(per_call_us(work))
        ratios.append(2 * taken[-1] / (before + plain_python_us()))
    return statistics.median(taken), statistics.median(ratios)


def process_seconds(arguments: Sequence[str], *, installed: bool = True) -> float:
    """Return the wall time of a whole Python process, with byte code as an installed package has it, or with what is here."""
    environment = dict(os.environ)
    if installed:
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        environment["PYTHONPYCACHEPREFIX"] = _BYTE_CODE.name
        command = tuple(arguments[:3])  # without the file that it is about
        if command not in _WRITTEN:
            _WRITTEN.add(command)
            process_seconds(arguments)  # it writes the byte code
    begun = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True, env=environment)
    return time.perf_counter() - begun


def verdict(*, good: bool) -> str:
    """Return whether a limit was kept."""
    _MISSED.extend([] if good else [True])
    return "ok" if good else "MISSED"


def missed() -> int:
    """Return how many limits were not kept so far."""
    return len(_MISSED)
