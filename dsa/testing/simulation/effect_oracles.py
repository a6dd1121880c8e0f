"""Oracles of effects, answers and timers: each happens as often as the ledger says, when it may, and what comes back is what is fed."""

from collections.abc import Sequence
from math import inf

from dsa.runtime.costs import BUDGET
from dsa.runtime.ledger import (
    DecidedEntry,
    EventEntry,
    Handling,
    Intent,
    ResultEntry,
    ResumedEntry,
    VerdictEntry,
    place_of_key,
)
from dsa.runtime.policy.call_tree import IN_DOUBT
from dsa.semantics import Occurrence, Taken
from dsa.testing.simulation.facts import EffectBegin, ReplyFact, RunFacts, oracle

_SLACK_S = 1e-6
#: The code of a failure by time limit.
TIMED_OUT = TimeoutError.__name__

# -- a policy is called -------------------------------------------------------------------------------------------------


@oracle("P6")
def an_effect_begins_after_its_intent_is_durable(facts: RunFacts, call: EffectBegin) -> str | None:
    """Else a crash would leave an effect that no entry records."""
    return None if call.key in facts.intents else f"{_name(call)} was begun, and no durable entry asks for it"


@oracle("P5")
def a_process_that_cannot_write_begins_nothing(_facts: RunFacts, call: EffectBegin) -> str | None:
    """After its store has failed, or has said that another process has the run."""
    return None if call.may_write else f"{_name(call)} was begun by a process that could no longer write"


@oracle("P3")
def an_effect_with_a_result_is_not_performed_again(facts: RunFacts, call: EffectBegin) -> str | None:
    """Except by a process that lost its run and cannot know: it finishes what it was doing, and the other one says so."""
    again = facts.is_answered(call.key) and not call.is_stale
    return f"{_name(call)} was begun again after its result was recorded" if again else None


@oracle("P4")
def an_effect_that_may_have_happened_is_repeated_only_when_reported(facts: RunFacts, call: EffectBegin) -> str | None:
    """Each time a policy is called there is a result of it, or an entry that says it was in doubt."""
    count = facts.deeds.begin_count[call.key]
    report_count = len(facts.results.get(call.key, ())) + len(facts.doubts.get(call.key, ()))
    if count <= report_count:
        return None
    return f"{_name(call)} was begun {count} times before, but the ledger shows only {report_count} of them"


@oracle("P4")
def an_effect_that_a_person_must_decide_waits_for_the_person(facts: RunFacts, call: EffectBegin) -> str | None:
    """`ask` in the column `in doubt`, and every actuator that says nothing."""
    if facts.subject.handling(call.effect) != "ask":
        return None
    doubt_count = sum(handling != "again" for handling in facts.doubts.get(call.key, ()))
    decision_count = len(facts.deeds.decisions.get(call.key, ()))
    return (
        None
        if doubt_count <= decision_count
        else f"{_name(call)} was in doubt and is begun again, but nobody decided that"
    )


@oracle("S7")
def only_outstanding_effects_are_performed(facts: RunFacts, call: EffectBegin) -> str | None:
    """Not what was answered or cancelled."""
    if call.effect not in facts.machine.answers or call.is_stale or call.key in facts.keys:
        return None
    return f"{_name(call)} was begun, but the run no longer waits for it"


@oracle("S6")
def effects_without_answers_are_complete_before_the_next_begins(facts: RunFacts, call: EffectBegin) -> str | None:
    """In the order in which the row has them."""
    head, _, ordinal = call.key.rpartition("/")
    for earlier in range(1, int(ordinal)):
        intent = facts.intents.get(f"{head}/{earlier}")
        if intent is not None and intent.effect not in facts.machine.answers and not facts.is_answered(intent.key):
            return f"{_name(call)} was begun before {intent.effect} was done"
    return None


@oracle("S6")
def effects_begin_in_the_order_written(facts: RunFacts, call: EffectBegin) -> str | None:
    """Those with answers too, though they go on at the same time."""
    head, _, ordinal = call.key.rpartition("/")
    for key in (f"{head}/{earlier}" for earlier in range(1, int(ordinal))):
        intent = facts.intents.get(key)
        if intent is None or key not in facts.keys or intent.effect in facts.subject.sleeps:
            continue
        if facts.deeds.begin_count[key] or facts.results.get(key) or _may_wait(facts, intent):
            continue
        if not _is_over(facts, intent.effect):
            return f"{_name(call)} was begun before {intent.effect}"
    return None


