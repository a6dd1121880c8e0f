"""The counters of a run of the coding machine. Takes its work, gives numbers: they follow from the ledger.

`dsa code GOAL`: have a model work at a goal in a folder; a table decides what it may do.

Interactive where leave is asked for at a terminal. The run is kept and can be taken up again after whatever has happened; it keeps the settings that
it was begun with, but for the model and the budget.
"""

import asyncio
import json
import os
import shlex
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
    faults_told,
    find,
    opened,
    options_saying,
    runs_option,
    watching_options,
)
from dsa.cli.run_view import JsonRunCommand, MachineExtension, rest_report
from dsa.edge.event_loop import interruptible
from dsa.edge.processes import environment_secrets
from dsa.errors import ModelUnavailable
from dsa.expr import Value
from dsa.generators.model_options import LOCAL
from dsa.runs.place import DEFAULT_RUNS, PART_OF
from dsa.runs.runs import Runs, open_runs
from dsa.runs.setup import absolute_script
from dsa.runtime.ledger import Entry, EventEntry, MachineEntry
from dsa.runtime.run_store import StoredRun
from dsa.runtime.status import Rest
from dsa.runtime.timeline import Moment, OnMoment
from dsa.text import plural
from machines.coding.coding_display import CodingDisplay, of_run, totals
from machines.coding.coding_resources import MODES, CodingSettings, settings_recorded, workspace_fault
from machines.coding.coding_work import Work, work_of
from machines.coding.configuration import (
    MOST_PARALLEL,
    TEMPERATURE,
    CodeConfiguration,
    checked,
    default_model,
    read_configuration,
)
from machines.coding.task_plan import TEMPLATES, CodingCall, Task, faults_of, template
from machines.coding.tools.command_runner import not_installed
from machines.coding.tools.program_rules import Rules
from machines.coding.undo import diff
from machines.coding.work_session import NAME, Agent, WorkStart, code_of_end, exit_code, unfinished_run
from machines.coding.workspace_view import Projection, was_idle
from machines.tool_use.records import as_data
from machines.tool_use.transcript import LEAST_TOKENS


@attrs.frozen
class WorkCounters:
    """All counters, as `--json` shows them; `usage` has what the model was given and gave, by its kinds."""

    model_answers: int
    calls: Mapping[str, int]
    reasons: Mapping[str, int]
    rescues: Mapping[str, int]
    usage: Mapping[str, float]


def counted(entries: Iterable[Entry]) -> dict[str, int | str]:
    """Return what `dsa show --counters` says of such a run beside what it counts of any."""
    work = work_of(entries)
    subtasks = [each.status for _, _, each in work.places]
    blocked = ("call_looping", "path_outside_workspace", "command_not_allowed")
    return {
        "answers of the model": work.transcript.answers + work.asked_apart,
        "calls of tools": sum(work.tools.values()),
        "calls blocked": sum(work.reasons[reason] for reason in blocked),
        "subtasks completed": f"{subtasks.count('completed')} of {len(subtasks)}",
        "files written": len(work.files_written),
        "rescues": sum(work.transcript.rescues.values()),
    }


def counters_of(work: Work) -> WorkCounters:
    """Count what work has seen."""
    return WorkCounters(
        work.transcript.answers + work.asked_apart,
        dict(sorted(work.tools.items())),
        dict(sorted(work.reasons.items())),
        dict(sorted(work.transcript.rescues.items())),
        dict(sorted(work.usage.items())),
    )


@attrs.frozen
class RunStart:
    """With what a run was begun: its settings, the budget among them, its bounds, its goal, and its tasks, as JSON, where a template gave them."""

    settings: CodingSettings
    parameters: Mapping[str, Value]
    goal: str
    tasks: Sequence[object]


def begun_of(recorded: StoredRun) -> RunStart | None:
    """Return with what a run of the coding machine was begun; None for any other."""
    first = recorded.entries[0]
    if not isinstance(first, MachineEntry) or first.name != NAME:
        return None
    said: Any = next((entry.data for entry in recorded.entries if isinstance(entry, EventEntry)), None)
    given = said if isinstance(said, Mapping) else {}
    settings = settings_recorded(recorded)
    return RunStart(settings, dict(first.parameters), given.get("text", ""), given.get("tasks") or ())


