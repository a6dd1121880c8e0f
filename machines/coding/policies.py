"""Policies of the coding machine. Each reads the work from the ledger, does one thing, and answers with one event.

None decides what happens next: the guards judge whether a call may happen, and the table says what follows.
"""

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from operator import itemgetter
from typing import TypeVar

import attrs

from dsa.edge.event_loop import in_thread, run_function
from dsa.edge.sandbox.command_sandbox import StopSwitch
from dsa.generators.streams import StreamResult
from dsa.runs.child_runs import runs_for_parts
from dsa.runtime.generation import GenerationError
from dsa.runtime.policy.policies import Action, PolicyContext, Step, answering, event_step, text_step
from dsa.runtime.speech import as_unicode
from machines.coding.coding_notices import resources_and_work
from machines.coding.coding_resources import CodingResources, messages_for
from machines.coding.coding_tools import (
    COMPLETE,
    CallAction,
    Kind,
    WorkspaceTool,
    key_of,
    reminder_of,
    round_beside,
    tool_of,
)
from machines.coding.coding_work import Work, missing_evidence
from machines.coding.task_plan import (
    DECOMPOSE,
    INDEPENDENT,
    Apart,
    Approval,
    CodingCall,
    Decomposition,
    Goal,
    Look,
    action_of,
    read_plan,
    tasks_from,
)
from machines.coding.workspace_view import actions_beside, arguments_text
from machines.tool_use.records import JsonObject, as_data, one_line
from machines.tool_use.tool_call import ToolCall, ToolRequest, answer_of, read_call
from machines.tool_use.transcript import ChatMessage, ask_within, first_room, room_of

T = TypeVar("T")


def read_goal(data: object) -> object:
    """Return a goal as it is recorded: `text`, `tasks` of a template, `about` of a part. Raises ValueError for anything else."""
    value = data if isinstance(data, dict) else {"text": data}
    text, about, tasks = value.get("text"), value.get("about"), value.get("tasks")
    if not isinstance(text, str) or not text.strip():
        raise ValueError('a goal must be a text, or {"text": TEXT}, and not empty')
    goal = Goal(text, about if isinstance(about, str) else "", None if tasks is None else tasks_from(tasks))
    return as_unicode(as_data(goal))


def read_permission(data: object) -> object:
    """Return the data of `permitted`: `always`, or nothing. Raises ValueError for anything else."""
    value = {"always": True} if data == "always" else data or {}
    if not isinstance(value, dict) or set(value) - {"always"} or not isinstance(value.get("always", False), bool):
        raise ValueError('the data of `permitted` must be empty, or always: {"always": true}')
    return value


def read_denial(data: object) -> object:
    """Return the data of `denied`: a text as `why`, or nothing. Raises ValueError for anything else."""
    value = {"why": data} if isinstance(data, str) else data or {}
    if not isinstance(value, dict) or set(value) - {"why"} or not isinstance(value.get("why", ""), str):
        raise ValueError('the data of `denied` must be empty, or the reason: a text, or {"why": TEXT}')
    return as_unicode(value)


# --- the model ---


@answering(
    "decomposed",
    reads={"goal": read_goal, "planned": read_goal, "permitted": read_permission, "denied": read_denial},
)
async def decompose(action: Action, context: PolicyContext) -> list[Step]:
    """Ask the model for tasks, and check them. Raises GenerationError when there is no answer."""
    agent, work = resources_and_work(context)
    instructions = DECOMPOSE + INDEPENDENT if agent.parallel > 1 else DECOMPOSE
    parts = [work.goal, f"The workspace contains: {await in_thread(agent.toolbox.contents)}."]
    if work.plan_faults:
        parts.append(f"Your last answer could not be used: {'; '.join(work.plan_faults)}. Answer again.")
    messages = [ChatMessage("system", instructions), ChatMessage("user", "\n\n".join(parts))]
    result = _whole(await agent.model.ask(messages, (), number=work.transcript.answers, on_text=None))
    _, answer = answer_of(result, work.transcript.free_id)
    tasks, faults = read_plan(answer.content)
    plan = Decomposition(**attrs.asdict(answer, recurse=False), tasks=tasks, faults=tuple(faults))
    return [event_step(action.policy, "decomposed", data=as_unicode(as_data(plan)))]


@answering("asked", "said", "cut_off")
async def ask_model(action: Action, context: PolicyContext) -> list[Step]:
    """Send the state of the work and the last exchanges, and answer with the result. Raises GenerationError when there is none."""
    agent, work = resources_and_work(context)
    tools = tuple((await _tools(agent)).values())
    transcript = work.transcript

    async def ask(messages: list[ChatMessage]) -> StreamResult:
        return await agent.model.ask(messages, tools, number=transcript.answers, on_text=agent.listen)

    def messages_within(chars: int) -> list[ChatMessage]:
        return messages_for(work, context_chars=chars, test_first=agent.is_test_first, files=agent.files_before)

    room = first_room(transcript.room, agent.context_chars, agent.model_name)
    beside = sum(tool.size for tool in tools)
    result, used_chars = await ask_within(ask, messages_within, room, beside=beside, notice=agent.tell)
    kind, answer = answer_of(_whole(result), transcript.free_id, tools, misplaced_count=transcript.misplaced_count)
    answer = attrs.evolve(answer, room=room_of(used_chars, agent.context_chars, agent.model_name))
    return [event_step(action.policy, kind, data=as_data(answer))]


