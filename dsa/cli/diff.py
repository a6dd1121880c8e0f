"""Two documents compared, for `dsa diff`: what they declare, what they do from their starts, and which runs in flight fit the new one.

Takes machines and a folder of runs, gives a `Diff`; prints nothing.

`dsa diff OLD NEW`: what another table means otherwise, and which runs in flight may go on under it.
"""

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from math import inf
from pathlib import Path
from typing import Any

import attrs
import click

from dsa.checks.diff.document_diff import Aspect, Detail, DocumentChange, changes, same_control
from dsa.checks.diff.equivalence import Comparison, ConfigurationPair, Divergence, Pair, Reaction, Trouble, compare
from dsa.checks.places import line_of, rows_at, show_false
from dsa.checks.search.engine import SearchLimits
from dsa.cli.command_line import (
    SECONDS,
    ColouredWord,
    CommandExit,
    JsonCommand,
    ProgressLine,
    json_option,
    max_states_option,
    param_option,
    parse_parameters,
    say,
    tell_json,
)
from dsa.cli.replay import difference_as_json, difference_lines
from dsa.cli.run_options import machine_record, opened
from dsa.declarations import Transition
from dsa.edge.document_files import load
from dsa.errors import ParameterError
from dsa.expr import Value
from dsa.lang import digest
from dsa.machine import Machine, minima
from dsa.runs import runs as door
from dsa.runs.archive import OtherMachineError, RunRecord
from dsa.runs.migration import MAX_STATES, Fit, FitJudge
from dsa.runs.place import DEFAULT_RUNS, LEDGER
from dsa.runtime.ledger import EventEntry
from dsa.runtime.run_store import DamageError
from dsa.semantics import Configuration, Occurrence, Refusal, Taken, step
from dsa.text import plural
from dsa.trace import align_rows, show_events, show_occurrence, show_values


@attrs.frozen
class MachineComparison:
    """Both machines at values of their parameters, and whether they do the same from their starts."""

    pair: Pair
    found: Comparison


@attrs.frozen
class Flight:
    """A run in flight, and whether it may go on under the new machine."""

    record: RunRecord
    fit: Fit


@attrs.frozen
class RunsInFlight:
    """The runs of a folder: the old machine's, those in flight judged and the finished ones counted.

    `others` counts the runs in flight of other machines; `damaged` says of the runs that cannot be read what is the matter.
    """

    root: Path
    flights: tuple[Flight, ...]
    finished: int
    others: int
    damaged: Mapping[str, str]

    @property
    def fit(self) -> bool:
        """Return whether every run in flight is compatible; nobody knows of what cannot be read."""
        return not self.damaged and all(flight.fit.verdict == "compatible" for flight in self.flights)


@attrs.frozen
class Diff:
    """All that was found out about two documents. `compared` is empty when nothing that controls a run has changed."""

    files: tuple[str, str]
    machines: tuple[Machine, Machine]
    changes: tuple[DocumentChange, ...]
    compared: tuple[MachineComparison, ...]
    runs: RunsInFlight | None = None

    @property
    def verdict(self) -> str:
        """EQUAL at all values that were looked at, else DIFFERENT at some, else UNKNOWN."""
        found = {each.found.verdict for each in self.compared}
        return next((verdict for verdict in ("DIFFERENT", "UNKNOWN") if verdict in found), "EQUAL")


def compared(
    files: tuple[str, str], machines: tuple[Machine, Machine], given: Mapping[str, Value], limits: SearchLimits
) -> Diff:
    """Compare two machines: what they declare, and what they do from their starts. Raises ParameterError."""
    found, values = changes(*machines), list(valuations(*machines, given))
    pairs = () if same_control(found) else (Pair(*each) for each in values)
    return Diff(
        files, machines, found, tuple(MachineComparison(pair, compare(pair, pair.start, limits)) for pair in pairs)
    )


def valuations(old: Machine, new: Machine, given: Mapping[str, Value]) -> Iterator[tuple[Machine, Machine]]:
    """Yield both machines at the values to compare at: those given; else each at its defaults, both at the old defaults, each at its minima.

    A parameter that only one of them has is set in that one alone. Raises ParameterError for a name that neither has.
    """
    if given:
        for name in given:
            if not _has(old, name) and not _has(new, name):
                old.at({name: given[name]})  # raises, and names those there are
        yield _set(old, given), _set(new, given)
        return
    pairs = [(old, new), (old, _at_others(new, old)), (old.at(minima(old)), new.at(minima(new)))]
    for place, pair in enumerate(pairs):
        if pair not in pairs[:place]:
            yield pair


