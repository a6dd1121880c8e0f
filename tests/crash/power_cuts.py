"""A disk that forgets what was not synced: calls from a log (tests/fault_shim.py) are played, and any power cut among them.

What a cut may leave is taken from what POSIX promises, not from what one file system does. What was written before a file was synced is there;
of what was written since, each write may be there, or not, or its first half. A name is there once its folder was synced; of younger
changes to names each may be there or not. What a sync refused to take is lost, also to the syncs after it, though
programs go on reading it (https://wiki.postgresql.org/wiki/Fsync_Errors).
"""

import random
from pathlib import Path

import attrs


@attrs.define(eq=False)
class File:
    """Data on the disk, and what was written since: age, offset, data, or data None for a cut to that length."""

    mode: int = 0o600
    disk: bytearray = attrs.field(factory=bytearray)
    young: list = attrs.field(factory=list)

    def sync(self):
        self.disk, self.young = self.left(all_kept), []

    def left(self, keeps):
        data = bytearray(self.disk)
        for age, offset, written in self.young:
            share = keeps(age)
            if not share:
                continue
            data.extend(bytes(max(0, offset - len(data))))
            if written is None:
                del data[offset:]
            else:
                part = written[: int(len(written) * share)]
                data[offset : offset + len(part)] = part
        return data


@attrs.define(eq=False)
class Folder:
    """Names on the disk, and what became of names since: age, name, file or folder, or None for one that is gone."""

    disk: dict = attrs.field(factory=dict)
    young: list = attrs.field(factory=list)
    names: dict = attrs.field(factory=dict)

    def change(self, age, name, node):
        self.young.append((age, name, node))
        self.names[name] = node

    def sync(self):
        self.disk, self.young = self.left(all_kept), []

    def left(self, keeps):
        names = dict(self.disk)
        names.update((name, node) for age, name, node in self.young if keeps(age) == 1)
        return {name: node for name, node in names.items() if node is not None}


class Disk:
    """Follows what happens below a folder, which is there and empty at first. Each change is one older than the one before it."""

    def __init__(self, root):
        self.root, self.age = Path(root), 0
        self._top = Folder()

    def find(self, path):
        """Return the file or folder that has a path now, or None."""
        node = self._top
        for part in Path(path).relative_to(self.root).parts:
            node = node.names.get(part) if isinstance(node, Folder) else None
        return node

    def follow(self, call):
        """Take the next call of the log; return whether it was about something that has a name here."""
        path = Path(call.path)
        if not path.is_relative_to(self.root):
            return False
        node = self.find(path)
        if node is None and call.kind in "WTFX":
            return False  # a file that has no name any more
        self.age += 1
        if call.kind in "WT":
            node.young.append((self.age, call.offset, call.data if call.kind == "W" else None))
        elif call.kind == "F":
            node.sync()
        elif call.kind == "X":
            node.young = node.young if isinstance(node, Folder) else []
        else:
            made = File(mode=call.offset) if call.kind == "C" else Folder() if call.kind == "D" else None
            self.find(path.parent).change(self.age, path.name, made)
            if call.kind == "R":
                target = Path(call.data.decode())
                self.find(target.parent).change(self.age, target.name, node)
        return True

    def still_young(self):
        """Return the ages of all changes that a cut may still undo, the oldest first."""
        ages, nodes = set(), [self._top]
        while nodes:
            node = nodes.pop()
            ages |= {change[0] for change in node.young}
            if isinstance(node, Folder):
                nodes += {each for each in (*node.names.values(), *node.disk.values()) if each is not None}
        return sorted(ages)

    def leave(self, place, keeps):
        """Write what a cut leaves into a folder that is there. `keeps(age)` gives the part of a change that is there, from 0 to 1."""

        def write(folder, path):
            for name, node in sorted(folder.left(keeps).items()):
                if isinstance(node, Folder):
                    (path / name).mkdir()
                    write(node, path / name)
                else:
                    (path / name).write_bytes(node.left(keeps))
                    (path / name).chmod(node.mode)

        write(self._top, Path(place))


# -- ways to forget ---------------------------------------------------------------------------------------------------


def nothing_kept(_):
    """Nothing that was not synced is there."""
    return 0


def all_kept(_):
    """Everything is there, as after kill -9."""
    return 1


def some_kept(seed):
    """Some is there, some is not, some writes are torn."""
    chance = random.Random(seed)
    return lambda _: chance.choice([0, 0.5, 1, 1])


def kept_up_to(oldest_lost):
    """Changes as young as this one, or younger, are not there."""
    return lambda age: age < oldest_lost
