"""Ctrl-C reaches a run, also in the instant before it begins to wait."""

import asyncio
import os
import selectors
import signal
import threading

import pytest

from dsa.edge.event_loop import run_to_end


@pytest.fixture(autouse=True)
def default_handlers():
    """Begin with the handlers of Python: `nohup` and shells that start tests in the background have SIGHUP or SIGINT ignored."""
    defaults = {
        signal.SIGINT: signal.default_int_handler,
        signal.SIGTERM: signal.SIG_DFL,
        signal.SIGHUP: signal.SIG_DFL,
    }
    before = {number: signal.signal(number, handler) for number, handler in defaults.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_result_and_error_of_the_work_are_passed_on():
    async def fails():
        raise KeyError("x")

    assert run_to_end(asyncio.sleep(0, "result")) == "result"
    with pytest.raises(KeyError):
        run_to_end(fails())
    assert signal.set_wakeup_fd(-1) == -1, "nothing is left behind"


@pytest.mark.parametrize(("run", "woken"), [(run_to_end, True), (asyncio.run, False)], ids=["ours", "asyncio's"])
def test_every_signal_wakes_the_loop(monkeypatch, run, woken):
    """A handler that does not touch the loop does not end its wait by itself: it is like one that ran an instant before the wait."""
    heard, heard_after_wait, select = [], [], selectors.DefaultSelector.select

    def noted(self, timeout=None):
        found = select(self, timeout)
        heard_after_wait.append(len(heard))
        return found

    async def waits():
        loop, here = asyncio.get_running_loop(), asyncio.current_task()
        heard_after_wait.clear()
        threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR1)).start()
        threading.Timer(0.3, lambda: (heard.append("the end"), loop.call_soon_threadsafe(here.cancel))).start()
        await loop.create_future()

    before = signal.signal(signal.SIGUSR1, lambda *_: heard.append("a signal"))
    monkeypatch.setattr(selectors.DefaultSelector, "select", noted)
    try:
        with pytest.raises(asyncio.CancelledError):
            run(waits())
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert heard == ["a signal", "the end"]
    assert heard_after_wait[0] == (1 if woken else 2)


def test_work_in_another_thread_runs_without_signal_handlers():
    results = []
    thread = threading.Thread(target=lambda: results.append(run_to_end(asyncio.sleep(0, 1))))
    thread.start()
    thread.join()
    assert results == [1]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signal_interrupts_after_running_work_was_cancelled(number):
    ended = []

    async def waits():
        threading.Timer(0.05, os.kill, (os.getpid(), number)).start()
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            ended.append(True)

    with pytest.raises(KeyboardInterrupt):
        run_to_end(waits())
    assert ended == [True]
    assert signal.getsignal(signal.SIGTERM) is signal.getsignal(signal.SIGHUP) is signal.SIG_DFL


def test_sigterm_is_handled_where_the_shell_ignores_ctrl_c():
    async def waits():
        threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGTERM)).start()
        await asyncio.get_running_loop().create_future()

    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with pytest.raises(KeyboardInterrupt):
            run_to_end(waits())
    finally:
        signal.signal(signal.SIGINT, before)


def test_ignored_signals_and_existing_handlers_are_preserved():
    """`nohup` ignores SIGHUP."""

    async def looks():
        return signal.getsignal(signal.SIGHUP), signal.getsignal(signal.SIGTERM)

    heard = lambda *_: None  # noqa: E731
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN), signal.signal(signal.SIGTERM, heard)
    try:
        assert run_to_end(looks()) == (signal.SIG_IGN, heard)
    finally:
        signal.signal(signal.SIGHUP, before[0])
        signal.signal(signal.SIGTERM, before[1])
