"""Search with sets of configurations as binary decision diagrams: for very many configurations of many variables that hardly depend on each other.

Needs the package `dd`; uses its CUDD where that is installed. Sets are kept by location, and rules are taken one after the other on all
that is new (chaining), so the search does not go by distance; when it meets a watch, a second search goes by distance. Counts are exact.
Its bad case are counters that run far: time grows with the number of steps from the start, and diagrams may grow until they meet the memory
bound.

Ground expressions are Boolean functions of bits. A field has as many bits as its size needs, the most significant first; each bit has two
variables, for the value before and after a rule, side by side in the manager's order. Whole numbers are lists of nodes in two's complement,
the least significant first.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from typing import Any

import attrs

from dsa.checks.search.engine import SearchLimits, SearchResult
from dsa.errors import UndecidedError
from dsa.expr import And, Arithmetic, Boolean, Compare, Count, Expr, Integer, Name, Negate, Not, Or, names
from dsa.ground_system import Ground, GroundRule, GroundWatch

#: A node of dd; the package has no types.
Node = Any
Bits = list[Node]


class Circuits:
    """The variables of a ground system in a manager, and its expressions over them.

    `order` has the indexes of the fields as they are declared in the manager. `ask` may raise before a step that may take long.
    """

    def __init__(self, ground: Ground, manager: Any, ask: Callable[[], None] = lambda: None) -> None:  # noqa: ANN401  (dd has no types)
        self._ground, self.manager, self._ask = ground, manager, ask
        self.false, self.true = manager.false, manager.true
        self.order = field_order(ground)
        self.now: dict[int, list[str]] = {}
        self.later: dict[int, list[str]] = {}
        for index in self.order:
            width = (ground.fields[index].size - 1).bit_length()
            self.now[index] = [f"x{index}_{bit}" for bit in range(width)]
            self.later[index] = [f"y{index}_{bit}" for bit in range(width)]
            for bit in reversed(range(width)):
                manager.declare(self.now[index][bit], self.later[index][bit])
        self._place = {field.name: index for index, field in enumerate(ground.fields)}
        self._truths: dict[Expr, Node] = {}

    def all_now(self) -> list[str]:
        """Return the variables of the values before, in the manager's order."""
        return [name for index in self.order for name in reversed(self.now[index])]

    def assignment(self, number: int, fields: Iterable[int]) -> dict[str, bool]:
        """Return the values that the variables of some fields have at a configuration."""
        values: dict[str, bool] = {}
        for index in fields:
            field = self._ground.fields[index]
            digit = number % self._ground.volume // field.stride % field.size
            values |= {name: bool(digit >> place & 1) for place, name in enumerate(self.now[index])}
        return values

    def cube(self, number: int, fields: Iterable[int] | None = None) -> Node:
        """Return the condition that fields (by default all) have the values of a configuration."""
        return self.manager.cube(self.assignment(number, self.order if fields is None else fields))

    def pick(self, node: Node) -> int:
        """Return the data of some configuration of a set that is not empty."""
        values = self.manager.pick(node, care_vars=set(self.all_now()))
        data = 0
        for index, field in enumerate(self._ground.fields):
            digit = sum(1 << place for place, name in enumerate(self.now[index]) if values[name])
            data += digit * field.stride
        return data

    def all_of(self, nodes: Iterable[Node]) -> Node:
        """Join nodes by `and`."""
        conjunction = self.true
        for node in nodes:
            self._ask()
            conjunction &= node
        return conjunction

    def any_of(self, nodes: Iterable[Node]) -> Node:
        """Join nodes by `or`."""
        return reduce(lambda a, b: a | b, nodes, self.false)

    def becomes(self, variables: list[str], index: int, value: Expr) -> Node:
        """Return the condition that variables of a field, the least significant first, hold the value of an expression."""
        digit = self._sum(self.number(value), self._constant(-self._ground.fields[index].low))
        bits = self._sign_extend(digit, len(variables) + 1)
        return self.all_of(self._same(self.manager.var(name), bits[k]) for k, name in enumerate(variables))

    def truth(self, expr: Expr) -> Node:
        """Return a condition over the values before."""
        if expr not in self._truths:
            self._truths[expr] = self._truth(expr)
        return self._truths[expr]

    def _truth(self, expr: Expr) -> Node:
        match expr:
            case Boolean(value):
                return self.true if value else self.false
            case Name():
                return self._field(expr.name)[0]
            case Not(operand):
                return ~self.truth(operand)
            case And(operands):
                return self.all_of(map(self.truth, operands))
            case Or(operands):
                return self.any_of(map(self.truth, operands))
            case Compare(left, ((sign, right),)):
                return self._comparison(self.number(left), sign, self.number(right))
        raise AssertionError(f"{expr} is not a condition of a ground")

    def number(self, expr: Expr) -> Bits:
        """Return a whole number; a condition is 1 or 0."""
        match expr:
            case Integer(value):
                return self._constant(value)
            case Name(name) if not self._ground.fields[self._place[name]].is_bool:
                return self._field(name)
            case Negate(operand):
                return self._negative(self.number(operand))
            case Arithmetic("+", left, right):
                return self._sum(self.number(left), self.number(right))
            case Arithmetic("-", left, right):
                return self._sum(self.number(left), self._negative(self.number(right)))
            case Arithmetic("*", left, right):
                return self._product(self.number(left), self.number(right))
            case Count(operands):
                return reduce(self._sum, map(self.number, operands), self._constant(0))
            case _:
                return [self.truth(expr), self.false]

    def _field(self, name: str) -> Bits:
        index = self._place[name]
        field = self._ground.fields[index]
        bits = [self.manager.var(variable) for variable in self.now[index]]
        if field.is_bool:
            return bits
        return self._sum([*bits, self.false], self._constant(field.low))

    def _constant(self, value: int) -> Bits:
        width = max(value, -value - 1).bit_length() + 1
        return [self.true if value >> place & 1 else self.false for place in range(width)]

    def _sign_extend(self, bits: Bits, width: int) -> Bits:
        return [*bits, *([bits[-1]] * (width - len(bits)))]

    def _same(self, a: Node, b: Node) -> Node:
        return a.equiv(b)

    def _sum(self, left: Bits, right: Bits) -> Bits:
        width = max(len(left), len(right)) + 1
        carry, bits = self.false, []
        for a, b in zip(self._sign_extend(left, width), self._sign_extend(right, width), strict=True):
            either = ~self._same(a, b)
            bits.append(~self._same(either, carry))
            carry = (a & b) | (either & carry)
        return _without_extra_signs(bits)

    def _negative(self, bits: Bits) -> Bits:
        return self._sum([~bit for bit in self._sign_extend(bits, len(bits) + 1)], self._constant(1))

    def _product(self, left: Bits, right: Bits) -> Bits:
        """Multiply by shifting and adding; bits beyond the width of both are dropped."""
        width = len(left) + len(right)
        if sum(bit in {self.true, self.false} for bit in left) == len(left):
            left, right = right, left
        left, total = self._sign_extend(left, width), self._constant(0)
        for place, factor in enumerate(self._sign_extend(right, width)):
            if factor != self.false:
                summand = [self.false] * place + [bit & factor for bit in left[: width - place]]
                total = self._sign_extend(self._sum(self._sign_extend(total, width), summand), width)[:width]
        return _without_extra_signs(total)

    def _comparison(self, left: Bits, sign: str, right: Bits) -> Node:
        match sign:
            case "==":
                return self._equal(left, right)
            case "!=":
                return ~self._equal(left, right)
            case "<":
                return self._less(left, right)
            case ">":
                return self._less(right, left)
            case "<=":
                return ~self._less(right, left)
            case _:
                return ~self._less(left, right)

    def _equal(self, left: Bits, right: Bits) -> Node:
        return self.all_of(self._same(a, b) for a, b in self._align(left, right))

    def _less(self, left: Bits, right: Bits) -> Node:
        pairs = list(self._align(left, right))
        less = self.false
        for a, b in pairs[:-1]:
            less = (~a & b) | (self._same(a, b) & less)
        negative, other = pairs[-1]
        return (negative & ~other) | (self._same(negative, other) & less)

    def _align(self, left: Bits, right: Bits) -> Iterator[tuple[Node, Node]]:
        width = max(len(left), len(right))
        return zip(self._sign_extend(left, width), self._sign_extend(right, width), strict=True)


