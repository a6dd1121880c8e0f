"""What a generator is told: a template and a context, written as one text.

Takes the frozen values of `dsa.runtime.content`, gives a string. It knows no model and no token count. Order and content
are those of the agent program's PromptTemplate, with what it leaves out put in: the specification, the rejected
artifacts, the artifacts that the step uses.
"""

import re
from collections.abc import Mapping

from dsa.runtime.content import Context, PromptTemplate

SPECIFICATION = "specification"
FEEDBACK = "feedback"

_PLACEHOLDER = re.compile(r"\{\{|\{([A-Za-z_][A-Za-z0-9_.]*)\}")


def placeholders(text: str) -> frozenset[str]:
    """Give the names of the placeholders in a text; `{{` is a brace and begins none."""
    return frozenset(match[1] for match in _PLACEHOLDER.finditer(text) if match[1])


def fill(text: str, values: Mapping[str, str]) -> str:
    """Put values in the place of `{name}`; `{{` becomes a brace.

    One pass: what is put in is never looked at again, so braces in artifacts stay as they are. ValueError when a
    placeholder has no value.
    """

    def value(match: re.Match[str]) -> str:
        if match[1] is None:
            return "{"
        if match[1] not in values:
            msg = f"the placeholder {{{match[1]}}} is unknown; known are: {', '.join(sorted(values))}"
            raise ValueError(msg)
        return values[match[1]]

    return _PLACEHOLDER.sub(value, text)


def render(template: PromptTemplate | None, context: Context) -> str:
    """Write the prompt: ROLE, CONSTRAINTS, CONTEXT, HISTORY, TASK in this order, empty parts left out.

    The specification and the artifacts that the step uses stand in CONTEXT unless a placeholder puts them
    elsewhere. Without a template it is a plain text: specification, previous attempt, feedback.
    """
    if template is None:
        return _plain(context)
    values = {SPECIFICATION: context.specification}
    values |= {name: artifact.content for name, artifact in context.dependencies.items()}
    placed = placeholders(template.role) | placeholders(template.constraints) | placeholders(template.task)
    parts = {
        "ROLE": fill(template.role, values),
        "CONSTRAINTS": fill(template.constraints, values),
        "CONTEXT": _ambient(context, values, placed),
        "HISTORY": _history(template, context, values),
        "TASK": fill(template.task, values) or context.specification,
    }
    return "\n\n".join(f"# {heading}\n{text}" for heading, text in parts.items() if text)


def _ambient(context: Context, values: Mapping[str, str], placed: frozenset[str]) -> str:
    """Write Omega, and what no placeholder has put elsewhere."""
    parts = [context.ambient.constraints]
    if SPECIFICATION not in placed and context.specification:
        parts.append(f"Specification:\n{context.specification}")
    used = (name for name in context.dependencies if name not in placed)
    parts.extend(f"{name}:\n{values[name]}" for name in used)
    return "\n\n".join(part for part in parts if part)


def _history(template: PromptTemplate, context: Context, values: Mapping[str, str]) -> str:
    attempts = (
        f"--- Attempt {number} ---\n{content}\n{fill(template.feedback_wrapper, {**values, FEEDBACK: feedback})}"
        for number, (content, feedback) in enumerate(context.feedback_history, start=1)
    )
    return "\n\n".join(attempts)


def _plain(context: Context) -> str:
    parts = [context.ambient.constraints, context.specification]
    parts.extend(f"{name}:\n{artifact.content}" for name, artifact in context.dependencies.items())
    if context.current_artifact is not None:
        parts.append(f"Previous attempt:\n{context.current_artifact}")
    if context.feedback_history:
        lines = (f"Attempt {n}: {feedback}" for n, (_, feedback) in enumerate(context.feedback_history, start=1))
        parts.append("Feedback:\n" + "\n".join(lines))
    return "\n\n".join(part for part in parts if part)
