"""Tests as text that a user keeps: scenarios for the document, or a pytest file for an implementation.

Takes sequences of occurrences, gives text, and reads one line of it back: `specification; artifact; verdict g.failed`.
"""

import re
from collections.abc import Iterable, Sequence

from dsa.checks.scenarios import run_scenario
from dsa.claims import Refused, Scenario, ScenarioStep
from dsa.errors import OccurrenceError
from dsa.expr import OUTCOMES, Outcome, Value
from dsa.lang import scenario_text
from dsa.machine import Machine
from dsa.meaning import Configuration, Occurrence, Refusal, require_known, start, step
from dsa.testing.tours import Test
from dsa.trace import show_occurrence

_PERCEPT = re.compile(r"(?P<event>after \S+|\S+)(?: of (?P<source>\S+))?(?: (?P<verdicts>\S+\.\w+(?:, \S+\.\w+)*))?")

_FILE = '''"""{title}

{about}
"""

from pathlib import Path

import pytest

import dsa
from dsa.testing import Replayed, play, read_test, state_machine_test

MACHINE = dsa.load({document}){at}

TESTS = """
{tests}
"""


def make():
    """Give what is tested: put your adapter here (`dsa.testing.implementations`). This one is the table itself.

    Walks restart it at any time, any number of times: this one from the ledger of its run. An adapter without `restart` never is.
    """
    return Replayed(MACHINE)


@pytest.mark.parametrize("line", TESTS.strip().splitlines(), ids=lambda line: line[-60:])
def test_it_does_what_the_table_says(line):
    play(MACHINE, make, [read_test(MACHINE, line)])


#: Where one of the tests above fails, it is told, and nobody walks.
TOUR = [read_test(MACHINE, line) for line in TESTS.strip().splitlines()]
TestWalks = state_machine_test(MACHINE, make, first=TOUR).TestCase
'''


def write_test(test: Iterable[Occurrence]) -> str:
    """Write a test as one line."""
    return "; ".join(map(show_occurrence, test))


def read_test(machine: Machine, line: str) -> Test:
    """Read what `write_test` wrote. Raises OccurrenceError for what is no occurrence of this machine."""
    return tuple(_read(machine, part.strip()) for part in line.split(";") if part.strip())


def _read(machine: Machine, text: str) -> Occurrence:
    match = _PERCEPT.fullmatch(text)
    if match is None:
        raise OccurrenceError(f"'{text}' is no occurrence; write EVENT, or EVENT GUARD.VERDICT, or after 30s of STATE")
    verdicts: dict[str, Outcome] = {}
    for part in (match["verdicts"] or "").split(", ") if match["verdicts"] else ():
        guard, _, said = part.rpartition(".")
        outcome = next((outcome for outcome in OUTCOMES if outcome == said), None)
        if outcome is None:
            raise OccurrenceError(f"'{part}' is no verdict; write {guard}.passed, {guard}.failed or {guard}.fatal")
        verdicts[guard] = outcome
    occurrence = Occurrence(match["event"], verdicts, match["source"])
    require_known(machine, occurrence)
    return occurrence


def as_scenario(machine: Machine, test: Test, name: str, parameters: dict[str, Value]) -> Scenario | None:
    """Write a test as a scenario with states and changed values; None when a scenario cannot say it.

    (Which of several timers of one duration is meant cannot be said.)
    """
    steps, here = [], start(machine)
    for occurrence in test:
        percept, here = _percept(machine, here, occurrence)
        steps.append(percept)
    scenario = Scenario(name, tuple(steps), tuple(parameters.items()))
    return scenario if run_scenario(machine, scenario).ok else None


def _percept(machine: Machine, here: Configuration, occurrence: Occurrence) -> tuple[ScenarioStep, Configuration]:
    said = tuple((guard, outcome) for guard, outcome in occurrence.verdicts if outcome != "passed")
    result = step(machine, here, occurrence)
    if isinstance(result, Refusal):
        return ScenarioStep(occurrence.event, said, Refused(result.reason), here.state), here
    after = result.configuration
    values = zip(machine.variables, here.values, after.values, strict=True)
    changed = tuple((variable.name, new) for variable, old, new in values if old != new)
    return ScenarioStep(occurrence.event, said, result.transition.effects, after.state, changed), after


def as_scenarios(
    machine: Machine, tests: Sequence[Test], title: str, parameters: dict[str, Value]
) -> tuple[tuple[str, ...], int]:
    """Write tests as sections of a document; give them, and how many a scenario cannot say."""
    found = [as_scenario(machine, test, f"{title} {number}", parameters) for number, test in enumerate(tests, 1)]
    sections = tuple(f"## Scenario: {s.name}\n{scenario_text(s)}\n" for s in found if s is not None)
    return sections, len(found) - len(sections)


def as_spec(machine: Machine, sections: Sequence[str], *, document: str, title: str, about: str) -> str:
    """Write sections as a spec. `document` is the machine's path from the file's folder, or a shipped machine's name."""
    return "\n".join([f"# {machine.name}, {title}\n\nMachine: {document}\n\n{about}\n", *sections])


def as_pytest(
    machine: Machine, tests: Sequence[Test], *, document: str, shipped: bool, about: str, parameters: dict[str, Value]
) -> str:
    """Write a pytest file. `document` is the machine's path from the file's folder, or a shipped machine's name."""
    values = ", ".join(f"{name!r}: {value!r}" for name, value in parameters.items())
    text = _FILE.format(
        title=f"Tests of an implementation of {machine.name}, written by `dsa tests`. They are yours: keep them, change them.",
        about=about,
        document=repr(document) if shipped else f"str(Path(__file__).parent / {document!r})",
        at=f".at({{{values}}})" if values else "",
        tests="\n".join(map(write_test, tests)),
    )
    return text.replace("from pathlib import Path\n\n", "") if shipped else text
