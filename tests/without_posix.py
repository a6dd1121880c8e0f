"""The program as it is without what only POSIX has: its modules cannot be imported, its names are not in `os`.

`python tests/without_posix.py ARGUMENTS` is `dsa ARGUMENTS`. It does not imitate Windows: paths, processes and the console are still this machine's.
"""

import os
import sys

GONE = frozenset({"fcntl", "resource", "pwd", "grp", "termios", "pty"})
NAMES = (
    "O_CLOEXEC", "O_DIRECTORY", "O_NOFOLLOW", "O_NONBLOCK", "chroot", "fchmod", "fchown", "fork", "geteuid", "getegid",
    "getuid", "getgid", "killpg", "mkfifo", "setsid", "setuid", "statvfs",
)  # fmt: skip


class Missing:
    """Finds none of the modules that are gone."""

    @staticmethod
    def find_spec(name: str, _path: object = None, _target: object = None) -> None:
        if name in GONE:
            raise ImportError(f"No module named {name!r}")


def main() -> None:
    import asyncio.unix_events
    import multiprocessing.util
    import shutil
    import subprocess
    import tempfile

    import machines.chat.sql.data_files as limited_on_posix

    imported = (
        limited_on_posix,
        asyncio.unix_events,
        multiprocessing.util,
        shutil,
        subprocess,
        tempfile,
    )  # Python's own know where they are
    sys.meta_path.insert(0, Missing)
    for name in GONE:
        sys.modules.pop(name, None)
    for name in NAMES:
        delattr(os, name)
    from dsa.cli.main import main as dsa

    assert imported
    dsa()


if __name__ == "__main__":
    main()
