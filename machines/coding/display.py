"""The work on a terminal: the model's text as it comes, a line for each call and what came of it, tasks as they are completed.

Takes moments and pieces of text in the order in which they come. It writes; it decides nothing.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from dsa.cli.kept import line as pasted
from dsa.cli.spent import dollars, plural
from dsa.cli.terminal import printable
from dsa.expr import Value
from dsa.runs.place import PART_OF
from dsa.runtime.ledger import Entry, EventEntry, MachineEntry, ResultEntry, RowEntry
from dsa.runtime.moment import Moment
from machines.coding.shown import LONGEST, arguments_shown, how_changed, remarks_on, text_of
from machines.coding.standing import REASONS
from machines.coding.work import Work
from machines.talking.answers import is_left_out
from machines.talking.texts import short

_MOST_LINES = 12
_PAUSING = frozenset({"decompose", "ask_model", "work_apart"})
_STYLES = {
    "call_looping": "red", "path_outside_workspace": "red", "command_not_allowed": "red", "goal_complete": "green",
    "subtask_completed": "green",
}  # fmt: skip


class Display:
    """Shows the work. Give its methods to `Agent` as `on_moment`, `listen` and `notice`. `part` is the place of the part that it shows."""

    def __init__(self, console: Console, part: str = "") -> None:
        self._console, self._part = console, part
        self._run, self._parts = "", dict[str, Display]()
        self._arrived: EventEntry | None = None
        self._is_in_line = self._has_text = False
        self._bounds: Mapping[str, Value] = {}
        self._tokens, self._usd, self._seconds = 0, 0.0, 0.0
        self._tool = ""
        self._asked: str | None = None
        self._place = 0

    def listen(self, text: str) -> None:
        """Show a piece of the model's text."""
        if self._part:  # others write at the same time
            self._line(text.strip(), "")
            return
        self._console.print(Text(printable(text)), end="", soft_wrap=True)
        self._has_text = True
        self._is_in_line = not text.endswith("\n") if text else self._is_in_line

    def taken_up(self, goal: str) -> None:
        """Say at what the work is done."""
        self._line(f"goal: {goal}", "bold")

    def notice(self, text: str) -> None:
        """Show why the model is asked again, or what cannot be written down."""
        self._line(text, "yellow")

    def on_moment(self, moment: Moment, is_new: bool) -> None:  # noqa: FBT001  (the observer interface)
        """Show what has happened in the run or in a part of it; what was there before it was taken up is only counted."""
        self._run = self._run or moment.run
        place = moment.run.removeprefix(f"{self._run}{PART_OF}")
        if place != self._run:
            self._parts.setdefault(place, Display(self._console, place)).on_moment(moment, is_new)
            return
        self._console.quiet = not is_new
        self._show(moment.entry)
        self._console.quiet, self._is_in_line = False, self._is_in_line and is_new

    def _show(self, entry: Entry) -> None:
        if isinstance(entry, MachineEntry):
            self._bounds = dict(entry.parameters)
        elif isinstance(entry, EventEntry):
            self._arrived = entry
        elif isinstance(entry, RowEntry) and self._arrived is not None:
            self._place = self._arrived.seq  # an event that is refused takes no row, and moves no question
            data: Any = self._arrived.data if isinstance(self._arrived.data, dict) else {}
            self._asked = None  # whatever has happened since, the question is answered
            self._happened(self._arrived.event, data, entry)
        elif isinstance(entry, ResultEntry):
            self._seconds += entry.seconds
            self._told(entry)

    def _happened(self, event: str, data: Any, step: RowEntry) -> None:  # noqa: ANN401  (JSON)
        usage = data.get("usage") or {}
        self._tokens += sum(usage.get(name) or 0 for name in ("prompt_tokens", "completion_tokens"))
        self._usd += usage.get("cost_usd") or 0
        if event == "probed" and "rounds" in dict(step.changed):
            of = f" of {self._bounds['max_rounds']}" if self._bounds else ""
            taken = _taken(self._seconds, self._tokens, self._usd)
            self._line(f"round {dict(step.changed)['rounds']}{of}, {taken} so far", "dim")
        if event in {"goal", "planned"} and not self._part:
            self._line(f"goal: {data['text']}", "bold")
        if event in {"planned", "decomposed"} and step.target.endswith("starting") and not self._part:
            for number, task in enumerate(data.get("tasks") or (), 1):
                self._line(f"{number}. {task['description']}", "bold")
                for subtask in task["subtasks"]:
                    self._line(f"   - {subtask}", "")
        if event == "apart" and step.target.endswith("delegating"):
            self._line(f"together: {', '.join(data['places'])}", "bold")
        if event in {"asked", "said", "cut_off"}:
            if data.get("content") and not self._has_text:
                self.listen(data["content"])
            self._has_text = False
        if event == "tool_call":
            self._tool = data["tool"]
            self._line(f"{data['tool']}  {arguments_shown(data)}", "cyan")
        if event in {"tool_done", "tool_failed"}:
            self._result(data)

    def _result(self, data: Any) -> None:  # noqa: ANN401  (JSON)
        result = data["result"]
        if "error" in result:
            self._line(f"  {result['error']['code']}: {short(result['error']['message'], LONGEST)}", "red")
        else:
            self._gave(result)
        for change in data.get("changes") or ():
            self._line(f"  {how_changed(change)}: {change['path']}", "green")
        if data.get("unkept"):
            self._line(f"  {short(data['unkept'], 4 * LONGEST)}", "yellow")

    def _gave(self, result: Mapping[str, Any]) -> None:
        lines = text_of(result).splitlines()
        for line in lines[:_MOST_LINES]:
            self._line(f"  {line}", "dim")
        if len(lines) > _MOST_LINES:
            self._line(f"  .. {len(lines) - _MOST_LINES} more lines", "dim")
        for remark in remarks_on(result):
            self._line(f"  {short(remark, 2 * LONGEST)}", "yellow")

    def _told(self, entry: ResultEntry) -> None:
        for step in entry.steps:
            told = step["payload"]
            if step["actor"] == "ask_approval" and not entry.failed:
                self._asked = str(told.get("diff", ""))
            if not isinstance(told, dict):
                continue
            reason = told.get("reason")
            if reason in REASONS and not (self._part and reason == "goal_complete"):  # the whole tells of that
                text = short(str(told.get("text")), 2 * LONGEST)
                self._line(f"[{reason}] {text}", _STYLES.get(reason, "yellow"))
            if left := _not_made(told):
                self._line(f"  {plural(left, 'call')} behind it {'was' if left == 1 else 'were'} not made", "yellow")
            is_told_later = step["actor"] in _PAUSING  # by the pause that follows
            if entry.failed and told.get("error") is True and not is_told_later:
                self._line(f"[failed] {step['actor']}: {short(str(told.get('message')), 2 * LONGEST)}", "red")

    def asks(self, tool: str, shown: str) -> None:
        """Show a call for which leave is asked, whole: what is not seen is not to be let happen."""
        self._line(f"leave is asked for {tool}:", "bold")
        for line in shown.splitlines():
            self._line(f"  {line}", "green" if line.startswith("+") else "red" if line.startswith("-") else "dim")

    def rests(self, directory: Path) -> None:
        """Show the call for which leave is asked, as it was when it was asked for, and what can be sent."""
        if self._asked is not None:
            self.asks(self._tool, self._asked)
            self.can_be_sent(directory)

    def can_be_sent(self, directory: Path) -> None:
        """Say how leave is given: for this call alone, by the place of the question."""
        self.say(
            f"let it happen: {pasted('send', directory, 'permitted', at=str(self._place))}; or: permitted always, denied WHY"
        )

    def _line(self, text: str, style: str) -> None:
        self.end()
        for line in text.splitlines() or [""]:
            badge = Text(f"{self._part}| ", style="magenta") if self._part else Text()
            self._console.print(badge + Text(printable(line), style=style), soft_wrap=True)

    def end(self) -> None:
        """End a line that the model has begun."""
        if self._is_in_line:
            self._console.print()
            self._is_in_line = False

    def say(self, text: str) -> None:
        """Show a line of our own."""
        self._line(text, "")


def of_run(console: Console, _root: Path) -> Display:
    """Return what shows a run as it was shown: its records name no files of its folder."""
    return Display(console)


def _not_made(told: Mapping[str, Any]) -> int:
    """Count the calls that were left out behind another one, whose reason is told."""
    if told.get("reason") == "too_many_calls":
        return 0
    return sum(map(is_left_out, (told.get("results") or {}).values()))


def _taken(seconds: float, tokens: int, usd: float) -> str:
    """Write what model and tools have taken; what nobody has counted is left out."""
    counted = (f", {tokens:,} tokens" if tokens else "", f", {dollars(usd)}" if usd else "")
    return f"{seconds:.1f} s{''.join(counted)}"


def totals(work: Work, rounds: int) -> str:
    """Say what the work has taken."""
    calls, files = sum(work.tools.values()), len(work.files_written)
    of_parts = f" and {work.asked_apart} in parts" if work.asked_apart else ""
    tokens = int(work.usage["prompt_tokens"] + work.usage["completion_tokens"])
    taken = _taken(work.seconds, tokens, work.usage.get("cost_usd", 0.0))
    return f"{plural(rounds, 'round')}{of_parts}, {plural(calls, 'call')} of tools, {plural(files, 'file')}, {taken}"
