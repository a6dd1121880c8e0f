"""The files that a command executes: those that its arguments name, and those that its program reads by itself.

Takes arguments and where they are meant, gives digests by path; leave that a person gives for a command holds for these. What such files import or
include in turn is not looked for, but for tests, which are taken with all the code beside them. Nothing is run here.
"""

import os
import posixpath
import stat
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from hashlib import sha256
from pathlib import Path

from machines.coding.history.looking import CLOSED
from machines.coding.tools.programs import Start, python_start

#: What programs read without being told so, in the folder where they run.
BUILD_FILES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("make", "gmake"), ("GNUmakefile", "makefile", "Makefile")),
    **dict.fromkeys(("npm", "npx", "yarn", "pnpm", "bun"), ("package.json",)),
    "node": ("package.json",),
    "just": ("justfile", "Justfile", ".justfile"),
    "tox": ("tox.ini", "pyproject.toml", "setup.cfg"),
    "nox": ("noxfile.py",),
    "cargo": ("Cargo.toml", "build.rs"),
    "cmake": ("CMakeLists.txt",),
    "rake": ("Rakefile", "rakefile"),
}
#: Of these the folder is that of another option: `make -C DIR`, `npm --prefix DIR`.
_FOLDER_OPTIONS = frozenset({"-C", "--directory", "--prefix", "--cwd", "--dir"})
_TESTS_READ = ("conftest.py", "__init__.py", "pytest.ini", ".pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg")
_IN_FOLDER = ("__main__.py", "package.json", "index.js", "index.mjs", "index.cjs")
#: Of the code in a folder of tests at most so many files and bytes are read.
MOST_FILES, MOST_BYTES = 10_000, 100_000_000
_PIECE_BYTES = 1 << 20


def executed(argv: Sequence[str], root: Path, cwd: str) -> dict[str, str]:
    """Return digests of the files of a workspace that a command executes, by path; of folders of tests one for all the Python files in each (`tests/*.py`)."""
    looking = _Looking(os.path.realpath(root), posixpath.join(os.path.realpath(root), cwd))
    name, *arguments = argv
    for word in argv:
        for text in filter(None, (word, word.partition("=")[2], word.partition("::")[0], _of_option(word))):
            looking.file(text)
            for each in _IN_FOLDER:
                looking.file(posixpath.join(text, each))
    for folder in (".", *_folders(arguments)):
        for each in BUILD_FILES.get(name, ()):
            looking.file(posixpath.join(folder, each))
    start = python_start(arguments) if name in {"python", "python3"} else Start()
    if start.kind == "module":
        for each in _of_module(start.what):
            looking.file(each)
    if name in {"pytest", "py.test"} or (start.kind == "module" and start.what in {"pytest", "unittest"}):
        looking.tests(arguments if start.kind != "module" else start.arguments)
    return looking.found


def _of_option(word: str) -> str:
    """Return what stands behind the letter of an option, as in `-fbuild.mk`."""
    return word[2:] if word[:1] == "-" and word[:2] != "--" else ""


def _folders(arguments: Sequence[str]) -> Iterator[str]:
    """Give the folders in which a program is told to run."""
    for before, word in zip(("", *arguments), arguments, strict=False):
        if before in _FOLDER_OPTIONS:
            yield word
        elif word.partition("=")[0] in _FOLDER_OPTIONS:
            yield word.partition("=")[2]
        elif word.startswith("-C"):
            yield word[2:]


def _of_module(name: str) -> Iterator[str]:
    """Give the files that `python -m NAME` executes: those of the packages above it, and its own."""
    parts = name.split(".")
    for depth in range(1, len(parts) + 1):
        yield "/".join([*parts[:depth], "__init__.py"])
    yield f"{'/'.join(parts)}.py"
    yield "/".join([*parts, "__main__.py"])


