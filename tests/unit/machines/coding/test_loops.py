"""Loops of repeated calls: each call is counted, unless it makes progress."""

import attrs
import pytest
from each_row import each_row
from hypothesis import given
from hypothesis import strategies as st

from machines.coding.coding_tools import (
    BLOCK,
    END,
    MEMORY,
    POLLS,
    SAME_POLLS,
    WINDOW,
    CallAction,
    key_of,
    reminder_of,
    round_beside,
    round_of,
)

A, B = key_of("write_file", {"path": "a"}), key_of("write_file", {"path": "b"})


def did(key=A, kind="changing", result="r", **more):
    return CallAction(key, "write_file" if kind == "changing" else "read_file" if kind == "looking" else "run_cmd", kind, result, **more)  # fmt: skip


def level(past, key=A, kind="changing"):
    return round_of(did(key, kind), past).level


def test_keys_are_equal_only_for_equal_arguments():
    assert key_of("t", {"a": 1, "b": 2}) == key_of("t", {"b": 2, "a": 1}) != key_of("t", {"a": 1})
    assert key_of("t", {}) != key_of("u", {})


def test_repeated_change_is_counted_and_gets_a_reminder():
    levels = [level([did(changed=True)] * count) for count in range(6)]
    assert levels == ["fine", "remind", "block", "block", "end", "end"]
    assert "2 times" in reminder_of(did(), [did()])
    assert reminder_of(did(), []) == reminder_of(did(), [did(), did()]) == ""


def test_look_is_counted_while_its_result_stays_the_same():
    same = [did(kind="looking")] * 5
    assert [level(same[:count], kind="looking") for count in range(6)] == [
        "fine",
        "fine",
        "block",
        "block",
        "end",
        "end",
    ]
    others = [did(kind="looking", result=str(number)) for number in range(9)]
    assert level(others, kind="looking") == "fine"
    between = [did(kind="looking"), did(kind="looking"), did(B, changed=True)]
    assert level(between, kind="looking") == "fine"


def test_command_count_restarts_when_another_call_changed_a_file():
    ran = did(kind="running")
    assert level([ran, ran], kind="running") == "block"
    assert level([ran, ran, did(B, changed=True)], kind="running") == "fine"
    assert level([ran, did(B), ran], kind="running") == "block"
    own = did(kind="running", changed=True)
    assert level([own, own], kind="running") == "block"  # its own changes do not count


def test_equal_changes_made_by_others_count():
    def among(past, others, key=A, kind="changing"):
        return round_of(did(key, kind), past, others).level

    assert among([did(at_ms=2)], [did(at_ms=1)]) == "block"
    assert among([], [did()] * 4) == "end"
    busy = [did(key_of("write_file", {"path": str(number)}), at_ms=3) for number in range(3 * WINDOW)]
    assert among([did(at_ms=1), did(at_ms=2)], busy) == "block"  # it is remembered, however much others do
    for kind in ("looking", "running"):
        assert among([], [did(kind=kind)] * 4, kind=kind) == "fine"  # it has not seen the results of others
        mine = [did(kind=kind, at_ms=1), did(kind=kind, at_ms=3)]
        assert among(mine, [did(B, at_ms=2)], kind=kind) == "block"
        # It may see something new.
        assert among(mine, [did(B, changed=True, at_ms=2)], kind=kind) in {"fine", "remind"}
    errors = [did(B, error="rc=1")] * 3
    assert among([], errors) == "fine"  # errors of others do not count
    assert "2 times" in reminder_of(did(at_ms=2), [], [did(at_ms=1)])


def test_refused_calls_count():
    refused = did(kind="looking", refused=True)
    assert level([did(kind="looking")] * 2 + [refused] * 2, kind="looking") == "end"


def test_two_alternating_calls_without_progress_are_blocked():
    a, b = did(A, changed=True), did(B, changed=True)
    assert level([a, b, a], key=B) == "block"
    assert level([a, b], key=A) == "remind"
    first, second = did(A, "looking", "1"), did(B, "looking", "2")
    assert level([first, second, first], key=B, kind="looking") == "block"
    third = did(A, "looking", "3")
    assert level([first, second, third], key=B, kind="looking") == "fine"


def test_polls_never_count():
    assert level([did(kind="polling")] * 10, kind="polling") == "fine"


def edited(number, answer, error="not_found a", **more):
    return CallAction(
        key_of("edit", {"n": number}), "edit", "changing", str(number), error=error, answer=answer, **more
    )


