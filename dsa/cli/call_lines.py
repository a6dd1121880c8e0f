"""The calls of policies as lines for people: as a tree, and one by one as they give something."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from dsa.cli.step_lines import SHORT_DIGEST, error_text, step_text
from dsa.cli.terminal import printable
from dsa.runtime.call_tree import CallNode, calls_of
from dsa.runtime.ledger import CallEntry, CallResultEntry, DecidedEntry, Entry, Handling, ResultEntry, ResumedEntry
from dsa.runtime.moment import Moment
from dsa.words import shortened

HANDLED: dict[Handling, str] = {
    "retry": "it is asked for again",
    "ask": "somebody is asked",
    "fail": "it counts as failed",
    "done": "it counts as done",
    "again": "it is asked for again",
}


def tree_lines(calls: Iterable[CallNode]) -> Iterator[str]:
    """Return the tree of calls: each with its place, request and digest, and below it what came of it."""
    calls = tuple(calls)
    width = max((len(call.path) for call in calls), default=0)
    for call in calls:
        before = " " * (width + 2 * call.path.count("."))
        cached = "  cached" if call.is_cached else ""
        yield f"{call.path:<{width}}{before[width:]}{_request(call)}  {call.digest[:SHORT_DIGEST]}{cached}"
        yield from (f"{before}  {outcome}" for outcome in _outcome(call))


def _request(call: CallNode) -> str:
    return f"{call.policy}, a turn" if call.payload is None else f"{call.policy} {shortened(call.payload)}"


def _outcome(call: CallNode) -> Iterator[str]:
    """Say what came of a call, as far as no call below it says so."""
    yield from map(happened_text, call.happened)
    yield from map(step_text, call.own)
    if call.steps == ():
        yield "gave nothing"
    elif call.steps is None and call.is_over:
        yield "nobody waited for what it gives"
    elif call.steps is None and not call.is_stopped:
        yield "has given nothing yet"


def happened_text(what: Mapping[str, Any] | Handling) -> str:
    """Say what was recorded of a call beside its result."""
    if isinstance(what, str):
        why = "it had failed" if what == "again" else "it was under way when the run was cut off"
        return f"resumed: {why}; {HANDLED[what]}"
    return f"failed: {error_text(what)}"


class CallDisplay:
    """Prints a line for each call that gives something of its own, and for what else happens to one."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._entries: list[Entry] = []
        self._policies: dict[str, str] = {}
        self._shown: dict[str, int] = {}
        self._is_quiet = False

    def on_moment(self, moment: Moment, is_new: bool) -> None:  # noqa: FBT001  (the observer interface)
        """Show what happened; what was there before the run was taken up is only noted."""
        is_quiet, self._is_quiet = self._is_quiet, not is_new
        self._take(moment.entry)
        self._is_quiet = is_quiet

    def _take(self, entry: Entry) -> None:
        self._entries.append(entry)
        match entry:
            case CallEntry(path=path, policy=policy):
                self._policies[path] = policy
            case CallResultEntry(path=path, steps=steps) if "." in path.partition(".")[2]:
                for step in steps:
                    if step["id"].rpartition("/")[0] == path:
                        self._print(path, step_text(step))
            case DecidedEntry(key=key) | ResultEntry(key=key):
                self._note(key)
            case ResumedEntry(effects=effects):
                for key, _ in effects:
                    self._note(key)

    def _note(self, key: str) -> None:
        for call in calls_of(self._entries, key):
            for what in call.happened[self._shown.get(call.path, 0) :]:
                self._print(call.path, happened_text(what))
            self._shown[call.path] = len(call.happened)

    def _print(self, path: str, said: str) -> None:
        if self._is_quiet:
            return
        text = printable(f"{path:<7}  {self._policies.get(path, '')}: {said}")
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    def rests(self, directory: Path, /) -> None:
        """Show nothing: how the run rests is said by the command."""

    def end(self) -> None:
        """End nothing: every line is whole."""
