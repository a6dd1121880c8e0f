"""Evidence: what holds for all values of the parameters and why, and which small faults of a machine are not noticed, as markup.

The work is that of `dsa prove` and `dsa mutate`, in a thread, so that a person can stop it. Mutants are judged one by one: separate processes could
not be stopped, and would hold the server's port.
"""

from importlib.util import find_spec

from dsa.checks.mutants import GROUPS
from dsa.checks.mutation import MutantResult, counts_text, mutate, prover
from dsa.checks.proof.conclusion import Gap, expression_text
from dsa.checks.proof.induction import Evidence, ExhaustiveEvidence, RankEvidence
from dsa.checks.proof.prover import Proof, ProofReport, prove
from dsa.checks.search.exploration import MAX_STATES, limits_until
from dsa.expr import unparse
from dsa.machine import Machine
from dsa.text import plural
from dsa.trace import show_values
from dsa.web.document_markup import TraceView, line_link, own_path
from dsa.web.machine_page import NO_LIMIT_S, StoppableWork, WorkFindings
from dsa.web.markup import EMPTY, Markup, badge, join, tag

#: The most lemmas of one proof that a page shows.
_MOST_LEMMAS = 50


# -- mutants ---------------------------------------------------------------------------------------------------------------


def survivors(machine: Machine, work: StoppableWork[WorkFindings]) -> WorkFindings:
    """Judge the small faults of a machine. Raises ValueError for a machine that does not pass itself."""
    prove_never = prover(machine) if find_spec("z3") else None
    limits = limits_until(MAX_STATES, NO_LIMIT_S, work.clock)
    report_progress = lambda done_count, every: work.tell(f"judging: {done_count} of {every} mutants")  # noqa: E731
    strength = mutate(machine, limits=limits, prove=prove_never, progress=report_progress)
    notes: dict[int, list[Markup]] = {}
    items, own = [], own_path(machine)
    for one in strength.of_kind("survived"):
        span = one.mutant.at.span
        if span is not None and span.path == own:
            notes.setdefault(span.line, []).append(_survivor(one))
        items.append(tag("li", line_link(span, own) or one.mutant.place, " ", one.mutant.what))
    counts = [tag("p", text) for group in GROUPS if (text := counts_text(strength, group))]
    late = strength.of_kind("not judged")
    rest = (
        tag("p", f"{len(late)} of {len(strength.results)} mutants were not judged, because the work was stopped.")
        if late
        else None
    )
    summary = tag("summary", plural(len(items), "survivor"))
    survivors_list = tag("details", summary, tag("ul", items, class_="plain")) if items else None
    return WorkFindings(join(counts, survivors_list, rest), notes)


def _survivor(one: MutantResult) -> Markup:
    reason = tag("p", one.by, class_="hint") if one.by else None
    return tag("div", tag("p", badge("survives"), " ", one.mutant.what), reason, class_="note")


# -- proofs ----------------------------------------------------------------------------------------------------------------


def proofs(machine: Machine, work: StoppableWork[WorkFindings]) -> WorkFindings:
    """Prove what every machine must do, and the machine's properties. Raises DsaError without z3."""
    tell = lambda claim: work.tell(f"proving: {claim}")  # noqa: E731
    report = prove(machine, time_limit_s=NO_LIMIT_S, clock=work.clock, progress=tell)
    obligations = (*report.obligations, *filter(None, [report.rest]))
    claims = [each for each in report.properties if each.is_asked]
    notes: dict[int, list[Markup]] = {}
    for claim in claims:
        notes.setdefault(claim.line, []).append(_proof(claim, report, work.address))
    verdicts = [each.verdict for each in (*obligations, *claims)]
    counts = ", ".join(f"{verdicts.count(word)} {word}" for word in dict.fromkeys(verdicts))
    words = tag("p", badge("proved" if report.is_proved else "not proved"), " ", counts)
    summary = tag("summary", "What every machine must do")
    return WorkFindings(
        join(words, tag("details", summary, [_proof(each, report, work.address) for each in obligations])), notes
    )


def _proof(proof: Proof, report: ProofReport, address: str) -> Markup:
    """Return a proof: its verdict for all values of the parameters, what it rests on, and the evidence to open."""
    facts = [
        f"{proof.idle} never happened at small parameter values: does the claim say what you mean?"
        if proof.idle
        else "",
        f"{proof.verdict} if {proof.condition}" if proof.condition else "",
        *(f"assumed: {assumption}" for assumption in proof.assumptions),
        f"at {show_values(proof.values)}" if proof.values else "",
    ]
    whole = [tag("p", fact) for fact in facts if fact]
    if proof.gap is not None:
        whole.append(_gap(proof.gap, report))
    if proof.trace is not None:
        whole.append(
            TraceView("Counterexample", proof.trace, proof.loop).markup(own_path(report.system.machine), address)
        )
    if proof.evidence is not None:
        whole.append(_evidence(proof.evidence, report))
    words = tag("p", badge(proof.verdict), " ", proof.text, tag("span", f" {proof.how}", class_="hint"))
    return tag("div", words, whole, class_="note")


def _gap(gap: Gap, report: ProofReport) -> Markup:
    machine = report.system.machine
    has_rows = machine.span is not None and machine.span.path == own_path(machine)  # those of a spec are elsewhere
    line = tag("a", f"line {gap.line}", href=f"#line{gap.line}") if gap.line and has_rows else None
    return join(tag("p", gap.why, " ", line), tag("p", "Hint: ", gap.hint, class_="hint"))


def _evidence(evidence: Evidence, report: ProofReport) -> Markup:
    """Return what a proof rests on: the values that were explored, or the conditions that hold at each place."""
    if isinstance(evidence, ExhaustiveEvidence):
        count = plural(evidence.configurations, "configuration")
        values = [tag("li", show_values(each) or "no parameter") for each in evidence.valuations]
        return tag("details", tag("summary", f"The evidence: {count}, explored to the end"), tag("ul", values))
    lemmas = [
        tag("li", tag("code", expression_text(lemma.condition)), f" in {_place(report, lemma.location)}")
        for lemma in evidence.lemmas[:_MOST_LEMMAS]
    ]
    left_over = len(evidence.lemmas) - _MOST_LEMMAS
    lemmas += [tag("li", f"{left_over} more: dsa prove --json has them")] if left_over > 0 else []
    ranks = list[Markup]()
    if isinstance(evidence, RankEvidence):
        texts = [(place, ", ".join(map(unparse, rank))) for place, rank in enumerate(evidence.ranks) if rank]
        ranks = [tag("li", tag("code", text), f" in {_place(report, place)}") for place, text in texts[:_MOST_LEMMAS]]
    if not lemmas and not ranks:
        return EMPTY  # the rows alone preserve it
    counts = [
        *([plural(len(evidence.lemmas), "lemma")] if lemmas else []),
        *([f"a decreasing rank in {plural(len(ranks), 'place')}"] if ranks else []),
    ]
    return tag("details", tag("summary", f"The evidence: {', '.join(counts)}"), tag("ul", lemmas, ranks))


def _place(report: ProofReport, location: int) -> str:
    place = report.system.locations[location]
    pending = f" while {', '.join(sorted(place.outstanding))} is outstanding" if place.outstanding else ""
    return f"{place.state}{pending}"
