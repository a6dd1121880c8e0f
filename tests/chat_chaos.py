"""Users who say things, stop turns, go on, and say the wrong things, at any moment; and what must be true of the conversation after it.

Seeded, so that one conversation can be played alone. As a program it holds a conversation until a test kills it, and takes it up again:
`python tests/chat_chaos.py RUNS MODEL SEED TURNS [RUN]`, which prints `ready`, and a line for each ledger entry once it is durable.
"""

import asyncio
import io
import os
import signal
import sys
from functools import partial
from itertools import pairwise
from pathlib import Path
from random import Random

import attrs
from chats import CARS, told
from rich.console import Console

from dsa.errors import DsaError
from dsa.runs.runs import open_runs
from dsa.runtime.ledger import EffectEntry, EventEntry, RefusalEntry, ResultEntry, ResumedEntry, RowEntry
from dsa.semantics import Occurrence, Taken, start, step
from machines.chat.chat_display import ChatDisplay
from machines.chat.chat_session import Chat, ChatStart
from machines.chat.conversation import CALL_EVENTS, REASONS, conversation_of
from machines.tool_use.machine_session import SessionListeners

SAYINGS = (
    "Compare the horsepower by origin", "continue", "Plot it", "As a CSV, please", "run it again", "refine it", "\N{PARROT} \u202e what?", "no plot, please",
    "half \ud83d", "x" * 3_000, "Do it from scratch", "[a note]", "line\n\nline",
)  # fmt: skip
LONGEST_TURN_S = 60
FINAL = {*REASONS, "done", "failed"}


@attrs.define
class Tally:
    """Counts of what happened in a conversation, made while watching it; `made` are its artifacts, `faults` what a request lacked. The display goes nowhere."""

    turns: int = 0
    cancels: int = 0
    made: int = 0
    known: int = 0
    entries: list = attrs.field(factory=list)
    faults: list = attrs.field(factory=list)
    due: list = attrs.field(factory=list)
    display: ChatDisplay = attrs.field(
        factory=lambda: ChatDisplay(Console(file=io.StringIO()), Path(), is_verbose=True)
    )

    def on_moment(self, moment, is_new):
        """Count artifacts and results of SQL, and do what is due after that many entries."""
        self.display.on_moment(moment, is_new)
        if not is_new:
            return
        entry = moment.entry
        before = self.entries[-1] if self.entries else None
        self.entries.append(entry)
        if isinstance(entry, RowEntry) and before.event in {"sql_done", "python_done", "presented"}:
            self.made += sum(each.get("equal_to") is None for each in before.data.get("artifacts", ()))
            self.known += before.event == "sql_done"
        for wanted in [each for each in self.due if each[0] <= len(self.entries)]:
            self.due.remove(wanted)
            asyncio.get_running_loop().call_soon(wanted[1])

    def look(self, body):
        """Look at a request: the inventory and the summaries are all there."""
        inventory, summaries = told(body)
        found, wanted = (len(inventory), len(summaries)), (min(self.made, 40), min(self.known, 5))
        if found != wanted:
            self.faults.append(f"{found} artifacts and summaries are told, there are {wanted}")


def settings_of(seed, model):
    """Return a conversation's settings, by its seed: tight bounds, and sometimes without `normalise`, with reports, or with room for little."""
    rng = Random(f"settings {seed}")
    bounds = {
        "max_rounds": rng.choice((2, 4, 6)),
        "max_calls": rng.choice((1, 3, 6)),
        "max_refusals": rng.choice((0, 2, 4)),
        "side": rng.choice((1, 2, 3)),
    }
    room = rng.choice((None, None, 170, 1_700))
    format_ = "report" if rng.random() < 0.1 else "none"
    normalise = rng.random() < 0.9
    return ChatStart(model, (CARS,), seed, format_, normalise, parameters=bounds, context_tokens=room)


async def one_turn(chat, tally, rng, text):
    """Have one turn, or go on with one that failed, while other things are said and done."""
    _plan(chat, tally, rng)
    if chat.has_failed and rng.random() < 0.6:
        work = chat.tell(rng.choice(("retried", "retried", "dismissed")))
    elif rng.random() < 0.05:
        work = chat.tell(rng.choice(("retried", "dismissed", "cancelled")))  # none of them is taken now
    else:
        work = chat.say(text)
    try:
        await asyncio.wait_for(work, LONGEST_TURN_S)
    except DsaError as error:
        assert str(error).startswith("no message is accepted while")  # noqa: PT017  (something else came first, and had the turn)
    tally.due.clear()
    tally.turns += 1
    assert chat.state.startswith("resting"), chat.state
    assert chat.conversation.transcript.open_ids() == ()
    called = {call.status for turn in chat.conversation.turns for call in turn.calls}
    assert called <= FINAL, called


def _plan(chat, tally, rng):
    """Plan what happens in a turn beside what is said: after some entries, or after some time."""

    def send(event):
        data = {"text": "And this?"} if event == "message" else None
        tally.cancels += event == "cancelled"
        chat.send_soon(Occurrence(event, data=data))

    (plan,) = rng.choices(((), ("cancelled",), ("cancelled",) * 2, ("message",), ("cancelled", "message"), ("retried", "dismissed"), ("killed",)), (60, 14, 4, 8, 4, 4, 6))  # fmt: skip
    for event in plan:
        act = (lambda: _kill_reader(chat)) if event == "killed" else (lambda event=event: send(event))
        if rng.random() < 0.3:
            asyncio.get_running_loop().call_later(rng.random() * 0.2, act)
        else:
            tally.due.append((len(tally.entries) + rng.randint(1, 25), act))


