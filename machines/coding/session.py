"""The work on one goal, held by this process: begun, or taken up again from its ledger, until it rests.

It rests at a final state, or where a person is asked. Everything that was acknowledged is in the ledger, so a process that is killed loses nothing.
"""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import attrs

from dsa.edge.binding import Binding
from dsa.edge.files import locate
from dsa.expr import Value
from dsa.machine import Machine
from dsa.meaning import Occurrence
from dsa.runs.bindings import bind
from dsa.runs.folder import PART_OF
from dsa.runs.place import DEFAULT_RUNS, open_store
from dsa.runtime.journal import Recorded
from dsa.runtime.ledger import Entry, EventEntry, MachineEntry, RowEntry
from machines.coding.gathering import gathered, open_parts
from machines.coding.plan import Task
from machines.coding.projection import Projection
from machines.coding.resources import MODES, Listener, PartObserver, Resources, let_go, resources_in
from machines.coding.work import Work
from machines.talking.holding import Bind, Held, Holder, Observer, WrongRunError, begun, taken_up

NAME = "coding"
#: Where the model could not be asked: `again` tries it again.
PAUSED = ("unplanned", "paused", "held_up")
#: How states that are final are told, and what a program is told of them.
EXIT = {"goal_complete": 0, "answered": 0, "rounds_exhausted": 1, "blocked": 1, "escalated": 3, "cancelled": 1}


@attrs.frozen
class Settings:
    """With what the work is begun; kept in its ledger. `tasks` are those of a template, if one is used.

    `config` has everything that policies read: see `configuration.Configuration`.
    """

    goal: str
    config: Mapping[str, Any]
    tasks: tuple[Task, ...] = ()
    parameters: Mapping[str, Value] = attrs.field(factory=dict)


class Agent(Holder):
    """The work on one goal; `begin` and `resume` make it.

    `observe` is called with every ledger entry once it is durable, `listen` with the model's text as it comes, `notice` with why a model that failed is
    asked again and with what cannot be written down, `watch_part` with the place of a part and each entry of its ledger.
    """

    command = "dsa code"

    def __init__(
        self,
        held: Held,
        resources: Resources,
        projection: Projection,
        notice: Listener,
        first: tuple[Occurrence, ...],
    ) -> None:
        super().__init__(held)
        self.resources = resources
        self._projection, self._notice, self._untold = projection, notice, ""
        self._first = first

    @classmethod
    def begin(
        cls,
        settings: Settings,
        runs: Path = Path(DEFAULT_RUNS),
        *,
        observe: Observer = lambda _entry: None,
        listen: Listener = lambda _text: None,
        notice: Listener = lambda _text: None,
        watch_part: PartObserver = lambda _place, _entry: None,
    ) -> "Agent":
        """Begin. Raises ModelUnavailable, ToolError and ValueError for tools that cannot be had, BindingError, StoreError, BudgetError."""
        config = dict(settings.config)
        _require_fit_for_parts(config)
        if fault := Projection(Path(config["workspace"])).fault():
            raise ValueError(fault)
        made = _Made(listen, notice, observe, watch_part, is_new=True)
        started = {"model": config["model"], "seed": config.get("seed") or 0, "config": config}
        held = begun(NAME, settings.parameters, started, bound_in(runs), made, runs=runs, observe=made.watch)
        goal: dict[str, Any] = {"text": settings.goal}
        if settings.tasks:
            goal["tasks"] = [task.to_json() for task in settings.tasks]
        return made.agent(held, Occurrence("planned" if settings.tasks else "goal", data=goal))

    @classmethod
    def resume(
        cls,
        run_id: str,
        runs: Path = Path(DEFAULT_RUNS),
        *,
        model: str | None = None,
        budget: Sequence[str] = (),
        take: bool = False,
        observe: Observer = lambda _entry: None,
        listen: Listener = lambda _text: None,
        notice: Listener = lambda _text: None,
        watch_part: PartObserver = lambda _place, _entry: None,
    ) -> "Agent":
        """Take up the work again, with another model or another budget for all of it where they are given.

        Raises WrongRunError for a run that is none, or a part of one, StoreError, OtherMachineError, ReplayError.
        """
        whole, _, part = run_id.partition(PART_OF)
        if part:
            raise WrongRunError(f"run {run_id} is a part of {whole}: go on with that one")
        made = _Made(listen, notice, observe, watch_part)
        held = taken_up(
            run_id, NAME, bound_in(runs, model, budget), made, runs=runs, observe=made.watch, take=take, budget=budget
        )
        return made.agent(held)

    @property
    def state(self) -> str:
        """Where it stands, without the states around it."""
        return self._driver.run.configuration.state.rpartition(".")[2]

    @property
    def is_paused(self) -> bool:
        """Tell whether the model could not be asked; `go_on` asks it again."""
        return self.state in PAUSED

    @property
    def bounds(self) -> Mapping[str, Value]:
        """The bounds of the run by their names."""
        return self._driver.run.machine.constants

    @property
    def asks(self) -> Mapping[str, Any] | None:
        """The call for which leave is asked, as its event has it; None where nobody is asked."""
        current = self.work.current
        return current.about if self.state == "approving" and current is not None else None

    @property
    def asked_shown(self) -> str:
        """What the call would do for which leave is asked: a diff, or the command."""
        return "" if self.asks is None else self.resources.toolbox.shown(self.asks)

    @property
    def work(self) -> Work:
        """What the ledger says of the work, and those of parts that are not over."""
        run, work = self._driver.run, self.own_work
        if not any(subtask.status == "apart" for _, _, subtask in work.places):
            return work
        return gathered(run.ledger, Path(self.resources.config["runs"]), run.run_id)

    @property
    def own_work(self) -> Work:
        """What the ledger says of the work: of parts only once all of a group are over."""
        return self.resources.work(self._driver.run)

    @property
    def open_parts(self) -> Mapping[str, Work]:
        """The work of parts whose group is not over, by their places."""
        return open_parts(self.own_work, Path(self.resources.config["runs"]), self.run_id)

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


