"""DOT text to SVG or PNG, with whatever renderer this machine has.

Takes text that `dsa.targets.dot` wrote, gives SVG text or PNG bytes. It runs one program: Graphviz's `dot`, or else
`graphviz-pure`, which the extra `draw` installs and which has the same flags.
"""

import shutil
import subprocess
import sysconfig
from pathlib import Path

from dsa.errors import DsaError

TIME_LIMIT_S = 120


class RenderError(DsaError):
    """Raised when a picture cannot be made: no renderer is installed, or the renderer refused or did not end."""


def renderer() -> Path | None:
    """Give the program that draws: `dot`, else `graphviz-pure` on the path or beside this interpreter, else None."""
    scripts = sysconfig.get_path("scripts")
    found = shutil.which("dot") or shutil.which("graphviz-pure") or shutil.which("graphviz-pure", path=scripts)
    return Path(found) if found else None


def svg(dot_text: str) -> str:
    """Draw DOT text as an SVG document. Raises RenderError."""
    return _drawn(dot_text, "-Tsvg").decode("utf-8")


def png(dot_text: str) -> bytes:
    """Draw DOT text as a PNG image of 144 dots per inch. Raises RenderError."""
    return _drawn(dot_text, "-Tpng", "-Gdpi=144")


def _drawn(dot_text: str, *flags: str) -> bytes:
    program = renderer()
    if program is None:
        msg = "no renderer is installed; `pip install graphviz-pure`, or install Graphviz, and try again"
        raise RenderError(msg)
    try:
        done = subprocess.run(  # noqa: S603  (the program is the one found above; the text goes in as data)
            [program, *flags], input=dot_text.encode(), capture_output=True, timeout=TIME_LIMIT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as problem:
        msg = f"{program} did not draw: {problem}"
        raise RenderError(msg) from problem
    if done.returncode != 0 or not done.stdout:
        msg = f"{program} did not draw (exit {done.returncode}): {done.stderr.decode(errors='replace').strip()}"
        raise RenderError(msg)
    return done.stdout
