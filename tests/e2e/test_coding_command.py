"""`dsa code` as people type it: exit codes, requests for permission, resumed runs, output for programs."""

import json
import os
import re
import shlex
import subprocess
from importlib.resources import files

import jsonschema
import pytest
from coding_typed import DONE, FAILED, PLAN, WRITE, calls, typed_in
from forked import DSA


@pytest.fixture
def code(tmp_path):
    return typed_in(tmp_path)


RUN = calls(("run_cmd", {"cmd": ["python", "-m", "json.tool", "--help"]}))
STAYS = "not removed: .agent_context, agent_ledger.log; they describe the last run here for people, and no program needs them\n"


def test_json_option_prints_one_object(code, tmp_path):
    done = code("Do it", "--mode", "full-auto", "--json")
    told = json.loads(done.stdout)["work"]
    assert (done.returncode, told["state"], told["rounds"], told["files"]) == (0, "goal_complete", 2, ["a.txt"])
    assert told["tasks"] == [{"description": "Do it", "subtasks": [{"description": "write_file what is wanted", "status": "completed", "reason": "done", "done": 1, "shown": True}], "independent": False}]  # fmt: skip
    assert (tmp_path / "work" / "a.txt").read_text() == "one\n"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--resume", "nix"), "no run is stored here"),
        ((" ",), "GOAL is empty"),
        (("Do it", "--mode", "nix"), "'nix' is not one of"),
        (("Do it", "--budget", "nix=1"), "'nix=1' is not a budget"),
        (("Do it", "--config", "nix.toml"), "nix.toml"),
    ],
)
def test_json_option_prints_an_object_even_when_work_cannot_start(code, arguments, told):
    done = code(*arguments, "--json")
    found = json.loads(done.stdout)
    assert (found["kind"], found["exit_code"], done.returncode) == ("unreadable", 2, 2)
    assert told in found["failure"]["message"]


@pytest.mark.parametrize(
    ("script", "arguments", "exit_code", "state"),
    [
        ((PLAN, WRITE, DONE), (), 0, "goal_complete"),
        ((PLAN, "It is done.", "It is done."), (), 1, "answered"),
        ((PLAN, WRITE, *["I am blocked: I could not do it."] * 2), (), 1, "answered"),
        ((PLAN, DONE, DONE), (), 1, "goal_complete"),
        ((PLAN, WRITE, WRITE, WRITE, WRITE, WRITE), (), 1, "blocked"),
        ((PLAN, WRITE), ("--param", "max_rounds=1"), 1, "rounds_exhausted"),
        ((PLAN, FAILED), (), 3, "escalated"),
        ((PLAN, WRITE), (), 3, "paused"),
        ((WRITE, DONE, DONE, DONE), ("--template", "script"), 1, "goal_complete"),
        ((WRITE, DONE, RUN, DONE), ("--template", "script"), 0, "goal_complete"),
    ],
)
def test_exit_code_reflects_how_the_work_ended(code, script, arguments, exit_code, state):
    done = code("Do it", "--mode", "full-auto", *arguments, script=script)
    told = re.search(r"-coding-\w+: (\w+);", done.stdout)
    assert told is not None, done.stdout + done.stderr
    assert (done.returncode, told[1]) == (exit_code, state), done.stdout + done.stderr


@pytest.mark.parametrize(
    ("script", "says"),
    [
        (
            (PLAN, WRITE, *["I am blocked."] * 2),
            "not done: 1 of 1 subtask not completed, because an answer does not complete a subtask",
        ),
        ((PLAN, *["I am blocked."] * 2), "nothing was written or run; not done: 1 of 1 subtask not completed"),
        (
            (PLAN, DONE, DONE),
            "nothing was written or run; no result proves that this is done: write_file what is wanted",
        ),
    ],
)
def test_last_line_lists_what_the_record_shows_as_not_done(code, script, says):
    done = code("Do it", "--mode", "full-auto", script=script)
    last = done.stdout.splitlines()[-1]
    assert (done.returncode, says in last) == (1, True), done.stdout
    assert "Goal achieved" not in done.stdout
    again = code("last", "--json", command="resume")
    assert json.loads(again.stdout)["outcome"] in {"answered", "goal_complete"}


