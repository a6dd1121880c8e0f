"""Exports opened in the tools that they are for: the same counts, the same verdicts, the same answers as `step`.

SPIN, TLC, Storm, python-statemachine's SCXML loader, XState in node. A tool that is not installed skips its tests in words.
"""

import random
from pathlib import Path

import attrs
import families
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from outside_tools import node, spin, tlc
from repository import all_machines, shipped_machines

from dsa.checks import explore
from dsa.claims import show
from dsa.expr import Value
from dsa.lang import loads
from dsa.machine import Machine, read_guards
from dsa.meaning import Configuration, Occurrence, Taken, start, step
from dsa.targets import ExportError
from dsa.targets.prism import prism
from dsa.targets.promela import promela
from dsa.targets.scxml import scxml
from dsa.targets.tla import module_name, tla, tla_config
from dsa.targets.xstate import xstate
from dsa.testing.strategies import machines

SHIPPED, ALL = shipped_machines(), all_machines()
#: Every document whose configurations are few, with how many they are.
SMALL = sorted(ALL)
FULL = pytest.mark.full


def count_of(machine: Machine) -> int:
    return explore(machine).configurations


# -- SPIN -------------------------------------------------------------------------------------------------------------

COUNTS = [
    pytest.param(lambda: SHIPPED["dual_state"], 15, id="dual_state"),
    pytest.param(lambda: SHIPPED["workflow"], 67, id="workflow"),
    pytest.param(lambda: SHIPPED["examples/jugs"], 16, id="jugs", marks=FULL),
    pytest.param(lambda: families.two_phase_commit(3), 288, id="two-phase commit 3", marks=FULL),
    pytest.param(lambda: families.ordered(100, 100), 30_402, id="ordered 100/100"),
    pytest.param(lambda: families.any_order(5, 3), 43_751, id="any-order 5/3"),
    pytest.param(lambda: families.two_phase_commit(5), 8_832, id="two-phase commit 5", marks=FULL),
    pytest.param(lambda: families.two_phase_commit(7), 296_448, id="two-phase commit 7", marks=FULL),
    pytest.param(lambda: families.any_order(6, 3), 259_376, id="any-order 6/3", marks=FULL),
    pytest.param(lambda: families.any_order(7, 3), 1_500_001, id="any-order 7/3", marks=FULL),
    pytest.param(lambda: families.any_order(8, 3), 8_515_626, id="any-order 8/3", marks=FULL),
]


def without_claims(machine: Machine) -> Machine:
    return attrs.evolve(machine, properties=())


@pytest.mark.parametrize(
    ("machine", "count"),
    [
        *COUNTS,
        pytest.param(lambda: families.any_order(9, 3), 47_656_251, id="any-order 9/3", marks=FULL),
        pytest.param(lambda: families.ordered(1_000, 1_000), 3_004_002, id="ordered 1000/1000", marks=FULL),
    ],
)
def test_spin_stores_as_many_states(machine, count, tmp_path):
    assert spin(promela(machine()), tmp_path, memory_mb=12_000) == (count, 0)


@FULL
@pytest.mark.parametrize("name", SMALL)
def test_spin_stores_as_many_states_of_every_machine_here(name, tmp_path):
    assert spin(promela(ALL[name]), tmp_path) == (count_of(ALL[name]), 0)


