"""The place where runs are kept: a folder with `ledger.db` and `artifacts.git`, or memory. Stores are opened here alone."""

import importlib
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Any, cast

import attrs

from dsa.edge.stores.locks import this_process
from dsa.edge.stores.memory import MemoryStore
from dsa.edge.stores.sqlite import SqliteStore
from dsa.errors import DocumentError
from dsa.runtime.artifacts import ArtifactStore, MemoryArtifacts
from dsa.runtime.journal import Journal, RunStore, StoreError, Summary
from dsa.runtime.ledger import Entry

DEFAULT_RUNS, MEMORY = ".dsa", "memory:"
LEDGER, ARTIFACTS = "ledger.db", "artifacts.git"
#: Stands in the id of a run that is a part of another one, between that one's id and its effect: `20260131T120000-tale-9f3a1c44e0b2+3.1`.
PART_OF = "+"


class _WhenWanted:
    """Stands for what `opened` gives, which is called at the first use."""

    def __init__(self, opened: Callable[[], Any]) -> None:
        self._opened = cache(opened)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  (whatever it has)
        return getattr(self._opened(), name)


@attrs.frozen
class Place:
    """A store of runs and where their artifacts are; `root` is the folder of both, None in memory. `close` it in the end.

    `lost` counts runs that were kept here and cannot be found any more. `by` says who this is, where anybody else may come.
    """

    opened: Callable[[], RunStore]
    artifacts: Callable[[str], ArtifactStore]
    root: Path | None = None
    close: Callable[[], None] = lambda: None
    lost: Callable[[], int] = lambda: 0
    by: str = ""

    @property
    def store(self) -> RunStore:
        """The store, opened when it is wanted first. Raises DocumentError."""
        return self.opened()

    @property
    def is_made(self) -> bool:
        """Return whether there is a store; a folder's is made with its first run."""
        return self.root is None or (self.root / LEDGER).is_file()

    def create(self, run: str, text: str, entries: Sequence[Entry], summary: Summary | None = None) -> Journal:
        """Begin a run in the store, as `RunStore.create` does."""
        return self.store.create(run, text, entries, summary)

    def artifacts_when_wanted(self, run_id: str) -> ArtifactStore:
        """Return what a run generates; in a folder nothing is made before something is stored or asked for."""
        if self.root is None:
            return self.artifacts(run_id)
        return cast(ArtifactStore, _WhenWanted(partial(self.artifacts, run_id)))

    def forget(self, run_id: str) -> None:
        """Delete what a removed run has left: its folder, and the branch of its artifacts."""
        if self.root is not None:
            importlib.import_module("dsa.edge.git").remove_branch(self.root / ARTIFACTS, run_id)
            shutil.rmtree(self.root / run_id, ignore_errors=True)


def opened_place(where: str | Path, *, must_exist: bool = False) -> Place:
    """Open a folder of runs, or `memory:`. A folder that is not there is made when the first run begins. Raises DocumentError."""
    if str(where) == MEMORY:
        return place_in_memory()
    root = Path(where)
    opened = cache(partial(open_store, root, must_exist=must_exist))
    if must_exist or root.exists():
        opened()

    def close() -> None:
        if opened.cache_info().currsize:
            opened().close()

    return Place(
        opened, lambda run_id: open_artifacts(root, run_id), root, close, lambda: opened().lost(), this_process()
    )


def place_in_memory(artifacts: ArtifactStore | None = None) -> Place:
    """Return a place that forgets everything with its process; `artifacts` are kept in the given store."""
    kept = artifacts or MemoryArtifacts()
    store = MemoryStore()
    return Place(lambda: store, lambda _run_id: kept)


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
    artifacts: ArtifactStore = importlib.import_module("dsa.edge.git").GitArtifacts(root / ARTIFACTS, run_id)
    return artifacts
