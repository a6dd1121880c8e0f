"""What the events of the coding machine bring, as records of their data: a goal, tasks, a call as it is meant, what came of it, what parts have done."""

from collections.abc import Mapping
from typing import Literal

import attrs

from machines.coding.loops import Did, Kind, Round, digest_of, tool_of
from machines.coding.plan import Task
from machines.coding.standing import Status
from machines.coding.tools.workspace import Change
from machines.tool_use.answers import Answer
from machines.tool_use.call import Fault
from machines.tool_use.notice import Notice
from machines.tool_use.records import JsonObject


@attrs.frozen
class Goal:
    """A goal, with tasks where a template has given them; `about` names the part of which it is the goal."""

    text: str
    about: str = ""
    tasks: tuple[Task, ...] | None = None


@attrs.frozen
class Decomposed(Answer):
    """The model's answer to a goal: tasks, and what is the matter with them."""

    tasks: tuple[Task, ...] = ()
    faults: tuple[str, ...] = ()


@attrs.frozen
class Permission:
    """What is said with leave: whether it holds for all calls of the kind."""

    always: bool = False


@attrs.frozen
class Denial:
    """Why a call is not to happen; empty where nothing was said."""

    why: str = ""


# -- calls ----------------------------------------------------------------------------------------------------------------


@attrs.frozen
class CallFaults:
    """What is wrong with a call, by the guard that judges it; empty where nothing is."""

    inside_workspace: str = ""
    command_allowed: str = ""


#: It may happen · the user is asked first · it may not
Leave = Literal["yes", "ask", "never"]


@attrs.frozen
class Approval:
    """Whether a call may happen in the mode of the run, and why not."""

    leave: Leave
    why: str = ""


@attrs.frozen
class Look:
    """What was found of a call before it is made.

    `asks` is what leave is asked for; `planned` what it would change, or `cannot` why it cannot be done. `argv` is its command, `named` the files that this executes, with
    the SHA-256 of each.
    """

    faults: CallFaults = CallFaults()
    asks: str = ""
    planned: tuple[Change, ...] = ()
    cannot: Fault | None = None
    argv: tuple[str, ...] = ()
    named: Mapping[str, str | None] = attrs.field(factory=dict)


@attrs.frozen
class CallRead(Look):
    """A call as it is meant. `fault` says why it is of no tool, whose name is empty then.

    `key` is what it is known by, `round` how far round it goes, `approval` whether it may happen. `polled`: its command is declared as polling. `files` are those that a commit
    takes. A completion has `subtask`, its `reason`, how many `results` the tools have given, and what it `lacks`.
    """

    call_id: str = ""
    tool: str = ""
    rescues: tuple[str, ...] = ()
    fault: str = ""
    kind: Kind = "looking"
    arguments: JsonObject = attrs.field(factory=dict)
    key: str = ""
    round: Round | None = None
    approval: Approval | None = None
    polled: bool = False
    files: tuple[str, ...] = ()
    subtask: str = ""
    reason: str = ""
    results: int = 0
    lacks: str = ""


@attrs.frozen
class Came:
    """What came of a call: `result` for the model, or `seen` where a note was put beside that.

    `error` is what went wrong in a line, `fault` the same for calls that went wrong in the same way; `ran` is a command and its exit code. `before` and `after` are marks of the
    workspace's history, `changes` the files between them, `made` those of them that were not there before; `unkept` says what the history lacks.
    """

    call_id: str
    result: JsonObject
    error: str = ""
    fault: str = ""
    ran: str = ""
    changes: tuple[Change, ...] = ()
    made: tuple[str, ...] = ()
    usage: JsonObject = attrs.field(factory=dict)
    unkept: str = ""
    before: str = ""
    after: str = ""
    seen: JsonObject | None = None


def did_of(call: CallRead, came: Came, at_ms: int = 0, answer: int = 0) -> Did:
    """Give an action as the detector of circles remembers it."""
    changed = any(change.before != change.after for change in came.changes)
    result = digest_of(came.result if came.seen is None else came.seen)
    tool = tool_of(call.tool, call.argv)
    return Did(call.key, tool, call.kind, result, changed, came.fault, at_ms=at_ms, answer=answer, polled=call.polled)


@attrs.frozen
class Probe:
    """Facts about the workspace, none of them about a goal."""

    files_written: tuple[str, ...]
    files_exist: tuple[str, ...]
    files_missing: tuple[str, ...]
    commands_run: tuple[str, ...]
    recent_errors: tuple[str, ...]


# -- parts ----------------------------------------------------------------------------------------------------------------


@attrs.frozen
class Move:
    """Files that a call has changed, between two marks of the workspace's history, and when; `made` are those that were not there."""

    before: str
    after: str
    changes: tuple[Change, ...]
    made: tuple[str, ...] = ()
    at_ms: int = 0


@attrs.frozen
class PartCall:
    """A call of a part, as the whole remembers it: texts are cut."""

    call_id: str
    tool: str
    provider_id: str
    status: str
    result: JsonObject | None = None
    asked: JsonObject = attrs.field(factory=dict)
    about: CallRead | None = None


@attrs.frozen
class PartDone:
    """What a part has done whose subtask has this place, in the run of this name. `asked` counts the answers of the model."""

    place: str
    run: str
    status: Status
    reason: str = ""
    done: int = 0
    shown: bool = False
    reasons: Mapping[str, int] = attrs.field(factory=dict)
    rescues: Mapping[str, int] = attrs.field(factory=dict)
    tools: Mapping[str, int] = attrs.field(factory=dict)
    blocked: Mapping[str, str] = attrs.field(factory=dict)
    commands: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    asked: int = 0
    moves: tuple[Move, ...] = ()
    past: tuple[Did, ...] = ()
    calls: tuple[PartCall, ...] = ()


@attrs.frozen
class PartsDone:
    """What all parts of a task have done, a note to the model, and what they took."""

    parts: tuple[PartDone, ...]
    note: str
    usage: Mapping[str, float] = attrs.field(factory=dict)


@attrs.frozen
class Apart:
    """The places of subtasks that are worked at together."""

    places: tuple[str, ...]


# -- notices --------------------------------------------------------------------------------------------------------------


@attrs.frozen
class WorkNotice(Notice):
    """A notice. `subtask` is how the active one stands now; `tasks`: the goal itself is the task; `blocked`: the call is not to be tried again."""

    subtask: Literal["", "completed", "failed"] = ""
    tasks: bool = False
    blocked: bool = False
