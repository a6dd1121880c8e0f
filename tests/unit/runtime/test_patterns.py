"""Patterns of users for secrets: their matches, refused patterns, and texts made to be slow."""

import itertools
import re

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from dsa.runtime.secrets import MOST_MATCHES, SecretPattern

LEAVES = st.sampled_from(("a", "b", ".", "[ab]", "[^a]", r"\d", r"\.", "(?i:B)", "é"))
TIMES = st.sampled_from(("*", "+", "?", "{2}", "{1,2}", "{2,}"))
WRITTEN = st.recursive(
    LEAVES,
    lambda inner: (
        st.tuples(inner, inner).map("".join)
        | st.tuples(inner, inner).map(lambda two: f"(?:{two[0]}|{two[1]})")
        | st.tuples(inner, TIMES).map(lambda two: f"(?:{two[0]}){two[1]}")
    ),
    max_leaves=8,
)


@given(WRITTEN, st.text("aabbcAB1. é\n\ud800", max_size=12))
def test_spans_match_the_pattern_and_exist_whenever_re_finds_one(written, text):
    whole = re.compile(written, re.ASCII)
    assume(whole.search("") is None)
    spans = list(SecretPattern(written).spans(text))
    assert all(whole.fullmatch(text, *span) for span in spans)
    assert all(one[1] <= two[0] for one, two in itertools.pairwise(spans))
    assert bool(spans) == (whole.search(text) is not None)


@pytest.mark.parametrize("written", ["(a+)+b", "(a|a)*b", "[a-z]+@", "a*a*a*a*a*a*b", "(?:a?){60}a{60}b", "^(?:a+)+$"])
def test_text_that_re_would_search_for_ever_is_searched(written):
    assert list(SecretPattern(written).spans("a" * 200_000 + "!")) == []


def test_rest_of_a_text_after_too_many_matches_is_a_secret():
    text = "a" * 200_000 + "!"
    spans = list(SecretPattern(".*b|a").spans(text))
    assert spans == [*((place, place + 1) for place in range(MOST_MATCHES)), (MOST_MATCHES, len(text))]


@pytest.mark.parametrize(
    ("written", "fault"),
    [
        ("(", r"'\(' is not a valid regular expression \(RE2.*: missing \)"),
        ("a*", "matches the empty text"),
        (r"(a)\1", "without backreferences.*invalid escape sequence"),
        ("(?<!ab)c", "lookaround.*invalid perl operator"),
        ("((a{1000}){1000}){1000}", "invalid repetition size"),
    ],
)
def test_invalid_pattern_is_refused(written, fault):
    with pytest.raises(ValueError, match=fault):
        list(SecretPattern(written).spans("ab"))


@pytest.mark.parametrize(
    ("written", "text", "found"),
    [
        ("TICKET-[0-9]+", "TICKET-1 TICKET-22TICKET-3", ["TICKET-1", "TICKET-22", "TICKET-3"]),
        (r"\bkey\b", "key keys (key)", ["key", "key"]),
        (r"(?i)pass", "PaSS", ["PaSS"]),
        ("ab|abcd", "abcd", ["abcd"]),
        ("é[A-Z]+", "xéABC é", ["éABC"]),
        (r"(?m)^end$", "end\nend\n", ["end", "end"]),
    ],
)
def test_matches_are_found(written, text, found):
    assert [text[start:stop] for start, stop in SecretPattern(written).spans(text)] == found
