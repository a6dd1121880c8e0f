"""Endless answers and oversized documents: the memory that the program needs, and its messages."""

import json
import re
import subprocess
import sys

import pytest
from stream_server import answered, serving

from dsa.errors import MachineError
from dsa.lang import MOST_CHARACTERS, loads

pytest.importorskip("httpx", reason="the extra `llm` is not installed")

#: The program, which leaves the system's report of its memory; `wait4` would include the process that it was forked from.
PROGRAM = [
    sys.executable,
    "-c",
    "import atexit, shutil; atexit.register(shutil.copyfile, '/proc/self/status', 'status.txt'); from dsa.cli.main import main; main()",
]
SLUG = """# slug

## Steps
| step | guard  | rmax | task                                 |
| ---- | ------ | ---- | ------------------------------------ |
| code | syntax | 0    | A program that does {specification}. |
"""


def _run(folder, *arguments):
    """Run the program; return its exit code, its output, and its peak memory in MB."""
    done = subprocess.run([*PROGRAM, *arguments], cwd=folder, capture_output=True, text=True, check=False, timeout=300)
    most_kb = re.search(r"VmHWM:\s+(\d+) kB", (folder / "status.txt").read_text())
    assert most_kb
    return done.returncode, done.stdout + done.stderr, int(most_kb[1]) // 1024


def _event(text):
    return f"data: {json.dumps({'choices': [{'index': 0, 'delta': {'content': text}}]})}\n\n".encode()


@pytest.mark.parametrize(
    ("pieces", "says"),
    [
        ([_event("y" * 100_000)] * 2_000, "does not stop: its answer has more than 67,108,864 bytes, and was cut off there; set max_tokens"),
        ([b'data: {"a":"', *[b"z" * 100_000] * 2_000], "a line of the stream is longer than 33554432 bytes"),
        ([b'{"choices":' + b"[" * 200_000 + b"]" * 200_000 + b"}"], "the stream has text that is not valid JSON"),
    ],
)  # fmt: skip
def test_oversized_answer_fails_within_bounded_memory(tmp_path, pieces, says):
    (tmp_path / "slug.md").write_text(SLUG)
    with serving(answered(*pieces)) as (address, _):
        code, _, most_mb = _run(tmp_path, "run", "slug.md", "x", "--model", f"{address}/v1#m")
        assert code == 1
    assert says in _run(tmp_path, "show", "last", "--jsonl")[1]
    assert most_mb < 600


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("# m\n" + "x" * 12_000_000, "has 12,000,004 bytes; the limit is 2,000,000 characters"),
        ("# m\n" + "x" * MOST_CHARACTERS, "the document has 2,000,004 characters; the limit is 2,000,000"),
        (f"# m\n\n## States\n{'| x ' * 50_000}|\n{'| - ' * 50_000}|\n", "this table has 50,000 columns; the limit is 200"),
        (f"# m\n\n## Transitions\n| source | event | if | target |\n| - | - | - | - |\n| a | b | {'(' * 900_000} | c |\n", "nested more than 60 levels deep"),
        ("# m\n" + ">" * 1_000_000 + " x\n", "1 error,"),
        ("# m\n" + "".join(f"{'  ' * depth}- x\n" for depth in range(1_300)), "1 error,"),
        ("# m\n" + "[" * 900_000 + "]" * 900_000, "1 error,"),
    ],
)  # fmt: skip
def test_oversized_document_gives_one_message_within_bounded_memory(tmp_path, text, says):
    (tmp_path / "m.md").write_text(text)
    code, told, most_mb = _run(tmp_path, "check", "m.md")
    assert (code in {1, 2}, says in told, len(told) < 4_000) == (True, True, True), told[:2_000]
    assert most_mb < 600


def test_text_has_the_same_size_limit_as_a_file():
    with pytest.raises(MachineError, match="DSA114: the document has 3,000,000 characters"):
        loads("x" * 3_000_000)


def test_deeply_nested_data_gives_one_message(tmp_path):
    (tmp_path / "slug.md").write_text(SLUG)
    code, told, most_mb = _run(tmp_path, "run", "slug.md", "--data", "[" * 100_000)
    assert (code, "--data begins like JSON but is not valid: it is nested too deeply" in told) == (2, True), told[-300:]
    assert most_mb < 300
