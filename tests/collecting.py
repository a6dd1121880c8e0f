"""A collector of traces: a real server that takes OTLP over HTTP, and the spans it was sent, decoded."""

import http.server
import threading
from contextlib import contextmanager

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class Collected:
    """What a collector was sent. `status` is what it answers; with `hang` it does so when 20 seconds have gone by without that being set."""

    def __init__(self):
        self.bodies, self.paths, self.status, self.hang = [], [], 200, None

    @property
    def resources(self):
        return [each for body in self.bodies for each in ExportTraceServiceRequest.FromString(body).resource_spans]

    @property
    def spans(self):
        return [span for resource in self.resources for scope in resource.scope_spans for span in scope.spans]

    def named(self, name):
        return [span for span in self.spans if span.name == name]


def attributes(of):
    """Return a span's or an event's attributes as a dictionary."""
    return {pair.key: _plain(pair.value) for pair in of.attributes}


def _plain(value):
    kind = value.WhichOneof("value")
    given = getattr(value, kind)
    return [_plain(each) for each in given.values] if kind == "array_value" else given


@contextmanager
def collector():
    """Return what is collected, and the address to send it to."""
    collected = Collected()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["content-length"]))
            if collected.hang is not None and collected.hang.wait(20):
                return  # nobody has waited so long
            collected.paths.append(self.path)
            if collected.status == 200:
                collected.bodies.append(body)
            self.send_response(collected.status)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *args):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield collected, f"http://127.0.0.1:{server.server_port}"
    finally:
        if collected.hang is not None:
            collected.hang.set()
        server.shutdown()
        thread.join()
        server.server_close()
