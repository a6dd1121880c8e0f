"""Summaries: the status of each run, written with its commits, so that lists of runs read no ledger."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from dsa.machine import Machine
from dsa.runs.archive import RunRecord
from dsa.runs.place import PART_OF
from dsa.runtime.json_text import text_of
from dsa.runtime.ledger import (
    CallEntry,
    DecidedEntry,
    EffectEntry,
    Entry,
    EventEntry,
    Ledger,
    MachineEntry,
    ResultEntry,
    ResumedEntry,
    RowEntry,
    seq_of,
)
from dsa.runtime.run import Run
from dsa.runtime.run_store import Journal, MessageOutcome, RunSummary, Summary
from dsa.runtime.status import (
    Rest,
    RunStatus,
    UnfinishedWork,
    doubt_of,
    doubted_keys,
    next_due_ms,
    parts,
    places,
    status_of,
    timed_events,
)

_LONGEST_ABOUT = 240
#: The number of entries at the beginning of a run that have its first event among them.
_FIRST = 4
_CUT_OFF = RunStatus("cut off", UnfinishedWork())
#: The statuses that do not follow from a ledger, but from the clock, the inbox, or a person who stopped the run.
BY_THE_STORE = frozenset({"due", "interrupted"})


class SummaryJournal:
    """A `Journal` that also writes the run's summary: whenever the state or the doubts change, and when the run comes to rest.

    The summary of a run under way has the status that applies if its process dies: `in doubt` if a person has to decide then, else `cut off`.
    `current_run` returns the run after the entries that are appended.
    """

    def __init__(self, journal: Journal, run: Run, current_run: Callable[[], Run]) -> None:
        self._journal, self._current_run = journal, current_run
        self._summary = summary_of_run(run, _CUT_OFF)
        self._doubts = _Doubts(run)
        self._is_written = False

    @property
    def run(self) -> str:
        """The run's id."""
        return self._journal.run

    @property
    def epoch(self) -> int:
        """The number of writers that the run has had."""
        return self._journal.epoch

    @property
    def head(self) -> bytes:
        """The hash of the last commit."""
        return self._journal.head

    def append(
        self, entries: Sequence[Entry], summary: Summary | None = None, outcomes: Sequence[MessageOutcome] = ()
    ) -> None:
        """Write entries, the outcomes of messages, and the summary if it has changed."""
        self._journal.append(entries, self._after(entries) if summary is None else summary, outcomes)

    def _after(self, entries: Sequence[Entry]) -> Summary | None:
        """Return the summary after entries; None if the written one is still correct."""
        state, event, in_doubt = self._summary.state, None, self._summary.in_doubt
        doubts = self._doubts
        may_differ = doubts.is_asked
        for entry in entries:
            if type(entry) is EventEntry:
                event = entry
            elif type(entry) is RowEntry:
                state = entry.target
            elif type(entry) is not ResultEntry:
                may_differ = may_differ or doubts.may_change_with(entry)
        if may_differ:
            in_doubt = doubts.of(self._current_run())
        if self._is_written and state == self._summary.state and in_doubt == self._summary.in_doubt:
            return None
        before = self._summary
        self._summary = Summary(
            "in doubt" if in_doubt else "cut off",
            state,
            before.machine,
            before.begun_ms,
            before.changed_ms if event is None else event.at_ms,
            in_doubt=in_doubt,
            about=before.about or ("" if event is None else _text_in(event.data)),
            parent=before.parent,
            events=before.events if event is None else event.seq,
        )
        self._is_written = True
        return self._summary

    def rest(self, rest: Rest) -> None:
        """Write the summary of a rest, and keep holding the run."""
        self._journal.append((), self.summary_at(rest))
        self._is_written = False

    def release(self, summary: Summary | None = None) -> bool:
        """Give up the right to write as `Journal.release` does."""
        self._is_written = False
        return self._journal.release(summary)

    def summary_at(self, rest: Rest) -> Summary:
        """Return the summary of a run at rest."""
        run = rest.run
        if rest.kind != "stopped" and rest.kind != "interrupted":  # noqa: PLR1714  (for the checker of types)
            return summary_of_run(run, RunStatus(rest.kind, UnfinishedWork(), rest.in_doubt))
        summary = summary_of_run(run, status_of(run))
        if rest.kind == "interrupted":
            has_more = summary.status == "cut off" or (summary.status == "waiting" and summary.timers)
            return attrs.evolve(summary, status="interrupted") if has_more else summary
        if summary.status in {"stopped", "in doubt"}:
            return summary
        return attrs.evolve(summary, status="stopped", failure=str(rest.failure)[:_LONGEST_ABOUT])


