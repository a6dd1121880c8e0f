"""`dsa diff`: its output, exit codes and JSON."""

import json
import sqlite3
from pathlib import Path

import pytest
from stored_runs import RUN, SHOP, begun, crashed_while, dsa, keep

from dsa.edge.document_files import locate, read_text
from dsa.errors import DocumentError, MachineError, ParameterError
from dsa.runtime.ledger import ResultEntry
from dsa.runtime.run import oldest_key
from dsa.semantics import Occurrence

ROOT = Path(".dsa")
AGENT = read_text(locate("dual_state"))
MORE = "| resting | more       |           | succeeded |"
OTHER_MORE = "| resting | more       | log       | failed    |"
PAID = "| paying  | paid       | mail, log | resting   |"
RETRY = "g.failed and retries < rmax"


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("shop.md").write_text(SHOP)
    Path("agent.md").write_text(AGENT)


def edited(*changes, text=SHOP, name="new.md"):
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    Path(name).write_text(text)
    return name


def diff(*arguments, code=None):
    result = dsa("diff", *arguments)
    if code is not None:
        assert result.exit_code == code, result.output
    return result


# -- without runs -----------------------------------------------------------------------------------------------------


def test_same_document_is_equal():
    assert diff("shop.md", "shop.md", code=0).stdout == (
        "EQUAL      nothing that controls a run is different\nshop.md -> shop.md: no changes; behaviour EQUAL\n"
    )
    first = diff("agent.md", "dual_state", code=0).stdout.splitlines()[0]
    assert first == "EQUAL      nothing that controls a run is different, at all values of the parameters"


def test_changed_row_is_shown_with_a_shortest_trace_to_the_difference():
    new = edited((MORE, OTHER_MORE))
    assert (
        diff("shop.md", new, code=1).stdout
        == """\
control:
  changed  transition  resting | more | succeeded  line 34
      effects  + log
      target   succeeded  ->  failed
DIFFERENT  in step 3
           0  start  idle
           1  order  paying   line 30  log, pay
           2  paid   resting  line 31  mail, log
           3  more in resting:
              shop.md  line 34: resting -> succeeded
              new.md   line 34: resting -> failed; log
shop.md -> new.md: changes: 1 of control; behaviour DIFFERENT
"""
    )


def test_lines_of_both_documents_are_shown_where_they_differ():
    told = diff("shop.md", edited(("# shop\n", "# shop\n\nSells tea.\n"), (MORE, OTHER_MORE)), code=1).stdout
    assert "  changed  transition  resting | more | succeeded  line 34 -> 36\n" in told
    assert "  2  paid   resting  line 31 -> 33  mail, log\n" in told
    assert "shop.md  line 34: resting" in told
    assert "new.md   line 36: resting" in told


def test_change_without_consequences_is_equal():
    told = diff("agent.md", edited((RETRY, "g.failed and retries + 1 <= rmax"), text=AGENT), code=0).stdout
    assert told.splitlines()[3:] == [
        "EQUAL      at rmax = 3: 15 configurations",
        "EQUAL      at rmax = 0: 6 configurations",
        "agent.md -> new.md: changes: 1 of control; behaviour EQUAL at the values above",
    ]


def test_content_and_claims_are_listed_separately():
    new = edited(("| add(2, 3) | 5  ", "| add(2, 3) | 6  "), ("- always retries <= rmax\n", ""), text=AGENT)
    assert diff("agent.md", new, code=0).stdout.splitlines()[:5] == [
        "the same control, other content:",
        "  changed  cases  g  line 28",
        "      add(2, 3) = 5  ->  add(2, 3) = 6",
        "claims:",
        "  removed  property  always retries <= rmax  line 54",
    ]


def test_changed_default_is_compared_at_its_old_and_new_value():
    told = diff(
        "agent.md", edited(("| rmax      | 0..    | 3 ", "| rmax      | 0..    | 1 "), text=AGENT), code=1
    ).stdout
    verdicts = [line for line in told.splitlines() if line.startswith(("EQUAL", "DIFFERENT"))]
    assert verdicts == [
        "DIFFERENT  at rmax = 3; new.md: rmax = 1: in step 5",
        "EQUAL      at rmax = 3: 15 configurations",
        "EQUAL      at rmax = 0: 6 configurations",
    ]


def test_parameter_values_can_be_chosen():
    new = edited((RETRY, "g.failed and retries < 2"), text=AGENT)
    assert "EQUAL      at rmax = 2: " in diff("agent.md", new, "--param", "rmax=2", code=0).stdout
    assert "DIFFERENT  at rmax = 5: in step 7" in diff("agent.md", new, "--param", "rmax=5", code=1).stdout
    assert isinstance(diff("agent.md", new, "--param", "nope=5").exception, ParameterError)
    only = edited(
        ("| rmax      | 0..    | 3 ", "| more      | 0..    | 1       |           |\n| rmax      | 0..    | 3 "),
        text=AGENT,
    )
    assert "; new.md: more = 4: 15 configurations" in diff("agent.md", only, "--param", "more=4", code=0).stdout


