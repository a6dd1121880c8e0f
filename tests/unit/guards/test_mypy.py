import importlib.util

import pytest
from conftest import NOT_TESTED
from each_row import each_row

from dsa.edge.sandbox import RUNGS, SandboxOutcome, probe
from dsa.errors import BindingError
from dsa.guards import MypyGuard, tool_guards
from dsa.guards.feedback import MOST_CHARACTERS
from dsa.runtime.content import Artifact

WRONG = 'x: int = "a"'
SAID = 'Incompatible types in assignment (expression has type "str", variable has type "int")  [assignment]'


def says(code, **options):
    result = MypyGuard(**options).validate(Artifact(f"Here:\n```python\n{code}\n```\n"))
    assert not result.fatal
    assert result.passed == (not result.feedback)
    return result.feedback


@pytest.mark.parametrize("rung", RUNGS)
def test_faults_are_named_by_line(rung):
    if probe(rung).fault:
        pytest.skip(f"{NOT_TESTED} on the sandbox's rung '{rung}': {probe(rung).fault}")
    assert says(f"import json\ny: str = json.dumps(1)\n{WRONG}", rung=rung) == f"line 3: {SAID}"


def test_unannotated_functions_are_checked_and_refused_by_strict():
    assert 'line 2: Unsupported operand types for + ("int" and "str")' in says("def f(a):\n    return 1 + 'a'")
    assert says("def f(a):\n    return a") == ""
    assert (
        says("def f(a):\n    return a", strict=True)
        == "line 1: Function is missing a type annotation  [no-untyped-def]"
    )


def test_modules_outside_the_standard_library_are_not_checked():
    assert says("import numpy, yaml, requests, attrs\nx: int = numpy.array(1)") == ""


#: Code that silences the checker, with the beginning of its feedback; the first two silence a whole file.
SILENCED = [
    (f"# type: ignore\n{WRONG}", "line 1: `# type: ignore` is not allowed"),
    (f"# mypy: ignore-errors\n{WRONG}", "line 1: `# mypy:` is not allowed"),
    (f"{WRONG}  # type: ignore", "line 1: `# type: ignore` is not allowed"),
    ('y: int = "a"  #type:ignore[assignment]', "line 1: `# type: ignore` is not allowed"),
    ("import typing\n@typing.no_type_check\ndef f(x: int) -> str:\n    return x", "line 2: `no_type_check`"),
    ("from typing import no_type_check as n\n@n\ndef g(x: int) -> str:\n    return x", "line 1: `no_type_check`"),
]


@each_row(("code", "said"), SILENCED)
def test_code_that_silences_the_checker_is_a_fault(code, said):
    assert said in says(code)


@each_row("code", [*(code for code, _ in SILENCED[:2]), "\n".join(code for code, _ in SILENCED[2:])])
def test_silencing_the_checker_can_be_allowed(code):
    assert says(code, allow_ignores=True) == ""


def test_settings_in_strings_are_found_because_some_versions_read_them():
    assert says(f'"""\n# mypy: ignore-errors\n"""\n{WRONG}').startswith("line 2: `# mypy:` is not allowed")


def test_string_that_mentions_ignoring_is_accepted():
    assert says('x = "# type: ignore"') == ""


def test_configuration_and_plugins_are_not_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mypy.ini").write_text("[mypy]\nignore_errors = true\nplugins = nowhere.py\n")
    monkeypatch.setenv("MYPYPATH", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "json.py").write_text("def dumps(x: int) -> int: ...\n")
    assert says(f"import json\ny: str = json.dumps('')\n{WRONG}") == f"line 3: {SAID}"


def test_feedback_has_a_few_faults_and_counts_the_others():
    said = says("\n".join(f'x{n}: int = "a"' for n in range(30)))
    assert said.split("\n")[5:] == ["and 25 more"]
    assert len(says("x: int = " + repr("a") + "\n" + f"{'y' * 50_000}.z")) < MOST_CHARACTERS


def test_invalid_python_and_an_exceeded_time_limit_fail():
    assert says("def f(:") == "The code has a syntax error in line 1: invalid syntax."
    assert says("x = 1", timeout_s=0.05) == "mypy did not finish with the code within 0.05 s."


@pytest.mark.parametrize(
    ("results", "said"),
    [
        (b"", "exited, 1.: Traceback"),
        (b'[2, "", "usage: mypy"]', "usage: mypy"),
        (b'[1, "solution.py: odd", ""]', "odd"),
    ],
)
def test_failure_of_mypy_itself_is_an_error(results, said):
    outcome = SandboxOutcome("exited", 1, results, b"Traceback", 1.0, 1.0, "limits")
    with pytest.raises(match=said):
        tool_guards.faults_in(outcome)


def test_missing_mypy_is_reported_with_the_install_command(monkeypatch):
    tool_guards.program.cache_clear()
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(BindingError, match=r"mypy is not installed: pip install '\.\[lint\]'"):
        MypyGuard()
    tool_guards.program.cache_clear()
