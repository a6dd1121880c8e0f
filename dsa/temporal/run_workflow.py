"""The run workflow: one workflow that drives a run of any document and takes or refuses events from outside, with the driver that drives runs on one machine.

The driver is deterministic if its clock, its performer and its guards are: here these are the workflow's clock, timers and activities. So rows,
keys, retries, timers and sleeps mean the same as elsewhere, and no second interpreter has to agree with the first. Users' modules are never
imported here: `StartPayload` says what the driver needs to know about the bindings.

Events from outside are updates. The validator asks the table: a refused event leaves nothing in the history, unless a guard must be asked first.

When its history is long, a run continues in a new execution (`dsa.temporal.continuation`). An event that is still to be taken then goes with it: its
sender gets an error that says so, and asks the new execution for the outcome, by the id of the update.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial, reduce
from typing import Any, TypeVar, cast

import attrs
from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError

from dsa.edge.binding import Bindings, FromOutside, answered_key, effect_names, exact_already
from dsa.edge.driver import Driver, outcome_of_last
from dsa.errors import DsaError, OccurrenceError, code_of
from dsa.machine import Machine, spelled_like
from dsa.runs.archive import OtherMachineError, recorded_machine, replay_stored
from dsa.runs.runs import record_decisions, require_decidable
from dsa.runs.setup import limits_of
from dsa.runtime.ledger import ChangeEntry, Entry, Intents, Ledger, ResumedEntry, VerdictEntry, from_json, to_json
from dsa.runtime.policy.call_tree import IN_DOUBT
from dsa.runtime.policy.policies import Action, Step
from dsa.runtime.run import Command, Run, begin
from dsa.runtime.run_store import StoredRun, StoreError
from dsa.runtime.secrets import Secrets
from dsa.runtime.status import MOST_TAKE_UPS, Failure, Rest, UnfinishedWork, parts, status_of, unfinished_work
from dsa.semantics import Occurrence, Refusal, Taken
from dsa.temporal import continuation, payloads, search_attributes
from dsa.temporal.activity_calls import (
    NEXT_TASK_S,
    ActivityCalls,
    ActivityGuard,
    ActivityPerformer,
    StoredArtifacts,
    WorkflowClock,
)
from dsa.temporal.continuation import Continuation, WorkGate
from dsa.temporal.part_links import BEGIN_PART, PART_GOES_ON, PartNews, begin_child, tell_whole, whole_of
from dsa.temporal.payloads import Json, StartPayload
from dsa.temporal.story_pages import StoryPages

T = TypeVar("T")

#: The most outcomes of events that are passed on to the next execution, for senders that ask again.
_MOST_OUTCOMES = 100


async def _nobody(_action: Action, _context: object) -> list[Step]:
    """Stand in for a policy that a worker has."""
    raise AssertionError("effects are activities")


@contextmanager
def typed_errors() -> Iterator[None]:
    """Turn errors of this package into application errors of the same code, which fail an update and not the workflow."""
    try:
        yield
    except (DsaError, TypeError, ValueError) as error:
        raise ApplicationError(str(error), type=code_of(error), non_retryable=True) from error


class Execution:
    """One execution of the workflow of a run: the run's driver and what is around it, from its beginning to the next execution."""

    def __init__(self, start: StartPayload) -> None:
        self.start = start
        self.settings = self.start.settings
        machine, self.digest_as_read = machine_in(attrs.asdict(start))
        self.calls = ActivityCalls(self.start.run, self.digest_as_read, start.queue, start.most_bytes)
        self.machines: list[Json] = []
        self.artifacts, self.story = StoredArtifacts(), StoryPages()
        self.costs: continuation.Costs = {}
        self.counts: continuation.Counts = {}
        self.answers: dict[str, asyncio.Future[Taken | Refusal]] = {}
        self.is_moving, self.is_cancelled, self.reading_count, self.least_length = False, False, 0, 0
        self.part_news, self.signal_tasks = PartNews(), list[asyncio.Task[None]]()
        self.left_rest: int | None = None
        self._handed_in, self._handed_at = list[tuple[Occurrence, str | None]](), -1
        self.gate = WorkGate(self.start.most_events, self._may_close)
        self.rest: Rest | None = None
        self.task: asyncio.Task[Rest] | None = None
        self.is_called = not self.start.entries
        if self.start.continuation is not None:
            go_on_from(self, Continuation(**self.start.continuation), machine)
        elif self.start.entries:
            self.driver = driver_of_branch(self)
        else:
            now_ms = WorkflowClock().wall_ms()
            run, commands = begin(
                machine, self.start.run, digest=self.calls.digest, settings=self.settings, at_ms=now_ms
            )
            self.driver = self.new_driver(run, commands)

    def new_driver(self, run: Run, commands: tuple[Command, ...] = (), left: UnfinishedWork | None = None) -> Driver:
        """Return a driver of a run, which performs effects by activities."""
        binding = binding_without_code(self, run.machine)
        self.outside, self.hopeless_keys = FromOutside(binding), list[str]()
        return Driver(
            run,
            binding,
            self.artifacts,
            commands=commands,
            left=left,
            session=lambda: ResumedEntry.from_settings(self.settings, "Temporal"),
            limits=limits_of(run.machine, self.settings.get("budget") or ()),
            clock=WorkflowClock(),
            observe=self._go_on,
            on_rest=lambda: self.come_to_rest(Rest("waiting", self.run, due_ms=self.driver.next_deadline_ms)),
            performer=partial(
                ActivityPerformer,
                activities=self.calls,
                gate=self.gate,
                costs=self.costs,
                part_news=self.part_news,
                give_up=self.hopeless_keys.append,
            ),
        )

    @property
    def run(self) -> Run:
        """The current run."""
        return self.driver.run

    def _go_on(self, new_entries: Sequence[Entry]) -> None:
        """Leave the rest, if the run was at one; a part reports this to its whole."""
        if self.left_rest is not None and new_entries:
            self.signal_tasks.append(asyncio.create_task(tell_whole(self.start.run, self.left_rest)))
            self.left_rest = None
        self.rest = None

    @property
    def has_whole(self) -> bool:
        """Return whether an effect of another run may wait for this one."""
        return "for" in self.settings and whole_of(self.start.run) != ""

    @property
    def story_length(self) -> int:
        """The number of entries of the whole story."""
        return self.story.begin[0] + len(self.story.entries) + len(self.run.ledger) - self.story.skips

    @property
    def key_of_news(self) -> str | None:
        """The key of an effect that is to be performed again because its part continued."""
        if self.task is None and (self.rest is None or self.rest.kind != "waiting"):
            return None
        return self.part_news.key_in(lambda: parts(self.run) if self.task is None else self.driver.parts)

    def look_at_parts(self) -> None:
        """Perform effects again whose parts continued."""
        while (key := self.key_of_news) is not None:
            if self.task is None:
                for part in parts(self.run).values():
                    self.part_news.take(part.run)
                self.renew()
                self.is_called = True
                return
            self.part_news.take(self.driver.parts[key].run)
            self.driver.look_again(key)

    def come_to_rest(self, rest: Rest) -> None:
        """Rest; an effect that was lost with its worker, and about which a person must decide, leaves the run in doubt."""
        is_lost_one = rest.kind == "waiting" or (rest.failure is not None and rest.failure.code == IN_DOUBT)
        self.rest = rest_after_losses(self, rest) if is_lost_one else rest
        self.left_rest = self.story_length if self.has_whole else None
        search_attributes.show_rest(self.rest)

    @contextmanager
    def rest_whatever_comes(self) -> Iterator[None]:
        """Stay at rest if the workflow is cancelled at the server: nothing is under way that could be interrupted, unless it is just beginning."""
        try:
            yield
        except asyncio.CancelledError:
            self.is_moving, self.is_cancelled = False, self.is_called
            workflow.logger.info("run %s was cancelled, which has no effect while the run is at rest", self.start.run)

    async def say_farewell(self) -> None:
        """End everything that stays open as long as the run does, and wait until its whole has its last signal."""
        await self.story.end_pages(self.start.run)
        for task in self.signal_tasks:
            await task

    @property
    def has_work(self) -> bool:
        """Return whether the run should be driven, or continue in a new execution."""
        return self.is_called or self.can_move or self.key_of_news is not None

    @property
    def is_over(self) -> bool:
        """Return whether the run is finished, and at rest."""
        return self.rest is not None and self.rest.kind == "finished"

    async def drive(self, occurrences: list[Occurrence]) -> Rest:
        """Drive the run to its next rest, in a task that `interrupt` can cancel."""
        self.rest = None
        self.task = task = asyncio.create_task(self.driver.drive(*occurrences))
        if self.is_cancelled:  # after the first step of the driver, which takes the events
            self.is_cancelled = False
            asyncio.get_running_loop().call_soon(task.cancel)
        try:
            while True:
                await workflow.wait_condition(lambda: task.done() or self.gate.is_free or self.key_of_news is not None)
                if task.done():
                    return await task
                if self.key_of_news is not None:
                    self.look_at_parts()
                    continue
                await self.move()
        except asyncio.CancelledError:
            if not task.done():  # the workflow was cancelled at the server
                await self._end(task)
            return Rest("interrupted", self.run, due_ms=self.driver.next_deadline_ms)
        finally:
            self.task = None

    # -- continuing in a new execution ----------------------------------------------------------------------------

    def _may_close(self) -> bool:
        """Return whether the run may continue in a new execution: this one has added to the story (enough, if it was too long), and no part waits.

        An answer that the driver has not taken yet counts, too: it may be a failure that stops the run.
        """
        has_answers = any(each.intent is not None and not each.is_wake_up for each in self.driver.news)
        least_length = max(self.story.skips, self.least_length)
        return len(self.run.ledger) > least_length and not self.driver.parts and not has_answers

    @property
    def can_move(self) -> bool:
        """Return whether a run that nothing drives should continue in a new execution."""
        return self.rest is not None and self.rest.kind == "waiting" and self.gate.is_free

    async def move(self) -> None:
        """Continue in a new execution, unless something begins or ends in the meantime."""
        has_changed = partial(cannot_move, self, self.task)
        await self.story.write_pages(self.start.run, self.run.ledger, self.artifacts.records, self.calls.room_for)
        if has_changed():
            return
        self.is_moving = True  # now senders get the error that says that their events go with the run
        while True:
            await workflow.wait_condition(lambda: workflow.all_handlers_finished() or has_changed())
            if has_changed():
                self.is_moving = False
                return
            next_start = next_start_of(self)
            if self.calls.is_too_long(next_start) and not self.gate.must_end:
                self.is_moving, self.least_length = False, 2 * len(self.run.ledger)  # by then it may need less
                return
            if self.calls.has_room(self.calls.bytes_of(next_start)):
                break
            await workflow.sleep(NEXT_TASK_S)
        workflow.continue_as_new(
            next_start, initial_versioning_behavior=workflow.ContinueAsNewVersioningBehavior.AUTO_UPGRADE
        )

    def hand(self, occurrence: Occurrence, at: str | None, message: str) -> "asyncio.Future[Taken | Refusal]":
        """Pass an event to the driver. `message` is the id under which its sender can ask for the outcome again."""
        if self.is_attentive:
            self._handed_in, self._handed_at = [], len(self.run.ledger)
        self._handed_in.append((occurrence, at))
        answer = self.answers[message] = self.driver.hand(occurrence, at, message)
        return answer

    @property
    def is_attentive(self) -> bool:
        """Return whether the next event would be taken at once, because nothing before it is still to be taken."""
        return self.driver.is_listening or (self.task is None and not self.is_called)

    @property
    def run_to_come(self) -> Run | None:
        """The run after the events that were just passed in; None if that is not known yet."""
        run: Run | None = self.run
        if self.is_attentive:
            return run
        if self._handed_at != len(self.run.ledger):
            return None  # the driver is at work
        for occurrence, at in self._handed_in:
            run = None if run is None else run_after(run, self.outside.read(run, occurrence, at), at)
        return run

    def change_to(self, start: Json) -> None:
        """Let the next execution begin with another machine, as soon as this one can end."""
        self.machines.append({name: attrs.asdict(self.start)[name] for name in ("text", "digest", "parameters")})
        self.start = attrs.evolve(self.start, **start)
        self.calls.digest, self.gate.must_end, self.rest = self.start.digest, True, None

    def renew(self, run: Run | None = None) -> None:
        """Begin a new session of the run, as another process would."""
        run = run or self.run
        self.driver = self.new_driver(run, left=unfinished_work(run))

    async def stop(self) -> None:
        """Stop driving the run, and wait until that has ended."""
        task = self.task
        if task is not None:
            task.cancel()
            await workflow.wait_condition(lambda: self.task is not task)

    async def _end(self, task: "asyncio.Task[Rest]") -> None:
        """End a task that drives the run."""
        self.is_moving = False
        task.cancel()
        await workflow.wait_condition(task.done)


