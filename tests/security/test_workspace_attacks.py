"""Paths, links and files that are meant to lead the file tools out of the workspace, to have them hang, or to write what is protected.

Each is tried in both ways of opening files: by the kernel in one call, and name by name.
"""

import ctypes
import os
import random
import shutil
import signal
import socket
import sys
from pathlib import Path

import pytest
from os_calls import before, handled

from machines.coding.tools.beneath import Beneath, WorkspaceGoneError
from machines.coding.tools.errors import ToolError
from machines.coding.tools.workspace import Workspace

SECRET = "the secret of somebody else"
ESCAPES = [
    "..",
    "../outside/secret",
    "../../outside/secret",
    "./../outside/secret",
    "src/../../outside/secret",
    "src/./.././../outside/secret",
    "src//..//..//outside/secret",
    "missing/../../outside/secret",
    "a.py/../../outside/secret",
    "../inside/../outside/secret",
    "../inside/a.py",
    "src/../" * 20 + "../outside/secret",
    "../" * 50 + "etc/passwd",
    "/etc/passwd",
    "//etc/passwd",
    "/./etc/passwd",
    "/",
    "/..",
    "{root}/../outside/secret",
    "{root}/src/../../outside/secret",
    "{root}x/secret",
    "/{root}/../outside/secret",
    "{outside}/secret",
    "/proc/self/root/etc/passwd",
    "/proc/self/cwd",
    "/dev/stdin",
    "~",
    "~/secret",
    "~root/secret",
    "C:/secret",
    "c:secret",
    "link/secret",
    "link/../a.py/../link/secret",
    "src/link",
    "to_file",
    "chain",
    "up/outside/secret",
    "up/inside/a.py",
    "src/here/a.py",
    "to_root/etc/passwd",
    "dangling",
    "dangling_folder/x",
    "loop",
    "loop/x",
    "zero",
    "magic/etc/passwd",
]
DAMAGED = [
    "",
    " ",
    "\n",
    "\0",
    "a.py\0",
    "a.py\0/../../outside/secret",
    "..\0/outside/secret",
    "..\\outside\\secret",
    "src\\..\\..\\outside\\secret",
    "\\\\server\\share",
    "C:\\secret",
    "file:///etc/passwd",
    "http://127.0.0.1/x",
    "\ud800",
    "src/\udcff",
    "x" * 256,
    "é" * 128,
    "/".join(["x"] * 5_000),
    "x/" * 65 + "x",
    3,
    ["a.py"],
    {"path": "a.py"},
    b"a.py",
    True,
]
#: They look as if they led out, and are names like others: nothing takes them apart.
NAMES = [
    "%2e%2e/%2e%2e/outside/secret",
    "..%2foutside%2fsecret",
    "%252e%252e/secret",
    "．．/outside/secret",
    "..\u2215outside\u2215secret",
    "..\u2044outside",
    "...",
    ".../...",
    "....//....//outside/secret",
    "..;/outside/secret",
    "$HOME/secret",
    "${HOME}",
    "`id`",
    "-rf",
    "./~/secret",
    "a.py;id",
    "..a/secret",
    "con",
]
PROTECTED = [
    ".git",
    ".git/config",
    ".git/hooks/pre-commit",
    ".GIT/config",
    ".Git/HEAD",
    "src/../.git/config",
    "./.git/./config",
    "{root}/.git/config",
    "src/.git/config",
    "src/deep/.gIt/hooks/x",
    ".git./config",
    ".git /config",
    ".g\u200cit/config",
    "．git/config",
    "git~1/config",
    ".git::$INDEX_ALLOCATION/config",
    ".dsa",
    ".dsa/runs/x",
    ".DSA/runs/x",
    "src/.dsa/x",
    ".d\u017fa/x",
    ".agent_context/state.json",
    ".AGENT_CONTEXT/state.json",
    "agent_ledger.log",
    "Agent_Ledger.LOG",
    ".dsa~" + "0" * 32,
    ".DSA~x",
    "tests/test_a.py",
    "Tests/TEST_A.PY",
    "src/../tests/test_a.py",
    "x/conftest.py",
]
NOT_PRINTED = ["a\nb", "a.py\n", "\x1b[2J", "a\u202eyp.b", "a\x7f", "tab\there", "src/a\rb/c"]


