"""Stories of a run that one process after the other works on, each with its fault, and what must be true of every story.

The processes are forks of `tests/crash/store_victim.py`. What is true is judged by what they said while they lived and by the file
that the effects write; the ledger is read after each life, from a copy of the folder, so that the next life finds what was left.
"""

import shutil
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import parcels

from dsa.edge.stores.sqlite_store import SqliteStore
from dsa.runtime.ledger import EffectEntry, Intents, ResultEntry, ResumedEntry, dump_line

MOST_LIVES = 8


class Story:
    """One run in a folder of its own. `live` is one life; `finish` lives without faults to the end and judges the whole."""

    def __init__(self, nursery, folder, **order):
        self.nursery, self.folder = nursery, Path(folder)
        self.root, self.performed = self.folder / "runs", self.folder / "performed.txt"
        self.order = {"size": 6_000, **order}
        self.lives, self.fired = 0, 0
        self.run, self.entries, self.decided = None, [], {}
        self.onlooker = None  # a store that another reader has open all the time

    def live(self, fault=None, boundary=0):
        """Run a life, and judge it; return how it ended."""
        self.lives += 1
        order = {
            **self.order,
            "root": str(self.root),
            "performed": str(self.performed),
            "life": self.lives,
            "run": self.run,
            "decided": self.decided,
            "boundary": boundary,
        }
        ended = self.nursery.live(fault=fault, **order)
        self.fired += ended.fired
        self._judge(ended.all("acknowledged"))
        happened = {key for _, key in parcels.performed(self.performed)}
        self.decided = {key: "done" if key in happened else "retry" for key in ended.last("asked", ())}
        return ended

    def finish(self):
        """Go on until the run is finished; return how many faults fired."""
        while (ended := self.live()).last("rest") != "finished":
            assert ended.last("rest") == "in doubt", ended.told
            assert ended.last("asked"), ended.told
            assert self.lives < MOST_LIVES, ended.told
        assert ended.last("state") == "done"
        self._judge_the_whole()
        return self.fired

    def _judge(self, acknowledged):
        """Nothing acknowledged is lost, and nothing that was read before."""
        before, found = self.entries, self.read()
        assert found[: len(before)] == before, "what was there before is lost"
        new, self.entries = found[len(before) :], found
        assert [dump_line(entry) for entry in new[: len(acknowledged)]] == acknowledged, "what was acknowledged is lost"
        self._judge_what_happened(before, new)

    def _judge_what_happened(self, before, new):
        """No effect happens without its intent, nor again once its result is recorded; what was in doubt is reported, and handled as declared."""
        done = list(parcels.performed(self.performed))
        now, earlier = {key for life, key in done if life == self.lives}, times(done, before=self.lives)
        assert now <= {entry.key for entry in self.entries if isinstance(entry, EffectEntry)}, "done without an intent"
        over = {entry.key for entry in before if isinstance(entry, ResultEntry) and not entry.has_failed}
        assert not now & over, "a result was recorded, and its effect was performed again"
        recorded, reported, intents = results(before), dict(doubts(new)), Intents(self.entries)
        for key in now | results(new).keys():
            assert earlier[key] <= recorded[key] or key in reported, f"{key} was in doubt, and nobody was told"
        for key, handling in reported.items():
            assert handling == self.decided.get(key, parcels.HANDLED[intents.effect(key)]), key

    def _judge_the_whole(self):
        """Each time an effect happened, there is a result of it, or a report that it may happen again."""
        happened, recorded = times(parcels.performed(self.performed)), results(self.entries)
        again = Counter(key for key, handling in doubts(self.entries) if handling == "retry")
        for intent in (entry for entry in self.entries if isinstance(entry, EffectEntry)):
            assert happened[intent.key] <= recorded[intent.key] + again[intent.key], intent
            assert recorded[intent.key] > 0, f"{intent} has no result"
            assert intent.effect != "charge" or happened[intent.key] == 1, "a person who looks makes it exactly once"

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


def times(performed, *, before=MOST_LIVES + 1):
    """Count how often each effect happened in the lives before one."""
    return Counter(key for life, key in performed if life < before)


def results(entries):
    """Count the results of each effect."""
    return Counter(entry.key for entry in entries if isinstance(entry, ResultEntry))


def doubts(entries):
    """Return the keys of what was reported to be in doubt, with what is done about it; what failed and is tried again is not in doubt."""
    resumed = (entry.effects for entry in entries if isinstance(entry, ResumedEntry))
    return [(key, handling) for effects in resumed for key, handling in effects if handling != "again"]
