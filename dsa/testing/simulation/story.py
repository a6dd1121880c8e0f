"""The story of one seed: a run from its beginning to its end, through processes that die, stall and lose it.

Takes a subject and a seed, gives a `SeedResult`. Whatever the driver may not decide itself is decided here, as an operator would: who takes
the run up, what is said about effects in doubt. What goes wrong on the way is in `dsa.testing.simulation.mishaps`.

Many seeds: played by several processes, added up so that the sum is the same however they were shared out.

Takes a subject and a range of seeds, gives an `CampaignResult`. Whoever wants to see how far it is hands in a function.
"""

import gc
import hashlib
import multiprocessing
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

import attrs

from dsa.runtime.artifacts import MemoryArtifacts
from dsa.runtime.costs import BUDGET
from dsa.runtime.event_data import MISSING_DATA
from dsa.runtime.ledger import Entry, Handling, Intent
from dsa.runtime.run_store import DamageError, HeldError, LeaseLostError, StoreError, UnknownRunError
from dsa.runtime.status import Rest
from dsa.semantics import Occurrence
from dsa.testing.simulation.disk_store import File
from dsa.testing.simulation.facts import RunFacts
from dsa.testing.simulation.faults import Fault, Triple
from dsa.testing.simulation.mishaps import Acts, Mishaps, Strikes
from dsa.testing.simulation.oracles import Court, Violation
from dsa.testing.simulation.process import KilledError, PersonInput, Process, StorySurroundings
from dsa.testing.simulation.seed_plan import RUN_ID, SeedPlan, Subject, plan_of
from dsa.testing.simulation.virtual_loop import SpinningError, Time
from dsa.testing.simulation.world import World, data_of

#: More processes than this do not take up one run unless it goes round in circles.
_MOST_LIVES = 60
#: How long it takes until somebody takes a run up, in seconds.
_PAUSES_S = (0, 0, 1, 3_600, 86_400)


@attrs.frozen
class SeedResult:
    """What came of a seed. `fingerprint` is equal for equal stories; `log` tells it, entries and what happened between them."""

    seed: int
    aim: Triple
    hits: Counter[Triple]
    struck: tuple[Fault, ...]
    violation: Violation | None
    rows: int
    lives: int
    fingerprint: int
    log: tuple[Entry | str, ...] = ()


