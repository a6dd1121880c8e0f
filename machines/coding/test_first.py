"""Tests first: a module and its tests, written by the TDD workflow (seed 001), and judged where they will lie.

Takes who writes, a specification and the places of both files; gives code that passes its tests. The tests are run in a copy of the workspace, by the
command that anybody would type there: they import the module as the workspace does, by its package, with its `conftest.py` and its settings. Where that cannot be
tried they are run beside the module alone, and what is told says so.
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

from dsa.errors import GenerationError
from dsa.generators.model_options import waited_for
from dsa.guards.code import SyntaxGuard, extract_code
from dsa.guards.composition import AllOf
from dsa.guards.pytest_guard import NewTestsGuard, TDDTestGuard
from dsa.runtime.content import (
    Artifact,
    Context,
    GeneratorInterface,
    GuardInterface,
    GuardResult,
    PromptTemplate,
    Usage,
    render,
)
from machines.coding.tools.command_runner import FinishedCommand
from machines.coding.tools.file_arguments import NewFile, WriteFiles
from machines.coding.tools.workspace_paths import TOOL_FOLDERS, WorkspaceToolError
from machines.dual_state.agent import ActionPair, always
from machines.dual_state.dag import InMemoryArtifactDAG
from machines.tool_use.chat_model import Model
from machines.tool_use.records import cut
from machines.tool_use.tool_call import answer_of
from machines.tool_use.transcript import ChatMessage
from machines.workflow.workflow import Workflow, WorkflowStatus, WorkflowStep

RMAX = 3
_LONGEST_REASON = 1_500
#: How much of a workspace is copied to run tests in.
MOST_FILES, MOST_BYTES = 20_000, 200_000_000
_TIMEOUT_S = 60.0
_TESTS = PromptTemplate(
    role="You write tests before the code exists.",
    constraints="Answer with one Python file of pytest functions, in a fence. Import what is tested with: from {module} import ..",
    task="Write pytest tests for: {specification}",
)
_CODE = PromptTemplate(
    role="You write code that passes given tests.",
    constraints="Answer with one Python file, in a fence. It is imported as {module}.",
    task="Write the module for: {specification}\n\nIt must pass these tests:\n{test}",
)
#: Asks, where the tests will lie, whether the module can be imported from there, and is this one.
_PROBE = """\
import importlib.util


def test_it_is_found():
    found = importlib.util.find_spec({module!r})
    assert found is not None and found.origin and found.origin.endswith({ending!r}), found and found.origin
"""
#: Runs a command in a folder, as `running.run` does.
Run = Callable[..., FinishedCommand]


class NotTriedError(Exception):
    """Raised where tests cannot be run in the workspace's layout; the text says why."""


@attrs.frozen
class WriteTested:
    """The arguments of `write_tested`: where module and tests go, and what the module is to do."""

    path: str
    tests_path: str
    specification: str

    def files(self, code: str = "", tests: str = "") -> WriteFiles:
        """Return the call that writes both."""
        return WriteFiles((NewFile(self.path, code), NewFile(self.tests_path, tests)))


@attrs.frozen
class Places:
    """Where a module and its tests are to lie in a workspace. Raises ToolError `bad_path` for a path that is no module."""

    root: Path
    path: str
    tests_path: str

    def __attrs_post_init__(self) -> None:
        if not self.path.endswith(".py") or not all(part.isidentifier() for part in self.module.split(".")):
            raise WorkspaceToolError(
                "bad_path", f"'{self.path}' is no module that tests can import: letters, digits and _, then .py"
            )

    @property
    def module(self) -> str:
        """The name by which the workspace imports it: by its folders, from the root or from `src`."""
        parts = PurePosixPath(os.path.normpath(self.path)).with_suffix("").parts
        is_src = len(parts) > 1 and parts[0] == "src" and not (self.root / "src" / "__init__.py").exists()
        parts = parts[1:] if is_src else parts
        return ".".join(parts[:-1] if len(parts) > 1 and parts[-1] == "__init__" else parts)


