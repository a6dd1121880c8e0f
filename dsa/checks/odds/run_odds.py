"""The odds of a machine: how its runs end, how often each effect is emitted, and what a run costs.

Takes a machine and odds, gives a `RunOdds`. Its field `unknown` says in sentences what cannot be known. `judge` gives the verdicts of
properties of odds, under the odds that a document's Guards assume: where it is a choice what comes, the worst choice counts (S12).
"""

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from math import inf
from typing import Literal, TypedDict, Unpack

import attrs

from dsa.checks.odds.chain_solver import Averages, OddsRange, is_possible, is_sure, number_text, unlimited_places, worst
from dsa.checks.odds.markov_chain import (
    MAX_NODES,
    ROUNDING,
    Chain,
    ChainAssumptions,
    Edge,
    End,
    Numbers,
    chain_of,
    guard_odds,
    odds_error,
)
from dsa.checks.search.engine import SearchLimits
from dsa.declarations import OUTSIDE, ExpectedCount, Form, Probability
from dsa.errors import ParameterError, UndecidedError
from dsa.expr import Boolean, Expr, Value, evaluate
from dsa.ground_system import ground
from dsa.machine import Machine
from dsa.system import System, after, at_start, closed_system
from dsa.text import closest
from dsa.trace import show_values

SUCCESS_STATE = "succeeded"
CALL = "query_llm"


class OddsAssumptions(TypedDict, total=False):
    """The assumptions about a machine, as the parameters of `odds`."""

    passes: Mapping[str, Numbers] | None
    fatals: Mapping[str, Numbers] | None
    events: Mapping[str, float] | None
    outside: bool
    prices: Mapping[str, float] | None
    success: str | None


@attrs.frozen
class EffectOdds:
    """How often an effect is emitted in a run: on average, and at most in any run (infinite when nothing bounds it)."""

    effect: str
    average: OddsRange
    worst: float


@attrs.frozen
class RunOdds:
    """Everything that the odds give at given parameter values.

    `ends` has each way a run can end; `never_ends` the odds that it goes round for ever. `cost` and `worst_cost` are
    over `prices`. `is_known` is false when numbers are missing: then only worst cases mean anything, and `effects` is
    empty when a limit was reached. `unknown` says what is not known, in sentences; the numbers beside it then hold only
    under what they say.
    """

    machine: str
    parameters: tuple[tuple[str, Value], ...]
    ends: tuple[tuple[End, OddsRange], ...]
    never_ends: OddsRange
    success: OddsRange | None
    effects: tuple[EffectOdds, ...]
    prices: tuple[tuple[str, float], ...]
    cost: OddsRange | None
    worst_cost: float
    configurations: int
    is_known: bool
    assumptions: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()

    def effect(self, name: str) -> EffectOdds:
        """Return the odds of one effect; KeyError when no row emits it."""
        return next((each for each in self.effects if each.effect == name), None) or self._no_effect(name)

    def _no_effect(self, name: str) -> EffectOdds:
        raise KeyError(name)

    @property
    def main_cost(self) -> tuple[str, OddsRange]:
        """What a run needs on average, in one number: the prices, else calls of `query_llm`, else all effects together."""
        if self.cost is not None:
            return "expected cost of a run", self.cost
        for effect in self.effects:
            if effect.effect == CALL:
                return f"expected {CALL}", effect.average
        low, high = (sum(getattr(effect.average, side) for effect in self.effects) for side in ("low", "high"))
        return f"expected {' + '.join(effect.effect for effect in self.effects) or 'effects'}", OddsRange(low, high)

    def per_success(self, average: OddsRange) -> OddsRange | None:
        """Spread what all runs need on average over the runs that succeed; None when success is not known or impossible."""
        if self.success is None or not self.is_known or self.success.high <= 0:
            return None
        return OddsRange(average.low / self.success.high, average.high / self.success.low if self.success.low else inf)


