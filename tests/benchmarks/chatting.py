"""A conversation: what the engine adds to a streamed chunk and to a call, whether turn 500 costs more than turn 5, Python warm and cold,
and three queries of one answer over one.

The peer is a loop over bare httpx: it sends its messages, reads the stream line by line, puts calls together by index, calls the same
`SqlDatabase` or `Interpreter`, and sends what they gave. It keeps nothing and checks nothing. Both ask the same server, a process of its
own that plays a model (`chatting.py serve`); runs are kept in SQLite on tmpfs. What a chunk and a call add is judged in processor time, which is
this process's alone, as the limits of runs are; wall time, which is what a user waits and depends on who else is busy, stands beside it.
Queries side by side are judged by wall time: each waits a second without a processor, as for a distant database, before it is made. What three
queries take that need a processor each depends on how many there are, and is only printed.
"""

import asyncio
import gc
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from artifact_runs import memory_folder
from chat_server import Said, playing
from chats import CARS, steps_since_user
from timing import FULL_SPEED_US, plain_python_us, speed_between, verdict

from dsa.runs.runs import open_runs
from machines.chat.chat_session import Chat, ChatStart
from machines.chat.chat_tools import INSTRUCTIONS, TOOLS
from machines.chat.interpreter import FrameSource, Interpreter
from machines.chat.sql import SqlDatabase

ROUNDS, CHUNKS, CALLS = 15, 4_000, 10
CHUNK_MS, CALL_MS, GROWTH, WARM = 1.0, 5.0, 1.25, 0.4
EARLY, LATE, TURN_ROUNDS = 5, 500, 11
BESIDE, BESIDE_ROUNDS, BESIDE_CALLS = 1.3, 5, 3
FRAME = FrameSource(("Origin", "hp"), ("VARCHAR", "DOUBLE"), b"Origin,hp\nEurope,80.9\nJapan,79.8\nUSA,119.9\n")
CODE = "print(df.groupby('Origin')['hp'].max().describe())"
COLD = f"""
import io, sys
import numpy as np, pandas as pd, matplotlib
matplotlib.use("agg")
import matplotlib.pyplot as plt
df = pd.read_csv(io.StringIO(sys.argv[1]))
{CODE}
"""
WAITING = """
import asyncio
from dsa.runtime.policy.policies import answering
from machines.chat.bindings import effects, guards, run_sql as query, spenders

@answering("sql_done", "sql_failed", is_eager=True)
async def run_sql(action, context):
    await asyncio.sleep(1)
    return await query(action, context)

effects = {**effects, "run_sql": run_sql}
"""


# -- the played model ---------------------------------------------------------------------------------------------------


def query(number: int) -> str:
    """A query whose result no other number has."""
    return f"SELECT Origin, count(*) + {number} AS n FROM cars GROUP BY Origin ORDER BY Origin"


def heavy_query(number: int) -> str:
    """A query that keeps a processor busy for about a second."""
    return f"SELECT {number} AS number, sum(hash(range)) AS hashes FROM range(150000000)"


def player(body: dict, _number: int) -> Said:
    """Do what the user's message says: `text CHUNKS`, `arguments CHUNKS`, `sql CALLS FROM`, `python CALLS FROM`, one in an answer; `beside CALLS FROM`, `heavy CALLS FROM`, in one."""
    users = [m["content"] for m in body["messages"] if m["role"] == "user"]
    words = users[-1].rpartition("\n")[2].split()
    what, numbers, at = words[0], [int(word) for word in words[1:]], steps_since_user(body)
    if what == "text":
        return Said("word " * numbers[0], pieces=5)
    if what == "arguments":
        note = "-- " + "x" * (12 * numbers[0])
        return Said("Done.") if at else Said(calls=(("run_sql", {"sql": f"{query(0)} {note}"}),))
    if what in {"beside", "heavy"} and not at:
        asked = (
            query(number) if what == "beside" else heavy_query(number) for number in range(numbers[1], sum(numbers))
        )
        return Said(calls=tuple(("run_sql", {"sql": sql}) for sql in asked))
    if at == numbers[0] or what in {"beside", "heavy"}:
        return Said("Done.")
    number = numbers[1] + at
    asked = {"sql": query(number)} if what == "sql" else {"code": f"print({number})"}
    return Said(calls=((f"run_{what}", asked),))


