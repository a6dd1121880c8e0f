"""`dsa check`: its output, saved and replayed traces, JSON and SARIF."""

import json
import re
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from dsa.checks.search import exploration, numpy_engine
from dsa.cli.command_line import ProgressLine
from dsa.cli.main import program
from dsa.edge.document_files import load, locate
from dsa.errors import CODES, MachineError

DUAL_STATE = locate("dual_state").read_text(encoding="utf-8")
BROKEN = DUAL_STATE.replace("at most rmax + 1 query_llm", "at most rmax query_llm")
POLLING = locate("examples/polling").read_text(encoding="utf-8")


def dsa(*arguments: str) -> Result:
    return CliRunner().invoke(program, list(arguments))


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("m.md").write_text(BROKEN, encoding="utf-8")


def test_counterexample_shows_changed_values_and_the_line_of_each_row():
    done = dsa("check", "m.md")
    assert done.exit_code == 1
    assert done.output.split("\n")[-14:-1] == [
        "VIOLATED  line 58: at most rmax query_llm  at rmax = 3",
        "          the count of query_llm at step 7 is more than 3",
        "            at rmax = 3",
        "            0  start             idle                 satisfied = false, retries = 0",
        "            1  specification     generating  line 46                                  query_llm",
        "            2  artifact          validating  line 47                                  execute_guard",
        "            3  verdict g.failed  generating  line 49  retries = 1                     refine_context, query_llm",
        "            4  artifact          validating  line 47                                  execute_guard",
        "            5  verdict g.failed  generating  line 49  retries = 2                     refine_context, query_llm",
        "            6  artifact          validating  line 47                                  execute_guard",
        "            7  verdict g.failed  generating  line 49  retries = 3                     refine_context, query_llm",
        "m.md: rests in: idle",
        "m.md: 0 errors, 0 warnings, 3 of 3 scenarios pass, 4 of 5 properties HOLD at rmax = 3 and at rmax = 0, 1 VIOLATED",
    ]


def test_traces_option_shows_more_counterexamples_and_the_nearest_passing_run():
    Path("m.md").write_text(DUAL_STATE.replace("always retries <= rmax", "never failed or escalated"), encoding="utf-8")
    output = dsa("check", "m.md", "--traces", "3").output
    assert output.count("counterexample 2, which takes other rows:") == 1
    assert "the nearest run that passes:" in output
    assert "nearest" not in dsa("check", "m.md").output


def test_witness_is_one_line_and_a_whole_trace_on_request():
    assert "for example, by: fill_big, pour_big_in_small" in dsa("check", "examples/jugs").output
    assert "6  pour_big_in_small" in dsa("check", "examples/jugs", "--traces", "2").output


def test_properties_as_json():
    (found,) = json.loads(dsa("check", "--json", "m.md").stdout)["files"]
    good, *_, violated = found["properties"]
    assert (good["verdict"], good["trace"], good["loop"]) == ("HOLDS", [], None)
    assert (violated["verdict"], violated["values"], len(violated["trace"])) == ("VIOLATED", [{"rmax": 3}], 7)
    assert violated["trace"][2] == {
        "event": "verdict", "verdicts": {"g": "failed"}, "source": None, "line": 49, "state": "generating",
        "changed": {"retries": 1}, "effects": ["refine_context", "query_llm"], "cancelled": [],
    }  # fmt: skip


@pytest.mark.parametrize("form", ["jsonl", "itf.json"])
def test_traces_are_saved_replayed_and_drawn(form: str):
    options = ("--itf",) if form == "itf.json" else ()
    saved = dsa("check", "m.md", "--save-traces", "traces", *options)
    assert saved.stderr.strip() == f"wrote traces/m-line58-1.{form}"
    again = dsa("check", "m.md", "--trace", f"traces/m-line58-1.{form}")
    assert again.exit_code == 1  # the run breaks the property
    assert "violated   line 58: at most rmax query_llm  at step 7" in again.output
    assert (
        "pending    line 57: specification leads to succeeded or failed or escalated  owed since step 1" in again.output
    )
    assert f"m.md: the table does the same in 7 of the 7 steps of traces/m-line58-1.{form}" in again.output
    drawn = dsa("draw", "m.md", "--trace", f"traces/m-line58-1.{form}", "--format", "dot")
    assert drawn.output != dsa("draw", "m.md", "--format", "dot").output


