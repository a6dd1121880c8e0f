"""Content: the values and interfaces of generators and guards, the prompt that a generator gets, and the kinds of both with their options.

- `Context`, `Artifact`, `GuardResult`, `GeneratorInterface` and `GuardInterface` have the names and fields of the agent program (seed 000;
  Definitions 2, 3, 5 and 6 of the paper). `dsa.generators` and `dsa.guards` implement the interfaces.
- `render` writes a `PromptTemplate` and a `Context` as one text, `messages_of` as messages. The order is that of the agent program's
  PromptTemplate, which leaves out the specification, the rejected artifacts and the artifacts that the step uses; here they are included.
- `ComponentKind` names a class or function that builds a guard or a generator, and turns the options cell of a table into its arguments.
  `dsa.guards.guard_kinds` and `dsa.generators.generator_kinds` list the kinds.

The module does not know models, files or processes.
"""

import hashlib
import inspect
import re
import types
import typing
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol

import attrs

from dsa.data_use import FEEDBACK, SPECIFICATION
from dsa.declarations import PLACEHOLDER
from dsa.errors import BindingError, Span
from dsa.immutable import immutable
from dsa.runtime.generation import HistoryCut, TokenBudget, Usage, Writable, fit_history
from dsa.runtime.secrets import marker_names
from dsa.text import closest

__all__ = [
    "AmbientEnvironment", "Artifact", "ArtifactRepository", "AsyncGeneratorInterface", "Context", "GeneratorInterface", "GuardInterface", "GuardResult", "PromptTemplate",
    "Usage", "required_verdict",
]  # fmt: skip

# --- values ---


