"""Feedback of every kind of guard: it is short, printable, and has no expected values unless they are requested."""

import json

import pytest

from dsa.declarations import Case, Cases, Guard
from dsa.guards import GuardInterface, GuardResult
from dsa.guards.feedback import MOST_CHARACTERS, MOST_LINES
from dsa.guards.guard_kinds import KINDS, build_guard
from dsa.machine import Machine
from dsa.runtime.content import Artifact, GeneratorInterface

WANTED = "wanted_4711"
LONG = "x" * 60_000
CODE = {
    "wrong": "def f(n=0):\n    return 'other'\n",
    "says much": f"def f(n=0):\n    return '{LONG}'\n",
    "raises much": f"def f(n=0):\n    raise ValueError('{LONG}')\n",
    "many lines": "def f(n=0):\n    return '\\n\\x1b[2J\\ud800' * 9000\n",
    "cannot be loaded": f"raise ValueError('{LONG}')\n",
    "long names": f"import {LONG}\nimport socket.{LONG}\n{LONG}: int = ''\n",
    "many faults": "\n".join(f"import socket\nimport subprocess.a{n}\nx{n}: int = ''" for n in range(300)),
    "no code": f"def {LONG}(:\n",
    "global": f"def f({LONG}):\n    global {LONG}\n",
}
TEXTS = {
    "not JSON": f"[{LONG}",
    "wrong": json.dumps({"a": "other", "b": "other"}),
    "much": json.dumps({"a": LONG, "b": [LONG] * 20}),
    "long names": json.dumps({"a": 1, LONG: {LONG: 1}, **{f"k{n}": LONG for n in range(500)}}),
    "control": "\x1b[2J\ud800\0\n" * 5000,
    "large number": "9" * 60_000,
}
SHAPES = f"""
from typing import Literal
import pydantic
class Shape(pydantic.BaseModel, extra="forbid"):
    a: Literal["{WANTED}"]
    b: Literal["{WANTED}", "x"]
"""
SCHEMA = {"properties": {"a": {"const": WANTED}, "b": {"enum": [WANTED]}}, "additionalProperties": False}
TESTS = f"def test_f():\n    assert f() == '{WANTED}'\n" + "".join(
    f"def test_{'long' * 50}_{n}():\n    assert f({n}) == '{WANTED}'\n" for n in range(40)
)
#: Useless tests of code that does not exist yet.
NEW_TESTS = {
    "needs missing fixtures": "".join(
        f"def test_{n}({LONG[:900]}{n}):\n    assert f() == '{WANTED}'\n" for n in range(40)
    ),
    "own code": f"def f():\n    return '{WANTED}'\n{TESTS.partition('def test_long')[0]}",
    "many definitions": "".join(f"def f{n}{LONG[:900]}():\n    return 1\n" for n in range(40)),
    "module": f"import sympy.{LONG}\n{TESTS}",
}
#: The options of each kind and the texts that it judges; kinds with `show_expected` are tried with it as well.
OPTIONS = {
    "syntax": ((), CODE),
    "cases": ((), CODE),
    "pytest": (("file", "tests.py"), CODE),
    "tests": ((), CODE),
    "are_tests": ((), {**CODE, **NEW_TESTS}),
    "forbidden": ((), CODE),
    "ruff": (("select", "ALL"), CODE),
    "mypy": (("strict", "true"), {name: CODE[name] for name in ("wrong", "long names", "many faults")}),
    "command": (("command", "sh -c 'cat; cat; exit 1'"), TEXTS),
    "json": (("schema", "schema.json"), TEXTS),
    "pydantic": (("model", "shapes.py:Shape"), TEXTS),
    "regex": (("pattern", "^nothing of all that$"), TEXTS),
    "review": ((), TEXTS),
    "judge": (("question", "Is it right?"), TEXTS),
    "in_order": (("of", "wordy"), TEXTS),
    "all": (("of", ", ".join(f"wordy{n}" for n in range(30))), TEXTS),
    "any": (("of", "wordy, wordy1"), TEXTS),
    "at_least": (("of", "wordy, wordy1, wordy2"), TEXTS),
}
TELL_EXPECTED = {name for name, kind in KINDS.items() if "show_expected" in {option.name for option in kind.options}}


class Wordy(GuardInterface):
    """A guard of a user, with long feedback."""

    def validate(self, artifact, **dependencies):
        return GuardResult(passed=False, feedback="\n".join([artifact.content[:1000] + "word " * 50] * 100))


class Talks(GeneratorInterface):
    """A judge with long answers."""

    def generate(self, context, template=None):
        return Artifact(f"FAIL: {LONG}\n" * 5)


def guard(kind, *more):
    options = tuple(pair for pair in (OPTIONS[kind][0], *more) if pair)
    if kind == "at_least":
        options += (("k", "2"),)
    cases = tuple(Case(f"f({n})", repr(WANTED)) for n in range(40))
    machine = Machine("m", (), (), "", guards=(Guard("g", kind=kind, options=options),), cases=(Cases("g", cases),))
    extra = {"wordy": Wordy(), **{f"wordy{n}": Wordy() for n in range(30)}}
    return build_guard("g", machine, extra, lambda _: Talks())


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "schema.json").write_text(json.dumps(SCHEMA))
    (tmp_path / "shapes.py").write_text(SHAPES)
    (tmp_path / "tests.py").write_text(TESTS)


def test_every_kind_of_guard_is_covered():
    assert set(OPTIONS) == set(KINDS)


@pytest.mark.parametrize("kind", sorted(OPTIONS))
@pytest.mark.usefixtures("files")
def test_feedback_is_short_printable_and_without_expected_values(kind):
    asked = [guard(kind)] + [guard(kind, ("show_expected", "true")) for _ in TELL_EXPECTED & {kind}]
    for number, each in enumerate(asked):
        for name, text in OPTIONS[kind][1].items():
            result = each.validate(Artifact(text), test=Artifact(TESTS))
            said = result.feedback
            assert len(said) <= MOST_CHARACTERS, (name, len(said))
            assert len(said.split("\n")) <= MOST_LINES, (name, said)
            assert all(line.isprintable() for line in said.split("\n")), (name, said)
            assert number == 1 or WANTED not in said, (name, said)
            assert result.passed or said, name


@pytest.mark.parametrize("kind", sorted(TELL_EXPECTED))
@pytest.mark.usefixtures("files")
def test_expected_values_are_shown_on_request(kind):
    said = guard(kind, ("show_expected", "true")).validate(Artifact(OPTIONS[kind][1]["wrong"]), test=Artifact(TESTS))
    assert WANTED in said.feedback
