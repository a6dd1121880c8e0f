import subprocess

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsa.edge.git_objects import message_of, record_in
from dsa.runtime.artifacts import AttemptRecord
from dsa.runtime.content import Usage
from dsa.runtime.ledger import GuardVerdict, VerdictEntry

PIECES = [
    "\n",
    "  | ",
    "|",
    "\\",
    "\\u0041",
    "Verdict: passed",
    "\0",
    "\r",
    "---",
    "\ud800",
    "é",
    " ",
    "\t",
    "Dsa-Record: x",
]
TEXTS = st.text(st.characters(exclude_categories=()), max_size=20) | st.lists(st.sampled_from(PIECES)).map("".join)
IDS = st.text("0123456789abcdef", min_size=64, max_size=64)
SECONDS = st.floats(allow_nan=False)
USAGES = st.builds(
    Usage,
    TEXTS,
    SECONDS,
    st.none() | st.integers(0),
    st.none() | st.integers(0),
    st.none() | st.floats(allow_nan=False),
)
ATTEMPTS = st.builds(
    AttemptRecord, IDS, TEXTS, st.integers(), IDS, st.none() | IDS, st.lists(IDS).map(tuple), TEXTS, st.none() | USAGES
)
OUTCOMES = st.sampled_from(["passed", "failed", "fatal"])
REVIEWS = st.builds(GuardVerdict, TEXTS, st.just("fatal"), TEXTS, st.just(value=True))
JUDGEMENTS = st.lists(st.builds(GuardVerdict, TEXTS, OUTCOMES, TEXTS) | REVIEWS, max_size=3).map(tuple)
VERDICTS = st.builds(VerdictEntry, TEXTS, TEXTS, st.integers(), IDS, JUDGEMENTS, SECONDS)


@given(TEXTS, ATTEMPTS | VERDICTS)
def test_record_survives_a_round_trip(run, record):
    path = ""
    if isinstance(record, AttemptRecord):
        path, record = "a/b", attrs.evolve(record, run_id=run)
    assert record_in(message_of(run, record, path).decode("utf-8")) == (record, path)


@given(TEXTS, ATTEMPTS | VERDICTS)
def test_message_is_printable(run, record):
    message = message_of(run, record).decode("utf-8")
    assert all(character.isprintable() or character in "\n\t" for character in message)
    subject, blank, *block = message.removesuffix("\n").split("\n")
    assert subject.strip()
    assert blank == ""
    assert all(line.strip() for line in block), "a blank line would end git's block of trailers"


def test_git_reads_the_same_trailers():
    said = (GuardVerdict("tests", "failed", "first\n\nVerdict: passed\n | x"), GuardVerdict("lint", "passed"))
    message = message_of("r", VerdictEntry("2/1", "impl", 3, "ab", said, 0.5))
    command = ["git", "interpret-trailers", "--parse", "--unfold"]
    shown = subprocess.run(command, input=message, capture_output=True, check=True).stdout.decode()
    assert [line.rstrip() for line in shown.splitlines()] == [
        "Dsa-Record: verdict",
        "Run: r",
        "Step: impl",
        "Attempt: 3",
        "Artifact: ab",
        "Verdict: failed",
        "Guard: tests",
        "Outcome: failed",
        "Feedback: | | first |  | Verdict: passed |  | x",
        "Guard: lint",
        "Outcome: passed",
        "Feedback:",
        "Seconds: 0.5",
        "Key: 2/1",
    ]


@pytest.mark.parametrize(
    "message", ["", "\n", "by hand\n", "by hand\n\nSigned-off-by: me\n", "x\n\ny\n\nDsa-Record: artifact"]
)
def test_foreign_commit_message_is_not_a_record(message):
    assert record_in(message) is None


@pytest.mark.parametrize("lost", ["Attempt", "Artifact", "Content-Digest", "Generator", "Path", "Seconds"])
def test_missing_part_of_a_record_is_named(lost):
    lines = message_of("r", AttemptRecord("a", "s", 1, "d", usage=Usage("m", 0.5)), "s").decode().split("\n")
    message = "\n".join(line for line in lines if not line.startswith(f"{lost}:"))
    with pytest.raises(ValueError, match=f"trailer {lost} is missing"):
        record_in(message)


def test_record_is_read_after_git_strips_trailing_whitespace():
    record = VerdictEntry("", "impl", 3, "ab", (GuardVerdict("g", "failed", "x\n\ny"), GuardVerdict("h", "passed")))
    message = message_of("", record).decode()
    assert record_in("\n".join(line.rstrip() for line in message.split("\n"))) == (record, "")
