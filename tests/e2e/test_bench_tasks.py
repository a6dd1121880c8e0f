"""`make bench-tasks` with the real command, guards and sandbox; only the model is scripted, or a local server."""

import contextlib
import csv
import http.server
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
from benchmarks.tasks.command import main
from click.testing import CliRunner

ROOT = Path(__file__).parents[2]
PROGRAM = [sys.executable, str(ROOT / "tests" / "benchmarks" / "tasks")]
ARMS = ("one_shot", "best_of_4", "guarded_3", "guarded_4")


def bench(*arguments, folder):
    """Run the command in this process."""
    with contextlib.chdir(folder):
        return CliRunner().invoke(main, list(arguments))


def bench_apart(*arguments, folder):
    """Run the program."""
    return subprocess.run([*PROGRAM, *arguments], capture_output=True, text=True, check=False, cwd=folder)


def rows_of(folder):
    with (folder / "results.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def counts_of(report):
    """Return (trials, accepted, right, false accepts, errors, generations) of each task and arm in a report."""
    text = report.read_text().partition("## Counts")[2].partition("## Arms compared")[0]
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("| ")][
        2:
    ]
    return {(row[0], row[1]): tuple(int(row[at]) for at in (2, 3, 5, 7, 8, 9)) for row in cells}


def counted(rows):
    """Return the same counts from the raw data."""
    found = {}
    for task, arm in {(row["task"], row["arm"]) for row in rows}:
        ours = [row for row in rows if (row["task"], row["arm"]) == (task, arm)]
        done = [row for row in ours if row["outcome"] != "error"]
        outcomes = Counter((row["outcome"], row["oracle"]) for row in done)
        right, wrong = outcomes["accepted", "right"], outcomes["accepted", "wrong"]
        generations = sum(int(row["generations"]) for row in done)
        found[task, arm] = (len(done), right + wrong, right, wrong, len(ours) - len(done), generations)
    return found


