"""Searches of a system at its machine's parameter values, and what is read off them.

Takes a system and sights to look out for, gives a `FinishedSearch`: where each sight is met first, shortest ways, the graph. Configurations
are numbers of a `Ground`; the graph has positions, the start's 0, nearest first.

`Obligations` decides `leads to` under fairness, from a search of an observed system (`dsa.checks.observers`): it gives the configurations
at which a run may owe Q for ever after P, a way there, and the effects without whose answers it might.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import cached_property, partial

import attrs

from dsa.checks.observers import OBLIGATION, Observer, WatchedCondition
from dsa.checks.search.engine import Engine, SearchLimits, SearchResult
from dsa.checks.search.exploration import Ways, automatic, ways
from dsa.checks.search.state_graph import Numbers, StateGraph, cycles, cycles_within, graph, marked_positions
from dsa.declarations import LeadsTo
from dsa.expr import FALSE, TRUE, Expr, Name, all_of, any_of, evaluate
from dsa.ground_system import Ground, ground
from dsa.machine import sleeping_effects
from dsa.system import GuardedCommand, Promise, System
from dsa.trace import Trace, follow


@attrs.frozen
class Hit:
    """Where something was met first: after the steps of `way`, the last of which is the moment itself.

    `number` is the configuration at which it is seen: after the way, or, for what happens with a command, before its last step.
    """

    number: int
    way: tuple[GuardedCommand, ...]


@attrs.frozen(slots=False)
class FinishedSearch:
    """A search that is over. `hits` has one for each group of sights that was met."""

    ground: Ground
    result: SearchResult
    hits: tuple[Hit | None, ...] = ()

    @property
    def system(self) -> System:
        """The system searched."""
        return self.ground.system

    @property
    def complete(self) -> bool:
        """Return whether everything was searched."""
        return self.result.complete and not self.system.left_out

    @cached_property
    def is_listed(self) -> bool:
        """Return whether the search is complete and has a graph."""
        try:
            return self.complete and bool(self.graph)
        except ValueError:
            return False

    def moves(self, number: int) -> Iterator[tuple[GuardedCommand, int]]:
        """Yield the commands taken at a configuration and the configuration each leads to; slow."""
        for rule, after in self.ground.successors(number):
            yield self.system.commands[rule.command], after

    def may_rest(self, number: int) -> bool:
        """Return whether a run may stay for ever in a configuration (S12)."""
        condition = self.ground.ground_condition(self.system.may_rest(number // self.ground.volume))
        return evaluate(condition, self.ground.values(number)) is True

    def has(self, number: int) -> bool:
        """Return whether a configuration was found."""
        try:
            self._ways.depth(number)
        except KeyError:
            return False
        return True

    def way_to(self, number: int) -> tuple[GuardedCommand, ...]:
        """Return the commands of a shortest way from the start to a configuration that was found."""
        return _way(self.ground, self._ways, number)

    def trace(self, way: Iterable[GuardedCommand]) -> Trace:
        """Return the steps of a way as a trace of the machine."""
        return follow(self.system.machine, [command.occurrence for command in way])

    @cached_property
    def _ways(self) -> Ways:
        return ways(self.ground, self.result)

    @cached_property
    def graph(self) -> StateGraph:
        """All configurations and every step between them; ValueError when the search is not complete, or found too much to list."""
        return graph(self.ground, attrs.evolve(self.result, layers=self._ways.layers))

    def position(self, number: int) -> int:
        """Return the position of a configuration in the graph; slow."""
        return next(place for place, other in enumerate(self.graph.numbers) if other == number)

    def place(self, position: int) -> int:
        """Return the location of a position of the graph."""
        return int(self.graph.numbers[position]) // self.ground.volume

    def steps_at(self, position: int) -> Iterator[tuple[int, int]]:
        """Yield the steps of the graph out of a position, each with where it leads."""
        for step in range(self.graph.offsets[position], self.graph.offsets[position + 1]):
            yield step, int(self.graph.targets[step])

    def index_at(self, step: int) -> int:
        """Return the index of the command that a step of the graph takes."""
        return self.ground.rules[self.graph.rules[step]].command

    def moves_at(self, position: int) -> Iterator[tuple[GuardedCommand, int]]:
        """Yield the commands taken at a position of the graph and the position each leads to."""
        for step, target in self.steps_at(position):
            yield self.system.commands[self.index_at(step)], target


def search(
    observer: Observer, limits: SearchLimits, engine: Engine | None = None, *, hurries: bool = False
) -> FinishedSearch:
    """Search an observed system for its sights; `hurries` is for `ground`."""
    return search_ground(
        ground(observer.system, hurries=hurries, is_late=limits.is_expired), [observer.sights], limits, engine
    )


def search_all(
    system: System, groups: Sequence[Sequence[WatchedCondition]], limits: SearchLimits, engine: Engine | None = None
) -> FinishedSearch:
    """Search a system once for several groups of sights: of each, the one that is met first."""
    return search_ground(ground(system, is_late=limits.is_expired), groups, limits, engine)


def search_ground(
    ground: Ground, groups: Sequence[Sequence[WatchedCondition]], limits: SearchLimits, engine: Engine | None = None
) -> FinishedSearch:
    """Search what can happen in numbers, which may be less than the system allows."""
    watches = ground.watches(conditions(groups))
    result = (engine or automatic())(ground, [watch for watch in watches if watch is not None], limits)
    hits = iter(result.hits)
    return finish_search(ground, result, groups, [None if watch is None else next(hits) for watch in watches])


def conditions(groups: Sequence[Sequence[WatchedCondition]]) -> list[tuple[int, Expr]]:
    """Return what to look out for: one condition for each group and location."""
    return [(place, any_of(sight.condition for sight in here)) for _, place, here in _places(groups)]


def finish_search(
    ground: Ground, result: SearchResult, groups: Sequence[Sequence[WatchedCondition]], numbers: Sequence[int | None]
) -> FinishedSearch:
    """Return what a search found for groups of sights; `numbers` has where each of their `conditions` was met."""
    nearest: list[Hit | None] = [None] * len(groups)
    if any(number is not None for number in numbers):
        to = ways(ground, result)
        for (owner, _, here), number in zip(_places(groups), numbers, strict=True):
            best = nearest[owner]
            if number is not None:
                hit = _hit(ground, to, here, number)
                if best is None or len(hit.way) < len(best.way):
                    nearest[owner] = hit
    return FinishedSearch(ground, result, tuple(nearest))


def _places(groups: Sequence[Sequence[WatchedCondition]]) -> Iterator[tuple[int, int, list[WatchedCondition]]]:
    """Yield the sights of each group by location."""
    for owner, sights in enumerate(groups):
        by_place: dict[int, list[WatchedCondition]] = {}
        for sight in sights:
            by_place.setdefault(sight.location, []).append(sight)
        yield from ((owner, place, here) for place, here in by_place.items())


def _hit(ground: Ground, to: Ways, sights: Sequence[WatchedCondition], number: int) -> Hit:
    values, place, way = ground.values(number), number // ground.volume, _way(ground, to, number)
    for sight in sights:
        if sight.location == place and evaluate(ground.ground_condition(sight.condition), values) is True:
            return Hit(number, (*way, sight.command) if sight.command else way)
    raise AssertionError("some sight of the group is true where its watch is")


def _way(ground: Ground, to: Ways, number: int) -> tuple[GuardedCommand, ...]:
    """Return the commands of a shortest way from the start to a configuration that was found."""
    rules = (ground.rules[leap.rule] for leap in to.to(number))
    return tuple(ground.system.commands[rule.command] for rule in rules)


# -- P leads to Q -----------------------------------------------------------------------------------------------------
# Q stays owed for ever on a run that rests where only outside events could go on, or that repeats a cycle which S12 allows: every promise
# (outstanding effect, armed timer) of the cycle is kept somewhere on it, or is absent somewhere. With fairness, what is possible again and
# again must happen; a run that rests is in its last configuration again and again. This is exact: when a component breaks fairness, the rest of
# it, without the configurations where the event is possible, is searched again. With weak fairness nothing is left: an event that is possible
# at every configuration and never happens is so in every part too. An effect after `even if` promises nothing, or may end the run where it fails.


#: A step: the command, and the position of the configuration it leads to.
Move = tuple[GuardedCommand, int]


@attrs.frozen
class Lasso:
    """A way to a configuration, and a cycle through it that a run can repeat for ever; without a cycle the run rests there."""

    stem: tuple[GuardedCommand, ...]
    cycle: tuple[GuardedCommand, ...] = ()


def happens_with(name: str, command: GuardedCommand) -> bool:
    """Return whether an event, an effect or a verdict (as written: `g.passed`) happens when the command is taken."""
    guard, _, outcome = name.rpartition(".")
    is_said = any((guard, outcome) == verdict for verdict in command.occurrence.verdicts)
    return is_said or name == command.occurrence.event or name in command.effects


class Obligations:
    """The configurations at which Q is owed, in the search of what was observed for a `leads to`. Raises UndecidedError when the time of that is over."""

    def __init__(self, result: FinishedSearch, form: LeadsTo) -> None:
        self._result, self._fair, self._is_weak = result, form.fair, form.is_weak
        self._system, self._graph = result.system, result.graph
        self._is_owed = Name(OBLIGATION, "variable")
        self._timely = result.ground.timely
        self._happen: dict[str, frozenset[int]] = {}
        self._marks_of: dict[Promise, Numbers] = {}
        #: The effects of which no answer is promised, and those whose failure ends the run.
        self._silent = form.doubtful_effects("never answers")
        self._failing_effects = form.doubtful_effects("fails") - result.system.machine.failures_handled
        places = range(len(self._system.locations))
        self._marks = self._graph.marks_where(dict.fromkeys(places, self._is_owed))

    @property
    def is_ever(self) -> bool:
        """Return whether Q may be owed for ever."""
        return bool(self._ends_by_asking or self.endless_positions)

    def lasso(self, without: FinishedSearch | None = None) -> Lasso | None:
        """Return a lasso on which Q is owed for ever, with a shortest stem; only by ways of another search, when one is given."""
        result = without or self._result
        lassos = [*self._nearest(result, self.endless_positions), *self._nearest_asking(result)]
        return min(lassos, key=lambda lasso: len(lasso.stem), default=None)

    def _nearest(self, result: FinishedSearch, positions: Collection[int]) -> Iterator[Lasso]:
        """Yield the nearest lasso of a search to a position at which a run may owe for ever, if there is any."""
        for position in sorted(positions):
            number = int(self._graph.numbers[position])
            if result is self._result or result.has(number):
                part = self.endless_positions[position]
                cycle = self._cycle(position, part) if part else ()
                yield Lasso(result.way_to(number), tuple(command for command, _ in cycle))
                return

    def _nearest_asking(self, result: FinishedSearch) -> Iterator[Lasso]:
        """Yield the nearest way of a search to a moment at which an effect without answers is emitted, and may fail, while Q is owed."""
        for before, command in sorted(self._ends_by_asking, key=lambda end: end[0]):
            number = int(self._graph.numbers[before])
            if result is self._result or result.has(number):
                yield Lasso((*result.way_to(number), command))
                return

    @cached_property
    def endless_positions(self) -> dict[int, frozenset[int]]:
        """The positions at which a run may owe for ever: each with the component of its cycle, which is empty where the run rests or ends."""
        parts = {at: part for part in self._parts_by(self._silent) for at in part}
        return parts | dict.fromkeys((*self._resting_by(self._silent), *self._ends_outstanding()), frozenset())

    def relied_on(self) -> tuple[str, ...]:
        """Return the effects without whose answers Q might be owed for ever, in the order of Effects: as few as possible (S12); no sleeps."""
        sleeps = sleeping_effects(self._system.machine)
        promised_effects = {each for each in self.promises() if isinstance(each, str)} - sleeps.keys()
        given_up, effects_needed = self._silent, []
        for effect in (name for name in self._system.machine.effects_with_answers if name in promised_effects):
            without = given_up | {effect}
            if self._resting_by(without) or any(True for _ in self._parts_by(without)):
                effects_needed.append(effect)
            else:
                given_up = without
        return tuple(effects_needed)

    def ignored_failures(self) -> tuple[str, ...]:
        """Return the effects whose failure is ignored by a row after which a run may rest while Q is owed, in the order of Effects."""
        system, machine = self._system, self._system.machine
        ignoring_commands = {
            index
            for index, command in enumerate(system.commands)
            if machine.is_failure(command.occurrence.event) and system.may_rest(command.target) != FALSE
            and not system.is_final(command.target) and machine.transitions[command.row].is_ignoring
        }  # fmt: skip
        effects = set()
        for position in self._timely(range(len(self._graph.numbers)) if ignoring_commands else ()):
            for step, target in self._result.steps_at(position):
                index = self._result.index_at(step)
                if index in ignoring_commands and self._marks[target] and self._rest_marks[target]:
                    effects.add(machine.event_named[system.commands[index].occurrence.event].origin)
        return tuple(effect for effect in machine.effects_with_answers if effect in effects)

    def _parts_by(self, silent: frozenset[str]) -> Iterator[frozenset[int]]:
        """Yield the components that a run may go round, when these effects need not answer."""
        todo = list(self._cycles)
        while todo:
            part = todo.pop()
            if self._broken_promises(part) - silent:
                continue
            unfair = self._unfair(part)
            if unfair:
                todo += cycles_within(self._graph, part - unfair)
            else:
                yield part

    @cached_property
    def _cycles(self) -> tuple[frozenset[int], ...]:
        return tuple(cycles(self._graph, self._marks))

    @cached_property
    def _rest_marks(self) -> Numbers:
        """For each position, whether a run may rest there."""
        return self._marks_where(self._system.may_rest)

    def _ends_outstanding(self) -> Iterator[int]:
        """Return the positions where an effect is outstanding whose failure would end the run there."""
        effects = sorted(self._failing_effects & self._system.machine.answers.keys())
        if not effects:
            return iter(())
        return iter(self._owed_where(lambda place: any_of(self._system.is_outstanding(place, e) for e in effects)))

    def _owed_where(self, condition: Callable[[int], Expr]) -> list[int]:
        """Return the positions at which Q is owed and a condition over the system's variables, given by location, is true."""
        marks = self._marks_where(lambda place: all_of([self._is_owed, condition(place)]))
        return marked_positions(marks)

    def _marks_where(self, condition: Callable[[int], Expr]) -> Numbers:
        """Return for each position whether a condition, given by location, is true there."""
        ground_condition = self._result.ground.ground_condition
        conditions = {place: ground_condition(condition(place)) for place in range(len(self._system.locations))}
        return self._graph.marks_where({place: here for place, here in conditions.items() if here != FALSE})

    @cached_property
    def _ends_by_asking(self) -> tuple[tuple[int, GuardedCommand], ...]:
        """The moves that emit an effect without answers, whose failure would end the run, while Q is owed; each with where it starts."""
        without_answers = self._failing_effects - self._system.machine.answers.keys()
        places = range(len(self._graph.numbers)) if without_answers else ()
        moves = ((position, *move) for position in self._timely(places) for move in self._moves(position))
        return tuple(
            (position, command)
            for position, command, target in moves
            if self._marks[target] and not without_answers.isdisjoint(command.effects)
        )

    def promises(self) -> frozenset[Promise]:
        """Return the promises of all configurations at which something is owed: that they end is what the answer rests on."""
        places = self._graph.marked_locations(self._marks)
        promises = frozenset[Promise]().union(*map(self._system.promises, places))
        return frozenset(each for each in promises if self._graph.have_common(self._marks, self._promise_marks(each)))

    def _resting_by(self, silent: frozenset[str]) -> list[int]:
        """Return the positions where a run may rest, when these effects need not answer, and nothing is possible that is assumed fair."""
        positions = self._owed_where(attrs.evolve(self._system, silent=silent).may_rest)
        able = [self._able(positions, name) for name in self._fair]
        return [position for position in positions if not any(position in there for there in able)]

    def _moves(self, position: int) -> Iterator[Move]:
        return self._result.moves_at(position)

    def _promises(self, position: int) -> list[Promise]:
        """Return the promises of a position, sorted."""
        promises = self._system.promises(self._result.place(position))
        return sorted((promise for promise in promises if self._has_promise(position, promise)), key=str)

    def _has_promise(self, position: int, promise: Promise) -> bool:
        """Return whether something must end some time at a position: by its location, or by the numbers outstanding there."""
        condition = self._system.promises(self._result.place(position)).get(promise, FALSE)
        return condition == TRUE or (condition != FALSE and bool(self._promise_marks(promise)[position]))

    def _promise_marks(self, promise: Promise) -> Numbers:
        if promise not in self._marks_of:
            self._marks_of[promise] = self._marks_where(lambda place: self._system.promises(place).get(promise, FALSE))
        return self._marks_of[promise]

    def _inside(self, part: Collection[int]) -> set[int]:
        """Return the indexes of the commands taken inside a component."""
        steps = ((step, to) for at in self._timely(part) for step, to in self._result.steps_at(at))
        return {self._result.index_at(step) for step, to in steps if to in part}

    def _broken_promises(self, part: frozenset[int]) -> frozenset[Promise]:
        """Return the promises that last all round a component and are never kept: S12 allows no such run."""
        by_place = [self._system.promises(place) for place in {self._result.place(position) for position in part}]
        always = frozenset(
            promise
            for promise in frozenset.intersection(*map(frozenset, by_place))
            if all(here[promise] == TRUE for here in by_place) or all(self._has_promise(at, promise) for at in part)
        )
        commands = self._inside(part) if always else ()
        return always.difference(*(self._system.commands[index].endings for index in commands))

    def _unfair(self, part: frozenset[int]) -> frozenset[int]:
        """Return the positions where something is possible that is assumed fair and never happens inside.

        Of weak fairness: all of them, where something is possible at all of them, else none.
        """
        inside = [self._system.commands[index] for index in self._inside(part)] if self._fair else []
        missing = [name for name in self._fair if not any(happens_with(name, command) for command in inside)]
        able = [self._able(part, name) for name in missing]
        if self._is_weak:
            return part if part in able else frozenset()
        return frozenset().union(*able)

    def _able(self, part: Collection[int], name: str) -> frozenset[int]:
        """Return the positions of a component where something is possible."""
        rules, offsets, matching_rules = self._graph.rules, self._graph.offsets, self._rules_with(name)
        return frozenset(
            at for at in self._timely(part) if not matching_rules.isdisjoint(rules[offsets[at] : offsets[at + 1]])
        )

    def _rules_with(self, name: str) -> frozenset[int]:
        """Return the rules that something happens with."""
        if name not in self._happen:
            rules, commands = self._result.ground.rules, self._system.commands
            self._happen[name] = frozenset(
                place for place, rule in enumerate(rules) if happens_with(name, commands[rule.command])
            )
        return self._happen[name]

    def _cycle(self, start: int, part: frozenset[int]) -> list[Move]:
        """Return a way through the component from a position back to it that keeps every promise and is fair."""
        walk: list[Move] = []
        while (is_needed := self._missing_move(start, walk)) is not None:
            walk += self._way(walk[-1][1] if walk else start, part, is_needed)
        return walk

    def _missing_move(self, start: int, walk: Sequence[Move]) -> Callable[[Move], bool] | None:
        """Return what a walk still lacks, as a move to look for; None when nothing."""
        visited_positions = [start, *(to for _, to in walk)]
        taken = [command for command, _ in walk]
        for name in self._fair:
            able = self._able(frozenset(visited_positions), name)
            possible = len(able) == len(set(visited_positions)) if self._is_weak else bool(able)
            if possible and not any(happens_with(name, command) for command in taken):
                return partial(self._is_fair_move, name)
        for promise in self._promises(start):
            is_kept = promise in self._silent or any(promise in command.endings for command in taken)
            if not is_kept and all(self._has_promise(position, promise) for position in visited_positions):
                return lambda move: promise in move[0].endings or not self._has_promise(move[1], promise)
        return None if walk and walk[-1][1] == start else lambda move: move[1] == start

    def _is_fair_move(self, name: str, move: Move) -> bool:
        command, target = move
        return happens_with(name, command) or (self._is_weak and not self._able(frozenset({target}), name))

    def _way(self, here: int, part: frozenset[int], is_wanted: Callable[[Move], bool]) -> list[Move]:
        """Return a shortest way inside the component whose last move is wanted."""
        arrivals: dict[int, tuple[int, Move] | None] = {here: None}
        todo = deque([here])
        while todo:
            position = todo.popleft()
            for move in self._moves(position):
                if move[1] in part and is_wanted(move):
                    return [*_back(arrivals, position), move]
                if move[1] in part and move[1] not in arrivals:
                    arrivals[move[1]] = (position, move)
                    todo.append(move[1])
        raise AssertionError("every move inside a component can be reached in it")


def _back(arrivals: dict[int, tuple[int, Move] | None], position: int) -> list[Move]:
    moves: list[Move] = []
    while (step := arrivals[position]) is not None:
        position, move = step
        moves.append(move)
    return moves[::-1]
