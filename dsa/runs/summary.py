"""Summaries: how a run stands, written with its commits, so that lists of runs read no ledger."""

from collections.abc import Sequence
from typing import Any

import attrs

from dsa.runs.folder import PART_OF
from dsa.runtime.journal import Journal, Status, Summary, Taking
from dsa.runtime.ledger import Entry, EventEntry, MachineEntry, RowEntry
from dsa.runtime.rest import Rest
from dsa.runtime.run import Run

_LONGEST_ABOUT = 240


class SummaryJournal:
    """A `Journal` that writes the run's summary beside its entries: whenever its state changes, and when it comes to rest.

    A run under way is `cut off` in it: so it stands if its process dies.
    """

    def __init__(self, journal: Journal, run: Run) -> None:
        self._journal = journal
        first = run.ledger[0]
        assert isinstance(first, MachineEntry), "a run begins with its machine"
        self._now = Summary(
            "cut off",
            state=run.configuration.state,
            machine=first.name,
            begun_ms=first.at_ms,
            changed_ms=first.at_ms,
            about=_about(run.ledger[:_FIRST]),
            parent=run.run_id.partition(PART_OF)[0] if PART_OF in run.run_id else None,
            events=run.seq,
        )
        self._is_told = False

    @property
    def run(self) -> str:
        """The run's id."""
        return self._journal.run

    @property
    def epoch(self) -> int:
        """How often the run has had a writer."""
        return self._journal.epoch

    @property
    def head(self) -> bytes:
        """The hash of the last commit."""
        return self._journal.head

    def append(self, entries: Sequence[Entry], summary: Summary | None = None, taking: Sequence[Taking] = ()) -> None:
        """Write entries, and the summary if it has changed."""
        self._journal.append(entries, self._after(entries) if summary is None else summary, taking)

    def _after(self, entries: Sequence[Entry]) -> Summary | None:
        """Return the summary after entries; None where the one that is written still holds."""
        state, event = self._now.state, None
        for entry in entries:
            if type(entry) is EventEntry:
                event = entry
            elif type(entry) is RowEntry:
                state = entry.target
        if self._is_told and state == self._now.state:
            return None
        about = self._now.about or ("" if event is None else _text_in(event.data))
        seq, at_ms = (self._now.events, self._now.changed_ms) if event is None else (event.seq, event.at_ms)
        self._now = attrs.evolve(self._now, state=state, about=about, events=seq, changed_ms=at_ms)
        self._is_told = True
        return self._now

    def rest(self, rest: Rest) -> None:
        """Write how the run came to rest, and go on holding it."""
        self._journal.append((), self.summary_at(rest))
        self._is_told = False

    def release(self, summary: Summary | None = None) -> None:
        """Give up the right to write."""
        self._journal.release(summary)
        self._is_told = False

    def summary_at(self, rest: Rest) -> Summary:
        """Return the summary of a run at rest."""
        run, status = rest.run, _STATUS[rest.kind]
        self._now = attrs.evolve(
            self._now,
            state=run.configuration.state,
            about=self._now.about or _about(run.ledger[:_FIRST]),
            events=run.seq,
        )
        return attrs.evolve(
            self._now,
            status=status,
            outcome=rest.outcome,
            waits_for=rest.waits_for,
            in_doubt=tuple(intent.key for intent in rest.in_doubt),
            due_ms=rest.due_ms,
            failure="" if rest.failure is None else str(rest.failure)[:_LONGEST_ABOUT],
        )


#: So many entries a run begins with, among which its first event is.
_FIRST = 4
_STATUS: dict[str, Status] = {
    "finished": "finished",
    "waiting": "waiting",
    "stopped": "stopped",
    "in doubt": "in doubt",
    "interrupted": "interrupted",
}


def _about(entries: Sequence[Entry]) -> str:
    return next((_text_in(entry.data) for entry in entries if isinstance(entry, EventEntry)), "")


def _text_in(data: Any) -> str:  # noqa: ANN401  (JSON)
    """Return the text of an event's data, in one line; what a part is about goes before the whole."""
    text = data.get("about", data.get("text")) if isinstance(data, dict) else data
    return " ".join(text[: 4 * _LONGEST_ABOUT].split())[:_LONGEST_ABOUT] if isinstance(text, str) else ""
