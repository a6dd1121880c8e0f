import json

import pytest
from each_row import each_row
from stream_shapes import IDS, SHAPES, said, wanted

from dsa.generators import reconcile_stream
from dsa.generators.streams import CALL_ERRORS, RESCUES, STREAM_ERRORS, StreamReconciler
from dsa.text import is_unicode

EVERY = each_row("shape", SHAPES, ids=IDS)


def _texts(value):
    """Return every text in a JSON value."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [value] if isinstance(value, str) else [text for each in inner for text in _texts(each)]


class Model:
    """A chunk as OpenAI's package and LiteLLM return it."""

    def __init__(self, chunk):
        self._chunk = chunk

    def model_dump(self):
        return self._chunk


@EVERY
def test_every_shape_is_read_into_the_right_calls(shape):
    assert said(reconcile_stream(shape.chunks, shape.tools), shape.expected) == wanted(shape.expected)


@pytest.mark.parametrize(
    "given",
    [
        json.dumps,
        lambda chunk: json.dumps(chunk, ensure_ascii=not is_unicode("".join(_texts(chunk)))).encode(),
        lambda chunk: f": OPENROUTER PROCESSING\n\ndata: {json.dumps(chunk)}\n\n",
        Model,
    ],
    ids=["text", "bytes", "lines", "objects"],
)
@EVERY
def test_chunks_may_be_text_bytes_or_objects(shape, given):
    told = reconcile_stream([*map(given, shape.chunks), "data: [DONE]"], shape.tools)
    assert told == reconcile_stream(shape.chunks, shape.tools)


@EVERY
def test_streamed_text_is_the_beginning_of_the_final_text(shape):
    if shape.name in {"Hermes, never opened, after text", "a draft that nothing began"}:  # known only by its end
        return
    reconciler = StreamReconciler(shape.tools)
    shown = "".join([reconciler.feed(chunk) for chunk in shape.chunks])
    assert reconciler.finish().content.startswith(shown.strip())


@EVERY
def test_call_with_an_error_has_no_arguments_and_is_not_executable(shape):
    result = reconcile_stream(shape.chunks, shape.tools)
    for call in result.tool_calls:
        assert (call.arguments is None) == (call.error is not None)
    assert all(call.error is None for call in result.executable)
    assert not (result.error and result.executable)


def test_every_kind_of_rescue_and_error_has_a_shape():
    expected = [shape.expected for shape in SHAPES]
    assert {kind for one in expected for kind in one["rescues"]} == set(RESCUES)
    assert {call[3] for one in expected for call in one["calls"] if len(call) > 3} == set(CALL_ERRORS)
    from_outside = {"timeout", "bad_chunk"}
    assert {one["error"] for one in expected if "error" in one} == set(STREAM_ERRORS) - from_outside


def test_names_of_shapes_are_unique():
    assert len(set(IDS)) == len(IDS)
