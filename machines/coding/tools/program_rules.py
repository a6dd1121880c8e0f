"""Rules of programs: which ones may run, and with which arguments; and the files that a command executes.

`CHECKS` and `other_fault` take arguments, rules and the working folder, and return why the rules refuse the command, or an empty text. The rules state an
intent: they keep a model to what a task needs, and explain it. They do not confine code: a script, a `conftest.py` or a build file can run anything. Only the
sandbox limits what such code reaches (`machines.coding.tools.command_runner`).

`executed_files` returns digests, by path, of the files that a command names or that its program reads by itself; a person's permission for a command holds for
these files. Files that they import or include are not followed, except tests, which count with all the code beside them. Nothing is run here.
"""

import os
import posixpath
import re
import stat
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from hashlib import sha256
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any, Self

import attrs

from machines.coding.tools.workspace_boundary import TOOL_FOLDERS

#: Modules that `python -m` may run, besides the workspace's own, pytest, ruff and pip.
MODULES = (
    "pytest", "ruff", "unittest", "doctest", "json.tool", "compileall", "py_compile", "tabnanny", "coverage", "mypy", "black", "isort",
)  # fmt: skip
_NAME = re.compile(r"[A-Za-z0-9][\w.+-]*")
#: The paths of devices and descriptors; a file in /dev/shm is neither.
_INPUTS = re.compile(r"/dev/[^/]+|/dev/fd/.*|/proc/.*", re.DOTALL)
_DEVICES = frozenset({"/dev/null", "/dev/stdin", "/dev/stdout", "/dev/stderr"})
#: Modules that run code in their arguments, like `python -c`.
_RUNS_CODE = frozenset({"timeit"})
_MOST_PATH = 4_096


@attrs.frozen
class Rules:
    """The programs that may run. `code` allows `python -c`, `pip` allows to install packages, `modules` are the modules that `python -m` may run.

    `programs` are further ones by name, with the arguments that each may have, or None for any. A program with a list of arguments may run without one only when ""
    is in the list.
    """

    code: bool = False
    pip: bool = False
    modules: tuple[str, ...] = MODULES
    programs: Mapping[str, tuple[str, ...] | None] = attrs.field(factory=dict)

    @classmethod
    def from_mapping(cls, data: Mapping[str, Any]) -> Self:
        """Return the rules in a TOML file. Raises ValueError for anything else, naming the valid forms."""
        if unknown := sorted(set(data) - {"code", "pip", "modules", "programs"}):
            raise ValueError(f"'{unknown[0]}' is not a rule for commands; the rules are code, pip, modules, programs")
        for name in ("code", "pip"):
            if not isinstance(data.get(name, False), bool):
                raise ValueError(f"{name} = {data[name]!r} is neither true nor false")  # noqa: TRY004  # a file's value
        modules = data.get("modules", MODULES)
        if not _is_texts(modules):
            raise ValueError(f"modules = {modules!r} is not a list of names")
        programs = data.get("programs", {})
        if not isinstance(programs, Mapping):
            raise ValueError('programs must be a table, such as [programs.make] with arguments = ["test"]')  # noqa: TRY004
        arguments_by_name = {name: _arguments(name, table) for name, table in programs.items()}
        return cls(data.get("code", False), data.get("pip", False), tuple(modules), arguments_by_name)

    @property
    def names(self) -> tuple[str, ...]:
        """The programs that may be run."""
        return (*(name for name in CHECKS if is_allowed(name, self)), *sorted(set(self.programs) - set(CHECKS)))


def _arguments(name: str, table: object) -> tuple[str, ...] | None:
    if not _NAME.fullmatch(name) or name in CHECKS:
        raise ValueError(
            f"'{name}' is not a valid name in [programs]: use a name without a path, other than {', '.join(CHECKS)}"
        )
    if not isinstance(table, Mapping) or set(table) != {"arguments"}:
        raise ValueError(f'[programs.{name}] must have one setting, `arguments`: "any", or a list of texts')
    arguments = table["arguments"]
    if arguments != "any" and not _is_texts(arguments):
        raise ValueError(f'[programs.{name}] arguments = {arguments!r} is neither "any" nor a list of texts')
    return None if arguments == "any" else tuple(arguments)


