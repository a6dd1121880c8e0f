"""Retry targets: the smallest bound on retries with which success is likely enough, and the ceiling that no bound can lift it over.

Takes a `Question` and a target, and varies a parameter. The ceiling is computed in the limit, so "impossible" never means that a search gave up.
`limit` gives the system in which the parameters that grow are infinite: comparisons with them are decided, and counters that only such comparisons
read are left out, except those whose domain does not grow. The chain of that system is finite.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Literal

import attrs

from dsa import expr
from dsa.checks.odds.chain_solver import number_text
from dsa.checks.odds.markov_chain import odds_error
from dsa.checks.odds.run_odds import Question, RunOdds, obstacles
from dsa.declarations import Variable
from dsa.errors import UndecidedError
from dsa.expr import FALSE, Interval, Value, all_of, any_of, concrete, constant, negation, substitute
from dsa.machine import Machine
from dsa.system import GuardedCommand, System, counter, in_domain
from dsa.text import closest

_OPPOSITE = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


@attrs.frozen
class UnboundedSystem:
    """The system with infinite parameters.

    `is_ceiling`: at every finite value success is at most as likely as here, and grows with the parameters. That is so
    when the systems differ only in runs that can no longer succeed.
    """

    system: System
    is_ceiling: bool


def limit(system: System, parameters: Iterable[str], success: Iterable[str]) -> UnboundedSystem:
    """Return the system at infinity. Raises UndecidedError when the parameters are more than bounds in comparisons."""
    growing_names = frozenset(parameters)
    decide = _Decision(growing_names, system.machine.constants)
    plain = _plain(system, decide)
    _require_finite(system, plain, decide)
    commands, late = [], set()
    for command in plain:
        if decide.falls(command.condition):
            late.add(command.target)
        enabled_when, safe = decide.condition(command.enabled_when), decide.condition(command.safe)
        if all_of([enabled_when, safe]) != FALSE:
            commands.append(attrs.evolve(command, enabled_when=enabled_when, safe=safe))
    read_variables = _read_variables(commands)
    variables = tuple(v for v in system.variables if v.name in read_variables)
    for variable in variables:
        if decide.grows_with(variable):
            raise UndecidedError(f"variable {variable.name} depends on {decide}")
    reduced_commands = tuple(
        attrs.evolve(command, updates=_updates_of(command, read_variables)) for command in commands
    )
    success_states = frozenset(success)
    is_ceiling = not any(_reaches(system, place, success_states) for place in late)
    reduced_system = attrs.evolve(
        system,
        machine=_without(system.machine, read_variables),
        variables=variables,
        commands=reduced_commands,
        counted_effects=tuple(effect for effect in system.counted_effects if counter(effect).name in read_variables),
    )
    return UnboundedSystem(reduced_system, is_ceiling)


def _plain(system: System, decide: "_Decision") -> list[GuardedCommand]:
    """Return the commands, each with all in one condition, and safe when it stays in the domains that do not grow.

    An update that leaves a domain that grows is refused at every finite value, but later and later.
    """
    fixed_variables = {v.name: v for v in system.variables if not decide.grows_with(v)}
    plain_commands = []
    for command in system.commands:
        condition = all_of([command.enabled_when, *map(negation, command.rivals)])
        safe = all_of(
            in_domain(fixed_variables[name], value) for name, value in command.updates if name in fixed_variables
        )
        plain_commands.append(attrs.evolve(command, enabled_when=condition, rivals=(), safe=safe))
    return plain_commands


def _require_finite(system: System, plain: Sequence[GuardedCommand], decide: "_Decision") -> None:
    """Raise UndecidedError when a variable grows that may be compared with what grows, or that has a domain which does not."""
    read = _read_variables(plain)
    for variable in system.variables:
        if decide.grows(variable.initial) and (variable.name in read or not decide.grows_with(variable)):
            raise UndecidedError(f"variable {variable.name} depends on {decide}")
    for command in plain:
        for name, value in command.updates:
            if name in read and decide.grows(value):
                raise UndecidedError(f"variable {name} is set from {decide}")


def _without(machine: Machine, read_variables: frozenset[str]) -> Machine:
    return attrs.evolve(machine, variables=tuple(v for v in machine.variables if v.name in read_variables))


def _updates_of(command: GuardedCommand, read_variables: frozenset[str]) -> tuple[tuple[str, expr.Expr], ...]:
    return tuple((name, value) for name, value in command.updates if name in read_variables)


def _read_variables(commands: Iterable[GuardedCommand]) -> frozenset[str]:
    """Return the variables that conditions and domains read, and those that their updates read, and so on."""
    every = list(commands)
    variables = {name for command in every for name in expr.names(command.condition)}
    while True:
        more = {
            read
            for command in every
            for name, value in command.updates
            if name in variables
            for read in expr.names(value)
        }
        if more <= variables:
            return frozenset(variables)
        variables |= more


def _reaches(system: System, place: int, success: frozenset[str]) -> bool:
    visited_places, todo = {place}, [place]
    while todo:
        here = todo.pop()
        if system.locations[here].state in success:
            return True
        for command in system.commands_at[here]:
            if command.target not in visited_places:
                visited_places.add(command.target)
                todo.append(command.target)
    return False


class _Decision:
    """Decides comparisons with what grows."""

    def __init__(self, growing_names: frozenset[str], constants: Mapping[str, expr.Value]) -> None:
        self._growing_names, self._constants = growing_names, constants

    def __str__(self) -> str:
        return ", ".join(sorted(self._growing_names))

    def condition(self, node: expr.Expr) -> expr.Expr:
        """Return the condition when what grows is infinite."""
        match node:
            case expr.Not(operand):
                return negation(self.condition(operand))
            case expr.And(operands):
                return all_of(self.condition(operand) for operand in operands)
            case expr.Or(operands):
                return any_of(self.condition(operand) for operand in operands)
            case expr.Compare():
                return self._decide_comparison(node)
            case _:
                if self.grows(node):
                    raise UndecidedError(f"{self} is read outside of a comparison")
                return node

    def grows_with(self, variable: Variable) -> bool:
        """Return whether a variable's domain grows; UndecidedError when it shrinks."""
        if not isinstance(variable.domain, expr.RangeDomain):
            return False
        low, high = self._slope(variable.domain.low), self._slope(variable.domain.high or constant(0))
        if low > 0 or high < 0:
            raise UndecidedError(f"the domain of {variable.name} shrinks as {self} grows")
        return low < 0 or high > 0

    def falls(self, node: expr.Expr) -> bool:
        """Return whether the condition may be true at finite values at which it is false at infinity."""
        atoms = ((atom, sign) for atom, sign in _atoms(node, 1) if self.grows(atom))
        return any(self._decide_comparison(atom) == constant(sign < 0) for atom, sign in atoms)

    def grows(self, node: expr.Expr) -> bool:
        """Return whether an expression reads what grows."""
        return bool(expr.names(node) & self._growing_names)

    def _decide_comparison(self, whole: expr.Compare) -> expr.Expr:
        if not self.grows(whole):
            return whole
        if len(whole.rest) != 1:
            raise UndecidedError(f"{self} is read in a chain of comparisons")
        sign, (left, right) = whole.rest[0][0], map(self._with_counts, expr.children(whole))
        slope = self._slope(left) - self._slope(right)
        if slope == 0:  # the two sides grow alike: what is between them does not depend on it
            plain = expr.Compare(left, ((sign, right),))
            return substitute(plain, lambda node: constant(0) if self.grows(node) else node)
        if sign not in _OPPOSITE:
            raise UndecidedError(f"{self} is compared for equality")
        return expr.Boolean((sign in {">", ">="}) == (slope > 0))

    def _with_counts(self, node: expr.Expr) -> expr.Expr:
        """Return a number whose counts are of decided conditions."""
        match node:
            case expr.Count(operands):
                return expr.count_of(map(self.condition, operands))
            case expr.Arithmetic() | expr.Negate():
                return expr.with_children(node, map(self._with_counts, expr.children(node)))
            case _:
                return node

    def _slope(self, node: expr.Expr) -> int:
        """Return how much an expression grows with what grows; UndecidedError when that is not a constant."""
        match node:
            case expr.Name(name):
                return int(name in self._growing_names)
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
                factor = self._constant_value(right if one else left)
                return (one or other) * factor
            case _ if self.grows(node):
                raise UndecidedError(f"{self} is read outside of a comparison")
            case _:
                return 0

    def _constant_value(self, whole: expr.Expr) -> int:
        def leaf(node: expr.Expr) -> expr.Expr:
            is_known = (
                isinstance(node, expr.Name) and node.name in self._constants and node.name not in self._growing_names
            )
            return constant(self._constants[node.name]) if is_known else node  # type: ignore[union-attr]  # a Name

        value = substitute(whole, leaf)
        if not isinstance(value, expr.Integer):
            raise UndecidedError(f"{self} is multiplied by something that is not a constant")
        return value.value


