"""Programs that attack the Python tool of the chat machine, as data: a name, the source, and how the call must end.

A source may name targets that `attacked.py` makes: `@secret@` (a file), `@outside@` (a folder for all), `@tcp@`, `@udp@`, `@unix@`,
`@abstract@` (sockets), `@pid@` (the process that asks), `@package@` (a file of ours). What it can steal it gives as its value.
"""

import attrs


@attrs.frozen
class Attack:
    """The result that it must have: an error of one of these codes, or, if there are none, this value and these files.

    On rungs without one of the features in `needs` it is not tried. One that `hangs` is given a second.
    """

    source: str
    codes: tuple[str, ...] = ()
    value: str = ""
    files: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    hangs: bool = False


TREE = ("own file tree",)
GONE = ("python_killed",)


def stopped(source, *needs):
    """Return a program whose every line must raise; it prints those that do not."""
    attempts = "\n".join(f"tried({line!r})" for line in source.strip().splitlines())
    return Attack(
        "import os, socket, subprocess, signal, ctypes, resource, sys, shutil, pathlib, urllib.request\nworked = []\n"
        "def tried(attack):\n    try: worked.append((attack, eval(attack)))\n"
        f"    except (OSError, MemoryError, ValueError): pass\n{attempts}\nworked",
        value="[]",
        needs=needs,
    )


def fails(source, *codes, hangs=False, needs=()):
    """A program that gives no result."""
    return Attack(source, codes, hangs=hangs, needs=needs)


#: Writes to every file that is open, but its prints.
FORGE = "import os\nfor fd in range(3, 64):\n    try: os.write(fd, @text@)\n    except OSError: pass\n"


def forged(text):
    """A program that writes its own report wherever it can, and ends before ours is made."""
    return Attack(FORGE.replace("@text@", repr(text)) + "os._exit(0)", ("bad_result", "bad_file", "python_killed"))


