"""The command `dsa code GOAL`: a model works on a goal in a folder, while a table decides what it may do.

At a terminal the command asks for permissions. The run is stored and can be resumed after any end. It keeps its settings, except the model, the budget and
`--context-tokens`. The counters are computed from the ledger.
"""

import asyncio
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import click
from click.core import ParameterSource

from dsa.cli.command_line import CommandExit, note_run, say, show_line, write
from dsa.cli.ledger_view import terminal
from dsa.cli.run_options import (
    RunOptions,
    RunWatchers,
    exit_on_faults,
    find,
    open_run_folder,
    options_saying,
    runs_option,
    watching_options,
)
from dsa.cli.run_view import JsonRunCommand, rest_report
from dsa.edge.event_loop import interruptible
from dsa.edge.processes import environment_secrets
from dsa.expr import Value
from dsa.runs.door import Runs
from dsa.runs.machine_extension import MachineExtension
from dsa.runs.place import PART_OF
from dsa.runs.runs import open_runs
from dsa.runs.setup import absolute_script
from dsa.runtime.ledger import Entry, EventEntry, MachineEntry
from dsa.runtime.run_store import StoredRun
from dsa.runtime.status import Rest
from dsa.runtime.timeline import Moment, OnMoment
from dsa.text import plural
from machines.coding.coding_display import START_FORM, CodingDisplay, CodingPage, of_run, totals
from machines.coding.coding_resources import MODES, RESOURCES, CodingSettings, settings_at_start, workspace_fault
from machines.coding.coding_work import Work, work_of
from machines.coding.configuration import (
    MOST_PARALLEL,
    CodeConfiguration,
    read_configuration,
    settings_to_start,
)
from machines.coding.task_plan import TEMPLATES, CodingCall, Task, faults_of, template
from machines.coding.tools.command_runner import not_installed
from machines.coding.tools.program_rules import Rules
from machines.coding.undo import diff
from machines.coding.work_session import (
    NAME,
    Agent,
    WorkStart,
    code_of_end,
    exit_code,
    is_home,
    unfinished_run,
    workspace_refusal,
)
from machines.coding.workspace_view import Projection, was_idle
from machines.tool_use.machine_session import SessionListeners, resume_command
from machines.tool_use.records import as_data
from machines.tool_use.transcript import LEAST_TOKENS


@attrs.frozen
class WorkCounters:
    """The counters of `--json`; `usage` has the model's tokens and cost."""

    model_answers: int
    calls: Mapping[str, int]
    reasons: Mapping[str, int]
    rescues: Mapping[str, int]
    usage: Mapping[str, float]


def show_counters(entries: Iterable[Entry]) -> dict[str, int | str]:
    """Return the counters that `dsa show --counters` adds for a coding run."""
    work = work_of(entries)
    subtasks = [each.status for _, _, each in work.places]
    block_reasons = ("call_looping", "path_outside_workspace", "command_not_allowed")
    return {
        "answers of the model": work.transcript.answers + work.answers_apart,
        "calls of tools": sum(work.tools.values()),
        "calls blocked": sum(work.reasons[reason] for reason in block_reasons),
        "subtasks completed": f"{subtasks.count('completed')} of {len(subtasks)}",
        "files written": len(work.files_written),
        "rescues": sum(work.transcript.rescues.values()),
    }


def counters_of(work: Work) -> WorkCounters:
    """Return the counters of the work."""
    return WorkCounters(
        work.transcript.answers + work.answers_apart,
        dict(sorted(work.tools.items())),
        dict(sorted(work.reasons.items())),
        dict(sorted(work.transcript.rescues.items())),
        dict(sorted(work.usage.items())),
    )


@attrs.frozen
class RunStart:
    """The start of a run: its settings with the budget, its bounds, its goal, and the tasks of a template, as JSON."""

    settings: CodingSettings
    parameters: Mapping[str, Value]
    goal: str
    tasks: Sequence[object]


