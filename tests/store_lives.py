"""Stories of a run that one process after the other works on, each with its fault, and what must be true of every story.

The processes are forks of `tests/crash/store_victim.py`. What is true is judged by what they said while they lived and by the file
that the effects write; the ledger is read after each life, from a copy of the folder, so that the next life finds what was left.
"""

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import attrs
import parcels
from fault_shim import Fault, preloaded

import dsa
from dsa.edge.stores.sqlite import SqliteStore
from dsa.runtime.ledger import DoubtEntry, IntentEntry, ResultEntry, dump_line

VICTIM = Path(__file__).parent / "crash" / "store_victim.py"
MOST_LIVES = 8


class Nursery:
    """The process that forks lives. Use it as a context manager."""

    def __init__(self):
        self._folder = TemporaryDirectory(prefix="nursery-")
        Path(self._folder.name, "dot").symlink_to(shutil.which("false"))  # nobody looks at the diagrams
        environment = {
            **preloaded(),
            "PYTHONPATH": str(Path(dsa.__file__).parent.parent),
            "PATH": f"{self._folder.name}:{os.environ['PATH']}",
        }
        self._process = subprocess.Popen(
            [sys.executable, str(VICTIM)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def live(self, order):
        """Have one life; give what it told, and how it ended."""
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "the process that forks lives has ended"
        return json.loads(line)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait(timeout=60)
        self._folder.cleanup()


class Story:
    """One run in a folder of its own. `live` is one life; `finish` lives without faults to the end and judges the whole."""

    def __init__(self, nursery, folder, **order):
        self.nursery, self.folder = nursery, Path(folder)
        self.root, self.performed = self.folder / "runs", self.folder / "performed.txt"
        self.order = {"size": 6_000, **order}
        self.lives, self.fired = 0, 0
        self.run, self.entries, self.decided = None, [], {}
        self.onlooker = None  # a store that somebody has open all the time

    def live(self, fault=None, boundary=0):
        """Have a life, and judge it; give what it said about its end, nothing when it was killed."""
        self.lives += 1
        order = {
            **self.order,
            "root": str(self.root),
            "performed": str(self.performed),
            "life": self.lives,
            "run": self.run,
            "decided": self.decided,
            "fault": attrs.asdict(fault or Fault()),
            "boundary": boundary,
        }
        answer = self.nursery.live(order)
        said = {name: value for told in answer["told"] for name, value in told.items()}
        assert "broken" not in said, said["broken"]
        assert answer["ended"] == 0, answer
        self.fired += answer["killed"] or said["fired"]
        self._judge([told["acknowledged"] for told in answer["told"] if "acknowledged" in told])
        happened = {key for _, key in parcels.performed(self.performed)}
        self.decided = {key: "done" if key in happened else "retry" for key in said.get("asked", ())}
        return said

    def finish(self):
        """Go on until the run is finished; give how many faults fired."""
        while (said := self.live()).get("rest") != "finished":
            assert said.get("rest") == "waiting", said
            assert said["asked"], said
            assert self.lives < MOST_LIVES, said
        assert said["state"] == "done"
        self._judge_the_whole()
        return self.fired

    def _judge(self, acknowledged):
        """Nothing acknowledged is lost, nothing recorded is done again, what is done again was reported."""
        before, found = self.entries, self.read()
        assert found[: len(before)] == before, "what was there before is lost"
        new, self.entries = found[len(before) :], found
        assert [dump_line(entry) for entry in new[: len(acknowledged)]] == acknowledged, "what was acknowledged is lost"
        over = {entry.key for entry in before if isinstance(entry, ResultEntry) and not entry.failed}
        recorded = Counter(entry.key for entry in before if isinstance(entry, ResultEntry))
        earlier = Counter(key for life, key in parcels.performed(self.performed) if life < self.lives)
        for key in {key for life, key in parcels.performed(self.performed) if life == self.lives}:
            assert any(isinstance(entry, IntentEntry) and entry.key == key for entry in found), f"{key}: no intent"
            assert key not in over, f"{key}: its result was recorded, and it was performed again"
            if earlier[key] > recorded[key]:
                assert ("retry", key) in _doubts(new), f"{key}: performed again, and nobody was told"

    def _judge_the_whole(self):
        """Each time an effect happened there is a result of it, or it was reported to be in doubt."""
        times = Counter(key for _, key in parcels.performed(self.performed))
        results = Counter(entry.key for entry in self.entries if isinstance(entry, ResultEntry))
        doubts = _doubts(self.entries)
        for intent in (entry for entry in self.entries if isinstance(entry, IntentEntry)):
            ours = [handling for handling, key in doubts if key == intent.key]
            settled = len(ours) - ours.count("retry")
            assert times[intent.key] <= results[intent.key] - settled + len(ours), (
                f"{intent}: {times[intent.key]} times"
            )
            assert results[intent.key] > 0, f"{intent} has no result"
            assert intent.effect != "charge" or times[intent.key] == 1, "a person who looks makes it exactly once"

    def read(self):
        """Read the run, as it is on disk or as the onlooker sees it, and verify it."""
        if self.onlooker is not None:
            return self._entries(self.onlooker)
        if not (self.root / "ledger.db").exists():
            return []
        with TemporaryDirectory(dir=self.folder) as copied:
            for path in self.root.glob("ledger.db*"):
                (shutil.copytree if path.is_dir() else shutil.copy)(path, Path(copied, path.name))
            with SqliteStore(Path(copied, "ledger.db")) as store:
                return self._entries(store)

    def _entries(self, store):
        runs = store.runs()
        assert len(runs) <= 1, runs
        self.run = runs[0] if runs else None
        return list(store.read(self.run).entries) if runs else []


def _doubts(entries):
    """Give what was reported to be in doubt, and what was done about it; what failed and is tried again is not in doubt."""
    return [(each.handling, each.key) for each in entries if isinstance(each, DoubtEntry) and each.handling != "again"]
