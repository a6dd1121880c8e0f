"""A model that fails for a moment is asked again: its server restarts, is busy, or breaks off in the middle of its answer.

Takes what asks once, gives the answer of the last try. How long this goes on is said in one place, `Patience`; who waits can be cancelled at any moment.
"""

import asyncio
import math
import os
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Self

import attrs

from dsa.edge.http.failures import reason_of
from dsa.edge.http.retries import Retries
from dsa.errors import GenerationError, ModelUnavailable
from dsa.generators.streams import StreamResult

Show = Callable[[str], object]
#: Asks once, within so many seconds, and shows text as it comes. Raises GenerationError when nothing came.
Once = Callable[[float, Show | None], Awaitable[StreamResult]]

#: For how many seconds a model that fails is asked again; 0: not at all.
VARIABLE = "DSA_RETRY_S"
_AGAIN_S, _LONGEST_S = 60.0, 3_600.0
_MOST_TRIES = 20
#: How often an answer that broke off is asked for again: each may have been charged.
_MOST_BROKEN = 2
_SHORTEST_TRY_S = 1.0
ASKED_AGAIN = "\n[the answer broke off, and is asked for again]\n"


@attrs.frozen
class Patience:
    """`again_s` bounds the waits from the first failure on, also those that a server asks for; `whole_s` all tries and waits together."""

    again_s: float = _AGAIN_S
    whole_s: float = math.inf

    @classmethod
    def of_environment(cls, whole_s: float) -> Self:
        """Give that of the environment. Raises ModelUnavailable for what is no number of seconds."""
        said = os.environ.get(VARIABLE, "")
        try:
            again_s = float(said) if said else _AGAIN_S
        except ValueError:
            again_s = math.nan
        if not 0 <= again_s <= _LONGEST_S:
            wanted = f"a number of seconds from 0 (a model that fails is not asked again) to {_LONGEST_S:g}"
            raise ModelUnavailable(f"{VARIABLE} = {said!r} is not {wanted}; it is {_AGAIN_S:g} when unset")
        return cls(again_s, whole_s)


async def asked(once: Once, patience: Patience, on_text: Show | None, on_wait: Show) -> StreamResult:
    """Give the answer of the first try that brings a whole one, else that of the last try: what came of it, or its GenerationError.

    `on_wait` is told before each pause what is wrong, and how long the pause is.
    """
    clock = asyncio.get_running_loop().time
    over_at = clock() + patience.whole_s
    retries = Retries(_MOST_TRIES if patience.again_s else 0, longest_pause_s=patience.again_s, most_s=patience.again_s)
    shown = None if on_text is None else _Shown(on_text)
    failed_at = math.inf
    broken = 0
    for failed in count():
        result: StreamResult | None = None
        try:
            result = await once(over_at - clock(), shown)
            failure = _failure_in(result)
        except GenerationError as error:
            failure = error
        if result is not None and (failure is None or broken == _MOST_BROKEN):
            return result
        assert failure is not None, "nothing came, and nothing was wrong"
        broken += result is not None
        now = clock()
        failed_at = min(failed_at, now)
        pause_s = retries.pause_s(failure, failed, now - failed_at)
        if pause_s is None or now + pause_s + _SHORTEST_TRY_S > over_at:
            if result is not None:
                return result
            raise retries.last(failure, failed + 1, now - failed_at) from failure.__cause__
        why = str(failure).rstrip()
        on_wait(f"{why if why.endswith('.') else f'{why}.'} It is asked again in {pause_s:.3g} s.")
        await asyncio.sleep(pause_s)
        if shown is not None:
            shown.again()
    raise AssertionError("it counts for ever")


def _failure_in(result: StreamResult) -> GenerationError | None:
    """Give what has broken an answer off that may be whole the next time; None where another try is of no use."""
    error = result.error
    if error is None or error.code not in {"interrupted", "provider_error"}:
        return None
    reason = "interrupted" if error.code == "interrupted" else reason_of(error.status, error.message)
    return GenerationError(str(error), reason)


class _Shown:
    """Shows text, and says where it begins anew."""

    def __init__(self, on_text: Show) -> None:
        self._on_text, self._has_begun = on_text, False

    def __call__(self, text: str) -> None:
        self._has_begun = True
        self._on_text(text)

    def again(self) -> None:
        """Say that what was shown is not the answer."""
        if self._has_begun:
            self._on_text(ASKED_AGAIN)
        self._has_begun = False
