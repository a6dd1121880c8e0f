"""Performing an effect: its policy is called within time limit and budget, after a failure again as often as the table says.

Takes intents and actions, gives answers; every try is recorded through the host, which is the driver. What a policy may use while it works
is its context here.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from math import inf
from types import MappingProxyType
from typing import Any, Protocol

import attrs

from dsa.declarations import Effect
from dsa.edge.binding import Bindings
from dsa.edge.clock import Clock
from dsa.edge.effects import TimeLimit, answer_in, failure_of, fault_in, result_of, within
from dsa.machine import step_of
from dsa.meaning import Occurrence
from dsa.references import Reference
from dsa.runtime.budgets import BUDGET, BudgetSpentError, Limit, Meter
from dsa.runtime.call_tree import CALL
from dsa.runtime.calls import CallRecord, Calls
from dsa.runtime.content import GeneratorInterface, GuardInterface
from dsa.runtime.event_data import DataThen, EventData, MissingDataError, placeholder_values
from dsa.runtime.intents import Intent
from dsa.runtime.ledger import ArtifactEntry, CallEntry, CallResultEntry, Entry, Record, VerdictEntry
from dsa.runtime.parts import part_told
from dsa.runtime.policies import QUESTION, Action, Answering, Policy, Step, error_of, error_step
from dsa.runtime.recorded import numbered, open_calls, outcome_step
from dsa.runtime.recovery import declared, ends_its_tries
from dsa.runtime.redacting import RedactingArtifacts, artifact_flagged, entry_without, never_passed, step_without
from dsa.runtime.run import Run
from dsa.runtime.views import StepView
from dsa.uses import read_before

_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.5, 30.0


class Host(Protocol):
    """Whoever has the run."""

    run: Run

    def record(self, entry: Record) -> None:
        """Append what a policy did; it is durable when the policy next waits or returns."""

    def keep(self, entry: Record) -> None:
        """Append what came of an effect; it is durable when this returns."""

    def settle(self, entry: Record) -> None:
        """Append what came of an effect whose answer the run is told next; it is durable with what follows from that, or before."""

    def show(self, key: str, text: str) -> None:
        """Show a piece of text that a policy has while it works."""

    def require_able(self) -> None:
        """Raise what the store has raised, if it has failed: then no policy is called any more."""

    def fault(self, where: str, error: BaseException) -> None:
        """Keep what users' code has raised, with its traceback, for who has to mend it."""


