"""The work on a goal as its ledger tells it: tasks and where they stand, what was done, what the model was told, what waits.

Takes entries of a run's ledger in order, keeps what follows from them; taking one more costs the same however many came before. It decides
nothing and asks nobody: the same entries give the same work, also after a crash.
"""

import json
from collections import Counter, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from dsa.runtime.ledger import EffectEntry, Entry, EventEntry, MachineEntry, ResultEntry, ResumedEntry, RowEntry
from machines.coding.evidence import Given, given_of
from machines.coding.loops import KEPT, WINDOW, Did, did_of, tool_of
from machines.coding.plan import Task, fallback, tasks_from
from machines.coding.standing import REASONS, Called, Chapter, Subtask
from machines.talking.answers import free_id, is_left_out, part_of, refused
from machines.talking.names import name_told

Message = dict[str, Any]


class Work:
    """What a ledger says of the work on a goal. `take` is given entries; everything else is read."""

    def __init__(self) -> None:
        self.taken = 0
        self.goal = ""
        self.chapters: list[Chapter] = []
        self.plan_faults: list[str] = []
        self.exchanges: list[list[Message]] = []
        self.queue: deque[Mapping[str, Any]] = deque()
        self.current: Called | None = None
        self.calls: list[Called] = []
        self.given: list[Given] = []
        self.past: deque[Did] = deque(maxlen=KEPT)
        self.past_apart: deque[Did] = deque(maxlen=KEPT)
        self.changes: dict[str, tuple[str | None, str | None]] = {}
        self.moves: list[Mapping[str, Any]] = []
        self.made: set[str] = set()
        self.under_way: list[str] = []
        self.spans: list[tuple[str, str]] = []
        self.commands: list[str] = []
        self.errors: list[str] = []
        self.blocked: dict[str, str] = {}
        self.allowed: set[str] = set()
        self.probe: Mapping[str, Any] = {}
        self.answer = self.paused_for = ""
        self.reasons: Counter[str] = Counter()
        self.rescues: Counter[str] = Counter()
        self.tools: Counter[str] = Counter()
        self.asked_of_model = self.asked_apart = self.misplaced = 0
        self.room: Mapping[str, Any] = {}
        self.usage: Counter[str] = Counter()
        self.seconds = 0.0
        self.doubts: set[str] = set()
        self._open: dict[str, Called] = {}
        self._parts: dict[str, dict[str, Any]] = {}
        self._ids: set[str] = set()
        self._run, self._is_shown = "", False
        self._arrived: EventEntry | None = None

    def take(self, entries: Iterable[Entry]) -> None:
        """Go on with further entries."""
        for entry in entries:
            self.taken += 1
            if isinstance(entry, EventEntry):
                self._arrived = entry
            elif isinstance(entry, RowEntry) and self._arrived is not None:
                self._happened(self._arrived, entry.target)  # what was refused has changed nothing
            elif isinstance(entry, ResultEntry):
                self.seconds += entry.seconds
                if not entry.failed and (key := self._key(entry.key)) in self.under_way:
                    self.under_way.remove(key)
                self._told(entry)
            elif isinstance(entry, ResumedEntry):
                self.doubts.update(self._key(key) for key, _ in entry.effects)
            elif isinstance(entry, EffectEntry):
                self._intended(entry)
            elif isinstance(entry, MachineEntry):
                self._run = entry.run

    def _key(self, key: str) -> str:
        """Return an effect's key as its policy sees it: parts are other runs, with keys of their own."""
        return f"{self._run}/{key}"

    def _intended(self, entry: EffectEntry) -> None:
        if entry.effect == "ask_approval" and self.current is not None:
            self.current.status = "waiting for approval"
        elif entry.effect == "run_tool":  # one call at a time: those before it are over
            self.under_way = [self._key(entry.key)]

    # -- what is read -------------------------------------------------------------------------------------------------

    @property
    def active(self) -> tuple[Chapter, Subtask] | None:
        """The task and the subtask that are worked at; None before the first and after the last."""
        for chapter in self.chapters:
            for subtask in chapter.subtasks:
                if subtask.status == "in_progress":
                    return chapter, subtask
        return None

    @property
    def next_waiting(self) -> Subtask | None:
        """The subtask that comes next."""
        waiting = (each for chapter in self.chapters for each in chapter.subtasks if each.status == "waiting")
        return next(waiting, None)

    @property
    def places(self) -> list[tuple[str, Chapter, Subtask]]:
        """Every subtask with its task, in order, by its place: `1.2` is the second one of the first task."""
        return [
            (f"{at}.{number}", chapter, subtask)
            for at, chapter in enumerate(self.chapters, 1)
            for number, subtask in enumerate(chapter.subtasks, 1)
        ]

    @property
    def unshown(self) -> list[str]:
        """The subtasks that were completed by the model's word alone."""
        return [each.description for _, _, each in self.places if each.status == "completed" and not each.shown]

    @property
    def uncompleted(self) -> list[str]:
        """The subtasks that were not completed."""
        return [each.description for _, _, each in self.places if each.status != "completed"]

    def independent_next(self) -> list[str]:
        """Give the places of what may be worked at together now: the subtasks that are left of a task that says so."""
        waiting = [(place, chapter) for place, chapter, subtask in self.places if subtask.status == "waiting"]
        if not waiting or not waiting[0][1].independent:
            return []
        return [place for place, chapter in waiting if chapter is waiting[0][1]]

    @property
    def files_written(self) -> list[str]:
        """The files that tools have written, in the order in which they first were."""
        return [path for path, (before, after) in self.changes.items() if after is not None and before != after]

    def waiting(self) -> tuple[str, ...]:
        """Name the calls that have no result yet, in the order in which they were asked for."""
        return tuple(self._open)

    @property
    def _now_ms(self) -> int:
        return (self._arrived.at_ms if self._arrived is not None else None) or 0

    def free_id(self, call_id: str, beside: Collection[str] = ()) -> str:
        """Give an id of a call that no other call of the run has, nor those beside it: providers repeat theirs."""
        return free_id(call_id, beside, self._ids)

    # -- events -------------------------------------------------------------------------------------------------------

    def _happened(self, entry: EventEntry, target: str) -> None:
        data: Any = entry.data if isinstance(entry.data, dict) else {}
        match entry.event:
            case "goal" | "planned" | "decomposed":
                self._wanted(entry, data)
            case "probed":
                self.probe = data
            case "asked" | "said" | "cut_off":
                self._model_said(entry.event, data)
            case "tool_call" | "completion" | "giving_up" | "unknown_call":
                self._called(data)
                self._is_shown = dict(entry.verdicts).get("has_evidence") == "passed"
            case "tool_done" | "tool_failed":
                self._came(entry.event == "tool_done", data)
            case "permitted" if data.get("always") and self.current is not None:
                self.allowed.add(self.current.about["asks"])
            case "run_tool.failed":
                self._interrupted()
            case "next_subtask":
                self._begin_next()
            case "apart":
                self._set_apart(data["places"], together=target.endswith("delegating"))
            case "parts_done" | "parts_failed":
                self._joined(data)

    def _wanted(self, entry: EventEntry, data: Mapping[str, Any]) -> None:
        if entry.event == "decomposed":
            self._count(data)
        else:
            self.goal = data["text"]
        if entry.event == "goal":
            return
        if dict(entry.verdicts).get("concrete") == "passed":
            self._set_tasks(tasks_from(data["tasks"]))
        else:
            self.plan_faults = list(data.get("faults") or ())

    def _set_tasks(self, tasks: Iterable[Task]) -> None:
        self.chapters = [
            Chapter(task.description, [Subtask(each) for each in task.subtasks], task.independent) for task in tasks
        ]

    def _begin_next(self) -> None:
        self.given = []
        following = self.next_waiting
        if following is not None:
            following.status = "in_progress"
        last = (deque([*past][-WINDOW:], KEPT) for past in (self.past, self.past_apart))
        self.past, self.past_apart = last  # what an earlier subtask has read or run, this one may again

    def _set_apart(self, places: Collection[str], *, together: bool) -> None:
        """Begin subtasks together, or the first of them alone where no round is left."""
        if not together:
            self._begin_next()
            return
        for place, _, subtask in self.places:
            if place in places:
                subtask.status = "apart"

    def _count(self, data: Mapping[str, Any]) -> None:
        self.asked_of_model += 1
        self.rescues.update(data.get("rescues") or {})
        self._add_usage(data)

    def _add_usage(self, data: Mapping[str, Any]) -> None:
        usage = data.get("usage") or {}
        self.usage.update({name: value for name, value in usage.items() if isinstance(value, int | float)})

    def _model_said(self, event: str, data: Mapping[str, Any]) -> None:
        self._count(data)
        self.misplaced = self.misplaced + 1 if data.get("misplaced") else 0
        self.room = data.get("room") or self.room
        message: Message = {"role": "assistant", "content": data.get("content") or None}
        self.exchanges.append([])
        if event == "asked":
            self.queue = deque(data["calls"])
            message["tool_calls"] = [part_of(call) for call in data["calls"]]
            for call, part in zip(data["calls"], message["tool_calls"], strict=True):
                asked = {"arguments": call["arguments"]} if call["arguments"] else {}
                called = Called(call["id"], name_told(call["name"]), call["provider_id"], asked)
                self._open[call["id"]], self._parts[call["id"]] = called, part
                self._ids.add(call["id"])
                self.calls.append(called)
        elif event == "said":
            self.answer = str(data.get("content") or "")
        if message["content"] or event == "asked":
            self._say(message)

    def _called(self, data: Mapping[str, Any]) -> None:
        if not self.queue:
            return
        called = self._open[self.queue.popleft()["id"]]
        called.tool, called.about, called.status = data["tool"] or called.tool, data, "running"
        self.current = called
        if data["tool"]:  # the model is reminded of the tool by its own name, whatever it has called it
            self._parts[called.call_id]["function"]["name"] = data["tool"]
        self.rescues.update(data.get("rescues") or ())

    def _came(self, is_done: bool, data: Mapping[str, Any]) -> None:  # noqa: FBT001  (one of two events)
        called = self.current
        if called is None:
            return
        called.status = "done" if is_done else "failed"
        self.tools[f"{called.tool} {called.status}"] += 1
        self.past.append(did_of(called.about, data, self._now_ms, self.asked_of_model))
        if data.get("changes"):
            about = {name: data[name] for name in ("before", "after", "changes")}
            self._changed({**about, "made": data.get("made") or [], "at_ms": self._now_ms})
        self._add_usage(data)
        if data.get("ran"):
            self.commands.append(data["ran"])
        if data.get("error"):
            self.errors.append(data["error"])
        if is_done and self.active is not None:
            self.active[1].done += 1
            self.given.append(given_of(called.about, data))
        self._answer(called.call_id, data["result"])

    def _changed(self, data: Mapping[str, Any]) -> None:
        """Keep which files are others now, and between which marks of the workspace's history."""
        self.moves.append(data)
        self.made.update(data["made"])
        for change in data["changes"]:
            before, _ = self.changes.get(change["path"], (change["before"], None))
            self.changes[change["path"]] = before, change["after"]
        self.span(data["before"], data["after"])

    def span(self, before: str, after: str) -> None:
        """Keep two marks of the workspace's history between which something was changed, with those before them where they follow on them."""
        if self.spans and self.spans[-1][1] == before:
            self.spans[-1] = self.spans[-1][0], after
        else:
            self.spans.append((before, after))

    def _joined(self, data: Mapping[str, Any]) -> None:
        self.join(data["parts"], data.get("usage") or {})
        self.exchanges.append([])
        self._say({"role": "user", "content": data["note"]})

    def join(self, parts: Sequence[Mapping[str, Any]], usage: Mapping[str, Any]) -> None:
        """Take what parts have done (`summary.summary_of`) as if it had been done here."""
        for part in parts:
            _, _, subtask = next(each for each in self.places if each[0] == part["place"])
            subtask.status, subtask.reason, subtask.done = part["status"], part["reason"], part["done"]
            subtask.shown = part["shown"]
            for mine, name in ((self.reasons, "reasons"), (self.rescues, "rescues"), (self.tools, "tools")):
                mine.update(part[name])
            self.blocked |= part["blocked"]
            self.commands += part["commands"]
            self.errors += part["errors"]
            self.asked_apart += part["asked"]
            self.calls += [Called(**call) for call in part["calls"]]
        for move in sorted((move for part in parts for move in part["moves"]), key=lambda move: move["at_ms"]):
            self._changed(move)
        done = [Did(**did) for part in parts for did in part["past"]]
        self.past_apart.extend(sorted(done, key=lambda did: did.at_ms))
        self._add_usage({"usage": usage})

    # -- what effects without answers tell ----------------------------------------------------------------------------

    def _told(self, entry: ResultEntry) -> None:
        """Take what such an effect gave: results of calls that were not made, a note to the model, what became of the subtask."""
        for step in entry.steps:
            told = step["payload"]
            if not isinstance(told, dict) or told.get("reason") not in REASONS:
                continue
            self.reasons[told["reason"]] += 1
            self._refused(told)
            for call_id, result in (told.get("results") or {}).items():
                if call_id in self._open:
                    self._open[call_id].status = "too_many_calls" if is_left_out(result) else told["reason"]
                    self._answer(call_id, result)
            if told.get("drops"):
                self.queue.clear()
            if told.get("subtask") and self.active is not None:
                _, subtask = self.active
                subtask.status, subtask.reason = told["subtask"], told["text"]
                subtask.shown = told["subtask"] == "completed" and self._is_shown
            if told.get("tasks"):
                self._set_tasks(fallback(self.goal))
            if told["reason"] == "paused":
                self.paused_for = told["text"]
            if told.get("note"):
                self._say({"role": "user", "content": told["note"]})

    def _refused(self, told: Mapping[str, Any]) -> None:
        """Remember a call that was refused: the model is not to try it again."""
        if told.get("blocked") and self.current is not None:
            about = self.current.about
            self.blocked[about["key"]] = f"{about['tool']} {_short(about['arguments'])}: {told['text']}"
            more = {"at_ms": self._now_ms, "answer": self.asked_of_model, "polled": about.get("polled", False)}
            self.past.append(Did(about["key"], tool_of(about), about["kind"], refused=True, **more))

    def _answer(self, call_id: str, result: object) -> None:
        called = self._open.pop(call_id, None)
        self._parts.pop(call_id, None)
        if called is not None:
            called.result = result
            text = json.dumps(result, ensure_ascii=False)
            self._say({"role": "tool", "tool_call_id": called.provider_id, "content": text})
        if self.current is not None and self.current.call_id == call_id:
            self.current = None

    def _interrupted(self) -> None:
        """Answer the call that was under way; those behind it were not begun, and are answered where they are dropped."""
        if self.current is not None:
            self.current.status = "interrupted"
            self.reasons["interrupted"] += 1
            self._answer(self.current.call_id, refused("interrupted", _UNKNOWN))

    def _say(self, message: Message) -> None:
        if not self.exchanges:
            self.exchanges.append([])
        self.exchanges[-1].append(message)


_UNKNOWN = "it was cut off; nobody knows what came of it: look before you do it again"


def _short(arguments: Mapping[str, Any]) -> str:
    text = json.dumps(arguments, ensure_ascii=False)
    return text if len(text) <= 200 else f"{text[:198]}.."  # noqa: PLR2004  (the line above)


def work_of(entries: Iterable[Entry]) -> Work:
    """Give the work that a ledger tells of."""
    work = Work()
    work.take(entries)
    return work
