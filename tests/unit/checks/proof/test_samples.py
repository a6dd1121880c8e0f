"""Samples at small parameter values: they agree with the engines, and their paths can be run."""

import attrs
import pytest

from dsa.checks.proof.proof_session import ProofSession, Sampler, valuations
from dsa.checks.search.exploration import explore
from dsa.edge.document_files import load
from dsa.expr import Integer, RangeDomain
from dsa.machine import every_valuation
from dsa.trace import follow


@pytest.mark.parametrize("name", ["specs/dual_state", "specs/workflow", "examples/jugs", "examples/two_phase_commit"])
def test_counts_match_an_exploration(name: str) -> None:
    machine = load(name)
    session = ProofSession(machine, lambda: False)
    for values in list(valuations(machine))[:4]:
        sample = session.sampler.sample(values, 10_000)
        explored = explore(machine.at(values))
        assert (len(sample.configurations), len(sample.edges)) == (explored.configurations, explored.transitions)
        assert sample.complete


def test_paths_are_shortest_and_can_be_run(session: ProofSession) -> None:
    sample = session.own_samples[-1]
    for place, (location, _) in enumerate(sample.configurations):
        way = sample.way_to(place)
        machine = session.machine.at(dict(zip(session.sampler.parameters, sample.parameters, strict=True)))
        trace = follow(machine, (session.system.commands[index].occurrence for index in way))
        assert (trace.steps[-1].state if way else trace.state) == session.system.locations[location].state
    lengths = [len(sample.way_to(place)) for place in range(len(sample.configurations))]
    assert lengths == sorted(lengths)


def test_limit_makes_the_sample_incomplete(session: ProofSession) -> None:
    assert not session.sampler.sample({"rmax": 5}, 3).complete
    assert not session.sampler.sample({"rmax": 5}, 1_000, lambda: True).complete


def test_sampler_can_be_restricted_to_some_commands(session: ProofSession) -> None:
    assert len(Sampler(session.system, [0]).sample({"rmax": 3}, 100).configurations) == 2


def test_valuations_are_listed_only_if_they_are_few() -> None:
    machine = load("dual_state")
    assert every_valuation(machine, 1_000) is None
    bounded = attrs.evolve(machine.parameters[0], domain=RangeDomain(Integer(2), Integer(4)))
    few = attrs.evolve(machine, parameters=(bounded,))
    assert every_valuation(few, 3) == ({"rmax": 2}, {"rmax": 3}, {"rmax": 4})
    assert every_valuation(few, 2) is None
    assert every_valuation(attrs.evolve(machine, parameters=()), 1) == ({},)
