"""Bindings of the search agent of seed 004 (section 6): its policies. A model searches files until it can answer.

`search` is a full-text search over the text files of a folder, with SQLite's FTS5 in memory. It returns places: file, line and excerpt. The index is
built again when any file has changed. Hidden files, large ones, symbolic links and those that are not UTF-8 text are left out and counted.

`registry` has the policies. Settings (`context.config`): `over`, the folder to search (`.`); `model`, as in `dsa run`
(`scripted:FILE`, `http://HOST/v1#MODEL`, or a LiteLLM name), with `api_base`, `temperature`, `max_tokens`, `timeout_s`, `seed`; `answers`, the
policy that answers (`llm_policy`; `quoting_policy` without a model or with the local one, which cannot call tools);
`max_turns` (5). API keys come from the environment.
"""

import hashlib
import json
import os
import re
import sqlite3
import stat
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache, partial
from itertools import groupby
from pathlib import Path
from typing import Final

import attrs

from dsa.edge.event_loop import in_thread
from dsa.errors import DsaError
from dsa.generators.model_options import derive_seed
from dsa.generators.streams import StreamResult
from dsa.runtime.generation import GenerationError
from dsa.runtime.policy.invocation import invoke_action, loop_wrapper
from dsa.runtime.policy.policies import (
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
from dsa.runtime.policy.policy_registry import Registry
from machines.tool_use.chat_model import ModelOptions, failure_in, model_of
from machines.tool_use.records import JsonObject, read_record
from machines.tool_use.tool_call import Tool, ToolCall, answer_of
from machines.tool_use.transcript import ChatMessage, Role

MOST_FILES = 20_000
LARGEST_BYTES = 1_000_000
_LINES = 12  # of a passage, at most
_EXCERPT, _CUT = 400, " [.. cut]"  # characters
_WORD = re.compile(r"\w[\w.'-]*")
_BEGIN, _END = "\x02", "\x03"  # around each match; no text file contains them


@attrs.frozen
class SearchHit:
    """A match: the path within the folder, the line from 1, and the text there."""

    file: str
    line: int
    excerpt: str


@attrs.frozen
class SearchHits:
    """The matches, best first, the number of files searched, and the number left out."""

    places: tuple[SearchHit, ...]
    file_count: int
    left_out: int


def search(folder: Path, query: str, limit: int = 5) -> SearchHits:
    """Return passages with words of a query, those with rare words and with many of them first.

    All forms of a word match. Raises DsaError with one of the codes NO_WORDS, NO_FOLDER, TOO_MANY_FILES.
    """
    words = _WORD.findall(query)
    if not words:
        raise DsaError(f"there is no word in '{query}' to search for", code="NO_WORDS")
    if not folder.is_dir():
        raise DsaError(f"{folder} is not a folder", code="NO_FOLDER")
    index = _index_of(folder, tuple(files_in(folder)))
    return SearchHits(tuple(index.places(words, limit)), index.file_count, index.left_out)


def files_in(folder: Path) -> Iterator[tuple[str, int, int]]:
    """Yield path, size and time of change of the files that are not hidden, sorted. The size is -1 for one that cannot be read."""
    unreadable: list[OSError] = []
    count = 0
    for parent, folders, names in os.walk(folder, onerror=unreadable.append):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for path in (Path(parent, name) for name in sorted(names) if not name.startswith(".")):
            count += 1
            if count > MOST_FILES:
                raise DsaError(
                    f"{folder} has more than {MOST_FILES} files; name a smaller folder", code="TOO_MANY_FILES"
                )
            yield path.relative_to(folder).as_posix(), *_about(path)
    for error in unreadable:
        yield str(error.filename), -1, 0


def _about(path: Path) -> tuple[int, int]:
    """Return size and time of change of a file. The size is -1 for a link, a pipe, a missing file, and a name that is not UTF-8."""
    try:
        str(path).encode()
        about = path.lstat()
    except (OSError, UnicodeEncodeError):
        return -1, 0
    return about.st_size if stat.S_ISREG(about.st_mode) else -1, about.st_mtime_ns


@lru_cache(maxsize=4)
def _index_of(folder: Path, files: tuple[tuple[str, int, int], ...]) -> "Index":
    return Index(folder, files)


class Index:
    """The index of a folder's passages. Any thread may use it."""

    def __init__(self, folder: Path, files: tuple[tuple[str, int, int], ...]) -> None:
        self._database = sqlite3.connect(":memory:", check_same_thread=False)
        self._database.execute(
            "CREATE VIRTUAL TABLE passages USING fts5(file, line UNINDEXED, text, tokenize='porter unicode61')"
        )
        self.file_count = 0
        for name, size_bytes, _ in files:
            text = _text(folder / name) if 0 <= size_bytes <= LARGEST_BYTES else None
            if text is not None:
                self.file_count += 1
                rows = ((name, line, passage) for line, passage in _passages(text))
                self._database.executemany("INSERT INTO passages VALUES (?, ?, ?)", rows)
        self.left_out = len(files) - self.file_count

    def places(self, words: list[str], limit: int) -> Iterator[SearchHit]:
        """Return the best places; a match in the file's name counts double."""
        terms = " OR ".join(f'"{word}"' for word in words)  # quoted, nothing in it is syntax
        rows = self._database.execute(
            "SELECT file, line, highlight(passages, 2, ?, ?) FROM passages WHERE passages MATCH ? "
            "ORDER BY bm25(passages, 2.0, 0.0, 1.0), file, line LIMIT ?",
            (_BEGIN, _END, terms, limit),
        )
        return (_place(file, line, text.split("\n")) for file, line, text in rows)


def _text(path: Path) -> str | None:
    try:
        with open(path, "rb", opener=_not_through_a_link) as file:
            text = file.read().decode("utf-8-sig")
    except (OSError, UnicodeDecodeError):  # missing, not permitted, or not text: counted as left out
        return None
    return None if "\0" in text else text.replace(_BEGIN, " ").replace(_END, " ")


def _not_through_a_link(path: str, flags: int) -> int:
    """Open a file, but not a symbolic link that has replaced it since it was listed."""
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0))


