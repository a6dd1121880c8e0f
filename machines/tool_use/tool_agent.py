"""An agent that calls tools, for a table of your own: give it instructions and tools, and bind its effects.

Its effects read the conversation from the run's ledger, do one thing, and answer with one event. What happens next the table says: which calls are made,
how many, and who is asked before. The model is that of the run (`dsa run --model`).

Guards made of functions, which judge what an event brings and nothing else: equal events get equal verdicts, in a replay too.
"""

import inspect
import json
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

import attrs

from dsa.edge.event_loop import await_foreign, in_thread
from dsa.errors import DsaError
from dsa.expr import Outcome
from dsa.generators.streams import StreamResult
from dsa.guards.feedback import verdict_of
from dsa.runtime.content import Artifact, GuardInterface, GuardResult
from dsa.runtime.json_text import copy_json
from dsa.runtime.ledger import Entry, EventEntry, ResultEntry, RowEntry
from dsa.runtime.policy.policies import (
    Action,
    Policy,
    PolicyContext,
    Step,
    answering,
    canonical_json,
    event_step,
    text_step,
)
from dsa.runtime.run import Run
from dsa.runtime.speech import as_unicode
from machines.tool_use.chat_model import ModelOptions, model_of
from machines.tool_use.records import JsonObject, as_data, read_record
from machines.tool_use.tool import Tool, name_sent
from machines.tool_use.tool_call import LEFT_OUT, ModelAnswer, ToolCall, ToolResult, answer_of, read_call, refused
from machines.tool_use.transcript import (
    CHARS_PER_TOKEN,
    CallSummary,
    ChatMessage,
    Notice,
    Transcript,
    asked_within,
    called_of,
    newest_that_fit,
    notices_in,
    results_told,
    room_known,
    room_taken,
    within,
)

#: How long a request may be, where `context_tokens` in the run's configuration does not say it.
CONTEXT_TOKENS = 20_000
#: Of how many runs at once the conversation is remembered; it is read again from the ledger of another one.
_MOST_KNOWN = 256


class ToolError(DsaError):
    """Raised by a tool for what the model is to be told: the call has failed, and the work goes on."""


@attrs.frozen
class FunctionTool(Tool):
    """A tool that is a function of its arguments, by their names. It returns JSON; what can be awaited is, any other function runs in a thread.

    Raises ToolError for what the model is to be told; what else it raises is a failure of the effect `run_tool`. TypeError for parameters that the function does not take.
    """

    do: Callable[..., object] = attrs.field(kw_only=True)

    def __attrs_post_init__(self) -> None:
        """Refuse parameters that the function does not take, and a function that takes more."""
        if self.schema is None:
            always = (each.name for each in self.parameters if each.required or each.default is not None)
            for names in (always, (each.name for each in self.parameters)):
                self.require_taken(dict.fromkeys(names))

    def require_taken(self, arguments: JsonObject) -> None:
        """Raise TypeError unless the function can be called with these arguments."""
        try:
            inspect.signature(self.do).bind(**arguments)
        except TypeError as error:
            raise TypeError(f"{self.name} cannot be called with {', '.join(arguments) or 'nothing'}: {error}") from None
        except ValueError:
            return  # a function of C that does not say what it takes


@attrs.frozen
class AgentCall:
    """A call as it is meant: the data of `tool_call`, and of `unknown_call` with its `fault`. `rescues` names what was mended."""

    call_id: str
    tool: str = ""
    arguments: JsonObject = attrs.field(factory=dict)
    rescues: tuple[str, ...] = ()
    fault: str = ""


@attrs.frozen
class AgentResult:
    """What came of the call that was read last: the data of `tool_done` and `tool_failed`."""

    result: JsonObject


@attrs.frozen
class PersonMessage:
    """What a person says: the data of `message`, and of `denied`."""

    text: str


#: Why something was not done as the model asked.
REASONS = {
    "not_made": "A call was not made: it is of no tool, or it was denied.",
    LEFT_OUT: "Calls were left out: the table takes no more.",
    "answer_cut_off": "An answer broke off, was empty, or had a call in its text; the model was asked again.",
}


def _said(data: object) -> PersonMessage:
    """Read what a person says: a text, an object with one, or nothing. ValueError for anything else."""
    text = data.get("text", "") if isinstance(data, dict) else "" if data is None else data
    if isinstance(text, str):
        return PersonMessage(as_unicode(text))
    raise ValueError('it brings a text, or {"text": TEXT}')


