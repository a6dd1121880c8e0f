"""Work sessions: the work on one goal, which this process begins or resumes, until it rests.

It rests in a final state, or when a person must answer. Acknowledged input is in the ledger, so a killed process loses nothing.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import attrs

from dsa.errors import DsaError
from dsa.expr import Value
from dsa.runs.door import Runs
from dsa.runs.handle import RunHandle
from dsa.runs.place import PART_OF
from dsa.runs.setup import Options
from dsa.runtime.ledger import EventEntry, RowEntry
from dsa.runtime.run import Run
from dsa.runtime.run_store import StoredRun
from dsa.runtime.secrets import SecretOptions
from dsa.runtime.timeline import Moment, OnMoment
from dsa.semantics import Occurrence
from machines.coding.coding_resources import (
    MODES,
    RESOURCES,
    CodingResources,
    CodingSettings,
    settings_at_start,
)
from machines.coding.coding_work import Work, work_of
from machines.coding.task_plan import CodingCall, Goal, Task
from machines.coding.workspace_view import Projection, work_with_parts
from machines.tool_use.machine_session import NO_LISTENERS, MachineSession, SessionListeners, begin_run, hold_run
from machines.tool_use.records import as_data

NAME = "coding"
_LOG = logging.getLogger(__name__)
#: States after a failed request to the model; `again` tries it again.
PAUSED_STATES = ("unplanned", "paused", "held_up")
#: Final states and their exit codes. An answer completes no subtask, so it is not a success.
EXIT = {"goal_complete": 0, "answered": 1, "rounds_exhausted": 1, "blocked": 1, "escalated": 3, "cancelled": 1}


#: The exit code when a person is needed, or the work is not over.
WAITING_CODE = 3


def exit_code(state: str, work: Work) -> int:
    """Return the exit code of the work: 0 when every subtask is completed with evidence."""
    return 1 if state == "goal_complete" and work.unshown else EXIT.get(state, WAITING_CODE)


def code_of_end(run: Run) -> int | None:
    """Return the exit code of a finished run, or None for a run of another table with this name."""
    state = run.configuration.state
    return exit_code(state, work_of(run.ledger)) if state in EXIT else None


@attrs.frozen
class WorkStart:
    """The start of the work, which its ledger records. `settings` are for the policies, `tasks` are those of a template; `module` replaces the coding bindings."""

    goal: str
    settings: CodingSettings
    tasks: tuple[Task, ...] = ()
    parameters: Mapping[str, Value] = attrs.field(factory=dict)
    module: str | None = None
    secrets: SecretOptions = attrs.field(factory=SecretOptions)

    def options(self) -> Options:
        """Return the options of the run."""
        settings, config = self.settings, as_data(attrs.evolve(self.settings, budget=None))
        return Options(
            self.module,
            settings.model,
            settings.seed,
            self.parameters,
            settings.budget or (),
            self.secrets,
            config=config,
        )

    def first(self) -> Occurrence:
        """Return the first event of the run."""
        goal = Goal(self.goal, tasks=self.tasks or None)
        return Occurrence("planned" if self.tasks else "goal", data=as_data(goal))


class _Rounds:
    """An observer that passes moments on, and calls `on_round` at the start of each round and at the end of the work."""

    def __init__(self, on_moment: OnMoment | None) -> None:
        self._on_moment = on_moment
        self.on_round: Callable[[], None] = lambda: None

    def __call__(self, moment: Moment, is_new: bool) -> None:  # noqa: FBT001  (the observer interface)
        if self._on_moment is not None:
            self._on_moment(moment, is_new)
        entry = moment.entry
        is_round = isinstance(entry, EventEntry) and entry.event == "probed"
        if is_new and (is_round or (isinstance(entry, RowEntry) and entry.target in EXIT)):
            self.on_round()


class WorkRun(MachineSession[CodingResources]):
    """A run of the coding machine that this process holds: the work on a goal, or a part of it."""

    @property
    def state(self) -> str:
        """The innermost state of the run."""
        return self._handle.run.configuration.state.rpartition(".")[2]

    @property
    def own_work(self) -> Work:
        """The work in the ledger; it has the parts of a group only after all of them are over."""
        return self.resources.work(self._handle.run)


class Agent(WorkRun):
    """The work on one goal. Make it with `begin` and `resume`; `runs` stores it.

    Its listeners hear of its parts too, and `notice` is called with files that cannot be written.
    """

    command = "dsa code"

    def __init__(
        self,
        runs: Runs,
        handle: RunHandle,
        listeners: SessionListeners,
        *,
        is_new: bool,
    ) -> None:
        def prepare(resources: CodingResources) -> None:
            resources.listen = listeners.listen
            resources.notice = lambda text: listeners.notice(f"model: {text}")
            resources.runs, resources.watch_part = runs, listeners.on_moment
            _ = resources.model, resources.toolbox
            if is_new:
                _ = resources.toolbox.tools  # MCP servers start here, or raise

        super().__init__(handle, RESOURCES, prepare)
        self._runs, self._notice, self._last_problem = runs, listeners.notice, ""
        self._projection = Projection(Path(self.resources.settings.workspace))
        self._first: tuple[Occurrence, ...] = ()

    @classmethod
    def begin(cls, settings: WorkStart, runs: Runs, listeners: SessionListeners = NO_LISTENERS) -> "Agent":
        """Begin a run. Raises ModelUnavailable, ToolError and ValueError for unavailable tools, BindingError, StoreError, ParameterError."""
        _require_fit_for_parts(settings.settings)
        if fault := Projection(Path(settings.settings.workspace)).fault():
            raise ValueError(fault)
        rounds = _Rounds(listeners.on_moment)
        handle = begin_run(runs, NAME, settings.options(), on_moment=rounds)
        agent = cls(runs, handle, listeners, is_new=True)
        agent._first, rounds.on_round = (settings.first(),), agent.project
        return agent

    @classmethod
    def resume(
        cls,
        run_id: str,
        runs: Runs,
        listeners: SessionListeners = NO_LISTENERS,
        *,
        options: Options | None = None,
        take: bool = False,
    ) -> "Agent":
        """Resume a run with its own settings, except those in `options`: a model, a budget for the whole run.

        Raises DsaError for a run that is not of this machine, or is a part, StoreError, OtherMachineError, ReplayError.
        """
        whole, _, part = run_id.partition(PART_OF)
        if part:
            raise DsaError(f"run {run_id} is a part of run {whole}: continue the whole run")
        rounds = _Rounds(listeners.on_moment)
        handle = hold_run(runs, run_id, NAME, options or Options(), take=take, on_moment=rounds)
        agent = cls(runs, handle, listeners, is_new=False)
        rounds.on_round = agent.project
        return agent

    @property
    def is_paused(self) -> bool:
        """Whether a request to the model failed; `go_on` tries again."""
        return self.state in PAUSED_STATES

    @property
    def asks(self) -> CodingCall | None:
        """The call that needs permission, or None."""
        return self.work.call if self.state == "approving" else None

    @property
    def preview(self) -> str:
        """The effect of the call that needs permission: a diff, or the command."""
        return "" if self.asks is None else self.resources.toolbox.preview(self.asks)

    @property
    def work(self) -> Work:
        """The work in the ledger, with that of the parts under way."""
        run, work = self._handle.run, self.own_work
        if not any(subtask.status == "apart" for _, _, subtask in work.places):
            return work
        return work_with_parts(run.ledger, self._runs, run.run_id)

    async def go_on(self) -> None:
        """Work until the run rests: at the end, at a question, or after a failed request to the model.

        Raises DsaError for a failure; the run can be resumed.
        """
        first, self._first = self._first, ()
        if self.is_paused:
            first = (Occurrence("again"),)
        await self.drive(*first)

    async def permit(self, *, always: bool = False) -> None:
        """Permit the call that waits; `always` includes others like it."""
        await self.drive(Occurrence("permitted", data={"always": always}))

    async def deny(self, why: str = "") -> None:
        """Deny the call that waits; the model gets the reason."""
        await self.drive(Occurrence("denied", data={"why": why} if why else {}))

    async def stop(self) -> None:
        """End the work."""
        await self.drive(Occurrence("stopped"))

    async def drive(self, *occurrences: Occurrence) -> None:
        """Send the run events, and write the files for people. Raises DsaError."""
        try:
            await super().drive(*occurrences)
        finally:
            self.project()

    def project(self) -> None:
        """Write the files for people. A failure is reported once and ends nothing, because the ledger has everything."""
        try:
            self._projection.write(self.work, self.values)
        except OSError as error:
            if (problem := f"{error.filename2 or error.filename}: {error.strerror}") != self._last_problem:
                self._last_problem = problem
                self._notice(f"the record of the work cannot be written into the workspace: {problem}")


def workspace_refusal(workspace: Path) -> str:
    """Return why no work can begin in a folder, or an empty text."""
    if not workspace.is_dir():
        return f"{workspace}: the workspace must be an existing folder; name one"
    if workspace == workspace.parent:
        return f"{workspace}: the root of this machine cannot be the workspace; name a folder"
    return ""


def is_home(workspace: Path) -> bool:
    """Return whether a folder is the home folder of this user, in which everything could be read and changed."""
    home = os.environ.get("HOME")
    return bool(home) and workspace == Path(home or "").resolve()


async def begin_in_background(start: WorkStart, runs: Runs) -> RunHandle:
    """Begin a run that goes on by itself until it rests, without a person at a terminal. Raises what `Agent.begin` raises; then no run exists."""
    settings = start.settings
    _require_fit_for_parts(settings)
    projection = Projection(Path(settings.workspace))
    if fault := projection.fault():
        raise ValueError(fault)
    rounds = _Rounds(None)
    handle = begin_run(runs, NAME, start.options(), on_moment=rounds)
    resources = RESOURCES.of(handle.config, handle.id)
    resources.runs = runs
    try:
        await asyncio.to_thread(lambda: (resources.model, resources.toolbox.tools))  # MCP servers start here, or raise
    except BaseException:
        handle.release()
        RESOURCES.release(resources)
        raise

    def project() -> None:
        try:
            projection.write(resources.work(handle.run), handle.run.values)
        except OSError as error:
            _LOG.warning("%s: the record of the work cannot be written into the workspace: %s", handle.id, error)

    rounds.on_round = project
    handle.start(start.first())
    return handle


def _require_fit_for_parts(settings: CodingSettings) -> None:
    """Raise ValueError for parallel subtasks in a mode that asks for permission, or with one script for all."""
    count = settings.parallel or 1
    if count == 1:
        return
    if (settings.model or "").startswith("scripted:"):
        raise ValueError(f"parallel = {count}: a script cannot answer for several parts; name another model")
    if (settings.mode or MODES[0]) == "ask":
        raise ValueError(
            f"parallel = {count}: parts that run at the same time cannot ask for permission; use --mode auto-edit, full-auto or read-only"
        )


def unfinished_run(goal: str, workspace: Path, runs: Runs) -> str | None:
    """Return the newest run of this goal in this workspace that is not over, or None (seed 003: resume when the goal matches)."""
    for run_id in reversed(runs.ids()):
        if f"-{NAME}" not in f"-{run_id}" or PART_OF in run_id:
            continue
        stored_run = runs.stored_run(run_id)
        if settings_at_start(stored_run).workspace == str(workspace) and _is_open(stored_run, goal):
            return run_id
    return None


def _is_open(stored_run: StoredRun, goal: str) -> bool:
    """Return whether a run has this goal, and is not over."""
    events = (
        entry.data
        for entry in stored_run.entries
        if isinstance(entry, EventEntry) and entry.event in {"goal", "planned"}
    )
    goal_data = next(events, None)
    ends = [entry.target for entry in stored_run.entries if isinstance(entry, RowEntry)]
    return isinstance(goal_data, Mapping) and goal_data.get("text") == goal and (not ends or ends[-1] not in EXIT)
