"""The status of a run, read from its ledger: unfinished work, what the run waits for, and why it rests.

- `unfinished_work` takes a replayed run, and returns what a driver has to continue with: effects in flight, answers that no row has taken yet, timers. The
  ledger does not say what happened outside while no process was running; such effects are in doubt.
- `status_of` takes a replayed run and its live holder, if it has one, and returns a `RunStatus`. Whether a holder is alive is known by the store.
- `Rest` says why a run does not continue by itself, for now or for ever.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal

import attrs

from dsa.declarations import OUTSIDE, Effect
from dsa.immutable import immutable
from dsa.machine import Machine
from dsa.runtime.content import Artifact
from dsa.runtime.costs import is_try, was_refused
from dsa.runtime.ledger import (
    CallEntry,
    CallResultEntry,
    DecidedEntry,
    EffectEntry,
    Entry,
    EventEntry,
    Handling,
    Intent,
    MachineEntry,
    Part,
    RefusalEntry,
    ResultEntry,
    ResumedEntry,
    RowEntry,
    VerdictEntry,
    part_in,
    seq_of,
)
from dsa.runtime.policy.call_tree import call_key, call_named, doubted_calls, raising_path
from dsa.runtime.policy.policies import QUESTION
from dsa.runtime.run import Run, Timers, place_of
from dsa.semantics import accepted_events

#: The code of a try that ran into a time limit.
_TIMED_OUT = TimeoutError.__name__
#: The event and the row before the first ones of a ledger.
_NO_EVENT, _NO_ROW = EventEntry(0, ""), RowEntry(None, "", "")


@attrs.frozen
class InFlight:
    """An effect to perform: not begun, in doubt, or failed and to be tried again.

    `data` is the data of the event that caused it. `tries` counts its failed tries; with `has_failed`, the last try failed or its budget was spent.
    `calls` are the calls of its policy without a result that need a decision of their own. `root` is the first part of their paths: the number of the
    next try, or of the last try if that continues because the call at `stopping_path` raised an error. `decisions` has the decisions of people about the
    effect and its calls since the run was last resumed, by key. `part` is the run that the effect waits for.
    """

    intent: Intent
    data: Any
    tries: int
    in_doubt: bool
    calls: tuple[CallEntry, ...] = ()
    has_failed: bool = False
    root: int = 1
    stopping_path: str | None = None
    decisions: Mapping[str, Handling] = attrs.field(factory=dict)
    part: Part | None = None


@attrs.frozen
class Sleep:
    """An effect that sleeps until its deadline, in milliseconds since 1970. `data` is that of the event that caused it."""

    intent: Intent
    data: Any
    due_ms: int


@attrs.frozen
class UnfinishedWork:
    """The unfinished work of a run.

    `answers` are results that the run has not taken yet, `in_flight` the effects to perform, in this order, and `timers` the deadlines of armed timers.
    `sleeps` are the effects that sleep.
    """

    answers: tuple[tuple[Intent, ResultEntry], ...] = ()
    in_flight: tuple[InFlight, ...] = ()
    timers: Timers = attrs.field(factory=dict)
    sleeps: tuple[Sleep, ...] = ()


def unfinished_work(run: Run) -> UnfinishedWork:
    """Return the unfinished work of a run. An effect whose failure no row takes is tried again, because resuming the run asks for that."""
    past = _EffectHistory(run)
    unbegun_keys = past.unbegun_keys(run.machine)
    answers: list[tuple[Intent, ResultEntry]] = []
    in_flight: list[InFlight] = []
    sleeps: list[Sleep] = []
    blocked_seq = -1
    for intent in past.intents:
        results, has_answers = past.results.get(intent.key, []), intent.effect in run.machine.answers
        if results and not has_answers and not results[-1].has_failed:
            continue
        if intent.key in run.sleeps and (not results or results[-1].has_failed):
            sleeps.append(Sleep(intent, past.data[intent.key], run.sleeps[intent.key]))
            continue
        if results and is_question(results[-1]):
            continue  # a person will answer it
        seq = seq_of(intent.key)
        about, last = effect_declaration(run.machine, intent.effect), results[-1] if results else None
        tries = sum(map(is_try, results))
        has_no_try_left = tries > (about.retries or 0) or (last is not None and ends_its_tries(about, last))
        part = part_in(last) if has_answers and last is not None else None
        is_over = bool(results) and (
            not results[-1].has_failed
            or (part is None and has_no_try_left and intent.effect in run.machine.failures_handled)
        )
        if is_over and has_answers:
            answers.append((intent, results[-1]))
        elif not is_over:
            unknown = last is not None and has_timed_out(last) and doubt_of(about) == "ask"
            can_be_under_way = seq != blocked_seq and intent.key not in unbegun_keys
            in_doubt = unknown or (can_be_under_way and (not has_no_try_left or intent.key in past.tried_again))
            root, stopping_path, calls = past.calls_in(intent.key, has_stopped=has_no_try_left)
            decisions, data = past.decisions.get(intent.key, {}), past.data[intent.key]
            waits = None if intent.key in past.tried_again else part
            in_flight.append(
                InFlight(intent, data, tries, in_doubt, calls, bool(results), root, stopping_path, decisions, waits)
            )
            blocked_seq = blocked_seq if has_answers else seq  # the effects after it wait for it (S6)
    return UnfinishedWork(tuple(answers), tuple(in_flight), run.timers, tuple(sleeps))


def handling_of(machine: Machine, open_effect: InFlight) -> Handling:
    """Return a person's decision about an effect in flight, or else the table's (column `in doubt`).

    The default for an actuator is `ask`. It is also `ask` if the table says `retry` but a call of the effect needs a person's decision.
    """
    if open_effect.intent.key in open_effect.decisions:
        return open_effect.decisions[open_effect.intent.key]
    handling = doubt_of(effect_declaration(machine, open_effect.intent.effect)) if open_effect.in_doubt else "retry"
    return "ask" if handling == "retry" and undecided_calls(open_effect) else handling


def undecided_calls(open_effect: InFlight) -> Mapping[str, CallEntry]:
    """Return the calls of an effect that a person must still decide about, by key."""
    calls = {call_key(call.key, call.path): call for call in open_effect.calls if call.in_doubt == "ask"}
    return {key: call for key, call in calls.items() if key not in open_effect.decisions}


def stops_again(machine: Machine, left: UnfinishedWork) -> bool:
    """Return whether a run stops as soon as it is resumed: an effect in doubt counts as failed, and no row takes its failure."""
    return any(
        handling_of(machine, each) == "fail" and each.intent.effect not in machine.failures_handled
        for each in left.in_flight
    )


def resumption(run: Run, left: UnfinishedWork, session: ResumedEntry, *, stops: bool = False) -> ResumedEntry | None:
    """Return the entry for resuming a run: `session`, with what to do about its effects and calls. None if that would add nothing.

    All decisions of people must have been made. If the run `stops` again at once, nothing is performed: that would be in doubt in its turn, so two effects
    could keep each other from ever being tried again.
    """
    effects, calls = dict[str, Handling](), dict[str, Handling]()
    for open_effect in left.in_flight:
        if open_effect.in_doubt or open_effect.has_failed:
            key = open_effect.intent.key
            handling = handling_of(run.machine, open_effect) if open_effect.in_doubt else "again"
            if stops and handling not in {"fail", "done"}:
                continue
            effects[key] = handling
            if open_effect.stopping_path is not None:
                calls[call_key(key, open_effect.stopping_path)] = "again"
            calls |= {call_key(key, call.path): _handling_in(open_effect, handling, call) for call in open_effect.calls}
    first, resumed_entries = run.ledger[0], (entry for entry in reversed(run.ledger) if type(entry) is ResumedEntry)
    assert isinstance(first, MachineEntry), "a run begins with its machine"
    before = next(resumed_entries, None) or ResumedEntry.from_settings(dict(first.started))
    is_new = effects or (session.differs(before) and not run.is_finished)
    return attrs.evolve(session, effects=effects, calls=calls) if is_new else None


def _handling_in(open_effect: InFlight, whole: Handling, call: CallEntry) -> Handling:
    """Return what to do about a call under way in an effect. `fail` and `done` for the whole effect also hold for its calls."""
    if whole in {"fail", "done"}:
        return whole
    handling = open_effect.decisions.get(call_key(call.key, call.path), call.in_doubt)
    return "retry" if handling == "ask" else handling


def doubt_of(about: Effect) -> Handling:
    """Return what the table says to do about an effect in doubt."""
    handlings: dict[str, Handling] = {"retry": "retry", "ask": "ask", "fail": "fail"}
    return handlings.get(about.in_doubt, "ask" if about.kind == "actuator" else "retry")


def is_question(result: ResultEntry) -> bool:
    """Return whether a policy left the answer to a person."""
    return any(step["type"] == QUESTION for step in result.steps)


def has_timed_out(result: ResultEntry) -> bool:
    """Return whether a try ran into a time limit; its work may have happened all the same."""
    return any(step["payload"].get("code") == _TIMED_OUT for step in result.steps)


def ends_its_tries(about: Effect, result: ResultEntry) -> bool:
    """Return whether a result ends the tries of an effect, although `retries` are left.

    That is the case if the budget was spent, if a part waits, and after a time limit, unless the effect may simply be tried again when in doubt.
    """
    return not is_try(result) or (has_timed_out(result) and doubt_of(about) != "retry")


def effect_declaration(machine: Machine, effect: str) -> Effect:
    """Return an effect's row in Effects, or a default one."""
    return machine.effect_named.get(effect) or Effect(effect)