@attrs.frozen
class CommandLine:
    """The options that only `dsa code` has, as click gives them; `named` is a template, `file` that of --config."""

    workspace: Path
    mode: str | None
    named: str | None
    parallel: int | None
    network: tuple[str, ...]
    test_first: bool
    json_mode: bool
    context_tokens: int | None
    seed: int | None
    file: Path | None

    def settings(self) -> CodingSettings:
        """Return what was said, but for the workspace."""
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
    begun: RunStart,
    said: CodingSettings,
    bounds: Mapping[str, Value],
    file: CodeConfiguration,
    tasks: Sequence[Task] | None,
) -> str:
    """Return which option is another one than the run was begun with; empty when none is.

    `said` and `bounds` stand on the command line, `file` in the file that it names; `tasks` are those of its template, None where it names none.
    """
    for option, value in _others(begun, said, bounds, file):
        return f"{option} cannot be changed for a run that was begun: it has {_shown(value)}; --fresh begins anew"
    if tasks is not None and [as_data(task) for task in tasks] != list(begun.tasks):
        return "--template cannot be changed for a run that was begun: it has other tasks; --fresh begins anew"
    return ""


def _others(
    begun: RunStart, said: CodingSettings, bounds: Mapping[str, Value], file: CodeConfiguration
) -> Iterator[tuple[str, object]]:
    """Yield each option that is another one, and what the run has."""
    for name, value in said.items():
        if name != _CHANGES and not _is_same(value, has := _had(begun, name)):
            yield f"--{name.replace('_', '-')}", has
    for name, bound in bounds.items():
        if (has := begun.parameters.get(name)) != bound:
            yield f"--param {name}", has
    in_file = attrs.evolve(file.settings, model=file.settings.model and absolute_script(file.settings.model))
    for name, value in in_file.items():
        if getattr(said, name) is None and not _is_same(value, has := _had(begun, name)):
            yield f"{name} of --config", has
    for name, bound in file.parameters.items():
        if name not in bounds and (has := begun.parameters.get(name)) != bound:
            yield f"{name} of --config", has


def _had(begun: RunStart, name: str) -> object:
    has: object = getattr(begun.settings, name)
    return 1 if has is None and name == "parallel" else has


def _is_same(value: object, has: object) -> bool:
    """Return whether a setting is what the run has; what is off, or empty, is as what it never had."""
    return (value or None) == (has or None)


def _shown(value: object) -> str:
    if isinstance(value, bool) or value in (None, (), ""):
        return "it" if value is True else "none"
    if isinstance(value, float):
        return f"{value:g}"
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


#: A setting of the command line that may be another one each time.
_CHANGES = "context_tokens"
_INTERRUPTED, _UNREADABLE = 130, 2
_MODELS = "http://HOST/v1#MODEL, a LiteLLM name, or scripted:FILE. Default: Ollama's OLLAMA_MODEL."
#: How work ends because the model says so.
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
    "--mode", type=click.Choice(MODES), help="What happens without asking: nothing, edits, everything, or only looking."
)
@click.option(
    "--template",
    "-t",
    "named",
    metavar="NAME",
    help=f"Tasks that are there already: {', '.join(TEMPLATES)}, or your own.",
)
@click.option(
    "--parallel",
    type=click.IntRange(1, MOST_PARALLEL),
    metavar="N",
    help="Work at up to N subtasks at once, where they need nothing of one another. Nobody is asked for leave then.",
)
@click.option("--network", multiple=True, metavar="HOST", help="A host that commands may reach; none by default.")
@click.option(
    "--test-first", is_flag=True, help="Offer write_tested: tests are written first, then code until it passes them."
)
@click.option(
    "--json-mode",
    is_flag=True,
    help="For models that call no tools: they fill in a JSON schema. Needed for `--model local`.",
)
@click.option(
    "--context-tokens",
    type=click.IntRange(LEAST_TOKENS),
    metavar="N",
    help="Send at most about N tokens of what was said and done in a request. It can be another one each time that it is resumed.",
)
@click.option("--seed", type=int, help="Another seed gives other answers.")
@click.option(
    "--config",
    "file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Settings; default: dsa.toml or pyproject.toml here.",
)
@click.option("--resume", "run", metavar="RUN", help="Go on with a run: its name, a part of it, or last.")
@click.option("--fresh", is_flag=True, help="Begin anew although the same goal was cut off here.")
@click.option("--take", is_flag=True, help="Take the run from a process that holds it.")
@runs_option
@watching_options
@partial(options_saying, model=_MODELS, parameter="Set a bound: max_rounds, max_turns, max_calls.")
def command(
    goal: str,
    run: str | None,
    root: str,
    *,
    take: bool,
    fresh: bool,
    options: RunOptions,
    **said: Any,  # noqa: ANN401  (options)
) -> None:
    """Work at GOAL: break it into tasks, and call tools until they are done.

    The same goal in the same folder is taken up where it was cut off. Exit code 0: done, and a result shows it of each subtask; 1: answered without being
    done, done by the model's word alone, rounds used up, blocked or stopped; 2: it cannot be begun; 3: a person is needed; 130: interrupted, and can be resumed.
    """
    if bool(goal) == bool(run):
        raise click.UsageError(f"say a GOAL, or --resume RUN{', not both: a run has its goal' if goal else ''}")
    line = CommandLine(**said)
    if line.context_tokens is not None:
        options = attrs.evolve(options, config={"context_tokens": line.context_tokens})
    if goal and not goal.strip():
        raise click.UsageError("GOAL is empty: say in a sentence what is to be reached")
    if run and fresh:
        raise click.UsageError("--resume goes on with a run, --fresh begins anew with a GOAL: say one of them")
    folder = Path(root)
    if run is not None:
        with opened(folder) as runs:
            run = find(runs.ids(), run, folder)
            note_run(folder / run)
            _require_as_begun(runs, run, line, options.parameters)
        sys.exit(resumed(run, folder, options, take=take))
    sys.exit(_held(folder, options, partial(_begun, goal, line, options, take=take, fresh=fresh), goal))