class _Looking:
    """The digests that were found so far, in a workspace, for a command that runs in `folder`; both are real paths."""

    def __init__(self, root: str, folder: str) -> None:
        self._root, self._folder = root, folder
        self.found: dict[str, str] = {}
        self._left_files, self._left_bytes = MOST_FILES, MOST_BYTES

    def file(self, text: str) -> None:
        """Take a file, also where a link leads to it; what is not a file of the workspace is nothing."""
        path = self._inside(text)
        if path is None:
            return
        name = posixpath.relpath(posixpath.normpath(posixpath.join(self._folder, text)), self._root)
        if name not in self.found and (digest := _digest(path)):
            self.found[name] = digest

    def tests(self, arguments: Sequence[str]) -> None:
        """Take all the Python files in the folders of tests that are named, or of dotted names, and what is read above them."""
        named = [word.partition("::")[0] for word in arguments if not word.startswith("-")]
        named += [word.rpartition(".")[0].replace(".", "/") for word in named if "/" not in word]
        for word in named:
            for each in _of_module(word) if word.replace(".", "").isidentifier() else ():
                self.file(each)
        places = [word for word in named if word and self._inside(word) is not None] or ["."]
        for place in dict.fromkeys(places):
            path = self._inside(place)
            if path is not None and os.path.isdir(path):  # noqa: PTH112  (a text that may be no path)
                self._code_in(path)
            for above in self._above(place):
                for each in _TESTS_READ:
                    self.file(posixpath.join(above, each))

    def _above(self, place: str) -> Iterator[str]:
        """Give the folders from that of a file to the workspace."""
        path = posixpath.normpath(posixpath.join(self._folder, place))
        while path == self._root or path.startswith(f"{self._root}/"):
            yield path
            path = posixpath.dirname(path)

    def _code_in(self, folder: str) -> None:
        """Take the Python files beneath a folder as one digest."""
        name = posixpath.relpath(folder, self._root)
        key = posixpath.normpath(f"{name}/*.py")
        if key in self.found:
            return
        whole = sha256()
        for path in _python_files(folder):
            if self._left_files <= 0:
                break
            size = os.path.getsize(path) if os.path.exists(path) else 0  # noqa: PTH110, PTH202  (of many files)
            self._left_files, self._left_bytes = self._left_files - 1, self._left_bytes - size
            said = _digest(path) if self._left_bytes > 0 else ""
            whole.update(
                f"{posixpath.relpath(path, folder)}\0{said or _stamp(path)}\n".encode(errors="surrogateescape")
            )
        self.found[key] = whole.hexdigest()

    def _inside(self, text: str) -> str | None:
        """Return the real path of a text, if it is one in the workspace."""
        try:
            path = os.path.realpath(posixpath.join(self._folder, text))
            return path if path == self._root or path.startswith(f"{self._root}/") else None
        except (OSError, ValueError):  # a text that is no path
            return None


def _python_files(folder: str) -> Iterator[str]:
    for above, folders, files in os.walk(folder):
        folders[:] = sorted(each for each in folders if each not in CLOSED)
        yield from (posixpath.join(above, each) for each in sorted(files) if each.endswith(".py"))


def _digest(path: str) -> str:
    """Return the SHA-256 of a regular file; of a very large one what the system says of it, of what is not one nothing."""
    try:
        opened = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return ""
    with ExitStack() as closing:
        closing.callback(os.close, opened)
        about = os.fstat(opened)
        if not stat.S_ISREG(about.st_mode):
            return ""
        if about.st_size > MOST_BYTES:
            return f"{about.st_size} bytes, changed at {about.st_mtime_ns}"
        found = sha256()
        while piece := os.read(opened, _PIECE_BYTES):
            found.update(piece)
        return found.hexdigest()


def _stamp(path: str) -> str:
    try:
        about = os.stat(path)  # noqa: PTH116  (of many files)
    except OSError:
        return "gone"
    return f"{about.st_size} bytes, changed at {about.st_mtime_ns}"
