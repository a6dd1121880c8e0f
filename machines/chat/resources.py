"""What the policies of one conversation work with: its data, its Python, its files, its model, and what its ledger says so far.

Made from the settings that its run was started with, once in a process, and made again the same after a crash.
"""

import threading
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property
from pathlib import Path

import attrs

from dsa.runtime.run import Run
from machines.chat.conversation import Conversation
from machines.chat.files import Files
from machines.chat.messages import CONTEXT_TOKENS
from machines.chat.python import Interpreter, PythonError
from machines.chat.sql import Database
from machines.tool_use.context import CHARS_PER_TOKEN
from machines.tool_use.known import Known
from machines.tool_use.model import Model, Wanted, model_of
from machines.tool_use.records import JsonObject, read_record

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


class Resources:
    """Everything of one conversation. `config` is what the run was started with (see `ChatSettings`), `folder` its own folder.

    `listen` is called with the model's text as it comes, `notice` with why a model that failed is asked again.
    """

    def __init__(self, config: JsonObject, folder: Path) -> None:
        self._settings = read_record(ChatSettings, config)
        self._folder = folder
        self._conversation = Conversation()
        self.files = Files(folder)
        self.listen: Listener = lambda _text: None
        self.notice: Listener = lambda _text: None

    def conversation(self, run: Run) -> Conversation:
        """Give what the run's ledger says."""
        if self._conversation.taken > len(run.ledger):
            self._conversation = Conversation()
        self._conversation.take(run.ledger.after(self._conversation.taken))
        return self._conversation

    @cached_property
    def database(self) -> Database:
        """The data; loaded at its first use. Raises LoadError."""
        return Database([Path(path) for path in self._settings.data], self._folder)

    @property
    def is_loaded(self) -> bool:
        """Tell whether the data is at hand, so that nobody waits for it."""
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
        return model_of(self.asked_model, Wanted(self._settings.seed or 0, on_wait=self.tell, window_tokens=window))

    @property
    def asked_model(self) -> str:
        """The model as it is named."""
        return self._settings.model

    def tell(self, text: str) -> None:
        """Tell whoever watches how the model is asked."""
        self.notice(text)

    @property
    def normalises(self) -> bool:
        """Tell whether arguments are mended."""
        return self._settings.normalise

    @property
    def dedups(self) -> bool:
        """Return whether it is noticed that something was done before."""
        return self._settings.dedup

    @property
    def wants_report(self) -> bool:
        """Tell whether each answer becomes a report."""
        return self._settings.format == "report"

    @property
    def context_chars(self) -> int:
        """How long the conversation in a request may be."""
        return (self._settings.context_tokens or CONTEXT_TOKENS) * CHARS_PER_TOKEN

    @property
    def is_limited(self) -> bool:
        """Tell whether somebody has said how long it may be."""
        return self._settings.context_tokens is not None

    def close(self) -> None:
        """Let go of the data."""
        if self.is_loaded:
            self.database.close()
            del self.database


KNOWN = Known(Resources)
resources_in = KNOWN.of
