"""The counters of a conversation (seed 002, workstream F): what was skipped, kept once, mended, retried.

Takes a conversation, gives numbers. They follow from the ledger: nobody has to have counted at the time.
"""

from collections.abc import Iterable, Mapping

import attrs

from dsa.runtime.ledger import Entry
from machines.chat.conversation import Conversation, conversation_of


@attrs.frozen
class RetryCounts:
    """How often the model was told how to try again, and how often that has helped."""

    guided: int
    succeeded: int


@attrs.frozen
class ConversationCounters:
    """All counters, as `--json` and `/counters` show them; `retry_success_rate` is None where nothing was retried."""

    turns: int
    model_answers: int
    calls: Mapping[str, int]
    reasons: Mapping[str, int]
    rescues: Mapping[str, int]
    artifacts: int
    retries: RetryCounts
    retry_success_rate: float | None


def counted(entries: Iterable[Entry]) -> dict[str, int | float | str]:
    """Return what `dsa show --counters` says of a conversation beside what it counts of any run."""
    found = counters_of(conversation_of(entries))
    rate = found.retry_success_rate
    return {
        "turns": found.turns,
        "answers of the model": found.model_answers,
        "artifacts": found.artifacts,
        "duplicate skips": found.reasons.get("duplicate_tool_call_skipped", 0),
        "artifact dedups": found.reasons.get("duplicate_artifact_prevented", 0),
        "rescues": sum(found.rescues.values()),
        "guided retries": found.retries.guided,
        "of these succeeded": found.retries.succeeded,
        "retry success rate": "none were made" if rate is None else rate,
    }


def counters_of(conversation: Conversation) -> ConversationCounters:
    """Count what a conversation has seen."""
    guided, helped = conversation.guided, conversation.guided_well
    return ConversationCounters(
        len(conversation.turns),
        conversation.transcript.answers,
        dict(sorted(conversation.tools.items())),
        dict(sorted(conversation.reasons.items())),
        dict(sorted(conversation.transcript.rescues.items())),
        len(conversation.inventory),
        RetryCounts(guided, helped),
        helped / guided if guided else None,
    )
