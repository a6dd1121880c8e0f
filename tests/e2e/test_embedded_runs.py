"""The service of docs/how-to/embed.md under stress: two clients of which one leaves, kill -9 in an effect, another process that continues."""

import http.client
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "embed.md"
FILE = re.compile(r"<!-- example: (\S+) -->\n(`{3,})\w+\n(.*?)\n\2", re.DOTALL)
WORKER = """
import asyncio, dsa, sys

async def work():
    async with dsa.open_runs(".dsa", must_exist=True) as runs:
        for found in await runs.list(status="cut off"):
            run = await runs.resume(found.run)
            print(run.id, (await run.rest()).outcome)

asyncio.run(work())
"""


@pytest.fixture
def folder(tmp_path):
    for name, _, text in FILE.findall(PAGE.read_text()):
        (tmp_path / name).write_text(text + "\n")
    return tmp_path


@pytest.fixture
def serve(folder):
    """Start the service; kill it at the end if the test has not."""
    started = []

    def start(wait_s):
        text = (folder / "desk.py").read_text()
        (folder / "desk.py").write_text(text.replace("asyncio.sleep(0.2)", f"asyncio.sleep({wait_s})"))
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        command = [sys.executable, "-m", "uvicorn", "desk:app", "--port", str(port), "--log-level", "error"]
        started.append(subprocess.Popen(command, cwd=folder))
        for _ in range(600):
            with socket.socket() as asking:
                if asking.connect_ex(("127.0.0.1", port)) == 0:
                    return started[-1], port
            time.sleep(0.05)
        raise AssertionError("the service did not start")

    yield start
    for process in started:
        process.kill()
        process.wait()


def asked(port, question):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("POST", "/ask", question)
    with connection.getresponse() as answer:
        assert answer.status == 202
        said = answer.read().decode()
    connection.close()
    return re.search(r'"run":"([^"]+)"', said).group(1)


def watching(port, run):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", f"/runs/{run}")
    return connection, connection.getresponse()


def test_service_has_fewer_than_30_lines_and_imports_only_dsa(folder):
    text = (folder / "desk.py").read_text()
    assert len([line for line in text.splitlines() if line]) < 30
    ours = re.findall(r"^(?:import|from) ((?:dsa|machines)\S*)", text, re.MULTILINE)
    assert ours == ["dsa"]


def test_client_that_leaves_does_not_disturb_another_client(folder, serve):
    _, port = serve(0.5)
    run = asked(port, "Where is my order?")
    leaving, first = watching(port, run)
    assert first.readline().startswith(b"1 machine")
    staying, second = watching(port, run)
    first.close()
    leaving.close()
    seen = second.read().decode().splitlines()
    second.close()
    staying.close()
    assert [int(line.split()[0]) for line in seen] == list(range(1, len(seen) + 1))
    listed = subprocess.run(
        [sys.executable, "-m", "dsa", "runs"], cwd=folder, capture_output=True, text=True, check=True
    )
    assert "finished: answered" in listed.stdout


def test_run_killed_in_an_effect_is_continued_by_another_process(folder, serve):
    service, port = serve(60)
    run = asked(port, "Where is my order?")
    connection, moments = watching(port, run)
    while b"effect" not in moments.readline():
        pass
    os.kill(service.pid, signal.SIGKILL)
    service.wait()
    moments.close()
    connection.close()
    (folder / "desk.py").write_text((folder / "desk.py").read_text().replace("asyncio.sleep(60)", "asyncio.sleep(0)"))
    done = subprocess.run([sys.executable, "-c", WORKER], cwd=folder, capture_output=True, text=True, check=False)
    assert done.stdout == f"{run} answered\n", done.stderr
    again = subprocess.run(
        [sys.executable, "-m", "dsa", "replay", run], cwd=folder, capture_output=True, text=True, check=False
    )
    assert again.returncode == 0, again.stdout + again.stderr
