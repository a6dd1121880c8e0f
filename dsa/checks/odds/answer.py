"""Everything `dsa odds` answers about one machine, as one frozen value.

Takes a machine, assumptions, and recorded runs when there are any; reads no files and prints nothing.
"""

from typing import Unpack

import attrs

from dsa.checks.odds.estimate import Estimate, estimate, estimator
from dsa.checks.odds.order import Order, cheapest_order
from dsa.checks.odds.reckon import Given, Question, Reckoning, question
from dsa.checks.odds.recorded import Recorded
from dsa.checks.odds.target import Needed, smallest, varied
from dsa.machine import Machine


@attrs.frozen
class OddsAnswer:
    """The odds, and what was asked beside them.

    With recorded runs the odds are those at the rates seen, and `estimate` has the bounds; `needed` is then over the lower bound
    of success, `needed_at_point` at the rates seen. `order` is None where there are no numbers to order by, a sentence where
    no order is looked for.
    """

    asked: Question
    reckoning: Reckoning
    order: Order | str | None
    target: float | None = None
    needed: Needed | None = None
    estimate: Estimate | None = None
    needed_at_point: Needed | None = None

    @property
    def failed(self) -> bool:
        """Tell whether something is unknown, or a target missed: by the bound, where there is one."""
        if self.reckoning.unknown or (self.needed is not None and self.needed.answer != "reached"):
            return True
        if self.estimate is None:
            return False
        short = self.target is not None and self.estimate.lower < self.target
        return short or any(test.is_broken for test in self.estimate.independence)


def odds_answer(
    machine: Machine,
    *,
    target: float | None = None,
    vary: str | None = None,
    seen: Recorded | None = None,
    confidence: float = 0.95,
    **given: Unpack[Given],
) -> OddsAnswer:
    """Answer everything at once; the arguments are those of `odds` and of `estimator`. Raises OddsError."""
    if seen is not None:
        this = estimator(machine, seen, confidence=confidence, **given)
        found = estimate(this, seen, target=target)
        asked, bounded = this.point(), this.bounded()
    else:
        found = None
        asked = bounded = question(machine, **given)
    what = None if target is None else varied(machine, vary)
    reckoning = asked.at()
    return OddsAnswer(
        asked,
        reckoning,
        cheapest_order(asked) if reckoning.known else None,
        target,
        None if what is None or target is None else smallest(bounded, target, what),
        found,
        None if what is None or target is None or found is None else smallest(asked, target, what),
    )
