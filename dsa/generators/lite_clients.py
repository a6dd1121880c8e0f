"""The HTTP clients that LiteLLM keeps for each event loop, which it knew (1.106.2) by a number that a later loop may have again.

A client of a loop that has ended fails in the next one (`Event loop is closed`). Takes LiteLLM; forgets such clients, and closes
those of a loop that is about to end.
"""

import asyncio
import inspect
import weakref
from typing import Any

_LOOPS: "weakref.WeakValueDictionary[int, asyncio.AbstractEventLoop]" = weakref.WeakValueDictionary()


def forget_clients_of_ended_loops(litellm: Any) -> None:  # noqa: ANN401  # litellm has no types of its own here
    """Take out what was kept for another loop that had the number of this one, and the one client that is kept for all loops."""
    # Anthropic's streams use the one for all; it is made anew, and then kept by loop.
    vars(litellm).pop("module_level_aclient", None)
    loop = asyncio.get_running_loop()
    if _LOOPS.get(id(loop)) is not loop:
        _taken_out(litellm.in_memory_llm_clients_cache)
        _LOOPS[id(loop)] = loop


async def close_clients(litellm: Any) -> None:  # noqa: ANN401  # litellm has no types of its own here
    """Close what is kept for this loop, which is about to end."""
    for client in _taken_out(litellm.in_memory_llm_clients_cache):
        closed = client.close()
        if inspect.isawaitable(closed):
            await closed


def _taken_out(cache: Any) -> list[Any]:  # noqa: ANN401  # litellm's own types
    """Take out the clients of the running loop, whose names end as LiteLLM ends them."""
    own = cache.update_cache_key_with_event_loop("")
    names = [name for name in list(cache.cache_dict) if str(name).endswith(own)]
    for name in names:
        cache.ttl_dict.pop(name, None)
    return [client for name in names if (client := cache.cache_dict.pop(name, None)) is not None]
