"""What LiteLLM gives for an answer, read without its guesses.

LiteLLM fills in what a provider did not say: 0 tokens, or tokens that it has counted itself; `stop` for a stream that just ended; the
model that was asked for. Takes its replies and streams, gives `Reply`, in which what is not known is None.
"""

from typing import Any

import attrs

from dsa.generators.streams.ending import plain_reason


@attrs.frozen
class Reply:
    """An answer. `finish` is None when the provider never said that it was over; `model` is empty when it did not say who answered."""

    content: str | None
    finish: str | None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cost_usd: float | None = None
    model: str = ""

    @property
    def fault(self) -> str | None:
        """Why this is no whole answer, as a reason; None when it is one."""
        if self.finish is None and self.content is None:
            return "nothing"
        faults = {None: "interrupted", "error": "interrupted", "length": "cut_off", "content_filter": "content_filter"}
        return faults.get(self.finish) or (None if self.content else "no_text")


def read_whole(reply: Any, model: str) -> Reply:  # noqa: ANN401  # litellm's own type
    """Read an answer that came in one piece from `model`, in LiteLLM's name for it."""
    try:
        choice = reply.choices[0]
        content, finish = choice.message.content, choice.finish_reason
    except (AttributeError, IndexError, TypeError):
        content, finish = None, "stop"
    counts = _counts(getattr(reply, "usage", None))
    said = str(getattr(reply, "model", None) or "")
    return Reply(
        content if isinstance(content, str) else None,
        plain_reason(finish),
        *counts,
        cost_usd=getattr(reply, "_hidden_params", {}).get("response_cost") if counts[0] else None,
        model=""
        if said == model and "/" in model
        else said,  # with the provider's name before it, it is LiteLLM's own word
    )


def read_stream(litellm: Any, stream: Any, content: str, model: str) -> Reply:  # noqa: ANN401  # litellm's own types
    """Read a stream that has ended, after its text. Who answered is not known: LiteLLM writes the model that was asked for into each chunk."""
    chunks = getattr(stream, "chunks", ())
    if not chunks and stream.received_finish_reason is None:
        return Reply(None, None)
    if not any(getattr(chunk, "usage", None) for chunk in chunks):
        return Reply(content, plain_reason(stream.received_finish_reason))
    built = litellm.stream_chunk_builder(chunks=list(chunks))
    counts = _counts(built.usage)
    cost_usd = _cost(litellm, built, model) if counts[0] else None
    return Reply(content, plain_reason(stream.received_finish_reason), *counts, cost_usd=cost_usd)


def _counts(usage: Any) -> tuple[int | None, int | None]:  # noqa: ANN401  # litellm's own type
    """Give the counts of prompt and answer. A prompt of 0 tokens is LiteLLM's way to say that nobody counted."""
    prompt, completion = getattr(usage, "prompt_tokens", None), getattr(usage, "completion_tokens", None)
    return (prompt, completion) if prompt else (None, None)


def _cost(litellm: Any, built: Any, model: str) -> float | None:  # noqa: ANN401  # litellm's own types
    """Give the cost by LiteLLM's price list; None for a model that is not on it, which it says by many exceptions."""
    try:
        return float(litellm.completion_cost(completion_response=built, model=model))
    except Exception:  # noqa: BLE001  # whatever it is: the price is not known
        return None
