"""Random models, random users, and killed processes: turns end, the table decides, nothing is lost or done twice.

A conversation alone: `pytest tests/e2e/test_chat_chaos.py -m "full or not full" -k "seed-17"`.
"""

import asyncio
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from random import Random

import pytest
from chat_chaos import Tally, counted, judged, lived, settings_of
from chat_mischief import mischief
from chat_server import Said, playing
from chats import CARS, CSV, SQL, scripted, sql
from results import results_of
from stored_runs import keep

from dsa.runs.runs import open_runs
from dsa.runs.setup import Options
from dsa.runtime.ledger import EffectEntry, RefusalEntry, RowEntry
from machines.chat.chat_session import Chat, ChatStart
from machines.chat.conversation import conversation_of
from machines.tool_use.machine_session import SessionListeners

SAMPLE, ALL = 2, 130
TURNS = 14
#: Pairs of the number of kills and the number of turns: in the sample, and in each of the others.
LIVES_SAMPLE, LIVES = (2, 6), (4, 12)
LIVES_ALL = 18
full = pytest.mark.full


def seeds(sample, number):
    """Return seeds, of which the first few are always played."""
    return [pytest.param(seed, id=f"seed-{seed}", marks=[] if seed < sample else full) for seed in range(number)]


@pytest.mark.parametrize("seed", seeds(SAMPLE, ALL))
def test_every_turn_ends_by_the_table_with_random_models_and_users(tmp_path, seed, figures):
    did, tally = Counter(), Tally()
    plays = mischief(seed, did)

    def player(body, number):
        tally.look(body)
        return plays(body, number)

    with (
        playing(player) as played,
        open_runs(tmp_path) as runs,
        Chat.begin(settings_of(seed, played.model), runs, SessionListeners(tally.on_moment)) as chat,
    ):
        asyncio.run(lived(chat, tally, seed, TURNS))
        last_state, turns = chat.state, chat.conversation.turns
        if Random(seed).random() < 0.5:
            asyncio.run(chat.tell("ended"))
            last_state = chat.state
            assert chat.is_over
        run_id, live = chat.run_id, chat.conversation
    entries, conversation = judged(tmp_path, run_id, TURNS)
    assert played.faults == []
    assert tally.faults == []
    assert entries == tally.entries
    assert conversation.turns == turns == conversation_of(entries).turns
    assert list(conversation.inventory) == list(live.inventory)
    steps = [entry for entry in entries if isinstance(entry, RowEntry)]
    assert steps[-1].target == last_state
    figures(
        "chat chaos",
        "in one process",
        **counted(entries, conversation, len(played.requests), len(played.faults), kills=0, cancels=tally.cancels),
    )


