"""`dsa runs --verify`: a run's line from its ledger, decoded and replayed."""

from dsa.cli.runs import Listed, listed
from dsa.runs.archive import RunArchive
from dsa.runs.record import OtherMachineError
from dsa.runs.summary import summary_of_record
from dsa.runtime.journal import DamageError, RunSummary
from dsa.runtime.run import ReplayError


def verified(runs: RunArchive, found: RunSummary) -> Listed:
    """Return a run's line from all of its ledger, decoded and replayed; what is the matter with a damaged one becomes its line."""
    try:
        return listed(summary_of_record(runs.get(found.run)))
    except DamageError as fault:
        if fault.run is None:
            raise
        return Listed(found.run, "damaged", f"damaged: {fault}")
    except OtherMachineError as fault:
        kind, why = "other machine", str(fault)
    except ReplayError as fault:
        kind, why = "damaged", f"damaged: run {found.run}, {fault}"
    summary = found.summary
    return Listed(found.run, kind, why, summary.machine, events=summary.events, about=summary.about or None)
