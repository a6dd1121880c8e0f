"""Tool agents: instructions and tools, with the effects of a table of your own.

Each effect reads the conversation from the run's ledger, does one thing, and answers with one event. The table decides everything else: which calls are
made, how many, and when a person has to agree. The model is that of the run (`dsa run --model`). `FunctionGuard` turns a function of an event's data into a
guard: equal events get equal verdicts, also in a replay.
"""

import inspect
import json
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

import attrs

from dsa.edge.event_loop import await_foreign, in_thread
from dsa.errors import ToolError
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
from dsa.text import plural
from machines.tool_use.chat_model import ModelOptions, model_of
from machines.tool_use.records import JsonObject, as_data, read_record
from machines.tool_use.tool_call import (
    LEFT_OUT,
    ModelAnswer,
    Tool,
    ToolCall,
    ToolResult,
    answer_of,
    fault_result,
    provider_name,
    read_call,
)
from machines.tool_use.transcript import (
    CHARS_PER_TOKEN,
    CallSummary,
    ChatMessage,
    Notice,
    Transcript,
    ask_within,
    call_fields,
    first_room,
    newest_that_fit,
    notices_in,
    result_contents,
    room_of,
    within,
)

_UNKNOWN = "the call failed, and its effects are unknown: check them before you repeat it"
_NOT_MADE = "the call was not made, and the work went on without it; repeat the call if you still need it"


#: The limit of a request in tokens, unless the run's configuration has `context_tokens`.
CONTEXT_TOKENS = 20_000
#: The number of conversations in memory; those of other runs are read from their ledgers again.
_MOST_CONVERSATIONS = 256


@attrs.frozen
class FunctionTool(Tool):
    """A tool that is a function of its named arguments. It returns JSON; a coroutine function is awaited, any other function runs in a thread.

    A ToolError of the function goes to the model; any other exception is a failure of the effect `run_tool`. The class raises TypeError for parameters that
    the function does not accept.
    """

    do: Callable[..., object] = attrs.field(kw_only=True)

    def __attrs_post_init__(self) -> None:
        """Raise TypeError unless the function accepts the parameters, and needs no others."""
        if self.schema is None:
            always = (each.name for each in self.parameters if each.required or each.default is not None)
            for names in (always, (each.name for each in self.parameters)):
                self.require_accepted(dict.fromkeys(names))

    def require_accepted(self, arguments: JsonObject) -> None:
        """Raise TypeError unless the function can be called with these arguments."""
        try:
            inspect.signature(self.do).bind(**arguments)
        except TypeError as error:
            raise TypeError(f"{self.name} cannot be called with {', '.join(arguments) or 'nothing'}: {error}") from None
        except ValueError:
            return  # a C function without a signature


@attrs.frozen
class AgentCall:
    """A call as the agent reads it: the data of `tool_call`, and of `unknown_call` with its `fault`. `rescues` names what the reader fixed."""

    call_id: str
    tool: str = ""
    arguments: JsonObject = attrs.field(factory=dict)
    rescues: tuple[str, ...] = ()
    fault: str = ""


@attrs.frozen
class AgentResult:
    """The result of the current call: the data of `tool_done` and `tool_failed`."""

    result: JsonObject


@attrs.frozen
class PersonMessage:
    """A person's message: the data of `message` and of `denied`."""

    text: str


#: The reasons of notices.
REASONS = {
    "not_made": "A call was not made: there is no such tool, or a person denied it.",
    LEFT_OUT: "Calls were left out: the table allows no more.",
    "answer_cut_off": "An answer broke off, was empty, or had a call in its text; the model was asked again.",
}


def _person_message(data: object) -> PersonMessage:
    """Return a person's message: a text, an object with one, or nothing. Raises ValueError for anything else."""
    text = data.get("text", "") if isinstance(data, dict) else "" if data is None else data
    if isinstance(text, str):
        return PersonMessage(as_unicode(text))
    raise ValueError('the data must be a text, or {"text": TEXT}')


def read_message(data: object) -> object:
    """Return a person's message as it is recorded. Raises ValueError unless it is a text that is not empty."""
    message = _person_message(data)
    if not message.text.strip():
        raise ValueError('a message must be a text, or {"text": TEXT}, and not empty')
    return as_data(message)


def read_denial(data: object) -> object:
    """Return a person's reason against a call as it is recorded; it may be empty. Raises ValueError for anything but a text."""
    return as_data(_person_message(data))


