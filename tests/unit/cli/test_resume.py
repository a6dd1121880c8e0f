"""`dsa resume`: runs that continue, doubts that are decided, and what is refused."""

import json
import re
import shlex
from pathlib import Path

import attrs
import pytest
from stored_runs import RUN, SHOP, begun, crashed_while, dsa, keep, recorded, write_shop

from dsa.edge.document_files import locate, read_text
from dsa.errors import BindingError, code_of
from dsa.runs.place import open_store
from dsa.runtime.ledger import ArtifactEntry, EventEntry, ResumedEntry

ROOT = Path(".dsa")


@pytest.fixture
def shop(tmp_path, monkeypatch):
    """The shop's document, in the folder that the test works in."""
    monkeypatch.chdir(tmp_path)
    return write_shop(tmp_path)


def done():
    """Return the names of the effects that were performed."""
    return Path("done.txt").read_text().split() if Path("done.txt").exists() else []


def test_cut_off_run_lists_its_doubt_and_how_to_decide_it(shop):
    entries = crashed_while(ROOT, doing="pay", file=shop)
    result = dsa("resume", "last")
    assert result.exit_code == 3
    assert result.stdout.startswith(
        "in doubt: pay 1/2 (line 30) was under way when the run was cut off\n  it has not happened  dsa"
    )
    assert recorded(ROOT).entries == entries
    assert done() == []


COMMANDS = {
    "it has not happened": (["pay", "mail", "log"], "resting", 3),
    "it gave paid": (["mail", "log"], "resting", 3),
    "it gave declined": ([], "failed", 1),
    "it has failed": ([], "failed", 1),
}


@pytest.mark.parametrize(("way", "expected"), COMMANDS.items(), ids=COMMANDS)
def test_each_printed_command_decides_the_doubt(shop, way, expected):
    crashed_while(Path("my runs"), doing="pay", file=shop)
    printed = dsa("resume", "last", "--runs", "my runs").stdout
    (command,) = re.findall(rf"^  {way} +(dsa .*)$", printed, re.MULTILINE)
    result = dsa(*shlex.split(command)[1:])
    performed, state, code = expected
    assert result.exit_code == code, result.output
    assert done() == performed
    assert dsa("show", "last", "--runs", "my runs").stdout.count(f"state  {state}") == 1


@pytest.mark.parametrize(
    ("option", "performed", "code"), [("--done", ["log"], 3), ("--retry", ["mail", "log"], 3), ("--fail", [], 1)]
)
def test_effect_without_answers_is_decided_by_an_option(shop, option, performed, code):
    crashed_while(ROOT, doing="mail", file=shop)
    result = dsa("resume", "last", option, "2/1")
    assert (result.exit_code, done()) == (code, performed), result.output
    if option == "--fail":
        assert (
            "stopped: mail (line 31) failed: the run was cut off while the effect was under way; the effect counts as fail"
            in result.stdout
        )
        assert f"next      dsa resume {RUN}\n" in result.stdout
        assert dsa("resume", "last").exit_code == 3, "what failed is tried again"
        assert done() == ["mail", "log"]
        resumed = [entry.effects for entry in recorded(ROOT).entries if isinstance(entry, ResumedEntry)]
        assert resumed == [(("2/1", "fail"),), (("2/1", "again"),)]


def test_doubt_is_decided_by_the_key_of_its_effect(shop):
    crashed_while(ROOT, doing="mail", file=shop)
    assert dsa("resume", "last", "--done", "2/1").exit_code == 3
    assert done() == ["log"]


def test_done_option_is_refused_for_an_effect_with_answers(shop):
    crashed_while(ROOT, doing="pay", file=shop)
    result = dsa("resume", "last", "--done", "1/2")
    assert result.exit_code == 2
    assert (
        f"pay 1/2 always returns an answer, so it is not enough to say that it is done; say which answer it gave: `dsa send {RUN} EVENT --answers 1/2`, where EVENT is one of paid, declined"
        in result.stderr
    )


