"""What `dsa diff` found out, as an object for programs."""

from collections.abc import Sequence
from typing import Any

import attrs

from dsa.checks.differ import Comparison, Parting
from dsa.checks.differ_faults import Trouble
from dsa.checks.differ_pairs import Both, Reaction
from dsa.cli.comparing import Compared, Diff, Flight, Runs
from dsa.cli.replay import difference_as_json
from dsa.expr import Value
from dsa.lang import digest
from dsa.machine import Machine
from dsa.meaning import Configuration, Occurrence, Refusal, Taken, step


def as_json(diff: Diff) -> dict[str, Any]:
    """Give all of it."""
    sides = zip(("old", "new"), diff.files, diff.machines, strict=True)
    return {
        **{side: {"file": file, "machine": machine.name, "digest": digest(machine)} for side, file, machine in sides},
        "changes": [attrs.asdict(change) for change in diff.changes],
        "behaviour": {
            "verdict": diff.verdict,
            "at_all_values": not diff.compared,
            "comparisons": [_compared(each) for each in diff.compared],
        },
        "runs": None if diff.runs is None else _runs(diff.runs),
    }


def _compared(compared: Compared) -> dict[str, Any]:
    pair = compared.pair
    machines = (pair.old.machine, pair.new.machine)
    values = {"old": machines[0].constants, "new": machines[1].constants}
    return {"parameters": values, **_comparison(machines, pair.start, compared.found)}


def _comparison(machines: Sequence[Machine], here: Both, found: Comparison) -> dict[str, Any]:
    parting = found.parting
    return {
        "verdict": found.verdict,
        "configurations": found.configurations,
        "limit": found.limit or None,
        "trace": None if parting is None else _way(machines, here, parting.way),
        "parting": None if parting is None else _parting(machines, parting),
    }


def _parting(machines: Sequence[Machine], parting: Parting) -> dict[str, Any]:
    return {
        **_occurrence(parting.occurrence),
        "state": parting.old.here.state,
        "old": _reaction(machines[0], parting.old),
        "new": _reaction(machines[1], parting.new),
    }


def _reaction(machine: Machine, reaction: Reaction) -> dict[str, Any]:
    """Give what one machine does: `line` and what comes of it when a row is taken, `refused` with the reason, or `said`."""
    outcome = reaction.outcome
    if isinstance(outcome, Taken):
        return {**_taken(machine, outcome), "timers": sorted(map(list, reaction.started)), "ends": reaction.ends}
    if isinstance(outcome, Refusal):
        return _refusal(outcome)
    return {"said": reaction.said}


def _refusal(refusal: Refusal) -> dict[str, Any]:
    lines = [row.span.line for row in refusal.rows if row.span]
    return {"refused": refusal.reason, "message": refusal.message, "lines": lines}


def _taken(machine: Machine, taken: Taken) -> dict[str, Any]:
    row = taken.transition
    return {
        "line": row.span.line if row.span else None,
        "state": taken.configuration.state,
        "values": values_of(machine, taken.configuration),
        "effects": list(taken.effects),
        "cancelled": list(taken.cancelled),
    }


def _occurrence(occurrence: Occurrence | None) -> dict[str, Any]:
    if occurrence is None:
        return {"event": None, "verdicts": {}, "source": None}
    return {"event": occurrence.event, "verdicts": dict(occurrence.verdicts), "source": occurrence.source}


def _way(
    machines: Sequence[Machine], here: Sequence[Configuration], way: tuple[Occurrence, ...]
) -> list[dict[str, Any]]:
    """Give the steps that all the machines take alike, with the lines of their rows."""
    now, found = list(here), []
    for occurrence in way:
        taken = [step(machine, at, occurrence) for machine, at in zip(machines, now, strict=True)]
        did = [outcome for outcome in taken if isinstance(outcome, Taken)]
        now = [outcome.configuration for outcome in did]
        each = [_taken(machine, outcome) for machine, outcome in zip(machines, did, strict=True)]
        found.append({**_occurrence(occurrence), **each[-1], "lines": [one["line"] for one in each]})
    return found


def values_of(machine: Machine, here: Configuration) -> dict[str, Value]:
    """Give the variables' values by name."""
    return dict(zip((variable.name for variable in machine.variables), here.values, strict=True))


def _runs(runs: Runs) -> dict[str, Any]:
    return {
        "directory": str(runs.root),
        "in_flight": [_flight(flight) for flight in runs.flights],
        "finished": runs.finished,
        "other_machines": runs.others,
        "unreadable": dict(runs.damaged),
    }


def _flight(flight: Flight) -> dict[str, Any]:
    fit, run = flight.fit, flight.kept.run
    told: dict[str, Any] = {
        "run": run.run_id,
        "verdict": fit.verdict,
        "state": run.configuration.state,
        "events": run.seq,
        "parameters": run.machine.constants,
        "reason": fit.why or None,
        "history": None,
        "fault": None,
        "future": None,
    }
    if fit.machine is not None and fit.difference is not None:
        told["history"] = difference_as_json(fit.machine, fit.difference)
    if fit.machine is not None and fit.here is not None:
        if fit.trouble is not None:
            told["fault"] = _trouble(fit.machine, fit.here, fit.trouble)
        if fit.future is not None:
            told["future"] = _comparison((run.machine, fit.machine), fit.here, fit.future)
    return told


def _trouble(machine: Machine, here: Both, trouble: Trouble) -> dict[str, Any]:
    refusal = {} if trouble.refusal is None else _refusal(trouble.refusal)
    way = _way([machine], [here[1]], trouble.way)
    return {"trace": way, **_occurrence(trouble.occurrence), "state": trouble.here.state, **refusal}
