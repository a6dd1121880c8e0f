"""Ledger views: recorded runs, steps of policies and costs as lines for people.

`story` tells a run: each event with its row, the effects and results after it, and how the run stands now. The lines have no colours, and the same
ledger gives the same lines; no clock is read. `tree_lines` shows the calls of policies as a tree, and `CallDisplay` prints them one by one.
`tokens_and_cost` writes the usage of models; a number that is not known is called unknown, never 0. `terminal` returns a Rich console, which is why
the module takes long to import.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import attrs
from rich.console import Console

from dsa.cli.command_line import patient, printable
from dsa.cli.run_options import shell_command
from dsa.cli.runs import started_at, status_text
from dsa.data_use import uses
from dsa.expr import show_value
from dsa.runs.archive import RunRecord
from dsa.runs.bindings import calls_of_policy
from dsa.runs.summary import BY_THE_STORE, summary_of_record
from dsa.runtime import ledger
from dsa.runtime.artifacts import short_id
from dsa.runtime.costs import Totals
from dsa.runtime.ledger import (
    CallEntry,
    CallResultEntry,
    DecidedEntry,
    Entry,
    Handling,
    Intent,
    Intents,
    ResultEntry,
    ResumedEntry,
    part_in,
)
from dsa.runtime.policy.call_tree import POLICY, CallNode, call_key, calls_of
from dsa.runtime.policy.policies import QUESTION
from dsa.runtime.run import Run
from dsa.runtime.run_store import RunSummary
from dsa.runtime.status import (
    InFlight,
    answerable_questions,
    doubted_keys,
    handling_of,
    is_question,
    places,
    questions,
    review_of,
    undecided_calls,
    unfinished_work,
)
from dsa.runtime.timeline import EventRecord, Moment, event_records
from dsa.text import plural, shorten
from dsa.trace import show_occurrence, show_values

_NARROWEST = 20


def terminal() -> Console:
    """Return a console over standard output, at least 20 columns wide."""
    console = Console(file=patient(sys.stdout))
    console.width = max(console.width, _NARROWEST)
    return console


SHORT_DIGEST = 12


def step_text(step: Mapping[str, Any]) -> str:
    """Write a step in one line."""
    payload: Mapping[str, Any] = step["payload"]
    if payload.get("error") is True:
        return f"error {error_text(payload)}"
    match step["type"]:
        case "text" if isinstance(payload.get("text"), str):
            return f"{step['actor']}: {shorten(payload['text'])}"
        case "action_call":
            return f"{step['actor']} asks for {payload.get('policy')} {shorten(payload.get('payload'))}"
        case "approval":
            word = "approves" if payload.get("approved") is True else "does not approve"
            return f"{step['actor']} {word} {str(payload.get('digest'))[:SHORT_DIGEST]}"
        case "event":
            return f"{step['actor']} answers {payload.get('event')}"
    return f"gave {shorten(dict(payload))}"


def spoken_text(entry: ResultEntry) -> str:
    """Return the texts among the steps of a result, which are for people."""
    texts = [step["payload"].get("text") for step in entry.steps if step["type"] == "text"]
    return "; ".join(text for text in texts if isinstance(text, str))


def error_text(payload: Mapping[str, Any]) -> str:
    """Return the code and the message of an error step in one line."""
    return f"{shorten(payload.get('code'))}: {shorten(payload.get('message'))}"


HANDLING_TEXTS: dict[Handling, str] = {
    "retry": "it is performed again",
    "ask": "a person has to decide",
    "fail": "it counts as failed",
    "done": "it counts as done",
    "again": "it is performed again",
}


def tree_lines(calls: Iterable[CallNode]) -> Iterator[str]:
    """Yield the tree of calls: each with its path, request and digest, and its results below it."""
    calls = tuple(calls)
    width = max((len(call.path) for call in calls), default=0)
    for call in calls:
        before = " " * (width + 2 * call.path.count("."))
        cache_mark = "  cached" if call.is_cached else ""
        yield f"{call.path:<{width}}{before[width:]}{_request(call)}  {call.digest[:SHORT_DIGEST]}{cache_mark}"
        yield from (f"{before}  {outcome}" for outcome in _outcome(call))


def _request(call: CallNode) -> str:
    return f"{call.policy}, a turn" if call.payload is None else f"{call.policy} {shorten(call.payload)}"


def _outcome(call: CallNode) -> Iterator[str]:
    """Yield the results of a call that are not those of calls below it."""
    yield from map(happened_text, call.incidents)
    yield from map(step_text, call.own)
    if call.steps == ():
        yield "gave nothing"
    elif call.steps is None and call.is_over:
        yield "nobody waited for its result"
    elif call.steps is None and not call.is_stopped:
        yield "has given nothing yet"


def happened_text(what: Mapping[str, Any] | Handling) -> str:
    """Return a failure or a decision about a call as text."""
    if isinstance(what, str):
        why = "it had failed" if what == "again" else "it was under way when the run was cut off"
        return f"resumed: {why}; {HANDLING_TEXTS[what]}"
    return f"failed: {error_text(what)}"


class CallDisplay:
    """A display that prints a line for each step of a call, and for each failure of a call and decision about it."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._entries: list[Entry] = []
        self._policies: dict[str, str] = {}
        self._incident_counts: dict[str, int] = {}
        self._is_quiet = False

    def on_moment(self, moment: Moment, is_new: bool) -> None:  # noqa: FBT001  (the observer interface)
        """Show a moment; a moment from before the run was resumed is only recorded."""
        is_quiet, self._is_quiet = self._is_quiet, not is_new
        self._take(moment.entry)
        self._is_quiet = is_quiet

    def _take(self, entry: Entry) -> None:
        self._entries.append(entry)
        match entry:
            case CallEntry(path=path, policy=policy):
                self._policies[path] = policy
            case CallResultEntry(path=path, steps=steps) if "." in path.partition(".")[2]:
                for step in steps:
                    if step["id"].rpartition("/")[0] == path:
                        self._print(path, step_text(step))
            case DecidedEntry(key=key) | ResultEntry(key=key):
                self._note(key)
            case ResumedEntry(effects=effects):
                for key, _ in effects:
                    self._note(key)

    def _note(self, key: str) -> None:
        for call in calls_of(self._entries, key):
            for what in call.incidents[self._incident_counts.get(call.path, 0) :]:
                self._print(call.path, happened_text(what))
            self._incident_counts[call.path] = len(call.incidents)

    def _print(self, path: str, message: str) -> None:
        if self._is_quiet:
            return
        text = printable(f"{path:<7}  {self._policies.get(path, '')}: {message}")
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    def rests(self, directory: Path, /) -> None:
        """Show nothing, because the command prints how the run rests."""

    def end(self) -> None:
        """Do nothing, because every line is complete."""


