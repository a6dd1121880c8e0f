"""A conversation that is held: begun, or taken up again from its ledger; messages go in, turns come out.

Everything that was acknowledged is in the ledger, so a process that is killed loses nothing: `Chat.resume` goes on where it was, a turn that
was cut off included.
"""

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import attrs

from dsa.edge.binding import Binding
from dsa.edge.files import locate
from dsa.expr import Value
from dsa.machine import Machine
from dsa.meaning import Occurrence
from dsa.runs.bindings import bind
from dsa.runs.place import DEFAULT_RUNS
from machines.chat.conversation import Conversation, Turn
from machines.chat.guards import Always
from machines.chat.resources import Listener, Resources, let_go, resources_in
from machines.talking.holding import Bind, Held, Holder, Observer, StoppedError, begun, taken_up

NAME = "chat"


@attrs.frozen
class Settings:
    """With what a conversation is begun; kept in its ledger. `data` are the files that are loaded.

    Without `normalise` calls are taken as they were sent, without `dedup` nothing is noticed to have been done before: to measure both.
    """

    model: str
    data: tuple[Path, ...] = ()
    seed: int = 0
    format: str = "none"
    normalise: bool = True
    dedup: bool = True
    parameters: Mapping[str, Value] = attrs.field(factory=dict)
    context_chars: int | None = None
    budget: tuple[str, ...] = ()

    def config(self) -> dict[str, Any]:
        """Give what policies can read."""
        return {
            "data": [str(path.absolute()) for path in self.data],
            "format": self.format,
            "normalise": self.normalise,
            "dedup": self.dedup,
            "context_chars": self.context_chars,
            "budget": list(self.budget),
        }


class Chat(Holder):
    """One conversation, held by this process.

    `begin` and `resume` make it. `observe` is called with every ledger entry once it is durable, `listen` with the model's text as it
    comes, `notice` with why a model that failed is asked again.
    """

    command = "dsa chat"

    def __init__(self, held: Held, chat: Resources) -> None:
        super().__init__(held)
        self._chat = chat

    @classmethod
    def begin(
        cls,
        settings: Settings,
        runs: Path = Path(DEFAULT_RUNS),
        *,
        observe: Observer = lambda _entry: None,
        listen: Listener = lambda _text: None,
        notice: Listener = lambda _text: None,
    ) -> "Chat":
        """Begin a conversation. Raises LoadError for data that cannot be read, ModelUnavailable, BindingError, StoreError."""
        started = {"model": settings.model, "seed": settings.seed, "config": settings.config()}
        made = _Made(listen, notice, is_new=True)
        held = begun(NAME, settings.parameters, started, bound_in(runs), made, runs=runs, observe=observe)
        return cls(held, made.chat)

    @classmethod
    def resume(
        cls,
        run_id: str,
        runs: Path = Path(DEFAULT_RUNS),
        *,
        model: str | None = None,
        take: bool = False,
        observe: Observer = lambda _entry: None,
        listen: Listener = lambda _text: None,
        notice: Listener = lambda _text: None,
    ) -> "Chat":
        """Take up a conversation; `go_on` finishes a turn that was cut off. `observe` is given what happens from now on.

        Raises WrongRunError for a run that is none, StoreError, OtherMachineError, ReplayError.
        """
        made = _Made(listen, notice)
        held = taken_up(run_id, NAME, bound_in(runs, model), made, runs=runs, observe=observe, take=take)
        return cls(held, made.chat)

    @property
    def state(self) -> str:
        """The phase it is in."""
        return self._driver.run.configuration.state

    @property
    def is_under_way(self) -> bool:
        """Tell whether a turn goes on."""
        return self.state.startswith("working")

    @property
    def has_failed(self) -> bool:
        """Tell whether the last turn ended with an error."""
        return self.state == "resting.error"

    @property
    def conversation(self) -> Conversation:
        """What was said and made so far."""
        return self._chat.conversation(self._driver.run)

    @property
    def resources(self) -> Resources:
        """Data, files, model."""
        return self._chat

    async def say(self, text: str, *, rerun: bool | None = None) -> Turn:
        """Say something, and give the turn when it rests. `rerun`: work that was done may be done again (None: as the text says).

        Raises StoppedError when no message is taken now, or when the turn was stopped by a fault of ours; the ledger keeps it.
        """
        before = len(self.conversation.turns)
        await self.drive(Occurrence("message", data={"text": text, "rerun": rerun}))
        if len(self.conversation.turns) == before:
            raise StoppedError(f"no message is taken while {self.state}")
        return self.conversation.turn

    async def go_on(self) -> Turn | None:
        """Finish a turn that was cut off, if there is one; give the last turn."""
        await self.drive()
        return self.conversation.turn if self.conversation.turns else None

    async def tell(self, event: str) -> None:
        """Say `retried`, `dismissed` or `ended`, and wait until the conversation rests."""
        await self.drive(Occurrence(event))

    def cancel(self) -> None:
        """Stop the turn that goes on, from the thread of the event loop."""
        self._driver.send(Occurrence("cancelled"))

    async def drive(self, *occurrences: Occurrence) -> None:
        """Tell it events, and show the files that were made. Raises StoppedError."""
        try:
            await super().drive(*occurrences)
        finally:
            self._chat.files.shown(self.conversation.inventory)


class _Made:
    """Makes what a conversation works with, and lets go of it at the end; data and model of a new one are looked at at once."""

    def __init__(self, listen: Listener, notice: Listener, *, is_new: bool = False) -> None:
        self._listen, self._notice, self._is_new = listen, notice, is_new

    def __call__(self, binding: Binding, run_id: str, undone: ExitStack) -> None:
        """Make it."""
        self.chat = resources_in(binding.config, run_id)
        self.chat.listen, self.chat.notice = self._listen, self._notice
        undone.callback(let_go, self.chat)
        if self._is_new:
            _ = self.chat.model, self.chat.database


def bound_in(runs: Path, model: str | None = None) -> Bind:
    """Bind the chat machine, with another model if one is named; without `dedup` its guards for that pass everything."""

    def bound(machine: Machine, started: Mapping[str, Any]) -> Binding:
        config = {**started["config"], "runs": str(runs.absolute())}
        answering = model or started["model"]
        binding = bind(machine, path=locate(NAME), model=answering, seed=started["seed"], config=config)
        if config.get("dedup", True):
            return binding
        return attrs.evolve(binding, guards={**binding.guards, "fresh": Always(), "new": Always()})

    return bound
