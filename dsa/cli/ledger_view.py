"""Ledger views: recorded runs, steps of policies and costs as lines for people.

`story` tells a run: each event with its row, the effects and results after it, and how the run stands now. The lines have no colours, and the same
ledger gives the same lines; no clock is read. `tree_lines` shows the calls of policies as a tree, and `CallDisplay` prints them one by one.
`tokens_and_cost` writes the usage of models; a number that is not known is called unknown, never 0. `terminal` returns a Rich console, which is why
the module takes long to import.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
from rich.console import Console

from dsa.cli.command_line import patient
from dsa.cli.run_options import shell_command
from dsa.data_use import uses
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
)
from dsa.runtime.ledger_story import (
    HANDLING_TEXTS,
    SHORT_DIGEST,
    due_text,
    entry_text,
    error_text,
    event_text,
    outcome_text,
    question_of,
    resumption_text,
    started_at,
    status_text,
    step_text,
)
from dsa.runtime.policy.call_tree import POLICY, CallNode, call_key, calls_of
from dsa.runtime.run import Run
from dsa.runtime.run_store import RunSummary
from dsa.runtime.status import (
    InFlight,
    answerable_questions,
    doubted_keys,
    handling_of,
    places,
    questions,
    review_of,
    undecided_calls,
    unfinished_work,
)
from dsa.runtime.timeline import Moment, event_records
from dsa.text import plural, printable, shorten
from dsa.trace import show_values

_NARROWEST = 20


def terminal() -> Console:
    """Return a console over standard output, at least 20 columns wide."""
    console = Console(file=patient(sys.stdout))
    console.width = max(console.width, _NARROWEST)
    return console


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
        why = "the call had failed" if what == "again" else "the call was under way when the run was cut off"
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
_INDENT = "     "


def story(record: RunRecord, root: Path, summary: RunSummary, *, after: int = 0) -> Iterator[str]:
    """Yield the story of a run after the first `after` entries, and how it stands now. A long story ends with the command for the next page.

    `summary` has the status by the clock and the inbox. For a run of a policy, the story is the whole tree of its calls, and who resumed it.
    """
    is_policy = record.run.machine.name == POLICY
    lines = list(tree_lines(calls_of_policy(record.run)) if is_policy else _page(record, root, after))
    yield from heading(record.first)
    for entry in record.stored_run.entries if is_policy else ():
        if isinstance(entry, ledger.ResumedEntry):
            yield resumption_text(attrs.evolve(entry, effects=()), Intents())
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
        yield f"{_INDENT}.. entries {after + 1} to {end} of {len(entries)}; `{more}` shows more"


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
    width = min(_WIDEST, max((len(event_text(record)) for record in records if record.event), default=0))
    for record in records:
        if record.event is not None:
            at_ms = record.event.at_ms
            since = "" if not at_ms or not begun_ms else f"{(at_ms - begun_ms) / 1000:>8.1f} s"
            yield f"{record.event.seq:>3}{since}  {event_text(record):<{width}}  {outcome_text(record.outcome)}"
            if record.event.key is None and record.event.data not in (None, ""):
                yield f"{_INDENT}data: {shorten(record.event.data)}"
        for entry in record.after:
            yield f"{_INDENT}{entry_text(entry, run_id, intents)}"


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
        cache_text = f"{cached_count} of {len(calls)} calls already had their results when the run was last resumed"
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
        facts += [("review", f"attempt {review.attempt} of {review.step} waits for a person")] if review else []
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
            yield (
                "to do",
                f"{name}, which failed: it is performed again" if open_effect.has_failed else f"{name}, not begun yet",
            )
        for call in open_effect.calls:
            consequence = HANDLING_TEXTS[call.in_doubt]
            yield "to do", f"{call.policy} {call_key(call.key, call.path)}, which was under way: {consequence}"
    for intent, _ in status.left.answers:
        yield "to do", f"the answer of {intent.effect} {intent.key}, not taken yet"


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
        f", and so was its call {call.policy} {shorten(call.payload)}" for call in undecided_calls(open_effect).values()
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
    ways = [("it has happened", shell_command("resume", directory, "--done", key)), ("it returned a result", gave)]
    return f"{call.policy} {key} was under way when the run was cut off: {shorten(call.payload)}", ways


_SMALL_USD, _LEAST_USD = 0.01, 0.000001


def tokens_and_cost(sums: Totals) -> str:
    """Return tokens and cost as text. A cost of 0, as of the local model, is left out."""
    tokens = f"{sums.prompt_tokens} + {sums.completion_tokens} tokens"
    if 0 < sums.calls <= sums.uncounted_calls + sums.failed_calls:
        tokens = "tokens unknown"
    elif sums.uncounted_calls:
        tokens = f"{tokens} (those of {plural(sums.uncounted_calls, 'call')} are unknown)"
    if sums.cost_usd is None:
        return f"{tokens}, cost unknown"
    return f"{tokens}, {dollars(sums.cost_usd)}" if sums.cost_usd else tokens


def dollars(cost_usd: float) -> str:
    """Return a sum in dollars, with as many digits as it needs."""
    if cost_usd < _LEAST_USD:
        return f"less than ${_LEAST_USD:f}"
    return f"${cost_usd:.2f}" if cost_usd >= _SMALL_USD else f"${f'{cost_usd:.6f}'.rstrip('0')}"
