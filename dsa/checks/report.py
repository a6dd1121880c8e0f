"""Everything `dsa check` finds out about one machine, as one frozen value.

Takes a machine, and a clock when time matters; gives a `Report`. Reads no files and prints nothing.
"""

from collections.abc import Mapping, Sequence

import attrs

from dsa.checks.engines.found import Engine, Limits, Progress
from dsa.checks.explore import MAX_STATES, Clock, Exploration, explored, limits_until
from dsa.checks.missing_data import missing_data
from dsa.checks.properties import Questions
from dsa.checks.reached import from_explorations
from dsa.checks.reliance import reliance
from dsa.checks.scenarios import ScenarioResult, from_scenarios, run_scenarios
from dsa.checks.table_faults import row_findings, start_outside
from dsa.checks.verdicts import Judged, PropertyResult, combined, from_judged, judged_at
from dsa.errors import Diagnostic, ParameterError
from dsa.expr import Value
from dsa.machine import FEW_VALUATIONS, Machine, every_valuation, minima
from dsa.system import System, closed_system
from dsa.uses import Use


@attrs.frozen
class Report:
    """What one run of the checks found.

    `diagnostics` are sorted: causes first, then by line and code. `properties` are in the document's order. `rests` are the leaves in which a run may stay
    with nothing outstanding, no timer armed, and not final, as far as was explored.
    """

    name: str
    explorations: tuple[Exploration, ...]
    diagnostics: tuple[Diagnostic, ...]
    properties: tuple[PropertyResult, ...]
    scenarios: tuple[ScenarioResult, ...]
    rests: tuple[str, ...] = ()
    strict: bool = False

    @property
    def failed(self) -> bool:
        """Tell whether there is an error, or, when the check is strict, a warning, or a property that does not hold."""
        fatal = {"error", "warning"} if self.strict else {"error"}
        wrong = any(diagnostic.severity in fatal for diagnostic in self.diagnostics)
        return wrong or any(result.failed for result in self.properties)


def check(
    machine: Machine,
    *,
    parameters: Mapping[str, Value] | None = None,
    each_value: bool = False,
    strict: bool = False,
    max_states: int = MAX_STATES,
    time_limit_s: float | None = None,
    clock: Clock | None = None,
    progress: Progress | None = None,
    engine: Engine | None = None,
    traces: int = 1,
) -> Report:
    """Check a machine: structure, exploration, Definition 4, scenarios, properties.

    Explores at all defaults and at all minima of the parameters, or at `parameters` alone when given; with `each_value` at every combination of values, those of `parameters` fixed (ParameterError
    when there are more than `FEW_VALUATIONS`). `max_states` holds for each search, `time_limit_s` (which needs a `clock`) for all of it together. With more than one of `traces`, a violated property has
    up to so many counterexamples. Raises ParameterError for an unknown parameter or a value outside its domain.
    """
    outside, missing = tuple[Diagnostic, ...](), dict[Use, Diagnostic]()
    found_at: list[tuple[Exploration, Judged]] = []
    look = _Look(limits_until(max_states, time_limit_s, clock, progress), clock, engine, traces)
    system = closed_system(machine, look.limits.expired)
    for there in _valuations(machine, parameters, each_value=each_value):
        outside += (wrong := start_outside(there))
        if not wrong:
            here = attrs.evolve(system, machine=there)
            found_at.append(look.at(here))
            missing = look.missing_data(here) | missing
    explorations, judged = tuple(e for e, _ in found_at), tuple(j for _, j in found_at)
    results = run_scenarios(machine)
    found = [*outside, *row_findings(machine), *missing.values()]
    if explorations:
        found += from_explorations(explorations, given=parameters is not None and not each_value)
    found += [*from_scenarios(machine, results), *from_judged(machine, judged)]
    properties = combined(machine, judged, found)
    found += reliance(machine, properties, judged)
    rests = _rests(machine, explorations)
    return Report(machine.name, explorations, _sorted(found), properties, results, rests, strict)


@attrs.frozen
class _Look:
    """How to look at a system: until when, with what, and how many counterexamples to show."""

    limits: Limits
    clock: Clock | None
    engine: Engine | None
    traces: int

    def at(self, system: System) -> tuple[Exploration, Judged]:
        """Explore a system at its machine's parameter values, and judge the machine's properties."""
        questions = Questions(system, [claim.form for claim in system.machine.properties])
        exploration = explored(system, self.limits, clock=self.clock, engine=self.engine, also=questions.conditions)
        return exploration, judged_at(questions, exploration, self.limits, traces=self.traces, engine=self.engine)

    def missing_data(self, system: System) -> dict[Use, Diagnostic]:
        """Look for data that may be missing when it is read."""
        return missing_data(system, self.limits, self.engine)


def _rests(machine: Machine, explorations: Sequence[Exploration]) -> tuple[str, ...]:
    """Give the leaves in which nothing is under way, in the order of the states."""
    found = {leaf for exploration in explorations for leaf in exploration.rests}
    return tuple(leaf for leaf in machine.leaves if leaf in found)


def _valuations(machine: Machine, parameters: Mapping[str, Value] | None, *, each_value: bool) -> tuple[Machine, ...]:
    """Give the machine at the parameter values that a run explores."""
    if each_value:
        usual = machine.at(parameters or {})
        every = every_valuation(usual, FEW_VALUATIONS, parameters)
        if every is None:
            many = f"the parameters have more than {FEW_VALUATIONS} combinations of values"
            raise ParameterError(f"{many}: give some of them one (--param), or ask for a proof for all (dsa prove)")
        others = (machine.at(values) for values in every if values != usual.constants)
        return (usual, *others)  # what is asked at one value alone is asked at the usual ones
    if parameters is not None:
        return (machine.at(parameters),)
    smallest = machine.at(minima(machine))
    return (machine,) if smallest == machine else (machine, smallest)


def _sorted(found: list[Diagnostic]) -> tuple[Diagnostic, ...]:
    """Sort by place; of a dead end, keep what explains it: unreachable, or else without a way out."""
    ends = {f.span for f in found if f.code == "DSA303"}
    lost = {f.span for f in found if f.code == "DSA301"}
    explained = {"DSA308": ends, "DSA303": lost}
    kept = [f for f in found if f.span not in explained.get(f.code, ())]
    return tuple(sorted(kept, key=lambda f: (*_rank(f), f.span.path, f.span.line, f.code, f.span.column, f.message)))


def _rank(finding: Diagnostic) -> tuple[int, bool]:
    """Put causes before what may only follow from them: states and rows not reached, deadlocks, scenarios."""
    severity = ("error", "warning", "info").index(finding.severity)
    return severity, finding.code in {"DSA301", "DSA302", "DSA308", "DSA310"}
