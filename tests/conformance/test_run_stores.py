"""Every run store behaves the same: one writer, atomic commits, unchanged data, summaries and inboxes."""

import json
from copy import copy

import attrs
import pytest

from dsa.edge.stores.memory_store import MemoryStore
from dsa.edge.stores.sqlite_store import SqliteStore
from dsa.runtime.ledger import EventEntry, MachineEntry, ResultEntry
from dsa.runtime.run_store import (
    HeldError,
    InboxMessage,
    LeaseLostError,
    NewJournal,
    RunSummary,
    StoreError,
    Summary,
    UnknownRunError,
)

FIRST = MachineEntry("r1", "door", "0" * 64)
WAITING = Summary(
    status="waiting",
    state="checking",
    machine="door",
    begun_ms=1_000,
    changed_ms=2_000,
    waits_for={"approved": "13", "denied": ""},
    in_doubt={"3/1": "pay"},
    due_ms=5_000,
    about="an order",
    failure="none yet",
    parent="r0",
)
APPROVAL = InboxMessage("m1", "approved", [("is_exact", "passed")], {"by": "ann"}, "13", 1_500)


@pytest.fixture(params=["memory", "sqlite"])
def store(request, tmp_path):
    if request.param == "memory":
        yield MemoryStore()
        return
    with SqliteStore(tmp_path / "ledger.db") as made:
        yield made


@pytest.fixture
def journal(store):
    return store.create("r1", "# door", [FIRST])


def said(text, number=1):
    return EventEntry(number, "specification", data=text)


# -- entries and their one writer ----------------------------------------------------------------------------------------


def test_appended_entries_are_read_back(store, journal):
    journal.append([said("a"), said("b", 2)])
    journal.append([])
    found = store.read("r1")
    assert (found.run, found.text, list(found.entries)) == ("r1", "# door", [FIRST, said("a"), said("b", 2)])
    assert (journal.run, journal.epoch, found.epoch) == ("r1", 1, 1)
    assert found.holder is not None


def test_runs_are_listed_in_the_order_they_were_started(store):
    for run in ("r2", "r1", "r3"):
        store.create(run, "", [])
    store.hold("r2", take=True)
    assert store.runs() == ("r2", "r1", "r3")
    assert [each.run for each in store.summaries()] == ["r2", "r1", "r3"]


def test_id_can_be_used_only_once(store, journal):
    with pytest.raises(StoreError, match="there is already a run with this id; use a new id"):
        store.create("r1", "# window", [])
    assert store.read("r1").text == "# door"


@pytest.mark.parametrize(
    "ask",
    [
        lambda store: store.read("r9"),
        lambda store: store.hold("r9"),
        lambda store: store.read_after("r9", 0),
        lambda store: store.version("r9"),
        lambda store: store.summary("r9"),
        lambda store: store.post("r9", APPROVAL),
        lambda store: store.waiting_messages("r9"),
        lambda store: store.remove("r9"),
    ],
)
def test_unknown_run_is_refused(store, journal, ask):
    with pytest.raises(UnknownRunError, match="there is no run r9"):
        ask(store)


def test_run_has_one_writer(store, journal):
    with pytest.raises(HeldError, match="run r1 is held by"):
        store.hold("r1")
    journal.release()
    assert store.read("r1").holder is None
    again, found = store.hold("r1")
    assert (again.epoch, found.epoch, list(found.entries)) == (2, 2, [FIRST])


def test_writer_whose_run_was_taken_over_cannot_write(store, journal):
    store.post("r1", APPROVAL)
    taker, _ = store.hold("r1", take=True)
    taker.append([said("the taker's")], WAITING)
    for taking in ((), [("m1", '"taken"')]):
        with pytest.raises(LeaseLostError, match="run r1 was taken over by another process; nothing was written"):
            journal.append([said("the stalled one's")], Summary(status="finished"), taking)
    journal.release(Summary(status="interrupted"))
    assert [*store.read("r1").entries] == [FIRST, said("the taker's")]
    assert (store.summary("r1").summary, store.waiting_messages("r1")) == (WAITING, (APPROVAL,))
    taker.append([said("still", 2)])
    with pytest.raises(HeldError):
        store.hold("r1")


