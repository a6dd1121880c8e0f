"""Options and settings files of `dsa code`, and settings that cannot be used."""

import os
import subprocess

import pytest
from coders import HELLO, HELLO_PLAN, agent_at, complete, forgetful, worked
from coding_typed import DONE, FAILED, PLAN, WRITE, block, typed_in
from forked import DSA


@pytest.fixture
def code(tmp_path):
    return typed_in(tmp_path)


def test_command_line_overrides_settings_of_a_file(code, tmp_path):
    (tmp_path / "dsa.toml").write_text('[code]\nmode = "read-only"\nmax_rounds = 1\nprotected = ["a.*"]\n')
    assert "rounds_exhausted" in code("Do it").stdout
    protected = code("Do it", "--mode", "full-auto", "--param", "max_rounds=3", "--fresh", script=(PLAN, WRITE, FAILED))
    assert "path_outside_workspace" in protected.stdout
    assert not (tmp_path / "work" / "a.txt").exists()


@pytest.mark.parametrize(
    ("arguments", "settings", "says"),
    [
        ((), "", "give a GOAL or --resume RUN"),
        (("Do it", "--resume", "last"), "", "give a GOAL or --resume RUN, not both: a run already has a goal"),
        (("--fresh", "--resume", "last"), "", "use one of them"),
        (("Do it", "--template", "nope"), "", "there is no template 'nope'; use one of script, package, fix"),
        (("Do it", "--param", "max_rounds=0"), "", "max_rounds"),
        (("Do it", "--param", "rounds=3"), "", "rounds"),
        (("  ",), "", "GOAL is empty"),
        (("Do it",), "[code]\nmax_rounds = 0\n", "max_rounds = 0 must be 1 or more"),
        (("Do it",), "[code]\nmax_rounds = true\n", "max_rounds = true must be a whole number"),
        (("Do it",), "[mcp.words]\ncommand = ['x']\n", "write [code.mcp]"),
        (("Do it",), "[programs.make]\narguments = 'any'\n", "write [code.commands.programs]"),
        (
            ("Do it",),
            "[[code.templates.notes]]\ndescription = 'x'\nindependant = true\n",
            "'independant'; did you mean 'independent'?",
        ),
        (
            ("Do it",),
            "[[code.templates.notes]]\ndescription = 'x'\nsubtasks = 'write_file a'\n",
            "subtasks must be a list of texts",
        ),
        (
            ("Do it",),
            "[[code.templates.notes]]\ndescription = 'x'\nsubtasks = ['write_file a: {gaol}']\n",
            "did you mean {goal}?",
        ),
        (("Do it", "--budget", "dollars=3"), "", "is not a budget"),
        (("Do it", "--network", "http://x/y"), "", "x/y"),
        (("Do it",), "[code]\nmodus = 'ask'\n", "there is no setting 'modus'; did you mean 'mode'?"),
        (("Do it",), "[code]\nmodle = 'x'\n", "there is no setting 'modle'; did you mean 'model'?"),
        (("Do it",), "[code]\nmode = 'yolo'\n", "mode = 'yolo' is not a mode; known here: 'ask', 'auto-edit'"),
        (("Do it",), "[code]\nseed = 'x'\n", "seed = 'x' must be a whole number"),
        (("Do it",), "[code]\nprotected = [3]\n", "protected must be a list of texts"),
        (("Do it",), "[code]\nprotected = ['']\n", "protected = [''] contains an empty text"),
        (("Do it",), "[code]\nprotected = ['../x']\n", "protected = ['../x']: '../x' leads out of the workspace"),
        (("Do it",), "[code]\nprotected = ['~/x']\n", "'~/x' leads out of the workspace"),
        (("Do it",), "[code]\nprotected = ['/']\n", "'/' is not a pattern: it has no name of a file or folder"),
        (("Do it",), "[code]\nnetwork = ['']\n", "network = [''] contains an empty text"),
        (("Do it",), "[code]\nnetwork = ['a b']\n", "network = ['a b']: 'a b' is not a host"),
        (
            ("Do it",),
            "[code]\nbudget = ['nudge.calls=5']\n",
            "dsa.toml: [code]: budget = ['nudge.calls=5']: 'nudge.calls=5' is not a budget: no effect is called 'nudge'",
        ),
        (("Do it",), "[code]\ntemperature = -7\n", "temperature = -7 must be 0 to 2"),
        (("Do it",), "[code]\ntemperature = nan\n", "temperature = nan must be 0 to 2"),
        (("Do it",), "[code]\nmax_tokens = 0\n", "max_tokens = 0 must be 1 or more"),
        (("Do it",), "[code]\ncontext_tokens = 5\n", "context_tokens = 5 must be 1000 or more"),
        (
            ("Do it",),
            "[code]\npolling = ['nosuch']\n",
            "'nosuch' is unknown; use a read-only tool (list_dir, read_file",
        ),
        (("Do it",), "[code]\npolling = ['write_file']\n", "'write_file' is unknown; use a read-only tool"),
        (
            ("Do it",),
            "[code]\npolling = ['make wait']\n",
            "or a command of one of these programs: python, python3, pytest",
        ),
        (("Do it",), "[code]\npolling = ['python \"x']\n", "No closing quotation"),
        (("Do it",), "[cod]\nmode = 'ask'\n", "the table [cod] is outside [code] and has no effect"),
        (("Do it",), "mode = 'ask'\n[code]\n", "mode = 'ask' is outside [code] and has no effect"),
        (("Do it",), "[code.commands]\nshell = true\n", "'shell' is not a rule for commands"),
        (("Do it",), "[code.templates.x]\n", "templates.x has no tasks"),
        (("Do it",), "[[code.templates.x]]\ndescription = 'd'\n", "templates.x: task 1 has no subtasks"),
        (
            ("Do it",),
            "[[code.templates.x]]\ndescription = 'd'\nsubtasks = ['think']\n",
            "templates.x: 'think' needs no tool",
        ),
        (
            ("Plan a trip", "-t", "x"),
            "[[code.templates.x]]\ndescription = 'd'\nsubtasks = ['{goal}']\n",
            "does not fit this goal: 'Plan a trip' needs no tool",
        ),
        (("Do it",), "[code\n", "the configuration cannot be read"),
        (("--resume", "last"), "", "no run is stored here"),
    ],
)
def test_unusable_arguments_and_settings_are_reported_in_a_sentence(code, tmp_path, arguments, settings, says):
    if settings:
        (tmp_path / "dsa.toml").write_text(settings)
    done = code(*arguments)
    assert done.returncode == 2, done.stdout + done.stderr
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_settings_in_a_project_file_of_the_workspace_must_be_named(code, tmp_path):
    """An agent may have written that file, and its settings start programs."""
    (tmp_path / "work" / "pyproject.toml").write_text('[tool.dsa.code]\nmode = "full-auto"\n')
    (tmp_path / "script.md").write_text("".join(map(block, (PLAN, WRITE, DONE))))
    typed = [*DSA, "code", "Do it", "--model", "scripted:../script.md"]
    done = subprocess.run(typed, cwd=tmp_path / "work", capture_output=True, text=True, check=False)
    assert (done.returncode, "add --config pyproject.toml" in done.stderr) == (2, True)
    named = subprocess.run([*typed, "--config", "pyproject.toml"], cwd=tmp_path / "work", capture_output=True, text=True, check=False)  # fmt: skip
    assert named.returncode == 0, named.stderr


