"""A run of a policy, from beginning to end or from where it was cut off, in the folder where runs are kept.

Takes a policy's name, what it is asked, and a registry; or a run's id. Gives what became of it. Each call is durable as it begins and before
anybody sees what it gave, however this ends.
"""

import asyncio
import json
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Self, TextIO

import attrs

from dsa.edge.binding import Binding
from dsa.edge.interrupts import run_to_end
from dsa.edge.logs import LedgerLog
from dsa.errors import DocumentError, DsaError
from dsa.runs.folder import new_run_id
from dsa.runs.place import open_store
from dsa.runtime.called import ROOT, PolicyStanding, policy_standing, require_decidable, settled
from dsa.runtime.derived import Derived, LedgerEnds, derive
from dsa.runtime.journal import Beginning, Journal
from dsa.runtime.ledger import CallEntry, Entry, Handling, Ledger, PolicyEntry, ResultEntry, dump_line
from dsa.runtime.moment import Moment, OnMoment, to_all
from dsa.runtime.policies import Payload, Step, error_of
from dsa.runtime.policy_run import in_doubt, key_of, ledger_of, run
from dsa.runtime.redacting import entry_without
from dsa.runtime.registry import Registry
from dsa.runtime.secrets import Secrets


@attrs.frozen
class PolicyEnd:
    """How a run of a policy came to rest: `finished`, `stopped` or `in doubt`; its ledger, its folder, how many seconds it took this time.

    `where` is the line of the program in which it was stopped, as `FILE:LINE`; empty when it was not.
    """

    run: str
    standing: PolicyStanding
    entries: tuple[Entry, ...]
    directory: Path
    seconds: float = 0.0
    where: str = ""


@attrs.frozen
class _Asked:
    """What a run is asked; `config` all policies can read, and the ledger keeps those of its settings that `kept` names."""

    policy: str
    payload: Payload
    binding: Binding
    config: Mapping[str, Any]
    kept: tuple[str, ...] = ()
    actions: tuple[str, ...] | None = None
    seed: tuple[Step, ...] = ()
    at_ms: int | None = None