def test_writer_interrupted_before_noting_its_commit_does_no_harm(store, journal):
    """Ctrl-C comes between the commit and the writer's note of it; then the run is released."""
    interrupted = copy(journal)
    journal.append([said("a")])
    interrupted.release()
    assert list(store.read("r1").entries) == [FIRST, said("a")]
    again, _ = store.hold("r1")
    again.append([said("b", 2)])


@pytest.mark.parametrize(
    "data",
    [
        "x" * 5_000,
        ["x" * 5_000, {"again": "x" * 5_000, "$content": "y" * 5_000, "$$content": 1}],
        {"$content": "z" * 2_000, "other": "w" * 4_000},
        {"$content": "short"},
        {"$content": "0" * 64, "other": "w" * 5_000},
        ['{"$content":"' + "0" * 64 + '"}', '{"$$content":1}' * 500, "$$content"],
        {"a": [None, True, 1.5, -0.0, 10**30, "\ud800" * 5_000, "\0\r\n"]},
    ],
    ids=lambda data: str(data)[:40],
)
def test_large_and_unusual_data_is_read_back_unchanged(store, data):
    journal = store.create("r1", "text with \ud800", [FIRST])
    journal.append([said(data), ResultEntry("1/1", ({"payload": data},))])
    store.post("r1", InboxMessage("m1", "told", data=data))
    found = store.read("r1")
    assert found.text == "text with \ud800"
    assert list(found.entries) == [FIRST, said(data), ResultEntry("1/1", ({"payload": data},))]
    assert store.waiting_messages("r1")[0].data == data


# -- reading on ------------------------------------------------------------------------------------------------------------


def test_entries_can_be_read_from_any_position(store, journal):
    for number in range(0, 9, 3):
        journal.append([said("a", number), said("long " * 2_000, number + 1), said("c", number + 2)])
    whole = tuple(store.read("r1").entries)
    assert len(whole) == 10
    for position in range(13):
        assert store.read_after("r1", position) == whole[position:]
    assert store.read_after("r1", -1) == whole


def test_empty_run_has_no_entries_to_read(store):
    store.create("r1", "# door", [])
    assert (store.read_after("r1", 0), store.version("r1"), store.summary("r1").entries) == ((), 0, 0)


def test_version_counts_entries_of_all_writers(store, journal):
    seen = [store.version("r1")]
    for number in range(3):
        journal.append([said("a", number), said("b", number)])
        seen += [store.version("r1"), store.version("r1")]
    taker, _ = store.hold("r1", take=True)
    taker.append([said("c")])
    assert [*seen, store.version("r1")] == [1, 3, 3, 5, 5, 7, 7, 8]


def test_known_run_is_read_on_from_its_snapshot(store, journal):
    known = store.read("r1")
    journal.append([said("a"), said("b")])
    journal.release()
    again, found = store.hold("r1", snapshot=known)
    assert list(found.entries) == [FIRST, said("a"), said("b")]
    assert attrs.evolve(store.read("r1")) == found
    again.append([said("c")])
    assert list(store.hold("r1", take=True, snapshot=found)[1].entries) == [FIRST, said("a"), said("b"), said("c")]
    assert len(known.entries) == 1


# -- summaries ---------------------------------------------------------------------------------------------------------------


def test_released_run_without_a_summary_is_cut_off(store, journal):
    assert store.summary("r1").summary == Summary(status="cut off")
    assert store.summary("r1").status == "under way"
    journal.release()
    assert store.summary("r1").status == "cut off"


def test_summary_stays_until_the_next_one(store):
    journal = store.create("r1", "# door", [FIRST], WAITING)
    assert store.summary("r1") == RunSummary("r1", 1, WAITING, store.read("r1").holder)
    journal.append([said("a")])
    assert (store.summary("r1").summary, store.summary("r1").entries) == (WAITING, 2)
    done = Summary(status="finished", state="done", outcome="done", machine="door")
    journal.append([said("b")], done)
    journal.append([said("long " * 5_000)])
    assert (store.summary("r1").summary, store.summary("r1").entries) == (done, 4)
    journal.append([], WAITING)
    assert (store.summary("r1").summary, store.version("r1")) == (WAITING, 4)
    journal.release(done)
    again, _ = store.hold("r1")
    assert store.summary("r1").summary == done
    again.append([said("c")])
    assert store.summary("r1").summary == done