def _is_texts(value: object) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(each, str) for each in value)


@attrs.frozen
class WorkingFolder:
    """The folder in which a command runs: a folder of the workspace, relative to its root."""

    root: Path
    cwd: str = "."

    @property
    def folder(self) -> str:
        """The folder's path."""
        return os.path.normpath(self.root / self.cwd)

    def leads_out(self, text: str) -> bool:
        """Return whether a text, taken as a path, leads out of the workspace."""
        if text in _DEVICES or "://" in text or "\n" in text or len(text) > _MOST_PATH:
            return False
        if text.startswith("~"):
            return True
        path = os.path.normpath(os.path.join(self.folder, text))  # noqa: PTH118  # a path or any other text
        root = os.path.normpath(self.root)
        return not (_is_in(path, root) and _is_in(os.path.realpath(path), os.path.realpath(root)))

    def fault(self, arguments: Sequence[str]) -> str:
        """Return a fault for the first argument that leads out, including a path after an option or before a test's name."""
        return _first_out(arguments, self.leads_out)

    def plain_fault(self, arguments: Sequence[str]) -> str:
        """Return a fault for the first argument that is plainly a path and leads out. It is for the workspace's own code, whose arguments may be anything."""
        return _first_out(arguments, lambda text: _is_plainly_path(text) and self.leads_out(text))


def _first_out(arguments: Sequence[str], leads_out: Callable[[str], bool]) -> str:
    for argument in arguments:
        for text in dict.fromkeys((argument, argument.partition("=")[2], argument[2:] if argument[:1] == "-" else "")):
            if text and leads_out(text.partition("::")[0] or text):
                return f"'{argument[:200]}' leads out of the workspace; give a path relative to its root, or to `cwd`"
    return ""


def _is_plainly_path(text: str) -> bool:
    """Return whether a text is more likely a path than an operand, such as `/` and the `/4` of `-3/4`.

    The first folder of an absolute path must exist. The rest does not matter, because a refusal would reveal which files this machine has.
    """
    if text.startswith("~"):
        return text.startswith("~/")
    top = _normal(text).lstrip("/").partition("/")[0]
    return not text.startswith("/") or (top != "" and os.path.lexists(f"/{top}"))


def _is_in(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder.rstrip('/')}/")


def is_allowed(name: str, rules: Rules) -> bool:
    """Return whether a program of CHECKS may run at all."""
    return rules.pip or name not in {"pip", "pip3"}


def other_fault(name: str, arguments: Sequence[str], rules: Rules, place: WorkingFolder) -> str:
    """Return what is wrong with the arguments of a program from the configuration."""
    allowed_arguments = rules.programs[name]
    if allowed_arguments is None:
        return place.fault(arguments)
    known_arguments = [each for each in allowed_arguments if each]
    if not arguments:
        return (
            ""
            if len(known_arguments) < len(allowed_arguments) or not known_arguments
            else f"{name} needs one of these arguments: {', '.join(known_arguments)}"
        )
    wrong = [each for each in arguments if each not in known_arguments]
    if not wrong:
        return ""
    return f"{name} may not be run with '{wrong[0][:80]}'; allowed arguments: {', '.join(known_arguments) or 'none'}"


# -- Python -----------------------------------------------------------------------------------------------------------

_FLAGS, _WITH_VALUE, _SHOWS = frozenset("bBdEIOPqsSuv"), frozenset("WX"), frozenset("hV?")


@attrs.frozen
class PythonStart:
    """The start of Python: its own options; then a script, a module or code, '' for neither; then arguments."""

    options: tuple[str, ...] = ()
    kind: str = ""
    what: str = ""
    arguments: tuple[str, ...] = ()


