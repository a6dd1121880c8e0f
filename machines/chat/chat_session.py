"""Chat sessions: a conversation that this process begins or resumes, with its resources. Messages go in, turns come out.

Acknowledged messages are in the ledger, so a killed process loses nothing: `Chat.resume` continues at the same place, even inside a turn.

The resources are data, Python, files, the model, and the conversation itself. They are made from the settings of the run, once in a process, and are the same
again after a crash. `Files` stores the bytes of artifacts and tables by their SHA-256, durably before any ledger names them; `publish` writes artifacts under
their names, for people.
"""

import hashlib
import os
import tempfile
import threading
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cached_property
from itertools import islice
from pathlib import Path

import attrs

from dsa.errors import DsaError, ToolError
from dsa.expr import Value
from dsa.runs.door import Runs
from dsa.runs.handle import RunHandle
from dsa.runs.setup import Options
from dsa.runtime.run import Run
from dsa.runtime.secrets import SecretOptions
from dsa.semantics import Occurrence
from machines.chat.chat_tools import CONTEXT_TOKENS
from machines.chat.conversation import ChatArtifact, ChatConversation, ChatTurn
from machines.chat.interpreter import Interpreter
from machines.chat.sql import SqlDatabase
from machines.tool_use.chat_model import Model, ModelOptions, model_of
from machines.tool_use.machine_session import (
    NO_LISTENERS,
    Listener,
    MachineSession,
    RunResources,
    SessionListeners,
    begin_run,
    hold_run,
)
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

    `format` is `none` or `report`. Without `normalise` calls are not fixed; without `dedup` repetitions are not detected. `context_tokens` is the limit of a
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

NAME = "chat"


@attrs.frozen
class ChatStart:
    """The settings of a new conversation, which its ledger records. `data` are the files to load; `module` replaces the chat bindings.

    Without `normalise` calls are not fixed, without `dedup` repetitions are not detected; benchmarks measure both.
    """

    model: str
    data: tuple[Path, ...] = ()
    seed: int = 0
    format: str = "none"
    normalise: bool = True
    dedup: bool = True
    parameters: Mapping[str, Value] = attrs.field(factory=dict)
    context_tokens: int | None = None
    budget: tuple[str, ...] = ()
    module: str | None = None
    secrets: SecretOptions = attrs.field(factory=SecretOptions)

    def config(self) -> dict[str, object]:
        """Return the settings for policies."""
        return {
            "data": [str(path.absolute()) for path in self.data],
            "format": self.format,
            "normalise": self.normalise,
            "dedup": self.dedup,
            "context_tokens": self.context_tokens,
        }

    def options(self) -> Options:
        """Return the options of the run."""
        return Options(
            self.module, self.model, self.seed, self.parameters, self.budget, self.secrets, config=self.config()
        )


class Chat(MachineSession[ChatResources]):
    """A conversation that this process holds. Make it with `begin` or `resume`; `runs` stores it."""

    command = "dsa chat"

    def __init__(self, runs: Runs, handle: RunHandle, listeners: SessionListeners, *, is_new: bool) -> None:
        def prepare(resources: ChatResources) -> None:
            resources.listen, resources.notice = listeners.listen, listeners.notice
            if is_new:
                _ = resources.model, resources.database

        super().__init__(handle, RESOURCES, prepare)
        self.runs = runs

    @classmethod
    def begin(cls, settings: ChatStart, runs: Runs, listeners: SessionListeners = NO_LISTENERS) -> "Chat":
        """Begin a conversation. Raises DocumentError for data that cannot be read, ModelUnavailable, BindingError, StoreError."""
        handle = begin_run(runs, NAME, settings.options(), on_moment=listeners.on_moment)
        return cls(runs, handle, listeners, is_new=True)

    @classmethod
    def resume(
        cls,
        run_id: str,
        runs: Runs,
        listeners: SessionListeners = NO_LISTENERS,
        *,
        options: Options | None = None,
        take: bool = False,
    ) -> "Chat":
        """Resume a conversation with its own settings, except those in `options`; `go_on` finishes an interrupted turn.

        Raises DsaError for a run that is not a conversation, StoreError, OtherMachineError, ReplayError.
        """
        handle = hold_run(runs, run_id, NAME, options or Options(), take=take, on_moment=listeners.on_moment)
        return cls(runs, handle, listeners, is_new=False)

    @property
    def state(self) -> str:
        """The current phase."""
        return self._handle.run.configuration.state

    @property
    def is_under_way(self) -> bool:
        """Whether a turn is under way."""
        return self.state.startswith("working")

    @property
    def has_failed(self) -> bool:
        """Whether the last turn ended with an error."""
        return self.state == "resting.error"

    @property
    def conversation(self) -> ChatConversation:
        """The conversation so far."""
        return self.resources.conversation(self._handle.run)

    async def say(self, text: str, *, rerun: bool | None = None) -> ChatTurn:
        """Send a message, and return the turn when it rests. `rerun` permits repeated work; None decides by the text.

        Raises DsaError when the conversation accepts no message now, or when a failure has stopped the turn; the ledger keeps the message.
        """
        before = len(self.conversation.turns)
        await self.drive(Occurrence("message", data={"text": text, "rerun": rerun}))
        if len(self.conversation.turns) == before:
            raise DsaError(f"no message is accepted while {self.state}")
        return self.conversation.turn

    async def go_on(self) -> ChatTurn | None:
        """Finish an interrupted turn, if there is one; return the last turn, or None."""
        await self.drive()
        return self.conversation.turn if self.conversation.turns else None

    async def tell(self, event: str) -> None:
        """Send `retried`, `dismissed` or `ended`, and wait until the conversation rests."""
        await self.drive(Occurrence(event))

    def cancel(self) -> None:
        """Stop the current turn. Call it in the event loop's thread."""
        self.send_soon(Occurrence("cancelled"))

    async def drive(self, *occurrences: Occurrence) -> None:
        """Send the run events, and publish the new files. Raises DsaError."""
        try:
            await super().drive(*occurrences)
        finally:
            self.resources.files.publish(self.conversation.inventory)