@contextmanager
def server() -> Iterator[str]:
    """Serve from a process of its own; gives the model's name."""
    command = [sys.executable, __file__, "serve"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process.stdout.readline().strip()
        process.stdin.close()


def serve() -> None:
    """Play until standard input ends."""
    with playing(player) as played:
        print(played.model, flush=True)
        sys.stdin.read()


# -- the bare loop ------------------------------------------------------------------------------------------------------


class Bare:
    """A conversation without anything of ours but the tools themselves."""

    def __init__(self, model: str, database: SqlDatabase, interpreter: Interpreter) -> None:
        import httpx

        address, _, self._name = model.partition("#")
        self._client = httpx.AsyncClient(base_url=address, timeout=60)
        self._tools = [tool.as_openai for tool in TOOLS.values()]
        self._messages: list[dict] = [{"role": "system", "content": INSTRUCTIONS}]
        self._database, self._interpreter = database, interpreter

    async def say(self, text: str) -> str:
        """Say something, and return the answer."""
        self._messages.append({"role": "user", "content": text})
        while True:
            content, calls = await self._asked()
            said = {"role": "assistant", "content": content or None}
            self._messages.append({**said, "tool_calls": list(calls.values())} if calls else said)
            for call in calls.values():
                result = await asyncio.to_thread(self._made, call["function"])
                self._messages.append({"role": "tool", "tool_call_id": call["id"], "content": json.dumps(result)})
            if not calls:
                return content

    async def _asked(self) -> tuple[str, dict[int, dict]]:
        body = {"model": self._name, "messages": self._messages, "tools": self._tools, "stream": True}
        content, calls = "", {}
        async with self._client.stream("POST", "/chat/completions", json=body) as response:
            async for line in response.aiter_lines():
                if not line.startswith("data: {"):
                    continue
                delta = json.loads(line[6:])["choices"][0]["delta"]
                content += delta.get("content") or ""
                for part in delta.get("tool_calls") or ():
                    if part["index"] not in calls:
                        calls[part["index"]] = part
                    else:
                        calls[part["index"]]["function"]["arguments"] += part["function"]["arguments"]
        return content, calls

    def _made(self, function: dict) -> dict:
        given = json.loads(function["arguments"])
        if function["name"] == "run_sql":
            found = self._database.query(given["sql"])
            return {"columns": found.columns, "rows": found.preview, "row_count": found.row_count}
        return {"output": self._interpreter.run(given["code"]).output}

    async def close(self) -> None:
        """Close the connection."""
        await self._client.aclose()


# -- measuring ----------------------------------------------------------------------------------------------------------


async def timed_ms(say: Callable, text: str) -> tuple[float, float]:
    """Return the wall time and the processor time of a turn."""
    gc.collect()
    wall, processor = time.perf_counter(), time.process_time()
    await say(text)
    return (time.perf_counter() - wall) * 1000, (time.process_time() - processor) * 1000


async def both(chat: Chat, bare: Bare, what: str, count: int) -> list[list[float]]:
    """Return rounds of milliseconds for each thing, of `count` in a turn: wall time of ours and of the bare loop, processor time of both.

    They are what it takes at full speed: the processor of a shared machine is at times half as fast, and plain Python, timed before and after, says when.
    """
    taken = []
    for at in range(-1, ROUNDS):
        text, before_us = f"{what} {count} {(at + 2) * 1_000}", plain_python_us()
        ours, theirs = await timed_ms(chat.say, text), await timed_ms(bare.say, text)
        speed = speed_between(before_us, plain_python_us())
        if at >= 0:  # the first is to warm both
            taken.append([took / count * speed for pair in zip(ours, theirs, strict=True) for took in pair])
    return taken


def bench_chat_overhead() -> None:
    """A streamed chunk and a call, ours less the bare loop."""
    print(
        f"\nwhat the chat machine adds to a loop over bare httpx, ms of processor time where plain Python takes {FULL_SPEED_US} us, medians of {ROUNDS} rounds"
    )
    kinds = (
        ("text", CHUNKS, "a chunk of text", CHUNK_MS),
        ("arguments", CHUNKS, "a chunk of a call's arguments", CHUNK_MS),
        ("sql", CALLS, "a call of run_sql", CALL_MS),
        ("python", CALLS, "a call of run_python", CALL_MS),
    )
    for what, count, name, limit_ms in kinds:
        taken = measured(what, count)
        added = statistics.median(ours - theirs for ours, theirs, *_ in taken)
        used = statistics.median(ours - theirs for *_, ours, theirs in taken)
        ours, theirs, *_ = (statistics.median(times) for times in zip(*taken, strict=True))
        print(
            f"  {name:<32}{used:8.3f}   (wall {added:.3f}: {ours:.3f} and {theirs:.3f})"
            f"   limit {limit_ms:g}   {verdict(good=used <= limit_ms)}"
        )


def measured(what: str, count: int) -> list[list[float]]:
    """Hold a conversation and a bare one, and time both."""
    with server() as model, memory_folder() as folder:
        (folder / "data").mkdir()

        async def work() -> list[list[float]]:
            with (
                SqlDatabase([CARS], folder / "data") as database,
                open_runs(folder) as runs,
                Chat.begin(ChatStart(model, (CARS,)), runs) as chat,
            ):
                bare = Bare(model, database, chat.resources.interpreter)
                try:
                    return await both(chat, bare, what, count)
                finally:
                    await bare.close()

        return asyncio.run(work())


def bench_chat_turns() -> None:
    """Turns from 500 on against turn 5 of new conversations: each asks for SQL that makes a new artifact, and answers."""
    with server() as model, memory_folder() as folder:
        taken = asyncio.run(turns(model, folder))
    late, early = zip(*taken, strict=True)
    (wall, used), (late_ms, early_ms) = (
        [statistics.median(a[at] / b[at] for a, b in taken) for at in (0, 1)],
        [statistics.median(times[0] for times in each) for each in (late, early)],
    )
    print(f"\nturn {LATE} and on / turn {EARLY} of new conversations, medians of {TURN_ROUNDS} rounds")
    print(
        f"  wall {late_ms:.1f} / {early_ms:.1f} ms: {wall:.2f}   ({used:.2f} of processor time)"
        f"   limit {GROWTH:g}   {verdict(good=wall <= GROWTH)}"
    )


async def turns(model: str, folder: Path) -> list[tuple[tuple[float, float], tuple[float, float]]]:
    """Return rounds of what a late and an early turn take, each behind four turns of its conversation, so that both are as warm."""
    settings, taken, said = ChatStart(model, (CARS,)), [], 0
    with open_runs(folder) as runs, Chat.begin(settings, runs) as long:
        for said in range(1, LATE - EARLY + 1):
            await long.say(f"sql 1 {said}")
        for _ in range(TURN_ROUNDS):
            late = await timed_fifth(long, said)
            said += EARLY
            with Chat.begin(settings, runs) as short:
                taken.append((late, await timed_fifth(short, 0)))
        made = len(long.conversation.inventory)
    assert made == said, f"{made} artifacts in {said} turns: not each has made one"
    return taken


async def timed_fifth(chat: Chat, said: int) -> tuple[float, float]:
    """Have four turns, and return the milliseconds of the next."""
    for number in range(said + 1, said + EARLY):
        await chat.say(f"sql 1 {number}")
    return await timed_ms(chat.say, f"sql 1 {said + EARLY}")


def bench_chat_python() -> None:
    """Python over a table in the warm sandbox, over an interpreter started for it, which imports the same."""
    interpreter = Interpreter()
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-c", COLD, FRAME.csv.decode()]

    def cold() -> str:
        return subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout

    def warm() -> str:
        return interpreter.run(CODE, FRAME).output

    assert cold() == warm(), "both are to do the same"
    taken = []
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        cold()
        between = time.perf_counter()
        warm()
        taken.append((between - begun, time.perf_counter() - between))
    ratio = statistics.median(b / a for a, b in taken)
    cold_ms, warm_ms = (statistics.median(times) * 1000 for times in zip(*taken, strict=True))
    print(
        f"\nrun_python, wall ms, medians of {ROUNDS} rounds: warm {warm_ms:.0f}, an interpreter started cold {cold_ms:.0f}"
    )
    print(f"  warm / cold {ratio:.2f}   limit {WARM:g}   {verdict(good=ratio <= WARM)}")


def bench_chat_beside() -> None:
    """Three queries of one answer over one, by wall time."""
    with server() as model, memory_folder() as folder:
        (folder / "waiting.py").write_text(WAITING, encoding="utf-8")
        waiting = ChatStart(model, (CARS,), module=str(folder / "waiting.py"))
        taken = {
            what: asyncio.run(beside(settings, folder, what))
            for what, settings in (("beside", waiting), ("heavy", ChatStart(model, (CARS,))))
        }
    print(f"\n{BESIDE_CALLS} queries of one answer / one, wall time of the turn, medians of {BESIDE_ROUNDS} rounds")
    for what, name in (
        ("beside", "each waits a second"),
        ("heavy", f"each keeps one of {os.cpu_count()} processors busy"),
    ):
        ratio = statistics.median(three / one for one, three in taken[what])
        one_ms, three_ms = (statistics.median(times) for times in zip(*taken[what], strict=True))
        judged = f"   limit {BESIDE:g}   {verdict(good=ratio <= BESIDE)}" if what == "beside" else ""
        print(f"  {name:<40}{three_ms:.0f} / {one_ms:.0f} ms: {ratio:.2f}{judged}")


async def beside(settings: ChatStart, folder: Path, what: str) -> list[tuple[float, float]]:
    """Return rounds of the wall milliseconds of a turn with one query, and of one with three. The first round starts the processes, and is left out."""
    taken, number = [], 0
    with open_runs(folder) as runs, Chat.begin(settings, runs) as chat:
        for _ in range(1 + BESIDE_ROUNDS):
            walls = []
            for count in (1, BESIDE_CALLS):
                wall_ms, _ = await timed_ms(chat.say, f"{what} {count} {number}")
                walls.append(wall_ms)
                number += count
            taken.append(tuple(walls))
        statuses = [call.status for turn in chat.conversation.turns for call in turn.calls]
    assert statuses == ["done"] * number, statuses
    return taken[1:]


BENCHES = (bench_chat_overhead, bench_chat_turns, bench_chat_python, bench_chat_beside)

if __name__ == "__main__" and sys.argv[1:] == ["serve"]:
    serve()
