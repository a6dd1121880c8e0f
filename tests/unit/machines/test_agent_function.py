"""The five percept tables of the agent function (seed 001), through the real agent and the real workflow, action by action.

The percepts and actions of a run are read from its ledger; the generator and the guards record their own inputs. A percept is
the newest entry of a percept sequence. Where the agent function's tables omit an action that must have happened (EXECUTE-GUARD for
the second and third artifact of table 3), the test includes it.
"""

import pytest

from dsa.generators.substitutes import ScriptedGenerator
from dsa.guards import ForbiddenGuard, TDDTestGuard
from dsa.runtime.content import Artifact, GeneratorInterface, GuardInterface, GuardResult, PromptTemplate
from dsa.runtime.ledger import ArtifactEntry, EventEntry, Intents, ResultEntry, RowEntry, VerdictEntry
from machines import (
    ActionPair,
    DualStateAgent,
    EscalationRequired,
    InMemoryArtifactDAG,
    RmaxExhausted,
    Workflow,
    WorkflowStatus,
    WorkflowStep,
)

CACHE = "class LRUCache:\n    def __init__(self, size):\n        self.kept, self.size = {}, size\n"
PUT = "    def put(self, key, value):\n        self.kept[key] = value\n"
GET = "    def get(self, key):\n        return self.kept.get(key, -1)\n"
TESTS = "def test_get():\n    cache = LRUCache(2)\n    cache.put(1, 1)\n    assert cache.get(1) == 1\n"
SHELL = "import os\n\nos.system('ls')\n"
_ACTIONS = {"query_llm": "QUERY-LLM", "refine_context": "REFINE-CONTEXT", "advance_state": "ADVANCE-STATE"}


class Asked(GeneratorInterface):
    """Returns texts one after the other, and records contexts and templates."""

    def __init__(self, *texts):
        self._inner, self.contexts, self.templates = ScriptedGenerator(texts), [], []

    def generate(self, context, template=None):
        self.contexts.append(context)
        self.templates.append(template)
        return self._inner.generate(context, template)


class Seen(GuardInterface):
    """A guard that records which artifacts it received beside the one to judge."""

    def __init__(self, guard):
        self._guard, self.given = guard, {}

    def validate(self, artifact: Artifact, **dependencies: Artifact) -> GuardResult:
        self.given[artifact.artifact_id] = dict(dependencies)
        return self._guard.validate(artifact, **dependencies)


class Wants(GuardInterface):
    """Rejects a text without certain words."""

    def __init__(self, words, feedback):
        self._words, self._feedback = words, feedback

    def validate(self, artifact, **_dependencies):
        passed = self._words in artifact.content
        return GuardResult(passed=passed, feedback="" if passed else self._feedback)


class PrimeSum(GuardInterface):
    """Rejects digits whose sum is not a prime number."""

    def validate(self, artifact, **_dependencies):
        total = sum(map(int, filter(str.isdigit, artifact.content)))
        is_prime = total > 1 and all(total % number for number in range(2, total))
        return GuardResult(passed=is_prime, feedback="" if is_prime else f"Sum is {total}, not prime")


