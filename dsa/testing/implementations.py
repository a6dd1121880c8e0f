"""Implementations to test against a table: the protocol that a user's code is adapted to, and our own engines behind it.

An adapter is a small class of yours around your code; any of its methods may be `async def`:

    class Adapter:
        def start(self, parameters):                 # begin anew, at these parameters' values
            self.agent = MyAgent(max_retries=parameters["rmax"])

        async def feed(self, occurrence):            # something happened: return the effects it emits, in order
            effects = await self.agent.handle(occurrence.event, dict(occurrence.verdicts))
            return RefusedAction() if effects is None else effects

        def view(self):                              # what can be seen now; what is left out is not compared
            return View(state=self.agent.phase, values={"retries": self.agent.retries})

`feed` returns the effects emitted; what a row cancels is not among them, and shows in `View.pending` only. A timer's occurrence
has the event `after 30s` and the state it belongs to as its `source`.

A method `close()`, when there is one, is called at the end of each test. A method `restart()`, when there is one, stands for the end of the
process and a new one: it forgets all that is in memory, and comes back from what was saved:

        def restart(self):
            self.agent = MyAgent.load(self.folder)

Hypothesis walks call it at any time, any number of times; then everything that the view shows must be as it was.

`ReplayedMachine` is a machine that keeps a ledger: a `Run`, which every restart replays from its lines of text. It shows the effects and
timers that `unfinished_work` reads from the ledger, as a process does that resumes the run.
"""

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Protocol

import attrs

from dsa.compiled_step import compiled_step
from dsa.declarations import RefusedAction
from dsa.errors import OccurrenceError
from dsa.expr import Value
from dsa.immutable import immutable
from dsa.machine import Machine
from dsa.runtime.ledger import ResultEntry, dump_line, load_lines
from dsa.runtime.policy.policies import error_step, event_step
from dsa.runtime.run import Command, Intent, Run, begin, oldest_key, replay
from dsa.runtime.status import unfinished_work
from dsa.semantics import Configuration, Occurrence, Refusal, Taken, start, step
from dsa.targets.statechart import StatechartRun
from dsa.trace import show_occurrence

__all__ = [
    "Answer",
    "Implementation",
    "MakeImplementation",
    "Observation",
    "RefusedAction",
    "StatechartMachine",
    "SteppedMachine",
    "View",
    "view_of",
]  # fmt: skip


def _emissions_of(names: Iterable[str] | None) -> Collection[str] | None:
    """Return the effects as a set, or sorted with repeats where one is awaited several times."""
    if names is None:
        return None
    effects = tuple(sorted(names))
    return frozenset(effects) if len({*effects}) == len(effects) else effects


def _keys_of(keys: Mapping[str, str | Iterable[str]] | None) -> Mapping[str, str | tuple[str, ...]] | None:
    """Return the key of each effect, or all its keys where there are several."""
    if keys is None:
        return None
    groups = {effect: (key,) if isinstance(key, str) else tuple(key) for effect, key in keys.items()}
    return MappingProxyType({e: group[0] if len(group) == 1 else group for e, group in groups.items() if group})


def _deadlines_of(timers: Mapping[str, object] | Iterable[str] | None) -> Mapping[str, object] | None:
    return timers if timers is None or isinstance(timers, Mapping) else dict.fromkeys(timers)


@attrs.frozen(field_transformer=immutable)
class View:
    """What can be seen of an implementation between two occurrences; what is None or left out is not compared.

    `state` is a state of the table, by its full name or its last part; a parent stands for all states in it. `values` has any of the
    table's variables, `pending` the effects whose answers are awaited: one that is awaited several times (`at once`) is named as often.

    `keys` has for each of these effects the key that its answer must have, or all its keys: a new one each time that the effect is emitted, and
    the same for as long as it is awaited. An answer takes one of them away, whichever it belongs to. `timers` are those that are armed, written as
    `after 4h of asking`, with their deadlines (of any type) when it is a mapping: a deadline stays what it is when an occurrence is refused, and over a restart.
    """

    state: str | None = None
    values: Mapping[str, Value] = attrs.field(factory=dict)
    pending: Collection[str] | None = attrs.field(default=None, converter=_emissions_of)
    keys: Mapping[str, str | tuple[str, ...]] | None = attrs.field(default=None, converter=_keys_of)
    timers: Mapping[str, object] | None = attrs.field(default=None, converter=_deadlines_of)


@attrs.frozen(field_transformer=immutable)
class Observation:
    """What can be seen of an implementation beside the effects it emits and whether it refuses.

    `state`: the leaf it is in; `values`: these variables; `pending`: which effects are outstanding; `reasons`: why it refuses.
    """

    state: bool = False
    values: tuple[str, ...] = ()
    pending: bool = False
    reasons: bool = False

    def __str__(self) -> str:
        parts = ["its state"] if self.state else []
        parts += [", ".join(self.values)] if self.values else []
        parts += ["the pending effects"] if self.pending else []
        parts += ["the reason for a refusal"] if self.reasons else []
        return ", ".join(parts)


#: The effects emitted, in order, or `RefusedAction()`; `RefusedAction("late")` says why, and that is compared too.
Answer = Iterable[str] | RefusedAction


class Implementation(Protocol):
    """Something that claims to do what a table says. Its methods may also be coroutines."""

    def start(self, parameters: Mapping[str, Value], /) -> Awaitable[None] | None:
        """Begin anew: nothing has happened."""

    def feed(self, occurrence: Occurrence, /) -> Awaitable[Answer] | Answer:
        """Take an occurrence with the verdicts that the table reads, and return the effects; or refuse and change nothing."""

    def view(self) -> Awaitable[View] | View:
        """Show what can be seen; this must change nothing."""


