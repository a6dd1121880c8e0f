"""Make the trials of a plan that are not there yet, one sample after the other, so that what is there is balanced whenever it ends.

Takes a plan and where rows and calls are kept. Rows are on disk before the next trial of their sample begins.
"""

import itertools
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path

import attrs
from benchmarks.tasks.calls import Calls
from benchmarks.tasks.models import Question
from benchmarks.tasks.plan import ACCEPTED, Plan
from benchmarks.tasks.prompts import PROMPTS
from benchmarks.tasks.results import Results
from benchmarks.tasks.tasks import Task
from benchmarks.tasks.trials import ERROR, Trial, perform, sample_seed

from dsa.generators.model_options import derive_seed
from dsa.runtime.content import AmbientEnvironment, Context
from machines.dual_state.bindings import template_for

MOST_ERRORS = 3


class BrokenError(Exception):
    """Raised when one trial after the other ended in an error: nothing is to be had of this model now."""


@attrs.frozen
class Probe:
    """What was found when the first question of each task was asked twice: whether the answers were equal, seconds for one."""

    questions: int
    differing: int
    seconds: float


def probe(plan: Plan) -> Probe:
    """Ask the first question of each task twice. Raises what the model raises."""
    taken, differing = [], 0
    for task in plan.tasks:
        question = first_question(plan, task)
        answers = []
        for _ in range(2):
            begun = time.monotonic()
            answers.append(plan.model.answer(question).content)
            taken.append(time.monotonic() - begun)
        differing += answers[0] != answers[1]
    return Probe(len(plan.tasks), differing, sum(taken) / len(taken))


def first_question(plan: Plan, task: Task, sample: int = 0) -> Question:
    """Return what the model is asked first in a sample."""
    step = task.steps[0]
    prompt = PROMPTS[plan.prompt](
        Context(AmbientEnvironment(), "", step=step), template_for(task.machine, step, "query_llm")
    )
    seed = derive_seed(sample_seed(plan.seed, task.name, sample), step, 1, task.name)
    return Question(task.machine, step, seed, prompt)


def left(plan: Plan, results: Results) -> Iterator[tuple[int, Task]]:
    """Yield each sample of each task of which some arm's trial is not done."""
    for sample, task in itertools.product(range(plan.samples), plan.tasks):
        if not all(results.is_done((task.name, arm.name, sample)) for arm in plan.arms):
            yield sample, task


def measure(plan: Plan, results: Results, calls: Calls, jobs: int, tell: Callable[[int, int], None]) -> None:
    """Make what is left, `jobs` samples at a time; `tell` is given how many of how many are done. Raises BrokenError, OSError."""
    todo = list(left(plan, results))
    streak = _Streak()
    with ThreadPoolExecutor(jobs) as threads:
        running: set[Future[None]] = set()
        try:
            for begun, (sample, task) in enumerate(todo, start=1):
                running.add(threads.submit(_sampled, plan, task, sample, results, calls, streak))
                while running and (len(running) >= jobs or begun == len(todo)):
                    running = _waited(running)
                    tell(begun - len(running), len(todo))
        except BaseException:
            threads.shutdown(wait=False, cancel_futures=True)
            raise


def _waited(running: set[Future[None]]) -> set[Future[None]]:
    """Wait for one of them, and raise what it raised."""
    done, rest = wait(running, return_when=FIRST_COMPLETED)
    for each in done:
        each.result()
    return rest


@attrs.define
class _Streak:
    """How many trials in a row ended in an error."""

    count: int = 0

    def heed(self, trial: Trial) -> None:
        self.count = self.count + 1 if trial.outcome == ERROR else 0
        if self.count >= MOST_ERRORS:
            raise BrokenError(f"the last {self.count} trials ended in errors, of {trial.task} last: {trial.fault}")


def _sampled(plan: Plan, task: Task, sample: int, results: Results, calls: Calls, streak: _Streak) -> None:
    """Make the trials of one sample, arm after arm: a later one is given what it has in common with an earlier one."""
    for arm in plan.arms:
        if results.is_done((task.name, arm.name, sample)):
            continue
        trial, artifact = perform(task, arm, sample, plan.seed, calls, PROMPTS[plan.prompt])
        if artifact is not None:
            _keep(plan.folder / ACCEPTED / task.name, trial, artifact.content)
        results.add(trial)
        streak.heed(trial)


def _keep(folder: Path, trial: Trial, content: str) -> None:
    """Keep what was accepted, once, for people to look at."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{trial.digest}-{trial.oracle or ERROR}.md"
    if not path.exists():
        path.write_bytes(content.encode("utf-8", "surrogatepass"))
