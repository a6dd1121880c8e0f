"""Server: imports the program `dsa`, and forks a process for each client that asks: `server.py SOCKET`. Ends with its standard input.

`server.py SOCKET litellm` imports LiteLLM as well, and so for a module of `dsa`; `server.py SOCKET MODULE` imports only that module. It imports when the first client asks.
A process whose client is gone is killed, as it would have been in the client's place.
"""

import atexit
import functools
import gc
import importlib
import marshal
import os
import runpy
import selectors
import signal
import socket
import sys
import threading
from pathlib import Path

#: What commands import as they begin, or in the middle.
LATER = (
    "anyio._backends._asyncio", "dsa.web.server", "encodings.ascii", "encodings.utf_8_sig", "idna", "machines.chat.chat_notices", "machines.chat.bindings",
    "machines.coding.bindings", "machines.coding.subtask_runs", "machines.coding.work_session", "machines.search.bindings",
    "pkgutil", "pwd", "rich._emoji_codes", "z3",
)  # fmt: skip


@functools.cache
def import_once(module: str) -> None:
    """Import what the processes need that are forked here."""
    if module in {"", "litellm"} or module.startswith("dsa."):
        import_program()
    if module == "litellm":
        importlib.import_module("dsa.generators.provider")._import_litellm()  # noqa: SLF001  (it imports it quietly)
        importlib.import_module("litellm.proxy._types")  # the first question imports it, for half a second
    elif module:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()


def import_program() -> None:
    """Import what commands import, but for what few of them need."""
    from dsa.cli.main import COMMANDS, program

    for name in COMMANDS:
        program.get_command(None, name)
    for name in LATER:
        importlib.import_module(name)
    sys.modules["dsa.edge.plugins"].installed_points("dsa.machines")  # each run would look through all packages again


class Call:
    """What a client has asked for, read to its end."""

    def __init__(self, client: socket.socket) -> None:
        head, self.streams, *_ = socket.recv_fds(client, 8, 3)
        length, text = int.from_bytes(head, "big"), b""
        while len(text) < length:
            text += client.recv(length - len(text)) or b" " * length
        self.asked = marshal.loads(text)

    def become(self) -> None:
        """Take over what the client began with: streams, folder, environment, signals."""
        for number, stream in enumerate(self.streams):
            os.dup2(stream, number)
            os.close(stream)
        os.umask(self.asked["umask"])
        os.chdir(self.asked["folder"])
        os.environ.clear()
        os.environb.update(self.asked["environment"])
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            usual = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
            signal.signal(number, signal.SIG_IGN if number in self.asked["ignored"] else usual)
        sys.dont_write_bytecode = "PYTHONDONTWRITEBYTECODE" in os.environ
        self.script = self.asked["arguments"][1] if self.asked["arguments"][:1] == ["--script"] else ""
        sys.argv = self.asked["arguments"][1:] if self.script else ["dsa", *self.asked["arguments"]]
        sys.stdin = open(0, encoding="utf-8", errors="surrogateescape", closefd=False)  # noqa: SIM115  (the process's own)
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115


def leave(code: int) -> None:
    """End as the interpreter does, without taking it apart, which takes longer than the rest."""
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    atexit._run_exitfuncs()  # noqa: SLF001  (nothing else calls them)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def serve(place: str, module: str) -> Call | None:
    """Fork for each client, and tell it how the process ended. Returns in the processes that were forked, and None at the end."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(place)
    listener.listen(64)
    chosen = selectors.DefaultSelector()
    chosen.register(listener, selectors.EVENT_READ, None)
    chosen.register(0, selectors.EVENT_READ, None)
    print("ready", flush=True)
    running: dict[int, tuple[int, socket.socket]] = {}  # by the descriptor that tells of the process's end

    while True:
        for key, _ in chosen.select():
            if key.fileobj == 0:
                for process, _client in running.values():
                    os.kill(process, signal.SIGKILL)
                return None
            if key.fileobj is listener:
                client, _ = listener.accept()
                call = Call(client)
                import_once(module)
                process = os.fork()
                if process == 0:
                    chosen.close()
                    listener.close()
                    client.close()
                    for _other, theirs in running.values():
                        theirs.close()
                    return call
                for stream in call.streams:
                    os.close(stream)
                client.sendall(b"%d\n" % process)
                watched = os.pidfd_open(process)
                running[watched] = process, client
                chosen.register(watched, selectors.EVENT_READ, watched)
                chosen.register(client, selectors.EVENT_READ, watched)
                continue
            if key.data not in running:
                continue  # both were told at once
            process, client = running[key.data]
            if key.fileobj is client:  # it is gone
                os.kill(process, signal.SIGKILL)
                chosen.unregister(client)
                continue
            del running[key.data]
            _, status = os.waitpid(process, 0)
            chosen.unregister(key.data)
            os.close(key.data)
            if client in {each.fileobj for each in chosen.get_map().values()}:
                chosen.unregister(client)
                client.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))
            client.close()


if __name__ == "__main__":
    asked = serve(*sys.argv[1:3])
    if asked is not None:
        asked.become()
        try:
            if asked.script:
                sys.path[0] = str(Path(asked.script).parent)
                runpy.run_path(asked.script, run_name="__main__")
                leave(0)
            importlib.import_module("dsa.cli.main").main()
        except SystemExit as end:
            leave(end.code if isinstance(end.code, int) else 0)
