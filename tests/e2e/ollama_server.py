"""A server that speaks Ollama's own protocol and plays a model, as `chat_server` plays one of OpenAI's.

It has the surprises of Ollama: a request longer than the requested context silently loses its beginning, results are identified by the names
of their tools, calls have no ids, and arguments are objects.
"""

import json
from contextlib import contextmanager

import attrs
from chat_server import playing

#: The default context of Ollama on a small machine, in tokens.
DEFAULT_WINDOW = 4_096
_CHARS_PER_TOKEN = 4


@contextmanager
def playing_ollama(player):
    """Serve on 127.0.0.1 until the block ends; the player gets requests in OpenAI's form, as much of them as a model would."""
    answers = []

    def served(body, number):
        def send(handler, _over):
            if handler.path != "/api/chat":
                handler.send_pieces(404, "text/plain", [b"404 page not found"])
                return
            said = player(_seen(body, answers), number)
            if said.calls:
                answers.append(said.ids)
            handler.send_pieces(200, "application/x-ndjson", _lines(said))

        return send

    with playing(served) as played:
        address, _, _ = played.model.partition("/v1")
        yield attrs.evolve(played, model=f"{address}/api#m")


def _seen(body, answers):
    """Return a request as the model gets it: messages that do not fit are dropped, except the instructions."""
    first, *rest = body["messages"]
    room = body.get("options", {}).get("num_ctx", DEFAULT_WINDOW) * _CHARS_PER_TOKEN
    while rest and len(json.dumps([first, *rest])) + len(json.dumps(body.get("tools", []))) > room:
        rest = rest[1:]
    with_calls = [message for message in rest if message.get("tool_calls")]
    ids_of = {id(message): ids for message, ids in zip(reversed(with_calls), reversed(answers), strict=False)}
    waiting, turned = [], []
    for message in rest:
        one = dict(message)
        if message.get("tool_calls"):
            waiting = list(zip(ids_of[id(message)], message["tool_calls"], strict=True))
            one["tool_calls"] = [
                {"id": call_id, "function": {**call["function"], "arguments": _text(call["function"]["arguments"])}}
                for call_id, call in waiting
            ]
        elif message["role"] == "tool":
            call_id, call = waiting.pop(0)
            assert message["tool_name"] == call["function"]["name"]
            one["tool_call_id"] = call_id
        turned.append(one)
    return {**body, "messages": [first, *turned]}


def _text(arguments):
    assert isinstance(arguments, dict), "Ollama refuses arguments that are no object"
    return json.dumps(arguments)


def _lines(said):
    """Write an answer as lines, each call complete and without an id."""
    messages = [{"content": said.text[at : at + said.pieces]} for at in range(0, len(said.text), said.pieces)]
    for name, arguments in said.calls:
        messages.append({"content": "", "tool_calls": [{"function": {"name": name, "arguments": arguments}}]})
    lines = [{"model": "m", "message": {"role": "assistant", **message}, "done": False} for message in messages]
    end = {"done": True, "done_reason": "stop", "prompt_eval_count": 7, "eval_count": 2}
    return [
        f"{json.dumps(line)}\n".encode()
        for line in [*lines, {"model": "m", "message": {"role": "assistant", "content": ""}, **end}]
    ]
