"""Decisions about effects in doubt, which people make.

Takes a machine, what is left to do in its run, and what is said; gives the run in which it is recorded, or raises. It performs nothing.
"""

from collections.abc import Mapping

from dsa.edge.effects import result_of
from dsa.errors import DsaError, OccurrenceError
from dsa.machine import Machine
from dsa.meaning import Occurrence, require_known
from dsa.runtime.ledger import DoubtEntry, Handling
from dsa.runtime.policies import event_step
from dsa.runtime.recovery import InFlight, Unfinished, unfinished
from dsa.runtime.run import Run


class DoubtError(DsaError):
    """Raised when something is said about an effect that is not in doubt, or something that cannot be said of it."""


def require_decidable(
    machine: Machine, left: Unfinished, decided: Mapping[str, Handling], answers: Mapping[str, Occurrence]
) -> None:
    """Raise DoubtError or OccurrenceError unless all this can be said of effects in doubt."""
    doubted = {flying.intent.key: flying for flying in left.in_flight if flying.in_doubt}
    for key in (*decided, *answers):
        if key not in doubted:
            raise DoubtError(f"{key} is not in doubt; in doubt: {', '.join(doubted) or 'nothing'}")
    both = sorted(decided.keys() & answers.keys())
    if both:
        raise DoubtError(f"{both[0]} is decided twice")
    for key, handling in decided.items():
        effect = doubted[key].intent.effect
        if handling == "done" and effect in machine.answers:
            said = ", ".join(machine.answers[effect])
            raise DoubtError(f"{effect} has answers, so it is not enough that it is done: say which it gave ({said})")
    for key, occurrence in answers.items():
        _require_answer(machine, doubted[key], occurrence)


def _require_answer(machine: Machine, flying: InFlight, occurrence: Occurrence) -> None:
    effect = flying.intent.effect
    known = machine.answers.get(effect, ())
    if occurrence.event not in known:
        said = f"its answers: {', '.join(known)}" if known else "it has no answers"
        raise OccurrenceError(f"'{occurrence.event}' is no answer of {effect}; {said}")
    require_known(machine, occurrence)


def answered(run: Run, answers: Mapping[str, Occurrence], at_ms: int) -> Run:
    """Record what somebody says now that effects in doubt, by their keys, were answered with."""
    intents = {flying.intent.key: flying.intent for flying in unfinished(run).in_flight} if answers else {}
    for key, answer in answers.items():
        given = event_step(intents[key].effect, answer.event, verdicts=dict(answer.verdicts), data=answer.data)
        run = run.record(DoubtEntry(key, intents[key].effect, "done"))
        run = run.record(result_of(intents[key], [given], at_ms=at_ms))
    return run
