"""Faults ahead of a run: each kind is found with a shortest trace, unless the old machine reaches it too."""

import pytest

from dsa.checks.equivalence import Pair, prospect
from dsa.checks.search.engine import SearchLimits
from dsa.lang import loads
from dsa.trace import show_occurrence

TEXT = """# m

## Variables
| variable | domain | initial |
| -------- | ------ | ------- |
| n        | 0..2   | 0       |

## Events
| event | from    |
| ----- | ------- |
| go    | outside |
| done  | work    |

## Guards
| guard | judges |
| ----- | ------ |
| g     | done   |
| h     | done   |

## States
| state | kind    |
| ----- | ------- |
| idle  | initial |
| busy  |         |
| over  | final   |

## Transitions
| source | event    | if                       | update | effects | target |
| ------ | -------- | ------------------------ | ------ | ------- | ------ |
| idle   | go       |                          |        | work    | busy   |
| busy   | done     | g.passed                 |        |         | over   |
| busy   | done     | not g.passed and n < 2   | n += 1 | work    | busy   |
| busy   | done     | not g.passed and n == 2  |        |         | over   |
| busy   | after 5s |                          |        |         | over   |
"""
PASSED, MORE, LAST = "| g.passed                 |", "| not g.passed and n < 2   |", "| not g.passed and n == 2  |"
LIMITS = SearchLimits(1_000)


def ahead(*changes, before=(), limits=LIMITS):
    """Return what may go wrong in the machine with `changes` but not in the one with the changes `before`."""
    machines = []
    for these in (before, changes):
        text = TEXT
        for old, new in these:
            assert old in text, old
            text = text.replace(old, new)
        machines.append(loads(text))
    pair = Pair(*machines)
    return prospect(pair, pair.start, limits)


UNHANDLED = (LAST, "| g.failed and n == 2      |")
NO_TIMER = ("| busy   | after 5s |                          |        |         | over   |\n", "")


@pytest.mark.parametrize(("changes", "way", "event", "reason"), [
    ([UNHANDLED], ["go", "done g.failed", "done g.failed"], "done g.fatal", "invalid_state"),
    ([(LAST, "|                          |")], ["go"], "done g.passed", "ambiguous"),
    ([("not g.passed and n < 2 ", "not g.passed and n < 3 "), (LAST, "| g.fatal and n == 3       |")], ["go", "done g.failed", "done g.failed"], "done g.failed", "out_of_domain"),
    ([("n += 1 | work ", "n += 1 | work, work")], ["go"], "done g.failed", "emitted_twice"),
    ([("| after 5s |                          |", "| after 5s | n > 0                    |")], ["go"], "after 5s of busy", "invalid_state"),
    ([("| 0..2   | 0       |", "| 0..1   | 0       |")], ["go", "done g.failed"], "done g.failed", "out_of_domain"),
], ids=str)  # fmt: skip
def test_every_kind_of_fault_is_found(changes, way, event, reason):
    found = ahead(*changes)
    assert [show_occurrence(each) for each in found.trouble.way] == way
    assert (show_occurrence(found.trouble.occurrence), found.trouble.refusal.reason) == (event, reason)


def test_deadlock_is_a_fault():
    stuck = (
        "| busy   | done     | g.passed                 |        |         | over   |",
        "| busy   | done     | g.passed                 |        |         | idle   |",
    )
    found = ahead(
        stuck,
        ("| idle   | go       |                          |", "| idle   | go       | n == 0                   |"),
        NO_TIMER,
    )
    assert [show_occurrence(each) for each in found.trouble.way] == ["go", "done g.failed", "done g.passed"]
    assert (found.trouble.occurrence, found.trouble.refusal, found.trouble.here.state) == (None, None, "idle")


def test_event_from_outside_may_be_refused():
    assert (
        ahead(
            ("| idle   | go       |                          |", "| idle   | go       | n < 2                    |")
        ).trouble
        is None
    )


def test_fault_that_the_old_machine_also_reaches_is_not_reported():
    assert ahead(UNHANDLED, before=[UNHANDLED]).trouble is None
    assert ahead(UNHANDLED, ("| 0..2   | 0       |", "| 0..9   | 0       |"), before=[UNHANDLED]).trouble is None
    also = ("| n        | 0..2   | 0       |", "| n        | 0..2   | 0       |\n| x        | 0..1   | 1       |")
    assert ahead(UNHANDLED, also, before=[UNHANDLED]).trouble is None
    assert ahead(UNHANDLED, before=[UNHANDLED, also]).trouble is None


def test_same_fault_at_other_values_is_reported():
    sooner = [("not g.passed and n < 2 ", "not g.passed and n < 1 "), (LAST, "| g.failed and n == 1      |")]
    found = ahead(*sooner, before=[UNHANDLED])
    assert [show_occurrence(each) for each in found.trouble.way] == ["go", "done g.failed"]


@pytest.mark.parametrize(("new", "event"), [
    ("| g.failed and n == 2      |", None),
    ("| g.fatal and n == 2       |", "done g.failed"),
    ("| g.failed and n == 9      |", "done g.failed"),
])  # fmt: skip
def test_refused_verdicts_decide_whether_a_fault_is_new(new, event):
    found = ahead((LAST, new), before=[UNHANDLED])
    assert (found.trouble and show_occurrence(found.trouble.occurrence)) == event


def test_unasked_guard_may_have_given_any_verdict():
    """Nothing takes `done` in the new machine: the old one refused it only when g was fatal."""
    rows = [line for line in TEXT.splitlines(keepends=True) if "| busy   | done" in line]
    gone = [(line, "") for line in rows]
    refusing = [(rows[0], "| busy | done | g.passed and n > 5 | | | over |\n"), (rows[1], ""), (rows[2], "")]
    assert ahead(*gone, before=[(rows[1], ""), (rows[2], "")]).trouble is not None
    assert ahead(*gone, before=refusing).trouble is None
    assert ahead(*refusing, before=gone).trouble is None


def test_fault_on_a_verdict_that_the_old_guard_could_not_give_is_new():
    narrow = [
        (
            "| guard | judges |\n| ----- | ------ |\n| g     | done   |\n| h     | done   |",
            "| guard | judges | verdicts |\n| ----- | ------ | --- |\n| g     | done   | passed, failed |\n| h     | done   | |",
        )
    ]
    assert ahead(UNHANDLED, before=narrow).trouble is not None
    assert ahead(UNHANDLED, *narrow).trouble is None


def test_limit_is_reported_instead_of_a_fault():
    assert ahead(limits=SearchLimits(2)).limit == "the limit of 2 configurations"
    assert ahead(UNHANDLED, limits=SearchLimits(3)).limit
    wide = ("| 0..2   | 0       |", "| 0..2   | 0       |\n| m        | 0..99  | 0       |")
    counting = (
        "| idle   | go       |                          |        |",
        "| idle   | go       |                          | m += 1 |",
    )
    found = ahead(UNHANDLED, before=[wide, counting, ("| over   |", "| idle   |")], limits=SearchLimits(30))
    assert (found.trouble, found.limit) == (None, "the limit of 30 configurations"), (
        "it is unknown whether the old machine reaches the fault"
    )
