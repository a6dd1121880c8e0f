"""A server that speaks Anthropic's protocol and plays a model, as `chat_server` plays one of OpenAI's. It is as strict as Anthropic's server."""

import json
from contextlib import contextmanager
from itertools import pairwise

import attrs
from chat_server import playing


@contextmanager
def playing_anthropic(player):
    """Serve on 127.0.0.1 until the block ends; the player gets requests in OpenAI's form. The model's name is the server's address."""
    faults = []

    def served(body, number):
        def send(handler, _over):
            found = faults_of(body)
            faults.extend(found)
            if found:
                refusal = {"type": "error", "error": {"type": "invalid_request_error", "message": "; ".join(found)}}
                handler.send_pieces(400, "application/json", [json.dumps(refusal).encode()])
                return
            said = player(_as_openai(body), number)
            handler.send_pieces(200, "text/event-stream", _events(said))

        return send

    with playing(served, faults=lambda _body: []) as played:
        yield attrs.evolve(played, model=played.model.partition("/v1")[0], faults=faults)


def faults_of(body):
    """Return the faults for which Anthropic refuses a request: roles that do not alternate, empty texts, calls without results right after them, results without a call."""
    faults, waiting = [], set()
    roles = [message["role"] for message in body["messages"]]
    if roles[0] != "user" or any(one == other for one, other in pairwise(roles)):
        faults.append(f"roles: {roles}")
    for message in body["messages"]:
        blocks = _blocks(message)
        if not blocks or any(block["type"] == "text" and not block["text"].strip() for block in blocks):
            faults.append("text content blocks must be non-empty")
        answered = {block["tool_use_id"] for block in blocks if block["type"] == "tool_result"}
        if answered != waiting:
            faults.append(f"results of {sorted(answered)}, calls {sorted(waiting)}")
        waiting = {block["id"] for block in blocks if block["type"] == "tool_use"}
        if waiting and not body.get("tools"):
            faults.append("calls without tools")
    return faults


def _blocks(message):
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _as_openai(body):
    system = body["system"] if isinstance(body["system"], str) else "".join(block["text"] for block in body["system"])
    messages = [{"role": "system", "content": system}]
    for message in body["messages"]:
        calls = []
        for block in _blocks(message):
            if block["type"] == "tool_result":
                content = block["content"]
                text = content if isinstance(content, str) else "".join(part["text"] for part in content)
                messages.append({"role": "tool", "tool_call_id": block["tool_use_id"], "content": text})
            elif block["type"] == "tool_use":
                function = {"name": block["name"], "arguments": json.dumps(block["input"])}
                calls.append({"id": block["id"], "type": "function", "function": function})
            else:
                messages.append({"role": message["role"], "content": block["text"]})
        if calls:
            messages.append({"role": "assistant", "content": None, "tool_calls": calls})
    return {**body, "messages": messages}


def _events(said):
    """Write an answer as Anthropic streams it: blocks, each with a start, deltas and a stop."""
    counts = {"input_tokens": 12, "output_tokens": 1}
    message = {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "model": "claude-x",
        "content": [],
        "stop_reason": None,
    }
    told = [{"type": "message_start", "message": {**message, "usage": counts}}]
    blocks = [({"type": "text", "text": ""}, "text_delta", "text", said.text)] if said.text else []
    for call_id, (name, arguments) in zip(said.ids, said.calls, strict=True):
        block = {"type": "tool_use", "id": call_id, "name": name, "input": {}}
        blocks.append((block, "input_json_delta", "partial_json", json.dumps(arguments)))
    for index, (block, kind, key, text) in enumerate(blocks):
        told.append({"type": "content_block_start", "index": index, "content_block": block})
        for at in range(0, len(text), said.pieces):
            delta = {"type": kind, key: text[at : at + said.pieces]}
            told.append({"type": "content_block_delta", "index": index, "delta": delta})
        told.append({"type": "content_block_stop", "index": index})
    ended = {"stop_reason": "tool_use" if said.calls else "end_turn", "stop_sequence": None}
    told += [{"type": "message_delta", "delta": ended, "usage": {"output_tokens": 3}}, {"type": "message_stop"}]
    return [f"event: {each['type']}\ndata: {json.dumps(each)}\n\n".encode() for each in told]
