"""Complete test suites, and tests as text: an implementation that passes and has at most m more states than the table equals it.

The HSI method (Petrenko, Yevtushenko, Lebedev, Das 1993; a W-method, Chow 1978 and Vasilevskii 1973, with harmonised state
identifiers instead of one set W; for partial machines Petrenko and Yevtushenko 2005): reach every state, go on with every sequence of
up to m + 1 inputs, then separate the state that must be reached from all others. `complete_suite` takes an explored machine and an observation,
and returns sequences of occurrences. The minimal automaton and separating sequences (Moore 1956; Gill 1962) separate the states; an input that
is malformed in a state is undefined there.

Tests are written as scenarios for the document, as a pytest file for an implementation, or as one line each, which `read_test` reads
back: `specification; artifact; verdict g.failed`.
"""

import re
from collections import deque
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property

import attrs

from dsa.checks.scenarios import run_scenario
from dsa.declarations import RefusedAction, Scenario, ScenarioStep
from dsa.errors import DsaError, OccurrenceError
from dsa.expr import OUTCOMES, Outcome, Value, show_value
from dsa.immutable import immutable
from dsa.lang import scenario_text
from dsa.machine import Machine
from dsa.semantics import Configuration, Occurrence, Refusal, require_known, start, step
from dsa.testing.explored_graph import Coverage, ExploredGraph, Test, graph_of
from dsa.testing.implementations import MakeImplementation, Observation
from dsa.testing.lockstep import play
from dsa.trace import show_occurrence

InputSequence = tuple[int, ...]


@attrs.frozen(slots=False)
class Mealy:
    """State 0 is the start. `after[state][input]` and `output[state][input]` are None where the input is undefined.

    `view[state]` is what can be observed in a state without an input. `member[state]` is the number of one configuration that it
    stands for, the nearest to the start.
    """

    inputs: tuple[Occurrence, ...]
    after: tuple[tuple[int | None, ...], ...]
    output: tuple[tuple[Hashable | None, ...], ...]
    view: tuple[Hashable, ...]
    member: tuple[int, ...]

    def defined_inputs(self, state: int) -> Iterator[tuple[int, int]]:
        """Return each input that is defined in a state, with the state after it."""
        return ((place, after) for place, after in enumerate(self.after[state]) if after is not None)

    @cached_property
    def access(self) -> tuple[InputSequence, ...]:
        """For each state, a shortest sequence that leads there."""
        sequences: dict[int, InputSequence] = {0: ()}
        queue = deque([0])
        while queue:
            state = queue.popleft()
            for place, after in self.defined_inputs(state):
                if after not in sequences:
                    sequences[after] = (*sequences[state], place)
                    queue.append(after)
        return tuple(sequences[state] for state in range(len(self.after)))

    def separates(self, sequence: InputSequence, left: int, right: int) -> bool:
        """Return whether a sequence is defined in two states and something seen on its way differs."""
        here, there = left, right
        differs = self.view[here] != self.view[there]
        for place in sequence:
            one, other = self.after[here][place], self.after[there][place]
            if one is None or other is None:
                return False
            differs = differs or self.output[here][place] != self.output[there][place]
            here, there = one, other
            differs = differs or self.view[here] != self.view[there]
        return differs

    def separating_sequences(self) -> dict[tuple[int, int], InputSequence]:
        """Return a shortest separating sequence for each pair of states (the smaller first) that has one."""
        count, sequences = len(self.after), dict[tuple[int, int], InputSequence]()
        pairs = [(left, right) for left in range(count) for right in range(left + 1, count)]
        for left, right in pairs:
            if self.view[left] != self.view[right]:
                sequences[left, right] = ()
        has_grown = True
        while has_grown:
            shorter, has_grown = dict(sequences), False
            for pair in pairs:
                if pair not in shorter and (sequence := self._one_longer(*pair, shorter)) is not None:
                    sequences[pair], has_grown = sequence, True
        return sequences

    def _one_longer(self, left: int, right: int, shorter: dict[tuple[int, int], InputSequence]) -> InputSequence | None:
        best: InputSequence | None = None
        for place, one in self.defined_inputs(left):
            other = self.after[right][place]
            if other is None:
                continue
            if self.output[left][place] != self.output[right][place]:
                return (place,)
            rest = shorter.get((min(one, other), max(one, other)))
            if rest is not None and (best is None or len(rest) + 1 < len(best)):
                best = (place, *rest)
        return best


