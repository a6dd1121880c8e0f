"""The folder in which runs are kept, and what people find in it.

`DIR/ledger.db` is what runs go on from, `DIR/artifacts.git` has what was generated. `DIR/<run id>/` is a copy to look at: `machine.md` (the text
that runs), `ledger.jsonl` (one entry a line, written once it is durable), a file per artifact named after step, attempt and
verdict, at the end the final code and the diagram. It is written as the run goes, and anew when the run is taken up again.
"""

import re
from contextlib import suppress
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from secrets import token_hex
from typing import Self, TextIO

from dsa.edge.git import GitArtifacts
from dsa.edge.stores.sqlite import SqliteStore
from dsa.errors import DocumentError
from dsa.guards.code import extract_code
from dsa.machine import Machine
from dsa.runtime.artifacts import ArtifactStore
from dsa.runtime.content import Artifact
from dsa.runtime.journal import StoreError
from dsa.runtime.ledger import ArtifactEntry, Entry, VerdictEntry, dump_line
from dsa.runtime.run import Run

DEFAULT_RUNS = ".dsa"
#: Stands in the id of a run that is a part of another one, between that one's id and its effect: `20260131T120000-tale-9f3a1c+3.1`.
PART_OF = "+"
#: Why an effect has failed for which such a run waits for a person.
PART_WAITS = "waiting"
LEDGER, ARTIFACTS = "ledger.db", "artifacts.git"
_CODE_SUFFIX = ".py"
_CODE_GUARDS = frozenset({"syntax", "cases", "pytest", "tests"})
_OUTCOME_WORDS = {"passed": "passed", "failed": "rejected", "fatal": "fatal"}
_LONGEST_NAME = 80  # a file's name has 255 bytes at most; those of machines and steps have no bound
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


def new_run_id(name: str, *, now: datetime | None = None, entropy: str | None = None) -> str:
    """Make a run id of a machine's or a policy's name, unique, with the second it is made in: `20260131T120000-dual_state-9f3a1c`."""
    moment = (now or datetime.now(UTC)).strftime("%Y%m%dT%H%M%S")
    return f"{moment}-{_safe(name)}-{entropy or token_hex(3)}"


def _safe(name: str) -> str:
    """Give a name as part of a file's name; long ones are cut, and stay different."""
    safe = _UNSAFE.sub("_", name)
    return safe if len(safe) <= _LONGEST_NAME else f"{safe[:_LONGEST_NAME]}~{sha256(safe.encode()).hexdigest()[:8]}"


def open_store(root: Path, *, must_exist: bool = False) -> SqliteStore:
    """Open the store of a folder of runs, or make it. Raises DocumentError."""
    if must_exist and not (root / LEDGER).is_file():
        raise DocumentError(
            str(root), f"no run is kept here; `dsa run FILE` keeps its run in {DEFAULT_RUNS}, or where --runs DIR says"
        )
    try:
        _keep_from_git(root)
        return SqliteStore(root / LEDGER)
    except StoreError as fault:
        raise DocumentError(str(root), str(fault)) from fault


def _keep_from_git(root: Path) -> None:
    """Have git pass over the folder that nobody has named, where it is made. A folder that cannot be made is told by whoever needs it."""
    if root.name == DEFAULT_RUNS and not root.exists():
        with suppress(OSError):
            root.mkdir(parents=True)
            (root / ".gitignore").write_text("*\n", encoding="utf-8")


def open_artifacts(root: Path, run_id: str) -> ArtifactStore:
    """Open what a run generated, or make room for it. Raises ArtifactStoreError."""
    return GitArtifacts(root / ARTIFACTS, run_id)


class RunDirectory:
    """The directory of one run. Pass `observe` to the driver; use it as a context manager to have it closed.

    Raises DocumentError when it cannot be made.
    """

    def __init__(self, root: Path, run_id: str, machine: Machine, text: str, artifacts: ArtifactStore) -> None:
        self.path = root / run_id
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            (self.path / "machine.md").write_bytes(text.encode("utf-8"))
            self._ledger: TextIO = (self.path / "ledger.jsonl").open("w", encoding="utf-8", newline="\n")
        except OSError as fault:
            raise DocumentError(str(root), f"no run can be kept here: {fault.strerror or fault}") from fault
        self._artifacts = artifacts
        self._suffix = _suffix(machine)
        self._files: dict[str, Path] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._ledger.close()

    def observe(self, entry: Entry) -> None:
        """Write an entry, and the artifact that it is about."""
        self._ledger.write(dump_line(entry) + "\n")
        self._ledger.flush()
        if isinstance(entry, ArtifactEntry):
            path = self.path / f"{_safe(entry.step)}-{entry.attempt}{self._suffix}"
            _write(path, self._artifacts.get_artifact(entry.artifact_id).content)
            self._files[entry.artifact_id] = path
        elif isinstance(entry, VerdictEntry) and entry.artifact_id in self._files:
            path = self._files[entry.artifact_id]
            word = _OUTCOME_WORDS[entry.outcome]
            stem = f"{_safe(entry.step)}-{entry.attempt}-{word}"
            self._files[entry.artifact_id] = path.rename(path.with_name(stem + self._suffix))
            if entry.feedback:
                _write(path.with_name(f"{stem}.feedback.txt"), entry.feedback + "\n")

    def write_final(self, run: Run) -> Path | None:
        """Write what the workflow made, one file; None when no step has passed."""
        accepted = accepted_artifacts(run, self._artifacts)
        if not accepted:
            return None
        path = self.path / f"final{self._suffix}"
        _write(path, final_text(accepted, code=self._suffix == _CODE_SUFFIX))
        return path

    def write_diagram(self, svg: str) -> Path:
        """Write the machine's diagram."""
        path = self.path / "diagram.svg"
        path.write_text(svg, encoding="utf-8")
        return path


def accepted_artifacts(run: Run, artifacts: ArtifactStore) -> list[Artifact]:
    """Give the finalised artifact of each step, in the order of the workflow."""
    order = [step.name for step in run.machine.steps]
    names = sorted(run.steps, key=lambda name: order.index(name) if name in order else len(order))
    accepted = (run.steps[name].accepted for name in names)
    return [artifacts.get_artifact(found) for found in accepted if found is not None]


def final_text(accepted: list[Artifact], *, code: bool) -> str:
    """Put the finalised artifacts together; with several, each under a comment that says what it is.

    Of `code` only what the guards saw is taken, not what the model said around it; the artifacts keep everything.
    """
    texts = [extract_code(artifact.content) if code else artifact.content for artifact in accepted]
    if len(accepted) == 1:
        return texts[0].strip() + "\n"
    titled = zip(accepted, texts, strict=True)
    return "\n\n".join(f"# {a.step}, attempt {a.version}\n{text.strip()}\n" for a, text in titled)


def _suffix(machine: Machine) -> str:
    kinds = {guard for step in machine.steps for guard in step.guards}
    kinds |= {guard.kind or guard.name for guard in machine.guards}
    return _CODE_SUFFIX if kinds & _CODE_GUARDS or machine.cases else ".txt"


def _write(path: Path, content: str) -> None:
    path.write_bytes(content.encode("utf-8", "surrogatepass"))