#: Rows that loop, rest, answer with a new question and restart a timer, with claims of every form SPIN can say; whether each holds.
LOOPS = """# loops

## Events
| event | from    |
| ----- | ------- |
| begin | outside |
| again | outside |
| tick  | ask     |
| tock  | ask     |
| stop  | outside |

## Guards
| guard | judges |
| ----- | ------ |
| g     | tock   |

## Variables
| variable | domain | initial |
| -------- | ------ | ------- |
| n        | 0..2   | 0       |
| m        | 0..2   | 1       |

## States
| state | kind    |
| ----- | ------- |
| idle  | initial |
| busy  |         |
| done  | final   |

## Transitions
| source | event     | if       | update       | effects | target |
| ------ | --------- | -------- | ------------ | ------- | ------ |
| idle   | begin     |          |              | ask     | busy   |
| idle   | again     |          |              |         | =      |
| busy   | tick      |          |              | ask     | =      |
| busy   | tock      | g.passed | n = 1        |         | done   |
| busy   | tock      | else     | n = m; m = n | ask     | =      |
| busy   | after 30s |          |              |         | =      |

## Properties
"""
CLAIMS = [
    ("always n < 2", True),
    ("always n == 0", False),
    ("never tick and idle", True),
    ("never tick", False),
    ("never g.failed and busy", False),
    ("possible done", True),
    ("possible done and n == 2", False),
    ("possible idle and begin", False),
    ("on tick: n, m unchanged", True),
    ("on tock: n unchanged", False),
    ("on g.passed: m unchanged", True),
    ("tock only after begin", True),
    ("busy only after idle", True),
    ("done only after tick", False),
    ("at most 1 begin", True),
    ("at most 0 begin", False),
    ("at most 1 ask between ask and (tick or tock)", True),
    ("at most 1 tick between begin and done", False),
    ("begin leads to ask", True),
    ("begin leads to done", False),
    ("begin leads to tick or tock", True),
    ("begin leads to tock", False),
    ("begin leads to tock assuming fair tock", True),
    ("idle leads to busy", False),
    ("pending ask leads to done", False),
    ("tock leads to done or pending ask", True),
    ("busy leads to done assuming fair tock", False),
]


@pytest.mark.parametrize(
    ("claim", "holds"),
    [
        pytest.param(claim, holds, id=claim, marks=() if number % 5 == 1 else FULL)
        for number, (claim, holds) in enumerate(CLAIMS)
    ],
)
def test_spin_judges_properties(claim, holds, tmp_path):
    machine = loads(f"{LOOPS}- {claim}\n")
    assert show(machine.properties[0].form) == claim
    _, errors = spin(promela(machine), tmp_path, define="PROPERTY_1")
    is_witness = claim.startswith("possible")
    assert (errors > 0) == (holds if is_witness else not holds)


# -- TLC --------------------------------------------------------------------------------------------------------------


def tlc_count(machine: Machine, folder: Path) -> tuple[int, list[str]]:
    return tlc(tla(machine), tla_config(machine), module_name(machine), folder)


@pytest.mark.parametrize("name", ["dual_state"])
def test_tlc_finds_as_many_states(name, tmp_path):
    assert tlc_count(SHIPPED[name], tmp_path) == (count_of(SHIPPED[name]), [])


@FULL
@pytest.mark.parametrize(("machine", "count"), COUNTS)
def test_tlc_finds_as_many_states_of_families(machine, count, tmp_path):
    assert tlc_count(machine(), tmp_path) == (count, [])


@FULL
@pytest.mark.parametrize("name", SMALL)
def test_tlc_finds_as_many_states_of_every_machine_here(name, tmp_path):
    assert tlc_count(without_claims(ALL[name]), tmp_path) == (count_of(ALL[name]), [])


TLC_CLAIMS = [
    *(pair for pair in CLAIMS if pair[0].startswith(("always", "never", "on "))),
    ("pending ask leads to done", False),
    ("idle leads to busy", False),
    ("busy leads to n == 0 or n == 1", True),
    ("busy and n == 1 leads to n == 0 assuming fair tock", False),
    ("idle and n == 1 leads to busy", True),
]
#: Two effects, one after the other: what S12 promises is enough.
PROMISED = """# promised

## Events
| event | from    |
| ----- | ------- |
| begin | outside |
| one   | first   |
| two   | second  |
| back  | second  |

## Transitions
| source | event    | effects | target |
| ------ | -------- | ------- | ------ |
| idle   | begin    | first   | a      |
| a      | one      | second  | b      |
| a      | after 1s |         | a      |
| b      | two      |         | c      |
| b      | back     | first   | a      |

## Properties
"""
PROMISED_CLAIMS = [
    ("pending first leads to pending second", True),
    ("a leads to b", True),
    ("a leads to c", False),
    ("b leads to c assuming fair two", True),
    ("idle leads to a", False),
]


