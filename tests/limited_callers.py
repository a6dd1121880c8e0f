"""A program: run code on one rung from processes that have little themselves, and print the result of each, one JSON object.

`limited_callers.py RUNG [known]`; it is run as root and as an ordinary user. Each case is a fork of it whose own limits are lowered, hard and soft;
with `known` the rung has been tried before, where there was no lack of anything.
"""

import json
import os
import resource
import sys
import tempfile

from dsa.edge.sandbox import Bounds, Confinement, SandboxProgram, choose_rung, probe, run_confined

PROGRAM = SandboxProgram(
    "import os, resource\ndef run(payload, fd):\n"
    " kinds = (resource.RLIMIT_NOFILE, resource.RLIMIT_AS, resource.RLIMIT_CPU)\n"
    " os.write(fd, repr([resource.getrlimit(kind) for kind in kinds]).encode())"
)
#: Limits of the process that asks, by the names of `resource`; and what else is wrong there.
CASES = {
    "plain": {},
    "files": {"NOFILE": 50},
    "memory": {"AS": 400 << 20},
    "time": {"CPU": 2},
    "hardly any files": {"NOFILE": 14},
    "no more files": {"NOFILE": 0},
    "no bytes of a file": {"FSIZE": 0},
    "no more processes": {"NPROC": 0},
    "no folder for files": {},
}


def outcome(name, rung):
    """What an exception was, or the bounds that were lowered and what the code found."""
    for kind, bound in CASES[name].items():
        resource.setrlimit(getattr(resource, f"RLIMIT_{kind}"), (bound, bound))
    if name == "no folder for files":
        tempfile.tempdir = "/nonexistent"
    try:
        found = run_confined(PROGRAM, "", Bounds(memory_bytes=500 << 20), Confinement(rung=rung))
    except Exception as error:  # noqa: BLE001  # that is what is asked for
        return [type(error).__name__, str(error)]
    return [found.end, found.lowered_bounds, found.results.decode(), probe(rung).notes]


def in_a_fork(name, rung):
    """The same in a process that has its own limits."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, json.dumps(outcome(name, rung)).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as said:
        text = said.read()
    os.waitpid(child, 0)
    return json.loads(text)


if __name__ == "__main__":
    if len(sys.argv) > 2:
        choose_rung(Confinement(rung=sys.argv[1]))
    print(json.dumps({name: in_a_fork(name, sys.argv[1]) for name in CASES}))