def test_summary_is_immutable():
    places = {"approved": "13"}
    summary = Summary(waits_for=places)
    places["denied"] = "14"
    assert dict(summary.waits_for) == {"approved": "13"}
    with pytest.raises(TypeError):
        summary.waits_for["denied"] = "15"


def test_summaries_are_filtered(store):
    texts = {
        "waits": WAITING,
        "other": attrs.evolve(WAITING, machine="window", waits_for={"denied": "2"}, due_ms=None),
        "done": Summary(status="finished", machine="door"),
        "held": WAITING,
    }
    for run, summary in texts.items():
        journal = store.create(run, "", [], summary)
        if run != "held":
            journal.release()

    def found(**asked):
        return [each.run for each in store.summaries(**asked)]

    assert found() == list(texts)
    assert found(status="waiting") == ["waits", "other"]
    assert found(status="under way") == ["held"]
    assert found(status="finished") == ["done"]
    assert found(waiting_for="approved") == ["waits", "held"]
    assert found(waiting_for="approved", status="waiting") == ["waits"]
    assert found(machine="window") == ["other"]
    assert found(status="due") == found(machine="wall") == []
    assert found(status="waiting", now_ms=5_000) == ["other"]
    assert found(status="due", now_ms=5_000) == ["waits"]
    assert found(status="due", now_ms=4_999) == []


def test_runs_are_due_when_unheld_with_work_to_do(store):
    never = [Summary(status=status, due_ms=1) for status in ("in doubt", "stopped", "interrupted", "finished")]
    for number, summary in enumerate([WAITING, *never, Summary(status="cut off"), Summary(status="due")]):
        store.create(str(number), "", [], summary).release()
    held = store.create("held", "", [], Summary(status="due"))
    assert store.due(4_999) == ("5", "6")
    assert store.due(5_000) == ("0", "5", "6")
    for run in ("0", "3", "held"):
        store.post(run, InboxMessage(f"to {run}", "approved"))
    assert store.due(0) == ("0", "3", "5", "6")
    assert [store.summary(run).status for run in ("0", "3", "held")] == ["due", "interrupted", "under way"]
    assert not held.release(WAITING), "a message waits in its inbox"
    assert store.summary("held").status == "under way"
    held.append([said("approved")], outcomes=[("to held", "{}")])
    assert held.release(WAITING)
    store.post("held", InboxMessage("another", "approved"))
    assert store.due(0) == ("0", "3", "5", "6", "held")


# -- the inbox ---------------------------------------------------------------------------------------------------------------


def test_message_is_posted_once(store, journal):
    for posted_ms in (1_500, 1_600):
        store.post("r1", attrs.evolve(APPROVAL, posted_ms=posted_ms))
    store.post("r1", InboxMessage("m0", "denied"))
    assert store.waiting_messages("r1") == (APPROVAL, InboxMessage("m0", "denied"))
    journal.append([said("approved")], outcomes=[("m1", '{"kind":"taken"}')])
    assert store.waiting_messages("r1") == (InboxMessage("m0", "denied"),)
    store.post("r1", APPROVAL)
    assert store.waiting_messages("r1") == (InboxMessage("m0", "denied"),)
    assert json.loads(store.outcome_of("m1")) == {"kind": "taken"}


@pytest.mark.parametrize(
    ("run", "other"),
    [
        ("r1", attrs.evolve(APPROVAL, event="denied")),
        ("r1", attrs.evolve(APPROVAL, data={})),
        ("r1", attrs.evolve(APPROVAL, at=None)),
        ("r2", APPROVAL),
    ],
)
def test_message_with_the_id_of_another_is_refused(store, journal, run, other):
    store.create("r2", "", [])
    store.post("r1", APPROVAL)
    with pytest.raises(StoreError, match="the id m1 belongs to a different message"):
        store.post(run, other)
    assert (store.waiting_messages("r1"), store.waiting_messages("r2")) == ((APPROVAL,), ())