def start_of(stored_run: StoredRun) -> RunStart | None:
    """Return the start of a coding run, or None for any other run."""
    first = stored_run.entries[0]
    if not isinstance(first, MachineEntry) or first.name != NAME:
        return None
    data: Any = next((entry.data for entry in stored_run.entries if isinstance(entry, EventEntry)), None)
    goal = data if isinstance(data, Mapping) else {}
    settings = settings_at_start(stored_run)
    return RunStart(settings, dict(first.parameters), goal.get("text", ""), goal.get("tasks") or ())


@attrs.frozen
class CommandLine:
    """The options of `dsa code` alone, from click; `template` is its name, `file` is that of --config."""

    workspace: Path
    mode: str | None
    template: str | None
    parallel: int | None
    network: tuple[str, ...]
    test_first: bool
    json_mode: bool
    context_tokens: int | None
    seed: int | None
    file: Path | None
    fresh: bool

    def settings(self) -> CodingSettings:
        """Return the options as settings, without the workspace."""
        return CodingSettings(
            seed=self.seed,
            mode=self.mode,
            context_tokens=self.context_tokens,
            json_mode=self.json_mode or None,
            test_first=self.test_first or None,
            network=self.network or None,
            parallel=self.parallel,
        )


def fault_of(
    start: RunStart,
    options: CodingSettings,
    bounds: Mapping[str, Value],
    file: CodeConfiguration,
    tasks: Sequence[Task] | None,
) -> str:
    """Return which option differs from the start of the run, or an empty text.

    `options` and `bounds` are those of the command line, `file` is the file that it names, `tasks` are those of its template, or None.
    """
    for option, value in _others(start, options, bounds, file):
        return f"{option} cannot change in an existing run, which has {_value_text(value)}; use --fresh to start again"
    if tasks is not None and [as_data(task) for task in tasks] != list(start.tasks):
        return "--template cannot change in an existing run, which has other tasks; use --fresh to start again"
    return ""


def _others(
    start: RunStart, options: CodingSettings, bounds: Mapping[str, Value], file: CodeConfiguration
) -> Iterator[tuple[str, object]]:
    """Yield each option that differs, and the run's own value."""
    for name, value in options.items():
        if name != _CHANGES and not _is_same(value, has := _value_at_start(start, name)):
            yield f"--{name.replace('_', '-')}", has
    for name, bound_value in bounds.items():
        if (has := start.parameters.get(name)) != bound_value:
            yield f"--param {name}", has
    in_file = attrs.evolve(file.settings, model=file.settings.model and absolute_script(file.settings.model))
    for name, value in in_file.items():
        if getattr(options, name) is None and not _is_same(value, has := _value_at_start(start, name)):
            yield f"{name} of --config", has
    for name, bound_value in file.parameters.items():
        if name not in bounds and (has := start.parameters.get(name)) != bound_value:
            yield f"{name} of --config", has


def _value_at_start(start: RunStart, name: str) -> object:
    has: object = getattr(start.settings, name)
    return 1 if has is None and name == "parallel" else has


def _is_same(value: object, has: object) -> bool:
    """Return whether a setting equals the run's; off and empty count as missing."""
    return (value or None) == (has or None)


def _value_text(value: object) -> str:
    if isinstance(value, bool) or value in (None, (), ""):
        return "it" if value is True else "none"
    if isinstance(value, float):
        return f"{value:g}"
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


#: A setting that may change when a run is resumed.
_CHANGES = "context_tokens"
_INTERRUPT_CODE, _UNREADABLE = 130, 2
_MODELS = "http://HOST/v1#MODEL, a LiteLLM name, local (with --json-mode), or scripted:FILE. Default: the Ollama model that the environment variable OLLAMA_MODEL names."
#: Final states that the model itself brings about.
_BY_ITS_WORD = frozenset({"goal_complete", "answered"})