def _passages(text: str) -> Iterator[tuple[int, str]]:
    """Yield the parts of a text between empty lines, at most 12 lines each, with the number of the first line."""
    numbered_lines = enumerate(text.splitlines(), start=1)
    for is_empty, group in groupby(numbered_lines, key=lambda item: not item[1].strip()):
        lines = list(group)
        for start in range(0, 0 if is_empty else len(lines), _LINES):
            part = lines[start : start + _LINES]
            yield part[0][0], "\n".join(line for _, line in part)


def _place(file: str, first: int, lines: list[str]) -> SearchHit:
    """Return the line of a passage with most matches, and the passage from there on."""
    best = max(range(len(lines)), key=lambda n: (lines[n].count(_BEGIN), -n))
    excerpt = "\n".join(lines[best:]).replace(_BEGIN, "").replace(_END, "")
    is_cut = len(excerpt.strip()) > _EXCERPT
    text = f"{excerpt.strip()[: _EXCERPT - len(_CUT)]}{_CUT}" if is_cut else excerpt.strip()
    return SearchHit(file, first + best, text)


ASSISTANT: Final = "assistant"

_ROLES: dict[str, Role] = {"system": "system", "user": "user", ASSISTANT: ASSISTANT}
_NO_RESULT = json.dumps({"error": True, "code": "NO_RESULT", "message": "the result of this call is unknown"})
_LONGEST_FAULT = 200


@attrs.frozen
class SearchSettings:
    """Settings of the agent. `timeout_s` limits an answer, in seconds."""

    answers: str | None = None
    model: str | None = None
    api_base: str = ""
    temperature: float | None = None
    max_tokens: int | None = None
    timeout_s: float = 120.0
    seed: int = 0


@attrs.frozen
class SearchReply:
    """A model's reply: a text, its calls, and its usage."""

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    usage: JsonObject = attrs.field(factory=dict)


def messages_of(ledger: Iterable[Step]) -> list[ChatMessage]:
    """Return a ledger as messages. Calls by policies other than the model, and their results, become messages of the user.

    Servers refuse a conversation with a call without a result, or a result without a call. So each call has its result right after it, and a call without a
    result gets one that says so.
    """
    steps = list(ledger)
    results = _results(steps)
    messages: list[ChatMessage] = []
    is_open = False  # the last message belongs to the current turn
    for at, step in enumerate(steps):
        if step.type == TEXT:
            role = _ROLES.get(step.actor, "user")
            messages.append(ChatMessage(role, step.payload["text"]))
        elif step.type == ACTION_CALL and step.actor == ASSISTANT:
            if not is_open:
                messages.append(ChatMessage(ASSISTANT, None))
            messages[-1] = attrs.evolve(messages[-1], calls=(*messages[-1].calls, _call(step, _id(at, step))))
        elif step.type == ACTION_RESULT and at not in results.values():
            messages.append(ChatMessage("user", f"{step.actor} returned: {_as_json(step.payload)}"))
        is_open = step.actor == ASSISTANT and step.type in {TEXT, ACTION_CALL}
    answers = {_id(at, steps[at]): _as_json(steps[result].payload) for at, result in results.items()}
    return [each for message in messages for each in (message, *_answers(message, answers))]


