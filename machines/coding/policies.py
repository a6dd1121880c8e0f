"""What the effects of the coding machine do. Each reads the work from the ledger, does one thing, and answers with one event.

None of them decides what happens next: whether a call may happen the guards say, and where it leads the table.
"""

import asyncio
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from operator import itemgetter
from typing import Any, TypeVar

import attrs

from dsa.edge.sandbox.commands import Stop
from dsa.edge.threads import in_thread, run_function
from dsa.errors import GenerationError
from dsa.generators.streams import StreamResult
from dsa.runtime.policies import Action, PolicyContext, Step, answering, event_step, text_step
from dsa.runtime.speech import as_unicode
from machines.coding.calls import COMPLETE, Call, Tool, meant
from machines.coding.evidence import lacking
from machines.coding.loops import Did, did_of, key_of, reminder_of, round_of, tool_of
from machines.coding.messages import messages_for
from machines.coding.plan import DECOMPOSE, INDEPENDENT, read_plan, tasks_from
from machines.coding.resources import Resources
from machines.coding.shown import arguments_shown
from machines.coding.telling import read
from machines.coding.work import Work
from machines.talking.answers import answer_told
from machines.talking.context import Message, Room, asked_within, size_of
from machines.talking.texts import short

T = TypeVar("T")


def goal_brought(data: object) -> dict[str, Any]:
    """Give a goal as it is recorded: `text`, `tasks` where a template has given them, `about` of a part. ValueError for anything else."""
    given = data if isinstance(data, dict) else {"text": data}
    text, about, tasks = given.get("text"), given.get("about"), given.get("tasks")
    if not isinstance(text, str) or not text.strip():
        raise ValueError('a goal is a text, or {"text": TEXT}')
    more: dict[str, Any] = {"about": about} if isinstance(about, str) else {}
    if tasks is not None:
        more["tasks"] = [task.to_json() for task in tasks_from(tasks)]
    return {"text": as_unicode(text), **as_unicode(more)}


def leave_brought(data: object) -> dict[str, Any]:
    """Give what is said with `permitted`: `always`, or nothing. ValueError for anything else."""
    given = {"always": True} if data == "always" else data or {}
    if not isinstance(given, dict) or set(given) - {"always"} or not isinstance(given.get("always", False), bool):
        raise ValueError('with `permitted` goes nothing, or always: {"always": true}')
    return given


def denial_brought(data: object) -> dict[str, Any]:
    """Give why a call is not to happen: a text, `why`, or nothing. ValueError for anything else."""
    given = {"why": data} if isinstance(data, str) else data or {}
    if not isinstance(given, dict) or set(given) - {"why"} or not isinstance(given.get("why", ""), str):
        raise ValueError('with `denied` goes nothing, or why: a text, or {"why": TEXT}')
    return dict(as_unicode(given))


# -- the model ------------------------------------------------------------------------------------------------------------


@answering(
    "decomposed",
    reads={"goal": goal_brought, "planned": goal_brought, "permitted": leave_brought, "denied": denial_brought},
)
async def decompose(action: Action, context: PolicyContext) -> list[Step]:
    """Ask the model for tasks; what it says is checked. Raises GenerationError when nothing came."""
    agent, work, _ = read(action, context)
    asked = DECOMPOSE + INDEPENDENT if agent.parallel > 1 else DECOMPOSE
    told = [work.goal, f"The workspace holds: {await in_thread(agent.toolbox.contents)}."]
    if work.plan_faults:
        told.append(f"Your last answer could not be used: {'; '.join(work.plan_faults)}. Answer again.")
    messages = [{"role": "system", "content": asked}, {"role": "user", "content": "\n\n".join(told)}]
    result = _whole(await agent.model.ask(messages, (), number=work.asked_of_model, on_text=None))
    _, said = answer_told(result, work.free_id)
    tasks, faults = read_plan(said["content"])
    data = {"tasks": [task.to_json() for task in tasks], "faults": faults, **said}
    return [event_step(action.policy, "decomposed", data=as_unicode(data))]