def resumed(run_id: str, root: Path, options: RunOptions, *, take: bool) -> int:
    """Go on with a run in the display of `dsa code`; return the exit code. `dsa resume` does it too."""
    note_run(root / run_id)
    with opened(root) as runs:
        options = options.continuing(runs.recorded(run_id))
        _require_as_begun(runs, run_id)
    return _held(root, options, partial(Agent.resume, run_id, options=options.changes, take=take))


def _begun(
    goal: str,
    line: CommandLine,
    options: RunOptions,
    runs: Runs,
    *,
    take: bool,
    fresh: bool,
    **how: Any,  # noqa: ANN401  (how it is shown)
) -> Agent:
    """Begin, or take up what was cut off."""
    workspace = line.workspace.resolve()
    run_id = None if fresh else unfinished_run(goal, workspace, runs)
    if run_id is not None:
        _require_as_begun(runs, run_id, line, options.parameters)
        now = options.continuing(runs.recorded(run_id))
        agent = Agent.resume(run_id, runs, options=now.changes, take=take, **how)
        say(f"taken up where it stood: {run_id}; --fresh begins anew", err=True)
        return agent
    _require_workspace(workspace)
    try:
        return Agent.begin(_settings(goal, workspace, line, options), runs, **how)
    except (ValueError, OSError) as error:
        raise CommandExit(str(error), _UNREADABLE) from error


def _held(root: Path, options: RunOptions, begin: Callable[..., Agent], goal: str = "") -> int:
    """Work until the end, or until somebody has to say something who is not there; return the exit code."""
    display, is_shown, began = CodingDisplay(terminal()), not options.shows_nothing, time.monotonic()
    with ExitStack() as entered:
        entered.enter_context(faults_told(root))
        runs = entered.enter_context(open_runs(root))
        watched = entered.enter_context(options.watching.watched(environment_secrets(options.watching.chosen)))
        how = {"listen": display.listen, "notice": display.notice} if is_shown else {}
        on_moment = _observing(root, display if is_shown else None, watched)
        agent = entered.enter_context(begin(runs, on_moment=on_moment, **how))
        if is_shown:
            agent.resources.toolbox.progress = show_line
        watched.note("GOAL", goal)
        if agent.own_work.goal and is_shown:
            display.taken_up(agent.own_work.goal)
        code = _worked(agent, display, is_json=options.json_wanted)
        if agent.rest is not None:
            watched.rested(agent.rest)
        if options.json_wanted:
            _write(agent, root, code, time.monotonic() - began)
        else:
            _report(agent, display, code, root)
    return code


def _observing(root: Path, display: CodingDisplay | None, watched: RunWatchers) -> OnMoment:
    """Return who sees the moments of a run and of its parts. Spans are those of the whole: each part is a call in it."""

    def show(moment: Moment, is_new: bool) -> None:  # noqa: FBT001  (the observer interface)
        if moment.number == 1 and PART_OF not in moment.run:
            note_run(root / moment.run)
        if display is not None:
            display.on_moment(moment, is_new)

    whole = watched.observing(show)
    return lambda moment, is_new: (show if PART_OF in moment.run else whole)(moment, is_new)


