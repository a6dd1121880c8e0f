"""The link to a Temporal server: its address, one client, the workers of this process, and sentences about missing servers and workers.

All of this runs on an event loop of its own in a thread, so anyone who reads a run may wait for the answer, in a loop or not: the worker that must give
it is never in the loop that waits.
"""

import asyncio
import logging
import os
import re
import shlex
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from contextlib import suppress
from datetime import timedelta
from functools import cache, partial
from importlib.metadata import version
from typing import Any, TypeVar

import attrs
from temporalio import activity
from temporalio.api.enums.v1 import TaskQueueType, WorkerStatus
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest, DescribeTaskQueueRequest, ListWorkersRequest
from temporalio.client import Client, WorkflowUpdateRPCTimeoutOrCancelledError
from temporalio.common import VersioningBehavior, WorkerDeploymentVersion
from temporalio.runtime import LoggingConfig, Runtime, TelemetryConfig, TelemetryFilter
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import (
    ActivityInboundInterceptor,
    ExecuteActivityInput,
    Interceptor,
    Worker,
    WorkerDeploymentConfig,
)
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from dsa.errors import DocumentError, code_of
from dsa.runtime.run_store import StoreError
from dsa.runtime.timeline import TelemetrySpan, work_span
from dsa.temporal import search_attributes
from dsa.temporal.payload_stores import ObjectStore, converter_with, store_of
from dsa.temporal.payloads import (
    CONVERTER,
    EVENT_TOO_LONG,
    MOST_OF_EVENT,
    MOST_OF_VALUE,
    NAMED_QUEUE,
    PROCESS_QUEUE,
    QUEUE,
    TOO_LONG,
)

T = TypeVar("T")

#: `temporal://HOST:PORT/NAMESPACE?queue=NAME&store=STORE`. A path made from it has lost a slash.
_ADDRESS = re.compile(r"temporal://?(?P<host>[^/:]+:[0-9]+)/(?P<namespace>[^/?]+)/?(\?(?P<options>.+))?")
#: The separator of the options in an address. Any other `&` belongs to the address of a store.
_JOINT = re.compile(r"&(?=(?:queue|store)=)")
_QUEUE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
#: The longest that a worker waits for one that already knows a run, before it reads the run's history itself.
_STICKY = timedelta(seconds=2)
#: The sandbox of workflows. Our own modules are loaded once: they read no clock, file or chance where the driver does not.
RUNNER = SandboxedWorkflowRunner(SandboxRestrictions.default.with_passthrough_modules("dsa", "attr", "attrs"))
#: The most workflows that a worker remembers; for any other it reads the history again.
_MOST_CACHED = 1_000
#: The version of a worker's code that the server shows. Without one, the code of all loaded modules would be read and hashed, which takes 0.3 s.
_VERSION = WorkerDeploymentVersion("dsa", version("dual-state-agents"))
#: The most bytes that a server may add to a value, in the event that keeps it.
_HEADER_BYTES = 4_096
#: The longest time between two heartbeats of an effect.
_HEARTBEAT = timedelta(seconds=1)
#: The environment variable with the version of the workers of a process, and the deployment to which it belongs.
BUILD_VARIABLE, DEPLOYMENT = "DSA_TEMPORAL_BUILD", "dsa"
#: The longest that anyone waits for the answer of a worker, in seconds.
PATIENCE_S = 20.0
_NOTICES = logging.getLogger("dsa.notice")
_LAST_STATUSES = {WorkerStatus.WORKER_STATUS_SHUTTING_DOWN, WorkerStatus.WORKER_STATUS_SHUTDOWN}
#: The longest time between two polls of a worker that is alive, in seconds: a poll takes a minute if there is no work.
_LONGEST_POLL_S = 70.0
#: The time after which a worker that ended with an error is started again, in seconds.
_RESTART_S = 1.0