@attrs.frozen(field_transformer=immutable)
class Artifact:
    """One version of generated content; it never changes.

    `version` is the number of the attempt, from 1. `artifact_id` is made from content, step, attempt and parents, so equal texts of two attempts
    have different ids. `parent_id` is the attempt that this one refines, `dependency_ids` are the earlier artifacts that its step used. A generator
    sets only `content` and `usage`; the run sets the rest.
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
        """The ids of its parents: the attempt that it refines, then its dependencies."""
        return ((self.parent_id,) if self.parent_id else ()) + self.dependency_ids

    @property
    def content_digest(self) -> str:
        """The SHA-256 of the text; equal texts have equal digests."""
        return hashlib.sha256(self.content.encode("utf-8", "surrogatepass")).hexdigest()

    @property
    def redacted(self) -> tuple[str, ...]:
        """The names of the secrets that the text had; the stored text has `[secret NAME]` in their places."""
        return marker_names(self.content)


@attrs.frozen
class GuardResult:
    """A verdict with its feedback (Definition 6).

    `review` means that a fatal verdict finds nothing wrong with the artifact: a person must decide. It changes what people see, but not the row.

    Raises TypeError unless the fields are a bool, a str and two bools (a value that is merely truthy is not a verdict), and ValueError for passed
    together with fatal, and for a review that is not fatal.
    """

    passed: bool
    feedback: str = ""
    fatal: bool = False
    review: bool = False

    def __attrs_post_init__(self) -> None:
        """Check the types, and refuse combinations that make no sense."""
        switches = (self.passed, self.fatal, self.review)
        if not (all(isinstance(switch, bool) for switch in switches) and isinstance(self.feedback, str)):
            raise TypeError(
                f"{self} is not a verdict: `passed`, `fatal` and `review` must be True or False, and `feedback` a string"
            )
        if self.passed and self.fatal:
            msg = "a GuardResult cannot be passed and fatal at once"
            raise ValueError(msg)
        if self.review and not self.fatal:
            msg = "a GuardResult that asks for a review must also be fatal, because the row for `fatal` asks a person"
            raise ValueError(msg)


class ArtifactRepository(Protocol):
    """R of Definition 2, read-only: every version ever generated."""

    def get_artifact(self, artifact_id: str) -> Artifact:
        """Return one version. Raises KeyError for an unknown id."""

    def get_provenance(self, artifact_id: str) -> list[Artifact]:
        """Return an artifact and its ancestors, oldest first. Raises KeyError for an unknown id."""


@attrs.frozen
class AmbientEnvironment:
    """E = <R, Omega> of Definition 3."""

    repository: ArtifactRepository | None = None
    constraints: str = ""


@attrs.frozen(field_transformer=immutable)
class Context:
    """C = <E, C_local, H> of Definition 3.

    `specification` is Psi, `current_artifact` the text that was rejected last, `feedback_history` pairs of rejected text and feedback, oldest
    first. `dependencies` are the earlier artifacts that the step uses, by their names in the step. `data` has the texts for the prompt's data
    placeholders, by their words. `step` is the name of the workflow's step, if there is one. `key` names the effect that the artifact is for; it
    stays the same when the effect is performed again after a crash, and is meant for services that take an idempotency key. It is "" outside a run.
    """

    ambient: AmbientEnvironment
    specification: str
    current_artifact: str | None = None
    feedback_history: Sequence[tuple[str, str]] = ()
    dependencies: Mapping[str, Artifact] = attrs.field(factory=dict)
    step: str = ""
    key: str = ""
    data: Mapping[str, str] = attrs.field(factory=dict)


# --- prompts ---

_TEXT_LEFT_OUT = "(Its text is left out: it is too long.)"


def placeholders(text: str) -> frozenset[str]:
    """Return the words of the placeholders in a text; `{{` is a brace, not the beginning of a placeholder."""
    return frozenset(" ".join(match[1].split()) for match in PLACEHOLDER.finditer(text) if match[1])


def fill(text: str, values: Mapping[str, str]) -> str:
    """Replace each `{name}` by its value; `{{` and `}}` become braces.

    There is one pass, so braces in the values stay unchanged. Raises ValueError for a placeholder without a value.
    """

    def value(match: re.Match[str]) -> str:
        if match[1] is None:
            return match[0][0]
        name = " ".join(match[1].split())
        if name not in values:
            msg = f"the placeholder {{{name}}} is unknown; {closest(name, values)}"
            raise ValueError(msg)
        return values[name]

    return PLACEHOLDER.sub(value, text)


DEFAULT_FEEDBACK_WRAPPER = "The attempt above was rejected:\n{feedback}\nWrite a new version that fixes this."


@attrs.frozen(field_transformer=immutable)
class PromptTemplate:
    """The parts of a prompt. `{specification}`, the names of `dependencies` and the words of `data` are placeholders; `{{` and `}}` are braces.

    With `system`, a model gets messages: the system message, the prompt, then each rejected attempt as the model's own message, followed by its
    feedback. `feedback_wrapper` is the text around a guard's feedback; its placeholders are `{feedback}` and `wrapper_names`, the names that a
    table's Prompt section may use. Raises ValueError for any other placeholder in it.
    """

    role: str = ""
    constraints: str = ""
    task: str = ""
    feedback_wrapper: str = DEFAULT_FEEDBACK_WRAPPER
    system: str = ""
    wrapper_names: frozenset[str] = attrs.field(default=frozenset(), kw_only=True)

    def __attrs_post_init__(self) -> None:
        """Raise ValueError for a wrapper with an unknown placeholder, which would fail only after the first rejection."""
        _require_known("feedback_wrapper", self.feedback_wrapper, {FEEDBACK, *self.wrapper_names})

    def render(self, context: "Context", budget: TokenBudget | None = None) -> str:
        """Write the prompt, as the function `render` does."""
        return render(self, context, budget)

    def require(self, names: Collection[str]) -> None:
        """Raise ValueError for a placeholder that is neither `specification` nor one of these names."""
        for part in ("system", "role", "constraints", "task"):
            _require_known(part, getattr(self, part), {SPECIFICATION, *names})


def _require_known(part: str, text: str, names: Collection[str]) -> None:
    """Raise ValueError for the first placeholder of a text that is not among the names."""
    for name in sorted(placeholders(text) - set(names)):
        hint = f"{closest(name, names)} (for a brace in the text, write {{{{ or }}}})"
        raise ValueError(f"nothing fills in the placeholder {{{name}}} of {part}; {hint}")


def render(template: PromptTemplate | None, context: "Context", budget: TokenBudget | None = None) -> str:
    """Write the prompt: SYSTEM, ROLE, CONSTRAINTS, CONTEXT, HISTORY, TASK in this order, without empty parts.

    The specification and the artifacts that the step uses are in CONTEXT, unless a placeholder puts them elsewhere. Without a template the prompt
    is a plain text: specification, previous attempt, feedback.

    To fit a budget, the oldest attempts are left out first, and a line says how many; repeated feedback is written once; the text that was
    rejected last is left out at the very end, its feedback never. Raises GenerationError if the rest is still too long. The same arguments give the
    same prompt.
    """
    prompt: Writable = _Plain(context) if template is None else _TemplatePrompt(template, context)
    return prompt.text(None if budget is None else fit_history(prompt, budget))


def messages_of(
    template: PromptTemplate | None, context: "Context", budget: TokenBudget | None = None
) -> list[dict[str, str]]:
    """Write the prompt as messages in OpenAI's format: one message with role `user`, unless the template has a `system` text.

    With a `system` text, that is the first message, the prompt without its history the second; then each attempt follows as the model's own message
    (`assistant`), and its feedback as the answer (`user`). The budget works as in `render`.
    """
    if template is None or not template.system:
        return [{"role": "user", "content": render(template, context, budget)}]
    prompt = _TemplatePrompt(template, context)
    return prompt.messages(None if budget is None else fit_history(prompt, budget))


def _newest_attempts(context: "Context", attempts: int) -> list[tuple[int, str, str]]:
    """Return number, text and feedback of the newest attempts, oldest first. Feedback that a later attempt repeats is replaced by a reference."""
    count = len(context.feedback_history)
    pairs = zip(range(count, 0, -1), reversed(context.feedback_history[count - attempts :]), strict=False)
    newest: dict[str, int] = {}
    entries = []
    for number, (text, feedback) in pairs:
        again = newest.setdefault(feedback, number) if feedback.strip() else number
        entries.append((number, text, feedback if again == number else f"(The same as for attempt {again}.)"))
    return entries[::-1]


def _omission_line(context: "Context", cut: HistoryCut) -> str:
    """Return a line with the number of attempts that are left out; "" if none is."""
    count = len(context.feedback_history) - cut.attempts
    return f"({count} earlier attempt{' is' if count == 1 else 's are'} left out.)" if count and cut.attempts else ""


class _TemplatePrompt:
    """A prompt with a template."""

    def __init__(self, template: PromptTemplate, context: "Context") -> None:
        self.context = context
        self._template = template
        self._values = {SPECIFICATION: context.specification}
        self._values |= {name: artifact.content for name, artifact in context.dependencies.items()}
        self._values |= context.data

    @property
    def has_history(self) -> bool:
        return bool(self.context.feedback_history)

    def parts(self) -> dict[str, str]:
        """Return the parts that are never left out, by name."""
        template = self._template
        own = {
            "system": template.system,
            "role": template.role,
            "constraints": template.constraints,
            "task": template.task,
        }
        return {**self._values, "Omega": self.context.ambient.constraints, **own}

    def text(self, history: HistoryCut | None) -> str:
        """Return the prompt with this part of the history; with None, the whole history, word for word."""
        parts = {"SYSTEM": self._system(), **self._parts(self._history(history))}
        return "\n\n".join(f"# {heading}\n{text}" for heading, text in parts.items() if text)

    def messages(self, history: HistoryCut | None) -> list[dict[str, str]]:
        """Return the prompt as messages, with this part of the history."""
        left_out = "" if history is None else _omission_line(self.context, history)
        task = "\n\n".join(f"# {heading}\n{text}" for heading, text in self._parts(left_out).items() if text)
        messages = [{"role": "system", "content": self._system()}, {"role": "user", "content": task}]
        for _, content, feedback in self._attempts(history):
            messages.append({"role": "assistant", "content": content})
            messages.append({"role": "user", "content": self._feedback_text(feedback)})
        return messages

    def _system(self) -> str:
        return fill(self._template.system, self._values)

    def _parts(self, history: str) -> dict[str, str]:
        template, values = self._template, self._values
        texts = (template.system, template.role, template.constraints, template.task)
        names = frozenset[str]().union(*map(placeholders, texts))
        return {
            "ROLE": fill(template.role, values),
            "CONSTRAINTS": fill(template.constraints, values),
            "CONTEXT": self._ambient(names),
            "HISTORY": history,
            "TASK": fill(template.task, values) or self.context.specification,
        }

    def _ambient(self, names: frozenset[str]) -> str:
        """Return Omega, and the specification and artifacts that no placeholder puts elsewhere."""
        parts = [self.context.ambient.constraints]
        if SPECIFICATION not in names and self.context.specification:
            parts.append(f"Specification:\n{self.context.specification}")
        others = (name for name in self.context.dependencies if name not in names)
        parts.extend(f"{name}:\n{self._values[name]}" for name in others)
        return "\n\n".join(part for part in parts if part)

    def _history(self, history: HistoryCut | None) -> str:
        left_out = "" if history is None else _omission_line(self.context, history)
        return "\n\n".join(filter(None, (left_out, *(self._attempt(*each) for each in self._attempts(history)))))

    def _attempts(self, history: HistoryCut | None) -> list[tuple[int, str, str]]:
        """Return number, text and feedback of the attempts in this part of the history, oldest first."""
        if history is None:
            return [(number, *pair) for number, pair in enumerate(self.context.feedback_history, start=1)]
        attempts = _newest_attempts(self.context, history.attempts)
        if attempts and history.text == "left out":
            attempts[-1] = attempts[-1][0], _TEXT_LEFT_OUT, attempts[-1][2]
        return attempts

    def _attempt(self, number: int, content: str, feedback: str) -> str:
        return f"--- Attempt {number} ---\n{content}\n{self._feedback_text(feedback)}"

    def _feedback_text(self, feedback: str) -> str:
        return fill(self._template.feedback_wrapper, {**self._values, FEEDBACK: feedback})


class _Plain:
    """A prompt without a template."""

    def __init__(self, context: "Context") -> None:
        self.context = context

    @property
    def has_history(self) -> bool:
        return bool(self.context.feedback_history) or self.context.current_artifact is not None

    def parts(self) -> dict[str, str]:
        """Return the parts that are never left out, by name."""
        dependencies = {name: artifact.content for name, artifact in self.context.dependencies.items()}
        return {SPECIFICATION: self.context.specification, **dependencies, "Omega": self.context.ambient.constraints}

    def text(self, history: HistoryCut | None) -> str:
        """Return the prompt with this part of the history; with None, the whole history, word for word."""
        context = self.context
        parts = [context.ambient.constraints, context.specification]
        parts.extend(f"{name}:\n{artifact.content}" for name, artifact in context.dependencies.items())
        if context.current_artifact is not None and (history is None or history.text != "none"):
            attempt = context.current_artifact if history is None or history.text == "whole" else _TEXT_LEFT_OUT
            parts.append(f"Previous attempt:\n{attempt}")
        if lines := self._feedback(history):
            parts.append("Feedback:\n" + "\n".join(lines))
        return "\n\n".join(part for part in parts if part)

    def _feedback(self, history: HistoryCut | None) -> list[str]:
        if history is None:
            pairs = enumerate(self.context.feedback_history, start=1)
            return [f"Attempt {number}: {feedback}" for number, (_, feedback) in pairs]
        lines = (
            f"Attempt {number}: {feedback}" for number, _, feedback in _newest_attempts(self.context, history.attempts)
        )
        return [*filter(None, [_omission_line(self.context, history)]), *lines]


# --- interfaces ---


class GeneratorInterface(ABC):
    """a_gen of Definition 6: anything that makes an artifact for a context, such as a model or a whole agent.

    `blocks` may be False for a generator that returns at once; it is then called in place instead of in a thread.
    """

    blocks: bool = True

    @abstractmethod
    def generate(self, context: Context, template: PromptTemplate | None = None) -> Artifact:
        """Return an artifact with `content` and `usage`. Raises GenerationError."""


class AsyncGeneratorInterface(GeneratorInterface):
    """A generator with an async method, which runs use: when a time limit ends the effect, the request to the model ends with it."""

    @abstractmethod
    async def agenerate(self, context: Context, template: PromptTemplate | None = None) -> Artifact:
        """Do the same in a running event loop, without blocking it. When cancelled, it leaves nothing behind."""


class GuardInterface(ABC):
    """G of Definition 6: judges an artifact, given the artifacts that its step uses.

    `blocks` may be False for a guard that returns at once; it is then called in place instead of in a thread.
    """

    blocks: bool = True

    @abstractmethod
    def validate(self, artifact: Artifact, **dependencies: Any) -> GuardResult | Awaitable[GuardResult]:  # noqa: ANN401  (JSON)
        """Return the verdict; this may be an async method. An exception means that the guard itself failed; it is never a verdict.

        `dependencies` are the artifacts that the step uses, and the JSON values in the column `uses` of Guards, by name.
        """


def required_verdict(name: str, result: object) -> GuardResult:
    """Return the result of a guard. Raises TypeError if it is not a GuardResult."""
    if not isinstance(result, GuardResult):
        msg = f"guard {name} gave {'None' if result is None else type(result).__name__}, not a GuardResult"
        raise TypeError(msg)
    return result


# --- kinds of guards and generators ---

#: The types of options, with their words in messages.
_TYPES: dict[object, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    tuple[str, ...]: "names separated by commas",
}


@attrs.frozen
class Option:
    """One option of a kind. `default` is `attrs.NOTHING` if the table must have it."""

    name: str
    type: Any
    default: object = attrs.NOTHING

    @property
    def form(self) -> str:
        """Return the words for its type: `a number`."""
        return _TYPES[self.type]

    @property
    def is_required(self) -> bool:
        """Return whether the table must have it."""
        return self.default is attrs.NOTHING

    def parse(self, text: str) -> object:
        """Read the text of a cell. Raises ValueError or KeyError if it is not of the option's type."""
        if self.type is bool:
            return {"true": True, "yes": True, "false": False, "no": False}[text.lower()]
        if self.type == tuple[str, ...]:
            return tuple(part.strip() for part in text.split(",") if part.strip())
        return self.type(text)


