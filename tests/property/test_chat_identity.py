"""A call's identity is all that it depends on: a conversation gives the same with and without deduplication."""

import pytest
from chat_server import Said
from chats import conversation, say, steps_since_user
from hypothesis import given, settings
from hypothesis import strategies as st

QUERIES = (
    "SELECT Origin, count(*) AS n FROM cars GROUP BY Origin ORDER BY Origin",
    "select Origin, count(*) as n -- the same\nfrom cars group by Origin order by Origin",
    "SELECT Cylinders, max(Horsepower) AS hp FROM cars GROUP BY Cylinders ORDER BY Cylinders",
    "SELECT nothing FROM cars",
)
PROGRAMS = (
    "print(len(df), list(df.columns))",
    "print(len(df), list(df.columns))\n# the same: an error quotes the line above",
    "df.to_csv('found.csv', index=False)",
    "open('found.csv', 'w').write('n\\n1\\n')",
    "print('found' if 'df' in globals() else 'nothing')",
    "1 / 0",
)


def query(number):
    """Return a call of SQL."""
    return "run_sql", {"sql": QUERIES[number]}


def program(number):
    """Return a call of Python."""
    return "run_python", {"code": PROGRAMS[number]}


CALLS = st.sampled_from([*map(query, range(len(QUERIES))), *map(program, range(len(PROGRAMS)))])
#: Turns of answers of calls: no more of them than a turn may skip.
TRANSCRIPTS = st.lists(
    st.lists(st.lists(CALLS, min_size=1, max_size=2), min_size=1, max_size=2), min_size=2, max_size=3
)


def lived(folder, turns, **options):
    """Hold the conversation, and return what each call gave to the model, the latest table, and each file by its name."""

    def player(body, _number):
        turn = turns[sum(m["role"] == "user" and not m["content"].startswith("[") for m in body["messages"]) - 1]
        at = steps_since_user(body)
        return Said(calls=tuple(turn[at])) if at < len(turn) else Said("Done.")

    with conversation(folder, player, **options) as (chat, _):
        say(chat, *(f"Go on with {number}" for number in range(len(turns))))
        held = chat.conversation
        given = [outcome_of(call.result) for turn in held.turns for call in turn.calls]
        names = {name for each in held.inventory for name in (each.name, *(alias for alias, _ in each.aliases))}
        files = {name: held.inventory.by_name(name).digest for name in names}
        return given, None if held.latest_table is None else held.latest_table.digest, files, held.reasons


def outcome_of(result):
    """Take the earlier result out of one that says that a call was not made."""
    is_skipped = (result.get("error") or {}).get("code") == "duplicate_tool_call_skipped"
    return result["result"] if is_skipped else result


OVER_ANOTHER_RESULT = [[[query(0), program(0)]], [[query(2), program(0)]]]
BACK_TO_THE_FIRST = [[[query(0), query(2)]], [[query(1), program(0)]]]
UNDER_ITS_NAME_AGAIN = [[[query(0), program(2)], [program(3)]], [[program(2)]]]


def compare(folder, turns):
    """Hold a conversation with deduplication and without."""
    *with_it, reasons = lived(folder / "with", turns)
    *without, none_left_out = lived(folder / "without", turns, dedup=False)
    assert with_it == without
    assert none_left_out["duplicate_tool_call_skipped"] == 0
    for reason in ("limit_reached", "too_many_calls"):
        assert reasons[reason] == none_left_out[reason] == 0, "the two are to have made the same calls"


@pytest.mark.parametrize("turns", [OVER_ANOTHER_RESULT, BACK_TO_THE_FIRST, UNDER_ITS_NAME_AGAIN])
def test_conversation_is_the_same_with_and_without_deduplication(tmp_path, turns):
    compare(tmp_path, turns)


@pytest.mark.parametrize("count", [2, pytest.param(40, marks=pytest.mark.full)])
def test_any_conversation_is_the_same_with_and_without_deduplication(tmp_path_factory, count):
    @settings(max_examples=count, deadline=None)
    @given(TRANSCRIPTS)
    def holds(turns):
        compare(tmp_path_factory.mktemp("identity"), turns)

    holds()


def test_repeated_calls_are_skipped(tmp_path):
    """Without this, the test above would pass for a chat that never skips a call."""
    *_, reasons = lived(tmp_path, [[[query(0), program(0)]], [[query(1), program(1)]]])
    assert reasons["duplicate_tool_call_skipped"] == 2
