"""`pending` in the conditions of rows: joins of parallel work, with the same meaning in every part."""

import pytest
from each_row import each_row

from dsa import system as systems
from dsa.checks.explanation import why
from dsa.checks.mutants import mutants
from dsa.checks.proof.prover import prove
from dsa.checks.report import check
from dsa.lang import dumps, loads
from dsa.machine import Machine

CREDIT_CHECK = """# credit_check

## Events
| event  | from    |
| ------ | ------- |
| submit | outside |
| good_1 | look_1  |
| good_2 | look_2  |
| good_3 | look_3  |
| bad_1  | look_1  |
| bad_2  | look_2  |
| bad_3  | look_3  |

## Variables
| variable | domain | initial |
| -------- | ------ | ------- |
| refused  | bool   | false   |

## States
| state    | kind    |
| -------- | ------- |
| idle     | initial |
| checking |         |
| granted  | final   |
| denied   | final   |

## Transitions
| source   | event                                                             | if                          | update         | effects                | target   |
| -------- | ----------------------------------------------------------------- | --------------------------- | -------------- | ---------------------- | -------- |
| idle     | submit                                                            |                             |                | look_1, look_2, look_3 | checking |
| checking | good_1, good_2, good_3                                            | pending                     |                |                        | =        |
| checking | good_1, good_2, good_3                                            | not pending and not refused |                |                        | granted  |
| checking | good_1, good_2, good_3                                            | not pending and refused     |                |                        | denied   |
| checking | bad_1, bad_2, bad_3, look_1.failed, look_2.failed, look_3.failed | pending                     | refused = true |                        | =        |
| checking | bad_1, bad_2, bad_3, look_1.failed, look_2.failed, look_3.failed | not pending                 |                |                        | denied   |

## Properties
- submit leads to granted or denied
- always checking == pending
- never granted and refused
- possible denied
"""


@pytest.fixture
def machine() -> Machine:
    return loads(CREDIT_CHECK)


@each_row("most_sets", [256, 0])
def test_join_of_six_rows_has_the_expected_configurations_and_verdicts(machine, most_sets, monkeypatch):
    monkeypatch.setattr(systems, "MOST_SETS", most_sets)
    report = check(machine)
    (exploration,) = report.explorations
    # Idle; all three; one or two, refused or not; granted, denied with either.
    assert exploration.configurations == 1 + 1 + 2 * 6 + 3
    assert [claim.verdict for claim in report.properties] == ["HOLDS"] * 4
    assert {diagnostic.severity for diagnostic in report.diagnostics} == {"warning"}  # no effect has a time limit


@each_row("most_sets", [256, 0])
def test_row_that_forgets_to_join_is_a_deadlock_and_violates_a_property(machine, most_sets, monkeypatch):
    monkeypatch.setattr(systems, "MOST_SETS", most_sets)
    forgetful = loads(
        CREDIT_CHECK.replace(
            "not pending and not refused |                |                        | granted ",
            "not pending and not refused |                |                        | =        ",
        )
    )
    report = check(forgetful)
    assert "DSA308" in {diagnostic.code for diagnostic in report.diagnostics}
    assert report.properties[1].verdict == "VIOLATED"


@each_row("most_sets", [256, 0])
def test_join_is_proved(machine, most_sets, monkeypatch):
    pytest.importorskip("z3")
    monkeypatch.setattr(systems, "MOST_SETS", most_sets)
    assert prove(machine).is_proved


def test_pending_survives_a_round_trip(machine):
    assert loads(dumps(machine)) == machine
    assert "not pending and refused" in dumps(machine)


def test_mutants_negate_and_drop_pending(machine):
    said = [mutant.what for mutant in mutants(machine) if "pending" in mutant.what]
    assert len({what for what in said if "'not pending' instead of 'pending'" in what}) >= 1
    assert any("dropped" in what for what in said)


def test_why_covers_all_sets_of_outstanding_effects(machine):
    said = why(machine, "good_1", "checking", {"refused": False})
    alone, beside = said.cases  # equal cases are shown once
    # The answer ends look_1.
    assert dict(alone.values) == {"refused": False, "pending look_2": False, "pending look_3": False}
    assert (alone.count, beside.count) == (1, 3)
    assert [view.row.target for view in alone.rows if view.is_enabled] == ["granted"]
    assert [view.row.target for view in beside.rows if view.is_enabled] == ["="]
