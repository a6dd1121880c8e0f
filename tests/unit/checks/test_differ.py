"""Comparison of two machines: every kind of difference is found with a shortest trace, and equal machines have none."""

import pytest
from each_row import each_row

from dsa.checks.equivalence import Pair, compare
from dsa.checks.search.engine import SearchLimits
from dsa.checks.search.exploration import explore
from dsa.lang import loads
from dsa.semantics import Taken
from dsa.trace import show_occurrence

TEXT = """# m

## Parameters
| parameter | domain | default |
| --------- | ------ | ------- |
| most      | 0..    | 2       |

## Variables
| variable | domain  | initial |
| -------- | ------- | ------- |
| n        | 0..most | 0       |
| seen     | bool    | false   |

## Events
| event | from    |
| ----- | ------- |
| go    | outside |
| stop  | outside |
| done  | work    |
| bad   | work    |

## Guards
| guard | judges |
| ----- | ------ |
| g     | done   |
| h     | done   |

## States
| state   | kind    |
| ------- | ------- |
| idle    | initial |
| busy    |         |
| busy.a  | initial |
| busy.b  |         |
| over    | final   |
| resting |         |

## Transitions
| source  | event     | if                             | update   | effects     | target  |
| ------- | --------- | ------------------------------ | -------- | ----------- | ------- |
| idle    | go        |                                |          | log, work   | busy    |
| busy    | done      | g.passed                       |          | mail        | over    |
| busy    | done      | not g.passed and n < most      | n += 1   | work        | busy    |
| busy    | done      | else                           |          |             | over    |
| busy    | bad       |                                |          |             | over    |
| busy    | stop      |                                |          | cancel work | resting |
| resting | go        |                                |          |             | idle    |
| busy.a  | after 30s |                                | seen = true |          | busy.b  |
| busy.b  | after 1m  |                                |          |             | =       |
"""
LIMITS = SearchLimits(10_000)


def machines(*changes, text=TEXT):
    new = text
    for old, other in changes:
        assert new.count(old) == 1, old
        new = new.replace(old, other)
    return loads(text), loads(new)


def compared(*changes, limits=LIMITS):
    pair = Pair(*machines(*changes))
    return compare(pair, pair.start, limits)


def line(start):
    """Return the row that begins with `start`."""
    (found,) = [each for each in TEXT.splitlines(keepends=True) if each.startswith(f"| {start}")]
    return found


def after(start, *rows):
    """Return a change that adds rows after one."""
    return line(start), line(start) + "".join(f"{each}\n" for each in rows)


def row(start, **cells):
    """Return a change of the row that begins with `start`: other cells by column, or without cells the row deleted."""
    if not cells:
        return line(start), ""
    columns = ("source", "event", "if", "update", "effects", "target")
    old = dict(zip(columns, (cell.strip() for cell in line(start).strip("|\n").split("|")), strict=True))
    return line(start), f"| {' | '.join((old | cells).values())} |\n"


GO, DONE, FAILED = "idle    | go", "busy    | done      | g.passed", "busy    | done      | not g"
BAD, STOP, REST = "busy    | bad", "busy    | stop", "resting | go"
FIRST, SECOND = "busy.a  | after 30s", "busy.b  | after 1m"
EVENTS = "| bad   | work    |\n"


@each_row(("change", "way", "event"), [
    (row(GO, effects="work, log"), [], "go"),
    (row(GO, effects="log, log, work"), [], "go"),
    (row(GO, target="resting"), [], "go"),
    (row(GO, target="busy.b"), [], "go"),
    (row(GO, update="seen = true"), [], "go"),
    (row(BAD), ["go"], "bad"),
    (row(STOP, effects=""), ["go"], "stop"),
    (row(REST), ["go", "stop"], "go"),
    (row(FAILED, update=""), ["go"], "done g.failed"),
    (row(FAILED, **{"if": "not g.passed"}), ["go", "done g.failed", "done g.failed"], "done g.failed"),
    (row(FAILED, **{"if": "not g.passed and h.passed and n < most"}), ["go"], "done"),
    (row(DONE, **{"if": "g.passed or g.fatal"}), ["go"], "done g.fatal"),
    (row(FIRST, event="after 31s"), [], "go"),
    (row(FIRST), [], "go"),
    (row(SECOND, target="busy.b", effects="log"), ["go", "after 30s of busy.a"], "after 1m of busy.b"),
    ((EVENTS, f"{EVENTS}| third | work    |\n"), ["go"], "third"),
    ((EVENTS, EVENTS.replace("work   ", "outside")), ["go"], "bad"),
    (("| over    | final   |", "| over    |         |"), ["go"], "done g.passed"),
    (("| 0..most | 0       |", "| 0..1    | 0       |"), ["go", "done g.failed"], "done g.failed"),
    (after(BAD, "| busy | work.failed | | | | over |"), ["go"], "work.failed"),
    ((line(BAD), line(BAD) * 2), ["go"], "bad"),
], ids=str)  # fmt: skip
def test_difference_is_found_with_a_shortest_trace(change, way, event):
    found = compared(change)
    assert found.verdict == "DIFFERENT"
    assert [show_occurrence(each) for each in found.divergence.way] == way
    assert show_occurrence(found.divergence.occurrence) == event


