"""The event loop: its clock, its end by signals, and blocking calls beside it.

`Clock` is handed to the driver, so that tests can control time. `run_to_end` runs a coroutine until Ctrl-C, SIGTERM or SIGHUP; all three act
like Ctrl-C. An asyncio loop that checks its signals just before one arrives notices it only at the next event; here each signal wakes the loop.

`Throttle` limits how much work goes on at the same time. `UnderWay` holds the tasks of a run. `StartedCoroutine` runs work that does not wait without a
turn of the loop; Python has this as `asyncio.eager_task_factory` from 3.12 on.

`run_function` and `in_thread` make blocking calls, such as those of generators and guards, in daemon threads. A call that never returns can be
abandoned: the loop goes on, and the interpreter can end. (It would wait for the loop's own thread pool.) A thread waits a moment for another
call: reusing it costs a third of starting a new one.
"""

import asyncio
import os
import signal
import socket
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import Context
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, ClassVar, Protocol, TypeVar

from dsa.semantics import Occurrence


class Clock(Protocol):
    """A clock that only goes forward, and beside it the time of day, which may jump."""

    def now_s(self) -> float:
        """Return the seconds since some fixed moment."""

    def wall_ms(self) -> int:
        """Return the milliseconds since 1970."""

    async def sleep(self, seconds: float) -> None:
        """Wait."""


class MonotonicClock:
    """The machine's own clock."""

    def now_s(self) -> float:
        """Return the seconds since the machine started."""
        return time.monotonic()

    def wall_ms(self) -> int:
        """Return the milliseconds since 1970."""
        return time.time_ns() // 1_000_000

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)


T = TypeVar("T")
#: The signals that ask a process to end. Windows has no SIGHUP.
_ENDS = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]


def run_to_end(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine as `asyncio.run` does. After Ctrl-C, SIGTERM or SIGHUP, cancel it and raise KeyboardInterrupt."""
    return asyncio.run(interruptible(work))


async def interruptible(work: Coroutine[Any, Any, T]) -> T:
    """Do the work in a running loop, which every signal then wakes."""
    if threading.current_thread() is not threading.main_thread():
        return await work  # signals do not arrive here
    with _woken_by_signals(asyncio.get_running_loop()), _cancelled_by_signals(asyncio.current_task()) as signals:
        try:
            return await work
        except asyncio.CancelledError:
            if signals:
                raise KeyboardInterrupt from None
            raise


@contextmanager
def _woken_by_signals(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    reader, writer = socket.socketpair()
    with reader, writer:
        reader.setblocking(False)  # noqa: FBT003  (its signature)
        writer.setblocking(False)  # noqa: FBT003
        try:
            loop.add_reader(reader, _drain, reader)
        except NotImplementedError:  # other kinds of loop have their own way to notice signals
            yield
            return
        before = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(before)
            loop.remove_reader(reader)


@contextmanager
def _cancelled_by_signals(task: "asyncio.Task[Any] | None") -> Iterator[list[int]]:
    """Cancel a task on the first signal that would end the process; yield the list of signals received. Handlers that are already set stay.

    How Ctrl-C is handled says nothing here: shells make programs that they start with `&` ignore it.
    """
    received_numbers: list[int] = []
    numbers = [number for number in _ENDS if signal.getsignal(number) is signal.SIG_DFL]

    def ask(number: int, _frame: object) -> None:
        received_numbers.append(number)
        signal.signal(number, signal.SIG_DFL)  # a second one ends it at once
        assert task is not None, "a coroutine is awaited in a task"
        task.cancel()

    for number in numbers:
        signal.signal(number, ask)
    try:
        yield received_numbers
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)


def _drain(reader: socket.socket) -> None:
    """Discard the signals' numbers: their handlers run anyway, now that the loop is awake."""
    with suppress(BlockingIOError):
        reader.recv(4_096)


class Throttle:
    """Places for at most `count` pieces of work at the same time; the others wait in the order of their numbers."""

    def __init__(self, count: int) -> None:
        self._free = count
        self._turns: dict[tuple[int, ...], asyncio.Future[None]] = {}

    @asynccontextmanager
    async def place(self, number: tuple[int, ...]) -> AsyncIterator[None]:
        """Wait for a place, and hold it. Return at once if one is free."""
        if self._free:
            self._free -= 1
        else:
            await self._wait(number)
        try:
            yield
        finally:
            self._release()

    async def _wait(self, number: tuple[int, ...]) -> None:
        turn = self._turns[number] = asyncio.get_running_loop().create_future()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                del self._turns[number]
            else:  # it was given the place meanwhile
                self._release()
            raise

    def _release(self) -> None:
        open_numbers = [number for number, turn in self._turns.items() if not turn.done()]
        if open_numbers:
            self._turns.pop(min(open_numbers)).set_result(None)
        else:
            self._free += 1


_LINGERS_S = 1.0


class CallerThread(threading.Thread):
    """A thread that makes blocking calls for event loops, one after the other. It never keeps the interpreter from ending."""

    _idle: ClassVar[list["CallerThread"]] = []
    _lock: ClassVar[threading.Lock] = threading.Lock()
    #: How many calls were begun, in all loops.
    call_count: ClassVar[int] = 0

    def __init__(self) -> None:
        super().__init__(name="dsa-call", daemon=True)
        self._calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
        #: The loops of the call that it makes and of the result that it delivers: by then it may have the next call.
        self.loops: deque[asyncio.AbstractEventLoop] = deque()

    @classmethod
    def free(cls) -> "CallerThread":
        """Return an idle thread: the one that worked last, or a new one."""
        with cls._lock:
            if cls._idle:
                return cls._idle.pop()
        caller = cls()
        caller.start()
        return caller

    @classmethod
    def forget(cls) -> None:
        """Forget all threads: a fork has none of its parent's threads."""
        cls._idle, cls._lock = [], threading.Lock()

    @property
    def is_idle(self) -> bool:
        """Whether it is idle and may be given a call."""
        return self in self._idle

    def make(self, call: Callable[[], Callable[[], None]], loop: asyncio.AbstractEventLoop) -> None:
        """Make a call for a loop, then call its result; neither may raise. Use it only on a thread from `free`."""
        CallerThread.call_count += 1
        self.loops.append(loop)
        self._calls.put(partial(self._run_call, call))

    def _run_call(self, call: Callable[[], Callable[[], None]]) -> None:
        tell = call()
        with self._lock:
            self._idle.append(self)
        tell()  # after the thread is idle, so that the next call is made here too
        self.loops.popleft()

    def run(self) -> None:
        """Make calls, until none has come for a while."""
        while True:
            try:
                # While this waits, no name holds the call or its result.
                Context().run(self._calls.get(timeout=_LINGERS_S))
            except Empty:
                with self._lock:
                    if self in self._idle:  # otherwise somebody has just taken it
                        self._idle.remove(self)
                        return


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=CallerThread.forget)


