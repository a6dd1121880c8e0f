"""Texts of documents, models and files reach a terminal as text only, never as control codes."""

import io
import sys
import unicodedata

import pytest
from click.testing import CliRunner
from each_row import each_row

from dsa.cli.command_line import ColouredWord, say, write
from dsa.cli.main import program
from dsa.text import printable

STEERING = (
    "\x1b]0;PWNED\x07\x1b[2J\x1b[H\x1b[32mx.md: 0 errors\x1b[0m\u202eevil\u2066\u200b\u200f\ufeff\u2028\x9b31m\x7f\r\b"
)
DOCUMENT = """# m

## Transitions
| source | event | target |
| ------ | ----- | ------ |
| a      | go    | {0}    |

## Properties
- always {0}
- {0} leads to {0}

## {0}
| {0} | note |
| --- | ---- |
| {0} | {0}  |
"""


TURNING = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
UNSEEN = set("\u00ad\u200b\u200c\u200d\u200e\u200f\u061c\u2060\ufeff")


def is_safe(text):
    return not any(
        (unicodedata.category(letter) in {"Cc", "Cs", "Zl", "Zp"} and letter not in "\n\t")
        or unicodedata.bidirectional(letter) in TURNING
        or letter in UNSEEN
        for letter in text
    )


def test_control_and_invisible_characters_are_escaped():
    assert is_safe(printable("".join(map(chr, range(sys.maxunicode + 1)))))
    assert printable("tab\tline\nä € 漢 🙂") == "tab\tline\nä € 漢 🙂"
    assert printable("\x1b[2J\u202e") == "\\x1b[2J\\u202e"


@each_row(
    "command",
    [["check"], ["prove"], ["draw"], ["fmt", "--check"], ["expand"], ["why", "--state", "a"], ["odds"], ["mutate"]],
)
def test_messages_about_a_document_cannot_control_the_terminal(tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    for number, text in enumerate([DOCUMENT.replace("{0}", STEERING), f"# x {STEERING}\n", STEERING * 3]):
        (tmp_path / "m.md").write_text(text, encoding="utf-8")
        done = CliRunner().invoke(program, [*command, "m.md"])
        told = done.stdout + done.stderr
        assert is_safe(told), (number, told)


@pytest.mark.parametrize(
    "arguments",
    [
        ["check", f"--{STEERING}"],
        [STEERING],
        ["send", "x", STEERING, STEERING, STEERING],
        ["runs", "--status", STEERING],
    ],
)
def test_messages_about_an_argument_cannot_control_the_terminal(arguments):
    done = CliRunner().invoke(program, arguments)
    assert done.exit_code == 2
    assert is_safe(done.stderr), done.stderr
    assert "PWNED" in done.stderr


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_only_our_own_colours_reach_the_terminal(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    for stream, expected in (Terminal(), "\x1b[32mHOLDS\x1b[0m \\x1b[31m\n"), (io.StringIO(), "HOLDS \\x1b[31m\n"):
        monkeypatch.setattr(sys, "stdout", stream)
        say(ColouredWord("HOLDS", "green"), " \x1b[31m")
        assert stream.getvalue() == expected


def test_document_is_escaped_on_a_terminal_and_unchanged_in_a_pipe(monkeypatch):
    for stream, expected in (Terminal(), "\\u200d\n"), (io.StringIO(), "\u200d\n"):
        monkeypatch.setattr(sys, "stdout", stream)
        write("\u200d\n")
        assert stream.getvalue() == expected
