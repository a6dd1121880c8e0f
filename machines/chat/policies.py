"""What the effects of the chat machine do. Each reads the conversation from the ledger, does one thing, and answers with one event.

None of them decides what happens next: whether a call may be made the guards say, and where it leads the table.
"""

import asyncio
import hashlib
import json
import re
from collections.abc import Callable
from functools import partial

import attrs

from dsa.compiled_step import compiled_step
from dsa.edge.event_loop import in_thread
from dsa.expr import Outcome
from dsa.generators.streams import StreamResult
from dsa.machine import Machine
from dsa.runtime.policy.policies import Action, PolicyContext, Step, answering, event_step
from dsa.runtime.run import Run, guards_for
from dsa.runtime.speech import as_unicode
from dsa.semantics import Configuration, Occurrence, Refusal
from machines.chat.chat_resources import ChatResources, resources_in
from machines.chat.chat_tools import SQL, TOOLS, DataTool, messages_for, text_of
from machines.chat.conversation import ChatCall, ChatConversation, ChatResult, NewArtifact, ResultTable
from machines.chat.python import FrameSource, PythonError, compiles, is_empty, normal_code
from machines.chat.sql import SqlError, SqlResult, for_spreadsheets, normal_sql
from machines.chat.sql import compiles as compiles_sql
from machines.tool_use.records import JsonObject, as_data, read_record
from machines.tool_use.tool_call import ToolRequest, answer_of, read_call, read_strictly
from machines.tool_use.transcript import ChatMessage, asked_within, room_known, room_taken

_AGAIN = re.compile(
    r"\bre-?(?:run|execute|compute|calculate|generate|do|plot|create|fetch)(?!\w)|\bre-build\b"
    r"|\b(?:run|execute|compute|calculate|generate|build|do|make|plot|draw|create|fetch|query)\s+(?:\w+\s+){0,5}(?:again|once more|anew|afresh)\b"
    r"|\bfrom scratch\b|\boverwrite\b",
    re.IGNORECASE,
)
_NEGATED = re.compile(r"\b(?:do not|don't|dont|never|without|no need to|not)\s+(?:\w+\s+){0,2}$", re.IGNORECASE)


def asks_again(text: str) -> bool:
    """Return whether a message asks for work to be done again."""
    return any(not _NEGATED.search(text[: found.start()]) for found in _AGAIN.finditer(text))


def message_brought(data: object) -> object:
    """Return a message as it is recorded: `text`, and `rerun`, which may be said beside it. ValueError for anything else."""
    given = {"text": data} if isinstance(data, str) else data
    text = given.get("text") if isinstance(given, dict) else None
    if not isinstance(text, str) or not text.strip():
        raise ValueError('a message is a text, or {"text": TEXT}')
    text = as_unicode(text)
    rerun = given.get("rerun") if isinstance(given, dict) else None
    return {"text": text, "rerun": rerun if isinstance(rerun, bool) else asks_again(text)}


_LONGEST_TOLD = 6_000


def _resources(context: PolicyContext) -> ChatResources:
    return resources_in(context.config, context.run.run_id)


# -- the model ------------------------------------------------------------------------------------------------------------


def tools_offered(run: Run) -> tuple[str, ...]:
    """Name the tools whose calls the table would take now, if the model asked for them: what seed 002 calls runtime tool access."""
    here = attrs.evolve(run.configuration, outstanding=run.configuration.outstanding | {"ask_model"})
    asked = _after(run.machine, here, Occurrence("asked"))
    if asked is None or "next_call" not in asked[0]:
        return ()
    offered = []
    for tool in TOOLS.values():
        verdicts: dict[str, Outcome] = dict.fromkeys(guards_for(run.machine, asked[1].state, tool.event), "passed")
        called = _after(run.machine, asked[1], Occurrence(tool.event, verdicts))
        if called is not None and tool.effect in called[0]:
            offered.append(tool.name)
    return tuple(offered)


def _after(machine: Machine, here: Configuration, given: Occurrence) -> tuple[set[str], Configuration] | None:
    """Return the effects that the table would begin, and where it would lead; None where it takes no such event."""
    outcome = compiled_step(machine).move(here, given)
    if isinstance(outcome, Refusal):
        return None
    move, values = outcome
    after = Configuration(move.target, values, move.outstanding, move.precedence)
    return {effect for _, effect, _ in move.started}, after


