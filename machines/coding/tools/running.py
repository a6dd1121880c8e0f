"""Run a command that the rules allow: in the sandbox, where the workspace can be written, and nothing else of this machine is there.

Takes arguments, gives `Ran`. Programs are found outside of the workspace: one of the same name that was put there is never run, and what it
puts beside Python's own modules does not hide them from `python -m` and pytest. Rules are judged again here.
"""

import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import attrs

import dsa
import machines
from dsa.edge.sandbox.commands import BOUNDS, KEPT_FROM, Ended, How, Stop, probed, run_command
from dsa.edge.sandbox.features import SandboxError
from dsa.edge.sandbox.hosts import serving
from dsa.edge.sandbox.model import Bounds
from dsa.edge.sandbox.visible import Visible
from dsa.edge.sandbox.wrapping import Command, shown
from machines.coding.tools import output
from machines.coding.tools.commands import fault
from machines.coding.tools.errors import ToolError
from machines.coding.tools.programs import Rules, python_start
from machines.coding.tools.protecting import Protected

#: Imports the program before the folder in which it runs is looked at; the folder then comes after Python's own modules.
_AS_MODULE = """\
import importlib.util, runpy, sys
name, top = sys.argv[1], sys.argv[1].partition(".")[0]
del sys.argv[1]
try:
    importlib.import_module(top)
except ModuleNotFoundError as error:
    if error.name != top:
        raise
library = sys.modules["os"].__file__.rpartition("/")[0]
own = [place for place, path in enumerate(sys.path) if path.startswith(library) and not path.endswith("-packages")]
sys.path.insert(max(own) + 1, sys.argv.pop(1))
if importlib.util.find_spec(top) is None:
    sys.exit(f"python: there is no module named {name}")
runpy.run_module(name, run_name="__main__", alter_sys=True)
"""
_SYSTEM_PATH = ("/usr/local/bin", "/usr/bin", "/bin", "/usr/local/sbin", "/usr/sbin", "/sbin")
_CERTIFICATES = ("/etc/ssl", "/etc/pki", "/etc/ca-certificates")
_PACKAGES = ".packages"  # where pip installs to, in the workspace
_PIP = (
    "--isolated", "--no-compile", "--only-binary", ":all:", "--no-cache-dir", "--disable-pip-version-check", "--no-input",
    "--root-user-action", "ignore",
)  # fmt: skip
_CACHE_OPTIONS = (
    "--lf", "--ff", "--nf", "--sw", "--last-failed", "--failed-first", "--new-first", "--stepwise", "--cache",
)  # fmt: skip
_ENVIRONMENT = {
    "HOME": "/tmp", "TMPDIR": "/tmp", "USER": "sandbox", "LOGNAME": "sandbox", "LANG": "C.UTF-8", "TERM": "dumb", "NO_COLOR": "1",  # noqa: S108  # its own
    "PYTHONDONTWRITEBYTECODE": "1", "PYTHONNOUSERSITE": "1", "PYTHONUNBUFFERED": "1", "PIP_CONFIG_FILE": "/dev/null", "RUFF_NO_CACHE": "true",
    "MYPY_CACHE_DIR": "/tmp/mypy", "COVERAGE_FILE": "/tmp/coverage",  # noqa: S108
}  # fmt: skip


@attrs.frozen
class Ran:
    """How a command ended, and what it printed: output and errors in their order, `omitted` characters and bytes of it left out.

    `code` is its exit status, or None where a signal (`signal`, as SIGTERM) or the sandbox (`ended`) ended it. `removed` names what it had
    made of what is protected or no diff shows, `changed` folders of installed programs that it has changed. `features` are what it was kept from; none on the rung `none`.
    """

    code: int | None
    signal: str
    output: str
    omitted: int
    seconds: float
    ended: How
    removed: tuple[str, ...]
    changed: tuple[str, ...]
    rung: str
    features: frozenset[str]

    @property
    def timed_out(self) -> bool:
        """Whether it was ended at its time limit."""
        return self.ended == "timeout"


