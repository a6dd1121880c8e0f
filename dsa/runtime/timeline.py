"""What a ledger tells: its events one by one with all that came of each, the percepts a table saw, where another table differs.

Takes entries, and a machine where what was done must be read off its rows; gives values to be written down. Pure, and without a look at
anything but the ledger: the same ledger gives the same values in every process.

Moments: what happened in a run, one durable ledger entry each, as those who watch it get them.

A run as spans of a trace: one for each life of the run, each try of an effect, each call between policies.

Takes ledger entries and the time at which they were seen, gives spans when they are over. Pure: it knows no telemetry library, no clock and no
random; ids come from the run's id, so that whoever goes on with a run after a crash continues its trace. Names and attributes are those of
OpenTelemetry's conventions for generative AI (`gen_ai.*`, status: development, 2026), what they have no name for is `dsa.*`. Texts of models
and of people are not in it, but what guards said is, and why something failed.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

import attrs

from dsa.declarations import Cancel, Emit, Transition
from dsa.errors import OccurrenceError
from dsa.expr import Value
from dsa.machine import Machine
from dsa.runtime.ledger import (
    PERSON,
    ArtifactEntry,
    CallEntry,
    CallResultEntry,
    ChangeEntry,
    DecidedEntry,
    EffectEntry,
    Entry,
    EventEntry,
    Intent,
    Intents,
    Ledger,
    MachineEntry,
    Record,
    RefusalEntry,
    ResultEntry,
    ResumedEntry,
    RowEntry,
    VerdictEntry,
    from_json,
    to_json,
)
from dsa.runtime.policy.call_tree import POLICY
from dsa.runtime.run import ArmTimer, Command, DropTimer, Run, begin
from dsa.semantics import Configuration, Occurrence, Refusal, Taken, start, step


@attrs.frozen
class EventRecord:
    """One event, what the table made of it, and what was recorded until the next event, in this order.

    `event` and `outcome` are None for what was recorded before the first event.
    """

    event: EventEntry | None
    outcome: RowEntry | RefusalEntry | None
    after: tuple[Entry, ...] = ()

    @property
    def intents(self) -> tuple[Intent, ...]:
        """The effects that the row asked for."""
        entries = (self.event, self.outcome, *self.after)
        return tuple(Intents(entry for entry in entries if entry is not None).values())

    @property
    def occurrence(self) -> Occurrence:
        """The event as the table saw it."""
        assert self.event is not None, "something happened"
        return Occurrence(self.event.event, self.event.verdicts, self.event.source, self.event.data)


def event_records(entries: Iterable[Entry]) -> tuple[EventRecord, ...]:
    """Return a run's events with all that came of them; what stands before the first event comes first, if there is anything."""
    records: list[EventRecord] = []
    event: EventEntry | None = None
    outcome: RowEntry | RefusalEntry | None = None
    after: list[Entry] = []
    for entry in entries:
        match entry:
            case EventEntry():
                records.append(EventRecord(event, outcome, tuple(after)))
                event, outcome, after = entry, None, []
            case RowEntry() | RefusalEntry():
                outcome = entry
            case MachineEntry():
                pass
            case _:
                after.append(entry)
    records.append(EventRecord(event, outcome, tuple(after)))
    return tuple(records if records[0].after or records[0].event else records[1:])


@attrs.frozen
class RefusedEvent:
    """An event that was refused, why, and the state that the run was in."""

    event: EventEntry
    refusal: RefusalEntry
    state: str


def refused_outside_events(run: Run, since: int) -> tuple[RefusedEvent, ...]:
    """Return the events from outside, and the answers of people, that a run has refused; `since` is the first entry that is looked at."""
    state, events = start(run.machine).state, list[RefusedEvent]()
    for position, entry in enumerate(run.ledger):
        if isinstance(entry, RowEntry):
            state = entry.target
        elif isinstance(entry, RefusalEntry) and position > since:
            event = run.ledger[position - 1]
            assert isinstance(event, EventEntry), "a refusal stands behind its event"
            is_sent = event.source is None and (event.key is None or event.at is not None)
            events += [RefusedEvent(event, entry, state)] if is_sent else []
    return tuple(events)