def level_of_another(past, answer, tool="edit", number=99):
    return round_of(attrs.evolve(edited(number, answer), tool=tool, error=""), past).level


def test_same_error_in_three_answers_in_a_row_blocks():
    failed = [edited(number, answer=number) for number in range(3)]
    assert level_of_another(failed, 3) == "block"
    assert level_of_another(failed[:2], 2) == "fine"
    assert level_of_another([*failed[:2], did(B), failed[2]], 3) == "fine"
    assert level_of_another(failed, 3, tool="read_file") == "fine"
    both = [edited(2 * answer + at, answer, error) for answer in range(3) for at, error in enumerate("ab")]
    assert level_of_another(both, 3) == "block"  # it fails in two ways in each answer
    assert level_of_another([*both[:4], edited(4, 2, "c")], 3) == "fine"


def test_failures_within_one_answer_count_once():
    at_once = [edited(number, answer=1) for number in range(6)]
    assert level_of_another(at_once, 1) == level_of_another(at_once, 2) == "fine"
    twice = [*at_once, edited(7, answer=2)]
    assert level_of_another([*twice, edited(8, answer=3)], 3) == "fine"  # the model has not seen the last error yet
    assert level_of_another([*twice, edited(8, answer=3)], 4) == "block"


def test_refusals_of_different_calls_never_end_the_work():
    failed = [edited(number, answer=number) for number in range(3)]
    refused = [edited(10 + number, 3 + number, "", refused=True) for number in range(20)]
    assert level_of_another([*failed, *refused], 30) == "block"
    assert level_of_another([*failed, *refused[:1] * 4], 30, number=10) == "end"  # refusals of the same call do


@each_row("kind", ["changing", "looking", "running"])
@each_row("many", [6, 16, 60])
def test_loop_of_many_calls_is_recognised(kind, many):
    keys = [key_of("t", {"path": str(number)}) for number in range(many)]
    past, found = [], []
    for answer in range(5):
        for key in keys:
            level = round_of(did(key, kind, answer=answer), past).level
            found.append(level)
            past = [*past, did(key, kind, answer=answer, refused=level in {"block", "end"})][-MEMORY:]
    second = "fine" if kind == "looking" else "remind"
    levels = ["fine", second, "block", "block", "end"]
    assert found == [level for level in levels for _ in range(many)]


def test_reason_mentions_the_count():
    for kind in ("changing", "running", "looking"):
        for before in range(6):
            found = round_of(did(kind=kind), [did(kind=kind)] * before)
            assert (f"call {found.times} of" in found.why) == (found.level != "fine") == bool(found.why)
            assert found.times == before + 1


@given(
    st.lists(
        st.sampled_from([did(A), did(B), did(A, "looking"), did(B, "running"), did(B, "looking", "x")]), max_size=25
    )
)
def test_repeating_a_call_never_lowers_the_level(past):
    again = round_of(did(A), [*past, did(A)])
    if past.count(did(A)) + 2 >= END:
        assert again.level == "end"
    elif past.count(did(A)) + 2 >= BLOCK:
        assert again.level in {"block", "end"}


KEYS = ("a", "b", "c")
ENDS = st.tuples(st.sampled_from(["r", "x", "y"]), st.sampled_from(["", "", "not_found"]))


def saw(key, end, answer, tool="read_file"):
    return CallAction(key, tool, "looking", end[0], error=end[1], answer=answer)


