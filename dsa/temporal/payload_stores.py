"""Payload stores: payloads that are too long for the server are kept in a folder, in a remote git repository, or in your own object store, such as S3.

A store keeps bytes under names: that is all of `ObjectStore`. A payload's name is its SHA-256, so equal ones are kept once, any number of processes may
write at once, and a reader notices a change. Payloads are never removed: runs and branches may share them, and only the server knows which runs exist.
"""

import asyncio
import hashlib
import importlib
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import NamedTemporaryFile, mkdtemp
from threading import Lock
from typing import Protocol
from weakref import finalize

import attrs
from temporalio.api.common.v1 import Payload
from temporalio.converter import (
    DataConverter,
    ExternalStorage,
    StorageDriver,
    StorageDriverClaim,
    StorageDriverRetrieveContext,
    StorageDriverStoreContext,
)

from dsa.edge.processes import run_program
from dsa.errors import BindingError, DsaError
from dsa.runtime.run_store import StoreError
from dsa.temporal.payloads import CONVERTER

#: The size from which a payload is kept in a store, in bytes; the server keeps a reference.
LONGEST_INLINE = 64_000
#: The longest that git may take for one payload, in seconds, and the most bytes of one.
_GIT_S, _MOST_BYTES = 60.0, 64 * 2**20
_MODULE_PREFIX, _GIT_PREFIX = "python:", "git+"
#: The form of a remote repository for git, which excludes options: a path, an address, or USER@HOST:PATH.
_REMOTE = re.compile(r"/.*|(ssh|https?|file)://.+|[\w.-]+@[\w.-]+:.+")


class ObjectStore(Protocol):
    """A store of bytes under names of 64 hexadecimal digits. Both methods may be called from several event loops, each in a thread of its own.

    An error that they raise ends the effect, the event or the read that needed the payload; it is retried if the server retries that.
    """

    async def put(self, name: str, content: bytes) -> None:
        """Keep bytes, completely or not at all; they are durable when this returns. The same name always has the same bytes."""

    async def get(self, name: str) -> bytes:
        """Return the bytes of a name. Raises KeyError if there are none."""


class FolderStore:
    """A store in a folder that every client and worker reaches."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __str__(self) -> str:
        return str(self._folder)

    def _path(self, name: str) -> Path:
        return self._folder / name[:2] / name

    async def put(self, name: str, content: bytes) -> None:
        """Write a file. Raises OSError."""
        await asyncio.to_thread(self._write, name, content)

    async def get(self, name: str) -> bytes:
        """Read a file. Raises KeyError, OSError."""
        try:
            return await asyncio.to_thread(self._path(name).read_bytes)
        except FileNotFoundError as error:
            raise KeyError(name) from error

    def _write(self, name: str, content: bytes) -> None:
        path = self._path(name)
        if path.exists():
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        with NamedTemporaryFile(dir=path.parent, delete=False) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(file.name).replace(path)


class GitStore:
    """A store in a remote git repository. Each payload is a blob with a reference of its own, `refs/dsa/payloads/NAME`, so writers never collide.

    `remote` is what `git push` takes: a path, an address, USER@HOST:PATH. Git does not ask for a password: use a key or a credential helper.
    """

    def __init__(self, remote: str) -> None:
        self._remote, self._lock = remote, Lock()
        self._folder = ""

    def __str__(self) -> str:
        return self._remote

    async def put(self, name: str, content: bytes) -> None:
        """Push a blob. Raises StoreError."""
        await asyncio.to_thread(self._push, name, content)

    async def get(self, name: str) -> bytes:
        """Fetch a blob. Raises KeyError, StoreError."""
        return await asyncio.to_thread(self._fetch, name)

    def _push(self, name: str, content: bytes) -> None:
        blob = self._git("hash-object", "-w", "--stdin", content=content).decode().strip()
        try:
            self._git("push", "--quiet", "--no-verify", "--", self._remote, f"{blob}:{_reference(name)}")
        except StoreError:
            if not self._is_there(name):  # otherwise another process has pushed the same payload at this moment
                raise

    def _fetch(self, name: str) -> bytes:
        if not self._is_there(name):
            raise KeyError(name)
        reference = _reference(name)
        self._git(
            "fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--", self._remote, f"{reference}:{reference}"
        )
        return self._git("cat-file", "blob", reference)

    def _is_there(self, name: str) -> bool:
        return bool(self._git("ls-remote", "--quiet", "--", self._remote, _reference(name)))

    def _git(self, *words: str, content: bytes = b"") -> bytes:
        """Run git in a repository of this process, which has what was pushed and fetched."""
        with self._lock:
            if not self._folder:
                folder = mkdtemp(prefix="dsa-payloads-")
                finalize(self, shutil.rmtree, folder, ignore_errors=True)
                self._call("init", "--quiet", "--bare", "--template=", folder)
                self._folder = folder
        return self._call("--git-dir", self._folder, *words, content=content)

    def _call(self, *words: str, content: bytes = b"") -> bytes:
        try:
            result = run_program(("git", *words), content, timeout_s=_GIT_S, most_bytes=_MOST_BYTES)
        except DsaError as error:
            raise StoreError(f"the payload store {self._remote} failed: {error}") from error
        if result.code != 0:
            why = result.complaints.decode(errors="replace").strip() or f"git did not answer within {_GIT_S:.0f} s"
            raise StoreError(f"the payload store {self._remote} failed: {why}")
        return result.output


def _reference(name: str) -> str:
    return f"refs/dsa/payloads/{name}"


@attrs.frozen
class PayloadDriver(StorageDriver):
    """The storage driver of Temporal's SDK over a store."""

    _store: ObjectStore

    def name(self) -> str:
        """Return the name by which references say that they are in a store of this kind."""
        return "dsa.objects"

    async def store(self, context: StorageDriverStoreContext, payloads: Sequence[Payload]) -> list[StorageDriverClaim]:  # noqa: ARG002
        """Keep payloads, and return their references. Raises what the store does."""
        return list(await asyncio.gather(*(self._put(each.SerializeToString()) for each in payloads)))

    async def retrieve(
        self,
        context: StorageDriverRetrieveContext,  # noqa: ARG002  (the signature of a driver)
        claims: Sequence[StorageDriverClaim],
    ) -> list[Payload]:
        """Read payloads. Raises StoreError for one that is missing or was changed, and what the store raises."""
        contents = await asyncio.gather(*(self._get(each.claim_data["sha256"]) for each in claims))
        return [Payload.FromString(each) for each in contents]

    async def _put(self, content: bytes) -> StorageDriverClaim:
        name = hashlib.sha256(content).hexdigest()
        await self._store.put(name, content)
        return StorageDriverClaim({"sha256": name})

    async def _get(self, name: str) -> bytes:
        try:
            content = await self._store.get(name)
        except (KeyError, OSError) as error:
            why = "is missing" if isinstance(error, KeyError) else f"cannot be read: {error.strerror}"
            raise StoreError(
                f"payload {name} {why} in {self._store}. Do all workers and clients use the same store?"
            ) from error
        if hashlib.sha256(content).hexdigest() != name:
            raise StoreError(f"payload {name} in {self._store} was changed: its content does not match its name")
        return content


