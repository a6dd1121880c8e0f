"""Folding what was recorded, quickly: entries that are plainly those of the machine are compared, and not derived one by one.

Takes a machine and recorded entries, gives where they lead. Where it is not plain that an entry is the one which the machine gives, it
stops at the event that led there: `dsa.runtime.run.replay` derives the entries from there and says what is the matter.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from dsa.compiled_step import Move, compiled_step
from dsa.meaning import Configuration, Refusal
from dsa.runtime.ledger import (
    ArtifactEntry,
    CallEntry,
    CallResultEntry,
    DecidedEntry,
    EffectEntry,
    Entry,
    EventEntry,
    Ledger,
    RefusalEntry,
    ResultEntry,
    ResumedEntry,
    RowEntry,
    VerdictEntry,
)
from dsa.runtime.moves import change_keys, changes, places_after, timers_after, views_after
from dsa.runtime.views import StepView
from dsa.uses import SPECIFICATION

if TYPE_CHECKING:
    from dsa.runtime.run import Run

#: Records that change nothing but the ledger.
_ONLY_RECORDED: frozenset[type[Entry]] = frozenset(
    {ResultEntry, ResumedEntry, DecidedEntry, CallEntry, CallResultEntry}
)


class Fold:
    """Where a run is: the fields of `dsa.runtime.run.Run` and the parts of its configuration, put together when somebody asks."""

    def __init__(self, run: "Run") -> None:
        here = run.configuration
        self.state, self.values, self.outstanding = here.state, here.values, here.outstanding
        self.precedence = here.precedence
        self.seq, self.specification = run.seq, run.specification
        self.keys = dict(run.keys)  # its own, and changed in place
        self.timers, self.entered, self.taken, self.read_ms = run.timers, run.entered, run.taken, run.read_ms
        self._before, self._compiled = run, compiled_step(run.machine)
        self._steps = run.steps
        self._said: dict[str, list[ArtifactEntry | VerdictEntry]] = {}  # since the views were put together

    def run(self, ledger: Ledger[Entry]) -> "Run":
        """Return the run as it is now, with this ledger."""
        before = self._before
        return type(before)(
            before.machine,
            before.run_id,
            Configuration(self.state, self.values, self.outstanding, self.precedence),
            ledger,
            self.seq,
            dict(self.keys),
            self.steps,
            self.specification,
            self.timers,
            self.entered,
            self.taken,
            self.read_ms,
        )

    @property
    def steps(self) -> Mapping[str, StepView]:
        """The steps' views."""
        if self._said:
            views = {name: self._steps.get(name) or StepView(name) for name in self._said}
            self._steps = {**self._steps, **{name: view.after(self._said[name]) for name, view in views.items()}}
            self._said = {}
        return self._steps

    def take(self, entries: Sequence[Entry], position: int) -> int:
        """Fold entries from a position on; give the position of the first that was not folded."""
        count = len(entries)
        while position < count:
            entry = entries[position]
            if type(entry) is EventEntry:
                taken = self._take_event(entry, entries, position + 1)
                if not taken:
                    return position
                position += taken
                continue
            if type(entry) not in _ONLY_RECORDED:
                if not (type(entry) is ArtifactEntry or type(entry) is VerdictEntry):
                    return position
                self._said.setdefault(entry.step, []).append(entry)
            position += 1
        return position

    def _take_event(self, event: EventEntry, entries: Sequence[Entry], position: int) -> int:
        """Fold an event with what follows from it, from a position on; give how many entries these are, 0 when it is not plainly they."""
        seq, keys, compiled = self.seq + 1, self.keys, self._compiled
        if event.seq != seq or event.at is not None or event.at_ms < self.read_ms:
            return 0
        if event.key is not None and (
            event.source is not None or event.key != keys.get(compiled.origins.get(event.event, ""))
        ):
            return 0
        moved = compiled.move(self, event)
        if isinstance(moved, Refusal):
            refused = RefusalEntry(moved.reason, moved.message, moved.accepted)
            if position == len(entries) or entries[position] != refused:
                return 0
            self.seq, self.read_ms = seq, event.at_ms
            return 2
        move, values = moved
        steps = self._steps
        accepted: tuple[tuple[str, str], ...] = ()
        if move.finalises is not None or move.revokes or move.event == SPECIFICATION:
            steps, accepted = views_after(move, self.steps)
        changed = changes(move, self.values, values) if move.updated else ()
        place = f"{seq}/"
        if not _follows(entries, position, move, changed, accepted, place):
            return 0
        self.state, self.values, self.outstanding, self.seq = move.target, values, move.outstanding, seq
        self.precedence, self.read_ms = move.precedence, event.at_ms
        if move.started or move.ended:
            change_keys(move, keys, place)
        self._steps = steps
        if move.timers:
            self.timers = timers_after(move, self.timers, event.at_ms)
        self.entered, self.taken = places_after(move, event, self.entered, self.taken)
        if move.event == SPECIFICATION:
            self.specification = event.data
        return 2 + len(move.started)


def _follows(
    entries: Sequence[Entry], position: int, move: Move, changed: object, accepted: object, place: str
) -> bool:
    """Return whether the row of a move stands at a position, and the effects that it starts behind it."""
    started = move.started
    if position + len(started) >= len(entries):
        return False
    row = entries[position]
    if not (
        type(row) is RowEntry
        and row.line == move.line
        and row.source == move.source
        and row.target == move.target
        and row.changed == changed
        and row.accepted == accepted
    ):
        return False
    for ordinal, effect, _ in started:
        position += 1
        asked = entries[position]
        if not (type(asked) is EffectEntry and asked.effect == effect and asked.key == place + ordinal):
            return False
    return True
