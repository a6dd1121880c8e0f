"""Git tools for a model: status, diff, log and commit on the repository of a workspace, limited to files in the workspace.

`Repository` runs git in a temporary control folder of ours that borrows objects, refs and index of the real one. An agent may have written `.git/config`, so git
reads only a few values of it (`_COPIED_SETTINGS`): no filter, hook, alias, include, signing program or submodule can start a program.

`GitTools` takes the arguments of a call and returns a record, or raises ToolError. A commit leaves staged files alone, see `git_commit`.
"""

import os
import re
import stat
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import attrs

from dsa.errors import DsaError, ToolError
from machines.coding.tools.git_process import GitBounds, GitOutput, run_git_process
from machines.coding.tools.workspace_boundary import (
    NEW,
    PROTECTED_NAMES,
    READ,
    RECORDS,
    TEMPORARY,
    is_record,
    parts_of,
    shown_path,
)

_LARGEST_BYTES = 100_000
_BOOLEANS = {"true", "yes", "on", "1", "false", "no", "off", "0", ""}
#: The settings that are copied from the repository, with their valid values.
_COPIED_SETTINGS: Mapping[str, set[str]] = {
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
class RepositoryPaths:
    """The paths of a repository: `top` is its work tree, `own` its control folder, `common` the control folder of all its work trees.

    The control folder of a submodule is elsewhere (`is_apart`), and its settings have to name the work tree.
    """

    top: Path
    own: Path
    common: Path
    is_apart: bool = False


def find(root: Path) -> RepositoryPaths:
    """Return the repository of a workspace. Raises ToolError `no_repository`, `unsafe_repository`."""
    root = root.resolve()
    device, owner = root.stat().st_dev, root.stat().st_uid
    for top in (root, *root.parents):
        status = top.stat()
        if status.st_dev != device:
            break
        control = top / ".git"
        try:
            at = control.lstat()
        except (FileNotFoundError, PermissionError):
            continue
        if at.st_uid not in (owner, os.geteuid()):
            raise ToolError("the repository belongs to another user, so git is not used here", code="unsafe_repository")
        if stat.S_ISLNK(at.st_mode):
            raise ToolError("'.git' is a symbolic link, and links are not followed", code="unsafe_repository")
        if stat.S_ISREG(at.st_mode):
            return _linked_repository(top, control)
        if (control / "HEAD").is_file() and (control / "objects").is_dir():
            return RepositoryPaths(top, control, control)
    raise ToolError("the workspace is not in a git repository; work without git", code="no_repository")


_UNKNOWN = "'.git' is a file that leads to a repository which does not refer back to this workspace; work without git"


def _linked_repository(top: Path, file: Path) -> RepositoryPaths:
    """Read the `.git` file of a further work tree or a submodule, and return its repository, which has to refer back to it."""
    own = top / _text(file).removeprefix("gitdir:").strip()
    back, common = _text(own / "gitdir").strip(), _text(own / "commondir").strip()
    if not common:
        return RepositoryPaths(top, own, own, is_apart=True)
    place = RepositoryPaths(top, own, (own / common).resolve())
    if not back or Path(os.path.normpath(own / back)) != file or own.resolve().parent != place.common / "worktrees":
        raise ToolError(_UNKNOWN, code="unsafe_repository")
    return place


class Repository:
    """Git on the repository of a workspace, while `open_repository` holds it open. `prefix` leads from its top to the workspace, with a slash."""

    def __init__(self, root: Path, place: RepositoryPaths, shadow: Path, bounds: GitBounds) -> None:
        self.place = place
        self.shadow = shadow
        self.prefix = "" if root.resolve() == place.top else f"{root.resolve().relative_to(place.top).as_posix()}/"
        self._root, self._bounds = root, bounds
        settings = self._read_settings("config")
        if place.is_apart:
            self._require_named(settings)
        self.who = (settings.get("user.name") or "dsa", settings.get("user.email") or "dsa@localhost")
        self._set_up(settings)

    def run(
        self, *arguments: str, stdin_data: bytes = b"", bounds: GitBounds | None = None, index: Path | None = None
    ) -> GitOutput:
        """Run git in the workspace, with `index` in place of the repository's. Raises ToolError `git_timeout`."""
        name, email = self.who
        variables = {
            "GIT_DIR": str(self.shadow),
            "GIT_WORK_TREE": str(self.place.top),
            "GIT_OBJECT_DIRECTORY": str(self.place.common / "objects"),
            "GIT_INDEX_FILE": str(index or self.place.own / "index"),
            "GIT_AUTHOR_NAME": name, "GIT_AUTHOR_EMAIL": email, "GIT_COMMITTER_NAME": name, "GIT_COMMITTER_EMAIL": email,
        }  # fmt: skip
        try:
            return run_git_process(
                arguments, folder=self._root, bounds=bounds or self._bounds, stdin_data=stdin_data, **variables
            )
        except DsaError as fault:
            raise ToolError(str(fault), code="git_timeout") from fault

    def run_checked(
        self, *arguments: str, stdin_data: bytes = b"", bounds: GitBounds | None = None, index: Path | None = None
    ) -> GitOutput:
        """Run git. Raises ToolError `git_failed` with its complaint when it fails."""
        output = self.run(*arguments, stdin_data=stdin_data, bounds=bounds, index=index)
        if output.code:
            command = next(word for word in arguments if not word.startswith("-"))
            raise ToolError(f"git {command} failed: {_short(output.complaint)}", code="git_failed")
        return output

    def head(self) -> str | None:
        """Return the current commit, or None in a repository without commits."""
        return self.commit("HEAD")

    def commit(self, revision: str) -> str | None:
        """Return the id of a commit by a name, or None."""
        output = self.run("rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
        return output.head.decode("ascii", "replace").strip() if not output.code else None

    def under_way(self) -> str | None:
        """Return the operation that is under way in the repository, such as a merge, or None."""
        return next((what for name, what in _UNDER_WAY.items() if os.path.lexists(self.place.own / name)), None)

    # -- the control folder -------------------------------------------------------------------------------------------

    def _require_named(self, settings: Mapping[str, str]) -> None:
        """Raise ToolError unless the settings of a submodule name this work tree."""
        if settings.get("extensions.worktreeconfig", "").lower() in {"true", "yes", "on", "1"}:
            settings = {**settings, **self._read_settings("config.worktree")}
        work_tree = settings.get("core.worktree")
        if not work_tree or (self.place.own / work_tree).resolve() != self.place.top:
            raise ToolError(_UNKNOWN, code="unsafe_repository")

    def _read_settings(self, name: str) -> dict[str, str]:
        """Return settings of the repository as text; git only lists them. Includes are not read."""
        text = _text(self.place.common / name)
        (self.shadow / "said").write_text(text, "utf-8", "surrogateescape")
        try:
            output = run_git_process(
                ["config", "--file", str(self.shadow / "said"), "--no-includes", "-z", "--list"],
                folder=self.shadow, bounds=self._bounds, GIT_DIR=str(self.shadow),
            )  # fmt: skip
        except DsaError as fault:
            raise ToolError(str(fault), code="git_timeout") from fault
        if output.code:
            raise ToolError("'.git/config' cannot be read; work without git", code="unsafe_repository")
        lines = output.head.decode("utf-8", "replace").split("\0")
        return {name: value for name, _, value in (line.partition("\n") for line in lines)}

    def _set_up(self, settings: Mapping[str, str]) -> None:
        if settings.get("extensions.refstorage", "files") != "files":
            raise ToolError(
                "the repository stores its branches in a format that is not supported here", code="unsafe_repository"
            )
        own_settings = {
            name: settings[name]
            for name, values in _COPIED_SETTINGS.items()
            if settings.get(name, "?").lower() in values
        }
        own_settings["core.repositoryformatversion"] = "1" if "extensions.objectformat" in own_settings else "0"
        text = "".join(
            f"[{name.split('.')[0]}]\n\t{name.split('.')[1]} = {value}\n" for name, value in own_settings.items()
        )
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
        """Link files of the repository into the control folder, if they are of the right kind and not links themselves."""
        for name in names:
            _require_plain(source / name)
            if os.path.lexists(source / name) and is_right((source / name).lstat().st_mode):
                (self.shadow / name).symlink_to(source / name)
        if "refs" in names and not (self.shadow / "refs").exists():
            raise ToolError("the repository has no refs; work without git", code="no_repository")

    def _require_usual(self) -> None:
        """Raise ToolError when parts of the repository are links, or elsewhere."""
        own, common = self.place.own, self.place.common
        for path in (own / "index", own / "logs", common / "objects", common / "logs", common / "info"):
            _require_plain(path)
        if os.path.lexists(common / "objects/info/alternates"):
            text = "the repository borrows objects from another one (alternates), so git is not used here"
            raise ToolError(text, code="unsafe_repository")
        head = _text(self.shadow / "HEAD").strip()
        if head.startswith("ref: "):
            parts = head.removeprefix("ref: ").split("/")
            for depth in range(1, len(parts) + 1):
                _require_plain(common.joinpath(*parts[:depth]))
                _require_plain(common.joinpath("logs", *parts[:depth]))


@contextmanager
def open_repository(root: Path, bounds: GitBounds) -> Iterator[Repository]:
    """Open the repository of a workspace. Raises ToolError `no_repository`, `unsafe_repository`."""
    place = find(root)
    with tempfile.TemporaryDirectory(prefix="dsa-git-") as shadow:
        yield Repository(root, place, Path(shadow), bounds)


def _require_plain(path: Path) -> None:
    """Raise ToolError for a link or a pipe, which may lead out of the repository."""
    mode = path.lstat().st_mode if os.path.lexists(path) else stat.S_IFREG
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        text = f"'{path.name}' of the repository is a link or a special file, so git is not used here"
        raise ToolError(text, code="unsafe_repository")


def _text(path: Path) -> str:
    """Return the text of a small file, empty when it is missing. Raises ToolError for a link, a pipe or a large file."""
    try:
        file = os.open(path, READ)
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise ToolError(
            f"'{path.name}' of the repository cannot be read: {error.strerror}", code="unsafe_repository"
        ) from error
    try:
        is_file = stat.S_ISREG(os.fstat(file).st_mode)
        content = os.read(file, _LARGEST_BYTES + 1) if is_file else b""
    finally:
        os.close(file)
    if not is_file or len(content) > _LARGEST_BYTES:
        raise ToolError(
            f"'{path.name}' of the repository is too large, or is not a regular file", code="unsafe_repository"
        )
    return content.decode("utf-8", "surrogateescape")


def _short(complaint: str) -> str:
    lines = [line for line in complaint.splitlines() if line.strip()]
    return " ".join(lines[:3])[:500] or "it did not say why"


_DIFF = (
    "--no-literal-pathspecs", "diff", "--no-ext-diff", "--no-textconv", "--no-color", "--no-renames", "--ignore-submodules=all", "--relative",
    "--src-prefix=a/", "--dst-prefix=b/",
)  # fmt: skip
#: Records for people are not part of the diff.
_NOT_RECORDS = tuple(f":(exclude,glob,icase)**/{name}{end}" for name in RECORDS for end in ("", "/**"))
_STATUS = (
    "status", "--porcelain=v2", "-z", "--branch", "--untracked-files=all", "--no-renames", "--ignore-submodules=all", "--no-ahead-behind",
)  # fmt: skip
_LOG = "--format=%H%x00%an%x00%aI%x00%s%x00%b"
_MOST_SHOWN, _SHOWN_BYTES, _LISTED_BYTES = 200, 12_000, 4_000_000
_MOST_COMMITS, _LONGEST_BODY, _LONGEST_MESSAGE = 100, 1_000, 10_000
_LARGEST_FILE_BYTES = 50_000_000
_REVISION = re.compile(r"[A-Za-z0-9_@][A-Za-z0-9_@./~^{}+-]{0,199}")
_INDEX_LOCK_NOTE = (
    "the commit is made, but another git process holds the index, so git_status shows the files of the commit as staged"
)
_CHANGES = {"A": "added", "M": "changed", "D": "deleted", "T": "type changed", "R": "renamed", "C": "copied"}


@attrs.frozen
class _Entry:
    """A changed file: `index_letter` and `worktree_letter` are git's letters, '.' for no change; '?' is a new file, 'u' a conflict."""

    path: str
    index_letter: str
    worktree_letter: str


@attrs.frozen
class GitChange:
    """A changed file, and its kind of change."""

    path: str
    change: str


@attrs.frozen
class GitStatus:
    """The current branch and commit, or None, and the changed files in lists.

    A long list is shortened; `not_shown` counts the missing ones by the name of the list. `incomplete`: git has more files than were read.
    """

    branch: str | None
    commit: str | None
    clean: bool
    staged: tuple[GitChange, ...]
    changed: tuple[GitChange, ...]
    untracked: tuple[str, ...]
    conflicts: tuple[str, ...]
    not_shown: Mapping[str, int] = attrs.field(factory=dict)
    incomplete: bool = False
    left_out: str = ""
    under_way: str | None = None


@attrs.frozen
class CountedLines:
    """The numbers of added and deleted lines in a file; a `binary` one has none."""

    path: str
    binary: bool = False
    added: int | None = None
    deleted: int | None = None


@attrs.frozen
class GitDiff:
    """A diff of git, and its files."""

    files: tuple[CountedLines, ...]
    diff: str
    omitted_bytes: int
    not_shown: int = 0
    left_out: str = ""


@attrs.frozen
class LoggedCommit:
    """A commit; its date is in ISO 8601."""

    commit: str
    author: str
    date: str
    subject: str
    body: str


@attrs.frozen
class GitLog:
    """Commits, the newest first."""

    commits: tuple[LoggedCommit, ...]
    left_out: str = ""


@attrs.frozen
class GitCommit:
    """A new commit, with its files; `left_staged` are others that stay staged."""

    commit: str
    files: tuple[str, ...]
    note: str = ""
    not_shown: int = 0
    left_staged: tuple[str, ...] = ()


class GitTools:
    """Git on the repository of a workspace. `timeout_s` limits each process.

    Every call raises ToolError `no_repository`, `unsafe_repository`, `git_timeout`, `git_failed`, and its own codes.
    """

    def __init__(self, root: Path, timeout_s: float = 20.0) -> None:
        self._root = root
        self._bounds = GitBounds(timeout_s, _LISTED_BYTES)
        self._shown_bounds = GitBounds(timeout_s, _SHOWN_BYTES, _SHOWN_BYTES)

    def git_status(self) -> GitStatus:
        """Return the branch and the files that are staged, changed, new or in conflict; long lists are shortened."""
        with open_repository(self._root, self._bounds) as repository:
            head, entries, is_whole = _status(repository, ["."])
            under_way = repository.under_way()
        staged_changes = tuple(_change(e.path, e.index_letter) for e in entries if e.index_letter not in ".?u")
        unstaged_changes = tuple(_change(e.path, e.worktree_letter) for e in entries if e.worktree_letter not in ".?u")
        untracked_paths = tuple(shown_path(e.path) for e in entries if e.index_letter == "?")
        conflicts = tuple(shown_path(e.path) for e in entries if e.index_letter == "u")
        lists = {
            "staged": staged_changes,
            "changed": unstaged_changes,
            "untracked": untracked_paths,
            "conflicts": conflicts,
        }
        more = {name: len(items) - _MOST_SHOWN for name, items in lists.items() if len(items) > _MOST_SHOWN}
        return GitStatus(
            head.branch, head.commit, not entries,
            staged_changes[:_MOST_SHOWN], unstaged_changes[:_MOST_SHOWN], untracked_paths[:_MOST_SHOWN], conflicts[:_MOST_SHOWN],
            more, not is_whole, _left_out(more, is_whole=is_whole), under_way,
        )  # fmt: skip

    def git_diff(self, path: object = None, staged: object = False, against: object = None) -> GitDiff:  # noqa: FBT002  (a model's)
        """Return the changes in tracked files: since they were staged, or with `staged` the staged ones since the last commit.

        `against` is a commit to compare with instead. Raises ToolError `bad_path`, `path_outside_workspace`, `bad_revision`.
        """
        where = self._where(path)
        with open_repository(self._root, self._bounds) as repository:
            revision = [] if against is None else [_revision(repository, against)]
            options = ["--cached"] if staged is True else []
            command = (*_DIFF, *options)
            of = (*revision, "--", f":(literal){where}", *_NOT_RECORDS)
            count_output = repository.run_checked(*command, "--numstat", "-z", *of)
            diff_output = repository.run_checked(*command, *of, bounds=self._shown_bounds)
        files = tuple(_line_counts(line) for line in _records(count_output.head))
        beyond = max(0, len(files) - _MOST_SHOWN)
        left_out = ""
        if diff_output.omitted_bytes or beyond or count_output.omitted_bytes:
            of_list = f"{beyond:,}{' or more' if count_output.omitted_bytes else ''} files of the list"
            of_both = f"{diff_output.omitted_in_text:,} bytes of the diff and {of_list}"
            left_out = f"{of_both} are left out: name a path to see its part"
        return GitDiff(files[:_MOST_SHOWN], diff_output.text(), diff_output.omitted_in_text, beyond, left_out)

    def git_log(self, count: object = 10, path: object = None) -> GitLog:
        """Return the newest commits with changes in the workspace, or at a path. Raises ToolError `bad_path`, `path_outside_workspace`, `bad_count`."""
        if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= _MOST_COMMITS:
            raise ToolError(f"count must be a whole number from 1 to {_MOST_COMMITS}", code="bad_count")
        where = self._where(path)
        with open_repository(self._root, self._bounds) as repository:
            head = repository.head()
            if head is None:
                return GitLog(())
            options = [
                "--no-color",
                "--no-decorate",
                "--no-notes",
                "--no-mailmap",
                "--no-show-signature",
                f"-{count + 1}",
            ]
            only = ["--", where] if where != "." or repository.prefix else []
            output = repository.run_checked("log", "-z", *options, _LOG, head, *only)
        fields = _records(output.head)
        whole = [fields[at : at + 5] for at in range(0, len(fields) - 4, 5)]
        commits = tuple(LoggedCommit(*map(_cut, each)) for each in whole[:count])
        more = f"older commits are not shown: set a larger count, up to {_MOST_COMMITS}, or a path"
        return GitLog(commits, more if len(whole) > count or output.omitted_bytes else "")

    def git_commit(
        self, message: object, paths: object = None, written_paths: Sequence[str] | None = None
    ) -> GitCommit:
        """Commit files as they are in the workspace: those at `paths`, or all changed and new files without staged changes.

        `written_paths` are the files that a run has changed, in place of `paths`; those without changes since the last commit are skipped. Other staged changes stay
        staged. No hook runs, nothing is signed. Raises ToolError `bad_message`, `bad_path`, `path_outside_workspace`, `nothing_to_commit`, `under_way`,
        `too_large`, `moved`.
        """
        text = _message(message)
        if written_paths is not None and not written_paths:
            raise ToolError("this run has not changed any file", code="nothing_to_commit")
        requested_paths = (
            list(written_paths) if written_paths else None if paths is None else self._requested_paths(paths)
        )
        with open_repository(self._root, self._bounds) as repository:
            if what := repository.under_way():
                raise ToolError(
                    f"{what} is under way in the repository: a person has to finish it first", code="under_way"
                )
            files, left = self._choose_files(repository, requested_paths, each=written_paths is None)
            return attrs.evolve(_commit(repository, text, files), left_staged=tuple(map(shown_path, left)))

    def _where(self, path: object) -> str:
        return "." if path is None else "/".join(parts_of(path, (str(self._root),))) or "."

    def _requested_paths(self, paths: object) -> list[str]:
        if isinstance(paths, str):
            paths = [paths]
        if not isinstance(paths, Sequence) or not paths:
            raise ToolError(
                "paths must be a list of files to commit, such as ['src/app.py']; leave paths out to commit all files",
                code="bad_path",
            )
        return [self._where(path) for path in paths]

    def _choose_files(
        self, repository: Repository, requested_paths: list[str] | None, *, each: bool
    ) -> tuple[list[str], list[str]]:
        """Return the files to commit, and those whose staged changes stay staged; with `each`, every requested path must have a change."""
        _, entries, is_whole = _status(repository, requested_paths or ["."])
        if not is_whole:
            raise ToolError(
                "too many files are changed to commit them in one call: name fewer in paths", code="too_large"
            )
        if conflicts := [entry.path for entry in entries if entry.index_letter == "u"]:
            raise ToolError(
                f"'{shown_path(conflicts[0])}' is in conflict: a person has to finish the merge first", code="under_way"
            )
        # A repository in the workspace is left alone.
        entries = [entry for entry in entries if not entry.path.endswith("/")]
        is_staged = {entry.path: entry.index_letter not in ".?" for entry in entries}
        files = [path for path, has_staged in is_staged.items() if requested_paths or not has_staged]
        for path in requested_paths or () if each else ():
            if not any(path in (".", file) or file.startswith(f"{path}/") for file in files):
                raise ToolError(
                    f"nothing has changed at '{shown_path(path)}', or git ignores it", code="nothing_to_commit"
                )
        left = [] if requested_paths else [path for path, has_staged in is_staged.items() if has_staged]
        if not files:
            what = (
                "in the workspace" if each else "in the files that this run has written, except those that git ignores,"
            )
            hint = "; to commit staged files, name them in paths" if left else ""
            raise ToolError(f"nothing has changed {what} since the last commit{hint}", code="nothing_to_commit")
        self._require_small(files)
        return files, left

    def _require_small(self, files: Sequence[str]) -> None:
        for path in files:
            full = self._root / path
            if os.path.lexists(full) and full.lstat().st_size > _LARGEST_FILE_BYTES:
                text = f"'{shown_path(path)}' is over {_LARGEST_FILE_BYTES:,} bytes: name it in .gitignore, or name only the other files in paths"
                raise ToolError(text, code="too_large")


@attrs.frozen
class _Head:
    """The current branch and commit, or None."""

    branch: str | None = None
    commit: str | None = None


def _status(repository: Repository, where: Sequence[str]) -> tuple[_Head, list[_Entry], bool]:
    """Return the head, the changed files beneath paths of the workspace, and whether these are all."""
    output = repository.run_checked(*_STATUS, "--", *where)
    head = _Head()
    entries = []
    for record in _records(output.head):
        if record.startswith("# branch.head "):
            name = record.removeprefix("# branch.head ")
            head = attrs.evolve(head, branch=None if name == "(detached)" else name)
        elif record.startswith("# branch.oid "):
            commit = record.removeprefix("# branch.oid ")
            head = attrs.evolve(head, commit=None if commit == "(initial)" else commit)
        elif (entry := _entry(record, repository.prefix)) is not None:
            entries.append(entry)
    return head, entries, not output.omitted_bytes


def _entry(record: str, prefix: str) -> _Entry | None:
    """Return the entry in a line of `git status --porcelain=v2`; None for a line that a model does not need."""
    kind, _, rest = record.partition(" ")
    if kind not in ("1", "u", "?"):
        return None
    path = rest if kind == "?" else rest.split(" ", 7 if kind == "1" else 9)[-1]
    path = path.removeprefix(prefix)
    parts = path.split("/")
    if is_record(parts) or any(part in PROTECTED_NAMES or part.startswith(TEMPORARY) for part in parts):
        return None
    return _Entry(path, rest[0], rest[1]) if kind == "1" else _Entry(path, kind, kind)


def _commit(repository: Repository, message: str, files: Sequence[str]) -> GitCommit:
    """Commit files as they are, with an index of our own; then put the same files into the repository's index, which keeps all others."""
    index = repository.shadow / "index"
    head = repository.head()
    repository.run_checked("read-tree", *([head] if head else ["--empty"]), index=index)
    path_list = b"".join(os.fsencode(path) + b"\0" for path in files)
    repository.run_checked(
        "update-index", "--add", "--remove", "--replace", "-z", "--stdin", stdin_data=path_list, index=index
    )
    tree = repository.run_checked("write-tree", index=index).head.decode().strip()
    if head and tree == repository.run_checked("rev-parse", f"{head}^{{tree}}").head.decode().strip():
        raise ToolError("these files are as they were at the last commit", code="nothing_to_commit")
    parent = ["-p", head] if head else []
    new = (
        repository.run_checked("commit-tree", tree, *parent, "-F", "-", stdin_data=message.encode())
        .head.decode()
        .strip()
    )
    _move(repository, head, new, message.splitlines()[0])
    raw_changes = repository.run_checked(
        "diff-tree", "-r", "-z", "--raw", "--no-renames", "--no-commit-id", "--root", new
    ).head
    names, is_taken = _update_index(repository, raw_changes)
    return GitCommit(
        new, tuple(names[:_MOST_SHOWN]), "" if is_taken else _INDEX_LOCK_NOTE, max(0, len(names) - _MOST_SHOWN)
    )


def _move(repository: Repository, old: str | None, new: str, subject: str) -> None:
    """Move the branch, or a detached HEAD, to the new commit. Raises ToolError `moved`."""
    head = repository.shadow / "HEAD"
    before = head.read_bytes()
    real = repository.place.own / "HEAD"
    output = repository.run("update-ref", "-m", f"commit: {subject}", "HEAD", new, old or "0" * len(new))
    if output.code:
        raise ToolError(
            "the branch was moved or is locked by another git process: look at git_status, then try again", code="moved"
        )
    if head.read_bytes() == before:
        return
    lock = real.with_name("HEAD.lock")
    try:
        file = os.open(lock, NEW, 0o666)
    except FileExistsError:
        raise ToolError("HEAD is locked by another git process: try again", code="moved") from None
    try:
        os.write(file, head.read_bytes())
        if real.read_bytes() != before:
            raise ToolError("HEAD was moved by another git process: look at git_status, then try again", code="moved")
        lock.rename(real)
    finally:
        os.close(file)
        lock.unlink(missing_ok=True)


def _update_index(repository: Repository, raw: bytes) -> tuple[list[str], bool]:
    """Put the committed files into the repository's index; return their paths in the workspace, and whether it succeeded."""
    records = _records(raw)
    lines, names = [], []
    for about, path in zip(records[::2], records[1::2], strict=True):
        _, mode, _, blob, _ = about.removeprefix(":").split(" ")
        lines.append(f"{mode} {blob}\t{path}\0")
        names.append(shown_path(path.removeprefix(repository.prefix)))
    output = repository.run("update-index", "-z", "--index-info", stdin_data=os.fsencode("".join(lines)))
    return names, not output.code


def _records(data: bytes) -> list[str]:
    """Return the records that end in NUL, without a last one that is cut."""
    return [os.fsdecode(record) for record in data.split(b"\0")[:-1]]


def _left_out(more: Mapping[str, int], *, is_whole: bool) -> str:
    """Return a sentence about the entries that are not shown, or an empty text."""
    if not more and is_whole:
        return ""
    counts_text = ", ".join(f"{count:,} more {name}" for name, count in more.items()) or "further files"
    beyond = "" if is_whole else ", and git lists more files than this tool reads"
    return f"{counts_text} are not shown{beyond}: list_dir and git_diff with a path show more of a folder"


def _change(path: str, letter: str) -> GitChange:
    return GitChange(shown_path(path), _CHANGES.get(letter, letter))


def _line_counts(record: str) -> CountedLines:
    """Return the counts in a line of `git diff --numstat`."""
    added_count, deleted_count, path = record.split("\t", 2)
    if added_count == "-":
        return CountedLines(shown_path(path), binary=True)
    return CountedLines(shown_path(path), added=int(added_count), deleted=int(deleted_count))


def _cut(text: str) -> str:
    text = shown_path(text.strip(), "\n\t")
    more = len(text) - _LONGEST_BODY
    return text if more <= 0 else f"{text[:_LONGEST_BODY]} [.. {more:,} characters left out ..]"


def _revision(repository: Repository, name: object) -> str:
    """Return the id of a commit by the name that a model gave. Raises ToolError."""
    commit = repository.commit(name) if isinstance(name, str) and _REVISION.fullmatch(name) else None
    if commit is None:
        text = "against must be the name of one commit: an id, a branch, a tag, or HEAD~1; git_log shows the ids"
        raise ToolError(text, code="bad_revision")
    return commit


def _message(message: object) -> str:
    if not isinstance(message, str) or not message.strip() or "\0" in message:
        raise ToolError("write a message that says what the commit changes", code="bad_message")
    if len(message) > _LONGEST_MESSAGE:
        raise ToolError(f"the message is longer than {_LONGEST_MESSAGE:,} characters: shorten it", code="bad_message")
    return message.strip().encode("utf-8", "replace").decode() + "\n"
