"""The tools of the coding machine as a model sees them, and the loop detection for their calls (seed 003, loop protection). Pure.

`machines.tool_use.tool_call` reads the calls; `toolbox.py` makes them. `round_of` takes the last actions and a call, and returns how often it repeats. Two
calls are equal when tool and normalised arguments are equal; ids of providers do not matter.

A call that changes files counts whatever its result: writing the same content again is a loop. A command starts from zero when something else has changed a
file. A call that only looks counts while it sees the same. A polling tool never counts; a polling command may have the same outcome SAME_POLLS times
in a row, and run POLLS times at most. The actions of parallel parts count when they change files, because the folder is shared; what
another part has seen does not count.

Equal calls are counted over the whole subtask, patterns over the last ten actions. Repeated failures count by answers: a model that calls six commands at
once has not seen the first one fail. They block a call but never end the work, because the next call may differ.
"""

import hashlib
import json
from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import Literal

import attrs

from machines.tool_use import tool_call
from machines.tool_use.records import JsonObject
from machines.tool_use.tool_call import COMMAND, CONTENT, FILES, LIMIT, PATH_NAMES, TEXT, TRUTH, Parameter, Tool

#: A tool changes files · runs something · only looks · only looks, and may be called again and again.
Kind = Literal["changing", "running", "looking", "polling"]
#: Continue · continue, with a reminder · block the call · end the work.
Level = Literal["fine", "remind", "block", "end"]

#: The number of actions in which patterns are detected (seed 003).
WINDOW = 10
#: The number of actions in memory: more than all calls of a subtask within the default bounds.
MEMORY = 256
REMIND, BLOCK, END = 2, 3, 5
#: The number of runs of a polling command in a subtask.
POLLS = 40
#: The number of equal outcomes in a row.
SAME_POLLS = 10
_PERIODS = (2, 3)
_SAME_ERRORS = 3


@attrs.frozen
class CallAction:
    """An action: a call that was made, or refused as a loop. `result` is a digest of its result, empty for a refused one.

    `tool` is the tool with its program (`tool_of`). `changed` says that it changed a file. `error` is the kind of its failure, or empty. `at_ms` is
    the time on the ledger's clock, `answer` the number of the model's answer with the call. `polled` marks a polling command.
    """

    key: str
    tool: str
    kind: Kind
    result: str = ""
    changed: bool = False
    error: str = ""
    refused: bool = False
    at_ms: int = 0
    answer: int = 0
    polled: bool = False


@attrs.frozen
class Round:
    """The judgement of a call: its level, how often the call was made, this time included, and why, which is empty when it is fine."""

    level: Level = "fine"
    times: int = 1
    why: str = ""


def key_of(tool: str, arguments: JsonObject) -> str:
    """Return the key of a call; equal calls have equal keys."""
    return digest_of([tool, dict(arguments)])


