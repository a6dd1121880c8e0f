"""`dsa send`: events for a run that waits, and answers to effects in doubt."""

import json
from pathlib import Path

import pytest
from stored_runs import RUN, begun, crashed_while, dsa, keep, recorded, write_shop

from dsa.errors import OccurrenceError, code_of
from dsa.runs.runs import open_runs
from dsa.runtime.ledger import EventEntry, RefusalEntry
from dsa.semantics import Occurrence

ROOT = Path(".dsa")


@pytest.fixture(autouse=True)
def shop(tmp_path, monkeypatch):
    """A run of the shop that waits for an order."""
    monkeypatch.chdir(tmp_path)
    document = write_shop(tmp_path)
    keep(ROOT, begun(file=document).ledger)
    return document


def events():
    return [entry for entry in recorded(ROOT).entries if isinstance(entry, EventEntry) and entry.key is None]


@pytest.mark.parametrize(("arguments", "data"), [
    ([], None),
    (["green tea"], "green tea"),
    ([""], ""),
    (["--data", '{"tea": ["green", 2.5, null]}'], {"tea": ["green", 2.5, None]}),
    (["--data", '"text"'], "text"),
    (["--data", '"1e400"'], "1e400"),
    (["--data", "1e400 grains"], "1e400 grains"),
    (["1e400"], "1e400"),
])  # fmt: skip
def test_event_is_sent_with_its_data_and_the_run_continues(arguments, data):
    result = dsa("send", "last", "order", *arguments)
    assert result.exit_code == 3, result.output
    assert "waiting in resting for: more\n" in result.stdout
    assert f"next      dsa send {RUN}@2 more [DATA]\n" in result.stdout
    assert [event.data for event in events()] == [data]
    assert dsa("send", "last", "more").exit_code == 0


def test_answer_to_an_earlier_question_is_refused_as_late():
    assert dsa("send", f"{RUN}@0", "order").exit_code == 3
    late = dsa("send", f"{RUN}@0", "more")
    assert (late.exit_code, late.stderr) == (
        1,
        "more in resting was refused: late (more was sent to place 0, but its place is now 2); accepted there: more\n"  # noqa: ISC004
        f"the run asks question 2 now, not 0: look at it (dsa show {RUN}), and answer with dsa send {RUN}@2 more\n",
    )
    assert dsa("send", f"{RUN}@2", "more").exit_code == 0


def test_refusal_of_an_event_from_others_does_not_fail_the_command():
    assert dsa("send", f"{RUN}@0", "order").exit_code == 3
    with open_runs(ROOT) as runs:  # no process holds the run, so the event waits in the inbox
        others = runs.post(RUN, Occurrence("more", data="late"), at="0")
    sent = dsa("send", f"{RUN}@2", "more", "mine")
    assert (sent.exit_code, "refused" in sent.stderr) == (0, False)
    assert events()[-1].data == "mine"
    with open_runs(ROOT) as runs:
        assert runs.delivery(others).reason == "late"


@pytest.mark.parametrize(("arguments", "said"), [
    (["text", "--data", "1"], "not both"),
    (["--data", "{"], "--data begins like JSON but is not valid"),
    (["--data", "[NaN]"], "NaN is not JSON"),
    (["--data", "[" * 100_000], "--data begins like JSON but is not valid"),
    (["\udcff"], "DATA is not UTF-8 text"),
    (["--data", '{"tea": [1e400]}'], "--data: the number 1e400 is out of range: the greatest is 1.8e308; write it as a text, in quotes"),
    (["--data", " -1e400"], "--data: the number -1e400 is out of range"),
    (['{"tea": 1e400}'], "DATA: the number 1e400 is out of range"),
])  # fmt: skip
def test_invalid_data_is_refused_before_anything_happens(arguments, said):
    result = dsa("send", "last", "order", *arguments)
    assert result.exit_code == 2
    assert said in result.stderr
    assert events() == []


def test_unknown_event_gets_a_suggestion():
    result = dsa("send", "last", "ordr")
    assert (result.exit_code, result.stderr) == (2, "shop has no event 'ordr'; did you mean 'order'?\n")
    assert "known here: 'more', 'order'" in dsa("send", "last", "xyz").stderr
    assert events() == []


def test_event_that_does_not_come_from_outside_cannot_be_sent():
    fault = dsa("send", "last", "paid").exception
    assert isinstance(fault, OccurrenceError)
    assert str(fault) == "'paid' does not come from outside; these do: order, more"


def test_refused_event_is_reported_with_its_reason_and_accepted_events():
    result = dsa("send", "last", "more")
    assert result.exit_code == 1
    assert result.stderr == "more in idle was refused: invalid_state (no row for more here); accepted there: order\n"
    assert "waiting in idle for: order\n" in result.stdout
    assert isinstance(recorded(ROOT).entries[-1], RefusalEntry)
    told = json.loads(dsa("send", "last", "more", "--json").stdout)
    assert (told["exit_code"], told["kind"], told["waits_for"]) == (1, "waiting", {"order": "0"})
    assert told["refused"] == [
        {
            "event": "more",
            "state": "idle",
            "reason": "invalid_state",
            "message": "no row for more here",
            "accepted": ["order"],
        }
    ]
    told = json.loads(dsa("send", "last", "order", "--json").stdout)
    assert (told["exit_code"], told["refused"]) == (3, []), "only events that this command sent are listed"


def test_finished_run_takes_no_more_events():
    dsa("send", "last", "order")
    dsa("send", "last", "more")
    before = recorded(ROOT)
    result = dsa("send", "last", "more")
    assert (result.exit_code, result.stderr) == (1, f"run {RUN} is finished (succeeded): it takes no more events\n")
    assert recorded(ROOT) == before


def test_event_is_not_sent_while_an_effect_is_in_doubt(shop):
    run = "20260131T120001-shop-b"
    entries = crashed_while(ROOT, doing="mail", file=shop, run=run)
    result = dsa("send", "last", "more")
    assert result.exit_code == 3
    assert result.stderr == "more was not sent; first decide about the effects in doubt\n"
    assert f"dsa resume {run} --done 2/1\n" in result.stdout
    assert recorded(ROOT, run).entries == entries


def test_answer_settles_a_doubt(shop):
    run = "20260131T120001-shop-b"
    crashed_while(ROOT, doing="pay", file=shop, run=run)
    assert code_of(dsa("send", "last", "paid", "--answers", "7/7").exception) == "DoubtError"
    assert isinstance(dsa("send", "last", "order", "--answers", "1/2").exception, OccurrenceError)
    assert "did you mean 'declined'?" in dsa("send", "last", "decline", "--answers", "1/2").stderr
    result = dsa("send", "last", "declined", "--data", '{"by": "phone"}', "--answers", "1/2")
    assert (result.exit_code, result.stderr) == (1, "")
    assert result.stdout.startswith("failed by declined (line 32)\n")
    (answer,) = (entry for entry in recorded(ROOT, run).entries if isinstance(entry, EventEntry) and entry.key)
    assert (answer.event, answer.key, answer.data) == ("declined", "1/2", {"by": "phone"})
