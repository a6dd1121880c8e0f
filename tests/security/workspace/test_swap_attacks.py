"""Files and folders that are swapped for others while the file tools use them."""

import ctypes
import os
import random
import shutil
import signal
import sys
from pathlib import Path

import pytest
from attacked_workspaces import SECRET, WRITES, calls_of, everything
from file_tools import FileTools
from os_calls import before, handled

from dsa.errors import DsaError, ToolError
from machines.coding.tools.workspace_boundary import Beneath


def exchange():
    """Return a function that exchanges two names in one step; skip where the system has none."""
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "renameat2"):
        pytest.skip("no renameat2")
    return lambda one, other: libc.renameat2(-100, os.fsencode(one), -100, os.fsencode(other), 2)


@pytest.fixture
def swapping(places):
    """Let another process exchange a folder and a link to the folder outside, over and over."""
    (places / "folder").mkdir()
    (places / "folder" / "secret").write_text("inside")
    (places / "other").symlink_to(places.parent / "outside")
    swap = exchange()
    if swap(places / "folder", places / "other"):
        pytest.skip("this file system exchanges no names")
    child = os.fork()
    if child == 0:
        try:
            signal.alarm(50)  # it ends by itself too
            phases = random.Random(0)
            while True:
                swap(places / "folder", places / "other")
                for _ in range(phases.choice((1, 100, 2_000))):  # so that now short calls are met, now long ones
                    os.getppid()
        finally:
            os._exit(0)
    yield
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


@pytest.mark.usefixtures("swapping")
@pytest.mark.parametrize("tool", ["read_file", "write_file", "write_files", "edit", "search", "new"])
def test_folder_swapped_for_a_link_at_any_moment_is_not_followed(workspace, places, tool):
    outside = everything(places.parent / "outside")
    seen = {}
    for number in range(3_000):
        path = f"folder/new{number}/x" if tool == "new" else "folder/secret"
        arguments = calls_of(path)["write_file" if tool == "new" else tool]
        if tool == "edit":
            arguments = {"path": path, "old": "inside", "new": "inside again", "all": True}
        try:
            said = str(workspace.apply("write_file" if tool == "new" else tool, arguments))
        except ToolError as error:
            said = str(error)
            seen[error.code] = seen.get(error.code, 0) + 1
        else:
            seen["done"] = seen.get("done", 0) + 1
        assert SECRET not in said
        if number >= 600 and {"done", "path_outside_workspace"} <= set(seen):
            break
    assert everything(places.parent / "outside") == outside
    assert {"done", "path_outside_workspace"} <= set(seen), seen


@pytest.mark.usefixtures("swapping")
@pytest.mark.parametrize("by_walk", [False, True])
def test_fault_check_never_raises_while_folders_are_swapped(places, by_walk):
    with FileTools(places, by_walk=by_walk) as opened:
        said = {bool(opened.fault("write_file", {"path": "folder/secret", "content": ""})) for _ in range(1_000)}
    assert said <= {True, False}


@pytest.mark.parametrize("tool", WRITES)
def test_folder_swapped_for_a_link_after_planning_is_refused(workspace, places, tool):
    (places / "folder").mkdir()
    (places / "folder" / "secret").write_text(SECRET)
    arguments = calls_of("folder/secret")[tool]
    planned = workspace.plan(tool, arguments)
    assert not workspace.fault(tool, arguments)
    shutil.rmtree(places / "folder")
    (places / "folder").symlink_to("../outside")
    outside = everything(places.parent / "outside")
    with pytest.raises(ToolError) as refused:
        workspace.apply(tool, arguments, planned)
    assert refused.value.code == "path_outside_workspace"
    assert everything(places.parent / "outside") == outside
    assert not (places / "new").exists()
    assert workspace.fault(tool, arguments)


def swapped_for_a_link(path, target):
    """Replace a folder or file by a link."""
    path.rename(path.with_name(f"{path.name} as it was"))
    path.symlink_to(target)