def _require_fit_for_parts(config: Mapping[str, Any]) -> None:
    """Raise ValueError where subtasks are to be worked at together, and somebody would be asked, or there is one script for all."""
    count = int(config.get("parallel") or 1)
    if count == 1:
        return
    if str(config["model"]).startswith("scripted:"):
        raise ValueError(f"parallel = {count}: a script cannot play several models; name another model")
    if (config.get("mode") or MODES[0]) == "ask":
        raise ValueError(
            f"parallel = {count}: nobody can be asked for leave by several at once; say --mode auto-edit, full-auto or read-only"
        )


class _Made:
    """Makes what the work needs, lets go of it at the end, and writes the projection after each round."""

    def __init__(
        self, listen: Listener, notice: Listener, observe: Observer, watch_part: PartObserver, *, is_new: bool = False
    ) -> None:
        self._listen, self._notice, self._observe = listen, notice, observe
        self._watch_part, self._is_new = watch_part, is_new
        self._agent: Agent | None = None

    def __call__(self, binding: Binding, run_id: str, undone: ExitStack) -> None:
        """Make it."""
        self.resources = resources_in(binding.config, run_id)
        self.resources.listen, self.resources.notice = self._listen, lambda text: self._notice(f"model: {text}")
        self.resources.watch_part = self._watch_part
        undone.callback(let_go, self.resources)
        _ = self.resources.model, self.resources.toolbox
        if self._is_new:
            _ = self.resources.toolbox.tools  # servers of others start here, or say why not
        self.projection = Projection(Path(binding.config["workspace"]))

    def watch(self, entry: Entry) -> None:
        """Pass an entry on; a round that begins is written down for people."""
        self._observe(entry)
        if self._agent is not None and isinstance(entry, EventEntry) and entry.event == "probed":
            self._agent.project()

    def agent(self, held: Held, *first: Occurrence) -> Agent:
        """Give the agent."""
        self._agent = Agent(held, self.resources, self.projection, self._notice, first)
        return self._agent


def bound_in(runs: Path, model: str | None = None, budget: Sequence[str] = ()) -> Bind:
    """Bind the coding machine, with another model or budget if one is named."""

    def bound(machine: Machine, started: Mapping[str, Any]) -> Binding:
        config = {**started["config"], "runs": str(runs.absolute()), **({"budget": list(budget)} if budget else {})}
        answering = model or started["model"]
        return bind(machine, path=locate(NAME), model=answering, seed=started["seed"], config=config)

    return bound


def _config_of(recorded: Recorded) -> Mapping[str, Any]:
    first = recorded.entries[0]
    config = dict(first.started).get("config") if isinstance(first, MachineEntry) else None
    return config if isinstance(config, Mapping) else {}


def unfinished_run(goal: str, workspace: Path, runs: Path) -> str | None:
    """Name the newest run of this goal in this workspace that is not over (seed 003: resume when the goal matches)."""
    if not runs.is_dir():
        return None
    with open_store(runs) as store:
        for run_id in reversed(store.runs()):
            if f"-{NAME}" not in f"-{run_id}" or PART_OF in run_id:
                continue
            recorded = store.read(run_id)
            if _config_of(recorded).get("workspace") == str(workspace) and _is_open(recorded, goal):
                return run_id
    return None


def _is_open(recorded: Recorded, goal: str) -> bool:
    """Tell whether a run is of this goal, and not over."""
    events = (
        entry.data for entry in recorded.entries if isinstance(entry, EventEntry) and entry.event in {"goal", "planned"}
    )
    said = next(events, None)
    ends = [entry.target for entry in recorded.entries if isinstance(entry, RowEntry)]
    return isinstance(said, Mapping) and said.get("text") == goal and (not ends or ends[-1] not in EXIT)
