"""What `--json` prints of a run: one shape, whatever came of it."""

import json
from importlib.resources import files
from pathlib import Path

import jsonschema
import pytest
from kept_runs import RUN, SHOP, begun, crashed_while, dsa, keep, write_shop

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


def told(*arguments):
    """The object that a command prints, which has the shape; its exit code is in it."""
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


@pytest.mark.parametrize(("stands", "kind"), [
    (waiting, "waiting"), (finished, "finished"), (in_doubt, "in doubt"), (cut_off, "cut off"), (stopped, "stopped"),
])  # fmt: skip
def test_show_tells_of_a_run_however_it_stands(shop, stands, kind):
    stands(shop)
    found = told("show", "last")
    assert (found["run"], found["machine"], found["kind"], found["exit_code"]) == (RUN, "shop", kind, 0)


def test_show_says_what_has_stopped_a_run(shop):
    stopped(shop)
    assert told("show", "last")["failure"] == {
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
def test_run_tells_how_it_came_to_rest(arguments, kind, code):
    Path("failing.py").write_text(
        "async def fails(action, context):\n    raise OSError('no disk')\neffects = dict.fromkeys(('log', 'pay', 'mail'), fails)\n"
    )
    found = told(*arguments)
    assert (found["kind"], found["exit_code"], found["machine"]) == (kind, code, "shop")
    assert found["directory"] == f".dsa/{found['run']}"


def test_number_out_of_range_begins_no_run():
    found = told("run", "shop.md", "--data", '{"tea": 1e400}')
    assert (found["kind"], found["run"], found["exit_code"]) == ("unreadable", None, 2)
    assert "the number 1e400 is out of range" in found["failure"]["message"]
    assert not Path(".dsa").exists()


@pytest.mark.parametrize(("stands", "arguments", "kind", "code"), [
    (cut_off, ("resume", "last"), "waiting", 3),
    (in_doubt, ("resume", "last"), "in doubt", 3),
    (in_doubt, ("resume", "last", "--fail", "1/2"), "finished", 1),
    (finished, ("resume", "last"), "finished", 1),
    (waiting, ("send", "last", "order"), "waiting", 3),
    (waiting, ("send", "last", "more"), "waiting", 1),
])  # fmt: skip
def test_resume_and_send_tell_how_the_run_came_to_rest(shop, stands, arguments, kind, code):
    stands(shop)
    found = told(*arguments)
    assert (found["run"], found["kind"], found["exit_code"]) == (RUN, kind, code)
    assert [each["event"] for each in found["refused"]] == (["more"] if "more" in arguments else [])


@pytest.mark.parametrize(("stands", "arguments", "kind", "said"), [
    (waiting, ("send", "last", "nonsense"), "waiting", "shop has no event 'nonsense'"),
    (waiting, ("send", "last", "paid"), "waiting", "'paid' does not come from outside"),
    (waiting, ("send", "last", "order", "tea", "--data", "1"), "waiting", "not both"),
    (waiting, ("resume", "last", "--retry", "1/2"), "waiting", "is not in doubt"),
    (in_doubt, ("resume", "last", "--done", "1/2"), "in doubt", "pay 1/2 has answers"),
    (waiting, ("resume", "last", "--param", "rmax=1"), "waiting", "rmax"),
    (waiting, ("resume", "last", "--machine", "nothing.md"), "waiting", "nothing.md"),
    (waiting, ("show", "last", "--after", "1"), "waiting", "--after goes with the story"),
])  # fmt: skip
def test_a_mistake_about_a_run_tells_of_the_run_all_the_same(shop, stands, arguments, kind, said):
    stands(shop)
    found = told(*arguments)
    if arguments[0] != "show":  # that is noticed before a run is looked for
        assert (found["run"], found["kind"], found["state"]) == (RUN, kind, "idle" if stands is waiting else "paying")
    assert said in found["failure"]["message"]
    assert found["exit_code"] == 2


def test_a_run_that_another_process_holds_is_told_with_its_holder(shop):
    waiting(shop)
    place = open_place(ROOT)
    journal, _ = place.store.hold(RUN)
    for arguments, code in (("resume", "last"), 1), (("send", "last", "order", "--timeout", "0s"), 3):
        found = told(*arguments)
        assert (found["run"], found["kind"], found["exit_code"]) == (RUN, "under way", code)
        assert found["holder"].startswith("process ")
        assert (found["failure"] or {}).get("code") == ("HeldError" if code == 1 else None)
        assert (found["posted"] is not None) == (code == 3)
    assert told("show", "last")["kind"] == "under way"
    journal.release()
    place.close()


@pytest.mark.parametrize("arguments", [("run", "shop.md", "--data", "tea"), ("resume", "last")])
def test_an_interrupted_run_is_told_with_its_folder(shop, arguments):
    Path("bindings.py").write_text(INTERRUPTING)
    if arguments[0] == "resume":
        cut_off(shop)
    found = told(*arguments)
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
def test_without_a_run_the_shape_is_the_same(shop, arguments, said):
    waiting(shop)
    found = told(*arguments)
    assert (found["run"], found["kind"], found["totals"], found["exit_code"]) == (None, "unreadable", None, 2)
    assert said in found["failure"]["message"]


def test_a_run_that_cannot_be_read_is_named(shop):
    keep(ROOT, begun(file=shop).ledger, SHOP.replace("mail, log", "mail"))
    found = told("resume", "last")
    assert (found["run"], found["machine"], found["kind"], found["exit_code"]) == (RUN, None, "stopped", 1)


def test_a_run_says_which_model_it_takes_when_none_was_chosen():
    asked = dsa("run", "dual_state", "--budget", "calls=0")
    assert "model: local, the built-in one; --model takes another\n" in asked.stderr
    Path("s.md").write_text("```\nx\n```\n")
    chosen = dsa("run", "dual_state", "--budget", "calls=0", "--model", "scripted:s.md")
    assert "model:" not in chosen.stderr


def test_a_run_goes_on_with_another_parameter_if_it_fits():
    Path("s.md").write_text("```\nx\n```\n" * 9)
    dsa("run", "dual_state", "--budget", "query_llm.calls=1", "--model", "scripted:s.md", "--param", "rmax=2")
    found = told("resume", "last", "--param", "rmax=1", "--budget", "query_llm.calls=9")
    assert (found["kind"], found["outcome"], len(found["attempts"])) == ("finished", "failed", 2)
