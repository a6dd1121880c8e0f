"""Several queries of one answer run in parallel: reported in request order, kept when the process is killed, cancelled together."""

import asyncio
import json
from itertools import permutations

import pytest
from chat_chaos import follows_the_table, happened_once
from chat_server import Said, playing
from chats import CARS, conversation, names, say
from results import results_of
from test_chat_resume import ask, until

from dsa.edge.document_files import load
from dsa.runs.runs import open_runs
from machines.chat.chat_session import Chat

CALLS = 3
#: Bindings whose queries record that they started, and each wait for a file named after the id of their call.
GATED = """
import asyncio
from pathlib import Path
from dsa.runtime.policy.policies import answering
from machines.chat.bindings import effects, guards, run_sql as query, spenders

GATES = Path({gates!r})

@answering("sql_done", "sql_failed", is_eager=True)
async def run_sql(action, context):
    call_id = action.payload["data"]["call_id"]
    with (GATES / "begun").open("a") as file:
        print(call_id, file=file)
    while not (GATES / call_id).exists():
        await asyncio.sleep(0.01)
    return await query(action, context)

effects = {{**effects, "run_sql": run_sql}}
"""


@pytest.fixture
def gates(tmp_path):
    """A folder of gates, with the module of bindings that waits for them."""
    folder = tmp_path / "gates"
    folder.mkdir()
    (folder / "begun").touch()
    (folder / "gated.py").write_text(GATED.format(gates=str(folder)))
    return folder


def begun(gates):
    return (gates / "begun").read_text().split()


def asks_for_three(body, number):
    """Play a model that requests three queries, different ones in each turn, and then answers."""
    if body["messages"][-1]["role"] == "tool":
        return Said("Done.")
    return Said(calls=tuple(("run_sql", {"sql": f"SELECT {number} AS request, {n} AS n"}) for n in range(CALLS)))


def ids(request):
    return [f"call_{request}_{n}" for n in range(CALLS)]


def sent_results(body):
    """Return the last results of calls in a request: pairs of the call's id and the rows."""
    tools = [message for message in body["messages"] if message["role"] == "tool"][-CALLS:]
    return [(message["tool_call_id"], json.loads(message["content"])["rows"]) for message in tools]


@pytest.mark.parametrize("late", range(CALLS))
def test_only_the_query_cut_off_by_a_kill_is_made_again(tmp_path, gates, late):
    early = [call_id for n, call_id in enumerate(ids(0)) if n != late]
    with playing(asks_for_three) as played, open_runs(tmp_path / "runs") as runs:
        process = ask(
            played.model, tmp_path / "runs", str(CARS), "--with", str(gates / "gated.py"), "--ask", "Three things"
        )
        until(lambda: len(begun(gates)) == CALLS or process.poll() is not None)
        assert process.poll() is None, process.communicate()
        for call_id in reversed(early):
            (gates / call_id).touch()
        (run_id,) = runs.ids()
        until(lambda: len(results_of(runs.stored_run(run_id).entries, "run_sql")) == len(early))
        assert process.poll() is None
        process.kill()
        process.communicate()
        (gates / ids(0)[late]).touch()
        with Chat.resume(run_id, runs) as chat:
            turn = asyncio.run(chat.go_on())
            assert (turn.answer, [call.status for call in turn.calls]) == ("Done.", ["done"] * CALLS)
            assert [each.source_call_id for each in chat.conversation.inventory] == ids(0)
        entries = runs.stored_run(run_id).entries
    assert begun(gates) == [*ids(0), ids(0)[late]]
    assert [sent_results(body) for body in played.requests[1:]] == [
        [(call_id, [[0, n]]) for n, call_id in enumerate(ids(0))]
    ]
    assert played.faults == []
    happened_once(entries)
    follows_the_table(load("chat"), entries)


def test_results_are_reported_in_request_order_whichever_finishes_first(tmp_path, gates):
    async def turn_in(order, request):
        turn = asyncio.ensure_future(chat.say("Three other things"))
        for count, n in enumerate(order):
            while not (set(ids(request)) <= set(begun(gates)) and done() == count):
                assert not turn.done()
                await asyncio.sleep(0.01)
            (gates / ids(request)[n]).touch()
        return await turn

    def done():
        return sum(call.status == "done" for call in chat.conversation.turn.calls)

    with conversation(tmp_path, asks_for_three, module=str(gates / "gated.py")) as (chat, played):
        for number, order in enumerate(permutations(range(CALLS))):
            request = 2 * number
            assert asyncio.run(turn_in(order, request)).answer == "Done."
            expected = [(call_id, [[request, n]]) for n, call_id in enumerate(ids(request))]
            assert sent_results(played.requests[-1]) == expected, order
            assert [each.source_call_id for each in chat.conversation.inventory][-CALLS:] == ids(request), order
        assert len(set(names(chat))) == len(names(chat)) == CALLS * (number + 1)


def test_cancelled_turn_stops_all_its_queries(tmp_path):
    def player(body, number):
        if number:
            return asks_for_three(body, number) if number == 1 else Said("Done.")
        return Said(
            calls=tuple(("run_sql", {"sql": f"SELECT count(*) FROM range(10000000000{n})"}) for n in range(CALLS))
        )

    with conversation(tmp_path, player) as (chat, played):
        database = chat.resources.database

        async def stopped():
            turn = asyncio.ensure_future(chat.say("Count"))
            while len(queries()) < CALLS or len(chat.conversation.running_calls) < CALLS:  # noqa: ASYNC110  (nothing notifies of it)
                await asyncio.sleep(0.01)
            processes.extend(queries())
            chat.cancel()
            return await turn

        def queries():
            return list(database._busy)  # noqa: SLF001  (the test checks that they are gone)

        processes = []
        assert [call.status for call in asyncio.run(stopped()).calls] == ["turn_cancelled"] * CALLS
        until(lambda: not queries())
        assert all(process.is_over() for process in processes)
        assert say(chat, "And now?").answer == "Done."
        assert [code(message) for message in played.requests[1]["messages"] if message["role"] == "tool"] == [
            "interrupted"
        ] * CALLS


def code(message):
    return json.loads(message["content"])["error"]["code"]
