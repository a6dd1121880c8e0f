"""Questions to z3 about conditions over a system's variables and parameters.

Takes expressions, gives `SolverAnswer` values. Numbers are unbounded whole numbers; the values of enumerations are numbered. Products of names are
allowed, so z3 may give up: then the answer is unknown, and never proved.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

import attrs

from dsa import expr
from dsa.declarations import Variable
from dsa.errors import DsaError, install_hint
from dsa.expr import FALSE, comparison
from dsa.system import System, in_domain

#: How long z3 may think about one question, in its own units: some 0.7 seconds, and the same on every machine.
EFFORT = 5_000_000


@attrs.frozen
class SolverAnswer:
    """Whether conditions can be true together: `no` (shown), `yes` (with values of all names), or `unknown`."""

    can_be: Literal["yes", "no", "unknown"]
    values: Mapping[str, expr.Value] = attrs.field(factory=dict)
    core: frozenset[int] = frozenset()


class Logic:
    """A solver for conditions over a system's names, within their domains.

    The parameters lie in their domains, and so do the machine's own variables and counters. Nothing is assumed of observers'
    variables. Once `is_expired` returns true, every answer is unknown.

    What z3 finds depends on all that its `context` has seen. Each `Logic` has its own, so that no other proof in the process
    changes an answer.
    """

    def __init__(self, system: System, is_expired: Callable[[], bool] = lambda: False) -> None:
        try:
            import z3
        except ImportError:
            raise DsaError(f"proofs need z3: {install_hint('prove')}", code="NoSolverError") from None
        self._z3: Any = z3
        self.context: Any = z3.Context()
        self._is_expired = is_expired
        self._solver = z3.SimpleSolver(ctx=self.context)
        self._solver.set("rlimit", EFFORT)
        self._solver.set("random_seed", 0)
        self._terms: dict[expr.Expr, Any] = {}
        self._symbols: list[str] = []
        self._numbers: dict[str, int] = {}
        self._domains: dict[str, expr.Domain] = {p.name: p.domain for p in system.machine.parameters}
        self._facts: dict[str, expr.Expr] = {
            parameter.name: in_domain(
                _as_variable(parameter.name, parameter.domain), expr.Name(parameter.name, "parameter")
            )
            for parameter in system.machine.parameters
        }
        self.learn(system)
        self.question_count = 0

    def learn(self, system: System) -> None:
        """Add the variables of an observed system; they replace variables of the same names."""
        own = {variable.name for variable in system.own_variables}
        for variable in system.variables:
            if self._domains.get(variable.name) != variable.domain:
                self._domains[variable.name] = variable.domain
                self._terms = {node: term for node, term in self._terms.items() if not isinstance(node, expr.Name)}
            if variable.name in own:
                self._facts[variable.name] = in_domain(variable, expr.Name(variable.name, "variable"))

    def facts_about(self, names: Iterable[str]) -> list[expr.Expr]:
        """Return the facts about names, and about the names in these facts."""
        facts: dict[str, expr.Expr] = {}
        todo = list(names)
        while todo:
            name = todo.pop()
            if name not in facts and name in self._facts:
                facts[name] = self._facts[name]
                todo += expr.names(self._facts[name])
        return [fact for _, fact in sorted(facts.items()) if fact != expr.TRUE]

    def ask(self, conditions: Sequence[expr.Expr], *, track: bool = False) -> SolverAnswer:
        """Return whether the conditions can all be true; with `track`, also which of them (by index) show that they cannot."""
        if FALSE in conditions:
            return SolverAnswer("no", core=frozenset({conditions.index(FALSE)}))
        if self._is_expired():
            return SolverAnswer("unknown")
        self.question_count += 1
        names = frozenset().union(*map(expr.names, conditions))
        facts = self.facts_about(names)
        axioms, names = [self.term(fact) for fact in facts], names.union(*map(expr.names, facts))
        terms = [self.term(condition) for condition in conditions]
        answer = self._check(self._solver, axioms, terms, names, track=track)
        if answer.can_be == "unknown" and not self._is_expired():
            # A fresh solver uses other methods (and has learnt nothing that leads astray).
            afresh = self._z3.SolverFor("QF_NIA", ctx=self.context)
            afresh.set("rlimit", EFFORT)
            answer = self._check(afresh, axioms, terms, names, track=False)
            answer = attrs.evolve(answer, core=frozenset(range(len(conditions))))
        return answer

    def _check(
        self,
        solver: Any,  # noqa: ANN401  (z3 has no types)
        axioms: Sequence[Any],
        terms: Sequence[Any],
        names: Iterable[str],
        *,
        track: bool,
    ) -> SolverAnswer:
        solver.push()
        try:
            solver.add(*axioms)
            if not track:
                solver.add(*terms)
                return self._answer_of(solver, solver.check(), names)
            marks = [self._z3.Bool(f"#{index}", self.context) for index in range(len(terms))]
            for mark, term in zip(marks, terms, strict=True):
                solver.add(self._z3.Implies(mark, term))
            answer = self._answer_of(solver, solver.check(*marks), names)
            core = {str(mark) for mark in solver.unsat_core()} if answer.can_be == "no" else set()
            return attrs.evolve(answer, core=frozenset(i for i in range(len(terms)) if f"#{i}" in core))
        finally:
            solver.pop()

    def _answer_of(self, solver: Any, result: Any, names: Iterable[str]) -> SolverAnswer:  # noqa: ANN401  (z3 has no types)
        if result == self._z3.unsat:
            return SolverAnswer("no")
        return (
            SolverAnswer("yes", self._read(solver.model(), names))
            if result == self._z3.sat
            else SolverAnswer("unknown")
        )

    def smallest(self, conditions: Sequence[expr.Expr], first: Sequence[str]) -> SolverAnswer:
        """Return small values at which the conditions are true: the sizes of `first`, then everything else, as small as can be."""
        if self._is_expired():
            return SolverAnswer("unknown")
        z3 = self._z3
        optimize = z3.Optimize(ctx=self.context)
        optimize.set("rlimit", EFFORT)
        every = sorted({name for condition in conditions for name in expr.names(condition)} | set(first))
        optimize.add(*[self.term(condition) for condition in [*self.facts_about(every), *conditions]])
        whole = [name for name in every if not isinstance(self._domains[name], expr.BooleanDomain)]
        for group in (list(first), [name for name in whole if name not in first]):
            sizes = [self._variable_term(name) for name in group if name in whole]
            if sizes:
                optimize.minimize(z3.Sum([z3.If(size < 0, -size, size) for size in sizes]))
        result = optimize.check()
        if result == z3.sat:
            return SolverAnswer("yes", self._read(optimize.model(), set(every)))
        return SolverAnswer("no" if result == z3.unsat else "unknown")

    def _read(self, model: Any, read: Iterable[str]) -> dict[str, expr.Value]:  # noqa: ANN401  (z3 has no types)
        values: dict[str, expr.Value] = {}
        for name in sorted(read):
            value = model.eval(self._variable_term(name), model_completion=True)
            domain = self._domains[name]
            if isinstance(domain, expr.BooleanDomain):
                values[name] = self._z3.is_true(value)
            elif isinstance(domain, expr.EnumDomain):
                number = value.as_long()
                values[name] = self._symbols[number] if 0 <= number < len(self._symbols) else domain.values[0]
            else:
                values[name] = value.as_long()
        return values

    def _variable_term(self, name: str) -> Any:  # noqa: ANN401  (z3 has no types)
        return self.term(expr.Name(name, "variable"))

    def term(self, node: expr.Expr) -> Any:  # noqa: ANN401  (z3 has no types)
        """Return the expression as a term of z3."""
        term = self._terms.get(node)
        if term is None:
            term = self._terms[node] = self._translate(node)
        return term

    def _translate(self, node: expr.Expr) -> Any:  # noqa: ANN401  (z3 has no types)
        z3, context = self._z3, self.context
        match node:
            case expr.Boolean(value):
                return z3.BoolVal(value, context)
            case expr.Integer(value):
                return z3.IntVal(value, context)
            case expr.Symbol(value):
                return z3.IntVal(self.number_of(value), context)
            case expr.Name(name):
                is_bool = isinstance(self._domains[name], expr.BooleanDomain)
                return z3.Bool(name, context) if is_bool else z3.Int(name, context)
            case expr.Not(operand):
                return z3.Not(self.term(operand))
            case expr.Negate(operand):
                return -self.term(operand)
            case expr.Arithmetic(sign, left, right):
                one, other = self.term(left), self.term(right)
                return one + other if sign == "+" else one - other if sign == "-" else one * other
            case expr.Compare(first, rest):
                return z3.And(self._chain(first, rest)) if len(rest) > 1 else self._chain(first, rest)[0]
            case expr.Member(operand, choices):
                return z3.Or([self.term(comparison(operand, "==", choice)) for choice in choices])
            case expr.And(operands) | expr.Or(operands):
                join = z3.And if isinstance(node, expr.And) else z3.Or
                return join([self.term(operand) for operand in operands])
            case expr.Count(operands):
                one, zero = z3.IntVal(1, context), z3.IntVal(0, context)
                return z3.Sum([z3.If(self.term(operand), one, zero) for operand in operands])
            case expr.Verdict():
                raise AssertionError("verdicts are decided in a system")

    def _chain(self, first: expr.Expr, rest: tuple[tuple[str, expr.Expr], ...]) -> list[Any]:
        comparisons, left = [], self.term(first)
        for sign, operand in rest:
            right = self.term(operand)
            comparisons.append(_COMPARE[sign](left, right))
            left = right
        return comparisons

    def number_of(self, symbol: str) -> int:
        """Return the number that stands for a value of an enumeration."""
        if symbol not in self._numbers:
            self._numbers[symbol] = len(self._symbols)
            self._symbols.append(symbol)
        return self._numbers[symbol]


_COMPARE: dict[str, Any] = {
    "==": lambda left, right: left == right,
    "!=": lambda left, right: left != right,
    "<": lambda left, right: left < right,
    "<=": lambda left, right: left <= right,
    ">": lambda left, right: left > right,
    ">=": lambda left, right: left >= right,
}


def _as_variable(name: str, domain: expr.Domain) -> Variable:
    return Variable(name, "environment", domain, expr.TRUE)