def test_trace_that_differs_from_the_table_is_reported_with_step_and_row():
    dsa("check", "m.md", "--save-traces", "traces")
    Path("other.md").write_text(BROKEN.replace("retries < rmax", "retries < 2"), encoding="utf-8")
    done = dsa("check", "other.md", "--trace", "traces/m-line58-1.jsonl")
    assert done.exit_code == 1
    assert (
        "step 7, verdict g.failed in validating: line 51 (validating | verdict | failed) leads to failed" in done.output
    )
    assert "other.md: the table does the same in 6 of the 7 steps" in done.output
    refused = dsa("draw", "other.md", "--trace", "traces/m-line58-1.jsonl", "--format", "dot")
    assert "step 7" in str(refused.exception)


def test_replayed_trace_as_json():
    dsa("check", "m.md", "--save-traces", "traces")
    found = json.loads(dsa("check", "--json", "m.md", "--trace", "traces/m-line58-1.jsonl").stdout)
    assert found["mismatch"] is None
    assert [seen["verdict"] for seen in found["monitors"]] == ["pending", "pending", "pending", "pending", "violated"]


def test_endless_trace_is_saved_with_its_loop():
    Path("p.md").write_text(POLLING.replace(" assuming fair done", ""), encoding="utf-8")
    output = dsa("check", "p.md", "--save-traces", "traces").output
    assert "steps 3 to 4 can repeat for ever" in output
    (file,) = Path("traces").glob("p-*")
    assert json.loads(file.read_text().split("\n")[0])["loop"] == 2
    assert "-- these steps repeat for ever --" in dsa("check", "p.md", "--trace", str(file)).output


@pytest.mark.parametrize(("arguments", "said"), [
    (("check", "m.md", "--trace", "nothing.jsonl"), "nothing.jsonl: No such file"),
    (("check", "m.md", "--trace", "m.md"), "m.md: line 1: not JSON"),
    (("check", "m.md", "m.md", "--trace", "x"), "with --trace, give exactly one machine or spec"),
    (("check", "m.md", "--json", "--sarif"), "give --json or --sarif, not both"),
    (("draw", "m.md", "--trace", "x"), "--trace needs --format dot, svg or png"),
    (("check", "m.md", "--traces", "0"), "0 is not in the range"),
])  # fmt: skip
def test_unusable_trace_or_combination_of_options_is_reported(arguments: tuple[str, ...], said: str):
    done = dsa(*arguments)
    assert done.exit_code != 0
    assert said in done.output + str(done.exception)


def test_sarif_has_a_result_with_a_region_for_each_finding():
    Path("bad.md").write_text(BROKEN.replace("retries < rmax", "retires < rmax"), encoding="utf-8")
    done = dsa("check", "--sarif", "m.md", "bad.md", "nothing.md")
    assert done.exit_code == 2
    log = json.loads(done.stdout)
    assert (log["version"], len(log["runs"])) == ("2.1.0", 1)
    driver = log["runs"][0]["tool"]["driver"]
    assert driver["name"] == "dsa"
    rules = {rule["id"] for rule in driver["rules"]}
    assert set(CODES) < rules
    results = log["runs"][0]["results"]
    for result in results:
        assert result["ruleId"] in rules
        assert result["level"] in {"error", "warning", "note"}
        assert result["message"]["text"]
        (location,) = result["locations"]
        place = location["physicalLocation"]
        assert re.fullmatch(r"(m|bad|nothing)\.md", place["artifactLocation"]["uri"])
        assert place["region"]["startLine"] >= 1
    found = [
        (result["ruleId"], result["locations"][0]["physicalLocation"]["region"]["startLine"]) for result in results
    ]
    assert ("VIOLATED", 58) in found
    assert ("DSA201", 49) in found
    assert ("unreadable", 1) in found
    violated = next(result for result in results if result["ruleId"] == "VIOLATED")
    assert len(violated["codeFlows"][0]["threadFlows"][0]["locations"]) == 7


def test_progress_is_shown_after_a_second_and_then_erased(capsys, monkeypatch):
    now_s = [0.0]
    monkeypatch.setattr("dsa.cli.command_line.time.monotonic", lambda: now_s[0])
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with ProgressLine("comparing rows") as working:
        now_s[0] = 1.1
        working(2_200, 5)
        _until("2,200 configurations, 5 steps deep, 2,000 states/s, 1 s", capsys)
        working.tell("no deadlock")
        _until("no deadlock, 1 s", capsys)
    assert capsys.readouterr().err.endswith("\x1b[K")


def _until(text, capsys):
    """Wait until a line is shown."""
    shown = ""
    while text not in shown:
        time.sleep(0.01)
        shown += capsys.readouterr().err