class Story:
    """A run as the agent function's tables write it: pairs of percept and action."""

    def __init__(self, run, guards):
        self._guards, self._effects = guards, Intents(run.ledger)
        self._names, self._rejected, self._sigma, self.rows = {}, {}, {}, []
        self._percept, self._verdict = "", None
        for entry in run.ledger:
            match entry:
                case EventEntry():
                    self._perceive(entry)
                case RowEntry(changed=changed):
                    self._sigma |= {self._guard(name): value for name, value in changed if self._guard(name)}
                case ArtifactEntry(step=step, artifact_id=made):
                    of = "a" if step == "g" else f"a_{step.removeprefix('g_')}"
                    self._names[made] = f"{of}{entry.attempt}"
                case VerdictEntry():
                    self._verdict = entry
                case ResultEntry():
                    self._act(entry)

    def _guard(self, variable):
        """Return the guard whose bit of S_workflow a variable is, or "" for other variables."""
        return (
            variable.removeprefix("sigma.") if variable.startswith("sigma.") else "g" if variable == "satisfied" else ""
        )

    def _perceive(self, event):
        match event.event:
            case "specification":
                self._percept = "Psi"
            case "artifact":
                self._percept = self._names[event.data["artifact_id"]]
            case "verdict":
                sign = {"passed": "T", "failed": "F", "fatal": "F_fatal"}[self._verdict.outcome]
                self._percept = f"({sign}, {self._verdict.feedback or '-'})"

    def _act(self, result):
        payload, action = (
            (result.steps[0]["payload"] if result.steps else {}),
            _ACTIONS.get(effect := self._effects.effect(result.key)),
        )
        if effect == "execute_guard":
            judged = self._verdict
            given = self._guards[judged.step].given[judged.artifact_id]
            deps = ", ".join(f"{name}: {self._names[used.artifact_id]}" for name, used in given.items())
            action = f"EXECUTE-GUARD({self._names[judged.artifact_id]}, deps={{{deps}}})"
        elif effect == "reply_to_user":
            action = f"REPLY-TO-USER({self._names[payload['artifact_id']]})"
        elif effect == "reply_failure":
            action = "REPLY-TO-USER(failure, provenance)"
        elif effect == "escalate_to_user":
            action = f"ESCALATE-TO-USER({self._names[payload['artifact_id']]}, {payload['text']})"
        self.rows.append((self._percept, action))
        self._after(effect)

    def _after(self, effect):
        """Set the next percept: what the agent knows after its own action."""
        judged = self._verdict
        if effect == "refine_context":
            turned_down = self._rejected.setdefault(judged.step, [])
            turned_down.append(f"({self._names[judged.artifact_id]}, {judged.feedback})")
            self._percept = f"H: {{{', '.join(turned_down)}}}"
        elif effect == "advance_state":
            self._percept = f"sw: {{{', '.join(name for name, value in self._sigma.items() if value)}}}"


def agent_of(generator, guard, rmax=3):
    return DualStateAgent(ActionPair(lambda _state: True, generator, guard), InMemoryArtifactDAG(), rmax)


def test_table_1_guard_passes_the_first_attempt():
    guard = Seen(Wants("class", "no class"))
    agent = agent_of(Asked(CACHE), guard)
    assert agent.execute("Implement LRU Cache").content == CACHE
    assert Story(agent.run, {"g": guard}).rows == [
        ("Psi", "QUERY-LLM"),
        ("a1", "EXECUTE-GUARD(a1, deps={})"),
        ("(T, -)", "ADVANCE-STATE"),
        ("sw: {g}", "REPLY-TO-USER(a1)"),
    ]


def test_table_2_guard_fails_then_passes():
    generator, guard = Asked(CACHE, CACHE + GET), Seen(Wants("def get", "Missing get method"))
    agent = agent_of(generator, guard)
    assert agent.execute("Implement LRU Cache").content == CACHE + GET
    assert Story(agent.run, {"g": guard}).rows == [
        ("Psi", "QUERY-LLM"),
        ("a1", "EXECUTE-GUARD(a1, deps={})"),
        ("(F, Missing get method)", "REFINE-CONTEXT"),
        ("H: {(a1, Missing get method)}", "QUERY-LLM"),
        ("a2", "EXECUTE-GUARD(a2, deps={})"),
        ("(T, -)", "ADVANCE-STATE"),
        ("sw: {g}", "REPLY-TO-USER(a2)"),
    ]
    assert [list(context.feedback_history) for context in generator.contexts] == [[], [(CACHE, "Missing get method")]]
    assert [context.specification for context in generator.contexts] == ["Implement LRU Cache"] * 2


