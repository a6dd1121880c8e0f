"""The pytest plugin `dsa`: machine documents are test files, and `--machine-coverage` says what tests take of them.

A `.md` file is collected when its text, outside of fences, has a Transitions or Steps table with our columns, or is a spec
(`Machine: ..` with Properties or Scenarios). Its items: `check` (no errors, as `dsa check` finds them), each property, each scenario. The
ini option `dsa_machines = false` turns that off; `-p no:dsa` turns off all. Only this file is imported until a machine
document is found.
"""

import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from dsa.testing.machine_items import MachineCoverage

_PLUGIN = "dsa-machine-coverage"
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_HEADING = re.compile(r" {0,3}##\s+`?(\w+)")
_STEP_COLUMNS = frozenset({"requires", "generator", "guard", "uses", "rmax", "task"})


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("dsa", "machine documents")
    group.addoption(
        "--machine-coverage",
        action="store_true",
        help="report which rows, states and verdicts of the machines are covered by tests",
    )
    group.addoption(
        "--machine-coverage-min",
        type=float,
        metavar="PERCENT",
        help="fail when scenarios and tests together take less than PERCENT of the rows of a machine; implies --machine-coverage",
    )
    parser.addini("dsa_machines", "collect machine documents (*.md) as tests", type="bool", default=True)


def pytest_configure(config: pytest.Config) -> None:
    """Register the coverage, where an option asks for it."""
    least = config.getoption("--machine-coverage-min")
    if config.getoption("--machine-coverage") or least is not None:
        # Imported here, so that it costs nothing without the option.
        module = importlib.import_module("dsa.testing.machine_items")
        config.pluginmanager.register(module.MachineCoverage(config, least), _PLUGIN)


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Collect a machine document."""
    if file_path.suffix != ".md" or not parent.config.getini("dsa_machines") or not is_machine_document(file_path):
        return None
    items = importlib.import_module("dsa.testing.machine_items")  # the reader of documents: only where there is one
    collector: Any = items.MachineFile.from_parent(parent, path=file_path)
    coverage: MachineCoverage | None = parent.config.pluginmanager.get_plugin(_PLUGIN)
    if coverage is not None:
        coverage.documents.append(collector.relative_path)
    return collector  # type: ignore[no-any-return]  # a MachineFile


def is_machine_document(path: Path) -> bool:
    """Return whether a file's text is a machine or a spec; False when it cannot be read."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError):
        return False
    section, is_spec = "", False
    for line in _outside_fences(text):
        if heading := _HEADING.match(line):
            section = heading[1].lower()
            if is_spec and section in {"properties", "scenario"}:
                return True
        elif line.startswith("Machine:"):
            is_spec = True
        elif line.lstrip().startswith("|"):
            columns = {cell.strip(" `\t").lower() for cell in line.strip().strip("|").split("|")}
            if section == "transitions" and {"source", "event", "target"} <= columns:
                return True
            if section == "steps" and "step" in columns and columns & _STEP_COLUMNS:
                return True
    return False


def _outside_fences(text: str) -> Iterator[str]:
    """Yield the lines outside of fenced blocks: a README may show a machine without being one."""
    fence = ""
    for line in text.splitlines():
        marker = _FENCE.match(line)
        if not fence:
            fence = marker[1] if marker else ""
            if not fence:
                yield line
        elif marker and marker[1].startswith(fence) and not line.strip().strip(fence[0]):
            fence = ""