def test_outcome_of_a_message_can_be_read_by_its_sender(store, journal):
    with pytest.raises(StoreError, match="there is no message m1"):
        store.outcome_of("m1")
    store.post("r1", APPROVAL)
    assert store.outcome_of("m1") is None
    journal.append([said("late")], outcomes=[("m1", '"late"')])
    journal.release()
    store.hold("r1")
    assert (store.outcome_of("m1"), store.waiting_messages("r1"), store.summary("r1").messages) == ('"late"', (), 0)


def test_commit_and_the_messages_it_takes_are_all_or_nothing(store, journal):
    store.create("r2", "", [])
    store.post("r1", APPROVAL)
    store.post("r2", InboxMessage("m2", "approved"))
    for wrong in ("m2", "m9"):
        with pytest.raises(StoreError, match=f"message {wrong} is not waiting for run r1; nothing was written"):
            journal.append([said("approved")], WAITING, [("m1", "null"), (wrong, "null")])
    assert (store.version("r1"), store.outcome_of("m1"), store.summary("r1").summary) == (1, None, Summary())
    journal.append([said("approved"), said("long " * 2_000)], WAITING, [("m1", '"taken"')])
    assert (store.version("r1"), store.outcome_of("m1"), store.summary("r1").summary) == (3, '"taken"', WAITING)
    with pytest.raises(StoreError, match="message m1 is not waiting"):
        journal.append([said("again")], outcomes=[("m1", '"again"')])
    assert (store.version("r1"), store.outcome_of("m1")) == (3, '"taken"')


def test_message_that_arrives_while_a_run_is_released_makes_it_due(store, journal):
    journal.append([], attrs.evolve(WAITING, due_ms=None))
    assert store.waiting_messages("r1") == ()  # the holder looks, and finds nothing
    store.post("r1", APPROVAL)  # the sender sees the run held
    assert store.due(0) == ()
    journal.release()
    assert (store.due(0), store.waiting_messages("r1")) == (("r1",), (APPROVAL,))
    journal, _ = store.hold("r1")
    journal.append([said("approved")], outcomes=[("m1", "null")])
    journal.release()
    assert store.due(0) == ()


# -- removing ------------------------------------------------------------------------------------------------------------------


def test_removed_run_is_gone_and_its_id_cannot_be_reused(store, journal):
    store.create("r2", "# door", [FIRST])
    journal.append([said("long " * 2_000)], WAITING)
    store.post("r1", APPROVAL)
    assert (store.version("r1"), len(store.waiting_messages("r1"))) == (2, 1)
    with pytest.raises(HeldError, match="run r1 is held by"):
        store.remove("r1")
    assert store.version("r1") == 2
    journal.release()
    store.remove("r1")
    assert store.runs() == ("r2",)
    assert [each.run for each in store.summaries()] == ["r2"]
    assert store.due(10_000) == ()
    for ask in (store.read, store.hold, store.version, store.waiting_messages, store.remove):
        with pytest.raises(UnknownRunError):
            ask("r1")
    with pytest.raises(StoreError, match="there is no message m1"):
        store.outcome_of("m1")
    with pytest.raises(StoreError, match="there was already a run with this id; use a new id"):
        store.create("r1", "# door", [FIRST])
    with pytest.raises(LeaseLostError):
        journal.append([said("from the grave")])
    assert list(store.read("r2").entries) == [FIRST]
    assert store.create("r3", "", []).run == "r3"


# -- a run that is about to begin ----------------------------------------------------------------------------------------------


def test_new_run_is_created_with_its_first_commit(store):
    beginning = NewJournal(store, "r1", "# door")
    beginning.release(WAITING)
    assert (beginning.epoch, store.runs()) == (0, ())
    beginning.append([FIRST], WAITING)
    assert (beginning.epoch, store.summary("r1").summary) == (1, WAITING)
    store.post("r1", APPROVAL)
    beginning.append([said("a")], outcomes=[("m1", "null")])
    beginning.release(Summary(status="finished"))
    assert (list(store.read("r1").entries), store.outcome_of("m1")) == ([FIRST, said("a")], "null")
    assert store.summary("r1") == RunSummary("r1", 2, Summary(status="finished"))
