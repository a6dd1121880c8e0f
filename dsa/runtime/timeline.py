"""The timeline of a run, read from its ledger: event records, percepts, differences to another table, moments, and spans of a trace.

- `event_records` groups the entries by event, `percepts` returns what the table perceived and did, `first_difference` finds the first event that
  another machine handles differently. The same ledger gives the same values in every process.
- `Moment` is one durable entry, as observers of a run get it, and `Piece` a piece of text that is not recorded.
- `Spans` returns a span for each life of the run (from a start or resumption to the next stop), each try of an effect, and each call between policies.
  Ids come from the run's id, so a resumed run continues its trace. Names and attributes are those of OpenTelemetry's conventions for generative AI
  (`gen_ai.*`, status: development, 2026); others are `dsa.*`. Spans do not have the texts of models and people, only the feedback of guards and the messages of
  errors.

The module uses no telemetry library, clock or random numbers.
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
    """One event, its row or refusal, and the entries up to the next event.

    `event` and `outcome` are None for the entries before the first event.
    """

    event: EventEntry | None
    outcome: RowEntry | RefusalEntry | None
    after: tuple[Entry, ...] = ()

    @property
    def intents(self) -> tuple[Intent, ...]:
        """The effects of the row."""
        entries = (self.event, self.outcome, *self.after)
        return tuple(Intents(entry for entry in entries if entry is not None).values())

    @property
    def occurrence(self) -> Occurrence:
        """The event as the table saw it."""
        assert self.event is not None, "something happened"
        return Occurrence(self.event.event, self.event.verdicts, self.event.source, self.event.data)


def event_records(entries: Iterable[Entry]) -> tuple[EventRecord, ...]:
    """Return a record of each event of a run, after a record of the entries before the first event, if there are any."""
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
    """An event that was refused, the refusal, and the state of the run."""

    event: EventEntry
    refusal: RefusalEntry
    state: str


def refused_event(event: str, at: str | None, outcome: Taken | Refusal) -> tuple[RefusedEvent, ...]:
    """Return the refusal of an event that was sent to a place, from its outcome; none for one that was taken."""
    if isinstance(outcome, Taken):
        return ()
    refusal = RefusalEntry(outcome.reason, outcome.message, outcome.accepted)
    return (RefusedEvent(EventEntry(0, event, at=at), refusal, outcome.configuration.state),)


# -- percepts ---------------------------------------------------------------------------------------------------------


@attrs.frozen
class Percept:
    """An occurrence and the action: the items in the row's effects, or the reason of the refusal. Then the new state, and the changes of variables.

    With `by_key` it was refused only because of its key or place, which `step` does not know.
    """

    occurrence: Occurrence
    action: tuple[Emit | Cancel, ...] | str
    state: str
    changes: tuple[tuple[str, Value], ...] = ()
    by_key: bool = False


def percepts(machine: Machine, entries: Iterable[Entry]) -> tuple[Percept, ...]:
    """Return the percepts of a run. The entries must belong to a run of this machine (`dsa.runtime.run.replay` checks this)."""
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
    """Return the result of `step`; None for an occurrence that the machine does not know."""
    try:
        return step(machine, here, occurrence)
    except OccurrenceError:
        return None


# -- another table ----------------------------------------------------------------------------------------------------


@attrs.frozen
class Difference:
    """The first recorded event that another machine handles differently.

    `record` and `commands` are those of the run, `here` is the configuration of the other machine before the event. `outcome`, `row` (None: no row) and
    `instead` are the other machine's outcome, row and commands; or `fault` says why the event is unknown to it.
    """

    record: EventRecord
    commands: tuple[Command, ...]
    here: Configuration
    outcome: RowEntry | RefusalEntry | None = None
    instead: tuple[Command, ...] = ()
    row: Transition | None = None
    fault: str = ""


def first_difference(machine: Machine, entries: Iterable[Entry], own: Machine | None = None) -> Difference | None:
    """Let a machine take the events of a run; return the first event that it handles differently, or None.

    Compared are: taken or refused, the reason of a refusal, states, values, accepted artifacts, and effects with their keys; lines may differ. With
    `own`, the machine of the run, stopped effects and started and stopped timers are compared as well, which are not in the ledger. Both machines must
    have the run's parameters. Raises ValueError if the first entry is not a MachineEntry.
    """
    entries = tuple(entries)
    if not entries or not isinstance(entries[0], MachineEntry):
        raise ValueError("the first entry of a run must name its machine")
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
    """Return the row or refusal of the event that a run was fed last."""
    outcome = run.ledger[len(before.ledger) + 1]
    assert isinstance(outcome, RowEntry | RefusalEntry), "an event is followed by its row or refusal"
    return outcome


def _with(run: Run, entries: Iterable[Entry]) -> Run:
    for entry in entries:
        run = run.record(entry) if isinstance(entry, Record) else run
    return run


def _comparable(outcome: RowEntry | RefusalEntry | None, commands: tuple[Command, ...]) -> object:
    """Return what must be the same: the outcome, the effects in their order, and the stopped effects and changed timers in any order.

    Dropping a timer and starting it again at once is the same as starting it again.
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
    """A piece of text that a policy showed while it worked; `key` is the key of its call. It is not in the ledger."""

    run: str
    key: str
    text: str


