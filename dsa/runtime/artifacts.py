"""R of Definition 2: every version ever generated, immutable, linked by artifact id, and what was said of it.

Takes and gives `Artifact`s; `MemoryArtifacts` keeps them in memory. The cost of storing does not grow. A verdict is a
second record, made after the artifact's: what was stored before its guard ran is there whatever becomes of the guard.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol

import attrs

from dsa.errors import DsaError
from dsa.expr import Outcome
from dsa.runtime.content import Artifact, ArtifactRepository, Usage
from dsa.runtime.ledger import VerdictEntry

_DIGITS, _SHORT = 32, 12
_DIGEST = re.compile(r"[0-9a-f]{32,}")


class ArtifactStoreError(DsaError):
    """Raised when what keeps artifacts cannot be used, or is damaged. `path` names it."""

    def __init__(self, path: object, message: str) -> None:
        self.path = path
        super().__init__(f"{path}: {message}")


def identified(artifact: Artifact, run_id: str = "") -> Artifact:
    """Return the artifact with an id that names its run: `RUN/DIGEST`, of the run, content, step, attempt and parents.

    Without a run it is the digest alone. A model that repeats itself has distinct attempts, and nothing can be its own ancestor.
    """
    given = artifact
    parts = ascii((run_id, given.content_digest, given.step, given.version, given.parents))
    digest = hashlib.sha256(parts.encode("ascii")).hexdigest()[:_DIGITS]
    name = f"{run_id}/{digest}" if run_id else digest
    return Artifact(given.content, given.version, name, given.parent_id, given.step, given.usage, given.dependency_ids)


def short_id(artifact_id: str, run_id: str) -> str:
    """Return an id as it is shown among those of a run: the run's own name is left out, digests are cut."""
    run, slash, name = artifact_id.rpartition("/")
    shown = name[:_SHORT] if _DIGEST.fullmatch(name) else name
    return shown if run == run_id else f"{run}{slash}{shown}"


