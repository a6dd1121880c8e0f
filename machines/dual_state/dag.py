"""R of Definition 2 as the agent program names it: an interface, and its implementations in memory and in git.

Takes artifacts, gives them back by id. An artifact is stored before its guard runs, and what the guard said is a second record:
whatever becomes of the guard, every generated version is there.
"""

from abc import ABC, abstractmethod
from pathlib import Path

from dsa.edge.git import GitArtifacts
from dsa.runtime.artifacts import ArtifactStore, Attempt, MemoryArtifacts
from dsa.runtime.content import Artifact, GuardResult
from dsa.runtime.ledger import VerdictEntry


class ArtifactDAGInterface(ABC):
    """Keeps every version ever generated. Implement it to keep them in a place of your own."""

    @abstractmethod
    def store(self, artifact: Artifact, metadata: str = "") -> str:
        """Keep one version under its `artifact_id` and give that id; the same version again changes nothing.

        `metadata` is the name of the generator.
        """

    @abstractmethod
    def get_artifact(self, artifact_id: str) -> Artifact:
        """Give one version; KeyError when there is none of that id."""

    @abstractmethod
    def get_provenance(self, artifact_id: str) -> list[Artifact]:
        """Give the versions that lead to this one, oldest first, itself last; KeyError when unknown."""

    def record_verdict(self, artifact_id: str, result: GuardResult) -> None:  # noqa: B027  # optional on purpose
        """Keep what a guard said of a version. One that has no place for verdicts need not: the run's ledger has them."""


class _Kept(ArtifactDAGInterface):
    """A DAG on one of the stores that runs use."""

    def __init__(self, artifacts: ArtifactStore) -> None:
        self.artifacts = artifacts

    def store(self, artifact: Artifact, metadata: str = "") -> str:
        """Keep one version and give its id; KeyError when a parent is unknown."""
        return self.artifacts.store(artifact, metadata).artifact_id

    def get_artifact(self, artifact_id: str) -> Artifact:
        """Give one version; KeyError when there is none of that id."""
        return self.artifacts.get_artifact(artifact_id)

    def get_provenance(self, artifact_id: str) -> list[Artifact]:
        """Give the versions that lead to this one, oldest first, itself last; KeyError when unknown."""
        return self.artifacts.get_provenance(artifact_id)

    def attempts(self) -> tuple[Attempt, ...]:
        """Give every version without its text and with its verdicts, in the order in which they were stored."""
        return self.artifacts.attempts()


class InMemoryArtifactDAG(_Kept):
    """A DAG that ends with the program."""

    def __init__(self) -> None:
        super().__init__(MemoryArtifacts())


class GitArtifactDAG(_Kept):
    """A DAG in the bare git repository at `repo_path`, made when missing: the branch `runs/RUN`, a commit for each record.

    Durable when a call returns; any number of processes may use one repository. Raises ArtifactStoreError when it cannot be used.
    """

    def __init__(self, repo_path: str | Path, run: str = "agent") -> None:
        super().__init__(GitArtifacts(repo_path, run))


class _PassedOn(MemoryArtifacts):
    """The store of a run whose versions are kept elsewhere as well."""

    def __init__(self, dag: ArtifactDAGInterface) -> None:
        super().__init__()
        self._dag = dag

    def store(self, artifact: Artifact, author: str = "") -> Artifact:
        for parent in artifact.parents:
            if parent not in self._attempts:  # one that a caller hands in lies in the DAG
                super().store(self._dag.get_artifact(parent))
        artifact = super().store(artifact, author)
        self._dag.store(artifact, author)
        return artifact

    def record_verdict(self, verdict: VerdictEntry) -> None:
        super().record_verdict(verdict)
        outcome = verdict.outcome
        result = GuardResult(outcome == "passed", verdict.feedback, outcome == "fatal")
        self._dag.record_verdict(verdict.artifact_id, result)


def store_of(dag: ArtifactDAGInterface) -> ArtifactStore:
    """Give the store that a run uses for a DAG."""
    return dag.artifacts if isinstance(dag, _Kept) else _PassedOn(dag)