# -- what the table saw -----------------------------------------------------------------------------------------------


@attrs.frozen
class Percept:
    """An occurrence with the action it led to: the items of the row's effects, or why it was refused; the state then, what changed.

    `by_key` tells that it was late only because of its key: `step` alone, which knows no keys, would say something else.
    """

    occurrence: Occurrence
    action: tuple[Emit | Cancel, ...] | str
    state: str
    changes: tuple[tuple[str, Value], ...] = ()
    by_key: bool = False


def percepts(machine: Machine, entries: Iterable[Entry]) -> tuple[Percept, ...]:
    """Return what a run perceived and did. The entries must be those of a run of this machine (`dsa.runtime.run.replay` says so)."""
    here, results = start(machine), []
    for record in event_records(entries):
        if record.event is None:
            continue
        result, outcome = _try_step(machine, here, record.occurrence), record.outcome
        if isinstance(outcome, RowEntry):
            assert isinstance(result, Taken), "the ledger is one of this machine"
            here = result.configuration
            results.append(Percept(record.occurrence, result.transition.effects, here.state, outcome.changed))
        elif outcome is not None:
            by_key = not isinstance(result, Refusal) or result.reason != outcome.reason
            results.append(Percept(record.occurrence, outcome.reason, here.state, by_key=by_key))
    return tuple(results)


def _try_step(machine: Machine, here: Configuration, occurrence: Occurrence) -> Taken | Refusal | None:
    """Return what `step` makes of an occurrence; None for one that means nothing there."""
    try:
        return step(machine, here, occurrence)
    except OccurrenceError:
        return None


# -- another table ----------------------------------------------------------------------------------------------------


@attrs.frozen
class Difference:
    """The first recorded event with which another machine does something else.

    `happening` is what was recorded and `commands` what it led to, `here` where the other machine was. `outcome` is what that one makes of the
    event, by which `row` (None: by none), and `instead` what it leads to; or `fault` says why the event means nothing to it.
    """

    record: EventRecord
    commands: tuple[Command, ...]
    here: Configuration
    outcome: RowEntry | RefusalEntry | None = None
    instead: tuple[Command, ...] = ()
    row: Transition | None = None
    fault: str = ""


def first_difference(machine: Machine, entries: Iterable[Entry], own: Machine | None = None) -> Difference | None:
    """Let a machine take the events of any run; return the first with which it does something else, None when there is none.

    The same means: taken or refused for the same reason, the same states, values, accepted artifacts, and effects under the same keys; lines
    may differ. With `own`, the machine that the run is of, also: the same effects and timers are stopped and started, of which a
    ledger says nothing. Both are at the run's parameters. ValueError when the entries are those of no machine.
    """
    entries = tuple(entries)
    if not entries or not isinstance(entries[0], MachineEntry):
        raise ValueError("a run of a machine begins with it")
    run, _ = begin(machine, entries[0].run)
    own_run = None if own is None else begin(own, entries[0].run)[0]
    for record in event_records(entries):
        if record.event is not None:
            occurrence, key, at = record.occurrence, record.event.key, record.event.at
            before, own_commands = run, tuple[Command, ...](record.intents)
            if own_run is not None:
                own_run, own_commands = own_run.feed(occurrence, key, at=at)
            try:
                run, commands = run.feed(occurrence, key, at=at)
            except OccurrenceError as fault:
                return Difference(record, own_commands, before.configuration, fault=str(fault))
            if own_run is None:
                commands = tuple(command for command in commands if isinstance(command, Intent))
            outcome = _outcome(run, before)
            if _comparable(outcome, commands) != _comparable(record.outcome, own_commands):
                result = _try_step(machine, before.configuration, occurrence)
                row = result.transition if isinstance(result, Taken) and isinstance(outcome, RowEntry) else None
                return Difference(record, own_commands, before.configuration, outcome, commands, row)
        run, own_run = _with(run, record.after), own_run and _with(own_run, record.after)
    return None


def _outcome(run: Run, before: Run) -> RowEntry | RefusalEntry:
    """Return what stands behind the event that a run was fed last."""
    outcome = run.ledger[len(before.ledger) + 1]
    assert isinstance(outcome, RowEntry | RefusalEntry), "an event is followed by what became of it"
    return outcome