@pytest.mark.parametrize(("options", "said"), [
    (["--retry", "7/7"], "7/7 is not in doubt; the effects and calls in doubt are: 1/2"),
    (["--done", "1/1"], "1/1 is not in doubt"),
])  # fmt: skip
def test_effect_not_in_doubt_cannot_be_decided(shop, options, said):
    crashed_while(ROOT, doing="pay", file=shop)
    fault = dsa("resume", "last", *options).exception
    assert code_of(fault) == "DoubtError"
    assert said in str(fault)
    assert dsa("resume", "last", "--retry", "1/2", "--fail", "1/2").exit_code == 2


def test_waiting_run_keeps_waiting_and_finished_run_is_unchanged(shop):
    keep(ROOT, begun(file=shop).ledger)
    result = dsa("resume", "last")
    assert result.exit_code == 3
    assert f"next      dsa send {RUN}@0 order [DATA]\n" in result.stdout
    assert dsa("send", "last", "order").exit_code == 3
    assert dsa("send", "last", "more").exit_code == 0
    before = recorded(ROOT)
    result = dsa("resume", "last")
    assert (result.exit_code, result.stdout) == (0, f"run {RUN} is finished: succeeded\n")
    told = json.loads(dsa("resume", "last", "--json").stdout)
    assert (told["outcome"], told["exit_code"], told["state"]) == ("succeeded", 0, "succeeded")
    assert recorded(ROOT) == before
    assert code_of(dsa("resume", "last", "--retry", "1/2").exception) == "DoubtError"


def test_resume_of_a_finished_run_exits_with_its_outcome(shop):
    run = crashed_while(ROOT, doing="pay", file=shop)
    assert dsa("resume", "last", "--fail", "1/2").exit_code == 1
    assert dsa("resume", "last").exit_code == 1
    assert len(recorded(ROOT).entries) > len(run)


def test_json_lists_effects_in_doubt(shop):
    crashed_while(ROOT, doing="pay", file=shop)
    told = json.loads(dsa("resume", "last", "--json").stdout)
    assert (told["kind"], told["exit_code"], told["waits_for"]) == ("in doubt", 3, {})
    assert told["in_doubt"] == [{"key": "1/2", "effect": "pay", "line": 30}]


def test_run_held_by_another_process_is_refused_and_can_be_taken(shop):
    with open_store(ROOT) as store:
        journal = store.create(RUN, SHOP, list(begun(file=shop).ledger))
        result = dsa("resume", "last")
        assert result.exit_code == 1
        assert re.fullmatch(
            rf"run {RUN} is held by process \d+ on \S+ \(\w+\): that process is alive and goes on with the run; --take takes over the run\n",
            result.stderr,
        )
        assert dsa("resume", "last", "--take").exit_code == 3
        assert journal.epoch < recorded(ROOT).epoch
        assert dsa("send", "last", "order", "--take").exit_code == 3
        assert done() == ["log", "pay", "mail", "log"]


# -- the module, document and script of the start ---------------------------------------------------------------------


def test_module_and_document_of_the_start_are_found_from_any_folder(shop, tmp_path, monkeypatch):
    assert dsa("run", "shop.md").exit_code == 3
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert dsa("send", "last", "order", "--runs", "../.dsa").exit_code == 3
    assert done() == ["log", "pay", "mail", "log"]


def test_another_module_replaces_the_first(shop):
    crashed_while(ROOT, doing="mail", file=shop)
    Path("mine.py").write_text(
        "async def quiet(action, context): return []\neffects = dict(mail=quiet, log=quiet, pay=quiet)\n"
    )
    assert dsa("resume", "last", "--done", "2/1", "--with", "mine.py").exit_code == 3
    assert done() == []
    assert isinstance(dsa("resume", "last", "--with", "nowhere.py").exception, BindingError)


