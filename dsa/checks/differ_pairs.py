"""Two machines side by side in one configuration: what stands otherwise, what may come to either, and what each makes of it.

Takes two machines at their parameters' values. Variables that only one of them has are its own affair: they take part in what it does, and
are not compared. An event from outside that one has not heard of counts as one that it has no row for.
"""

from collections.abc import Iterator

import attrs

from dsa.checks.differ_moves import Coming, Key, Moves, Timers, occurrences
from dsa.declarations import Variable
from dsa.durations import spelled_like
from dsa.expr import OUTCOMES, BooleanDomain, EnumDomain, Value, show_value
from dsa.machine import Machine
from dsa.meaning import Configuration, Occurrence, Refusal, Taken, start
from dsa.timers import Precedence

#: Where both machines are: the configurations of the old one and of the new one.
Both = tuple[Configuration, Configuration]
#: What is to be said of the old machine and of the new one.
Words = tuple[str, str]


@attrs.frozen
class Reaction:
    """What one machine makes of something, from where it was: the row it takes, or its refusal; or `said`, where words must do.

    `started` are the timers that the row starts from zero, `ends` tells that the run is finished after it.
    """

    here: Configuration
    outcome: Taken | Refusal | None = None
    said: str = ""
    started: Timers = frozenset()
    ends: bool = False


@attrs.frozen
class Way:
    """One way in which something may come, as either machine is told of it.

    `is_strange`: one of them has no row for it, and need not have heard of it.
    """

    old: Occurrence
    new: Occurrence
    is_strange: bool = False


@attrs.frozen
class Plan:
    """All that may come to either machine; `apart` is something that tells them apart by coming, or by what is asked, with words for each."""

    ways: tuple[Way, ...]
    apart: tuple[Way, Words] | None = None


