"""What a proof for all parameter values rests on, as values that a certificate can carry and a kernel can check.

Locations and commands are indexes into `closed_system(machine)`; observers keep both, but for `at most`, whose commands are split and
which needs no indexes of commands. All expressions are over the variables of the (observed) system and its parameters. Assumed
everywhere: parameters lie in their domains, and so do the machine's own variables (the start does, and a command is taken only
where its updates do). An observer's variable is a truth value or a whole number, and no more is assumed of it.

Induction: which of many candidates hold at every configuration, and which of them a claim needs.

Takes a system, a `Logic` and candidates at locations; gives the largest set of them that is inductive (Houdini), and for a claim that it implies
the few that matter.
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

    Each may be assumed at its location, before a command and at a sight. The claim is that no sight is ever true and that
    the start is none (`Observed`), or that no fault of a kind is ever true (`Fault`).
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

    For `leads to` (the observed system's variable WAITING says that Q is owed) a rank counts where WAITING is true. There must be
    a promise there (S12), unless something `Fair` is awaited. Every command from WAITING to WAITING makes the rank smaller, or keeps it equal, has the
    same `awaited` (not None) at both ends and does not end it: a promise is not in the command's `endings`; something `Fair` does not
    happen at the command's moment, and wherever it is awaited and WAITING is true some command at whose moment it happens is enabled.

    For `from everywhere possible` (NOW says that P holds) a rank counts where NOW is false. There, some command of `strategy` is
    enabled, and every command of it that is enabled makes the rank smaller or NOW true.

    `possible P` is shown on the observed system of `from everywhere possible P`, and its lemmas need to be kept only by
    the commands of `strategy` taken where NOW is false: they say where the strategy leads from the start.

    `strategy` has indexes of commands. `awaited` has one entry for each location, or none at all.
    """

    lemmas: tuple[Lemma, ...]
    ranks: tuple[tuple[Expr, ...], ...]
    strategy: frozenset[int] = frozenset()
    awaited: tuple[Promise | Fair | None, ...] = ()


@attrs.frozen
class ExhaustiveEvidence:
    """All values the parameters may have, being few, each explored to the end; without parameters it is one empty valuation."""

    valuations: tuple[tuple[tuple[str, Value], ...], ...]
    configurations: int


Evidence = Inductive | RankEvidence | ExhaustiveEvidence


#: Of more lemmas than this, none is left out again.
_MOST_TRIED = 12

Lemmas = Mapping[int, Sequence[Expr]]
#: Tells that no time is left.
Expired = Callable[[], bool]


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
        """Return when a command is taken and counts."""
        command = self.system.commands[index]
        parts = [command.enabled_when, command.safe, *map(negation, command.rivals), self.while_true]
        return [part for part in parts if part != TRUE]


def whole(system: System) -> Region:
    """Return everything that can happen."""
    return Region(system, tuple(range(len(system.commands))))


class Induction:
    """Candidates at the locations of a region, of which those that are not inductive are dropped."""

    def __init__(self, region: Region, logic: Logic, known: Lemmas, expired: Expired = lambda: False) -> None:
        self._region, self._logic, self._expired = region, logic, expired
        self._system = region.system
        #: What was shown before, and need not be shown again.
        self._known = known

    def largest(self, guessed: Lemmas) -> dict[int, tuple[Expr, ...]] | None:
        """Return the largest inductive subset of the candidates; None when time ran out or z3 gave up."""
        system = self._system
        alive = {place: list(dict.fromkeys(found)) for place, found in guessed.items()}
        initial = start_values(system)
        alive[0] = [c for c in alive.get(0, []) if self._logic.ask([negation(at_start(c, initial))]).can_be == "no"]
        todo = deque(self._region.commands)
        waiting = set(todo)
        leaving: dict[int, list[int]] = {}
        for index in self._region.commands:
            leaving.setdefault(system.commands[index].source, []).append(index)
        while todo:
            index = todo.popleft()
            waiting.discard(index)
            if self._expired():
                return None
            target = system.commands[index].target
            if self._filtered(index, alive):
                for other in leaving.get(target, ()):
                    if other not in waiting:
                        waiting.add(other)
                        todo.append(other)
        return {place: tuple(_plainest(found)) for place, found in alive.items() if found}

    def _filtered(self, index: int, alive: dict[int, list[Expr]]) -> bool:
        """Drop the candidates at a command's target that it does not keep; tell whether any was."""
        command = self._system.commands[index]
        here = [*self._known.get(command.source, ()), *alive.get(command.source, ())]
        assumed = set(here)
        wanted = {c: before(command, c) for c in alive.get(command.target, [])}
        wanted = {c: after for c, after in wanted.items() if after != TRUE and after not in assumed}
        dropped = False
        while wanted:
            base = [*self._region.condition(index), *here]
            answer = self._logic.ask([*base, disjunction([negation(after) for after in wanted.values()])])
            broken = set() if answer.can_be == "no" else self._broken(answer, wanted, base)
            if not broken:
                break
            dropped = True
            alive[command.target] = [c for c in alive[command.target] if c not in broken]
            wanted = {c: after for c, after in wanted.items() if c not in broken}
            if command.source == command.target:
                here = [c for c in here if c not in broken]
        return dropped

    def _broken(self, answer: SolverAnswer, wanted: Mapping[Expr, Expr], base: Sequence[Expr]) -> set[Expr]:
        """Return the candidates that a command breaks; where z3 gives up, those that cannot be shown one by one."""
        if answer.can_be == "yes":
            found = {c for c, after in wanted.items() if evaluate(after, answer.values) is not True}
            if found:
                return found
        return {c for c, after in wanted.items() if self._logic.ask([*base, negation(after)]).can_be != "no"}


