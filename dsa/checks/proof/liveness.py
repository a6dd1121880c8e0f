"""Proofs of `P leads to Q`: lemmas, and a rank that every step makes smaller while Q is owed.

Takes the system that remembers whether Q is owed. A run owes Q for ever when it rests where nothing is promised, or takes steps
for ever. The first must not be possible; in the second the rank would fall without end, or something awaited would never come, which S12
or the property's fairness rules out.
"""

from collections.abc import Sequence

from dsa.checks.evidence import Fair, Ranked
from dsa.checks.observers import WAITING, Observed
from dsa.checks.proof.induction import Needs, Region, Slicer, before, whole
from dsa.checks.proof.ranking import Awaited, Counting, Rank, Ranking
from dsa.checks.proof.samples import Sampler
from dsa.checks.proof.session import Session
from dsa.claims import LeadsTo
from dsa.expr import Expr, Name
from dsa.simplify import any_of, negated
from dsa.system import Command

_OWED = Name(WAITING, "variable")


class Owing:
    """An attempt to prove that nothing is owed for ever."""

    def __init__(self, session: Session, form: LeadsTo, found: Observed) -> None:
        self._session, self._fair, self._system = session, form.fair, found.system
        session.logic.learn(found.system)
        guessed = session.guesses(self._system, session.samples(Sampler(self._system)), (WAITING,))
        region = whole(self._system)
        lemmas = session.inductive(region, guessed, session.lemmas)
        self._region = Region(self._system, region.commands, _OWED)
        self._needs = Needs(Slicer(region, session.logic, lemmas))

    def evidence(self) -> Ranked | None:
        """Give lemmas and a rank, or None."""
        system = self._system
        places = range(len(system.locations))
        owed = frozenset(place for place in places if not self._needs.impossible(place, [_OWED]))
        if not all(self._goes_on(place) for place in owed):
            return None
        staying: dict[int, Sequence[Expr]] = {}
        for index, command in enumerate(system.commands):
            known = [*self._region.condition(index), before(command, _OWED)]
            if command.source in owed and not self._needs.impossible(command.source, known):
                staying[index] = known
        counting = Counting(system, staying, owed, _OWED)
        rank = Ranking(self._needs, counting, self._session.machine.variables, self._awaitable).rank()
        return None if rank is None else self._ranked(rank, owed)

    def _ranked(self, rank: Rank, owed: frozenset[int]) -> Ranked | None:
        awaited = list(rank.awaited)
        for place in owed:
            if self._system.may_rest(place) and awaited[place] is None:
                awaited[place] = next(Fair(name) for name in self._fair if self._always(place, name))
        lemmas = self._needs.lemmas()
        given = tuple(awaited) if any(item is not None for item in awaited) else ()
        return None if lemmas is None else Ranked(lemmas, rank.parts, awaited=given)

    def _goes_on(self, place: int) -> bool:
        """Tell whether a run cannot rest at a location while Q is owed."""
        return not self._system.may_rest(place) or any(self._always(place, name) for name in self._fair)

    def _always(self, place: int, name: str) -> bool:
        """Tell whether something fair is always possible at a location while Q is owed."""
        leaving = [command.condition for command in self._system.commands_at[place] if happens_with(name, command)]
        return bool(leaving) and self._needs.impossible(place, [_OWED, negated(any_of(leaving))])

    def _awaitable(self, places: frozenset[int], inner: Sequence[int]) -> Awaited | None:
        """Give what ends a loop although no number falls in it: a promise that it never keeps, or something fair it never does."""
        commands: list[Command] = [self._system.commands[index] for index in inner]
        promised = frozenset.intersection(*(self._system.promises(place) for place in places))
        kept = sorted(promised.difference(*(command.ended for command in commands)), key=str)
        if kept:
            return kept[0]
        for name in self._fair:
            never = not any(happens_with(name, command) for command in commands)
            if never and all(self._always(place, name) for place in places):
                return Fair(name)
        return None


def happens_with(name: str, command: Command) -> bool:
    """Tell whether an event or an effect happens when a command is taken."""
    return name == command.occurrence.event or name in command.effects
