"""A conversation as its ledger tells it: turns, what the model was told and said, calls that wait, artifacts, counters.

Takes entries of a run's ledger in order, keeps what follows from them; taking one more costs the same however many came before. It decides
nothing and asks nobody: the same entries give the same conversation, also after a crash.
"""

import json
from collections import Counter, deque
from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import attrs

from dsa.runtime.ledger import Entry, EventEntry, ResultEntry, RowEntry
from machines.chat.inventory import Inventory, Made
from machines.talking.answers import free_id, part_of, refused
from machines.talking.names import name_told

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

Message = dict[str, Any]


@attrs.frozen
class Earlier:
    """An equal call that was made before: which, in which turn, and whether it gave a result."""

    call_id: str
    turn: int
    ok: bool


@attrs.define
class Called:
    """A call as the user sees it. `status` is waiting, running, done, failed, or the reason why it was not made (REASONS).

    `artifacts` are the ids of what it made, `made` the same under the names that it gave them; `table` and `intent` are what SQL found. A call that was left out for an
    equal one, `equal_to`, has what that one had.
    """

    call_id: str
    tool: str
    provider_id: str
    text: str = ""
    status: str = "waiting"
    digest: str = ""
    rescues: tuple[str, ...] = ()
    result: Any = None
    artifacts: list[str] = attrs.field(factory=list)
    made: list[Made] = attrs.field(factory=list)
    table: Mapping[str, Any] | None = None
    intent: Mapping[str, Any] | None = None
    equal_to: str = ""


@attrs.define
class Turn:
    """What the user said, and all that followed: messages in the provider's form, calls, the answer; `size` is how long these messages are as JSON.

    `ended` is the reason by which it ended otherwise than with an answer (REASONS), `why` says it in words.
    """

    number: int
    text: str
    rerun: bool
    messages: list[Message] = attrs.field(factory=list)
    calls: list[Called] = attrs.field(factory=list)
    answer: str = ""
    size: int = 0
    guided: bool = False
    ended: str = ""
    why: str = ""