@answering("asked", "answered", "cut_off", reads={"message": message_brought})
async def ask_model(action: Action, context: PolicyContext) -> list[Step]:
    """Send the conversation with the tools of this phase, and answer with what came. Raises GenerationError when nothing did."""
    chat = _resources(context)
    conversation = chat.conversation(context.run)
    transcript = conversation.transcript
    tables = chat.database.tables if chat.is_loaded else await in_thread(lambda: chat.database.tables)
    tools = [TOOLS[name] for name in tools_offered(context.run)]
    names = tuple(tool.name for tool in tools)

    async def ask(messages: list[ChatMessage]) -> StreamResult:
        return await chat.model.ask(messages, tools, number=transcript.answers, on_text=chat.listen)

    def messages_within(chars: int) -> list[ChatMessage]:
        shortens = chat.is_limited or chars < chat.context_chars  # else a model may well read more
        return messages_for(conversation, tables, offered=names, context_chars=chars, shortens=shortens)

    room = room_known(transcript.room, chat.context_chars, chat.asked_model)
    beside = sum(tool.size for tool in tools)
    result, took = await asked_within(ask, messages_within, room, beside=beside, notice=chat.tell)
    kind, answer = answer_of(result, transcript.free_id, TOOLS.values(), misplaced=transcript.misplaced)
    room_now = room_taken(took, chat.context_chars, chat.asked_model)
    answer = attrs.evolve(answer, room=room_now, offered=names)
    return [event_step(action.policy, "answered" if kind == "said" else kind, data=as_data(answer))]


# -- calls ----------------------------------------------------------------------------------------------------------------


@answering("sql_call", "python_call", "unknown_call", "no_more_calls", is_eager=True)
async def next_call(action: Action, context: PolicyContext) -> list[Step]:
    """Take the first queued call and say what it means, and which equal one there was."""
    chat = _resources(context)
    conversation = chat.conversation(context.run)
    chat.files.shown(conversation.inventory)
    if not conversation.transcript.queue:
        return [event_step(action.policy, "no_more_calls")]
    asked = conversation.transcript.queue[0]
    call = (read_call if chat.normalises else read_strictly)(asked, TOOLS)
    if call.tool is None:
        unknown = ChatCall(call.call_id, "", rescues=call.rescues, fault=call.fault)
        return [event_step(action.policy, "unknown_call", data=as_data(unknown))]
    text, turn = text_of(call), conversation.turn
    digest, fault = await in_thread(partial(_looked_at, call, chat, conversation.latest_table))
    earlier = conversation.earlier(digest) if chat.dedups else None
    seen = (digest, earlier, turn.number, turn.rerun, call.arguments)
    read = ChatCall(call.call_id, call.tool.name, text, call.rescues, fault, *seen)
    return [event_step(action.policy, call.tool.event, data=as_data(read))]


def _looked_at(call: ToolRequest[DataTool], chat: ChatResources, table: ResultTable | None) -> tuple[str, str]:
    """Return what a call is known by, and what the parser has against it. `table` is what code would read."""
    text = text_of(call)
    if call.tool is SQL:
        return digest_of(call), (compiles_sql(text, chat.database) or "") if text.strip() else ""
    known_by = digest_of(call, json.dumps(None if table is None else as_data(table)))
    if is_empty(text):
        return known_by, "the code is empty, or comments alone"
    return known_by, compiles(text) or ""


def digest_of(call: ToolRequest[DataTool], table: str = "") -> str:
    """Return the SHA-256 of all that a call's outcome depends on: equal for calls that differ in comments, white space and the like alone.

    SQL reads data that no call changes; code reads the latest result of SQL too, `table`, and may take a given time.
    """
    assert call.tool is not None, "a call of no tool has no outcome"
    written = normal_sql(text_of(call)) if call.tool is SQL else normal_code(text_of(call))
    number = call.arguments["limit" if call.tool is SQL else "timeout"]
    read = "\n".join(str(each) for each in (call.tool.name, number, table, written))
    return hashlib.sha256(read.encode("utf-8", "surrogatepass")).hexdigest()


# -- tools ----------------------------------------------------------------------------------------------------------------


def _call_in(action: Action) -> ChatCall:
    return read_record(ChatCall, action.payload["data"])