@click.command("code", cls=JsonRunCommand)
@click.argument("goal", required=False, default="")
@click.option(
    "--workspace",
    "-w",
    type=click.Path(path_type=Path, file_okay=False),
    default=".",
    show_default=True,
    help="The folder to work in.",
)
@click.option(
    "--mode",
    type=click.Choice(MODES),
    help="ask: ask before every action except reading; auto-edit: ask before every action except reading and editing; full-auto: never ask; read-only: only read, and refuse the rest.",
)
@click.option(
    "--template",
    "-t",
    "template",
    metavar="NAME",
    help=f"Use the tasks of a template: {', '.join(TEMPLATES)}, or your own.",
)
@click.option(
    "--parallel",
    type=click.IntRange(1, MOST_PARALLEL),
    metavar="N",
    help="Work on up to N independent subtasks at the same time. More than one needs a --mode other than ask.",
)
@click.option("--network", multiple=True, metavar="HOST", help="A host that commands may reach; none by default.")
@click.option(
    "--test-first",
    is_flag=True,
    help="Offer the model a tool, write_tested. With it, the model first writes tests, and then writes code until these tests pass.",
)
@click.option(
    "--json-mode",
    is_flag=True,
    help="For models without tool calls: they fill in a JSON schema. Needed for `--model local`.",
)
@click.option(
    "--context-tokens",
    type=click.IntRange(LEAST_TOKENS),
    metavar="N",
    help="In each request to the model, send at most about N tokens of the history. You can change it at each --resume.",
)
@click.option("--seed", type=int, help="Another seed gives other answers.")
@click.option(
    "--config",
    "file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Settings file. Default: dsa.toml or pyproject.toml in the current folder.",
)
@click.option("--resume", "run", metavar="RUN", help="Continue RUN: its name, a part of its name, or `last`.")
@click.option("--fresh", is_flag=True, help="Start again, even if a run with this goal was interrupted here.")
@click.option("--take", is_flag=True, help="Take over the run, even if another process is driving it.")
@runs_option
@watching_options
@partial(options_saying, model=_MODELS, parameter="Set a bound: max_rounds, max_turns, max_calls.")
def command(
    goal: str,
    run: str | None,
    root: str,
    *,
    take: bool,
    options: RunOptions,
    **choices: Any,  # noqa: ANN401  (options)
) -> None:
    """Work on GOAL: break it into tasks and subtasks, and call tools until all are done.

    An interrupted run with the same goal in the same folder is resumed. Exit code 0: done, with evidence for each subtask; 1: done without evidence,
    or not done (the model only replied and did no work, the goal is blocked, you answered a question with `stop`, or the rounds are used up); 2: it cannot start; 3: a person is needed; 130: interrupted by Ctrl-C; it can be resumed.
    """
    if bool(goal) == bool(run):
        raise click.UsageError(f"give a GOAL or --resume RUN{', not both: a run already has a goal' if goal else ''}")
    line = CommandLine(**choices)
    if line.context_tokens is not None:
        options = attrs.evolve(options, config={"context_tokens": line.context_tokens})
    if goal and not goal.strip():
        raise click.UsageError("GOAL is empty: describe the goal in a sentence")
    if run and line.fresh:
        raise click.UsageError("--resume continues a run, --fresh starts again with a GOAL: use one of them")
    folder = Path(root)
    if run is not None:
        with open_run_folder(folder) as runs:
            run = find(runs.ids(), run, folder)
            note_run(folder / run)
            _require_same_start(runs, run, line, options.parameters)
        sys.exit(resume(run, folder, options, take=take))
    sys.exit(_hold(folder, options, partial(_begin, goal, line, options, take=take), goal))


def resume(run_id: str, root: Path, options: RunOptions, *, take: bool) -> int:
    """Continue a run in the display of `dsa code`; return the exit code. `dsa resume` calls this too."""
    note_run(root / run_id)
    with open_run_folder(root) as runs:
        options = options.as_started(runs.stored_run(run_id))
        _require_same_start(runs, run_id)
    return _hold(root, options, partial(Agent.resume, run_id, options=options.changes, take=take))


