"""Effects of the dual-state agent (the actions of seed 001), for one action pair and for workflows of them.

Each policy reads the run, asks a generator or a guard, records the result, and answers with ids, never with
contents. The state determines the current step (`dsa.machine.step_of`).
"""

import asyncio
from collections.abc import Sequence
from typing import overload

import attrs

from dsa.data_use import FEEDBACK, SPECIFICATION, prompt_for
from dsa.edge.binding import dependencies_of, judge
from dsa.edge.event_loop import run_function
from dsa.machine import Machine, step_of
from dsa.runs.bindings import generator_name
from dsa.runtime.artifacts import ArtifactStore
from dsa.runtime.content import (
    DEFAULT_FEEDBACK_WRAPPER,
    AmbientEnvironment,
    Artifact,
    AsyncGeneratorInterface,
    Context,
    GeneratorInterface,
    PromptTemplate,
    placeholders,
)
from dsa.runtime.event_data import as_text, guard_data, placeholder_values
from dsa.runtime.generation import Usage
from dsa.runtime.ledger import PERSON, ArtifactEntry, GuardVerdict, Ledger, VerdictEntry
from dsa.runtime.policy.policies import Action, Policy, PolicyContext, Step, answering, event_step, text_step
from dsa.runtime.run import Rejection, guards_for
from dsa.runtime.speech import strip_drafts

RejectedText = tuple[str, str]

_LONGEST_ID = 1000


@attrs.frozen(eq=False)
class FeedbackHistory(Sequence[RejectedText]):
    """H of Definition 3 as pairs of rejected text and feedback, oldest first.

    A text is fetched when it is read, so an attempt costs the same however many precede it. A prompt with all of
    them costs more.
    """

    _rejections: Ledger[Rejection]
    _artifacts: ArtifactStore

    def __len__(self) -> int:
        return len(self._rejections)

    @overload
    def __getitem__(self, index: int) -> RejectedText: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[RejectedText, ...]: ...
    def __getitem__(self, index: int | slice) -> RejectedText | tuple[RejectedText, ...]:
        """Return a pair, or a tuple of them."""
        if isinstance(index, slice):
            return tuple(self._pair(rejection) for rejection in self._rejections[index])
        return self._pair(self._rejections[index])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FeedbackHistory | tuple | list) and tuple(self) == tuple(other)

    __hash__ = None  # type: ignore[assignment]  # it equals lists

    def _pair(self, rejection: Rejection) -> RejectedText:
        return self._artifacts.get_artifact(rejection.artifact_id).content, rejection.feedback


def template_for(machine: Machine, step: str, effect: str) -> PromptTemplate | None:
    """Return a step's prompt: its section, else that of the effect, else its task; None when there is none."""
    key = "template", step, effect
    if key not in machine.worked_out:
        machine.worked_out[key] = _template_for(machine, step, effect)
    template: PromptTemplate | None = machine.worked_out[key]
    return template


def _template_for(machine: Machine, step: str, effect: str) -> PromptTemplate | None:
    prompt = prompt_for(machine, step, effect)
    if prompt is None:
        return None
    feedback = prompt.feedback or DEFAULT_FEEDBACK_WRAPPER
    names = placeholders(feedback) - {FEEDBACK}  # reading the table has checked that each has a value
    return PromptTemplate(prompt.role, prompt.constraints, prompt.task, feedback, prompt.system, wrapper_names=names)


def context_for(context: PolicyContext, step: str, effect: str, key: str = "") -> Context:
    """Return C of Definition 3 for a step: E, the specification, the rejected attempts with feedback, its dependencies, the data of events."""
    run, artifacts = context.run, context.artifacts
    rejections = FeedbackHistory(run.step(step).history, artifacts)
    specification = context.latest(f"{SPECIFICATION}?") if SPECIFICATION in run.machine.event_named else None
    return Context(
        AmbientEnvironment(artifacts, run.machine.constraints),
        specification=as_text(specification),
        current_artifact=rejections[-1][0] if rejections else None,
        feedback_history=rejections,
        dependencies=dependencies_of(run, artifacts, step),
        step=step,
        key=key,
        data=placeholder_values(run.machine, step, effect, context.latest),
    )


@answering("artifact", is_eager=True)
async def query_llm(action: Action, context: PolicyContext) -> list[Step]:
    """Generate the next attempt of the step being entered, store it, and answer `artifact` with its id."""
    payload, machine = action.payload, context.run.machine
    step = step_of(machine, payload["target"])
    name = generator_name(machine, step)
    question = context_for(context, step, action.policy, payload["key"])
    template = template_for(machine, step, action.policy)
    generator, start_s = context.generator(name), context.now_s()
    draft = await _generate(generator, question, template)
    _require_text(name, draft)
    draft = strip_drafts(draft)
    usage = draft.usage or Usage("", context.now_s() - start_s)
    text = Artifact(draft.content, artifact_id=_own_id(draft), usage=usage)
    history = context.run.step(step).history
    parent = history[-1].artifact_id if history else None
    steps = _store_version(action, context, text, step=step, parent=parent, author=name)
    return [*_retry_steps(action.policy, usage), *steps]


async def _generate(generator: GeneratorInterface, context: Context, template: PromptTemplate | None) -> Artifact:
    """Ask a generator. An asynchronous one is awaited, so that a time limit ends its request too."""
    if isinstance(generator, AsyncGeneratorInterface):
        work = generator.agenerate(context, template)
        return await asyncio.ensure_future(work)  # HTTP clients ask for the task they are in
    return await run_function(lambda: generator.generate(context, template), blocks=generator.blocks)


