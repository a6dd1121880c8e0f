"""The time limit covers the analysis of long conditions, before a search and in proofs."""

import itertools

import pytest

from dsa.checks.proof.prover import prove
from dsa.checks.properties import Questions, judge
from dsa.checks.report import check
from dsa.checks.search import python_engine
from dsa.checks.search.engine import SearchLimits, SearchResult
from dsa.errors import UndecidedError
from dsa.ground_system import Ground, GroundWatch, ground
from dsa.lang import loads
from dsa.machine import Machine
from dsa.system import closed_system


def disjuncts(count: int) -> Machine:
    """Return a machine with two rows of `count` disjuncts each for one event, and an `else` row."""
    first = " or ".join(f"(n == {2 * i} and m != {i})" for i in range(count))
    second = " or ".join(f"(n == {2 * i + 1} and m != {i + 3})" for i in range(count))
    return loads(f"""# many
## Variables
| variable | domain        | initial |
| -------- | ------------- | ------- |
| n        | 0..{2 * count} | 0       |
| m        | 0..{2 * count} | 0       |
| k        | 0..9          | 0       |
## Transitions
| source | event | if                | update | target |
| ------ | ----- | ----------------- | ------ | ------ |
| s      | go    | {first}           | n = m  | =      |
| s      | go    | {second}          | m = n  | =      |
| s      | go    | else              | n = k  | =      |
| s      | up    | n < {2 * count}   | n += 1 | =      |
| s      | more  | m < {2 * count}   | m += 1 | =      |
| s      | most  | k < 9             | k += 1 | =      |
## Properties
- n == 1 leads to m == 1
""")


#: A clock that advances by a second at each reading is read this often before the search, if deciding conditions does not read it.
TICKS = 200


@pytest.mark.parametrize("count", [18, 24, 40])
def test_check_decides_no_condition_after_its_time(count: int) -> None:
    clock = itertools.count().__next__
    report = check(disjuncts(count), time_limit_s=TICKS, clock=clock)
    assert [result.verdict for result in report.properties] == ["UNKNOWN"]
    assert [found.code for found in report.diagnostics if found.severity == "error"] == ["DSA312"]
    (exploration,) = report.explorations
    assert exploration.limit == "the time limit"


@pytest.mark.parametrize("count", [18, 24, 40])
def test_proof_decides_no_condition_after_its_time(count: int) -> None:
    clock = itertools.count().__next__
    report = prove(disjuncts(count), time_limit_s=TICKS, clock=clock)
    (proof,) = report.properties
    assert (proof.verdict, proof.how) == ("UNKNOWN", "the time limit was reached before a result")


COUNTERS = """# counters
## Variables
| variable | domain | initial |
| -------- | ------ | ------- |
| a        | 0..69  | 0       |
| b        | 0..69  | 0       |
## Transitions
| source | event | if     | update | target |
| ------ | ----- | ------ | ------ | ------ |
| s      | up    | a < 69 | a += 1 | =      |
| s      | more  | b < 69 | b += 1 | =      |
| s      | down  | else   | a = 0  | =      |
## Properties
- a == 1 leads to b == 1 assuming fair more
- a == 1 leads to b == 1
"""


def test_search_result_is_not_analysed_after_the_time_limit() -> None:
    """The time runs out at the moment when the search for the property ends."""
    searches = itertools.count()
    over = []

    def engine(here: Ground, watches: tuple[GroundWatch, ...], limits: SearchLimits) -> SearchResult:
        found = python_engine.search(here, watches, limits)
        over.extend([True] if next(searches) else [])
        return found

    machine = loads(COUNTERS)
    forms = [claim.form for claim in machine.properties]
    questions, limits = Questions(closed_system(machine), forms), SearchLimits(10**6, lambda: bool(over))
    found = judge(questions, questions.search(limits, engine), limits, engine=engine)
    assert [found[form].verdict for form in forms] == ["UNKNOWN", "UNKNOWN"]
    assert found[forms[0]].reason == "the time limit was reached before the results were examined"


def test_only_many_items_are_stopped_by_the_time_limit() -> None:
    late = ground(closed_system(loads(COUNTERS)), is_late=lambda: True)
    assert len(list(late.timely(range(100)))) == 100
    with pytest.raises(UndecidedError):
        list(late.timely(range(10_000)))