class _Doubts:
    """The decisions that people would have to make if the process died now. Only effects and calls that ask for one make it read the ledger's end."""

    def __init__(self, run: Run) -> None:
        self._effects_to_ask = _effects_to_ask(run.machine)
        self.is_asked = False
        self._from = 0

    def may_change_with(self, entry: Entry) -> bool:
        """Return whether the doubts may change with this entry."""
        if type(entry) is EffectEntry:
            return entry.effect in self._effects_to_ask
        if type(entry) is CallEntry:
            return entry.in_doubt == "ask"
        return type(entry) is ResumedEntry or type(entry) is DecidedEntry

    def of(self, run: Run) -> Mapping[str, str]:
        """Return the keys of effects and calls in doubt, with their names. Entries before the oldest open effect are not read again."""
        end = attrs.evolve(run, ledger=Ledger(run.ledger.after(self._from))) if self._from else run
        status = status_of(end)
        in_flight = status.left.in_flight
        oldest = min((seq_of(each.intent.key) for each in in_flight), default=run.seq)
        self._from += next(
            (n for n, entry in enumerate(end.ledger) if isinstance(entry, EventEntry) and entry.seq >= oldest), 0
        )
        self.is_asked = any(
            each.intent.effect in self._effects_to_ask or any(call.in_doubt == "ask" for call in each.calls)
            for each in in_flight
        )
        return doubted_keys(end, status.doubts)


def _effects_to_ask(machine: Machine) -> frozenset[str]:
    """Return the effects about which a person must decide if they are in doubt."""
    effects_to_ask: frozenset[str] | None = machine.worked_out.get("asking")
    if effects_to_ask is None:
        effects = machine.effect_named
        effects_to_ask = frozenset(name for name, about in effects.items() if doubt_of(about) == "ask")
        machine.worked_out["asking"] = effects_to_ask
    return effects_to_ask


def summary_of_run(run: Run, status: RunStatus) -> Summary:
    """Return the summary of a run with a status."""
    first = run.ledger[0]
    assert isinstance(first, MachineEntry), "a run begins with its machine"
    is_waiting = status.kind == "waiting"
    return Summary(
        "cut off" if status.kind == "under way" else status.kind,
        state=run.configuration.state,
        machine=first.name,
        begun_ms=first.at_ms,
        changed_ms=_changed_ms(run),
        outcome=run.outcome if status.kind == "finished" else None,
        waits_for=places(run) if is_waiting else {},
        in_doubt=doubted_keys(run, status.doubts),
        due_ms=next_due_ms(run) if is_waiting else None,
        about=next((_text_in(entry.data) for entry in run.ledger[:_FIRST] if isinstance(entry, EventEntry)), ""),
        failure=status.failure[:_LONGEST_ABOUT],
        parent=run.run_id.partition(PART_OF)[0] if PART_OF in run.run_id else None,
        events=run.seq,
        timers=timed_events(run) if is_waiting else (),
        parts=tuple(name for part in parts(run).values() for name in part.runs) if is_waiting else (),
    )


def summary_of_record(record: RunRecord) -> RunSummary:
    """Return the summary of a recorded run."""
    summary = summary_of_run(record.run, record.status)
    return RunSummary(record.run.run_id, len(record.run.ledger), summary, record.status.holder)


def _changed_ms(run: Run) -> int:
    """Return the time of the last event, or of the beginning."""
    for entry in reversed(run.ledger):
        if type(entry) is EventEntry or type(entry) is MachineEntry:
            return entry.at_ms
    return 0


def _text_in(data: Any) -> str:  # noqa: ANN401  (JSON)
    """Return the text of an event's data, in one line: its `about` or `text`, or else the data as JSON."""
    text = data.get("about", data.get("text")) if isinstance(data, dict) else data
    if text is None and data is not None:
        text = text_of(data)
    return " ".join(text[: 4 * _LONGEST_ABOUT].split())[:_LONGEST_ABOUT] if isinstance(text, str) else ""