_WIDEST = 40
#: The least number of entries on a page that is not the last one.
PAGE = 1000
_WORTH_SAYING_S = 0.05
_INDENT = "     "
_DECISION_TEXTS = {"retry": "has not happened", "done": "has happened", "fail": "has failed"}


def story(record: RunRecord, root: Path, summary: RunSummary, *, after: int = 0) -> Iterator[str]:
    """Yield the story of a run after the first `after` entries, and how it stands now. A long story ends with the command for the next page.

    `summary` has the status by the clock and the inbox. For a run of a policy, the story is the whole tree of its calls, and who resumed it.
    """
    is_policy = record.run.machine.name == POLICY
    lines = list(tree_lines(calls_of_policy(record.run)) if is_policy else _page(record, root, after))
    yield from heading(record.first)
    for entry in record.stored_run.entries if is_policy else ():
        if isinstance(entry, ledger.ResumedEntry):
            yield _resumption_text(attrs.evolve(entry, effects=()), Intents())
    yield from ["", *lines] if lines else []
    yield ""
    yield from status_lines(record, root, summary)


def _page(record: RunRecord, root: Path, after: int) -> Iterator[str]:
    """Yield the next page of a run."""
    entries = record.stored_run.entries
    end = _page_end(entries, after)
    yield from event_lines(record.run.run_id, entries[after:end], record.first.at_ms, entries[:after])
    if end < len(entries):
        more = shell_command("show", root / record.run.run_id, "--after", str(end))
        yield f"{_INDENT}.. entries {after + 1} to {end} of {len(entries)}; `{more}` goes on"


