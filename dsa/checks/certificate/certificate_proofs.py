"""The proofs of a claim about all values: which facts each obligation uses, and the multipliers that show a path impossible.

Takes the machine and the claim as the kernel reads them, runs the kernel on the claim, and answers every obligation that it generates, by z3:
an unsatisfiable core names the facts, a solution over the rationals gives the multipliers. Nothing here is believed by anybody.

The compiled step against the kernel's table of steps: everywhere, reachable or not, on everything that may happen or come too late.

Takes a machine as runs load it and a claim of the kernel; the step is the very one that runs of the machine use. A row can neither read nor change
a variable that it does not name. So each case is asked three times: the other variables have their first values, their last ones, and something
that cannot be looked at. `dsa.semantics.step`, which is asked what a refusal is, must agree wherever nothing is hidden.
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
from dsa.errors import ParameterError
from dsa.expr import EnumDomain, Interval, RangeDomain, Value, show_value
from dsa.kernel import REST, Claim, Polynomial, terms
from dsa.machine import DropTimer, Machine, Precedence, duration_ms
from dsa.semantics import Configuration, Occurrence, Refusal, step

Names = dict[str, Any]
#: Gives what a text means by what its names do.
Interpretation = Callable[[str, Names], Any]
Path = tuple[str, list[Any]]
#: What is known on a path as a value, and the names that are true where it begins.
Facts = tuple[tuple[Any, ...], frozenset[str]]
#: Paths beyond so many are not followed.
_MOST_PATHS, _MOST_FAILING = 4_000, 500
_Z3_MS = 20_000


class NoProofError(Exception):
    """Raised when a claim is not certified; says why."""


class Prover:
    """Proves claims about one machine, whose kernel names of locations are `locations`; asks nothing twice."""

    def __init__(self, text: str, locations: frozenset[str]) -> None:
        self._text, self._locations, self._solver = text, locations, Solver()

    def proved(self, claim: dict[str, Any]) -> dict[str, Any]:
        """Return the claim with its proofs, having tried it on the kernel. Raises NoProofError."""
        written = {**claim, "lemmas": dict(claim.get("lemmas", {})), "proofs": []}
        try:
            recorder = _ProofRecorder(self._text, written, self._locations, self._solver)
            recorder.explore()
            written["proofs"] = recorder.proofs_found
            Claim(self._text, written).explore()
        except (NoProofError, ValueError, AssertionError, KeyError) as why:
            raise NoProofError(
                f"it is proved by z3 alone; nothing was found that the kernel accepts as evidence ({why})"
            ) from why
        return written


class _ProofRecorder(Claim):
    """The kernel's claim, which finds each proof instead of reading it.

    The kernel goes by the words alone, so it may come to locations that the closed system does not have: none is ever reached, and
    that is the lemma there.
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

    def prove(self, given: list[str], names: Names, action: Callable[..., object], *arguments: Any) -> None:  # noqa: ANN401  (the kernel's)
        use: list[int] = []
        failing = list(self._failing(use, given, names, action, *arguments))
        if failing:
            if len(failing) > _MOST_FAILING:
                raise NoProofError(f"more than {_MOST_FAILING} paths to show impossible")
            needed = set()
            for why, facts in failing:
                core = self._solver.core(facts, given, names, self.value)
                if core is None:
                    raise NoProofError(why)
                needed |= core
            use = sorted(needed)
            failing = list(self._failing(use, given, names, action, *arguments))
        self.proofs_found.append([use, *(self._solver.multipliers(why, facts) for why, facts in failing)])

    def _failing(
        self,
        use: Sequence[int],
        given: list[str],
        names: Names,
        action: Callable[..., object],
        *arguments: Any,  # noqa: ANN401
    ) -> Iterator[Path]:
        for failure, facts in paths(lambda: all(self.value(given[n], names) for n in use) and action(*arguments)):
            if failure:
                yield failure, facts


def paths(action: Callable[[], object], most: int = _MOST_PATHS) -> Iterator[tuple[str | None, list[Any]]]:
    """Run an action on every path; give why it fails there, or None, and the facts. Raises NoProofError beyond `most` paths."""
    todo: list[list[bool]] = [[]]
    count = 0
    while todo:
        count += 1
        if count > most:
            raise NoProofError(f"more than {most} paths")
        facts: list[Any] = []
        Polynomial.path = facts, todo.pop(), todo  # type: ignore[attr-defined]  # the kernel is not typed
        failure = None
        try:
            action()
        except AssertionError as why:
            failure = str(why)
        yield failure, facts


