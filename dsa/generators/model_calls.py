"""Calls of models: the bounds of their options, their seeds, and waiting for them where nobody can await."""

import asyncio
import hashlib
import math
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from dsa.runtime.content import Context


def require_bounds(*, temperature: float, max_tokens: int | None, timeout_s: float = 1.0) -> None:
    """Raise ValueError unless the temperature is from 0 on, and token limit and time limit are more than 0."""
    if not (math.isfinite(temperature) and temperature >= 0):
        raise ValueError(f"temperature = {temperature:g} is none: it is 0 or more")
    if max_tokens is not None and max_tokens < 1:
        raise ValueError(f"max_tokens = {max_tokens} is too few: at least 1")
    if not (math.isfinite(timeout_s) and timeout_s > 0):
        raise ValueError(f"timeout_s = {timeout_s:g} is no time limit: it is more than 0")


_T = TypeVar("_T")


def waited_for(begin: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
    """Run a coroutine in an event loop of its own and give its result; in a thread of its own where a loop runs already, which stands still meanwhile."""
    if not _in_a_loop():
        return asyncio.run(begin())
    results: list[_T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(asyncio.run(begin()))
        except BaseException as error:  # noqa: BLE001  (handed to the caller, whatever it is)
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]


def _in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def seed_for(seed: int, context: Context, messages: Sequence[Mapping[str, str]]) -> int:
    """Give the seed of the call that sends a prompt as messages."""
    prompt = "\n\n".join(message["content"] for message in messages)
    return derive_seed(seed, context.step, len(context.feedback_history) + 1, prompt)


def derive_seed(seed: int, step: str, attempt: int, prompt: str) -> int:
    """Give the seed of one call, 31 bits: the same for the same four, unrelated for any other.

    So a run can be repeated, its attempts differ, and steps with one prompt do too.
    """
    text = f"{seed}\n{step}\n{attempt}\n{prompt}"
    return int.from_bytes(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:4], "big") >> 1
