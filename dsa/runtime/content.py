"""Kinds of guards and generators: a name for a class, and the options that a table may give it.

Takes a class or function and reads its signature; gives a `ComponentKind` that turns the texts of an options cell into
arguments. It knows neither guards nor generators: `dsa.guards.guard_kinds` and `dsa.generators.generator_kinds` list theirs.

What a generator is told: a template and a context, written as one text.

Takes a template and the frozen values of `dsa.runtime.content`, gives a string. It knows no model; who counts tokens is handed in. Order and content
are those of the agent program's PromptTemplate, with what it leaves out put in: the specification, the rejected
artifacts, the artifacts that the step uses.

What a generator is given and gives, and what a guard says: the paper's objects as frozen values.

Names and fields are those of the agent program (seed 000; Definitions 2, 3, 5 and 6 of the paper). This module
knows no model, no file and no process: `dsa.generators` and `dsa.guards` implement the two interfaces.
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
from dsa.runtime.prompt_budget import HistoryCut, TokenBudget, Writable, fitted
from dsa.runtime.secrets import marked
from dsa.text import closest

#: What an option may be, and how a message calls it.
_TYPES: dict[object, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    tuple[str, ...]: "names separated by commas",
}


@attrs.frozen
class Option:
    """One option of a kind; `default` is `attrs.NOTHING` when the table must give it."""

    name: str
    type: Any
    default: object = attrs.NOTHING

    @property
    def form(self) -> str:
        """Return what it may be: `a number`."""
        return _TYPES[self.type]

    @property
    def is_required(self) -> bool:
        """Return whether the table must give it."""
        return self.default is attrs.NOTHING

    def parse(self, text: str) -> object:
        """Read the text of a cell; ValueError when it is not of the option's type."""
        if self.type is bool:
            return {"true": True, "yes": True, "false": False, "no": False}[text.lower()]
        if self.type == tuple[str, ...]:
            return tuple(part.strip() for part in text.split(",") if part.strip())
        return self.type(text)


@attrs.frozen
class ComponentKind:
    """A name for what can be built. `supplied` are the arguments that come from elsewhere than the options cell.

    `description` is the first paragraph of its docstring, in one line.
    """

    name: str
    build: Callable[..., Any]
    options: tuple[Option, ...]
    supplied: frozenset[str]
    description: str

    def arguments(self, given: Iterable[tuple[str, str]], owner: str, span: Span | None) -> dict[str, object]:
        """Turn an options cell into arguments. Raises BindingError for unknown, missing and ill-typed options."""
        known = {option.name: option for option in self.options}
        arguments: dict[str, object] = {}
        for name, text in given:
            if name not in known:
                raise BindingError(
                    f"{owner} is of kind {self.name}, which has no option '{name}'", span, closest(name, known)
                )
            arguments[name] = _parsed(known[name], text, owner, span)
        for option in self.options:
            if option.is_required and option.name not in arguments:
                form = f"{option.name} = {option.form}"
                raise BindingError(
                    f"{owner} is of kind {self.name}, which needs the option '{option.name}'", span, form
                )
        return arguments


def kind_of(name: str, build: Callable[..., Any], suppliable: frozenset[str]) -> ComponentKind:
    """Read a kind off a class or function: every named argument is an option unless it is among `suppliable`.

    TypeError when an argument has a type that no options cell can give.
    """
    described = build.__init__ if inspect.isclass(build) else build
    hints = typing.get_type_hints(described)
    options, supplied = [], []
    for parameter in inspect.signature(build).parameters.values():
        if parameter.name in suppliable:
            supplied.append(parameter.name)
        else:
            options.append(_option(parameter, hints.get(parameter.name, str), name))
    description = " ".join((inspect.getdoc(build) or "").partition("\n\n")[0].split())
    return ComponentKind(name, build, tuple(options), frozenset(supplied), description)