def _without_extra_signs(bits: Bits) -> Bits:
    """Drop sign bits that repeat the bit before."""
    last = len(bits)
    while last > 1 and bits[last - 1] == bits[last - 2]:
        last -= 1
    return bits[:last]


def field_order(ground: Ground) -> list[int]:
    """Put fields next to each other that rules read and write together: those that meet in the narrowest rules first."""
    place = {field.name: index for index, field in enumerate(ground.fields)}
    weights: dict[tuple[int, int], float] = {}
    for rule in ground.rules:
        texts = [rule.condition, *(value for _, value in rule.updates)]
        indexes = sorted({place[name] for text in texts for name in names(text)} | {index for index, _ in rule.updates})
        for number, one in enumerate(indexes):
            for other in indexes[number + 1 :]:
                weights[one, other] = weights.get((one, other), 0.0) + len(indexes) ** -2.0
    groups = {index: [index] for index in range(len(ground.fields))}
    for one, other in sorted(weights, key=lambda pair: (-weights[pair], pair)):
        first, second = groups[one], groups[other]
        if first is not second:
            first.extend(second)
            groups.update(dict.fromkeys(second, first))
    return [index for start, group in groups.items() if group[0] == start for index in group]


# -- the search -------------------------------------------------------------------------------------------------------


