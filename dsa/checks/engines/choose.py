"""Which engine searches which system: by size, by shape, and by what is installed.

Every search begins in Python, which needs nothing and is under way at once; most systems are done there. What is larger goes to
NumPy when it is installed; to C when there is a compiler and what is known would need a hash table; to decision diagrams when more
configurations are allowed than could be held. Else it stays in Python. Which engine it was is in `Found.engine`.

Memory: Python takes up to 150 bytes for each configuration, NumPy up to 60, so a limit on configurations is one on memory; and no engine
goes beyond a bound of its own, whatever is allowed: it stops, and the search is not complete.

Only the engine in Python is imported; the others are loaded by name when they are asked, which most checks never do.
"""

import importlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING

from dsa.checks.engines import python
from dsa.checks.engines.found import Engine, Found, Limits
from dsa.errors import DsaError
from dsa.ground import Ground, Watch

if TYPE_CHECKING:
    from dsa.checks.engines.compiled import Compile

#: Up to so many trials of a rule on a configuration no other engine than Python's is asked. They take some tenths of a second, which is
#: what NumPy's import takes of the processor; for a million configurations, if two or three rules concern each.
TRIALS = 3_000_000
#: An engine that gives up after so many trials.
First = Callable[[Ground, Sequence[Watch], Limits, float], Found]
#: More configurations than this are not held one by one.
HELD = 1_000_000_000
#: With fewer configurations at a distance than this, NumPy has nothing to gain.
_THIN = 32


def loaded(engine: str) -> ModuleType:
    """Give the module of an engine that few checks need: `vectors`, `compiled` or `bdd`."""
    return importlib.import_module(f"dsa.checks.engines.{engine}")


def automatic(compile_c: "Compile | None" = None, first: First = python.search) -> Engine:
    """Give the engine that chooses; `compile_c` makes a library of C text, where there is a compiler. `first` is asked first, for a search of so many trials."""

    def search(ground: Ground, watches: Sequence[Watch], limits: Limits) -> Found:
        found = first(ground, watches, limits, TRIALS)
        if found.is_all(limits):
            return found
        for engine in _for_large(ground, watches, found, limits, compile_c):
            try:
                return engine(ground, watches, limits)
            except (DsaError, MemoryError):  # no library came of it, or there is no room: the next one
                continue
        return python.search(ground, watches, limits)

    return search


def diagrams_count(ground: Ground) -> bool:
    """Tell whether decision diagrams can be expected to count a system that is too large to be held."""
    return find_spec("dd") is not None and bool(loaded("bdd").worth_it(ground))


def _for_large(
    ground: Ground, watches: Sequence[Watch], begun: Found, limits: Limits, compile_c: "Compile | None"
) -> Iterator[Engine]:
    """Give the engines to ask for a system that is not small, the best first."""
    assert begun.layers is not None, "the engine in Python keeps its layers"
    if limits.max_states > HELD and diagrams_count(ground):
        yield loaded("bdd").search
    if begun.configurations < _THIN * len(begun.layers):
        return
    vectors = loaded("vectors")
    arrays = vectors.installed() and vectors.fits(ground, watches)
    if arrays and vectors.has_room(ground):
        yield vectors.search
    if compile_c is not None and loaded("compiled").fits(ground, watches):
        yield partial(loaded("compiled").search, compile_c=compile_c)
    if arrays:
        yield vectors.search
