"""The terminal that a run is shown on. Nothing that it does, or that a model wrote, may end or disguise the run.

Characters that it cannot show are written as escapes, and when nobody reads any more the run goes on unseen.

What a command is doing, on standard error: only on a terminal, and only after a second.

How a command ends that does not come to its own end: a sentence, an exit code, and with `--json` an object.

Files and folders that a command is asked to write: it is noticed before the work what cannot or must not be written.

`-o` never overwrites the document that is read, and what a user goes on editing only with `--force`.

Options that several commands take: `--param NAME=VALUE`, `--max-states N`, `--time-limit S`, and choices.
"""

import contextlib
import io
import json
import math
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from shutil import get_terminal_size
from types import TracebackType
from typing import IO, Any, NoReturn, Self, TextIO, cast

import attrs
import click
from click.decorators import FC

from dsa.errors import DsaError
from dsa.expr import Value
from dsa.runtime.json_text import canonical_value
from dsa.text import closest

#: Control characters but tab and line feed, what separates lines elsewhere, what turns the direction of writing, what is not seen, and halves of
#: surrogate pairs.
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e0fff]"
)
_LOST_OUTPUT: list[str] = []


def printable(text: str) -> str:
    """Write characters that would steer a terminal as escapes; tabs and line feeds stay."""
    return _UNSAFE.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), text)


def patient(stream: TextIO) -> TextIO:
    """Return a stream that takes every text, whoever still reads."""
    return cast(TextIO, _Patient(stream))


@attrs.frozen
class ColouredWord:
    """A word of ours in a colour, where the terminal has colours."""

    text: str
    colour: str | None


def say(*parts: str | ColouredWord, err: bool = False) -> None:
    """Print a line, whatever is in it and whoever still reads; `err`: on standard error. All that commands print goes through here.

    What would steer a terminal, or cannot be seen, is written as an escape.
    """
    stream = sys.stderr if err else sys.stdout
    texts = (printable(part) if isinstance(part, str) else _terminal_text(part, stream) for part in parts)
    _Patient(stream).write(f"{''.join(texts)}\n")


def _terminal_text(part: ColouredWord, stream: TextIO | None) -> str:
    has_colours = stream is not None and stream.isatty() and not os.environ.get("NO_COLOR")
    return click.style(part.text, fg=part.colour) if has_colours else part.text


def write(text: str) -> None:
    """Write a document or a program on standard output: as it is for a file or a pipe, and so that it steers nothing on a terminal."""
    is_shown = sys.stdout is not None and sys.stdout.isatty()
    _Patient(sys.stdout).write(printable(text) if is_shown else text)


def silence(stream: TextIO | None) -> None:
    """Send what a stream still holds to nowhere, or the interpreter would fail to write it as it ends."""
    with contextlib.suppress(AttributeError, OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), cast(TextIO, stream).fileno())


def note_lost(fault: Exception) -> None:
    """Note that something could not be printed, unless nobody reads any more."""
    if isinstance(fault, OSError) and not isinstance(fault, BrokenPipeError):
        _LOST_OUTPUT.append(fault.strerror or str(fault))


def lost_output() -> str | None:
    """Print what standard output still holds; return the reason why something that was printed is lost, None when nothing is."""
    try:
        sys.stdout.flush()
    except (AttributeError, OSError, ValueError) as fault:
        note_lost(fault)
        silence(sys.stdout)
    return _LOST_OUTPUT[0] if _LOST_OUTPUT else None


class _Patient(io.TextIOBase):
    """A stream that takes every text, for one that may be closed, full, or unable to encode it."""

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
        except (OSError, ValueError) as fault:  # its reader is gone, the disk is full, it is closed
            note_lost(fault)
            silence(self._stream)
            self._stream = None
        return len(text)

    def isatty(self) -> bool:
        """Return whether it is a terminal."""
        return self._stream is not None and self._stream.isatty()

    def fileno(self) -> int:
        """Return the file descriptor; OSError when there is none."""
        return super().fileno() if self._stream is None else self._stream.fileno()


_QUIET_S, _EVERY_S = 1.0, 0.2


def show_line(text: str) -> None:
    """Show a line in the place of the one before it, on a terminal only; an empty one takes that away."""
    if sys.stderr is not None and sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{text}")
        sys.stderr.flush()