def _results(steps: list[Step]) -> dict[int, int]:
    """Return the position of each result by that of the model's call. Ids repeat when runs are combined: the nearest counts."""
    calls: dict[str, int] = {}
    results: dict[int, int] = {}
    for at, step in enumerate(steps):
        if step.type == ACTION_CALL and step.actor == ASSISTANT:
            calls[f"{step.id}.result"] = at
        elif step.type == ACTION_RESULT and step.id in calls:
            results[calls.pop(step.id)] = at
    return results


def _answers(message: ChatMessage, texts: Mapping[str, str]) -> list[ChatMessage]:
    """Return the messages that have to follow one with calls: the result of each."""
    return [ChatMessage("tool", texts.get(call.id, _NO_RESULT), answers=call.id) for call in message.calls]


def _call(step: Step, call_id: str) -> ToolCall:
    payload = step.payload
    return ToolCall(call_id, call_id, payload["policy"], payload["payload"])


def _id(at: int, step: Step) -> str:
    """Return an id that every provider accepts: nine letters and digits."""
    return hashlib.sha256(f"{at} {step.id}".encode()).hexdigest()[:9]


def _as_json(payload: object) -> str:
    return json.dumps(payload, ensure_ascii=False)


def steps_of(reply: SearchReply) -> list[Step]:
    """Return a reply as steps. A call whose arguments are not a JSON object has a fault in its step and an empty payload.

    The first step has the usage of the reply.
    """
    about = {"usage": reply.usage} if reply.usage else {}
    steps = [text_step(ASSISTANT, reply.text, about=about)] if reply.text else []
    for call in reply.calls:
        fault = {"fault": f"the arguments are not a JSON object: {call.text[:_LONGEST_FAULT]}"} if call.error else {}
        more = ({} if steps else about) | fault
        steps.append(action_call_step(ASSISTANT, Action(call.name, dict(call.arguments or {})), about=more))
    return steps


# --- policies ---

registry = Registry()

INSTRUCTIONS = (
    "Answer the user's question from the files. Search them with the tool first, with a few words that the answer is likely to contain; "
    "if that does not help, search again with other words. Name the file and the line of what you rely on, as FILE:LINE. "
    "If the files do not contain the answer, say so."
)

QUOTES_HEADING = "No model was asked; these places contain the words:"

_WITHOUT_TOOLS = (None, "", "local")
_MOST_PLACES = 20
_MOST_QUOTES = 3
_QUESTION = {"type": "object", "properties": {"text": {"type": "string", "minLength": 1}}, "required": ["text"]}
_QUERY = {
    "type": "object",
    "properties": {
        "query": {"type": "string", "description": "a few words, in any order"},
        "limit": {
            "type": "integer",
            "minimum": 1,
            "maximum": _MOST_PLACES,
            "description": "the maximum number of places to return",
        },
    },
    "required": ["query"],
    "additionalProperties": False,
}
_PROMPT = {"type": "object", "properties": {"system": {"type": "string"}, "text": {"type": "string"}}}


@registry.register(
    "search_agent",
    "Answer a question from files.",
    _QUESTION,
    actions=("llm_policy", "quoting_policy", "web_search_policy"),
)
async def search_agent(action: Action, context: PolicyContext) -> list[Step]:
    """Let a model answer, and search as often as it asks. An initial ledger is the conversation so far."""
    question = Action(
        _answering_policy(read_record(SearchSettings, dict(context.config))),
        {"system": INSTRUCTIONS},
        frozenset({"web_search_policy"}),
    )
    conversation = [*await context.get_ledger(), text_step("user", action.payload["text"])]
    decorators = [loop_wrapper(context.config.get("max_turns", 5)), invoke_action()]
    return await context.call(question, decorators, seed=conversation)


