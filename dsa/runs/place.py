"""The place where runs are kept: a folder with `ledger.db` and `artifacts.git`, memory, or a Temporal server, each as people write it. Stores are opened only here.

Runs continue from `DIR/ledger.db`; `DIR/artifacts.git` has what they generated. `DIR/<run id>/` is a copy for people: `machine.md` (the text of the
running machine), a file per artifact named after step, attempt and verdict, and, when the run rests, a file per step that has passed, the result, and
the diagram. It is written while the run goes on, and again when the run is resumed.
"""

import importlib
import json
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache, partial
from hashlib import sha256
from pathlib import Path
from secrets import token_hex
from typing import Any, cast

import attrs

from dsa.edge.stores.memory_store import MemoryStore
from dsa.edge.stores.sqlite_store import SqliteStore
from dsa.edge.stores.store_file import this_process
from dsa.errors import DocumentError, ParameterError
from dsa.guards.code import extract_code, extract_fenced, syntax_fault
from dsa.machine import Machine, step_names
from dsa.runtime.artifacts import ArtifactStore, MemoryArtifacts
from dsa.runtime.content import Artifact
from dsa.runtime.ledger import ArtifactEntry, Entry, VerdictEntry
from dsa.runtime.run import Run
from dsa.runtime.run_store import Journal, RunStore, StoreError, Summary

DEFAULT_RUNS, MEMORY = ".dsa", "memory:"
#: The beginning of the address of a Temporal server. A path made from it has only one slash.
SERVER = "temporal:/"
LEDGER, ARTIFACTS = "ledger.db", "artifacts.git"
#: The separator in the id of a part, between the whole's id and its effect: `20260131T120000-tale-9f3a1c44e0b2+3.1`.
PART_OF = "+"


class _OnDemand:
    """A stand-in for the value of `open_value`, which is called at the first use."""

    def __init__(self, open_value: Callable[[], Any]) -> None:
        self._get_value = cache(open_value)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  (as the value has it)
        return getattr(self._get_value(), name)


@attrs.frozen
class RunPlace:
    """A store of runs, and the stores of their artifacts; `root` is the folder of both, None in memory. `close` it at the end.

    `lost_count` returns the number of runs that were kept here and cannot be found any more. `by` names this process, in a place that others share.
    """

    get_store: Callable[[], RunStore]
    artifacts: Callable[[str], ArtifactStore]
    root: Path | None = None
    close: Callable[[], None] = lambda: None
    lost_count: Callable[[], int] = lambda: 0
    by: str = ""

    @property
    def store(self) -> RunStore:
        """The store, opened at the first use. Raises DocumentError."""
        return self.get_store()

    @property
    def is_made(self) -> bool:
        """Whether there is a store. A folder gets its store with the first run."""
        return self.root is None or (self.root / LEDGER).is_file()

    def create(self, run: str, text: str, entries: Sequence[Entry], summary: Summary | None = None) -> Journal:
        """Create a run in the store, as `RunStore.create` does."""
        return self.store.create(run, text, entries, summary)

    def artifacts_when_wanted(self, run_id: str) -> ArtifactStore:
        """Return the store of a run's artifacts. In a folder it is opened at the first use."""
        if self.root is None:
            return self.artifacts(run_id)
        return cast(ArtifactStore, _OnDemand(partial(self.artifacts, run_id)))

    def forget(self, run_id: str) -> None:
        """Delete the files of a removed run: its folder, and the branch of its artifacts."""
        if self.root is not None:
            importlib.import_module("dsa.edge.git_artifacts").remove_branch(self.root / ARTIFACTS, run_id)
            shutil.rmtree(self.root / run_id, ignore_errors=True)


def is_on_server(path: Path) -> bool:
    """Return whether a path is the address of a server, or of a run there, and so not a folder."""
    return str(path).startswith(SERVER)


