"""Commands with `--runs temporal://..`: a worker in a separate process, and people who run, show and answer from others."""

import asyncio
import json
import re
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from forked import DSA
from temporal_commands import ORDER, until, worker_process
from temporal_server import MISSING, temporal_program

import dsa as dsa_library
from dsa.runtime.run_store import StoreError

BINDINGS = """import os
from pathlib import Path

import dsa


@dsa.answering("found")
async def look(action, context):
    begun = Path(__file__).with_name("begun")
    with begun.open("a") as file:
        file.write(f"{context.key.split('/', 1)[1]} {os.getpid()}\\n")
    if Path(__file__).with_name("dies").exists() and begun.read_text().count("\\n") == 1:
        os.kill(os.getpid(), 9)
    return [dsa.event_step("look", "found", data={"text": context.run.run_id})]


effects = {"look": look}
"""
#: The effect takes a minute.
SLOW = BINDINGS.replace("    return [", "    await __import__('asyncio').sleep(60)\n    return [")


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    (tmp_path / "order.md").write_text(ORDER)
    (tmp_path / "bindings.py").write_text(BINDINGS)
    return tmp_path


def dsa(folder: Path, where: str, *words: str) -> "subprocess.CompletedProcess[str]":
    command = [*DSA, *words, "--runs", where]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)


def runs_order(folder: Path, where: str) -> "subprocess.Popen[str]":
    """Start `dsa run` in a process that runs beside the test."""
    command = [*DSA, "run", "order.md", "--data", "{}", "--runs", where]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def second_line(process: "subprocess.Popen[str]") -> str:
    """Return the line that a worker prints after its first one."""
    assert process.stdout is not None
    assert process.stdout.readline().startswith("this worker drives the runs of ")
    return process.stdout.readline()


@pytest.mark.limit(100)
def test_run_is_worked_on_and_answered_by_different_processes(desk: Path, namespaces: Iterator[str]) -> None:
    where = next(namespaces)
    with worker_process(desk, where) as first:
        ran = dsa(desk, where, "run", "order.md", "--data", '{"text": "where?"}', "--json")
        assert ran.returncode == 3, ran.stderr
        report = json.loads(ran.stdout)
        assert (report["kind"], report["state"], report["waits_for"]) == ("waiting", "drafted", {"approved": "2"})
        assert "waiting in drafted" in second_line(first)  # a worker looks at its runs now and then
    with worker_process(desk, where):  # the worker that performed the effect is gone
        assert "drafted" in dsa(desk, where, "runs").stdout
        assert "look 1/1 answered found" in dsa(desk, where, "show", "last").stdout
        refused = dsa(desk, where, "send", "last", "question")
        assert refused.returncode == 1
        assert "question in drafted was refused: invalid_state" in refused.stderr
        assert "late" in dsa(desk, where, "send", "last@1", "approved").stderr
        (desk / "longer.md").write_text(f"{ORDER}| drafted | question | = | |\n")
        (desk / "renamed.md").write_text(ORDER.replace("drafted", "written"))
        assert "cannot continue with renamed.md" in dsa(desk, where, "resume", "last", "--machine", "renamed.md").stderr
        assert dsa(desk, where, "resume", "last", "--machine", "longer.md").returncode == 3
        assert dsa(desk, where, "send", "last@2", "approved").returncode == 0
        assert dsa(desk, where, "resume", "last").returncode == 0
        assert '"kind":"change"' in dsa(desk, where, "show", "last", "--jsonl").stdout
        assert "every entry is the same" in dsa(desk, where, "replay", "last").stdout


@pytest.mark.full
@pytest.mark.limit(100)
def test_effect_whose_worker_was_killed_is_performed_by_the_next_one(desk: Path, namespaces: Iterator[str]) -> None:
    where = next(namespaces)
    (desk / "dies").touch()
    with worker_process(desk, where) as first:
        run = runs_order(desk, where)
        assert first.wait(60) == -signal.SIGKILL
    with worker_process(desk, where):
        text = run.communicate(timeout=90)[0]
        assert (run.returncode, "waiting in drafted for: approved" in text) == (3, True), text
        begun = [line.split() for line in (desk / "begun").read_text().splitlines()]
        assert [key for key, _ in begun] == ["1/1/1", "1/1/1"]
        assert len({process for _, process in begun}) == 2
        assert "retry" in dsa(desk, where, "show", "last", "--jsonl").stdout


