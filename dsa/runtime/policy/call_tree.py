"""Call trees: the calls of policies by other policies, as a ledger has them.

Takes entries of one effect and returns its calls by path: request, result, and what to do about each when the run continues. Digests decide whether two
requests are the same. No policy is needed, and nothing is performed.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import attrs

from dsa.errors import DsaError
from dsa.runtime.ledger import CallEntry, CallResultEntry, DecidedEntry, Entry, Handling, ResultEntry, ResumedEntry
from dsa.runtime.policy.policies import ACTION_RESULT, TEXT, Action, Step, action_result_step, error_step

#: The name of the shipped machine whose one effect asks a policy.
POLICY = "policy"
#: The field of an effect's error step with the call that raised the error: `{"policy": .., "path": ..}`.
CALL = "call"
#: The code of the error step of an effect or call that was under way when its run was cut off, and counts as failed.
IN_DOUBT = "IN_DOUBT"

_LONGEST = 200  # characters of a payload in a message


class ReplayMismatchError(DsaError):
    """Raised when policies make a different call from the one in the ledger: they are not the policies that wrote it.

    `position` is the path of the call. `entry` and `request` describe the recorded call and the new one, in words.
    """

    def __init__(self, position: str, entry: str, request: str) -> None:
        self.position, self.entry, self.request = position, entry, request
        super().__init__(
            f"call {position}: the ledger has {entry}; the policies now give {request}. Resume with the policies that started the run"
        )


class CallLog:
    """The calls recorded under one key, below one root: `calls` and `results` by path. Raises ReplayMismatchError for impossible entries."""

    def __init__(self, entries: Iterable[object], key: str, root: str) -> None:
        self.root = root
        self.calls: dict[str, CallEntry] = {}
        self.results: dict[str, tuple[Step, ...]] = {}
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
            if path in self.calls:
                raise ReplayMismatchError(path, f"two calls, of {self.calls[path].policy} and {entry.policy}", "one")
            self.calls[path] = entry
            self._greatest[parent] = max(position, self._greatest.get(parent, 0))
        elif path not in self.calls or path in self.results:
            raise ReplayMismatchError(path, "an additional result", "one result for each call")
        else:
            self.results[path] = tuple(Step(**step) for step in entry.steps)
            self._order.setdefault(parent, []).append(position)

    def order_below(self, path: str) -> Sequence[int]:
        """Return the positions of the recorded results of a policy's calls, in the order of their arrival."""
        return self._order.get(path, ())

    def greatest_below(self, path: str) -> int:
        """Return the greatest position of a policy's calls; 0 if it has none."""
        return self._greatest.get(path, 0)


def open_calls(entries: Iterable[object]) -> tuple[CallEntry, ...]:
    """Return the calls without a result that are not within a call with a result."""
    calls = [entry for entry in entries if isinstance(entry, CallEntry | CallResultEntry)]
    results = {(call.key, call.path) for call in calls if isinstance(call, CallResultEntry)}
    return tuple(
        call
        for call in calls
        if isinstance(call, CallEntry) and not any((call.key, path) in results for path in upwards(call.path))
    )


def upwards(path: str) -> Iterator[str]:
    """Yield a call's path, the path of its caller, and so on."""
    while path:
        yield path
        path = path.rpartition(".")[0]


class StepDigest:
    """The digest of a policy's own ledger, updated step by step."""

    def __init__(self, steps: Iterable[Step] = ()) -> None:
        self._hash = hashlib.sha256()
        self._is_empty = True
        self.add(steps)

    def add(self, steps: Iterable[Step]) -> None:
        """Add further steps."""
        for step in steps:
            self._hash.update(f"{step.canonical()}\n".encode())
            self._is_empty = False

    def digest_with(self, action: Action) -> str:
        """Return the digest of a request: the action together with these steps, with which the called policy's ledger begins."""
        if self._is_empty:
            return action.digest
        return hashlib.sha256(f"{action.digest} {self._hash.hexdigest()}".encode()).hexdigest()


def request_words(policy: str, payload: Mapping[str, Any] | None, digest: str) -> str:
    """Describe a request in words; a turn has no payload of its own."""
    words = f"a turn of {policy}" if payload is None else f"{policy} with {payload}"
    return f"{words if len(words) <= _LONGEST else words[:_LONGEST] + '..'} ({digest[:12]})"


def outcome_step(policy: str, *, has_failed: bool) -> Step:
    """Return the step for a call whose result is unknown, and which counts as failed or as done."""
    message = (
        f"the run was cut off while this call was under way; the call counts as {'failed' if has_failed else 'done'}"
    )
    return (
        error_step(policy, IN_DOUBT, message)
        if has_failed
        else action_result_step(policy, {"done": True, "message": message})
    )


def number_steps(steps: Iterable[Step], path: str) -> list[Step]:
    """Return the steps, with ids for those that have none: `PATH/NUMBER`, by the path of the call and the place in its result."""
    return [step if step.id else step.under(f"{path}/{number}") for number, step in enumerate(steps, start=1)]


def result_for(call: Step, actor: str, steps: Iterable[Step]) -> Step:
    """Return the step with the result of a call, for the caller's ledger.

    It has the payload of the only step, if that is a result or a text, else the actors, types and payloads of all steps. Its id is that of the call
    with `.result`.
    """
    result = list(steps)
    is_plain = len(result) == 1 and result[0].type in {ACTION_RESULT, TEXT}
    records = [{"actor": step.actor, "type": step.type, "payload": step.payload} for step in result]
    return action_result_step(actor, result[0].payload if is_plain else {"steps": records}, step_id=f"{call.id}.result")