def place_text(path: Path) -> str:
    """Return the path of a folder, or the address of a server, as a person writes it."""
    text = str(path)
    return f"{SERVER}/{text.removeprefix(SERVER)}" if is_on_server(path) else text


def directory_text(directory: Path) -> str:
    """Return where a run is kept, as a person writes it: its folder, or its id and the address of the server."""
    return f"{directory.name} at {place_text(directory.parent)}" if is_on_server(directory) else str(directory)


def open_place(where: str | Path, *, must_exist: bool = False) -> RunPlace:
    """Open a folder of runs, or `memory:`. A missing folder is made when the first run begins. Raises DocumentError."""
    if str(where) == MEMORY:
        return place_in_memory()
    root = Path(where)
    open_once = cache(partial(open_store, root, must_exist=must_exist))
    if must_exist or root.exists():
        open_once()

    def close() -> None:
        if open_once.cache_info().currsize:
            open_once().close()

    return RunPlace(
        open_once,
        lambda run_id: open_artifacts(root, run_id),
        root,
        close,
        lambda: open_once().lost_count(),
        this_process(),
    )


def place_in_memory(artifacts: ArtifactStore | None = None) -> RunPlace:
    """Return a place in memory, which ends with its process. `artifacts` is the store of artifacts, by default a new one."""
    store_of_artifacts = artifacts or MemoryArtifacts()
    store = MemoryStore()
    return RunPlace(lambda: store, lambda _run_id: store_of_artifacts)


def open_store(root: Path, *, must_exist: bool = False) -> SqliteStore:
    """Open or make the store of a folder of runs. Raises DocumentError."""
    if must_exist and not (root / LEDGER).is_file():
        raise DocumentError(
            str(root),
            f"no run is stored here; `dsa run FILE` stores its run in {DEFAULT_RUNS}, or in the folder DIR of --runs DIR",
        )
    try:
        _keep_from_git(root)
        return SqliteStore(root / LEDGER)
    except StoreError as fault:
        raise DocumentError(str(root), str(fault)) from fault


def _keep_from_git(root: Path) -> None:
    """Make the default folder with a `.gitignore`, so that git ignores it. An error appears later, when the folder is used."""
    if root.name == DEFAULT_RUNS and not root.exists():
        with suppress(OSError):
            root.mkdir(parents=True)
            (root / ".gitignore").write_text("*\n", encoding="utf-8")


def open_artifacts(root: Path, run_id: str) -> ArtifactStore:
    """Open or make the store of a run's artifacts. Raises StoreError."""
    artifacts: ArtifactStore = importlib.import_module("dsa.edge.git_artifacts").GitArtifacts(root / ARTIFACTS, run_id)
    return artifacts


_CODE_SUFFIX, _JSON_SUFFIX, _TEXT_SUFFIX = ".py", ".json", ".txt"
#: The suffix of what each kind of guard judges. The suffix of another text follows from its form.
_SUFFIXES = dict.fromkeys(("syntax", "cases", "pytest", "tests", "are_tests", "ruff", "mypy"), _CODE_SUFFIX)
_SUFFIXES |= dict.fromkeys(("json", "pydantic"), _JSON_SUFFIX)
#: A heading, a fence, or the rule below a table's header: only Markdown has these.
_MARKDOWN = re.compile(r"^(#{1,6} \S|(```|~~~)|\|[ :|-]*-[ :|-]*\|[ \t]*$)", re.MULTILINE)
#: The beginning of Python code. Prose may begin like this too, but it does not compile.
_PYTHON = re.compile(r"(def|class|import|from|async def) \w|@\w|\"\"\"|#!.*python")
#: The folder with a file for each step that has passed.
STEPS = "steps"
_LONGEST_NAME = 80  # the name of a file has at most 255 bytes; names of machines and steps have no limit
#: The file with the tracebacks of users' code, and its greatest length in bytes.
ERRORS = "errors.txt"
_MOST_OF_ERRORS = 1_000_000
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
#: The form of a run's id: it names a folder, and people type it. `last` is the newest run, and `@` comes before a place.
_RUN_ID = re.compile(r"(?!last$)[A-Za-z0-9_][A-Za-z0-9._~+-]{0,199}")


