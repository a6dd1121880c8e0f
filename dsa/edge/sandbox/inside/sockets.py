"""The filter of system calls for commands: as for code, but they may have sockets, which reach nothing where the network is their own.

Only the families of Unix and the Internet: others lead to the host or to rare parts of the kernel (AF_VSOCK, AF_ALG, AF_PACKET ..).
"""

import ctypes
import platform

from dsa.edge.sandbox.inside import kernel, seccomp

_FAMILIES = (1, 2, 10)  # AF_UNIX, AF_INET, AF_INET6: linux/socket.h


def install() -> None:
    """Filter the calls of this process and of all it starts, for good; it must have given up new privileges."""
    code = ctypes.create_string_buffer(_code(platform.machine()))
    program = seccomp._Program((len(code) - 1) // 8, ctypes.cast(code, ctypes.c_void_p))  # noqa: SLF001  # as that one is built
    kernel.control(kernel.SECCOMP, seccomp._FILTER, ctypes.byref(program))  # noqa: SLF001


def _code(machine: str) -> bytes:
    """Give that filter with the refusal of `socket` replaced by one that looks at the family; all its jumps are local."""
    number = seccomp._REFUSED[machine][1]["socket"]  # noqa: SLF001
    step, equal, returns = seccomp._step, seccomp._EQUAL, seccomp._RETURN  # noqa: SLF001
    refuse, allow = step(returns, seccomp._REFUSE), step(returns, seccomp._ALLOW)  # noqa: SLF001
    refused = step(equal, number, 0, 1) + refuse
    tests = [step(equal, family, len(_FAMILIES) - place, 0) for place, family in enumerate(_FAMILIES)]
    load = step(seccomp._LOAD, seccomp._ARGUMENTS)  # noqa: SLF001
    by_family = b"".join([step(equal, number, 0, len(tests) + 3), load, *tests, refuse, allow])
    whole = seccomp._code(machine)  # noqa: SLF001
    assert whole.count(refused) == 1
    return whole.replace(refused, by_family)
