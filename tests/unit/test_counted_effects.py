"""Many effects side by side: the numbers outstanding become variables, and all results stay the same."""

import pytest
from each_row import each_row
from families import side_by_side
from repository import all_machines
from sample_sizes import sample_size

from dsa import system as systems
from dsa.checks.proof.prover import prove
from dsa.checks.report import check
from dsa.checks.search.exploration import explore
from dsa.lang import loads
from dsa.machine import Machine
from dsa.system import closed_system
from dsa.targets import emit


@each_row("count", [9, 12])
def test_each_set_of_outstanding_effects_is_visited_once(count):
    report = check(
        side_by_side(count, "work leads to not (EVERYTHING)", "possible work and not (EVERYTHING)", "at most 1 d3")
    )
    assert [e.configurations for e in report.explorations] == [2**count + 1]
    assert [e.transitions for e in report.explorations] == [count * 2 ** (count - 1) + 1]
    assert report.rests == ("idle", "work")
    assert {diagnostic.code for diagnostic in report.diagnostics} == {"DSA314", "DSA315"}
    assert [p.verdict for p in report.properties] == ["HOLDS"] * 3
    assert report.properties[0].relies_on == tuple(f"e{n}" for n in range(count))


def test_effect_that_never_answers_is_named():
    machine = side_by_side(9, "work leads to not (EVERYTHING) even if e4 never answers")
    (claim,) = check(machine).properties
    assert claim.verdict == "VIOLATED"
    assert "e4 may never answer, and the run rests in work for ever" in claim.reason


def test_few_effects_stay_in_the_locations():
    assert closed_system(side_by_side(8)).counted_effects == ()
    assert len(closed_system(side_by_side(9)).counted_effects) == 9


def outcome(machine: Machine) -> object:
    report = check(machine)
    counts = [(e.configurations, e.transitions, e.states, e.rows, e.idle_states) for e in report.explorations]
    return counts, sorted((d.code, str(d.span)) for d in report.diagnostics), [p.verdict for p in report.properties]


#: The most rows of a machine here: each is explored twice.
MOST_ROWS = sample_size(30, full=1_000)
SHIPPED = {
    name: machine
    for name, machine in all_machines().items()
    if machine.effects_with_answers and len(machine.transitions) <= MOST_ROWS
}


@each_row("machine", SHIPPED.values(), ids=SHIPPED)
def test_machine_is_judged_the_same_with_counted_effects(machine, monkeypatch):
    expected = outcome(machine)
    monkeypatch.setattr(systems, "MOST_SETS", 0)
    assert closed_system(machine).counted_effects == machine.effects_with_answers
    assert outcome(machine) == expected


@each_row("machine", [SHIPPED["dual_state"], SHIPPED["examples/polling"]], ids=["dual_state", "polling"])
def test_machine_is_proved_the_same_with_counted_effects(machine, monkeypatch):
    pytest.importorskip("z3")
    expected = [proof.verdict for proof in prove(machine).properties]
    monkeypatch.setattr(systems, "MOST_SETS", 0)
    report = prove(machine)
    assert report.system.counted_effects
    assert [proof.verdict for proof in report.properties] == expected


@each_row("target", ["promela", "tla", "prism"])
def test_exports_have_variables_for_outstanding_effects(target):
    text = emit(side_by_side(9), target)
    assert text.count("pending_e4") > 3


def test_system_built_like_another_counts_the_same_effects():
    machine = side_by_side(3)
    counted = closed_system(machine, counted_effects=["e1"])
    alike = closed_system(machine, like=counted)
    assert alike.counted_effects == ("e1",)
    assert (alike.locations, alike.commands, alike.faults) == (counted.locations, counted.commands, counted.faults)
    assert explore(machine, system=alike).configurations == 2**3 + 1


LOOPS = """# loops
## States
| state | kind |
| --- | --- |
| idle | initial |
| work | |
| over | final |

## Events
| event | from |
| --- | --- |
| go | outside |
| done | slow |
| again | quick |

## Transitions
| source | event | effects | target |
| --- | --- | --- | --- |
| idle | go | slow, quick | work |
| work | again | AGAIN | = |
| work | done | | DONE |

## Properties
- work leads to over
"""


@each_row(
    ("again", "done", "verdict"),
    [
        ("quick", "over", "HOLDS"),
        ("quick", "=", "VIOLATED"),  # once slow is answered, nothing promises an end
        ("quick, cancel slow, slow", "over", "VIOLATED"),  # slow is cancelled again and again
        ("quick, cancel slow", "over", "VIOLATED"),
    ],
)
def test_loop_is_possible_unless_a_promise_lasts(again, done, verdict, monkeypatch):
    machine = loads(LOOPS.replace("AGAIN", again).replace("DONE", done))
    for most in (256, 0):
        monkeypatch.setattr(systems, "MOST_SETS", most)
        assert [claim.verdict for claim in check(machine).properties] == [verdict]