def test_first_hundred_errors_are_printed_and_all_are_in_json():
    rows = "".join(f"| s | e{number}! | s |\n" for number in range(150))
    Path("bad.md").write_text(
        f"# m\n## Transitions\n| source | event | target |\n| - | - | - |\n{rows}", encoding="utf-8"
    )
    shown = dsa("check", "bad.md").output
    (found,) = json.loads(dsa("check", "--json", "bad.md").stdout)["files"]
    count = len(found["diagnostics"])
    assert count >= 150
    assert shown.count(": error ") == 100
    assert f"\nand {count - 100} more: fix these first, or see all with dsa check --json\n" in shown
    assert f"bad.md: {count} errors" in shown
    with pytest.raises(MachineError, match=f"and {count - 100} more: fix these first") as raised:
        load("bad.md")
    assert (str(raised.value).count(": error "), len(raised.value.diagnostics)) == (100, count)


def test_progress_is_not_shown_for_short_work_or_without_a_terminal(capsys, monkeypatch):
    monkeypatch.setattr("dsa.cli.command_line._QUIET_S", 0.02)
    with ProgressLine("comparing rows"):
        time.sleep(0.1)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setattr("dsa.cli.command_line._QUIET_S", 60)
    with ProgressLine("comparing rows"):
        pass
    assert capsys.readouterr().err == ""


OFF_BY_ONE = DUAL_STATE.replace("g.failed and retries < rmax", "g.failed and retries <= rmax")


def test_properties_blocked_by_one_error_share_one_line():
    Path("off.md").write_text(OFF_BY_ONE, encoding="utf-8")
    done = dsa("check", "off.md")
    assert "\nUNKNOWN   5 properties are not judged until DSA306 is fixed\n" in done.output
    assert done.output.count("DSA306") == 2
    (found,) = json.loads(dsa("check", "--json", "off.md").stdout)["files"]
    assert {(p["verdict"], "DSA306" in p["reason"]) for p in found["properties"]} == {("UNKNOWN", True)}
    (run,) = json.loads(dsa("check", "--sarif", "off.md").stdout)["runs"]
    assert sum(result["ruleId"] == "UNKNOWN" for result in run["results"]) == 5


def test_compiled_engine_takes_large_machines_if_there_is_a_compiler(monkeypatch):
    monkeypatch.setattr(exploration, "TRIALS", 1)
    monkeypatch.setattr(exploration, "_THIN", 0)
    monkeypatch.setattr(numpy_engine, "MAX_BYTES", -1)

    def engine() -> str:
        return json.loads(dsa("check", "--json", "--param", "rmax=3", "dual_state").stdout)["files"][0]["explorations"][
            0
        ]["engine"]

    assert engine() == "compiled"
    monkeypatch.setenv("PATH", "")
    assert engine() == "numpy"


def test_reached_limit_is_named():
    output = dsa("check", "dual_state", "--max-states", "3").output
    assert "6 configurations, 5 transitions at rmax = 3, stopped at the limit of 3 configurations\n" in output
    assert "stopped at the time limit" in dsa("check", "dual_state", "--time-limit", "0").output
    whole = dsa("check", "dual_state", "--max-states", "15").output
    assert "dual_state: 15 configurations, 17 transitions at rmax = 3\n" in whole
    assert "DSA312" not in whole


@pytest.mark.parametrize(("arguments", "said"), [
    (["--itf"], "--itf sets the format of --save-traces"),
    (["--param", "rmax=1", "--param", "rmax=2"], "--param rmax is given twice; give it one value"),
    (["--time-limit", "nan"], "nan is not a number of seconds"),
    (["--param", "rmax=x"], "parameter rmax = 'x' is not a whole number; its domain is 0.."),
    (["--param", "rmax=1.5"], "parameter rmax = '1.5' is not a whole number"),
    (["--param", "rmax=true"], "parameter rmax = true is not a whole number"),
    (["--param", "rmax=-1"], "parameter rmax = -1 is outside its domain 0.."),
    (["--save-traces", "m.md/traces"], "--save-traces m.md/traces: the folder cannot be made"),
    (["--certificate", "no/c.json"], "--certificate no/c.json: there is no folder no"),
])  # fmt: skip
def test_invalid_option_is_refused_and_nothing_is_checked(arguments: list[str], said: str):
    done = dsa("check", "m.md", *arguments)
    assert done.exit_code == 2
    assert said in done.stderr
    assert "VIOLATED" not in done.stdout


def test_unknown_command_gets_a_suggestion():
    assert "no such command 'chekc'; did you mean 'check'?" in dsa("chekc", "m.md").stderr
    assert dsa("chekc").exit_code == 2
    assert "did you mean" not in dsa("xyzzy").stderr


def test_counts_of_one_are_printed_in_the_singular():
    Path("one.md").write_text("# one\n\n## Transitions\n| source | event | target |\n| - | - | - |\n| a | e | = |\n")
    assert "one.md: 1 configuration, 1 transition\n" in dsa("check", "one.md").output
    assert dsa("fmt", "--check", "one.md").stdout.endswith("0 of 1 file is already formatted\n")
