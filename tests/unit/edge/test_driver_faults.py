"""Policies, guards, generators and watchers that break their promises: the run stops in order, and says why."""

import asyncio
from pathlib import Path

import pytest
from each_row import each_row
from hands import TWO_AT_ONCE, Hands, driver_of, finish

from dsa.edge.binding import Bindings
from dsa.edge.driver import Driver
from dsa.lang import loads
from dsa.runtime.artifacts import MemoryArtifacts
from dsa.runtime.content import Artifact, GeneratorInterface, GuardInterface, GuardResult, Usage
from dsa.runtime.costs import read_limit
from dsa.runtime.ledger import ArtifactEntry, ResultEntry
from dsa.runtime.policy.policies import Step, event_step
from dsa.runtime.run import begin, replay
from dsa.semantics import Occurrence
from dsa.testing.doubles import StillClock, Texts, Verdicts
from machines.dual_state.bindings import effects

ERRAND = loads("""# errand
## Events
| event | from |
| - | - |
| go | outside |
| fetched | fetch |
## Effects
| effect | time limit | retries |
| - | - | - |
| fetch | 5s | 2 |
| log | | 1 |
## Guards
| guard | judges | verdicts |
| - | - | - |
| fair | go | passed, failed |
## States
| state | kind |
| - | - |
| idle | initial |
| busy | |
| done | final |
| unfair | final |
## Transitions
| source | event | if | effects | target |
| - | - | - | - | - |
| idle | go | fair.passed | log, fetch | busy |
| idle | go | fair.failed | | unfair |
| busy | fetched | | | done |
""")


class Hostile(BaseException):
    """Derives from neither Exception nor anything that asyncio knows."""


def doing(*results):
    """Return a policy that goes through the results: it raises an exception, and returns anything else."""
    left = iter(results)

    async def policy(_action, _context):
        result = next(left)
        if isinstance(result, BaseException):
            raise result
        return result

    return policy


def errand(fetch=None, log=None, fair=None, clock=None, limits=(), observe=lambda _entries: None):
    run, commands = begin(ERRAND, "r")
    binding = Bindings(
        {"fetch": fetch or doing([event_step("fetch", "fetched")]), "log": log or doing([])},
        {"fair": fair or Verdicts([""])},
    )
    clock = clock or StillClock()
    return Driver(run, binding, MemoryArtifacts(), commands=commands, limits=limits, clock=clock, observe=observe)


def driven(driver):
    async def bounded():
        return await asyncio.wait_for(driver.clock.through(driver.drive(Occurrence("go"))), 20)

    rest = asyncio.run(bounded())
    assert replay(rest.run.machine, rest.run.ledger) == rest.run
    return rest


ODD = {
    "nothing": (None, "returned None, not a list of Steps"),
    "a text": ("fetched", "returned str, not a list of Steps"),
    "other things": (["fetched"], "returned list with str in it"),
    "an error without a reason": ([Step("", "fetch", "action_result", {"error": True})], "gives no reason"),
    "verdicts as a list": (
        [Step("", "fetch", "event", {"event": "fetched", "verdicts": ["fair"]})],
        "must be an object",
    ),
    "verdicts as a text": ([Step("", "fetch", "event", {"event": "fetched", "verdicts": "fair"})], "must be an object"),
    "no event": ([Step("", "fetch", "event", {})], "answered 'None'"),
    "sys.exit": (SystemExit(0), "0"),
    "a strange exception": (Hostile("boo"), "boo"),
    "cancellation of its own": (asyncio.CancelledError("mine"), "mine"),
}


@each_row(("result", "said"), ODD.values(), ids=ODD)
@each_row("effect", ["fetch", "log"])
def test_misbehaving_policy_stops_the_run_with_a_reason(effect, result, said):
    if effect == "log" and said.startswith(("must be an object", "answered")):
        return  # the result of an effect without answers is recorded, not read
    rest = driven(errand(**{effect: doing(result, result, result)}))
    assert (rest.kind, rest.failure.what) == ("stopped", effect)
    assert said in rest.failure.message


def test_synchronous_policy_is_reported():
    rest = driven(errand(fetch=lambda _action, _context: [event_step("fetch", "fetched")]))
    assert "not an async function" in rest.failure.message


@pytest.mark.parametrize("field", ["id", "actor", "type"])
def test_non_text_field_of_a_step_is_refused(field):
    with pytest.raises(TypeError):
        Step(**{"id": "", "actor": "fetch", "type": "text", field: 3})