@pytest.mark.parametrize(
    ("text", "claim", "holds"),
    [
        pytest.param(text, claim, holds, id=claim, marks=() if number < 1 else FULL)
        for text, claims in ((PROMISED, PROMISED_CLAIMS), (LOOPS, TLC_CLAIMS))
        for number, (claim, holds) in enumerate(claims)
    ],
)
def test_tlc_judges_properties(text, claim, holds, tmp_path):
    _, violated = tlc_count(loads(f"{text}- {claim}\n"), tmp_path)
    assert bool(violated) == (not holds)


@FULL
@pytest.mark.parametrize(("claim", "holds"), PROMISED_CLAIMS)
def test_spin_judges_what_is_promised(claim, holds, tmp_path):
    _, errors = spin(promela(loads(f"{PROMISED}- {claim}\n")), tmp_path, define="PROPERTY_1")
    assert bool(errors) == (not holds)


# -- Storm ------------------------------------------------------------------------------------------------------------


def storm(text: str, folder: Path, *formulas: str) -> tuple[int, list[float], bool]:
    """Build a PRISM model; give its states, the formulas' values at the start, and whether nobody chooses."""
    stormpy = pytest.importorskip("stormpy", reason="stormpy is not installed")
    (folder / "model.pm").write_text(text, encoding="utf-8")
    program = stormpy.parse_prism_program(str(folder / "model.pm"))
    model = stormpy.build_model(program)
    values = []
    for formula in formulas:
        asked = stormpy.parse_properties(formula, program)
        built = stormpy.build_model(program, asked)
        values.append(stormpy.model_checking(built, asked[0]).get_value(built.initial_states[0]))
    return model.nr_states, values, str(model.model_type) == "ModelType.DTMC"


def with_odds(machine: Machine, passed: tuple[float, ...], fatal: float) -> Machine:
    guards = tuple(attrs.evolve(guard, pass_odds=passed, fatal_odds=(fatal,)) for guard in machine.guards)
    return attrs.evolve(machine, guards=guards)


@pytest.mark.parametrize("name", SMALL)
def test_storm_builds_as_many_states(name, tmp_path):
    machine = attrs.evolve(ALL[name], guards=tuple(attrs.evolve(g, pass_odds=()) for g in ALL[name].guards))
    assert storm(prism(machine), tmp_path)[0] == count_of(machine)


@FULL
@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck), phases=(Phase.generate,))
@given(machines(claims=False))
def test_storm_builds_as_many_states_of_random_machines(tmp_path_factory, machine):
    machine = attrs.evolve(machine, guards=tuple(attrs.evolve(guard, pass_odds=()) for guard in machine.guards))
    try:
        text = prism(machine)
    except ExportError:
        return
    found = explore(machine, max_states=2_000)
    if found.complete:
        assert storm(text, tmp_path_factory.mktemp("storm"))[0] == found.configurations


@pytest.mark.parametrize(("n", "r", "p", "q"), [(1, 3, 0.7, 0.01), (3, 3, 0.7, 0.01), (10, 3, 0.9, 0.001)])
def test_storm_finds_the_closed_forms(n, r, p, q, tmp_path):
    """A step passes with odds p g, where g sums the powers of the odds a of one more attempt (notes on the family in families.py)."""
    machine = with_odds(families.ordered(n, r), (p,), q)
    a = 1 - p - q
    g = (1 - a ** (r + 1)) / (1 - a)
    succeeded, calls = (p * g) ** n, sum((p * g) ** i for i in range(n)) * g
    formulas = ('P=? [ F "in_succeeded" ]', 'P=? [ F "in_escalated" ]', 'R{"effect_query_llm"}=? [ C ]')
    states, values, is_chain = storm(prism(machine), tmp_path, *formulas)
    assert is_chain
    assert states == families.ordered_configurations(n, r)
    assert values == pytest.approx([succeeded, sum((p * g) ** i for i in range(n)) * q * g, calls], abs=1e-9)


