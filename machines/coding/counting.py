"""The counters of a run of the coding machine. Takes its work, gives numbers: they follow from the ledger."""

from collections.abc import Iterable, Mapping

import attrs

from dsa.runtime.ledger import Entry
from machines.coding.work import Work, work_of


@attrs.frozen
class WorkCounters:
    """All counters, as `--json` shows them; `usage` has what the model was given and gave, by its kinds."""

    model_answers: int
    calls: Mapping[str, int]
    reasons: Mapping[str, int]
    rescues: Mapping[str, int]
    usage: Mapping[str, float]


def counted(entries: Iterable[Entry]) -> dict[str, int | str]:
    """Return what `dsa show --counters` says of such a run beside what it counts of any."""
    work = work_of(entries)
    subtasks = [each.status for _, _, each in work.places]
    blocked = ("call_looping", "path_outside_workspace", "command_not_allowed")
    return {
        "answers of the model": work.transcript.answers + work.asked_apart,
        "calls of tools": sum(work.tools.values()),
        "calls blocked": sum(work.reasons[reason] for reason in blocked),
        "subtasks completed": f"{subtasks.count('completed')} of {len(subtasks)}",
        "files written": len(work.files_written),
        "rescues": sum(work.transcript.rescues.values()),
    }


def counters_of(work: Work) -> WorkCounters:
    """Count what work has seen."""
    return WorkCounters(
        work.transcript.answers + work.asked_apart,
        dict(sorted(work.tools.items())),
        dict(sorted(work.reasons.items())),
        dict(sorted(work.transcript.rescues.items())),
        dict(sorted(work.usage.items())),
    )
