"""Model options: their bounds, the names that a model can have, the seeds of calls, and calls from synchronous code.

A model is `local`, a script, an address, or a name that LiteLLM may know. `require_model_name` says what is wrong with a name. It connects to
nothing: whether LiteLLM or a server has the model turns out when it is called.
"""

import asyncio
import hashlib
import math
import re
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from dsa.edge.model_server import SCHEMES, read_endpoint
from dsa.runtime.content import Context
from dsa.text import nearest


def require_bounds(*, temperature: float, max_tokens: int | None, timeout_s: float = 1.0) -> None:
    """Raise ValueError unless the temperature is 0 or more, and token limit and time limit are more than 0."""
    if not (math.isfinite(temperature) and temperature >= 0):
        raise ValueError(f"temperature = {temperature:g} is not valid: it must be 0 or more")
    if max_tokens is not None and max_tokens < 1:
        raise ValueError(f"max_tokens = {max_tokens} is too few: it must be at least 1")
    if not (math.isfinite(timeout_s) and timeout_s > 0):
        raise ValueError(f"timeout_s = {timeout_s:g} is not a valid time limit: it must be more than 0")


_T = TypeVar("_T")


def run_blocking(begin: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
    """Run a coroutine in an event loop of its own and return its result. If a loop is already running, use a thread and stop that loop in the meantime."""
    if not _in_a_loop():
        return asyncio.run(begin())
    results: list[_T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(asyncio.run(begin()))
        except BaseException as error:  # noqa: BLE001  (raised in the caller)
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
    """Return the seed of the call that sends a prompt as messages."""
    prompt = "\n\n".join(message["content"] for message in messages)
    return derive_seed(seed, context.step, len(context.feedback_history) + 1, prompt)


def derive_seed(seed: int, step: str, attempt: int, prompt: str) -> int:
    """Return the seed of one call, 31 bits: the same for the same four, unrelated for any other.

    So a run can be repeated, its attempts differ, and steps with one prompt do too.
    """
    text = f"{seed}\n{step}\n{attempt}\n{prompt}"
    return int.from_bytes(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:4], "big") >> 1


LOCAL = "local"
#: The prefix of a name that is a script.
SCRIPT_PREFIX = "scripted:"
FORMS = "local, scripted:FILE, http://HOST/v1#MODEL, or a LiteLLM name such as provider/model"
_NEAR = 0.75
#: An address without its scheme: a host that is not a model's name, or any host with a port and a path.
_HOST = re.compile(r"(localhost|\d{1,3}(\.\d{1,3}){3}|\[[\da-fA-F:]+\])([:/#]|$)|[\w.-]+:\d+/")


def require_model_name(name: str) -> None:
    """Raise ValueError, with the allowed forms, for a name that no model can have."""
    before = re.split(r"[:/]", name, maxsplit=1)[0]
    if not name.strip():
        raise ValueError(f"the model has no name: write {FORMS}")
    if name == LOCAL:
        return
    if name.startswith(SCRIPT_PREFIX):
        if not name.removeprefix(SCRIPT_PREFIX).strip():
            raise ValueError(f"'{name}' does not name a script: write {SCRIPT_PREFIX}FILE")
    elif name.startswith(SCHEMES):
        read_endpoint(name)
    elif re.match(r"[^/:]*://", name):
        raise ValueError(f"'{name}' is not the address of a model: it must begin with {' or '.join(SCHEMES)}")
    elif _HOST.match(name) or "#" in name:
        raise ValueError(
            f"'{name}' is not a model: an address begins with {SCHEMES[0]}, for example http://HOST/v1#MODEL"
        )
    elif ":" in name and _is_near(before, SCRIPT_PREFIX.rstrip(":")):
        raise ValueError(f"'{name}' is not a model; did you mean '{SCRIPT_PREFIX}{name.partition(':')[2]}'?")
    elif name == before and (_is_near(name, LOCAL) or _is_near(name, SCRIPT_PREFIX.rstrip(":"))):
        suggestion = LOCAL if _is_near(name, LOCAL) else f"{SCRIPT_PREFIX}FILE"
        raise ValueError(f"'{name}' is not a model; did you mean '{suggestion}'?")
    elif any(character.isspace() or not character.isprintable() for character in name):
        raise ValueError(f"'{name}' is not a model: write {FORMS}")


def _is_near(name: str, option: str) -> bool:
    return nearest(name, [option], _NEAR) is not None