class _EffectHistory:
    """The entries of the effects that may be unfinished.

    `intents` are in the order of emission, `data` is the data of the events that caused them. By key: their results and calls, and whether they were
    tried again or decided about since the last result.
    """

    def __init__(self, run: Run) -> None:
        answers, open_keys = run.machine.answers, run.keys
        self.intents: list[Intent] = []
        self.data: dict[str, Any] = {}
        self.results: dict[str, list[ResultEntry]] = {}
        self.tried_again: set[str] = set()
        self.decisions: dict[str, dict[str, Handling]] = {}
        self._tries: dict[str, list[CallEntry | CallResultEntry | ResultEntry | Handling]] = {}
        event, row = _NO_EVENT, _NO_ROW
        for entry in run.ledger:
            if type(entry) is EventEntry:  # takes half the time of `match`, which looks at every entry in five ways
                event = entry
            elif type(entry) is RowEntry:
                row = entry
            elif type(entry) is EffectEntry:
                key, effect = entry.key, entry.effect
                if effect not in answers or key in open_keys:
                    self.intents.append(Intent(key, effect, event.event, row.line, row.source, row.target))
                    self.data[key] = event.data
            else:
                self._take(entry)

    def _take(self, entry: Entry) -> None:
        if type(entry) is ResultEntry:
            if entry.key in self.data:
                self.results.setdefault(entry.key, []).append(entry)
                self.tried_again.discard(entry.key)
                self.decisions.pop(entry.key, None)
                self._tries.setdefault(entry.key, []).append(entry)
        elif type(entry) is ResumedEntry:
            for key, handling in entry.effects:
                self.tried_again.add(key)
                self.decisions.pop(key, None)
                self._tries.setdefault(key, []).append(handling)
        elif type(entry) is DecidedEntry:
            self.decisions.setdefault(entry.key, {})[entry.about] = entry.handling
        elif (type(entry) is CallEntry or type(entry) is CallResultEntry) and entry.key in self.data:
            self._tries.setdefault(entry.key, []).append(entry)

    def unbegun_keys(self, machine: Machine) -> set[str]:
        """Return the keys of emissions that cannot have begun, because `together` earlier ones had not released their places.

        Emissions of an effect begin in the order of their keys. One keeps its place until a result ends its tries.
        """
        keys, holder_count = set[str](), Counter[str]()
        for intent in self.intents:
            about, results = effect_declaration(machine, intent.effect), self.results.get(intent.key, ())
            if about.together is None:
                continue
            if holder_count[about.name] >= about.together:
                keys.add(intent.key)
            tries = sum(map(is_try, results))
            is_over = tries > (about.retries or 0) or any(
                not result.has_failed or ends_its_tries(about, result) for result in results
            )
            holder_count[about.name] += not is_over
        return keys

    def calls_in(self, key: str, *, has_stopped: bool) -> tuple[int, str | None, tuple[CallEntry, ...]]:
        """Return the root of an effect's next try, the path of the call that stopped the last one, and the calls under way.

        The next try is a new one, unless a call raised an error that stopped the run: then the results of the other calls stay, and only that call is
        made again.
        """
        root, after, failed = 1, 1, None
        calls: list[CallEntry | CallResultEntry] = []
        for entry in self._tries.get(key, ()):
            if isinstance(entry, ResultEntry):
                if not was_refused(entry):
                    root, after, failed = after, after + 1, raising_path(entry)
            elif isinstance(entry, str):
                after, failed = (root, None) if failed is not None and entry == "again" else (after, failed)
            else:
                calls.append(entry)
        failed = failed if has_stopped else None
        goes_on = after if failed is None else root
        return goes_on, failed, doubted_calls([call for call in calls if call.path.startswith(f"{goes_on}.")], failed)