def _kill_reader(chat):
    """Kill a process that reads the data, as a system does that is out of memory."""
    database = chat.resources.database
    for child in (*database._busy, *database._idle)[:1]:  # noqa: SLF001  (a fault from outside)
        if not child.is_over():
            os.kill(child._process.pid, signal.SIGKILL)  # noqa: SLF001


def numbered(chat):
    """Count the numbered messages that were taken."""
    return sum(turn.text.startswith("turn ") for turn in chat.conversation.turns)


async def lived(chat, tally, seed, turns):
    """Hold `turns` turns, each with its number in the message; a turn that was cut off goes on first."""
    if chat.is_under_way:
        await asyncio.wait_for(chat.go_on(), LONGEST_TURN_S)
    tries = 0
    while numbered(chat) < turns and tries < 5 * turns:
        tries += 1
        number = numbered(chat) + 1
        rng = Random(f"{seed}/{number}/{len(tally.entries)}")
        await one_turn(chat, tally, rng, f"turn {number}: {rng.choice(SAYINGS)}")
    assert numbered(chat) == turns, f"{numbered(chat)} of {turns} messages were taken, and now none is: {chat.state}"


# -- what must be true afterwards -------------------------------------------------------------------------------------------


def judged(runs, run_id, turns):
    """Check and return the stored conversation: everything that happened is in it, and the table allowed it."""
    with open_runs(runs, must_exist=True) as opened:
        record = opened.get(run_id)
    entries = list(record.stored_run.entries)
    follows_the_table(record.run.machine, entries)
    happened_once(entries)
    codes = {
        entry.steps[-1]["payload"].get("code")
        for entry in entries
        if isinstance(entry, ResultEntry) and entry.has_failed
    }
    assert not [code for code in codes if code[:1].isupper()], codes  # the name of a class: a fault of ours
    conversation = conversation_of(entries)
    said = [turn.text for turn in conversation.turns if turn.text.startswith("turn ")]
    assert [text.split(":")[0] for text in said] == [f"turn {number}" for number in range(1, turns + 1)]
    contents = [each.digest for each in conversation.inventory]
    assert len(set(contents)) == len(contents), "an artifact is there twice"
    for each in conversation.inventory:
        assert (runs / run_id / "contents" / each.digest).exists()
    for turn in conversation.turns:
        done = [call.digest for call in turn.calls if call.status == "done"]
        assert len(set(done)) == len(done), "an equal call was made twice in a turn"
    return entries, conversation


def follows_the_table(machine, entries):
    """Take every event again, by the table alone: each step is a row's, each state is where the last one led, each refusal is one."""
    configuration = start(machine)
    for entry, following in pairwise(entries):
        if not isinstance(entry, EventEntry):
            assert not isinstance(following, RowEntry | RefusalEntry), "a step without an event"
            continue
        assert isinstance(following, RowEntry | RefusalEntry)
        if isinstance(following, RefusalEntry) and following.reason == "late":
            continue
        taken = step(machine, configuration, Occurrence(entry.event, entry.verdicts, entry.source))
        assert isinstance(taken, Taken) == isinstance(following, RowEntry), (entry.event, configuration.state)
        if isinstance(taken, Taken):
            assert (following.source, following.target) == (configuration.state, taken.configuration.state)
            configuration = taken.configuration


def happened_once(entries):
    """Each effect has one result at most, after which it is in doubt no more; each result is answered once; each call is taken once, or again after it was held."""
    done, answered, asked, taken = set(), set(), set(), None
    for entry, following in pairwise([*entries, None]):
        if isinstance(entry, ResultEntry):
            assert entry.key not in done, f"{entry.key} was done twice"
            done.add(entry.key)
        elif isinstance(entry, EffectEntry) and entry.effect == "hold_call":
            asked.remove(taken)
        elif isinstance(entry, ResumedEntry):
            assert not done & dict(entry.effects).keys(), "an effect was done, and in doubt"
        elif isinstance(entry, EventEntry) and isinstance(following, RowEntry):
            assert entry.key is None or entry.key not in answered
            answered.add(entry.key)
            if entry.event in CALL_EVENTS:
                taken = entry.data["call_id"]
                assert taken not in asked, "a call was taken twice"
                asked.add(taken)


def counted(entries, conversation, requests, orphans, **more):
    """Return the figures of a conversation."""
    refused = sum(isinstance(entry, RefusalEntry) for entry in entries)
    failures = sum(isinstance(entry, ResultEntry) and entry.has_failed for entry in entries)
    not_made = sum(
        conversation.reasons[name]
        for name in REASONS
        if name
        not in {"turn_cancelled", "turn_failed", "duplicate_artifact_prevented", "answer_cut_off", "answer_incomplete"}
    )
    asked = sum(isinstance(entry, EffectEntry) and entry.effect == "ask_model" for entry in entries)
    return {
        "turns": len(conversation.turns), "events": len([e for e in entries if isinstance(e, EventEntry)]), "refused": refused, "failures": failures,
        "not made": not_made, "asked": asked, "requests": requests, "orphans": orphans, **more,
    }  # fmt: skip


def main(runs, model, seed, turns, *run_id):
    """Hold a conversation, or go on with one."""
    tally = Tally()

    def on_moment(moment, is_new):
        tally.on_moment(moment, is_new)
        if is_new:
            print(type(moment.entry).__name__, flush=True)

    settings = attrs.evolve(settings_of(int(seed), model), format="none")
    begin = partial(Chat.resume, *run_id) if run_id else partial(Chat.begin, settings)
    with open_runs(runs) as opened, begin(opened, SessionListeners(on_moment)) as chat:
        print("ready", flush=True)
        asyncio.run(lived(chat, tally, seed, int(turns)))


if __name__ == "__main__":
    main(*sys.argv[1:])
