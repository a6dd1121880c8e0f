"""Special files, and files that are meant to make the file tools hang."""

import os
import socket
import sys
from pathlib import Path

import pytest
from attacked_workspaces import SECRET, WRITES, calls_of
from file_tools import FileTools

from dsa.errors import ToolError


def test_pipes_and_sockets_do_not_block(workspace, places, monkeypatch):
    os.mkfifo(places / "pipe")
    monkeypatch.chdir(places)  # the name of a socket is short
    with socket.socket(socket.AF_UNIX) as made:
        made.bind("socket")
        for name in ("pipe", "socket"):
            for tool in ("read_file", *WRITES):
                with pytest.raises(ToolError) as refused:
                    workspace.apply(tool, calls_of(name)[tool])
                assert refused.value.code == "not_a_file", tool
            with pytest.raises(ToolError):
                workspace.digest(name)
        assert workspace.search("x = 1")["matches"] == ["a.py:1: x = 1"]


@pytest.mark.skipif(sys.platform != "linux", reason="devices and /proc are Linux's")
@pytest.mark.parametrize("by_walk", [False, True])
def test_devices_and_magic_links_are_not_read(by_walk):
    with FileTools(Path("/dev"), by_walk=by_walk) as devices:
        for name in ("zero", "null", "tty", "stdin", "fd/0"):
            with pytest.raises((ToolError, OSError)) as refused:
                devices.read_file(name)
            assert getattr(refused.value, "code", "") in ("not_a_file", "path_outside_workspace"), name
    with FileTools(Path("/proc/self"), by_walk=by_walk) as process:
        for name in ("root/etc/passwd", "cwd/pyproject.toml", "exe", "fd/0"):
            with pytest.raises(ToolError) as refused:
                process.read_file(name)
            assert refused.value.code == "path_outside_workspace", name


def test_hard_link_to_a_file_outside_is_not_written(attack, workspace, places):
    os.link(places.parent / "outside" / "secret", places / "hard")
    assert attack("hard", WRITES) == {"linked_file"}
    assert (places.parent / "outside" / "secret").read_text() == SECRET


def test_names_with_control_characters_are_shown_escaped(workspace, places):
    for name in ("a\nb.py", "\x1b[2Jx", "bad\udcff"):
        (places / name).write_text("needle")
    listed = [entry["name"] for entry in workspace.list_dir()["entries"]]
    assert {"a\\nb.py", "\\x1b[2Jx", "bad\\udcff"} <= set(listed)
    found = workspace.search("needle")
    assert [line.split(":")[0] for line in found["matches"]] == ["\\x1b[2Jx", "a\\nb.py", "bad\\udcff"]
    assert all(line.isprintable() for line in [*listed, *found["matches"]])
    assert workspace.read_file("a\nb.py")["result"] == "Read a\\nb.py: 6 bytes, 1 line"


def test_folders_that_are_too_deep_are_skipped(workspace, places):
    at = os.open(places, os.O_RDONLY)
    for _ in range(30):
        os.mkdir("d" * 200, dir_fd=at)
        onward = os.open("d" * 200, os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = onward
    os.close(os.open("deep", os.O_WRONLY | os.O_CREAT, dir_fd=at))
    os.close(at)
    found = workspace.search("x = 1")
    assert found["matches"] == ["a.py:1: x = 1"]
    assert found["skipped"]["folders that cannot be read"] == 1
    for depth in range(70):
        (places / "/".join(["e"] * (depth + 1))).mkdir()
    assert workspace.search("x = 1")["skipped"]["folders that are too deep"] == 1
    with pytest.raises(ToolError):
        workspace.list_dir("/".join(["d" * 200] * 30))


@pytest.mark.parametrize(
    "pattern", [r"(a+)+$", r"(a|aa)+$", r"(a|b|ab)*c", r"^(([a-z])+.)+[A-Z]([a-z])+$", r"(x+x+)+y"]
)
def test_hostile_expression_takes_no_longer_than_the_text(workspace, places, pattern):
    """Python's own `re` would need longer than the universe is old."""
    (places / "trap").write_text("a" * 60 + "!\n" + "ab" * 60 + "!\n" + "x" * 60 + "\n")
    matches = workspace.search(pattern, is_regex=True)["matches"]
    assert not [line for line in matches if line.startswith("trap:")]


def test_search_ends_at_its_time_limit(workspace, monkeypatch):
    monkeypatch.setattr("machines.coding.tools.file_view._TIME_LIMIT_S", -1.0)
    with pytest.raises(ToolError) as refused:
        workspace.search("x", is_regex=True)
    assert refused.value.code == "too_slow"