def _page_end(entries: ledger.Ledger[ledger.Entry], after: int) -> int:
    """Return the number of the last entry of a page: pages end before an event."""
    least = after + PAGE
    return next(
        (place for place in range(least, len(entries)) if isinstance(entries[place], ledger.EventEntry)), len(entries)
    )


def heading(first: ledger.MachineEntry) -> Iterator[str]:
    """Yield the run's id, its machine, and how it was started."""
    at = f" at {show_values(first.parameters)}" if first.parameters else ""
    yield f"run {first.run} of {first.name}{at}"
    settings = dict(first.started)
    option_values = settings | {"with": settings.get("module"), "over": (settings.get("config") or {}).get("over")}
    options = [
        f"--{name} {option_values[name]}"
        for name in ("model", "seed", "over", "with")
        if option_values.get(name) is not None
    ]
    words = [f"started {started_at(first.run)}".rstrip(), *(["with", *options] if options else [])]
    yield " ".join(words)


def event_lines(
    run_id: str, entries: Iterable[ledger.Entry], begun_ms: int = 0, earlier: Iterable[ledger.Entry] = ()
) -> Iterator[str]:
    """Yield what happened, event by event, each with the seconds since the beginning if `begun_ms` is known (not 0)."""
    entries = tuple(entries)
    records, intents = event_records(entries), Intents((*earlier, *entries))
    width = min(_WIDEST, max((len(_event(record)) for record in records if record.event), default=0))
    for record in records:
        if record.event is not None:
            at_ms = record.event.at_ms
            since = "" if not at_ms or not begun_ms else f"{(at_ms - begun_ms) / 1000:>8.1f} s"
            yield f"{record.event.seq:>3}{since}  {_event(record):<{width}}  {outcome_text(record.outcome)}"
            if record.event.key is None and record.event.data not in (None, ""):
                yield f"{_INDENT}data: {shorten(record.event.data)}"
        for entry in record.after:
            yield f"{_INDENT}{entry_text(entry, run_id, intents)}"


def _event(record: EventRecord) -> str:
    event = record.event
    assert event is not None, "the record has an event"
    answer = "" if event.key is None else f" (of {event.key})"
    return f"{show_occurrence(record.occurrence)}{answer}"


def outcome_text(outcome: ledger.RowEntry | ledger.RefusalEntry | None) -> str:
    """Return the row that took an event, or why it was refused."""
    match outcome:
        case ledger.RowEntry(line=at, source=source, target=target, changed=changes):
            where = "" if at is None else f"line {at}: "
            return f"{where}{source} -> {target}{''.join(f', {name} = {show_value(value)}' for name, value in changes)}"
        case ledger.RefusalEntry():
            return refusal_text(outcome)
    return ""


def refusal_text(refusal: ledger.RefusalEntry) -> str:
    """Return why an event was refused, and what was accepted instead."""
    accepted = f"; accepted there: {', '.join(refusal.accepted)}" if refusal.accepted else "; nothing is accepted there"
    return f"refused: {refusal.reason} ({refusal.message}){accepted}"


def entry_text(entry: ledger.Entry, run_id: str, intents: Intents) -> str:
    """Return an entry in one line; `intents` are those of the run up to this entry."""
    match entry:
        case ledger.ChangeEntry(file=file):
            where = "another document" if file is None else file
            return f"goes on under {where}: {entry.name}, {entry.digest[:SHORT_DIGEST]}"
        case ledger.EffectEntry(key=key, effect=effect):
            return f"asks for {effect} {key}"
        case ledger.ResultEntry():
            return _result(entry, intents.effect(entry.key))
        case ledger.ArtifactEntry():
            return _artifact(entry, run_id)
        case ledger.VerdictEntry():
            return _verdict(entry)
        case ledger.ResumedEntry():
            return _resumption_text(entry, intents)
        case ledger.DecidedEntry(key=key, path=path, handling=handling):
            call = f"call {path} of " if path else ""
            return f"decided: {call}{intents.effect(key)} {key} {_DECISION_TEXTS[handling]}"
        case ledger.CallEntry(key=key, path=path, policy=policy, payload=payload):
            request = f"{policy}, a turn" if payload is None else f"{policy} {shorten(payload)}"
            return f"  {key} calls {path} {request}  {entry.digest[:SHORT_DIGEST]}"
        case ledger.CallResultEntry(key=key, path=path):
            return f"  {key} call {path}: {_call_result_text(entry)}"
    return type(entry).__name__