@answering("sql_done", "sql_failed", is_eager=True)
async def run_sql(action: Action, context: PolicyContext) -> list[Step]:
    """Query the data. What went wrong in the query is an answer; only a fault of ours raises."""
    chat, call = _resources(context), _call_in(action)
    try:
        found, digest, shared = await _interrupting(chat, partial(_queried, chat, call))
    except SqlError as error:
        return [event_step(action.policy, "sql_failed", data=as_data(ChatResult(call.call_id, _failed(error))))]
    table = ResultTable(digest, tuple(found.columns), tuple(found.types))
    made = _table_made(found, *shared, call.digest, chat.conversation(context.run), dedups=chat.dedups)
    came = ChatResult(call.call_id, _rows_told(found), found.intent, table, made)
    return [event_step(action.policy, "sql_done", data=as_data(came))]


_Queried = tuple[SqlResult, str, tuple[str, int]]


def _queried(chat: ChatResources, call: ChatCall) -> _Queried:
    """Query, and keep the rows: as they are, and as spreadsheets may read them, with the SHA-256 of each and the size of the latter."""
    found = chat.database.query(call.text, limit=int(str(call.arguments["limit"])))
    shared = for_spreadsheets(found.csv)
    return found, chat.files.keep(found.csv), (chat.files.keep(shared), len(shared))


async def _interrupting(chat: ChatResources, query: Callable[[], _Queried]) -> _Queried:
    """Query in a thread; a query that nobody waits for any more is stopped."""
    try:
        return await in_thread(query)
    except asyncio.CancelledError:
        chat.database.interrupt()
        raise


def _rows_told(found: SqlResult) -> JsonObject:
    """Return what the model is told of a result."""
    rows = [list(row) for row in found.preview]
    cut = {"shown": len(rows)} if len(rows) < found.row_count else {}
    return {"columns": list(found.columns), "rows": rows, "row_count": found.row_count, **cut}


def _table_made(
    found: SqlResult, digest: str, size_bytes: int, call_digest: str, conversation: ChatConversation, *, dedups: bool
) -> tuple[NewArtifact, ...]:
    """Return the table as an artifact, unless it is a single value."""
    if found.row_count * len(found.columns) < 2:  # noqa: PLR2004  (more than one value)
        return ()
    about = "_".join(found.intent.datasets[:2]) or "result"
    made = NewArtifact(f"{about}_{call_digest[:6]}.csv", "csv", digest, size_bytes, f"sql:{call_digest[:12]}")
    return conversation.inventory.compared([made], dedups=dedups)


@answering("python_done", "python_failed", is_eager=True)
async def run_python(action: Action, context: PolicyContext) -> list[Step]:
    """Run code in the sandbox, over the latest table. What went wrong in the code is an answer; only a fault of ours raises."""
    chat, call = _resources(context), _call_in(action)
    conversation = chat.conversation(context.run)
    known = conversation.latest_table
    table = None if known is None else FrameSource(known.columns, known.types, chat.files.content(known.digest))
    timeout_s = int(str(call.arguments["timeout"]))
    try:
        ran = await in_thread(lambda: chat.interpreter.run(call.text, table, timeout_s=timeout_s))
    except PythonError as error:
        output = {"output": error.output} if error.output else {}
        return [
            event_step(action.policy, "python_failed", data=as_data(ChatResult(call.call_id, _failed(error, **output))))
        ]
    of = known.digest[:12] if known else "-"
    made = []
    for file in ran.files:
        content = for_spreadsheets(file.content) if file.kind in {"csv", "tsv"} else file.content
        digest = await in_thread(partial(chat.files.keep, content))
        made.append(NewArtifact(file.name, file.kind, digest, len(content), f"python:{file.name}:{of}"))
    told = {"output": ran.output, "value": ran.value, "files": [file.name for file in ran.files]}
    result = {name: value for name, value in told.items() if value}
    artifacts = conversation.inventory.compared(made, dedups=chat.dedups)
    came = ChatResult(call.call_id, result, None, None, artifacts, ran.rung, tuple(sorted(ran.features)))
    return [event_step(action.policy, "python_done", data=as_data(came))]


def _failed(error: SqlError | PythonError, **more: object) -> JsonObject:
    """Return what went wrong as the model is told it."""
    return {"error": {"code": error.code, "message": str(error)[:_LONGEST_TOLD]}, **more}
