"""The two quantitative forms of properties, judged under the odds that a document's Guards assume.

Takes a machine at its parameter values and a form, gives a verdict with the number. Where somebody chooses what comes, the worst
choice counts (S12).
"""

from collections.abc import Callable
from functools import cache
from math import inf
from typing import Literal

import attrs

from dsa.checks.odds.assumptions import OddsError
from dsa.checks.odds.chain_solver import Averages, OddsRange, is_possible, is_sure, rounded
from dsa.checks.odds.markov_chain import MAX_NODES, Chain, Edge, End
from dsa.checks.odds.run_odds import Question, obstacles, question
from dsa.checks.search.engine import SearchLimits
from dsa.declarations import ExpectedCount, Form, Probability
from dsa.expr import Boolean, Expr, evaluate
from dsa.machine import Machine
from dsa.system import after, at_start

#: A verdict, its reason, and what it assumes.
Judgement = tuple[Literal["HOLDS", "VIOLATED", "UNKNOWN"], str, tuple[str, ...]]

#: Sums of products of decimals do not come out even.
_ROUNDING = 1e-12
_CHOSEN = ", as somebody chooses"


def judge(machine: Machine, form: Form, limits: SearchLimits | None = None) -> Judgement:
    """Judge `P with probability >= x` (or `<= x`) or `expected E <= x` at the machine's parameter values.

    The reason has the number, or what is missing; with a limit met the verdict is UNKNOWN. The assumptions are those that a number
    rests on.
    """
    if not isinstance(form, Probability | ExpectedCount):
        return "UNKNOWN", "the form does not speak of odds", ()
    try:
        asked = question(machine)
        if limits is not None:
            asked = attrs.evolve(asked, limits=attrs.evolve(limits, max_states=min(limits.max_states, MAX_NODES)))
        return judged(asked, form)
    except OddsError as wrong:
        return "UNKNOWN", str(wrong), ()


def judged(asked: Question, form: Probability | ExpectedCount) -> Judgement:
    """Judge a form where odds are assumed that the document does not have."""
    chain = asked.chain()
    unknown = obstacles(chain, asked.world)
    if chain.missing or not chain.complete or chain.system.left_out:
        return "UNKNOWN", "; ".join(unknown), ()
    if isinstance(form, Probability):
        stopped = up_to(chain, form.condition)
        found = odds_of_reaching(stopped)
        good, worst = found.low >= form.bound - _ROUNDING, found.low
        if form.is_ceiling:
            good, worst = found.high <= form.bound + _ROUNDING, found.high
        good, words = _exactly(stopped, form, good=good, words=f"the probability is {_shown(found)}")
        words += "" if found.is_exact else f", at worst {rounded(worst, 10)}"
    else:
        found = counted(chain, form.moment)
        good, worst = found.high <= form.at_most + _ROUNDING, found.high
        words = f"{_many(found)} are expected"
        if worst == inf:
            words += f"{_CHOSEN * (found.low < inf)}: a run may go round for ever"
        elif not found.is_exact:
            words += f"{_CHOSEN}, at worst {worst:.10g}"
    if unknown:
        return "UNKNOWN", "; ".join((*unknown, f"if so, {words}")), asked.assumptions
    places = _waiting(chain) if not good and isinstance(form, Probability) else []
    if not good and not found.is_exact and not places:
        words += "; `dsa odds` takes odds of what somebody chooses, with --event"
    if places:
        words += f"; nobody answers in {', '.join(places)}: `dsa odds` takes odds of what comes there, with --event"
    return ("HOLDS" if good else "VIOLATED"), words, asked.assumptions


def _waiting(chain: Chain) -> list[str]:
    """Return the states in which runs end, or a timer fires, because nothing comes from outside."""
    solve = Averages(chain)
    ends = sorted({end for end in chain.ends.values() if end.kind == "waits"}, key=lambda end: end.state)
    waits = [end.state for end in ends if solve.ending(end.__eq__).high > 0]
    return [*waits, *sorted(chain.unanswered)]


def _exactly(stopped: Chain, form: Probability, *, good: bool, words: str) -> tuple[bool, str]:
    """Decide a bound of 1, and a ceiling of 0, by what is possible: no rounding makes a probability 1 or 0."""
    goals = frozenset(node for node, end in stopped.ends.items() if end.kind == "reached")
    if form.is_ceiling and form.bound == 0 and good and is_possible(stopped, goals):
        return False, f"{words}, and more than 0: it may happen"
    if not form.is_ceiling and form.bound == 1:
        is_good = is_sure(stopped, goals)
        return is_good, words if is_good or not good else f"{words}, and less than 1: it may fail to happen"
    return good, words


def _shown(found: OddsRange) -> str:
    low, high = rounded(found.low, 10), rounded(found.high, 10)
    return low if found.is_exact else f"{low} to {high}{_CHOSEN}"


def _many(found: OddsRange) -> str:
    low, high = ("infinitely many" if number == inf else f"{number:.10g}" for number in (found.low, found.high))
    return low if found.is_exact else f"{low} to {high}"


def up_to(chain: Chain, condition: Expr) -> Chain:
    """Return the chain of runs that end, as `reached`, at the first moment at which a condition is true."""
    if _at_start(chain, condition):
        return attrs.evolve(chain, numbers=chain.numbers[:1], choices=((),), ends={0: End("reached", "")})
    marked = _marked(chain, condition)
    goal = len(chain.numbers)

    def turned(node: int, edge: Edge) -> Edge:
        return (edge[0], goal, edge[2]) if marked(node, edge) else edge

    choices = [tuple(tuple(turned(n, e) for e in choice) for choice in cs) for n, cs in enumerate(chain.choices)]
    numbers, ends = (*chain.numbers, chain.numbers[0]), {**chain.ends, goal: End("reached", "")}
    return attrs.evolve(chain, numbers=numbers, choices=(*choices, ()), ends=ends)


def odds_of_reaching(stopped: Chain) -> OddsRange:
    """Return the odds of the end `reached`."""
    return Averages(stopped).ending(lambda end: end.kind == "reached")


def counted(chain: Chain, condition: Expr) -> OddsRange:
    """Return at how many moments of a run a condition is true, on average."""
    marked = _marked(chain, condition)
    found = Averages(chain).of(lambda node, edge: float(marked(node, edge)))
    first = float(_at_start(chain, condition))
    return OddsRange(found.low + first, found.high + first)


def _at_start(chain: Chain, condition: Expr) -> bool:
    start = chain.ground.ground_condition(at_start(chain.system, condition))
    return evaluate(start, chain.ground.values(chain.ground.start)) is True


def _marked(chain: Chain, condition: Expr) -> Callable[[int, Edge], bool]:
    """Return whether a condition is true at the moment of an edge."""
    commands = chain.system.commands

    @cache
    def at(command: int) -> Expr:
        return chain.ground.ground_condition(after(chain.system, commands[command], condition))

    @cache
    def there(node: int, command: int) -> bool:
        held = at(command)
        if isinstance(held, Boolean):
            return held.value
        return evaluate(held, chain.ground.values(chain.numbers[node])) is True

    return lambda node, edge: edge[2] >= 0 and there(node, edge[2])