def run(
    argv: Sequence[str], *, root: Path, cwd: str = ".", stdin: str | None = None, timeout_s: float = 60.0, protected: Sequence[str] = (),
    network: Sequence[str] = (), rules: Rules | None = None, redact: Callable[[str], str] = str, unconfined: bool = False,
    stop: Stop | None = None, bounds: Bounds = BOUNDS,
) -> Ran:  # fmt: skip
    """Run a command in a workspace, at most `timeout_s` long; `network` names the hosts that it may reach, as NAME or NAME:PORT.

    `protected` are patterns of what it may not write, as for `Workspace`.

    Raises ToolError `refused` by the rules, `bad_cwd`, `no_program`, and `no_sandbox` where this machine cannot confine it; with `unconfined`
    it is then run all the same, with this user's rights. Whatever was started is gone when this returns or raises.
    """
    rules, root = rules or Rules(), Path(os.path.realpath(root))
    folder = _folder(root, cwd)
    if why := fault(argv, rules, root, cwd):
        raise ToolError("refused", why)
    command = _resolved(argv, root, folder)
    if not unconfined and (lacking := probed().fault):
        raise ToolError("no_sandbox", f"no command can be run here: the sandbox for commands is not there: {lacking}")
    before = Protected(root, protected)
    try:
        with serving(network) if network and not unconfined else _nothing() as hosts:
            asked = Command(
                command, str(root), str(folder), _environment(root), _visible(root, with_network=bool(hosts)), before.kept,
                (stdin or "").encode(), hosts, confined=not unconfined,
            )  # fmt: skip
            ended = run_command(asked, attrs.evolve(bounds, timeout_s=timeout_s), stopped=stop)
    except SandboxError as error:
        raise ToolError("no_sandbox", f"no command can be run here: {error}") from error
    finally:
        removed = before.restored()
    kept_from = frozenset[str]() if unconfined else KEPT_FROM - ({"no network"} if network else set())
    return _ran(ended, (removed, before.changed), redact, kept_from)


def _ran(
    ended: Ended, left: tuple[tuple[str, ...], tuple[str, ...]], redact: Callable[[str], str], features: frozenset[str]
) -> Ran:
    text, omitted = output.shown(ended.head, ended.tail, ended.bytes_between, redact)
    status = ended.status
    name = signal.Signals(-status).name if status is not None and -status in set(signal.Signals) else ""
    name = f"signal {-status}" if not name and status is not None and status < 0 else name
    code = status if status is not None and status >= 0 else None
    rung = "bubblewrap" if features else "none"
    return Ran(code, name, text, omitted, ended.seconds, ended.how, *left, rung, features)


@contextmanager
def _nothing() -> Iterator[str]:
    yield ""


def _folder(root: Path, cwd: str) -> Path:
    """Give the folder to run in. Raises ToolError `bad_cwd`."""
    if "\x00" in cwd:
        raise ToolError("bad_cwd", "`cwd` has a character that no path has (NUL)")
    if root.parent == root or not root.is_dir():
        raise ValueError(f"{root} is no folder that can be a workspace")
    folder = Path(os.path.realpath(root / cwd))
    if not folder.is_relative_to(root):
        raise ToolError(
            "bad_cwd", f"`cwd` = '{cwd[:200]}' leads out of the workspace; give a folder relative to its root"
        )
    if not os.path.isdir(folder):  # noqa: PTH112  (that of a Path raises for a name that is too long)
        raise ToolError("bad_cwd", f"`cwd` = '{cwd[:200]}' is no folder of the workspace")
    return folder


# -- programs ---------------------------------------------------------------------------------------------------------


def python() -> str:
    """Give the path of this Python, in its virtual environment if it has one."""
    return str(Path(os.path.realpath(Path(sys.executable).parent), Path(sys.executable).name))


