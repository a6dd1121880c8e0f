"""Trials through the real driver, guards and sandbox; only the model follows a script."""

import pytest
from benchmarks.tasks.arms import arm_named
from benchmarks.tasks.calls import Calls
from benchmarks.tasks.models import read_model
from benchmarks.tasks.prompts import published_prompt
from benchmarks.tasks.tasks import task_named
from benchmarks.tasks.trials import perform, sample_seed

from dsa.runtime.content import Artifact, Usage
from dsa.runtime.generation import GenerationError

WRONG, GAP, RIGHT = (
    "def factorial(n):\n    return 0",
    "def factorial(n):\n    return 120 if n else 1",
    "import math\nfactorial = math.factorial",
)


class Replying:
    """A model that gives replies in order, and records the questions."""

    name, is_deterministic = "replying", True

    def __init__(self, *replies):
        self.replies, self.questions = list(replies), []

    def answer(self, question):
        self.questions.append(question)
        reply = self.replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return Artifact(reply, usage=Usage("replying", 2.0))

    def parameters(self, _question):
        return {}


def trial(tmp_path, model, arm="guarded_4", sample=0, task="factorial", *, shared=False):
    calls = Calls(model, tmp_path / "calls.jsonl", shared)
    return perform(task_named(task), arm_named(arm), sample, 1, calls, published_prompt)


def test_trial_is_accepted_at_the_third_attempt(tmp_path):
    row, artifact = trial(tmp_path, Replying(WRONG, WRONG, RIGHT))
    assert (row.outcome, row.oracle, row.fault, row.failed_step) == ("accepted", "right", "", "")
    assert (row.generations, row.attempts, row.calls, row.model_s) == (3, "factorial:3", 3, 6.0)
    assert artifact.content == RIGHT
    assert row.digest == artifact.content_digest[:16]


def test_wrong_code_that_the_guard_passes_is_found_by_the_oracle(tmp_path):
    row, _ = trial(tmp_path, Replying(GAP))
    assert (row.outcome, row.oracle) == ("accepted", "wrong")
    assert "factorial(2) gave 120" in row.fault
    assert "\n" not in row.fault


@pytest.mark.parametrize(("arm", "attempts"), [("one_shot", 1), ("best_of_4", 4), ("guarded_3", 3), ("guarded_4", 4)])
def test_arm_has_its_number_of_attempts_and_no_more(tmp_path, arm, attempts):
    row, artifact = trial(tmp_path, Replying(*[WRONG] * 9), arm)
    assert (row.outcome, row.oracle, row.generations, row.failed_step) == ("rejected", "", attempts, "factorial")
    assert artifact is None


def test_only_guarded_arms_get_feedback(tmp_path):
    model = Replying(*[WRONG] * 8)
    trial(tmp_path, model, "best_of_4")
    trial(tmp_path, model, "guarded_4")
    blind, told = model.questions[:4], model.questions[4:]
    assert len({question.prompt for question in blind}) == 1
    assert not any(question.has_feedback for question in blind)
    assert [question.has_feedback for question in told] == [False, True, True, True]
    assert "factorial(5) gave 0, expected 120" in told[1].prompt
    assert told[0] == blind[0]


def test_attempts_have_different_seeds_and_arms_the_same_ones(tmp_path):
    model = Replying(*[WRONG] * 8)
    trial(tmp_path, model, "best_of_4")
    trial(tmp_path, model, "guarded_4")
    seeds = [question.seed for question in model.questions]
    assert seeds[:4] == seeds[4:]
    assert len(set(seeds)) == 4


def test_samples_and_tasks_have_different_seeds():
    assert len({sample_seed(seed, task, sample) for seed in (1, 2) for task in ("a", "b") for sample in range(9)}) == 36


def test_shared_calls_are_counted_where_they_were_made(tmp_path):
    model = Replying(*[WRONG] * 9)
    rows = [trial(tmp_path, model, arm, shared=True)[0] for arm in ("one_shot", "best_of_4", "guarded_3", "guarded_4")]
    assert [row.generations for row in rows] == [1, 4, 3, 4]
    assert [row.calls for row in rows] == [1, 3, 2, 1]
    assert len(model.questions) == 7
    assert {row.model_s for row in rows} == {2.0, 6.0, 8.0}


def test_failing_model_makes_the_trial_an_error_without_a_verdict(tmp_path):
    row, artifact = trial(tmp_path, Replying(WRONG, GenerationError("the server is gone", "unreachable")))
    assert (row.outcome, row.oracle, row.failed_step, artifact) == ("error", "", "factorial", None)
    assert row.generations == 1
    assert row.fault.startswith("unreachable: query_llm")


def test_two_steps_are_counted_step_by_step(tmp_path):
    tests = "from implementation import Queue\ndef test_it():\n    queue = Queue()\n    queue.enqueue(1)\n    assert queue.dequeue() == 1"
    wrong = "class Queue:\n    pass"
    gap = "class Queue(list):\n    enqueue, dequeue = list.append, list.pop"
    row, artifact = trial(tmp_path, Replying("def (", tests, wrong, gap), task="tdd_queue")
    assert (row.outcome, row.oracle, row.attempts, row.generations) == ("accepted", "wrong", "g_test:2 g_impl:2", 4)
    assert artifact.content == gap


def test_trial_without_tests_has_no_second_step(tmp_path):
    row, _ = trial(tmp_path, Replying("def (", "def ("), "best_of_2", task="tdd_queue")
    assert (row.outcome, row.attempts, row.failed_step) == ("rejected", "g_test:2 g_impl:0", "g_test")


def test_trial_repeated_with_the_same_seed_has_the_same_result(tmp_path):
    model = read_model("scripted", (task_named("password").machine,))
    rows = [
        trial(tmp_path / place, model, sample=7, task="password")[0]
        for place in ("a", "b")
        if (tmp_path / place).mkdir() is None
    ]
    assert rows[0].digest == rows[1].digest
    assert (rows[0].outcome, rows[0].generations) == (rows[1].outcome, rows[1].generations)
