"""A run of a policy without a machine (seed 004, section 9), and the two forms in which it is kept.

`run` takes and gives a ledger of steps: an `action_call` when a policy is called, an `action_result` with all its steps when
it has finished. Whoever makes it durable gets the same as entries, one by one; `ledger_of` and `entries_of` turn one form
into the other, so that any prefix of the entries is a ledger to go on from.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import attrs

from dsa.declarations import OUTSIDE
from dsa.runtime.calls import Calls
from dsa.runtime.ledger import CallEntry, CallResultEntry, Entry, Handling, Ledger, PolicyEntry, ResultEntry
from dsa.runtime.policies import ACTION_CALL, ACTION_RESULT, Action, Payload, Step, Surroundings, error_of
from dsa.runtime.recorded import ReplayMismatchError, Said, open_calls, told, upwards
from dsa.runtime.redacting import AnEntry, entry_without
from dsa.runtime.registry import Registered, Registry
from dsa.runtime.secrets import Secrets

PolicyRecord = PolicyEntry | CallEntry | CallResultEntry
#: What stands in the ledger of a run beside what it can go on from: what a policy raised.
Appended = PolicyRecord | ResultEntry

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
    at_ms: int | None = None,
    append: Callable[[Appended], None] = lambda _entry: None,
    surroundings: Surroundings | None = None,
    secrets: Secrets | None = None,
) -> Ledger[Step]:
    """Perform a policy and give the ledger of its run. What `ledger` has of it is not performed again.

    `actions` are what it may call, by default all there is; `seed` is what its own ledger begins with; `config` all policies
    can read, and `kept` names what of it the ledger keeps: JSON, and no secrets. `at_ms` is when, in milliseconds since 1970. `append` is
    given every entry before anybody sees what it says. What a policy or `append` raises ends the run; `append` has had what there is to go
    on from, the last a ResultEntry with what a policy raised. `secrets` are in no entry, and not in what the policy is asked.

    Raises BindingError for an unknown policy, ReplayMismatchError for another run's ledger, TypeError or ValueError for no JSON.
    """
    registered, settings = registry[policy_name], dict(config or {})
    under_way = _UnderWay(entries_of(ledger, run_id), append, secrets)
    calls = under_way.calls(registry, run_id, settings, surroundings)
    action = calls.kept(Action(policy_name, payload, frozenset(registry if actions is None else actions)))
    begin_with = tuple(calls.without_secrets(seed))
    remembered = {name: settings[name] for name in kept if name in settings}
    asked = _asked(run_id, action, begin_with, remembered, registered.in_doubt, at_ms)
    under_way.begin(asked)
    if not under_way.is_over:
        await under_way.finish(calls, registered, action, begin_with)
    return ledger_of(under_way.entries)


@attrs.frozen
class _UnderWay:
    """A run under way: its entries so far, and who is given more of them, without secrets."""

    entries: list[Appended]
    _append: Callable[[Appended], None]
    _secrets: Secrets | None

    def write(self, entry: Appended) -> None:
        """Append an entry."""
        self._append(entry)
        self.entries.append(entry)

    def calls(
        self, registry: Registry, run_id: str, config: Mapping[str, Any], surroundings: Surroundings | None
    ) -> Calls:
        """Give what makes the calls of the run."""
        return Calls(
            registry,
            key=run_id,
            recorded=self.entries,
            append=self.write,
            config=config,
            surroundings=surroundings,
            secrets=self._secrets,
        )

    def begin(self, asked: PolicyEntry) -> None:
        """Write the first entry, or see that it is the one there is."""
        asked = self._without_secrets(asked)
        if not self.entries:
            self.write(asked)
        begun = self.entries[0]
        if not isinstance(begun, PolicyEntry):
            raise ReplayMismatchError(_ROOT, "something else", "a ledger that begins with its policy")
        if begun.digest != asked.digest:
            recorded, wanted = (told(entry.policy, entry.payload, entry.digest) for entry in (begun, asked))
            raise ReplayMismatchError(_ROOT, recorded, wanted)

    @property
    def is_over(self) -> bool:
        """Tell whether the run's policy has given its steps."""
        return any(isinstance(entry, CallResultEntry) and entry.path == _ROOT for entry in self.entries)

    async def finish(self, calls: Calls, registered: Registered, action: Action, seed: tuple[Step, ...]) -> None:
        """Perform the run's policy and write what it gives. What it raises is written as the failure of the call in which that began."""
        fault = registered.fault(action.payload)
        try:
            steps = (
                calls.given([fault], _ROOT)
                if fault is not None
                else await calls.perform(action.permitting(registered.actions), registered.policy, seed=seed)
            )
        except Exception as error:
            if calls.crashed_in is not None:
                failure = _failure(self.entries, calls.key, calls.crashed_in, error)
                self.write(self._without_secrets(failure))
            raise
        self.write(CallResultEntry(calls.key, _ROOT, [step.to_json() for step in steps]))

    def _without_secrets(self, entry: AnEntry) -> AnEntry:
        return entry if self._secrets is None else entry_without(self._secrets, entry)


