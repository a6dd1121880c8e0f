"""The work on one goal, held by this process: begun, or taken up again from its ledger, until it rests.

It rests at a final state, or where a person is asked. Everything that was acknowledged is in the ledger, so a process that is killed loses nothing.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

import attrs

from dsa.expr import Value
from dsa.runs.handle import RunHandle
from dsa.runs.place import PART_OF
from dsa.runs.runs import Runs
from dsa.runs.setup import Options
from dsa.runtime.ledger import EventEntry, RowEntry
from dsa.runtime.run import Run
from dsa.runtime.run_store import StoredRun
from dsa.runtime.secrets import SecretOptions
from dsa.runtime.timeline import Moment, OnMoment
from dsa.semantics import Occurrence
from machines.coding.coding_resources import KNOWN, MODES, CodingResources, CodingSettings, Listener, settings_recorded
from machines.coding.coding_work import Work, work_of
from machines.coding.task_plan import CodingCall, Goal, Task
from machines.coding.workspace_view import Projection, gathered
from machines.tool_use.machine_session import MachineSession, WrongRunError, begun, taken_up
from machines.tool_use.records import as_data

NAME = "coding"
#: Where the model could not be asked: `again` tries it again.
PAUSED = ("unplanned", "paused", "held_up")
#: How states that are final are told, and what a program is told of them: an answer completes no subtask, whatever it says.
EXIT = {"goal_complete": 0, "answered": 1, "rounds_exhausted": 1, "blocked": 1, "escalated": 3, "cancelled": 1}


#: A person is needed, or the work is not over.
ASKED = 3


def exit_code(state: str, work: Work) -> int:
    """Return what a program is told of the work: 0 where every subtask was completed, and a result shows it of each."""
    return 1 if state == "goal_complete" and work.unshown else EXIT.get(state, ASKED)


def code_of_end(run: Run) -> int | None:
    """Return what every command tells a program of a run that is over; None for one of another table of this name."""
    state = run.configuration.state
    return exit_code(state, work_of(run.ledger)) if state in EXIT else None


@attrs.frozen
class WorkStart:
    """With what the work is begun; kept in its ledger. `tasks` are those of a template, if one is used, `module` binds names in place of ours.

    `settings` are what policies read.
    """

    goal: str
    settings: CodingSettings
    tasks: tuple[Task, ...] = ()
    parameters: Mapping[str, Value] = attrs.field(factory=dict)
    module: str | None = None
    chosen: SecretOptions = attrs.field(factory=SecretOptions)

    def options(self) -> Options:
        """Return how the run is started."""
        said, config = self.settings, as_data(attrs.evolve(self.settings, budget=None))
        return Options(
            self.module, said.model, said.seed, self.parameters, said.budget or (), self.chosen, config=config
        )

    def first(self) -> Occurrence:
        """Return the event that the run begins with."""
        goal = Goal(self.goal, tasks=self.tasks or None)
        return Occurrence("planned" if self.tasks else "goal", data=as_data(goal))


class _Rounds:
    """Passes moments on, and calls `on_round` after each round that begins."""

    def __init__(self, on_moment: OnMoment | None) -> None:
        self._on_moment = on_moment
        self.on_round: Callable[[], None] = lambda: None

    def __call__(self, moment: Moment, is_new: bool) -> None:  # noqa: FBT001  (the observer interface)
        if self._on_moment is not None:
            self._on_moment(moment, is_new)
        if is_new and isinstance(moment.entry, EventEntry) and moment.entry.event == "probed":
            self.on_round()


class WorkRun(MachineSession[CodingResources]):
    """A run of the coding machine that is held: of the work on a goal, or of a part of it."""

    @property
    def state(self) -> str:
        """Where it stands, without the states around it."""
        return self._handle.run.configuration.state.rpartition(".")[2]

    @property
    def own_work(self) -> Work:
        """What the ledger says of the work: of parts only once all of a group are over."""
        return self.resources.work(self._handle.run)


class Agent(WorkRun):
    """The work on one goal; `begin` and `resume` make it.

    It is kept in `runs`. `on_moment` is called with every moment of its run and of the parts of it, `listen` with the model's text as it comes, `notice`
    with why a model that failed is asked again and with what cannot be written down.
    """

    command = "dsa code"

    def __init__(
        self,
        runs: Runs,
        handle: RunHandle,
        listen: Listener,
        notice: Listener,
        on_moment: OnMoment | None,
        *,
        is_new: bool,
    ) -> None:
        def prepare(resources: CodingResources) -> None:
            resources.listen, resources.notice = listen, lambda text: notice(f"model: {text}")
            resources.runs, resources.watch_part = runs, on_moment
            _ = resources.model, resources.toolbox
            if is_new:
                _ = resources.toolbox.tools  # servers of others start here, or say why not

        super().__init__(handle, KNOWN, prepare)
        self._runs, self._notice, self._untold = runs, notice, ""
        self._projection = Projection(Path(self.resources.settings.workspace))
        self._first: tuple[Occurrence, ...] = ()

    @classmethod
    def begin(
        cls,
        settings: WorkStart,
        runs: Runs,
        *,
        on_moment: OnMoment | None = None,
        listen: Listener = lambda _text: None,
        notice: Listener = lambda _text: None,
    ) -> "Agent":
        """Begin. Raises ModelUnavailable, ToolError and ValueError for tools that cannot be had, BindingError, StoreError, BudgetError."""
        _require_fit_for_parts(settings.settings)
        if fault := Projection(Path(settings.settings.workspace)).fault():
            raise ValueError(fault)
        rounds = _Rounds(on_moment)
        handle = begun(runs, NAME, settings.options(), on_moment=rounds)
        agent = cls(runs, handle, listen, notice, on_moment, is_new=True)
        agent._first, rounds.on_round = (settings.first(),), agent.project
        return agent

    @classmethod
    def resume(
        cls,
        run_id: str,
        runs: Runs,
        *,
        options: Options | None = None,
        take: bool = False,
        on_moment: OnMoment | None = None,
        listen: Listener = lambda _text: None,
        notice: Listener = lambda _text: None,
    ) -> "Agent":
        """Take up the work again, bound as it was begun but for what the options say: a model, a budget for all of it.

        Raises WrongRunError for a run that is none, or a part of one, StoreError, OtherMachineError, ReplayError.
        """
        whole, _, part = run_id.partition(PART_OF)
        if part:
            raise WrongRunError(f"run {run_id} is a part of {whole}: go on with that one")
        rounds = _Rounds(on_moment)
        handle = taken_up(runs, run_id, NAME, options or Options(), take=take, on_moment=rounds)
        agent = cls(runs, handle, listen, notice, on_moment, is_new=False)
        rounds.on_round = agent.project
        return agent

    @property
    def is_paused(self) -> bool:
        """Return whether the model could not be asked; `go_on` asks it again."""
        return self.state in PAUSED

    @property
    def asks(self) -> CodingCall | None:
        """The call for which leave is asked, as its event has it; None where nobody is asked."""
        return self.work.call if self.state == "approving" else None

    @property
    def asked_shown(self) -> str:
        """What the call would do for which leave is asked: a diff, or the command."""
        return "" if self.asks is None else self.resources.toolbox.shown(self.asks)

    @property
    def work(self) -> Work:
        """What the ledger says of the work, and those of parts that are not over."""
        run, work = self._handle.run, self.own_work
        if not any(subtask.status == "apart" for _, _, subtask in work.places):
            return work
        return gathered(run.ledger, self._runs, run.run_id)

    async def go_on(self) -> None:
        """Work until it rests: at the end, where somebody is asked, or where the model could not be asked.

        Raises StoppedError for a fault of ours; the ledger keeps the run.
        """
        first, self._first = self._first, ()
        if self.is_paused:
            first = (Occurrence("again"),)
        await self.drive(*first)

    async def permit(self, *, always: bool = False) -> None:
        """Let the call happen for which leave is asked; `always`: and others like it."""
        await self.drive(Occurrence("permitted", data={"always": always}))

    async def deny(self, why: str = "") -> None:
        """Do not let it happen; the model is told why."""
        await self.drive(Occurrence("denied", data={"why": why} if why else {}))

    async def stop(self) -> None:
        """End the work."""
        await self.drive(Occurrence("stopped"))

    async def drive(self, *occurrences: Occurrence) -> None:
        """Tell it events, and write down for people where it stands. Raises StoppedError."""
        try:
            await super().drive(*occurrences)
        finally:
            self.project()

    def project(self) -> None:
        """Write down for people where the work stands. What cannot be written is told, once, and ends nothing: the truth is the ledger."""
        try:
            self._projection.write(self.work, self.values)
        except OSError as error:
            if (told := f"{error.filename2 or error.filename}: {error.strerror}") != self._untold:
                self._untold = told
                self._notice(f"what is done cannot be written down in the workspace: {told}")


def _require_fit_for_parts(settings: CodingSettings) -> None:
    """Raise ValueError where subtasks are to be worked at together, and somebody would be asked, or there is one script for all."""
    count = settings.parallel or 1
    if count == 1:
        return
    if (settings.model or "").startswith("scripted:"):
        raise ValueError(f"parallel = {count}: a script cannot play several models; name another model")
    if (settings.mode or MODES[0]) == "ask":
        raise ValueError(
            f"parallel = {count}: nobody can be asked for leave by several at once; say --mode auto-edit, full-auto or read-only"
        )


def unfinished_run(goal: str, workspace: Path, runs: Runs) -> str | None:
    """Name the newest run of this goal in this workspace that is not over (seed 003: resume when the goal matches)."""
    for run_id in reversed(runs.ids()):
        if f"-{NAME}" not in f"-{run_id}" or PART_OF in run_id:
            continue
        recorded = runs.recorded(run_id)
        if settings_recorded(recorded).workspace == str(workspace) and _is_open(recorded, goal):
            return run_id
    return None


def _is_open(recorded: StoredRun, goal: str) -> bool:
    """Return whether a run is of this goal, and not over."""
    events = (
        entry.data for entry in recorded.entries if isinstance(entry, EventEntry) and entry.event in {"goal", "planned"}
    )
    said = next(events, None)
    ends = [entry.target for entry in recorded.entries if isinstance(entry, RowEntry)]
    return isinstance(said, Mapping) and said.get("text") == goal and (not ends or ends[-1] not in EXIT)
