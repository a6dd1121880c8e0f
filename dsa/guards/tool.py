"""Run a program that is no Python of ours over a text, in the sandbox.

Takes a command, gives how it ended and what it printed. It knows no guard; what an exit status means is the caller's matter.
"""

import errno
import functools
import json
import os
import shutil
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path

import attrs

from dsa.edge.sandbox import Bounds, Confinement, Outcome, Program, SandboxError, run_confined
from dsa.errors import DsaError, install_hint
from dsa.guards.feedback import clip

#: Where systems have the programs that others start: what is in them can be run there, and nothing of it can be changed.
_USUAL = ("/usr/bin", "/bin")
_NOT_RUN, _UNLOADED = 127, ": error while loading shared libraries: "
_HINTS = {
    errno.EACCES: "it runs there as a user who may not read it, or enter a folder above it: install it where everybody can read it",
    errno.ENOENT: "its interpreter, or a library that it is linked to, cannot be seen there: name the files or folders in the option `read`",
    errno.ENOEXEC: "it is no program for this machine, or a script without a first line #!",
    errno.ENOMEM: "it needs more memory than it is given",
    errno.EPERM: "this system does not let it be run there",
}


class ToolMissingError(DsaError):
    """Raised when a guard is made whose program is not installed; the message says how to install it."""


class ToolFailedError(DsaError):
    """Raised when a tool ended in a way that says nothing of the text: a fault of its own."""


@attrs.frozen
class Tool:
    """A program with its arguments, and what it can see there besides the system's shared libraries and programs.

    `shown` are files and folders by the names that they get in the program's working folder; elsewhere they have the paths that they have here.
    """

    program: str
    arguments: tuple[str, ...]
    shown: Mapping[str, str] = attrs.field(factory=dict)
    seen: tuple[str, ...] = ()
    environment: Mapping[str, str] = attrs.field(factory=dict)

    def run(self, text: str, file: str, bounds: Bounds, confinement: Confinement) -> Outcome:
        """Run it with the text in a file of that name in its working folder, or on its standard input where there is no name.

        Raises SandboxError where it cannot be confined as is required, or not be started there.
        """
        payload = {
            "program": self.program, "arguments": [self.program, *self.arguments], "file": file, "text": text,
            "shown": dict(self.shown), "environment": dict(self.environment),
        }  # fmt: skip
        outcome = run_confined(_program(self._visible()), json.dumps(payload), bounds, confinement)
        unloaded = f"{self.program}{_UNLOADED}".encode()
        # The system's loader says so: nothing of the program has run.
        if outcome.code == _NOT_RUN and outcome.output.startswith(unloaded):
            said = clip(outcome.output.removeprefix(f"{self.program}: ".encode()).decode("utf-8", "replace"))
            raise SandboxError(_unstartable(self.program, outcome.rung, errno.ENOENT, said))
        if not outcome.results:
            return outcome
        match _parsed(outcome.results):
            case {"signal": int(number)}:
                return attrs.evolve(outcome, ended="signalled", code=number)
            case {"unstarted": [int(number), str(said)]}:
                raise SandboxError(_unstartable(self.program, outcome.rung, number, said))
        return attrs.evolve(outcome, ended="lost")  # the code wrote there

    def _visible(self) -> tuple[str, ...]:
        usual = tuple(path for path in _USUAL if Path(path).is_dir())
        return tuple(dict.fromkeys((*usual, self.program, *self.seen, *self.shown.values())))


def found(name: str, folder: Path | None = None) -> str:
    """Give the real path of a program: of a file, named from a folder or from here, or of what PATH has under a name without a slash.

    `python` is the one that runs this. ToolMissingError when there is none.
    """
    wanted = os.path.join(folder or "", name) if "/" in name else name  # noqa: PTH118  (keeps a slash, where PATH is not asked)
    path = sys.executable if name in ("python", "python3") else shutil.which(wanted)
    if path is None:
        raise ToolMissingError(f"there is no program '{wanted}': give its path, or install it where PATH leads")
    return os.path.realpath(path)


def installed(name: str, extra: str) -> str:
    """Give the real path of a program that a package brings: beside this Python, else where PATH leads. ToolMissingError names the extra."""
    path = shutil.which(name, path=sysconfig.get_path("scripts")) or shutil.which(name)
    if path is None:
        raise ToolMissingError(f"{name} is not installed: {install_hint(extra)}")
    return os.path.realpath(path)


def _unstartable(program: str, rung: str, number: int, said: str) -> str:
    """Say why a program was not started, and what to do."""
    hint = f"; {_HINTS[number]}" if number in _HINTS else ""
    return f"{Path(program).name} cannot be started in the sandbox '{rung}': {said}{hint}"


def _parsed(results: bytes) -> object:
    try:
        return json.loads(results)
    except (ValueError, RecursionError):
        return None


@functools.cache
def _program(visible: tuple[str, ...]) -> Program:
    return Program(Path(__file__).with_name("tool_child.py").read_text(encoding="utf-8"), ("pathlib",), visible)