def _begin(
    goal: str,
    line: CommandLine,
    options: RunOptions,
    runs: Runs,
    listeners: SessionListeners,
    *,
    take: bool,
) -> Agent:
    """Begin a run, or resume an interrupted one."""
    workspace = line.workspace.resolve()
    run_id = None if line.fresh else unfinished_run(goal, workspace, runs)
    if run_id is not None:
        _require_same_start(runs, run_id, line, options.parameters)
        now = options.as_started(runs.stored_run(run_id))
        agent = Agent.resume(run_id, runs, listeners, options=now.changes, take=take)
        say(f"resumed: {run_id}; use --fresh to start again", err=True)
        return agent
    _require_workspace(workspace)
    try:
        return Agent.begin(_settings(goal, workspace, line, options), runs, listeners)
    except (ValueError, OSError) as error:
        raise CommandExit(str(error), _UNREADABLE) from error


def _hold(root: Path, options: RunOptions, begin: Callable[[Runs, SessionListeners], Agent], goal: str = "") -> int:
    """Work until the end, or until a person is needed and none is there; return the exit code."""
    display, is_shown, start_s = CodingDisplay(terminal()), not options.shows_nothing, time.monotonic()
    with ExitStack() as stack:
        stack.enter_context(exit_on_faults(root))
        runs = stack.enter_context(open_runs(root))
        watchers = stack.enter_context(
            options.watch_options.watch(environment_secrets(options.watch_options.secret_options))
        )
        listeners = SessionListeners(_observer(root, display if is_shown else None, watchers))
        if is_shown:
            listeners = attrs.evolve(listeners, listen=display.listen, notice=display.notice)
        agent = stack.enter_context(begin(runs, listeners))
        if is_shown:
            agent.resources.toolbox.progress = show_line
        watchers.note("GOAL", goal)
        if agent.own_work.goal and is_shown:
            display.show_goal(agent.own_work.goal)
        code = _work_until_rest(agent, display, is_json=options.json_wanted)
        if agent.rest is not None:
            watchers.close(agent.rest)
        if options.json_wanted:
            _write(agent, root, code, time.monotonic() - start_s)
        else:
            _report(agent, display, code, runs)
    return code


def _observer(root: Path, display: CodingDisplay | None, watchers: RunWatchers) -> OnMoment:
    """Return the observer of a run and its parts. Telemetry sees the whole run only: each part is a call in it."""

    def show(moment: Moment, is_new: bool) -> None:  # noqa: FBT001  (the observer interface)
        if moment.number == 1 and PART_OF not in moment.run:
            note_run(root / moment.run)
        if display is not None:
            display.on_moment(moment, is_new)

    whole = watchers.observer(show)
    return lambda moment, is_new: (show if PART_OF in moment.run else whole)(moment, is_new)


def _fault(start: RunStart, line: CommandLine, bounds: Mapping[str, Value]) -> str:
    """Return which option differs from the start of the run, or an empty text. Raises ValueError for an invalid file."""
    file = CodeConfiguration() if line.file is None else read_configuration(Path.cwd(), line.file)
    tasks, options = None, line.settings()
    if line.template is not None:
        own = read_configuration(Path.cwd()) if file == CodeConfiguration() else file
        tasks = _tasks(line.template, start.goal, own.templates)
    if click.get_current_context().get_parameter_source("workspace") is ParameterSource.COMMANDLINE:
        options = attrs.evolve(options, workspace=str(line.workspace.resolve()))
    return fault_of(start, options, bounds, file, tasks)


def _require_same_start(
    runs: Runs, run_id: str, line: CommandLine | None = None, bounds: Mapping[str, Value] | None = None
) -> None:
    """Raise CommandExit for an option that differs from the start of the run, and for a missing or unusable workspace."""
    start = start_of(runs.stored_run(run_id))
    if start is None:
        return
    try:
        fault = "" if line is None else _fault(start, line, bounds or {})
    except ValueError as error:
        raise CommandExit(str(error), _UNREADABLE) from error
    if fault:
        raise CommandExit(f"{run_id}: {fault}", _UNREADABLE)
    workspace = Path(start.settings.workspace)
    if workspace_error := workspace_fault(start.settings):
        raise CommandExit(workspace_error, _UNREADABLE)
    _require_workspace(workspace)
    if fault := Projection(workspace).fault():  # commands cannot leave such files: they are protected
        raise CommandExit(fault, _UNREADABLE)


