"""How a prompt is made to fit a number of tokens: what gives way, and when nothing may any more.

Takes a prompt that can be written with more or less of its history, and whoever counts tokens; gives the text. It knows no model, and
counts nothing itself but bytes.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Literal, Protocol

import attrs

from dsa.errors import PromptTooLong

if TYPE_CHECKING:
    from dsa.runtime.content import Context

_MOST_NAMED = 4
#: So few attempts may be shorter than the line that says that they are left out.
_FEW = 4


def bytes_of(text: str) -> int:
    """Return the bytes of a text in UTF-8: no tokenizer that works on bytes makes more tokens of it, most make a quarter as many of English."""
    return len(text.encode("utf-8", "surrogatepass"))


@attrs.frozen
class TokenBudget:
    """How many tokens a prompt may have, who counts them, and how people are told who does.

    `count` gives the same number for the same text. It counts the prompt's text; what a server puts round a message (a handful of tokens) is
    not in it, nor is the answer. ValueError for less than 1 token.
    """

    tokens: int
    count: Callable[[str], int] = bytes_of
    counted_by: str = "one for each byte, which is the most it can be"

    def __attrs_post_init__(self) -> None:
        """Refuse what no prompt could fit."""
        if self.tokens < 1:
            raise ValueError(f"max_prompt_tokens = {self.tokens} is too few: at least 1")

    def holds(self, text: str) -> bool:
        """Return whether a text fits."""
        return self.count(text) <= self.tokens


@attrs.frozen
class HistoryCut:
    """What is written of the history: so many of the newest attempts, and the text that was rejected last, a line in its place, or nothing of it."""

    attempts: int
    text: Literal["whole", "left out", "none"] = "whole"


NOTHING = HistoryCut(0, "none")


class Writable(Protocol):
    """A prompt that can be written with more or less of its history."""

    context: "Context"

    @property
    def rejected(self) -> bool:
        """Whether there is a history at all."""

    def parts(self) -> Mapping[str, str]:
        """Return what is never left out, by name."""

    def text(self, shown: HistoryCut | None) -> str:
        """Write it; with None the history is there word by word."""


def fitted(prompt: Writable, budget: TokenBudget) -> HistoryCut:
    """Return as much of a prompt's history as fits. Raises PromptTooLong when the rest, or the newest feedback, does not fit.

    How many attempts fit is found by doubling and halving: few texts are written, and a long history is not read further back than twice
    of what fits.
    """
    if not prompt.rejected:
        bare = prompt.text(NOTHING)
        if budget.holds(bare):
            return NOTHING
        raise _too_long(prompt, budget, budget.count(bare), "without its history")
    attempts = len(prompt.context.feedback_history)
    most = _most(attempts, lambda number: budget.holds(prompt.text(HistoryCut(number))))
    if most:
        return HistoryCut(most)
    sizes = []
    for shown in _least(attempts):
        text = prompt.text(shown)
        sizes.append(budget.count(text))
        if sizes[-1] <= budget.tokens:
            return shown
    raise _too_long(prompt, budget, min(sizes), "with as little of its history as may be")


def _least(attempts: int) -> list[HistoryCut]:
    """Return the ways to write a prompt of which one is the shortest: a line in the place of something may be longer than that."""
    newest = min(1, attempts)
    counts = dict.fromkeys([newest, attempts] if attempts <= _FEW else [newest])
    return [HistoryCut(count, "whole") for count in counts] + [HistoryCut(count, "left out") for count in counts]


def _most(count: int, holds: Callable[[int], bool]) -> int:
    """Return how many fit, from 0 to `count`."""
    good, bad = 0, count + 1
    while good + 1 < bad:
        tried = min(count, max(1, 2 * good)) if bad > count else (good + bad) // 2
        if holds(tried):
            good = tried
        else:
            bad = tried
    return good


def _too_long(prompt: Writable, budget: TokenBudget, tokens: int, of_what: str) -> PromptTooLong:
    counted = {name: budget.count(text) for name, text in prompt.parts().items() if text}
    if prompt.context.feedback_history:
        counted["newest feedback"] = budget.count(prompt.context.feedback_history[-1][1])
    largest = sorted(counted, key=lambda name: -counted[name])[:_MOST_NAMED]
    sizes = ", ".join(f"{name} {counted[name]}" for name in largest)
    step = f" of step {prompt.context.step}" if prompt.context.step else ""
    return PromptTooLong(
        f"The prompt{step} has {tokens} tokens {of_what} ({sizes}; counted: {budget.counted_by}), and max_prompt_tokens allows "
        f"{budget.tokens}; shorten them, or raise max_prompt_tokens. The model was not asked.",
        tokens=tokens,
        allowed=budget.tokens,
    )
