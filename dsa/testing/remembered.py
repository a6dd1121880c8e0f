"""What a table has no names for, compared with what was shown before: the keys of effects (S7) and the deadlines of timers (S11).

Takes the views of one test in their order, gives what differs from what they must be.
"""

from collections.abc import Iterator, Mapping

from dsa.meaning import Taken
from dsa.testing.implementations import View


class Remembered:
    """The keys and deadlines that an implementation has shown so far."""

    def __init__(self) -> None:
        self._keys: Mapping[str, str] = {}
        self._used = set[str]()
        self._deadlines: Mapping[str, object] = {}

    def differences(self, shown: View, taken: Taken | None) -> Iterator[tuple[str, str, str]]:
        """Give what, what it must be, and what it is; `taken` is the row that was taken since the last view, None when none was."""
        yield from self._keys_that_differ(shown.keys or {}, frozenset(taken.effects if taken else ()))
        if taken is None:
            for timer, due in sorted((shown.timers or {}).items()):
                before = self._deadlines.get(timer, due)
                if due != before:
                    yield f"the deadline of {timer}", str(before), str(due)
        self._deadlines = shown.timers or {}

    def _keys_that_differ(self, keys: Mapping[str, str], emitted: frozenset[str]) -> Iterator[tuple[str, str, str]]:
        for effect, key in sorted(keys.items()):
            is_new = effect in emitted or effect not in self._keys
            if is_new and key in self._used:
                yield f"the key of {effect}", "one that was not used before", key
            elif not is_new and key != self._keys[effect]:
                yield f"the key of {effect}", self._keys[effect], key
            self._used.add(key)
        self._keys = keys
