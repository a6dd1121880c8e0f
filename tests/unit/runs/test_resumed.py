"""Resumed runs: what they report and record, and what changes nothing."""

import asyncio
import os
import re

import pytest
from stored_runs import RUN, SHOP, begun, keep, recorded

from dsa.edge.binding import Bindings
from dsa.errors import DsaError, OccurrenceError
from dsa.lang import loads
from dsa.runs.archive import OtherMachineError, replay_stored
from dsa.runs.runs import Resumption, open_runs
from dsa.runs.setup import Options
from dsa.runtime.ledger import DecidedEntry, EventEntry, Ledger, ResultEntry, ResumedEntry
from dsa.runtime.policy.policies import event_step
from dsa.runtime.run import ReplayError
from dsa.runtime.run_store import StoredRun
from dsa.runtime.status import unfinished_work
from dsa.semantics import Occurrence

PAY, MAIL = "1/2", "2/1"


class Shop:
    """Policies that record what they do."""

    def __init__(self):
        self.did = []

    def bind(self, _machine, _started):
        return Bindings(dict.fromkeys(("log", "pay", "mail"), self.perform))

    async def perform(self, action, _context):
        self.did.append(action.policy)
        await asyncio.sleep(0)
        return [event_step(action.policy, "paid")] if action.policy == "pay" else []

    def resume(self, root, *sent, on_moment=None, **said):
        """Resume the run and drive it until it rests."""

        async def resumed():
            async with open_runs(root) as runs:
                how = {"options": Options(self.bind), "resumption": Resumption(**said), "on_moment": on_moment}
                handle = await runs.resume(RUN, *sent, **how)
                return await handle.rest(through_timers=True)

        return asyncio.run(resumed())


@pytest.fixture
def doubted(tmp_path):
    """A folder with a run that was cut off during the payment."""
    run, _ = begun().feed(Occurrence("order"))
    keep(tmp_path, run.record(ResultEntry("1/1")).ledger)
    return tmp_path


def test_run_does_not_continue_until_an_effect_in_doubt_is_decided(doubted):
    shop, before = Shop(), recorded(doubted).entries
    rest = shop.resume(doubted, Occurrence("more"))
    assert (rest.kind, [intent.key for intent in rest.in_doubt], shop.did) == ("in doubt", [PAY], [])
    assert recorded(doubted).entries == before


def test_earlier_moments_are_distinguished_from_new_ones(doubted):
    shop, seen = Shop(), []
    before = recorded(doubted).entries
    rest = shop.resume(doubted, decisions={PAY: "retry"}, on_moment=lambda *told: seen.append(told))
    assert shop.did == ["pay", "mail", "log"]
    assert [(moment.run, moment.number) for moment, _ in seen] == [(RUN, at) for at in range(1, len(seen) + 1)]
    assert Ledger([moment.entry for moment, is_new in seen if not is_new]) == before
    decided, resumed, *_ = [moment.entry for moment, is_new in seen if is_new]
    assert decided == DecidedEntry(PAY, "retry", at_ms=decided.at_ms)
    assert (resumed.effects, resumed.calls) == (((PAY, "retry"),), ())
    assert re.fullmatch(rf".+@.+ \(process {os.getpid()}\)", resumed.by)
    assert Ledger([moment.entry for moment, _ in seen]) == rest.run.ledger == recorded(doubted).entries


def test_answer_replaces_the_performance_of_its_effect(doubted):
    shop = Shop()
    rest = shop.resume(doubted, answers={PAY: Occurrence("paid", data={"by": "phone"})})
    assert (rest.kind, rest.run.configuration.state, shop.did) == ("waiting", "resting", ["mail", "log"])
    (paid,) = (entry for entry in rest.run.ledger if isinstance(entry, EventEntry) and entry.event == "paid")
    assert (paid.key, paid.data) == (PAY, {"by": "phone"})
    assert recorded(doubted).entries == rest.run.ledger, "the answer is stored"


def test_sent_event_takes_the_run_to_its_end(doubted):
    shop = Shop()
    shop.resume(doubted, decisions={PAY: "retry"})
    rest = shop.resume(doubted, Occurrence("more"))
    assert (rest.kind, rest.run.outcome) == ("finished", "succeeded")


