"""`dsa diff OLD NEW`: how two tables differ, whether they behave differently, and which runs in flight may go on under the new one.

`compare_machines` compares what two documents declare, and what they do from their starts. `judge_runs` judges the runs in flight of a folder. The
result is a `Diff`, printed for people or as JSON for programs.
"""

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from math import inf
from pathlib import Path

import attrs
import click

from dsa.checks.document_diff import Aspect, Detail, DocumentChange, changes, same_control
from dsa.checks.equivalence import Comparison, ConfigurationPair, Divergence, Pair, Reaction, Trouble, compare
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
    print_json,
    say,
)
from dsa.cli.replay import difference_as_json, difference_lines
from dsa.cli.run_options import machine_record, open_run_folder
from dsa.declarations import Transition
from dsa.edge.document_files import load
from dsa.errors import ParameterError
from dsa.expr import Value
from dsa.lang import digest
from dsa.machine import Machine, minima
from dsa.runs.archive import OtherMachineError, RunRecord
from dsa.runs.door import Runs
from dsa.runs.migration import MAX_STATES, Fit, FitJudge
from dsa.runs.place import DEFAULT_RUNS, LEDGER
from dsa.runtime.ledger import EventEntry
from dsa.runtime.run_store import DamageError
from dsa.semantics import Configuration, Occurrence, Refusal, Taken, step
from dsa.text import plural
from dsa.trace import align_rows, show_events, show_occurrence, show_values


@attrs.frozen
class MachineComparison:
    """The comparison of both machines from their starts, at values of their parameters."""

    pair: Pair
    comparison: Comparison


@attrs.frozen
class Flight:
    """A run in flight, and whether it may go on under the new machine."""

    record: RunRecord
    fit: Fit


@attrs.frozen
class RunsInFlight:
    """The runs of a folder: those of the old machine that are in flight, each judged, and the number of those that are finished.

    `other_count` is the number of runs in flight of other machines. `faults` says for each run that cannot be read why it cannot be read.
    """

    root: Path
    flights: tuple[Flight, ...]
    finished_count: int
    other_count: int
    faults: Mapping[str, str]

    @property
    def fit(self) -> bool:
        """Return whether every run in flight is compatible, and every run could be read."""
        return not self.faults and all(flight.fit.verdict == "compatible" for flight in self.flights)


@attrs.frozen
class Diff:
    """The differences of two documents. `comparisons` is empty if nothing that controls a run has changed."""

    files: tuple[str, str]
    machines: tuple[Machine, Machine]
    changes: tuple[DocumentChange, ...]
    comparisons: tuple[MachineComparison, ...]
    runs: RunsInFlight | None = None

    @property
    def verdict(self) -> str:
        """DIFFERENT if the behaviour differs at some of the compared values, else UNKNOWN if it is so at some, else EQUAL."""
        verdicts = {each.comparison.verdict for each in self.comparisons}
        return next((verdict for verdict in ("DIFFERENT", "UNKNOWN") if verdict in verdicts), "EQUAL")


def compare_machines(
    files: tuple[str, str], machines: tuple[Machine, Machine], parameters: Mapping[str, Value], limits: SearchLimits
) -> Diff:
    """Compare two machines: what they declare, and what they do from their starts. Raises ParameterError."""
    machine_changes, values = changes(*machines), list(valuations(*machines, parameters))
    pairs = () if same_control(machine_changes) else (Pair(*each) for each in values)
    return Diff(
        files,
        machines,
        machine_changes,
        tuple(MachineComparison(pair, compare(pair, pair.start, limits)) for pair in pairs),
    )


def valuations(old: Machine, new: Machine, parameters: Mapping[str, Value]) -> Iterator[tuple[Machine, Machine]]:
    """Yield both machines at the values to compare: the given ones; else each at its defaults, both at the old defaults, each at its minima.

    A parameter that only one of them has is set only there. Raises ParameterError for a name that neither has.
    """
    if parameters:
        for name in parameters:
            if not _has(old, name) and not _has(new, name):
                old.at({name: parameters[name]})  # raises an error with the names of the parameters
        yield _set(old, parameters), _set(new, parameters)
        return
    pairs = [(old, new), (old, _at_others(new, old)), (old.at(minima(old)), new.at(minima(new)))]
    for place, pair in enumerate(pairs):
        if pair not in pairs[:place]:
            yield pair


