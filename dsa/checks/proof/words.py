"""What a proof rests on, in words.

Takes evidence, gives one line. Lemmas that say the same of several places are said once.
"""

from collections.abc import Iterable

from dsa.checks.evidence import Evidence, Explored, Inductive, Lemma, Ranked
from dsa.checks.proof.refuted import SPOKEN
from dsa.expr import Expr, Integer, Name, unparse
from dsa.simplify import FALSE, Leaf, substituted
from dsa.system import System
from dsa.trace import show_values

_MOST_LEMMAS = 3


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