def _failure(entries: Iterable[Appended], run_id: str, path: str, error: BaseException) -> ResultEntry:
    """Give the record of what a policy raised."""
    names = [e.policy for e in entries if isinstance(e, PolicyEntry) or (isinstance(e, CallEntry) and e.path == path)]
    return ResultEntry(key_of(run_id, path), [error_of(names[-1], error).without_id()])


def key_of(run_id: str, path: str) -> str:
    """Give the key of a call: what `PolicyContext.key` is, and what stands in the ledger."""
    return f"{run_id}/{path}" if run_id else path


def _asked(
    run_id: str,
    action: Action,
    seed: tuple[Step, ...],
    config: Mapping[str, Any],
    in_doubt: Handling,
    at_ms: int | None,
) -> PolicyEntry:
    digest, settings = Said(seed).digest_with(action), Action("", config).payload
    steps, actions = [step.to_json() for step in seed], sorted(action.actions)
    return PolicyEntry(run_id, action.policy, digest, action.payload, actions, steps, settings, in_doubt, at_ms)


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
    calls = open_calls(entries)
    outer = {(call.key, path) for call in calls for path in list(upwards(call.path))[1:]}
    return tuple(call for call in calls if (call.key, call.path) not in outer)


# -- entries and steps ------------------------------------------------------------------------------------------------


def ledger_of(entries: Iterable[Entry]) -> Ledger[Step]:
    """Give the ledger that `run` takes, of the entries that it has appended. Entries of other kinds are left out."""
    steps: list[Step] = []
    names: dict[str, str] = {}
    for entry in entries:
        if isinstance(entry, PolicyEntry):
            names[_ROOT] = entry.policy
            more = {"seed": list(entry.seed), "config": entry.config, "at_ms": entry.at_ms}
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
    return Step(path, actor, ACTION_CALL, said | {"in_doubt": entry.in_doubt} | more)


def entries_of(ledger: Iterable[Step], run_id: str = "") -> list[Appended]:
    """Give the entries of a ledger that `run` has given. ValueError for a step that does not record a call."""
    return [_entry(step, run_id) for step in ledger]


def _entry(step: Step, run_id: str) -> PolicyRecord:
    said, path = step.payload, step.id.removesuffix(_RESULT)
    if _PATH.fullmatch(path):
        if step.type == ACTION_RESULT and path != step.id and "steps" in said:
            return CallResultEntry(run_id, path, said["steps"])
        if step.type == ACTION_CALL and path == step.id and {"policy", "digest", "payload", "actions"} <= said.keys():
            asked = (said["policy"], said["digest"], said["payload"], said["actions"])
            in_doubt: Handling = said.get("in_doubt", "retry")
            if path == _ROOT:
                about = (said.get("seed", ()), said.get("config", {}), in_doubt, said.get("at_ms"))
                return PolicyEntry(run_id, *asked, *about)
            return CallEntry(run_id, path, *asked, in_doubt)
    msg = f"step '{step.id}' ({step.type}) records no call; what a policy is to know beforehand goes into `seed`"
    raise ValueError(msg)