class Solver:
    """z3, asked for cores and multipliers; remembers what it found."""

    def __init__(self) -> None:
        import z3

        self._z3 = z3
        self._cores: dict[Facts, list[frozenset[str]]] = {}
        self._multipliers: dict[Facts, list[list[int]]] = {}

    def core(self, facts: Sequence[Any], given: Sequence[str], names: Names, value: Interpretation) -> set[int] | None:
        """Return which of what is given makes the facts impossible, together; None when nothing does. `value` evaluates a text."""
        found = self._cores.setdefault((_hashable(facts), _true(names)), [])
        known = next((core for core in found if core <= set(given)), None)
        if known is None:
            known = self._core(facts, given, names, value)
            if known is None:
                return None
            found.append(known)
        return {given.index(text) for text in known}

    def _core(
        self, facts: Sequence[Any], given: Sequence[str], names: Names, value: Interpretation
    ) -> frozenset[str] | None:
        z3 = self._z3
        solver = z3.Solver()
        solver.set("timeout", _Z3_MS)
        solver.set("core.minimize", True)  # noqa: FBT003  (z3's way)
        for fact in facts:
            solver.add(self._number(fact) >= 0)
        switches = [z3.Bool(f"given {place}") for place in range(len(given))]
        for switch, text in zip(switches, given, strict=True):
            solver.add(z3.Implies(switch, self._formula(text, names, value)))
        if solver.check(*switches) != z3.unsat:
            return None
        core = {str(switch) for switch in solver.unsat_core()}
        return frozenset(text for switch, text in zip(switches, given, strict=True) if str(switch) in core)

    def multipliers(self, why: str, facts: Sequence[Any]) -> list[list[int]]:
        """Return whole numbers that make a sum of products of the facts a negative constant."""
        key = _hashable(facts), frozenset[str]()
        if key in self._multipliers:
            return self._multipliers[key]
        single = [(place,) for place in range(len(facts))]
        pairs = list(combinations_with_replacement(range(len(facts)), 2))
        for columns in (single, [*single, *pairs]):
            found = self._combined(facts, columns)
            if found is not None:
                self._multipliers[key] = found
                return found
        raise NoProofError(f"no multipliers: {why}")

    def _combined(self, facts: Sequence[Any], columns: Sequence[tuple[int, ...]]) -> list[list[int]] | None:
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
        z3 = self._z3
        holding = []

        def ask() -> None:
            holding.append(bool(value(text, names)))

        for _, facts in paths(ask):
            if holding[-1]:
                holding[-1] = z3.And([self._number(fact) >= 0 for fact in facts])
        return z3.Or([formula for formula in holding if formula is not False])


