"""Bindings: the policy of each effect, each guard and each generator, by the names of a table; and the verdicts that guards give.

`dsa.runs.bindings` finds the objects. `judge` and the functions beside it ask guards for the verdicts that an event needs when it arrives. A
guard is other people's code: it runs in a thread and its answer is checked. What it raises is never read as a verdict; the caller reports it.

`FromOutside` checks an event before a run takes it: the table must know it, and its data must be JSON that the policies can read. It returns
the event as it is recorded, without secrets. If it raises, nothing has happened.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from inspect import isawaitable, iscoroutinefunction
from typing import Any

import attrs

from dsa.declarations import OUTSIDE, Emit
from dsa.edge.event_loop import await_foreign, run_function
from dsa.edge.processes import environment_secrets
from dsa.errors import OccurrenceError, Span
from dsa.expr import Outcome
from dsa.immutable import immutable
from dsa.machine import Machine, sleeping_effects, step_of
from dsa.runtime.artifacts import ArtifactStore
from dsa.runtime.content import Artifact, GeneratorInterface, GuardInterface, GuardResult, required_verdict
from dsa.runtime.event_data import DataThen, guard_data
from dsa.runtime.json_text import text_of
from dsa.runtime.ledger import GuardVerdict
from dsa.runtime.policy.policies import LONGEST_DATA, AnsweringPolicy, Policy, canonical_json, reject_redacted
from dsa.runtime.policy.policy_registry import Registry
from dsa.runtime.run import Run, guards_for, oldest_key
from dsa.runtime.secrets import Secrets
from dsa.runtime.status import answerable_questions
from dsa.semantics import Occurrence, require_known


@attrs.frozen(field_transformer=immutable)
class Bindings:
    """Each effect's policy, each guard's GuardInterface and each generator, by the names of the table; and the secrets that are never recorded.

    `policies` are those that the policies of effects may call. `config` is what all of them can read: the model and the seed. `notes` are
    oddities that are not faults, such as names of a module that the machine does not use. `spenders` are the effects that a budget of the
    whole run stops, by default all that have answers.
    """

    effects: Mapping[str, Policy]
    guards: Mapping[str, GuardInterface] = attrs.field(factory=dict)
    generators: Mapping[str, GeneratorInterface] = attrs.field(factory=dict)
    secrets: Secrets = attrs.field(factory=environment_secrets)
    policies: Registry = attrs.field(factory=Registry)
    config: Mapping[str, Any] = attrs.field(factory=dict)
    notes: tuple[str, ...] = ()
    spenders: frozenset[str] | None = None


def effect_names(machine: Machine) -> Iterator[tuple[str, Span | None]]:
    """Yield each effect that a row emits and a policy performs, once, with the place of the first such row."""
    names: set[str] = {*sleeping_effects(machine)}
    for row in machine.transitions:
        for item in row.effects:
            if isinstance(item, Emit) and item.effect not in names:
                names.add(item.effect)
                yield item.effect, item.span or row.span


def performed_effects(machine: Machine) -> frozenset[str]:
    """Return the effects with answers that a policy performs: all but the sleeps."""
    return frozenset(machine.answers.keys() - sleeping_effects(machine).keys())


async def judge(name: str, guard: GuardInterface, artifact: Artifact, arguments: Mapping[str, Any]) -> GuardVerdict:
    """Ask one guard for its verdict, as `ask_guard` does. A text that had secrets in it never passes."""
    result = reject_redacted(await ask_guard(name, guard, artifact, arguments), artifact)
    outcome: Outcome = "passed" if result.passed else "fatal" if result.fatal else "failed"
    return GuardVerdict(name, outcome, result.feedback, result.review)


async def ask_guard(name: str, guard: GuardInterface, artifact: Artifact, arguments: Mapping[str, Any]) -> GuardResult:
    """Call one guard. An async guard is awaited; another one is called in a thread if it may block.

    `arguments` are the artifacts and the data that the guard is given. Raises what the guard raises, and TypeError when it does not return a
    GuardResult.
    """
    blocks = guard.blocks and not iscoroutinefunction(guard.validate)
    answer: object = await run_function(lambda: guard.validate(artifact, **arguments), blocks=blocks)
    if isawaitable(answer):
        answer = await await_foreign(answer)
    return required_verdict(name, answer)


def dependencies_of(run: Run, artifacts: ArtifactStore, step: str) -> dict[str, Artifact]:
    """Return the finalised artifacts that a step uses, by the names it gives them. Artifacts that are not finalised are left out."""
    declaration = run.machine.step_named.get(step)
    if declaration is None or not declaration.uses:
        return {}
    accepted = {name: run.step(dependency).accepted for name, dependency in declaration.uses}
    return {
        name: artifacts.get_artifact(artifact_id) for name, artifact_id in accepted.items() if artifact_id is not None
    }


def exact_already(run: Run, occurrence: Occurrence, key: str | None) -> Occurrence | None:
    """Return the occurrence if it has all the verdicts that it needs, or None if guards must be asked.

    An occurrence that will be refused whatever the verdicts is returned unchanged.
    """
    event, state = run.machine.event_named.get(occurrence.event), run.configuration.state
    if event is None or (event.origin != OUTSIDE and run.keys.get(key or "") != event.origin) or run.is_finished:
        return occurrence
    verdicts, guards = occurrence.verdicts, guards_for(run.machine, state, occurrence.event)
    if (verdicts or guards) and guards != tuple([name for name, _ in verdicts]):
        return None
    return None if verdicts and _is_redacted(run, occurrence.data) else occurrence


def is_judged_at_once(run: Run, occurrence: Occurrence, guards: Mapping[str, GuardInterface]) -> bool:
    """Return whether all guards that an event needs answer without blocking, so that nothing else can happen in between."""
    verdicts, names = dict(occurrence.verdicts), guards_for(run.machine, run.configuration.state, occurrence.event)
    missing_guards = (guards[name] for name in names if name not in verdicts)
    return not any(guard.blocks or iscoroutinefunction(guard.validate) for guard in missing_guards)


async def with_exact_verdicts(
    run: Run, occurrence: Occurrence, guards: Mapping[str, GuardInterface], artifacts: ArtifactStore, data: DataThen
) -> Occurrence:
    """Return the occurrence with one verdict for each guard that its rows read, and no others.

    Verdicts that came with the event are kept, except that `passed` becomes `failed` if the step's newest text had secrets in it. The other
    guards judge the event's artifact, or its data as a text, and are given `data`. Raises what they raise, and MissingDataError.
    """
    event_verdicts = dict(occurrence.verdicts)
    names = guards_for(run.machine, run.configuration.state, occurrence.event)
    if event_verdicts and _is_redacted(run, occurrence.data):
        event_verdicts = {
            name: "failed" if outcome == "passed" else outcome for name, outcome in event_verdicts.items()
        }
    verdicts: dict[str, Outcome] = {}
    for name in names:
        if name in event_verdicts:
            verdicts[name] = event_verdicts[name]
        else:
            uses = dependencies_of(run, artifacts, step_of(run.machine, run.configuration.state))
            arguments = {**uses, **guard_data(run.machine, name, occurrence.event, data.get)}
            verdicts[name] = (
                await judge(name, guards[name], artifact_of(occurrence.data, artifacts), arguments)
            ).outcome
    return attrs.evolve(occurrence, verdicts=verdicts)


def _is_redacted(run: Run, data: object) -> bool:
    """Return whether the step's newest text, which a row may accept, had secrets in it, unless the event names another one."""
    view = run.step(step_of(run.machine, run.configuration.state))
    artifact_id = data.get("artifact_id") if isinstance(data, dict) else None
    return bool(view.redacted) and artifact_id in {None, view.latest}


