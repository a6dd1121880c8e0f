"""Subtasks of the coding agent at the same time, on Temporal: child workflows whose effects happen on the machine that has the folder."""

import asyncio
import json
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import attrs
import pytest
from chat_server import Played, playing
from coders import call, complete, config_of, forgetful, tasks
from same_moments import comparable
from temporal_server import at_work, free_port

import dsa
from dsa.runtime.ledger import EffectEntry, ResultEntry, ResumedEntry
from dsa.runtime.run_store import StoreError
from machines.coding.coding_resources import settings_of
from machines.coding.coding_work import work_of
from machines.coding.work_session import WorkStart, begin_in_background

GOAL = "Write some files"
PLAN = tasks(("Both", "write_file a.txt", "write_file b.txt"), ("Then", "write_file c.txt"))
PLAN[0]["independent"] = True


class Writer:
    """A model that writes the file named by a subtask. It answers for `b.txt` only when `a.txt` is done, so that the order is fixed."""

    def __init__(self) -> None:
        self._is_done = threading.Event()

    def __call__(self, view: Any) -> Any:
        path, count = view.subtask.split()[-1], len(view.done)
        if path == "b.txt":
            assert self._is_done.wait(20)
        said = complete() if view.gave("write_file") else call("write_file", path=path, content=f"{path}\n")
        if path == "a.txt" and said.calls[0][0] != "write_file":
            self._is_done.set()
        return attrs.evolve(said, ids=(f"{path}-{count}",))


def plain(entries: list[Any]) -> Any:
    """Return entries as `comparable` does, with a fixed name for the whole, and without the times in reports of parts and the ids of commits."""
    text = json.dumps([*comparable(r"\0", entries)])
    text = re.sub(r'"(at_ms|seconds)": [0-9.e-]+', r'"\1": 0', text)
    text = re.sub(r'"(before|after)": "[0-9a-f]{40}"', r'"\1": "ID"', text)
    return json.loads(re.sub(r"\d{8}T\d{6}-coding-[0-9a-f]{12}", "RUN", text))


async def ended(run: dsa.RunHandle) -> dsa.Rest:
    """Wait until a run is finished; look again if no worker has answered for a while."""
    while True:
        with suppress(StoreError):
            rest = await run.rest()
            assert rest.kind == "finished", list(rest.run.ledger)[-6:]
            return rest


async def worked(where: str | Path, played: Played, workspace: Path) -> dict[str, list[Any]]:
    """Return the entries of a run and its parts, once the run is finished; on Temporal this process works on it, two effects at once."""
    async with dsa.open_runs(where) as runs, AsyncExitStack() as stack:
        if str(where).startswith("temporal:"):
            await stack.enter_async_context(at_work(runs, at_once=2))
        run = await begin_in_background(start_of(played, workspace), runs)
        await ended(run)
        return entries_of(runs, run.id)


def start_of(played: Played, workspace: Path) -> WorkStart:
    return WorkStart(GOAL, settings_of(config_of(played.model, workspace, parallel=2)))


def entries_of(runs: Any, run_id: str) -> dict[str, list[Any]]:
    ids = sorted(each for each in runs.ids() if each.startswith(run_id))
    return {each.removeprefix(run_id): list(runs.get(each).run.ledger) for each in ids}


def on_both(tmp_path: Path, where: str, act: Callable[[], Any]) -> Iterator[dict[str, list[Any]]]:
    """Yield the entries of a run in a folder, and of one on Temporal."""
    port = free_port()
    for place in (tmp_path / "runs", where):
        shutil.rmtree(tmp_path / "work", ignore_errors=True)
        (tmp_path / "work").mkdir()
        with playing(forgetful(PLAN, act()), port) as played:
            yield asyncio.run(asyncio.wait_for(worked(place, played, tmp_path / "work"), 50))
        assert played.faults == []


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which the worker of this process stores its files."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_whole_and_parts_have_the_same_moments(folder: Path, namespaces: Iterator[str]) -> None:
    here, there = on_both(folder, next(namespaces), Writer)
    assert list(there) == list(here) == ["", "+1.1", "+1.2"]
    for part in here:
        assert plain(there[part]) == plain(here[part])


class Repeater(Writer):
    """A model that makes the same change twice in the first part, and then once in the second one: the third time in all."""

    def __call__(self, view: Any) -> Any:
        if view.subtask.endswith("c.txt"):
            return super().__call__(view)
        if view.subtask.endswith("b.txt"):
            assert self._is_done.wait(20)
            return complete(success=False) if view.blocked else call("write_file", path="x.txt", content="x\n")
        if len(view.done) == 2:
            self._is_done.set()
            return complete(success=False)
        return call("write_file", path="x.txt", content="x\n")


def test_repeated_changes_count_across_all_parts(folder: Path, namespaces: Iterator[str]) -> None:
    for entries in on_both(folder, next(namespaces), Repeater):
        work = work_of(entries[""])
        assert work.tools["write_file done"] == 3  # the last one is that of the next task
        assert work.reasons["call_looping"] == 1


@pytest.mark.full
@pytest.mark.limit(120)
def test_worker_killed_while_parts_run_loses_and_repeats_nothing(folder: Path, namespaces: Iterator[str]) -> None:
    """The next worker finds the parts: each continues from its own ledger, and `dsa show` lists it."""
    where = f"{next(namespaces)}?queue=desk"
    workspace, written = folder / "work", threading.Event()
    workspace.mkdir()
    command = [sys.executable, "-m", "dsa", "work", ".", "--runs", where]
    writer, workers = Writer(), list[subprocess.Popen[bytes]]()

    def hire() -> None:
        quiet: Any = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        workers.append(subprocess.Popen(command, cwd=folder, **quiet))

    def act(view: Any) -> Any:
        said = writer(view)
        if view.subtask.endswith("a.txt") and view.gave("write_file") and not written.is_set():
            written.set()
            workers[0].kill()
        return said

    async def whole(played: Played) -> dict[str, list[Any]]:
        async with dsa.open_runs(where) as runs:
            run = await begin_in_background(start_of(played, workspace), runs)
            assert await asyncio.to_thread(written.wait, 30)
            await asyncio.to_thread(hire)
            await ended(run)
            show = [sys.executable, "-m", "dsa", "show", f"{run.id}+1.2", "--runs", where.partition("?")[0]]
            shown = await asyncio.to_thread(subprocess.run, show, capture_output=True, text=True, check=True)
            assert "goal_complete" in shown.stdout
            return entries_of(runs, run.id)

    with playing(forgetful(PLAN, act)) as played:
        hire()
        try:
            entries = asyncio.run(asyncio.wait_for(whole(played), 100))
        finally:
            for worker in workers:
                worker.kill()
                worker.wait()
    assert list(entries) == ["", "+1.1", "+1.2"]
    for part in entries.values():
        effects = [each.key for each in part if isinstance(each, EffectEntry)]
        results = [each.key for each in part if isinstance(each, ResultEntry)]
        assert sorted(results) == sorted(effects), "each effect has one result"
    assert any(isinstance(each, ResumedEntry) for each in entries[""])
    assert [part.status for part in work_of(entries[""]).chapters[0].subtasks] == ["completed", "completed"]
    assert work_of(entries[""]).tools["write_file done"] == 3
