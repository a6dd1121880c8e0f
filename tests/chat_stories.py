"""Conversations that together take every row of the chat machine, as text: who says what, which bounds hold, what fails."""

import asyncio
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import attrs
from chat_server import Said, playing
from chats import CARS, CSV, SQL, python, sql
from row_stories import HANGS, Hanging, InOrder, as_text, lived, with_faults

import machines.chat.chat_session as resources_module
from dsa.edge.document_files import load, locate
from dsa.runs.bindings import bind
from dsa.semantics import Occurrence
from machines.chat.chat_session import RESOURCES, ChatStart, resources_in
from machines.chat.sql import SqlDatabase


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
COUNT = ("run_sql", {"sql": "SELECT count(*) AS n FROM cars"})
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
    "the same code over another result": Story((python("1"), sql(), python("1"), DONE)),
    "the same code over the same result": Story((sql(), python("1"), sql(OTHER_SQL), sql(), python("1"), DONE)),
    "too many queries": Story((calls(SQL_CALL, ("run_sql", {"sql": OTHER_SQL})), DONE), bounds=(("max_calls", 1),)),
    "too much code": Story((calls(PYTHON_CALL, ("run_python", {"code": "2"})), DONE), bounds=(("max_calls", 1),)),
    "a query, and a call of nothing": Story((calls(SQL_CALL, NO_CALL), DONE), bounds=(("max_calls", 1),)),
    "the user ends it in the middle": Story((sql(), HANGS), stopped="ended"),
    "calls side by side": Story((calls(SQL_CALL, COUNT, PYTHON_CALL, COUNT, ("run_python", {"code": "2"})), DONE)),
    "the same query twice at once": Story((calls(SQL_CALL, ("run_sql", {"sql": f"{SQL} -- again"}), PYTHON_CALL), DONE)),
    "one of two queries fails by itself": Story((calls(SQL_CALL, COUNT),), broken=frozenset({"run_sql"})),
    "no refusal left while a query runs": Story((calls(SQL_CALL, BAD_SQL),), bounds=(("max_refusals", 0),)),
    "no refusal left while code runs": Story((calls(PYTHON_CALL, ("run_python", {"code": "2"}), NO_CALL),), bounds=(("max_refusals", 0),)),
    "no call left after a refused one, SQL": Story((calls(NO_CALL, SQL_CALL), DONE), bounds=(("max_calls", 1),)),
    "no call left after a refused one, Python": Story((calls(NO_CALL, PYTHON_CALL), DONE), bounds=(("max_calls", 1),)),
    "no call left after a refused one, of nothing": Story((calls(NO_CALL, NO_CALL), DONE), bounds=(("max_calls", 1),)),
    "a query waits for code": Story((calls(PYTHON_CALL, SQL_CALL, NO_CALL), DONE)),
    "one call at a time": Story((calls(SQL_CALL, COUNT), calls(PYTHON_CALL, ("run_python", {"code": "2"})), DONE), bounds=(("side", 1),)),
}  # fmt: skip

#: The same in another phase: rows of `working` that stay where they are do so everywhere.
IN_ANOTHER_PHASE = (
    "the same again", "calls that cannot be made", "one call too many, SQL", "one call too many, Python", "one call too many, of nothing",
    "an answer that breaks off", "an answer at once", "no call left after a refused one, SQL", "no call left after a refused one, Python",
    "no call left after a refused one, of nothing",
)  # fmt: skip


def _after_code(told):
    """Let code come first."""
    bounds = tuple((name, value + (name == "max_calls")) for name, value in told.bounds)
    return attrs.evolve(told, said=(python("2"), *told.said), bounds=bounds)


STORIES |= {f"{name}, after code": _after_code(STORIES[name]) for name in IN_ANOTHER_PHASE}


@cache
def _database():
    return SqlDatabase([CARS], Path(mkdtemp(prefix="chat-stories-")))


@contextmanager
def _shared_data():
    """Let all stories read one database: they change nothing of it."""
    kept = resources_module.SqlDatabase
    resources_module.SqlDatabase = lambda _sources, _folder: _database()
    try:
        yield
    finally:
        resources_module.SqlDatabase = kept


def play(machine, told, folder):
    """Play a story on a machine, and return how it ended."""
    machine = machine.at(**dict(told.bounds)) if told.bounds else machine
    player = Hanging(told.said, DONE)
    with _shared_data(), playing(player) as played:
        config = {**ChatStart("x", (CARS,)).config(), "runs": str(folder)}
        binding = with_faults(
            bind(machine, path=locate("chat"), model=played.model, seed=0, config=config), told.broken
        )
        order = InOrder(("run_sql", "run_python"), "next_call")
        binding = order.bound(binding)
        chat = resources_in(binding.config, "r")
        chat.close = lambda: None
        does = [Occurrence(event, data={"text": told.text} if event == "message" else None) for event in told.does]
        try:
            return asyncio.run(lived(machine, binding, does, player, told.stopped, order)), played
        finally:
            RESOURCES.release(chat)


def told(machine, name, folder):
    """Tell a story."""
    return as_text(lambda: play(machine, STORIES[name], folder))


@cache
def shipped():
    """The chat machine."""
    return load("chat")