def _packages(root: Path) -> list[str]:
    """Give the folders of packages that this Python finds only because it was told to."""
    own = (os.path.realpath(sys.prefix), os.path.realpath(sys.base_prefix))
    parent = str(Path(dsa.__file__).parent.parent)
    ours = [parent] if parent in os.environ.get("PYTHONPATH", "").split(os.pathsep) else []
    known = [os.path.realpath(path) for path in sys.path if Path(path).name in {"site-packages", "dist-packages"}]
    told = [path for path in known if not any(Path(path).is_relative_to(prefix) for prefix in own)]
    return [*dict.fromkeys((*told, *ours)), *([str(root / _PACKAGES)] if (root / _PACKAGES).is_dir() else [])]


def _path(root: Path) -> list[str]:
    """Give the folders in which programs are found: this Python's and the system's, and none that the workspace could fill."""
    beside = [str(Path(path).parents[2] / "bin") for path in _packages(root) if Path(path).name == "site-packages"]
    folders = dict.fromkeys((str(Path(python()).parent), *beside, *_SYSTEM_PATH))
    own = os.path.realpath(sys.prefix)
    return [
        each
        for each in folders
        if not Path(os.path.realpath(each)).is_relative_to(root) or Path(each).is_relative_to(own)
    ]


def _resolved(argv: Sequence[str], root: Path, folder: Path) -> tuple[str, ...]:
    """Give what is really started. Raises ToolError `no_program`."""
    name, *arguments = argv
    if name in {"pytest", "py.test", "pip", "pip3"}:
        return _as_module((), {"py": "pytest", "pi": "pip"}[name[:2]], arguments, root, folder)
    if name in {"python", "python3"}:
        start = python_start(arguments)
        if start.kind == "module" and start.what != "ruff":
            return _as_module(start.options, start.what, start.arguments, root, folder)
        if start.kind != "module":
            return (python(), "-s", *arguments)
        name, arguments = "ruff", list(start.arguments)
    found = _found(name, root)
    if found is None:
        raise ToolError("no_program", f"{name} is allowed, but not installed on this machine")
    return (found, *arguments)


def _found(name: str, root: Path) -> str | None:
    return shutil.which(name, path=os.pathsep.join(_path(root)))


def not_installed(rules: Rules, root: Path) -> tuple[str, ...]:
    """Name the programs that the settings allow and this machine does not have."""
    return tuple(name for name in rules.programs if _found(name, root) is None)


def _as_module(
    options: Sequence[str], module: str, arguments: Sequence[str], root: Path, folder: Path
) -> tuple[str, ...]:
    """Give the command that runs a module, with what pytest and pip are told in addition."""
    more: list[str] = []
    if module == "pytest" and not any(each.startswith(_CACHE_OPTIONS) for each in arguments):
        more = ["-p", "no:cacheprovider"]
    elif module == "pip":
        arguments = [*arguments, *_PIP, "--target", str(root / _PACKAGES)]
    return (python(), "-P", "-s", *options, "-c", _AS_MODULE, module, str(folder), *more, *arguments)


def _environment(root: Path) -> Mapping[str, str]:
    """Give all that a command gets of an environment."""
    packages = _packages(root)
    return {
        **_ENVIRONMENT,
        "PATH": os.pathsep.join(_path(root)),
        **({"PYTHONPATH": os.pathsep.join(packages)} if packages else {}),
    }


def _visible(root: Path, *, with_network: bool) -> Visible:
    """Give what a command sees of this machine."""
    ours = [str(Path(package.__file__ or "").parent) for package in (dsa, machines)]  # pytest loads a plugin of ours
    parent = str(Path(ours[0]).parent)
    packages = [path for path in (*_packages(root), *ours) if path != parent and not Path(path).is_relative_to(root)]
    beside = [folder for folder in _path(root) if not folder.startswith(("/usr/", "/bin", "/sbin"))]
    certificates = _CERTIFICATES if with_network else ()
    paths = ("/usr", "/bin", "/sbin", "/etc/alternatives", sys.prefix, python(), *packages, *beside, *certificates)
    real = [os.path.realpath(Path(python()).resolve().parent)]
    return shown(*(path for path in (*paths, *real) if Path(path).exists()))
