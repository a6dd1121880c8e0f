"""`dsa draw`: formats of pictures, and their options."""

import pytest
from click.testing import CliRunner

from dsa.cli.draw import command


@pytest.mark.parametrize(("name", "begins"), [("m.svg", b"<?xml"), ("m.PNG", b"\x89PNG"), ("m.dot", b"digraph"), ("m.gv", b"digraph"), ("m.md", b"stateDiagram"), ("m.txt", b"stateDiagram")])  # fmt: skip
def test_file_extension_chooses_the_format(tmp_path, name, begins):
    target = tmp_path / name
    assert CliRunner().invoke(command, ["dual_state", "-o", str(target)]).exit_code == 0
    assert target.read_bytes().startswith(begins)


def test_format_option_overrides_the_file_extension(tmp_path):
    target = tmp_path / "m.svg"
    assert CliRunner().invoke(command, ["dual_state", "--format", "dot", "-o", str(target)]).exit_code == 0
    assert target.read_text().startswith("digraph")


def drawn(*arguments: str) -> str:
    done = CliRunner().invoke(command, list(arguments))
    assert done.exit_code == 0, done.output
    return done.output


def test_steps_document_is_drawn_as_steps_or_with_the_rows_option_as_rows():
    assert drawn("workflow").startswith("flowchart TB\n")
    assert '"g_impl" [label' in drawn("workflow", "--format", "dot")
    assert drawn("workflow", "--rows").startswith("stateDiagram-v2\n")
    assert '"validating.g_impl" [label' in drawn("workflow", "--rows", "--format", "dot")
    assert ">validating.g_impl</text>" in drawn("workflow", "--rows", "--format", "svg")


def test_rows_option_changes_nothing_for_a_document_without_steps():
    assert drawn("dual_state", "--rows") == drawn("dual_state")


@pytest.mark.parametrize("form", ["dot", "mermaid", "svg"])
def test_large_machine_is_drawn_in_full_with_the_full_option(form):
    whole, folded = drawn("chat", "--full", "--format", form), drawn("chat", "--format", form)
    assert ("asked 9" in whole, "cancel, report_time_out" in whole) == (False, True)
    assert ("asked 9" in folded, "after 15m / running = 0, cancel, report_time_out" in folded) == (True, True)
