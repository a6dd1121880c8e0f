"""What a ledger tells of a run of a policy: each call, what came of it, how the run stands, and what may be said of it.

Takes entries, gives values to be written down or decided about. Pure, and no policy is needed for it.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Literal

import attrs

from dsa.errors import DsaError
from dsa.runtime.ledger import CallEntry, CallResultEntry, DoubtEntry, Entry, Handling, PolicyEntry, ResultEntry
from dsa.runtime.policies import Step, action_result_step, error_step
from dsa.runtime.policy_run import key_of
from dsa.runtime.recorded import IN_DOUBT, numbered

ROOT = "1"  # the path of the policy that a run is of

Kind = Literal["finished", "in doubt", "stopped", "cut off", "under way"]


class CallDoubtError(DsaError):
    """Raised when something is said about a call that is not in doubt, or something that cannot be said of it."""


@attrs.frozen
class Called:
    """One call: where it stands, of which policy, what was asked, what came of it.

    `payload` is None for a turn of a loop. `steps` is what it gave, None while it has given nothing; `own` are those among them that
    no call below it has made. `failure` is what its policy raised, if nobody has gone on since. `happened` is what was recorded about it beside
    that. `is_cached`: it had given its steps when the run was taken up last. `is_over`: it, or one that it is a part of, has given its steps.
    """

    path: str
    policy: str
    digest: str
    payload: dict[str, Any] | None
    in_doubt: Handling
    steps: tuple[dict[str, Any], ...] | None = None
    own: tuple[dict[str, Any], ...] = ()
    failure: dict[str, Any] | None = None
    happened: tuple[DoubtEntry | ResultEntry, ...] = ()
    is_cached: bool = False
    is_over: bool = False

    @property
    def depth(self) -> int:
        """How many calls it is within."""
        return self.path.count(".")

    def is_within(self, path: str) -> bool:
        """Tell whether it is the call of this path, or a part of it."""
        return f"{self.path}.".startswith(f"{path}.")


def calls_of(entries: Iterable[Entry]) -> tuple[Called, ...]:
    """Give the calls of a run in the order of their places, the run's policy first."""
    read = _Read()
    for entry in entries:
        read.take(entry)
    ordered = sorted(read.begun, key=place_of)
    own = _own(ordered, read.given)
    return tuple(
        attrs.evolve(
            read.begun[path],
            steps=read.given.get(path),
            own=own.get(path, ()),
            failure=read.failures.get(path),
            happened=tuple(read.happened.get(path, ())),
            is_cached=path in read.cached,
            is_over=any(f"{path}.".startswith(f"{given}.") for given in read.given),
        )
        for path in ordered
    )


def place_of(path: str) -> tuple[int, ...]:
    """Give a path as numbers: 1.2 stands before 1.10."""
    return tuple(map(int, path.split(".")))


class _Read:
    """What the entries of a run say of each path."""

    def __init__(self) -> None:
        self.begun: dict[str, Called] = {}
        self.given: dict[str, tuple[dict[str, Any], ...]] = {}
        self.failures: dict[str, dict[str, Any]] = {}
        self.happened: dict[str, list[DoubtEntry | ResultEntry]] = {}
        self.cached: frozenset[str] = frozenset()

    def take(self, entry: Entry) -> None:
        """Take note of an entry."""
        match entry:
            case PolicyEntry(policy=policy, digest=digest, payload=payload, in_doubt=in_doubt):
                self.begun[ROOT] = Called(ROOT, policy, digest, payload, in_doubt)
            case CallEntry(path=path, policy=policy, digest=digest, payload=payload, in_doubt=in_doubt):
                self.begun[path] = Called(path, policy, digest, payload, in_doubt)
            case CallResultEntry(path=path, steps=steps):
                self.given[path] = steps
            case ResultEntry(key=key, steps=steps):
                self.happened.setdefault(path_of(key), []).append(entry)
                self.failures[path_of(key)] = steps[-1]["payload"]
            case DoubtEntry(key=key):
                self.happened.setdefault(path_of(key), []).append(entry)
                self.failures.clear()
                self.cached = frozenset(self.given)


def path_of(key: str) -> str:
    """Give the path of a call from its key, with or without its run."""
    return key.rpartition("/")[2]


def _own(paths: list[str], given: Mapping[str, tuple[dict[str, Any], ...]]) -> dict[str, tuple[dict[str, Any], ...]]:
    """Give for each call the steps that are not passed on from a call below it, nor say what came of one."""
    made: dict[str, tuple[dict[str, Any], ...]] = {}
    known: set[str] = set()
    for path in sorted(paths, key=lambda path: -path.count(".")):
        made[path] = tuple(step for step in given.get(path, ()) if step["id"].removesuffix(".result") not in known)
        known |= {step["id"] for step in made[path]}
    return made


