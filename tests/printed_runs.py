"""Runs of several machines, played and replayed in this process, and printed in full; run as a program: FOLDER.

The output must not depend on the process: the first process in the folder stores the ledgers of its runs there, and all others replay these.
"""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import attrs
from property.test_driver import BUSY_MACHINES
from property.test_recorded_runs import kept
from property.test_recovery import lived
from repository import shipped_machines

from dsa.cli.command_line import CommandExit
from dsa.cli.ledger_view import story
from dsa.cli.replay import projection
from dsa.cli.show import percept_lines, scenario_lines
from dsa.edge.stores.sqlite_store import SqliteStore
from dsa.lang import digest, dumps
from dsa.runs.summary import summary_of_record
from dsa.runtime.ledger import dump_line
from dsa.runtime.status import unfinished_work

SEEDS = range(3)


def machines():
    shipped = shipped_machines()
    names = ("dual_state", "workflow", "katas/katas", "examples/two_phase_commit")
    return (*BUSY_MACHINES, *(shipped[name] for name in names))


def tell(machine, entries):
    """Print everything that a ledger comes to."""
    found = kept(machine, entries)
    left = unfinished_work(found.run)
    print(machine.name, digest(machine))
    print(*map(dump_line, found.run.ledger), sep="\n")
    print(json.dumps(projection(found.run)))
    print(list(found.run.keys.items()), list(found.run.steps))
    print([attrs.astuple(each, recurse=False) for each in left.in_flight], left.answers, list(left.timers.items()))
    print(*story(found, Path("runs"), summary_of_record(found)), *percept_lines(found), sep="\n")
    try:
        print(*scenario_lines(found), sep="\n")
    except CommandExit as cannot:
        print(cannot.message)


if __name__ == "__main__":
    with SqliteStore(Path(sys.argv[1], "ledger.db")) as store:
        for number, machine in enumerate(machines()):
            for seed in SEEDS:
                crashes = [(3, seed % 2 == 0), (5, False)] if seed else []
                _, entries = lived(machine, seed, crashes, threads=False)
                tell(machine, entries)
                name = f"{number} {seed}"
                if name not in store.runs():
                    store.create(name, dumps(machine), list(entries)).release()
                tell(machine, store.read(name).entries)
