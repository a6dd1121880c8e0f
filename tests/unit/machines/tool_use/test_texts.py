"""Texts and values that JSON cannot write: lone surrogates, NaN, deep nesting."""

import json
import shutil
import subprocess

import pytest
from each_row import each_row
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dsa.runtime.speech import as_unicode
from machines.tool_use.records import is_writable, shell_line

BASH = shutil.which("bash")


@each_row(
    ("given", "wanted"),
    [
        ("plain", "plain"), ("\N{PARROT} é", "\N{PARROT} é"), ("\ud83e\udd9c", "\N{PARROT}"), ("half \ud83d", "half \ufffd"), ("\udd9c\ud83e", "\ufffd\ufffd"),
        ({"\ud83d": ["a", "\ud83d", 1, None]}, {"\ufffd": ["a", "\ufffd", 1, None]}), (1.5, 1.5), (None, None), ("", ""),
    ],
)  # fmt: skip
def test_value_becomes_valid_unicode(given, wanted):
    found = as_unicode(given)
    assert found == wanted
    json.dumps(found, ensure_ascii=False).encode()


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({"a": [1, 2.5, {"b": "x"}]}, True), (None, True), ({"a": [float("inf")]}, False), (float("nan"), False), (10**400, True), ({}, True), ("[" * 99, True),
    ],
)  # fmt: skip
def test_value_that_json_cannot_write_is_detected(given, wanted):
    assert is_writable(given) is wanted


def test_value_nested_too_deep_is_detected():
    deep = [[]]
    for _ in range(10_000):
        deep = [deep]
    assert not is_writable(deep)
    assert is_writable([[[[{"a": [1]}]]]])


@given(st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])), min_size=1, max_size=4))
@example(["python", "-c", "import os\nos.remove('a')", "it's \\ so", "", "a\u202egpj.sh", "\x1b[2J", "\x80", "é"])
@settings(max_examples=40, deadline=None)
def test_command_is_written_as_one_line_that_a_shell_reads_back(words):
    line = shell_line(words)
    assert line.isprintable()
    program = [BASH, "-c", f"printf '%s\\0' {line}"]
    said = subprocess.run(program, capture_output=True, check=True, env={"LC_ALL": "C.UTF-8"})
    assert said.stdout.decode().split("\0")[:-1] == words
