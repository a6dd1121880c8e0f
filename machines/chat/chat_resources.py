"""Resources of a conversation: its data, its Python, its files, its model, and the conversation itself.

They are made from the settings of the run, once in a process, and are the same again after a crash. `Files` stores the bytes of artifacts and tables by
their SHA-256, durably before any ledger names them; `publish` writes artifacts under their names, for people.
"""

import hashlib
import os
import tempfile
import threading
from collections.abc import Iterable
from contextlib import suppress
from functools import cached_property
from itertools import islice
from pathlib import Path

import attrs

from dsa.errors import ToolError
from dsa.runtime.run import Run
from machines.chat.chat_tools import CONTEXT_TOKENS
from machines.chat.conversation import ChatArtifact, ChatConversation
from machines.chat.python import Interpreter
from machines.chat.sql import SqlDatabase
from machines.tool_use.chat_model import Model, ModelOptions, model_of
from machines.tool_use.machine_session import Listener, RunResources
from machines.tool_use.records import JsonObject, read_record
from machines.tool_use.transcript import CHARS_PER_TOKEN

#: The folder of artifacts under their names, inside the folder of a run.
FILES_FOLDER = "files"


class Files:
    """A folder with one file for each content."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._contents = folder, folder / "contents"
        self._published_count = 0

    def keep(self, content: bytes) -> str:
        """Store bytes, and return their SHA-256. They are durable when this returns. Raises OSError when they cannot be written."""
        digest = hashlib.sha256(content).hexdigest()
        path = self._contents / digest
        if not path.exists():
            self._contents.mkdir(parents=True, exist_ok=True)
            _write(path, content)
        return digest

    def content(self, digest: str) -> bytes:
        """Return bytes by their SHA-256. Raises OSError when they are missing, ValueError when the file has changed."""
        content = (self._contents / digest).read_bytes()
        if hashlib.sha256(content).hexdigest() != digest:
            raise ValueError(f"the file {self._contents / digest} has changed since it was written")
        return content

    def path(self, digest: str) -> Path:
        """Return the path of stored bytes."""
        return self._contents / digest

    def publish(self, artifacts: Iterable[ChatArtifact]) -> None:
        """Write the artifacts since the last call under their names, each once."""
        for artifact in islice(artifacts, self._published_count, None):
            path = self.public_path(artifact)
            if not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                _write(path, self.content(artifact.digest))
            self._published_count += 1

    def public_path(self, artifact: ChatArtifact) -> Path:
        """Return the path of an artifact for people."""
        return self._folder / FILES_FOLDER / artifact.file_name


def _write(path: Path, content: bytes) -> None:
    """Write a file whole or not at all, and make it durable."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)  # noqa: PTH105  (mkstemp returns a text)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


#: A request needs room beside the conversation: for the description of data and tools, and for the answer.
_BESIDE_TOKENS = 8_192


@attrs.frozen
class ChatSettings:
    """Settings of a conversation for its policies: the files to load, the model, and options.

    `format` is none or report. Without `normalise` calls are not fixed; without `dedup` repetitions are not detected. `context_tokens` is the limit of a
    request, if the user has set one.
    """

    data: tuple[str, ...] = ()
    model: str = ""
    seed: int | None = None
    format: str = "none"
    normalise: bool = True
    dedup: bool = True
    context_tokens: int | None = None


class ChatResources:
    """The resources of one conversation. `config` has the settings of the run (`ChatSettings`), `folder` is the run's own folder.

    `listen` is called with the model's text as it comes, `notice` with the reason when a model is asked again.
    """

    def __init__(self, config: JsonObject, folder: Path) -> None:
        self._settings = read_record(ChatSettings, config)
        self._folder = folder
        self._conversation = ChatConversation()
        self.files = Files(folder)
        self.listen: Listener = lambda _text: None
        self.notice: Listener = lambda _text: None

    def conversation(self, run: Run) -> ChatConversation:
        """Return the conversation up to the end of the run's ledger."""
        if self._conversation.count > len(run.ledger):
            self._conversation = ChatConversation()
        self._conversation.take(run.ledger.after(self._conversation.count))
        return self._conversation

    @cached_property
    def database(self) -> SqlDatabase:
        """The data, loaded at first use. Raises DocumentError."""
        return SqlDatabase([Path(path) for path in self._settings.data], self._folder)

    @property
    def is_loaded(self) -> bool:
        """Whether the data is loaded."""
        return "database" in self.__dict__

    @cached_property
    def interpreter(self) -> Interpreter:
        """Python in the sandbox."""
        return Interpreter()

    def warm(self) -> None:
        """Start Python in the background. A failure is reported by the first call that needs it."""

        def start() -> None:
            with suppress(ToolError):
                self.interpreter.warm()

        threading.Thread(target=start, daemon=True).start()

    @cached_property
    def model(self) -> Model:
        """The model. Raises ModelUnavailable, DocumentError."""
        tokens = self._settings.context_tokens
        window = None if tokens is None else tokens + _BESIDE_TOKENS
        return model_of(
            self.model_name, ModelOptions(self._settings.seed or 0, on_wait=self.tell, window_tokens=window)
        )

    @property
    def model_name(self) -> str:
        """The name of the model."""
        return self._settings.model

    def tell(self, text: str) -> None:
        """Pass a notice about the model on to the display."""
        self.notice(text)

    @property
    def normalises(self) -> bool:
        """Whether arguments are fixed."""
        return self._settings.normalise

    @property
    def dedups(self) -> bool:
        """Whether repeated calls and equal artifacts are detected."""
        return self._settings.dedup

    @property
    def wants_report(self) -> bool:
        """Whether each answer becomes a report."""
        return self._settings.format == "report"

    @property
    def context_chars(self) -> int:
        """The limit of the conversation in a request, in characters."""
        return (self._settings.context_tokens or CONTEXT_TOKENS) * CHARS_PER_TOKEN

    @property
    def is_limited(self) -> bool:
        """Whether the user has set that limit."""
        return self._settings.context_tokens is not None

    def close(self) -> None:
        """Close the data."""
        if self.is_loaded:
            self.database.close()
            del self.database


RESOURCES = RunResources(ChatResources)
resources_in = RESOURCES.of