def store_of(address: str) -> ObjectStore:
    """Return the store that `?store=` names: `/FOLDER`, `git+REMOTE`, or `python:MODULE:NAME` for your own `ObjectStore`.

    Raises BindingError.
    """
    if address.startswith("/"):
        return FolderStore(Path(address))
    if address.startswith(_GIT_PREFIX):
        remote = address.removeprefix(_GIT_PREFIX)
        remote = re.sub(r"^(ssh|https?):/(?=[^/])", r"\1://", remote)  # paths have lost a slash
        remote = re.sub(r"^file:/(?=[^/])", "file:///", remote)
        if _REMOTE.fullmatch(remote):
            return GitStore(remote)
    module, _, name = address.removeprefix(_MODULE_PREFIX).partition(":")
    if not address.startswith(_MODULE_PREFIX) or not name:
        raise BindingError(
            f"{address} is not a store: write /FOLDER, git+REMOTE such as git+ssh://git@host/payloads.git, or python:MODULE:NAME"
        )
    try:
        store: ObjectStore = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise BindingError(f"{address} cannot be loaded: {error}") from error
    missing = [each for each in ("put", "get") if not callable(getattr(store, each, None))]
    if missing:
        raise BindingError(
            f"{address} cannot be used as a store: it has no method `{missing[0]}`; a store has the methods `put` and `get`"
        )
    return store


def converter_with(store: ObjectStore | None) -> DataConverter:
    """Return the converter for a namespace whose long payloads are in a store; with None the server keeps all of them."""
    if store is None:
        return CONVERTER
    external = ExternalStorage(drivers=[PayloadDriver(store)], payload_size_threshold=LONGEST_INLINE)
    return replace(CONVERTER, external_storage=external)


#: Why a worker cannot read a run whose payloads are in a store.
OTHER_STORE = (
    "its long payloads are in a store that the worker does not use: start all workers with the same ?store=STORE"
)


def is_stored_elsewhere(error: Exception) -> bool:
    """Return whether an error says that a payload is in a store, but none is set. The SDK has a number for this rule."""
    return "[TMPRL1105]" in str(error)


@contextmanager
def store_errors(what: str) -> Iterator[None]:
    """Raise StoreError if a payload is in a store, but the address does not name one."""
    try:
        yield
    except RuntimeError as error:
        if not is_stored_elsewhere(error):
            raise
        raise StoreError(
            f"{what}: its long payloads are in a store; add to the address the store that the workers use: temporal://HOST:PORT/NAMESPACE?store=STORE"
        ) from error
