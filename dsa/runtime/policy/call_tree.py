"""What a ledger has of the calls that policies made of each other.

Takes entries, gives them by path; says what is equal to what by digests. It performs nothing.

The tree of the calls that policies made in an effect: what was asked of each, what it gave, what is done about it when the run goes on.

Takes entries, gives values to be written down or decided about. Pure, and no policy is needed for it.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import attrs

from dsa.errors import DsaError
from dsa.runtime.ledger import CallEntry, CallResultEntry, DecidedEntry, Entry, Handling, ResultEntry, ResumedEntry
from dsa.runtime.policy.policies import ACTION_RESULT, TEXT, Action, Step, action_result_step, error_step

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


class CallLog:
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
        """Return the positions of a policy's recorded results, in the order in which they came."""
        return self._order.get(path, ())

    def greatest_below(self, path: str) -> int:
        """Return the greatest position that a policy has a call in; 0 when it has none."""
        return self._greatest.get(path, 0)


def open_calls(entries: Iterable[object]) -> tuple[CallEntry, ...]:
    """Return the calls that began and have no result, and that are no part of one that has."""
    calls = [entry for entry in entries if isinstance(entry, CallEntry | CallResultEntry)]
    finished = {(call.key, call.path) for call in calls if isinstance(call, CallResultEntry)}
    return tuple(
        call
        for call in calls
        if isinstance(call, CallEntry) and not any((call.key, path) in finished for path in upwards(call.path))
    )


def upwards(path: str) -> Iterator[str]:
    """Yield a call's path, that of its caller, and so on."""
    while path:
        yield path
        path = path.rpartition(".")[0]


class StepDigest:
    """The digest of a policy's own ledger, as far as it has got."""

    def __init__(self, steps: Iterable[Step] = ()) -> None:
        self._hash = hashlib.sha256()
        self._is_empty = True
        self.add(steps)

    def add(self, steps: Iterable[Step]) -> None:
        """Record further steps."""
        for step in steps:
            self._hash.update(f"{step.canonical()}\n".encode())
            self._is_empty = False

    def digest_with(self, action: Action) -> str:
        """Return the digest of a request: the action, made of a policy whose own ledger begins with these steps."""
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
    """Return an id to the steps that have none: their place in what the call of this path gave."""
    return [step if step.id else step.under(f"{path}/{number}") for number, step in enumerate(steps, start=1)]


def result_for(call: Step, actor: str, steps: Iterable[Step]) -> Step:
    """Make the one step that says in the caller's ledger what came of a call.

    It has the payload of the only step there was, when that is a result or a text, or else of all of them. Its id is the call's with `.result`.
    """
    given = list(steps)
    is_plain = len(given) == 1 and given[0].type in {ACTION_RESULT, TEXT}
    told = [{"actor": step.actor, "type": step.type, "payload": step.payload} for step in given]
    return action_result_step(actor, given[0].payload if is_plain else {"steps": told}, step_id=f"{call.id}.result")


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
    reading = _PathEntries(key)
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


class _PathEntries:
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
