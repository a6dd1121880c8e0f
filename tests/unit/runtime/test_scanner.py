import json

from each_row import each_row
from hypothesis import given, settings, strategies

from dsa.runtime.speech import Scanner, end_of_value, values_in


@each_row(
    ("text", "end"),
    [
        ("{}", 2),
        (" {} ", 3),
        ('{"a": "}"} x', 10),
        ('{"a": "\\"}"}', 12),
        ("[{}, []]{", 8),
        ('"a}" ', 4),
        ("{'a': 'it}'}", 12),
        ("{'a': \"it's\"}", 13),
        ('{"a": "\\\\"}', 11),
        ("{", None),
        ('{"a": "}', None),
        ('"', None),
        ("", None),
        ("5", None),
        ("}", 1),
    ],
)
def test_end_of_a_value_is_found(text, end):
    assert end_of_value(text) == end
    for cut in range(len(text)):
        scanner = Scanner()
        scanner.feed(text[:cut])
        scanner.feed(text[cut:])
        assert scanner.end == end


def test_scanner_is_open_between_start_and_end_of_a_value():
    scanner = Scanner()
    told = []
    for piece in (" ", "{", '"a', '": 1', "}", "{"):
        scanner.feed(piece)
        told.append(scanner.open)
    assert told == [False, True, True, True, False, False]


@settings(deadline=None, max_examples=50)
@given(strategies.dictionaries(strategies.text(), strategies.text() | strategies.lists(strategies.integers())))
def test_json_value_ends_with_its_last_character(value):
    text = json.dumps(value)
    assert end_of_value(text) == len(text)
    assert end_of_value("x" + text, 1) == len(text) + 1
    assert values_in(f"{text} {text}{text[:-1]}") == [text, f" {text}", text[:-1]]


def test_consecutive_values_are_split():
    assert values_in('{"a": 1} [2]\n"x" {') == ['{"a": 1}', " [2]", '\n"x"', " {"]
    assert values_in("  ") == []
