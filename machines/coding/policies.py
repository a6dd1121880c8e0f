"""What the effects of the coding machine do. Each reads the work from the ledger, does one thing, and answers with one event.

None of them decides what happens next: whether a call may happen the guards say, and where it leads the table.
"""

import asyncio
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from operator import itemgetter
from typing import TypeVar

import attrs

from dsa.edge.event_loop import in_thread, run_function
from dsa.edge.sandbox.command_sandbox import StopSwitch
from dsa.errors import GenerationError
from dsa.generators.streams import StreamResult
from dsa.runtime.policy.policies import Action, PolicyContext, Step, answering, event_step, text_step
from dsa.runtime.speech import as_unicode
from machines.coding.coding_notices import read
from machines.coding.coding_resources import CodingResources, messages_for
from machines.coding.coding_tools import COMPLETE, Did, WorkspaceTool, key_of, reminder_of, round_of, tool_of
from machines.coding.coding_work import Work, lacking
from machines.coding.task_plan import (
    DECOMPOSE,
    INDEPENDENT,
    Apart,
    Approval,
    CodingCall,
    Decomposition,
    Goal,
    Look,
    did_of,
    read_plan,
    tasks_from,
)
from machines.coding.workspace_view import arguments_shown
from machines.tool_use.records import JsonObject, as_data, short
from machines.tool_use.tool_call import ToolCall, ToolRequest, answer_of, read_call
from machines.tool_use.transcript import ChatMessage, asked_within, room_known, room_taken

T = TypeVar("T")


def goal_brought(data: object) -> object:
    """Return a goal as it is recorded: `text`, `tasks` where a template has given them, `about` of a part. ValueError for anything else."""
    given = data if isinstance(data, dict) else {"text": data}
    text, about, tasks = given.get("text"), given.get("about"), given.get("tasks")
    if not isinstance(text, str) or not text.strip():
        raise ValueError('a goal is a text, or {"text": TEXT}')
    goal = Goal(text, about if isinstance(about, str) else "", None if tasks is None else tasks_from(tasks))
    return as_unicode(as_data(goal))


def leave_brought(data: object) -> object:
    """Return what is said with `permitted`: `always`, or nothing. ValueError for anything else."""
    given = {"always": True} if data == "always" else data or {}
    if not isinstance(given, dict) or set(given) - {"always"} or not isinstance(given.get("always", False), bool):
        raise ValueError('with `permitted` goes nothing, or always: {"always": true}')
    return given


def denial_brought(data: object) -> object:
    """Return why a call is not to happen: a text, `why`, or nothing. ValueError for anything else."""
    given = {"why": data} if isinstance(data, str) else data or {}
    if not isinstance(given, dict) or set(given) - {"why"} or not isinstance(given.get("why", ""), str):
        raise ValueError('with `denied` goes nothing, or why: a text, or {"why": TEXT}')
    return as_unicode(given)


# -- the model ------------------------------------------------------------------------------------------------------------


@answering(
    "decomposed",
    reads={"goal": goal_brought, "planned": goal_brought, "permitted": leave_brought, "denied": denial_brought},
)
async def decompose(action: Action, context: PolicyContext) -> list[Step]:
    """Ask the model for tasks; what it says is checked. Raises GenerationError when nothing came."""
    agent, work = read(context)
    asked = DECOMPOSE + INDEPENDENT if agent.parallel > 1 else DECOMPOSE
    told = [work.goal, f"The workspace holds: {await in_thread(agent.toolbox.contents)}."]
    if work.plan_faults:
        told.append(f"Your last answer could not be used: {'; '.join(work.plan_faults)}. Answer again.")
    messages = [ChatMessage("system", asked), ChatMessage("user", "\n\n".join(told))]
    result = _whole(await agent.model.ask(messages, (), number=work.transcript.answers, on_text=None))
    _, answer = answer_of(result, work.transcript.free_id)
    tasks, faults = read_plan(answer.content)
    plan = Decomposition(**attrs.asdict(answer, recurse=False), tasks=tasks, faults=tuple(faults))
    return [event_step(action.policy, "decomposed", data=as_unicode(as_data(plan)))]


