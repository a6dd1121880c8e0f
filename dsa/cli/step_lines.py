"""Steps, and what they carry, each in one line."""

from collections.abc import Mapping
from typing import Any

from dsa.runtime.ledger import ResultEntry
from dsa.words import shortened

SHORT_DIGEST = 12


def step_text(step: Mapping[str, Any]) -> str:
    """Write a step in one line."""
    payload: Mapping[str, Any] = step["payload"]
    if payload.get("error") is True:
        return f"error {error_text(payload)}"
    match step["type"]:
        case "text" if isinstance(payload.get("text"), str):
            return f"{step['actor']}: {shortened(payload['text'])}"
        case "action_call":
            return f"{step['actor']} asks for {payload.get('policy')} {shortened(payload.get('payload'))}"
        case "approval":
            word = "approves" if payload.get("approved") is True else "does not approve"
            return f"{step['actor']} {word} {str(payload.get('digest'))[:SHORT_DIGEST]}"
        case "event":
            return f"{step['actor']} answers {payload.get('event')}"
    return f"gave {shortened(dict(payload))}"


def text_said(entry: ResultEntry) -> str:
    """Give the text that an effect gave beside no event: what it says to people."""
    texts = [step["payload"].get("text") for step in entry.steps if step["type"] == "text"]
    return "; ".join(text for text in texts if isinstance(text, str))


def error_text(payload: Mapping[str, Any]) -> str:
    """Write what an error step says in one line."""
    return f"{shortened(payload.get('code'))}: {shortened(payload.get('message'))}"
