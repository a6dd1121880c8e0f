"""Client: asks for a forked process that runs `dsa` with these arguments, streams, folder and environment; ends as it ends.

Signals are passed on. Where no server forks, or the environment has other settings that Python itself reads at its start, this process becomes the program.
It imports only what is built in: the modules above (`os`, `socket`, `signal`, `json`) would take longer than all the rest.
"""

import _signal
import _socket
import marshal
import posix
import sys

PROGRAM = "import sys; sys.argv[0] = 'dsa'; sys.path.pop(0); from dsa.cli.main import main; main()"
SOCKET = b"DSA_TESTS_FORKED_FROM"
PASSED_ON = (_signal.SIGINT, _signal.SIGTERM, _signal.SIGHUP, _signal.SIGQUIT)


def _read_by_python() -> bytes:
    """Return the variables that Python reads as it begins, but for one, as `forked.start` writes them."""
    names = (name for name in posix.environ if name.startswith(b"PYTHON") and name != b"PYTHONDONTWRITEBYTECODE")
    return b"\n".join(sorted(name + b"=" + posix.environ[name] for name in names))


def _number(server: _socket.socket) -> int:
    """Read a line with a number."""
    line = b""
    while not line.endswith(b"\n"):
        line += server.recv(1) or b"\n"
    return int(line)


def main() -> None:
    place = posix.environ.get(SOCKET)
    if place is None or posix.environ[SOCKET + b"_PYTHON"] != _read_by_python():
        begun = sys.argv[2:] if sys.argv[1:2] == ["--script"] else ["-c", PROGRAM, *sys.argv[1:]]
        posix.execv(sys.executable, [sys.executable, *begun])
    ignored = [number for number in PASSED_ON if _signal.getsignal(number) == _signal.SIG_IGN]
    waits: list[int] = []
    for number in PASSED_ON:
        _signal.signal(number, lambda number, _: waits.append(number))
    data = marshal.dumps(
        {
            "arguments": sys.argv[1:],
            "folder": posix.getcwd(),
            "environment": dict(posix.environ),
            "umask": posix.umask(0),
            "ignored": ignored,
        }
    )
    server = _socket.socket(_socket.AF_UNIX)
    server.connect(place)
    streams = b"".join(number.to_bytes(4, sys.byteorder) for number in (0, 1, 2))
    server.sendmsg([len(data).to_bytes(8, "big")], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, streams)])
    server.sendall(data)
    process = _number(server)
    for number in PASSED_ON:
        _signal.signal(number, lambda number, _: posix.kill(process, number))
    for number in waits:
        posix.kill(process, number)
    status = _number(server)
    if status >= 0:
        posix._exit(status)  # noqa: SLF001
    if -status != _signal.SIGKILL:
        _signal.signal(-status, _signal.SIG_DFL)
    posix.kill(posix.getpid(), -status)


main()