#: The code of an exception is the name of its class; all other codes are our own words.
_CLASS_NAME = re.compile("[A-Z][A-Za-z0-9]*[a-z][A-Za-z0-9]*")
StatusKind = Literal["finished", "waiting", "in doubt", "stopped", "cut off", "under way"]
#: After this many resumptions without a result a run counts as stopped: its work may end the process each time.
MOST_TAKE_UPS = 3


@attrs.frozen
class RunStatus:
    """The status of a run, its unfinished work (`left`), and the effects that a person must decide about (`doubts`).

    - `finished`: in a final state, without unfinished work
    - `waiting`: for an event from outside, a timer, the end of a sleep or a part
    - `in doubt`: waiting for a person's decision about the effects in `doubts`
    - `stopped`: by the `failure`; resuming the run tries again
    - `cut off`: in the middle of its work
    - `under way`: the process `holder` writes it
    """

    kind: StatusKind
    left: UnfinishedWork
    doubts: tuple[Intent, ...] = ()
    failure: str = ""
    holder: str | None = None


def status_of(run: Run, holder: str | None = None) -> RunStatus:
    """Return the status of a run; `holder` is its live writer, if it has one."""
    left = unfinished_work(run)
    if holder is not None:
        return RunStatus("under way", left, holder=holder)
    doubts = tuple(
        open_effect.intent for open_effect in left.in_flight if handling_of(run.machine, open_effect) == "ask"
    )
    if doubts:
        return RunStatus("in doubt", left, doubts)
    failure = _failure(run, left)
    if failure:
        return RunStatus("stopped", left, failure=failure)
    if left.answers or any(open_effect.part is None for open_effect in left.in_flight):
        return RunStatus("cut off", left)
    return RunStatus("finished" if run.is_finished else "waiting", left)