@answering("asked", "said", "cut_off")
async def ask_model(action: Action, context: PolicyContext) -> list[Step]:
    """Send where the work stands and the last exchanges, and answer with what came. Raises GenerationError when nothing did."""
    agent, work, _ = read(action, context)
    tools = [tool.described() for tool in (await _tools(agent)).values()]

    async def ask(messages: list[Message]) -> StreamResult:
        return await agent.model.ask(messages, tools, number=work.asked_of_model, on_text=agent.listen)

    def messages_within(chars: int) -> list[Message]:
        return messages_for(work, context_chars=chars, test_first=agent.is_test_first, files=agent.files_before)

    room = Room.known(work.room, agent.context_chars, agent.asked_model)
    result, took = await asked_within(ask, messages_within, room, beside=size_of(tools), notice=agent.tell)
    result = _whole(result)
    kind, data = answer_told(result, work.free_id, tools, misplaced=work.misplaced)
    more = Room.record(took, agent.context_chars, agent.asked_model)
    return [event_step(action.policy, kind, data={**data, **more})]


async def _tools(agent: Resources) -> Mapping[str, Tool]:
    """Give the tools; servers of others are asked for theirs, once."""
    return await run_function(lambda: agent.toolbox.tools, blocks=not agent.toolbox.is_listed)


def _whole(result: StreamResult) -> StreamResult:
    """Give an answer, unless its connection broke off whenever it was asked for: that is no fault of the model's. Raises GenerationError."""
    if result.error is not None and result.error.code in _BROKEN:
        raise GenerationError(str(result.error), "interrupted")
    return result


# -- calls ----------------------------------------------------------------------------------------------------------------


@answering("tool_call", "completion", "giving_up", "unknown_call", "no_more_calls", is_eager=True)
async def next_call(action: Action, context: PolicyContext) -> list[Step]:
    """Take the first queued call and say what it means, where it leads and whether it goes round."""
    agent, work, _ = read(action, context)
    if not work.queue:
        return [event_step(action.policy, "no_more_calls")]
    tools = await _tools(agent)
    try:
        return [await _taken(action, agent, work, tools)]
    except (OSError, ValueError, OverflowError, TypeError) as error:  # whatever a model asks for is no end of the run
        asked = work.queue[0]
        data = {"call_id": asked["id"], "tool": "", "rescues": []}
        fault = short(f"the call of {asked['name']} cannot be read: {error}", _LONGEST_FAULT)
        return [event_step(action.policy, "unknown_call", data=as_unicode({**data, "fault": fault}))]


async def _taken(action: Action, agent: Resources, work: Work, tools: Mapping[str, Tool]) -> Step:
    """Read the first queued call, and look at what it would do. Raises what that raises."""
    call = meant(work.queue[0], tools)
    name = call.tool.name if call.tool else ""
    about: dict[str, Any] = {"call_id": call.call_id, "tool": name, "rescues": list(call.rescues)}
    if call.tool is None:
        return event_step(action.policy, "unknown_call", data={**about, "fault": call.fault})
    if call.tool.name == COMPLETE:
        return _closing(action, work, call, about)
    found = await in_thread(partial(agent.toolbox.looked_at, call))
    key = key_of(call.tool.name, known_by(call, found, agent.toolbox.workspace.known_as))
    polled = agent.polls(found.get("argv", ()))
    did = Did(key, tool_of({**about, **found}), call.tool.kind, answer=work.asked_of_model, polled=polled)
    seen = round_of(did, tuple(work.past), (*work.past_apart, *agent.others()))
    approval = agent.approval(call.tool.needs, found["asks"], work.allowed)
    if approval["is"] == "ask" and "cannot" in found:
        approval = {"is": "yes", "why": "it cannot be done as asked, and changes nothing"}
    data = {
        **about, **found, "key": key, "kind": call.tool.kind, "arguments": dict(call.arguments), "round": attrs.asdict(seen), "approval": approval,
    }  # fmt: skip
    if polled:
        data["polled"] = True
    if call.tool.name == "git_commit":
        data["files"] = list(work.changes)
    return event_step(action.policy, "tool_call", data=data)


def known_by(call: Call, found: Mapping[str, Any], known_as: Callable[[str], str]) -> dict[str, Any]:
    """Give the arguments that a call is known by: however its command and its paths were written (`known_as`), in whatever order its files.

    What the arguments of a server's tool mean nobody here knows.
    """
    if call.tool is not None and call.tool.schema is not None:
        return dict(call.arguments)
    known = {name: value for name, value in call.arguments.items() if name not in _NO_DIFFERENCE}
    if "argv" in found:
        known["cmd"] = found["argv"]
    if "files" in known:
        files = [{**file, "path": known_as(file["path"])} for file in known["files"]]
        known["files"] = sorted(files, key=itemgetter("path", "content"))
    return known | {name: known_as(known[name]) for name in _PATHS if known.get(name)}


