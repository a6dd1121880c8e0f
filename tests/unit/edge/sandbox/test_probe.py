import json
import marshal
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import ordinary_user
import pytest
from conftest import NOT_TESTED
from hostile_programs import SECRETS

from dsa.edge.sandbox import FEATURES, RUNGS, best, command_sandbox, ladder, probe, rungs
from dsa.edge.sandbox.command_sandbox import probe_commands as probed_commands
from dsa.edge.sandbox.inside.seccomp import fault
from dsa.edge.sandbox.trials import FAMILIES, OLD_CALLS


def in_another_process(code, **options):
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120, **options
    ).stdout


def test_ladder_has_every_rung_and_best_is_the_first_available():
    found = ladder()
    assert [rung.name for rung in found] == list(RUNGS)
    assert best() == next(rung for rung in found if not rung.fault)
    assert all(bool(rung.features) != bool(rung.fault) and rung.features <= set(FEATURES) for rung in found)


def test_rung_is_probed_once():
    assert probe("limits") is probe("limits")


def test_next_rung_is_used_without_bwrap_and_the_reason_is_given(tmp_path):
    code = "from dsa.edge.sandbox import *; print(probe('bubblewrap').fault, best().name != 'bubblewrap')"
    said = in_another_process(code, env={"PATH": str(tmp_path)})
    assert said == "bwrap is not installed (apt install bubblewrap) True\n"


def test_failing_bwrap_is_reported_in_its_own_words(tmp_path):
    (tmp_path / "bwrap").write_text("#!/bin/sh\necho bwrap: not permitted here >&2\nexit 1\n")
    (tmp_path / "bwrap").chmod(0o755)
    code = "from dsa.edge.sandbox import *; print(probe('bubblewrap').fault)"
    assert "bwrap: not permitted here" in in_another_process(code, env={"PATH": f"{tmp_path}:/bin"})


def test_bwrap_that_confines_nothing_is_detected(tmp_path):
    """It runs the command directly, with the ordinary file tree, network and processes."""
    (tmp_path / "bwrap").write_text('#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done\nshift\nexec "$@"\n')
    (tmp_path / "bwrap").chmod(0o755)
    code = "from dsa.edge.sandbox import *; print(probe('bubblewrap').fault)"
    said = in_another_process(code, env={"PATH": f"{tmp_path}:/bin"})
    unreachable = "No module named" in said  # the library in root's home, for the user that root has become
    incomplete = "No such file or directory: '/own'" in said  # there is no such folder outside
    assert unreachable or incomplete or "a trial showed that these promises do not hold: " in said


@pytest.mark.parametrize("name", RUNGS)
def test_unavailable_rung_says_why_and_no_promise_is_broken(name):
    assert probe(name).features or len(probe(name).fault) > 10
    assert "did not hold" not in probe(name).fault


@pytest.mark.skipif(sys.platform != "linux", reason="Linux")
@pytest.mark.parametrize(
    ("name", "command"),
    [
        (
            "bubblewrap",
            ["bwrap", "--ro-bind", "/", "/", "--unshare-user", "--unshare-net", "unshare", "--user", "true"],
        ),
        (
            "namespaces",
            ["unshare", "--user", "--map-root-user", "--mount", "--net", "--pid", "--ipc", "--fork", "true"],
        ),
    ],
)
def test_rung_is_available_where_its_program_works(name, command):
    """The programs bwrap and unshare show whether the machine permits what the rung needs."""
    if not all(map(shutil.which, (command[0], "unshare"))):
        pytest.skip(f"{NOT_TESTED} whether the sandbox's rung '{name}' is reached: {command[0]} is not installed")
    permitted = subprocess.run(command, capture_output=True, check=False).returncode == 0
    assert (not probe(name).fault) or not permitted, probe(name).fault


def without_nesting(folder):
    """Return the environment for a bwrap inside which no user namespace can be made, as where only bwrap is trusted with them."""
    (folder / "bwrap").write_text('#!/bin/sh\nexec /usr/bin/bwrap --unshare-user --disable-userns "$@"\n')
    (folder / "bwrap").chmod(0o755)
    return {"PATH": f"{folder}:/usr/bin:/bin", "SECRET": SECRETS[1]}


