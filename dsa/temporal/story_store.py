"""The stories of runs on Temporal, read from their workflows by queries, and the runs of a namespace as a store of them.

A `StoryReader` has the moments of a run so far, and asks for later ones.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import timedelta
from functools import partial
from math import inf
from typing import Any, NoReturn
from uuid import uuid4

import attrs
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import DeleteWorkflowExecutionRequest
from temporalio.client import (
    WorkflowExecutionStatus,
    WorkflowHandle,
    WorkflowQueryFailedError,
    WorkflowQueryRejectedError,
    WorkflowUpdateFailedError,
    WorkflowUpdateStage,
)
from temporalio.common import QueryRejectCondition, WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import ApplicationError, WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from dsa.errors import DsaError, OccurrenceError
from dsa.runs.archive import RunFilter, record_of, recorded_machine
from dsa.runs.handle import NotTakenError
from dsa.runs.place import PART_OF
from dsa.runs.summary import summary_of_run
from dsa.runtime.artifacts import MemoryArtifacts
from dsa.runtime.ledger import Entry, Ledger, VerdictEntry, from_json
from dsa.runtime.run import Fold, Run
from dsa.runtime.run_store import HeldError, RunSummary, StoredRun, StoreError, Summary, UnknownRunError
from dsa.runtime.status import RunStatus, UnfinishedWork, status_of
from dsa.temporal import payloads, search_attributes
from dsa.temporal.payload_stores import OTHER_STORE, is_stored_elsewhere, store_errors
from dsa.temporal.payloads import QUEUE, Json, StartPayload
from dsa.temporal.server_link import PATIENCE_S, ServerLink, queue_name
from dsa.temporal.story_pages import page_id, pages_after

#: How long the first question to a workflow waits, and how long a worker may take to start, in seconds.
_FIRST_WAIT_S, _STARTING_S = 1.0, 4.0
#: The time before an update that the server has dropped is sent again, in seconds.
_AGAIN_S = 0.1
#: The server's name for the error of an update that no worker has seen.
_UNSEEN_UPDATE = "UnprocessedUpdate"
#: The code of the error for a run whose workflow does not answer.
_NO_ANSWER = "NoAnswerError"
#: How many workflows are asked at the same time.
_AT_ONCE = 20
#: The query for the workflows of all runs. A removed run is terminated, and one that was continued has another execution.
_ALL = f"WorkflowType = '{payloads.WORKFLOW}' AND ExecutionStatus NOT IN ('Terminated', 'ContinuedAsNew')"
#: The conditions for those that are running, and for those that have ended.
_OPEN_RUNS, _PAST_RUNS = " AND ExecutionStatus = 'Running'", " AND ExecutionStatus != 'Running'"


def unknown_run(run_id: str) -> UnknownRunError:
    """Return the error for a run that the server does not have."""
    return UnknownRunError(f"there is no run {run_id}")


def raise_for(run_id: str, error: WorkflowUpdateFailedError) -> NoReturn:
    """Raise the error of this package that a workflow has raised in an update."""
    cause = error.cause
    kinds: dict[str, Callable[[str], Exception]] = {
        "OccurrenceError": OccurrenceError,
        "DoubtError": partial(DsaError, code="DoubtError"),
        "NotTakenError": NotTakenError,
        "TypeError": TypeError,
        "ValueError": ValueError,
    }
    kind = getattr(cause, "type", None) or ""
    if kind == "HeldError":
        raise HeldError(run_id, "Temporal") from None
    message = getattr(cause, "message", str(cause))
    raise kinds.get(kind, StoreError)(message) from None


class StoryReader:
    """The story of one run as far as it was read: how it began, `run`, `artifacts`, why it rests, the queue of its effects, and whether something drives it.

    `obstacle` says why the last worker that was asked cannot perform its effects; "" if it can, or that is unknown. With `waits_for_reading`, the data of
    an event waits for a worker that reads it.
    """

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.start: StartPayload | None = None
        self.entries: Ledger[Entry] = Ledger()
        self.artifacts = MemoryArtifacts()
        self.rest: Json | None = None
        self.queue, self.obstacle = QUEUE, ""
        self.is_driven, self.waits_for_reading = True, False
        self.page_count = 0
        self._artifact_count = 0
        self._run: Run | None = None
        self._lock = asyncio.Lock()

    async def read(self, link: ServerLink, *, is_patient: bool = False) -> "StoryReader":
        """Read what is new, in the link's loop. Raises UnknownRunError, StoreError."""
        async with self._lock:
            while True:
                position = len(self.entries), self._artifact_count
                story = await _ask(link, self.run_id, payloads.STORY, *position, is_patient=is_patient)
                self._take(story)
                if "ends" in story:  # a page at a time: a long story is much larger as JSON than as entries
                    self.page_count = len(story["ends"])
                    async for page in pages_after(await link.client(), self.run_id, story["ends"], *position):
                        self._add(page)
                if not story["more"]:
                    return self
                if position == (len(self.entries), self._artifact_count):
                    raise StoreError(
                        f"the record of run {self.run_id} was changed: it is shorter than the part that was read before"
                    )

    def _take(self, story: Json) -> None:
        self.start = StartPayload(**story["start"]) if "start" in story else self.start
        self._add(story)
        self.rest, self.is_driven = story["rest"], story["driven"]
        self.queue, self.obstacle, self.waits_for_reading = story["queue"], story["obstacle"], story["reads"]

    def _add(self, part: Json) -> None:
        """Add the entries and artifacts of a part of the story."""
        new_entries = [from_json(each) for each in part["entries"]]
        for record in part["artifacts"]:
            payloads.store_artifact(self.artifacts, record)
        self._artifact_count += len(part["artifacts"])
        self.entries = self.entries.extend(new_entries)
        for entry in new_entries:
            if isinstance(entry, VerdictEntry):
                self.artifacts.record_verdict(entry)

    @property
    def text(self) -> str:
        """The text of its machine, as it began; "" before it was read."""
        return "" if self.start is None else self.start.text

    @property
    def stored_run(self) -> StoredRun:
        """The run as stores have it."""
        holder = "Temporal" if self.rest is None else None
        return StoredRun(self.run_id, self.text, self.entries, 1, holder)

    @property
    def run(self) -> Run:
        """The run after the entries that were read. Raises OtherMachineError, ReplayError."""
        run, entries = self._run, self.entries
        if run is not None and len(run.ledger) < len(entries):
            fold, new_entries = Fold(run), entries[len(run.ledger) :]
            run = fold.run(entries) if fold.take(new_entries, 0) == len(new_entries) else None
        if run is None:
            run = record_of(self.stored_run).run
        self._run = run
        return run

    @property
    def summary(self) -> RunSummary:
        """The summary of the run, for lists."""
        run, holder = self.run, None
        if self.rest is None:
            status, holder = RunStatus("cut off", UnfinishedWork()), "Temporal"
        elif self.rest["kind"] == "interrupted":
            status = status_of(run)
        else:
            rest = payloads.rest_from(run, self.rest)
            failure = "" if rest.failure is None else str(rest.failure)
            status = RunStatus(rest.kind, UnfinishedWork(), rest.in_doubt, failure)  # type: ignore[arg-type]
        summary = summary_of_run(run, status)
        if self.rest is not None and self.rest["kind"] == "interrupted":
            summary = attrs.evolve(summary, status="interrupted")
        return RunSummary(self.run_id, len(self.entries), summary, holder, queue=queue_name(self.queue))


