"""Many seeds: played by several processes, added up so that the sum is the same however they were shared out.

Takes a subject and a range of seeds, gives an `Outcome`. Whoever wants to see how far it is hands in a function.
"""

import gc
import multiprocessing
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import attrs

from dsa.testing.simulation.faults import Fault, Triple
from dsa.testing.simulation.story import Story, Told, forget
from dsa.testing.simulation.subject import Subject

#: Without a wish, so often as there are triples, and at least so many seeds.
_LAPS, _FEWEST = 3, 1_000
_CHUNK = 40
#: So many objects more than before are looked through for garbage.
_YOUNG = 20_000
_MASK = 2**64 - 1


@attrs.frozen
class Found:
    """An oracle that a seed has broken."""

    seed: int
    oracle: str
    cites: str
    message: str


@attrs.define
class Outcome:
    """What came of seeds. `fingerprint` is equal when every one of them told the same story. It grows in place."""

    seeds: int = 0
    rows: int = 0
    processes: int = 0
    fingerprint: int = 0
    hits: Counter[Triple] = attrs.field(factory=Counter)
    struck: Counter[Fault] = attrs.field(factory=Counter)
    found: list[Found] = attrs.field(factory=list)

    def add(self, other: "Outcome") -> None:
        """Add what came of other seeds, in whatever order."""
        self.seeds += other.seeds
        self.rows += other.rows
        self.processes += other.processes
        self.fingerprint = (self.fingerprint + other.fingerprint) & _MASK
        self.hits.update(other.hits)
        self.struck.update(other.struck)
        self.found = sorted((*self.found, *other.found), key=lambda found: found.seed)

    def take(self, told: Told) -> None:
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
            self.found.append(Found(told.seed, broken.oracle.name, broken.oracle.cites, broken.message))
            self.found.sort(key=lambda found: found.seed)

    def missed(self, subject: Subject) -> tuple[Triple, ...]:
        """Give the triples that no seed has hit."""
        return tuple(triple for triple in subject.triples if triple not in self.hits)

    def coverage(self, subject: Subject) -> float:
        """Give the share of the triples that were hit, from 0 to 1."""
        return 1 - len(self.missed(subject)) / len(subject.triples)


def enough(subject: Subject) -> int:
    """Give how many seeds aim at every triple several times."""
    return max(_FEWEST, _LAPS * len(subject.triples))


def played(subject: Subject, seeds: Sequence[int]) -> Outcome:
    """Play seeds one after the other."""
    sum_of = Outcome()
    for seed in seeds:
        story = Story(subject, seed)
        told = story.play()
        forget(story)
        sum_of.take(told)
    return sum_of


def simulate(
    subject: Subject, seeds: Sequence[int], *, workers: int = 1, progress: Callable[[int], None] = lambda _done: None
) -> Outcome:
    """Play seeds with so many processes; `progress` is told how many are done. Raises TooLargeError.

    Where processes cannot be forked, or other threads run, all are played in this one.
    """
    subject.prepare()
    chunks = [seeds[begin : begin + _CHUNK] for begin in range(0, len(seeds), _CHUNK)]
    sum_of = Outcome()
    with _seldom_collected(), _played(subject, chunks, workers) as outcomes:
        for outcome in outcomes:
            sum_of.add(outcome)
            progress(sum_of.seeds)
    return sum_of


@contextmanager
def _played(subject: Subject, chunks: list[Sequence[int]], workers: int) -> Iterator[Iterator[Outcome]]:
    """Give what comes of chunks of seeds, in the order in which they are done."""
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


def _play(seeds: Sequence[int]) -> Outcome:
    return played(_SUBJECT[0], seeds)