@st.composite
def looks(draw):
    """Draw earlier looks with few keys and outcomes, running looks and how they end, and a look that comes meanwhile."""
    tools = [draw(st.sampled_from(["read_file", "search"])) for _ in KEYS]
    at = st.integers(0, len(KEYS) - 1)
    past = [
        attrs.evolve(saw(KEYS[n], end, answer, tools[n]), refused=draw(st.integers(0, 9)) == 0)
        for answer, n, end in ((number // 2, draw(at), draw(ENDS)) for number in range(draw(st.integers(0, 9))))
    ]
    unread = [
        saw(KEYS[n], draw(ENDS), len(past), tools[n])
        for n in draw(st.lists(at, unique=True, min_size=1, max_size=len(KEYS)))
    ]
    n = draw(at)
    return past, unread, CallAction(KEYS[n], tools[n], "looking", answer=len(past))


@given(looks())
def test_look_that_runs_beside_others_is_judged_as_after_them(drawn):
    past, unread, call = drawn
    begun = [attrs.evolve(each, result="", error="") for each in unread]
    judgement, is_certain = round_beside(call, past, (), begun)
    after = round_of(call, [*past, *unread])
    if is_certain:
        assert (judgement.level, judgement.why) == (after.level, after.why)
        assert call.key not in {each.key for each in unread}
    assert round_beside(call, past, (), []) == (round_of(call, past), True)


def test_look_is_judged_at_once_unless_running_calls_may_matter():
    first = [saw("a", ("r", ""), 1), saw("b", ("r", ""), 1)]
    failed = [saw(key, ("r", "not_found"), answer) for answer, key in enumerate("abc")]
    other = CallAction("d", "read_file", "looking", answer=9)
    assert round_beside(attrs.evolve(other, key="b"), [*first, first[0]], (), [])[1]
    assert round_beside(other, first, (), [saw("a", ("", ""), 9)])[1]
    assert not round_beside(attrs.evolve(other, key="a"), [], (), [saw("a", ("", ""), 9)])[1]
    assert not round_beside(attrs.evolve(other, key="b"), first, (), [saw("a", ("", ""), 9)])[1], "a, b, a, b"
    assert not round_beside(other, failed, (), [saw("e", ("", ""), 9)])[1], "it may be the first that does not fail"
    assert round_beside(other, failed, (), [saw("e", ("", ""), 9, "search")])[1]


def ran(result, **more):
    return did(kind="running", result=result, **more)


def looked(result, **more):
    return did(kind="looking", result=result, **more)


@each_row(
    ("last", "before", "says"),
    [
        (ran("1"), [ran("1")], "You have now made exactly this call 2 times, with the same outcome."),
        (ran("2"), [ran("1")], "You have now made exactly this call 2 times, with a different outcome."),
        (ran("1", changed=True), [ran("1")], "You have now made exactly this call 2 times, with a different outcome."),
        (ran("1"), [ran("", refused=True)], "You made exactly this call before, and it was refused."),
        (did(result="2"), [did(result="1", changed=True)], "2 times; this time it changed nothing."),
        (did(result="1", changed=True), [did(result="1", changed=True)], "2 times, and changed a file again."),
        (did(result="1", error="e"), [did(result="1", error="e")], "2 times, with the same outcome."),
        (looked("1"), [looked("1")], "2 times, with the same outcome."),
        (ran("1", polled=True), [ran("1", polled=True)], "2 times, with the same outcome."),
    ],
)
def test_reminder_describes_outcomes_as_recorded(last, before, says):
    told = reminder_of(last, before)
    assert says in told
    assert ("same outcome" in told) == ("same outcome" in says)


@pytest.mark.parametrize(
    ("last", "before"), [(looked("2"), [looked("1")]), (ran("2", polled=True), [ran("1", polled=True)])]
)
def test_call_with_a_new_result_gets_no_reminder(last, before):
    assert reminder_of(last, before) == ""


def test_refused_look_is_not_reported_as_a_result():
    why = round_of(looked(""), [looked("1"), looked("", refused=True)]).why
    assert why == "this is call 3 of read_file with nothing new: it was refused before"
    why = round_of(looked(""), [looked("1"), looked("1"), looked("", refused=True)]).why
    assert why == "this is call 4 of read_file with nothing new: the last 2 results were the same"


def polls(*results, last=""):
    return round_of(ran(last, polled=True), [ran(result, polled=True) for result in results])


def test_polled_command_counts_while_unchanged_and_up_to_a_limit():
    assert polls(*map(str, range(POLLS - 1))).level == "fine"
    assert [polls(*["1"] * count).level for count in (SAME_POLLS - 1, SAME_POLLS)] == ["fine", "block"]
    assert polls(*["2"] * SAME_POLLS, "1").level == "fine"
    assert [polls(*map(str, range(POLLS + more))).level for more in range(3)] == ["block", "block", "end"]
    assert (
        polls(*map(str, range(POLLS))).why == f"this is call {POLLS + 1} of run_cmd, which may be polled {POLLS} times"
    )


def test_errors_of_a_polled_command_block_nothing_else():
    failed = [ran(str(answer), error="rc=1 pending", answer=answer, polled=True) for answer in range(3)]
    assert round_of(ran("", polled=True, answer=4), failed).level == "fine"
    assert round_of(attrs.evolve(ran("", answer=4), key=B), failed).level == "fine"
