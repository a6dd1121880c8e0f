"""Full-text search over the text files of a folder, with SQLite's FTS5 in memory.

Takes a folder and words, gives places: file, line, excerpt. Files are read anew when any of them has changed. What is hidden, large,
no UTF-8 text or a symbolic link is left out, and counted.

The search agent of seed 004 (section 6): it lets a model search files until it can answer.

`registry` has its policies. Settings (`context.config`): `over`, the folder to search (`.`); `model`, as in `dsa run`
(`scripted:FILE`, `http://HOST/v1#MODEL`, or a LiteLLM name), with `api_base`, `temperature`, `max_tokens`, `timeout_s`, `seed`; `answers`, the
policy that answers (`llm_policy`; without a model, or with the local one, which can call no tools, `quoting_policy`);
`max_turns` (5). Keys come from the environment.
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
from dsa.errors import GenerationError
from dsa.generators.model_options import derive_seed
from dsa.generators.streams import StreamResult
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
from machines.tool_use.tool import Tool
from machines.tool_use.tool_call import ToolCall, answer_of
from machines.tool_use.transcript import ChatMessage, Role

MOST_FILES = 20_000
LARGEST_BYTES = 1_000_000
_LINES = 12  # of a passage, at most
_EXCERPT, _CUT = 400, " [.. cut]"  # characters
_WORD = re.compile(r"\w[\w.'-]*")
_BEGIN, _END = "\x02", "\x03"  # mark what was found; no text file has them


class SearchError(Exception):
    """Raised when nothing can be searched. `code` is one stable word."""

    def __init__(self, code: str, message: str) -> None:
        self.code = code
        super().__init__(message)


@attrs.frozen
class SearchHit:
    """Where something was found: the path within the folder, the line from 1, and what stands there."""

    file: str
    line: int
    excerpt: str


@attrs.frozen
class SearchHits:
    """The best places first, how many files were searched, and how many were left out."""

    places: tuple[SearchHit, ...]
    searched: int
    left_out: int


def search(folder: Path, query: str, limit: int = 5) -> SearchHits:
    """Find passages with the words of a query, those with rare words and with many of them first.

    Words count in all their forms. Raises SearchError: NO_WORDS, NO_FOLDER, TOO_MANY_FILES.
    """
    words = _WORD.findall(query)
    if not words:
        raise SearchError("NO_WORDS", f"there is no word in '{query}' to search for")
    if not folder.is_dir():
        raise SearchError("NO_FOLDER", f"{folder} is no folder that can be searched")
    index = _index_of(folder, tuple(files_in(folder)))
    return SearchHits(tuple(index.places(words, limit)), index.searched, index.left_out)


def files_in(folder: Path) -> Iterator[tuple[str, int, int]]:
    """Yield path, size and time of change of all that is not hidden, sorted; the size is -1 of what cannot be read."""
    unreadable: list[OSError] = []
    count = 0
    for parent, folders, names in os.walk(folder, onerror=unreadable.append):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for path in (Path(parent, name) for name in sorted(names) if not name.startswith(".")):
            count += 1
            if count > MOST_FILES:
                raise SearchError("TOO_MANY_FILES", f"{folder} has more than {MOST_FILES} files; name a smaller folder")
            yield path.relative_to(folder).as_posix(), *_about(path)
    for error in unreadable:
        yield str(error.filename), -1, 0


def _about(path: Path) -> tuple[int, int]:
    """Return size and time of change of a file; -1 as the size of a link, a pipe, and what is gone or has no name in UTF-8."""
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
    """The passages of a folder's files. May be asked from any thread."""

    def __init__(self, folder: Path, files: tuple[tuple[str, int, int], ...]) -> None:
        self._database = sqlite3.connect(":memory:", check_same_thread=False)
        self._database.execute(
            "CREATE VIRTUAL TABLE passages USING fts5(file, line UNINDEXED, text, tokenize='porter unicode61')"
        )
        self.searched = 0
        for name, size_bytes, _ in files:
            text = _text(folder / name) if 0 <= size_bytes <= LARGEST_BYTES else None
            if text is not None:
                self.searched += 1
                rows = ((name, line, passage) for line, passage in _passages(text))
                self._database.executemany("INSERT INTO passages VALUES (?, ?, ?)", rows)
        self.left_out = len(files) - self.searched

    def places(self, words: list[str], limit: int) -> Iterator[SearchHit]:
        """Return the best places; a match in the file's name counts double."""
        quoted = " OR ".join(f'"{word}"' for word in words)  # quoted, nothing in it is syntax
        rows = self._database.execute(
            "SELECT file, line, highlight(passages, 2, ?, ?) FROM passages WHERE passages MATCH ? "
            "ORDER BY bm25(passages, 2.0, 0.0, 1.0), file, line LIMIT ?",
            (_BEGIN, _END, quoted, limit),
        )
        return (_place(file, line, marked.split("\n")) for file, line, marked in rows)


