"""What the odds tend to when a bound grows without end.

Takes a system and the parameters that grow, gives the system in which they are infinite: comparisons with them are decided, and counters
that only such comparisons read are gone, but for those whose domain does not grow. The chain of that system is finite, so the ceiling of
success is worked out, not searched for.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import attrs

from dsa import expr
from dsa.declarations import Variable
from dsa.machine import Machine
from dsa.simplify import FALSE, all_of, any_of, constant, negated, substituted
from dsa.system import Command, System, in_domain

_OPPOSITE = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


@attrs.frozen
class Limit:
    """The system with infinite parameters.

    `is_ceiling`: at every finite value success is at most as likely as here, and grows with the parameters. It is
    so when only runs that no longer can succeed tell the systems apart.
    """

    system: System
    is_ceiling: bool


class NoLimitError(Exception):
    """What a system tends to cannot be worked out this way; the message says why."""


def limit(system: System, growing: Iterable[str], success: Iterable[str]) -> Limit:
    """Give the system at infinity. Raises NoLimitError when the parameters are more than bounds in comparisons."""
    grown = frozenset(growing)
    decide = _Decision(grown, system.machine.constants)
    plain = _plain(system, decide)
    _require_finite(system, plain, decide)
    commands, late = [], set()
    for command in plain:
        if decide.falls(command.condition):
            late.add(command.target)
        enabled, safe = decide.condition(command.enabled), decide.condition(command.safe)
        if all_of([enabled, safe]) != FALSE:
            commands.append(attrs.evolve(command, enabled=enabled, safe=safe))
    needed = _needed(commands)
    variables = tuple(v for v in system.variables if v.name in needed)
    for variable in variables:
        if decide.grows_with(variable):
            raise NoLimitError(f"variable {variable.name} depends on {decide}")
    kept = tuple(attrs.evolve(command, updates=_kept(command, needed)) for command in commands)
    wanted = frozenset(success)
    is_ceiling = not any(_reaches(system, place, wanted) for place in late)
    reduced = attrs.evolve(system, machine=_without(system.machine, needed), variables=variables, commands=kept)
    return Limit(reduced, is_ceiling)


def _plain(system: System, decide: "_Decision") -> list[Command]:
    """Give the commands, each with all in one condition, and safe when it stays in the domains that do not grow.

    An update that leaves a domain that grows is refused at every finite value, but later and later.
    """
    fixed = {v.name: v for v in system.variables if not decide.grows_with(v)}
    found = []
    for command in system.commands:
        condition = all_of([command.enabled, *map(negated, command.rivals)])
        safe = all_of(in_domain(fixed[name], value) for name, value in command.updates if name in fixed)
        found.append(attrs.evolve(command, enabled=condition, rivals=(), safe=safe))
    return found


def _require_finite(system: System, plain: Sequence[Command], decide: "_Decision") -> None:
    """Raise NoLimitError when a variable grows that may be compared with what grows, or that has a domain which does not."""
    read = _needed(plain)
    for variable in system.variables:
        if decide.grows(variable.initial) and (variable.name in read or not decide.grows_with(variable)):
            raise NoLimitError(f"variable {variable.name} depends on {decide}")
    for command in plain:
        for name, value in command.updates:
            if name in read and decide.grows(value):
                raise NoLimitError(f"variable {name} is set from {decide}")


def _without(machine: Machine, needed: frozenset[str]) -> Machine:
    return attrs.evolve(machine, variables=tuple(v for v in machine.variables if v.name in needed))


def _kept(command: Command, needed: frozenset[str]) -> tuple[tuple[str, expr.Expr], ...]:
    return tuple((name, value) for name, value in command.updates if name in needed)


def _needed(commands: Iterable[Command]) -> frozenset[str]:
    """Give the variables that conditions and domains read, and those that their updates read, and so on."""
    every = list(commands)
    needed = {name for command in every for name in expr.names(command.condition)}
    while True:
        more = {
            read for command in every for name, value in command.updates if name in needed for read in expr.names(value)
        }
        if more <= needed:
            return frozenset(needed)
        needed |= more


def _reaches(system: System, place: int, success: frozenset[str]) -> bool:
    seen, todo = {place}, [place]
    while todo:
        here = todo.pop()
        if system.locations[here].state in success:
            return True
        for command in system.commands_at[here]:
            if command.target not in seen:
                seen.add(command.target)
                todo.append(command.target)
    return False


class _Decision:
    """Decides comparisons with what grows."""

    def __init__(self, grown: frozenset[str], constants: Mapping[str, expr.Value]) -> None:
        self._grown, self._constants = grown, constants

    def __str__(self) -> str:
        return ", ".join(sorted(self._grown))

    def condition(self, node: expr.Expr) -> expr.Expr:
        """Give the condition when what grows is infinite."""
        match node:
            case expr.Not(operand):
                return negated(self.condition(operand))
            case expr.And(operands):
                return all_of(self.condition(operand) for operand in operands)
            case expr.Or(operands):
                return any_of(self.condition(operand) for operand in operands)
            case expr.Compare():
                return self._compared(node)
            case _:
                if self.grows(node):
                    raise NoLimitError(f"{self} is read other than in a comparison")
                return node

    def grows_with(self, variable: Variable) -> bool:
        """Tell whether a variable's domain grows; NoLimitError when it shrinks."""
        if not isinstance(variable.domain, expr.RangeDomain):
            return False
        low, high = self._slope(variable.domain.low), self._slope(variable.domain.high or constant(0))
        if low > 0 or high < 0:
            raise NoLimitError(f"the domain of {variable.name} shrinks as {self} grows")
        return low < 0 or high > 0

    def falls(self, node: expr.Expr) -> bool:
        """Tell whether the condition may be true at finite values at which it is false at infinity."""
        atoms = ((atom, sign) for atom, sign in _atoms(node, 1) if self.grows(atom))
        return any(self._compared(atom) == constant(sign < 0) for atom, sign in atoms)

    def grows(self, node: expr.Expr) -> bool:
        """Tell whether an expression reads what grows."""
        return bool(expr.names(node) & self._grown)

    def _compared(self, whole: expr.Compare) -> expr.Expr:
        if not self.grows(whole):
            return whole
        if len(whole.rest) != 1:
            raise NoLimitError(f"{self} is read in a chain of comparisons")
        ((sign, right),) = whole.rest
        slope = self._slope(whole.first) - self._slope(right)
        if slope == 0:  # the two sides grow alike: what is between them does not depend on it
            return substituted(whole, lambda node: constant(0) if self.grows(node) else node)
        if sign not in _OPPOSITE:
            raise NoLimitError(f"{self} is compared for equality")
        return expr.Boolean((sign in {">", ">="}) == (slope > 0))

    def _slope(self, node: expr.Expr) -> int:
        """Give how much an expression grows with what grows; NoLimitError when that is no constant."""
        match node:
            case expr.Name(name):
                return int(name in self._grown)
            case expr.Negate(operand):
                return -self._slope(operand)
            case expr.Arithmetic("+", left, right):
                return self._slope(left) + self._slope(right)
            case expr.Arithmetic("-", left, right):
                return self._slope(left) - self._slope(right)
            case expr.Arithmetic("*", left, right):
                one, other = self._slope(left), self._slope(right)
                if one == other == 0:
                    return 0
                factor = self._fixed(right if one else left)
                return (one or other) * factor
            case _:
                return 0

    def _fixed(self, whole: expr.Expr) -> int:
        def leaf(node: expr.Expr) -> expr.Expr:
            known = isinstance(node, expr.Name) and node.name in self._constants and node.name not in self._grown
            return constant(self._constants[node.name]) if known else node  # type: ignore[union-attr]  # a Name

        found = substituted(whole, leaf)
        if not isinstance(found, expr.Integer):
            raise NoLimitError(f"{self} is multiplied by what is no constant")
        return found.value


def _atoms(node: expr.Expr, sign: int) -> Iterator[tuple[expr.Compare, int]]:
    """Give the comparisons of a condition, each with whether it stands as it is (1) or under a `not` (-1)."""
    match node:
        case expr.Not(operand):
            yield from _atoms(operand, -sign)
        case expr.And(operands) | expr.Or(operands):
            for operand in operands:
                yield from _atoms(operand, sign)
        case expr.Compare():
            yield node, sign
