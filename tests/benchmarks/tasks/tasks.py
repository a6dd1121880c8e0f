"""The tasks: a machine document each, the steps in which it is done, and who scores what came of it.

Takes names, gives `Task` values. The documents beside this file are ordinary ones: `dsa run` and `dsa check` take them too.
"""

from functools import cached_property
from pathlib import Path

import attrs
from benchmarks.tasks.oracles import Oracle, oracle_of

from dsa.guards.guard_kinds import build_guard
from dsa.lang import loads
from dsa.machine import Machine
from dsa.runtime.content import GuardInterface

DOCUMENTS = Path(__file__).parent / "documents"

#: The tasks of the published benchmark; and functions that a model of 135 million parameters can write at all.
PUBLISHED = (
    "template", "password", "lru",
    "tdd_stack", "tdd_calculator", "tdd_queue", "tdd_lrucache", "tdd_template", "tdd_password",
)  # fmt: skip
KATAS = ("is_palindrome", "factorial", "fibonacci", "is_prime")
SETS = {"published": PUBLISHED, "katas": KATAS, "all": (*PUBLISHED, *KATAS)}


@attrs.frozen(slots=False)
class Task:
    """One task. `text` is its document."""

    name: str
    text: str

    @cached_property
    def machine(self) -> Machine:
        """The document as a machine."""
        return loads(self.text, f"{self.name}.md")

    @cached_property
    def guards(self) -> dict[str, GuardInterface]:
        """The guard of each step, as `dsa run` would build it."""
        return {step.name: build_guard(step.name, self.machine) for step in self.machine.steps}

    @property
    def steps(self) -> tuple[str, ...]:
        """The names of the steps, in order; the last one's artifact is what is scored."""
        return tuple(step.name for step in self.machine.steps)

    @property
    def oracle(self) -> Oracle:
        """What scores an accepted artifact once more."""
        return oracle_of(self.name)


def task_named(name: str) -> Task:
    """Return a task. ValueError for an unknown name."""
    if name not in SETS["all"]:
        raise ValueError(f"there is no task '{name}'; there are: {', '.join((*SETS['all'], *SETS))}")
    return Task(name, (DOCUMENTS / f"{name}.md").read_text(encoding="utf-8"))


def tasks_named(names: str) -> tuple[Task, ...]:
    """Return the tasks of a list with commas, in which a set stands for all of its tasks; each once. ValueError for an unknown name."""
    wanted: list[str] = []
    for name in filter(None, map(str.strip, names.split(","))):
        wanted += SETS.get(name, (name,))
    if not wanted:
        raise ValueError(f"no task is named; there are: {', '.join((*SETS['all'], *SETS))}")
    return tuple(task_named(name) for name in dict.fromkeys(wanted))