def _text(path: Path) -> str | None:
    try:
        with open(path, "rb", opener=_not_through_a_link) as file:
            text = file.read().decode("utf-8-sig")
    except (OSError, UnicodeDecodeError):  # gone, not permitted, or no text: it is counted as left out
        return None
    return None if "\0" in text else text.replace(_BEGIN, " ").replace(_END, " ")


def _not_through_a_link(path: str, flags: int) -> int:
    """Open a file, but not if a symbolic link has taken its place since it was looked at."""
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0))


def _passages(text: str) -> Iterator[tuple[int, str]]:
    """Split a text at empty lines, and where it goes on for long; return each part with its first line's number."""
    numbered = enumerate(text.splitlines(), start=1)
    for is_empty, group in groupby(numbered, key=lambda item: not item[1].strip()):
        lines = list(group)
        for start in range(0, 0 if is_empty else len(lines), _LINES):
            part = lines[start : start + _LINES]
            yield part[0][0], "\n".join(line for _, line in part)


def _place(file: str, first: int, marked: list[str]) -> SearchHit:
    """Return the line of a passage with most of what was found, and the passage from there on."""
    best = max(range(len(marked)), key=lambda n: (marked[n].count(_BEGIN), -n))
    excerpt = "\n".join(marked[best:]).replace(_BEGIN, "").replace(_END, "")
    is_cut = len(excerpt.strip()) > _EXCERPT
    text = f"{excerpt.strip()[: _EXCERPT - len(_CUT)]}{_CUT}" if is_cut else excerpt.strip()
    return SearchHit(file, first + best, text)


ASSISTANT: Final = "assistant"

_ROLES: dict[str, Role] = {"system": "system", "user": "user", ASSISTANT: ASSISTANT}
_NO_RESULT = json.dumps({"error": True, "code": "NO_RESULT", "message": "nobody knows what came of this call"})
_LONGEST_FAULT = 200


@attrs.frozen
class SearchSettings:
    """What the agent is set to. `timeout_s` bounds an answer, in seconds."""

    answers: str | None = None
    model: str | None = None
    api_base: str = ""
    temperature: float | None = None
    max_tokens: int | None = None
    timeout_s: float = 120.0
    seed: int = 0


@attrs.frozen
class SearchReply:
    """What a model said: a text, the calls that it asks for, and what it took."""

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    usage: JsonObject = attrs.field(factory=dict)


def messages_of(ledger: Iterable[Step]) -> list[ChatMessage]:
    """Write a ledger as messages. What other policies than the model called, and what came of it, is told as the user's.

    Servers refuse a conversation in which a tool call has no answer or an answer no call: each call has its result right behind it, and one
    without a result is told as such.
    """
    steps = list(ledger)
    results = _results(steps)
    messages: list[ChatMessage] = []
    is_open = False  # the last message is of the turn that goes on
    for at, step in enumerate(steps):
        if step.type == TEXT:
            role = _ROLES.get(step.actor, "user")
            messages.append(ChatMessage(role, step.payload["text"]))
        elif step.type == ACTION_CALL and step.actor == ASSISTANT:
            if not is_open:
                messages.append(ChatMessage(ASSISTANT, None))
            messages[-1] = attrs.evolve(messages[-1], calls=(*messages[-1].calls, _call(step, _id(at, step))))
        elif step.type == ACTION_RESULT and at not in results.values():
            messages.append(ChatMessage("user", f"{step.actor} gave: {_written(step.payload)}"))
        is_open = step.actor == ASSISTANT and step.type in {TEXT, ACTION_CALL}
    told = {_id(at, steps[at]): _written(steps[result].payload) for at, result in results.items()}
    return [written for message in messages for written in (message, *_answers(message, told))]


def _results(steps: list[Step]) -> dict[int, int]:
    """Return the position of each result by that of the model's call. Ids come again where runs are put together: the nearest counts."""
    calls: dict[str, int] = {}
    results: dict[int, int] = {}
    for at, step in enumerate(steps):
        if step.type == ACTION_CALL and step.actor == ASSISTANT:
            calls[f"{step.id}.result"] = at
        elif step.type == ACTION_RESULT and step.id in calls:
            results[calls.pop(step.id)] = at
    return results


def _answers(message: ChatMessage, told: Mapping[str, str]) -> list[ChatMessage]:
    """Return the messages that have to stand behind one with calls: what came of each."""
    return [ChatMessage("tool", told.get(call.id, _NO_RESULT), answers=call.id) for call in message.calls]


def _call(step: Step, call_id: str) -> ToolCall:
    asked = step.payload
    return ToolCall(call_id, call_id, asked["policy"], asked["payload"])


def _id(at: int, step: Step) -> str:
    """Return an id that every provider takes: nine letters and digits."""
    return hashlib.sha256(f"{at} {step.id}".encode()).hexdigest()[:9]


def _written(payload: object) -> str:
    return json.dumps(payload, ensure_ascii=False)


