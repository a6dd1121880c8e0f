"""Halves of characters, and numbers that are none."""

import json

import pytest

from machines.talking.texts import as_unicode, is_writable


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("plain", "plain"), ("\N{PARROT} é", "\N{PARROT} é"), ("\ud83e\udd9c", "\N{PARROT}"), ("half \ud83d", "half \ufffd"), ("\udd9c\ud83e", "\ufffd\ufffd"),
        ({"\ud83d": ["a", "\ud83d", 1, None]}, {"\ufffd": ["a", "\ufffd", 1, None]}), (1.5, 1.5), (None, None), ("", ""),
    ],
)  # fmt: skip
def test_what_is_given_is_unicode(given, wanted):
    found = as_unicode(given)
    assert found == wanted
    json.dumps(found, ensure_ascii=False).encode()


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({"a": [1, 2.5, {"b": "x"}]}, True), (None, True), ({"a": [float("inf")]}, False), (float("nan"), False), (10**400, True), ({}, True), ("[" * 99, True),
    ],
)  # fmt: skip
def test_what_json_cannot_write_is_noticed(given, wanted):
    assert is_writable(given) is wanted


def test_what_is_nested_too_deep_is_noticed():
    deep = [[]]
    for _ in range(10_000):
        deep = [deep]
    assert not is_writable(deep)
    assert is_writable([[[[{"a": [1]}]]]])