def _plainest(found: Sequence[Expr]) -> list[Expr]:
    """Leave out the bounds that an equality says already."""
    said: set[Expr] = set()
    for lemma in found:
        if isinstance(lemma, Compare) and lemma.rest[0][0] == "==":
            left, right = lemma.first, lemma.rest[0][1]
            said |= {Compare(a, ((sign, b),)) for a, b in ((left, right), (right, left)) for sign in ("<=", ">=")}
    return [lemma for lemma in found if lemma not in said]


def at_start(condition: Expr, initial: Mapping[str, Expr]) -> Expr:
    """Return what a condition says of the start, over parameters."""

    def leaf(node: Leaf) -> Expr:
        return initial[node.name] if isinstance(node, Name) and node.kind == "variable" else node

    return substitute(condition, leaf)


def unseen(logic: Logic, lemmas: Lemmas, sight: WatchedCondition) -> SolverAnswer:
    """Ask whether a sight can be true where the lemmas are."""
    return logic.ask([sight.condition, *lemmas.get(sight.location, ())])


class Slicer:
    """Of an inductive set of lemmas, finds the few that a claim needs, and what these need in turn."""

    def __init__(self, region: Region, logic: Logic, lemmas: Lemmas) -> None:
        self._region, self._logic, self._lemmas = region, logic, lemmas
        self._needs: dict[Lemma, frozenset[Lemma]] = {}
        self._arriving: dict[int, list[int]] = {}
        for index in region.commands:
            self._arriving.setdefault(region.system.commands[index].target, []).append(index)

    def closed(self, first: Iterable[Lemma]) -> tuple[Lemma, ...] | None:
        """Return lemmas together with all that their induction needs; None when z3 gives up on one."""
        kept: dict[Lemma, None] = {}
        todo = list(first)
        while todo:
            lemma = todo.pop()
            if lemma not in kept:
                kept[lemma] = None
                needs = self._needed_by(lemma)
                if needs is None:
                    return None
                todo += needs
        return tuple(sorted(kept, key=lambda lemma: (lemma.location, str(lemma.condition))))

    def used(self, location: int, conditions: Sequence[Expr]) -> frozenset[Lemma] | None:
        """Return the lemmas at a location without which the conditions could be true; None when they can be, or nobody knows."""
        here = list(self._lemmas.get(location, ()))
        if self._logic.ask(conditions).can_be == "no":
            return frozenset()
        answer = self._logic.ask([*conditions, *here], track=True)
        if answer.can_be != "no":
            return None
        found = [here[i - len(conditions)] for i in sorted(answer.used) if i >= len(conditions)]
        return frozenset(Lemma(location, condition) for condition in self._fewest(conditions, found))

    def _fewest(self, conditions: Sequence[Expr], found: list[Expr]) -> list[Expr]:
        """Leave out what is not needed after all, the longest first."""
        if 1 < len(found) <= _MOST_TRIED:
            for lemma in sorted(found, key=lambda lemma: -sum(1 for _ in walk(lemma))):
                rest = [other for other in found if other != lemma]
                if self._logic.ask([*conditions, *rest]).can_be == "no":
                    found = rest
        return found

    def _needed_by(self, lemma: Lemma) -> frozenset[Lemma] | None:
        if lemma not in self._needs:
            found: set[Lemma] = set()
            for index in self._arriving.get(lemma.location, ()):
                command = self._region.system.commands[index]
                goal = before(command, lemma.condition)
                if goal == TRUE:
                    continue
                here = Lemma(command.source, goal)
                if goal in self._lemmas.get(command.source, ()):
                    found.add(here)
                    continue
                used = self.used(command.source, [*self._region.condition(index), negation(goal)])
                if used is None:
                    return None
                found |= used
            self._needs[lemma] = frozenset(found)
        return self._needs[lemma]


class Needs:
    """The lemmas that a proof turned out to need, collected while it is made."""

    def __init__(self, slicer: Slicer) -> None:
        self._slicer = slicer
        self._found: set[Lemma] = set()

    def impossible(self, location: int, conditions: Sequence[Expr]) -> bool:
        """Return whether conditions at a location are shown never to be true together."""
        used = self._slicer.used(location, conditions)
        if used is None:
            return False
        self._found |= used
        return True

    def lemmas(self) -> tuple[Lemma, ...] | None:
        """Return the lemmas needed, and what they need; None when z3 gives up on one."""
        return self._slicer.closed(self._found)


def by_location(lemmas: Iterable[Lemma]) -> dict[int, tuple[Expr, ...]]:
    """Sort lemmas by where they hold."""
    found: dict[int, tuple[Expr, ...]] = {}
    for lemma in lemmas:
        if lemma.condition != TRUE:
            found[lemma.location] = (*found.get(lemma.location, ()), lemma.condition)
    return found