def change_from(here: Execution, change: Json) -> tuple[Machine, ChangeEntry]:
    """Return the machine under which the run continues, and the entry. `change` has the machine, and the length of the story that was judged.

    Raises OtherMachineError if the document reads otherwise here, and StoreError if something happened since the run was judged.
    """
    entry, now = from_json(change["entry"]), machine_in(change["start"])
    assert isinstance(entry, ChangeEntry), "it is a change"
    if now[1] != entry.digest:
        raise OtherMachineError(here.start.run, entry.digest, now[1])
    if change["length"] != here.story_length:
        raise StoreError(
            f"run {here.start.run} went on while dsa was checking whether this run can change to the new document: try again"
        )
    ahead = attrs.evolve(continuation_of(here), story={})
    if here.calls.is_too_long({**change["start"], "continuation": attrs.asdict(ahead)}):
        raise StoreError(
            f"run {here.start.run} cannot change to the new document, because the part of its ledger that this needs is too long: {payloads.TOO_LONG}"
        )
    return spelled_like(now[0], here.run.machine), entry


def cannot_move(here: Execution, task: "asyncio.Task[Rest] | None") -> bool:
    """Return whether something has begun or ended since `task` drove the run, so that it does not continue in a new execution now."""
    return here.task is not task or (task is not None and task.done()) or not here.gate.is_free


