"""Which names of a workspace are protected, judged folder by folder as a walk goes down, of which a name costs half a microsecond.

Takes a protection (`paths`), gives ways: how much of each pattern the path of a folder has been. Most names go on with no pattern, which one
expression tells; the others are judged as `paths` judges them. Nothing on disk is looked at.
"""

import fnmatch
import re
from collections.abc import Sequence
from functools import cached_property

import attrs

from machines.coding.tools.paths import Pattern, Protection

#: How much of each pattern a path can have been.
Reached = tuple[frozenset[int], ...]


@attrs.define(eq=False)
class Way:
    """What leads to a folder. `into` gives the way of what lies in it."""

    patterns: Sequence[Pattern]
    reached: Reached
    _known: dict[Reached, "Way"]
    _names: frozenset[str] = attrs.field(init=False)
    _globs: re.Pattern[str] | None = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        """Take together what goes on from here: names, and one expression for all that are not written out."""
        names = {name for pattern, at in zip(self.patterns, self.reached, strict=True) for name in pattern.expected(at)}
        globs = sorted(name for name in names if set(name) & set("*?["))
        self._names = frozenset(names.difference(globs))
        self._globs = re.compile("|".join(map(fnmatch.translate, globs))) if globs else None

    @classmethod
    def of(cls, protection: Protection) -> "Way":
        """Give the way to the workspace itself."""
        return cls(protection.patterns, tuple(pattern.begun for pattern in protection.patterns), {})

    def into(self, name: str, small: str) -> "Way | None":
        """Give the way of what has a name there, which is given in small letters too; None if it is protected."""
        may_go_on = small in self._names or (self._globs is not None and self._globs.match(small))
        return self._judged(name) if may_go_on or _is_odd(name) else self._passed

    @cached_property
    def _passed(self) -> "Way | None":
        """The way of what no pattern has a name for."""
        return self._judged(None)

    def _judged(self, name: str | None) -> "Way | None":
        reached = tuple(pattern.onward(at, name) for pattern, at in zip(self.patterns, self.reached, strict=True))
        if any(pattern.is_whole(at) for pattern, at in zip(self.patterns, reached, strict=True)):
            return None
        if reached not in self._known:
            self._known[reached] = Way(self.patterns, reached, self._known)
        return self._known[reached]


def _is_odd(name: str) -> bool:
    """Tell whether a name may mean another one on some file system (`paths`): it is always judged."""
    return not name.isascii() or "~" in name or ":" in name or name[-1] in " ."
