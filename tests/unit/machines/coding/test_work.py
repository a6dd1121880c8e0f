"""The fold of a run's ledger: tasks, exchanges, changes, refusals; the result is the same at once and entry by entry."""

import asyncio
import json

import attrs
import coding_chaos
import pytest
from coders import HELLO, HELLO_PLAN, PACKAGE, PACKAGE_PLAN, acting, agent_at, call, hello, package, tasks
from each_row import each_row
from hypothesis import given
from hypothesis import strategies as st

from dsa.expr import Value
from dsa.runtime.ledger import EffectEntry, EventEntry, RowEntry
from machines.coding.coding_resources import MODES, CodingResources, CodingSettings
from machines.coding.coding_tools import COMPLETE
from machines.coding.coding_work import Work, WorkCall, work_of
from machines.coding.command import show_counters
from machines.coding.configuration import CodeConfiguration, configuration_from, default_model, read_configuration
from machines.coding.task_plan import CodingCall
from machines.coding.workspace_view import FOLDER, LOG, Projection, lines_in_log, loops, state
from machines.tool_use.records import as_data, read_record

VALUES: dict[str, Value] = {"rounds": 1}


@pytest.fixture(scope="module")
def ledger(tmp_path_factory):
    """The entries of a run of ten rounds."""
    with agent_at(tmp_path_factory.mktemp("work"), PACKAGE, acting(PACKAGE_PLAN, package)) as (agent, _):
        asyncio.run(agent.go_on())
        return list(agent._handle.run.ledger)  # noqa: SLF001


def facts(work):
    """Return everything the fold has found, as plain values."""
    own = {
        name: value
        for each in (work, work.transcript)
        for name, value in vars(each).items()
        if not name.startswith("_")
    }
    del own["transcript"]
    return json.dumps(own, default=lambda value: sorted(value) if isinstance(value, set) else attrs.asdict(value) if attrs.has(type(value)) else list(value), sort_keys=True)  # fmt: skip


@given(st.data())
def test_work_taken_in_pieces_equals_work_taken_at_once(ledger, data):
    end = data.draw(st.integers(0, len(ledger)))
    cut = data.draw(st.integers(0, end))
    work = Work()
    work.take(ledger[:cut])
    work.take(ledger[cut:end])
    assert facts(work) == facts(work_of(ledger[:end]))


def test_work_lists_subtasks_files_commands_and_errors(ledger):
    work = work_of(ledger)
    assert [(each.description, each.status) for chapter in work.chapters for each in chapter.subtasks] == [
        (subtask, "completed") for task in PACKAGE_PLAN for subtask in task["subtasks"]
    ]
    assert work.active is None
    assert work.files_written == ["mathx/__init__.py", "tests/test_mathx.py"]
    assert work.commands == [
        "python -m pytest -q -> rc=1", "python -m pytest -q -> rc=0", "ruff check . -> rc=1", "ruff check . -> rc=0",
    ]  # fmt: skip
    assert [line.split(":")[0] for line in work.errors] == ["python -m pytest -q -> rc=1", "ruff check . -> rc=1"]
    assert work.transcript.open_ids() == ()
    assert show_counters(ledger)["subtasks completed"] == "3 of 3"


def test_projection_is_written_whole_and_not_through_links(tmp_path, ledger):
    work, outside = work_of(ledger), tmp_path / "outside"
    outside.mkdir()
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    (workspace / FOLDER).symlink_to(outside)
    (workspace / LOG).symlink_to(outside / "log")
    Projection(workspace).write(work, VALUES)
    assert list(outside.iterdir()) == []
    assert json.loads((workspace / FOLDER / "state.json").read_text()) == json.loads(
        json.dumps(as_data(state(work, VALUES)))
    )
    assert (workspace / LOG).read_text().splitlines() == [line for each in work.calls for line in lines_in_log(each)]
    assert loops(work) == []
    assert sorted(path.name for path in (workspace / FOLDER).iterdir()) == ["history.jsonl", "loops.json", "state.json"]


def test_projection_written_step_by_step_equals_one_written_at_once(tmp_path, ledger):
    """Written entry by entry, and a second time from the beginning, as after an undo."""
    whole, halves = tmp_path / "whole", tmp_path / "halves"
    for folder in (whole, halves):
        folder.mkdir()
    kept, names = Projection(halves), (f"{FOLDER}/history.jsonl", f"{FOLDER}/loops.json", LOG)
    for _ in range(2):
        work = Work()
        for at in range(1, len(ledger) + 1):
            work.take(ledger[at - 1 : at])
            kept.write(work, VALUES)
            Projection(whole).write(work, VALUES)
            for name in names:
                assert (halves / name).read_text() == (whole / name).read_text(), (at, name)


def test_log_for_people_names_what_was_tried(tmp_path):
    def act(view):
        return call("read_file", path=("../x", "gone.txt")[min(1, len(view.done))])

    with agent_at(tmp_path, HELLO, acting(tasks(("x", "read_file")), act), parameters={"max_rounds": 2}) as (agent, _):
        asyncio.run(agent.go_on())
        lines = [line for each in agent.work.calls for line in lines_in_log(each)]
    assert lines[0] == "TRIED read_file ../x (path_outside_workspace)"
    assert lines[1].startswith("ERROR read_file gone.txt: ")


