"""What the dual-state agent's effects do (seed 001's actions), for one action pair and for workflows of them.

Each policy reads the run, asks a generator or a guard, records what came of it, and answers with ids, never with
contents. Which step is in progress follows from the state (`dsa.machine.step_of`).
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
    Usage,
    placeholders,
)
from dsa.runtime.event_data import as_text, guard_data, placeholder_values
from dsa.runtime.ledger import PERSON, ArtifactEntry, GuardVerdict, Ledger, VerdictEntry
from dsa.runtime.policy.policies import Action, Policy, PolicyContext, Step, answering, event_step, text_step
from dsa.runtime.run import Rejection, guards_for
from dsa.runtime.speech import strip_drafts

Rejected = tuple[str, str]

_LONGEST_ID = 1000


@attrs.frozen(eq=False)
class FeedbackHistory(Sequence[Rejected]):
    """H of Definition 3 as pairs of rejected text and feedback, oldest first.

    A text is fetched when it is looked at, so that an attempt costs the same however many came before it; who writes
    all of them into a prompt pays for that.
    """

    _rejections: Ledger[Rejection]
    _artifacts: ArtifactStore

    def __len__(self) -> int:
        return len(self._rejections)

    @overload
    def __getitem__(self, index: int) -> Rejected: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Rejected, ...]: ...
    def __getitem__(self, index: int | slice) -> Rejected | tuple[Rejected, ...]:
        """Return a pair, or a tuple of them."""
        if isinstance(index, slice):
            return tuple(self._pair(rejection) for rejection in self._rejections[index])
        return self._pair(self._rejections[index])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FeedbackHistory | tuple | list) and tuple(self) == tuple(other)

    __hash__ = None  # type: ignore[assignment]  # it equals lists

    def _pair(self, rejection: Rejection) -> Rejected:
        return self._artifacts.get_artifact(rejection.artifact_id).content, rejection.feedback


def template_for(machine: Machine, step: str, effect: str) -> PromptTemplate | None:
    """Return a step's prompt: its section, else that of the effect, else its task; None when there is none."""
    key = "template", step, effect
    if key not in machine.worked_out:
        machine.worked_out[key] = _template_for(machine, step, effect)
    found: PromptTemplate | None = machine.worked_out[key]
    return found


def _template_for(machine: Machine, step: str, effect: str) -> PromptTemplate | None:
    prompt = prompt_for(machine, step, effect)
    if prompt is None:
        return None
    feedback = prompt.feedback or DEFAULT_FEEDBACK_WRAPPER
    names = placeholders(feedback) - {FEEDBACK}  # the table was read: each is filled in
    return PromptTemplate(prompt.role, prompt.constraints, prompt.task, feedback, prompt.system, wrapper_names=names)


def context_for(context: PolicyContext, step: str, effect: str, key: str = "") -> Context:
    """Compose C of Definition 3 for a step: E, the specification, what was rejected and why, what it uses, what events have brought."""
    run, artifacts = context.run, context.artifacts
    rejected = FeedbackHistory(run.step(step).history, artifacts)
    specification = context.latest(f"{SPECIFICATION}?") if SPECIFICATION in run.machine.event_named else None
    return Context(
        AmbientEnvironment(artifacts, run.machine.constraints),
        specification=as_text(specification),
        current_artifact=rejected[-1][0] if rejected else None,
        feedback_history=rejected,
        dependencies=dependencies_of(run, artifacts, step),
        step=step,
        key=key,
        data=placeholder_values(run.machine, step, effect, context.latest),
    )


@answering("artifact", is_eager=True)
async def query_llm(action: Action, context: PolicyContext) -> list[Step]:
    """Generate the next attempt of the step being entered, store it, and answer `artifact` with its id."""
    wanted, machine = action.payload, context.run.machine
    step = step_of(machine, wanted["target"])
    name = generator_name(machine, step)
    asked = context_for(context, step, action.policy, wanted["key"])
    template = template_for(machine, step, action.policy)
    generator, started_s = context.generator(name), context.now_s()
    made = await _generated(generator, asked, template)
    _require_text(name, made)
    made = strip_drafts(made)
    usage = made.usage or Usage("", context.now_s() - started_s)
    text = Artifact(made.content, artifact_id=_own_id(made), usage=usage)
    history = context.run.step(step).history
    refined = history[-1].artifact_id if history else None
    key = wanted["key"]
    stored = _stored(action, key, context, text, step=step, parent=refined, author=name)
    return [*_retried(action.policy, usage), *stored]


async def _generated(generator: GeneratorInterface, asked: Context, template: PromptTemplate | None) -> Artifact:
    """Ask a generator: awaited where it can be, so that a time limit ends its request too."""
    if isinstance(generator, AsyncGeneratorInterface):
        work = generator.agenerate(asked, template)
        return await asyncio.ensure_future(work)  # HTTP clients ask for the task they are in
    return await run_function(lambda: generator.generate(asked, template), blocks=generator.blocks)


def _retried(actor: str, usage: Usage) -> list[Step]:
    """Return which tries of a generator gave nothing before one did, so that it stands in the ledger."""
    if not usage.retried:
        return []
    told = f"{usage.model} was asked {len(usage.retried) + 1} times: {', '.join(usage.retried)}, then it answered"
    return [text_step(actor, told, about={"retried": list(usage.retried)})]


