"""Judge a text by a program that is run over it in the sandbox.

Takes a command, gives a guard: the text passes when the program ends with 0. A program that runs what a model wrote has its exit status from
there, so a pass is labelled `trust: cooperative`; one that only reads it, as a linter does, decides for itself.
"""

import os
import shlex
import signal
from pathlib import Path, PurePosixPath

from dsa.edge.sandbox import Bounds, Confinement, Outcome
from dsa.guards.code import extract_code, extract_fenced
from dsa.guards.feedback import bounded
from dsa.guards.tested import TRUST
from dsa.guards.tool import Tool, found
from dsa.runtime.content import Artifact, GuardInterface, GuardResult

_LONGEST_S = 86_400
_PYTHON = frozenset({"python", "py", "python3"})
_MEBIBYTE = 1 << 20
_MOST_TEXT = 4_000_000


class CommandGuard(GuardInterface):
    """Pass a text over which a program of yours, run in the sandbox, ends with 0; the feedback is the beginning and the end of what it prints.

    `command` is split as a shell does, and no shell is started. The text is in the file `file` of the program's working folder, or on its standard
    input; `fence` takes it out of the first fence in that language. `read` names files and folders that the program can see, a relative one under
    its name in the working folder too. Relative ones, and a program with a slash, are named from `document_folder`, or from here. `require` and
    `rung` are the sandbox's. ValueError for options that mean nothing, ToolMissingError for no program.
    """

    def __init__(
        self,
        command: str,
        *,
        file: str = "",
        fence: str = "",
        timeout_s: float = 30,
        memory_mb: int = 1024,
        read: tuple[str, ...] = (),
        require: tuple[str, ...] = (),
        rung: str = "",
        document_folder: Path | None = None,
    ) -> None:
        folder = document_folder or Path()
        words = shlex.split(command)
        if not words:
            raise ValueError("the command is empty")
        if not 0 < timeout_s <= _LONGEST_S:
            raise ValueError(f"timeout_s = {timeout_s:g} is no time limit: more than 0 s, at most {_LONGEST_S} s")
        if memory_mb < 1:
            raise ValueError(f"memory_mb = {memory_mb} is too little: at least 1")
        self._name, self._file, self._fence = words[0], _inside(file), fence.lower()
        shown = {
            path: os.path.realpath(folder / path) for path in read if not Path(path).is_absolute() and _inside(path)
        }
        if any(PurePosixPath(file).is_relative_to(path) for path in shown):
            raise ValueError(f"the file '{file}' would lie in a folder of yours that is only read")
        if missing := [folder / path for path in read if not (folder / path).exists()]:
            raise ValueError(f"there is no file or folder '{missing[0]}' to read")
        seen = tuple(path for path in read if path not in shown)
        self._tool = Tool(found(words[0], folder), tuple(words[1:]), shown, seen)
        self._confinement = Confinement(require, rung)
        self._bounds = Bounds(
            timeout_s, cpu_s=max(1, round(timeout_s)), memory_bytes=memory_mb * _MEBIBYTE, file_bytes=16 * _MEBIBYTE,
            disk_bytes=64 * _MEBIBYTE, open_files=256, processes=64,
        )  # fmt: skip

    def validate(self, artifact: Artifact, **dependencies: Artifact) -> GuardResult:  # noqa: ARG002  # the interface
        """Run the program over the text. Raises SandboxError where it cannot be confined as is required, or not be started."""
        text = self._taken(artifact.content)
        if len(text) > _MOST_TEXT:
            return _failed(f"The text is too long: {len(text)} characters, and at most {_MOST_TEXT} are judged.")
        try:
            text.encode()
        except UnicodeEncodeError:
            return _failed("The text holds characters that no file may hold.")
        outcome = self._tool.run(text, self._file, self._bounds, self._confinement)
        if outcome.ended == "exited" and outcome.code == 0:
            return GuardResult(passed=True, feedback=f"{self._name} ended with 0 ({TRUST}).")
        return _failed(f"{self._name} {self._end(outcome)}\n{_printed(outcome)}")

    def _taken(self, text: str) -> str:
        if not self._fence:
            return text
        return extract_code(text) if self._fence in _PYTHON else extract_fenced(text, self._fence)

    def _end(self, outcome: Outcome) -> str:
        if outcome.ended == "exited":
            return f"ended with {outcome.code}."
        if outcome.ended == "timeout":
            return f"did not end within {self._bounds.timeout_s:g} s."
        if outcome.ended == "signalled" and outcome.cpu_s > self._bounds.cpu_s - 0.5:
            return f"used more than {self._bounds.cpu_s} s of processor time."
        if outcome.ended == "signalled":
            names = {number.value: number.name for number in signal.Signals}
            return f"was killed ({names.get(outcome.code, outcome.code)}), by a crash or for using too much."
        return "was lost."


def _inside(path: str) -> str:
    """Give a path that lies in the working folder as it is; ValueError for any other."""
    if path and (Path(path).is_absolute() or ".." in PurePosixPath(path).parts or PurePosixPath(path).name == ""):
        raise ValueError(f"'{path}' does not lie in the working folder of the program")
    return path


def _printed(outcome: Outcome) -> str:
    return bounded(outcome.output.decode("utf-8", "replace"), outcome.tail.decode("utf-8", "replace"))


def _failed(feedback: str) -> GuardResult:
    return GuardResult(passed=False, feedback=bounded(feedback))
