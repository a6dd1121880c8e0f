"""What came of one attempt to prove something."""

import attrs

from dsa.checks.evidence import Evidence
from dsa.checks.properties import PropertyVerdict
from dsa.trace import Trace


@attrs.frozen
class Finding:
    """A verdict, what it rests on in words, and the evidence or the trace behind it.

    `how` says how it was proved, where it is broken, or why it is not known. PROVED has evidence, VIOLATED a trace (a shortest one at
    the values it shows). `assumptions` are the promises and the fairness that a proof uses.
    """

    verdict: PropertyVerdict
    how: str
    evidence: Evidence | None = None
    trace: Trace | None = None
    assumptions: tuple[str, ...] = ()


def unknown(why: str) -> Finding:
    """Give the verdict UNKNOWN, with the reason."""
    return Finding("UNKNOWN", why)