def _at_others(machine: Machine, other: Machine) -> Machine:
    """Return a machine at another's values, as far as they are in its own domains."""
    for name, value in other.constants.items():
        try:
            machine = _set(machine, {name: value})
        except ParameterError:
            continue  # the machine cannot run at this value
    return machine


def _has(machine: Machine, name: str) -> bool:
    return any(p.name == name or p.name.startswith(f"{name}.") for p in machine.parameters)


def _set(machine: Machine, values: Mapping[str, Value]) -> Machine:
    return machine.at({name: value for name, value in values.items() if _has(machine, name)})


# -- runs in flight ---------------------------------------------------------------------------------------------------


def judge_runs(root: Path, machines: tuple[Machine, Machine], limits: SearchLimits) -> RunsInFlight:
    """Judge the runs of the old machine that are kept in a folder. Raises CommandExit, and DocumentError when no run is kept there."""
    judge, flights, faults = FitJudge(machines[1], limits), list[Flight](), dict[str, str]()
    finished_count = others = 0
    with open_run_folder(root) as runs:
        for run in runs.ids():
            record = _record(runs, run)
            if isinstance(record, str):
                faults[run] = record
            elif not _is_of(record, machines[0]):
                others += record.status.kind != "finished"
            elif record.status.kind == "finished":
                finished_count += 1
            else:
                flights.append(Flight(record, judge.judge(record.run)))
    return RunsInFlight(root, tuple(flights), finished_count, others, faults)


def _record(runs: Runs, run: str) -> RunRecord | str:
    """Read a run; return why it cannot be read if it cannot."""
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
    """Return whether a run is of a machine, apart from properties and scenarios."""
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
@click.option(
    "--runs",
    "root",
    metavar="DIR",
    help="Look for unfinished runs in this folder. The exit code then depends only on these runs.",
)
@param_option("Compare only at this value of the parameter NAME. Repeat the option for other parameters.")
@max_states_option(MAX_STATES)
@click.option("--time-limit", type=SECONDS, metavar="S", help="Stop searching after S seconds in all.")
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
    """Show how NEW differs from OLD, whether NEW behaves differently, and which unfinished runs of OLD can go on under NEW.

    Unfinished runs are looked for in .dsa, or in the folder given with --runs. Exit code 0: NEW behaves the same, and every unfinished run is compatible; 1: one
    of these is false or UNKNOWN; 2: a file cannot be read. With --runs, the exit code depends only on the runs.
    """
    diff = _compare_files((old, new), root, parameters, max_states, time_limit)
    if json_wanted:
        print_json(as_json(diff))
    else:
        print_diff(diff)
    sys.exit(exit_code(diff, by_runs=root is not None))


def exit_code(diff: Diff, *, by_runs: bool) -> int:
    """Return the exit code; with `by_runs`, only the runs decide it."""
    is_fit = diff.runs is None or diff.runs.fit
    return int(not (is_fit and (by_runs or diff.verdict == "EQUAL")))


def _compare_files(
    files: tuple[str, str], root: str | None, parameters: tuple[str, ...], max_states: int, time_limit_s: float | None
) -> Diff:
    machines = load(files[0]), load(files[1])
    values = parse_parameters(parameters)
    with ProgressLine("comparing rows") as progress:
        limits = SearchLimits(max_states, _deadline_check(time_limit_s), progress)
        diff = compare_machines(files, machines, values, limits)
        folder = Path(root or DEFAULT_RUNS)
        if root is None and not (folder / LEDGER).is_file():
            return diff
        return attrs.evolve(diff, runs=judge_runs(folder, machines, limits))


def _deadline_check(time_limit_s: float | None) -> Callable[[], bool]:
    ends_s = inf if time_limit_s is None else time.monotonic() + time_limit_s
    return lambda: time.monotonic() >= ends_s


_COLOURS = {"EQUAL": "green", "DIFFERENT": "red", "UNKNOWN": "yellow", "compatible": "green", "incompatible": "red"}
_WIDTH = len("DIFFERENT")
_RUN_WIDTH = len("incompatible")
_HEADINGS: dict[Aspect, str] = {"control": "control", "content": "the same control, other content", "claims": "claims"}
_LONGEST = 60


