"""Where oracles are asked: whatever becomes durable, begins, is shown or rests is judged before it joins the facts.

Takes what a process does, gives nothing; the first oracle that is broken stays in `violation`.
"""

from collections.abc import Callable, Sequence

from dsa.meaning import Occurrence, Refusal, Taken
from dsa.runtime.budgets import BUDGET
from dsa.runtime.ledger import Entry, ResultEntry
from dsa.runtime.recorded import IN_DOUBT
from dsa.runtime.rest import Rest
from dsa.testing.simulation.facts import Answering, Beginning, Facts, Reading, Resting, Writing
from dsa.testing.simulation.oracles import (
    AFTER_WRITE,
    ASKED_OF,
    AT_ANSWER,
    AT_BEGIN,
    AT_END,
    AT_FAULT,
    AT_IDLE,
    AT_READ,
    AT_REST,
    AT_SHOW,
    AT_WAKE,
    AT_WRITE,
    WHILE_EXPECTED,
    Oracle,
    Violation,
)
from dsa.testing.simulation.oracles.effects import TIMED_OUT, said_by
from dsa.testing.simulation.process import Process


class Court:
    """Judges one story. `violation` is what was found first; `tell` is given entries once they are known to be durable."""

    def __init__(self, facts: Facts, tell: Callable[[Sequence[Entry]], None]) -> None:
        self._facts, self._tell = facts, tell
        self.violation: Violation | None = None

    def _judge(self, oracles: Sequence[Oracle], about: object) -> None:
        if self.violation is None:
            facts = self._facts
            for each in oracles:
                said = each.judge(facts, about)
                if said is not None:
                    self.violation = Violation(each, said)
                    return

    def read(self, entries: Sequence[Entry], epoch: int) -> None:
        """A process has read the run as it took it up: what was not acknowledged before is durable now."""
        facts = self._facts
        self._judge(AT_READ, Reading(tuple(entries)))
        if self.violation is None:  # they are equal; from now on they are the same, which is seen at once
            facts.entries[:] = entries[: len(facts.entries)]
        self._take(entries[len(facts.entries) :])
        facts.being_written = ()
        if entries and self.violation is None:
            facts.epoch = epoch
            facts.resumed()

    def wrote(self, process: Process, entries: Sequence[Entry], epoch: int) -> None:
        """Entries became durable."""
        self._judge(AT_WRITE, Writing(tuple(entries), epoch, process.may_write))
        self._take(entries)
        self._facts.being_written = ()

    def _take(self, entries: Sequence[Entry]) -> None:
        """Fold entries; after the first that is wrong nothing more can be said."""
        facts = self._facts
        self._tell(entries)
        for entry in entries:
            asked = ASKED_OF.get(type(entry), ())
            if asked or facts.expected:
                self._judge((*WHILE_EXPECTED, *asked) if facts.expected else asked, entry)
            if self.violation is not None:
                return
            if type(entry) is ResultEntry and entry.failed:
                self._excuse(said_by(entry))
            facts.fold(entry)
        if entries:
            self._judge(AFTER_WRITE, None)

    def _excuse(self, code: str) -> None:
        """A failure that was found to be in order, and that a run without faults might not have met, may stop the run."""
        self._facts.deeds.excused.add(code)
        self._facts.deeds.unplanned = self._facts.deeds.unplanned or code in {IN_DOUBT, TIMED_OUT, BUDGET}

    def began(self, process: Process, key: str, effect: str) -> None:
        """A policy is called."""
        self._judge(AT_BEGIN, Beginning(key, effect, process.may_write, process.is_stale))

    def shown(self, process: Process, entry: Entry) -> None:
        """The driver shows an entry."""
        if process.seen >= len(self._facts.entries) or self._facts.entries[process.seen] is not entry:
            self._judge(AT_SHOW, (process.seen, entry))

    def answered(self, occurrence: Occurrence, answer: Taken | Refusal) -> None:
        """Somebody who sent an event is told what became of it."""
        self._judge(AT_ANSWER, Answering(occurrence.event, answer))

    def idle(self, under_way: Sequence[str]) -> None:
        """Nothing can run before the world does something; effects are under way under these keys."""
        self._judge(AT_IDLE, under_way)

    def wakes(self, until_s: float) -> None:
        """Time is about to pass until a process wakes."""
        self._judge(AT_WAKE, until_s)

    def rested(self, rest: Rest) -> None:
        """A process says that its run rests."""
        code = rest.failure.code if rest.failure is not None else ""
        self._judge(AT_REST, Resting(rest.kind, code, rest.run, rest.in_doubt))

    def failed(self, fault: BaseException | str) -> None:
        """Something happened that never may: a process ended in a way of its own, a run does not go on."""
        self._judge(AT_FAULT, fault)

    def ended(self) -> None:
        """The story is over."""
        self._judge(AT_END, None)