def test_machines_may_differ_before_any_event():
    told = diff(
        "shop.md",
        edited(
            ("| idle      | initial |", "| idle      |         |"),
            ("| resting   |         |", "| resting   | initial |"),
        ),
        code=1,
    ).stdout
    assert "DIFFERENT  at once\n" in told
    assert (
        "           before anything happens:\n              shop.md  in idle\n              new.md   in resting\n"
        in told
    )


def test_refusal_says_why():
    new = edited((RETRY, "g.failed and retries < rmax + 1"), text=AGENT)
    assert (
        "new.md    refused: out_of_domain (retries = 1 lies outside 0..0); line 49\n"
        in diff("agent.md", new, "--param", "rmax=0", code=1).stdout
    )
    gone = edited(
        ("| resting | more       |           | succeeded |", "| resting | order      |           | succeeded |")
    )
    assert "new.md   refused: invalid_state (no row for more here)\n" in diff("shop.md", gone, code=1).stdout
    asked = edited(
        ("| validating | verdict       | else    ", "| validating | verdict       | not g.passed and retries > 7 "),
        text=AGENT,
    )
    assert (
        "refused: invalid_state (no row for verdict is enabled); in line 48, 'g.passed' is false; in line 49, 'retries < rmax' is false"
        in diff("agent.md", asked, code=1).stdout
    )


@pytest.mark.parametrize(
    ("limit", "said"),
    [
        (("--max-states", "2"), "3 configurations, stopped at the limit of 2 configurations"),
        (("--time-limit", "0"), "1 configuration, stopped at the time limit"),
    ],
)
def test_comparison_that_meets_a_limit_is_unknown(limit, said):
    new = edited((RETRY, "g.failed and retries + 1 <= rmax"), text=AGENT)
    told = diff("agent.md", new, *limit, code=1).stdout
    assert f"UNKNOWN    at rmax = 3: {said}\n" in told
    assert told.endswith("behaviour UNKNOWN at the values above\n")


@pytest.mark.parametrize(("name", "fault"), [("nowhere.md", DocumentError), ("broken.md", MachineError)])
def test_unreadable_document_is_reported(name, fault):
    Path("broken.md").write_text("# broken\n")
    assert isinstance(diff("shop.md", name).exception, fault)
    assert isinstance(diff(name, "shop.md").exception, fault)


def test_spec_is_compared_as_the_machine_it_is_about():
    told = diff("specs/dual_state", "dual_state", code=0).stdout
    assert "nothing that controls a run is different" in told


# -- with runs --------------------------------------------------------------------------------------------------------


def test_runs_in_flight_are_judged():
    crashed_while(ROOT, doing="mail")
    crashed_while(ROOT, doing="pay", run="20260131T120001-shop-bbbbbb")
    new = edited((PAID, PAID.replace("mail, log", "log, mail")))
    told = diff("shop.md", new, code=1).stdout
    assert (
        told.partition("in paying:\n")[2].partition(".dsa: ")[2]
        == f"""\
runs in flight of shop.md: 2; finished runs: 0
incompatible  {RUN}  resting, 2 events
              event 2, paid in paying:
                recorded  line 31: paying -> resting; mail, log
                new.md    line 31 (paying | paid | resting): paying -> resting; log, mail
compatible    20260131T120001-shop-bbbbbb  paying, 1 event: goes on differently at once
              paid in paying:
                shop.md  line 31: paying -> resting; mail, log
                new.md   line 31: paying -> resting; log, mail
shop.md -> new.md: changes: 1 of control; behaviour DIFFERENT; runs in flight: 1 compatible, 1 incompatible
"""
    )


def test_future_fault_of_a_run_is_shown_with_its_trace():
    run, _ = begun(AGENT, run="20260131T120000-agent-aaaaaa").feed(Occurrence("specification"))
    keep(ROOT, run.ledger, AGENT, "20260131T120000-agent-aaaaaa")
    new = edited((RETRY, "g.failed and retries <= rmax"), text=AGENT)
    told = diff("agent.md", new, code=1).stdout.partition("incompatible")[2]
    assert told.splitlines()[0].endswith(": the new machine may reach a fault that the old machine does not reach")
    assert told.splitlines()[1].split() == [
        "0",
        "from",
        "here",
        "generating",
        "satisfied",
        "=",
        "false,",
        "retries",
        "=",
        "0",
    ]
    assert (
        "8  verdict g.failed in validating: new.md: refused: out_of_domain (retries = 4 lies outside 0..3); line 49\n"
        in told
    )


def test_dead_end_of_a_run_is_reported():
    crashed_while(ROOT, doing="mail")
    told = diff("shop.md", edited((MORE, "| paying  | more       |           | succeeded |")), code=1).stdout
    assert (
        "1  new.md: the run cannot go on in resting, because nothing is outstanding and no event is accepted\n" in told
    )