@pytest.mark.parametrize("n", [1, 2])
def test_storm_finds_odds_that_change_with_every_retry(n, tmp_path):
    """Every step begins anew: how often a guard has failed in a row is forgotten when it passes."""
    machine = with_odds(families.ordered(n, 3), (0.5, 0.8, 0.9), 0.02)
    one, reached = 0.0, 1.0
    for passed in (0.5, 0.8, 0.9, 0.9):
        one, reached = one + reached * passed, reached * (1 - passed - 0.02)
    assert storm(prism(machine), tmp_path, 'P=? [ F "in_succeeded" ]')[1] == pytest.approx([one**n], abs=1e-9)


def test_who_chooses_the_order_chooses_no_odds(tmp_path):
    machine = with_odds(families.any_order(3, 2), (0.7,), 0.01)
    formulas = ('Pmin=? [ F "in_succeeded" ]', 'Pmax=? [ F "in_succeeded" ]')
    states, values, is_chain = storm(prism(machine), tmp_path, *formulas)
    assert not is_chain
    assert states == families.any_order_configurations(3, 2)
    one = sum(0.29**i for i in range(3)) * 0.7
    assert values == pytest.approx([one**3, one**3], abs=1e-6)


# -- walks: what a tool does on random occurrences, and on every scenario ---------------------------------------------


def walk(machine: Machine, seed: int, count: int) -> list[Occurrence]:
    """Draw occurrences as a run from the start meets them, timers left out: mostly what can come, sometimes what cannot."""
    chance, here, found = random.Random(seed), start(machine), []
    for _ in range(count):
        events = list(machine.event_named)
        likely = [event for event in events if machine.rows_for(here.state, event)]
        event = chance.choice(likely if likely and chance.random() < 0.85 else events)
        rows = machine.rows_for(here.state, event)
        verdicts = {guard: chance.choice(machine.guard_named[guard].outcomes) for guard in read_guards(rows)}
        found.append(Occurrence(event, verdicts))
        answer = step(machine, here, found[-1])
        here = answer.configuration
        if here.state in machine.final_states and chance.random() < 0.5:
            break
    return found


def scenario_walks(machine: Machine) -> list[tuple[Machine, list[Occurrence]]]:
    """Give the scenarios of a machine as occurrences at their parameters; those with timers end before the first."""
    found = []
    for scenario in machine.scenarios:
        there, taken = machine.at(dict(scenario.parameters)), list[Occurrence]()
        here = start(there)
        for percept in scenario.steps:
            if percept.event not in there.event_named:
                break
            rows = there.rows_for(here.state, percept.event)
            given = dict.fromkeys(read_guards(rows), "passed") | dict(percept.verdicts)
            taken.append(Occurrence(percept.event, given))
            here = step(there, here, taken[-1]).configuration
        found.append((there, taken))
    return found


def expected_of(machine: Machine, occurrences: list[Occurrence]) -> list[tuple[Configuration, list[str]]]:
    """Give, for each occurrence, where `step` is after it and what it emits."""
    here, found = start(machine), []
    for occurrence in occurrences:
        answer = step(machine, here, occurrence)
        here = answer.configuration
        found.append((here, list(answer.effects) if isinstance(answer, Taken) else []))
    return found


def walks_of(machine: Machine, seeds: int, count: int) -> list[tuple[Machine, list[Occurrence]]]:
    return [(machine, walk(machine, seed, count)) for seed in range(seeds)] + scenario_walks(machine)


# -- python-statemachine's SCXML loader -------------------------------------------------------------------------------


class Parent:
    """Stands where a parent session would: takes what the machine sends to it."""

    def __init__(self):
        self.sent = []

    def send_to_parent(self, event, **_data):
        self.sent.append(event)


