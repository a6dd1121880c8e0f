"""Proofs for certificates: the evidence that the kernel asks for, found here and tried on the kernel.

For claims about all values, `Prover` runs the kernel and answers every obligation that it generates with z3: an unsatisfiable core names the facts,
and a solution over the rationals gives the multipliers. At given values, `explore_claim` finds ranks in the graph that the kernel explores. Nobody
has to trust what is found here: the kernel checks it.

`require_same_steps` compares the compiled step, the very one that runs of the machine use, with the kernel's table of steps: in every
state, reachable or not, on everything that may happen or come too late. A row can neither read nor change a variable that it does not name.
So each case is tried three times: the other variables have their first values, their last values, and values that raise when they are read.
`dsa.semantics.step`, which decides what a refusal is, must agree wherever nothing is sealed.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import combinations_with_replacement
from math import lcm, prod
from traceback import walk_tb
from typing import Any

import attrs

from dsa.checks.search.state_graph import components
from dsa.compiled_step import CompiledStep, Move, compiled_step
from dsa.declarations import OUTSIDE
from dsa.errors import ParameterError, UndecidedError
from dsa.expr import EnumDomain, Interval, RangeDomain, Value, show_value
from dsa.kernel import REST, Claim, Polynomial, terms
from dsa.machine import DropTimer, Machine, Precedence, duration_ms
from dsa.semantics import Configuration, Occurrence, Refusal, step

Names = dict[str, Any]
#: Returns the meaning of a text, given that of its names.
Interpretation = Callable[[str, Names], Any]
#: The facts of a path as a value, and the names that are true where it begins.
Facts = tuple[tuple[Any, ...], frozenset[str]]
#: The most paths that are followed.
_MOST_PATHS, _MOST_FAILING = 4_000, 500
_Z3_MS = 20_000


class Prover:
    """Proves claims about one machine, whose kernel names of locations are `locations`; remembers the answers of z3."""

    def __init__(self, text: str, locations: frozenset[str]) -> None:
        self._text, self._locations, self._solver = text, locations, Solver()

    def prove_claim(self, claim: dict[str, Any]) -> dict[str, Any]:
        """Return the claim with its proofs, having tried it on the kernel. Raises UndecidedError."""
        full_claim = {**claim, "lemmas": dict(claim.get("lemmas", {})), "proofs": []}
        try:
            recorder = _ProofRecorder(self._text, full_claim, self._locations, self._solver)
            recorder.explore()
            full_claim["proofs"] = recorder.proofs_found
            Claim(self._text, full_claim).explore()
        except (UndecidedError, ValueError, AssertionError, KeyError) as why:
            raise UndecidedError(
                f"z3 proves the claim, but dsa found no evidence that satisfies the kernel ({why})"
            ) from why
        return full_claim


class _ProofRecorder(Claim):
    """The kernel's claim, which finds each proof instead of reading it.

    The kernel reads the table alone, so it may explore locations that the closed system does not have. None of these is
    ever reached, and that is the lemma there.
    """

    def __init__(self, text: str, claim: dict[str, Any], locations: frozenset[str], solver: "Solver") -> None:
        super().__init__(text, claim)
        self.proofs_found: list[Any] = []
        self._locations, self._solver = locations, solver

    def arrive(self, node: Any, may: bool) -> None:  # noqa: ANN401, FBT001  (the kernel's)
        key = self.key(node)
        if key not in self._locations:
            self.lemmas[key] = ["false"]
        super().arrive(node, may)

    def prove(self, assumptions: list[str], names: Names, action: Callable[..., object], *arguments: Any) -> None:  # noqa: ANN401  (the kernel's)
        moment = _true_names(names), arguments[1][0] if len(arguments) > 1 else ()
        useful = self._solver.useful.setdefault(moment, set())
        use = [number for number, text in enumerate(assumptions) if text in useful]
        known_nodes, known_keys = len(self.nodes), set(self.keys)
        while True:
            closings: list[list[list[int]]] = []
            new = self._missing(use, closings, assumptions, names, lambda: action(*arguments))
            if not new:
                self.proofs_found.append([use, *closings])
                return
            use = sorted({*use, *new})
            useful.update(assumptions[number] for number in new)
            # The kernel comes only where these facts lead, and needs the proofs in its order.
            del self.nodes[known_nodes:]
            self.keys = set(known_keys)

    def _missing(
        self,
        use: Sequence[int],
        closings: list[list[list[int]]],
        assumptions: list[str],
        names: Names,
        action: Callable[[], object],
    ) -> set[int]:
        """Return the assumptions that the first failing path needs beside those in use; none if all are closed, with their multipliers in `closings`."""
        for why, facts in paths(lambda: all(self.value(assumptions[n], names) for n in use) and action()):
            if why is None:
                continue
            core = self._solver.core(facts, assumptions, names, self.value)
            if core is None:
                raise UndecidedError(why)
            if not core <= set(use):
                return core
            if len(closings) == _MOST_FAILING:
                raise UndecidedError(f"more than {_MOST_FAILING} paths would have to be shown impossible")
            closings.append(self._solver.multipliers(why, facts))
        return set()


def paths(action: Callable[[], object], most: int = _MOST_PATHS) -> Iterator[tuple[str | None, list[Any]]]:
    """Run an action on every path; yield why it fails there, or None, and the facts. Raises UndecidedError beyond `most` paths."""
    todo: list[list[bool]] = [[]]
    count = 0
    while todo:
        count += 1
        if count > most:
            raise UndecidedError(f"one step or condition has more than {most} paths")
        facts: list[Any] = []
        Polynomial.path = facts, todo.pop(), todo  # type: ignore[attr-defined]  # the kernel is not typed
        failure = None
        try:
            action()
        except AssertionError as why:
            failure = str(why)
        yield failure, facts


class Solver:
    """Finds cores and multipliers by z3, and remembers them."""

    def __init__(self) -> None:
        import z3

        self._z3 = z3
        self._cores: dict[Facts, list[frozenset[str]]] = {}
        #: The assumptions that a proof has needed, of any claim, by what is true where the move begins and in it.
        self.useful: dict[object, set[str]] = {}
        self._formulas: dict[tuple[str, frozenset[str]], Any] = {}
        self._multipliers: dict[Facts, list[list[int]]] = {}

    def core(
        self, facts: Sequence[Any], assumptions: Sequence[str], names: Names, value: Interpretation
    ) -> set[int] | None:
        """Return the indexes of the assumptions that together make the facts impossible; None when they do not. `value` evaluates a text."""
        cores = self._cores.setdefault((_hashable(facts), _true_names(names)), [])
        known_core = next((core for core in cores if core <= set(assumptions)), None)
        if known_core is None:
            known_core = self._core(facts, assumptions, names, value)
            if known_core is None:
                return None
            cores.append(known_core)
        return {assumptions.index(text) for text in known_core}

    def _core(
        self, facts: Sequence[Any], assumptions: Sequence[str], names: Names, value: Interpretation
    ) -> frozenset[str] | None:
        z3 = self._z3
        solver = z3.Solver()
        solver.set("timeout", _Z3_MS)
        solver.set("core.minimize", True)  # noqa: FBT003  (z3's way)
        for fact in facts:
            solver.add(self._number(fact) >= 0)
        switches = [z3.Bool(f"given {place}") for place in range(len(assumptions))]
        for switch, text in zip(switches, assumptions, strict=True):
            solver.add(z3.Implies(switch, self._formula(text, names, value)))
        if solver.check(*switches) != z3.unsat:
            return None
        core = {str(switch) for switch in solver.unsat_core()}
        return frozenset(text for switch, text in zip(switches, assumptions, strict=True) if str(switch) in core)

    def multipliers(self, why: str, facts: Sequence[Any]) -> list[list[int]]:
        """Return whole numbers that make a sum of products of the facts a negative constant."""
        key = _hashable(facts), frozenset[str]()
        if key in self._multipliers:
            return self._multipliers[key]
        single = [(place,) for place in range(len(facts))]
        pairs = list(combinations_with_replacement(range(len(facts)), 2))
        for columns in (single, [*single, *pairs]):
            combination = self._combination(facts, columns)
            if combination is not None:
                self._multipliers[key] = combination
                return combination
        raise UndecidedError(f"no multipliers: {why}")

    def _combination(self, facts: Sequence[Any], columns: Sequence[tuple[int, ...]]) -> list[list[int]] | None:
        z3 = self._z3
        sums: dict[Any, list[Any]] = {(): []}
        weights = [z3.Real(f"w{place}") for place in range(len(columns))]
        for weight, column in zip(weights, columns, strict=True):
            product: Any = 1
            for place in column:
                product = facts[place] * product
            for monomial, coefficient in terms(product).items():
                sums.setdefault(monomial, []).append(coefficient * weight)
        solver = z3.Solver()
        solver.set("timeout", _Z3_MS)
        solver.add(*(weight >= 0 for weight in weights))
        for monomial, parts in sums.items():
            solver.add(z3.Sum(parts) == (0 if monomial else -1))
        if solver.check() != z3.sat:
            return None
        model = solver.model()
        values = [model.eval(weight, model_completion=True).as_fraction() for weight in weights]
        scale = lcm(*(value.denominator for value in values))
        return [[int(value * scale), *column] for value, column in zip(values, columns, strict=True) if value]

    def _number(self, fact: Any) -> Any:  # noqa: ANN401  (z3 and the kernel are not typed)
        z3 = self._z3
        return z3.Sum([c * z3.Product([z3.Int(n) for n in names] or [z3.IntVal(1)]) for names, c in fact.terms.items()])

    def _formula(self, text: str, names: Names, value: Interpretation) -> Any:  # noqa: ANN401
        """Return a condition as the paths on which it is true."""
        key = text, _true_names(names)
        if key not in self._formulas:
            self._formulas[key] = self._new_formula(text, names, value)
        return self._formulas[key]

    def _new_formula(self, text: str, names: Names, value: Interpretation) -> Any:  # noqa: ANN401
        z3 = self._z3
        results = []

        def ask() -> None:
            results.append(bool(value(text, names)))

        for _, facts in paths(ask):
            if results[-1]:
                results[-1] = z3.And([self._number(fact) >= 0 for fact in facts])
        return z3.Or([formula for formula in results if formula is not False])


def _hashable(facts: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(tuple(sorted(fact.terms.items())) for fact in facts)


def _true_names(names: Names) -> frozenset[str]:
    return frozenset(name for name, value in names.items() if value is True)


# -- ranks at given parameter values ----------------------------------------------------------------------------------
# The kernel explores, and the ranks are found in the graph it saw: distances for `possible`, numbered components and what ends a run's stay in
# each for `leads to` and for coming to rest.


Rank = list[list[str]]
#: The most paths of one move on which Definition 4 is checked; a second of the kernel's time.
_MOST_PATHS_OF_A_MOVE = 20_000


@attrs.frozen
class KernelStep:
    """Where a step leads, what it ends, what happens with it, and the effect or timer behind it (or `outside`)."""

    target: int
    ended_promises: frozenset[str]
    true: frozenset[str]
    origin: str


def explore_claim(text: str, claim: dict[str, Any], most: int) -> dict[str, Any]:
    """Return the claim with all that the kernel asks for, having tried it. Raises UndecidedError, also beyond `most` configurations."""
    full_claim = claim | {"proofs": []}
    try:
        if "possible" in claim["form"] or "leads to" in claim["form"] or claim["form"] == REST:
            full_claim["ranks"] = _GraphKernel(text, full_claim, most).ranks_found()
        _BoundedKernel(text, full_claim, most).explore()
    except (ValueError, AssertionError, KeyError, IndexError) as why:
        raise UndecidedError(f"the kernel refuses the claim: {why}") from why
    return full_claim


def guard_claim(text: str, claim: dict[str, Any], most: int) -> dict[str, Any]:
    """Return the claim that Definition 4 is kept, having let the kernel check every row. Raises UndecidedError, also beyond `most` locations."""
    full_claim = claim | {"proofs": []}
    try:
        _GuardKernel(text, full_claim, most).explore()
    except AssertionError as why:
        raise UndecidedError(f"the kernel refuses the claim: {why}") from why
    return full_claim


class _BoundedKernel(Claim):
    """The kernel, which gives up beyond a number of configurations."""

    def __init__(self, text: str, claim: dict[str, Any], most: int) -> None:
        super().__init__(text, claim)
        self._most = most

    def arrive(self, node: Any, may: bool) -> None:  # noqa: ANN401, FBT001  (the kernel's, here and below)
        super().arrive(node, may)
        if len(self.nodes) > self._most:
            raise UndecidedError(f"the kernel would visit more than {self._most} configurations")


class _GuardKernel(_BoundedKernel):
    """The kernel, which needs no evidence, and gives up where a move has too many paths."""

    def prove(self, _assumptions: Any, _names: Any, action: Any, *arguments: Any) -> None:  # noqa: ANN401
        for failure, _ in paths(lambda: action(*arguments), _MOST_PATHS_OF_A_MOVE):
            assert failure is None, failure


class _GraphKernel(_BoundedKernel):
    """The kernel's exploration, which notes what it sees and judges no progress."""

    def __init__(self, text: str, claim: dict[str, Any], most: int) -> None:
        super().__init__(text, claim | {"ranks": {}}, most)
        self._number: dict[str, int] = {}
        self._steps: list[list[KernelStep]] = []

    def arrive(self, node: Any, may: bool) -> None:  # noqa: ANN401, ARG002, FBT001
        super().arrive(node, may=True)
        if self._number.setdefault(self.key(node), len(self._number)) == len(self._steps):
            self._steps.append([])

    def happen(self, node: Any, move: Any) -> None:  # noqa: ANN401
        steps = self._steps[self._number[self.key(node)]]
        for after, ends, true in self.take(node, move):
            self.arrive(after, may=True)
            steps.append(KernelStep(self._number[self.key(after)], frozenset(ends), frozenset(true), move[1]))

    def go_on(self, node: Any) -> None:  # noqa: ANN401
        pass

    def ranks_found(self) -> dict[str, Rank]:
        """Explore, and return the ranks that the kernel asks for."""
        self.explore()
        flagged_places = frozenset(place for place, node in enumerate(self.nodes) if node[2][":flag"])
        if self.form == "possible {}":
            ranks = self._way(self._distances(flagged_places))
        elif "possible" in self.form:
            ranks = {place: _single_rank(number) for place, number in self._distances(flagged_places).items()}
        else:
            ranks = self._levels(flagged_places)
        return {key: ranks[place] for key, place in self._number.items() if place in ranks}

    def _distances(self, flagged_places: frozenset[int]) -> dict[int, int]:
        """Return for each configuration the least number of steps to one where P holds (one without a flag)."""
        before: dict[int, list[int]] = {}
        for place, steps in enumerate(self._steps):
            for move in steps:
                before.setdefault(move.target, []).append(place)
        distances = {place: 0 for place in range(len(self._steps)) if place not in flagged_places}
        todo = deque(distances)
        while todo:
            target = todo.popleft()
            for place in before.get(target, ()):
                if place not in distances:
                    distances[place] = distances[target] + 1
                    todo.append(place)
        return distances

    def _way(self, distances: dict[int, int]) -> dict[int, Rank]:
        """Return the distances along one way from the start."""
        here = 0
        ranks: dict[int, Rank] = {}
        while here in distances and here not in ranks:
            ranks[here] = _single_rank(distances[here])
            lower = distances[here] - 1
            here = next((step.target for step in self._steps[here] if distances.get(step.target) == lower), here)
        return ranks

    def _levels(self, nodes: frozenset[int]) -> dict[int, Rank]:
        """Number the components, what follows lower, and add what ends a stay in each (S12, fairness)."""

        def following(place: int) -> Iterator[int]:
            return (step.target for step in self._lowering_steps(place) if step.target in nodes)

        ranks: dict[int, Rank] = {}
        for number, part in enumerate(map(frozenset, components(sorted(nodes), following))):
            inside = [step for place in part for step in self._lowering_steps(place) if step.target in part]
            promises = frozenset.intersection(*(frozenset(self.promises(self.nodes[place])) for place in part))
            lasting_promises = promises.difference(*(step.ended_promises for step in inside))
            why, able = self._fair(part, inside)
            deeper = {} if lasting_promises or not why else self._levels(part - able)
            reason = min(lasting_promises, default=why)
            ranks |= {place: [[str(number), reason], *deeper.get(place, [])] for place in part}
        return ranks

    def _lowering_steps(self, place: int) -> list[KernelStep]:
        """Return the steps that must lead lower: all of them; for coming to rest, only those that nothing outside brings about."""
        return [step for step in self._steps[place] if self.form != REST or step.origin != OUTSIDE]

    def _fair(self, part: frozenset[int], inside: list[KernelStep]) -> tuple[str, frozenset[int]]:
        """Return something fair that is possible in a component and never happens there, and where it is possible."""
        for name in sorted(text.removeprefix("fair ") for text in self.fair):
            able = frozenset(place for place in part if any(name in step.true for step in self._steps[place]))
            is_possible = able == part if "weakly" in self.form else bool(able)
            if is_possible and not any(name in step.true for step in inside):
                return f"fair {name}", able
        return "", frozenset()


