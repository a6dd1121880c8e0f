"""All oracles: each is registered, and the page on simulation lists it under the rule that it cites."""

import re

from repository import ROOT

from dsa.testing.simulation import effect_oracles, oracles
from dsa.testing.simulation.oracles import ORACLES, Oracle
from dsa.testing.simulation.seed_plan import BOUNDARIES, FAULTS, FAULTS_AT


def test_every_oracle_is_registered_under_its_own_name():
    written = {
        each for module in (effect_oracles, oracles) for each in vars(module).values() if isinstance(each, Oracle)
    }
    assert set(ORACLES) == written
    assert len({oracle.name for oracle in ORACLES}) == len(ORACLES)


def test_page_lists_every_oracle_under_the_rule_it_cites():
    rules = re.findall(r"^## (S\d+) ", (ROOT / "specs" / "semantics.md").read_text(encoding="utf-8"), re.MULTILINE)
    page = (ROOT / "docs" / "how-to" / "simulate.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([PS]\d+) +\| .*? +\| (.*?) +\|$", page, re.MULTILINE)
    assert [cited for cited, _ in rows if cited[0] == "P"] == [f"P{number}" for number in range(1, 13)]
    assert {cited for cited, _ in rows if cited[0] == "S"} <= set(rules)
    told = {cited: names.split(", ") for cited, names in rows}
    assert {oracle.cites for oracle in ORACLES} <= told.keys()
    for cited, names in told.items():
        cite_it = [oracle.name for oracle in ORACLES if oracle.cites == cited]
        assert names == (cite_it or [oracles.no_unexpected_error_occurs.name]), cited


def test_page_lists_every_boundary_and_every_fault():
    page = (ROOT / "docs" / "how-to" / "simulate.md").read_text(encoding="utf-8")
    rows = [tuple(cell.strip() for cell in line.split("|")[1:-1]) for line in page.splitlines() if line[:2] == "| "]
    for boundary, words in BOUNDARIES.items():
        assert (boundary, words, ", ".join(FAULTS_AT[boundary])) in rows
    for fault, words in FAULTS.items():
        assert (fault, words) in rows