def artifact_of(data: object, artifacts: ArtifactStore) -> Artifact:
    """Return the artifact that an event is about: the one whose id it carries, or else its data as a text."""
    if isinstance(data, dict) and "artifact_id" in data:
        return artifacts.get_artifact(data["artifact_id"])
    return Artifact(data if isinstance(data, str) else json.dumps(data))


def data_readers(binding: Bindings) -> Mapping[str, Callable[[Any], Any]]:
    """Return the functions that read the data of events from outside, by event (`AnsweringPolicy.reads`)."""
    readers = [policy.reads for policy in binding.effects.values() if isinstance(policy, AnsweringPolicy)]
    return {event: read for reads in readers for event, read in reads.items()}


class FromOutside:
    """Reads the events that are sent to runs of a binding. `Answering.reads` defines what their data must be."""

    def __init__(self, binding: Bindings) -> None:
        self._secrets = binding.secrets
        self._reads = data_readers(binding)

    def read(self, run: Run, occurrence: Occurrence, at: str | None = None) -> Occurrence:
        """Return an event as it is recorded. A person may answer an effect whose policy leaves the answer to a person.

        Raises OccurrenceError for an event that does not come from outside or whose data is wrong; TypeError or ValueError for data that is
        not JSON or is nested too deep.
        """
        _require_short(occurrence.event, canonical_json({"data": occurrence.data}))
        require_known(run.machine, occurrence)
        if occurrence.source is not None or not (_is_outside(run, occurrence) or _was_asked(run, occurrence, at)):
            outside = ", ".join(event.name for event in run.machine.events if event.origin == OUTSIDE)
            raise OccurrenceError(f"'{occurrence.event}' does not come from outside; these do: {outside or 'none'}")
        data = self._secrets.value(self._data(occurrence))
        _require_short(occurrence.event, text_of(data))  # markers may be longer than the secrets
        return Occurrence(occurrence.event, occurrence.verdicts, occurrence.source, data)

    def _data(self, occurrence: Occurrence) -> object:
        read = self._reads.get(occurrence.event)
        if read is None:
            return occurrence.data
        try:
            return read(occurrence.data)
        except ValueError as fault:
            raise OccurrenceError(f"'{occurrence.event}' cannot be taken: {fault}") from fault


def _require_short(event: str, json_text: str) -> None:
    if len(json_text) > LONGEST_DATA:
        raise OccurrenceError(
            f"'{event}' has data of {len(json_text):,} characters of JSON; the limit is {LONGEST_DATA:,}: store it in a file and send the file's path"
        )


def _is_outside(run: Run, occurrence: Occurrence) -> bool:
    return run.machine.event_named[occurrence.event].origin == OUTSIDE


def _was_asked(run: Run, occurrence: Occurrence, at: str | None) -> bool:
    """Return whether a person may give this answer: to an effect that asks for it now, or, under an earlier key, late."""
    effect = run.machine.event_named[occurrence.event].origin
    open_keys = tuple(answerable_questions(run, occurrence.event))
    if at is None and len(open_keys) > 1:
        raise OccurrenceError(
            f"'{occurrence.event}' can answer several questions; give the place of one of them: {', '.join(open_keys)}"
        )
    if at is not None and run.keys.get(at) == effect:
        return at in open_keys
    return bool(open_keys) or (at is not None and "/" in at)


def answered_key(run: Run, occurrence: Occurrence, at: str | None) -> str | None:
    """Return the key of the effect that a person answers with an event: `at`, or else that of the outstanding effect; None for other events."""
    if occurrence.source is not None or _is_outside(run, occurrence):
        return None
    return at or oldest_key(run.keys, run.machine.event_named[occurrence.event].origin)
