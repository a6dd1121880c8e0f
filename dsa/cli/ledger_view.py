"""The Rich console over the terminal, for commands that draw on it. It is a module by itself because Rich takes long to load.

Steps, and what they carry, each in one line.

The calls of policies as lines for people: as a tree, and one by one as they give something.

A run's ledger as lines for people: each event with its row, what came of it, and how the run stands now.

Takes recorded and replayed runs, gives lines without colours; the same ledger gives the same lines. It reads no clock.

What models have taken, in words: what is not known is called so, and never 0.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import attrs
from rich.console import Console

from dsa.cli.command_line import patient, printable
from dsa.cli.run_options import line
from dsa.cli.runs import how, started_at
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


def text_said(entry: ResultEntry) -> str:
    """Return the text that an effect gave beside no event: what it says to people."""
    texts = [step["payload"].get("text") for step in entry.steps if step["type"] == "text"]
    return "; ".join(text for text in texts if isinstance(text, str))


def error_text(payload: Mapping[str, Any]) -> str:
    """Write what an error step says in one line."""
    return f"{shorten(payload.get('code'))}: {shorten(payload.get('message'))}"


HANDLED: dict[Handling, str] = {
    "retry": "it is asked for again",
    "ask": "somebody is asked",
    "fail": "it counts as failed",
    "done": "it counts as done",
    "again": "it is asked for again",
}


def tree_lines(calls: Iterable[CallNode]) -> Iterator[str]:
    """Return the tree of calls: each with its place, request and digest, and below it what came of it."""
    calls = tuple(calls)
    width = max((len(call.path) for call in calls), default=0)
    for call in calls:
        before = " " * (width + 2 * call.path.count("."))
        cached = "  cached" if call.is_cached else ""
        yield f"{call.path:<{width}}{before[width:]}{_request(call)}  {call.digest[:SHORT_DIGEST]}{cached}"
        yield from (f"{before}  {outcome}" for outcome in _outcome(call))


def _request(call: CallNode) -> str:
    return f"{call.policy}, a turn" if call.payload is None else f"{call.policy} {shorten(call.payload)}"


def _outcome(call: CallNode) -> Iterator[str]:
    """Yield what came of a call, as far as no call below it says so."""
    yield from map(happened_text, call.incidents)
    yield from map(step_text, call.own)
    if call.steps == ():
        yield "gave nothing"
    elif call.steps is None and call.is_over:
        yield "nobody waited for what it gives"
    elif call.steps is None and not call.is_stopped:
        yield "has given nothing yet"


def happened_text(what: Mapping[str, Any] | Handling) -> str:
    """Return what was recorded of a call beside its result."""
    if isinstance(what, str):
        why = "it had failed" if what == "again" else "it was under way when the run was cut off"
        return f"resumed: {why}; {HANDLED[what]}"
    return f"failed: {error_text(what)}"


class CallDisplay:
    """Prints a line for each call that gives something of its own, and for what else happens to one."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._entries: list[Entry] = []
        self._policies: dict[str, str] = {}
        self._shown: dict[str, int] = {}
        self._is_quiet = False

    def on_moment(self, moment: Moment, is_new: bool) -> None:  # noqa: FBT001  (the observer interface)
        """Show what happened; what was there before the run was taken up is only noted."""
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
            for what in call.incidents[self._shown.get(call.path, 0) :]:
                self._print(call.path, happened_text(what))
            self._shown[call.path] = len(call.incidents)

    def _print(self, path: str, said: str) -> None:
        if self._is_quiet:
            return
        text = printable(f"{path:<7}  {self._policies.get(path, '')}: {said}")
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    def rests(self, directory: Path, /) -> None:
        """Show nothing: how the run rests is said by the command."""

    def end(self) -> None:
        """End nothing: every line is whole."""


_WIDEST = 40
#: How many entries a page has at least, if there are as many.
PAGE = 1000
_WORTH_SAYING_S = 0.05
_INDENT = "     "
_DECIDED = {"retry": "has not happened", "done": "has happened", "fail": "has failed"}


