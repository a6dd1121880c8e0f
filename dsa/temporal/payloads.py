"""Payloads: the JSON that goes between the entry point, the workflows and the activities of runs on Temporal.

Entries of a ledger and steps of policies have a JSON form already (`dsa.runtime.ledger`, `dsa.runtime.policy.policies`). Here are the forms of the
others: occurrences, outcomes of events, artifacts, and reasons to rest. Rows are identified by their position in the table, which both sides have.
Long payloads may be in a store (`dsa.temporal.payload_stores`); then the server has a reference.
"""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

import attrs
from temporalio.api.common.v1 import Payload
from temporalio.converter import (
    CompositePayloadConverter,
    DataConverter,
    DefaultPayloadConverter,
    JSONPlainPayloadConverter,
)

from dsa.machine import Machine
from dsa.runtime.artifacts import ArtifactStore
from dsa.runtime.content import Artifact
from dsa.runtime.generation import Usage
from dsa.runtime.json_text import text_of
from dsa.runtime.ledger import Intents
from dsa.runtime.run import Run
from dsa.runtime.status import Failure, Rest
from dsa.semantics import Configuration, Occurrence, Refusal, Taken

#: A JSON object.
Json = dict[str, Any]

#: The types of the workflows, and the names of activities, updates, queries and the signal.
WORKFLOW, PAGE_WORKFLOW = "dsa", "dsa-page"
PERFORM, JUDGE, READ, BIND = "perform", "judge", "read", "bind"
SEND, RESUME, INTERRUPT = "send", "resume", "interrupt"
STORY, STATE, COUNTERS, END = "story", "state", "counters", "end"
#: The separator between the id of a message and the number of the attempt, in the ids of updates: an execution answers each id once.
ATTEMPT = ":"
#: The memo with the time at which a run was begun, in seconds since 1970: its executions begin later.
START_TIME = "start_time"
#: The task queue of workflows, and of the effects that any worker can perform: it finds their bindings by name, and they do not depend on one machine.
QUEUE = "dsa"
#: The beginnings of the task queues for effects of certain machines, with the name that an address gives them, and of single processes.
NAMED_QUEUE, PROCESS_QUEUE = f"{QUEUE}-", f"{QUEUE}/"
#: The task queue of the workflows that hold pages of stories: workers forget each one as soon as it has been read.
PAGE_QUEUE = f"{PROCESS_QUEUE}pages"
#: The types of application errors: the first carries the outcome of a refused event, the second says that the next execution takes the event, the last
#: that a worker cannot have what it needs for the run, and has not called any of it.
REFUSAL, NEXT_EXECUTION, UNBOUND = "Refusal", "NextExecution", "Unbound"


#: The types of the errors of an activity whose result, as the SDK calls it, or whose request is longer than the server accepts, and what to do about it.
TOO_LARGE, REQUEST_TOO_LARGE = "PayloadsTooLarge", "RequestTooLarge"
_STORE_HINT = "for longer data, add a store to the address of workers and clients, such as ?store=/FOLDER"
TOO_LONG = f"the server accepts about 2 MB at once; {_STORE_HINT}"
#: The most bytes of a value. A server ends a workflow whose worker sends more than 4 MB at once: these are the answer to a reader and, beside it, as much
#: of everything else as one value may have.
MOST_OF_VALUE = 2_000_000
#: The most bytes of an event, or of the start of a part: a server gives a worker ten at once, which the worker sends back when it accepts them.
MOST_OF_EVENT = 200_000
EVENT_TOO_LONG = f"an event may have 0.2 MB there; {_STORE_HINT}"


class OrderedJsonConverter(JSONPlainPayloadConverter):
    """JSON as the default converter writes it, but with the members of objects in their original order, because prompts show it."""

    def to_payload(self, value: Any) -> Payload | None:  # noqa: ANN401  (of any type)
        """Write a value as JSON; None for one that is not JSON."""
        return Payload(
            metadata={"encoding": self.encoding.encode()}, data=text_of(value).encode("utf-8", "surrogatepass")
        )


class OrderedPayloadConverter(CompositePayloadConverter):
    """The default converters, with JSON in its original order."""

    def __init__(self) -> None:
        defaults = DefaultPayloadConverter.default_encoding_payload_converters
        others = (each for each in defaults if not isinstance(each, JSONPlainPayloadConverter))
        super().__init__(*others, OrderedJsonConverter())


#: The converter of clients and workers if the server keeps everything.
CONVERTER = dataclasses.replace(DataConverter.default, payload_converter_class=OrderedPayloadConverter)


def _pairs(pairs: Iterable[Iterable[Any]]) -> tuple[Any, ...]:
    """Return pairs as tuples, which are lists in JSON."""
    return tuple(map(tuple, pairs))