def load_story(text: str) -> Ledger[Entry]:
    """Read the ledger of one run from moments, one JSON object per line. Raises ValueError, KeyError or TypeError for other text."""
    return Ledger(_entry(json.loads(line)) for line in text.splitlines() if line)


def _entry(moment: Mapping[str, Any]) -> Entry:
    beside = {"number"} if moment["kind"] in _KINDS_WITH_RUN else {"run", "number"}
    return from_json({name: value for name, value in moment.items() if name not in beside})


#: The kinds of entries that have a field for their run.
_KINDS_WITH_RUN = frozenset({"machine", "policy"})
#: A function that is called with each durable moment; `is_new` is False for moments from before the run was resumed.
OnMoment = Callable[[Moment, bool], None]


def to_all(*observers: OnMoment) -> OnMoment:
    """Return an observer that passes each moment to all of these, in this order."""

    def on_moment(moment: Moment, is_new: bool) -> None:  # noqa: FBT001  (the observer interface)
        for observer in observers:
            observer(moment, is_new)

    return on_moment


AttributeValue = str | int | float | bool | tuple[str, ...]
Attributes = dict[str, AttributeValue]
_LONGEST_TEXT = 1_000
#: The conventions' names of providers, by LiteLLM's names; other providers keep LiteLLM's name.
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
#: The provider of a model without a provider in its name: the local model, a script, or a user's own generator.
_NOBODY = "in_process"


@attrs.frozen
class SpanEvent:
    """An event within a span; `at_ns` is in nanoseconds since 1970."""

    name: str
    at_ns: int
    attributes: Attributes = attrs.field(factory=dict)