def _require_workspace(workspace: Path) -> None:
    """Raise CommandExit for a missing folder or the root; warn about a home folder."""
    if fault := workspace_refusal(workspace):
        raise CommandExit(f"{fault} with -w", _UNREADABLE)
    if is_home(workspace):
        say(
            f"{workspace} is your home folder: everything in it can be read and changed; name another folder with -w",
            err=True,
        )


def _settings(goal: str, workspace: Path, line: CommandLine, options: RunOptions) -> WorkStart:
    """Return the start of a run: options of the command line first, then those of the file, then the defaults."""
    file = read_configuration(Path.cwd(), line.file, workspace)
    options_set = attrs.evolve(line.settings(), model=options.model, budget=options.budget or None)
    settings = settings_to_start(options_set, file, workspace)
    _hint(settings, workspace, is_named=line.file is not None)
    tasks = () if line.template is None else _tasks(line.template, goal, file.templates)
    bounds = {**file.parameters, **options.parameters}
    return WorkStart(goal, settings, tasks, bounds, options.module, options.watch_options.secret_options)


def _hint(settings: CodingSettings, workspace: Path, *, is_named: bool) -> None:
    """Print notes about surprising settings."""
    if not is_named and workspace != Path.cwd() and (workspace / "dsa.toml").is_file():
        say(
            f"{workspace / 'dsa.toml'} is not read, because it is not in the current folder; name it with --config",
            err=True,
        )
    is_priced = any(limit.rpartition("=")[0].endswith("usd") for limit in settings.budget or ())
    if is_priced and "://" in (settings.model or ""):
        say(
            "the price of this model is unknown, so a limit in usd has no effect; limit tokens or calls instead",
            err=True,
        )
    for program in not_installed(Rules.from_mapping(settings.commands or {}), workspace):
        say(f"{program}: the settings allow it, but it is not installed on this machine", err=True)


def _tasks(name: str, goal: str, own: Mapping[str, tuple[Task, ...]]) -> tuple[Task, ...]:
    if name not in TEMPLATES and name not in own:
        names = ", ".join([*TEMPLATES, *own])
        raise CommandExit(f"there is no template '{name}'; use one of {names}", _UNREADABLE)
    tasks = template(name, goal, own)
    if faults := faults_of(tasks):
        raise CommandExit(f"the template '{name}' does not fit this goal: {'; '.join(faults)}", _UNREADABLE)
    return tasks


def _work_until_rest(agent: Agent, display: CodingDisplay, *, is_json: bool) -> int:
    """Work until the end, or until a person is needed and none is there; return the exit code."""
    try:
        with asyncio.Runner() as runner:
            runner.run(interruptible(agent.go_on()))
            while agent.asks is not None and not is_json and sys.stdin.isatty():
                runner.run(interruptible(_ask_permission(agent, agent.asks, display)))
    except KeyboardInterrupt:
        return _INTERRUPT_CODE
    except EOFError:
        pass  # the terminal is gone
    return exit_code(agent.state, agent.work)


def _ask_permission(agent: Agent, call: CodingCall, display: CodingDisplay) -> Any:  # noqa: ANN401  (a coroutine)
    """Ask the user for permission; `always` includes calls of the same kind: all edits, or all runs of the program."""
    display.asks(call.tool, agent.preview)
    question = f"allow {call.tool}? [y]es, [a]lways, [n]o, [s]top, ? for help, or your reason against it: "
    while (answer := _read_line(question)) in {"?", "h", "help"}:
        display.say(_ANSWERS)
    word = answer.lower()
    if word in {"y", "yes", "a", "always"}:
        return agent.permit(always=word.startswith("a"))
    if word in {"s", "stop"}:
        return agent.stop()
    return agent.deny("" if word in {"", "n", "no"} else answer)