def _fault(begun: RunStart, line: CommandLine, bounds: Mapping[str, Value]) -> str:
    """Return which option is another one than the run was begun with; empty when none is. Raises ValueError for a file that means nothing."""
    file = CodeConfiguration() if line.file is None else read_configuration(Path.cwd(), line.file)
    tasks, said = None, line.settings()
    if line.named is not None:
        own = read_configuration(Path.cwd()) if file == CodeConfiguration() else file
        tasks = _tasks(line.named, begun.goal, own.templates)
    if click.get_current_context().get_parameter_source("workspace") is ParameterSource.COMMANDLINE:
        said = attrs.evolve(said, workspace=str(line.workspace.resolve()))
    return fault_of(begun, said, bounds, file, tasks)


def _require_as_begun(
    runs: Runs, run_id: str, line: CommandLine | None = None, bounds: Mapping[str, Value] | None = None
) -> None:
    """Raise Ended for an option that would have to be ignored, for the run was begun with another one, and where its folder is gone or odd."""
    begun = begun_of(runs.recorded(run_id))
    if begun is None:
        return
    try:
        fault = "" if line is None else _fault(begun, line, bounds or {})
    except ValueError as error:
        raise CommandExit(str(error), _UNREADABLE) from error
    if fault:
        raise CommandExit(f"{run_id}: {fault}", _UNREADABLE)
    workspace = Path(begun.settings.workspace)
    if gone := workspace_fault(begun.settings):
        raise CommandExit(gone, _UNREADABLE)
    _require_workspace(workspace)
    if fault := Projection(workspace).fault():  # no command leaves any behind: it is protected from them
        raise CommandExit(fault, _UNREADABLE)


def _require_workspace(workspace: Path) -> None:
    """Raise Ended for what is no folder to work in; say so where it is a whole home."""
    if not workspace.is_dir():
        raise CommandExit(f"{workspace}: there is no such folder to work in", _UNREADABLE)
    if workspace == workspace.parent:
        raise CommandExit(f"{workspace}: all of this machine is no folder to work in: name one with -w", _UNREADABLE)
    home = os.environ.get("HOME")
    if home and workspace == Path(home).resolve():
        say(f"{workspace} is your home: all that is in it can be read and changed; -w names another", err=True)


def _settings(goal: str, workspace: Path, line: CommandLine, options: RunOptions) -> WorkStart:
    """Put together what the file says and what the command line says before it."""
    file = read_configuration(Path.cwd(), line.file, workspace)
    said = attrs.evolve(line.settings(), model=options.model, budget=options.budget or None)
    usual = CodingSettings(TEMPERATURE, 0, MODES[0], default_model(), workspace=str(workspace))
    settings = checked(as_data(said)).settings.over(file.settings).over(usual)
    settings = attrs.evolve(settings, model=absolute_script(settings.model or ""))
    if settings.model == LOCAL and not settings.json_mode:
        raise ModelUnavailable(
            "the local model calls no tools: say --json-mode, which has it fill in a schema, or name another with --model"
        )
    _hint(settings, workspace, is_named=line.file is not None)
    tasks = () if line.named is None else _tasks(line.named, goal, file.templates)
    bounds = {**file.parameters, **options.parameters}
    return WorkStart(goal, settings, tasks, bounds, options.module, options.watching.chosen)


def _hint(settings: CodingSettings, workspace: Path, *, is_named: bool) -> None:
    """Say what of the settings is not what somebody might think."""
    if not is_named and workspace != Path.cwd() and (workspace / "dsa.toml").is_file():
        say(f"{workspace / 'dsa.toml'} is not read, for you are not there: --config names it", err=True)
    is_priced = any(limit.rpartition("=")[0].endswith("usd") for limit in settings.budget or ())
    if is_priced and "://" in (settings.model or ""):
        say("nobody knows the price of this model: usd bounds nothing, tokens and calls do", err=True)
    for program in not_installed(Rules.from_mapping(settings.commands or {}), workspace):
        say(f"{program}: the settings allow it, and it is not installed on this machine", err=True)


def _tasks(named: str, goal: str, own: Mapping[str, tuple[Task, ...]]) -> tuple[Task, ...]:
    if named not in TEMPLATES and named not in own:
        known = ", ".join([*TEMPLATES, *own])
        raise CommandExit(f"there is no template '{named}'; there are: {known}", _UNREADABLE)
    tasks = template(named, goal, own)
    if faults := faults_of(tasks):
        raise CommandExit(f"the template '{named}' cannot be worked at for this goal: {'; '.join(faults)}", _UNREADABLE)
    return tasks


