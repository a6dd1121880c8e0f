"""How a run stands: over, waiting, in doubt, stopped or cut off, or in somebody's hands; and what it waits for.

Takes a run that was replayed and who writes it now, gives a `Standing`. Pure: whether a holder is alive is for a store to say.
"""

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

import attrs

from dsa.declarations import OUTSIDE
from dsa.meaning import accepted_events
from dsa.runtime.call_tree import call_named
from dsa.runtime.intents import Intent
from dsa.runtime.ledger import CallEntry, DecidedEntry, EffectEntry, EventEntry, RefusalEntry, ResultEntry, ResumedEntry
from dsa.runtime.parts import Part, part_in
from dsa.runtime.recovery import InFlight, Unfinished, asked_calls, handling_of, is_question, unfinished
from dsa.runtime.run import Run, place_of

#: The code of what was raised is the name of a class; other codes are words of ours.
_RAISED = re.compile("[A-Z][A-Za-z0-9]*[a-z][A-Za-z0-9]*")
Kind = Literal["finished", "waiting", "in doubt", "stopped", "cut off", "under way"]
#: So often a run is taken up without a result before it counts as stopped: what it does may end its process each time.
_MOST_TAKE_UPS = 3


@attrs.frozen
class Standing:
    """How a run stands, what is left to do in it, and where somebody has to say what became of an effect (`asked`).

    - `finished`: in a final state, and nothing is left to do
    - `waiting`: nothing goes on before an event comes from outside
    - `in doubt`: as waiting, for somebody to say what became of the effects `asked`
    - `stopped`: by the `failure`; whoever resumes it tries again
    - `cut off`: in the middle of its work
    - `under way`: `holder` writes it
    """

    kind: Kind
    left: Unfinished
    asked: tuple[Intent, ...] = ()
    failure: str = ""
    holder: str | None = None


def standing(run: Run, holder: str | None = None) -> Standing:
    """Say how a run stands; `holder` is who writes it and is alive."""
    left = unfinished(run)
    if holder is not None:
        return Standing("under way", left, holder=holder)
    asked = tuple(flying.intent for flying in left.in_flight if handling_of(run.machine, flying) == "ask")
    if asked:
        return Standing("in doubt", left, asked)
    failure = _failure(run, left)
    if failure:
        return Standing("stopped", left, failure=failure)
    if left.answered or any(flying.part is None for flying in left.in_flight):
        return Standing("cut off", left)
    return Standing("finished" if run.finished else "waiting", left)


def asked_keys(run: Run, asked: Sequence[Intent]) -> dict[str, str]:
    """Return the keys of what somebody has to decide about, with the names of effects and policies."""
    flying = {each.intent.key: each for each in unfinished(run).in_flight} if asked else {}
    found: dict[str, str] = {}
    for intent in asked:
        calls = asked_calls(flying[intent.key])
        is_whole = handling_of(run.machine, attrs.evolve(flying[intent.key], calls=())) == "ask"
        found |= {intent.key: intent.effect} if is_whole else {key: call.policy for key, call in calls.items()}
    return found


def outside_events(run: Run) -> tuple[str, ...]:
    """Give the events that people may send where the run is: those from outside that have rows, and the answers of effects that are left to people. Sorted."""
    named, asked = run.machine.event_named, asked_of_people(run)
    accepted = accepted_events(run.machine, run.configuration.state)
    sent = (event for event in accepted if event in named and named[event].origin in {OUTSIDE, *asked})
    return tuple(event for event in sent if not event.endswith(".failed"))


def places(run: Run) -> dict[str, str]:
    """Return the events that a run waits for, each with its place, sorted by event.

    Of an answer that is its effect's key; of what a part waits for, the part and its place, as `RUN+3.2@4`.
    """
    asked, named = asked_of_people(run), run.machine.event_named
    waited = ((event, asked.get(named[event].origin)) for event in outside_events(run))
    own = {event: key or str(place_of(run, event)) for event, key in waited}
    inside = {event: place for part in parts(run).values() for event, place in part.waits_for.items()}
    return dict(sorted({**inside, **own}.items())) if inside else own


