"""The counters of a conversation (seed 002, workstream F): what was skipped, kept once, mended, retried.

Takes a conversation, gives numbers. They follow from the ledger: nobody has to have counted at the time.
"""

from collections.abc import Iterable
from typing import Any

from dsa.runtime.ledger import Entry
from machines.chat.conversation import Conversation, conversation_of


def counted(entries: Iterable[Entry]) -> dict[str, Any]:
    """Give what `dsa show --counters` says of a conversation beside what it counts of any run."""
    found = counters_of(conversation_of(entries))
    retries = found["retries"]
    rate = found["retry_success_rate"]
    return {
        "turns": found["turns"],
        "answers of the model": found["model_answers"],
        "artifacts": found["artifacts"],
        "duplicate skips": found["reasons"].get("duplicate_tool_call_skipped", 0),
        "artifact dedups": found["reasons"].get("duplicate_artifact_prevented", 0),
        "rescues": sum(found["rescues"].values()),
        "guided retries": retries["guided"],
        "of these succeeded": retries["succeeded"],
        "retry success rate": "none were made" if rate is None else rate,
    }


def counters_of(conversation: Conversation) -> dict[str, Any]:
    """Give all counters; `retry_success_rate` is None where nothing was retried."""
    guided = conversation.guided
    return {
        "turns": len(conversation.turns),
        "model_answers": conversation.asked_of_model,
        "calls": dict(sorted(conversation.tools.items())),
        "reasons": dict(sorted(conversation.reasons.items())),
        "rescues": dict(sorted(conversation.rescues.items())),
        "artifacts": len(conversation.inventory),
        "retries": {"guided": guided, "succeeded": conversation.guided_well},
        "retry_success_rate": conversation.guided_well / guided if guided else None,
    }
