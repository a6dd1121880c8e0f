"""How a command ends that does not come to its own end: a sentence, an exit code, and with `--json` an object."""

import json
from pathlib import Path
from typing import IO, Any

import click

from dsa.cli.terminal import say
from dsa.errors import DsaError

UNREADABLE = 2
INTERRUPTED = 130  # as shells have it: 128 and the number of SIGINT


#: Where the folder of the run is noted that a command is about.
_RUN = "dsa.run"


class Ended(click.ClickException):
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
        wanted = "--json" in args
        try:
            return super().make_context(info_name, args, parent, **extra)
        except click.ClickException as fault:
            if wanted:
                tell_json(self.fault_json(None, fault))
            raise

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401  (click's signature)
        """Run the command."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            fault: Exception = Ended("interrupted", INTERRUPTED)
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


def tell_json(found: dict[str, Any]) -> None:
    """Print what a command found out as one object."""
    say(json.dumps(found, indent=2))


def message_of(fault: Exception) -> str:
    """Return the sentence that a fault ends a command with."""
    if isinstance(fault, click.ClickException):
        return fault.format_message()
    if isinstance(fault, OSError):  # a file that cannot be written, a full disk
        return f"{fault.filename}: {fault.strerror}" if fault.filename else fault.strerror or str(fault)
    return str(fault)


def fault_as_json(fault: Exception) -> dict[str, Any]:
    """Return a fault as an object. Its code is the name of what was raised, or the kind again."""
    code, cause = getattr(fault, "exit_code", UNREADABLE), fault.__cause__ if isinstance(fault, Ended) else fault
    directory = getattr(fault, "directory", None)
    kind = {INTERRUPTED: "interrupted", UNREADABLE: "unreadable"}.get(code, "stopped")
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
