"""Conversations, read from their ledgers: turns, messages, waiting calls, artifacts, counters. Pure.

`ChatConversation` takes the entries of a run's ledger in order; one more entry costs the same however many precede it. Equal entries give an equal
conversation, also after a crash. `Inventory` has the artifacts (seed 002, workstreams A and B). An artifact with the content of an earlier one is not new:
its name becomes an alias, with the reason. One with the logical key of an earlier one and different content is its next version.
"""

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import chain, count, islice

import attrs

from dsa.runtime.ledger import EffectEntry, Entry, EventEntry, ResultEntry, RowEntry
from machines.chat.sql.query import QueryIntent
from machines.tool_use.records import JsonObject, read_record
from machines.tool_use.tool_call import ModelAnswer, ToolCall, ToolResult, fault_result
from machines.tool_use.transcript import CallSummary, Exchange, Notice, Transcript, call_fields, notices_in

#: The rule above the inventory in every request (seed 002, workstream A).
REUSE = "Reuse existing artifacts when possible; do not regenerate equivalent outputs."
#: A request describes this many artifacts, the newest.
MOST_DESCRIBED = 40


@attrs.frozen
class NewArtifact:
    """An artifact from a tool, new or not. `equal_to` is the id of the artifact with the same content, if there is one.

    `digest` is the SHA-256 of the bytes; `logical_key` names its purpose: the tool, the data, and the name or the query.
    """

    name: str
    kind: str
    digest: str
    size_bytes: int
    logical_key: str
    equal_to: str | None = None


@attrs.frozen
class ChatArtifact:
    """An artifact. `version` counts those of one logical key from 1; `aliases` are other names, each with its reason.

    `file_name` is the name of the published file: the artifact's name, with its id when an earlier artifact has the same name.
    """

    artifact_id: str
    name: str
    kind: str
    created_at: str
    source_call_id: str
    producer: str
    logical_key: str
    digest: str
    size_bytes: int
    file_name: str
    version: int = 1
    aliases: tuple[tuple[str, str], ...] = ()

    def as_new(self) -> NewArtifact:
        """Return a new artifact that equals this one."""
        return NewArtifact(self.name, self.kind, self.digest, self.size_bytes, self.logical_key, self.artifact_id)

    def description(self) -> JsonObject:
        """Return the description for the model."""
        facts = {
            "artifact_id": self.artifact_id,
            "name": self.name,
            "type": self.kind,
            "created_at": self.created_at,
            "source_call_id": self.source_call_id,
            "producer": self.producer,
            "logical_key": self.logical_key,
        }
        version = {"version": self.version} if self.version > 1 else {}
        return {**facts, **version, **({"also_named": [name for name, _ in self.aliases]} if self.aliases else {})}