def rest_after_losses(here: Execution, rest: Rest) -> Rest:
    """Return why a run rests if effects were lost with their workers: a person must decide about one, or one was lost too often."""
    doubts = status_of(here.run).doubts
    if doubts:
        return Rest("in doubt", here.run, in_doubt=doubts)
    if not here.hopeless_keys:
        return rest
    intent = Intents(here.run.ledger)[here.hopeless_keys[0]]
    why = f"its worker was lost {MOST_TAKE_UPS + 1} times or more while this effect was under way; remove the cause, then resume the run"
    return Rest("stopped", here.run, Failure(intent.effect, intent.line, "lost", why))


def driver_of_branch(here: Execution) -> Driver:
    """Return the driver of a run that begins as another one did, and rests there."""
    start = here.start
    entries = Ledger(from_json(each) for each in start.entries)
    for record in start.artifacts:
        payloads.store_artifact(here.artifacts, record)
    for entry in entries:
        if isinstance(entry, VerdictEntry):
            here.artifacts.record_verdict(entry)
    run, first = replay_stored(StoredRun(start.run, start.text, entries, 1))
    here.calls.digest = first.digest
    kind = status_of(run).kind
    driver = here.new_driver(run, left=unfinished_work(run))
    here.rest = Rest("waiting" if kind == "waiting" else "finished" if kind == "finished" else "interrupted", run)
    return driver


