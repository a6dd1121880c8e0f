"""Odds of exactly 0 and 1: decided by possibility, and never written for numbers that are only near them."""

from itertools import product

import pytest
from each_row import each_row
from hypothesis import given
from odds_chains import chains

from dsa.checks.odds.chain_solver import is_possible, is_sure, number_text
from dsa.checks.report import check
from dsa.lang import loads

TABLE = """# rare
## Guards
| guard | judges | pass | fatal |
| - | - | - | - |
| g | verdict | {passes} | {fatal} |
## Events
| event | from |
| - | - |
| ask | outside |
| verdict | judge |
## Transitions
| source | event | if | effects | target |
| - | - | - | - | - |
| idle | ask | | judge | busy |
| busy | verdict | g.passed | | succeeded |
| busy | verdict | g.failed | judge | busy |
| busy | verdict | g.fatal | | escalated |
## States
| state | kind |
| - | - |
| idle | initial |
| busy | |
| succeeded | final |
| escalated | final |
## Properties
- {claim}
"""


def reachable(ways, start):
    found = [start]
    for node in found:
        found += [node for node in dict.fromkeys(ways.get(node, ())) if node not in found]
    return found


def by_every_way(chain, goals):
    """Return whether a goal is possible with some way to choose, and sure with every one, by searching the graph of each way."""
    possible, sure = False, True
    for chosen in product(*[range(max(1, len(each))) for each in chain.choices]):
        taken = (each[way] if each else () for each, way in zip(chain.choices, chosen, strict=True))
        graph = {node: [to for chance, to, _ in choice if chance > 0] for node, choice in enumerate(taken)}
        graph |= dict.fromkeys(goals, ())
        met = reachable(graph, 0)
        possible |= any(node in goals for node in met)
        sure &= all(any(node in goals for node in reachable(graph, place)) for place in met)
    return possible, sure


@given(chains())
def test_certainty_agrees_with_every_way_to_choose(drawn):
    chain, worth = drawn
    goals = frozenset(node for node, value in worth.items() if value)
    assert (is_possible(chain, goals), is_sure(chain, goals)) == by_every_way(chain, goals)


@each_row("rarely", ["0.0000001", "0.0000000000000001"])
@each_row(
    ("claim", "verdict"),
    [
        ("succeeded with probability >= 1", "VIOLATED"),
        ("escalated with probability <= 0", "VIOLATED"),
        ("succeeded or escalated with probability >= 1", "HOLDS"),
        ("succeeded and escalated with probability <= 0", "HOLDS"),
    ],
)
def test_uncertain_end_is_never_certain(rarely, claim, verdict):
    report = check(loads(TABLE.format(passes=1 - float(rarely), fatal=rarely, claim=claim)))
    (found,) = report.properties
    assert found.verdict == verdict
    assert verdict == "HOLDS" or not found.reason.startswith(("the probability is 1,", "the probability is 0,"))


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (1.0, "1"),
        (0.5, "0.5"),
        (0.9999999, "0.9999999"),
        (1 - 2**-53, "0.9999999999999999"),
        (1e-17, "1e-17"),
        (12.0, "12"),
    ],
)
def test_number_below_1_is_not_written_as_1(number, text):
    assert number_text(number, 5) == text
