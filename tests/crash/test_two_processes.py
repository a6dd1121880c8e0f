"""Two processes on one run: one holds it; the other is refused, or takes it over from one that has stalled, which cannot write then."""

import asyncio
import os
import signal
import subprocess
import sys
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import parcels
import pytest
from artifact_runs import memory_folder
from fault_shim import preloaded

import dsa
from dsa.edge.stores.sqlite_store import SqliteStore
from dsa.runs.runs import Resumption
from dsa.runs.setup import Options
from dsa.runtime.ledger import Intents, ResultEntry, ResumedEntry
from dsa.runtime.run_store import HeldError, StoreError

IN_A_WRITE = 60  # the call on the store's files at which a process is stopped
IN_ITS_WRITE = 40  # the same, when the files are there already
VICTIM = Path(__file__).with_name("stalled_victim.py")


class Pair:
    """A process that stalls in a run, and this one."""

    def __init__(self, folder, process):
        self.root, self.performed, self.process = folder / "runs", folder / "performed.txt", process
        self.path = self.root / "ledger.db"

    def entries(self):
        with SqliteStore(self.path) as store:
            [self.run] = store.runs()
            return list(store.read(self.run).entries)

    def take_up(self, **how):
        binding, resumption = parcels.binding(self.performed, 2, lambda: None), Resumption(**how)

        async def whole():
            async with dsa.open_runs(self.root) as runs:
                handle = runs.hold(self.run, options=Options(bindings=lambda *_: binding), resumption=resumption)
                return await handle.drive()

        return asyncio.run(whole())

    def times(self):
        """Return how often each effect happened that did so more than once; `weigh` is tried twice by itself."""
        counted = Counter(key for _, key in parcels.performed(self.performed))
        return sorted(number for key, number in counted.items() if number > 1)

    def stop(self):
        self.process.send_signal(signal.SIGSTOP)
        os.waitpid(self.process.pid, os.WUNTRACED)

    def let_go_on(self):
        """Let it continue; return what it prints at its end."""
        self.process.send_signal(signal.SIGCONT)
        said, _ = self.process.communicate("\n", timeout=60)
        return said.strip()


@contextmanager
def stalled(stalls_at):
    with memory_folder() as folder:
        command = [sys.executable, VICTIM, folder / "runs", folder / "performed.txt", str(stalls_at)]
        environment = {**preloaded(), "PYTHONPATH": f"{Path(dsa.__file__).parent.parent}:{VICTIM.parent.parent}"}
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        ) as process:
            try:
                yield Pair(folder, process)
            finally:
                process.kill()


def test_held_run_is_refused_to_another_process_and_unchanged():
    with stalled("charge") as pair:
        assert pair.process.stdout.readline() == "stalls\n"
        before = pair.entries()
        with pytest.raises(HeldError, match=rf"run {pair.run} is held by process {pair.process.pid} on "):
            pair.take_up()
        assert pair.entries() == before
        assert pair.let_go_on() == "finished: done"
        assert pair.times() == [2]


@pytest.mark.parametrize("effect", ["note", "weigh", "charge", "print_label", "post"])
def test_stalled_process_whose_run_was_taken_over_records_nothing_and_stops(effect):
    """The effect it was performing was in doubt for the process that took over, and handled as the table says."""
    with stalled(effect) as pair:
        assert pair.process.stdout.readline() == "stalls\n"
        pair.stop()
        pair.entries()
        rest = pair.take_up(take=True)
        if effect == "charge":
            assert [intent.effect for intent in rest.in_doubt] == ["charge"]
            rest = pair.take_up(decisions={rest.in_doubt[0].key: "done"})
        assert (rest.kind, rest.run.outcome) == ("finished", "done")
        after = pair.entries()
        resumed = [entry.effects for entry in after if isinstance(entry, ResumedEntry)]
        doubts = [(Intents(after).effect(key), handling) for effects in resumed for key, handling in effects]
        handled = "done" if effect == "charge" else parcels.HANDLED[effect]
        assert (effect, handled) in doubts
        assert (
            pair.let_go_on() == f"LeaseLostError: run {pair.run} was taken over by another process; nothing was written"
        )
        assert pair.entries() == after
        results = Counter(entry.key for entry in after if isinstance(entry, ResultEntry) and not entry.has_failed)
        assert max(results.values()) == 1


def test_opening_a_store_times_out_while_a_stopped_process_is_writing():
    with stalled(IN_A_WRITE) as pair:
        os.waitpid(pair.process.pid, os.WUNTRACED)
        refused = "another process has been writing to the file for 0.05 s; is that process stopped\\? `fuser .*ledger.db-lock` shows which"
        with pytest.raises(StoreError, match=f"cannot be written: {refused}"):
            SqliteStore(pair.path, lock_patience_s=0.05)
        assert pair.let_go_on() == "finished: done"
        assert len(pair.entries()) == 30


def test_open_store_times_out_while_a_stopped_process_is_writing():
    with stalled(IN_ITS_WRITE) as pair:
        pair.root.mkdir(exist_ok=True)
        with SqliteStore(pair.path, lock_patience_s=0.05) as store:
            os.waitpid(pair.process.pid, os.WUNTRACED)
            [run] = store.runs()
            with pytest.raises(StoreError, match="cannot be written: another process has been writing"):
                store.hold(run, take=True)
            with pytest.raises(StoreError, match="this handle is closed"):
                store.hold(run, take=True)
        assert pair.let_go_on() == "finished: done"


def test_process_killed_while_stopped_in_a_write_releases_the_file():
    with stalled(IN_A_WRITE) as pair:
        os.waitpid(pair.process.pid, os.WUNTRACED)
        pair.process.kill()
        pair.process.wait()
        pair.entries()
        rest = pair.take_up()
        assert rest.kind == "finished" or rest.in_doubt