@pytest.mark.parametrize(
    ("subtask", "lacks"),
    [
        ("write_file a.txt", "no tool has read, written or run a.txt in this subtask"),
        ("run the program", "this subtask says to run or test something, but it has no result of a command"),
    ],
)
def test_result_that_does_not_fit_the_subtask_proves_nothing(code, subtask, lacks):
    plan, look = json.dumps([{"description": "Do it", "subtasks": [subtask]}]), calls(("list_dir", {}))
    done = code("Do it", "--mode", "full-auto", script=(plan, look, DONE, DONE))
    assert f"[no_evidence] {lacks}" in done.stdout
    assert (done.returncode, f"no result proves that this is done: {subtask}" in done.stdout) == (1, True)
    fits = WRITE if "a.txt" in subtask else RUN
    done = code("Do it", "--mode", "full-auto", "--fresh", script=(plan, fits, DONE))
    assert (done.returncode, "no_evidence" in done.stdout) == (0, False), done.stdout


def test_goal_is_reported_achieved_when_every_subtask_has_a_result(code):
    done = code("Do it", "--mode", "full-auto")
    assert (done.returncode, "Goal achieved" in done.stdout, "not done" in done.stdout) == (0, True, False)


def test_run_without_a_terminal_waits_and_continues_once_permitted(code, tmp_path):
    done = code("Do it")
    assert done.returncode == 3
    assert "+one" in done.stdout
    assert "write_file needs permission:" in done.stdout
    assert not (tmp_path / "work" / "a.txt").exists()
    sent = code("last", "permitted", command="send")
    assert sent.returncode == 0, sent.stdout + sent.stderr
    assert (tmp_path / "work" / "a.txt").read_text() == "one\n"


def test_next_question_is_shown_in_full_after_send_and_resume(code, tmp_path):
    other = calls(("write_file", {"path": "b.txt", "content": "two\n"}))
    assert code("Do it", script=(PLAN, WRITE, other, DONE)).returncode == 3
    for command, said in (("send", ("denied", "use b instead")), ("resume", ())):
        done = code("last", *said, command=command)
        assert done.returncode == 3, done.stderr
        question, _, after = done.stdout.partition("to allow this call: dsa send ")
        assert "write_file needs permission:" in question
        assert ("+two" in question, "+one" in question) == (True, False)
        assert re.match(r"\S+ permitted; other answers: permitted always, denied WHY\n", after), done.stdout
    done = code("last", "permitted", command="send")
    assert (done.returncode, "needs permission" in done.stdout) == (0, False), done.stdout
    assert (tmp_path / "work" / "b.txt").exists()


def test_permission_request_for_a_command_shows_its_folder_and_all_its_input(code, tmp_path):
    (tmp_path / "work" / "sub").mkdir()
    unseen = "import os\n" + "x = 1\n" * 500 + "os.remove('precious.txt')\n"
    asked = {"cmd": ["python", "x.py"], "stdin": unseen, "cwd": "./sub/"}
    plain = {"cmd": ["python", "x.py"]}
    done = code("Do it", script=(PLAN, calls(("run_cmd", asked), ("run_cmd", plain)), DONE))
    shown = "".join(f"  | {line}\n" for line in unseen.splitlines())
    whole = f"run_cmd needs permission:\n  python x.py\n  in the folder sub\n  with this standard input:\n{shown}"
    assert whole in done.stdout
    sent = code("last", "denied", command="send")
    assert "run_cmd needs permission:\n  python x.py\nto allow this call" in sent.stdout, sent.stdout


def test_denied_call_is_recorded_and_not_made(code, tmp_path):
    assert code("Do it", script=(PLAN, WRITE, FAILED)).returncode == 3
    assert code("last", "denied", command="send").returncode == 3
    shown = code("last", "--counters", command="show").stdout
    assert "not_approved" in shown
    assert not (tmp_path / "work" / "a.txt").exists()


