"""Proofs of `possible P` and `from everywhere possible P`: a strategy, and a rank that it makes smaller until P is true.

Takes the system that knows whether P holds. The strategy is read off shortest ways at small parameter values: the commands that come
next on them. One of them must always be enabled until P is true, for all values.
"""

from collections.abc import Iterable, Sequence

from dsa.checks.evidence import Ranked
from dsa.checks.observers import NOW, Observed
from dsa.checks.proof.induction import Lemmas, Needs, Region, Slicer, before, whole
from dsa.checks.proof.ranking import Counting, Ranking
from dsa.checks.proof.samples import Sample, Sampler
from dsa.checks.proof.session import Session
from dsa.expr import Expr, Name
from dsa.simplify import any_of, negated

_NOW = Name(NOW, "variable")
_NOT_YET = negated(_NOW)


class Reaching:
    """An attempt to prove that P can be reached: from the start alone, or from everywhere."""

    def __init__(self, session: Session, found: Observed, *, everywhere: bool) -> None:
        self._session, self._system, self._everywhere = session, found.system, everywhere
        session.logic.learn(found.system)
        self._sampler = Sampler(self._system)
        self._samples = session.samples(self._sampler)
        self._place_of_now = self._sampler.variables.index(NOW)

    def evidence(self) -> Ranked | None:
        """Give lemmas, a strategy and a rank, or None."""
        for strategy in dict.fromkeys(self._strategies()):
            found = self._shown(strategy)
            if found is not None:
                return found
        return None

    def _shown(self, strategy: frozenset[int]) -> Ranked | None:
        region, lemmas = self._kept(strategy)
        needs = Needs(Slicer(region, self._session.logic, lemmas))
        system = self._system
        open_places = frozenset(p for p in range(len(system.locations)) if not needs.impossible(p, [_NOT_YET]))
        for place in open_places:
            here = [system.commands[i].condition for i in sorted(strategy) if system.commands[i].source == place]
            if not needs.impossible(place, [_NOT_YET, negated(any_of(here))]):
                return None
        counted: dict[int, Sequence[Expr]] = {}
        following = Region(system, tuple(sorted(strategy)), _NOT_YET)
        for index in following.commands:
            command = system.commands[index]
            known = [*following.condition(index), before(command, _NOT_YET)]
            if command.source in open_places and not needs.impossible(command.source, known):
                counted[index] = known
        rank = Ranking(needs, Counting(system, counted, open_places, _NOT_YET), self._session.machine.variables).rank()
        kept = needs.lemmas() if rank is not None else None
        return None if rank is None or kept is None else Ranked(kept, rank.parts, strategy)

    def _kept(self, strategy: frozenset[int]) -> tuple[Region, Lemmas]:
        """Give what holds wherever P must be reached from: everywhere, or where the strategy leads from the start."""
        session, system = self._session, self._system
        if self._everywhere:
            region, samples = whole(system), self._samples
        else:
            region = Region(system, tuple(sorted(strategy)), _NOT_YET)
            samples = session.samples(Sampler(system, strategy, _NOT_YET))
        guessed = session.guesses(system, samples, (NOW,))
        return region, session.inductive(region, guessed, session.lemmas if self._everywhere else {})

    def _strategies(self) -> Iterable[frozenset[int]]:
        """Give sets of commands that lead to P in the samples: as few as do, then all that come next on shortest ways."""
        choices = [self._nearest(sample) for sample in self._samples]
        if not self._everywhere:
            choices = [self._from_start(sample, near) for sample, near in zip(self._samples, choices, strict=True)]
        if any(not near for near in choices):
            return
        yield self._few(choices)
        yield frozenset(command for near in choices for options in near.values() for command in options)

    def _nearest(self, sample: Sample) -> dict[int, tuple[int, ...]]:
        """Give for each configuration from which P can be reached the commands that are next on a shortest way."""
        arriving: dict[int, list[tuple[int, int]]] = {}
        for source, command, target in sample.edges:
            arriving.setdefault(target, []).append((source, command))
        distance = {i: 0 for i, (_, values) in enumerate(sample.configurations) if values[self._place_of_now] is True}
        todo = list(distance)
        options: dict[int, list[int]] = {place: [] for place in distance}
        for place in todo:  # grows while it is walked
            for source, command in arriving.get(place, ()):
                if source not in distance:
                    distance[source] = distance[place] + 1
                    options[source] = []
                    todo.append(source)
                if distance[source] == distance[place] + 1:
                    options[source].append(command)
        return {place: tuple(found) for place, found in options.items()}

    def _from_start(self, sample: Sample, near: dict[int, tuple[int, ...]]) -> dict[int, tuple[int, ...]]:
        """Give only the configurations that lie on shortest ways from the start."""
        if 0 not in near:
            return {}
        leading = {(source, command): target for source, command, target in sample.edges}
        kept, todo = {0}, [0]
        for place in todo:  # grows while it is walked
            for command in near[place]:
                target = leading[place, command]
                if target not in kept:
                    kept.add(target)
                    todo.append(target)
        return {place: near[place] for place in kept}

    def _few(self, choices: Iterable[dict[int, tuple[int, ...]]]) -> frozenset[int]:
        """Choose few commands of which one is next on a shortest way wherever P can be reached (greedy)."""
        todo = [set(options) for near in choices for options in near.values() if options]
        chosen: set[int] = set()
        while todo:
            counts: dict[int, int] = {}
            for options in todo:
                for command in options:
                    counts[command] = counts.get(command, 0) + 1
            best = max(sorted(counts), key=lambda command: counts[command])
            chosen.add(best)
            todo = [options for options in todo if best not in options]
        return frozenset(chosen)
