"""Generate with a function or with a program of your own.

Takes a function of the prompt, or a command; gives artifacts. What the program cannot do comes out as GenerationError.
"""

import shlex
import time
from collections.abc import Callable

from dsa.edge.programs import NoProgramError, run_program
from dsa.errors import GenerationError, ModelUnavailable
from dsa.generators.bounds import require_bounds
from dsa.runtime.content import Artifact, Context, GeneratorInterface, PromptTemplate, Usage
from dsa.runtime.prompt import render

_MOST_BYTES = 1_000_000
_MOST_SAID = 300


class FunctionGenerator(GeneratorInterface):
    """Give what a function makes of the rendered prompt: a text, or a whole Artifact. TypeError for anything else."""

    def __init__(self, function: Callable[[str], str | Artifact]) -> None:
        self._function = function

    def generate(self, context: Context, template: PromptTemplate | None = None) -> Artifact:
        """Call it. What it raises passes through."""
        given: object = self._function(render(template, context))
        if isinstance(given, Artifact):
            return given
        if not isinstance(given, str):
            name = getattr(self._function, "__name__", "the function")
            raise TypeError(f"{name} gave {type(given).__name__}, not a text or an Artifact")
        return Artifact(given)


class CommandGenerator(GeneratorInterface):
    """Give the rendered prompt to a program on its standard input; the artifact's content is what it writes to its standard output.

    `command` is split as a shell does, and no shell is started. The program is yours and runs as you do. `timeout_s` bounds one call,
    `most_bytes` what it may write. ValueError for no command, and for numbers that mean nothing.
    """

    def __init__(self, command: str, *, timeout_s: float = 120.0, most_bytes: int = _MOST_BYTES) -> None:
        require_bounds(temperature=0.0, max_tokens=None, timeout_s=timeout_s)
        if most_bytes < 1:
            raise ValueError(f"most_bytes = {most_bytes} is too few: at least 1")
        self._command = shlex.split(command)
        if not self._command:
            raise ValueError("the command is empty")
        self._timeout_s, self._most_bytes = timeout_s, most_bytes

    def generate(self, context: Context, template: PromptTemplate | None = None) -> Artifact:
        """Run it. Raises ModelUnavailable when it cannot be started, GenerationError when it fails or writes no text."""
        prompt = render(template, context).encode("utf-8", "replace")
        program, began_s = self._command[0], time.monotonic()
        try:
            ran = run_program(self._command, prompt, timeout_s=self._timeout_s, most_bytes=self._most_bytes)
        except NoProgramError as error:
            raise ModelUnavailable(str(error)) from error
        if ran.end == "timeout":
            raise GenerationError(f"{program} was stopped after {self._timeout_s:g} s.", "timeout")
        if ran.end == "flooded":
            raise GenerationError(f"{program} wrote more than {self._most_bytes:,} bytes.", "bad_answer")
        if ran.code:
            how = f"was killed by signal {-ran.code}" if ran.code < 0 else f"ended with {ran.code}"
            said = " ".join(ran.complaints.decode("utf-8", "replace").split())[-_MOST_SAID:]
            raise GenerationError(f"{program} {how}{f': {said}' if said else ''}", "failed")
        try:
            content = ran.output.decode("utf-8")
        except UnicodeDecodeError as error:
            raise GenerationError(f"{program} wrote what is no UTF-8 (byte {error.start}).", "bad_answer") from error
        if not content.strip():
            raise GenerationError(f"{program} wrote nothing.", "bad_answer")
        return Artifact(content, usage=Usage(model=program, seconds=time.monotonic() - began_s))