def line_of(tool, status, about, result=None):
    return lines_in_log(
        WorkCall("c", tool, "p", status, result, about=read_record(CodingCall, {"call_id": "c", "tool": tool, **about}))
    )


@each_row(
    ("tool", "status", "about", "line"),
    [
        ("run_cmd", "failed", {"argv": ["python", "a.py"], "arguments": {"cmd": "python a.py"}}, "ERROR run_cmd python a.py: why"),
        ("run_cmd", "call_looping", {"argv": ["python", "a.py"], "arguments": {"cmd": "x"}}, "TRIED run_cmd python a.py (call_looping)"),
        ("edit", "failed", {"arguments": {"path": "src/a.py", "old": "x", "new": "y"}}, "ERROR edit src/a.py: why"),
        ("write_files", "not_approved", {"arguments": {"files": [{"path": "a"}, {"path": "b"}]}}, "TRIED write_files a, b (not_approved)"),
        ("words__count", "failed", {"arguments": {"text": "x"}}, 'ERROR words__count {"text": "x"}: why'),
        (COMPLETE, "subtask_completed", {"subtask": "write_file a", "reason": "it is there"}, "SUBTASK write_file a -> completed: it is there"),
        (COMPLETE, "subtask_failed", {"subtask": "write_file a"}, "SUBTASK write_file a -> failed"),
        (COMPLETE, "no_evidence", {"subtask": "write_file a"}, "SUBTASK write_file a -> questioned: no result proves it"),
    ],
)  # fmt: skip
def test_each_line_of_the_log_for_people_names_its_object(tool, status, about, line):
    assert line_of(tool, status, about, {"error": {"code": "x", "message": "why"}}) == [line]


def test_call_queued_behind_an_interrupted_one_is_waiting():
    asked = {"arguments": {"path": "a"}, "provider_id": "p", "name": "read_file"}
    about = {"call_id": "c1", "tool": "read_file", "arguments": {"path": "a"}}
    work = work_of(
        [
            EventEntry(1, "asked", data={"content": "", "calls": [{"id": "c1", **asked}, {"id": "c2", **asked}]}),
            RowEntry(1, "working.thinking", "working.acting"),
            EventEntry(2, "tool_call", data=about),
            RowEntry(2, "working.acting", "working.looking"),
            EffectEntry("2/1", "run_tool"),
            EventEntry(3, "run_tool.failed", data={}),
            RowEntry(3, "working.looking", "escalated"),
        ]
    )
    assert [each.status for each in work.calls] == ["interrupted", "waiting"]
    assert work.transcript.open_ids() == ("c2",)  # when the calls are dropped, it is reported as not made


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("ask", ("yes", "ask", "ask", "never")),
        ("auto-edit", ("yes", "yes", "ask", "never")),
        ("full-auto", ("yes", "yes", "yes", "never")),
        ("read-only", ("yes", "never", "never", "never")),
    ],
)
def test_mode_decides_what_needs_approval(tmp_path, mode, expected):
    agent = CodingResources({"mode": mode, "workspace": str(tmp_path)}, tmp_path)
    found = tuple(agent.approval(needs, needs, set()).leave for needs in ("look", "edit", "run", "never"))
    assert found == expected
    assert mode in MODES
    if mode == "ask":
        assert agent.approval("run", "run python", {"run python"}).leave == "yes"
        assert agent.approval("run", "run pytest", {"run python"}).leave == "ask"


def test_settings_are_read_from_either_file(tmp_path):
    assert read_configuration(tmp_path) == CodeConfiguration()
    (tmp_path / "pyproject.toml").write_text('[tool.dsa.code]\nmode = "full-auto"\n')
    assert read_configuration(tmp_path).settings == CodingSettings(mode="full-auto")
    (tmp_path / "dsa.toml").write_text('[code]\nmode = "read-only"\n')
    assert read_configuration(tmp_path).settings == CodingSettings(mode="read-only")
    assert configuration_from({"temperature": 1}).settings == CodingSettings(temperature=1)
    with pytest.raises(ValueError, match="temperature"):
        configuration_from({"temperature": True})


def test_default_model_is_from_ollama(monkeypatch):
    for name in ("OLLAMA_MODEL", "OLLAMA_HOST"):
        monkeypatch.delenv(name, raising=False)
    assert default_model() == "http://127.0.0.1:11434/api#gpt-oss:20b"
    monkeypatch.setenv("OLLAMA_MODEL", "qwen3:4b")
    monkeypatch.setenv("OLLAMA_HOST", "http://10.0.0.1:1")
    assert default_model() == "http://10.0.0.1:1/api#qwen3:4b"


def test_hello_takes_two_rounds_and_counting_takes_eleven(tmp_path):
    for name, goal, plan, act, rounds in (("a", HELLO, HELLO_PLAN, hello, 2), ("b", coding_chaos.GOAL, coding_chaos.PLAN, coding_chaos.counting, 11)):  # fmt: skip
        with agent_at(tmp_path / name, goal, acting(plan, act)) as (agent, _):
            asyncio.run(agent.go_on())
            assert agent.values["rounds"] == rounds
