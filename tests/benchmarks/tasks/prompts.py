"""Prompts: the published benchmark's message, or the prompt that `dsa` writes for any agent.

Takes a context and a template, gives a text. The published message has the task, and the feedback on earlier attempts, but never what they
were; a text of feedback stands there once, however often it was given.
"""

from collections.abc import Callable

from dsa.guards.code import extract_code
from dsa.runtime.content import Context, PromptTemplate, fill, render

Compose = Callable[[Context, PromptTemplate | None], str]


def published_prompt(context: Context, template: PromptTemplate | None) -> str:
    """Write role, task and feedback as the published benchmark does; the role in front of the task, in one message."""
    if template is None:
        template = PromptTemplate(task="{specification}")
    used = {name: extract_code(artifact.content) for name, artifact in context.dependencies.items()}
    task = fill(template.task, {"specification": context.specification, **used})
    asked = f"{template.role}\n\n{task}" if template.role else task
    told = dict.fromkeys(feedback for _, feedback in context.feedback_history)
    if not told:
        return asked
    attempts = "".join(f"\nAttempt {number} failed:\n{feedback}\n" for number, feedback in enumerate(told, start=1))
    closing = "\n=== END FEEDBACK ===\n\nPlease address the issues above and provide corrected code."
    return f"{asked}\n\n=== PREVIOUS ATTEMPTS ===\n{attempts}{closing}"


def agents_prompt(context: Context, template: PromptTemplate | None) -> str:
    """Write what `dsa run` would: with the attempts that were turned down, each with its feedback."""
    return render(template, context)


PROMPTS: dict[str, Compose] = {"published": published_prompt, "dsa": agents_prompt}