def _option(parameter: inspect.Parameter, hint: Any, kind: str) -> Option:  # noqa: ANN401  # a type hint
    if isinstance(hint, types.UnionType):
        hint = _without_none(typing.get_args(hint))
    if hint not in _TYPES or parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        raise TypeError(
            f"argument '{parameter.name}' of kind {kind} can be no option: it is none of: {'; '.join(_TYPES.values())}"
        )
    return Option(parameter.name, hint, attrs.NOTHING if parameter.default is parameter.empty else parameter.default)


def _without_none(parts: Sequence[Any]) -> Any:  # noqa: ANN401  # a type hint
    kept = [part for part in parts if part is not type(None)]
    return kept[0] if len(kept) == 1 else tuple(kept)


def _parsed(option: Option, text: str, owner: str, span: Span | None) -> object:
    try:
        return option.parse(text.strip())
    except (ValueError, KeyError):
        raise BindingError(f"option '{option.name}' of {owner} is '{text}', not {option.form}", span) from None


_TEXT_LEFT_OUT = "(Its text is left out: it is too long.)"


def placeholders(text: str) -> frozenset[str]:
    """Return the words of the placeholders in a text; `{{` is a brace and begins none."""
    return frozenset(" ".join(match[1].split()) for match in PLACEHOLDER.finditer(text) if match[1])


