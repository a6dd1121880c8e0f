"""A program: run commands that attack, with targets for them to find, and print what was wrong, one JSON object.

`attacked_commands.py [NAME ..]`; it is run as root and as an ordinary user, with a secret in its environment. After each attack a plain
command must give what it gave before, and no process may be left.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path

import attrs

from dsa.edge.sandbox.command_sandbox import BOUNDS
from dsa.errors import ToolError
from machines.coding.tools.command_runner import run
from machines.coding.tools.program_rules import Rules

SECRET = "s3cret-in-a-file-outside"
#: Each line must raise; those that do not are printed.
ATTEMPTS = """
open('@secret@').read()
os.listdir('@outside@')
open('@outside@/made', 'w')
os.link('@secret@', 'linked')
open('link').read()
open('/etc/shadow').read()
open('/proc/1/environ').read()
open('/proc/1/mem', 'rb')
[os.readlink(f'/proc/1/fd/{n}') for n in range(64)]
open('/proc/@pid@/environ').read()
open('/proc/@pid@/cmdline').read().index('attacked_commands')
[name for name, value in os.environ.items() if 's3cret' in value][0]
socket.create_connection(('127.0.0.1', @tcp@), 1)
socket.create_connection(('@host@', @tcp@), 1)
socket.socket(socket.AF_UNIX).connect('@unix@')
socket.socket(socket.AF_UNIX).connect(chr(0) + '@abstract@')
socket.socket(40, 1)
socket.getaddrinfo('example.org', 80)
os.kill(@pid@, 9)
os.kill(@bystander@, 9)
open('.git/hooks/pre-commit', 'w')
os.rename('.git', 'moved')
os.unlink('.git/config')
os.rename('.git/hooks', 'moved')
os.chmod('.git/config', 0o777)
open('agent_ledger.log', 'a')
os.unlink('agent_ledger.log')
os.replace('other', 'agent_ledger.log')
os.rename('deep', 'moved')
open('deep/down/kept.txt', 'a')
open(os.__file__, 'a')
open('/usr/made', 'w')
open('/made', 'w')
open('/proc/sys/kernel/core_pattern', 'w')
open('/proc/sysrq-trigger', 'w')
os.open('/dev/vda', os.O_RDONLY)
os.mknod('node', 0o060600, os.makedev(254, 0))
os.setuid(12)
os.chroot('.')
resource.setrlimit(resource.RLIMIT_NOFILE, (5000, 5000))
checked(libc.unshare(0x10000000))
checked(libc.mount(b'none', b'/tmp', b'tmpfs', 0, None))
checked(libc.ptrace(16, 1, 0, 0))
checked(libc.shmget(0, 4096, 0o1600))
checked(libc.semget(0, 1, 0o1600))
checked(libc.msgget(0, 0o1600))
checked(libc.mq_open(b'/left', 0o102, 0o600, None))
checked(libc.setpriority(2, 0, 19))
checked(libc.sched_setscheduler(0, 5, (ctypes.c_long * 2)()))
checked(libc.syscall(425, 4, (ctypes.c_long * 15)()))
checked(libc.syscall(435, (ctypes.c_long * 11)(0x10000000, 0, 0, 0, 17), 88))
os.memfd_create('x')
checked(libc.inotify_init1(0))
socket.socket(16, 3)
"""
HEAD = """
import ctypes, os, resource, socket
libc = ctypes.CDLL(None)
def checked(answer):
    if answer < 0: raise OSError(answer)
worked = []
for line in @lines@:
    try: eval(line)
    except (OSError, ValueError, IndexError, AttributeError): pass
    else: worked.append(line)
print('worked:', worked)
"""
#: It ends by itself in case nothing else ends it: these attacks share the machine with others.
FORK_BOMB = "import os, time\nend = time.monotonic() + 8\nwhile time.monotonic() < end:\n    try: os.fork()\n    except OSError: pass\n"
AT_ONCE = """
import os, threading, time
children = threads = 0
try:
    while children < 200:
        if os.fork() == 0: time.sleep(60)
        children += 1
    while threads < 1000:
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
        threads += 1
