"""The repository of a workspace, used without its settings: whoever writes files into a workspace may have written these too.

Takes the workspace, gives git in a control folder of our own that borrows objects, refs and index. So nothing of `.git/config` is read but
the few values below: no filter, hook, alias, include, signing program or submodule can have anything run, whatever its name.
"""

import os
import stat
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import attrs

from machines.coding.tools.errors import ToolError
from machines.coding.tools.git_process import Bounds, GitFailedError, Ran, ran
from machines.coding.tools.opening import READ

_LARGEST_BYTES = 100_000
_BOOLEANS = {"true", "yes", "on", "1", "false", "no", "off", "0", ""}
#: What is taken over from the repository's settings, with the values that are.
_TAKEN: Mapping[str, set[str]] = {
    "core.filemode": _BOOLEANS,
    "core.ignorecase": _BOOLEANS,
    "core.symlinks": _BOOLEANS,
    "core.precomposeunicode": _BOOLEANS,
    "core.autocrlf": _BOOLEANS | {"input"},
    "core.eol": {"lf", "crlf", "native"},
    "extensions.objectformat": {"sha1", "sha256"},
}
_UNDER_WAY = {
    "MERGE_HEAD": "a merge",
    "CHERRY_PICK_HEAD": "a cherry-pick",
    "REVERT_HEAD": "a revert",
    "rebase-merge": "a rebase",
    "rebase-apply": "a rebase",
}


@attrs.frozen
class Place:
    """Where a repository has its parts: `top` is its work tree, `own` its control folder, `common` the one of all its work trees.

    Of a submodule the control folder lies elsewhere (`is_apart`), and its settings have to name the work tree.
    """

    top: Path
    own: Path
    common: Path
    is_apart: bool = False


def find(root: Path) -> Place:
    """Find the repository that a workspace lies in. Raises ToolError `no_repository`, `unsafe_repository`."""
    root = root.resolve()
    device, owner = root.stat().st_dev, root.stat().st_uid
    for top in (root, *root.parents):
        found = top.stat()
        if found.st_dev != device:
            break
        control = top / ".git"
        try:
            at = control.lstat()
        except (FileNotFoundError, PermissionError):
            continue
        if at.st_uid not in (owner, os.geteuid()):
            raise ToolError("unsafe_repository", "the repository belongs to another user; git is not used here")
        if stat.S_ISLNK(at.st_mode):
            raise ToolError("unsafe_repository", "'.git' is a symbolic link; links are not followed")
        if stat.S_ISREG(at.st_mode):
            return _led_to(top, control)
        if (control / "HEAD").is_file() and (control / "objects").is_dir():
            return Place(top, control, control)
    raise ToolError("no_repository", "the workspace is in no git repository; work without git")


_UNKNOWN = "'.git' is a file that leads to a repository which does not know of this workspace; work without git"


def _led_to(top: Path, file: Path) -> Place:
    """Read the file that leads from a further work tree, or from a submodule, to its repository; that one has to know of it."""
    own = top / _text(file).removeprefix("gitdir:").strip()
    back, common = _text(own / "gitdir").strip(), _text(own / "commondir").strip()
    if not common:
        return Place(top, own, own, is_apart=True)
    place = Place(top, own, (own / common).resolve())
    if not back or Path(os.path.normpath(own / back)) != file or own.resolve().parent != place.common / "worktrees":
        raise ToolError("unsafe_repository", _UNKNOWN)
    return place


