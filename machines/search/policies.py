"""The search agent of seed 004 (section 6): it lets a model search files until it can answer.

`registry` has its policies. Settings (`context.config`): `over`, the folder to search (`.`); `model`, as in `dsa run`
(`scripted:FILE`, `http://HOST/v1#MODEL`, or a LiteLLM name), with `api_base`, `temperature`, `max_tokens`, `timeout_s`, `seed`; `answers`, the
policy that answers (`llm_policy`; without a model, or with the local one, which can call no tools, `quoting_policy`);
`max_turns` (5). Keys come from the environment.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import attrs

from dsa.edge.http.endpoint import SCHEMES
from dsa.edge.threads import in_thread
from dsa.errors import DocumentError, GenerationError
from dsa.generators import ChatClient, Limits, Settings
from dsa.generators.lite import LiteLLMGenerator
from dsa.generators.model_calls import derive_seed
from dsa.generators.scripted import parse_script
from dsa.generators.streams import StreamResult
from dsa.runtime.decorators import invoke_action, loop_wrapper
from dsa.runtime.policies import (
    ACTION_CALL,
    ACTION_RESULT,
    TEXT,
    Action,
    PolicyContext,
    Step,
    action_call_step,
    action_result_step,
    error_step,
    text_step,
)
from dsa.runtime.registry import Registry
from machines.search.files import Found, SearchError, search

ASSISTANT = "assistant"

_ROLES = frozenset({"system", "user", ASSISTANT})
_NO_RESULT = {"error": True, "code": "NO_RESULT", "message": "nobody knows what came of this call"}

Message = dict[str, Any]


@attrs.frozen
class Reply:
    """What a model said: a text, the calls it asks for as pairs of name and arguments' text, what it took."""

    text: str = ""
    calls: tuple[tuple[str, str], ...] = ()
    usage: dict[str, Any] = attrs.field(factory=dict)


def messages_of(ledger: Iterable[Step]) -> list[Message]:
    """Write a ledger as messages of OpenAI's format. What other policies than the model called, and what came of it, is told as the user's.

    Servers refuse a conversation in which a tool call has no answer or an answer no call: each call has its result right behind it, and one
    without a result is told as such.
    """
    steps = list(ledger)
    results = _results(steps)
    messages: list[Message] = []
    is_open = False  # the last message is of the turn that goes on
    for at, step in enumerate(steps):
        if step.type == TEXT and step.actor == ASSISTANT:
            messages.append({"role": ASSISTANT, "content": step.payload["text"]})
        elif step.type == TEXT:
            messages.append({"role": step.actor if step.actor in _ROLES else "user", "content": step.payload["text"]})
        elif step.type == ACTION_CALL and step.actor == ASSISTANT:
            if not is_open:
                messages.append({"role": ASSISTANT, "content": None})
            messages[-1].setdefault("tool_calls", []).append(_call(step, _id(at, step)))
        elif step.type == ACTION_RESULT and at not in results.values():
            messages.append({"role": "user", "content": f"{step.actor} gave: {_written(step.payload)}"})
        is_open = step.actor == ASSISTANT and step.type in {TEXT, ACTION_CALL}
    told = {_id(at, steps[at]): steps[result].payload for at, result in results.items()}
    return [written for message in messages for written in (message, *_answers(message, told))]


def _results(steps: list[Step]) -> dict[int, int]:
    """Give the position of each result by that of the model's call. Ids come again where runs are put together: the nearest counts."""
    calls: dict[str, int] = {}
    results: dict[int, int] = {}
    for at, step in enumerate(steps):
        if step.type == ACTION_CALL and step.actor == ASSISTANT:
            calls[f"{step.id}.result"] = at
        elif step.type == ACTION_RESULT and step.id in calls:
            results[calls.pop(step.id)] = at
    return results


def _answers(message: Message, told: dict[str, Any]) -> list[Message]:
    """Give the messages that have to stand behind one with tool calls: what came of each."""
    ids = [call["id"] for call in message.get("tool_calls", ())]
    return [{"role": "tool", "tool_call_id": name, "content": _written(told.get(name, _NO_RESULT))} for name in ids]


def _call(step: Step, call_id: str) -> Message:
    asked = step.payload
    function = {"name": asked["policy"], "arguments": _written(asked["payload"])}
    return {"id": call_id, "type": "function", "function": function}


def _id(at: int, step: Step) -> str:
    """Give an id that every provider takes: nine letters and digits."""
    return hashlib.sha256(f"{at} {step.id}".encode()).hexdigest()[:9]


def _written(payload: object) -> str:
    return json.dumps(payload, ensure_ascii=False)