def doubted_keys(run: Run, doubts: Sequence[Intent]) -> dict[str, str]:
    """Return the keys of the effects and calls that a person must decide about, with the names of effects and policies."""
    open_effects = {each.intent.key: each for each in unfinished_work(run).in_flight} if doubts else {}
    names: dict[str, str] = {}
    for intent in doubts:
        calls = undecided_calls(open_effects[intent.key])
        is_whole = handling_of(run.machine, attrs.evolve(open_effects[intent.key], calls=())) == "ask"
        names |= {intent.key: intent.effect} if is_whole else {key: call.policy for key, call in calls.items()}
    return names


def outside_events(run: Run) -> tuple[str, ...]:
    """Return the events that people may send now, sorted: outside events with a row in this state, and answers that were left to people."""
    events, effects = run.machine.event_named, person_effects(run)
    names = accepted_events(run.machine, run.configuration.state)
    sendable = (event for event in names if event in events and events[event].origin in {OUTSIDE, *effects})
    return tuple(event for event in sendable if not event.endswith(".failed"))


def undecided_verdict(run: Run) -> VerdictEntry | None:
    """Return the fatal verdict that a person must decide about: the last one, if it is on the newest artifact and that is not accepted."""
    last = next((entry for entry in tuple(run.ledger)[::-1] if isinstance(entry, VerdictEntry)), None)
    if last is None or last.outcome != "fatal":
        return None
    step = run.step(last.step)
    return last if step.latest == last.artifact_id and step.accepted is None else None


