"""Obstacles where the work is recorded for people: reported before a model is asked; later they do not end the work."""

import asyncio
import os
from pathlib import Path

import pytest
from coders import HELLO, HELLO_PLAN, acting, agent_at, hello
from coding_typed import typed_in


@pytest.fixture
def code(tmp_path):
    return typed_in(tmp_path)


def linked(path):
    (path.parent.parent / "mine").mkdir()
    path.symlink_to(path.parent.parent / "mine")


def filled(path):
    path.parent.mkdir(exist_ok=True)
    path.mkdir()


@pytest.mark.parametrize(
    ("name", "make", "says"),
    [
        (".agent_context", Path.touch, "is not a folder; "),
        (".agent_context", os.mkfifo, "is not a folder; "),
        (".agent_context", linked, "is a link; "),
        (".agent_context/state.json", filled, "is not a file; "),
        (".agent_context/history.jsonl", filled, "is not a file; "),
        ("agent_ledger.log", filled, "is not a file; "),
        ("agent_ledger.log", linked, "is a link; "),
    ],
)
def test_obstacle_to_the_work_record_is_reported_at_the_start(code, tmp_path, name, make, says):
    path = tmp_path / "work" / name
    make(path)
    kind = path.lstat().st_mode
    done = code("Do it", "--mode", "full-auto")
    assert (done.returncode, f"{path} {says}" in done.stderr) == (2, True), done.stderr
    assert (path.lstat().st_mode, (tmp_path / ".dsa").exists()) == (kind, False)
    assert len(done.stderr.strip().splitlines()) == 1


def test_link_in_place_of_the_record_is_reported_on_resume(code, tmp_path):
    assert code("Do it").returncode == 3
    context = tmp_path / "work" / ".agent_context"
    context.rename(tmp_path / "moved")
    linked(context)
    for taken_up in (("Do it",), ("--resume", "last")):
        done = code(*taken_up)
        assert (done.returncode, f"{context} is a link; " in done.stderr, context.is_symlink()) == (2, True, True)
    context.unlink()
    assert code("--resume", "last").returncode == 3


def test_failure_to_write_the_record_is_reported_once_and_ends_nothing(tmp_path):
    told, context = [], tmp_path / "workspace" / ".agent_context"

    def act(view):
        if not view.done:
            context.joinpath("state.json").unlink()
            context.joinpath("state.json").mkdir()
        return hello(view)

    with agent_at(tmp_path, HELLO, acting(HELLO_PLAN, act), notice=told.append) as (agent, _):
        asyncio.run(agent.go_on())
        assert agent.state == "goal_complete"
    assert told == [
        f"the record of the work cannot be written into the workspace: {context / 'state.json'}: Is a directory"
    ]


def test_link_created_meanwhile_is_replaced(tmp_path):
    context, other = tmp_path / "workspace" / ".agent_context", tmp_path / "other"
    other.mkdir()

    def act(view):
        if not view.done:
            context.rename(tmp_path / "moved")
            context.symlink_to(other)
        return hello(view)

    with agent_at(tmp_path, HELLO, acting(HELLO_PLAN, act)) as (agent, _):
        asyncio.run(agent.go_on())
        assert agent.state == "goal_complete"
    assert (context.is_symlink(), list(other.iterdir())) == (False, [])
