"""`pytest --machine-coverage`: which rows, states and verdicts of machines were taken, by scenarios and by tests.

Counts what tests take through `dsa.testing` (tours, suites, walks) and through runs (`dsa.runtime.run`, so the driver too), in this process
and in pytest-xdist's workers. Machines are recognised by their name and rows, whatever their parameters.
"""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import attrs
import pytest

from dsa.checks.scenarios import occurrence_of
from dsa.compiled_step import compiled_step
from dsa.declarations import Scenario, Transition
from dsa.edge.document_files import read_document
from dsa.errors import DsaError
from dsa.machine import Machine, read_guards
from dsa.runtime.ledger import RefusalEntry
from dsa.runtime.run import Command, Run
from dsa.semantics import Occurrence, Taken, start, step
from dsa.testing.explored_graph import Coverage, described, forget_listener, listen

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
        setattr(Run, "feed", self._watched())  # noqa: B010  (a method is not assigned to)
        listen(self.hear)

    def pytest_unconfigure(self) -> None:
        """Listen no more."""
        setattr(Run, "feed", self._feed)  # noqa: B010
        forget_listener(self.hear)

    def _watched(self) -> Callable[..., tuple[Run, tuple[Command, ...]]]:
        """Return the door for events that runs have from now on."""

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
        known = self._key_of.get(id(machine))
        if known is None:
            places = {id(row): place for place, row in enumerate(machine.transitions)}
            # Kept, so that no other machine gets its id.
            known = self._key_of[id(machine)] = (machine, key_of(machine), places)
        _, key, places = known
        coverage = self._taken.setdefault(key, Coverage(machine))
        coverage.begin(start(machine).state)
        coverage.took(places[id(row)], occurrence, state)

    # -- pytest-xdist: a worker hands over what it heard ------------------------------------------------------------

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Hand over to the controller, or, where the report is made, ask for enough."""
        output = getattr(self._config, "workeroutput", None)
        if output is not None:
            output[_OUTPUT] = {"documents": self.documents, "taken": {k: _written(c) for k, c in self._taken.items()}}
        elif self._least is not None and self._short() and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:  # noqa: ANN401, ARG002  (xdist's hook)
        """Take over what a worker heard."""
        given = getattr(node, "workeroutput", {}).get(_OUTPUT, {"documents": [], "taken": {}})
        self.documents += given["documents"]
        for key, taken in given["taken"].items():
            mine = self._taken.setdefault(key, Coverage(_nothing(taken["machine"])))
            mine.rows |= set(taken["rows"])
            mine.states |= set(taken["states"])
            mine.verdicts |= {(guard, outcome) for guard, outcome in taken["verdicts"]}

    # -- the report -----------------------------------------------------------------------------------------------

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Write the report."""
        terminalreporter.section("machine coverage")
        measured = list(self._measured())
        for line in _table([item for item in measured if item.by_scenarios.tests or item.by_tests.rows]):
            terminalreporter.write_line(line)
        for item in measured:
            terminalreporter.write_line(f"{item.title}: {_missing(item)}")
        if not measured:
            terminalreporter.write_line("no machine document was collected")
        if self._least is not None:
            for item in self._short():
                share = f"{item.share:.0f} % of the rows of {item.title} are taken, {self._least:g} % are required"
                terminalreporter.write_line(share, red=True)

    def _short(self) -> "list[_CoverageLine]":
        least = self._least or 0.0
        return [item for item in self._measured() if item.share < least]

    def _measured(self) -> "Iterator[_CoverageLine]":
        """Return each machine whose document was collected, with what scenarios and tests take; specs join their machine."""
        found: dict[str, _CoverageLine] = {}
        for document in sorted(set(self.documents)):
            try:
                machine = read_document(document).machine
            except DsaError:
                continue
            if machine is not None:
                key = key_of(machine)
                taken = self._taken.get(key) or Coverage(machine)
                item = found.setdefault(key, _CoverageLine([], machine, Coverage(machine), taken))
                item.documents.append(document)
                for scenario in machine.scenarios:
                    _take(item.by_scenarios, machine, scenario)
        yield from found.values()


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
    """Return what a machine is recognised by, in every process: its name and rows, not its parameters' values."""
    return hashlib.sha256(repr((machine.name, machine.transitions)).encode("utf-8", "backslashreplace")).hexdigest()


def _nothing(name: str) -> Machine:
    """Return a machine that only has a name: in the controller, a worker's figures are not looked at by row."""
    return Machine(name, (), (), "")


def _written(coverage: Coverage) -> dict[str, Any]:
    verdicts = sorted(coverage.verdicts)
    rows, states = sorted(coverage.rows), sorted(coverage.states)
    return {"machine": coverage.machine.name, "rows": rows, "states": states, "verdicts": verdicts}


def _take(coverage: Coverage, machine: Machine, scenario: Scenario) -> None:
    """Count what a scenario takes, up to a percept that is none."""
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


def _table(measured: list[_CoverageLine]) -> Iterator[str]:
    for item in measured:
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
    missing = [described(row, place) for place, row in enumerate(rows) if place not in item.rows]
    if not missing:
        return f"all {len(rows)} rows are taken"
    more = f"; and {len(missing) - _ROWS_LISTED} more" if len(missing) > _ROWS_LISTED else ""
    return f"{len(missing)} of {len(rows)} rows not taken: {'; '.join(missing[:_ROWS_LISTED])}{more}"
