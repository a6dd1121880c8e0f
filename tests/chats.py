"""Conversations for tests: data, models that play a part, and what their requests must hold."""

import asyncio
import io
import json
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from chat_server import Said, playing
from rich.console import Console

from dsa.runs.runs import open_runs
from machines.chat.chat_display import ChatDisplay
from machines.chat.chat_session import Chat, ChatStart
from machines.tool_use.machine_session import SessionListeners

#: Files that the package ships; to import it takes the time of pandas, in each worker.
VEGA = Path(find_spec("vega_datasets").origin).with_name("_data")
CARS = VEGA / "cars.json"
SQL = "SELECT Origin, count(*) AS n, avg(Horsepower) AS hp FROM cars GROUP BY Origin ORDER BY Origin"
PLOT = "df.plot.bar(x='Origin', y='hp')\nplt.savefig('hp.png')"
CSV = "df.to_csv('hp.csv', index=False)"
#: The same three things in other words.
SQL_AGAIN = "select\n  Origin, -- where from\n  count(*) as n, avg(Horsepower) as hp\nfrom cars group by Origin order by Origin;"
PLOT_AGAIN = "axes = df.plot.bar(y='hp', x='Origin')\naxes.figure.savefig('power.png')"
CSV_AGAIN = "text = df.to_csv(index=False)\nopen('power.csv', 'w').write(text)"


def steps_since_user(body):
    """Count the model's messages since the user's last one; notes of the program are in brackets and do not count as the user's."""
    count = 0
    for message in reversed(body["messages"]):
        if message["role"] == "user" and not message["content"].startswith("["):
            return count
        count += message["role"] == "assistant"
    return count


def following(*steps, answer="Done."):
    """Play a model that does the same steps in every turn, whatever there is already, and then answers."""

    def player(body, _number):
        at = steps_since_user(body)
        return steps[at] if at < len(steps) else Said(answer)

    return player


def scripted(*said):
    """Play a model that gives these answers in order."""
    return lambda _body, number: said[number]


def sql(text=SQL, **more):
    """Ask for a query."""
    return Said(calls=(("run_sql", {"sql": text, **more}),))


def python(code):
    """Ask for code to be run."""
    return Said(calls=(("run_python", {"code": code}),))


@contextmanager
def conversation(tmp_path, player, *, data=(CARS,), **settings):
    """Hold a conversation with a played model; yields it, and what the server has seen. Its display goes nowhere."""
    display = ChatDisplay(Console(file=io.StringIO()), tmp_path / "runs", is_verbose=True)
    with (
        playing(player) as played,
        open_runs(tmp_path / "runs") as runs,
        Chat.begin(ChatStart(played.model, tuple(data), **settings), runs, SessionListeners(display.on_moment)) as chat,
    ):
        yield chat, played
    assert played.faults == []


def say(chat, *texts):
    """Say something, and return the last turn."""

    async def said():
        return [await chat.say(text) for text in texts][-1]

    return asyncio.run(said())


def names(chat):
    """Name all artifacts, oldest first."""
    return [each.name for each in chat.conversation.inventory]


def told(body):
    """Read the inventory and the summaries of SQL that a request has: lists of objects."""
    parts = body["messages"][0]["content"].split("\n\n")
    found = {}
    for part in parts:
        head, _, rest = part.partition("\n")
        found[head] = [json.loads(line) for line in rest.splitlines() if line.startswith("{")]
    inventory = next(lines for head, lines in found.items() if head.startswith("Artifacts"))
    summaries = next(lines for head, lines in found.items() if head.startswith("Latest results"))
    return inventory, summaries
