"""A word about a machine that does not pass `dsa check`, for commands that make something of it."""

import time

import attrs

from dsa.checks.report import check
from dsa.cli.terminal import say
from dsa.machine import Machine

_MOST, _SECONDS = 10_000, 2.0
_STOPPED = "DSA312"


def warn_of_errors(file: str, machine: Machine, made: str) -> None:
    """Say in one sentence on standard error that a machine has errors, and so what is made of it has them too.

    Its properties are not judged, and a large machine is looked at only in part: no word is no proof.
    """
    bare = attrs.evolve(machine, properties=())
    report = check(bare, parameters=bare.constants, max_states=_MOST, time_limit_s=_SECONDS, clock=time.perf_counter)
    found = sorted({f.code for f in report.diagnostics if f.severity == "error"} - {_STOPPED})
    if found:
        say(f"{file} has errors (dsa check {file}): {', '.join(found)}; {made}", err=True)