@answering("asked", "said", "cut_off")
async def ask_model(action: Action, context: PolicyContext) -> list[Step]:
    """Send where the work stands and the last exchanges, and answer with what came. Raises GenerationError when nothing did."""
    agent, work = read(context)
    tools = tuple((await _tools(agent)).values())
    transcript = work.transcript

    async def ask(messages: list[ChatMessage]) -> StreamResult:
        return await agent.model.ask(messages, tools, number=transcript.answers, on_text=agent.listen)

    def messages_within(chars: int) -> list[ChatMessage]:
        return messages_for(work, context_chars=chars, test_first=agent.is_test_first, files=agent.files_before)

    room = room_known(transcript.room, agent.context_chars, agent.asked_model)
    beside = sum(tool.size for tool in tools)
    result, took = await asked_within(ask, messages_within, room, beside=beside, notice=agent.tell)
    kind, answer = answer_of(_whole(result), transcript.free_id, tools, misplaced=transcript.misplaced)
    answer = attrs.evolve(answer, room=room_taken(took, agent.context_chars, agent.asked_model))
    return [event_step(action.policy, kind, data=as_data(answer))]


async def _tools(agent: CodingResources) -> Mapping[str, WorkspaceTool]:
    """Return the tools; servers of others are asked for theirs, once."""
    return await run_function(lambda: agent.toolbox.tools, blocks=not agent.toolbox.is_listed)


def _whole(result: StreamResult) -> StreamResult:
    """Return an answer, unless its connection broke off whenever it was asked for: that is no fault of the model's. Raises GenerationError."""
    if result.error is not None and result.error.code in _BROKEN:
        raise GenerationError(str(result.error), "interrupted")
    return result


# -- calls ----------------------------------------------------------------------------------------------------------------


@answering("tool_call", "completion", "giving_up", "unknown_call", "no_more_calls", is_eager=True)
async def next_call(action: Action, context: PolicyContext) -> list[Step]:
    """Take the first queued call and say what it means, where it leads and whether it goes round."""
    agent, work = read(context)
    queue = work.transcript.queue
    if not queue:
        return [event_step(action.policy, "no_more_calls")]
    tools = await _tools(agent)
    try:
        event, call = await _taken(queue[0], agent, work, tools)
    except (OSError, ValueError, OverflowError, TypeError) as error:  # whatever a model asks for is no end of the run
        fault = short(f"the call of {queue[0].name} cannot be read: {error}", _LONGEST_FAULT)
        event, call = "unknown_call", as_unicode(as_data(CodingCall(call_id=queue[0].id, fault=fault)))
    return [event_step(action.policy, event, data=call)]


async def _taken(
    asked: ToolCall, agent: CodingResources, work: Work, tools: Mapping[str, WorkspaceTool]
) -> tuple[str, dict[str, object]]:
    """Read a queued call, and look at what it would do; give its event with the data. Raises what that raises."""
    call = read_call(asked, tools)
    if call.tool is None:
        return "unknown_call", as_data(CodingCall(call_id=call.call_id, rescues=call.rescues, fault=call.fault))
    if call.tool.name == COMPLETE:
        return "completion" if call.arguments["success"] else "giving_up", as_data(_closing(call, work))
    look = await in_thread(partial(agent.toolbox.looked_at, call))
    key = key_of(call.tool.name, known_by(call, look, agent.toolbox.workspace.known_as))
    polled = agent.polls(look.argv)
    tool = tool_of(call.tool.name, look.argv)
    did = Did(key, tool, call.tool.kind, answer=work.transcript.answers, polled=polled)
    approval = agent.approval(call.tool.needs, look.asks, work.allowed)
    if approval.leave == "ask" and look.cannot is not None:
        approval = Approval("yes", "it cannot be done as asked, and changes nothing")
    read_as = CodingCall(
        **attrs.asdict(look, recurse=False),
        call_id=call.call_id,
        tool=call.tool.name,
        rescues=call.rescues,
        kind=call.tool.kind,
        arguments=call.arguments,
        key=key,
        round=round_of(did, tuple(work.past), (*work.past_apart, *agent.others())),
        approval=approval,
        polled=polled,
        files=tuple(work.changes) if call.tool.name == "git_commit" else (),
    )
    return "tool_call", as_data(read_as)


def known_by(call: ToolRequest[WorkspaceTool], look: Look, known_as: Callable[[str], str]) -> JsonObject:
    """Return the arguments that a call is known by: however its command and its paths were written (`known_as`), in whatever order its files.

    What the arguments of a server's tool mean nobody here knows.
    """
    if call.tool is not None and call.tool.schema is not None:
        return call.arguments
    known = {name: value for name, value in call.arguments.items() if name not in _NO_DIFFERENCE}
    if look.argv:
        known["cmd"] = list(look.argv)
    files = known.get("files")
    if isinstance(files, list):
        by_name = [{**file, "path": known_as(file["path"])} for file in files]
        known["files"] = sorted(by_name, key=itemgetter("path", "content"))
    return known | {name: known_as(str(known[name])) for name in _PATHS if known.get(name)}