def python_start(arguments: Sequence[str]) -> PythonStart:
    """Read Python's command line as Python does. `kind` is script, module, code, input, shows, none, or the unknown option."""
    options: list[str] = []
    rest = list(arguments)
    while rest:
        argument = rest.pop(0)
        if argument == "-":
            return PythonStart(tuple(options), "input")
        if not argument.startswith("-"):
            return PythonStart(tuple(options), "script", argument, tuple(rest))
        if argument in {"--version", "--help", "--help-all", "--help-env", "--help-xoptions"}:
            return PythonStart((*options, argument), "shows")
        for place, letter in enumerate(argument[1:], 2):
            if letter in "cm":
                if place > 2:  # noqa: PLR2004  # letters before it are options
                    options.append(argument[: place - 1])
                following = [argument[place:]] if argument[place:] else rest[:1]
                left = rest if argument[place:] else rest[1:]
                return PythonStart(
                    tuple(options), {"c": "code", "m": "module"}[letter], "".join(following), tuple(left)
                )
            if letter in _SHOWS:
                return PythonStart((*options, argument), "shows")
            if letter in _WITH_VALUE:
                options += [argument] if argument[place:] else [argument, *rest[:1]]
                rest = rest if argument[place:] else rest[1:]
                break
            if letter not in _FLAGS:
                return PythonStart(tuple(options), argument)
        else:
            options.append(argument)
    return PythonStart(tuple(options), "none")


_SCRIPT_WANTED = "give a script of the workspace, such as python main.py"


def _python_fault(arguments: Sequence[str], rules: Rules, place: WorkingFolder) -> str:
    start = python_start(arguments)
    if start.kind == "script" and _is_input(start.what, place):
        return f"'{start.what[:80]}' is python's standard input; {_SCRIPT_WANTED}"
    if start.kind == "script":
        return place.fault((start.what,)) or place.plain_fault(start.arguments)
    if start.kind == "module":
        return _module_fault(start, rules, place)
    if start.kind == "code" and not rules.code:
        return "python -c is not allowed; write the code to a file in the workspace, then run that"
    if start.kind in {"none", "input"}:
        return f"python without a script would wait for input; {_SCRIPT_WANTED}"
    if start.kind not in {"code", "shows"}:
        return f"python's option '{start.kind[:40]}' is not allowed; allowed: {' '.join(f'-{each}' for each in sorted(_FLAGS | _WITH_VALUE))} -m"
    return ""


def _is_input(path: str, place: WorkingFolder) -> bool:
    """Return whether a script is a device or a descriptor, which is not a file with code."""
    plain = _normal(path)
    return _INPUTS.fullmatch(plain) is not None and not _is_in(plain, os.path.normpath(place.root))


def _normal(path: str) -> str:
    """Return an absolute path in its shortest form, with one slash before it; another text unchanged."""
    return os.path.normpath(f"/{path.lstrip('/')}") if path.startswith("/") else path


def _module_fault(start: PythonStart, rules: Rules, place: WorkingFolder) -> str:
    module, arguments = start.what, start.arguments
    if module == "pip":
        return _pip_fault(arguments, rules, place) if rules.pip else "pip is switched off: use the installed packages"
    if module in rules.modules:
        return CHECKS[module](arguments, rules, place) if module in CHECKS else place.fault(arguments)
    if is_own(module, place):
        return place.plain_fault(arguments)
    if module in _RUNS_CODE:
        return f"python -m {module} runs code in its arguments, as python -c does, and is not allowed; write the code to a file in the workspace, then run that"
    return f"python -m {module[:80]} is not allowed; allowed: {', '.join(rules.modules)}, and modules of the workspace that are not also installed"


def is_own(module: str, place: WorkingFolder) -> bool:
    """Return whether a module is the workspace's own: it exists there, and does not hide one of Python's or of an installed package."""
    top = module.partition(".")[0]
    if not top.isidentifier() or top in sys.stdlib_module_names or top in sys.builtin_module_names:
        return False
    there = Path(place.folder, top).is_dir() or Path(place.folder, f"{top}.py").is_file()
    return there and PathFinder.find_spec(top, _package_folders(place)) is None


def _package_folders(place: WorkingFolder) -> list[str]:
    """Return the folders of installed packages; one in the workspace is the workspace's own."""
    folders = [entry for entry in sys.path if Path(entry).name in {"site-packages", "dist-packages"}]
    return [folder for folder in folders if not _is_in(os.path.realpath(folder), os.path.realpath(place.root))]