def run_scxml(machine: Machine, occurrences: list[Occurrence]) -> list[tuple[str, list[Value], list[str], list[str]]]:
    """Run an export in the loader; give, after each event, the leaf, the data, the flags that are up, and the effects sent."""
    from statemachine.io import load

    ids = Ids(scxml(machine))
    chart = load(ids.text, format="scxml")()  # the loader gives only the first instance of a class its data
    chart._invoke_session = parent = Parent()  # noqa: SLF001  (where the loader looks for the parent)
    found = []
    for occurrence in occurrences:
        parent.sent.clear()
        data = {ids.guard(guard): outcome for guard, outcome in occurrence.verdicts}
        if not chart.is_terminated:
            chart.send(ids.event(occurrence.event), **data)
        leaf = next(state.id for state in chart.configuration if not state.states)
        values = [value for name, value in vars(chart.model).items() if name.startswith("v_")]
        flags = [name for name, value in vars(chart.model).items() if name.startswith("waits_") and value]
        found.append((leaf, values, sorted(flags), [name for name in parent.sent if not name.startswith("cancel")]))
    return found


class Ids:
    """How an export spells names: the exporter gives a name without dots as it is, unless the loader means something by it."""

    def __init__(self, text: str) -> None:
        self.text = text

    @staticmethod
    def _spelled(name: str) -> str:
        return name.replace(".", "_")

    event = guard = state = _spelled

    @staticmethod
    def value(value: Value) -> object:
        return value.replace(".", "_") if isinstance(value, str) else int(value)


def has_timers(machine: Machine) -> bool:
    return any(row.is_timer for row in machine.transitions)


@pytest.mark.parametrize("name", [name for name in ALL if not has_timers(ALL[name])])
def test_the_scxml_loader_agrees_with_step(name):
    for machine, occurrences in walks_of(ALL[name], seeds=5, count=25):
        got = run_scxml(machine, occurrences)
        for occurrence, (here, effects), answer in zip(
            occurrences, expected_of(machine, occurrences), got, strict=True
        ):
            flags = sorted(f"waits_{Ids.state(effect)}" for effect in here.outstanding)
            expected = (Ids.state(here.state), [Ids.value(value) for value in here.values], flags, effects)
            assert answer == expected, occurrence


#: A row that may leave its domain, two that may be enabled at once, an effect that may be emitted twice, each beside an `else`.
REFUSALS = """# refusals

## Variables
| variable | domain | initial |
| -------- | ------ | ------- |
| n        | 0..2   | 0       |

## Events
| event | from    |
| ----- | ------- |
| up    | outside |
| both  | outside |
| ask   | outside |
| told  | tell    |

## Transitions
| source | event | if     | update | effects | target |
| ------ | ----- | ------ | ------ | ------- | ------ |
| s      | up    | n >= 0 | n += 1 |         | =      |
| s      | up    | else   | n = 0  |         | s      |
| s      | both  | n >= 1 |        |         | =      |
| s      | both  | n <= 1 | n = 2  |         | =      |
| s      | both  | else   | n = 0  |         | =      |
| s      | ask   | n > 0  |        | tell    | =      |
| s      | ask   | else   | n = 1  |         | =      |
| s      | told  | n == 2 | n = 0  |         | =      |
| s      | told  | else   |        |         | =      |
"""


def test_the_scxml_loader_refuses_what_step_refuses():
    machine = loads(REFUSALS)
    for seed in range(5):
        occurrences = walk(machine, seed, 40)
        answers = run_scxml(machine, occurrences)
        for (here, effects), (leaf, values, flags, sent) in zip(
            expected_of(machine, occurrences), answers, strict=True
        ):
            expected = (
                here.state,
                list(here.values),
                [f"waits_{effect}" for effect in here.outstanding],
                list(effects),
            )
            assert (leaf, values, flags, sent) == expected


