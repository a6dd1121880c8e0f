"""The odds of a machine: how its runs end, how often each effect is emitted, and what a run costs.

Takes a machine and odds, gives a `RunOdds`. What cannot be known is said in words, in `unknown`.
"""

from collections.abc import Callable, Iterator, Mapping
from math import inf
from typing import TypedDict, Unpack

import attrs

from dsa.checks.odds.assumptions import ROUNDING, Numbers, OddsError, assumed
from dsa.checks.odds.chain_solver import Averages, OddsRange, unlimited, worst
from dsa.checks.odds.markov_chain import MAX_NODES, Chain, ChainAssumptions, ChainTooLargeError, Edge, End, chain_of
from dsa.checks.search.engine import SearchLimits
from dsa.declarations import OUTSIDE
from dsa.expr import Value
from dsa.ground_system import ground
from dsa.machine import Machine
from dsa.system import System, closed_system
from dsa.text import closest
from dsa.trace import show_values

SUCCEEDED = "succeeded"
CALL = "query_llm"


class OddsAssumptions(TypedDict, total=False):
    """What may be assumed of a machine, as `odds` says it."""

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
    expected: OddsRange
    worst: float


@attrs.frozen
class RunOdds:
    """Everything that the odds come to at given parameter values.

    `ends` has each way a run can end; `never_ends` the odds that it goes round for ever. `cost` and `worst_cost` are over `prices`.
    `known` is false when numbers are missing: then only worst cases mean anything, and `effects` is empty when a limit was met. `unknown` says what is not known, in
    sentences; the numbers beside it then hold only under what they say.
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
    known: bool
    assumptions: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()

    def effect(self, name: str) -> EffectOdds:
        """Return the odds of one effect; KeyError when no row emits it."""
        return next((found for found in self.effects if found.effect == name), None) or self._no_effect(name)

    def _no_effect(self, name: str) -> EffectOdds:
        raise KeyError(name)

    @property
    def main_cost(self) -> tuple[str, OddsRange]:
        """What a run needs on average, in one number: the prices, else calls of `query_llm`, else all effects together."""
        if self.cost is not None:
            return "expected cost of a run", self.cost
        for effect in self.effects:
            if effect.effect == CALL:
                return f"expected {CALL}", effect.expected
        low, high = (sum(getattr(effect.expected, side) for effect in self.effects) for side in ("low", "high"))
        return f"expected {' + '.join(effect.effect for effect in self.effects) or 'effects'}", OddsRange(low, high)

    def per_success(self, expected: OddsRange) -> OddsRange | None:
        """Spread what all runs need on average over the runs that succeed; None when success is not known or impossible."""
        if self.success is None or not self.known or self.success.high <= 0:
            return None
        return OddsRange(
            expected.low / self.success.high, expected.high / self.success.low if self.success.low else inf
        )


@attrs.frozen
class Question:
    """A machine laid out with everything that is assumed of it; asked at parameter values, it gives a `RunOdds`."""

    system: System
    world: ChainAssumptions
    prices: Mapping[str, float] = attrs.field(factory=dict)
    success: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()
    limits: SearchLimits = SearchLimits(MAX_NODES)

    def chain(self, values: Mapping[str, Value] | None = None) -> Chain:
        """Lay out the chain, at other parameter values when they are given."""
        machine = self.system.machine.at(values) if values else self.system.machine
        return chain_of(
            ground(attrs.evolve(self.system, machine=machine), is_late=self.limits.expired), self.world, self.limits
        )

    def at(self, values: Mapping[str, Value] | None = None) -> RunOdds:
        """Work out the odds."""
        return _reckoned(self, self.chain(values))

    def success_at(self, values: Mapping[str, Value] | None = None) -> float:
        """Return the least odds of success alone. Raises TooLargeError when a limit is met."""
        chain = self.chain(values)
        if not chain.complete:
            at = f"at {show_values(values.items())}: " if values else ""
            raise ChainTooLargeError(at + chain.stopped)
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
    """Put together what is assumed of a machine. Raises OddsError when it is not of this machine, or no odds."""
    known = assumed(machine, passes, fatals)
    world = ChainAssumptions(known.odds, dict(events or {}), outside)
    _require_prices(machine, prices or {})
    states = _success(machine, success)
    sentences = (*known.sentences, *_assumptions(machine, world))
    return Question(closed_system(machine), world, dict(prices or {}), states, sentences, SearchLimits(max_nodes))


def odds(machine: Machine, **given: Unpack[OddsAssumptions]) -> RunOdds:
    """Work out how a machine's runs end and what they need, at its parameter values.

    `passes` and `fatals` map guards to probabilities by retry number, the last one repeated; where they say nothing, those of
    the Guards table count. `events` gives probabilities to events, `prices` a price to effects. `success` names the final
    state that counts as success (default: those whose last part is `succeeded`). Raises OddsError for what is no odds.
    """
    return question(machine, **given).at()


def _require_prices(machine: Machine, prices: Mapping[str, float]) -> None:
    effects = {str(item) for row in machine.transitions for item in row.effects}
    for name, price in prices.items():
        if name not in effects:
            raise OddsError(f"no row of {machine.name} emits '{name}'; {closest(name, effects)}")
        if not 0 <= price < inf:
            raise OddsError(f"{price:g} is no price of {name}: it is a number, 0 or more")


def _success(machine: Machine, name: str | None) -> tuple[str, ...]:
    finals = sorted(machine.final_states | machine.ends.keys())
    if name is None:
        return tuple(state for state in finals if state.rpartition(".")[2] == SUCCEEDED)
    full = machine.resolve_state(name)
    found = tuple(state for state in finals if full and (state == full or state.startswith(f"{full}.")))
    if not found:
        raise OddsError(f"'{name}' is no final state of {machine.name}; {closest(name, finals)}")
    return found


def _assumptions(machine: Machine, world: ChainAssumptions) -> tuple[str, ...]:
    found = ["each verdict is independent of everything before it but its guard's retry number"]
    memoryless = [
        guard for guard, says in world.guards.items() if says.is_memoryless and machine.guard_named[guard].judges
    ]
    if memoryless:
        found.append(f"however often it has failed, the odds of {', '.join(memoryless)} are the same")
    if machine.answers and not any(f"{effect}.failed" in world.events for effect in machine.answers):
        found.append("every effect is answered: none fails")
    if any(row.is_timer for row in machine.transitions):
        found.append(f"a timer fires only where nothing outstanding is awaited{_beside_timer(machine, world)}")
    found += _remaining(machine, world)
    outside = [event.name for event in machine.events if event.origin == OUTSIDE]
    if world.outside:
        found.append("where the run waits, any outside event that is accepted comes")
    elif len(outside) > 1:
        found.append("an outside event starts the run; where it would wait for another, it ends")
    return tuple(found)


def _beside_timer(machine: Machine, world: ChainAssumptions) -> str:
    """Return what becomes of outside events beside a timer."""
    if world.outside:
        return ", and whoever chooses may let an outside event come before it"
    if any(machine.event_named[name].origin == OUTSIDE for name in world.events if name in machine.event_named):
        return ", and odds of an outside event there are the odds that it comes first"
    return ", and nothing comes from outside before it"


def _remaining(machine: Machine, world: ChainAssumptions) -> Iterator[str]:
    """Yield which answers have the odds that the given ones leave."""
    for effect, answers in machine.answers.items():
        total = sum(world.events.get(event, 0.0) for event in (*answers, f"{effect}.failed"))
        given = [event for event in (*answers, f"{effect}.failed") if event in world.events]
        others = [event for event in answers if event not in world.events]
        if given and others and total < 1 - ROUNDING:
            who = others[0] if len(others) == 1 else f"one of {', '.join(others)}, as somebody chooses,"
            yield f"{who} has the odds that {' and '.join(given)} leave: {1 - total:.5g}"


def _reckoned(asked: Question, chain: Chain) -> RunOdds:
    machine = chain.system.machine
    commands = chain.system.commands if chain.complete else ()  # of a part nothing is known, not even a worst case
    emitted = sorted({effect for command in commands for effect in command.effects})
    prices = tuple((name, price) for name, price in asked.prices.items() if name in emitted)
    gains = [_counting(chain, {effect: 1.0}) for effect in emitted]
    priced = _counting(chain, dict(prices))
    worsts = worst(chain, [*gains, priced]) if chain.complete else [inf] * (len(gains) + 1)
    unknown = (*obstacles(chain, asked.world), *_unused(chain))
    known = chain.complete and not chain.missing and not chain.system.left_out
    solve = Averages(chain) if known else None
    counts = [solve.of(gain) if solve else OddsRange(0.0, inf) for gain in gains]
    ends = _ends(chain, solve, asked.success)
    success = None
    if asked.success and solve:
        success = solve.ending(lambda end: end.kind == "final" and end.state in asked.success)
    effects = zip(emitted, counts, worsts, strict=False)
    return RunOdds(
        machine.name,
        tuple(machine.constants.items()),
        ends,
        solve.never_ends if solve else OddsRange(0.0, 1.0),
        success,
        tuple(EffectOdds(effect, expected, most) for effect, expected, most in effects),
        prices,
        solve.of(priced) if solve and prices else None,
        worsts[-1],
        len(chain.numbers),
        known,
        asked.assumptions,
        unknown,
    )


def _counting(chain: Chain, prices: Mapping[str, float]) -> Callable[[int, Edge], float]:
    worth = [sum(prices.get(effect, 0.0) for effect in command.effects) for command in chain.system.commands]
    return lambda _, edge: worth[edge[2]] if edge[2] >= 0 else 0.0


def _ends(chain: Chain, solve: Averages | None, success: tuple[str, ...]) -> tuple[tuple[End, OddsRange], ...]:
    """Return the ways to end that are met, and success also when it never is."""
    order = {state.name: place for place, state in enumerate(chain.system.machine.states)}
    kinds = ("final", "waits", "refused")
    met = {*chain.ends.values(), *(End("final", state) for state in success)}
    found = sorted(met, key=lambda end: (kinds.index(end.kind), order[end.state]))
    return tuple((end, solve.ending(end.__eq__) if solve else OddsRange(0.0, 1.0)) for end in found)


def obstacles(chain: Chain, world: ChainAssumptions) -> tuple[str, ...]:
    """Say in sentences what stands in the way of knowing the odds, or on what they rest that nobody knows."""
    found = [f"too much to lay out: {what}" for what in chain.system.left_out]
    if not chain.complete:
        found.append(chain.stopped)
    found += [
        f"no odds of guard {guard}: write them in the column `pass` of Guards, or --pass {guard}=0.7"
        for guard in chain.missing
    ]
    for end in sorted({end for end in chain.ends.values() if end.kind == "refused"}, key=lambda end: end.state):
        found.append(f"the table refuses what can come in {end.state}; `dsa check` says what")
    if chain.complete and (again := _unlimited(chain, world)):
        rows = {chain.system.machine.transitions[chain.system.commands[index].row] for index in again}
        lines = sorted({row.span.line for row in rows if row.span})
        where = f" ({'line' if len(lines) == 1 else 'lines'} {', '.join(map(str, lines))})" if lines else ""
        found.append(
            f"retries are unlimited{where}: no run is bounded, and odds that change with the retry number say nothing of those that follow the last one;"
            " count the retries and bound them, or give one number for all"
        )
    return tuple(found)


def _unlimited(chain: Chain, world: ChainAssumptions) -> frozenset[int]:
    """Return the commands of retries without limit, but for those of guards that are said to be memoryless: there the numbers are exact."""

    def is_known(index: int) -> bool:
        said = chain.system.commands[index].occurrence.verdicts
        return all(guard in world.guards and world.guards[guard].is_memoryless for guard, _ in said)

    return frozenset(index for index in unlimited(chain) if not is_known(index))


def _unused(chain: Chain) -> tuple[str, ...]:
    return tuple(
        f"the odds given for {name} are not used: it never comes where the run waits with nothing outstanding, nor as an answer"
        for name in chain.unused
    )
