"""Policies, and the two values that pass between a policy and what calls it (seed 004, sections 2 and 3).

A policy is an async function from an `Action` to `Step`s; models, people and code are policies alike. What a machine's
effect asks for is an Action, and its policy answers with one step of type `event`. This module knows the run as a
frozen value and nothing of how policies are found or performed.

One call of a policy: how it was asked for, what steps it gives, and what ends the whole run.

Takes values and a policy; knows neither a ledger nor which other calls there are.

Secrets taken out of what a run keeps: steps, requests, entries, artifacts, before anything is written anywhere.

Takes `Secrets` and the values of this package, gives the same values without them; what has no secret in it is given back as it is. An
artifact that had one says so for ever (`Artifact.redacted`), because its text has the markers.
"""

import hashlib
import json
import sysconfig
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar, cast

import attrs

from dsa.declarations import Reference
from dsa.errors import GenerationError
from dsa.expr import Outcome
from dsa.immutable import immutable
from dsa.runtime.artifacts import ArtifactStore, AttemptRecord
from dsa.runtime.content import Artifact, GeneratorInterface, GuardInterface, GuardResult
from dsa.runtime.json_text import (
    PLAIN,
    canonical_value,
    copied,
    is_flat,
    quoted,
    require_text_keys,
    sorted_text_of,
    value_of,
)
from dsa.runtime.ledger import (
    PART,
    PERSON,
    ArtifactEntry,
    Entry,
    GuardVerdict,
    Ledger,
    PartWaitsError,
    VerdictEntry,
    dump_line,
    from_json,
    to_json,
)
from dsa.runtime.run import Run
from dsa.runtime.secrets import Secrets

Payload = Mapping[str, Any]


#: Types of steps (seed 004, section 5). A machine's effect is answered with an `event`; an `approval` releases one call.
TEXT, ACTION_CALL, ACTION_RESULT, EVENT, APPROVAL = "text", "action_call", "action_result", "event", "approval"
#: With a step of this type an effect's policy ends without an answer: a person gives it, under the effect's key, whenever that is.
QUESTION = "question"


class PayloadText(str):
    """A payload as `canonical_json` writes it: an Action or a Step made with it need not write it again."""

    __slots__ = ()


class LazyPayload:
    """The payload of an Action that is not written before somebody reads it as text, which policies of effects do not: `made` gives it to them.

    `made` gives a new value each time, the same as reading what `write` gives.
    """

    __slots__ = ("_text", "_write", "made")

    def __init__(self, write: Callable[[], PayloadText], made: Callable[[], dict[str, Any]]) -> None:
        self._write: Callable[[], PayloadText] = write
        self._text: PayloadText | None = None
        self.made: Callable[[], dict[str, Any]] = made

    @property
    def text(self) -> PayloadText:
        """The text."""
        if self._text is None:
            self._text = self._write()
        return self._text


def _text_of(payload: PayloadText | LazyPayload) -> PayloadText:
    return payload.text if isinstance(payload, LazyPayload) else payload


def canonical_json(payload: Payload | PayloadText) -> PayloadText:
    """Write a payload so that equal payloads give equal texts; TypeError or ValueError when it is not JSON."""
    if isinstance(payload, PayloadText):
        return payload
    content = dict(payload)
    require_text_keys(content)
    return PayloadText(sorted_text_of(content))


