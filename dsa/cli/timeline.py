"""A run's ledger as lines for people: each event with its row, what came of it, and how the run stands now.

Takes recorded and replayed runs, gives lines without colours; the same ledger gives the same lines. It reads no clock.
"""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from dsa.cli.call_lines import HANDLED, tree_lines
from dsa.cli.kept import Kept, line
from dsa.cli.step_lines import SHORT_DIGEST, error_text, shortened, step_text, text_said
from dsa.expr import show_value
from dsa.runs.one_policy import calls_of_policy
from dsa.runtime.artifacts import short_id
from dsa.runtime.call_tree import POLICY
from dsa.runtime.ledger import (
    ArtifactEntry,
    CallEntry,
    CallResultEntry,
    ChangeEntry,
    DoubtEntry,
    Entry,
    IntentEntry,
    MachineEntry,
    RefusalEntry,
    ResultEntry,
    StepEntry,
    TimerEntry,
    VerdictEntry,
)
from dsa.runtime.recovery import asked_calls, handling_of, unfinished
from dsa.runtime.run import Run
from dsa.runtime.standing import outside_events
from dsa.runtime.timeline import Happening, happenings, short_key
from dsa.trace import show_occurrence, show_values

_WIDEST = 40
_WORTH_SAYING_S = 0.05
_INDENT = "     "
_STAMP = "%Y%m%dT%H%M%S"
_WORDS = {"passed": "passed", "failed": "rejected", "fatal": "fatal"}


def started_at(run_id: str) -> str:
    """Give when a run was started, as its id says it; empty for an id that does not."""
    try:
        moment = datetime.strptime(run_id.partition("-")[0], _STAMP).replace(tzinfo=UTC)
    except ValueError:
        return ""
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"


def story(kept: Kept, root: Path) -> Iterator[str]:
    """Tell a run from its start to how it stands now."""
    is_policy = kept.run.machine.name == POLICY
    happened = list(
        tree_lines(calls_of_policy(kept.run)) if is_policy else told(kept.recorded.entries, kept.first.at_ms)
    )
    yield from heading(kept.first)
    yield from ["", *happened] if happened else []
    yield ""
    yield from now(kept, root)


def heading(first: MachineEntry) -> Iterator[str]:
    """Say which run this is and how it was started."""
    at = f" at {show_values(first.parameters)}" if first.parameters else ""
    yield f"run {first.run} of {first.name}{at}"
    started = dict(first.started)
    given = started | {"with": started.get("module"), "over": (started.get("config") or {}).get("over")}
    options = [f"--{name} {given[name]}" for name in ("model", "seed", "over", "with") if given.get(name) is not None]
    words = [f"started {started_at(first.run)}".rstrip(), *(["with", *options] if options else [])]
    yield " ".join(words)


def told(entries: Iterable[Entry], begun_ms: int | None = None) -> Iterator[str]:
    """Tell what happened, event by event, each with the seconds since the run was begun, if it is known when that was."""
    found = happenings(entries)
    width = min(_WIDEST, max((len(_event(happening)) for happening in found if happening.event), default=0))
    for happening in found:
        if happening.event is not None:
            at_ms = happening.event.at_ms
            since = "" if at_ms is None or begun_ms is None else f"{(at_ms - begun_ms) / 1000:>8.1f} s"
            yield f"{happening.event.seq:>3}{since}  {_event(happening):<{width}}  {outcome_text(happening.outcome)}"
            if happening.event.key is None and happening.event.data not in (None, ""):
                yield f"{_INDENT}data: {shortened(happening.event.data)}"
        for entry in happening.after:
            yield f"{_INDENT}{entry_text(entry)}"


def _event(happening: Happening) -> str:
    event = happening.event
    assert event is not None, "something happened"
    answered = "" if event.key is None else f" (of {short_key(event.key)})"
    return f"{show_occurrence(happening.occurrence)}{answered}"


def outcome_text(outcome: StepEntry | RefusalEntry | None) -> str:
    """Say what the table made of an event: the row, or why not."""
    match outcome:
        case StepEntry(line=at, source=source, target=target, changed=changed):
            where = "" if at is None else f"line {at}: "
            return f"{where}{source} -> {target}{''.join(f', {name} = {show_value(value)}' for name, value in changed)}"
        case RefusalEntry():
            return refusal_text(outcome)
    return ""


def refusal_text(refusal: RefusalEntry) -> str:
    """Say why an event was refused, and what was accepted instead."""
    accepted = f"; accepted there: {', '.join(refusal.accepted)}" if refusal.accepted else "; nothing is accepted there"
    return f"refused: {refusal.reason} ({refusal.message}){accepted}"