def test_table_3_all_retries_fail():
    texts = ["code = 93", "code = 95", "code = 91"]
    generator, guard = Asked(*texts), Seen(PrimeSum())
    agent = agent_of(generator, guard, rmax=2)
    with pytest.raises(RmaxExhausted) as raised:
        agent.execute("Implement prime validator")
    said = [f"Sum is {total}, not prime" for total in (12, 14, 10)]
    once, twice, thrice = (", ".join(f"(a{n + 1}, {said[n]})" for n in range(count)) for count in (1, 2, 3))
    assert Story(agent.run, {"g": guard}).rows == [
        ("Psi", "QUERY-LLM"),
        ("a1", "EXECUTE-GUARD(a1, deps={})"),
        (f"(F, {said[0]})", "REFINE-CONTEXT"),
        (f"H: {{{once}}}", "QUERY-LLM"),
        ("a2", "EXECUTE-GUARD(a2, deps={})"),
        (f"(F, {said[1]})", "REFINE-CONTEXT"),
        (f"H: {{{twice}}}", "QUERY-LLM"),
        ("a3", "EXECUTE-GUARD(a3, deps={})"),
        (f"(F, {said[2]})", "REFINE-CONTEXT"),
        (f"H: {{{thrice}}}", "REPLY-TO-USER(failure, provenance)"),
    ]
    assert [(artifact.content, feedback) for artifact, feedback in raised.value.provenance] == list(
        zip(texts, said, strict=True)
    )
    assert [len(context.feedback_history) for context in generator.contexts] == [0, 1, 2]


def test_table_3_5_fatal_verdict_escalates():
    guard, generator = Seen(ForbiddenGuard()), Asked(SHELL)
    dag = InMemoryArtifactDAG()
    agent = DualStateAgent(ActionPair(lambda _state: True, generator, guard), dag, 3)
    with pytest.raises(EscalationRequired) as raised:
        agent.execute("Execute code in sandbox")
    feedback = raised.value.feedback
    assert "os.system" in feedback
    assert Story(agent.run, {"g": guard}).rows == [
        ("Psi", "QUERY-LLM"),
        ("a1", "EXECUTE-GUARD(a1, deps={})"),
        (f"(F_fatal, {feedback})", f"ESCALATE-TO-USER(a1, {feedback})"),
    ]
    assert dag.get_artifact(raised.value.artifact.artifact_id).content == SHELL, "it is stored for provenance"
    assert len(generator.contexts) == 1, "there is no retry"
    again = Workflow(
        [WorkflowStep("run", ActionPair(lambda _s: True, Asked(SHELL), guard), "g")], InMemoryArtifactDAG()
    )
    result = again.execute("Execute code in sandbox")
    assert (result.status, result.escalation_artifact.content) == (WorkflowStatus.ESCALATION, SHELL)
    assert result.escalation_feedback == feedback


def test_table_4_guard_uses_the_artifact_of_an_earlier_step():
    tester, coder = Asked(TESTS), Asked(CACHE + PUT, CACHE + PUT + GET)
    guards = {"g_test": Seen(Wants("def test_", "no tests")), "g_impl": Seen(TDDTestGuard())}
    tell = {
        "test": PromptTemplate(task="Write tests for LRU Cache"),
        "impl": PromptTemplate(task="Implement LRU Cache"),
    }
    steps = [
        WorkflowStep("test", ActionPair(lambda _state: True, tester, guards["g_test"], tell["test"]), "g_test"),
        WorkflowStep(
            "impl", ActionPair(lambda _state: True, coder, guards["g_impl"], tell["impl"]), "g_impl", ("g_test",)
        ),
    ]
    workflow = Workflow(steps, InMemoryArtifactDAG())
    result = workflow.execute("LRU Cache")
    assert result.status is WorkflowStatus.SUCCESS
    ((_, why),) = coder.contexts[1].feedback_history
    assert "test_get" in why
    assert Story(workflow.run, guards).rows == [
        ("Psi", "QUERY-LLM"),
        ("a_test1", "EXECUTE-GUARD(a_test1, deps={})"),
        ("(T, -)", "ADVANCE-STATE"),
        ("sw: {g_test}", "QUERY-LLM"),
        ("a_impl1", "EXECUTE-GUARD(a_impl1, deps={test: a_test1})"),
        (f"(F, {why})", "REFINE-CONTEXT"),
        (f"H: {{(a_impl1, {why})}}", "QUERY-LLM"),
        ("a_impl2", "EXECUTE-GUARD(a_impl2, deps={test: a_test1})"),
        ("(T, -)", "ADVANCE-STATE"),
        ("sw: {g_test, g_impl}", "REPLY-TO-USER(a_impl2)"),
    ]
    assert [context.dependencies["test"].content for context in coder.contexts] == [TESTS, TESTS]
    assert [template.task for template in (*tester.templates, *coder.templates)] == [
        tell["test"].task,
        *[tell["impl"].task] * 2,
    ]