class Layout:
    """A workspace as tests see it that lie in it. `run` runs a command in a folder."""

    def __init__(self, places: Places, run: Run) -> None:
        self.places, self._run = places, run

    def require_importable(self) -> None:
        """Raise ToolError `not_importable` where tests there would not find the module, NotTriedError where that cannot be tried."""
        places = self.places
        with self._copied() as copy:
            module = copy / places.path
            if not module.exists():
                _write(module, "")
            ending = f"/{PurePosixPath(os.path.normpath(places.path))}"
            _write(copy / places.tests_path, _PROBE.format(module=places.module, ending=ending))
            ran = self._ran(copy)
        if ran.code != 0:
            hint = "put it where the workspace imports from, or have its settings say where (pythonpath in pyproject.toml, a conftest.py)"
            why = f"tests at '{places.tests_path}' would not find '{places.path}' as {places.module}; {hint}:\n{ran.output}"
            raise WorkspaceToolError("not_importable", cut(f"nothing was written: {why}", _LONGEST_REASON))

    def fault(self, code: str, tests: str) -> str:
        """Run the tests in a copy; return what failed, nothing where all pass. Raises NotTriedError."""
        with self._copied() as copy:
            _write(copy / self.places.path, code)
            _write(copy / self.places.tests_path, tests)
            ran = self._ran(copy)
        if ran.code == _NO_TESTS:
            return "The tests define no function test_...()."
        how = f"rc={ran.code}" if ran.code is not None else ran.signal or ran.ended
        return "" if ran.code == 0 else f"pytest {self.places.tests_path} -> {how}\n{ran.output}"

    def _ran(self, copy: Path) -> FinishedCommand:
        try:
            return self._run(("pytest", "-q", self.places.tests_path), root=copy, timeout_s=_TIMEOUT_S)
        except WorkspaceToolError as error:
            if error.code == "stopped":
                raise
            raise NotTriedError(str(error)) from error

    @contextmanager
    def _copied(self) -> Iterator[Path]:
        """Copy the workspace, but for what programs make again. Raises NotTriedError where it is too large, or cannot be read."""
        with TemporaryDirectory(prefix="dsa-layout-") as folder:
            copy = Path(os.path.realpath(folder), "workspace")
            copy.mkdir()
            try:
                _copy(self.places.root, copy)
            except OSError as error:
                raise NotTriedError(f"the workspace cannot be copied: {error.strerror}") from error
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
                raise NotTriedError(f"the workspace is too large to copy (more than {most})")
            shutil.copy2(path, to / path.name)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", errors="replace")


class LayoutGuard(GuardInterface):
    """Pass code that passes the tests of an earlier step where both will lie."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout

    def validate(self, artifact: Artifact, **dependencies: Artifact) -> GuardResult:
        """Judge the code. Raises NotTriedError."""
        code, tests = _file(artifact.content), _file(dependencies["test"].content)
        fault = self._layout.fault(code, tests)
        return GuardResult(passed=not fault, feedback=cut(fault, _LONGEST_REASON))


def _file(content: str) -> str:
    return extract_code(content).strip("\n") + "\n"


@attrs.frozen
class TestedCode:
    """Code, its tests, what the model was asked for them, how many answers that took, and how they were tested."""

    code: str
    tests: str
    attempts: int
    usage: Mapping[str, float]
    how: str


def write_tested(model: Model, specification: str, layout: Layout, number: int) -> TestedCode:
    """Have tests written, and then code that passes them. Blocks.

    `number` is how many answers the run has had. Raises ToolError `bad_path`, `not_importable`, and `not_tested` with the last feedback, GenerationError when the model gave
    nothing.
    """
    places = layout.places
    generator = _MeteredModel(model, number)
    try:
        layout.require_importable()
        guard: GuardInterface = LayoutGuard(layout)
        how = f"the tests pass where they lie (pytest {places.tests_path})"
    except NotTriedError as error:
        guard = TDDTestGuard(module=places.module.rpartition(".")[2])
        how = f"the tests pass beside the module alone; where they lie they were not run, nor was it tried to import it as {places.module}: {error}"
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
    except NotTriedError as error:
        raise WorkspaceToolError(
            "not_tested", f"nothing was written: the tests could not be run to the end: {error}"
        ) from error
    if result.status is not WorkflowStatus.SUCCESS:
        if generator.failure is not None:
            raise generator.failure
        why = f"nothing was written: the {result.failed_step} did not pass, {result.reason}"
        raise WorkspaceToolError("not_tested", cut(why, _LONGEST_REASON))
    impl, test = (_file(result.artifacts[name].content) for name in ("g_impl", "g_test"))
    return TestedCode(impl, test, generator.asked, dict(generator.taken), how)


def _guard_of_tests(places: Places) -> GuardInterface:
    """Return what judges the tests before there is code: by themselves, unless a `conftest.py` may have what they use."""
    if any((places.root / folder / "conftest.py").exists() for folder in Path(places.tests_path).parents):
        return SyntaxGuard()
    is_plain = "." not in places.module and find_spec(places.module) is None
    return NewTestsGuard(module=places.module) if is_plain else NewTestsGuard()


class _MeteredModel(GeneratorInterface):
    """Asks the model of the run; adds up what that takes."""

    def __init__(self, model: Model, number: int) -> None:
        self._model, self._number = model, number
        self.asked = 0
        self.taken: Counter[str] = Counter()
        self.failure: GenerationError | None = None

    def generate(self, context: Context, template: PromptTemplate | None = None) -> Artifact:
        """Ask once. Raises GenerationError."""
        messages = [ChatMessage("user", render(template, context))]
        number = self._number + self.asked
        self.asked += 1
        try:
            result = waited_for(lambda: self._model.ask(messages, (), number=number, on_text=None))
        except GenerationError as error:
            self.failure = error
            raise
        _, answer = answer_of(result, lambda name, _: name)
        self.taken.update({name: value for name, value in attrs.asdict(answer.usage).items() if value is not None})
        return Artifact(content=result.content, usage=Usage(model=result.model, seconds=0.0))
