"""How many processes and threads a command may have, where the kernel's own limit does not count them: root's (RLIMIT_NPROC, setrlimit(2)).

The filter of system calls asks at each fork (seccomp_unotify(2)). Whoever watches the command lets it happen, or answers EAGAIN, as the kernel
would, when there are as many as there may be.
"""

import contextlib
import errno
import fcntl
import os
import struct

_RECEIVE, _SEND = 0xC0502100, 0xC0182101  # SECCOMP_IOCTL_NOTIF_RECV, SECCOMP_IOCTL_NOTIF_SEND: linux/seccomp.h
_QUESTION_BYTES = 80  # struct seccomp_notif
_ANSWER = "=QqiI"  # struct seccomp_notif_resp
_CONTINUE = 1  # SECCOMP_USER_NOTIF_FLAG_CONTINUE


class Forks:
    """Answers one question after the other. It counts what it has let happen, and what there is only when that has become too much."""

    def __init__(self, listener: int, most: int) -> None:
        self._listener, self._most = listener, most
        self._counted = 1  # the command, which waits for an answer should it have come to its first fork
        self._others = count() - self._counted

    def fileno(self) -> int:
        """Give the file that can be read from when somebody asks."""
        return self._listener

    def answer(self) -> None:
        """Answer the next question; none is left where who asked is gone."""
        question = bytearray(_QUESTION_BYTES)
        with contextlib.suppress(OSError):
            fcntl.ioctl(self._listener, _RECEIVE, question)
            (asked,) = struct.unpack_from("=Q", question)
            fcntl.ioctl(self._listener, _SEND, struct.pack(_ANSWER, asked, 0, *self._decided()))

    def _decided(self) -> tuple[int, int]:
        """Give the error of the system call, and how it goes on."""
        if self._counted >= self._most:
            self._counted = count() - self._others
        if self._counted >= self._most:
            return -errno.EAGAIN, 0
        self._counted += 1
        return 0, _CONTINUE


def count() -> int:
    """Count all processes and threads that can be seen from here."""
    found = 0
    for process in filter(str.isdigit, os.listdir("/proc")):  # noqa: PTH208  # pathlib is slow to import
        with contextlib.suppress(OSError):
            found += len(os.listdir(f"/proc/{process}/task"))  # noqa: PTH208
    return found
