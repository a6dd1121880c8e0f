"""A custom agent that calls tools: what its model is sent, what happens to its calls, and that each call has a result."""

import asyncio
import json
import math
from datetime import UTC, datetime

import attrs
import pytest
from chat_server import faults_of
from stream_server import answered, events, serving
from stream_shapes import call_chunk, chunk, entry, finished

import dsa
from dsa.errors import ToolError
from machines.tool_use import TEXT, AgentCall, FunctionGuard, FunctionTool, Parameter, ToolAgent
from machines.tool_use import tool_agent as agent_module
from machines.tool_use.tool_agent import read_result

pytest.importorskip("httpx", reason="the extra `llm` is not installed")

TABLE = """# desk

## Variables
| variable | scope       | domain | initial |
| -------- | ----------- | ------ | ------- |
| rounds   | environment | 0..4   | 0       |

## Events
| event         | from      |
| ------------- | --------- |
| message       | outside   |
| denied        | outside   |
| asked         | ask_model |
| said          | ask_model |
| cut_off       | ask_model |
| tool_call     | next_call |
| unknown_call  | next_call |
| no_more_calls | next_call |
| tool_done     | run_tool  |
| tool_failed   | run_tool  |

## Effects
| effect       | kind     | in doubt |
| ------------ | -------- | -------- |
| ask_model    |          | retry    |
| next_call    |          | retry    |
| run_tool     |          | retry    |
| refuse_call  |          |          |
| drop_calls   |          |          |
| note_cut_off |          |          |
| ask_person   | actuator | retry    |
| reply        | actuator | retry    |

## Guards
| guard    | judges    |
| -------- | --------- |
| harmless | tool_call |
| allowed  | tool_call |

## States
| state    | kind    |
| -------- | ------- |
| idle     | initial |
| thinking |         |
| calling  |         |
| waiting  |         |
| running  |         |
| resting  |         |
| failed   |         |

## Transitions
| source   | event                  | if              | update      | effects                 | target   |
| -------- | ---------------------- | --------------- | ----------- | ----------------------- | -------- |
| idle     | message                |                 |             | ask_model               | thinking |
| resting  | message                |                 | rounds = 0  | ask_model               | thinking |
| failed   | message                |                 | rounds = 0  | ask_model               | thinking |
| thinking | asked                  | rounds < 4      | rounds += 1 | next_call               | calling  |
| thinking | asked                  | else            |             | drop_calls              | failed   |
| thinking | said                   |                 |             | reply                   | resting  |
| thinking | cut_off                | rounds < 4      | rounds += 1 | note_cut_off, ask_model | thinking |
| thinking | cut_off                | else            |             |                         | failed   |
| calling  | tool_call              | allowed.passed and harmless.passed |             | run_tool                | running  |
| calling  | tool_call              | allowed.passed and harmless.failed |             | ask_person              | waiting  |
| calling  | tool_call              | else            |             | refuse_call, next_call  | calling  |
| calling  | unknown_call           |                 |             | refuse_call, next_call  | calling  |
| calling  | no_more_calls          |                 |             | ask_model               | thinking |
| waiting  | denied                 |                 |             | refuse_call, next_call  | calling  |
| running  | tool_done, tool_failed |                 |             | next_call               | calling  |
| running  | run_tool.failed        |                 |             |                         | failed   |
"""


def find(place):
    if place == "nowhere":
        raise ToolError("there is no such place")
    if place == "fire":
        raise RuntimeError("the house burns")
    if place == "half a fault":
        raise ToolError("\ud83d")
    odd = {"half": {"name": "\ud83d"}, "a set": {1}, "NaN": math.nan, "a day": datetime(2026, 1, 1, tzinfo=UTC)}
    round_and_round = []
    round_and_round.append(round_and_round)
    return round_and_round if place == "itself" else odd.get(place, {"sunny": True, "place": place})


async def shout(place):
    return place.upper()


WHERE = Parameter("place", TEXT, "where", required=True, aliases=("city",))
TOOLS = [
    FunctionTool("find", "Find the weather of a place.", (WHERE,), do=find),
    FunctionTool("shout", "Say it loud.", (WHERE,), do=shout),
    FunctionTool("anything", "Of a form of its own.", schema={"type": "object"}, do=find),
]


def harmless(call):
    return ("failed", "no shouting") if call.tool == "shout" else ("passed", "")


def allowed(call):
    return ("failed", "nobody lives there") if call.arguments.get("place") == "the moon" else ("passed", "")


def bound(_machine, started):
    agent = ToolAgent("You know the weather.", TOOLS)
    guards = {"harmless": FunctionGuard(AgentCall, harmless), "allowed": FunctionGuard(AgentCall, allowed)}
    return dsa.Bindings(effects=agent.effects, guards=guards, config={"model": started["model"], "seed": 0})


