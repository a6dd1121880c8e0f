"""What a call gave, in lines for people: on the screen, in `agent_ledger.log`, and whether anything was done at all.

Takes results as they stand in the ledger, of our own tools and of those of MCP servers, gives texts. Pure.
"""

import json
from collections.abc import Iterator, Mapping, Sequence

import attrs

from machines.coding.calls import TOOLS
from machines.coding.events import CallRead
from machines.coding.history import UNKNOWN
from machines.coding.tools.workspace import Change
from machines.coding.work import Work, WorkCall
from machines.tool_use.records import JsonObject, read_record
from machines.tool_use.texts import shell_line, short

LONGEST = 110
_SHORT_ID, _MOST_FILES = 12, 20
_OWN = frozenset(tool.name for tool in TOOLS)
_LOOKING = frozenset(tool.name for tool in TOOLS if tool.kind == "looking")
_ENDED = {
    "timed out": "timed out",
    "stopped": "stopped",
    "disk": "ended: it wrote too much",
    "processes": "ended: it started too many processes",
    "lost": "nobody knows how it ended",
}


@attrs.frozen
class _Commit:
    commit: str
    subject: str


@attrs.frozen
class _Attachment:
    kind: str = ""
    type: str = ""
    uri: str = ""


@attrs.frozen
class Outcome:
    """What a result says, whichever tool it is of: texts, how a command has ended, what git says, what a server's tool gave beside its text."""

    output: object = None
    result: object = None
    text: object = None
    diff: object = None
    rc: int | None = None
    signal: str | None = None
    ended: str | None = None
    put_back: tuple[str, ...] = ()
    not_kept: tuple[str, ...] = ()
    commits: tuple[_Commit, ...] | None = None
    commit: str | None = None
    files: tuple[object, ...] | None = None
    clean: bool | None = None
    branch: str | None = None
    staged: tuple[object, ...] = ()
    changed: tuple[object, ...] = ()
    untracked: tuple[object, ...] = ()
    conflicts: tuple[object, ...] = ()
    left_staged: tuple[object, ...] = ()
    structured: object = None
    attachments: tuple[_Attachment, ...] = ()
    restarted: str = ""
    note: str = ""


def outcome_of(result: JsonObject | None) -> Outcome:
    """Read a result as it stands in the ledger."""
    return read_record(Outcome, result or {})


def text_of(said: Outcome) -> str:
    """Give what a call that was done says."""
    text = next(filter(None, (said.output, said.result, said.text, said.diff)), "")
    return str(text) or "\n".join([*_of_git(said), *_of_servers(said)])


def _of_git(said: Outcome) -> Iterator[str]:
    if said.commits is not None:
        yield from (f"{each.commit[:_SHORT_ID]} {each.subject}" for each in said.commits)
    elif said.commit and said.files is not None:
        yield f"commit {said.commit[:_SHORT_ID]}: {_listed(said.files)}"
    elif said.clean is not None:
        yield f"on {said.branch or 'no branch'}{', clean' if said.clean else ''}"
        for name in ("staged", "changed", "untracked", "conflicts"):
            if paths := getattr(said, name):
                yield f"{name}: {_listed(paths)}"


def _of_servers(said: Outcome) -> Iterator[str]:
    if said.structured is not None:
        yield json.dumps(said.structured, ensure_ascii=False)
    for each in said.attachments:
        yield " ".join(filter(None, (each.kind, each.type, each.uri)))


def _listed(entries: Sequence[object]) -> str:
    paths = [str(each["path"] if isinstance(each, Mapping) else each) for each in entries]
    more = f" and {len(paths) - _MOST_FILES} more" if len(paths) > _MOST_FILES else ""
    return ", ".join(paths[:_MOST_FILES]) + more


