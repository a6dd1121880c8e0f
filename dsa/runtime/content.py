"""What a generator is given and gives, and what a guard says: the paper's objects as frozen values.

Names and fields are those of the agent program (seed 000; Definitions 2, 3, 5 and 6 of the paper). This module
knows no model, no file and no process: `dsa.generators` and `dsa.guards` implement the two interfaces.
"""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Protocol

import attrs

from dsa.immutable import immutable
from dsa.runtime.prompt import PromptTemplate
from dsa.runtime.secrets import marked

__all__ = [
    "AmbientEnvironment", "Artifact", "ArtifactRepository", "AsyncGeneratorInterface", "Context", "GeneratorInterface", "GuardInterface", "GuardResult", "PromptTemplate",
    "Usage", "required_verdict",
]  # fmt: skip


@attrs.frozen
class Usage:
    """What one artifact took of a model. Token counts and cost are None when the provider did not say: nothing is guessed, and None is not 0.

    `model` is the one that was asked for, `response_model` the one that the provider says has answered; empty when it does not say. `retried` has
    the reasons of the tries that gave nothing before one did, in their order; counts are those of the answer, seconds are of all tries.
    """

    model: str
    seconds: float
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cost_usd: float | None = None
    response_model: str = ""
    retried: tuple[str, ...] = ()


@attrs.frozen(field_transformer=immutable)
class Artifact:
    """One version of generated content; never changed.

    `version` is the attempt, from 1. `artifact_id` addresses this record (content, step, attempt, parent), so a
    model that repeats itself has distinct attempts; `parent_id` is the attempt that this one refines,
    `dependency_ids` are the earlier artifacts that its step used. A generator gives only `content` and `usage`;
    the run fills in the rest.
    """

    content: str
    version: int = 1
    artifact_id: str = ""
    parent_id: str | None = None
    step: str = ""
    usage: Usage | None = attrs.field(default=None, eq=False)
    dependency_ids: tuple[str, ...] = ()

    @property
    def parents(self) -> tuple[str, ...]:
        """The ids of what this artifact came from: the attempt it refines, then its dependencies."""
        return ((self.parent_id,) if self.parent_id else ()) + self.dependency_ids

    @property
    def content_digest(self) -> str:
        """SHA-256 of the text: equal for equal texts."""
        return hashlib.sha256(self.content.encode("utf-8", "surrogatepass")).hexdigest()

    @property
    def redacted(self) -> tuple[str, ...]:
        """The names of the secrets that the text had: it stands there with `[secret NAME]` in their places, for ever."""
        return marked(self.content)


@attrs.frozen
class GuardResult:
    """A verdict with its feedback (Definition 6). Passed and fatal at once is a ValueError.

    TypeError for anything but a bool, a str and a bool: what is merely true or false is no verdict.
    """

    passed: bool
    feedback: str = ""
    fatal: bool = False

    def __attrs_post_init__(self) -> None:
        """Refuse what is no verdict, and the one combination that means nothing."""
        if not (isinstance(self.passed, bool) and isinstance(self.feedback, str) and isinstance(self.fatal, bool)):
            raise TypeError(f"{self} is no verdict: `passed` and `fatal` are True or False, `feedback` is a text")
        if self.passed and self.fatal:
            msg = "a GuardResult cannot be passed and fatal at once"
            raise ValueError(msg)


class ArtifactRepository(Protocol):
    """R of Definition 2, read-only: every version ever generated."""

    def get_artifact(self, artifact_id: str) -> Artifact:
        """Give one version; KeyError when there is none of that id."""

    def get_provenance(self, artifact_id: str) -> list[Artifact]:
        """Give the versions that lead to this one, oldest first, itself last; KeyError when unknown."""


@attrs.frozen
class AmbientEnvironment:
    """E = <R, Omega> of Definition 3."""

    repository: ArtifactRepository | None = None
    constraints: str = ""


@attrs.frozen(field_transformer=immutable)
class Context:
    """C = <E, C_local, H> of Definition 3.

    `specification` is Psi, `current_artifact` the text last rejected, `feedback_history` pairs of rejected text
    and feedback, oldest first. `dependencies` are the earlier artifacts that the step uses, by the name it gives
    them. `data` has what the prompt's placeholders for data of events stand for, by their words. `step` names the workflow's step, where there is one. `key` names the effect that the artifact is for, the same however often it is
    performed after a crash: for services that take such a key; empty outside a run.
    """

    ambient: AmbientEnvironment
    specification: str
    current_artifact: str | None = None
    feedback_history: Sequence[tuple[str, str]] = ()
    dependencies: Mapping[str, Artifact] = attrs.field(factory=dict)
    step: str = ""
    key: str = ""
    data: Mapping[str, str] = attrs.field(factory=dict)


class GeneratorInterface(ABC):
    """a_gen of Definition 6: anything that answers a context with an artifact, a whole agent included.

    One that answers at once can say that it does not block: then it is called in place, and not in a thread of its own.
    """

    blocks: bool = True

    @abstractmethod
    def generate(self, context: Context, template: PromptTemplate | None = None) -> Artifact:
        """Generate an artifact; only `content` and `usage` need be set. Raises GenerationError."""


class AsyncGeneratorInterface(GeneratorInterface):
    """A generator that can be awaited too. Runs do so: when a time limit ends the effect, the request to the model ends with it."""

    @abstractmethod
    async def agenerate(self, context: Context, template: PromptTemplate | None = None) -> Artifact:
        """Do the same in a running event loop, which goes on meanwhile. Cancelled, it leaves nothing behind."""


class GuardInterface(ABC):
    """G of Definition 6: judges an artifact, given the artifacts its step uses.

    One that answers at once can say that it does not block: then it is called in place, and not in a thread of its own.
    """

    blocks: bool = True

    @abstractmethod
    def validate(self, artifact: Artifact, **dependencies: Any) -> GuardResult | Awaitable[GuardResult]:  # noqa: ANN401  (JSON)
        """Judge; it may be an async method. Raising means the guard itself failed, which is never read as a verdict.

        `dependencies` are the artifacts that the step uses, and the JSON values that its row in Guards `uses`, by name.
        """


def required_verdict(name: str, said: object) -> GuardResult:
    """Return what a guard gave. Raises TypeError when it is no GuardResult."""
    if not isinstance(said, GuardResult):
        msg = f"guard {name} gave {'None' if said is None else type(said).__name__}, not a GuardResult"
        raise TypeError(msg)
    return said
