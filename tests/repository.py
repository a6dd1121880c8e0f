"""The machine documents of this repository, for tests that must hold for every one of them."""

from functools import cache
from pathlib import Path

from dsa.edge.document_files import shipped_documents
from dsa.lang import read_machine
from dsa.machine import Machine

ROOT = Path(__file__).parents[1]


def shipped_machines() -> dict[str, Machine]:
    """Return the machines that are shipped, by the name that `dsa run` takes."""
    return _readable({name: path for name, path in shipped_documents().items() if not name.startswith("specs/")})


def all_machines() -> dict[str, Machine]:
    """Return every machine in the repository: those shipped, and those of the conformance cases."""
    cases = {path.stem: path for path in sorted((ROOT / "specs" / "conformance").glob("*.md"))}
    return shipped_machines() | _readable(cases)


def _readable(paths: dict[str, Path]) -> dict[str, Machine]:
    machines = {name: machine_in(path) for name, path in paths.items()}
    return {name: machine for name, machine in machines.items() if machine is not None}


@cache
def machine_in(path: Path) -> Machine | None:
    """Return the machine of a document, the same one for each test, or None where it is not valid."""
    return read_machine(path.read_text(encoding="utf-8"), path.name).machine


#: Values at which machines are looked at that have too many configurations at their defaults.
SMALL = {name: {"max_rounds": 2, "max_calls": 2, "max_refusals": 1, "side": 2} for name in ("chat", "specs/chat")} | {
    name: {"max_rounds": 2, "max_turns": 1, "max_calls": 2} for name in ("coding", "specs/coding")
}