def test_read_only_mode_changes_nothing(code, tmp_path):
    look = calls(("list_dir", {}))
    done = code(
        "Look", "--mode", "read-only", script=(PLAN, WRITE, calls(("run_cmd", {"cmd": ["python", "a.py"]})), look, DONE)
    )
    assert done.returncode == 0
    assert done.stdout.count("[not_approved]") == 2
    assert [path.name for path in (tmp_path / "work").iterdir() if not path.name.startswith((".agent", "agent"))] == []


def test_missing_workspace_is_reported(tmp_path):
    typed = [*DSA, "code", "Do it", "-w", "gone", "--model", "scripted:x.md"]
    done = subprocess.run(typed, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, "the workspace must be an existing folder" in done.stderr) == (2, True)


def test_missing_script_is_reported_and_nothing_is_stored(tmp_path):
    (tmp_path / "work").mkdir()
    typed = [*DSA, "code", "Do it", "-w", "work", "--model", "scripted:gone.md"]
    done = subprocess.run(typed, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, "the script cannot be read" in done.stderr) == (2, True)
    assert list((tmp_path / "work").iterdir()) == []


def test_same_goal_is_resumed_unless_fresh_is_requested(code):
    assert code("Do it").returncode == 3  # it waits for leave
    again = code("Do it", "--json")
    told = json.loads(again.stdout)
    assert (again.returncode, told["work"]["state"], told["work"]["asks"]["tool"]) == (3, "approving", "write_file")
    fresh = code("Do it", "--fresh", "--mode", "full-auto", "--json")
    assert json.loads(fresh.stdout)["run"] != told["run"]


def test_undo_reports_what_it_did_and_what_it_left(code, tmp_path):
    assert code("Do it", "--mode", "full-auto").returncode == 0
    assert "+one" in code("last", "--diff", command="show").stdout
    undone = code("last", command="undo")
    assert (undone.returncode, undone.stdout) == (0, f"removed: a.txt\n{STAYS}")
    assert not (tmp_path / "work" / "a.txt").exists()
    assert code("Do it", "--mode", "full-auto").returncode == 0
    (tmp_path / "work" / "a.txt").write_text("mine\n")
    left = code("last", command="undo")
    assert (left.returncode, left.stdout.startswith("left alone: a.txt (")) == (1, True)


def test_undo_escapes_file_names_that_control_a_terminal(code, tmp_path):
    make = "open('a\\x1b[31mred\\nremoved: b', 'w').close(); open('b\\x1b[2J', 'w').close()"
    ran = calls(("run_cmd", {"cmd": ["python", "-c", make]}))
    (tmp_path / "dsa.toml").write_text("[code.commands]\ncode = true\n")
    assert code("Do it", "--mode", "full-auto", script=(PLAN, ran, DONE)).returncode == 0
    (tmp_path / "work" / "b\x1b[2J").write_text("mine\n")
    said = code("last", command="undo").stdout
    assert "\x1b" not in said
    assert sorted(line.partition(" (")[0] for line in said.removesuffix(STAYS).splitlines()) == [
        "left alone: b\\x1b[2J", "removed: a\\x1b[31mred\\nremoved: b",
    ]  # fmt: skip


def test_undo_with_nothing_to_restore_says_so(code):
    assert code("Do it", "--mode", "full-auto").returncode == 0
    assert code("last", command="undo").stdout == f"removed: a.txt\n{STAYS}"
    again = code("last", command="undo")
    assert (again.returncode, "has no file to restore" in again.stdout) == (0, True)
    assert code("Look", "--mode", "full-auto", script=(PLAN, "Nothing.", "Nothing.")).returncode == 1
    idle = code("last", command="undo")
    assert (idle.returncode, "has no file to restore" in idle.stdout) == (0, True)
    assert "nothing was changed" in code("last", "--diff", command="show").stdout


