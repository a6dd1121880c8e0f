"""The policies, guards and model of the simulated world: they wait for their turn, answer the same question the same way, and are counted."""

from types import SimpleNamespace

import attrs
import pytest
from facts_of_runs import ABOUT, BUSY, DRAFT, LEDGER, facts
from simulations import subject

from dsa.edge.document_files import load
from dsa.edge.performer import fault_in
from dsa.runtime.content import Artifact
from dsa.runtime.policy.policies import Action
from dsa.testing.simulation.seed_plan import plan_of
from dsa.testing.simulation.virtual_loop import VirtualLoop
from dsa.testing.simulation.world import World, data_of

DRAFTING = LEDGER[:4]  # a letter was asked for
TO_WRITTEN = next(seed for seed, triple in enumerate(ABOUT.triples) if triple.row == 1)


@attrs.define(eq=False)
class Caller:
    """A process that calls policies, and records which."""

    is_alive: bool = True
    is_stale: bool = False
    begun: list = attrs.field(factory=list)

    def on_begin(self, key, effect, beside):
        self.begun.append((key, effect))


@attrs.define
class Played:
    """A world, with the notes that it has written."""

    known: object
    world: World
    told: list
    loop: VirtualLoop

    def call(self, caller, fate="answers", event=None):
        """Call the policy of `draft`, let it go on when it waits, and return the steps; None when it never returns."""
        binding = self.world.binding(caller)
        perform = binding.effects["draft"](
            Action("draft", {"key": DRAFT.key}, frozenset({"written"})), SimpleNamespace(key=f"{DRAFT.key}/1")
        )

        def idle():
            waiting = self.world.waiting_calls(caller)
            if not waiting:
                return False
            waiting[0].fate = fate
            waiting[0].comes_back(event)
            waiting[0].let_go()
            return True

        task = self.loop.create_task(perform)
        done = self.loop.play(task, idle)
        if not done:
            task.cancel()
            self.loop.play(task, lambda: False)
        return task.result() if done else None


@pytest.fixture
def played():
    return make()


def make(*, calm=False, seed=TO_WRITTEN):
    known, told = facts(DRAFTING), []
    world = World(known, plan_of(ABOUT, seed), lambda _row: calm, told.append)
    return Played(known, world, told, VirtualLoop(known.time))


def events_of(steps):
    return [step.payload["event"] for step in steps]


def test_effect_waits_for_its_turn_and_is_counted(played):
    caller = Caller()
    assert events_of(played.call(caller, event="written")) == ["written"]
    deeds = played.known.deeds
    assert caller.begun == [(DRAFT.key, "draft")]
    assert (deeds.begin_count, deeds.done_count, deeds.outcomes) == (
        {DRAFT.key: 1},
        {DRAFT.key: 1},
        {DRAFT.key: ["written"]},
    )
    assert played.told == ["draft 1/1 happens"]
    assert played.world.waiting_calls(caller) == []


def test_failed_effect_has_not_happened(played):
    steps = played.call(Caller(), event="draft.failed")
    assert fault_in(steps).payload["code"] == "MADE"
    assert played.known.deeds.done_count == {}
    assert played.known.deeds.outcomes == {DRAFT.key: ["MADE"]}
    assert played.told == []


def test_effect_with_a_lost_answer_has_happened_and_never_returns(played):
    assert played.call(Caller(), fate="lost", event="written") is None
    assert played.known.deeds.done_count == {DRAFT.key: 1}
    assert played.known.deeds.outcomes == {}


def test_garbled_answer_is_recorded_as_a_bad_answer():
    kinds = set()
    for seed in range(TO_WRITTEN, TO_WRITTEN + 60):
        played = make(seed=seed)
        given = played.call(Caller(), fate="garbled", event="written")
        is_answer = isinstance(given, list) and [getattr(step, "type", None) for step in given] == ["event"]
        assert not is_answer or given[0].payload["event"] == "gossip" or given[0].payload["verdicts"]
        assert played.known.deeds.outcomes == {DRAFT.key: ["BAD_ANSWER"]}
        kinds.add(repr(given))
    assert len(kinds) > 6


def test_effect_of_a_calm_row_gives_the_intended_answer_without_waiting():
    played = make(calm=True)
    assert events_of(played.call(Caller(), event="never asked")) == ["written"]


@pytest.mark.parametrize("caller", [Caller(is_stale=True), Caller(is_alive=False)], ids=["stale", "dead"])
def test_stale_caller_is_answered_in_a_calm_row_and_a_dead_one_is_not(caller):
    played = make(calm=True)
    assert (played.call(caller, event="written") is None) == (not caller.is_alive)
    assert (caller.begun == []) == (not caller.is_alive)
    assert played.known.deeds.begin_count == ({DRAFT.key: 1} if caller.is_alive else {})


def test_guard_gives_the_intended_verdict_and_repeats_it():
    about = subject("dual_state")
    for seed in range(0, len(about.triples), 9):
        plan = plan_of(about, seed)
        known = facts((), about)
        world = World(known, plan, lambda _row: False, lambda _what: None)
        guard = world.binding(Caller()).guards["g"]
        assert guard.validate(Artifact("x")) == guard.validate(Artifact("y"))
        place = next((n for n, move in enumerate(plan.way) if move.occurrence.verdicts), None)
        if place is not None:
            known.configuration = about.guide.where(plan.way[place])
            known.position = place
            said = dict(plan.way[place].occurrence.verdicts)["g"]
            found = guard.validate(Artifact("x"))
            assert (found.passed, found.fatal) == (said == "passed", said == "fatal")
            assert known.deeds.guard_outcomes["", "g"] == said


def test_guard_gives_only_declared_verdicts():
    known = facts((), BUSY)
    for seed in range(40):
        guard = World(known, plan_of(BUSY, seed), lambda _row: False, print).binding(Caller()).guards["g"]
        guard.validate(Artifact("x"))
        assert known.deeds.guard_outcomes["", "g"] in BUSY.machine.guard_named["g"].outcomes


def test_model_writes_the_call_that_asked_it():
    model = make().world.binding(Caller()).generators["any"]
    assert model.generate(None).content == "text of , try 0"


def test_outside_events_have_data_that_a_person_might_write():
    assert data_of(load("dual_state"), "specification", 3) == "task 3"
    assert data_of(load("workflow"), "approved", 3) == {"content": '["approved", 3]'}
