"""Has a process forked that runs `dsa` with these arguments, these streams, this folder and this environment; ends as it ends.

Signals are passed on. Where nobody forks, or the environment has something else for Python itself to read as it begins, this process becomes the program.
"""

import json
import os
import signal
import socket
import sys

PROGRAM = "import sys; sys.argv[0] = 'dsa'; sys.path.pop(0); from dsa.cli.main import main; main()"
SOCKET, PASSED_ON = "DSA_TESTS_FORKED_FROM", (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


def _read_by_python() -> dict[str, str]:
    return {
        name: os.environ[name] for name in os.environ if name.startswith("PYTHON") and name != "PYTHONDONTWRITEBYTECODE"
    }


def main() -> None:
    place, read = os.environ.get(SOCKET), _read_by_python()
    if place is None or json.loads(os.environ[f"{SOCKET}_PYTHON"]) != read:
        begun = sys.argv[2:] if sys.argv[1:2] == ["--script"] else ["-c", PROGRAM, *sys.argv[1:]]
        os.execv(sys.executable, [sys.executable, *begun])
    ignored = [number for number in PASSED_ON if signal.getsignal(number) is signal.SIG_IGN]
    waits: list[int] = []
    for number in PASSED_ON:
        signal.signal(number, lambda number, _: waits.append(number))
    asked = {"arguments": sys.argv[1:], "folder": os.getcwd(), "environment": dict(os.environ), "umask": os.umask(0)}  # noqa: PTH109  (pathlib takes its time)
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(place)
        text = json.dumps({**asked, "ignored": ignored}).encode("utf-8", "surrogateescape")
        socket.send_fds(server, [len(text).to_bytes(8, "big")], [0, 1, 2])
        server.sendall(text)
        with server.makefile("rb") as answers:
            process = int(answers.readline())
            for number in PASSED_ON:
                signal.signal(number, lambda number, _: os.kill(process, number))
            for number in waits:
                os.kill(process, number)
            status = int(answers.readline())
    if status >= 0:
        os._exit(status)
    if -status != signal.SIGKILL:
        signal.signal(-status, signal.SIG_DFL)
    os.kill(os.getpid(), -status)


main()
