"""`specs/conformance/README.md` is complete: two accepted and two refused cases for every rule and every column."""

import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from each_row import each_row

from dsa.declarations import RefusedAction
from dsa.lang import loads
from dsa.lang.cells import COLUMNS
from dsa.lang.markdown import read
from dsa.machine import Machine

FOLDER = Path(__file__).parents[2] / "specs" / "conformance"
DATA = {"README.md", "occurrences.md", "readings.md"}
RULES = [*(f"S{number}" for number in range(1, 13)), "Literals", "Counts", *(f"Fa{number}" for number in range(1, 10))]
#: A scenario may have a column for any variable; the index calls it this.
VARIABLE = "scenario.VARIABLE"
SUBJECTS = [*RULES, *(f"{kind}.{column}" for kind, columns in COLUMNS.items() for column in columns.all), VARIABLE]


def rows_of_tables(path: Path) -> Iterator[dict[str, str]]:
    header: list[str] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if not cells:
            header = []
        elif not header:
            header = cells
        elif set("".join(cells)) - set("-: "):
            yield dict(zip(header, cells, strict=True))


INDEX = list(rows_of_tables(FOLDER / "README.md"))


@cache
def machine_named(name: str) -> Machine:
    return loads((FOLDER / name).read_text(encoding="utf-8"), name)


def kind_of(name: str, scenario: str) -> str:
    found = next(item for item in machine_named(name).scenarios if item.name == scenario)
    return "refused" if any(isinstance(step.action, RefusedAction) for step in found.steps) else "accepted"


def findings_in_column(path: Path, kind: str, column: str) -> int:
    """Count the findings of a mistake that lie in a column of a section's tables."""
    document = read(path.read_text(encoding="utf-8"), path.name)
    spans = []
    for section in document.sections:
        for table in section.tables if section.kind == kind else ():
            header = [cell.text for cell in table.header.cells]
            places = [
                place
                for place, name in enumerate(header)
                if name == column or (column == "VARIABLE" and name not in COLUMNS[kind].all)
            ]
            spans += [row.cells[place].span() for row in table.rows for place in places if place < len(row.cells)]
    report = path.with_suffix(".txt").read_text(encoding="utf-8")
    reported = [(int(line), int(at)) for line, at in re.findall(r"^[\w.]+:(\d+):(\d+): ", report, re.MULTILINE)]
    return sum(span.line == line and span.column <= at <= span.end for line, at in reported for span in spans)


def cases(subject: str) -> Counter[str]:
    """Count the cases that the index gives for a rule or a column, by kind."""
    found: Counter[str] = Counter()
    for row in INDEX:
        path = FOLDER / row["document"]
        if row["shows"] != subject:
            continue
        if row["scenario"]:
            found[kind_of(row["document"], row["scenario"])] += 1
        elif row["document"] == "readings.md":
            found[row["kind"]] += sum(reading["column"] == subject for reading in rows_of_tables(path))
        elif path.name.startswith("columns_"):
            found[row["kind"]] += findings_in_column(path, *subject.split("."))
        else:
            found[row["kind"]] += 1
    return found


@each_row("subject", SUBJECTS)
def test_every_subject_has_two_accepted_and_two_refused_cases(subject: str):
    found = cases(subject)
    assert found["accepted"] >= 2
    assert found["refused"] >= 2


def test_index_lists_exactly_the_existing_rules_and_columns():
    assert {row["shows"] for row in INDEX} == set(SUBJECTS)


def test_index_marks_each_scenario_as_accepted_or_refused():
    wrong = [r for r in INDEX if r["scenario"] and r["kind"] != kind_of(r["document"], r["scenario"])]
    assert not wrong


def test_every_scenario_is_in_the_index():
    listed = {(row["document"], row["scenario"]) for row in INDEX}
    names = [path.name for path in FOLDER.glob("*.md") if path.name not in DATA]
    assert {(n, s.name) for n in names for s in machine_named(n).scenarios} <= listed