def entry_text(entry: Entry) -> str:
    """Say what was recorded, in one line."""
    match entry:
        case ChangeEntry(file=file):
            where = "another document" if file is None else file
            return f"goes on under {where}: {entry.name}, {entry.digest[:SHORT_DIGEST]}"
        case IntentEntry(key=key, effect=effect):
            return f"asks for {effect} {short_key(key)}"
        case ResultEntry():
            return _result(entry)
        case ArtifactEntry():
            return _artifact(entry)
        case VerdictEntry():
            return _verdict(entry)
        case TimerEntry(source=source, event=event):
            return f"timer {event} of {source}, due {due(entry.deadline_ms)}"
        case DoubtEntry(key=key, effect=effect, handling=handling):
            why = "had failed" if handling == "again" else "was under way when the run was cut off"
            return f"resumed: {effect} {short_key(key)} {why}; {HANDLED[handling]}"
        case CallEntry(key=key, path=path, policy=policy, payload=payload):
            asked = f"{policy}, a turn" if payload is None else f"{policy} {shortened(payload)}"
            return f"  {short_key(key)} calls {path} {asked}  {entry.digest[:SHORT_DIGEST]}"
        case CallResultEntry(key=key, path=path):
            return f"  {short_key(key)} call {path}: {_given(entry)}"
    return type(entry).__name__


def _given(entry: CallResultEntry) -> str:
    """Say what a call gave that an effect's policy has made, but for what calls below it have given."""
    own = [step for step in entry.steps if step["id"].rpartition("/")[0] == entry.path]
    if own:
        return "; ".join(map(step_text, own))
    return "gave what those below it gave" if entry.steps else "gave nothing"


def _result(entry: ResultEntry) -> str:
    name = f"{entry.effect} {short_key(entry.key)}"
    for step in entry.steps:
        payload = step["payload"]
        if payload.get("error") is True:
            return f"{name} failed: {error_text(payload)}"
    events = [step["payload"].get("event") for step in entry.steps if step["type"] == "event"]
    took = f", {entry.seconds:.1f} s" if entry.seconds >= _WORTH_SAYING_S else ""
    said = text_said(entry)
    done = f"{name} done{took}{f': {shortened(said)}' if said else ''}"
    return f"{name} answered {events[0]}{took}{_retried(entry)}" if len(events) == 1 else done


def _retried(entry: ResultEntry) -> str:
    """Say how often a generator was asked in vain before it answered."""
    reasons = [str(reason) for step in entry.steps for reason in step["payload"].get("retried") or ()]
    return (
        f", after {len(reasons)} failed {'try' if len(reasons) == 1 else 'tries'}: {', '.join(reasons)}"
        if reasons
        else ""
    )


def _artifact(entry: ArtifactEntry) -> str:
    by = ", ".join(filter(None, (entry.author, entry.model)))
    made = f" by {by}" if by else ""
    flag = f", redacted: {', '.join(entry.redacted)}" if entry.redacted else ""
    name = short_id(entry.artifact_id, entry.key.rsplit("/", 2)[0])
    stored = f"artifact {name}{made}, {entry.seconds:.1f} s{flag}"
    return f"{entry.step} attempt {entry.attempt}: {stored}"


def _verdict(entry: VerdictEntry) -> str:
    guards = ", ".join(f"{said.guard}.{said.outcome}" for said in entry.judgements)
    feedback = f": {shortened(entry.feedback)}" if entry.feedback else ""
    return f"{entry.step} attempt {entry.attempt}: {_WORDS[entry.outcome]} ({guards}){feedback}"


def due(deadline_ms: int) -> str:
    """Write the moment at which a timer is due; it may lie beyond what calendars can say."""
    try:
        return f"{datetime.fromtimestamp(deadline_ms // 1000, tz=UTC):%Y-%m-%d %H:%M:%S}.{deadline_ms % 1000:03} UTC"
    except (ValueError, OverflowError, OSError):
        return f"{deadline_ms} ms after 1970"


# -- how it stands ----------------------------------------------------------------------------------------------------


def now(kept: Kept, root: Path) -> Iterator[str]:
    """Say how a run stands, what it waits for, what is in doubt and how to decide it."""
    run, standing, directory = kept.run, kept.standing, root / kept.run.run_id
    facts = [("now", how(kept)), ("state", run.configuration.state), ("values", show_values(run.values.items()))]
    facts += [
        ("accepted", f"{name}: artifact {short_id(view.accepted, run.run_id)}")
        for name, view in run.steps.items()
        if view.accepted
    ]
    cached = sum(call.is_cached for call in calls_of_policy(run))
    if cached:
        facts.append(
            (
                "cached",
                f"{cached} of {len(calls_of_policy(run))} calls had given their steps when the run was resumed last",
            )
        )
    facts += _to_do(kept)
    facts += [
        ("timer", f"{event} of {source}, due {due(deadline_ms)}")
        for (source, event), deadline_ms in standing.left.timers.items()
    ]
    if standing.kind in {"stopped", "cut off"}:
        facts.append(("go on", line("resume", directory)))
    rests = not (standing.left.in_flight or standing.left.answered)
    if standing.kind == "waiting" or (standing.kind == "cut off" and rests):
        facts += [("send", send_line(run, directory))] if outside_events(run) else []
    width = max(len(name) for name, fact in facts if fact)
    yield from (f"{name:<{width}}  {fact}" for name, fact in facts if fact)
    yield from doubts(run, standing.asked, directory)