async def _ask(link: ServerLink, run_id: str, query: str, *arguments: object, is_patient: bool = False) -> Json:
    """Ask a workflow, in the link's loop. Raises UnknownRunError, and StoreError if no worker answers.

    An answer can be lost with a worker that forgets the workflow in the meantime, so it is requested again. If there is no worker at all, one that is just
    starting gets a few seconds, or, if the caller is patient, the same time as a busy one.
    """
    handle = (await link.client()).get_workflow_handle(run_id)
    until_s, wait_s, is_last = time.monotonic() + PATIENCE_S, _FIRST_WAIT_S, False
    while True:
        begin_s = time.monotonic()
        try:
            return await _ask_once(handle, query, arguments, timedelta(seconds=wait_s))
        except RPCError as error:
            wanted_worker = await link.wanted_worker(QUEUE, drives=True)
            if time.monotonic() > until_s or (is_last and wanted_worker and not is_patient):
                if error.status == RPCStatusCode.UNAVAILABLE:
                    raise  # the server itself fails
                why = f"it waits for {wanted_worker}"
                if is_patient or not wanted_worker:
                    why = f"no worker has answered for {PATIENCE_S:g} s"
                if not wanted_worker:
                    why += f". The worker may be busy, or was killed; this command starts another: {link.worker_command(QUEUE)}"
                message = f"run {run_id} does not answer: {why}\nThe server keeps the run, which continues when a worker answers"
                raise StoreError(message, code=_NO_ANSWER) from error
            if wanted_worker and is_patient:
                link.note_once(f"waiting for {wanted_worker}")
            elif wanted_worker:
                link.note_once(f"there is no worker; waiting {_STARTING_S:g} s for one to start")
            elif wait_s == 2 * _FIRST_WAIT_S:
                link.note_once(f"no worker answers; waiting up to {PATIENCE_S:g} s, because a worker may be busy")
            is_last = bool(wanted_worker)
            left_s = min(wait_s, 1.0) - (time.monotonic() - begin_s)  # the server may refuse at once
            await asyncio.sleep(max(0.0, left_s))
            wait_s = _STARTING_S if wanted_worker else min(2 * wait_s, max(1.0, until_s - time.monotonic()))


