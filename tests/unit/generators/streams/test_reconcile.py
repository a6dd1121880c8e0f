import json

import pytest
from stream_shapes import TOOLS, call_chunk, chunk, entry, finished

from dsa.generators import StreamReconciler, reconcile_stream
from dsa.generators.streams import StreamCall


def pieces_of(calls, pieces):
    """Chunks of calls whose arguments come in many pieces."""
    for index in range(calls):
        yield call_chunk(entry(index, '{"query": "', given_id=f"call_{index}", name="search"))
        yield from (call_chunk(entry(index, "word ")) for _ in range(pieces))
        yield call_chunk(entry(index, '"}'))
    yield finished()


def test_rescues_are_counted_per_call():
    chunks = [call_chunk(entry(index, "{}", name="now")) for index in range(3)]
    assert reconcile_stream([*chunks, finished()], TOOLS).rescues == {"missing_id": 3}


def test_kind_of_rescue_counts_once_per_call():
    chunks = [call_chunk(entry(0, piece, given_id="a", name="search")) for piece in ('{"query"', ": ", '"x"', "}")]
    assert reconcile_stream([*chunks, finished()], TOOLS).rescues == {"repeated_id": 1, "repeated_name": 1}


def test_generated_ids_are_repeatable_and_differ_between_answers():
    def ids(stream_id):
        chunks = [call_chunk(entry(index, "{}", name="now")) | {"id": stream_id} for index in range(2)]
        return [call.id for call in reconcile_stream([*chunks, finished()], TOOLS).tool_calls]

    assert ids("x") == ids("x")
    assert len({*ids("x"), *ids("y")}) == 4


def test_generated_id_never_equals_a_sent_id():
    chunks = [call_chunk(entry(0, "{}", name="now"))]
    (made,) = (call.id for call in reconcile_stream([*chunks, finished()], TOOLS).tool_calls)
    taken = call_chunk(entry(1, "{}", given_id=made, name="now"))
    ids = [call.id for call in reconcile_stream([*chunks, taken, finished()], TOOLS).tool_calls]
    assert ids[1] == made
    assert ids[0] != made


def test_calls_in_text_can_be_left_there():
    content = '<tool_call>{"name": "now", "arguments": {}}</tool_call>'
    reconciler = StreamReconciler(TOOLS, text_calls=False)
    assert reconciler.feed(chunk({"content": content})) == content
    reconciler.feed(finished("stop"))
    result = reconciler.finish()
    assert (result.tool_calls, result.content) == ((), content)


def test_connection_loss_is_an_error_only_before_the_end():
    for chunks, lost in (
        ([chunk({"content": "a"}), finished("stop")], False),
        ([finished("stop"), chunk({"content": "a"})], True),
    ):
        reconciler = StreamReconciler()
        for one in chunks:
            reconciler.feed(one)
        reconciler.fail("interrupted", "the connection was lost")
        result = reconciler.finish()
        assert (result.error is not None) is lost
        assert str(result.error) == ("interrupted: the connection was lost" if lost else "None")


def test_first_error_wins():
    reconciler = StreamReconciler()
    reconciler.feed({"error": {"message": "first", "code": 502}})
    reconciler.fail("interrupted", "second")
    assert (reconciler.finish().error.message, reconciler.finish().error.status) == ("first", 502)


@pytest.mark.parametrize("bad", ["data: {", b"\xff\xfe", "[1]", "5", "{" * 100_000])
def test_chunk_that_is_not_a_json_object_is_a_stream_error(bad):
    chunks = [chunk({"content": "a"}), bad, finished("stop")]
    result = reconcile_stream(chunks)
    assert (result.error.code, result.content) == ("bad_chunk", "a")


@pytest.mark.parametrize("bad", [5, object(), [chunk({})]])
def test_chunk_of_another_type_raises_type_error(bad):
    with pytest.raises(TypeError, match="a chunk must be a mapping"):
        reconcile_stream([bad])


def test_one_chunk_may_contain_several_lines():
    text = "".join(f"data: {json.dumps(one)}\r\n\r\n" for one in pieces_of(1, 2))
    assert reconcile_stream([text.encode()], TOOLS) == reconcile_stream(pieces_of(1, 2), TOOLS)
    several = "\n".join(json.dumps(one) for one in pieces_of(1, 2))
    assert reconcile_stream([several], TOOLS) == reconcile_stream(pieces_of(1, 2), TOOLS)


def test_answer_becomes_a_message_of_the_next_request():
    extra = {"extra_content": {"google": {"thought_signature": "s"}}}
    chunks = [
        call_chunk({**entry(0, '{"query": "é"}', given_id="functions.search:0", name="search"), **extra}),
        call_chunk(entry(1, '{"query": ', given_id="b", name="search")),
        finished("length"),
    ]
    assert reconcile_stream(chunks, TOOLS).as_message() == {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                **extra,
                "id": "functions.search:0",
                "type": "function",
                "function": {"name": "search", "arguments": '{"query": "é"}'},
            },
            {"id": "b", "type": "function", "function": {"name": "search", "arguments": "{}"}},
        ],
    }
    assert reconcile_stream([chunk({"content": "hi"}), finished("stop")]).as_message() == {
        "role": "assistant",
        "content": "hi",
    }


def test_results_are_frozen():
    call = StreamCall("a", "f", {})
    with pytest.raises(AttributeError):
        call.name = "g"


@pytest.mark.parametrize(
    "arguments",
    [
        {"city": "\ud83d\ude00 \ud800"},
        '{"city": "\\ud83d\\ude00 \\ud800"}',
        '{"city": "\ud83d\ude00 \ud800"}',
        json.dumps('{"city": "\\ud83d\\ude00 \\ud800"}'),
    ],
    ids=["object", "escaped", "unescaped", "JSON in JSON"],
)
def test_surrogates_in_arguments_are_combined_or_replaced(arguments):
    call = {"index": 0, "id": "a", "type": "function", "function": {"name": "get_weather", "arguments": arguments}}
    result = reconcile_stream([chunk({"tool_calls": [call]}), finished("tool_calls")], TOOLS)
    assert [call.arguments for call in result.executable] == [{"city": "\U0001f600 \ufffd"}]


def test_surrogates_in_arguments_of_text_calls_are_combined_or_replaced():
    text = '<tool_call>{"name": "get_weather", "arguments": {"city": "\\ud83d\\ude00 \\ud800"}}</tool_call>'
    result = reconcile_stream([chunk({"content": text}), finished("stop")], TOOLS)
    assert [call.arguments for call in result.executable] == [{"city": "\U0001f600 \ufffd"}]
