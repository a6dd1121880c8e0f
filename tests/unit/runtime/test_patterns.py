import itertools
import random
import re
import sys
import tracemalloc

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from dsa.runtime.patterns import MOST_PLACES, Pattern

LEAVES = ("a", "b", ".", "[ab]", "[^a]", r"\w", r"\d", r"[a\]]", r"\.", "(?i:B)")
EDGES = (r"\b", r"\B", "^", "$", "(?=a)", "(?!b)", "(?<![ab])", "(?<=1)")


def patterns(edges):
    leaves = st.sampled_from((*LEAVES, *edges))
    times = st.sampled_from(["*", "+", "?", "{2}", "{1,2}", "{2,}", "{,2}"])
    grown = st.recursive(leaves, lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join), st.tuples(inner, inner).map(lambda two: f"({two[0]}|{two[1]})"),
        st.tuples(inner, times).map(lambda two: f"(?:{two[0]}){two[1]}")), max_leaves=8)  # fmt: skip
    return grown.filter(lambda text: re.search(text, "") is None)


def searched(text):
    refused = False
    try:
        return Pattern(text)
    except ValueError as fault:
        refused = "matches the empty text" in str(fault)
    return assume(not refused)


def covered(spans):
    return {place for start, stop in spans for place in range(start, stop)}


texts = st.text("aabbcAB1. \n]", max_size=12)


@given(patterns(()), texts)
def test_what_belongs_to_any_match_is_covered_and_nothing_else(written, text):
    pattern, whole = searched(written), re.compile(written)
    pairs = [(i, j) for i in range(len(text)) for j in range(i + 1, len(text) + 1) if whole.fullmatch(text, i, j)]
    assert covered(pattern.spans(text)) == covered(pairs)
    assert not pairs or pattern.anchor in text


@given(patterns(EDGES), texts)
def test_all_that_re_finds_is_covered(written, text):
    pattern = searched(written)
    spans, found = list(pattern.spans(text)), [match.span() for match in re.finditer(written, text)]
    assert covered(found) <= covered(spans)
    assert bool(spans) == any(start < stop for start, stop in found)
    assert all(before[1] < after[0] for before, after in itertools.pairwise(spans))


@pytest.mark.parametrize(
    "written", ["(a+)+b", "(a|a)*b", "(a|aa)+$", "[a-z]+@", "a*a*a*a*a*a*b", ".*b|a", "(?:a?){60}a{60}b", "^(a+)+$"]
)
def test_a_long_hostile_text_costs_what_its_length_does(written):
    calls, length = 0, 20_000

    def count(_frame, event, _about):
        nonlocal calls
        calls += event == "call"

    pattern = Pattern(written)
    sys.setprofile(count)
    try:
        list(pattern.spans("a" * length + "!"))
    finally:
        sys.setprofile(None)
    assert calls <= 10 * length


@pytest.mark.parametrize(("written", "fault"), [
    ("(", r"'\(' is no regular expression: missing \)"),
    ("a*", "matches the empty text"),
    (r"\b", "matches the empty text"),
    ("(?=a)", "matches the empty text"),
    (r"(a)\1", r"has a reference to a group at character 4, so searching for it could take for ever: write out what may stand there"),
    ("(?P<x>a)(?P=x)", "has a group of another kind .* at character 9"),
    ("(?>a+)b", "has a group of another kind"),
    ("(?x) a", "has a group of another kind"),
    ("'a.*?'", "has lazy repetition at character 5.*: say which characters may repeat"),
    ("a++b", "has possessive repetition"),
    ("a{2,}?", "has lazy repetition"),
    ("(?<!ab)c", "has a look at more than one character at character 1"),
    (f"a{{{MOST_PLACES + 1}}}", r"has 502 characters once its repetitions are written out, more than 500: write \{20,\}"),
    ("((a{1000}){1000}){1000}", "has 1,0.* characters once"),
    ("(" * 20_000 + "a" + ")" * 20_000, "is nested too deeply"),
])  # fmt: skip
def test_a_pattern_that_cannot_be_searched_so_is_refused(written, fault):
    with pytest.raises(ValueError, match=fault):
        Pattern(written)


@pytest.mark.parametrize(("written", "text", "found"), [
    ("TICKET-[0-9]+", "TICKET-1 TICKET-22TICKET-3", ["TICKET-1", "TICKET-22TICKET-3"]),
    (r"(?<![A-Za-z0-9])[A-F0-9]{4}(?![A-Za-z0-9])", "A1B2 A1B2C x-00FF", ["A1B2", "00FF"]),
    (r"\bkey\b", "key keys (key)", ["key", "key"]),
    (r"(?i)pass", "PaSS", ["PaSS"]),
    (r"(?i:a)b", "AbAB", ["Ab"]),
    ("ab|abcd", "abcd", ["abcd"]),
    ("aba", "ababa", ["ababa"]),
    (r"é\x41\u00e9\101\0", "éAéA\0", ["éAéA\0"]),
    (r"[]a-]+", "x]a-x", ["]a-"]),
    (r"a{,2}b{x}", "aab{x}", ["aab{x}"]),
    (r"end$", "end\nend\n", ["end"]),
    (r"(?m)^end$", "end\nend\n", ["end", "end"]),
    (r"\Aa+\Z", "aaa", ["aaa"]),
    ("(?s:a.b)|a.c", "a\nb a\nc", ["a\nb"]),
])  # fmt: skip
def test_what_is_found(written, text, found):
    assert [text[start:stop] for start, stop in Pattern(written).spans(text)] == found


def test_what_is_remembered_is_bounded():
    pattern = Pattern("[ab]*a[ab]{16}c")
    chance = random.Random(4)
    text = "".join(chance.choice("ab") for _ in range(60_000))
    tracemalloc.start()
    assert list(pattern.spans(text)) == []
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 6_000_000
