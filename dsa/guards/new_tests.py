"""Judge tests of code that does not exist yet.

Takes a text, gives a verdict: whether it has tests which pytest can collect, and which fail as long as there is no code. Their process
reports on itself: the guard is for models that err, not for tests that are made to deceive it.
"""

from dsa.guards.assertions import asserts_anything, forgotten_imports, kind_of_tests, own_names
from dsa.guards.code import extract_code, syntax_fault
from dsa.guards.feedback import bounded, clip
from dsa.guards.tested import SandboxedTests, counted
from dsa.guards.tested_report import Report, told
from dsa.runtime.content import Artifact, GuardInterface, GuardResult

_MOST_NAMED = 5


class NewTestsGuard(GuardInterface):
    """Pass tests that code yet to be written can be held to: pytest collects them, they assert something, and one at least fails without the code.

    Without the code means: each name that they import from a module which is not installed, or use and bind nowhere, is there, and all that is
    called fails. While tests are only collected nothing fails, so that they may use the code for their parameters and constants. `module` is the
    name that the feedback gives the code; tests may use another. `require` and `rung` are the sandbox's. ValueError for options that mean nothing.

    It cannot know whether what the tests want is right, nor that a module is not the code's where it is neither installed nor widely known.
    """

    def __init__(
        self,
        *,
        module: str = "solution",
        timeout_s: float = 30,
        require: tuple[str, ...] = (),
        rung: str = "",
    ) -> None:
        self._module = module
        self._tests = SandboxedTests.checked(module, timeout_s, require, rung)

    def validate(self, artifact: Artifact, **_used: Artifact) -> GuardResult:
        """Judge the tests. Raises SandboxError where they cannot be confined as is required, or where pytest is not installed."""
        tests = extract_code(artifact.content)
        if fault := syntax_fault(tests) or self._unwritten(tests):
            return GuardResult(passed=False, feedback=fault)
        found = self._tests.report("absent", tests)
        if fault := self._untested(found, tests):
            return GuardResult(passed=False, feedback=bounded(fault))
        failing = len(found.faults)
        said = f"{counted(found.collected)}, of which {failing} fail{'s' if failing == 1 else ''} without the code."
        return GuardResult(passed=True, feedback=said)

    def _unwritten(self, tests: str) -> str:
        """Say what is not there to begin with; empty when all is."""
        kind = kind_of_tests(tests)
        if kind == "none":
            own = own_names(tests)
            instead = f" It defines {_listed(own)} instead, which is for the next step." if own else ""
            return f"There is no test in the answer.{instead} Write functions test_..() that call the code and assert what it gives."
        if kind == "tests" and not asserts_anything(tests):
            return "The tests assert nothing: let each assert what the code gives (assert, pytest.raises, self.assertEqual)."
        if forgotten := forgotten_imports(tests):
            return f"The tests use {_listed(forgotten)} and do not import {'it' if len(forgotten) == 1 else 'them'}."
        return ""

    def _untested(self, found: Report, tests: str) -> str:
        """Say why tests that ran without the code are of no use to it; empty when they are."""
        if not found.is_whole:
            is_import = "ImportError" in found.reason or "ModuleNotFoundError" in found.reason
            hint = f".\nUse what comes with Python, and pytest; import what is tested from {self._module}."
            return f"{found.reason}{hint if is_import else ''}"
        if not found.collected:
            return "pytest finds no test in the answer: write functions test_..(), or classes Test.. without __init__."
        skipped = {
            name: each
            for name, each in found.faults.items()
            if each["outcome"] == "skipped" and each.get("by") != "code"
        }
        if barred := found.barred | skipped:
            why = "No code passes these tests" + ("; one that is skipped has not passed" if skipped else "")
            return "\n".join([f"{why}:", *told(barred)])
        if found.all_passed:
            own = own_names(tests)
            leave = f" Leave out {_listed(own)}, if that is what is tested." if own else ""
            return (
                "The tests pass without the code, though all that is called of it fails: they test nothing of it. "
                f"Import what is tested from {self._module}, call it in the tests, and assert what it gives.{leave}"
            )
        return ""


def _listed(names: tuple[str, ...]) -> str:
    more = len(names) - _MOST_NAMED
    return clip(", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else ""))