class Story:
    """One seed, played. `play` may be called once. With `telling` the log is kept."""

    def __init__(self, subject: Subject, seed: int, *, telling: bool = False) -> None:
        self.plan = plan_of(subject, seed)
        self.time = Time()
        self.facts = RunFacts(subject, self.time, self.plan.limits)
        self.facts.intended = self.plan.intended
        self.court = Court(self.facts, self.tell)
        self.strikes = Strikes(self.plan)
        self.world = World(self.facts, self.plan, self.strikes.is_calm, self.tell)
        self.files: dict[str, File] = {}
        self.processes: dict[str, Process] = {}
        self.is_over = False
        self.stray: Occurrence | None = None
        self._most_lives = _MOST_LIVES + self.plan.longest
        self._is_telling = telling
        self._log: list[Entry | str] = []
        self.mishaps = Mishaps(self)
        self._acts = Acts(self)
        limits, files, alive = self.plan.limits, self.files, self._is_alive
        is_shown = self.plan.chance.happens(25, "shown")
        self._around = StorySurroundings(
            subject, self.time, files, MemoryArtifacts(), limits, self.mishaps, self.world.binding, alive, is_shown
        )

    def tell(self, what: str | Sequence[Entry]) -> None:
        """Add to the log what happened."""
        if self._is_telling:
            self._log += [what] if isinstance(what, str) else what

    def _is_alive(self, name: str) -> bool:
        return name in self.processes and self.processes[name].is_alive

    def new_process(self) -> Process:
        """Start a process; it has nothing yet."""
        process = Process(1 + len(self.processes), self._around)
        self.processes[process.name] = process
        self.tell(f"{process.name} starts")
        return process

    @property
    def is_broken(self) -> bool:
        """Return whether an oracle was broken: then the rest does not matter."""
        return self.court.violation is not None

    # -- from the beginning to the end --------------------------------------------------------------------------------

    def play(self) -> SeedResult:
        """Play it to its end."""
        process: Process | None = self._begun()
        while process is not None and not self.is_broken:
            self.live(process)
            process = None if self.is_broken else self._next(process)
            if len(self.processes) > self._most_lives:
                self.court.failed(f"after {self._most_lives} processes the run has not come to an end")
        self.court.ended()
        for each in self.processes.values():
            each.bury()
        print_of = hashlib.blake2b(self.files[RUN_ID].content if RUN_ID in self.files else b"", digest_size=8)
        print_of.update(f"{self.time.now_s} {self.strikes.struck}".encode())
        return SeedResult(
            self.plan.seed,
            self.plan.aim,
            self.strikes.hits,
            tuple(self.strikes.struck),
            self.court.violation,
            self.facts.position,
            len(self.processes),
            int.from_bytes(print_of.digest(), "big"),
            tuple(self._log),
        )

    def live(self, process: Process, moves: int | None = None) -> None:
        """Let a process go on until it ends, or the world has made so many moves."""
        while True:
            try:
                self._acts.let(process, moves)
            except SpinningError as fault:
                self.court.failed(fault)
                return
            ending = process.ending
            if not isinstance(ending, Rest) or not process.is_alive or process.is_stale:
                return
            self.court.rested(ending)
            with suppress(KilledError):  # an oracle was broken as another process took the run
                self.mishaps.at_rest(process, ending)
            if process.ending is not None or self.is_broken:
                return

    def _begun(self) -> Process:
        """Begin the run, again when nothing of it was durable."""
        self.facts.restarted()
        process = self.new_process()
        first = self.plan.intended(0, self.facts.configuration)
        is_sent = first is not None and self._acts.is_outside(first) and self.plan.sends_first
        sent = (self.sending(first),) if first is not None and is_sent else ()
        process.sent_at = 0 if sent else -1
        process.begin(sent)
        return process

    def sending(self, occurrence: Occurrence) -> Occurrence:
        """Return an event from outside as somebody sends it: without verdicts, with data."""
        self.facts.deeds.sent[occurrence.event] += 1
        self.tell(f"somebody sends {occurrence.event}")
        return Occurrence(occurrence.event, data=data_of(self.facts.machine, occurrence.event, self.facts.position))

    # -- who goes on ----------------------------------------------------------------------------------------------------

    def _next(self, process: Process) -> Process | None:
        """Return the process that goes on with the run after one has ended; None when the story is over."""
        ending = process.ending
        if process.rival is not None:
            process.is_alive = False
            return process.rival
        if self.is_over:
            return None
        if isinstance(ending, Rest):
            return self._after_rest(process, ending)
        if process.is_alive and not isinstance(ending, StoreError | KilledError):
            self.court.failed(ending if ending is not None else "a process goes no further, and nothing can wake it")
            return None
        if isinstance(ending, LeaseLostError | HeldError):
            self.court.failed("a process was told that another one has the run, and there is none")
        process.is_alive = False
        return self._taken_up(PersonInput())

    def _after_rest(self, process: Process, rest: Rest) -> Process | None:
        stray, self.stray = self.stray, None
        if stray is not None or not process.is_alive:
            return self._taken_up(PersonInput((self.sending(stray),) if stray is not None else ()))
        if rest.kind == "stopped":
            stays = rest.failure is not None and rest.failure.code in {
                BUDGET,
                MISSING_DATA,
            }  # whoever goes on stops again
            return None if stays else self._gone_on(process, PersonInput())
        if rest.in_doubt:
            return self._gone_on(process, self._decided(rest.in_doubt))
        following = self.plan.intended(self.facts.position, self.facts.configuration)
        if rest.kind == "finished" or following is None or self.facts.position >= self.plan.longest:
            return None
        sent = self.sending(following)
        again = self._again(process)
        if again is None:
            return self._taken_up(PersonInput((sent,)), sent_at=self.facts.position)
        again.sent_at = self.facts.position
        again.drive(sent)
        return again

    def _gone_on(self, process: Process, said: PersonInput) -> Process | None:
        """Have a run that was stopped, or is in doubt, gone on with: by the process in which it rests, or by a new one."""
        if said != PersonInput() or self.plan.chance.happens(50, "same", len(self.processes)):
            return self._taken_up(said)
        process.drive()
        return process

    def _again(self, process: Process) -> Process | None:
        """Return which of the processes in which the run has rested goes on with it; None when a new one does."""
        position, chance = self.facts.position, self.plan.chance
        if chance.happens(50, "again", position):
            return process
        rested = [each for each in self.processes.values() if each.has_rested and each is not process]
        return chance.one_of(rested, "which", position) if rested and chance.happens(50, "another", position) else None

    def _taken_up(self, said: PersonInput, *, sent_at: int = -1) -> Process | None:
        """Have the run taken up by a new process, as often as it takes."""
        self.time.now_s += self.plan.chance.one_of(_PAUSES_S, "pause", len(self.processes))
        while not self.is_broken and len(self.processes) <= self._most_lives:
            process = self.new_process()
            is_held = self._held(process, said)
            if not is_held and process.rival is not None:  # it was taken over before it could write what was said
                return process.rival
            if not is_held and not self.facts.entries and not self.facts.being_written:
                return self._begun()
            if is_held and said == PersonInput():
                said = self._brought()
                sent_at = self.facts.position if said.sent else -1
            if is_held:
                process.sent_at = sent_at
                process.drive(*said.sent)
                return process
            said = PersonInput()
        return None

    def _brought(self) -> PersonInput:
        """Return what somebody sends who takes a run up after a crash: now and then what is to come next."""
        position = self.facts.position
        following = self.plan.intended(position, self.facts.configuration)
        if following is None or position >= self.plan.longest or not self._acts.is_outside(following):
            return PersonInput()
        return (
            PersonInput((self.sending(following),))
            if self.plan.chance.happens(25, "brought", len(self.processes))
            else PersonInput()
        )

    def _held(self, process: Process, said: PersonInput) -> bool:
        """Hold the run with a process; return whether it has it, and not when it died, the disk failed, or there is no run."""
        undo = self.mishaps.damaged()
        try:
            process.take_up(said)
        except DamageError:
            if undo is None:
                self.court.failed("the ledger is damaged, and nobody has damaged it")
            else:
                undo()
            self._lost(process, "the ledger is damaged")
            return False
        except (StoreError, KilledError) as ending:
            if isinstance(ending, UnknownRunError):
                self.court.read((), 0)
            self._lost(process, str(ending))
            return False
        except Exception as ending:  # noqa: BLE001  (whatever it is, it is found)
            self.court.failed(ending)
            return False
        if undo is not None:
            self.court.failed("a byte of the ledger is another one, and it was read as if it were not")
        return True

    def _lost(self, process: Process, why: str) -> None:
        process.is_alive = False
        self.tell(f"{process.name} ends{': ' if why else ''}{why}")

    # -- what a person says -----------------------------------------------------------------------------------------------

    def _decided(self, asked: Sequence[Intent]) -> PersonInput:
        """Look into the world, and say of each effect in doubt what became of it."""
        decided: dict[str, Handling] = {}
        answers: dict[str, Occurrence] = {}
        facts, deeds = self.facts, self.facts.deeds
        for intent in asked:
            known = facts.machine.answers.get(intent.effect, ())
            said: str = "retry"
            if deeds.happened[intent.key]:
                said = _answer_of(self.plan, facts, intent.effect, known) if known else "done"
            count = len(deeds.decided.setdefault(intent.key, []))
            if intent.effect in facts.machine.failures_handled and self.plan.chance.happens(25, intent.key, count):
                said = "fail"
            if said in known:
                answers[intent.key] = Occurrence(said, data={"said": intent.key})
            else:
                decided[intent.key] = said  # type: ignore[assignment]  # one of three words, as it stands here
            deeds.decided[intent.key].append(said)
            self.tell(f"somebody says of {intent.effect} {intent.key} in doubt: {said}")
        return PersonInput((), decided, answers)


