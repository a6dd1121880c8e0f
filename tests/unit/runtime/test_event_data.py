"""Values of references: rules D1 to D6 of the semantics, on ledgers written by hand."""

import re

import pytest

from dsa.declarations import read_reference
from dsa.lang import loads
from dsa.runtime.event_data import LONGEST_VALUE, EventData, MissingDataError, placeholder_values
from dsa.runtime.run import begin
from dsa.semantics import Occurrence

TABLE = """# desk

## Events
| event  | from    |
| ------ | ------- |
| ask    | outside |
| note   | outside |
| again  | outside |
| found  | look    |
| priced | price   |

## States
| state | kind    |
| ----- | ------- |
| idle  | initial |
| done  | final   |

## Transitions
| source | event  | effects     | target |
| ------ | ------ | ----------- | ------ |
| idle   | ask    | look, price | =      |
| idle   | found  |             | =      |
| idle   | priced |             | =      |
| idle   | note   |             | =      |
| idle   | again  |             | =      |

## Prompt: look
### Task
```
{ask.who}: {all  note? since ask} {ask?}
```
"""
MACHINE = loads(TABLE)


def fed(*events):
    """Return a run that was fed these: an event, its data, and the key that it answers, if any."""
    run, _ = begin(MACHINE, "r")
    for event, data, *key in events:
        run, _ = run.feed(Occurrence(event, data=data), *key)
    return run


def then(run, seq=None):
    return EventData(MACHINE).follow(run.ledger).as_of(run.seq if seq is None else seq)


def test_newest_data_is_returned_whole_or_by_a_path():
    run = fed(("ask", {"who": "ann", "order": {"id": 7}}), ("note", "a"), ("note", "b"))
    assert then(run).get("ask.order.id") == 7
    assert then(run).get("ask.order") == {"id": 7}
    assert then(run).get("note") == "b"
    assert then(run).get("all note") == ["a", "b"]


def test_data_is_as_of_a_moment_without_later_events():
    run = fed(("note", "a"), ("ask", None), ("note", "b"))
    data = EventData(MACHINE).follow(run.ledger)
    assert data.before("2/1").get("note") == "a"
    assert data.before("3/1").get("note") == "b"  # the event that caused it is included


def test_data_is_the_same_when_the_ledger_is_followed_in_pieces():
    runs = [fed(*[("note", str(number)) for number in range(count)]) for count in range(5)]
    data = EventData(MACHINE)
    for count, run in enumerate(runs):
        assert data.follow(run.ledger).as_of(run.seq).get("all note?") == [str(number) for number in range(count)]


def test_refused_event_brings_no_data():
    run = fed(("note", "a"), ("found", "late"))
    with pytest.raises(MissingDataError, match="'found' is missing: no found has come"):
        then(run).get("found")
    assert then(run).get("note") == "a"


def test_since_excludes_earlier_events():
    run = fed(("note", "old"), ("again", None), ("note", "new"), ("again", None))
    assert then(run, 3).get("note since again") == "new"
    assert then(run, 1).get("note since again") == "old"  # there was no `again` yet
    with pytest.raises(MissingDataError, match="no note has come since again"):
        then(run).get("note since again")
    assert then(run).get("note? since again") is None
    assert then(run).get("all note? since again") == []


def test_list_of_answers_has_the_order_of_their_requests():
    run = fed(("ask", None), ("priced", 9, "1/2"), ("found", "x", "1/1"), ("ask", None), ("found", "y", "4/1"))
    assert then(run).get("all found") == ["x", "y"]
    # Requested before both, answered after them.
    assert then(run).with_event("found", "z", "0/1").get("all found") == ["z", "x", "y"]
    assert then(run).with_event("found", "z", "0/1").get("found") == "z"


def test_judged_event_is_included_as_the_newest():
    data = then(fed(("note", "a")))
    assert data.with_event("note", "b").get("note") == "b"
    assert data.with_event("note", "b").get("all note") == ["a", "b"]
    assert data.with_event("ask", None).get("note") == "a"


@pytest.mark.parametrize("data", [None, {}, {"who": None}, "ann", 5, ["who"]])
def test_path_that_leads_nowhere_is_missing(data):
    run = fed(("ask", data))
    with pytest.raises(MissingDataError, match=r"'ask\.who' is missing: ask has no 'who'"):
        then(run).get("ask.who")
    assert then(run).get("ask.who?") is None


def test_null_counts_as_missing_data():
    with pytest.raises(MissingDataError, match="ask has no data"):
        then(fed(("ask", None))).get("ask")


def test_list_is_missing_if_one_item_lacks_the_path():
    run = fed(("note", {"t": 1}), ("note", {}))
    with pytest.raises(MissingDataError):
        then(run).get("all note.t")
    assert then(run).get("all note.t?") == [1]


def test_too_long_data_is_refused():
    run = fed(("note", "x" * LONGEST_VALUE), ("ask", {"text": "x" * LONGEST_VALUE}))
    assert len(then(run).get("note")) == LONGEST_VALUE
    with pytest.raises(MissingDataError, match="200,011 characters; the limit is 200,000"):
        then(run).get("ask")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("fond", "'fond' is not an event; did you mean 'found'?"),
        ("fond.order", "'fond.order' is not an event; did you mean 'found'?"),
        ("note since asked", "'asked' is not an event; did you mean 'ask'?"),
        ("all", "'all' is not an event"),
        ("found ?", "'found \\?' does not name the data"),
        ("found since", "does not name the data"),
        ("", "does not name the data"),
    ],
)
def test_invalid_reference_gets_a_hint(words, said):
    with pytest.raises(LookupError, match=said):
        then(fed()).get(words)
    assert re.search(said, str(read_reference(words, MACHINE.event_named)))


def test_total_data_of_a_prompt_is_limited():
    task = "{note} {note?} {note since ask} {all note} {all note?} {all note since ask}"
    machine = loads(TABLE.replace("{ask.who}: {all  note? since ask} {ask?}", task))
    run = fed(("ask", None), ("note", "x" * (LONGEST_VALUE - 9)))
    with pytest.raises(
        MissingDataError,
        match=r"'note', 'note[?]', .* have 1,199,946 characters in all; the limit for one prompt is 1,000,000",
    ):
        placeholder_values(machine, "", "look", then(run).get)


def test_event_with_dots_is_distinguished_from_a_path():
    reference = read_reference("all look.failed.code? since ask", MACHINE.event_named)
    assert (reference.event, reference.path) == ("look.failed", ("code",))
    assert read_reference(str(reference), MACHINE.event_named) == reference


def test_placeholders_are_filled_with_texts():
    run = fed(("ask", {"who": "ann"}), ("note", "a"), ("note", {"b": 1}))
    assert placeholder_values(MACHINE, "", "look", then(run).get) == {
        "ask.who": "ann",
        "all note? since ask": 'a\n\n{\n  "b": 1\n}',
        "ask?": '{\n  "who": "ann"\n}',
    }


def test_since_the_same_event_includes_the_newest_one():
    run = fed(("note", "a"), ("note", "b"))
    assert then(run).get("all note since note") == ["b"]


@pytest.mark.parametrize("words", ["ask", "all ask"])
def test_changing_a_returned_value_does_not_change_the_ledger(words):
    run = fed(("ask", {"who": ["ann"]}))
    given = then(run).get(words)
    (given if isinstance(given, dict) else given[0])["who"].append("bob")
    assert then(run).get("ask.who") == ["ann"]
