"""`dsa check --sarif`: requirements of SARIF 2.1.0 on messages and regions beyond its schema, which the logs were checked against by hand."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from dsa.cli.main import program
from dsa.edge.document_files import locate

DUAL_STATE = locate("dual_state").read_text(encoding="utf-8")


@pytest.fixture
def results(tmp_path: Path):
    """Return a function that checks dual_state with one part of its text replaced, and returns the results of one rule."""

    def checked(old: str, new: str, rule: str) -> list[dict[str, Any]]:
        assert DUAL_STATE.count(old) == 1
        (tmp_path / "m.md").write_text(DUAL_STATE.replace(old, new), encoding="utf-8")
        done = CliRunner().invoke(program, ["check", "--sarif", str(tmp_path / "m.md")])
        (run,) = json.loads(done.stdout)["runs"]
        return [result for result in run["results"] if result["ruleId"] == rule]

    return checked


def test_braces_are_doubled_because_single_ones_are_placeholders(results):
    (found,) = results("| bool ", "| text ", "DSA107")
    assert found["message"]["text"] == "'text' is not a domain. Hint: a domain is bool, low..high or {{a, b}}"


def test_trace_is_not_aligned_with_white_space(results):
    (found,) = results("at most rmax + 1 query_llm", "at most rmax query_llm", "VIOLATED")
    assert "\n1, specification, generating, line 46, query_llm\n" in found["message"]["text"]
    assert not re.search(r" {2}|\t|\n\n", found["message"]["text"])


@pytest.mark.parametrize(("claim", "columns"), [("- always", (9, 9)), ("- always )", (10, 11))])
def test_region_stays_within_its_line(results, claim, columns):
    (found,) = results("- always retries <= rmax", claim, "DSA109")
    region = found["locations"][0]["physicalLocation"]["region"]
    assert (region["startColumn"], region["endColumn"]) == columns
