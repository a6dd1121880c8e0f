"""DOT text: its frames, its lines, the rows of a trace."""

import re
from html import unescape
from unittest.mock import patch
from xml.etree import ElementTree as ET

import attrs
import pytest
from hypothesis import given, settings

import dsa.targets.picture as picture_module
from dsa.declarations import Assign, Transition
from dsa.expr import Boolean
from dsa.targets.dot import dot
from dsa.testing.strategies import machines


def arrows(text: str) -> list[str]:
    """Return the lines that draw each row with an arrow: its label, and its two halves."""
    lines, count = text.splitlines(), text.count("label=<<FONT")
    found = [[line.strip() for line in lines if f'"arrow {number}"' in line] for number in range(1, count + 1)]
    assert {len(one) for one in found} <= {3}
    return ["\n".join(one) for one in found]


def test_every_row_is_drawn_in_table_order(review):
    events = [re.search("<B>(.*?)</B>", line)[1] for line in arrows(dot(review))]
    assert events == [row.event for row in review.transitions if row.target != "="]


@settings(deadline=None, max_examples=30)
@given(machines(claims=False))
def test_every_label_is_well_formed_and_every_box_and_arrow_has_one(machine):
    text = dot(machine, full=True)
    labels = [found[0] for found in re.findall(r"label=<(<(TABLE|FONT).*?</\2>)>", text)]
    for label in labels:
        ET.fromstring(label)
    assert len(labels) >= len(machine.leaves) + sum(row.target != "=" for row in machine.transitions)
    for parent in machine.parents:
        if any(row.source == parent for row in machine.transitions):
            assert f'subgraph "cluster {parent}" {{' in text


@settings(deadline=None, max_examples=30)
@given(machines(claims=False))
def test_folded_picture_has_well_formed_labels_and_lists_every_row(machine):
    with patch.object(picture_module, "MOST_ROWS", 0):
        text = dot(machine)
    for label in re.findall(r"label=<(<(TABLE|FONT).*?</\2>)>", text):
        ET.fromstring(label[0])
    if machine.transitions:
        (listed,) = re.findall(r"^  label=<(.*)>$", text, re.MULTILINE)
        numbers = re.findall(r'ALIGN="RIGHT".*?>(\d+)</FONT>', listed)
        assert sorted(map(int, numbers)) == list(range(1, len(machine.transitions) + 1))


def test_comparison_signs_are_escaped(dual_state):
    line = next(line for line in arrows(dot(dual_state)) if "retries += 1" in line)
    assert "retries &lt; rmax]" in line
    assert "retries < rmax]" in unescape(line)


def test_parent_is_entered_by_its_dot_and_left_from_the_box_for_all_its_states(review):
    text = dot(review)
    assert ends(text) == [
        ("idle", "review entry"),
        ("review any", "review.waiting"),
        ("review any", "closed"),
        ("review.drafting", "review.checking"),
        ("review.checking", "review entry"),
        ("review.checking", "review.done"),
        ("review.checking", "closed"),
        ("review.checking", "review.waiting"),
        ("review.waiting", "review.drafting"),
        ("review.waiting", "closed"),
        ("* any", "closed"),
    ]
    assert '"review entry" -> "review.drafting"\n' in text


def ends(text: str) -> list[tuple[str, str]]:
    """Return where each row's line begins, and where its arrowhead is, whichever end of the edge that is."""
    found = []
    for drawn in arrows(text):
        halves = re.findall(r'"(.*?)" -> "(.*?)" \[(.*)\]', drawn)
        (plain,) = [half for half in halves if "dir=none" in half[2]]
        (headed,) = [half for half in halves if "dir=none" not in half[2]]
        head = headed[0] if "dir=back" in headed[2] else headed[1]
        found.append((plain[0] if plain[1].startswith("arrow ") else plain[1], head))
    return found


def test_both_halves_of_a_row_that_leads_back_are_reversed(dual_state):
    text = dot(dual_state)
    assert '"generating" -> "arrow 4" [' in text
    assert '"arrow 4" -> "validating" [' in text
    assert ends(text)[3] == ("validating", "generating")


def test_label_is_in_the_innermost_frame_around_both_ends(review):
    inside = dot(review).split('subgraph "cluster review" {')[1].split("\n  }\n")[0]
    assert re.findall(r'"arrow (\d+)" \[label', inside) == ["2", "4", "5", "6", "8", "9"]


def test_verdicts_differ_without_colour(dual_state):
    lines = {re.search(r"\[(g\.\w+)", line)[1]: line for line in arrows(dot(dual_state)) if "[g." in line}
    styles = {name: re.findall(r"style=(\w+)", line) for name, line in lines.items()}
    assert styles == {"g.passed": ["solid"] * 2, "g.failed": ["dashed"] * 2, "g.fatal": ["dotted"] * 2}


def test_row_that_sets_workflow_state_is_a_double_line_or_bold(dual_state):
    doubled = [line for line in arrows(dot(dual_state)) if ":#ffffff:" in line]
    assert len(doubled) == 1
    assert doubled[0].count(":#ffffff:") == 2
    assert "satisfied = true" in doubled[0]
    row = Transition("idle", "specification", "=", updates=(Assign("satisfied", Boolean(value=False)),))
    inside = dot(attrs.evolve(dual_state, transitions=(row,)))
    assert "<B>specification / satisfied = false</B>" in inside


def test_legend_is_drawn_only_where_lines_need_one(dual_state):
    assert 'label="Lines: green = passed, dashed = failed, dotted = fatal, double' in dot(dual_state)
    plain = attrs.evolve(dual_state, transitions=dual_state.transitions[:2])
    assert "Lines:" not in dot(plain)


@pytest.mark.parametrize("by_line", [True, False])
def test_rows_of_a_trace_are_heavy_and_all_others_faint(dual_state, by_line):
    taken = dual_state.transitions[:2]
    trace = [row.span.line for row in taken] if by_line else taken
    heavy = [line for line in arrows(dot(dual_state, trace=trace)) if "penwidth=2.5" in line]
    faint = [line for line in arrows(dot(dual_state, trace=trace)) if "#b0b0b0" in line]
    assert [re.search("<B>(.*?)</B>", line)[1] for line in heavy] == ["specification", "artifact"]
    assert {line.count("penwidth=2.5") for line in heavy} == {2}
    assert len(faint) == 4
    # The label and its halves; the double one has four lines.
    assert {line.count("#b0b0b0") for line in faint} == {3, 5}


def test_no_row_is_heavy_or_faint_without_a_trace(dual_state):
    assert "2.5" not in dot(dual_state)
    assert "#b0b0b0" not in dot(dual_state)


def test_effects_that_a_state_waits_for_are_in_its_box(dual_state):
    assert "waits for execute_guard" in dot(dual_state)
    assert "waits for everything" in dot(dual_state, waiting_effects={"idle": frozenset({"everything"})})