@attrs.frozen
class ServerAddress:
    """The parts of `temporal://HOST:PORT/NAMESPACE?queue=NAME&store=STORE`: the host with its port, and the namespace.

    `queue` is the task queue for effects: that of a name, or the one of all workers. `store` keeps long payloads; with None the server does.
    """

    host: str
    namespace: str
    queue: str = QUEUE
    store: ObjectStore | None = None
    _store_name: str = ""

    @classmethod
    def read(cls, where: str) -> "ServerAddress":
        """Read an address. Raises DocumentError, BindingError."""
        match, address = _ADDRESS.fullmatch(where), re.sub("^temporal:/+", "temporal://", where)
        if match is None:
            raise DocumentError(
                address,
                "write temporal://HOST:PORT/NAMESPACE, such as temporal://localhost:7233/default; add ?store=/FOLDER if long payloads are "
                "in a shared folder (or name another store), ?queue=NAME for effects that need a certain machine, or both: ?queue=NAME&store=/FOLDER",
            )
        options = dict[str, str]()
        for part in _JOINT.split(match["options"]) if match["options"] else ():
            name, _, value = part.partition("=")
            if name not in {"queue", "store"} or name in options or not value:
                raise DocumentError(
                    address,
                    f"'{part}' is not allowed after the '?': write queue=NAME or store=STORE there, each at most once",
                )
            options[name] = value
        name = options.get("queue", "all")
        if not _QUEUE_NAME.fullmatch(name):
            raise DocumentError(
                address, f"'{name}' is not the name of a queue: use letters, digits, and `.`, `_` or `-` between them"
            )
        queue = f"{NAMED_QUEUE}{options['queue']}" if "queue" in options else QUEUE
        store = store_of(options["store"]) if "store" in options else None
        return cls(match["host"], match["namespace"], queue, store, options.get("store", ""))

    def for_queue(self, queue: str) -> str:
        """Return the address for the workers of a task queue."""
        names = {"queue": queue_name(queue), "store": self._store_name}
        options = "&".join(f"{name}={value}" for name, value in names.items() if value)
        return f"temporal://{self.host}/{self.namespace}{f'?{options}' if options else ''}"


_NO_SERVER = "the program that listens there is not a Temporal server, or is shutting down; write the server's gRPC port, such as 7233"
#: Why a connection fails, as libraries report it, and in plain words.
_FAULTS = {
    "Connection refused": "nothing listens there; start a server with `{start}`, or use another address",
    "tcp connect error": "nothing listens there now",
    "h2 protocol error": _NO_SERVER,
    "operation was canceled": _NO_SERVER,
    "broken pipe": _NO_SERVER,
    "dns error": "the name of that host is unknown",
    "transport error": "the connection is broken",
    "Worker validation failed: Namespace": "the server has no such namespace",
}


def queue_name(queue: str) -> str | None:
    """Return the name of a task queue in addresses; None for queues without one."""
    return queue.removeprefix(NAMED_QUEUE) if queue.startswith(NAMED_QUEUE) else None


def fault_in_words(error: BaseException, host: str = "") -> str:
    """Return why a server cannot be reached at `host`, for a person."""
    if isinstance(error, TimeoutError):
        return f"there was no answer within {PATIENCE_S:g} s"
    text = str(error)
    port = host.rpartition(":")[2]
    start = "temporal server start-dev" + (f" --port {port}" if port not in {"", "7233"} else "")
    return next((words.format(start=start) for sign, words in _FAULTS.items() if sign in text), text)


@cache
def _quiet_runtime() -> Runtime:
    """Return the runtime of all clients of this process, which prints no warnings of its own: people get sentences of ours instead."""
    errors = TelemetryFilter(core_level="ERROR", other_level="ERROR")
    return Runtime(telemetry=TelemetryConfig(logging=LoggingConfig(errors)))


class ActivitySpans(Interceptor):
    """Makes a span of each activity of a run, in the run's own trace, whichever process began the run."""

    def __init__(self, emit: Callable[[TelemetrySpan], None]) -> None:
        self._emit = emit

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002  (as the interface has it)
        """Intercept the activities of a worker."""
        return _SpanOfActivity(next, self._emit)


