"""R of Definition 2 as the agent program names it: an interface, and its implementations in memory and in git.

Takes artifacts, gives them back by id. An artifact is stored before its guard runs, and what the guard said is a second record:
whatever becomes of the guard, every generated version is there.

S_workflow and S_env of Definition 1, as read-only views of a run: only a row of the table sets sigma.

Takes a run and its artifacts, gives frozen values.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType

import attrs

from dsa.edge.git import GitArtifacts
from dsa.runtime.artifacts import ArtifactStore, AttemptRecord, MemoryArtifacts, attempt_of, identify_artifact
from dsa.runtime.content import Artifact, Context, GuardResult
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
        """Return one version; KeyError when there is none of that id."""

    @abstractmethod
    def get_provenance(self, artifact_id: str) -> list[Artifact]:
        """Return the versions that lead to this one, oldest first, itself last; KeyError when unknown."""

    def record_verdict(self, artifact_id: str, result: GuardResult) -> None:  # noqa: B027  # optional on purpose
        """Keep what a guard said of a version. One that has no place for verdicts need not: the run's ledger has them."""


class _StoreDag(ArtifactDAGInterface):
    """A DAG on one of the stores that runs use."""

    def __init__(self, artifacts: ArtifactStore) -> None:
        self.artifacts = artifacts

    def store(self, artifact: Artifact, metadata: str = "") -> str:
        """Keep one version and return its id; KeyError when a parent is unknown."""
        return self.artifacts.store(artifact, metadata).artifact_id

    def get_artifact(self, artifact_id: str) -> Artifact:
        """Return one version; KeyError when there is none of that id."""
        try:
            return self.artifacts.get_artifact(artifact_id)
        except KeyError:
            raise KeyError(f"Artifact not found: {artifact_id}") from None

    def get_provenance(self, artifact_id: str) -> list[Artifact]:
        """Return the versions that lead to this one, oldest first, itself last; KeyError when unknown."""
        return self.artifacts.get_provenance(artifact_id)

    def attempts(self) -> tuple[AttemptRecord, ...]:
        """Return every version without its text and with its verdicts, in the order in which they were stored."""
        return self.artifacts.attempts()


class InMemoryArtifactDAG(_StoreDag):
    """A DAG that ends with the program."""

    def __init__(self) -> None:
        super().__init__(MemoryArtifacts())


class GitArtifactDAG(_StoreDag):
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

    def store(self, artifact: Artifact, author: str = "", run_id: str = "") -> Artifact:
        if artifact.artifact_id and artifact.artifact_id not in self._attempts:
            with suppress(KeyError):
                self._dag.get_artifact(artifact.artifact_id)
                artifact = identify_artifact(artifact, run_id)  # another execution has that id
        artifact = super().store(artifact, author, run_id)
        self._dag.store(artifact, author)
        return artifact

    def get_artifact(self, artifact_id: str) -> Artifact:
        """Return one version; one that a caller hands in lies in the DAG."""
        return self._artifacts.get(artifact_id) or self._dag.get_artifact(artifact_id)

    def get_provenance(self, artifact_id: str) -> list[Artifact]:
        return self._dag.get_provenance(artifact_id)

    def lineage(self, artifact_id: str) -> list[AttemptRecord]:
        found = ((each, each.artifact_id) for each in self.get_provenance(artifact_id))
        return [self._attempts[name] if name in self._attempts else attempt_of(each) for each, name in found]

    def record_verdict(self, verdict: VerdictEntry) -> None:
        super().record_verdict(verdict)
        outcome = verdict.outcome
        result = GuardResult(outcome == "passed", verdict.feedback, outcome == "fatal")
        self._dag.record_verdict(verdict.artifact_id, result)


def store_of(dag: ArtifactDAGInterface) -> ArtifactStore:
    """Return the store that a run uses for a DAG."""
    return dag.artifacts if isinstance(dag, _StoreDag) else _PassedOn(dag)


def handed_in(store: ArtifactStore, artifact: Artifact) -> Artifact:
    """Return an artifact that a caller hands to a run, as it is in the run's store; it is put there when it is not.

    It keeps its id. One from another place leaves behind the ancestors that are not here.
    """
    try:
        for parent in artifact.parents:
            store.get_artifact(parent)
    except KeyError:
        artifact = attrs.evolve(artifact, parent_id=None, dependency_ids=())
    with suppress(KeyError):
        if store.get_artifact(artifact.artifact_id) == artifact:
            return artifact
    return store.store(artifact)


def _frozen(given: Mapping[str, object]) -> Mapping[str, object]:
    return MappingProxyType(dict(given))


@attrs.frozen
class WorkflowState:
    """sigma: which guards have passed, and which artifact passed each of them."""

    guards: Mapping[str, bool] = attrs.field(factory=dict, converter=_frozen)
    artifact_ids: Mapping[str, str] = attrs.field(factory=dict, converter=_frozen)

    def is_satisfied(self, guard_id: str) -> bool:
        """Return whether a guard has passed; one that was never heard of has not."""
        return self.guards.get(guard_id, False)

    def get_artifact_id(self, guard_id: str) -> str | None:
        """Return the id of the artifact that passed a guard."""
        return self.artifact_ids.get(guard_id)


@attrs.frozen
class EnvironmentState:
    """s_env = <a, C>: the newest artifact, the context it was made in and what has been rejected, the retries taken."""

    artifact: Artifact | None = None
    context: Context | None = None
    retry_count: int = 0