def story(record: RunRecord, root: Path, found: RunSummary, *, after: int = 0) -> Iterator[str]:
    """Tell a run from the entry after this one to how it stands now; of a long one the next page, and the command for what follows.

    `found` is how it stands by the clock and by its inbox.

    Of a run of a policy this is who has resumed it, and the whole tree of its calls.
    """
    is_policy = record.run.machine.name == POLICY
    happened = list(tree_lines(calls_of_policy(record.run)) if is_policy else _page(record, root, after))
    yield from heading(record.first)
    for entry in record.stored_run.entries if is_policy else ():
        if isinstance(entry, ledger.ResumedEntry):
            yield _resumed(attrs.evolve(entry, effects=()), Intents())
    yield from ["", *happened] if happened else []
    yield ""
    yield from now(record, root, found)


def _page(record: RunRecord, root: Path, after: int) -> Iterator[str]:
    """Yield what happened in the next page of a run."""
    entries = record.stored_run.entries
    end = _page_end(entries, after)
    yield from told(record.run.run_id, entries[after:end], record.first.at_ms, entries[:after])
    if end < len(entries):
        more = line("show", root / record.run.run_id, "--after", str(end))
        yield f"{_INDENT}.. entries {after + 1} to {end} of {len(entries)}; `{more}` goes on"


def _page_end(entries: ledger.Ledger[ledger.Entry], after: int) -> int:
    """Return the number of the last entry of a page: pages end before an event."""
    least = after + PAGE
    return next(
        (place for place in range(least, len(entries)) if isinstance(entries[place], ledger.EventEntry)), len(entries)
    )


def heading(first: ledger.MachineEntry) -> Iterator[str]:
    """Yield which run this is and how it was started."""
    at = f" at {show_values(first.parameters)}" if first.parameters else ""
    yield f"run {first.run} of {first.name}{at}"
    started = dict(first.started)
    given = started | {"with": started.get("module"), "over": (started.get("config") or {}).get("over")}
    options = [f"--{name} {given[name]}" for name in ("model", "seed", "over", "with") if given.get(name) is not None]
    words = [f"started {started_at(first.run)}".rstrip(), *(["with", *options] if options else [])]
    yield " ".join(words)


def told(
    run_id: str, entries: Iterable[ledger.Entry], begun_ms: int = 0, earlier: Iterable[ledger.Entry] = ()
) -> Iterator[str]:
    """Yield what happened, event by event, each with the seconds since the run was begun, if it is known when that was (not 0)."""
    entries = tuple(entries)
    found, intents = event_records(entries), Intents((*earlier, *entries))
    width = min(_WIDEST, max((len(_event(happening)) for happening in found if happening.event), default=0))
    for happening in found:
        if happening.event is not None:
            at_ms = happening.event.at_ms
            since = "" if not at_ms or not begun_ms else f"{(at_ms - begun_ms) / 1000:>8.1f} s"
            yield f"{happening.event.seq:>3}{since}  {_event(happening):<{width}}  {outcome_text(happening.outcome)}"
            if happening.event.key is None and happening.event.data not in (None, ""):
                yield f"{_INDENT}data: {shorten(happening.event.data)}"
        for entry in happening.after:
            yield f"{_INDENT}{entry_text(entry, run_id, intents)}"


def _event(happening: EventRecord) -> str:
    event = happening.event
    assert event is not None, "something happened"
    answered = "" if event.key is None else f" (of {event.key})"
    return f"{show_occurrence(happening.occurrence)}{answered}"


def outcome_text(outcome: ledger.RowEntry | ledger.RefusalEntry | None) -> str:
    """Return what the table made of an event: the row, or why not."""
    match outcome:
        case ledger.RowEntry(line=at, source=source, target=target, changed=changed):
            where = "" if at is None else f"line {at}: "
            return f"{where}{source} -> {target}{''.join(f', {name} = {show_value(value)}' for name, value in changed)}"
        case ledger.RefusalEntry():
            return refusal_text(outcome)
    return ""


