"""Telemetry: the spans of a run as OTLP over HTTP, and its ledger entries as log records.

`Telemetry` makes spans (`dsa.runtime.timeline`) from ledger entries. OpenTelemetry's own batch processor and exporter send them from a thread of
their own. OpenTelemetry is imported only when a run is traced. A missing collector breaks nothing and delays nothing; at the end a sentence
says how many spans were not delivered.

`LedgerLog` logs each ledger entry on the logger `dsa` of the standard library. Its fields have what the entry says, but no texts of models or
people. Without a configured logger nothing is printed. `log_to` is what `dsa --log` does.
"""

import json
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any, Literal, TextIO

from dsa.data_use import GENERATING_EFFECT
from dsa.errors import DsaError, install_hint
from dsa.runtime.costs import reasons_of
from dsa.runtime.ledger import (
    ArtifactEntry,
    CallEntry,
    CallResultEntry,
    ChangeEntry,
    DecidedEntry,
    EffectEntry,
    Entry,
    EventEntry,
    MachineEntry,
    RefusalEntry,
    ResultEntry,
    ResumedEntry,
    RowEntry,
    VerdictEntry,
    part_in,
)
from dsa.runtime.secrets import Secrets
from dsa.runtime.timeline import Moment, Spans, TelemetrySpan

#: Either variable turns tracing on and says where to send spans.
ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PATIENCE_S, _LAST_S = 2.0, 0.5
_LOGGER = "opentelemetry"