async def _ask_once(handle: WorkflowHandle[Any, Any], query: str, arguments: Sequence[object], most: timedelta) -> Json:
    """Ask a workflow, and wait for its answer for some time. Raises UnknownRunError, StoreError, and RPCError if none comes."""
    how: Json = {"rpc_timeout": most, "reject_condition": QueryRejectCondition.NOT_COMPLETED_CLEANLY}
    while True:
        try:
            with store_errors(f"run {handle.id}"):
                answer: Json = await handle.query(query, args=arguments, **how)
        except WorkflowQueryRejectedError as error:
            if error.status == WorkflowExecutionStatus.TERMINATED:
                raise unknown_run(handle.id) from None
            if error.status == WorkflowExecutionStatus.CONTINUED_AS_NEW:  # it was, while the query was under way
                continue
            raise StoreError(f"the Temporal workflow of run {handle.id} did not end cleanly: {error}") from None
        except RPCError as error:
            if error.status == RPCStatusCode.NOT_FOUND:
                raise unknown_run(handle.id) from None
            raise
        except WorkflowQueryFailedError as error:
            why = OTHER_STORE if is_stored_elsewhere(error) else str(error)
            raise StoreError(f"run {handle.id}: {why}") from error
        return answer


def _unreadable(run_id: str, fault: DsaError) -> RunSummary:
    """Return the summary of a run that cannot be read, with the reason, so that a list can show the others."""
    reason = str(fault).partition("\n")[0].removeprefix(f"run {run_id}").removeprefix(":").strip()
    return RunSummary(run_id, 0, Summary(), damage=reason)