def _worked(agent: Agent, display: CodingDisplay, *, is_json: bool) -> int:
    """Work until the end, or until somebody has to say something who is not there."""
    try:
        with asyncio.Runner() as runner:
            runner.run(interruptible(agent.go_on()))
            while agent.asks is not None and not is_json and sys.stdin.isatty():
                runner.run(interruptible(_allowed(agent, agent.asks, display)))
    except KeyboardInterrupt:
        return _INTERRUPTED
    except EOFError:
        pass  # nobody is there any more to be asked
    return exit_code(agent.state, agent.work)


def _allowed(agent: Agent, call: CodingCall, display: CodingDisplay) -> Any:  # noqa: ANN401  (a coroutine)
    """Ask the user for leave; always is for calls of the same kind: all edits, or all runs of the program."""
    display.asks(call.tool, agent.asked_shown)
    question = f"may {call.tool} happen? [y]es, [a]lways, [n]o, [s]top, ?, or why not: "
    while (answer := _typed(question)) in {"?", "h", "help"}:
        display.say(_ANSWERS)
    word = answer.lower()
    if word in {"y", "yes", "a", "always"}:
        return agent.permit(always=word.startswith("a"))
    if word in {"s", "stop"}:
        return agent.stop()
    return agent.deny("" if word in {"", "n", "no"} else answer)


_ANSWERS = """yes: the call happens, and the work goes on
always: the same, and others like it happen without asking, to the end of the run: all edits, or whatever this program is called with
no: it does not happen, and the model is told so
stop: it does not happen, and the work ends
anything else: it does not happen, and the model is told what you wrote"""


def _typed(prompt: str) -> str:
    """Have the user type a line. What is shown after Ctrl-C or Ctrl-D begins on a line of its own."""
    try:
        return input(prompt).strip()
    except (KeyboardInterrupt, EOFError):
        say()
        raise


def _report(agent: Agent, display: CodingDisplay, code: int, runs: Path) -> None:
    again = _resuming(runs, agent.run_id)
    what = f"{agent.state}; {totals(agent.work, int(agent.values['rounds']))}"
    display.say("; ".join([f"{agent.run_id}: {what}", *_not_done(agent.state, agent.work)]))
    if agent.asks is not None:
        display.asks(agent.asks.tool, agent.asked_shown)
        display.can_be_sent(runs / agent.run_id)
        display.say(f"or be asked here: {again}")
    elif code == _INTERRUPTED:
        display.say(f"go on with: {again}")
    elif agent.is_paused:
        display.say(_how_to_go_on(agent, again))


def _not_done(state: str, work: Work) -> Iterator[str]:
    """Yield what there is to doubt of an end that the model's word has brought, by what is recorded."""
    if state in _BY_ITS_WORD and was_idle(work):
        yield "nothing was written or run"
    if state == "answered":
        left, all_of_them = len(work.uncompleted), len(work.places)
        yield f"not done: {left} of {plural(all_of_them, 'subtask')} not completed, for an answer completes none"
    if state == "goal_complete" and work.unshown:
        yield f"no result shows that this was done: {'; '.join(work.unshown)}"


def _how_to_go_on(agent: Agent, again: str) -> str:
    """Return what can be done where the model could not be asked."""
    if "budget is spent" in agent.work.paused_for:
        share = " (parts divide it)" if agent.state == "held_up" else ""
        return f"its budget is spent; go on with another one for all of it{share}: {again} --budget LIMIT"
    if agent.rest is not None and "longer than" in agent.work.paused_for:
        return f"the model cannot read what is sent; send less with: {again} --context-tokens N (--model NAME asks another)"
    return f"the model could not be asked; try again with: {again} (--model NAME asks another)"


def _resuming(runs: Path, run_id: str) -> str:
    """Return the command that takes a run up, ready to paste."""
    where = [] if str(runs) == DEFAULT_RUNS else ["--runs", str(runs)]
    return shlex.join(["dsa", "code", "--resume", run_id, *where])


@attrs.frozen
class PermissionQuestion:
    """A call for which leave is asked, as `--json` tells of it."""

    tool: str
    arguments: object


@attrs.frozen
class WorkReport:
    """How work stands, as `--json` tells of it: `tasks` with their subtasks, `why` it pauses."""

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
    """Return how the work stands."""
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
    """Write the run as a JSON object, with how the work stands."""
    rest = Rest("interrupted", agent.run) if agent.rest is None or code == _INTERRUPTED else agent.rest
    report = attrs.evolve(rest_report(rest, root / agent.run_id, seconds), exit_code=code)
    told = report.to_json() | {"work": as_data(work_report(agent))}
    write(f"{json.dumps(told, ensure_ascii=False)}\n")


extension = MachineExtension(NAME, of_run, resumed, counted, exit_code=code_of_end, diff=diff)
