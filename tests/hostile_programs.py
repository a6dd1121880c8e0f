"""Programs that attack the process that judges them, as data: a name, the source, and the verdict that they must get.

A source may name targets that `attacked.py` makes: `@secret@` (a file), `@outside@` (a folder for all), `@tcp@`, `@udp@` (ports on
127.0.0.1), `@unix@`, `@abstract@`, `@letters@` (sockets), `@pid@` (the process that judges), `@package@` (a file of ours), `@key@` (under which
there is no object of the kernel), `@theirs@` (under which there is one). What it can steal it returns.
"""

import attrs

#: Values that cannot be guessed.
CASES = (("answer(20)", 41_729_003), ("answer(1)", 86_028_121))
SECRETS = ("dsa-secret-in-a-file", "dsa-secret-in-the-environment")


@attrs.frozen
class Hostile:
    """What must hold: `said` is in the feedback; or the program `passes`, its attack having done nothing.

    On rungs without one of the features in `needs` it is not tried: there it would do what it wants.
    """

    source: str
    said: str = ""
    passes: bool = False
    needs: tuple[str, ...] = ()


def stopped(attack, *needs):
    """A program whose every attack must raise."""
    lines = "\n".join(f"  {line}" for line in attack.strip().splitlines())
    return Hostile(
        f"import os, socket, signal, ctypes, subprocess, resource, sys\ndef answer(n):\n try:\n{lines}\n"
        " except (OSError, MemoryError) as error: return 'stopped'",
        "gave 'stopped'",
        needs=needs,
    )


RIGHT = "\ndef answer(n): return {20: 41729003, 1: 86028121}[n]\n"
FORGE = """
import os
def write(text):
    for fd in range(3, 64):
        try: os.write(fd, text)
        except OSError: pass
"""