ORDERED = """# m

## Transitions
| source | event    | if | effects | target |
| ------ | -------- | -- | ------- | ------ |
| a      | after 1m |    |         | =      |
| a      | after 2m |    | note    | =      |
"""


def test_effects_of_a_timer_that_can_fire_only_later_are_compared():
    """At first the longer timer waits for the shorter one. Once the shorter one has started again, the longer one can fire in the same state."""
    old, new = loads(ORDERED), loads(ORDERED.replace("note", "other"))
    found = compare(Pair(old, new), Pair(old, new).start, SearchLimits(1000))
    assert found.verdict == "DIFFERENT"
    assert show_occurrence(found.divergence.occurrence) == "after 2m of a"
    assert [show_occurrence(each) for each in found.divergence.way] == ["after 1m of a"]


def test_order_of_timers_alone_makes_no_difference():
    """The shorter timer is never taken, so the longer one never fires, and the state that it belongs to makes no difference."""
    text = ORDERED.replace("after 1m |    |", "after 1m | 1 > 2 |") + "| a      | go       |    | note    | =      |\n"
    old, new = loads(text), loads(text.replace("a      | after 2m", "*      | after 2m"))
    assert compare(Pair(old, new), Pair(old, new).start, SearchLimits(1000)).verdict == "EQUAL"


def test_row_that_stays_and_row_that_reenters_differ_only_in_timers():
    """A state with two timers: a row that names the state enters it again and restarts both timers; `=` restarts only the one that fired (S11)."""
    twice = TEXT + "| busy.b  | after 2m  |                                |          |             | =       |\n"
    alone, both = row(SECOND, target="busy.b"), ("| busy.b  | after 2m  |", "| busy.b  | after 2m  |")
    assert compared(alone).verdict == "EQUAL"
    pair = Pair(*machines(alone, both, text=twice))
    found = compare(pair, pair.start, LIMITS)
    assert show_occurrence(found.divergence.occurrence) == "after 1m of busy.b"
    timers = ("busy.b", "after 1m"), ("busy.b", "after 2m")
    assert (found.divergence.old.timers_started, found.divergence.new.timers_started) == ({timers[0]}, set(timers))


@each_row("changes", [
    [],
    [row(FAILED, **{"if": "n + 1 <= most and not g.passed"})],
    [row(DONE, **{"if": "g.passed or g.passed and seen"})],
    [row(BAD, target="over")],
    [row(GO, target="busy.a")],
    [row(SECOND, target="busy.b")],
    [("after 1m ", "after 60s")],
    [("| 0..most | 0       |", "| 0..most + 1 | 0       |")],
    [("| seen     | bool    | false   |", "| seen     | bool    | false   |\n| more     | 0..2    | 1       |"), row(GO, update="more = 2")],
    [("| stop  | outside |", "| stop  | outside |\n| never | outside |"), after(BAD, "| busy | never | n > most | | | over |")],
    [("| g     | done   |", "| g     | done, bad |")],
    [("| 0..    | 2       |", "| 0..9   | 2       | ")],
], ids=str)  # fmt: skip
def test_machines_with_the_same_meaning_are_equal(changes):
    found = compared(*changes)
    assert (found.verdict, found.divergence) == ("EQUAL", None)
    assert found.configurations == explore(machines(*changes)[1]).configurations


def test_extra_variable_of_one_machine_hides_no_other_difference():
    """If only one machine has a variable, configurations are compared part by part."""
    own = ("| seen     | bool    | false   |", "| more     | 0..2    | 1       |\n| seen     | bool    | false   |")
    for change, event in (
        (("| over    | final   |", "| over    |         |"), "done g.passed"),
        (row(STOP, effects=""), "stop"),
        (row(BAD, target="resting"), "bad"),
        (row(FAILED, update="seen = true"), "done g.failed"),
    ):
        found = compared(own, change)
        assert show_occurrence(found.divergence.occurrence) == event
    ended = compared(own, ("| over    | final   |", "| over    |         |")).divergence
    assert (ended.old.ends, ended.new.ends) == (True, False)


