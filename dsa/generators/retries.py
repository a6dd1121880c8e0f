"""Which failures of a model are worth another try, and after which pause.

Takes errors, gives seconds. It waits for nothing itself.
"""

import attrs

from dsa.edge.http.failures import ServerError
from dsa.errors import GenerationError

#: Reasons that may be gone a little later. A refused key, a prompt too long, a filter, an answer cut off are the same next time.
WORTH_ANOTHER_TRY = frozenset({"rate_limit", "timeout", "server_error", "unreachable", "interrupted"})
#: After these nobody knows whether the provider charges for what it had begun.
MAYBE_CHARGED = frozenset({"timeout", "interrupted"})


@attrs.frozen
class Retries:
    """How many further tries there may be: with a pause that doubles, or what the provider asks for.

    A provider that asks for more than `longest_pause_s` is not asked again. ValueError for less than none.
    """

    most: int = 0
    first_pause_s: float = 0.5
    longest_pause_s: float = 30.0

    def __attrs_post_init__(self) -> None:
        """Refuse what is no number of tries."""
        if self.most < 0:
            raise ValueError(f"retries = {self.most} is too few: at least 0")

    def pause_s(self, error: GenerationError, failed: int) -> float | None:
        """Give how long to wait after so many failures before this one; None when there is no other try."""
        if failed >= self.most or error.reason not in WORTH_ANOTHER_TRY:
            return None
        asked_s = error.wait_s if isinstance(error, ServerError) else None
        if asked_s is None:
            return min(self.first_pause_s * 2.0**failed, self.longest_pause_s)
        return asked_s if asked_s <= self.longest_pause_s else None
