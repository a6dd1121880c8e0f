"""Invariants found by Spacer (Komuravelli, Gurfinkel and Chaki, 2014), z3's engine for Horn clauses.

Takes an observed system, gives candidates for each location: what Spacer believes holds there. They are not trusted: induction
checks them like any other candidate.
"""

from collections.abc import Sequence
from typing import Any

from dsa.checks.observers import Observed
from dsa.checks.proof.induction import Lemmas
from dsa.checks.proof.logic import Logic
from dsa.expr import And, Arithmetic, Boolean, Expr, Integer, Name, Negate
from dsa.simplify import all_of, any_of, compared, negated
from dsa.system import start_values


def invariants(logic: Logic, found: Observed, milliseconds: int) -> Lemmas:
    """Give candidates for each location; none when Spacer finds no invariant in time, or one that cannot be written here."""
    return _Clauses(logic, found).solved(milliseconds)


#: Without these, locations are merged, and nothing can be read off for them.
_KEEP_RELATIONS = {"xform.inline_eager": False, "xform.inline_linear": False, "xform.slice": False}


class _Clauses:
    """The system as Horn clauses: a relation for each location, over parameters and variables."""

    def __init__(self, logic: Logic, found: Observed) -> None:
        import z3

        self._z3: Any = z3
        self._logic, self._found, self._system = logic, found, found.system
        machine = found.system.machine
        self._names = [Name(p.name, "parameter") for p in machine.parameters]
        self._names += [Name(v.name, "variable") for v in found.system.variables]
        self._terms = [logic.term(name) for name in self._names]
        sorts = [term.sort() for term in self._terms]
        places = range(len(found.system.locations))
        self._at = [z3.Function(f"at{place}", *sorts, z3.BoolSort()) for place in places]
        self._bad = z3.Function("bad", z3.BoolSort())

    def solved(self, milliseconds: int) -> Lemmas:
        """Ask whether a sight can be reached, and read what holds at each location when none can."""
        z3 = self._z3
        fixedpoint = z3.Fixedpoint()
        fixedpoint.set(**{"engine": "spacer", "timeout": milliseconds, **_KEEP_RELATIONS})
        fixedpoint.declare_var(*self._terms)
        for relation in (*self._at, self._bad):
            fixedpoint.register_relation(relation)
        for head, body in self._rules():
            fixedpoint.rule(head, body)
        try:
            if fixedpoint.query(self._bad()) != z3.unsat:
                return {}
            covers = [fixedpoint.get_cover_delta(-1, relation) for relation in self._at]
            return {place: _conjuncts(self._read(cover)) for place, cover in enumerate(covers)}
        except (z3.Z3Exception, NotImplementedError):
            return {}

    def _rules(self) -> list[tuple[Any, list[Any]]]:
        term, system = self._logic.term, self._system
        facts = [term(fact) for fact in self._logic.known_of([name.name for name in self._names])]
        initial = start_values(system)
        begins = [term(compared(Name(v.name, "variable"), "==", initial[v.name])) for v in system.variables]
        rules = [(self._at[0](*self._terms), [*facts, *begins])]
        for command in system.commands:
            after = [term(command.after.get(name.name, name)) for name in self._names]
            here = self._at[command.source](*self._terms)
            rules.append((self._at[command.target](*after), [here, *facts, term(command.condition)]))
        return rules + [
            (self._bad(), [self._at[sight.location](*self._terms), *facts, term(sight.condition)])
            for sight in self._found.sights
        ]

    def _read(self, found: Any) -> Expr:  # noqa: ANN401  (z3 has no types)
        """Write a formula of z3 in our words; NotImplementedError for what has none."""
        z3 = self._z3
        if z3.is_var(found):
            place: int = z3.get_var_index(found)
            return self._names[place]
        if z3.is_int_value(found):
            return Integer(found.as_long())
        parts = [self._read(child) for child in found.children()]
        kind = found.decl().kind()
        if kind in {z3.Z3_OP_TRUE, z3.Z3_OP_FALSE}:
            return Boolean(bool(kind == z3.Z3_OP_TRUE))
        if kind == z3.Z3_OP_AND:
            return all_of(parts)
        if kind == z3.Z3_OP_OR:
            return any_of(parts)
        if kind == z3.Z3_OP_NOT:
            return negated(parts[0])
        if kind == z3.Z3_OP_UMINUS:
            return Negate(parts[0])
        signs = {z3.Z3_OP_LE: "<=", z3.Z3_OP_GE: ">=", z3.Z3_OP_LT: "<", z3.Z3_OP_GT: ">", z3.Z3_OP_EQ: "=="}
        if kind in signs:
            return self._compared(parts, signs[kind], found)
        operators = {z3.Z3_OP_ADD: "+", z3.Z3_OP_SUB: "-", z3.Z3_OP_MUL: "*"}
        if kind not in operators:
            raise NotImplementedError(str(found.decl()))
        return _folded(operators[kind], parts)

    def _compared(self, parts: Sequence[Expr], sign: str, found: Any) -> Expr:  # noqa: ANN401  (z3 has no types)
        if sign == "==" and self._z3.is_bool(found.arg(0)):
            one, other = parts
            return any_of([all_of([one, other]), all_of([negated(one), negated(other)])])
        return compared(parts[0], sign, parts[1])


def _folded(sign: Any, parts: Sequence[Expr]) -> Expr:  # noqa: ANN401  (one of three signs)
    total = parts[0]
    for part in parts[1:]:
        total = Arithmetic(sign, total, part)
    return total


def _conjuncts(found: Expr) -> Sequence[Expr]:
    return found.operands if isinstance(found, And) else (found,)