def test_exit_code_is_about_runs_with_the_runs_option():
    new = edited((MORE, OTHER_MORE))
    crashed_while(ROOT, doing="mail")
    assert "runs in flight: 1 compatible" in diff("shop.md", new, code=1).stdout, "the behaviour differs"
    diff("shop.md", new, "--runs", ".dsa", code=0)
    diff("shop.md", edited((PAID, PAID.replace("mail, log", "mail     "))), "--runs", ".dsa", code=1)
    diff("shop.md", "shop.md", code=0)


def test_folder_without_runs_is_an_error_only_with_the_runs_option():
    assert "in flight" not in diff("shop.md", "shop.md", code=0).stdout
    assert isinstance(diff("shop.md", "shop.md", "--runs", "elsewhere").exception, DocumentError)
    assert not ROOT.exists()


def test_other_runs_are_counted():
    other = SHOP.replace("# shop", "# store")
    keep(ROOT, begun(run="20260131T120000-shop-aaaaaa").ledger)
    keep(ROOT, begun(other, run="20260131T120001-store-bbbbbb").ledger, other, "20260131T120001-store-bbbbbb")
    finished, _ = begun(run="20260131T120003-shop-cccccc").feed(Occurrence("order"))
    for key in ("1/1", "1/2"):
        finished = finished.record(ResultEntry(key))
    finished, _ = finished.feed(Occurrence("declined"), oldest_key(finished.keys, "pay"))
    keep(ROOT, finished.ledger, run=finished.run_id)
    assert (
        ".dsa: runs in flight of shop.md: 1; finished runs: 1; runs in flight of other machines: 1\n"
        in diff("shop.md", "shop.md", code=0).stdout
    )


def test_run_still_belongs_to_a_machine_with_an_added_property():
    crashed_while(ROOT, doing="mail")
    claiming = edited(("## Transitions", "## Properties\n- never failed and idle\n\n## Transitions"))
    assert "runs in flight of new.md: 1;" in diff(claiming, "shop.md", code=0).stdout


def test_damaged_run_is_unknown():
    crashed_while(ROOT, doing="mail")
    crashed_while(ROOT, doing="pay", run="20260131T120001-shop-bbbbbb")
    with sqlite3.connect(ROOT / "ledger.db") as connection:
        connection.execute("UPDATE entries SET line = replace(line, '\"mail\"', '\"jail\"')")
    told = diff("shop.md", "shop.md", code=1).stdout
    assert f"UNKNOWN       damaged: run {RUN}, entry " in told
    assert told.endswith("runs in flight: 1 compatible, 1 UNKNOWN\n")


# -- JSON -------------------------------------------------------------------------------------------------------------


def test_json_has_the_whole_comparison():
    crashed_while(ROOT, doing="mail")
    crashed_while(ROOT, doing="pay", run="20260131T120001-shop-bbbbbb")
    told = json.loads(diff("shop.md", edited((PAID, PAID.replace("mail, log", "log, mail"))), "--json", code=1).stdout)
    assert told["old"]["machine"] == "shop"
    assert told["old"]["digest"] != told["new"]["digest"]
    (change,) = told["changes"]
    assert change == {
        "aspect": "control",
        "what": "transition",
        "kind": "changed",
        "name": "paying | paid | resting",
        "old_line": 31,
        "new_line": 31,
        "details": [{"field": "effects", "old": "mail, log", "new": "log, mail"}],
    }
    (compared,) = told["behaviour"]["comparisons"]
    assert (told["behaviour"]["verdict"], compared["verdict"]) == ("DIFFERENT", "DIFFERENT")
    assert [(step["event"], step["lines"]) for step in compared["trace"]] == [("order", [30, 30])]
    assert compared["parting"]["event"] == "paid"
    assert (compared["parting"]["old"]["effects"], compared["parting"]["new"]["effects"]) == (
        ["mail", "log"],
        ["log", "mail"],
    )
    first, second = told["runs"]["in_flight"]
    assert (first["verdict"], first["history"]["event"]["seq"], first["future"]) == ("incompatible", 2, None)
    assert (second["verdict"], second["future"]["verdict"], second["future"]["trace"]) == (
        "compatible",
        "DIFFERENT",
        [],
    )
    assert (told["runs"]["finished"], told["runs"]["other_machines"], told["runs"]["unreadable"]) == (0, 0, {})


def test_json_has_faults_equality_and_failures():
    crashed_while(ROOT, doing="mail")
    told = json.loads(
        diff("shop.md", edited((MORE, "| paying  | more       |           | succeeded |")), "--json", code=1).stdout
    )
    fault = told["runs"]["in_flight"][0]["fault"]
    assert (fault["event"], fault["state"], fault["trace"]) == (None, "resting", [])
    same = json.loads(diff("shop.md", "shop.md", "--json", code=0).stdout)
    assert same["behaviour"] == {"verdict": "EQUAL", "at_all_values": True, "comparisons": []}
    failed = diff("shop.md", "nowhere.md", "--json")
    assert json.loads(failed.stdout)["failure"]["code"] == "DocumentError"
