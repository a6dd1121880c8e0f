"""Entry points of installed packages, and the kinds of guards and generators among them: the entry's name is the kind's name, its object the class or function.

A package is imported when a table uses a name that is not known otherwise, or when all kinds are listed.
"""

import os
import sys
from collections.abc import Iterator, Mapping
from functools import lru_cache
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from typing import Any

import attrs

from dsa.edge.processes import environment_secrets
from dsa.errors import BindingError
from dsa.runtime.content import ComponentKind, kind_of


def installed_points(group: str) -> EntryPoints:
    """Return the entry points of a group, from all installed packages.

    Looking through all packages takes milliseconds, so it is done once for all groups, and again when a folder of Python's path has changed.
    """
    return _all_points(tuple((folder, _changed_ns(folder)) for folder in sys.path)).select(group=group)  # type: ignore[no-any-return]


@lru_cache(maxsize=1)
def _all_points(_path: tuple[tuple[str, int], ...]) -> Any:  # noqa: ANN401  # its type depends on Python's version
    return entry_points()


def _changed_ns(folder: str) -> int:
    """Return when the names in a folder last changed; 0 if there is no such folder."""
    try:
        return os.stat(folder or ".").st_mtime_ns  # noqa: PTH116  # "" is the current folder
    except OSError:
        return 0


@attrs.frozen
class PluginKind:
    """A kind that a package provides: `package` is its name and version."""

    kind: ComponentKind
    package: str


@attrs.frozen
class Packages:
    """The kinds of one group, `dsa.guards` or `dsa.generators`. `what` is the word for a kind; `suppliable` are arguments that are not options."""

    group: str
    what: str
    suppliable: frozenset[str]

    def names(self) -> frozenset[str]:
        """Return the names of all kinds, without importing anything."""
        return frozenset(self._points())

    def find(self, name: str) -> ComponentKind | None:
        """Import the kind of a name; None if no package provides it. Raises BindingError if it cannot be imported, or if several packages provide it."""
        points = self._points().get(name)
        return None if points is None else self._import_kind(name, points)

    def import_all(
        self, known_kinds: Mapping[str, ComponentKind], own: frozenset[str]
    ) -> tuple[list[PluginKind], list[str]]:
        """Import all kinds but `known_kinds`. Return them, and a sentence for each that cannot be used; a name of dsa's `own` never can."""
        kinds, faults = [], []
        for name, points in sorted(self._points().items()):
            if name in own:
                faults.append(
                    f"the {self.what} '{name}' of {_package_list(points)} is never used, because this name belongs to dsa"
                )
            elif name not in known_kinds:
                try:
                    kinds.append(PluginKind(self._import_kind(name, points), _package(points[0])))
                except BindingError as error:
                    faults.append(str(error))
        return kinds, faults

    def _points(self) -> dict[str, tuple[EntryPoint, ...]]:
        points: dict[str, tuple[EntryPoint, ...]] = {}
        for point in installed_points(self.group):
            points[point.name] = (*points.get(point.name, ()), point)
        return points

    def _import_kind(self, name: str, points: tuple[EntryPoint, ...]) -> ComponentKind:
        if len(points) > 1:
            raise BindingError(
                f"the {self.what} '{name}' is provided by {_package_list(points)}: uninstall all but one of them"
            )
        whole = f"the {self.what} '{name}' of {_package_list(points)} ({points[0].value})"
        try:
            build = points[0].load()
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # sys.exit at its top would end the program as if nothing were wrong
            raise BindingError(f"{whole} cannot be imported: {_error_text(error)}") from error
        if not callable(build):
            raise BindingError(f"{whole} is {type(build).__name__}, not a class or function that makes a {self.what}")
        try:
            return kind_of(name, build, self.suppliable)
        except (TypeError, ValueError, NameError) as error:
            raise BindingError(f"{whole} cannot be a kind: {_error_text(error)}") from error


def _error_text(error: BaseException) -> str:
    """Return an error's class and message on one line, without secrets."""
    text = " ".join(environment_secrets().text(str(error)).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _package_list(points: tuple[EntryPoint, ...]) -> str:
    return f"the package{'s' if len(points) > 1 else ''} {' and '.join(sorted(_packages(points)))}"


def _packages(points: tuple[EntryPoint, ...]) -> Iterator[str]:
    return (f"'{_package(point)}'" for point in points)


def _package(point: EntryPoint) -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist else "unknown"
