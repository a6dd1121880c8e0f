"""Generate what was written down before: for tests, and for runs without a model.

Takes replies, gives them one by one. `load_script` reads them from a Markdown file: every fenced block that is in no
list or quotation is one reply, in order. Blocks under a heading `## STEP` are the replies for that step alone; all
others are for whoever asks. A reply that holds a fence itself stands in a longer one.
"""

import threading
from collections.abc import Iterable, Mapping
from pathlib import Path

from markdown_it import MarkdownIt

from dsa.errors import DocumentError, GenerationError
from dsa.runtime.content import Artifact, Context, GeneratorInterface, PromptTemplate, Usage


class ScriptedGenerator(GeneratorInterface):
    """Give the replies in order, each once; GenerationError when there is none left.

    `steps` has replies for single steps: a step that is named there (Context.step) is given those, all others share
    `texts`. Safe to call from several threads.
    """

    blocks = False

    def __init__(
        self, texts: Iterable[str] = (), steps: Mapping[str, Iterable[str]] | None = None, *, source: str = "the script"
    ) -> None:
        self._queues = {"": list(texts)} | {step: list(replies) for step, replies in (steps or {}).items()}
        self._used = dict.fromkeys(self._queues, 0)
        self._source = source
        self._lock = threading.Lock()

    def generate(self, context: Context, template: PromptTemplate | None = None) -> Artifact:  # noqa: ARG002  # the interface
        """Give the next reply."""
        queue = context.step if context.step in self._queues else ""
        with self._lock:
            used = self._used[queue]
            if used == len(self._queues[queue]):
                whose = f" for step {context.step}" if queue else ""
                why = f"{self._source} has no reply left{whose}: all {used} are used; add a fenced block."
                raise GenerationError(why, "exhausted")
            self._used[queue] += 1
        return Artifact(content=self._queues[queue][used], usage=Usage("scripted", seconds=0.0, cost_usd=0.0))

    def skip(self, step: str) -> None:
        """Leave out the next reply for a step: a run that goes on was given it before."""
        queue = step if step in self._queues else ""
        with self._lock:
            self._used[queue] = min(self._used[queue] + 1, len(self._queues[queue]))


def load_script(path: str | Path) -> ScriptedGenerator:
    """Read a script. Raises DocumentError for a file that cannot be read or that holds no reply."""
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise DocumentError(str(path), f"the script cannot be read: {reason}") from error
    steps = parse_script(text)
    if not any(steps.values()):
        raise DocumentError(str(path), "the script has no reply: each is a fenced block (```)")
    return ScriptedGenerator(steps.pop(""), steps, source=str(path))


def parse_script(text: str) -> dict[str, list[str]]:
    """Give the replies of a script by step; those for all others under the empty name."""
    replies: dict[str, list[str]] = {"": []}
    tokens = MarkdownIt("commonmark").parse(text)
    step = ""
    for token, following in zip(tokens, [*tokens, None][1:], strict=True):
        if token.type == "heading_open" and token.level == 0 and token.tag in {"h1", "h2"}:
            step = following.content.strip("` ") if following and token.tag == "h2" else ""
        elif token.type == "fence" and token.level == 0:
            replies.setdefault(step, []).append(token.content)
    return replies
