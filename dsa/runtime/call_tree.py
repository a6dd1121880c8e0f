"""The tree of the calls that policies made in an effect: what was asked of each, what it gave, what is done about it when the run goes on.

Takes entries, gives values to be written down or decided about. Pure, and no policy is needed for it.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from dsa.runtime.ledger import CallEntry, CallResultEntry, DecidedEntry, Entry, Handling, ResultEntry, ResumedEntry
from dsa.runtime.recorded import open_calls, upwards

#: The name of the shipped machine whose one effect asks a policy.
POLICY = "policy"
#: Where an error step of an effect says which call raised it: `{"policy": .., "path": ..}`.
CALL = "call"


@attrs.frozen
class CallNode:
    """One call: where it stands, of which policy, what was asked, what came of it.

    `payload` is None for a turn of a loop. `steps` is what it gave, None while it has given nothing; `own` are those among them that
    no call below it has made. `happened` is what else was recorded of it: the payload of an error that it raised, or what was done about it when
    the run was resumed. `is_cached`: it had given its steps when the run was resumed last. `is_over`: it, or one that it is a part of, has given
    its steps. `is_stopped`: what it raised has stopped the run.
    """

    path: str
    policy: str
    digest: str
    payload: dict[str, Any] | None
    steps: tuple[dict[str, Any], ...] | None = None
    own: tuple[dict[str, Any], ...] = ()
    happened: tuple[dict[str, Any] | Handling, ...] = ()
    is_cached: bool = False
    is_over: bool = False
    is_stopped: bool = False


def call_key(key: str, path: str) -> str:
    """Return the key of a call, below that of its effect: `PolicyContext.key`, and what a person names it by."""
    return f"{key}/{path}" if key else path


def place_of(path: str) -> tuple[int, ...]:
    """Return a path as numbers: 1.2 stands before 1.10."""
    return tuple(map(int, path.split(".")))


def calls_of(entries: Iterable[Entry], key: str) -> tuple[CallNode, ...]:
    """Return the calls under a key in the order of their places."""
    reading = _Reading(key)
    for entry in entries:
        reading.take(entry)
    ordered = sorted(reading.begun, key=place_of)
    own = _own(ordered, reading.given)
    return tuple(
        CallNode(
            path,
            reading.begun[path].policy,
            reading.begun[path].digest,
            reading.begun[path].payload,
            reading.given.get(path),
            own[path],
            tuple(reading.happened.get(path, ())),
            path in reading.cached,
            any(above in reading.given for above in upwards(path)),
            path == reading.failed,
        )
        for path in ordered
    )


class _Reading:
    """What the entries say of each path."""

    def __init__(self, key: str) -> None:
        self._key = key
        self.begun: dict[str, CallEntry] = {}
        self.given: dict[str, tuple[dict[str, Any], ...]] = {}
        self.happened: dict[str, list[dict[str, Any] | Handling]] = {}
        self.failed: str | None = None
        self.cached: frozenset[str] = frozenset()
        self._decided: set[str] = set()

    def take(self, entry: Entry) -> None:
        """Record what an entry says."""
        match entry:
            case CallEntry(key=self._key, path=path):
                self.begun[path] = entry
                self.failed = None  # another try
            case CallResultEntry(key=self._key, path=path, steps=steps):
                self.given[path] = steps
            case ResultEntry(key=self._key):
                self.failed = raised_in(entry)
                if self.failed is not None:
                    self._note(self.failed, entry.steps[-1]["payload"])
            case DecidedEntry(key=self._key, path=path, handling=handling) if path:
                self._decided.add(path)
                self._note(path, handling)
            case ResumedEntry(effects=effects) if self._key in dict(effects):
                self._resume(entry)

    def _note(self, path: str, what: dict[str, Any] | Handling) -> None:
        self.happened.setdefault(path, []).append(what)

    def _resume(self, entry: ResumedEntry) -> None:
        """Say of each call under way what was done about it; nothing twice of one that a person has decided."""
        for key, handling in entry.calls:
            path = key.removeprefix(f"{self._key}/")
            if path in self.begun and path not in self._decided:
                self._note(path, handling)
        self.cached = frozenset(self.given) - self._decided
        self.failed, self._decided = None, set()


def _own(paths: list[str], given: Mapping[str, tuple[dict[str, Any], ...]]) -> dict[str, tuple[dict[str, Any], ...]]:
    """Return for each call the steps that are not passed on from a call below it, nor say what came of one."""
    made: dict[str, tuple[dict[str, Any], ...]] = {}
    known: set[str] = set()
    for path in sorted(paths, key=lambda path: -path.count(".")):
        made[path] = tuple(step for step in given.get(path, ()) if step["id"].removesuffix(".result") not in known)
        known |= {step["id"] for step in made[path]}
    return made


def raised_in(result: ResultEntry) -> str | None:
    """Return the path of the call that raised what an effect failed with; None where no call did."""
    call = result.steps[-1]["payload"].get(CALL) if result.failed else None
    return str(call["path"]) if isinstance(call, dict) else None


def call_named(key: str, payload: Mapping[str, Any]) -> str:
    """Name the call of the effect of this key that raised what an error step says, as `look 1/1/1.1.2`; empty where no call did."""
    call = payload.get(CALL)
    return f"{call['policy']} {call_key(key, call['path'])}" if isinstance(call, dict) else ""


def doubted_calls(entries: Iterable[object], failed: str | None = None) -> tuple[CallEntry, ...]:
    """Return the calls under way: of those within each other, the outermost that is not simply made again, else the innermost.

    The call `failed` raised something: nobody doubts that it is made again, and those that it is a part of.
    """
    under_way = sorted(open_calls(entries), key=lambda call: place_of(call.path))
    above = {path for call in under_way for path in list(upwards(call.path))[1:]}
    sure = set() if failed is None else set(upwards(failed))
    found: list[CallEntry] = []
    decisive: set[str] = set()
    for call in under_way:
        if call.path in sure or decisive.intersection(upwards(call.path)):
            continue
        if call.in_doubt != "retry":
            decisive.add(call.path)
            found.append(call)
        elif call.path not in above:
            found.append(call)
    return tuple(found)
