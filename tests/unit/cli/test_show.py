"""`dsa show`: the timeline, and the same run in other forms."""

import json
import re
from pathlib import Path

import pytest
from stored_runs import RUN, SHOP, begun, crashed_while, dsa, keep, recorded

from dsa.checks.report import check
from dsa.edge.document_files import load, locate, read_text
from dsa.lang import digest, loads
from dsa.runs.bindings import request
from dsa.runs.place import open_artifacts
from dsa.runtime.artifacts import MemoryArtifacts
from dsa.runtime.content import Artifact, Usage
from dsa.runtime.ledger import (
    ArtifactEntry,
    CallEntry,
    CallResultEntry,
    EventEntry,
    GuardVerdict,
    ResultEntry,
    ResumedEntry,
    VerdictEntry,
)
from dsa.runtime.policy.policies import (
    Action,
    action_call_step,
    action_result_step,
    approval_step,
    error_step,
    event_step,
)
from dsa.runtime.run import begin, oldest_key
from dsa.runtime.timeline import load_story
from dsa.semantics import Occurrence


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def shown(*arguments):
    result = dsa("show", "last", *arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


ROOT = Path(".dsa")
TEXT = "def f(): return 1"


def agent_run():
    """Return a run of the shipped agent that was rejected, stopped by a failure, resumed and cut off."""
    started = {"model": "scripted:s.md", "seed": 3, "module": "mine.py"}
    machine = loads(read_text(locate("dual_state"))).at(rmax=2)
    run, _ = begin(machine, RUN, digest=digest(machine), settings=started, at_ms=1_000)
    run, _ = run.feed(Occurrence("specification", data="make\nf"), at_ms=1_000)
    stored = ArtifactEntry(oldest_key(run.keys, "query_llm"), "g", 1, "a" * 64, "b" * 64, (), "llm", "tiny", 1.5)
    run = run.record(stored).record(ResultEntry(stored.key, (event_step("query_llm", "artifact").without_id(),), 1.6))
    run, _ = run.feed(Occurrence("artifact"), oldest_key(run.keys, "query_llm"), at_ms=2_700)
    key = oldest_key(run.keys, "execute_guard")
    run = run.record(VerdictEntry(key, "g", 1, "a" * 64, [GuardVerdict("g", "failed", "it\nis 2")]))
    run, _ = run.feed(Occurrence("verdict", {"g": "failed"}), key, at_ms=2_800)
    key = oldest_key(run.keys, "query_llm")
    run = run.record(ResultEntry("3/1"))
    run = run.record(ResultEntry(key, (error_step("query_llm", "timeout", "no answer").without_id(),)))
    return run.record(ResumedEntry(effects={key: "again"}))


def test_timeline_shows_events_in_order():
    keep(ROOT, agent_run().ledger, read_text(locate("dual_state")))
    assert shown() == (
        "run 20260131T120000-shop-aaaaaa of dual_state at rmax = 2\n"
        "started 2026-01-31 12:00:00 UTC with --model scripted:s.md --seed 3 --with mine.py\n"
        "\n"
        "  1     0.0 s  specification              line 46: idle -> generating\n"
        "     data: make f\n"
        "     asks for query_llm 1/1\n"
        "     g attempt 1: artifact aaaaaaaaaaaa by llm, tiny, 1.5 s\n"
        "     query_llm 1/1 answered artifact, 1.6 s\n"
        "  2     1.7 s  artifact (of 1/1)          line 47: generating -> validating\n"
        "     asks for execute_guard 2/1\n"
        "     g attempt 1: rejected (g.failed): it is 2\n"
        "  3     1.8 s  verdict g.failed (of 2/1)  line 49: validating -> generating, retries = 1\n"
        "     asks for refine_context 3/1\n"
        "     asks for query_llm 3/2\n"
        "     refine_context 3/1 done\n"
        "     query_llm 3/2 failed: timeout: no answer\n"
        "     resumed: query_llm 3/2, which was not done: it is performed again\n"
        "\n"
        "now     cut off\n"
        "state   generating\n"
        "values  satisfied = false, retries = 1\n"
        "to do   query_llm 3/2, which was under way: it is performed again\n"
        "go on   dsa resume 20260131T120000-shop-aaaaaa\n"
    )


def test_status_shows_effects_in_doubt_and_commands_that_decide_them():
    crashed_while(ROOT, doing="pay")
    assert shown().endswith(
        "now    in doubt: pay 1/2\n"
        "state  paying\n"
        "in doubt: pay 1/2 (line 30) was under way when the run was cut off\n"
        "  it has not happened  dsa resume 20260131T120000-shop-aaaaaa --retry 1/2\n"
        "  it gave paid         dsa send 20260131T120000-shop-aaaaaa paid --answers 1/2\n"
        "  it gave declined     dsa send 20260131T120000-shop-aaaaaa declined --answers 1/2\n"
        "  it has failed        dsa resume 20260131T120000-shop-aaaaaa --fail 1/2\n"
    )


def test_doubt_about_an_effect_without_answers_offers_done():
    crashed_while(Path("other"), doing="mail")
    told = dsa("show", "last", "--runs", "other").stdout
    assert "  it has happened      dsa resume 20260131T120000-shop-aaaaaa --done 2/1 --runs other\n" in told
    assert "to do  log 2/2, not begun yet\n" in told
    assert "--answers" not in told


def test_waiting_run_shows_the_command_to_send():
    keep(ROOT, begun().ledger)
    assert shown().endswith(f"now    waiting for: order\nstate  idle\nsend   dsa send {RUN}@0 order [DATA]\n")
    workflow = begun(read_text(locate("workflow")), "20260131T120001-w-1")
    keep(ROOT, workflow.ledger, read_text(locate("workflow")), workflow.run_id)
    assert f"send    dsa send {workflow.run_id}@0 specification [DATA]\n" in shown()


TIMED = SHOP.replace("| resting | more       |           |", "| resting | after 2s   |           |").replace(
    "| more     | outside |\n", ""
)


def test_timers_refusals_and_late_answers_are_shown():
    run, _ = begun(TIMED).feed(Occurrence("order"))
    key = oldest_key(run.keys, "pay")
    run = run.record(ResultEntry("1/1"))
    run, _ = run.feed(Occurrence("order"))
    run, _ = run.feed(Occurrence("paid"), "0/1")
    run, _ = run.feed(Occurrence("paid"), key, at_ms=1_769_860_800_345)
    keep(ROOT, run.ledger, TIMED)
    told = shown()
    assert (
        "  2  order          refused: invalid_state (no row for order here); accepted there: declined, paid, pay.failed\n"
        in told
    )
    assert (
        "  3  paid (of 0/1)  refused: late (0/1 is not outstanding); accepted there: declined, paid, pay.failed\n"
        in told
    )
    assert "timer  after 2s of resting, due 2026-01-31 12:00:02.345 UTC\n" in told
    assert shown("--percepts") == (
        "| percept | action                 | state   | changed |\n"
        "| ------- | ---------------------- | ------- | ------- |\n"
        "| order   | log, pay               | paying  |         |\n"
        "| order   | refused: invalid_state | paying  |         |\n"
        "| paid    | refused: late          | paying  |         |\n"
        "| paid    | mail, log              | resting |         |\n"
    )


def test_deadline_beyond_the_calendar_is_shown_in_milliseconds():
    run = begun(TIMED).feed(Occurrence("order"))[0]
    run, _ = run.feed(Occurrence("paid"), oldest_key(run.keys, "pay"), at_ms=10**18)
    keep(ROOT, run.ledger, TIMED)
    assert "due 1000000000000002000 ms after 1970" in shown()


def test_event_data_cannot_control_the_terminal():
    run, _ = begun().feed(Occurrence("order", data="\x1b[2J\nnext \u202e" + "x" * 500))
    keep(ROOT, run.ledger)
    (line,) = [line for line in shown().splitlines() if "data:" in line]
    assert line == "     data: \\x1b[2J next \\u202e" + "x" * 69 + "..."


def test_jsonl_has_one_entry_per_line():
    entries = crashed_while(ROOT, doing="mail")
    assert load_story(shown("--jsonl")) == entries == recorded(ROOT).entries
    numbered = [json.loads(line) for line in shown("--jsonl", "--after", "3").splitlines()]
    assert [(line["run"], line["number"]) for line in numbered] == [(RUN, at) for at in range(4, len(entries) + 1)]


def test_long_story_is_shown_in_pages(monkeypatch):
    monkeypatch.setattr("dsa.cli.ledger_view.PAGE", 4)
    entries = crashed_while(ROOT, doing="mail")
    first = shown()
    assert "1  order" in first
    assert "2  paid" not in first
    (more,) = re.findall(r"\.\. entries 1 to (\d+) of (\d+); `dsa show (\S+) --after (\d+)` shows more", first)
    assert more == (more[0], str(len(entries)), RUN, more[0])
    assert isinstance(entries[int(more[0])], EventEntry), "pages end before an event"
    second = shown("--after", more[0])
    assert "1  order" not in second
    assert "2  paid" in second
    assert "shows more" not in second
    assert first.splitlines()[-3:] == second.splitlines()[-3:], "each page ends with the status"


def test_json_is_one_object_about_the_status():
    crashed_while(ROOT, doing="pay")
    told = json.loads(shown("--json"))
    assert (told["run"], told["kind"], told["state"], told["exit_code"]) == (RUN, "in doubt", "paying", 0)
    assert [each["effect"] for each in told["in_doubt"]] == ["pay"]


@pytest.mark.parametrize("form", ["--json", "--percepts"])
def test_after_option_is_refused_with_other_forms(form):
    keep(ROOT, begun().ledger)
    assert dsa("show", "last", form, "--after", "1").exit_code == 2


@pytest.mark.parametrize("form", ["--percepts", "--as-scenario", "--provenance"])
def test_json_is_refused_together_with_other_forms(form):
    keep(ROOT, begun().ledger)
    assert dsa("show", "last", "--json", form).exit_code == 2


# -- as a scenario ----------------------------------------------------------------------------------------------------


def pasted(text, section):
    """Paste a section into a document, which must then have no errors; return the result of its last scenario."""
    machine = loads(f"{text}\n{section}")
    report = check(machine)
    assert [found for found in report.diagnostics if found.severity == "error"] == []
    return [(result.name, result.ok) for result in report.scenarios][-1]


def scenario_of(run, text):
    keep(ROOT, run.ledger, text, run.run_id)
    return dsa("show", run.run_id, "--as-scenario")


def test_run_is_shown_as_a_scenario_that_passes():
    run = agent_run()
    text = read_text(locate("dual_state"))
    result = scenario_of(run, text)
    assert result.stdout.startswith(f"## Scenario: run {RUN}\nParameters: rmax = 2\n\n| percept ")
    assert pasted(text, result.stdout) == (f"run {RUN}", True)
    with pytest.raises(AssertionError, match="DSA310"):
        pasted(text, result.stdout.replace("| 1       |", "| 2       |"))


def test_scenario_has_the_refused_events_it_can_express():
    run, _ = begun(TIMED).feed(Occurrence("order"))
    key = oldest_key(run.keys, "pay")
    run, _ = run.feed(Occurrence("order"))
    run, _ = run.feed(Occurrence("paid"), "0/1")
    run, _ = run.feed(Occurrence("paid"), key)
    run, _ = run.feed(Occurrence("declined"))
    run, _ = run.feed(Occurrence("after 2s", source="resting"))
    run, _ = run.feed(Occurrence("order"))
    result = scenario_of(run, TIMED)
    assert [line.split("|")[1:3] for line in result.stdout.splitlines()[3:]] == [
        [" order    ", " log, pay               "],
        [" order    ", " refused: invalid_state "],
        [" paid     ", " mail, log              "],
        [" declined ", " refused: late          "],
        [" after 2s ", "                        "],
        [" order    ", " refused: finished      "],
    ]
    assert pasted(TIMED, result.stdout)[1]
    assert result.stderr == "left out: 1 refused events whose reason a scenario cannot express\n"


NESTED = """# nested
## Events
| event | from |
| - | - |
| go | outside |
## States
| state | kind |
| - | - |
| a | |
| a.b | initial |
| over | final |
## Transitions
| source | event | target |
| - | - | - |
| a.b | after 1s | = |
| a | after 1s | over |
| a | go | over |
"""


def test_ambiguous_timer_cannot_be_a_scenario():
    text = (
        NESTED.replace("| a.b | initial |", "| a.b | |")
        .replace("| a | |", "| a | initial |")
        .replace("| a.b | |", "| a.b | initial |")
    )
    run, _ = begun(text).feed(Occurrence("after 1s", source="a"))
    result = scenario_of(run, text)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "no scenario can express run" in result.stderr


def test_run_without_events_cannot_be_a_scenario():
    result = scenario_of(begun(), SHOP)
    assert (result.exit_code, result.stderr) == (1, f"nothing has happened yet in run {RUN}\n")


# -- provenance -------------------------------------------------------------------------------------------------------


def test_attempts_are_shown_below_those_they_refine():
    keep(ROOT, begun().ledger)
    assert shown("--provenance") == "nothing was generated\n"
    artifacts = open_artifacts(ROOT, RUN)
    ids = MemoryArtifacts()

    def store(step, version, text, parent=None, uses=(), outcome=None, feedback=""):
        made = Artifact(text, version, parent_id=parent, step=step, usage=Usage("tiny", 0.1), dependency_ids=uses)
        stored = artifacts.store(made, "llm")
        assert ids.store(made, run_id=RUN).artifact_id == stored.artifact_id
        if outcome:
            said = [GuardVerdict("g", outcome, feedback)]
            artifacts.record_verdict(VerdictEntry("k", step, version, stored.artifact_id, said))
        return stored.artifact_id

    first = store("test", 1, TEXT, outcome="failed", feedback="no\nassert")
    second = store("test", 2, TEXT, first, outcome="passed")
    store("test", 3, TEXT, first, outcome="fatal")
    store("code", 1, TEXT, uses=(second,))
    store("test", 4, TEXT, second, outcome="failed")
    lines = [
        line.replace(line[line.index("artifact") :].split()[1], "ID") for line in shown("--provenance").splitlines()
    ]
    assert lines == [
        "test 1  artifact ID  by llm, tiny  rejected: no assert",
        "|- test 2  artifact ID  by llm, tiny  passed",
        "|  `- test 4  artifact ID  by llm, tiny  rejected",
        "`- test 3  artifact ID  by llm, tiny  fatal",
        "code 1  artifact ID  by llm, tiny  uses test 2  no verdict",
    ]


# -- runs of policies -------------------------------------------------------------------------------------------------


KEY = "1/1"


def call_result(path, *steps):
    return CallResultEntry(
        KEY, path, [{**step.to_json(), "id": f"{path}/{n}"} for n, step in enumerate(steps, start=1)]
    )


def test_run_of_a_policy_is_shown_as_a_tree_of_calls():
    started = {"model": "m", "seed": 3, "config": {"over": "/docs"}, "module": "s.py"}
    machine = load("policy")
    run, _ = begin(machine, RUN, digest=digest(machine), settings=started, at_ms=1_000)
    run, _ = run.feed(Occurrence("specification", data=request("search", {"q": "tea"}, ["model", "read"])))
    asked = action_call_step("assistant", Action("read", {"file": "a\nb"}))
    gone = error_step("read", "GONE", "no such file")
    agreed = approval_step("person", "5" * 64)
    search = CallEntry(KEY, "1.1", "search", "0" * 64, {"q": "tea"})
    call, turn = (
        CallEntry(KEY, "1.1.1", "model", "1" * 64, {"q": "tea"}),
        CallEntry(KEY, "1.1.1.1", "model", "2" * 64),
    )
    read = CallEntry(KEY, "1.1.1.2", "read", "3" * 64, {"file": "a\nb"})
    about = {"call": {"policy": "read", "path": "1.1.1.2"}}
    failed = ResultEntry(KEY, [error_step("perform", "OSError", "no\nroute", about=about).without_id()])
    again = ResumedEntry("ann", 0, "n", effects={KEY: "again"}, calls={f"{KEY}/1.1.1.2": "again"})
    lost = CallEntry(KEY, "1.1.1.2.1", "slow", "4" * 64, {})
    result = call_result("1.1.1.2", gone, action_result_step("read", {"lines": 2}), agreed)
    last = CallEntry(KEY, "1.1.2", "none", "6" * 64, {})
    entries = [
        search,
        call,
        turn,
        call_result("1.1.1.1", asked),
        read,
        failed,
        again,
        lost,
        result,
        last,
        call_result("1.1.2"),
    ]
    keep(ROOT, [*run.ledger, *entries], read_text(locate("policy")))
    assert (
        shown()
        == f"""\
run {RUN} of policy
started 2026-01-31 12:00:00 UTC with --model m --seed 3 --over /docs --with s.py
resumed by ann with model n

1.1        search {{"q": "tea"}}  000000000000
             has given nothing yet
1.1.1        model {{"q": "tea"}}  111111111111
               has given nothing yet
1.1.1.1        model, a turn  222222222222  cached
                 assistant asks for read {{"file": "a\\nb"}}
1.1.1.2        read {{"file": "a\\nb"}}  333333333333
                 failed: OSError: no route
                 resumed: the call had failed; it is performed again
                 error GONE: no such file
                 gave {{"lines": 2}}
                 person approves 555555555555
1.1.1.2.1        slow {{}}  444444444444
                   nobody waited for its result
1.1.2        none {{}}  666666666666
               gave nothing

now     cut off
state   performing
cached  1 of 6 calls already had their results when the run was last resumed
to do   perform 1/1, which was under way: it is performed again
to do   model 1/1/1.1.1, which was under way: it is performed again
go on   dsa resume {RUN}
"""
    )
    assert len(load_story(shown("--jsonl"))) == 15
    assert shown("--provenance") == "nothing was generated\n"
    assert "| specification | perform | performing |" in shown("--as-scenario")
