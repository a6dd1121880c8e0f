"""Performing an effect: its policy is called within time limit and budget, after a failure again as often as the table says.

Takes intents and actions, gives answers; every try is recorded through the host, which is the driver. What a policy may use while it works
is its context here.
"""

from functools import partial
from math import inf
from typing import Protocol

import attrs

from dsa.declarations import Effect
from dsa.edge.binding import Binding
from dsa.edge.clock import Clock
from dsa.edge.effects import TimeLimit, answer_in, attempted, error_of, fault_in, result_of, within
from dsa.meaning import Occurrence
from dsa.runtime.artifacts import ArtifactStore
from dsa.runtime.budgets import BUDGET, Meter
from dsa.runtime.calls import Calls
from dsa.runtime.content import GeneratorInterface, GuardInterface
from dsa.runtime.ledger import ArtifactEntry, IntentEntry, Record, VerdictEntry, dump_line
from dsa.runtime.policies import Action, Step, error_step
from dsa.runtime.recovery import declared
from dsa.runtime.registry import Registry
from dsa.runtime.run import Run

#: An effect's policy calls no other one yet.
_NOTHING_TO_CALL = Registry()


_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.5, 30.0


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
    _meter: Meter

    async def perform(self, intent: IntentEntry, action: Action, tries: int) -> Occurrence | Step | None:
        """Perform an effect and record every try. `tries` were made before, all in vain; one more is always made.

        Gives its answer, an error step, or None when it has no answers and has not failed.
        """
        machine = self._host.run.machine
        about = declared(machine, intent.effect)
        answer: Occurrence | Step | None = None
        for number in range(max(1, 1 + (about.retries or 0) - tries)):
            if number:
                await self._clock.sleep(backoff_s(number))
            spent = self._meter.exhausted(intent.effect)
            if spent is not None:
                answer = error_step(intent.effect, BUDGET, f"its budget is spent: {spent}")
                self._host.keep(result_of(intent, [answer]))
                break
            began_s = self._clock.now_s()
            steps = await self._tried(action, about)
            answer = answer_in(machine, intent.effect, steps) if intent.effect in machine.answers else fault_in(steps)
            said = [*steps, answer] if isinstance(answer, Step) and answer not in steps else steps
            self._host.keep(result_of(intent, said, self._clock.now_s() - began_s))
            if not isinstance(answer, Step):
                break
        return answer

    async def _tried(self, action: Action, about: Effect) -> list[Step]:
        """Call the policy once; whatever it does, steps come of it (S7)."""
        surroundings = _Surroundings(self._host, self._binding, self._artifacts, self._clock)
        context = Calls(_NOTHING_TO_CALL, surroundings=surroundings).context(action, allowed=())
        policy = self._binding.effects[action.policy]
        self._meter.begins(action.policy)
        try:
            work = attempted(action.policy, partial(policy, action, context))
            return await within(self._clock, self._limit_of(about), work)
        except TimeoutError as error:
            return [error_of(action.policy, error)]
        finally:
            self._meter.ends(action.policy)

    def _limit_of(self, about: Effect) -> TimeLimit | None:
        """Give the shorter of the effect's time limit and what its budget leaves."""
        limits = [TimeLimit(self._meter.seconds_left(about.name), "what its budget of seconds leaves")]
        if about.time_limit_ms is not None:
            limits.append(TimeLimit(about.time_limit_ms / 1000, "its time limit (column `time limit` of Effects)"))
        shortest = min(limits, key=lambda limit: limit.seconds)
        return shortest if shortest.seconds < inf else None


def backoff_s(failures: int) -> float:
    """Give how long to wait after so many failed tries in a row: half a second, then twice as long each time, at most 30 s."""
    return float(min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2 ** (failures - 1)))


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