class Inventory:
    """The artifacts of a conversation, oldest first."""

    def __init__(self) -> None:
        self._artifacts: dict[str, ChatArtifact] = {}
        self._by_content: dict[str, str] = {}
        self._versions: dict[str, int] = {}
        self._by_key: dict[str, str] = {}
        self._names: dict[str, str] = {}
        self._file_names: set[str] = set()

    def __len__(self) -> int:
        return len(self._artifacts)

    def __iter__(self) -> Iterator[ChatArtifact]:
        return iter(self._artifacts.values())

    def __getitem__(self, artifact_id: str) -> ChatArtifact:
        return self._artifacts[artifact_id]

    def by_name(self, name: str) -> ChatArtifact | None:
        """Return the newest artifact of a name, an alias or an id, or None."""
        artifact_id = self._names.get(name) or (name if name in self._artifacts else None)
        return None if artifact_id is None else self._artifacts[artifact_id]

    def latest(self, logical_key: str) -> ChatArtifact | None:
        """Return the newest artifact of a logical key, or None."""
        artifact_id = self._by_key.get(logical_key)
        return None if artifact_id is None else self._artifacts[artifact_id]

    def equal(self, digest: str) -> ChatArtifact | None:
        """Return the artifact with this content, or None."""
        artifact_id = self._by_content.get(digest)
        return None if artifact_id is None else self._artifacts[artifact_id]

    def id_after(self, count: int) -> str:
        """Return the id of a new artifact after `count` other new ones."""
        return f"a{len(self._artifacts) + count + 1}"

    def compare(self, artifacts: Sequence[NewArtifact], *, dedups: bool = True) -> tuple[NewArtifact, ...]:
        """Return new artifacts, each with the artifact that it equals, which may be one of `artifacts`.

        Without `dedups` all are new.
        """
        beside, result = dict[str, str](), []
        for each in artifacts:
            equal = self.equal(each.digest) if dedups else None
            equal_to = beside.get(each.digest) if equal is None else equal.artifact_id
            if equal_to is None and dedups:
                beside[each.digest] = self.id_after(len(beside))
            result.append(attrs.evolve(each, equal_to=equal_to))
        return tuple(result)

    def add(self, new: NewArtifact, *, call_id: str, producer: str, created_at: str) -> ChatArtifact:
        """Add a new artifact."""
        version = self._versions[new.logical_key] = self._versions.get(new.logical_key, 0) + 1
        source, content = (created_at, call_id, producer), (new.logical_key, new.digest, new.size_bytes)
        artifact_id = self.id_after(0)
        file_name = next(name for name in _file_names(new.name, artifact_id) if name not in self._file_names)
        artifact = ChatArtifact(artifact_id, new.name, new.kind, *source, *content, file_name, version)
        self._file_names.add(file_name)
        self._artifacts[artifact.artifact_id] = artifact
        self._by_key[new.logical_key] = artifact.artifact_id
        self._by_content.setdefault(new.digest, artifact.artifact_id)
        self._names[new.name] = artifact.artifact_id
        return artifact

    def alias(self, new: NewArtifact) -> ChatArtifact:
        """Record that an artifact was made again, under this name. Raises KeyError when `equal_to` is unknown."""
        artifact = self._artifacts[new.equal_to or ""]
        self._names[new.name] = artifact.artifact_id
        names = {artifact.name, *(name for name, _ in artifact.aliases)}
        if new.name not in names:
            reason = (
                f"duplicate_artifact_prevented: it has the same content as {artifact.artifact_id} ({artifact.name})"
            )
            artifact = attrs.evolve(artifact, aliases=(*artifact.aliases, (new.name, reason)))
            self._artifacts[artifact.artifact_id] = artifact
        return artifact

    def descriptions(self) -> list[JsonObject]:
        """Return the descriptions of the newest artifacts, oldest first."""
        return [artifact.description() for artifact in self.newest()]

    def newest(self) -> list[ChatArtifact]:
        """Return the artifacts that a request describes, oldest first."""
        return [*islice(reversed(self._artifacts.values()), MOST_DESCRIBED)][::-1]


def _file_names(name: str, artifact_id: str) -> Iterator[str]:
    """Return possible names of a file, the best first."""
    stem, dot, ending = name.rpartition(".")
    ids = chain([artifact_id], (f"{artifact_id}_{number}" for number in count(2)))
    return chain([name], (f"{stem}_{number}.{ending}" if dot else f"{ending}_{number}" for number in ids))


@attrs.frozen
class UserMessage:
    """A message of the user; `rerun` asks for work to be repeated."""

    text: str
    rerun: bool = False


@attrs.frozen
class Earlier:
    """An earlier equal call: its id, its turn, and whether it succeeded."""

    call_id: str
    turn: int
    ok: bool


@attrs.frozen
class ChatCall:
    """A call as the agent reads it. `text` is its SQL or code, `fault` what is wrong with it; `tool` is empty for an unknown tool.

    Equal calls have equal digests; `earlier` is the last equal call. `turn` and `rerun` are those of the current turn.
    """

    call_id: str
    tool: str
    text: str = ""
    rescues: tuple[str, ...] = ()
    fault: str = ""
    digest: str = ""
    earlier: Earlier | None = None
    turn: int = 0
    rerun: bool = False
    arguments: JsonObject = attrs.field(factory=dict)


@attrs.frozen
class ResultTable:
    """A result of SQL with its rows in a file: the SHA-256 of the file, the names of columns, and their DuckDB types."""

    digest: str
    columns: tuple[str, ...]
    types: tuple[str, ...]


@attrs.frozen
class ChatResult:
    """The result of a call, for the model, and its artifacts. `table` and `intent` come from SQL; `rung` and `features` say how Python was confined.

    With `dedups` equal content is stored once.
    """

    call_id: str
    result: JsonObject
    intent: QueryIntent | None = None
    table: ResultTable | None = None
    artifacts: tuple[NewArtifact, ...] = ()
    rung: str = ""
    features: tuple[str, ...] = ()
    dedups: bool = True


@attrs.frozen
class PresentedAnswer:
    """An answer for the user: the report's artifacts, and what is missing."""

    artifacts: tuple[NewArtifact, ...] = ()
    missing: tuple[str, ...] = ()


