"""One door to the text formats."""

import subprocess
import sys

import pytest

from dsa.errors import DsaError
from dsa.targets import FORMATS, emit


def test_unknown_format_is_an_error_that_names_the_known_ones(dual_state):
    with pytest.raises(DsaError, match=r"'svgg'.*mermaid, dot, table"):
        emit(dual_state, "svgg")


@pytest.mark.parametrize("format_name", FORMATS)
def test_every_format_ends_in_one_newline(format_name, dual_state):
    text = emit(dual_state, format_name)
    assert text.endswith("\n")
    assert not text.endswith("\n\n")


def test_targets_are_imported_without_python_statemachine():
    code = "import sys, dsa.targets, dsa.targets.statechart; sys.exit('statemachine' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
