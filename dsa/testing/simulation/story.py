"""Stories and campaigns: a run from its beginning to its end, through processes that die, stall and lose it, and many of them added up.

A `Story` takes a subject and a seed, and plays to a `SeedResult`. It decides what the driver may not decide itself, as an operator would: who takes
the run up, what is said about effects in doubt. The faults on the way are in `dsa.testing.simulation.mishaps`.

`simulate` plays many seeds in several processes, and adds them up to a `CampaignResult`: the sum is the same however they were shared out.
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
from dsa.testing.simulation.mishaps import Acts, Mishaps, Strikes
from dsa.testing.simulation.oracles import Court, Violation
from dsa.testing.simulation.process import KilledError, PersonInput, Process, StorySurroundings
from dsa.testing.simulation.seed_plan import RUN_ID, Fault, SeedPlan, Subject, Triple, plan_of
from dsa.testing.simulation.virtual_loop import SpinningError, Time
from dsa.testing.simulation.world import World, data_of

#: The most processes that take up one run, unless it loops.
_MOST_LIVES = 60
#: How long it takes until somebody takes a run up, in seconds.
_PAUSES_S = (0, 0, 1, 3_600, 86_400)


@attrs.frozen
class SeedResult:
    """The result of a seed. `fingerprint` is equal for equal stories; `log` is the story, entries and what happened between them."""

    seed: int
    aim: Triple
    hits: Counter[Triple]
    faults: tuple[Fault, ...]
    violation: Violation | None
    rows: int
    lives: int
    fingerprint: int
    log: tuple[Entry | str, ...] = ()


class Story:
    """One seed, played. `play` may be called once. With `telling` the log is kept."""

    def __init__(self, subject: Subject, seed: int, *, keep_log: bool = False) -> None:
        self.plan = plan_of(subject, seed)
        self.time = Time()
        self.facts = RunFacts(subject, self.time, self.plan.limits)
        self.facts.intention = self.plan.next_occurrence
        self.court = Court(self.facts, self.tell)
        self.strikes = Strikes(self.plan)
        self.world = World(self.facts, self.plan, self.strikes.is_calm, self.tell)
        self.files: dict[str, File] = {}
        self.processes: dict[str, Process] = {}
        self.is_over = False
        self.stray: Occurrence | None = None
        self._most_lives = _MOST_LIVES + self.plan.longest
        self._keeps_log = keep_log
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
        if self._keeps_log:
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
        process: Process | None = self._begin_run()
        while process is not None and not self.is_broken:
            self.live(process)
            process = None if self.is_broken else self._next(process)
            if len(self.processes) > self._most_lives:
                self.court.judge_fault(f"after {self._most_lives} processes the run has not come to an end")
        self.court.judge_end()
        for each in self.processes.values():
            each.bury()
        print_of = hashlib.blake2b(self.files[RUN_ID].content if RUN_ID in self.files else b"", digest_size=8)
        print_of.update(f"{self.time.now_s} {self.strikes.faults}".encode())
        return SeedResult(
            self.plan.seed,
            self.plan.aim,
            self.strikes.hits,
            tuple(self.strikes.faults),
            self.court.violation,
            self.facts.position,
            len(self.processes),
            int.from_bytes(print_of.digest(), "big"),
            tuple(self._log),
        )

    def live(self, process: Process, moves: int | None = None) -> None:
        """Let a process go on until it ends, or the world has made `moves` moves."""
        while True:
            try:
                self._acts.let(process, moves)
            except SpinningError as fault:
                self.court.judge_fault(fault)
                return
            ending = process.ending
            if not isinstance(ending, Rest) or not process.is_alive or process.is_stale:
                return
            self.court.judge_rest(ending)
            with suppress(KilledError):  # an oracle was broken as another process took the run
                self.mishaps.at_rest(process, ending)
            if process.ending is not None or self.is_broken:
                return

    def _begin_run(self) -> Process:
        """Begin the run, again when nothing of it was durable."""
        self.facts.restart()
        process = self.new_process()
        first = self.plan.next_occurrence(0, self.facts.configuration)
        is_sent = first is not None and self._acts.is_outside(first) and self.plan.sends_first
        events = (self.outside_event(first),) if first is not None and is_sent else ()
        process.sent_at = 0 if events else -1
        process.begin(events)
        return process

    def outside_event(self, occurrence: Occurrence) -> Occurrence:
        """Return an event from outside as somebody sends it: without verdicts, with data."""
        self.facts.deeds.sent_count[occurrence.event] += 1
        self.tell(f"somebody sends {occurrence.event}")
        return Occurrence(occurrence.event, data=data_of(self.facts.machine, occurrence.event, self.facts.position))

    # -- the next process ---------------------------------------------------------------------------------------------------

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
            self.court.judge_fault(
                ending if ending is not None else "a process goes no further, and nothing can wake it"
            )
            return None
        if isinstance(ending, LeaseLostError | HeldError):
            self.court.judge_fault("a process reported that another one holds the run, but no other process does")
        process.is_alive = False
        return self._take_up(PersonInput())

    def _after_rest(self, process: Process, rest: Rest) -> Process | None:
        stray, self.stray = self.stray, None
        if stray is not None or not process.is_alive:
            return self._take_up(PersonInput((self.outside_event(stray),) if stray is not None else ()))
        if rest.kind == "stopped":
            # A run that goes on stops again.
            stays = rest.failure is not None and rest.failure.code in {BUDGET, MISSING_DATA}
            return None if stays else self._go_on(process, PersonInput())
        if rest.in_doubt:
            return self._go_on(process, self._decide(rest.in_doubt))
        following = self.plan.next_occurrence(self.facts.position, self.facts.configuration)
        if rest.kind == "finished" or following is None or self.facts.position >= self.plan.longest:
            return None
        event = self.outside_event(following)
        again = self._again(process)
        if again is None:
            return self._take_up(PersonInput((event,)), sent_at=self.facts.position)
        again.sent_at = self.facts.position
        again.drive(event)
        return again

    def _go_on(self, process: Process, person_input: PersonInput) -> Process | None:
        """Have a run that was stopped, or is in doubt, continued by the process in which it rests, or by a new one."""
        if person_input != PersonInput() or self.plan.chance.happens(50, "same", len(self.processes)):
            return self._take_up(person_input)
        process.drive()
        return process

    def _again(self, process: Process) -> Process | None:
        """Return which of the processes in which the run has rested goes on with it; None when a new one does."""
        position, chance = self.facts.position, self.plan.chance
        if chance.happens(50, "again", position):
            return process
        others = [each for each in self.processes.values() if each.has_rested and each is not process]
        return chance.one_of(others, "which", position) if others and chance.happens(50, "another", position) else None

    def _take_up(self, person_input: PersonInput, *, sent_at: int = -1) -> Process | None:
        """Have the run taken up by a new process, as often as it takes."""
        self.time.now_s += self.plan.chance.one_of(_PAUSES_S, "pause", len(self.processes))
        while not self.is_broken and len(self.processes) <= self._most_lives:
            process = self.new_process()
            is_held = self._hold(process, person_input)
            if not is_held and process.rival is not None:  # it was taken over before it could write what was said
                return process.rival
            if not is_held and not self.facts.entries and not self.facts.being_written:
                return self._begin_run()
            if is_held and person_input == PersonInput():
                person_input = self._resume_input()
                sent_at = self.facts.position if person_input.events else -1
            if is_held:
                process.sent_at = sent_at
                process.drive(*person_input.events)
                return process
            person_input = PersonInput()
        return None

    def _resume_input(self) -> PersonInput:
        """Return the input of a person who takes a run up after a crash: now and then the next event."""
        position = self.facts.position
        following = self.plan.next_occurrence(position, self.facts.configuration)
        if following is None or position >= self.plan.longest or not self._acts.is_outside(following):
            return PersonInput()
        return (
            PersonInput((self.outside_event(following),))
            if self.plan.chance.happens(25, "brought", len(self.processes))
            else PersonInput()
        )

    def _hold(self, process: Process, person_input: PersonInput) -> bool:
        """Hold the run with a process; return False when it died, the disk failed, or the run does not exist."""
        undo = self.mishaps.damage()
        try:
            process.take_up(person_input)
        except DamageError:
            if undo is None:
                self.court.judge_fault("the ledger is damaged, and nobody has damaged it")
            else:
                undo()
            self._end_process(process, "the ledger is damaged")
            return False
        except (StoreError, KilledError) as ending:
            if isinstance(ending, UnknownRunError):
                self.court.judge_read((), 0)
            self._end_process(process, str(ending))
            return False
        except Exception as ending:  # noqa: BLE001  (any error is a fault)
            self.court.judge_fault(ending)
            return False
        if undo is not None:
            self.court.judge_fault("a byte of the ledger has changed, but the ledger was read without an error")
        return True

    def _end_process(self, process: Process, why: str) -> None:
        process.is_alive = False
        self.tell(f"{process.name} ends{': ' if why else ''}{why}")

    # -- a person's decisions ----------------------------------------------------------------------------------------------

    def _decide(self, intents: Sequence[Intent]) -> PersonInput:
        """Look into the world, and say of each effect in doubt how it ended."""
        decisions: dict[str, Handling] = {}
        answers: dict[str, Occurrence] = {}
        facts, deeds = self.facts, self.facts.deeds
        for intent in intents:
            options = facts.machine.answers.get(intent.effect, ())
            decision: str = "retry"
            if deeds.done_count[intent.key]:
                decision = _answer_of(self.plan, facts, intent.effect, options) if options else "done"
            count = len(deeds.decisions.setdefault(intent.key, []))
            if intent.effect in facts.machine.failures_handled and self.plan.chance.happens(25, intent.key, count):
                decision = "fail"
            if decision in options:
                answers[intent.key] = Occurrence(decision, data={"said": intent.key})
            else:
                decisions[intent.key] = decision  # type: ignore[assignment]  # one of three words, as it stands here
            deeds.decisions[intent.key].append(decision)
            self.tell(f"somebody decides about {intent.effect} {intent.key} in doubt: {decision}")
        return PersonInput((), decisions, answers)


def _answer_of(plan: SeedPlan, facts: RunFacts, effect: str, options: Sequence[str]) -> str:
    """Return the answer that an effect has given: what is intended, where it may be."""
    intention = plan.next_occurrence(facts.position, facts.configuration)
    if intention is not None and intention.event in options:
        return intention.event
    facts.deeds.is_unplanned = True
    answer: str = plan.chance.one_of(options, "answer", effect, facts.position)
    return answer


def forget(story: Story) -> None:
    """Take a story apart that nobody needs any more: it refers to itself, and so it is freed at once, without the garbage collector."""
    for process in story.processes.values():
        process.forget()
    for each in (*vars(story).values(), story):
        if isinstance(each, Acts | Court | Mishaps | Story | World):
            vars(each).clear()


#: The seeds of a campaign by default: three for each triple, and at least a thousand.
_LAPS, _FEWEST = 3, 1_000
_CHUNK = 40
#: The number of new objects after which Python looks for garbage.
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
    """The results of seeds. `fingerprint` is equal when every one of them told the same story. It grows in place."""

    seeds: int = 0
    rows: int = 0
    processes: int = 0
    fingerprint: int = 0
    hits: Counter[Triple] = attrs.field(factory=Counter)
    faults: Counter[Fault] = attrs.field(factory=Counter)
    breaches: list[Breach] = attrs.field(factory=list)

    def add(self, other: "CampaignResult") -> None:
        """Add the results of other seeds, in any order."""
        self.seeds += other.seeds
        self.rows += other.rows
        self.processes += other.processes
        self.fingerprint = (self.fingerprint + other.fingerprint) & _MASK
        self.hits.update(other.hits)
        self.faults.update(other.faults)
        self.breaches = sorted((*self.breaches, *other.breaches), key=lambda breach: breach.seed)

    def take(self, result: SeedResult) -> None:
        """Add the result of one more seed."""
        self.seeds += 1
        self.rows += result.rows
        self.processes += result.lives
        self.fingerprint = (self.fingerprint + result.fingerprint) & _MASK
        for hit, times in result.hits.items():
            self.hits[hit] += times
        for fault in result.faults:
            self.faults[fault] += 1
        violation = result.violation
        if violation is not None:
            self.breaches.append(Breach(result.seed, violation.oracle.name, violation.oracle.cites, violation.message))
            self.breaches.sort(key=lambda breach: breach.seed)

    def missed_triples(self, subject: Subject) -> tuple[Triple, ...]:
        """Return the triples that no seed has hit."""
        return tuple(triple for triple in subject.triples if triple not in self.hits)

    def coverage(self, subject: Subject) -> float:
        """Return the share of the triples that were hit, from 0 to 1."""
        return 1 - len(self.missed_triples(subject)) / len(subject.triples)


def enough(subject: Subject) -> int:
    """Return how many seeds aim at every triple several times."""
    return max(_FEWEST, _LAPS * len(subject.triples))


def play_seeds(subject: Subject, seeds: Sequence[int]) -> CampaignResult:
    """Play seeds one after the other."""
    sum_of = CampaignResult()
    for seed in seeds:
        story = Story(subject, seed)
        result = story.play()
        forget(story)
        sum_of.take(result)
    return sum_of


def simulate(
    subject: Subject, seeds: Sequence[int], *, workers: int = 1, progress: Callable[[int], None] = lambda _count: None
) -> CampaignResult:
    """Play seeds in `workers` processes; `progress` is called with the number that are done. Raises DsaError.

    Where processes cannot be forked, or other threads run, all are played in this one.
    """
    subject.prepare()
    chunks = [seeds[begin : begin + _CHUNK] for begin in range(0, len(seeds), _CHUNK)]
    sum_of = CampaignResult()
    with _seldom_collected(), _play_chunks(subject, chunks, workers) as outcomes:
        for outcome in outcomes:
            sum_of.add(outcome)
            progress(sum_of.seeds)
    return sum_of


@contextmanager
def _play_chunks(subject: Subject, chunks: list[Sequence[int]], workers: int) -> Iterator[Iterator[CampaignResult]]:
    """Yield the results of chunks of seeds, in the order in which they are done."""
    can_fork = "fork" in multiprocessing.get_all_start_methods() and threading.active_count() == 1
    workers = min(workers, len(chunks)) if can_fork else 1
    if workers <= 1:
        yield (play_seeds(subject, chunk) for chunk in chunks)
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
    """Begin a process that plays: its objects stay, and the garbage collector leaves them alone."""
    _SUBJECT[:] = [subject]
    gc.freeze()


def _play(seeds: Sequence[int]) -> CampaignResult:
    return play_seeds(_SUBJECT[0], seeds)