def _single_rank(number: int) -> Rank:
    return [[str(number), ""]]


#: The most cases of state, event, verdicts and values that are compared.
MOST_CASES = 100_000


class SealedValue:
    """Stands for any value: it can be passed on, and raises UndecidedError when it is read."""

    def _looked_at(self, *_: object) -> Any:  # noqa: ANN401  (it never returns)
        raise UndecidedError("it reads a variable that the rows do not name")

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __hash__ = __bool__ = __index__ = _looked_at
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __neg__ = _looked_at


def require_few_cases(machine: Machine, claim: Claim, most: int = MOST_CASES) -> None:
    """Raise UndecidedError where there are more cases than `most`."""
    sizes = {variable.name: _size(machine, variable.name) for variable in machine.variables}
    sizes |= {effect: most + 1 for effect, most in machine.most_outstanding.items()}
    count = sum(
        prod(sizes.get(name, 2) for name in names)
        * prod(len(claim.verdicts[guard]) for guard in claim.guards_in(rows))
        * _orders(machine, leaf)
        for leaf, *_, rows, names in claim.cases()
    )
    if count > most:
        raise UndecidedError(
            f"there are {count} combinations of state, event, verdicts and values, which is more than {most}"
        )


def _orders(machine: Machine, leaf: str) -> int:
    """Return in how many ways the timers of a leaf may precede one another."""
    durations = [duration_ms(machine, timer) for timer in machine.armed_timers(leaf)]
    return 1 << sum(shorter < longer for shorter in durations for longer in durations)


