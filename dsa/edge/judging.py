"""Guards at work: what they say of an artifact, and the verdicts that an event needs when it arrives (S2).

Guards are foreign code: they run in a thread, and what they give is checked. What they raise is the caller's to
report; it is never read as a verdict.
"""

import json
from collections.abc import Mapping
from inspect import isawaitable, iscoroutinefunction
from typing import Any

import attrs

from dsa.declarations import OUTSIDE
from dsa.edge.threads import await_foreign, run_function
from dsa.expr import Outcome
from dsa.machine import step_of
from dsa.meaning import Occurrence
from dsa.runtime.artifacts import ArtifactStore
from dsa.runtime.content import Artifact, GuardInterface, required_verdict
from dsa.runtime.event_data import DataThen, guard_data
from dsa.runtime.ledger import Judgement
from dsa.runtime.redacting import warily
from dsa.runtime.run import Run
from dsa.runtime.views import guards_for


async def judge(name: str, guard: GuardInterface, artifact: Artifact, given: Mapping[str, Any]) -> Judgement:
    """Ask one guard: an async one is awaited, another one is called in a thread unless it does not block.

    `given` are the artifacts and the data that it is given. Raises what it raises, and TypeError when it gives no GuardResult. Whatever the
    guard says, a text that had secrets in it has not passed.
    """
    blocks = guard.blocks and not iscoroutinefunction(guard.validate)
    said: object = await run_function(lambda: guard.validate(artifact, **given), blocks=blocks)
    if isawaitable(said):
        said = await await_foreign(said)
    result = warily(required_verdict(name, said), artifact)
    outcome: Outcome = "passed" if result.passed else "fatal" if result.fatal else "failed"
    return Judgement(name, outcome, result.feedback)


def dependencies_of(run: Run, artifacts: ArtifactStore, step: str) -> dict[str, Artifact]:
    """Give the finalised artifacts that a step uses, by the names it gives them; one not finalised is left out."""
    declared = run.machine.step_named.get(step)
    if declared is None or not declared.uses:
        return {}
    accepted = {name: run.step(used).accepted for name, used in declared.uses}
    return {name: artifacts.get_artifact(found) for name, found in accepted.items() if found is not None}


def exact_already(run: Run, occurrence: Occurrence, key: str | None) -> Occurrence | None:
    """Give the occurrence with the verdicts that it is fed with, where it has them all; None when guards have to be asked.

    One that will be refused whatever the verdicts is given back as it is.
    """
    event, state = run.machine.event_named.get(occurrence.event), run.configuration.state
    if event is None or (event.origin != OUTSIDE and run.keys.get(event.origin) != key) or run.finished:
        return occurrence
    given, needed = occurrence.verdicts, guards_for(run.machine, state, occurrence.event)
    if (given or needed) and needed != tuple([name for name, _ in given]):
        return None
    return None if given and _is_redacted(run, occurrence.data) else occurrence


def is_judged_at_once(run: Run, occurrence: Occurrence, guards: Mapping[str, GuardInterface]) -> bool:
    """Tell whether the guards that an event needs say at once what they say: nobody waits for them, and nothing comes in between."""
    brought, needed = dict(occurrence.verdicts), guards_for(run.machine, run.configuration.state, occurrence.event)
    asked = (guards[name] for name in needed if name not in brought)
    return not any(guard.blocks or iscoroutinefunction(guard.validate) for guard in asked)


async def with_exact_verdicts(
    run: Run, occurrence: Occurrence, guards: Mapping[str, GuardInterface], artifacts: ArtifactStore, data: DataThen
) -> Occurrence:
    """Give the occurrence with one verdict for each guard that is read as it arrives, and no others.

    Verdicts that came with it are kept, but that nothing passes a newest text which had secrets in it; the other guards judge the
    event's artifact, or its data as a text, and are given `data`. Raises what they raise, and MissingDataError.
    """
    given, needed = dict(occurrence.verdicts), guards_for(run.machine, run.configuration.state, occurrence.event)
    if given and _is_redacted(run, occurrence.data):
        given = {name: "failed" if said == "passed" else said for name, said in given.items()}
    verdicts: dict[str, Outcome] = {}
    for name in needed:
        if name in given:
            verdicts[name] = given[name]
        else:
            uses = dependencies_of(run, artifacts, step_of(run.machine, run.configuration.state))
            told = {**uses, **guard_data(run.machine, name, data.get)}
            verdicts[name] = (await judge(name, guards[name], artifact_of(occurrence.data, artifacts), told)).outcome
    return attrs.evolve(occurrence, verdicts=verdicts)


def _is_redacted(run: Run, data: object) -> bool:
    """Tell whether the step's newest text, which a row may accept, had secrets in it, unless the event names another one."""
    view = run.step(step_of(run.machine, run.configuration.state))
    named = data.get("artifact_id") if isinstance(data, dict) else None
    return bool(view.redacted) and named in {None, view.latest}


def artifact_of(data: object, artifacts: ArtifactStore) -> Artifact:
    """Give what an event is about: the artifact whose id it carries, or its data as a text."""
    if isinstance(data, dict) and "artifact_id" in data:
        return artifacts.get_artifact(data["artifact_id"])
    return Artifact(data if isinstance(data, str) else json.dumps(data))
