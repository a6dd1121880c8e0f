r"""Git objects, trees, commits and messages: written durably, and read back.

`DurableObjects` is GitPython's default object database, made to survive a power cut. An object is complete and on disk before it has its name, and its
content is checked against its id when it is read. A git process is started only to read what `git gc` has packed.

`path_parts` makes from any text a path that git and every file system accept, and `name_of` reads it back. ASCII letters, digits, `_`, `-` and,
where git allows it, `.` stay; every other byte of the UTF-8 text becomes `%XX`. A name that is too long for a file continues one folder deeper. The
result never has a plus sign, so that others can make names of their own.

A tree object is a list of `MODE NAME NUL SHA`, sorted as git sorts. The history of a run is the chain of first parents.

`message_of` writes a record as a commit message for people and `git log`, and `record_in` reads it back exactly. The message is a subject and one
block of trailers (git-interpret-trailers(1)). A value of several lines is folded, each line behind `  | `, so that no text is taken for a trailer.
A character that is not printable is written `\uXXXX`, and a backslash `\\`: git stores no NUL, and no text may move a terminal's cursor.
"""

import hashlib
import os
import re
import subprocess
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from secrets import token_hex
from typing import Any, TypeVar
from urllib.parse import quote, unquote

import attrs
from git import Git
from git.db import GitCmdObjectDB
from gitdb import IStream

from dsa.runtime.artifacts import AttemptRecord, artifact_store_error
from dsa.runtime.generation import Usage
from dsa.runtime.ledger import GuardVerdict, VerdictEntry, VerdictLabel
from dsa.runtime.run_store import StoreError

_TRIES = 10  # `git prune` may remove an empty folder, or a temporary file, between two of our calls
_LEVEL = 1  # git's own choice for loose objects


class SyncFailed(OSError):  # noqa: N818  # it says what happened
    """Raised when the system cannot confirm that data is on disk. Syncing the same file again may wrongly succeed."""


def sync(descriptor: int) -> None:
    """Write the data of a file, or the names of a folder, to disk."""
    try:
        os.fsync(descriptor)
    except OSError as fault:
        raise SyncFailed(fault.errno, f"the disk could not store the data: {fault.strerror}") from fault


def sync_path(path: Path) -> None:
    """Write a file or a folder to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        sync(descriptor)
    finally:
        os.close(descriptor)


def write_synced(descriptor: int, data: bytes) -> None:
    """Write all of the data, and sync it to disk."""
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]
    sync(descriptor)


def write_new(path: Path, data: bytes, mode: int = 0o666) -> None:
    """Write a new file, and sync it to disk; a failure leaves no file."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        write_synced(descriptor, data)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    finally:
        os.close(descriptor)