@attrs.frozen
class AttemptRecord:
    """What is known of one artifact but its text: the fields of `Artifact`, its author, and every verdict in order.

    `author` is the generator's name, or that of a person; `redacted` are the names of the secrets that the text had; `run_id`
    is the run that stored it.
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
        """What was said last; None before the first verdict."""
        return self.verdicts[-1].outcome if self.verdicts else None

    def artifact(self, content: str) -> Artifact:
        """Return the artifact, with its text."""
        return Artifact(
            content, self.version, self.artifact_id, self.parent_id, self.step, self.usage, self.dependency_ids
        )


def attempt_of(artifact: Artifact, author: str = "", run_id: str = "") -> AttemptRecord:
    """Return an identified artifact without its text."""
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
    """The attempts of a run in the order in which they were stored. KeyError for an id that is not there."""

    def __init__(self) -> None:
        self._position: dict[str, int] = {}
        self._attempts: list[AttemptRecord] = []

    def __contains__(self, artifact_id: str) -> bool:
        return artifact_id in self._position

    def __getitem__(self, artifact_id: str) -> AttemptRecord:
        return self._attempts[self._position[artifact_id]]

    def __iter__(self) -> Iterator[AttemptRecord]:
        return iter(self._attempts)

    def named(self, artifact: Artifact, run_id: str) -> Artifact:
        """Return the artifact as its run stores it: with the id that it brings, else with one that names the run.

        An id that another record has is not given twice; the same record of the same run keeps its own.
        """
        if not artifact.artifact_id:
            return identified(artifact, run_id)
        if artifact.artifact_id in self:
            known = self[artifact.artifact_id]
            is_same = known.artifact(artifact.content) == artifact and known.content_digest == artifact.content_digest
            if not is_same or known.run_id != run_id:
                return identified(artifact, run_id)
        return artifact

    def add(self, attempt: AttemptRecord) -> None:
        """Add one that is not there yet."""
        self._position[attempt.artifact_id] = len(self._attempts)
        self._attempts.append(attempt)

    def add_verdict(self, verdict: VerdictEntry) -> None:
        """Add what was said of an attempt."""
        position = self._position[verdict.artifact_id]
        attempt = self._attempts[position]
        self._attempts[position] = attrs.evolve(attempt, verdicts=(*attempt.verdicts, verdict))

    def lineage(self, artifact_id: str) -> list[AttemptRecord]:
        """Return the attempts that lead to this one, oldest first, itself last.

        Parents are the attempt that it refines and the artifacts that its step used, and theirs in turn.
        """
        waiting, found = [artifact_id], set[str]()
        while waiting:
            name = waiting.pop()
            if name not in found:
                found.add(name)
                waiting.extend(self[name].parents)
        return [self._attempts[position] for position in sorted(self._position[name] for name in found)]


def tree_of_attempts(attempts: Iterable[AttemptRecord]) -> Mapping[str | None, tuple[AttemptRecord, ...]]:
    """Return the attempts by what they refine, in the order stored: under None those that refine nothing.

    Each attempt stands there once; follow `artifact_id` to those that refine it. What a step used is in its
    `dependency_ids`: these make a graph, not a tree.
    """
    tree: dict[str | None, list[AttemptRecord]] = {None: []}
    for attempt in attempts:
        tree.setdefault(attempt.parent_id or None, []).append(attempt)
    return {name: tuple(refining) for name, refining in tree.items()}


class ArtifactStore(ArtifactRepository, Protocol):
    """A repository that artifacts, and verdicts on them, can be added to."""

    def store(self, artifact: Artifact, author: str = "", run_id: str = "") -> Artifact:
        """Store one version that a run has made, and return it with its id; KeyError when a parent is unknown.

        An id that it brings is kept, unless another record has it; a new one names the run.
        """

    def record_verdict(self, verdict: VerdictEntry) -> None:
        """Store what was said of an artifact; KeyError when it is unknown. The same record again changes nothing."""

    def attempts(self) -> tuple[AttemptRecord, ...]:
        """Return everything but the texts, in the order in which it was stored."""

    def lineage(self, artifact_id: str) -> list[AttemptRecord]:
        """Return the provenance without the texts; KeyError when unknown."""


class MemoryArtifacts:
    """An `ArtifactStore` in memory."""

    def __init__(self) -> None:
        self._attempts = Attempts()
        self._artifacts: dict[str, Artifact] = {}

    def store(self, artifact: Artifact, author: str = "", run_id: str = "") -> Artifact:
        """Store one version and return it with its id; storing the same record again changes nothing."""
        for parent in artifact.parents:
            self.get_artifact(parent)
        artifact = self._attempts.named(artifact, run_id)
        if artifact.artifact_id not in self._attempts:
            self._attempts.add(attempt_of(artifact, author, run_id))
            self._artifacts[artifact.artifact_id] = artifact
        return artifact

    def record_verdict(self, verdict: VerdictEntry) -> None:
        """Store what was said of an artifact; KeyError when it is unknown. The same record again changes nothing."""
        if verdict not in self._attempts[verdict.artifact_id].verdicts:
            self._attempts.add_verdict(verdict)

    def attempts(self) -> tuple[AttemptRecord, ...]:
        """Return everything but the texts, in the order in which it was stored."""
        return tuple(self._attempts)

    def lineage(self, artifact_id: str) -> list[AttemptRecord]:
        """Return the provenance without the texts; KeyError when unknown."""
        return self._attempts.lineage(artifact_id)

    def get_artifact(self, artifact_id: str) -> Artifact:
        """Return one version; KeyError when there is none of that id."""
        return self._artifacts[artifact_id]

    def get_provenance(self, artifact_id: str) -> list[Artifact]:
        """Return the versions that lead to this one, oldest first, itself last; KeyError when unknown."""
        return [self._artifacts[attempt.artifact_id] for attempt in self.lineage(artifact_id)]