#: All that CUDD's diagrams may take, in bytes; without CUDD, how many nodes there may be, some 300 bytes each.
MEMORY_BYTES, MAX_NODES = 2 * 2**30, 5_000_000
#: With more numbers than the first, single configurations do not fit; a field no wider than the second is not a deep counter.
_HUGE, _WIDEST, _FEWEST_FIELDS = 2**35, 64, 8


def worth_it(ground: Ground) -> bool:
    """Return whether to try this engine first: the domain is huge, and it is so by many small fields."""
    sizes = [field.size for field in ground.fields if field.size > 1]
    return ground.domain_size > _HUGE and len(sizes) >= _FEWEST_FIELDS and max(sizes) <= _WIDEST


def search(ground: Ground, watches: Sequence[GroundWatch], limits: SearchLimits) -> SearchResult:
    """Search everything that can happen. Raises ImportError without `dd`."""
    try:
        bdd_search = _BddSearch(ground, limits)
    except UndecidedError:  # at the start, before any rule is taken
        places = len(ground.system.locations)
        locations = tuple(int(place == ground.start // ground.volume) for place in range(places))
        return SearchResult("bdd", 1, 0, locations, frozenset(), (None,) * len(watches), complete=False)
    return bdd_search.run(watches)


def path(ground: Ground, goal: int, limits: SearchLimits) -> list[int] | None:
    """Return the configurations of a shortest way from the start to a configuration, both included; None when a limit was reached.

    Raises ValueError when there is no way.
    """
    try:
        return _BddSearch(ground, limits).path(goal)
    except UndecidedError:
        return None


@attrs.frozen
class Relation:
    """A rule: `enabled_set` is over the values before, `step` sets the changed fields.

    When the values set do not depend on the changed fields, `step` is over the variables of the values before (`is_simple`), else over
    those of both.
    """

    index: int
    rule: GroundRule
    enabled_set: Node
    step: Node
    written_fields: frozenset[int]
    is_simple: bool
    _circuits: Circuits
    _changed_names: frozenset[str]
    _name_map: dict[str, str]

    def image(self, before: Node) -> Node:
        """Return what follows from a set by this rule."""
        circuits, able = self._circuits, before & self.enabled_set
        if not self.written_fields or able == circuits.false:
            return able
        if self.is_simple:
            return circuits.manager.exist(self._changed_names, able) & self.step
        return circuits.manager.let(
            self._name_map, relational_product(circuits.manager, able, self.step, self._changed_names)
        )

    def before(self, number: int) -> Node:
        """Return the configurations from which this rule leads to one configuration."""
        circuits = self._circuits
        sources = circuits.cube(number, set(circuits.order) - self.written_fields) & self.enabled_set
        if not self.written_fields:
            return sources
        values = circuits.assignment(number, self.written_fields)
        if not self.is_simple:
            values = {later: values[now] for later, now in self._name_map.items()}
        return sources & circuits.manager.let(values, self.step)


def relations(circuits: Circuits, ground: Ground) -> list[list[Relation]]:
    """Return the rules of each location as relations; equal updates share one."""
    steps: dict[tuple[tuple[int, Expr], ...], tuple[Node, bool]] = {}
    relations_by_place: list[list[Relation]] = [[] for _ in ground.system.locations]
    for index, rule in enumerate(ground.rules):
        if rule.updates not in steps:
            steps[rule.updates] = _step(circuits, ground, rule)
        written_fields = frozenset(field for field, _ in rule.updates)
        pairs = [
            pair for field in written_fields for pair in zip(circuits.now[field], circuits.later[field], strict=True)
        ]
        changed_names, name_map = frozenset(now for now, _ in pairs), {later: now for now, later in pairs}
        enabled_set = circuits.truth(rule.condition)
        step, is_simple = steps[rule.updates]
        relations_by_place[rule.source].append(
            Relation(index, rule, enabled_set, step, written_fields, is_simple, circuits, changed_names, name_map)
        )
    return relations_by_place


def _step(circuits: Circuits, ground: Ground, rule: GroundRule) -> tuple[Node, bool]:
    read = {name for _, value in rule.updates for name in names(value)}
    is_simple = read.isdisjoint(ground.fields[index].name for index, _ in rule.updates)
    variables = circuits.now if is_simple else circuits.later
    return circuits.all_of(circuits.becomes(variables[index], index, value) for index, value in rule.updates), is_simple


def relational_product(manager: Any, left: Node, right: Node, variables: frozenset[str]) -> Node:  # noqa: ANN401  (dd has no types)
    """Return the conjunction of two nodes with some variables quantified away, in one pass where dd can."""
    if type(manager).__module__ != "dd.cudd":
        return manager.exist(variables, left & right)
    from dd.cudd import and_exists

    return and_exists(left, right, variables)


class Counter:
    """Counts the assignments to some variables that make nodes true, as exact whole numbers; dd's own count is a float.

    The nodes may depend on these variables alone, and the manager's order must not change meanwhile. Counts of some nodes are
    remembered from call to call.
    """

    _MOST_REMEMBERED = 200_000

    def __init__(self, circuits: Circuits) -> None:
        variables = circuits.all_now()
        self._rank = {name: rank for rank, name in enumerate(variables)}
        self._total = len(variables)
        self._counts: dict[
            int, tuple[Node, int]
        ] = {}  # the node is stored as well, so that no other node gets its number

    def count(self, node: Node) -> int:
        """Count the assignments of a node."""
        if len(self._counts) > self._MOST_REMEMBERED:
            self._counts.clear()
        todo = [self._regular(node)]
        while todo:
            here = todo[-1]
            children = [] if here.var is None else [here.low, here.high]
            missing = [child for child in map(self._regular, children) if int(child) not in self._counts]
            if missing and int(here) not in self._counts:
                todo.extend(missing)
                continue
            todo.pop()
            self._counts[int(here)] = (here, self._count_from(here))
        return self._below(node, 0)

    def _regular(self, node: Node) -> Node:
        return ~node if node.negated else node

    def _count_from(self, node: Node) -> int:
        """Count over the variables from a regular node's own on."""
        if node.var is None:
            return 1
        below = self._rank[node.var] + 1
        return self._below(node.low, below) + self._below(node.high, below)

    def _below(self, node: Node, rank: int) -> int:
        """Count over the variables from a rank on."""
        regular = self._regular(node)
        own = self._total if regular.var is None else self._rank[regular.var]
        count = self._counts[int(regular)][1]
        total = (1 << (self._total - own)) - count if node.negated else count
        return total << (own - rank)


class _BddSearch:
    def __init__(self, ground: Ground, limits: SearchLimits) -> None:
        self._ground, self._limits = ground, limits
        self._manager = _manager()
        self._circuits = Circuits(ground, self._manager, self._ask)
        with _within_memory():
            self._relations = relations(self._circuits, ground)
        self._reached_sets = self._nothing()
        self._count = Counter(self._circuits).count

    def run(self, watches: Sequence[GroundWatch]) -> SearchResult:
        hits: tuple[int | None, ...] = (None,) * len(watches)
        complete = True
        try:
            with _within_memory():
                self._saturate()
                hits = self._nearest(watches)
        except UndecidedError:
            complete = False
        return self._result(hits, complete=complete)

    def _saturate(self) -> None:
        """Take all rules until nothing is new."""
        fresh, rounds = self._start(), 0
        self._reached_sets = list(fresh)
        while self._any(fresh):
            for source in range(len(fresh)):
                before, fresh[source] = fresh[source], self._circuits.false
                if before != self._circuits.false:
                    self._leave(source, before, fresh)
            rounds += 1
            count = sum(map(self._count, self._reached_sets))
            self._limits.progress(count, rounds)
            if count > self._limits.max_states:
                raise UndecidedError("there are too many configurations")

    def _leave(self, source: int, before: Node, fresh: list[Node]) -> None:
        for relation in self._relations[source]:
            self._ask()
            target = relation.rule.target
            new = relation.image(before) & ~self._reached_sets[target]
            if new != self._circuits.false:
                self._reached_sets[target] |= new
                fresh[target] |= new
                if target == source:
                    before |= new

    def _ask(self) -> None:
        if self._limits.is_expired() or _is_crowded(self._manager):
            raise UndecidedError("the time or the memory is used up")

    def _layers(self) -> Iterator[list[Node]]:
        """Yield the sets of configurations at each distance from the start, by location."""
        layer, known_sets = self._start(), self._nothing()
        while self._any(layer):
            yield layer
            known_sets = [old | new for old, new in zip(known_sets, layer, strict=True)]
            following = self._nothing()
            for source, before in enumerate(layer):
                for relation in self._relations[source] if before != self._circuits.false else ():
                    self._ask()
                    target = relation.rule.target
                    following[target] |= relation.image(before) & ~known_sets[target]
            layer = following

    def _nothing(self) -> list[Node]:
        return [self._circuits.false] * len(self._ground.system.locations)

    def _start(self) -> list[Node]:
        layer, start = self._nothing(), self._ground.start
        layer[start // self._ground.volume] = self._circuits.cube(start)
        return layer

    def _any(self, layer: list[Node]) -> bool:
        return any(node != self._circuits.false for node in layer)

    def _nearest(self, watches: Sequence[GroundWatch]) -> tuple[int | None, ...]:
        circuits, hits = self._circuits, dict[int, int]()
        watch_nodes = [(index, watch.location, circuits.truth(watch.condition)) for index, watch in enumerate(watches)]
        open_ = [item for item in watch_nodes if self._reached_sets[item[1]] & item[2] != circuits.false]
        layers = self._layers()
        while open_:
            layer, left = next(layers), []
            for index, place, condition in open_:
                there = layer[place] & condition
                if there == circuits.false:
                    left.append((index, place, condition))
                else:
                    hits[index] = place * self._ground.volume + circuits.pick(there)
            open_ = left
        return tuple(hits.get(index) for index in range(len(watches)))

    def path(self, goal: int) -> list[int] | None:
        """See the function of this name."""
        circuits, ground = self._circuits, self._ground
        place, there = goal // ground.volume, circuits.cube(goal)
        layers: list[list[Node]] = []
        try:
            with _within_memory():
                for layer in self._layers():
                    layers.append(layer)
                    if layer[place] & there != circuits.false:
                        break
        except UndecidedError:
            return None
        if layers[-1][place] & there == circuits.false:
            raise ValueError(f"no way leads to configuration {goal}")
        way = [goal]
        for layer in layers[-2::-1]:
            way.append(self._before(way[-1], layer))
        return way[::-1]

    def _before(self, number: int, layer: list[Node]) -> int:
        place = number // self._ground.volume
        for source, here in enumerate(layer):
            for relation in self._relations[source] if here != self._circuits.false else ():
                if relation.rule.target == place:
                    there = here & relation.before(number)
                    if there != self._circuits.false:
                        return source * self._ground.volume + self._circuits.pick(there)
        raise AssertionError("a configuration of a layer has one before it")

    def _result(self, hits: tuple[int | None, ...], *, complete: bool) -> SearchResult:
        count, sets = self._count, self._reached_sets
        locations = tuple(map(count, sets))
        times = {r.index: count(sets[r.rule.source] & r.enabled_set) for here in self._relations for r in here}
        taken = frozenset(index for index, number in times.items() if number)
        return SearchResult("bdd", sum(locations), sum(times.values()), locations, taken, hits, complete)


def _manager() -> Any:  # noqa: ANN401  (dd has no types)
    """Return a manager of diagrams; its order of variables stays as it is."""
    try:
        from dd.cudd import BDD
    except ImportError:
        from dd import autoref, bdd

        class Quiet(bdd.BDD):  # type: ignore[misc]  # dd has no types
            """A manager that does not print its nodes as it is forgotten, because some are still named somewhere."""

            def __del__(self) -> None:
                """Do nothing."""

        manager = autoref.BDD()
        manager._bdd = inner = Quiet()  # noqa: SLF001  (there is no other way to give it one)
        manager.vars = inner.vars
        return manager
    manager = BDD()
    manager.configure(reordering=False, max_memory=MEMORY_BYTES)
    return manager


@contextmanager
def _within_memory() -> Iterator[None]:
    """Turn into a limit what CUDD's package raises when there is no more memory: that an operation returned no node, or failed."""
    try:
        yield
    except (ValueError, RuntimeError) as fault:
        if "NULL" in str(fault) or "failed" in str(fault):
            raise UndecidedError("the memory is used up") from fault
        raise


def _is_crowded(manager: Any) -> bool:  # noqa: ANN401  (dd has no types)
    """Return whether there are too many nodes, where the package does not see to it itself."""
    if type(manager).__module__ == "dd.cudd" or len(manager) <= MAX_NODES:
        return False
    manager.collect_garbage()
    return len(manager) > MAX_NODES // 2