def test_invalid_address_and_missing_server_are_reported(desk: Path) -> None:
    if temporal_program() is None:
        pytest.skip(MISSING)
    wrong = dsa(desk, "temporal://localhost", "runs")
    assert wrong.returncode == 2
    assert "write temporal://HOST:PORT/NAMESPACE" in wrong.stderr
    nobody = dsa(desk, "temporal://127.0.0.1:1/default", "runs")
    assert nobody.returncode == 1
    assert "no Temporal server answers at 127.0.0.1:1" in nobody.stderr
    choosy = dsa(desk, "temporal://127.0.0.1:1/default", "work", "--machine", "order")
    assert (choosy.returncode, choosy.stderr.partition(",")[0]) == (
        2,
        "a worker on Temporal cannot be limited to the machine order; to give this machine's runs a worker of their own",
    )
    assert "Traceback" not in wrong.stderr + nobody.stderr + choosy.stderr


def test_waiting_run_is_printed_once_with_its_deadline(desk: Path, namespaces: Iterator[str]) -> None:
    where = next(namespaces)
    (desk / "order.md").write_text(
        ORDER.replace("| drafted | approved", "| drafted | after 24h | = | |\n| drafted | approved")
    )
    with worker_process(desk, where):
        lines = dsa(desk, where, "run", "order.md", "--data", "{}").stdout.splitlines()
    assert [line for line in lines if line.startswith("waiting")] == ["waiting in drafted for: approved"]
    assert len([line for line in lines if re.fullmatch(r"due +\d{4}-\d\d-\d\d .* UTC", line)]) == 1


def interrupted(folder: Path, where: str, *, once: Callable[[], bool]) -> "tuple[int, str]":
    """Start a run, press Ctrl-C once a condition is true, and return the exit code and the output."""
    process = runs_order(folder, where)
    until(once)
    process.send_signal(signal.SIGINT)
    text = process.communicate(timeout=30)[0]
    return process.returncode, text


@pytest.mark.limit(100)
def test_ctrl_c_without_a_worker_says_that_the_run_goes_on(desk: Path, namespaces: Iterator[str]) -> None:
    where = next(namespaces)

    async def count() -> int:
        async with dsa_library.open_runs(where) as runs:
            return await runs.count()

    code, text = interrupted(desk, where, once=lambda: asyncio.run(count()) == 1)
    assert (code, "Traceback" in text) == (130, False), text
    assert re.search(
        r"^\S+-order-\S+ was not interrupted, because no worker answers; the run goes on when a worker does$",
        text,
        re.MULTILINE,
    )
    with worker_process(desk, where) as process:
        assert "waiting in drafted" in second_line(process)


@pytest.mark.limit(100)
def test_event_sent_while_an_effect_is_under_way_is_taken_or_refused_at_once(
    desk: Path, namespaces: Iterator[str]
) -> None:
    where = next(namespaces)
    text = ORDER.replace("| end.sent | final |", "| end.sent | final |\n| end.stopped | final |")
    text = text.replace("| approved | outside |", "| approved | outside |\n| stopped | outside |")
    (desk / "order.md").write_text(text + "| looking | stopped | end.stopped | |\n")
    (desk / "bindings.py").write_text(SLOW)
    with worker_process(desk, where):
        run = runs_order(desk, where)
        until((desk / "begun").exists)
        refused, sent = dsa(desk, where, "send", "last", "approved"), dsa(desk, where, "send", "last", "stopped")
        assert (refused.returncode, "approved in looking was refused" in refused.stderr) == (1, True), refused.stderr
        assert (sent.returncode, sent.stdout) == (0, "stopped was taken: the run is in end.stopped\n"), sent.stderr
        assert (run.wait(30), "stopped" in run.communicate()[0]) == (0, True)


