"""The counters of a run of the coding machine. Takes its work, gives numbers: they follow from the ledger."""

from collections.abc import Iterable
from typing import Any

from dsa.runtime.ledger import Entry
from machines.coding.work import Work, work_of


def counted(entries: Iterable[Entry]) -> dict[str, Any]:
    """Give what `dsa show --counters` says of such a run beside what it counts of any."""
    work = work_of(entries)
    subtasks = [each.status for _, _, each in work.places]
    blocked = ("call_looping", "path_outside_workspace", "command_not_allowed")
    return {
        "answers of the model": work.asked_of_model + work.asked_apart,
        "calls of tools": sum(work.tools.values()),
        "calls blocked": sum(work.reasons[reason] for reason in blocked),
        "subtasks completed": f"{subtasks.count('completed')} of {len(subtasks)}",
        "files written": len(work.files_written),
        "rescues": sum(work.rescues.values()),
    }


def counters_of(work: Work) -> dict[str, Any]:
    """Give all counters."""
    return {
        "model_answers": work.asked_of_model + work.asked_apart,
        "calls": dict(sorted(work.tools.items())),
        "reasons": dict(sorted(work.reasons.items())),
        "rescues": dict(sorted(work.rescues.items())),
        "usage": dict(sorted(work.usage.items())),
    }
