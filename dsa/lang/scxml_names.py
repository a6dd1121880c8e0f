"""The names of an SCXML file as names of a table, each unique over the whole document."""

import re

from dsa.lang.exprs import MAX_NAME, RESERVED

_OUTCOMES = frozenset({"passed", "failed", "fatal"})


class Naming:
    """Gives every name of a file the table's name for it, the same one each time."""

    def __init__(self) -> None:
        self._given: dict[tuple[str, str], str] = {}
        self._used: set[str] = set()

    def give(self, kind: str, name: str, wanted: str | None = None) -> str:
        """Give the name of a `state`, `event`, `effect`, `variable` or `guard`; `wanted` is tried first."""
        key = (kind, name)
        if key not in self._given:
            found = well_formed(name if wanted is None else wanted)
            while found in self._used:
                found += f"_{kind}"
            self._used.add(found)
            if kind == "guard":
                self._used |= {f"{found}.{outcome}" for outcome in _OUTCOMES}
            self._given[key] = found
        return self._given[key]

    def value(self, name: str) -> str:
        """Give the name of an enumeration's value: it may occur in several domains, but be nothing else."""
        return self.give("value", name)


def well_formed(name: str) -> str:
    """Give the nearest name that the language allows."""
    return ".".join(map(_part, name.split(".")))[:MAX_NAME].rstrip(".")


def _part(part: str) -> str:
    found = re.sub(r"\W", "_", part, flags=re.ASCII) or "_"
    if found[0].isdigit():
        found = f"_{found}"
    return f"{found}_" if found in RESERVED else found
