from each_row import each_row

from dsa.generators.streams.offered_tools import has_grown, read_object, read_value


@each_row(
    ("text", "value", "rescues"),
    [
        ('{"a": 1}', {"a": 1}, ()),
        ('{"a": "x\ny"}', {"a": "x\ny"}, ("control_characters",)),
        ('{"a": 1,}', {"a": 1}, ("trailing_comma",)),
        ('{"a": [1, 2, ] , }', {"a": [1, 2]}, ("trailing_comma",)),
        ('{"a": ",}"}', {"a": ",}"}, ()),
        ("{'a': True, 'b': None, 'c': False}", {"a": True, "b": None, "c": False}, ("python_literal",)),
        ("""{'it\\'s': "True 'x'"}""", {"it's": "True 'x'"}, ("python_literal",)),
        ("{'a': 'x\\x41\\n\\d \"'}", {"a": 'xA\n\\d "'}, ("python_literal",)),
        ("{'a': 1,}", {"a": 1}, ("python_literal", "trailing_comma")),
        ('"{\\"a\\": 1}"', {"a": 1}, ("double_encoded",)),
        ("\"{'a': 1}\"", {"a": 1}, ("double_encoded", "python_literal")),
        ('{"a": truest}', None, ()),
        ('{"a": Trues}', None, ()),
        ("[1]", None, ()),
        ('"x"', None, ()),
        ("5", None, ()),
        ("{'a': {1, 2}}", None, ()),
        ("{'a': (1, 2)}", None, ()),
        ("{'a': b'x'}", None, ()),
        ("{1: 2}", None, ()),
        ('{"a": NaN}', None, ()),
        ('{"a": -Infinity}', None, ()),
        ('{"a": 1', None, ()),
        ('{"a": "b"', None, ()),
        ('{"a": ' + "9" * 5000 + "}", None, ()),
        ('{"a": ' * 100_000, None, ()),
        ("{'a': " * 100_000, None, ()),
        ('{"a": "' + '\\"' * 50_000, None, ()),
        ("", None, ()),
    ],
)
def test_objects_are_read_and_other_text_is_not(text, value, rescues):
    reading = read_object(text)
    assert (reading.value, reading.rescues if value is not None else ()) == (value, rescues)


def test_json_that_is_not_an_object_is_recognized():
    assert [read_object(text).json for text in ("[1]", "5", '"x"', "null", "{", "x")] == [True] * 4 + [False] * 2
    assert read_value("[1,]").value == [1]


@each_row(
    ("before", "after", "told"),
    [
        ({}, {"a": 1}, True),
        ({"a": "x"}, {"a": "xy", "b": 1}, True),
        ({"a": [1]}, {"a": [1, 2]}, True),
        ({"a": None}, {"a": 1}, True),
        ({"a": 1}, {"a": 2}, False),
        ({"a": 1}, {"a": True}, False),
        ({"a": "x"}, {"a": "y"}, False),
        ({"a": 1}, {"b": 1}, False),
        ({"a": [1, 2]}, {"a": [1]}, False),
    ],
)
def test_has_grown_recognizes_an_extended_value(before, after, told):
    assert has_grown(before, after) is told
