"""A process that stores artifacts in git and is killed at a call of its own choosing; run by test_git_kill.py.

Reads cases, one JSON list a line: the calls at which the first process, then the one that goes on after it, and so on, are
killed by SIGKILL (0: never). A negative number kills in the middle of that call, after half of what it writes. Prints for
each case what the processes were told is stored, whether each was killed, and how many calls the last one made.
"""

import json
import os
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from artifact_runs import RUN, attempt, said_of
from os_calls import REAL, handled

from dsa.edge.git import GitArtifacts

ATTEMPTS = 3


def killing(at, count):
    """Give what kills this process at its n-th call."""

    def handle(name, arguments, perform):
        count[0] += 1
        if count[0] == abs(at):
            if at < 0 and name == "write":
                REAL["write"](arguments[0], arguments[1][: len(arguments[1]) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
        return perform()

    return handled(handle)


def work(repository, tell):
    """Store a run, from its beginning, as one that is resumed would; tell what is stored."""
    store, made = GitArtifacts(repository, RUN, now_s=lambda: 1_790_000_000.0), None  # the same calls each time
    for number in range(1, ATTEMPTS + 1):
        made = store.store(attempt(number, made), "llm")
        tell({"stored": made.artifact_id})
        store.record_verdict(said_of(made))
        tell({"judged": made.artifact_id})


def victim(repository, at):
    """Run in a process of its own; give what it told, and whether it was killed."""
    reading, writing = os.pipe()
    process = os.fork()
    if process == 0:
        count = [0]

        def tell(what):
            REAL["write"](writing, json.dumps(what).encode() + b"\n")

        with killing(at, count):
            work(repository, tell)
        tell({"calls": count[0]})
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        told = [json.loads(line) for line in pipe]
    _, status = os.waitpid(process, 0)
    killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    assert killed or status == 0, f"the process failed: {told}"
    return told, killed


def main():
    """Answer each line with what came of the case."""
    for number, line in enumerate(sys.stdin):
        repository = Path(sys.argv[1]) / f"{number}.git"
        ends = [victim(repository, at) for at in json.loads(line)]
        told = [what for said, _ in ends for what in said]
        print(json.dumps({"repository": str(repository), "told": told, "killed": [end for _, end in ends]}), flush=True)


if __name__ == "__main__":
    main()