def test_xstate_refuses_what_step_refuses(tmp_path):
    machine = loads(REFUSALS)
    walks = [walk(machine, seed, 40) for seed in range(5)]
    for occurrences, answers in zip(walks, run_xstate(machine, walks, tmp_path), strict=True):
        for (here, effects), answer in zip(expected_of(machine, occurrences), answers, strict=True):
            assert answer == [here.state, list(here.values), sorted(here.outstanding), effects]


# -- XState in node ---------------------------------------------------------------------------------------------------

WALKS = """
import { readFileSync } from 'node:fs';
import { initialTransition, transition } from 'xstate';
import { machine } from './machine.mjs';
const leaf = (snapshot) => [...snapshot.tags][0];
const results = JSON.parse(readFileSync('data.json')).map((events) => {
  let [snapshot] = initialTransition(machine);
  return events.map((event) => {
    let actions = [];
    if (snapshot.status === 'active') [snapshot, actions] = transition(machine, snapshot, event);
    const { waiting, ...values } = snapshot.context;
    const flags = Object.keys(waiting).filter((name) => waiting[name]).sort();
    const effects = actions.map((a) => a.type).filter((t) => t !== 'cancel' && !t.startsWith('xstate.'));
    return [leaf(snapshot), Object.values(values), flags, effects];
  });
});
console.log(JSON.stringify(results));
"""


def run_xstate(machine: Machine, walks: list[list[Occurrence]], folder: Path) -> list[list[object]]:
    data = [[{"type": o.event, "verdicts": dict(o.verdicts)} for o in occurrences] for occurrences in walks]
    found = node({"machine.mjs": xstate(machine)}, WALKS, data, folder)
    assert isinstance(found, list)
    return found


def require_xstate_agrees(name: str, folder: Path, seeds: int, count: int) -> None:
    walks: dict[Machine, list[list[Occurrence]]] = {}
    for machine, occurrences in walks_of(ALL[name], seeds, count):
        walks.setdefault(tuple(machine.constants.items()), []).append((machine, occurrences))
    for number, same in enumerate(walks.values()):
        (machine, _), inner = same[0], folder / str(number)
        inner.mkdir()
        got = run_xstate(machine, [occurrences for _, occurrences in same], inner)
        for (_, occurrences), answers in zip(same, got, strict=True):
            for occurrence, (here, effects), answer in zip(
                occurrences, expected_of(machine, occurrences), answers, strict=True
            ):
                flags = sorted(Ids.state(effect) for effect in here.outstanding)
                assert answer == [here.state, list(here.values), flags, effects], occurrence


@pytest.mark.parametrize(
    "name", ["dual_state", "workflow", "examples/jugs", "columns_states", "s04_refusals", "s05_updates"]
)
def test_xstate_agrees_with_step(name, tmp_path):
    require_xstate_agrees(name, tmp_path, seeds=20, count=30)


@FULL
@pytest.mark.parametrize("name", ALL)
def test_xstate_agrees_with_step_on_every_machine_here(name, tmp_path):
    require_xstate_agrees(name, tmp_path, seeds=50, count=40)


PATHS = """
import { readFileSync } from 'node:fs';
import { getShortestPaths } from 'xstate/graph';
import { machine } from './machine.mjs';
const { events } = JSON.parse(readFileSync('data.json'));
const serializeState = (s) => JSON.stringify([[...s.tags], s.context]);
console.log(JSON.stringify(getShortestPaths(machine, { events, serializeState }).length));
"""


@pytest.mark.parametrize("name", ["dual_state", "workflow", "examples/jugs"])
def test_the_graph_of_xstate_has_as_many_states(name, tmp_path):
    machine = ALL[name]
    events = []
    for event in machine.event_named:
        guards = [guard.name for guard in machine.guards if event in guard.judges] or [None]
        said = [{g: o} if g else {} for g in guards for o in (("passed", "failed", "fatal") if g else ("",))]
        events += [{"type": event, "verdicts": verdicts} for verdicts in said]
    assert node({"machine.mjs": xstate(machine)}, PATHS, {"events": events}, tmp_path) == count_of(machine)