@attrs.frozen
class StartPayload:
    """The start of a run: its id, its document, and how it is bound, as far as the workflow needs to know.

    `settings` are those of the first entry. `reads` are the events whose data a policy's function reads first, `spenders` the effects that a
    budget stops (None: all). `queue` is the task queue of its effects, `first` the events that it begins with. A run that begins as another one did has its `entries`
    and `artifacts`. `most_bytes` is the longest value that the server accepts; 0 means that a store takes any. After `most_events` events of its history (None: when the server suggests it), a run continues in a new execution, which has the
    `continuation`.
    """

    run: str
    text: str
    digest: str
    parameters: tuple[tuple[str, Any], ...] = attrs.field(converter=_pairs)
    settings: Json
    queue: str
    guards: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    spenders: tuple[str, ...] | None = None
    first: tuple[Json, ...] = ()
    entries: tuple[Json, ...] = ()
    artifacts: tuple[Json, ...] = ()
    most_bytes: int = 0
    most_events: int | None = None
    continuation: Json | None = None

    def to_json(self) -> Json:
        """Return it as a JSON object. `StartPayload(**start.to_json()) == start`, up to lists for tuples."""
        return attrs.asdict(self)


def occurrence_to_json(occurrence: Occurrence) -> Json:
    """Return an occurrence as a JSON object."""
    return {**attrs.asdict(occurrence, recurse=False), "verdicts": dict(occurrence.verdicts)}


def occurrence_from(payload: Mapping[str, Any]) -> Occurrence:
    """Read an occurrence."""
    return Occurrence(**payload)


def configuration_to_json(here: Configuration) -> Json:
    """Return a configuration as a JSON object."""
    precedence = sorted([list(map(list, pair)) for pair in here.precedence])
    fields = {"state": here.state, "values": list(here.values), "outstanding": list(here.outstanding)}
    return {**fields, "precedence": precedence}


def configuration_from(fields: Mapping[str, Any]) -> Configuration:
    """Read a configuration."""
    precedence = frozenset((tuple(first), tuple(second)) for first, second in fields["precedence"])
    return Configuration(fields["state"], tuple(fields["values"]), tuple(fields["outstanding"]), precedence)


def outcome_to_json(machine: Machine, outcome: Taken | Refusal) -> Json:
    """Return the outcome of an event as a JSON object."""
    configuration = configuration_to_json(outcome.configuration)
    if isinstance(outcome, Taken):
        row = machine.transitions.index(outcome.transition)
        return {"configuration": configuration, "row": row, "effects": outcome.effects, "cancelled": outcome.cancelled}
    rows = [machine.transitions.index(row) for row in outcome.rows]
    names = {"message": outcome.message, "rows": rows, "accepted": list(outcome.accepted)}
    return {"configuration": configuration, "reason": outcome.reason, **names}


def outcome_from(machine: Machine, payload: Mapping[str, Any]) -> Taken | Refusal:
    """Read the outcome of an event."""
    configuration = configuration_from(payload["configuration"])
    if "row" in payload:
        transition = machine.transitions[payload["row"]]
        return Taken(configuration, transition, tuple(payload["effects"]), tuple(payload["cancelled"]))
    rows = tuple(machine.transitions[row] for row in payload["rows"])
    return Refusal(payload["reason"], configuration, payload["message"], rows, tuple(payload["accepted"]))


def artifact_to_json(artifact: Artifact) -> Json:
    """Return an artifact as a JSON object."""
    return attrs.asdict(artifact)


def artifact_from(payload: Mapping[str, Any]) -> Artifact:
    """Read an artifact."""
    usage = payload["usage"]
    if usage is not None:
        usage = Usage(**{**usage, "retried": tuple(usage["retried"])})
    return Artifact(**{**payload, "usage": usage, "dependency_ids": tuple(payload["dependency_ids"])})


def artifact_record(artifact: Artifact, author: str, run_id: str) -> Json:
    """Return the record of an artifact that was stored."""
    return {"artifact": artifact_to_json(artifact), "author": author, "run": run_id}


def store_artifact(artifacts: ArtifactStore, record: Mapping[str, Any]) -> None:
    """Store the artifact of a record."""
    artifacts.store(artifact_from(record["artifact"]), record["author"], record["run"])


def rest_to_json(rest: Rest) -> Json:
    """Return why a run rests as a JSON object, without the run."""
    failure = None if rest.failure is None else attrs.asdict(rest.failure)
    return {"kind": rest.kind, "failure": failure, "in_doubt": [i.key for i in rest.in_doubt], "due_ms": rest.due_ms}


def rest_from(run: Run, payload: Mapping[str, Any]) -> Rest:
    """Read why a run rests."""
    failure = None if payload["failure"] is None else Failure(**payload["failure"])
    intents = Intents(run.ledger)
    return Rest(payload["kind"], run, failure, tuple(intents[key] for key in payload["in_doubt"]), payload["due_ms"])
