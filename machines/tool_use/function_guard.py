"""Guards made of functions, which judge what an event brings and nothing else: equal events get equal verdicts, in a replay too."""

import json
from collections.abc import Callable
from typing import Generic, TypeVar

from dsa.expr import Outcome
from dsa.runtime.content import Artifact, GuardInterface, GuardResult
from machines.tool_use.records import read_record

#: The verdict and the reason.
Verdict = tuple[Outcome, str]
PASSED: Verdict = ("passed", "")
T = TypeVar("T")


def failed_for(why: str) -> Verdict:
    """Give the verdict by what is wrong; empty where nothing is."""
    return ("failed", why) if why else PASSED


class FunctionGuard(GuardInterface, Generic[T]):
    """A guard made of a function, which judges records of one kind: what the data of an event says."""

    blocks = False

    def __init__(self, kind: type[T], judge: Callable[[T], Verdict]) -> None:
        self._kind, self._judge = kind, judge

    def validate(self, artifact: Artifact, **_dependencies: Artifact) -> GuardResult:
        """Judge the data of an event."""
        verdict, why = self._judge(read_record(self._kind, json.loads(artifact.content)))
        return GuardResult(passed=verdict == "passed", feedback=why, fatal=verdict == "fatal")