def _hashable(facts: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(tuple(sorted(fact.terms.items())) for fact in facts)


def _true(names: Names) -> frozenset[str]:
    return frozenset(name for name, known in names.items() if known is True)


# -- ranks at given parameter values ----------------------------------------------------------------------------------
# The kernel explores, and the ranks are found in the graph it saw: distances for `possible`, numbered components and what ends a run's stay in
# each for `leads to` and for coming to rest.


Rank = list[list[str]]
#: Definition 4 is looked at on at most so many paths of one move; a second of the kernel's time.
_MOST_PATHS_OF_A_MOVE = 20_000


@attrs.frozen
class KernelStep:
    """Where a step leads, what it ends, what happens with it, and the effect or timer behind it (or `outside`)."""

    target: int
    ended: frozenset[str]
    true: frozenset[str]
    origin: str


def explored(text: str, claim: dict[str, Any], most: int) -> dict[str, Any]:
    """Return the claim with all that the kernel asks for, having tried it. Raises NoProofError, also beyond `most` configurations."""
    written = claim | {"proofs": []}
    try:
        if "possible" in claim["form"] or "leads to" in claim["form"] or claim["form"] == REST:
            written["ranks"] = _Graph(text, written, most).ranks_found()
        _BoundedKernel(text, written, most).explore()
    except (ValueError, AssertionError, KeyError, IndexError) as why:
        raise NoProofError(f"the kernel refuses it: {why}") from why
    return written


def guarded(text: str, claim: dict[str, Any], most: int) -> dict[str, Any]:
    """Return the claim that Definition 4 is kept, having let the kernel look at every row. Raises NoProofError, also beyond `most` locations."""
    written = claim | {"proofs": []}
    try:
        _Free(text, written, most).explore()
    except AssertionError as why:
        raise NoProofError(f"the kernel refuses it: {why}") from why
    return written


class _BoundedKernel(Claim):
    """The kernel, which gives up beyond so many configurations."""

    def __init__(self, text: str, claim: dict[str, Any], most: int) -> None:
        super().__init__(text, claim)
        self._most = most

    def arrive(self, node: Any, may: bool) -> None:  # noqa: ANN401, FBT001  (the kernel's, here and below)
        super().arrive(node, may)
        if len(self.nodes) > self._most:
            raise NoProofError(f"it has more than {self._most} configurations")


class _Free(_BoundedKernel):
    """The kernel, which needs no evidence, and gives up where a move has too many paths."""

    def prove(self, _given: Any, _names: Any, action: Any, *arguments: Any) -> None:  # noqa: ANN401
        for failure, _ in paths(lambda: action(*arguments), _MOST_PATHS_OF_A_MOVE):
            assert failure is None, failure


class _Graph(_BoundedKernel):
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
        for after, ended, true in self.take(node, move):
            self.arrive(after, may=True)
            steps.append(KernelStep(self._number[self.key(after)], frozenset(ended), frozenset(true), move[1]))

    def go_on(self, node: Any) -> None:  # noqa: ANN401
        pass

    def ranks_found(self) -> dict[str, Rank]:
        """Explore, and return the ranks that the kernel asks for."""
        self.explore()
        flagged = frozenset(place for place, node in enumerate(self.nodes) if node[2][":flag"])
        if self.form == "possible {}":
            ranks = self._way(self._distances(flagged))
        elif "possible" in self.form:
            ranks = {place: _one(number) for place, number in self._distances(flagged).items()}
        else:
            ranks = self._levels(flagged)
        return {key: ranks[place] for key, place in self._number.items() if place in ranks}

    def _distances(self, flagged: frozenset[int]) -> dict[int, int]:
        """Return for each configuration how many steps lead to one where P holds, which has no flag, at least."""
        before: dict[int, list[int]] = {}
        for place, steps in enumerate(self._steps):
            for move in steps:
                before.setdefault(move.target, []).append(place)
        found = {place: 0 for place in range(len(self._steps)) if place not in flagged}
        todo = deque(found)
        while todo:
            target = todo.popleft()
            for place in before.get(target, ()):
                if place not in found:
                    found[place] = found[target] + 1
                    todo.append(place)
        return found

    def _way(self, distances: dict[int, int]) -> dict[int, Rank]:
        """Return the distances along one way from the start."""
        here = 0
        found: dict[int, Rank] = {}
        while here in distances and here not in found:
            found[here] = _one(distances[here])
            lower = distances[here] - 1
            here = next((step.target for step in self._steps[here] if distances.get(step.target) == lower), here)
        return found

    def _levels(self, nodes: frozenset[int]) -> dict[int, Rank]:
        """Number the components, what follows lower; say what ends a stay in each (S12, fairness)."""

        def following(place: int) -> Iterator[int]:
            return (step.target for step in self._counting(place) if step.target in nodes)

        found: dict[int, Rank] = {}
        for number, part in enumerate(map(frozenset, components(sorted(nodes), following))):
            inside = [step for place in part for step in self._counting(place) if step.target in part]
            promised = frozenset.intersection(*(frozenset(self.promises(self.nodes[place])) for place in part))
            lasting = promised.difference(*(step.ended for step in inside))
            why, able = self._fair(part, inside)
            deeper = {} if lasting or not why else self._levels(part - able)
            reason = min(lasting, default=why)
            found |= {place: [[str(number), reason], *deeper.get(place, [])] for place in part}
        return found

    def _counting(self, place: int) -> list[KernelStep]:
        """Return the steps that must lead lower: all, but for coming to rest those alone that nothing outside brings about."""
        return [step for step in self._steps[place] if self.form != REST or step.origin != OUTSIDE]

    def _fair(self, part: frozenset[int], inside: list[KernelStep]) -> tuple[str, frozenset[int]]:
        """Return something fair that is possible in a component and never happens there, and where it is possible."""
        for name in sorted(said.removeprefix("fair ") for said in self.fair):
            able = frozenset(place for place in part if any(name in step.true for step in self._steps[place]))
            is_possible = able == part if "weakly" in self.form else bool(able)
            if is_possible and not any(name in step.true for step in inside):
                return f"fair {name}", able
        return "", frozenset()


def _one(number: int) -> Rank:
    return [[str(number), ""]]


#: More cases of state, event, verdicts and values are not gone through.
MOST_CASES = 100_000


class SealedError(Exception):
    """Raised when somebody looks at what is sealed."""


class SealedValue:
    """The place of any value: it can be handed on, and raises SealedError when it is looked at."""

    def _looked_at(self, *_: object) -> Any:  # noqa: ANN401  (it never returns)
        raise SealedError("it looks at a variable that the rows do not name")

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __hash__ = __bool__ = __index__ = _looked_at
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __neg__ = _looked_at


def require_few_cases(machine: Machine, claim: Claim, most: int = MOST_CASES) -> None:
    """Raise NoProofError where there are more cases than `most`."""
    sizes = {variable.name: _size(machine, variable.name) for variable in machine.variables}
    count = sum(
        prod(sizes.get(name, 2) for name in names)
        * prod(len(claim.verdicts[guard]) for guard in claim.guards_in(rows))
        * _orders(machine, leaf)
        for leaf, *_, rows, names in claim.cases()
    )
    if count > most:
        raise NoProofError(f"there are {count} cases of state, event, verdicts and values, more than {most}")


def _orders(machine: Machine, leaf: str) -> int:
    """Return in how many ways the timers of a leaf may precede one another."""
    durations = [duration_ms(machine, timer) for timer in machine.armed_timers(leaf)]
    return 1 << sum(shorter < longer for shorter in durations for longer in durations)


def _size(machine: Machine, name: str) -> int:
    values = machine.values_of[name]
    if not isinstance(values, Interval):
        return len(values.values)
    if values.high is None:
        raise NoProofError(f"{name} has no greatest value")
    return values.high - values.low + 1


def require_same_steps(machine: Machine, claim: Claim, most: int = MOST_CASES) -> None:
    """Raise AssertionError unless the compiled step takes the steps of the claim's table, at its parameter values, and no others."""
    here = machine.at(_values(machine, claim.at or {}))
    try:
        require_few_cases(here, claim, most)
    except NoProofError as why:
        raise AssertionError(str(why)) from None
    _StepComparison(here, claim).run()


def _values(machine: Machine, texts: Mapping[str, object]) -> dict[str, Value]:
    """Read parameter values. Raises AssertionError unless they are those of the machine's parameters, written as we do."""
    found: dict[str, Value] = {}
    for parameter in machine.parameters:
        text = str(texts.get(parameter.name))
        is_number = isinstance(parameter.domain, RangeDomain) and text.removeprefix("-").isdigit()
        is_symbol = isinstance(parameter.domain, EnumDomain)
        found[parameter.name] = int(text) if is_number else text if is_symbol else text == "true"
    shown = {name: show_value(value) for name, value in found.items()}
    assert shown == texts, "its parameter values are not those of the machine"
    try:
        machine.at(found)
    except ParameterError as why:
        raise AssertionError(str(why)) from None
    return found


class _StepComparison:
    """What all cases share: the compiled step that runs use, and the values as the kernel numbers them."""

    def __init__(self, machine: Machine, claim: Any) -> None:  # noqa: ANN401  (the kernel is not annotated)
        self._machine, self._claim, self._compiled = machine, claim, compiled_step(machine)
        listed = [tuple(_listed(machine, variable.name)) for variable in machine.variables]
        self._of_number = [{self._number(value): value for value in values} for values in listed]
        self._sealed = tuple(SealedValue() for _ in listed)
        self._others = {tuple(values[0] for values in listed), tuple(values[-1] for values in listed)}
        self._armed = {leaf: claim.timers(claim.sources(leaf)) for leaf in machine.leaves}

    def run(self) -> None:
        """Go through the table."""
        for (state, out, known, order), happened, taken in self._claim.table():
            after = taken and (*taken[0], taken[1], taken[2][len(happened) :])
            try:
                self._compare(Configuration(state, (), frozenset(out), _precedence(order)), known, happened, after)
            except Exception as why:
                where = f"{state} on {', '.join(happened)}"
                raise AssertionError(f"the generated step is not the table in {where}: {why or repr(why)}") from why

    def _compare(self, at: Configuration, known: Mapping[str, int], happened: tuple[str, ...], taken: Any) -> None:  # noqa: ANN401
        source, is_timer, event = happened[0].rpartition(" after ")
        verdicts: Any = [word.rpartition(".")[::2] for word in happened[1:]]
        occurrence = Occurrence(f"after {event}" if is_timer else event, verdicts, source if is_timer else None)
        hidden = self._with(at, known, self._sealed)
        self._require_taken(hidden, known, taken, _moved(self._compiled, hidden, occurrence))
        for others in self._others:
            here = self._with(at, known, others)
            moved, expected = self._compiled.move(here, occurrence), step(self._machine, here, occurrence)
            assert self._compiled.step(here, occurrence) == expected, "`step` does something else"
            if isinstance(moved, Refusal) or isinstance(expected, Refusal):
                assert moved == expected, "`step` gives another reason"
            else:
                assert moved[0].row is expected.transition, "`step` takes another row"
            self._require_taken(here, known, taken, None if isinstance(moved, Refusal) else moved)

    def _with(self, at: Configuration, known: Mapping[str, int], others: tuple[Any, ...]) -> Configuration:
        held = zip(self._machine.variables, self._of_number, others, strict=True)
        values = tuple(numbered[known[v.name]] if v.name in known else other for v, numbered, other in held)
        return Configuration(at.state, values, at.outstanding, at.precedence)

    def _require_taken(self, here: Configuration, known: Mapping[str, int], taken: Any, moved: Move | None) -> None:  # noqa: ANN401
        """Raise AssertionError unless a row is taken where the table has one, and leads where that does."""
        assert (moved is None) == (taken is None), "one takes a row, the other does not"
        if moved is None:
            return
        (move, values), (state, out, after, order, ended, effects) = moved, taken
        assert (move.source, move.target, move.outstanding) == (here.state, state, out), "it leads elsewhere"
        assert move.precedence == _precedence(order), "timers come in another order"
        for variable, value, before in zip(self._machine.variables, values, here.values, strict=True):
            is_same = self._number(value) == after[variable.name] if variable.name in known else value is before
            assert is_same, f"{variable.name} becomes another"
        emitted = [effect for effect in effects if effect != "cancel"]
        begun = [effect for effect in emitted if effect not in self._claim.effects]
        begun += [effect for effect in out if effect not in here.outstanding or effect in ended]
        assert list(move.effects) == emitted, "it asks for other effects"
        assert sorted(effect for _, effect, _ in move.starts) == sorted(begun), "other effects begin"
        old, new = self._armed[here.state], self._armed[state]
        named = [(isinstance(timer, DropTimer), f"{timer.source} {timer.event}") for timer in move.timers]
        fired = {f"{move.row.source} {move.event}"} & old
        assert fired.union(name for is_drop, name in named if is_drop) == old & ended, "other timers end"
        assert {name for is_drop, name in named if not is_drop} == new - (old - ended), "other timers start"

    def _number(self, value: Value) -> int:
        return int(self._claim.names[f"={value}"] if isinstance(value, str) else value)


def _precedence(order: Iterable[tuple[str, str]]) -> Precedence:
    """Return the order of timers that the kernel calls by one name each."""

    def timer(name: str) -> tuple[str, str]:
        source, _, event = name.partition(" ")
        return source, event

    return frozenset((timer(shorter), timer(longer)) for shorter, longer in order)


def _moved(compiled: CompiledStep, here: Configuration, occurrence: Occurrence) -> Move | None:
    """Return what the compiled step takes where variables are sealed. Raises SealedError where it looks at one."""
    try:
        moved = compiled.move(here, occurrence)
    except SealedError as why:
        if not any(frame.f_code is step.__code__ for frame, _ in walk_tb(why.__traceback__)):
            raise
        return None  # the reference, which is asked about refusals alone, may look at every variable's domain
    return None if isinstance(moved, Refusal) else moved


def _listed(machine: Machine, name: str) -> Iterator[Value]:
    values = machine.values_of[name]
    if isinstance(values, Interval):
        assert values.high is not None, "it was counted before"
        yield from range(values.low, values.high + 1)
    else:
        yield from values.values