def read_result(data: object) -> object:
    """Return the result of a call as it is recorded. A person may write a text, an object, or an object with `result`."""
    value = data.get("result", data) if isinstance(data, dict) else data
    return as_data(AgentResult(as_unicode(_content(value))))


def _content(value: object) -> JsonObject:
    return value if isinstance(value, dict) else {"result": value}


#: Readers of the data of events from outside, by event.
_READERS = {
    "specification": read_message,
    "message": read_message,
    "denied": read_denial,
    "tool_done": read_result,
    "tool_failed": read_result,
}


class AgentConversation:
    """A conversation, read from a ledger. `take` reads entries; everything else is the result."""

    def __init__(self) -> None:
        self.count = 0
        self.first: Entry | None = None
        self.transcript = Transcript(_summary_of)
        self._last_event: EventEntry | None = None

    def take(self, entries: Iterable[Entry]) -> None:
        """Read further entries. Raises ValueError for one that is not valid; the next call reads it again."""
        for entry in entries:
            if isinstance(entry, EventEntry):
                self._last_event = entry
            elif isinstance(entry, RowEntry) and self._last_event is not None:
                self._take_event(self._last_event)  # a refused event changes nothing
            elif isinstance(entry, ResultEntry):
                self._take_notices(entry)
            self.first = self.first or entry
            self.count += 1

    def results_of_open_calls(self) -> list[ChatMessage]:
        """Return results for the calls without one: a provider refuses a request that has such calls."""
        open_calls = map(self.transcript.open_call, self.transcript.open_ids())
        return [
            ChatMessage("tool", fault_result(call.call_id, "not_made", _NOT_MADE).as_text(), answers=call.provider_id)
            for call in open_calls
            if call is not None
        ]

    def _take_event(self, entry: EventEntry) -> None:
        transcript, data = self.transcript, entry.data
        match entry.event:
            case "message" | "specification":
                self._close()
                transcript.begin()
                transcript.say(_person_message(data).text)
            case "asked" | "said" | "cut_off":
                self._close()
                transcript.take_answer(read_record(ModelAnswer, data))
            case "tool_call" | "unknown_call":
                call = read_record(AgentCall, data)
                transcript.take_next(call.tool, call.rescues)
            case "tool_done" | "tool_failed" if transcript.current is not None:
                result = read_record(AgentResult, read_result(data))  # a person may have written it
                transcript.result(ToolResult(transcript.current.call_id, result.result))
            case "run_tool.failed" if transcript.current is not None:
                transcript.result(fault_result(transcript.current.call_id, "interrupted", _UNKNOWN))

    def _take_notices(self, entry: ResultEntry) -> None:
        for notice in notices_in(entry, Notice, REASONS):
            for call_id, content in notice.results.items():
                self.transcript.result(ToolResult(call_id, content))
            if notice.drops:
                self.transcript.drop()
            if notice.note:
                self.transcript.say(notice.note)

    def _close(self) -> None:
        """Add a result for every open call: a provider refuses a conversation with open calls."""
        self.transcript.drop()
        for call_id in self.transcript.open_ids():
            self.transcript.result(fault_result(call_id, "not_made", _NOT_MADE))


def _summary_of(call: ToolCall) -> CallSummary:
    return CallSummary(**call_fields(call))


