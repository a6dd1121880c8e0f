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


def drawn(*arguments: str) -> str:
    done = CliRunner().invoke(command, list(arguments))
    assert done.exit_code == 0, done.output
    return done.output


def test_a_steps_document_is_drawn_as_its_steps_and_with_rows_as_what_they_stand_for():
    assert drawn("workflow").startswith("flowchart TB\n")
    assert '"g_impl" [label' in drawn("workflow", "--format", "dot")
    assert drawn("workflow", "--rows").startswith("stateDiagram-v2\n")
    assert '"validating.g_impl" [label' in drawn("workflow", "--rows", "--format", "dot")
    assert ">validating.g_impl</text>" in drawn("workflow", "--rows", "--format", "svg")


def test_rows_change_nothing_where_there_are_only_rows():
    assert drawn("dual_state", "--rows") == drawn("dual_state")


@pytest.mark.parametrize("form", ["dot", "mermaid", "svg"])
def test_a_large_machine_is_drawn_in_full_where_that_is_wanted(form):
    whole, folded = drawn("chat", "--full", "--format", form), drawn("chat", "--format", form)
    assert ("asked 9" in whole, "cancel, report_time_out" in whole) == (False, True)
    assert ("asked 9" in folded, "after 15m / running = 0, cancel, report_time_out" in folded) == (True, True)