def mealy(graph: ExploredGraph, observation: Observation) -> Mealy:
    """Return the minimal automaton of an explored machine."""
    whole = _whole(graph, observation)
    classes = _classes(whole)
    return _quotient(whole, classes)


def require_separable(automaton: Mealy, graph: ExploredGraph, sequences: dict[tuple[int, int], InputSequence]) -> None:
    """Raise DsaError unless each pair of states has a separating sequence."""
    count = len(automaton.after)
    for left in range(count):
        for right in range(left + 1, count):
            if (left, right) not in sequences:
                one, other = (graph.configurations[automaton.member[state]].state for state in (left, right))
                raise DsaError(
                    f"{one} and {other} differ only in the verdicts they ask for, which no test can see; "
                    "observe the state too (Observation(state=True), --observe state)"
                )


def _whole(graph: ExploredGraph, observation: Observation) -> Mealy:
    """Return the automaton with one state for each configuration."""
    names = [variable.name for variable in graph.machine.variables]
    places = [place for place, name in enumerate(names) if name in observation.values]
    views: list[Hashable] = [
        (
            here.state if observation.state else None,
            tuple(here.values[place] for place in places),
            here.outstanding if observation.pending else None,
        )
        for here in graph.configurations
    ]
    after, output = list[tuple[int | None, ...]](), list[tuple[Hashable | None, ...]]()
    for place in range(len(graph.configurations)):
        answers = [graph.answer(place, occurrence) for occurrence in graph.alphabet]
        after.append(tuple(None if a is None else graph.index[a.configuration] for a in answers))
        output.append(
            tuple(
                None
                if a is None
                else ("refused", a.reason if observation.reasons else None)
                if isinstance(a, Refusal)
                else a.effects
                for a in answers
            )
        )
    return Mealy(graph.alphabet, tuple(after), tuple(output), tuple(views), tuple(range(len(after))))


def _classes(whole: Mealy) -> list[int]:
    """Number the classes of equal states by partition refinement; what is undefined differs from all that is not."""
    signature: list[Hashable] = [(s, o) for s, o in zip(whole.view, whole.output, strict=True)]
    classes, count = _class_numbers(signature)
    while True:
        signature = [
            (classes[place], tuple(None if a is None else classes[a] for a in after))
            for place, after in enumerate(whole.after)
        ]
        finer_classes, finer_count = _class_numbers(signature)
        if finer_count == count:
            return classes
        classes, count = finer_classes, finer_count


def _class_numbers(signature: list[Hashable]) -> tuple[list[int], int]:
    numbers: dict[Hashable, int] = {}
    classes = [numbers.setdefault(item, len(numbers)) for item in signature]
    return classes, len(numbers)


def _quotient(whole: Mealy, classes: list[int]) -> Mealy:
    """Return one state for each class; classes are numbered as their first configurations are met, the start's first."""
    first: dict[int, int] = {}
    for place, number in enumerate(classes):
        first.setdefault(number, place)
    member = tuple(first[number] for number in range(len(first)))
    return Mealy(
        whole.inputs,
        tuple(tuple(None if a is None else classes[a] for a in whole.after[place]) for place in member),
        tuple(whole.output[place] for place in member),
        tuple(whole.view[place] for place in member),
        member,
    )


# -- suites -----------------------------------------------------------------------------------------------------------


#: A suite has at most this many tests, unless the caller allows more.
MAX_TESTS = 100_000
NOTHING = Observation()


