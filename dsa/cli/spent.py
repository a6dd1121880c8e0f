"""What models have taken, in words: what is not known is called so, and never 0."""

from dsa.runtime.totals import Totals
from dsa.words import plural

_SMALL_USD, _LEAST_USD = 0.01, 0.000001


def tokens_and_cost(sums: Totals) -> str:
    """Write tokens and cost. A cost that is known to be nothing, as of the local model, is not spoken of."""
    tokens = f"{sums.prompt_tokens} + {sums.completion_tokens} tokens"
    if 0 < sums.calls <= sums.uncounted_calls + sums.failed_calls:
        tokens = "tokens unknown"
    elif sums.uncounted_calls:
        tokens = f"{tokens} and those of {plural(sums.uncounted_calls, 'call')} unknown"
    if sums.cost_usd is None:
        return f"{tokens}, cost unknown"
    return f"{tokens}, {dollars(sums.cost_usd)}" if sums.cost_usd else tokens


def dollars(cost_usd: float) -> str:
    """Write a sum with as many digits as say something."""
    if cost_usd < _LEAST_USD:
        return f"less than ${_LEAST_USD:f}"
    return f"${cost_usd:.2f}" if cost_usd >= _SMALL_USD else f"${f'{cost_usd:.6f}'.rstrip('0')}"
