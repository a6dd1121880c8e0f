"""What a proof for all parameter values rests on, as values that a certificate can carry and a kernel can check.

Locations and commands are indexes into `closed_system(machine)`; observers keep both, but for `at most`, whose commands are split and
which needs no indexes of commands. All expressions are over the variables of the (observed) system and its parameters. Assumed
everywhere: parameters lie in their domains, and so do the machine's own variables (the start does, and a command is taken only
where its updates do). An observer's variable is a truth value or a whole number, and no more is assumed of it.
"""

import attrs

from dsa.expr import Expr, Value
from dsa.system import Promise


@attrs.frozen
class Lemma:
    """A condition that holds whenever a run is at a location."""

    location: int
    condition: Expr


@attrs.frozen
class Inductive:
    """Lemmas that hold at the start and are kept by every command, and imply the claim.

    Each may be assumed at its location, before a command and at a sight. The claim is that no sight is ever true and that
    the start is none (`Observed`), or that no fault of a kind is ever true (`Fault`).
    """

    lemmas: tuple[Lemma, ...] = ()


@attrs.frozen
class Fair:
    """Something a property assumes to be fair: it happens again and again when it can."""

    name: str


@attrs.frozen
class Ranked:
    """Lemmas as in `Inductive`, and a rank for each location: parts that are compared lexicographically, as many everywhere.

    A part is a whole number, or a condition that counts 1 when it is true and 0 when not. Where a rank counts, the lemmas imply that
    every number in it is at least 0.

    For `leads to` (the observed system's variable WAITING says that Q is owed) a rank counts where WAITING is true. There must be
    a promise there (S12), unless something `Fair` is awaited. Every command from WAITING to WAITING makes the rank smaller, or keeps it equal, has the
    same `awaited` (not None) at both ends and does not end it: a promise is not in the command's `ended`; something `Fair` does not
    happen at the command's moment, and wherever it is awaited and WAITING is true some command at whose moment it happens is enabled.

    For `from everywhere possible` (NOW says that P holds) a rank counts where NOW is false. There, some command of `strategy` is
    enabled, and every command of it that is enabled makes the rank smaller or NOW true.

    `possible P` is shown on the observed system of `from everywhere possible P`, and its lemmas need to be kept only by
    the commands of `strategy` taken where NOW is false: they say where the strategy leads from the start.

    `strategy` has indexes of commands. `awaited` has one entry for each location, or none at all.
    """

    lemmas: tuple[Lemma, ...]
    ranks: tuple[tuple[Expr, ...], ...]
    strategy: frozenset[int] = frozenset()
    awaited: tuple[Promise | Fair | None, ...] = ()


@attrs.frozen
class Explored:
    """All values the parameters may have, being few, each explored to the end; without parameters it is one empty valuation."""

    valuations: tuple[tuple[tuple[str, Value], ...], ...]
    configurations: int


Evidence = Inductive | Ranked | Explored
