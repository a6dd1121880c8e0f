"""Test-first writing: a module and its tests from the TDD workflow (seed 001), tested in the layout of the workspace.

`write_tested` takes a model, a specification and the paths of both files, and returns code that passes its tests. The tests run in a copy of the workspace
with plain pytest, so they import the module by its package, with the workspace's `conftest.py` and settings. If that is impossible, they run with the
module alone, and the result says so.
"""

import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

import attrs

from dsa.errors import ToolError
from dsa.generators.model_options import run_blocking
from dsa.guards.code import SyntaxGuard, extract_code
from dsa.guards.guard_kinds import AllOf
from dsa.guards.pytest_guard import NewTestsGuard, TDDTestGuard
from dsa.runtime.content import (
    Artifact,
    Context,
    GeneratorInterface,
    GuardInterface,
    GuardResult,
    PromptTemplate,
    render,
)
from dsa.runtime.generation import GenerationError, Usage
from machines.coding.tools.command_runner import FinishedCommand
from machines.coding.tools.file_arguments import NewFile, WriteFiles
from machines.coding.tools.workspace_boundary import TOOL_FOLDERS
from machines.dual_state.agent import ActionPair, InMemoryArtifactDAG, always
from machines.tool_use.chat_model import Model
from machines.tool_use.records import cut_middle
from machines.tool_use.tool_call import answer_of
from machines.tool_use.transcript import ChatMessage
from machines.workflow.workflow import Workflow, WorkflowStatus, WorkflowStep

RMAX = 3
_LONGEST_REASON = 1_500
#: The limits of a copy of the workspace.
MOST_FILES, MOST_BYTES = 20_000, 200_000_000
_TIMEOUT_S = 60.0
_TESTS = PromptTemplate(
    role="You write tests before the code exists.",
    constraints="Answer with one Python file of pytest functions, in a code fence. Import the code under test with: from {module} import ..",
    task="Write pytest tests for: {specification}",
)
_CODE = PromptTemplate(
    role="You write code that passes given tests.",
    constraints="Answer with one Python file, in a code fence. It is imported as {module}.",
    task="Write the module for: {specification}\n\nIt must pass these tests:\n{test}",
)
#: A test in the place of the tests: the module can be imported from there, and is the right one.
_PROBE = """\
import importlib.util


def test_it_is_found():
    found = importlib.util.find_spec({module!r})
    assert found is not None and found.origin and found.origin.endswith({ending!r}), found and found.origin
"""
#: Runs a command in a folder, like `command_runner.run`.
Run = Callable[..., FinishedCommand]


_NOT_TRIED = "not_tried"


def _not_tried(why: str) -> ToolError:
    """Return the error for tests that cannot run in the workspace's layout."""
    return ToolError(why, code=_NOT_TRIED)


@attrs.frozen
class WriteTested:
    """The arguments of `write_tested`: the paths of module and tests, and the specification."""

    path: str
    tests_path: str
    specification: str

    def files(self, code: str = "", tests: str = "") -> WriteFiles:
        """Return the call that writes both files."""
        return WriteFiles((NewFile(self.path, code), NewFile(self.tests_path, tests)))


@attrs.frozen
class Places:
    """The paths of a module and its tests in a workspace. Raises ToolError `bad_path` for a path that is not a module."""

    root: Path
    path: str
    tests_path: str

    def __attrs_post_init__(self) -> None:
        if not self.path.endswith(".py") or not all(part.isidentifier() for part in self.module.split(".")):
            raise ToolError(
                f"'{self.path}' is not a module that tests can import; use letters, digits and _, then .py",
                code="bad_path",
            )

    @property
    def module(self) -> str:
        """The import name of the module: its folders, from the root or from `src`."""
        parts = PurePosixPath(os.path.normpath(self.path)).with_suffix("").parts
        is_src = len(parts) > 1 and parts[0] == "src" and not (self.root / "src" / "__init__.py").exists()
        parts = parts[1:] if is_src else parts
        return ".".join(parts[:-1] if len(parts) > 1 and parts[-1] == "__init__" else parts)


