"""Asking a guard from code that is not asynchronous, whoever has written the guard."""

import asyncio
from collections.abc import Awaitable, Mapping
from inspect import isawaitable
from typing import Any

from dsa.runtime.content import Artifact, GuardInterface, GuardResult, required_verdict


def verdict_of(name: str, guard: GuardInterface, artifact: Artifact, given: Mapping[str, Any]) -> GuardResult:
    """Ask a guard; for an async one an event loop is run, so there must be none in this thread.

    Raises what it raises, and TypeError when it gives no GuardResult.
    """
    said: object = guard.validate(artifact, **given)
    return required_verdict(name, asyncio.run(_awaited(said)) if isawaitable(said) else said)


async def _awaited(said: Awaitable[object]) -> object:
    return await said
