"""OpenTelemetry: the spans of a run, sent to a collector as OTLP over HTTP.

Takes ledger entries, gives spans (`dsa.runtime.spans`) to OpenTelemetry's own batch processor and exporter, which send them from a thread of
their own. OpenTelemetry is imported when a run is to be traced, and only then. A collector that is not there breaks nothing, and is not
waited for; how many spans it did not get is told at the end.
"""

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any

from dsa.errors import DsaError, install_hint
from dsa.runtime.moment import Moment
from dsa.runtime.secrets import Secrets
from dsa.runtime.spans import Span, Spans
from dsa.uses import GENERATING_EFFECT

#: Either of them says that runs are to be traced, and where to.
ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PATIENCE_S, _LAST_S = 2.0, 0.5
_LOGGER = "opentelemetry"


class TelemetryError(DsaError):
    """Raised when a run is to be traced and OpenTelemetry is not installed."""


def is_configured(environment: Mapping[str, str] = os.environ) -> bool:
    """Tell whether the environment asks for traces, by OpenTelemetry's own variables."""
    is_off = (
        environment.get("OTEL_SDK_DISABLED", "").lower() == "true" or environment.get("OTEL_TRACES_EXPORTER") == "none"
    )
    return any(environment.get(name) for name in ENDPOINTS) and not is_off


class Telemetry:
    """Sends the spans of one life of a run; pass `on_moment` to the run, and `close` at the end.

    `emit` is given each span that is over.
    """

    def __init__(self, emit: Callable[[Span], None], *, now_ns: Callable[[], int] = time.time_ns) -> None:
        self._spans, self._emit, self._now_ns = Spans(GENERATING_EFFECT), emit, now_ns

    def on_moment(self, moment: Moment, is_new: bool) -> None:  # noqa: FBT001  (the observer interface)
        """Send the spans that end with a new moment; one of an earlier life is only noted."""
        if not is_new:
            self._spans.recall(moment.entry)
            return
        for span in self._spans.observe(moment.entry, self._now_ns()):
            self._emit(span)

    def close(self, error: str | None = None) -> None:
        """End what is still open; `error` says why the run has stopped."""
        for span in self._spans.close(self._now_ns(), error):
            self._emit(span)


@contextmanager
def traced(secrets: Secrets, tell: Callable[[str], None]) -> Iterator[Telemetry]:
    """Trace what happens meanwhile, to where OpenTelemetry's variables say (default: http://localhost:4318).

    `tell` is given a sentence when spans were not delivered. Raises TelemetryError.
    """
    sender = _Sender(secrets)
    telemetry = Telemetry(sender.send)
    try:
        yield telemetry
    finally:
        telemetry.close()
        lost = sender.close()
        if lost:
            tell(lost)


class _Counted:
    """An exporter that counts what it could send."""

    def __init__(self, exporter: Any) -> None:  # noqa: ANN401  (opentelemetry's types are not followed)
        self._exporter, self.delivered = exporter, 0

    def export(self, spans: Any) -> Any:  # noqa: ANN401
        result = self._exporter.export(spans)
        self.delivered += len(spans) if result.name == "SUCCESS" else 0
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()


class _Trouble(logging.Handler):
    """Hears what the exporter logs, in place of standard error: the first word of trouble is enough to stop waiting."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.said, self.heard = "", threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.said = self.said or record.getMessage()
        self.heard.set()


class _Sender:
    """Hands spans to OpenTelemetry."""

    def __init__(self, secrets: Secrets) -> None:
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import OTELResourceDetector, Resource
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
            from opentelemetry.sdk.util.instrumentation import InstrumentationScope
        except ImportError as missing:
            raise TelemetryError(
                f"a run can be traced with OpenTelemetry only, and it is not installed; run: {install_hint('otel')}"
            ) from missing
        own = {"service.name": "dsa", "service.version": version("dual-state-agents")}
        resource = Resource(own).merge(OTELResourceDetector().detect())
        self._resource = Resource(secrets.value(dict(resource.attributes)))
        self._scope = InstrumentationScope("dsa", own["service.version"])
        self._secrets, self._trouble, self._sent = secrets, _Trouble(), 0
        self._logger = logging.getLogger(_LOGGER)
        self._logger.addHandler(self._trouble)
        self._propagated, self._logger.propagate = self._logger.propagate, False
        self._exporter = _Counted(OTLPSpanExporter())
        self._processor = BatchSpanProcessor(self._exporter)

    def send(self, span: Span) -> None:
        """Queue a span; nothing is waited for."""
        self._sent += 1
        self._processor.on_end(_readable(span, self._resource, self._scope))

    def close(self) -> str:
        """Send what is queued, without much patience; say what was not delivered, empty when all was."""
        self._trouble.heard.clear()
        closing = threading.Thread(target=self._shut_down, name="dsa-telemetry", daemon=True)
        closing.start()
        self._trouble.heard.wait(_PATIENCE_S)
        self._exporter.shutdown()  # ends the pauses between its attempts
        closing.join(_LAST_S)
        self._logger.removeHandler(self._trouble)
        self._logger.propagate = self._propagated
        lost = self._sent - self._exporter.delivered
        said = self._trouble.said.partition(", retrying in ")[0]  # it is not waited for
        why = f": {said}" if said else ""
        return self._secrets.text(f"{lost} of {self._sent} spans were not delivered{why}") if lost else ""

    def _shut_down(self) -> None:
        self._processor.shutdown()
        self._trouble.heard.set()


def _readable(span: Span, resource: Any, scope: Any) -> Any:  # noqa: ANN401
    """Give a span as OpenTelemetry's exporter reads it."""
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
        links=[Link(context(linked)) for linked in span.links],
        kind=SpanKind.CLIENT if span.kind == "client" else SpanKind.INTERNAL,
        status=Status(StatusCode.UNSET) if span.error is None else Status(StatusCode.ERROR, span.error),
        start_time=span.start_ns,
        end_time=span.end_ns,
        instrumentation_scope=scope,
    )
