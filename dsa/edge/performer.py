"""The performer of effects: it calls the policy of one effect, with the effect's retries, time limit and budget, and records every try.

It takes intents and actions, and returns answers: `action_for` makes the action that a policy is given, `answer_in` reads the occurrence from its
steps. Policies are foreign code: nothing that one raises or returns can end the run in another way. A policy without an answer, or with one that the
machine does not declare, has failed: `E.failed` with the code `BAD_ANSWER`.

Entries go through the `Host`, which is the driver. `traceback_of` is the text of an error in users' code.
"""

import asyncio
import sysconfig
import traceback
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from math import inf
from types import MappingProxyType, TracebackType
from typing import Any, Protocol, TypeVar

import attrs

from dsa.data_use import read_before
from dsa.declarations import Effect, Reference, index_in, of_index
from dsa.edge.binding import Bindings
from dsa.edge.event_loop import Clock, StartedCoroutine, Throttle
from dsa.errors import OccurrenceError, code_of
from dsa.machine import Machine, step_of
from dsa.runtime.content import GeneratorInterface, GuardInterface
from dsa.runtime.costs import BUDGET, BudgetLimit, BudgetSpentError, Meter
from dsa.runtime.event_data import DataThen, EventData, MissingDataError, placeholder_values
from dsa.runtime.generation import GenerationError
from dsa.runtime.json_text import canonical_value, copy_json, json_string
from dsa.runtime.ledger import (
    ArtifactEntry,
    CallEntry,
    CallResultEntry,
    Entry,
    Intent,
    Record,
    ResultEntry,
    VerdictEntry,
    part_from,
    under_key,
)
from dsa.runtime.policy.call_tree import CALL, ReplayMismatchError, number_steps, open_calls, outcome_step
from dsa.runtime.policy.policies import (
    BAD_ANSWER,
    EVENT,
    QUESTION,
    Action,
    AnsweringPolicy,
    LazyPayload,
    PayloadText,
    Policy,
    RedactingArtifacts,
    Step,
    canonical_json,
    error_of,
    error_step,
    fail_redacted,
    flag_redacted,
    redact_entry,
    redact_step,
)
from dsa.runtime.policy.policy_calls import CallRecord, Calls
from dsa.runtime.run import Run, StepView
from dsa.runtime.status import effect_declaration, ends_its_tries
from dsa.semantics import Occurrence, require_known

_LONGEST = 20_000
_OURS = (*(f"{__file__.rpartition('dsa')[0]}{name}/" for name in ("dsa", "machines")), sysconfig.get_path("stdlib"))


def traceback_of(error: BaseException) -> str:
    """Return the traceback of an error from the first frame of users' code on, or the whole one if there is no such frame.

    It is empty for a model that did not answer and for a policy that returned nothing: these are not faults in the code.
    """
    if isinstance(error, GenerationError) or code_of(error) == BAD_ANSWER:
        return ""
    exception = traceback.TracebackException(type(error), error, _from_users_code(error.__traceback__))
    text = "".join(exception.format())
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST // 2]}\n...\n{text[-_LONGEST // 2 :]}"


def _from_users_code(trace: TracebackType | None) -> TracebackType | None:
    frame = trace
    while frame is not None:
        if not frame.tb_frame.f_code.co_filename.startswith(_OURS):
            return frame
        frame = frame.tb_next
    return trace


T = TypeVar("T")

#: A payload whose text does not contain this has no true `error`, and need not be read.
_ERROR = canonical_json({"error": True})[1:-1]


def action_for(run: Run, intent: Intent, data: object) -> Action:
    """Return the action of an intent; `data` is that of the event which caused it. The action's `key` includes the run's id."""
    payload = LazyPayload(partial(_payload_text, run.run_id, intent, data), partial(_payload, run.run_id, intent, data))
    return Action(intent.effect, payload, answers_of(run.machine, intent.effect))


def _payload(run_id: str, intent: Intent, data: object) -> dict[str, Any]:
    return {
        "data": copy_json(data),
        "event": intent.event,
        "key": f"{run_id}/{intent.key}",
        "source": intent.source,
        "target": intent.target,
    }


def _payload_text(run_id: str, intent: Intent, data: object) -> PayloadText:
    place = f'"key":{json_string(f"{run_id}/{intent.key}")},"source":{json_string(intent.source)},"target":{json_string(intent.target)}'
    return PayloadText(f'{{"data":{canonical_value(data)},"event":{json_string(intent.event)},{place}}}')