def begin(
    policy: str,
    payload: Payload,
    binding: Binding,
    *,
    root: Path,
    config: Mapping[str, Any] | None = None,
    on_moment: OnMoment = lambda _moment, _is_new: None,
) -> PolicyEnd:
    """Run a policy until it has given its steps, or stops. `config` is kept: JSON, and no secrets.

    BindingError for a policy that is not registered, DocumentError and StoreError when nothing can be kept.
    """
    name, settings = binding.policies[policy].name, dict(config or {})
    asked = _Asked(name, payload, binding, settings, tuple(settings), at_ms=time.time_ns() // 1_000_000)
    run_id = new_run_id(name)
    with open_store(root) as store, PolicyDirectory(root / run_id, on_moment) as directory:
        return _driven(asked, Beginning(store, run_id, ""), directory)


def take_up(
    root: Path,
    run_id: str,
    bind: Callable[[PolicyEntry], Binding],
    *,
    decided: Mapping[str, Handling] | None = None,
    answers: Mapping[str, Step] | None = None,
    take: bool = False,
    config: Mapping[str, Any] | None = None,
    on_moment: OnMoment = lambda _moment, _is_new: None,
) -> PolicyEnd:
    """Go on with a run that was cut off or has stopped; what it has results of is not performed again.

    `bind` gives the policies, for how the run was begun. `decided` says what is done about calls in doubt, by their paths, `answers` what they
    gave. While somebody has still to say so of one, nothing is done. `take` takes the run from a process that holds it and is alive.
    `config` are settings that are other ones now.

    Raises StoreError, ReplayMismatchError when the policies do not ask for what is recorded, BindingError when there are none of these
    names, CallDoubtError for what cannot be said of a call.
    """
    decided, answers = decided or {}, answers or {}
    with open_store(root, must_exist=True) as store:
        journal, recorded = store.hold(run_id, take=take)
        try:
            stands, first = policy_standing(recorded.entries), recorded.entries[0]
            assert isinstance(first, PolicyEntry), "a run of a policy begins with it"
            require_decidable(stands, decided, answers)
            is_asked = any(call.path not in {*decided, *answers} for call in stands.asked)
            if stands.kind == "finished" or is_asked:
                return PolicyEnd(run_id, stands, tuple(recorded.entries), root / run_id)
            asked = _asked_again(first, bind(first), config or {})
            with PolicyDirectory(root / run_id, on_moment, recorded.entries) as directory:
                for entry in settled(run_id, stands, decided, answers):
                    directory.keep(journal, entry_without(asked.binding.secrets, entry))
                return _driven(asked, journal, directory)
        finally:
            journal.release()


def derived_again(entries: Iterable[Entry], registry: Registry) -> Derived:
    """Derive a run again from its ledger (`dsa.runtime.derived`), with nothing done to the world. Raises ReplayMismatchError, BindingError."""

    async def deriving() -> Derived:
        loop = asyncio.get_running_loop()
        told = loop.default_exception_handler
        loop.set_exception_handler(lambda _loop, about: None if _ends_it(about.get("exception")) else told(about))
        return await derive(entries, registry)

    return asyncio.run(deriving())


def _ends_it(error: BaseException | None) -> bool:
    """Tell whether this is told anyhow, so that nobody need hear of it from a task that a policy has left to itself."""
    return isinstance(error, LedgerEnds | DsaError)


def _asked_again(first: PolicyEntry, binding: Binding, config: Mapping[str, Any]) -> _Asked:
    seed = tuple(Step(**step) for step in first.seed)
    settings = {**first.config, **config}
    return _Asked(binding.policies[first.policy].name, first.payload, binding, settings, (), first.actions, seed)


class PolicyDirectory:
    """A copy of a run for people: `ledger.jsonl` as it goes, `answer.txt` at the end. Use it as a context manager.

    `entries` are those that it has so far; `on_moment` is given these, and every one that comes once it is durable. Raises DocumentError when it
    cannot be made.
    """

    def __init__(
        self, path: Path, on_moment: OnMoment = lambda _moment, _is_new: None, entries: Iterable[Entry] = ()
    ) -> None:
        self.path, self.entries, self.log = path, list(entries), LedgerLog()
        self._on_moment = to_all(self.log.on_moment, on_moment)
        try:
            path.mkdir(parents=True, exist_ok=True)
            self._ledger: TextIO = (path / "ledger.jsonl").open("w", encoding="utf-8", newline="\n")
        except OSError as fault:
            raise DocumentError(str(path), f"no run can be kept here: {fault.strerror or fault}") from fault
        for number, entry in enumerate(self.entries, start=1):
            self._on_moment(Moment(path.name, number, entry), False)  # noqa: FBT003  (the observer interface)
            self._ledger.write(dump_line(entry) + "\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._ledger.close()

    def keep(self, journal: Journal, entry: Entry) -> None:
        """Make an entry durable, then write it and show it."""
        journal.append([entry])
        self.entries.append(entry)
        self._ledger.write(dump_line(entry) + "\n")
        self._ledger.flush()
        self._on_moment(Moment(self.path.name, len(self.entries), entry), True)  # noqa: FBT003

    def write_answer(self, steps: Iterable[Mapping[str, Any]]) -> None:
        """Write what the run's policy said last, as people read it."""
        text = answer_text(steps)
        (self.path / "answer.txt").write_bytes(f"{text}\n".encode("utf-8", "surrogatepass"))


def answer_text(steps: Iterable[Mapping[str, Any]]) -> str:
    """Give the last text among steps, or else what the last step carries, as JSON; nothing for no steps."""
    payloads = [step["payload"] for step in steps]
    texts = [payload["text"] for payload in payloads if isinstance(payload.get("text"), str)]
    last = payloads[-1] if payloads else {}
    if texts and last.get("error") is not True:
        return str(texts[-1])
    return json.dumps(last, ensure_ascii=False, indent=2) if payloads else ""


def _driven(asked: _Asked, journal: Journal, directory: PolicyDirectory) -> PolicyEnd:
    """Perform the policy with what is recorded, which the directory has."""
    before, keep, began, where = ledger_of(directory.entries), partial(directory.keep, journal), time.monotonic(), ""
    try:
        run_to_end(_performed(asked, journal.run, before, keep))
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001  (sys.exit in a policy stops the run, not the program)
        _require_told(error, journal.run, directory.entries, asked.binding.secrets, keep)
        where = _line_of(error)
    seconds, stands = time.monotonic() - began, policy_standing(directory.entries)
    journal.release()
    if stands.kind == "finished":
        directory.write_answer(stands.answer)
    if stands.failure is not None and stands.failure.failure is not None:
        failed = stands.failure.failure
        directory.log.stopped(stands.failure.policy, None, str(failed.get("code")), str(failed.get("message")))
    return PolicyEnd(journal.run, stands, tuple(directory.entries), directory.path, seconds, where)


async def _performed(asked: _Asked, run_id: str, before: Ledger[Step], append: Callable[[Entry], None]) -> None:
    await run(
        asked.policy,
        asked.payload,
        asked.binding.policies,
        before,
        config=asked.config,
        kept=asked.kept,
        actions=asked.actions,
        seed=asked.seed,
        run_id=run_id,
        at_ms=asked.at_ms,
        append=append,
        secrets=asked.binding.secrets,
    )


def _require_told(
    error: BaseException, run_id: str, entries: list[Entry], secrets: Secrets, keep: Callable[[Entry], None]
) -> None:
    """See that the ledger says what a policy raised. Raises what no policy did."""
    if policy_standing(entries).failure is not None:
        return
    if isinstance(error, Exception):
        raise error
    first, doubted = entries[0], in_doubt(entries)  # sys.exit and the like, which end the event loop too
    assert isinstance(first, PolicyEntry), "a run of a policy begins with it"
    call: CallEntry | PolicyEntry = doubted[-1] if doubted else first
    path = call.path if isinstance(call, CallEntry) else ROOT
    failure = ResultEntry(key_of(run_id, path), [error_of(call.policy, error).without_id()])
    keep(entry_without(secrets, failure))


def _line_of(error: BaseException) -> str:
    """Give the last line of the program that an error passed through; nothing for one that is raised on purpose."""
    frames = [] if isinstance(error, DsaError) else traceback.extract_tb(error.__traceback__)
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""