def _resumption_text(entry: ledger.ResumedEntry, intents: Intents) -> str:
    """Return who resumed a run, with what, and what happens to the effects that were under way."""
    by = f" by {entry.by}" if entry.by else ""
    how = {"model": entry.model, "module": entry.module, "budget": ", ".join(entry.budget)}
    settings = " and ".join(f"{name} {value}" for name, value in how.items() if value)
    effects = [
        f"{intents.effect(key)} {key}, which {'was not done' if handling == 'again' else 'was under way'}: {HANDLING_TEXTS[handling]}"
        for key, handling in entry.effects
    ]
    return f"resumed{by}{f' with {settings}' if settings else ''}{': ' if effects else ''}{'; '.join(effects)}"


def _call_result_text(entry: ledger.CallResultEntry) -> str:
    """Return the steps of a call in one line, without the steps of calls below it."""
    own = [step for step in entry.steps if step["id"].rpartition("/")[0] == entry.path]
    if own:
        return "; ".join(map(step_text, own))
    return "passed on the results of calls below it" if entry.steps else "gave nothing"


def _result(entry: ledger.ResultEntry, effect: str) -> str:
    name = f"{effect} {entry.key}"
    if is_question(entry):
        return f"{name} asks people: {shorten(question_of(entry))}"
    part = part_in(entry)
    if part is not None:
        return f"{name} waits for {part.run}"
    for step in entry.steps:
        payload = step["payload"]
        if payload.get("error") is True:
            return f"{name} failed: {error_text(payload)}"
    events = [step["payload"].get("event") for step in entry.steps if step["type"] == "event"]
    took = f", {entry.seconds:.1f} s" if entry.seconds >= _WORTH_SAYING_S else ""
    text = spoken_text(entry)
    completion = f"{name} done{took}{f': {shorten(text)}' if text else ''}"
    return f"{name} answered {events[0]}{took}{_retry_text(entry)}" if len(events) == 1 else completion


def _retry_text(entry: ledger.ResultEntry) -> str:
    """Return how many tries of a generator failed before it answered, and why."""
    reasons = [str(reason) for step in entry.steps for reason in step["payload"].get("retried") or ()]
    if not reasons:
        return ""
    return f", after {len(reasons)} failed {'try' if len(reasons) == 1 else 'tries'}: {', '.join(reasons)}"


def _artifact(entry: ledger.ArtifactEntry, run_id: str) -> str:
    by = ", ".join(filter(None, (entry.author, entry.model)))
    author = f" by {by}" if by else ""
    flag = f", redacted: {', '.join(entry.redacted)}" if entry.redacted else ""
    name = short_id(entry.artifact_id, run_id)
    description = f"artifact {name}{author}, {entry.seconds:.1f} s{flag}"
    return f"{entry.step} attempt {entry.attempt}: {description}"


def _verdict(entry: ledger.VerdictEntry) -> str:
    guards = ", ".join(f"{verdict.guard}.{verdict.label}" for verdict in entry.judgements)
    feedback = f": {shorten(entry.feedback)}" if entry.feedback else ""
    return f"{entry.step} attempt {entry.attempt}: {entry.word} ({guards}){feedback}"


def due_text(deadline_ms: int) -> str:
    """Return the time of a deadline; one beyond the calendar is given in milliseconds."""
    try:
        return f"{datetime.fromtimestamp(deadline_ms // 1000, tz=UTC):%Y-%m-%d %H:%M:%S}.{deadline_ms % 1000:03} UTC"
    except (ValueError, OverflowError, OSError):
        return f"{deadline_ms} ms after 1970"