@attrs.frozen
class ComponentKind:
    """A named class or function that builds a guard or a generator.

    `supplied_arguments` do not come from the options cell. `description` is the first paragraph of the docstring, in one line.
    """

    name: str
    build: Callable[..., Any]
    options: tuple[Option, ...]
    supplied_arguments: frozenset[str]
    description: str

    def arguments(self, cells: Iterable[tuple[str, str]], owner: str, span: Span | None) -> dict[str, object]:
        """Turn an options cell into arguments. Raises BindingError for unknown, missing and ill-typed options."""
        options = {option.name: option for option in self.options}
        arguments: dict[str, object] = {}
        for name, text in cells:
            if name not in options:
                raise BindingError(
                    f"{owner} is of kind {self.name}, which has no option '{name}'", span, closest(name, options)
                )
            arguments[name] = _parse_option(options[name], text, owner, span)
        for option in self.options:
            if option.is_required and option.name not in arguments:
                form = f"{option.name} = {option.form}"
                raise BindingError(
                    f"{owner} is of kind {self.name}, which needs the option '{option.name}'", span, form
                )
        return arguments


def kind_of(name: str, build: Callable[..., Any], suppliable: frozenset[str]) -> ComponentKind:
    """Return the kind of a class or function: every named argument is an option, except those in `suppliable`.

    Raises TypeError for an argument of a type that an options cell cannot hold.
    """
    function = build.__init__ if inspect.isclass(build) else build
    hints = typing.get_type_hints(function)
    options, other_arguments = [], []
    for parameter in inspect.signature(build).parameters.values():
        if parameter.name in suppliable:
            other_arguments.append(parameter.name)
        else:
            options.append(_option(parameter, hints.get(parameter.name, str), name))
    description = " ".join((inspect.getdoc(build) or "").partition("\n\n")[0].split())
    return ComponentKind(name, build, tuple(options), frozenset(other_arguments), description)


def _option(parameter: inspect.Parameter, hint: Any, kind: str) -> Option:  # noqa: ANN401  # a type hint
    if isinstance(hint, types.UnionType):
        hint = _without_none(typing.get_args(hint))
    if hint not in _TYPES or parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        raise TypeError(
            f"argument '{parameter.name}' of kind {kind} cannot be an option; an option can only be: {'; '.join(_TYPES.values())}"
        )
    return Option(parameter.name, hint, attrs.NOTHING if parameter.default is parameter.empty else parameter.default)


def _without_none(parts: Sequence[Any]) -> Any:  # noqa: ANN401  # a type hint
    members = [part for part in parts if part is not type(None)]
    return members[0] if len(members) == 1 else tuple(members)


def _parse_option(option: Option, text: str, owner: str, span: Span | None) -> object:
    try:
        return option.parse(text.strip())
    except (ValueError, KeyError):
        raise BindingError(f"option '{option.name}' of {owner} is '{text}', not {option.form}", span) from None
