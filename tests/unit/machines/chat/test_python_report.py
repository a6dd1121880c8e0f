import json
import re

import pytest
from each_row import each_row

from dsa.edge.sandbox import Bounds, SandboxOutcome
from dsa.errors import ToolError
from machines.chat.interpreter import read_outcome

BOUNDS = Bounds(timeout_s=5, cpu_s=5, output_bytes=10)
WELL = {"value": "42", "error": None, "fault": ""}


def report(said=WELL, status=0, files=(), content=b"", **more):
    text = said if isinstance(said, str) else json.dumps(said)
    return json.dumps({"status": status, "said": text, "files": list(files), **more}).encode() + b"\n" + content


def outcome(results=b"", ended="exited", code=0, output=b"", tail=b"", cpu_s=0.1):
    return SandboxOutcome(ended, code, results, output, 1.5, cpu_s, "bubblewrap", frozenset({"no network"}), tail)


def test_complete_report_gives_a_result():
    result = read_outcome(
        outcome(report(files=[["a.txt", "file", 2], ["b.txt", "file", 1]], content=b"xyz"), output=b"hi\n"),
        BOUNDS,
        "6 * 7",
    )
    assert (result.output, result.value, result.seconds, result.rung) == ("hi\n", "42", 1.5, "bubblewrap")
    assert [(file.name, file.content) for file in result.files] == [("a.txt", b"xy"), ("b.txt", b"z")]


@each_row(
    "results",
    [
        b"", b"\n", b"[]\n", b"{}\n", b"\xff\n", b"[" * 100_000 + b"\n", report()[:-1], report(more=1), report() + b"x", report(status="0"),
        report(files=[["a.txt", "file", 2]], content=b"x"), report(files=[["a.txt", "file", -1]]), report(files=[["a.txt", "file", True]], content=b"x"),
        report(files=[["", "file", 0]]), report(files=[["a", "file"]]), report(files=["a"]), report(files=[["a", 1, 0]]), report("no JSON"), report("[]"),
        report({"value": 1, "error": None, "fault": ""}), report({"value": ""}), report({"error": {"types": [], "message": "", "places": []}}),
        report({"error": {"types": ["E"], "message": 1, "places": []}}), report(WELL | {"more": 1})[:-5],
    ],
)  # fmt: skip
def test_invalid_report_is_refused_as_a_whole(results):
    with pytest.raises(ToolError) as refused:
        read_outcome(outcome(results, output=b"hi"), BOUNDS, "1")
    assert (refused.value.code, refused.value.about) == ("bad_result", {"output": "hi"})


@each_row(
    ("given", "code", "said"),
    [
        (outcome(ended="timeout"), "python_timeout", "did not finish within 5 s"),
        (outcome(ended="flooded"), "bad_result", "sent back too much data"),
        (outcome(ended="lost"), "python_killed", "was lost"),
        (outcome(ended="signalled", code=9), "python_killed", "SIGKILL), perhaps because it used too much memory"),
        (outcome(ended="signalled", code=9, cpu_s=4.9), "python_timeout", "more than 5 s of processor time"),
        (outcome(report("", status=-11)), "python_killed", "SIGSEGV"),
        (outcome(report("", status=-9), cpu_s=5.0), "python_timeout", "processor time"),
        (outcome(report("", status=-99)), "python_killed", "(99)"),
        (outcome(report("", status=7)), "python_killed", "exit status 7"),
        (outcome(report({"value": "", "error": None, "fault": "no table"})), "bad_table", "no table"),
        (outcome(report(files=[["a", "file", 9 << 20]])), "files_too_large", "8 MB"),
        (outcome(report(files=[["a", "file", 0]] * 21)), "too_many_files", "20 files"),
        (outcome(report(files=[["a", "a link", 0]])), "bad_file", "'a' in the working folder is a link"),
    ],
)
def test_each_kind_of_end_has_its_code(given, code, said):
    with pytest.raises(ToolError, match=re.escape(said)) as raised:
        read_outcome(given, BOUNDS, "1")
    assert raised.value.code == code


def test_error_lines_come_from_the_code_rather_than_the_report():
    places = [[1, "<module>"], [2, "f\x1b[2J"], [99, "f"], [0, "f"], ["1", "f"], [-1, "f"]]
    error = {"types": ["E\x1b"], "message": "\x1b]0;\ud800m" * 1000, "places": places}
    with pytest.raises(ToolError) as raised:
        read_outcome(outcome(report({"error": error})), BOUNDS, "one\n  two")
    lines = str(raised.value).splitlines()
    assert lines[0].startswith("E: ]0;?m")
    assert len(lines[0]) < 700
    assert lines[1:] == ["  line 1: one", "  line 2, in f[2J: two"]


def test_cut_output_is_marked_and_has_no_terminal_codes():
    whole = read_outcome(outcome(report(), output=b"0123456789", tail=b"ab"), BOUNDS, "1").output
    cut = read_outcome(outcome(report(), output=b"0123456789", tail=b"abcdefghij"), BOUNDS, "1").output
    assert (whole, cut) == ("0123456789ab", "0123456789\n[.. output cut ..]\nabcdefghij")
    assert (
        read_outcome(outcome(report(), output=b"\x1b[1m\r\na\rb\x00\xff\xe2\x80\xae"), BOUNDS, "1").output
        == "[1m\na\nb\ufffd"
    )
