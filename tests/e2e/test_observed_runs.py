"""Observed runs, with the real program: log lines, and traces at a real collector, before and after a run was killed."""

import http.server
import json
import os
import re
import signal

import pytest

pytest.importorskip("opentelemetry.sdk", reason="the extra `otel` is not installed")

from collecting import attributes, collector

from dsa.runtime.timeline import trace_id_of

MODEL = """
import os, signal
from pathlib import Path
from dsa.runtime.content import Artifact, GeneratorInterface, Usage

class Model(GeneratorInterface):
    def generate(self, context, template=None):
        calls = Path("calls.txt")
        calls.write_text(calls.read_text() + "x" if calls.exists() else "x")
        if len(calls.read_text()) == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        right = len(calls.read_text()) > 2
        usage = Usage("openai/tiny", 0.5, 40, 20, 0.001, "tiny-2026")
        return Artifact("def add(a, b): return a + b" if right else "def add(a, b): return a - b", usage=usage)

generators = {"llm": Model()}
"""
SCRIPT = "```\ndef add(a, b): return a + b\n```\n"


@pytest.fixture
def dsa(dsa, tmp_path, monkeypatch):
    """Run the program with a model and replies, without variables that name a collector."""
    for name in [each for each in os.environ if each.startswith("OTEL_")]:
        monkeypatch.delenv(name)
    (tmp_path / "mine.py").write_text(MODEL)
    (tmp_path / "replies.md").write_text(SCRIPT)
    return dsa


def test_killed_run_and_its_resumption_are_one_trace(dsa, tmp_path):
    with collector() as (collected, address):
        # finished spans are sent every few milliseconds, so that some arrive before the kill
        where = {"OTEL_EXPORTER_OTLP_ENDPOINT": address, "OTEL_BSP_SCHEDULE_DELAY": "1", "OTEL_SERVICE_NAME": "katas"}
        assert dsa("run", "dual_state", "--with", "mine.py", **where).returncode == -signal.SIGKILL
        done = dsa("resume", "last", **where)
        assert (done.returncode, done.stderr) == (0, "")
    (run,) = (path.name for path in (tmp_path / ".dsa").glob("*-dual_state-*"))
    assert {span.trace_id.hex() for span in collected.spans} == {trace_id_of(run)}
    (life,) = collected.named("invoke_workflow dual_state")
    assert len(life.links) == 1, "the first life was cut off before it could end; the second knows its id"
    assert attributes(life)["dsa.run"] == run
    assert attributes(life)["dsa.entries_before"] > 0
    rows = [attributes(event) for event in life.events if event.name == "dsa.transition"]
    assert [row["dsa.target"] for row in rows] == ["validating", "succeeded"]
    assert all(row["dsa.line"] > 0 for row in rows)

    calls = collected.named("chat tiny")
    again = calls[-1]
    assert again.parent_span_id == life.span_id
    said = attributes(again)
    assert said["gen_ai.operation.name"] == "chat"
    assert said["gen_ai.provider.name"] == "openai"
    assert (said["gen_ai.request.model"], said["gen_ai.response.model"]) == ("tiny", "tiny-2026")
    assert (said["gen_ai.usage.input_tokens"], said["gen_ai.usage.output_tokens"]) == (40, 20)
    judged = [span for span in collected.named("execute_guard") if span.parent_span_id == life.span_id]
    ((event,),) = [span.events for span in judged]
    assert attributes(event)["gen_ai.evaluation.score.label"] == "passed"
    assert [link.span_id for link in judged[0].links] == [again.span_id]
    resources = {attributes(resource.resource)["service.name"] for resource in collected.resources}
    assert resources == {"katas"}


def test_missing_collector_only_adds_one_line_of_output(dsa):
    server = http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler)
    server.server_close()
    nowhere = f"http://127.0.0.1:{server.server_port}"
    plain = dsa("run", "dual_state", "--model", "scripted:replies.md")
    done = dsa("run", "dual_state", "--model", "scripted:replies.md", OTEL_EXPORTER_OTLP_ENDPOINT=nowhere)
    assert done.returncode == plain.returncode == 0
    assert (len(done.stdout.splitlines()), plain.stderr) == (len(plain.stdout.splitlines()), "")
    assert re.fullmatch(r"telemetry: (\d+) of \1 spans were not delivered: .*\n", done.stderr)


