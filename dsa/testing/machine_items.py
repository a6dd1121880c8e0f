"""Machine documents as test files: their pytest items, and the report of `pytest --machine-coverage`.

The items of a document are `check`, each property and each scenario. The document is read when it is collected, and checked when its
first item runs.

The coverage is which rows, states and verdicts of machines were taken, by scenarios and by tests. It counts what tests take through
`dsa.testing` (tours, suites, walks) and through runs (`dsa.runtime.run`, so the driver too), in this process and in pytest-xdist's workers.
Machines are recognised by their name and rows, whatever their parameters.
"""

import hashlib
import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import attrs
import pytest

from dsa.checks.report import CheckReport, PropertyResult, check
from dsa.checks.scenarios import occurrence_of
from dsa.compiled_step import compiled_step
from dsa.declarations import Scenario, Transition
from dsa.edge.document_files import read_document
from dsa.errors import DocumentError, DsaError
from dsa.lang import DocumentReading
from dsa.machine import Machine, read_guards
from dsa.runtime.ledger import RefusalEntry
from dsa.runtime.run import Command, Run
from dsa.semantics import Occurrence, Taken, start, step
from dsa.testing.explored_graph import Coverage, forget_listener, listen, row_label
from dsa.trace import show_values


class MachineFile(pytest.File):
    """A machine document, or a spec."""

    @property
    def relative_path(self) -> str:
        """The path that messages show: relative to the working folder."""
        return shown_path(self.path)

    @cached_property
    def document(self) -> DocumentReading:
        """The document as read. Raises DocumentError when it cannot be read."""
        return read_document(self.relative_path)

    @cached_property
    def report(self) -> CheckReport:
        """The report of its checks, at all defaults and at all minima of the parameters."""
        assert self.document.machine is not None, "only a machine has items beside `check`"
        return check(self.document.machine)

    @property
    def holds_check(self) -> bool:
        """Return whether the item `check` of this document runs too, so that an error is seen to fail."""
        return any(isinstance(item, CheckItem) and item.parent is self for item in self.session.items)

    def collect(self) -> Iterator[pytest.Item]:
        """Yield the items; a spec has its own properties and scenarios, not those of its machine."""
        yield CheckItem.from_parent(self, name="check")
        machine = self.document.machine
        if machine is None:
            return
        counts = Counter[str]()
        for place, claim in enumerate(machine.properties):
            if claim.span is None or claim.span.path == self.relative_path:
                text = claim.span.text[claim.span.column - 1 : claim.span.end - 1] if claim.span else str(claim.form)
                yield PropertyItem.from_parent(self, name=_unique_name(counts, f"property: {text}"), place=place)
        for place, scenario in enumerate(machine.scenarios):
            if scenario.span is None or scenario.span.path == self.relative_path:
                yield ScenarioItem.from_parent(
                    self, name=_unique_name(counts, f"scenario: {scenario.name}"), place=place
                )


def shown_path(path: Path) -> str:
    """Return a path relative to the working folder, where that is possible."""
    try:
        return os.path.relpath(path)
    except ValueError:  # on another drive
        return str(path)


def _unique_name(counts: Counter[str], name: str) -> str:
    counts[name] += 1
    return name if counts[name] == 1 else f"{name} ({counts[name]})"


class MachineItem(pytest.Item):
    """An item of a machine document: no fixtures, and failures are texts."""

    parent: MachineFile

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
            document = self.parent.document
        except DocumentError as fault:
            pytest.fail(str(fault), pytrace=False)
        diagnostics = [*document.diagnostics, *(self.parent.report.diagnostics if document.machine else ())]
        errors = [item.render() for item in diagnostics if item.severity == "error" and item.code != "DSA310"]
        if errors:
            pytest.fail("\n".join(errors), pytrace=False)


class ClaimItem(MachineItem):
    """One property or scenario: `claims` names the field of the machine that has them."""

    claims: Literal["properties", "scenarios"]

    def __init__(self, *, place: int, **more: Any) -> None:  # noqa: ANN401  (pytest's)
        super().__init__(**more)
        self._place = place

    def line(self) -> int | None:
        """Return the claim's line."""
        machine = self.parent.document.machine
        span = getattr(machine, self.claims)[self._place].span if machine else None
        return span.line if span else None