def go_on_from(here: Execution, before: Continuation, machine: Machine) -> None:
    """Take over a run from the previous execution."""
    for record in before.artifacts:
        payloads.store_artifact(here.artifacts, record)
    here.costs = {(effect, unit): amount for effect, unit, amount in before.costs}
    here.counts = before.counts
    here.machines = list(before.machines)
    run = before.restored_run(spelled_like_earlier(machine, before.machines), here.start.run)
    here.story = StoryPages(**before.story, skips=len(run.ledger), artifact_skips=len(here.artifacts.records))
    here.driver = here.new_driver(run, left=unfinished_work(run) if before.is_resumed else continuation.work_ahead(run))
    if before.rest is not None:
        here.rest = payloads.rest_from(run, before.rest)
        here.left_rest = here.story_length if here.has_whole else None
    here.is_called = before.is_called
    for message, outcome in before.outcomes.items():
        answer = here.answers[message] = asyncio.get_running_loop().create_future()
        answer.set_result(payloads.outcome_from(machine, outcome))
    for each in before.inbox:
        occurrence = payloads.occurrence_from(each["occurrence"])
        if each["message"] is None:
            here.driver.send(occurrence, each["at"])
        else:
            here.hand(occurrence, each["at"], each["message"])


def machine_in(start: Mapping[str, Any]) -> tuple[Machine, str]:
    """Return the machine of a start, or of an entry that changes it, and its digest as it reads here."""
    return recorded_machine(start["text"], tuple((name, value) for name, value in start["parameters"]))


