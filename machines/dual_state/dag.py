"""R of Definition 2 under the names of the agent program: an interface, and its implementations in memory and in git.

A DAG stores artifacts and returns them by id. It stores an artifact before its guard runs, and the verdict is a second record, so every generated version
is there even if the guard fails. `WorkflowState` and `EnvironmentState` are S_workflow and S_env of Definition 1: frozen views of a run, because only a
row of the table sets sigma.
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
    """A store of every generated version. Implement it to keep them in a place of your own."""

    @abstractmethod
    def store(self, artifact: Artifact, metadata: str = "") -> str:
        """Store one version under its `artifact_id` and return that id. Storing the same version again changes nothing.

        `metadata` is the name of the generator.
        """

    @abstractmethod
    def get_artifact(self, artifact_id: str) -> Artifact:
        """Return one version. Raises KeyError for an unknown id."""

    @abstractmethod
    def get_provenance(self, artifact_id: str) -> list[Artifact]:
        """Return the versions that lead to this one, oldest first, itself last. Raises KeyError for an unknown id."""

    def record_verdict(self, artifact_id: str, result: GuardResult) -> None:  # noqa: B027  # optional on purpose
        """Record a guard's verdict on a version. This method is optional: the run's ledger has the verdicts too."""


class _StoreDag(ArtifactDAGInterface):
    """A DAG on a store of runs."""

    def __init__(self, artifacts: ArtifactStore) -> None:
        self.artifacts = artifacts

    def store(self, artifact: Artifact, metadata: str = "") -> str:
        """Store one version and return its id. Raises KeyError when a parent is unknown."""
        return self.artifacts.store(artifact, metadata).artifact_id

    def get_artifact(self, artifact_id: str) -> Artifact:
        """Return one version. Raises KeyError for an unknown id."""
        try:
            return self.artifacts.get_artifact(artifact_id)
        except KeyError:
            raise KeyError(f"Artifact not found: {artifact_id}") from None

    def get_provenance(self, artifact_id: str) -> list[Artifact]:
        """Return the versions that lead to this one, oldest first, itself last. Raises KeyError for an unknown id."""
        return self.artifacts.get_provenance(artifact_id)

    def attempts(self) -> tuple[AttemptRecord, ...]:
        """Return every version without its text and with its verdicts, in the order in which they were stored."""
        return self.artifacts.attempts()


class InMemoryArtifactDAG(_StoreDag):
    """A DAG in memory, which ends with the program."""

    def __init__(self) -> None:
        super().__init__(MemoryArtifacts())


class GitArtifactDAG(_StoreDag):
    """A DAG in the bare git repository at `repo_path`, which is created when it is missing: the branch `runs/RUN`, a commit for each record.

    A record is durable when the call returns; any number of processes may use one repository. Raises StoreError when git cannot use it.
    """

    def __init__(self, repo_path: str | Path, run: str = "agent") -> None:
        super().__init__(GitArtifacts(repo_path, run))


class _DagStore(MemoryArtifacts):
    """The store of a run that passes its versions on to a DAG."""

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
        """Return one version; the caller's own dependencies are in the DAG."""
        return self._artifacts.get(artifact_id) or self._dag.get_artifact(artifact_id)

    def get_provenance(self, artifact_id: str) -> list[Artifact]:
        return self._dag.get_provenance(artifact_id)

    def lineage(self, artifact_id: str) -> list[AttemptRecord]:
        versions = ((each, each.artifact_id) for each in self.get_provenance(artifact_id))
        return [self._attempts[name] if name in self._attempts else attempt_of(each) for each, name in versions]

    def record_verdict(self, verdict: VerdictEntry) -> None:
        super().record_verdict(verdict)
        outcome = verdict.outcome
        result = GuardResult(outcome == "passed", verdict.feedback, outcome == "fatal", verdict.label == "review")
        self._dag.record_verdict(verdict.artifact_id, result)


def store_of(dag: ArtifactDAGInterface) -> ArtifactStore:
    """Return a run's store for a DAG."""
    return dag.artifacts if isinstance(dag, _StoreDag) else _DagStore(dag)


def adopt(store: ArtifactStore, artifact: Artifact) -> Artifact:
    """Return a caller's artifact as the run's store has it, and store it there first when it is missing.

    It keeps its id. An artifact from another store loses its ancestors unless they are here too.
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


def _read_only(values: Mapping[str, object]) -> Mapping[str, object]:
    return MappingProxyType(dict(values))


@attrs.frozen
class WorkflowState:
    """sigma: the guards that have passed, and the artifact that passed each."""

    guards: Mapping[str, bool] = attrs.field(factory=dict, converter=_read_only)
    artifact_ids: Mapping[str, str] = attrs.field(factory=dict, converter=_read_only)

    def is_satisfied(self, guard_id: str) -> bool:
        """Return whether a guard has passed; False for an unknown one."""
        return self.guards.get(guard_id, False)

    def get_artifact_id(self, guard_id: str) -> str | None:
        """Return the id of the artifact that passed a guard, or None."""
        return self.artifact_ids.get(guard_id)


@attrs.frozen
class EnvironmentState:
    """s_env = <a, C>: the newest artifact, its context with the rejected attempts, and the number of retries."""

    artifact: Artifact | None = None
    context: Context | None = None
    retry_count: int = 0
