"""The bare repository: made when missing, in one step that two processes may take at once, and looked over when opened.

Takes a path; raises ArtifactStoreError when it is no repository that can be written to here. It is made without git's
templates and settings of the user, so that it is the same everywhere.
"""

import shutil
from pathlib import Path
from secrets import token_hex

from git.config import GitConfigParser

from dsa.edge.git.branch import RUNS, Branch
from dsa.edge.git.names import name_of
from dsa.edge.git.objects import run_git, sync_path, write_new
from dsa.runtime.artifacts import ArtifactStoreError

#: git syncs neither refs nor loose objects by itself: a power cut after `git gc` could then take what was durable.
_CONFIG = b"[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = true\n\tfsync = all\n"
_FOLDERS = ("objects", "objects/info", "objects/pack", "refs", "refs/heads", "refs/tags")


def make_ready(path: Path, first_run: str) -> None:
    """Make the repository unless it is there, and look it over. HEAD of a new one is the branch of the first run."""
    if not path.exists() or (path.is_dir() and not any(path.iterdir())):
        _make(path, f"ref: {Branch(path, first_run, 0).name}\n".encode("ascii"))
    require_repository(path)


def _make(path: Path, head: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.{token_hex(8)}.new")
    new.mkdir()
    for folder in _FOLDERS:
        (new / folder).mkdir()
    write_new(new / "config", _CONFIG)
    write_new(new / "HEAD", head)
    for folder in (*reversed(_FOLDERS), "."):
        sync_path(new / folder)
    try:
        new.rename(path)
    except OSError:
        shutil.rmtree(new)
        if not path.is_dir():
            raise
        # another process was faster
    sync_path(path.parent)


def require_repository(path: Path) -> None:
    """Raise ArtifactStoreError unless it is a bare repository of SHA-1 objects with refs as files."""
    config = path / "config"
    if not all((path / name).exists() for name in ("HEAD", "config", "objects", "refs")):
        raise ArtifactStoreError(path, "this is no bare git repository; name one, or a path where nothing is yet")
    with GitConfigParser(str(config), read_only=True, merge_includes=False) as settings:
        is_bare = settings.get_value("core", "bare", default=False)
        hashing = settings.get_value("extensions", "objectformat", default="sha1")
        refs = settings.get_value("extensions", "refstorage", default="files")
    if not is_bare or (hashing, refs) != ("sha1", "files"):
        raise ArtifactStoreError(
            path,
            f"artifacts need a bare repository with sha1 objects and refs in files; this has bare={is_bare}, "
            f"objectformat={hashing}, refstorage={refs}. Name a path where nothing is yet: one is made there",
        )


def run_ids(path: Path | str) -> tuple[str, ...]:
    """Give the ids of the runs in a repository, sorted. ArtifactStoreError when there is none."""
    repository = Path(path)
    require_repository(repository)
    refs = run_git(repository, "for-each-ref", "--format=%(refname)", f"{RUNS}/").decode("ascii").splitlines()
    return tuple(sorted(name_of(ref.removeprefix(f"{RUNS}/").split("/")) for ref in refs))


def remove_branch(path: Path | str, run_id: str) -> None:
    """Remove the branch of a run, if there is one; what only it had is gone with git's next garbage collection."""
    repository = Path(path)
    if (repository / "HEAD").is_file():
        run_git(repository, "update-ref", "-d", Branch(repository, run_id, 0).name)
