"""Limits of the calling process: lower ones apply and are reported; a shortage of anything is a SandboxError."""

import errno
import json
import resource
import subprocess
import sys
from itertools import product

import limited_callers
import ordinary_user
import pytest
from conftest import NOT_TESTED

from dsa.edge.sandbox import RUNGS, Bounds, probe
from dsa.edge.sandbox.inside import system_calls

ASKED = {"cpu_s": 3, "memory_bytes": 1 << 29, "file_bytes": 1 << 20, "open_files": 64, "processes": 32}
LACKS = [name for name in limited_callers.CASES if name.startswith(("hardly", "no "))]


#: Each rung of these, each user and each state of the rung's probe is met with each of the other two kinds.
PAIRS = {
    ("limits", "", "root"),
    ("limits", "known", "user"),
    ("bubblewrap", "", "user"),
    ("bubblewrap", "known", "root"),
}


@pytest.mark.parametrize(
    ("rung", "known", "user"),
    [
        each if each in PAIRS else pytest.param(*each, marks=pytest.mark.full)
        for each in product(RUNGS, ["", "known"], ["root", "user"])
    ],
)
def test_caller_with_low_limits_gets_less_or_an_error(rung, known, user):
    if probe(rung).fault:
        pytest.skip(f"{NOT_TESTED} on the sandbox's rung '{rung}': {probe(rung).fault}")
    found = json.loads(ordinary_user.run("limited_callers.py", rung, *filter(None, [known]), is_root=user == "root"))
    lowered = {"files": {"open_files": 50}, "memory": {"memory_bytes": 400 << 20}, "time": {"cpu_s": 2}, "plain": {}}
    assert {name: found[name][:2] for name in lowered} == {name: ["exited", less] for name, less in lowered.items()}
    files, memory, time = (found[name][2] for name in ("files", "memory", "time"))
    assert files.startswith("[(50, 50), ")
    assert "(419430400, 419430400)" in memory
    assert time.endswith("(2, 2)]")
    if not known:  # what is cached of a rung was found by this very process
        assert found["files"][3] == [
            "open_files is at most 50, not 64, because this user is not allowed more (ulimit -H)"
        ]
    assert {found[name][0] for name in LACKS} == {"SandboxError"}
    if known:
        assert found["no more files"][1].endswith(
            "this process has too many open files: close some, or raise its limit (ulimit -n)"
        )


def test_temporary_shortage_is_not_remembered():
    code = (
        "import resource\nfrom dsa.edge.sandbox import probe\nkind = resource.RLIMIT_NOFILE\nmost = resource.getrlimit(kind)\n"
        "resource.setrlimit(kind, (0, most[1]))\nfirst = probe('limits').fault\nresource.setrlimit(kind, most)\n"
        "print(bool(first), probe('limits').fault)"
    )  # fmt: skip
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "True \n"


def test_bounds_are_lowered_only_to_the_limits_of_the_process(monkeypatch):
    most = {resource.RLIMIT_NOFILE: 20, resource.RLIMIT_CPU: 3, resource.RLIMIT_AS: resource.RLIM_INFINITY}
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (0, most.get(kind, 1 << 40)))
    assert system_calls.lowered_bounds(ASKED) == {"open_files": 20}


@pytest.mark.skipif(sys.platform != "linux", reason="macOS refuses some, and they are left out")
@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.EINVAL, "Invalid argument"),
        ValueError("not allowed to raise maximum limit"),
        OverflowError("too large"),
    ],
)
def test_limit_that_cannot_be_set_is_named(error, monkeypatch):
    def refuse(*_):
        raise error

    monkeypatch.setattr(resource, "setrlimit", refuse)
    with pytest.raises(OSError, match=r"the limit cpu_s = 3 cannot be set: .*; use another value"):
        system_calls.set_all(ASKED)


@pytest.mark.parametrize(
    ("name", "bound"),
    [("cpu_s", -1), ("cpu_s", 1.5), ("memory_bytes", 1 << 63), ("open_files", None), ("processes", "many"), ("disk_bytes", float("inf"))],
)  # fmt: skip
def test_invalid_bound_is_refused_at_construction(name, bound):
    with pytest.raises(ValueError, match=f"{name} = .* is not a valid limit: it must be a whole number from 0 to "):
        Bounds(**{name: bound})


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf")])
def test_invalid_timeout_is_refused(seconds):
    with pytest.raises(ValueError, match=r"timeout_s = .* is not a valid time limit"):
        Bounds(timeout_s=seconds)
