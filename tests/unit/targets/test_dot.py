"""DOT text: its frames, its lines, the rows of a trace."""

import re
from html import unescape
from xml.etree import ElementTree as ET

import attrs
import pytest
from hypothesis import given, settings

from dsa.declarations import Assign, Transition
from dsa.expr import Boolean
from dsa.targets.dot import dot
from dsa.testing.strategies import machines


def arrows(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if " -> " in line and "label=" in line]


def test_every_row_is_drawn_in_table_order(review):
    events = [re.search("<B>(.*?)</B>", line)[1] for line in arrows(dot(review))]
    assert events == [row.event for row in review.transitions if row.target != "="]


@settings(deadline=None, max_examples=30)
@given(machines(claims=False))
def test_every_label_is_well_formed_and_says_the_condition(machine):
    text = dot(machine)
    labels = re.findall(r"label=<(<TABLE.*?</TABLE>)>", text)
    for label in labels:
        ET.fromstring(label)
    assert len(labels) >= len(machine.leaves)
    for parent in machine.parents:
        if any(row.source == parent for row in machine.transitions):
            assert f'subgraph "cluster {parent}" {{' in text


def test_comparison_signs_are_escaped(dual_state):
    line = next(line for line in arrows(dot(dual_state)) if "retries += 1" in line)
    assert "retries &lt; rmax]" in line
    assert "retries < rmax]" in unescape(line)


def test_a_parent_is_entered_by_its_dot_and_left_from_the_box_for_all_its_states(review):
    text = dot(review)
    assert '"idle" -> "review entry" [' in text
    assert '"review entry" -> "review.drafting"\n' in text
    assert '"review any" -> "review.waiting" [' in text
    assert '"* any" -> "closed" [' in text


def test_verdicts_differ_without_colour(dual_state):
    lines = {re.search(r"\[(g\.\w+)", line)[1]: line for line in arrows(dot(dual_state)) if "[g." in line}
    styles = {name: re.search(r"style=(\w+)", line)[1] for name, line in lines.items()}
    assert styles == {"g.passed": "solid", "g.failed": "dashed", "g.fatal": "dotted"}


def test_a_row_that_sets_workflow_state_is_a_double_line_or_bold(dual_state):
    doubled = [line for line in arrows(dot(dual_state)) if ":#ffffff:" in line]
    assert len(doubled) == 1
    assert "satisfied = true" in doubled[0]
    row = Transition("idle", "specification", "=", updates=(Assign("satisfied", Boolean(value=False)),))
    inside = dot(attrs.evolve(dual_state, transitions=(row,)))
    assert "<B>specification / satisfied = false</B>" in inside


def test_there_is_a_legend_only_where_lines_need_one(dual_state):
    assert 'label="Lines: green = passed, dashed = failed, dotted = fatal, double' in dot(dual_state)
    plain = attrs.evolve(dual_state, transitions=dual_state.transitions[:2])
    assert "Lines:" not in dot(plain)


@pytest.mark.parametrize("by_line", [True, False])
def test_the_rows_of_a_trace_are_heavy_and_all_others_faint(dual_state, by_line):
    taken = dual_state.transitions[:2]
    trace = [row.span.line for row in taken] if by_line else taken
    heavy = [line for line in arrows(dot(dual_state, trace=trace)) if "penwidth=2.5" in line]
    faint = [line for line in arrows(dot(dual_state, trace=trace)) if "#b0b0b0" in line]
    assert [re.search("<B>(.*?)</B>", line)[1] for line in heavy] == ["specification", "artifact"]
    assert len(faint) == 4


def test_without_a_trace_nothing_is_heavy_or_faint(dual_state):
    assert "2.5" not in dot(dual_state)
    assert "#b0b0b0" not in dot(dual_state)


def test_what_a_state_waits_for_is_in_its_box(dual_state):
    assert "waits for execute_guard" in dot(dual_state)
    assert "waits for everything" in dot(dual_state, waiting={"idle": frozenset({"everything"})})
