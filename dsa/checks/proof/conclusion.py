"""Conclusions: what came of one attempt to prove something, and what a proof rests on, in words."""

from collections.abc import Iterable

import attrs

from dsa.checks.evidence import Evidence, Explored, Inductive, Lemma, Ranked
from dsa.checks.proof.refuted import SPOKEN, Gap
from dsa.checks.properties import PropertyVerdict
from dsa.expr import Expr, Integer, Name, unparse
from dsa.simplify import FALSE, Leaf, substituted
from dsa.system import System
from dsa.trace import Trace, show_values

#: Lemmas that are said; those that say the same of several places are said once.
_MOST_LEMMAS = 3


@attrs.frozen
class Finding:
    """A verdict, what it rests on in words, and the evidence or the trace behind it.

    `how` says how it was proved, where it is broken, or why it is not known. PROVED has evidence, VIOLATED a trace (a shortest one at
    the values it shows), NOT INDUCTIVE a gap. `assumptions` are the promises and the fairness that a proof uses.
    """

    verdict: PropertyVerdict
    how: str
    evidence: Evidence | None = None
    trace: Trace | None = None
    assumptions: tuple[str, ...] = ()
    gap: Gap | None = None


def unknown(why: str) -> Finding:
    """Give the verdict UNKNOWN, with the reason."""
    return Finding("UNKNOWN", why)


def in_words(system: System, evidence: Evidence) -> str:
    """Say what a proof rests on."""
    match evidence:
        case Inductive(lemmas):
            return by_lemmas(system, lemmas)
        case Ranked(lemmas, ranks, strategy, _):
            by = f"{_counted(len(strategy), 'step')} lead there, " if strategy else ""
            return f"{by}{_by_rank(ranks)}{_with(system, lemmas)}"
        case Explored(valuations, configurations):
            given = _counted(len(valuations), "valuation") if valuations != ((),) else ""
            where = f" at all {given}" if len(valuations) > 1 else f" at {show_values(valuations[0])}" if given else ""
            return f"explored: all {_counted(configurations, 'configuration')}{where}"


def by_lemmas(system: System, lemmas: tuple[Lemma, ...]) -> str:
    """Say by which lemmas something is proved."""
    if not lemmas:
        return "row by row"
    said = _said(system, lemmas)
    shown = "; ".join(said[:_MOST_LEMMAS]) + ("; .." if len(said) > _MOST_LEMMAS else "")
    return f"by induction with {_counted(len(said), 'lemma')}: {shown}"


def _with(system: System, lemmas: tuple[Lemma, ...]) -> str:
    return f", {_counted(len(_said(system, lemmas)), 'lemma')}" if lemmas else ""


def _said(system: System, lemmas: Iterable[Lemma]) -> list[str]:
    """Write lemmas as sentences, those about counts and numbers first: they say most."""
    places: dict[Expr, list[str]] = {}
    for lemma in lemmas:
        places.setdefault(lemma.condition, []).append(system.locations[lemma.location].state)
    ordered = sorted(places.items(), key=lambda item: (item[0] == FALSE, isinstance(item[0], Name), len(item[1])))
    return [_sentence(condition, list(dict.fromkeys(states))) for condition, states in ordered]


def _sentence(condition: Expr, states: list[str]) -> str:
    where = ", ".join(states) if len(states) <= _MOST_LEMMAS else f"{len(states)} states"
    return f"{where} never reached" if condition == FALSE else f"{spoken(condition)} in {where}"


def spoken(expr: Expr) -> str:
    """Write an expression with the observers' variables called what they are."""

    def leaf(node: Leaf) -> Expr:
        return Name(SPOKEN[node.name]) if isinstance(node, Name) and node.name in SPOKEN else node

    return unparse(substituted(expr, leaf))


def _by_rank(ranks: tuple[tuple[Expr, ...], ...]) -> str:
    parts = {part: None for rank in ranks for part in rank if not isinstance(part, Integer)}
    shown = [spoken(part) for part in parts]
    return f"rank ({', '.join(shown)})" if shown else "the order of the states is a rank"


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