def steps_of(reply: Reply) -> list[Step]:
    """Give a reply as steps. Arguments that are no JSON object are told in the step, and are nobody's payload.

    The first step says what the reply took.
    """
    about = {"usage": reply.usage} if reply.usage else {}
    steps = [text_step(ASSISTANT, reply.text, about=about)] if reply.text else []
    for name, arguments in reply.calls:
        payload, fault = _payload(arguments)
        more = ({} if steps else about) | ({"fault": fault} if fault else {})
        steps.append(action_call_step(ASSISTANT, Action(name, payload), about=more))
    return steps


def _payload(arguments: str) -> tuple[dict[str, Any], str]:
    try:
        payload = json.loads(arguments or "{}", parse_constant=_refused)
    except (ValueError, RecursionError) as error:
        return {}, f"the arguments are no JSON: {error}"
    if not isinstance(payload, dict):
        return {}, f"the arguments are {type(payload).__name__}, not an object"
    return payload, ""


def _refused(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


# -- policies ---------------------------------------------------------------------------------------------------------

registry = Registry()

INSTRUCTIONS = (
    "Answer the user's question from the files. Search them with the tool first, with a few words that the answer is likely to hold; "
    "search again with other words when that did not help. Name the file and the line of what you rely on, as FILE:LINE. "
    "When the files do not say it, say so."
)

QUOTED = "No model was asked; these places have the words:"

_SCRIPTED = "scripted:"
_WITHOUT_TOOLS = (None, "", "local")
_MOST_PLACES = 20
_QUOTED = 3
_LITELLM_SETTINGS = ("api_base", "temperature", "max_tokens", "timeout_s")
_QUESTION = {"type": "object", "properties": {"text": {"type": "string", "minLength": 1}}, "required": ["text"]}
_QUERY = {
    "type": "object",
    "properties": {
        "query": {"type": "string", "description": "a few words, in any order"},
        "limit": {"type": "integer", "minimum": 1, "maximum": _MOST_PLACES, "description": "most places to give"},
    },
    "required": ["query"],
    "additionalProperties": False,
}
_ASKED = {"type": "object", "properties": {"system": {"type": "string"}, "text": {"type": "string"}}}


@registry.register(
    "search_agent",
    "Answer a question from files.",
    _QUESTION,
    actions=("llm_policy", "quoting_policy", "web_search_policy"),
)
async def search_agent(action: Action, context: PolicyContext) -> list[Step]:
    """Let a model answer, and search while it asks for that. A seeded ledger is the conversation so far."""
    asked = Action(_answering(context.config), {"system": INSTRUCTIONS}, frozenset({"web_search_policy"}))
    conversation = [*await context.get_ledger(), text_step("user", action.payload["text"])]
    decorators = [loop_wrapper(context.config.get("max_turns", 5)), invoke_action()]
    return await context.call(asked, decorators, seed=conversation)


def _answering(config: Mapping[str, Any]) -> str:
    """Name the policy that answers: the one set, else a model, else the one that does without."""
    answers: str | None = config.get("answers")
    return answers or ("quoting_policy" if config.get("model") in _WITHOUT_TOOLS else "llm_policy")


@registry.register(
    "web_search_policy", "Search the files for words. Gives file, line and excerpt of each place.", _QUERY
)
async def web_search_policy(action: Action, context: PolicyContext) -> list[Step]:
    """Search the files of the folder `over` (seed 004, 6.2; this one never goes to the web)."""
    asked, folder = action.payload, Path(context.config.get("over", "."))
    try:
        found: Found = await in_thread(partial(search, folder, asked["query"], asked.get("limit", 5)))
    except SearchError as error:
        return [error_step(action.policy, error.code, str(error))]
    places = [{"file": place.file, "line": place.line, "excerpt": place.excerpt} for place in found.places]
    searched = {"results": places, "searched": found.searched, "left_out": found.left_out}
    return [action_result_step(action.policy, searched)]


@registry.register("llm_policy", "Ask a language model, which may ask for actions.", _ASKED)
async def llm_policy(action: Action, context: PolicyContext) -> list[Step]:
    """Send the ledger as messages and the allowed actions as tools; give the reply as steps (seed 004, 6.1).

    The payload's `system` and `text` stand before the ledger. Raises GenerationError: the run stops there and can be resumed.
    """
    given = action.payload
    before = [("system", given.get("system")), ("user", given.get("text"))]
    messages: list[Message] = [{"role": role, "content": content} for role, content in before if content]
    messages += messages_of(await context.get_ledger())
    model = context.config.get("model", "")
    if model.startswith(_SCRIPTED):
        turn = sum(message["role"] == ASSISTANT for message in messages)
        return steps_of(_scripted(Path(model.removeprefix(_SCRIPTED)), turn))
    if model in _WITHOUT_TOOLS:
        raise GenerationError(
            "The search agent needs a model that can call tools: name one (the local model cannot), or let quoting_policy answer.",
            "unavailable",
        )
    seed = derive_seed(context.config.get("seed", 0), context.key, 1, json.dumps(messages))
    tools = context.tools(action.actions)
    if model.startswith(SCHEMES):
        return steps_of(await _served(model, messages, tools, context.config, seed))
    settings = {name: context.config[name] for name in _LITELLM_SETTINGS if context.config.get(name) is not None}
    generator = LiteLLMGenerator(model, **settings)
    result = await in_thread(partial(generator.complete, messages, seed=seed, tools=tools))
    return steps_of(_read(model, result))


@registry.register("quoting_policy", "Answer with what the files say, word for word; no model.", _ASKED)
async def quoting_policy(action: Action, context: PolicyContext) -> list[Step]:
    """Search for the words of the question, and quote the best places: a heuristic in the place of a model."""
    ledger = list(await context.get_ledger())
    last = ledger[-1] if ledger else text_step("user", "")
    if last.type != ACTION_RESULT:
        question = next((step.payload["text"] for step in reversed(ledger) if step.type == TEXT), "")
        return [action_call_step(ASSISTANT, Action("web_search_policy", {"query": question}))]
    told: Mapping[str, Any] = last.payload
    if told.get("error") is True:
        return [error_step(action.policy, told["code"], told["message"])]
    quotes = [f"{place['file']}:{place['line']}: {place['excerpt']}" for place in told["results"][:_QUOTED]]
    return [text_step(ASSISTANT, "\n\n".join([QUOTED, *quotes]) if quotes else "The files do not have these words.")]


def _scripted(path: Path, turn: int) -> Reply:
    """Give the reply of a turn from a script: a fenced block, either a text or JSON with `content` and `tool_calls`.

    Which one follows from the ledger alone, so that a resumed run goes on with the next.
    """
    try:
        replies = parse_script(path.read_text(encoding="utf-8-sig"))[""]
    except (OSError, UnicodeDecodeError) as error:
        raise DocumentError(str(path), f"the script cannot be read: {error}") from error
    if turn >= len(replies):
        raise GenerationError(
            f"{path} has no reply left: all {len(replies)} are used; add a fenced block.", "exhausted"
        )
    try:
        said = json.loads(replies[turn])
    except ValueError:
        said = None
    if not isinstance(said, dict) or not isinstance(said.get("tool_calls"), list):
        return Reply(replies[turn].strip())
    calls = tuple((call["name"], json.dumps(call.get("arguments", {}))) for call in said["tool_calls"])
    return Reply(said.get("content") or "", calls)


async def _served(
    model: str, messages: list[Message], tools: list[dict[str, Any]], config: Mapping[str, Any], seed: int
) -> Reply:
    """Ask a server that speaks the OpenAI protocol. Raises GenerationError for an answer that is not whole."""
    timeout_s = config.get("timeout_s", 120.0)
    client = ChatClient(model, limits=Limits(connect_s=min(10.0, timeout_s), first_s=timeout_s, whole_s=timeout_s))
    settings = Settings(config.get("temperature"), config.get("max_tokens"), seed)
    result = await client.ask(messages, tools, settings)
    if result.error is not None:
        raise client.failure(result.error)
    return _read(client.name, result)


def _read(model: str, result: StreamResult) -> Reply:
    """Read an answer. Raises GenerationError for one that says nothing, was cut off, or whose calls nobody may make."""
    if result.finish_reason == "length":
        raise GenerationError(f"The answer of {model} was cut off; raise max_tokens.", "cut_off")
    if result.error is not None:
        raise GenerationError(f"The answer of {model} cannot be used: {result.error.message}.", "bad_answer")
    if not result.content and not result.tool_calls:
        raise GenerationError(f"{model} gave an empty answer; try again or use another model.", "bad_answer")
    took = result.usage or {}
    counts = {name: took.get(name) for name in ("prompt_tokens", "completion_tokens")}
    calls = tuple((call.name, call.text if call.error else json.dumps(call.arguments)) for call in result.tool_calls)
    cost = took.get("cost")
    cost_usd = float(cost) if isinstance(cost, int | float) and cost >= 0 else None
    return Reply(result.content, calls, {"model": model, **counts, "cost_usd": cost_usd})