# -- pytest, ruff, pip ------------------------------------------------------------------------------------------------

_PYTEST_REFUSED = {
    "-o": "settings are read from the workspace's own configuration file",
    "--override-ini": "settings are read from the workspace's own configuration file",
    "--basetemp": "pytest would empty that folder; leave the option out, because tests have a folder of their own",
    "--pdb": "nobody can type into a debugger; read the traceback",
    "--trace": "nobody can type into a debugger; read the traceback",
    "--pastebin": "output must not leave this machine",
    "--tx": "tests run only on this machine",
    "--rsyncdir": "tests run only on this machine",
    "--looponfail": "it never ends; run pytest once",
    "-f": "it never ends; run pytest once",
}
_PYTEST_VALUES = frozenset("kmrpconW")


def _pytest_fault(arguments: Sequence[str], _: Rules, place: WorkingFolder) -> str:
    for name, value in _options(arguments, _PYTEST_VALUES, frozenset({"--override-ini", "-p"})):
        if name in _PYTEST_REFUSED:
            return f"pytest's {name} is not allowed: {_PYTEST_REFUSED[name]}"
        if name == "-p" and not value.startswith("no:"):
            return f"pytest's -p loads a plugin, '{value[:60]}', and is not allowed; installed plugins are loaded anyway, and `-p no:NAME` leaves one out"
        if name.startswith("@"):
            return "pytest may not read its arguments from a file; give them here"
        if name == "-c" and place.leads_out(value):
            return f"'{value[:200]}' leads out of the workspace; give a path relative to its root, or to `cwd`"
    return place.fault(_without_expressions(arguments))


def _without_expressions(arguments: Sequence[str]) -> list[str]:
    """Return the arguments without expressions, which follow `-k` and `-m` and are not paths."""
    return [each for before, each in zip(("", *arguments), arguments, strict=False) if before not in {"-k", "-m"}]


_RUFF = ("check", "format", "rule", "linter", "version", "--version", "help", "--help")
_RUFF_VALUES = frozenset("o")


def _ruff_fault(arguments: Sequence[str], _: Rules, place: WorkingFolder) -> str:
    if not arguments or arguments[0] not in _RUFF:
        return f"ruff needs one of these as its first argument: {', '.join(_RUFF)}; for example: ruff check ."
    for name, value in _options(arguments[1:], _RUFF_VALUES, frozenset({"--config"})):
        if name in {"-w", "--watch"}:
            return "ruff's --watch never ends; run ruff once"
        if name == "--config" and ("=" in value or place.leads_out(value)):
            return (
                "ruff's --config must name a file of the workspace; write settings into its pyproject.toml or ruff.toml"
            )
    return place.fault(arguments)


_REQUIREMENT = re.compile(r"[A-Za-z0-9][\w.-]*(\[[\w,.-]+\])?(\s*(==|~=|>=|<=|!=|>|<)\s*[\w.*+!-]+,?)*")
_ARCHIVES = (".zip", ".whl", ".tar", ".gz", ".tgz", ".bz2", ".xz", ".tbz", ".txz", ".tlz", ".lz", ".lzma")
_PIP_FLAGS = frozenset(
    {"-q", "--quiet", "-v", "--verbose", "-U", "--upgrade", "--no-deps", "--prefer-binary", "--no-index"}
)
_PIP_VALUES = frozenset({"--find-links", "--only-binary"})


def _pip_fault(arguments: Sequence[str], _: Rules, place: WorkingFolder) -> str:
    if not arguments or arguments[0] != "install":
        return "pip may only install packages: pip install NAME, or pip install NAME==VERSION"
    for name, value in _options(arguments[1:], frozenset("f"), _PIP_VALUES):
        is_folder = name in {"-f", "--find-links"} and "://" not in value
        is_flag = (name in _PIP_FLAGS and not value) or (name == "--only-binary" and value == ":all:")
        if name.startswith("-") and not (is_folder or is_flag):
            return f"pip's option '{name[:60]}' is not allowed; allowed: -U, -q, --no-deps, --no-index, --find-links FOLDER"
        if not name.startswith("-") and (not _REQUIREMENT.fullmatch(name) or name.lower().endswith(_ARCHIVES)):
            return f"pip installs packages by name only, not '{name[:80]}': pip install NAME, or NAME==VERSION"
    return place.fault(arguments)


