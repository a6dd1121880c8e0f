"""From the pieces of any provider's stream to tool calls: pure, incremental, linear in the length of the stream."""

from dsa.generators.streams.reconciliation import StreamReconciler, reconcile_stream
from dsa.generators.streams.stream_result import (
    CALL_ERRORS,
    RESCUES,
    STREAM_ERRORS,
    StreamCall,
    StreamError,
    StreamResult,
)

__all__ = [
    "CALL_ERRORS",
    "RESCUES",
    "STREAM_ERRORS",
    "StreamCall",
    "StreamError",
    "StreamReconciler",
    "StreamResult",
    "reconcile_stream",
]  # fmt: skip