def stable(rows):
    """Return the rows without times."""
    return sorted(
        tuple((name, cell) for name, cell in row.items() if name not in {"model_s", "guard_s", "calls"}) for row in rows
    )


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A finished run of four tasks, one of them in two steps."""
    folder = tmp_path_factory.mktemp("whole")
    done = bench_apart(
        "--model", "scripted", "--tasks", "template,password,lru,tdd_calculator", "--samples", "4", folder=folder
    )
    assert done.returncode == 0, done.stderr
    return folder / "bench-tasks" / "scripted", done.stdout


def test_every_trial_appears_once_and_is_counted_in_the_report(whole):
    folder, said = whole
    rows = rows_of(folder)
    assert len(rows) == len({(row["task"], row["arm"], row["sample"]) for row in rows}) == 4 * 4 * 4
    told = counts_of(folder / "report.md")
    assert {key: told[key] for key in told if key[0] != "all tasks"} == counted(rows)
    assert told["all tasks", "guarded_4"] == tuple(
        map(
            sum,
            zip(*(told[task, "guarded_4"] for task in ("template", "password", "lru", "tdd_calculator")), strict=True),
        )
    )
    assert "16 of 16 samples" in said
    assert "Not finished" not in (folder / "report.md").read_text()


def test_arms_of_a_sample_share_their_first_answer(whole):
    rows = {(row["task"], row["arm"], row["sample"]): row for row in rows_of(whole[0])}
    first = [row for row in rows.values() if row["arm"] == "one_shot" and row["outcome"] == "accepted"]
    assert first
    for row in first:
        for arm in ARMS:
            other = rows[row["task"], arm, row["sample"]]
            assert (other["outcome"], other["oracle"], other["digest"]) == (
                row["outcome"],
                row["oracle"],
                row["digest"],
            )
    for row in rows.values():
        if row["arm"] == "guarded_3" and row["outcome"] == "accepted":
            assert rows[row["task"], "guarded_4", row["sample"]]["digest"] == row["digest"]


def test_equal_calls_are_made_only_once(whole):
    folder, _ = whole
    calls = [json.loads(line) for line in (folder / "calls.jsonl").read_text().splitlines()]
    rows = rows_of(folder)
    assert len({call["key"] for call in calls}) == len(calls) == sum(int(row["calls"]) for row in rows)
    assert sum(int(row["generations"]) for row in rows) > 1.5 * len(calls)


def test_oracle_finds_wrong_answers_that_guards_accepted(whole):
    folder, _ = whole
    wrong = {(row["task"], row["digest"]) for row in rows_of(folder) if row["oracle"] == "wrong"}
    assert len({task for task, _ in wrong}) >= 2
    for task, digest in wrong:
        text = (folder / "accepted" / task / f"{digest}-wrong.md").read_text()
        assert "# gap: " in text
    listed = (folder / "report.md").read_text().partition("## False accepts")[2]
    assert all(f"| {task} | " in listed for task, _ in wrong)


def test_report_contains_no_absolute_path_or_date(whole):
    text = (whole[0] / "report.md").read_text()
    assert "/tmp" not in text
    assert str(ROOT) not in text
    assert not re.search(r"\b20\d\d-\d\d-\d\d\b", text)


def test_killed_run_continues_to_the_same_results(whole, tmp_path):
    command = [*PROGRAM, "--model", "scripted", "--tasks", "template,password,lru,tdd_calculator", "--samples", "4"]
    raw, kills = tmp_path / "bench-tasks" / "scripted" / "results.csv", 0
    for least in (7, 20, 38):
        running = subprocess.Popen(
            command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        while running.poll() is None and not (raw.exists() and raw.read_bytes().count(b"\n") > least):
            time.sleep(0.005)
        if running.poll() is None:
            os.killpg(running.pid, signal.SIGKILL)
            kills += 1
        running.wait()
    assert kills == 3
    before = raw.read_bytes()
    done = bench_apart(*command[2:], folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert raw.read_bytes().startswith(before[: before.rfind(b"\n") + 1])
    assert stable(rows_of(raw.parent)) == stable(rows_of(whole[0]))
    assert counts_of(raw.parent / "report.md") == counts_of(whole[0] / "report.md")


def test_existing_samples_are_reused_when_more_or_fewer_are_requested(tmp_path):
    folder = tmp_path / "bench-tasks" / "scripted"
    for samples in ("1", "3", "2"):
        done = bench(
            "--model", "scripted", "--tasks", "lru", "--samples", samples, "--arms", "one_shot", folder=tmp_path
        )
        assert done.exit_code == 0, done.stderr
        assert counts_of(folder / "report.md")["lru", "one_shot"][0] == int(samples)
    assert [row["sample"] for row in rows_of(folder)] == ["0", "1", "2"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--tasks", "lur"), "error: there is no task 'lur'; there are: template, password, lru"),
        (("--arms", "twice"), "error: 'twice' is not an arm: write one_shot, best_of_N or guarded_N"),
        (
            ("--model", "scripted:nowhere"),
            "error: nowhere is not a folder; scripted:DIR takes a folder with a script for each task",
        ),
        (("--samples", "0"), "0 is not in the range x>=1"),
        (("--prompt", "mine"), "'mine' is not one of 'dsa', 'published'"),
        (("--model", "http://127.0.0.1"), "'http://127.0.0.1' does not name a model: write http://HOST:PORT/v1#MODEL"),
    ],
)
def test_invalid_request_is_reported_in_one_sentence(tmp_path, arguments, message):
    done = bench("--model", "scripted", *arguments, folder=tmp_path)
    assert done.exit_code == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_folder_of_a_run_with_other_settings_is_left_alone(tmp_path):
    assert bench("--model", "scripted", "--tasks", "lru", "--samples", "1", folder=tmp_path).exit_code == 0
    before = (tmp_path / "bench-tasks" / "scripted" / "results.csv").read_bytes()
    done = bench("--model", "scripted", "--tasks", "lru", "--samples", "1", "--seed", "2", folder=tmp_path)
    assert done.exit_code == 2
    assert "seed was 1, and is 2 now. Take another folder with --out" in done.stderr
    assert (tmp_path / "bench-tasks" / "scripted" / "results.csv").read_bytes() == before


# -- a model elsewhere ----------------------------------------------------------------------------------------------

REPLY = "Sure.\n```python\ndef factorial(n):\n    return n * factorial(n - 1) if n else 1\n```\n"


@pytest.fixture
def server():
    """A server that always gives one reply, and records its requests."""
    asked = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            asked.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": REPLY}}
            answer = {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
            text = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *args):
            pass

    running = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=running.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{running.server_port}/v1#m", asked
    running.shutdown()
    thread.join()
    running.server_close()


def test_server_receives_the_same_seeds_in_every_arm(server, tmp_path):
    address, asked = server
    done = bench("--model", address, "--tasks", "factorial", "--samples", "3", "--jobs", "2", folder=tmp_path)
    assert done.exit_code == 0, done.stderr
    assert "12 to 36 calls of the model are left" in done.stdout
    (folder,) = (tmp_path / "bench-tasks").iterdir()
    assert Counter(row["oracle"] for row in rows_of(folder)) == {"right": 12}
    assert sorted(Counter(request["seed"] for request in asked).values()) == [4, 4, 4]
    assert {request["temperature"] for request in asked} == {0.7}
    assert "Every arm has made all of its calls itself" in (folder / "report.md").read_text()


def test_arms_share_answers_on_request(server, tmp_path):
    address, asked = server
    done = bench("--model", address, "--tasks", "factorial", "--samples", "3", "--share", folder=tmp_path)
    assert done.exit_code == 0, done.stderr
    assert len(asked) == 3
    (folder,) = (tmp_path / "bench-tasks").iterdir()
    assert "arms share answers by choice" in (folder / "report.md").read_text()


def test_unreachable_server_stops_the_benchmark_after_three_errors(server, tmp_path):
    address, _ = server
    gone = re.sub(r":\d+/", ":9/", address)
    done = bench("--model", gone, "--tasks", "factorial", "--samples", "50", folder=tmp_path)
    assert done.exit_code == 1
    assert "stopped: the last 3 trials ended in errors" in done.stderr
    assert "cannot be reached" in done.stderr
    (folder,) = (tmp_path / "bench-tasks").iterdir()
    assert [row["outcome"] for row in rows_of(folder)] == ["error"] * 3
    report = (folder / "report.md").read_text()
    assert "Not finished" in report
    assert counts_of(folder / "report.md")["factorial", "one_shot"] == (0, 0, 0, 0, 1, 0)
