"""A generator that is a whole machine: what one run wants as an artifact, another run works out (seed 000, semantic agency).

Takes a machine's document and what binds it; gives an Artifact for a Context. The other run has a ledger of its own, under an id that follows from
the effect it is for: whoever performs that effect again finds it, and goes on with it instead of beginning anew.
"""

import asyncio
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import attrs

from dsa.edge.binding import Binding, bind
from dsa.edge.driver import Driver, Rest
from dsa.edge.files import read_text, shipped
from dsa.edge.running import Observer, kept, replayed, require_no_secret, takes_specification
from dsa.edge.runs import PART_OF, PART_WAITS, accepted_artifacts, new_run_id, open_store
from dsa.edge.stores.memory import MemoryStore
from dsa.errors import BindingError, DocumentError, GenerationError, MachineError
from dsa.generators.scripted import ScriptedGenerator
from dsa.lang import digest, loads
from dsa.machine import Machine
from dsa.meaning import Occurrence
from dsa.runtime.artifacts import ArtifactStore, MemoryArtifacts
from dsa.runtime.content import Artifact, AsyncGeneratorInterface, Context, PromptTemplate, Usage
from dsa.runtime.journal import Beginning, Journal, RunStore, UnknownRunError
from dsa.runtime.ledger import ArtifactEntry, Entry, MachineEntry
from dsa.runtime.prompt import render
from dsa.runtime.recovery import unfinished
from dsa.runtime.run import SPECIFICATION, Command, Run, begin
from dsa.runtime.secret_names import Chosen
from dsa.runtime.standing import outside_events


@attrs.frozen
class _Held:
    """A run that is held, and what is to be done first where it is a new one."""

    run: Run
    journal: Journal
    commands: tuple[Command, ...] | None = None


