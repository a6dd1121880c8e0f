"""Child runs: machines that generate artifacts for other runs, and the runs to drive if an event is for a part (seed 000, semantic agency).

A `MachineGenerator` takes a machine with its bindings, and returns an Artifact for a Context: a run of that machine produces it. The run has a
ledger of its own, under an id that follows from its effect, so performing the effect again finds the run and continues it.

Such a run is a part; the run that it belongs to is its whole. Only the whole drives its parts, and an event for a part makes the whole due.
"""

import asyncio
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from contextvars import ContextVar
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from dsa.data_use import SPECIFICATION
from dsa.edge.document_files import read_text, shipped_documents
from dsa.errors import BindingError, DocumentError, MachineError
from dsa.lang import loads
from dsa.machine import Machine
from dsa.runs.archive import require_no_secret
from dsa.runs.handle import require_place
from dsa.runs.place import PART_OF, accepted_artifacts, new_run_id, result_of
from dsa.runs.setup import MachineDocument, Options, RunSetup, setup_of, skip_replies, takes_specification
from dsa.runtime.artifacts import ArtifactStore
from dsa.runtime.content import Artifact, AsyncGeneratorInterface, Context, PromptTemplate, render
from dsa.runtime.generation import GenerationError, Usage
from dsa.runtime.ledger import (
    PART,
    PART_WAITS,
    ArtifactEntry,
    Entry,
    Part,
    ResultEntry,
    asking_run,
    part_in,
    place_in_part,
)
from dsa.runtime.run import Run
from dsa.runtime.run_store import RunSummary, UnknownRunError
from dsa.runtime.status import Rest, timed_events
from dsa.semantics import Occurrence

if TYPE_CHECKING:
    from dsa.runs.door import RecordedRuns, RunMaker, Runs
    from dsa.runs.handle import RunHandle


