"""Complete suites: within the bound, no implementation that differs passes."""

import random
from itertools import product

import pytest
from agents import OFF_BY_ONE, Adapted, Automaton, adapted

from dsa.edge.document_files import load
from dsa.errors import DsaError
from dsa.lang import loads
from dsa.semantics import Occurrence, Refusal
from dsa.testing import DisagreementError, Observation, StatechartMachine, SteppedMachine, complete_suite, graph_of

ALL = Observation(state=True, values=("satisfied", "retries"), pending=True, reasons=True)


def moves_of(graph):
    """Return an explored machine as a table: for each configuration and occurrence, effects (None: refused) and the next."""
    table = []
    for place in range(len(graph.configurations)):
        row = {}
        for occurrence in graph.alphabet:
            answer = graph.answer(place, occurrence)
            effects = None if isinstance(answer, Refusal) else answer.effects
            row[occurrence] = (effects, graph.index[answer.configuration])
        table.append(row)
    return table


def equal(left, right):
    """Return whether two tables answer every sequence alike."""
    known, waiting = {(0, 0)}, [(0, 0)]
    while waiting:
        one, other = waiting.pop()
        for occurrence, (answer, after) in left[one].items():
            answered, afterwards = right[other][occurrence]
            if answer != answered:
                return False
            if (after, afterwards) not in known:
                known.add((after, afterwards))
                waiting.append((after, afterwards))
    return True


def passes(suite, table, expected):
    """Return whether a table passes a suite; the expected table is played beside it."""
    for test in suite.tests:
        here = there = 0
        for occurrence in test:
            answer, here = table[here][occurrence]
            wanted, there = expected[there][occurrence]
            if answer != wanted:
                return False
    return True


def minimal(table):
    """Return the table with equal states made one: the classes of Moore's refinement."""
    classes = [0] * len(table)
    while True:
        signatures = [(classes[n], tuple((a, classes[t]) for a, t in row.values())) for n, row in enumerate(table)]
        numbers = {}
        refined = [numbers.setdefault(signature, len(numbers)) for signature in signatures]
        if len(numbers) == len(set(classes)):
            break
        classes = refined
    first = {number: classes.index(number) for number in sorted(set(classes))}
    return [{o: (a, classes[t]) for o, (a, t) in table[place].items()} for place in first.values()]


def changed(table, state, occurrence, answer, after):
    return [
        {o: (answer, after) if (n, o) == (state, occurrence) else move for o, move in row.items()}
        for n, row in enumerate(table)
    ]


def answers_of(table):
    return list(dict.fromkeys(answer for row in table for answer, _ in row.values()))


def one_change(table):
    """Return every table that differs in one transition: in its target or in its answer."""
    for state, row in enumerate(table):
        for occurrence, (answer, after) in row.items():
            for target in range(len(table)):
                if target != after:
                    yield changed(table, state, occurrence, answer, target)
            for other in answers_of(table):
                if other != answer:
                    yield changed(table, state, occurrence, other, after)


def with_copies(table, count, chance):
    """Return a table with `count` more states, copies in a chain before which some transition leads, and one change in the last."""
    longer = [dict(row) for row in table]
    state, occurrence = chance.choice([(n, o) for n, row in enumerate(table) for o in row])
    answer, after = longer[state][occurrence]
    for _ in range(count):
        longer.append(dict(longer[after]))
        longer[state][occurrence] = (answer, len(longer) - 1)
        state = len(longer) - 1
        occurrence = chance.choice(list(table[0]))
        answer, after = longer[state][occurrence]
    other = chance.choice([a for a in answers_of(table) if a != answer])
    longer[state][occurrence] = (other, after) if chance.random() < 0.5 else (answer, chance.randrange(len(longer)))
    return longer


DUAL_STATE = graph_of(load("dual_state"))
TABLE = moves_of(DUAL_STATE)
SMALL = minimal(TABLE)


@pytest.mark.parametrize(("extra", "tests"), [(0, 64), (1, 345), (2, 1_781)])
def test_suite_of_dual_state_has_a_known_number_of_tests(extra, tests):
    suite = complete_suite(DUAL_STATE, extra)
    assert (len(suite.tests), suite.states, suite.configurations, len(suite.inputs)) == (tests, 10, 15, 5)


def test_every_change_of_one_transition_is_found():
    suite = complete_suite(DUAL_STATE)
    assert passes(suite, SMALL, TABLE)
    mutants = [mutant for mutant in one_change(SMALL) if not equal(mutant, TABLE)]
    assert len(mutants) > 600
    assert not any(passes(suite, mutant, TABLE) for mutant in mutants)


@pytest.mark.parametrize("count", [300, pytest.param(1_500, marks=pytest.mark.full)])
@pytest.mark.parametrize("extra", [1, 2])
def test_every_mutant_with_more_states_is_found(extra, count):
    suite, chance = complete_suite(DUAL_STATE, extra), random.Random(extra)
    mutants = [with_copies(SMALL, extra, chance) for _ in range(count)]
    different = [mutant for mutant in mutants if not equal(mutant, TABLE)]
    assert len(different) > count / 2
    assert not any(passes(suite, mutant, TABLE) for mutant in different)


