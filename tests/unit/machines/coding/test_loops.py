"""Circles: counted as they are, whoever makes them; nothing that makes progress is one."""

from hypothesis import given
from hypothesis import strategies as st

from machines.coding.loops import BLOCK, END, WINDOW, Did, key_of, reminder_of, round_of

A, B = key_of("write_file", {"path": "a"}), key_of("write_file", {"path": "b"})


def did(key=A, kind="changing", result="r", **more):
    return Did(key, "write_file" if kind == "changing" else "read_file" if kind == "looking" else "run_cmd", kind, result, **more)  # fmt: skip


def level(past, key=A, kind="changing"):
    tool = did(key, kind).tool
    return round_of(key, tool, kind, past).level


def test_keys_are_equal_for_equal_arguments_alone():
    assert key_of("t", {"a": 1, "b": 2}) == key_of("t", {"b": 2, "a": 1}) != key_of("t", {"a": 1})
    assert key_of("t", {}) != key_of("u", {})


def test_a_change_is_counted_by_itself_and_remembered_in_words():
    levels = [level([did(changed=True)] * count) for count in range(6)]
    assert levels == ["fine", "remind", "block", "block", "end", "end"]
    assert "2 times" in reminder_of(did(), [did()])
    assert reminder_of(did(), []) == reminder_of(did(), [did(), did()]) == ""


def test_a_look_is_counted_while_it_sees_the_same():
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


def test_a_command_counts_anew_when_something_else_has_changed_a_file():
    ran = did(kind="running")
    assert level([ran, ran], kind="running") == "block"
    assert level([ran, ran, did(B, changed=True)], kind="running") == "fine"
    assert level([ran, did(B), ran], kind="running") == "block"
    own = did(kind="running", changed=True)
    assert level([own, own], kind="running") == "block"  # what it has changed itself does not count


def test_what_others_did_counts_where_it_is_the_same_call():
    def among(past, others, key=A, kind="changing"):
        return round_of(key, did(key, kind).tool, kind, past, others).level

    assert among([did(at_ms=2)], [did(at_ms=1)]) == "block"
    assert among([], [did()] * 4) == "end"
    busy = [did(key_of("write_file", {"path": str(number)}), at_ms=3) for number in range(3 * WINDOW)]
    assert among([did(at_ms=1), did(at_ms=2)], busy) == "block"  # however much others do, it is not forgotten
    for kind in ("looking", "running"):
        assert among([], [did(kind=kind)] * 4, kind=kind) == "fine"  # what others have seen, it has not
        mine = [did(kind=kind, at_ms=1), did(kind=kind, at_ms=3)]
        assert among(mine, [did(B, at_ms=2)], kind=kind) == "block"
        assert among(mine, [did(B, changed=True, at_ms=2)], kind=kind) in {
            "fine",
            "remind",
        }  # and it may see something new
    errors = [did(B, error="rc=1")] * 3
    assert among([], errors) == "fine"  # another's errors are not one's own
    assert "2 times" in reminder_of(did(at_ms=2), [], [did(at_ms=1)])


def test_what_was_refused_counts():
    refused = did(kind="looking", refused=True)
    assert level([did(kind="looking")] * 2 + [refused] * 2, kind="looking") == "end"


def test_two_in_turn_are_blocked_when_nothing_comes_of_them():
    a, b = did(A, changed=True), did(B, changed=True)
    assert level([a, b, a], key=B) == "block"
    assert level([a, b], key=A) == "remind"
    first, second = did(A, "looking", "1"), did(B, "looking", "2")
    assert level([first, second, first], key=B, kind="looking") == "block"
    third = did(A, "looking", "3")
    assert level([first, second, third], key=B, kind="looking") == "fine"


def test_polls_never_count():
    assert round_of(A, "git_status", "polling", [did(kind="polling")] * 10).level == "fine"


def test_the_same_error_three_times_in_a_row_is_enough():
    failed = [
        Did(key_of("edit", {"n": number}), "edit", "changing", str(number), error="not_found a") for number in range(3)
    ]
    fresh = key_of("edit", {"n": 99})
    assert round_of(fresh, "edit", "changing", failed).level == "block"
    assert round_of(fresh, "edit", "changing", failed[:2]).level == "fine"
    assert round_of(fresh, "edit", "changing", [*failed[:2], did(B), failed[2]]).level == "fine"
    assert round_of(fresh, "read_file", "looking", failed).level == "fine"


@given(
    st.lists(
        st.sampled_from([did(A), did(B), did(A, "looking"), did(B, "running"), did(B, "looking", "x")]), max_size=25
    )
)
def test_only_the_last_ten_count_and_more_of_the_same_is_never_less(past):
    assert round_of(A, "write_file", "changing", past) == round_of(A, "write_file", "changing", past[-WINDOW:])
    again = round_of(A, "write_file", "changing", [*past, did(A)][-WINDOW:])
    if past[-WINDOW + 1 :].count(did(A)) + 2 >= END:
        assert again.level == "end"
    elif past[-WINDOW + 1 :].count(did(A)) + 2 >= BLOCK:
        assert again.level in {"block", "end"}
