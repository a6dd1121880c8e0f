"""Held runs: a run with its driver, written by this process while it holds it."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any
from weakref import WeakValueDictionary

import attrs

from dsa.edge.clock import Clock
from dsa.edge.driver import Driver
from dsa.edge.logs import LedgerLog
from dsa.meaning import Occurrence, Refusal, Taken
from dsa.runs.folder import RunFolder
from dsa.runs.inbox import InboxReader, RunInbox
from dsa.runs.place import Place
from dsa.runs.record import replayed
from dsa.runs.setup import Setup, Source
from dsa.runs.summary import SummaryJournal
from dsa.runs.watchers import Watchers
from dsa.runtime.intents import Intent
from dsa.runtime.journal import Journal, MessagesWaitError, Recorded, StoreError
from dsa.runtime.ledger import Entry, ResumedEntry
from dsa.runtime.moment import Moment, OnMoment, Piece
from dsa.runtime.recovery import Unfinished, unfinished
from dsa.runtime.rest import Rest
from dsa.runtime.run import Command, Run
from dsa.runtime.standing import parts, places


@attrs.frozen
class Setting:
    """What surrounds a run: the place that keeps it, its clock, who watches it.

    `held` are the runs that this process holds, `known` those of which it has a handle, `sources` the bindings of runs that it has begun with objects.
    """

    place: Place
    clock: Clock | None
    on_moment: OnMoment | None
    held: dict[str, Any]
    log: LedgerLog | None = None
    known: "WeakValueDictionary[str, Any]" = attrs.field(factory=WeakValueDictionary)
    sources: dict[str, Source] = attrs.field(factory=dict)
    inbox: InboxReader | None = None


class HeldRun:
    """A run and its driver. `artifacts` is what it generated, `folder` its folder for people (None in memory).

    While it is released another process may hold it; held again, it goes on from where that one has got. Observers see every moment once.
    """

    def __init__(
        self,
        setting: Setting,
        setup: Setup,
        run: Run,
        journal: Journal,
        *,
        commands: tuple[Command, ...] = (),
        left: Unfinished | None = None,
        known: int = 0,
    ) -> None:
        self._setting, self._setup, self._journal = setting, setup, self._summarising(journal, run)
        self._is_held = True
        self.artifacts = setting.place.artifacts_when_wanted(run.run_id)
        self.folder = None if setting.place.root is None else RunFolder(setting.place.root, run, setup.text)
        self._messages = RunInbox(setting.place, run.run_id)
        self._count, self._known, self._shown = 0, known, 0
        self._watchers = Watchers()
        self._rest: Rest | None = None
        self.id = run.run_id
        setting.held[self.id] = setting.known[self.id] = self
        if setup.source is not None:
            setting.sources[self.id] = setup.source
        self._driver = self._made(run, commands, left)

    def _made(self, run: Run, commands: tuple[Command, ...], left: Unfinished | None) -> Driver:
        return Driver(
            run,
            self._setup.binding,
            self.artifacts,
            commands=commands,
            left=left,
            session=self._session,
            journal=self._journal,
            limits=self._setup.limits,
            clock=self._setting.clock,
            observe=self._observe,
            on_rest=self._waits_for_timers,
            on_text=lambda key, text: self._watchers.show(Piece(self.id, key, text)),
            on_fault=self._faulted,
            on_ring=self._look_into_inbox,
        )

    def _session(self) -> ResumedEntry:
        """Return who drives the run, and how it is bound."""
        started = self._setup.binding.secrets.value(dict(self._setup.started))
        return ResumedEntry.bound(started, self._setting.place.by)

    def _look_into_inbox(self) -> None:
        """Hand over what was posted before a timer rang."""
        if self._setting.inbox is not None:
            with suppress(StoreError):  # whoever drives the run meets it when the timer is written, and says so
                self.take_messages()

    def _faulted(self, where: str, traceback: str) -> None:
        """Keep what users' code has raised in the run's folder, and log it."""
        if self.folder is not None:
            self.folder.keep_error(where, traceback)
        if self._setting.log is not None:
            self._setting.log.fault(self.id, where, traceback)

    def _summarising(self, journal: Journal, run: Run) -> SummaryJournal:
        return SummaryJournal(journal, run, lambda: self._driver.run)

    @property
    def run(self) -> Run:
        """The run as it is now."""
        return self._driver.run

    @property
    def waits_for(self) -> Mapping[str, str]:
        """The events from outside that the run waits for as it is now, each with its place."""
        return places(self.run)

    @property
    def config(self) -> Mapping[str, Any]:
        """What the run's policies read: model, seed, budget and the settings that it was started with."""
        return self._setup.binding.config

    def _observe(self, entries: Sequence[Entry]) -> None:
        """Pass durable entries on to those who watch, each once."""
        self._count += len(entries)
        new = self._count - self._shown
        if new <= 0:
            return
        self._shown, self._rest = self._count, None
        log, on_moment = self._setting.log, self._setting.on_moment
        if self.folder is None and log is None and on_moment is None:
            self._watchers.wake()
            return
        for number, entry in enumerate(entries[-new:], start=self._count - new + 1):
            if self.folder is not None:
                self.folder.observe(entry, self.artifacts)
            if log is not None:
                log.take(entry, number > self._known)
            if on_moment is not None:
                on_moment(Moment(self.id, number, entry), number > self._known)
        self._watchers.wake()

    def _waits_for_timers(self) -> None:
        self._rest = Rest("waiting", self.run, due_ms=self._driver.next_deadline_ms)
        self._journal.rest(self._rest)
        self._watchers.wake()

    def hear(self, effect: Intent, answer: Occurrence) -> None:
        """Bring the answer of an effect that is performed elsewhere, or comes again; one that nobody waits for is refused as late."""
        self._driver.hear(effect, answer)

    def offer(self, occurrence: Occurrence, at: str | None = None) -> "asyncio.Future[Taken | Refusal]":
        """Hand in an event from outside without waiting, from the event loop's thread; the run takes it when its turn comes, or when it is driven next.

        `at` names the question that it answers. The future says what became of it. Raises OccurrenceError as `send` does.
        """
        return self._driver.hand(occurrence, at)

    def take_messages(self) -> None:
        """Hand the messages of the inbox to the run, and go on with parts that have some; a new run has none before its first entry. Raises StoreError."""
        if self._count:
            self._messages.hand_to(self._driver, self._journal)
            for key, part in tuple(self._driver.parts.items()):
                if any(self._setting.place.store.waiting_messages(run) for run in part.runs):
                    self._driver.look_again(key)

    def _hold(self) -> None:
        """Become the run's writer again, if it was released; go on from where others have got with it meanwhile."""
        if self._is_held:
            return
        known = Recorded(self.id, self._setup.text, self.run.ledger, self._journal.epoch, head=self._journal.head)
        journal, recorded = self._setting.place.store.hold(self.id, known=known)
        self._journal, self._is_held = self._summarising(journal, self.run), True
        self._setting.held[self.id] = self
        is_same = len(recorded.entries) == len(self.run.ledger)
        is_at_rest = self._rest is not None and self._rest.kind in {"waiting", "in doubt", "finished"}
        if is_same and is_at_rest and not parts(self.run):
            self._driver.write_to(self._journal)
            return
        run = self.run if is_same else replayed(recorded)[0]
        self._known, self._count = len(recorded.entries), 0
        self._messages.clear()
        self._driver = self._made(run, (), unfinished(run))

    def release(self, rest: Rest | None = None) -> None:
        """Give up the right to write the run; it can be taken up again, by this or another process. `rest` is how it stands then.

        Raises MessagesWaitError for a run that waits and has messages in its inbox; then it is still held.
        """
        if self._is_held:
            self._is_held = False
            try:
                self._journal.release(None if rest is None else self._journal.summary_at(rest))
            except MessagesWaitError:
                self._is_held = True
                raise
            if self._setting.held.get(self.id) is self:
                del self._setting.held[self.id]
            if self.run.finished:
                self._setting.sources.pop(self.id, None)