def test_faults_of_a_server_are_explained(desk: Path, namespaces: Iterator[str]) -> None:
    where = next(namespaces)
    host = where.removeprefix("temporal://").partition("/")[0]
    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as page:
        thread = threading.Thread(target=page.serve_forever, args=(0.02,))
        thread.start()
        other = f"127.0.0.1:{page.server_address[1]}"
        try:
            faults = [
                asyncio.run(fault(f"temporal://{other}/default")),
                asyncio.run(fault(f"temporal://{host}/nosuch")),
            ]
        finally:
            page.shutdown()
            thread.join()
    assert faults[0].startswith(
        f"no Temporal server answers at {other}: the program that listens there is not a Temporal server"
    )
    assert faults[1].startswith(f"the Temporal server at {host} has no namespace 'nosuch': use another, or create it")


def test_port_of_another_service_is_recognized_by_any_error() -> None:
    """The error of the SDK for the port of a web page depends on which side closes the connection first."""
    if temporal_program() is None:
        pytest.skip(MISSING)
    from temporalio.service import RPCError, RPCStatusCode

    from dsa.temporal.server_link import fault_in_words

    broken = "transport error: hyper::Error(Io, BrokenPipe, stream closed because of a broken pipe)"
    for text in ("h2 protocol error: http2 error", "operation was canceled", broken):
        words = fault_in_words(RPCError(text, RPCStatusCode.UNKNOWN, b""))
        assert words.startswith("the program that listens there is not a Temporal server")


async def fault(where: str) -> str:
    async with dsa_library.open_runs(where) as runs:
        with pytest.raises(StoreError) as error:
            await runs.list()
        return str(error.value)


def test_command_without_a_worker_says_so_and_continues_when_one_starts(desk: Path, namespaces: Iterator[str]) -> None:
    where = next(namespaces)
    process = runs_order(desk, where)
    assert process.stdout is not None
    assert process.stdout.readline() == f"waiting for a worker; start one: dsa work . --runs {where}\n"
    with worker_process(desk, where) as first:
        assert first.stdout is not None
        assert first.stdout.readline().startswith(f"this worker drives the runs of {where.removeprefix('temporal://')}")
        text = process.communicate(timeout=60)[0]
        assert "waiting in drafted for: approved" in text
        assert re.search(r"^totals .* s guards$", text, re.MULTILINE), "the report leaves out the time of the command"


