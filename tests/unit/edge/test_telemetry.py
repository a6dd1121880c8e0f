import builtins
import http.server
import logging
import threading

import pytest

pytest.importorskip("opentelemetry.sdk", reason="the extra `otel` is not installed")

from collecting import attributes, collector
from moments import show_to

from dsa.edge.telemetry import Telemetry, is_configured, trace_run
from dsa.errors import DsaError
from dsa.runtime.ledger import (
    ArtifactEntry,
    EffectEntry,
    EventEntry,
    GuardVerdict,
    MachineEntry,
    ResultEntry,
    RowEntry,
    VerdictEntry,
)
from dsa.runtime.policy.policies import error_step
from dsa.runtime.secrets import Secrets
from dsa.runtime.timeline import trace_id_of

FIRST = MachineEntry("r1", "letters", "d" * 64)
WRITES = EventEntry(1, "specification"), RowEntry(33, "idle", "writing"), EffectEntry("1/1", "query_llm")
MADE = ArtifactEntry("1/1", "g", 1, "a" * 64, "b" * 64, (), "llm", "openai/m", 1.0, 12, 3, redacted=("A_KEY",))
JUDGED = VerdictEntry("1/1", "g", 1, "a" * 64, [GuardVerdict("g", "failed", "no")])
RESULT = ResultEntry("1/1", (error_step("query_llm", "timeout", "too late").without_id(),), 1.5)
NONE = Secrets({}, ())


def trace(monkeypatch, address, *entries, secrets=NONE, patience_s=60.0):
    """Trace entries to an address; return the reports of spans that were not delivered.

    A busy machine may take long to deliver; a test of short waiting gives less patience.
    """
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", address)
    monkeypatch.setattr("dsa.edge.telemetry._PATIENCE_S", patience_s)
    told = []
    with trace_run(secrets, told.append) as telemetry:
        show_to(telemetry.on_moment, *entries)
    return told


def test_spans_reach_the_collector_as_otlp(monkeypatch):
    with collector() as (collected, address):
        assert trace(monkeypatch, address, FIRST, *WRITES, MADE, JUDGED, RESULT) == []
    assert collected.paths == ["/v1/traces"]
    (call,), (life,) = collected.named("chat m"), collected.named("invoke_workflow letters")
    assert call.trace_id.hex() == life.trace_id.hex() == trace_id_of("r1")
    assert (call.parent_span_id, life.parent_span_id) == (life.span_id, b"")
    assert (call.kind, call.status.code, call.status.message) == (3, 2, "too late")  # CLIENT, ERROR
    said = attributes(call)
    assert (said["gen_ai.request.model"], said["gen_ai.usage.input_tokens"], said["error.type"]) == ("m", 12, "timeout")
    assert said["dsa.redacted"] == ["A_KEY"]
    (event,) = call.events
    assert (event.name, attributes(event)["gen_ai.evaluation.explanation"]) == ("gen_ai.evaluation.result", "no")
    assert call.end_time_unix_nano >= event.time_unix_nano >= call.start_time_unix_nano > 10**18


def test_span_of_a_resumed_run_links_to_the_first_one(monkeypatch):
    with collector() as (collected, address):
        trace(monkeypatch, address, FIRST, *WRITES)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", address)
        with trace_run(NONE, print) as telemetry:
            show_to(telemetry.on_moment, FIRST, WRITES, is_new=False)
            show_to(telemetry.on_moment, RESULT)
    first, second = collected.named("invoke_workflow letters")
    assert first.trace_id == second.trace_id
    assert [link.span_id for link in second.links] == [first.span_id]


def test_resource_comes_from_the_variables_without_secrets(monkeypatch):
    monkeypatch.setenv("OTEL_SERVICE_NAME", "my-agent")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "team=blue,note=opensesame")
    with collector() as (collected, address):
        trace(monkeypatch, address, FIRST, secrets=Secrets({"WORD": "opensesame"}, ()))
    said = attributes(collected.resources[0].resource)
    assert (said["service.name"], said["team"], said["note"]) == ("my-agent", "blue", "[secret WORD]")
    assert said["service.version"]


def test_missing_collector_is_reported_without_waiting(monkeypatch, capfd):
    server = http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler)
    server.server_close()
    (told,) = trace(monkeypatch, f"http://127.0.0.1:{server.server_port}", FIRST, *WRITES, RESULT)
    assert told.startswith("2 of 2 spans were not delivered: ")
    assert capfd.readouterr() == ("", "")
    assert logging.getLogger("opentelemetry").handlers == []
    assert logging.getLogger("opentelemetry").propagate


def test_collector_that_never_answers_is_abandoned(monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "60")
    with collector() as (collected, address):
        collected.hang = threading.Event()
        (told,) = trace(monkeypatch, address, FIRST, *WRITES, RESULT, patience_s=0.5)
    assert told.startswith("2 of 2 spans were not delivered")


def test_refusal_of_the_collector_is_reported(monkeypatch):
    with collector() as (collected, address):
        collected.status = 403
        (told,) = trace(monkeypatch, address, FIRST)
    assert told.startswith("1 of 1 spans were not delivered: ")  # the exporter's reason varies


def test_spans_ended_by_an_error_carry_it():
    spans = []
    telemetry = Telemetry(spans.append, now_ns=lambda: 5)
    show_to(telemetry.on_moment, FIRST)
    telemetry.close("query_llm failed")
    telemetry.close()
    assert [(span.error, span.start_ns, span.end_ns) for span in spans] == [("query_llm failed", 5, 5)]


@pytest.mark.parametrize(("environment", "wanted"), [
    ({}, False),
    ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x"}, True),
    ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://x"}, True),
    ({"OTEL_EXPORTER_OTLP_ENDPOINT": ""}, False),
    ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_SDK_DISABLED": "True"}, False),
    ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_TRACES_EXPORTER": "none"}, False),
])  # fmt: skip
def test_opentelemetry_variables_decide_whether_to_trace(environment, wanted):
    assert is_configured(environment) is wanted


def test_missing_opentelemetry_is_reported_with_the_install_command(monkeypatch):
    real = builtins.__import__

    def missing(name, *rest, **more):
        if name.startswith("opentelemetry"):
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(DsaError, match=r"pip install '\.\[otel\]' \(in a clone"), trace_run(NONE, print):
        pass
