"""Command line: what all commands share to print, to show progress, to end, to write files, and to read options.

All output goes through `say` and `write`. They write characters that the terminal cannot show as escapes, so that no text of a run or a model can end
or disguise the run; without a reader the run goes on. A `ProgressLine` shows the present activity on standard error: only on a terminal, and only
after a second. `CommandExit` ends a command with a sentence and an exit code; with `--json`, `JsonCommand` prints an object as well. `require_file`
and similar functions check before the work whether files can be written: `-o` never overwrites the document that is read, and a file for users to edit only
with `--force`. Options of several commands are `--param NAME=VALUE`, `--max-states N`, `--time-limit S`, and words to choose from.
"""

import contextlib
import io
import json
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from shutil import get_terminal_size
from types import TracebackType
from typing import IO, Any, Self, TextIO, cast

import attrs
import click
from click.decorators import FC

from dsa.errors import DsaError, code_of
from dsa.expr import Value, read_value
from dsa.runtime.json_text import data_of
from dsa.text import closest, printable

_LOST_OUTPUT: list[str] = []


def patient(stream: TextIO) -> TextIO:
    """Return a stream that accepts every text, even when nobody reads it any more."""
    return cast(TextIO, _Patient(stream))


@attrs.frozen
class ColouredWord:
    """A word that is printed in a colour, if the terminal has colours."""

    text: str
    colour: str | None


def say(*parts: str | ColouredWord, err: bool = False) -> None:
    """Print a line of any text, on standard error with `err`; a missing reader is not an error. Everything that commands print goes through here.

    Characters that would control a terminal, or cannot be seen, are written as escapes.
    """
    stream = sys.stderr if err else sys.stdout
    texts = (printable(part) if isinstance(part, str) else _terminal_text(part, stream) for part in parts)
    _Patient(stream).write(f"{''.join(texts)}\n")


def _terminal_text(part: ColouredWord, stream: TextIO | None) -> str:
    has_colours = stream is not None and stream.isatty() and not os.environ.get("NO_COLOR")
    return click.style(part.text, fg=part.colour) if has_colours else part.text


def write(text: str) -> None:
    """Write a document or a program on standard output: unchanged to a file or a pipe, with escapes to a terminal."""
    is_shown = sys.stdout is not None and sys.stdout.isatty()
    _Patient(sys.stdout).write(printable(text) if is_shown else text)


def silence(stream: TextIO | None) -> None:
    """Discard the buffer of a stream, which the interpreter would otherwise fail to write when it ends."""
    with contextlib.suppress(AttributeError, OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), cast(TextIO, stream).fileno())


def note_lost(fault: Exception) -> None:
    """Record that a text could not be printed, unless the reader has gone."""
    if isinstance(fault, OSError) and not isinstance(fault, BrokenPipeError):
        _LOST_OUTPUT.append(fault.strerror or str(fault))


def lost_output() -> str | None:
    """Flush standard output; return why printed text was lost, or None if none was."""
    try:
        sys.stdout.flush()
    except (AttributeError, OSError, ValueError) as fault:
        note_lost(fault)
        silence(sys.stdout)
    return _LOST_OUTPUT[0] if _LOST_OUTPUT else None


class _Patient(io.TextIOBase):
    """A stream that accepts every text, around one that may be closed, full, or unable to encode it."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream

    @property
    def encoding(self) -> str:  # type: ignore[override]  # typeshed has it as an attribute
        return getattr(self._stream, "encoding", None) or "utf-8"

    def write(self, text: str) -> int:
        """Write what can be written, at once."""
        encodable = text.encode(self.encoding, "backslashreplace").decode(self.encoding)
        try:
            if self._stream is not None:
                self._stream.write(encodable)
                self._stream.flush()
        except (OSError, ValueError) as fault:  # the reader has gone, the disk is full, or the stream is closed
            note_lost(fault)
            silence(self._stream)
            self._stream = None
        return len(text)

    def isatty(self) -> bool:
        """Return whether it is a terminal."""
        return self._stream is not None and self._stream.isatty()

    def fileno(self) -> int:
        """Return the file descriptor. Raises OSError if there is none."""
        return super().fileno() if self._stream is None else self._stream.fileno()


_QUIET_S, _EVERY_S = 1.0, 0.2


def show_line(text: str) -> None:
    """Replace the last such line with this one, on a terminal only. An empty line removes it."""
    if sys.stderr is not None and sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{text}")
        sys.stderr.flush()


class ProgressLine:
    """A line with the present activity and its seconds. A thread of its own shows it, so that long work need not report.

    Calling the object records the progress of a search: the configurations found, and the steps from the start.
    """

    def __init__(self, activity: str) -> None:
        self._activity, self._began_s = activity, time.monotonic()
        self._search_began_s, self._states = self._began_s, 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._show, daemon=True)

    def __enter__(self) -> Self:
        """Start the thread, on a terminal."""
        if sys.stderr is not None and sys.stderr.isatty():
            self._thread.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """Stop the thread, and remove the line."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()

    def tell(self, activity: str) -> None:
        """Set the present activity."""
        self._activity = activity

    def __call__(self, states: int, depth: int) -> None:
        """Record the progress of a search. A smaller count than before means a new search."""
        now_s = time.monotonic()
        if states < self._states:
            self._search_began_s = now_s
        self._states = states
        speed = states / max(now_s - self._search_began_s, 1e-3)
        self.tell(f"{states:,} configurations, {depth:,} steps deep, {speed:,.0f} states/s")

    def _show(self) -> None:
        wait_s, is_shown = _QUIET_S, False
        while not self._over.wait(wait_s):
            duration = f", {time.monotonic() - self._began_s:.0f} s"
            width = get_terminal_size().columns - len(duration) - 1  # a line that wraps could not be removed
            show_line(f"{self._activity[:width]}{duration}")
            wait_s, is_shown = _EVERY_S, True
        if is_shown:
            show_line("")