def life(runs, model, seed, turns, *run_id):
    """Start a process that holds a conversation."""
    tests = Path(__file__).parent.parent
    command = [sys.executable, str(tests / "chat_chaos.py"), str(runs), model, str(seed), str(turns), *run_id]
    paths = os.pathsep.join([str(tests), str(tests.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": paths}
    )


def killed_after(process, entries, seconds):
    """Kill a process some seconds after a number of entries; return whether it was alive."""
    for line in process.stdout:
        entries -= line != "ready\n"
        if entries <= 0:
            break
    time.sleep(seconds)
    was_alive = process.poll() is None
    process.kill()
    return was_alive


def runs_in(folder):
    """Return the ids of the runs in a store, if there is one."""
    if not (folder / "ledger.db").exists():
        return []
    with open_runs(folder) as runs:
        return list(runs.ids())


def left_running(folder):
    """Return the ids of the processes that work in a folder."""
    found = []
    for place in Path("/proc").glob("[0-9]*/cwd"):
        try:
            if place.readlink().is_relative_to(folder):
                found.append(place.parent.name)
        except OSError:
            continue  # it has ended, or is not ours
    return found


@pytest.mark.parametrize(
    ("seed", "most_kills", "most_turns"),
    [
        pytest.param(0, *LIVES_SAMPLE, id="sample"),
        *(pytest.param(seed, *LIVES, id=f"seed-{seed}", marks=full) for seed in range(LIVES_ALL)),
    ],
)
def test_conversation_killed_at_any_moment_resumes_without_repeating_work(
    tmp_path, seed, most_kills, most_turns, figures
):
    rng, did, kills = Random(f"lives {seed}"), Counter(), 0
    with playing(mischief(1_000 + seed, did)) as played:
        while True:
            process = life(tmp_path, played.model, seed, most_turns, *runs_in(tmp_path))
            if kills < most_kills:
                kills += killed_after(process, rng.randint(1, 60), rng.random() * 0.1)
                _, complaints = process.communicate()
                if process.returncode == 0:
                    break
                assert process.returncode == -9, complaints
                continue
            _, complaints = process.communicate(timeout=300)
            assert process.returncode == 0, complaints
            break
    (run_id,) = runs_in(tmp_path)
    entries, conversation = judged(tmp_path, run_id, most_turns)
    assert played.faults == []
    answered = len(results_of(entries, "ask_model"))
    cancelled = conversation.reasons["turn_cancelled"]
    assert len(played.requests) <= answered + kills + cancelled + 2 * (did["status"] + did["garbage"])
    assert left_running(tmp_path) == []
    figures(
        "chat chaos",
        "killed and resumed",
        **counted(entries, conversation, len(played.requests), len(played.faults), kills=kills, cancels=cancelled),
    )


# -- cut off after every kind of entry ----------------------------------------------------------------------------------------

COUNT = "SELECT count(*) FROM cars"
TROUBLE = (
    Said(calls=(("run_sql", {"sql": SQL}), ("run_sql", {"sql": COUNT}), ("run_sql", {"sql": SQL}), ("run_python", {"code": CSV}), ("run_nothing", {}), ("run_python", {"code": ""}))),
    Said("no", status=400), sql("SELEC"), Said("See a.png."), Said("Done."), *[Said("It", finish="length")] * 4, sql(),
)  # fmt: skip
WITH_THE_ONE_BEFORE = (RowEntry, RefusalEntry, EffectEntry)


def troubled(folder):
    """Hold a conversation with an error, a retry, a reminder, a limit that is reached, and a cancelled turn; return the stored run."""

    def player(body, number):
        return scripted(*TROUBLE)(body, number) if number < len(TROUBLE) else Said("Not stopped.")

    with playing(player) as played:
        settings = ChatStart(played.model, (CARS,), parameters={"max_rounds": 4, "max_refusals": 4})
        stops = []

        def on_moment(moment, _is_new):
            if stops and isinstance(moment.entry, EffectEntry) and moment.entry.effect == "run_sql":
                asyncio.get_running_loop().call_soon(chat.cancel)

        with open_runs(folder) as runs, Chat.begin(settings, runs, SessionListeners(on_moment)) as chat:
            asyncio.run(chat.say("Compare the horsepower"))
            assert chat.has_failed
            asyncio.run(chat.tell("retried"))
            asyncio.run(chat.say("Why?"))
            stops.append(True)
            assert asyncio.run(chat.say("Do it from scratch")).calls[-1].status == "turn_cancelled"
            run_id = chat.run_id
    with open_runs(folder) as runs:
        return runs.stored_run(run_id)


def cuts(entries):
    """Yield each number of entries that a process may have written when it is killed, and whether that kind of place has come before."""
    seen = set()
    for count in range(2, len(entries) + 1):
        following = entries[count] if count < len(entries) else None
        if not isinstance(following, WITH_THE_ONE_BEFORE):
            place = tuple(
                (type(e), getattr(e, "event", ""), getattr(e, "effect", "")) for e in (entries[count - 1], following)
            )
            yield count, place in seen
            seen.add(place)


@pytest.mark.parametrize("everywhere", [False, pytest.param(True, marks=full)], ids=["sample", "everywhere"])
def test_conversation_cut_off_after_any_entry_takes_the_next_message(tmp_path, everywhere, told):
    recorded = troubled(tmp_path / "whole")
    stuck, number = [], 0
    with playing(lambda _body, _number: Said("Done.")) as played:
        for count, is_known in cuts(recorded.entries):
            if is_known and not everywhere:
                continue
            number += 1
            folder = tmp_path / str(count)
            shutil.copytree(tmp_path / "whole" / recorded.run, folder / recorded.run)
            keep(folder, recorded.entries[:count], recorded.text, recorded.run)
            with (
                open_runs(folder) as runs,
                Chat.resume(recorded.run, runs, options=Options(model=played.model)) as chat,
            ):
                try:
                    asyncio.run(goes_on(chat))
                except Exception as error:  # noqa: BLE001  (whatever it is, the other places are tried too)
                    stuck.append(
                        f"after {count} entries, the last {recorded.entries[count - 1]}: {type(error).__name__}: {error}"
                    )
    told(f"chat chaos: cut off at {number} places")
    assert stuck == []
    assert played.faults == []


async def goes_on(chat):
    """Finish the turn that was cut off, and take another one."""
    await asyncio.wait_for(chat.go_on(), 30)
    assert chat.state.startswith("resting"), chat.state
    turn = await asyncio.wait_for(chat.say("And now?"), 30)
    assert (chat.state, turn.answer) == ("resting.completed", "Done.")
    assert chat.conversation.transcript.open_ids() == ()
