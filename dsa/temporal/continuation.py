"""Continuations: a run that continues in a new execution of its workflow, because the history of the previous one has grown long.

The next execution begins with the run's configuration, its keys and deadlines, and those entries of its ledger that its driver may still read: the
rest of the story is in pages (`dsa.temporal.story_pages`). So neither a history nor the memory of a workflow grows with the run.

An execution ends only while no effect and no guard is at work, because activities end with it. `WorkGate` waits for such a moment: when the history
is long, it holds effects back while nothing else is at work, and when it is very long, it holds all of them back.
"""

from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import attrs
from temporalio import workflow

from dsa.data_use import guard_uses, uses
from dsa.declarations import Reference
from dsa.edge.binding import performed_effects
from dsa.machine import Machine
from dsa.runtime.artifacts import MemoryArtifacts
from dsa.runtime.costs import Meter, counters
from dsa.runtime.ledger import (
    ArtifactEntry,
    ChangeEntry,
    Entry,
    EventEntry,
    Ledger,
    MachineEntry,
    RefusalEntry,
    ResumedEntry,
    RowEntry,
    VerdictEntry,
    from_json,
    seq_of,
)
from dsa.runtime.run import Rejection, Run, StepView
from dsa.runtime.status import UnfinishedWork, unfinished_work
from dsa.temporal import payloads, search_attributes
from dsa.temporal.payloads import Json

#: The number of history events after which a server suggests a new execution.
_USUAL_LENGTH = 4_096
#: The factor by which a history may become longer than that before effects no longer begin.
_LIMIT_FACTOR = 3


