"""A program: run the attacks on the Python tool on one rung, with targets for them to find, and print what was wrong, one JSON object.

`attacked_python.py RUNG [NAME ..]`; it is run as root and as an ordinary user, with a secret in its environment. After each attack
a plain call must give what it gave before.
"""

import contextlib
import ctypes
import json
import re
import sys
import tempfile
from pathlib import Path

from attacked import Targets, children
from hostile_programs import SECRETS
from python_attacks import ATTACKS

from dsa.edge.sandbox import Confinement, choose_rung, close_all
from dsa.errors import ToolError
from machines.chat.interpreter import FrameSource, Interpreter

SHORT_S, LONG_S = 1.0, 30.0
_SUBREAPER = 36
TABLE = FrameSource(("name", "n"), ("VARCHAR", "BIGINT"), b"name,n\na,1\nb,2\n")
PLAIN = "df.to_csv('out.csv', index=False)\nprint('hello')\ndf.n.sum()"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")


def ended(interpreter, name, targets):
    """Return what is wrong with how one attack ended; empty when nothing is."""
    attack = ATTACKS[name]
    source = attack.source
    for target, value in targets.names.items():
        source = source.replace(f"@{target}@", str(value))
    try:
        result = interpreter.run(source, TABLE, timeout_s=SHORT_S if attack.hangs else LONG_S)
    except ToolError as error:
        said, shown = error.code, f"{error} {error.about.get('output', '')}"
        fits = said in attack.codes and str(error)
    else:
        said, shown = (
            "",
            f"{result.value} {result.output} {[f.name for f in result.files]} {[f.content for f in result.files]}",
        )
        names = tuple(file.name for file in result.files)
        fits = "" in attack.codes or (
            not attack.codes and result.value.endswith(attack.value) and names == attack.files
        )
        fits = fits or (attack.value == "cut" and result.value.endswith("[.. cut ..]"))
        fits = fits and all(map(_NAME.fullmatch, names))
    if any(secret in shown for secret in (*SECRETS, "root:x:", "\x1b")) or len(shown) > 40_000:
        return f"{name}: it got something: {shown[:500]}"
    return "" if fits else f"{name}: {said} {shown[:500]}"


def plain(interpreter):
    """Return what a plain call gives, but how long it took."""
    result = interpreter.run(PLAIN, TABLE)
    return result.output, result.value, [(file.name, file.kind, file.content) for file in result.files], result.rung


def main(rung, *names):
    """Run all, then look around."""
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    features = choose_rung(Confinement(rung=rung)).features
    interpreter = Interpreter(Confinement(rung=rung))
    tried = [name for name in names or ATTACKS if set(ATTACKS[name].needs) <= features]
    faults = []
    with contextlib.ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="attacked-")))
        folder.chmod(0o755)
        targets = Targets(folder, opened)
        tempfile.tempdir = str(targets.work)
        before = plain(interpreter)
        descriptors = len(list(Path("/proc/self/fd").iterdir()))
        for name in tried:
            faults += [fault] if (fault := ended(interpreter, name, targets)) else []
            if (after := plain(interpreter)) != before:
                faults.append(f"after {name} a plain call gives {after}")
        if (more := len(list(Path("/proc/self/fd").iterdir()))) > descriptors:
            faults.append(f"{more - descriptors} more open files than before")
        faults += targets.faults()
        close_all()
        faults += [f"left: {Path(f'/proc/{pid}/status').read_text()[:80]}" for pid in children()]
    print(json.dumps({"tried": len(tried), "faults": faults, "features": sorted(features)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
