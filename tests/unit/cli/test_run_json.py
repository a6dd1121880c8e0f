"""The object that `--json` prints about a run: one shape for every outcome."""

import json
from importlib.resources import files
from pathlib import Path

import jsonschema
import pytest
from stored_runs import RUN, SHOP, begun, crashed_while, dsa, keep, write_shop

from dsa.runs.place import open_place
from dsa.runtime.ledger import ResultEntry
from dsa.runtime.policy.policies import error_step
from dsa.semantics import Occurrence

ROOT = Path(".dsa")
SCHEMA = json.loads(files("dsa.cli").joinpath("run.schema.json").read_text(encoding="utf-8"))
INTERRUPTING = """
import os, signal

async def done(action, context):
    os.kill(os.getpid(), signal.SIGINT)
    import asyncio
    await asyncio.sleep(20)

effects = dict.fromkeys(("log", "pay", "mail"), done)
"""


@pytest.fixture(autouse=True)
def shop(tmp_path, monkeypatch):
    """The shop's document, in the folder that the test works in."""
    monkeypatch.chdir(tmp_path)
    return write_shop(tmp_path)


def printed(*arguments):
    """Return the object that a command prints, after checking its shape and its exit code."""
    result = dsa(*arguments, "--json")
    assert result.stdout, result.exception
    found = json.loads(result.stdout)
    jsonschema.validate(found, SCHEMA)
    if result.exception is None or isinstance(result.exception, SystemExit):
        assert found["exit_code"] == result.exit_code
    return found


def waiting(shop):
    keep(ROOT, begun(file=shop).ledger)


def finished(shop):
    text = SHOP.replace("| idle    | order      | log, pay  | paying ", "| idle    | order      |           | failed ")
    keep(ROOT, begun(text, file=shop).feed(Occurrence("order"))[0].ledger, text)


def in_doubt(shop):
    crashed_while(ROOT, doing="pay", file=shop)


def cut_off(shop):
    keep(ROOT, begun(file=shop).feed(Occurrence("order"))[0].ledger)


def stopped(shop):
    run, _ = begun(file=shop).feed(Occurrence("order"))
    keep(ROOT, run.record(ResultEntry("1/1", [error_step("log", "GONE", "no disk").to_json()])).ledger)


@pytest.mark.parametrize(("prepare", "kind"), [
    (waiting, "waiting"), (finished, "finished"), (in_doubt, "in doubt"), (cut_off, "cut off"), (stopped, "stopped"),
])  # fmt: skip
def test_show_prints_a_run_in_every_status(shop, prepare, kind):
    prepare(shop)
    found = printed("show", "last")
    assert (found["run"], found["machine"], found["kind"], found["exit_code"]) == (RUN, "shop", kind, 0)


def test_show_prints_the_failure_that_stopped_a_run(shop):
    stopped(shop)
    assert printed("show", "last")["failure"] == {
        "what": "log",
        "line": 30,
        "code": "GONE",
        "message": "log 1/1 (line 30) failed: no disk",
    }


@pytest.mark.parametrize(("arguments", "kind", "code"), [
    (("run", "shop.md"), "waiting", 3),
    (("run", "shop.md", "--data", '{"tea": 1}'), "waiting", 3),
    (("run", "shop.md", "--with", "failing.py", "--data", "tea"), "stopped", 1),
])  # fmt: skip
def test_run_prints_its_status_and_exit_code(arguments, kind, code):
    Path("failing.py").write_text(
        "async def fails(action, context):\n    raise OSError('no disk')\neffects = dict.fromkeys(('log', 'pay', 'mail'), fails)\n"
    )
    found = printed(*arguments)
    assert (found["kind"], found["exit_code"], found["machine"]) == (kind, code, "shop")
    assert found["directory"] == f".dsa/{found['run']}"


def test_number_out_of_range_starts_no_run():
    found = printed("run", "shop.md", "--data", '{"tea": 1e400}')
    assert (found["kind"], found["run"], found["exit_code"]) == ("unreadable", None, 2)
    assert "the number 1e400 is out of range" in found["failure"]["message"]
    assert not Path(".dsa").exists()


@pytest.mark.parametrize(("prepare", "arguments", "kind", "code"), [
    (cut_off, ("resume", "last"), "waiting", 3),
    (in_doubt, ("resume", "last"), "in doubt", 3),
    (in_doubt, ("resume", "last", "--fail", "1/2"), "finished", 1),
    (finished, ("resume", "last"), "finished", 1),
    (waiting, ("send", "last", "order"), "waiting", 3),
    (waiting, ("send", "last", "more"), "waiting", 1),
])  # fmt: skip
def test_resume_and_send_print_status_exit_code_and_refused_events(shop, prepare, arguments, kind, code):
    prepare(shop)
    found = printed(*arguments)
    assert (found["run"], found["kind"], found["exit_code"]) == (RUN, kind, code)
    assert [each["event"] for each in found["refused"]] == (["more"] if "more" in arguments else [])


