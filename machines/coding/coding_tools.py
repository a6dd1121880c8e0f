"""Whether a call goes round in circles: what the guard `not_looping` is told of it (seed 003, loop protection).

Takes the last actions, those of others beside it too, and a call; gives how far round it is. A call is known by its tool and its normalised
arguments, never by the id that a provider gives it. Pure.

What changes files counts by the call alone: the same file with the same content written again is a circle whatever it answers. A command counts
anew once something else has changed a file; what only looks counts while it sees the same. A tool that is declared as polling never counts; a command
that is may have the same outcome SAME_POLLS times in a row, and is made POLLS times at most. What others do
beside it counts where it changes files: the folder is one for all; what they have seen, whoever looks for the first time has not.

The same call is counted over all of the subtask, patterns over the last ten actions. That a tool fails in the same way again and again counts by
answers: who asks for six commands at once has not seen the first of them fail. It ends nothing by itself, for the next one may differ.

The tools of the coding machine as a model sees them.

What a model asks of them is read by `machines.tool_use.tool_call`; what they do is in `toolbox.py`.
"""

import hashlib
import json
from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import Literal

import attrs

from machines.tool_use import tool_call
from machines.tool_use.records import JsonObject
from machines.tool_use.tool import COMMAND, CONTENT, FILES, LIMIT, PATH_NAMES, TEXT, TRUTH, Parameter, Tool

#: What a tool does: it changes files · it runs something · it only looks · it only looks, and is to be asked again and again
Kind = Literal["changing", "running", "looking", "polling"]
#: Go on · go on, and be told that this is the second time · not again · the end
Level = Literal["fine", "remind", "block", "end"]

#: Actions among which calls in turn are looked for (seed 003).
WINDOW = 10
#: Actions that are kept: more than the calls of all answers that a subtask has, unless its bounds are raised.
KEPT = 256
REMIND, BLOCK, END = 2, 3, 5
#: How often a command that is declared as polling may be made in a subtask, whatever comes of it.
POLLS = 40
#: How often in a row its outcome may be the same.
SAME_POLLS = 10
_PERIODS = (2, 3)
_SAME_ERRORS = 3


@attrs.frozen
class Did:
    """An action that is over, or was refused for going round: `result` is a digest of what it gave, empty for one that was refused.

    `tool` is what it was done with (`tool_of`).

    `changed`: a file is another one than before. `error` says in which way it went wrong, empty where it did not. `at_ms`: when, on the
    clock of the ledger. `answer`: the number of the model's answer that has asked for it. `polled`: a command that is declared as polling.
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
    """How far round a call is, this time included, and why in words; none where it is fine."""

    level: Level = "fine"
    times: int = 1
    why: str = ""


def key_of(tool: str, arguments: JsonObject) -> str:
    """Return what a call is known by."""
    return digest_of([tool, dict(arguments)])


def digest_of(value: object) -> str:
    """Return a digest of a JSON value, equal for equal ones."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def tool_of(tool: str, argv: Sequence[str]) -> str:
    """Return what a call is done with: its tool, and the program that it runs. Where one program fails, another one may tell why."""
    return " ".join([tool, *argv[:1]])


def round_of(asked: Did, past: Sequence[Did], others: Iterable[Did] = ()) -> Round:
    """Judge a call that is asked for by the last actions, oldest first, and by what `others` have changed who work beside it."""
    if asked.kind == "polling":
        return Round()
    again = _again(asked, _with(others, past, asked))
    found = (again, _alternating(asked.key, past[-WINDOW:]), _same_error(asked, past))
    return max(found, key=lambda each: (_ORDER[each.level], each.times))


def together(past: Iterable[Did], others: Iterable[Did]) -> tuple[Did, ...]:
    """Put actions in the order in which they happened."""
    return tuple(sorted([*others, *past], key=lambda did: did.at_ms))


