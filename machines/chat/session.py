"""A conversation that is held: begun, or taken up again from its ledger; messages go in, turns come out.

Everything that was acknowledged is in the ledger, so a process that is killed loses nothing: `Chat.resume` goes on where it was, a turn that
was cut off included.
"""

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import attrs

from dsa.edge.binding import Binding, bind
from dsa.edge.driver import Driver, Rest
from dsa.edge.files import locate, read_text
from dsa.edge.running import kept, replayed
from dsa.edge.runs import DEFAULT_RUNS, new_run_id, open_store
from dsa.errors import DsaError
from dsa.expr import Value
from dsa.lang import digest, loads
from dsa.machine import Machine
from dsa.meaning import Occurrence
from dsa.runtime.journal import Beginning
from dsa.runtime.ledger import Entry
from dsa.runtime.recovery import unfinished
from dsa.runtime.run import begin
from machines.chat.conversation import Conversation, Turn
from machines.chat.guards import Always
from machines.chat.resources import Listener, Resources, let_go, resources_in

NAME = "chat"
Observer = Callable[[Entry], None]


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

    def config(self) -> dict[str, Any]:
        """Give what policies can read."""
        return {
            "data": [str(path.absolute()) for path in self.data],
            "format": self.format,
            "normalise": self.normalise,
            "dedup": self.dedup,
            "context_chars": self.context_chars,
        }


class Chat:
    """One conversation, held by this process. Use it as a context manager, or `close` it.

    `begin` and `resume` make it. `observe` is called with every ledger entry once it is durable, `listen` with the model's text as it comes.
    """

    def __init__(self, driver: Driver, chat: Resources, undone: ExitStack) -> None:
        self._driver, self._chat, self._undone = driver, chat, undone

    @classmethod
    def begin(
        cls,
        settings: Settings,
        runs: Path = Path(DEFAULT_RUNS),
        *,
        observe: Observer = lambda _entry: None,
        listen: Listener = lambda _text: None,
    ) -> "Chat":
        """Begin a conversation. Raises LoadError for data that cannot be read, ModelUnavailable, BindingError, StoreError."""
        document = locate(NAME)
        text = read_text(document)
        machine = loads(text, str(document)).at(dict(settings.parameters))
        config = settings.config()
        binding = binding_for(machine, config, settings.model, settings.seed, runs)
        started = {"file": str(document), "model": settings.model, "seed": settings.seed, "config": config}
        now_ms = time.time_ns() // 1_000_000
        known = binding.secrets.value(started)
        run, commands = begin(machine, new_run_id(NAME), digest=digest(machine), started=known, at_ms=now_ms)
        chat = resources_in(binding.config, run.run_id)
        chat.listen = listen
        _ = chat.model, chat.database  # what is wrong with them is said before anything is kept
        with ExitStack() as undone:
            undone.callback(let_go, chat)
            store = undone.enter_context(open_store(runs))
            artifacts, _, watch = undone.enter_context(kept(runs, run, text, observe))
            journal = Beginning(store, run.run_id, text)
            undone.callback(journal.release)
            driver = Driver(run, binding, artifacts, commands=commands, journal=journal, observe=watch)
            return cls(driver, chat, undone.pop_all())

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
    ) -> "Chat":
        """Take up a conversation; `go_on` finishes a turn that was cut off. `observe` is given what happens from now on. Raises StoreError, OtherMachineError, ReplayError."""
        with ExitStack() as undone:
            store = undone.enter_context(open_store(runs, must_exist=True))
            journal, recorded = store.hold(run_id, take=take)
            undone.callback(journal.release)
            run, first = replayed(recorded)
            if run.machine.name != NAME:
                raise ChatError(f"run {run_id} is one of {run.machine.name}, not a conversation")
            started = dict(first.started)
            binding = binding_for(run.machine, started["config"], model or started["model"], started["seed"], runs)
            chat = resources_in(binding.config, run_id)
            chat.listen = listen
            undone.callback(let_go, chat)
            news = _after(len(recorded.entries), observe)
            artifacts, _, watch = undone.enter_context(kept(runs, run, recorded.text, news))
            left = unfinished(run)
            driver = Driver(run, binding, artifacts, left=left, journal=journal, observe=watch)
            return cls(driver, chat, undone.pop_all())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def run_id(self) -> str:
        """The name of the conversation."""
        return self._driver.run.run_id

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
    def is_closed(self) -> bool:
        """Tell whether it was ended for good."""
        return self._driver.run.finished

    @property
    def values(self) -> dict[str, Value]:
        """The variables' values by name."""
        return self._driver.run.values

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

        Raises ChatError when no message is taken now, or when the turn was stopped by a fault of ours; the ledger keeps it.
        """
        before = len(self.conversation.turns)
        await self._drive(Occurrence("message", data={"text": text, "rerun": rerun}))
        if len(self.conversation.turns) == before:
            raise ChatError(f"no message is taken while {self.state}")
        return self.conversation.turn

    async def go_on(self) -> Turn | None:
        """Finish a turn that was cut off, if there is one; give the last turn."""
        await self._drive()
        return self.conversation.turn if self.conversation.turns else None

    async def tell(self, event: str) -> None:
        """Say `retried`, `dismissed` or `ended`, and wait until the conversation rests."""
        await self._drive(Occurrence(event))

    def cancel(self) -> None:
        """Stop the turn that goes on, from the thread of the event loop."""
        self._driver.send(Occurrence("cancelled"))

    def close(self) -> None:
        """Let go of the conversation; it can be resumed."""
        self._undone.close()

    async def _drive(self, *occurrences: Occurrence) -> Rest:
        rest = await self._driver.drive(*occurrences)
        self._chat.files.shown(self.conversation.inventory)
        if rest.in_doubt:
            raise ChatError(
                f"it is in doubt what became of {rest.in_doubt[0].key}: dsa show {self.run_id} says how to decide it"
            )
        if rest.failure is not None:
            raise ChatError(f"{rest.failure}; the conversation is kept: dsa chat --resume {self.run_id}")
        return rest


def _after(count: int, observe: Observer) -> Observer:
    """Give an observer that leaves out so many entries: those that were there already."""
    left = iter(range(count))
    return lambda entry: observe(entry) if next(left, None) is None else None


class ChatError(DsaError):
    """Raised when a conversation cannot go on as asked."""


def binding_for(machine: Machine, config: Mapping[str, Any], model: str, seed: int, runs: Path) -> Binding:
    """Bind the chat machine; without `dedup` its guards for that pass everything."""
    known = {**config, "runs": str(runs.absolute())}
    binding = bind(machine, path=locate(NAME), model=model, seed=seed, config=known)
    if config.get("dedup", True):
        return binding
    return attrs.evolve(binding, guards={**binding.guards, "fresh": Always(), "new": Always()})
