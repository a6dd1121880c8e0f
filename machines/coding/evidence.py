"""Evidence that a subtask is completed: a result of a tool that fits what the subtask says, as far as that can be decided without a model.

Takes the text of a subtask and what tools have given since it began, says what is lacking. A subtask that begins with running or testing wants a command's
result; one that names files a result that has read, written or run one of them; any other one any result. That a result fits does not say that it is a good one. Pure.
"""

import posixpath
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs

from machines.coding.calls import TOOLS
from machines.coding.events import CallRead, Came
from machines.tool_use.records import JsonObject

_RUNS = frozenset({"run", "rerun", "run_cmd", "execute", "test", "retest", "pytest", "python"})
_COMMANDS = frozenset({"run_cmd", "write_tested"})
_OWN = frozenset(tool.name for tool in TOOLS)
#: How names of files end; what else has a dot in it (`e.g.`, `os.path`, `3.12`) names none.
_ENDINGS = frozenset(
    [
        "bat",
        "c",
        "cc",
        "cfg",
        "cpp",
        "cs",
        "css",
        "csv",
        "db",
        "dockerfile",
        "go",
        "h",
        "hpp",
        "htm",
        "html",
        "ini",
        "ipynb",
        "java",
        "js",
        "json",
        "jsx",
        "kt",
        "lock",
        "log",
        "lua",
        "md",
        "mjs",
        "php",
        "pl",
        "png",
        "proto",
        "ps1",
        "py",
        "pyi",
        "r",
        "rb",
        "rs",
        "rst",
        "sh",
        "sql",
        "sqlite",
        "svg",
        "swift",
        "tex",
        "toml",
        "ts",
        "tsx",
        "txt",
        "vue",
        "xml",
        "yaml",
        "yml",
    ]
)
_NO_FILES = frozenset({"d3.js", "express.js", "next.js", "node.js", "nuxt.js", "react.js", "three.js", "vue.js"})
_WORD = re.compile(r"[^\s\"'`(),;<>\[\]{}|=]+")


@attrs.frozen
class Given:
    """What a tool gave a result for: the tool, and the names of files that it has read, written or run, as far as the call or the result has them."""

    tool: str
    files: frozenset[str]


def given_of(call: CallRead, came: Came) -> Given:
    """Return what a call was for, by its event and by that of its result."""
    words = [value for value in call.arguments.values() if isinstance(value, str) and len(value) < _LONGEST]
    words += [str(file.get("path", "")) for file in _listed(call.arguments, "files") if isinstance(file, Mapping)]
    words += [word.partition("::")[0] for word in call.argv]
    words += [change.path for change in came.changes]
    words += [str(line).partition(":")[0] for line in _listed(came.result, "matches")]
    words += [str(each.get("path", "")) for each in _listed(came.result, "files") if isinstance(each, Mapping)]
    return Given(call.tool, frozenset(map(posixpath.basename, words)))


_LONGEST = 4_096


def _listed(result: JsonObject, name: str) -> Iterable[Any]:
    found = result.get(name)
    return found if isinstance(found, list) else ()


def lacking(subtask: str, results: Sequence[Given]) -> str:
    """Say what is lacking to show that a subtask is completed; nothing where a result fits it."""
    if not results:
        return "no tool has given a result in this subtask"
    if _first_word(subtask) in _RUNS:
        is_shown = any(
            each.tool in _COMMANDS or each.tool not in _OWN or each.tool in _words(subtask) for each in results
        )
        return "" if is_shown else "no command has given a result in this subtask, which says to run or test something"
    files = files_named(subtask)
    names = set(map(posixpath.basename, files))
    if not files or any(names & each.files for each in results):
        return ""
    return f"no tool has read, written or run {' or '.join(files)} in this subtask"


def files_named(text: str) -> list[str]:
    """Return the files that a text names, by how their names end."""
    return [word for word in _words(text) if _is_file(word)]


def _words(text: str) -> list[str]:
    """Return the words of a text, without what ends a sentence; each once."""
    return list(dict.fromkeys(word.rstrip(".:!?") for word in _WORD.findall(text)))


def _is_file(word: str) -> bool:
    stem, dot, ending = posixpath.basename(word).rpartition(".")
    is_odd = "://" in word or "*" in word or word.lower() in _NO_FILES
    return bool(stem and dot) and ending.lower() in _ENDINGS and not is_odd


def _first_word(text: str) -> str:
    return re.sub(r"[^a-z_]", "", text.lower().partition(" ")[0])