def _with(others: Iterable[Did], past: Iterable[Did], asked: Did) -> tuple[Did, ...]:
    """Put beside the own actions what others have changed; what they have looked at or run, whoever does it for the first time has not seen."""
    is_change = asked.kind == "changing"
    return together(past, (each for each in others if is_change or (each.changed and each.key != asked.key)))


_ORDER: dict[Level, int] = {"fine": 0, "remind": 1, "block": 2, "end": 3}


def _level(times: int) -> Level:
    return "end" if times >= END else "block" if times >= BLOCK else "remind" if times >= REMIND else "fine"


def _judged(times: int, level: Level, why: str) -> Round:
    return Round(level, times, "" if level == "fine" else why)


def _again(asked: Did, past: Sequence[Did]) -> Round:
    """Count the same call."""
    if asked.kind == "looking" or asked.polled:
        return _same_again(asked, past)
    before = _before(asked, past)
    times = 1 + len(before)
    return _judged(times, _level(times), f"{asked.tool} is asked for {times} times with the same arguments")


def _same_again(asked: Did, past: Sequence[Did]) -> Round:
    """Count what may be made again as long as its outcome is another one: a look, or a command that is polled."""
    polls = sum(each.key == asked.key for each in past) if asked.polled else 0
    if polls >= POLLS:
        level: Level = "end" if polls >= POLLS + END - BLOCK else "block"
        return Round(
            level,
            polls + 1,
            f"{asked.tool} is asked for {polls + 1} times like this: it is polled {POLLS} times at most",
        )
    same, refused = _same_last(asked.key, past)
    times = 1 + same + refused
    counted = times - SAME_POLLS + BLOCK - 1 if asked.polled else times
    level = _level(counted) if counted != REMIND else "fine"  # whether it sees the same again, nobody knows yet
    saw = f"it saw the same the last {same} times" if same > 1 else "it was refused before"
    return _judged(times, level, f"{asked.tool} is asked for {times} times without anything new to see: {saw}")


def _before(asked: Did, past: Sequence[Did]) -> list[Did]:
    """Return the calls before that count as the same, the last one first."""
    since = reversed(past) if asked.kind == "changing" else _since_a_change(asked.key, past)
    return [each for each in since if each.key == asked.key]


def _since_a_change(key: str, window: Sequence[Did]) -> list[Did]:
    """Return what came after something else has changed a file."""
    return list(takewhile(lambda each: each.key == key or not each.changed, reversed(window)))


def _same_last(key: str, window: Sequence[Did]) -> tuple[int, int]:
    """Count how often the last calls had the last outcome, and how often it was refused; a change of a file in between begins anew."""
    mine = [each for each in _since_a_change(key, window) if each.key == key]
    seen = [each.result for each in mine if not each.refused]
    same = sum(1 for _ in takewhile(lambda result: result == seen[0], seen)) if seen else 0
    return same, sum(each.refused for each in mine)


def _alternating(key: str, window: Sequence[Did]) -> Round:
    """Look for A-B-A-B, and A-B-C-A-B-C: the call would complete the second time round."""
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
                f"{period} calls are asked for in turn, and what was made again brought nothing new",
            )
    return Round()


def _is_stuck(first: Did, second: Did) -> bool:
    """Return whether a call has brought nothing new the second time."""
    if first.kind == "polling":
        return False
    return first.kind == "changing" or second.refused or (first.result == second.result and not second.changed)


def _same_error(asked: Did, past: Sequence[Did]) -> Round:
    """Look for a tool that has failed in the same way in each of the last answers that had it fail, one after the other, whatever it was given.

    What fails in the answer that asks counts from the next one on. Refusals do not: the calls that were refused differ.
    """
    if asked.polled:  # its outcomes are counted by themselves
        return Round()
    counted = [each for each in past if not each.polled]
    failing = takewhile(lambda each: each.tool == asked.tool and bool(each.error or each.refused), reversed(counted))
    ways: dict[int, set[str]] = {}
    for each in failing:
        if each.error and each.answer < asked.answer:
            ways.setdefault(each.answer, set()).add(each.error)
    last = list(ways.values())[:_SAME_ERRORS]
    if len(last) < _SAME_ERRORS or not set.intersection(*last):
        return Round()
    why = f"{asked.tool} has failed in the same way in {_SAME_ERRORS} answers, one after the other"
    return Round("block", BLOCK, why)