@attrs.frozen(field_transformer=immutable)
class CompleteSuite:
    """The tests, and what passing them says. `states` is the number of configurations of the table that tests can separate."""

    machine: Machine = attrs.field(repr=False)
    observation: Observation
    extra: int
    configurations: int
    states: int
    inputs: tuple[Occurrence, ...]
    tests: tuple[Test, ...] = attrs.field(repr=False)

    @property
    def steps(self) -> int:
        """How many occurrences there are in all tests together."""
        return sum(map(len, self.tests))

    @property
    def claim(self) -> str:
        """Return what it means to pass, with what is counted as input, output and state, and what is assumed."""
        values = ", ".join(f"{name} = {show_value(value)}" for name, value in self.machine.constants.items())
        view_text = f", and {self.observation}" if str(self.observation) else ""
        return (
            f"{len(self.tests)} tests, {self.steps} steps. If an implementation passes them and has at most {self.extra} more "
            f"{'state' if self.extra == 1 else 'states'} than the table, it is equivalent to the table{f' at {values}' if values else ''}: for all inputs, "
            "it gives the same answers as the table.\n"
            f"States of the table: {self.states}, those of its {self.configurations} configurations that tests can distinguish. "
            f"Inputs: {len(self.inputs)} occurrences (events that come from outside, answers, timers, with each combination of the verdicts "
            "that are asked for), each in every configuration where it is well formed. "
            f"Output: the effects that the implementation asks for, in order, or a refusal{view_text}.\n"
            "Assumed of the implementation: start begins anew; the same occurrences give the same output; what it shows depends on its state alone, "
            "and showing changes nothing."
        )

    def run(self, make_implementation: MakeImplementation) -> Coverage:
        """Play all tests. Raises DisagreementError at the first difference.

        The implementation must show what `observation` says (TypeError); what it shows beyond is compared too.
        """
        return play(self.machine, make_implementation, self.tests, observation=self.observation)


def complete_suite(
    machine: Machine | ExploredGraph,
    extra: int = 0,
    *,
    observation: Observation = NOTHING,
    parameters: Mapping[str, Value] | None = None,
    max_tests: int = MAX_TESTS,
) -> CompleteSuite:
    """Make the tests that find every implementation which differs and has at most `extra` more states than the table.

    The number of tests grows by about the number of inputs for each extra state. Raises DsaError for a machine that is too large, and when
    there are more tests than `max_tests`, or when the `observation` does not separate two configurations that differ.
    """
    graph = machine if isinstance(machine, ExploredGraph) else graph_of(machine.at(parameters or {}))
    automaton = mealy(graph, observation)
    identifiers = _identifiers(automaton, graph)
    tree = _Tree()
    for access in automaton.access:
        for sequence, state in _continuations(automaton, access, extra + 1):
            for identifier in identifiers[state]:
                tree.add((*sequence, *identifier))
                if tree.leaves > max_tests:
                    raise DsaError(
                        f"a complete suite with {extra} extra states has more than {max_tests} tests here: allow fewer extra states, or "
                        "give smaller parameter values"
                    )
    tests = tuple(tuple(automaton.inputs[place] for place in sequence) for sequence in tree.sequences())
    sizes = len(graph.configurations), len(automaton.after)
    return CompleteSuite(graph.machine, observation, extra, *sizes, automaton.inputs, tests)


def _continuations(automaton: Mealy, access: InputSequence, depth: int) -> Iterator[tuple[InputSequence, int]]:
    """Yield an access sequence with every defined continuation of up to `depth` inputs, and where each leads."""
    state = 0
    for place in access:
        after = automaton.after[state][place]
        assert after is not None, "an access sequence is defined"
        state = after
    layer = [(access, state)]
    yield access, state
    for _ in range(depth):
        layer = [
            ((*sequence, place), after) for sequence, here in layer for place, after in automaton.defined_inputs(here)
        ]
        yield from layer


