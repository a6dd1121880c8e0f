"""What a generator is told: a template and a context, written as one text.

Takes a template and the frozen values of `dsa.runtime.content`, gives a string. It knows no model; who counts tokens is handed in. Order and content
are those of the agent program's PromptTemplate, with what it leaves out put in: the specification, the rejected
artifacts, the artifacts that the step uses.
"""

import re
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

import attrs

from dsa.immutable import immutable
from dsa.references import PLACEHOLDER
from dsa.runtime.prompt_budget import Shown, TokenBudget, Writable, fitted
from dsa.uses import FEEDBACK, SPECIFICATION
from dsa.words import closest

if TYPE_CHECKING:  # contexts and generators, which are made of templates
    from dsa.runtime.content import Context

_TEXT_LEFT_OUT = "(Its text is left out: it is too long.)"


def placeholders(text: str) -> frozenset[str]:
    """Give the words of the placeholders in a text; `{{` is a brace and begins none."""
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
    written: Writable = _Plain(context) if template is None else _Templated(template, context)
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
    written = _Templated(template, context)
    return written.messages(None if budget is None else fitted(written, budget))


def _said(context: "Context", attempts: int) -> list[tuple[int, str, str]]:
    """Give number, text and feedback of the newest attempts, oldest first; feedback that comes again later is only pointed at."""
    count = len(context.feedback_history)
    numbered = zip(range(count, 0, -1), reversed(context.feedback_history[count - attempts :]), strict=False)
    newest: dict[str, int] = {}
    said = []
    for number, (text, feedback) in numbered:
        again = newest.setdefault(feedback, number) if feedback.strip() else number
        said.append((number, text, feedback if again == number else f"(The same as for attempt {again}.)"))
    return said[::-1]


def _left_out(context: "Context", shown: Shown) -> str:
    """Write how many attempts are left out; nothing when none is."""
    count = len(context.feedback_history) - shown.attempts
    return f"({count} earlier attempt{' is' if count == 1 else 's are'} left out.)" if count and shown.attempts else ""


class _Templated:
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
        """Give what is never left out, by name."""
        template = self._template
        own = {
            "system": template.system,
            "role": template.role,
            "constraints": template.constraints,
            "task": template.task,
        }
        return {**self._values, "Omega": self.context.ambient.constraints, **own}

    def text(self, shown: Shown | None) -> str:
        """Write the prompt with this of the history; with None all of it, word by word."""
        parts = {"SYSTEM": self._system(), **self._parts(self._history(shown))}
        return "\n\n".join(f"# {heading}\n{text}" for heading, text in parts.items() if text)

    def messages(self, shown: Shown | None) -> list[dict[str, str]]:
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

    def _history(self, shown: Shown | None) -> str:
        left_out = "" if shown is None else _left_out(self.context, shown)
        return "\n\n".join(filter(None, (left_out, *(self._attempt(*each) for each in self._attempts(shown)))))

    def _attempts(self, shown: Shown | None) -> list[tuple[int, str, str]]:
        """Give number, text and feedback of the attempts that are shown, oldest first."""
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
        """Give what is never left out, by name."""
        used = {name: artifact.content for name, artifact in self.context.dependencies.items()}
        return {SPECIFICATION: self.context.specification, **used, "Omega": self.context.ambient.constraints}

    def text(self, shown: Shown | None) -> str:
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

    def _feedback(self, shown: Shown | None) -> list[str]:
        if shown is None:
            numbered = enumerate(self.context.feedback_history, start=1)
            return [f"Attempt {number}: {feedback}" for number, (_, feedback) in numbered]
        said = (f"Attempt {number}: {feedback}" for number, _, feedback in _said(self.context, shown.attempts))
        return [*filter(None, [_left_out(self.context, shown)]), *said]
