"""What a user says, read: the text, and whether it asks for something to be done again that was done before.

"Again" alone is no such wish: "show me again" is answered from what is there. Pure.
"""

import re
from typing import Any

from machines.talking.texts import as_unicode

_AGAIN = re.compile(
    r"\bre-?(?:run|execute|compute|calculate|generate|do|plot|create|fetch)(?!\w)|\bre-build\b"
    r"|\b(?:run|execute|compute|calculate|generate|build|do|make|plot|draw|create|fetch|query)\s+(?:\w+\s+){0,5}(?:again|once more|anew|afresh)\b"
    r"|\bfrom scratch\b|\boverwrite\b",
    re.IGNORECASE,
)
_NEGATED = re.compile(r"\b(?:do not|don't|dont|never|without|no need to|not)\s+(?:\w+\s+){0,2}$", re.IGNORECASE)


def asks_again(text: str) -> bool:
    """Tell whether a message asks for work to be done again."""
    return any(not _NEGATED.search(text[: found.start()]) for found in _AGAIN.finditer(text))


def message_brought(data: object) -> dict[str, Any]:
    """Give a message as it is recorded: `text`, and `rerun`, which may be said beside it. ValueError for anything else."""
    given = {"text": data} if isinstance(data, str) else data
    text = given.get("text") if isinstance(given, dict) else None
    if not isinstance(text, str) or not text.strip():
        raise ValueError('a message is a text, or {"text": TEXT}')
    text = as_unicode(text)
    rerun = given.get("rerun") if isinstance(given, dict) else None
    return {"text": text, "rerun": rerun if isinstance(rerun, bool) else asks_again(text)}
