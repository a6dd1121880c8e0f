"""The simulation finds every fault that is planted in the runtime, and none where there is none; a seed plays one story everywhere."""

import os
import subprocess
import sys
from pathlib import Path
from statistics import median

import attrs
import pytest
import simulations
from crowds import crowded_machines
from hypothesis import HealthCheck, Phase, assume, given, settings
from planted import PLANTED
from simulations import seeds_needed, subject, violations, written

from dsa.checks.report import check
from dsa.declarations import Effect
from dsa.errors import DsaError
from dsa.lang import dumps
from dsa.machine import sleeping_effects
from dsa.testing.simulation.story import CampaignResult, Story, enough, play_seeds, simulate
from dsa.testing.strategies import machines

#: A fault counts as not found after this number of seeds.
MOST = 1_000
#: Seeds of the first lap aim at one triple each; those from here on also have other faults, limits and other ways.
LATER = 10_000
#: The oracle that a run violates because of an error in its table, by the code of the error.
STOPS, SETS = "a run stops only for a cause", "workflow state changes on passed verdicts only"
FORETOLD = {"DSA304": STOPS, "DSA305": STOPS, "DSA306": STOPS, "DSA307": STOPS, "DSA210": SETS}
PROGRAM = Path(simulations.__file__)


@pytest.fixture(autouse=True, scope="module")
def whatever_the_table():
    """Let tables with errors run: this tests the runtime, whatever the table."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dsa.runs.runs.require_sound", lambda _machine: None)
        yield


def foretold(machine):
    """Return the names of the oracles that a table's own errors make its runs violate."""
    bare = attrs.evolve(machine, properties=())
    report = check(bare, parameters=bare.constants)
    return {FORETOLD[each.code] for each in report.diagnostics if each.code in FORETOLD}