def test_pending_permission_is_shown_by_show_and_send(code):
    assert code("Do it", script=(PLAN, WRITE, WRITE, DONE)).returncode == 3
    assert "allow write_file a.txt?" in code("last", command="show").stdout
    sent = code("last", "denied", command="send")
    assert (sent.returncode, "reply     allow write_file a.txt?" in sent.stdout) == (3, True)


def timeless(text):
    """Return the lines of a text without durations."""
    return re.sub(r"\d+\.\d s", "T s", text).splitlines()


def test_work_after_send_is_displayed_like_other_work(code, tmp_path):
    begun, _, rest = code("Do it", "--mode", "full-auto").stdout.partition("write_file  a.txt\n")
    (tmp_path / "work" / "a.txt").unlink()
    assert code("Do it", "--fresh").returncode == 3
    sent = code("last", "permitted", command="send").stdout
    *lines, _totals = timeless(rest)
    assert timeless(sent)[: len(lines)] == lines
    assert ("goal: " in begun, "goal: " in sent) == (True, False)
    assert code("Do it", "--fresh").returncode == 3
    assert "Wrote" not in code("last", "permitted", "--quiet", command="send").stdout


def test_transcript_repeats_the_printed_work(code):
    *lines, _totals = code("Do it", "--mode", "full-auto").stdout.splitlines()
    again = code("last", "--transcript", command="show")
    assert (again.returncode, again.stdout.splitlines()) == (0, lines)
    assert "write_file  a.txt" in lines


def test_run_of_another_machine_has_no_transcript(code, tmp_path):
    assert subprocess.run([*DSA, "new", "m.md"], cwd=tmp_path, capture_output=True, check=False).returncode == 0
    (tmp_path / "s.md").write_text("```\nx\n```\n")
    typed = [*DSA, "run", "m.md", "Make it", "--model", "scripted:s.md"]
    subprocess.run(typed, cwd=tmp_path, capture_output=True, check=False)
    refused = code("last", "--transcript", command="show")
    assert (refused.returncode, "`dsa chat` and `dsa code`" in refused.stderr) == (2, True)


def test_runs_of_other_machines_have_no_diff_or_undo(code, tmp_path):
    (tmp_path / "numbers.csv").write_text("a\n1\n")
    (tmp_path / "s.md").write_text("```\nYes.\n```\n")
    done = [*DSA, "chat", "numbers.csv", "--model", "scripted:s.md", "--ask", "x"]
    assert subprocess.run(done, cwd=tmp_path, capture_output=True, check=False).returncode == 0
    for command, arguments in (("show", ("last", "--diff")), ("undo", ("last",))):
        refused = code(*arguments, command=command)
        assert refused.returncode == 2, refused.stdout + refused.stderr
        assert "coding" in refused.stderr or "dsa code" in refused.stderr


def test_permission_request_is_shown_in_full_even_after_a_resume(code):
    long = "".join(f"line {number}\n" for number in range(300)) + "the last line\n"
    script = (PLAN, calls(("write_file", {"path": "a.txt", "content": long})), FAILED)
    for _ in range(2):  # the second time the run is resumed
        done = code("Do it", script=script)
        assert "+the last line" in done.stdout
    told = code("last", "denied", "call it c.txt", command="send")
    assert told.returncode == 3
    assert "call it c.txt" in code("last", "--jsonl", command="show").stdout