def refusal_text(refusal: ledger.RefusalEntry) -> str:
    """Return why an event was refused, and what was accepted instead."""
    accepted = f"; accepted there: {', '.join(refusal.accepted)}" if refusal.accepted else "; nothing is accepted there"
    return f"refused: {refusal.reason} ({refusal.message}){accepted}"


def entry_text(entry: ledger.Entry, run_id: str, intents: Intents) -> str:
    """Return what was recorded, in one line; `intents` are those of the run as far as it is told."""
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
            return _resumed(entry, intents)
        case ledger.DecidedEntry(key=key, path=path, handling=handling):
            call = f"call {path} of " if path else ""
            return f"decided: {call}{intents.effect(key)} {key} {_DECIDED[handling]}"
        case ledger.CallEntry(key=key, path=path, policy=policy, payload=payload):
            asked = f"{policy}, a turn" if payload is None else f"{policy} {shorten(payload)}"
            return f"  {key} calls {path} {asked}  {entry.digest[:SHORT_DIGEST]}"
        case ledger.CallResultEntry(key=key, path=path):
            return f"  {key} call {path}: {_given(entry)}"
    return type(entry).__name__


def _resumed(entry: ledger.ResumedEntry, intents: Intents) -> str:
    """Say by whom a run was resumed, with what, and what is done about the effects that were under way."""
    by = f" by {entry.by}" if entry.by else ""
    how = {"model": entry.model, "module": entry.module, "budget": ", ".join(entry.budget)}
    given = " and ".join(f"{name} {value}" for name, value in how.items() if value)
    told = [
        f"{intents.effect(key)} {key}, which {'was not done' if handling == 'again' else 'was under way'}: {HANDLED[handling]}"
        for key, handling in entry.effects
    ]
    return f"resumed{by}{f' with {given}' if given else ''}{': ' if told else ''}{'; '.join(told)}"


def _given(entry: ledger.CallResultEntry) -> str:
    """Return what a call gave that an effect's policy has made, but for what calls below it have given."""
    own = [step for step in entry.steps if step["id"].rpartition("/")[0] == entry.path]
    if own:
        return "; ".join(map(step_text, own))
    return "gave what those below it gave" if entry.steps else "gave nothing"


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
    said = text_said(entry)
    done = f"{name} done{took}{f': {shorten(said)}' if said else ''}"
    return f"{name} answered {events[0]}{took}{_retried(entry)}" if len(events) == 1 else done


def _retried(entry: ledger.ResultEntry) -> str:
    """Return how often a generator was asked in vain before it answered."""
    reasons = [str(reason) for step in entry.steps for reason in step["payload"].get("retried") or ()]
    if not reasons:
        return ""
    return f", after {len(reasons)} failed {'try' if len(reasons) == 1 else 'tries'}: {', '.join(reasons)}"


def _artifact(entry: ledger.ArtifactEntry, run_id: str) -> str:
    by = ", ".join(filter(None, (entry.author, entry.model)))
    made = f" by {by}" if by else ""
    flag = f", redacted: {', '.join(entry.redacted)}" if entry.redacted else ""
    name = short_id(entry.artifact_id, run_id)
    stored = f"artifact {name}{made}, {entry.seconds:.1f} s{flag}"
    return f"{entry.step} attempt {entry.attempt}: {stored}"


def _verdict(entry: ledger.VerdictEntry) -> str:
    guards = ", ".join(f"{said.guard}.{said.label}" for said in entry.judgements)
    feedback = f": {shorten(entry.feedback)}" if entry.feedback else ""
    return f"{entry.step} attempt {entry.attempt}: {entry.word} ({guards}){feedback}"


