"""When something goes wrong: at the triple that a seed aims at, and at a few more boundaries that it draws.

Is asked at every boundary that a run passes, gives a fault or none; keeps what has struck. It makes no fault itself.
"""

from collections import Counter
from collections.abc import Sequence

from dsa.testing.simulation.chance import Chance
from dsa.testing.simulation.faults import FITTING, Boundary, Fault, Triple
from dsa.testing.simulation.plan import Plan
from dsa.testing.simulation.store import Stage

#: The boundaries that have several stages, and where in them a fault may strike; others may at every stage.
_STAGED: tuple[Boundary, ...] = ("recovering", "releasing")
#: The boundaries that only a run passes that is taken up.
_RECOVERING: tuple[Boundary, ...] = ("recovering", "after hold", "after resumed")
_STAGE_OF: dict[Fault, Stage] = {"damage": "before", "write fails": "before", "sync fails": "unsynced"}
_STAGES: tuple[Stage, ...] = ("before", "unsynced", "durable")


class Strikes:
    """The faults of one story. `struck` are those that came, in order; `hits` the triples among them."""

    def __init__(self, plan: Plan) -> None:
        self._aim, self._chance, self._further = plan.aim, plan.chance, plan.further
        self._stage = _STAGE_OF.get(plan.aim.fault) or plan.chance.one_of(_STAGES, "stage")
        self._has_struck = self._was_cut = False
        self._visits = 0
        self.struck: list[Fault] = []
        self.hits: Counter[Triple] = Counter()

    @property
    def chance(self) -> Chance:
        """The draws of this seed."""
        return self._chance

    def is_calm(self, row: int | None) -> bool:
        """Tell whether nothing will go wrong while an effect of a row is under way."""
        aim = self._aim
        return not self._further and (self._has_struck or aim.boundary != "performing" or aim.row != row)

    def due(self, boundary: Boundary, row: int | None, stage: Stage = "before") -> Fault | None:
        """Give what goes wrong at a boundary of a row. Who makes it go wrong says so with `came`."""
        self._visits += 1
        aim = self._aim
        if not self._has_struck and row == aim.row:
            if boundary == aim.boundary and (boundary not in _STAGED or stage == self._stage):
                return aim.fault
            if boundary == "durable" and aim.boundary in _RECOVERING and not self._was_cut:
                self._was_cut = True
                return "kill"  # so that there is something to recover from
        if self._visits not in self._further:
            return None
        fitting = [fault for fault in FITTING[boundary] if boundary not in _STAGED or _fits(fault, stage)]
        return self._chance.one_of(fitting, "further", self._visits)

    def passes(self, passing: Sequence[tuple[object, int | None]]) -> bool:
        """Pass the boundaries of an append, given with their rows, at all stages; only where nothing is due, and tell whether that is so."""
        first, last = self._visits, self._visits + len(_STAGES) * len(passing)
        if not self._has_struck:
            for _, row in passing:
                if row == self._aim.row:
                    return False
        for visit in self._further:
            if first < visit <= last:
                return False
        self._visits = last
        return True

    def came(self, boundary: Boundary, row: int | None, fault: Fault) -> None:
        """Take note that a fault has struck."""
        self.struck.append(fault)
        if row is not None:
            hit = Triple(row, boundary, fault)
            self.hits[hit] += 1
            self._has_struck = self._has_struck or hit == self._aim


def _fits(fault: Fault, stage: Stage) -> bool:
    return _STAGE_OF.get(fault, stage) == stage
