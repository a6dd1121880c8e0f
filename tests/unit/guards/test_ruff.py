import importlib.util
import sysconfig
import tempfile
from pathlib import Path

import pytest
from conftest import NOT_TESTED

from dsa.edge.sandbox import RUNGS, probe
from dsa.errors import BindingError
from dsa.guards import RuffGuard
from dsa.guards.feedback import MOST_CHARACTERS
from dsa.runtime.content import Artifact


def says(code, **options):
    result = RuffGuard(**options).validate(Artifact(f"Here:\n```python\n{code}```\n"))
    assert not result.fatal
    assert result.passed == (not result.feedback)
    return result.feedback


@pytest.mark.parametrize("rung", RUNGS)
def test_faults_are_named_by_line_and_rule(rung):
    if probe(rung).fault:
        pytest.skip(f"{NOT_TESTED} on the sandbox's rung '{rung}': {probe(rung).fault}")
    assert says("x = 1\n", rung=rung) == ""
    assert says("x = 1\nimport os\n", select=("F",), rung=rung) == "line 2: F401 `os` imported but unused"


def test_rules_can_be_selected_and_ignored():
    assert says("import os\n", select=("E",)) == ""
    assert says("import os\n", select=("F",), ignore=("F401",)) == ""
    assert says("x = 1" + "1" * 60 + "\n", line_length=50) == "line 1: E501 Line too long (65 > 50)"
    assert "INP001" not in says("x = 1\n", select=("ALL",))


@pytest.mark.parametrize(
    "code",
    [
        "import os  # noqa\n",
        "import os  # noqa: F401\n",
        "# ruff: noqa\nimport os\n",
        "# ruff: noqa: F401\nimport os\n",
        "# flake8: noqa\nimport os\n",
        "# ruff: disable[F401]\nimport os\n# ruff: enable[F401]\n",
    ],
)
def test_no_comment_switches_a_rule_off(code):
    assert "F401 `os` imported but unused" in says(code, select=("F",))


def test_no_comment_switches_off_the_sorting_of_imports():
    assert says("# isort: skip_file\nimport sys\nimport os\n", select=("I",)) == (
        "line 1: a comment must not switch off the sorting of imports."
    )
    assert says('x = "# isort: skip_file"\n') == ""


def test_configuration_is_not_read(monkeypatch):
    """On the lowest rung ruff's working folder lies below other folders, where it would look for one."""
    with tempfile.TemporaryDirectory() as above:
        Path(above).chmod(0o755)
        (Path(above) / "ruff.toml").write_text("line-length = 20\n")
        monkeypatch.setattr(tempfile, "tempdir", above)
        assert says("x = 'more than twenty letters'\n", select=("E501",), rung="limits") == ""


def test_feedback_has_a_few_faults_and_counts_the_others():
    lines = says("".join(f"import a{n}\n" for n in range(30)), select=("F",)).split("\n")
    assert (len(lines), lines[5]) == (6, "and 25 more")
    assert len(says("".join(f"import a{n}\n" for n in range(9000)), select=("F",))) < MOST_CHARACTERS
    assert len(says(f"import {'a' * 100_000}\n", select=("F",))) < MOST_CHARACTERS


def test_name_that_looks_like_output_of_ruff_does_not_pass():
    assert says('__all__ = ["a\\nAll checks passed!"]\n', select=("F",)).startswith("line 1: F822")


def test_invalid_python_fails():
    assert says("def f(:\n") == "The code has a syntax error in line 1: invalid syntax."


@pytest.mark.parametrize("options", [{"select": ("NOPE",)}, {"line_length": 100_000}, {"ignore": ("--exit-zero",)}])
def test_invalid_options_are_refused_at_once(options):
    with pytest.raises(ValueError, match="ruff does not accept these options: "):
        RuffGuard(**options)
    with pytest.raises(ValueError, match="not a valid time limit"):
        RuffGuard(timeout_s=0)


def test_missing_ruff_is_reported_with_the_install_command(monkeypatch):
    monkeypatch.setattr(sysconfig, "get_path", lambda _: "/nowhere")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(BindingError, match=r"ruff is not installed: pip install '\.\[lint\]'"):
        RuffGuard()
    assert importlib.util.find_spec("ruff") is not None