@pytest.fixture(autouse=True)
def _no_hanging():
    """Fail what waits for ever: for the other end of a pipe, for an expression."""

    def too_long(*_):
        raise TimeoutError("it hangs")

    earlier = signal.signal(signal.SIGALRM, too_long)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, earlier)


@pytest.fixture
def places(tmp_path):
    """Give the workspace's folder, with links of every kind that lead out of it."""
    root, outside = tmp_path / "inside", tmp_path / "outside"
    for folder in (root / "src", root / ".git", root / "tests", outside):
        folder.mkdir(parents=True)
    for path in (outside / "secret", outside / "a.py", tmp_path / "secret"):
        path.write_text(SECRET)
    (root / "a.py").write_text("x = 1\n")
    (root / ".git" / "config").write_text("[core]\n")
    (root / "tests" / "test_a.py").write_text("assert True\n")
    for name, target in {
        "link": outside,
        "src/link": outside / "secret",
        "to_file": "../outside/secret",
        "chain": "chain_2",
        "chain_2": "src/link",
        "up": "..",
        "src/here": "..",
        "to_root": "/",
        "dangling": outside / "new",
        "dangling_folder": outside / "new_folder",
        "loop": "loop",
        "zero": "/dev/zero",
        "magic": "/proc/self/root",
    }.items():
        (root / name).symlink_to(target)
    return root


@pytest.fixture(params=[False, True], ids=["openat2", "walk"])
def workspace(request, places):
    with Workspace(places, ["tests/test_*.py", "conftest.py"], by_walk=request.param) as opened:
        yield opened


def everything(folder):
    """Give all that is in a folder: contents, targets of links, modes."""
    found = {}
    for parent, folders, names in os.walk(folder):
        for name in (*folders, *names):
            path = Path(parent, name)
            state = path.lstat()
            content = path.readlink() if path.is_symlink() else path.read_bytes() if path.is_file() else None
            found[str(path)] = (state.st_mode, state.st_nlink if path.is_file() else 0, content)
    return found


def calls_of(path):
    """Give every call that a path can be put into."""
    return {
        "list_dir": {"path": path},
        "read_file": {"path": path},
        "search": {"pattern": "secret", "path": path},
        "write_file": {"path": path, "content": "attacked"},
        "write_files": {"files": [{"path": "new", "content": "x"}, {"path": path, "content": "attacked"}]},
        "edit": {"path": path, "old": "secret", "new": "attacked", "all": True},
    }


WRITES = ("write_file", "write_files", "edit")
TOOLS = tuple(calls_of(""))


@pytest.fixture
def attack(workspace, places):
    """Try a path in each tool, and see that all refuse it, that nothing was read, and that nothing has changed anywhere."""

    def tried(path, tools=TOOLS):
        if isinstance(path, str):
            path = path.replace("{root}", str(places)).replace("{outside}", str(places.parent / "outside"))
        earlier = everything(places.parent)
        codes = set()
        for tool in tools:
            arguments = calls_of(path)[tool]
            for call in (workspace.apply, workspace.planned, workspace.diff):
                if call != workspace.apply and tool not in WRITES:
                    continue
                with pytest.raises(ToolError) as refused:
                    call(tool, arguments)
                codes.add(refused.value.code)
                assert SECRET not in str(refused.value)
                assert len(str(refused.value)) < 400
                assert str(refused.value).replace("\n", "").isprintable()
            assert workspace.fault(tool, arguments), tool
        assert everything(places.parent) == earlier
        return codes

    return tried


