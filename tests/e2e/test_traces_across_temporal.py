"""One trace for a run on Temporal: a client and a worker, each in a separate process with its own collector."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from collecting import attributes, collector
from temporal_commands import ORDER
from temporal_server import MISSING, server, temporal_program

from dsa.runtime.timeline import trace_id_of

BINDINGS = """from pathlib import Path

import dsa


@dsa.answering("found")
async def look(action, context):
    begun = Path(__file__).with_name("begun")
    if not begun.exists():
        begun.touch()
        raise OSError("the first try fails: a text that no span has")
    return [dsa.event_step("look", "found")]


effects = {"look": look}
"""


@pytest.mark.limit(100)
def test_spans_of_client_and_worker_are_one_trace(tmp_path: Path) -> None:
    if temporal_program() is None:
        pytest.skip(MISSING)
    (tmp_path / "order.md").write_text(ORDER.replace("| look | 60s | 0 |", "| look | 60s | 1 |"))
    (tmp_path / "bindings.py").write_text(BINDINGS)
    clean = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    with server(1) as (where,), collector() as (of_client, client_address), collector() as (of_worker, worker_address):
        words = [sys.executable, "-m", "dsa", "work", ".", "--runs", where]
        environment = {**clean, "OTEL_EXPORTER_OTLP_ENDPOINT": worker_address, "OTEL_SERVICE_NAME": "worker"}
        worker = subprocess.Popen(
            words, cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        try:
            words = [sys.executable, "-m", "dsa", "run", "order.md", "--data", "{}", "--runs", where]
            environment = {**clean, "OTEL_EXPORTER_OTLP_ENDPOINT": client_address, "OTEL_SERVICE_NAME": "client"}
            done = subprocess.run(
                words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=False
            )
            assert done.returncode == 3, done.stderr
        finally:
            worker.send_signal(signal.SIGTERM)
            complaints = worker.communicate(timeout=30)[1].decode()
    assert "telemetry" not in done.stderr + complaints
    run = re.search(r"^run +(\S+) at temporal://", done.stdout, re.MULTILINE)[1]
    assert {span.trace_id.hex() for span in of_client.spans} == {trace_id_of(run)}
    assert {span.trace_id.hex() for span in of_worker.spans} == {trace_id_of(run)}

    tries = of_client.named("look")
    works = of_worker.named("perform look")
    assert [attributes(span)["dsa.try"] for span in works] == [1, 2]
    assert [span.parent_span_id for span in works] == [span.span_id for span in tries]
    assert len({span.span_id for span in (*of_client.spans, *of_worker.spans)}) == len(of_client.spans) + len(works)
    assert all(attributes(span)["dsa.run"] == run for span in works)
    names = {attributes(each.resource)["service.name"] for each in (*of_client.resources, *of_worker.resources)}
    assert names == {"client", "worker"}
    assert b"a text that no span has" not in b"".join(of_worker.bodies)
