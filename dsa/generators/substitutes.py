"""Generators without a model: scripted replies, a function, or a program of your own.

`ScriptedGenerator` returns replies that were written in advance, for tests and for runs without a model. `load_script` reads them from a Markdown
file: every fenced block outside of lists and quotations is one reply, in order. Blocks under a heading `## STEP` are the replies for that
step alone; all others are for every other step. A reply that contains a fence needs a longer one around it.

`FunctionGenerator` takes a function of the prompt, `CommandGenerator` a command. A failure of the program is a GenerationError.
"""

import inspect
import os
import shlex
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from markdown_it import MarkdownIt

from dsa.edge.processes import run_program
from dsa.errors import DocumentError, DsaError
from dsa.generators.model_options import require_bounds
from dsa.runtime.content import Artifact, Context, GeneratorInterface, PromptTemplate, render
from dsa.runtime.generation import GenerationError, ModelUnavailable, Usage


class ScriptedGenerator(GeneratorInterface):
    """Returns the replies in order, each once. Raises GenerationError when none is left.

    `steps` has replies for single steps: a step that is in it (Context.step) gets those, all others share
    `texts`. Safe to call from several threads.
    """

    blocks = False

    def __init__(
        self, texts: Iterable[str] = (), steps: Mapping[str, Iterable[str]] | None = None, *, source: str = "the script"
    ) -> None:
        self._queues = {"": list(texts)} | {step: list(replies) for step, replies in (steps or {}).items()}
        self._used_counts = dict.fromkeys(self._queues, 0)
        self._source = source
        self._lock = threading.Lock()

    def generate(self, context: Context, template: PromptTemplate | None = None) -> Artifact:  # noqa: ARG002  # the interface
        """Return the next reply."""
        queue = context.step if context.step in self._queues else ""
        with self._lock:
            count = self._used_counts[queue]
            if count == len(self._queues[queue]):
                whose = f" for step {context.step}" if queue else ""
                why = f"{self._source} has no reply left{whose}: all {count} are used; add a fenced block."
                raise GenerationError(why, "exhausted")
            self._used_counts[queue] += 1
        return Artifact(content=self._queues[queue][count], usage=Usage("scripted", seconds=0.0, cost_usd=0.0))

    def skip(self, step: str) -> None:
        """Skip the next reply for a step, because a resumed run has used it before."""
        queue = step if step in self._queues else ""
        with self._lock:
            self._used_counts[queue] = min(self._used_counts[queue] + 1, len(self._queues[queue]))


def load_script(path: str | Path) -> ScriptedGenerator:
    """Read a script. Raises DocumentError for a file that cannot be read or has no reply."""
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise DocumentError(str(path), f"the script cannot be read: {reason}") from error
    steps = parse_script(text)
    if not any(steps.values()):
        raise DocumentError(str(path), "the script has no reply: write each reply as a fenced block (```)")
    return ScriptedGenerator(steps.pop(""), steps, source=str(path))


def parse_script(text: str) -> dict[str, list[str]]:
    """Return the replies of a script by step; those for all others under the empty name."""
    replies: dict[str, list[str]] = {"": []}
    tokens = MarkdownIt("commonmark").parse(text)
    step = ""
    for token, following in zip(tokens, [*tokens, None][1:], strict=True):
        if token.type == "heading_open" and token.level == 0 and token.tag in {"h1", "h2"}:
            step = following.content.strip("` ") if following and token.tag == "h2" else ""
        elif token.type == "fence" and token.level == 0:
            replies.setdefault(step, []).append(token.content)
    return replies


_MOST_BYTES = 1_000_000
_MOST_SAID = 300
_MEANT_ASYNC = "; a FunctionGenerator cannot await it: derive a class from AsyncGeneratorInterface, with `agenerate` beside `generate`"


