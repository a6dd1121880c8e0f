"""A run of a policy as lines for people: the tree of its calls, what came of each, how the run stands and how to go on.

Takes recorded runs, gives lines without colours; the same ledger gives the same lines. It reads no clock.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

from dsa.cli.kept import line
from dsa.cli.step_lines import SHORT_DIGEST, error_text, shortened, step_text
from dsa.cli.timeline import HANDLED, started_at
from dsa.runtime.called import Called, PolicyStanding, policy_standing
from dsa.runtime.journal import Recorded
from dsa.runtime.ledger import DoubtEntry, PolicyEntry, ResultEntry

_OPTIONS = ("model", "seed", "over", "with")


def policy_story(recorded: Recorded, first: PolicyEntry, root: Path) -> Iterator[str]:
    """Tell a run of a policy from its start to how it stands now."""
    stands = policy_standing(recorded.entries, recorded.holder)
    yield f"run {recorded.run} of the policy {first.policy}"
    options = [f"--{name} {first.config[name]}" for name in _OPTIONS if first.config.get(name) is not None]
    yield " ".join([f"started {started_at(recorded.run)}".rstrip(), *(["with", *options] if options else [])])
    yield ""
    yield from tree_lines(stands.calls)
    yield ""
    yield from _now(stands, root / recorded.run)


def tree_lines(calls: Iterable[Called]) -> Iterator[str]:
    """Give the tree of calls: each with its place, request and digest, and below it what came of it."""
    calls = tuple(calls)
    width = max((len(call.path) for call in calls), default=0)
    for call in calls:
        before = " " * (width + 2 + 2 * call.depth)
        yield f"{call.path:<{width}}{before[width:]}{_request(call)}  {call.digest[:SHORT_DIGEST]}{'  cached' if call.is_cached else ''}"
        yield from (f"{before}  {told}" for told in _outcome(call))


def _request(call: Called) -> str:
    return f"{call.policy}, a turn" if call.payload is None else f"{call.policy} {shortened(call.payload)}"


def _outcome(call: Called) -> Iterator[str]:
    """Say what came of a call, as far as no call below it says so."""
    for entry in call.happened:
        yield happened(entry)
    yield from map(step_text, call.own)
    if call.steps == ():
        yield "gave nothing"
    elif call.steps is None and call.is_over:
        yield "nobody waited for what it gives"
    elif call.steps is None and call.failure is None:
        yield "has given nothing yet"


def happened(entry: DoubtEntry | ResultEntry) -> str:
    """Say what was recorded of a call beside its result."""
    if isinstance(entry, DoubtEntry):
        why = "it had failed" if entry.handling == "again" else "it was under way when the run was cut off"
        return f"resumed: {why}; {HANDLED[entry.handling]}"
    return f"failed: {error_text(entry.steps[-1]['payload'])}"


# -- how it stands ----------------------------------------------------------------------------------------------------


def policy_how(stands: PolicyStanding) -> str:
    """Say in a few words how a run of a policy stands."""
    match stands.kind:
        case "finished":
            return "finished" if stands.error is None else f"finished: error {error_text(stands.error)}"
        case "in doubt":
            return f"in doubt: {', '.join(map(named, stands.asked))}"
        case "stopped":
            assert stands.failure is not None, "it has stopped the run"
            return f"stopped: {named(stands.failure)} failed: {error_text(stands.failure.failure or {})}"
        case "under way":
            return f"under way, held by {stands.holder}"
        case "cut off":
            return "cut off"


def named(call: Called) -> str:
    """Name a call by its policy and its place."""
    return f"{call.policy} {call.path}"


def _now(stands: PolicyStanding, directory: Path) -> Iterator[str]:
    facts = [("now", policy_how(stands))]
    if stands.cached:
        facts.append(
            (
                "cached",
                f"{stands.cached} of {len(stands.calls)} calls had given their steps when the run was taken up last",
            )
        )
    if stands.kind in {"stopped", "cut off"}:
        facts += [("to do", to_do(call, HANDLED[handling])) for call, handling in stands.doubted]
        facts.append(("go on", line("resume", directory)))
    if stands.kind == "under way":
        facts += [("pending", named(call)) for call, _ in stands.doubted]
    width = max(len(name) for name, _ in facts)
    yield from (f"{name:<{width}}  {fact}" for name, fact in facts)
    yield from policy_doubts(stands, directory)


def to_do(call: Called, handled: str) -> str:
    """Say what whoever resumes a run does about a call."""
    return f"{named(call)}, which {'failed' if call.failure else 'was under way'}: {handled}"


def policy_doubts(stands: PolicyStanding, directory: Path) -> Iterator[str]:
    """Say of each call in doubt what is not known, and give the commands that decide it."""
    for call in stands.asked if stands.kind == "in doubt" else ():
        yield f"in doubt: {named(call)} was under way when the run was cut off: {shortened(call.payload)}"
        ways = [
            ("it has not happened", line("resume", directory, "--retry", call.path)),
            ("it has happened", line("resume", directory, "--done", call.path)),
            (
                "it gave something",
                f"{line('send', directory, 'action_result', '--answers', call.path)} --data JSON",
            ),
            ("it has failed", line("resume", directory, "--fail", call.path)),
        ]
        width = max(len(way) for way, _ in ways)
        yield from (f"  {way:<{width}}  {command}" for way, command in ways)