class DurableObjects(GitCmdObjectDB):  # type: ignore[misc]  # GitPython is not typed for us
    """GitPython's default object database, with a durable `store`.

    GitPython's own starts a process for each object, or renames a file into place without syncing it, and takes any file with the right
    name for the object, even a torn one.
    """

    def __init__(self, repository: Path) -> None:
        super().__init__(str(repository / "objects"), Git(str(repository)))
        self.repository = repository
        self._folders = repository / "objects"
        self._synced_folders: set[str] = set()  # our folders whose own entry is on disk

    # -- writing ------------------------------------------------------------------------------------------------------

    def write(self, kind: str, body: bytes) -> str:
        """Write an object to disk and return its id."""
        stream: IStream = self.store(IStream(kind, len(body), BytesIO(body)))
        return str(stream.hexsha.decode("ascii"))

    def store(self, istream: IStream) -> IStream:
        """Write an object to disk (GitPython's interface). Raises OSError."""
        data = b"%s %d\0" % (_kind(istream.type), istream.size) + istream.read()
        istream.binsha = hashlib.sha1(data, usedforsecurity=False).digest()
        path = self._path(istream.binsha.hex())
        for tries_left in reversed(range(_TRIES)):
            try:
                if not self._keeps(path, istream.binsha.hex()):
                    self._put(path, data)
                self._sync_folder(path.parent)
                break
            except FileNotFoundError:
                self._synced_folders.discard(path.parent.name)
                if not tries_left:
                    raise
        return istream

    def _keeps(self, path: Path, object_id: str) -> bool:
        """Sync an object that has a file already, and return True. Remove a file that a power cut has torn."""
        try:
            if self.loose(object_id) is None:
                return False
        except StoreError:
            path.unlink()
            return False
        os.utime(path)  # as git does: `git gc` removes nothing that is new
        sync_path(path)
        return True

    def _put(self, path: Path, data: bytes) -> None:
        path.parent.mkdir(exist_ok=True)
        temporary = path.with_name(f"tmp_obj_{token_hex(8)}")  # `git gc` removes files with such a name
        write_new(temporary, zlib.compress(data, _LEVEL), 0o444)
        temporary.rename(path)

    def _sync_folder(self, folder: Path) -> None:
        sync_path(folder)
        if folder.name not in self._synced_folders:
            sync_path(self._folders)
            self._synced_folders.add(folder.name)

    # -- reading ------------------------------------------------------------------------------------------------------

    def has_loose(self, object_id: str) -> bool:
        """Return whether an object has a file of its own."""
        return self._path(object_id).exists()

    def loose(self, object_id: str) -> bytes | None:
        """Return the body of an object that has a file of its own; None for others."""
        try:
            descriptor = os.open(f"{self._folders}/{object_id[:2]}/{object_id[2:]}", os.O_RDONLY)
        except FileNotFoundError:
            return None
        with open(descriptor, "rb") as file:  # noqa: PTH123  (thousands are read at a time)
            compressed_body = file.read()
        try:
            data = zlib.decompress(compressed_body)
        except zlib.error as fault:
            raise self._damage_error(object_id, str(fault)) from fault
        return self._verify_body(object_id, data)

    def read(self, object_id: str) -> bytes:
        """Return the body of an object. StoreError when it is missing or damaged."""
        return self.read_all([object_id])[object_id]

    def read_all(self, object_ids: Iterable[str]) -> Mapping[str, bytes]:
        """Return the bodies of objects; one git process reads all packed ones."""
        bodies = {object_id: self.loose(object_id) for object_id in object_ids}
        packed_ids = [object_id for object_id, body in bodies.items() if body is None]
        bodies |= self._read_packed(packed_ids) if packed_ids else {}
        for object_id, body in bodies.items():
            if body is None:
                raise self._damage_error(object_id, "it is missing")
        return {object_id: body for object_id, body in bodies.items() if body is not None}

    def missing(self, object_ids: Iterable[str]) -> list[str]:
        """Return the objects that are missing."""
        absent = [object_id for object_id in object_ids if not self.has_loose(object_id)]
        bodies = self._read_packed(absent) if absent else {}
        return [object_id for object_id in absent if bodies[object_id] is None]

    def first_parents(self, commit: str, known_commit: str | None) -> list[str]:
        """Return a commit and its first parents, newest first, down to one that is known."""
        until = ["--not", known_commit] if known_commit else []
        return run_git(self.repository, "rev-list", "--first-parent", commit, *until).decode("ascii").split()

    def _read_packed(self, object_ids: list[str]) -> dict[str, bytes | None]:
        answer = run_git(
            self.repository, "cat-file", "--batch", "--buffer", input_bytes="\n".join(object_ids).encode("ascii")
        )
        bodies: dict[str, bytes | None] = {}
        at = 0
        for object_id in object_ids:
            end = answer.index(b"\n", at)
            words = answer[at:end].split(b" ")
            at = end + 1
            if words[-1] == b"missing":
                bodies[object_id] = None
            else:
                size = int(words[2])
                data = b"%s %d\0" % (words[1], size) + answer[at : at + size]
                bodies[object_id] = self._verify_body(object_id, data)
                at += size + 1
        return bodies

    def _verify_body(self, object_id: str, data: bytes) -> bytes:
        if hashlib.sha1(data, usedforsecurity=False).hexdigest() != object_id:
            raise self._damage_error(object_id, "its content does not match its id")
        return data[data.index(b"\0") + 1 :]

    def _path(self, object_id: str) -> Path:
        return self._folders / object_id[:2] / object_id[2:]

    def _damage_error(self, object_id: str, how: str) -> StoreError:
        return artifact_store_error(self.repository, f"object {object_id} is damaged ({how}); run `git fsck`")


