"""Bindings of the chat machine: the policies and guards of its table.

Each policy reads the conversation from the ledger, does one thing, and answers with one event. None decides what happens next: the guards judge whether
a call may be made, whether its artifacts are new, and whether an answer has its files, and the table says what follows. Guards read only the event, where
`next_call` and the tools put the facts of the conversation.
"""

import asyncio
import hashlib
import json
import re
from functools import partial

import attrs

from dsa.compiled_step import compiled_step
from dsa.edge.event_loop import in_thread
from dsa.errors import ToolError
from dsa.expr import Outcome
from dsa.generators.streams import StreamResult
from dsa.machine import Machine
from dsa.runtime.content import GuardInterface
from dsa.runtime.policy.policies import Action, Policy, PolicyContext, Step, answering, event_step
from dsa.runtime.run import Run, guards_for
from dsa.runtime.speech import as_unicode
from dsa.semantics import Configuration, Occurrence, Refusal
from machines.chat.chat_notices import notice_effects
from machines.chat.chat_session import ChatResources, resources_in
from machines.chat.chat_tools import SQL, TOOLS, DataTool, messages_for, text_of
from machines.chat.conversation import ChatCall, ChatConversation, ChatResult, NewArtifact, PresentedAnswer, ResultTable
from machines.chat.interpreter import FrameSource, compiles, is_empty, normal_code
from machines.chat.sql import SqlResult, for_spreadsheets, normal_sql
from machines.chat.sql import compiles as compiles_sql
from machines.tool_use.records import JsonObject, as_data, read_record
from machines.tool_use.tool_agent import PASSED, FunctionGuard, Verdict, verdict_for
from machines.tool_use.tool_call import ToolRequest, answer_of, read_call, read_strictly
from machines.tool_use.transcript import ChatMessage, ask_within, first_room, room_of

_AGAIN = re.compile(
    r"\bre-?(?:run|execute|compute|calculate|generate|do|plot|create|fetch)(?!\w)|\bre-build\b"
    r"|\b(?:run|execute|compute|calculate|generate|build|do|make|plot|draw|create|fetch|query)\s+(?:\w+\s+){0,5}(?:again|once more|anew|afresh)\b"
    r"|\bfrom scratch\b|\boverwrite\b",
    re.IGNORECASE,
)
_NEGATION = re.compile(r"\b(?:do not|don't|dont|never|without|no need to|not)\s+(?:\w+\s+){0,2}$", re.IGNORECASE)


def asks_again(text: str) -> bool:
    """Return whether a message asks for work to be done again."""
    return any(not _NEGATION.search(text[: match.start()]) for match in _AGAIN.finditer(text))


def read_message(data: object) -> object:
    """Return a message as it is recorded: `text` and `rerun`, which may be missing in `data`. Raises ValueError for anything else."""
    value = {"text": data} if isinstance(data, str) else data
    text = value.get("text") if isinstance(value, dict) else None
    if not isinstance(text, str) or not text.strip():
        raise ValueError('a message must be a text or {"text": TEXT}, and must not be empty')
    text = as_unicode(text)
    rerun = value.get("rerun") if isinstance(value, dict) else None
    return {"text": text, "rerun": rerun if isinstance(rerun, bool) else asks_again(text)}


_LONGEST_MESSAGE = 6_000


def _resources(context: PolicyContext) -> ChatResources:
    return resources_in(context.config, context.run.run_id)


# --- the model ---


def available_tools(run: Run) -> tuple[str, ...]:
    """Return the names of the tools whose calls the table would accept now: the runtime tool access of seed 002."""
    here = attrs.evolve(run.configuration, outstanding=sorted({*run.configuration.outstanding, "ask_model"}))
    answer = _after(run.machine, here, Occurrence("asked"))
    if answer is None or "next_call" not in answer[0]:
        return ()
    names = []
    for tool in TOOLS.values():
        verdicts: dict[str, Outcome] = dict.fromkeys(guards_for(run.machine, answer[1].state, tool.event), "passed")
        outcome = _after(run.machine, answer[1], Occurrence(tool.event, verdicts))
        if outcome is not None and tool.effect in outcome[0]:
            names.append(tool.name)
    return tuple(names)


def _after(machine: Machine, here: Configuration, occurrence: Occurrence) -> tuple[set[str], Configuration] | None:
    """Return the effects and the configuration after an event, or None when the table refuses it."""
    outcome = compiled_step(machine).move(here, occurrence)
    if isinstance(outcome, Refusal):
        return None
    move, values = outcome
    after = Configuration(move.target, values, move.outstanding, move.precedence)
    return {effect for _, effect, _ in move.starts}, after


