"""Paths and links that are meant to lead the file tools out of the workspace, or to write what is protected."""

import shutil

import pytest
from attacked_workspaces import WRITES, calls_of, everything
from each_row import each_row

from dsa.errors import ToolError

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


#: They look as if they led out, but they are ordinary names: nothing decodes them.
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
    "HEAD",
    "src/HEAD",
    "src/deep/head",
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


@each_row("path", ESCAPES, ids=lambda path: path[:40])
def test_paths_that_lead_out_are_refused(attack, workspace, places, path):
    assert attack(path) == {"path_outside_workspace"}
    path = path.replace("{root}", str(places)).replace("{outside}", str(places.parent / "outside"))
    assert not workspace.exists(path)
    for call in (workspace.digest, workspace.read_bytes):
        with pytest.raises(ToolError):
            call(path)


@each_row("path", DAMAGED, ids=lambda path: ascii(path)[:40])
def test_invalid_paths_are_refused(attack, path):
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


@each_row("path", PROTECTED, ids=ascii)
def test_protected_paths_are_never_written(attack, path):
    assert attack(path, WRITES) == {"protected_path"}


@each_row("path", NOT_PRINTED, ids=ascii)
def test_unprintable_names_are_not_created(attack, path):
    assert attack(path, ("write_file", "write_files")) == {"bad_path"}


def test_protected_files_can_be_read_but_are_not_searched(workspace, places):
    assert workspace.read_file(".git/config")["content"] == "[core]\n"
    assert workspace.search("core")["matches"] == []
    (places / "tests" / "other.py").write_text("")
    workspace.write_file("tests/other.py", "x")
    for path in (".gitignore", ".github/x.yml", ".dsarc", "agent_ledger.log.txt", "src/git/x"):
        workspace.write_file(path, "x")


def test_git_file_is_protected_too(workspace, places):
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