def _with(run: Run, entries: Iterable[Entry]) -> Run:
    for entry in entries:
        run = run.record(entry) if isinstance(entry, Record) else run
    return run


def _comparable(outcome: RowEntry | RefusalEntry | None, commands: tuple[Command, ...]) -> object:
    """Return what must be the same: the effects in their order; what is stopped, and which timers run from zero or no more, in any order.

    A timer that is dropped and started again at once runs from zero, as one does that is started again.
    """
    if isinstance(outcome, RefusalEntry):
        return outcome.reason
    intents = tuple(attrs.evolve(command, line=None) for command in commands if isinstance(command, Intent))
    others = {command for command in commands if not isinstance(command, Intent)}
    restarts = {(command.source, command.event) for command in others if isinstance(command, ArmTimer)}
    again = {DropTimer(source, event) for source, event in restarts}
    return outcome and attrs.evolve(outcome, line=None), intents, frozenset(others - again)


@attrs.frozen
class Moment:
    """One ledger entry of a run. `number` is its place in the ledger, from 1."""

    run: str
    number: int
    entry: Entry

    @property
    def kind(self) -> str:
        """The kind of the entry: `machine`, `event`, `row`, `effect`, `result`, `artifact`, `verdict` and so on."""
        kind: str = to_json(self.entry)["kind"]
        return kind

    def to_json(self) -> dict[str, Any]:
        """Return the entry as a JSON object, with its run and number."""
        return {"run": self.run, "number": self.number, **to_json(self.entry)}


@attrs.frozen
class Piece:
    """A piece of text that a policy showed while it worked; `key` is that of its call. It is in no ledger."""

    run: str
    key: str
    text: str


def load_story(text: str) -> Ledger[Entry]:
    """Read what happened in one run, one moment a line as JSON. ValueError, KeyError or TypeError when it is not that."""
    return Ledger(_entry(json.loads(line)) for line in text.splitlines() if line)


def _entry(moment: Mapping[str, Any]) -> Entry:
    beside = {"number"} if moment["kind"] in _NAMED else {"run", "number"}
    return from_json({name: value for name, value in moment.items() if name not in beside})


#: The kinds of entries that name their run themselves.
_NAMED = frozenset({"machine", "policy"})
#: Called with each moment once it is durable; `is_new` is False for those that were there before the run was taken up.
OnMoment = Callable[[Moment, bool], None]


def to_all(*observers: OnMoment) -> OnMoment:
    """Return an observer that passes each moment on to every one of these, in this order."""

    def on_moment(moment: Moment, is_new: bool) -> None:  # noqa: FBT001  (the observer interface)
        for observer in observers:
            observer(moment, is_new)

    return on_moment


AttributeValue = str | int | float | bool | tuple[str, ...]
Attributes = dict[str, AttributeValue]
_LONGEST_TEXT = 1_000
#: The providers that the conventions name, by what LiteLLM calls them; others keep LiteLLM's name.
_PROVIDERS = {
    "azure": "azure.ai.openai",
    "azure_ai": "azure.ai.inference",
    "bedrock": "aws.bedrock",
    "cohere_chat": "cohere",
    "gemini": "gcp.gemini",
    "mistral": "mistral_ai",
    "vertex_ai": "gcp.vertex_ai",
    "watsonx": "ibm.watsonx.ai",
    "xai": "x_ai",
}
#: Who provides a model whose name names no provider: the local model, a script, or a generator of the user's own.
_NOBODY = "in_process"


@attrs.frozen
class SpanEvent:
    """Something that happened at a moment of a span; `at_ns` is in nanoseconds since 1970."""

    name: str
    at_ns: int
    attributes: Attributes = attrs.field(factory=dict)


@attrs.frozen
class TelemetrySpan:
    """A piece of work that is over. Ids are those of W3C: 32 and 16 hexadecimal digits; times are in nanoseconds since 1970.

    `error` is None, or why it failed; `links` are ids of spans of the same trace.
    """

    name: str
    trace_id: str
    span_id: str
    parent_id: str | None
    start_ns: int
    end_ns: int
    kind: Literal["internal", "client"] = "internal"
    attributes: Attributes = attrs.field(factory=dict)
    events: tuple[SpanEvent, ...] = ()
    links: tuple[str, ...] = ()
    error: str | None = None