class PropertyItem(ClaimItem):
    """A property holds wherever the checks explored."""

    claims = "properties"

    def runtest(self) -> None:
        """Fail when it is violated, and when it could not be judged: what is unknown does not pass."""
        result = self.parent.report.properties[self._place]
        if result.blocking_codes and self.parent.holds_check:
            # The one fault fails `check`; the properties could not be judged for it, and do not fail too.
            pytest.skip(
                f"not judged because of {' and '.join(result.blocking_codes)}: see {self.parent.relative_path}::check"
            )
        if result.failed:
            pytest.fail(_failure_text(self.parent.relative_path, result), pytrace=False)


def _failure_text(path: str, result: PropertyResult) -> str:
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
            pytest.fail(
                f"{self.parent.relative_path}:{line}: scenario '{result.name}': {result.message}", pytrace=False
            )


_OUTPUT = "dsa_machine_coverage"
_ROWS_LISTED = 10


class MachineCoverage:
    """Listens while tests run, and reports at the end. `documents` are the paths of the documents collected."""

    def __init__(self, config: pytest.Config, least: float | None) -> None:
        self.documents: list[str] = []
        self._least = least
        self._config = config
        self._taken: dict[str, Coverage] = {}
        self._key_of: dict[int, tuple[Machine, str, dict[int, int]]] = {}
        self._feed = Run.feed
        setattr(Run, "feed", self._counting_feed())  # noqa: B010  (a method is not assigned to)
        listen(self.hear)

    def pytest_unconfigure(self) -> None:
        """Stop listening."""
        setattr(Run, "feed", self._feed)  # noqa: B010
        forget_listener(self.hear)

    def _counting_feed(self) -> Callable[..., tuple[Run, tuple[Command, ...]]]:
        """Return the `Run.feed` that counts rows; runs use it from now on."""

        def feed(
            run: Run, occurrence: Occurrence, key: str | None = None, *, at_ms: int = 0, at: str | None = None
        ) -> tuple[Run, tuple[Command, ...]]:
            after, commands = self._feed(run, occurrence, key, at_ms=at_ms, at=at)
            outcome = compiled_step(run.machine).step(run.configuration, occurrence)
            if isinstance(outcome, Taken) and not isinstance(after.ledger[-1], RefusalEntry):
                self.hear(run.machine, occurrence, outcome.transition, outcome.configuration.state)
            return after, commands

        return feed

    def hear(self, machine: Machine, occurrence: Occurrence, row: Transition, state: str) -> None:
        """Count a row that a test has taken."""
        entry = self._key_of.get(id(machine))
        if entry is None:
            places = {id(row): place for place, row in enumerate(machine.transitions)}
            # The machine is kept, so that no other one gets its id.
            entry = self._key_of[id(machine)] = (machine, key_of(machine), places)
        _, key, places = entry
        coverage = self._taken.setdefault(key, Coverage(machine))
        coverage.begin(start(machine).state)
        coverage.took(places[id(row)], occurrence, state)

    # -- pytest-xdist: a worker passes on its figures ------------------------------------------------------------

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Pass the figures to the controller, or, where the report is made, fail when too little is covered."""
        output = getattr(self._config, "workeroutput", None)
        if output is not None:
            output[_OUTPUT] = {
                "documents": self.documents,
                "taken": {k: _coverage_json(c) for k, c in self._taken.items()},
            }
        elif self._least is not None and self._short() and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:  # noqa: ANN401, ARG002  (xdist's hook)
        """Add what a worker counted."""
        output = getattr(node, "workeroutput", {}).get(_OUTPUT, {"documents": [], "taken": {}})
        self.documents += output["documents"]
        for key, taken in output["taken"].items():
            mine = self._taken.setdefault(key, Coverage(_nothing(taken["machine"])))
            mine.rows |= set(taken["rows"])
            mine.states |= set(taken["states"])
            mine.verdicts |= {(guard, outcome) for guard, outcome in taken["verdicts"]}

    # -- the report -----------------------------------------------------------------------------------------------

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Write the report."""
        terminalreporter.section("machine coverage")
        lines = list(self._coverage_lines())
        for line in _table([item for item in lines if item.by_scenarios.tests or item.by_tests.rows]):
            terminalreporter.write_line(line)
        for item in lines:
            terminalreporter.write_line(f"{item.title}: {_missing(item)}")
        if not lines:
            terminalreporter.write_line("no machine document was collected")
        if self._least is not None:
            for item in self._short():
                share = f"{item.share:.0f} % of the rows of {item.title} are taken, {self._least:g} % are required"
                terminalreporter.write_line(share, red=True)

    def _short(self) -> "list[_CoverageLine]":
        least = self._least or 0.0
        return [item for item in self._coverage_lines() if item.share < least]

    def _coverage_lines(self) -> "Iterator[_CoverageLine]":
        """Return each machine whose document was collected, with what scenarios and tests take; specs join their machine."""
        lines: dict[str, _CoverageLine] = {}
        for document in sorted(set(self.documents)):
            try:
                machine = read_document(document).machine
            except DsaError:
                continue
            if machine is not None:
                key = key_of(machine)
                taken = self._taken.get(key) or Coverage(machine)
                item = lines.setdefault(key, _CoverageLine([], machine, Coverage(machine), taken))
                item.documents.append(document)
                for scenario in machine.scenarios:
                    _take(item.by_scenarios, machine, scenario)
        yield from lines.values()