class MachineGenerator(AsyncGeneratorInterface):
    """A generator that runs a machine for each artifact: the rendered prompt is the specification, and the finalised artifact is the result.

    `runs` keeps its runs, in the same place as those that they are for; `setup` is the bound machine. `step` names the step whose artifact is wanted, by default
    the last one. Raises ValueError for a machine that takes no specification, or has no such step.
    """

    def __init__(self, runs: "RunMaker", setup: RunSetup, *, step: str = "") -> None:
        self._runs, self._setup, self._step = runs, setup, step
        self._machine = setup.machine
        _require_fit(self._machine, step)
        require_no_secret(setup.text, setup.binding.secrets)
        self._has_caught_up = False

    def generate(self, context: Context, template: PromptTemplate | None = None) -> Artifact:
        """Run the machine. Raises what `agenerate` does, and RuntimeError inside an event loop: call `agenerate` there."""
        return asyncio.run(self.agenerate(context, template))

    async def agenerate(self, context: Context, template: PromptTemplate | None = None) -> Artifact:
        """Run the machine, or continue its run. Raises GenerationError if it makes no artifact; the run itself is kept.

        Raises GenerationError, with the part, if it waits for a person or a timer, which is not a failure of the machine.
        """
        prompt = render(template, context)
        handle = self._open_run(context.key, prompt)
        was_finished = handle.run.is_finished
        rest = await handle.drive(*_first(handle.run, prompt), through_timers=False)
        artifact = self._artifact_of(rest, handle.artifacts)
        is_reported = was_finished and self._is_reported(context.key, artifact)
        usage = _usage(() if is_reported else rest.run.ledger)
        return Artifact(artifact.content, artifact_id=artifact.artifact_id, usage=usage)

    def _entries_of_whole(self, key: str) -> Iterator[ArtifactEntry | ResultEntry]:
        """Yield the artifacts and results of the effect of a key in the ledger of the whole."""
        whole = key.partition("/")[0]
        with suppress(UnknownRunError):
            for entry in self._runs.entries(whole):
                if isinstance(entry, ArtifactEntry | ResultEntry) and f"{key}/".startswith(f"{whole}/{entry.key}/"):
                    yield entry

    def _is_reported(self, key: str, artifact: Artifact) -> bool:
        """Return whether the ledger of the whole has the artifact for this effect, and with it what the run took."""
        entries = (entry for entry in self._entries_of_whole(key) if isinstance(entry, ArtifactEntry))
        return any(entry.content_digest == artifact.content_digest for entry in entries)

    def _is_awaited(self, key: str, run_id: str) -> bool:
        """Return whether the last that the whole knows of a run is that it waits: its end is still to be reported."""
        results = [entry for entry in self._entries_of_whole(key) if isinstance(entry, ResultEntry)]
        part = part_in(results[-1]) if results else None
        return part is not None and part.run == run_id

    def _open_run(self, key: str, prompt: str) -> "RunHandle":
        """Open the run for an effect: one that was cut off or has made the artifact, or else a new one."""
        parent, _, place = (key or new_run_id(self._machine.name)).partition("/")
        base = f"{parent}{PART_OF}{place.replace('/', '.')}" if place else parent
        self._catch_up(f"{parent}{PART_OF}")
        for number in count(1):
            run_id = base if number == 1 else f"{base}.{number}"
            try:
                record = self._runs.get(run_id)
            except UnknownRunError:
                settings = {**self._setup.settings, "for": key}
                return self._runs.begin(attrs.evolve(self._setup, settings=settings), run_id=run_id)
            run = record.run
            is_ours = record.first.digest == self._setup.digest and run.specification in {None, prompt}
            has_failed = run.is_finished and run.outcome in _NOTHING
            if is_ours and (not has_failed or self._is_awaited(key, run_id)):
                options = Options(lambda _machine, _settings: self._setup.binding, self._setup.settings.get("model"))
                return self._runs.hold(run_id, options=options)
        raise AssertionError("numbers do not end")

    def _artifact_of(self, rest: Rest, artifacts: ArtifactStore) -> Artifact:
        """Return the artifact of a run at rest. Raises GenerationError if there is none, with what to do."""
        run, owner = rest.run, f"the machine {self._machine.name} (run {rest.run.run_id})"
        if rest.failure is not None:
            raise GenerationError(f"{owner} stopped: {rest.failure}", rest.failure.code)
        if rest.in_doubt:
            effects = ", ".join(intent.effect for intent in rest.in_doubt)
            message = f"does not know whether {effects} happened: see `dsa show {run.run_id}`"
            raise GenerationError(f"{owner} {message}", "in_doubt")
        if not run.is_finished:
            waits = {event: place_in_part(run.run_id, place) for event, place in rest.waits_for.items()}
            message = ", ".join((*waits, *timed_events(run)))
            part = Part(run.run_id, waits, rest.due_ms)
            raise GenerationError(
                f"{owner} waits in {run.configuration.state} for: {message}", PART_WAITS, about={PART: part.to_json()}
            )
        artifact = self._final_artifact(run, artifacts)
        if artifact is None:
            raise GenerationError(f"{owner} ended in {run.configuration.state} and has no artifact", "no_artifact")
        return artifact

    def _final_artifact(self, run: Run, artifacts: ArtifactStore) -> Artifact | None:
        if run.outcome in _NOTHING:
            return None
        if self._step:
            artifact_id = run.step(self._step).accepted
            return None if artifact_id is None else artifacts.get_artifact(artifact_id)
        return result_of(run.machine, accepted_artifacts(run, artifacts))

    def _catch_up(self, prefix: str) -> None:
        """Let scripts skip the replies that they gave to earlier runs for the same run."""
        if self._has_caught_up:
            return
        self._has_caught_up = True
        for run_id in self._runs.ids():
            if run_id.startswith(prefix):
                record = self._runs.get(run_id)
                if record.first.name == self._machine.name:
                    skip_replies(self._setup.binding, record.run.ledger)


@attrs.frozen
class Machines:
    """The factory of generators of kind `machine`. A machine from a file is bound like the run that uses it, and its runs are kept in the same place.

    `above` are the documents that it would be a part of.
    """

    runs: "RunMaker"
    options: Options
    above: tuple[Path, ...] = ()

    def __call__(self, file: str, step: str, folder: Path) -> MachineGenerator:
        """Return the generator that runs the machine in a file, relative to a folder, or of a shipped one.

        Raises ValueError for a machine that cannot be read or bound, or takes no specification; each line of the message has its place.
        """
        label = str(folder / file)
        try:
            path = _machine_path(file, folder)
            label = label if path == folder / file else file
            within = (*self.above, path.resolve())
            if within.count(path.resolve()) > 1:
                raise ValueError(f"{label} would be a part of itself")
            text = read_text(path)
            options = Options(
                model=self.options.model, seed=self.options.seed, secret_options=self.options.secret_options
            )
            setup = setup_of(MachineDocument(loads(text, label), text, path), options, attrs.evolve(self, above=within))
            return MachineGenerator(self.runs, setup, step=step)
        except (BindingError, DocumentError, MachineError) as error:
            raise ValueError("\n".join(_with_place(line, label) for line in str(error).splitlines())) from error


def _machine_path(file: str, folder: Path) -> Path:
    """Return the path of a machine: a file relative to the folder, or else a shipped one. Raises DocumentError if there is none."""
    path = folder / file
    if os.path.exists(path):  # noqa: PTH110  (Path's raises OSError for a name too long for any file)
        return path
    machines = shipped_documents()
    if file in machines:
        return machines[file]
    raise DocumentError(str(path), "there is no such file, and no shipped machine of that name")


