"""What the options of a generator may be: a table can ask for any number."""

import math


def require_bounds(*, temperature: float, max_tokens: int | None, timeout_s: float = 1.0) -> None:
    """Raise ValueError unless the temperature is from 0 on, and token limit and time limit are more than 0."""
    if not (math.isfinite(temperature) and temperature >= 0):
        raise ValueError(f"temperature = {temperature:g} is none: it is 0 or more")
    if max_tokens is not None and max_tokens < 1:
        raise ValueError(f"max_tokens = {max_tokens} is too few: at least 1")
    if not (math.isfinite(timeout_s) and timeout_s > 0):
        raise ValueError(f"timeout_s = {timeout_s:g} is no time limit: it is more than 0")
