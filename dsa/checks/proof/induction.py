"""Induction: evidence for all parameter values, and the search for it.

`Inductive`, `RankEvidence` and `ExhaustiveEvidence` are values that a certificate can carry and a kernel can check. Locations and commands
are indexes into `closed_system(machine)`; observers keep both, except for `at most`, whose commands are split and which needs no indexes of
commands. All expressions are over the variables of the (observed) system and its parameters. Assumed everywhere: parameters lie in their
domains, and so do the machine's own variables and the counters (the start does, and a command is taken only where its updates do). An observer's variable is
a truth value or a whole number, and no more is assumed of it.

`Induction` takes a region of a system, a `Logic` and candidates at locations; it gives the largest inductive set of them (Houdini).
`Slicer` and `Needs` find the few lemmas that a claim needs.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence

import attrs

from dsa.checks.observers import WatchedCondition
from dsa.checks.proof.solver import Logic, SolverAnswer
from dsa.expr import TRUE, Compare, Expr, Leaf, Name, Value, disjunction, evaluate, negation, substitute, walk
from dsa.system import GuardedCommand, Promise, System, start_values


@attrs.frozen
class Lemma:
    """A condition that holds whenever a run is at a location."""

    location: int
    condition: Expr


@attrs.frozen
class Inductive:
    """Lemmas that hold at the start and are kept by every command, and imply the claim.

    Each may be assumed at its location, before a command and at a sight. The claim is that no sight of an `Observer` is
    ever true, nor at the start, or that no `SystemFault` of a kind is ever true.
    """

    lemmas: tuple[Lemma, ...] = ()


@attrs.frozen
class Fair:
    """Something a property assumes to be fair: it happens again and again when it can."""

    name: str


@attrs.frozen
class RankEvidence:
    """Lemmas as in `Inductive`, and a rank for each location: parts that are compared lexicographically, as many everywhere.

    A part is a whole number, or a condition that counts 1 when it is true and 0 when not. Where a rank counts, the lemmas imply that
    every number in it is at least 0.

    For `leads to` (the observed system's variable OBLIGATION is true while Q is owed) a rank counts where OBLIGATION is
    true. There must be a promise there (S12), unless something `Fair` is expected. Every command from OBLIGATION to
    OBLIGATION makes the rank smaller, or keeps it equal, has the same `expectations` (not None) at both ends and does
    not end it: a promise is not in the command's `endings`; something `Fair` does not happen at the command's moment, and
    wherever it is expected and OBLIGATION is true some command at whose moment it happens is enabled.

    For `from everywhere possible` (NOW is true while P holds) a rank counts where NOW is false. There, some command of `strategy` is
    enabled, and every command of it that is enabled makes the rank smaller or NOW true.

    `possible P` is shown on the observed system of `from everywhere possible P`, and its lemmas need to be kept only by
    the commands of `strategy` taken where NOW is false: they describe where the strategy leads from the start.

    `strategy` has indexes of commands. `expectations` has one entry for each location, or none at all.
    """

    lemmas: tuple[Lemma, ...]
    ranks: tuple[tuple[Expr, ...], ...]
    strategy: frozenset[int] = frozenset()
    expectations: tuple[Promise | Fair | None, ...] = ()


@attrs.frozen
class ExhaustiveEvidence:
    """All values the parameters may have, being few, each explored to the end; without parameters it is one empty valuation."""

    valuations: tuple[tuple[tuple[str, Value], ...], ...]
    configurations: int


Evidence = Inductive | RankEvidence | ExhaustiveEvidence


#: Of more lemmas than this, none is left out again.
_MOST_TRIED = 12

Lemmas = Mapping[int, Sequence[Expr]]
#: Returns whether the time is over.
Deadline = Callable[[], bool]


def before(command: GuardedCommand, condition: Expr) -> Expr:
    """Return what must be true before a command for a condition to be true after it."""
    if not command.updates:
        return condition

    def leaf(node: Leaf) -> Expr:
        return command.after.get(node.name, node) if isinstance(node, Name) and node.kind == "variable" else node

    return substitute(condition, leaf)


@attrs.frozen
class Region:
    """What is to be kept: the commands that count, and the condition under which they do."""

    system: System
    commands: tuple[int, ...]
    while_true: Expr = TRUE

    def condition(self, index: int) -> list[Expr]:
        """Return the condition that a command is taken and counts."""
        command = self.system.commands[index]
        parts = [command.enabled_when, command.safe, *map(negation, command.rivals), self.while_true]
        return [part for part in parts if part != TRUE]


def whole(system: System) -> Region:
    """Return everything that can happen."""
    return Region(system, tuple(range(len(system.commands))))


class Induction:
    """Candidates at the locations of a region, of which those that are not inductive are dropped."""

    def __init__(self, region: Region, logic: Logic, lemmas: Lemmas, is_expired: Deadline = lambda: False) -> None:
        self._region, self._logic, self._is_expired = region, logic, is_expired
        self._system = region.system
        #: What was shown before, and need not be shown again.
        self._lemmas = lemmas

    def largest(self, candidates: Lemmas) -> dict[int, tuple[Expr, ...]] | None:
        """Return the largest inductive subset of the candidates; None when time ran out or z3 gave up."""
        system = self._system
        alive = {place: list(dict.fromkeys(conditions)) for place, conditions in candidates.items()}
        initial = start_values(system)
        alive[0] = [c for c in alive.get(0, []) if self._logic.ask([negation(at_start(c, initial))]).can_be == "no"]
        todo = deque(self._region.commands)
        in_queue = set(todo)
        commands_from: dict[int, list[int]] = {}
        for index in self._region.commands:
            commands_from.setdefault(system.commands[index].source, []).append(index)
        while todo:
            index = todo.popleft()
            in_queue.discard(index)
            if self._is_expired():
                return None
            target = system.commands[index].target
            if self._filter_candidates(index, alive):
                for other in commands_from.get(target, ()):
                    if other not in in_queue:
                        in_queue.add(other)
                        todo.append(other)
        return {place: tuple(_plainest(conditions)) for place, conditions in alive.items() if conditions}

    def _filter_candidates(self, index: int, alive: dict[int, list[Expr]]) -> bool:
        """Drop the candidates at a command's target that it does not keep; return whether any was dropped."""
        command = self._system.commands[index]
        here = [*self._lemmas.get(command.source, ()), *alive.get(command.source, ())]
        facts = set(here)
        goals = {c: before(command, c) for c in alive.get(command.target, [])}
        goals = {c: after for c, after in goals.items() if after != TRUE and after not in facts}
        is_changed = False
        while goals:
            base = [*self._region.condition(index), *here]
            answer = self._logic.ask([*base, disjunction([negation(after) for after in goals.values()])])
            failures = set() if answer.can_be == "no" else self._broken_candidates(answer, goals, base)
            if not failures:
                break
            is_changed = True
            alive[command.target] = [c for c in alive[command.target] if c not in failures]
            goals = {c: after for c, after in goals.items() if c not in failures}
            if command.source == command.target:
                here = [c for c in here if c not in failures]
        return is_changed

    def _broken_candidates(self, answer: SolverAnswer, goals: Mapping[Expr, Expr], base: Sequence[Expr]) -> set[Expr]:
        """Return the candidates that a command breaks; where z3 gives up, those that cannot be shown one by one."""
        if answer.can_be == "yes":
            failures = {c for c, after in goals.items() if evaluate(after, answer.values) is not True}
            if failures:
                return failures
        return {c for c, after in goals.items() if self._logic.ask([*base, negation(after)]).can_be != "no"}


def _plainest(lemmas: Sequence[Expr]) -> list[Expr]:
    """Leave out the bounds that an equality implies."""
    consequences: set[Expr] = set()
    for lemma in lemmas:
        if isinstance(lemma, Compare) and lemma.rest[0][0] == "==":
            left, right = lemma.first, lemma.rest[0][1]
            consequences |= {
                Compare(a, ((sign, b),)) for a, b in ((left, right), (right, left)) for sign in ("<=", ">=")
            }
    return [lemma for lemma in lemmas if lemma not in consequences]


def at_start(condition: Expr, initial: Mapping[str, Expr]) -> Expr:
    """Return a condition at the start, over parameters."""

    def leaf(node: Leaf) -> Expr:
        return initial[node.name] if isinstance(node, Name) and node.kind == "variable" else node

    return substitute(condition, leaf)


def unseen(logic: Logic, lemmas: Lemmas, sight: WatchedCondition) -> SolverAnswer:
    """Return whether a sight can be true where the lemmas are."""
    return logic.ask([sight.condition, *lemmas.get(sight.location, ())])


class Slicer:
    """Of an inductive set of lemmas, finds the few that a claim needs, and what these need in turn.

    The questions come in the same order in every process: what z3 answers depends on what it was asked before.
    """

    def __init__(self, region: Region, logic: Logic, lemmas: Lemmas) -> None:
        self._region, self._logic, self._lemmas = region, logic, lemmas
        self._needs: dict[Lemma, tuple[Lemma, ...]] = {}
        self._commands_into: dict[int, list[int]] = {}
        for index in region.commands:
            self._commands_into.setdefault(region.system.commands[index].target, []).append(index)

    def closure(self, first: Iterable[Lemma]) -> tuple[Lemma, ...] | None:
        """Return lemmas together with all that their induction needs; None when z3 gives up on one."""
        closed_set: dict[Lemma, None] = {}
        todo = list(first)
        while todo:
            lemma = todo.pop()
            if lemma not in closed_set:
                closed_set[lemma] = None
                needs = self._needed_by(lemma)
                if needs is None:
                    return None
                todo += needs
        return tuple(sorted(closed_set, key=lambda lemma: (lemma.location, str(lemma.condition))))

    def used_lemmas(self, location: int, conditions: Sequence[Expr]) -> tuple[Lemma, ...] | None:
        """Return the lemmas at a location without which the conditions could be true; None when they can be, or when that is not known."""
        here = list(self._lemmas.get(location, ()))
        if self._logic.ask(conditions).can_be == "no":
            return ()
        answer = self._logic.ask([*conditions, *here], track=True)
        if answer.can_be != "no":
            return None
        core = [here[i - len(conditions)] for i in sorted(answer.core) if i >= len(conditions)]
        return tuple(Lemma(location, condition) for condition in self._fewest(conditions, core))

    def _fewest(self, conditions: Sequence[Expr], lemmas: list[Expr]) -> list[Expr]:
        """Leave out lemmas that are not needed, the longest first."""
        if 1 < len(lemmas) <= _MOST_TRIED:
            for lemma in sorted(lemmas, key=lambda lemma: -sum(1 for _ in walk(lemma))):
                rest = [other for other in lemmas if other != lemma]
                if self._logic.ask([*conditions, *rest]).can_be == "no":
                    lemmas = rest
        return lemmas

    def _needed_by(self, lemma: Lemma) -> tuple[Lemma, ...] | None:
        if lemma not in self._needs:
            lemmas: dict[Lemma, None] = {}
            for index in self._commands_into.get(lemma.location, ()):
                command = self._region.system.commands[index]
                goal = before(command, lemma.condition)
                if goal == TRUE:
                    continue
                here = Lemma(command.source, goal)
                if goal in self._lemmas.get(command.source, ()):
                    lemmas[here] = None
                    continue
                used_lemmas = self.used_lemmas(command.source, [*self._region.condition(index), negation(goal)])
                if used_lemmas is None:
                    return None
                lemmas |= dict.fromkeys(used_lemmas)
            self._needs[lemma] = tuple(lemmas)
        return self._needs[lemma]


class Needs:
    """The lemmas that a proof needs, collected while it is made."""

    def __init__(self, slicer: Slicer) -> None:
        self._slicer = slicer
        self._used_lemmas: dict[Lemma, None] = {}

    def impossible(self, location: int, conditions: Sequence[Expr]) -> bool:
        """Return whether conditions at a location are shown never to be true together."""
        used_lemmas = self._slicer.used_lemmas(location, conditions)
        if used_lemmas is None:
            return False
        self._used_lemmas |= dict.fromkeys(used_lemmas)
        return True

    def lemmas(self) -> tuple[Lemma, ...] | None:
        """Return the lemmas needed, and what they need; None when z3 gives up on one."""
        return self._slicer.closure(self._used_lemmas)


def by_location(lemmas: Iterable[Lemma]) -> dict[int, tuple[Expr, ...]]:
    """Sort lemmas by where they hold."""
    conditions: dict[int, tuple[Expr, ...]] = {}
    for lemma in lemmas:
        if lemma.condition != TRUE:
            conditions[lemma.location] = (*conditions.get(lemma.location, ()), lemma.condition)
    return conditions
