"""The guard `tests` of the workflow: code passes when the tests of an earlier step do.

Effects are the dual-state agent's, found by their names.
"""

import ast

from dsa.guards.cases import CasesGuard
from dsa.guards.code import extract_code, syntax_fault
from dsa.runtime.content import Artifact, GuardInterface, GuardResult

TEST = "test"


class PassesTests(GuardInterface):
    """Run the test functions of the artifact that the step uses as `test` over the code, isolated as cases are.

    Code and tests share one module, without pytest: what counts is that it loads and that no `test_...()` raises.
    Both were written by a model, so a pass is a claim, not a proof.
    """

    def validate(self, artifact: Artifact, **dependencies: Artifact) -> GuardResult:
        """Judge the code; without tests it has failed."""
        if TEST not in dependencies:
            return GuardResult(passed=False, feedback=f"There are no tests: the step uses nothing as '{TEST}'.")
        tests = extract_code(dependencies[TEST].content)
        names = _test_functions(tests)
        if not names:
            return GuardResult(passed=False, feedback="The tests define no function test_...().")
        both = Artifact(f"{extract_code(artifact.content)}\n\n{tests}\n")
        return CasesGuard([(f"{name}()", None) for name in names]).validate(both)


def _test_functions(tests: str) -> list[str]:
    if syntax_fault(tests):
        return []
    return [
        n.name
        for n in ast.parse(tests).body
        if isinstance(n, ast.FunctionDef) and n.name.startswith("test_") and _plain(n)
    ]


def _plain(function: ast.FunctionDef) -> bool:
    """Tell whether it can be called without arguments: fixtures there are none."""
    arguments = function.args
    return not (arguments.posonlyargs or arguments.args or None in arguments.kw_defaults)


guards: dict[str, GuardInterface] = {"tests": PassesTests()}
