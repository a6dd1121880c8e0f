"""The kinds of guards, their compositions, and the guard that a name in a machine stands for.

Takes a name, a machine and the user's own guards; returns a GuardInterface. Every mistake is a BindingError with its
line. It runs no guard.

Compositions take guards by name: in order, all, any, at least k, at once or one after the other. A fatal verdict of any part that runs makes the
whole fatal; the feedback names the part that it came from.
"""

import json
import threading
import time
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, TypeVar

import attrs

from dsa.data_use import DEFAULT_GENERATOR
from dsa.declarations import Cases, Guard
from dsa.edge.plugins import Packages
from dsa.errors import BindingError, Span
from dsa.guards.cases import CasesGuard
from dsa.guards.code import ForbiddenGuard, SyntaxGuard
from dsa.guards.feedback import UsingGuard, bound_text, together, verdict_of
from dsa.guards.pytest_guard import NewTestsGuard, TDDTestGuard, TestGuard
from dsa.guards.text_guards import JudgeGuard, PydanticGuard, RegexGuard, ReviewGuard, SchemaGuard, model_at
from dsa.guards.tool_guards import CommandGuard, MypyGuard, RuffGuard
from dsa.machine import Machine
from dsa.runtime.content import Artifact, ComponentKind, GeneratorInterface, GuardInterface, GuardResult, kind_of
from dsa.text import closest, plural

_PASSED = GuardResult(passed=True)


class AllOf(GuardInterface):
    """Ask the parts in order and stop at the first that does not pass; its verdict is the result."""

    def __init__(self, parts: Mapping[str, GuardInterface]) -> None:
        self.parts = _not_empty(parts)

    def validate(self, artifact: Artifact, **inputs: Any) -> GuardResult:  # noqa: ANN401  (JSON)
        """Judge by the first part that does not pass."""
        for name, guard in self.parts.items():
            result = verdict_of(name, guard, artifact, inputs)
            if not result.passed:
                return attrs.evolve(result, feedback=bound_text(_with_name(name, result.feedback)))
        return _PASSED


class Combination(GuardInterface):
    """Ask every part and count: all of them, any, or at least `k` must pass.

    The feedback is that of the parts that did not pass; a fatal part makes the whole fatal however many pass. `parallel` asks all at once, in
    threads; `timeout_s` limits how long all of them may take: a part without a verdict by then makes `validate` raise
    TimeoutError, which is not a verdict.
    """

    def __init__(
        self,
        parts: Mapping[str, GuardInterface],
        kind: Literal["all", "any", "at_least"] = "all",
        k: int = 1,
        *,
        parallel: bool = False,
        timeout_s: float | None = None,
    ) -> None:
        self.parts = _not_empty(parts)
        self.required_count = {"all": len(parts), "any": 1, "at_least": k}[kind]
        if not 1 <= self.required_count <= len(parts):
            raise ValueError(f"k = {k} is not possible with {plural(len(parts), 'guard')}: k must be 1 to {len(parts)}")
        if timeout_s is not None and not timeout_s > 0:
            raise ValueError(f"timeout_s = {timeout_s:g} is not a valid time limit: it must be more than 0 s")
        self._parallel, self._timeout_s = parallel, timeout_s

    def validate(self, artifact: Artifact, **inputs: Any) -> GuardResult:  # noqa: ANN401  (JSON)
        """Judge by the number of parts that pass."""
        results = self._results(artifact, inputs)
        fatal = [result for result in results.values() if result.fatal]
        if not fatal and sum(result.passed for result in results.values()) >= self.required_count:
            return _PASSED
        texts = [_with_name(name, result.feedback) for name, result in results.items() if not result.passed]
        review = bool(fatal) and all(result.review for result in fatal)
        return GuardResult(passed=False, feedback=together(texts), fatal=bool(fatal), review=review)

    def _results(self, artifact: Artifact, inputs: Mapping[str, Any]) -> dict[str, GuardResult]:
        threads = {name: _GuardThread(name, guard, artifact, inputs) for name, guard in self.parts.items()}
        until_s = None if self._timeout_s is None else time.monotonic() + self._timeout_s
        if self._parallel:
            for part in threads.values():
                part.start()
        results = {}
        for name, part in threads.items():
            if not self._parallel and until_s is None:
                part.run()
            elif not self._parallel:
                part.start()
            results[name] = part.result(until_s)
        return results