class Conversation:
    """What a ledger says of a conversation. `take` is given entries; everything else is read."""

    def __init__(self) -> None:
        self.taken = 0
        self.turns: list[Turn] = []
        self.inventory = Inventory()
        self.queue: deque[Mapping[str, Any]] = deque()
        self.current: Called | None = None
        self.intents: deque[Mapping[str, Any]] = deque(maxlen=5)
        self.latest_table: Mapping[str, Any] | None = None
        self.reasons: Counter[str] = Counter()
        self.rescues: Counter[str] = Counter()
        self.tools: Counter[str] = Counter()
        self.guided = self.guided_well = 0
        self.asked_of_model = self.misplaced = 0
        self.room: Mapping[str, Any] = {}
        self._arrived: EventEntry | None = None
        self._open: dict[str, Called] = {}
        self._parts: dict[str, dict[str, Any]] = {}
        self._seen: dict[str, Earlier] = {}
        self._ids: set[str] = set()

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
    def turn(self) -> Turn:
        """The turn that goes on, or the last one. IndexError before the first."""
        return self.turns[-1]

    def earlier(self, digest: str) -> Earlier | None:
        """Give the equal call that was made last, if that was of late."""
        found = self._seen.get(digest)
        return found if found is not None and self.turn.number - found.turn <= RECENT_TURNS else None

    def call(self, call_id: str) -> Called | None:
        """Give the latest call of an id."""
        calls = (call for turn in reversed(self.turns) for call in reversed(turn.calls))
        return next((call for call in calls if call.call_id == call_id), None)

    def waiting(self) -> tuple[str, ...]:
        """Name the calls that have no result yet, in the order in which they were asked for."""
        return tuple(self._open)

    def free_id(self, call_id: str, beside: Collection[str] = ()) -> str:
        """Give an id of a call that no other call of the conversation has, nor those beside it: providers repeat theirs."""
        return free_id(call_id, beside, self._ids)

    # -- events -------------------------------------------------------------------------------------------------------

    def _happened(self, entry: EventEntry) -> None:
        data: Any = entry.data
        if entry.event == "message":
            self._close_open("interrupted")
            self.turns.append(Turn(len(self.turns) + 1, data["text"], bool(data.get("rerun"))))
            self._say({"role": "user", "content": data["text"]})
        elif entry.event == "retried" and self.turns:
            self.turn.ended = self.turn.why = ""
            self._close_open("interrupted")
            if self.turn.messages[-1]["role"] == "assistant":
                self._say({"role": "user", "content": GO_ON})
        elif not self.turns or not isinstance(data, dict):
            return  # refused, or nothing that the model is told
        elif entry.event in {"asked", "answered", "cut_off"}:
            self._model_said(entry.event, data)
        elif entry.event in CALLED:
            self._called(data)
        elif entry.event in DONE | FAILED and self.current is not None:
            self._came(entry, data, self.current)
        elif entry.event == "presented":
            self._keep(entry, data, f"turn-{self.turn.number}", "report")

    def _model_said(self, event: str, data: Mapping[str, Any]) -> None:
        self._close_open("interrupted")
        self.asked_of_model += 1
        self.misplaced = self.misplaced + 1 if data.get("misplaced") else 0
        self.room = data.get("room") or self.room
        self.rescues.update(data.get("rescues") or {})
        message: Message = {"role": "assistant", "content": data.get("content") or None}
        if event == "asked":
            self.queue = deque(data["calls"])
            message["tool_calls"] = [part_of(call) for call in data["calls"]]
            for call, part in zip(data["calls"], message["tool_calls"], strict=True):
                called = Called(call["id"], name_told(call["name"]), call["provider_id"])
                self._open[call["id"]], self._parts[call["id"]] = called, part
                self._ids.add(call["id"])
                self.turn.calls.append(called)
        elif event == "answered":
            self.turn.answer = str(data.get("content") or "")
        if message["content"] or event == "asked":
            self._say(message)

    def _called(self, data: Mapping[str, Any]) -> None:
        if not self.queue:
            return
        called = self._open[self.queue.popleft()["id"]]
        self.current = called
        if data["tool"]:  # the model is reminded of the tool by its own name, whatever it has called it
            self._parts[called.call_id]["function"]["name"] = data["tool"]
        called.tool, called.text = data["tool"] or called.tool, data.get("text", "")
        called.digest, called.rescues, called.status = data.get("digest", ""), tuple(data["rescues"]), "running"
        called.equal_to = (data.get("earlier") or {}).get("call_id", "")
        self.rescues.update(called.rescues)
        if self.turn.guided and called.tool == "run_python" and called.text and not data.get("fault"):
            self.turn.guided = False
            self.guided_well += 1

    def _came(self, entry: EventEntry, data: Mapping[str, Any], called: Called) -> None:
        is_done = entry.event in DONE
        called.status = "done" if is_done else "failed"
        self.tools[f"{called.tool} {called.status}"] += 1
        if called.digest:
            self._seen[called.digest] = Earlier(called.call_id, self.turn.number, is_done)
        if is_done:
            called.made = self._keep(entry, data, called.call_id, called.tool.removeprefix("run_"))
            called.artifacts = [each.equal_to or "" for each in called.made]
            called.table, called.intent = data.get("table"), data.get("intent")
            self._found(called)
        self._answer(called.call_id, data["result"])
        self.current = None

    def _found(self, called: Called) -> None:
        """Take what SQL has found as the latest: code reads it."""
        if called.intent is not None:
            self.latest_table = called.table
            self.intents.append(called.intent)

    def _left_out(self, called: Called) -> None:
        """Have a call that was left out for an equal one leave behind what that one did: its table is the latest, its files have its names again."""
        equal = self.call(called.equal_to)
        if equal is not None and equal.status == "done":
            called.made, called.artifacts = equal.made, equal.artifacts
            called.table, called.intent = equal.table, equal.intent
            for each in called.made:
                self.inventory.alias(each)
            self._found(called)

    def _keep(self, entry: EventEntry, data: Mapping[str, Any], source: str, producer: str) -> list[Made]:
        """Keep what was made: all as new where the guard `new` has passed it, else each content once. Give it with what it now is (`equal_to`)."""
        at = datetime.fromtimestamp((entry.at_ms or 0) / 1000, UTC).isoformat(timespec="seconds")
        is_new, kept = dict(entry.verdicts).get("new") == "passed", []
        for each in data.get("artifacts") or ():
            made = Made(**each)
            if made.equal_to is not None and not is_new:
                artifact = self.inventory.alias(made)
            else:
                artifact = self.inventory.add(made, call_id=source, producer=producer, created_at=at)
            kept.append(attrs.evolve(made, equal_to=artifact.artifact_id))
        return kept

    # -- what effects without answers tell ----------------------------------------------------------------------------

    def _told(self, entry: ResultEntry) -> None:
        """Take what such an effect gave: results of calls that were not made, a note to the model, the reason."""
        for step in entry.steps:
            told = step["payload"]
            if not isinstance(told, dict) or told.get("reason") not in REASONS:
                continue
            self.reasons[told["reason"]] += 1
            if told["reason"] in ENDS:
                self.turn.ended, self.turn.why = told["reason"], str(told.get("text") or "")
            if told["reason"] == "empty_python_payload_retried":
                self.guided += 1
                self.turn.guided = True
            for call_id, result in (told.get("results") or {}).items():
                if call_id in self._open:
                    self._open[call_id].status = told["reason"]
                    if told["reason"] == "duplicate_tool_call_skipped":
                        self._left_out(self._open[call_id])
                    self._answer(call_id, result)
            if told.get("drops"):
                self.queue.clear()
                self.current = None
            if told.get("note"):
                self._say({"role": "user", "content": told["note"]})

    def _answer(self, call_id: str, result: object) -> None:
        called = self._open.pop(call_id, None)
        if called is not None:
            called.result = result
            self._say(
                {"role": "tool", "tool_call_id": called.provider_id, "content": json.dumps(result, ensure_ascii=False)}
            )
        if self.current is not None and self.current.call_id == call_id:
            self.current = None

    def _close_open(self, reason: str) -> None:
        """Answer every call that has no result: a provider refuses a conversation with a call that was never answered."""
        self.queue.clear()
        self.current = None
        for call_id, called in list(self._open.items()):
            called.status = reason
            self.reasons[reason] += 1
            self._answer(call_id, refused(reason, "nobody knows what came of it: ask again if it is still wanted"))

    def _say(self, message: Message) -> None:
        turn = self.turn
        turn.messages.append(message)
        turn.size += len(json.dumps(message, ensure_ascii=False))


def conversation_of(entries: Iterable[Entry]) -> Conversation:
    """Give the conversation that a ledger tells of."""
    conversation = Conversation()
    conversation.take(entries)
    return conversation
