"""A plot of success and cost against a parameter, as an image file.

Takes numbers, writes a picture with matplotlib (the extra `plot`).
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from dsa.errors import DsaError, install_hint

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FORMATS = (".svg", ".png", ".pdf")
_SUCCESS, _COST, _REST = "#1f5fa8", "#c05a12", "#666666"


class PlotError(DsaError):
    """Raised when a plot cannot be made: matplotlib is not installed, or the file's name ends in no known format."""


@attrs.frozen
class Point:
    """One value of the parameter: least and most odds of success, expected cost of a run, and cost per success."""

    value: int
    success: tuple[float, float]
    cost: tuple[float, float]
    per_success: tuple[float, float] | None


@attrs.frozen
class Labels:
    """What the plot says: its title, the parameter's name, what is counted as cost."""

    title: str
    parameter: str
    cost: str


def require_format(path: Path) -> None:
    """Raise PlotError when the name of the file ends in no format that can be written."""
    if path.suffix.lower() not in FORMATS:
        raise PlotError(f"{path}: a plot is written to a file whose name ends in {', '.join(FORMATS)}")


def plot(points: Sequence[Point], labels: Labels, path: Path, *, target: float | None, ceiling: float | None) -> None:
    """Draw success above cost, over the same values; target and ceiling as lines. Raises PlotError."""
    require_format(path)
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
        from matplotlib.ticker import MaxNLocator
    except ImportError as missing:
        raise PlotError(f"a plot needs matplotlib: {install_hint('plot')}") from missing
    figure = Figure(figsize=(7, 6.5), layout="constrained")
    above, below = figure.subplots(2, sharex=True)
    values = [point.value for point in points]
    _line(above, values, [point.success for point in points], _SUCCESS, "success")
    # The target's name stands over its line and the ceiling's under it, for they may be close.
    for name, height, style, side in (("target", target, ":", "bottom"), ("ceiling", ceiling, "--", "top")):
        if height is not None:
            above.axhline(height, color=_REST, linestyle=style, linewidth=1)
            place, axes = (0.01, height), ("axes fraction", "data")
            above.annotate(f"{name} {height:.5g}", place, xycoords=axes, va=side, fontsize=9)
    above.set_title(labels.title)
    above.set_ylabel("probability of success")
    above.set_ylim(0, 1.08)
    _line(below, values, [point.cost for point in points], _COST, "per run")
    per = [(point.value, point.per_success) for point in points if point.per_success is not None]
    _line(below, [value for value, _ in per], [cost for _, cost in per], _REST, "per success")
    below.set_ylabel(labels.cost)
    below.set_ylim(bottom=0)
    below.set_xlabel(labels.parameter)
    below.xaxis.set_major_locator(MaxNLocator(integer=True))
    below.legend(loc="lower right")
    dated = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(path.suffix.lower())
    with rc_context({"svg.hashsalt": "dsa"}):  # the same numbers give the same file
        figure.savefig(path, dpi=144, metadata=dated)


def _line(axes: "Axes", values: Sequence[int], bounds: Sequence[tuple[float, float]], colour: str, name: str) -> None:
    """Draw a line, or where least and most differ the band between them."""
    low, high = [low for low, _ in bounds], [high for _, high in bounds]
    axes.plot(values, low, color=colour, marker="o", markersize=4, label=name)
    if low != high:
        axes.plot(values, high, color=colour, marker="o", markersize=4)
        axes.fill_between(values, low, high, color=colour, alpha=0.15)
