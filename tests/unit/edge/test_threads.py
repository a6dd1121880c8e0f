import asyncio
import threading

import pytest

from dsa.edge.threads import called, in_thread


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


def test_a_result_comes_back_and_the_call_was_made_elsewhere():
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
def test_what_is_raised_comes_back_but_nothing_ends_the_program(error, expected):
    with pytest.raises(expected):
        asyncio.run(in_thread(raising(error)))


@pytest.mark.parametrize("error", [MuteError(), OddError(3)])
@pytest.mark.parametrize("blocks", [False, True])
def test_an_error_that_cannot_say_what_it_is_is_told_by_its_name(error, blocks):
    with pytest.raises(RuntimeError, match=f"^the call raised {type(error).__name__}$"):
        asyncio.run(called(raising(error), blocks=blocks))


def test_what_does_not_block_is_called_in_place():
    assert asyncio.run(called(threading.current_thread, blocks=False)) is threading.main_thread()
    assert asyncio.run(called(threading.current_thread, blocks=True)) is not threading.main_thread()


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
def test_what_is_raised_in_place_ends_the_program_only_when_a_person_wants_it(error, expected):
    with pytest.raises(expected):
        asyncio.run(called(raising(error), blocks=False))


def test_a_call_that_never_returns_can_be_given_up():
    released = threading.Event()

    async def play():
        task = asyncio.create_task(in_thread(released.wait))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(play())
    stuck = [thread for thread in threading.enumerate() if thread.name == "dsa-call"]
    assert all(thread.daemon for thread in stuck), "the interpreter can end without them"
    released.set()
    for thread in stuck:
        thread.join(10)