def answers_of(machine: Machine, effect: str) -> frozenset[str]:
    """Return the events that may answer an effect."""
    answers: frozenset[str] | None = machine.worked_out.get(("answers", effect))
    if answers is None:
        answers = machine.worked_out["answers", effect] = frozenset(machine.answers.get(effect, ()))
    return answers


def code_and_message(payload: dict[str, Any]) -> tuple[str, str]:
    """Return code and message of an error step's payload; a policy may have left either out."""
    return str(payload.get("code") or "ERROR"), str(payload.get("message") or "its policy gives no reason")


def failure_of(effect: str, error: BaseException) -> list[Step]:
    """Return the error step for the error of a policy.

    Errors for the program itself are raised again: cancellation by the driver, Ctrl-C, and ReplayMismatchError, since a new try with another
    program would repeat what is recorded. BudgetSpentError is raised again for the caller.
    """
    if isinstance(error, KeyboardInterrupt | GeneratorExit | ReplayMismatchError | BudgetSpentError):
        raise error
    if isinstance(error, asyncio.CancelledError):  # a policy may raise it itself, although nothing was cancelled
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise error
    return [error_of(effect, error)]


def fault_in(steps: list[Step]) -> Step | None:
    """Return the first error step."""
    for step in steps:
        if _ERROR in step.payload_text and step.content.get("error") is True:
            return step
    return None


def answer_in(machine: Machine, effect: str, steps: list[Step]) -> Occurrence | Step:
    """Return the occurrence in a policy's steps, or the question that it leaves to a person, or the error step that says why there is neither."""
    count, content, question = 0, {}, None
    for step in steps:
        if _ERROR in step.payload_text and step.content.get("error") is True:
            return step
        if step.type == EVENT:
            count, content = count + 1, step.content
        elif step.type == QUESTION:
            question = step
    if count == 0 and question is not None:
        return question
    if count != 1:
        return error_step(effect, BAD_ANSWER, f"its policy gave {count} events instead of one")
    answers = machine.answers[effect]
    event = of_index(answers, str(content.get("event")), index_in(effect))
    if event not in answers:
        return error_step(
            effect, BAD_ANSWER, f"its policy answered '{event}'; the declared answers are: {', '.join(answers)}"
        )
    verdicts = content.get("verdicts") or {}
    if not isinstance(verdicts, dict):
        return error_step(
            effect, BAD_ANSWER, f"the verdicts of '{event}' must be an object with a verdict for each guard"
        )
    occurrence = Occurrence(event, verdicts, data=content.get("data"))
    if verdicts:
        try:
            require_known(machine, occurrence)
        except OccurrenceError as error:
            return error_step(effect, BAD_ANSWER, str(error))
    return occurrence


def occurrence_of(intent: Intent, answer: Occurrence | Step) -> Occurrence:
    """Return an answer unchanged; a failure becomes the answer `E.failed`."""
    return Occurrence(f"{intent.effect}.failed", data=answer.content) if isinstance(answer, Step) else answer


def result_of(intent: Intent, steps: list[Step], seconds: float = 0.0, at_ms: int = 0) -> ResultEntry:
    """Return the record of a policy's steps, how long it took, and when it ended."""
    return ResultEntry(intent.key, tuple([step.without_id() for step in steps]), seconds, at_ms)


def steps_of(result: ResultEntry) -> list[Step]:
    """Return the steps of a result."""
    return [Step(f"{result.key}/{number}", **step) for number, step in enumerate(result.steps, start=1)]


@attrs.frozen
class TimeLimit:
    """How long a try may take, in seconds, and which rule says so."""

    seconds: float
    why: str