@pytest.mark.parametrize(("prepare", "arguments", "kind", "said"), [
    (waiting, ("send", "last", "nonsense"), "waiting", "shop has no event 'nonsense'"),
    (waiting, ("send", "last", "paid"), "waiting", "'paid' does not come from outside"),
    (waiting, ("send", "last", "order", "tea", "--data", "1"), "waiting", "not both"),
    (waiting, ("resume", "last", "--retry", "1/2"), "waiting", "is not in doubt"),
    (in_doubt, ("resume", "last", "--done", "1/2"), "in doubt", "pay 1/2 always returns an answer"),
    (waiting, ("resume", "last", "--param", "rmax=1"), "waiting", "rmax"),
    (waiting, ("resume", "last", "--machine", "nothing.md"), "waiting", "nothing.md"),
    (waiting, ("show", "last", "--after", "1"), "waiting", "--after works only with the default output or with --jsonl"),
])  # fmt: skip
def test_mistake_is_reported_together_with_the_run(shop, prepare, arguments, kind, said):
    prepare(shop)
    found = printed(*arguments)
    if arguments[0] != "show":  # its mistake is noticed before the run is looked for
        assert (found["run"], found["kind"], found["state"]) == (RUN, kind, "idle" if prepare is waiting else "paying")
    assert said in found["failure"]["message"]
    assert found["exit_code"] == 2


def test_run_held_by_another_process_is_printed_with_its_holder(shop):
    waiting(shop)
    place = open_place(ROOT)
    journal, _ = place.store.hold(RUN)
    for arguments, code in (("resume", "last"), 1), (("send", "last", "order", "--timeout", "0s"), 3):
        found = printed(*arguments)
        assert (found["run"], found["kind"], found["exit_code"]) == (RUN, "under way", code)
        assert found["holder"].startswith("process ")
        assert (found["failure"] or {}).get("code") == ("HeldError" if code == 1 else None)
        assert (found["posted"] is not None) == (code == 3)
    assert printed("show", "last")["kind"] == "under way"
    journal.release()
    place.close()


@pytest.mark.parametrize("arguments", [("run", "shop.md", "--data", "tea"), ("resume", "last")])
def test_interrupted_run_is_printed_with_its_id(shop, arguments):
    Path("bindings.py").write_text(INTERRUPTING)
    if arguments[0] == "resume":
        cut_off(shop)
    found = printed(*arguments)
    assert (found["kind"], found["exit_code"], found["state"]) == ("interrupted", 130, "paying")
    assert found["run"] in found["failure"]["message"]


@pytest.mark.parametrize(("arguments", "said"), [
    (("run", "nothing.md"), "nothing.md"),
    (("run", "shop.md", "--seed", "x"), "--seed"),
    (("run", "shop.md", "--nonsense"), "--nonsense"),
    (("run", "shop.md", "--with", "nothing.py"), "nothing.py"),
    (("show", "nothing"), "no run 'nothing'"),
    (("resume", "nothing"), "no run 'nothing'"),
    (("send", "nothing", "order"), "no run 'nothing'"),
])  # fmt: skip
def test_shape_is_the_same_without_a_run(shop, arguments, said):
    waiting(shop)
    found = printed(*arguments)
    assert (found["run"], found["kind"], found["totals"], found["exit_code"]) == (None, "unreadable", None, 2)
    assert said in found["failure"]["message"]


def test_unreadable_run_is_named(shop):
    keep(ROOT, begun(file=shop).ledger, SHOP.replace("mail, log", "mail"))
    found = printed("resume", "last")
    assert (found["run"], found["machine"], found["kind"], found["exit_code"]) == (RUN, None, "stopped", 1)


def test_run_names_its_default_model():
    asked = dsa("run", "dual_state", "--budget", "calls=0")
    assert "model: local, the built-in one; --model takes another\n" in asked.stderr
    Path("s.md").write_text("```\nx\n```\n")
    chosen = dsa("run", "dual_state", "--budget", "calls=0", "--model", "scripted:s.md")
    assert "model:" not in chosen.stderr


def test_run_resumes_with_another_parameter_value_that_fits():
    Path("s.md").write_text("```\nx\n```\n" * 9)
    dsa("run", "dual_state", "--budget", "query_llm.calls=1", "--model", "scripted:s.md", "--param", "rmax=2")
    found = printed("resume", "last", "--param", "rmax=1", "--budget", "query_llm.calls=9")
    assert (found["kind"], found["outcome"], len(found["attempts"])) == ("finished", "failed", 2)
