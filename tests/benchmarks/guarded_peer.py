"""AtomicGuard's guarded loop with a scripted generator; run as a program: ATTEMPTS ROUNDS [FOLDER].

Imports nothing of this project: it needs a newer Python. Prints a JSON list: the processor microseconds of an attempt in each round, with the
artifacts in memory, or in its DAG of files where a folder is given.
"""

import gc
import json
import sys
import time
import uuid
from pathlib import Path

from atomicguard.application.action_pair import ActionPair
from atomicguard.application.agent import DualStateAgent
from atomicguard.domain.interfaces import GeneratorInterface, GuardInterface
from atomicguard.domain.models import Artifact, ArtifactStatus, ContextSnapshot, GuardResult
from atomicguard.domain.prompts import PromptTemplate
from atomicguard.infrastructure.persistence.filesystem import FilesystemArtifactDAG
from atomicguard.infrastructure.persistence.memory import InMemoryArtifactDAG

TEXT = "def add(a, b):\n    return a + b\n"
TEMPLATE = PromptTemplate(role="", constraints="", task="Write add")


class Scripted(GeneratorInterface):
    """Gives one text again and again."""

    number = 0

    def generate(self, _context, _template=None, action_pair_id="g", workflow_id="w", **_others):
        self.number += 1
        return Artifact(
            artifact_id=str(uuid.uuid4()),
            workflow_id=workflow_id,
            content=TEXT,
            previous_attempt_id=None,
            parent_action_pair_id=None,
            action_pair_id=action_pair_id,
            created_at="2026-01-31T12:00:00",
            attempt_number=self.number,
            status=ArtifactStatus.PENDING,
            guard_result=None,
            context=ContextSnapshot(workflow_id=workflow_id, specification="", constraints="", feedback_history=()),
        )


class Passing(GuardInterface):
    """Rejects all attempts but the last of a given number."""

    def __init__(self, attempts):
        self.left = attempts

    def validate(self, _artifact, **_dependencies):
        self.left -= 1
        return GuardResult(passed=self.left == 0, feedback="" if self.left == 0 else "no")


def attempt_us(attempts, dag):
    agent = DualStateAgent(ActionPair(Scripted(), Passing(attempts), TEMPLATE), dag, rmax=attempts)
    gc.collect()
    begun = time.process_time()
    agent.execute("Write add")
    return (time.process_time() - begun) / attempts * 1e6


if __name__ == "__main__":
    attempts, rounds, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    places = [
        FilesystemArtifactDAG(Path(folder[0]) / str(n)) if folder else InMemoryArtifactDAG() for n in range(rounds)
    ]
    gc.freeze()
    print(json.dumps([attempt_us(attempts, place) for place in places]))
