"""Mermaid text: its parser accepts it, whatever the names."""

import re
from itertools import pairwise
from unittest.mock import patch

import pytest
from hypothesis import given, settings

import dsa.targets.picture as picture_module
from dsa.declarations import Emit, Event, State, Transition
from dsa.machine import Machine
from dsa.targets.mermaid import mermaid
from dsa.targets.picture import label_text, row_texts
from dsa.testing.strategies import machines

# The part of Mermaid's grammar that we use. A label must not hold `:` or `;`: Mermaid ends it there.
STATE = r"(s|any)_\w+"
LINE = re.compile(
    rf"""stateDiagram-v2 | direction\ TB | \}} | classDef\ every\ stroke-dasharray:5\ 4
    | class\ {STATE}(,{STATE})*\ every
    | \[\*\]\ -->\ {STATE} | {STATE}\ -->\ \[\*\]
    | state\ "[A-Za-z0-9_. ]+"\ as\ {STATE}(\ \{{)?
    | %%\ \d+\ (stays|to\ [A-Za-z0-9_.]+):\ [^:;]+ | %%\ [A-Za-z0-9_. ]+
    | {STATE}\ :\ [^:;#]+ | {STATE}\ -->\ {STATE}\ :\ [^:;#]+""",
    re.VERBOSE,
)


def machine_of(*names: str, events: tuple[str, ...] = ("go",), effects: tuple[str, ...] = ()) -> Machine:
    """Return a chain through the names, one event after the other."""
    rows = tuple(
        Transition(one, events[index % len(events)], other, effects=tuple(Emit(effect) for effect in effects))
        for index, (one, other) in enumerate(pairwise(names))
    )
    states = tuple(State(name, "initial" if index == 0 else "") for index, name in enumerate(names))
    return Machine("m", rows, states, names[0], events=tuple(Event(name) for name in events))


@pytest.mark.parametrize("most_rows", [0, 1_000])
@settings(deadline=None, max_examples=30)
@given(machine=machines(claims=False))
def test_every_line_follows_the_grammar_and_braces_balance(most_rows, machine):
    with patch.object(picture_module, "MOST_ROWS", most_rows):
        text = mermaid(machine)
    for line in text.splitlines():
        assert LINE.fullmatch(line.strip()), line
    assert text.count(" {\n") == len(re.findall(r"^ *\}$", text, re.MULTILINE))


def test_no_id_is_a_keyword_of_mermaid_and_labels_are_the_true_names():
    text = mermaid(machine_of("end", "state", "note", "default", "a.b", "__proto__"))
    ids = set(re.findall(r"-->\s(\w+)", text))
    assert ids.isdisjoint({"end", "state", "note", "default", "__proto__"})
    assert 'state "end" as s_end' in text
    assert 'state "a.b" as s_a_b' in text


def test_names_that_differ_in_a_dot_have_different_ids():
    text = mermaid(machine_of("a.b", "a_b"))
    assert 'state "a.b" as s_a_b\n' in text
    assert 'state "a_b" as s_a_b_\n' in text
    assert "s_a_b --> s_a_b_ : go" in text


def test_leading_underscore_in_a_label_is_escaped():
    text = mermaid(machine_of("a", "b", events=("_go_",), effects=("__init__", "tell_me")))
    assert r" : \_go_<br/>/ \_\_init__, tell_me" in text


def test_row_into_the_frame_around_its_source_goes_to_the_state_entered(review):
    text = mermaid(review)
    assert "s_idle --> s_review : submitted" in text
    assert "s_review_checking --> s_review_drafting : checked<br/>[g.failed" in text


def test_effects_that_a_state_waits_for_are_in_its_box(dual_state):
    assert "s_validating : waits for execute_guard\n" in mermaid(dual_state)
    assert "waits" not in mermaid(dual_state, waiting_effects={})


def test_folded_diagram_lists_every_row_in_comments(review):
    with patch.object(picture_module, "MOST_ROWS", 0):
        text = mermaid(review)
    listed = re.findall(r"%% (\d+) (?:stays|to .*?): (.*)", text)
    assert [label_text(row_texts(review.transitions[int(number) - 1])) for number, _ in listed] == [
        said for _, said in listed
    ]
    assert sorted(int(number) for number, _ in listed) == list(range(1, len(review.transitions) + 1))
    whole = mermaid(review)
    assert "%%" not in whole
    with patch.object(picture_module, "MOST_ROWS", 0):
        assert mermaid(review, full=True) == whole


def test_caller_chooses_the_direction(dual_state):
    assert mermaid(dual_state, direction="LR").splitlines()[1].strip() == "direction LR"