@answering("asked", "answered", "cut_off", reads={"message": read_message})
async def ask_model(action: Action, context: PolicyContext) -> list[Step]:
    """Send the conversation with the tools of this phase, and answer with the result. Raises GenerationError when the model does not answer."""
    chat = _resources(context)
    conversation = chat.conversation(context.run)
    transcript = conversation.transcript
    tables = chat.database.tables if chat.is_loaded else await in_thread(lambda: chat.database.tables)
    tools = [TOOLS[name] for name in available_tools(context.run)]
    names = tuple(tool.name for tool in tools)

    def show(text: str) -> None:
        chat.listen(text)
        context.show(text)

    async def ask(messages: list[ChatMessage]) -> StreamResult:
        return await chat.model.ask(messages, tools, number=transcript.answers, on_text=show)

    def messages_within(chars: int) -> list[ChatMessage]:
        shortens = chat.is_limited or chars < chat.context_chars  # otherwise the model may be able to read more
        return messages_for(conversation, tables, tools=names, context_chars=chars, shortens=shortens)

    room = first_room(transcript.room, chat.context_chars, chat.model_name)
    beside = sum(tool.size for tool in tools)
    result, used_chars = await ask_within(ask, messages_within, room, beside=beside, notice=chat.tell)
    kind, answer = answer_of(result, transcript.free_id, TOOLS.values(), misplaced_count=transcript.misplaced_count)
    room_now = room_of(used_chars, chat.context_chars, chat.model_name)
    answer = attrs.evolve(answer, room=room_now, offered=names)
    return [event_step(action.policy, "answered" if kind == "said" else kind, data=as_data(answer))]


# --- calls ---


@answering("sql_call", "python_call", "unknown_call", "no_more_calls", is_eager=True)
async def next_call(action: Action, context: PolicyContext) -> list[Step]:
    """Read the first call of the queue, and look for an earlier equal one."""
    chat = _resources(context)
    conversation = chat.conversation(context.run)
    chat.files.publish(conversation.inventory)
    if not conversation.transcript.queue:
        return [event_step(action.policy, "no_more_calls")]
    queued_call = conversation.transcript.queue[0]
    call = (read_call if chat.normalises else read_strictly)(queued_call, TOOLS)
    if call.tool is None:
        unknown = ChatCall(call.call_id, "", rescues=call.rescues, fault=call.fault)
        return [event_step(action.policy, "unknown_call", data=as_data(unknown))]
    text, turn = text_of(call), conversation.turn
    digest, fault = await in_thread(partial(_inspect, call, chat, conversation.latest_table))
    earlier = conversation.earlier(digest) if chat.dedups else None
    facts = (digest, earlier, turn.number, turn.rerun, call.arguments)
    data = ChatCall(call.call_id, call.tool.name, text, call.rescues, fault, *facts)
    return [event_step(action.policy, call.tool.event, data=as_data(data))]


def _inspect(call: ToolRequest[DataTool], chat: ChatResources, table: ResultTable | None) -> tuple[str, str]:
    """Return the digest of a call, and the parser's error. `table` is the one that code would read."""
    text = text_of(call)
    if call.tool is SQL:
        return digest_of(call), (compiles_sql(text, chat.database) or "") if text.strip() else ""
    digest = digest_of(call, json.dumps(None if table is None else as_data(table)))
    if is_empty(text):
        return digest, "the code is empty, or has only comments"
    return digest, compiles(text) or ""


def digest_of(call: ToolRequest[DataTool], table: str = "") -> str:
    """Return the SHA-256 of all that a call's result depends on. Calls that differ only in things like comments and white space have equal digests.

    SQL reads data that no call changes. Code also reads `table`, the latest result of SQL, and has a time limit.
    """
    assert call.tool is not None, "a call of an unknown tool has no result"
    text = normal_sql(text_of(call)) if call.tool is SQL else normal_code(text_of(call))
    number = call.arguments["limit" if call.tool is SQL else "timeout"]
    inputs = "\n".join(str(each) for each in (call.tool.name, number, table, text))
    return hashlib.sha256(inputs.encode("utf-8", "surrogatepass")).hexdigest()


# --- tools ---


def _call_in(action: Action) -> ChatCall:
    return read_record(ChatCall, action.payload["data"])


@answering("sql_done", "sql_failed", is_eager=True)
async def run_sql(action: Action, context: PolicyContext) -> list[Step]:
    """Query the data. A fault in the query is a result for the model; only our own faults raise."""
    chat, call = _resources(context), _call_in(action)
    conversation = chat.conversation(context.run)
    try:
        result, digest, shared_file = await _query_in_thread(chat, call)
    except ToolError as error:
        return [event_step(action.policy, "sql_failed", data=as_data(ChatResult(call.call_id, _error_result(error))))]
    table = ResultTable(digest, tuple(result.columns), tuple(result.types))
    artifacts = _table_artifact(result, *shared_file, call.digest, conversation, dedups=chat.dedups)
    data = ChatResult(call.call_id, _result_for_model(result), result.intent, table, artifacts, dedups=chat.dedups)
    return [event_step(action.policy, "sql_done", data=as_data(data))]


_QueryResult = tuple[SqlResult, str, tuple[str, int]]


def _query(chat: ChatResources, call: ChatCall) -> _QueryResult:
    """Query, and store the rows as CSV, unchanged and safe for spreadsheets. Return the result, the SHA-256 of the first, and SHA-256 and size of the second."""
    result = chat.database.query(call.text, limit=int(str(call.arguments["limit"])), owner=call.call_id)
    shared_csv = for_spreadsheets(result.csv)
    return result, chat.files.keep(result.csv), (chat.files.keep(shared_csv), len(shared_csv))