except (OSError, RuntimeError): pass
print('bounded' if 100 < children + threads < 256 else (children, threads))
"""
DAEMON = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        if len(sys.argv) > 2: os.closerange(0, 64)
        time.sleep(600)
    os._exit(0)
print('left it')
"""
DEAF = "import signal, time\nfor each in set(signal.Signals) - {9, 19}: signal.signal(each, signal.SIG_IGN)\nprint('deaf', flush=True)\ntime.sleep(600)"
DISK = "n = 0\nwhile True:\n    n += 1\n    open(f'big{n}', 'wb').write(b'x' * 1_000_000)\n"
NAMELESS = """
import os, time
kept = []
for n in range(100):
    kept.append(open('big', 'wb'))
    os.unlink('big')
    kept[-1].write(b'x' * 1_000_000)
    kept[-1].flush()
    time.sleep(0.02)
"""
IN_ITS_PLACE = """
import os
os.symlink('@outside@', '.dsa')
deep = '.agent_context'
for n in range(400):
    os.mkdir(deep); deep += '/d'
os.chmod('.agent_context/d/d', 0)
print('made')
"""


@attrs.frozen
class Attack:
    """The files of a command, its arguments, what its end must be (`ended`, or `refused`), and what its output must say."""

    files: dict[str, str]
    argv: tuple[str, ...]
    ended: str = "exited"
    says: str = ""
    timeout_s: float = 30.0
    removed: tuple[str, ...] = ()
    code: int | None = 0


SCRIPT = ("python", "attack.py", "@marker@")
ATTACKS = {
    "a script": Attack({"attack.py": HEAD}, SCRIPT, says="worked: []"),
    "conftest.py": Attack({"conftest.py": HEAD, "test_a.py": "def test_a(): pass"}, ("pytest", "-s", "-q"), says="worked: []"),
    "a pytest plugin": Attack(
        {"evil.py": HEAD, "pytest.ini": "[pytest]\naddopts = -p evil", "test_a.py": "def test_a(): pass"},
        ("pytest", "-s", "-q"), says="worked: []",
    ),
    "sitecustomize.py": Attack({"sitecustomize.py": HEAD, "usercustomize.py": HEAD, "a.json": "{}"}, ("python", "-m", "json.tool", "a.json"), says="{}"),
    "planted python": Attack({"python": "#!/bin/sh\necho PLANTED", "python3": "#!/bin/sh\necho PLANTED", "attack.py": "print('real')"}, SCRIPT, says="real"),
    "planted pytest": Attack(
        {"pytest": "#!/bin/sh\necho PLANTED", "pytest.py": "print('PLANTED')", "_pytest/__init__.py": "print('PLANTED')", "test_a.py": "def test_a(): pass"},
        ("pytest", "-q"), says="1 passed",
    ),
    "planted ruff": Attack({"ruff": "#!/bin/sh\necho PLANTED", "ruff.py": "print('PLANTED')"}, ("ruff", "--version"), says="ruff"),
    "planted json": Attack({"json.py": "print('PLANTED')", "argparse.py": "print('PLANTED')", "a.json": "{}"}, ("python", "-m", "json.tool", "a.json"), says="{}"),
    "a daemon": Attack({"attack.py": DAEMON}, SCRIPT, says="left it"),
    "a daemon without open files": Attack({"attack.py": DAEMON}, (*SCRIPT, "close"), says="left it"),
    "deaf to SIGTERM": Attack({"attack.py": DEAF}, SCRIPT, "timeout", "deaf", 1.0, code=None),
    "stops itself": Attack({"attack.py": "import os\nos.kill(os.getpid(), 19)"}, SCRIPT, "timeout", "", 1.0, code=None),
    "endless output": Attack({"attack.py": "while True: print('x' * 1000)"}, SCRIPT, "timeout", "characters are left out", 1.5, code=None),
    "reads its input": Attack({"attack.py": "import sys\nprint('read', repr(sys.stdin.read()))"}, SCRIPT, says="read ''"),
    "fills the disk": Attack({"attack.py": DISK}, SCRIPT, "disk", code=None),
    "fills the disk without names": Attack({"attack.py": NAMELESS}, SCRIPT, "disk", code=None),
    "a huge file": Attack({"attack.py": "open('big', 'wb').truncate(1 << 40)"}, SCRIPT, says="File too large", code=1),
    "memory": Attack({"attack.py": "x = []\nwhile True: x.append(bytearray(1 << 28))"}, SCRIPT, says="MemoryError", code=1),
    "fork bomb": Attack({"attack.py": FORK_BOMB}, SCRIPT, "timeout, processes", "", 3.0, code=None),
    "processes and threads": Attack({"attack.py": AT_ONCE}, SCRIPT, says="bounded"),
    "kills all it can": Attack({"attack.py": "import os\nos.kill(1, 9)\nos.kill(os.getppid(), 19)\nprint('alive', flush=True)\nos.kill(-1, 9)"}, SCRIPT, says="alive"),
    "interrupts all it can": Attack({"attack.py": "import os\nfor p in (1, os.getppid()):\n    os.kill(p, 2)\nprint('alive', flush=True)"}, SCRIPT, says="alive"),
    "in the place of what is protected": Attack({"attack.py": IN_ITS_PLACE}, SCRIPT, says="made", removed=(".dsa", ".agent_context")),
    "a link out as script": Attack({}, ("python", "link"), "refused", "leads out of the workspace"),
    "pip": Attack({}, ("pip", "install", "x"), "refused", "pip is switched off"),
    "python -m pip": Attack({"pip.py": "print('PLANTED')"}, ("python", "-m", "pip", "install", "x"), "refused", "pip is switched off"),
    "a program of the workspace": Attack({"tool": "#!/bin/sh\necho PLANTED"}, ("tool",), "no_program", "not installed"),
}  # fmt: skip


