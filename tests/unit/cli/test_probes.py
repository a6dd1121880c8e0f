import http.server
import sys
from pathlib import Path

import pytest

from dsa.cli import doctor


def test_folder_is_synced_locked_and_left_unchanged(tmp_path):
    found = doctor.probe_folder(tmp_path / "not" / "there" / "yet")
    assert (found.fault, found.locks) == ("", True)
    assert found.sync_ms > 0
    assert list(tmp_path.iterdir()) == []


def test_file_and_unwritable_folder_are_reported(tmp_path):
    (tmp_path / "file").write_text("")
    assert "is not a folder" in doctor.probe_folder(tmp_path / "file" / "x").fault
    if sys.platform == "linux":
        assert "nothing can be written" in doctor.probe_folder(Path("/proc/x")).fault


MOUNTS = """\
21 1 8:1 / / rw shared:1 - ext4 /dev/sda1 rw
22 21 0:20 / /home rw - nfs4 server:/home rw
23 22 0:21 / /home/me/in\\040memory rw - tmpfs tmpfs rw
24 21 0:22 / /homely rw - fuse.sshfs there: rw
25 21 8:1 / /home/me/in\\040memory/deep rw master:2 - overlay overlay rw
"""


@pytest.mark.parametrize(("path", "kind"), [
    ("/", "ext4"), ("/homestead", "ext4"), ("/home", "nfs4"), ("/home/you/x", "nfs4"), ("/home/me/in memory/x", "tmpfs"),
    ("/home/me/in memory/deep/x", "overlay"), ("/homely", "fuse.sshfs"),
])  # fmt: skip
def test_path_is_on_the_nearest_file_system_mounted_above_it(tmp_path, path, kind):
    (tmp_path / "mountinfo").write_text(MOUNTS)
    assert doctor.file_system(Path(path), tmp_path / "mountinfo") == kind
    assert doctor.file_system(Path(path), tmp_path / "gone") == ""


@pytest.mark.parametrize(("kind", "network", "memory"), [
    ("ext4", False, False), ("nfs4", True, False), ("cifs", True, False), ("fuse.sshfs", True, False), ("tmpfs", False, True),
])  # fmt: skip
def test_network_and_memory_file_systems_are_recognised(kind, network, memory):
    found = doctor.ProbedFolder(Path("x"), kind)
    assert (found.is_network, found.is_in_memory) == (network, memory)


def test_program_version_or_fault_is_found(tmp_path, monkeypatch):
    said = doctor.probe_program((sys.executable,), "--version")
    assert said.version.startswith("Python 3")
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\necho it fell apart\nexit 3\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert doctor.probe_program(("gone", "broken"), "--version").fault == "it does not run (exit 3): it fell apart"
    assert doctor.probe_program(("gone",), "--version") is None
    broken.write_text("no program")
    assert doctor.probe_program(("broken",), "--version").fault.startswith("it does not run")


def test_listening_server_is_detected():
    server = http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler)
    address = f"http://127.0.0.1:{server.server_port}/v1"
    assert doctor.listens(address)
    server.server_close()
    assert not doctor.listens(address)
    assert not doctor.listens("http://127.0.0.1:notaport")
