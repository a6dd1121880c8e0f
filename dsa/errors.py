"""Errors: places in a document, diagnostics with their codes, and the exceptions of this package.

Every other module reports with these values. The module knows nothing of machines.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import attrs

Severity = Literal["error", "warning", "info"]

#: Every diagnostic code and what it means. 1xx syntax, 2xx structure and names, 3xx what exploration and proofs
#: find, 4xx running. `specs/mistakes/` holds at least one document for each (a test compares the two lists).
CODES: dict[str, str] = {
    "DSA101": "The document has no usable name; its first-level heading is its name.",
    "DSA102": "A required section is missing, empty, or holds no table.",
    "DSA103": "A table has a column that its section does not know, or the same column twice.",
    "DSA104": "A table lacks a required column.",
    "DSA105": "A row has more or fewer cells than the header.",
    "DSA106": "A required cell is empty.",
    "DSA107": "A cell does not have the form that its column requires.",
    "DSA108": "An expression cannot be read.",
    "DSA109": "A property cannot be read.",
    "DSA110": "A heading looks like a section of the language and is not one.",
    "DSA111": "Sections cannot be combined, or a section is in a place where it has no meaning.",
    "DSA112": "A prompt has an unknown part or placeholder, or a part without its one fenced block.",
    "DSA113": "The document that a line names cannot be read, or is not a machine.",
    "DSA114": "The document, or a table in it, is too large to be read.",
    "DSA201": "A name is not declared.",
    "DSA202": "A name is declared twice, or has two meanings.",
    "DSA203": "A name is reserved or not well formed.",
    "DSA204": "An expression has the wrong type.",
    "DSA205": "A domain is empty or unbounded, or a value is outside its domain.",
    "DSA206": "The states have no single initial state, or their nesting is wrong.",
    "DSA207": "A row leaves a final state, or names a source or a target that is not allowed.",
    "DSA208": "A variable is assigned more than once in a row.",
    "DSA209": "A guard's verdict is read where the guard does not judge.",
    "DSA210": "A row sets workflow state without its guards having passed (S9, Definition 4).",
    "DSA211": "A row revokes workflow state, or sets it without a verdict or after only one of several answers (allowed, but reported).",
    "DSA212": "A declared name is never used.",
    "DSA213": "An effect is cancelled, emitted, counted or read as pending where that makes no sense.",
    "DSA214": "The existing steps cannot provide what a step requires or uses, the goal, or the result.",
    "DSA215": "A guard, a generator or a sleep cannot be made from what its row says.",
    "DSA301": "A state cannot be reached.",
    "DSA302": "A row can never be taken.",
    "DSA303": "A state that is not final has no way out.",
    "DSA304": "Two rows are enabled at once.",
    "DSA305": "An answer or a timer is not handled where it can arrive.",
    "DSA306": "An update leaves its variable's domain.",
    "DSA307": "An effect is emitted while the allowed number is already outstanding.",
    "DSA308": "Deadlock: the state is not final, no effect is outstanding, and no event is accepted.",
    "DSA309": "An event from outside is refused for some values in a state that has rows for this event.",
    "DSA310": "A scenario does not run as written.",
    "DSA311": "No scenario takes these rows.",
    "DSA312": "Exploration stopped at its limit, so nothing is known about what it did not reach.",
    "DSA313": "A property holds only because what it is about never happens.",
    "DSA314": "A property holds only if an effect without a time limit answers.",
    "DSA315": "A property holds only if an effect does not fail, but no row handles its failure.",
    "DSA316": "A prompt or a guard reads the data of an event that may not have occurred.",
    "DSA317": "An effect or a variable is not declared as the spec says.",
}


@attrs.frozen
class Span:
    """A stretch of one line of a document.

    Lines and columns count from 1; `end` is the column after the last character. `text` is the whole
    line, so that a diagnostic can be shown without reading the document again.
    """

    path: str
    line: int
    column: int
    end: int
    text: str = attrs.field(repr=False)

    def __str__(self) -> str:
        return f"{self.path}:{self.line}:{self.column}"


@attrs.frozen
class SourceNode:
    """A base for values with a place in a document. `span` is None for values built in Python; equality ignores it."""

    span: Span | None = attrs.field(default=None, eq=False, repr=False, kw_only=True)


@attrs.frozen
class Diagnostic:
    """One finding: a stable code, its severity, message and place, and a hint that says what to write instead."""

    code: str
    severity: Severity
    message: str
    span: Span
    hint: str = ""

    def render(self) -> str:
        """Return the finding as people read it: place, code, message, the line with a caret, the hint."""
        lines = [f"{self.span}: {self.severity} {self.code}: {self.message}"]
        if self.span.text.strip():
            gutter = f"{self.span.line:>5} | "
            span = _near(self.span)
            width = max(1, min(span.end, len(span.text) + 1) - span.column)
            lines.append(gutter + span.text)
            lines.append(" " * (len(gutter) - 2) + "| " + _indent(span) + "^" * width)
        if self.hint:
            lines.append(f"        hint: {self.hint}")
        return "\n".join(lines)


_WIDEST, _BEFORE = 400, 100


def _near(span: Span) -> Span:
    """Cut a very long line to the text around the place, so that thousands of findings in it stay readable."""
    if len(span.text) <= _WIDEST:
        return span
    start = max(0, min(span.column - 1 - _BEFORE, len(span.text) - _WIDEST))
    text = ("..." if start else "") + span.text[start : start + _WIDEST]
    shift = start - (len("...") if start else 0)
    end = min(span.end, start + _WIDEST + 1)
    return Span(span.path, span.line, span.column - shift, max(end, span.column) - shift, text)


def _indent(span: Span) -> str:
    """Return the white space before the caret; tabs stay tabs, so that it lines up in any terminal."""
    return "".join("\t" if character == "\t" else " " for character in span.text[: span.column - 1])


class DsaError(Exception):
    """The root of everything this package raises on purpose.

    `code` is the word for it in JSON, ledgers and spans: the one that it was raised with, or else the name of its class.
    """

    def __init__(self, message: str = "", *, code: str = "") -> None:
        super().__init__(message)
        self.code = code or type(self).__name__


def code_of(error: BaseException) -> str:
    """Return the word for an error in JSON, ledgers and spans: the code of one of this package, the name of the class of any other."""
    return error.code if isinstance(error, DsaError) else type(error).__name__


class UndecidedError(DsaError):
    """Raised when one method of checking cannot decide a question, or reaches a limit first; the message says why. The caller reports it, or tries another method."""


def install_hint(extra: str) -> str:
    """Return the command that installs an extra: from a clone, as nothing is released yet."""
    return f"pip install '.[{extra}]' (in a clone of dual-state-agents)"


#: The most findings that are shown at once.
MOST_SHOWN = 100


def more(findings: Sequence[Diagnostic]) -> tuple[str, ...]:
    """Return a line with the number of findings that are not shown; no line when all are shown."""
    left = len(findings) - MOST_SHOWN
    return (f"and {left:,} more: fix these first, or see all with dsa check --json",) if left > 0 else ()


class ToolError(DsaError):
    """Raised by a tool whose call cannot be made or fails; the work goes on. The message is for the model, `code` names the rule or the fault.

    `about` is JSON that the result for the model also has.
    """

    def __init__(self, message: str = "", *, code: str = "", about: Mapping[str, object] | None = None) -> None:
        self.about = dict(about or {})
        super().__init__(message, code=code)


class MachineError(DsaError, ValueError):
    """Raised when a document is not a machine. `diagnostics` holds every finding, errors first."""

    def __init__(self, diagnostics: Iterable[Diagnostic]) -> None:
        self.diagnostics = tuple(diagnostics)
        super().__init__(
            "\n".join([*(finding.render() for finding in self.diagnostics[:MOST_SHOWN]), *more(self.diagnostics)])
        )


class OccurrenceError(DsaError, ValueError):
    """Raised when an event occurrence is malformed: unknown event, missing, extra or unknown verdicts (S4)."""


class ParameterError(DsaError, ValueError):
    """Raised when a parameter is unknown or its value lies outside its domain, for a budget that cannot be read, and for odds that do not fit the machine."""


class DocumentError(DsaError):
    """Raised when a file cannot be read at all: a document, or a source of data. `path` names it, `reason` is what is wrong with it."""

    def __init__(self, path: str, reason: str, *, code: str = "") -> None:
        self.path, self.reason = path, reason
        super().__init__(f"{path}: {reason}", code=code)


class BindingError(DsaError, ValueError):
    """Raised when a name of the table has no implementation, or a wrong one. `span` is the name's place, if it has one."""

    def __init__(self, message: str, span: Span | None = None, hint: str = "") -> None:
        self.span = span
        self.hint = hint
        place = f"{span}: " if span else ""
        super().__init__(place + message + (f"\n        hint: {hint}" if hint else ""))