def trace_id_of(run: str) -> str:
    """Return the id of a run's trace: the same in all its lives."""
    return hashlib.sha256(f"dsa trace {run}".encode()).hexdigest()[:32]


def _span_id(*parts: object) -> str:
    return hashlib.sha256(" ".join(map(str, parts)).encode()).hexdigest()[:16]


@attrs.define
class _OpenSpan:
    """Work that has begun: since when, and what is known of it."""

    start_ns: int
    attributes: Attributes = attrs.field(factory=dict)
    events: list[SpanEvent] = attrs.field(factory=list)
    links: list[str] = attrs.field(factory=list)
    model: ArtifactEntry | None = None


class Spans:
    """The spans of one life of a run. `recall` the entries of earlier lives, `observe` new ones, `close` at the end.

    `generating` is the effect that asks a model.
    """

    def __init__(self, generating: str) -> None:
        self._generating = generating
        self._first: MachineEntry | None = None
        self._earlier_entries = 0
        self._life: _OpenSpan | None = None
        self._event = self._model = ""
        self._intents = Intents()
        self._tries: dict[str, int] = {}
        self._open: dict[str, _OpenSpan] = {}
        self._calls: dict[tuple[str, str], tuple[CallEntry, int]] = {}
        self._made_by: dict[str, str] = {}  # artifact id to span id

    def recall(self, entry: Entry) -> None:
        """Record an entry of an earlier life."""
        self._earlier_entries += 1
        self._intents.take(entry)
        match entry:
            case MachineEntry():
                self._first = entry
            case ResultEntry():
                self._tries[entry.key] = self._tries.get(entry.key, 0) + 1
            case ResumedEntry(model=model):
                self._model = model
            case _:
                pass

    def observe(self, entry: Entry, now_ns: int) -> list[TelemetrySpan]:
        """Record a new entry; return the spans that are over."""
        if isinstance(entry, MachineEntry):
            self._first = entry
        if self._life is None:
            self._life = _OpenSpan(now_ns)
        self._intents.take(entry)
        self._record_on_life(entry, now_ns)
        match entry:
            case ResumedEntry(effects=effects):
                self._open |= {key: _OpenSpan(now_ns) for key, _ in effects}
            case EffectEntry():
                self._open[entry.key] = _OpenSpan(now_ns)
            case ArtifactEntry() | VerdictEntry():
                self._record_work(entry, now_ns)
            case CallEntry():
                self._calls[entry.key, entry.path] = entry, now_ns
            case ResultEntry():
                return [self._try_span(entry, now_ns)]
            case CallResultEntry() if (entry.key, entry.path) in self._calls:
                return [self._call_span(entry.key, entry.path, entry.steps, now_ns)]
            case _:
                pass
        return []

    def close(self, now_ns: int, error: str | None = None) -> list[TelemetrySpan]:
        """Return the spans that are still open, and that of this life; none when nothing has happened in it."""
        life, first = self._life, self._first
        if life is None or first is None:
            return []
        open_spans = [self._call_span(*call, None, now_ns) for call in list(self._calls)]
        open_spans += [self._open_effect_span(key, now_ns) for key in list(self._open) if key in self._intents]
        about: Attributes = {
            "gen_ai.operation.name": "invoke_workflow",
            "gen_ai.workflow.name": first.name,
            "dsa.run": first.run,
            "dsa.digest": first.digest,
            "dsa.entries_before": self._earlier_entries,
        }
        links = [self._life_id(0)] if self._earlier_entries else []
        life_span = self._span(
            f"invoke_workflow {first.name}",
            self._life_id(),
            None,
            attrs.evolve(life, attributes=about, links=links),
            now_ns,
            error,
        )
        self._life = None
        return [*open_spans, life_span]

    # -- what is noted while work is under way ------------------------------------------------------------------------

    def _record_on_life(self, entry: Entry, now_ns: int) -> None:
        """Note what is an event of this life."""
        match entry:
            case EventEntry():
                self._event = entry.event
            case RowEntry():
                about = {"event": self._event, "line": entry.line, "source": entry.source, "target": entry.target}
                self._add_event("dsa.transition", now_ns, about)
            case RefusalEntry():
                refusal = {"event": self._event, "reason": entry.reason, "accepted": entry.accepted}
                self._add_event("dsa.refusal", now_ns, refusal)
            case ChangeEntry():
                self._add_event("dsa.change", now_ns, {"machine": entry.name, "digest": entry.digest})
            case ResumedEntry(effects=effects):
                self._model = entry.model
                handlings = tuple(f"{self._intents.effect(key)} {key}: {handling}" for key, handling in effects)
                session = {"by": entry.by, "model": entry.model, "module": entry.module, "budget": entry.budget}
                self._add_event("dsa.resumed", now_ns, {**session, "effects": handlings})
            case DecidedEntry():
                decision = {"effect": self._intents.effect(entry.key), "key": entry.about, "handling": entry.handling}
                self._add_event("dsa.decided", now_ns, decision)
            case _:
                pass

    def _add_event(self, name: str, now_ns: int, about: dict[str, Any]) -> None:
        assert self._life is not None, "something has been observed"
        self._life.events.append(SpanEvent(name, now_ns, _attributes(about)))

    def _record_work(self, entry: ArtifactEntry | VerdictEntry, now_ns: int) -> None:
        """Note what was generated, or judged, in the course of an effect."""
        work = self._open.setdefault(entry.key, _OpenSpan(now_ns))
        about = {"step": entry.step, "attempt": entry.attempt, "artifact": entry.artifact_id}
        if isinstance(entry, VerdictEntry):
            made_by = self._made_by.get(entry.artifact_id)
            work.links += [made_by] if made_by else []
            for judgement in entry.judgements:
                attributes = {
                    "gen_ai.evaluation.name": judgement.guard,
                    "gen_ai.evaluation.score.label": judgement.outcome,
                }
                explanation = (
                    {"gen_ai.evaluation.explanation": judgement.feedback[:_LONGEST_TEXT]} if judgement.feedback else {}
                )
                work.events.append(
                    SpanEvent("gen_ai.evaluation.result", now_ns, {**attributes, **explanation, **_attributes(about)})
                )
            return
        work.attributes |= _attributes(about | {"redacted": entry.redacted})
        self._made_by[entry.artifact_id] = self._try_id(entry.key)
        if entry.author != PERSON:
            work.model = entry

    # -- what is over -------------------------------------------------------------------------------------------------

    def _try_span(self, entry: ResultEntry, now_ns: int) -> TelemetrySpan:
        """Return the span of one try of an effect: from its intent, or, when it was tried before, as long as it took."""
        work = self._open.pop(entry.key, None) or _OpenSpan(now_ns - round(entry.seconds * 1e9))
        error, failed = _failure(entry.steps)
        work.attributes |= failed
        span = self._effect(entry.key, work, now_ns, error)
        self._tries[entry.key] = self._tries.get(entry.key, 0) + 1
        return span

    def _open_effect_span(self, key: str, now_ns: int) -> TelemetrySpan:
        """Return the span of an effect that has no result: it was cancelled, or the process stops."""
        work = self._open.pop(key)
        work.attributes["dsa.unfinished"] = True
        return self._effect(key, work, now_ns, None)

    def _effect(self, key: str, work: _OpenSpan, now_ns: int, error: str | None) -> TelemetrySpan:
        intent = self._intents.get(key)
        effect = self._intents.effect(key)
        work.attributes |= _attributes({"effect": effect, "key": key, "try": self._tries.get(key, 0) + 1})
        if intent is not None:
            work.attributes |= _attributes(
                {"event": intent.event, "line": intent.line, "source": intent.source, "target": intent.target}
            )
        if effect != self._generating and work.model is None:
            return self._span(effect, self._try_id(key), self._life_id(), work, now_ns, error)
        model = work.model.model if work.model and work.model.model else self._started_model()
        work.attributes |= _model_attributes(model, work.model)
        kind: Literal["internal", "client"] = "client" if "/" in model else "internal"
        model_name = model.partition("/")[2] or model
        return self._span(f"chat {model_name}".rstrip(), self._try_id(key), self._life_id(), work, now_ns, error, kind)

    def _call_span(self, key: str, path: str, steps: Iterable[dict[str, Any]] | None, now_ns: int) -> TelemetrySpan:
        """Return the span of a call, or of a turn of a loop, by what it gave; None: nothing yet."""
        call, start_ns = self._calls.pop((key, path))
        about = _attributes(
            {"policy": call.policy, "key": key, "path": path, "unfinished": True if steps is None else None}
        )
        name = f"turn of {call.policy}"
        if call.payload is not None:  # a turn of a loop has none of its own
            is_agent = self._first is not None and self._first.name == POLICY and path.count(".") == 1
            operation, kind = ("invoke_agent", "agent") if is_agent else ("execute_tool", "tool")
            name = f"{operation} {call.policy}"
            about |= {"gen_ai.operation.name": operation, f"gen_ai.{kind}.name": call.policy}
        error, failed = _failure(steps or ())
        caller = path.rpartition(".")[0]
        parent = self._call_id(key, caller) if "." in caller else self._try_id(key)
        return self._span(name, self._call_id(key, path), parent, _OpenSpan(start_ns, about | failed), now_ns, error)

    def _span(
        self,
        name: str,
        span_id: str,
        parent: str | None,
        work: _OpenSpan,
        now_ns: int,
        error: str | None,
        kind: Literal["internal", "client"] = "internal",
    ) -> TelemetrySpan:
        trace = trace_id_of(self._run)
        events, links = tuple(work.events), tuple(dict.fromkeys(work.links))
        return TelemetrySpan(
            name, trace, span_id, parent, work.start_ns, now_ns, kind, work.attributes, events, links, error
        )

    # -- ids ----------------------------------------------------------------------------------------------------------

    @property
    def _run(self) -> str:
        assert self._first is not None, "a run begins with its first entry"
        return self._first.run

    def _life_id(self, count: int | None = None) -> str:
        return _span_id("life", self._run, self._earlier_entries if count is None else count)

    def _try_id(self, key: str) -> str:
        return _span_id("try", self._run, key, self._tries.get(key, 0) + 1, self._earlier_entries)

    def _call_id(self, key: str, path: str) -> str:
        return _span_id("call", self._run, key, path, self._earlier_entries)

    def _started_model(self) -> str:
        settings = {} if self._first is None else dict(self._first.started)
        return str(self._model or settings.get("model") or "").partition(":")[0]


