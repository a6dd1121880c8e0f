"""Pictures: DOT text drawn as SVG or PNG, and plots of success and cost.

A drawing needs one program: Graphviz's `dot`, or else `graphviz-pure`, which the extra `draw` installs and which takes the same flags. A plot
shows success and cost against a parameter; it needs matplotlib (the extra `plot`).
"""

import re
import shutil
import subprocess
import sysconfig
from collections.abc import Sequence
from html import unescape
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from dsa.errors import DsaError, install_hint
from dsa.targets.picture import text_width

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TIME_LIMIT_S = 120
_SVG_TEXT = re.compile(r"<text( [^>]*)>([^<]*)</text>")
_FONT_SIZE = re.compile(r'font-size="([\d.]+)"')


def _error(message: str) -> DsaError:
    return DsaError(message, code="RenderError")


def renderer() -> Path | None:
    """Return the program that draws: `dot`, or else `graphviz-pure` on the path or beside this interpreter; None if there is none."""
    path = shutil.which("dot")
    return Path(path) if path else portable_renderer()


def portable_renderer() -> Path | None:
    """Return graphviz-pure, on the path or beside this interpreter; None if it is missing. It draws the same picture on every machine."""
    scripts = sysconfig.get_path("scripts")
    path = shutil.which("graphviz-pure") or shutil.which("graphviz-pure", path=scripts)
    return Path(path) if path else None


def svg(dot_text: str) -> str:
    """Draw DOT text as an SVG document. Raises DsaError where that fails.

    Each text states its length: the boxes are made for Helvetica, which the viewer may not have.
    """
    return _with_lengths(_draw(_any_renderer(), dot_text, "-Tsvg"))


def portable_svg(dot_text: str) -> str:
    """Draw DOT text as an SVG document that is the same on every machine with this release of graphviz-pure. Raises DsaError where that fails."""
    program = portable_renderer()
    if program is None:
        raise _error(
            "graphviz-pure, which draws the same on every machine, is not installed; run `pip install graphviz-pure`, and try again"
        )
    return _with_lengths(_draw(program, dot_text, "-Tsvg"))


def _with_lengths(drawing: bytes) -> str:
    return _SVG_TEXT.sub(_with_length, drawing.decode("utf-8"))


def _with_length(text: re.Match[str]) -> str:
    attributes, content = text[1], unescape(text[2])
    width = text_width(content, float(_FONT_SIZE.search(attributes)[1]), bold='"bold"' in attributes)  # type: ignore[index]
    length = f' textLength="{width:.2f}" lengthAdjust="spacingAndGlyphs"' if width else ""
    return f"<text{attributes}{length}>{text[2]}</text>"


def png(dot_text: str) -> bytes:
    """Draw DOT text as a PNG image of 144 dots per inch. Raises DsaError where that fails."""
    return _draw(_any_renderer(), dot_text, "-Tpng", "-Gdpi=144")


def _any_renderer() -> Path:
    program = renderer()
    if program is None:
        raise _error("no renderer is installed; run `pip install graphviz-pure`, or install Graphviz, and try again")
    return program


def _draw(program: Path, dot_text: str, *flags: str) -> bytes:
    try:
        result = subprocess.run(  # noqa: S603  (the program is the one found above; the text goes in as data)
            [program, *flags], input=dot_text.encode(), capture_output=True, timeout=TIME_LIMIT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as problem:
        msg = f"{program} did not draw: {problem}"
        raise _error(msg) from problem
    if result.returncode != 0 or not result.stdout:
        msg = f"{program} did not draw (exit {result.returncode}): {result.stderr.decode(errors='replace').strip()}"
        raise _error(msg)
    return result.stdout


FORMATS = (".svg", ".png", ".pdf")
_SUCCESS, _COST, _REST = "#1f5fa8", "#c05a12", "#666666"


@attrs.frozen
class Point:
    """One value of the parameter: lowest and highest odds of success, expected cost of a run, and cost per success."""

    value: int
    success: tuple[float, float]
    cost: tuple[float, float]
    per_success: tuple[float, float] | None


@attrs.frozen
class Labels:
    """The texts of a plot: its title, the parameter's name, and what counts as cost."""

    title: str
    parameter: str
    cost: str


def require_format(path: Path) -> None:
    """Raise DsaError if the ending of the file's name is not that of a format that can be written."""
    if path.suffix.lower() not in FORMATS:
        raise _error(f"{path}: the file of a plot must have a name that ends in {', '.join(FORMATS)}")


def plot(points: Sequence[Point], labels: Labels, path: Path, *, target: float | None, ceiling: float | None) -> None:
    """Draw success above cost, over the same values; target and ceiling as lines. Raises DsaError where that fails."""
    require_format(path)
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
        from matplotlib.ticker import MaxNLocator
    except ImportError as missing:
        raise _error(f"a plot needs matplotlib: {install_hint('plot')}") from missing
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
    metadata = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(path.suffix.lower())
    with rc_context({"svg.hashsalt": "dsa"}):  # the same numbers give the same file
        figure.savefig(path, dpi=144, metadata=metadata)


def _line(axes: "Axes", values: Sequence[int], bounds: Sequence[tuple[float, float]], colour: str, name: str) -> None:
    """Draw a line, or, where lowest and highest differ, the band between them."""
    low, high = [low for low, _ in bounds], [high for _, high in bounds]
    axes.plot(values, low, color=colour, marker="o", markersize=4, label=name)
    if low != high:
        axes.plot(values, high, color=colour, marker="o", markersize=4)
        axes.fill_between(values, low, high, color=colour, alpha=0.15)