class Layout:
    """The layout of a workspace for tests inside it. `run` runs a command in a folder."""

    def __init__(self, places: Places, run_command: Run) -> None:
        self.places, self._run_command = places, run_command

    def require_importable(self) -> None:
        """Raise ToolError `not_importable` when tests there would not find the module, `not_tried` when that cannot be tested."""
        places = self.places
        with self._workspace_copy() as copy:
            module = copy / places.path
            if not module.exists():
                _write(module, "")
            ending = f"/{PurePosixPath(os.path.normpath(places.path))}"
            _write(copy / places.tests_path, _PROBE.format(module=places.module, ending=ending))
            command = self._run_tests(copy)
        if command.code != 0:
            hint = "put the module into a folder that the tests import from, or add its folder to the settings (pythonpath in pyproject.toml, or a conftest.py)"
            why = f"tests at '{places.tests_path}' would not find '{places.path}' as {places.module}; {hint}:\n{command.output}"
            raise ToolError(cut_middle(f"nothing was written: {why}", _LONGEST_REASON), code="not_importable")

    def fault(self, code: str, tests: str) -> str:
        """Run the tests in a copy; return the failures, or an empty text. Raises ToolError `not_tried`."""
        with self._workspace_copy() as copy:
            _write(copy / self.places.path, code)
            _write(copy / self.places.tests_path, tests)
            command = self._run_tests(copy)
        if command.code == _NO_TESTS:
            return "The tests define no function test_...()."
        how = f"rc={command.code}" if command.code is not None else command.signal or command.end_reason
        return "" if command.code == 0 else f"pytest {self.places.tests_path} -> {how}\n{command.output}"

    def _run_tests(self, copy: Path) -> FinishedCommand:
        try:
            return self._run_command(("pytest", "-q", self.places.tests_path), root=copy, timeout_s=_TIMEOUT_S)
        except ToolError as error:
            if error.code == "stopped":
                raise
            raise _not_tried(str(error)) from error

    @contextmanager
    def _workspace_copy(self) -> Iterator[Path]:
        """Copy the workspace without generated folders. Raises ToolError `not_tried` when it is too large or cannot be read."""
        with TemporaryDirectory(prefix="dsa-layout-") as folder:
            copy = Path(os.path.realpath(folder), "workspace")
            copy.mkdir()
            try:
                _copy(self.places.root, copy)
            except OSError as error:
                raise _not_tried(f"the workspace cannot be copied: {error.strerror}") from error
            yield copy


_NO_TESTS = 5  # pytest's exit code


def _copy(root: Path, copy: Path) -> None:
    files = size = 0
    for parent, folders, names in os.walk(root):
        folders[:] = [
            name for name in folders if name.lower() not in TOOL_FOLDERS and not Path(parent, name).is_symlink()
        ]
        to = copy / Path(parent).relative_to(root)
        to.mkdir(exist_ok=True)
        for path in (Path(parent, name) for name in names if name.lower() not in TOOL_FOLDERS):
            if path.is_symlink() or not path.is_file():
                continue
            files, size = files + 1, size + path.stat().st_size
            if files > MOST_FILES or size > MOST_BYTES:
                most = f"{MOST_FILES:,} files or {MOST_BYTES // 1_000_000} MB"
                raise _not_tried(f"the workspace is too large to copy (more than {most})")
            shutil.copy2(path, to / path.name)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", errors="replace")