def _size(machine: Machine, name: str) -> int:
    values = machine.values_of[name]
    if not isinstance(values, Interval):
        return len(values.values)
    if values.high is None:
        raise UndecidedError(f"{name} has no greatest value")
    return values.high - values.low + 1


def require_same_steps(machine: Machine, claim: Claim, most: int = MOST_CASES) -> None:
    """Raise AssertionError unless the compiled step takes the steps of the claim's table, at its parameter values, and no others."""
    here = machine.at(_values(machine, claim.at or {}))
    try:
        require_few_cases(here, claim, most)
    except UndecidedError as why:
        raise AssertionError(str(why)) from None
    _StepComparison(here, claim).run()


def _values(machine: Machine, texts: Mapping[str, object]) -> dict[str, Value]:
    """Read parameter values. Raises AssertionError unless they are those of the machine's parameters, written as we do."""
    values: dict[str, Value] = {}
    for parameter in machine.parameters:
        text = str(texts.get(parameter.name))
        is_number = isinstance(parameter.domain, RangeDomain) and text.removeprefix("-").isdigit()
        is_symbol = isinstance(parameter.domain, EnumDomain)
        values[parameter.name] = int(text) if is_number else text if is_symbol else text == "true"
    own_texts = {name: show_value(value) for name, value in values.items()}
    assert own_texts == texts, "its parameter values are not those of the machine"
    try:
        machine.at(values)
    except ParameterError as why:
        raise AssertionError(str(why)) from None
    return values


