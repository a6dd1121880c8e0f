"""Which failures of a model are worth another try, and after which pause.

Takes errors, gives seconds, and sentences for the last of them. It waits for nothing itself.
"""

import math

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

    A provider that asks for more than `longest_pause_s` is not asked again; nor is anybody `most_s` after the first failure. ValueError for less
    than none.
    """

    most: int = 0
    first_pause_s: float = 0.5
    longest_pause_s: float = 30.0
    most_s: float = math.inf

    def __attrs_post_init__(self) -> None:
        """Refuse what is no number of tries."""
        if self.most < 0:
            raise ValueError(f"retries = {self.most} is too few: at least 0")

    def pause_s(self, error: GenerationError, failed: int, since_s: float = 0.0) -> float | None:
        """Give how long to wait after so many failures before this one, the first of them so long ago; None when there is no other try."""
        asked_s = error.wait_s if isinstance(error, ServerError) else None
        left_s = self.most_s - since_s
        if not self._left(error, failed) or left_s <= 0 or self._too_long(asked_s, since_s):
            return None
        return min(self.first_pause_s * 2.0**failed, self.longest_pause_s, left_s) if asked_s is None else asked_s

    def last(self, error: GenerationError, tries: int, since_s: float = 0.0) -> GenerationError:
        """Say in the error of the last try how many there were, and when the server's wish to wait ended them. Gives the same error."""
        told = [str(error)]
        if tries > 1:
            told.append(f"It was tried {tries} times.")
        if isinstance(error, ServerError) and self._left(error, tries - 1) and self._too_long(error.wait_s, since_s):
            in_all = " in all" if self.most_s <= self.longest_pause_s else ""
            longest = f"{min(self.longest_pause_s, self.most_s):g} s are the most that is waited{in_all}"
            told.append(f"It was not tried again: the server asks to wait {error.wait_s:g} s, and {longest}.")
        error.args = (" ".join(told),)
        return error

    def _left(self, error: GenerationError, failed: int) -> bool:
        """Tell whether there is a try left, and one may help."""
        may_help = error.again if isinstance(error, ServerError) else True
        return failed < self.most and error.reason in WORTH_ANOTHER_TRY and may_help

    def _too_long(self, asked_s: float | None, since_s: float) -> bool:
        return asked_s is not None and asked_s > min(self.longest_pause_s, self.most_s - since_s)