# -- how it stands ----------------------------------------------------------------------------------------------------


def status_lines(record: RunRecord, root: Path, summary: RunSummary) -> Iterator[str]:
    """Yield how a run stands, what it waits for, what is in doubt, and the commands to decide it."""
    current = summary if summary.status in BY_THE_STORE else summary_of_record(record)
    run, status, directory = record.run, record.status, root / record.run.run_id
    facts = [
        ("now", status_text(current)),
        ("state", run.configuration.state),
        ("values", show_values(run.values.items())),
    ]
    facts += [
        ("accepted", f"{name}: artifact {short_id(view.accepted, run.run_id)}")
        for name, view in run.steps.items()
        if view.accepted
    ]
    calls = calls_of_policy(run)
    cached_count = sum(call.is_cached for call in calls)
    if cached_count:
        cache_text = f"{cached_count} of {len(calls)} calls had given their steps when the run was resumed last"
        facts.append(("cached", cache_text))
    facts += [("asked", questions_text(run) or ""), *to_do_items(record)]
    facts += [
        ("timer", f"{event} of {source}, due {due_text(deadline_ms)}")
        for (source, event), deadline_ms in status.left.timers.items()
    ]
    facts += [
        ("sleep", f"{sleep.intent.effect} {sleep.intent.key}, until {due_text(sleep.due_ms)}")
        for sleep in status.left.sleeps
    ]
    if status.kind in {"stopped", "cut off"} or current.status == "interrupted":
        facts.append(("go on", shell_command("resume", directory)))
    if status.kind == "waiting":
        review = review_of(run)
        facts += [("review", f"{review.step} attempt {review.attempt} waits for a person")] if review else []
        facts += [("send", send_line(run, directory))] if places(run) else []
    width = max(len(name) for name, fact in facts if fact)
    yield from (f"{name:<{width}}  {fact}" for name, fact in facts if fact)
    yield from doubt_lines(run, status.doubts, directory)


def to_do_items(record: RunRecord) -> Iterator[tuple[str, str]]:
    """Yield what is pending in a run under way, or else what resuming the run does."""
    run, status = record.run, record.status
    if status.kind == "under way":
        yield from (("pending", f"{effect} {key}") for key, effect in run.keys.items())
        return
    for open_effect in status.left.in_flight:
        name = f"{open_effect.intent.effect} {open_effect.intent.key}"
        if open_effect.intent in status.doubts:
            continue
        if open_effect.part is not None:
            yield "waits", f"{name} for {open_effect.part.run}"
            continue
        if open_effect.in_doubt:
            consequence = HANDLING_TEXTS[handling_of(run.machine, open_effect)]
            yield "to do", f"{name}, which was under way: {consequence}"
        else:
            yield "to do", f"{name} again, which failed" if open_effect.has_failed else f"{name}, not begun yet"
        for call in open_effect.calls:
            consequence = HANDLING_TEXTS[call.in_doubt]
            yield "to do", f"{call.policy} {call_key(call.key, call.path)}, which was under way: {consequence}"
    for intent, _ in status.left.answers:
        yield "to do", f"take the answer of {intent.effect} {intent.key}"


def send_line(run: Run, directory: Path) -> str:
    """Return the command that sends a run an event that it waits for; it names the question by its place."""
    event_places = places(run)
    event = next(iter(event_places)) if len(event_places) == 1 else "EVENT"
    events_by_place: dict[str, list[str]] = {}
    for each, place in event_places.items():
        for one in tuple(answerable_questions(run, each)) or (place,):
            events_by_place.setdefault(one, []).append(each)
    if len(events_by_place) == 1:
        read = any(use.reference.event == event and use.reference.path for use in uses(run.machine))
        data = "--data JSON" if read else "[DATA]"
        return f"{shell_command('send', directory, event, at=next(iter(events_by_place)))} {data}"
    places_text = "; ".join(f"{', '.join(events)}: {place}" for place, events in events_by_place.items())
    return f"{shell_command('send', directory, event, at='PLACE')} [DATA]  ({places_text})"