class Targets:
    """What is attacked: files, sockets, and a process."""

    def __init__(self, folder):
        self.outside, self.root = folder / "outside", folder / "workspace"
        for each in (self.outside, self.root):
            each.mkdir()
        self.secret = self.outside / "secret.txt"
        self.secret.write_text(SECRET)
        self.tcp = socket.create_server(("0.0.0.0", 0))
        self.unix, self.abstract = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
        self.unix.bind(str(self.outside / "s"))
        self.abstract.bind(f"\0attacked-{os.getpid()}")
        self.sockets = (self.tcp, self.unix, self.abstract)
        for each in self.sockets:
            each.listen()
            each.settimeout(0)
        self.bystander = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
        self.marker = f"marker-{uuid.uuid4().hex}"
        self.names = {
            "secret": self.secret, "outside": self.outside, "tcp": self.tcp.getsockname()[1], "unix": self.outside / "s", "pid": os.getpid(),
            "abstract": f"attacked-{os.getpid()}", "bystander": self.bystander.pid, "marker": self.marker, "host": _own_address(),
            "lines": repr(ATTEMPTS.strip().splitlines()),
        }  # fmt: skip

    def filled(self, text):
        for _ in range(2):  # lines name targets too
            for name, value in self.names.items():
                text = text.replace(f"@{name}@", str(value))
        return text

    def fresh(self, files):
        """Make the workspace anew; return what must be as it was."""
        shutil.rmtree(self.root)
        for name, text in {**KEPT, "other": "x", **files}.items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(self.filled(text))
            path.chmod(0o755)
        (self.root / "link").symlink_to(self.secret)

    def faults(self):
        """Return what was reached; empty when nothing was."""
        found = [
            f"{name} was changed"
            for name, text in KEPT.items()
            if not (self.root / name).is_file() or (self.root / name).read_text() != text
        ]
        found += ["the secret was changed"] if self.secret.read_text() != SECRET else []
        found += [f"made: {each}" for each in self.outside.iterdir() if each.name not in {"secret.txt", "s"}]
        found += ["the bystander is gone"] if self.bystander.poll() is not None else []
        found += [f"left: {pid}" for pid in marked(self.marker)]
        for each in self.sockets:
            try:
                each.accept()
                found.append(f"connected to {each.getsockname()}")
            except BlockingIOError:
                pass
        return found

    def close(self):
        self.bystander.kill()
        self.bystander.communicate()
        for each in self.sockets:
            each.close()


