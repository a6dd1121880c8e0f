"""`dsa run --policy`, and `show`, `resume`, `send`, `replay` on such a run."""

import json
from pathlib import Path
from shutil import rmtree

import pytest
from stored_runs import crashed_while, dsa, keep, recorded

from dsa.edge.document_files import locate
from dsa.errors import DsaError
from dsa.runs.place import open_store
from dsa.runtime.ledger import ResultEntry

#: Policies that record what they do; the call that the file `break` names raises.
MINE = """
from pathlib import Path

from dsa.runtime.policy.policies import Action, action_result_step, error_step, text_step
from dsa.runtime.policy.policy_registry import Registry

policies = Registry()

def do(what):
    with Path("done.txt").open("a") as file:
        file.write(what + " ")
    if Path("break").exists() and Path("break").read_text() == what:
        raise ConnectionError("no route")

@policies.register("look")
async def look(action, context):
    do(action.payload["at"])
    return [text_step("look", action.payload["at"] + " is fine")]

@policies.register("pay", in_doubt="ask")
async def pay(action, context):
    do("pay")
    return [action_result_step("pay", {"paid": 5})]

@policies.register("trip", "Plan a trip.", {"properties": {"text": {"maxLength": 20}}})
async def trip(action, context):
    said = [(await context.call(Action("look", {"at": at})))[0] for at in action.payload["text"].split()]
    (paid,) = await context.call(Action("pay"))
    if paid.payload.get("error"):
        return [error_step("trip", "UNPAID", paid.payload["message"])]
    return [text_step("trip", ", ".join([*(step.payload["text"] for step in said), str(paid.payload)]))]

@policies.register("settings")
async def settings(action, context):
    return [action_result_step("settings", dict(context.config))]
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "cats.md").write_text("# Cats\n\nCats sleep.\n")
    return tmp_path


def trip(*options, text="Oslo Rome"):
    return dsa("run", "--policy", "trip", text, "--with", "mine.py", *options)


def did():
    return Path("done.txt").read_text().split() if Path("done.txt").exists() else []


def stopped_at(what):
    """Return the result of a run that stopped at one call; afterwards the call can succeed."""
    Path("break").write_text(what)
    result = trip()
    Path("break").unlink()
    Path("done.txt").unlink()
    return result


def cut_off_at(what):
    """Leave a run as if its process had been killed during a call; return its id."""
    stopped_at(what)
    with open_store(Path(".dsa")) as store:
        run = store.runs()[-1]
        entries = [entry for entry in store.read(run).entries if not isinstance(entry, ResultEntry)]
    rmtree(".dsa")
    keep(Path(".dsa"), entries, locate("policy").read_text(), run)
    return run


# -- running ----------------------------------------------------------------------------------------------------------


def test_search_agent_answers_from_files_and_says_that_no_model_was_asked():
    result = dsa("run", "--policy", "search_agent", "What do cats do?", "--over", "docs")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[:3] == [
        '1.1.1.1  quoting_policy: assistant asks for web_search_policy {"query": "What do cats do?"}',
        '1.1.1.2  web_search_policy: gave {"left_out": 0, "results": [{"excerpt": "# Cats", "file": "cats.md", "line": 1},...',
        "1.1.1.3  quoting_policy: assistant: No model was asked; these places contain the words: cats.md:1: # Cats cats.md:3:...",
    ]
    assert lines[3:5] == ["succeeded", ""]
    assert "cats.md:3: Cats sleep." in lines
    assert lines[-1].startswith("totals    4 calls, ")
    (run,) = Path(".dsa").glob("*-policy-*")
    assert (run / "final.txt").read_text().startswith("No model was asked")


def test_quiet_prints_no_calls_before_the_outcome():
    lines = dsa("run", "--policy", "search_agent", "cats", "--over", "docs", "--quiet").stdout.splitlines()
    assert lines[0] == "succeeded"


def test_scripted_model_uses_its_tool(folder):
    call = {"tool_calls": [{"name": "web_search_policy", "arguments": {"query": "sleep"}}]}
    (folder / "model.md").write_text(f"```json\n{json.dumps(call)}\n```\n\n```\nThey sleep (cats.md:3).\n```\n")
    result = dsa(
        "run", "--policy", "search_agent", "What do cats do?", "--over", "docs", "--model", "scripted:model.md"
    )
    assert "\nThey sleep (cats.md:3).\n" in result.stdout
    assert "llm_policy" in result.stdout


def test_json_is_one_object():
    told = json.loads(trip("--json").stdout)
    assert (told["kind"], told["outcome"], told["exit_code"], told["failure"], told["in_doubt"]) == (
        *("finished", "succeeded", 0, None, []),
    )
    assert told["answer"] == "Oslo is fine, Rome is fine, {'paid': 5}"
    assert [(call["policy"], call["finished"], call["cached"]) for call in told["calls"]] == [
        ("trip", True, False), ("look", True, False), ("look", True, False), ("pay", True, False),
    ]  # fmt: skip
    assert told["steps"][0]["id"] == "1.1/1"
    assert told["totals"]["seconds"] > 0
    assert Path(told["directory"]).is_dir()


def test_command_line_settings_are_visible_to_policies(folder):
    told = json.loads(dsa("run", "--policy", "settings", "x", "--with", "mine.py", "--seed", "3", "--json").stdout)
    assert told["steps"][0]["payload"] == {
        "over": str(folder), "model": "local", "seed": 3, "budget": [], "runs": str(folder / ".dsa"),
    }  # fmt: skip


def test_run_that_ends_with_an_error_has_failed():
    result = trip(text="a place with a long name")
    assert result.exit_code == 1
    assert result.stdout.startswith("failed: error INVALID_PAYLOAD: at $.text: ")
    told = json.loads(trip("--json", text="a place with a long name").stdout)
    assert (told["outcome"], told["answer"], told["failure"]) == ("failed", None, None)
    assert told["steps"][-1]["payload"]["code"] == "INVALID_PAYLOAD"
    assert dsa("resume", "last").exit_code == 1


def test_search_without_words_is_an_error_and_not_an_answer():
    result = dsa("run", "--policy", "search_agent", "??", "--over", "docs", "--quiet")
    assert result.exit_code == 1
    assert result.stdout.startswith("failed: error NO_WORDS: there is no word in '??' to search for\n")


def test_exception_of_a_policy_stops_the_run_and_names_the_line():
    result = stopped_at("Rome")
    assert result.exit_code == 1
    line = MINE.splitlines().index('        raise ConnectionError("no route")') + 1
    said = f"stopped: perform (line 24) failed in look 1/1/1.1.2: ConnectionError: no route (at mine.py:{line})\n"
    assert said in result.stdout
    assert "next      dsa resume " in result.stdout
    assert "Traceback" not in result.output
    Path("break").write_text("Rome")
    failure = json.loads(trip("--json").stdout)["failure"]
    assert (failure["what"], failure["call"], failure["code"]) == ("perform", "look 1/1/1.1.2", "ConnectionError")


MISTAKES = {
    "missing text": (["run", "--policy", "trip"], "--policy needs a TEXT"),
    "empty text": (["run", "--policy", "trip", " "], "--policy needs a TEXT"),
    "file and policy": (["run", "dual_state", "--policy", "trip", "x"], "--policy takes one TEXT and no FILE"),
    "neither file nor policy": (["run"], "Missing argument 'FILE', or --policy NAME."),
    "folder option with a file": (["run", "dual_state", "--over", "docs"], "--over goes with --policy NAME"),
    "unknown parameter": (["run", "--policy", "trip", "x", "--param", "rmax=1"], "policy has no parameter"),
    "invalid budget": (["run", "--policy", "trip", "x", "--budget", "calls"], "'calls' is not a budget"),
    "unknown policy": (
        ["run", "--policy", "serch_agent", "x"],
        "hint: did you mean 'search_agent'?",
    ),
    "missing folder": (["run", "--policy", "search_agent", "x", "--over", "gone"], "gone: there is no such folder"),
    "file instead of a folder": (
        ["run", "--policy", "search_agent", "x", "--over", "mine.py"],
        "mine.py: is not a folder",
    ),
    "missing script": (
        ["run", "--policy", "search_agent", "x", "--model", "scripted:gone.md"],
        "gone.md: No such file",
    ),
    "missing module": (["run", "--policy", "trip", "x", "--with", "gone.py"], "gone.py: no such Python file"),
}


@pytest.mark.parametrize(("arguments", "said"), MISTAKES.values(), ids=MISTAKES)
def test_mistake_on_the_command_line_is_reported_and_nothing_runs(arguments, said):
    result = dsa(*arguments)
    assert result.exit_code == 2 or isinstance(result.exception, DsaError)
    assert said in result.output + str(result.exception)
    assert not [*Path(".dsa").glob("*-policy-*")]
    assert did() == []


def test_mistake_is_an_object_with_json():
    assert json.loads(dsa("run", "--policy", "trip", "--json").stdout)["kind"] == "unreadable"


def test_shipped_policy_runs_with_a_module_without_policies(folder):
    (folder / "other.py").write_text("effects = {}")
    assert dsa("run", "--policy", "search_agent", "cats", "--over", "docs", "--with", "other.py").exit_code == 0


def test_search_skips_unreadable_files_and_links(folder):
    (folder / "secret.md").write_text("Cats plot in secret.\n")
    (folder / "docs" / "link.md").symlink_to(folder / "secret.md")
    (folder / "docs" / "linked").symlink_to(folder)
    (folder / "docs" / "cats.bin").write_bytes(b"\xff\0cats")
    (folder / "docs" / "cats.latin").write_bytes("caf\u00e9 cats".encode("latin-1"))
    told = json.loads(dsa("run", "--policy", "search_agent", "secret cats", "--over", "docs", "--json").stdout)
    found = next(step["payload"] for step in told["steps"] if step["type"] == "action_result")
    assert {place["file"] for place in found["results"]} == {"cats.md"}
    assert (found["searched"], found["left_out"]) == (1, 3)


# -- resuming ---------------------------------------------------------------------------------------------------------


def test_stopped_run_resumes_with_its_recorded_results():
    stopped_at("Rome")
    result = dsa("resume", "last")
    assert result.exit_code == 0, result.output
    assert did() == ["Rome", "pay"]
    assert result.stdout.splitlines()[:2] == [
        "1.1.2    look: resumed: the call had failed; it is performed again",
        "1.1.2    look: look: Rome is fine",
    ]
    assert "totals    3 calls (1 cached), " in result.stdout
    run = recorded(Path(".dsa"), next(Path(".dsa").glob("*-policy-*")).name).run
    assert dsa("resume", "last").stdout == f"run {run} is finished: succeeded\n"
    assert json.loads(dsa("resume", "last", "--json").stdout)["calls"][1]["cached"] is True


def test_run_resumes_from_another_folder_with_another_model(folder, monkeypatch):
    stopped_at("Rome")
    (folder / "elsewhere").mkdir()
    monkeypatch.chdir(folder / "elsewhere")
    result = dsa("resume", "last", "--runs", "../.dsa", "--model", "other")
    assert result.exit_code == 0, result.output
    monkeypatch.chdir(folder)
    assert "--model local" in dsa("show", "last").stdout, "the model of the start"


def test_person_is_asked_about_a_call_that_must_not_be_repeated():
    run = cut_off_at("pay")
    result = dsa("resume", run)
    assert result.exit_code == 3
    assert result.stdout.splitlines()[:5] == [
        "in doubt: pay 1/1/1.1.3 was under way when the run was cut off: {}",
        f"  it has not happened   dsa resume {run} --retry 1/1/1.1.3",
        f"  it has happened       dsa resume {run} --done 1/1/1.1.3",
        f"  it returned a result  dsa send {run} action_result --answers 1/1/1.1.3 --data JSON",
        f"  it has failed         dsa resume {run} --fail 1/1/1.1.3",
    ]
    assert did() == []
    told = json.loads(dsa("resume", run, "--json").stdout)
    assert (told["kind"], told["exit_code"]) == ("in doubt", 3)
    assert [(each["key"], each["effect"]) for each in told["in_doubt"]] == [("1/1/1.1.3", "pay")]


@pytest.mark.parametrize(
    ("command", "done", "code", "said"),
    [
        (["resume", "--retry", "1/1/1.1.3"], ["pay"], 0, "{'paid': 5}"),
        (["resume", "--done", "1/1/1.1.3"], [], 0, "'done': True"),
        (
            ["resume", "--fail", "1/1/1.1.3"],
            [],
            1,
            "failed: error UNPAID: the run was cut off while this call was under way",
        ),
        (["send", "action_result", "--data", '{"paid": 7}', "--answers", "1/1/1.1.3"], [], 0, "{'paid': 7}"),
        (["send", "text", "It is paid.", "--answers", "1/1/1.1.3"], [], 0, "{'text': 'It is paid.'}"),
    ],
)
def test_decision_on_a_call_in_doubt_is_carried_out(command, done, code, said):
    run = cut_off_at("pay")
    verb, *options = command
    result = dsa(verb, run, *options)
    assert (result.exit_code, did()) == (code, done), result.output
    assert said in result.stdout
    assert dsa("replay", run).exit_code == 0


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["resume", "--retry", "1/1/1.1.1"], "1/1/1.1.1 is not in doubt; the effects and calls in doubt are: "),
        (["resume", "--retry", "1/1/1.1.3", "--fail", "1/1/1.1.3"], "1/1/1.1.3 has two decisions; give only one"),
        (
            ["resume", "--done", "1/1"],
            "perform 1/1 always returns an answer, so it is not enough to say that it is done; say which answer it gave",
        ),
        (["send", "text", "hello"], "policy has no event 'text'"),
        (["send", "event", "hello", "--answers", "1/1/1.1.3"], "write the result of a call as `text"),
        (["send", "action_result", "hello", "--answers", "1/1/1.1.3"], "`action_result --data"),
        (["send", "text", "x", "--answers", "1/1/1.1.9"], "policy has no event 'text'"),
    ],
)
def test_invalid_decision_is_refused_and_changes_nothing(command, said):
    run = cut_off_at("pay")
    verb, *options = command
    before = recorded(Path(".dsa"), run).entries
    result = dsa(verb, run, *options)
    assert result.exit_code != 0
    assert said in result.output + str(result.exception)
    assert (did(), recorded(Path(".dsa"), run).entries) == ([], before)


def test_replay_of_a_machine_run_refuses_policies():
    crashed_while(Path(".dsa"), doing="pay")
    result = dsa("replay", "last", "--with", "mine.py")
    assert "--with is only for the run of a policy" in result.output


# -- replaying --------------------------------------------------------------------------------------------------------


def test_run_is_replayed_from_recorded_results():
    trip()
    Path("done.txt").unlink()
    result = dsa("replay", "last")
    assert result.exit_code == 0, result.output
    first, same, second, third = result.stdout.splitlines()
    assert same == "every entry is the same when it is derived again; succeeded: no variables"
    assert first.endswith(": 15 entries, 2 events, 2 rows, 0 refused, 1 effects")
    assert (
        second
        == "performed again with recorded results, these calls make the same requests and take the same steps: trip 1.1"
    )
    assert third == dsa("replay", "last").stdout.splitlines()[3]
    assert did() == []
    told = json.loads(dsa("replay", "last", "--json").stdout)
    assert (told["calls"], told["ends_at"], told["events"]) == (["1.1"], None, 2)
    assert third == f"sha256 {told['sha256']}"


def test_unfinished_run_is_replayed_as_far_as_it_goes():
    run = cut_off_at("pay")
    assert "the ledger ends at call 1.1.3\n" in dsa("replay", run).stdout
    assert did() == []
    dsa("run", "--policy", "settings", "x", "--with", "mine.py")
    assert "settings made no calls: there is nothing to perform again\n" in dsa("replay", "last").stdout


CHANGES = [
    ('Action("look", {"at": at})', 'Action("look", {"at": at.upper()})', "now give look with {'at': 'OSLO'}"),
    ('Action("look", {"at": at})', 'Action("pay", {"at": at})', "now give pay with {'at': 'Oslo'}"),
    ('", ".join', '"; ".join', 'now give the steps [{"text": "Oslo is fine; Rome is fine'),
]


@pytest.mark.parametrize(("old", "new", "said"), CHANGES)
def test_changed_policy_is_reported_with_its_difference(folder, old, new, said):
    trip()
    Path("done.txt").unlink()
    (folder / "changed.py").write_text(MINE.replace(old, new))
    result = dsa("replay", "last", "--with", "changed.py")
    assert result.exit_code == 1
    assert "call 1" in result.stderr
    assert said in result.stderr
    assert (did(), result.stdout) == ([], "")


@pytest.mark.parametrize(("old", "new", "said"), CHANGES[:2])
def test_run_does_not_resume_with_a_changed_policy(folder, old, new, said):
    run = cut_off_at("pay")
    (folder / "changed.py").write_text(MINE.replace(old, new))
    result = dsa("resume", run, "--retry", "1/1/1.1.3", "--with", "changed.py")
    assert (result.exit_code, did()) == (1, [])
    assert said in result.stderr


# -- common to all runs -----------------------------------------------------------------------------------------------


def test_budget_stops_a_policy_and_a_larger_one_lets_it_continue():
    Path("mine.py").write_text(MINE.replace('{"paid": 5}', '{"paid": 5, "usage": {"prompt_tokens": 9}}'))
    result = trip("--budget", "perform.calls=0")
    assert (result.exit_code, did()) == (1, [])
    assert "stopped: perform (line 24) failed: the budget is spent: at most 0 calls of perform" in result.stdout
    assert dsa("resume", "last", "--budget", "perform.calls=5").exit_code == 0
    assert did() == ["Oslo", "Rome", "pay"]


def test_run_of_a_policy_is_shown_as_a_scenario_and_listed_with_its_request():
    trip()
    assert [line.split() for line in dsa("show", "last", "--as-scenario").stdout.splitlines()[3:]] == [
        ["|", "specification", "|", "perform", "|", "performing", "|"],
        ["|", "gave", "|", "|", "succeeded", "|"],
    ]
    (listed,) = json.loads(dsa("runs", "--json").stdout)
    assert (listed["machine"], listed["kind"], listed["about"]) == ("policy", "finished", "trip: Oslo Rome")


def test_call_in_doubt_is_listed_by_its_key():
    cut_off_at("pay")
    (listed,) = json.loads(dsa("runs", "--json").stdout)
    assert (listed["how"], listed["in_doubt"]) == ("in doubt: pay 1/1/1.1.3", ["1/1/1.1.3"])
