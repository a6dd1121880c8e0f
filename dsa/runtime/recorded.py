"""What a ledger has of the calls that policies made of each other.

Takes entries, gives them by path; says what is equal to what by digests. It performs nothing.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from dsa.errors import DsaError
from dsa.runtime.ledger import CallEntry, CallResultEntry
from dsa.runtime.policies import ACTION_RESULT, TEXT, Action, Step, action_result_step, error_step

#: The code of the error step of what was under way when its run was cut off, and counts as failed.
IN_DOUBT = "IN_DOUBT"

_LONGEST = 200  # characters of a payload in a message


class ReplayMismatchError(DsaError):
    """Raised when policies ask for something else than their ledger has: they are not those that wrote it.

    `position` is the path of the call, `recorded` and `asked` say in words what stands there and what was to stand there.
    """

    def __init__(self, position: str, recorded: str, asked: str) -> None:
        self.position, self.recorded, self.asked = position, recorded, asked
        super().__init__(
            f"call {position}: the ledger has {recorded}; asked for is {asked}. Resume with the policies that began the run"
        )


class Record:
    """The calls recorded under one key, below one root. Raises ReplayMismatchError for entries that no run has written."""

    def __init__(self, entries: Iterable[object], key: str, root: str) -> None:
        self.root = root
        self.begun: dict[str, CallEntry] = {}
        self.given: dict[str, tuple[Step, ...]] = {}
        self._order: dict[str, list[int]] = {}
        self._greatest: dict[str, int] = {}
        for entry in entries:
            if not isinstance(entry, CallEntry | CallResultEntry) or entry.key != key:
                continue
            parent, _, position = entry.path.rpartition(".")
            if f"{parent}.".startswith(f"{root}."):
                self._read(entry, parent, int(position))

    def _read(self, entry: CallEntry | CallResultEntry, parent: str, position: int) -> None:
        path = entry.path
        if isinstance(entry, CallEntry):
            if path in self.begun:
                raise ReplayMismatchError(path, f"two calls, of {self.begun[path].policy} and {entry.policy}", "one")
            self.begun[path] = entry
            self._greatest[parent] = max(position, self._greatest.get(parent, 0))
        elif path not in self.begun or path in self.given:
            raise ReplayMismatchError(path, "a result too many", "one result for each call")
        else:
            self.given[path] = tuple(Step(**step) for step in entry.steps)
            self._order.setdefault(parent, []).append(position)

    def order_below(self, path: str) -> Sequence[int]:
        """Give the positions of a policy's recorded results, in the order in which they came."""
        return self._order.get(path, ())

    def greatest_below(self, path: str) -> int:
        """Give the greatest position that a policy has a call in; 0 when it has none."""
        return self._greatest.get(path, 0)


def open_calls(entries: Iterable[object]) -> tuple[CallEntry, ...]:
    """Give the calls that began and have no result, and that are no part of one that has."""
    calls = [entry for entry in entries if isinstance(entry, CallEntry | CallResultEntry)]
    finished = {(call.key, call.path) for call in calls if isinstance(call, CallResultEntry)}
    return tuple(
        call
        for call in calls
        if isinstance(call, CallEntry) and not any((call.key, path) in finished for path in upwards(call.path))
    )


def upwards(path: str) -> Iterator[str]:
    """Give a call's path, that of its caller, and so on."""
    while path:
        yield path
        path = path.rpartition(".")[0]


class Said:
    """The digest of a policy's own ledger, as far as it has got."""

    def __init__(self, steps: Iterable[Step] = ()) -> None:
        self._hash = hashlib.sha256()
        self._is_empty = True
        self.add(steps)

    def add(self, steps: Iterable[Step]) -> None:
        """Take note of further steps."""
        for step in steps:
            self._hash.update(f"{step.canonical()}\n".encode())
            self._is_empty = False

    def digest_with(self, action: Action) -> str:
        """Give the digest of a request: the action, made of a policy whose own ledger begins with these steps."""
        if self._is_empty:
            return action.digest
        return hashlib.sha256(f"{action.digest} {self._hash.hexdigest()}".encode()).hexdigest()


def told(policy: str, payload: Mapping[str, Any] | None, digest: str) -> str:
    """Say in words what a request is; a turn has no payload of its own."""
    what = f"a turn of {policy}" if payload is None else f"{policy} with {payload}"
    return f"{what if len(what) <= _LONGEST else what[:_LONGEST] + '..'} ({digest[:12]})"


def outcome_step(policy: str, *, failed: bool) -> Step:
    """Make what stands for the result of a call that nobody has: that it has failed, or that it has happened."""
    said = f"the run was cut off while it was under way; it counts as {'failed' if failed else 'done'}"
    return error_step(policy, IN_DOUBT, said) if failed else action_result_step(policy, {"done": True, "message": said})


def numbered(steps: Iterable[Step], path: str) -> list[Step]:
    """Give an id to the steps that have none: their place in what the call of this path gave."""
    return [step if step.id else step.under(f"{path}/{number}") for number, step in enumerate(steps, start=1)]


def result_for(call: Step, actor: str, steps: Iterable[Step]) -> Step:
    """Make the one step that says in the caller's ledger what came of a call.

    It has the payload of the only step there was, when that is a result or a text, or else of all of them. Its id is the call's with `.result`.
    """
    given = list(steps)
    is_plain = len(given) == 1 and given[0].type in {ACTION_RESULT, TEXT}
    told = [{"actor": step.actor, "type": step.type, "payload": step.payload} for step in given]
    return action_result_step(actor, given[0].payload if is_plain else {"steps": told}, step_id=f"{call.id}.result")
