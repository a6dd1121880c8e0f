"""One search by one engine in a process of its own: `one_search.py ENGINE FAMILY SIZE SIZE`.

Prints JSON: configurations, the seconds of processor time from the machine to the answer (what the compiler takes apart), peak memory.
"""

import json
import resource
import sys
import time
from ctypes import CDLL
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import families

from dsa.checks.search import bdd_engine, c_engine, numpy_engine, python_engine
from dsa.checks.search.engine import SearchLimits, SearchResult
from dsa.edge.processes import compile_library as compile_c
from dsa.ground_system import Ground, ground
from dsa.system import closed_system

_COMPILING = [0.0]


def _compile(source: str) -> CDLL:
    begun = time.perf_counter()
    library = compile_c(source)
    _COMPILING[0] += time.perf_counter() - begun
    return library


def _search(engine: str, system: Ground) -> SearchResult:
    limits = SearchLimits(10**30)
    if engine == "C":
        return c_engine.search(system, (), limits, _compile)
    if engine == "NumPy":
        import numpy as np  # so that importing it is not measured: a process does it once

        np.zeros(1)
    found = {"NumPy": numpy_engine.search, "Python": python_engine.search, "BDD": bdd_engine.search}[engine]
    return found(system, (), limits)


def main(engine: str, family: str, *sizes: str) -> None:
    """Search one member of a family."""
    machine = getattr(families, family)(*map(int, sizes))
    if engine == "NumPy":
        import numpy as np

        np.zeros(1)
    begun = time.process_time()
    found = _search(engine, ground(closed_system(machine)))
    seconds = time.process_time() - begun
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps([found.configurations, found.complete, seconds, _COMPILING[0], peak_mb]))


if __name__ == "__main__":
    main(*sys.argv[1:])
