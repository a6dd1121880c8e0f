"""The shipped agent and workflow under crashes, and under generators and guards that raise: they still do what the paper says."""

import asyncio
from collections import Counter
from functools import cache

import pytest
from crashes import RUN, Breaking, Crash
from hypothesis import given, settings
from hypothesis import strategies as st
from property.test_real_agent import COUNTS, PERSON, SLOW, WORLDS, NoSystem, paper_of, require_agreement, shipped

from dsa.edge.binding import Bindings
from dsa.edge.stores.memory_store import MemoryStore
from dsa.guards.code import SyntaxGuard
from dsa.guards.guard_kinds import AllOf
from dsa.runs.place import RunPlace
from dsa.runs.runs import LocalRuns, Resumption
from dsa.runs.setup import Options, document_of
from dsa.runtime.artifacts import MemoryArtifacts
from dsa.runtime.content import Artifact, GeneratorInterface, GuardInterface
from dsa.runtime.ledger import ArtifactEntry, EventEntry, ResultEntry
from dsa.runtime.run_store import NewJournal
from dsa.runtime.status import UnfinishedWork, unfinished_work
from dsa.semantics import Occurrence
from dsa.testing.doubles import StillClock
from machines.dual_state import bindings


@cache
def document(name, rmax):
    return document_of(shipped(name, rmax))


class BreakingStore(MemoryStore):
    """A store whose journals break as is said of this `life`."""

    life = (0, False)

    def create(self, run, text, entries, summary=None):
        journal = self._breaking(NewJournal(super(), run, text))
        journal.append(entries, summary)
        return journal

    def hold(self, run, **how):
        journal, recorded = super().hold(run, **how)
        return self._breaking(journal), recorded

    def _breaking(self, journal):
        countdown, late = self.life
        return Breaking(journal, countdown, late=late)


class Lives:
    """A run that is cut off by crashes, and stopped by generators and guards that raise, and resumed until it rests.

    `crashes` are pairs of a count of appends and whether it is after what was appended became durable; `raising` are the calls, generator
    and guard counted together, that raise.
    """

    def __init__(self, name, rmax, texts, people, crashes, raising):
        self.document, self.texts, self.people = document(name, rmax), texts, people
        self.crashes, self.raising = list(crashes), set(raising)
        self.store, self.artifacts, self.asked, self.calls = BreakingStore(), MemoryArtifacts(), [], 0
        guards = {
            guard.name: Faulty(AllOf({"syntax": SyntaxGuard(), "safe": NoSystem()}), self)
            for guard in self.document.machine.guards
        }
        self.binding = Bindings(bindings.effects, guards, {"llm": Writing(self)})

    def breaks(self):
        """Count a call; some raise."""
        self.calls += 1
        if self.calls in self.raising:
            raise OSError("out of ink")

    async def play(self):
        while True:
            try:
                rest = await self.live()
            except Crash:
                continue
            if rest.kind == "finished" or (rest.kind == "waiting" and not self.next_word(rest.run)):
                return rest

    async def live(self):
        self.store.life = self.crashes.pop(0) if self.crashes else (0, False)
        options, word = Options(bindings=lambda *_: self.binding), None
        async with LocalRuns(RunPlace(lambda: self.store, lambda _run: self.artifacts), clock=StillClock()) as runs:
            if RUN in self.store.runs():
                self.handle = runs.hold(RUN, options=options, resumption=Resumption(take=True))
            else:
                self.handle = runs.begin(runs.setup(self.document, options), run_id=RUN)
            if unfinished_work(self.handle.run) == UnfinishedWork():
                word = self.next_word(self.handle.run)
            return await self.handle.drive(*([word] if word else []))

    def next_word(self, run):
        """Return what is sent to a run that waits: its task, or what the person says next."""
        if run.seq == 0:
            return Occurrence("specification", data="Psi")
        said = sum(isinstance(entry, EventEntry) and entry.event in PERSON for entry in run.ledger)
        if said == len(self.people) or run.is_finished:
            return None
        return Occurrence(self.people[said], data="not like this" if self.people[said] == "rejected" else None)


class Writing(GeneratorInterface):
    """Writes the text of the attempt that is wanted, however often it is asked for it."""

    blocks = False

    def __init__(self, lives):
        self._lives = lives

    def generate(self, context, template=None):
        number = sum(isinstance(entry, ArtifactEntry) for entry in self._lives.handle.run.ledger)
        self._lives.asked.append((number, (context.step, tuple(text for text, _ in context.feedback_history))))
        self._lives.breaks()
        return Artifact(self._lives.texts[number])


class Faulty(GuardInterface):
    """Judges as another guard, if nothing breaks."""

    def __init__(self, guard, lives):
        self._guard, self._lives = guard, lives

    def validate(self, artifact, **dependencies):
        self._lives.breaks()
        return self._guard.validate(artifact, **dependencies)


def require_the_paper_whatever_breaks(name, rmax, kinds, people, crashes, raising):
    people = people if name == "workflow" else []
    steps, paper = paper_of(name, rmax, kinds, people)
    lives = Lives(name, rmax, paper.texts, people, crashes, raising)
    rest = asyncio.run(asyncio.wait_for(lives.play(), 60))
    assert all(call == paper.calls[number] for number, call in lives.asked), (
        "each attempt is asked for as the paper says"
    )
    assert {number for number, _ in lives.asked} == set(range(len(paper.calls)))
    require_agreement(rest.run, lives.artifacts, paper, steps, rmax)
    entries = lives.store.read(RUN).entries
    assert list(entries) == list(rest.run.ledger)
    done = Counter(entry.key for entry in entries if isinstance(entry, ResultEntry) and not entry.has_failed)
    assert set(done.values()) <= {1}, "a recorded result is worked out once"


def break_everything(count, **more):
    @settings(max_examples=count, deadline=None, suppress_health_check=SLOW, report_multiple_bugs=False, **more)
    @given(
        **WORLDS,
        crashes=st.lists(st.tuples(st.integers(1, 10), st.booleans()), max_size=5),
        raising=st.sets(st.integers(1, 30), max_size=4),
    )
    def search(name, rmax, kinds, people, crashes, raising):
        require_the_paper_whatever_breaks(name, rmax, kinds, people, crashes, raising)

    search()


@pytest.mark.parametrize("count", COUNTS)
def test_agent_does_what_the_paper_says_whatever_breaks(count):
    break_everything(count)
