"""Proof sessions: what all proofs about one machine share, which is its system, the solver, examples, and the lemmas about the machine itself.

Takes a machine, gives a `ProofSession`. Examples and lemmas are made when they are first needed.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property

from dsa.checks.observers import observer_of
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

#: The most configurations of a valuation that is explored to look for a violation, or to the end.
MOST_EXPLORED = 100_000


class ProofSession:
    """One machine being proved."""

    def __init__(self, machine: Machine, is_expired: Callable[[], bool]) -> None:
        self.machine, self.is_expired = machine, is_expired
        self.system: System = closed_system(machine, is_expired)
        self.logic = Logic(self.system, is_expired)
        every_valuation_tried = tuple(valuations(machine))
        self.valuations = (
            tuple(values for values in every_valuation_tried if self._can_start(values)) or every_valuation_tried[:1]
        )

    def samples(self, sampler: Sampler, most: int = EXAMPLES) -> tuple[Sample, ...]:
        """Explore at small parameter values, the smallest first."""
        return tuple(sampler.sample(values, most, self.is_expired) for values in self.valuations)

    @cached_property
    def few_valuations(self) -> tuple[dict[str, Value], ...] | None:
        """All values that the parameters may have, when these are few and the smallest can be explored to the end."""
        few = every_valuation(self.machine, FEW_VALUATIONS)
        if few is not None and not all(map(self._can_start, few)):
            return None
        if few is None or self.own_samples[0].complete:
            return few
        whole_one = self.sampler.sample(few[0], MOST_EXPLORED, self.is_expired)
        return few if whole_one.complete else None

    def _can_start(self, values: dict[str, Value]) -> bool:
        """Return whether every variable starts in its domain at these values; where one does not, no run exists."""
        return not start_outside(self.machine.at(values))

    @cached_property
    def legal_start(self) -> tuple[Expr, ...]:
        """The condition, over parameters, that every variable starts in its domain: otherwise there are no runs to claim anything of."""
        starts = start_values(self.system)
        return tuple(in_domain(variable, starts[variable.name]) for variable in self.system.own_variables)

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
        """Lemmas about the machine's own variables at each location, beyond their domains; the claims of its document are tried too."""
        guesses = self.guesses(self.system, self.own_samples)
        for fault in self.system.faults:
            guesses[fault.location].append(negation(fault.condition))
        for claim in self.machine.properties:
            if isinstance(claim.form, Always | Never):
                for sight in observer_of(self.system, claim.form).sights:
                    guesses[sight.location].append(negation(sight.condition))
        return self.inductive(whole(self.system), guesses, {})

    def guesses(self, system: System, samples: Iterable[Sample], split: Sequence[str] = ()) -> dict[int, list[Expr]]:
        """Return candidates for each location, read off examples."""
        rows: list[list[tuple[int, tuple[Value, ...], tuple[Value, ...]]]] = [[] for _ in system.locations]
        for group, sample in enumerate(samples):
            for location, values in sample.configurations:
                rows[location].append((group, sample.parameters, values))
        return {
            place: candidates(table(self.machine, system.variables, here), split) for place, here in enumerate(rows)
        }

    def inductive(self, region: Region, guesses: Lemmas, lemmas: Lemmas) -> Lemmas:
        """Return what is inductive of the candidates, together with what is known already."""
        new_lemmas = Induction(region, self.logic, lemmas, self.is_expired).largest(guesses) or {}
        places = sorted({*new_lemmas, *lemmas})
        return {
            place: tuple(dict.fromkeys([*lemmas.get(place, ()), *new_lemmas.get(place, ())]))
            for place in places
            if FALSE not in new_lemmas.get(place, ())
        } | {place: (FALSE,) for place, here in new_lemmas.items() if FALSE in here}

    @cached_property
    def slicer(self) -> Slicer:
        """Of the lemmas about the machine itself, finds those that a claim needs."""
        return Slicer(whole(self.system), self.logic, self.lemmas)

    def follow(self, sample: Sample, occurrences: Iterable[Occurrence]) -> Trace:
        """Return what happens as a trace, at a sample's parameter values."""
        names = (parameter.name for parameter in self.machine.parameters)
        return follow(self.machine.at(dict(zip(names, sample.parameters, strict=True))), occurrences)
