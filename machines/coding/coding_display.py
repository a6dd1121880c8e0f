"""The work on a terminal: the model's text as it comes, a line for each call and what came of it, tasks as they are completed.

Takes moments and pieces of text in the order in which they come. It writes; it decides nothing.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

import attrs
from rich.console import Console

from dsa.cli.ledger_view import dollars
from dsa.cli.run_options import line as pasted
from dsa.expr import Value
from dsa.runs.place import PART_OF
from dsa.runtime.ledger import Entry, EventEntry, MachineEntry, ResultEntry, RowEntry
from dsa.runtime.timeline import Moment
from dsa.text import plural
from machines.coding.coding_work import Work
from machines.coding.task_plan import (
    REASONS,
    Apart,
    CodingCall,
    CodingResult,
    Decomposition,
    Goal,
    PartsDone,
    Task,
    WorkNotice,
)
from machines.coding.workspace_view import (
    LONGEST,
    CallOutcome,
    arguments_shown,
    how_changed,
    outcome_of,
    remarks_on,
    text_of,
)
from machines.tool_use.machine_session import Lines
from machines.tool_use.records import JsonObject, read_record, short
from machines.tool_use.tool_call import LEFT_OUT, ModelAnswer, ToolResult
from machines.tool_use.transcript import notices_in

_MOST_LINES = 12
_PAUSING = frozenset({"decompose", "ask_model", "work_apart"})
_STYLES = {
    "call_looping": "red", "path_outside_workspace": "red", "command_not_allowed": "red", "goal_complete": "green",
    "subtask_completed": "green",
}  # fmt: skip


class CodingDisplay(Lines):
    """Shows the work. Give its methods to `Agent` as `on_moment`, `listen` and `notice`. `part` is the place of the part that it shows."""

    def __init__(self, console: Console, part: str = "") -> None:
        super().__init__(console, part)
        self._run, self._parts = "", dict[str, CodingDisplay]()
        self._arrived: EventEntry | None = None
        self._bounds: Mapping[str, Value] = {}
        self._tokens, self._usd, self._seconds = 0, 0.0, 0.0
        self._tool = ""
        self._asked: str | None = None
        self._place = 0

    def taken_up(self, goal: str) -> None:
        """Say at what the work is done."""
        self.line(f"goal: {goal}", "bold")

    def notice(self, text: str) -> None:
        """Show why the model is asked again, or what cannot be written down."""
        self.line(text, "yellow")

    def on_moment(self, moment: Moment, is_new: bool) -> None:  # noqa: FBT001  (the observer interface)
        """Show what has happened in the run or in a part of it; what was there before it was taken up is only counted."""
        self._run = self._run or moment.run
        place = moment.run.removeprefix(f"{self._run}{PART_OF}")
        if place != self._run:
            self._parts.setdefault(place, CodingDisplay(self.console, place)).on_moment(moment, is_new)
            return
        self.console.quiet = not is_new
        self._show(moment.entry)
        self.console.quiet, self.is_in_line = False, self.is_in_line and is_new

    def _show(self, entry: Entry) -> None:
        if isinstance(entry, MachineEntry):
            self._bounds = dict(entry.parameters)
        elif isinstance(entry, EventEntry):
            self._arrived = entry
        elif isinstance(entry, RowEntry) and self._arrived is not None:
            self._place = self._arrived.seq  # an event that is refused takes no row, and moves no question
            self._asked = None  # whatever has happened since, the question is answered
            self._happened(self._arrived.event, self._arrived.data, entry)
        elif isinstance(entry, ResultEntry):
            self._seconds += entry.seconds
            self._told(entry)

    def _happened(self, event: str, data: object, step: RowEntry) -> None:
        data = data if isinstance(data, dict) else {}
        if event == "probed" and "rounds" in dict(step.changed):
            of = f" of {self._bounds['max_rounds']}" if self._bounds else ""
            taken = _taken(self._seconds, self._tokens, self._usd)
            self.line(f"round {dict(step.changed)['rounds']}{of}, {taken} so far", "dim")
        if event in {"goal", "planned"} and not self.part:
            goal = read_record(Goal, data)
            self.line(f"goal: {goal.text}", "bold")
            self._tasks(goal.tasks or (), step)
        if event == "decomposed":
            plan = read_record(Decomposition, data)
            self._count(plan)
            self._tasks(plan.tasks, step)
        if event == "apart" and step.target.endswith("delegating"):
            self.line(f"together: {', '.join(read_record(Apart, data).places)}", "bold")
        if event in {"asked", "said", "cut_off"}:
            answer = read_record(ModelAnswer, data)
            self._count(answer)
            if answer.content and not self.has_text:
                self.listen(answer.content)
            self.has_text = False
        if event == "tool_call":
            call = read_record(CodingCall, data)
            self._tool = call.tool
            self.line(f"{call.tool}  {arguments_shown(call)}", "cyan")
        if event in {"tool_done", "tool_failed"}:
            self._result(read_record(CodingResult, data))
        if event in {"parts_done", "parts_failed"}:
            self._add(read_record(PartsDone, data).usage)

    def _count(self, answer: ModelAnswer) -> None:
        self._add(attrs.asdict(answer.usage))

    def _add(self, usage: JsonObject) -> None:
        taken = {name: value for name, value in usage.items() if isinstance(value, int | float)}
        self._tokens += int(sum(taken.get(name, 0) for name in ("prompt_tokens", "completion_tokens")))
        self._usd += taken.get("cost_usd", 0)

    def _tasks(self, tasks: Iterable[Task], step: RowEntry) -> None:
        """Show tasks with which the work begins."""
        if self.part or not step.target.endswith("starting"):
            return
        for number, task in enumerate(tasks, 1):
            self.line(f"{number}. {task.description}", "bold")
            for subtask in task.subtasks:
                self.line(f"   - {subtask}", "")

    def _result(self, came: CodingResult) -> None:
        self._add(came.usage)
        fault = ToolResult(came.call_id, came.result).fault
        if fault is not None:
            self.line(f"  {fault.code}: {short(fault.message, LONGEST)}", "red")
        else:
            self._gave(outcome_of(came.result))
        for change in came.changes:
            self.line(f"  {how_changed(change)}: {change.path}", "green")
        if came.unkept:
            self.line(f"  {short(came.unkept, 4 * LONGEST)}", "yellow")

    def _gave(self, outcome: CallOutcome) -> None:
        lines = text_of(outcome).splitlines()
        for line in lines[:_MOST_LINES]:
            self.line(f"  {line}", "dim")
        if len(lines) > _MOST_LINES:
            self.line(f"  .. {len(lines) - _MOST_LINES} more lines", "dim")
        for remark in remarks_on(outcome):
            self.line(f"  {short(remark, 2 * LONGEST)}", "yellow")

    def _told(self, entry: ResultEntry) -> None:
        for step in entry.steps:
            told = step["payload"] if isinstance(step["payload"], dict) else {}
            if step["actor"] == "ask_approval" and not entry.has_failed:
                self._asked = str(told.get("diff", ""))
            is_told_later = step["actor"] in _PAUSING  # by the pause that follows
            if entry.has_failed and told.get("error") is True and not is_told_later:
                self.line(f"[failed] {step['actor']}: {short(str(told.get('message')), 2 * LONGEST)}", "red")
        for notice in notices_in(entry, WorkNotice, REASONS):
            if not (self.part and notice.reason == "goal_complete"):  # the whole tells of that
                text = short(notice.text, 2 * LONGEST)
                self.line(f"[{notice.reason}] {text}", _STYLES.get(notice.reason, "yellow"))
            if left := _not_made(notice):
                self.line(f"  {plural(left, 'call')} behind it {'was' if left == 1 else 'were'} not made", "yellow")

    def asks(self, tool: str, shown: str) -> None:
        """Show a call for which leave is asked, whole: what is not seen is not to be let happen."""
        self.line(f"leave is asked for {tool}:", "bold")
        for line in shown.splitlines():
            self.line(f"  {line}", "green" if line.startswith("+") else "red" if line.startswith("-") else "dim")

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


def of_run(console: Console, _root: Path) -> CodingDisplay:
    """Return what shows a run as it was shown: its records name no files of its folder."""
    return CodingDisplay(console)


def _not_made(told: WorkNotice) -> int:
    """Count the calls that were left out behind another one, whose reason is told."""
    if told.reason == LEFT_OUT:
        return 0
    return sum(ToolResult(name, content).is_left_out for name, content in told.results.items())


def _taken(seconds: float, tokens: int, usd: float) -> str:
    """Write what model and tools have taken; what nobody has counted is left out."""
    counted = (f", {tokens:,} tokens" if tokens else "", f", {dollars(usd)}" if usd else "")
    return f"{seconds:.1f} s{''.join(counted)}"


def totals(work: Work, rounds: int) -> str:
    """Return what the work has taken."""
    calls, files = sum(work.tools.values()), len(work.files_written)
    of_parts = f" and {work.asked_apart} in parts" if work.asked_apart else ""
    tokens = int(work.usage["prompt_tokens"] + work.usage["completion_tokens"])
    taken = _taken(work.seconds, tokens, work.usage.get("cost_usd", 0.0))
    return f"{plural(rounds, 'round')}{of_parts}, {plural(calls, 'call')} of tools, {plural(files, 'file')}, {taken}"