def digest_of(value: object) -> str:
    """Return a digest of a JSON value."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def tool_of(tool: str, argv: Sequence[str]) -> str:
    """Return the tool of a call with its program: when one program fails, another one may find out why."""
    return " ".join([tool, *argv[:1]])


def round_of(call: CallAction, past: Sequence[CallAction], others: Iterable[CallAction] = ()) -> Round:
    """Judge a call by the last actions, oldest first, and by the changes of parallel parts (`others`)."""
    if call.kind == "polling":
        return Round()
    again = _again(call, _with(others, past, call))
    judgements = (again, _alternation(call.key, past[-WINDOW:]), _same_error(call, past))
    return max(judgements, key=lambda each: (_ORDER[each.level], each.times))


def round_beside(
    call: CallAction, past: Sequence[CallAction], others: Iterable[CallAction], unread: Sequence[CallAction]
) -> tuple[Round, bool]:
    """Judge a call while looks run (`unread`, in the order asked). Return the judgement, and whether it is the same whatever they find.

    All of them may find something new, or fail, or find the same as before: any other outcome is between these. A call that is made a second time
    waits for the first one, because its reminder compares the two.
    """
    last = {action.key: action.result for action in past}
    new = [attrs.evolve(action, result=f"new {at}") for at, action in enumerate(unread)]
    failures = [attrs.evolve(action, error="new") for action in new]
    same = [attrs.evolve(action, result=last.get(action.key, action.result)) for action in failures]
    actions = tuple(others)
    judgements = [round_of(call, (*past, *ends), actions) for ends in (new, failures, same)[: 3 if unread else 1]]
    is_certain = len({(each.level, each.why) for each in judgements}) == 1
    return judgements[0], is_certain and all(each.key != call.key for each in unread)


def in_order(past: Iterable[CallAction], others: Iterable[CallAction]) -> tuple[CallAction, ...]:
    """Return actions in the order of time."""
    return tuple(sorted([*others, *past], key=lambda action: action.at_ms))


def _with(others: Iterable[CallAction], past: Iterable[CallAction], call: CallAction) -> tuple[CallAction, ...]:
    """Return our actions with the changes of others; what others have looked at or run does not count here."""
    is_change = call.kind == "changing"
    return in_order(past, (each for each in others if is_change or (each.changed and each.key != call.key)))


_ORDER: dict[Level, int] = {"fine": 0, "remind": 1, "block": 2, "end": 3}


def _level(times: int) -> Level:
    return "end" if times >= END else "block" if times >= BLOCK else "remind" if times >= REMIND else "fine"


def _judgement(times: int, level: Level, why: str) -> Round:
    return Round(level, times, "" if level == "fine" else why)


def _again(call: CallAction, past: Sequence[CallAction]) -> Round:
    """Judge a call by the earlier equal calls."""
    if call.kind == "looking" or call.polled:
        return _same_again(call, past)
    before = _before(call, past)
    times = 1 + len(before)
    return _judgement(times, _level(times), f"this is call {times} of {call.tool} with the same arguments")


def _same_again(call: CallAction, past: Sequence[CallAction]) -> Round:
    """Judge a call that may repeat while its outcome changes: a look, or a polling command."""
    polls = sum(each.key == call.key for each in past) if call.polled else 0
    if polls >= POLLS:
        level: Level = "end" if polls >= POLLS + END - BLOCK else "block"
        return Round(
            level,
            polls + 1,
            f"this is call {polls + 1} of {call.tool}, which may be polled {POLLS} times",
        )
    same, refusals = _same_last(call.key, past)
    times = 1 + same + refusals
    level_count = times - SAME_POLLS + BLOCK - 1 if call.polled else times
    level = _level(level_count) if level_count != REMIND else "fine"  # it may see something new this time
    outcome_text = f"the last {same} results were the same" if same > 1 else "it was refused before"
    return _judgement(times, level, f"this is call {times} of {call.tool} with nothing new: {outcome_text}")


def _before(call: CallAction, past: Sequence[CallAction]) -> list[CallAction]:
    """Return the earlier equal calls that count, the last one first."""
    since = reversed(past) if call.kind == "changing" else _since_a_change(call.key, past)
    return [each for each in since if each.key == call.key]


def _since_a_change(key: str, window: Sequence[CallAction]) -> list[CallAction]:
    """Return the actions since something else changed a file, the last one first."""
    return list(takewhile(lambda each: each.key == key or not each.changed, reversed(window)))


def _same_last(key: str, window: Sequence[CallAction]) -> tuple[int, int]:
    """Return how many of the last equal calls had the last outcome, and how many were refused. A file change by another call starts from zero."""
    mine = [each for each in _since_a_change(key, window) if each.key == key]
    results = [each.result for each in mine if not each.refused]
    same = sum(1 for _ in takewhile(lambda result: result == results[0], results)) if results else 0
    return same, sum(each.refused for each in mine)


def _alternation(key: str, window: Sequence[CallAction]) -> Round:
    """Judge patterns A-B-A-B and A-B-C-A-B-C that the call would complete."""
    for period in _PERIODS:
        before = window[-(2 * period - 1) :]
        keys = [*(each.key for each in before), key]
        if len(keys) < 2 * period or len(set(keys)) != period or keys[:period] != keys[period:]:
            continue
        if all(_is_stuck(a, b) for a, b in zip(before[:period], before[period:], strict=False)):
            refusals = sum(each.refused for each in before)
            times = BLOCK + refusals
            return Round(
                _level(times),
                times,
                f"{period} calls alternate, and their repetitions brought nothing new",
            )
    return Round()


def _is_stuck(first: CallAction, second: CallAction) -> bool:
    """Return whether a repeated call had nothing new."""
    if first.kind == "polling":
        return False
    return first.kind == "changing" or second.refused or (first.result == second.result and not second.changed)


def _same_error(call: CallAction, past: Sequence[CallAction]) -> Round:
    """Judge a tool that failed in the same way in each of the last answers, with any arguments.

    Failures in the same answer as the call do not count yet. Refusals never count, because the refused calls differ.
    """
    if call.polled:  # `_same_again` counts its outcomes
        return Round()
    actions = [each for each in past if not each.polled]
    failures = takewhile(lambda each: each.tool == call.tool and bool(each.error or each.refused), reversed(actions))
    ways: dict[int, set[str]] = {}
    for each in failures:
        if each.error and each.answer < call.answer:
            ways.setdefault(each.answer, set()).add(each.error)
    last = list(ways.values())[:_SAME_ERRORS]
    if len(last) < _SAME_ERRORS or not set.intersection(*last):
        return Round()
    why = f"{call.tool} failed in the same way in {_SAME_ERRORS} answers in a row"
    return Round("block", BLOCK, why)


def reminder_of(action: CallAction, past: Sequence[CallAction], others: Iterable[CallAction] = ()) -> str:
    """Return the reminder for the result of a repeated call, or an empty text.

    It compares recorded outcomes; of a refused call it only says that it was refused.
    """
    if action.kind == "polling":
        return ""
    past = _with(others, past, action)
    if action.kind == "looking" or action.polled:
        same, _ = _same_last(action.key, [*past, action])
        return _reminder(same, ", with the same outcome") if same == REMIND else ""
    before = _before(action, past)
    if _level(1 + len(before)) != "remind":
        return ""
    earlier = [each for each in before if not each.refused]
    if not earlier:
        return "You made exactly this call before, and it was refused. Do something else next."
    return _reminder(1 + len(earlier), _outcome(action, earlier))


def _outcome(action: CallAction, earlier: Iterable[CallAction]) -> str:
    """Return how the recorded outcomes of equal calls compare."""
    if action.kind == "changing" and not action.error:
        return ", and changed a file again" if action.changed else "; this time it changed nothing"
    is_same = all((each.result, each.changed) == (action.result, action.changed) for each in earlier)
    return ", with the same outcome" if is_same else ", with a different outcome"


def _reminder(times: int, how: str) -> str:
    return f"You have now made exactly this call {times} times{how}. Do something else next."


#: The kinds of fixes, with an explanation for readers.
RESCUES = {
    name: tool_call.RESCUES[name]
    for name in ("tool_name", "alias", "nested", "text", "number", "truth", "list", "fence")
}
COMPLETE = "mark_subtask_complete"


@attrs.frozen
class WorkspaceTool(Tool):
    """A tool of the workspace. `kind` is its effect; `needs` is look, edit or run, which the mode has to permit, or ask or never in any mode."""

    kind: Kind = attrs.field(kw_only=True)
    needs: str = attrs.field(kw_only=True)


_CONTENT_NAMES = ("text", "contents", "data", "body", "code", "source")
_WHERE = Parameter("path", TEXT, "path in the workspace", required=True, aliases=PATH_NAMES[1:])
_HERE = Parameter(
    "path", TEXT, "folder in the workspace", default=".", aliases=("dir", "directory", "folder", *PATH_NAMES[1:3])
)
_FOLDERS = Parameter("create_dirs", TRUTH, "create missing folders", default=True, aliases=("mkdir", "parents"))


def _tool(
    name: str, kind: Kind, needs: str, about: str, parameters: Iterable[Parameter], names: str = ""
) -> WorkspaceTool:
    return WorkspaceTool(name, about, tuple(parameters), frozenset(names.split()), kind=kind, needs=needs)


#: The five tools of the seed, and more that models expect.
TOOLS: tuple[WorkspaceTool, ...] = (
    _tool("list_dir", "looking", "look", "List a folder.", (
        _HERE, Parameter("offset", LIMIT, "number of names to skip", 0, least=0, most=1 << 40, aliases=("start",)),
    ), "ls listfiles listdirectory dir"),
    _tool("read_file", "looking", "look", "Read a text file.", (
        _WHERE,
        Parameter("max_bytes", LIMIT, "number of bytes to read", 65_536, least=1, most=1_000_000, aliases=("limit", "bytes")),
        Parameter("offset", LIMIT, "number of bytes to skip", 0, least=0, most=1 << 40, aliases=("start",)),
    ), "cat openfile viewfile view readfiles"),
    _tool("search", "looking", "look", "Find a text in the files of the workspace.", (
        Parameter("pattern", TEXT, "what to find", required=True, aliases=("query", "text", "regex")),
        _HERE,
        Parameter("glob", TEXT, "only files whose names match this, such as *.py"),
        Parameter("is_regex", TRUTH, "the pattern is a regular expression", default=False, aliases=("regexp",)),
    ), "grep find searchfiles rg"),
    _tool("write_file", "changing", "edit", "Write a whole file; its old content is replaced.", (
        _WHERE, Parameter("content", CONTENT, "the whole content of the file", required=True, aliases=_CONTENT_NAMES), _FOLDERS,
    ), "createfile savefile write writetofile"),
    _tool("write_files", "changing", "edit", "Write several files: all of them or none.", (
        Parameter("files", FILES, "the whole files", required=True, aliases=("paths", "contents")), _FOLDERS,
    ), "createfiles savefiles"),
    _tool("edit", "changing", "edit", "Replace a text in a file; the file must contain it exactly once.", (
        _WHERE,
        Parameter("old", TEXT, "the text to replace", required=True, aliases=("old_str", "old_string", "old_text", "find")),
        Parameter("new", TEXT, "the new text", required=True, aliases=("new_str", "new_string", "new_text", "replace")),
        Parameter("all", TRUTH, "replace every occurrence", default=False, aliases=("replace_all",)),
    ), "editfile strreplace replaceinfile applyedit"),
    _tool("write_tested", "changing", "edit", "Write a Python module, tests first: write tests, then code until it passes them.", (
        _WHERE,
        Parameter("tests_path", TEXT, "path of the tests, such as tests/test_NAME.py", required=True, aliases=("test_path", "tests", "test_file")),
        Parameter("specification", TEXT, "exactly what the module has to do", required=True, aliases=("spec", "task", "description")),
    )),
    _tool("run_cmd", "running", "run", "Run one of the programs below, without a shell.", (
        Parameter("cmd", COMMAND, 'program and arguments, such as ["python", "main.py"]', required=True, aliases=("command", "argv", "args", "cmdline")),
        Parameter("stdin", TEXT, "text for standard input", aliases=("input", "standard_input")),
        Parameter("timeout_sec", LIMIT, "time limit in seconds", 60, least=1, most=600, aliases=("timeout", "timeout_s", "seconds")),
        Parameter("cwd", TEXT, "folder to run it in", default=".", aliases=("workdir", "working_dir")),
    ), "bash shell exec execute runcommand runbash terminal runshell"),
    _tool("git_status", "looking", "look", "Show the changes that git sees.", ()),
    _tool("git_diff", "looking", "look", "Show the changes in tracked files since they were staged or committed.", (
        Parameter("path", TEXT, "only this file or folder", aliases=PATH_NAMES[1:3]),
        Parameter("staged", TRUTH, "the staged changes since the last commit", default=False, aliases=("cached",)),
    )),
    _tool("git_log", "looking", "look", "Show the last commits.", (
        Parameter("count", LIMIT, "number of commits", 10, least=1, most=100, aliases=("n", "limit", "max_count")),
        Parameter("path", TEXT, "only commits of this file or folder", aliases=PATH_NAMES[1:3]),
    )),
    _tool("git_commit", "running", "run", "Commit the changes.", (
        Parameter("message", TEXT, "the commit message", required=True, aliases=("msg",)),
    )),
    _tool(COMPLETE, "looking", "look", "End the active subtask. Call this as soon as it is over.", (
        Parameter("success", TRUTH, "whether it is done", required=True, aliases=("completed", "done", "ok")),
        Parameter("reason", TEXT, "why, in a sentence", default="", aliases=("message", "summary", "why")),
    ), "marksubtaskcompleted subtaskcomplete completesubtask marktaskcomplete markcomplete"),
)  # fmt: skip