def _answer_of(plan: SeedPlan, facts: RunFacts, effect: str, known: Sequence[str]) -> str:
    """Return the answer that an effect has given: what is intended, where it may be."""
    intended = plan.intended(facts.position, facts.configuration)
    if intended is not None and intended.event in known:
        return intended.event
    facts.deeds.unplanned = True
    answer: str = plan.chance.one_of(known, "answer", effect, facts.position)
    return answer


def forget(story: Story) -> None:
    """Take a story apart that nobody asks any more: it refers to itself, and so is gone at once, and need not be looked for."""
    for process in story.processes.values():
        process.forget()
    for each in (*vars(story).values(), story):
        if isinstance(each, Acts | Court | Mishaps | Story | World):
            vars(each).clear()


#: Without a wish, so often as there are triples, and at least so many seeds.
_LAPS, _FEWEST = 3, 1_000
_CHUNK = 40
#: So many objects more than before are looked through for garbage.
_YOUNG = 20_000
_MASK = 2**64 - 1


@attrs.frozen
class Breach:
    """An oracle that a seed has broken."""

    seed: int
    oracle: str
    cites: str
    message: str


@attrs.define
class CampaignResult:
    """What came of seeds. `fingerprint` is equal when every one of them told the same story. It grows in place."""

    seeds: int = 0
    rows: int = 0
    processes: int = 0
    fingerprint: int = 0
    hits: Counter[Triple] = attrs.field(factory=Counter)
    struck: Counter[Fault] = attrs.field(factory=Counter)
    found: list[Breach] = attrs.field(factory=list)

    def add(self, other: "CampaignResult") -> None:
        """Add what came of other seeds, in whatever order."""
        self.seeds += other.seeds
        self.rows += other.rows
        self.processes += other.processes
        self.fingerprint = (self.fingerprint + other.fingerprint) & _MASK
        self.hits.update(other.hits)
        self.struck.update(other.struck)
        self.found = sorted((*self.found, *other.found), key=lambda found: found.seed)

    def take(self, told: SeedResult) -> None:
        """Add what came of one more seed."""
        self.seeds += 1
        self.rows += told.rows
        self.processes += told.lives
        self.fingerprint = (self.fingerprint + told.fingerprint) & _MASK
        for hit, times in told.hits.items():
            self.hits[hit] += times
        for fault in told.struck:
            self.struck[fault] += 1
        broken = told.violation
        if broken is not None:
            self.found.append(Breach(told.seed, broken.oracle.name, broken.oracle.cites, broken.message))
            self.found.sort(key=lambda found: found.seed)

    def missed(self, subject: Subject) -> tuple[Triple, ...]:
        """Return the triples that no seed has hit."""
        return tuple(triple for triple in subject.triples if triple not in self.hits)

    def coverage(self, subject: Subject) -> float:
        """Return the share of the triples that were hit, from 0 to 1."""
        return 1 - len(self.missed(subject)) / len(subject.triples)


