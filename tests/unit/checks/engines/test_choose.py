"""The choice of an engine, seen by its name in the result. Sizes are small, so that nothing here takes long."""

from unittest.mock import patch

import attrs
import families
import pytest
from example_machines import chain, compare, jugs, ranged

from dsa.checks.search import exploration, numpy_engine, python_engine
from dsa.checks.search.engine import SearchLimits, SearchResult
from dsa.checks.search.exploration import automatic
from dsa.declarations import Variable
from dsa.edge.processes import compile_library as compile_c
from dsa.errors import DsaError
from dsa.expr import Integer
from dsa.ground_system import Ground, ground
from dsa.machine import Machine
from dsa.system import closed_system

UNLIMITED = SearchLimits(10**9)


def grounded(machine: Machine) -> Ground:
    return ground(closed_system(machine))


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(exploration, "TRIALS", 1_000)


def searched(machine: Machine, limits: SearchLimits = UNLIMITED, **more) -> SearchResult:
    return automatic(**more)(grounded(machine), (), limits)


def test_small_search_stays_in_python():
    assert searched(jugs()).engine == "python"


def test_large_search_goes_to_numpy():
    found = searched(families.any_order(5, 3))
    assert (found.engine, found.configurations) == ("numpy", 43_751)


def test_each_rule_tried_on_a_configuration_counts(monkeypatch):
    machine = families.any_order(5, 3)
    for trials, engine in ((50_000, "numpy"), (100_000, "python")):  # 43,751 configurations, several rules on some
        monkeypatch.setattr(exploration, "TRIALS", trials)
        assert searched(machine).engine == engine


def test_search_with_thin_layers_stays_in_python():
    found = searched(chain(2001))
    assert (found.engine, found.configurations, found.complete) == ("python", 4006, True)


def test_search_without_numpy_stays_in_python(monkeypatch):
    monkeypatch.setattr(numpy_engine, "is_installed", lambda: False)
    found = searched(families.any_order(5, 3))
    assert (found.engine, found.configurations) == ("python", 43_751)


def test_search_that_numpy_must_hash_goes_to_c_if_there_is_a_compiler(monkeypatch):
    monkeypatch.setattr(numpy_engine, "MAX_BYTES", -1)
    machine = families.any_order(5, 3)
    assert searched(machine).engine == "numpy"
    found = searched(machine, compile_c=compile_c)
    assert (found.engine, found.configurations) == ("compiled", 43_751)


def test_failing_compiler_is_skipped(monkeypatch):
    def broken(_: str):
        raise DsaError("no")

    monkeypatch.setattr(numpy_engine, "MAX_BYTES", -1)
    assert searched(families.any_order(5, 3), compile_c=broken).engine == "numpy"


def test_search_wider_than_64_bits_stays_in_python():
    machine = families.any_order(5, 3)
    unused = Variable("unused", "environment", ranged(0, 2**62), Integer(0))
    found = searched(attrs.evolve(machine, variables=(*machine.variables, unused)))
    assert (found.engine, found.configurations) == ("python", 43_751)


def test_search_too_large_for_memory_goes_to_decision_diagrams():
    with patch.object(exploration, "MAX_HELD", 10_000):
        machine = families.any_order(12, 3)
        found = searched(machine, SearchLimits(10**10))
        assert (found.engine, found.configurations) == ("bdd", families.any_order_configurations(12, 3))
        assert searched(machine, SearchLimits(9_000)).engine == "numpy"  # the limit is too low to need diagrams


def test_machine_too_large_for_python_is_not_tried_there_again():
    tried = []

    def first(*search):
        tried.append(search)
        return python_engine.search(*search)

    engine, large, other = (
        automatic(first=first),
        grounded(families.any_order(5, 3)),
        grounded(families.any_order(5, 3)),
    )
    assert [engine(large, (), UNLIMITED).engine for _ in range(3)] == ["numpy"] * 3
    assert len(tried) == 1
    engine(other, (), UNLIMITED)
    assert len(tried) == 2


def test_limits_hold_with_every_engine():
    for most in (100, 400, 600, 10_000):
        found = searched(families.any_order(5, 3), SearchLimits(most))
        assert not found.complete
        assert found.configurations > most
    looks = iter([False] * 30 + [True] * 10)
    assert not searched(families.any_order(5, 3), SearchLimits(10**9, is_expired=lambda: next(looks))).complete


def test_search_that_reaches_its_limit_in_python_stays_there(monkeypatch):
    monkeypatch.setattr(exploration, "TRIALS", 10_000)
    assert searched(families.any_order(5, 3), SearchLimits(3_000)).engine == "python"


def test_watches_are_hit_with_every_engine():
    system = grounded(families.any_order(5, 3))
    watches = system.watches([(0, compare("r_1", "==", 2)), (0, compare("r_1", "==", 0))])
    hits = automatic()(system, [watch for watch in watches if watch], UNLIMITED).hits
    assert hits[0] is not None
    assert hits[1] == system.start