_LONGEST_FAULT = 300
#: Errors of an answer that are its connection's, or its provider's.
_BROKEN = frozenset({"interrupted", "provider_error"})
#: Another time limit makes no other call, nor do folders that would be made.
_NO_DIFFERENCE = frozenset({"timeout_sec", "create_dirs"})
_PATHS = ("path", "cwd", "tests_path")


def _closing(action: Action, work: Work, call: Call, about: Mapping[str, Any]) -> Step:
    """Say that the model calls the active subtask over, how many results of tools it has, and what is lacking to show that it is completed."""
    subtask = work.active[1] if work.active else None
    results = subtask.done if subtask else 0
    event = "completion" if call.arguments["success"] else "giving_up"
    said = {"arguments": dict(call.arguments), "reason": call.arguments.get("reason", "")}
    if subtask is not None:
        said |= {"subtask": subtask.description, "lacks": lacking(subtask.description, work.given)}
    return event_step(action.policy, event, data={**about, **said, "results": results})


@answering("tool_done", "tool_failed")
async def run_tool(action: Action, context: PolicyContext) -> list[Step]:
    """Do the current call. What goes wrong in it is an answer; only a fault of ours raises.

    A command that was under way when the run was cut off is not run again: nobody knows what came of it, and the model is told so.
    """
    agent, work, _ = read(action, context)
    assert work.current is not None, "the table runs a tool for a call alone"
    call = work.current.about
    effect, _, _ = context.key.rpartition("/")  # behind it is the number of the try
    if call["kind"] == "running" and effect in work.doubts:
        done = await _stoppable(lambda stop: agent.toolbox.cut_off(call, effect, stop))
    else:
        agent.toolbox.model, agent.toolbox.asked = agent.model, work.asked_of_model
        was_asked = action.payload["event"] == "permitted"
        done = await _stoppable(lambda stop: agent.toolbox.do(call, key=effect, stop=stop, was_asked=was_asked))
    data = {"call_id": call["call_id"], **done.as_data()}
    told = reminder_of(did_of(call, data), tuple(work.past), (*work.past_apart, *agent.others()))
    if told:
        data |= {"seen": data["result"], "result": {**data["result"], "note": told}}
    return [event_step(action.policy, "tool_done" if done.is_done else "tool_failed", data=as_unicode(data))]


#: How long a call that is stopped may take to put things in order, in seconds: what it left that is protected, the mark behind it.
_ORDER_S = 10.0


async def _stoppable(do: Callable[[Stop], T]) -> T:
    """Do something in a thread; when nobody waits for it any more it is told to stop, and its end is awaited for a moment."""
    loop = asyncio.get_running_loop()
    stop, lock, ended = Stop(), threading.Lock(), loop.create_future()
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
    agent, work, _ = read(action, context)
    looked = partial(agent.toolbox.probe, tuple(work.files_written), tuple(work.commands), tuple(work.errors))
    return [event_step(action.policy, "probed", data=await in_thread(looked))]


@answering("next_subtask", "apart", "none_left", is_eager=True)
async def advance(action: Action, context: PolicyContext) -> list[Step]:
    """Say whether there is another subtask, or several that can be worked at together."""
    agent, work, _ = read(action, context)
    places = work.independent_next() if agent.parallel > 1 else []
    if len(places) > 1:
        return [event_step(action.policy, "apart", data={"places": places})]
    return [event_step(action.policy, "none_left" if work.next_waiting is None else "next_subtask")]


async def ask_approval(action: Action, context: PolicyContext) -> list[Step]:
    """Say what leave is asked for, with what would change."""
    agent, work, _ = read(action, context)
    assert work.current is not None, "leave is asked for a call"
    call = work.current.about
    about = {"asks": call["asks"], "diff": await in_thread(partial(agent.toolbox.shown, call))}
    return [text_step(action.policy, f"may {call['tool']} {arguments_shown(call)} happen?", about=about)]
