"""The two quantitative forms of properties, judged under the odds that a document's Guards assume.

Takes a machine at its parameter values and a form, gives a verdict with the number. Where somebody chooses what comes, the worst
choice counts (S12).
"""

from collections.abc import Callable
from functools import cache
from math import inf
from typing import Literal

import attrs

from dsa.checks.odds.chain_solver import Averages, OddsRange, is_possible, is_sure, number_text
from dsa.checks.odds.markov_chain import MAX_NODES, Chain, Edge, End
from dsa.checks.odds.run_odds import Question, obstacles, question
from dsa.checks.search.engine import SearchLimits
from dsa.declarations import ExpectedCount, Form, Probability
from dsa.errors import ParameterError, UndecidedError
from dsa.expr import Boolean, Expr, evaluate
from dsa.machine import Machine
from dsa.system import after, at_start

#: A verdict, its reason, and what it assumes.
Judgement = tuple[Literal["HOLDS", "VIOLATED", "UNKNOWN"], str, tuple[str, ...]]

#: Sums of products of decimals do not come out even.
_ROUNDING = 1e-12
_BY_CHOICE = ", as somebody chooses"


def judge(machine: Machine, form: Form, limits: SearchLimits | None = None) -> Judgement:
    """Judge `P with probability >= x` (or `<= x`) or `expected E <= x` at the machine's parameter values.

    The reason has the number, or what is missing; with a limit met the verdict is UNKNOWN. The assumptions are those that a number
    rests on.
    """
    if not isinstance(form, Probability | ExpectedCount):
        return "UNKNOWN", "the form does not speak of odds", ()
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
            words += f"{_BY_CHOICE * (odds_range.low < inf)}: a run may go round for ever"
        elif not odds_range.is_exact:
            words += f"{_BY_CHOICE}, at worst {worst:.10g}"
    if unknown:
        return "UNKNOWN", "; ".join((*unknown, f"if so, {words}")), question.assumptions
    places = _unanswered_states(chain) if not good and isinstance(form, Probability) else []
    if not good and not odds_range.is_exact and not places:
        words += "; `dsa odds` takes odds of what somebody chooses, with --event"
    if places:
        words += f"; nobody answers in {', '.join(places)}: `dsa odds` takes odds of what comes there, with --event"
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
        return False, f"{words}, and more than 0: it may happen"
    if not form.is_ceiling and form.bound == 1:
        is_good = is_sure(goal_chain, goals)
        return is_good, words if is_good or not good else f"{words}, and less than 1: it may fail to happen"
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