def spelled_like_earlier(machine: Machine, earlier: Iterable[Json]) -> Machine:
    """Return a machine with its timers spelled as in the earlier machines of a run, as in a ledger."""
    machines = [*(machine_in(each)[0] for each in earlier), machine]
    return reduce(lambda before, after: spelled_like(after, before), machines)


def run_after(run: Run, event: Occurrence, at: str | None) -> Run | None:
    """Return a run after an event that is sent now; None if a guard must be asked first."""
    key = answered_key(run, event, at)
    exact = exact_already(run, event, key)
    return None if exact is None else run.feed(exact, key, at_ms=WorkflowClock().wall_ms(), at=at or key)[0]


def binding_without_code(here: Execution, machine: Machine) -> Bindings:
    """Return the bindings as a workflow knows them: every name, without its code."""
    start = here.start
    effects = {name: _nobody for name, _ in effect_names(machine)}
    guards = {name: ActivityGuard(name, here.calls, here.gate) for name in start.guards}
    spenders = None if start.spenders is None else frozenset(start.spenders)
    secrets = Secrets(shapes=())  # worker and sender removed them before anything left their process
    return Bindings(effects, guards, secrets=secrets, spenders=spenders)


def next_start_of(here: Execution) -> Json:
    """Return the start of the next execution."""
    start = attrs.evolve(
        here.start,
        queue=here.calls.queue,
        settings=here.settings,
        most_bytes=here.calls.most_bytes,
        first=(),
        entries=(),
        artifacts=(),
        continuation=attrs.asdict(continuation_of(here)),
    )
    return start.to_json()


def continuation_of(here: Execution) -> Continuation:
    """Return what the next execution begins with."""
    run, machine = here.run, here.run.machine
    ahead = continuation.entries_ahead(run)
    inbox = tuple(
        {"occurrence": payloads.occurrence_to_json(each.occurrence), "at": each.at, "message": each.message}
        for each in here.driver.news
        if each.is_from_outside
    )
    outcomes = {
        message: payloads.outcome_to_json(machine, answer.result())
        for message, answer in here.answers.items()
        if answer.done() and answer.exception() is None and not here.gate.must_end  # they refer to rows by number
    }
    return Continuation(
        continuation.run_to_json(run),
        tuple(to_json(entry) for entry in ahead),
        continuation.artifacts_ahead(run, here.artifacts),
        continuation.costs_before(run, here.costs, ahead),
        continuation.counts_before(here.counts, run.ledger, ahead),
        here.story.to_json(run.ledger, here.artifacts.records),
        inbox,
        dict(tuple(outcomes.items())[-_MOST_OUTCOMES:]),
        None if here.rest is None else payloads.rest_to_json(here.rest),
        here.is_called or here.task is not None,
        tuple(here.machines),
        is_resumed=here.gate.must_end,
    )