@pytest.mark.parametrize(("said", "fault"), [
    ({"decisions": {MAIL: "retry"}}, DsaError),
    ({"decisions": {PAY: "done"}}, DsaError),
    ({"answers": {PAY: Occurrence("order")}}, OccurrenceError),
])  # fmt: skip
def test_invalid_decision_or_answer_changes_nothing(doubted, said, fault):
    before = recorded(doubted).entries
    with pytest.raises(fault):
        Shop().resume(doubted, **said)
    after = recorded(doubted)
    assert (after.entries, after.holder) == (before, None)
    assert not (doubted / RUN).exists()


@pytest.mark.parametrize("event", ["paid", "nonsense"])
def test_invalid_event_changes_nothing(doubted, event):
    before = recorded(doubted).entries
    with pytest.raises(OccurrenceError):
        Shop().resume(doubted, Occurrence(event))
    after = recorded(doubted)
    assert (after.entries, after.holder) == (before, None)


def test_document_with_another_meaning_is_another_machine():
    entries = begun().ledger
    run, first = replay_stored(StoredRun(RUN, SHOP, entries, 1))
    assert (run.machine, first) == (loads(SHOP), entries[0])
    for text, reads in (
        (SHOP.replace("mail, log", "mail"), "the document now has the digest [0-9a-f]{12}"),
        ("nothing", "the document is no longer a machine"),
    ):
        with pytest.raises(OtherMachineError, match=reads) as raised:
            replay_stored(StoredRun(RUN, text, entries, 1))
        assert raised.value.run == RUN


def test_ledger_that_its_machine_cannot_produce_is_refused():
    run, _ = begun().feed(Occurrence("order"))
    entries = [*run.ledger][:2]
    with pytest.raises(ReplayError, match="entry 2"):
        replay_stored(StoredRun(RUN, SHOP, Ledger([*entries, DecidedEntry("k", "ask")]), 1))


def test_new_run_can_be_resumed_at_once(tmp_path):
    shop = Shop()

    async def begun_and_resumed():
        async with open_runs(tmp_path) as runs:
            options = Options(shop.bind, seed=7)
            first = await runs.start(loads(SHOP), options=options)
            await first.rest()
            assert dict(runs.get(first.id).first.started)["seed"] == 7
            again = await runs.resume(first.id, Occurrence("order"), Occurrence("more"), options=options)
            return await again.rest()

    rest = asyncio.run(begun_and_resumed())
    assert [entry.event for entry in rest.run.ledger if isinstance(entry, EventEntry)] == ["order", "more", "paid"]


# -- entries of resumptions -----------------------------------------------------------------------------------------------


def resumptions(entries):
    return [entry for entry in entries if isinstance(entry, ResumedEntry)]


def test_each_resumption_with_unfinished_effects_is_one_entry(tmp_path):
    run, _ = begun().feed(Occurrence("order"))
    keep(tmp_path, run.ledger)

    class Hanging(Shop):
        async def perform(self, action, context):
            assert resumptions(recorded(tmp_path).entries), "it is durable before anything is performed again"
            await super().perform(action, context)
            await asyncio.Event().wait()

    async def cut_off():
        async with open_runs(tmp_path) as runs:
            handle = await runs.resume(RUN, options=Options(hanging.bind))
            while not hanging.did:
                await handle.change()

    hanging, shop = Hanging(), Shop()
    asyncio.run(asyncio.wait_for(cut_off(), 20))
    assert shop.resume(tmp_path).kind == "waiting"
    assert (hanging.did, shop.did) == (["log"], ["log", "pay", "mail", "log"])
    assert [entry.effects for entry in resumptions(recorded(tmp_path).entries)] == [(("1/1", "retry"),)] * 2


@pytest.mark.parametrize(("handling", "state", "did"), [
    ("retry", "resting", ["pay", "mail", "log"]),
    ("fail", "failed", []),
])  # fmt: skip
def test_decision_holds_when_the_process_ends_before_the_run_continues(doubted, handling, state, did):
    assert Shop().resume(doubted).kind == "in doubt"
    with open_runs(doubted) as runs:
        runs.hold(RUN, options=Options(Shop().bind), resumption=Resumption({PAY: handling})).release()
        assert resumptions(recorded(doubted).entries) == []
        assert runs.get(RUN).status.kind == "cut off"
        assert [each.status for each in asyncio.run(runs.list())] == ["cut off"]
    shop = Shop()
    rest = shop.resume(doubted)
    assert (rest.run.configuration.state, shop.did) == (state, did)
    assert [entry.handling for entry in rest.run.ledger if isinstance(entry, DecidedEntry)] == [handling]
    assert [entry.effects for entry in resumptions(rest.run.ledger)] == [((PAY, handling),)]


