import json
from itertools import pairwise

import pytest
from hypothesis import given, settings, strategies

from dsa.edge.http_stream import MOST_LINE_BYTES, StreamDecoder

CHUNKS = [{"choices": [{"delta": {"content": "né \U0001f600"}}]}, {"a": "data: x\n\n"}, {"usage": None}]


def events(end="\n"):
    first, second, third = (json.dumps(chunk, ensure_ascii=False) for chunk in CHUNKS)
    parts = second.split(" ", 1)
    lines = [
        ": OPENROUTER PROCESSING", "", f"data: {first}", "", "event: chunk", "id: 7", f"data:{parts[0]}", f"data: {parts[1]}", "",
        ":", "retry: 10", "", f"data: {third}", "", "data: [DONE]", "", "",
    ]  # fmt: skip
    return end.join(lines).encode()


def decoded(*pieces):
    decoder = StreamDecoder()
    return [chunk for piece in pieces for chunk in decoder.feed(piece)] + decoder.close()


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"], ids=["LF", "CRLF", "CR"])
def test_events_may_be_cut_at_every_byte(end):
    data = events(end)
    assert decoded(data) == CHUNKS
    assert decoded(*(data[at : at + 1] for at in range(len(data)))) == CHUNKS
    for at in range(len(data)):
        assert decoded(data[:at], data[at:]) == CHUNKS


def test_lines_of_json_may_be_cut_at_every_byte():
    data = "".join(json.dumps(chunk, ensure_ascii=False) + "\n" for chunk in CHUNKS).encode()
    for at in range(len(data)):
        assert decoded(data[:at], data[at:]) == CHUNKS


@settings(deadline=None, max_examples=50)
@given(
    places=strategies.lists(strategies.integers(0, 300), max_size=12), end=strategies.sampled_from(["\n", "\r\n", "\r"])
)
def test_events_may_be_cut_anywhere(places, end):
    data = events(end)
    borders = [0, *sorted(places), len(data)]
    assert decoded(*(data[a:b] for a, b in pairwise(borders))) == CHUNKS


def test_last_event_may_lack_its_end():
    for end in (b"", b"\n", b"\r"):
        assert decoded(b'data: {"a": 1}' + end) == [{"a": 1}]


def test_one_document_may_have_many_lines():
    assert decoded(json.dumps(CHUNKS[0], indent=2).encode()) == [CHUNKS[0]]
    assert decoded(json.dumps(CHUNKS, indent=2).encode()) == CHUNKS


def test_events_without_blank_lines_between_them_are_several():
    assert decoded(b'data: {"a": 1}\ndata: {"a": 2}\ndata: [DONE]\n\n') == [{"a": 1}, {"a": 2}]


def test_error_event_is_returned_as_an_error():
    assert decoded(b'event: error\ndata: {"message": "x"}\n\n') == [{"error": {"message": "x"}}]
    assert decoded(b'event: error\ndata: {"error": {"message": "x"}}\n\n') == [{"error": {"message": "x"}}]


def test_byte_order_mark_is_skipped_and_bad_utf_8_is_replaced():
    assert decoded(b'\xef\xbb\xbfdata: {"a": "\xff"}\n\n') == [{"a": "\ufffd"}]


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"<html>\n<p>x</p>", "not valid JSON"),
        (b"data: nonsense\n\n", "not valid JSON: 'nonsense'"),
        (b"data: [1]\n\n", "not a JSON object"),
        (b'{"a": 1}\n{"b": \n', "not valid JSON"),
        (b"data: " + b"[" * 100_000 + b"\n\n", "not valid JSON"),
    ],
)
def test_answer_in_an_unknown_format_is_reported(data, told):
    with pytest.raises(ValueError, match=told):
        decoded(data)


def test_stream_with_only_a_comment_and_an_end_has_no_chunks():
    decoder = StreamDecoder()
    assert decoder.feed(b": ping\n\ndata: [DONE]\n\n") + decoder.close() == []
    assert not decoder.has_begun


def test_line_longer_than_the_limit_is_refused():
    with pytest.raises(ValueError, match="longer than"):
        decoded(*[b"x" * (MOST_LINE_BYTES // 8)] * 9)
