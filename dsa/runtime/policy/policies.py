"""Policies: async functions from an `Action` to `Step`s (seed 004, sections 2 and 3). Models, people and code are all policies.

An effect of a machine is an Action for its policy, which answers with one step of type `event`. Here are:

- the two values, the functions that make steps, and the protocols of a policy and of its context;
- one call: the request, the check of its steps, and the fault that ends the whole run;
- redaction: steps, requests, entries and artifacts without secrets, before anything is written. Values without secrets are returned unchanged. An
  artifact whose text had secrets keeps their markers, and so shows it for ever (`Artifact.redacted`).

The module sees the run as a frozen value. It does not find or perform policies.
"""

import hashlib
import json
import sysconfig
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar, cast

import attrs

from dsa.declarations import Reference, index_in
from dsa.errors import DsaError, code_of
from dsa.expr import Outcome
from dsa.immutable import immutable
from dsa.runtime.artifacts import ArtifactStore, AttemptRecord
from dsa.runtime.content import Artifact, GeneratorInterface, GuardInterface, GuardResult
from dsa.runtime.generation import GenerationError
from dsa.runtime.json_text import (
    PLAIN,
    canonical_value,
    copy_json,
    is_flat,
    json_string,
    require_text_keys,
    sorted_text_of,
    value_of,
)
from dsa.runtime.ledger import (
    PERSON,
    ArtifactEntry,
    Entry,
    GuardVerdict,
    Ledger,
    VerdictEntry,
    dump_line,
    from_json,
    to_json,
)
from dsa.runtime.run import Run
from dsa.runtime.secrets import Secrets

Payload = Mapping[str, Any]


#: The types of steps (seed 004, section 5). An `event` answers a machine's effect; an `approval` releases one call.
TEXT, ACTION_CALL, ACTION_RESULT, EVENT, APPROVAL = "text", "action_call", "action_result", "event", "approval"
#: The type of the step with which an effect's policy leaves the answer to a person, who sends it later under the effect's key.
QUESTION = "question"


class PayloadText(str):
    """The text of a payload from `canonical_json`. An Action or a Step made with it does not write it again."""

    __slots__ = ()


class LazyPayload:
    """A payload of an Action whose text is written only when it is read as text. Policies of effects read the value from `make`.

    `make` returns a new value each time, equal to the value in the text from `write`.
    """

    __slots__ = ("_text", "_write", "make")

    def __init__(self, write: Callable[[], PayloadText], make: Callable[[], dict[str, Any]]) -> None:
        self._write: Callable[[], PayloadText] = write
        self._text: PayloadText | None = None
        self.make: Callable[[], dict[str, Any]] = make

    @property
    def text(self) -> PayloadText:
        """The text."""
        if self._text is None:
            self._text = self._write()
        return self._text


def _text_of(payload: PayloadText | LazyPayload) -> PayloadText:
    return payload.text if isinstance(payload, LazyPayload) else payload


def canonical_json(payload: Payload | PayloadText) -> PayloadText:
    """Write a payload so that equal payloads have equal texts. Raises TypeError or ValueError if it is not JSON."""
    if isinstance(payload, PayloadText):
        return payload
    content = dict(payload)
    require_text_keys(content)
    return PayloadText(sorted_text_of(content))


