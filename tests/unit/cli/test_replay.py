"""`dsa replay`: runs on their own table and on another one, and traces of other programs."""

import json
from pathlib import Path

import attrs
import pytest
from stored_runs import RUN, SHOP, begun, crashed_while, dsa, keep

import dsa.cli.replay as replay_command
from dsa.edge.document_files import locate, read_text
from dsa.errors import DocumentError
from dsa.runtime.ledger import ArtifactEntry, GuardVerdict, Ledger, VerdictEntry
from dsa.runtime.run import oldest_key, replay
from dsa.semantics import Occurrence

ROOT = Path(".dsa")
AGENT = read_text(locate("dual_state"))
PAID = "| paying  | paid       | mail, log | resting   |"


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("shop.md").write_text(SHOP)


def table(name, old, new):
    assert old in SHOP
    Path(name).write_text(SHOP.replace(old, new))
    return name


def test_replay_derives_every_entry_again():
    crashed_while(ROOT, doing="mail")
    result = dsa("replay", "last")
    assert result.exit_code == 0
    head, same, digest = result.stdout.splitlines()
    assert head == f"run {RUN}: 11 entries, 2 events, 2 rows, 0 refused, 4 effects"
    assert same == "every entry is the same when it is derived again; resting: no variables"
    assert digest.startswith("sha256 ")
    told = json.loads(dsa("replay", "last", "--json").stdout)
    assert (told["state"], told["events"], told["outstanding"]) == ("resting", 2, {})
    assert digest == f"sha256 {told['sha256']}"


def test_json_lists_outstanding_effects():
    crashed_while(ROOT, doing="pay")
    told = json.loads(dsa("replay", "last", "--json").stdout)
    assert told["outstanding"] == {"1/2": "pay"}


def rejected():
    """Return a run of the shipped agent whose first attempt was rejected."""
    run = begun(AGENT, rmax=3)
    run, _ = run.feed(Occurrence("specification"))
    run = run.record(ArtifactEntry(oldest_key(run.keys, "query_llm"), "g", 1, "a" * 64, "b" * 64))
    run, _ = run.feed(Occurrence("artifact"), oldest_key(run.keys, "query_llm"))
    run = run.record(
        VerdictEntry(oldest_key(run.keys, "execute_guard"), "g", 1, "a" * 64, [GuardVerdict("g", "failed", "no")])
    )
    return run.feed(Occurrence("verdict", {"g": "failed"}), oldest_key(run.keys, "execute_guard"))[0]


def test_value_of_another_type_is_reported_as_damage():
    """1 and True are equal in Python, but a ledger writes them differently."""
    run = rejected()
    changed = [attrs.evolve(e, changed=(("retries", True),)) if e == run.ledger[-3] else e for e in run.ledger]
    assert replay(run.machine, Ledger(changed)) == run
    keep(ROOT, changed, AGENT)
    for _ in range(20):  # a machine that is used often is compiled, and replayed in another way
        result = dsa("replay", "last")
        assert result.exit_code == 1
        assert result.stderr.startswith(f"damaged: run {RUN}, entry 10: ")


def test_projection_has_attempts_and_rejections_of_steps():
    assert replay_command.projection(rejected()) == {
        "state": "generating",
        "values": {"satisfied": False, "retries": 1},
        "outstanding": {"3/2": "query_llm"},
        "steps": {
            "g": {
                "attempts": 1,
                "accepted": None,
                "rejections": [{"artifact_id": "a" * 64, "outcome": "failed", "feedback": "no"}],
            }
        },
        "specification": None,
    }


# -- another table ----------------------------------------------------------------------------------------------------


def test_table_with_the_same_behaviour_matches_all_events():
    crashed_while(ROOT, doing="mail")
    assert (
        dsa("replay", "last", "--against", "shop.md").stdout
        == f"shop.md does the same in 2 of the 2 events of run {RUN}\n"
    )
    told = json.loads(dsa("replay", "last", "--against", "shop.md", "--json").stdout)
    assert (told["same"], told["difference"]) == (2, None)


def test_first_row_that_differs_is_named():
    crashed_while(ROOT, doing="mail")
    other = table("other.md", PAID, "| paying  | paid       | log, mail | resting   |")
    result = dsa("replay", "last", "--against", other)
    assert result.exit_code == 1
    assert result.stdout == (
        "event 2, paid in paying:\n"
        "  recorded  line 31: paying -> resting; mail, log\n"
        "  other.md  line 31 (paying | paid | resting): paying -> resting; log, mail\n"
        f"other.md does the same in 1 of the 2 events of run {RUN}\n"
    )
    told = json.loads(dsa("replay", "last", "--against", other, "--json").stdout)["difference"]
    assert (told["event"]["seq"], told["recorded_commands"], told["instead_commands"]) == (
        2,
        ["mail", "log"],
        ["log", "mail"],
    )


