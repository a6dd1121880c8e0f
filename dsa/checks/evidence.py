"""What a proof for all parameter values rests on, as values that a certificate can carry and a kernel can check.

All expressions are over the variables of an (observed) system and its parameters. Parameters lie in their domains, and variables are whole numbers,
truth values or enumeration values.
"""

import attrs

from dsa.expr import Expr


@attrs.frozen
class Lemma:
    """A condition that holds whenever a run is at a location."""

    location: int
    condition: Expr


@attrs.frozen
class Inductive:
    """Lemmas that hold at the start and are kept by every command (each may be assumed at its source), and imply the claim."""

    lemmas: tuple[Lemma, ...]


@attrs.frozen
class Ranked:
    """Inductive lemmas, and a rank for each location, compared lexicographically.

    Each part of a rank is at least 0 where the lemmas hold, and every command that counts makes the rank smaller: for `leads to`, those
    that stay in what is owed; for `possible`, those of `strategy` (indexes of commands), of which one is always enabled until P is
    true.
    """

    lemmas: tuple[Lemma, ...]
    ranks: tuple[tuple[Expr, ...], ...]
    strategy: frozenset[int] = frozenset()


Evidence = Inductive | Ranked
