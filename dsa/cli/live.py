"""A run as people watch it: one row for each attempt, on a terminal as a table that grows, elsewhere as plain lines.

Takes ledger entries as they are appended; prints to the console it is given and decides nothing.
"""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Self

import attrs
from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from dsa.cli.terminal import printable
from dsa.cli.timeline import due
from dsa.declarations import OUTSIDE
from dsa.expr import Outcome
from dsa.machine import Machine, step_of
from dsa.meaning import accepted_events
from dsa.runtime import ledger
from dsa.runtime.intents import Intents
from dsa.runtime.moment import Moment
from dsa.runtime.parts import part_in
from dsa.timers import ArmTimer, DropTimer, armed, timers_after
from dsa.uses import GENERATING_EFFECT

_WORDS: dict[Outcome, str] = {"passed": "passed", "failed": "rejected", "fatal": "fatal"}
_STYLES = {"passed": "green", "rejected": "yellow", "fatal": "bold red", "error": "bold red"}
_VERDICT_WIDTH = 9
_PLAIN_FEEDBACK = 70
_ATTEMPTING = (GENERATING_EFFECT, "execute_guard")  # an attempt ends when one of these fails
_MOST_TEXT = 2000
_NARROW = 50  # columns; below, a table would show nothing of the feedback
_MARGIN = 3  # lines for the table's head, and what stands above it


@attrs.frozen
class Row:
    """One attempt: what is known of it so far. An empty verdict means that it is under way."""

    step: str
    attempt: int
    artifact_id: str = ""
    verdict: str = ""
    feedback: str = ""
    seconds: float = 0.0

    @property
    def doing(self) -> str:
        """What is being done now."""
        return "checking" if self.artifact_id else "generating"