@attrs.frozen
class Question:
    """A machine with everything that is assumed of it; at parameter values, it gives a `RunOdds`."""

    system: System
    world: ChainAssumptions
    prices: Mapping[str, float] = attrs.field(factory=dict)
    success: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()
    limits: SearchLimits = SearchLimits(MAX_NODES)

    def chain(self, values: Mapping[str, Value] | None = None) -> Chain:
        """Build the chain, at other parameter values when they are given."""
        machine = self.system.machine.at(values) if values else self.system.machine
        return chain_of(
            ground(attrs.evolve(self.system, machine=machine), is_late=self.limits.is_expired), self.world, self.limits
        )

    def at(self, values: Mapping[str, Value] | None = None) -> RunOdds:
        """Work out the odds."""
        return _run_odds(self, self.chain(values))

    def success_at(self, values: Mapping[str, Value] | None = None) -> float:
        """Return the least odds of success alone. Raises UndecidedError when a limit is reached."""
        chain = self.chain(values)
        if not chain.complete:
            at = f"at {show_values(values.items())}: " if values else ""
            raise UndecidedError(at + chain.stop_reason)
        return self.success_of(chain)

    def success_of(self, chain: Chain) -> float:
        """Return the least odds of success in a complete chain."""
        return Averages(chain).at_least(lambda end: end.kind == "final" and end.state in self.success)


def question(
    machine: Machine,
    *,
    passes: Mapping[str, Numbers] | None = None,
    fatals: Mapping[str, Numbers] | None = None,
    events: Mapping[str, float] | None = None,
    outside: bool = False,
    prices: Mapping[str, float] | None = None,
    success: str | None = None,
    max_nodes: int = MAX_NODES,
) -> Question:
    """Return the question with all assumptions about a machine.

    Raises ParameterError for assumptions that do not fit the machine, and for invalid odds.
    """
    assumed_odds = guard_odds(machine, passes, fatals)
    world = ChainAssumptions(assumed_odds.odds, dict(events or {}), outside)
    _require_prices(machine, prices or {})
    states = _success(machine, success)
    sentences = (*_no_failures(machine, world), *assumed_odds.sentences, *_assumptions(machine, world))
    return Question(closed_system(machine), world, dict(prices or {}), states, sentences, SearchLimits(max_nodes))


def odds(machine: Machine, **assumptions: Unpack[OddsAssumptions]) -> RunOdds:
    """Work out how a machine's runs end and what they need, at its parameter values.

    `passes` and `fatals` map guards to probabilities by retry number, the last one repeated; for other guards, those of
    the Guards table count. `events` gives probabilities to events, `prices` a price to effects. `success` names the
    final state that counts as success (default: those whose last part is `succeeded`). Raises ParameterError for invalid
    odds.
    """
    return question(machine, **assumptions).at()


def _require_prices(machine: Machine, prices: Mapping[str, float]) -> None:
    effects = {str(item) for row in machine.transitions for item in row.effects}
    for name, price in prices.items():
        if name not in effects:
            raise odds_error(f"no row of {machine.name} emits '{name}'; {closest(name, effects)}")
        if not 0 <= price < inf:
            raise odds_error(f"{price:g} is not a price of {name}: a price is a number, 0 or more")


def _success(machine: Machine, name: str | None) -> tuple[str, ...]:
    finals = sorted(machine.final_states | machine.ends.keys())
    if name is None:
        return tuple(state for state in finals if state.rpartition(".")[2] == SUCCESS_STATE)
    full = machine.resolve_state(name)
    states = tuple(state for state in finals if full and (state == full or state.startswith(f"{full}.")))
    if not states:
        raise odds_error(f"'{name}' is not a final state of {machine.name}; {closest(name, finals)}")
    return states


def _no_failures(machine: Machine, world: ChainAssumptions) -> tuple[str, ...]:
    """Return the most favourable assumption, which is said first: that no effect fails, unless odds of a failure are given."""
    has_failures = any(f"{effect}.failed" in world.events for effect in machine.answers)
    return ("every effect is answered: none fails",) if machine.answers and not has_failures else ()


def _assumptions(machine: Machine, world: ChainAssumptions) -> tuple[str, ...]:
    sentences = ["each verdict is independent of everything before it, except its guard's retry number"]
    memoryless = [
        guard for guard, says in world.guards.items() if says.is_memoryless and machine.guard_named[guard].judges
    ]
    if memoryless:
        sentences.append(f"the odds of {', '.join(memoryless)} are the same after any number of failures")
    if any(row.is_timer for row in machine.transitions):
        sentences.append(f"a timer fires only where no answer is awaited{_beside_timer(machine, world)}")
    sentences += _remaining(machine, world)
    outside = [event.name for event in machine.events if event.origin == OUTSIDE]
    if world.outside:
        sentences.append("where the run waits, any outside event that is accepted may come")
    elif len(outside) > 1:
        sentences.append("an outside event starts the run; where it would wait for another outside event, the run ends")
    return tuple(sentences)


