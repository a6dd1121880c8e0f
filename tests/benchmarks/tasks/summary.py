"""What the rows come to: counts for each task and arm, and arms compared over the samples that both have.

Takes trials, gives numbers. A trial that ended in an error is counted as such and nowhere else: it says nothing about the arm.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import combinations
from statistics import median

import attrs
from benchmarks.tasks.arms import Arm
from benchmarks.tasks.intervals import holm, mcnemar, paired_difference
from benchmarks.tasks.trials import ACCEPTED, ERROR, RIGHT, WRONG, Trial

#: What stands for all tasks together.
ALL = "all tasks"
ALPHA = 0.05


@attrs.frozen
class Cell:
    """One arm at one task, or at all: how many of the `trials` without an error were accepted, and how many of these are right."""

    task: str
    arm: str
    trials: int
    errors: int
    accepted: int
    right: int
    generations: int
    median_generations: float
    median_s: float

    @property
    def false_accepts(self) -> int:
        """What the guard passed and the oracle did not."""
        return self.accepted - self.right


@attrs.frozen
class Comparison:
    """Two arms over the same samples: how many only the first solved, and only the second. `adjusted` is `p` after Holm."""

    task: str
    first: str
    second: str
    pairs: int
    only_first: int
    only_second: int
    p: float
    adjusted: float = 1.0

    @property
    def difference(self) -> float:
        """How much higher the first arm's rate is."""
        return (self.only_first - self.only_second) / self.pairs if self.pairs else 0.0

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of that."""
        return paired_difference(self.only_first, self.only_second, self.pairs)

    @property
    def is_null(self) -> bool:
        """Whether no difference was shown."""
        return self.adjusted >= ALPHA


def cells(rows: Iterable[Trial], tasks: Sequence[str], arms: Sequence[Arm]) -> list[Cell]:
    """Return the counts, by task and arm; for all tasks too where there are several."""
    rows = list(rows)
    found = [
        _cell(task, arm.name, [row for row in rows if (row.task, row.arm) == (task, arm.name)])
        for task in tasks
        for arm in arms
    ]
    if len(tasks) > 1:
        found += [_cell(ALL, arm.name, [row for row in rows if row.arm == arm.name]) for arm in arms]
    return found


def _cell(task: str, arm: str, rows: Sequence[Trial]) -> Cell:
    done = [row for row in rows if row.outcome != ERROR]
    return Cell(
        task=task,
        arm=arm,
        trials=len(done),
        errors=len(rows) - len(done),
        accepted=sum(row.outcome == ACCEPTED for row in done),
        right=sum(row.oracle == RIGHT for row in done),
        generations=sum(row.generations for row in done),
        median_generations=median([row.generations for row in done] or [0]),
        median_s=median([row.model_s + row.guard_s for row in done] or [0.0]),
    )


def compared(rows: Iterable[Trial], tasks: Sequence[str], arms: Sequence[Arm]) -> list[Comparison]:
    """Compare arms by what is right; for all tasks too where there are several. p-values are adjusted for all comparisons that are given.

    That is: each arm with one shot, feedback with none at as many attempts, and feedback with fewer attempts.
    """
    solved = {(row.task, row.arm, row.sample): row.oracle == RIGHT for row in rows if row.outcome != ERROR}
    found = []
    for first, second in pairs_of(arms):
        each = [_counted(task, first.name, second.name, solved) for task in tasks]
        together = Comparison(ALL, first.name, second.name, *(sum(column) for column in zip(*each, strict=True)), 1.0)
        found += [
            Comparison(task, first.name, second.name, *counts, mcnemar(*counts[1:]))
            for task, counts in zip(tasks, each, strict=True)
        ]
        if len(tasks) > 1:
            found.append(attrs.evolve(together, p=mcnemar(together.only_first, together.only_second)))
    adjusted = holm([comparison.p for comparison in found])
    return [attrs.evolve(comparison, adjusted=value) for comparison, value in zip(found, adjusted, strict=True)]


def pairs_of(arms: Sequence[Arm]) -> list[tuple[Arm, Arm]]:
    """Return the arms to compare, the one that has more of something first."""
    found = []
    for one, other in combinations(sorted(arms, key=lambda arm: (arm.feedback, arm.attempts)), 2):
        is_control = other.feedback and not one.feedback and one.attempts == other.attempts
        is_longer = other.feedback == one.feedback and other.attempts > one.attempts
        if one.attempts == 1 or is_control or is_longer:
            found.append((other, one))
    return sorted(found, key=lambda pair: (pair[0].feedback == pair[1].feedback, pair[1].attempts == 1))


def is_nested(first: Arm, second: Arm) -> bool:
    """Return whether the first arm begins with all that the second one does, and can only go on from there."""
    return first.attempts > second.attempts and (first.feedback == second.feedback or second.attempts == 1)


def _counted(task: str, first: str, second: str, solved: dict[tuple[str, str, int], bool]) -> tuple[int, int, int]:
    both = [
        (one, solved[task, second, sample])
        for (name, arm, sample), one in solved.items()
        if (name, arm) == (task, first) and (task, second, sample) in solved
    ]
    return len(both), sum(one and not other for one, other in both), sum(other and not one for one, other in both)


def told(rows: Iterable[Trial], chosen: Callable[[Trial], bool]) -> list[tuple[str, str, int]]:
    """Count the messages of trials, by task; the most frequent first."""
    counts = Counter((row.task, row.fault) for row in rows if chosen(row))
    return [
        (task, fault, count)
        for (task, fault), count in sorted(counts.items(), key=lambda each: (each[0][0], -each[1], each[0][1]))
    ]


def false_accepts(rows: Iterable[Trial]) -> list[tuple[str, str, int]]:
    """Count what the oracle said of what guards had passed: one count for each text that was passed, whatever the arm."""
    once = {(row.task, row.digest): row for row in rows if row.oracle == WRONG}
    return told(once.values(), lambda _row: True)


def errors(rows: Iterable[Trial]) -> list[tuple[str, str, int]]:
    """Count what broke down."""
    return told(rows, lambda row: row.outcome == ERROR)