FILES = {
    "write outside": stopped("open('@outside@/made', 'w')\nos.mkdir('@outside@/made')\nos.symlink('x', '@outside@/made')\npathlib.Path('@secret@').write_text('x')"),
    "write beside, and above": stopped("open('/made', 'w')\nopen('/etc/made', 'w')\nopen('/usr/lib/made', 'w')\nopen(os.__file__, 'a')\nopen(pd.__file__, 'a')"),
    "read /etc/passwd": stopped("open('/etc/passwd').read()\nopen('/etc/shadow').read()\npd.read_csv('/etc/passwd')\nnp.fromfile('/etc/passwd', dtype='u1')"),
    "read the secret": stopped("open('@secret@').read()\nos.open('@secret@', os.O_PATH)\nshutil.copy('@secret@', 'got')", *TREE),
    "read the project": stopped("open('@package@').read()\nos.listdir(os.path.dirname('@package@'))\nos.stat('@package@')", *TREE),
    "a link out, and through it": Attack("import os\nos.symlink('/etc', 'd')\ntry: got = open('d/passwd').read()\nexcept OSError: got = 'stopped'\nos.unlink('d')\ngot", value="'stopped'"),
    "other processes in /proc": stopped("open('/proc/@pid@/environ', 'rb').read()\nopen('/proc/1/environ', 'rb').read()\nos.listdir('/proc/@pid@')\nopen('/proc/@pid@/mem', 'rb')", *TREE),
}  # fmt: skip
SECRETS = {
    "the environment": Attack("import os\n[(k, v) for k, v in os.environ.items() if 'secret' in v]", value="[]"),
    "the C library's environment": Attack("import ctypes\nget = ctypes.CDLL(None).getenv\nget.restype = ctypes.c_char_p\nget(b'SECRET')"),
    "what is in memory": Attack("import gc\n[o for o in gc.get_objects() if type(o) is dict and 'SECRET' in o and o is not globals()]", value="[]"),
}  # fmt: skip
NETWORK = {
    "TCP": stopped("socket.create_connection(('127.0.0.1', @tcp@), 1)\nurllib.request.urlopen('http://127.0.0.1:@tcp@', timeout=1)\npd.read_csv('http://127.0.0.1:@tcp@/x.csv')"),
    "UDP": stopped("socket.socket(2, 2).sendto(b'x', ('127.0.0.1', @udp@))"),
    "DNS": stopped("socket.getaddrinfo('example.org', 80)\nsocket.socket(2, 2).sendto(b'x', ('8.8.8.8', 53))"),
    "unix sockets": stopped("socket.socket(1, 1).connect('@unix@')\nsocket.socket(1, 1).connect('\\0@abstract@')"),
    "listening": stopped("socket.create_server(('127.0.0.1', 0))"),
}  # fmt: skip
PROCESSES = {
    "subprocess": stopped("subprocess.run(['ls', '/'])\nsubprocess.run(['/bin/sh', '-c', 'id'])\nsubprocess.run('id', shell=True)"),
    "os.system": Attack("import os\nos.system('echo got > got; id') != 0", value="True"),
    "another Python is as confined": Attack(
        "import os, sys, subprocess\ncode = \"print(open('/etc/passwd').read())\"\n"
        "try: got = subprocess.run([os.path.realpath(sys.executable), '-I', '-S', '-c', code], capture_output=True).stdout\nexcept OSError: got = b''\ngot", value="b''"),
    "fork bomb": fails("import os, time\nend = time.monotonic() + 8\nwhile time.monotonic() < end:\n    try: os.fork()\n    except OSError: pass", "python_timeout", hangs=True),
    "fork bomb that ends": Attack("import os, time\nend = time.monotonic() + 8\nfor n in range(1000):\n    if time.monotonic() > end: break\n    try: os.fork() or os.setsid()\n    except OSError: pass\n0", ("python_killed", "bad_result", "python_error", "")),
    "daemon": Attack("import os, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        time.sleep(600)\n    os._exit(0)\n'left'", value="'left'"),
    "daemon that goes on writing": Attack(
        "import os\nwith open('a.txt', 'w') as f: f.write('one')\nif os.fork() == 0:\n    os.setsid()\n    n = 0\n    while True:\n"
        "        n += 1\n        try:\n            with open('a.txt', 'w') as f: f.write('two' * (n % 999))\n"
        "            os.path.exists(f'x{n}') or open(f'x{n}', 'w').close()\n        except OSError: pass  # no space is left\n'left'",
        ("too_many_files", "bad_file", ""), needs=TREE),
    "kills whom it can": Attack("import os, signal\nfor p in {1, os.getppid(), @pid@}:\n    try: os.kill(p, signal.SIGKILL)\n    except OSError: pass\n'alive'", value="'alive'", needs=TREE),
    "stops whom it can": Attack("import os, signal\nfor p in (1, os.getppid()):\n    try: os.kill(p, signal.SIGSTOP)\n    except OSError: pass\n'alive'", value="'alive'", needs=TREE),
    "interrupts whom it can": Attack("import os, signal\nfor p in (1, os.getppid()):\n    try: os.kill(p, signal.SIGINT)\n    except OSError: pass\n'alive'", value="'alive'", needs=TREE),
    "signals ignored": fails("import signal, time\nfor s in set(signal.Signals) - {9, 19}: signal.signal(s, signal.SIG_IGN)\ntime.sleep(600)", "python_timeout", hangs=True),
    "stops itself": fails("import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)", "python_timeout", hangs=True),
    "kills all": fails("import os\ntry: os.kill(-1, 9)\nfinally: os.kill(os.getpid(), 9)", *GONE, needs=TREE),
    "threads that go on": Attack("import threading\ndef f():\n    while True: pass\nfor n in range(4): threading.Thread(target=f).start()\n1", value="1"),
}  # fmt: skip
SIZE = {
    "memory bomb": fails("x = []\nwhile True: x.append(bytearray(1 << 26))", "python_memory"),
    "huge array": fails("np.zeros(10**12)", "python_memory"),
    "huge arrays": fails("x = [np.ones(1 << 27) for _ in range(64)]", "python_memory"),
    "huge number": fails("10 ** 10 ** 10", "python_timeout", "python_memory", hangs=True),
    "limits raised": stopped("resource.setrlimit(resource.RLIMIT_AS, (-1, -1))\nresource.setrlimit(resource.RLIMIT_CPU, (-1, -1))"),
    "endless loop": fails("while True: pass", "python_timeout", hangs=True),
    "endless loop that catches everything": fails("while True:\n    try:\n        while True: pass\n    except BaseException: pass", "python_timeout", hangs=True),
    "endless output": fails("while True: print('x' * 1000)", "python_timeout", hangs=True),
    "endless value": Attack("'x' * 100_000_000", value="cut"),
    "deep recursion": fails("def f(): f()\nf()", "python_error"),
    "an error that is huge": fails("raise ValueError('x' * 10**8)", "python_error"),
    "an error with a huge name": fails("raise type('E' * 10**6, (Exception,), {})()", "python_error"),
    "many files": fails("for n in range(3000): open(f'f{n}.txt', 'w').close()", "too_many_files"),
    "more files than may be": fails("for n in range(9000): open(f'f{n}.txt', 'w').close()", "python_error", needs=("bounded disk",)),
    "21 files": fails("for n in range(21): open(f'f{n}.txt', 'w').close()", "too_many_files"),
    "large files": fails("for n in range(3): open(f'f{n}.txt', 'w').write('x' * 3_000_000)", "files_too_large"),
    "a sparse file": fails("open('f.txt', 'wb').truncate(60 << 20)", "files_too_large"),
    "a huge sparse file": fails("open('f.txt', 'wb').truncate(1 << 40)", "python_error"),
    "a full disk": fails("for n in range(90): open(f'f{n}.txt', 'wb').write(b'x' * 3_000_000)", "python_error", needs=("bounded disk",)),
}  # fmt: skip
ENDS = {
    "os._exit": fails("import os\nprint('so far')\nos._exit(0)", *GONE),
    "os.abort": fails("import os\nos.abort()", *GONE),
    "sys.exit": fails("import sys\nsys.exit(3)", "python_error"),
    "sys.exit of nothing": Attack("import sys\nopen('a.txt', 'w').write('x')\nsys.exit()", files=("a.txt",)),
    "segmentation fault": fails("import ctypes\nctypes.string_at(0)", *GONE),
    "another program instead": Attack("import os, sys\nos.execv(os.path.realpath(sys.executable), ['python', '-c', 'pass'])", ("python_killed", "python_error")),
    "exit handler": Attack("import atexit\natexit.register(lambda: open('late.txt', 'w'))\n1", value="1"),
    "exit handler that waits": Attack("import atexit, time\natexit.register(time.sleep, 600)\n1", value="1"),
    "everything closed": Attack("import os\nos.closerange(0, 256)\n1", ("python_killed", "bad_result", "python_error")),
    "an exception that lies": fails("class E(Exception):\n    def __str__(self): raise SystemExit\nraise E", "python_error"),
    "a value that waits": fails("class V:\n    def __repr__(self):\n        while True: pass\nV()", "python_timeout", hangs=True),
    "a value that ends it": fails("import os\nclass V:\n    def __repr__(self): os._exit(0)\nV()", *GONE),
}  # fmt: skip
RESULTS = {
    "no attack": Attack("import matplotlib\nmatplotlib.use('Agg')\nplt.switch_backend('agg')\nplt.plot([1])\nplt.show()", files=("figure_1.png",)),
    "a forged report": forged(b'{"status": 0, "said": "", "files": []}\n'),
    "a forged end": forged(b'{"value": 1, "error": null, "fault": ""}'),
    "a forged file": forged(b'{"status": 0, "said": "{\\"value\\": \\"\\", \\"error\\": null, \\"fault\\": \\"\\"}", "files": [["../../x.txt", "file", 1]]}\nx'),
    "a forged end, and ours": Attack(FORGE.replace("@text@", "b'{}'"), ("bad_result", "")),
    "no open file but the one for the end": Attack("import os\ndef is_open(fd):\n    try: return bool(os.fstat(fd))\n    except OSError: return False\nsum(map(is_open, range(3, 64)))", value="1", needs=TREE),
    "forged in binary": forged(b"\x00\xff" * 100),
    "a link": fails("import os\nos.symlink('/etc/passwd', 'a.txt')", "bad_file"),
    "a folder that is a link": fails("import os\nos.symlink('/etc', 'a')", "bad_file"),
    "a pipe": fails("import os\nos.mkfifo('a.txt')", "bad_file"),
    "a second name": fails("import os\nopen('a.txt', 'w').close()\nos.link('a.txt', 'b.txt')", "bad_file"),
    "a device": stopped("os.mknod('a.txt', 0o20666, os.makedev(1, 3))"),
    "the folder replaced": fails("import os\nos.rename('../work', '../old')\nos.symlink('/etc', '../work')", "", "python_error"),
    "closed files": Attack("import os\nopen('a.txt', 'w').write('x')\nos.chmod('a.txt', 0)\nos.mkdir('d')\nos.chmod('d', 0)", ("bad_file",)),
    "deep folders": fails("import os\nfor n in range(300):\n    os.mkdir('d')\n    os.chdir('d')\nopen('x', 'w').close()", "bad_file"),
    "names that lead out": Attack("import os\nopen('..%2f..%2fetc%2fpasswd', 'w').close()\nopen('a;rm -rf $HOME\\n\\x1b[2J', 'w').close()", files=("2f.._2fetc_2fpasswd", "a_rm_-rf_HOME_2J")),
    "two files of one name": fails("open('a b', 'w').close()\nopen('a;b', 'w').close()", "bad_file"),
    "a page that says it is a picture": fails("open('a.png', 'w').write('<script>')", "bad_file"),
    "a picture that says it is a table": fails("plt.savefig('a.csv', format='png')", "bad_file"),
    "pickle": fails("import pickle\npickle.dump(print, open('a.pkl', 'wb'))", "bad_file"),
    "a program": fails("open('a', 'wb').write(b'\\x7fELF\\x00' * 9)", "bad_file"),
    "json, base64, print and savefig replaced": Attack(
        "import json, base64, builtins, os, zipfile\nfor m in (json, base64, os, zipfile):\n    for name in list(vars(m)):\n"
        "        if callable(getattr(m, name)) and name[0] != '_':\n            setattr(m, name, lambda *a, **k: '{}')\n"
        "plt.savefig = builtins.print = builtins.open = builtins.repr = lambda *a, **k: None", ("python_killed", "bad_result", "bad_file", "python_error", "")),
    "figures that fail": fails("plt.plot([1])\nplt.title('$\\\\frac{$')", "python_error"),
    "our own names": Attack("import sys\n[name for name in sys.modules if name.startswith(('dsa', 'machines'))]", value="[]"),
    "terminal codes": Attack("print('\\x1b[31mred\\x07')"),
}  # fmt: skip
ATTACKS = {**FILES, **SECRETS, **NETWORK, **PROCESSES, **SIZE, **ENDS, **RESULTS}
