"""Effects that need a certain machine: with `?queue=NAME` they happen on the workers of that queue, with the commands that people type.

Two workers run all the time, each in its own folder: one for everything, and one of the queue `desk`.
"""

import asyncio
import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import forked
import pytest
from temporal_commands import ORDER, until
from temporal_server import MISSING, server, temporal_program

import dsa
from dsa.errors import DocumentError

#: A person may ask again.
DOCUMENT = f"{ORDER}| drafted | question | looking | look |\n"
BINDINGS = """from pathlib import Path

import dsa
from dsa.errors import DocumentError


@dsa.answering("found")
async def look(action, context):
    with Path(__file__).with_name("begun").open("a") as file:
        file.write(Path.cwd().name + "\\n")
    return [dsa.event_step("look", "found")]


effects = {"look": look}
"""

PROGRAM = str(Path(__file__).parent.parent / "impatient_program.py")


@attrs.frozen
class Place:
    """A server with two workers: `office` is the folder of the worker for everything, `desk` the folder of the worker of the queue `desk`."""

    where: str
    office: Path
    desk: Path


def command(*words: str, folder: Path, where: str) -> "subprocess.Popen[str]":
    how: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    environment = os.environ | forked.variables(forked.TEMPORAL)
    line = [*forked.SCRIPT, PROGRAM, *words, "--runs", where]
    return subprocess.Popen(line, cwd=folder, text=True, env=environment, **how)


def printed(*words: str, folder: Path, where: str) -> str:
    process = command(*words, folder=folder, where=where)
    text = process.communicate(timeout=60)[0]
    assert process.returncode in {0, 3}, text
    return text


def end(process: "subprocess.Popen[str]") -> None:
    process.kill()
    process.communicate()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    if temporal_program() is None:
        pytest.skip(MISSING)
    folder = tmp_path_factory.mktemp("machines")
    with server(1) as (where,):
        here = Place(where, folder / "office", folder / "desk")
        for each in (here.office, here.desk):
            each.mkdir()
        workers = [
            command("work", str(folder), folder=here.office, where=where),
            command("work", str(folder), folder=here.desk, where=f"{where}?queue=desk"),
        ]
        try:
            yield here
        finally:
            for worker in workers:
                end(worker)


@pytest.fixture
def shop(place: Place, request: pytest.FixtureRequest) -> Path:
    """A folder beside those of the workers, which both may read."""
    folder = place.office.parent / str(request.node.name)
    folder.mkdir()
    (folder / "order.md").write_text(DOCUMENT)
    (folder / "bindings.py").write_text(BINDINGS)
    return folder


def begun(shop: Path) -> list[str]:
    """Return the folders of the workers that have performed the effect, in order."""
    path = shop / "begun"
    return path.read_text().split() if path.exists() else []


async def looked(runs: dsa.Runs, run: dsa.RunHandle) -> None:
    assert (await run.rest()).run.configuration.state == "drafted"


@pytest.mark.limit(60)
def test_effects_happen_on_the_workers_of_their_queue(place: Place, shop: Path) -> None:
    """A killed worker leaves its runs waiting until it is started again, even if another worker is idle."""
    lab = shop / "lab"
    lab.mkdir()
    where = f"{place.where}?queue=lab"

    async def whole() -> None:
        worker = command("work", str(shop), folder=lab, where=where)
        try:
            async with dsa.open_runs(place.where) as runs, dsa.open_runs(where) as runs_of_lab:
                await looked(runs, await runs.start(shop / "order.md", "go"))
                run = await runs_of_lab.start(shop / "order.md", "go", run_id="at-lab")
                await looked(runs_of_lab, run)
                assert begun(shop) == ["office", "lab"]
                end(worker)
                # The address has no queue, so the run keeps its queue.
                assert isinstance(await runs.send("at-lab", "question"), dsa.Taken)
                await asyncio.sleep(0.5)
                assert begun(shop) == ["office", "lab"]
                worker = command("work", str(shop), folder=lab, where=where)
                await looked(runs_of_lab, run)
                assert begun(shop) == ["office", "lab", "lab"]
                (shop / "bindings.py").rename(shop / "elsewhere.py")  # the sender does not need the files of the worker
                handle = runs.hold("at-lab")
                answer = handle.offer(dsa.Occurrence("approved"))
                handle.start()
                assert isinstance(await handle.outcome_of("approved", answer), dsa.Taken)
                assert (await handle.rest()).kind == "finished"
        finally:
            end(worker)

    asyncio.run(asyncio.wait_for(whole(), 50))