_LONGEST_FAULT = 300
#: Errors of an answer that are its connection's, or its provider's.
_BROKEN = frozenset({"interrupted", "provider_error"})
#: Another time limit makes no other call, nor do folders that would be made.
_NO_DIFFERENCE = frozenset({"timeout_sec", "create_dirs"})
_PATHS = ("path", "cwd", "tests_path")


def _closing(call: ToolRequest[WorkspaceTool], work: Work) -> CodingCall:
    """Return that the model calls the active subtask over, how many results of tools it has, and what is lacking to show that it is completed."""
    subtask = work.active[1] if work.active else None
    return CodingCall(
        call_id=call.call_id,
        tool=COMPLETE,
        rescues=call.rescues,
        arguments=call.arguments,
        reason=str(call.arguments.get("reason", "")),
        subtask="" if subtask is None else subtask.description,
        lacks="" if subtask is None else lacking(subtask.description, work.given),
        results=0 if subtask is None else subtask.done,
    )


@answering("tool_done", "tool_failed")
async def run_tool(action: Action, context: PolicyContext) -> list[Step]:
    """Do the current call. What goes wrong in it is an answer; only a fault of ours raises.

    A command that was under way when the run was cut off is not run again: nobody knows what came of it, and the model is told so.
    """
    agent, work = read(context)
    call = work.call
    assert call is not None, "the table runs a tool for a call alone"
    effect, _, _ = context.key.rpartition("/")  # behind it is the number of the try
    if call.kind == "running" and effect in work.doubts:
        done = await _stoppable(lambda stop: agent.toolbox.cut_off(call, effect, stop))
    else:
        agent.toolbox.model, agent.toolbox.asked = agent.model, work.transcript.answers
        was_asked = action.payload["event"] == "permitted"
        done = await _stoppable(lambda stop: agent.toolbox.do(call, key=effect, stop=stop, was_asked=was_asked))
    came = done.came
    told = reminder_of(did_of(call, came), tuple(work.past), (*work.past_apart, *agent.others()))
    if told:
        came = attrs.evolve(came, seen=came.result, result={**came.result, "note": told})
    event = "tool_done" if done.is_done else "tool_failed"
    return [event_step(action.policy, event, data=as_unicode(as_data(came)))]


#: How long a call that is stopped may take to put things in order, in seconds: what it left that is protected, the mark behind it.
_ORDER_S = 10.0


async def _stoppable(do: Callable[[StopSwitch], T]) -> T:
    """Do something in a thread; when nobody waits for it any more it is told to stop, and its end is awaited for a moment."""
    loop = asyncio.get_running_loop()
    stop, lock, ended = StopSwitch(), threading.Lock(), loop.create_future()
    over = threading.Event()

    def done() -> T:
        try:
            return do(stop)
        finally:
            with lock:
                over.set()
                stop.close()
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(ended.set_result, None)

    try:
        return await in_thread(done)
    except asyncio.CancelledError:
        with lock:
            if not over.is_set():
                stop.set()
        await _in_order(ended, loop.time() + _ORDER_S)
        raise


async def _in_order(ended: "asyncio.Future[None]", until_s: float) -> None:
    """Wait for an end, also when whoever has cancelled us does so again: a loop that closes cancels all that still waits."""
    loop = asyncio.get_running_loop()
    while not ended.done() and loop.time() < until_s:
        with suppress(asyncio.CancelledError):
            await asyncio.wait([ended], timeout=until_s - loop.time())


# -- around them ------------------------------------------------------------------------------------------------------------


@answering("probed")
async def probe(action: Action, context: PolicyContext) -> list[Step]:
    """Look at what was written and run."""
    agent, work = read(context)
    looked = partial(agent.toolbox.probe, tuple(work.files_written), tuple(work.commands), tuple(work.errors))
    return [event_step(action.policy, "probed", data=as_data(await in_thread(looked)))]


@answering("next_subtask", "apart", "none_left", is_eager=True)
async def advance(action: Action, context: PolicyContext) -> list[Step]:
    """Return whether there is another subtask, or several that can be worked at together."""
    agent, work = read(context)
    places = work.independent_next() if agent.parallel > 1 else []
    if len(places) > 1:
        return [event_step(action.policy, "apart", data=as_data(Apart(tuple(places))))]
    return [event_step(action.policy, "none_left" if work.next_waiting is None else "next_subtask")]


async def ask_approval(action: Action, context: PolicyContext) -> list[Step]:
    """Return what leave is asked for, with what would change."""
    agent, work = read(context)
    call = work.call
    assert call is not None, "leave is asked for a call"
    about = {"asks": call.asks, "diff": await in_thread(partial(agent.toolbox.shown, call))}
    return [text_step(action.policy, f"may {call.tool} {arguments_shown(call)} happen?", about=about)]