EXIT_UNREADABLE = 2
EXIT_INTERRUPTED = 130  # as in shells: 128 plus the number of SIGINT


#: The key for the run's folder in the context of a command.
_RUN = "dsa.run"


class CommandExit(click.ClickException):
    """Raised to end a command with a sentence and an exit code. `directory` is the run's folder, if there is a run."""

    def __init__(self, message: str, exit_code: int, *, directory: Path | None = None) -> None:
        super().__init__(message)
        self.exit_code = exit_code  # type: ignore[misc]  # click reads it off the instance too
        self.directory = directory

    def show(self, file: IO[Any] | None = None) -> None:  # noqa: ARG002  (click's signature)
        """Print the sentence on standard error."""
        say(self.message, err=True)


def note_run(folder: Path) -> None:
    """Record the run of this command, so that `--json` can report it even when the command fails."""
    context = click.get_current_context(silent=True)
    if context is not None:
        context.meta[_RUN] = folder


def noted_run(context: click.Context) -> Path | None:
    """Return the folder of the run that `note_run` recorded for a command, if it did."""
    folder: Path | None = context.meta.get(_RUN)
    return folder


class JsonCommand(click.Command):
    """A command whose `--json` prints one object on standard output, also after an error; messages go to standard error."""

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,  # noqa: ANN401  (click's signature)
    ) -> click.Context:
        """Read the arguments."""
        wants_json = "--json" in args
        try:
            return super().make_context(info_name, args, parent, **extra)
        except click.ClickException as fault:
            if wants_json:
                print_json(self.fault_json(None, fault))
            raise

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401  (click's signature)
        """Run the command."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            fault: Exception = CommandExit("interrupted", EXIT_INTERRUPTED)
        except BrokenPipeError:
            raise
        except (DsaError, OSError, click.ClickException) as raised:
            fault = raised
        if ctx.params.get("json_wanted"):
            print_json(self.fault_json(ctx, fault))
        raise fault

    def fault_json(self, ctx: click.Context | None, fault: Exception) -> dict[str, object]:  # noqa: ARG002  (for `RunCommand`)
        """Return the object of a command that failed; `ctx` is None when its arguments could not be read."""
        return fault_as_json(fault)


json_option = click.option("--json", "json_wanted", is_flag=True, help="Print JSON and nothing else.")


def print_json(report: dict[str, object]) -> None:
    """Print a report as one JSON object."""
    say(json.dumps(report, indent=2))


def message_of(fault: Exception) -> str:
    """Return the message of the fault that ends a command."""
    if isinstance(fault, click.ClickException):
        return fault.format_message()
    if isinstance(fault, OSError):  # a file that cannot be written, a full disk
        return f"{fault.filename}: {fault.strerror}" if fault.filename else fault.strerror or str(fault)
    return str(fault)


def fault_as_json(fault: Exception) -> dict[str, Any]:
    """Return a fault as an object. Its code is that of the error, or else its kind."""
    code = getattr(fault, "exit_code", EXIT_UNREADABLE)
    cause = fault.__cause__ if isinstance(fault, CommandExit) else fault
    directory = getattr(fault, "directory", None)
    kind = {EXIT_INTERRUPTED: "interrupted", EXIT_UNREADABLE: "unreadable"}.get(code, "stopped")
    return {
        "kind": kind,
        "outcome": None,
        "exit_code": code,
        "failure": {
            "what": None,
            "line": None,
            "code": kind if cause is None else code_of(cause),
            "message": message_of(fault),
        },
        "directory": None if directory is None else str(directory),
    }


output_option = click.option(
    "-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="Write here, not to the terminal."
)


def require_other(output: Path | None, file: Path | str) -> None:
    """Raise UsageError if a command would overwrite the file that it reads."""
    if output is not None and output.exists() and Path(file).exists() and output.samefile(file):
        raise click.UsageError(f"{output} is the input file itself; nothing was written; give -o another name")


def require_free(output: Path | None, *, force: bool) -> None:
    """Raise UsageError if the file exists and `force` is not set: the user may have edited it."""
    if output is not None and output.exists() and not force:
        raise click.UsageError(f"{output} exists already; nothing was written; --force overwrites it")


def require_file(path: Path | str | None, option: str) -> None:
    """Raise click.UsageError if a file cannot be written there. None means that no file is wanted."""
    if path is None:
        return
    path = Path(path)
    if path.is_dir():
        raise click.UsageError(f"{option} {path}: that is a folder; name a file")
    if path.exists():
        if not os.access(path, os.W_OK):
            raise click.UsageError(f"{option} {path}: the file is not writable")
    elif not path.parent.is_dir():
        raise click.UsageError(f"{option} {path}: there is no folder {path.parent}")
    elif not os.access(path.parent, os.W_OK):
        raise click.UsageError(f"{option} {path}: the folder {path.parent} is not writable")


def require_folder(path: Path | None, option: str) -> None:
    """Make a folder for files, unless it exists. Raise click.UsageError if that fails. None means that no folder is wanted."""
    if path is None:
        return
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as fault:
        raise click.UsageError(f"{option} {path}: the folder cannot be made ({fault.strerror})") from None
    if not os.access(path, os.W_OK):
        raise click.UsageError(f"{option} {path}: the folder is not writable")


class _Seconds(click.FloatRange):
    """A number of seconds, 0 or more. NaN is refused, because such a limit would never be reached."""

    name = "seconds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:  # noqa: ANN401  (click's signature)
        """Read the number."""
        seconds: float = super().convert(value, param, ctx)
        if math.isnan(seconds):
            self.fail(f"{value} is not a number of seconds; write one such as 2.5", param, ctx)
        return seconds


SECONDS = _Seconds(min=0)


class Word(click.Choice):  # type: ignore[type-arg]  # it has no type parameters before click 8.2
    """One of a set of words. For another word, the error names the word that was probably meant."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:  # noqa: ANN401  (click's signature)
        """Read the word."""
        if value not in self.choices:
            self.fail(f"there is no '{value}'; {closest(value, self.choices)}", param, ctx)
        return str(value)


def param_option(help_text: str) -> Callable[[FC], FC]:
    """Return the option `--param NAME=VALUE`, which can be repeated; `help_text` is its help."""
    return click.option("--param", "parameters", multiple=True, metavar="NAME=VALUE", help=help_text)


def family_option() -> Callable[[FC], FC]:
    """Return the option `--family NAME=VALUES`, which can be repeated."""
    help_text = "Use these values for the family NAME, not those in the document. Examples: f=1..5, f={a, b}. (A family f is a set of values; a row with `x[f]` is repeated for each value of f.) Repeatable."
    return click.option("--family", "families", multiple=True, metavar="NAME=VALUES", help=help_text)


def parse_families(texts: Iterable[str]) -> dict[str, str]:
    """Read assignments such as `f=1..5`, each name once. Raises click.UsageError for other texts."""
    indices: dict[str, str] = {}
    for text in texts:
        name, _, index = (part.strip() for part in text.partition("="))
        if not name or not index:
            raise click.UsageError(f"--family {text}: write NAME=VALUES, such as f=1..5")
        if name in indices:
            raise click.UsageError(f"--family {name} is given twice; give it only once")
        indices[name] = index
    return indices


def max_states_option(default: int, what: str = "search") -> Callable[[FC], FC]:
    """Return the option `--max-states N`, the limit of each `what`."""
    help_text = f"Stop each {what} after this number of configurations."
    return click.option("--max-states", type=click.IntRange(min=1), default=default, show_default=True, help=help_text)


def parse_parameters(texts: Iterable[str], option: str = "--param") -> dict[str, Value]:
    """Read assignments such as `rmax=5`, `strict=true`, `mode=fast`, each name once. Raises click.UsageError for other texts."""
    values: dict[str, Value] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip() or not value.strip():
            raise click.UsageError(f"{option} {text}: write NAME=VALUE, such as rmax=5")
        if name.strip() in values:
            raise click.UsageError(f"{option} {name.strip()} is given twice; give it one value")
        try:
            values[name.strip()] = read_value(value.strip())
        except ValueError as fault:
            raise click.UsageError(f"{option} {name}: {fault}") from None
    return values


def read_data(text: str, option: str = "--data") -> Any:  # noqa: ANN401  (JSON)
    """Read the data of an event: JSON, or a text. A text that begins like an object, a list or a string of JSON must be valid JSON.

    Raises click.UsageError if it is not.
    """
    require_text(text, option)
    try:
        return data_of(text)
    except ValueError as fault:
        raise click.UsageError(f"{option}{fault}") from fault


def require_text(text: str, what: str) -> str:
    """Return a text of the command line. Raises UsageError for bytes that are not UTF-8."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as fault:
        raise click.UsageError(f"{what} is not UTF-8 text") from fault
    return text