def test_event_accepted_by_one_machine_and_unknown_to_the_other_differs():
    found = compared(
        ("| stop  | outside |", "| stop  | outside |\n| never | outside |"),
        after(BAD, "| busy | never | n == most | | | over |"),
    )
    assert [show_occurrence(each) for each in found.divergence.way] == ["go", "done g.failed", "done g.failed"]
    assert found.divergence.old.words == "does not know this event or verdict"
    assert isinstance(found.divergence.new.outcome, Taken)


@pytest.mark.parametrize(("changes", "words"), [
    ([("| idle    | initial |", "| idle    |         |"), ("| resting |         |", "| resting | initial |")], ("in idle", "in resting")),
    ([("| bool    | false   |", "| bool    | true    |")], ("seen = false", "seen = true")),
    ([("| bool    | false   |", "| 0..1    | 0       |"), ("seen = true", "seen = 1   ")], ("seen is a truth value", "seen is a number")),
], ids=str)  # fmt: skip
def test_machines_may_differ_before_anything_happens(changes, words):
    found = compared(*changes)
    assert found.verdict == "DIFFERENT"
    assert (found.divergence.way, found.divergence.occurrence) == ((), None)
    assert (found.divergence.old.words, found.divergence.new.words) == words


def test_description_says_what_cannot_happen_in_one_machine():
    added = compared(after(BAD, "| busy | work.failed | | | | over |"))
    assert added.divergence.old.words == "no row handles work.failed, so the run stops here and can be resumed"
    assert isinstance(added.divergence.new.outcome, Taken)
    asked = compared(row(FAILED, **{"if": "not g.passed and h.passed and n < most"}))
    assert (asked.divergence.old.words, asked.divergence.new.words) == ("asks g", "asks g, h")
    third = compared((EVENTS, f"{EVENTS}| third | work    |\n"))
    assert third.divergence.old.words == "third is not an answer of an outstanding effect"
    assert third.divergence.new.outcome.reason == "invalid_state"


NARROW = (
    "| guard | judges |\n| ----- | ------ |\n| g     | done   |\n| h     | done   |",
    "| guard | judges | verdicts |\n| ----- | ------ | -------- |\n| g     | done   | passed, failed |\n| h     | done   | |",
)


def test_verdict_that_one_guard_cannot_give_is_a_difference():
    found = compared(NARROW)
    assert show_occurrence(found.divergence.occurrence) == "done g.fatal"
    assert found.divergence.new.words == "does not know this event or verdict"
    wide, narrow = machines(NARROW)
    pair = Pair(narrow, wide)
    found = compare(pair, pair.start, LIMITS)
    assert show_occurrence(found.divergence.occurrence) == "done g.fatal"
    assert found.divergence.old.words == "does not know this event or verdict"


@pytest.mark.parametrize(("limits", "said"), [
    (SearchLimits(5), "the limit of 5 configurations"),
    (SearchLimits(10_000, is_expired=lambda: True), "the time limit"),
])  # fmt: skip
def test_limit_makes_the_comparison_unknown(limits, said):
    found = compared(limits=limits)
    assert (found.verdict, found.limit) == ("UNKNOWN", said)


def test_too_many_verdicts_make_the_comparison_unknown():
    guards = [f"g{number}" for number in range(10)]
    lines = "".join(f"| {guard} | done |\n" for guard in guards)
    text = TEXT.replace("| g     | done   |\n", f"| g     | done   |\n{lines}")
    asked = " and ".join(f"{guard}.passed" for guard in guards)
    machine = loads(text.replace("| g.passed      ", f"| g.passed and {asked}"))
    pair = Pair(machine, machine)
    found = compare(pair, pair.start, LIMITS)
    assert (found.verdict, found.limit) == ("UNKNOWN", "done, which has more than 20000 combinations of verdicts")


def test_machines_are_compared_from_their_current_configurations():
    pair = Pair(*machines(row(REST, target="over")))
    assert compare(pair, pair.start, LIMITS).verdict == "DIFFERENT"
    at_rest = tuple(
        each.react(here, pair.plan(pair.start).ways[0].old).configuration
        for each, here in zip((pair.old, pair.new), pair.start, strict=True)
    )
    found = compare(pair, at_rest, LIMITS)
    assert [show_occurrence(each) for each in found.divergence.way] == ["stop"]
