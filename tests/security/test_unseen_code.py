"""Files that a command leaves, that would run later, and that no one is shown: our settings below the root, files that patterns protect, bytecode,
names that no diff has, changes to installed programs. Files and commands are real.
"""

import os
import subprocess
import sys

import pytest
from conftest import NOT_TESTED

from dsa.edge.sandbox.command_sandbox import probe_commands
from machines.coding.tools.command_runner import ProtectedState, run
from machines.coding.tools.program_rules import Rules

LEAVES = r"""
import os, py_compile, shutil
def write(path, text="x"):
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(path, "w") as file:
        file.write(text)
def bytecode(source, path):
    write("source.py", source)
    py_compile.compile("source.py", cfile=path, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    os.remove("source.py")
def tried(act, *arguments):
    try:
        act(*arguments)
        print("DID", act.__name__, *arguments)
    except OSError as error:
        print(error.strerror)
write("sub/dsa.toml", "[code.mcp.x]\ncommand = ['touch', 'RAN']\n")
write("new/deep/DSA.toml")
os.symlink("notes.txt", "tests/dsa.toml")
write("tests/acceptance/conftest.py")
os.mkdir("tests/acceptance/more"); write("tests/acceptance/more/test_b.py")
shutil.move("free.py", "tests/acceptance/free.py")
tried(write, "tests/acceptance/test_a.py")
tried(write, "old/dsa.toml")
tried(os.rename, "old", "older")
bytecode("print('EVIL')", "__pycache__/mod.cpython-311.pyc")
bytecode("print('EVIL')", "pkg/__pycache__/known.cpython-311.pyc")
bytecode("print('EVIL')", "sourceless.pyc")
write("pkg/__pycache__/evil.py")
write(".dsa~left"); write(".dsa~folder/evil.py"); write(".dsa~old/evil.py")
write("pkg/x__pycache__/fine.py"); write("notes.dsa~"); write("dsa.toml.example")
"""
REMOVED = [
    ".dsa~folder", ".dsa~left", ".dsa~old/evil.py", "__pycache__", "new/deep/DSA.toml", "pkg/__pycache__/evil.py", "pkg/__pycache__/known.cpython-311.pyc",
    "sourceless.pyc", "sub/dsa.toml", "tests/acceptance/conftest.py", "tests/acceptance/free.py", "tests/acceptance/more", "tests/dsa.toml",
]  # fmt: skip
PATTERNS = ("tests/acceptance/*", "dsa.toml")


@pytest.fixture
def workspace(tmp_path):
    if why := probe_commands().fault:
        pytest.skip(f"{NOT_TESTED} in the sandbox for commands: {why}")
    for name in (
        "tests/acceptance/test_a.py", "old/dsa.toml", "pkg/__pycache__/known.cpython-311.pyc", "pkg/__pycache__/same.pyc", ".dsa~old/kept", "free.py",
        ".venv/bin/tool", ".venv/lib/x.py", "web/node_modules/lib/index.js", "env/pyvenv.cfg", "env/bin/tool", ".tox/x.py",
    ):  # fmt: skip
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("as it was")
    return tmp_path


def ran_in(workspace, code, protected=PATTERNS):
    return run(("python", "-c", code), root=workspace, rules=Rules(code=True), protected_patterns=protected)


def test_hidden_files_that_could_run_later_are_removed_and_reported(workspace):
    ran = ran_in(workspace, LEAVES)
    assert ran.output.splitlines() == ["Read-only file system"] * 2 + ["Device or resource busy"], ran.output
    assert sorted(ran.removed_paths) == REMOVED
    left = {str(path.relative_to(workspace)) for path in workspace.rglob("*") if path.is_file()}
    assert left >= {
        "pkg/x__pycache__/fine.py",
        "notes.dsa~",
        "dsa.toml.example",
        "pkg/__pycache__/same.pyc",
        ".dsa~old/kept",
    }
    assert not left & set(REMOVED)
    assert (workspace / "tests/acceptance/test_a.py").read_text() == "as it was"
    assert ran.changed_folders == ()
    again = ran_in(workspace, "pass")
    assert (again.removed_paths, again.changed_folders) == ((), ())


def test_renamed_link_with_a_protected_name_is_restored(tmp_path):
    """Unlike a file, a link is not mounted. Its inode number proves nothing: once it is removed, the next file may get the number."""
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "link.py").symlink_to("../other.py")
    (tmp_path / "other.py").write_text("x")
    before = ProtectedState(tmp_path, ["tests/*"])
    number = (tmp_path / "tests" / "link.py").lstat().st_ino
    (tmp_path / "tests" / "link.py").rename(tmp_path / "tests" / "conftest.py")
    assert (tmp_path / "tests" / "conftest.py").lstat().st_ino == number
    assert sorted(before.restore()) == ["tests/conftest.py", "tests/link.py"]
    assert [(each.name, str(each.readlink())) for each in (tmp_path / "tests").iterdir()] == [
        ("link.py", "../other.py")
    ]


CHANGES = {
    "overwritten": "open('{0}', 'w').write('EVIL')",
    "overwritten with the same times": "import os; at = os.stat('{0}'); open('{0}', 'w').write('EVIL'); os.utime('{0}', ns=(at.st_atime_ns, at.st_mtime_ns))",
    "new file beside it": "import os; open(os.path.dirname('{0}') + '/other', 'w')",
    "deleted": "import os; os.unlink('{0}')",
    "made executable": "import os; os.chmod('{0}', 0o755)",
}


@pytest.mark.parametrize("how", CHANGES)
def test_changed_installed_programs_are_reported(workspace, how):
    for name, folder in (
        (".venv/bin/tool", ".venv"), ("web/node_modules/lib/index.js", "web/node_modules"), ("env/bin/tool", "env"), (".tox/x.py", ".tox"),
    ):  # fmt: skip
        ran = ran_in(workspace, CHANGES[how].format(name))
        assert (ran.code, ran.removed_paths, ran.changed_folders) == (0, (), (folder,)), (name, ran.output)


def test_change_in_an_installed_folder_is_reported_beside_a_removal_in_it(workspace):
    ran = ran_in(workspace, "import os; os.makedirs('made/.venv/x/.git/y'); open('made/.venv/z.py', 'w')")
    assert (ran.removed_paths, ran.changed_folders) == (("made/.venv/x/.git",), ("made/.venv",))


def test_contents_of_a_removed_folder_are_not_reported_again(tmp_path):
    before = ProtectedState(tmp_path, ())
    for name in ("__pycache__/in/.git", "__pycache__/in/HEAD", "__pycache__-/.git"):
        (tmp_path / name).mkdir(parents=True)
    assert before.restore() == ("__pycache__", "__pycache__-/.git")


def test_bytecode_left_by_a_command_is_not_run(workspace):
    (workspace / "mod.py").write_text("print('fine')")
    cached = f"__pycache__/mod.{sys.implementation.cache_tag}.pyc"
    ran = ran_in(workspace, LEAVES.replace("__pycache__/mod.cpython-311.pyc", cached))
    assert "__pycache__" in ran.removed_paths
    done = subprocess.run(
        [sys.executable, "-c", "import mod"], cwd=workspace, capture_output=True, text=True, check=True, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    )  # fmt: skip
    assert done.stdout == "fine\n"