class TemporalStore:
    """The runs of a namespace, as `dsa.runs.archive` reads a store."""

    def __init__(self, link: ServerLink) -> None:
        self.link = link
        self._readers: dict[str, StoryReader] = {}

    async def look_at(self, run_id: str, *, is_patient: bool = False) -> StoryReader:
        """Read what is new of a run, in the link's loop; wait longer for a worker that must be started if the caller `is_patient`. Raises UnknownRunError, StoreError."""
        reader = self._readers.get(run_id) or StoryReader(run_id)
        await reader.read(self.link, is_patient=is_patient)
        return self._readers.setdefault(run_id, reader)

    async def is_at_rest(self, run_id: str) -> bool:
        """Return whether a run rests, without reading its story, in the link's loop. Raises UnknownRunError."""
        return bool((await _ask(self.link, run_id, payloads.STATE))["rests"])

    def reader(self, run_id: str) -> StoryReader:
        """Read what is new of a run, and wait for it. Raises UnknownRunError."""
        return self.link.run(self.look_at(run_id))

    def reader_so_far(self, run_id: str) -> StoryReader:
        """Return what was read of a run, without asking."""
        return self._readers.get(run_id) or StoryReader(run_id)

    def forget(self, run_id: str) -> None:
        """Forget what was read of a run."""
        self._readers.pop(run_id, None)

    async def wanted_worker(self, run_id: str) -> str:
        """Return which worker a run under way, or the data of an event, waits for, in the link's loop; "" if there is one."""
        reader = await self.look_at(run_id)
        if not reader.waits_for_reading and (reader.rest is not None or not reader.is_driven):
            return ""
        wanted_worker = await self.link.wanted_worker(reader.queue)
        if reader.obstacle and not wanted_worker:
            wanted_worker = f"a worker that can perform its effects; the last one cannot: {reader.obstacle}"
        return wanted_worker

    async def remove(self, run_id: str) -> None:
        """End the workflows of a run and of its parts, in the link's loop. Raises UnknownRunError, and HeldError for a run that continues by itself."""
        if (await self.look_at(run_id)).is_driven:
            raise HeldError(run_id, "Temporal")
        for each in (*(part for part in await self._ids() if part.startswith(f"{run_id}{PART_OF}")), run_id):
            await self.end_workflow(each)
            self.forget(each)

    def read(self, run: str) -> StoredRun:
        """Read a run."""
        return self.reader(run).stored_run

    def read_after(self, run: str, position: int) -> tuple[Entry, ...]:
        """Read the entries from a position on."""
        return self.reader(run).entries[position:]

    def version(self, run: str) -> int:
        """Return the number of entries."""
        return len(self.reader(run).entries)

    def summary(self, run: str) -> RunSummary:
        """Return the summary of one run."""
        return self.reader(run).summary

    def runs(self) -> tuple[str, ...]:
        """Return the ids of all runs, in the order in which they were begun."""
        return self.link.run(self._ids())

    async def _ids(self) -> tuple[str, ...]:
        return tuple(run_id for _, run_id, _ in sorted([each async for each in self._starts(None)]))

    async def _starts(self, most: int | None, condition: str = "") -> AsyncIterator[tuple[float, str, float]]:
        """Yield when each run was begun, its id, and when it ended, in seconds since 1970 (infinite: it has not); the server returns `most` at a time.

        Those that have not ended come first, by the beginning of their executions, and then the others by their end, the newest first.
        """
        client = await self.link.client()
        async for each in client.list_workflows(f"{_ALL}{condition}", page_size=most or 1000):
            end_s = inf if each.close_time is None else each.close_time.timestamp()
            yield await each.memo_value(payloads.START_TIME), each.id, end_s

    async def count(self) -> int:
        """Return the number of all runs, in the link's loop."""
        return (await (await self.link.client()).count_workflows(_ALL)).count

    async def summaries(self, selection: RunFilter) -> tuple[RunSummary, ...]:
        """Return the summaries of the runs of a list, in the link's loop. It asks workflows until it has enough.

        The `newest` are those whose executions were begun last: a long run continues in new ones.
        """
        is_indexed, newest = await self.link.is_indexed(), selection.newest
        names = selection.status, selection.waiting_for, selection.machine
        condition = search_attributes.query_of(*names) if is_indexed else ""
        matches, together = list[tuple[float, RunSummary]](), list[tuple[float, str]]()

        async def ask() -> None:
            answers = await asyncio.gather(*(self._summary_of(run_id) for _, run_id in together))
            faults = [each for each in answers if isinstance(each, StoreError)]
            if faults and len(faults) == len(answers):
                raise faults[0]
            for (at_s, run_id), each in zip(together, answers, strict=True):
                summary = _unreadable(run_id, each) if isinstance(each, StoreError) else each
                if summary is not None and summary.at(selection.now_ms).matches(*names):
                    matches.append((at_s, summary.at(selection.now_ms)))
            together.clear()

        for part in (_OPEN_RUNS, _PAST_RUNS) if newest is not None else ("",):
            async for at_s, run_id, end_s in self._starts(newest, f"{condition}{part}"):
                if newest is not None and not together and len(matches) >= newest:
                    oldest_s = sorted(at_s for at_s, _ in matches)[-newest]
                    if part == _OPEN_RUNS or end_s < oldest_s:
                        break
                together.append((at_s, run_id))
                if len(together) == _AT_ONCE:
                    await ask()
            await ask()
        matches.sort(key=lambda pair: (pair[0], pair[1].run))
        return tuple(each for _, each in matches)[-(newest or 0) :]

    async def _summary_of(self, run_id: str) -> RunSummary | StoreError | None:
        """Return the summary of a run; the error if its workflow does not answer, and None if it was removed a moment ago."""
        try:
            return (await self.look_at(run_id)).summary
        except UnknownRunError:
            return None
        except DsaError as fault:
            return fault if isinstance(fault, StoreError) and fault.code == _NO_ANSWER else _unreadable(run_id, fault)

    # -- the updates of workflows, in the link's loop ---------------------------------------------------------------------

    async def begin_workflow(self, start: StartPayload) -> None:
        """Begin the workflow of a run. Raises StoreError if the id is or was in use."""
        client, is_indexed = await self.link.client(), await self.link.is_indexed()
        await self.link.require_short(start.to_json())
        machine, _ = recorded_machine(start.text, start.parameters)
        try:
            await client.start_workflow(
                payloads.WORKFLOW,
                start.to_json(),
                id=start.run,
                task_queue=QUEUE,
                memo={payloads.START_TIME: time.time()},
                search_attributes=search_attributes.of_new_run(machine.name) if is_indexed else None,
                id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
                id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
            )
        except WorkflowAlreadyStartedError:
            raise StoreError(f"there was already a run with this id: {start.run}") from None

    async def resume(self, run_id: str, how: Json) -> Json:
        """Continue a run, and return what the update returns. Raises what it raises."""
        return await self.update(run_id, payloads.RESUME, {**how, "most_bytes": await self.link.most_bytes()})

    async def update(self, run_id: str, name: str, *arguments: object) -> Json:
        """Update a workflow, and return its answer. Raises ApplicationError for a refused event, and what `raise_for` does."""
        handle, message = (await self.link.client()).get_workflow_handle(run_id), uuid4().hex
        await self.link.require_short(*arguments, is_event=name != payloads.RESUME)
        attempt, until_s = 1, time.monotonic() + PATIENCE_S
        while True:
            try:
                update = await handle.start_update(
                    name,
                    args=arguments,
                    id=f"{message}{payloads.ATTEMPT}{attempt}",
                    wait_for_stage=WorkflowUpdateStage.COMPLETED,
                    result_type=dict,
                )
                answer: Json = await update.result()
            except WorkflowUpdateFailedError as error:
                kind = error.cause.type if isinstance(error.cause, ApplicationError) else None
                # The next execution of the workflow has it, or will read it; or the worker took its task without it.
                if kind == payloads.NEXT_EXECUTION or (kind == _UNSEEN_UPDATE and time.monotonic() < until_s):
                    attempt += 1
                    continue
                if kind == payloads.REFUSAL:
                    raise error.cause from None
                raise_for(run_id, error)
            except RPCError as error:
                if error.status == RPCStatusCode.NOT_FOUND:
                    raise unknown_run(run_id) from None
                if error.status == RPCStatusCode.FAILED_PRECONDITION and time.monotonic() < until_s:
                    # A task of the workflow failed, and is tried again without the update.
                    await asyncio.sleep(_AGAIN_S)
                    continue
                raise StoreError(f"run {run_id}: {error.message}") from error
            return answer

    async def end_workflow(self, run_id: str) -> None:
        """End the workflows of a run; the server forgets ended ones at once, others with the retention time of the namespace."""
        client, reader = await self.link.client(), await self.look_at(run_id)
        for workflow_id in (*(page_id(run_id, number) for number in range(reader.page_count)), run_id):
            async for each in client.list_workflows(f"WorkflowId = '{workflow_id}'"):
                if each.status == WorkflowExecutionStatus.RUNNING:
                    await client.get_workflow_handle(workflow_id, run_id=each.run_id).terminate("removed")
                else:
                    await self._forget_execution(WorkflowExecution(workflow_id=workflow_id, run_id=each.run_id))

    async def _forget_execution(self, execution: WorkflowExecution) -> None:
        request = DeleteWorkflowExecutionRequest(namespace=self.link.namespace, workflow_execution=execution)
        await (await self.link.client()).workflow_service.delete_workflow_execution(request)