def _may_wait(facts: RunFacts, intent: Intent) -> bool:
    """Return whether an emission may wait for a place: earlier ones of its effect are outstanding, or were cancelled and are being stopped."""
    together = facts.subject.declaration(intent.effect).together
    if together is None:
        return False
    older = _earlier(facts, intent.key, intent.effect)
    cancelled = [each for each in facts.cancelled_intents if each.effect == intent.effect]
    return len(older) + len(cancelled) >= together


def _earlier(facts: RunFacts, key: str, effect: str) -> list[str]:
    """Return the keys under which earlier emissions of an effect are outstanding."""
    place = place_of_key(key)
    return [each for each, other in facts.keys.items() if other == effect and place_of_key(each) < place]


@oracle("S6")
def emissions_that_wait_for_a_place_begin_in_the_order_of_their_keys(facts: RunFacts, call: EffectBegin) -> str | None:
    """Where only some of an effect are performed side by side (`together`)."""
    if facts.subject.declaration(call.effect).together is None:
        return None
    for key in _earlier(facts, call.key, call.effect):
        if not facts.deeds.begin_count[key] and not facts.results.get(key) and key not in facts.settled_keys:
            return f"{_name(call)} was begun before {key}"
    return None


@oracle("P4")
def an_emission_begins_once_durable_results_make_room_for_it(facts: RunFacts, call: EffectBegin) -> str | None:
    """Else a ledger would not show which emissions can have begun."""
    together = facts.subject.declaration(call.effect).together
    if together is None or call.is_stale:
        return None
    open_keys = [key for key in _earlier(facts, call.key, call.effect) if not facts.results.get(key)]
    return f"{_name(call)} was begun before {open_keys[0]} had a result" if len(open_keys) >= together else None


@oracle("S6")
def no_more_effects_are_performed_side_by_side_than_the_table_says(facts: RunFacts, call: EffectBegin) -> str | None:
    """Column `together` of Effects; each process counts its own."""
    together = facts.subject.declaration(call.effect).together
    if together is None or len(call.beside) < together:
        return None
    return f"{_name(call)} was begun beside {', '.join(call.beside)}, but only {together} may be performed side by side"


def _is_over(facts: RunFacts, effect: str) -> bool:
    """Return whether a timer or a sleep is due that cancels an effect: then it need not be begun."""
    now_s = facts.time.now_s
    timers = [Occurrence(event, source=source) for (source, event), due_s in facts.due_s.items() if due_s <= now_s]
    awake = {facts.keys[key] for key, sleep in facts.sleeps.items() if sleep.due_s <= now_s}
    events = [Occurrence(facts.machine.answers[each][0]) for each in awake]
    taken = (facts.subject.step(facts.configuration, each) for each in (*timers, *events))
    return any(isinstance(each, Taken) and effect not in each.configuration.outstanding for each in taken)


@oracle("S11")
def a_sleep_is_not_performed(facts: RunFacts, call: EffectBegin) -> str | None:
    """It needs no policy."""
    return (
        f"{_name(call)} was begun, but a sleep must not be performed" if call.effect in facts.subject.sleeps else None
    )


@oracle("P11")
def a_budget_counts_every_call(facts: RunFacts, call: EffectBegin) -> str | None:
    """Those that failed, and those that a crash cut off, too."""
    if call.is_stale:
        return None
    for limit in facts.limits:
        is_concerned = call.effect == limit.effect if limit.effect else call.effect in facts.machine.answers
        if is_concerned and facts.call_count(limit, with_doubts=False) >= limit.most:
            return f"{_name(call)} was begun, but the budget is spent: {limit}"
    return None


def _name(call: EffectBegin) -> str:
    return f"{call.effect} {call.key}"


# -- what is recorded of it ---------------------------------------------------------------------------------------------


@oracle("P6")
def a_result_belongs_to_an_intent(facts: RunFacts, result: ResultEntry) -> str | None:
    """Of its key."""
    return None if result.key in facts.intents else f"{result.key} has a result, but no row asked for it"


