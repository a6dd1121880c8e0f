"""`dsa.check`, `dsa.explore` and `dsa.prove`: the functions of `dsa.checks`, with this machine's clock where the caller passes none."""

import time
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from dsa.checks import report as reporting
from dsa.checks.proof import prover as proving
from dsa.checks.search import exploration as exploring

P = ParamSpec("P")
T = TypeVar("T")


def _with_clock(judge: Callable[P, T]) -> Callable[P, T]:
    @wraps(judge)
    def wrapper(*arguments: P.args, **options: P.kwargs) -> T:
        if options.get("clock") is None:
            options["clock"] = time.perf_counter
        return judge(*arguments, **options)

    return wrapper


check, explore, prove = _with_clock(reporting.check), _with_clock(exploring.explore), _with_clock(proving.prove)
