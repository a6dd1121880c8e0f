"""The artifact repository, R of Definition 2: every version ever generated, immutable, linked by artifact id, with its verdicts.

`ArtifactStore` is the protocol, `MemoryArtifacts` the store in memory; `dsa.edge.git_artifacts` has the one on disk. The cost of storing does not grow with
the number of artifacts. An artifact is stored before its guards run, so it is there even if a guard crashes; its verdict is a second record.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol

import attrs

from dsa.expr import Outcome
from dsa.runtime.content import Artifact, ArtifactRepository
from dsa.runtime.generation import Usage
from dsa.runtime.ledger import VerdictEntry
from dsa.runtime.run_store import StoreError

_DIGITS, _SHORT = 32, 12
_DIGEST = re.compile(r"[0-9a-f]{32,}")


def artifact_store_error(path: object, message: str) -> StoreError:
    """Return the error for a store of artifacts, by its path, that cannot be used or is damaged."""
    return StoreError(f"{path}: {message}", code="ArtifactStoreError")


def identify_artifact(artifact: Artifact, run_id: str = "") -> Artifact:
    """Return the artifact with an id: `RUN/DIGEST`, or the digest alone without a run.

    The digest is that of run, content, step, attempt and parents. So equal texts of two attempts have different ids, and nothing can be its own
    ancestor.
    """
    parts = ascii((run_id, artifact.content_digest, artifact.step, artifact.version, artifact.parents))
    digest = hashlib.sha256(parts.encode("ascii")).hexdigest()[:_DIGITS]
    name = f"{run_id}/{digest}" if run_id else digest
    return Artifact(
        artifact.content,
        artifact.version,
        name,
        artifact.parent_id,
        artifact.step,
        artifact.usage,
        artifact.dependency_ids,
    )


def short_id(artifact_id: str, run_id: str) -> str:
    """Return an id as it is shown in its run: without the run's own id, and with a short digest."""
    run, slash, name = artifact_id.rpartition("/")
    label = name[:_SHORT] if _DIGEST.fullmatch(name) else name
    return label if run == run_id else f"{run}{slash}{label}"


@attrs.frozen
class AttemptRecord:
    """One artifact without its text: the fields of `Artifact`, its author, and every verdict in order.

    `author` is the name of a generator or of a person. `redacted` has the names of the secrets that the text had. `run_id` is the run that stored
    it.
    """

    artifact_id: str
    step: str
    version: int
    content_digest: str
    parent_id: str | None = None
    dependency_ids: tuple[str, ...] = ()
    author: str = ""
    usage: Usage | None = None
    verdicts: tuple[VerdictEntry, ...] = ()
    redacted: tuple[str, ...] = ()
    run_id: str = ""

    @property
    def parents(self) -> tuple[str, ...]:
        """The ids of what it came from: the attempt it refines, then its dependencies."""
        return ((self.parent_id,) if self.parent_id else ()) + self.dependency_ids

    @property
    def outcome(self) -> Outcome | None:
        """The last verdict; None before the first one."""
        return self.verdicts[-1].outcome if self.verdicts else None

    def artifact(self, content: str) -> Artifact:
        """Return the artifact with its text."""
        return Artifact(
            content, self.version, self.artifact_id, self.parent_id, self.step, self.usage, self.dependency_ids
        )


def attempt_of(artifact: Artifact, author: str = "", run_id: str = "") -> AttemptRecord:
    """Return the record of an artifact that has an id."""
    return AttemptRecord(
        artifact.artifact_id,
        artifact.step,
        artifact.version,
        artifact.content_digest,
        artifact.parent_id,
        artifact.dependency_ids,
        author,
        artifact.usage,
        redacted=artifact.redacted,
        run_id=run_id,
    )