def message_brought(data: object) -> object:
    """Return what a person says as it is recorded. ValueError for what is no text, or an empty one."""
    said = _said(data)
    if not said.text.strip():
        raise ValueError('a message is a text, or {"text": TEXT}, and not an empty one')
    return as_data(said)


def denial_brought(data: object) -> object:
    """Return why a person does not let a call happen, as it is recorded; it may be nothing. ValueError for anything else."""
    return as_data(_said(data))


def came_brought(data: object) -> object:
    """Return what a person says has come of a call, as it is recorded: a text, an object, or an object with `result`."""
    given = data.get("result", data) if isinstance(data, dict) else data
    return as_data(AgentResult(as_unicode(_content(given))))


def _content(given: object) -> JsonObject:
    return given if isinstance(given, dict) else {"result": given}


#: What events from outside bring, by their names.
_BROUGHT = {
    "specification": message_brought,
    "message": message_brought,
    "denied": denial_brought,
    "tool_done": came_brought,
    "tool_failed": came_brought,
}


class AgentConversation:
    """What a ledger says of a conversation. `take` is given entries; everything else is read."""

    def __init__(self) -> None:
        self.taken = 0
        self.first: Entry | None = None
        self.transcript = Transcript(_called)
        self._arrived: EventEntry | None = None

    def take(self, entries: Iterable[Entry]) -> None:
        """Go on with further entries. Raises ValueError for one that cannot be read; it is read again the next time."""
        for entry in entries:
            if isinstance(entry, EventEntry):
                self._arrived = entry
            elif isinstance(entry, RowEntry) and self._arrived is not None:
                self._happened(self._arrived)  # what was refused has changed nothing
            elif isinstance(entry, ResultEntry):
                self._told(entry)
            self.first = self.first or entry
            self.taken += 1

    def unanswered(self) -> list[ChatMessage]:
        """Return results of the calls that have none, for a request: a provider refuses one without."""
        waiting = map(self.transcript.open_call, self.transcript.waiting())
        return [
            ChatMessage("tool", refused(call.call_id, "not_made", _NOT_MADE).as_text(), answers=call.provider_id)
            for call in waiting
            if call is not None
        ]

    def _happened(self, entry: EventEntry) -> None:
        transcript, data = self.transcript, entry.data
        match entry.event:
            case "message" | "specification":
                self._close()
                transcript.begin()
                transcript.say(_said(data).text)
            case "asked" | "said" | "cut_off":
                self._close()
                transcript.answered(read_record(ModelAnswer, data))
            case "tool_call" | "unknown_call":
                call = read_record(AgentCall, data)
                transcript.take_next(call.tool, call.rescues)
            case "tool_done" | "tool_failed" if transcript.current is not None:
                came = read_record(AgentResult, came_brought(data))  # a person may have said it
                transcript.result(ToolResult(transcript.current.call_id, came.result))
            case "run_tool.failed" if transcript.current is not None:
                transcript.result(refused(transcript.current.call_id, "interrupted", _UNKNOWN))

    def _told(self, entry: ResultEntry) -> None:
        for notice in notices_in(entry, Notice, REASONS):
            for call_id, content in notice.results.items():
                self.transcript.result(ToolResult(call_id, content))
            if notice.drops:
                self.transcript.drop()
            if notice.note:
                self.transcript.say(notice.note)

    def _close(self) -> None:
        """Answer every call that has no result: a provider refuses a conversation in which one has none."""
        self.transcript.drop()
        for call_id in self.transcript.waiting():
            self.transcript.result(refused(call_id, "not_made", _NOT_MADE))


_UNKNOWN = "it failed, and nobody knows what came of it: look before you ask for it again"
_NOT_MADE = "it was not made: the work went on without it; ask again if it is still wanted"


def _called(call: ToolCall) -> CallSummary:
    return CallSummary(**called_of(call))


