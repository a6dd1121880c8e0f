"""The call that is under way: what the workspace was like before it, kept so that what it has changed is known although it was cut off.

Takes the key of an effect (`RUN/SEQ/ORDINAL`) and marks, keeps those of the last call of each run in a file. A file that a power cut has torn or
taken says nothing.
"""

import json
from pathlib import Path
from secrets import token_hex

import attrs


@attrs.frozen
class Begun:
    """A call: the mark before it, which of the files that it names were not there, and the mark after it, empty before it was over."""

    key: str
    before: str
    made: tuple[str, ...] = ()
    after: str = ""


class BegunCalls:
    """The last call of each run, in a folder that is made when one is kept."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def keep(self, call: Begun) -> None:
        """Keep a call, in the place of the one before it."""
        self._folder.mkdir(exist_ok=True)
        path = self._path(call.key)
        new = path.with_name(f"{path.name}.{token_hex(4)}.new")
        new.write_text(json.dumps(attrs.asdict(call)), "utf-8")
        new.replace(path)

    def find(self, key: str) -> Begun | None:
        """Give a call; None where another one was the last, or none was."""
        try:
            said = json.loads(self._path(key).read_text("utf-8"))
        except (FileNotFoundError, ValueError):
            return None
        return Begun(key, said["before"], tuple(said["made"]), said["after"]) if said["key"] == key else None

    def _path(self, key: str) -> Path:
        return self._folder / f"{key.partition('/')[0]}.json"
