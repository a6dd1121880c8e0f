"""References to what events have brought: the words of placeholders, of the column `uses` of Guards, and of `context.latest`.

Takes the words and the names of the events, gives a `Reference`. What a reference stands for in a run is for `dsa.runtime.event_data`.
"""

import re
from collections.abc import Collection

import attrs

from dsa.words import closest, nearest

_NAME = r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*"
_WORDS = re.compile(rf"(?P<all>all[ \t]+)?(?P<name>{_NAME})(?P<optional>\?)?(?:[ \t]+since[ \t]+(?P<since>{_NAME}))?")
#: A brace written twice, or a placeholder with its words; what else stands in braces is text.
PLACEHOLDER = re.compile(rf"\{{\{{|\}}\}}|\{{((?:all[ \t]+)?{_NAME}\??(?:[ \t]+since[ \t]+{_NAME})?)\}}")


class UnreadableReferenceError(ValueError):
    """Raised for words that are no reference: `message` says why, `hint` what to write; `about` is the event that is missed, if that is why."""

    def __init__(self, message: str, hint: str = "", about: str = "") -> None:
        super().__init__(f"{message}; {hint}" if hint else message)
        self.message, self.hint, self.about = message, hint, about


@attrs.frozen
class Reference:
    """What the newest of an event has brought (rules D3 to D5 of `specs/semantics.md`).

    `path` goes into JSON objects. `since` names an event: what came before its newest does not count. With `is_all` it is a list of all of
    them. With `is_optional` nothing, or null, may be there.
    """

    event: str
    path: tuple[str, ...] = ()
    since: str | None = None
    is_optional: bool = False
    is_all: bool = False

    def __str__(self) -> str:
        """The words that mean it."""
        name = ".".join((self.event, *self.path))
        since = f" since {self.since}" if self.since else ""
        return f"{'all ' if self.is_all else ''}{name}{'?' if self.is_optional else ''}{since}"


def read_reference(text: str, events: Collection[str]) -> Reference:
    """Read a reference. Of a dotted name as much as names an event does so, the rest is a path. Raises UnreadableReferenceError."""
    match = _WORDS.fullmatch(text)
    if match is None:
        raise UnreadableReferenceError(f"'{text}' names no data of an event", _forms(events))
    event, path = _split(match["name"], events)
    since = match["since"]
    if since is not None and since not in events:
        raise _unknown(since, events)
    return Reference(event, path, since, match["optional"] is not None, match["all"] is not None)


def _forms(events: Collection[str]) -> str:
    """Give a hint with the reader's own events, where there are any."""
    named = sorted(event for event in events if not event.endswith(".failed")) or ["found", "asked"]
    one, other = named[0], named[-1]
    return f"write {one}, {one}.part, {one}? or {one} since {other}, after 'all' for a list of them"


def _split(name: str, events: Collection[str]) -> tuple[str, tuple[str, ...]]:
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        event = ".".join(parts[:length])
        if event in events:
            return event, tuple(parts[length:])
    raise _unknown(name, events)


def _unknown(name: str, events: Collection[str]) -> UnreadableReferenceError:
    head = name.partition(".")[0] if nearest(name, events) is None else name
    hint = closest(head, events, "no event is declared")
    return UnreadableReferenceError(f"'{name}' is no event", hint, name)