KEPT = {
    ".git/config": "[core]\n",
    ".git/hooks/sample": "x",
    "agent_ledger.log": "entries\n",
    "deep/down/kept.txt": "kept",
}


def _own_address():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        try:
            one.connect(("192.0.2.1", 9))
            return one.getsockname()[0]
        except OSError:
            return "127.0.0.1"


def marked(marker):
    """Return the processes that have a marker among their arguments, but this one."""
    found = []
    for each in Path("/proc").glob("[0-9]*"):
        try:
            if marker.encode() in (each / "cmdline").read_bytes() and int(each.name) != os.getpid():
                found.append(int(each.name))
        except OSError:
            continue
    return found


def ended(name, targets):
    """Return what is wrong with how an attack ended; empty when nothing is."""
    attack = ATTACKS[name]
    targets.fresh(attack.files)
    bounds = attrs.evolve(BOUNDS, disk_bytes=40 << 20, memory_bytes=1 << 30)
    argv = [targets.filled(each) for each in attack.argv]
    rules = Rules(programs={"tool": None})
    try:
        ran = run(
            argv,
            root=targets.root,
            timeout_s=attack.timeout_s,
            protected_patterns=("deep/down/kept.txt",),
            rules=rules,
            bounds=bounds,
        )
        how, said, code, removed = ran.end_reason, ran.output, ran.code, ran.removed_paths
    except ToolError as error:
        how, said, code, removed = error.code, str(error), attack.code, ()
    if "PLANTED" in said or SECRET in said or os.environ["SECRET"] in said or len(said) > 20_000:
        return f"{name}: it got something: {said[:500]}"
    fits = how in attack.ended.split(", ") and attack.says in said and set(removed) == set(attack.removed)
    fits = fits and (code == attack.code or name == "kills all it can")
    return "" if fits else f"{name}: {how} {code} {removed} {said[-1500:]}"


def plain(targets):
    """Return what a plain command gives."""
    targets.fresh({"main.py": "import sys\nprint('hello', len(sys.argv))"})
    ran = run(("python", "main.py", "x"), root=targets.root)
    return ran.code, ran.output, ran.end_reason


def _most_memory_mb():
    """Return the most memory that this process has had since it was asked to begin anew; `getrusage` would tell of who has started it, too."""
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) // 1024


def main(*names):
    """Run all, then look around."""
    faults = []
    Path("/proc/self/clear_refs").write_text("5")
    with tempfile.TemporaryDirectory(prefix="attacked-") as folder:
        targets = Targets(Path(folder))
        try:
            before = plain(targets)
            descriptors = len(list(Path("/proc/self/fd").iterdir()))
            for name in names or ATTACKS:
                faults += [fault] if (fault := ended(name, targets)) else []
                faults += [f"{name}: {each}" for each in targets.faults()]
                if (after := plain(targets)) != before:
                    faults.append(f"after {name} a plain command gives {after}")
            if (more := len(list(Path("/proc/self/fd").iterdir()))) > descriptors:
                faults.append(f"{more - descriptors} more open files than before")
        finally:
            targets.close()
    most = _most_memory_mb()
    if most > 200:
        faults.append(f"{most} MB of memory were used")
    print(json.dumps({"tried": len(names or ATTACKS), "faults": faults}))


if __name__ == "__main__":
    main(*sys.argv[1:])