def _require_text(generator: str, made: object) -> None:
    """Raise TypeError unless a generator has kept to its interface."""
    if not isinstance(made, Artifact):
        raise TypeError(f"generator {generator} gave {type(made).__name__}, not an Artifact")
    if not isinstance(made.content, str) or not isinstance(made.usage, Usage | None):
        raise TypeError(f"generator {generator} gave an Artifact whose content is no text, or whose usage is no Usage")


def _own_id(made: Artifact) -> str:
    """Return the id that a generator has given its artifact; empty for what is not a line of text that can be shown."""
    given: object = made.artifact_id
    return given if isinstance(given, str) and given.isprintable() and len(given) <= _LONGEST_ID else ""


def _stored(
    action: Action, key: str, context: PolicyContext, made: Artifact, *, step: str, parent: str | None, author: str
) -> list[Step]:
    """Store one version of a step's artifact, record it, and answer with its id."""
    run, artifacts = context.run, context.artifacts
    uses = dependencies_of(run, artifacts, step)
    used = tuple(dict.fromkeys(artifact.artifact_id for artifact in uses.values()))
    version = run.step(step).attempts + 1
    new = Artifact(made.content, version, made.artifact_id, parent, step, made.usage, used)
    artifact = artifacts.store(new, author)
    usage = made.usage or Usage("", 0.0)
    context.record(
        ArtifactEntry(
            key,
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


def text_brought(data: object) -> dict[str, str]:
    """Return the text that a person brings, as it is recorded. ValueError for anything else."""
    content = data.get("content") if isinstance(data, dict) else data
    if not isinstance(content, str) or not content.strip():
        raise ValueError('it brings the text that takes the artifact\'s place, as a text or as {"content": TEXT}')
    return {"content": content}


@answering("verdict", is_eager=True, reads={"amended": text_brought})
async def execute_guard(action: Action, context: PolicyContext) -> list[Step]:
    """Judge the step's newest artifact with the guards that the rows for `verdict` read, and answer `verdict`.

    An event that brought a text of its own (`amended`, data `{"content": ...}`) has it stored first.
    """
    wanted, machine = action.payload, context.run.machine
    step, data = step_of(machine, wanted["target"]), wanted["data"]
    if isinstance(data, dict) and "content" in data:
        if not isinstance(data["content"], str):
            raise TypeError(f"the content of '{wanted['event']}' is no text")
        amended = context.run.step(step).latest
        text = Artifact(data["content"])
        _stored(action, wanted["key"], context, text, step=step, parent=amended, author=PERSON)
    run, artifacts = context.run, context.artifacts
    view = run.step(step)
    if view.latest is None:
        raise LookupError(f"step {step} has no artifact to judge")
    artifact = artifacts.get_artifact(view.latest)
    uses, started_s = dependencies_of(run, artifacts, step), context.now_s()
    names = guards_for(machine, wanted["target"], "verdict")
    said = []
    for name in names:
        given = {**uses, **guard_data(machine, name, context.latest)}
        said.append(await judge(name, context.guard(name), artifact, given))
    seconds = context.now_s() - started_s
    entry = VerdictEntry(wanted["key"], step, artifact.version, artifact.artifact_id, said, seconds)
    context.record(entry)
    verdicts = {judgement.guard: judgement.outcome for judgement in said}
    data = {"artifact_id": artifact.artifact_id, "feedback": entry.feedback}
    return [event_step(action.policy, "verdict", verdicts=verdicts, data=data)]


async def refine_context(action: Action, context: PolicyContext) -> list[Step]:
    """Add a person's rejection to the history (Definition 5); a guard's is there already, from its verdict."""
    wanted = action.payload
    if wanted["event"] == "rejected":
        step = step_of(context.run.machine, wanted["source"])
        view, data = context.run.step(step), wanted["data"]
        if view.latest is not None:
            said = (GuardVerdict(PERSON, "failed", data if isinstance(data, str) else ""),)
            context.record(VerdictEntry(wanted["key"], step, view.attempts, view.latest, said))
    return []


async def advance_state(action: Action, context: PolicyContext) -> list[Step]:  # noqa: ARG001  (a policy's signature)
    """Return that the workflow may go on, where the machine asks; the row itself has set the workflow state."""
    return [event_step(action.policy, event) for event in action.actions]


async def reply(action: Action, context: PolicyContext) -> list[Step]:
    """Tell the user how the step that is left ended: which artifact, and the last feedback."""
    step = step_of(context.run.machine, action.payload["source"])
    view = context.run.step(step)
    feedback = view.history[-1].feedback if len(view.history) else ""
    return [text_step(action.policy, feedback, about={"step": step, "artifact_id": view.latest})]


effects: dict[str, Policy] = {
    "query_llm": query_llm, "execute_guard": execute_guard, "advance_state": advance_state, "refine_context": refine_context,
    "reply_to_user": reply, "reply_failure": reply, "reply_precondition_not_met": reply, "escalate_to_user": reply,
}  # fmt: skip