#: Reasons why something was not done, under their names in payloads, logs and counters (seed 002, workstream F).
REASONS: dict[str, str] = {
    "invalid_state": "A call was not made because the phase does not allow it.",
    "duplicate_tool_call_skipped": "The same call was made before; its result was used again.",
    "duplicate_artifact_prevented": "An artifact with the same content existed; it is stored once.",
    "empty_python_payload_retried": "A Python call without usable code was sent back once, with an explanation of the form.",
    "invalid_tool_payload": "A call had no SQL or code that can run.",
    "unknown_tool": "A call did not name a tool, or could not be read.",
    "too_many_calls": "Calls were left out: the turn reached its limit of calls.",
    "interrupted": "A call was interrupted: cancelled, timed out, or ended by an error.",
    "answer_cut_off": "An answer broke off, was empty, or had a call in its text; the model was asked again.",
    "answer_incomplete": "An answer named a file that does not exist; the model was told.",
    "turn_cancelled": "The user stopped the turn.",
    "turn_timed_out": "The turn took longer than its time limit.",
    "limit_reached": "The turn reached its limit of answers, calls or refusals.",
    "turn_failed": "The model or a tool failed.",
}
#: What people read for these reasons, in a word or two.
BADGES: dict[str, str] = {
    "duplicate_tool_call_skipped": "skipped: done already",
    "duplicate_artifact_prevented": "kept once",
    "empty_python_payload_retried": "sent back",
    "invalid_tool_payload": "refused",
    "unknown_tool": "refused",
    "invalid_state": "refused here",
    "too_many_calls": "left out",
    "answer_cut_off": "asked again",
    "answer_incomplete": "incomplete",
    "turn_cancelled": "stopped",
    "turn_timed_out": "stopped",
    "limit_reached": "stopped",
    "turn_failed": "failed",
    "interrupted": "no result",
}
#: Reasons that end a turn without an answer.
ENDS = frozenset({"turn_cancelled", "turn_timed_out", "limit_reached", "turn_failed"})
#: Events of calls from the queue, and of their results.
CALL_EVENTS = frozenset({"sql_call", "python_call", "unknown_call"})
#: Effects that make a call. They run side by side.
CALL_EFFECTS = frozenset({"run_sql", "run_python"})
DONE_EVENTS = frozenset({"sql_done", "python_done"})
FAILURE_EVENTS = frozenset({"sql_failed", "python_failed"})
RECENT_TURNS = 50
#: The note to the model when a failed turn continues after its own message: providers want the last message to be from the user.
GO_ON = "[That turn ended with an error. Continue from here.]"


@attrs.define
class DataCall(CallSummary):
    """A call of the conversation.

    `artifacts` are the ids of its artifacts, `new_artifacts` the same with the call's own names; `table` and `intent` are the result of SQL. A call that was skipped
    because of an equal one (`equal_to`) has the results of that one. `source` is the table that code reads: the latest one when the call began.
    """

    text: str = ""
    digest: str = ""
    rescues: tuple[str, ...] = ()
    artifacts: list[str] = attrs.field(factory=list)
    new_artifacts: list[NewArtifact] = attrs.field(factory=list)
    table: ResultTable | None = None
    intent: QueryIntent | None = None
    equal_to: str = ""
    source: ResultTable | None = None


@attrs.define
class ChatTurn:
    """A message of the user and all that followed: the exchange with the model, calls, the answer.

    `end_reason` is the reason (REASONS) when it ended without an answer, and `why` explains it.
    """

    number: int
    text: str
    rerun: bool
    exchange: Exchange = attrs.field(factory=Exchange)
    calls: list[DataCall] = attrs.field(factory=list)
    answer: str = ""
    is_retry: bool = False
    end_reason: str = ""
    why: str = ""