#: The longest data of an event, and the longest steps of a policy together, in characters of JSON: half of the longest entry of a ledger.
LONGEST_DATA = 8 * 2**20
#: The places of code that is not the user's: this package, the shipped machines, Python, installed packages, code without a file.
_NOT_THE_USERS = (
    *(f"{__file__.rpartition('dsa')[0]}{name}/" for name in ("dsa", "machines")),
    *{sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")},
    "<",
)
_NOTHING: Any = {}  # converted to text before anyone sees it


def _payload_form(payload: Payload | PayloadText | LazyPayload) -> PayloadText | LazyPayload:
    return payload if isinstance(payload, LazyPayload) else canonical_json(payload)


@attrs.frozen(field_transformer=immutable)
class Action:
    """A request to a policy: its name, the payload, and the actions that it may choose from.

    For an effect of a machine, `policy` is the effect and `actions` are the events that may answer it. For any other policy, `actions` are the
    policies that it may call. The payload is stored as JSON text, so it cannot change, and equal actions are equal keys.
    """

    policy: str
    _payload: PayloadText | LazyPayload = attrs.field(
        default=_NOTHING,
        converter=_payload_form,
        alias="payload",
        eq=_text_of,
        repr=_text_of,
    )
    actions: frozenset[str] = frozenset()

    @property
    def index(self) -> str | int | None:
        """The index of an effect of a family, such as 3 for `look[3]` and `north` for `look[north]`; None for any other policy."""
        text = index_in(self.policy)
        return int(text) if text is not None and text.isdecimal() else text

    @property
    def payload(self) -> dict[str, Any]:
        """The payload; a new value each time."""
        stored_payload = self._payload
        payload: dict[str, Any] = (
            stored_payload.make() if isinstance(stored_payload, LazyPayload) else value_of(stored_payload)
        )
        return payload

    @property
    def payload_text(self) -> PayloadText:
        """The payload as JSON text; equal payloads have equal texts."""
        return _text_of(self._payload)

    @property
    def digest(self) -> str:
        """SHA-256 of policy, actions and payload. Recorded calls are compared by it, and an approval names it."""
        head = json.dumps([self.policy, sorted(self.actions)])
        return hashlib.sha256(f"{head}\n{self.payload_text}".encode()).hexdigest()

    def with_actions(self, actions: Iterable[str]) -> "Action":
        """Return the action with more actions to choose from."""
        return Action(self.policy, self._payload, self.actions.union(actions))


@attrs.frozen
class Step:
    """One thing that a policy did or said: a unique id, the actor, the type, and a JSON payload. Raises TypeError for other values.

    `payload_text` is the payload as JSON text; equal payloads have equal texts.
    """

    id: str
    actor: str
    type: str
    payload_text: PayloadText = attrs.field(default=_NOTHING, converter=canonical_json, alias="payload")
    _read: dict[str, Any] | None = attrs.field(default=None, init=False, eq=False, repr=False)

    def __attrs_post_init__(self) -> None:
        """Check that id, actor and type are strings."""
        if not (isinstance(self.id, str) and isinstance(self.actor, str) and isinstance(self.type, str)):
            raise TypeError(
                f"id, actor and type of a step must be strings, not {self.id!r}, {self.actor!r} and {self.type!r}"
            )

    def under(self, step_id: str) -> "Step":
        """Return the step with another id."""
        return Step(step_id, self.actor, self.type, self.payload_text)

    @property
    def payload(self) -> dict[str, Any]:
        """The payload; a new value each time."""
        payload: dict[str, Any] = value_of(self.payload_text)
        return payload

    @property
    def content(self) -> dict[str, Any]:
        """The payload, the same value each time: for readers, and for ledgers, whose entries do not change."""
        read = self._read
        if read is None:
            read = value_of(self.payload_text)
            object.__setattr__(self, "_read", read)  # frozen for all other code
        return read

    def to_json(self, step_id: str | None = None) -> dict[str, Any]:
        """Return the step as a JSON object, with another id if `step_id` is given. `Step(**step.to_json()) == step`."""
        name = self.id if step_id is None else step_id
        return {"id": name, "actor": self.actor, "type": self.type, "payload": value_of(self.payload_text)}

    def without_id(self) -> dict[str, Any]:
        """Return the step for a result in a ledger, where its id follows from the effect's key and its place."""
        return {"actor": self.actor, "type": self.type, "payload": self.content}

    def canonical(self) -> str:
        """Return one line of text that is equal only for equal steps."""
        return f"{json.dumps([self.id, self.actor, self.type])}{self.payload_text}"


def event_step(
    actor: str, event: str, *, verdicts: Mapping[str, Outcome] | None = None, data: object = None, step_id: str = ""
) -> Step:
    """Return the step with which an effect's policy answers: the event, the verdicts of its guards, and any JSON data."""
    sorted_verdicts = dict(sorted(verdicts.items())) if verdicts else {}
    text = f'{{"data":{canonical_value(data)},"event":{json_string(event)},"verdicts":{canonical_value(sorted_verdicts) if sorted_verdicts else "{}"}}}'
    step = Step(step_id, actor, EVENT, PayloadText(text))
    if type(data) in PLAIN or is_flat(data):
        object.__setattr__(step, "_read", {"data": copy_json(data), "event": event, "verdicts": sorted_verdicts})
    return step


def text_step(actor: str, text: str, *, about: Payload | None = None, step_id: str = "") -> Step:
    """Return a step with a text (seed 004, 5.1), and the additional fields of `about`."""
    return Step(step_id, actor, TEXT, {"text": text, **(about or {})})


def question_step(actor: str, text: str, *, about: Payload | None = None, step_id: str = "") -> Step:
    """Return the step with which an effect's policy leaves the answer to a person, who sends one of the effect's events to the place of its key."""
    return Step(step_id, actor, QUESTION, {"text": text, **(about or {})})


def error_step(actor: str, code: str, message: str, *, about: Payload | None = None, step_id: str = "") -> Step:
    """Return the step that reports a failure as data (seed 004, 5.4). As an effect's answer it is `E.failed`."""
    return Step(step_id, actor, ACTION_RESULT, {"error": True, "code": code, "message": message, **(about or {})})


def error_of(actor: str, error: BaseException) -> Step:
    """Return the error step for an exception of a policy."""
    code = error.reason if isinstance(error, GenerationError) else code_of(error)
    place, usage = _place_in_users_code(error), error.usage if isinstance(error, GenerationError) else None
    about = {**({"at": place} if place else {}), **({"usage": attrs.asdict(usage)} if usage is not None else {})}
    about |= error.about if isinstance(error, GenerationError) else {}
    return error_step(actor, code, _message_of(error) or type(error).__name__, about=about)


def _place_in_users_code(error: BaseException) -> str:
    """Return file and line of the innermost frame in the user's own code; "" if the error passed through none."""
    place, trace = "", None if isinstance(error, GenerationError) else error.__traceback__
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if not file.startswith(_NOT_THE_USERS):
            place = f"{file.rpartition('/')[2]}:{trace.tb_lineno}"
        trace = trace.tb_next
    return place


def _message_of(error: BaseException) -> str:
    """Return an error's message; "" if its `__str__` fails."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001  (any failure means that there is no message)
        return ""


def action_call_step(actor: str, action: Action, *, about: Payload | None = None, step_id: str = "") -> Step:
    """Return the step that requests a call of another policy (seed 004, 5.2), with the digest of that call."""
    request = {"policy": action.policy, "payload": action.payload, "digest": action.digest}
    return Step(step_id, actor, ACTION_CALL, {**request, **(about or {})})


def action_result_step(actor: str, payload: Payload, *, step_id: str = "") -> Step:
    """Return the step with the result of an action (seed 004, 5.3)."""
    return Step(step_id, actor, ACTION_RESULT, payload)


def approval_step(actor: str, digest: str, *, approve: bool = True, text: str = "", step_id: str = "") -> Step:
    """Return the step that approves or refuses one call: the call with this `Action.digest`."""
    return Step(step_id, actor, APPROVAL, {"digest": digest, "approved": approve, "text": text})


def is_approved(action: Action, steps: Iterable[Step]) -> bool:
    """Return whether exactly this call is approved: the last approval step with its digest decides.

    An approval of any other call, such as the same policy with other arguments, does not count.
    """
    payloads = [step.payload for step in steps if step.type == APPROVAL]
    approvals = [payload for payload in payloads if payload.get("digest") == action.digest]
    return bool(approvals) and approvals[-1].get("approved") is True


class PolicySurroundings(Protocol):
    """The part of a policy's context that comes from a machine's run."""

    @property
    def run(self) -> Run:
        """The current run."""

    @property
    def artifacts(self) -> ArtifactStore:
        """Every version ever generated."""

    def guard(self, name: str) -> GuardInterface:
        """Return the guard bound to a name in the table. Raises KeyError if there is none."""

    def generator(self, name: str) -> GeneratorInterface:
        """Return the generator bound to a name. Raises KeyError if there is none."""

    def now_s(self) -> float:
        """Return the seconds of a monotonic clock."""

    def latest(self, reference: str | Reference, *, key: str = "") -> Any:  # noqa: ANN401  (JSON)
        """Return the data of an event, by the words of a placeholder: `found`, `found.order`, `found? since question`, `all found`.

        The data is that of the moment when the effect was emitted; a new value each time. Missing data raises MissingDataError, a LookupError; with
        `?` behind the reference it is None. Raises LookupError for an unknown event. `key` is the key of the effect.
        """

    def record(self, entry: ArtifactEntry | VerdictEntry) -> None:
        """Append an entry to the run's ledger at once, so that a later failure does not lose it."""

    def show(self, text: str, *, key: str = "") -> None:
        """Show a piece of text, such as a part of a model's answer, to those who watch the run. It is not recorded. `key` is the key of the call."""


class PolicyContext(PolicySurroundings, Protocol):
    """The context of a policy's call: the surroundings, calls of other policies, and the policy's own ledger.

    Outside a machine there are no surroundings: using them raises LookupError.
    """

    @property
    def config(self) -> Mapping[str, Any]:
        """The settings of the run. They are not in the ledger."""

    @property
    def key(self) -> str:
        """The key of this call, unique in its run and the same in every replay. Use it as an idempotency key."""

    def call(
        self,
        action: Action,
        decorators: "Sequence[Decorator]" = (),
        *,
        seed: Iterable[Step] = (),
        call_step: Step | None = None,
    ) -> Coroutine[Any, Any, list[Step]]:
        """Call another policy and return its steps. A recorded call is replayed, without calling the policy.

        The call gets its place among this policy's calls when this method returns, before it is awaited. The first decorator is the outermost. The
        other policy's own ledger begins with `seed`. A call that is not allowed, or a payload that breaks the policy's schema, gives an error step.
        The call and its result are added to this policy's own ledger; with `call_step`, the `action_call` step that is already there, only the
        result is.
        """

    def turn(self, policy: "Policy", action: Action) -> Coroutine[Any, Any, list[Step]]:
        """Perform a policy as a part of this one, recorded like a call. It sees this policy's ledger so far, and its steps are added to it.

        This is for decorators: without it, a replay would repeat each turn of a loop.
        """

    def note(self, *steps: Step) -> None:
        """Add steps to this policy's own ledger. They are not recorded; a replay adds them again."""

    async def get_ledger(self) -> Ledger[Step]:
        """Return this policy's own ledger: its seed, then its calls and their results in order."""

    def tools(self, names: Iterable[str]) -> list[dict[str, Any]]:
        """Describe policies as tools for a language model, in OpenAI's function format."""


class Policy(Protocol):
    """An async function that performs an action and returns the record of what it did.

    The policy of an effect with answers returns exactly one step of type `event`, or one error step.
    """

    def __call__(self, action: Action, context: PolicyContext, /) -> Awaitable[list[Step]]:
        """Perform the action."""


Decorator = Callable[[Policy], Policy]


@attrs.frozen
class AnsweringPolicy:
    """A policy with the events that it may answer with, so that a binding can be checked before the first event.

    With `is_eager` the policy starts in the task that drives the run; the rest becomes a task when it first waits. So a policy that never waits
    takes no turn of the event loop. Before it first waits, it must not use the current asyncio task, as `asyncio.timeout` and HTTP clients do.

    `reads` has functions for the data of events from outside, by event. Each returns the data to record, or raises ValueError with the reason why the
    event is refused.
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
    """Return a decorator that declares the events that a policy may answer with (see `AnsweringPolicy`)."""
    return lambda policy: AnsweringPolicy(policy, frozenset(events), is_eager, reads or {})


#: The codes of an answer that is too large, and of one that cannot be read.
TOO_LARGE, BAD_ANSWER = "TOO_LARGE", "BAD_ANSWER"


@attrs.frozen
class Request:
    """One requested call: its path and position, the action, and the payload for the ledger.

    `results_known` is the number of results that the caller had when it made the request.
    """

    path: str
    position: int
    results_known: int
    action: Action
    digest: str
    payload: dict[str, Any] | None


@attrs.define
class RunFault:
    """An error that ends the whole run, even if policies catch it.

    After a crash, other calls that are under way may still be recorded, but not those that the error passed through: their paths are in `paths`.
    """

    error: BaseException
    is_crash: bool
    paths: list[str] = attrs.field(factory=list)

    def forbids(self, path: str) -> bool:
        """Return whether a call must not be recorded as finished."""
        return not self.is_crash or any(f"{other}.".startswith(f"{path}.") for other in self.paths)


def require_awaitable(policy: str, result: object) -> None:
    """Raise DsaError if a policy's call did not return an awaitable."""
    if not isinstance(result, Awaitable):
        raise DsaError(f"the policy {policy} is not an async function", code=BAD_ANSWER)


def steps_in(policy: str, result: object) -> list[Step]:
    """Return the steps in a policy's result. Raises DsaError if it is not a list of steps."""
    if not isinstance(result, list | tuple):
        raise DsaError(f"the policy {policy} returned {_type_name(result)}, not a list of Steps", code=BAD_ANSWER)
    for item in result:
        if not isinstance(item, Step):
            inside = f"{_type_name(result)} with {_type_name(item)} in it"
            raise DsaError(f"the policy {policy} returned {inside}, not a list of Steps", code=BAD_ANSWER)
    return list(result)


def limit_steps(policy: str, steps: list[Step]) -> list[Step]:
    """Return the steps, or an error step if they are too long for an entry of a ledger."""
    size = sum(len(step.payload_text) for step in steps)
    if size <= LONGEST_DATA:
        return steps
    message = f"the policy {policy} returned {size:,} characters of JSON; the limit is {LONGEST_DATA:,}: store the data in a file or an artifact"
    return [error_step(policy, TOO_LARGE, message)]


def _type_name(value: object) -> str:
    return "None" if value is None else type(value).__name__


EntryT = TypeVar("EntryT", bound=Entry)


def redact_step(secrets: Secrets, step: Step) -> Step:
    """Return a step without secrets."""
    if not secrets.suspects(f"{step.payload_text}\n{step.actor}\n{step.type}\n{step.id}"):
        return step
    text = secrets.text
    return Step(text(step.id), text(step.actor), text(step.type), secrets.value(step.payload))


def redact_action(secrets: Secrets, action: Action) -> Action:
    """Return a request without secrets. It is recorded and compared in this form; the policy gets the request itself."""
    if not secrets.suspects(action.payload_text):
        return action
    return Action(action.policy, secrets.value(action.payload), action.actions)


def redact_entry(secrets: Secrets, entry: EntryT) -> EntryT:
    """Return an entry without secrets. Raises TypeError or ValueError if it is not JSON."""
    if not secrets.suspects(dump_line(entry)):
        return entry
    return cast(EntryT, from_json(secrets.value(json.loads(json.dumps(to_json(entry))))))


def redaction_advice(names: tuple[str, ...]) -> str:
    """Return feedback on a text that had secrets, for its author."""
    several = "secrets" if len(names) > 1 else "a secret"
    return (
        f"The text contains {several} ({', '.join(names)}), which must not be in it; the text is stored with [secret ..] instead. "
        "Write the text without secrets: a program that needs such a value reads it from its environment."
    )


def reject_redacted(result: GuardResult, artifact: Artifact) -> GuardResult:
    """Return a guard's result, but as failed for a text that had secrets; the feedback then says so."""
    if not artifact.redacted:
        return result
    feedback = "\n".join(filter(None, (result.feedback, redaction_advice(artifact.redacted))))
    return attrs.evolve(result, passed=False, feedback=feedback)


def fail_redacted(entry: VerdictEntry, names: tuple[str, ...]) -> VerdictEntry:
    """Return the verdict on a text that had secrets: each guard's pass becomes a failure. A person's verdict stays."""
    judgements = [
        GuardVerdict(judgement.guard, "failed", "\n".join(filter(None, (judgement.feedback, redaction_advice(names)))))
        if judgement.outcome == "passed" and judgement.guard != PERSON
        else judgement
        for judgement in entry.judgements
    ]
    return attrs.evolve(entry, judgements=judgements)


class RedactingArtifacts:
    """An `ArtifactStore` for one run that removes secrets and stores the rest in another store. The ids of new artifacts name the run."""

    def __init__(self, store: ArtifactStore, secrets: Secrets, run_id: str = "") -> None:
        self._store, self._secrets, self._run_id = store, secrets, run_id

    def store(self, artifact: Artifact, author: str = "", run_id: str = "") -> Artifact:
        """Store one version without secrets, and return the stored version. Raises KeyError for an unknown parent."""
        text, usage = self._secrets.text, artifact.usage
        if usage is not None:
            model, response_model = text(usage.model), text(usage.response_model)
            if (model, response_model) != (usage.model, usage.response_model):
                usage = attrs.evolve(usage, model=model, response_model=response_model)
        content, name = text(artifact.content), text(artifact.artifact_id)
        if (content, name, usage) != (artifact.content, artifact.artifact_id, artifact.usage):
            artifact = attrs.evolve(artifact, content=content, artifact_id=name, usage=usage)
        return self._store.store(artifact, text(author), run_id or self._run_id)

    def record_verdict(self, verdict: VerdictEntry) -> None:
        """Store a verdict without secrets. Raises KeyError for an unknown artifact."""
        self.record_clean_verdict(redact_entry(self._secrets, verdict))

    def record_clean_verdict(self, verdict: VerdictEntry) -> None:
        """Store a verdict that has no secrets. Raises KeyError for an unknown artifact."""
        self._store.record_verdict(verdict)

    def attempts(self) -> tuple[AttemptRecord, ...]:
        """Return all records, without texts, in the order in which they were stored."""
        return self._store.attempts()

    def lineage(self, artifact_id: str) -> list[AttemptRecord]:
        """Return the records of an artifact and its ancestors, oldest first. Raises KeyError for an unknown artifact."""
        return self._store.lineage(artifact_id)

    def get_artifact(self, artifact_id: str) -> Artifact:
        """Return one version. Raises KeyError for an unknown id."""
        return self._store.get_artifact(artifact_id)

    def get_provenance(self, artifact_id: str) -> list[Artifact]:
        """Return an artifact and its ancestors, oldest first. Raises KeyError for an unknown id."""
        return self._store.get_provenance(artifact_id)


def flag_redacted(entry: ArtifactEntry, artifact: Artifact) -> ArtifactEntry:
    """Return an artifact's entry with the names of the secrets that its text had."""
    return attrs.evolve(entry, redacted=artifact.redacted) if artifact.redacted else entry