class Progress:
    """Shows a run. Pass `on_moment` to it; use it as a context manager so that the terminal is given back."""

    def __init__(self, machine: Machine, console: Console, *, quiet: bool = False) -> None:
        self._machine = machine
        self._console = console
        self._quiet = quiet
        self._state = machine.entered(machine.initial)
        self._intents = Intents()
        self._arrived = ledger.EventEntry(0, "")
        self._rows: list[Row] = []
        self._asked: Counter[str] = Counter()
        self._row_of: dict[str, int] = {}
        self._width = max((len(step.name) for step in machine.steps), default=len(step_of(machine, "")))
        self._live = Live(console=console, refresh_per_second=8, transient=False) if self._draws else None
        self._spinner = Spinner("dots")

    @property
    def _draws(self) -> bool:
        return self._console.is_terminal and not self._quiet and self._console.width >= _NARROW

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def end(self) -> None:
        """Draw the whole table, and give the terminal back."""
        if self._live is not None:
            self._live.update(self._table(len(self._rows)))
            self._live.stop()

    def rests(self, _directory: Path) -> None:
        """Show nothing more: what a run asks of people is said by the command."""

    def on_moment(self, moment: Moment, is_new: bool) -> None:  # noqa: FBT001  (the observer interface)
        """Show what a moment changes; there is no line for one that was there before the run went on."""
        quiet, self._quiet = self._quiet, self._quiet or not is_new
        self._show(moment.entry)
        self._quiet = quiet

    def _show(self, entry: ledger.Entry) -> None:
        self._intents.take(entry)
        match entry:
            case ledger.EffectEntry(effect=effect) if effect == GENERATING_EFFECT:
                step = step_of(self._machine, self._state)
                self._asked[step] += 1
                self._rows.append(Row(step, self._asked[step]))
            case ledger.ArtifactEntry():
                self._generated(entry)
            case ledger.VerdictEntry():
                self._judged(entry)
            case ledger.ResultEntry(key=key) if self._intents.effect(key) in _ATTEMPTING:
                self._failed(entry)
            case ledger.EventEntry():
                self._arrived = entry
                return
            case ledger.RowEntry(target=target):
                self._state = target
                self._waits(self._started(entry), self._arrived.at_ms)
                return
            case ledger.MachineEntry(at_ms=at_ms):
                self._waits(armed(self._machine, self._machine.armed(self._state)), at_ms)
                return
            case _:
                return
        if self._live is not None:
            self._live.update(self._table(self._console.height - _MARGIN))

    def _started(self, row: ledger.RowEntry) -> tuple[ArmTimer | DropTimer, ...]:
        """Return what becomes of timers with a row that was taken for what has arrived."""
        for each in self._machine.transitions:
            is_there = each.event == self._arrived.event and each.source in self._machine.ancestry(row.source)
            if is_there and (each.span.line if each.span else None) == row.line:
                return timers_after(self._machine, row.source, each, row.target)
        return ()

    def _waits(self, timers: Iterable[ArmTimer | DropTimer], at_ms: int) -> None:
        """Say for what a run waits that will not wait for ever: otherwise nobody would know why nothing happens."""
        named = self._machine.event_named
        accepted = accepted_events(self._machine, self._state)
        outside = [event for event in accepted if event in named and named[event].origin == OUTSIDE]
        for timer in timers if outside and not self._quiet else ():
            if isinstance(timer, ArmTimer):
                waits = f"waiting in {self._state} for: {', '.join(outside)}"
                told = f"{waits}; {timer.event} is due {due(at_ms + timer.duration_ms)}"
                self._console.print(Text(printable(told)), soft_wrap=True)

    def _generated(self, entry: ledger.ArtifactEntry) -> None:
        row = Row(entry.step, entry.attempt, entry.artifact_id, seconds=entry.seconds)
        if self._rows and not self._rows[-1].artifact_id and self._rows[-1].step == entry.step:
            self._rows[-1] = row
        else:
            self._rows.append(row)  # a person's text: nobody was asked for it
        self._asked[entry.step] = entry.attempt
        self._row_of[entry.artifact_id] = len(self._rows) - 1

    def _judged(self, entry: ledger.VerdictEntry) -> None:
        number = self._row_of.get(entry.artifact_id)
        if number is not None:
            row, feedback = self._rows[number], _one_line(entry.feedback)
            seconds = row.seconds + entry.seconds
            self._rows[number] = attrs.evolve(row, verdict=_WORDS[entry.outcome], feedback=feedback, seconds=seconds)
            self._print(self._rows[number])

    def _failed(self, entry: ledger.ResultEntry) -> None:
        """Show an attempt that ended with neither artifact nor verdict, or rests until a part of the run has what it waits for."""
        part = part_in(entry)
        faults = [step["payload"] for step in entry.steps if step["payload"].get("error") is True]
        if faults and self._rows and not self._rows[-1].verdict:
            message = _one_line(str(faults[0].get("message", ""))) if part is None else f"for {part.run}"
            word = "error" if part is None else "waits"
            self._rows[-1] = attrs.evolve(self._rows[-1], verdict=word, feedback=message)
            self._print(self._rows[-1])

    def _print(self, row: Row) -> None:
        """Print one finished attempt as a plain line."""
        if self._quiet or self._draws:
            return
        feedback = row.feedback if len(row.feedback) <= _PLAIN_FEEDBACK else row.feedback[:_PLAIN_FEEDBACK] + "..."
        line = (
            f"{row.step:<{self._width}}  attempt {row.attempt:>2}  {row.verdict:<{_VERDICT_WIDTH}}"
            f"{row.seconds:6.1f} s  {feedback}"
        )
        self._console.print(line.rstrip(), highlight=False, markup=False, soft_wrap=True)

    def _table(self, most: int) -> Table:
        """Draw the newest rows; while the run goes on, no more than the terminal has room for."""
        table = Table(box=None, pad_edge=False)
        table.add_column("step", style="bold", no_wrap=True)
        table.add_column("attempt", justify="right", no_wrap=True)
        table.add_column("verdict", no_wrap=True)
        table.add_column("seconds", justify="right", no_wrap=True)
        table.add_column("feedback", overflow="ellipsis", no_wrap=True, ratio=1)
        for row in self._rows[-max(1, most) :]:
            verdict = Text(row.verdict, _STYLES.get(row.verdict, "")) if row.verdict else self._doing(row)
            seconds = f"{row.seconds:.1f}" if row.seconds else ""
            table.add_row(row.step, str(row.attempt), verdict, seconds, Text(row.feedback, "dim"))
        return table

    def _doing(self, row: Row) -> Spinner:
        self._spinner.update(text=Text(row.doing, "dim"))
        return self._spinner


def _one_line(text: str) -> str:
    """Give a text as one printable line, no longer than anyone will look at."""
    return printable(" ".join(text[:_MOST_TEXT].split()))
