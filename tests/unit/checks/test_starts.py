"""Several starts: a parameter selects one, and a check at each of its values covers all."""

import pytest
from click.testing import CliRunner

from dsa.checks.proof.prover import prove
from dsa.checks.report import check
from dsa.cli.check import command
from dsa.errors import ParameterError
from dsa.lang import loads

STARTS = """# starts
## Parameters
| parameter | domain               | default |
| --------- | -------------------- | ------- |
| begin     | {first, second, end} | first   |
| top       | 2..                  | 3       |
## Variables
| variable | domain               | initial |
| -------- | -------------------- | ------- |
| at       | {first, second, end} | begin   |
| n        | 0..top               | 0       |
## Transitions
| source | event | if           | update               | target |
| ------ | ----- | ------------ | -------------------- | ------ |
| s      | go    | at == first  | at = second; n = 1   | =      |
| s      | go    | at == second | at = end; n = n + 1  | =      |
| s      | go    | else         |                      | t      |
## States
| state | kind    |
| ----- | ------- |
| s     | initial |
| t     | final   |
## Properties
- t leads to n == 2
- possible n == 2
- never n > 2
"""


def test_each_start_is_checked_and_the_failing_one_is_named() -> None:
    machine = loads(STARTS.replace("2..  ", "2..3 "))
    usual = check(machine)
    assert {result.text: result.verdict for result in usual.properties}["possible n == 2"] == "HOLDS"
    report = check(machine, each_value=True)
    assert len(report.explorations) == 6
    assert report.explorations[0].parameters == {"begin": "first", "top": 3}
    found = {result.text: result for result in report.properties}
    assert found["possible n == 2"].verdict == "VIOLATED"
    assert dict(found["possible n == 2"].values[0])["begin"] in {"second", "end"}
    assert (found["never n > 2"].verdict, len(found["never n > 2"].values)) == ("HOLDS", 6)
    assert {proof.text: proof.verdict for proof in prove(machine).properties}["possible n == 2"] == "VIOLATED"


def test_parameter_with_a_value_is_fixed() -> None:
    report = check(loads(STARTS), parameters={"top": 2}, each_value=True)
    assert [exploration.parameters["top"] for exploration in report.explorations] == [2, 2, 2]
    assert {str(exploration.parameters["begin"]) for exploration in report.explorations} == {"first", "second", "end"}


def test_row_that_some_value_takes_is_not_dead() -> None:
    text = STARTS.replace("at = second; n = 1 ", "at = end; n = 1    ")
    codes = [found.code for found in check(loads(text), parameters={"top": 2}, each_value=True).diagnostics]
    assert "DSA302" in [found.code for found in check(loads(text)).diagnostics]
    assert "DSA302" not in codes


def test_too_many_values_are_refused_with_advice(tmp_path) -> None:
    with pytest.raises(ParameterError, match="more than 64 combinations"):
        check(loads(STARTS), each_value=True)
    file = tmp_path / "starts.md"
    file.write_text(STARTS)
    result = CliRunner().invoke(command, [str(file), "--each-value"])
    assert result.exit_code == 2
    assert "give some parameters one value (--param)" in result.output
    told = CliRunner().invoke(command, [str(file), "--each-value", "--param", "top=2"])
    assert told.exit_code == 1
    assert "begin = second" in told.output