def _answering_policy(config: SearchSettings) -> str:
    """Return the name of the policy that answers: the one in the settings, or else `llm_policy` for a model with tools, or else `quoting_policy`."""
    return config.answers or ("quoting_policy" if config.model in _WITHOUT_TOOLS else "llm_policy")


@registry.register(
    "web_search_policy", "Search the files for words. Returns the file, the line and an excerpt of each place.", _QUERY
)
async def web_search_policy(action: Action, context: PolicyContext) -> list[Step]:
    """Search the files of the folder `over` (seed 004, 6.2; this one never goes to the web)."""
    payload, folder = action.payload, Path(context.config.get("over", "."))
    try:
        hits: SearchHits = await in_thread(partial(search, folder, payload["query"], payload.get("limit", 5)))
    except DsaError as error:
        return [error_step(action.policy, error.code, str(error))]
    places = [{"file": place.file, "line": place.line, "excerpt": place.excerpt} for place in hits.places]
    result = {"results": places, "searched": hits.file_count, "left_out": hits.left_out}
    return [action_result_step(action.policy, result)]


@registry.register("llm_policy", "Ask a language model, which may ask for actions.", _PROMPT)
async def llm_policy(action: Action, context: PolicyContext) -> list[Step]:
    """Send the ledger as messages, and the permitted actions as tools; return the reply as steps (seed 004, 6.1).

    The payload's `system` and `text` precede the ledger. A GenerationError stops the run, which can be resumed.
    """
    payload = action.payload
    before = (ChatMessage("system", payload.get("system")), ChatMessage("user", payload.get("text")))
    messages = [*(each for each in before if each.content), *messages_of(await context.get_ledger())]
    config = read_record(SearchSettings, dict(context.config))
    if config.model in _WITHOUT_TOOLS:
        raise GenerationError(
            "The search agent needs a model that can call tools: name one (the local model cannot), or let quoting_policy answer.",
            "unavailable",
        )
    options = ModelOptions(
        derive_seed(config.seed, context.key, 1, json.dumps([message.as_openai for message in messages])),
        config.temperature, config.max_tokens, whole_s=config.timeout_s, api_base=config.api_base,
    )  # fmt: skip
    tools = [Tool.of_openai(each) for each in context.tools(action.actions)]
    turn = sum(message.role == ASSISTANT for message in messages)
    model = model_of(config.model or "", options)
    try:
        return steps_of(_reply_of(config.model or "", await model.ask(messages, tools, number=turn, on_text=None)))
    finally:
        await model.aclose()


@registry.register("quoting_policy", "Answer with what the files say, word for word, without a model.", _PROMPT)
async def quoting_policy(action: Action, context: PolicyContext) -> list[Step]:
    """Search for the words of the question, and quote the best places: a heuristic instead of a model."""
    ledger = list(await context.get_ledger())
    last = ledger[-1] if ledger else text_step("user", "")
    if last.type != ACTION_RESULT:
        question = next((step.payload["text"] for step in reversed(ledger) if step.type == TEXT), "")
        return [action_call_step(ASSISTANT, Action("web_search_policy", {"query": question}))]
    result = last.payload
    if result.get("error") is True:
        return [error_step(action.policy, result["code"], result["message"])]
    quotes = [f"{place['file']}:{place['line']}: {place['excerpt']}" for place in result["results"][:_MOST_QUOTES]]
    return [
        text_step(
            ASSISTANT, "\n\n".join([QUOTES_HEADING, *quotes]) if quotes else "The files do not contain these words."
        )
    ]


def _reply_of(model: str, result: StreamResult) -> SearchReply:
    """Return an answer as a reply. Raises GenerationError when it is empty, was cut off, or has calls that cannot be made."""
    failure = failure_in(result)
    if failure is not None:
        raise failure
    kind, answer = answer_of(result, lambda name, _: name)
    if result.finish_reason == "length":
        raise GenerationError(f"The answer of {model} was cut off; raise max_tokens.", "cut_off")
    if kind == "cut_off":
        raise GenerationError(
            f"The answer of {model} cannot be used: {answer.why}; try again or use another model.", "bad_answer"
        )
    return SearchReply(answer.content, answer.calls, {"model": model, **attrs.asdict(answer.usage)})


#: The name under which `dsa run --policy` and the effects of machines find the policies.
policies = registry
