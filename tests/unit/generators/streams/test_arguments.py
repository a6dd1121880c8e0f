import pytest
from each_row import each_row

from dsa.generators.streams.call_slots import Arguments


def gathered(*pieces):
    arguments = Arguments()
    for piece in pieces:
        arguments.append(piece)
    return arguments


@each_row(
    ("pieces", "values", "rescues"),
    [
        (['{"a": ', '{"a": 1}}'], [{"a": {"a": 1}}], ()),
        (['{"a": ', '{"a": ', '{"a": 1}}}'], [{"a": {"a": {"a": 1}}}], ()),
        (['{"a": 1', '{"a": 1}'], [{"a": 1}], ("cumulative_arguments",)),
        (["{", '{"a": 1', ', "b": 2}'], [{"a": 1, "b": 2}], ("cumulative_arguments",)),
        (["{", '{"a": 1}', '"{\\"a\\": 1}"'], [{"a": 1}], ("cumulative_arguments", "repeated_arguments")),
        (['{"a": 1}', "  "], [{"a": 1}], ()),
        (['{"a": 1}', "}"], [{"a": 1}], ("repeated_arguments",)),
        (['{"a": 1}', '{"a"'], [{"a": 1}], ("repeated_arguments",)),
        (['{"a": 1}', '{"a": 1, "b": 2}'], [{"a": 1, "b": 2}], ("cumulative_arguments",)),
        (["{}", "{}", '{"a": 1}'], [{"a": 1}], ("cumulative_arguments",)),
        (['{"a": 1}{"a": 2}', '{"a": 2}{"a": 3}'], [{"a": 1}, {"a": 2}, {"a": 3}], ("joined_calls",)),
        (["{'a': 1}", '{"a": 1}'], [{"a": 1}], ("repeated_arguments", "python_literal")),
        (["", " "], [{}], ("empty_arguments",)),
    ],
)
def test_pieces_settle(pieces, values, rescues):
    settled = gathered(*pieces).settle(cut=False)
    assert (list(settled.values), settled.rescues, settled.error) == (values, rescues, None)


@each_row(
    ("pieces", "cut", "error"),
    [
        (['{"a": 1'], False, "truncated_arguments"),
        (['{"a": 1', '{"a": 1'], False, "truncated_arguments"),
        (['{"a": 1}', '{"b": '], False, "invalid_arguments"),
        (['{"a": 1}', "x"], False, "invalid_arguments"),
        (["tru"], False, "invalid_arguments"),
        (["tru"], True, "truncated_arguments"),
        (["[1]"], True, "invalid_arguments"),
        ([""], True, "truncated_arguments"),
        (["null"], True, "truncated_arguments"),
        (["{" * 5000 + "}" * 5000], False, "invalid_arguments"),
    ],
)
def test_what_is_no_object_has_an_error(pieces, cut, error):
    settled = gathered(*pieces).settle(cut=cut)
    assert (settled.values, settled.error) == ((), error)


def test_a_value_that_is_nested_deeply_is_compared_with_itself():
    deep = '{"a": ' * 300 + "1" + "}" * 300
    assert gathered(deep, deep[:-300] + "2" + "}" * 299).settle(cut=False).error is not None
    assert len(gathered(deep, deep.replace("1", "2")).settle(cut=False).values) == 2


def test_a_piece_repeats_what_is_complete_or_does_not():
    arguments = gathered('{"a": ', "1}")
    assert arguments.complete
    assert [arguments.repeats(piece) for piece in (None, "", "\n", '{"a"', '{"a":1}', '"{\\"a\\": 1}"')] == [True] * 6
    assert [arguments.repeats(piece) for piece in ('{"b"', '{"a": 2}', "x")] == [False] * 3
    assert not gathered('{"a": ').repeats("{")


def test_by_chance_all_pieces_joined_may_look_whole():
    """Each piece has all so far; joined, brackets and quotes happen to close."""
    arguments = gathered('{"', '{"":null,"}')
    assert not arguments.complete_before("{")
    arguments.append('{"":null,"}":null}')
    assert arguments.complete_before("{")
    assert arguments.settle(cut=False).values == ({"": None, "}": None},)


@pytest.mark.parametrize(
    ("pieces", "following"),
    [
        (['{"a": ', '{"a": 1}'], "}"),
        (['{"a": ', '{"a": 1}'], ', "b": 2}'),
        (['{"a": ', '{"a": 1}, '], '"b": 2}'),
        (['{"', '{":null,"]'], '":null}'),
    ],
)
def test_by_chance_one_piece_may_look_like_all(pieces, following):
    """It begins like what was before it, and is the inner part of an object, or its brackets happen to close."""
    arguments = gathered(*pieces)
    assert not arguments.complete
    assert not arguments.complete_before(following)


def test_a_piece_that_has_all_so_far_is_whole_before_the_next_call():
    arguments = gathered('{"a": ', '{"a": 1}')
    assert all(arguments.complete_before(piece) for piece in (None, "", "{", '{"b": 1}', '"{'))
