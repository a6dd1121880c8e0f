"""Conversations that together take every row of the chat machine, told as text: who says what, which bounds hold, what fails."""

import asyncio
import threading
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from tempfile import mkdtemp

import attrs
from chat_server import Said, playing
from chats import CARS, CSV, SQL, python, sql
from played import story

import machines.chat.resources as resources_module
from dsa.edge.driver import Driver
from dsa.edge.files import load
from dsa.meaning import Occurrence
from dsa.runtime.artifacts import MemoryArtifacts
from dsa.runtime.policies import Answering
from dsa.runtime.run import begin
from dsa.testing.doubles import StillClock
from machines.chat.resources import let_go, resources_in
from machines.chat.session import Settings, binding_for
from machines.chat.sql import Database

HANGS = "hangs"


class AlarmClock(StillClock):
    """Stands still, but for long waits once it is told to ring."""

    def __init__(self):
        super().__init__()
        self.rings = asyncio.Event()

    async def sleep(self, seconds):
        if seconds < 600:
            await super().sleep(seconds)
        else:
            await self.rings.wait()


@attrs.frozen
class Story:
    """What is said in turn (HANGS: no answer comes), what the user does, bounds, effects that fail.

    A user's `stopped` is `cancelled`, `ended` or `late` (the time limit), at the moment when the model hangs.
    """

    said: tuple
    does: tuple = ("message",)
    bounds: tuple = ()
    broken: frozenset = frozenset()
    stopped: str = ""
    text: str = "Compare the horsepower"


def calls(*pairs):
    """Ask for several calls at once."""
    return Said(calls=pairs)


SQL_CALL, PYTHON_CALL, NO_CALL = ("run_sql", {"sql": SQL}), ("run_python", {"code": "1"}), ("run_nothing", {})
BAD_SQL, BAD_PYTHON = ("run_sql", {"sql": "SELEC"}), ("run_python", {"code": ""})
OTHER_SQL = SQL.replace("ORDER BY Origin", "ORDER BY 1")
DONE = Said("Done.")
STORIES = {
    "an answer at once": Story((DONE, DONE), ("message", "message", "ended")),
    "a query and code": Story((sql(), python("1"), DONE)),
    "the same again": Story((sql(), calls(SQL_CALL, ("run_sql", {"sql": OTHER_SQL})), python("1"), python("1 "), python(CSV), DONE)),
    "a query that fails": Story((sql("SELECT nothing FROM cars"), python("1 / 0"), DONE)),
    "calls that cannot be made": Story((calls(BAD_SQL, BAD_PYTHON, BAD_PYTHON, NO_CALL), DONE)),
    "one call too many, SQL": Story((calls(PYTHON_CALL, SQL_CALL), DONE), bounds=(("max_calls", 1),)),
    "one call too many, Python": Story((calls(SQL_CALL, PYTHON_CALL), DONE), bounds=(("max_calls", 1),)),
    "one call too many, of nothing": Story((calls(PYTHON_CALL, NO_CALL), DONE), bounds=(("max_calls", 1),)),
    "one call too many while presenting": Story((Said("See a.png."), calls(SQL_CALL, SQL_CALL), DONE), bounds=(("max_calls", 1),)),
    "no refusal left, SQL": Story((calls(BAD_SQL),), bounds=(("max_refusals", 0),)),
    "no refusal left, the same again": Story((calls(SQL_CALL, SQL_CALL),), bounds=(("max_refusals", 0),)),
    "no refusal left, Python": Story((calls(BAD_PYTHON, BAD_PYTHON),), bounds=(("max_refusals", 0),)),
    "no refusal left, the same code again": Story((calls(PYTHON_CALL, PYTHON_CALL),), bounds=(("max_refusals", 0),)),
    "no refusal left, of nothing": Story((calls(NO_CALL),), bounds=(("max_refusals", 0),)),
    "no refusal left while presenting": Story((Said("See a.png."), calls(SQL_CALL)), bounds=(("max_refusals", 0),)),
    "presenting takes no SQL": Story((Said("See a.png."), calls(SQL_CALL), DONE)),
    "calls at the last answer": Story((sql(),), bounds=(("max_rounds", 1),)),
    "calls after the last call": Story((calls(PYTHON_CALL, SQL_CALL), sql()), bounds=(("max_calls", 1),)),
    "an answer that breaks off": Story((Said("It is", breaks_off=True), DONE)),
    "answers that break off": Story((Said("", finish="length"), Said("It", finish="length")), bounds=(("max_rounds", 2),)),
    "no refusal left for a broken answer": Story((Said("It is", breaks_off=True),), bounds=(("max_refusals", 0),)),
    "something is missing": Story((Said("See a.png."), Said("See a.png."))),
    "something is missing at the last answer": Story((Said("See a.png."),), bounds=(("max_rounds", 1),)),
    "the model fails": Story((Said("no", status=400), DONE), ("message", "retried")),
    "the model fails, and the user goes on": Story((Said("no", status=400), DONE), ("message", "message")),
    "the model fails, and the user lets it be": Story((Said("no", status=400),), ("message", "dismissed", "ended")),
    "the model fails, and the user ends it": Story((Said("no", status=400),), ("message", "ended")),
    "a query fails by itself": Story((sql(),), broken=frozenset({"run_sql"})),
    "code fails by itself": Story((python("1"),), broken=frozenset({"run_python"})),
    "a call cannot be read by us": Story((python("1"),), broken=frozenset({"next_call"})),
    "an answer cannot be shown": Story((DONE,), broken=frozenset({"present"})),
    "the user stops the turn": Story((HANGS, DONE), ("message", "message"), stopped="cancelled"),
    "the user stops the turn after a query": Story((sql(), HANGS), stopped="cancelled"),
    "the turn takes too long": Story((HANGS,), stopped="late"),
    "the turn takes too long after code": Story((python("1"), HANGS), stopped="late"),
    "the same query after code": Story((sql(), python("1"), sql(), DONE)),
    "the same code after a query": Story((python("1"), sql(), python("1"), DONE)),
    "too many queries": Story((calls(SQL_CALL, ("run_sql", {"sql": OTHER_SQL})), DONE), bounds=(("max_calls", 1),)),
    "too much code": Story((calls(PYTHON_CALL, ("run_python", {"code": "2"})), DONE), bounds=(("max_calls", 1),)),
    "a query, and a call of nothing": Story((calls(SQL_CALL, NO_CALL), DONE), bounds=(("max_calls", 1),)),
    "the user ends it in the middle": Story((sql(), HANGS), stopped="ended"),
}  # fmt: skip

