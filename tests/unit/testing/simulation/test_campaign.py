"""Results of many seeds: the triples hit and missed, and the breaches in the order of seeds."""

import pytest
import simulations
from simulations import written

from dsa.testing.simulation.story import CampaignResult, Story, enough, play_seeds, simulate

LETTER = written(simulations.LETTER)
FROUGHT = written(f"{simulations.LETTER}\n## Properties\n- never done\n")


def test_first_lap_hits_every_triple():
    outcome = simulate(LETTER, range(120))
    assert (outcome.seeds, outcome.missed_triples(LETTER), outcome.coverage(LETTER)) == (120, (), 1.0)
    assert outcome.breaches == []


def test_triples_that_no_seed_aims_at_are_missed():
    outcome = simulate(LETTER, range(60))
    assert len(outcome.missed_triples(LETTER)) == 60
    assert outcome.coverage(LETTER) == 0.5
    assert set(outcome.missed_triples(LETTER)) == set(LETTER.triples[60:])


def test_figures_add_up_those_of_the_stories():
    stories = [Story(LETTER, seed).play() for seed in range(20)]
    outcome = play_seeds(LETTER, range(20))
    assert outcome.rows == sum(story.rows for story in stories)
    assert outcome.processes == sum(story.lives for story in stories)
    assert outcome.fingerprint == sum(story.fingerprint for story in stories) % 2**64
    assert outcome.faults.total() == sum(len(story.faults) for story in stories)


def test_breaches_are_in_the_order_of_seeds():
    parts = [play_seeds(FROUGHT, range(begin, begin + 30)) for begin in (60, 0, 30)]
    outcome = CampaignResult()
    for part in parts:
        outcome.add(part)
    seeds = [found.seed for found in outcome.breaches]
    assert seeds == sorted(seeds)
    assert len(seeds) > 10
    assert {(found.oracle, found.cites) for found in outcome.breaches} == {
        ("the properties of the document hold", "P12")
    }
    assert outcome == play_seeds(FROUGHT, range(90))


def test_progress_is_reported_after_each_chunk():
    told = []
    simulate(LETTER, range(95), progress=told.append)
    assert told == [40, 80, 95]


@pytest.mark.parametrize(("name", "count"), [("letter", 1_000), ("katas/katas", 11_244)])
def test_enough_seeds_are_three_laps_and_at_least_a_thousand(name, count):
    about = simulations.subject(name)
    assert enough(about) == count == max(1_000, 3 * len(about.triples))
