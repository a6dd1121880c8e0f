"""Texts made to take for ever: every process judges them within bounds, so an interrupt works, and a resumed run ends."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from forked import DSA

#: A policy that calls another one with payloads that a model could write; people could write both schemas.
POLICIES = r"""
import os, signal, threading, time
from dsa.runtime.policy.policies import Action, action_result_step, text_step
from dsa.runtime.policy.policy_registry import Registry

policies = Registry()
EITHER = {"anyOf": [{"properties": {"a": {"$ref": "#"}}, "required": [name]} for name in ("x", "y")]}
EMAIL = {"type": "object", "properties": {"email": {"type": "string", "pattern": "^([a-zA-Z0-9]+\\.?)+@example\\.com$"}}}

@policies.register("mail", schema=EMAIL)
async def mail(action, context):
    return [action_result_step("mail", {})]

@policies.register("tree", schema=EITHER)
async def tree(action, context):
    return [action_result_step("tree", {})]

def deep(depth):
    return {"a": deep(depth - 1)} if depth else {}

@policies.register("asked", actions=["mail", "tree"])
async def asked(action, context):
    with open("begun.txt", "a") as file:
        file.write("begun\n")
    if not os.path.exists("resumed"):  # an interrupt a little later, while the payloads are judged
        threading.Thread(target=lambda: (time.sleep(0.05), os.kill(os.getpid(), signal.SIGINT)), daemon=True).start()
    found = [*await context.call(Action("mail", {"email": "a" * 60 + "!"})), *await context.call(Action("tree", deep(60)))]
    return [text_step("asked", " | ".join(step.payload["message"] for step in found))]
"""
DOCUMENT = """# contact

## Steps
| step | guard | rmax | task            |
| ---- | ----- | ---- | --------------- |
| mail | is_ok | 0    | Give the email. |

## Guards
| guard | is   | options              |
| ----- | ---- | -------------------- |
| is_ok | json | schema = schema.json |
"""


def _dsa(folder, *arguments):
    return subprocess.run([*DSA, *arguments], cwd=folder, capture_output=True, text=True, check=False, timeout=100)


def test_payloads_are_checked_within_bounds_and_an_interrupt_ends_the_run(tmp_path):
    (tmp_path / "policies.py").write_text(POLICIES)
    done = _dsa(tmp_path, "run", "--policy", "asked", "x", "--with", "policies.py")
    assert "Traceback" not in done.stderr
    assert (done.returncode, "interrupted; what was done so far" in done.stderr) == (130, True), done.stderr
    (tmp_path / "resumed").write_text("")
    done = _dsa(tmp_path, "resume", "last")
    assert done.returncode == 0, done.stderr
    assert "at $.email: 'aaaa" in done.stdout
    assert (
        "at $: the payload could not be checked against its schema in 300,000 steps: send a smaller or simpler payload"
        in done.stdout
    )


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"properties": {"email": {"pattern": "^([a-zA-Z0-9]+\\.?)+@example\\.com$"}}}, {"email": "a" * 60 + "!"}),
        ({"uniqueItems": True}, [{"n": number} for number in range(20_000)]),
    ],
)
def test_json_guard_can_be_interrupted_and_its_run_resumed(tmp_path, schema, value):
    (tmp_path / "contact.md").write_text(DOCUMENT)
    (tmp_path / "schema.json").write_text(json.dumps(schema))
    (tmp_path / "reply.md").write_text(f"```\n{json.dumps(value)}\n```\n")
    command = [
        sys.executable,
        "-c",
        "from dsa.cli.main import main; main()",
        "run",
        "contact.md",
        "--model",
        "scripted:reply.md",
    ]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    try:
        while process.poll() is None and not _is_judging(process.pid):
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=30)
    finally:
        process.kill()
    assert (process.returncode, "interrupted; what was done so far is saved" in said) == (130, True), said
    done = _dsa(tmp_path, "resume", "last")
    assert (done.returncode, " rejected " in done.stdout) == (1, True), done.stdout
    told = _dsa(tmp_path, "show", "last", "--jsonl").stdout
    assert "This text could not be judged by the schema within 5 s: write it shorter and simpler." in told


def _is_judging(process):
    """Return whether a child of a process has used more than a second of CPU time: the judge, not a probe."""
    ticks = os.sysconf("SC_CLK_TCK")
    for below in _below(process):
        try:
            fields = Path(f"/proc/{below}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[11]) > ticks:
            return True
    return False


def _below(process):
    try:
        found = {
            each for tasks in Path(f"/proc/{process}/task").glob("*/children") for each in tasks.read_text().split()
        }
    except OSError:
        return
    for each in found:
        yield each
        yield from _below(each)
