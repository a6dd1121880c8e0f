"""The shipped agent and workflow under crashes, and under generators and guards that raise: they still do what the paper says."""

import asyncio
from collections import Counter

import pytest
from crashes import RUN, Breaking, Crash
from hypothesis import given, settings
from hypothesis import strategies as st
from property.test_real_agent import COUNTS, PERSON, SLOW, WORLDS, NoSystem, paper_of, require_agreement, shipped

from dsa.edge.binding import Binding
from dsa.edge.driver import Driver
from dsa.edge.stores.memory import MemoryStore
from dsa.guards.code import SyntaxGuard
from dsa.guards.compose import AllOf
from dsa.meaning import Occurrence
from dsa.runtime.artifacts import MemoryArtifacts
from dsa.runtime.content import Artifact, GeneratorInterface, GuardInterface
from dsa.runtime.journal import Beginning
from dsa.runtime.ledger import ArtifactEntry, EventEntry, ResultEntry
from dsa.runtime.recovery import Unfinished, unfinished
from dsa.runtime.run import begin, replay
from dsa.testing.doubles import StillClock
from machines.dual_state import bindings


class Lives:
    """A run that is cut off by crashes, and stopped by generators and guards that raise, and resumed until it rests.

    `crashes` are pairs of a count of appends and whether it is after what was appended became durable; `raising` are the calls, generator
    and guard counted together, that raise.
    """

    def __init__(self, name, rmax, texts, people, crashes, raising):
        self.machine, self.texts, self.people = shipped(name, rmax), texts, people
        self.crashes, self.raising = list(crashes), set(raising)
        self.store, self.artifacts, self.asked, self.calls = MemoryStore(), MemoryArtifacts(), [], 0
        guards = {
            guard.name: Faulty(AllOf({"syntax": SyntaxGuard(), "safe": NoSystem()}), self)
            for guard in self.machine.guards
        }
        self.binding = Binding(bindings.effects, guards, {"llm": Writing(self)})

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
        crash, late = self.crashes.pop(0) if self.crashes else (0, False)
        if RUN in self.store.runs():
            journal, recorded = self.store.hold(RUN, take=True)
            run = replay(self.machine, recorded.entries)
            given = {"left": unfinished(run)}
        else:
            run, commands = begin(self.machine, RUN)
            journal, given = Beginning(self.store, RUN, ""), {"commands": commands}
        breaking = Breaking(journal, crash, late=late)
        self.driver = Driver(run, self.binding, self.artifacts, journal=breaking, clock=StillClock(), **given)
        word = self.next_word(run) if given.get("left", Unfinished()) == Unfinished() else None
        return await self.driver.drive(*([word] if word else []))

    def next_word(self, run):
        """Give what is sent to a run that waits: its task, or what the person says next."""
        if run.seq == 0:
            return Occurrence("specification", data="Psi")
        said = sum(isinstance(entry, EventEntry) and entry.event in PERSON for entry in run.ledger)
        if said == len(self.people) or run.finished:
            return None
        return Occurrence(self.people[said], data="not like this" if self.people[said] == "rejected" else None)


class Writing(GeneratorInterface):
    """Writes the text of the attempt that is wanted, however often it is asked for it."""

    blocks = False

    def __init__(self, lives):
        self._lives = lives

    def generate(self, context, template=None):
        number = sum(isinstance(entry, ArtifactEntry) for entry in self._lives.driver.run.ledger)
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
    done = Counter(entry.key for entry in entries if isinstance(entry, ResultEntry) and not entry.failed)
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
def test_the_agent_does_so_whatever_breaks(count):
    break_everything(count)
