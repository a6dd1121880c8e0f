"""S_workflow and S_env of Definition 1, as read-only views of a run: only a row of the table sets sigma.

Takes a run and its artifacts, gives frozen values.
"""

from collections.abc import Mapping
from types import MappingProxyType

import attrs

from dsa.runtime.content import Artifact, Context


def _frozen(given: Mapping[str, object]) -> Mapping[str, object]:
    return MappingProxyType(dict(given))


@attrs.frozen
class WorkflowState:
    """sigma: which guards have passed, and which artifact passed each of them."""

    guards: Mapping[str, bool] = attrs.field(factory=dict, converter=_frozen)
    artifact_ids: Mapping[str, str] = attrs.field(factory=dict, converter=_frozen)

    def is_satisfied(self, guard_id: str) -> bool:
        """Tell whether a guard has passed; one that was never heard of has not."""
        return self.guards.get(guard_id, False)

    def get_artifact_id(self, guard_id: str) -> str | None:
        """Give the id of the artifact that passed a guard."""
        return self.artifact_ids.get(guard_id)


@attrs.frozen
class EnvironmentState:
    """s_env = <a, C>: the newest artifact, the context it was made in and what has been rejected, the retries taken."""

    artifact: Artifact | None = None
    context: Context | None = None
    retry_count: int = 0