def run_git(repository: Path, *arguments: str, input_bytes: bytes = b"") -> bytes:
    """Return the output of git. GIT_* variables of a hook or a user are not passed on: they may name another repository."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    command = [Git.GIT_PYTHON_GIT_EXECUTABLE, f"--git-dir={repository}", "--no-replace-objects", *arguments]
    result = subprocess.run(  # noqa: S603  (the program is GitPython's; what is asked goes in as arguments of ours)
        command, input=input_bytes, capture_output=True, check=False, env=environment | {"LC_ALL": "C"}
    )
    if result.returncode:
        message = result.stderr.decode("utf-8", "replace").strip()
        raise artifact_store_error(
            repository, f"git {arguments[0]} failed: {message or f'exit code {result.returncode}'}"
        )
    return result.stdout


def _kind(kind: str | bytes) -> bytes:
    return kind.encode("ascii") if isinstance(kind, str) else kind


_LONGEST_PART = 200  # bytes; with `.lock` or `+next.lock` behind it a file's name still fits into 255
_EMPTY = "%"  # no name becomes a bare percent sign
_MORE = "%"  # ends a part that continues; no escaped text ends like this
_FIRST_DOT = re.compile(r"\A\.")
_BAD_DOT = re.compile(r"\A\.|\.(?=\.|\Z)|\.(?=lock\Z)")  # git-check-ref-format(1)


def path_parts(name: str) -> tuple[str, ...]:
    """Return the parts of a name's path. Different names give different paths, none of them above another."""
    safe = _BAD_DOT.sub("%2E", quote(name, safe="", errors="surrogatepass").replace("~", "%7E"))
    pieces = [safe[at : at + _LONGEST_PART] for at in range(0, len(safe), _LONGEST_PART)] or [_EMPTY]
    return tuple(_FIRST_DOT.sub("%2E", piece) for piece in [*(piece + _MORE for piece in pieces[:-1]), pieces[-1]])


def file_name(name: str) -> str:
    """Return a file name for a name. Long ones are cut, stay different, and cannot be read back."""
    first, *more = path_parts(name)
    digest = sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{first[:_LONGEST_PART]}+{digest[:16]}" if more else first


def name_of(parts: Sequence[str]) -> str:
    """Return the name from which `path_parts` made a path."""
    safe = "".join([part.removesuffix(_MORE) for part in parts[:-1]] + [parts[-1]])
    return "" if safe == _EMPTY else unquote(safe, errors="surrogatepass")


FILE, FOLDER = "100644", "40000"

#: Entries by name: mode and id, 40 hex digits.
Tree = Mapping[str, tuple[str, str]]


def read_tree(body: bytes) -> Tree:
    """Read a tree object."""
    entries, at = {}, 0
    while at < len(body):
        end = body.index(b"\0", at)
        mode, _, name = body[at:end].decode("utf-8", "surrogateescape").partition(" ")
        at = end + 21
        entries[name] = (mode, body[end + 1 : at].hex())
    return entries


def with_entry(tree: Tree, name: str, mode: str, object_id: str) -> Tree:
    """Return the tree with one entry more, or another in its place."""
    return {**tree, name: (mode, object_id)}


def write_tree(tree: Tree) -> bytes:
    """Write a tree object: names sorted as bytes, those of folders as if they ended with a slash."""
    entries = ((name.encode("utf-8", "surrogateescape"), mode, object_id) for name, (mode, object_id) in tree.items())
    sorted_entries = sorted(entries, key=lambda entry: entry[0] + (b"/" if entry[1] == FOLDER else b""))
    return b"".join(b"%s %s\0%s" % (mode.encode(), name, bytes.fromhex(id_)) for name, mode, id_ in sorted_entries)


_WHO = b"dsa <dsa@localhost>"  # the message names people and models; git's own identities are of no use here


@attrs.frozen
class CommitObject:
    """One commit. `parent` is its first."""

    commit_id: str
    tree: str
    parent: str | None
    message: str


