"""`dsa odds` on the command line."""

import json
from pathlib import Path

import attrs
import pytest
from click.testing import CliRunner
from odds_documents import DOWN, HUM, TOOLS, UNLIMITED, chain

from dsa.checks.odds.odds_report import OddsAnswer, answer_text
from dsa.checks.odds.retry_target import smallest, varied_parameter
from dsa.checks.odds.run_odds import odds, question
from dsa.cli.main import program, run_program
from dsa.edge.document_files import load
from dsa.lang import dumps, loads

ATTEMPT = '{{"run": "{run}", "guard": "g", "verdict": "{verdict}"}}\n'


@pytest.fixture
def call(tmp_path, monkeypatch):
    """Run `dsa odds` in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def calls_made(*arguments):
        return CliRunner().invoke(program, ["odds", *arguments])

    return calls_made


def test_answer_shows_ends_effects_and_assumptions(call):
    result = call("dual_state", "--pass", "g=0.7", "--fatal", "g=0.1", "--price", "query_llm=1000")
    assert result.exit_code == 0
    rows = [line.split() for line in result.output.split("\n")]
    assert ["succeeded", "0.8736"] in rows
    assert ["query_llm", "1.248", "1.4286", "4"] in rows
    assert ["cost", "1248", "1428.6", "4000"] in rows
    assert "assumed: every effect is answered: none fails" in result.output


def test_missing_odds_are_reported_as_unknown(call):
    result = call("dual_state")
    assert result.exit_code == 1
    assert (
        "UNKNOWN: guard g has no odds: write them in the column `pass` of Guards, or give --pass g=0.7" in result.output
    )
    assert ["query_llm", "4"] in [line.split() for line in result.output.split("\n")]


def test_target_is_reached_or_impossible(call):
    reached = call("dual_state", "--pass", "0.5", "--target", "0.99")
    assert reached.exit_code == 0
    assert "target 0.99: the smallest rmax is 6, success 0.99219, expected query_llm 1.9844" in reached.output
    impossible = call("dual_state", "--pass", "0.5", "--fatal", "0.01", "--target", "0.99")
    assert impossible.exit_code == 1
    assert "target 0.99: impossible, ceiling 0.98039" in impossible.output


COIN = """# coin

## Guards
| guard | judges  | verdicts       | pass |
| ----- | ------- | -------------- | ---- |
| coin  | flipped | passed, failed | 0.5  |

## States
| state | kind    |
| ----- | ------- |
| idle  | initial |
| up    |         |
| heads | final   |
| tails | final   |

## Transitions
| source | event   | if          | effects | target |
| ------ | ------- | ----------- | ------- | ------ |
| idle   | toss    |             | flip    | up     |
| up     | flipped | coin.passed |         | heads  |
| up     | flipped | coin.failed |         | tails  |