class ToolAgent:
    """An agent with instructions and tools. `effects` are for a module that `dsa run --with` names, or for `dsa.Bindings`.

    | effect         | events that answer it                        | what it does                                             |
    | -------------- | -------------------------------------------- | -------------------------------------------------------- |
    | `ask_model`    | `asked`, `said`, `cut_off`                   | sends the conversation with the tools                    |
    | `next_call`    | `tool_call`, `unknown_call`, `no_more_calls` | reads the next call that the model has asked for         |
    | `run_tool`     | `tool_done`, `tool_failed`                   | makes the call that was read last                        |
    | `ask_person`   |                                              | asks a person whether the call may happen                |
    | `refuse_call`  |                                              | tells the model why the call is not made                 |
    | `drop_calls`   |                                              | tells the model that no more calls are made              |
    | `note_cut_off` |                                              | tells the model that its answer cannot be used           |
    | `reply`        |                                              | gives the user the answer                                |

    The events `specification`, `message` and `denied` come from outside, each with a text. Raises ValueError for two tools of one name, and for a name that
    providers do not accept.
    """

    def __init__(self, instructions: str, tools: Iterable[FunctionTool]) -> None:
        self.instructions = as_unicode(instructions)
        self.tools: dict[str, FunctionTool] = {}
        for tool in tools:
            if tool.name in self.tools or provider_name(tool.name) != tool.name:
                is_twice = tool.name in self.tools
                why = "two tools have this name" if is_twice else "use 1 to 64 letters, digits, _ and - in its name"
                raise ValueError(f"the tool {tool.name!r} cannot be offered: {why}")
            self.tools[tool.name] = tool
        self._conversations: dict[str, AgentConversation] = {}
        self.effects: dict[str, Policy] = {
            "ask_model": answering("asked", "said", "cut_off", reads=_READERS)(self.ask_model),
            "next_call": answering("tool_call", "unknown_call", "no_more_calls", is_eager=True)(self.next_call),
            "run_tool": answering("tool_done", "tool_failed", reads=_READERS)(self.run_tool),
            "ask_person": self.ask_person,
            "refuse_call": self.refuse_call,
            "drop_calls": self.drop_calls,
            "note_cut_off": self.note_cut_off,
            "reply": self.reply,
        }

    def conversation(self, run: Run) -> AgentConversation:
        """Return the conversation of a run, up to the end of its ledger."""
        conversation = self._conversations.get(run.run_id)
        if (
            conversation is None
            or conversation.count > len(run.ledger)
            or (conversation.count and conversation.first != run.ledger[0])
        ):
            conversation = self._conversations[run.run_id] = AgentConversation()
            while len(self._conversations) > _MOST_CONVERSATIONS:
                del self._conversations[next(iter(self._conversations))]
        conversation.take(run.ledger.after(conversation.count))
        return conversation

    async def ask_model(self, action: Action, context: PolicyContext) -> list[Step]:
        """Send the conversation. Raises GenerationError when the model does not answer, ModelUnavailable for a model without tool calls."""
        conversation, config = self.conversation(context.run), context.config
        transcript = conversation.transcript
        tools = tuple(self.tools.values())
        name, seed = str(config.get("model") or ""), config.get("seed") or 0
        most_chars = int(config.get("context_tokens") or CONTEXT_TOKENS) * CHARS_PER_TOKEN
        head, open_calls = ChatMessage("system", self.instructions), conversation.results_of_open_calls()
        model = model_of(name, ModelOptions(seed))

        async def ask(messages: list[ChatMessage]) -> StreamResult:
            return await model.ask(messages, tools, number=transcript.answers, on_text=context.show)

        def messages_within(chars: int) -> list[ChatMessage]:
            newest = newest_that_fit(transcript.exchanges, chars)
            messages = [message for exchange in newest for message in exchange.messages]
            missing = len(transcript.exchanges) - len(newest)
            note = [
                ChatMessage("system", f"{head.content}\n[{missing} earlier messages of the user are left out here.]")
            ]
            return [*(note if missing else [head]), *within([*messages, *open_calls], chars)]

        room = first_room(transcript.room, most_chars, name)
        beside = sum(tool.size for tool in tools)
        try:
            result, used_chars = await ask_within(ask, messages_within, room, beside=beside, notice=context.show)
        finally:
            await model.aclose()
        kind, answer = answer_of(result, transcript.free_id, tools, misplaced_count=transcript.misplaced_count)
        answer = attrs.evolve(answer, room=room_of(used_chars, most_chars, name))
        return [event_step(action.policy, kind, data=as_data(answer))]

    async def next_call(self, action: Action, context: PolicyContext) -> list[Step]:
        """Read the first call of the queue."""
        queue = self.conversation(context.run).transcript.queue
        if not queue:
            return [event_step(action.policy, "no_more_calls")]
        call = read_call(queue[0], self.tools)
        event, tool = ("tool_call", call.tool.name) if call.tool else ("unknown_call", "")
        data = AgentCall(call.call_id, tool, call.arguments, call.rescues, call.fault)
        return [event_step(action.policy, event, data=as_data(data))]

    async def run_tool(self, action: Action, context: PolicyContext) -> list[Step]:
        """Make the call that was read last."""
        call = self._current(context)
        tool, arguments = self.tools[call.tool], copy_json(dict(call.arguments))
        try:
            tool.require_accepted(arguments)
        except TypeError as error:
            return _result_step(action, "tool_failed", fault_result(call.call_id, "failed", str(error)).content)
        try:
            content = _content(await _perform(tool.do, arguments))
        except ToolError as error:
            return _result_step(
                action, "tool_failed", fault_result(call.call_id, "failed", as_unicode(str(error))).content
            )
        try:
            canonical_json(content)
        except (TypeError, ValueError, RecursionError) as error:
            message = f"the call was made, but its result is not valid JSON: {error}"
            return _result_step(action, "tool_failed", fault_result(call.call_id, "no_json", message).content)
        return _result_step(action, "tool_done", as_unicode(content))

    def _current(self, context: PolicyContext) -> AgentCall:
        """Return the call that was read last. Raises LookupError when there is none."""
        return read_record(AgentCall, _last_call_event(context).data)

    async def ask_person(self, action: Action, context: PolicyContext) -> list[Step]:
        """Ask a person whether a call may happen, with its arguments and the reasons of the guards."""
        call, why = self._current(context), "; ".join(_reasons(context))
        arguments = json.dumps(call.arguments, ensure_ascii=False)
        return [text_step(action.policy, f"allow {call.tool} {arguments}?{f' ({why})' if why else ''}")]

    async def refuse_call(self, action: Action, context: PolicyContext) -> list[Step]:
        """Answer the current call, which is not made, with the reason: its fault, a person's reason, or a guard's."""
        call, trigger = self._current(context), action.payload
        denial = _person_message(trigger["data"]).text if trigger["event"] == "denied" else ""
        why = call.fault or denial or "; ".join(_reasons(context)) or "the call is not allowed"
        results = result_contents(fault_result(call.call_id, "not_made", as_unicode(why)))
        return [Notice("not_made", why, results=results).as_step(action.policy)]

    async def drop_calls(self, action: Action, context: PolicyContext) -> list[Step]:
        """Answer the waiting calls, which are not made."""
        open_ids = self.conversation(context.run).transcript.open_ids()
        results = result_contents(*(fault_result(name, LEFT_OUT, "no more calls are made here") for name in open_ids))
        return [
            Notice(LEFT_OUT, f"{plural(len(open_ids), 'call')} left out", results=results, drops=True).as_step(
                action.policy
            )
        ]

    async def note_cut_off(self, action: Action, _context: PolicyContext) -> list[Step]:
        """Send the model a note that its answer cannot be used."""
        answer = read_record(ModelAnswer, action.payload["data"])
        return [Notice("answer_cut_off", answer.why, answer.note).as_step(action.policy)]

    async def reply(self, action: Action, _context: PolicyContext) -> list[Step]:
        """Show the answer to the user."""
        return [text_step(action.policy, read_record(ModelAnswer, action.payload["data"]).content)]