def asks(*calls):
    pieces = [
        call_chunk(entry(at, arguments, given_id=f"p{at}", name=name)) for at, (name, arguments) in enumerate(calls)
    ]
    return answered(events([*pieces, finished("tool_calls")]))


SAYS = answered(events([chunk({"content": "It is sunny."}), finished("stop")]))


async def talked(folder, address, *sent, table=TABLE):
    """Start a run and send the events in turn; return the state at the end."""
    path = folder / "desk.md"
    path.write_text(table)
    async with dsa.open_runs(folder / "runs") as runs:
        run = await runs.start(path, bindings=bound, model=f"{address}/v1#m")
        rest = await run.rest()
        for event, data in sent:
            await run.send(event, data)
            rest = await run.rest()
        return rest.run.configuration.state


@pytest.fixture
def talk(tmp_path):
    """Talk with a model that gives these answers; return the state at the end, and what it was sent."""

    def with_answers(answers, *sent, table=TABLE):
        with serving(*answers) as (address, requests):
            state = asyncio.run(talked(tmp_path, address, *sent, table=table))
            bodies = [request.body for request in requests]
        assert [fault for body in bodies for fault in faults_of(body)] == []
        return state, bodies

    return with_answers


def results(body):
    return [json.loads(message["content"]) for message in body["messages"] if message["role"] == "tool"]


def test_calls_of_a_model_are_made_and_answered_in_order(talk):
    calls = asks(("find", '{"city": "Rome"}'), ("find", '{"place": "nowhere"}'), ("sing", "{}"))
    state, bodies = talk([calls, SAYS], ("message", "How is it?"))
    assert state == "resting"
    assert bodies[0]["messages"] == [
        {"role": "system", "content": "You know the weather."},
        {"role": "user", "content": "How is it?"},
    ]
    assert [tool["function"]["name"] for tool in bodies[0]["tools"]] == ["find", "shout", "anything"]
    done, failed, unknown = results(bodies[1])
    assert done == {"sunny": True, "place": "Rome"}
    assert failed == {"error": {"code": "failed", "message": "there is no such place"}}
    assert unknown["error"] == {
        "code": "not_made",
        "message": "there is no tool 'sing'; the tools are: find, shout, anything",
    }


def test_denied_call_is_answered_with_the_reason_given(talk):
    calls = asks(("shout", '{"place": "Rome"}'), ("find", '{"place": "Rome"}'))
    _, bodies = talk([calls, SAYS], ("message", "Loud!"), ("denied", "not at night"))
    assert results(bodies[1]) == [
        {"error": {"code": "not_made", "message": "not at night"}},
        {"sunny": True, "place": "Rome"},
    ]


def test_conversation_goes_on_after_a_tool_failed(talk):
    """Each call still has a result: providers refuse a conversation with a call that has none."""
    calls = asks(("find", '{"place": "fire"}'), ("find", '{"place": "Rome"}'))
    state, bodies = talk([calls, SAYS], ("message", "How is it?"), ("message", "Again?"))
    assert state == "resting"
    assert [each["error"]["code"] for each in results(bodies[1])] == ["interrupted", "not_made"]
    assert bodies[1]["messages"][-1] == {"role": "user", "content": "Again?"}


def test_calls_beyond_the_last_round_are_dropped_and_answered(talk):
    call = asks(("find", '{"place": "Rome"}'))
    state, bodies = talk([*[call] * 5, SAYS], ("message", "How is it?"), ("message", "Well?"))
    assert state == "resting"
    assert len(bodies) == 6
    assert results(bodies[5])[-1]["error"]["code"] == "too_many_calls"


def test_answer_that_breaks_off_is_requested_again(talk):
    cut = answered(events([chunk({"content": "It is"}), finished("length")]))
    state, bodies = talk([cut, SAYS], ("message", "How is it?"))
    assert state == "resting"
    assert "is not complete: it reached its limit of tokens" in bodies[1]["messages"][-1]["content"]


def test_reason_of_a_guard_reaches_the_model_and_the_person(talk, tmp_path):
    calls = asks(("find", '{"place": "the moon"}'), ("shout", '{"place": "Rome"}'))
    _, bodies = talk([calls, SAYS], ("message", "How is it?"), ("denied", ""))
    assert [each["error"]["message"] for each in results(bodies[1])] == ["nobody lives there", "no shouting"]
    ledger = (tmp_path / "runs" / "ledger.db").read_bytes()
    assert b'allow shout {\\"place\\": \\"Rome\\"}? (no shouting)' in ledger


@pytest.mark.parametrize("said", [None, "", {"text": ""}, {}])
def test_denial_without_words_gives_the_reason_of_the_guard(talk, said):
    _, bodies = talk(
        [asks(("find", '{"place": "Rome"}'), ("shout", '{"place": "Rome"}')), SAYS], ("message", "?"), ("denied", said)
    )
    assert results(bodies[1])[1]["error"]["message"] == "no shouting"