def commit_bytes(tree: str, parent: str | None, message: bytes, *, now_s: float) -> bytes:
    """Write a commit object; `now_s` counts from 1970, UTC."""
    above = [f"parent {parent}".encode("ascii")] if parent else []
    who = b"%s %d +0000" % (_WHO, now_s)
    return b"\n".join([f"tree {tree}".encode("ascii"), *above, b"author " + who, b"committer " + who, b"", message])


def read_commit(commit_id: str, body: bytes) -> CommitObject:
    """Read a commit object. Those of other programs may be in any encoding."""
    head, _, message = body.partition(b"\n\n")
    lines = head.decode("utf-8", "replace").split("\n")
    parents = [line.removeprefix("parent ") for line in lines if line.startswith("parent ")]
    return CommitObject(
        commit_id, lines[0].removeprefix("tree "), parents[0] if parents else None, message.decode("utf-8", "replace")
    )


def history(objects: DurableObjects, tip: str, known_commit: str | None) -> list[CommitObject]:
    """Return the commits from the first to `tip`, or from the one after `known_commit`, oldest first.

    If the chain does not lead to `known_commit`, the first commit returned has a different parent, and may not be the run's first.
    """
    commits: list[CommitObject] = []
    at: str | None = tip
    while at is not None and at != known_commit:
        body = objects.loose(at)
        if body is None:
            commits.extend(_packed_history(objects, at, known_commit))
            break
        commits.append(read_commit(at, body))
        at = commits[-1].parent
    return commits[::-1]


def _packed_history(objects: DurableObjects, tip: str, known_commit: str | None) -> list[CommitObject]:
    ids = objects.first_parents(tip, known_commit)
    bodies = objects.read_all(ids)
    return [read_commit(commit_id, bodies[commit_id]) for commit_id in ids]


T = TypeVar("T")

_KIND = "Dsa-Record"
_FOLD = "  |"
_NEXT = "\0"  # stands for the fold while a message is read; no message of ours has one
_LONGEST_TITLE = 60
_ESCAPE = re.compile(r"\\(?:\\|u([0-9a-f]{4})|U([0-9a-f]{8}))")


def message_of(run_id: str, record: AttemptRecord | VerdictEntry, path: str = "") -> bytes:
    """Write the message of a record. `path` is where the commit's tree has the artifact's text."""
    if isinstance(record, AttemptRecord):
        kind, number, title, trailers = "artifact", record.version, "", [*_attempt_trailers(record), ("Path", path)]
    else:
        kind, number, title, trailers = "verdict", record.attempt, f" {record.label}", _verdict_trailers(record)
    about = [(_KIND, kind), ("Run", run_id), ("Step", record.step), ("Attempt", str(number))]
    subject = f"{_line(record.step)[:_LONGEST_TITLE]}: attempt {number}{title}".replace("\n", " ")
    return "\n".join([subject, "", *(_trailer(name, value) for name, value in (*about, *trailers)), ""]).encode()


def _attempt_trailers(attempt: AttemptRecord) -> list[tuple[str, str]]:
    return [
        ("Artifact", attempt.artifact_id),
        ("Content-Digest", attempt.content_digest),
        *([("Refines", attempt.parent_id)] if attempt.parent_id else []),
        *(("Uses", used_id) for used_id in attempt.dependency_ids),
        ("Generator", attempt.author),
        *(("Redacted", name) for name in attempt.redacted),
        *([] if attempt.usage is None else _usage_trailers(attempt.usage)),
    ]


def _usage_trailers(usage: Usage) -> list[tuple[str, str]]:
    counts = ("Prompt-Tokens", usage.prompt_tokens), ("Completion-Tokens", usage.completion_tokens)
    cost = [] if usage.cost_usd is None else [("Cost-Usd", repr(float(usage.cost_usd)))]
    tokens = [(name, str(int(count))) for name, count in counts if count is not None]
    response_model = [("Response-Model", usage.response_model)] if usage.response_model else []
    return [("Model", usage.model), *response_model, ("Seconds", repr(float(usage.seconds))), *tokens, *cost]