@oracle("P3")
def an_effect_has_one_result(facts: RunFacts, result: ResultEntry) -> str | None:
    """Beside those of its failed tries."""
    return f"{_of(facts, result)} has two results" if facts.is_answered(result.key) else None


@oracle("P3")
def a_result_is_what_came_back(facts: RunFacts, result: ResultEntry) -> str | None:
    """What the policy gave, or what is known about an effect in doubt, or that its budget is spent."""
    if facts.intents.effect(result.key) in facts.subject.sleeps:
        return None
    outcomes = facts.deeds.outcomes.get(result.key, [])
    is_settled = result.key in facts.settled_keys
    outcome = said_by(result)
    if outcome in outcomes or (is_settled and outcome in {"", IN_DOUBT, *facts.deeds.decisions.get(result.key, ())}):
        return None
    if outcome == TIMED_OUT and _time_is_over(facts, result):
        return None
    if outcome == BUDGET and any(facts.call_count(limit, with_doubts=True) >= limit.most for limit in facts.limits):
        return None
    return f"{_of(facts, result)} is recorded as '{outcome}'; what came back: {', '.join(outcomes) or 'nothing'}"


@oracle("S11")
def a_sleep_ends_when_it_is_due(facts: RunFacts, result: ResultEntry) -> str | None:
    """Never earlier, also after a crash, and by true time while the process lives."""
    sleep = facts.sleeps.get(result.key)
    if sleep is None or facts.time.now_s >= sleep.due_s - _SLACK_S:
        return None
    return f"{_of(facts, result)} ended {sleep.due_s - facts.time.now_s:g} s too early"


@oracle("S7")
def a_sleep_that_is_over_does_not_end(facts: RunFacts, result: ResultEntry) -> str | None:
    """One that was cancelled or has ended."""
    effect = facts.intents.effect(result.key)
    if effect not in facts.subject.sleeps or result.key in facts.sleeps:
        return None
    return f"{_of(facts, result)} ended, but it was already {'over' if facts.is_answered(result.key) else 'cancelled'}"


@oracle("S11")
def a_sleep_answers_with_the_data_of_its_request(facts: RunFacts, result: ResultEntry) -> str | None:
    """Its one event, with the data of the event whose row emitted it."""
    sleep = facts.sleeps.get(result.key)
    if sleep is None:
        return None
    event, steps = facts.machine.answers[facts.intents.effect(result.key)][0], result.steps
    answers = [(step["payload"].get("event"), step["payload"].get("data")) for step in steps]
    return (
        None
        if answers == [(event, sleep.data)]
        else f"{_of(facts, result)} gave {answers}, not {event} with the data of the request"
    )


def _time_is_over(facts: RunFacts, result: ResultEntry) -> bool:
    limit_ms = facts.subject.declaration(facts.intents.effect(result.key)).time_limit_ms
    begun_s = facts.deeds.begin_s.get(result.key, inf)
    return limit_ms is not None and facts.time.now_s >= begun_s + limit_ms / 1000 - _SLACK_S


@oracle("P4")
def effects_in_doubt_are_handled_as_the_table_says(facts: RunFacts, entry: ResumedEntry) -> str | None:
    """Or as a person has decided. A failure that is tried again is not in doubt."""
    return next(filter(None, (_handled_otherwise(facts, *each) for each in entry.effects)), None)


def _handled_otherwise(facts: RunFacts, key: str, handling: Handling) -> str | None:
    effect, decisions = facts.intents.effect(key), facts.deeds.decisions.get(key)
    if handling == "again":
        failed = any(result.has_failed for result in facts.results.get(key, ()))
        return None if failed else f"{effect} is performed again as if it had failed"
    says = decisions[-1] if decisions else facts.subject.handling(effect)
    return (
        None if handling == says else f"{effect} in doubt is handled as '{handling}', but must be handled as '{says}'"
    )


@oracle("P4")
def a_sleep_is_never_in_doubt(facts: RunFacts, entry: ResumedEntry) -> str | None:
    """It does nothing outside."""
    key = next((key for key, _ in entry.effects if facts.intents.effect(key) in facts.subject.sleeps), None)
    return None if key is None else f"the sleep {key} is recorded as in doubt"