def due(deadline_ms: int) -> str:
    """Write the moment at which a timer is due; it may lie beyond what calendars can say."""
    try:
        return f"{datetime.fromtimestamp(deadline_ms // 1000, tz=UTC):%Y-%m-%d %H:%M:%S}.{deadline_ms % 1000:03} UTC"
    except (ValueError, OverflowError, OSError):
        return f"{deadline_ms} ms after 1970"


# -- how it stands ----------------------------------------------------------------------------------------------------


def now(record: RunRecord, root: Path, found: RunSummary) -> Iterator[str]:
    """Yield how a run stands, what it waits for, what is in doubt and how to decide it."""
    stands = found if found.status in BY_THE_STORE else summary_of_record(record)
    run, standing, directory = record.run, record.status, root / record.run.run_id
    facts = [
        ("now", how(stands)),
        ("state", run.configuration.state),
        ("values", show_values(run.values.items())),
    ]
    facts += [
        ("accepted", f"{name}: artifact {short_id(view.accepted, run.run_id)}")
        for name, view in run.steps.items()
        if view.accepted
    ]
    calls = calls_of_policy(run)
    cached = sum(call.is_cached for call in calls)
    if cached:
        given = f"{cached} of {len(calls)} calls had given their steps when the run was resumed last"
        facts.append(("cached", given))
    facts += [("asked", questions_text(run) or ""), *to_do(record)]
    facts += [
        ("timer", f"{event} of {source}, due {due(deadline_ms)}")
        for (source, event), deadline_ms in standing.left.timers.items()
    ]
    if standing.kind in {"stopped", "cut off"} or stands.status == "interrupted":
        facts.append(("go on", line("resume", directory)))
    if standing.kind == "waiting":
        review = review_of(run)
        facts += [("review", f"{review.step} attempt {review.attempt} waits for a person")] if review else []
        facts += [("send", send_line(run, directory))] if places(run) else []
    width = max(len(name) for name, fact in facts if fact)
    yield from (f"{name:<{width}}  {fact}" for name, fact in facts if fact)
    yield from doubts(run, standing.doubts, directory)


def to_do(record: RunRecord) -> Iterator[tuple[str, str]]:
    """Yield what is pending in a run that somebody has, else what whoever resumes it does."""
    run, standing = record.run, record.status
    if standing.kind == "under way":
        yield from (("pending", f"{effect} {key}") for effect, key in run.keys.items())
        return
    for flying in standing.left.in_flight:
        name = f"{flying.intent.effect} {flying.intent.key}"
        if flying.intent in standing.doubts:
            continue
        if flying.part is not None:
            yield "waits", f"{name} for {flying.part.run}"
            continue
        if flying.in_doubt:
            handled = HANDLED[handling_of(run.machine, flying)]
            yield "to do", f"{name}, which was under way: {handled}"
        else:
            yield "to do", f"{name} again, which failed" if flying.has_failed else f"{name}, not begun yet"
        for call in flying.calls:
            handled = HANDLED[call.in_doubt]
            yield "to do", f"{call.policy} {call_key(call.key, call.path)}, which was under way: {handled}"
    for intent, _ in standing.left.answers:
        yield "to do", f"take the answer of {intent.effect} {intent.key}"


def send_line(run: Run, directory: Path) -> str:
    """Return the command that sends a run what it waits for; it names the question by its place."""
    waited = places(run)
    event = next(iter(waited)) if len(waited) == 1 else "EVENT"
    asked = {place: [each for each in waited if waited[each] == place] for place in dict.fromkeys(waited.values())}
    if len(asked) == 1:
        read = any(use.reference.event == event and use.reference.path for use in uses(run.machine))
        data = "--data JSON" if read else "[DATA]"
        return f"{line('send', directory, event, at=next(iter(asked)))} {data}"
    told = "; ".join(f"{', '.join(events)}: {place}" for place, events in asked.items())
    return f"{line('send', directory, event, at='PLACE')} [DATA]  ({told})"


