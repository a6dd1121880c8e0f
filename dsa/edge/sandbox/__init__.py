"""The sandbox: the only place where code that models write runs.

`run_confined` runs a program of dsa on untrusted code in a process of its own, on the best rung that this machine reaches. Each result names the rung
and its features. `Confinement(require=..)` refuses to run with less. `limits()` says what remains possible. It needs a POSIX system.
"""

from dsa.edge.sandbox.command_sandbox import Rung, best, ladder, probe
from dsa.edge.sandbox.rungs import (
    ALWAYS,
    FEATURES,
    RUNGS,
    Bounds,
    Confinement,
    End,
    SandboxError,
    SandboxOutcome,
    SandboxProgram,
    limits,
)
from dsa.edge.sandbox.sandbox_runner import close_all, run_on

__all__ = [
    "ALWAYS",
    "FEATURES",
    "RUNGS",
    "Bounds",
    "Confinement",
    "End",
    "Rung",
    "SandboxError",
    "SandboxOutcome",
    "SandboxProgram",
    "best",
    "choose_rung",
    "close_all",
    "ladder",
    "limits",
    "probe",
    "run_confined",
]  # fmt: skip


def run_confined(
    program: SandboxProgram, payload: str, bounds: Bounds | None = None, confinement: Confinement | None = None
) -> SandboxOutcome:
    """Run `program` and call its `run(payload, result_fd)` in the sandbox. It raises nothing because of what the code does.

    Raises SandboxError if this machine cannot provide what the confinement requires; then nothing was run.
    """
    confinement = confinement or Confinement()
    return run_on(choose_rung(confinement).name, program, payload, bounds or Bounds(), confinement)


def choose_rung(confinement: Confinement) -> Rung:
    """Return the rung that code would run on. Raises SandboxError, which says what is missing and why better rungs are not available."""
    rung = probe(confinement.rung) if confinement.rung else best()
    if rung.fault:
        raise SandboxError(f"the sandbox '{rung.name}' is not available here: {rung.fault}", (rung.name,))
    if missing := confinement.missing(rung.name, rung.features):
        names = [name for name in RUNGS if name != rung.name]
        better = () if confinement.rung else names[: list(RUNGS).index(rung.name)]
        why = "".join(f"; {name} is not available: {probe(name).fault}" for name in better)
        notes = "".join(f"; {note}" for note in rung.notes)
        raise SandboxError(
            f"the sandbox '{rung.name}' lacks required features: {', '.join(missing)}{notes}{why}", missing
        )
    return rung