class Attempts:
    """The attempts of a run in the order in which they were stored. Raises KeyError for an unknown id."""

    def __init__(self) -> None:
        self._position: dict[str, int] = {}
        self._attempts: list[AttemptRecord] = []

    def __contains__(self, artifact_id: str) -> bool:
        return artifact_id in self._position

    def __getitem__(self, artifact_id: str) -> AttemptRecord:
        return self._attempts[self._position[artifact_id]]

    def __iter__(self) -> Iterator[AttemptRecord]:
        return iter(self._attempts)

    def with_id(self, artifact: Artifact, run_id: str) -> Artifact:
        """Return the artifact as its run stores it: with its own id, else with a new one that names the run.

        An id of another record is replaced by a new one; the same record of the same run keeps its id.
        """
        if not artifact.artifact_id:
            return identify_artifact(artifact, run_id)
        if artifact.artifact_id in self:
            record = self[artifact.artifact_id]
            is_same = record.artifact(artifact.content) == artifact and record.content_digest == artifact.content_digest
            if not is_same or record.run_id != run_id:
                return identify_artifact(artifact, run_id)
        return artifact

    def add(self, attempt: AttemptRecord) -> None:
        """Add an attempt whose id is new."""
        self._position[attempt.artifact_id] = len(self._attempts)
        self._attempts.append(attempt)

    def add_verdict(self, verdict: VerdictEntry) -> None:
        """Add a verdict to its attempt."""
        position = self._position[verdict.artifact_id]
        attempt = self._attempts[position]
        self._attempts[position] = attrs.evolve(attempt, verdicts=(*attempt.verdicts, verdict))

    def lineage(self, artifact_id: str) -> list[AttemptRecord]:
        """Return an attempt and all its ancestors, oldest first. Parents are the attempt that it refines and the artifacts that its step used."""
        queue, names = [artifact_id], set[str]()
        while queue:
            name = queue.pop()
            if name not in names:
                names.add(name)
                queue.extend(self[name].parents)
        return [self._attempts[position] for position in sorted(self._position[name] for name in names)]


def tree_of_attempts(attempts: Iterable[AttemptRecord]) -> Mapping[str | None, tuple[AttemptRecord, ...]]:
    """Return the attempts by the id of the attempt that they refine (None: they refine none), in the order stored.

    Each attempt is there once. `dependency_ids` are not followed: they make a graph, not a tree.
    """
    tree: dict[str | None, list[AttemptRecord]] = {None: []}
    for attempt in attempts:
        tree.setdefault(attempt.parent_id or None, []).append(attempt)
    return {name: tuple(children) for name, children in tree.items()}


class ArtifactStore(ArtifactRepository, Protocol):
    """A repository to which artifacts and verdicts can be added."""

    def store(self, artifact: Artifact, author: str = "", run_id: str = "") -> Artifact:
        """Store one version and return it with its id. Raises KeyError for an unknown parent.

        The artifact keeps its own id, unless another record has that id; a new id names the run.
        """

    def record_verdict(self, verdict: VerdictEntry) -> None:
        """Store a verdict on an artifact. Storing it again changes nothing. Raises KeyError for an unknown artifact."""

    def attempts(self) -> tuple[AttemptRecord, ...]:
        """Return all records, without texts, in the order in which they were stored."""

    def lineage(self, artifact_id: str) -> list[AttemptRecord]:
        """Return the records of an artifact and its ancestors, oldest first. Raises KeyError for an unknown artifact."""


class MemoryArtifacts:
    """An `ArtifactStore` in memory."""

    def __init__(self) -> None:
        self._attempts = Attempts()
        self._artifacts: dict[str, Artifact] = {}

    def store(self, artifact: Artifact, author: str = "", run_id: str = "") -> Artifact:
        """Store one version and return it with its id. Storing the same record again changes nothing."""
        for parent in artifact.parents:
            self.get_artifact(parent)
        artifact = self._attempts.with_id(artifact, run_id)
        if artifact.artifact_id not in self._attempts:
            self._attempts.add(attempt_of(artifact, author, run_id))
            self._artifacts[artifact.artifact_id] = artifact
        return artifact

    def record_verdict(self, verdict: VerdictEntry) -> None:
        """Store a verdict on an artifact. Storing it again changes nothing. Raises KeyError for an unknown artifact."""
        if verdict not in self._attempts[verdict.artifact_id].verdicts:
            self._attempts.add_verdict(verdict)

    def attempts(self) -> tuple[AttemptRecord, ...]:
        """Return all records, without texts, in the order in which they were stored."""
        return tuple(self._attempts)

    def lineage(self, artifact_id: str) -> list[AttemptRecord]:
        """Return the records of an artifact and its ancestors, oldest first. Raises KeyError for an unknown artifact."""
        return self._attempts.lineage(artifact_id)

    def get_artifact(self, artifact_id: str) -> Artifact:
        """Return one version. Raises KeyError for an unknown id."""
        return self._artifacts[artifact_id]

    def get_provenance(self, artifact_id: str) -> list[Artifact]:
        """Return an artifact and its ancestors, oldest first. Raises KeyError for an unknown id."""
        return [self._artifacts[attempt.artifact_id] for attempt in self.lineage(artifact_id)]