def _identifiers(automaton: Mealy, graph: ExploredGraph) -> list[tuple[InputSequence, ...]]:
    """Return for each state the sequences that separate it from every other; both states of a pair have the same one (harmonised)."""
    shortest = automaton.separating_sequences()
    require_separable(automaton, graph, shortest)
    family = _few(automaton, shortest)
    identifiers: list[set[InputSequence]] = [set() for _ in automaton.after]
    for left, right in shortest:
        separator = next(sequence for sequence in family if automaton.separates(sequence, left, right))
        identifiers[left].add(separator)
        identifiers[right].add(separator)
    return [_maximal(sequences) for sequences in identifiers]


def _few(automaton: Mealy, shortest: dict[tuple[int, int], InputSequence]) -> list[InputSequence]:
    """Choose few of the shortest separating sequences that together separate all pairs, greedily; short ones first."""
    remaining = set(shortest)
    candidates = sorted(set(shortest.values()), key=lambda sequence: (len(sequence), sequence))
    pairs_by_sequence = {s: {pair for pair in shortest if automaton.separates(s, *pair)} for s in candidates}
    few = []
    while remaining:
        best = max(candidates, key=lambda sequence: (len(pairs_by_sequence[sequence] & remaining), -len(sequence)))
        few.append(best)
        remaining -= pairs_by_sequence[best]
    return few


def _maximal(sequences: set[InputSequence]) -> tuple[InputSequence, ...]:
    """Leave out what is the beginning of another; the only state of an automaton has the empty sequence."""
    maximal = [s for s in sequences if not any(s != other and other[: len(s)] == s for other in sequences)]
    return tuple(sorted(maximal)) or ((),)


class _Tree:
    """Sequences as a prefix tree: the beginning of another sequence is not a test of its own."""

    def __init__(self) -> None:
        self._root: dict[int, dict] = {}  # type: ignore[type-arg]  # nested as deep as the sequences are long
        self.leaves = 1

    def add(self, sequence: InputSequence) -> None:
        node = self._root
        for place in sequence:
            if place not in node:
                self.leaves += bool(node)
                node[place] = {}
            node = node[place]

    def sequences(self) -> Iterator[InputSequence]:
        stack: list[tuple[InputSequence, dict[int, dict]]] = [((), self._root)]  # type: ignore[type-arg]  # as above
        while stack:
            sequence, node = stack.pop()
            if not node:
                yield sequence
            stack.extend(((*sequence, place), node[place]) for place in sorted(node, reverse=True))


_PERCEPT = re.compile(r"(?P<event>after \S+|\S+)(?: of (?P<source>\S+))?(?: (?P<verdicts>\S+\.\w+(?:, \S+\.\w+)*))?")

_FILE = '''"""{title}

{about}
"""

from pathlib import Path

import pytest

import dsa
from dsa.testing import ReplayedMachine, play, read_test, state_machine_test

MACHINE = dsa.load({document}){at}

TESTS = """
{tests}
"""


def make():
    """Return the implementation to test: put your adapter here (`dsa.testing.implementations`). This one is the table itself.

    Walks may restart it at any time, and more than once. This one continues from the ledger of its run. An adapter without `restart` is never restarted.
    """
    return ReplayedMachine(MACHINE)


@pytest.mark.parametrize("line", TESTS.strip().splitlines(), ids=lambda line: line[-60:])
def test_it_does_what_the_table_says(line):
    play(MACHINE, make, [read_test(MACHINE, line)])


#: If one of the tests above fails, that failure is reported, and the walks are left out.
TOUR = [read_test(MACHINE, line) for line in TESTS.strip().splitlines()]
TestWalks = state_machine_test(MACHINE, make, first=TOUR).TestCase
'''


def write_test(test: Iterable[Occurrence]) -> str:
    """Write a test as one line."""
    return "; ".join(map(show_occurrence, test))