def _beside_timer(machine: Machine, world: ChainAssumptions) -> str:
    """Return what is assumed of outside events beside a timer."""
    if world.outside:
        return ", and an outside event may come before it, by choice"
    if any(machine.event_named[name].origin == OUTSIDE for name in world.events if name in machine.event_named):
        return ", and the odds given for an outside event mean that it comes before the timer"
    return ", and nothing comes from outside before it"


def _remaining(machine: Machine, world: ChainAssumptions) -> Iterator[str]:
    """Yield which answers have the odds that the given ones leave."""
    for effect, answers in machine.answers.items():
        total = sum(world.events.get(event, 0.0) for event in (*answers, f"{effect}.failed"))
        event_names = [event for event in (*answers, f"{effect}.failed") if event in world.events]
        others = [event for event in answers if event not in world.events]
        if event_names and others and total < 1 - ROUNDING:
            who = others[0] if len(others) == 1 else f"one of {', '.join(others)}, by choice,"
            yield f"{who} has the odds that remain after {' and '.join(event_names)}: {1 - total:.5g}"


def _run_odds(question: Question, chain: Chain) -> RunOdds:
    machine = chain.system.machine
    # Of an incomplete chain nothing is known, not even a worst case.
    commands = chain.system.commands if chain.complete else ()
    effect_names = sorted({effect for command in commands for effect in command.effects})
    prices = tuple((name, price) for name, price in question.prices.items() if name in effect_names)
    gains = [_gain(chain, {effect: 1.0}) for effect in effect_names]
    cost_gain = _gain(chain, dict(prices))
    worsts = worst(chain, [*gains, cost_gain]) if chain.complete else [inf] * (len(gains) + 1)
    unknown = (*obstacles(chain, question.world), *_unused_odds(chain))
    is_known = chain.complete and not chain.missing and not chain.system.left_out
    solve = Averages(chain) if is_known else None
    counts = [solve.of(gain) if solve else OddsRange(0.0, inf) for gain in gains]
    ends = _ends(chain, solve, question.success)
    success = None
    if question.success and solve:
        success = solve.ending(lambda end: end.kind == "final" and end.state in question.success)
    effects = zip(effect_names, counts, worsts, strict=False)
    return RunOdds(
        machine.name,
        tuple(machine.constants.items()),
        ends,
        solve.never_ends if solve else OddsRange(0.0, 1.0),
        success,
        tuple(EffectOdds(effect, average, most) for effect, average, most in effects),
        prices,
        solve.of(cost_gain) if solve and prices else None,
        worsts[-1],
        len(chain.numbers),
        is_known,
        question.assumptions,
        unknown,
    )


def _gain(chain: Chain, prices: Mapping[str, float]) -> Callable[[int, Edge], float]:
    worth = [sum(prices.get(effect, 0.0) for effect in command.effects) for command in chain.system.commands]
    return lambda _, edge: worth[edge[2]] if edge[2] >= 0 else 0.0


def _ends(chain: Chain, solve: Averages | None, success: tuple[str, ...]) -> tuple[tuple[End, OddsRange], ...]:
    """Return the ways to end that are met, and success also when it never is."""
    order = {state.name: place for place, state in enumerate(chain.system.machine.states)}
    kinds = ("final", "waits", "refused")
    ends = {*chain.ends.values(), *(End("final", state) for state in success)}
    sorted_ends = sorted(ends, key=lambda end: (kinds.index(end.kind), order[end.state]))
    return tuple((end, solve.ending(end.__eq__) if solve else OddsRange(0.0, 1.0)) for end in sorted_ends)


