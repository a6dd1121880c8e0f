"""What is to happen in one seed: which triple it aims at, on which way the run comes there, what else goes wrong, what it may cost.

Takes a subject and a seed, gives a `Plan`. A seed says all of it: the same seed is the same plan, whichever others are played.
"""

import attrs

from dsa.meaning import Configuration, Occurrence
from dsa.runtime.budgets import RUN, Limit
from dsa.testing.graph import Move
from dsa.testing.simulation.chance import Chance
from dsa.testing.simulation.faults import Triple
from dsa.testing.simulation.guide import Guide
from dsa.testing.simulation.subject import Subject

#: A run goes on for so many rows beyond its way before nothing is sent to it any more.
_BEYOND = 8
#: How many further faults a seed has, and before how many boundaries they strike.
_FURTHER, _WITHIN = (0, 0, 1, 1, 2), 60
_LIMITED_PERCENT, _MOST_CALLS = 12, 6


@attrs.define
class Plan:
    """One seed's plan. `way` are the moves that lead to the row aimed at; `further` are the boundaries, counted, at which more goes wrong."""

    seed: int
    chance: Chance
    aim: Triple
    way: tuple[Move, ...]
    further: frozenset[int]
    limits: tuple[Limit, ...]
    _guide: Guide = attrs.field(repr=False)
    #: After so many rows nothing is sent to the run any more.
    longest: int = attrs.field(init=False)
    _known: dict[int, tuple[Configuration, Occurrence | None]] = attrs.field(factory=dict, repr=False)

    def __attrs_post_init__(self) -> None:
        """Work out what is asked for again and again."""
        self.longest = len(self.way) + _BEYOND

    @property
    def sends_first(self) -> bool:
        """Tell whether the run is begun with its first event, and not before it: nobody can take a run that is not there yet."""
        return not (len(self.way) == 1 and self.aim.fault in {"takeover", "damage"}) and self.chance.happens(
            80, "sends first"
        )

    def intended(self, position: int, here: Configuration) -> Occurrence | None:
        """Give what comes next where so many rows were taken: as planned, else by chance. None when nothing can come."""
        known = self._known.get(position)
        if known is None or (known[0] is not here and known[0] != here):
            known = self._known[position] = (here, self._next(position, here))
        return known[1]

    def _next(self, position: int, here: Configuration) -> Occurrence | None:
        if position < len(self.way) and self._guide.where(self.way[position]) == here:
            return self.way[position].occurrence
        move = self._guide.onwards(here, self.chance, position)
        return None if move is None else move.occurrence


def plan_of(subject: Subject, seed: int) -> Plan:
    """Give a seed's plan. As many seeds as there are triples aim at each of them once, on the cheapest way and with nothing else wrong."""
    chance = Chance(seed)
    lap, place = divmod(seed, len(subject.triples))
    aim = subject.triples[place]
    moves = subject.goals(aim)
    goal = chance.one_of(moves, "goal") if lap else moves[0]
    count = chance.one_of(_FURTHER, "further") if lap else 0
    further = frozenset(chance.below(_WITHIN, "further", number) for number in range(count))
    limits: tuple[Limit, ...] = ()
    if lap and chance.happens(_LIMITED_PERCENT, "limited"):
        effect = chance.one_of((RUN, *sorted(set(subject.emitted) & subject.machine.answers.keys())), "limited effect")
        limits = (Limit("calls", 1 + chance.below(_MOST_CALLS, "limit"), effect),)
    return Plan(seed, chance, aim, subject.guide.way(goal), further, limits, subject.guide)