@oracle("P4")
def an_effect_that_cannot_have_begun_is_not_in_doubt(facts: RunFacts, entry: ResumedEntry) -> str | None:
    """An emission behind as many without a result as are performed side by side."""
    for key, handling in entry.effects:
        effect = facts.intents.effect(key)
        together = facts.subject.declaration(effect).together
        if together is None or handling == "again":
            continue
        open_keys = [each for each in _earlier(facts, key, effect) if not facts.results.get(each)]
        if len(open_keys) >= together:
            return f"{effect} {key} is in doubt, and cannot have begun before {open_keys[0]} had a result"
    return None


@oracle("P4")
def a_decision_is_what_a_person_said(facts: RunFacts, decision: DecidedEntry) -> str | None:
    """Of this effect, last: it has not happened, it has failed, it is done, or it gave an answer."""
    effect, answer = facts.intents.effect(decision.key), facts.deeds.decisions.get(decision.key, [""])[-1]
    if decision.handling == ("done" if answer in facts.machine.answers.get(effect, ()) else answer):
        return None
    return f"'{decision.handling}' is recorded as the decision about {effect}, but the person said '{answer}'"


@oracle("S2")
def a_verdict_is_what_the_guard_said(facts: RunFacts, verdict: VerdictEntry) -> str | None:
    """Of this attempt, the newest one of its step."""
    if facts.latest.get(verdict.step) != verdict.artifact_id:
        return f"the verdict {verdict.key} is about an attempt of {verdict.step} that is not the newest"
    for judgement in verdict.judgements:
        outcome = facts.deeds.guard_outcomes.get((verdict.key, judgement.guard))
        if outcome is not None and outcome != judgement.outcome:
            return f"{judgement.guard} said '{outcome}', but '{judgement.outcome}' is recorded"
    return None


def _of(facts: RunFacts, result: ResultEntry) -> str:
    return f"{facts.intents.effect(result.key)} {result.key}"


def said_by(result: ResultEntry) -> str:
    """Return the event of a result, or the code of its failure; empty when there is neither."""
    events = []
    for step in result.steps:
        payload = step["payload"]
        if payload.get("error") is True:
            return str(payload.get("code"))
        if step["type"] == "event":
            events.append(payload.get("event"))
    return str(events[0]) if len(events) == 1 else ""


# -- what is fed ----------------------------------------------------------------------------------------------------------


@oracle("P6")
def an_answer_is_fed_after_its_result_is_recorded(facts: RunFacts, event: EventEntry) -> str | None:
    """Else a crash would leave a step that no result explains. A late answer changes nothing, and needs no result."""
    if event.key is None or not facts.is_outstanding(event.key, event.event):
        return None
    results = facts.results.get(event.key)
    if not results:
        return f"{event.event} was fed before the ledger had a result of {event.key}"
    outcome = said_by(results[-1]) if not results[-1].has_failed else f"{facts.intents.effect(event.key)}.failed"
    return None if outcome == event.event else f"{event.event} was fed, and the result says {outcome}"


@oracle("S10")
def an_answer_has_the_data_of_its_own_result(facts: RunFacts, event: EventEntry) -> str | None:
    """Not that of another emission of its effect."""
    if event.key is None or not facts.is_outstanding(event.key, event.event):
        return None
    results = facts.results.get(event.key)
    steps = results[-1].steps if results else ()
    data = [step["payload"].get("data") if step["type"] == "event" else step["payload"] for step in steps]
    return None if not steps or event.data in data else f"{event.event} of {event.key} has the data of another result"


@oracle("S10")
def events_from_outside_were_sent(facts: RunFacts, event: EventEntry) -> str | None:
    """Each once."""
    if event.key is not None or not facts.is_outside(event):
        return None
    count = facts.fed_count[event.event]
    if count < facts.deeds.sent_count[event.event]:
        return None
    return f"{event.event} was fed {count + 1} times, but sent less often"


@oracle("S10")
def a_sender_learns_the_outcome_of_its_event(facts: RunFacts, reply: ReplyFact) -> str | None:
    """Whether its event was taken, or why it was refused, once that is durable."""
    if reply.answer in facts.event_outcomes.get(reply.event, ()):
        return None
    return f"the sender of {reply.event} gets {reply.answer}, but no durable event had that result"


