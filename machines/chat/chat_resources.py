"""The bytes of artifacts and tables, by their content: on the disk before anybody speaks of them.

Takes bytes, gives their SHA-256; a file that is there already is not written again. `shown` puts artifacts under their names, for people.

What the policies of one conversation work with: its data, its Python, its files, its model, and what its ledger says so far.

Made from the settings that its run was started with, once in a process, and made again the same after a crash.
"""

import hashlib
import os
import tempfile
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cached_property
from itertools import islice
from pathlib import Path

import attrs

from dsa.runtime.run import Run
from machines.chat.chat_tools import CONTEXT_TOKENS
from machines.chat.conversation import ChatArtifact, ChatConversation
from machines.chat.python import Interpreter, PythonError
from machines.chat.sql import SqlDatabase
from machines.tool_use.chat_model import Model, ModelOptions, model_of
from machines.tool_use.machine_session import RunResources
from machines.tool_use.records import JsonObject, read_record
from machines.tool_use.transcript import CHARS_PER_TOKEN

#: The folder of artifacts under their names, in the folder of a run.
NAMED = "files"


class Files:
    """Contents in a folder, one file each."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._contents = folder, folder / "contents"
        self._shown = 0

    def keep(self, content: bytes) -> str:
        """Keep bytes, and return their SHA-256; they are durable when this returns. OSError when they cannot be written."""
        digest = hashlib.sha256(content).hexdigest()
        path = self._contents / digest
        if not path.exists():
            self._contents.mkdir(parents=True, exist_ok=True)
            _write(path, content)
        return digest

    def content(self, digest: str) -> bytes:
        """Return bytes by their SHA-256. OSError when they are not there, ValueError when they are not what they were."""
        content = (self._contents / digest).read_bytes()
        if hashlib.sha256(content).hexdigest() != digest:
            raise ValueError(f"the file {self._contents / digest} is not what was written")
        return content

    def path(self, digest: str) -> Path:
        """Return where bytes are kept."""
        return self._contents / digest

    def shown(self, artifacts: Iterable[ChatArtifact]) -> None:
        """Put artifacts under their names, each once; it looks at those that were added since the last time."""
        for artifact in islice(artifacts, self._shown, None):
            path = self.named(artifact)
            if not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                _write(path, self.content(artifact.digest))
            self._shown += 1

    def named(self, artifact: ChatArtifact) -> Path:
        """Return where people find an artifact."""
        return self._folder / NAMED / artifact.file_name


def _write(path: Path, content: bytes) -> None:
    """Write a file whole or not at all, and make it durable."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)  # noqa: PTH105  (what mkstemp gives is a text)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


Listener = Callable[[str], object]
#: Beside the conversation there has to be room for what is said of data and tools, and for the answer.
_BESIDE_TOKENS = 8_192


@attrs.frozen
class ChatSettings:
    """What policies read of how a conversation was begun: the files to load, who answers, and how.

    `format` is none, or report; without `normalise` and `dedup` calls are taken as they come. `context_tokens` is how long a request may be, where somebody has said so.
    """

    data: tuple[str, ...] = ()
    model: str = ""
    seed: int | None = None
    format: str = "none"
    normalise: bool = True
    dedup: bool = True
    context_tokens: int | None = None


class ChatResources:
    """Everything of one conversation. `config` is what the run was started with (see `ChatSettings`), `folder` its own folder.

    `listen` is called with the model's text as it comes, `notice` with why a model that failed is asked again.
    """

    def __init__(self, config: JsonObject, folder: Path) -> None:
        self._settings = read_record(ChatSettings, config)
        self._folder = folder
        self._conversation = ChatConversation()
        self.files = Files(folder)
        self.listen: Listener = lambda _text: None
        self.notice: Listener = lambda _text: None

    def conversation(self, run: Run) -> ChatConversation:
        """Return what the run's ledger says."""
        if self._conversation.taken > len(run.ledger):
            self._conversation = ChatConversation()
        self._conversation.take(run.ledger.after(self._conversation.taken))
        return self._conversation

    @cached_property
    def database(self) -> SqlDatabase:
        """The data; loaded at its first use. Raises LoadError."""
        return SqlDatabase([Path(path) for path in self._settings.data], self._folder)

    @property
    def is_loaded(self) -> bool:
        """Return whether the data is at hand, so that nobody waits for it."""
        return "database" in self.__dict__

    @cached_property
    def interpreter(self) -> Interpreter:
        """Python in the sandbox."""
        return Interpreter()

    def warm(self) -> None:
        """Start Python while nobody waits for it yet. What keeps it from starting is said where it is needed."""

        def start() -> None:
            with suppress(PythonError):
                self.interpreter.warm()

        threading.Thread(target=start, daemon=True).start()

    @cached_property
    def model(self) -> Model:
        """Who answers. Raises ModelUnavailable, DocumentError."""
        tokens = self._settings.context_tokens
        window = None if tokens is None else tokens + _BESIDE_TOKENS
        return model_of(
            self.asked_model, ModelOptions(self._settings.seed or 0, on_wait=self.tell, window_tokens=window)
        )

    @property
    def asked_model(self) -> str:
        """The model as it is named."""
        return self._settings.model

    def tell(self, text: str) -> None:
        """Tell whoever watches how the model is asked."""
        self.notice(text)

    @property
    def normalises(self) -> bool:
        """Return whether arguments are mended."""
        return self._settings.normalise

    @property
    def dedups(self) -> bool:
        """Return whether it is noticed that something was done before."""
        return self._settings.dedup

    @property
    def wants_report(self) -> bool:
        """Return whether each answer becomes a report."""
        return self._settings.format == "report"

    @property
    def context_chars(self) -> int:
        """How long the conversation in a request may be."""
        return (self._settings.context_tokens or CONTEXT_TOKENS) * CHARS_PER_TOKEN

    @property
    def is_limited(self) -> bool:
        """Return whether somebody has said how long it may be."""
        return self._settings.context_tokens is not None

    def close(self) -> None:
        """Let go of the data."""
        if self.is_loaded:
            self.database.close()
            del self.database


KNOWN = RunResources(ChatResources)
resources_in = KNOWN.of