def _verdict_trailers(verdict: VerdictEntry) -> list[tuple[str, str]]:
    guard_trailers = [
        pair
        for judgement in verdict.judgements
        for pair in (("Guard", judgement.guard), ("Outcome", judgement.label), ("Feedback", judgement.feedback))
    ]
    about = [("Artifact", verdict.artifact_id), ("Verdict", verdict.label)]
    return [*about, *guard_trailers, ("Seconds", repr(float(verdict.seconds))), ("Key", verdict.key)]


def _trailer(name: str, value: str) -> str:
    if "\n" in value:
        return "\n".join([f"{name}: |", *(f"{_FOLD} {_line(line)}" for line in value.split("\n"))])
    line = _line(value)
    return f"{name}: {line}" if line != "|" else f"{name}: \\u007c"


def _line(text: str) -> str:
    """Write one line of text so that it is printable."""
    text = text.replace("\\", "\\\\")
    return text if text.isprintable() else "".join(c if c.isprintable() or c == "\t" else _code(c) for c in text)


def _code(character: str) -> str:
    number = ord(character)
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"  # noqa: PLR2004  (four hex digits)


# -- and back ---------------------------------------------------------------------------------------------------------


def record_in(message: str) -> tuple[AttemptRecord | VerdictEntry, str] | None:
    """Read a record and its path; None for a commit of another program. Raises ValueError when something is missing."""
    _, _, block = message.partition("\n\n")
    if not block.startswith(f"{_KIND}: "):
        return None
    fields = _fields(block)
    try:
        if fields[_KIND] == ["artifact"]:
            return _attempt(fields), fields["Path"][0]
        return _verdict(fields), ""
    except KeyError as missing:
        raise ValueError(f"the trailer {missing.args[0]} is missing") from missing


def _fields(block: str) -> Mapping[str, list[str]]:
    fields: dict[str, list[str]] = {}
    for line in block.replace(f"\n{_FOLD}", _NEXT).removesuffix("\n").split("\n"):
        name, _, value = line.partition(":")
        fields.setdefault(name, []).append(_text(value))
    return fields


def _text(value: str) -> str:
    value = "\n".join(line[1:] for line in value.split(_NEXT)[1:]) if _NEXT in value else value[1:]
    if "\\" not in value:
        return value
    return _ESCAPE.sub(lambda match: chr(int(match[1] or match[2], 16)) if match[1] or match[2] else "\\", value)


def _attempt(fields: Mapping[str, list[str]]) -> AttemptRecord:
    one = {name: values[0] for name, values in fields.items()}
    return AttemptRecord(
        one["Artifact"], one["Step"], int(one["Attempt"]), one["Content-Digest"], one.get("Refines"),
        tuple(fields.get("Uses", ())), one["Generator"], _usage(one) if "Model" in one else None,
        redacted=tuple(fields.get("Redacted", ())), run_id=one["Run"],
    )  # fmt: skip


def _usage(one: Mapping[str, str]) -> Usage:
    prompt, completion = (_read(int, one.get(name)) for name in ("Prompt-Tokens", "Completion-Tokens"))
    cost = _read(float, one.get("Cost-Usd"))
    return Usage(one["Model"], float(one["Seconds"]), prompt, completion, cost, one.get("Response-Model", ""))


def _read(kind: Callable[[str], T], value: str | None) -> T | None:
    return None if value is None else kind(value)


def _judgement(guard: str, label: VerdictLabel, feedback: str) -> GuardVerdict:
    """Return a guard's verdict from its label."""
    return (
        GuardVerdict(guard, "fatal", feedback, review=True)
        if label == "review"
        else GuardVerdict(guard, label, feedback)
    )


def _verdict(fields: Mapping[str, list[str]]) -> VerdictEntry:
    judgements: Iterable[Any] = zip(*(fields.get(name, ()) for name in ("Guard", "Outcome", "Feedback")), strict=True)
    return VerdictEntry(
        fields["Key"][0], fields["Step"][0], int(fields["Attempt"][0]), fields["Artifact"][0],
        tuple(_judgement(*judgement) for judgement in judgements), float(fields["Seconds"][0]),
    )  # fmt: skip
