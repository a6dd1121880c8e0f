"""AtomicGuard's artifact DAG in files, as its users store attempts; run as a program: N FOLDER.

Imports nothing of this project: it needs a newer Python. Prints a JSON object: the wall milliseconds of each store (an attempt, the verdict in
it), and those of a new handle that gives the provenance of all.
"""

import json
import sys
import time

from atomicguard.domain.models import Artifact, ArtifactStatus, ContextSnapshot, GuardResult
from atomicguard.infrastructure.persistence.filesystem import FilesystemArtifactDAG

CONTEXT = ContextSnapshot(workflow_id="r", specification="add", constraints="", feedback_history=())


def attempt(number, before):
    """Return an attempt that was rejected. In a real run its context has all that was said before; none has here."""
    return Artifact(
        artifact_id=f"{number:08x}-0000-4000-8000-000000000000",
        workflow_id="r",
        content=f"attempt {number}\r\nof impl\n",
        previous_attempt_id=before,
        parent_action_pair_id=None,
        action_pair_id="impl",
        created_at="2026-01-31T12:00:00",
        attempt_number=number,
        status=ArtifactStatus.REJECTED,
        guard_result=GuardResult(passed=False, feedback="no\n\nVerdict: passed", guard_name="tests"),
        context=CONTEXT,
    )


def stored(folder, count):
    dag, before, taken = FilesystemArtifactDAG(folder), None, []
    for number in range(1, count + 1):
        made = attempt(number, before)
        begun = time.perf_counter()
        dag.store(made)
        taken.append((time.perf_counter() - begun) * 1e3)
        before = made.artifact_id
    return taken, before


def provenance_ms(folder, last, count):
    begun = time.perf_counter()
    found = FilesystemArtifactDAG(folder).get_provenance(last)
    taken = (time.perf_counter() - begun) * 1e3
    assert len(found) == count, len(found)
    return taken


if __name__ == "__main__":
    count, folder = int(sys.argv[1]), sys.argv[2]
    stores_ms, last = stored(folder, count)
    print(json.dumps({"stores_ms": stores_ms, "provenance_ms": provenance_ms(folder, last, count)}))
