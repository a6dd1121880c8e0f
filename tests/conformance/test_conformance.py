"""Everything in `specs/conformance/`, through every engine: each must give the answers written there.

The comparison here is small and independent of `dsa.checks`, so that a fault in either of them shows.
"""

import json
import re
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path

import attrs
import pytest
from each_row import each_row

from dsa.compiled_step import compiled_step
from dsa.declarations import TIMER_PREFIX, Emit, RefusedAction, Scenario, ScenarioStep
from dsa.edge.document_files import load
from dsa.errors import OccurrenceError
from dsa.expr import (
    BooleanDomain,
    EnumDomain,
    RangeDomain,
    unparse,
    unparse_domain,
)
from dsa.lang import loads
from dsa.machine import Machine, read_guards
from dsa.semantics import Configuration, Occurrence, Refusal, Taken, start, step
from dsa.targets.statechart import StatechartRun

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "specs" / "conformance"
DATA = {"README.md", "occurrences.md", "readings.md"}
DOCUMENTS = sorted(path.name for path in FOLDER.glob("*.md") if path.name not in DATA)
SPECS = ["specs/dual_state.md", "specs/workflow.md"]

Act = Callable[[Configuration, Occurrence], Taken | Refusal]


def on_statechart(machine: Machine) -> Act:
    run = StatechartRun(machine)

    def act(configuration: Configuration, occurrence: Occurrence) -> Taken | Refusal:
        run.configuration = configuration
        return run.send(occurrence)

    return act


#: Every engine that executes a machine: from a machine to a function like `step`.
ENGINES: dict[str, Callable[[Machine], Act]] = {
    "reference": lambda machine: partial(step, machine),
    "compiled": lambda machine: compiled_step(machine).step,
    "statechart": on_statechart,
}


@cache
def machine_named(name: str) -> Machine:
    if name.startswith("specs/"):
        return load(str(ROOT / name))
    return loads((FOLDER / name).read_text(encoding="utf-8"), name)


