"""The proofs of a claim about all values: which facts each obligation uses, and the multipliers that show a path impossible.

Takes the machine and the claim as the kernel reads them, runs the kernel on the claim, and answers every obligation that it generates, by z3:
an unsatisfiable core names the facts, a solution over the rationals gives the multipliers. Nothing here is believed by anybody.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations_with_replacement
from math import lcm
from typing import Any

from dsa.kernel import Claim, Unknown, value

Names = dict[str, Any]
Path = tuple[str, list[Any]]
#: Paths beyond so many are not followed.
_MOST_PATHS, _MOST_FAILING = 4_000, 500
_Z3_MS = 20_000


class NoProofError(Exception):
    """Raised when a claim is not certified; says why."""


def proved(text: str, claim: dict[str, Any], sound: dict[str, list[str]] | None) -> dict[str, Any]:
    """Give the claim with its proofs. Raises NoProofError."""
    written = claim | {"proofs": [], "lemmas": claim.get("lemmas", {})}
    recorder = _Recorder(text, written, sound)
    try:
        recorder.run()
    except (ValueError, AssertionError, KeyError) as why:
        raise NoProofError(f"no proof was found: {why}") from why
    return written | {"proofs": recorder.found}


class _Recorder(Claim):
    """The kernel's claim, which finds each proof instead of reading it."""

    def __init__(self, text: str, claim: dict[str, Any], sound: dict[str, list[str]] | None) -> None:
        super().__init__(text, claim, sound)
        self.found: list[Any] = []
        self._solver = Solver()

    def prove(self, given: list[str], names: Names, action: Callable[..., object], *arguments: Any) -> None:  # noqa: ANN401  (the kernel's)
        use: list[int] = []
        failing = list(self._failing(use, given, names, action, *arguments))
        if failing:
            if len(failing) > _MOST_FAILING:
                raise NoProofError(f"more than {_MOST_FAILING} paths to show impossible: {failing[0][0]}")
            needed = set()
            for why, facts in failing:
                core = self._solver.core(facts, given, names)
                if core is None:
                    raise NoProofError(f"it does not follow: {why}")
                needed |= core
            use = sorted(needed)
            failing = list(self._failing(use, given, names, action, *arguments))
        self.found.append([use, [self._solver.multipliers(why, facts) for why, facts in failing]])

    def _failing(
        self,
        use: Sequence[int],
        given: list[str],
        names: Names,
        action: Callable[..., object],
        *arguments: Any,  # noqa: ANN401
    ) -> Iterator[Path]:
        for failure, facts in paths(lambda: all(value(given[n], names) for n in use) and action(*arguments)):
            if failure and not (self.sound is not None and failure.startswith("a fault")):
                yield failure, facts


def paths(action: Callable[[], object]) -> Iterator[tuple[str | None, list[Any]]]:
    """Run an action on every path; give why it fails there, or None, and the facts."""
    todo: list[list[bool]] = [[]]
    count = 0
    while todo:
        count += 1
        if count > _MOST_PATHS:
            raise NoProofError(f"more than {_MOST_PATHS} paths")
        facts: list[Any] = []
        Unknown.path = facts, todo.pop(), todo  # type: ignore[attr-defined]  # the kernel is not typed
        failure = None
        try:
            action()
        except AssertionError as why:
            failure = str(why)
        yield failure, facts


class Solver:
    """z3, asked for cores and multipliers."""

    def __init__(self) -> None:
        import z3

        self._z3 = z3
        self._formulas: dict[tuple[str, int], Any] = {}

    def core(self, facts: Sequence[Any], given: Sequence[str], names: Names) -> set[int] | None:
        """Give which of what is given makes the facts impossible, together; None when nothing does."""
        z3 = self._z3
        solver = z3.Solver()
        solver.set("timeout", _Z3_MS)
        solver.set("core.minimize", True)  # noqa: FBT003  (z3's way)
        for fact in facts:
            solver.add(self._number(fact) >= 0)
        switches = [z3.Bool(f"given {place}") for place in range(len(given))]
        for switch, text in zip(switches, given, strict=True):
            solver.add(z3.Implies(switch, self._formula(text, names)))
        if solver.check(*switches) != z3.unsat:
            return None
        core = {str(switch) for switch in solver.unsat_core()}
        return {place for place, switch in enumerate(switches) if str(switch) in core}

    def multipliers(self, why: str, facts: Sequence[Any]) -> list[list[int]]:
        """Give whole numbers that make a sum of products of the facts a negative constant."""
        single = [(place,) for place in range(len(facts))]
        pairs = list(combinations_with_replacement(range(len(facts)), 2))
        for columns in (single, [*single, *pairs]):
            found = self._combined(facts, columns)
            if found is not None:
                return found
        raise NoProofError(f"no multipliers were found: {why}")

    def _combined(self, facts: Sequence[Any], columns: Sequence[tuple[int, ...]]) -> list[list[int]] | None:
        z3 = self._z3
        sums: dict[Any, list[Any]] = {(): []}
        weights = [z3.Real(f"w{place}") for place in range(len(columns))]
        for weight, column in zip(weights, columns, strict=True):
            product: Any = 1
            for place in column:
                product = facts[place] * product
            terms = product.terms if isinstance(product, Unknown) else {(): product}
            for monomial, coefficient in terms.items():
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

    def _formula(self, text: str, names: Names) -> Any:  # noqa: ANN401
        """Give a condition as the paths on which it is true."""
        z3 = self._z3
        holding = []

        def ask() -> None:
            holding.append(bool(value(text, names)))

        for _, facts in paths(ask):
            if holding[-1]:
                holding[-1] = z3.And([self._number(fact) >= 0 for fact in facts])
        return z3.Or([formula for formula in holding if formula is not False])