class ChatConversation:
    """A conversation, read from a ledger. `take` reads entries; everything else is the result."""

    def __init__(self) -> None:
        self.count = 0
        self.turns: list[ChatTurn] = []
        self.inventory = Inventory()
        self.transcript = Transcript(_data_call)
        self.intents: deque[QueryIntent] = deque(maxlen=5)
        self.latest_table: ResultTable | None = None
        self.reasons: Counter[str] = Counter()
        self.tools: Counter[str] = Counter()
        self.retry_count = self.retry_successes = 0
        self._last_event: EventEntry | None = None
        self._earlier_calls: dict[str, Earlier] = {}
        self._running_calls: dict[str, DataCall] = {}
        #: Results that the model has not read yet, by call, and results of skipped calls that wait for the result of an equal call, by the id of that call.
        self._unread_results: dict[str, tuple[EventEntry, ChatResult]] = {}
        self._skipped_results: dict[str, list[ToolResult]] = {}
        self._latest_place = 0, 0

    def take(self, entries: Iterable[Entry]) -> None:
        """Read further entries."""
        for entry in entries:
            self.count += 1
            if isinstance(entry, EventEntry):
                self._last_event = entry
            elif isinstance(entry, RowEntry) and self._last_event is not None:
                self._take_event(self._last_event)  # a refused event changes nothing
            elif isinstance(entry, EffectEntry):
                self._take_effect(entry.effect)
            elif isinstance(entry, ResultEntry):
                self._take_notices(entry)

    @property
    def turn(self) -> ChatTurn:
        """The current turn, or the last one. Raises IndexError before the first."""
        return self.turns[-1]

    @property
    def running_calls(self) -> tuple[DataCall, ...]:
        """The calls that are being made, in the order in which they began."""
        return tuple(self._running_calls.values())

    def earlier(self, digest: str) -> Earlier | None:
        """Return the last equal call of the recent turns, also one that is being made, or None."""
        if running_call := next((call for call in self.running_calls if call.digest == digest), None):
            return Earlier(running_call.call_id, self.turn.number, ok=True)
        call = self._earlier_calls.get(digest)
        return call if call is not None and self.turn.number - call.turn <= RECENT_TURNS else None

    # --- events ---

    def _take_event(self, entry: EventEntry) -> None:
        event, data = entry.event, entry.data
        if event == "message":
            self._begin_turn(read_record(UserMessage, data))
        elif event == "retried" and self.turns:
            self.turn.end_reason = self.turn.why = ""
            self._close_open("interrupted")
            if self.turn.exchange.messages[-1].role == "assistant":
                self.transcript.say(GO_ON)
        elif not self.turns or not isinstance(data, dict):
            return  # refused, or not part of the conversation
        elif event in {"asked", "answered", "cut_off"}:
            self._take_answer(event, read_record(ModelAnswer, data))
        elif event in CALL_EVENTS:
            self._take_call(read_record(ChatCall, data))
        elif event in DONE_EVENTS | FAILURE_EVENTS:
            self._take_result(entry, read_record(ChatResult, data))
        elif event == "presented":
            report = ChatResult("", {}, artifacts=read_record(PresentedAnswer, data).artifacts)
            self._keep(entry, report, f"turn-{self.turn.number}", "report")

    def _begin_turn(self, message: UserMessage) -> None:
        self._close_open("interrupted")
        self.turns.append(ChatTurn(len(self.turns) + 1, message.text, message.rerun, self.transcript.begin()))
        self.transcript.say(message.text)

    def _take_answer(self, event: str, answer: ModelAnswer) -> None:
        self._close_open("interrupted")
        count = len(self.transcript.calls)
        self.transcript.take_answer(answer)
        self.turn.calls += self.transcript.calls[count:]
        if event == "answered":
            self.turn.answer = answer.content

    def _take_call(self, call: ChatCall) -> None:
        data_call = self.transcript.take_next(call.tool, call.rescues)
        if data_call is None:
            return
        data_call.text, data_call.digest, data_call.rescues = call.text, call.digest, call.rescues
        data_call.equal_to = "" if call.earlier is None else call.earlier.call_id
        if self.turn.is_retry and data_call.tool == "run_python" and data_call.text and not call.fault:
            self.turn.is_retry = False
            self.retry_successes += 1

    def _take_effect(self, effect: str) -> None:
        """Take an effect of the last event: the call that was taken begins, or goes back into the queue."""
        call = self.transcript.current
        if call is None:
            return
        if effect in CALL_EFFECTS:
            call.source = self.latest_table
            self._running_calls[call.call_id] = call
            self.transcript.current = None
        elif effect == "hold_call":
            self.transcript.rescues.subtract(call.rescues)
            self.transcript.put_back()

    def _take_result(self, entry: EventEntry, result: ChatResult) -> None:
        call = self._running_calls.pop(result.call_id, None)
        if call is None:
            return
        is_done = entry.event in DONE_EVENTS
        call.status = "done" if is_done else "failed"
        self.tools[f"{call.tool} {call.status}"] += 1
        if call.digest:
            self._earlier_calls[call.digest] = Earlier(call.call_id, self.turn.number, is_done)
        if is_done:
            call.table, call.intent = result.table, result.intent
            self._set_latest(call)
            self._unread_results[call.call_id] = entry, result
        self._add_result(ToolResult(call.call_id, result.result))
        for skipped_result in self._skipped_results.pop(call.call_id, ()):
            self._add_result(attrs.evolve(skipped_result, content={**skipped_result.content, "result": result.result}))

    def _add_result(self, result: ToolResult) -> None:
        """Add the result of a call. Artifacts are numbered in the order in which the model asked, whichever came first."""
        for call in self.transcript.result(result):
            if call.status == "duplicate_tool_call_skipped":
                self._copy_results(call)
            elif call.call_id in self._unread_results:
                entry, chat_result = self._unread_results.pop(call.call_id)
                call.new_artifacts = self._keep(entry, chat_result, call.call_id, call.tool.removeprefix("run_"))
                call.artifacts = [each.equal_to or "" for each in call.new_artifacts]
                self._add_intent(call)

    def _set_latest(self, call: DataCall) -> None:
        """Let code read a result of SQL, unless a later call already has one."""
        place = self.turn.number, next(n for n, each in enumerate(self.turn.calls) if each is call)
        if call.intent is not None and place >= self._latest_place:
            self.latest_table, self._latest_place = call.table, place

    def _add_intent(self, call: DataCall) -> None:
        """List what a result of SQL is about. A result that becomes the latest again is listed once."""
        if call.intent is not None:
            others = [each for each in self.intents if each is not call.intent]
            self.intents = deque([*others, call.intent], maxlen=self.intents.maxlen)

    def _copy_results(self, call: DataCall) -> None:
        """Copy the results of the equal call to a skipped one: the table becomes the latest, the artifacts get their names again."""
        equal = self.transcript.call(call.equal_to)
        if equal is not None and equal.status == "done":
            call.new_artifacts, call.artifacts = equal.new_artifacts, equal.artifacts
            call.table, call.intent = equal.table, equal.intent
            for each in call.new_artifacts:
                self.inventory.alias(each)
            self._set_latest(call)
            self._add_intent(call)

    def _keep(self, entry: EventEntry, result: ChatResult, source: str, producer: str) -> list[NewArtifact]:
        """Add artifacts: all as new when the guard `new` passed, otherwise each content once. Return them with their ids (`equal_to`).

        The guard did not know of the artifacts of calls that were made at the same time; their contents are stored once too.
        """
        at = datetime.fromtimestamp((entry.at_ms or 0) / 1000, UTC).isoformat(timespec="seconds")
        is_new, artifacts = dict(entry.verdicts).get("new") == "passed", []
        for new in result.artifacts:
            equal = self.inventory.equal(new.digest)
            if equal is not None and (not is_new if new.equal_to else result.dedups):
                artifact = self.inventory.alias(attrs.evolve(new, equal_to=equal.artifact_id))
            else:
                artifact = self.inventory.add(new, call_id=source, producer=producer, created_at=at)
            artifacts.append(attrs.evolve(new, equal_to=artifact.artifact_id))
        return artifacts

    # --- notices ---

    def _take_notices(self, entry: ResultEntry) -> None:
        """Read notices: results of calls that were not made, notes to the model, reasons."""
        for notice in notices_in(entry, Notice, REASONS):
            self.reasons[notice.reason] += 1
            if notice.reason in ENDS:
                self.turn.end_reason, self.turn.why = notice.reason, notice.text
            if notice.reason == "empty_python_payload_retried":
                self.retry_count += 1
                self.turn.is_retry = True
            for call_id, content in notice.results.items():
                self._skip_call(notice.reason, ToolResult(call_id, content))
            if notice.drops:
                self.transcript.drop()
                self.transcript.current = None
            if notice.note:
                self.transcript.say(notice.note)

    def _skip_call(self, reason: str, result: ToolResult) -> None:
        call = self.transcript.open_call(result.call_id)
        if call is not None:
            call.status = reason
            self._running_calls.pop(call.call_id, None)
            if reason == "duplicate_tool_call_skipped" and call.equal_to in self._running_calls:
                self._skipped_results.setdefault(call.equal_to, []).append(result)
                self.transcript.current = None
            else:
                self._add_result(result)

    def _close_open(self, reason: str) -> None:
        """Add a result for every open call: a provider refuses a conversation with open calls."""
        self.transcript.drop()
        self.transcript.current = None
        self._skipped_results.clear()
        for call_id in self.transcript.open_ids():
            self.reasons[reason] += 1
            self._skip_call(
                reason, fault_result(call_id, reason, "its result is unknown: call it again if you still need it")
            )


def _data_call(call: ToolCall) -> DataCall:
    return DataCall(**call_fields(call))


def conversation_of(entries: Iterable[Entry]) -> ChatConversation:
    """Return the conversation in a ledger."""
    conversation = ChatConversation()
    conversation.take(entries)
    return conversation
