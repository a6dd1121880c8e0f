"""Performing an effect: its policy is called within its time limit, after a failure again as often as the table says.

Takes intents and actions, gives answers; every try is recorded through the host, which is the driver. What a policy may use while it works
is its context here.
"""

from functools import partial
from typing import Protocol

import attrs

from dsa.edge.binding import Binding
from dsa.edge.clock import Clock
from dsa.edge.effects import answer_in, attempted, error_of, fault_in, result_of, within
from dsa.meaning import Occurrence
from dsa.runtime.artifacts import ArtifactStore
from dsa.runtime.calls import Calls
from dsa.runtime.content import GeneratorInterface, GuardInterface
from dsa.runtime.ledger import ArtifactEntry, IntentEntry, Record, VerdictEntry, dump_line
from dsa.runtime.policies import Action, Step
from dsa.runtime.recovery import declared
from dsa.runtime.registry import Registry
from dsa.runtime.run import Run

#: An effect's policy calls no other one yet.
_NOTHING_TO_CALL = Registry()


class Host(Protocol):
    """Whoever has the run."""

    run: Run

    def record(self, entry: Record) -> None:
        """Append what a policy did; it is durable when the policy next waits or returns."""

    def keep(self, entry: Record) -> None:
        """Append what came of an effect; it is durable when this returns."""


@attrs.frozen
class Performer:
    """Performs the effects of one run."""

    _host: Host
    _binding: Binding
    _artifacts: ArtifactStore
    _clock: Clock

    async def perform(self, intent: IntentEntry, action: Action, tries: int) -> Occurrence | Step | None:
        """Perform an effect and record every try. `tries` were made before, all in vain; one more is always made.

        Gives its answer, an error step, or None when it has no answers and has not failed.
        """
        machine = self._host.run.machine
        about = declared(machine, intent.effect)
        for _ in range(max(1, 1 + (about.retries or 0) - tries)):
            steps = await self._tried(action, about.time_limit_ms)
            answer = answer_in(machine, intent.effect, steps) if intent.effect in machine.answers else fault_in(steps)
            if not isinstance(answer, Step):
                self._host.keep(result_of(intent, steps))
                break
            self._host.keep(result_of(intent, steps if answer in steps else [*steps, answer]))
        return answer

    async def _tried(self, action: Action, limit_ms: int | None) -> list[Step]:
        """Call the policy once; whatever it does, steps come of it (S7)."""
        surroundings = _Surroundings(self._host, self._binding, self._artifacts, self._clock)
        context = Calls(_NOTHING_TO_CALL, surroundings=surroundings).context(action, allowed=())
        policy = self._binding.effects[action.policy]
        try:
            return await within(self._clock, limit_ms, attempted(action.policy, partial(policy, action, context)))
        except TimeoutError as error:
            return [error_of(action.policy, error)]


@attrs.frozen
class _Surroundings:
    """What the policy of one effect may use of its machine."""

    _host: Host
    _binding: Binding
    artifacts: ArtifactStore
    _clock: Clock

    @property
    def run(self) -> Run:
        return self._host.run

    def guard(self, name: str) -> GuardInterface:
        return self._binding.guards[name]

    def generator(self, name: str) -> GeneratorInterface:
        return self._binding.generators[name]

    def now_s(self) -> float:
        return self._clock.now_s()

    def record(self, entry: ArtifactEntry | VerdictEntry) -> None:
        if not isinstance(entry, ArtifactEntry | VerdictEntry):
            raise TypeError(f"a policy records artifacts and verdicts, not {type(entry).__name__}")
        dump_line(entry)  # what cannot be written as JSON is refused while nothing has changed
        if isinstance(entry, VerdictEntry):
            self.artifacts.record_verdict(entry)
        self._host.record(entry)
