"""What all proofs about one machine share: its system, the solver, examples, and the lemmas about the machine itself.

Takes a machine, gives a `ProofSession`. Examples and lemmas are made when they are first needed.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property

from dsa.checks.observers import observed
from dsa.checks.proof.induction import Induction, Lemmas, Region, Slicer, whole
from dsa.checks.proof.lemma_candidates import EXAMPLES, Sample, Sampler, candidates, table, valuations
from dsa.checks.proof.solver import Logic
from dsa.checks.table_faults import start_outside
from dsa.declarations import Always, Never
from dsa.expr import FALSE, Expr, Value, negation
from dsa.machine import FEW_VALUATIONS, Machine, every_valuation
from dsa.semantics import Occurrence
from dsa.system import System, closed_system, in_domain, start_values
from dsa.trace import Trace, follow

#: A valuation that is explored to look for a violation, or to the end, has at most so many configurations.
MOST_EXPLORED = 100_000


class ProofSession:
    """One machine being proved."""

    def __init__(self, machine: Machine, expired: Callable[[], bool]) -> None:
        self.machine, self.expired = machine, expired
        self.system: System = closed_system(machine, expired)
        self.logic = Logic(self.system, expired)
        looked_at = tuple(valuations(machine))
        self.valuations = tuple(values for values in looked_at if self._can_start(values)) or looked_at[:1]

    def samples(self, sampler: Sampler, most: int = EXAMPLES) -> tuple[Sample, ...]:
        """Walk about at small parameter values, the smallest first."""
        return tuple(sampler.sample(values, most, self.expired) for values in self.valuations)

    @cached_property
    def few_valuations(self) -> tuple[dict[str, Value], ...] | None:
        """All values that the parameters may have, when these are few and the smallest can be explored to the end."""
        found = every_valuation(self.machine, FEW_VALUATIONS)
        if found is not None and not all(map(self._can_start, found)):
            return None
        if found is None or self.own_samples[0].complete:
            return found
        whole_one = self.sampler.sample(found[0], MOST_EXPLORED, self.expired)
        return found if whole_one.complete else None

    def _can_start(self, values: dict[str, Value]) -> bool:
        """Return whether every variable starts in its domain at these values; where one does not, there is no run to look at."""
        return not start_outside(self.machine.at(values))

    @cached_property
    def legal_start(self) -> tuple[Expr, ...]:
        """That every variable starts in its domain, over parameters: a claim is about runs, and else there are none."""
        starts = start_values(self.system)
        return tuple(in_domain(variable, starts[variable.name]) for variable in self.machine.variables)

    @cached_property
    def sampler(self) -> Sampler:
        """The machine's own system, compiled."""
        return Sampler(self.system)

    @cached_property
    def own_samples(self) -> tuple[Sample, ...]:
        """Examples of the machine's own system."""
        return self.samples(self.sampler)

    @cached_property
    def lemmas(self) -> Lemmas:
        """What is known of the machine's own variables at each location, beyond their domains; what its document claims is tried too."""
        guessed = self.guesses(self.system, self.own_samples)
        for fault in self.system.faults:
            guessed[fault.location].append(negation(fault.condition))
        for claim in self.machine.properties:
            if isinstance(claim.form, Always | Never):
                for sight in observed(self.system, claim.form).sights:
                    guessed[sight.location].append(negation(sight.condition))
        return self.inductive(whole(self.system), guessed, {})

    def guesses(self, system: System, samples: Iterable[Sample], split: Sequence[str] = ()) -> dict[int, list[Expr]]:
        """Return candidates for each location, read off examples."""
        rows: list[list[tuple[int, tuple[Value, ...], tuple[Value, ...]]]] = [[] for _ in system.locations]
        for group, sample in enumerate(samples):
            for location, values in sample.configurations:
                rows[location].append((group, sample.parameters, values))
        return {place: candidates(table(self.machine, system.variables, met), split) for place, met in enumerate(rows)}

    def inductive(self, region: Region, guessed: Lemmas, known: Lemmas) -> Lemmas:
        """Return what is inductive of the candidates, together with what is known already."""
        found = Induction(region, self.logic, known, self.expired).largest(guessed) or {}
        places = sorted({*found, *known})
        return {
            place: tuple(dict.fromkeys([*known.get(place, ()), *found.get(place, ())]))
            for place in places
            if FALSE not in found.get(place, ())
        } | {place: (FALSE,) for place, here in found.items() if FALSE in here}

    @cached_property
    def slicer(self) -> Slicer:
        """Of the lemmas about the machine itself, finds those that a claim needs."""
        return Slicer(whole(self.system), self.logic, self.lemmas)

    def follow(self, sample: Sample, occurrences: Iterable[Occurrence]) -> Trace:
        """Return what happens as a trace, at a sample's parameter values."""
        names = (parameter.name for parameter in self.machine.parameters)
        return follow(self.machine.at(dict(zip(names, sample.parameters, strict=True))), occurrences)