class MachineGenerator(AsyncGeneratorInterface):
    """Runs a machine for each artifact: it is asked for the rendered prompt, and what it finalised is the artifact.

    `text` is the machine's document, `name` what messages call it, `bind` gives what stands behind its names. `step` names the step whose artifact is meant, if not the
    last one. `root` is the folder where its runs are kept, durable, beside those that they are for; without it they are in memory.
    `started` is kept with each of them. ValueError for a machine that cannot be asked, or has no such step.
    """

    def __init__(
        self,
        text: str,
        bind: Callable[[Machine], Binding],
        *,
        name: str = "<text>",
        step: str = "",
        root: Path | None = None,
        started: Mapping[str, Any] | None = None,
    ) -> None:
        self._text, self._machine = text, loads(text, name)
        self._step, self._root, self._started = step, root, dict(started or {})
        _require_fit(self._machine, step)
        self._binding = bind(self._machine)
        require_no_secret(text, self._binding.secrets)
        self._has_caught_up = False

    def generate(self, context: Context, template: PromptTemplate | None = None) -> Artifact:
        """Run the machine. Raises what `agenerate` does; RuntimeError inside an event loop, where that is meant."""
        return asyncio.run(self.agenerate(context, template))

    async def agenerate(self, context: Context, template: PromptTemplate | None = None) -> Artifact:
        """Run the machine, or go on with its run. GenerationError when it gives nothing; the run itself is kept.

        One that waits for a person is no failure of the machine: the message says how to answer it.
        """
        prompt, entries = render(template, context), list[Entry]()
        with (
            self._opened() as store,
            self._held(store, context.key, prompt) as held,
            self._watched(held, entries) as (artifacts, watch),
        ):
            rest = await self._driver(held, artifacts, watch).drive(*_first(held.run, prompt))
            made = self._made(rest, artifacts)
            return Artifact(made.content, artifact_id=made.artifact_id, usage=_usage(entries))

    @contextmanager
    def _opened(self) -> Iterator[RunStore]:
        if self._root is None:
            yield MemoryStore()
        else:
            with open_store(self._root) as store:
                yield store

    @contextmanager
    def _held(self, store: RunStore, key: str, prompt: str) -> Iterator[_Held]:
        """Hold the run that is for an effect: the one that was cut off, or that has given what is wanted; else a new one."""
        parent, _, place = (key or new_run_id(self._machine.name)).partition("/")
        base = f"{parent}{PART_OF}{place.replace('/', '.')}" if place else parent
        self._catch_up(store, f"{parent}{PART_OF}")
        held = self._first_of_use(store, base, key, prompt)
        try:
            yield held
        finally:
            held.journal.release()

    def _first_of_use(self, store: RunStore, base: str, key: str, prompt: str) -> _Held:
        for number in count(1):
            run_id = base if number == 1 else f"{base}.{number}"
            try:
                journal, recorded = store.hold(run_id)
            except UnknownRunError:
                return self._begun(store, run_id, key)
            run, first = replayed(recorded)
            is_ours = first.digest == digest(self._machine) and run.specification in {None, prompt}
            if is_ours and not (run.finished and run.outcome in _NOTHING):
                return _Held(run, journal)
            journal.release()  # it has failed, or was asked for something else: what is wanted is worked out anew
        raise AssertionError("numbers do not end")

    def _begun(self, store: RunStore, run_id: str, key: str) -> _Held:
        started = {**self._started, "for": key}
        at_ms = time.time_ns() // 1_000_000
        run, commands = begin(self._machine, run_id, digest=digest(self._machine), started=started, at_ms=at_ms)
        return _Held(run, Beginning(store, run_id, self._text), commands)

    @contextmanager
    def _watched(self, held: _Held, entries: list[Entry]) -> Iterator[tuple[ArtifactStore, Observer]]:
        """Note what the run says, for whoever looks into its folder too."""
        if self._root is None:
            yield MemoryArtifacts(), entries.append
        else:
            with kept(self._root, held.run, self._text, entries.append) as (artifacts, _, watch):
                yield artifacts, watch

    def _driver(self, held: _Held, artifacts: ArtifactStore, observe: Observer) -> Driver:
        return Driver(
            held.run,
            self._binding,
            artifacts,
            commands=held.commands or (),
            left=unfinished(held.run) if held.commands is None else None,
            journal=held.journal,
            observe=observe,
        )

    def _made(self, rest: Rest, artifacts: ArtifactStore) -> Artifact:
        """Give what was wanted. GenerationError when there is nothing, with what is to be done."""
        run, what = rest.run, f"the machine {self._machine.name} (run {rest.run.run_id})"
        if rest.failure is not None:
            raise GenerationError(f"{what} stopped: {rest.failure}", rest.failure.code)
        if rest.in_doubt:
            effects = ", ".join(intent.effect for intent in rest.in_doubt)
            told = f"does not know whether {effects} happened: `dsa show {run.run_id}` says what can be done"
            raise GenerationError(f"{what} {told}", "in_doubt")
        if not run.finished:
            told = f"waits in {run.configuration.state} for: {', '.join(outside_events(run))}"
            raise GenerationError(f"{what} {told}; answer with `dsa send {run.run_id} EVENT`", PART_WAITS)
        found = self._wanted(run, artifacts)
        if found is None:
            raise GenerationError(f"{what} ended in {run.configuration.state} and has no artifact", "no_artifact")
        return found

    def _wanted(self, run: Run, artifacts: ArtifactStore) -> Artifact | None:
        if run.outcome in _NOTHING:
            return None
        if self._step:
            found = run.step(self._step).accepted
            return None if found is None else artifacts.get_artifact(found)
        return next(reversed(accepted_artifacts(run, artifacts)), None)

    def _catch_up(self, store: RunStore, prefix: str) -> None:
        """Have scripts go on behind the replies that earlier runs for the same run have had of them."""
        if self._has_caught_up:
            return
        self._has_caught_up = True
        for run_id in store.runs():
            if run_id.startswith(prefix):
                first, *entries = store.read(run_id).entries
                if isinstance(first, MachineEntry) and first.name == self._machine.name:
                    self._skip(entries)

    def _skip(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            if isinstance(entry, ArtifactEntry):
                generator = self._binding.generators.get(entry.author)
                if isinstance(generator, ScriptedGenerator):
                    generator.skip(entry.step)


@attrs.frozen
class Machines:
    """Gives the generators of kind `machine`: what is in a file is bound as the run that wants it, and its runs are kept where that one's are.

    `above` are the documents that it would be a part of.
    """

    root: Path | None
    model: str
    seed: int | None
    chosen: Chosen | None = None
    above: tuple[Path, ...] = ()

    def __call__(self, file: str, step: str, folder: Path) -> MachineGenerator:
        """Give the generator that runs the machine in a file, named from a folder, or a shipped one.

        ValueError for one that cannot be read, bound or asked; each fault in it has its place.
        """
        shown = str(folder / file)
        try:
            path = _found(file, folder)
            shown = shown if path == folder / file else file
            within = (*self.above, path.resolve())
            if within.count(path.resolve()) > 1:
                raise ValueError(f"{shown} would be a part of itself")
            asked: dict[str, Any] = {"model": self.model, "seed": self.seed}
            bound = partial(bind, path=path, **asked, chosen=self.chosen, nested=attrs.evolve(self, above=within))
            started = {"file": str(path.absolute()), "module": None, **asked}
            text = read_text(path)
            return MachineGenerator(text, bound, name=shown, step=step, root=self.root, started=started)
        except (BindingError, DocumentError, MachineError) as error:
            raise ValueError("\n".join(_placed(line, shown) for line in str(error).splitlines())) from error


def _found(file: str, folder: Path) -> Path:
    """Give where a machine is: a file named from the folder, else a shipped one. DocumentError when there is none."""
    wanted = folder / file
    if os.path.exists(wanted):  # noqa: PTH110  (Path's raises OSError for a name too long for any file)
        return wanted
    known = shipped()
    if file in known:
        return known[file]
    raise DocumentError(str(wanted), "there is no such file, and no shipped machine of that name")


def _placed(line: str, shown: str) -> str:
    """Give a line of a message with the document that it is about; what is set in goes with the line before."""
    has_place = line.startswith((" ", f"{shown}:")) or _PLACE.match(line)
    return line if has_place else f"{shown}: {line}"


#: Final states in which a run has made nothing, whatever its steps have finalised on the way.
_NOTHING = frozenset({"failed", "escalated"})
#: What the line of a message begins with that has a place already: that of a document further in.
_PLACE = re.compile(r"[^:]+:\d+:\d+: ")


def _first(run: Run, prompt: str) -> tuple[Occurrence, ...]:
    """Give what a run is asked, if it was not asked before."""
    return () if run.seq else (Occurrence(SPECIFICATION, data=prompt),)


def _require_fit(machine: Machine, step: str) -> None:
    """Raise ValueError for a machine that nobody can ask for anything, or whose step there is not."""
    if not takes_specification(machine):
        raise ValueError(
            f"the machine {machine.name} has no event '{SPECIFICATION}' from outside: nobody can ask it for anything"
        )
    if step and machine.steps and step not in machine.step_named:
        known = ", ".join(machine.step_named)
        raise ValueError(f"the machine {machine.name} has no step '{step}'; its steps are: {known}")


def _usage(entries: Iterable[Entry]) -> Usage:
    """Add up what a run's artifacts took; what is unknown of one is unknown of all."""
    made = [entry for entry in entries if isinstance(entry, ArtifactEntry)]
    models = dict.fromkeys(entry.model for entry in made if entry.model)
    return Usage(
        ", ".join(models),
        sum(entry.seconds for entry in made),
        _sum(entry.prompt_tokens for entry in made),
        _sum(entry.completion_tokens for entry in made),
        _sum(entry.cost_usd for entry in made),
    )


def _sum(amounts: Iterable[Any]) -> Any:  # noqa: ANN401  (int or float, or None)
    known = list(amounts)
    return None if not known or None in known else sum(known)
