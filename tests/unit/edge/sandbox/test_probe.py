import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import ordinary_user
import pytest
from conftest import NOT_TESTED
from hostile_programs import SECRETS

from dsa.edge.sandbox import FEATURES, RUNGS, best, ladder, probed


def in_another_process(code, **options):
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120, **options
    ).stdout


def test_the_ladder_has_each_rung_and_the_best_is_the_first_that_is_reached():
    found = ladder()
    assert [rung.name for rung in found] == list(RUNGS)
    assert best() == next(rung for rung in found if not rung.fault)
    assert all(bool(rung.features) != bool(rung.fault) and rung.features <= set(FEATURES) for rung in found)


def test_a_rung_is_tried_once():
    assert probed("limits") is probed("limits")


def test_without_bwrap_the_next_rung_is_taken_and_the_reason_is_told(tmp_path):
    code = "from dsa.edge.sandbox import *; print(probed('bubblewrap').fault, best().name != 'bubblewrap')"
    said = in_another_process(code, env={"PATH": str(tmp_path)})
    assert said == "bwrap is not installed (apt install bubblewrap) True\n"


def test_a_bwrap_that_does_not_work_is_told_with_its_own_words(tmp_path):
    (tmp_path / "bwrap").write_text("#!/bin/sh\necho bwrap: not permitted here >&2\nexit 1\n")
    (tmp_path / "bwrap").chmod(0o755)
    code = "from dsa.edge.sandbox import *; print(probed('bubblewrap').fault)"
    assert "bwrap: not permitted here" in in_another_process(code, env={"PATH": f"{tmp_path}:/bin"})


def test_a_bwrap_that_confines_nothing_is_found_out(tmp_path):
    """It runs the command as it is, with the file tree, network and processes of everybody."""
    (tmp_path / "bwrap").write_text('#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done\nshift\nexec "$@"\n')
    (tmp_path / "bwrap").chmod(0o755)
    code = "from dsa.edge.sandbox import *; print(probed('bubblewrap').fault)"
    said = in_another_process(code, env={"PATH": f"{tmp_path}:/bin"})
    unreachable = "No module named" in said  # the library in root's home, for the user that root has become
    incomplete = "No such file or directory: '/own'" in said  # there is no such folder outside
    assert unreachable or incomplete or "it promises what did not hold when tried: " in said


@pytest.mark.parametrize("name", RUNGS)
def test_what_cannot_be_had_says_why_and_no_promise_is_broken(name):
    assert probed(name).features or len(probed(name).fault) > 10
    assert "did not hold" not in probed(name).fault


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
def test_what_other_programs_can_have_is_reached(name, command):
    """The programs bwrap and unshare are asked whether the machine permits what the rung needs."""
    if not all(map(shutil.which, (command[0], "unshare"))):
        pytest.skip(f"{NOT_TESTED} whether the sandbox's rung '{name}' is reached: {command[0]} is not installed")
    permitted = subprocess.run(command, capture_output=True, check=False).returncode == 0
    assert (not probed(name).fault) or not permitted, probed(name).fault


def without_nesting(folder):
    """A bwrap inside which nobody may make a user namespace, as where only bwrap is trusted with them."""
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
def test_where_only_bwrap_may_make_namespaces_it_is_started_for_each_call(names):
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


#: Goes into a user namespace in which all users are, and nobody may make another one; then becomes the program it was given.
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
    if probed(rung).fault:
        pytest.skip(f"{NOT_TESTED} on the sandbox's rung '{rung}': {probed(rung).fault}")
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