def print_diff(diff: Diff) -> None:
    """Print the differences."""
    for line in change_lines(diff.changes):
        _say(line)
    for verdict, line in behaviour_lines(diff):
        _say(line, verdict, _WIDTH)
    if diff.runs is not None:
        _say(_counted_runs(diff))
        for flight in diff.runs.flights:
            for verdict, line in flight_lines(flight, diff.files):
                _say(line, verdict, _RUN_WIDTH)
        for fault in diff.runs.faults.values():
            _say(fault, "UNKNOWN", _RUN_WIDTH)
    _say(_summary(diff))


def _say(line: str, verdict: str | None = None, width: int = 0) -> None:
    """Print a line after a verdict in its column; an empty verdict gives spaces, and None no column."""
    if verdict is None:
        say(line.rstrip())
    else:
        say(ColouredWord(verdict.ljust(width), _COLOURS.get(verdict)), f"  {line}".rstrip())


# -- declarations ----------------------------------------------------------------------------------------------------


def change_lines(changes: Iterable[DocumentChange]) -> Iterator[str]:
    """Yield the changes under a heading for each aspect, each with its different fields below it."""
    for aspect, group in groupby(changes, lambda change: change.aspect):
        group_changes = list(group)
        yield f"{_HEADINGS[aspect]}:"
        cells = [
            (change.kind, change.what, change.name, _lines(change.old_line, change.new_line))
            for change in group_changes
        ]
        for change, line in zip(group_changes, align_rows(cells), strict=True):
            yield f"  {line}"
            yield from (f"      {detail}" for detail in align_rows(map(_detail, change.details)))


def _detail(detail: Detail) -> tuple[str, ...]:
    old, new = _cell_text(detail.old), _cell_text(detail.new)
    if not detail.old or not detail.new:
        sign = "+" if detail.new else "-"
        return detail.field, f"{sign} {new if detail.new else old}"
    return detail.field, f"{old}  ->  {new}" if old != new else "another text"