class Repository:
    """Git on the repository of a workspace, as long as it is open (`opened`). `prefix` leads from its top to the workspace, with a slash."""

    def __init__(self, root: Path, place: Place, shadow: Path, bounds: Bounds) -> None:
        self.place = place
        self.shadow = shadow
        self.prefix = "" if root.resolve() == place.top else f"{root.resolve().relative_to(place.top).as_posix()}/"
        self._root, self._bounds = root, bounds
        said = self._said("config")
        if place.is_apart:
            self._require_named(said)
        self.who = (said.get("user.name") or "dsa", said.get("user.email") or "dsa@localhost")
        self._set_up(said)

    def run(self, *arguments: str, given: bytes = b"", bounds: Bounds | None = None, index: Path | None = None) -> Ran:
        """Run git in the workspace. `index` is another one than the repository's. Raises ToolError `git_timeout`."""
        name, email = self.who
        variables = {
            "GIT_DIR": str(self.shadow),
            "GIT_WORK_TREE": str(self.place.top),
            "GIT_OBJECT_DIRECTORY": str(self.place.common / "objects"),
            "GIT_INDEX_FILE": str(index or self.place.own / "index"),
            "GIT_AUTHOR_NAME": name, "GIT_AUTHOR_EMAIL": email, "GIT_COMMITTER_NAME": name, "GIT_COMMITTER_EMAIL": email,
        }  # fmt: skip
        try:
            return ran(arguments, folder=self._root, bounds=bounds or self._bounds, given=given, **variables)
        except GitFailedError as fault:
            raise ToolError("git_timeout", str(fault)) from fault

    def asked(
        self, *arguments: str, given: bytes = b"", bounds: Bounds | None = None, index: Path | None = None
    ) -> Ran:
        """Run git, which is to succeed. Raises ToolError `git_failed` with what it has complained of."""
        done = self.run(*arguments, given=given, bounds=bounds, index=index)
        if done.code:
            command = next(word for word in arguments if not word.startswith("-"))
            raise ToolError("git_failed", f"git {command} failed: {_short(done.complaint)}")
        return done

    def head(self) -> str | None:
        """Give the commit that is checked out; None in a repository without any."""
        return self.commit("HEAD")

    def commit(self, revision: str) -> str | None:
        """Give the id of a commit that is named; None when there is none of the name."""
        done = self.run("rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
        return done.head.decode("ascii", "replace").strip() if not done.code else None

    def under_way(self) -> str | None:
        """Name what somebody has begun in the repository and not ended; None for nothing."""
        return next((what for name, what in _UNDER_WAY.items() if os.path.lexists(self.place.own / name)), None)

    # -- the control folder -------------------------------------------------------------------------------------------

    def _require_named(self, said: Mapping[str, str]) -> None:
        """Raise ToolError where the settings of a submodule do not name this work tree."""
        if said.get("extensions.worktreeconfig", "").lower() in {"true", "yes", "on", "1"}:
            said = {**said, **self._said("config.worktree")}
        named = said.get("core.worktree")
        if not named or (self.place.own / named).resolve() != self.place.top:
            raise ToolError("unsafe_repository", _UNKNOWN)

    def _said(self, name: str) -> dict[str, str]:
        """Read settings of the repository, as text: git tells them, and does nothing by them. Includes are not read."""
        text = _text(self.place.common / name)
        (self.shadow / "said").write_text(text, "utf-8", "surrogateescape")
        try:
            done = ran(
                ["config", "--file", str(self.shadow / "said"), "--no-includes", "-z", "--list"],
                folder=self.shadow, bounds=self._bounds, GIT_DIR=str(self.shadow),
            )  # fmt: skip
        except GitFailedError as fault:
            raise ToolError("git_timeout", str(fault)) from fault
        if done.code:
            raise ToolError("unsafe_repository", "'.git/config' cannot be read; work without git")
        lines = done.head.decode("utf-8", "replace").split("\0")
        return {name: value for name, _, value in (line.partition("\n") for line in lines)}

    def _set_up(self, said: Mapping[str, str]) -> None:
        if said.get("extensions.refstorage", "files") != "files":
            raise ToolError("unsafe_repository", "the repository keeps its branches in a way that is not read here")
        taken = {name: said[name] for name, values in _TAKEN.items() if said.get(name, "?").lower() in values}
        taken["core.repositoryformatversion"] = "1" if "extensions.objectformat" in taken else "0"
        text = "".join(f"[{name.split('.')[0]}]\n\t{name.split('.')[1]} = {value}\n" for name, value in taken.items())
        (self.shadow / "config").write_text(text + "[core]\n\tbare = false\n\tlogAllRefUpdates = true\n", "utf-8")
        (self.shadow / "HEAD").write_text(_text(self.place.own / "HEAD"), "utf-8", "surrogateescape")
        (self.shadow / "info").mkdir()
        (self.shadow / "logs").mkdir()
        self._borrow(self.place.common, ("packed-refs", "shallow", "info/exclude"), stat.S_ISREG)
        self._borrow(self.place.common, ("refs", "logs/refs"), stat.S_ISDIR)
        self._borrow(self.place.own, ("logs/HEAD",), stat.S_ISREG)
        self._borrow(self.place.own, [path.name for path in self.place.own.glob("sharedindex.*")], stat.S_ISREG)
        self._require_usual()

    def _borrow(self, source: Path, names: Sequence[str], is_right: Callable[[int], bool]) -> None:
        """Lead from the control folder to files of the repository, where they are what they should be and no links themselves."""
        for name in names:
            _require_plain(source / name)
            if os.path.lexists(source / name) and is_right((source / name).lstat().st_mode):
                (self.shadow / name).symlink_to(source / name)
        if "refs" in names and not (self.shadow / "refs").exists():
            raise ToolError("no_repository", "the repository has no refs; work without git")

    def _require_usual(self) -> None:
        """Raise ToolError where parts of the repository are links, or elsewhere: what is read and written there is not the workspace's."""
        own, common = self.place.own, self.place.common
        for path in (own / "index", own / "logs", common / "objects", common / "logs", common / "info"):
            _require_plain(path)
        if os.path.lexists(common / "objects/info/alternates"):
            text = "the repository borrows objects from another one (alternates); git is not used here"
            raise ToolError("unsafe_repository", text)
        head = _text(self.shadow / "HEAD").strip()
        if head.startswith("ref: "):
            parts = head.removeprefix("ref: ").split("/")
            for depth in range(1, len(parts) + 1):
                _require_plain(common.joinpath(*parts[:depth]))
                _require_plain(common.joinpath("logs", *parts[:depth]))


@contextmanager
def opened(root: Path, bounds: Bounds) -> Iterator[Repository]:
    """Open the repository of a workspace. Raises ToolError `no_repository`, `unsafe_repository`."""
    place = find(root)
    with tempfile.TemporaryDirectory(prefix="dsa-git-") as shadow:
        yield Repository(root, place, Path(shadow), bounds)


def _require_plain(path: Path) -> None:
    """Raise ToolError where a link stands, or a pipe: it may lead to what is not of the workspace's repository."""
    mode = path.lstat().st_mode if os.path.lexists(path) else stat.S_IFREG
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        text = f"'{path.name}' of the repository is a link, or no file; git is not used here"
        raise ToolError("unsafe_repository", text)


def _text(path: Path) -> str:
    """Read a small file; empty when there is none. A link, a pipe or a large one is none of a repository."""
    try:
        file = os.open(path, READ)
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise ToolError(
            "unsafe_repository", f"'{path.name}' of the repository cannot be read: {error.strerror}"
        ) from error
    try:
        is_file = stat.S_ISREG(os.fstat(file).st_mode)
        content = os.read(file, _LARGEST_BYTES + 1) if is_file else b""
    finally:
        os.close(file)
    if not is_file or len(content) > _LARGEST_BYTES:
        raise ToolError("unsafe_repository", f"'{path.name}' of the repository is no file of a usual size")
    return content.decode("utf-8", "surrogateescape")


def _short(complaint: str) -> str:
    lines = [line for line in complaint.splitlines() if line.strip()]
    return " ".join(lines[:3])[:500] or "it did not say why"
