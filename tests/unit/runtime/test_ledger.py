import json
import tracemalloc

import pytest
from each_row import each_row

from dsa.runtime.json_text import text_of
from dsa.runtime.ledger import (
    ArtifactEntry,
    CallEntry,
    CallResultEntry,
    ChangeEntry,
    EffectEntry,
    EventEntry,
    GuardVerdict,
    Ledger,
    MachineEntry,
    RefusalEntry,
    ResultEntry,
    RowEntry,
    VerdictEntry,
    commit_entries,
    commit_lines,
    dump_line,
    from_json,
    load_lines,
    to_json,
)

ENTRIES = [
    MachineEntry("r", "m", "d", {"rmax": 3, "deep": True}),
    ChangeEntry("m", "d", "# m\n", {"rmax": 3}, "m.md", 7),
    EventEntry(1, "verdict", {"g": "failed"}, data={"a": [1, None]}, key="1/1"),
    EventEntry(2, "after 30s", source="waiting"),
    RowEntry(12, "a", "b", {"x": 1}, {"g": "id"}),
    RefusalEntry("late", "why", ("a", "b")),
    EffectEntry("1/1", "query_llm"),
    ResultEntry("1/1", ({"id": "1", "payload": {}},)),
    ArtifactEntry("1/1", "g", 1, "id", "digest", ("p",), "llm", "model", 0.5, 3, None, 0.0),
    VerdictEntry("2/1", "g", 1, "id", (GuardVerdict("g", "failed", "no"), GuardVerdict("h", "passed", "fine"))),
    CallEntry("1/1", "1.2", "search", "d", {"query": "q"}, ("a", "b")),
    CallEntry("1/1", "1.2.1", "llm", "d"),
    CallResultEntry("1/1", "1.2", ({"id": "1.2/1", "payload": {"text": "a"}},)),
]


@each_row("entry", ENTRIES, ids=lambda entry: type(entry).__name__)
def test_every_kind_of_entry_survives_json(entry):
    assert from_json(to_json(entry)) == entry
    assert list(load_lines(dump_line(entry))) == [entry]
    written = json.loads(dump_line(entry))
    assert written.items() <= json.loads(text_of(to_json(entry))).items()
    left_out = to_json(entry).keys() - written.keys()
    assert all(to_json(entry)[name] in ("retry", (), {}, "", 0, None) for name in left_out), (
        "only defaults are left out"
    )


def test_data_of_an_answer_is_written_once_with_its_result():
    data = {"rows": [1, True, None]}
    result = ResultEntry("3/1", [{"actor": "a", "type": "event", "payload": {"event": "found", "data": data}}])
    event = EventEntry(4, "found", data=data, key="3/1")
    lines = commit_lines([result, event])
    assert json.loads(lines[1])["same_as"] == "steps.0.payload.data"
    assert "data" not in json.loads(lines[1])
    again = commit_entries(json.loads(line) for line in lines)
    assert again == [result, event]
    assert again[1].data["rows"][1] is True


@pytest.mark.parametrize("data", [{"rows": [1, 1, None]}, None, 0, "found"])
def test_data_that_differs_from_the_result_is_written_in_full(data):
    result = ResultEntry(
        "3/1", [{"actor": "a", "type": "event", "payload": {"event": "found", "data": {"rows": [1, True, None]}}}]
    )
    for key in ("3/1", "2/1", None):
        event = EventEntry(4, "found", data=data, key=key)
        assert "same_as" not in commit_lines([result, event])[1]
        assert commit_entries(json.loads(line) for line in commit_lines([result, event])) == [result, event]


def test_failure_is_written_once_with_its_result():
    payload = {"error": True, "code": "GONE", "message": "no disk"}
    result = ResultEntry("3/1", [{"actor": "a", "type": "error", "payload": payload}])
    event = EventEntry(4, "log.failed", data=payload, key="3/1")
    assert json.loads(commit_lines([result, event])[1])["same_as"] == "steps.0.payload"
    assert commit_entries(json.loads(line) for line in commit_lines([result, event])) == [result, event]


def test_event_that_refers_to_a_missing_result_is_refused():
    with pytest.raises(TypeError, match=r"there is no .* in the result"):
        commit_entries([{"kind": "event", "seq": 1, "event": "found", "key": "1/1", "same_as": "steps.0.payload"}])


def test_fields_with_defaults_may_be_missing_and_unknown_fields_are_refused():
    written = to_json(ENTRIES[2])
    del written["at_ms"]
    assert from_json(written) == ENTRIES[2]
    with pytest.raises(TypeError):
        from_json({**written, "mood": "fine"})
    with pytest.raises(TypeError):
        from_json({"kind": "event", "seq": 1})


def test_repr_of_a_long_ledger_shows_only_its_ends():
    assert repr(Ledger(range(20))) == f"Ledger({[*range(20)]})"
    assert repr(Ledger(range(30))) == "Ledger([0, .. 28 more .., 29])"


def test_slices_of_a_ledger_are_tuples():
    ledger = Ledger(range(5))
    ledger.append(5)
    assert (ledger[1:3], ledger[::2], ledger[::-1], ledger[4:1:-2]) == ((1, 2), (0, 2, 4), (4, 3, 2, 1, 0), (4, 2))
    assert (ledger[3:], ledger.after(3), ledger.after(9)) == ((3, 4), (3, 4), ())


def test_pairs_are_written_as_objects():
    assert to_json(ENTRIES[0])["parameters"] == {"rmax": 3, "deep": True}


def test_entry_of_an_unknown_kind_is_refused():
    with pytest.raises(KeyError):
        from_json({"kind": "rumour"})


def test_appending_returns_a_new_ledger_and_leaves_the_old_one_unchanged():
    one = Ledger([1])
    two = one.append(2)
    assert (list(one), list(two), len(one), two[-1], two[0:2]) == ([1], [1, 2], 1, 2, (1, 2))


def test_two_continuations_of_one_ledger_are_independent():
    one = Ledger([1])
    left, right = one.append(2), one.append(3)
    assert (list(one), list(left), list(right.append(4)), list(left.append(5))) == ([1], [1, 2], [1, 3, 4], [1, 2, 5])


def test_indices_end_with_the_ledger_even_if_its_storage_is_longer():
    one = Ledger([1])
    one.append(2)
    with pytest.raises(IndexError):
        one[1]
    assert one[-1] == 1
    assert one == Ledger([1])
    assert one != Ledger([1, 2])


def test_appending_shares_storage():
    """Amortised O(1): a thousand ledgers of growing length share one list and do not hold half a million entries."""
    ledgers = [Ledger([0])]
    for number in range(1_000):
        ledgers.append(ledgers[-1].append(number))
    tracemalloc.start()
    more = [ledgers[-1]]
    for number in range(1_000):
        more.append(more[-1].append(number))
    size_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(more[-1]) == 2_001
    assert size_bytes < 500_000


def test_worst_judgement_is_the_outcome_and_feedback_comes_from_rejections():
    said = [
        GuardVerdict("a", "passed", "good"),
        GuardVerdict("b", "failed", "bad"),
        GuardVerdict("c", "fatal", "worse"),
    ]
    assert VerdictEntry("k", "g", 1, "id", said).outcome == "fatal"
    assert VerdictEntry("k", "g", 1, "id", said[:2]).outcome == "failed"
    assert VerdictEntry("k", "g", 1, "id", said[:1]).outcome == "passed"
    assert VerdictEntry("k", "g", 1, "id", said).feedback == "bad\nworse"