def reminder_of(did: Did, past: Sequence[Did], others: Iterable[Did] = ()) -> str:
    """Return what is said beside the result of a call that was made the second time, or saw the same again; empty otherwise.

    It says of the outcomes what is recorded of them, and nothing of a call that was refused but that it was.
    """
    if did.kind == "polling":
        return ""
    past = _with(others, past, did)
    if did.kind == "looking" or did.polled:
        same, _ = _same_last(did.key, [*past, did])
        return _reminder(same, ", with the same outcome") if same == REMIND else ""
    before = _before(did, past)
    if _level(1 + len(before)) != "remind":
        return ""
    made = [each for each in before if not each.refused]
    if not made:
        return "You have asked for exactly this before, and it was refused then. Do something else next."
    return _reminder(1 + len(made), _outcome(did, made))


def _outcome(did: Did, made: Iterable[Did]) -> str:
    """Return how the outcomes of the same call compare, as they are recorded."""
    if did.kind == "changing" and not did.error:
        return ", and changed a file again" if did.changed else "; this time it changed nothing"
    is_same = all((each.result, each.changed) == (did.result, did.changed) for each in made)
    return ", with the same outcome" if is_same else ", with another outcome"


def _reminder(times: int, how: str) -> str:
    return f"Exactly this was done {times} times now{how}. Do something else next."


#: Every kind of thing that is mended, with what it means to a reader.
RESCUES = {
    name: tool_call.RESCUES[name]
    for name in ("tool_name", "alias", "nested", "text", "number", "truth", "list", "fence")
}
COMPLETE = "mark_subtask_complete"


@attrs.frozen
class WorkspaceTool(Tool):
    """A tool of the workspace. `kind` is what it does to it; `needs` is look, edit or run, which the mode has to permit, or ask or never, whatever the mode is."""

    kind: Kind = attrs.field(kw_only=True)
    needs: str = attrs.field(kw_only=True)


_CONTENT_NAMES = ("text", "contents", "data", "body", "code", "source")
_WHERE = Parameter("path", TEXT, "path in the workspace", required=True, aliases=PATH_NAMES[1:])
_HERE = Parameter(
    "path", TEXT, "folder in the workspace", default=".", aliases=("dir", "directory", "folder", *PATH_NAMES[1:3])
)
_FOLDERS = Parameter("create_dirs", TRUTH, "make folders that are missing", default=True, aliases=("mkdir", "parents"))


def _tool(
    name: str, kind: Kind, needs: str, about: str, parameters: Iterable[Parameter], names: str = ""
) -> WorkspaceTool:
    return WorkspaceTool(name, about, tuple(parameters), frozenset(names.split()), kind=kind, needs=needs)


