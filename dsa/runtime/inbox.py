"""Inboxes: what came of a message that was posted to a run, as its sender reads it."""

import json

import attrs

from dsa.meaning import Refusal, Taken


@attrs.frozen
class Delivered:
    """What became of a message: the state after it; `reason` and `message` say why it was refused, and are empty where it was taken."""

    state: str = ""
    reason: str = ""
    message: str = ""
    accepted: tuple[str, ...] = ()


@attrs.frozen
class Posted:
    """An event was put into the inbox of a run that another process holds; `message` is its id.

    `delivered` says what became of it; None: nobody has come to it yet, and it waits there.
    """

    run: str
    message: str
    delivered: Delivered | None = None


def outcome_text(became: Taken | Refusal) -> str:
    """Write what became of a message as a line of JSON."""
    state = became.configuration.state
    if isinstance(became, Taken):
        return json.dumps({"state": state})
    refused = {"reason": became.reason, "message": became.message, "accepted": list(became.accepted)}
    return json.dumps({"state": state, **refused})


def error_text(error: Exception) -> str:
    """Write why a message could not be an event of its run, as a line of JSON."""
    return json.dumps({"reason": "invalid", "message": str(error)})


def delivered(text: str) -> Delivered:
    """Read what `outcome_text` and `error_text` have written."""
    written = json.loads(text)
    return Delivered(**{**written, "accepted": tuple(written.get("accepted", ()))})
