"""Steps drawn as steps: the lines of a box, the arrows, and how DOT and Mermaid spell them."""

import re

import pytest
from repository import all_machines

from dsa.lang import loads, spell_out
from dsa.targets import dot, mermaid
from dsa.targets.picture import StepArrow, reached_steps, step_picture


def steps(*rows: str, goal: str = "") -> str:
    """Return a document with the given rows of `step | requires | generator | guard | uses | rmax | optional`."""
    table = [
        "# m",
        "## Steps",
        "| step | requires | generator | guard | uses | rmax | optional |",
        "| - | - | - | - | - | - | - |",
    ]
    return "\n".join([*table, *(f"| {row} |" for row in rows), "", f"Goal: {goal}" if goal else ""])


def arrows(*rows: str) -> list[tuple[str, str, str, tuple[str, ...]]]:
    return [(a.source, a.target, a.relation, a.names) for a in step_picture(loads(steps(*rows))).arrows]


def test_box_shows_guards_retries_and_unusual_settings():
    rows = ("a | | | syntax | | 2 |", "b | a or not a | writer | syntax, sound | | | yes")
    usual, other = step_picture(loads(steps(*rows, goal="a") + "\nResult: a\n")).boxes
    assert (usual.lines, usual.is_optional) == (("guard syntax", "rmax 2", "result"), False)
    assert other.lines == ("generator writer", "guard syntax, sound", "rmax 3", "requires a or not a", "optional")
    assert other.is_optional


def test_named_result_is_marked():
    text = steps("a | | | g | | |", "b | a | | g | | |")
    assert [(box.is_result, "result" in box.lines) for box in step_picture(loads(text)).boxes] == [(False, False)] * 2
    named = loads(f"{text}\nResult: a\n")
    assert [(box.is_result, "result" in box.lines) for box in step_picture(named).boxes] == [
        (True, True),
        (False, False),
    ]
    assert [line.count("peripheries=2") for line in dot(named).splitlines() if "<TABLE" in line] == [1, 0]


def test_rmax_in_a_box_is_the_value_of_the_machine():
    machine = loads(steps("a | | | syntax | | 2 |")).at(rmax=7)
    assert step_picture(machine).boxes[0].lines == ("guard syntax", "rmax 7")


def test_required_step_whose_artifact_is_used_has_one_arrow():
    assert arrows("a | | | g | | |", "b | a | | g | test = a; text = a | |") == [
        ("a", "b", "requires", ("test", "text"))
    ]


def test_used_but_not_required_step_has_its_own_arrow():
    assert arrows("a | | | g | | |", "b | a | | g | | |", "c | b | | g | one = a | |") == [
        ("a", "b", "requires", ()), ("b", "c", "requires", ()), ("a", "c", "uses", ("one",)),
    ]  # fmt: skip


def test_consecutive_steps_have_an_arrow():
    assert arrows("a | | | g | | |", "b | | | g | | |") == [("a", "b", "then", ())]


def test_steps_chosen_by_a_goal_have_no_order():
    """With a goal the next step is the first that is ready, so the order of the table is not an order in time."""
    machine = loads(steps("a | | | g | | |", "b | | | g | | |", goal="a and b"))
    assert (step_picture(machine).arrows, step_picture(machine).goal) == ((), "a and b")


def test_requirement_with_an_expression_has_an_arrow_from_each_step_in_it():
    assert arrows("b | | | g | | |", "a | | | g | | |", "c | b or not a | | g | | |") == [
        ("a", "c", "requires", ()), ("b", "c", "requires", ()),
    ]  # fmt: skip


STEPS = {name: machine for name, machine in all_machines().items() if machine.steps}


@pytest.mark.parametrize("name", STEPS)
def test_every_step_and_arrow_is_in_dot_and_in_mermaid(name):
    machine = STEPS[name]
    drawn, boxes, chart = step_picture(machine), dot(machine), mermaid(machine)
    for step in machine.steps:
        assert f"<B>{step.name}</B>" in boxes
        assert f's_{step.name}["<b>{step.name}</b><br/>' in chart
    lines = re.findall(r"^ +s_(\w+) (-->|-\.->|-\.-o)(?:\|\"(.*?)\"\|)? s_(\w+)$", chart, re.MULTILINE)
    relation = {"-->": "requires", "-.->": "uses", "-.-o": "then"}
    found = [StepArrow(a, b, relation[line], tuple(names.split(", ")) if names else ()) for a, line, names, b in lines]
    assert found == list(drawn.arrows)
    assert [ends_of(boxes, number, arrow) for number, arrow in enumerate(drawn.arrows, 1)] == [
        (arrow.source, arrow.target) for arrow in drawn.arrows
    ]


def ends_of(text: str, number: int, arrow: StepArrow) -> tuple[str, str]:
    """Return where an arrow begins and ends in DOT: in one line, or in two halves around the names."""
    if not arrow.names:
        (ends,) = re.findall(rf'^  "({arrow.source})" -> "({arrow.target})" \[', text, re.MULTILINE)
        return ends
    (tail,) = re.findall(rf'"(\w+)" -> "use {number}"', text)
    (head,) = re.findall(rf'"use {number}" -> "(\w+)"', text)
    return tail, head


def test_every_line_of_a_flow_chart_follows_the_grammar():
    line = re.compile(
        r"""flowchart\ TB | classDef\ (goal|optional)\ [\w:,\- ]+ | class\ s_\w+(,s_\w+)*\ optional
        | s_\w+\["<b>\w+</b>(<br/>[^"<>]+)+"\] | s_\w+\ (-->|-\.->|-\.-o)(\|"[\w,\ ]+"\|)?\ s_\w+
        | goal\["Goal:\ [^"<>]+"\]:::goal""",
        re.VERBOSE,
    )
    for machine in STEPS.values():
        assert [text for text in mermaid(machine).splitlines() if not line.fullmatch(text.strip())] == []


def test_expansion_is_drawn_row_by_row():
    machine = spell_out(STEPS["workflow"])
    assert mermaid(machine).startswith("stateDiagram-v2")
    assert '"validating.g_impl"' in dot(machine)


def test_steps_that_a_trace_begins_are_heavy_and_the_others_faint():
    machine = STEPS["workflow"]
    first = [row for row in machine.transitions if row.target == "generating.g_test"][:1]
    assert reached_steps(machine, first) == {"g_test"}
    begun, other = (line for line in dot(machine, trace=first).splitlines() if "<TABLE" in line)
    assert ("penwidth=2.5" in begun, "#b0b0b0" in begun) == (True, False)
    assert ("penwidth=2.5" in other, "#b0b0b0" in other) == (False, True)
    assert reached_steps(machine, [machine.steps[1].span.line]) == {"g_impl"}


def test_legend_explains_only_the_lines_in_the_picture():
    chain = dot(loads(steps("a | | | g | | |", "b | | | g | | |")))
    assert 'label="Lines: dotted = comes next"' in chain
    assert 'label="Goal: a\\nLines: solid = requires"' in dot(
        loads(steps("a | | | g | | |", "b | a | | g | | |", goal="a"))
    )
    assert 'label="' not in dot(loads(steps("a | | | g | | |")))
