"""A disk that forgets: what was written and not synced may be gone, in part or whole, after a power cut.

Takes bytes, keeps one file for each run. A process that is killed loses nothing of what it has written; a machine that loses power does.
"""

from typing import Any

from dsa.testing.simulation.chance import Chance

_SECTOR = 64


class File:
    """One file: its bytes as every process sees them, and how many of them are on the disk for good.

    `read` is what somebody has read of it; it is forgotten when a byte becomes another one, and not when more are written.
    """

    def __init__(self) -> None:
        self.content = bytearray()
        self.synced = 0
        self.read: Any = None

    def write(self, data: bytes) -> None:
        """Write at the end. Nobody may rely on it before it was synced."""
        self.content += data

    def sync(self) -> None:
        """Have everything on the disk for good."""
        self.synced = len(self.content)

    def cut(self, length: int) -> None:
        """Leave off what stands behind a length."""
        if length < len(self.content):
            del self.content[length:]
            self.synced = min(self.synced, length)
            self.read = None

    def lose_power(self, chance: Chance) -> None:
        """Lose, tear or keep what was not synced; then what is there is on the disk."""
        torn = self.content[self.synced :]
        if torn:
            match chance.below(4, "power"):
                case 0:
                    torn.clear()
                case 1:
                    del torn[chance.below(len(torn), "torn") :]
                case 2:  # a later sector came before an earlier one
                    at = _SECTOR * chance.below(1 + len(torn) // _SECTOR, "sector")
                    torn[at : at + _SECTOR] = bytes(len(torn[at : at + _SECTOR]))
                case _:  # everything was written back in time
                    pass
            self.content[self.synced :] = torn
            self.read = None
        self.sync()

    def flip(self, at: int) -> None:
        """Change one byte, as disks do; once more changes it back."""
        self.content[at] ^= 0x10
        self.read = None