@pytest.mark.limit(60)
def test_run_waiting_for_a_worker_says_for_which_one_and_can_be_moved(place: Place, shop: Path) -> None:
    where = f"{place.where}?queue=laptop"
    client = command("run", "order.md", "--data", "{}", folder=shop, where=where)
    try:
        assert client.stdout is not None
        line = client.stdout.readline()
        assert "waits for a worker of the queue 'laptop'; start one on the machine" in line
        assert line.rstrip().endswith(f"dsa work . --runs '{where}'")
        run_id = line.split()[1]
        shown = printed("show", run_id, folder=shop, where=place.where).splitlines()
        assert shown[-1].startswith("the run waits for a worker of the queue 'laptop'; start one")
        assert begun(shop) == []
    finally:
        end(client)
    refused = command("resume", run_id, folder=shop, where=f"{place.where}?queue=desk").communicate(timeout=30)[0]
    assert f"run {run_id} is under way, and goes on by itself; `dsa show {run_id} --runs" in refused
    assert refused.rstrip().endswith("says what it waits for. With --take, it is interrupted first")
    printed("resume", run_id, "--take", folder=shop, where=f"{place.where}?queue=desk")
    assert "\nqueue  desk\n" in printed("show", run_id, folder=shop, where=place.where)

    async def move() -> None:
        async with dsa.open_runs(place.where) as runs:
            async for _ in runs.worker().take_up(once=True):
                raise AssertionError("no run is for this worker, and it does not wait for that of another one")
        async with dsa.open_runs(where) as runs:  # a sender does not move the run
            handle = runs.hold(run_id)
            answer = handle.offer(dsa.Occurrence("question"))
            handle.start()
            assert isinstance(await handle.outcome_of("question", answer), dsa.Taken)
            await looked(runs, handle)

    asyncio.run(asyncio.wait_for(move(), 30))
    assert begun(shop) == ["desk", "desk"]


@pytest.mark.limit(60)
def test_worker_without_the_folder_leaves_the_run_to_another_one(place: Place, shop: Path) -> None:
    """It has called nothing of the run, which stays under way until a worker comes that can load its bindings."""
    where = f"{place.where}?queue=attic"
    worker = command("work", ".", folder=place.office, where=where)

    async def whole() -> None:
        nonlocal worker
        async with dsa.open_runs(where) as runs:
            run = await runs.start(shop / "order.md", "go", run_id="in-attic")
            assert worker.stdout is not None
            lines = [worker.stdout.readline() for _ in range(2)]
            assert lines[1].startswith("in-attic  not taken up: ")
            assert lines[1].rstrip().endswith("; the run waits for another worker")
            assert "Traceback" not in lines[1]
            wanted_worker = await runs.wanted_worker("in-attic")
            assert wanted_worker.startswith("a worker that can perform its effects; the last one cannot: ")
            reason = lines[1].partition("not taken up: ")[2].partition("; the run waits")[0]
            assert wanted_worker.endswith(reason)
            (each,) = [each for each in await runs.list() if each.run == "in-attic"]
            assert (each.status, each.queue, begun(shop)) == ("under way", "attic", [])
            end(worker)
            worker = command("work", str(shop), folder=shop, where=where)
            await looked(runs, run)
            assert await runs.wanted_worker("in-attic") == ""

    try:
        asyncio.run(asyncio.wait_for(whole(), 50))
    finally:
        end(worker)
    assert begun(shop) == [shop.name]


def files_of(folder: Path, run_id: str) -> set[str]:
    """Return the kinds of files of a run in the folder where its worker was started."""
    return {path.name.partition("-")[0] for path in (folder / ".dsa" / run_id).glob("*")}


def processes_in(folder: Path) -> list[str]:
    """Return the ids of the processes that are at work below a folder."""
    links = {each.parent.name: os.path.realpath(each) for each in Path("/proc").glob("[0-9]*/cwd")}
    return [each for each, target in links.items() if target.startswith(f"{folder}/")]


