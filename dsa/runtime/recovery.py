"""What is still to be done in a run, read from its ledger: effects in flight, answers that were not taken, timers.

Takes a run that was replayed, gives what a driver goes on with. Pure, as everything here: what happened outside while nobody
was looking is not known, and is called in doubt.
"""

from collections.abc import Mapping
from typing import Any

import attrs

from dsa.declarations import Effect
from dsa.machine import Machine
from dsa.runtime.budgets import is_try, was_refused
from dsa.runtime.call_tree import call_key, doubted_calls, raised_in
from dsa.runtime.intents import Intent, seq_of
from dsa.runtime.ledger import (
    CallEntry,
    CallResultEntry,
    DecidedEntry,
    EffectEntry,
    Entry,
    EventEntry,
    Handling,
    MachineEntry,
    ResultEntry,
    ResumedEntry,
    RowEntry,
)
from dsa.runtime.moves import Timers
from dsa.runtime.parts import Part, part_in
from dsa.runtime.policies import QUESTION
from dsa.runtime.run import Run

#: The code of a try that ran into a time limit.
_TIMED_OUT = TimeoutError.__name__
#: What stands before the first ones of a ledger.
_NO_EVENT, _NO_ROW = EventEntry(0, ""), RowEntry(None, "", "")


@attrs.frozen
class InFlight:
    """An effect to be performed: not begun, in doubt, or failed and to be tried again.

    `data` is that of the event which caused it, `tries` how often it was tried, all in vain; `has_failed` tells that it failed last, by a try or
    because its budget was spent. `calls` are what its policy has called and got no result of, and that nothing else decides about; `root` is the
    first part of their paths: the number of the try that is made, or gone on with because it was a call of it that failed, the one at the path `raised`.
    `decided` is what a person has said of it and its calls since the run was taken up last, by their keys. `part` is the run that it waits for.
    """

    intent: Intent
    data: Any
    tries: int
    in_doubt: bool
    calls: tuple[CallEntry, ...] = ()
    has_failed: bool = False
    root: int = 1
    raised: str | None = None
    decided: Mapping[str, Handling] = attrs.field(factory=dict)
    part: Part | None = None


@attrs.frozen
class Unfinished:
    """What a run that was cut off has left to do.

    Results to be taken as answers, effects to be performed in this order, and the armed timers' deadlines in milliseconds since 1970, in the
    order in which they were started.
    """

    answered: tuple[tuple[Intent, ResultEntry], ...] = ()
    in_flight: tuple[InFlight, ...] = ()
    timers: Timers = attrs.field(factory=dict)


def unfinished(run: Run) -> Unfinished:
    """Read what is left to do. A failure that no row takes is to be tried again, as a person asks who resumes the run."""
    past = _Past(run)
    answered: list[tuple[Intent, ResultEntry]] = []
    flying: list[InFlight] = []
    blocked = -1
    for intent in past.intents:
        results, has_answers = past.results.get(intent.key, []), intent.effect in run.machine.answers
        if results and not has_answers and not results[-1].failed:
            continue
        if results and is_question(results[-1]):
            continue  # a person answers it
        seq = seq_of(intent.key)
        about, last = declared(run.machine, intent.effect), results[-1] if results else None
        tries = sum(map(is_try, results))
        exhausted = tries > (about.retries or 0) or (last is not None and ends_its_tries(about, last))
        part = part_in(last) if has_answers and last is not None else None
        is_over = bool(results) and (
            not results[-1].failed or (part is None and exhausted and intent.effect in run.machine.failures_handled)
        )
        if is_over and has_answers:
            answered.append((intent, results[-1]))
        elif not is_over:
            unknown = last is not None and has_timed_out(last) and doubt_of(about) == "ask"
            in_doubt = unknown or (seq != blocked and (not exhausted or intent.key in past.tried_again))
            root, raised, calls = past.calls_in(intent.key, has_stopped=exhausted)
            said, data = past.decided.get(intent.key, {}), past.data[intent.key]
            waits = None if intent.key in past.tried_again else part
            flying.append(InFlight(intent, data, tries, in_doubt, calls, bool(results), root, raised, said, waits))
            blocked = blocked if has_answers else seq  # the effects after it wait for it (S6)
    return Unfinished(tuple(answered), tuple(flying), run.timers)


def handling_of(machine: Machine, flying: InFlight) -> Handling:
    """Return what a person has decided about an effect in flight, or else what the table says (column `in doubt`).

    Of an actuator that says nothing a person is asked; so it is when the effect had called a policy that is registered so, and the table would have it
    called again.
    """
    if flying.intent.key in flying.decided:
        return flying.decided[flying.intent.key]
    handling = doubt_of(declared(machine, flying.intent.effect)) if flying.in_doubt else "retry"
    return "ask" if handling == "retry" and asked_calls(flying) else handling


def asked_calls(flying: InFlight) -> Mapping[str, CallEntry]:
    """Return the calls of an effect about which a person has still to say what became of them, by their keys."""
    calls = {call_key(call.key, call.path): call for call in flying.calls if call.in_doubt == "ask"}
    return {key: call for key, call in calls.items() if key not in flying.decided}


