"""Runs in a folder, made to be looked at: a shop that pays and mails, finished, waiting, or cut off while it does something."""

from contextlib import suppress
from pathlib import Path

from click.testing import CliRunner

from dsa.cli.main import program
from dsa.lang import digest, loads
from dsa.runs.archive import OtherMachineError, replay_stored
from dsa.runs.place import open_store
from dsa.runs.summary import SummaryJournal, summary_of_run
from dsa.runtime.ledger import Ledger, ResultEntry
from dsa.runtime.policy.policies import event_step
from dsa.runtime.run import ReplayError, begin, oldest_key
from dsa.runtime.run_store import NewJournal, StoredRun
from dsa.runtime.status import status_of
from dsa.semantics import Occurrence

SHOP = """# shop

## Events
| event    | from    |
| -------- | ------- |
| order    | outside |
| more     | outside |
| paid     | pay     |
| declined | pay     |

## Effects
| effect | kind     | in doubt |
| ------ | -------- | -------- |
| pay    | actuator |          |
| mail   | actuator |          |
| log    |          |          |

## States
| state     | kind    |
| --------- | ------- |
| idle      | initial |
| paying    |         |
| resting   |         |
| succeeded | final   |
| failed    | final   |

## Transitions
| source  | event      | effects   | target    |
| ------- | ---------- | --------- | --------- |
| idle    | order      | log, pay  | paying    |
| paying  | paid       | mail, log | resting   |
| paying  | declined   |           | failed    |
| paying  | pay.failed |           | failed    |
| resting | more       |           | succeeded |
"""

#: Policies that write down what they do; the one that the variable KILL names ends its process before it answers, the one that HOLD names waits.
BINDINGS = """
import asyncio, os, signal
from dsa.runtime.policy.policies import event_step

async def done(action, context):
    with open("done.txt", "a") as file:
        file.write(action.policy + " ")
        file.flush()
        os.fsync(file.fileno())
    if os.environ.get("KILL") == action.policy:
        os.kill(os.getpid(), signal.SIGKILL)
    if os.environ.get("HOLD") == action.policy:
        print("holding", flush=True)
        await asyncio.get_running_loop().run_in_executor(None, input)
    return [event_step(action.policy, "paid")] if action.policy == "pay" else []

effects = dict.fromkeys(("log", "pay", "mail"), done)
"""
RUN = "20260131T120000-shop-aaaaaa"


def write_shop(folder: Path) -> Path:
    """Write the shop and its bindings into a folder; return the document's path."""
    (folder / "bindings.py").write_text(BINDINGS)
    (folder / "shop.md").write_text(SHOP)
    return folder / "shop.md"


def keep(root: Path, entries, text: str = SHOP, run: str = RUN) -> None:
    """Store a run that no process holds, with the summary that its process has left: of its rest if it had come to one, else of a killed one."""
    entries = list(entries)
    now = _replayed(entries, text, run)
    with open_store(root) as store:
        if now is None:
            store.create(run, text, entries).release()
            return
        journal, stands = SummaryJournal(NewJournal(store, run, text), now, lambda: now), status_of(now)
        journal.append(entries)
        journal.release(summary_of_run(now, stands) if stands.kind in {"finished", "waiting", "stopped"} else None)


def _replayed(entries, text: str, run: str):
    """Return the run that was recorded, also if the text is no longer that of its machine; None for entries of no run."""
    for read_as in (text, SHOP):
        with suppress(OtherMachineError, ReplayError):
            return replay_stored(StoredRun(run, read_as, Ledger(entries), 1))[0]
    return None


def recorded(root: Path, run: str = RUN):
    """Return a stored run."""
    with open_store(root) as store:
        return store.read(run)


def ledger_of(folder: Path):
    """Return the entries of the run that a folder is a copy of."""
    return recorded(folder.parent, folder.name).entries


def begun(text: str = SHOP, run: str = RUN, file: Path | None = None, **parameters):
    """Begin a run of a document as the program does."""
    machine = loads(text).at(parameters)
    started = {"file": str(file), "module": None, "model": "local", "seed": 0} if file else {}
    return begin(machine, run, digest=digest(machine), settings=started)[0]


def crashed_while(root: Path, *, doing: str, file: Path | None = None, run: str = RUN):
    """Keep a run of the shop that was cut off while it did something: `pay` or `mail`; give its ledger."""
    now, _ = begun(run=run, file=file).feed(Occurrence("order", data="tea"))
    now = now.record(ResultEntry("1/1"))
    if doing == "mail":
        now = now.record(ResultEntry("1/2", (event_step("pay", "paid").without_id(),)))
        now, _ = now.feed(Occurrence("paid"), oldest_key(now.keys, "pay"))
    keep(root, now.ledger, run=run)
    return now.ledger


def dsa(*arguments: str):
    """Run the program in this process; what it raises on purpose is in `exception`."""
    return CliRunner().invoke(program, list(arguments))