def _with_place(line: str, label: str) -> str:
    """Return a line of a message with the document that it is about; an indented line belongs to the line before."""
    has_place = line.startswith((" ", f"{label}:")) or _PLACE.match(line)
    return line if has_place else f"{label}: {line}"


#: The final states in which a run has no result, whatever its steps finalised on the way.
_NOTHING = frozenset({"failed", "escalated"})
#: The beginning of a line that already has a place, in a nested document.
_PLACE = re.compile(r"[^:]+:\d+:\d+: ")


def _first(run: Run, prompt: str) -> tuple[Occurrence, ...]:
    """Return the specification for a run; nothing if the run has it already."""
    return () if run.seq else (Occurrence(SPECIFICATION, data=prompt),)


def _require_fit(machine: Machine, step: str) -> None:
    """Raise ValueError for a machine that takes no specification, or has no such step."""
    if not takes_specification(machine):
        raise ValueError(
            f"the machine {machine.name} has no event '{SPECIFICATION}' from outside, so it cannot be a generator"
        )
    if step and machine.steps and step not in machine.step_named:
        names = ", ".join(machine.step_named)
        raise ValueError(f"the machine {machine.name} has no step '{step}'; its steps are: {names}")


def _usage(entries: Iterable[Entry]) -> Usage:
    """Add up the usage of a run's artifacts; a number that is unknown for one of them is unknown for the sum."""
    artifacts = [entry for entry in entries if isinstance(entry, ArtifactEntry)]
    models = dict.fromkeys(entry.model for entry in artifacts if entry.model)
    return Usage(
        ", ".join(models),
        sum(entry.seconds for entry in artifacts),
        _sum(entry.prompt_tokens for entry in artifacts),
        _sum(entry.completion_tokens for entry in artifacts),
        _sum(entry.cost_usd for entry in artifacts),
    )


def _sum(amounts: Iterable[Any]) -> Any:  # noqa: ANN401  (int or float, or None)
    values = list(amounts)
    return None if not values or None in values else sum(values)


_RUNS: ContextVar["Runs | None"] = ContextVar("runs for parts", default=None)


def keep_parts_in(runs: "Runs") -> None:
    """Record that the rest of this task is the work of an effect whose parts are kept in these runs."""
    _RUNS.set(runs)


def runs_for_parts() -> "Runs | None":
    """Return the runs in which the current effect keeps its parts, as its worker says; None means the folder of its own run."""
    return _RUNS.get()


def target_run(runs: "RecordedRuns", run_id: str, event: str, at: str | None) -> tuple[str, str | None]:
    """Return the run that takes an event for `run_id`, and the place of the question there.

    It is a part if the place names one, or if there is no place and only the part waits for the event. Raises UnknownRunError, and TypeError for
    a place that is not a string.
    """
    require_place(at)
    if at is not None:
        return (asking_run(at), at.rpartition("@")[2]) if asking_run(at) else (run_id, at)
    handle = runs.handle(run_id)
    places = handle.waits_for if handle is not None and handle.is_driven else runs.summary(run_id).summary.waits_for
    place = places.get(event, "")
    return (asking_run(place), place.rpartition("@")[2]) if asking_run(place) else (run_id, None)


def driving_run(runs: "RecordedRuns", run_id: str) -> str:
    """Return the run to drive so that this one continues: its whole, if that waits for it or is held, or else itself."""
    if PART_OF not in run_id:
        return run_id
    whole = run_id.partition(PART_OF)[0]
    try:
        summary = runs.summary(whole)
    except UnknownRunError:
        return run_id
    return whole if run_id in summary.summary.parts or summary.holder is not None else run_id


def due_runs(summaries: Iterable[RunSummary]) -> list[RunSummary]:
    """Return the runs that a worker takes up: neither parts nor runs that a person has interrupted. A run is due as soon as a part that it waits for is."""
    by_run = {each.run: each for each in summaries}
    return [each for each in by_run.values() if each.summary.parent is None and _is_due(each, by_run)]


def _is_due(summary: RunSummary, by_run: Mapping[str, RunSummary]) -> bool:
    if summary.status == "waiting":
        return any(_has_news(by_run[part]) for part in summary.summary.parts if part in by_run)
    return summary.is_due and summary.summary.status != "interrupted"


def _has_news(part: RunSummary) -> bool:
    """Return whether a part has work to do, or a result that its whole does not have yet."""
    return part.status not in {"waiting", "under way", "interrupted", "damaged"}
