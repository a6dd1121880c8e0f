"""Guards made of functions, which judge what an event brings and nothing else: equal events get equal verdicts, in a replay too."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from dsa.runtime.content import Artifact, GuardInterface, GuardResult

#: The data of an event.
Said = Mapping[str, Any]
#: The verdict (`passed`, `failed` or `fatal`) and the reason.
Verdict = tuple[str, str]
PASSED: Verdict = ("passed", "")


def failed_for(why: str) -> Verdict:
    """Give the verdict by what is wrong; empty where nothing is."""
    return ("failed", why) if why else PASSED


class FunctionGuard(GuardInterface):
    """A guard made of a function."""

    blocks = False

    def __init__(self, judge: Callable[[Said], Verdict]) -> None:
        self._judge = judge

    def validate(self, artifact: Artifact, **_dependencies: Artifact) -> GuardResult:
        """Judge the data of an event."""
        said = json.loads(artifact.content)
        verdict, why = self._judge(said if isinstance(said, dict) else {})
        return GuardResult(passed=verdict == "passed", feedback=why, fatal=verdict == "fatal")
