"""What a conversation has made: artifacts, each content kept once, under every name it has had (seed 002, workstreams A and B).

Takes what tools made, gives what is known of it. An artifact with the content of an earlier one is no new artifact: its name becomes an alias,
with the reason. One with the logical key of an earlier one and other content is the next version of it. Pure, and each thing costs the same
however many artifacts there are.

What the events of the chat machine bring, as records of their data: a message, a call as it is meant, what came of it, an answer that is presented.

A conversation as its ledger tells it: turns, what the model was told and said, calls that wait, artifacts, counters.

Takes entries of a run's ledger in order, keeps what follows from them; taking one more costs the same however many came before. It decides
nothing and asks nobody: the same entries give the same conversation, also after a crash.
"""

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import chain, count, islice

import attrs

from dsa.runtime.ledger import Entry, EventEntry, ResultEntry, RowEntry
from machines.chat.sql.query import QueryIntent
from machines.tool_use.records import JsonObject, read_record
from machines.tool_use.tool_call import ModelAnswer, ToolCall, ToolResult, refused
from machines.tool_use.transcript import CallSummary, Exchange, Notice, Transcript, called_of, notices_in

#: The rule that stands above the inventory in every request (seed 002, workstream A).
REUSE = "Reuse existing artifacts when possible; do not regenerate equivalent outputs."
#: How many artifacts a request describes: the newest.
MOST_SHOWN = 40


@attrs.frozen
class NewArtifact:
    """What a tool made, before anybody knows whether it is new. `equal_to` is the artifact that has the same content, if there is one.

    `digest` is SHA-256 of the bytes; `logical_key` says for what it was made: the tool, the data, and the name or the query.
    """

    name: str
    kind: str
    digest: str
    size_bytes: int
    logical_key: str
    equal_to: str | None = None


@attrs.frozen
class ChatArtifact:
    """One content that was made. `version` counts those of one logical key from 1; `aliases` are other names, each with why.

    `file_name` is that of the file that people look at: the name, with the id in it where an earlier artifact has the name.
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

    def as_made(self) -> NewArtifact:
        """Return it as what makes it again."""
        return NewArtifact(self.name, self.kind, self.digest, self.size_bytes, self.logical_key, self.artifact_id)

    def described(self) -> JsonObject:
        """Return what a model is told of it."""
        told = {
            "artifact_id": self.artifact_id,
            "name": self.name,
            "type": self.kind,
            "created_at": self.created_at,
            "source_call_id": self.source_call_id,
            "producer": self.producer,
            "logical_key": self.logical_key,
        }
        version = {"version": self.version} if self.version > 1 else {}
        return {**told, **version, **({"also_named": [name for name, _ in self.aliases]} if self.aliases else {})}


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

    def named(self, name: str) -> ChatArtifact | None:
        """Return the newest artifact of a name, an alias included; also one by its id."""
        found = self._names.get(name) or (name if name in self._artifacts else None)
        return None if found is None else self._artifacts[found]

    def latest(self, logical_key: str) -> ChatArtifact | None:
        """Return the newest version of what was made for one thing."""
        found = self._by_key.get(logical_key)
        return None if found is None else self._artifacts[found]

    def equal(self, digest: str) -> ChatArtifact | None:
        """Return the artifact with this content."""
        found = self._by_content.get(digest)
        return None if found is None else self._artifacts[found]

    def id_after(self, count: int) -> str:
        """Return the id of the artifact that is added after so many others."""
        return f"a{len(self._artifacts) + count + 1}"

    def compared(self, made: Sequence[NewArtifact], *, dedups: bool = True) -> tuple[NewArtifact, ...]:
        """Return what was made, each with the artifact that it is equal to, also where that is made beside it.

        Without `dedups` everything is new.
        """
        beside, found = dict[str, str](), []
        for each in made:
            known = self.equal(each.digest) if dedups else None
            equal_to = beside.get(each.digest) if known is None else known.artifact_id
            if equal_to is None and dedups:
                beside[each.digest] = self.id_after(len(beside))
            found.append(attrs.evolve(each, equal_to=equal_to))
        return tuple(found)

    def add(self, made: NewArtifact, *, call_id: str, producer: str, created_at: str) -> ChatArtifact:
        """Add what was made as an artifact of its own."""
        version = self._versions[made.logical_key] = self._versions.get(made.logical_key, 0) + 1
        source, kept = (created_at, call_id, producer), (made.logical_key, made.digest, made.size_bytes)
        artifact_id = self.id_after(0)
        file_name = next(name for name in _file_names(made.name, artifact_id) if name not in self._file_names)
        artifact = ChatArtifact(artifact_id, made.name, made.kind, *source, *kept, file_name, version)
        self._file_names.add(file_name)
        self._artifacts[artifact.artifact_id] = artifact
        self._by_key[made.logical_key] = artifact.artifact_id
        self._by_content.setdefault(made.digest, artifact.artifact_id)
        self._names[made.name] = artifact.artifact_id
        return artifact

    def alias(self, made: NewArtifact) -> ChatArtifact:
        """Record that an artifact was made again, under this name. KeyError when `equal_to` is unknown."""
        artifact = self._artifacts[made.equal_to or ""]
        self._names[made.name] = artifact.artifact_id
        known = {artifact.name, *(name for name, _ in artifact.aliases)}
        if made.name not in known:
            reason = f"duplicate_artifact_prevented: its content is that of {artifact.artifact_id} ({artifact.name})"
            artifact = attrs.evolve(artifact, aliases=(*artifact.aliases, (made.name, reason)))
            self._artifacts[artifact.artifact_id] = artifact
        return artifact

    def described(self) -> list[JsonObject]:
        """Return what a model is told: the newest artifacts, oldest first."""
        return [artifact.described() for artifact in self.newest()]

    def newest(self) -> list[ChatArtifact]:
        """Return the artifacts that a request describes, oldest first."""
        return [*islice(reversed(self._artifacts.values()), MOST_SHOWN)][::-1]


def _file_names(name: str, artifact_id: str) -> Iterator[str]:
    """Return the names that a file may have, the best first."""
    stem, dot, ending = name.rpartition(".")
    ids = chain([artifact_id], (f"{artifact_id}_{number}" for number in count(2)))
    return chain([name], (f"{stem}_{number}.{ending}" if dot else f"{ending}_{number}" for number in ids))


@attrs.frozen
class UserMessage:
    """What the user says; with `rerun` he wants work to be done again that was done before."""

    text: str
    rerun: bool = False


@attrs.frozen
class Earlier:
    """An equal call that was made before: which, in which turn, and whether it gave a result."""

    call_id: str
    turn: int
    ok: bool


@attrs.frozen
class ChatCall:
    """A call as it is meant. `text` is its SQL or code, `fault` what is wrong with it; `tool` is empty where it is of none.

    `digest` is what it is known by, `earlier` the equal call that there was; `turn` and `rerun` are those of the turn in which it is made.
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
    """A result of SQL, whose rows are a file: the SHA-256 of its content, names of columns, and their types in DuckDB's words."""

    digest: str
    columns: tuple[str, ...]
    types: tuple[str, ...]