def fill(text: str, values: Mapping[str, str]) -> str:
    """Put values in the place of `{name}`; `{{` and `}}` become braces.

    One pass: what is put in is never looked at again, so braces in artifacts stay as they are. ValueError when a
    placeholder has no value.
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


DEFAULT_FEEDBACK_WRAPPER = "The attempt above was rejected:\n{feedback}\nWrite a new version that mends this."


@attrs.frozen(field_transformer=immutable)
class PromptTemplate:
    """The parts of a prompt. `{specification}`, the names of `dependencies` and the words of `data` are placeholders, `{{` and `}}` braces.

    With `system` a model is sent messages: that, the prompt, then each rejected attempt as the model's own, and its feedback. `feedback_wrapper` is put
    round what a guard has said: it has the placeholder `{feedback}`, and those of `wrapper_names`, which a table's Prompt section may have. ValueError for any other.
    """

    role: str = ""
    constraints: str = ""
    task: str = ""
    feedback_wrapper: str = DEFAULT_FEEDBACK_WRAPPER
    system: str = ""
    wrapper_names: frozenset[str] = attrs.field(default=frozenset(), kw_only=True)

    def __attrs_post_init__(self) -> None:
        """Refuse a wrapper that could not be filled in, and so would fail after the first rejection."""
        _require_known("feedback_wrapper", self.feedback_wrapper, {FEEDBACK, *self.wrapper_names})

    def render(self, context: "Context", budget: TokenBudget | None = None) -> str:
        """Write the prompt, as the function `render` does."""
        return render(self, context, budget)

    def require(self, names: Collection[str]) -> None:
        """Raise ValueError for a placeholder that is neither the specification nor one of these names."""
        for part in ("system", "role", "constraints", "task"):
            _require_known(part, getattr(self, part), {SPECIFICATION, *names})


def _require_known(part: str, text: str, names: Collection[str]) -> None:
    """Raise ValueError for the first placeholder of a text that has another name."""
    for name in sorted(placeholders(text) - set(names)):
        hint = f"{closest(name, names)} a brace is written {{{{ or }}}}"
        raise ValueError(f"nothing fills in the placeholder {{{name}}} of {part}; {hint}")


def render(template: PromptTemplate | None, context: "Context", budget: TokenBudget | None = None) -> str:
    """Write the prompt: SYSTEM, ROLE, CONSTRAINTS, CONTEXT, HISTORY, TASK in this order, empty parts left out.

    The specification and the artifacts that the step uses stand in CONTEXT unless a placeholder puts them
    elsewhere. Without a template it is a plain text: specification, previous attempt, feedback.

    Within a budget the history gives way, the oldest attempts first, and a line says how many are left out; feedback that came several
    times is said once; the text that was rejected last gives way as the very last, its feedback never. PromptTooLong when what is left has
    more tokens all the same. The same arguments give the same prompt.
    """
    written: Writable = _Plain(context) if template is None else _TemplatePrompt(template, context)
    return written.text(None if budget is None else fitted(written, budget))


def messages_of(
    template: PromptTemplate | None, context: "Context", budget: TokenBudget | None = None
) -> list[dict[str, str]]:
    """Write the prompt as messages in OpenAI's format; it is one of role `user`, unless the template has a text for `system`.

    Then that is the first, the prompt without its history the second, and each attempt follows as the model's own (`assistant`) and its
    feedback as the answer to it (`user`). A budget is as for `render`.
    """
    if template is None or not template.system:
        return [{"role": "user", "content": render(template, context, budget)}]
    written = _TemplatePrompt(template, context)
    return written.messages(None if budget is None else fitted(written, budget))


def _said(context: "Context", attempts: int) -> list[tuple[int, str, str]]:
    """Return number, text and feedback of the newest attempts, oldest first; feedback that comes again later is only pointed at."""
    count = len(context.feedback_history)
    numbered = zip(range(count, 0, -1), reversed(context.feedback_history[count - attempts :]), strict=False)
    newest: dict[str, int] = {}
    said = []
    for number, (text, feedback) in numbered:
        again = newest.setdefault(feedback, number) if feedback.strip() else number
        said.append((number, text, feedback if again == number else f"(The same as for attempt {again}.)"))
    return said[::-1]


def _left_out(context: "Context", shown: HistoryCut) -> str:
    """Write how many attempts are left out; nothing when none is."""
    count = len(context.feedback_history) - shown.attempts
    return f"({count} earlier attempt{' is' if count == 1 else 's are'} left out.)" if count and shown.attempts else ""


class _TemplatePrompt:
    """A prompt by a template."""

    def __init__(self, template: PromptTemplate, context: "Context") -> None:
        self.context = context
        self._template = template
        self._values = {SPECIFICATION: context.specification}
        self._values |= {name: artifact.content for name, artifact in context.dependencies.items()}
        self._values |= context.data

    @property
    def rejected(self) -> bool:
        return bool(self.context.feedback_history)

    def parts(self) -> dict[str, str]:
        """Return what is never left out, by name."""
        template = self._template
        own = {
            "system": template.system,
            "role": template.role,
            "constraints": template.constraints,
            "task": template.task,
        }
        return {**self._values, "Omega": self.context.ambient.constraints, **own}

    def text(self, shown: HistoryCut | None) -> str:
        """Write the prompt with this of the history; with None all of it, word by word."""
        parts = {"SYSTEM": self._system(), **self._parts(self._history(shown))}
        return "\n\n".join(f"# {heading}\n{text}" for heading, text in parts.items() if text)

    def messages(self, shown: HistoryCut | None) -> list[dict[str, str]]:
        """Write it as messages, with this of the history."""
        left_out = "" if shown is None else _left_out(self.context, shown)
        task = "\n\n".join(f"# {heading}\n{text}" for heading, text in self._parts(left_out).items() if text)
        found = [{"role": "system", "content": self._system()}, {"role": "user", "content": task}]
        for _, content, feedback in self._attempts(shown):
            found.append({"role": "assistant", "content": content})
            found.append({"role": "user", "content": self._wrapped(feedback)})
        return found

    def _system(self) -> str:
        return fill(self._template.system, self._values)

    def _parts(self, history: str) -> dict[str, str]:
        template, values = self._template, self._values
        texts = (template.system, template.role, template.constraints, template.task)
        placed = frozenset[str]().union(*map(placeholders, texts))
        return {
            "ROLE": fill(template.role, values),
            "CONSTRAINTS": fill(template.constraints, values),
            "CONTEXT": self._ambient(placed),
            "HISTORY": history,
            "TASK": fill(template.task, values) or self.context.specification,
        }

    def _ambient(self, placed: frozenset[str]) -> str:
        """Write Omega, and what no placeholder has put elsewhere."""
        parts = [self.context.ambient.constraints]
        if SPECIFICATION not in placed and self.context.specification:
            parts.append(f"Specification:\n{self.context.specification}")
        used = (name for name in self.context.dependencies if name not in placed)
        parts.extend(f"{name}:\n{self._values[name]}" for name in used)
        return "\n\n".join(part for part in parts if part)

    def _history(self, shown: HistoryCut | None) -> str:
        left_out = "" if shown is None else _left_out(self.context, shown)
        return "\n\n".join(filter(None, (left_out, *(self._attempt(*each) for each in self._attempts(shown)))))

    def _attempts(self, shown: HistoryCut | None) -> list[tuple[int, str, str]]:
        """Return number, text and feedback of the attempts that are shown, oldest first."""
        if shown is None:
            return [(number, *pair) for number, pair in enumerate(self.context.feedback_history, start=1)]
        said = _said(self.context, shown.attempts)
        if said and shown.text == "left out":
            said[-1] = said[-1][0], _TEXT_LEFT_OUT, said[-1][2]
        return said

    def _attempt(self, number: int, content: str, feedback: str) -> str:
        return f"--- Attempt {number} ---\n{content}\n{self._wrapped(feedback)}"

    def _wrapped(self, feedback: str) -> str:
        return fill(self._template.feedback_wrapper, {**self._values, FEEDBACK: feedback})


class _Plain:
    """A prompt without a template."""

    def __init__(self, context: "Context") -> None:
        self.context = context

    @property
    def rejected(self) -> bool:
        return bool(self.context.feedback_history) or self.context.current_artifact is not None

    def parts(self) -> dict[str, str]:
        """Return what is never left out, by name."""
        used = {name: artifact.content for name, artifact in self.context.dependencies.items()}
        return {SPECIFICATION: self.context.specification, **used, "Omega": self.context.ambient.constraints}

    def text(self, shown: HistoryCut | None) -> str:
        """Write the prompt with this of the history; with None all of it, word by word."""
        context = self.context
        parts = [context.ambient.constraints, context.specification]
        parts.extend(f"{name}:\n{artifact.content}" for name, artifact in context.dependencies.items())
        if context.current_artifact is not None and (shown is None or shown.text != "none"):
            rejected = context.current_artifact if shown is None or shown.text == "whole" else _TEXT_LEFT_OUT
            parts.append(f"Previous attempt:\n{rejected}")
        if lines := self._feedback(shown):
            parts.append("Feedback:\n" + "\n".join(lines))
        return "\n\n".join(part for part in parts if part)

    def _feedback(self, shown: HistoryCut | None) -> list[str]:
        if shown is None:
            numbered = enumerate(self.context.feedback_history, start=1)
            return [f"Attempt {number}: {feedback}" for number, (_, feedback) in numbered]
        said = (f"Attempt {number}: {feedback}" for number, _, feedback in _said(self.context, shown.attempts))
        return [*filter(None, [_left_out(self.context, shown)]), *said]


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

    `review` says of a fatal verdict that nothing is wrong with the artifact: a person has to decide. It changes what people are
    shown, and no row. ValueError for a review that is not fatal; TypeError for anything but a bool, a str and two bools: what is
    merely true or false is no verdict.
    """

    passed: bool
    feedback: str = ""
    fatal: bool = False
    review: bool = False

    def __attrs_post_init__(self) -> None:
        """Refuse what is no verdict, and the one combination that means nothing."""
        words = (self.passed, self.fatal, self.review)
        if not (all(isinstance(word, bool) for word in words) and isinstance(self.feedback, str)):
            msg = f"{self} is no verdict: `passed`, `fatal` and `review` are True or False, `feedback` is a text"
            raise TypeError(msg)
        if self.passed and self.fatal:
            msg = "a GuardResult cannot be passed and fatal at once"
            raise ValueError(msg)
        if self.review and not self.fatal:
            msg = "a GuardResult that asks for a review is fatal: the row for `fatal` hands it to a person"
            raise ValueError(msg)


class ArtifactRepository(Protocol):
    """R of Definition 2, read-only: every version ever generated."""

    def get_artifact(self, artifact_id: str) -> Artifact:
        """Return one version; KeyError when there is none of that id."""

    def get_provenance(self, artifact_id: str) -> list[Artifact]:
        """Return the versions that lead to this one, oldest first, itself last; KeyError when unknown."""


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