@workflow.defn(name=payloads.WORKFLOW)
class RunWorkflow:
    """The workflow of one run. Its id is the run's."""

    @workflow.init
    def __init__(self, start: Json) -> None:
        self._execution = Execution(StartPayload(**start))

    @workflow.run
    async def run(self, _start: Json) -> str:
        """Drive the run until it is finished; return the outcome."""
        here = self._execution
        start = here.start
        if here.digest_as_read != start.digest:  # the task fails, and waits for a worker that reads it as it was
            raise OtherMachineError(start.run, start.digest, here.digest_as_read)
        first = [payloads.occurrence_from(each) for each in start.first]
        while True:
            with here.rest_whatever_comes():
                await workflow.wait_condition(
                    lambda: here.has_work or (here.is_over and workflow.all_handlers_finished())
                )
                here.look_at_parts()
                if not here.is_called and here.is_over:
                    await here.say_farewell()
                    return here.run.outcome
                if here.gate.must_end:
                    await workflow.wait_condition(lambda: here.gate.is_free)
                if here.gate.must_end or not here.is_called:
                    await here.move()
            if here.gate.must_end or not here.is_called:
                continue
            here.is_called = False
            rest = await here.drive(first)
            here.come_to_rest(rest)
            first = []
            if rest.kind in {"waiting", "finished"} and here.driver.news:  # it came while the driver was ending
                here.is_called = True

    # -- events from outside ------------------------------------------------------------------------------------

    @workflow.update(name=payloads.SEND)
    async def send(self, message: Json) -> Json:
        """Take an event, and return its outcome. `message` has the occurrence, and the place of the question that it answers."""
        here = self._execution
        name, message_id = message["occurrence"]["event"], _message_id()
        here.calls.count(here.calls.bytes_of(message))  # the worker sends it back when it accepts it
        with typed_errors():
            answer = here.answers.get(message_id)
            if answer is None:
                occurrence = payloads.occurrence_from(message["occurrence"])
                if occurrence.event in here.start.reads:
                    occurrence = attrs.evolve(occurrence, data=await self._read(occurrence))
                if here.task is None and here.rest is not None and here.rest.kind not in {"waiting", "finished"}:
                    here.renew()
                answer = here.hand(occurrence, message.get("at"), message_id)
                here.is_called = here.is_called or here.task is None
            await workflow.wait_condition(
                lambda: answer.done() or here.is_moving or (here.task is None and not here.is_called)
            )
            if here.is_moving and not answer.done():
                raise _next_execution_takes(name)
            del here.answers[message_id]
            if not answer.done():
                raise ApplicationError(
                    f"run {here.start.run} is no longer driven, and has not taken the event '{name}'",
                    type="NotTakenError",
                )
            return payloads.outcome_to_json(here.run.machine, answer.result())

    async def _read(self, occurrence: Occurrence) -> Any:  # noqa: ANN401  (JSON)
        """Let a worker read the data of an event; one of another queue if the run is moved in the meantime. Raises OccurrenceError, ApplicationError."""
        here, request = self._execution, {"event": occurrence.event, "data": occurrence.data}
        here.reading_count += 1
        try:
            while not here.is_moving:
                task = asyncio.create_task(here.calls.ask(payloads.READ, request))
                await _done_or_moved(here, task)
                if task.done():
                    return (await task)["data"]
                task.cancel()
        except ActivityError as error:
            raise OccurrenceError(getattr(error.cause, "message", str(error.cause))) from error
        finally:
            here.reading_count -= 1
        raise _next_execution_takes(occurrence.event)

    @send.validator
    def refuse_at_once(self, message: Json) -> None:
        """Refuse an event that cannot be one of the run, or that the table refuses whatever guards say. Then nothing is in the history."""
        here = self._execution
        if _message_id() in here.answers:
            return  # the previous execution has accepted it
        occurrence, at = payloads.occurrence_from(message["occurrence"]), message.get("at")
        with typed_errors():
            event = here.outside.read(here.run, occurrence, at)
            outcome = self._outcome_of(event, at)
        if isinstance(outcome, Refusal):
            details = payloads.outcome_to_json(here.run.machine, outcome)
            raise ApplicationError(outcome.message, details, type=payloads.REFUSAL, non_retryable=True)

    def _outcome_of(self, event: Occurrence, at: str | None) -> Taken | Refusal | None:
        """Return the outcome of an event if it came now; None if it is not known yet, because a guard must be asked or the driver is at work."""
        run = self._execution.run_to_come
        after = None if run is None else run_after(run, event, at)
        return None if run is None or after is None else outcome_of_last(after, run.configuration, event)

    # -- continuing, and stopping ---------------------------------------------------------------------------------

    @workflow.update(name=payloads.RESUME)
    async def resume(self, how: Json) -> None:
        """Continue a run that was interrupted, was stopped, or is in doubt. `how` has settings, queue, decisions and answers."""
        here = self._execution
        with typed_errors():
            answers = {key: _answer_from(each) for key, each in how["answers"].items()}
            change = None if how["change"] is None else change_from(here, how["change"])
            run = here.run if change is None else here.run.under(*change)
            require_decidable(run.machine, unfinished_work(run), how["decisions"], answers)
            await here.stop()
            run = here.run if change is None else here.run.under(*change)
            here.calls.queue, here.settings = how["queue"], {**here.settings, **how["settings"]}
            here.calls.most_bytes = how.get("most_bytes", 0)
            if change is not None:
                here.change_to(how["change"]["start"])
            run = record_decisions(run, how["decisions"], answers, WorkflowClock().wall_ms())
            here.renew(run)
            for each in how["occurrences"]:
                here.driver.send(payloads.occurrence_from(each))
        here.is_called = True

    @resume.validator
    def require_at_rest(self, how: Json) -> None:  # noqa: ARG002  (the signature of the update)
        """Refuse to resume a run that is under way."""
        if self._execution.rest is None or self._execution.is_called:
            raise ApplicationError("", self._execution.start.run, type="HeldError", non_retryable=True)

    @workflow.update(name=payloads.INTERRUPT)
    async def interrupt(self) -> None:
        """Stop driving the run until it is resumed. If it was just begun or resumed, or got an event, it is driven first."""
        here = self._execution
        await workflow.wait_condition(lambda: not here.is_called or here.is_moving)
        if here.is_called:
            raise _next_execution_takes(payloads.INTERRUPT)
        await here.stop()

    # -- parts --------------------------------------------------------------------------------------------------

    @workflow.update(name=BEGIN_PART)
    async def begin_part(self, start: Json, machine: str) -> None:
        """Start a part of this run as a child workflow, because an effect wants it."""
        calls = self._execution.calls
        await calls.room_for(calls.bytes_of(start))
        await begin_child(start, machine)

    @workflow.signal(name=PART_GOES_ON)
    def hear_of_part(self, part: str, length: int) -> None:
        """Record that a part continued after a rest."""
        self._execution.part_news.leave(part, length)

    # -- queries --------------------------------------------------------------------------------------

    @workflow.query(name=payloads.STORY)
    def story(self, after: int, artifacts_after: int) -> Json:
        """Return the moments and the artifacts after the first ones, as many as one answer may have, and why the run rests."""
        here = self._execution
        story = here.story.read(after, artifacts_after, here.run.ledger, here.artifacts.records)
        story["rest"] = None if here.rest is None or story["more"] else payloads.rest_to_json(here.rest)
        story["driven"] = here.task is not None or here.is_called
        story["queue"], story["obstacle"] = here.calls.queue, here.calls.obstacle
        story["reads"] = here.reading_count > 0
        machine = (here.machines or [{}])[0]
        first = attrs.evolve(here.start, continuation=None, first=(), entries=(), artifacts=(), **machine)
        return story if after else {**story, "start": first.to_json()}

    @workflow.query(name=payloads.STATE)
    def state(self) -> Json:
        """Return the state of the run, the values of its variables, its outstanding effects by key, and whether it rests."""
        here = self._execution
        return {
            "state": here.run.configuration.state,
            "values": here.run.values,
            "effects": dict(here.run.keys),
            "rests": here.rest is not None,
        }

    @workflow.query(name=payloads.COUNTERS)
    def counters(self) -> Json:
        """Return the counts of events, effects and refusals."""
        return cast(Json, continuation.all_counts(self._execution.counts, self._execution.run.ledger))


def _message_id() -> str:
    """Return the id of the message in the update that is handled now; its sender may send it again."""
    update = workflow.current_update_info()
    assert update is not None, "an update is handled"
    return update.id.partition(payloads.ATTEMPT)[0]


async def _done_or_moved(here: Execution, task: "asyncio.Task[Json]") -> None:
    """Wait for a call of an activity, until the run is moved to another queue or continues in a new execution."""
    queue = here.calls.queue
    await workflow.wait_condition(lambda: task.done() or here.is_moving or here.calls.queue != queue)


def _next_execution_takes(event: str) -> ApplicationError:
    """Return the error by which a sender learns that it must ask again."""
    return ApplicationError(event, type=payloads.NEXT_EXECUTION, non_retryable=True)


def _answer_from(answer: Json) -> Occurrence | Step:
    return Step(**answer) if "actor" in answer else payloads.occurrence_from(answer)