def enough(subject: Subject) -> int:
    """Return how many seeds aim at every triple several times."""
    return max(_FEWEST, _LAPS * len(subject.triples))


def played(subject: Subject, seeds: Sequence[int]) -> CampaignResult:
    """Play seeds one after the other."""
    sum_of = CampaignResult()
    for seed in seeds:
        story = Story(subject, seed)
        told = story.play()
        forget(story)
        sum_of.take(told)
    return sum_of


def simulate(
    subject: Subject, seeds: Sequence[int], *, workers: int = 1, progress: Callable[[int], None] = lambda _done: None
) -> CampaignResult:
    """Play seeds with so many processes; `progress` is told how many are done. Raises TooLargeError.

    Where processes cannot be forked, or other threads run, all are played in this one.
    """
    subject.prepare()
    chunks = [seeds[begin : begin + _CHUNK] for begin in range(0, len(seeds), _CHUNK)]
    sum_of = CampaignResult()
    with _seldom_collected(), _played(subject, chunks, workers) as outcomes:
        for outcome in outcomes:
            sum_of.add(outcome)
            progress(sum_of.seeds)
    return sum_of


@contextmanager
def _played(subject: Subject, chunks: list[Sequence[int]], workers: int) -> Iterator[Iterator[CampaignResult]]:
    """Yield what comes of chunks of seeds, in the order in which they are done."""
    can_fork = "fork" in multiprocessing.get_all_start_methods() and threading.active_count() == 1
    workers = min(workers, len(chunks)) if can_fork else 1
    if workers <= 1:
        yield (played(subject, chunk) for chunk in chunks)
        return
    with multiprocessing.get_context("fork").Pool(workers, _begin, (subject,)) as pool:
        yield pool.imap_unordered(_play, chunks)


@contextmanager
def _seldom_collected() -> Iterator[None]:
    """Look for garbage less often: stories leave little behind."""
    before = gc.get_threshold()
    gc.set_threshold(_YOUNG, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


_SUBJECT: list[Subject] = []


def _begin(subject: Subject) -> None:
    """Begin a process that plays: what is there stays, and is not looked through for garbage again and again."""
    _SUBJECT[:] = [subject]
    gc.freeze()


def _play(seeds: Sequence[int]) -> CampaignResult:
    return played(_SUBJECT[0], seeds)