def rows_of_tables(name: str) -> Iterator[dict[str, str]]:
    """Yield the rows of all tables of a data file by column; the rest of the file is for people."""
    header: list[str] = []
    for line in (FOLDER / name).read_text(encoding="utf-8").splitlines():
        cells = [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if not cells:
            header = []
        elif not header:
            header = cells
        elif set("".join(cells)) - set("-: "):
            yield dict(zip(header, cells, strict=True))


def occurrence_of(machine: Machine, state: str, percept: ScenarioStep) -> Occurrence:
    """Fill in the omitted parts of a percept: a guard not named has passed, a timer is the innermost armed one."""
    source, event = None, percept.event
    if event.startswith(TIMER_PREFIX):
        armed = [owner for owner, timer in machine.armed_timers(state) if timer == event]
        source = (armed or [owner for owner, timer in machine.rows_from if timer == event])[0]
    rows = machine.rows_for(state, event) if source is None else machine.rows_from[source, event]
    return Occurrence(event, {**dict.fromkeys(read_guards(rows), "passed"), **dict(percept.verdicts)}, source)


def differences(machine: Machine, before: Configuration, percept: ScenarioStep, answer: Taken | Refusal) -> list[str]:
    """Return the differences between an answer and the row of the scenario for a percept."""
    if isinstance(percept.action, RefusedAction):
        if isinstance(answer, Taken):
            return [f"taken: {answer.transition}"]
        wrong = [] if percept.action.reason in {None, answer.reason} else [f"refused: {answer.reason}"]
        return wrong + ([] if answer.configuration == before else ["the refusal changed the configuration"])
    if isinstance(answer, Refusal):
        return [f"refused: {answer.reason} ({answer.message})"]
    after = answer.configuration
    values = {variable.name: value for variable, value in zip(machine.variables, after.values, strict=True)}
    emitted = tuple(item.effect for item in percept.action if isinstance(item, Emit))
    found = {
        "action": (tuple(map(str, answer.transition.effects)), tuple(map(str, percept.action))),
        "effects": (answer.effects, emitted),
        "state": (_within(after.state, percept.state), True),
        **{name: (values[name], expected) for name, expected in percept.values},
    }
    if percept.dependencies is not None:
        uses = {used.name: used.uses for used in machine.steps}
        found["deps"] = (uses[after.state.partition(".")[2]], percept.dependencies)
    return [f"{what}: {got}, expected {expected}" for what, (got, expected) in found.items() if got != expected]


def _within(state: str, expected: str | None) -> bool:
    return expected is None or f"{state}.".startswith(f"{expected}.")


def scenarios() -> list[tuple[str, Scenario]]:
    names = [*DOCUMENTS, *SPECS]
    return [(name, scenario) for name in names for scenario in machine_named(name).scenarios]


@pytest.mark.parametrize("engine", ENGINES)
@each_row(("name", "scenario"), scenarios(), ids=lambda part: getattr(part, "name", part))
def test_scenario(name: str, scenario: Scenario, engine: str):
    machine = machine_named(name).at(dict(scenario.parameters))
    act, configuration = ENGINES[engine](machine), start(machine)
    for percept in scenario.steps:
        occurrence = occurrence_of(machine, configuration.state, percept)
        answer = act(configuration, occurrence)
        assert not differences(machine, configuration, percept, answer), percept.span
        assert act(configuration, occurrence) == answer, "the same question was answered otherwise (S8)"
        configuration = answer.configuration


def _verdicts(text: str) -> list[tuple[str, str]]:
    words = [word.strip().rpartition(".") for word in text.split(",") if word.strip()]
    return [(guard, outcome) for guard, _, outcome in words]


def _prefix(machine: Machine, percepts: str) -> Configuration:
    """Take the percepts of a column `after`, by the reference."""
    configuration = start(machine)
    for text in filter(None, (part.strip() for part in percepts.split(";"))):
        timer = text.startswith(TIMER_PREFIX)
        event, _, verdicts = (text, "", "") if timer else text.partition(" ")
        percept = ScenarioStep(event, tuple(_verdicts(verdicts)))
        answer = step(machine, configuration, occurrence_of(machine, configuration.state, percept))
        assert isinstance(answer, Taken), f"'{text}' should be taken on the way: {answer}"
        configuration = answer.configuration
    return configuration


@pytest.mark.parametrize("engine", ENGINES)
@each_row("row", list(rows_of_tables("occurrences.md")), ids=lambda row: "-".join(filter(None, row.values())))
def test_single_occurrence(row: dict[str, str], engine: str):
    machine = machine_named(row["document"])
    before = _prefix(machine, row["after"])
    occurrence = Occurrence(row["event"], _verdicts(row["verdicts"]), row["source"] or None)
    act = ENGINES[engine](machine)
    if row["answer"] == "malformed":
        with pytest.raises(OccurrenceError):
            act(before, occurrence)
        return
    answer = act(before, occurrence)
    taken = isinstance(answer, Taken)
    said = f"taken {answer.configuration.state}" if taken else f"refused {answer.reason}"
    assert said == row["answer"]
    assert taken or answer.configuration == before
    if "outstanding" in row:
        assert sorted(answer.configuration.outstanding) == _names(row["outstanding"])
        assert sorted(answer.cancelled) == _names(row["cancelled"])


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def plain(value: object) -> object:
    """Return a field of a declaration as JSON has it; trees as a cell has them."""
    if isinstance(value, BooleanDomain | RangeDomain | EnumDomain):
        return unparse_domain(value)
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    if attrs.has(type(value)):
        return unparse(value) if "span" in attrs.fields_dict(type(value)) and _is_expression(value) else str(value)
    return value


def _is_expression(value: object) -> bool:
    return type(value).__module__ == "dsa.expr"


@each_row("row", list(rows_of_tables("readings.md")), ids=lambda row: f"{row['column']}-{row['of']}")
def test_reading(row: dict[str, str]):
    """Fields that no scenario shows because `step` never reads them: each cell sets the named field of its declaration."""
    machine = machine_named(row["document"])
    kind, _, place = row["of"].rpartition(" ")
    items = getattr(machine, row["in"])
    found = items[int(place) - 1] if kind else next(item for item in items if item.name == row["of"])
    fields = row["field"].split(".")
    for field in fields:
        found = found[int(field)] if field.isdigit() else getattr(found, field)
    assert plain(found) == json.loads(row["reads as"])
