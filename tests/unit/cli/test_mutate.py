import json

from click.testing import CliRunner

from dsa.cli.mutate import command


def test_spec_is_scored_and_a_low_score_fails(tmp_path) -> None:
    result = CliRunner().invoke(command, ["specs/dual_state.md", "--at-least", "0.95"])
    assert result.exit_code == 0
    assert "100 of 100 that are not equal to the machine are noticed (100.0%)" in result.output
    alone = CliRunner().invoke(command, ["dual_state", "--at-least", "0.995"])
    assert alone.exit_code == 1
    survivor = "line 48, validating | verdict | succeeded: update of retries dropped"
    assert f"dual_state: survives: {survivor}" in alone.output


def test_json_has_every_mutant(tmp_path) -> None:
    result = CliRunner().invoke(command, ["dual_state", "--json"])
    told = json.loads(result.stdout)
    assert told["machine"] == "dual_state"
    rows = [mutant for mutant in told["mutants"] if mutant["group"] == "rows"]
    assert (len(rows), len(told["mutants"])) == (100, 108)
    assert {"group", "place", "line", "what", "kind", "by"} == set(told["mutants"][0])
    assert told["score"] == told["shares"]["rows"] == sum(mutant["kind"] == "noticed" for mutant in rows) / 100


def test_machine_that_fails_its_check_is_refused(tmp_path) -> None:
    wrong = tmp_path / "wrong.md"
    wrong.write_text("# m\n\n## Transitions\n| source | event | target |\n| - | - | - |\n| a | go | b |\n")
    result = CliRunner().invoke(command, [str(wrong)])
    assert result.exit_code == 2
    assert "itself does not pass: DSA303" in result.output


def test_mutants_not_judged_in_time_are_reported_and_fail() -> None:
    result = CliRunner().invoke(command, ["dual_state", "--time-limit", "0"])
    assert result.exit_code == 1
    assert (
        "108 of 108 mutants were not judged: the time limit was reached; allow more time (--time-limit)"
        in result.output
    )
    told = json.loads(CliRunner().invoke(command, ["dual_state", "--time-limit", "0", "--json"]).stdout)
    assert {mutant["kind"] for mutant in told["mutants"]} == {"not judged"}
    assert told["score"] is None
