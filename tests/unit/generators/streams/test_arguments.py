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
def test_pieces_are_joined_into_arguments(pieces, values, rescues):
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
def test_arguments_that_are_not_an_object_have_an_error(pieces, cut, error):
    settled = gathered(*pieces).settle(cut=cut)
    assert (settled.values, settled.error) == ((), error)


def test_deeply_nested_pieces_are_compared():
    deep = '{"a": ' * 300 + "1" + "}" * 300
    assert gathered(deep, deep[:-300] + "2" + "}" * 299).settle(cut=False).error is not None
    assert len(gathered(deep, deep.replace("1", "2")).settle(cut=False).values) == 2


def test_only_repetitions_of_complete_arguments_count_as_repeats():
    arguments = gathered('{"a": ', "1}")
    assert arguments.complete
    assert [arguments.repeats(piece) for piece in (None, "", "\n", '{"a"', '{"a":1}', '"{\\"a\\": 1}"')] == [True] * 6
    assert [arguments.repeats(piece) for piece in ('{"b"', '{"a": 2}', "x")] == [False] * 3
    assert not gathered('{"a": ').repeats("{")


def test_joined_cumulative_pieces_may_look_complete_by_chance():
    """Each piece repeats everything before it; joined, brackets and quotes happen to close."""
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
def test_piece_that_looks_cumulative_by_chance_is_not_complete(pieces, following):
    """The last piece begins like the earlier ones, but is an inner part of the object, or its brackets happen to close."""
    arguments = gathered(*pieces)
    assert not arguments.complete
    assert not arguments.complete_before(following)


def test_cumulative_piece_is_complete_before_the_next_call():
    arguments = gathered('{"a": ', '{"a": 1}')
    assert all(arguments.complete_before(piece) for piece in (None, "", "{", '{"b": 1}', '"{'))
