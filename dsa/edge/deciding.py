"""Decisions about effects in doubt, which people make.

Takes a machine, what is left to do in its run, and what is said; gives the run in which it is recorded, or raises. It performs nothing.
"""

from collections.abc import Mapping

from dsa.edge.effects import result_of
from dsa.errors import DsaError, OccurrenceError
from dsa.machine import Machine
from dsa.meaning import Occurrence, require_known
from dsa.runtime.call_tree import call_key
from dsa.runtime.ledger import CallEntry, CallResultEntry, DecidedEntry, Handling
from dsa.runtime.policies import Step, event_step
from dsa.runtime.recorded import numbered, outcome_step
from dsa.runtime.recovery import InFlight, Unfinished, unfinished
from dsa.runtime.run import Run

_DONE: Handling = "done"


class DoubtError(DsaError):
    """Raised when something is said about an effect that is not in doubt, or something that cannot be said of it."""


def require_decidable(
    machine: Machine, left: Unfinished, decided: Mapping[str, Handling], answers: Mapping[str, Occurrence | Step]
) -> None:
    """Raise DoubtError or OccurrenceError unless all this can be said of effects in doubt, and of calls that their policies had under way."""
    effects = {flying.intent.key: flying for flying in left.in_flight if flying.in_doubt}
    calls = doubted_in(left)
    for key in (*decided, *answers):
        if key not in effects and key not in calls:
            raise DoubtError(f"{key} is not in doubt; in doubt: {', '.join([*effects, *calls]) or 'nothing'}")
    both = sorted(decided.keys() & answers.keys())
    if both:
        raise DoubtError(f"{both[0]} is decided twice")
    for key, handling in decided.items():
        effect = effects[key].intent.effect if key in effects else ""
        if handling == "done" and effect in machine.answers:
            said = ", ".join(machine.answers[effect])
            raise DoubtError(f"{effect} has answers, so it is not enough that it is done: say which it gave ({said})")
    for key, answer in answers.items():
        if isinstance(answer, Occurrence):
            _require_answer(machine, effects.get(key), answer)
        elif key not in calls:
            raise DoubtError(f"{key} is an effect: it is answered with an event, not with a step")


def _require_answer(machine: Machine, flying: InFlight | None, occurrence: Occurrence) -> None:
    if flying is None:
        raise OccurrenceError(f"'{occurrence.event}' is an event; a call gives a step: `text` or `action_result`")
    effect = flying.intent.effect
    known = machine.answers.get(effect, ())
    if occurrence.event not in known:
        said = f"its answers: {', '.join(known)}" if known else "it has no answers"
        raise OccurrenceError(f"'{occurrence.event}' is no answer of {effect}; {said}")
    require_known(machine, occurrence)


def doubted_in(left: Unfinished) -> Mapping[str, CallEntry]:
    """Return the calls under way in the effects that a run has left, by their keys."""
    return {call_key(call.key, call.path): call for flying in left.in_flight for call in flying.calls}


def settled(run: Run, decided: Mapping[str, Handling], answers: Mapping[str, Occurrence | Step], at_ms: int) -> Run:
    """Record what somebody says became of effects in doubt and of calls in them, by their keys, with the results that this gives.

    What is to be done again, and an effect that counts as failed or done, has its result when the run goes on.
    """
    left = unfinished(run) if decided or answers else Unfinished()
    intents, calls = {flying.intent.key: flying.intent for flying in left.in_flight}, doubted_in(left)
    for key, handling in {**decided, **dict.fromkeys(answers, _DONE)}.items():
        said, call = answers.get(key), calls.get(key)
        if call is None:
            run = run.record(DecidedEntry(key, handling, at_ms=at_ms))
            if isinstance(said, Occurrence):
                given = event_step(intents[key].effect, said.event, verdicts=dict(said.verdicts), data=said.data)
                run = run.record(result_of(intents[key], [given], at_ms=at_ms))
            continue
        run = run.record(DecidedEntry(call.key, handling, call.path, at_ms))
        if handling in {"fail", "done"}:
            step = said if isinstance(said, Step) else outcome_step(call.policy, failed=handling == "fail")
            run = run.record(CallResultEntry(call.key, call.path, [s.to_json() for s in numbered([step], call.path)]))
    return run