class ProgressLine:
    """Shows what is being done and for how many seconds, from a thread of its own, so that long work need not report.

    Calling it takes note of a search: configurations found, and steps from the start.
    """

    def __init__(self, activity: str) -> None:
        self._activity, self._began_s = activity, time.monotonic()
        self._search_began_s, self._states = self._began_s, 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._show, daemon=True)

    def __enter__(self) -> Self:
        """Begin."""
        if sys.stderr is not None and sys.stderr.isatty():
            self._thread.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """Take the line away."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()

    def tell(self, activity: str) -> None:
        """Say what is done now."""
        self._activity = activity

    def __call__(self, states: int, depth: int) -> None:
        """Record how far a search is; a count smaller than before is a new search."""
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
            width = get_terminal_size().columns - len(duration) - 1  # a line that is broken could not be taken away
            show_line(f"{self._activity[:width]}{duration}")
            wait_s, is_shown = _EVERY_S, True
        if is_shown:
            show_line("")


EXIT_UNREADABLE = 2
EXIT_INTERRUPTED = 130  # as shells have it: 128 and the number of SIGINT


#: Where the folder of the run is noted that a command is about.
_RUN = "dsa.run"


class CommandExit(click.ClickException):
    """Raised to end a command with a sentence and an exit code. `directory` is that of the run, if there is one."""

    def __init__(self, message: str, exit_code: int, *, directory: Path | None = None) -> None:
        super().__init__(message)
        self.exit_code = exit_code  # type: ignore[misc]  # click reads it off the instance too
        self.directory = directory

    def show(self, file: IO[Any] | None = None) -> None:  # noqa: ARG002  (click's signature)
        """Print the sentence on standard error."""
        say(self.message, err=True)


def note_run(folder: Path) -> None:
    """Note which run the command is about: with `--json` it is told of, even when the command fails."""
    context = click.get_current_context(silent=True)
    if context is not None:
        context.meta[_RUN] = folder


def noted_run(context: click.Context) -> Path | None:
    """Return the folder of the run that a command is about, if it has come to know it."""
    folder: Path | None = context.meta.get(_RUN)
    return folder


class JsonCommand(click.Command):
    """A command whose `--json` prints one object on standard output whatever happens; a message goes beside it."""

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
                tell_json(self.fault_json(None, fault))
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
            tell_json(self.fault_json(ctx, fault))
        raise fault

    def fault_json(self, ctx: click.Context | None, fault: Exception) -> dict[str, Any]:  # noqa: ARG002  (for `RunCommand`)
        """Return the object of a command that failed; `ctx` is None when its arguments could not be read."""
        return fault_as_json(fault)


json_option = click.option("--json", "json_wanted", is_flag=True, help="Print one JSON object and nothing else.")


def tell_json(report: dict[str, Any]) -> None:
    """Print what a command found out as one object."""
    say(json.dumps(report, indent=2))


def message_of(fault: Exception) -> str:
    """Return the sentence that a fault ends a command with."""
    if isinstance(fault, click.ClickException):
        return fault.format_message()
    if isinstance(fault, OSError):  # a file that cannot be written, a full disk
        return f"{fault.filename}: {fault.strerror}" if fault.filename else fault.strerror or str(fault)
    return str(fault)


def fault_as_json(fault: Exception) -> dict[str, Any]:
    """Return a fault as an object. Its code is the name of what was raised, or the kind again."""
    code, cause = (
        getattr(fault, "exit_code", EXIT_UNREADABLE),
        fault.__cause__ if isinstance(fault, CommandExit) else fault,
    )
    directory = getattr(fault, "directory", None)
    kind = {EXIT_INTERRUPTED: "interrupted", EXIT_UNREADABLE: "unreadable"}.get(code, "stopped")
    return {
        "kind": kind,
        "outcome": None,
        "exit_code": code,
        "failure": {
            "what": None,
            "line": None,
            "code": kind if cause is None else type(cause).__name__,
            "message": message_of(fault),
        },
        "directory": None if directory is None else str(directory),
    }


output_option = click.option(
    "-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="Write here, not to the terminal."
)


def require_other(output: Path | None, file: Path | str) -> None:
    """Raise UsageError when a command would write over what it reads."""
    if output is not None and output.exists() and Path(file).exists() and output.samefile(file):
        raise click.UsageError(f"{output} is what is read here; nothing was written; give -o another name")


def require_free(output: Path | None, *, force: bool) -> None:
    """Raise UsageError when something is there already: what is written is for the user to edit, and may have been."""
    if output is not None and output.exists() and not force:
        raise click.UsageError(f"{output} is there already; nothing was written; --force overwrites it")


def require_file(path: Path | str | None, option: str) -> None:
    """Raise click.UsageError when a file cannot be written there; None is no file."""
    if path is None:
        return
    path = Path(path)
    if path.is_dir():
        raise click.UsageError(f"{option} {path}: that is a folder; name a file")
    if path.exists():
        if not os.access(path, os.W_OK):
            raise click.UsageError(f"{option} {path}: the file may not be written")
    elif not path.parent.is_dir():
        raise click.UsageError(f"{option} {path}: there is no folder {path.parent}")
    elif not os.access(path.parent, os.W_OK):
        raise click.UsageError(f"{option} {path}: nothing may be written in {path.parent}")


def require_folder(path: Path | None, option: str) -> None:
    """Make a folder for files, unless it is there; raise click.UsageError when that cannot be done. None is no folder."""
    if path is None:
        return
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as fault:
        raise click.UsageError(f"{option} {path}: the folder cannot be made ({fault.strerror})") from None
    if not os.access(path, os.W_OK):
        raise click.UsageError(f"{option} {path}: nothing may be written in it")


_NUMBER = re.compile(r"-?[0-9]+")
_MOST_DIGITS = 100


class _Seconds(click.FloatRange):
    """A number of seconds from 0. A limit that is not a number would never be met."""

    name = "seconds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:  # noqa: ANN401  (click's signature)
        """Read the number."""
        seconds: float = super().convert(value, param, ctx)
        if math.isnan(seconds):
            self.fail(f"{value} is not a number of seconds; write one such as 2.5", param, ctx)
        return seconds


SECONDS = _Seconds(min=0)


class Word(click.Choice):  # type: ignore[type-arg]  # it has none before click 8.2
    """One of some words; of another word it says which was probably meant."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:  # noqa: ANN401  (click's signature)
        """Read the word."""
        if value not in self.choices:
            self.fail(f"there is no '{value}'; {closest(value, self.choices)}", param, ctx)
        return str(value)


