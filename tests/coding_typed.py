"""`dsa code` as it is typed, in a folder with a script for a model."""

import json
import subprocess

from forked import DSA

PLAN = '[{"description": "Do it", "subtasks": ["write_file what is wanted"]}]'


def block(reply):
    return f"```\n{reply if isinstance(reply, str) else json.dumps(reply)}\n```\n\n"


def calls(*pairs):
    return {"tool_calls": [{"name": name, "arguments": arguments} for name, arguments in pairs]}


WRITE = calls(("write_file", {"path": "a.txt", "content": "one\n"}))
DONE = calls(("mark_subtask_complete", {"success": True}))
FAILED = calls(("mark_subtask_complete", {"success": False, "reason": "no"}))


def typed_in(folder):
    """Make a folder to work in, and give who types the command beside it, with a script; gives what came of it."""
    (folder / "work").mkdir()

    def run(*arguments, script=(PLAN, WRITE, DONE), command="code", said=""):
        if command == "code":
            (folder / "script.md").write_text("".join(map(block, script)))
        more = ["--model", "scripted:script.md", "-w", "work"] if command == "code" else []
        typed = [*DSA, command, *arguments, *more]
        return subprocess.run(typed, cwd=folder, input=said, capture_output=True, text=True, check=False, timeout=120)

    return run