class WorkGate:
    """The effects and guards that are at work, and the gate through which effects begin.

    `most_events` is the length from which a history is long; None means that the server decides. While `may_close` is false, all effects begin.
    With `must_end`, the execution must end whatever its length.
    """

    def __init__(self, most_events: int | None, may_close: Callable[[], bool]) -> None:
        self._most_events, self._may_close = most_events, may_close
        self._count = 0
        self.must_end = False

    @property
    def is_due(self) -> bool:
        """Return whether the run should continue in a new execution."""
        if self.must_end:
            return True
        info, most = workflow.info(), self._most_events
        is_long = info.is_continue_as_new_suggested() if most is None else info.get_current_history_length() >= most
        return is_long and self._may_close()

    @property
    def is_free(self) -> bool:
        """Return whether the run can continue in a new execution now, and should."""
        return not self._count and self.is_due

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Count work that must end before the execution does."""
        self._count += 1
        try:
            yield
        finally:
            self._count -= 1

    @asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        """Wait until an effect may begin, and count it as work. This may wait for ever; then the next execution begins the effect."""
        if self.is_due and (not self._count or self._is_pressing):
            await workflow.wait_condition(lambda: not self.is_due)
        search_attributes.show_under_way()
        with self.at_work():
            yield

    @property
    def _is_pressing(self) -> bool:
        return workflow.info().get_current_history_length() >= _LIMIT_FACTOR * (self._most_events or _USUAL_LENGTH)


@attrs.frozen
class Continuation:
    """The beginning of an execution that continues a run.

    `run` has the fields of the run, `entries` the rest of its ledger, `artifacts` those that guards may still ask for. `costs` has what budgets have
    counted, and `counts` the counters, both without the entries. `story` is the position in the story. `inbox` has the events from outside
    that are still to be taken, with the ids of their messages, and `outcomes` those of messages whose senders may ask again. `rest` says why the
    run rests, if it does. `machines` are the machines that the run had before this one, the first one first, each with its `text`, `digest` and
    `parameters`. `is_resumed` means that the run has just been resumed, and what was under way is in doubt.
    """

    run: Json
    entries: tuple[Json, ...]
    artifacts: tuple[Json, ...]
    costs: tuple[tuple[str, str, float], ...]
    counts: Mapping[str, Mapping[str, int]]
    story: Json
    inbox: tuple[Json, ...]
    outcomes: Json
    rest: Json | None
    is_called: bool
    machines: tuple[Json, ...] = ()
    is_resumed: bool = False

    def restored_run(self, machine: Machine, run_id: str) -> Run:
        """Return the run, with the rest of its ledger."""
        fields = self.run
        return Run(
            machine,
            run_id,
            payloads.configuration_from(fields["configuration"]),
            Ledger(from_json(each) for each in self.entries),
            fields["seq"],
            dict(fields["keys"]),
            {view["name"]: _view_from(view) for view in fields["steps"]},
            fields["specification"],
            {(source, event): due_ms for source, event, due_ms in fields["timers"]},
            fields["entered_seq"],
            dict(fields["taken_seqs"]),
            fields["read_ms"],
            dict(fields["sleeps"]),
        )


def run_to_json(run: Run) -> Json:
    """Return the fields of a run, without its machine and its ledger, as a JSON object."""
    return {
        "configuration": payloads.configuration_to_json(run.configuration),
        "seq": run.seq,
        "keys": list(run.keys.items()),
        "steps": [
            {**attrs.asdict(view, recurse=False), "history": _as_dicts(view.history)} for view in run.steps.values()
        ],
        "specification": run.specification,
        "timers": [(source, event, due_ms) for (source, event), due_ms in run.timers.items()],
        "entered_seq": run.entered_seq,
        "taken_seqs": dict(run.taken_seqs),
        "read_ms": run.read_ms,
        "sleeps": list(run.sleeps.items()),
    }


def _as_dicts(values: Iterable[Any]) -> list[Json]:
    return [attrs.asdict(each) for each in values]


def _view_from(fields: Mapping[str, Any]) -> StepView:
    history = Ledger(Rejection(**each) for each in fields["history"])
    return StepView(**{**fields, "history": history, "redacted": tuple(fields["redacted"])})


def work_ahead(run: Run) -> UnfinishedWork:
    """Return the work with which the next execution continues: what the previous one began is done, so nothing is in doubt."""
    left = unfinished_work(run)
    waiting_effects = (attrs.evolve(each, in_doubt=False, has_failed=False) for each in left.in_flight)
    return attrs.evolve(left, in_flight=tuple(waiting_effects))


def entries_ahead(run: Run) -> Ledger[Entry]:
    """Return the entries that a driver may still read: those of unfinished effects, and the data that prompts and guards may ask for."""
    left = unfinished_work(run)
    intents = (*(each.intent for each in left.in_flight), *(intent for intent, _ in left.answers))
    open_keys = {*run.keys, *(each.key for each in intents)}
    seqs = {*map(seq_of, open_keys)}
    seqs |= _seqs_of_data(run, (*seqs, run.seq))
    entries, event = list[Entry](), EventEntry(0, "")
    last_session, last_verdict = _last(run.ledger, ResumedEntry), _last(run.ledger, VerdictEntry)
    for entry in run.ledger:
        match entry:
            case EventEntry():
                event = entry
            case RowEntry() if event.seq in seqs:
                entries += [event, entry]
            case ResumedEntry(effects=effects, calls=calls):
                open_effects = tuple((key, handling) for key, handling in effects if key in open_keys)
                if open_effects or entry is last_session:
                    open_calls = tuple(pair for pair in calls if "/".join(pair[0].split("/")[:2]) in open_keys)
                    entries.append(attrs.evolve(entry, effects=open_effects, calls=open_calls))
            case VerdictEntry():
                entries += [entry] if entry is last_verdict else []
            case RowEntry() | RefusalEntry() | ArtifactEntry() | ChangeEntry():
                pass
            case MachineEntry():
                entries.append(entry)
            case _:
                entries += [entry] if entry.key in open_keys else []
    return Ledger(entries)


def _last(ledger: Ledger[Entry], kind: type[Entry]) -> Entry | None:
    return next((entry for entry in reversed(ledger) if type(entry) is kind), None)


def _seqs_of_data(run: Run, moments: Iterable[int]) -> set[int]:
    """Return the numbers of the events whose data may be read at some moments, which are numbers of events, or later."""
    taken_seqs: dict[str, list[int]] = {}
    event = EventEntry(0, "")
    for entry in run.ledger:
        if type(entry) is EventEntry:
            event = entry
        elif type(entry) is RowEntry:
            taken_seqs.setdefault(event.event, []).append(event.seq)
    seqs = set[int]()
    for moment in moments:
        for reference in _references(run.machine):
            seqs |= _seqs_of(reference, taken_seqs, moment)
    return seqs


def _seqs_of(reference: Reference, taken_seqs: Mapping[str, list[int]], moment: int) -> set[int]:
    """Return the numbers of the events of one reference, as of one moment: the newest one, or all since another event."""
    its = [seq for seq in taken_seqs.get(reference.event, ()) if seq <= moment]
    since = [seq for seq in taken_seqs.get(reference.since or "", ()) if seq <= moment][-1:]
    if not reference.is_all:
        return {*its[-1:], *since}
    return {seq for seq in its if not since or seq >= since[0]} | {*since}


def _references(machine: Machine) -> tuple[Reference, ...]:
    """Return every reference to data of events in a machine."""
    references: tuple[Reference, ...] | None = machine.worked_out.get("references")
    if references is None:
        pairs = ((guard.name, event.name) for guard in machine.guards for event in machine.events)
        of_guards = [each for pair in pairs for _, _, each in guard_uses(machine, *pair)]
        references = tuple(dict.fromkeys([*(use.reference for use in uses(machine)), *of_guards]))
        machine.worked_out["references"] = references
    return references


def artifacts_ahead(run: Run, artifacts: MemoryArtifacts) -> tuple[Json, ...]:
    """Return the records of the newest and of the accepted artifact of each step, in the order in which they were stored."""
    ids = {each for view in run.steps.values() for each in (view.latest, view.accepted)}
    return tuple(
        payloads.artifact_record(artifacts.get_artifact(each.artifact_id), each.author, each.run_id)
        for each in artifacts.attempts()
        if each.artifact_id in ids
    )


Costs = Mapping[tuple[str, str], float]


def costs_before(run: Run, costs: Costs, ahead: Ledger[Entry]) -> tuple[tuple[str, str, float], ...]:
    """Return what budgets have counted in total, including `costs`, without the entries that are counted again."""
    whole, part = (Meter((), performed_effects(run.machine)) for _ in range(2))
    whole.begin_with(costs)
    whole.follow(run.ledger)
    part.follow(ahead)
    again = part.amounts
    return tuple((*scope, amount - again.get(scope, 0)) for scope, amount in whole.amounts.items())


Counts = Mapping[str, Mapping[str, int]]


def counts_before(counts: Counts, ledger: Ledger[Entry], ahead: Ledger[Entry]) -> dict[str, dict[str, int]]:
    """Return the counters of everything that happened, including `counts`, without the entries that are counted again."""
    again = counters(ahead)
    sums = all_counts(counts, ledger)
    return {kind: dict(Counter(names) - Counter(again.get(kind, {}))) for kind, names in sums.items()}


def all_counts(counts: Counts, ledger: Ledger[Entry]) -> dict[str, dict[str, int]]:
    """Return the counters of a ledger, added to earlier ones."""
    here = counters(ledger)
    kinds = dict.fromkeys((*counts, *here))
    sums = {kind: Counter(counts.get(kind, {})) + Counter(here.get(kind, {})) for kind in kinds}
    return {kind: dict(sorted(names.items())) for kind, names in sums.items() if names}