_ANSWERS = """yes: make the call and continue
always: make the call, and allow similar calls until the end of the run (all edits, or this program with any arguments)
no: do not make the call, and tell the model
stop: do not make the call, and end the work
anything else: do not make the call, and send the model what you wrote"""


def _read_line(prompt: str) -> str:
    """Return a line that the user types. After Ctrl-C or Ctrl-D the output starts on a new line."""
    try:
        return input(prompt).strip()
    except (KeyboardInterrupt, EOFError):
        say()
        raise


def _report(agent: Agent, display: CodingDisplay, code: int, runs: Runs) -> None:
    again = resume_command(agent.command, runs, agent.run_id)
    what = f"{agent.state}; {totals(agent.work, int(agent.values['rounds']))}"
    display.say("; ".join([f"{agent.run_id}: {what}", *_doubts(agent.state, agent.work)]))
    if agent.asks is not None:
        display.asks(agent.asks.tool, agent.preview)
        display.can_be_sent(runs.where / agent.run_id)
        display.say(f"or answer here: {again}")
    elif code == _INTERRUPT_CODE:
        display.say(f"to continue: {again}")
    elif agent.is_paused:
        display.say(_how_to_go_on(agent, again))


def _doubts(state: str, work: Work) -> Iterator[str]:
    """Yield doubts about an end that the model brought about, from what is recorded."""
    if state in _BY_ITS_WORD and was_idle(work):
        yield "nothing was written or run"
    if state == "answered":
        left, all_of_them = len(work.subtasks_left), len(work.places)
        yield f"not done: {left} of {plural(all_of_them, 'subtask')} not completed, because an answer does not complete a subtask"
    if state == "goal_complete" and work.unshown:
        yield f"no result proves that this is done: {'; '.join(work.unshown)}"


def _how_to_go_on(agent: Agent, again: str) -> str:
    """Return what the user can do when a request to the model failed."""
    if "budget is spent" in agent.work.paused_for:
        share = " (its parts share the budget)" if agent.state == "held_up" else ""
        return f"the budget of the run is spent; to continue, set a new budget for the whole run{share}: {again} --budget LIMIT"
    if agent.rest is not None and "longer than" in agent.work.paused_for:
        return (
            f"the request is too long for the model; send less with: {again} --context-tokens N (or use --model NAME)"
        )
    return f"the model did not answer; try again with: {again} (or use --model NAME)"


@attrs.frozen
class PermissionQuestion:
    """A call that needs permission, in `--json`."""

    tool: str
    arguments: object


@attrs.frozen
class WorkReport:
    """The status of the work in `--json`: `tasks` with their subtasks, `why` it pauses."""

    state: str
    goal: str
    rounds: Value
    tasks: Sequence[object]
    answer: str
    why: str | None
    files: Sequence[str]
    commands: Sequence[str]
    asks: PermissionQuestion | None
    counters: WorkCounters


def work_report(agent: Agent) -> WorkReport:
    """Return the report of the work."""
    work, call = agent.work, agent.asks
    return WorkReport(
        agent.state,
        work.goal,
        agent.values["rounds"],
        [attrs.asdict(chapter) for chapter in work.chapters],
        work.answer,
        work.paused_for if agent.is_paused else None,
        work.files_written,
        work.commands,
        None if call is None else PermissionQuestion(call.tool, call.arguments),
        counters_of(work),
    )


def _write(agent: Agent, root: Path, code: int, seconds: float) -> None:
    """Print the run as a JSON object, with the report of the work."""
    rest = Rest("interrupted", agent.run) if agent.rest is None or code == _INTERRUPT_CODE else agent.rest
    report = attrs.evolve(rest_report(rest, root / agent.run_id, seconds), exit_code=code)
    document = report.to_json() | {"work": as_data(work_report(agent))}
    write(f"{json.dumps(document, ensure_ascii=False)}\n")


extension = MachineExtension(
    NAME,
    of_run,
    resume,
    show_counters,
    exit_code=code_of_end,
    diff=diff,
    view=CodingPage,
    start_form=START_FORM,
    release=RESOURCES.release_run,
)