def obstacles(chain: Chain, world: ChainAssumptions) -> tuple[str, ...]:
    """Return, in sentences, why the odds cannot be known, and what they rest on that nobody knows."""
    sentences = [f"too many combinations to explore: {what}" for what in chain.system.left_out]
    if not chain.complete:
        sentences.append(chain.stop_reason)
    sentences += [
        f"guard {guard} has no odds: write them in the column `pass` of Guards, or give --pass {guard}=0.7"
        for guard in chain.missing
    ]
    for end in sorted({end for end in chain.ends.values() if end.kind == "refused"}, key=lambda end: end.state):
        sentences.append(f"the table refuses an event that can come in {end.state}; `dsa check` says which")
    if chain.complete and (again := _unlimited_places(chain, world)):
        rows = {chain.system.machine.transitions[chain.system.commands[index].row] for index in again}
        lines = sorted({row.span.line for row in rows if row.span})
        where = f" ({'line' if len(lines) == 1 else 'lines'} {', '.join(map(str, lines))})" if lines else ""
        sentences.append(
            f"retries are unlimited{where}, so the number of steps has no bound, and odds by retry number do not cover the retries after the last number;"
            " count the retries and bound them, or give one number for all"
        )
    return tuple(sentences)


def _unlimited_places(chain: Chain, world: ChainAssumptions) -> frozenset[int]:
    """Return the commands of retries without limit, except those of guards that are declared memoryless: for these the numbers are exact."""

    def is_known(index: int) -> bool:
        verdicts = chain.system.commands[index].occurrence.verdicts
        return all(guard in world.guards and world.guards[guard].is_memoryless for guard, _ in verdicts)

    return frozenset(index for index in unlimited_places(chain) if not is_known(index))


def _unused_odds(chain: Chain) -> tuple[str, ...]:
    return tuple(
        f"the odds given for {name} are not used: this event never comes where the run waits with nothing outstanding, and never as an answer"
        for name in chain.unused_events
    )


# --- properties of odds ---

#: A verdict, its reason, and what it assumes.
Judgement = tuple[Literal["HOLDS", "VIOLATED", "UNKNOWN"], str, tuple[str, ...]]

#: Sums of products of decimals do not come out even.
_ROUNDING = 1e-12
_BY_CHOICE = ", depending on the choices"


def judge(machine: Machine, form: Form, limits: SearchLimits | None = None) -> Judgement:
    """Judge `P with probability >= x` (or `<= x`) or `expected E <= x` at the machine's parameter values.

    The reason has the number, or what is missing; if a limit was reached, the verdict is UNKNOWN. The assumptions are those that a number
    rests on.
    """
    if not isinstance(form, Probability | ExpectedCount):
        return "UNKNOWN", "the form is not about odds", ()
    try:
        odds_question = question(machine)
        if limits is not None:
            odds_question = attrs.evolve(
                odds_question, limits=attrs.evolve(limits, max_states=min(limits.max_states, MAX_NODES))
            )
        return judge_question(odds_question, form)
    except (ParameterError, UndecidedError) as wrong:
        return "UNKNOWN", str(wrong), ()


def judge_question(question: Question, form: Probability | ExpectedCount) -> Judgement:
    """Judge a form where odds are assumed that the document does not have."""
    chain = question.chain()
    unknown = obstacles(chain, question.world)
    if chain.missing or not chain.complete or chain.system.left_out:
        return "UNKNOWN", "; ".join(unknown), ()
    if isinstance(form, Probability):
        goal_chain = up_to(chain, form.condition)
        odds_range = odds_of_reaching(goal_chain)
        good, worst = odds_range.low >= form.bound - _ROUNDING, odds_range.low
        if form.is_ceiling:
            good, worst = odds_range.high <= form.bound + _ROUNDING, odds_range.high
        good, words = _exactly(goal_chain, form, good=good, words=f"the probability is {_range_text(odds_range)}")
        words += "" if odds_range.is_exact else f", at worst {number_text(worst, 10)}"
    else:
        odds_range = average_count(chain, form.moment)
        good, worst = odds_range.high <= form.at_most + _ROUNDING, odds_range.high
        words = f"{_many(odds_range)} are expected"
        if worst == inf:
            words += f"{_BY_CHOICE * (odds_range.low < inf)}: a run may loop for ever"
        elif not odds_range.is_exact:
            words += f"{_BY_CHOICE}, at worst {worst:.10g}"
    if unknown:
        return "UNKNOWN", "; ".join((*unknown, f"if so, {words}")), question.assumptions
    places = _unanswered_states(chain) if not good and isinstance(form, Probability) else []
    if not good and not odds_range.is_exact and not places:
        words += "; to give odds for these choices, use `dsa odds` with --event"
    if places:
        words += f"; nothing comes from outside in {', '.join(places)}: to give odds for events that come there, use `dsa odds` with --event"
    return ("HOLDS" if good else "VIOLATED"), words, question.assumptions