## Events
| event   | from    |
| ------- | ------- |
| toss    | outside |
| flipped | flip    |
"""


def test_odds_of_ends_are_known_without_a_success_state(call, tmp_path):
    (tmp_path / "coin.md").write_text(COIN)
    told = call("coin.md")
    assert told.exit_code == 0
    assert ["heads", "0.5"] in [line.split() for line in told.output.split("\n")]
    assert (
        "no final state is called succeeded: name the state that counts as success with --success; final states: heads, tails"
        in told.output
    )
    assert "UNKNOWN" not in told.output
    asked = call("coin.md", "--target", "0.9", "--vary", "nothing")
    assert asked.exit_code == 2
    assert ["flip", "1", "2", "1"] in [
        line.split() for line in call("coin.md", "--success", "heads").output.split("\n")
    ]


def test_unlimited_retries_are_unknown_unless_odds_are_constant(call, tmp_path):
    (tmp_path / "m.md").write_text(UNLIMITED.replace("| 0.6  |", "| 0.5, 0.6 |"))
    result = call("m.md")
    assert result.exit_code == 1
    assert "UNKNOWN: retries are unlimited (line 30)" in result.output
    assert "no bound" in result.output
    (tmp_path / "m.md").write_text(UNLIMITED)
    memoryless = call("m.md")
    assert memoryless.exit_code == 0
    assert "assumed: the odds of g are the same after any number of failures" in memoryless.output


def test_outside_choice_is_shown_as_a_range(call, tmp_path):
    (tmp_path / "m.md").write_text(TOOLS)
    result = call("m.md")
    assert "0 to 1" in result.output
    assert call("m.md", "--event", "call=0.5").output.count(" to ") == 0
    helped = json.loads(call("m.md", "--event", "call=0.5", "--outside", "--json").output)
    assert {end["kind"] for end in helped["ends"]} == {"final"}


def test_json_has_every_number(call):
    result = call("workflow", "--pass", "0.7", "--target", "0.99", "--json")
    found = json.loads(result.output)
    assert found["success"]["low"] == pytest.approx((1 - 0.3**4) ** 2)
    assert found["target"]["value"] == 4
    keys = {"parameter", "target", "answer", "value", "ceiling", "is_ceiling", "reason", "success", "cost", "cost_is"}
    assert found["target"].keys() == keys
    calls = pytest.approx(1.417 * (1 + 0.9919))
    per_success = pytest.approx(1.417 * (1 + 0.9919) / 0.9919**2)
    assert found["effects"][3] == {
        "effect": "query_llm",
        "expected": {"low": calls, "high": calls},
        "worst": 8.0,
        "per_success": {"low": per_success, "high": per_success},
    }
    unknown = json.loads(call("dual_state", "--json").output)
    assert (unknown["success"], unknown["known"]) == (None, False)


def record(path, failed_runs, runs=40):
    lines = []
    for run in range(runs):
        lines += [ATTEMPT.format(run=run, verdict="failed")] * failed_runs(run)
        lines.append(ATTEMPT.format(run=run, verdict="passed"))
    path.write_text("".join(lines))


def test_recorded_runs_give_confidence_bounds(call, tmp_path):
    record(tmp_path / "attempts.jsonl", lambda run: (run % 10 == 0) + (run % 40 == 0))
    result = call("dual_state", "--from-runs", "attempts.jsonl", "--target", "0.999")
    assert "with 95 % confidence" in result.output
    assert "more runs like these" in result.output
    assert result.exit_code == 1  # the bound does not reach the target
    low = call("dual_state", "--from-runs", ".", "--target", "0.9", "--confidence", "0.9")
    assert "90 % interval" in low.output
    found = json.loads(call("dual_state", "--from-runs", "attempts.jsonl", "--json").output)
    estimate = found["estimate"]
    assert estimate["lower"] < estimate["point"]["low"] <= estimate["interval"][1]
    assert estimate["guards"][0]["counts"]["passed"] == 40


def test_dependent_attempts_make_the_bound_unknown(call, tmp_path):
    record(tmp_path / "attempts.jsonl", lambda run: 3 * (run % 4 == 0))
    result = call("dual_state", "--from-runs", "attempts.jsonl")
    assert result.exit_code == 1
    assert "UNKNOWN: attempts are not independent, so no bound holds" in result.output


def test_runs_of_dsa_run_are_read(call, tmp_path):
    script = tmp_path / "script.md"
    script.write_text(
        "```python\ndef add(a, b):\n    return a - b\n```\n```python\ndef add(a, b):\n    return a + b\n```\n"
    )
    ran = CliRunner().invoke(program, ["run", "dual_state", "--model", "scripted:script.md"])
    assert ran.exit_code == 0, ran.output
    found = json.loads(call("dual_state", "--from-runs", ".dsa", "--json").output)
    counts = found["estimate"]["guards"][0]["counts"]
    assert (counts["passed"], counts["failed"], counts["fatal"]) == (1, 1, 0)
    assert found["estimate"]["whole_runs"] == pytest.approx(0.05)  # one run, and it succeeded


@pytest.mark.parametrize("suffix", ["svg", "png", "pdf"])
def test_plot_is_written_and_reproducible(call, tmp_path, suffix):
    pytest.importorskip("matplotlib")
    name = f"odds.{suffix}"
    result = call("dual_state", "--pass", "0.5", "--target", "0.99", "--plot", name)
    assert result.exit_code == 0
    assert result.stderr == f"wrote {name}\n"
    written = (tmp_path / name).read_bytes()
    assert len(written) > 3000
    call("dual_state", "--pass", "0.5", "--target", "0.99", "--plot", f"again.{suffix}")
    assert (tmp_path / f"again.{suffix}").read_bytes() == written


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--pass", "h=0.5"], "machine dual_state has no guard 'h'; known here: 'g'"),
        (["--pass", "g=high"], "--pass g=high: write --pass NAME=0.7 or NAME=0.7,0.8,0.9"),
        (["--pass", "=0.5"], "--pass =0.5: write"),
        (["--price", "query_llm=1,2"], "--price query_llm=1,2: write --price NAME=0.7"),
        (["--pass", "0.7", "--fatal", "0.4"], "add up to 1.1"),
        (["--pass", "0.7", "--event", "nothing=1"], "has no event 'nothing'"),
        (
            ["--pass", "0.7", "--target", "0.9", "--vary", "n"],
            "has no numeric parameter 'n' to vary (--vary); known here: 'rmax'",
        ),
        (["--pass", "0.7", "--target", "2"], "2.0 is not in the range"),
        (["--pass", "nan"], "nan is not a probability of guard g"),
        (["--from-runs", "nowhere"], "nowhere: there is no such file or folder"),
        (["--from-runs", "."], ".: has no recorded run (*.jsonl)"),
        (
            ["--pass", "0.7", "--plot", "odds.gif"],
            "odds.gif: the file of a plot must have a name that ends in .svg, .png, .pdf",
        ),
        (["--success", "generating", "--pass", "0.7"], "'generating' is not a final state of dual_state"),
    ],
)
def test_bad_usage_is_one_sentence_and_exit_code_2(call, capsys, monkeypatch, arguments, message):
    monkeypatch.setattr("sys.argv", ["dsa", "odds", "dual_state", *arguments])
    assert run_program() == 2
    assert message in capsys.readouterr().err


def test_guard_without_recorded_verdicts_is_named(call, tmp_path, capsys, monkeypatch):
    Path("empty.jsonl").write_text("")
    result = call("dual_state", "--from-runs", "empty.jsonl")
    assert result.exit_code == 2
    assert "no verdict of guard g is recorded" in result.output


def test_odds_are_unknown_above_the_limit_of_configurations():
    asked = question(load("dual_state").at({"rmax": 1000}), passes={"g": [0.7]}, max_nodes=50)
    found = asked.at()
    assert (found.unknown, found.is_known) == (("more than 50 configurations",), False)
    assert "UNKNOWN: more than 50 configurations" in answer_text(OddsAnswer(asked, found, None))


def test_target_beyond_the_limit_of_configurations_is_unknown():
    asked = question(load("dual_state"), passes={"g": [1e-6]}, max_nodes=500)
    needed = smallest(asked, 0.999, varied_parameter(asked.system.machine))
    assert needed.answer == "unknown"
    assert needed.reason.endswith("more than 500 configurations")


def test_event_with_odds_beside_a_timer_counts(call, tmp_path):
    (tmp_path / "hum.md").write_text(HUM)
    rows = [line.split() for line in call("hum.md", "--event", "yes=0.9").output.split("\n")]
    assert ["succeeded", "0.9"] in rows
    assert ["failed", "0.1"] in rows
    assert call("hum.md", "--outside").output.count("0 to 1\n") == 2
    assert "success is 0, because no run ends in succeeded" in call("hum.md").output


def test_odds_of_an_event_that_never_comes_are_reported(call, tmp_path):
    (tmp_path / "busy.md").write_text(BUSY)
    result = call("busy.md", "--event", "stop=0.9")
    assert result.exit_code == 1
    assert "UNKNOWN: the odds given for stop are not used: this event never comes where the run waits" in result.output


#: An event from outside may come while an effect is outstanding.
BUSY = (
    HUM.replace("| yes   | outside |", "| yes   | work    |\n| stop  | outside |")
    .replace(
        "| source  | event    | target    |\n| ------- | -------- | --------- |\n| idle    | ask      | waiting   |",
        "| source  | event    | effects | target    |\n| - | - | - | - |\n| idle    | ask      | work | waiting   |",
    )
    .replace("| yes      |", "| yes | |")
    .replace("| after 4h |", "| stop | |")
)


def test_answer_with_the_remaining_odds_is_named(call, tmp_path):
    (tmp_path / "m.md").write_text(TOOLS)
    assert "assumed: done has the odds that remain after call: 0.03" in call("m.md", "--event", "call=0.97").output
    assert "remain" not in call("m.md", "--event", "call=0.97", "--event", "done=0.03").output


def test_main_cost_names_the_effects_it_counts():
    reckoning = odds(loads(TOOLS), events={"call": 0.5})
    assert reckoning.main_cost[0] == "expected ask + run_tool"


def test_target_with_outside_choices_counts_the_worst_case():
    asked = question(chain("a"), outside=True, passes={"a": [0.5]}, fatals={"a": [0.1]})
    needed = smallest(asked, 0.9, varied_parameter(asked.system.machine))
    assert needed.answer == "unknown"
    assert "a target must be reached whichever events come from outside" in needed.reason


def test_unreachable_success_is_printed(call, tmp_path):
    (tmp_path / "m.md").write_text(HUM.replace("| waiting | yes      | succeeded |\n", ""))
    result = call("m.md", "--success", "succeeded")
    assert ["succeeded", "0"] in [line.split() for line in result.output.split("\n")]
    assert "success is 0, because no run ends in succeeded" in result.output


def test_traces_of_a_check_are_refused_as_runs(call, tmp_path):
    text = dumps(load("dual_state")) + "\n## Properties\n- never g.failed\n"
    (tmp_path / "m.md").write_text(text)
    CliRunner().invoke(program, ["check", "m.md", "--save-traces", "traces"])
    result = call("m.md", "--from-runs", "traces")
    assert result.exit_code == 2
    assert "is a trace that `dsa check --save-traces` wrote" in result.output


def test_runs_of_a_changed_document_are_refused(call, tmp_path):
    (tmp_path / "script.md").write_text("```python\ndef add(a, b):\n    return a + b\n```\n")
    machine = attrs.evolve(load("dual_state"), properties=())
    Path("m.md").write_text(dumps(machine))
    ran = CliRunner().invoke(program, ["run", "m.md", "--model", "scripted:script.md"])
    assert ran.exit_code == 0, ran.output
    text = Path("m.md").read_text()
    guards = tuple(attrs.evolve(guard, pass_odds=(0.7,)) for guard in machine.guards)
    Path("m.md").write_text(dumps(attrs.evolve(machine, guards=guards)) + "\n## Properties\n- possible succeeded\n")
    assert "another digest" not in call("m.md", "--from-runs", ".dsa").output
    Path("m.md").write_text(text.replace("g.passed", "not (g.failed or g.fatal)"))
    result = call("m.md", "--from-runs", ".dsa")
    assert result.exit_code == 2
    assert "this run has another digest than machine dual_state has now" in result.output


def test_check_respects_its_limits_and_lists_assumptions_of_numbers(tmp_path):
    (tmp_path / "m.md").write_text(TOOLS + "\n## Properties\n- expected run_tool <= 3\n- expected run_tool <= 2\n")

    def checked(*options):
        result = CliRunner().invoke(program, ["check", str(tmp_path / "m.md"), "--json", *options])
        return json.loads(result.stdout)["files"][0]["properties"]

    found = checked()
    assert [each["verdict"] for each in found] == ["HOLDS", "VIOLATED"]
    assert all("every effect is answered: none fails" in each["assumes"] for each in found)
    stopped = checked("--max-states", "3")
    assert {each["verdict"] for each in stopped} == {"UNKNOWN"}
    assert all("more than 3 configurations" in each["reason"] for each in stopped)
    late = checked("--time-limit", "0")
    assert all(each["reason"].startswith("the time limit was reached") for each in late)


def test_bound_that_no_odds_can_change_is_one_number(call, tmp_path):
    record(tmp_path / "attempts.jsonl", lambda run: run % 2)
    output = call("dual_state", "--from-runs", "attempts.jsonl", "--success", "failed", "--param", "rmax=0").output
    assert "confidence" in output
    (tmp_path / "m.md").write_text(
        UNLIMITED.replace("| succeeded  | final   |", "| succeeded  | final   |\n| never | final |")
    )
    output = call("m.md", "--from-runs", "attempts.jsonl", "--success", "never").output
    assert "  0 whatever the guards' odds are\n" in output
    assert "between" not in output


def test_changing_odds_with_unlimited_retries_are_explained(call, tmp_path):
    (tmp_path / "m.md").write_text(UNLIMITED.replace("| 0.6  |", "| 0.5, 0.6 |"))
    assert "odds by retry number do not cover the retries after the last number" in call("m.md").output


# -- unknown results, and known ones that look unknown ----------------------------------------------------------------


@pytest.mark.parametrize("rmax", ["6", "12", "50"])
def test_start_outside_its_domain_is_unknown(call, tmp_path, rmax):
    (tmp_path / "m.md").write_text(DOWN)
    result = call("m.md", "--param", f"rmax={rmax}")
    assert result.exit_code == 1
    assert f"UNKNOWN: left starts as {rmax}, outside 0..5" in result.output
    assert json.loads(call("m.md", "--param", f"rmax={rmax}", "--json").output)["known"] is False


def test_missed_target_names_the_largest_value_tried(call, tmp_path):
    (tmp_path / "m.md").write_text(DOWN)
    result = call("m.md", "--target", "0.99")
    assert result.exit_code == 1
    assert (
        "target 0.99: UNKNOWN, not reached up to rmax = 5, where success is 0.98438; at rmax = 6: left starts as 6,"
        in result.output
    )
    (tmp_path / "m.md").write_text(
        DOWN.replace("| rmax    |", "| 0       |").replace("left > 0", "left < rmax").replace("-=", "+=")
    )
    result = call("m.md", "--target", "0.99")
    assert result.exit_code == 1
    assert (
        "target 0.99: impossible, ceiling 0.98438 (rmax is at most 5; at rmax = 6: the table refuses" in result.output
    )


def test_cycle_that_is_rarely_left_has_numbers(call, tmp_path):
    """Each time round, the cycle ends with probability 10^-12, unless an outside choice ends it."""
    text = TOOLS.replace("| used < 3 | used += 1 | run_tool", "| used < 4 |           | run_tool")
    (tmp_path / "m.md").write_text(
        text.replace("| call     | ask      |", "| call     | ask      |\n| stop     | ask      |").replace(
            "| thinking | done ",
            "| thinking | stop       |          |           |          | failed    |\n| thinking | done ",
        )
    )
    result = call("m.md", "--event", "done=0.000000000001")
    assert result.exit_code == 0
    rows = [line.split() for line in result.output.split("\n")]
    assert ["succeeded", "1e-12", "to", "1"] in rows
    assert ["run_tool", "0", "to", "999999999999"] in [row[:4] for row in rows]


def test_empty_plot_is_unknown_and_not_written(call, tmp_path):
    pytest.importorskip("matplotlib")
    result = call("dual_state", "--plot", "odds.svg")
    assert result.exit_code == 1
    assert result.stderr == "UNKNOWN: nothing to plot, so odds.svg is not written\n"
    assert not (tmp_path / "odds.svg").exists()
    (tmp_path / "m.md").write_text(DOWN)
    drawn = call("m.md", "--plot", "odds.svg")
    assert (drawn.exit_code, drawn.stderr) == (0, "wrote odds.svg\n")  # 0 to 5 are plotted


def test_empty_plot_fails_even_if_other_results_are_known(call, tmp_path):
    pytest.importorskip("matplotlib")
    text = DOWN.replace("| 0..5   |", "| 0..30  |").replace("| 3       |", "| 25      |")
    (tmp_path / "m.md").write_text(text.replace("| else  ", "| not g.passed and left == 0 and rmax > 20  "))
    assert call("m.md").exit_code == 0
    result = call("m.md", "--plot", "odds.svg")
    assert (result.exit_code, result.stderr) == (1, "UNKNOWN: nothing to plot, so odds.svg is not written\n")
