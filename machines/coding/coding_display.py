"""Displays of the work: on a terminal, the model's text as it comes and a line for each call and its result; on the page of a run, the plan and the calls.

They take what is recorded, in order, and only show it.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

import attrs
from rich.console import Console

from dsa.cli.ledger_view import dollars
from dsa.cli.run_options import shell_command as pasted
from dsa.expr import Value
from dsa.runs.door import Runs
from dsa.runs.handle import RunHandle
from dsa.runs.machine_extension import StartField, StartForm
from dsa.runs.place import PART_OF
from dsa.runtime.ledger import EffectEntry, Entry, EventEntry, MachineEntry, ResultEntry, RowEntry
from dsa.runtime.timeline import Moment
from dsa.text import plural
from dsa.web.markup import EMPTY, Markup, badge, diff_lines, join, long_text, tag
from machines.coding.coding_resources import MODES, CodingSettings
from machines.coding.coding_work import Work, WorkCall
from machines.coding.configuration import read_configuration, settings_to_start
from machines.coding.task_plan import (
    BADGES,
    NOT_MADE,
    REASONS,
    Apart,
    CodingCall,
    CodingResult,
    Decomposition,
    Goal,
    PartsDone,
    Subtask,
    Task,
    WorkNotice,
)
from machines.coding.work_session import WorkStart, begin_in_background, is_home, unfinished_run, workspace_refusal
from machines.coding.workspace_view import (
    LONGEST,
    CallOutcome,
    arguments_text,
    change_word,
    outcome_of,
    remarks_on,
    text_of,
)
from machines.tool_use.machine_session import Lines
from machines.tool_use.records import JsonObject, one_line, read_record
from machines.tool_use.tool_call import LEFT_OUT, ModelAnswer, ToolResult
from machines.tool_use.transcript import notices_in

_MOST_LINES = 12
_MODEL_EFFECTS = frozenset({"decompose", "ask_model", "work_apart"})
_STYLES = {
    "call_looping": "red", "path_outside_workspace": "red", "command_not_allowed": "red", "goal_complete": "green",
    "subtask_completed": "green",
}  # fmt: skip


class CodingDisplay(Lines):
    """The display of the work. Pass its methods to `Agent` as `on_moment`, `listen` and `notice`. `part` is the place of the part that it shows.

    The line of a call is printed when it begins or is refused. Its result is right below that line, or below another line that names the call again.
    """

    def __init__(self, console: Console, part: str = "") -> None:
        super().__init__(console, part)
        self._run, self._parts = "", dict[str, CodingDisplay]()
        self._last_event: EventEntry | None = None
        self._bounds: Mapping[str, Value] = {}
        self._tokens, self._usd, self._seconds = 0, 0.0, 0.0
        #: The call that was taken, until its effect says whether it begins or waits; those that have a line; and the one that the lines above are about.
        self._taken_call: CodingCall | None = None
        self._calls: dict[str, CodingCall] = {}
        self._shown_call_id = ""
        self._question: str | None = None
        self._place = 0

    def show_goal(self, goal: str) -> None:
        """Show the goal."""
        self.line(f"goal: {goal}", "bold")

    def notice(self, text: str) -> None:
        """Show why the model is asked again, or which file cannot be written."""
        self.line(text, "yellow")

    def on_moment(self, moment: Moment, is_new: bool) -> None:  # noqa: FBT001  (the observer interface)
        """Show a moment of the run or of a part. Older moments of a resumed run are only counted."""
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
            self._last_event = entry
        elif isinstance(entry, RowEntry) and self._last_event is not None:
            self._place = self._last_event.seq  # a refused event takes no row and leaves the question open
            self._question = None  # any row answers the question
            self._take_event(self._last_event.event, self._last_event.data, entry)
        elif isinstance(entry, EffectEntry):
            if self._taken_call is not None and entry.effect != "hold_call":
                self._show_call(self._taken_call)
            self._taken_call = None
        elif isinstance(entry, ResultEntry):
            self._seconds += entry.seconds
            self._take_result(entry)

    def _take_event(self, event: str, data: object, step: RowEntry) -> None:
        data = data if isinstance(data, dict) else {}
        if event == "probed" and "rounds" in dict(step.changed):
            of = f" of {self._bounds['max_rounds']}" if self._bounds else ""
            totals_text = _totals_text(self._seconds, self._tokens, self._usd)
            self.line(f"round {dict(step.changed)['rounds']}{of}, {totals_text} so far", "dim")
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
            self._calls.clear()
            answer = read_record(ModelAnswer, data)
            self._count(answer)
            if answer.content and not self.has_text:
                self.listen(answer.content)
            self.has_text = False
        if event == "tool_call":
            self._taken_call = read_record(CodingCall, data)
        if event in {"tool_done", "tool_failed"}:
            result = read_record(CodingResult, data)
            self._name_call(result.call_id)
            self._result(result)
        if event in {"parts_done", "parts_failed"}:
            self._add(read_record(PartsDone, data).usage)

    def _show_call(self, call: CodingCall) -> None:
        self._calls[call.call_id], self._shown_call_id = call, call.call_id
        self.line(_call_line(call), "cyan")

    def _name_call(self, call_id: str) -> None:
        """Name a call again, unless the lines above are about it."""
        call = self._calls.get(call_id)
        if call is not None and call_id != self._shown_call_id:
            self.line(f"result of {_call_line(call)}", "cyan")
            self._shown_call_id = call_id

    def _count(self, answer: ModelAnswer) -> None:
        self._add(attrs.asdict(answer.usage))

    def _add(self, usage: JsonObject) -> None:
        amounts = {name: value for name, value in usage.items() if isinstance(value, int | float)}
        self._tokens += int(sum(amounts.get(name, 0) for name in ("prompt_tokens", "completion_tokens")))
        self._usd += amounts.get("cost_usd", 0)

    def _tasks(self, tasks: Iterable[Task], step: RowEntry) -> None:
        """Show the tasks when the work begins."""
        if self.part or not step.target.endswith("starting"):
            return
        for number, task in enumerate(tasks, 1):
            self.line(f"{number}. {task.description}", "bold")
            for subtask in task.subtasks:
                self.line(f"   - {subtask}", "")

    def _result(self, result: CodingResult) -> None:
        self._add(result.usage)
        fault = ToolResult(result.call_id, result.result).fault
        if fault is not None:
            self.line(f"  {fault.code}: {one_line(fault.message, LONGEST)}", "red")
        else:
            self._show_outcome(outcome_of(result.result))
        for change in result.changes:
            self.line(f"  {change_word(change)}: {change.path}", "green")
        if result.unkept:
            self.line(f"  {one_line(result.unkept, 4 * LONGEST)}", "yellow")

    def _show_outcome(self, outcome: CallOutcome) -> None:
        lines = text_of(outcome).splitlines()
        for line in lines[:_MOST_LINES]:
            self.line(f"  {line}", "dim")
        if len(lines) > _MOST_LINES:
            self.line(f"  .. {len(lines) - _MOST_LINES} more lines", "dim")
        for remark in remarks_on(outcome):
            self.line(f"  {one_line(remark, 2 * LONGEST)}", "yellow")

    def _take_result(self, entry: ResultEntry) -> None:
        for step in entry.steps:
            payload = step["payload"] if isinstance(step["payload"], dict) else {}
            if step["actor"] == "ask_approval" and not entry.has_failed:
                self._question = str(payload.get("diff", ""))
            is_shown_later = step["actor"] in _MODEL_EFFECTS  # the next pause shows it
            if entry.has_failed and payload.get("error") is True and not is_shown_later:
                self.line(f"{step['actor']} failed: {one_line(str(payload.get('message')), 2 * LONGEST)}", "red")
        for notice in notices_in(entry, WorkNotice, REASONS):
            if not (self.part and notice.reason == "goal_complete"):  # the whole run shows that
                self._notice(notice)
            if left := _left_out_count(notice):
                self.line(f"  {plural(left, 'call')} after it {'was' if left == 1 else 'were'} not made", "yellow")

    def _notice(self, notice: WorkNotice) -> None:
        """Show a notice: with its name in brackets for a call that was not made, as a sentence for anything else."""
        name = f"[{notice.reason}]" if notice.reason in NOT_MADE else f"{notice.reason.replace('_', ' ')}:"
        self.line(f"{name} {one_line(notice.text, 2 * LONGEST)}", _STYLES.get(notice.reason, "yellow"))

    def asks(self, tool: str, text: str) -> None:
        """Show the whole call that needs permission: nobody should permit what they cannot see."""
        self.line(f"{tool} needs permission:", "bold")
        for line in text.splitlines():
            self.line(f"  {line}", "green" if line.startswith("+") else "red" if line.startswith("-") else "dim")

    def rests(self, directory: Path) -> None:
        """Show the call that needs permission, as it was at the question, and the possible answers."""
        if self._question is not None:
            self.asks(self._calls[self._shown_call_id].tool, self._question)
            self.can_be_sent(directory)

    def can_be_sent(self, directory: Path) -> None:
        """Print the command that permits this call, with the place of the question."""
        self.say(
            f"to allow this call: {pasted('send', directory, 'permitted', at=str(self._place))}; other answers: permitted always, denied WHY"
        )


def of_run(console: Console, _root: Path) -> CodingDisplay:
    """Return a display for a recorded run."""
    return CodingDisplay(console)


def _call_line(call: CodingCall) -> str:
    return f"{call.tool}  {arguments_text(call)}"


def _left_out_count(notice: WorkNotice) -> int:
    """Return the number of calls that were left out after the call of a notice."""
    if notice.reason == LEFT_OUT:
        return 0
    return sum(ToolResult(name, content).is_left_out for name, content in notice.results.items())


def _totals_text(seconds: float, tokens: int, usd: float) -> str:
    """Return time, tokens and cost as text; unknown amounts are left out."""
    amounts = (f", {tokens:,} tokens" if tokens else "", f", {dollars(usd)}" if usd else "")
    return f"{seconds:.1f} s{''.join(amounts)}"


def totals(work: Work, rounds: int) -> str:
    """Return the totals of the work as text."""
    calls, files = sum(work.tools.values()), len(work.files_written)
    of_parts = f" and {work.answers_apart} in parts" if work.answers_apart else ""
    tokens = int(work.usage["prompt_tokens"] + work.usage["completion_tokens"])
    totals_text = _totals_text(work.seconds, tokens, work.usage.get("cost_usd", 0.0))
    return (
        f"{plural(rounds, 'round')}{of_parts}, {plural(calls, 'call')} of tools, {plural(files, 'file')}, {totals_text}"
    )


# -- the page of a run -----------------------------------------------------------------------------------------------------

#: The newest calls that a page shows, and the most characters of one text.
_MOST_CALLS, _MOST_TEXT = 50, 20_000


class CodingPage:
    """The view of a coding run (`dsa.runs.machine_extension.RunView`): the plan, the calls, the files that changed, and the call that needs permission.

    Nobody should permit what they cannot see, so that call is shown whole.
    """

    texts: Mapping[str, str] = {
        "permitted": "Leave this empty to permit only this call; write 'always' to permit similar calls too",
        "denied": "The reason, for the model; may be empty",
    }

    def __init__(self, address: str, _folder: Path | None) -> None:
        self._address, self._work = address, Work()
        self._notices: dict[str, WorkNotice] = {}
        self._question: str | None = None
        self._tool = ""

    def take(self, entry: Entry) -> None:
        """Read another entry of the run."""
        self._work.take([entry])
        if isinstance(entry, RowEntry):
            self._question = None  # any row answers the question
        elif isinstance(entry, ResultEntry):
            for notice in notices_in(entry, WorkNotice, REASONS):
                self._notices |= dict.fromkeys(notice.results, notice)
            for step in entry.steps:
                payload = step["payload"]
                if step["actor"] == "ask_approval" and isinstance(payload, dict) and not entry.has_failed:
                    self._question = str(payload.get("diff", ""))
                    self._tool = self._work.call.tool if self._work.call is not None else ""

    def file(self, _name: str) -> bytes | None:
        """Return None: the files are in the workspace."""
        return None

    def markup(self) -> Markup:
        """Return the work as it is now."""
        work = self._work
        plan = [
            tag("li", chapter.description, tag("ul", [_subtask(each) for each in chapter.subtasks], class_="plain"))
            for chapter in work.chapters
        ]
        changes = {change.path: change_word(change) for move in work.moves for change in move.changes}
        files = [tag("li", badge(word), " ", tag("code", path)) for path, word in changes.items()]
        return join(
            tag("h2", "The plan"),
            tag("p", work.goal, class_="asked"),
            tag("ol", plan) if plan else tag("p", "There is no plan yet.", class_="hint"),
            tag("h2", "The calls"),
            self.earlier(len(work.calls) + 1)
            if work.calls
            else tag("p", "The model has not asked for a call yet.", class_="hint"),
            [tag("h2", "Files that changed"), tag("ul", files, class_="plain")] if files else None,
            tag("p", work.answer, class_="said") if work.answer else None,
            self._asks(),
        )

    def earlier(self, before: int) -> Markup:
        """Return the calls before the one with this number, the newest of them, with a link to those before."""
        calls = self._work.calls[: max(0, before - 1)]
        first = max(0, len(calls) - _MOST_CALLS)
        address = f"{self._address}/earlier?before={first + 1}"
        link = tag("p", tag("a", f"The {plural(first, 'call')} before these", href=address)) if first else None
        return join(link, [self._call(call) for call in calls[first:]])

    def _asks(self) -> Markup:
        """Return the whole call that needs permission, as it was when the person was asked."""
        if self._question is None:
            return EMPTY
        return join(tag("h2", f"{self._tool} needs permission"), diff_lines(self._question))

    def _call(self, call: WorkCall) -> Markup:
        """Return a call: whether it was made and why not, its arguments, and its result."""
        about = call.about
        line = arguments_text(about) if about is not None else ""
        facts = (
            [tag("p", badge("repaired"), f" {', '.join(about.rescues)}")] if about is not None and about.rescues else []
        )
        if call.status in REASONS:
            notice = self._notices.get(call.call_id)
            name = f"{call.status}: " if call.status in NOT_MADE else None
            facts.append(tag("p", name, notice.text if notice is not None else REASONS[call.status]))
        arguments = json.dumps(dict(call.asked), ensure_ascii=False, indent=1)
        asked = tag(
            "details",
            tag("summary", line or call.call_id),
            long_text(f"The arguments of {call.call_id}", arguments[:_MOST_TEXT]),
        )
        words = tag("p", badge(BADGES.get(call.status, call.status)), " ", tag("code", call.tool))
        has_reason = call.status in NOT_MADE and call.call_id in self._notices  # the result repeats it
        return tag("div", words, facts, asked, None if has_reason else _result(call), class_="note")


async def begin_work(runs: Runs, values: Mapping[str, str]) -> RunHandle:
    """Begin work on a goal with the values of the form, under the checks of `dsa code`.

    Raises DsaError, ValueError or OSError for a folder, a model or settings that cannot be used, and when there is unfinished work on this goal.
    """
    return await begin_in_background(_start_of(runs, values), runs)


def _start_of(runs: Runs, values: Mapping[str, str]) -> WorkStart:
    goal = values.get("goal", "").strip()
    if not goal:
        raise ValueError("the goal is empty: describe it in a sentence")
    workspace = Path(values.get("workspace", "").strip() or ".").expanduser().resolve()
    fault = workspace_refusal(workspace)
    if not fault and is_home(workspace):
        fault = f"{workspace} is your home folder: everything in it could be read and changed; name a folder in it"
    if fault:
        raise ValueError(fault)
    if (run_id := unfinished_run(goal, workspace, runs)) is not None:
        raise ValueError(f"run {run_id} works on this goal in this folder, and is not over: continue it on its page")
    file = read_configuration(Path.cwd(), None, workspace)
    choices = CodingSettings(mode=values.get("mode") or None, model=values.get("model", "").strip() or None)
    return WorkStart(goal, settings_to_start(choices, file, workspace), parameters=file.parameters)


START_FORM = StartForm(
    "Begin work on code",
    {
        "goal": StartField("The goal, in a sentence", lines=3),
        "workspace": StartField("The folder to work in (empty: the one in which dsa web was started)"),
        "model": StartField(
            "Model: http://HOST/v1#MODEL, a LiteLLM name, or scripted:FILE (empty: the model of Ollama)"
        ),
        "mode": StartField(
            "Permission: ask before anything but reading, edit without asking, never ask, or only read",
            value=MODES[0],
            choices=MODES,
        ),
    },
    begin_work,
)


def _subtask(subtask: Subtask) -> Markup:
    why = f": {subtask.reason}" if subtask.reason else ""
    return tag("li", badge(subtask.status.replace("_", " ")), " ", subtask.description, why)


def _result(call: WorkCall) -> Markup:
    """Return the result of a call, or why it has none."""
    if call.result is None:
        why = REASONS.get(call.status, f"it is {call.status}")
        return tag("p", f"It has no result: {why}", class_="hint")
    fault = ToolResult(call.call_id, call.result).fault
    if fault is not None:
        return tag("pre", f"{fault.code}: {fault.message}"[:_MOST_TEXT], class_="message")
    outcome = outcome_of(call.result)
    text = text_of(outcome)
    remarks = [tag("p", remark, class_="hint") for remark in remarks_on(outcome)]
    return join(
        tag("details", tag("summary", "The result"), long_text(f"The result of {call.call_id}", text[:_MOST_TEXT]))
        if text
        else None,
        remarks,
    )