def test_effect_is_retried_as_the_table_says_and_each_try_is_recorded():
    rest = driven(errand(doing(OSError("one"), [], [event_step("fetch", "fetched")]), doing(OSError("first"), [])))
    assert rest.run.outcome == "done"
    tries = [entry.steps for entry in rest.run.ledger if isinstance(entry, ResultEntry)]
    said = [steps[-1]["payload"].get("message") if steps else "" for steps in tries]
    assert said == ["first", "", "one", "its policy gave 0 events instead of one", None]


def test_effect_is_not_retried_more_often_than_the_table_says():
    rest = driven(errand(doing(*[OSError("down")] * 3, AssertionError("a fourth time"))))
    assert (rest.kind, rest.failure.message) == ("stopped", "down")


def test_each_try_has_its_own_time_limit_and_a_longer_pause_before_it():
    tried_s = []

    async def slow(_action, context):
        tried_s.append(context.now_s())
        if len(tried_s) < 3:
            await asyncio.Event().wait()
        return [event_step("fetch", "fetched")]

    assert driven(errand(slow)).run.outcome == "done"
    assert tried_s == [0, 5 + 0.5, 5.5 + 5 + 1]


def test_spent_budget_fails_the_effect_without_performing_it():
    limits = [read_limit("fetch.calls=2", ["fetch"]), read_limit("seconds=100", [])]
    rest = driven(errand(doing(OSError("down"), OSError("down"), AssertionError("a third time")), limits=limits))
    assert str(rest.failure) == "fetch (line 26) failed: the budget is spent: at most 2 calls of fetch"
    assert [
        entry.steps[-1]["payload"]["code"]
        for entry in rest.run.ledger
        if isinstance(entry, ResultEntry) and entry.has_failed
    ] == [
        "OSError",
        "OSError",
        "BUDGET",
    ]


def test_rest_of_a_budget_in_seconds_is_a_time_limit():
    async def slow(_action, _context):
        await asyncio.Event().wait()

    rest = driven(errand(slow, limits=[read_limit("seconds=7", [])]))
    assert "the budget is spent: at most 7 seconds in all" in str(rest.failure)
    said = [
        step["payload"]["message"]
        for entry in rest.run.ledger
        if isinstance(entry, ResultEntry)
        for step in entry.steps
    ]
    assert [text.partition(",")[0] for text in said] == [
        "no answer within 5 s",
        "no answer within 2 s",
        "the budget is spent: at most 7 seconds in all",
    ]


@pytest.mark.parametrize("effect", ["fetch", "log"])
def test_failure_of_a_watcher_is_raised_and_nothing_hangs(effect):
    def watch(entries):
        key = {"log": "1/1", "fetch": "1/2"}[effect]
        if any(isinstance(entry, ResultEntry) and entry.key == key for entry in entries):
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        driven(errand(observe=watch))


@pytest.mark.parametrize(
    "entry", ["artifact", ResultEntry("k"), ArtifactEntry("k", "s", 1, "a", "d", seconds=float("nan"))]
)
def test_invalid_entry_is_refused_before_anything_changes(entry):
    async def recording(_action, context):
        context.record(entry)
        return []

    written = []
    rest = driven(errand(log=recording, observe=written.extend))
    assert (rest.kind, rest.failure.what) == ("stopped", "log")
    assert entry not in list(rest.run.ledger)
    assert written == list(rest.run.ledger)


def test_verdict_that_the_table_rules_out_stops_the_run():
    rest = driven(errand(fair=Verdicts([GuardResult(passed=False, fatal=True)])))
    assert (rest.kind, rest.failure.what) == ("stopped", "a guard that judges go")
    assert "guard fair cannot say 'fatal'; it says: passed, failed" in rest.failure.message
    assert rest.run.configuration.state == "idle"


@pytest.mark.parametrize(
    "fields", [{"passed": "no"}, {"passed": None}, {"passed": True, "feedback": None}, {"passed": False, "fatal": 1}]
)
def test_guard_result_refuses_values_of_the_wrong_type(fields):
    with pytest.raises(TypeError):
        GuardResult(**fields)


class Gives(GuardInterface):
    def validate(self, artifact, **dependencies):
        return None


def test_guard_that_returns_none_is_named():
    rest = driven(errand(fair=Gives()))
    assert "guard fair gave None, not a GuardResult" in rest.failure.message


# -- the dual-state agent's own policies --------------------------------------------------------------------------