def test_changed_document_is_reported_and_not_used(shop):
    crashed_while(ROOT, doing="mail", file=shop)
    shop.write_text(SHOP + "\n## Properties\n- never failed and idle\n")
    assert "has changed" not in dsa("resume", "last").stderr
    shop.write_text(
        SHOP.replace(
            "| resting | more       |           | succeeded |", "| resting | more       |           | failed    |"
        )
    )
    result = dsa("resume", "last", "--done", "2/1")
    copy = f".dsa/{RUN}/machine.md"
    assert (
        result.stderr
        == f"{shop} has changed; the run goes on with its own copy, {copy} (dsa diff {copy} {shop} shows what changed; "
        f"dsa resume {RUN} --machine {shop} uses the changed file, if the run fits it)\n"
    )
    assert dsa("send", "last", "more").exit_code == 0


def test_missing_document_is_reported_and_not_needed(shop):
    keep(ROOT, begun(file=shop).ledger)
    shop.unlink()
    result = dsa("resume", "last")
    assert result.exit_code == 3
    assert f"{shop} has changed" in result.stderr


REPLIES = "".join(f"```python\ndef add(a, b):\n    return {text}\n```\n" for text in ("a - b", "a * b", "a + b"))


def test_script_continues_after_the_replies_already_used(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("script.md").write_text(REPLIES)
    assert dsa("run", "dual_state", "--model", "scripted:script.md", "--quiet").exit_code == 0
    whole = recorded(ROOT, next(iter(path.name for path in ROOT.glob("*-dual_state-*"))))
    events = [position for position, entry in enumerate(whole.entries) if isinstance(entry, EventEntry)]
    text = read_text(locate("dual_state"))
    # Cut off before each event from the first verdict on.
    for number, length in enumerate([*events[2:], len(whole.entries)]):
        run = f"20260131T12000{number}-cut"
        entries = [renamed(entry, whole.run, run) for entry in list(whole.entries)[:length]]
        artifacts = Path(f"cut{number}")
        artifacts.mkdir()
        keep(artifacts, entries, text, run)
        store_artifacts(artifacts, run, whole.run)
        result = dsa("resume", "last", "--runs", str(artifacts), "--quiet")
        assert result.exit_code == 0, result.output
        made = [e.attempt for e in recorded(artifacts, run).entries if isinstance(e, ArtifactEntry)]
        assert made == [1, 2, 3]


def test_script_is_found_from_any_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("script.md").write_text(REPLIES.partition("```\n```")[0] + "```\n")
    assert dsa("run", "dual_state", "--model", "scripted:script.md").exit_code == 1, "it has come to its end"
    Path("script.md").write_text(REPLIES)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    result = dsa("resume", "last", "--runs", "../.dsa", "--quiet")
    assert result.exit_code == 0, result.output
    assert "3 made, 2 rejected" in result.stdout


def renamed(entry, old, new):
    """Return an entry as another run would have it."""
    changes = {}
    if getattr(entry, "run", None) == old:
        changes["run"] = new
    if isinstance(getattr(entry, "key", None), str):
        changes["key"] = entry.key.replace(old, new)
    return attrs.evolve(entry, **changes)


def store_artifacts(root, run, old):
    """Copy what a run generated into another run's store."""
    from dsa.runs.place import open_artifacts

    there, here = open_artifacts(ROOT, old), open_artifacts(root, run)
    for attempt in there.attempts():
        here.store(there.get_artifact(attempt.artifact_id), attempt.author)


def test_progress_shows_only_new_attempts(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("one.md").write_text(REPLIES.partition("```\n```")[0] + "```\n")
    Path("rest.md").write_text(REPLIES.rpartition("```python")[2].join(["```python", ""]))
    assert dsa("run", "dual_state", "--model", "scripted:one.md").exit_code == 1, "the script has come to its end"
    result = dsa("resume", "last", "--model", "scripted:rest.md")
    assert result.exit_code == 0, result.output
    first, second, *_ = result.stdout.splitlines()
    assert (first, second.split()[:4]) == (
        "going on with query_llm 3/2, which failed: it is performed again",
        ["g", "attempt", "2", "passed"],
    )
    assert "2 made, 1 rejected" in result.stdout
