"""The program `dsa`: it finds the command, and imports only that one.

Exit codes: 0 good; 1 findings, UNKNOWN or a failed run; 2 usage or unreadable input; 3 escalated or waiting; 130
interrupted.
"""

import contextlib
import gc
import importlib
import io
import logging
import os
import sys
import threading
from typing import Any

import click

from dsa.cli.command_line import EXIT_INTERRUPTED, EXIT_UNREADABLE, CommandExit, lost_output, message_of, say, silence
from dsa.errors import DsaError
from dsa.text import nearest

#: Each command with the one line that `dsa --help` shows; `dsa/cli/NAME.py` holds it as `command`.
COMMANDS = {
    "chat": "Talk with a model about data.",
    "code": "Have a model work towards a goal in a folder.",
    "check": "Check machines, and specs (files with properties and scenarios of a machine).",
    "demo": "Run the shipped exercises with a real local model.",
    "diff": "Compare two versions of a table, and show which unfinished runs could go on under the new one.",
    "docs": "Keep diagrams, tables and check results in Markdown pages up to date.",
    "doctor": "Show what this computer offers and what is missing.",
    "draw": "Draw a machine as Mermaid, DOT, SVG, PNG or a table.",
    "expand": "Print the transitions that a Steps document expands to.",
    "export": "Write a machine for SPIN, TLC, Storm, SCXML or XState.",
    "fmt": "Format the tables of documents.",
    "generators": "List the kinds of generators and their options. (A generator makes the texts that guards judge.)",
    "guards": "List the kinds of guards and their options.",
    "mutate": "Plant small faults in a machine and count how many of them its spec detects.",
    "new": "Write a starter document.",
    "odds": "Compute how likely success is, what runs cost, and how many retries are needed for a given probability of success.",
    "prove": "Prove properties for all parameter values, with z3.",
    "replay": "Compute a recorded run again from its events and compare it with the record, or try the events on another table.",
    "resume": "Go on with a run that crashed, that a failure stopped, or whose last effect may or may not have happened.",
    "run": "Run a machine with a model.",
    "runs": "List the recorded runs.",
    "send": "Send a waiting run an event from outside.",
    "show": "Show what happened in a run, and its status.",
    "sim": "Run a machine in a simulated world where everything goes wrong.",
    "tests": "Generate tests for your own implementation of a machine.",
    "undo": "Put back what a coding run has changed.",
    "verify": "Check a certificate with the independent kernel.",
    "web": "Show machines and runs in a browser on this computer.",
    "why": "Explain why an event is accepted or refused in a state.",
    "work": "Continue the runs that crashed, whose timer is due, or that have an event in their inbox.",
}
#: The commands of shipped machines, found by their entry points: nothing here imports a machine.
_OF_MACHINES = ("chat", "code", "undo")


def _command(name: str) -> click.Command:
    if name in _OF_MACHINES:
        of_machine: click.Command = importlib.import_module("dsa.cli.run").command_of(name)
        return of_machine
    command: click.Command = importlib.import_module(f"dsa.cli.{name}").command
    return command


class _Lazy(click.Group):
    """A group that knows its commands by name, and imports one at its first use."""

    def main(self, args: Any = None, prog_name: Any = None, standalone_mode: bool = True, **more: Any) -> Any:  # type: ignore[override]  # noqa: ANN401, FBT001, FBT002  (click's signature)
        """Run the program. Errors in its arguments are printed through `say`, too."""
        if not standalone_mode:
            return super().main(args, prog_name, standalone_mode=False, **more)
        try:
            code = super().main(args, prog_name, standalone_mode=False, **more)
        except click.ClickException as fault:
            output = io.StringIO()
            fault.show(output)
            if output.getvalue():  # our own print by themselves
                say(output.getvalue().rstrip("\n"), err=True)
            sys.exit(fault.exit_code)
        except click.Abort:
            say("Aborted!", err=True)
            sys.exit(1)
        sys.exit(code if isinstance(code, int) else 0)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  (click's signature)
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        command = _command(cmd_name)
        if not gc.isenabled():  # as `main` left it
            gc.freeze()
            gc.enable()
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command. The error for an unknown name suggests a similar one."""
        name = args[0]
        if not name.startswith("-") and name not in COMMANDS and not ctx.resilient_parsing:
            suggestion = nearest(name, COMMANDS)
            ctx.fail(f"no such command '{name}'{f'; did you mean {suggestion!r}?' if suggestion else ''}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401  (click's signature)
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            # The reader of our output has gone (`dsa draw ... | head`). That is not an error, and no message would arrive.
            silence(sys.stdout)
            sys.exit(0)
        except KeyboardInterrupt:
            raise CommandExit("interrupted", EXIT_INTERRUPTED) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.command(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="dual-state-agents", prog_name="dsa")
def program() -> None:
    """State machines for LLM agents: one Markdown table that is checked, drawn, tested and run."""


def main() -> None:
    """Run the program, and end the process with its exit code."""
    code = run_program()
    is_abandoned = any(thread.daemon and not getattr(thread, "is_idle", False) for thread in threading.enumerate())
    if is_abandoned or "temporalio" in sys.modules:
        # An abandoned call goes on in native code (a model, for example), which would crash the interpreter at its end. So do the threads of Temporal's client.
        with contextlib.suppress(AttributeError, OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


class _Notices(logging.Handler):
    """Prints what a person should know while a command waits, on standard error."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print a line."""
        say(record.getMessage(), err=True)


_NOTICES = _Notices()


def run_program() -> int:
    """Run the program, and return its exit code. Errors that this package raises on purpose become a message and exit code 2."""
    # Until the command is loaded there is no garbage, and what is loaded stays. Collecting again and again would take a
    # seventh of the time of a small check.
    gc.disable()
    if sys.stdin is None:  # a service or `<&-` has closed it: no file that is opened must get its number
        sys.stdin = os.fdopen(os.open(os.devnull, os.O_RDONLY))
    # A file's name may have bytes or characters that the encoding does not have.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    notices = logging.getLogger("dsa.notice")
    notices.addHandler(_NOTICES)
    notices.propagate = False  # with `--log` it would be there twice
    code = _exit_code()
    gc.enable()
    if (reason := lost_output()) is not None:
        say(f"standard output: {reason}", err=True)
        code = code or EXIT_UNREADABLE
    return code


def _exit_code() -> int:
    try:
        program(prog_name="dsa")
    except (DsaError, OSError) as fault:
        say(message_of(fault), err=True)
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else 0 if leaving.code is None else EXIT_UNREADABLE
    return EXIT_UNREADABLE