def _to_do(kept: Kept) -> Iterator[tuple[str, str]]:
    """Say what is pending in a run that somebody has, else what whoever resumes it does."""
    run, standing = kept.run, kept.standing
    if standing.kind == "under way":
        yield from (("pending", f"{effect} {short_key(key)}") for effect, key in run.keys.items())
        return
    for flying in standing.left.in_flight:
        name = f"{flying.intent.effect} {short_key(flying.intent.key)}"
        if flying.intent in standing.asked:
            continue
        if flying.in_doubt:
            handled = HANDLED[handling_of(run.machine, flying)]
            yield "to do", f"{name}, which was under way: {handled}"
        else:
            yield "to do", f"{name} again, which failed" if flying.has_failed else f"{name}, not begun yet"
        for call in flying.calls:
            handled = HANDLED[call.in_doubt]
            yield "to do", f"{call.policy} {short_key(call.key)}/{call.path}, which was under way: {handled}"
    for intent, _ in standing.left.answered:
        yield "to do", f"take the answer of {intent.effect} {short_key(intent.key)}"


def how(kept: Kept) -> str:
    """Say in a few words how a run stands."""
    standing, run = kept.standing, kept.run
    match standing.kind:
        case "finished":
            return f"finished: {run.outcome}"
        case "waiting":
            return f"waiting for: {', '.join(outside_events(run)) or 'nothing that can happen'}"
        case "in doubt":
            return f"in doubt: {asked_text(run, standing.asked)}"
        case "stopped":
            return f"stopped: {shortened(standing.failure)}"
        case "under way":
            return f"under way, held by {standing.holder}"
        case "cut off":
            left = standing.left
            if left.in_flight or left.answered:
                return "cut off"
            waits = (*outside_events(run), *(event for _, event in left.timers))
            return f"cut off while it waited for: {', '.join(waits)}"


def send_line(run: Run, directory: Path) -> str:
    """Give the command that sends a run what it waits for."""
    events = outside_events(run)
    return f"{line('send', directory, events[0] if len(events) == 1 else 'EVENT')} [DATA]"


def asked_text(run: Run, asked: Iterable[IntentEntry]) -> str:
    """Name what somebody has to decide about: effects, or the calls in them."""
    return ", ".join(f"{name} {key.removeprefix(f'{run.run_id}/')}" for key, name in asked_keys(run, asked).items())


def asked_keys(run: Run, asked: Iterable[IntentEntry]) -> dict[str, str]:
    """Return the keys of what somebody has to decide about, with the names of effects and policies."""
    flying = {each.intent.key: each for each in unfinished(run).in_flight}
    found: dict[str, str] = {}
    for intent in asked:
        calls = asked_calls(flying[intent.key])
        is_whole = handling_of(run.machine, flying[intent.key], dict.fromkeys(calls, "retry")) == "ask"
        found |= {intent.key: intent.effect} if is_whole else {key: call.policy for key, call in calls.items()}
    return found


def doubts(run: Run, asked: Iterable[IntentEntry], directory: Path) -> Iterator[str]:
    """Say of each effect in doubt, or of each call in it, what is not known, and give the commands that decide it."""
    flying = {each.intent.key: each for each in unfinished(run).in_flight}
    for key, name in asked_keys(run, asked).items():
        short = key.removeprefix(f"{run.run_id}/")
        ways = [("it has not happened", line("resume", directory, "--retry", short))]
        if key in flying:
            intent, answers = flying[key].intent, run.machine.answers.get(name)
            place = "" if intent.line is None else f" (line {intent.line})"
            within = "".join(
                f", and in it {c.policy} {shortened(c.payload)}" for c in asked_calls(flying[key]).values()
            )
            yield f"in doubt: {name} {short}{place} was under way when the run was cut off{within}"
            if answers is None:
                ways.append(("it has happened", line("resume", directory, "--done", short)))
            else:
                ways += [(f"it gave {event}", line("send", directory, event, "--answers", short)) for event in answers]
        else:
            call = next(call for each in flying.values() for at, call in asked_calls(each).items() if at == key)
            yield f"in doubt: {name} {short} was under way when the run was cut off: {shortened(call.payload)}"
            gave = f"{line('send', directory, 'action_result', '--answers', short)} --json-data JSON"
            done = line("resume", directory, "--done", short)
            ways += [("it has happened", done), ("it gave something", gave)]
        ways.append(("it has failed", line("resume", directory, "--fail", short)))
        width = max(len(way) for way, _ in ways)
        yield from (f"  {way:<{width}}  {command}" for way, command in ways)
