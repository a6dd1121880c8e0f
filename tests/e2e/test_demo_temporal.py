"""`make demo-temporal`: it shows a run with an approval, and leaves nothing behind."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from temporal_server import MISSING, temporal_program

ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / "tests" / "demo_temporal.py"


@pytest.fixture
def demo(tmp_path: Path):
    """The demo in a separate process, with its temporary files in a folder of this test."""
    if temporal_program() is None:
        pytest.skip(MISSING)
    (tmp_path / "temporary").mkdir()
    process = subprocess.Popen(
        [sys.executable, PROGRAM, "1"],
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(tmp_path / "temporary")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    yield process
    process.kill()
    process.communicate()


def left_processes(text: str) -> list[str]:
    """Return the commands of processes that name the server's port, or work in the folder of the demo."""
    port = re.search(r"temporal://127\.0\.0\.1:(\d+)", text)[1]
    commands = []
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            commands.append(each.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue  # it has ended
    return [each for each in commands if port in each]


@pytest.mark.full
@pytest.mark.model
@pytest.mark.limit(200)
def test_demo_shows_a_run_with_an_approval_and_leaves_nothing_behind(demo, tmp_path: Path) -> None:
    text = demo.communicate(timeout=180)[0]
    assert demo.returncode == 0, text
    assert "Traceback" not in text
    words = ["attempt  1", "passed", "waiting in asking for: approved, refused", "Another worker", "succeeded"]
    places = [text.index(each) for each in words]
    assert places[2:5] == sorted(places[2:5])
    assert re.search(r"^\$ dsa send \S+@\d+ approved", text, re.MULTILINE)
    assert re.search(r"^def fibonacci", text, re.MULTILINE)
    assert left_processes(text) == []
    assert list((tmp_path / "temporary").iterdir()) == []
    assert [each.name for each in tmp_path.iterdir()] == ["temporary"]


@pytest.mark.limit(60)
def test_sigterm_ends_everything_that_the_demo_has_started(demo, tmp_path: Path) -> None:
    lines = []
    for line in demo.stdout:
        lines.append(line)
        if line.startswith("$ dsa run"):
            break
    assert left_processes("".join(lines))
    demo.send_signal(signal.SIGTERM)
    text = "".join(lines) + demo.communicate(timeout=50)[0]
    assert demo.returncode == 130, text
    assert left_processes(text) == []
    assert list((tmp_path / "temporary").iterdir()) == []