def sample(about, count):
    """Return seeds that aim at triples all over the machine, half of them with nothing else wrong."""
    aimed = range(0, len(about.triples), max(1, len(about.triples) * 2 // count))
    return [*aimed[: count // 2], *range(LATER, LATER + count // 2)]


# -- faults that are planted ------------------------------------------------------------------------------------------


def needed(fault, first):
    plant, document = PLANTED[fault]
    about = subject(document)
    about.prepare()
    with plant():
        found = seeds_needed(about, first, MOST)
    assert found is not None, f"{fault}: {MOST} seeds from {first} on have not found it"
    return found[0]


def test_at_least_thirty_faults_are_planted():
    assert len(PLANTED) >= 30


#: Each fault from one of the two starting points, by turns; from the other one, and from more, under `full`.
HUNTS = [
    pytest.param(fault, first, marks=[] if place % 2 == turn else [pytest.mark.full])
    for place, fault in enumerate(PLANTED)
    for turn, first in enumerate((0, LATER))
]


@pytest.mark.parametrize(("fault", "first"), HUNTS)
def test_planted_fault_is_found(fault, first):
    assert needed(fault, first)


#: The oracles that name the faults of several emissions of one effect, and those of sleeps.
NAMED = {
    "an answer is given to another emission": "an answer is fed after its result is recorded",
    "an answer brings the data of another emission": "an answer has the data of its own result",
    "a join is fired twice": "every entry has a cause",
    "more emissions are performed at once than allowed": "no more effects are performed side by side than the table says",
    "the newest waiting emission begins first": "emissions that wait for a place begin in the order of their keys",
    "a place is given back twice": "no more effects are performed side by side than the table says",
    "a waiting emission is in doubt": "an effect that cannot have begun is not in doubt",
    "a sleep answers early": "a sleep ends when it is due",
    "a sleep begins anew after a crash": "no timer is missed",
    "a sleep answers after it was cancelled": "a sleep that is over does not end",
    "a sleep answers twice": "an effect has one result",
    "a sleep is in doubt": "a sleep is never in doubt",
    "a sent event comes before the end of a sleep": "overdue timers come before events from outside",
    "a sleep brings the data of another": "a sleep answers with the data of its request",
    "another emission begins before the result is durable": "an emission begins once durable results make room for it",
}


@pytest.mark.parametrize("fault", NAMED)
def test_planted_fault_is_found_by_the_oracle_that_names_it(fault):
    plant, document = PLANTED[fault]
    with plant():
        found = violations(written(simulations.WRITTEN[document]), range(300))
        assert NAMED[fault] in (each.oracle.name for _, each in found)


@pytest.mark.full
@pytest.mark.parametrize("fault", PLANTED)
def test_median_number_of_seeds_that_find_a_fault_is_reported(fault, told):
    counts = [needed(fault, first) for first in range(0, 21 * LATER, LATER)]
    told(f"simulated runs find that {fault}: median of {median(counts):g} seeds, at most {max(counts)}")


@pytest.mark.parametrize("document", sorted({document for _, document in PLANTED.values()}))
def test_simulation_is_clean_after_faults_were_planted(document):
    assert list(violations(subject(document), sample(subject(document), 10))) == []


# -- where nothing is planted -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", simulations.every_name())
def test_no_oracle_is_violated(name):
    about = subject(name)
    found = {violation.oracle.name for _, violation in violations(about, sample(about, 8))}
    assert found <= foretold(about.machine)


@pytest.mark.full
@pytest.mark.parametrize("name", simulations.every_name())
def test_no_oracle_is_violated_by_a_full_simulation(name, figures):
    about = subject(name)
    outcome = simulate(about, range(enough(about)))
    assert {found.oracle for found in outcome.breaches} <= foretold(about.machine)
    assert outcome.coverage(about) > 0.95 or foretold(about.machine)
    figures(
        "simulated runs",
        name,
        seeds=outcome.seeds,
        triples=len(about.triples),
        missed=len(outcome.missed_triples(about)),
    )


def require_sound(machine, count):
    text = dumps(machine)
    about = written(text)
    try:
        assume(about.triples)
    except DsaError:
        assume(False)  # noqa: FBT003  (its signature)
    found = {violation.oracle.name: seed for seed, violation in violations(about, sample(about, count))}
    if not found.keys() <= foretold(about.machine):
        pytest.fail(f"{found}, and not by any error of its own:\n{text}")


STEADY = settings(phases=(Phase.generate,), deadline=None, database=None, suppress_health_check=list(HealthCheck))


@settings(STEADY, max_examples=15)
@given(machines(claims=False))
def test_no_oracle_is_violated_by_any_machine(machine):
    require_sound(machine, 8)


def in_line(machine):
    """Return the machine with one emission of each effect performed at a time, where several may be outstanding."""
    effects = [attrs.evolve(each, together=1 if each.at_once is not None else None) for each in machine.effects]
    return attrs.evolve(machine, effects=tuple(effects))


@settings(STEADY, max_examples=15)
@given(crowded_machines().map(in_line))
def test_no_oracle_is_violated_by_any_machine_with_several_emissions(machine):
    require_sound(machine, 8)


def asleep(machine):
    """Return the machine with a sleep for each effect that has one answer."""
    effects = [
        Effect(each.name, at_once=each.at_once, shipped_kind="sleep", sleep_ms=1000 * (1 + len(each.name)))
        if len(machine.answers.get(each.name, ())) == 1
        else each
        for each in machine.effects
    ]
    return attrs.evolve(machine, effects=tuple(effects))


@settings(STEADY, max_examples=15)
@given((machines(claims=False) | crowded_machines()).map(asleep))
def test_no_oracle_is_violated_by_any_machine_that_sleeps(machine):
    assume(sleeping_effects(machine))
    require_sound(machine, 8)


@pytest.mark.full
@settings(STEADY, max_examples=600)
@given((machines(claims=False) | crowded_machines()).map(asleep))
def test_no_oracle_is_violated_by_many_machines_that_sleep(machine):
    assume(sleeping_effects(machine))
    require_sound(machine, 60)


@pytest.mark.full
@settings(STEADY, max_examples=600)
@given(crowded_machines().map(in_line))
def test_no_oracle_is_violated_by_many_machines_with_several_emissions(machine):
    require_sound(machine, 60)


@pytest.mark.full
@settings(STEADY, max_examples=600)
@given(machines(claims=False))
def test_no_oracle_is_violated_by_many_machines(machine):
    require_sound(machine, 60)


def test_table_error_is_found_where_a_run_reaches_it():
    timers = {violation.oracle.name for _, violation in violations(subject("s11_timers"), range(60))}
    hasty = written("""# hasty
## Variables
| variable | scope | domain | initial |
| - | - | - | - |
| good | workflow | bool | false |
## Guards
| guard | judges |
| - | - |
| g | made |
## Events
| event | from |
| - | - |
| go | outside |
| made | make |
## Transitions
| source | event | if | update | effects | target |
| - | - | - | - | - | - |
| idle | go | | | make | making |
| making | made | g.fatal | | | idle |
| making | made | else | good = true | | idle |
""")
    assert timers == {STOPS}
    assert {violation.oracle.name for _, violation in violations(hasty, range(60))} == {SETS}


# -- runs that are long, lonely or endless ------------------------------------------------------------------------------


def test_table_that_loops_for_ever_is_not_a_fault_of_the_runtime():
    outcome = simulate(subject("endless"), range(160))
    assert outcome.breaches == []
    assert outcome.missed_triples(subject("endless")) == ()


def test_long_path_is_not_taken_for_an_endless_loop():
    about = simulations.kept("dual_state", rmax=400)
    far = range(0, len(about.triples), 12)
    outcome = simulate(about, far)
    assert outcome.breaches == []
    assert set(outcome.hits) >= {about.triples[seed] for seed in far}


def test_run_may_rest_as_often_as_its_path_is_long():
    counting = subject("counting")
    far = range(len(counting.triples) // 2, len(counting.triples), 4)
    outcome = simulate(counting, far)
    assert outcome.breaches == []
    assert set(outcome.hits) >= {counting.triples[seed] for seed in far}


def test_effect_with_a_time_limit_does_not_begin_after_the_store_has_failed():
    about = subject("pair")
    assert list(violations(about, range(2 * len(about.triples)))) == []


def test_stray_event_is_not_sent_to_a_machine_without_outside_events():
    lonely = written("""# lonely
## Events
| event | from |
| - | - |
| made | make |
## States
| state | kind |
| - | - |
| idle | initial |
| making | |
| done | final |
## Transitions
| source | event | effects | target |
| - | - | - | - |
| idle | after 5s | make | making |
| making | made | | done |
| making | make.failed | make | = |
""")
    assert not any(triple.fault == "stray event" for triple in lonely.triples)
    assert list(violations(lonely, range(LATER, LATER + 500))) == []


# -- one seed, one story ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["dual_state", "parcels", "busy"])
def test_same_seed_plays_the_same_story(name):
    about = subject(name)
    for seed in sample(about, 40):
        told = Story(about, seed, keep_log=True).play()
        assert told == Story(about, seed, keep_log=True).play()
        untold = Story(about, seed).play()
        assert untold == attrs.evolve(told, log=())


def test_same_seed_plays_the_same_story_in_every_process():
    def begun(hash_seed):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        return subprocess.Popen([sys.executable, PROGRAM], stdout=subprocess.PIPE, env=environment)

    processes = [begun(hash_seed) for hash_seed in ("0", "4242")]
    told = [process.communicate(timeout=120)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert told[0].count(b"\nagain: dsa sim ") == 20
    assert told[1] == told[0]


def test_result_does_not_depend_on_how_seeds_are_split():
    about, seeds = subject("busy"), range(60)
    whole, parts = simulate(about, seeds), CampaignResult()
    for part in (seeds[40:], seeds[7:40], seeds[:7]):
        parts.add(play_seeds(about, part[::-1]))
    assert parts == whole
    assert whole.fingerprint != simulate(about, range(1, 61)).fingerprint
