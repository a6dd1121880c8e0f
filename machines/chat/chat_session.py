"""Chat sessions: a conversation that this process begins or resumes. Messages go in, turns come out.

Acknowledged messages are in the ledger, so a killed process loses nothing: `Chat.resume` continues at the same place, even inside a turn.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from dsa.errors import DsaError
from dsa.expr import Value
from dsa.runs.door import Runs
from dsa.runs.handle import RunHandle
from dsa.runs.setup import Options
from dsa.runtime.secrets import SecretOptions
from dsa.semantics import Occurrence
from machines.chat.chat_resources import RESOURCES, ChatResources
from machines.chat.conversation import ChatConversation, ChatTurn
from machines.tool_use.machine_session import NO_LISTENERS, MachineSession, SessionListeners, begin_run, hold_run

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

    def config(self) -> dict[str, Any]:
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
