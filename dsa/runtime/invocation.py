"""Invocations: a policy asked from outside, and the ledger of steps that comes of it (seed 004, section 9).

`run` takes and gives a ledger of steps: an `action_call` when a policy is called, an `action_result` with all its steps when
it has finished. Whoever makes it durable gets the same as entries, one by one; `ledger_of` and `entries_of` turn one form
into the other, so that any prefix of the entries is a ledger to go on from. The calls are those of an effect of a machine: the path `1` is
the outside, `1.1` the policy that it asks.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from dsa.declarations import OUTSIDE
from dsa.runtime.call_tree import call_key, doubted_calls
from dsa.runtime.calls import CallRecord, Calls
from dsa.runtime.ledger import CallEntry, CallResultEntry, Entry, Handling, Ledger, ResultEntry
from dsa.runtime.policies import ACTION_CALL, ACTION_RESULT, Action, Payload, PolicyContext, Step, error_of
from dsa.runtime.redacting import entry_without
from dsa.runtime.registry import Registry
from dsa.runtime.secrets import Secrets

#: What stands in the ledger beside what a run can go on from: what a policy raised.
Appended = CallRecord | ResultEntry

#: The path of the policy that is asked.
ROOT = "1.1"
_RESULT = ".result"
_PATH = re.compile(r"[1-9][0-9]*(\.[1-9][0-9]*)+")


async def run(
    policy_name: str,
    payload: Payload,
    registry: Registry | Mapping[str, Any],
    ledger: Iterable[Step] = (),
    *,
    config: Mapping[str, Any] | None = None,
    actions: Iterable[str] | None = None,
    seed: Iterable[Step] = (),
    run_id: str = "",
    append: Callable[[Appended], None] = lambda _entry: None,
    secrets: Secrets | None = None,
) -> Ledger[Step]:
    """Perform a policy and return the ledger of its run. What `ledger` has of it is not performed again.

    `registry` may be a dictionary of policies. `actions` are what it may call, by default all there is; its own ledger begins with `seed`; all
    policies can read `config`. `append` is given every entry before anybody sees what it says; after what a policy raises, the last is a
    ResultEntry with that. `secrets` are in no entry. Raises BindingError for an unknown policy, ReplayMismatchError for another run's
    ledger, TypeError or ValueError for what is not JSON.
    """
    policies = registry if isinstance(registry, Registry) else Registry(registry)
    known, entries = policies[policy_name].name, list[Appended](entries_of(ledger, run_id))

    def write(entry: Appended) -> None:
        entries.append(entry if secrets is None else entry_without(secrets, entry))
        append(entries[-1])

    calls = Calls(policies, key=run_id, recorded=entries, append=write, config=config, secrets=secrets)
    action = calls.kept(Action(known, payload, frozenset(policies if actions is None else actions)))

    async def outside(_action: Action, context: PolicyContext) -> list[Step]:
        return await context.call(action, seed=calls.without_secrets(seed))

    try:
        await calls.perform(Action(OUTSIDE), outside, allowed=[known], with_ids=False)
    except Exception as error:
        if calls.crashed_in is not None:
            write(_failure(entries, run_id, calls.crashed_in, error))
        raise
    return ledger_of(entries)


def _failure(entries: Iterable[Appended], run_id: str, path: str, error: BaseException) -> ResultEntry:
    """Return the record of what a policy raised."""
    names = [entry.policy for entry in entries if isinstance(entry, CallEntry) and entry.path == path]
    return ResultEntry(call_key(run_id, path), [error_of(names[-1], error).without_id()])


def answer_of(ledger: Iterable[Step]) -> list[Step]:
    """Return the steps that the policy of a run gave. LookupError when it has not finished."""
    for step in ledger:
        if step.id == ROOT + _RESULT:
            return [Step(**given) for given in step.payload["steps"]]
    raise LookupError("the policy of this run has not given its steps yet")


def in_doubt(entries: Iterable[Entry]) -> tuple[CallEntry, ...]:
    """Return the calls that began and have no result: nobody knows what came of them.

    Of calls within each other only one: the outermost of which somebody has to say so, else the innermost, which a resumed run makes again.
    """
    return doubted_calls(entries)


# -- entries and steps ------------------------------------------------------------------------------------------------


def ledger_of(entries: Iterable[Entry]) -> Ledger[Step]:
    """Return the ledger that `run` takes, of the entries that it has appended. Entries of other kinds are left out."""
    steps: list[Step] = []
    names: dict[str, str] = {}
    for entry in entries:
        if isinstance(entry, CallEntry):
            names[entry.path] = entry.policy
            actor = names.get(entry.path.rpartition(".")[0], OUTSIDE)
            said = {"policy": entry.policy, "digest": entry.digest, "payload": entry.payload}
            more = {"actions": list(entry.actions), "in_doubt": entry.in_doubt}
            steps.append(Step(entry.path, actor, ACTION_CALL, {**said, **more}))
        elif isinstance(entry, CallResultEntry):
            actor = names.get(entry.path, OUTSIDE)
            steps.append(Step(entry.path + _RESULT, actor, ACTION_RESULT, {"steps": list(entry.steps)}))
    return Ledger(steps)


def entries_of(ledger: Iterable[Step], run_id: str = "") -> list[CallRecord]:
    """Return the entries of a ledger that `run` has given. ValueError for a step that does not record a call."""
    return [_entry(step, run_id) for step in ledger]


def _entry(step: Step, run_id: str) -> CallRecord:
    said, path = step.payload, step.id.removesuffix(_RESULT)
    if _PATH.fullmatch(path):
        if step.type == ACTION_RESULT and path != step.id and "steps" in said:
            return CallResultEntry(run_id, path, said["steps"])
        if step.type == ACTION_CALL and path == step.id and {"policy", "digest", "payload", "actions"} <= said.keys():
            in_doubt: Handling = said.get("in_doubt", "retry")
            return CallEntry(run_id, path, said["policy"], said["digest"], said["payload"], said["actions"], in_doubt)
    msg = f"step '{step.id}' ({step.type}) records no call; what a policy is to know beforehand goes into `seed`"
    raise ValueError(msg)