def _attributes(about: dict[str, Any]) -> Attributes:
    """Return attributes under our own name, without those that say nothing."""
    return {f"dsa.{name}": value for name, value in about.items() if value not in (None, "", ())}


def _failure(steps: Iterable[dict[str, Any]]) -> tuple[str | None, Attributes]:
    """Return the message of the first error among steps, and the attribute that says of what kind it is; None when there is none."""
    for record in steps:
        if record["payload"].get("error") is True:
            payload = record["payload"]
            return str(payload.get("message") or "")[:_LONGEST_TEXT], {
                "error.type": str(payload.get("code") or "ERROR")
            }
    return None, {}


def _model_attributes(model: str, artifact: ArtifactEntry | None) -> Attributes:
    """Return which model was asked, which has answered, and how much it read and wrote."""
    prefix, slash, name = model.partition("/")
    provider = _PROVIDERS.get(prefix, prefix) if slash else _NOBODY
    attributes: Iterable[tuple[str, AttributeValue | None]] = (
        ("gen_ai.operation.name", "chat"),
        ("gen_ai.provider.name", provider),
        ("gen_ai.request.model", name if slash else model),
        ("gen_ai.response.model", artifact.response_model if artifact else None),
        ("gen_ai.usage.input_tokens", artifact.prompt_tokens if artifact else None),
        ("gen_ai.usage.output_tokens", artifact.completion_tokens if artifact else None),
        ("dsa.cost_usd", artifact.cost_usd if artifact else None),
    )
    return {key: value for key, value in attributes if value not in (None, "")}
