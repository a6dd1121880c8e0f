"""A machine as an implementation that keeps a ledger: a `Run`, which every restart replays from its lines of text.

What it shows of effects and timers is what `unfinished` reads from the ledger, as a process does that takes the run up.
"""

from collections.abc import Mapping

from dsa.errors import OccurrenceError
from dsa.expr import Value
from dsa.machine import Machine
from dsa.meaning import Occurrence, Refusal, step
from dsa.runtime.ledger import ResultEntry, dump_line, load_lines
from dsa.runtime.policies import error_step, event_step
from dsa.runtime.recovery import unfinished
from dsa.runtime.run import Command, Intent, Run, begin, replay
from dsa.testing.implementations import Answer, Refused, View, view_of
from dsa.trace import show_occurrence


class Replayed:
    """A machine as an implementation of itself, or of another, on a `Run`; `text` is its ledger, an entry a line.

    Each occurrence takes a millisecond. Results are recorded as a driver does it: of an effect without answers when it is asked for, of another
    with its answer.
    """

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._run: Run
        self._begin()

    def start(self, parameters: Mapping[str, Value], /) -> None:
        """Begin a run at the start."""
        known = {name: value for name, value in parameters.items() if name in self._machine.constants}
        if known != {name: self._machine.constants[name] for name in known}:
            self._machine = self._machine.at(known)
        self._begin()

    def feed(self, occurrence: Occurrence, /) -> Answer:
        """Record an occurrence and what comes of it; what is malformed is refused as such, and is no event of the run."""
        try:
            expected = step(self._machine, self._run.configuration, occurrence)
        except OccurrenceError:
            return Refused("malformed")
        origin = "" if occurrence.source else self._machine.event_named[occurrence.event].origin
        key = self._run.keys.get(origin)
        if key is not None:
            self._run = self._run.record(_result(key, origin, occurrence))
        self._now_ms += 1
        self._run, commands = self._run.feed(occurrence, key, at_ms=self._now_ms)
        self._obey(commands)
        return Refused(expected.reason) if isinstance(expected, Refusal) else expected.effects

    def view(self) -> View:
        """Show everything."""
        run, left = self._run, unfinished(self._run)
        awaited = [intent for intent, _ in left.answered] + [flying.intent for flying in left.in_flight]
        seen = view_of(self._machine, run.configuration)
        keys = {intent.effect: intent.key for intent in awaited}
        due = left.timers.items()
        timers = {show_occurrence(Occurrence(event, source=source)): at for (source, event), at in due}
        return View(seen.state, seen.values, keys.keys(), keys, timers)

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
    """Give the record of what an effect's policy gave when the effect is answered so."""
    if occurrence.event == f"{effect}.failed":
        given = error_step(effect, "FAILED", "it failed")
    else:
        given = event_step(effect, occurrence.event, verdicts=dict(occurrence.verdicts))
    return ResultEntry(key, (given.without_id(),))
