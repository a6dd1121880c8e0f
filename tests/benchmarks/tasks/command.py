"""The command behind `make bench-tasks`: read what is asked for, measure it, write the report.

Everything is kept in OUT/MODEL/: the raw rows, the calls, the artifacts that were accepted, the report with its plots. The same command
goes on after any end.
"""

import re
import sys
import time
from collections.abc import Callable
from pathlib import Path

import attrs
import click
from benchmarks.tasks import machine_facts
from benchmarks.tasks.arms import DEFAULT_ARMS, arms_named
from benchmarks.tasks.calls import Calls
from benchmarks.tasks.measuring import BrokenError, Probe, left, measure, probe
from benchmarks.tasks.models import SHIPPED, read_model
from benchmarks.tasks.plan import CALLS, REPORT, RESULTS, Plan, settle
from benchmarks.tasks.plots import draw
from benchmarks.tasks.prompts import PROMPTS
from benchmarks.tasks.report import report
from benchmarks.tasks.results import Results
from benchmarks.tasks.tasks import tasks_named

from dsa.errors import DsaError

LOCAL = "local"
#: What is measured where no model is named: the small model at what it can do, and a scripted one at the full set.
HERE = ((LOCAL, "katas"), (SHIPPED, "published"))
_LONG_S, _EVERY_S = 30 * 60, 20.0


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--model", "model", metavar="M", help="local, scripted, scripted:DIR, http://HOST/v1#MODEL, or a LiteLLM name."
)
@click.option(
    "--tasks",
    metavar="A,B,..",
    help="Tasks, or sets of them: published, katas, all. Default: katas for local, else published.",
)
@click.option(
    "--arms",
    default=",".join(DEFAULT_ARMS),
    show_default=True,
    metavar="A,B,..",
    help="one_shot, best_of_N, guarded_N.",
)
@click.option(
    "--samples", default=100, show_default=True, type=click.IntRange(1), help="Samples of each task, in every arm."
)
@click.option("--seed", default=1, show_default=True, help="Other seeds give other samples.")
@click.option(
    "--prompt", default="published", show_default=True, type=click.Choice(sorted(PROMPTS)), help="Whose prompt is sent."
)
@click.option(
    "--share/--no-share", default=None, help="Make equal calls of one sample once. Default: for deterministic models."
)
@click.option(
    "--jobs", default=1, show_default=True, type=click.IntRange(1, 64), help="Samples at a time, for models elsewhere."
)
@click.option(
    "--out", default="bench-tasks", show_default=True, type=click.Path(file_okay=False, path_type=Path), help="Folder."
)
def main(model: str | None, tasks: str | None, out: Path, jobs: int, share: bool | None, **choices: object) -> None:  # noqa: FBT001  (click's)
    """Measure how often tasks are solved: by one attempt, by several, and by several with feedback."""
    wanted = HERE if model is None else ((model, "katas" if model == LOCAL else "published"),)
    try:
        plans = [planned(name, tasks or usual, out, share=share, **choices) for name, usual in wanted]
        codes = [measured(plan, jobs) for plan in plans]
    except KeyboardInterrupt:
        click.echo("interrupted; the same command goes on", err=True)
        sys.exit(130)
    except (DsaError, ValueError, OSError) as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(2)
    sys.exit(max(codes))


def planned(
    name: str, tasks: str, out: Path, *, share: bool | None, arms: str, samples: int, seed: int, prompt: str
) -> Plan:
    """Read what is asked for. Raises ValueError and DsaError."""
    chosen = tasks_named(tasks)
    model = read_model(name, tuple(task.machine for task in chosen))
    shared = model.is_deterministic if share is None else share
    return Plan(model, chosen, arms_named(arms), samples, seed, prompt, shared, out / folder_name(name))


def folder_name(model: str) -> str:
    """Return a folder's name for a model's."""
    return re.sub(r"[^A-Za-z0-9._-]+", "_", model).strip("._") or "model"


def measured(plan: Plan, jobs: int) -> int:
    """Measure, and write the report; return the exit code. Raises ValueError, OSError, GenerationError."""
    plan, probed = _tried(plan)
    settle(plan)
    results, calls = Results(plan.folder / RESULTS), Calls(plan.model, plan.folder / CALLS, plan.shared)
    samples_left = sum(1 for _ in left(plan, results))
    _announce(plan, samples_left, probed)
    code = 0
    try:
        measure(plan, results, calls, jobs, _progress())
    except BrokenError as broken:
        click.echo(f"stopped: {broken}\nWhat is done is kept; the same command goes on.", err=True)
        code = 1
    finally:
        _write(plan, results, probed)
    return code


def _tried(plan: Plan) -> tuple[Plan, Probe | None]:
    """See whether a model that should be deterministic is, before calls are shared for that reason."""
    if not plan.model.is_deterministic:
        return plan, None
    found = probe(plan)
    return attrs.evolve(plan, shared=plan.shared and not found.differing), found


def _announce(plan: Plan, samples_left: int, probed: Probe | None) -> None:
    """Say what will be done, and how long that may take."""
    names = ", ".join(plan.task_names)
    click.echo(
        f"{plan.model.name}: {names}; {', '.join(arm.name for arm in plan.arms)}; {plan.samples} samples of each, in {plan.folder}"
    )
    steps = sum(len(task.steps) for task in plan.tasks) / len(plan.tasks)
    arms = 1 if plan.shared else len(plan.arms)
    least, most = round(samples_left * steps * arms), round(samples_left * plan.most_calls() / len(plan.tasks))
    if probed is None:
        click.echo(f"  {least} to {most} calls of the model are left to make")
        return
    if probed.differing:
        click.echo(f"  {probed.differing} of {probed.questions} questions had two answers: nothing is shared")
    low_s, high_s = least * probed.seconds, most * probed.seconds
    if high_s > _LONG_S:
        click.echo(
            "  THIS TAKES LONG: it may be more than 30 minutes. It can be killed at any time; the same command goes on."
        )
    click.echo(
        f"  {least} to {most} calls of some {probed.seconds:.2f} s are left, which is {low_s / 60:.0f} to {high_s / 60:.0f} min, and the guards"
    )


def _progress() -> Callable[[int, int], None]:
    begun, said = time.monotonic(), [time.monotonic()]

    def tell(done: int, todo: int) -> None:
        now = time.monotonic()
        if now - said[0] < _EVERY_S and done < todo:
            return
        said[0] = now
        rest = (now - begun) / done * (todo - done) if done else 0.0
        click.echo(f"  {done} of {todo} samples, {(now - begun) / 60:.1f} min, about {rest / 60:.1f} min left")

    return tell


def _write(plan: Plan, results: Results, probed: Probe | None) -> None:
    """Write plots and report of the rows that the plan asks for."""
    names = {arm.name for arm in plan.arms}
    rows = [
        row
        for row in results.rows.values()
        if row.task in plan.task_names and row.arm in names and row.sample < plan.samples
    ]
    made = machine_facts.made(plan, probed)
    try:
        plots = draw(rows, plan.task_names, plan.arms, plan.folder)
    except ImportError:
        click.echo("no plots: they need matplotlib (pip install '.[plot]')", err=True)
        plots = ()
    text = report(rows, plan.task_names, plan.arms, plan.samples, made, plots)
    (plan.folder / REPORT).write_text(text, encoding="utf-8")
    click.echo(f"{plan.folder / REPORT}")
