"""What a power cut may leave of files that are written in place, as a database is: played from a log of calls (tests/fault_shim.py).

As POSIX promises: what was written before a file was synced is there; of what was written since, each write may be there, or not, or its
first half. A name is there once its folder was synced; of younger changes to names each may be there or not.
"""

from pathlib import Path

import attrs


@attrs.define
class File:
    """Data on the disk, and what was written since: offset and data, or data None for a cut to that length."""

    disk: bytearray = attrs.field(factory=bytearray)
    young: list = attrs.field(factory=list)

    def sync(self):
        self.disk, self.young = self.left(lambda _: 1.0), []

    def left(self, keeps):
        """Give what a cut leaves; `keeps` gives for each write the part of it that is there."""
        data = bytearray(self.disk)
        for offset, written in self.young:
            share = keeps("data")
            if written is None:
                data[offset:] = bytes(max(0, offset - len(data))) if share else data[offset:]
            elif share:
                part = written[: int(len(written) * share)]
                data.extend(bytes(max(0, offset - len(data))))
                data[offset : offset + len(part)] = part
        return data


@attrs.define
class Disk:
    """Files by path below a folder that is there, as programs see them, and as they are named on the disk."""

    root: str
    seen: dict = attrs.field(factory=dict)
    named: dict = attrs.field(factory=dict)

    def follow(self, call):
        """Take the next call of the log; tell whether the disk is another one now."""
        here = call.path == self.root or call.path.startswith(f"{self.root}/")
        if not here or (call.kind in "WT" and call.path not in self.seen):
            return False  # elsewhere, or a file that has no name any more
        if call.kind == "C":
            self.seen[call.path] = File()
        elif call.kind == "D":
            self.seen[call.path] = None
        elif call.kind == "U":
            del self.seen[call.path]
        elif call.kind == "R":
            self.seen[call.data.decode()] = self.seen.pop(call.path)
        elif call.kind in "WT":
            self.seen[call.path].young.append((call.offset, call.data if call.kind == "W" else None))
        elif self.seen.get(call.path) is not None:
            self.seen[call.path].sync()
        else:
            self._sync_folder(call.path)
        return True

    def _sync_folder(self, folder):
        for path in {*self.seen, *self.named}:
            if str(Path(path).parent) == folder:
                if path in self.seen:
                    self.named[path] = self.seen[path]
                else:
                    del self.named[path]

    def leave(self, place, keeps):
        """Write what a cut leaves. `keeps(what)` gives the part of a younger `name` or `data` that is there, from 0 to 1."""
        for path in sorted({*self.seen, *self.named}):
            is_same = self.seen.get(path, self) is self.named.get(path, self)
            names = self.seen if is_same or keeps("name") == 1 else self.named
            target = Path(place) / Path(path).relative_to(self.root)
            if path not in names or not target.parent.exists():
                continue
            if names[path] is None:
                target.mkdir()
            else:
                target.write_bytes(names[path].left(keeps))
