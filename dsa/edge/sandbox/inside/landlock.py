"""Landlock: a process gives up reaching files, TCP and other processes, for good (landlock(7)).

It bounds what can be opened, made and removed. Names, sizes, modes and times of files outside stay visible and, for their owner,
changeable; UDP and Unix sockets are not covered.
"""

import ctypes
import os
import stat
from collections.abc import Iterable

from dsa.edge.sandbox.inside import kernel

SIGNALS_ABI = 6  #: from this version on signals to others, and abstract Unix sockets, can be kept in too
_CREATE, _ADD, _RESTRICT = 444, 445, 446  # the same on every architecture
_VERSION, _PATH_BENEATH = 1, 1
_READ = 0b1101  # execute, read files, read folders
_FILE = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 14 | 1 << 15  # what a rule about a file may grant
_SINCE = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}
_TCP_ABI, _TCP, _SIGNALS = 4, 0b11, 0b11


class _Rule(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


def abi() -> int:
    """Give the version that the kernel speaks; 0 when it has none, or it is switched off."""
    try:
        return kernel.system_call("landlock_create_ruleset", _CREATE, None, ctypes.c_size_t(0), _VERSION)
    except OSError:
        return 0


def restrict(readable: Iterable[int], writable: Iterable[int]) -> None:
    """Leave this process, and all it starts, only what lies below these open files; it must have given up new privileges."""
    version = abi()
    files = _SINCE[max(known for known in _SINCE if known <= version)]
    wanted = (ctypes.c_uint64 * 3)(files, _TCP if version >= _TCP_ABI else 0, _SIGNALS if version >= SIGNALS_ABI else 0)
    size = 8 * (1 + (version >= _TCP_ABI) + (version >= SIGNALS_ABI))
    ruleset = kernel.system_call("landlock_create_ruleset", _CREATE, ctypes.byref(wanted), ctypes.c_size_t(size), 0)
    for granted, openings in ((_READ, readable), (files, writable)):
        for opened in openings:
            fits = files if stat.S_ISDIR(os.fstat(opened).st_mode) else _FILE & files
            rule = _Rule(granted & fits, opened)
            kernel.system_call("landlock_add_rule", _ADD, ruleset, _PATH_BENEATH, ctypes.byref(rule), 0)
    kernel.system_call("landlock_restrict_self", _RESTRICT, ruleset, 0)
    os.close(ruleset)