MakeImplementation = Callable[[], Implementation]


def view_of(machine: Machine, configuration: Configuration) -> View:
    """Return everything that can be seen of a configuration."""
    values = dict(zip((variable.name for variable in machine.variables), configuration.values, strict=True))
    timers = [
        show_occurrence(Occurrence(event, source=source)) for source, event in machine.armed_timers(configuration.state)
    ]
    return View(configuration.state, values, configuration.outstanding, timers=timers)


def _answer(result: Taken | Refusal) -> Answer:
    return RefusedAction(result.reason) if isinstance(result, Refusal) else result.effects


class SteppedMachine:
    """A machine as an implementation of itself, or of another, on the compiled step."""

    def __init__(self, machine: Machine) -> None:
        self._machine, self._here = machine, start(machine)

    def start(self, parameters: Mapping[str, Value], /) -> None:
        """Begin at the start."""
        values = {name: value for name, value in parameters.items() if name in self._machine.constants}
        if values != {name: self._machine.constants[name] for name in values}:
            self._machine = self._machine.at(values)
        self._here = start(self._machine)

    def feed(self, occurrence: Occurrence, /) -> Answer:
        """Take a row; refuse what is malformed."""
        try:
            result = compiled_step(self._machine).step(self._here, occurrence)
        except OccurrenceError:
            return RefusedAction("malformed")
        self._here = result.configuration
        return _answer(result)

    def view(self) -> View:
        """Show everything."""
        return view_of(self._machine, self._here)


class StatechartMachine:
    """A machine as an implementation on python-statemachine (`dsa.targets.statechart`).

    Making one is slow, since its class is built; starting it again is not, so one may serve all tests.
    """

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._run = StatechartRun(machine)

    def start(self, parameters: Mapping[str, Value], /) -> None:
        """Begin at the start."""
        if dict(parameters) != self._machine.constants:
            self._machine = self._machine.at(parameters)
            self._run = StatechartRun(self._machine)
        self._run.configuration = start(self._machine)

    def feed(self, occurrence: Occurrence, /) -> Answer:
        """Send the occurrence; refuse what is malformed."""
        try:
            return _answer(self._run.send(occurrence))
        except OccurrenceError:
            return RefusedAction("malformed")

    def view(self) -> View:
        """Show everything."""
        return view_of(self._machine, self._run.configuration)


class ReplayedMachine:
    """A machine as an implementation of itself, or of another, on a `Run`; `text` is its ledger, an entry a line.

    Each occurrence takes a millisecond. Results are recorded as a driver does: for an effect without answers when it is emitted, for another
    with its answer.
    """

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._run: Run
        self._begin()

    def start(self, parameters: Mapping[str, Value], /) -> None:
        """Begin a run at the start."""
        values = {name: value for name, value in parameters.items() if name in self._machine.constants}
        if values != {name: self._machine.constants[name] for name in values}:
            self._machine = self._machine.at(values)
        self._begin()

    def feed(self, occurrence: Occurrence, /) -> Answer:
        """Record an occurrence and its effects; refuse what is malformed, which does not become an event of the run."""
        try:
            result = step(self._machine, self._run.configuration, occurrence)
        except OccurrenceError:
            return RefusedAction("malformed")
        origin = "" if occurrence.source else self._machine.event_named[occurrence.event].origin
        key = oldest_key(self._run.keys, origin) or None
        if key is not None:
            self._run = self._run.record(_result(key, origin, occurrence))
        self._now_ms += 1
        self._run, commands = self._run.feed(occurrence, key, at_ms=self._now_ms)
        self._obey(commands)
        return RefusedAction(result.reason) if isinstance(result, Refusal) else result.effects

    def view(self) -> View:
        """Show everything."""
        run, left = self._run, unfinished_work(self._run)
        intents = [intent for intent, _ in left.answers] + [call.intent for call in left.in_flight]
        intents += [sleep.intent for sleep in left.sleeps]
        view = view_of(self._machine, run.configuration)
        keys: dict[str, list[str]] = {}
        for intent in intents:
            keys.setdefault(intent.effect, []).append(intent.key)
        due = left.timers.items()
        timers = {show_occurrence(Occurrence(event, source=source)): at for (source, event), at in due}
        return View(view.state, view.values, [intent.effect for intent in intents], keys, timers)

    @property
    def text(self) -> str:
        """The ledger, an entry a line."""
        return "".join(f"{dump_line(entry)}\n" for entry in self._run.ledger)

    def restart(self) -> None:
        """Write the ledger as text, forget everything, read it again and replay it."""
        self._run = replay(self._machine, load_lines(self.text))

    def _begin(self) -> None:
        self._now_ms = 0
        self._run, commands = begin(self._machine, "run", at_ms=self._now_ms)
        self._obey(commands)

    def _obey(self, commands: tuple[Command, ...]) -> None:
        """Record that what has no answers is done."""
        for command in commands:
            if isinstance(command, Intent) and command.effect not in self._machine.answers:
                self._run = self._run.record(ResultEntry(command.key))


def _result(key: str, effect: str, occurrence: Occurrence) -> ResultEntry:
    """Return the record of what an effect's policy gave when the effect is answered so."""
    if occurrence.event == f"{effect}.failed":
        policy_step = error_step(effect, "FAILED", "it failed")
    else:
        policy_step = event_step(effect, occurrence.event, verdicts=dict(occurrence.verdicts))
    return ResultEntry(key, (policy_step.without_id(),))
