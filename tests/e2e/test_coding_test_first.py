"""The test-first mode: the TDD workflow writes tests, then code until it passes them; code that does not pass is never written."""

import json
import subprocess
import sys

import pytest
from chat_server import Said
from coders import acting, agent_at, call, complete, tasks, worked

from machines.coding import test_first

PLAN = tasks(("Write the module", "write_tested mathx.py with mean"))
TESTS = "```python\nfrom mathx import mean\n\n\ndef test_mean():\n    assert mean([1, 2, 6]) == 3\n```"
WRONG = "```python\ndef mean(values):\n    return sum(values) / 2\n```"
RIGHT = "```python\ndef mean(values):\n    return sum(values) / len(values)\n```"
#: The settings of a workspace: installed pytest plugins take longer to load than the tests, so only the layout `beside` has them.
NO_PLUGINS = "addopts = '--disable-plugin-autoload'\n"
BARE = {"pyproject.toml": f"[tool.pytest.ini_options]\n{NO_PLUGINS}"}
ASKED = call("write_tested", path="mathx.py", tests_path="tests/test_mathx.py", specification="mean(values), the arithmetic mean")  # fmt: skip


def workspace_with(tmp_path, files):
    """Create the workspace with these files, by path; return its folder."""
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    for name, text in files.items():
        (workspace / name).parent.mkdir(parents=True, exist_ok=True)
        (workspace / name).write_text(text)
    return workspace


def writing(*codes, tests=(TESTS,), asked=ASKED, module="mathx"):
    """Play a model that gives these answers to requests for tests and for code, and is done after the result of the tool."""
    left, written = list(codes), list(tests)

    def act(view):
        if not view.done:
            return asked
        return complete(success="error" not in view.done[-1][2])

    agent = acting(PLAN, act)

    def player(body, number):
        said = body["messages"][0]["content"]
        if "You write tests" in said:
            assert f"from {module} import" in said
            return Said(written.pop(0))
        if "You write code" in said:
            assert "def test_mean" in said
            return Said(left.pop(0))
        return agent(body, number)

    return player


def test_tests_come_first_and_code_is_repaired_until_it_passes(tmp_path):
    workspace = workspace_with(tmp_path, BARE)
    with agent_at(tmp_path, "A module mathx", writing(WRONG, RIGHT), test_first=True) as (agent, played):
        work = worked(agent)
        assert (agent.state, work.files_written) == ("goal_complete", ["mathx.py", "tests/test_mathx.py"])
    assert (workspace / "mathx.py").read_text() == "def mean(values):\n    return sum(values) / len(values)\n"
    assert "def test_mean" in (workspace / "tests" / "test_mathx.py").read_text()
    (result,) = (each.result for each in work.calls if each.tool == "write_tested")
    assert result["answers"] == 3
    again = next(body for body in played.requests if "sum(values) / 2" in json.dumps(body["messages"]))
    assert "4.5" in json.dumps(again["messages"]) or "assert" in json.dumps(again["messages"])
    assert "write_tested, never with write_file" in played.requests[1]["messages"][0]["content"]


def test_code_is_not_requested_before_there_are_tests_for_it(tmp_path):
    workspace_with(tmp_path, BARE)
    own = TESTS.replace("from mathx import mean", "def mean(values):\n    return 3")
    player = writing(RIGHT, tests=(own, TESTS))
    with agent_at(tmp_path, "A module mathx", player, test_first=True) as (agent, played):
        work = worked(agent)
        assert agent.state == "goal_complete"
    (result,) = (each.result for each in work.calls if each.tool == "write_tested")
    assert result["answers"] == 3
    assert "from mathx import" in result["tests"]
    again = next(
        body["messages"][0]["content"] for body in played.requests if "return 3" in json.dumps(body["messages"])
    )
    assert "The tests pass without the code" in again
    assert "Import the code under test from mathx" in again


def test_code_that_never_passes_is_not_written(tmp_path):
    workspace = workspace_with(tmp_path, BARE)
    with agent_at(tmp_path, "A module mathx", writing(*[WRONG] * 4), test_first=True) as (agent, played):
        work = worked(agent)
        assert agent.state == "escalated"
    (result,) = (each.result for each in work.calls if each.tool == "write_tested")
    assert result["error"]["code"] == "not_tested"
    assert sum("You write code" in body["messages"][0]["content"] for body in played.requests) == 4
    assert not (workspace / "mathx.py").exists()


@pytest.mark.parametrize(("path", "code"), [("../mathx.py", "path_outside_workspace"), ("math-x.py", "bad_path")])
def test_invalid_module_path_fails_without_asking_for_code(tmp_path, path, code):
    def act(view):
        return complete(success=False) if view.done else call("write_tested", path=path, tests_path="t.py", specification="x")  # fmt: skip

    with agent_at(tmp_path, "A module", acting(PLAN, act), test_first=True) as (agent, played):
        work = worked(agent)
    assert work.calls[0].result["error"]["code"] == code
    assert len(played.requests) == 3


