"""Collects what is wrong with a document, so that one run reports every fault.

Takes spans and words, gives `Diagnostic` values. Knows nothing of tables or expressions.
"""

from dsa.errors import Diagnostic, Span
from dsa.lang.exprs import NAME

_LONGEST = 300


class Findings:
    """The diagnostics of one reading, in the order found. Mutable on purpose, and private to `dsa.lang`.

    One fault is reported once: what stands in a part that could not be read is in doubt, and that a name in doubt is not
    declared is only a consequence.
    """

    def __init__(self) -> None:
        self._found: list[Diagnostic] = []
        self._consequences: list[Diagnostic] = []
        self._doubtful: set[str] = set()
        self._doubt_all = False

    def error(self, code: str, message: str, span: Span, hint: str = "", *, about: str = "") -> None:
        """Add an error: the document is no machine. `about` is the name that is missed, if that is the fault."""
        finding = Diagnostic(code, "error", _short(message), span, hint)
        is_consequence = about and (self._doubt_all or not self._doubtful.isdisjoint(about.split(".")))
        (self._consequences if is_consequence else self._found).append(finding)

    def doubt(self, text: str) -> None:
        """Take note of the names in a text that could not be read; the fault itself is reported."""
        self._doubtful.update(part for name in NAME.findall(text) for part in name.split("."))

    def doubt_all(self) -> None:
        """Take note that what declares most names could not be read."""
        self._doubt_all = True

    def warning(self, code: str, message: str, span: Span, hint: str = "") -> None:
        """Add a warning: the document is a machine, perhaps not the one that was meant."""
        self._found.append(Diagnostic(code, "warning", message, span, hint))

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """Everything found, once each, by line and column; a consequence only where no error is its cause."""
        found = [*self._found, *([] if self._any_cause else self._consequences[:1])]
        return tuple(sorted(dict.fromkeys(found), key=lambda d: (d.span.path, d.span.line, d.span.column, d.code)))

    @property
    def count(self) -> int:
        """How many findings there are so far, consequences included."""
        return len(self._found) + len(self._consequences)

    @property
    def any_error(self) -> bool:
        """Tell whether the document is no machine."""
        return self._any_cause or bool(self._consequences)

    @property
    def _any_cause(self) -> bool:
        return any(finding.severity == "error" for finding in self._found)


def _short(message: str) -> str:
    """Keep the beginning and the end of a message that quotes a very long cell."""
    return message if len(message) <= _LONGEST else f"{message[: _LONGEST // 2]} ... {message[-_LONGEST // 2 :]}"