def _options(arguments: Sequence[str], letters: frozenset[str], long: frozenset[str]) -> Iterator[tuple[str, str]]:
    """Yield options with their values, each letter of a cluster by itself, and other arguments as names.

    `letters` and `long` are the options whose value may be the next argument.
    """
    rest = list(arguments)
    while rest:
        argument = rest.pop(0)
        if argument.startswith("--"):
            name, _, value = argument.partition("=")
            yield name, rest.pop(0) if name in long and "=" not in argument and rest else value
        elif argument.startswith("-") and len(argument) > 1:
            for place, letter in enumerate(argument[1:], 2):
                if letter in letters:
                    yield f"-{letter}", argument[place:].removeprefix("=") or (rest.pop(0) if rest else "")
                    break
                yield f"-{letter}", ""
        else:
            yield argument, ""


#: The programs with rules of their own.
CHECKS: dict[str, Callable[[Sequence[str], Rules, WorkingFolder], str]] = {
    "python": _python_fault, "python3": _python_fault, "pytest": _pytest_fault, "py.test": _pytest_fault, "ruff": _ruff_fault,
    "pip": _pip_fault, "pip3": _pip_fault,
}  # fmt: skip


#: The files that programs read by themselves in their folder.
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
#: Options with the folder: `make -C DIR`, `npm --prefix DIR`.
_FOLDER_OPTIONS = frozenset({"-C", "--directory", "--prefix", "--cwd", "--dir"})
_TESTS_READ = ("conftest.py", "__init__.py", "pytest.ini", ".pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg")
_IN_FOLDER = ("__main__.py", "package.json", "index.js", "index.mjs", "index.cjs")
#: The most files and bytes of code that are read in a folder of tests.
MOST_FILES, MOST_BYTES = 10_000, 100_000_000
_PIECE_BYTES = 1 << 20


def executed_files(argv: Sequence[str], root: Path, cwd: str) -> dict[str, str]:
    """Return digests of the workspace's files that a command executes, by path; a folder of tests has one digest for all its Python files (`tests/*.py`)."""
    cache = _DigestCache(os.path.realpath(root), posixpath.join(os.path.realpath(root), cwd))
    name, *arguments = argv
    for word in argv:
        for text in filter(None, (word, word.partition("=")[2], word.partition("::")[0], _of_option(word))):
            cache.file(text)
            for each in _IN_FOLDER:
                cache.file(posixpath.join(text, each))
    for folder in (".", *_folders(arguments)):
        for each in BUILD_FILES.get(name, ()):
            cache.file(posixpath.join(folder, each))
    start = python_start(arguments) if name in {"python", "python3"} else PythonStart()
    if start.kind == "module":
        for each in _of_module(start.what):
            cache.file(each)
    if name in {"pytest", "py.test"} or (start.kind == "module" and start.what in {"pytest", "unittest"}):
        cache.tests(arguments if start.kind != "module" else start.arguments)
    return cache.digests


def _of_option(word: str) -> str:
    """Return the text after the letter of an option, as in `-fbuild.mk`."""
    return word[2:] if word[:1] == "-" and word[:2] != "--" else ""


def _folders(arguments: Sequence[str]) -> Iterator[str]:
    """Yield the folders that options name as the folder to run in."""
    for before, word in zip(("", *arguments), arguments, strict=False):
        if before in _FOLDER_OPTIONS:
            yield word
        elif word.partition("=")[0] in _FOLDER_OPTIONS:
            yield word.partition("=")[2]
        elif word.startswith("-C"):
            yield word[2:]


def _of_module(name: str) -> Iterator[str]:
    """Yield the files that `python -m NAME` executes: those of the packages above it, and its own."""
    parts = name.split(".")
    for depth in range(1, len(parts) + 1):
        yield "/".join([*parts[:depth], "__init__.py"])
    yield f"{'/'.join(parts)}.py"
    yield "/".join([*parts, "__main__.py"])