@pytest.mark.parametrize("path", ESCAPES, ids=lambda path: path[:40])
def test_paths_that_lead_out(attack, workspace, places, path):
    assert attack(path) == {"path_outside_workspace"}
    path = path.replace("{root}", str(places)).replace("{outside}", str(places.parent / "outside"))
    assert not workspace.exists(path)
    for call in (workspace.digest, workspace.read_bytes):
        with pytest.raises(ToolError):
            call(path)


@pytest.mark.parametrize("path", DAMAGED, ids=lambda path: ascii(path)[:40])
def test_paths_that_are_none(attack, path):
    assert attack(path) <= {"bad_path", "path_outside_workspace", "bad_arguments"}


@pytest.mark.parametrize("path", NAMES)
def test_names_that_only_look_dangerous_stay_inside(workspace, places, path):
    outside = everything(places.parent / "outside")
    with pytest.raises(ToolError, match="there is no"):
        workspace.read_file(path)
    workspace.write_file(path, "inside")
    assert workspace.read_file(path)["content"] == "inside"
    assert (places / path).resolve().is_relative_to(places)
    assert everything(places.parent / "outside") == outside
    assert sorted(each.name for each in places.parent.iterdir()) == ["inside", "outside", "secret"]


@pytest.mark.parametrize("path", PROTECTED, ids=ascii)
def test_what_is_protected_is_never_written(attack, path):
    assert attack(path, WRITES) == {"protected_path"}


@pytest.mark.parametrize("path", NOT_PRINTED, ids=ascii)
def test_names_that_do_not_print_are_not_made(attack, path):
    assert attack(path, ("write_file", "write_files")) == {"bad_path"}


def test_what_is_protected_may_be_read_and_is_not_searched(workspace, places):
    assert workspace.read_file(".git/config")["content"] == "[core]\n"
    assert workspace.search("core")["matches"] == []
    (places / "tests" / "other.py").write_text("")
    workspace.write_file("tests/other.py", "x")
    for path in (".gitignore", ".github/x.yml", ".dsarc", "agent_ledger.log.txt", "src/git/x"):
        workspace.write_file(path, "x")


def test_git_as_a_file_is_protected_too(workspace, places):
    shutil.rmtree(places / ".git")
    (places / ".git").write_text("gitdir: ../outside\n")
    for tool in WRITES:
        with pytest.raises(ToolError) as refused:
            workspace.apply(tool, calls_of(".git")[tool])
        assert refused.value.code == "protected_path"
    assert workspace.read_file(".git")["content"] == "gitdir: ../outside\n"


def test_links_are_listed_as_links_and_not_searched(workspace):
    listed = {entry["name"]: entry["kind"] for entry in workspace.list_dir()["entries"]}
    assert {listed[name] for name in ("link", "to_file", "up", "zero", "loop", "dangling")} == {"link"}
    assert workspace.search("secret")["matches"] == []
    assert workspace.search(".", is_regex=True)["matches"] == ["a.py:1: x = 1", "tests/test_a.py:1: assert True"]


# Files that are none


def test_pipes_and_sockets_hold_nothing_up(workspace, places, monkeypatch):
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
def test_devices_and_magic_links(by_walk):
    with Workspace(Path("/dev"), by_walk=by_walk) as devices:
        for name in ("zero", "null", "tty", "stdin", "fd/0"):
            with pytest.raises((ToolError, OSError)) as refused:
                devices.read_file(name)
            assert getattr(refused.value, "code", "") in ("not_a_file", "path_outside_workspace"), name
    with Workspace(Path("/proc/self"), by_walk=by_walk) as process:
        for name in ("root/etc/passwd", "cwd/pyproject.toml", "exe", "fd/0"):
            with pytest.raises(ToolError) as refused:
                process.read_file(name)
            assert refused.value.code == "path_outside_workspace", name


def test_a_hard_link_to_a_file_outside_is_not_written(attack, workspace, places):
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