@attrs.frozen
class ChatResult:
    """What came of a call: what the model is told, and what it has made. `table` and `intent` are of SQL; `rung` and `features` say how Python was confined."""

    call_id: str
    result: JsonObject
    intent: QueryIntent | None = None
    table: ResultTable | None = None
    artifacts: tuple[NewArtifact, ...] = ()
    rung: str = ""
    features: tuple[str, ...] = ()


@attrs.frozen
class PresentedAnswer:
    """An answer as the user gets it: what was made of it, and what it lacks."""

    artifacts: tuple[NewArtifact, ...] = ()
    missing: tuple[str, ...] = ()


#: Why something was not done as the model or the user asked, as it stands in payloads, logs and counters (seed 002, workstream F).
REASONS: dict[str, str] = {
    "invalid_state": "A call was not made because the phase takes none of its kind.",
    "duplicate_tool_call_skipped": "An equal call had been made; its result was given again.",
    "duplicate_artifact_prevented": "An artifact with the same content was there; it is kept once.",
    "empty_python_payload_retried": "A Python call without usable code was sent back once, with how to write it.",
    "invalid_tool_payload": "A call had no SQL or code that can be run.",
    "unknown_tool": "A call was of no tool, or could not be read.",
    "too_many_calls": "Calls were left out: a turn takes so many at most.",
    "interrupted": "A call was cut off: cancelled, timed out, or ended by an error.",
    "answer_cut_off": "An answer broke off, was empty, or had a call in its text; the model was asked again.",
    "answer_incomplete": "An answer named a file that is not there; the model was told.",
    "turn_cancelled": "The user stopped the turn.",
    "turn_timed_out": "The turn took longer than its time limit.",
    "limit_reached": "The turn reached a bound on answers, calls or refusals.",
    "turn_failed": "The model or a tool failed.",
}
#: Reasons by which a turn ends without an answer.
ENDS = frozenset({"turn_cancelled", "turn_timed_out", "limit_reached", "turn_failed"})
#: Events of calls that are taken from the queue, and of what came of them.
CALLED = frozenset({"sql_call", "python_call", "unknown_call"})
DONE = frozenset({"sql_done", "python_done"})
FAILED = frozenset({"sql_failed", "python_failed"})
RECENT_TURNS = 50
#: What the model is told where a turn that has failed goes on behind something that it has said itself: a provider wants the user's word last.
GO_ON = "[That turn ended with an error. Go on from here.]"


