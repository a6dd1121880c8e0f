"""An event loop in which every wait takes a hundredth of its time: the tests are not about how long it is.

Programs that tests start say `hurry()` before they run a loop.
"""

import asyncio


class QuickLoop(asyncio.SelectorEventLoop):
    """The event loop, with shorter waits."""

    def call_later(self, delay, callback, *args, context=None):
        return super().call_later(delay / 100, callback, *args, context=context)


class _Policy(asyncio.DefaultEventLoopPolicy):
    _loop_factory = QuickLoop


def hurry():
    """Make every event loop of this process a quick one."""
    asyncio.set_event_loop_policy(_Policy())