def _at_others(machine: Machine, other: Machine) -> Machine:
    """Return a machine at another's values, as far as its own domains have them."""
    for name, value in other.constants.items():
        try:
            machine = _set(machine, {name: value})
        except ParameterError:
            continue  # nobody can run it so
    return machine


def _has(machine: Machine, name: str) -> bool:
    return any(p.name == name or p.name.startswith(f"{name}.") for p in machine.parameters)


def _set(machine: Machine, values: Mapping[str, Value]) -> Machine:
    return machine.at({name: value for name, value in values.items() if _has(machine, name)})


# -- runs in flight ---------------------------------------------------------------------------------------------------


def judged(root: Path, machines: tuple[Machine, Machine], limits: SearchLimits) -> RunsInFlight:
    """Judge the runs of the old machine that are kept in a folder. Raises Ended, and DocumentError when no run is kept there."""
    fitting, flights, damaged = FitJudge(machines[1], limits), list[Flight](), dict[str, str]()
    finished = others = 0
    with opened(root) as runs:
        for run in runs.ids():
            record = _record(runs, run)
            if isinstance(record, str):
                damaged[run] = record
            elif not _is_of(record, machines[0]):
                others += record.status.kind != "finished"
            elif record.status.kind == "finished":
                finished += 1
            else:
                flights.append(Flight(record, fitting.judge(record.run)))
    return RunsInFlight(root, tuple(flights), finished, others, damaged)


def _record(runs: door.Runs, run: str) -> RunRecord | str:
    """Read a run; say why it cannot be read."""
    try:
        return machine_record(runs.stored_run(run))
    except DamageError as fault:
        if fault.run is None:
            raise
        return f"damaged: {fault}"
    except OtherMachineError as fault:
        return str(fault)
    except CommandExit as fault:
        return fault.message


def _is_of(record: RunRecord, machine: Machine) -> bool:
    """Return whether a run is one of a machine, whatever that claims of itself by now."""
    try:
        there = machine.at(dict(record.first.parameters))
    except ParameterError:
        return False
    return without_claims(record.run.machine) == without_claims(there)


def without_claims(machine: Machine) -> Machine:
    """Return a machine without properties and scenarios, which may be added to at any time."""
    return attrs.evolve(machine, properties=(), scenarios=())


@click.command("diff", cls=JsonCommand)
@click.argument("old")
@click.argument("new")
@click.option("--runs", "root", metavar="DIR", help="Judge the runs that are kept there, and exit by them alone.")
@param_option("Compare at this value only; repeatable.")
@max_states_option(MAX_STATES)
@click.option("--time-limit", type=SECONDS, metavar="S", help="Stop searching after so many seconds in all.")
@json_option
def command(
    old: str,
    new: str,
    root: str | None,
    parameters: tuple[str, ...],
    *,
    max_states: int,
    time_limit: float | None,
    json_wanted: bool,
) -> None:
    """Say what NEW means otherwise than OLD, whether it behaves otherwise, and which runs in flight may go on under it.

    Runs are judged that are kept in .dsa, if there are any. Exit 0: the same behaviour, and every run in flight is compatible; 1: not, or UNKNOWN. With
    --runs, 0 when every run in flight is compatible, whatever the behaviour. 2: unreadable.
    """
    found = _found((old, new), root, parameters, max_states, time_limit)
    if json_wanted:
        tell_json(as_json(found))
    else:
        tell(found)
    sys.exit(exit_code(found, by_runs=root is not None))


def exit_code(found: Diff, *, by_runs: bool) -> int:
    """Return the exit code; `by_runs`: the user asks about runs alone."""
    is_fit = found.runs is None or found.runs.fit
    return int(not (is_fit and (by_runs or found.verdict == "EQUAL")))


def _found(
    files: tuple[str, str], root: str | None, parameters: tuple[str, ...], max_states: int, time_limit_s: float | None
) -> Diff:
    machines = load(files[0]), load(files[1])
    values = parse_parameters(parameters)
    with ProgressLine("comparing rows") as progress:
        limits = SearchLimits(max_states, _expired(time_limit_s), progress)
        found = compared(files, machines, values, limits)
        folder = Path(root or DEFAULT_RUNS)
        if root is None and not (folder / LEDGER).is_file():
            return found
        return attrs.evolve(found, runs=judged(folder, machines, limits))