@pytest.mark.parametrize("said", [None, "", "  ", 0, [], {"text": 5}, {"texts": "a"}])
def test_message_without_words_is_refused_before_it_is_recorded(talk, said):
    with pytest.raises(ValueError, match=r"and not empty|the data must be a text"):
        talk([SAYS], ("message", said))


@pytest.mark.parametrize(
    ("given", "told"), [("paid", {"result": "paid"}), ({"paid": 5}, {"paid": 5}), (None, {"result": None})]
)
def test_answer_of_a_person_is_the_result_of_a_call_in_doubt(given, told):
    """`dsa send --answers` can bring it in any form, even with the id of another call."""
    assert read_result(given) == {"result": told}
    assert read_result({"result": told, "call_id": "another"}) == {"result": told}


def test_lone_surrogates_do_not_end_the_conversation(talk):
    calls = asks(("find", '{"place": "half"}'), ("find", '{"place": "half a fault"}'))
    state, bodies = talk([calls, SAYS], ("message", "\ud83d?"))
    assert state == "resting"
    assert bodies[0]["messages"][1]["content"] == "\ufffd?"
    assert results(bodies[1]) == [{"name": "\ufffd"}, {"error": {"code": "failed", "message": "\ufffd"}}]


@pytest.mark.parametrize("place", ["a set", "itself", "NaN", "a day"])
def test_result_that_cannot_be_json_is_reported_to_the_model(talk, place):
    state, bodies = talk([asks(("find", json.dumps({"place": place}))), SAYS], ("message", "?"))
    assert state == "resting"
    (result,) = results(bodies[1])
    assert result["error"]["code"] == "no_json"
    assert "the call was made" in result["error"]["message"]


def test_function_is_called_only_with_arguments_it_accepts(talk):
    with pytest.raises(TypeError, match="find cannot be called with nothing: missing a required argument: 'place'"):
        FunctionTool("find", "", (), do=find)
    with pytest.raises(TypeError, match="got an unexpected keyword argument 'city'"):
        FunctionTool("find", "", (WHERE, Parameter("city", TEXT, "")), do=find)
    calls = asks(("anything", '{"place": "Rome", "b": 2}'), ("anything", "{}"))
    _, bodies = talk([calls, SAYS], ("message", "?"))
    assert [each["error"]["code"] for each in results(bodies[1])] == ["failed", "failed"]


def test_duplicate_or_invalid_tool_names_are_refused():
    for tools in ([*TOOLS, TOOLS[0]], [FunctionTool("find it!", "", (WHERE,), do=find)]):
        with pytest.raises(ValueError, match="the tool 'find"):
            ToolAgent("", tools)


def test_agent_distinguishes_two_runs_of_one_name(tmp_path):
    agent = ToolAgent("", TOOLS)

    def bindings(_machine, started):
        return attrs.evolve(bound(_machine, started), effects=agent.effects)

    async def both(address):
        path = tmp_path / "desk.md"
        path.write_text(TABLE)
        async with dsa.open_runs(tmp_path / "a") as one, dsa.open_runs(tmp_path / "b") as other:
            for runs, text in ((one, "alice"), (other, "bob")):
                run = await runs.start(path, bindings=bindings, model=f"{address}/v1#m", run_id="1")
                await run.rest()
                await run.send("message", text)
                await run.rest()

    with serving(SAYS) as (address, requests):
        asyncio.run(both(address))
    assert [request.body["messages"][1]["content"] for request in requests] == ["alice", "bob"]


def test_old_exchanges_that_do_not_fit_are_left_out(talk, monkeypatch):
    monkeypatch.setattr(agent_module, "CONTEXT_TOKENS", 100)
    _, bodies = talk([SAYS], ("message", "one" * 100), ("message", "two" * 100))
    assert [message["content"][:3] for message in bodies[1]["messages"][1:]] == ["two"]
    assert "[1 earlier messages of the user are left out here.]" in bodies[1]["messages"][0]["content"]


def test_names_of_many_calls_are_corrected_quickly(talk):
    """Each call once rewrote all of them: 1,000 calls took 13 s."""
    calls = asks(*[("Find", '{"place": "Rome"}')] * 300)
    _, bodies = talk([calls, SAYS], ("message", "?"))
    assert {call["function"]["name"] for call in bodies[1]["messages"][2]["tool_calls"]} == {"find"}


def test_calls_that_a_row_leaves_open_are_answered_as_not_made(talk):
    leaves = TABLE.replace(
        "| denied                 |                 |             | refuse_call, next_call  | calling  |",
        "| denied                 |                 |             | ask_model               | thinking |",
    )
    assert leaves != TABLE
    calls = asks(("shout", '{"place": "Rome"}'), ("find", '{"place": "Rome"}'))
    _, bodies = talk([calls, SAYS, SAYS], ("message", "?"), ("denied", ""), ("message", "!"), table=leaves)
    assert [each["error"]["code"] for each in results(bodies[2])] == ["not_made", "not_made"]
