"""The simulated store keeps what the real one promises: all of an append or nothing, one writer, damage is found, a torn tail is cut."""

import attrs
import pytest

from dsa.runtime.ledger import EventEntry, MachineEntry, RowEntry
from dsa.runtime.run_store import DamageError, HeldError, LeaseLostError, StoreError, UnknownRunError
from dsa.testing.simulation.disk_store import DiskStore, File, frames

TEXT = "# a machine\n\nwith \ud800 half a character, and lines\nrows 1\n"
FIRST = (MachineEntry("sim", "m", "digest"),)
ROW = (EventEntry(1, "go", data="hej då\nrows 7"), RowEntry(3, "a", "b"))
NEXT = (EventEntry(2, "go"), RowEntry(3, "b", "a"))


@attrs.define
class Owner:
    """A process that has the store open. It dies at the stages in `ends`."""

    name: str = "process 1"
    heard: list = attrs.field(factory=list)
    ends: tuple = ()
    may_release: bool = True

    def _hear(self, what):
        self.heard.append(what)
        if what in self.ends:
            raise EOFError(what)

    def before_write(self, _entries):
        self._hear("before")

    def on_refusal(self):
        self._hear("refused")

    def after_write(self, _entries):
        self._hear("unsynced")

    def after_sync(self, epoch, _entries):
        self._hear(f"durable {epoch}")

    def on_hold(self, stage, epoch):
        self._hear(f"holding {stage} {epoch}")

    def on_run_read(self, recorded):
        self._hear(f"held {len(recorded.entries)}")

    def on_release(self, stage):
        self._hear(f"releasing {stage}")


@pytest.fixture
def files():
    return {}


@pytest.fixture
def alive():
    return set()


@pytest.fixture
def opened(files, alive):
    """Return a function that opens the store as one process."""

    def open_store(name="process 1", ends=()):
        alive.add(name)
        owner = Owner(name, ends=ends)
        return DiskStore(files, owner, alive.__contains__), owner

    return open_store


def begun(opened, *appends):
    store, owner = opened()
    journal = store.create("sim", TEXT, FIRST)
    for entries in appends:
        journal.append(entries)
    return store, owner, journal


def test_appended_entries_are_read(opened):
    store, owner, journal = begun(opened, ROW)
    journal.append(())
    recorded = store.read("sim")
    assert tuple(recorded.entries) == (*FIRST, *ROW)
    assert (recorded.text, recorded.epoch, recorded.holder) == (TEXT, 1, "process 1")
    assert owner.heard == ["before", "unsynced", "durable 1"] * 2
    assert store.runs() == ("sim",)


def test_appended_entries_are_synced_when_append_returns(opened, files):
    begun(opened, ROW)
    assert files["sim"].synced_length == len(files["sim"].content)


@pytest.mark.parametrize("stage", ["before", "unsynced"])
def test_unsynced_append_is_lost_as_a_whole(opened, files, stage):
    _, owner, journal = begun(opened, ROW)
    owner.ends = (stage,)
    with pytest.raises(EOFError):
        journal.append(NEXT)
    files["sim"].cut(files["sim"].synced_length)
    assert tuple(opened()[0].read("sim").entries) == (*FIRST, *ROW)


def test_run_of_which_nothing_is_left_can_be_created_again(opened, files):
    store, owner = opened(ends=("unsynced",))
    with pytest.raises(EOFError):
        store.create("sim", TEXT, FIRST)
    files["sim"].cut(20)
    with pytest.raises(UnknownRunError):
        store.hold("sim")
    assert store.runs() == ()
    owner.ends = ()
    store.create("sim", "other", FIRST)
    assert store.read("sim").text == "other"
    with pytest.raises(StoreError, match="there is already a run with this id"):
        store.create("sim", TEXT, FIRST)


def test_torn_tail_is_cut_wherever_it_was_torn(opened, files, alive):
    begun(opened, ROW)
    whole = len(files["sim"].content)
    store, _ = opened()
    store.hold("sim", take=True)[0].append(NEXT)
    content = bytes(files["sim"].content)
    for length in range(whole, len(content)):
        alive.clear()
        files["sim"] = File()
        files["sim"].write(content[:length])
        journal, recorded = opened("process 2")[0].hold("sim")
        assert tuple(recorded.entries) == (*FIRST, *ROW)
        journal.append(NEXT)
        assert tuple(opened()[0].read("sim").entries) == (*FIRST, *ROW, *NEXT)


def test_epoch_ends_when_the_next_one_begins(opened, alive):
    _, owner, journal = begun(opened, ROW)
    store, other = opened("process 2")
    with pytest.raises(HeldError, match="process 1"):
        store.hold("sim")
    taken, recorded = store.hold("sim", take=True)
    assert (taken.epoch, recorded.epoch, recorded.holder) == (2, 2, "process 2")
    assert other.heard == ["holding before 2", "holding unsynced 2", "holding durable 2", "held 3"]
    with pytest.raises(LeaseLostError):
        journal.append(NEXT)
    assert owner.heard[-2:] == ["before", "refused"]
    taken.append(NEXT)
    assert tuple(store.read("sim").entries) == (*FIRST, *ROW, *NEXT)
    journal.release()  # it has nothing to give up
    assert store.read("sim").holder == "process 2"
    alive.discard("process 2")
    assert opened("process 3")[0].hold("sim")[0].epoch == 3


def test_released_run_can_be_held_by_another_process(opened):
    store, _, journal = begun(opened, ROW)
    journal.release()
    assert store.read("sim").holder is None
    assert opened("process 2")[0].hold("sim")[0].epoch == 2


def test_changed_byte_before_the_end_is_damage(opened, files):
    begun(opened, ROW, NEXT)
    file = files["sim"]
    last = [end for end, _ in frames(file.content)][-2]
    store, _ = opened()
    for at in range(last):
        file.flip(at)
        with pytest.raises(DamageError):
            store.read("sim")
        file.flip(at)
    assert tuple(store.read("sim").entries) == (*FIRST, *ROW, *NEXT)


def test_swapped_frames_are_damage(opened, files):
    begun(opened, ROW, NEXT)
    content = bytes(files["sim"].content)
    first, second, third = [end for end, _ in frames(files["sim"].content)]
    files["sim"].cut(0)
    files["sim"].write(content[:first] + content[second:third] + content[first:second])
    with pytest.raises(DamageError):
        opened()[0].read("sim")


def test_run_with_another_id_is_unknown(opened):
    begun(opened, ROW)
    with pytest.raises(UnknownRunError, match="there is no run other"):
        opened()[0].read("other")