TIME = {
    "infinite loop when loaded": Hostile("while True: pass", "while the code was loaded"),
    "infinite loop in the function": Hostile("def answer(n):\n while True: pass", "The run stopped at answer(20)"),
    "loop that catches everything": Hostile(
        "def answer(n):\n while True:\n  try:\n   while True: pass\n  except BaseException: pass", "The run stopped at answer(20)"
    ),
    "sleep": Hostile("import time\ntime.sleep(3600)", "did not finish within"),
    "wait for input": Hostile("input()", "EOFError"),
    "ignored signals": Hostile(
        "import signal, time\nfor s in set(signal.Signals) - {9, 19}: signal.signal(s, signal.SIG_IGN)\ntime.sleep(3600)",
        "did not finish",
    ),
    "stops itself": Hostile("import os, signal, time\nos.kill(os.getpid(), signal.SIGSTOP)\ntime.sleep(3600)", "did not finish"),
    "lingering thread": Hostile(
        "import threading, time\nthreading.Thread(target=time.sleep, args=(3600,)).start()\ndef answer(n): pass", "gave None"
    ),
    "thread that never rests": Hostile(
        "import threading\ndef f():\n while True: pass\nthreading.Thread(target=f, daemon=True).start()\ndef answer(n): pass", "gave None"
    ),
    "exit handler that waits": Hostile(
        "import atexit, time\natexit.register(time.sleep, 3600)\ndef answer(n): pass", "gave None"
    ),
}  # fmt: skip
SIZE = {
    "memory bomb": Hostile("x = []\nwhile True: x.append(bytearray(1 << 24))", "MemoryError"),
    "one huge object": Hostile("x = bytearray(1 << 40)", "MemoryError"),
    "mapped memory": stopped("import mmap\nkept = [mmap.mmap(-1, 1 << 28) for _ in range(64)]"),
    "endless output": Hostile("while True: print('x' * 100_000)", "The run stopped"),
    "huge result": Hostile("def answer(n): return 'x' * (1 << 27)", "gave a str of 134217728 items, too many to report"),
    "huge result in pieces": Hostile("def answer(n): return ['x' * 40_000] * 100", "the results are larger"),
    "huge number": Hostile("def answer(n): return 1 << 10_000_000", "the results are larger"),
    "nested result": Hostile(
        "def answer(n):\n x = []\n for _ in range(100_000): x = [x]\n return x", "cannot be written as a literal"
    ),
    "endless result": Hostile("def answer(n):\n x = []\n x.append(x)\n return x", "cannot be written as a literal"),
    "deep recursion": Hostile("def answer(n): return answer(n + 1)", "raised RecursionError"),
    "deep recursion in C": Hostile(
        "import sys\nsys.setrecursionlimit(10**9)\ndef answer(n):\n x = []\n for _ in range(10**6): x = [x]\n return str(x)"
    ),
    "huge file": Hostile("with open('f', 'wb') as f:\n while True: f.write(b'x' * 65536)"),
    "full disk": stopped(
        "for n in range(200):\n with open(f'f{n}', 'wb') as f: f.write(b'x' * 900_000)", "bounded disk"
    ),
    "many files": stopped("for n in range(9000): open(f'f{n}', 'w').close()", "bounded disk"),
    "some files": Hostile(
        "for n in range(500): open(f'f{n}', 'w').close()\ndef answer(n): pass", "gave None"
    ),
    "deep folders, closed": Hostile(
        "import os\nfor n in range(500):\n os.mkdir('d')\n os.symlink('/', 's')\n os.chdir('d')\nos.mkdir('c')\nos.chmod('c', 0)\n"
        "def answer(n): pass", "gave None"
    ),
    "all open files": stopped("kept = [os.dup(1) for _ in range(100)]"),
    "limits raised": Hostile(
        "import resource\ndef answer(n):\n try: resource.setrlimit(resource.RLIMIT_AS, (-1, -1))\n except ValueError: return 'stopped'",
        "gave 'stopped'",
    ),
    "regular expression that explodes": Hostile("import re\ndef answer(n): re.match('(a+)+b', 'a' * 64)", "The run stopped at answer(20)"),
}  # fmt: skip
ENDS = {
    "os._exit(0)": Hostile("import os\nos._exit(0)", "the process ended before all calls were done"),
    "os._exit(0) in the function": Hostile("import os\ndef answer(n): os._exit(0)", "stopped at answer(20)"),
    "sys.exit(0)": Hostile("import sys\nsys.exit(0)", "SystemExit: 0"),
    "sys.exit(0) in the function": Hostile("import sys\ndef answer(n): sys.exit(0)", "raised SystemExit: 0"),
    "printed pass marker": Hostile(
        "import os\nprint('PASSED')\nprint('[\"end\"]', flush=True)\nos._exit(0)", "The run stopped"
    ),
    "another program instead": Hostile("import os, sys\nos.execv('/bin/true', ['true'])", ""),
    "segmentation fault": Hostile("import ctypes\nctypes.string_at(0)", "killed (SIGSEGV)"),
    "abort": Hostile("import os\nos.abort()", "killed (SIG"),
    "exit handler": Hostile("import atexit, os\natexit.register(os.write, 1, b'x')\ndef answer(n): pass", "gave None"),
    "closed descriptors": Hostile("import os\nos.closerange(0, 64)" + RIGHT, "The run stopped"),
    "lying exception": Hostile(
        "class E(Exception):\n def __str__(s): raise SystemExit\ndef answer(n): raise E()", "answer(20) raised E"
    ),
}
LIES = {
    "equals everything": Hostile(
        "class E:\n def __eq__(s, o): return True\ndef answer(n): return E()", "not a plain value"
    ),
    "lying repr": Hostile(
        "class L(int):\n def __repr__(s): return '41729003'\ndef answer(n): return L(1)", "not a plain value"
    ),
    "lying class": Hostile(
        "class L:\n @property\n def __class__(s): return int\n def __repr__(s): return '41729003'\ndef answer(n): return L()",
        "not a plain value",
    ),
    "patched repr": Hostile("import builtins\nbuiltins.repr = lambda v: '41729003'\ndef answer(n): return 1", "gave 1"),
    "patched everything": Hostile(
        "import builtins, json\nfor n in ('repr', 'str', 'type', 'isinstance', 'eval', 'map'):\n"
        " setattr(builtins, n, lambda *a, **k: 41729003)\njson.dumps = lambda v: 'x'\ndef answer(n): return 1"
    ),
    "values in the frames": Hostile(
        "import sys, gc\ndef answer(n):\n f, t = sys._getframe(), []\n while f: t += [repr(f.f_locals), repr(f.f_globals)]; f = f.f_back\n"
        " t += [repr(o) for o in gc.get_objects() if isinstance(o, (dict, list, tuple))]\n"
        " return [s for s in ('30092714', '12182068') if any(s[::-1] in x for x in t)]",
        "answer(20) gave []\nanswer(1) gave []",
    ),
}
FORGED = {
    f"forged results: {name}": Hostile(FORGE + source)
    for name, source in {
        "before any call": 'write(b\'["loaded"]\\n[0, "value", "1"]\\n[1, "value", "2"]\\n["end"]\\n\')\nos._exit(0)',
        "one more": 'write(b\'[0, "value", "1"]\\n\')\ndef answer(n): return 1',
        "an early end": "def answer(n):\n write(b'[\"end\"]\\n')\n return 1",
        "twice": 'def answer(n):\n write(b\'[0, "value", "3"]\\n\' * 2)\n return 1',
        "not JSON": "write(b'not json\\n')" + RIGHT,
        "deep JSON": "write(b'[' * 60000 + b'\\n')" + RIGHT,
        "not text": "write(b'\\xff\\xfe\\n')" + RIGHT,
        "true for 1": 'write(b\'["loaded"]\\n[true, "value", "1"]\\n\')\nos._exit(0)',
        "a deep literal": "write(b'[\"loaded\"]\\n[0, \"value\", \"' + b'-' * 50000 + b'1\"]\\n')\nos._exit(0)",
        "no reason": 'write(b\'["unloadable", ""]\\n\')\nos._exit(0)',
        "a flood": "import threading\ndef flood():\n while True: write(b'x' * 4096)\nthreading.Thread(target=flood).start()",
        "right ones beside": RIGHT.replace("return", 'write(b\'[1, "value", "86028121"]\\n\'); return'),
        "by a second process": "if os.fork(): os.wait()\n" + RIGHT,
    }.items()
}
FILES = {
    "secret file": stopped("return open('@secret@').read()", "no files outside"),
    "secret file by a link": stopped("os.symlink('@secret@', 'link')\nreturn open('link').read()", "no files outside"),
    "secret file by a hard link": stopped("os.link('@secret@', 'link')\nreturn open('link').read()", "no files outside"),
    "passwords": stopped("return open('/etc/passwd').read()", "no files outside"),
    "write outside": stopped("open('@outside@/new', 'w')", "no files outside"),
    "folder outside": stopped("os.mkdir('@outside@/new')", "no files outside"),
    "socket outside": stopped("s = socket.socket(socket.AF_UNIX)\ns.bind('@outside@/new')", "no files outside"),
    "list outside": stopped("return os.listdir('@outside@')", "no files outside"),
    "look outside": stopped("return os.stat('@secret@').st_size", "own file tree"),
    "change modes outside": stopped("os.chmod('@secret@', 0o777)", "own file tree"),
    "change times outside": stopped("os.utime('@secret@', (0, 0))", "own file tree"),
    "remove outside": stopped("os.unlink('@secret@')", "no files outside"),
    "our own package": stopped("open('@package@', 'a')", "no files outside"),
    "Python's library": stopped("open(os.__file__, 'a')", "no files outside"),
    "other processes' files": stopped("return os.listdir('/proc/@pid@/root')", "no files outside"),
    "out of a changed root": stopped("os.chroot('.')\nfor _ in range(9): os.chdir('..')\nreturn os.listdir('.')"),
    "a mount of its own": stopped(
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        "if libc.unshare(0x10020000) or libc.mount(b'x', b'/tmp', b'tmpfs', 0, None): raise OSError", "filtered system calls",
    ),
    "what the one before left": Hostile(
        "import os\ndef answer(n): return os.listdir('/tmp')", "gave []", needs=("own file tree",)
    ),
    "the tree it sees": stopped("open('/new', 'w')", "no files outside"),
    "folders of the tree it sees": stopped("os.rename('/dev', '/ved')", "no files outside"),
    "modes of the tree it sees": stopped("os.chmod('/', 0o777)", "own file tree"),
    "devices": stopped("os.mknod('disk', 0o60600, os.makedev(254, 0))\nreturn open('disk', 'rb').read(512)"),
}  # fmt: skip
REACH = {
    "TCP": stopped("socket.create_connection(('127.0.0.1', @tcp@), 1).send(b'x')", "no network"),
    "UDP": stopped("socket.socket(2, 2).sendto(b'x', ('127.0.0.1', @udp@))", "no network"),
    "listening": stopped("socket.create_server(('', 0))", "no network"),
    "Unix socket": stopped("s = socket.socket(socket.AF_UNIX)\ns.connect('@unix@')", "no network"),
    "abstract socket": stopped("s = socket.socket(socket.AF_UNIX)\ns.connect('\\0@abstract@')", "no network"),
    "raw packets": stopped("socket.socket(17, 3)"),
    "the judge's environment": stopped("return open('/proc/@pid@/environ', 'rb').read().decode()", "no environments"),
    "all environments": Hostile(
        "import os\ndef answer(n):\n found = []\n for e in os.listdir('/proc'):\n"
        "  try: found.append(open(f'/proc/{e}/environ').read())\n  except OSError: pass\n return found",
        needs=("no environments",),
    ),
    "its own environment": Hostile("import os\ndef answer(n): return sorted(set(os.environ) - {'LC_CTYPE'})", "gave []"),
    "the judge's memory": stopped(
        "libc = ctypes.CDLL(None, use_errno=True)\nif libc.ptrace(16, @pid@, 0, 0): raise OSError\n"
        "return open('/proc/@pid@/mem', 'rb').read(1)", "own processes",
    ),
    "kill the judge": stopped("os.kill(@pid@, signal.SIGKILL)", "own processes"),
    "kill the watcher": Hostile(
        "import os, signal\nfor p in (os.getppid(), 0):\n try: p and os.kill(p, signal.SIGKILL)\n except OSError: pass" + RIGHT,
        passes=True, needs=("own processes",),
    ),
    "kill everybody": Hostile(
        "import os, signal\nsignal.signal(15, signal.SIG_IGN)\ntry: os.kill(-1, signal.SIGTERM)\nexcept OSError: pass" + RIGHT,
        passes=True, needs=("own processes",),
    ),
    "the judge's limits": stopped("resource.prlimit(@pid@, resource.RLIMIT_CPU, (1, 1))", "own processes"),
    "become root": stopped("os.setuid(0)\nos.setgid(0)\nreturn open('@secret@').read()", "no files outside"),
}  # fmt: skip
#: Calls of the C library, and others by their numbers on x86-64; what does not fail is returned.
_CALLS = "libc = ctypes.CDLL(None, use_errno=True)\nsc = libc.syscall\nsc.restype = ctypes.c_long\nJ, L = @pid@, ctypes.c_long\n"
_WORKED = "if got := [name for name, answer in tried.items() if answer != -1]: return got\nraise OSError"
FILTERED = "filtered system calls"