def test_opentelemetry_is_not_imported_unless_requested(dsa, tmp_path):
    (tmp_path / "opentelemetry").mkdir()
    (tmp_path / "opentelemetry" / "__init__.py").write_text("raise ImportError('not here')")
    path = {"PYTHONPATH": str(tmp_path)}
    assert dsa("run", "dual_state", "--model", "scripted:replies.md", **path).returncode == 0
    asked = dsa("run", "dual_state", "--model", "scripted:replies.md", "--otel", **path)
    assert asked.returncode == 2
    assert "pip install '.[otel]' (in a clone of dual-state-agents)" in asked.stderr
    variables = {**path, "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}
    done = dsa("run", "dual_state", "--model", "scripted:replies.md", **variables)
    assert done.returncode == 0, "they may be there for other programs"
    assert done.stderr.startswith("telemetry: tracing a run needs OpenTelemetry")
    assert dsa("run", "dual_state", "--model", "scripted:replies.md", "--no-otel", **variables).stderr == ""


def test_log_lines_go_to_standard_error_and_the_result_to_standard_output(dsa):
    done = dsa("run", "dual_state", "--model", "scripted:replies.md", "--log", "info", "--log-format", "json")
    told = [json.loads(line) for line in done.stderr.splitlines()]
    assert [line["kind"] for line in told[:5]] == ["machine", "event", "row", "effect", "artifact"]
    assert done.stdout.splitlines()[0] == "succeeded", "log lines take the place of progress"
    verdict = next(line for line in told if line["kind"] == "verdict")
    assert (verdict["verdict"], verdict["seq"], verdict["state"]) == ("passed", 2, "validating")
    assert verdict["key"] == "2/1"
    result = dsa("run", "dual_state", "--model", "scripted:replies.md", "--log", "warning", "--json")
    assert (json.loads(result.stdout)["outcome"], result.stderr) == ("succeeded", "")
    stopped = dsa("run", "dual_state", "--model", "openai/x", "--log", "error", OPENAI_API_BASE="http://127.0.0.1:9/v1")
    assert stopped.returncode == 1
    assert "ERROR   stopped" in stopped.stderr
    assert dsa("run", "dual_state", "--log", "loud").returncode == 2


def test_resumed_run_uses_the_secrets_chosen_at_its_start(dsa, tmp_path):
    (tmp_path / "replies.md").write_text("```\ndef add(a, b): return 'TICKET-12'\n```\n")
    chosen = ("--secret", "WORD", "--secret-pattern", "TICKET-[0-9]+", "--not-secret", "MY_KEY")
    world = {"WORD": "opensesame", "MY_KEY": "no-secret-at-all"}
    done = dsa("run", "dual_state", "opensesame no-secret-at-all", "--model", "scripted:replies.md", *chosen, **world)
    assert done.returncode == 1, "the script has no second reply"
    assert "the specification contains a secret; the run and its model get [secret WORD]" in done.stderr
    (tmp_path / "replies.md").write_text("```\n'TICKET-12'\n```\n\n```\ndef add(a, b): return 'TICKET-13'\n```\n")
    done = dsa("resume", "last", "--quiet", **world)
    kept = dsa("show", "last", "--jsonl").stdout
    assert "[secret WORD] no-secret-at-all" in kept
    assert "TICKET-1" not in kept
    assert kept.count("[secret pattern-1]") >= 2
    first = json.loads(kept.splitlines()[0])["started"]["secrets"]
    assert first == {"names": ["WORD"], "patterns": ["TICKET-[0-9]+"], "spared": ["MY_KEY"]}


@pytest.mark.parametrize(("arguments", "said"), [
    (("--secret", "WORD"), "the value of WORD has 3 characters"),
    (("--secret-pattern", "("), "'(' is not a valid regular expression"),
])  # fmt: skip
def test_invalid_secret_is_reported_before_anything_runs(dsa, tmp_path, arguments, said):
    done = dsa("run", "dual_state", "--model", "scripted:replies.md", *arguments, WORD="abc")
    assert done.returncode == 2
    assert said in done.stderr
    assert not (tmp_path / ".dsa").exists()
