"""Judge code by the linter ruff, which reads it and runs nothing of it.

Takes rules, gives a guard. No configuration is read but what is given here, and no comment in the code can switch a rule off.
"""

import re
import subprocess

from dsa.edge.sandbox import Bounds, Confinement, Outcome
from dsa.guards.code import comments, extract_code, syntax_fault
from dsa.guards.feedback import bounded, clip
from dsa.guards.tool import Tool, ToolFailedError, installed
from dsa.runtime.content import Artifact, GuardInterface, GuardResult

_FILE = "solution.py"
_FAULT = re.compile(rf"^{re.escape(_FILE)}:(\d+):\d+: (?P<rule>\S+) (?:\[[*-]\] )?(?P<what>.*)$", re.MULTILINE)
_ISORT = re.compile(r"#\s*isort\s*:")  # what --ignore-noqa does not see
_MOST_FAULTS = 5
_USAGE = 2  # its exit status when it cannot work
_CHECK_S = 30
_MOST_SAID = 300


class RuffGuard(GuardInterface):
    """Pass code in which ruff finds nothing; the feedback names the first faults by line and rule.

    `select` and `ignore` are ruff's rules, without `select` its usual ones; `line_length` also checks the length of lines (E501). Configuration
    files are not read, and comments such as `# noqa` switch nothing off. Runs in the sandbox, whose `require` and `rung` are. ValueError for
    rules that ruff does not know, ToolMissingError where ruff is not installed.
    """

    def __init__(
        self,
        *,
        select: tuple[str, ...] = (),
        ignore: tuple[str, ...] = (),
        line_length: int | None = None,
        timeout_s: float = 10,
        require: tuple[str, ...] = (),
        rung: str = "",
    ) -> None:
        rules = ["--select", ",".join(select)] if select else []
        rules += ["--ignore", ",".join((*ignore, "INP001"))]  # a text alone lies in no package
        if line_length is not None:
            rules += ["--line-length", str(line_length), "--extend-select", "E501"]
        arguments = (
            "check", "--isolated", "--no-cache", "--ignore-noqa", "--no-fix", "--output-format=concise", *rules, "--stdin-filename", _FILE, "-",
        )  # fmt: skip
        if not timeout_s > 0:
            raise ValueError(f"timeout_s = {timeout_s:g} is no time limit")
        program = installed("ruff", "lint")
        _require_known(program, arguments)
        self._tool = Tool(
            program, arguments, seen=(program.rpartition("/")[0],), environment={"RAYON_NUM_THREADS": "1"}
        )
        self._bounds = Bounds(timeout_s, cpu_s=round(timeout_s) + 1, memory_bytes=1 << 30)
        self._confinement = Confinement(require, rung)

    def validate(self, artifact: Artifact, **dependencies: Artifact) -> GuardResult:  # noqa: ARG002  # the interface
        """Judge the code. Raises SandboxError where it cannot be confined as is required, ToolFailedError when ruff itself fails."""
        code = extract_code(artifact.content)
        if fault := syntax_fault(code):
            return GuardResult(passed=False, feedback=fault)
        if lines := [line for line, text in comments(code) if _ISORT.match(text)]:
            return GuardResult(
                passed=False, feedback=f"line {lines[0]}: a comment must not switch off the sorting of imports."
            )
        outcome = self._tool.run(code, "", self._bounds, self._confinement)
        feedback = self._faults(outcome)
        return GuardResult(passed=not feedback, feedback=feedback)

    def _faults(self, outcome: Outcome) -> str:
        if outcome.ended == "timeout":
            return f"ruff did not finish with the code within {self._bounds.timeout_s:g} s."
        printed = outcome.output.decode("utf-8", "replace")
        found = [f"line {match[1]}: {clip(match['rule'] + ' ' + match['what'])}" for match in _FAULT.finditer(printed)]
        if outcome.ended == "exited" and outcome.code == 0:
            return ""
        if outcome.ended != "exited" or outcome.code == _USAGE or not found:
            raise ToolFailedError(f"ruff failed ({outcome.ended}, {outcome.code}): {clip(printed)}")
        more = "and more" if outcome.tail else f"and {len(found) - _MOST_FAULTS} more"
        return bounded("\n".join(found[:_MOST_FAULTS] + ([more] if len(found) > _MOST_FAULTS else [])))


def _require_known(program: str, arguments: tuple[str, ...]) -> None:
    """Let ruff read its arguments, with nothing to check; ValueError says what is wrong with them."""
    done = subprocess.run(  # noqa: S603  # ruff itself, without the artifact
        [program, *arguments], input=b"", capture_output=True, check=False, timeout=_CHECK_S, env={}
    )
    if done.returncode == _USAGE:
        said = " ".join(done.stderr.decode("utf-8", "replace").split())
        raise ValueError(f"ruff does not take these options: {clip(said, _MOST_SAID)}")