class ToolAgent:
    """Instructions and tools. `effects` are for a module that `dsa run --with` names, or for `dsa.Bindings`.

    | effect         | events that answer it                        | what it does                                             |
    | -------------- | -------------------------------------------- | -------------------------------------------------------- |
    | `ask_model`    | `asked`, `said`, `cut_off`                   | sends the conversation with the tools                    |
    | `next_call`    | `tool_call`, `unknown_call`, `no_more_calls` | reads the next call that the model has asked for         |
    | `run_tool`     | `tool_done`, `tool_failed`                   | makes the call that was read                             |
    | `ask_person`   |                                              | tells a person which call waits for leave                |
    | `refuse_call`  |                                              | tells the model why it is not made                       |
    | `drop_calls`   |                                              | tells the model that no more calls are made              |
    | `note_cut_off` |                                              | tells the model that its answer did not arrive whole     |
    | `reply`        |                                              | tells the user the answer                                |

    The events `specification`, `message` and `denied` come from outside, each with a text.
    """

    def __init__(self, instructions: str, tools: Iterable[FunctionTool]) -> None:
        self.instructions = as_unicode(instructions)
        self.tools: dict[str, FunctionTool] = {}
        for tool in tools:
            if tool.name in self.tools or name_sent(tool.name) != tool.name:
                why = (
                    "is there twice"
                    if tool.name in self.tools
                    else "has a name that providers do not take: letters, digits, _ and -"
                )
                raise ValueError(f"the tool {tool.name!r} {why}")
            self.tools[tool.name] = tool
        self._conversations: dict[str, AgentConversation] = {}
        self.effects: dict[str, Policy] = {
            "ask_model": answering("asked", "said", "cut_off", reads=_BROUGHT)(self.ask_model),
            "next_call": answering("tool_call", "unknown_call", "no_more_calls", is_eager=True)(self.next_call),
            "run_tool": answering("tool_done", "tool_failed", reads=_BROUGHT)(self.run_tool),
            "ask_person": self.ask_person,
            "refuse_call": self.refuse_call,
            "drop_calls": self.drop_calls,
            "note_cut_off": self.note_cut_off,
            "reply": self.reply,
        }

    def conversation(self, run: Run) -> AgentConversation:
        """Return what the run's ledger says."""
        known = self._conversations.get(run.run_id)
        if known is None or known.taken > len(run.ledger) or (known.taken and known.first != run.ledger[0]):
            known = self._conversations[run.run_id] = AgentConversation()
            while len(self._conversations) > _MOST_KNOWN:
                del self._conversations[next(iter(self._conversations))]
        known.take(run.ledger.after(known.taken))
        return known

    async def ask_model(self, action: Action, context: PolicyContext) -> list[Step]:
        """Send the conversation. Raises GenerationError when nothing came, ModelUnavailable for a model that calls no tools."""
        conversation, config = self.conversation(context.run), context.config
        transcript = conversation.transcript
        tools = tuple(self.tools.values())
        name, seed = str(config.get("model") or ""), config.get("seed") or 0
        wanted_chars = int(config.get("context_tokens") or CONTEXT_TOKENS) * CHARS_PER_TOKEN
        head, open_calls = ChatMessage("system", self.instructions), conversation.unanswered()
        model = model_of(name, ModelOptions(seed))

        async def ask(messages: list[ChatMessage]) -> StreamResult:
            return await model.ask(messages, tools, number=transcript.answers, on_text=context.show)

        def messages_within(chars: int) -> list[ChatMessage]:
            kept = newest_that_fit(transcript.exchanges, chars)
            said = [message for exchange in kept for message in exchange.messages]
            left_out = len(transcript.exchanges) - len(kept)
            note = [
                ChatMessage("system", f"{head.content}\n[{left_out} earlier messages of the user are left out here.]")
            ]
            return [*(note if left_out else [head]), *within([*said, *open_calls], chars)]

        room = room_known(transcript.room, wanted_chars, name)
        beside = sum(tool.size for tool in tools)
        try:
            result, took = await asked_within(ask, messages_within, room, beside=beside, notice=context.show)
        finally:
            await model.aclose()
        kind, answer = answer_of(result, transcript.free_id, tools, misplaced=transcript.misplaced)
        answer = attrs.evolve(answer, room=room_taken(took, wanted_chars, name))
        return [event_step(action.policy, kind, data=as_data(answer))]

    async def next_call(self, action: Action, context: PolicyContext) -> list[Step]:
        """Take the first call that waits, and say what it means."""
        queue = self.conversation(context.run).transcript.queue
        if not queue:
            return [event_step(action.policy, "no_more_calls")]
        call = read_call(queue[0], self.tools)
        event, tool = ("tool_call", call.tool.name) if call.tool else ("unknown_call", "")
        read = AgentCall(call.call_id, tool, call.arguments, call.rescues, call.fault)
        return [event_step(action.policy, event, data=as_data(read))]

    async def run_tool(self, action: Action, context: PolicyContext) -> list[Step]:
        """Make the call that was read last."""
        call = self._current(context)
        tool, arguments = self.tools[call.tool], copy_json(dict(call.arguments))
        try:
            tool.require_taken(arguments)
        except TypeError as error:
            return _came(action, "tool_failed", refused(call.call_id, "failed", str(error)).content)
        try:
            content = _content(await _done(tool.do, arguments))
        except ToolError as error:
            return _came(action, "tool_failed", refused(call.call_id, "failed", as_unicode(str(error))).content)
        try:
            canonical_json(content)
        except (TypeError, ValueError, RecursionError) as error:
            told = f"it was done, and its result cannot be told, for it is no JSON: {error}"
            return _came(action, "tool_failed", refused(call.call_id, "no_json", told).content)
        return _came(action, "tool_done", as_unicode(content))

    def _current(self, context: PolicyContext) -> AgentCall:
        """Return the call that was read last. LookupError where the table has read none."""
        return read_record(AgentCall, _read_last(context).data)

    async def ask_person(self, action: Action, context: PolicyContext) -> list[Step]:
        """Tell a person which call waits for leave, with its arguments, and why it does."""
        call, why = self._current(context), "; ".join(_reasons(context))
        arguments = json.dumps(call.arguments, ensure_ascii=False)
        return [text_step(action.policy, f"may {call.tool} {arguments} happen?{f' ({why})' if why else ''}")]

    async def refuse_call(self, action: Action, context: PolicyContext) -> list[Step]:
        """Tell the model why the call that was read last is not made: what is wrong with it, what a person has said, or what a guard has."""
        call, asked = self._current(context), action.payload
        said = _said(asked["data"]).text if asked["event"] == "denied" else ""
        why = call.fault or said or "; ".join(_reasons(context)) or "it is not allowed"
        results = results_told(refused(call.call_id, "not_made", as_unicode(why)))
        return [Notice("not_made", why, results=results).as_step(action.policy)]

    async def drop_calls(self, action: Action, context: PolicyContext) -> list[Step]:
        """Answer every call that waits: it is not made."""
        waiting = self.conversation(context.run).transcript.waiting()
        results = results_told(*(refused(name, LEFT_OUT, "no more calls are made here") for name in waiting))
        return [Notice(LEFT_OUT, f"{len(waiting)} calls left out", results=results, drops=True).as_step(action.policy)]

    async def note_cut_off(self, action: Action, _context: PolicyContext) -> list[Step]:
        """Tell the model that its answer cannot be used."""
        answer = read_record(ModelAnswer, action.payload["data"])
        return [Notice("answer_cut_off", answer.why, answer.note).as_step(action.policy)]

    async def reply(self, action: Action, _context: PolicyContext) -> list[Step]:
        """Tell the user the answer."""
        return [text_step(action.policy, read_record(ModelAnswer, action.payload["data"]).content)]


