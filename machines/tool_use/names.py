"""Names of tools as models write them: as they are sent back, and as they are told. Pure."""

import re

_LONGEST = 64
_NONE = "unnamed"
_FOREIGN = re.compile(r"[^a-zA-Z0-9_-]+")


def name_sent(name: str) -> str:
    """Give a name that every provider takes back.

    Strict ones refuse a conversation in which a call has another one (OpenAI: `^[a-zA-Z0-9_-]{1,64}$`), and so every later request.
    """
    return _FOREIGN.sub("_", name)[:_LONGEST] or _NONE


def name_told(name: str) -> str:
    """Give a name as a text has it; models have written ones of 200,000 characters."""
    return name if len(name) <= _LONGEST else f"{name[:_LONGEST]}.."
