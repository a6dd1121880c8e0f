"""Summaries of runs under way name what a person must decide if the process dies at that moment."""

import pytest
from stored_runs import SHOP, begun

from dsa.edge.document_files import load
from dsa.edge.stores.memory_store import MemoryStore
from dsa.lang import digest
from dsa.runs.bindings import request
from dsa.runs.summary import SummaryJournal
from dsa.runtime.ledger import CallEntry, CallResultEntry, ResultEntry, ResumedEntry
from dsa.runtime.policy.policies import error_step, event_step, text_step
from dsa.runtime.run import begin
from dsa.runtime.run_store import NewJournal
from dsa.runtime.status import doubted_keys, status_of
from dsa.semantics import Occurrence

PAID = (event_step("pay", "paid").without_id(),)


def shop(*, retries=0):
    """Return a sale as it is after each commit: log, pay, which may fail first, mail, log."""
    text = SHOP.replace("| effect | kind     | in doubt |", "| effect | kind     | retries |")
    text = text.replace("| pay    | actuator |          |", f"| pay    | actuator | {retries} |")
    now = begun(text)
    yield now
    now, _ = now.feed(Occurrence("order", data="tea"))
    yield now
    now = now.record(ResultEntry("1/1"))
    yield now
    for _ in range(retries):
        now = now.record(ResultEntry("1/2", (error_step("pay", "BUSY", "later").without_id(),)))
        yield now
    now = now.record(ResumedEntry(effects={"1/2": "retry"}))
    yield now
    now = now.record(ResultEntry("1/2", PAID))
    now, _ = now.feed(Occurrence("paid"), "1/2")
    yield now
    for key in ("2/1", "2/2"):
        now = now.record(ResultEntry(key))
        yield now
    now, _ = now.feed(Occurrence("more"))
    yield now


def asking(in_doubt):
    """Return a policy's run that calls two others, one after the other, as it is after each commit."""
    machine = load("policy")
    now, _ = begin(machine, "20260131T120000-p-aaaaaa", digest=digest(machine))
    yield now
    now, _ = now.feed(Occurrence("specification", data=request("search", {"text": "tea"}, ["read"])))
    yield now
    for number, handling in enumerate(["retry", in_doubt], start=1):
        path = f"1.{number}"
        now = now.record(CallEntry("1/1", path, "search", "0", {}, (), handling))
        yield now
        step = text_step("search", "hot", step_id=f"{path}/1").to_json()
        now = now.record(CallResultEntry("1/1", path, [step]))
        yield now


@pytest.mark.parametrize(
    ("states", "doubted"),
    [
        (shop(), [{}, {}, {"1/2": "pay"}, {"1/2": "pay"}, {"2/1": "mail"}, {}, {}, {}]),
        (shop(retries=1), None),
        (asking("ask"), [{}, {}, {}, {}, {"1/1/1.2": "search"}, {}]),
        (asking("retry"), [{}] * 6),
    ],
)
def test_summary_under_way_names_what_is_in_doubt_after_a_crash(states, doubted):
    states = list(states)
    store, written = MemoryStore(), 0
    journal = SummaryJournal(NewJournal(store, states[0].run_id, "text"), states[0], lambda: now)
    found = []
    for now in states:
        journal.append(now.ledger.after(written))
        written = len(now.ledger)
        summary = store.summary(now.run_id).summary
        assert dict(summary.in_doubt) == doubted_keys(now, status_of(now).doubts)
        assert (summary.status == "in doubt") == bool(summary.in_doubt)
        found.append(dict(summary.in_doubt))
    assert doubted is None or found == doubted
    assert any(found) or doubted == [{}] * 6