def is_configured(environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether the environment asks for traces, by OpenTelemetry's own variables."""
    is_off = (
        environment.get("OTEL_SDK_DISABLED", "").lower() == "true" or environment.get("OTEL_TRACES_EXPORTER") == "none"
    )
    return any(environment.get(name) for name in ENDPOINTS) and not is_off


class Telemetry:
    """Makes the spans of one session of a run. Pass `on_moment` to the run, and call `close` at the end.

    `emit` is called with each span that has ended.
    """

    def __init__(self, emit: Callable[[TelemetrySpan], None], *, now_ns: Callable[[], int] = time.time_ns) -> None:
        self._spans, self._emit, self._now_ns = Spans(GENERATING_EFFECT), emit, now_ns

    def on_moment(self, moment: Moment, is_new: bool) -> None:  # noqa: FBT001  (the observer interface)
        """Send the spans that end with a new moment; moments of earlier sessions are only remembered."""
        if not is_new:
            self._spans.recall(moment.entry)
            return
        for span in self._spans.observe(moment.entry, self._now_ns()):
            self._emit(span)

    def emit(self, span: TelemetrySpan) -> None:
        """Send a span that was made elsewhere."""
        self._emit(span)

    def close(self, error: str | None = None) -> None:
        """End the open spans; `error` says why the run stopped."""
        for span in self._spans.close(self._now_ns(), error):
            self._emit(span)


@contextmanager
def trace_run(secrets: Secrets, tell: Callable[[str], None]) -> Iterator[Telemetry]:
    """Trace a run, and send the spans where OpenTelemetry's variables say (default: http://localhost:4318).

    `tell` is called with a sentence when spans were not delivered. Raises DsaError if OpenTelemetry is not installed.
    """
    sender = _Sender(secrets)
    telemetry = Telemetry(sender.send)
    try:
        yield telemetry
    finally:
        telemetry.close()
        message = sender.close()
        if message:
            tell(message)


class _CountingExporter:
    """An exporter that counts the spans that it could send."""

    def __init__(self, exporter: Any) -> None:  # noqa: ANN401  (opentelemetry's types are not followed)
        self._exporter, self.delivered_count = exporter, 0

    def export(self, spans: Any) -> Any:  # noqa: ANN401
        result = self._exporter.export(spans)
        self.delivered_count += len(spans) if result.name == "SUCCESS" else 0
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()


class _Trouble(logging.Handler):
    """Takes what the exporter logs, in place of standard error. The first message is enough to stop waiting."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.message, self.is_noticed = "", threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.message = self.message or record.getMessage()
        self.is_noticed.set()


class _Sender:
    """Passes spans to OpenTelemetry."""

    def __init__(self, secrets: Secrets) -> None:
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import OTELResourceDetector, Resource
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
            from opentelemetry.sdk.util.instrumentation import InstrumentationScope
        except ImportError as missing:
            raise DsaError(
                f"tracing a run needs OpenTelemetry, which is not installed; run: {install_hint('otel')}",
                code="TelemetryError",
            ) from missing
        own = {"service.name": "dsa", "service.version": version("dual-state-agents")}
        resource = Resource(own).merge(OTELResourceDetector().detect())
        self._resource = Resource(secrets.value(dict(resource.attributes)))
        self._scope = InstrumentationScope("dsa", own["service.version"])
        self._secrets, self._trouble, self._sent_count = secrets, _Trouble(), 0
        self._logger = logging.getLogger(_LOGGER)
        self._logger.addHandler(self._trouble)
        self._propagate_before, self._logger.propagate = self._logger.propagate, False
        self._exporter = _CountingExporter(OTLPSpanExporter())
        self._processor = BatchSpanProcessor(self._exporter)

    def send(self, span: TelemetrySpan) -> None:
        """Queue a span, without waiting."""
        self._sent_count += 1
        self._processor.on_end(_readable(span, self._resource, self._scope))

    def close(self) -> str:
        """Send the queued spans, without waiting long. Return a sentence that says how many were not delivered; empty if all were."""
        self._trouble.is_noticed.clear()
        thread = threading.Thread(target=self._shut_down, name="dsa-telemetry", daemon=True)
        thread.start()
        self._trouble.is_noticed.wait(_PATIENCE_S)
        self._exporter.shutdown()  # ends the pauses between its attempts
        thread.join(_LAST_S)
        self._logger.removeHandler(self._trouble)
        self._logger.propagate = self._propagate_before
        lost_count = self._sent_count - self._exporter.delivered_count
        message = self._trouble.message.partition(", retrying in ")[0]  # do not wait for it
        why = f": {message}" if message else ""
        return (
            self._secrets.text(f"{lost_count} of {self._sent_count} spans were not delivered{why}")
            if lost_count
            else ""
        )

    def _shut_down(self) -> None:
        self._processor.shutdown()
        self._trouble.is_noticed.set()


def _readable(span: TelemetrySpan, resource: Any, scope: Any) -> Any:  # noqa: ANN401
    """Return a span as OpenTelemetry's exporter reads it."""
    from opentelemetry.sdk.trace import Event, ReadableSpan
    from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags

    def context(span_id: str) -> Any:  # noqa: ANN401
        flags = TraceFlags(TraceFlags.SAMPLED)
        return SpanContext(int(span.trace_id, 16), int(span_id, 16), is_remote=False, trace_flags=flags)

    return ReadableSpan(
        span.name,
        context=context(span.span_id),
        parent=context(span.parent_id) if span.parent_id else None,
        resource=resource,
        attributes=span.attributes,
        events=[Event(event.name, event.attributes, event.at_ns) for event in span.events],
        links=[Link(context(link_id)) for link_id in span.links],
        kind=SpanKind.CLIENT if span.kind == "client" else SpanKind.INTERNAL,
        status=Status(StatusCode.UNSET) if span.error is None else Status(StatusCode.ERROR, span.error),
        start_time=span.start_ns,
        end_time=span.end_ns,
        instrumentation_scope=scope,
    )


LOGGER = logging.getLogger("dsa")
LOGGER.addHandler(logging.NullHandler())  # otherwise Python would print warnings of a logger without configuration

LEVELS = ("debug", "info", "warning", "error")
Form = Literal["text", "json"]
Fields = dict[str, Any]


class LedgerLog:
    """Logs the new moments of one run; those of earlier sessions were logged then."""

    def __init__(self, logger: logging.Logger = LOGGER) -> None:
        self._logger = logger
        self._run, self._seq, self._state = "", 0, ""
        self._effects: dict[str, str] = {}

    def on_moment(self, moment: Moment, is_new: bool) -> None:  # noqa: FBT001  (the observer interface)
        """Log what is new."""
        self.take(moment.entry, is_new)

    def take(self, entry: Entry, is_new: bool) -> None:  # noqa: FBT001  (as above)
        """Log an entry if it is new."""
        if type(entry) is EventEntry:  # takes half the time of `match`, and this sees every entry of every run
            self._seq = entry.seq
        elif type(entry) is RowEntry:
            self._state = entry.target
        elif type(entry) is EffectEntry:
            self._effects[entry.key] = entry.effect
        elif type(entry) is MachineEntry:
            self._run = entry.run
        if is_new and (self._logger.isEnabledFor(logging.INFO) or _may_warn(entry)):
            self._log(entry)

    def _log(self, entry: Entry) -> None:
        kind, level, fields = describe_entry(entry)
        if self._logger.isEnabledFor(level):
            where = {"run": self._run, "seq": self._seq, "state": self._state}
            if isinstance(entry, ResultEntry | DecidedEntry):
                where["effect"] = self._effects.get(entry.key, "")
            elif isinstance(entry, ResumedEntry):
                fields["effects"] = [f"{self._effects.get(key, '')} {key}: {choice}" for key, choice in entry.effects]
            record_fields = {name: value for name, value in (where | fields).items() if value not in (None, "", (), [])}
            self._logger.log(level, kind, extra={"dsa": {"kind": kind, **record_fields}})

    def fault(self, run: str, where: str, traceback: str) -> None:
        """Log an error in users' code."""
        fields = {"kind": "fault", "run": run, "where": where, "traceback": traceback}
        self._logger.debug("fault", extra={"dsa": fields})

    def failure(self, what: str, line: int | None, code: str, message: str) -> None:
        """Log that a failure has stopped the run."""
        fields = {"kind": "stopped", "run": self._run, "seq": self._seq, "state": self._state}
        more = {"what": what, "line": line, "code": code, "message": message}
        self._logger.error("stopped", extra={"dsa": fields | more})


def _may_warn(entry: Entry) -> bool:
    """Return whether an entry may be worth a warning; all others are logged as information at most."""
    if type(entry) is ResultEntry:
        return entry.has_failed  # one that waits for a part gets a closer look
    return isinstance(entry, RefusalEntry | ResumedEntry | ArtifactEntry)


def describe_entry(entry: Entry) -> tuple[str, int, Fields]:
    """Return an entry's kind, its log level, and its fields."""
    match entry:
        case MachineEntry():
            return "machine", logging.INFO, {"machine": entry.name, "digest": entry.digest}
        case EventEntry():
            verdicts = {"verdicts": dict(entry.verdicts)} if entry.verdicts else {}
            return "event", logging.INFO, {"event": entry.event, "timer": entry.source, "key": entry.key, **verdicts}
        case RowEntry():
            changes = {"changed": dict(entry.changed)} if entry.changed else {}
            return "row", logging.INFO, {"line": entry.line, "source": entry.source, **changes}
        case RefusalEntry():
            return "refusal", logging.WARNING, {"reason": entry.reason, "accepted": list(entry.accepted)}
        case EffectEntry():
            return "effect", logging.INFO, {"effect": entry.effect, "key": entry.key}
        case ArtifactEntry() | VerdictEntry() | ResultEntry():
            return _outcome(entry)
        case ResumedEntry(by=by, model=model, module=module):
            about = {"by": by, "model": model, "module": module, "budget": list(entry.budget)}
            return "resumed", logging.WARNING if entry.effects else logging.INFO, about
        case DecidedEntry():
            return "decided", logging.INFO, {"key": entry.about, "handling": entry.handling}
        case CallEntry():
            return "call", logging.DEBUG, {"policy": entry.policy, "key": entry.key, "path": entry.path}
        case CallResultEntry():
            return "call_result", logging.DEBUG, {"key": entry.key, "path": entry.path}
        case ChangeEntry():
            return "change", logging.INFO, {"machine": entry.name, "digest": entry.digest}


def _outcome(entry: ArtifactEntry | VerdictEntry | ResultEntry) -> tuple[str, int, Fields]:
    """Describe an outcome of an effect. Bad news is logged as a warning."""
    about: Fields = {"key": entry.key, "seconds": round(entry.seconds, 6)}
    if isinstance(entry, ResultEntry):
        codes = [step["payload"].get("code") for step in entry.steps if step["payload"].get("error") is True]
        level = logging.WARNING if entry.has_failed and part_in(entry) is None else logging.INFO
        reasons = reasons_of(entry)
        more = {**({"code": codes[0]} if codes else {}), **({"reason": reasons[0]} if reasons else {})}
        return "result", level, {**about, **more}
    about |= {"step": entry.step, "attempt": entry.attempt, "artifact": entry.artifact_id}
    if isinstance(entry, VerdictEntry):
        guards = {judgement.guard: judgement.label for judgement in entry.judgements}
        return "verdict", logging.INFO, {**about, "verdict": entry.label, "guards": guards}
    tokens = {"prompt_tokens": entry.prompt_tokens, "completion_tokens": entry.completion_tokens}
    level = logging.WARNING if entry.redacted else logging.INFO
    return "artifact", level, {**about, "model": entry.model, **tokens, "redacted": list(entry.redacted)}


# -- as `dsa --log` writes it -----------------------------------------------------------------------------------------


class LogLines(logging.Formatter):
    """Writes a record as one line: JSON, or words and `name=value`. Secrets are removed from every record."""

    def __init__(self, form: Form, secrets: Secrets) -> None:
        super().__init__()
        self._form, self._secrets = form, secrets

    def format(self, record: logging.LogRecord) -> str:
        """Write a record; one without a ledger entry has only its message."""
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        fields: Fields = getattr(record, "dsa", None) or {"kind": "message", "message": self._whole(record)}
        fields = dict(self._secrets.value(fields))
        if self._form == "json":
            return json.dumps(
                {"time": at, "level": record.levelname.lower(), "logger": record.name, **fields}, default=str
            )
        lines = str(fields.pop("traceback", "")).rstrip()  # it is read by people, line by line
        words = " ".join(f"{name}={_plain(value)}" for name, value in fields.items() if name != "kind")
        return "\n".join(filter(None, (f"{at} {record.levelname:<7} {fields['kind']:<11} {words}", lines)))

    def _whole(self, record: logging.LogRecord) -> str:
        traceback_lines = [self.formatException(record.exc_info)] if record.exc_info else []
        return "\n".join([record.getMessage(), *traceback_lines])


def _plain(value: Any) -> str:  # noqa: ANN401  (JSON)
    """Write a value without blanks, or as JSON."""
    text = value if isinstance(value, str) else json.dumps(value, separators=(",", ":"), default=str)
    is_plain = text.isprintable() and not set(text) & set(" \"'=")
    return text if is_plain or not isinstance(value, str) else json.dumps(text)


@contextmanager
def log_to(stream: TextIO, level: str, form: Form, secrets: Secrets) -> Iterator[None]:
    """Write records of the logger `dsa`, from this level (`LEVELS`) on, to a stream, one line each."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(LogLines(form, secrets))
    before, propagate = LOGGER.level, LOGGER.propagate
    LOGGER.addHandler(handler)
    LOGGER.setLevel(level.upper())
    LOGGER.propagate = False
    try:
        yield
    finally:
        LOGGER.removeHandler(handler)
        LOGGER.setLevel(before)
        LOGGER.propagate = propagate