def read_test(machine: Machine, line: str) -> Test:
    """Read what `write_test` wrote. Raises OccurrenceError for what is not an occurrence of this machine."""
    return tuple(_read(machine, part.strip()) for part in line.split(";") if part.strip())


def _read(machine: Machine, text: str) -> Occurrence:
    match = _PERCEPT.fullmatch(text)
    if match is None:
        raise OccurrenceError(
            f"'{text}' is not an occurrence; write EVENT, or EVENT GUARD.VERDICT, or after 30s of STATE"
        )
    verdicts: dict[str, Outcome] = {}
    for part in (match["verdicts"] or "").split(", ") if match["verdicts"] else ():
        guard, _, word = part.rpartition(".")
        outcome = next((outcome for outcome in OUTCOMES if outcome == word), None)
        if outcome is None:
            raise OccurrenceError(f"'{part}' is not a verdict; write {guard}.passed, {guard}.failed or {guard}.fatal")
        verdicts[guard] = outcome
    occurrence = Occurrence(match["event"], verdicts, match["source"])
    require_known(machine, occurrence)
    return occurrence


def as_scenario(machine: Machine, test: Test, name: str, parameters: dict[str, Value]) -> Scenario | None:
    """Return a test as a scenario with states and changed values; None when a scenario cannot express it.

    (It cannot name one of several timers of the same duration.)
    """
    steps, here = [], start(machine)
    for occurrence in test:
        percept, here = _percept(machine, here, occurrence)
        steps.append(percept)
    scenario = Scenario(name, tuple(steps), tuple(parameters.items()))
    return scenario if run_scenario(machine, scenario).ok else None


def _percept(machine: Machine, here: Configuration, occurrence: Occurrence) -> tuple[ScenarioStep, Configuration]:
    verdicts = tuple((guard, outcome) for guard, outcome in occurrence.verdicts if outcome != "passed")
    result = step(machine, here, occurrence)
    if isinstance(result, Refusal):
        return ScenarioStep(occurrence.event, verdicts, RefusedAction(result.reason), here.state), here
    after = result.configuration
    values = zip(machine.variables, here.values, after.values, strict=True)
    changes = tuple((variable.name, new) for variable, old, new in values if old != new)
    return ScenarioStep(occurrence.event, verdicts, result.transition.effects, after.state, changes), after


def as_scenarios(
    machine: Machine, tests: Sequence[Test], title: str, parameters: dict[str, Value]
) -> tuple[tuple[str, ...], int]:
    """Return tests as sections of a document, and how many no scenario can express."""
    scenarios = [as_scenario(machine, test, f"{title} {number}", parameters) for number, test in enumerate(tests, 1)]
    sections = tuple(f"## Scenario: {s.name}\n{scenario_text(s)}\n" for s in scenarios if s is not None)
    return sections, len(scenarios) - len(sections)


def as_spec(machine: Machine, sections: Sequence[str], *, document: str, title: str, about: str) -> str:
    """Write sections as a spec. `document` is the machine's path from the file's folder, or a shipped machine's name."""
    return "\n".join([f"# {machine.name}, {title}\n\nMachine: {document}\n\n{about}\n", *sections])


def as_pytest(
    machine: Machine,
    tests: Sequence[Test],
    *,
    document: str,
    is_shipped: bool,
    about: str,
    parameters: dict[str, Value],
) -> str:
    """Write a pytest file. `document` is the machine's path from the file's folder, or a shipped machine's name."""
    values = ", ".join(f"{name!r}: {value!r}" for name, value in parameters.items())
    text = _FILE.format(
        title=f"Tests of an implementation of {machine.name}, written by `dsa tests`. They are yours: keep them, change them.",
        about=about,
        document=repr(document) if is_shipped else f"str(Path(__file__).parent / {document!r})",
        at=f".at({{{values}}})" if values else "",
        tests="\n".join(map(write_test, tests)),
    )
    return text.replace("from pathlib import Path\n\n", "") if is_shipped else text