@oracle("S2")
def verdicts_are_what_guards_said(facts: RunFacts, event: EventEntry) -> str | None:
    """Those that came with an answer, and those that were asked for as it arrived; never those of an earlier attempt."""
    verdicts = {} if event.key is None else _verdicts_of(facts.results.get(event.key, []))
    for guard, outcome in event.verdicts:
        guard_outcome = verdicts.get(guard) or facts.deeds.guard_outcomes.get(("", guard))
        if guard_outcome != outcome:
            return f"{guard} said '{guard_outcome}', but '{outcome}' was fed"
    return None


def _verdicts_of(results: list[ResultEntry]) -> dict[str, str]:
    steps = results[-1].steps if results else ()
    verdicts = next((step["payload"].get("verdicts") for step in steps if step["type"] == "event"), None)
    return verdicts if isinstance(verdicts, dict) else {}


@oracle("S11")
def a_timer_fires_when_it_is_due(facts: RunFacts, event: EventEntry) -> str | None:
    """Never earlier, also after a crash, and by true time while the process lives; or when a longer one is due that waits for it."""
    if event.source is None:
        return None
    own_timer = (event.source, event.event)
    longer_timers = (longer for timer, longer in facts.configuration.precedence if timer == own_timer)
    dues_s = [facts.due_s[timer] for timer in (own_timer, *longer_timers) if timer in facts.due_s]
    due_s = min(dues_s, default=None)
    if due_s is None or facts.time.now_s >= due_s - _SLACK_S:
        return None
    return f"{event.event} of {event.source} fired {due_s - facts.time.now_s:g} s too early"


@oracle("S11")
def overdue_timers_come_before_events_from_outside(facts: RunFacts, event: EventEntry) -> str | None:
    """A process that takes a run up first feeds the timers whose time was over by then: nobody approves what has expired."""
    late = [timer for source, timer in facts.overdue if (source, timer) in facts.due_s]
    late += [f"the end of {facts.keys[key]} {key}" for key, sleep in facts.sleeps.items() if sleep.is_overdue]
    is_sent = event.key is None and event.source is None
    return f"{event.event} came before {late[0]}, which was overdue" if late and is_sent else None


@oracle("S7")
def cancelled_effects_are_stopped(facts: RunFacts, under_way: Sequence[str]) -> str | None:
    """And what was answered is over: nothing is under way that nobody waits for. `under_way` has the keys of what is."""
    for key in under_way:
        intent = facts.intents.get(key)
        if intent is not None and intent.effect in facts.machine.answers and key not in facts.keys:
            return f"{intent.effect} {key} is under way, but the run no longer waits for it"
    return None


@oracle("S11")
def no_timer_is_missed(facts: RunFacts, until_s: float) -> str | None:
    """No time passes beyond the moment at which a timer is due; but an effect without answers is complete first (S6)."""
    if any(intent.effect not in facts.machine.answers for intent in asked_for(facts)):
        return None
    for (source, timer), due_s in facts.due_s.items():
        if until_s > due_s + _SLACK_S:
            return f"{timer} of {source} is due, and the driver sleeps {until_s - due_s:g} s longer"
    for key, sleep in facts.sleeps.items():
        if until_s > sleep.due_s + _SLACK_S:
            return f"{facts.keys[key]} {key} is due, and the driver sleeps {until_s - sleep.due_s:g} s longer"
    return None


@oracle("S10")
def a_resumed_run_meets_the_same_world(facts: RunFacts, event: EventEntry) -> str | None:
    """Crashes that lose nothing change nothing: the same rows are taken on the same verdicts."""
    if facts.deeds.is_unplanned or facts.subject.has_timers or facts.subject.sleeps or facts.intention is None:
        return None
    occurrence = facts.intention(facts.position, facts.configuration)
    expected_event = None if occurrence is None else (occurrence.event, occurrence.verdicts)
    if expected_event == (event.event, event.verdicts):
        return None
    return f"{event.event} {event.verdicts} came, but {expected_event} was expected"


def asked_for(facts: RunFacts) -> list[Intent]:
    """Return the effects without answers that were asked for and are not done; one whose budget is spent will not be."""
    return [
        intent
        for key, intent in facts.intents.items()
        if intent.effect not in facts.machine.answers and not facts.is_answered(key) and not _is_spent(facts, key)
    ]


def _is_spent(facts: RunFacts, key: str) -> bool:
    results = facts.results.get(key, [])
    return bool(results) and said_by(results[-1]) == BUDGET
