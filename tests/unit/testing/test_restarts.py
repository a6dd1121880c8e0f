"""Walks that restart the implementation: our own run is restored from its ledger, and anything forgotten in a restart is found."""

import json

import attrs
import pytest
from agents import Adapted, HandWrittenAgent
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from repository import shipped_machines
from sample_sizes import sample_size

from dsa.edge.document_files import load
from dsa.errors import DsaError
from dsa.lang import loads
from dsa.runtime.ledger import EventEntry, Ledger, ResultEntry, load_lines
from dsa.runtime.run import replay
from dsa.semantics import Occurrence, start
from dsa.testing import (
    DisagreementError,
    Lockstep,
    ReplayedMachine,
    SteppedMachine,
    View,
    graph_of,
    run_walks,
    state_machine_test,
)
from dsa.testing.lockstep import DEFAULT
from dsa.testing.strategies import machines

MACHINE = load("dual_state").at(rmax=2)
STEADY = settings(DEFAULT, derandomize=True, database=None, phases=[p for p in Phase if p is not Phase.explain])
TICKETS = loads("""# tickets
## Parameters
| parameter | domain | default |
| - | - | - |
| most | 0.. | 2 |
## Variables
| variable | domain | initial |
| - | - | - |
| reminded | 0..most | 0 |
## Events
| event | from |
| - | - |
| opened | outside |
| looked | outside |
| withdrawn | outside |
| drafted | draft |
| rung | ring |
## Transitions
| source | event | if | update | effects | target |
| - | - | - | - | - | - |
| new | opened | | | draft, ring | open.writing |
| open.writing | drafted | | | draft, note | open.asking |
| open.asking | drafted | | | draft | = |
| open.writing | looked | | | | = |
| open.asking | looked | | | | open.writing |
| open | rung | | | ring | = |
| open | after 4h | reminded < most | reminded += 1 | | = |
| open | after 4h | else | | | closed |
| open.asking | after 1m | | | | open.writing |
| open | withdrawn | | | cancel | closed |
## States
| state | kind |
| - | - |
| new | initial |
| open.writing | initial |
| open.asking | |
| closed | final |
""")
SHIPPED = {**shipped_machines(), "tickets": TICKETS}


def walked(machine, make, count=100):
    """Walk `count` times; return the program that ended in a disagreement, and the disagreement."""
    with pytest.raises(DisagreementError) as raised:
        run_walks(state_machine_test(machine, make, settings=settings(STEADY, max_examples=count)))
    told = [note for note in raised.value.__notes__ if note.startswith("state.") and "teardown" not in note]
    return told, str(raised.value)


class Watched(ReplayedMachine):
    """Records what was outstanding and armed at each restart."""

    seen: list[tuple[set[str], set[str]]]

    def restart(self):
        shown = self.view()
        self.seen.append((set(shown.keys), set(shown.timers)))
        super().restart()


@pytest.mark.parametrize("name", ["dual_state", "workflow", "examples/two_phase_commit", "tickets"])
def test_run_is_restored_from_its_ledger_at_any_point(name, monkeypatch):
    machine = SHIPPED[name]
    monkeypatch.setattr(Watched, "seen", [], raising=False)
    test = state_machine_test(
        machine, lambda: Watched(machine), settings=settings(STEADY, max_examples=sample_size(15, full=40))
    )
    assert run_walks(test).rows == graph_of(machine).rows
    assert len(Watched.seen) > 40
    if machine is TICKETS:
        assert ({"draft", "ring"}, {"after 1m of open.asking", "after 4h of open"}) in Watched.seen


def test_run_is_restored_from_the_lines_of_its_ledger():
    run = ReplayedMachine(MACHINE)
    run.feed(Occurrence("specification"))
    run.feed(Occurrence("artifact"))
    assert [json.loads(line)["kind"] for line in run.text.splitlines()] == [
        "machine", "event", "row", "effect", "result", "event", "row", "effect",
    ]  # fmt: skip
    before = run.view()
    run.restart()
    assert run.view() == before
    assert before.keys == {"execute_guard": "2/1"}


def test_deadline_is_that_of_the_last_start_of_its_timer():
    run = ReplayedMachine(TICKETS)
    hours_ms, timer = 4 * 3_600_000, "after 4h of open"
    for number, occurrence in enumerate(
        [Occurrence("opened"), Occurrence("looked"), Occurrence("after 4h", source="open")], 1
    ):
        run.feed(occurrence)
        run.restart()
        assert run.view().timers[timer] == hours_ms + (number if number != 2 else 1)


def test_implementation_without_restart_is_never_restarted():
    test = Lockstep(MACHINE, SteppedMachine(MACHINE))
    assert not test.can_restart
    assert Lockstep(MACHINE, ReplayedMachine(MACHINE)).can_restart
    run_walks(state_machine_test(MACHINE, lambda: SteppedMachine(MACHINE), settings=settings(STEADY, max_examples=10)))


@settings(max_examples=sample_size(18, full=60), deadline=None, suppress_health_check=list(HealthCheck))
@given(machines(claims=False), st.data())
def test_any_run_of_any_machine_is_restored(machine, data):
    try:
        graph = graph_of(machine, max_configurations=60)
    except DsaError:
        return
    test = Lockstep(machine, ReplayedMachine(machine))
    for occurrence in data.draw(st.lists(st.sampled_from(graph.alphabet), max_size=12)) if graph.alphabet else ():
        place = graph.index[test.configuration]
        if graph.answer(place, occurrence) is not None:
            test.feed(occurrence)
            test.restart()
    test.close()


# -- forgetful implementations ----------------------------------------------------------------------------------------------