async def _tools(agent: CodingResources) -> Mapping[str, WorkspaceTool]:
    """Return the tools; MCP servers list theirs once."""
    return await run_function(lambda: agent.toolbox.tools, blocks=not agent.toolbox.is_listed)


def _whole(result: StreamResult) -> StreamResult:
    """Return an answer. Raises GenerationError when the connection broke off at every try, which is not the model's fault."""
    if result.error is not None and result.error.code in _CONNECTION_ERRORS:
        raise GenerationError(str(result.error), "interrupted")
    return result


# --- calls ---


@answering("tool_call", "completion", "giving_up", "unknown_call", "no_more_calls", is_eager=True)
async def next_call(action: Action, context: PolicyContext) -> list[Step]:
    """Read the first call of the queue, with its effects and its loop judgement."""
    agent, work = resources_and_work(context)
    queue = work.transcript.queue
    if not queue:
        return [event_step(action.policy, "no_more_calls")]
    tools = await _tools(agent)
    try:
        event, call = await _read_queued(queue[0], agent, work, tools, await _others(agent, work, context.run.run_id))
    except (OSError, ValueError, OverflowError, TypeError) as error:  # no call of a model may end the run
        fault = one_line(f"the call of {queue[0].name} cannot be read: {error}", _LONGEST_FAULT)
        event, call = "unknown_call", as_unicode(as_data(CodingCall(call_id=queue[0].id, fault=fault)))
    return [event_step(action.policy, event, data=call)]


async def _read_queued(
    queued_call: ToolCall,
    agent: CodingResources,
    work: Work,
    tools: Mapping[str, WorkspaceTool],
    others: Sequence[CallAction],
) -> tuple[str, dict[str, object]]:
    """Return the event of a queued call, and its data with the effects that the call would have. Raises what the look raises."""
    call = read_call(queued_call, tools)
    if call.tool is None:
        return "unknown_call", as_data(CodingCall(call_id=call.call_id, rescues=call.rescues, fault=call.fault))
    if call.tool.name == COMPLETE:
        return "completion" if call.arguments["success"] else "giving_up", as_data(_completion(call, work))
    look = await in_thread(partial(agent.toolbox.look_at, call))
    key = key_of(call.tool.name, key_arguments(call, look, agent.toolbox.workspace.known_as))
    is_polling = agent.polls(look.argv)
    tool = tool_of(call.tool.name, look.argv)
    action = CallAction(key, tool, call.tool.kind, answer=work.transcript.answers, polled=is_polling)
    judgement, is_certain = round_beside(action, tuple(work.past), others, work.unread_actions)
    approval = agent.approval(call.tool.needs, look.asks, work.permissions)
    if approval.leave == "ask" and look.cannot is not None:
        approval = Approval("yes", "the call cannot work, and changes nothing")
    read_as = CodingCall(
        **attrs.asdict(look, recurse=False),
        call_id=call.call_id,
        tool=call.tool.name,
        rescues=call.rescues,
        kind=call.tool.kind,
        arguments=call.arguments,
        key=key,
        round=judgement,
        approval=approval,
        polled=is_polling,
        alone=_why_alone(call.tool.kind, is_certain=is_certain),
        files=tuple(work.changes) if call.tool.name == "git_commit" else (),
    )
    return "tool_call", as_data(read_as)


async def _others(agent: CodingResources, work: Work, run_id: str) -> tuple[CallAction, ...]:
    """Return the actions of parts: of this run's earlier ones, and, in a part, of those beside it."""
    runs, whole = runs_for_parts(), agent.settings.part_of
    if runs is None or not whole:
        return (*work.past_apart, *agent.others())
    return (*work.past_apart, *await in_thread(partial(actions_beside, runs, whole, run_id)))


def _why_alone(kind: Kind, *, is_certain: bool) -> str:
    """Return why a call does not run beside calls that look, or an empty text."""
    if kind != "looking":
        return "it does more than look"
    return "" if is_certain else "whether it repeats a call depends on results that are to come"


def key_arguments(call: ToolRequest[WorkspaceTool], look: Look, normal_path: Callable[[str], str]) -> JsonObject:
    """Return the normalised arguments of a call, for its key: one spelling of command and paths (`normal_path`), one order of files.

    The arguments of an MCP tool stay unchanged, because their meaning is unknown.
    """
    if call.tool is not None and call.tool.schema is not None:
        return call.arguments
    arguments = {name: value for name, value in call.arguments.items() if name not in _NO_DIFFERENCE}
    if look.argv:
        arguments["cmd"] = list(look.argv)
    files = arguments.get("files")
    if isinstance(files, list):
        by_name = [{**file, "path": normal_path(file["path"])} for file in files]
        arguments["files"] = sorted(by_name, key=itemgetter("path", "content"))
    return arguments | {name: normal_path(str(arguments[name])) for name in _PATHS if arguments.get(name)}