@attrs.frozen
class TelemetrySpan:
    """A piece of work that has ended. Ids are those of W3C: 32 and 16 hexadecimal digits. Times are in nanoseconds since 1970.

    `error` is the reason of a failure, or None; `links` are ids of spans of the same trace.
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
    """Work that has begun and not ended."""

    start_ns: int
    attributes: Attributes = attrs.field(factory=dict)
    events: list[SpanEvent] = attrs.field(factory=list)
    links: list[str] = attrs.field(factory=list)
    model: ArtifactEntry | None = None


def work_span(
    run: str, work: str, about: Mapping[str, Any], span_ns: tuple[int, int], error: str | None
) -> TelemetrySpan:
    """Return the span of work that a process does for a run that is driven elsewhere: the try of an effect, or the call of a guard.

    `work` names it, `about` has its key, its effect and its try, if there are any, `span_ns` its start and end. It belongs to the trace of the run; the try of an
    effect is below the span that the first life of the run has for it.
    """
    key, number = about.get("key"), about.get("try")
    parent = _span_id("try", run, key, number, 0) if key is not None and number is not None else None
    own_id = _span_id("work", run, work, key, number, *span_ns)
    name = " ".join(filter(None, (work, str(about.get("effect") or about.get("guard") or ""))))
    attributes = _attributes({**about, "run": run})
    return TelemetrySpan(name, trace_id_of(run), own_id, parent, *span_ns, attributes=attributes, error=error)


class Spans:
    """The spans of one life of a run. Call `recall` with the entries of earlier lives, `observe` with new ones, and `close` at the end.

    `generating` is the effect that asks a model.
    """

    def __init__(self, generating_effect: str) -> None:
        self._generating_effect = generating_effect
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
        """Record a new entry; return the spans that it ends."""
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
        """Return the spans that are still open, and the span of this life; no spans if the life has no entries."""
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

    # -- while work is under way --------------------------------------------------------------------------------------

    def _record_on_life(self, entry: Entry, now_ns: int) -> None:
        """Add an entry to the events of this life, if it belongs there."""
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
        assert self._life is not None, "an entry was observed"
        self._life.events.append(SpanEvent(name, now_ns, _attributes(about)))

    def _record_work(self, entry: ArtifactEntry | VerdictEntry, now_ns: int) -> None:
        """Add an artifact or a verdict to the open span of its effect."""
        work = self._open.setdefault(entry.key, _OpenSpan(now_ns))
        about = {"step": entry.step, "attempt": entry.attempt, "artifact": entry.artifact_id}
        if isinstance(entry, VerdictEntry):
            made_by = self._made_by.get(entry.artifact_id)
            work.links += [made_by] if made_by else []
            for judgement in entry.judgements:
                attributes = {
                    "gen_ai.evaluation.name": judgement.guard,
                    "gen_ai.evaluation.score.label": judgement.label,
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

    # -- ended work ---------------------------------------------------------------------------------------------------

    def _try_span(self, entry: ResultEntry, now_ns: int) -> TelemetrySpan:
        """Return the span of one try of an effect. It begins with the intent or the resumption; a later try begins its duration before its end."""
        work = self._open.pop(entry.key, None) or _OpenSpan(now_ns - round(entry.seconds * 1e9))
        error, failed = _failure(entry.steps)
        work.attributes |= failed
        span = self._effect(entry.key, work, now_ns, error)
        self._tries[entry.key] = self._tries.get(entry.key, 0) + 1
        return span

    def _open_effect_span(self, key: str, now_ns: int) -> TelemetrySpan:
        """Return the span of an effect without a result: it was cancelled, or the process stops."""
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
        if effect != self._generating_effect and work.model is None:
            return self._span(effect, self._try_id(key), self._life_id(), work, now_ns, error)
        model = work.model.model if work.model and work.model.model else self._started_model()
        work.attributes |= _model_attributes(model, work.model)
        kind: Literal["internal", "client"] = "client" if "/" in model else "internal"
        model_name = model.partition("/")[2] or model
        span = self._span(f"chat {model_name}".rstrip(), self._try_id(key), self._life_id(), work, now_ns, error)
        return attrs.evolve(span, kind=kind)

    def _call_span(self, key: str, path: str, steps: Iterable[dict[str, Any]] | None, now_ns: int) -> TelemetrySpan:
        """Return the span of a call, or of a turn of a loop. `steps` is its result, None if it has none yet."""
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
        self, name: str, span_id: str, parent: str | None, work: _OpenSpan, now_ns: int, error: str | None
    ) -> TelemetrySpan:
        trace = trace_id_of(self._run)
        events, links = tuple(work.events), tuple(dict.fromkeys(work.links))
        return TelemetrySpan(
            name, trace, span_id, parent, work.start_ns, now_ns, "internal", work.attributes, events, links, error
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
    """Return the attributes with `dsa.` before their names, without the empty ones."""
    return {f"dsa.{name}": value for name, value in about.items() if value not in (None, "", ())}


def _failure(steps: Iterable[dict[str, Any]]) -> tuple[str | None, Attributes]:
    """Return the message of the first error among steps, or None, and the attribute with its code."""
    for record in steps:
        if record["payload"].get("error") is True:
            payload = record["payload"]
            return str(payload.get("message") or "")[:_LONGEST_TEXT], {
                "error.type": str(payload.get("code") or "ERROR")
            }
    return None, {}


def _model_attributes(model: str, artifact: ArtifactEntry | None) -> Attributes:
    """Return the attributes of a model's call: the models, the tokens, the cost."""
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
