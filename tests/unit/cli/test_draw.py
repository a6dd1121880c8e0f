"""Which format a machine is drawn in."""

import pytest
from click.testing import CliRunner

from dsa.cli.draw import command


@pytest.mark.parametrize(("name", "begins"), [("m.svg", b"<?xml"), ("m.PNG", b"\x89PNG"), ("m.dot", b"digraph"), ("m.gv", b"digraph"), ("m.md", b"stateDiagram"), ("m.txt", b"stateDiagram")])  # fmt: skip
def test_the_ending_of_the_file_says_the_format(tmp_path, name, begins):
    target = tmp_path / name
    assert CliRunner().invoke(command, ["dual_state", "-o", str(target)]).exit_code == 0
    assert target.read_bytes().startswith(begins)


def test_what_is_said_goes_before_the_ending(tmp_path):
    target = tmp_path / "m.svg"
    assert CliRunner().invoke(command, ["dual_state", "--format", "dot", "-o", str(target)]).exit_code == 0
    assert target.read_text().startswith("digraph")
