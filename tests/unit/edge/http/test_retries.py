"""Pauses between attempts, as numbers: no test waits."""

import pytest

from dsa.edge.model_server import Retries
from dsa.runtime.generation import GenerationError, ServerFault

GONE = GenerationError("it is gone", "unreachable")


def busy(wait_s):
    return GenerationError("it is busy.", "rate_limit", server=ServerFault(429, wait_s=wait_s))


def test_pauses_grow_until_the_longest_total_wait():
    retries, since_s, pauses = Retries(100, longest_pause_s=60, most_s=60), 0.0, []
    while (pause_s := retries.pause_s(GONE, len(pauses), since_s)) is not None:
        pauses.append(pause_s)
        since_s += pause_s
    assert pauses == [0.5, 1, 2, 4, 8, 16, 28.5]
    assert since_s == 60


def test_server_wait_is_respected_within_the_total_wait():
    retries = Retries(9, longest_pause_s=60, most_s=60)
    assert retries.pause_s(busy(60), 0) == 60
    assert retries.pause_s(busy(40), 1, 20.0) == 40
    assert retries.pause_s(busy(40), 1, 21.0) is None
    assert str(retries.last(busy(40), 2, 21.0)) == (
        "it is busy. The request was tried 2 times. There was no further try: the server asks to wait 40 s, but the longest allowed wait is 60 s in all."
    )


@pytest.mark.parametrize("reason", ["authentication", "not_found", "failed", "bad_answer", "context_too_long"])
def test_permanent_failure_is_not_retried(reason):
    assert Retries(9).pause_s(GenerationError("no", reason), 0) is None


def test_negative_number_of_retries_is_refused():
    with pytest.raises(ValueError, match="too few"):
        Retries(-1)