class WithoutThreads:
    """Marks an event loop that makes blocking calls in place: a simulated one, where threads would be a source of chance."""


async def run_function(function: Callable[[], T], *, blocks: bool) -> T:
    """Call a function, in a thread if it blocks. Return its result, or raise its error as `in_thread` does."""
    if blocks:
        return await in_thread(function)
    try:
        return function()
    except BaseException as error:
        if _is_foreign(error) and not isinstance(error, KeyboardInterrupt):  # here that is a real Ctrl-C
            raise _as_runtime_error(error) from error
        raise


async def in_thread(function: Callable[[], T]) -> T:
    """Call a function in a thread of its own. Return its result, or raise its error.

    When the caller is cancelled, the thread goes on and its result is dropped.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def call() -> Callable[[], None]:
        try:
            settle = partial(_set_result, future, function())
        except BaseException as error:  # noqa: BLE001  (handed to the caller, whatever it is)
            settle = partial(_set_error, future, error)
        return partial(tell, settle)

    def tell(settle: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody is waiting any more
            loop.call_soon_threadsafe(settle)

    if isinstance(loop, WithoutThreads):
        call()()
    else:
        CallerThread.free().make(call, loop)
    return await future


async def await_foreign(work: Awaitable[T]) -> T:
    """Await other people's code in a task of its own. Return its result, or raise its error as `in_thread` does.

    `asyncio.timeout` and HTTP clients cancel the task in which they began, which could be the driver's.
    """
    return await asyncio.create_task(_foreign(work))


async def _foreign(work: Awaitable[T]) -> T:
    try:
        return await work
    except (KeyboardInterrupt, GeneratorExit, asyncio.CancelledError):
        raise
    except BaseException as error:
        if _is_foreign(error):
            raise _as_runtime_error(error) from error
        raise


def _set_result(future: "asyncio.Future[T]", result: T) -> None:
    if not future.done():
        future.set_result(result)


def _set_error(future: "asyncio.Future[T]", error: BaseException) -> None:
    """Set a future's error."""
    if not future.done():
        future.set_exception(_as_runtime_error(error) if _is_foreign(error) else error)


def _is_foreign(error: BaseException) -> bool:
    """Return whether an error would end the loop or the program, or has no message. Such an error is replaced by a RuntimeError."""
    return isinstance(error, StopIteration) or not isinstance(error, Exception) or _message_of(error) is None


def _as_runtime_error(error: BaseException) -> RuntimeError:
    message = _message_of(error)
    return RuntimeError(f"the call raised {type(error).__name__}{'' if message is None else f': {message}'}")