class _SpanOfActivity(ActivityInboundInterceptor):
    def __init__(self, following: ActivityInboundInterceptor, emit: Callable[[TelemetrySpan], None]) -> None:
        super().__init__(following)
        self._emit = emit

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002, ANN401  (as the interface has it)
        """Do the activity, and make its span. An error appears in it by name, without its text."""
        request, begin_ns, error = input.args[0], time.time_ns(), None
        names = {"key": "key", "effect": "effect", "root": "try", "guard": "guard", "event": "event"}
        about = {names[each]: value for each, value in request.items() if each in names}
        try:
            return await super().execute_activity(input)
        except BaseException as fault:
            error = getattr(fault, "type", None) or code_of(fault)
            raise
        finally:
            self._emit(
                work_span(request["run"], activity.info().activity_type, about, (begin_ns, time.time_ns()), error)
            )


def _deployment(queue: str) -> WorkerDeploymentConfig:
    """Return the version of a worker. The server tells the workers of workflows apart by it, if the environment has one.

    A run stays with workers of the version at which its execution began; its next execution begins at the current one.
    """
    build = os.environ.get(BUILD_VARIABLE)
    if not build or queue != QUEUE:
        return WorkerDeploymentConfig(_VERSION, use_worker_versioning=False)
    version = WorkerDeploymentVersion(DEPLOYMENT, build)
    return WorkerDeploymentConfig(version, True, VersioningBehavior.PINNED)  # noqa: FBT003  (use_worker_versioning)