@attrs.define
class DataCall(CallSummary):
    """A call of the conversation.

    `artifacts` are the ids of what it made, `made` the same under the names that it gave them; `table` and `intent` are what SQL found. A call that was left out for an
    equal one, `equal_to`, has what that one had.
    """

    text: str = ""
    digest: str = ""
    rescues: tuple[str, ...] = ()
    artifacts: list[str] = attrs.field(factory=list)
    made: list[NewArtifact] = attrs.field(factory=list)
    table: ResultTable | None = None
    intent: QueryIntent | None = None
    equal_to: str = ""


@attrs.define
class ChatTurn:
    """What the user said, and all that followed: an exchange with the model, calls, the answer.

    `ended` is the reason by which it ended otherwise than with an answer (REASONS), `why` says it in words.
    """

    number: int
    text: str
    rerun: bool
    exchange: Exchange = attrs.field(factory=Exchange)
    calls: list[DataCall] = attrs.field(factory=list)
    answer: str = ""
    guided: bool = False
    ended: str = ""
    why: str = ""


class ChatConversation:
    """What a ledger says of a conversation. `take` is given entries; everything else is read."""

    def __init__(self) -> None:
        self.taken = 0
        self.turns: list[ChatTurn] = []
        self.inventory = Inventory()
        self.transcript = Transcript(_begun)
        self.intents: deque[QueryIntent] = deque(maxlen=5)
        self.latest_table: ResultTable | None = None
        self.reasons: Counter[str] = Counter()
        self.tools: Counter[str] = Counter()
        self.guided = self.guided_well = 0
        self._arrived: EventEntry | None = None
        self._seen: dict[str, Earlier] = {}

    def take(self, entries: Iterable[Entry]) -> None:
        """Go on with further entries."""
        for entry in entries:
            self.taken += 1
            if isinstance(entry, EventEntry):
                self._arrived = entry
            elif isinstance(entry, RowEntry) and self._arrived is not None:
                self._happened(self._arrived)  # what was refused has changed nothing
            elif isinstance(entry, ResultEntry):
                self._told(entry)

    @property
    def turn(self) -> ChatTurn:
        """The turn that goes on, or the last one. IndexError before the first."""
        return self.turns[-1]

    def earlier(self, digest: str) -> Earlier | None:
        """Return the equal call that was made last, if that was of late."""
        found = self._seen.get(digest)
        return found if found is not None and self.turn.number - found.turn <= RECENT_TURNS else None

    # -- events -------------------------------------------------------------------------------------------------------

    def _happened(self, entry: EventEntry) -> None:
        event, data = entry.event, entry.data
        if event == "message":
            self._begin_turn(read_record(UserMessage, data))
        elif event == "retried" and self.turns:
            self.turn.ended = self.turn.why = ""
            self._close_open("interrupted")
            if self.turn.exchange.messages[-1].role == "assistant":
                self.transcript.say(GO_ON)
        elif not self.turns or not isinstance(data, dict):
            return  # refused, or nothing that the model is told
        elif event in {"asked", "answered", "cut_off"}:
            self._model_said(event, read_record(ModelAnswer, data))
        elif event in CALLED:
            self._called(read_record(ChatCall, data))
        elif event in DONE | FAILED and self.transcript.current is not None:
            self._came(entry, read_record(ChatResult, data), self.transcript.current)
        elif event == "presented":
            self._keep(entry, read_record(PresentedAnswer, data).artifacts, f"turn-{self.turn.number}", "report")

    def _begin_turn(self, said: UserMessage) -> None:
        self._close_open("interrupted")
        self.turns.append(ChatTurn(len(self.turns) + 1, said.text, said.rerun, self.transcript.begin()))
        self.transcript.say(said.text)

    def _model_said(self, event: str, answer: ModelAnswer) -> None:
        self._close_open("interrupted")
        known = len(self.transcript.calls)
        self.transcript.answered(answer)
        self.turn.calls += self.transcript.calls[known:]
        if event == "answered":
            self.turn.answer = answer.content

    def _called(self, call: ChatCall) -> None:
        called = self.transcript.take_next(call.tool, call.rescues)
        if called is None:
            return
        called.text, called.digest, called.rescues = call.text, call.digest, call.rescues
        called.equal_to = "" if call.earlier is None else call.earlier.call_id
        if self.turn.guided and called.tool == "run_python" and called.text and not call.fault:
            self.turn.guided = False
            self.guided_well += 1

    def _came(self, entry: EventEntry, came: ChatResult, called: DataCall) -> None:
        is_done = entry.event in DONE
        called.status = "done" if is_done else "failed"
        self.tools[f"{called.tool} {called.status}"] += 1
        if called.digest:
            self._seen[called.digest] = Earlier(called.call_id, self.turn.number, is_done)
        if is_done:
            called.made = self._keep(entry, came.artifacts, called.call_id, called.tool.removeprefix("run_"))
            called.artifacts = [each.equal_to or "" for each in called.made]
            called.table, called.intent = came.table, came.intent
            self._found(called)
        self.transcript.result(ToolResult(called.call_id, came.result))
        self.transcript.current = None

    def _found(self, called: DataCall) -> None:
        """Take what SQL has found as the latest: code reads it. What was found before, and is the latest again, is told once."""
        if called.intent is not None:
            self.latest_table = called.table
            others = [each for each in self.intents if each is not called.intent]
            self.intents = deque([*others, called.intent], maxlen=self.intents.maxlen)

    def _left_out(self, called: DataCall) -> None:
        """Have a call that was left out for an equal one leave behind what that one did: its table is the latest, its files have their names again."""
        equal = self.transcript.call(called.equal_to)
        if equal is not None and equal.status == "done":
            called.made, called.artifacts = equal.made, equal.artifacts
            called.table, called.intent = equal.table, equal.intent
            for each in called.made:
                self.inventory.alias(each)
            self._found(called)

    def _keep(
        self, entry: EventEntry, artifacts: Iterable[NewArtifact], source: str, producer: str
    ) -> list[NewArtifact]:
        """Keep what was made: all as new where the guard `new` has passed it, else each content once. Give it with what it now is (`equal_to`)."""
        at = datetime.fromtimestamp((entry.at_ms or 0) / 1000, UTC).isoformat(timespec="seconds")
        is_new, kept = dict(entry.verdicts).get("new") == "passed", []
        for made in artifacts:
            if made.equal_to is not None and not is_new:
                artifact = self.inventory.alias(made)
            else:
                artifact = self.inventory.add(made, call_id=source, producer=producer, created_at=at)
            kept.append(attrs.evolve(made, equal_to=artifact.artifact_id))
        return kept

    # -- what effects without answers tell ----------------------------------------------------------------------------

    def _told(self, entry: ResultEntry) -> None:
        """Take what such an effect gave: results of calls that were not made, a note to the model, the reason."""
        for notice in notices_in(entry, Notice, REASONS):
            self.reasons[notice.reason] += 1
            if notice.reason in ENDS:
                self.turn.ended, self.turn.why = notice.reason, notice.text
            if notice.reason == "empty_python_payload_retried":
                self.guided += 1
                self.turn.guided = True
            for call_id, content in notice.results.items():
                self._not_made(notice.reason, ToolResult(call_id, content))
            if notice.drops:
                self.transcript.drop()
                self.transcript.current = None
            if notice.note:
                self.transcript.say(notice.note)

    def _not_made(self, reason: str, result: ToolResult) -> None:
        called = self.transcript.open_call(result.call_id)
        if called is not None:
            called.status = reason
            if reason == "duplicate_tool_call_skipped":
                self._left_out(called)
            self.transcript.result(result)

    def _close_open(self, reason: str) -> None:
        """Answer every call that has no result: a provider refuses a conversation with a call that was never answered."""
        self.transcript.drop()
        self.transcript.current = None
        for call_id in self.transcript.waiting():
            self.reasons[reason] += 1
            self._not_made(
                reason, refused(call_id, reason, "nobody knows what came of it: ask again if it is still wanted")
            )


def _begun(call: ToolCall) -> DataCall:
    return DataCall(**called_of(call))


def conversation_of(entries: Iterable[Entry]) -> ChatConversation:
    """Return the conversation that a ledger tells of."""
    conversation = ChatConversation()
    conversation.take(entries)
    return conversation
