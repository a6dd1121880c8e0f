"""PRISM models: a machine as a Markov chain if only guards decide, else as a Markov decision process, for Storm or PRISM.

The odds are those in the Guards table. Guards without odds, and which event comes, are choices. The model's states are the machine's configurations,
except those that only a verdict of probability 0 leads to, and with the memory of guards whose odds change.
"""

from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from functools import cached_property

import attrs

from dsa.declarations import Always, ExpectedCount, Form, Guard, Never, Possible, Probability, show
from dsa.expr import (
    FALSE,
    TRUE,
    Expr,
    Leaf,
    Name,
    Outcome,
    Symbol,
    Value,
    Verdict,
    all_of,
    any_of,
    negation,
    show_number,
    show_value,
)
from dsa.ground_system import Field
from dsa.machine import Machine
from dsa.system import happens
from dsa.targets.closed_model import ClosedCommand, ClosedModel, closed_model, require_small
from dsa.targets.spelling import Identifiers, Syntax, export_error

SYNTAX = Syntax("&", "|", "!", {"==": "="})
_MOST_BRANCHES = 10_000

#: A choice at one location: an event, and the verdicts of guards without odds.
_Choice = tuple[str | None, str, tuple[tuple[str, Outcome], ...]]


def prism(machine: Machine) -> str:
    """Write a machine as a PRISM model at its parameter values. Raises DsaError."""
    return "\n".join(_PrismModel(machine).lines()) + "\n"


def prism_unsaid(machine: Machine) -> tuple[str, ...]:
    """Return the properties without a formula in the model, and why."""
    reasons = ((item, _unsaid(item.form)) for item in machine.properties)
    return tuple(f"{show(item.form)}: {words}" for item, words in reasons if words)


def _unsaid(form: Form) -> str:
    match form:
        case Always(p) | Never(p) | Possible(p) | Probability(p):
            return "this property is about steps, not states; export to promela" if happens(p) else ""
        case ExpectedCount(Name(_, "effect"), _):
            return ""
        case ExpectedCount():
            return "the model counts only effects"
        case _:
            return "no formula over states expresses it; export to promela"


@attrs.frozen
class _ChoiceBranch:
    """One result of a choice: its probability and its step; None if the table refuses the event."""

    probability: str
    step: ClosedCommand | None
    verdicts: tuple[tuple[str, Outcome], ...]


@attrs.frozen
class _Command:
    label: str
    location: int
    condition: Expr
    branches: tuple[_ChoiceBranch, ...]


@attrs.frozen
class _Odds:
    """The odds of one guard as decimals, by retry number: the number of `failed` in a row."""

    numbers: tuple[dict[Outcome, str], ...]


def _odds(guard: Guard) -> _Odds | None:
    """Return a guard's odds; None if there are none, or they do not add up over its verdicts."""
    if not guard.pass_odds:
        return None
    numbers: list[dict[Outcome, str]] = []
    for retry in range(max(len(guard.pass_odds), len(guard.fatal_odds))):
        passed = Decimal(show_number(guard.pass_odds[min(retry, len(guard.pass_odds) - 1)]))
        odds = guard.fatal_odds or (0.0,)
        fatal = Decimal(show_number(odds[min(retry, len(odds) - 1)]))
        probabilities: dict[Outcome, Decimal] = {"passed": passed, "failed": 1 - passed - fatal, "fatal": fatal}
        if probabilities["failed"] < 0 or sum(probabilities[outcome] for outcome in guard.outcomes) != 1:
            return None
        numbers.append({outcome: format(number.normalize(), "f") for outcome, number in probabilities.items()})
    return _Odds(tuple(numbers))


def _require_own_retries(machine: Machine, guard: Guard) -> None:
    """Raise DsaError for a guard, with odds by retry number, of answers of which several are awaited: its retries then mix theirs."""
    for event in guard.judges:
        effect = machine.event_named[event].origin
        if effect in machine.numbered_effects:
            where = f"line {guard.span.line}: " if guard.span else ""
            raise export_error(
                f"{where}the odds of guard {guard.name} change with its retry number, and {effect} may be outstanding several times, "
                "so the model cannot tell the retries apart; give one number for pass and one for fatal"
            )