async def _query_in_thread(chat: ChatResources, call: ChatCall) -> _QueryResult:
    """Query in a thread; cancelling the caller stops the query."""
    try:
        return await in_thread(partial(_query, chat, call))
    except asyncio.CancelledError:
        chat.database.interrupt(call.call_id)
        raise


def _result_for_model(result: SqlResult) -> JsonObject:
    """Return a result for the model."""
    rows = [list(row) for row in result.preview]
    part = {"shown": len(rows)} if len(rows) < result.row_count else {}
    return {"columns": list(result.columns), "rows": rows, "row_count": result.row_count, **part}


def _table_artifact(
    result: SqlResult, digest: str, size_bytes: int, call_digest: str, conversation: ChatConversation, *, dedups: bool
) -> tuple[NewArtifact, ...]:
    """Return the table as an artifact, or nothing for a single value."""
    if result.row_count * len(result.columns) < 2:  # noqa: PLR2004  (more than one value)
        return ()
    about = "_".join(result.intent.datasets[:2]) or "result"
    artifact = NewArtifact(f"{about}_{call_digest[:6]}.csv", "csv", digest, size_bytes, f"sql:{call_digest[:12]}")
    return conversation.inventory.compare([artifact], dedups=dedups)


@answering("python_done", "python_failed", is_eager=True)
async def run_python(action: Action, context: PolicyContext) -> list[Step]:
    """Run code in the sandbox on the table that was the latest when it began. A fault in the code is a result for the model; only our own faults raise."""
    chat, call = _resources(context), _call_in(action)
    conversation = chat.conversation(context.run)
    data_call = conversation.transcript.call(call.call_id)
    source = None if data_call is None else data_call.source
    table = None if source is None else FrameSource(source.columns, source.types, chat.files.content(source.digest))
    timeout_s = int(str(call.arguments["timeout"]))
    try:
        outcome = await in_thread(lambda: chat.interpreter.run(call.text, table, timeout_s=timeout_s))
    except ToolError as error:
        return [
            event_step(action.policy, "python_failed", data=as_data(ChatResult(call.call_id, _error_result(error))))
        ]
    of = source.digest[:12] if source else "-"
    artifacts_made = []
    for file in outcome.files:
        content = for_spreadsheets(file.content) if file.kind in {"csv", "tsv"} else file.content
        digest = await in_thread(partial(chat.files.keep, content))
        artifacts_made.append(NewArtifact(file.name, file.kind, digest, len(content), f"python:{file.name}:{of}"))
    facts = {"output": outcome.output, "value": outcome.value, "files": [file.name for file in outcome.files]}
    result = {name: value for name, value in facts.items() if value}
    artifacts = conversation.inventory.compare(artifacts_made, dedups=chat.dedups)
    features = tuple(sorted(outcome.features))
    data = ChatResult(call.call_id, result, None, None, artifacts, outcome.rung, features, chat.dedups)
    return [event_step(action.policy, "python_done", data=as_data(data))]


def _error_result(error: ToolError) -> JsonObject:
    """Return an error as a result for the model."""
    return {"error": {"code": error.code, "message": str(error)[:_LONGEST_MESSAGE]}, **error.about}


# --- guards ---


def _usable(call: ChatCall) -> Verdict:
    """Pass a call with SQL or code that compiles. The tool itself reports an unknown column."""
    return verdict_for(call.fault if call.text.strip() else f"the call of {call.tool} is empty")


def _fresh(call: ChatCall) -> Verdict:
    """Pass a call unless this turn or a recent successful one had an equal call. The user may ask for a repetition, once per turn."""
    earlier = call.earlier
    if earlier is None:
        return PASSED
    in_turn = earlier.turn == call.turn
    if not in_turn and (call.rerun or not earlier.ok):
        return PASSED
    when = "in this turn" if in_turn else f"in turn {earlier.turn}"
    return "failed", f"the same call was made {when}: {earlier.call_id}"


def _new(answer: PresentedAnswer) -> Verdict:
    """Pass new artifacts unless one with equal content exists."""
    return verdict_for("; ".join(f"{each.name} is {each.equal_to}" for each in answer.artifacts if each.equal_to))


def _files_there(answer: PresentedAnswer) -> Verdict:
    """Pass an answer if every file that it names or that the user asked for exists."""
    return verdict_for("; ".join(answer.missing))


guards: dict[str, GuardInterface] = {
    "usable": FunctionGuard(ChatCall, _usable),
    "fresh": FunctionGuard(ChatCall, _fresh),
    "new": FunctionGuard(PresentedAnswer, _new),
    "files_there": FunctionGuard(PresentedAnswer, _files_there),
}
#: A budget of the whole conversation stops only this effect: the calls of an answer are still made.
spenders = ("ask_model",)
effects: dict[str, Policy] = {
    "ask_model": ask_model,
    "next_call": next_call,
    "run_sql": run_sql,
    "run_python": run_python,
    **notice_effects,
}
