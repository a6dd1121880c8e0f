"""A machine document as a test file: `check`, each property, each scenario are its items.

Takes a path, gives pytest's collector and items. The document is read when it is collected, and checked when its first item runs.
"""

import os
from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import pytest

from dsa.checks.report import CheckReport, PropertyResult, check
from dsa.edge.document_files import read_document
from dsa.errors import DocumentError
from dsa.lang import DocumentReading
from dsa.trace import show_values


class ItemFailure(Exception):  # noqa: N818  (never seen by anyone: it carries the text of a failing item)
    """Raised by an item that fails; its text is what is shown."""


class MachineFile(pytest.File):
    """A machine document, or a spec."""

    @property
    def shown(self) -> str:
        """The document as a person would name it: relative to the working folder."""
        return shown_path(self.path)

    @cached_property
    def reading(self) -> DocumentReading:
        """What reading the document gives. Raises DocumentError when it cannot be read."""
        return read_document(self.shown)

    @cached_property
    def report(self) -> CheckReport:
        """What checking it gives: at all defaults and at all minima of the parameters."""
        assert self.reading.machine is not None, "only a machine has items beside `check`"
        return check(self.reading.machine)

    @property
    def holds_check(self) -> bool:
        """Return whether the item `check` of this document runs too, so that an error is seen to fail."""
        return any(isinstance(item, CheckItem) and item.parent is self for item in self.session.items)

    def collect(self) -> Iterator[pytest.Item]:
        """Yield the items; a spec has its own properties and scenarios, not those of its machine."""
        yield CheckItem.from_parent(self, name="check")
        machine = self.reading.machine
        if machine is None:
            return
        named = Counter[str]()
        for place, claim in enumerate(machine.properties):
            if claim.span is None or claim.span.path == self.shown:
                text = claim.span.text[claim.span.column - 1 : claim.span.end - 1] if claim.span else str(claim.form)
                yield PropertyItem.from_parent(self, name=_unique(named, f"property: {text}"), place=place)
        for place, scenario in enumerate(machine.scenarios):
            if scenario.span is None or scenario.span.path == self.shown:
                yield ScenarioItem.from_parent(self, name=_unique(named, f"scenario: {scenario.name}"), place=place)


def shown_path(path: Path) -> str:
    """Return a path relative to the working folder, where that is possible."""
    try:
        return os.path.relpath(path)
    except ValueError:  # on another drive
        return str(path)


def _unique(named: Counter[str], name: str) -> str:
    named[name] += 1
    return name if named[name] == 1 else f"{name} ({named[name]})"


class MachineItem(pytest.Item):
    """An item of a machine document: no fixtures, and failures are texts."""

    parent: MachineFile

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:  # noqa: ANN401  (pytest's signature)
        """Show a failure as its text; anything else is a fault of ours and shown as such."""
        return str(excinfo.value) if isinstance(excinfo.value, ItemFailure) else super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Return where the item stands: its line from 0."""
        line = self.line()
        return self.path, None if line is None else line - 1, self.name

    def line(self) -> int | None:
        """Return the item's line from 1."""
        return None


class CheckItem(MachineItem):
    """No errors: what `dsa check` finds in the document, but its properties and scenarios, which are items of their own."""

    def runtest(self) -> None:
        """Fail with every error."""
        try:
            reading = self.parent.reading
        except DocumentError as fault:
            raise ItemFailure(str(fault)) from None
        found = [*reading.diagnostics, *(self.parent.report.diagnostics if reading.machine else ())]
        errors = [item.render() for item in found if item.severity == "error" and item.code != "DSA310"]
        if errors:
            raise ItemFailure("\n".join(errors))


class ClaimItem(MachineItem):
    """One property or scenario: `claims` names the field of the machine that has them."""

    claims: Literal["properties", "scenarios"]

    def __init__(self, *, place: int, **more: Any) -> None:  # noqa: ANN401  (pytest's)
        super().__init__(**more)
        self._place = place

    def line(self) -> int | None:
        """Return the claim's line."""
        machine = self.parent.reading.machine
        span = getattr(machine, self.claims)[self._place].span if machine else None
        return span.line if span else None


class PropertyItem(ClaimItem):
    """A property holds wherever the checks explored."""

    claims = "properties"

    def runtest(self) -> None:
        """Fail when it is violated, and when it could not be judged: what is unknown does not pass."""
        result = self.parent.report.properties[self._place]
        if result.standing and self.parent.holds_check:
            # The one fault fails `check`; that nothing is known of the properties is no fault of theirs.
            pytest.skip(f"not judged while {' and '.join(result.standing)} stands: see {self.parent.shown}::check")
        if result.failed:
            raise ItemFailure(_shown(self.parent.shown, result))


def _shown(path: str, result: PropertyResult) -> str:
    at = " and ".join(show_values(values) for values in result.values if values)
    heading = f"{path}:{result.line}: {result.text}: {result.verdict}{f' at {at}' if at else ''}"
    trace = result.trace.show(result.loop) if result.trace is not None else ""
    return "\n".join(part for part in (heading, result.reason, trace) if part)


class ScenarioItem(ClaimItem):
    """A scenario runs as written."""

    claims = "scenarios"

    def runtest(self) -> None:
        """Fail at the step that goes another way."""
        result = self.parent.report.scenarios[self._place]
        if not result.ok:
            line = result.span.line if result.span else result.line
            raise ItemFailure(f"{self.parent.shown}:{line}: scenario '{result.name}': {result.message}")