def new_run_id(name: str, *, now: datetime | None = None, entropy: str | None = None) -> str:
    """Return a new, unique run id, with the second and the name of a machine or policy: `20260131T120000-dual_state-9f3a1c44e0b2`."""
    moment = (now or datetime.now(UTC)).strftime("%Y%m%dT%H%M%S")
    return f"{moment}-{_safe(name)}-{entropy or token_hex(6)}"


def own_or_new_id(run_id: str, name: str) -> str:
    """Return the given id of a run, or a new one if it is empty. Raises ParameterError for a text that cannot be an id."""
    if run_id and not _RUN_ID.fullmatch(run_id):
        raise ParameterError(
            f"{run_id!r} cannot be the id of a run: use at most 200 letters, digits and, between these, the characters `.`, `_`, `~`, `+` and `-`; the word `last` is not allowed"
        )
    return run_id or new_run_id(name)


def _safe(name: str) -> str:
    """Return a name as part of a file's name. Long names are cut, and stay different."""
    safe = _UNSAFE.sub("_", name)
    return safe if len(safe) <= _LONGEST_NAME else f"{safe[:_LONGEST_NAME]}~{sha256(safe.encode()).hexdigest()[:8]}"


class RunFolder:
    """The folder of one run, for people: made with the run's first entry, written as the run goes."""

    def __init__(self, root: Path, run: Run, text: str) -> None:
        self.path = root / run.run_id
        self._text, self._machine = text, run.machine
        self._files: dict[str, Path] = {}
        self._is_made = False

    def observe(self, entry: Entry, artifacts: ArtifactStore) -> None:
        """Write the artifact or the verdict of a durable entry. Raises DocumentError if the folder cannot be made."""
        if not self._is_made:
            self._make()
        if isinstance(entry, ArtifactEntry):
            content = artifacts.get_artifact(entry.artifact_id).content
            path = self.path / f"{_safe(entry.step)}-{entry.attempt}{suffix_of(self._machine, entry.step, content)}"
            _write(path, content)
            self._files[entry.artifact_id] = path
        elif isinstance(entry, VerdictEntry) and entry.artifact_id in self._files:
            path = self._files[entry.artifact_id]
            stem = f"{_safe(entry.step)}-{entry.attempt}-{entry.word}"
            self._files[entry.artifact_id] = path.rename(path.with_name(stem + path.suffix))
            if entry.feedback:
                _write(path.with_name(f"{stem}.feedback.txt"), entry.feedback + "\n")

    def keep_error(self, where: str, traceback: str) -> None:
        """Add a traceback of a user's code to the file of errors, up to its greatest length."""
        at = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        # Without the file the run continues: its ledger has the code and the line.
        with suppress(OSError), (self.path / ERRORS).open("ab") as file:
            if file.tell() < _MOST_OF_ERRORS:
                file.write(f"{at} {where}\n{traceback}\n".encode("utf-8", "surrogatepass"))

    def _make(self) -> None:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            (self.path / "machine.md").write_bytes(self._text.encode("utf-8"))
        except OSError as fault:
            raise DocumentError(
                str(self.path.parent), f"runs cannot be stored here: {fault.strerror or fault}"
            ) from fault
        self._is_made = True

    def write_steps(self, accepted: Sequence[Artifact]) -> Path | None:
        """Write a file for each step that has passed; return their folder, or None if the machine has one step or no step has passed."""
        folder = self.path / STEPS
        shutil.rmtree(folder, ignore_errors=True)  # revoked artifacts must not stay there
        if not accepted or len(step_names(self._machine)) < 2:  # noqa: PLR2004  (several)
            return None
        folder.mkdir()
        for artifact in accepted:
            suffix, text = text_for_people(self._machine, artifact)
            _write(folder / f"{_safe(artifact.step)}{suffix}", text)
        return folder

    def write_final(self, result: Artifact | None, answer: str | None = None) -> Path | None:
        """Write the result of a run, or the answer of its policy, and return the file; None if there is neither."""
        for stale in self.path.glob("final.*"):
            stale.unlink()
        if result is None and answer is None:
            return None
        suffix, text = (_TEXT_SUFFIX, f"{answer}\n") if result is None else text_for_people(self._machine, result)
        path = self.path / f"final{suffix}"
        _write(path, text)
        return path

    def write_diagram(self, svg: str) -> Path:
        """Write the machine's diagram."""
        path = self.path / "diagram.svg"
        path.write_text(svg, encoding="utf-8")
        return path