async def within(clock: Clock, seconds: float, work: Coroutine[Any, Any, T], *, is_eager: bool) -> T | None:
    """Wait at most some seconds for a result. If it takes longer, cancel the work and return None.

    With `is_eager` the work begins in the caller's task; if it has to wait, the rest becomes a task (as `Answering.is_eager`).
    """
    if is_eager:
        try:
            future = work.send(None)
        except StopIteration as end:
            result: T = end.value
            return result
        work = StartedCoroutine(work, future)
    task = asyncio.create_task(work)
    task.add_done_callback(_retrieve_exception)
    alarm = asyncio.create_task(clock.sleep(seconds))
    try:
        await asyncio.wait({task, alarm}, return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else None
    finally:
        task.cancel()
        alarm.cancel()


def _retrieve_exception(future: "asyncio.Future[Any]") -> None:
    """Retrieve the error of a future that nothing waits for; otherwise the loop would report it on standard error."""
    if not future.cancelled():
        future.exception()


_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.5, 30.0


class Host(Protocol):
    """The owner of the run: the driver."""

    @property
    def run(self) -> Run:
        """The current run."""

    def record(self, entry: Record) -> None:
        """Append what a policy did; it is durable when the policy next waits or returns."""

    def keep(self, entry: Record) -> None:
        """Append the outcome of an effect; it is durable when this returns."""

    def settle(self, entry: Record) -> None:
        """Append the outcome of an effect whose answer is fed next; it is durable with what follows from that, or before."""

    def show(self, key: str, text: str) -> None:
        """Show a piece of text from a policy at work."""

    def require_able(self) -> None:
        """Raise the error of the store if it has failed, because then no policy may be called."""

    def fault(self, where: str, error: BaseException) -> None:
        """Report an error in users' code, with its traceback."""


#: The answer of a try, its error step or resting step, or None; and whether this was the last try.
Conclusion = tuple[Occurrence | Step | None, bool]


@attrs.frozen
class Performer:
    """Performs the effects of one run. Calls of policies that the ledger already has are not made again."""

    _host: Host
    _binding: Bindings
    _artifacts: RedactingArtifacts
    _clock: Clock
    _meter: Meter
    _calls: Mapping[str, Sequence[CallRecord]] = attrs.field(init=False)
    _surroundings: "_Surroundings" = attrs.field(init=False)
    _policy_names: frozenset[str] = attrs.field(init=False)
    _config: Mapping[str, Any] = attrs.field(init=False)
    _plans: "dict[str, EffectPlan]" = attrs.field(init=False, factory=dict)
    _data: EventData = attrs.field(init=False)
    _run_id: str = attrs.field(init=False)

    @_run_id.default
    def _id_of_run(self) -> str:
        return self._host.run.run_id

    @_data.default
    def _nothing_read(self) -> EventData:
        return EventData(self._host.run.machine)

    @_calls.default
    def _recorded_calls(self) -> Mapping[str, Sequence[CallRecord]]:
        return _calls_by_key(self._host.run.ledger)

    @_surroundings.default
    def _what_policies_use(self) -> "_Surroundings":
        return _Surroundings(self._host, self._binding, self._artifacts, self._clock, self.data_before)

    @_policy_names.default
    def _what_policies_call(self) -> frozenset[str]:
        return frozenset(self._binding.policies)

    @_config.default
    def _what_policies_read(self) -> Mapping[str, Any]:
        return MappingProxyType(dict(self._binding.config))

    async def perform(
        self, intent: Intent, action: Action, plan: "EffectPlan", tries: int, root: int
    ) -> Occurrence | Step | None:
        """Perform an effect and record every try. `tries` have failed before; one more is always made. `root` is the root of its calls.

        Returns its answer, an error step, a step that lets it rest, or None if it has no answers and has not failed.
        """
        effect, clock, host = intent.effect, self._clock, self._host
        answer: Occurrence | Step | None = None
        last = max(0, plan.retries - tries) if plan.retries else 0
        for number in range(last + 1):
            if number:
                await clock.sleep(backoff_s(number))
            limit = self._spent_limit(effect) if self._meter.has_limits else None
            if limit is not None:
                answer = error_step(effect, BUDGET, f"the budget is spent: {limit}")
                host.keep(result_of(intent, [answer], at_ms=clock.wall_ms()))
                break
            conclude = partial(self._conclude, intent, plan, clock.now_s(), is_last=number == last)
            answer, is_over = await self.try_once(intent.key, action, plan, root + number, conclude)
            if is_over:
                break
        return answer

    def _conclude(
        self, intent: Intent, plan: "EffectPlan", began_s: float, steps: list[Step], *, is_last: bool
    ) -> Conclusion:
        """Record the outcome of a try; return its answer, and whether this was the last try."""
        host, answers = self._host, plan.has_answers
        answer = answer_in(host.run.machine, intent.effect, steps) if answers else fault_in(steps)
        all_steps = [*steps, answer] if isinstance(answer, Step) and answer not in steps else steps
        result = result_of(intent, all_steps, round(self._clock.now_s() - began_s, 6), self._clock.wall_ms())
        is_rest = answers and isinstance(answer, Step) and rests(answer)
        is_over = is_rest or is_last or not isinstance(answer, Step) or ends_its_tries(plan.about, result)
        (host.settle if answers and is_over and not is_rest else host.keep)(result)
        return answer, is_over

    def data_before(self, key: str) -> DataThen:
        """Return the data of events that the effect of a key sees."""
        return self._data.follow(self._host.run.ledger).before(key)

    def data_now(self) -> DataThen:
        """Return the data of the events that the run has taken."""
        return self._data.follow(self._host.run.ledger).as_of(self._host.run.seq)

    def missing_before(self, intent: Intent) -> str:
        """Return which data is missing for an effect's prompt or a guard of its answers; empty if none is missing."""
        machine = self._host.run.machine
        read = read_before(machine, intent.effect, intent.target)
        then = self.data_before(intent.key) if read else None
        for reader, reference in read:
            try:
                assert then is not None, "it is read"
                then.get(reference)
            except MissingDataError as missing:
                return f"{reader}, requested on {intent.event}: {missing}"
        if then is not None:
            try:
                placeholder_values(machine, step_of(machine, intent.target), intent.effect, then.get)
            except MissingDataError as missing:
                return f"the prompt of {intent.effect}, requested on {intent.event}: {missing}"
        return ""

    def _spent_limit(self, effect: str) -> BudgetLimit | None:
        """Return the limit that allows no further try of an effect, or None."""
        self._meter.follow(self._host.run.ledger)
        return self._meter.try_limit(effect)

    def plan(self, effect: str) -> "EffectPlan":
        """Return what stays the same each time an effect is performed."""
        plan = self._plans.get(effect)
        if plan is None:
            machine, policy = self._host.run.machine, self._binding.effects[effect]
            about = effect_declaration(machine, effect)
            has_answers = effect in machine.answers
            is_eager = has_answers and isinstance(policy, AnsweringPolicy) and policy.is_eager
            inner_policy = policy.policy if isinstance(policy, AnsweringPolicy) else policy
            throttle = None if about.together is None else Throttle(about.together)
            plan = EffectPlan(inner_policy, about, about.retries or 0, has_answers, is_eager, throttle)
            self._plans[effect] = plan
        return plan

    def rounds_to_begin(self, plan: "EffectPlan") -> int:
        """Return how many turns of the event loop pass until a policy begins: one for the effect's task, another for a time limit's."""
        return 1 if self._limit_of(plan.about) is None else 2

    async def try_once(
        self, key: str, action: Action, plan: "EffectPlan", root: int, conclude: Callable[[list[Step]], T]
    ) -> T:
        """Call the policy once and evaluate its steps; any error becomes an error step (S7). Raises ReplayMismatchError.

        With a time limit the policy has a task of its own, which also records the outcome, in one commit with what the policy recorded.
        """
        name, limit, meter = action.policy, self._limit_of(plan.about), self._meter
        calls, is_open = self._calls_under(name, key, root), True

        def close() -> bool:
            """Return whether the try was open."""
            nonlocal is_open
            was_open, is_open = is_open, False
            if was_open and meter.has_limits:
                meter.ends(name)
            return was_open

        async def attempt() -> T | None:
            steps = await self._steps(calls, action, plan.policy)
            return conclude(steps) if close() else None

        if meter.has_limits:
            meter.begins(name)
        try:
            if limit is None:
                conclusion = await attempt()
            else:
                conclusion = await within(self._clock, limit.seconds, attempt(), is_eager=plan.is_eager)
        finally:
            close()
        if conclusion is None:
            assert limit is not None, "only a time limit ends a try"
            late = error_of(name, TimeoutError(f"no answer within {limit.seconds:g} s, {limit.why}"))
            conclusion = conclude(self._faulty([late], calls))
        return conclusion

    async def _steps(self, calls: Calls, action: Action, policy: Policy) -> list[Step]:
        """Call the policy, unless the store has failed in the meantime."""
        self._host.require_able()
        try:
            return await calls.perform(action, policy, may_call=self._policy_names, with_ids=False)
        except BudgetSpentError as error:
            return self._faulty([error_step(action.policy, BUDGET, str(error))], calls)
        except BaseException as error:  # noqa: BLE001  (sys.exit in a policy ends the effect, not the program)
            self._host.require_able()  # an error of the store is not the policy's fault
            steps = failure_of(action.policy, error)
            self._host.fault(f"effect {action.policy} {calls.key}", error)
            return self._faulty(steps, calls)

    def _faulty(self, steps: list[Step], calls: Calls) -> list[Step]:
        """Return the steps of a fault, with the call in which it happened and without secrets."""
        fault_steps = self._with_call(steps, calls.key, calls.crashed_in)
        return [redact_step(self._binding.secrets, step) for step in fault_steps]

    def _with_call(self, steps: list[Step], key: str, path: str | None) -> list[Step]:
        """Return the steps of an error, with the call that raised it, if a call did."""
        if path is None or "." not in path:
            return steps
        calls = (entry for entry in self._host.run.ledger if isinstance(entry, CallEntry))
        policy = next(entry.policy for entry in calls if (entry.key, entry.path) == (key, path))
        payload = {**steps[-1].payload, CALL: {"policy": policy, "path": path}}
        return [*steps[:-1], attrs.evolve(steps[-1], payload=payload)]

    def _calls_under(self, effect: str, key: str, root: int) -> Calls:
        """Return the calls of one try, with their records. Calls in doubt that count as failed are recorded as failed."""
        records = list(self._calls[key]) if key in self._calls else []
        for call in open_calls(records) if records else ():
            if call.in_doubt == "fail" and call.path.startswith(f"{root}."):
                (step,) = number_steps([outcome_step(call.policy, has_failed=True)], call.path)
                records.append(CallResultEntry(key, call.path, [step.to_json()]))
                self._host.keep(records[-1])
        return Calls(
            self._binding.policies,
            run_id=self._run_id,
            key=key,
            root=root,
            entries=records,
            append=partial(self._append, effect),
            config=self._config,
            surroundings=self._surroundings,
            secrets=self._binding.secrets,
        )

    def _append(self, effect: str, entry: CallRecord) -> None:
        """Record a call as it begins and as it ends. A call that a person may have to decide about is durable before it is made.

        Raises BudgetSpentError for a call of an effect whose earlier calls have spent its budget.
        """
        if isinstance(entry, CallEntry) and self._meter.has_limits:
            self._meter.follow(self._host.run.ledger)
            limit = self._meter.call_limit(effect)
            if limit is not None:
                raise BudgetSpentError(f"the budget is spent: {limit}")
        if isinstance(entry, CallEntry) and entry.in_doubt == "retry":
            self._host.record(entry)
        else:
            self._host.keep(entry)

    def _limit_of(self, about: Effect) -> TimeLimit | None:
        """Return the shorter of the effect's time limit and what its budget leaves."""
        left, declared_ms = self._meter.seconds_left(about.name) if self._meter.has_limits else inf, about.time_limit_ms
        if declared_ms is not None and declared_ms / 1000 < left:
            return TimeLimit(declared_ms / 1000, "its time limit (column `time limit` of Effects)")
        return TimeLimit(left, "the rest of its budget of seconds") if left < inf else None


@attrs.frozen
class EffectPlan:
    """What stays the same each time an effect is performed."""

    policy: Policy
    about: Effect
    retries: int
    has_answers: bool
    is_eager: bool
    throttle: Throttle | None = None


def _calls_by_key(ledger: Iterable[Entry]) -> Mapping[str, Sequence[CallRecord]]:
    calls: dict[str, list[CallRecord]] = {}
    for entry in ledger:
        if isinstance(entry, CallEntry | CallResultEntry):
            calls.setdefault(entry.key, []).append(entry)
    return calls


def rests(step: Step) -> bool:
    """Return whether an effect rests after a step: a person has a question to answer, or a part of it waits."""
    return step.type == QUESTION or part_from(step.content) is not None


def backoff_s(failures: int) -> float:
    """Return how long to wait after some failed tries in a row: half a second, then twice as long each time, at most 30 s."""
    return float(min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2 ** (failures - 1)))


@attrs.frozen
class _Surroundings:
    """The parts of the host that a policy may use while it works."""

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
        entry = under_key(entry, key) if key != entry.key else entry
        entry = redact_entry(self._binding.secrets, entry)  # invalid JSON is refused here, before anything has changed
        if isinstance(entry, VerdictEntry):
            view = self.run.steps.get(entry.step) or StepView(entry.step)
            if view.redacted and entry.artifact_id == view.latest:
                entry = fail_redacted(entry, view.redacted)
            self.artifacts.record_clean_verdict(entry)
        else:
            entry = flag_redacted(entry, self.artifacts.get_artifact(entry.artifact_id))
        self._host.record(entry)