#: The seed's five tools, and those that models want beside them.
TOOLS: tuple[WorkspaceTool, ...] = (
    _tool("list_dir", "looking", "look", "List a folder.", (
        _HERE, Parameter("offset", LIMIT, "names to leave out at the beginning", 0, least=0, most=1 << 40, aliases=("start",)),
    ), "ls listfiles listdirectory dir"),
    _tool("read_file", "looking", "look", "Read a text file.", (
        _WHERE,
        Parameter("max_bytes", LIMIT, "how much of it", 65_536, least=1, most=1_000_000, aliases=("limit", "bytes")),
        Parameter("offset", LIMIT, "bytes to leave out at the beginning", 0, least=0, most=1 << 40, aliases=("start",)),
    ), "cat openfile viewfile view readfiles"),
    _tool("search", "looking", "look", "Find a text in the files of the workspace.", (
        Parameter("pattern", TEXT, "what to find", required=True, aliases=("query", "text", "regex")),
        _HERE,
        Parameter("glob", TEXT, "only files of such names, as *.py"),
        Parameter("is_regex", TRUTH, "the pattern is a regular expression", default=False, aliases=("regexp",)),
    ), "grep find searchfiles rg"),
    _tool("write_file", "changing", "edit", "Write a file, whole; what was in it is replaced.", (
        _WHERE, Parameter("content", CONTENT, "all of the file", required=True, aliases=_CONTENT_NAMES), _FOLDERS,
    ), "createfile savefile write writetofile"),
    _tool("write_files", "changing", "edit", "Write several files: all of them or none.", (
        Parameter("files", FILES, "the files, whole", required=True, aliases=("paths", "contents")), _FOLDERS,
    ), "createfiles savefiles"),
    _tool("edit", "changing", "edit", "Replace a text in a file by another one; it must be there once, exactly.", (
        _WHERE,
        Parameter("old", TEXT, "the text to replace", required=True, aliases=("old_str", "old_string", "old_text", "find")),
        Parameter("new", TEXT, "what to put there", required=True, aliases=("new_str", "new_string", "new_text", "replace")),
        Parameter("all", TRUTH, "replace it wherever it is", default=False, aliases=("replace_all",)),
    ), "editfile strreplace replaceinfile applyedit"),
    _tool("write_tested", "changing", "edit", "Write a Python module, tests first: tests are written, then code until it passes them.", (
        _WHERE,
        Parameter("tests_path", TEXT, "where the tests go, as tests/test_NAME.py", required=True, aliases=("test_path", "tests", "test_file")),
        Parameter("specification", TEXT, "what the module is to do, exactly", required=True, aliases=("spec", "task", "description")),
    )),
    _tool("run_cmd", "running", "run", "Run a program of the list, without a shell.", (
        Parameter("cmd", COMMAND, 'program and arguments, as ["python", "main.py"]', required=True, aliases=("command", "argv", "args", "cmdline")),
        Parameter("stdin", TEXT, "what it reads on standard input", aliases=("input", "standard_input")),
        Parameter("timeout_sec", LIMIT, "seconds it may take", 60, least=1, most=600, aliases=("timeout", "timeout_s", "seconds")),
        Parameter("cwd", TEXT, "folder to run it in", default=".", aliases=("workdir", "working_dir")),
    ), "bash shell exec execute runcommand runbash terminal runshell"),
    _tool("git_status", "looking", "look", "What git says has changed.", ()),
    _tool("git_diff", "looking", "look", "What has changed in files that git knows, since it was staged or committed.", (
        Parameter("path", TEXT, "only this file or folder", aliases=PATH_NAMES[1:3]),
        Parameter("staged", TRUTH, "what was staged since the last commit", default=False, aliases=("cached",)),
    )),
    _tool("git_log", "looking", "look", "The last commits.", (
        Parameter("count", LIMIT, "how many", 10, least=1, most=100, aliases=("n", "limit", "max_count")),
        Parameter("path", TEXT, "only those of this file or folder", aliases=PATH_NAMES[1:3]),
    )),
    _tool("git_commit", "running", "run", "Commit what has changed.", (
        Parameter("message", TEXT, "what the commit says", required=True, aliases=("msg",)),
    )),
    _tool(COMPLETE, "looking", "look", "Say that the active subtask is over. Call it as soon as that is so.", (
        Parameter("success", TRUTH, "whether it was done", required=True, aliases=("completed", "done", "ok")),
        Parameter("reason", TEXT, "why, in a sentence", default="", aliases=("message", "summary", "why")),
    ), "marksubtaskcompleted subtaskcomplete completesubtask marktaskcomplete markcomplete"),
)  # fmt: skip
