"""Steps, and what they carry, each in one line."""

import json
from collections.abc import Mapping
from typing import Any

from dsa.runtime.ledger import ResultEntry

SHORT_DIGEST = 12
_LONGEST = 80


def shortened(value: Any) -> str:  # noqa: ANN401  (JSON)
    """Write what an event or a result carries in one line."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = " ".join(text[: 4 * _LONGEST].split())
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


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