def param_option(help_text: str) -> Callable[[FC], FC]:
    """Return `--param NAME=VALUE`, which may be given several times; `help_text` is its help."""
    return click.option("--param", "parameters", multiple=True, metavar="NAME=VALUE", help=help_text)


def max_states_option(default: int, what: str = "search") -> Callable[[FC], FC]:
    """Return `--max-states N`; `what` is stopped there."""
    help_text = f"Stop each {what} after so many configurations."
    return click.option("--max-states", type=click.IntRange(min=1), default=default, show_default=True, help=help_text)


def parse_parameters(texts: Iterable[str], option: str = "--param") -> dict[str, Value]:
    """Read `rmax=5`, `strict=true`, `mode=fast`, each once. Raises click.UsageError for what is not of this form."""
    values: dict[str, Value] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip() or not value.strip():
            raise click.UsageError(f"{option} {text}: write NAME=VALUE, such as rmax=5")
        if _NUMBER.fullmatch(value.strip()) and len(value) > _MOST_DIGITS:
            raise click.UsageError(f"{option} {name}: a number of more than {_MOST_DIGITS} digits is too large")
        if name.strip() in values:
            raise click.UsageError(f"{option} {name.strip()} is given twice; give it one value")
        values[name.strip()] = _value(value.strip())
    return values


def _value(text: str) -> Value:
    if text in ("true", "false"):
        return text == "true"
    return int(text) if _NUMBER.fullmatch(text) else text


def read_data(text: str, option: str = "--data") -> Any:  # noqa: ANN401  (JSON)
    """Read what an event brings: JSON, or a text; what begins as an object, a list or a string of JSON has to be one.

    Raises click.UsageError for what is neither.
    """
    require_text(text, option)
    try:
        value = json.loads(text, parse_constant=_refuse, parse_float=_in_range)
        canonical_value(value)  # what is nested too deep is refused here, before anybody looks for secrets in it
    except _RangeError as fault:
        if text.lstrip().startswith(("{", "[")) or text.strip() == fault.text:
            raise click.UsageError(f"{option}: {fault}") from fault
        return text
    except (ValueError, RecursionError) as fault:
        if text.lstrip().startswith(("{", "[", '"')):
            why = "it is nested too deeply" if isinstance(fault, RecursionError) else fault
            raise click.UsageError(f"{option} begins as JSON and is not valid: {why}") from fault
        return text
    return value


class _RangeError(ValueError):
    """Raised for a number that would be read as infinity."""

    def __init__(self, text: str) -> None:
        self.text = text
        excerpt = text if len(text) <= _MOST_DIGITS else f"{text[:_MOST_DIGITS]}.."
        super().__init__(
            f"the number {excerpt} is out of range, for none is above 1.8e308; write it as a text, in quotes"
        )


def _in_range(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise _RangeError(text)
    return number


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def require_text(text: str, what: str) -> str:
    """Return what stands on the command line. Raises UsageError for bytes that are not characters."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as fault:
        raise click.UsageError(f"{what} is not UTF-8 text") from fault
    return text
