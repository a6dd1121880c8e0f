"""A run taken up again, in process: who is told what, and what changes nothing."""

import asyncio

import pytest
from kept_runs import RUN, SHOP, begun, keep, recorded

from dsa.edge.binding import Binding
from dsa.edge.deciding import DoubtError
from dsa.errors import OccurrenceError
from dsa.lang import loads
from dsa.meaning import Occurrence
from dsa.runs.record import OtherMachineError
from dsa.runs.running import perform
from dsa.runs.record import replayed
from dsa.runs.running import take_up
from dsa.runtime.journal import Recorded
from dsa.runtime.ledger import DoubtEntry, EventEntry, Ledger, ResultEntry
from dsa.runtime.policies import event_step
from dsa.runtime.run import ReplayError

PAY, MAIL = f"{RUN}/1/2", f"{RUN}/2/1"


class Shop:
    """Policies that note what they do."""

    def __init__(self):
        self.did = []

    def bind(self, _first, _machine):
        return Binding(dict.fromkeys(("log", "pay", "mail"), self.perform))

    async def perform(self, action, _context):
        self.did.append(action.policy)
        await asyncio.sleep(0)
        return [event_step(action.policy, "paid")] if action.policy == "pay" else []


@pytest.fixture
def doubted(tmp_path):
    """A folder with a run that was cut off while it paid."""
    run, _ = begun().feed(Occurrence("order"))
    keep(tmp_path, run.record(ResultEntry(f"{RUN}/1/1", "log")).ledger)
    return tmp_path


def test_nothing_goes_on_before_somebody_has_said_what_became_of_an_effect(doubted):
    shop, before = Shop(), recorded(doubted).entries
    rest = take_up(doubted, RUN, shop.bind, sent=(Occurrence("more"),)).rest
    assert (rest.kind, [intent.key for intent in rest.in_doubt], shop.did) == ("waiting", [PAY], [])
    assert recorded(doubted).entries == before


def test_what_was_there_is_recalled_and_what_comes_is_observed(doubted):
    shop, old, new = Shop(), [], []
    before = recorded(doubted).entries
    performed = take_up(doubted, RUN, shop.bind, decided={PAY: "retry"}, observe=new.append, recall=old.append)
    assert shop.did == ["pay", "mail", "log"]
    assert Ledger(old) == before
    assert new[0] == DoubtEntry(PAY, "pay", "retry")
    assert Ledger([*old, *new]) == performed.rest.run.ledger == recorded(doubted).entries


def test_an_answer_is_taken_and_the_effect_not_performed(doubted):
    shop = Shop()
    rest = take_up(doubted, RUN, shop.bind, answers={PAY: Occurrence("paid", data={"by": "phone"})}).rest
    assert (rest.kind, rest.run.configuration.state, shop.did) == ("waiting", "resting", ["mail", "log"])
    (paid,) = (entry for entry in rest.run.ledger if isinstance(entry, EventEntry) and entry.event == "paid")
    assert (paid.key, paid.data) == (PAY, {"by": "phone"})
    assert recorded(doubted).entries == rest.run.ledger, "what was said is kept"


def test_an_event_is_sent_and_the_run_goes_on_to_its_end(doubted):
    shop = Shop()
    take_up(doubted, RUN, shop.bind, decided={PAY: "retry"})
    rest = take_up(doubted, RUN, shop.bind, sent=(Occurrence("more"),)).rest
    assert (rest.kind, rest.run.outcome) == ("finished", "succeeded")


@pytest.mark.parametrize(("said", "fault"), [
    ({"decided": {MAIL: "retry"}}, DoubtError),
    ({"decided": {PAY: "done"}}, DoubtError),
    ({"answers": {PAY: Occurrence("order")}}, OccurrenceError),
    ({"sent": (Occurrence("paid"),)}, OccurrenceError),
    ({"sent": (Occurrence("nonsense"),)}, OccurrenceError),
])  # fmt: skip
def test_what_cannot_be_said_changes_nothing(doubted, said, fault):
    before = recorded(doubted).entries
    with pytest.raises(fault):
        take_up(doubted, RUN, Shop().bind, **said)
    after = recorded(doubted)
    assert (after.entries, after.holder) == (before, None)
    assert not (doubted / RUN).exists()


def test_a_document_that_reads_otherwise_is_another_machine():
    entries = begun().ledger
    run, first = replayed(Recorded(RUN, SHOP, entries, 1))
    assert (run.machine, first) == (loads(SHOP), entries[0])
    for text, reads in (
        (SHOP.replace("mail, log", "mail"), "reads as [0-9a-f]{12} now"),
        ("nothing", "reads as no machine now"),
    ):
        with pytest.raises(OtherMachineError, match=reads) as raised:
            replayed(Recorded(RUN, text, entries, 1))
        assert raised.value.run == RUN


def test_a_ledger_that_is_not_its_machines_is_not_taken_for_one():
    run, _ = begun().feed(Occurrence("order"))
    entries = [*run.ledger][:2]
    with pytest.raises(ReplayError, match="entry 2"):
        replayed(Recorded(RUN, SHOP, Ledger([*entries, DoubtEntry("k", "pay", "ask")]), 1))


def test_a_run_that_is_performed_can_be_taken_up_at_once(tmp_path):
    shop = Shop()
    performed = perform(loads(SHOP), SHOP, shop.bind(None, None), None, root=tmp_path, started={"seed": 7})
    run = performed.rest.run.run_id
    assert dict(recorded(tmp_path, run).entries[0].started) == {"seed": 7}
    rest = take_up(tmp_path, run, shop.bind, sent=(Occurrence("order"), Occurrence("more"))).rest
    assert [entry.event for entry in rest.run.ledger if isinstance(entry, EventEntry)] == ["order", "more", "paid"]
