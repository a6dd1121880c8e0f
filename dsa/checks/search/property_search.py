"""Searches of a system at its machine's parameter values, and what is read off them.

Takes a system and what to look out for, gives a `FinishedSearch`: where each thing is met first, shortest ways, the graph. What is found are
numbers of a `Ground`; the graph has positions, the start's 0, nearest first.

Whether Q may be owed for ever after P, in everything that a search found: `leads to`, under fairness.

Takes a search of what was observed (`dsa.checks.observers`), gives the configurations at which a run may owe Q for ever, a way there, and the effects
without whose answers it might.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import cached_property, partial

import attrs

from dsa.checks.observers import WAITING, Observer, WatchedCondition
from dsa.checks.search.engine import Engine, SearchLimits, SearchResult
from dsa.checks.search.exploration import Ways, automatic, ways
from dsa.checks.search.state_graph import StateGraph, cycles, cycles_within, graph, marked
from dsa.declarations import LeadsTo
from dsa.expr import Expr, Name, any_of, evaluate
from dsa.ground_system import Ground, ground
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
    found: SearchResult
    hits: tuple[Hit | None, ...] = ()

    @property
    def system(self) -> System:
        """The system searched."""
        return self.ground.system

    @property
    def complete(self) -> bool:
        """Return whether everything was laid out and searched."""
        return self.found.complete and not self.system.left_out

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
        return ways(self.ground, self.found)

    @cached_property
    def graph(self) -> StateGraph:
        """Everything found and every step between; ValueError when the search is not complete, or found too much to list."""
        return graph(self.ground, attrs.evolve(self.found, layers=self._ways.layers))

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
    seen: Observer, limits: SearchLimits, engine: Engine | None = None, *, hurries: bool = False
) -> FinishedSearch:
    """Search an observed system for its sights; `hurries` is for `ground`."""
    return search_ground(ground(seen.system, hurries=hurries, is_late=limits.expired), [seen.sights], limits, engine)


def search_all(
    system: System, groups: Sequence[Sequence[WatchedCondition]], limits: SearchLimits, engine: Engine | None = None
) -> FinishedSearch:
    """Search a system once for several groups of sights: of each, the one that is met first."""
    return search_ground(ground(system, is_late=limits.expired), groups, limits, engine)


def search_ground(
    grounded: Ground, groups: Sequence[Sequence[WatchedCondition]], limits: SearchLimits, engine: Engine | None = None
) -> FinishedSearch:
    """Search what can happen in numbers, which may be less than the system allows."""
    wanted = grounded.watches(conditions(groups))
    found = (engine or automatic())(grounded, [watch for watch in wanted if watch is not None], limits)
    hits = iter(found.hits)
    return searched(grounded, found, groups, [None if watch is None else next(hits) for watch in wanted])


def conditions(groups: Sequence[Sequence[WatchedCondition]]) -> list[tuple[int, Expr]]:
    """Return what to look out for: one condition for each group and location."""
    return [(place, any_of(sight.condition for sight in here)) for _, place, here in _places(groups)]


def searched(
    grounded: Ground, found: SearchResult, groups: Sequence[Sequence[WatchedCondition]], numbers: Sequence[int | None]
) -> FinishedSearch:
    """Return what a search found for groups of sights; `numbers` has where each of their `conditions` was met."""
    nearest: list[Hit | None] = [None] * len(groups)
    if any(number is not None for number in numbers):
        to = ways(grounded, found)
        for (owner, _, here), number in zip(_places(groups), numbers, strict=True):
            best = nearest[owner]
            if number is not None:
                hit = _hit(grounded, to, here, number)
                if best is None or len(hit.way) < len(best.way):
                    nearest[owner] = hit
    return FinishedSearch(grounded, found, tuple(nearest))


def _places(groups: Sequence[Sequence[WatchedCondition]]) -> Iterator[tuple[int, int, list[WatchedCondition]]]:
    """Yield the sights of each group by location."""
    for owner, sights in enumerate(groups):
        by_place: dict[int, list[WatchedCondition]] = {}
        for sight in sights:
            by_place.setdefault(sight.location, []).append(sight)
        yield from ((owner, place, here) for place, here in by_place.items())


def _hit(grounded: Ground, to: Ways, sights: Sequence[WatchedCondition], number: int) -> Hit:
    values, place, way = grounded.values(number), number // grounded.volume, _way(grounded, to, number)
    for sight in sights:
        if sight.location == place and evaluate(grounded.ground_condition(sight.condition), values) is True:
            return Hit(number, (*way, sight.command) if sight.command else way)
    raise AssertionError("some sight of the group is true where its watch is")


def _way(grounded: Ground, to: Ways, number: int) -> tuple[GuardedCommand, ...]:
    """Return the commands of a shortest way from the start to a configuration that was found."""
    rules = (grounded.rules[leap.rule] for leap in to.to(number))
    return tuple(grounded.system.commands[rule.command] for rule in rules)


Move = tuple[GuardedCommand, int]


@attrs.frozen
class Lasso:
    """A way to a configuration, and a cycle through it that can be gone round for ever; without a cycle the run rests there."""

    stem: tuple[GuardedCommand, ...]
    cycle: tuple[GuardedCommand, ...] = ()


def happens_with(name: str, command: GuardedCommand) -> bool:
    """Return whether an event, an effect or a verdict (as written: `g.passed`) happens when the command is taken."""
    guard, _, outcome = name.rpartition(".")
    is_said = any((guard, outcome) == said for said in command.occurrence.verdicts)
    return is_said or name == command.occurrence.event or name in command.effects


class Obligations:
    """The configurations at which Q is owed, in the search of what was observed for a `leads to`. Raises LateError when the time of that is over."""

    def __init__(self, searched: FinishedSearch, form: LeadsTo) -> None:
        self._searched, self._fair, self._is_weak = searched, form.fair, form.is_weak
        self._system, self._graph = searched.system, searched.graph
        self._is_owed = Name(WAITING, "variable")
        self._timely = searched.ground.timely
        self._happen: dict[str, frozenset[int]] = {}
        #: The effects of which no answer is promised, and those whose failure ends the run.
        self._silent = form.doubtful_effects("never answers")
        self._failing = form.doubtful_effects("fails") - searched.system.machine.failures_handled
        places = range(len(self._system.locations))
        self._marks = self._graph.holding(dict.fromkeys(places, self._is_owed))

    @property
    def is_ever(self) -> bool:
        """Return whether Q may be owed for ever."""
        return bool(self._ends_by_asking or self.allowed)

    def lasso(self, without: FinishedSearch | None = None) -> Lasso | None:
        """Return a way to owe for ever with a shortest stem; only by ways of another search, when one is given."""
        searched = without or self._searched
        found = [*self._nearest(searched, self.allowed), *self._nearest_asking(searched)]
        return min(found, key=lambda lasso: len(lasso.stem), default=None)

    def _nearest(self, searched: FinishedSearch, allowed: Collection[int]) -> Iterator[Lasso]:
        """Yield the nearest lasso of a search to a position at which a run may owe for ever, if there is any."""
        for position in sorted(allowed):
            number = int(self._graph.numbers[position])
            if searched is self._searched or searched.has(number):
                part = self.allowed[position]
                cycle = self._cycle(position, part) if part else ()
                yield Lasso(searched.way_to(number), tuple(command for command, _ in cycle))
                return

    def _nearest_asking(self, searched: FinishedSearch) -> Iterator[Lasso]:
        """Yield the nearest way of a search to a moment at which an effect without answers is asked for, and may fail, while Q is owed."""
        for before, command in sorted(self._ends_by_asking, key=lambda asking: asking[0]):
            number = int(self._graph.numbers[before])
            if searched is self._searched or searched.has(number):
                yield Lasso((*searched.way_to(number), command))
                return

    @cached_property
    def allowed(self) -> dict[int, frozenset[int]]:
        """The positions at which a run may owe for ever: each with the component it goes round, or empty to rest or to end."""
        found = {at: part for part in self._parts_by(self._silent) for at in part}
        return found | dict.fromkeys((*self._resting_by(self._silent), *self._ends_outstanding()), frozenset())

    def relied_on(self) -> tuple[str, ...]:
        """Return the effects without whose answers Q might be owed for ever, in the order of Effects: each is given up that can be (S12)."""
        outstanding = {promise for promise in self.promises() if isinstance(promise, str)}
        given_up, needed = self._silent, []
        for effect in (name for name in self._system.machine.effects_with_answers if name in outstanding):
            without = given_up | {effect}
            if self._resting_by(without) or any(True for _ in self._parts_by(without)):
                needed.append(effect)
            else:
                given_up = without
        return tuple(needed)

    def ignored_failures(self) -> tuple[str, ...]:
        """Return the effects whose failure is ignored by a row after which a run may rest while Q is owed, in the order of Effects."""
        system, machine = self._system, self._system.machine
        ignoring = {
            index
            for index, command in enumerate(system.commands)
            if machine.is_failure(command.occurrence.event) and system.may_rest(command.target)
            and not system.is_final(command.target) and machine.transitions[command.row].is_ignoring
        }  # fmt: skip
        found = set()
        for position in self._timely(range(len(self._graph.numbers)) if ignoring else ()):
            for step, target in self._searched.steps_at(position):
                index = self._searched.index_at(step)
                if index in ignoring and self._marks[target]:
                    found.add(machine.event_named[system.commands[index].occurrence.event].origin)
        return tuple(effect for effect in machine.effects_with_answers if effect in found)

    def _parts_by(self, silent: frozenset[str]) -> Iterator[frozenset[int]]:
        """Yield the components that a run may go round, when these effects need not answer."""
        todo = list(self._cycles)
        while todo:
            part = todo.pop()
            if self._promised(part) - silent:
                continue
            unfair = self._unfair(part)
            if unfair:
                todo += cycles_within(self._graph, part - unfair)
            else:
                yield part

    @cached_property
    def _cycles(self) -> tuple[frozenset[int], ...]:
        return tuple(cycles(self._graph, self._marks))

    def _ends_outstanding(self) -> Iterator[int]:
        """Return the positions where an effect is outstanding whose failure would end the run there."""
        locations = enumerate(self._system.locations)
        places = [place for place, location in locations if location.outstanding & self._failing]
        return iter(marked(self._graph.holding(dict.fromkeys(places, self._is_owed))) if places else ())

    @cached_property
    def _ends_by_asking(self) -> tuple[tuple[int, GuardedCommand], ...]:
        """The moves at whose moment Q is owed and an effect without answers is asked for whose failure would end the run, each with where it starts."""
        without_answers = self._failing - self._system.machine.answers.keys()
        places = range(len(self._graph.numbers)) if without_answers else ()
        moves = ((position, *move) for position in self._timely(places) for move in self._moves(position))
        return tuple(
            (position, command)
            for position, command, target in moves
            if self._marks[target] and not without_answers.isdisjoint(command.effects)
        )

    def promises(self) -> frozenset[Promise]:
        """Return the promises of all configurations at which something is owed: that they end is what the answer rests on."""
        places = {self._searched.place(position) for position in marked(self._marks)}
        return frozenset().union(*map(self._system.promises, places))

    def _resting_by(self, silent: frozenset[str]) -> list[int]:
        """Return the positions where a run may rest, when these effects need not answer, and nothing is possible that is assumed fair."""
        system = self._system
        places = [place for place in range(len(system.locations)) if not system.promises(place) - silent]
        resting = marked(self._graph.holding(dict.fromkeys(places, self._is_owed)))
        able = [self._able(resting, name) for name in self._fair]
        return [position for position in resting if not any(position in there for there in able)]

    def _moves(self, position: int) -> Iterator[Move]:
        return self._searched.moves_at(position)

    def _promises(self, position: int) -> frozenset[Promise]:
        return self._system.promises(self._searched.place(position))

    def _inside(self, part: Collection[int]) -> set[int]:
        """Return the indexes of the commands taken inside a component."""
        steps = ((step, to) for at in self._timely(part) for step, to in self._searched.steps_at(at))
        return {self._searched.index_at(step) for step, to in steps if to in part}

    def _promised(self, part: frozenset[int]) -> frozenset[Promise]:
        """Return what is promised all the way round and never kept: S12 allows no such run."""
        places = {self._searched.place(position) for position in part}
        always = frozenset.intersection(*map(self._system.promises, places))
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
        rules, offsets, happening = self._graph.rules, self._graph.offsets, self._happening(name)
        return frozenset(
            at for at in self._timely(part) if not happening.isdisjoint(rules[offsets[at] : offsets[at + 1]])
        )

    def _happening(self, name: str) -> frozenset[int]:
        """Return the rules that something happens with."""
        if name not in self._happen:
            rules, commands = self._searched.ground.rules, self._system.commands
            self._happen[name] = frozenset(
                place for place, rule in enumerate(rules) if happens_with(name, commands[rule.command])
            )
        return self._happen[name]

    def _cycle(self, start: int, part: frozenset[int]) -> list[Move]:
        """Return a way through the component from a position back to it that keeps every promise and is fair."""
        walk: list[Move] = []
        while (wanted := self._lacking(start, walk)) is not None:
            walk += self._way(walk[-1][1] if walk else start, part, wanted)
        return walk

    def _lacking(self, start: int, walk: Sequence[Move]) -> Callable[[Move], bool] | None:
        """Return what a walk still lacks, as a move to look for; None when nothing."""
        visited = [start, *(to for _, to in walk)]
        taken = [command for command, _ in walk]
        for name in self._fair:
            able = self._able(frozenset(visited), name)
            possible = len(able) == len(set(visited)) if self._is_weak else bool(able)
            if possible and not any(happens_with(name, command) for command in taken):
                return partial(self._is_fair_move, name)
        for promise in sorted(self._promises(start) - self._silent, key=str):
            kept = any(promise in command.endings for command in taken)
            if not kept and all(promise in self._promises(position) for position in visited):
                return lambda move: promise in move[0].endings or promise not in self._promises(move[1])
        return None if walk and walk[-1][1] == start else lambda move: move[1] == start

    def _is_fair_move(self, name: str, move: Move) -> bool:
        command, target = move
        return happens_with(name, command) or (self._is_weak and not self._able(frozenset({target}), name))

    def _way(self, here: int, part: frozenset[int], wanted: Callable[[Move], bool]) -> list[Move]:
        """Return a shortest way inside the component that ends with a move that is wanted."""
        arrived: dict[int, tuple[int, Move] | None] = {here: None}
        todo = deque([here])
        while todo:
            position = todo.popleft()
            for move in self._moves(position):
                if move[1] in part and wanted(move):
                    return [*_back(arrived, position), move]
                if move[1] in part and move[1] not in arrived:
                    arrived[move[1]] = (position, move)
                    todo.append(move[1])
        raise AssertionError("every move inside a component can be reached in it")


def _back(arrived: dict[int, tuple[int, Move] | None], position: int) -> list[Move]:
    found: list[Move] = []
    while (step := arrived[position]) is not None:
        position, move = step
        found.append(move)
    return found[::-1]
