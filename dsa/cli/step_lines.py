"""Steps, and what they carry, each in one line."""

import json
from collections.abc import Mapping
from typing import Any

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


def error_text(payload: Mapping[str, Any]) -> str:
    """Write what an error step says in one line."""
    return f"{shortened(payload.get('code'))}: {shortened(payload.get('message'))}"
