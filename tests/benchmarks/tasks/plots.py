"""Two pictures: how often each arm solves each task, and how that grows with generations.

Takes rows, writes an SVG and a PNG of each (matplotlib, the extra `plot`). The same rows give the same files.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks.tasks.arms import Arm
from benchmarks.tasks.intervals import wilson
from benchmarks.tasks.summary import ALL, cells
from benchmarks.tasks.trials import ERROR, RIGHT, Trial

_COLOURS = ("#666666", "#c05a12", "#1f5fa8", "#3a8f4d", "#7a4fa3", "#a33a5e", "#8a7a1f", "#2f8f8f")
_MARKS = "osD^vP*X"


def draw(rows: Iterable[Trial], tasks: Sequence[str], arms: Sequence[Arm], folder: Path) -> tuple[str, ...]:
    """Draw both and give the names of the SVGs. Raises ImportError without matplotlib."""
    from matplotlib import rc_context

    rows, names = list(rows), []
    with rc_context({"svg.hashsalt": "dsa", "font.size": 9}):
        for name, figure in (("rates", _rates(rows, tasks, arms)), ("generations", _growth(rows, tasks, arms))):
            figure.savefig(folder / f"{name}.svg", metadata={"Date": None})
            figure.savefig(folder / f"{name}.png", dpi=110)
            names.append(f"{name}.svg")
    return tuple(names)


def _rates(rows: Sequence[Trial], tasks: Sequence[str], arms: Sequence[Arm]):
    """Rates of right answers with their intervals; hollow marks are what guards accepted."""
    from matplotlib.figure import Figure

    counted = cells(rows, tasks, arms)
    shown = [*tasks, ALL] if len(tasks) > 1 else list(tasks)
    figure = Figure(figsize=(max(6, 1.5 * len(shown) + 2.0), 4.4), layout="constrained")
    axes = figure.subplots()
    for number, arm in enumerate(arms):
        colour, mark = _COLOURS[number % len(_COLOURS)], _MARKS[number % len(_MARKS)]
        ours = {cell.task: cell for cell in counted if cell.arm == arm.name and cell.trials}
        for place, task in enumerate(shown):
            if (cell := ours.get(task)) is None:
                continue
            at = place + (number - (len(arms) - 1) / 2) * 0.7 / len(arms)
            low, high = wilson(cell.right, cell.trials)
            axes.plot([at, at], [100 * low, 100 * high], color=colour, linewidth=1.4)
            accepted = 100 * cell.accepted / cell.trials
            axes.plot([at], [accepted], mark, markerfacecolor="none", markeredgecolor=colour, markersize=9)
            axes.plot([at], [100 * cell.right / cell.trials], mark, color=colour, markersize=5)
        axes.plot([], [], mark, color=colour, markersize=5, label=arm.name)
    axes.plot(
        [],
        [],
        "o",
        markerfacecolor="none",
        markeredgecolor="#333333",
        markersize=9,
        label="hollow: accepted by the guard",
    )
    axes.set_xticks(
        range(len(shown)), shown, rotation=30 if len(shown) > 6 else 0, ha="right" if len(shown) > 6 else "center"
    )
    axes.set_ylim(-3, 103)
    axes.set_ylabel("% of samples right, Wilson 95 %")
    axes.grid(axis="y", linewidth=0.4)
    figure.legend(
        *axes.get_legend_handles_labels(), loc="outside upper center", ncols=min(5, len(arms) + 1), frameon=False
    )
    return figure


def _growth(rows: Sequence[Trial], tasks: Sequence[str], arms: Sequence[Arm]):
    """Draw for each task the share of samples that are right within N generations."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    columns = min(3, len(tasks)) if len(tasks) != 4 else 2
    lines = -(-len(tasks) // columns)
    figure = Figure(figsize=(3.4 * columns, 2.6 * lines + 0.6), layout="constrained")
    panels = figure.subplots(lines, columns, squeeze=False, sharey=True)
    for axes, task in zip(panels.flat, tasks, strict=False):
        for number, arm in enumerate(arms):
            ours = [row for row in rows if (row.task, row.arm) == (task, arm.name) and row.outcome != ERROR]
            if not ours:
                continue
            most = max(row.generations for row in rows if row.task == task)
            shares = [
                100 * sum(row.oracle == RIGHT and row.generations <= k for row in ours) / len(ours)
                for k in range(most + 1)
            ]
            width = 1.2 + 1.3 * (len(arms) - 1 - number)  # what lies below others stands out on both sides
            look = {"color": _COLOURS[number % len(_COLOURS)], "linewidth": width, "solid_capstyle": "butt"}
            axes.plot(
                [*range(most + 1), most + 0.6], [*shares, shares[-1]], label=arm.name, drawstyle="steps-post", **look
            )
        axes.set_title(task)
        axes.set_ylim(-3, 103)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(linewidth=0.4)
    for axes in list(panels.flat)[len(tasks) :]:
        axes.set_visible(False)
    figure.supxlabel("generations")
    figure.supylabel("% of samples right by then")
    figure.legend(*panels[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=len(arms), frameon=False)
    return figure