def review_of(run: Run) -> VerdictEntry | None:
    """Return the verdict by which a guard asks for a review that has not happened yet."""
    last = undecided_verdict(run)
    return last if last is not None and last.label == "review" else None


def places(run: Run) -> dict[str, str]:
    """Return the events that a run waits for, each with its place, sorted by event.

    The place of an answer is the key of its effect. The place of a part's event has the part in it, as `RUN+3.2@4`.
    """
    keys, events = person_effects(run), run.machine.event_named
    pairs = ((event, keys.get(events[event].origin)) for event in outside_events(run))
    own = {event: key or str(place_of(run, event)) for event, key in pairs}
    inside = {event: place for part in parts(run).values() for event, place in part.waits_for.items()}
    return dict(sorted({**inside, **own}.items())) if inside else own


def person_effects(run: Run) -> dict[str, str]:
    """Return the outstanding effects whose answer was left to a person, each with the key of its oldest question."""
    open_questions = questions(run)
    return {effect: key for key, effect in reversed([*run.keys.items()]) if key in open_questions}


def answerable_questions(run: Run, event: str) -> dict[str, ResultEntry]:
    """Return the open questions that an event may answer, by key, the oldest emission first. Several emissions of an effect may ask at once."""
    open_questions, declaration = questions(run), run.machine.event_named.get(event)
    origin = OUTSIDE if declaration is None else declaration.origin
    return {key: open_questions[key] for key, effect in run.keys.items() if effect == origin and key in open_questions}


def questions(run: Run) -> dict[str, ResultEntry]:
    """Return the open questions to people, by key, the newest last."""
    return {key: entry for key, entry in _last_results(run).items() if is_question(entry)}


def parts(run: Run) -> dict[str, Part]:
    """Return the parts that effects wait for, by key."""
    parts_by_key = {key: part_in(entry) for key, entry in _last_results(run).items()}
    return {key: part for key, part in parts_by_key.items() if part is not None}


def next_due_ms(run: Run) -> int | None:
    """Return the next deadline of a run and its parts, in milliseconds since 1970; None if no timer is armed and nothing sleeps."""
    parts_due = (part.due_ms for part in parts(run).values() if part.due_ms is not None)
    return min((*run.timers.values(), *run.sleeps.values(), *parts_due), default=None)


def timed_events(run: Run) -> tuple[str, ...]:
    """Return the events that time brings: those of armed timers, and the answers of effects that sleep."""
    answers = (run.machine.answers[run.keys[key]][0] for key in run.sleeps)
    return (*(event for _, event in run.timers), *dict.fromkeys(answers))


def _last_results(run: Run) -> dict[str, ResultEntry]:
    """Return the last result of each outstanding effect that is not performed again, by key, the newest last."""
    open_keys = set(run.keys)
    results: dict[str, ResultEntry] = {}
    for entry in reversed(run.ledger) if open_keys else ():
        if type(entry) is ResultEntry and entry.key in open_keys:
            open_keys.discard(entry.key)
            results[entry.key] = entry
        elif type(entry) is EffectEntry:
            open_keys.discard(entry.key)
        elif type(entry) is ResumedEntry:
            open_keys.difference_update(key for key, _ in entry.effects)
        if not open_keys:
            break
    return dict(reversed(results.items()))


def _take_ups(run: Run) -> int:
    """Return how often a run was resumed since its last result."""
    count = 0
    for entry in reversed(run.ledger):
        if isinstance(entry, ResumedEntry):
            count += 1
        elif not isinstance(entry, CallEntry | DecidedEntry):
            return count
    return count


