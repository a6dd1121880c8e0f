"""Everything `dsa check` finds out about one machine, as one frozen value.

Takes a machine, and a clock when time matters; gives a `Report`. Reads no files and prints nothing.
"""

from collections.abc import Mapping
from typing import Literal

import attrs

from dsa.checks.definition4 import definition4
from dsa.checks.explore import MAX_STATES, Clock, Exploration, explore
from dsa.checks.graph import dead_ends, vain_effects
from dsa.checks.reached import from_explorations, start_outside
from dsa.checks.scenarios import ScenarioResult, from_scenarios, run_scenarios
from dsa.checks.unused import unused
from dsa.claims import Property
from dsa.errors import Diagnostic
from dsa.expr import Value
from dsa.machine import Machine, minima

PropertyVerdict = Literal["PROVED", "HOLDS", "VIOLATED", "NOT INDUCTIVE", "UNKNOWN"]
#: Said wherever a property's verdict is shown.
NOT_JUDGED = "properties are read and their types checked; this version does not judge them yet"


@attrs.frozen
class PropertyResult:
    """A property as written, its line, and its verdict; UNKNOWN for all of them in this version."""

    text: str
    line: int
    verdict: PropertyVerdict = "UNKNOWN"
    reason: str = NOT_JUDGED


@attrs.frozen
class Report:
    """What one run of the checks found.

    `diagnostics` are sorted: causes first, then by line and code. `assumptions` are sentences: what was taken for granted (S7).
    """

    name: str
    explorations: tuple[Exploration, ...]
    diagnostics: tuple[Diagnostic, ...]
    properties: tuple[PropertyResult, ...]
    scenarios: tuple[ScenarioResult, ...]
    assumptions: tuple[str, ...] = ()
    strict: bool = False

    @property
    def failed(self) -> bool:
        """Tell whether there is an error, or, when the check is strict, a warning."""
        fatal = {"error", "warning"} if self.strict else {"error"}
        return any(diagnostic.severity in fatal for diagnostic in self.diagnostics)


def check(
    machine: Machine,
    *,
    parameters: Mapping[str, Value] | None = None,
    strict: bool = False,
    max_states: int = MAX_STATES,
    time_limit_s: float | None = None,
    clock: Clock | None = None,
) -> Report:
    """Check a machine: structure, exploration, Definition 4, scenarios.

    Explores at all defaults and at all minima of the parameters, or at `parameters` alone when given. The limits hold for each
    exploration; `time_limit_s` needs a `clock`. Raises ParameterError for an unknown parameter or a value outside its domain.
    """
    outside: tuple[Diagnostic, ...] = ()
    explorations: list[Exploration] = []
    for there in _valuations(machine, parameters):
        wrong = start_outside(there)
        outside += wrong
        if not wrong:
            explorations.append(explore(there, max_states=max_states, time_limit_s=time_limit_s, clock=clock))
    results = run_scenarios(machine)
    found = [*outside, *dead_ends(machine), *vain_effects(machine), *definition4(machine), *unused(machine)]
    if explorations:
        found += from_explorations(explorations, given=parameters is not None)
    found += from_scenarios(machine, results)
    judged = tuple(PropertyResult(_text(claim), claim.span.line if claim.span else 0) for claim in machine.properties)
    return Report(machine.name, tuple(explorations), _sorted(found), judged, results, _assumptions(machine), strict)


def _assumptions(machine: Machine) -> tuple[str, ...]:
    """Say of which effects nobody handles the failure: the run stops there, and can be resumed (S7)."""
    unhandled = [effect for effect in machine.answers if effect not in machine.failures_handled]
    rows = " or ".join(f"{effect}.failed" for effect in unhandled)
    return (
        (f"no row is for {rows}: such a failure stops the run where it is, with its ledger kept",) if unhandled else ()
    )


def _valuations(machine: Machine, parameters: Mapping[str, Value] | None) -> tuple[Machine, ...]:
    """Give the machine at the parameter values that a run explores."""
    if parameters is not None:
        return (machine.at(parameters),)
    smallest = machine.at(minima(machine))
    return (machine,) if smallest == machine else (machine, smallest)


def _sorted(found: list[Diagnostic]) -> tuple[Diagnostic, ...]:
    """Sort by place; of a dead end, keep what explains it: unreachable, or else without a way out."""
    ends = {f.span for f in found if f.code == "DSA303"}
    lost = {f.span for f in found if f.code == "DSA301"}
    kept = [
        f for f in found if not (f.code == "DSA308" and f.span in ends) and not (f.code == "DSA303" and f.span in lost)
    ]
    return tuple(sorted(kept, key=lambda f: (*_rank(f), f.span.path, f.span.line, f.code, f.span.column, f.message)))


def _rank(finding: Diagnostic) -> tuple[int, bool]:
    """Put causes before what may only follow from them: states and rows not reached, deadlocks, scenarios."""
    severity = ("error", "warning", "info").index(finding.severity)
    return severity, finding.code in {"DSA301", "DSA302", "DSA308", "DSA310"}


def _text(claim: Property) -> str:
    """Give a property as it stands in the document."""
    span = claim.span
    return span.text[span.column - 1 : span.end - 1] if span else str(claim.form)