def test_missing_program_of_the_settings_is_reported_at_the_start(code, tmp_path):
    (tmp_path / "dsa.toml").write_text(
        "[code.commands.programs]\nnowhere = {arguments = 'any'}\ngit-shell = {arguments = 'any'}\n"
    )
    done = code("Do it", "--mode", "read-only", script=(PLAN, FAILED))
    assert done.stderr == "nowhere: the settings allow it, but it is not installed on this machine\n"


@pytest.mark.parametrize(
    ("hosts", "told"),
    [
        ([], "They cannot reach the network."),
        (["a.example", "b.example:80"], "They can reach only these hosts: a.example, b.example:80."),
    ],
)
def test_tool_description_says_which_hosts_programs_can_reach(tmp_path, hosts, told):
    with agent_at(tmp_path, HELLO, forgetful(HELLO_PLAN, lambda _: complete(success=False)), network=hosts) as (
        agent,
        played,
    ):
        worked(agent)
    described = {each["function"]["name"]: each["function"]["description"] for each in played.requests[-1]["tools"]}
    assert told in described["run_cmd"]


def test_planning_request_lists_the_contents_of_the_workspace(tmp_path):
    for name in ("empty", "full"):
        (tmp_path / name / "workspace" / "src").mkdir(parents=True) if name == "full" else None
        with agent_at(tmp_path / name, HELLO, forgetful(HELLO_PLAN, lambda _: complete(success=False))) as (
            agent,
            played,
        ):
            worked(agent)
        told = played.requests[0]["messages"][-1]["content"]
        assert told.splitlines()[-1] == f"The workspace contains: {'src/' if name == 'full' else 'nothing yet'}."


def test_unread_settings_and_ineffective_budgets_give_a_warning(code, tmp_path):
    (tmp_path / "work" / "dsa.toml").write_text("[code]\nmode = 'full-auto'\n")
    there = tmp_path / "work" / "dsa.toml"
    assert (
        f"{there} is not read, because it is not in the current folder; name it with --config\n" in code("Do it").stderr
    )
    assert "is not read" not in code("Do it", "--fresh", "--config", str(there)).stderr
    asked = [*DSA, "code", "Do it", "--fresh", "--model", "http://127.0.0.1:9/v1#m", "-w", "work", "--budget"]
    for budget, is_told in (("usd=1", True), ("ask_model.usd=1", True), ("tokens=9", False)):
        done = subprocess.run(
            [*asked, budget],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "DSA_RETRY_S": "0"},
        )
        assert ("a limit in usd has no effect" in done.stderr) == is_told, done.stderr


def test_answer_without_any_work_says_so(code):
    assert (
        code("Do it", script=(PLAN, "It is done.", "It is done."))
        .stdout.partition(" s; ")[2]
        .startswith("nothing was written or run; ")
    )