def test_folder_swapped_for_a_link_right_after_creation_is_refused(workspace, places):
    outside = everything(places.parent / "outside")

    def handle(name, _arguments, perform):
        made = perform()
        if name == "mkdir":
            swapped_for_a_link(places / "made", places.parent / "outside")
        return made

    with handled(handle), pytest.raises(ToolError) as refused:
        workspace.write_file("made/secret", "attacked")
    assert refused.value.code == "path_outside_workspace"
    assert everything(places.parent / "outside") == outside


@pytest.mark.parametrize("call", ["open", "write", "fsync", "rename"])
def test_write_goes_to_the_original_folder_when_it_is_swapped_for_a_link(workspace, places, call):
    (places / "folder").mkdir()
    outside = everything(places.parent / "outside")
    waiting = [lambda: swapped_for_a_link(places / "folder", places.parent / "outside")]

    def handle(name, _arguments, perform):
        if name == call and waiting:
            waiting.pop()()
        return perform()

    with handled(handle):
        workspace.write_file("folder/secret", "written")
    assert everything(places.parent / "outside") == outside
    assert (places / "folder as it was" / "secret").read_text() == "written"


def test_file_swapped_for_a_link_right_before_replacement_is_not_followed(workspace, places):
    outside = everything(places.parent / "outside")
    with before("rename", "a.py", lambda: swapped_for_a_link(places / "a.py", places.parent / "outside" / "secret")):
        workspace.write_file("a.py", "written")
    assert everything(places.parent / "outside") == outside
    assert not (places / "a.py").is_symlink()
    assert (places / "a.py").read_text() == "written"


def test_moved_workspace_is_still_the_one_in_use(workspace, places):
    moved = places.parent / "moved"
    places.rename(moved)
    shutil.copytree(places.parent / "outside", places)
    workspace.write_file("new", "x")
    assert workspace.read_file("a.py")["content"] == "x = 1\n"
    assert (moved / "new").read_text() == "x"
    assert sorted(each.name for each in places.iterdir()) == ["a.py", "secret"]
    assert os.path.samestat(os.fstat(workspace.fileno()), moved.stat())


def test_deleted_workspace_is_reported_as_gone(workspace, places):
    shutil.rmtree(places)
    for path in ("a.py", "src/a.py"):
        for tool, arguments in calls_of(path).items():
            with pytest.raises(DsaError) as raised:
                workspace.apply(tool, arguments)
            assert isinstance(raised.value, ToolError) or raised.value.code == "WorkspaceGoneError"
            if tool == "write_file":
                assert raised.value.code == "WorkspaceGoneError"
            assert isinstance(workspace.fault(tool, arguments), str)
    assert not places.exists()


def test_closed_workspace_opens_nothing(workspace):
    workspace.close()
    workspace.close()
    with pytest.raises(DsaError) as refused:
        workspace.read_file("a.py")
    assert refused.value.code == "WorkspaceGoneError"
    assert "closed" in workspace.fault("read_file", {"path": "a.py"})


def test_no_descriptor_is_left_open(workspace, places):
    if not Path("/proc/self/fd").exists():
        pytest.skip("descriptors cannot be counted")
    open_before = len(list(Path("/proc/self/fd").iterdir()))
    for path in ("a.py", "src/new/x", "link/secret", "missing", "src", "zero"):
        for tool, arguments in calls_of(path).items():
            try:
                workspace.apply(tool, arguments)
            except ToolError:
                workspace.fault(tool, arguments)
    assert len(list(Path("/proc/self/fd").iterdir())) == open_before
    assert places.exists()


def test_openat2_and_walk_are_both_available_on_linux(places):
    ways = []
    for by_walk in (False, True):
        beneath = Beneath(places, by_walk=by_walk)
        ways.append(beneath.by_walk)
        beneath.close()
    assert ways[1]
    if sys.platform == "linux" and tuple(map(int, os.uname().release.split(".")[:2])) >= (5, 6):
        assert not ways[0]
