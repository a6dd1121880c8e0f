"""Generation: what a call to a generator costs, why it fails, and the part of a prompt's history that fits a number of tokens.

The budget takes a prompt that can be written with more or less of its history, and a function that counts tokens; it returns the cut. The module
does not know any model. Without a tokenizer it counts bytes, which is an upper bound.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, Protocol

import attrs

from dsa.errors import DsaError

if TYPE_CHECKING:
    from dsa.runtime.content import Context

_MOST_NAMED = 4
#: Up to this many attempts may be shorter than the line that says that they are left out.
_FEW = 4

# --- costs and errors ---


@attrs.frozen
class Usage:
    """The cost of one artifact. Token counts and dollars are None if the provider did not report them: nothing is guessed, and None is not 0.

    `model` is the requested model, `response_model` the one that answered, "" if the provider does not name it. `retried` has the reasons of the
    tries that failed before the answer, in order. Token counts are those of the answer, `seconds` cover all tries.
    """

    model: str
    seconds: float
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cost_usd: float | None = None
    response_model: str = ""
    retried: tuple[str, ...] = ()


@attrs.frozen
class ServerFault:
    """What a server said when it refused or failed: the HTTP status, the server's message, and how long it asks to wait.

    `again` is false if another try cannot help, although it may after other errors with the same reason.
    """

    status: int | None = None
    detail: str = ""
    wait_s: float | None = None
    again: bool = True


class GenerationError(DsaError):
    """Raised when a generator returns no artifact. `reason` is one stable word, the message one sentence or two.

    `usage` is the cost of an answer without an artifact (cut off, filtered, without text); None if there was no answer. `about` is additional JSON for the
    error step. `server` is what a server said; the code of such an error is `ServerError`.
    """

    def __init__(
        self,
        message: str,
        reason: str = "failed",
        usage: Usage | None = None,
        about: Mapping[str, Any] | None = None,
        server: ServerFault | None = None,
    ) -> None:
        self.reason = reason
        self.usage = usage
        self.about = dict(about or {})
        self.server = server or ServerFault()
        super().__init__(message, code="ServerError" if server else "")


class ModelUnavailable(GenerationError):  # noqa: N818  # it says what is the case
    """Raised when a model, or the package that runs it, is not installed."""

    def __init__(self, message: str) -> None:
        super().__init__(message, reason="unavailable")


# --- prompt budgets ---


def bytes_of(text: str) -> int:
    """Return the size of a text in UTF-8, in bytes.

    A tokenizer that works on bytes never makes more tokens from a text; for English, most make a quarter as many.
    """
    return len(text.encode("utf-8", "surrogatepass"))


@attrs.frozen
class TokenBudget:
    """The most tokens that a prompt may have, and the function that counts them; `counted_by` names it in messages.

    `count` must return the same number for the same text. It counts the prompt's text, without the few tokens that a server adds to each
    message, and without the answer. Raises ValueError for less than 1 token.
    """

    tokens: int
    count: Callable[[str], int] = bytes_of
    counted_by: str = "one token for each byte, the highest possible count"

    def __attrs_post_init__(self) -> None:
        """Raise ValueError for a budget that is too small for any prompt."""
        if self.tokens < 1:
            raise ValueError(f"max_prompt_tokens = {self.tokens} is too few: it must be at least 1")

    def holds(self, text: str) -> bool:
        """Return whether a text fits."""
        return self.count(text) <= self.tokens


@attrs.frozen
class HistoryCut:
    """The part of the history to write: the number of newest attempts, and the form of the text that was rejected last.

    `text` is `whole`, `left out` (a line in its place) or `none`.
    """

    attempts: int
    text: Literal["whole", "left out", "none"] = "whole"


NOTHING = HistoryCut(0, "none")


class Writable(Protocol):
    """A prompt that can be written with more or less of its history."""

    context: "Context"

    @property
    def has_history(self) -> bool:
        """Whether there is a history at all."""

    def parts(self) -> Mapping[str, str]:
        """Return the parts that are never left out, by name."""

    def text(self, history: HistoryCut | None) -> str:
        """Return the prompt with this part of the history; with None, the whole history, word for word."""


def fit_history(prompt: Writable, budget: TokenBudget) -> HistoryCut:
    """Return the largest part of a prompt's history that fits. Raises GenerationError if the rest, or the newest feedback, does not fit.

    The search doubles and halves the number of attempts, so it writes few texts, and reads at most twice as far back as fits.
    """
    if not prompt.has_history:
        bare = prompt.text(NOTHING)
        if budget.holds(bare):
            return NOTHING
        raise _too_long(prompt, budget, budget.count(bare), "without its history")
    attempts = len(prompt.context.feedback_history)
    most = _most(attempts, lambda number: budget.holds(prompt.text(HistoryCut(number))))
    if most:
        return HistoryCut(most)
    sizes = []
    for cut in _least(attempts):
        text = prompt.text(cut)
        sizes.append(budget.count(text))
        if sizes[-1] <= budget.tokens:
            return cut
    raise _too_long(prompt, budget, min(sizes), "with the smallest part of its history")


def _least(attempts: int) -> list[HistoryCut]:
    """Return the cuts of which one makes the shortest prompt: the line that replaces a short text may be longer than the text."""
    newest = min(1, attempts)
    counts = dict.fromkeys([newest, attempts] if attempts <= _FEW else [newest])
    return [HistoryCut(count, "whole") for count in counts] + [HistoryCut(count, "left out") for count in counts]


def _most(count: int, holds: Callable[[int], bool]) -> int:
    """Return the largest number that `holds`, from 0 to `count`."""
    good, bad = 0, count + 1
    while good + 1 < bad:
        middle = min(count, max(1, 2 * good)) if bad > count else (good + bad) // 2
        if holds(middle):
            good = middle
        else:
            bad = middle
    return good


def _too_long(prompt: Writable, budget: TokenBudget, tokens: int, extent: str) -> GenerationError:
    sizes_by_name = {name: budget.count(text) for name, text in prompt.parts().items() if text}
    if prompt.context.feedback_history:
        sizes_by_name["newest feedback"] = budget.count(prompt.context.feedback_history[-1][1])
    largest = sorted(sizes_by_name, key=lambda name: -sizes_by_name[name])[:_MOST_NAMED]
    sizes = ", ".join(f"{name} {sizes_by_name[name]}" for name in largest)
    step = f" of step {prompt.context.step}" if prompt.context.step else ""
    return GenerationError(
        f"The prompt{step} has {tokens} tokens {extent} ({sizes}; counted: {budget.counted_by}), but max_prompt_tokens allows "
        f"{budget.tokens}; shorten these parts, or raise max_prompt_tokens. The model was not asked.",
        "prompt_too_long",
    )