def asked_of_people(run: Run) -> dict[str, str]:
    """Return the outstanding effects whose policies have left the answer to a person, with their keys."""
    return {effect: question.key for effect, question in questions(run).items()}


def questions(run: Run) -> dict[str, ResultEntry]:
    """Return what people are asked now, by effect, the newest last."""
    return {effect: entry for effect, entry in _last_results(run).items() if is_question(entry)}


def parts(run: Run) -> dict[str, Part]:
    """Return the runs that effects wait for, by effect."""
    found = {effect: part_in(entry) for effect, entry in _last_results(run).items()}
    return {effect: part for effect, part in found.items() if part is not None}


def next_due_ms(run: Run) -> int | None:
    """Return when the next timer of a run or of its parts is due, in milliseconds since 1970; None when none is armed."""
    return min((*run.timers.values(), *(p.due_ms for p in parts(run).values() if p.due_ms is not None)), default=None)


def _last_results(run: Run) -> dict[str, ResultEntry]:
    """Return the last results of outstanding effects that are not performed again, by effect, the newest last."""
    open_keys = {key: effect for effect, key in run.keys.items()}
    found: dict[str, ResultEntry] = {}
    for entry in reversed(run.ledger) if open_keys else ():
        if type(entry) is ResultEntry and entry.key in open_keys:
            found[open_keys.pop(entry.key)] = entry
        elif type(entry) is EffectEntry:
            open_keys.pop(entry.key, None)
        elif type(entry) is ResumedEntry:
            for key, _ in entry.effects:
                open_keys.pop(key, None)
        if not open_keys:
            break
    return dict(reversed(found.items()))


def _take_ups(run: Run) -> int:
    """Return how often a run was taken up since something last came of it."""
    count = 0
    for entry in reversed(run.ledger):
        if isinstance(entry, ResumedEntry):
            count += 1
        elif not isinstance(entry, CallEntry | DecidedEntry):
            return count
    return count


def _failure(run: Run, left: Unfinished) -> str:
    """Say what stopped a run: an effect that failed for good, or an answer that no row took; empty when the ledger has neither."""
    for flying in left.in_flight:
        if flying.has_failed and not flying.in_doubt and flying.part is None:
            results = {entry.key: entry for entry in run.ledger if isinstance(entry, ResultEntry)}
            return f"{_named(flying)} failed{_message(results[flying.intent.key])}"
    if left.in_flight and (times := _take_ups(run)) >= _MOST_TAKE_UPS:
        return f"taken up {times} times without a result"
    refused = _refused(run) if left.answered else {}
    for intent, _ in left.answered:
        if intent.key in refused:
            return f"{intent.effect} {intent.key}{_line(intent)}: no row takes its answer ({refused[intent.key]})"
    return ""


def _named(flying: InFlight) -> str:
    return f"{flying.intent.effect} {flying.intent.key}{_line(flying.intent)}"


def _line(intent: Intent) -> str:
    return "" if intent.line is None else f" (line {intent.line})"


def _message(result: ResultEntry) -> str:
    faults = [step["payload"] for step in result.steps if step["payload"].get("error") is True]
    call, first = call_named(result.key, faults[0]), faults[0]
    message = str(first.get("message") or "its policy gives no reason")
    return f"{f' in {call}' if call else ''}: {fault_text(str(first.get('code')), message, str(first.get('at') or ''))}"


def fault_text(code: str, message: str, at: str = "") -> str:
    """Say what an effect failed with: the class of what was raised, its message, and where in the user's code."""
    kind = f"{code}: " if _RAISED.fullmatch(code) and code != TimeoutError.__name__ else ""
    return f"{kind}{message}{f' (at {at})' if at else ''}"


def _refused(run: Run) -> dict[str, str]:
    """Give why answers were refused, by their keys."""
    return {
        event.key: f"{refusal.reason}: {refusal.message}"
        for event, refusal in pairwise(run.ledger)
        if isinstance(event, EventEntry) and isinstance(refusal, RefusalEntry) and event.key is not None
    }