def _result_step(action: Action, event: str, result: JsonObject) -> list[Step]:
    return [event_step(action.policy, event, data=as_data(AgentResult(result)))]


def _last_call_event(context: PolicyContext) -> EventEntry:
    """Return the last event that read a call. Raises LookupError when there is none."""
    for entry in reversed(context.run.ledger):
        if isinstance(entry, EventEntry) and entry.event in {"tool_call", "unknown_call"}:
            return entry
    raise LookupError("there is no call yet: the table has to ask for `next_call` first")


def _reasons(context: PolicyContext) -> list[str]:
    """Return the reasons of the guards that did not pass the current call. They judge its data again: equal data gets equal verdicts."""
    event = _last_call_event(context)
    call = Artifact(json.dumps(event.data))
    guards = [name for name, outcome in event.verdicts if outcome != "passed"]
    feedback = (verdict_of(name, context.guard(name), call, {}).feedback for name in guards)
    return [each for each in feedback if each]


async def _perform(do: Callable[..., object], arguments: JsonObject) -> object:
    """Call a tool. Raises what the tool raises; SystemExit and similar exceptions become errors of the tool."""
    result = do(**arguments) if inspect.iscoroutinefunction(do) else await in_thread(lambda: do(**arguments))
    return await await_foreign(result) if inspect.isawaitable(result) else result


#: The verdict and the reason.
Verdict = tuple[Outcome, str]
PASSED: Verdict = ("passed", "")
T = TypeVar("T")


def verdict_for(why: str) -> Verdict:
    """Return the verdict `failed` with a reason, or `passed` when the reason is empty."""
    return ("failed", why) if why else PASSED


class FunctionGuard(GuardInterface, Generic[T]):
    """A guard that calls a function with the record in an event's data."""

    blocks = False

    def __init__(self, kind: type[T], judge: Callable[[T], Verdict]) -> None:
        self._kind, self._judge = kind, judge

    def validate(self, artifact: Artifact, **_dependencies: Artifact) -> GuardResult:
        """Judge the data of an event."""
        verdict, why = self._judge(read_record(self._kind, json.loads(artifact.content)))
        return GuardResult(passed=verdict == "passed", feedback=why, fatal=verdict == "fatal")