def _atoms(node: expr.Expr, sign: int) -> Iterator[tuple[expr.Compare, int]]:
    """Yield the comparisons of a condition, each with 1, or with -1 under a `not`; with both where it is not clear which way it works."""
    match node:
        case expr.Not(operand):
            yield from _atoms(operand, -sign)
        case expr.And(operands) | expr.Or(operands):
            for operand in operands:
                yield from _atoms(operand, sign)
        case expr.Compare(expr.Count(operands), ((relation, expr.Integer()),)) if relation in _OPPOSITE:
            for operand in operands:
                yield from _atoms(operand, sign if relation in {">", ">="} else -sign)
        case expr.Compare():
            yield node, sign
            for count in (part for part in expr.walk(node) if isinstance(part, expr.Count)):
                for operand in count.operands:
                    yield from _atoms(operand, 1)
                    yield from _atoms(operand, -1)


#: How far values are tried one by one where success need not grow with them.
MOST_TRIALS = 100
DEFAULT_VARY = "rmax"
_ROUNDING = 1e-12
#: As good as infinite to a counter in a chain; and the number of additional configurations that are not many.
HUGE, _MORE = 1 << 200, 1_000

Answer = Literal["reached", "impossible", "unknown"]


@attrs.frozen
class TargetResult:
    """What a target needs: the smallest value of the parameter, or why there is none.

    `ceiling` is what success tends to as the parameter grows; with `is_ceiling` no value gives more. `odds` is at
    `value`; None unless the target is reached.
    """

    parameter: str
    target: float
    answer: Answer
    value: int | None = None
    ceiling: float | None = None
    is_ceiling: bool = False
    odds: RunOdds | None = None
    reason: str = ""