def _cell_text(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= _LONGEST else f"{flat[: _LONGEST - 3]}..."


def _lines(old: int | None, new: int | None) -> str:
    """Return a line in both documents: `line 4 -> 5`, or `line 4` if it is the same."""
    if old is None or new is None or old == new:
        return "" if old is None and new is None else f"line {new if old is None else old}"
    return f"line {old} -> {new}"


# -- behaviour --------------------------------------------------------------------------------------------------------

#: A verdict, or "" for as much space, and a line after it.
Line = tuple[str, str]


def behaviour_lines(diff: Diff) -> Iterator[Line]:
    """Yield the verdict for each comparison from the starts, and the steps to the first difference."""
    if not diff.comparisons:
        everywhere = ", at all values of the parameters" if diff.machines[0].parameters else ""
        yield "EQUAL", f"nothing that controls a run is different{everywhere}"
    for each in diff.comparisons:
        at = _at(each, diff.files[1])
        yield each.comparison.verdict, f"{at}{_comparison_text(each.comparison)}"
        for line in parting_lines(each.pair, each.pair.start, each.comparison.divergence, diff.files):
            yield "", line


def _at(comparison: MachineComparison, file: str) -> str:
    """Return the values of the parameters as text, and those of the new document that differ."""
    old, new = comparison.pair.old.machine.constants, comparison.pair.new.machine.constants
    other = {name: value for name, value in new.items() if old.get(name) != value}
    values = [show_values(old.items())] if old else []
    values += [f"{file}: {show_values(other.items())}"] if other else []
    return f"at {'; '.join(values)}: " if values else ""


def _comparison_text(comparison: Comparison) -> str:
    if comparison.divergence is not None:
        return _after(comparison.divergence)
    some = plural(comparison.configurations, "configuration")
    return f"{some}, stopped at {comparison.limit}" if comparison.verdict == "UNKNOWN" else some


def _after(divergence: Divergence) -> str:
    if divergence.occurrence is None:
        return "at once"
    return f"in step {len(divergence.way) + 1}"


def parting_lines(
    pair: Pair, here: ConfigurationPair, divergence: Divergence | None, files: tuple[str, str]
) -> Iterator[str]:
    """Yield the steps that two machines share until they differ, and what each does then."""
    if divergence is not None:
        yield from way_lines((pair.old.machine, pair.new.machine), here, divergence.way)
        head, *rest = _reactions(pair, divergence, files)
        yield f"{len(divergence.way) + 1}  {head}" if divergence.occurrence is not None else head
        yield from (f"   {line}" for line in rest)


def _reactions(pair: Pair, divergence: Divergence, files: tuple[str, str]) -> Iterator[str]:
    """Yield the event after which two machines differ, and what each does with it."""
    occurrence = divergence.occurrence
    beginning = "before anything happens"
    if occurrence is not None:
        beginning = f"{show_occurrence(occurrence)} in {divergence.old.here.state}"
    yield f"{beginning}:"
    width = max(map(len, files))
    sides = ((pair.old.machine, divergence.old, divergence.new), (pair.new.machine, divergence.new, divergence.old))
    for file, (machine, reaction, other) in zip(files, sides, strict=True):
        yield f"{file:<{width}}  {_reaction(machine, reaction, other, occurrence)}"


def way_lines(machines: Sequence[Machine], here: Sequence[Configuration], way: tuple[Occurrence, ...]) -> Iterator[str]:
    """Yield the steps that machines take alike, with the lines of their rows. Values and changes are those of the last machine."""
    now, machine = list(here), machines[-1]
    beginning = "from here" if any(at.outstanding for at in here) else "start"
    cells = [("0", beginning, now[-1].state, "", show_values(_values(machine, now[-1]).items()), "")]
    for number, (occurrence, did) in enumerate(_steps(machines, here, way), 1):
        lines = [line_of(outcome.transition) or None for outcome in did]
        change_text = _change_text(machine, now[-1], did[-1].configuration)
        now = [outcome.configuration for outcome in did]
        row = (show_occurrence(occurrence), now[-1].state, _lines(lines[0], lines[-1]), change_text, _effects(did[-1]))
        cells.append((str(number), *row))
    yield from align_rows(cells)


def _steps(
    machines: Sequence[Machine], here: Sequence[Configuration], way: Iterable[Occurrence]
) -> Iterator[tuple[Occurrence, list[Taken]]]:
    """Yield the results of each machine for each step of a way that all of them take."""
    for occurrence in way:
        taken = [step(machine, at, occurrence) for machine, at in zip(machines, here, strict=True)]
        did = [outcome for outcome in taken if isinstance(outcome, Taken)]
        assert len(did) == len(taken), "the search and `step` agree"
        yield occurrence, did
        here = [outcome.configuration for outcome in did]


def _values(machine: Machine, here: Configuration) -> dict[str, Value]:
    """Return the variables' values by name."""
    return dict(zip((variable.name for variable in machine.variables), here.values, strict=True))


def _change_text(machine: Machine, before: Configuration, after: Configuration) -> str:
    triples = zip(machine.variables, before.values, after.values, strict=True)
    return show_values((variable.name, new) for variable, old, new in triples if old != new)


def _effects(taken: Taken) -> str:
    return ", ".join([*taken.effects, *(f"cancelled {effect}" for effect in taken.cancelled)])


def _reaction(machine: Machine, reaction: Reaction, other: Reaction, occurrence: Occurrence | None) -> str:
    """Return what a machine does, as text: the row with its changes and effects, or the reason for the refusal."""
    outcome = reaction.outcome
    if isinstance(outcome, Taken):
        return _taken(machine, reaction, outcome, other)
    if isinstance(outcome, Refusal) and occurrence is not None:
        return refusal(machine, outcome, occurrence)
    return reaction.words


def _taken(machine: Machine, reaction: Reaction, taken: Taken, other: Reaction) -> str:
    after = taken.configuration
    change_text = _change_text(machine, reaction.here, after)
    timers = [f"starts {event} of {source}" for source, event in sorted(reaction.timers_started - other.timers_started)]
    final = " (finished)" if reaction.ends and not other.ends else ""
    move = f"{_row(taken.transition)}{reaction.here.state} -> {after.state}{final}"
    parts = [", ".join(filter(None, (move, change_text))), _effects(taken), ", ".join(timers)]
    return "; ".join(filter(None, parts))


def _row(row: Transition) -> str:
    return f"line {row.span.line}: " if row.span else ""


def refusal(machine: Machine, result: Refusal, occurrence: Occurrence) -> str:
    """Return why an event is refused, with the conjuncts that were false, or the lines of the rows."""
    message = f"refused: {result.reason} ({result.message})"
    if result.reason == "invalid_state":
        false = show_false(rows_at(machine, result.configuration, occurrence)) if result.rows else ""
        return f"{message}; {false}" if false else message
    lines = [str(row.span.line) for row in result.rows if row.span]
    return f"{message}; line {' and '.join(lines)}" if lines else message


# -- runs in flight ---------------------------------------------------------------------------------------------------


def flight_lines(flight: Flight, files: tuple[str, str]) -> Iterator[Line]:
    """Yield whether a run may go on, and why not, or how it goes on differently."""
    fit, run = flight.fit, flight.record.run
    events = sum(isinstance(entry, EventEntry) for entry in run.ledger)
    yield fit.verdict, f"{run.run_id}  {run.configuration.state}, {plural(events, 'event')}{_in_short(flight)}"
    if fit.difference is not None and fit.machine is not None:
        for line in difference_lines(fit.machine, fit.difference, files[1]):
            yield "", line
    elif fit.trouble is not None and fit.machine is not None:
        for line in trouble_lines(fit.machine, fit.here, fit.trouble, files[1]):
            yield "", line
    elif (
        fit.verdict == "compatible" and fit.machine is not None and (divergence := fit.future and fit.future.divergence)
    ):
        head, *rest = _reactions(Pair(run.machine, fit.machine), divergence, files)
        yield "", head
        yield from (("", f"  {line}") for line in rest)


def _in_short(flight: Flight) -> str:
    """Return the rest of a run's first line."""
    fit = flight.fit
    if fit.verdict != "compatible" or fit.future is None:
        return f": {fit.why}" if fit.why else ""
    match fit.future.verdict:
        case "EQUAL":
            return ": goes on as before"
        case "DIFFERENT":
            assert fit.future.divergence is not None, "a difference has a place"
            way = show_events(fit.future.divergence.way)
            return f": goes on differently{f' after {way}' if way else ' at once'}"
    return f": it is UNKNOWN whether the run goes on differently; the search stopped at {fit.future.limit}"


def trouble_lines(machine: Machine, here: ConfigurationPair | None, trouble: Trouble, file: str) -> Iterator[str]:
    """Yield the steps to a fault of a machine, and the fault."""
    assert here is not None, "a fault lies ahead of where the run is"
    yield from way_lines([machine], [here[1]], trouble.way)
    at = trouble.here.state
    if trouble.occurrence is None or trouble.refusal is None:
        yield f"{len(trouble.way) + 1}  {file}: the run cannot go on in {at}, because nothing is outstanding and no event is accepted"
    else:
        reason = refusal(machine, trouble.refusal, trouble.occurrence)
        yield f"{len(trouble.way) + 1}  {show_occurrence(trouble.occurrence)} in {at}: {file}: {reason}"


# -- in short ---------------------------------------------------------------------------------------------------------


def _counted_runs(diff: Diff) -> str:
    runs = diff.runs
    assert runs is not None, "there are runs to count"
    others = f"; runs in flight of other machines: {runs.other_count}" if runs.other_count else ""
    return f"{runs.root}: runs in flight of {diff.files[0]}: {len(runs.flights)}; finished runs: {runs.finished_count}{others}"


def _summary(diff: Diff) -> str:
    counts = Counter(change.aspect for change in diff.changes)
    counts_text = [f"{counts[aspect]} of {aspect}" for aspect in _HEADINGS if counts[aspect]]
    changes_text = f"changes: {', '.join(counts_text)}" if counts_text else "no changes"
    at = "" if not diff.comparisons or not diff.machines[0].parameters else " at the values above"
    parts = [f"{' -> '.join(diff.files)}: {changes_text}", f"behaviour {diff.verdict}{at}", _fit(diff.runs)]
    return "; ".join(filter(None, parts))


def _fit(runs: RunsInFlight | None) -> str:
    if runs is None or not (runs.flights or runs.faults):
        return ""
    counts = Counter(flight.fit.verdict for flight in runs.flights)
    counts["UNKNOWN"] += len(runs.faults)
    parts = (f"{counts[each]} {each}" for each in ("compatible", "incompatible", "UNKNOWN") if counts[each])
    return f"runs in flight: {', '.join(parts)}"


# -- for programs -------------------------------------------------------------------------------------------------------


def as_json(diff: Diff) -> dict[str, object]:
    """Return the differences as one object."""
    sides = zip(("old", "new"), diff.files, diff.machines, strict=True)
    return {
        **{side: {"file": file, "machine": machine.name, "digest": digest(machine)} for side, file, machine in sides},
        "changes": [attrs.asdict(change) for change in diff.changes],
        "behaviour": {
            "verdict": diff.verdict,
            "at_all_values": not diff.comparisons,
            "comparisons": [_compared_json(each) for each in diff.comparisons],
        },
        "runs": None if diff.runs is None else _runs_json(diff.runs),
    }


def _compared_json(comparison: MachineComparison) -> dict[str, object]:
    pair = comparison.pair
    machines = (pair.old.machine, pair.new.machine)
    values = {"old": machines[0].constants, "new": machines[1].constants}
    return {"parameters": values, **_comparison_json(machines, pair.start, comparison.comparison)}


def _comparison_json(machines: Sequence[Machine], here: ConfigurationPair, comparison: Comparison) -> dict[str, object]:
    divergence = comparison.divergence
    return {
        "verdict": comparison.verdict,
        "configurations": comparison.configurations,
        "limit": comparison.limit or None,
        "trace": None if divergence is None else _way_json(machines, here, divergence.way),
        "parting": None if divergence is None else _parting_json(machines, divergence),
    }


def _parting_json(machines: Sequence[Machine], divergence: Divergence) -> dict[str, object]:
    return {
        **_occurrence_json(divergence.occurrence),
        "state": divergence.old.here.state,
        "old": _reaction_json(machines[0], divergence.old),
        "new": _reaction_json(machines[1], divergence.new),
    }


def _reaction_json(machine: Machine, reaction: Reaction) -> dict[str, object]:
    """Return what a machine does as an object: the row with its changes, `refused` with the reason, or `said`."""
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


def _refusal_json(refusal: Refusal) -> dict[str, object]:
    lines = [row.span.line for row in refusal.rows if row.span]
    return {"refused": refusal.reason, "message": refusal.message, "lines": lines}


def _taken_json(machine: Machine, taken: Taken) -> dict[str, object]:
    return {
        "line": line_of(taken.transition) or None,
        "state": taken.configuration.state,
        "values": _values(machine, taken.configuration),
        "effects": list(taken.effects),
        "cancelled": list(taken.cancelled),
    }


def _occurrence_json(occurrence: Occurrence | None) -> dict[str, object]:
    if occurrence is None:
        return {"event": None, "verdicts": {}, "source": None}
    return {"event": occurrence.event, "verdicts": dict(occurrence.verdicts), "source": occurrence.source}


def _way_json(
    machines: Sequence[Machine], here: Sequence[Configuration], way: tuple[Occurrence, ...]
) -> list[dict[str, object]]:
    """Return the steps that all machines take alike, with the lines of their rows."""
    steps = []
    for occurrence, did in _steps(machines, here, way):
        each = [_taken_json(machine, outcome) for machine, outcome in zip(machines, did, strict=True)]
        steps.append({**_occurrence_json(occurrence), **each[-1], "lines": [one["line"] for one in each]})
    return steps


def _runs_json(runs: RunsInFlight) -> dict[str, object]:
    return {
        "directory": str(runs.root),
        "in_flight": [_flight_json(flight) for flight in runs.flights],
        "finished": runs.finished_count,
        "other_machines": runs.other_count,
        "unreadable": dict(runs.faults),
    }


def _flight_json(flight: Flight) -> dict[str, object]:
    fit, run = flight.fit, flight.record.run
    report: dict[str, object] = {
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
        report["history"] = difference_as_json(fit.machine, fit.difference)
    if fit.machine is not None and fit.here is not None:
        if fit.trouble is not None:
            report["fault"] = _trouble_json(fit.machine, fit.here, fit.trouble)
        if fit.future is not None:
            report["future"] = _comparison_json((run.machine, fit.machine), fit.here, fit.future)
    return report


def _trouble_json(machine: Machine, here: ConfigurationPair, trouble: Trouble) -> dict[str, object]:
    refusal = {} if trouble.refusal is None else _refusal_json(trouble.refusal)
    way = _way_json([machine], [here[1]], trouble.way)
    return {"trace": way, **_occurrence_json(trouble.occurrence), "state": trouble.here.state, **refusal}
