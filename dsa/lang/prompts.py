"""The sections Cases, Prompt and Constraints to values.

Takes sections, gives texts and Python literals as text; nothing here is executed.
"""

import ast
import re
import warnings
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from dsa.declarations import Case, Cases, Prompt
from dsa.lang.columns import COLUMNS, Record, records
from dsa.lang.findings import Findings
from dsa.lang.markdown import Cell, Fence, Heading, Section
from dsa.references import UnreadableReferenceError, read_reference
from dsa.words import closest, nearest, some_of

PARTS = ("system", "role", "constraints", "task", "feedback")
#: `{name}` is a placeholder; `{{` and `}}` are braces.
_PLACEHOLDER = re.compile(r"\{\{|\}\}|\{([^{}\n]*)\}")


def read_cases(section: Section, findings: Findings) -> Cases:
    """Read one Cases section."""
    if not section.tables:
        hint = "a table with the columns call and expected"
        findings.error("DSA102", "this section has no table", section.heading.span(), hint)
    found = [_case(record, findings) for record in records(section, COLUMNS["cases"], findings)]
    cases = tuple(case for case in found if case is not None)
    return Cases(section.name, cases, span=section.heading.span())


def _case(record: Record, findings: Findings) -> Case | None:
    call, expected = record["call"].plain, record["expected"].plain
    tree = _python(call)
    if not isinstance(tree, ast.Call):
        hint = "write it as Python: add(2, 3)"
        findings.error("DSA107", f"'{call}' is not a call", record["call"].span(), hint)
        return None
    try:
        with _quiet():
            ast.literal_eval(expected)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        hint = "write a Python literal: 5, 'text', [1, 2], None"
        findings.error("DSA107", f"'{expected}' is not a literal value", record["expected"].span(), hint)
        return None
    return Case(call, expected, span=record.span)


@contextmanager
def _quiet() -> Iterator[None]:
    r"""Keep Python from warning of what people wrote: `'\d'` is text, even where warnings are errors."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _python(text: str) -> ast.expr | None:
    try:
        with _quiet():
            return ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return None


def read_prompt(section: Section, allowed: tuple[str, ...], events: Collection[str], findings: Findings) -> Prompt:
    """Read one Prompt section: third-level headings, each followed by one fence. `allowed` are the placeholders beside what `events` have brought."""
    parts: dict[str, str] = {}
    before = findings.count
    for place, block in enumerate(section.blocks):
        if not isinstance(block, Heading):
            continue
        part = block.title.text.strip().lower()
        following = section.blocks[place + 1] if place + 1 < len(section.blocks) else None
        if part not in PARTS:
            message = f"a prompt has no part '{block.title.text}'"
            findings.error("DSA112", message, block.title.span(), closest(part, PARTS))
        elif part in parts:
            findings.error("DSA112", f"the part {part} stands twice", block.title.span())
        elif not isinstance(following, Fence):
            hint = "put its text between two lines of ```"
            findings.error("DSA112", f"the part {part} is not followed by a fence", block.title.span(), hint)
        else:
            parts[part] = following.content.removesuffix("\n")
            also = ("feedback",) if part == "feedback" else ()
            for line in following.body:
                require_placeholders(line, (*allowed, *also), events, findings)
    if not any(parts.values()) and findings.count == before:
        hint = "### System, ### Role, ### Constraints, ### Task, ### Feedback, each with one fence"
        findings.error("DSA112", "this prompt has no parts", section.heading.span(), hint)
    return Prompt(section.name, **parts, span=section.heading.span())


def require_placeholders(cell: Cell, allowed: tuple[str, ...], events: Collection[str], findings: Findings) -> None:
    """Report the placeholders of a line or a cell that nothing will fill in."""
    for match in _PLACEHOLDER.finditer(cell.text):
        name = match[1]
        if name is None or name in allowed:
            continue
        try:
            read_reference(name, events)
        except UnreadableReferenceError as fault:
            meant = _what_fills(fault.about, allowed, events) if fault.about else fault.hint
            meant = f"write '{{{name.strip()}}}'" if name.strip() in {*allowed, *events} else meant
            message = f"nothing fills in the placeholder '{{{name}}}'"
            span = cell.span(match.start(), match.end())
            findings.error("DSA112", message, span, f"{meant}; a brace is written '{{{{' or '}}}}'", about=fault.about)


def _what_fills(name: str, allowed: tuple[str, ...], events: Collection[str]) -> str:
    """Give a hint for the name in a placeholder that is none: what was meant, else what there is."""
    if nearest(name, {*allowed, *events}) is not None:
        return closest(name, {*allowed, *events}).rstrip("?")
    return f"{closest(name, allowed)}; and what events have brought: {some_of(sorted(events))}"


def read_constraints(section: Section, lines: tuple[str, ...]) -> str:
    """Give the text of the Constraints section, as written."""
    text = "\n".join(lines[section.first : section.last]).rstrip()
    return text[len(text) - len(text.lstrip("\n")) :]