def remarks_on(said: Outcome) -> list[str]:
    """Say what there is to know of a call beside its text: how a command ended, what was put back, what the model was told."""
    found = [how_ended(said)] if said.rc or said.signal is not None or said.ended is not None else []
    if said.put_back:
        found.append(f"not for a command to write, and put back or taken away: {', '.join(said.put_back)}")
    if said.not_kept:
        found.append(f"changed, and not undone by dsa undo: {', '.join(said.not_kept)}")
    if said.restarted:
        found.append(said.restarted)
    if said.left_staged:
        found.append(f"left staged: {_listed(said.left_staged)}")
    return [*found, *([f"note: {said.note}"] if said.note else [])]


def how_changed(change: Change) -> str:
    """Say in a word what a call did to a file; of one that a .gitignore named before it nobody knows whether it was there."""
    if change.before == UNKNOWN:
        return "new, or there before and ignored"
    return "new" if change.before is None else "removed" if change.after is None else "changed"


def how_ended(said: Outcome) -> str:
    """Say how a command ended: its exit code, or what ended it."""
    if said.ended:
        return _ENDED.get(said.ended, f"ended: {said.ended}")
    return f"ended by {said.signal}" if said.signal else f"rc={said.rc}"


def arguments_shown(call: CallRead) -> str:
    """Write what a call is asked with in one line: a command, a path, a pattern, or all of it."""
    if call.argv:
        return short(shell_line(call.argv), LONGEST)
    shown = _short_form(call) if call.tool in _OWN else ""
    return short(shown or json.dumps(call.arguments, ensure_ascii=False), LONGEST)


def _short_form(call: CallRead) -> str:
    """Give what matters of the arguments of a tool of ours; a server's tool may mean anything by the same names."""
    given = call.arguments
    if call.tool == "search":
        where = [f"in {given['path']}"] if given.get("path", ".") != "." else []
        glob = [str(given["glob"])] if given.get("glob") else []
        return " ".join([json.dumps(given["pattern"], ensure_ascii=False), *where, *glob])
    if isinstance(given.get("cmd"), str):
        return str(given["cmd"])
    return ", ".join(_paths_in(call))


def _paths_in(call: CallRead) -> list[str]:
    """Name the files that a call is of."""
    if "path" in call.arguments:
        return [str(call.arguments["path"])]
    files = call.arguments.get("files")
    return [str(each["path"]) for each in files] if isinstance(files, list) else []


# -- the ledger for people ------------------------------------------------------------------------------------------------


def object_of(called: WorkCall) -> str:
    """Give what a call was to be done with: a file, a command, a pattern, or all that a server's tool was asked; nothing where it could not be read."""
    if called.about is None or not called.about.call_id:  # it was never read: nobody knows what its arguments mean
        return short(json.dumps(called.asked, ensure_ascii=False), LONGEST) if called.asked else ""
    return arguments_shown(attrs.evolve(called.about, tool=called.tool)) if called.about.arguments else ""


def log_lines(called: WorkCall) -> list[str]:
    """Give the lines of a call that was done; none for one that only looked."""
    call = called.about or CallRead()
    given, result = call.arguments, outcome_of(called.result)
    if called.tool == "run_cmd":
        return [f"CMD {shell_line(call.argv)} -> {how_ended(result)}"]
    if called.tool == "git_commit":
        return [f"COMMIT {str(result.commit)[:_SHORT_ID]} {' '.join(str(given.get('message')).split())}"]
    if called.tool == "write_tested":
        return [f"WRITE {given.get('path')}", f"WRITE {given.get('tests_path')}"]
    if call.kind == "changing":
        return [f"WRITE {path}" for path in _paths_in(call)]
    return [f"CALL {called.tool} {json.dumps(given, ensure_ascii=False)}"] if has_acted(called) else []


def has_acted(called: WorkCall) -> bool:
    """Tell whether a call has done more than look: written, run, or called a server's tool that does not say it only reads."""
    kind = called.about.kind if called.about else ""
    return called.status == "done" and called.tool not in _LOOKING and kind != "looking"


def was_idle(work: Work) -> bool:
    """Tell whether no call has written or run anything."""
    return not work.files_written and not any(map(has_acted, work.calls))