class ServerLink:
    """The link of one entry point. `run` waits for work in the link's loop from any thread, `wait` from a coroutine of another loop."""

    def __init__(self, where: str) -> None:
        address = self.address = ServerAddress.read(where)
        self.host, self.namespace, self.effect_queue = address.host, address.namespace, address.queue
        self._converter = converter_with(address.store)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="dsa-temporal", daemon=True)
        self._thread.start()
        #: Gets a span for each activity that is done here.
        self.on_span: Callable[[TelemetrySpan], None] | None = None
        self._client: Client | None = None
        self._is_indexed: bool | None = None
        #: The longest value that the server accepts, in bytes; 0 while it is unknown.
        self._most_bytes = 0
        self._workers: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._lock: asyncio.Lock | None = None
        self._notes = set[str]()
        self._kept_tasks: set[asyncio.Task[None]] = set()
        self._is_closed = False

    def _begin(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        if self._is_closed:
            work.close()
            raise StoreError(f"temporal://{self.host}/{self.namespace}: this handle is closed; open the runs again")

        async def work_in_words() -> T:
            try:
                return await work
            except WorkflowUpdateRPCTimeoutOrCancelledError as error:
                if isinstance(error.__cause__, asyncio.CancelledError):
                    raise error.__cause__ from None
                raise StoreError(f"the Temporal server at {self.host} has not answered in time. It may have done what was requested: look at the run") from error  # fmt: skip
            except RPCError as error:
                if error.status == RPCStatusCode.INVALID_ARGUMENT:
                    raise StoreError(
                        f"the Temporal server at {self.host} refused the request: {error.message}"
                    ) from error
                if error.status == RPCStatusCode.NOT_FOUND and error.message.startswith("Namespace "):
                    raise self._no_namespace() from error
                raise StoreError(f"the Temporal server at {self.host} does not answer: {fault_in_words(error)}. No run is lost, because the server stores them; try again when it answers") from error  # fmt: skip

        return asyncio.run_coroutine_threadsafe(work_in_words(), self._loop)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do work in the link's loop, and wait for it. Never call this in that loop. Raises StoreError if the server does not answer."""
        return self._begin(work).result()

    async def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Do work in the link's loop, and await it in another one. Raises StoreError if the server does not answer."""
        return await asyncio.wrap_future(self._begin(work))

    async def client(self) -> Client:
        """Return the client, in the link's loop. Raises StoreError if no server answers, or has no such namespace."""
        self._lock = self._lock or asyncio.Lock()
        async with self._lock:
            self._client = self._client or await self._connect()
            return self._client

    async def _connect(self) -> Client:
        how: Any = {"data_converter": self._converter, "runtime": _quiet_runtime()}
        try:
            client = await asyncio.wait_for(Client.connect(self.host, namespace=self.namespace, **how), PATIENCE_S)
        except (RuntimeError, RPCError, TimeoutError) as error:
            raise StoreError(
                f"no Temporal server answers at {self.host}: {fault_in_words(error, self.host)}"
            ) from error
        await self._require_namespace(client)
        return client

    async def _require_namespace(self, client: Client) -> None:
        """Raise StoreError if the server has no such namespace. One that it may not show is used anyway."""
        try:
            answer = await client.workflow_service.describe_namespace(
                DescribeNamespaceRequest(namespace=self.namespace)
            )
            self._most_bytes = answer.namespace_info.limits.blob_size_limit_error
        except RPCError as error:
            if error.status == RPCStatusCode.NOT_FOUND:
                raise self._no_namespace() from error
            if error.status != RPCStatusCode.PERMISSION_DENIED:
                raise

    def _no_namespace(self) -> StoreError:
        command = f"temporal operator namespace create {self.namespace} --address {self.host}"
        return StoreError(
            f"the Temporal server at {self.host} has no namespace '{self.namespace}': use another, or create it with `{command}`"
        )

    async def most_bytes(self) -> int:
        """Return the length of the longest value that the server accepts, in bytes, in the link's loop; 0 if a store takes any, or it is unknown."""
        await self.client()
        most = min(self._most_bytes - _HEADER_BYTES, MOST_OF_VALUE)
        return max(0, most) if self.address.store is None else 0

    async def require_short(self, *values: object, is_event: bool = False) -> None:
        """Raise StoreError for values that are longer than the server accepts, in the link's loop. A store takes any.

        The server itself would refuse them late, or never: an event that its run cannot accept is tried again and again, and may end the run.
        """
        most_bytes = await self.most_bytes()
        if most_bytes:
            count = sum(each.ByteSize() for each in CONVERTER.payload_converter.to_payloads(values))
            if count > (min(most_bytes, MOST_OF_EVENT) if is_event else most_bytes):
                hint = EVENT_TOO_LONG if is_event else TOO_LONG
                raise StoreError(f"{count / 2**20:.1f} MB is too much for the Temporal server at {self.host}: {hint}")

    async def is_indexed(self) -> bool:
        """Return whether the namespace has search attributes for runs, in the link's loop; if it has none, try once to register them."""
        if self._is_indexed is None:
            self._is_indexed = await search_attributes.ensure(await self.client())
        return self._is_indexed

    async def has_worker(self, queue: str, *, drives: bool) -> bool:
        """Return whether a worker has polled a task queue lately, in the link's loop: for workflows if it `drives`, else for effects.

        One that ended properly no longer counts; one that was killed counts for a minute. If the server does not say, there may be one.
        """
        service = (await self.client()).workflow_service
        kind = TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW if drives else TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY
        request = DescribeTaskQueueRequest(
            namespace=self.namespace, task_queue=TaskQueue(name=queue), task_queue_type=kind
        )
        try:
            pollers = (await service.describe_task_queue(request)).pollers
        except RPCError:
            return True
        since_ms = 1000 * (time.time() - _LONGEST_POLL_S)
        names = {each.identity for each in pollers if each.last_access_time.ToMilliseconds() > since_ms}
        if names:
            with suppress(RPCError):  # older servers have no list of workers
                which = ListWorkersRequest(namespace=self.namespace, query=f"TaskQueue = '{queue}'")
                workers = [each.worker_heartbeat for each in (await service.list_workers(which)).workers_info]
                active_names = {each.worker_identity for each in workers if each.status not in _LAST_STATUSES}
                names -= {each.worker_identity for each in workers} - active_names
        return bool(names)

    async def wanted_worker(self, queue: str, *, drives: bool = False) -> str:
        """Return which worker must be started, and how; "" if one has polled the queue lately, as `has_worker` says."""
        is_here = (queue, "workflows" if drives else "activities") in self._workers
        if is_here or await self.has_worker(queue, drives=drives):
            self._notes.clear()
            return ""
        if queue.startswith(PROCESS_QUEUE):
            return "the program that has its bindings, because they are objects in that program"
        command, name = self.worker_command(queue), queue_name(queue)
        if name is None:
            return f"a worker; start one: {command}"
        return f"a worker of the queue '{name}'; start one on the machine that has what these effects need: {command}"

    def worker_command(self, queue: str) -> str:
        """Return the command that starts a worker for a queue, in the folder with the documents."""
        return shlex.join(["dsa", "work", ".", "--runs", self.address.for_queue(queue)])

    def note_once(self, text: str) -> None:
        """Print something for a person while a command waits, once, until a worker has been there again."""
        if text not in self._notes:
            self._notes.add(text)
            _NOTICES.warning(text)

    def work_in_words(self, at_once: int) -> str:
        """Return a sentence about what a worker does here that performs `at_once` effects at the same time."""
        name = queue_name(self.effect_queue)
        what = "their effects" if name is None else f"the effects of the queue '{name}'"
        return f"this worker drives the runs of {self.host}/{self.namespace} and performs {what}, at most {at_once} at the same time; Ctrl-C ends it"

    async def work_on(
        self,
        queue: str,
        activities: Sequence[Callable[..., Any]] = (),
        *,
        workflows: Sequence[type] = (),
        at_once: int | None = None,
        most_cached: int = _MOST_CACHED,
    ) -> None:
        """Start a worker for a task queue, in the link's loop, unless there is already one for this work.

        It performs at most `at_once` activities at the same time (None: 100), and remembers at most `most_cached` workflows. If one worker has both, an activity takes one way through the server less.
        """
        is_known = {(queue, kind) for kind in ("activities", "workflows")} & self._workers.keys()
        activities = () if (queue, "activities") in is_known else activities
        workflows = () if (queue, "workflows") in is_known else workflows
        if not activities and not workflows:
            return
        make = partial(
            Worker,
            task_queue=queue,
            workflows=workflows,
            activities=activities,
            workflow_runner=RUNNER,
            interceptors=[] if self.on_span is None else [ActivitySpans(self.on_span)],
            max_concurrent_activities=at_once if activities else None,
            max_cached_workflows=most_cached,
            sticky_queue_schedule_to_start_timeout=_STICKY,
            max_heartbeat_throttle_interval=_HEARTBEAT,
            default_heartbeat_throttle_interval=_HEARTBEAT,
            deployment_config=_deployment(queue),
        )
        task = asyncio.create_task(self._keep_working(make(await self.client()), make))
        kinds = (("activities", activities), ("workflows", workflows))
        self._workers.update({(queue, kind): task for kind, work in kinds if work})

    async def _keep_working(self, worker: Worker | None, make: Callable[[Client], Worker]) -> None:
        """Run a worker for ever. One that ends with an error, as it does if the server is away for 15 s at its first request, is followed by another.

        The one that ended keeps its place in its client, so the next one gets a client of its own.
        """
        while True:
            try:
                worker = worker or make(await self._connect())
                await worker.run()
            except Exception as error:  # noqa: BLE001  (whatever it was, runs must be driven on)
                self.note_once(
                    f"a worker of {self.host}/{self.namespace} ended with an error, and is started again: {fault_in_words(error)}"
                )
            worker = None
            await asyncio.sleep(_RESTART_S)

    def keep(self, work: Coroutine[Any, Any, None]) -> None:
        """Do work beside the workers, in the link's loop; `close` waits for its end."""
        task = asyncio.create_task(work)
        self._kept_tasks.add(task)
        task.add_done_callback(self._kept_tasks.discard)

    def close(self) -> None:
        """Stop the workers and the thread. Effects that are under way here are cancelled; the runs are driven on elsewhere."""
        if self._is_closed:
            return
        last_work = self._begin(self._stop_workers())
        self._is_closed = True
        last_work.result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _stop_workers(self) -> None:
        for task in dict.fromkeys(self._workers.values()):
            task.cancel()
            await asyncio.wait({task})
        self._workers.clear()
        if self._kept_tasks:
            await asyncio.wait(self._kept_tasks)
        # Cancel what still waits now: cancelling it later would need a loop that is closed by then.
        waiting_tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in waiting_tasks:
            task.cancel()
        if waiting_tasks:
            await asyncio.wait(waiting_tasks, timeout=PATIENCE_S)
