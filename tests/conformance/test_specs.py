"""Completeness of `specs/semantics.md` and `specs/table.md`, and shipped specs whose scenarios take every row."""

import re
from pathlib import Path
from typing import get_args

import pytest
from each_row import each_row

from dsa.checks.report import check
from dsa.edge.document_files import load, shipped_documents
from dsa.errors import CODES
from dsa.lang.cells import COLUMNS
from dsa.lang.expression_parser import KEYWORDS
from dsa.semantics import Reason

SPECS = Path(__file__).parents[2] / "specs"
SEMANTICS = (SPECS / "semantics.md").read_text(encoding="utf-8")
TABLE = (SPECS / "table.md").read_text(encoding="utf-8")
#: The columns as table.md marks them: `**` required and filled, `*` required, nothing optional.
COLUMN_LINE = re.compile(r"^\| `([a-z ]+)`\s*(\**)\s*\|", re.MULTILINE)


def test_rules_are_numbered_from_1_to_12():
    assert re.findall(r"^## S(\d+) ", SEMANTICS, re.MULTILINE) == [str(number) for number in range(1, 13)]


def test_rules_name_every_refusal_reason():
    assert [reason for reason in get_args(Reason) if f"`{reason}`" not in SEMANTICS] == []


@each_row("kind", COLUMNS)
def test_columns_of_each_section_match_the_page(kind: str):
    sections = {text.split("\n", 1)[0].partition(":")[0].lower(): text for text in TABLE.split("\n### ")[1:]}
    written = dict(COLUMN_LINE.findall(sections[kind].split("\n#### ")[0]))
    columns = COLUMNS[kind]
    expected = dict.fromkeys(columns.nonempty, "**") | dict.fromkeys(columns.mandatory, "*")
    assert written == expected | dict.fromkeys(columns.optional, "")


def test_page_lists_every_code_with_its_meaning():
    listed = dict(re.findall(r"^\| (DSA\d+) \| (.*?) *\|$", TABLE, re.MULTILINE))
    assert listed == CODES


def test_page_lists_the_reserved_words():
    sentence = TABLE[TABLE.index("Reserved as a part:") :].split("\n", 1)[0]
    assert set(re.findall(r"`(\w+)`", sentence)) == KEYWORDS


@pytest.mark.parametrize("name", ["dual_state", "workflow"])
def test_scenarios_take_every_row_and_run_as_written(name: str):
    report = check(load(str(SPECS / f"{name}.md")))
    assert [result.message for result in report.scenarios if not result.ok] == []
    assert [finding.message for finding in report.diagnostics if finding.severity != "info"] == []


#: The largest documents: a README shows the results of `dsa check` for them, all properties included, and `test_readmes.py` tests it.
SHOWN = ("specs/chat", "specs/coding")


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.full] if name in SHOWN else []) for name in sorted(shipped_documents())],
)
def test_every_property_of_shipped_machines_holds(name: str):
    report = check(load(name))
    assert [
        f"{result.line}: {result.text}: {result.reason}" for result in report.properties if result.verdict != "HOLDS"
    ] == []