_LONGEST_FAULT = 300
#: Errors of an answer that come from the connection or the provider.
_CONNECTION_ERRORS = frozenset({"interrupted", "provider_error"})
#: Arguments that do not make a call different.
_NO_DIFFERENCE = frozenset({"timeout_sec", "create_dirs"})
_PATHS = ("path", "cwd", "tests_path")


def _completion(call: ToolRequest[WorkspaceTool], work: Work) -> CodingCall:
    """Return the call that ends the active subtask, with the number of its tool results and the missing evidence."""
    subtask = work.active[1] if work.active else None
    return CodingCall(
        call_id=call.call_id,
        tool=COMPLETE,
        rescues=call.rescues,
        arguments=call.arguments,
        reason=str(call.arguments.get("reason", "")),
        subtask="" if subtask is None else subtask.description,
        lacks="" if subtask is None else missing_evidence(subtask.description, work.evidence),
        results=0 if subtask is None else subtask.done,
    )


@answering("tool_done", "tool_failed")
async def run_tool(action: Action, context: PolicyContext) -> list[Step]:
    """Make the call that the effect is for. A fault in it is a result for the model; only our own faults raise.

    A command that was running when the run was interrupted does not run again: its effects are unknown, and the result says so.
    """
    agent, work = resources_and_work(context)
    effect, _, _ = context.key.rpartition("/")  # the rest is the number of the try
    call = work.calls_by_key[effect].about
    assert call is not None, "the table runs a tool only for a call"
    if call.kind == "running" and effect in work.doubts:
        outcome = await _stoppable(lambda stop: agent.toolbox.interrupted_call(call, effect, stop))
    else:
        agent.toolbox.model, agent.toolbox.answer_count = agent.model, work.transcript.answers
        was_asked = action.payload["event"] == "permitted"
        outcome = await _stoppable(lambda stop: agent.toolbox.do(call, key=effect, stop=stop, was_asked=was_asked))
    result = outcome.result
    others = await _others(agent, work, context.run.run_id)
    reminder = reminder_of(action_of(call, result), tuple(work.past), others)
    if reminder:
        result = attrs.evolve(result, seen=result.result, result={**result.result, "note": reminder})
    event = "tool_done" if outcome.is_done else "tool_failed"
    return [event_step(action.policy, event, data=as_unicode(as_data(result)))]


#: The time for a stopped call to clean up, in seconds: protected files that it left, and the mark after it.
_ORDER_S = 10.0


async def _stoppable(do: Callable[[StopSwitch], T]) -> T:
    """Run a function in a thread. Cancelling the caller sets its stop switch, and waits a moment for its end."""
    loop = asyncio.get_running_loop()
    stop, lock, end = StopSwitch(), threading.Lock(), loop.create_future()
    over = threading.Event()

    def run_and_signal() -> T:
        try:
            return do(stop)
        finally:
            with lock:
                over.set()
                stop.close()
            with suppress(RuntimeError):  # the loop is closed, so nobody waits
                loop.call_soon_threadsafe(end.set_result, None)

    try:
        return await in_thread(run_and_signal)
    except asyncio.CancelledError:
        with lock:
            if not over.is_set():
                stop.set()
        await _wait_for(end, loop.time() + _ORDER_S)
        raise


async def _wait_for(end: "asyncio.Future[None]", until_s: float) -> None:
    """Wait for a future, and ignore further cancellations: a closing loop cancels all tasks again."""
    loop = asyncio.get_running_loop()
    while not end.done() and loop.time() < until_s:
        with suppress(asyncio.CancelledError):
            await asyncio.wait([end], timeout=until_s - loop.time())


# --- around the calls ---


@answering("probed")
async def probe(action: Action, context: PolicyContext) -> list[Step]:
    """Answer with facts about written files and commands."""
    agent, work = resources_and_work(context)
    look = partial(agent.toolbox.probe, tuple(work.files_written), tuple(work.commands), tuple(work.errors))
    return [event_step(action.policy, "probed", data=as_data(await in_thread(look)))]


@answering("next_subtask", "apart", "none_left", is_eager=True)
async def advance(action: Action, context: PolicyContext) -> list[Step]:
    """Answer with the next subtask, or several that can run at the same time, or none."""
    agent, work = resources_and_work(context)
    places = work.independent_next() if agent.parallel > 1 else []
    if len(places) > 1:
        return [event_step(action.policy, "apart", data=as_data(Apart(tuple(places))))]
    return [event_step(action.policy, "none_left" if work.next_waiting is None else "next_subtask")]


async def ask_approval(action: Action, context: PolicyContext) -> list[Step]:
    """Ask for permission, with the changes that the call would make."""
    agent, work = resources_and_work(context)
    call = work.call
    assert call is not None, "permission is needed for a call"
    about = {"asks": call.asks, "diff": await in_thread(partial(agent.toolbox.preview, call))}
    return [text_step(action.policy, f"allow {call.tool} {arguments_text(call)}?", about=about)]
