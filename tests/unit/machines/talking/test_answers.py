"""What an answer brings, as the data of an event: what a server says that it took is counts, or nothing."""

import pytest

from dsa.generators.streams import StreamResult
from machines.talking.answers import answer_told


@pytest.mark.parametrize("odd", ["NaN", "12", -1, -(10**30), 10**30, True, 1.5, [1], {"a": 1}, float("nan")])
def test_a_count_that_is_not_one_is_unknown(odd):
    usage = {"prompt_tokens": odd, "completion_tokens": 3, "cost": 0.5}
    _, told = answer_told(StreamResult(content="hi", finish_reason="stop", usage=usage), lambda name, _: name)
    assert told["usage"] == {"prompt_tokens": None, "completion_tokens": 3, "cost_usd": 0.5}


@pytest.mark.parametrize("odd", ["0.5", -1e308, -0.1, float("inf"), float("nan"), True, 10**400, [1]])
def test_a_cost_that_is_not_one_is_unknown(odd):
    usage = {"prompt_tokens": 2, "completion_tokens": 3, "cost": odd}
    _, told = answer_told(StreamResult(content="hi", finish_reason="stop", usage=usage), lambda name, _: name)
    assert told["usage"] == {"prompt_tokens": 2, "completion_tokens": 3, "cost_usd": None}
