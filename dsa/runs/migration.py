"""Migrations: whether a run in flight may continue under another table. That table replays its history, and its future is explored.

`FitJudge` takes recorded runs and two machines, and returns a `Fit` for each run. A run is *compatible* if, at its own parameters,

- its history is exactly what the new machine does: each recorded event is taken or refused as it was, with the same states, values, effects under the
  same keys, timers and accepted artifacts; so the run is in the same configuration;
- nothing that is under way is lost: every answer that the old machine declares for an outstanding effect is one in the new machine;
- from there, the new machine reaches no fault that the old one does not reach.

From there it may still act differently, which is why tables are changed. `Fit.future` has these differences.
"""

from collections.abc import Mapping
from typing import Literal

import attrs

from dsa.checks.equivalence import Comparison, ConfigurationPair, Pair, Prospect, Trouble, compare, prospect
from dsa.checks.search.engine import SearchLimits
from dsa.edge.performer import answer_in, steps_of
from dsa.errors import ParameterError
from dsa.expr import Value
from dsa.machine import Machine, step_of
from dsa.runtime.ledger import Entry, Ledger, RowEntry
from dsa.runtime.run import Run
from dsa.runtime.status import unfinished_work
from dsa.runtime.timeline import Difference, event_records, first_difference
from dsa.semantics import Configuration, Occurrence, Taken, start, step

Verdict = Literal["compatible", "incompatible", "UNKNOWN"]
#: The default limit of configurations in one search; each takes about a kilobyte.
MAX_STATES = 300_000


@attrs.frozen
class Fit:
    """The answer whether a run may continue under the new machine.

    For an incompatible run, `why` is the reason, `difference` the first event that the new machine does not take as it was taken, or `trouble`
    the fault that it reaches. `here` has the configurations of both machines, `future` compares them from there on. `machine` is the new machine
    at the run's parameters.
    """

    verdict: Verdict
    why: str = ""
    difference: Difference | None = None
    trouble: Trouble | None = None
    here: ConfigurationPair | None = None
    future: Comparison | None = None
    machine: Machine | None = attrs.field(default=None, repr=False)


class FitJudge:
    """A judge of runs of one machine against another. Results that do not depend on a run's history are computed once.

    `parameters` replace those of the run in the new machine.
    """

    def __init__(self, new: Machine, limits: SearchLimits, parameters: Mapping[str, Value] | None = None) -> None:
        self._new, self._limits, self._parameters = new, limits, parameters or {}
        self._pairs: dict[tuple[tuple[str, Value], ...], Pair] = {}
        self._futures: dict[tuple[Pair, ConfigurationPair], tuple[Comparison, Prospect]] = {}

    def judge(self, run: Run) -> Fit:
        """Judge a run that was replayed by its own machine."""
        try:
            pair = self._pair(run.machine)
        except ParameterError as fault:
            return Fit("incompatible", f"the new machine cannot have the run's parameters: {fault}")
        new = pair.new.machine
        if (words := _difference_words(pair, pair.start)) is not None:
            return Fit("incompatible", f"the new machine does not begin as the run did: {words}", machine=new)
        difference = first_difference(new, run.ledger, run.machine)
        if difference is not None:
            return Fit("incompatible", difference=difference, machine=new)
        here = run.configuration, rederive_configuration(new, run.ledger)
        why = _difference_words(pair, here) or _lost_answer(run, new) or _misplaced_artifacts(run, new)
        if why:
            return Fit("incompatible", why, here=here, machine=new)
        return self._ahead(pair, here)

    def _pair(self, own: Machine) -> Pair:
        parameters = tuple(own.constants.items())
        if parameters not in self._pairs or self._pairs[parameters].old.machine != own:
            self._pairs[parameters] = Pair(own, self._new.at({**own.constants, **self._parameters}))
        return self._pairs[parameters]

    def _ahead(self, pair: Pair, here: ConfigurationPair) -> Fit:
        """Judge by the future of both machines."""
        key = (pair, here)
        if key not in self._futures:
            future = compare(pair, here, self._limits)
            ahead = Prospect() if future.verdict == "EQUAL" else prospect(pair, here, self._limits)
            self._futures[key] = future, ahead
        future, ahead = self._futures[key]
        verdict: Verdict
        verdict, why = ("UNKNOWN", f"stopped at {ahead.limit}") if ahead.limit else ("compatible", "")
        if ahead.trouble is not None:
            verdict, why = "incompatible", "the new machine may reach a fault that the old machine does not reach"
        return Fit(verdict, why, trouble=ahead.trouble, here=here, future=future, machine=pair.new.machine)


def rederive_configuration(machine: Machine, entries: Ledger[Entry]) -> Configuration:
    """Return a machine's configuration after recorded events, which it takes and refuses as they were taken and refused."""
    here = start(machine)
    for record in event_records(entries):
        if isinstance(record.outcome, RowEntry):
            result = step(machine, here, record.occurrence)
            assert isinstance(result, Taken), "the machine takes every event that was taken"
            here = result.configuration
    return here


def _difference_words(pair: Pair, here: ConfigurationPair) -> str | None:
    """Return how two configurations differ, armed timers included; None if they do not."""
    words = pair.apart(here)
    if words is None:
        timers = [
            ", ".join(f"{event} of {source}" for source, event in sorted(moves.machine.armed_timers(at.state)))
            for moves, at in zip((pair.old, pair.new), here, strict=True)
        ]
        if timers[0] == timers[1]:
            return None
        words = (f"armed: {timers[0] or 'no timer'}", f"armed: {timers[1] or 'no timer'}")
    return f"the run has {words[0]}, the new machine has {words[1]}"


def _lost_answer(run: Run, new: Machine) -> str:
    """Return the first answer to an effect under way that the new machine does not have, as a sentence; "" if there is none."""
    for key, effect in sorted(run.keys.items(), key=lambda each: each[::-1]):
        events = [event for event in run.machine.answers[effect] if event not in new.answers.get(effect, ())]
        if events:
            return f"{effect} {key} is under way and may be answered with {events[0]}, which is not one of its answers in the new machine"
    for intent, result in unfinished_work(run).answers:
        steps = steps_of(result)
        mine, theirs = (answer_in(machine, intent.effect, steps) for machine in (run.machine, new))
        if isinstance(mine, Occurrence) and not isinstance(theirs, Occurrence):
            return f"{intent.effect} {intent.key} was answered, but the answer is not taken yet, and the new machine cannot take it: {theirs.payload['message']}"
    return ""


def _misplaced_artifacts(run: Run, new: Machine) -> str:
    """Return the step whose artifacts the new machine would not find, because it has another name there, as a sentence; "" if there is none."""
    for state in run.machine.leaves if run.steps else ():
        mine, theirs = step_of(run.machine, state), step_of(new, state)
        if state in new.state_named and mine in run.steps and mine != theirs:
            return f"the artifacts of step {mine} belong to the state {state}, which works on a step {theirs} in the new machine"
    return ""