@attrs.frozen
class VariedParameter:
    """A parameter, or the first part of several (`rmax` of `rmax.g_test`), with the values that all of them can have."""

    name: str
    parameters: tuple[str, ...]
    low: int
    high: int | None

    def at(self, value: int) -> dict[str, Value]:
        """Return the parameters' values."""
        return dict.fromkeys(self.parameters, value)


def varied_parameter(machine: Machine, name: str | None = None) -> VariedParameter:
    """Return the parameter to vary: without a name, `rmax` or the only number. Raises ParameterError when there is no such number."""
    numbers = {p.name: d for p in machine.parameters if isinstance(d := concrete(p.domain, {}), Interval)}
    base_name = name or DEFAULT_VARY
    names = [base_name] if base_name in numbers else [other for other in numbers if other.startswith(f"{base_name}.")]
    if not names and name is None and len(numbers) == 1:
        base_name, names = next(iter(numbers)), list(numbers)
    if not names:
        raise odds_error(
            f"machine {machine.name} has no numeric parameter '{base_name}' to vary (--vary); {closest(base_name, numbers)}"
        )
    highs = [high for parameter in names if (high := numbers[parameter].high) is not None]
    low, high = max(numbers[parameter].low for parameter in names), min(highs) if highs else None
    if high is not None and high < low:
        name_list = ", ".join(names)
        raise odds_error(
            f"the domains of {name_list} have no value in common: vary only one of them (--vary {names[0]})"
        )
    return VariedParameter(base_name, tuple(names), low, high)


def curve(question: Question, what: VariedParameter, values: Iterable[int]) -> tuple[tuple[int, RunOdds], ...]:
    """Work out the odds at several values of a parameter."""
    return tuple((value, question.at(what.at(value))) for value in values)


