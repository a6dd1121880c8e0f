"""A run of a policy without a machine (seed 004, section 9), and the two forms in which it is kept.

`run` takes and gives a ledger of steps: an `action_call` when a policy is called, an `action_result` with all its steps when
it has finished. Whoever makes it durable gets the same as entries, one by one; `ledger_of` and `entries_of` turn one form
into the other, so that any prefix of the entries is a ledger to go on from.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from dsa.declarations import OUTSIDE
from dsa.runtime.calls import Calls
from dsa.runtime.ledger import CallEntry, CallResultEntry, Entry, Ledger, PolicyEntry
from dsa.runtime.policies import ACTION_CALL, ACTION_RESULT, Action, Payload, Step, Surroundings
from dsa.runtime.recorded import ReplayMismatchError, Said, numbered, told
from dsa.runtime.registry import Registry

PolicyRecord = PolicyEntry | CallEntry | CallResultEntry

_ROOT = "1"
_RESULT = ".result"
_PATH = re.compile(r"1(\.[1-9][0-9]*)*")


async def run(
    policy_name: str,
    payload: Payload,
    registry: Registry,
    ledger: Iterable[Step] = (),
    *,
    config: Mapping[str, Any] | None = None,
    kept: Collection[str] = (),
    actions: Iterable[str] | None = None,
    seed: Iterable[Step] = (),
    run_id: str = "",
    append: Callable[[PolicyRecord], None] = lambda _entry: None,
    surroundings: Surroundings | None = None,
) -> Ledger[Step]:
    """Perform a policy and give the ledger of its run. What `ledger` has of it is not performed again.

    `actions` are what it may call, by default all there is; `seed` is what its own ledger begins with; `config` all policies
    can read, and `kept` names what of it the ledger keeps: JSON, and no secrets. `append` is given every entry before
    anybody sees what it says. What a policy or `append` raises ends the run; `append` has had what there is to go on from.
    BindingError for an unknown policy, ReplayMismatchError for another run's ledger, TypeError or ValueError for no JSON.
    """
    registered, begin_with, settings = registry[policy_name], tuple(seed), dict(config or {})
    action = Action(policy_name, payload, frozenset(registry if actions is None else actions))
    entries = entries_of(ledger, run_id)

    def write(entry: PolicyRecord) -> None:
        append(entry)
        entries.append(entry)

    asked = _asked(run_id, action, begin_with, {name: settings[name] for name in kept if name in settings})
    if not entries:
        write(asked)
    _require_same(entries[0], asked)
    if not any(isinstance(entry, CallResultEntry) and entry.path == _ROOT for entry in entries):
        fault = registered.fault(action.payload)
        calls = Calls(registry, key=run_id, recorded=entries, append=write, config=settings, surroundings=surroundings)
        perform = partial(calls.perform, action.permitting(registered.actions), registered.policy, seed=begin_with)
        steps = numbered([fault], _ROOT) if fault else await perform()
        write(CallResultEntry(run_id, _ROOT, [step.to_json() for step in steps]))
    return ledger_of(entries)


def _asked(run_id: str, action: Action, seed: tuple[Step, ...], config: Mapping[str, Any]) -> PolicyEntry:
    digest, settings = Said(seed).digest_with(action), Action("", config).payload
    steps = [step.to_json() for step in seed]
    return PolicyEntry(run_id, action.policy, digest, action.payload, sorted(action.actions), steps, settings)


def _require_same(begun: PolicyRecord, asked: PolicyEntry) -> None:
    if not isinstance(begun, PolicyEntry):
        raise ReplayMismatchError(begun.path, "a call", "a ledger that begins with its policy")
    if begun.digest != asked.digest:
        recorded, wanted = (told(entry.policy, entry.payload, entry.digest) for entry in (begun, asked))
        raise ReplayMismatchError(_ROOT, recorded, wanted)


def answer_of(ledger: Iterable[Step]) -> list[Step]:
    """Give the steps that the policy of a run gave. LookupError when it has not finished."""
    for step in ledger:
        if step.id == _ROOT + _RESULT:
            return [Step(**given) for given in step.payload["steps"]]
    raise LookupError("the policy of this run has not given its steps yet")


def in_doubt(entries: Iterable[Entry]) -> tuple[CallEntry, ...]:
    """Give the calls that began and have no result: nobody knows what came of them, and a resumed run makes them again.

    Of calls within each other only the innermost: what it called is all that another had under way.
    """
    calls = [entry for entry in entries if isinstance(entry, CallEntry | CallResultEntry)]
    finished = {(call.key, call.path) for call in calls if isinstance(call, CallResultEntry)}
    open_calls = [
        call
        for call in calls
        if isinstance(call, CallEntry) and not any((call.key, path) in finished for path in _upwards(call.path))
    ]
    outer = {(call.key, path) for call in open_calls for path in list(_upwards(call.path))[1:]}
    return tuple(call for call in open_calls if (call.key, call.path) not in outer)


def _upwards(path: str) -> Iterator[str]:
    """Give a call's path, that of its caller, and so on."""
    while path:
        yield path
        path = path.rpartition(".")[0]


# -- entries and steps ------------------------------------------------------------------------------------------------


def ledger_of(entries: Iterable[Entry]) -> Ledger[Step]:
    """Give the ledger that `run` takes, of the entries that it has appended. Entries of other kinds are left out."""
    steps: list[Step] = []
    names: dict[str, str] = {}
    for entry in entries:
        if isinstance(entry, PolicyEntry):
            names[_ROOT] = entry.policy
            more = {"seed": list(entry.seed), "config": entry.config}
            steps.append(_called(_ROOT, OUTSIDE, entry, more))
        elif isinstance(entry, CallEntry):
            names[entry.path] = entry.policy
            steps.append(_called(entry.path, names.get(entry.path.rpartition(".")[0], OUTSIDE), entry, {}))
        elif isinstance(entry, CallResultEntry):
            actor = names.get(entry.path, OUTSIDE)
            steps.append(Step(entry.path + _RESULT, actor, ACTION_RESULT, {"steps": list(entry.steps)}))
    return Ledger(steps)


def _called(path: str, actor: str, entry: PolicyEntry | CallEntry, more: dict[str, Any]) -> Step:
    said = {"policy": entry.policy, "digest": entry.digest, "payload": entry.payload, "actions": list(entry.actions)}
    return Step(path, actor, ACTION_CALL, said | more)


def entries_of(ledger: Iterable[Step], run_id: str = "") -> list[PolicyRecord]:
    """Give the entries of a ledger that `run` has given. ValueError for a step that does not record a call."""
    return [_entry(step, run_id) for step in ledger]


def _entry(step: Step, run_id: str) -> PolicyRecord:
    said, path = step.payload, step.id.removesuffix(_RESULT)
    if _PATH.fullmatch(path):
        if step.type == ACTION_RESULT and path != step.id and "steps" in said:
            return CallResultEntry(run_id, path, said["steps"])
        if step.type == ACTION_CALL and path == step.id and {"policy", "digest", "payload", "actions"} <= said.keys():
            asked = (said["policy"], said["digest"], said["payload"], said["actions"])
            if path == _ROOT:
                return PolicyEntry(run_id, *asked, said.get("seed", ()), said.get("config", {}))
            return CallEntry(run_id, path, *asked)
    msg = f"step '{step.id}' ({step.type}) records no call; what a policy is to know beforehand goes into `seed`"
    raise ValueError(msg)