class _GuardThread(threading.Thread):
    """A part of a composition while it is asked. Its thread is abandoned when nothing waits for it any more."""

    def __init__(self, part: str, guard: GuardInterface, artifact: Artifact, inputs: Mapping[str, Any]) -> None:
        super().__init__(name=f"dsa-guard-{part}", daemon=True)
        self._part, self._guard, self._artifact, self._inputs = part, guard, artifact, inputs
        self._outcome: GuardResult | BaseException | None = None

    def run(self) -> None:
        try:
            self._outcome = verdict_of(self._part, self._guard, self._artifact, self._inputs)
        except BaseException as error:  # noqa: BLE001  (raised again where the result is asked for)
            self._outcome = error

    def result(self, until_s: float | None) -> GuardResult:
        """Return the verdict, or raise what the guard raised; TimeoutError if there is neither by then."""
        if self.ident is not None:
            self.join(None if until_s is None else max(0.0, until_s - time.monotonic()))
        if isinstance(self._outcome, GuardResult):
            return self._outcome
        raise self._outcome or TimeoutError(f"guard {self._part} did not give a verdict in time")


def _not_empty(parts: Mapping[str, GuardInterface]) -> dict[str, GuardInterface]:
    if not parts:
        raise ValueError("a composition needs at least one guard")
    return dict(parts)


def _with_name(name: str, feedback: str) -> str:
    return f"{name}: {feedback or 'did not pass'}"


_Build = TypeVar("_Build", bound=Callable[..., GuardInterface])

#: Every kind by its name, except those from installed packages. Arguments named `cases` come from the section Cases, `parts` from the option `of`, `generator` from the option `by`, `document_folder` from the code that binds.
KINDS: dict[str, ComponentKind] = {}

_SUPPLIABLE = frozenset({"cases", "parts", "generator", "document_folder"})
#: The kinds from installed packages.
PACKAGES = Packages("dsa.guards", "guard", _SUPPLIABLE)
_OF, _BY = "of", "by"
_TESTS = "test"
#: Returns the generator of a name.
GeneratorOf = Callable[[str], GeneratorInterface]


def register(kind: str) -> Callable[[_Build], _Build]:
    """Make a class or function available as a kind of guard: its arguments are the options, its docstring describes it.

    Arguments `cases` (tuple of Case), `parts` (guards by name, from the option `of`), `generator` (named by the option `by`, else `llm`) and
    `document_folder` (a Path; files in options are relative to it) are supplied. Raises TypeError for an argument that a table cannot set, ValueError for one of our names.
    """

    def add(build: _Build) -> _Build:
        if kind in OWN:
            raise ValueError(f"'{kind}' is one of dsa's own kinds: register yours under another name")
        KINDS[kind] = kind_of(kind, build, _SUPPLIABLE)
        return build

    return add


#: The names of our kinds, which are reserved.
OWN: frozenset[str] = frozenset()

register("syntax")(SyntaxGuard)
register("cases")(CasesGuard)
register("forbidden")(ForbiddenGuard)
register("regex")(RegexGuard)
register("review")(ReviewGuard)
register("in_order")(AllOf)
register("tests")(TDDTestGuard)
register("are_tests")(NewTestsGuard)


@register("pytest")
def _pytest(
    document_folder: Path,
    file: str,
    module: str = "solution",
    timeout_s: float = 30,
    *,
    hardened: bool = False,
    show_expected: bool = False,
    require: tuple[str, ...] = (),
    rung: str = "",
) -> TestGuard:
    """Pass code that passes the tests in a file, run by pytest in the sandbox; the path is relative to the document's folder."""
    try:
        tests = (document_folder / file).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ValueError(f"the tests {document_folder / file} cannot be read: {_why(error)}") from error
    return TestGuard(
        tests, module=module, timeout_s=timeout_s, hardened=hardened, show_expected=show_expected, require=require,
        rung=rung,
    )  # fmt: skip


register("judge")(JudgeGuard)
register("command")(CommandGuard)
register("ruff")(RuffGuard)
register("mypy")(MypyGuard)