def steps_of(reply: SearchReply) -> list[Step]:
    """Return a reply as steps. Arguments that are no JSON object are told in the step, and are nobody's payload.

    The first step says what the reply took.
    """
    about = {"usage": reply.usage} if reply.usage else {}
    steps = [text_step(ASSISTANT, reply.text, about=about)] if reply.text else []
    for call in reply.calls:
        fault = {"fault": f"the arguments are no JSON object: {call.text[:_LONGEST_FAULT]}"} if call.error else {}
        more = ({} if steps else about) | fault
        steps.append(action_call_step(ASSISTANT, Action(call.name, dict(call.arguments or {})), about=more))
    return steps


# -- policies ---------------------------------------------------------------------------------------------------------

registry = Registry()

INSTRUCTIONS = (
    "Answer the user's question from the files. Search them with the tool first, with a few words that the answer is likely to hold; "
    "search again with other words when that did not help. Name the file and the line of what you rely on, as FILE:LINE. "
    "When the files do not say it, say so."
)

QUOTED = "No model was asked; these places have the words:"

_WITHOUT_TOOLS = (None, "", "local")
_MOST_PLACES = 20
_QUOTED = 3
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
    asked = Action(
        _answering(read_record(SearchSettings, dict(context.config))),
        {"system": INSTRUCTIONS},
        frozenset({"web_search_policy"}),
    )
    conversation = [*await context.get_ledger(), text_step("user", action.payload["text"])]
    decorators = [loop_wrapper(context.config.get("max_turns", 5)), invoke_action()]
    return await context.call(asked, decorators, seed=conversation)


def _answering(config: SearchSettings) -> str:
    """Name the policy that answers: the one set, else a model, else the one that does without."""
    return config.answers or ("quoting_policy" if config.model in _WITHOUT_TOOLS else "llm_policy")


@registry.register(
    "web_search_policy", "Search the files for words. Gives file, line and excerpt of each place.", _QUERY
)
async def web_search_policy(action: Action, context: PolicyContext) -> list[Step]:
    """Search the files of the folder `over` (seed 004, 6.2; this one never goes to the web)."""
    asked, folder = action.payload, Path(context.config.get("over", "."))
    try:
        found: SearchHits = await in_thread(partial(search, folder, asked["query"], asked.get("limit", 5)))
    except SearchError as error:
        return [error_step(action.policy, error.code, str(error))]
    places = [{"file": place.file, "line": place.line, "excerpt": place.excerpt} for place in found.places]
    searched = {"results": places, "searched": found.searched, "left_out": found.left_out}
    return [action_result_step(action.policy, searched)]


@registry.register("llm_policy", "Ask a language model, which may ask for actions.", _ASKED)
async def llm_policy(action: Action, context: PolicyContext) -> list[Step]:
    """Send the ledger as messages and the allowed actions as tools; return the reply as steps (seed 004, 6.1).

    The payload's `system` and `text` stand before the ledger. Raises GenerationError: the run stops there and can be resumed.
    """
    given = action.payload
    before = (ChatMessage("system", given.get("system")), ChatMessage("user", given.get("text")))
    messages = [*(each for each in before if each.content), *messages_of(await context.get_ledger())]
    config = read_record(SearchSettings, dict(context.config))
    if config.model in _WITHOUT_TOOLS:
        raise GenerationError(
            "The search agent needs a model that can call tools: name one (the local model cannot), or let quoting_policy answer.",
            "unavailable",
        )
    wanted = ModelOptions(
        derive_seed(config.seed, context.key, 1, json.dumps([message.as_openai for message in messages])),
        config.temperature, config.max_tokens, whole_s=config.timeout_s, api_base=config.api_base,
    )  # fmt: skip
    tools = [Tool.of_openai(each) for each in context.tools(action.actions)]
    turn = sum(message.role == ASSISTANT for message in messages)
    model = model_of(config.model or "", wanted)
    try:
        return steps_of(_read(config.model or "", await model.ask(messages, tools, number=turn, on_text=None)))
    finally:
        await model.aclose()


@registry.register("quoting_policy", "Answer with what the files say, word for word; no model.", _ASKED)
async def quoting_policy(action: Action, context: PolicyContext) -> list[Step]:
    """Search for the words of the question, and quote the best places: a heuristic in the place of a model."""
    ledger = list(await context.get_ledger())
    last = ledger[-1] if ledger else text_step("user", "")
    if last.type != ACTION_RESULT:
        question = next((step.payload["text"] for step in reversed(ledger) if step.type == TEXT), "")
        return [action_call_step(ASSISTANT, Action("web_search_policy", {"query": question}))]
    told = last.payload
    if told.get("error") is True:
        return [error_step(action.policy, told["code"], told["message"])]
    quotes = [f"{place['file']}:{place['line']}: {place['excerpt']}" for place in told["results"][:_QUOTED]]
    return [text_step(ASSISTANT, "\n\n".join([QUOTED, *quotes]) if quotes else "The files do not have these words.")]


def _read(model: str, result: StreamResult) -> SearchReply:
    """Read an answer. Raises GenerationError for one that says nothing, was cut off, or whose calls nobody may make."""
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