@attrs.frozen
class CallNode:
    """One call: its path, its policy, the request and the result.

    `payload` is None for a turn of a loop. `steps` is the result, None while there is none; `own` are the steps that no call below it made.
    `incidents` are the payloads of errors that it raised, and what was done about it when the run was resumed. `is_cached`: it had its result when
    the run was last resumed. `is_over`: it, or a call around it, has a result. `is_stopped`: its error stopped the run.
    """

    path: str
    policy: str
    digest: str
    payload: dict[str, Any] | None
    steps: tuple[dict[str, Any], ...] | None = None
    own: tuple[dict[str, Any], ...] = ()
    incidents: tuple[dict[str, Any] | Handling, ...] = ()
    is_cached: bool = False
    is_over: bool = False
    is_stopped: bool = False


def call_key(key: str, path: str) -> str:
    """Return the key of a call: `KEY/PATH`, as in `PolicyContext.key` and in commands."""
    return f"{key}/{path}" if key else path


def place_of(path: str) -> tuple[int, ...]:
    """Return a path as numbers, for sorting: 1.2 is before 1.10."""
    return tuple(map(int, path.split(".")))


def calls_of(entries: Iterable[Entry], key: str) -> tuple[CallNode, ...]:
    """Return the calls under a key in the order of their paths."""
    history = _PathEntries(key)
    for entry in entries:
        history.take(entry)
    paths = sorted(history.calls, key=place_of)
    own = _own_steps(paths, history.results)
    return tuple(
        CallNode(
            path,
            history.calls[path].policy,
            history.calls[path].digest,
            history.calls[path].payload,
            history.results.get(path),
            own[path],
            tuple(history.incidents.get(path, ())),
            path in history.cached_paths,
            any(above in history.results for above in upwards(path)),
            path == history.raising_path,
        )
        for path in paths
    )


class _PathEntries:
    """The entries of one key by path."""

    def __init__(self, key: str) -> None:
        self._key = key
        self.calls: dict[str, CallEntry] = {}
        self.results: dict[str, tuple[dict[str, Any], ...]] = {}
        self.incidents: dict[str, list[dict[str, Any] | Handling]] = {}
        self.raising_path: str | None = None
        self.cached_paths: frozenset[str] = frozenset()
        self._decided_paths: set[str] = set()

    def take(self, entry: Entry) -> None:
        """Read the next entry."""
        match entry:
            case CallEntry(key=self._key, path=path):
                self.calls[path] = entry
                self.raising_path = None  # another try
            case CallResultEntry(key=self._key, path=path, steps=steps):
                self.results[path] = steps
            case ResultEntry(key=self._key):
                self.raising_path = raising_path(entry)
                if self.raising_path is not None:
                    self._note(self.raising_path, entry.steps[-1]["payload"])
            case DecidedEntry(key=self._key, path=path, handling=handling) if path:
                self._decided_paths.add(path)
                self._note(path, handling)
            case ResumedEntry(effects=effects) if self._key in dict(effects):
                self._resume(entry)

    def _note(self, path: str, incident: dict[str, Any] | Handling) -> None:
        self.incidents.setdefault(path, []).append(incident)

    def _resume(self, entry: ResumedEntry) -> None:
        """Record what was done about each call under way, unless a person's decision is already recorded."""
        for key, handling in entry.calls:
            path = key.removeprefix(f"{self._key}/")
            if path in self.calls and path not in self._decided_paths:
                self._note(path, handling)
        self.cached_paths = frozenset(self.results) - self._decided_paths
        self.raising_path, self._decided_paths = None, set()


def _own_steps(
    paths: list[str], results: Mapping[str, tuple[dict[str, Any], ...]]
) -> dict[str, tuple[dict[str, Any], ...]]:
    """Return for each call its own steps: those that are neither passed on from a call below it nor the result of one."""
    own: dict[str, tuple[dict[str, Any], ...]] = {}
    ids: set[str] = set()
    for path in sorted(paths, key=lambda path: -path.count(".")):
        own[path] = tuple(step for step in results.get(path, ()) if step["id"].removesuffix(".result") not in ids)
        ids |= {step["id"] for step in own[path]}
    return own


def raising_path(result: ResultEntry) -> str | None:
    """Return the path of the call that raised an effect's error; None if no call did."""
    call = result.steps[-1]["payload"].get(CALL) if result.has_failed else None
    return str(call["path"]) if isinstance(call, dict) else None


def call_named(key: str, payload: Mapping[str, Any]) -> str:
    """Return the call that raised an error step of the effect with this key, as `look 1/1/1.1.2`; "" if no call did."""
    call = payload.get(CALL)
    return f"{call['policy']} {call_key(key, call['path'])}" if isinstance(call, dict) else ""


def doubted_calls(entries: Iterable[object], raising_path: str | None = None) -> tuple[CallEntry, ...]:
    """Return the calls under way. Of nested calls it is the outermost one that is not simply made again, or else the innermost one.

    The call with the path `raising_path` raised an error: it is made again, and so are the calls around it.
    """
    under_way = sorted(open_calls(entries), key=lambda call: place_of(call.path))
    above = {path for call in under_way for path in list(upwards(call.path))[1:]}
    sure = set() if raising_path is None else set(upwards(raising_path))
    calls: list[CallEntry] = []
    decisive: set[str] = set()
    for call in under_way:
        if call.path in sure or decisive.intersection(upwards(call.path)):
            continue
        if call.in_doubt != "retry":
            decisive.add(call.path)
            calls.append(call)
        elif call.path not in above:
            calls.append(call)
    return tuple(calls)
