import asyncio
import contextvars
import gc
import queue
import subprocess
import sys
import threading
import time
import weakref
from functools import partial

import pytest

from dsa.edge import event_loop
from dsa.edge.event_loop import CallerThread, in_thread, run_function


class MuteError(Exception):
    def __str__(self):
        raise OSError


class OddError(Exception):
    def __str__(self):
        return self.args[0]


def raising(error):
    def call():
        raise error

    return call


@pytest.fixture(autouse=True)
def own_threads(monkeypatch):
    """Let only threads of this test make calls: in a process that has run other tests, some may hang, or end, at any time."""
    own = type("OwnCallerThread", (CallerThread,), {"_idle": [], "_lock": threading.Lock()})
    monkeypatch.setattr(event_loop, "CallerThread", own)


def callers():
    """Return the threads that make calls for this test."""
    return [thread for thread in threading.enumerate() if isinstance(thread, event_loop.CallerThread)]


def test_result_comes_back_from_a_call_in_another_thread():
    assert asyncio.run(in_thread(threading.current_thread)) is not threading.main_thread()


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (OSError("gone"), OSError),
        (SystemExit(7), RuntimeError),
        (KeyboardInterrupt(), RuntimeError),
        (StopIteration(), RuntimeError),
    ],
)
def test_error_in_a_thread_is_passed_on_and_never_ends_the_program(error, expected):
    with pytest.raises(expected):
        asyncio.run(in_thread(raising(error)))


@pytest.mark.parametrize("error", [MuteError(), OddError(3)])
@pytest.mark.parametrize("blocks", [False, True])
def test_error_whose_str_fails_is_reported_by_its_name(error, blocks):
    with pytest.raises(RuntimeError, match=f"^the call raised {type(error).__name__}$"):
        asyncio.run(run_function(raising(error), blocks=blocks))


def test_function_that_does_not_block_is_called_in_place():
    assert asyncio.run(run_function(threading.current_thread, blocks=False)) is threading.main_thread()
    assert asyncio.run(run_function(threading.current_thread, blocks=True)) is not threading.main_thread()


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (OSError("gone"), OSError),
        (SystemExit(7), RuntimeError),
        (asyncio.CancelledError(), RuntimeError),
        (StopIteration(), RuntimeError),
        (KeyboardInterrupt(), KeyboardInterrupt),
    ],
)
def test_only_ctrl_c_raised_in_place_ends_the_program(error, expected):
    with pytest.raises(expected):
        asyncio.run(run_function(raising(error), blocks=False))


def test_call_that_never_returns_can_be_abandoned():
    released = threading.Event()

    async def play():
        task = asyncio.create_task(in_thread(released.wait))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(play())
    (stuck,) = callers()
    assert stuck.daemon, "the interpreter can end without it"
    released.set()


async def all_free():
    """Wait until the threads that have made calls are free again. TimeoutError when one never is."""
    async with asyncio.timeout(60):
        while not all(thread.is_idle for thread in callers()):  # noqa: ASYNC110  (threads set no Event)
            await asyncio.sleep(0.001)


def test_thread_is_reused_for_the_next_call():
    async def play():
        await all_free()
        first = await in_thread(threading.current_thread)
        await all_free()
        return first, await in_thread(threading.current_thread)

    first, second = asyncio.run(play())
    assert first is second


def test_concurrent_calls_have_a_thread_each():
    meeting = threading.Barrier(3)

    async def play():
        await asyncio.gather(*(in_thread(partial(meeting.wait, 10)) for _ in range(3)))

    asyncio.run(play())


def test_context_variables_do_not_leak_to_the_next_call():
    colour = contextvars.ContextVar("colour", default="none")

    def painted():
        before = colour.get()
        colour.set("red")
        return before, threading.current_thread()

    async def play():
        await all_free()
        given = await in_thread(painted)
        await all_free()
        return given, await in_thread(painted)

    (first, one), (second, other) = asyncio.run(play())
    assert one is other
    assert (first, second) == ("none", "none")


def test_result_of_a_call_is_not_retained(monkeypatch):
    monkeypatch.setattr(event_loop, "_LINGERS_S", 600)  # a thread that ends would keep nothing

    class Large:
        pass

    async def play():
        kept = weakref.ref(await in_thread(Large))
        await all_free()
        return kept

    kept, give_up = asyncio.run(play()), time.monotonic() + 10
    while kept() is not None:  # the thread is idle a moment before it waits
        assert time.monotonic() < give_up
        gc.collect()


def test_idle_thread_ends(monkeypatch):
    monkeypatch.setattr(event_loop, "_LINGERS_S", 0.05)

    async def play():
        return await in_thread(threading.current_thread)

    caller = asyncio.run(play())
    caller.join(10)
    assert not caller.is_alive()
    assert asyncio.run(play()) is not caller


def test_hanging_thread_is_not_reused():
    released, hung = threading.Event(), queue.SimpleQueue()

    def hang():
        hung.put(threading.current_thread())
        released.wait()

    async def play():
        stuck = asyncio.create_task(in_thread(hang))
        await asyncio.sleep(0)
        stuck.cancel()
        return await in_thread(threading.current_thread)

    other, caller = asyncio.run(play()), hung.get(timeout=60)
    assert other is not caller
    assert not caller.is_idle
    released.set()


def test_forked_process_has_its_own_threads():
    said = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, text=True, timeout=60, check=True)
    assert said.stdout.split() == ["parent", "child"]


FORKED = """
import asyncio, os, time
from dsa.edge.event_loop import in_thread
async def play(word):
    await in_thread(lambda: print(word, flush=True))
    await asyncio.sleep(0.05)
asyncio.run(play("parent"))
child = os.fork()
if not child:
    asyncio.run(asyncio.wait_for(play("child"), 20))
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
"""