def _came(action: Action, event: str, result: JsonObject) -> list[Step]:
    return [event_step(action.policy, event, data=as_data(AgentResult(result)))]


def _read_last(context: PolicyContext) -> EventEntry:
    """Return the event by which a call was read last. LookupError where none was."""
    for entry in reversed(context.run.ledger):
        if isinstance(entry, EventEntry) and entry.event in {"tool_call", "unknown_call"}:
            return entry
    raise LookupError("no call was read: `next_call` comes before")


def _reasons(context: PolicyContext) -> list[str]:
    """Return what the guards say that have not let the last call pass. They judge the same data again, which is equal."""
    read = _read_last(context)
    call = Artifact(json.dumps(read.data))
    failed = [name for name, outcome in read.verdicts if outcome != "passed"]
    said = (verdict_of(name, context.guard(name), call, {}).feedback for name in failed)
    return [each for each in said if each]


async def _done(do: Callable[..., object], arguments: JsonObject) -> object:
    """Call a tool. Raises what it raises, also of what ends programs, as an error of the tool's own."""
    given = do(**arguments) if inspect.iscoroutinefunction(do) else await in_thread(lambda: do(**arguments))
    return await await_foreign(given) if inspect.isawaitable(given) else given


#: The verdict and the reason.
Verdict = tuple[Outcome, str]
PASSED: Verdict = ("passed", "")
T = TypeVar("T")


def failed_for(why: str) -> Verdict:
    """Return the verdict by what is wrong; empty where nothing is."""
    return ("failed", why) if why else PASSED


class FunctionGuard(GuardInterface, Generic[T]):
    """A guard made of a function, which judges records of one kind: what the data of an event says."""

    blocks = False

    def __init__(self, kind: type[T], judge: Callable[[T], Verdict]) -> None:
        self._kind, self._judge = kind, judge

    def validate(self, artifact: Artifact, **_dependencies: Artifact) -> GuardResult:
        """Judge the data of an event."""
        verdict, why = self._judge(read_record(self._kind, json.loads(artifact.content)))
        return GuardResult(passed=verdict == "passed", feedback=why, fatal=verdict == "fatal")