def question_of(entry: ledger.ResultEntry) -> str:
    """Return what people are asked."""
    return next(str(step["payload"].get("text")) for step in entry.steps if step["type"] == QUESTION)


def questions_text(run: Run) -> str | None:
    """Return what people are asked now, each question with its place; None when nothing is."""
    told = [f"{entry.key} {shorten(question_of(entry))}" for entry in questions(run).values()]
    return "; ".join(told) or None


def asked_text(run: Run, asked: Sequence[Intent]) -> str:
    """Name what somebody has to decide about: effects, or the calls in them."""
    return ", ".join(f"{name} {key}" for key, name in doubted_keys(run, asked).items())


def doubts(run: Run, asked: Sequence[Intent], directory: Path) -> Iterator[str]:
    """Yield of each effect in doubt, or of each call in it, what is not known, and return the commands that decide it."""
    flying = _flying(run) if asked else {}
    for key in doubted_keys(run, asked):
        heading, gave = (
            _effect_in_doubt(run, flying[key], directory)
            if key in flying
            else _call_in_doubt(flying.values(), key, directory)
        )
        yield f"in doubt: {heading}"
        ways = [("it has not happened", line("resume", directory, "--retry", key)), *gave]
        ways.append(("it has failed", line("resume", directory, "--fail", key)))
        width = max(len(way) for way, _ in ways)
        yield from (f"  {way:<{width}}  {command}" for way, command in ways)


def _flying(run: Run) -> dict[str, InFlight]:
    return {each.intent.key: each for each in unfinished_work(run).in_flight}


def _effect_in_doubt(run: Run, flying: InFlight, directory: Path) -> tuple[str, list[tuple[str, str]]]:
    """Return what is not known of an effect, and return the commands for what it may have done."""
    intent, key = flying.intent, flying.intent.key
    place = "" if intent.line is None else f" (line {intent.line})"
    within = "".join(f", and in it {call.policy} {shorten(call.payload)}" for call in undecided_calls(flying).values())
    answers = run.machine.answers.get(intent.effect)
    if answers is None:
        ways = [("it has happened", line("resume", directory, "--done", key))]
    else:
        ways = [(f"it gave {event}", line("send", directory, event, "--answers", key)) for event in answers]
    return f"{intent.effect} {key}{place} was under way when the run was cut off{within}", ways


def _call_in_doubt(flying: Iterable[InFlight], key: str, directory: Path) -> tuple[str, list[tuple[str, str]]]:
    """Return what is not known of a call, and return the commands for what it may have done."""
    call = next(call for each in flying for at, call in undecided_calls(each).items() if at == key)
    gave = f"{line('send', directory, 'action_result', '--answers', key)} --data JSON"
    ways = [("it has happened", line("resume", directory, "--done", key)), ("it gave something", gave)]
    return f"{call.policy} {key} was under way when the run was cut off: {shorten(call.payload)}", ways


_SMALL_USD, _LEAST_USD = 0.01, 0.000001


def tokens_and_cost(sums: Totals) -> str:
    """Write tokens and cost. A cost that is known to be nothing, as of the local model, is not spoken of."""
    tokens = f"{sums.prompt_tokens} + {sums.completion_tokens} tokens"
    if 0 < sums.calls <= sums.uncounted_calls + sums.failed_calls:
        tokens = "tokens unknown"
    elif sums.uncounted_calls:
        tokens = f"{tokens} and those of {plural(sums.uncounted_calls, 'call')} unknown"
    if sums.cost_usd is None:
        return f"{tokens}, cost unknown"
    return f"{tokens}, {dollars(sums.cost_usd)}" if sums.cost_usd else tokens


def dollars(cost_usd: float) -> str:
    """Write a sum with as many digits as say something."""
    if cost_usd < _LEAST_USD:
        return f"less than ${_LEAST_USD:f}"
    return f"${cost_usd:.2f}" if cost_usd >= _SMALL_USD else f"${f'{cost_usd:.6f}'.rstrip('0')}"
