"""Do two machines do the same from where they are, for ever; and if not, by what shortest trace are they told apart?

Takes a `Pair` of machines at their parameters' values; gives a `Comparison`. As long as nothing tells them apart both stand in the same
configuration, so this explores the configurations of one machine and asks at each: what may come, what is asked of guards, what
is taken or refused, with which effects in which order, which timers start, where it leads.
"""

from collections.abc import Iterator
from typing import Literal

import attrs

from dsa.checks.differ_moves import Came, Moves, TooManyVerdictsError, way_to
from dsa.checks.differ_pairs import Both, Pair, Reaction
from dsa.checks.engines.found import Limits
from dsa.expr import Outcome
from dsa.meaning import Configuration, Occurrence, Refusal, Taken

Verdict = Literal["EQUAL", "DIFFERENT", "UNKNOWN"]
#: Once in so many configurations a search looks at the clock.
EVERY = 256


@attrs.frozen
class Parting:
    """Where two machines part: the `way` that both take alike, what comes then, and what each makes of it.

    `occurrence` is None when they are not in the same configuration to begin with.
    """

    way: tuple[Occurrence, ...]
    occurrence: Occurrence | None
    old: Reaction
    new: Reaction


@attrs.frozen
class Comparison:
    """EQUAL: in all `configurations` there are; DIFFERENT, by a shortest parting; UNKNOWN: a limit was met first, which `limit` names."""

    verdict: Verdict
    configurations: int
    parting: Parting | None = None
    limit: str = ""


def compare(pair: Pair, here: Both, limits: Limits) -> Comparison:
    """Compare two machines from where they are."""
    apart = pair.apart(here)
    if apart is not None:
        old, new = (Reaction(one, said=said) for one, said in zip(here, apart, strict=True))
        return Comparison("DIFFERENT", 1, Parting((), None, old, new))
    search = _Search(pair, here)
    try:
        return search.run(limits)
    except TooManyVerdictsError as fault:
        return Comparison("UNKNOWN", len(search.order), limit=str(fault))


class _Search:
    """A breadth-first search that ends where the machines part."""

    def __init__(self, pair: Pair, here: Both) -> None:
        self._pair = pair
        self.order = [here]
        self._came: Came[Both] = {here: None}

    def run(self, limits: Limits) -> Comparison:
        for count, here in enumerate(self.order):  # grows while it is walked
            if stopped := met(limits, count, len(self.order)):
                return Comparison("UNKNOWN", len(self.order), limit=stopped)
            parting = self._parting(here)
            if parting is not None:
                return Comparison("DIFFERENT", len(self.order), parting)
        return Comparison("EQUAL", len(self.order))

    def _parting(self, here: Both) -> Parting | None:
        """Try all that may come, and note where it leads; give the first that tells the machines apart."""
        pair, plan = self._pair, self._pair.plan(here)
        if plan.apart is not None:
            way, words = plan.apart
            return Parting(way_to(self._came, here), _fuller(way.old, way.new), *pair.reactions(here, way, words))
        for way in plan.ways:
            same, there = pair.tried(here, way)
            if not same:
                return Parting(way_to(self._came, here), _fuller(way.old, way.new), *pair.reactions(here, way))
            if there is not None and there not in self._came:
                self._came[there] = (here, way.old)
                self.order.append(there)
        return None


def _fuller(old: Occurrence, new: Occurrence) -> Occurrence:
    """Give the occurrence of the machine that asks for verdicts."""
    return old if old.verdicts else new


def met(limits: Limits, count: int, found: int) -> str:
    """Name the limit that a search has met after so many configurations of those found; empty when there is none."""
    if found > limits.max_states:
        return f"the limit of {limits.max_states} configurations"
    if count % EVERY == 0:
        limits.progress(found, 0)
        if limits.expired():
            return "the time limit"
    return ""


# -- what can go wrong ------------------------------------------------------------------------------------------------
# A fault is what `check` calls an error at a configuration that can be reached: an answer or a timer that no row takes, an event on which two
# rows are enabled, an update that leaves its domain, an effect emitted twice, or nothing that can go on before the end (S3, S5, S7, S11).


Verdicts = tuple[tuple[str, Outcome], ...]


@attrs.frozen
class Trouble:
    """A fault, and a shortest way to it: what is refused there, or, without an occurrence, that nothing goes on."""

    way: tuple[Occurrence, ...]
    here: Configuration
    occurrence: Occurrence | None = None
    refusal: Refusal | None = None

    @property
    def verdicts(self) -> Verdicts:
        """What the guards said."""
        return () if self.occurrence is None else self.occurrence.verdicts


