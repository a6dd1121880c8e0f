"""Collects what is wrong with a document, so that one run reports every fault.

Takes spans and words, gives `Diagnostic` values. Knows nothing of tables or expressions.
"""

import difflib
from collections.abc import Iterable

from dsa.errors import Diagnostic, Span


class Findings:
    """The diagnostics of one reading, in the order found. Mutable on purpose, and private to `dsa.lang`."""

    def __init__(self) -> None:
        self._found: list[Diagnostic] = []

    def error(self, code: str, message: str, span: Span, hint: str = "") -> None:
        """Add an error: the document is no machine."""
        self._found.append(Diagnostic(code, "error", message, span, hint))

    def warning(self, code: str, message: str, span: Span, hint: str = "") -> None:
        """Add a warning: the document is a machine, perhaps not the one that was meant."""
        self._found.append(Diagnostic(code, "warning", message, span, hint))

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """Everything found, once each, by line and column."""
        return tuple(
            sorted(dict.fromkeys(self._found), key=lambda d: (d.span.path, d.span.line, d.span.column, d.code))
        )

    @property
    def count(self) -> int:
        """How many findings there are so far."""
        return len(self._found)

    @property
    def any_error(self) -> bool:
        """Tell whether the document is no machine."""
        return any(finding.severity == "error" for finding in self._found)


def did_you_mean(word: str, known: Iterable[str], otherwise: str = "") -> str:
    """Suggest the known word nearest to a mistyped one; else list the known words, or say `otherwise` if there is none."""
    words = sorted(set(known))
    lowered = {candidate.lower(): candidate for candidate in words}
    if near := difflib.get_close_matches(word.lower(), lowered, n=1, cutoff=0.6):
        return f"did you mean '{lowered[near[0]]}'?"
    if not words:
        return otherwise
    return f"known here: {', '.join(words[:12])}{', ...' if len(words) > 12 else ''}"  # noqa: PLR2004  (a line's worth)