@pytest.mark.parametrize(
    ("again", "says"),
    [
        (("--mode", "full-auto"), "--mode cannot change in an existing run, which has ask; use --fresh to start again"),
        (("--seed", "3"), "--seed cannot change in an existing run, which has 0"),
        (("--param", "max_rounds=9"), "--param max_rounds cannot change in an existing run, which has 24"),
        (("--network", "example.org"), "--network cannot change in an existing run, which has none"),
        (("--test-first",), "--test-first cannot change"),
        (("--json-mode",), "--json-mode cannot change"),
        (("--parallel", "2"), "--parallel cannot change in an existing run, which has 1"),
        (("--template", "script"), "--template cannot change in an existing run, which has other tasks"),
        (("--config", "other.toml"), "mode of --config cannot change in an existing run, which has ask"),
    ],
)
def test_settings_of_an_existing_run_cannot_be_changed_silently(code, tmp_path, again, says):
    (tmp_path / "other.toml").write_text('[code]\nmode = "read-only"\n')
    assert code("Do it").returncode == 3  # it waits for leave
    for taken_up in (("Do it",), ("--resume", "last")):
        refused = code(*taken_up, *again)
        assert (refused.returncode, says in refused.stderr) == (2, True), refused.stdout + refused.stderr
    assert not (tmp_path / "work" / "a.txt").exists()


def test_workspace_of_an_existing_run_cannot_be_changed(code, tmp_path):
    assert code("Do it").returncode == 3
    (tmp_path / "other").mkdir()
    typed = [*DSA, "code", "--resume", "last", "-w", "other"]
    done = subprocess.run(typed, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, "--workspace cannot change" in done.stderr) == (2, True), done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("--mode", "ask", "--seed", "0", "--param", "max_rounds=9", "--network", "example.org", "--parallel", "1"),
        ("--template", "script", "--test-first"),
        ("--config", "other.toml", "--budget", "usd=1", "--seed", "3", "--param", "max_turns=6"),
    ],
)
def test_same_command_line_resumes_the_run(code, tmp_path, arguments):
    (tmp_path / "other.toml").write_text('[code]\nseed = 7\nmax_turns = 5\nnetwork = ["example.org"]\n')
    script = (WRITE, DONE, DONE) if "--template" in arguments else (PLAN, WRITE, DONE)
    assert code("Do it", *arguments, script=script).returncode == 3
    again = code("Do it", *arguments, "--json", script=script)
    assert (again.returncode, json.loads(again.stdout)["work"]["asks"]["tool"]) == (3, "write_file"), again.stderr
    resumed = code("--resume", "last", *arguments, "--json", script=script)
    assert resumed.returncode == 3, resumed.stderr


def test_settings_equal_to_those_of_the_run_may_be_repeated(code, tmp_path):
    (tmp_path / "other.toml").write_text("[code]\ncommit = false\nparallel = 1\nnetwork = []\n")
    assert code("Do it").returncode == 3
    said = ("--mode", "ask", "--seed", "0", "--parallel", "1", "--param", "max_rounds=24", "--config", "other.toml")
    again = code("Do it", *said, "--json")
    assert (again.returncode, json.loads(again.stdout)["work"]["asks"]["tool"]) == (3, "write_file"), again.stderr