def accepted_artifacts(run: Run, artifacts: ArtifactStore) -> list[Artifact]:
    """Return the finalised artifact of each step, in the order of the workflow."""
    order = [step.name for step in run.machine.steps]
    names = sorted(run.steps, key=lambda name: order.index(name) if name in order else len(order))
    ids = (run.steps[name].accepted for name in names)
    return [artifacts.get_artifact(artifact_id) for artifact_id in ids if artifact_id is not None]


def result_of(machine: Machine, accepted: Sequence[Artifact]) -> Artifact | None:
    """Return the artifact that is the result: from the step that the document names, or else from the last step that has passed; None if there is none."""
    return next((artifact for artifact in reversed(accepted) if machine.result in {None, artifact.step}), None)


def text_for_people(machine: Machine, artifact: Artifact) -> tuple[str, str]:
    """Return the suffix and the text of an artifact's file. For code and JSON it is what the guards see, without the words around it."""
    suffix = suffix_of(machine, artifact.step, artifact.content)
    text = artifact.content
    if suffix == _CODE_SUFFIX:
        text = extract_code(text)
    elif suffix == _JSON_SUFFIX:
        text = extract_fenced(text, "json")
    return suffix, text.strip() + "\n"


def suffix_of(machine: Machine, step: str, content: str) -> str:
    """Return the suffix for the file of a step's artifact: by the guards that judge it, else by its form."""
    kinds = set(_kinds(machine, step))
    return next((suffix for kind, suffix in _SUFFIXES.items() if kind in kinds), None) or _looks_like(content)


def _looks_like(content: str) -> str:
    """Return the suffix for a text by its form."""
    begin = content.lstrip()
    if begin[:1] in {"{", "["} and _is_json(content):
        return _JSON_SUFFIX
    is_fenced = begin.startswith(("```py", "~~~py"))
    if (is_fenced or _PYTHON.match(begin)) and not syntax_fault(extract_code(content) if is_fenced else content):
        return _CODE_SUFFIX
    return ".md" if _MARKDOWN.search(content) else _TEXT_SUFFIX


def _kinds(machine: Machine, step: str) -> Iterator[str]:
    """Yield the kinds of the guards that judge a step, and of their parts; of all guards, if none has the name of the step."""
    guards = {guard.name: guard for guard in machine.guards}
    todo, visited_names = [step] if step in guards else list(guards), set[str]()
    while todo:
        name = todo.pop()
        if name in visited_names:
            continue
        visited_names.add(name)
        guard = guards.get(name)
        yield (guard.kind if guard is not None else "") or name
        parts = dict(guard.options).get("of", "") if guard is not None else ""
        todo += [part.strip() for part in parts.split(",") if part.strip()]
        if guard is not None and guard.kind in guards:
            todo.append(guard.kind)
        if name in {cases.name for cases in machine.cases}:
            yield "cases"


def _is_json(content: str) -> bool:
    try:
        json.loads(content)
    except (ValueError, RecursionError):
        return False
    return True


def _write(path: Path, content: str) -> None:
    path.write_bytes(content.encode("utf-8", "surrogatepass"))