class Pair:
    """Two machines, the old one and the new one, whose timers are spelled alike."""

    def __init__(self, old: Machine, new: Machine) -> None:
        new = spelled_like(new, old)
        self.old, self.new = Moves(old), Moves(new)
        places = {variable.name: place for place, variable in enumerate(new.variables)}
        #: The places of each variable that both have.
        self._places = tuple((place, places[v.name]) for place, v in enumerate(old.variables) if v.name in places)
        in_order = all(place == there for place, there in self._places)
        self._is_in_order = in_order and len(old.variables) == len(new.variables) == len(self._places)
        self._retyped = next(
            ((old.variables[o], new.variables[n]) for o, n in self._places if _kind(old.variables[o]) != _kind(new.variables[n])),
            None,
        )  # fmt: skip
        #: The leaves in which a run may be finished for one of them alone.
        self._finality = (old.final_states ^ new.final_states) | {
            leaf for leaf in old.ends.keys() | new.ends.keys() if old.ends.get(leaf) != new.ends.get(leaf)
        }
        self._plans: dict[tuple[str, frozenset[str], Precedence, Precedence], Plan] = {}

    @property
    def start(self) -> Both:
        """Where both begin."""
        return start(self.old.machine), start(self.new.machine)

    # -- where they stand ---------------------------------------------------------------------------------------

    def shared(self, configuration: Configuration, *, of_new: bool) -> tuple[Value, ...]:
        """Give the values of the variables that both machines have, in the old one's order."""
        return tuple(configuration.values[pair[of_new]] for pair in self._places)

    def are_alike(self, here: Both) -> bool:
        """Tell whether both are in the same configuration: state, what is outstanding, values; and both at their end, or neither.

        The order of timers is no part of it: it shows in what may come next.
        """
        old, new = here
        if self._is_in_order:
            same = (old.state, old.outstanding, old.values) == (new.state, new.outstanding, new.values)
            return same and self._retyped is None and not self._is_over_for_one(here)
        return self.apart(here) is None

    def _is_over_for_one(self, here: Both) -> bool:
        old, new = here
        return old.state in self._finality and self.old.is_over(old) != self.new.is_over(new)

    def apart(self, here: Both) -> Words | None:
        """Say what is not the same where both are; None when all is."""
        old, new = here
        if old.state != new.state:
            return f"in {old.state}", f"in {new.state}"
        if self._is_over_for_one(here):
            kind = "an end" if old.state in self.old.machine.ends.keys() | self.new.machine.ends.keys() else "final"
            words = f"{old.state} is not {kind}", f"{old.state} is {kind}"
            return words[self.old.is_over(old)], words[self.new.is_over(new)]
        if old.outstanding != new.outstanding:
            return _waiting(old), _waiting(new)
        if self._retyped is not None:
            one, other = self._retyped
            return f"{one.name} is {_kind(one)}", f"{other.name} is {_kind(other)}"
        for place, there in self._places:
            if old.values[place] != new.values[there]:
                name = self.old.machine.variables[place].name
                return (f"{name} = {show_value(old.values[place])}", f"{name} = {show_value(new.values[there])}")
        return None

    # -- what may come there ------------------------------------------------------------------------------------

    def plan(self, here: Both) -> Plan:
        """Give what may come where both are alike. Raises TooManyVerdictsError."""
        place = (here[0].state, here[0].outstanding, here[0].precedence, here[1].precedence)
        if place not in self._plans:
            mine, theirs = self.old.coming(here[0]), self.new.coming(here[1])
            found = [self._ways(key, mine.get(key), theirs.get(key)) for key in dict.fromkeys([*mine, *theirs])]
            apart = next((plan.apart for plan in found if plan.apart is not None), None)
            self._plans[place] = Plan(tuple(way for plan in found for way in plan.ways), apart)
        return self._plans[place]

    def _ways(self, key: Key, mine: Coming | None, theirs: Coming | None) -> Plan:
        """Give the ways in which one thing may come to either."""
        there = [coming for coming in (mine, theirs) if coming is not None]
        asking = [coming for coming in there if coming.has_rows]
        guards = asking[0].guards if asking else ()
        ways = tuple(self._told(key, guards, mine, theirs))
        if len(there) == 1 and there[0].must_be_taken:
            said = self._missing(key)
            return Plan((), (ways[0], ("", said) if theirs is None else (said, "")))
        if len(asking) > 1 and asking[0].guards != asking[1].guards:
            unsaid = Occurrence(key[0], (), key[1])
            return Plan((), (Way(unsaid, unsaid), (_asks(asking[0]), _asks(asking[1]))))
        return Plan(ways)

    def _told(self, key: Key, guards: tuple[str, ...], mine: Coming | None, theirs: Coming | None) -> Iterator[Way]:
        """Give each combination of what the guards can say in either machine; a machine without rows for it is told of no verdicts."""
        declared = (self.old.machine.guard_named, self.new.machine.guard_named)
        said = [
            tuple(o for o in OUTCOMES if any(guard in each and o in each[guard].outcomes for each in declared))
            for guard in guards
        ]
        silent = Occurrence(key[0], (), key[1])
        has_rows = [coming is not None and coming.has_rows for coming in (mine, theirs)]
        for occurrence in occurrences(key, guards, said):
            old, new = (occurrence if rows else silent for rows in has_rows)
            yield Way(old, new, is_strange=mine is None or theirs is None)

    def _missing(self, key: Key) -> str:
        """Say why an answer or a timer of one machine cannot come to the other."""
        event, source = key
        if source is not None:
            return f"the timer {event} of {source} is not armed"
        effect = event.removesuffix(".failed")
        if effect != event and effect in self.old.machine.answers and effect in self.new.machine.answers:
            return f"no row names {event}: then the run stops, and can be resumed"
        return f"{event} is no answer of what is outstanding"

    # -- what they make of it -----------------------------------------------------------------------------------

    def reactions(self, here: Both, way: Way, words: Words = ("", "")) -> tuple[Reaction, Reaction]:
        """Give what each makes of something, for telling it; `words` are said in place of what is not empty there."""
        old = self._reaction(self.old, here[0], way.old, words[0])
        return old, self._reaction(self.new, here[1], way.new, words[1])

    def _reaction(self, moves: Moves, here: Configuration, occurrence: Occurrence, words: str) -> Reaction:
        outcome = None if words else moves.react(here, occurrence)
        if isinstance(outcome, Taken):
            is_final = moves.is_over(outcome.configuration)
            return Reaction(here, outcome, "", moves.started(here.state, outcome), is_final)
        return Reaction(here, outcome, words if outcome is not None else words or "means nothing to it")

    def tried(self, here: Both, way: Way) -> tuple[bool, Both | None]:
        """Tell whether both make the same of something, and where that leads; None when nothing is taken."""
        old, new = self.old.react(here[0], way.old), self.new.react(here[1], way.new)
        if isinstance(old, Taken) and isinstance(new, Taken):
            same = old.effects == new.effects and old.cancelled == new.cancelled and self._alike_after(here, old, new)
            return same, (old.configuration, new.configuration)
        if isinstance(old, Taken) or isinstance(new, Taken):
            return False, None
        unknown = "invalid_state" if way.is_strange else ""
        return (old.reason if old else unknown) == (new.reason if new else unknown), None

    def _alike_after(self, here: Both, old: Taken, new: Taken) -> bool:
        started = self.old.started(here[0].state, old) == self.new.started(here[1].state, new)
        return started and self.are_alike((old.configuration, new.configuration))


def _kind(variable: Variable) -> str:
    if isinstance(variable.domain, BooleanDomain):
        return "a truth value"
    return "a name" if isinstance(variable.domain, EnumDomain) else "a number"


def _waiting(here: Configuration) -> str:
    return f"outstanding: {', '.join(sorted(here.outstanding)) or 'nothing'}"


def _asks(coming: Coming) -> str:
    return f"asks {', '.join(coming.guards)}" if coming.guards else "asks no guard"