def test_root_is_refused_as_workspace_and_home_gives_a_warning(code, tmp_path):
    typed = [*DSA, "code", "Do it", "--model", "scripted:script.md"]
    assert code("Do it").returncode == 3
    home = {**os.environ, "HOME": str(tmp_path / "work")}
    done = subprocess.run([*typed, "-w", "/"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, "cannot be the workspace" in done.stderr) == (2, True), done.stderr
    told = subprocess.run([*typed, "--fresh", "-w", "work"], cwd=tmp_path, env=home, capture_output=True, text=True, check=False)  # fmt: skip
    assert (told.returncode, "is your home" in told.stderr) == (3, True), told.stderr


def test_local_model_without_json_mode_is_refused_with_advice(tmp_path):
    typed = [*DSA, "code", "Do it", "--model", "local"]
    done = subprocess.run(typed, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, "add --json-mode" in done.stderr) == (1, True), done.stderr


def test_completed_goal_says_when_nothing_was_written_or_run(code):
    look = calls(("list_dir", {}))
    for script, more in (((PLAN, DONE, DONE), 1), ((PLAN, look, DONE), 0)):
        done = code("Do it", "--mode", "full-auto", "--fresh", script=script)
        assert done.returncode == more
        assert re.search(r", 0 files, [0-9.]+ s; nothing was written or run(; no result proves .+)?\n\Z", done.stdout)
    done = code("Do it", "--mode", "full-auto", "--fresh")
    assert re.search(r": goal_complete; 2 rounds, 1 call of tools, 1 file, [0-9.]+ s\n\Z", done.stdout), done.stdout
    one = code("Do it", "--mode", "full-auto", "--fresh", script=(PLAN, calls(("run_cmd", {"cmd": ["python", "--version"]}), ("mark_subtask_complete", {"success": True}))))  # fmt: skip
    assert re.search(r": goal_complete; 1 round, 1 call of tools, 0 files, [0-9.]+ s\n\Z", one.stdout), one.stdout


@pytest.mark.parametrize(
    ("said", "script", "state", "exit_code", "line"),
    [
        (("permitted",), (PLAN, WRITE, DONE), "goal_complete", 0, "WRITE a.txt"),
        (("permitted",), (PLAN, WRITE, "Done.", "Done."), "answered", 1, "WRITE a.txt"),
        (("denied", "no"), (PLAN, WRITE, DONE, DONE), "goal_complete", 1, "TRIED write_file a.txt (not_approved)"),
        (("denied", "not now"), (PLAN, WRITE, FAILED), "escalated", 3, "TRIED write_file a.txt (not_approved)"),
        (("stopped",), (PLAN, WRITE), "cancelled", 1, "TRIED write_file a.txt (stopped)"),
        (("permitted", "always"), (PLAN, WRITE, WRITE, WRITE, WRITE, WRITE), "blocked", 1, "WRITE a.txt"),
    ],
)
def test_every_command_that_ends_a_run_exits_with_the_code_of_its_outcome(
    code, tmp_path, said, script, state, exit_code, line
):
    assert code("Do it", script=script).returncode == 3
    log = tmp_path / "work" / "agent_ledger.log"
    before = log.read_text()
    sent = code("last", *said, "--json", command="send")
    assert (sent.returncode, log.read_text()) == (exit_code, before), sent.stdout + sent.stderr
    assert (json.loads(sent.stdout)["state"], json.loads(sent.stdout)["exit_code"]) == (state, exit_code)
    for arguments in ((), ("--json",)):
        assert code("last", *arguments, command="resume").returncode == exit_code
    resumed = code("--resume", "last", script=script)
    assert (resumed.returncode, f": {state}; " in resumed.stdout) == (exit_code, True), resumed.stdout + resumed.stderr
    assert log.read_text().splitlines()[0] == line


def test_printed_commands_to_continue_can_be_pasted(code, tmp_path):
    done = code("Do it", "--runs", "my runs")
    assert re.search(r"^to allow this call: dsa send \S+ permitted --runs 'my runs'; other answers: permitted always, denied WHY$", done.stdout, re.MULTILINE)  # fmt: skip
    found = re.search(r"^or answer here: dsa (code --resume \S+ --runs 'my runs')$", done.stdout, re.MULTILINE)
    assert found is not None, done.stdout
    again = subprocess.run([*DSA, *shlex.split(found[1])], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (again.returncode, "write_file needs permission:" in again.stdout) == (3, True), again.stderr


def test_run_with_a_missing_workspace_cannot_be_resumed(code, tmp_path):
    assert code("Do it").returncode == 3
    before = code("last", command="show").stdout
    (tmp_path / "work").rename(tmp_path / "moved")
    assert "the workspace must be an existing folder" in code("Do something else").stderr
    told = f"{tmp_path / 'work'}: the run's workspace is missing; restore the folder to continue the run\n"
    for command, *taken_up in (
        ("code", "Do it"), ("code", "--resume", "last"), ("resume", "last"), ("send", "last", "permitted"),
    ):  # fmt: skip
        refused = code(*taken_up, command=command)
        assert (refused.returncode, refused.stderr) == (2, told), (command, refused.stderr)
    for command, *taken_up in (("resume", "last", "--json"), ("send", "last", "stopped", "--json")):
        found = json.loads(code(*taken_up, command=command).stdout)
        assert (found["kind"], found["exit_code"], found["failure"]["message"]) == ("waiting", 2, told.rstrip("\n"))
    assert code("last", command="show").stdout == before
    (tmp_path / "moved").rename(tmp_path / "work")
    assert code("last", "permitted", command="send").returncode == 0


def test_json_of_the_work_matches_the_run_schema(code):
    schema = json.loads(files("dsa.cli").joinpath("run.schema.json").read_text(encoding="utf-8"))
    for arguments, kind, exit_code in (
        (("Do it",), "waiting", 3),
        (("Do it", "--fresh", "--mode", "full-auto"), "finished", 0),
    ):
        done = code(*arguments, "--json")
        told = json.loads(done.stdout)
        jsonschema.validate(told, schema)
        assert (told["kind"], told["exit_code"], done.returncode) == (kind, exit_code, exit_code)
        assert told["directory"] == f".dsa/{told['run']}"
    refused = json.loads(code("--resume", "last", "--mode", "ask", "--json").stdout)
    jsonschema.validate(refused, schema)
    assert (refused["run"], refused["kind"], refused["exit_code"]) == (told["run"], "finished", 2)
    assert "--mode cannot change" in refused["failure"]["message"]


def test_module_given_by_with_replaces_the_bindings_and_must_exist(code, tmp_path):
    (tmp_path / "strict.py").write_text(
        "from machines.coding import bindings as ours\n"
        "from machines.tool_use.tool_agent import FunctionGuard\n"
        "spenders, effects = ours.spenders, ours.effects\n"
        "guards = {**ours.guards, 'approved': FunctionGuard(object, lambda _call: ('fatal', 'not by my rule'))}\n"
    )
    done = code("Do it", "--mode", "full-auto", "--with", "strict.py")
    assert "[not_approved]" in done.stdout, done.stdout + done.stderr
    assert not (tmp_path / "work" / "a.txt").exists()
    (tmp_path / "strict.py").unlink()
    again = code("--resume", "last", "--with", "nothing")
    assert (again.returncode, "there is no module 'nothing'" in again.stderr) == (2, True)


def test_named_secret_is_never_stored(code, tmp_path, monkeypatch):
    monkeypatch.setenv("MINE", "hunter22")
    done = code("Write hunter22", "--secret", "MINE")
    assert (done.returncode, "GOAL contains a secret" in done.stderr) == (3, True), done.stderr
    assert "[secret MINE]" in code("last", "--jsonl", command="show").stdout
    again = code("last", command="resume")
    assert (again.returncode, "goal: Write [secret MINE]" in again.stdout) == (3, True), again.stdout + again.stderr
    assert not any(b"hunter22" in path.read_bytes() for path in (tmp_path / ".dsa").rglob("*") if path.is_file())


def test_quiet_and_log_options_replace_the_display(code):
    for more in (("--quiet",), ("--log", "info")):
        done = code("Do it", "--fresh", "--mode", "full-auto", *more)
        assert done.returncode == 0
        assert re.fullmatch(r"\S+: goal_complete; .* s\n", done.stdout), done.stdout
        assert ("tool_call" in done.stderr) == ("--log" in more)


def test_resume_shows_the_display_of_the_work(code, tmp_path):
    assert code("Do it").returncode == 3
    for said, tells in (((), "write_file needs permission"), (("--quiet",), "write_file needs permission")):
        done = code("last", *said, command="resume")
        assert (done.returncode, tells in done.stdout, ": approving; " in done.stdout) == (3, True, True), done.stdout
    told = json.loads(code("last", "--json", command="resume").stdout)
    assert (told["kind"], told["state"].rpartition(".")[2]) == ("waiting", "approving")
    assert code("last", "permitted", command="send").returncode == 0
    over = code("last", command="resume")
    assert (over.returncode, "is finished: goal_complete" in over.stdout) == (0, True)