# -- how it stands ----------------------------------------------------------------------------------------------------


@attrs.frozen
class PolicyStanding:
    """How a run of a policy stands.

    `kind` as of a machine's run (`dsa.runtime.standing`), of which it is never `waiting`. `doubted` are the calls under way, with what is done about
    them when the run is taken up; `failure` is the call whose policy raised something, and stopped the run; `holder` writes the run.
    """

    kind: Kind
    calls: tuple[Called, ...]
    doubted: tuple[tuple[Called, Handling], ...] = ()
    failure: Called | None = None
    holder: str | None = None

    @property
    def asked(self) -> tuple[Called, ...]:
        """The calls about which somebody has to say what became of them."""
        return tuple(call for call, handling in self.doubted if handling == "ask")

    @property
    def answer(self) -> tuple[dict[str, Any], ...]:
        """The steps that the run's policy gave; none while it has given nothing."""
        return self.calls[0].steps or ()

    @property
    def error(self) -> dict[str, Any] | None:
        """The payload of the error step with which the run's policy ended, if it did."""
        last = self.answer[-1]["payload"] if self.answer else {}
        return last if last.get("error") is True else None

    @property
    def cached(self) -> int:
        """How many calls had given their steps when the run was taken up last."""
        return sum(call.is_cached for call in self.calls)


def policy_standing(entries: Iterable[Entry], holder: str | None = None) -> PolicyStanding:
    """Say how a run of a policy stands; `holder` is who writes it and is alive."""
    calls = calls_of(entries)
    if calls[0].steps is not None:
        return PolicyStanding("finished", calls)
    doubted = tuple(_doubted([call for call in calls if not call.is_over]))
    if holder is not None:
        return PolicyStanding("under way", calls, doubted, holder=holder)
    failed = next((call for call in calls if call.failure is not None), None)
    is_asked = any(handling == "ask" for _, handling in doubted)
    return PolicyStanding("in doubt" if is_asked else "stopped" if failed else "cut off", calls, doubted, failed)


def _doubted(under_way: list[Called]) -> Iterable[tuple[Called, Handling]]:
    """Give what is done about the calls under way: of those within each other, the outermost that is not simply made again, else the innermost.

    A call whose policy raised something is made again, and so are those that it is a part of.
    """
    settled: list[str] = []
    for call in under_way:
        below = [other for other in under_way if other is not call and other.is_within(call.path)]
        if any(call.is_within(path) for path in settled):
            continue
        if call.failure is not None:
            yield call, "again"
        elif any(other.failure is not None for other in below):
            continue
        elif call.in_doubt != "retry":
            settled.append(call.path)
            yield call, call.in_doubt
        elif not below:
            yield call, "retry"


# -- what is said of it -----------------------------------------------------------------------------------------------


def require_decidable(standing: PolicyStanding, decided: Collection[str], answers: Collection[str]) -> None:
    """Raise CallDoubtError unless all these paths are those of calls in doubt."""
    doubted = {call.path for call, handling in standing.doubted if handling != "again"}
    for path in (*decided, *answers):
        if path not in doubted:
            listed = ", ".join(sorted(doubted, key=place_of)) or "nothing"
            raise CallDoubtError(f"{path} is not in doubt; in doubt: {listed}")
        if path in decided and path in answers:
            raise CallDoubtError(f"{path} is decided twice")


def settled(
    run_id: str, standing: PolicyStanding, decided: Mapping[str, Handling], answers: Mapping[str, Step]
) -> tuple[DoubtEntry | CallResultEntry, ...]:
    """Give the entries with which a run is taken up: what is done about each call under way, and what it gave if it is not made again.

    `decided` says by their paths what is done, `answers` what they gave. `ask` must be decided.
    """
    entries: list[DoubtEntry | CallResultEntry] = []
    for call, declared in standing.doubted:
        handling = "done" if call.path in answers else decided.get(call.path, declared)
        assert handling != "ask", "somebody has said what became of it"
        entries.append(DoubtEntry(key_of(run_id, call.path), call.policy, handling))
        if handling in {"fail", "done"}:
            step = answers.get(call.path) or _said(call.policy, failed=handling == "fail")
            steps = numbered([step], call.path)
            entries.append(CallResultEntry(run_id, call.path, [given.to_json() for given in steps]))
    return tuple(entries)


def _said(policy: str, *, failed: bool) -> Step:
    """Give what stands for the result of a call that nobody has: that it has failed, or that it has happened."""
    said = f"the run was cut off while it was under way; it counts as {'failed' if failed else 'done'}"
    if failed:
        return error_step(policy, IN_DOUBT, said)
    return action_result_step(policy, {"done": True, "message": said})
