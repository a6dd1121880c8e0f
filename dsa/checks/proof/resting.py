"""Proofs that every run comes to rest when nothing comes from outside: its retry loops end.

Takes a session, gives a rank that every step makes smaller which no event from outside takes. Not every machine owes this (one that
polls by a timer goes on for ever), so it is told where it is so.
"""

from dsa.checks.evidence import Ranked
from dsa.checks.proof.induction import Needs, whole
from dsa.checks.proof.ranking import Counting, Ranking
from dsa.checks.proof.session import Session
from dsa.declarations import OUTSIDE
from dsa.expr import TRUE
from dsa.system import Command, System


def comes_to_rest(session: Session) -> Ranked | None:
    """Give lemmas and a rank, or None."""
    system, region, needs = session.system, whole(session.system), Needs(session.slicer)
    counted = {
        index: region.condition(index)
        for index, command in enumerate(system.commands)
        if not from_outside(system, command) and not needs.impossible(command.source, region.condition(index))
    }
    places = frozenset(range(len(system.locations)))
    rank = Ranking(needs, Counting(system, counted, places, TRUE), session.machine.variables).rank()
    lemmas = None if rank is None else needs.lemmas()
    return None if rank is None or lemmas is None else Ranked(lemmas, rank.parts)


def from_outside(system: System, command: Command) -> bool:
    """Tell whether a command is taken on an event from outside."""
    event = system.machine.event_named.get(command.occurrence.event)
    return command.occurrence.source is None and event is not None and event.origin == OUTSIDE
