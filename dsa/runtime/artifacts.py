"""R of Definition 2: every version ever generated, immutable, linked by artifact id.

Takes and gives `Artifact`s; `MemoryArtifacts` keeps them in memory. The cost of storing does not grow. Verdicts are not
kept here: they are records of the ledger, written after the artifact.
"""

import hashlib
import json
from typing import Protocol

import attrs

from dsa.runtime.content import Artifact, ArtifactRepository


def identified(artifact: Artifact) -> Artifact:
    """Give the artifact with its id: the digest of its content's digest, step, attempt and parents.

    A model that repeats itself has distinct attempts, and nothing can be its own ancestor.
    """
    record = [artifact.content_digest, artifact.step, artifact.version, *artifact.parents]
    digest = hashlib.sha256(json.dumps(record).encode()).hexdigest()
    return attrs.evolve(artifact, artifact_id=digest)


class ArtifactStore(ArtifactRepository, Protocol):
    """A repository that artifacts can be added to."""

    def store(self, artifact: Artifact) -> Artifact:
        """Store one version and give it back with its id; KeyError when a parent is unknown."""


class MemoryArtifacts:
    """An `ArtifactStore` in memory."""

    def __init__(self) -> None:
        self._position: dict[str, int] = {}
        self._artifacts: list[Artifact] = []

    def store(self, artifact: Artifact) -> Artifact:
        """Store one version and give it back with its id; storing the same record again changes nothing."""
        for parent in artifact.parents:
            self.get_artifact(parent)
        artifact = identified(artifact)
        if artifact.artifact_id not in self._position:
            self._position[artifact.artifact_id] = len(self._artifacts)
            self._artifacts.append(artifact)
        return artifact

    def get_artifact(self, artifact_id: str) -> Artifact:
        """Give one version; KeyError when there is none of that id."""
        return self._artifacts[self._position[artifact_id]]

    def get_provenance(self, artifact_id: str) -> list[Artifact]:
        """Give the versions that lead to this one, oldest first, itself last; KeyError when unknown.

        Parents are the attempt that it refines and the artifacts that its step used, and theirs in turn.
        """
        waiting, found = [artifact_id], set[str]()
        while waiting:
            name = waiting.pop()
            if name not in found:
                found.add(name)
                waiting.extend(self.get_artifact(name).parents)
        return [self._artifacts[position] for position in sorted(self._position[name] for name in found)]