class _PrismModel:
    def __init__(self, machine: Machine) -> None:
        self._model: ClosedModel = closed_model(machine)
        require_small(self._model, "PRISM")
        self._spelling = Identifiers()
        labels = map(self._model.label, range(len(self._model.locations)))
        self._places = [self._spelling.give("at_", label) for label in labels]
        self._odds = {guard.name: odds for guard in machine.guards if (odds := _odds(guard))}
        for guard in machine.guards:
            numbers = self._odds[guard.name].numbers if guard.name in self._odds else ()
            if any(each != numbers[0] for each in numbers):
                _require_own_retries(machine, guard)

    @cached_property
    def _commands(self) -> tuple[_Command, ...]:
        commands: list[_Command] = []
        for location, choices in self._choices.items():
            for choice, steps in choices.items():
                for condition, branches in self._split(choice, steps):
                    commands.append(_Command(f"a{len(commands) + 1}", location, condition, branches))
        return tuple(commands)

    @cached_property
    def _choices(self) -> dict[int, dict[_Choice, list[ClosedCommand]]]:
        choices: dict[int, dict[_Choice, list[ClosedCommand]]] = {place: {} for place in range(len(self._places))}
        for step in self._model.steps:
            occurrence = step.command.occurrence
            free_verdicts = tuple((guard, outcome) for guard, outcome in occurrence.verdicts if guard not in self._odds)
            choices[step.command.source].setdefault((occurrence.source, occurrence.event, free_verdicts), []).append(
                step
            )
        return choices

    def _split(
        self, choice: _Choice, steps: Sequence[ClosedCommand]
    ) -> Iterator[tuple[Expr, tuple[_ChoiceBranch, ...]]]:
        """Yield the condition and the branches for each way in which the values decide the results of all verdicts."""
        first = steps[0].command.occurrence.verdicts
        guards = [guard for guard, _ in first if guard in self._odds]
        combinations: list[tuple[tuple[str, Outcome], ...]] = [()]
        for guard in guards:
            outcomes = self._model.machine.guard_named[guard].outcomes
            combinations = [(*rest, (guard, outcome)) for rest in combinations for outcome in outcomes]
        ways: list[tuple[Expr, tuple[_ChoiceBranch, ...]]] = [(TRUE, ())]
        for combination in combinations:
            verdicts = set(combination) | set(choice[2])
            mine = [step for step in steps if set(step.command.occurrence.verdicts) == verdicts]
            otherwise = negation(any_of(step.condition for step in mine))
            options: list[tuple[Expr, ClosedCommand | None]] = [
                *((step.condition, step) for step in mine),
                (otherwise, None),
            ]
            probability = " * ".join(self._probability(guard, outcome) for guard, outcome in combination) or "1"
            ways = [
                (both, (*branches, _ChoiceBranch(probability, step, combination)))
                for condition, branches in ways
                for option, step in options
                if self._model.ground.ground_condition(both := all_of([condition, option])) != FALSE
            ]
            if len(ways) > _MOST_BRANCHES:
                raise export_error(
                    f"the verdicts for {choice[1]} can have more than {_MOST_BRANCHES} different results"
                )
        for condition, branches in ways:
            if any(branch.step is not None for branch in branches):
                yield condition, branches

    def _probability(self, guard: str, outcome: Outcome) -> str:
        numbers = self._odds[guard].numbers
        text = numbers[-1][outcome]
        for retry, there in reversed(list(enumerate(numbers[:-1]))):
            text = f"({self._memory(guard)} = {retry} ? {there[outcome]} : {text})"
        return text

    def _memory(self, guard: str) -> str:
        return self._spelling.give("failures_", guard)

    # -- text ---------------------------------------------------------------------------------------------------------

    def lines(self) -> Iterator[str]:
        """Yield the lines of the model."""
        model, machine = self._model, self._model.machine
        is_chain = all(len(choices) <= 1 for choices in self._choices.values())
        yield f"// {machine.name}, written by `dsa export --to prism` for {model.made_for}; export it again for other values."
        for guard in machine.guards:
            is_asked = any(guard.name in dict(s.command.occurrence.verdicts) for s in model.steps)
            if is_asked and guard.name not in self._odds:
                yield f"// {guard.name} has no odds that add up to 1 over its verdicts, so its verdicts are nondeterministic."
        if is_chain:
            yield "dtmc"
        else:
            yield "// Some choices in this model are nondeterministic, so ask for Pmin, Pmax, Rmin, Rmax."
            yield "mdp"
        yield ""
        for name, value in machine.constants.items():
            kind = "bool" if isinstance(value, bool) else "int"
            number = str(value).lower() if isinstance(value, bool) else model.ground.number(value)
            yield f"const {kind} {self._spelling.give('p_', name)} = {number};"
        yield from (f"const int {self._spelling.give('k_', s)} = {number};" for s, number in model.symbols.items())
        yield from (f"const int {name} = {place};" for place, name in enumerate(self._places))
        yield ""
        yield "module machine"
        yield f"  at : [0..{max(1, len(self._places) - 1)}] init {self._places[0]};"
        yield from (f"  {self._declaration(field)}" for field in model.fields)
        for guard_name, odds in self._odds.items():
            if len(odds.numbers) > 1:
                yield f"  {self._memory(guard_name)} : [0..{len(odds.numbers) - 1}] init 0;  // how often in a row it has failed"
        for command in self._commands:
            yield from self._command(command)
        busy = {command.location for command in self._commands}
        yield from (f"  [] at = {name} -> true;" for place, name in enumerate(self._places) if place not in busy)
        yield "endmodule"
        yield ""
        yield from self._labels()
        yield from self._rewards()
        yield from self._properties(is_chain=is_chain)

    def _declaration(self, field: Field) -> str:
        initial, name = self._value(self._model.initial[field.name]), self._spelling.give("v_", field.name)
        kind = "bool" if field.is_bool else f"[{field.low}..{field.low + field.size - 1}]"
        return f"{name} : {kind} init {initial};"

    def _value(self, value: Value) -> str:
        return self._spelling.give("k_", value) if isinstance(value, str) else show_value(value)

    def write(self, expr: Expr) -> str:
        """Write an expression over a configuration."""
        return SYNTAX.write(expr, self._leaf)

    def _leaf(self, node: Leaf) -> str:
        match node:
            case Symbol(value):
                return self._spelling.give("k_", value)
            case Name(name, "variable" | "parameter" as kind):
                return self._spelling.give("v_" if kind == "variable" else "p_", name)
            case Name(name, "state"):
                return self._at(self._model.inside(name))
            case Name(name, "pending"):
                return f"({' | '.join(map(self._where, self._model.pending(name))) or 'false'})"
            case Name() | Verdict():
                raise AssertionError("events, effects and verdicts are not parts of a state")

    def _at(self, places: Iterable[int]) -> str:
        return f"({' | '.join(f'at = {self._places[place]}' for place in places) or 'false'})"

    def _where(self, here: tuple[int, Expr]) -> str:
        place, condition = here
        at = f"at = {self._places[place]}"
        return at if condition == TRUE else f"({at} & ({self.write(condition)}))"

    def _command(self, command: _Command) -> Iterator[str]:
        condition = "" if command.condition == TRUE else f" & ({self.write(command.condition)})"
        for branch in command.branches:
            yield f"  // {branch.step.comment if branch.step else f'{_verdict_text(branch)}: refused, which dsa check reports'}"
        branches = " + ".join(f"{branch.probability} : {self._update(branch)}" for branch in command.branches)
        yield f"  [{command.label}] at = {self._places[command.location]}{condition} -> {branches};"

    def _update(self, branch: _ChoiceBranch) -> str:
        if branch.step is None:
            return "true"
        command = branch.step.command
        parts = [f"(at' = {self._places[command.target]})"]
        parts += [f"({self._spelling.give('v_', name)}' = {self.write(value)})" for name, value in command.updates]
        for guard, outcome in branch.verdicts:
            last = len(self._odds[guard].numbers) - 1
            if last:
                name = self._memory(guard)
                parts.append(f"({name}' = {f'min({name} + 1, {last})' if outcome == 'failed' else 0})")
        return " & ".join(parts)

    def _labels(self) -> Iterator[str]:
        names = [state.name for state in self._model.machine.states]
        yield from (
            f'label "{self._spelling.give("in_", name)}" = {self._at(self._model.inside(name))};' for name in names
        )
        yield ""

    def _rewards(self) -> Iterator[str]:
        """Count every effect."""
        for effect in self._model.machine.effects:
            lines = [line for command in self._commands if (line := self._reward(command, effect.name))]
            if lines:
                yield from (f'rewards "{self._spelling.give("effect_", effect.name)}"', *lines, "endrewards", "")

    def _reward(self, command: _Command, effect: str) -> str:
        counts = ((b.probability, b.step.command.effects.count(effect)) for b in command.branches if b.step)
        parts = [f"{probability} * {count}" for probability, count in counts if count]
        return f"  [{command.label}] true : {' + '.join(parts)};" if parts else ""

    def _properties(self, *, is_chain: bool) -> Iterator[str]:
        for number, item in enumerate(self._model.machine.properties, 1):
            place = f"line {item.span.line}: " if item.span else ""
            yield f"// {place}{show(item.form)}"
            if words := _unsaid(item.form):
                yield f"//   Property {number} is not expressed here: {words}."
            else:
                yield f"//   {self._formula(item.form, is_chain=is_chain)}"

    def _formula(self, form: Form, *, is_chain: bool) -> str:
        match form:
            case Always(p):
                return f"P{'' if is_chain else 'min'}=? [ G {self.write(p)} ] is 1"
            case Never(p):
                return f"P{'' if is_chain else 'max'}=? [ F {self.write(p)} ] is 0"
            case Possible(p):
                return f"P{'' if is_chain else 'max'}=? [ F {self.write(p)} ] is more than 0"
            case Probability(p, bound):
                return f"P{form.sign}{show_number(bound)} [ F {self.write(p)} ]"
            case ExpectedCount(Name(name, "effect"), most):
                return f'R{{"{self._spelling.give("effect_", name)}"}}<={show_number(most)} [ C ]'
            case _:
                raise AssertionError("every other form is said in words")


def _verdict_text(branch: _ChoiceBranch) -> str:
    return ", ".join(f"{guard}.{outcome}" for guard, outcome in branch.verdicts) or "the event"