def test_decision_applies_to_one_interruption_of_an_effect(doubted):
    known = recorded(doubted)
    run, _ = replay_stored(known)
    decided = run.record(DecidedEntry(PAY, "retry"))
    assert unfinished_work(decided).in_flight[0].decisions == {PAY: "retry"}
    assert unfinished_work(decided.record(ResumedEntry(effects={PAY: "retry"}))).in_flight[0].decisions == {}
    assert unfinished_work(decided.record(ResumedEntry(model="m"))).in_flight[0].decisions == {PAY: "retry"}


def test_resumption_without_unfinished_effects_records_only_changes(tmp_path):
    shop = Shop()

    async def resumed(*sent, **how):
        async with open_runs(tmp_path) as runs:
            handle = await runs.resume(RUN, *sent, options=Options(shop.bind, **how))
            return await handle.rest()

    async def begun_so():
        async with open_runs(tmp_path) as runs:
            handle = await runs.start(
                loads(SHOP), run_id=RUN, options=Options(shop.bind, model="a", budget=["pay.calls=3"])
            )
            return await handle.rest()

    def told():
        return [(each.model, each.budget, each.effects) for each in resumptions(recorded(tmp_path).entries)]

    asyncio.run(begun_so())
    asyncio.run(resumed())
    assert told() == []
    asyncio.run(resumed(model="b"))
    asyncio.run(resumed(model="b"))
    before = ("pay.calls=3",)
    assert told() == [("b", before, ())]
    asyncio.run(resumed())
    asyncio.run(resumed(budget=["calls=9"]))
    assert told()[1:] == [("a", before, ()), ("a", ("calls=9",), ())]
    asyncio.run(resumed(Occurrence("order"), budget=["calls=9"]))
    asyncio.run(resumed(Occurrence("more"), budget=["calls=9"]))
    rest = asyncio.run(resumed(model="c"))
    assert (rest.kind, len(told())) == ("finished", 3), "a finished run records no resumption"


LETTERS = """# letters

## Events
| event  | from    |
| ------ | ------- |
| go     | outside |
| mailed | mail    |
| faxed  | fax     |

## Effects
| effect | in doubt | retries | on failure |
| ------ | -------- | ------- | ---------- |
| mail   | fail     | 0       | stop       |
| fax    | fail     | 0       | stop       |

## States
| state   | kind    |
| ------- | ------- |
| idle    | initial |
| sending |         |
| half    |         |
| done    | final   |

## Transitions
| source  | event  | effects   | target  |
| ------- | ------ | --------- | ------- |
| idle    | go     | mail, fax | sending |
| sending | mailed |           | half    |
| sending | faxed  |           | half    |
| half    | mailed |           | done    |
| half    | faxed  |           | done    |
"""


def test_failed_effect_and_one_in_doubt_are_performed_together_after_both_failures(tmp_path):
    """Neither is begun in a session that stops at once: it would be in doubt in the next one, and the two would take turns for ever."""
    (tmp_path / "letters.md").write_text(LETTERS)
    did, is_mended = [], False

    async def mail(action, _context):
        did.append(action.policy)
        if not is_mended:
            raise OSError("the mail server is away")
        await asyncio.sleep(0.01)
        return [event_step("mail", "mailed")]

    async def fax(action, _context):
        did.append(action.policy)
        await asyncio.sleep(0.01 if is_mended else 60)
        return [event_step("fax", "faxed")]

    async def play():
        nonlocal is_mended
        options = Options(lambda *_: Bindings({"mail": mail, "fax": fax}))
        async with open_runs(tmp_path) as runs:
            rests = [await (await runs.start(tmp_path / "letters.md", "go", run_id=RUN, options=options)).rest()]
            is_mended = True
            while rests[-1].kind == "stopped" and len(rests) < 5:
                rests.append(await (await runs.resume(RUN, options=options)).rest())
            return rests

    rests = asyncio.run(play())
    assert [str(rest.failure).partition(":")[0].partition(" ")[0] for rest in rests[:-1]] == ["mail", "fax"]
    assert (rests[-1].kind, did) == ("finished", ["mail", "fax"] * 2)
    resumed_entries = [entry.effects for entry in rests[-1].run.ledger if isinstance(entry, ResumedEntry)]
    assert resumed_entries == [(("1/2", "fail"),), (("1/1", "again"), ("1/2", "again"))]
