"""Oracles of whole runs: each goes on once faults stop, rests where it may, and keeps the properties of its document."""

from dsa.checks.monitor import monitor
from dsa.checks.properties import moments
from dsa.data_use import Use, uses
from dsa.runtime.event_data import MISSING_DATA
from dsa.testing.simulation.effect_oracles import asked_for
from dsa.testing.simulation.facts import RestFact, RunFacts, oracle

# -- a process says that its run rests --------------------------------------------------------------------------------


@oracle("S10")
def the_run_is_where_its_ledger_is(facts: RunFacts, rest: RestFact) -> str | None:
    """The driver's run and the fold of what is durable agree on the configuration."""
    mine, its = facts.configuration, rest.run.configuration
    return None if mine == its else f"the ledger leads to {mine}, the driver is at {its}"


@oracle("S12")
def a_run_rests_only_where_it_may(facts: RunFacts, rest: RestFact) -> str | None:
    """`finished` in a final state; `waiting` where nothing is outstanding, no timer is armed and nobody is to decide."""
    if rest.kind == "finished":
        return None if facts.is_finished else f"it says that it is finished in {facts.configuration.state}"
    if rest.kind == "waiting":
        if facts.keys:
            return f"it waits for nothing while {', '.join(facts.keys)} is outstanding"
        if facts.due_s:
            return f"it waits for nothing while {next(iter(facts.due_s))[1]} is armed"
    return None


@oracle("S7")
def a_run_stops_only_for_a_cause(facts: RunFacts, rest: RestFact) -> str | None:
    """An effect that failed without a row for it, an answer that could not be read; never by itself."""
    if rest.kind != "stopped" or rest.code in facts.deeds.excused_codes:
        return None
    if rest.code == MISSING_DATA and any(_is_missing(facts, use) for use in uses(facts.machine)):
        return None
    return f"it was stopped by {rest.code}, and nothing in the world gave cause for it"


def _is_missing(facts: RunFacts, use: Use) -> bool:
    """Return whether the data that a prompt or a guard reads has not come: the run stopped as soon as it was to be read."""
    reference, events = use.reference, [occurrence.event for occurrence in facts.occurrences]
    if reference.since in events:
        events = events[len(events) - 1 - events[::-1].index(reference.since) :]
    return not reference.is_optional and reference.event not in events


# -- a story is over ----------------------------------------------------------------------------------------------------


@oracle("P6")
def what_was_asked_for_is_done(facts: RunFacts, _about: object) -> str | None:
    """A run that is over has a result of every effect without answers that it asked for; the others are cancelled by its end."""
    left = asked_for(facts) if facts.is_finished else []
    return f"{left[0].effect} {left[0].key} was asked for and never done" if left else None


@oracle("P4")
def what_a_person_decides_happens_once(facts: RunFacts, _about: object) -> str | None:
    """An effect whose doubts somebody decides who can see the world. Two processes at once are another matter."""
    for key, times in facts.deeds.done_count.items():
        if times == 1 or facts.subject.handling(facts.intents[key].effect) != "ask":
            continue
        failed = sum(result.has_failed for result in facts.results.get(key, ()))
        if times > 1 + failed:
            return None if facts.deeds.was_taken else f"{facts.intents[key].effect} {key} happened {times} times"
    return None


@oracle("P12")
def the_properties_of_the_document_hold(facts: RunFacts, _about: object) -> str | None:
    """As monitors over the rows that were taken, whatever the faults."""
    violations, occurrences = facts.subject.violations, tuple(facts.occurrences)
    if occurrences not in violations:
        violations[occurrences] = _first_violated(facts)
    return violations[occurrences]


def _first_violated(facts: RunFacts) -> str | None:
    run = moments(facts.machine, facts.occurrences)
    for text, form in facts.subject.properties:
        result = monitor(form, run, is_complete=facts.is_finished)
        if result.verdict == "violated":
            return f"{text} (event {result.step})"
    return None


@oracle("S12")
def nothing_happens_that_nobody_foresaw(_facts: RunFacts, fault: BaseException | str) -> str | None:
    """A process that ends with an error of its own, a run that goes no further, a loop without end."""
    return fault if isinstance(fault, str) else f"{type(fault).__name__}: {fault}"