@register("pydantic")
def _pydantic(document_folder: Path, model: str, *, show_expected: bool = False) -> PydanticGuard:
    """Pass JSON that a pydantic model accepts: `module:Name`, or `file.py:Name` relative to the document's folder."""
    file, _, name = model.rpartition(":")
    place = f"{document_folder / file}:{name}" if file.endswith(".py") else model
    return PydanticGuard(model_at(place), show_expected=show_expected)


@register("json")
def _json(document_folder: Path, schema: str, *, show_expected: bool = False) -> SchemaGuard:
    """Pass JSON that matches the JSON schema in a file; its path is relative to the document's folder."""
    file = document_folder / schema
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"the schema {file} cannot be read: {_why(error)}") from error
    if not isinstance(content, dict):
        raise ValueError(f"the schema {file} is not a JSON object")  # noqa: TRY004  # a wrong file, not a wrong type
    return SchemaGuard(content, show_expected=show_expected)


@register("all")
def _all(parts: Mapping[str, GuardInterface], *, parallel: bool = False, timeout_s: float | None = None) -> Combination:
    """Pass when all parts pass; every part is asked."""
    return Combination(parts, "all", parallel=parallel, timeout_s=timeout_s)


@register("any")
def _any(parts: Mapping[str, GuardInterface], *, parallel: bool = False, timeout_s: float | None = None) -> Combination:
    """Pass when any part passes and none is fatal."""
    return Combination(parts, "any", parallel=parallel, timeout_s=timeout_s)


@register("at_least")
def _at_least(
    parts: Mapping[str, GuardInterface], k: int, *, parallel: bool = False, timeout_s: float | None = None
) -> Combination:
    """Pass when at least k parts pass and none is fatal."""
    return Combination(parts, "at_least", k, parallel=parallel, timeout_s=timeout_s)