def question_of(entry: ledger.ResultEntry) -> str:
    """Return the text of a question to people."""
    return next(str(step["payload"].get("text")) for step in entry.steps if step["type"] == QUESTION)


def questions_text(run: Run) -> str | None:
    """Return the open questions to people, each with its key; None if there are none."""
    texts = [f"{entry.key} {shorten(question_of(entry))}" for entry in questions(run).values()]
    return "; ".join(texts) or None


def doubt_text(run: Run, intents: Sequence[Intent]) -> str:
    """Return the names and keys of the effects in doubt, or of the calls in them."""
    return ", ".join(f"{name} {key}" for key, name in doubted_keys(run, intents).items())


def doubt_lines(run: Run, intents: Sequence[Intent], directory: Path) -> Iterator[str]:
    """Yield for each effect in doubt, or each call in it, what is not known, and the commands that decide it."""
    open_effects = _open_effects(run) if intents else {}
    for key in doubted_keys(run, intents):
        heading, gave = (
            _effect_in_doubt(run, open_effects[key], directory)
            if key in open_effects
            else _call_in_doubt(open_effects.values(), key, directory)
        )
        yield f"in doubt: {heading}"
        ways = [("it has not happened", shell_command("resume", directory, "--retry", key)), *gave]
        ways.append(("it has failed", shell_command("resume", directory, "--fail", key)))
        width = max(len(way) for way, _ in ways)
        yield from (f"  {way:<{width}}  {command}" for way, command in ways)


def _open_effects(run: Run) -> dict[str, InFlight]:
    return {each.intent.key: each for each in unfinished_work(run).in_flight}


def _effect_in_doubt(run: Run, open_effect: InFlight, directory: Path) -> tuple[str, list[tuple[str, str]]]:
    """Return a sentence about an effect in doubt, and the command for each possible result."""
    intent, key = open_effect.intent, open_effect.intent.key
    place = "" if intent.line is None else f" (line {intent.line})"
    within = "".join(
        f", and in it {call.policy} {shorten(call.payload)}" for call in undecided_calls(open_effect).values()
    )
    answers = run.machine.answers.get(intent.effect)
    if answers is None:
        ways = [("it has happened", shell_command("resume", directory, "--done", key))]
    else:
        ways = [(f"it gave {event}", shell_command("send", directory, event, "--answers", key)) for event in answers]
    return f"{intent.effect} {key}{place} was under way when the run was cut off{within}", ways


def _call_in_doubt(open_effects: Iterable[InFlight], key: str, directory: Path) -> tuple[str, list[tuple[str, str]]]:
    """Return a sentence about a call in doubt, and the command for each possible result."""
    call = next(call for each in open_effects for at, call in undecided_calls(each).items() if at == key)
    gave = f"{shell_command('send', directory, 'action_result', '--answers', key)} --data JSON"
    ways = [("it has happened", shell_command("resume", directory, "--done", key)), ("it gave something", gave)]
    return f"{call.policy} {key} was under way when the run was cut off: {shorten(call.payload)}", ways


_SMALL_USD, _LEAST_USD = 0.01, 0.000001


def tokens_and_cost(sums: Totals) -> str:
    """Return tokens and cost as text. A cost of 0, as of the local model, is left out."""
    tokens = f"{sums.prompt_tokens} + {sums.completion_tokens} tokens"
    if 0 < sums.calls <= sums.uncounted_calls + sums.failed_calls:
        tokens = "tokens unknown"
    elif sums.uncounted_calls:
        tokens = f"{tokens} and those of {plural(sums.uncounted_calls, 'call')} unknown"
    if sums.cost_usd is None:
        return f"{tokens}, cost unknown"
    return f"{tokens}, {dollars(sums.cost_usd)}" if sums.cost_usd else tokens


def dollars(cost_usd: float) -> str:
    """Return a sum in dollars, with as many digits as it needs."""
    if cost_usd < _LEAST_USD:
        return f"less than ${_LEAST_USD:f}"
    return f"${cost_usd:.2f}" if cost_usd >= _SMALL_USD else f"${f'{cost_usd:.6f}'.rstrip('0')}"
