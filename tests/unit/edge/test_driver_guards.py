"""Guards and generators under the driver: when they are called, what is recorded, and what a broken one leads to."""

import threading

import pytest
from hands import driver_of, finish

from dsa.lang import loads
from dsa.runtime.content import GuardInterface, GuardResult
from dsa.runtime.ledger import (
    ArtifactEntry,
    EffectEntry,
    EventEntry,
    VerdictEntry,
)
from dsa.runtime.run import replay
from dsa.semantics import Occurrence
from dsa.testing.doubles import Texts, Verdicts
from machines.dual_state.bindings import effects

AGENT = """# agent
## Parameters
| parameter | domain | default |
| - | - | - |
| rmax | 0.. | 1 |
## Variables
| variable | scope | domain | initial |
| - | - | - | - |
| satisfied | workflow | bool | false |
| retries | environment | 0..rmax | 0 |
## Events
| event | from |
| - | - |
| specification | outside |
| artifact | query_llm |
| verdict | execute_guard |
## Guards
| guard | judges |
| - | - |
| g | verdict |
| polite | specification |
## Transitions
| source | event | if | update | effects | target |
| - | - | - | - | - | - |
| idle | specification | polite.passed | | query_llm | generating |
| idle | specification | else | | | rude |
| generating | artifact | | | execute_guard | validating |
| validating | verdict | g.passed | satisfied = true | | succeeded |
| validating | verdict | g.failed and retries < rmax | retries += 1 | refine_context, query_llm | generating |
| validating | verdict | else | | | failed |
EXTRA
## States
| state | kind |
| - | - |
| idle | initial |
| generating | |
| validating | |
| succeeded | final |
| failed | final |
| rude | final |
| broken | final |
"""
HANDLED = AGENT.replace(
    "EXTRA", "| generating | query_llm.failed | | | | broken |\n| validating | execute_guard.failed | | | | broken |"
)
UNHANDLED = AGENT.replace("EXTRA\n", "").replace("| broken | final |\n", "")


def run_agent(text, texts, verdicts, polite=("",), specification="please"):
    machine = loads(text)
    entries = []
    generator, guard = Texts(texts), verdicts if isinstance(verdicts, GuardInterface) else Verdicts(verdicts)
    driver = driver_of(
        machine, effects, {"g": guard, "polite": Verdicts(polite)}, {"llm": generator}, observe=entries.extend
    )
    rest = finish(driver.drive(Occurrence("specification", data=specification)))
    assert entries == list(rest.run.ledger), "an observer sees every entry, in order"
    assert replay(machine, rest.run.ledger) == rest.run
    return rest, generator, guard


def test_guard_judges_an_incoming_event():
    rest, _, _ = run_agent(UNHANDLED, [], [], polite=["rude!"])
    assert rest.run.outcome == "rude"
    rest, _, _ = run_agent(UNHANDLED, ["a"], [""])
    assert rest.run.outcome == "succeeded"
    assert rest.run.ledger[1].verdicts == (("polite", "passed"),)


class Nonsense(GuardInterface):
    def validate(self, artifact, **dependencies):
        return True


BROKEN_GUARDS = [
    pytest.param(Verdicts([ConnectionError("no route")]), "no route", id="raises"),
    pytest.param(Nonsense(), "gave bool, not a GuardResult", id="nonsense"),
]


@pytest.mark.parametrize(("guard", "message"), BROKEN_GUARDS)
def test_broken_guard_gives_no_verdict(guard, message):
    rest, _, _ = run_agent(UNHANDLED, ["text"], guard)
    assert rest.kind == "stopped"
    line = next(r.span.line for r in loads(UNHANDLED).transitions if r.event == "artifact")
    assert (rest.failure.what, rest.failure.line) == ("execute_guard", line)
    assert message in rest.failure.message
    assert not [entry for entry in rest.run.ledger if isinstance(entry, VerdictEntry)]
    assert [entry.step for entry in rest.run.ledger if isinstance(entry, ArtifactEntry)] == ["agent"]
    assert "execute_guard" in rest.run.keys.values(), "the effect is outstanding still: the run can go on"


def test_row_can_handle_a_broken_guard():
    rest, _, _ = run_agent(HANDLED, ["text"], [ConnectionError("no route")])
    assert (rest.kind, rest.run.outcome) == ("finished", "broken")


@pytest.mark.parametrize(("text", "kind"), [(UNHANDLED, "stopped"), (HANDLED, "finished")])
def test_generator_that_raises_fails_query_llm(text, kind):
    rest, _, _ = run_agent(text, [TimeoutError("too slow")], [])
    assert rest.kind == kind
    event = [entry for entry in rest.run.ledger if isinstance(entry, EventEntry) and entry.event == "query_llm.failed"]
    assert len(event) == (kind == "finished")
    if rest.failure:
        assert (rest.failure.what, rest.failure.message) == ("query_llm", "too slow")


def test_artifact_is_recorded_before_its_guard_runs_and_the_verdict_after():
    rest, _, _ = run_agent(UNHANDLED, ["one", "two"], ["no", GuardResult(passed=False, feedback="never", fatal=True)])
    kinds = [
        entry.effect if isinstance(entry, EffectEntry) else type(entry).__name__
        for entry in rest.run.ledger
        if isinstance(entry, EffectEntry | ArtifactEntry | VerdictEntry)
    ]
    once = ["query_llm", "ArtifactEntry", "execute_guard", "VerdictEntry"]
    assert kinds == [*once, "refine_context", *once]
    assert rest.run.outcome == "failed"


def test_guards_run_outside_the_event_loop_thread():
    class Where(GuardInterface):
        def validate(self, artifact, **dependencies):
            self.thread = threading.current_thread()
            return GuardResult(passed=True)

    guard = Where()
    run_agent(UNHANDLED, ["text"], guard)
    assert guard.thread is not threading.main_thread()