#: The longest data of an event, and the longest that the steps of a policy may be together, in characters of JSON: half of what an entry of a ledger may have.
LONGEST_DATA = 8 * 2**20
#: Where files lie whose errors are told without a place: this package, the shipped machines, Python, what is installed, what has no file.
_NOT_THE_USERS = (
    *(f"{__file__.rpartition('dsa')[0]}{name}/" for name in ("dsa", "machines")),
    *{sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")},
    "<",
)
_NOTHING: Any = {}  # converted to text before anyone sees it


def _to_be_written(payload: Payload | PayloadText | LazyPayload) -> PayloadText | LazyPayload:
    return payload if isinstance(payload, LazyPayload) else canonical_json(payload)


@attrs.frozen(field_transformer=immutable)
class Action:
    """What is asked of a policy: its name, the payload, and the actions it may choose from.

    For an effect of a machine, `policy` is the effect and `actions` are the events that may answer it; for any other
    policy they are the policies that it may call. The payload is kept as JSON text: nothing can change it, and equal
    actions are equal keys.
    """

    policy: str
    _payload: PayloadText | LazyPayload = attrs.field(
        default=_NOTHING,
        converter=_to_be_written,
        alias="payload",
        eq=_text_of,
        repr=_text_of,
    )
    actions: frozenset[str] = frozenset()

    @property
    def payload(self) -> dict[str, Any]:
        """The arguments; a new value each time."""
        kept = self._payload
        payload: dict[str, Any] = kept.made() if isinstance(kept, LazyPayload) else value_of(kept)
        return payload

    @property
    def payload_text(self) -> PayloadText:
        """The arguments as JSON text, equal for equal ones."""
        return _text_of(self._payload)

    @property
    def digest(self) -> str:
        """SHA-256 of policy, actions and payload: what a recorded call is compared by, and what an approval releases."""
        head = json.dumps([self.policy, sorted(self.actions)])
        return hashlib.sha256(f"{head}\n{self.payload_text}".encode()).hexdigest()

    def permitting(self, actions: Iterable[str]) -> "Action":
        """Return the same action with more actions to choose from."""
        return Action(self.policy, self._payload, self.actions.union(actions))


@attrs.frozen
class Step:
    """One thing a policy did or said: unique id, who, what type, JSON payload. TypeError for anything else.

    `payload_text` is the payload as JSON text, equal for equal ones.
    """

    id: str
    actor: str
    type: str
    payload_text: PayloadText = attrs.field(default=_NOTHING, converter=canonical_json, alias="payload")
    _read: dict[str, Any] | None = attrs.field(default=None, init=False, eq=False, repr=False)

    def __attrs_post_init__(self) -> None:
        """Refuse what are no texts."""
        if not (isinstance(self.id, str) and isinstance(self.actor, str) and isinstance(self.type, str)):
            raise TypeError(
                f"id, actor and type of a step are texts, not {self.id!r}, {self.actor!r} and {self.type!r}"
            )

    def under(self, step_id: str) -> "Step":
        """Return the same step under another id."""
        return Step(step_id, self.actor, self.type, self.payload_text)

    @property
    def payload(self) -> dict[str, Any]:
        """The content; a new value each time."""
        payload: dict[str, Any] = value_of(self.payload_text)
        return payload

    @property
    def content(self) -> dict[str, Any]:
        """The content, the same value each time: for whoever only reads, and for ledgers, whose entries nobody changes."""
        read = self._read
        if read is None:
            read = value_of(self.payload_text)
            object.__setattr__(self, "_read", read)  # frozen for everybody else
        return read

    def to_json(self, step_id: str | None = None) -> dict[str, Any]:
        """Return the step as a JSON object, under another id if one is given; `Step(**step.to_json()) == step`."""
        name = self.id if step_id is None else step_id
        return {"id": name, "actor": self.actor, "type": self.type, "payload": value_of(self.payload_text)}

    def without_id(self) -> dict[str, Any]:
        """Return the step as a ledger keeps it in a result: its id follows from the effect's key and its place."""
        return {"actor": self.actor, "type": self.type, "payload": self.content}

    def canonical(self) -> str:
        """Return one line of text that is equal for equal steps alone."""
        return f"{json.dumps([self.id, self.actor, self.type])}{self.payload_text}"


def event_step(
    actor: str, event: str, *, verdicts: Mapping[str, Outcome] | None = None, data: object = None, step_id: str = ""
) -> Step:
    """Make the step by which an effect's policy answers: the event, its guards' verdicts, opaque JSON data."""
    said = dict(sorted(verdicts.items())) if verdicts else {}
    text = f'{{"data":{canonical_value(data)},"event":{quoted(event)},"verdicts":{canonical_value(said) if said else "{}"}}}'
    step = Step(step_id, actor, EVENT, PayloadText(text))
    if type(data) in PLAIN or is_flat(data):
        object.__setattr__(step, "_read", {"data": copied(data), "event": event, "verdicts": said})
    return step


def text_step(actor: str, text: str, *, about: Payload | None = None, step_id: str = "") -> Step:
    """Make a step that says something (seed 004, 5.1); what it is about is kept beside the text."""
    return Step(step_id, actor, TEXT, {"text": text, **(about or {})})


def question_step(actor: str, text: str, *, about: Payload | None = None, step_id: str = "") -> Step:
    """Make the step by which an effect's policy leaves the answer to a person: one of the effect's events, sent to the place that is its key."""
    return Step(step_id, actor, QUESTION, {"text": text, **(about or {})})


def error_step(actor: str, code: str, message: str, *, about: Payload | None = None, step_id: str = "") -> Step:
    """Make the step that reports a failure as data (seed 004, 5.4). As an effect's answer it is `E.failed`."""
    return Step(step_id, actor, ACTION_RESULT, {"error": True, "code": code, "message": message, **(about or {})})


def error_of(actor: str, error: BaseException) -> Step:
    """Make the error step for what a policy raised."""
    code = error.reason if isinstance(error, GenerationError) else type(error).__name__
    place, usage = _place_in_users_code(error), error.usage if isinstance(error, GenerationError) else None
    about = {**({"at": place} if place else {}), **({"usage": attrs.asdict(usage)} if usage is not None else {})}
    if isinstance(error, PartWaitsError):
        about = {**about, PART: error.part.to_json()}
    return error_step(actor, code, _said_by(error) or type(error).__name__, about=about)


def _place_in_users_code(error: BaseException) -> str:
    """Return file and line where an error came from, innermost first, of code that is neither ours nor installed; empty when there is none."""
    place, trace = "", None if isinstance(error, GenerationError) else error.__traceback__
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if not file.startswith(_NOT_THE_USERS):
            place = f"{file.rpartition('/')[2]}:{trace.tb_lineno}"
        trace = trace.tb_next
    return place


def _said_by(error: BaseException) -> str:
    """Return an error's words; none, when it fails to give them."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001  (whatever it is, there are no words)
        return ""


def action_call_step(actor: str, action: Action, *, about: Payload | None = None, step_id: str = "") -> Step:
    """Make the step that asks for another policy (seed 004, 5.2), with the digest of the call it asks for."""
    asked = {"policy": action.policy, "payload": action.payload, "digest": action.digest}
    return Step(step_id, actor, ACTION_CALL, {**asked, **(about or {})})


def action_result_step(actor: str, payload: Payload, *, step_id: str = "") -> Step:
    """Make the step that says what came of an action (seed 004, 5.3)."""
    return Step(step_id, actor, ACTION_RESULT, payload)


def approval_step(actor: str, digest: str, *, approve: bool = True, text: str = "", step_id: str = "") -> Step:
    """Make the step by which somebody approves one call, or refuses it: the call whose `Action.digest` this is."""
    return Step(step_id, actor, APPROVAL, {"digest": digest, "approved": approve, "text": text})


def approved(action: Action, steps: Iterable[Step]) -> bool:
    """Return whether exactly this call is approved: the last approval step with its digest says so.

    An approval of another call, of the same policy with other arguments included, releases nothing.
    """
    said = [step.payload for step in steps if step.type == APPROVAL]
    about = [payload for payload in said if payload.get("digest") == action.digest]
    return bool(about) and about[-1].get("approved") is True


class PolicySurroundings(Protocol):
    """What a machine gives to the policies of its effects, and to those that they call."""

    @property
    def run(self) -> Run:
        """The run as it is now."""

    @property
    def artifacts(self) -> ArtifactStore:
        """Every version ever generated."""

    def guard(self, name: str) -> GuardInterface:
        """Return the guard bound to a name of the table; KeyError when there is none."""

    def generator(self, name: str) -> GeneratorInterface:
        """Return the generator bound to a name; KeyError when there is none."""

    def now_s(self) -> float:
        """Return the seconds of a clock that only goes forward."""

    def latest(self, reference: str | Reference, *, key: str = "") -> Any:  # noqa: ANN401  (JSON)
        """Return what an event has brought: `found`, `found.order`, `found? since question`, `all found`, the words of a placeholder.

        It is as it was when the effect was asked for, whatever has come since; a new value each time. MissingDataError, a LookupError, when there
        is none, unless it ends in `?`: then it is None. LookupError for what is no event. `key` is the effect's own.
        """

    def record(self, entry: ArtifactEntry | VerdictEntry) -> None:
        """Append to the run's ledger at once, so that a later failure loses nothing."""

    def show(self, text: str, *, key: str = "") -> None:
        """Show a piece of text, such as of a model's answer, to whoever watches the run. It is not recorded. `key` is the call's own."""


class PolicyContext(PolicySurroundings, Protocol):
    """What a policy may use beside its action.

    Outside a machine there is no run, no guard and so on: asking for one is a LookupError.
    """

    @property
    def config(self) -> Mapping[str, Any]:
        """Settings of the surroundings. They are no part of the ledger."""

    @property
    def key(self) -> str:
        """The name of this call, unique in its run and the same in every replay: for services that take such a key."""

    def call(
        self,
        action: Action,
        decorators: "Sequence[Decorator]" = (),
        *,
        seed: Iterable[Step] = (),
        asked: Step | None = None,
    ) -> Coroutine[Any, Any, list[Step]]:
        """Call another policy and give its steps. Recorded calls are replayed: the policy is not called again.

        The call has its place among this policy's calls from the moment this returns, before anybody awaits it. The
        first decorator is the outermost. The other policy's own ledger starts with `seed`. What is not allowed, and a
        payload that breaks the policy's schema, return an error step. The call and its result join this policy's own
        ledger; with `asked`, the `action_call` step there that this carries out, only the result does.
        """

    def turn(self, policy: "Policy", action: Action) -> Coroutine[Any, Any, list[Step]]:
        """Perform a policy as a part of this one, recorded like a call: its ledger is this one's as far as it has got.

        Its steps join this one's ledger. For decorators; without it each turn of a loop would be made again in a replay.
        """

    def note(self, *steps: Step) -> None:
        """Add steps to this policy's own ledger. They are not recorded: a replay notes them again."""

    async def get_ledger(self) -> Ledger[Step]:
        """Return this policy's own ledger: what it was seeded with, its calls and their results in the order they came."""

    def tools(self, names: Iterable[str]) -> list[dict[str, Any]]:
        """Describe policies as tools for a language model, in OpenAI's function format."""


class Policy(Protocol):
    """An async function that performs an action and gives the record of what it did.

    A policy bound to an effect with answers gives exactly one step of type `event`, or one error step.
    """

    def __call__(self, action: Action, context: PolicyContext, /) -> Awaitable[list[Step]]:
        """Perform the action."""


Decorator = Callable[[Policy], Policy]


@attrs.frozen
class AnsweringPolicy:
    """A policy that says which events it answers with, so that a binding can be checked before the first event.

    `is_eager`: it is begun in the task that drives the run, which goes on in its place; where it waits, a task is made of the rest. So what
    answers without waiting costs no turn of the event loop. It must not ask asyncio for the task it runs in before it first waits, as
    `asyncio.timeout` and HTTP clients do.

    `reads` says what the data of events from outside has to be, by their names: each gives the data as it is recorded, or raises ValueError
    with what is the matter; then the event is not taken.
    """

    policy: Policy
    answers: frozenset[str]
    is_eager: bool = False
    reads: Mapping[str, Callable[[Any], Any]] = attrs.field(factory=dict, eq=False)

    def __call__(self, action: Action, context: PolicyContext, /) -> Awaitable[list[Step]]:
        """Perform the action."""
        return self.policy(action, context)


def answering(
    *events: str, is_eager: bool = False, reads: Mapping[str, Callable[[Any], Any]] | None = None
) -> Callable[[Policy], AnsweringPolicy]:
    """Declare the events that a policy answers with, whether it is eager, and what data it reads (see `AnsweringPolicy`)."""
    return lambda policy: AnsweringPolicy(policy, frozenset(events), is_eager, reads or {})


TOO_LARGE = "TOO_LARGE"


class NoStepsError(TypeError):
    """Raised when what is to be a policy gives something else than a list of steps."""


@attrs.frozen
class Request:
    """One call as it was asked for: where, what, and what the ledger is to say of its payload."""

    path: str
    position: int
    known: int
    action: Action
    digest: str
    payload: dict[str, Any] | None


@attrs.define
class RunFault:
    """What ends the whole run, however policies handle it.

    After a crash, calls under way may still be recorded, but for those that have seen it: it stands in `paths`.
    """

    error: BaseException
    is_crash: bool
    paths: list[str] = attrs.field(factory=list)

    def forbids(self, path: str) -> bool:
        """Return whether a call may not be recorded as finished."""
        return not self.is_crash or any(f"{seen}.".startswith(f"{path}.") for seen in self.paths)


def require_awaitable(policy: str, giving: object) -> None:
    """Raise NoStepsError when what a policy gave as it was called cannot be awaited."""
    if not isinstance(giving, Awaitable):
        raise NoStepsError(f"the policy {policy} is no async function")


def steps_in(policy: str, given: object) -> list[Step]:
    """Return the steps that a policy gave. NoStepsError when it gave something else."""
    if not isinstance(given, list | tuple):
        raise NoStepsError(f"the policy {policy} gave {_kind(given)}, not a list of Steps")
    for item in given:
        if not isinstance(item, Step):
            inside = f"{_kind(given)} with {_kind(item)} in it"
            raise NoStepsError(f"the policy {policy} gave {inside}, not a list of Steps")
    return list(given)


def bounded(policy: str, steps: list[Step]) -> list[Step]:
    """Return steps, or the error step that takes the place of more than an entry of a ledger has room for."""
    size = sum(len(step.payload_text) for step in steps)
    if size <= LONGEST_DATA:
        return steps
    told = f"the policy {policy} gave {size:,} characters of JSON, and {LONGEST_DATA:,} are allowed: it has to store them in a file or an artifact"
    return [error_step(policy, TOO_LARGE, told)]


def _kind(given: object) -> str:
    return "None" if given is None else type(given).__name__


AnEntry = TypeVar("AnEntry", bound=Entry)


def step_without(secrets: Secrets, step: Step) -> Step:
    """Return a step without secrets."""
    if not secrets.suspects(f"{step.payload_text}\n{step.actor}\n{step.type}\n{step.id}"):
        return step
    text = secrets.text
    return Step(text(step.id), text(step.actor), text(step.type), secrets.value(step.payload))


def action_without(secrets: Secrets, action: Action) -> Action:
    """Return a request without secrets: what is recorded of it, and what it is compared by. Who performs it gets the request itself."""
    if not secrets.suspects(action.payload_text):
        return action
    return Action(action.policy, secrets.value(action.payload), action.actions)


def entry_without(secrets: Secrets, entry: AnEntry) -> AnEntry:
    """Return an entry without secrets. TypeError or ValueError for one that cannot be written as JSON."""
    if not secrets.suspects(dump_line(entry)):
        return entry
    return cast(AnEntry, from_json(secrets.value(json.loads(json.dumps(to_json(entry))))))


def advice(names: tuple[str, ...]) -> str:
    """Return what is wrong with a text that had secrets in it, to whoever writes it anew."""
    several = "secrets" if len(names) > 1 else "a secret"
    return (
        f"The text contains {several} ({', '.join(names)}), which must not be in it; it is kept with [secret ..] in that place. "
        "Write it without: a program reads such a value from its environment when it runs."
    )


def warily(result: GuardResult, artifact: Artifact) -> GuardResult:
    """Return what a guard's verdict counts as: a text that had secrets in it does not pass, and the feedback says so."""
    if not artifact.redacted:
        return result
    feedback = "\n".join(filter(None, (result.feedback, advice(artifact.redacted))))
    return attrs.evolve(result, passed=False, feedback=feedback)


def never_passed(entry: VerdictEntry, redacted: tuple[str, ...]) -> VerdictEntry:
    """Return a verdict on a text that had secrets in it: no guard has passed it. What a person says stands."""
    judgements = [
        GuardVerdict(said.guard, "failed", "\n".join(filter(None, (said.feedback, advice(redacted)))))
        if said.outcome == "passed" and said.guard != PERSON
        else said
        for said in entry.judgements
    ]
    return attrs.evolve(entry, judgements=judgements)


class RedactingArtifacts:
    """An `ArtifactStore` of one run, that stores texts without secrets in another one. A new artifact's id names the run."""

    def __init__(self, store: ArtifactStore, secrets: Secrets, run_id: str = "") -> None:
        self._store, self._secrets, self._run_id = store, secrets, run_id

    def store(self, artifact: Artifact, author: str = "", run_id: str = "") -> Artifact:
        """Store one version without secrets, and return it as it is stored; KeyError when a parent is unknown."""
        text, usage = self._secrets.text, artifact.usage
        if usage is not None:
            model, answered = text(usage.model), text(usage.response_model)
            if (model, answered) != (usage.model, usage.response_model):
                usage = attrs.evolve(usage, model=model, response_model=answered)
        content, name = text(artifact.content), text(artifact.artifact_id)
        if (content, name, usage) != (artifact.content, artifact.artifact_id, artifact.usage):
            artifact = attrs.evolve(artifact, content=content, artifact_id=name, usage=usage)
        return self._store.store(artifact, text(author), run_id or self._run_id)

    def record_verdict(self, verdict: VerdictEntry) -> None:
        """Store what was said of an artifact, without secrets; KeyError when it is unknown."""
        self.record_clean_verdict(entry_without(self._secrets, verdict))

    def record_clean_verdict(self, verdict: VerdictEntry) -> None:
        """Store what was said of an artifact, which has no secrets in it; KeyError when it is unknown."""
        self._store.record_verdict(verdict)

    def attempts(self) -> tuple[AttemptRecord, ...]:
        """Return everything but the texts, in the order in which it was stored."""
        return self._store.attempts()

    def lineage(self, artifact_id: str) -> list[AttemptRecord]:
        """Return the provenance without the texts; KeyError when unknown."""
        return self._store.lineage(artifact_id)

    def get_artifact(self, artifact_id: str) -> Artifact:
        """Return one version; KeyError when there is none of that id."""
        return self._store.get_artifact(artifact_id)

    def get_provenance(self, artifact_id: str) -> list[Artifact]:
        """Return the versions that lead to this one, oldest first, itself last; KeyError when unknown."""
        return self._store.get_provenance(artifact_id)


def artifact_flagged(entry: ArtifactEntry, artifact: Artifact) -> ArtifactEntry:
    """Return the record of an artifact with the names of the secrets that its text had."""
    return attrs.evolve(entry, redacted=artifact.redacted) if artifact.redacted else entry