class LastingAgent(Adapted):
    """An agent that saves a snapshot of itself after each event, except for the attribute that `forgets` names."""

    forgets = ""

    def start(self, parameters):
        super().start(parameters)
        self.most = parameters["rmax"]
        self._keep()

    async def feed(self, occurrence):
        answer = await super().feed(occurrence)
        self._keep()
        return answer

    def restart(self):
        self.agent = HandWrittenAgent(self.most)
        vars(self.agent).update(json.loads(self.disk))

    def _keep(self):
        self.disk = json.dumps({name: value for name, value in vars(self.agent).items() if name != self.forgets})


def test_agent_that_saves_everything_passes():
    run_walks(state_machine_test(MACHINE, LastingAgent, settings=settings(STEADY, max_examples=40)))


@pytest.mark.parametrize(
    ("forgotten", "steps", "said"),
    [
        ("retries", 4, "retries after a restart: dual_state says 1, but the implementation says 0"),
        ("phase", 2, "the state after a restart: dual_state says generating, but the implementation says idle"),
        ("satisfied", 4, "satisfied after a restart: dual_state says true, but the implementation says false"),
    ],
)
def test_forgotten_value_of_an_agent_is_found(forgotten, steps, said):
    program, message = walked(MACHINE, type("Forgetful", (LastingAgent,), {"forgets": forgotten}))
    assert said in message
    assert message.endswith("     restart")
    assert (len(program), program[-1]) == (steps, "state.restarts()")
    assert all(line.startswith("state.happens(") for line in program[:-1])


def test_forgotten_hidden_counter_is_found_by_its_effect():
    class Blind(LastingAgent):
        forgets = "retries"

        def view(self):
            return View(self.agent.phase)

    program, message = walked(MACHINE.at(rmax=1), Blind)
    assert (
        "the answer: dual_state says refine_context, reply_failure, but the implementation says refine_context, query_llm"
        in message
    )
    assert program.count("state.restarts()") == 1


class Numbered(ReplayedMachine):
    """Uses its own keys, counted from 1; after a restart it counts on from `again`."""

    again = None

    def start(self, parameters, /):
        super().start(parameters)
        self.keys, self.count = {}, 0

    def restart(self):
        super().restart()
        self.count = self.count if self.again is None else self.again

    def view(self):
        shown = super().view()
        for key in shown.keys.values():
            if key not in self.keys:
                self.count += 1
                self.keys[key] = f"key {self.count}"
        return attrs.evolve(shown, keys={effect: self.keys[key] for effect, key in shown.keys.items()})


class Renames(Numbered):
    def restart(self):
        super().restart()
        self.keys.clear()


def test_implementation_may_choose_its_own_keys():
    run_walks(state_machine_test(TICKETS, lambda: Numbered(TICKETS), settings=settings(STEADY, max_examples=20)))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (
            type("Recounts", (Numbered,), {"again": 0}),
            "says a key that was not used before, but the implementation says key 1",
        ),
        (Renames, "the key of draft after a restart: tickets says key 1, but the implementation says key 3"),
    ],
)
def test_key_that_changes_or_is_reused_after_a_restart_is_found(make, said):
    program, message = walked(TICKETS, lambda: make(TICKETS))
    assert said in message
    assert program.count("state.restarts()") == 1


def reading_without(lost):
    """Return a reader of ledgers that loses some entries."""
    return lambda text: Ledger(entry for entry in load_lines(text) if not lost(entry))


def reading_later(text):
    """Read a ledger whose timers start again."""
    return Ledger(
        attrs.evolve(entry, at_ms=entry.at_ms + 1) if isinstance(entry, EventEntry) else entry
        for entry in load_lines(text)
    )


def replaying_with(**forgotten):
    """Return a replay that forgets a part of the run."""
    return lambda machine, ledger: attrs.evolve(replay(machine, ledger), **forgotten)


@pytest.mark.parametrize(
    ("name", "fault", "said"),
    [
        (
            "replay",
            replaying_with(timers={}),
            "the armed timers after a restart: tickets says after 4h of open, but the implementation says no timers",
        ),
        ("load_lines", reading_later, "the deadline of after 4h of open after a restart"),
        (
            "load_lines",
            reading_without(lambda entry: isinstance(entry, ResultEntry) and entry.key == "2/2"),
            "the pending effects after a restart: tickets says draft, ring, but the implementation says draft, note, ring",
        ),
        (
            "replay",
            replaying_with(keys={}),
            "the pending effects after a restart: tickets says draft, ring, but the implementation says no effects",
        ),
        (
            "replay",
            replaying_with(configuration=start(TICKETS)),
            "the state after a restart: tickets says open.writing, but the implementation says new",
        ),
    ],
    ids=["timer", "deadline", "result", "outstanding effects", "state"],
)
def test_planted_fault_in_our_replay_is_found(monkeypatch, name, fault, said):
    monkeypatch.setattr(f"dsa.testing.implementations.{name}", fault)
    program, message = walked(TICKETS, lambda: ReplayedMachine(TICKETS))
    assert said in message
    assert "state.restarts()" in program


@pytest.mark.parametrize("make", [LastingAgent, lambda: ReplayedMachine(MACHINE)], ids=["by hand", "ours"])
def test_error_in_a_restart_is_raised_with_what_led_to_it(make, monkeypatch):
    def fails(*_):
        raise OSError("the disk is gone")

    monkeypatch.setattr("dsa.testing.implementations.replay", fails)
    monkeypatch.setattr(LastingAgent, "restart", fails)
    with pytest.raises(OSError, match="the disk is gone") as raised:
        run_walks(state_machine_test(MACHINE, make, settings=settings(STEADY, max_examples=20)))
    assert any("the implementation raised this" in note and "restart" in note for note in raised.value.__notes__)