def test_look_without_a_worker_fails_soon_and_says_what_to_start(
    namespaces: Iterator[str], desk: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("dsa.temporal.story_store._STARTING_S", 0.3)
    where = next(namespaces)
    start = f"a worker; start one: dsa work . --runs {where}"

    async def whole() -> None:
        async with dsa_library.open_runs(where) as runs:
            await runs.start(desk / "order.md", {}, run_id="lonely")
            with pytest.raises(StoreError, match="run lonely does not answer: it waits for") as error:
                await runs.look("lonely")
            assert start in str(error.value)

    asyncio.run(asyncio.wait_for(whole(), 15))
    assert [each.getMessage() for each in caplog.records if each.name == "dsa.notice"] == [
        "there is no worker; waiting 0.3 s for one to start"
    ]


@pytest.mark.limit(100)
def test_sigterm_while_an_event_waits_for_a_worker_ends_the_command(desk: Path, namespaces: Iterator[str]) -> None:
    """The policy that waits for the event has to read its data, and the run's queue has no worker."""
    where = next(namespaces)
    text = ORDER.replace("| idle | question | looking | look |", "| idle | question | drafted | |")
    text = text.replace("| found | look |", "| found | look |\n| noted | outside |", 1)
    (desk / "order.md").write_text(f"{text}| drafted | noted | looking | look |\n")
    reads = BINDINGS.replace('@dsa.answering("found"', '@dsa.answering("found", reads={"noted": dict}')
    assert reads != BINDINGS
    (desk / "bindings.py").write_text(reads)
    with worker_process(desk, f"{where}?queue=office"):
        begun = dsa(desk, f"{where}?queue=lab", "run", "order.md", "--data", "{}")
        assert begun.returncode == 3, begun.stderr
        command = [*DSA, "send", "last", "noted", "{}", "--runs", where]
        sender = subprocess.Popen(command, cwd=desk, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        assert sender.stderr is not None
        lines = [sender.stderr.readline() for _ in range(2)]
        assert "waits for a worker of the queue 'lab'; start one" in "".join(lines)
        sender.send_signal(signal.SIGTERM)
        rest = sender.communicate(timeout=30)[1]
        assert (sender.returncode, rest.splitlines()[0].partition(";")[0]) == (130, "interrupted"), rest
        assert len(rest.splitlines()) == 1


@pytest.mark.limit(100)
def test_files_that_exist_only_in_a_folder_are_not_named(desk: Path, namespaces: Iterator[str]) -> None:
    where = next(namespaces)
    document = desk / "order.md"
    with worker_process(desk, where):
        first = dsa(desk, where, "run", "order.md", "--data", "{}", "--json")
        report = json.loads(first.stdout)
        assert (report["kind"], report["directory"]) == ("waiting", None)
        document.write_text(f"{ORDER}| drafted | after 24h | end.sent | |\n")
        resumed = dsa(desk, where, "resume", "last")
        assert resumed.stderr == (
            f"{document} has changed; the run goes on with the table that it began with (dsa resume {report['run']} "
            f"--machine {document} --runs {where} uses the changed file, if the run fits it)\n"
        )
        errors = dsa(desk, where, "show", "last", "--errors")
        words = "a Temporal server stores no tracebacks; a worker prints the tracebacks of its effects if you start it with `dsa work --log debug`\n"
        assert (errors.returncode, errors.stderr) == (2, words)
        unknown = dsa(desk, where, "show", "nowhere")
        assert f"no run 'nowhere' in {where}; " in unknown.stderr


@pytest.mark.limit(100)
def test_run_under_way_can_be_removed_after_ctrl_c(desk: Path, namespaces: Iterator[str]) -> None:
    where, refusals = next(namespaces), list["subprocess.CompletedProcess[str]"]()
    (desk / "bindings.py").write_text(SLOW)

    def is_refused() -> bool:
        if (desk / "begun").exists():
            refusals.append(dsa(desk, where, "runs", "rm", "last"))
        return bool(refusals)

    with worker_process(desk, where):
        code, text = interrupted(desk, where, once=is_refused)
        run_id, *columns = dsa(desk, where, "runs").stdout.splitlines()[-1].split()
        assert (code, "interrupted" in columns) == (130, True), text
        kept = f"what was done so far is saved in {run_id} at {where}"
        assert f"interrupted; {kept}; `dsa resume {run_id} --runs {where}` continues the run" in text
        command = f"dsa resume {run_id} --take --runs {where}"
        words = f"run {run_id} is under way, and goes on by itself; interrupt it first, on its page (`dsa web`) or with `{command}` and Ctrl-C\n"
        assert (refusals[0].returncode, refusals[0].stderr) == (1, words)
        assert dsa(desk, where, "runs", "rm", "last").stdout == f"removed {run_id}\n"


@pytest.mark.limit(100)
def test_command_following_a_run_reports_an_interruption_from_elsewhere(desk: Path, namespaces: Iterator[str]) -> None:
    where = next(namespaces)
    (desk / "bindings.py").write_text(SLOW)

    async def interrupt() -> str:
        async with dsa_library.open_runs(where) as runs:
            (each,) = await runs.list()
            await runs.interrupt(each.run)
            return each.run

    with worker_process(desk, where):
        run = runs_order(desk, where)
        until((desk / "begun").exists)
        run_id = asyncio.run(interrupt())
        text = run.communicate(timeout=30)[0]
        assert (run.returncode, text.splitlines()[0]) == (3, "interrupted in looking"), text
        assert text.splitlines()[-1] == f"next      dsa resume {run_id} --runs {where}"