def test_difference_names_the_conditions_that_were_false():
    keep(ROOT, rejected().ledger, AGENT)
    Path("strict.md").write_text(AGENT.replace("g.failed and retries < rmax", "g.failed and retries > rmax"))
    result = dsa("replay", "last", "--against", "strict.md")
    assert result.exit_code == 1
    assert "event 3, verdict g.failed in validating:\n" in result.stdout
    assert (
        "strict.md  line 51 (validating | verdict | failed): validating -> failed; refine_context, reply_failure\n"
        in result.stdout
    )
    assert (
        "in line 48, 'g.passed' is false; in line 49, 'retries > rmax' is false; in line 50, 'g.fatal' is false\n"
        in result.stdout
    )


def test_event_unknown_to_the_other_table_is_reported():
    crashed_while(ROOT, doing="pay")
    result = dsa("replay", "last", "--against", "dual_state")
    assert "  dual_state  has no such event: machine dual_state has no event 'order'" in result.stdout
    told = json.loads(dsa("replay", "last", "--against", "dual_state", "--json").stdout)["difference"]
    assert (told["instead"], told["false"]) == (None, None)
    assert "no event 'order'" in told["fault"]


def test_parameters_missing_in_the_other_table_are_reported():
    keep(ROOT, begun(AGENT).ledger, AGENT)
    result = dsa("replay", "last", "--against", "shop.md")
    assert result.exit_code == 1
    assert result.stderr.startswith(
        f"the parameters of run {RUN} do not fit shop.md: machine shop has no parameter 'rmax'"
    )


def test_run_of_another_version_can_be_replayed_against_a_table():
    entries = crashed_while(Path("good"), doing="mail")
    keep(ROOT, entries, SHOP.replace("mail, log", "mail"))
    assert dsa("replay", "last").exit_code == 1
    assert dsa("replay", "last", "--against", "shop.md").exit_code == 0


# -- files ------------------------------------------------------------------------------------------------------------


def test_printed_story_can_be_replayed_against_a_table():
    crashed_while(ROOT, doing="mail")
    Path("story.jsonl").write_text(dsa("show", "last", "--jsonl").stdout)
    assert (
        dsa("replay", "story.jsonl", "--against", "shop.md").stdout
        == "shop.md does the same in 2 of the 2 events of story.jsonl\n"
    )
    assert dsa("replay", "story.jsonl", "--against", table("other.md", PAID, "")).exit_code == 1
    Path("story.jsonl").write_text('{"kind":"machine"}\n')
    assert dsa("replay", "story.jsonl", "--against", "shop.md").exit_code == 2


TRACE = """{"machine": "dual_state", "parameters": {"rmax": 1}}

{"event": "specification", "state": "generating"}
{"event": "artifact", "effects": ["execute_guard"]}
{"event": "verdict", "verdicts": {"g": "failed"}, "changed": {"retries": 1}}
{"event": "artifact"}
{"event": "verdict", "verdicts": {"g": "failed"}, "state": "generating"}
"""


def test_mismatch_of_a_foreign_trace_names_line_and_false_condition():
    Path("trace.jsonl").write_text(TRACE)
    result = dsa("replay", "trace.jsonl", "--against", "dual_state")
    assert result.exit_code == 1
    assert "trace.jsonl:7: step 5, verdict g.failed in validating: line 51" in result.stdout
    strict = AGENT.replace(
        "| validating | verdict       | else ", "| validating | verdict       | g.passed and not g.passed "
    )
    Path("strict.md").write_text(strict)
    told = dsa("replay", "trace.jsonl", "--against", "strict.md").stdout
    assert "trace.jsonl:7: step 5" in told
    assert "refused: invalid_state" in told
    assert "in line 49, 'retries < rmax' is false" in told


@pytest.mark.parametrize(("text", "place"), [
    ('{"event": "artifact"}\n', "trace.jsonl:1: step 1"),
    ('\n\n{"event": "artifact"}', "trace.jsonl:3: step 1"),
    ('\n{"state": "failed"}\n{"event": "specification"}\n', "trace.jsonl:2: at the start"),
    ('{"states": [\n{"mbt::actionTaken": "start"},\n{"mbt::actionTaken": "artifact"}\n]}', "trace.jsonl: step 1"),
])  # fmt: skip
def test_mismatch_names_the_line_of_the_trace_file(text, place):
    Path("trace.jsonl").write_text(text)
    assert f"\n{place}" in dsa("replay", "trace.jsonl", "--against", "dual_state").stdout
    assert f"\n{place}" in dsa("check", "dual_state", "--trace", "trace.jsonl").stdout


def test_trace_needs_a_table():
    Path("trace.jsonl").write_text(TRACE)
    result = dsa("replay", "trace.jsonl")
    assert result.exit_code == 2
    assert "give the table that the trace should fit: --against FILE" in result.stderr


def test_json_of_a_trace_has_the_mismatch():
    Path("trace.jsonl").write_text(TRACE)
    told = json.loads(dsa("replay", "trace.jsonl", "--against", "dual_state", "--json").stdout)
    assert told["mismatch"]["step"] == 5


def test_unreadable_trace_is_reported_with_its_line():
    Path("bad.jsonl").write_text('{"event": "e"}\nno\n')
    result = dsa("replay", "bad.jsonl", "--against", "dual_state")
    assert isinstance(result.exception, DocumentError)
    assert str(result.exception) == "bad.jsonl: line 2: not JSON (Expecting value); write one JSON object on each line"