def _expired(time_limit_s: float | None) -> Callable[[], bool]:
    ends_s = inf if time_limit_s is None else time.monotonic() + time_limit_s
    return lambda: time.monotonic() >= ends_s


_COLOURS = {"EQUAL": "green", "DIFFERENT": "red", "UNKNOWN": "yellow", "compatible": "green", "incompatible": "red"}
_WIDTH = len("DIFFERENT")
_RUN_WIDTH = len("incompatible")
_HEADINGS: dict[Aspect, str] = {"control": "control", "content": "the same control, other content", "claims": "claims"}
_LONGEST = 60


def tell(diff: Diff) -> None:
    """Print what was found out."""
    for line in change_lines(diff.changes):
        _say(line)
    for verdict, line in behaviour_lines(diff):
        _say(line, verdict, _WIDTH)
    if diff.runs is not None:
        _say(_counted_runs(diff))
        for flight in diff.runs.flights:
            for verdict, line in flight_lines(flight, diff.files):
                _say(line, verdict, _RUN_WIDTH)
        for said in diff.runs.damaged.values():
            _say(said, "UNKNOWN", _RUN_WIDTH)
    _say(_summary(diff))


def _say(line: str, verdict: str | None = None, width: int = 0) -> None:
    """Print a line after a verdict; after as much space for an empty one."""
    if verdict is None:
        say(line.rstrip())
    else:
        say(ColouredWord(verdict.ljust(width), _COLOURS.get(verdict)), f"  {line}".rstrip())


# -- what is declared -------------------------------------------------------------------------------------------------


def change_lines(changes: Iterable[DocumentChange]) -> Iterator[str]:
    """Yield the changes under a heading for each aspect, each with the fields that differ below it."""
    for aspect, group in groupby(changes, lambda change: change.aspect):
        found = list(group)
        yield f"{_HEADINGS[aspect]}:"
        cells = [(change.kind, change.what, change.name, _lines(change.old_line, change.new_line)) for change in found]
        for change, line in zip(found, align_rows(cells), strict=True):
            yield f"  {line}"
            yield from (f"      {detail}" for detail in align_rows(map(_detail, change.details)))


def _detail(detail: Detail) -> tuple[str, ...]:
    old, new = _shortened(detail.old), _shortened(detail.new)
    if not detail.old or not detail.new:
        added = "+" if detail.new else "-"
        return detail.field, f"{added} {new if detail.new else old}"
    return detail.field, f"{old}  ->  {new}" if old != new else "another text"