@attrs.frozen
class Prospect:
    """What the new machine may come to: a trouble that the old one cannot come to, or none; `limit` when it cannot be said which."""

    trouble: Trouble | None = None
    limit: str = ""


def prospect(pair: Pair, here: Both, limits: Limits) -> Prospect:
    """Look for a fault to which the new machine can come from where it is, and the old one cannot.

    It is the same fault when state, values of the variables that both have, and what is outstanding are the same there, and the same
    thing is refused for the same reason, whatever is said by guards that only one of them asks.
    """
    troubles, known, doubt = _Troubles(pair.new, here[1], limits), None, ""
    for trouble in troubles:
        known = known or _Known(pair, here[0], limits)
        if not known.has(trouble):
            if not known.limit:
                return Prospect(trouble)
            doubt = known.limit
    return Prospect(limit=troubles.limit or doubt)


class _Known:
    """The faults of the old machine."""

    def __init__(self, pair: Pair, here: Configuration, limits: Limits) -> None:
        self._pair = pair
        #: By what makes a fault the same, but verdicts: for each configuration the verdicts on which it is refused.
        self._refused: dict[object, dict[Configuration, set[Verdicts]]] = {}
        troubles = _Troubles(pair.old, here, limits)
        for trouble in troubles:
            found = self._refused.setdefault(self._key(trouble, of_new=False), {}).setdefault(trouble.here, set())
            found.add(trouble.verdicts)
        self.limit = troubles.limit

    def has(self, trouble: Trouble) -> bool:
        """Tell whether a fault of the new machine is one of the old machine too."""
        found = self._refused.get(self._key(trouble, of_new=True), {})
        said = dict(trouble.verdicts)
        ways = [
            way for way in self._ways(trouble) if all(said.get(guard, outcome) == outcome for guard, outcome in way)
        ]
        return bool(ways) and any(refused.issuperset(ways) for refused in found.values())

    def _ways(self, trouble: Trouble) -> tuple[Verdicts, ...]:
        """Give the verdicts with which the same thing may come to the old machine where the fault is."""
        if trouble.occurrence is None:
            return ((),)
        key = (trouble.occurrence.event, trouble.occurrence.source)
        coming = self._pair.old.coming(trouble.here).get(key)  # which looks at no values
        return () if coming is None else tuple(way.verdicts for way in self._pair.old.ways(key, coming.guards))

    def _key(self, trouble: Trouble, *, of_new: bool) -> object:
        here, occurrence, refusal = trouble.here, trouble.occurrence, trouble.refusal
        what = None if occurrence is None or refusal is None else (occurrence.event, occurrence.source, refusal.reason)
        return here.state, here.outstanding, self._pair.shared(here, of_new=of_new), what


class _Troubles:
    """All faults of a machine from where it is, the nearest first; afterwards `limit` names what ended the search before its end."""

    def __init__(self, moves: Moves, here: Configuration, limits: Limits) -> None:
        self._moves, self._here, self._limits = moves, here, limits
        self._came: Came[Configuration] = {here: None}
        self.limit = ""

    def __iter__(self) -> Iterator[Trouble]:
        order = [self._here]
        for count, here in enumerate(order):  # grows while it is walked
            self.limit = met(self._limits, count, len(order))
            if self.limit:
                return
            try:
                yield from self._at(here, order)
            except TooManyVerdictsError as fault:
                self.limit = str(fault)
                return

    def _at(self, here: Configuration, order: list[Configuration]) -> Iterator[Trouble]:
        moves, is_stuck = self._moves, not (self._moves.is_over(here) or here.outstanding)
        for key, coming in moves.coming(here).items():
            is_stuck = is_stuck and not coming.must_be_taken
            for occurrence in moves.ways(key, coming.guards):
                outcome = moves.react(here, occurrence)
                if isinstance(outcome, Taken):
                    is_stuck = False
                    there = outcome.configuration
                    if there not in self._came:
                        self._came[there] = (here, occurrence)
                        order.append(there)
                elif outcome is not None and (coming.must_be_taken or outcome.reason != "invalid_state"):
                    yield Trouble(way_to(self._came, here), here, occurrence, outcome)
        if is_stuck:
            yield Trouble(way_to(self._came, here), here)