def smallest(question: Question, target: float, what: VariedParameter) -> TargetResult:
    """Find the smallest value at which success is at least `target` (the least over all choices).

    A value counts only where nothing is unknown: not where the table refuses what can come, or a variable starts
    outside its domain. Where a limit is reached, the answer is unknown. Raises ParameterError for an invalid target.
    """
    if not 0 < target <= 1:
        raise odds_error(f"{target:g} is not a target: it must be above 0 and at most 1")
    if not question.success:
        return TargetResult(what.name, target, "unknown", reason="nothing counts as success")
    try:
        result = _TargetSearch(question, target, what).run()
    except UndecidedError as limit_met:
        return TargetResult(what.name, target, "unknown", reason=str(limit_met))
    return result if result.value is None else attrs.evolve(result, odds=question.at(what.at(result.value)))


class _TargetSearch:
    def __init__(self, question: Question, target: float, what: VariedParameter) -> None:
        self._question, self._target, self._what = question, target, what
        #: The least odds of success at each value that was tried, or what is unknown there.
        self._outcomes: dict[int, float | str] = {}

    def run(self) -> TargetResult:
        low = self._what.low
        possible = () if self._question.chain(self._what.at(low)).missing else self._values(low, MOST_TRIALS)
        start = next((value for value in possible if not self._fault(value)), None)
        if start is None:
            return self._result("unknown", reason=self._fault(low))
        # Odds that change with the retry number may jump at first; and a success that is sure needs no limit.
        memory = max((g.memory for g in self._question.world.guards.values()), default=1)
        if (value := self._first(self._values(start, memory))) is not None:
            return self._result("reached", value=value)
        try:
            at_infinity = limit(self._question.system, self._what.parameters, self._question.success)
        except UndecidedError as why:
            return self._one_by_one(None, f"the limit that success tends to is not known: {why}")
        chain = attrs.evolve(self._question, system=at_infinity.system).chain()
        if not chain.complete:
            raise UndecidedError(f"if {self._what.name} is unlimited: {chain.stop_reason}")
        if chain.missing:
            return self._one_by_one(None, f"no odds are given for {', '.join(chain.missing)}")
        ceiling = self._question.success_of(chain)
        # The choices among answers can be the same at every value; which outside events are accepted may depend on it.
        if self._question.world.outside or len(chain.choices[0]) > 1 or not at_infinity.is_ceiling:
            return self._one_by_one(ceiling, self._why_not(ceiling))
        if self._target > ceiling + _ROUNDING:
            return self._never(ceiling, start, refuses=any(end.kind == "refused" for end in chain.ends.values()))
        if self._target > ceiling - _ROUNDING and not self._is_met(len(chain.numbers)):
            reason = f"the ceiling is approached as {self._what.name} grows, and never reached"
            return self._result("impossible", ceiling=ceiling, is_ceiling=True, reason=reason)
        return self._search_growing(ceiling, start)

    def _why_not(self, ceiling: float) -> str:
        if self._question.world.outside and ceiling < self._target:
            return (
                "with --outside, a target must be reached whichever events come from outside, and these may always be events"
                " that stop the run; give odds instead, such as --event approved=0.8"
            )
        return f"success might not grow with {self._what.name}"

    def _is_met(self, configurations: int) -> bool:
        """Return whether some value may reach the ceiling, which is so when a huge value has not many more configurations than the limit.

        Counters then stay small, so a huge value is as good as infinite; otherwise runs go on until they reach it.
        """
        huge = HUGE if self._what.high is None else self._what.high
        most = min(self._question.limits.max_states, 4 * configurations + _MORE)
        question = attrs.evolve(self._question, limits=attrs.evolve(self._question.limits, max_states=most))
        chain = question.chain(self._what.at(huge))
        return chain.complete or not chain.numbers

    def _never(self, ceiling: float, low: int, *, refuses: bool) -> TargetResult:
        """Return the result for a target above the ceiling; where the parameter has a largest value, the ceiling is the success there."""
        name, last, reason = self._what.name, self._what.high, ""
        try:
            if last is not None and not self._fault(last):
                ceiling, reason = self._success(last), f"{name} is at most {last}"
            elif refuses:  # so it does at all values that are large enough
                high = _bisection(*self._bracket(low, self._fault), self._fault)
                ceiling, reason = self._success(high - 1), f"{name} is at most {high - 1}; {self._fault(high)}"
        except UndecidedError as limit_met:
            reason = f"the highest value of {name} is too large to try: {limit_met}"
        return self._result("impossible", ceiling=ceiling, is_ceiling=True, reason=reason)

    def _search_growing(self, ceiling: float, low: int) -> TargetResult:
        """Find the smallest value, where success grows with it."""
        low, high = self._bracket(low, lambda value: self._fault(value) or self._good(value))
        if self._fault(high):
            high = _bisection(low, high, self._fault) - 1
        if not self._good(high):
            return self._not_reached(
                ceiling, "success tends to more than the target, but no value that was tried reaches the target"
            )
        return self._result("reached", value=_bisection(low, high, self._good), ceiling=ceiling, is_ceiling=True)

    def _bracket(self, low: int, is_so: Callable[[int], object]) -> tuple[int, int]:
        """Go up in steps that double until a value is so, or is the largest; return the one before it, and the value."""
        high, step = low, 1
        while not is_so(high) and high != self._what.high and high < HUGE:
            low, high, step = high, self._within(high + step), step * 2
        return low, high

    def _one_by_one(self, ceiling: float | None, why: str) -> TargetResult:
        value = self._first(self._values(self._what.low, MOST_TRIALS))
        if value is not None:
            return self._result("reached", value=value, ceiling=ceiling)
        return self._not_reached(ceiling, why)

    def _not_reached(self, ceiling: float | None, why: str) -> TargetResult:
        """Return why no value that was tried is enough; where all values were tried, the target is impossible."""
        name, outcomes = self._what.name, sorted(self._outcomes.items())
        most = {value: outcome for value, outcome in outcomes if not isinstance(outcome, str)}
        last = max(most)
        faults = sorted((value < last, value, outcome) for value, outcome in outcomes if isinstance(outcome, str))
        if last == self._what.high and not faults:
            highest, reason = max(most.values()), f"{name} is at most {last}"
            return self._result("impossible", ceiling=highest, is_ceiling=True, reason=reason)
        if not faults:
            return self._result("unknown", ceiling=ceiling, reason=f"not reached up to {name} = {last}; {why}")
        reason = f"not reached up to {name} = {last}, where success is {number_text(most[last], 5)}; {faults[0][-1]}"
        return self._result("unknown", reason=reason)

    def _values(self, low: int, more: int) -> range:
        """Return a value and the `more` values after it."""
        return range(low, self._within(low + more) + 1)

    def _within(self, value: int) -> int:
        return value if self._what.high is None else min(value, self._what.high)

    def _first(self, values: Iterable[int]) -> int | None:
        return next((value for value in values if self._good(value)), None)

    def _at(self, value: int) -> float | str:
        if value not in self._outcomes:
            chain = self._question.chain(self._what.at(value))
            at = f"at {self._what.name} = {value}: "
            if chain.numbers and not chain.complete:
                raise UndecidedError(at + chain.stop_reason)
            faults = obstacles(chain, self._question.world)
            self._outcomes[value] = at + "; ".join(faults) if faults else self._question.success_of(chain)
        return self._outcomes[value]

    def _fault(self, value: int) -> str:
        outcome = self._at(value)
        return outcome if isinstance(outcome, str) else ""

    def _success(self, value: int) -> float:
        outcome = self._at(value)
        assert not isinstance(outcome, str), "asked where nothing is unknown"
        return outcome

    def _good(self, value: int) -> bool:
        outcome = self._at(value)
        return not isinstance(outcome, str) and outcome >= self._target - _ROUNDING

    def _result(
        self,
        answer: Answer,
        *,
        value: int | None = None,
        ceiling: float | None = None,
        is_ceiling: bool = False,
        reason: str = "",
    ) -> TargetResult:
        return TargetResult(
            self._what.name, self._target, answer, value, ceiling=ceiling, is_ceiling=is_ceiling, reason=reason
        )


def _bisection(low: int, high: int, is_so: Callable[[int], object]) -> int:
    """Return a value up to `high` that is so while the value below is not; `low` is not so, and `high` is."""
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_so(middle) else (middle, high)
    return high