#: The same in another phase: rows of `working` that stay where they are do so everywhere.
IN_ANOTHER_PHASE = (
    "the same again", "calls that cannot be made", "one call too many, SQL", "one call too many, Python", "one call too many, of nothing",
    "an answer that breaks off", "an answer at once",
)  # fmt: skip


def _after_code(told):
    """Let code come first."""
    bounds = tuple((name, value + (name == "max_calls")) for name, value in told.bounds)
    return attrs.evolve(told, said=(python("2"), *told.said), bounds=bounds)


STORIES |= {f"{name}, after code": _after_code(STORIES[name]) for name in IN_ANOTHER_PHASE}


@cache
def _database():
    return Database([CARS], Path(mkdtemp(prefix="chat-stories-")))


@contextmanager
def _shared_data():
    """Let all stories read one database: they change nothing of it."""
    kept = resources_module.Database
    resources_module.Database = lambda _sources, _folder: _database()
    try:
        yield
    finally:
        resources_module.Database = kept


async def _raise(_action, _context):
    raise RuntimeError("it failed by itself")


def _binding(machine, model, folder, broken):
    binding = binding_for(machine, Settings("x", (CARS,)).config(), model, 0, folder)
    failing = {name: Answering(_raise, policy.answers) for name, policy in binding.effects.items() if name in broken}
    return attrs.evolve(binding, effects={**binding.effects, **failing})


def play(machine, told, folder):
    """Play a story on a machine, and give how it ended."""
    machine = machine.at(**dict(told.bounds)) if told.bounds else machine
    hung, let_go_on = [], threading.Event()

    def player(_body, number):
        said = told.said[number] if number < len(told.said) else DONE
        if said is HANGS:
            hung.append(number)
            return partial(_hang, let_go_on)
        return said

    with _shared_data(), playing(player) as played:
        binding = _binding(machine, played.model, folder, told.broken)
        chat = resources_in(binding.config, "r")
        chat.close = lambda: None
        try:
            return asyncio.run(_played(machine, told, binding, hung, let_go_on)), played
        finally:
            let_go(chat)


def _hang(let_go_on, handler, _over):
    let_go_on.wait(20)
    handler.close_connection = True


async def _played(machine, told, binding, hung, let_go_on):
    run, commands = begin(machine, "r")
    clock = AlarmClock()
    driver = Driver(run, binding, MemoryArtifacts(), commands=commands, clock=clock)

    async def stop():
        while not hung:  # noqa: ASYNC110  (what it waits for tells nobody)
            await asyncio.sleep(0.002)
        if told.stopped == "late":
            clock.rings.set()
        else:
            driver.send(Occurrence(told.stopped))
        await asyncio.sleep(0.2)
        let_go_on.set()  # a mutant may wait on: it is not answered either

    stopping = asyncio.ensure_future(stop()) if told.stopped else None
    for event in told.does:
        data = {"text": told.text} if event == "message" else None
        rest = await _driven(driver, Occurrence(event, data=data))
    if stopping:
        stopping.cancel()
    return rest


async def _driven(driver, occurrence):
    """Drive until the run rests; where a mutant waits for nothing but its time limit, say so."""
    driving, idle = asyncio.ensure_future(driver.drive(occurrence)), 0
    while not driving.done() and idle < 10:
        await asyncio.wait({driving}, timeout=0.01)
        idle = 0 if driver.run.configuration.outstanding else idle + 1
    if not driving.done():
        driving.cancel()
        raise TimeoutError(f"it rests in {driver.run.configuration.state} and waits")
    return await driving


def told(machine, name, folder):
    """Tell a story; a mutant may break anything, and that is noticed too."""
    try:
        rest, played = play(machine, STORIES[name], folder)
    except Exception as error:  # noqa: BLE001  (whatever it is)
        return f"{type(error).__name__}: {error}"
    return "\n".join([story(rest), *played.faults])


@cache
def shipped():
    """The chat machine."""
    return load("chat")