class _StepComparison:
    """What all cases share: the compiled step that runs use, and the values as the kernel numbers them."""

    def __init__(self, machine: Machine, claim: Any) -> None:  # noqa: ANN401  (the kernel is not annotated)
        self._machine, self._claim, self._compiled_step = machine, claim, compiled_step(machine)
        domains = [tuple(_domain_values(machine, variable.name)) for variable in machine.variables]
        self._of_number = [{self._number(value): value for value in values} for values in domains]
        self._sealed_values = tuple(SealedValue() for _ in domains)
        self._others = {tuple(values[0] for values in domains), tuple(values[-1] for values in domains)}
        self._armed_timers = {leaf: claim.timers(claim.sources(leaf)) for leaf in machine.leaves}

    def run(self) -> None:
        """Go through the table."""
        for (state, out, numbers, order), inputs, taken in self._claim.table():
            after = taken and (*taken[0], taken[1], taken[2][len(inputs) :])
            try:
                here = Configuration(state, (), self._outstanding(out, numbers), _precedence(order))
                self._compare(here, numbers, inputs, after)
            except Exception as why:
                where = f"{state} on {', '.join(inputs)}"
                raise AssertionError(
                    f"the generated step differs from the table in {where}: {why or repr(why)}"
                ) from why

    def _compare(self, at: Configuration, numbers: Mapping[str, int], inputs: tuple[str, ...], taken: Any) -> None:  # noqa: ANN401
        source, is_timer, event = inputs[0].rpartition(" after ")
        verdicts: Any = [word.rpartition(".")[::2] for word in inputs[1:]]
        occurrence = Occurrence(f"after {event}" if is_timer else event, verdicts, source if is_timer else None)
        sealed_configuration = self._with(at, numbers, self._sealed_values)
        self._require_taken(
            sealed_configuration, numbers, taken, _sealed_move(self._compiled_step, sealed_configuration, occurrence)
        )
        for others in self._others:
            here = self._with(at, numbers, others)
            move, reference = self._compiled_step.move(here, occurrence), step(self._machine, here, occurrence)
            assert self._compiled_step.step(here, occurrence) == reference, "`step` does something else"
            if isinstance(move, Refusal) or isinstance(reference, Refusal):
                assert move == reference, "`step` refuses for another reason"
            else:
                assert move[0].row is reference.transition, "`step` takes another row"
            self._require_taken(here, numbers, taken, None if isinstance(move, Refusal) else move)

    def _with(self, at: Configuration, numbers: Mapping[str, int], others: tuple[Any, ...]) -> Configuration:
        variables = zip(self._machine.variables, self._of_number, others, strict=True)
        values = tuple(
            value_by_number[numbers[v.name]] if v.name in numbers else other for v, value_by_number, other in variables
        )
        return Configuration(at.state, values, at.outstanding, at.precedence)

    def _require_taken(self, here: Configuration, numbers: Mapping[str, int], taken: Any, result: Move | None) -> None:  # noqa: ANN401
        """Raise AssertionError unless a row is taken where the table has one, and leads where that does."""
        assert (result is None) == (taken is None), "one takes a row, the other does not"
        if result is None:
            return
        (move, values), (state, out, after, order, ends, effects) = result, taken
        outstanding = self._outstanding(out, after)
        assert (move.source, move.target, move.outstanding) == (here.state, state, outstanding), (
            "it leads to another configuration"
        )
        assert move.precedence == _precedence(order), "timers come in another order"
        for variable, value, before in zip(self._machine.variables, values, here.values, strict=True):
            is_same = self._number(value) == after[variable.name] if variable.name in numbers else value is before
            assert is_same, f"{variable.name} gets another value"
        emitted_effects = [effect for effect in effects if effect != "cancel"]
        assert list(move.effects) == emitted_effects, "it asks for other effects"
        starts = [effect for _, effect, has_answers in move.starts if has_answers]
        assert [e for _, e, has_answers in move.starts if not has_answers] == [
            e for e in emitted_effects if e not in self._claim.effects
        ]
        older = [effect for effect in here.outstanding if effect not in move.stops]
        if move.origin in older:
            older.remove(move.origin)
        assert sorted(older + starts) == list(outstanding), "other effects begin or end"
        old, new = self._armed_timers[here.state], self._armed_timers[state]
        timer_names = [(isinstance(timer, DropTimer), f"{timer.source} {timer.event}") for timer in move.timers]
        fired_timers = {f"{move.row.source} {move.event}"} & old
        assert fired_timers.union(name for is_drop, name in timer_names if is_drop) == old & ends, "other timers end"
        assert {name for is_drop, name in timer_names if not is_drop} == new - (old - ends), "other timers start"

    def _outstanding(self, out: Iterable[str], values: Mapping[str, int]) -> tuple[str, ...]:
        """Return what is outstanding, each as often as it is; the kernel has the numbers of some effects among its values."""
        several = (effect for effect, number in self._claim.numbers.items() for _ in range(values[number]))
        return tuple(sorted([*out, *several]))

    def _number(self, value: Value) -> int:
        return int(self._claim.names[f"={value}"] if isinstance(value, str) else value)


def _precedence(order: Iterable[tuple[str, str]]) -> Precedence:
    """Return the order of timers that the kernel calls by one name each."""

    def timer(name: str) -> tuple[str, str]:
        source, _, event = name.partition(" ")
        return source, event

    return frozenset((timer(shorter), timer(longer)) for shorter, longer in order)


def _sealed_move(compiled_step: CompiledStep, here: Configuration, occurrence: Occurrence) -> Move | None:
    """Return what the compiled step takes where variables are sealed. Raises UndecidedError where it reads one."""
    try:
        move = compiled_step.move(here, occurrence)
    except UndecidedError as why:
        if not any(frame.f_code is step.__code__ for frame, _ in walk_tb(why.__traceback__)):
            raise
        return None  # the reference, which only decides refusals, may read every variable's domain
    return None if isinstance(move, Refusal) else move


def _domain_values(machine: Machine, name: str) -> Iterator[Value]:
    values = machine.values_of[name]
    if isinstance(values, Interval):
        assert values.high is not None, "it was counted before"
        yield from range(values.low, values.high + 1)
    else:
        yield from values.values