def _unanswered_states(chain: Chain) -> list[str]:
    """Return the states in which runs end, or a timer fires, because nothing comes from outside."""
    solve = Averages(chain)
    ends = sorted({end for end in chain.ends.values() if end.kind == "waits"}, key=lambda end: end.state)
    waits = [end.state for end in ends if solve.ending(end.__eq__).high > 0]
    return [*waits, *sorted(chain.unanswered_states)]


def _exactly(goal_chain: Chain, form: Probability, *, good: bool, words: str) -> tuple[bool, str]:
    """Decide a bound of 1, and a ceiling of 0, by what is possible: no rounding makes a probability 1 or 0."""
    goals = frozenset(node for node, end in goal_chain.ends.items() if end.kind == "reached")
    if form.is_ceiling and form.bound == 0 and good and is_possible(goal_chain, goals):
        return False, f"{words} (rounded), but more than 0: it may happen"
    if not form.is_ceiling and form.bound == 1:
        is_good = is_sure(goal_chain, goals)
        return is_good, words if is_good or not good else f"{words} (rounded), but less than 1: it may fail to happen"
    return good, words


def _range_text(odds_range: OddsRange) -> str:
    low, high = number_text(odds_range.low, 10), number_text(odds_range.high, 10)
    return low if odds_range.is_exact else f"{low} to {high}{_BY_CHOICE}"


def _many(odds_range: OddsRange) -> str:
    low, high = (
        "infinitely many" if number == inf else f"{number:.10g}" for number in (odds_range.low, odds_range.high)
    )
    return low if odds_range.is_exact else f"{low} to {high}"


def up_to(chain: Chain, condition: Expr) -> Chain:
    """Return the chain of runs that end, as `reached`, at the first moment at which a condition is true."""
    if _at_start(chain, condition):
        return attrs.evolve(chain, numbers=chain.numbers[:1], choices=((),), ends={0: End("reached", "")})
    is_goal_edge = _edge_test(chain, condition)
    goal = len(chain.numbers)

    def redirect(node: int, edge: Edge) -> Edge:
        return (edge[0], goal, edge[2]) if is_goal_edge(node, edge) else edge

    choices = [tuple(tuple(redirect(n, e) for e in choice) for choice in cs) for n, cs in enumerate(chain.choices)]
    numbers, ends = (*chain.numbers, chain.numbers[0]), {**chain.ends, goal: End("reached", "")}
    return attrs.evolve(chain, numbers=numbers, choices=(*choices, ()), ends=ends)


def odds_of_reaching(goal_chain: Chain) -> OddsRange:
    """Return the odds of the end `reached`."""
    return Averages(goal_chain).ending(lambda end: end.kind == "reached")


def average_count(chain: Chain, condition: Expr) -> OddsRange:
    """Return at how many moments of a run a condition is true, on average."""
    is_counted_edge = _edge_test(chain, condition)
    odds_range = Averages(chain).of(lambda node, edge: float(is_counted_edge(node, edge)))
    first = float(_at_start(chain, condition))
    return OddsRange(odds_range.low + first, odds_range.high + first)


def _at_start(chain: Chain, condition: Expr) -> bool:
    start = chain.ground.ground_condition(at_start(chain.system, condition))
    return evaluate(start, chain.ground.values(chain.ground.start)) is True


def _edge_test(chain: Chain, condition: Expr) -> Callable[[int, Edge], bool]:
    """Return whether a condition is true at the moment of an edge."""
    commands = chain.system.commands

    @cache
    def at(command: int) -> Expr:
        return chain.ground.ground_condition(after(chain.system, commands[command], condition))

    @cache
    def there(node: int, command: int) -> bool:
        formula = at(command)
        if isinstance(formula, Boolean):
            return formula.value
        return evaluate(formula, chain.ground.values(chain.numbers[node])) is True

    return lambda node, edge: edge[2] >= 0 and there(node, edge[2])
