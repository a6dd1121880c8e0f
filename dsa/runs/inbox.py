"""Inboxes of runs that this process drives: messages of other processes are handed to the run, or refused."""

import asyncio
from secrets import token_hex
from typing import TYPE_CHECKING

from dsa.edge.binding import Bindings
from dsa.edge.driver import Driver
from dsa.edge.environment import environment_secrets
from dsa.edge.outside import FromOutside
from dsa.errors import OccurrenceError
from dsa.meaning import Occurrence, Refusal, Taken
from dsa.runs.place import Place
from dsa.runs.record import RunRecord
from dsa.runs.setup import Options, as_started
from dsa.runtime.inbox import error_text
from dsa.runtime.journal import Journal, Message, StoreError

if TYPE_CHECKING:
    from dsa.runs.handle import RunHandle

#: How often the inboxes are looked into, in seconds.
_EVERY_S = 0.02


class RunInbox:
    """The inbox of one run."""

    def __init__(self, place: Place, run_id: str) -> None:
        self._place, self._run_id = place, run_id
        self._handed: set[str] = set()

    def clear(self) -> None:
        """Hand over again what still waits: the driver that had it is another one now."""
        self._handed.clear()

    def hand_to(self, driver: Driver, journal: Journal) -> None:
        """Hand what waits to a run's driver. What cannot be an event of the run is refused, and leaves the inbox. Raises StoreError."""
        for message in self._place.store.waiting_messages(self._run_id):
            if message.id in self._handed:
                continue
            self._handed.add(message.id)
            occurrence = Occurrence(message.event, message.verdicts, data=message.data)
            try:
                answer = driver.hand(occurrence, message.at, message.id, message.posted_ms)
            except (OccurrenceError, TypeError, ValueError) as error:
                journal.append((), taking=((message.id, error_text(error)),))
            else:
                answer.add_done_callback(_heard)


def post_message(
    place: Place, record: RunRecord, occurrence: Occurrence, at: str | None, now_ms: int, options: Options
) -> str:
    """Put an event into a run's inbox, without the secrets that the run and `options` have chosen, and return the message's id.

    `at` is the place of the question that it answers; None: what the run asks now. Raises OccurrenceError, StoreError.
    """
    run_id = record.run.run_id
    secrets = environment_secrets(as_started(record.first, options).chosen)
    given = FromOutside(Bindings({}, secrets=secrets)).read(record.run, occurrence, at)
    asked = at or place.store.summary(run_id).summary.waits_for.get(given.event)
    message = Message(token_hex(16), given.event, given.verdicts, given.data, asked, now_ms)
    place.store.post(run_id, message)
    return message.id


def _heard(answer: "asyncio.Future[Taken | Refusal]") -> None:
    """Look at what became of a message: its sender reads it in the store, and nobody here waits for it."""
    if not answer.cancelled():
        answer.exception()


class InboxReader:
    """Looks into the inboxes of the runs that are held here, in a task that ends with the last of them."""

    def __init__(self, held: "dict[str, RunHandle]") -> None:
        self._held = held
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Look from now on, if nobody does yet."""
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._read())

    async def stop(self) -> None:
        """Look no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def _read(self) -> None:
        while self._held:
            await asyncio.sleep(_EVERY_S)
            for handle in tuple(self._held.values()):
                try:
                    handle.take_messages()
                except StoreError:
                    continue  # whoever drives the run meets it too, and says so