@pytest.mark.limit(60)
def test_conversation_runs_where_its_data_is_and_continues_from_anywhere(place: Place, shop: Path) -> None:
    """The data is loaded on one machine: the other worker has none of it, and the file itself is no longer needed."""
    table, script = place.desk / "rents.csv", shop / "script.md"
    table.write_text("city,rent\nBern,20\nUri,10\n")
    call = '{"tool_calls": [{"name": "run_sql", "arguments": {"sql": "select max(rent) + %d as r from rents"}}]}'
    script.write_text("".join(f"```\n{each}\n```\n\n" for each in (call % 1, "It is 21.", call % 2, "It is 22.")))
    where = f"{place.where}?queue=desk"
    asked = "chat", "rents.csv", "--model", f"scripted:{script}", "--ask", "What is it?", "--json"
    turn = json.loads(printed(*asked, folder=place.desk, where=where))
    assert turn["turn"]["answer"] == "It is 21."
    table.unlink()
    assert "resting.completed" in printed(
        "send", turn["run"], "message", '{"text": "And now?"}', folder=shop, where=place.where
    )
    story = printed("show", turn["run"], "--transcript", folder=shop, where=place.where)
    assert "It is 22." in story
    assert {"data", "data.json", "contents"} <= files_of(place.desk, turn["run"])
    until(lambda: processes_in(place.desk / ".dsa") == [])  # the conversation rests
    assert files_of(place.office, turn["run"]) == set()


@pytest.mark.limit(60)
def test_work_on_a_folder_happens_where_the_folder_is(place: Place, shop: Path) -> None:
    """The worker of the other machine does none of it; a person answers from a third one, which has no such folder."""
    workspace, script = place.desk / "hello", shop / "script.md"
    workspace.mkdir()
    plan = '[{"description": "Create hello.py", "subtasks": ["write_file hello.py with a greeting"]}]'
    call = '{"tool_calls": [{"name": "write_file", "arguments": {"path": "hello.py", "content": "print(1)\\n"}}]}'
    complete = (
        '{"tool_calls": [{"name": "mark_subtask_complete", "arguments": {"success": true, "reason": "it is there"}}]}'
    )
    script.write_text("".join(f"```\n{each}\n```\n\n" for each in (plan, call, complete)))
    where = f"{place.where}?queue=desk"
    goal = "code", "Write a greeting", "-w", "hello", "--model", f"scripted:{script}", "--json"
    report = json.loads(printed(*goal, folder=place.desk, where=where))
    assert (report["state"], report["work"]["asks"]["tool"]) == ("working.approving", "write_file")
    sent = printed("send", report["run"], "permitted", folder=shop, where=place.where)
    assert sent.startswith(f"waiting for {report['run']} to pause or end\n")
    assert "goal_complete" in sent
    assert (workspace / "hello.py").read_text() == "print(1)\n"
    assert "+print(1)" in printed("show", report["run"], "--diff", folder=place.desk, where=place.where)
    assert "history" in files_of(place.desk, report["run"])
    elsewhere = command("undo", report["run"], folder=shop, where=place.where).communicate(timeout=30)[0]
    words = "there is no history of the run's changes; the history is where the run's worker was started, so type this command there\n"
    assert elsewhere.endswith(words), elsewhere
    assert files_of(place.office, report["run"]) == set()


def test_address_names_a_queue_and_a_store() -> None:
    if temporal_program() is None:
        pytest.skip(MISSING)
    from dsa.temporal.server_link import ServerAddress

    here = "temporal://localhost:7233/default"
    for options, queue, store in (
        ("", "dsa", "None"),
        ("?queue=lab", "dsa-lab", "None"),
        ("?store=/mnt/runs", "dsa", "/mnt/runs"),
        ("?queue=lab.2&store=/mnt/a&b", "dsa-lab.2", "/mnt/a&b"),
        ("?store=git+https://host/p.git?a=1&b=2&queue=lab", "dsa-lab", "https://host/p.git?a=1&b=2"),
    ):
        address = ServerAddress.read(f"{here}{options}")
        assert (address.queue, str(address.store)) == (queue, store)
        assert ServerAddress.read(address.for_queue("dsa-x")).queue == "dsa-x"
        assert ServerAddress.read(address.for_queue(address.queue)).for_queue("dsa-lab") == address.for_queue("dsa-lab")
    for options, fault in (
        ("?", "write temporal://HOST:PORT/NAMESPACE"),
        ("?queue=", "'queue=' is not allowed after the '?': write queue=NAME or store=STORE there, each at most once"),
        (
            "?queue=a&queue=b",
            "'queue=b' is not allowed after the '?': write queue=NAME or store=STORE there, each at most once",
        ),
        ("?que=a", "'que=a' is not allowed after the '?': write queue=NAME or store=STORE there, each at most once"),
        ("?queue=a/b", "'a/b' is not the name of a queue"),
    ):
        with pytest.raises(DocumentError, match=re.escape(fault)) as raised:
            ServerAddress.read(f"{here}{options}".replace("//", "/", 1))  # as `Path` would change it
        assert str(raised.value).startswith(here)