def _why(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


OWN = frozenset(KINDS)


def build_guard(
    name: str,
    machine: Machine,
    extra: Mapping[str, GuardInterface] | None = None,
    generator_of: GeneratorOf | None = None,
    folder: Path | None = None,
) -> GuardInterface:
    """Build the guard of a name: a workflow step's, a declared guard, or a kind.

    `extra` has the user's own guards, by guard name or by kind. A step's guards are asked in order; its part
    `cases` takes the section Cases named after the step, or else after itself. `generator_of` gives guards that ask a model their generator.
    `folder` is the document's, to which files in options are relative; by default the working folder. Raises BindingError.
    """
    return _Builder(machine, dict(extra or {}), generator_of, folder or Path()).build(name)


@attrs.frozen
class _Builder:
    machine: Machine
    extra: dict[str, GuardInterface]
    generator_of: GeneratorOf | None
    folder: Path

    def build(self, name: str) -> GuardInterface:
        if name in self.extra:
            return self._with_own_data(self.extra[name], name)
        for step in self.machine.steps:
            if step.name == name:
                parts = {part: self._part(part, (name,), step.span) for part in step.guards}
                return parts[step.guards[0]] if len(parts) == 1 else AllOf(parts)
        return self._part(name, (), None)

    def _part(self, name: str, above: tuple[str, ...], span: Span | None) -> GuardInterface:
        """Build a declared guard or a kind; `above` are the names it was reached through, outermost first."""
        if name in above:
            circle = pairwise((name, *reversed(above[above.index(name) :])))
            links = [f"'{part}' is a part of '{whole}'" for part, whole in circle]
            how = f": {' and '.join(links)}" if len(links) > 1 else ""
            raise BindingError(f"guard '{name}' is a part of itself{how}", span)
        row = self.machine.guard_named.get(name, Guard(name))
        span = row.span or span
        for key in (name, row.kind):
            if key in self.extra:
                return self._with_own_data(self._own(self.extra[key], row, span), name)
        kind = KINDS.get(row.kind or name) or self._package_kind(row.kind or name, span)
        if kind is None:
            names = {*KINDS, *PACKAGES.names(), *self.extra, *self.machine.guard_named} - {name}
            missing = f"guard {name} is of kind '{row.kind}', which" if row.kind else f"guard {name}"
            raise BindingError(f"{missing} is not bound to anything", span, closest(row.kind or name, names))
        guard = self._build_kind(kind, row, above, span)
        if "parts" not in kind.supplied_arguments:
            return self._with_own_data(guard, name)
        if row.uses:
            message = f"guard {name} combines other guards, so it cannot use data itself"
            raise BindingError(message, span, "fill in the column 'uses' for its parts instead")
        return guard

    def _with_own_data(self, guard: GuardInterface, name: str) -> GuardInterface:
        """Return a guard that gets the data of events that it uses, and nothing of what others use."""
        uses_data = isinstance(guard, GuardInterface) and any(row.uses for row in self.machine.guards)
        return UsingGuard(guard, name) if uses_data else guard

    @staticmethod
    def _package_kind(name: str, span: Span | None) -> ComponentKind | None:
        try:
            return PACKAGES.find(name)
        except BindingError as error:
            raise BindingError(str(error), span) from error

    @staticmethod
    def _own(guard: GuardInterface, row: Guard, span: Span | None) -> GuardInterface:
        if row.options:
            raise BindingError(f"guard {row.name} is bound to your own object, which takes no options", span)
        return guard

    def _build_kind(self, kind: ComponentKind, row: Guard, above: tuple[str, ...], span: Span | None) -> GuardInterface:
        owner = f"guard {row.name}"
        supply: dict[str, object] = (
            {"document_folder": self.folder} if "document_folder" in kind.supplied_arguments else {}
        )
        options = row.options
        if "parts" in kind.supplied_arguments:
            supply["parts"] = self._parts(kind, row, above, span)
            options = tuple(option for option in options if option[0] != _OF)
        if "generator" in kind.supplied_arguments:
            supply["generator"] = self._generator(dict(options).get(_BY, DEFAULT_GENERATOR), owner, row.span or span)
            options = tuple(option for option in options if option[0] != _BY)
        if "cases" in kind.supplied_arguments:
            section = self._cases(row.name, above, span)
            supply["cases"] = section.cases
            span = section.span or span
        arguments = kind.arguments(options, owner, row.span or span)
        try:
            guard = kind.build(**supply, **arguments)
        except ValueError as error:
            raise BindingError(f"{owner}: {error}", span) from error
        if isinstance(guard, TDDTestGuard):
            self._require_tests(owner, above)
        if not isinstance(guard, GuardInterface):
            raise BindingError(
                f"the kind '{kind.name}' must build a GuardInterface, but built an object of type {type(guard).__name__}",
                span,
            )
        return guard

    def _require_tests(self, owner: str, above: tuple[str, ...]) -> None:
        """Raise BindingError if the step uses no tests, because the guard could never pass. A guard outside of steps is not checked."""
        step = self.machine.step_named.get(above[0]) if above else None
        if step is not None and _TESTS not in dict(step.uses):
            message = f"{owner} of step {step.name} needs the tests of an earlier step, but the step uses nothing as '{_TESTS}'"
            raise BindingError(
                message,
                step.span,
                f"write {_TESTS} = STEP in the column 'uses', where STEP is the step that makes the tests",
            )

    def _parts(
        self, kind: ComponentKind, row: Guard, above: tuple[str, ...], span: Span | None
    ) -> dict[str, GuardInterface]:
        names = [part.strip() for part in dict(row.options).get(_OF, "").split(",") if part.strip()]
        if not names:
            raise BindingError(
                f"guard {row.name} is of kind {kind.name}, which combines other guards, but it names none",
                span,
                f"{_OF} = a, b",
            )
        return {part: self._part(part, (*above, row.name), span) for part in names}

    def _generator(self, name: str, owner: str, span: Span | None) -> GeneratorInterface:
        if self.generator_of is None:
            raise BindingError(f"{owner} asks a generator, but no generator is available here", span)
        try:
            return self.generator_of(name.strip())
        except BindingError as error:
            raise error if error.span else BindingError(f"{owner}: {error}", span) from None

    def _cases(self, name: str, above: tuple[str, ...], span: Span | None) -> Cases:
        sections = {section.name: section for section in self.machine.cases}
        names = (*above[:1], name)
        for section in names:
            if section in sections:
                return sections[section]
        raise BindingError(
            f"guard {name} needs cases, but there are none", span, f"add a section '## Cases: {names[0]}'"
        )