class LayoutGuard(GuardInterface):
    """A guard for code that passes the tests of an earlier step, in the layout of the workspace."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout

    def validate(self, artifact: Artifact, **dependencies: Artifact) -> GuardResult:
        """Judge the code. Raises ToolError `not_tried`."""
        code, tests = _file(artifact.content), _file(dependencies["test"].content)
        fault = self._layout.fault(code, tests)
        return GuardResult(passed=not fault, feedback=cut_middle(fault, _LONGEST_REASON))


def _file(content: str) -> str:
    return extract_code(content).strip("\n") + "\n"


@attrs.frozen
class TestedCode:
    """Code, its tests, the number of answers, the model's usage, and how they were tested."""

    code: str
    tests: str
    attempts: int
    usage: Mapping[str, float]
    how: str


def write_tested(model: Model, specification: str, layout: Layout, number: int) -> TestedCode:
    """Let the model write tests, and then code that passes them. Blocks.

    `number` is the count of earlier answers in the run. Raises ToolError `bad_path`, `not_importable`, and `not_tested` with the last feedback;
    GenerationError when the model does not answer.
    """
    places = layout.places
    generator = _MeteredModel(model, number)
    try:
        layout.require_importable()
        guard: GuardInterface = LayoutGuard(layout)
        how = f"the tests pass in the workspace (pytest {places.tests_path})"
    except ToolError as error:
        if error.code != _NOT_TRIED:
            raise
        guard = TDDTestGuard(module=places.module.rpartition(".")[2])
        how = f"the tests pass with the module alone; they did not run in the workspace, and the import as {places.module} is not tested: {error}"
    tests, code = (
        attrs.evolve(each, constraints=each.constraints.replace("{module}", places.module)) for each in (_TESTS, _CODE)
    )
    steps = [
        WorkflowStep("tests", ActionPair(always, generator, _guard_of_tests(places), tests), "g_test"),
        WorkflowStep(
            "code", ActionPair(always, generator, AllOf({"syntax": SyntaxGuard(), "tests": guard}), code), "g_impl", {"test": "g_test"}
        ),
    ]  # fmt: skip
    try:
        result = Workflow(steps, InMemoryArtifactDAG(), RMAX).execute(specification)
    except ToolError as error:
        if error.code != _NOT_TRIED:
            raise
        raise ToolError(f"nothing was written: the tests did not finish: {error}", code="not_tested") from error
    if result.status is not WorkflowStatus.SUCCESS:
        if generator.failure is not None:
            raise generator.failure
        why = f"nothing was written: the {result.failed_step} did not pass: {result.reason}"
        raise ToolError(cut_middle(why, _LONGEST_REASON), code="not_tested")
    impl, test = (_file(result.artifacts[name].content) for name in ("g_impl", "g_test"))
    return TestedCode(impl, test, generator.count, dict(generator.usage), how)


def _guard_of_tests(places: Places) -> GuardInterface:
    """Return the guard of the tests before there is code. With a `conftest.py` it only checks the syntax: the tests may use its fixtures."""
    if any((places.root / folder / "conftest.py").exists() for folder in Path(places.tests_path).parents):
        return SyntaxGuard()
    is_plain = "." not in places.module and find_spec(places.module) is None
    return NewTestsGuard(module=places.module) if is_plain else NewTestsGuard()


class _MeteredModel(GeneratorInterface):
    """A generator that asks the model of the run, and adds up its usage."""

    def __init__(self, model: Model, number: int) -> None:
        self._model, self._number = model, number
        self.count = 0
        self.usage: Counter[str] = Counter()
        self.failure: GenerationError | None = None

    def generate(self, context: Context, template: PromptTemplate | None = None) -> Artifact:
        """Ask once. Raises GenerationError."""
        messages = [ChatMessage("user", render(template, context))]
        number = self._number + self.count
        self.count += 1
        try:
            result = run_blocking(lambda: self._model.ask(messages, (), number=number, on_text=None))
        except GenerationError as error:
            self.failure = error
            raise
        _, answer = answer_of(result, lambda name, _: name)
        self.usage.update({name: value for name, value in attrs.asdict(answer.usage).items() if value is not None})
        return Artifact(content=result.content, usage=Usage(model=result.model, seconds=0.0))