def _retry_steps(actor: str, usage: Usage) -> list[Step]:
    """Return a step that records the failed tries of a generator before its answer, if there were any."""
    if not usage.retried:
        return []
    text = f"{usage.model} was asked {len(usage.retried) + 1} times: {', '.join(usage.retried)}, then it answered"
    return [text_step(actor, text, about={"retried": list(usage.retried)})]


def _require_text(generator: str, draft: object) -> None:
    """Raise TypeError unless a generator has returned a valid artifact."""
    if not isinstance(draft, Artifact):
        raise TypeError(f"generator {generator} returned {type(draft).__name__}, not an Artifact")
    if not isinstance(draft.content, str) or not isinstance(draft.usage, Usage | None):
        raise TypeError(
            f"generator {generator} returned an Artifact whose content is not a text, or whose usage is not a Usage"
        )


def _own_id(draft: Artifact) -> str:
    """Return the id that a generator gave its artifact, or an empty text when it is not a printable line of at most 1000 characters."""
    own_id: object = draft.artifact_id
    return own_id if isinstance(own_id, str) and own_id.isprintable() and len(own_id) <= _LONGEST_ID else ""


def _store_version(
    action: Action, context: PolicyContext, draft: Artifact, *, step: str, parent: str | None, author: str
) -> list[Step]:
    """Store one version of a step's artifact, record it, and answer with its id."""
    run, artifacts = context.run, context.artifacts
    uses = dependencies_of(run, artifacts, step)
    dependency_ids = tuple(dict.fromkeys(artifact.artifact_id for artifact in uses.values()))
    version = run.step(step).attempts + 1
    new = Artifact(draft.content, version, draft.artifact_id, parent, step, draft.usage, dependency_ids)
    artifact = artifacts.store(new, author)
    usage = draft.usage or Usage("", 0.0)
    context.record(
        ArtifactEntry(
            action.payload["key"],
            step,
            version,
            artifact.artifact_id,
            artifact.content_digest,
            artifact.parents,
            author,
            usage.model,
            usage.seconds,
            usage.prompt_tokens,
            usage.completion_tokens,
            usage.cost_usd,
            usage.response_model,
            artifact.redacted,
        )
    )
    return [event_step(action.policy, "artifact", data={"artifact_id": artifact.artifact_id})]


def read_text(data: object) -> dict[str, str]:
    """Return a person's text as it is recorded. Raises ValueError for anything else."""
    content = data.get("content") if isinstance(data, dict) else data
    if not isinstance(content, str) or not content.strip():
        raise ValueError('the data must be the new text of the artifact: a text, or {"content": TEXT}')
    return {"content": content}


@answering("verdict", is_eager=True, reads={"amended": read_text})
async def execute_guard(action: Action, context: PolicyContext) -> list[Step]:
    """Judge the step's newest artifact with the guards that the rows for `verdict` read, and answer `verdict`.

    When the event has a text of its own (`parent`, data `{"content": ...}`), that text is stored first.
    """
    payload, machine = action.payload, context.run.machine
    step, data = step_of(machine, payload["target"]), payload["data"]
    if isinstance(data, dict) and "content" in data:
        if not isinstance(data["content"], str):
            raise TypeError(f"the content of '{payload['event']}' is not a text")
        parent = context.run.step(step).latest
        text = Artifact(data["content"])
        _store_version(action, context, text, step=step, parent=parent, author=PERSON)
    run, artifacts = context.run, context.artifacts
    view = run.step(step)
    if view.latest is None:
        raise LookupError(f"step {step} has no artifact to judge")
    artifact = artifacts.get_artifact(view.latest)
    uses, start_s = dependencies_of(run, artifacts, step), context.now_s()
    names = guards_for(machine, payload["target"], "verdict")
    judgements = []
    for name in names:
        inputs = {**uses, **guard_data(machine, name, "verdict", context.latest)}
        judgements.append(await judge(name, context.guard(name), artifact, inputs))
    seconds = context.now_s() - start_s
    entry = VerdictEntry(payload["key"], step, artifact.version, artifact.artifact_id, judgements, seconds)
    context.record(entry)
    verdicts = {judgement.guard: judgement.outcome for judgement in judgements}
    data = {"artifact_id": artifact.artifact_id, "feedback": entry.feedback}
    return [event_step(action.policy, "verdict", verdicts=verdicts, data=data)]


async def refine_context(action: Action, context: PolicyContext) -> list[Step]:
    """Add a person's rejection to the history (Definition 5); a guard's is there already, from its verdict."""
    payload = action.payload
    if payload["event"] == "rejected":
        step = step_of(context.run.machine, payload["source"])
        view, data = context.run.step(step), payload["data"]
        if view.latest is not None:
            verdicts = (GuardVerdict(PERSON, "failed", data if isinstance(data, str) else ""),)
            context.record(VerdictEntry(payload["key"], step, view.attempts, view.latest, verdicts))
    return []


async def advance_state(action: Action, context: PolicyContext) -> list[Step]:  # noqa: ARG001  (a policy's signature)
    """Answer that the workflow may go on, if the machine asks; the row itself has set the workflow state."""
    return [event_step(action.policy, event) for event in action.actions]


async def reply(action: Action, context: PolicyContext) -> list[Step]:
    """Report the end of the last step to the user: its artifact, and the last feedback."""
    step = step_of(context.run.machine, action.payload["source"])
    view = context.run.step(step)
    feedback = view.history[-1].feedback if len(view.history) else ""
    return [text_step(action.policy, feedback, about={"step": step, "artifact_id": view.latest})]


effects: dict[str, Policy] = {
    "query_llm": query_llm, "execute_guard": execute_guard, "advance_state": advance_state, "refine_context": refine_context,
    "reply_to_user": reply, "reply_failure": reply, "reply_precondition_not_met": reply, "escalate_to_user": reply,
}  # fmt: skip