@attrs.frozen
class _CoverageLine:
    """A machine with what scenarios and what tests take of it."""

    documents: list[str]
    machine: Machine
    by_scenarios: Coverage
    by_tests: Coverage

    @property
    def title(self) -> str:
        return ", ".join(self.documents)

    @property
    def rows(self) -> set[int]:
        return self.by_scenarios.rows | self.by_tests.rows

    @property
    def share(self) -> float:
        return 100 * len(self.rows) / max(1, len(self.machine.transitions))


def key_of(machine: Machine) -> str:
    """Return the key of a machine, the same in every process: by its name and rows, not its parameters' values."""
    return hashlib.sha256(repr((machine.name, machine.transitions)).encode("utf-8", "backslashreplace")).hexdigest()


def _nothing(name: str) -> Machine:
    """Return a machine that only has a name: the controller does not look at a worker's figures by row."""
    return Machine(name, (), (), "")


def _coverage_json(coverage: Coverage) -> dict[str, object]:
    verdicts = sorted(coverage.verdicts)
    rows, states = sorted(coverage.rows), sorted(coverage.states)
    return {"machine": coverage.machine.name, "rows": rows, "states": states, "verdicts": verdicts}


def _take(coverage: Coverage, machine: Machine, scenario: Scenario) -> None:
    """Count what a scenario takes, up to a percept that is not valid."""
    with suppress(Exception):  # a scenario that does not run as written fails as an item of its own
        there = machine.at(dict(scenario.parameters))
        places = {id(row): place for place, row in enumerate(there.transitions)}
        here = start(there)
        coverage.begin(here.state)
        for percept in scenario.steps:
            occurrence = occurrence_of(there, here, percept)
            result = step(there, here, occurrence)
            if isinstance(result, Taken):
                here = result.configuration
                coverage.took(places[id(result.transition)], occurrence, here.state)


def _table(lines: list[_CoverageLine]) -> Iterator[str]:
    for item in lines:
        machine = item.machine
        guards = read_guards(machine.transitions)
        verdicts = sum(len(machine.guard_named[guard].outcomes) for guard in guards)
        totals = (len(machine.transitions), len(machine.leaves), verdicts)
        for title, coverage in (("scenarios", item.by_scenarios), ("tests", item.by_tests)):
            counts = (len(coverage.rows), len(coverage.states), len(coverage.verdicts))
            figures = "  ".join(
                f"{name} {count} of {total}"
                for name, count, total in zip(("rows", "states", "verdicts"), counts, totals, strict=True)
            )
            yield f"{item.title} by {title:9}  {figures}"


def _missing(item: _CoverageLine) -> str:
    rows = item.machine.transitions
    missing = [row_label(row, place) for place, row in enumerate(rows) if place not in item.rows]
    if not missing:
        return f"all {len(rows)} rows are taken"
    more = f"; and {len(missing) - _ROWS_LISTED} more" if len(missing) > _ROWS_LISTED else ""
    return f"{len(missing)} of {len(rows)} rows not taken: {'; '.join(missing[:_ROWS_LISTED])}{more}"
