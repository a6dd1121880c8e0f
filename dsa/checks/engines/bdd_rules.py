"""Rules as relations between sets of configurations, and how many configurations a set has.

Takes circuits (`bdd_bits.py`), gives images: what follows from a set by one rule. A relation speaks of the changed fields alone.
"""

from typing import Any

import attrs

from dsa.checks.engines.bdd_bits import Circuits, Node
from dsa.expr import Expr, names
from dsa.ground import Ground, Rule


@attrs.frozen
class Relation:
    """A rule: `enabled` is over the values before, `step` sets the changed fields.

    When the values set do not depend on the changed fields, `step` is over the variables of the values before (`is_simple`), else over
    those of both.
    """

    index: int
    rule: Rule
    enabled: Node
    step: Node
    written: frozenset[int]
    is_simple: bool
    _circuits: Circuits
    _changed: frozenset[str]
    _renamed: dict[str, str]

    def image(self, before: Node) -> Node:
        """Give what follows from a set by this rule."""
        circuits, able = self._circuits, before & self.enabled
        if not self.written or able == circuits.false:
            return able
        if self.is_simple:
            return circuits.manager.exist(self._changed, able) & self.step
        return circuits.manager.let(self._renamed, joined(circuits.manager, able, self.step, self._changed))

    def before(self, number: int) -> Node:
        """Give the configurations from which this rule leads to one configuration."""
        circuits = self._circuits
        kept = circuits.cube(number, set(circuits.order) - self.written) & self.enabled
        if not self.written:
            return kept
        values = circuits.assignment(number, self.written)
        if not self.is_simple:
            values = {later: values[now] for later, now in self._renamed.items()}
        return kept & circuits.manager.let(values, self.step)


def relations(circuits: Circuits, ground: Ground) -> list[list[Relation]]:
    """Give the rules of each location as relations; equal updates share one."""
    steps: dict[tuple[tuple[int, Expr], ...], tuple[Node, bool]] = {}
    found: list[list[Relation]] = [[] for _ in ground.system.locations]
    for index, rule in enumerate(ground.rules):
        if rule.updates not in steps:
            steps[rule.updates] = _step(circuits, ground, rule)
        written = frozenset(field for field, _ in rule.updates)
        pairs = [pair for field in written for pair in zip(circuits.now[field], circuits.later[field], strict=True)]
        changed, renamed = frozenset(now for now, _ in pairs), {later: now for now, later in pairs}
        enabled = circuits.truth(rule.condition)
        step, is_simple = steps[rule.updates]
        found[rule.source].append(Relation(index, rule, enabled, step, written, is_simple, circuits, changed, renamed))
    return found


def _step(circuits: Circuits, ground: Ground, rule: Rule) -> tuple[Node, bool]:
    read = {name for _, value in rule.updates for name in names(value)}
    is_simple = read.isdisjoint(ground.fields[index].name for index, _ in rule.updates)
    variables = circuits.now if is_simple else circuits.later
    return circuits.all_of(circuits.becomes(variables[index], index, value) for index, value in rule.updates), is_simple


def joined(manager: Any, left: Node, right: Node, variables: frozenset[str]) -> Node:  # noqa: ANN401  (dd has no types)
    """Give what two nodes have in common, whatever the values of some variables; in one pass where dd can."""
    if type(manager).__module__ != "dd.cudd":
        return manager.exist(variables, left & right)
    from dd.cudd import and_exists

    return and_exists(left, right, variables)


class Counter:
    """How many assignments to some variables make nodes true, as exact whole numbers; dd's own count is a float.

    The nodes may depend on these variables alone, and the manager's order must not change meanwhile. Counts of some nodes are
    remembered from call to call.
    """

    _MOST_REMEMBERED = 200_000

    def __init__(self, circuits: Circuits) -> None:
        variables = circuits.all_now()
        self._rank = {name: rank for rank, name in enumerate(variables)}
        self._total = len(variables)
        self._known: dict[int, tuple[Node, int]] = {}  # the node is kept, so that its number stays its own

    def count(self, node: Node) -> int:
        """Count the assignments of a node."""
        if len(self._known) > self._MOST_REMEMBERED:
            self._known.clear()
        todo = [self._regular(node)]
        while todo:
            here = todo[-1]
            children = [] if here.var is None else [here.low, here.high]
            missing = [child for child in map(self._regular, children) if int(child) not in self._known]
            if missing and int(here) not in self._known:
                todo.extend(missing)
                continue
            todo.pop()
            self._known[int(here)] = (here, self._counted(here))
        return self._below(node, 0)

    def _regular(self, node: Node) -> Node:
        return ~node if node.negated else node

    def _counted(self, node: Node) -> int:
        """Count over the variables from a regular node's own on."""
        if node.var is None:
            return 1
        below = self._rank[node.var] + 1
        return self._below(node.low, below) + self._below(node.high, below)

    def _below(self, node: Node, rank: int) -> int:
        """Count over the variables from a rank on."""
        regular = self._regular(node)
        own = self._total if regular.var is None else self._rank[regular.var]
        count = self._known[int(regular)][1]
        counted = (1 << (self._total - own)) - count if node.negated else count
        return counted << (own - rank)
