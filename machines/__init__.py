"""The shipped machines: each a table (the truth), its bindings, and a README; `search` is made of policies alone.

The agents of seed 000 in Python are imported from here: `from machines import ActionPair, DualStateAgent, Workflow`.
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
        DualStateAgent,
        EscalationRequired,
        Interrupted,
        PreconditionNotMet,
        RmaxExhausted,
        always,
    )
    from machines.dual_state.dag import ArtifactDAGInterface, GitArtifactDAG, InMemoryArtifactDAG
    from machines.dual_state.states import EnvironmentState, WorkflowState
    from machines.workflow.workflow import Workflow, WorkflowResult, WorkflowStatus, WorkflowStep

_CONTENT, _AGENT, _WORKFLOW = "dsa.runtime.content", "machines.dual_state.agent", "machines.workflow.workflow"
_DAG, _STATES = "machines.dual_state.dag", "machines.dual_state.states"

#: Where each public name lives; it is imported at first use: most who import a machine's module need none of them.
_HOME = {
    "ActionPair": _AGENT,
    "AmbientEnvironment": _CONTENT,
    "Artifact": _CONTENT,
    "ArtifactDAGInterface": _DAG,
    "Context": _CONTENT,
    "DualStateAgent": _AGENT,
    "EnvironmentState": _STATES,
    "EscalationRequired": _AGENT,
    "GeneratorInterface": _CONTENT,
    "GitArtifactDAG": _DAG,
    "GuardInterface": _CONTENT,
    "GuardResult": _CONTENT,
    "InMemoryArtifactDAG": _DAG,
    "Interrupted": _AGENT,
    "PreconditionNotMet": _AGENT,
    "PromptTemplate": _CONTENT,
    "RmaxExhausted": _AGENT,
    "Workflow": _WORKFLOW,
    "WorkflowResult": _WORKFLOW,
    "WorkflowState": _STATES,
    "WorkflowStatus": _WORKFLOW,
    "WorkflowStep": _WORKFLOW,
    "always": _AGENT,
}

__all__ = [
    "ActionPair",
    "AmbientEnvironment",
    "Artifact",
    "ArtifactDAGInterface",
    "Context",
    "DualStateAgent",
    "EnvironmentState",
    "EscalationRequired",
    "GeneratorInterface",
    "GitArtifactDAG",
    "GuardInterface",
    "GuardResult",
    "InMemoryArtifactDAG",
    "Interrupted",
    "PreconditionNotMet",
    "PromptTemplate",
    "RmaxExhausted",
    "Workflow",
    "WorkflowResult",
    "WorkflowState",
    "WorkflowStatus",
    "WorkflowStep",
    "always",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401  (a module's names are of any type)
    if name not in _HOME:
        msg = f"module 'machines' has no attribute '{name}'"
        raise AttributeError(msg)
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return __all__
