"""One result at a time: the order in which a policy gets what its calls gave, the same in every replay.

Takes positions of calls, lets their callers go on one by one. It does no input or output; of asyncio it takes futures and
a way to let the event loop go round.

A policy may make something of which of its concurrent calls answers first. So results are handed out in the order in which
they were recorded, each only when the policy has had time to react to the one before: to ask for more, or to stop a
call. That holds while they come in, and again when they are replayed.
"""

import asyncio
from asyncio import CancelledError
from collections import deque
from collections.abc import Iterable, Iterator

__all__ = ["CancelledError", "Turns"]

#: Rounds of the event loop that a policy has to react to a result before it gets the next.
_GAP = 10
#: Rounds without anything happening among a policy's calls after which nothing is waited for any more.
_QUIET = 25


class Turns:
    """The turns of one policy's calls. `recorded` are the positions of its recorded results, in their order."""

    def __init__(self, recorded: Iterable[int], *, replaying: bool) -> None:
        self._order = deque(recorded)
        self._replaying = replaying
        self._handed_out = 0
        self._happened = 0
        self._rounds = 0  # since the last result was handed out, as far as somebody waited
        self._waiting: dict[int, asyncio.Future[None]] = {}
        self._starting: list[asyncio.Future[None]] = []
        self._pump: asyncio.Task[None] | None = None

    def ask(self) -> int:
        """Take note that a call is made; give the number of results that its policy knew by then."""
        self._happened += 1
        return self._handed_out

    async def start(self) -> None:
        """Wait until a call that is not recorded may begin: in a replay, when nothing recorded is asked for any more.

        A policy that stops a call when another one answers stops it before that.
        """
        if self._replaying:
            future = self._future()
            self._starting.append(future)
            try:
                await future
            finally:
                self._starting.remove(future)

    def came(self, position: int) -> None:
        """Queue a result that has just been recorded."""
        self._order.append(position)

    async def take(self, position: int, known: int) -> None:
        """Wait until it is the turn of a result; `known` is what `ask` gave. Who asks for one after the other never waits."""
        if self._order[0] == position and known == self._handed_out and not self._waiting:
            self._hand_out(position)
            return
        self._waiting[position] = self._future()
        try:
            await self._waiting[position]
        finally:
            del self._waiting[position]
            if position in self._order:  # nobody waits for it any more
                self._order.remove(position)

    def _future(self) -> "asyncio.Future[None]":
        self._happened += 1
        if self._pump is None or self._pump.done():
            self._pump = asyncio.ensure_future(self._go_round())
        return asyncio.get_running_loop().create_future()

    async def _go_round(self) -> None:
        """Hand out results while anybody waits for one."""
        quiet = happened = 0
        while self._waiting or self._starting:
            await asyncio.sleep(0)
            self._rounds += 1
            quiet = quiet + 1 if self._happened == happened else 0
            happened = self._happened
            waited_for = [p for p in self._order if p in self._waiting] if quiet >= _QUIET else list(self._head())
            if waited_for and self._rounds >= _GAP:
                self._hand_out(waited_for[0])
            elif quiet >= _QUIET:
                self._replaying = False
                for future in self._starting:
                    _release(future)

    def _head(self) -> Iterator[int]:
        """Give the position whose turn it is, if somebody waits for it."""
        if self._order and self._order[0] in self._waiting:
            yield self._order[0]

    def _hand_out(self, position: int) -> None:
        self._order.remove(position)
        self._handed_out += 1
        self._happened += 1
        self._rounds = 0
        if position in self._waiting:
            _release(self._waiting[position])


def _release(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
