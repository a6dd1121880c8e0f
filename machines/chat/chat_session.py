"""A conversation that is held: begun, or taken up again from its ledger; messages go in, turns come out.

Everything that was acknowledged is in the ledger, so a process that is killed loses nothing: `Chat.resume` goes on where it was, a turn that
was cut off included.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from dsa.expr import Value
from dsa.runs.handle import RunHandle
from dsa.runs.runs import Runs
from dsa.runs.setup import Options
from dsa.runtime.secrets import SecretOptions
from dsa.runtime.timeline import OnMoment
from dsa.semantics import Occurrence
from machines.chat.chat_resources import KNOWN, ChatResources, Listener
from machines.chat.conversation import ChatConversation, ChatTurn
from machines.tool_use.machine_session import MachineSession, StoppedError, begun, taken_up

NAME = "chat"


@attrs.frozen
class ChatStart:
    """With what a conversation is begun; kept in its ledger. `data` are the files that are loaded, `module` binds names in place of ours.

    Without `normalise` calls are taken as they were sent, without `dedup` nothing is noticed to have been done before: to measure both.
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
    chosen: SecretOptions = attrs.field(factory=SecretOptions)

    def config(self) -> dict[str, Any]:
        """Return what policies can read."""
        return {
            "data": [str(path.absolute()) for path in self.data],
            "format": self.format,
            "normalise": self.normalise,
            "dedup": self.dedup,
            "context_tokens": self.context_tokens,
        }

    def options(self) -> Options:
        """Return how the run is started."""
        return Options(
            self.module, self.model, self.seed, self.parameters, self.budget, self.chosen, config=self.config()
        )


class Chat(MachineSession[ChatResources]):
    """One conversation, held by this process.

    `begin` and `resume` make it; it is kept in `runs`. `on_moment` is called with every moment of its run, `listen` with the model's text as it
    comes, `notice` with why a model that failed is asked again.
    """

    command = "dsa chat"

    def __init__(self, runs: Runs, handle: RunHandle, listen: Listener, notice: Listener, *, is_new: bool) -> None:
        def prepare(resources: ChatResources) -> None:
            resources.listen, resources.notice = listen, notice
            if is_new:
                _ = resources.model, resources.database

        super().__init__(handle, KNOWN, prepare)
        self.runs = runs

    @classmethod
    def begin(
        cls,
        settings: ChatStart,
        runs: Runs,
        *,
        on_moment: OnMoment | None = None,
        listen: Listener = lambda _text: None,
        notice: Listener = lambda _text: None,
    ) -> "Chat":
        """Begin a conversation. Raises LoadError for data that cannot be read, ModelUnavailable, BindingError, StoreError."""
        return cls(runs, begun(runs, NAME, settings.options(), on_moment=on_moment), listen, notice, is_new=True)

    @classmethod
    def resume(
        cls,
        run_id: str,
        runs: Runs,
        *,
        options: Options | None = None,
        take: bool = False,
        on_moment: OnMoment | None = None,
        listen: Listener = lambda _text: None,
        notice: Listener = lambda _text: None,
    ) -> "Chat":
        """Take up a conversation, bound as it was begun but for what the options say; `go_on` finishes a turn that was cut off.

        Raises WrongRunError for a run that is none, StoreError, OtherMachineError, ReplayError.
        """
        handle = taken_up(runs, run_id, NAME, options or Options(), take=take, on_moment=on_moment)
        return cls(runs, handle, listen, notice, is_new=False)

    @property
    def state(self) -> str:
        """The phase it is in."""
        return self._handle.run.configuration.state

    @property
    def is_under_way(self) -> bool:
        """Return whether a turn goes on."""
        return self.state.startswith("working")

    @property
    def has_failed(self) -> bool:
        """Return whether the last turn ended with an error."""
        return self.state == "resting.error"

    @property
    def conversation(self) -> ChatConversation:
        """What was said and made so far."""
        return self.resources.conversation(self._handle.run)

    async def say(self, text: str, *, rerun: bool | None = None) -> ChatTurn:
        """Say something, and return the turn when it rests. `rerun`: work that was done may be done again (None: as the text says).

        Raises StoppedError when no message is taken now, or when the turn was stopped by a fault of ours; the ledger keeps it.
        """
        before = len(self.conversation.turns)
        await self.drive(Occurrence("message", data={"text": text, "rerun": rerun}))
        if len(self.conversation.turns) == before:
            raise StoppedError(f"no message is taken while {self.state}")
        return self.conversation.turn

    async def go_on(self) -> ChatTurn | None:
        """Finish a turn that was cut off, if there is one; return the last turn."""
        await self.drive()
        return self.conversation.turn if self.conversation.turns else None

    async def tell(self, event: str) -> None:
        """Say `retried`, `dismissed` or `ended`, and wait until the conversation rests."""
        await self.drive(Occurrence(event))

    def cancel(self) -> None:
        """Stop the turn that goes on, from the thread of the event loop."""
        self.tell_soon(Occurrence("cancelled"))

    async def drive(self, *occurrences: Occurrence) -> None:
        """Tell it events, and show the files that were made. Raises StoppedError."""
        try:
            await super().drive(*occurrences)
        finally:
            self.resources.files.shown(self.conversation.inventory)
