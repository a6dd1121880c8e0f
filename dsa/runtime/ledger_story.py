"""Stories: the entries of a ledger, and the status of a run, each in a line for people.

The lines have no colours, and the same ledger gives the same lines; no clock is read. The commands print them, and the web page shows them.
"""

from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from dsa.expr import show_value
from dsa.runtime import ledger
from dsa.runtime.artifacts import short_id
from dsa.runtime.ledger import Handling, Intents, ResultEntry, part_in
from dsa.runtime.policy.policies import QUESTION
from dsa.runtime.run_store import RunSummary
from dsa.runtime.status import is_question
from dsa.runtime.timeline import EventRecord
from dsa.text import shorten
from dsa.trace import show_occurrence

SHORT_DIGEST = 12


def step_text(step: Mapping[str, Any]) -> str:
    """Write a step in one line."""
    payload: Mapping[str, Any] = step["payload"]
    if payload.get("error") is True:
        return f"error {error_text(payload)}"
    match step["type"]:
        case "text" if isinstance(payload.get("text"), str):
            return f"{step['actor']}: {shorten(payload['text'])}"
        case "action_call":
            return f"{step['actor']} asks for {payload.get('policy')} {shorten(payload.get('payload'))}"
        case "approval":
            word = "approves" if payload.get("approved") is True else "does not approve"
            return f"{step['actor']} {word} {str(payload.get('digest'))[:SHORT_DIGEST]}"
        case "event":
            return f"{step['actor']} answers {payload.get('event')}"
    return f"gave {shorten(dict(payload))}"


def spoken_text(entry: ResultEntry) -> str:
    """Return the texts among the steps of a result, which are for people."""
    texts = [step["payload"].get("text") for step in entry.steps if step["type"] == "text"]
    return "; ".join(text for text in texts if isinstance(text, str))


def error_text(payload: Mapping[str, Any]) -> str:
    """Return the code and the message of an error step in one line."""
    return f"{shorten(payload.get('code'))}: {shorten(payload.get('message'))}"


HANDLING_TEXTS: dict[Handling, str] = {
    "retry": "it is performed again",
    "ask": "a person must decide",
    "fail": "it counts as failed",
    "done": "it counts as done",
    "again": "it is performed again",
}


_WORTH_SAYING_S = 0.05


_DECISION_TEXTS = {"retry": "has not happened", "done": "has happened", "fail": "has failed"}


def event_text(record: EventRecord) -> str:
    """Return an event with its verdicts, and the key of the effect that it answers."""
    event = record.event
    assert event is not None, "the record has an event"
    answer = "" if event.key is None else f" (of {event.key})"
    return f"{show_occurrence(record.occurrence)}{answer}"


def outcome_text(outcome: ledger.RowEntry | ledger.RefusalEntry | None) -> str:
    """Return the row that took an event, or why it was refused."""
    match outcome:
        case ledger.RowEntry(line=at, source=source, target=target, changed=changes):
            where = "" if at is None else f"line {at}: "
            return f"{where}{source} -> {target}{''.join(f', {name} = {show_value(value)}' for name, value in changes)}"
        case ledger.RefusalEntry():
            return refusal_text(outcome)
    return ""


def refusal_text(refusal: ledger.RefusalEntry) -> str:
    """Return why an event was refused, and what was accepted instead."""
    accepted = f"; accepted there: {', '.join(refusal.accepted)}" if refusal.accepted else "; nothing is accepted there"
    return f"refused: {refusal.reason} ({refusal.message}){accepted}"


def entry_text(entry: ledger.Entry, run_id: str, intents: Intents) -> str:
    """Return an entry in one line; `intents` are those of the run up to this entry."""
    match entry:
        case ledger.ChangeEntry(file=file):
            where = "another document" if file is None else file
            return f"goes on under {where}: {entry.name}, {entry.digest[:SHORT_DIGEST]}"
        case ledger.EffectEntry(key=key, effect=effect):
            return f"asks for {effect} {key}"
        case ledger.ResultEntry():
            return _result(entry, intents.effect(entry.key))
        case ledger.ArtifactEntry():
            return _artifact(entry, run_id)
        case ledger.VerdictEntry():
            return _verdict(entry)
        case ledger.ResumedEntry():
            return resumption_text(entry, intents)
        case ledger.DecidedEntry(key=key, path=path, handling=handling):
            call = f"call {path} of " if path else ""
            return f"decided: {call}{intents.effect(key)} {key} {_DECISION_TEXTS[handling]}"
        case ledger.CallEntry(key=key, path=path, policy=policy, payload=payload):
            request = f"{policy}, a turn" if payload is None else f"{policy} {shorten(payload)}"
            return f"  {key} calls {path} {request}  {entry.digest[:SHORT_DIGEST]}"
        case ledger.CallResultEntry(key=key, path=path):
            return f"  {key} call {path}: {_call_result_text(entry)}"
    return type(entry).__name__