AGENT = loads("""# agent
## Events
| event | from |
| - | - |
| go | outside |
| artifact | query_llm |
| verdict | execute_guard |
## Guards
| guard | judges |
| - | - |
| g | verdict |
## Variables
| variable | scope | domain | initial |
| - | - | - | - |
| good | workflow | bool | false |
## States
| state | kind |
| - | - |
| idle | initial |
| busy | |
| judging | |
| done | final |
## Transitions
| source | event | if | update | effects | target |
| - | - | - | - | - | - |
| idle | go | | | query_llm | busy |
| busy | artifact | | | execute_guard | judging |
| judging | verdict | g.passed | good = true | | done |
| judging | verdict | else | | refine_context, query_llm | busy |
""")


def agent(generator, guard):
    run, commands = begin(AGENT, "r")
    binding = Bindings(effects, {"g": guard}, {"llm": generator})
    return Driver(run, binding, MemoryArtifacts(), commands=commands, clock=StillClock())


class Makes(GeneratorInterface):
    def __init__(self, made):
        self.made = made

    def generate(self, context, template=None):
        return self.made


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (None, "returned NoneType, not an Artifact"),
        ("def add(): pass", "returned str, not an Artifact"),
        (Artifact(None), "whose content is not a text"),
        (Artifact(b"bytes"), "whose content is not a text"),
        (Artifact("x", usage={"model": "m"}), "whose usage is not a Usage"),
        (Artifact("x", usage=Usage("m", float("nan"))), "not JSON compliant"),
    ],
)
def test_invalid_result_of_a_generator_is_reported_as_a_failure(made, said):
    rest = driven(agent(Makes(made), Verdicts([""])))
    assert (rest.kind, rest.failure.what) == ("stopped", "query_llm")
    assert said in rest.failure.message
    assert not [entry for entry in rest.run.ledger if isinstance(entry, ArtifactEntry)]


def test_failure_of_a_watcher_during_a_record_is_not_blamed_on_the_policy():
    def watch(entries):
        if any(isinstance(entry, ArtifactEntry) for entry in entries):
            raise OSError("disk full")

    run, commands = begin(AGENT, "r")
    binding = Bindings(effects, {"g": Verdicts([""])}, {"llm": Texts(["x"])})
    driver = Driver(run, binding, MemoryArtifacts(), commands=commands, clock=StillClock(), observe=watch)
    with pytest.raises(OSError, match="disk full"):
        driven(driver)


@pytest.mark.parametrize(
    "text", ["", "\ud800 half", "\x00\x1b[2J", "x" * 3_000_000], ids=["empty", "surrogate", "control", "long"]
)
def test_any_text_can_be_an_artifact(text):
    rest = driven(agent(Texts([text]), Verdicts([""])))
    assert rest.run.outcome == "done"


def test_cost_of_a_step_does_not_grow_with_the_history():
    """The whole history is available on request; without a request it is not fetched."""
    fetched = []

    class Counting(MemoryArtifacts):
        def get_artifact(self, artifact_id):
            fetched.append(artifact_id)
            return super().get_artifact(artifact_id)

    texts, run_and_commands = Texts(f"text {n}" for n in range(41)), begin(AGENT, "r")
    binding = Bindings(effects, {"g": Verdicts([*["no"] * 40, ""])}, {"llm": texts})
    driver = Driver(run_and_commands[0], binding, Counting(), commands=run_and_commands[1], clock=StillClock())
    assert driven(driver).run.outcome == "done"
    assert len(fetched) <= 5 * 41
    last, _ = texts.calls[-1]
    assert last.current_artifact == "text 39"
    assert last.feedback_history == [(f"text {n}", "no") for n in range(40)]
    assert last.feedback_history[-2:] == (("text 38", "no"), ("text 39", "no"))
    assert (last.feedback_history[0], len(last.feedback_history)) == (("text 0", "no"), 40)


def test_failure_names_its_kind_and_its_place_in_the_users_code():
    async def slow(_action, _context):
        raise KeyError("title")

    driver = driver_of(TWO_AT_ONCE, Hands().effects(left=slow))
    failure = finish(driver.drive(Occurrence("go"))).failure
    place = f"{Path(__file__).name}:{slow.__code__.co_firstlineno + 1}"
    assert (failure.code, failure.message, failure.at) == ("KeyError", "'title'", place)
    assert str(failure).endswith(f"failed: KeyError: 'title' (at {place})")
