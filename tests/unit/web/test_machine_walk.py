"""The graph of a machine's places: it has what the checker finds, and each step leads where `step` says."""

import json
import sys

import pytest
from payments import payment

from dsa import check, explore
from dsa.edge.document_files import load
from dsa.errors import DsaError
from dsa.lang import loads
from dsa.semantics import Taken, is_over, start, step
from dsa.trace import show_occurrence
from dsa.web.machine_walk import MOST_PLACES, WalkPlace, occurrences, walk, walk_graph

COUNTER = """# counter

## Variables
| variable | scope    | domain  | initial |
| -------- | -------- | ------- | ------- |
| a        | workflow | 0..{most} | 0       |

## Events
| event | from    |
| ----- | ------- |
| more  | outside |

## States
| state | kind    |
| ----- | ------- |
| here  | initial |

## Transitions
| source | event | if         | update | target |
| ------ | ----- | ---------- | ------ | ------ |
| here   | more  | a < {most} | a += 1 | here   |
"""


@pytest.mark.parametrize("name", ["dual_state", "workflow", "policy", "machines/examples/peterson.md"])
def test_graph_has_every_configuration(name):
    machine = load(name)
    graph = walk_graph(machine, {})
    assert len(graph["places"]) == explore(machine).configurations
    texts = graph["texts"]
    assert len(texts) == len(set(texts))
    here, place = start(machine), graph["places"][0]
    for _ in range(5):
        assert texts[place[0]] == here.state
        assert place[3] == is_over(machine, here)
        offered = {show_occurrence(each): each for each in occurrences(machine, here.state)}
        taken = {name for name, each in offered.items() if isinstance(step(machine, here, each), Taken)}
        assert [texts[choice[0]] for choice in place[4]] == [name for name in offered if name in taken]
        if not place[4]:
            break
        here = step(machine, here, offered[texts[place[4][0][0]]]).configuration
        place = graph["places"][place[4][0][1]]
    json.dumps(graph)


def test_counterexample_with_a_failure_can_be_walked():
    machine = loads(payment("asked leads to done", on_failure="pay"), "pay.md")
    names = [show_occurrence(taken.occurrence) for taken in check(machine).properties[0].trace.steps]
    assert "pay.failed" in names
    walked = walk(WalkPlace(machine, "/explore", "/"), names)
    assert (walked.fault, walked.names) == ("", tuple(names))
    assert len(walk_graph(machine, {})["places"]) == explore(machine).configurations


def test_failure_that_no_row_handles_is_not_offered():
    machine = loads(payment(), "pay.md")
    assert [show_occurrence(each) for each in occurrences(machine, "paying")] == ["asked", "paid"]


def test_size_of_the_graph_is_limited():
    assert len(walk_graph(loads(COUNTER.format(most=MOST_PLACES - 1)), {})["places"]) == MOST_PLACES
    with pytest.raises(DsaError, match=r"counter has more than 5,000 configurations.*dsa web FILE"):
        walk_graph(loads(COUNTER.format(most=MOST_PLACES)), {})


def test_too_large_machine_is_refused_before_any_place_is_computed():
    steps = 0

    def count(frame, event, _argument):
        nonlocal steps
        steps += event == "call" and frame.f_code is step.__code__

    machine = load("chat")
    sys.setprofile(count)
    try:
        with pytest.raises(DsaError, match="chat has more than 5,000 configurations"):
            walk_graph(machine, {})
    finally:
        sys.setprofile(None)
    assert steps == 0