@attrs.frozen
class Performer:
    """Performs the effects of one run. What the run's ledger has of the calls that their policies made is not done again."""

    _host: Host
    _binding: Bindings
    _artifacts: RedactingArtifacts
    _clock: Clock
    _meter: Meter
    _calls: Mapping[str, Sequence[CallRecord]] = attrs.field(init=False)
    _surroundings: "_Surroundings" = attrs.field(init=False)
    _allowed: frozenset[str] = attrs.field(init=False)
    _config: Mapping[str, Any] = attrs.field(init=False)
    _plans: "dict[str, Plan]" = attrs.field(init=False, factory=dict)
    _data: EventData = attrs.field(init=False)

    @_data.default
    def _nothing_read(self) -> EventData:
        return EventData(self._host.run.machine)

    @_calls.default
    def _recorded_calls(self) -> Mapping[str, Sequence[CallRecord]]:
        return _calls_by_key(self._host.run.ledger)

    @_surroundings.default
    def _what_policies_use(self) -> "_Surroundings":
        return _Surroundings(self._host, self._binding, self._artifacts, self._clock, self.data_before)

    @_allowed.default
    def _what_policies_call(self) -> frozenset[str]:
        return frozenset(self._binding.policies)

    @_config.default
    def _what_policies_read(self) -> Mapping[str, Any]:
        return MappingProxyType(dict(self._binding.config))

    async def perform(
        self, intent: Intent, action: Action, plan: "Plan", tries: int, root: int
    ) -> Occurrence | Step | None:
        """Perform an effect and record every try. `tries` were made before, all in vain; one more is always made. `root` is that of its calls.

        Gives its answer, an error step, a step with which it rests, or None when it has no answers and has not failed.
        """
        effect, clock, host = intent.effect, self._clock, self._host
        answer: Occurrence | Step | None = None
        last = max(0, plan.retries - tries) if plan.retries else 0
        for number in range(last + 1):
            if number:
                await clock.sleep(backoff_s(number))
            spent = self._spent(effect) if self._meter.has_limits else None
            if spent is not None:
                answer = error_step(effect, BUDGET, f"its budget is spent: {spent}")
                host.keep(result_of(intent, [answer], at_ms=clock.wall_ms()))
                break
            began_s = clock.now_s()
            steps = await self._tried(intent.key, action, plan, root + number)
            answer = answer_in(host.run.machine, effect, steps) if plan.has_answers else fault_in(steps)
            said = [*steps, answer] if isinstance(answer, Step) and answer not in steps else steps
            result = result_of(intent, said, round(clock.now_s() - began_s, 6), clock.wall_ms())
            if isinstance(answer, Step) and rests(answer) and plan.has_answers:
                host.keep(result)
                break
            if number == last or not isinstance(answer, Step) or ends_its_tries(plan.about, result):
                (host.settle if plan.has_answers else host.keep)(result)
                break
            host.keep(result)
        return answer

    def data_before(self, key: str) -> DataThen:
        """Return the data of events that the effect of a key sees."""
        return self._data.follow(self._host.run.ledger).before(key)

    def data_now(self) -> DataThen:
        """Return the data of the events that the run has taken."""
        return self._data.follow(self._host.run.ledger).as_of(self._host.run.seq)

    def missing_before(self, intent: Intent) -> str:
        """Say what an effect's prompt, or a guard of its answers, reads and nobody has brought; empty when nothing is missing."""
        machine = self._host.run.machine
        read = read_before(machine, intent.effect, intent.target)
        then = self.data_before(intent.key) if read else None
        for reader, reference in read:
            try:
                assert then is not None, "it is read"
                then.get(reference)
            except MissingDataError as missing:
                return f"{reader}, asked for on {intent.event}: {missing}"
        if then is not None:
            try:
                placeholder_values(machine, step_of(machine, intent.target), intent.effect, then.get)
            except MissingDataError as missing:
                return f"the prompt of {intent.effect}, asked for on {intent.event}: {missing}"
        return ""

    def _spent(self, effect: str) -> Limit | None:
        """Return the limit that allows no further try of an effect, or None."""
        self._meter.follow(self._host.run.ledger)
        return self._meter.exhausted(effect)

    def plan(self, effect: str) -> "Plan":
        """Return what is the same each time that an effect is performed."""
        plan = self._plans.get(effect)
        if plan is None:
            machine, policy = self._host.run.machine, self._binding.effects[effect]
            about = declared(machine, effect)
            has_answers = effect in machine.answers
            is_eager = has_answers and isinstance(policy, Answering) and policy.is_eager
            called = policy.policy if isinstance(policy, Answering) else policy
            plan = self._plans[effect] = Plan(called, about, about.retries or 0, has_answers, is_eager)
        return plan

    def is_eager(self, plan: "Plan") -> bool:
        """Return whether an effect is begun in the driver's own task: its policy is made for that, and may take as long as it likes."""
        return plan.is_eager and self._limit_of(plan.about) is None

    def rounds_to_begin(self, plan: "Plan") -> int:
        """Return how often the event loop goes round until a policy has begun: its effect is a task, and below a time limit so is the policy."""
        return 1 if self._limit_of(plan.about) is None else 2

    async def _tried(self, key: str, action: Action, plan: "Plan", root: int) -> list[Step]:
        """Call the policy once; whatever it does, steps come of it (S7). Raises ReplayMismatchError."""
        name, limit, meter = action.policy, self._limit_of(plan.about), self._meter
        calls = self._calls_under(name, key, root)
        if meter.has_limits:
            meter.begins(name)
        try:
            if limit is None:
                self._host.require_able()
                return await calls.perform(action, plan.policy, allowed=self._allowed, with_ids=False)
            steps = await within(self._clock, limit, self._attempted(calls, action, plan.policy))
        except TimeoutError as error:
            steps = [error_of(name, error)]
        except BudgetSpentError as error:
            steps = [error_step(name, BUDGET, str(error))]
        except BaseException as error:  # noqa: BLE001  (sys.exit in a policy ends the effect, not the program)
            self._host.require_able()  # what the store has raised is no policy's fault
            steps = failure_of(name, error)
            self._host.fault(f"effect {name} {key}", error)
        finally:
            if meter.has_limits:
                meter.ends(name)
        if fault_in(steps) is None:  # they come from a policy, and have no secrets any more
            return steps
        return [step_without(self._binding.secrets, step) for step in self._with_call(steps, key, calls.crashed_in)]

    async def _attempted(self, calls: Calls, action: Action, policy: Policy) -> list[Step]:
        """Call the policy in a task of its own, unless the store has failed: it begins a moment after it was asked for."""
        self._host.require_able()
        try:
            return await calls.perform(action, policy, allowed=self._allowed, with_ids=False)
        except BaseException as error:  # noqa: BLE001  (as above)
            steps = failure_of(action.policy, error)
            self._host.fault(f"effect {action.policy} {calls.key}", error)
            return steps

    def _with_call(self, steps: list[Step], key: str, path: str | None) -> list[Step]:
        """Say of what an effect's policy raised in which call that was, if one raised it."""
        if path is None or "." not in path:
            return steps
        begun = (entry for entry in self._host.run.ledger if isinstance(entry, CallEntry))
        policy = next(entry.policy for entry in begun if (entry.key, entry.path) == (key, path))
        said = {**steps[-1].payload, CALL: {"policy": policy, "path": path}}
        return [*steps[:-1], attrs.evolve(steps[-1], payload=said)]

    def _calls_under(self, effect: str, key: str, root: int) -> Calls:
        """Give what makes the calls of one try, with what is recorded of them; those in doubt that count as failed are recorded so."""
        recorded = list(self._calls[key]) if key in self._calls else []
        for call in open_calls(recorded) if recorded else ():
            if call.in_doubt == "fail" and call.path.startswith(f"{root}."):
                (said,) = numbered([outcome_step(call.policy, failed=True)], call.path)
                recorded.append(CallResultEntry(key, call.path, [said.to_json()]))
                self._host.keep(recorded[-1])
        return Calls(
            self._binding.policies,
            run_id=self._host.run.run_id,
            key=key,
            root=root,
            recorded=recorded,
            append=partial(self._append, effect),
            config=self._config,
            surroundings=self._surroundings,
            secrets=self._binding.secrets,
        )

    def _append(self, effect: str, entry: CallRecord) -> None:
        """Record a call as it begins and as it ends. Before one of which somebody must say whether it happened is made, it is durable.

        Raises BudgetSpentError for a call of an effect whose budget is spent by the calls before it.
        """
        if isinstance(entry, CallEntry) and self._meter.has_limits:
            self._meter.follow(self._host.run.ledger)
            spent = self._meter.spent(effect)
            if spent is not None:
                raise BudgetSpentError(f"its budget is spent: {spent}")
        if isinstance(entry, CallEntry) and entry.in_doubt == "retry":
            self._host.record(entry)
        else:
            self._host.keep(entry)

    def _limit_of(self, about: Effect) -> TimeLimit | None:
        """Give the shorter of the effect's time limit and what its budget leaves."""
        left, declared_ms = self._meter.seconds_left(about.name) if self._meter.has_limits else inf, about.time_limit_ms
        if declared_ms is not None and declared_ms / 1000 < left:
            return TimeLimit(declared_ms / 1000, "its time limit (column `time limit` of Effects)")
        return TimeLimit(left, "what its budget of seconds leaves") if left < inf else None