def resumption(run: Run, left: Unfinished, session: ResumedEntry) -> ResumedEntry | None:
    """Return what is recorded as a run goes on: `session`, with what is done about effects and calls. None where that says nothing new.

    No person must be left to be asked.
    """
    effects, calls = dict[str, Handling](), dict[str, Handling]()
    for flying in left.in_flight:
        if flying.in_doubt or flying.has_failed:
            key = flying.intent.key
            handling = effects[key] = handling_of(run.machine, flying) if flying.in_doubt else "again"
            if flying.raised is not None:
                calls[call_key(key, flying.raised)] = "again"
            calls |= {call_key(key, call.path): _handling_in(flying, handling, call) for call in flying.calls}
    first, resumed = run.ledger[0], (entry for entry in reversed(run.ledger) if type(entry) is ResumedEntry)
    assert isinstance(first, MachineEntry), "a run begins with its machine"
    before = next(resumed, None) or ResumedEntry.bound(dict(first.started))
    is_new = effects or (session.differs(before) and not run.finished)
    return attrs.evolve(session, effects=effects, calls=calls) if is_new else None


def _handling_in(flying: InFlight, whole: Handling, call: CallEntry) -> Handling:
    """Return what is done about a call under way in an effect: what is decided about the effect is decided about all of its calls."""
    if whole in {"fail", "done"}:
        return whole
    handling = flying.decided.get(call_key(call.key, call.path), call.in_doubt)
    return "retry" if handling == "ask" else handling


def doubt_of(about: Effect) -> Handling:
    """Give what the table says about an effect of which nobody knows whether it happened."""
    written: dict[str, Handling] = {"retry": "retry", "ask": "ask", "fail": "fail"}
    return written.get(about.in_doubt, "ask" if about.kind == "actuator" else "retry")


def is_question(result: ResultEntry) -> bool:
    """Tell whether a policy has left the answer to a person."""
    return any(step["type"] == QUESTION for step in result.steps)


def has_timed_out(result: ResultEntry) -> bool:
    """Tell whether a try ran into a time limit: what was begun may have happened all the same."""
    return any(step["payload"].get("code") == _TIMED_OUT for step in result.steps)


def ends_its_tries(about: Effect, result: ResultEntry) -> bool:
    """Tell whether no further try is made after a result by itself, although `retries` are left.

    So it is when the budget was spent, when a part waits, and after a time limit, unless a doubt about the effect is simply tried again.
    """
    return not is_try(result) or (has_timed_out(result) and doubt_of(about) != "retry")


def declared(machine: Machine, effect: str) -> Effect:
    """Give what the table's Effects say about an effect, or that they say nothing."""
    return machine.effect_named.get(effect) or Effect(effect)


class _Past:
    """What a ledger says of the effects that may have something left to do.

    `intents` are these in the order in which they were asked for, `data` that of the events that led to them; further their results and calls, and what
    was tried again and decided since the last result, by key.
    """

    def __init__(self, run: Run) -> None:
        answers, outstanding = run.machine.answers, run.keys
        self.intents: list[Intent] = []
        self.data: dict[str, Any] = {}
        self.results: dict[str, list[ResultEntry]] = {}
        self.tried_again: set[str] = set()
        self.decided: dict[str, dict[str, Handling]] = {}
        self._tried: dict[str, list[CallEntry | CallResultEntry | ResultEntry | Handling]] = {}
        event, row = _NO_EVENT, _NO_ROW
        for entry in run.ledger:
            if type(entry) is EventEntry:  # in half the time of `match`, which looks at every entry in five ways
                event = entry
            elif type(entry) is RowEntry:
                row = entry
            elif type(entry) is EffectEntry:
                key, effect = entry.key, entry.effect
                if effect not in answers or outstanding.get(effect) == key:
                    self.intents.append(Intent(key, effect, event.event, row.line, row.source, row.target))
                    self.data[key] = event.data
            else:
                self._take(entry)

    def _take(self, entry: Entry) -> None:
        if type(entry) is ResultEntry:
            if entry.key in self.data:
                self.results.setdefault(entry.key, []).append(entry)
                self.tried_again.discard(entry.key)
                self.decided.pop(entry.key, None)
                self._tried.setdefault(entry.key, []).append(entry)
        elif type(entry) is ResumedEntry:
            for key, handling in entry.effects:
                self.tried_again.add(key)
                self.decided.pop(key, None)
                self._tried.setdefault(key, []).append(handling)
        elif type(entry) is DecidedEntry:
            self.decided.setdefault(entry.key, {})[entry.about] = entry.handling
        elif (type(entry) is CallEntry or type(entry) is CallResultEntry) and entry.key in self.data:
            self._tried.setdefault(entry.key, []).append(entry)

    def calls_in(self, key: str, *, has_stopped: bool) -> tuple[int, str | None, tuple[CallEntry, ...]]:
        """Return the root of the try to be made of an effect, the path of the call that stopped it, and the calls under way in it.

        That is a new try, unless a call raised something that has stopped the run: then the others have what they gave, and only that one is made
        again.
        """
        root, after, failed = 1, 1, None
        calls: list[CallEntry | CallResultEntry] = []
        for entry in self._tried.get(key, ()):
            if isinstance(entry, ResultEntry):
                if not was_refused(entry):
                    root, after, failed = after, after + 1, raised_in(entry)
            elif isinstance(entry, str):
                after, failed = (root, None) if failed is not None and entry == "again" else (after, failed)
            else:
                calls.append(entry)
        failed = failed if has_stopped else None
        goes_on = after if failed is None else root
        return goes_on, failed, doubted_calls([call for call in calls if call.path.startswith(f"{goes_on}.")], failed)