def _failure(run: Run, left: UnfinishedWork) -> str:
    """Return what stopped a run: an effect without tries left, or an answer that no row takes; "" if the ledger has neither."""
    for open_effect in left.in_flight:
        if open_effect.has_failed and not open_effect.in_doubt and open_effect.part is None:
            results = {entry.key: entry for entry in run.ledger if isinstance(entry, ResultEntry)}
            return f"{_effect_text(open_effect)} failed{_message(results[open_effect.intent.key])}"
    if left.in_flight and (times := _take_ups(run)) >= MOST_TAKE_UPS:
        return f"resumed {times} times without a result"
    reasons = _refusal_reasons(run) if left.answers else {}
    for intent, _ in left.answers:
        if intent.key in reasons:
            return f"{intent.effect} {intent.key}{_line(intent)}: no row takes its answer ({reasons[intent.key]})"
    return ""


def _effect_text(open_effect: InFlight) -> str:
    return f"{open_effect.intent.effect} {open_effect.intent.key}{_line(open_effect.intent)}"


def _line(intent: Intent) -> str:
    return "" if intent.line is None else f" (line {intent.line})"


def _message(result: ResultEntry) -> str:
    faults = [step["payload"] for step in result.steps if step["payload"].get("error") is True]
    call, first = call_named(result.key, faults[0]), faults[0]
    message = str(first.get("message") or "its policy gives no reason")
    return f"{f' in {call}' if call else ''}: {fault_text(str(first.get('code')), message, str(first.get('at') or ''))}"


def fault_text(code: str, message: str, at: str = "") -> str:
    """Return an effect's error as text: the class of the exception, the message, and the place in the user's code."""
    kind = f"{code}: " if _CLASS_NAME.fullmatch(code) and code != TimeoutError.__name__ else ""
    return f"{kind}{message}{f' (at {at})' if at else ''}"


def _refusal_reasons(run: Run) -> dict[str, str]:
    """Return the reasons why answers were refused, by key."""
    return {
        event.key: f"{refusal.reason}: {refusal.message}"
        for event, refusal in pairwise(run.ledger)
        if isinstance(event, EventEntry) and isinstance(refusal, RefusalEntry) and event.key is not None
    }


RestKind = Literal["finished", "waiting", "stopped", "in doubt", "interrupted"]


@attrs.frozen
class Failure:
    """The reason why a run stopped: the effect or event (`what`), the line of its row, a code, a message, the place in the user's code, the call.

    The run can continue from its ledger once the cause is gone.
    """

    what: str
    line: int | None
    code: str
    message: str
    at: str = ""
    call: str = ""

    def __str__(self) -> str:
        place = f" (line {self.line})" if self.line is not None else ""
        within = f" in {self.call}" if self.call else ""
        return f"{self.what}{place} failed{within}: {fault_text(self.code, self.message, self.at)}"


@attrs.frozen(field_transformer=immutable)
class Rest:
    """A run at rest, and the reason.

    - `finished`: in a final state
    - `waiting`: for an event from outside, a timer or the end of a sleep, the next one at `due_ms` (milliseconds since 1970)
    - `stopped`: by the `failure`; resuming the run tries again
    - `in doubt`: waiting for a person's decision about the effects in `in_doubt`
    - `interrupted`: by the person or program that drove it

    `accepted` are the artifacts that the run's steps finalised, in the order of the workflow.
    """

    kind: RestKind
    run: Run
    failure: Failure | None = None
    in_doubt: tuple[Intent, ...] = ()
    due_ms: int | None = None
    accepted: tuple[Artifact, ...] = ()

    @property
    def outcome(self) -> str | None:
        """The last part of the final state's name, such as `succeeded`; None if the run is not finished."""
        return self.run.outcome if self.kind == "finished" else None

    @property
    def waits_for(self) -> Mapping[str, str]:
        """The outside events that the run waits for, each with its place, by which an answer names its question."""
        return places(self.run) if self.kind == "waiting" else {}