@attrs.frozen
class Plan:
    """What is the same each time that an effect is performed."""

    policy: Policy
    about: Effect
    retries: int
    has_answers: bool
    is_eager: bool


def _calls_by_key(ledger: Iterable[Entry]) -> Mapping[str, Sequence[CallRecord]]:
    found: dict[str, list[CallRecord]] = {}
    for entry in ledger:
        if isinstance(entry, CallEntry | CallResultEntry):
            found.setdefault(entry.key, []).append(entry)
    return found


def rests(step: Step) -> bool:
    """Tell whether an effect is neither answered nor failed after a step: a person is asked, or a part of it waits."""
    return step.type == QUESTION or part_told(step.content) is not None


def backoff_s(failures: int) -> float:
    """Give how long to wait after so many failed tries in a row: half a second, then twice as long each time, at most 30 s."""
    return float(min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2 ** (failures - 1)))


@attrs.frozen
class _Surroundings:
    """What the policy of one effect may use of its machine."""

    _host: Host
    _binding: Bindings
    artifacts: RedactingArtifacts
    _clock: Clock
    _data_before: Callable[[str], DataThen]

    @property
    def run(self) -> Run:
        return self._host.run

    def guard(self, name: str) -> GuardInterface:
        return self._binding.guards[name]

    def generator(self, name: str) -> GeneratorInterface:
        return self._binding.generators[name]

    def now_s(self) -> float:
        return self._clock.now_s()

    def latest(self, reference: str | Reference, *, key: str = "") -> Any:  # noqa: ANN401  (JSON)
        return self._data_before(key).get(reference)

    def show(self, text: str, *, key: str = "") -> None:
        self._host.show(key, self._binding.secrets.text(text))

    def record(self, entry: ArtifactEntry | VerdictEntry) -> None:
        if not isinstance(entry, ArtifactEntry | VerdictEntry):
            raise TypeError(f"a policy records artifacts and verdicts, not {type(entry).__name__}")
        key = entry.key.removeprefix(f"{self.run.run_id}/")  # a policy knows its effect by a key that names the run
        entry = attrs.evolve(entry, key=key) if key != entry.key else entry
        entry = entry_without(self._binding.secrets, entry)  # what is no JSON is refused while nothing has changed
        if isinstance(entry, VerdictEntry):
            view = self.run.steps.get(entry.step) or StepView(entry.step)
            if view.redacted and entry.artifact_id == view.latest:
                entry = never_passed(entry, view.redacted)
            self.artifacts.record_clean_verdict(entry)
        else:
            entry = artifact_flagged(entry, self.artifacts.get_artifact(entry.artifact_id))
        self._host.record(entry)
