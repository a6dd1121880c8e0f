from hypothesis import given
from hypothesis import strategies as st

from dsa.runtime.costs import counters, reasons_of
from dsa.runtime.ledger import (
    EffectEntry,
    EventEntry,
    MachineEntry,
    RefusalEntry,
    ResultEntry,
    ResumedEntry,
    RowEntry,
)


def result(effect, *payloads):
    steps = tuple({"id": f"1/1/{at}", "policy": effect, "payload": payload} for at, payload in enumerate(payloads, 1))
    return ResultEntry("1/1", steps)


def event(name, data=None):
    return EventEntry(1, name, data=data)


def test_events_refusals_effects_failures_and_doubts_are_counted_by_name():
    entries = [
        MachineEntry("r", "m", "d"),
        event("go"),
        RowEntry(1, "a", "b"),
        EffectEntry("1/1", "work"),
        result("work", {"text": "done"}),
        result("work", {"error": True, "code": "E", "message": "no"}),
        ResumedEntry(effects={"1/1": "retry"}),
        event("go"),
        RefusalEntry("late", "no"),
    ]
    assert counters(entries) == {
        "events": {"go": 2},
        "refused": {"late": 1},
        "effects": {"work": 1},
        "failed": {"work": 1},
        "in doubt": {"work": 1},
    }


def test_run_without_events_has_no_counts():
    assert counters([]) == {}
    assert counters([MachineEntry("r", "m", "d")]) == {}


def test_names_are_sorted():
    assert list(counters([event("b"), event("a"), event("c"), event("a")])["events"]) == ["a", "b", "c"]


def test_reasons_are_counted_as_the_policy_names_them():
    said = result("work", {"reason": "too_many"}, {"text": "x"}, {"reason": 3}, {"reason": "late"}, {"reason": "late"})
    assert reasons_of(said) == ("too_many", "late", "late")
    assert counters([said, said])["reasons"] == {"late": 4, "too_many": 2}


def test_rescues_are_lists_of_names_or_numbers_by_name():
    entries = [
        event("a", {"rescues": ["fence", "alias", "fence"]}),
        event("b", {"rescues": {"fence": 3, "changed_id": 1}}),
    ]
    assert counters(entries)["rescues"] == {"alias": 1, "changed_id": 1, "fence": 5}


def test_invalid_rescues_are_not_counted():
    odd = [
        None,
        3,
        "rescues",
        ["rescues"],
        {"rescues": "fence"},
        {"rescues": [3, None, {}]},
        {"rescues": {"fence": "many"}},
    ]
    assert counters([event("a", data) for data in odd]) == {"events": {"a": len(odd)}}


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["rescues", "a"]), inner, max_size=2),
)
entries_ = st.lists(
    st.builds(event, st.sampled_from(["a", "b"]), json_values)
    | st.builds(lambda reason: result("work", {"reason": reason}), json_values)
    | st.builds(RefusalEntry, st.just(1), st.sampled_from(["late", "no"]), st.just("")),
    max_size=8,
)


@given(entries_, st.integers(0, 8))
def test_counts_of_two_parts_add_up(entries, cut):
    whole, parts = counters(entries), [counters(entries[:cut]), counters(entries[cut:])]
    for kind, counts in whole.items():
        for name, count in counts.items():
            assert count == sum(part.get(kind, {}).get(name, 0) for part in parts)
    assert all(set(part.get(kind, {})) <= set(whole.get(kind, {})) for part in parts for kind in part)
