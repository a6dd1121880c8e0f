"""Chance that follows from a seed: the same question gets the same answer, whenever and however often it is asked.

So a run that is cut off and taken up again meets the world that it would have met, and one seed tells one story.
"""

import hashlib
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

_PERCENT = 100


class Chance:
    """Draws of one seed. `about` says what a draw is about; draws about different things are independent."""

    def __init__(self, seed: int) -> None:
        self._seed = hashlib.blake2b(b"%d" % seed, digest_size=8)

    def number(self, *about: object) -> int:
        """Draw a number of 64 bits."""
        drawn = self._seed.copy()
        drawn.update("\x1f".join(map(str, about)).encode())
        return int.from_bytes(drawn.digest(), "big")

    def below(self, bound: int, *about: object) -> int:
        """Draw a number from 0 to `bound` - 1."""
        return self.number(*about) % bound

    def one_of(self, options: Sequence[T], *about: object) -> T:
        """Draw one of some options; there is at least one."""
        return options[self.number(*about) % len(options)]

    def happens(self, percent: int, *about: object) -> bool:
        """Tell whether something happens that happens so often."""
        return self.number(*about) % _PERCENT < percent