def test_suite_for_fewer_extra_states_misses_some_mutants():
    """Otherwise the bound would mean nothing."""
    chance = random.Random(2)
    mutants = [m for m in (with_copies(SMALL, 2, chance) for _ in range(300)) if not equal(m, TABLE)]
    assert any(passes(complete_suite(DUAL_STATE, 0), mutant, TABLE) for mutant in mutants)


TOGGLE = loads("""# toggle
## Transitions
| source | event | effects | target |
| - | - | - | - |
| off | press | light | on |
| on | press | | off |
| on | hold | light | = |
""")


@pytest.mark.parametrize("extra", [0, 1])
def test_only_equal_automata_within_the_bound_pass(extra):
    """Every automaton with two or three states over two inputs and three answers."""
    graph = graph_of(TOGGLE)
    table, suite = moves_of(graph), complete_suite(graph, extra)
    answers, count = ((), ("light",), None), 2 + extra
    choices = list(product(answers[:2] if extra else answers, range(count)))
    passed = 0
    for moves in product(choices, repeat=2 * count):
        other = [dict(zip(graph.alphabet, moves[2 * n : 2 * n + 2], strict=True)) for n in range(count)]
        if extra:  # one answer is fixed, so that there are not too many: off, hold is refused
            other[0][Occurrence("hold")] = (None, other[0][Occurrence("hold")][1])
        if passes(suite, other, table):
            passed += 1
            assert equal(other, table)
    assert passed


PARTIAL = loads("""# partial
## Guards
| guard | judges |
| - | - |
| g | check |
| h | check |
## Transitions
| source | event | if | effects | target |
| - | - | - | - | - |
| one | check | g.passed | next | two |
| one | check | else | | = |
| two | check | h.passed | done | one |
| two | check | else | again | = |
| two | skip | | | one |
""")


def test_occurrence_that_is_malformed_in_a_state_is_not_tried_there():
    suite = complete_suite(PARTIAL, 1)
    assert {guard for test in suite.tests for guard, _ in test[0].verdicts} == {"g"}
    suite.run(lambda: SteppedMachine(PARTIAL))


def test_states_that_differ_only_in_their_guards_need_the_state_observed():
    with pytest.raises(DsaError, match="observe the state too"):
        complete_suite(load("workflow"))
    assert complete_suite(load("workflow"), observation=Observation(state=True)).states == 51


@pytest.mark.parametrize("extra", [0, pytest.param(1, marks=pytest.mark.full)])
@pytest.mark.parametrize("observed", [Observation(), ALL])
@pytest.mark.parametrize("make", [SteppedMachine, StatechartMachine])
def test_our_engines_pass(make, observed, extra):
    suite = complete_suite(DUAL_STATE, extra, observation=observed)
    engine = make(DUAL_STATE.machine)  # started anew for each test
    coverage = suite.run(lambda: engine)
    assert coverage.rows == set(range(6))
    assert coverage.tests == len(suite.tests)


@pytest.mark.full
@pytest.mark.parametrize(("make", "extra"), [(SteppedMachine, 1), (StatechartMachine, 0)])
def test_our_engines_pass_for_the_workflow(make, extra):
    engine = make(load("workflow").at(rmax=1))
    complete_suite(load("workflow").at(rmax=1), extra, observation=Observation(state=True)).run(lambda: engine)


def test_handwritten_agent_passes_and_a_faulty_one_fails():
    suite = complete_suite(load("dual_state").at(rmax=1), 1)
    suite.run(Adapted)
    with pytest.raises(DisagreementError):
        suite.run(adapted(OFF_BY_ONE))


def test_implementation_that_shows_less_than_promised_is_refused():
    suite = complete_suite(DUAL_STATE, observation=Observation(state=True, values=("retries",), pending=True))
    with pytest.raises(
        TypeError, match=r"the value of retries, the innermost state \(not its parent\), the pending effects"
    ):
        suite.run(lambda: Automaton(TABLE))
    complete_suite(DUAL_STATE).run(lambda: Automaton(TABLE))
    with pytest.raises(TypeError, match="need the reason for each refusal"):
        complete_suite(DUAL_STATE, observation=Observation(reasons=True)).run(lambda: Automaton(TABLE))


def test_claim_says_what_it_rests_on():
    claim = complete_suite(DUAL_STATE, 1, observation=Observation(state=True)).claim
    assert "passes them and has at most 1 more state than the table, it is equivalent to the table at rmax = 3" in claim
    for word in (
        "States of the table: 12",
        "Inputs: 5 occurrences",
        "Output: the effects",
        "its state",
        "Assumed of the implementation: start",
    ):
        assert word in claim


def test_suite_or_graph_over_its_limit_is_refused():
    with pytest.raises(DsaError, match="more than 100 tests"):
        complete_suite(DUAL_STATE, 1, max_tests=100)
    with pytest.raises(DsaError, match="more than 10 configurations") as refused:
        graph_of(load("dual_state"), max_configurations=10)
    assert refused.value.code == "GraphTooLargeError"