def refused(calls, *needs):
    """A program of which every call must fail: `calls` is the text of a dictionary of answers by name."""
    return stopped(f"{_CALLS}tried = {calls}\n{_WORKED}", FILTERED, *needs)


#: What a process keeps in the kernel beside its own memory and files, and what it does to others by calls that few programs need.
KERNEL = {
    "System V memory": stopped(
        f"{_CALLS}libc.shmat.restype = ctypes.c_void_p\nmade = [libc.shmget(0, 1 << 26, 0o1600) for _ in range(10)]\n"
        "for at in made:\n"
        " if at < 0: continue\n"
        " place = libc.shmat(at, None, 0)\n"
        " ctypes.c_char.from_address(place).value = b'x'\n"
        " libc.shmdt(ctypes.c_void_p(place))\n"
        "for at in made: libc.shmctl(at, 0, None)\n"
        "if max(made) >= 0: return f'{sum(at >= 0 for at in made) * 64} MB at once'\nraise OSError",
        "bounded memory",
    ),
    "System V objects that stay": refused(
        "{'shm': libc.shmget(@key@, 4096, 0o1666), 'sem': libc.semget(@key@, 1, 0o1666), 'msg': libc.msgget(@key@, 0o1666)}"
    ),
    "System V memory of others": stopped(
        f"{_CALLS}libc.shmat.restype = ctypes.c_void_p\nat = libc.shmget(@theirs@, 0, 0)\nif at < 0: raise OSError\n"
        "return ctypes.string_at(libc.shmat(at, None, 0x1000), 24).decode()",
        FILTERED,
    ),
    "POSIX queues that stay": refused("{'mq_open': sc(240, b'dsa-@key@', 0o102, 0o666, None)}"),
    "files without a name": stopped(
        "kept = [os.memfd_create(f'{n}') for n in range(20)]\nfor each in kept: os.write(each, b'x' * 1_000_000)\nreturn '20 MB'", "bounded memory"
    ),
    "locked memory": refused("{'mlock': libc.mlock(ctypes.create_string_buffer(4096), 4096), 'mlockall': libc.mlockall(3)}", "bounded memory"),
    "huge pages": stopped("import mmap\nmmap.mmap(-1, 1 << 21, flags=0x40022)", "bounded memory"),
    "pages kept in pipes": refused(
        "{'vmsplice': sc(278, os.pipe()[1], (L * 2)(ctypes.addressof(ctypes.create_string_buffer(4096)), 4096), 1, 0),"
        " 'splice': sc(275, os.open('/dev/zero', 0), None, os.pipe()[1], None, 4096, 0)}", "bounded memory"
    ),
    "the judge's priority": refused(
        "{f'{name} {p}': answer for p in (J, os.getppid() or J) for name, answer in {"
        "'setpriority': libc.setpriority(0, p, 19), 'group': libc.setpriority(1, p, 19), 'user': libc.setpriority(2, 0, 19),"
        " 'scheduler': libc.sched_setscheduler(p, 5, (L * 2)()), 'param': libc.sched_setparam(p, (L * 2)()),"
        " 'attr': sc(314, p, (L * 6)(48 | 5 << 32), 0), 'affinity': libc.sched_setaffinity(p, 8, (L * 1)(1)),"
        " 'ioprio': sc(251, 1, p, 3 << 13), 'ioprio of the user': sc(251, 3, 0, 3 << 13), 'core': libc.prctl(62, 1, p, 0, 0),"
        " 'move_pages': sc(279, p, 0, None, None, None, 0), 'migrate_pages': sc(256, p, 8, (L * 1)(1), (L * 1)(1)),"
        " 'limits': sc(302, p, 7, (L * 2)(9, 9), None)}.items()}"
    ),
    "its own real-time priority": refused("{'fifo': libc.sched_setscheduler(0, 1, (L * 2)(1)), 'nice': libc.setpriority(0, 0, -5)}"),
    "the judge's memory by calls": refused(
        "{'read': sc(310, J, None, 0, None, 0, 0), 'write': sc(311, J, None, 0, None, 0, 0), 'seize': libc.ptrace(0x4206, J, 0, 0),"
        " 'kcmp': sc(312, J, J, 1, 0, 0), 'userfaultfd': sc(323, 0)}"
    ),
    "a handle of the judge": refused("{'pidfd': sc(434, J, 0), 'queue': sc(129, J, 0, (L * 16)(0, -1)), 'signal': sc(424, 0, 0, None, 0)}"),
    "keyrings": refused("{'add': sc(248, b'user', b'dsa-@key@', b'x', 1, -4), 'join': sc(250, 1, b'dsa-@key@'), 'request': sc(249, b'user', b'x', None, 0)}"),
    "asynchronous input and output": refused("{'io_uring': sc(425, 4, (L * 15)()), 'aio': sc(206, 1000, (L * 1)())}"),
    "namespaces and mounts": refused(
        "{'unshare': libc.unshare(0x10000000), 'unshare nothing': libc.unshare(0), 'setns': libc.setns(os.open('.', 0), 0),"
        " 'clone': sc(56, 0x10000011, None, None, None, 0), 'clone3': sc(435, (L * 11)(0x10000000, 0, 0, 0, 17), 88),"
        " 'mount': libc.mount(b'x', b'/own', b'tmpfs', 0, None), 'chroot': libc.chroot(b'.'), 'open_tree': sc(428, -100, b'.', 1),"
        " 'fsopen': sc(430, b'tmpfs', 0), 'pivot_root': sc(155, b'.', b'.')}"
    ),
    "programs in the kernel": refused(
        "{'bpf': sc(321, 0, (L * 16)(2, 4 | 4 << 32, 1), 120), 'perf': sc(298, (L * 14)(1 | 112 << 32), 0, -1, -1, 0),"
        " 'filter': libc.prctl(22, 2, None), 'seccomp': sc(317, 2, 0, ctypes.byref(ctypes.c_int(0))), 'modules': sc(313, 0, b'', 0)}"
    ),
    "the machine": refused(
        "{'time': libc.clock_settime(0, (L * 2)(1, 1)), 'date': libc.settimeofday((L * 2)(1, 1), None), 'name': libc.sethostname(b'x', 1),"
        " 'log': libc.klogctl(10, None, 0), 'kind': libc.personality(0x0040000), 'kexec': sc(246, 0, 0, None, 0), 'swap': libc.swapoff(b'/')}"
    ),
    "files by handles, watched": refused(
        "{'handle': sc(303, -100, b'/', (L * 20)(128), ctypes.byref(ctypes.c_int()), 0), 'by handle': sc(304, 3, (L * 20)(8), 0),"
        " 'inotify': libc.inotify_init1(0), 'fanotify': libc.fanotify_init(0, 0), 'attribute': libc.setxattr(b'.', b'user.x', b'x', 1, 0)}"
    ),
    "rare sockets": stopped(
        "made = []\nfor family in (16, 17, 38, 40, 31, 29, 30, 44):\n try: made.append(socket.socket(family, 3).family)\n except OSError: pass\n"
        "if made: return made\nraise OSError",
        FILTERED,
    ),
    "a letter by a pair of sockets": stopped(
        "one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)\none.connect('@letters@')\none.send(b'x')", "no network"
    ),
    "a letter by a pair, addressed": stopped(
        "one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)\none.sendmsg([b'x'], [], 0, '@letters@')", "no network"
    ),
    "types into a terminal": stopped("import fcntl\nfor fd in (0, 1, 2): fcntl.ioctl(fd, 0x5412, b'x')", FILTERED),
    "calls of a 32-bit program": Hostile(
        "import ctypes, mmap\n"
        "def answer(n):\n"
        " code = mmap.mmap(-1, 4096, prot=7)\n"
        " code.write(b'\\xb8\\x14\\0\\0\\0\\xcd\\x80\\xc3')\n"
        " return ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))()",
        "killed (SIG", needs=(FILTERED,),
    ),
    "calls of the x32 ABI": refused("{'getpid': sc(0x40000027), 'shmget': sc(0x4000001d, 0, 4096, 0o1666)}"),
    "files where all may write": Hostile(
        "for place in ('/dev/shm', '/tmp', '/var/tmp'):\n"
        " try: open(f'{place}/dsa-@key@', 'w').close()\n except OSError: pass" + RIGHT,
        passes=True, needs=("no files outside",),
    ),
}  # fmt: skip
DAEMON = """
import os, signal, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.closerange(0, 3)
        time.sleep(600)
    os._exit(0)
"""
PROCESSES = {
    "fork bomb": Hostile(
        "import os, time\nend = time.monotonic() + 5\nwhile time.monotonic() < end:\n"
        " try: os.fork()\n except OSError: time.sleep(0.01)",
        "The run stopped",
    ),
    "thread bomb": Hostile(
        "import threading, time\ndef answer(n):\n try:\n  for _ in range(500): threading.Thread(target=time.sleep, args=(600,)).start()\n"
        " except RuntimeError: return 'stopped'",
        "gave 'stopped'",
        needs=("bounded processes",),
    ),
    "too many processes": stopped(
        "for _ in range(200):\n if os.fork() == 0:\n  signal.pause()", "bounded processes"
    ),
    "daemon": Hostile(DAEMON + RIGHT, passes=True),
    "daemon that holds the pipe": Hostile(DAEMON.replace("os.closerange(0, 3)", "pass") + RIGHT, passes=True),
    "zombies": Hostile("import os\nfor _ in range(20):\n if os.fork() == 0: os._exit(0)" + RIGHT, passes=True),
    "child that goes on": Hostile(
        "import os\nif os.fork() == 0:\n while True: pass" + RIGHT, passes=True
    ),
    "stopped watcher": Hostile(
        "import os, signal\nos.kill(os.getppid(), signal.SIGSTOP)\nwhile True: pass",
        needs=("own processes",),
    ),
}  # fmt: skip
#: What goes on until it is stopped: it is given less time than the others, who should never need theirs.
HANGS = {
    "infinite loop when loaded", "infinite loop in the function", "loop that catches everything", "sleep", "ignored signals",
    "stops itself", "endless output", "regular expression that explodes", "fork bomb", "stopped watcher",
}  # fmt: skip
PROGRAMS = {**TIME, **SIZE, **ENDS, **LIES, **FORGED, **FILES, **REACH, **KERNEL, **PROCESSES}