def test_folders_too_deep_to_name_are_passed_over(workspace, places):
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
def test_an_expression_cannot_hold_up_who_asks(workspace, places, monkeypatch, pattern):
    monkeypatch.setattr("machines.coding.tools.searching._TIME_LIMIT_S", 1.0)
    (places / "trap").write_text("a" * 60 + "!\n" + "ab" * 60 + "!\n" + "x" * 60 + "\n")
    with pytest.raises(ToolError) as refused:
        workspace.search(pattern, is_regex=True)
    assert refused.value.code == "too_slow"


# Files that change meanwhile


def exchange():
    """Give what makes two names change places at once; skip where there is none."""
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "renameat2"):
        pytest.skip("no renameat2")
    return lambda one, other: libc.renameat2(-100, os.fsencode(one), -100, os.fsencode(other), 2)


@pytest.fixture
def swapping(places):
    """Have another process make a folder and a link to the folder outside change places, over and over."""
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
def test_a_folder_that_becomes_a_link_at_any_moment(workspace, places, tool):
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
def test_the_guard_raises_nothing_at_any_moment(places, by_walk):
    with Workspace(places, by_walk=by_walk) as opened:
        said = {bool(opened.fault("write_file", {"path": "folder/secret"})) for _ in range(1_000)}
    assert said <= {True, False}


@pytest.mark.parametrize("tool", WRITES)
def test_a_folder_that_becomes_a_link_after_it_was_planned(workspace, places, tool):
    (places / "folder").mkdir()
    (places / "folder" / "secret").write_text(SECRET)
    arguments = calls_of("folder/secret")[tool]
    planned = workspace.planned(tool, arguments)
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
    """Put a link where a folder or file is."""
    path.rename(path.with_name(f"{path.name} as it was"))
    path.symlink_to(target)


def test_a_folder_that_becomes_a_link_right_after_it_was_made(workspace, places):
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
def test_a_folder_that_becomes_a_link_while_it_is_written_to(workspace, places, call):
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


def test_a_file_that_becomes_a_link_right_before_it_is_replaced(workspace, places):
    outside = everything(places.parent / "outside")
    with before("rename", "a.py", lambda: swapped_for_a_link(places / "a.py", places.parent / "outside" / "secret")):
        workspace.write_file("a.py", "written")
    assert everything(places.parent / "outside") == outside
    assert not (places / "a.py").is_symlink()
    assert (places / "a.py").read_text() == "written"


def test_a_workspace_that_was_moved_is_still_the_one(workspace, places):
    moved = places.parent / "moved"
    places.rename(moved)
    shutil.copytree(places.parent / "outside", places)
    workspace.write_file("new", "x")
    assert workspace.read_file("a.py")["content"] == "x = 1\n"
    assert (moved / "new").read_text() == "x"
    assert sorted(each.name for each in places.iterdir()) == ["a.py", "secret"]
    assert os.path.samestat(os.fstat(workspace.fileno()), moved.stat())


def test_a_workspace_that_was_deleted_is_no_fault_of_the_call(workspace, places):
    shutil.rmtree(places)
    for path in ("a.py", "src/a.py"):
        for tool, arguments in calls_of(path).items():
            with pytest.raises((WorkspaceGoneError, ToolError)) as raised:
                workspace.apply(tool, arguments)
            if tool == "write_file":
                assert isinstance(raised.value, WorkspaceGoneError)
            assert isinstance(workspace.fault(tool, arguments), str)
    assert not places.exists()


def test_a_closed_workspace_opens_nothing(workspace):
    workspace.close()
    workspace.close()
    with pytest.raises(WorkspaceGoneError):
        workspace.read_file("a.py")
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


def test_both_ways_are_there_on_linux(places):
    ways = []
    for by_walk in (False, True):
        beneath = Beneath(places, by_walk=by_walk)
        ways.append(beneath.by_walk)
        beneath.close()
    assert ways[1]
    if sys.platform == "linux" and tuple(map(int, os.uname().release.split(".")[:2])) >= (5, 6):
        assert not ways[0]