def _shortened(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= _LONGEST else f"{flat[: _LONGEST - 3]}..."


def _lines(old: int | None, new: int | None) -> str:
    """Name a line in both documents: `line 4 -> 5`, once where it is the same."""
    if old is None or new is None or old == new:
        return "" if old is None and new is None else f"line {new if old is None else old}"
    return f"line {old} -> {new}"


# -- what is done -----------------------------------------------------------------------------------------------------

#: A line that begins with a verdict, or with as much space.
Line = tuple[str, str]


def behaviour_lines(diff: Diff) -> Iterator[Line]:
    """Return whether both do the same from their starts, at each of the parameters' values."""
    if not diff.compared:
        everywhere = ", at all values of the parameters" if diff.machines[0].parameters else ""
        yield "EQUAL", f"nothing that controls a run is otherwise{everywhere}"
    for each in diff.compared:
        at = _at(each, diff.files[1])
        yield each.found.verdict, f"{at}{_told(each.found)}"
        for line in parting_lines(each.pair, each.pair.start, each.found.divergence, diff.files):
            yield "", line


def _at(compared: MachineComparison, file: str) -> str:
    """Write the parameters' values; where those of the new document are others, these too."""
    old, new = compared.pair.old.machine.constants, compared.pair.new.machine.constants
    other = {name: value for name, value in new.items() if old.get(name) != value}
    told = [show_values(old.items())] if old else []
    told += [f"{file}: {show_values(other.items())}"] if other else []
    return f"at {'; '.join(told)}: " if told else ""


def _told(found: Comparison) -> str:
    if found.divergence is not None:
        return _after(found.divergence)
    some = plural(found.configurations, "configuration")
    return f"{some}, stopped at {found.limit}" if found.verdict == "UNKNOWN" else some


def _after(parting: Divergence) -> str:
    if parting.occurrence is None:
        return "at once"
    return f"in step {len(parting.way) + 1}"


def parting_lines(
    pair: Pair, here: ConfigurationPair, parting: Divergence | None, files: tuple[str, str]
) -> Iterator[str]:
    """Yield how two machines come to part, line by line, and what each does then."""
    if parting is not None:
        yield from way_lines((pair.old.machine, pair.new.machine), here, parting.way)
        head, *rest = _reactions(pair, parting, files)
        yield f"{len(parting.way) + 1}  {head}" if parting.occurrence is not None else head
        yield from (f"   {line}" for line in rest)


def _reactions(pair: Pair, parting: Divergence, files: tuple[str, str]) -> Iterator[str]:
    """Yield what happens where two machines part, and what each makes of it."""
    occurrence = parting.occurrence
    begun = "before anything happens"
    if occurrence is not None:
        begun = f"{show_occurrence(occurrence)} in {parting.old.here.state}"
    yield f"{begun}:"
    width = max(map(len, files))
    sides = ((pair.old.machine, parting.old, parting.new), (pair.new.machine, parting.new, parting.old))
    for file, (machine, reaction, other) in zip(files, sides, strict=True):
        yield f"{file:<{width}}  {_reaction(machine, reaction, other, occurrence)}"


def way_lines(machines: Sequence[Machine], here: Sequence[Configuration], way: tuple[Occurrence, ...]) -> Iterator[str]:
    """Tell the steps that one machine takes, or that two take alike, with the lines of their rows; what changed is the last one's."""
    now, machine = list(here), machines[-1]
    begun = "from here" if any(at.outstanding for at in here) else "start"
    cells = [("0", begun, now[-1].state, "", show_values(_values(machine, now[-1]).items()), "")]
    for number, (occurrence, did) in enumerate(_steps(machines, here, way), 1):
        lines = [line_of(outcome.transition) or None for outcome in did]
        changed = _changed(machine, now[-1], did[-1].configuration)
        now = [outcome.configuration for outcome in did]
        row = (show_occurrence(occurrence), now[-1].state, _lines(lines[0], lines[-1]), changed, _effects(did[-1]))
        cells.append((str(number), *row))
    yield from align_rows(cells)


def _steps(
    machines: Sequence[Machine], here: Sequence[Configuration], way: Iterable[Occurrence]
) -> Iterator[tuple[Occurrence, list[Taken]]]:
    """Yield what each machine does at each step of a way that all of them take."""
    for occurrence in way:
        taken = [step(machine, at, occurrence) for machine, at in zip(machines, here, strict=True)]
        did = [outcome for outcome in taken if isinstance(outcome, Taken)]
        assert len(did) == len(taken), "what was searched is what step does"
        yield occurrence, did
        here = [outcome.configuration for outcome in did]


def _values(machine: Machine, here: Configuration) -> dict[str, Value]:
    """Return the variables' values by name."""
    return dict(zip((variable.name for variable in machine.variables), here.values, strict=True))


def _changed(machine: Machine, before: Configuration, after: Configuration) -> str:
    triples = zip(machine.variables, before.values, after.values, strict=True)
    return show_values((variable.name, new) for variable, old, new in triples if old != new)


def _effects(taken: Taken) -> str:
    return ", ".join([*taken.effects, *(f"cancelled {effect}" for effect in taken.cancelled)])


def _reaction(machine: Machine, reaction: Reaction, other: Reaction, occurrence: Occurrence | None) -> str:
    """Return what a machine does: the row and all that comes of it, or why nothing."""
    outcome = reaction.outcome
    if isinstance(outcome, Taken):
        return _taken(machine, reaction, outcome, other)
    if isinstance(outcome, Refusal) and occurrence is not None:
        return refusal(machine, outcome, occurrence)
    return reaction.words


def _taken(machine: Machine, reaction: Reaction, taken: Taken, other: Reaction) -> str:
    after = taken.configuration
    changed = _changed(machine, reaction.here, after)
    timers = [f"starts {event} of {source}" for source, event in sorted(reaction.timers_started - other.timers_started)]
    final = " (finished)" if reaction.ends and not other.ends else ""
    moved = f"{_row(taken.transition)}{reaction.here.state} -> {after.state}{final}"
    parts = [", ".join(filter(None, (moved, changed))), _effects(taken), ", ".join(timers)]
    return "; ".join(filter(None, parts))


def _row(row: Transition) -> str:
    return f"line {row.span.line}: " if row.span else ""


def refusal(machine: Machine, refused: Refusal, occurrence: Occurrence) -> str:
    """Return why nothing is taken: with the conjuncts that were false, or the rows in question."""
    told = f"refused: {refused.reason} ({refused.message})"
    if refused.reason == "invalid_state":
        false = show_false(rows_at(machine, refused.configuration, occurrence)) if refused.rows else ""
        return f"{told}; {false}" if false else told
    lines = [str(row.span.line) for row in refused.rows if row.span]
    return f"{told}; line {' and '.join(lines)}" if lines else told


# -- runs in flight ---------------------------------------------------------------------------------------------------


def flight_lines(flight: Flight, files: tuple[str, str]) -> Iterator[Line]:
    """Return whether a run may go on, and why not; or what it does otherwise from here on."""
    fit, run = flight.fit, flight.record.run
    events = sum(isinstance(entry, EventEntry) for entry in run.ledger)
    yield fit.verdict, f"{run.run_id}  {run.configuration.state}, {plural(events, 'event')}{_in_short(flight)}"
    if fit.difference is not None and fit.machine is not None:
        for line in difference_lines(fit.machine, fit.difference, files[1]):
            yield "", line
    elif fit.trouble is not None and fit.machine is not None:
        for line in trouble_lines(fit.machine, fit.here, fit.trouble, files[1]):
            yield "", line
    elif fit.verdict == "compatible" and fit.machine is not None and (parting := fit.future and fit.future.divergence):
        head, *rest = _reactions(Pair(run.machine, fit.machine), parting, files)
        yield "", head
        yield from (("", f"  {line}") for line in rest)


def _in_short(flight: Flight) -> str:
    """Say the rest of a run's first line."""
    fit = flight.fit
    if fit.verdict != "compatible" or fit.future is None:
        return f": {fit.why}" if fit.why else ""
    match fit.future.verdict:
        case "EQUAL":
            return ": goes on as it would have"
        case "DIFFERENT":
            assert fit.future.divergence is not None, "what differs does so somewhere"
            way = show_events(fit.future.divergence.way)
            return f": goes on otherwise{f' after {way}' if way else ' at once'}"
    return f": whether it goes on otherwise is UNKNOWN, stopped at {fit.future.limit}"


def trouble_lines(machine: Machine, here: ConfigurationPair | None, trouble: Trouble, file: str) -> Iterator[str]:
    """Yield how a machine comes to a fault."""
    assert here is not None, "a fault lies ahead of where the run is"
    yield from way_lines([machine], [here[1]], trouble.way)
    at = trouble.here.state
    if trouble.occurrence is None or trouble.refusal is None:
        yield f"{len(trouble.way) + 1}  {file}: nothing can go on in {at}: nothing is outstanding, and no event is accepted"
    else:
        told = refusal(machine, trouble.refusal, trouble.occurrence)
        yield f"{len(trouble.way) + 1}  {show_occurrence(trouble.occurrence)} in {at}: {file}: {told}"


# -- in short ---------------------------------------------------------------------------------------------------------


def _counted_runs(diff: Diff) -> str:
    runs = diff.runs
    assert runs is not None, "there are runs to count"
    others = f", and {runs.others} in flight of other machines" if runs.others else ""
    return f"{runs.root}: {len(runs.flights)} in flight of {diff.files[0]}, {runs.finished} finished{others}"


def _summary(diff: Diff) -> str:
    counts = Counter(change.aspect for change in diff.changes)
    told = [f"{counts[aspect]} of {aspect}" for aspect in _HEADINGS if counts[aspect]]
    changed = f"changes: {', '.join(told)}" if told else "no changes"
    at = "" if not diff.compared or not diff.machines[0].parameters else " at the values above"
    parts = [f"{' -> '.join(diff.files)}: {changed}", f"behaviour {diff.verdict}{at}", _fit(diff.runs)]
    return "; ".join(filter(None, parts))


def _fit(runs: RunsInFlight | None) -> str:
    if runs is None or not (runs.flights or runs.damaged):
        return ""
    counts = Counter(flight.fit.verdict for flight in runs.flights)
    counts["UNKNOWN"] += len(runs.damaged)
    told = (f"{counts[each]} {each}" for each in ("compatible", "incompatible", "UNKNOWN") if counts[each])
    return f"runs in flight: {', '.join(told)}"


# -- for programs -------------------------------------------------------------------------------------------------------


def as_json(diff: Diff) -> dict[str, Any]:
    """Return all of it."""
    sides = zip(("old", "new"), diff.files, diff.machines, strict=True)
    return {
        **{side: {"file": file, "machine": machine.name, "digest": digest(machine)} for side, file, machine in sides},
        "changes": [attrs.asdict(change) for change in diff.changes],
        "behaviour": {
            "verdict": diff.verdict,
            "at_all_values": not diff.compared,
            "comparisons": [_compared_json(each) for each in diff.compared],
        },
        "runs": None if diff.runs is None else _runs_json(diff.runs),
    }


def _compared_json(compared: MachineComparison) -> dict[str, Any]:
    pair = compared.pair
    machines = (pair.old.machine, pair.new.machine)
    values = {"old": machines[0].constants, "new": machines[1].constants}
    return {"parameters": values, **_comparison_json(machines, pair.start, compared.found)}


def _comparison_json(machines: Sequence[Machine], here: ConfigurationPair, found: Comparison) -> dict[str, Any]:
    parting = found.divergence
    return {
        "verdict": found.verdict,
        "configurations": found.configurations,
        "limit": found.limit or None,
        "trace": None if parting is None else _way_json(machines, here, parting.way),
        "parting": None if parting is None else _parting_json(machines, parting),
    }


def _parting_json(machines: Sequence[Machine], parting: Divergence) -> dict[str, Any]:
    return {
        **_occurrence_json(parting.occurrence),
        "state": parting.old.here.state,
        "old": _reaction_json(machines[0], parting.old),
        "new": _reaction_json(machines[1], parting.new),
    }


def _reaction_json(machine: Machine, reaction: Reaction) -> dict[str, Any]:
    """Return what one machine does: `line` and what comes of it when a row is taken, `refused` with the reason, or `said`."""
    outcome = reaction.outcome
    if isinstance(outcome, Taken):
        return {
            **_taken_json(machine, outcome),
            "timers": sorted(map(list, reaction.timers_started)),
            "ends": reaction.ends,
        }
    if isinstance(outcome, Refusal):
        return _refusal_json(outcome)
    return {"said": reaction.words}


def _refusal_json(refusal: Refusal) -> dict[str, Any]:
    lines = [row.span.line for row in refusal.rows if row.span]
    return {"refused": refusal.reason, "message": refusal.message, "lines": lines}


def _taken_json(machine: Machine, taken: Taken) -> dict[str, Any]:
    return {
        "line": line_of(taken.transition) or None,
        "state": taken.configuration.state,
        "values": _values(machine, taken.configuration),
        "effects": list(taken.effects),
        "cancelled": list(taken.cancelled),
    }


def _occurrence_json(occurrence: Occurrence | None) -> dict[str, Any]:
    if occurrence is None:
        return {"event": None, "verdicts": {}, "source": None}
    return {"event": occurrence.event, "verdicts": dict(occurrence.verdicts), "source": occurrence.source}


def _way_json(
    machines: Sequence[Machine], here: Sequence[Configuration], way: tuple[Occurrence, ...]
) -> list[dict[str, Any]]:
    """Return the steps that all the machines take alike, with the lines of their rows."""
    found = []
    for occurrence, did in _steps(machines, here, way):
        each = [_taken_json(machine, outcome) for machine, outcome in zip(machines, did, strict=True)]
        found.append({**_occurrence_json(occurrence), **each[-1], "lines": [one["line"] for one in each]})
    return found


def _runs_json(runs: RunsInFlight) -> dict[str, Any]:
    return {
        "directory": str(runs.root),
        "in_flight": [_flight_json(flight) for flight in runs.flights],
        "finished": runs.finished,
        "other_machines": runs.others,
        "unreadable": dict(runs.damaged),
    }


def _flight_json(flight: Flight) -> dict[str, Any]:
    fit, run = flight.fit, flight.record.run
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
            told["fault"] = _trouble_json(fit.machine, fit.here, fit.trouble)
        if fit.future is not None:
            told["future"] = _comparison_json((run.machine, fit.machine), fit.here, fit.future)
    return told


def _trouble_json(machine: Machine, here: ConfigurationPair, trouble: Trouble) -> dict[str, Any]:
    refusal = {} if trouble.refusal is None else _refusal_json(trouble.refusal)
    way = _way_json([machine], [here[1]], trouble.way)
    return {"trace": way, **_occurrence_json(trouble.occurrence), "state": trouble.here.state, **refusal}