class FunctionGenerator(GeneratorInterface):
    """Calls a function with the rendered prompt; it returns a text, or an Artifact.

    Raises TypeError for anything else, and for an async function: use an AsyncGeneratorInterface for one.
    """

    def __init__(self, function: Callable[[str], str | Artifact]) -> None:
        self._name = getattr(function, "__name__", type(function).__name__)
        if not callable(function):
            raise TypeError(f"a FunctionGenerator needs a function that takes the prompt, but got a {self._name}")
        if any(map(_is_async, (function, type(function).__call__))):
            raise TypeError(f"{self._name} is an async function{_MEANT_ASYNC}")
        self._function = function

    def generate(self, context: Context, template: PromptTemplate | None = None) -> Artifact:
        """Call it. Errors that it raises pass through."""
        result: object = self._function(render(template, context))
        if isinstance(result, Artifact):
            return result
        if not isinstance(result, str):
            if inspect.iscoroutine(result):
                result.close()
                raise TypeError(f"{self._name} gave a coroutine{_MEANT_ASYNC}")
            raise TypeError(f"{self._name} gave {type(result).__name__}, not a text or an Artifact")
        return Artifact(result)


def _is_async(function: object) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)


class CommandGenerator(GeneratorInterface):
    """Runs a program with the rendered prompt on its standard input; the artifact's content is what it writes to its standard output.

    `command` is split as a shell does, and no shell is started; a program without a slash is looked up in PATH, one with a slash from
    `document_folder`, or the working folder. It is your own program and runs with your rights. `timeout_s` limits one call, `most_bytes` what it may write.
    Raises ValueError if there is no command or no such program, and for numbers that make no sense.
    """

    def __init__(
        self,
        command: str,
        *,
        timeout_s: float = 120.0,
        most_bytes: int = _MOST_BYTES,
        document_folder: Path | None = None,
    ) -> None:
        require_bounds(temperature=0.0, max_tokens=None, timeout_s=timeout_s)
        if most_bytes < 1:
            raise ValueError(f"most_bytes = {most_bytes} is too few: it must be at least 1")
        words = shlex.split(command)
        if not words:
            raise ValueError("the command is empty")
        self._program = words[0]
        self._command = [_find_program(words[0], document_folder or Path()), *words[1:]]
        self._timeout_s, self._most_bytes = timeout_s, most_bytes

    def generate(self, context: Context, template: PromptTemplate | None = None) -> Artifact:
        """Run it. Raises ModelUnavailable if it cannot be started, GenerationError if it fails or writes no text."""
        prompt = render(template, context).encode("utf-8", "replace")
        program, began_s = self._program, time.monotonic()
        try:
            run = run_program(self._command, prompt, timeout_s=self._timeout_s, most_bytes=self._most_bytes)
        except DsaError as error:
            raise ModelUnavailable(str(error)) from error
        if run.end == "timeout":
            raise GenerationError(f"{program} was stopped after {self._timeout_s:g} s.", "timeout")
        if run.end == "flooded":
            raise GenerationError(f"{program} wrote more than {self._most_bytes:,} bytes.", "bad_answer")
        if run.code:
            how = f"was killed by signal {-run.code}" if run.code < 0 else f"ended with {run.code}"
            complaint = " ".join(run.complaints.decode("utf-8", "replace").split())[-_MOST_SAID:]
            raise GenerationError(f"{program} {how}{f': {complaint}' if complaint else ''}", "failed")
        try:
            content = run.output.decode("utf-8")
        except UnicodeDecodeError as error:
            raise GenerationError(
                f"{program} wrote text that is not UTF-8 (byte {error.start}).", "bad_answer"
            ) from error
        if not content.strip():
            raise GenerationError(f"{program} wrote nothing.", "bad_answer")
        return Artifact(content, usage=Usage(model=program, seconds=time.monotonic() - began_s))


def _find_program(name: str, folder: Path) -> str:
    """Return the path of a program: from a folder if the name has a slash, else from PATH. Raises ValueError if there is none."""
    program = os.path.join(folder, Path(name)) if "/" in name else name  # noqa: PTH118  (keeps a slash, where PATH is not asked)
    path = shutil.which(program)
    if path is None:
        raise ValueError(f"there is no program '{program}': write its path, or install it in a folder of PATH")
    return os.path.abspath(path)  # noqa: PTH100  (links and what stands behind them may have names of their own)