def _message_of(error: BaseException) -> str | None:
    """Return the message of an error; None when `str` of it fails."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001  (whatever it is, there are no words)
        return None


T_co = TypeVar("T_co", covariant=True)


class StartedCoroutine(Coroutine[Any, Any, T_co]):
    """A coroutine that has begun and waits for `future`, which its `send` returned; a task can run the rest of it.

    A generator cannot do this: if a task throws into it before its first step it never runs, and the coroutine is never closed.
    """

    def __init__(self, coroutine: Coroutine[Any, Any, T_co], future: Any) -> None:  # noqa: ANN401  (what asyncio waits for)
        self._coroutine, self._future = coroutine, future
        self._has_yielded = False

    def send(self, value: Any) -> Any:  # noqa: ANN401
        """Return first the future that it waits for; then go on."""
        if self._has_yielded:
            return self._coroutine.send(value)
        self._has_yielded = True
        return self._future

    def throw(self, *error: Any) -> Any:  # noqa: ANN401
        """Throw into the coroutine. The future that it waits for is cancelled if its task does not know of it yet."""
        if not self._has_yielded:
            self._has_yielded = True
            if isinstance(self._future, asyncio.Future):
                self._future.cancel()
        return self._coroutine.throw(*error)

    def close(self) -> None:
        """Close the coroutine."""
        self._coroutine.close()

    def __await__(self) -> Generator[Any, Any, T_co]:
        raise TypeError("only a task can go on with it")


Task = asyncio.Task[None]
#: Makes a coroutine only when its task begins: one that never begins would be left over.
Work = Callable[[], Awaitable[None]]


class UnderWay:
    """Tasks by the keys of their effects, timers by source and event. `on_ring` is called when a timer rings, `on_break` when a task raises.

    An alarm belongs to the key of an effect that is not being performed now: it rests or sleeps.
    """

    def __init__(
        self, clock: Clock, on_ring: Callable[[Occurrence], None], on_break: Callable[[BaseException], None]
    ) -> None:
        self._clock, self._on_ring, self._on_break = clock, on_ring, on_break
        self._effects: dict[str, Task] = {}
        self._timers: dict[tuple[str, str], Task] = {}
        self._alarms: dict[str, Task] = {}
        self._cancelled_tasks: set[Task] = set()

    def __bool__(self) -> bool:
        return bool(self._effects or self._timers or self._alarms)

    @property
    def has_effects(self) -> bool:
        """Return whether an effect is being performed."""
        return bool(self._effects)

    def start(self, key: str, work: Work) -> None:
        """Perform an effect in a task of its own."""
        self._effects[key] = asyncio.create_task(self._run_guarded(work))

    def start_here(self, key: str, work: Work) -> None:
        """Perform an effect until it has to wait; the rest becomes a task."""
        coroutine = self._run_guarded(work)
        try:
            future = coroutine.send(None)
        except StopIteration:
            return
        self._effects[key] = asyncio.create_task(StartedCoroutine(coroutine, future))

    def complete(self, key: str) -> None:
        """Record that an effect is performed."""
        self._effects.pop(key, None)

    def stop(self, key: str) -> None:
        """Stop performing an effect, if it is under way."""
        self._stop(self._effects.pop(key, None))
        self._stop(self._alarms.pop(key, None))

    def wait(self, key: str, seconds: float, wake: Callable[[str], None]) -> None:
        """Call `wake` with the key of a resting or sleeping effect after some seconds, unless the effect is stopped before."""
        self._alarms[key] = asyncio.create_task(self._run_guarded(partial(self._wake, key, seconds, wake)))

    def arm(self, source: str, event: str, seconds: float) -> None:
        """Start a timer, from zero if it runs already."""
        self.drop(source, event)
        self._timers[source, event] = asyncio.create_task(
            self._run_guarded(partial(self._ring, source, event, seconds))
        )

    def drop(self, source: str, event: str) -> bool:
        """Forget a timer; return whether it was running."""
        task = self._timers.pop((source, event), None)
        self._stop(task)
        return task is not None

    def abandon(self) -> None:
        """Forget everything: its event loop is gone, and nothing there can be waited for."""
        for tasks in (self._effects, self._timers, self._alarms, self._cancelled_tasks):
            tasks.clear()

    async def stop_all(self) -> None:
        """Stop everything, and wait until it has."""
        for task in (*self._effects.values(), *self._timers.values(), *self._alarms.values()):
            self._stop(task)
        self._effects.clear()
        self._timers.clear()
        self._alarms.clear()
        if self._cancelled_tasks:
            await asyncio.gather(*self._cancelled_tasks, return_exceptions=True)

    async def _ring(self, source: str, event: str, seconds: float) -> None:
        await self._clock.sleep(seconds)
        del self._timers[source, event]
        self._on_ring(Occurrence(event, source=source))

    async def _wake(self, key: str, seconds: float, wake: Callable[[str], None]) -> None:
        await self._clock.sleep(seconds)
        del self._alarms[key]
        wake(key)

    async def _run_guarded(self, work: Work) -> None:
        try:
            await work()
        except (asyncio.CancelledError, GeneratorExit):
            raise
        except BaseException as error:
            self._on_break(error)
            if isinstance(error, KeyboardInterrupt | SystemExit):
                raise

    def _stop(self, task: Task | None) -> None:
        if task is not None:
            task.cancel()
            self._cancelled_tasks.add(task)
            task.add_done_callback(self._cancelled_tasks.discard)
