"""The shipped machines: a folder for each, with its table, its bindings and a README.

`search` has policies and no table. Import the Python agents of seed 000 from here: `from machines import ActionPair, DualStateAgent, Workflow`.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dsa.runtime.content import (
        AmbientEnvironment,
        Artifact,
        Context,
        GeneratorInterface,
        GuardInterface,
        GuardResult,
        PromptTemplate,
    )
    from machines.dual_state.agent import (
        ActionPair,
        ArtifactDAGInterface,
        DualStateAgent,
        EnvironmentState,
        EscalationRequired,
        GitArtifactDAG,
        InMemoryArtifactDAG,
        Interrupted,
        PreconditionNotMet,
        RmaxExhausted,
        WorkflowState,
        always,
    )
    from machines.workflow.workflow import Workflow, WorkflowResult, WorkflowStatus, WorkflowStep

#: The public names by module. A module is imported at first use: most callers import one machine and need none of these.
_NAMES = {
    "dsa.runtime.content": (
        "AmbientEnvironment", "Artifact", "Context", "GeneratorInterface", "GuardInterface", "GuardResult", "PromptTemplate",
    ),
    "machines.dual_state.agent": (
        "ActionPair", "DualStateAgent", "EscalationRequired", "Interrupted", "PreconditionNotMet", "RmaxExhausted", "always",
        "ArtifactDAGInterface", "EnvironmentState", "GitArtifactDAG", "InMemoryArtifactDAG", "WorkflowState",
    ),
    "machines.workflow.workflow": ("Workflow", "WorkflowResult", "WorkflowStatus", "WorkflowStep"),
}  # fmt: skip
_HOME = {name: module for module, names in _NAMES.items() for name in names}

__all__ = [
    "ActionPair", "AmbientEnvironment", "Artifact", "ArtifactDAGInterface", "Context", "DualStateAgent", "EnvironmentState",
    "EscalationRequired", "GeneratorInterface", "GitArtifactDAG", "GuardInterface", "GuardResult", "InMemoryArtifactDAG", "Interrupted",
    "PreconditionNotMet", "PromptTemplate", "RmaxExhausted", "Workflow", "WorkflowResult", "WorkflowState", "WorkflowStatus",
    "WorkflowStep", "always",
]  # fmt: skip


def __getattr__(name: str) -> Any:  # noqa: ANN401  (a module's names are of any type)
    if name not in _HOME:
        raise AttributeError(f"module 'machines' has no attribute '{name}'")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return __all__
