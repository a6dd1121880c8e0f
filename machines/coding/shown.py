"""What a call gave, in lines for people: on the screen, in `agent_ledger.log`, and whether anything was done at all.

Takes results as they stand in the ledger, of our own tools and of those of MCP servers, gives texts. Pure.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from machines.coding.calls import TOOLS
from machines.coding.history import UNKNOWN
from machines.coding.standing import Called
from machines.coding.work import Work
from machines.talking.texts import shell_line, short

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


def text_of(result: Mapping[str, Any]) -> str:
    """Give what a call that was done says, whichever tool it was of."""
    said = next((result[name] for name in ("output", "result", "text", "diff") if result.get(name)), "")
    return str(said) or "\n".join([*_of_git(result), *_of_servers(result)])


def _of_git(result: Mapping[str, Any]) -> Iterator[str]:
    if "commits" in result:
        yield from (f"{each['commit'][:_SHORT_ID]} {each['subject']}" for each in result["commits"])
    elif result.get("commit") and "files" in result:
        yield f"commit {result['commit'][:_SHORT_ID]}: {_listed(result['files'])}"
    elif "clean" in result:
        yield f"on {result.get('branch') or 'no branch'}{', clean' if result['clean'] else ''}"
        for name in ("staged", "changed", "untracked", "conflicts"):
            paths = [each["path"] if isinstance(each, dict) else each for each in result.get(name) or ()]
            if paths:
                yield f"{name}: {_listed(paths)}"


def _of_servers(result: Mapping[str, Any]) -> Iterator[str]:
    if "structured" in result:
        yield json.dumps(result["structured"], ensure_ascii=False)
    for each in result.get("attachments") or ():
        yield " ".join(str(each[name]) for name in ("kind", "type", "uri") if each.get(name))


def _listed(paths: list[str]) -> str:
    more = f" and {len(paths) - _MOST_FILES} more" if len(paths) > _MOST_FILES else ""
    return ", ".join(paths[:_MOST_FILES]) + more


def remarks_on(result: Mapping[str, Any]) -> list[str]:
    """Say what there is to know of a call beside its text: how a command ended, what was put back, what the model was told."""
    found = [how_ended(result)] if result.get("rc") or "signal" in result or "ended" in result else []
    if result.get("put_back"):
        found.append(f"not for a command to write, and put back or taken away: {', '.join(result['put_back'])}")
    if result.get("not_kept"):
        found.append(f"changed, and not undone by dsa undo: {', '.join(result['not_kept'])}")
    if result.get("restarted"):
        found.append(str(result["restarted"]))
    if result.get("left_staged"):
        found.append(f"left staged: {_listed(result['left_staged'])}")
    return [*found, *([f"note: {result['note']}"] if result.get("note") else [])]


def how_changed(change: Mapping[str, Any]) -> str:
    """Say in a word what a call did to a file; of one that a .gitignore named before it nobody knows whether it was there."""
    if change["before"] == UNKNOWN:
        return "new, or there before and ignored"
    return "new" if change["before"] is None else "removed" if change["after"] is None else "changed"


def how_ended(result: Mapping[str, Any]) -> str:
    """Say how a command ended: its exit code, or what ended it."""
    if result.get("ended"):
        return _ENDED.get(result["ended"], f"ended: {result['ended']}")
    return f"ended by {result['signal']}" if result.get("signal") else f"rc={result.get('rc')}"


def arguments_shown(call: Mapping[str, Any]) -> str:
    """Write what a call is asked with in one line: a command, a path, a pattern, or all of it."""
    if call.get("argv"):
        return short(shell_line(call["argv"]), LONGEST)
    given = call["arguments"]
    shown = _short_form(call["tool"], given) if call["tool"] in _OWN else ""
    return short(shown or json.dumps(given, ensure_ascii=False), LONGEST)


def _short_form(tool: str, given: Mapping[str, Any]) -> str:
    """Give what matters of the arguments of a tool of ours; a server's tool may mean anything by the same names."""
    if tool == "search":
        where = [f"in {given['path']}"] if given.get("path", ".") != "." else []
        return " ".join(
            [json.dumps(given["pattern"], ensure_ascii=False), *where, *([given["glob"]] if given.get("glob") else [])]
        )
    if isinstance(given.get("cmd"), str):
        return str(given["cmd"])
    return str(given.get("path") or ", ".join(each["path"] for each in given.get("files") or ()))


# -- the ledger for people ------------------------------------------------------------------------------------------------


def object_of(called: Called) -> str:
    """Give what a call was to be done with: a file, a command, a pattern, or all that a server's tool was asked; nothing where it could not be read."""
    given = called.about.get("arguments")
    if "call_id" not in called.about:  # it was never read: nobody knows what its arguments mean
        return short(json.dumps(given, ensure_ascii=False), LONGEST) if given else ""
    return arguments_shown({**called.about, "tool": called.tool}) if given else ""


def log_lines(called: Called) -> list[str]:
    """Give the lines of a call that was done; none for one that only looked."""
    about, result = called.about, called.result if isinstance(called.result, Mapping) else {}
    given = about.get("arguments") or {}
    if called.tool == "run_cmd":
        return [f"CMD {shell_line(about.get('argv') or ())} -> {how_ended(result)}"]
    if called.tool == "git_commit":
        return [f"COMMIT {str(result.get('commit'))[:_SHORT_ID]} {' '.join(str(given.get('message')).split())}"]
    if called.tool == "write_tested":
        return [f"WRITE {given.get('path')}", f"WRITE {given.get('tests_path')}"]
    if about.get("kind") == "changing":
        return [
            f"WRITE {path}"
            for path in ([given["path"]] if "path" in given else [each["path"] for each in given.get("files") or ()])
        ]
    return [f"CALL {called.tool} {json.dumps(given, ensure_ascii=False)}"] if has_acted(called) else []


def has_acted(called: Called) -> bool:
    """Tell whether a call has done more than look: written, run, or called a server's tool that does not say it only reads."""
    return called.status == "done" and called.tool not in _LOOKING and called.about.get("kind") != "looking"


def was_idle(work: Work) -> bool:
    """Tell whether no call has written or run anything."""
    return not work.files_written and not any(map(has_acted, work.calls))