def test_write_tested_tool_exists_only_in_test_first_mode(tmp_path):
    with agent_at(tmp_path, "A module", acting(PLAN, lambda view: complete(success=False) if view.done else ASKED)) as (agent, played):  # fmt: skip
        work = worked(agent)
    assert work.calls[0].result["error"]["code"] == "unknown_tool"
    assert "write_tested" not in {tool["function"]["name"] for tool in played.requests[1]["tools"]}


# -- layouts ----------------------------------------------------------------------------------------------------------------

SETTINGS = f"[tool.pytest.ini_options]\npythonpath = ['src']\n{NO_PLUGINS}"
SIBLING = "def half(value):\n    return value / 2\n"
FIXTURE = "import pytest\n\n\n@pytest.fixture\ndef values():\n    return [1, 2, 6]\n"


def fenced(text):
    return f"```python\n{text}```"


def source_of(module, given="[1, 2, 6]", arguments=""):
    return f"from {module} import mean\n\n\ndef test_mean({arguments}):\n    assert mean({given}) == 3\n"


PLAIN = "def mean(values):\n    return sum(values) / len(values)\n"
HALVED = "from .sibling import half\n\n\ndef mean(values):\n    return 2 * half(sum(values)) / len(values)\n"
#: By name: existing files, the path of the module, the name by which it is imported, its code and tests.
LAYOUTS = {
    "beside": ({}, "mathx.py", "mathx", PLAIN, source_of("mathx")),
    "a package with a sibling": (
        {**BARE, "pkg/__init__.py": "", "pkg/sibling.py": SIBLING}, "pkg/mathx.py", "pkg.mathx", HALVED, source_of("pkg.mathx"),
    ),
    "a folder without __init__": (BARE, "lib/mathx.py", "lib.mathx", PLAIN, source_of("lib.mathx")),
    "src with settings": (
        {"pyproject.toml": SETTINGS, "src/pkg/__init__.py": "", "src/pkg/sibling.py": SIBLING},
        "src/pkg/mathx.py", "pkg.mathx", HALVED, source_of("pkg.mathx"),
    ),
    "a fixture of a conftest": ({**BARE, "tests/conftest.py": FIXTURE}, "mathx.py", "mathx", PLAIN, source_of("mathx", "values", "values")),
}  # fmt: skip


def written(tmp_path, files, path, module, code, tests, **config):
    """Have a module written into a workspace with files; return the result of the tool."""
    workspace_with(tmp_path, files)
    asked = call("write_tested", path=path, tests_path="tests/test_mathx.py", specification="mean(values)")
    player = writing(*[fenced(code)] * 4, tests=[fenced(tests)] * 4, asked=asked, module=module)
    with agent_at(tmp_path, "A module mathx", player, test_first=True, **config) as (agent, _):
        work = worked(agent)
    return next(each.result for each in work.calls if each.tool == "write_tested")


def passes_there(tmp_path):
    """Run the tests in the workspace as a person would."""
    typed = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/test_mathx.py"]
    return subprocess.run(typed, cwd=tmp_path / "workspace", capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize("name", LAYOUTS)
def test_tests_reported_as_passing_pass_in_the_workspace(tmp_path, name):
    result = written(tmp_path, *LAYOUTS[name])
    assert result.get("result", result).endswith("; the tests pass in the workspace (pytest tests/test_mathx.py)")
    assert passes_there(tmp_path)


@pytest.mark.parametrize(
    ("files", "path", "module", "code", "tests", "why"),
    [
        (BARE, "src/pkg/mathx.py", "pkg.mathx", PLAIN, source_of("pkg.mathx"), "not_importable"),
        (BARE, "json.py", "json", PLAIN, source_of("json"), "not_importable"),
        (BARE, "mathx.py", "mathx", PLAIN, source_of("other.mathx"), "not_tested"),
        (BARE, "mathx.py", "mathx", PLAIN, "def test_mean():\n    assert mean([1, 2, 6]) == 3\n", "not_tested"),
        (BARE, "mathx.py", "mathx", PLAIN, "from mathx import mean\n# def test_mean\n", "not_tested"),
        ({**BARE, "tests/conftest.py": "import nothing_of_the_kind\n"}, "mathx.py", "mathx", PLAIN, source_of("mathx"), "not_importable"),
    ],
)  # fmt: skip
def test_code_that_would_not_pass_in_the_workspace_is_not_written(
    tmp_path, monkeypatch, files, path, module, code, tests, why
):
    monkeypatch.setattr(test_first, "RMAX", 0)  # retries would not pass either
    result = written(tmp_path, files, path, module, code, tests)
    assert result["error"]["code"] == why
    assert not (tmp_path / "workspace" / path).exists()


def test_result_says_when_tests_did_not_run_in_the_workspace(tmp_path, monkeypatch):
    monkeypatch.setattr(test_first, "MOST_FILES", 1)
    result = written(tmp_path, {"a.txt": "a", "b.txt": "b"}, "mathx.py", "mathx", PLAIN, source_of("mathx"))
    assert "the tests pass with the module alone; they did not run in the workspace" in result["result"]
    assert "the workspace is too large to copy" in result["result"]