@pytest.mark.skipif(not Path("/usr/bin/bwrap").exists(), reason="bwrap is not in its usual place")
@pytest.mark.parametrize(
    "names",
    [
        ("daemon", "secret file", "TCP", "kill everybody", "write outside", "the tree it sees", "memory bomb"),
        pytest.param((), marks=pytest.mark.full),
    ],
)
def test_bwrap_is_started_for_each_call_where_only_it_may_make_namespaces(names):
    folder = Path(tempfile.mkdtemp(dir="/var/tmp"))
    folder.chmod(0o755)
    try:
        said = json.loads(
            ordinary_user.run("attacked.py", "bubblewrap", *names, is_root=False, env=without_nesting(folder))
        )
    finally:
        shutil.rmtree(folder)
    assert said["faults"] == []
    assert "own file tree" in said["features"]
    assert said["tried"] >= len(names)


#: Enters a user namespace that has all users and in which no other one can be made; then becomes the program in its arguments.
FORBIDDEN = """
import ctypes, os, sys
assert ctypes.CDLL(None).unshare(0x10000000) == 0
print("in", flush=True)
sys.stdin.readline()
open("/proc/sys/user/max_user_namespaces", "w").write("0")
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""
FEW = (
    "daemon",
    "secret file",
    "TCP",
    "kill everybody",
    "kill the watcher",
    "the tree it sees",
    "full disk",
    "fork bomb",
    "become root",
)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can have namespaces without a user namespace")
@pytest.mark.parametrize(
    ("rung", "users"),
    [("bubblewrap", 2_100_000_000), ("namespaces", 65_536)],
    ids=["bubblewrap", "namespaces, few users"],
)
def test_root_does_without_user_namespaces_where_they_are_forbidden(rung, users):
    if probe(rung).fault:
        pytest.skip(f"{NOT_TESTED} on the sandbox's rung '{rung}': {probe(rung).fault}")
    tests = Path(ordinary_user.__file__).parent
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": f"{tests.parent}:{tests}", "SECRET": SECRETS[1]}
    command = [sys.executable, "-c", FORBIDDEN, tests / "attacked.py", rung, *FEW]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen(command, env=environment, text=True, **pipes) as process:
        assert process.stdout.readline() == "in\n"
        for name in ("uid_map", "gid_map"):
            Path(f"/proc/{process.pid}/{name}").write_text(f"0 0 {users}")
        told, complaints = process.communicate("go\n", timeout=120)
    assert complaints == ""
    said = json.loads(told)
    assert said["faults"] == []
    assert {"own user", "own file tree", "bounded disk"} <= set(said["features"])
    assert said["tried"] == len(FEW)


#: Takes a folder with another `inside`; prints what a probe of each rung, and of the sandbox for commands, then finds.
ANOTHER_INSIDE = """
import json, sys
from pathlib import Path
from dsa.edge.sandbox import RUNGS, command_sandbox, probe, rungs
rungs.INSIDE = Path(sys.argv[1])
found = [probe(name) for name in RUNGS] + [command_sandbox.probe_commands()]
print(json.dumps([[rung.fault, sorted(rung.features), rung.notes] for rung in found]))
"""


def found_with(tmp_path, old, new):
    """Return the probes of each rung, and of the sandbox for commands, with another filter."""
    inside = tmp_path / "inside"
    shutil.copytree(rungs.INSIDE, inside)
    text = (inside / "seccomp.py").read_text()
    assert old in text
    (inside / "seccomp.py").write_text(text.replace(old, new))
    done = subprocess.run(
        [sys.executable, "-c", ANOTHER_INSIDE, inside], capture_output=True, text=True, check=True, timeout=120
    )
    return dict(zip((*RUNGS, "commands"), json.loads(done.stdout), strict=True))


def here(found):
    """Return the rungs that this machine has."""
    rungs = {name: probe(name) for name in RUNGS} | {"commands": probed_commands()}
    return {name: each for name, each in found.items() if not rungs[name].fault}


@pytest.mark.skipif(bool(fault()), reason=f"{NOT_TESTED} with a filter of system calls")
def test_filter_that_blocks_nothing_is_detected_for_each_rung_and_family(tmp_path):
    start = "    decided_numbers = numbers(machine, DECIDED_CALLS)\n"
    found = here(found_with(tmp_path, start, f"    return _step(_RETURN, _ALLOW)\n{start}"))
    alien = {"limits of other processes", "calls of the x32 ABI"}  # of another user's; few kernels have it
    assert len(found) >= 2
    for name, (said, *_) in found.items():
        assert said.startswith(
            "a trial showed that these promises do not hold: bounded memory (System V memory: shmget, "
        ), name
        assert {family for family in FAMILIES if f"{family}: " not in said} <= alien, name


@pytest.mark.skipif(bool(fault()), reason=f"{NOT_TESTED} with a filter of system calls")
@pytest.mark.parametrize(
    ("old", "new", "by"),
    [
        ('"machine": """', '"machine": """ shmget 29 194 ', "bounded memory (System V memory: shmget)"),
        ('"machine": """', '"machine": """ setpriority 141 140 ', "setpriority PRIO_USER)"),
        (
            "_none_of(_TERMINALS)",
            "_none_of((0x5423,))",
            "filtered system calls (terminals: ioctl TIOCSTI, ioctl TIOCLINUX)",
        ),
        ("_step(_RETURN, _KILL)", "_step(_RETURN, _ALLOW)", "calls of 32-bit programs"),
    ],
    ids=["System V memory", "priorities", "terminals", "32 bits"],
)
def test_filter_with_one_hole_is_detected(old, new, by, tmp_path):
    found = here(found_with(tmp_path, old, new))
    assert [name for name, (said, *_) in found.items() if by not in said] == []


@pytest.mark.skipif(bool(fault()), reason=f"{NOT_TESTED} with a filter of system calls")
def test_pair_of_datagram_sockets_is_detected_where_the_network_is_shared(tmp_path):
    if probe("landlock").fault:
        pytest.skip(f"{NOT_TESTED} on the sandbox's rung 'landlock': {probe('landlock').fault}")
    found = found_with(tmp_path, "_step(_EQUAL, _STREAM, 0, 1)", "_step(_EQUAL, 2, 0, 1)")
    assert found["landlock"][0] == "a trial showed that these promises do not hold: no network"


def test_rungs_promise_less_and_commands_are_refused_without_a_filter(tmp_path):
    """The filter is missing on an architecture whose numbers are not known."""
    found = here(found_with(tmp_path, "machine = os.uname().machine\n    if", 'machine = "riscv64"\n    if'))
    assert len(found) >= 2
    why = "system calls are not filtered: their numbers are known for x86_64, aarch64 (64 bits), not for riscv64"
    assert (
        found.pop("commands", (f"the command could not be started: {why}",))[0]
        == f"the command could not be started: {why}"
    )
    for name, (said, features, notes) in found.items():
        assert (said, notes) == ("", [why]), name
        assert set(features) == probe(name).features - {"bounded memory", "filtered system calls"} - (
            {"no network"} if name == "landlock" else set()
        )


def test_documentation_lists_each_family_that_is_tried():
    page = (Path(__file__).parents[4] / "docs/how-to/sandbox.md").read_text()
    told = re.findall(r"^\| (.+?) +\| (`.+`) +\| (bounded memory|filtered system calls) +\|$", page, re.MULTILINE)
    tried = [(family, tuple(call[0] for call in calls), feature) for family, (feature, calls) in FAMILIES.items()]
    tried.append((OLD_CALLS[0], (OLD_CALLS[2],), OLD_CALLS[1]))
    assert [(family, tuple(re.findall("`(.+?)`", calls)), feature) for family, calls, feature in told] == tried


def test_first_process_of_a_command_imports_little():
    names = compile("def main(setup):\n    import sys\n    print(*sys.modules)", "names", "exec")
    setup = {"modules": [*rungs.compile_modules(command_sandbox._MODULES), ("names", names)]}  # noqa: SLF001
    done = subprocess.run(rungs.python(), input=marshal.dumps(setup), capture_output=True, check=True, env={})
    modules = set(done.stdout.decode().split())
    assert {"ctypes", "socket"} <= modules
    assert {"json", "platform", "re", "typing"} & modules == set()