class _DigestCache:
    """The digests so far, in a workspace, for a command that runs in `folder`; both are real paths."""

    def __init__(self, root: str, folder: str) -> None:
        self._root, self._folder = root, folder
        self.digests: dict[str, str] = {}
        self._left_files, self._left_bytes = MOST_FILES, MOST_BYTES

    def file(self, text: str) -> None:
        """Add a file, also through a link; a text that does not name a file of the workspace adds nothing."""
        path = self._inside(text)
        if path is None:
            return
        name = posixpath.relpath(posixpath.normpath(posixpath.join(self._folder, text)), self._root)
        if name not in self.digests and (digest := _digest(path)):
            self.digests[name] = digest

    def tests(self, arguments: Sequence[str]) -> None:
        """Add the Python files in the folders of the named tests, also of dotted names, and the configuration in the folders above them."""
        words = [word.partition("::")[0] for word in arguments if not word.startswith("-")]
        words += [word.rpartition(".")[0].replace(".", "/") for word in words if "/" not in word]
        for word in words:
            for each in _of_module(word) if word.replace(".", "").isidentifier() else ():
                self.file(each)
        places = [word for word in words if word and self._inside(word) is not None] or ["."]
        for place in dict.fromkeys(places):
            path = self._inside(place)
            if path is not None and os.path.isdir(path):  # noqa: PTH112  (a text that may not be a path)
                self._code_in(path)
            for above in self._above(place):
                for each in _TESTS_READ:
                    self.file(posixpath.join(above, each))

    def _above(self, place: str) -> Iterator[str]:
        """Yield the folders from that of a file up to the workspace."""
        path = posixpath.normpath(posixpath.join(self._folder, place))
        while path == self._root or path.startswith(f"{self._root}/"):
            yield path
            path = posixpath.dirname(path)

    def _code_in(self, folder: str) -> None:
        """Add the Python files beneath a folder as one digest."""
        name = posixpath.relpath(folder, self._root)
        key = posixpath.normpath(f"{name}/*.py")
        if key in self.digests:
            return
        whole = sha256()
        for path in _python_files(folder):
            if self._left_files <= 0:
                break
            size = os.path.getsize(path) if os.path.exists(path) else 0  # noqa: PTH110, PTH202  (of many files)
            self._left_files, self._left_bytes = self._left_files - 1, self._left_bytes - size
            digest = _digest(path) if self._left_bytes > 0 else ""
            whole.update(
                f"{posixpath.relpath(path, folder)}\0{digest or _stamp(path)}\n".encode(errors="surrogateescape")
            )
        self.digests[key] = whole.hexdigest()

    def _inside(self, text: str) -> str | None:
        """Return the real path of a text, or None when it is not in the workspace."""
        try:
            path = os.path.realpath(posixpath.join(self._folder, text))
            return path if path == self._root or path.startswith(f"{self._root}/") else None
        except (OSError, ValueError):  # not a path
            return None


def _python_files(folder: str) -> Iterator[str]:
    for above, folders, files in os.walk(folder):
        folders[:] = sorted(each for each in folders if each not in TOOL_FOLDERS)
        yield from (posixpath.join(above, each) for each in sorted(files) if each.endswith(".py"))


def _digest(path: str) -> str:
    """Return the SHA-256 of a regular file, size and time of change for a very large one, and an empty text for anything else."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return ""
    with ExitStack() as stack:
        stack.callback(os.close, descriptor)
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode):
            return ""
        if about.st_size > MOST_BYTES:
            return f"{about.st_size} bytes, changed at {about.st_mtime_ns}"
        digest = sha256()
        while piece := os.read(descriptor, _PIECE_BYTES):
            digest.update(piece)
        return digest.hexdigest()


def _stamp(path: str) -> str:
    try:
        about = os.stat(path)  # noqa: PTH116  (of many files)
    except OSError:
        return "gone"
    return f"{about.st_size} bytes, changed at {about.st_mtime_ns}"
