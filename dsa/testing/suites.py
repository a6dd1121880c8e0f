"""Complete test suites: an implementation that passes and has at most m more states than the table equals it.

The HSI method (Petrenko, Yevtushenko, Lebedev, Das 1993; a W-method, Chow 1978 and Vasilevskii 1973, with harmonised state
identifiers instead of one set W; for partial machines Petrenko and Yevtushenko 2005): reach every state, go on with every sequence of
up to m + 1 inputs, then tell the state that must be reached from all others. Takes an explored machine and what is observed,
gives sequences of occurrences.
"""

from collections.abc import Iterator, Mapping

import attrs

from dsa.errors import DsaError
from dsa.expr import Value, show_value
from dsa.machine import Machine
from dsa.meaning import Occurrence
from dsa.testing.coverage import Coverage
from dsa.testing.graph import Graph, graph_of
from dsa.testing.implementations import MakeImplementation, Observed
from dsa.testing.lockstep import play
from dsa.testing.mealy import Mealy, Sequence, mealy, require_separable
from dsa.testing.tours import Test

#: More tests than this are not made unless asked for.
MAX_TESTS = 100_000
NOTHING = Observed()


class TooManyTestsError(DsaError):
    """Raised when a complete suite would have more tests than were allowed. `limit` is that number."""

    def __init__(self, limit: int, extra: int) -> None:
        self.limit = limit
        super().__init__(
            f"a complete suite with {extra} extra states has more than {limit} tests here: allow fewer extra states, or give "
            "smaller parameter values"
        )


@attrs.frozen
class CompleteSuite:
    """The tests, and what passing them says. `states` is how many configurations of the table can be told apart."""

    machine: Machine = attrs.field(repr=False)
    observed: Observed
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
        """Say what it means to pass, with what is counted as input, output and state, and what is assumed."""
        values = ", ".join(f"{name} = {show_value(value)}" for name, value in self.machine.constants.items())
        seen = f", and shows {self.observed}" if str(self.observed) else ""
        return (
            f"{len(self.tests)} tests, {self.steps} steps. An implementation that passes them and has at most {self.extra} more "
            f"{'state' if self.extra == 1 else 'states'} than the table equals it{f' at {values}' if values else ''}: whatever comes, "
            "it answers what the table answers.\n"
            f"States of the table: {self.states}, the configurations that can be told apart, of {self.configurations}. "
            f"Inputs: {len(self.inputs)} occurrences (events that come from outside, answers, timers, with each combination of the verdicts "
            "that are asked for), each wherever it is well formed. "
            f"Output: the effects it asks for, in order, or that it refuses{seen}.\n"
            "Assumed: start begins anew; the same occurrences give the same output; what it shows depends on its state alone, "
            "and showing changes nothing."
        )

    def run(self, make_implementation: MakeImplementation) -> Coverage:
        """Play all tests. Raises DisagreementError at the first difference.

        The implementation must show what `observed` says (TypeError); what it shows beyond is compared too.
        """
        return play(self.machine, make_implementation, self.tests, observed=self.observed)


def complete_suite(
    machine: Machine | Graph,
    extra: int = 0,
    *,
    observed: Observed = NOTHING,
    parameters: Mapping[str, Value] | None = None,
    max_tests: int = MAX_TESTS,
) -> CompleteSuite:
    """Make the tests that find every implementation which differs and has at most `extra` more states than the table.

    The number of tests grows by about the number of inputs for each extra state. Raises TooLargeError, TooManyTestsError, and
    InseparableError when two configurations that differ cannot be told apart by what is `observed`.
    """
    graph = machine if isinstance(machine, Graph) else graph_of(machine.at(parameters or {}))
    automaton = mealy(graph, observed)
    identifiers = _identifiers(automaton, graph)
    tree = _Tree()
    for access in automaton.access:
        for sequence, state in _continued(automaton, access, extra + 1):
            for identifier in identifiers[state]:
                tree.add((*sequence, *identifier))
                if tree.leaves > max_tests:
                    raise TooManyTestsError(max_tests, extra)
    tests = tuple(tuple(automaton.inputs[place] for place in sequence) for sequence in tree.sequences())
    return CompleteSuite(
        graph.machine, observed, extra, len(graph.configurations), len(automaton.after), automaton.inputs, tests
    )


def _continued(automaton: Mealy, access: Sequence, depth: int) -> Iterator[tuple[Sequence, int]]:
    """Give an access sequence with every defined continuation of up to `depth` inputs, and where each leads."""
    state = 0
    for place in access:
        after = automaton.after[state][place]
        assert after is not None, "an access sequence is defined"
        state = after
    layer = [(access, state)]
    yield access, state
    for _ in range(depth):
        layer = [((*sequence, place), after) for sequence, here in layer for place, after in automaton.defined(here)]
        yield from layer


def _identifiers(automaton: Mealy, graph: Graph) -> list[tuple[Sequence, ...]]:
    """Give each state sequences that tell it from every other; for each pair both states have the same one (harmonised)."""
    shortest = automaton.separating()
    require_separable(automaton, graph, shortest)
    family = _few(automaton, shortest)
    found: list[set[Sequence]] = [set() for _ in automaton.after]
    for left, right in shortest:
        chosen = next(sequence for sequence in family if automaton.separates(sequence, left, right))
        found[left].add(chosen)
        found[right].add(chosen)
    return [_maximal(sequences) for sequences in found]


def _few(automaton: Mealy, shortest: dict[tuple[int, int], Sequence]) -> list[Sequence]:
    """Choose few of the shortest separating sequences that together separate all pairs, greedily; short ones first."""
    left_over = set(shortest)
    candidates = sorted(set(shortest.values()), key=lambda sequence: (len(sequence), sequence))
    separated = {s: {pair for pair in shortest if automaton.separates(s, *pair)} for s in candidates}
    chosen = []
    while left_over:
        best = max(candidates, key=lambda sequence: (len(separated[sequence] & left_over), -len(sequence)))
        chosen.append(best)
        left_over -= separated[best]
    return chosen


def _maximal(sequences: set[Sequence]) -> tuple[Sequence, ...]:
    """Leave out what is the beginning of another; a state alone needs no telling, and has the empty sequence."""
    kept = [s for s in sequences if not any(s != other and other[: len(s)] == s for other in sequences)]
    return tuple(sorted(kept)) or ((),)


class _Tree:
    """Sequences as a prefix tree: what is the beginning of another sequence is no test of its own."""

    def __init__(self) -> None:
        self._root: dict[int, dict] = {}  # type: ignore[type-arg]  # nested as deep as the sequences are long
        self.leaves = 1

    def add(self, sequence: Sequence) -> None:
        node = self._root
        for place in sequence:
            if place not in node:
                self.leaves += bool(node)
                node[place] = {}
            node = node[place]

    def sequences(self) -> Iterator[Sequence]:
        waiting: list[tuple[Sequence, dict[int, dict]]] = [((), self._root)]  # type: ignore[type-arg]  # as above
        while waiting:
            sequence, node = waiting.pop()
            if not node:
                yield sequence
            waiting.extend(((*sequence, place), node[place]) for place in sorted(node, reverse=True))
