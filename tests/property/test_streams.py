"""Streams give the right calls or none, whatever the arguments, however they are cut, and in whatever manner a provider sends them.

Manners are the ways of the shapes in `tests/streams/`, each a function from calls and cuts to chunks.
"""

import json
from itertools import pairwise

import attrs
import pytest
from hypothesis import HealthCheck, example, given, settings, strategies
from sample_sizes import sample_size
from stream_shapes import SHAPES, TOOLS, call_chunk, chunk, entry, finished

from dsa.generators import StreamReconciler, reconcile_stream
from dsa.generators.streams import RESCUES, STREAM_ERRORS
from dsa.runtime.speech import split_speech
from dsa.text import is_unicode

NAMES = ("get_weather", "search", "now")
BRIEF = settings(deadline=None, max_examples=sample_size(12, full=40))
LONG = settings(deadline=None, max_examples=sample_size(30, full=500), suppress_health_check=list(HealthCheck))

TEXTS = strategies.text(strategies.sampled_from("ab{}[]\"'\\:, \n\té\U0001f600</>`"), max_size=12)
VALUES = strategies.recursive(
    strategies.none() | strategies.booleans() | strategies.integers(-99, 99) | TEXTS,
    lambda inner: strategies.lists(inner, max_size=3) | strategies.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
OBJECTS = strategies.dictionaries(TEXTS, VALUES, max_size=4)


@strategies.composite
def written(draw, objects=OBJECTS):
    """Arguments, and one way to write them down."""
    value = draw(objects)
    separators = draw(strategies.sampled_from([(",", ":"), (", ", ": "), (" ,\n ", " :\t")]))
    return value, json.dumps(value, ensure_ascii=draw(strategies.booleans()), separators=separators)


@strategies.composite
def cut(draw, text):
    """The pieces of a text, cut anywhere."""
    places = draw(strategies.lists(strategies.integers(0, len(text)), max_size=8))
    borders = [0, *sorted(places), len(text)]
    return [text[a:b] for a, b in pairwise(borders)]


@strategies.composite
def calls(draw, most=3):
    """Calls as (id, name, arguments, pieces of their text)."""
    made = []
    for number in range(draw(strategies.integers(1, most))):
        value, text = draw(written())
        made.append((f"call_{number}", draw(strategies.sampled_from(NAMES)), value, draw(cut(text))))
    return made


def got(result):
    assert set(result.rescues) <= set(RESCUES)
    assert all(call.id for call in result.tool_calls)
    return [(call.name, call.arguments) for call in result.tool_calls]


def right(made):
    return [(name, value) for _, name, value, _ in made]


# -- manners: each gives the chunks of some calls -----------------------------------------------------------------------


def as_openai(made):
    for index, (given_id, name, _, pieces) in enumerate(made):
        yield call_chunk(entry(index, "", given_id=given_id, name=name))
        yield from (call_chunk(entry(index, piece)) for piece in pieces)


def id_and_name_with_every_piece(made):
    for index, (given_id, name, _, pieces) in enumerate(made):
        yield from (call_chunk(entry(index, piece, given_id=given_id, name=name)) for piece in pieces)


def never_an_id(made):
    for index, (_, name, _, pieces) in enumerate(made):
        yield call_chunk(entry(index, "", name=name))
        yield from (call_chunk(entry(index, piece)) for piece in pieces)


def the_word_null(made):
    for index, (_, name, _, pieces) in enumerate(made):
        yield call_chunk(entry(index, "", given_id="null", name=name))
        yield from (call_chunk(entry(index, piece, given_id="null")) for piece in pieces)


def index_0_for_all(made):
    for given_id, name, _, pieces in made:
        yield call_chunk(entry(0, "", given_id=given_id, name=name))
        yield from (call_chunk(entry(0, piece)) for piece in pieces)


def without_index(made):
    for given_id, name, _, pieces in made:
        yield call_chunk({"id": given_id, "function": {"name": name, "arguments": pieces[0]}})
        yield from (call_chunk({"function": {"arguments": piece}}) for piece in pieces[1:])


def a_new_id_with_every_piece(made):
    for index, (given_id, name, _, pieces) in enumerate(made):
        yield call_chunk(entry(index, "", given_id=given_id, name=name))
        for number, piece in enumerate(pieces):
            yield call_chunk(entry(index, piece, given_id=f"{given_id}_{number}"))


def id_and_name_last(made):
    for index, (given_id, name, _, pieces) in enumerate(made):
        yield from (call_chunk(entry(index, piece)) for piece in pieces)
        yield call_chunk(entry(index, "", given_id=given_id, name=name))


def the_index_drifts(made):
    index = 0
    for given_id, name, _, pieces in made:
        index += 10
        yield call_chunk(entry(index, "", given_id=given_id, name=name))
        yield from (call_chunk(entry(index + 1 + number % 5, piece)) for number, piece in enumerate(pieces))


def one_id_for_all(made):
    for index, (_, name, _, pieces) in enumerate(made):
        yield call_chunk(entry(index, "", given_id="same", name=name))
        yield from (call_chunk(entry(index, piece)) for piece in pieces)


def all_so_far(made):
    for index, (given_id, name, _, pieces) in enumerate(made):
        yield call_chunk(entry(index, "", given_id=given_id, name=name))
        for number in range(len(pieces)):
            yield call_chunk(entry(index, "".join(pieces[: number + 1])))


def all_so_far_index_0(made):
    for given_id, name, _, pieces in made:
        for number in range(len(pieces)):
            yield call_chunk(entry(0, "".join(pieces[: number + 1]), given_id=given_id, name=name))


def all_again_at_the_end(made):
    for index, (given_id, name, _, pieces) in enumerate(made):
        yield call_chunk(entry(index, "", given_id=given_id, name=name))
        yield from (call_chunk(entry(index, piece)) for piece in pieces)
        yield call_chunk(entry(index, "".join(pieces), given_id=given_id, name=name))


def all_again_in_pieces(made):
    for index, (given_id, name, _, pieces) in enumerate(made):
        for number, piece in enumerate([*pieces, *pieces]):
            yield call_chunk(entry(index, piece, **({} if number else {"given_id": given_id, "name": name})))


def a_summary_encoded_twice(made):
    yield from as_openai(made)
    for index, (given_id, name, _, pieces) in enumerate(made):
        yield call_chunk(entry(index, json.dumps("".join(pieces)), given_id=given_id, name=name))


def encoded_twice(made):
    for index, (given_id, name, _, pieces) in enumerate(made):
        text = json.dumps("".join(pieces))
        yield call_chunk(entry(index, "", given_id=given_id, name=name))
        yield from (call_chunk(entry(index, text[at : at + 3])) for at in range(0, len(text), 3))


def an_empty_object_first(made):
    for index, (given_id, name, _, pieces) in enumerate(made):
        yield call_chunk(entry(index, "{}", given_id=given_id, name=name))
        yield from (call_chunk(entry(index, piece)) for piece in pieces)


def as_objects(made):
    for index, (given_id, name, value, _) in enumerate(made):
        yield call_chunk({"index": index, "id": given_id, "function": {"name": name, "arguments": value}})


def as_python_writes(made):
    for index, (given_id, name, value, _) in enumerate(made):
        text = repr(value)
        yield call_chunk(entry(index, "", given_id=given_id, name=name))
        yield from (call_chunk(entry(index, text[at : at + 2])) for at in range(0, len(text), 2))


def as_ollama(made):
    for _, name, value, _ in made:
        message = {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": name, "arguments": value}}]}
        yield {"message": message, "done": False}


MANNERS = [
    as_openai, id_and_name_with_every_piece, never_an_id, the_word_null, index_0_for_all, without_index,
    a_new_id_with_every_piece, id_and_name_last, the_index_drifts, one_id_for_all, all_so_far, all_so_far_index_0,
    all_again_at_the_end, all_again_in_pieces, a_summary_encoded_twice, encoded_twice, an_empty_object_first, as_objects,
    as_python_writes, as_ollama,
]  # fmt: skip


@pytest.mark.parametrize("manner", MANNERS, ids=lambda manner: manner.__name__)
@BRIEF
@given(made=calls())
@example([("call_0", "search", {"a": {"a": 1}}, ['{"a": ', '{"a": 1}', "}"])])
@example([("call_0", "search", {"a": {"a": 1}, "b": 2}, ['{"a": ', '{"a": 1}, ', '"b": 2}'])])
@example([("call_0", "search", {"{": None, "]": None}, ['{"', '{":null,"]', '":null}'])])
@example([("call_0", "search", {"": None, "}": None}, ['{"', '":null,"}', '":null}'])])
def test_arguments_cut_in_any_way_give_the_right_calls(manner, made):
    check(manner, made)


@pytest.mark.full
@pytest.mark.parametrize("manner", MANNERS, ids=lambda manner: manner.__name__)
@LONG
@given(made=calls(most=5))
def test_arguments_cut_in_many_ways_give_the_right_calls(manner, made):
    check(manner, made)


def check(manner, made):
    result = reconcile_stream([*manner(made), finished()], TOOLS)
    assert got(result) == right(made)
    assert (result.error, result.finish_reason) == (None, "tool_calls")
    if manner is as_openai:
        assert result.rescues == {}
        assert [call.id for call in result.tool_calls] == [given_id for given_id, *_ in made]


@BRIEF
@given(made=calls(most=4), data=strategies.data())
def test_pieces_of_several_calls_may_be_interleaved(made, data):
    waiting = {index: list(pieces) for index, (*_, pieces) in enumerate(made)}
    chunks = [call_chunk(*(entry(index, "", given_id=one[0], name=one[1]) for index, one in enumerate(made)))]
    while left := [index for index, pieces in waiting.items() if pieces]:
        chosen = data.draw(strategies.lists(strategies.sampled_from(left), min_size=1, max_size=3))
        chunks.append(call_chunk(*(entry(index, waiting[index].pop(0)) for index in chosen if waiting[index])))
    assert got(reconcile_stream([*chunks, finished()], TOOLS)) == right(made)


@pytest.mark.parametrize("manner", MANNERS, ids=lambda manner: manner.__name__)
@BRIEF
@given(
    made=calls(), data=strategies.data(), finish=strategies.sampled_from([None, "length", "error", "content_filter"])
)
def test_broken_off_stream_executes_only_complete_calls(manner, made, data, finish):
    """An empty object at the start looks like the arguments of a tool that needs none."""
    chunks = list(manner(made))
    kept = chunks[: data.draw(strategies.integers(0, len(chunks) - 1))]
    result = reconcile_stream([*kept, *([finished(finish)] if finish else [])], TOOLS)
    whole = right(made)
    for call in result.executable:
        unneeded = manner is an_empty_object_first and (call.name, call.arguments) == ("now", {})
        assert (call.name, call.arguments) in whole or unneeded
    if finish in {None, "error"}:
        assert result.executable == ()
        assert result.error is not None


# -- calls in the text --------------------------------------------------------------------------------------------------

WAYS = {
    "Hermes": lambda name, text: f'<tool_call>\n{{"name": "{name}", "arguments": {text}}}\n</tool_call>',
    "never closed": lambda name, text: f'<tool_call>{{"name": "{name}", "arguments": {text}}}',
    "bare": lambda name, text: f'{{"name": "{name}", "parameters": {text}}}',
    "function=": lambda name, text: f"<function={name}>{text}</function>",
    "Kimi": lambda name, text: (
        f"<|tool_calls_section_begin|><|tool_call_begin|>functions.{name}:0<|tool_call_argument_begin|>{text}"
        "<|tool_call_end|><|tool_calls_section_end|>"
    ),
    "Mistral": lambda name, text: f"[TOOL_CALLS]{name}[ARGS]{text}",
    "Mistral's list": lambda name, text: f'[TOOL_CALLS][{{"name": "{name}", "arguments": {text}}}]',
    "python_tag": lambda name, text: f'<|python_tag|>{{"name": "{name}", "parameters": {text}}}',
    "toolcall": lambda name, text: f"<toolcall><name>{name}</name><arguments>{text}</arguments></toolcall>",
}


@pytest.mark.parametrize("way", WAYS)
@BRIEF
@given(
    one=written(),
    name=strategies.sampled_from(NAMES),
    before=strategies.sampled_from(["", "Let me look.\n"]),
    data=strategies.data(),
)
def test_call_in_the_text_is_found_however_the_text_is_cut(way, one, name, before, data):
    value, text = one
    content = (before if way != "bare" else "") + WAYS[way](name, text)
    reconciler = StreamReconciler(TOOLS)
    shown = "".join(reconciler.feed(chunk({"content": piece})) for piece in data.draw(cut(content)))
    reconciler.feed(finished("stop"))
    result = reconciler.finish()
    assert got(result) == [(name, value)]
    assert result.content == (before.strip() if way != "bare" else "")
    assert shown.strip() == result.content


@pytest.mark.parametrize("way", WAYS)
@BRIEF
@given(
    one=written(),
    name=strategies.sampled_from(NAMES),
    keep=strategies.integers(0, 200),
    finish=strategies.sampled_from([None, "length", "stop"]),
)
def test_broken_off_text_executes_no_other_call(way, one, name, keep, finish):
    value, text = one
    content = WAYS[way](name, text)[:keep]
    result = reconcile_stream([chunk({"content": content}), *([finished(finish)] if finish else [])], TOOLS)
    assert all((call.name, call.arguments) == (name, value) for call in result.executable)


@BRIEF
@given(
    strategies.lists(
        strategies.sampled_from(
            ["<tool_call>", "</tool_call>", "<function=rm>", '{"name": "rm", "arguments": {}}', "`", "```\n", "[TOOL_CALLS]", " word ",
             "\n", '<invoke name="rm">', "</think>", "<|python_tag|>", '{"name": "search"}', "<parameter=x>", "{", "}", '"'],
        ),
        max_size=12,
    )
)  # fmt: skip
@example(["```\n", "<tool_call>", "```\n"])
def test_tool_that_was_not_offered_is_never_called(parts):
    content = "".join(parts)
    result = reconcile_stream([chunk({"content": content}), finished("stop")], TOOLS)
    assert {call.name for call in result.tool_calls} <= {"search"}
    assert result.tool_calls or result.content == split_speech(content).answer


# -- anything at all ----------------------------------------------------------------------------------------------------

KEYS = strategies.sampled_from(
    ["choices", "delta", "message", "tool_calls", "function", "name", "arguments", "id", "index", "content", "error",
     "finish_reason", "usage", "extra_content", "function_call", "done", "reasoning_content", "type", "text", "code"]
)  # fmt: skip
JSON = strategies.recursive(
    strategies.none() | strategies.booleans() | strategies.integers() | strategies.floats(allow_nan=False) | TEXTS
    | strategies.sampled_from(["search", "null", "{", '{"a": 1}', "stop", "<tool_call>", "0"]),
    lambda inner: strategies.lists(inner, max_size=3) | strategies.dictionaries(KEYS, inner, max_size=4),
    max_leaves=15,
)  # fmt: skip
DELTAS = strategies.dictionaries(KEYS, JSON, max_size=4)
CHUNKS = strategies.dictionaries(KEYS, JSON, max_size=3) | DELTAS.map(chunk) | DELTAS.map(call_chunk)


@BRIEF
@given(strategies.lists(CHUNKS, max_size=6))
@example([chunk({"content": [{"type": []}]})])
def test_any_chunk_gives_a_result(chunks):
    result = reconcile_stream(chunks, TOOLS)
    got(result)
    assert result.error is None or result.error.code in STREAM_ERRORS
    assert len({call.id for call in result.tool_calls}) == len(result.tool_calls)
    json.dumps(result.as_message())


@BRIEF
@given(strategies.lists(strategies.sampled_from([chunk for shape in SHAPES for chunk in shape.chunks]), max_size=8))
def test_chunks_of_all_shapes_in_any_order_give_the_same_result_each_time(chunks):
    result = reconcile_stream(chunks, TOOLS)
    assert result == reconcile_stream(chunks, TOOLS)
    assert all((call.arguments is None) == (call.error is not None) for call in result.tool_calls)


# -- what is said, however it is cut -------------------------------------------------------------------------------------

SAID = strategies.lists(
    strategies.sampled_from(
        ["<think>", "</think>", "<|channel|>", "analysis", "final", "commentary", " to=functions.search", "<|message|>", "<|start|>", "assistant",
         "<|end|>", "<|call|>", "<|return|>", " <|constrain|>json", '{"query": "a"}', '{"query": "\ud83d', '\ude00"}', "`", "```\n", "\n", " ", "word",
         '"', "<", "<|", "|>", "\ud83d", "\ude00", "\U0001f600", "<tool_call>", '{"name": "search", "arguments": {"query": "a"}}', "</tool_call>"],
    ),
    max_size=14,
).map("".join)  # fmt: skip


@settings(deadline=None, max_examples=sample_size(36, full=400))
@given(text=SAID, data=strategies.data())
def test_text_gives_the_same_result_however_it_is_cut(text, data):
    whole = reconcile_stream([chunk({"content": text}), finished("stop")], TOOLS)
    pieces = data.draw(cut(text))
    assert reconcile_stream([*(chunk({"content": piece}) for piece in pieces), finished("stop")], TOOLS) == whole
    message = {"choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}]}
    unstreamed = reconcile_stream([message], TOOLS)
    assert (unstreamed.tool_calls, unstreamed.content, unstreamed.reasoning) == (
        tuple(
            attrs.evolve(call, id=made.id) for call, made in zip(whole.tool_calls, unstreamed.tool_calls, strict=True)
        ),
        whole.content,
        whole.reasoning,
    )
    assert not whole.content or is_unicode(whole.content)


@BRIEF
@given(text=TEXTS, data=strategies.data())
def test_arguments_are_the_same_when_characters_are_cut_in_half(text, data):
    written = json.dumps({"query": text}, ensure_ascii=data.draw(strategies.booleans()))
    halves = written.encode("utf-16-le", "surrogatepass")
    units = "".join(chr(int.from_bytes(halves[at : at + 2], "little")) for at in range(0, len(halves), 2))
    pieces = data.draw(cut(units))
    chunks = [call_chunk(entry(0, "", given_id="a", name="search")), *(call_chunk(entry(0, piece)) for piece in pieces)]
    assert got(reconcile_stream([*chunks, finished()], TOOLS)) == [("search", {"query": text})]