def resumption_text(entry: ledger.ResumedEntry, intents: Intents) -> str:
    """Return who resumed a run, with what, and what happens to the effects that were under way."""
    by = f" by {entry.by}" if entry.by else ""
    how = {"model": entry.model, "module": entry.module, "budget": ", ".join(entry.budget)}
    settings = " and ".join(f"{name} {value}" for name, value in how.items() if value)
    effects = [
        f"{intents.effect(key)} {key}, which {'was not done' if handling == 'again' else 'was under way'}: {HANDLING_TEXTS[handling]}"
        for key, handling in entry.effects
    ]
    return f"resumed{by}{f' with {settings}' if settings else ''}{': ' if effects else ''}{'; '.join(effects)}"


def _call_result_text(entry: ledger.CallResultEntry) -> str:
    """Return the steps of a call in one line, without the steps of calls below it."""
    own = [step for step in entry.steps if step["id"].rpartition("/")[0] == entry.path]
    if own:
        return "; ".join(map(step_text, own))
    return "returned the results of the calls that it made" if entry.steps else "gave nothing"


def _result(entry: ledger.ResultEntry, effect: str) -> str:
    name = f"{effect} {entry.key}"
    if is_question(entry):
        return f"{name} asks people: {shorten(question_of(entry))}"
    part = part_in(entry)
    if part is not None:
        return f"{name} waits for {part.run}"
    for step in entry.steps:
        payload = step["payload"]
        if payload.get("error") is True:
            return f"{name} failed: {error_text(payload)}"
    events = [step["payload"].get("event") for step in entry.steps if step["type"] == "event"]
    took = f", {entry.seconds:.1f} s" if entry.seconds >= _WORTH_SAYING_S else ""
    text = spoken_text(entry)
    completion = f"{name} done{took}{f': {shorten(text)}' if text else ''}"
    return f"{name} answered {events[0]}{took}{_retry_text(entry)}" if len(events) == 1 else completion


def _retry_text(entry: ledger.ResultEntry) -> str:
    """Return how many tries of a generator failed before it answered, and why."""
    reasons = [str(reason) for step in entry.steps for reason in step["payload"].get("retried") or ()]
    if not reasons:
        return ""
    return f", after {len(reasons)} failed {'try' if len(reasons) == 1 else 'tries'}: {', '.join(reasons)}"


def _artifact(entry: ledger.ArtifactEntry, run_id: str) -> str:
    by = ", ".join(filter(None, (entry.author, entry.model)))
    author = f" by {by}" if by else ""
    flag = f", redacted: {', '.join(entry.redacted)}" if entry.redacted else ""
    name = short_id(entry.artifact_id, run_id)
    description = f"artifact {name}{author}, {entry.seconds:.1f} s{flag}"
    return f"{entry.step} attempt {entry.attempt}: {description}"


def _verdict(entry: ledger.VerdictEntry) -> str:
    guards = ", ".join(f"{verdict.guard}.{verdict.label}" for verdict in entry.judgements)
    feedback = f": {shorten(entry.feedback)}" if entry.feedback else ""
    return f"{entry.step} attempt {entry.attempt}: {entry.word} ({guards}){feedback}"


def due_text(deadline_ms: int) -> str:
    """Return the time of a deadline; one beyond the calendar is written in milliseconds."""
    try:
        return f"{datetime.fromtimestamp(deadline_ms // 1000, tz=UTC):%Y-%m-%d %H:%M:%S}.{deadline_ms % 1000:03} UTC"
    except (ValueError, OverflowError, OSError):
        return f"{deadline_ms} ms after 1970"


def question_of(entry: ledger.ResultEntry) -> str:
    """Return the text of a question to people."""
    return next(str(step["payload"].get("text")) for step in entry.steps if step["type"] == QUESTION)


def remarks_of(entry: ledger.ResultEntry) -> list[str]:
    """Return the texts that an effect has left for people, other than questions."""
    texts = (step["payload"].get("text") for step in entry.steps if step["type"] == "text")
    return [text for text in texts if isinstance(text, str) and text.strip()]


#: The length of the start time in a run's id.
_STAMP_LENGTH = len("20260131T120000")


def status_text(run_summary: RunSummary) -> str:
    """Return the status of a run in a few words."""
    return status_and_text(run_summary)[1]


def status_and_text(run_summary: RunSummary) -> tuple[str, str]:
    """Return the status of a run, and the status in a few words."""
    summary, status = run_summary.summary, run_summary.status
    match status:
        case "damaged":
            return status, f"damaged: {run_summary.damage}"
        case "under way":
            queue = f", queue {run_summary.queue}" if run_summary.queue else ""
            return status, f"under way, held by {run_summary.holder}{queue}"
        case "finished":
            return status, f"finished: {summary.outcome}"
        case "in doubt":
            return status, f"in doubt: {', '.join(f'{name} {key}' for key, name in summary.in_doubt.items())}"
        case "stopped":
            return status, f"stopped: {shorten(summary.failure)}"
    if status in {"cut off", "interrupted"}:
        return status, status
    if status == "due":
        return status, f"due: {'a message is in its inbox' if run_summary.messages else ', '.join(summary.timers)}"
    return status, f"waiting for: {', '.join((*summary.waits_for, *summary.timers)) or 'nothing that can happen'}"


def started_at(run_id: str) -> str:
    """Return the start time in a run's id; "" for an id without one."""
    stamp = run_id.partition("-")[0]
    if len(stamp) == _STAMP_LENGTH:
        with suppress(ValueError):
            return f"{datetime.fromisoformat(stamp).isoformat(' ')} UTC"
    return ""
