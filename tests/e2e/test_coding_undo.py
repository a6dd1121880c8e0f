"""Changes of a run are shown and undone even if a call was cut off, and in hidden places: real kills, the real program."""

import signal
import subprocess
import sys
import time

import pytest
from coding_typed import DONE, FAILED, PLAN, WRITE, block, calls
from forked import DSA
from git_workspaces import git, make_submodule, make_work_tree

from dsa.edge.sandbox.command_sandbox import stop
from machines.coding.tools.command_runner import alone

#: The program, killed at a point of a call: after it changed files, before any of that is recorded.
KILLED = """
import os, signal, sys
from dsa.cli.main import main
from machines.coding.history import WorkspaceHistory
from machines.coding.tools import file_writer

def killed(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)

if "{where}" == "between":
    once = iter([True])
    step = file_writer._Steps.take_name
    file_writer._Steps.take_name = lambda self, staged: step(self, staged) if next(once, False) else killed()
else:
    WorkspaceHistory.end = killed
main()
"""
RUINS = "open('mine.txt', 'w').write('theirs')\nopen('new.txt', 'w').write('x')\nimport os; os.remove('gone.txt')\nopen('begun', 'w')\nimport time; time.sleep({s})\n"
TREE = {"mine.txt": "mine\n", "gone.txt": "still here\n"}


@pytest.fixture
def work(tmp_path):
    folder = tmp_path / "work"
    folder.mkdir()
    for name, text in TREE.items():
        (folder / name).write_text(text)
    return folder


def typed(tmp_path, *arguments, program=DSA, **options):
    return subprocess.Popen(
        [*program, *arguments], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options
    )


def code(tmp_path, *script, program=DSA, more=()):
    (tmp_path / "script.md").write_text("".join(map(block, (PLAN, *script))))
    asked = ["code", "Do it", "--model", "scripted:script.md", "-w", "work", "--mode", "full-auto", *more]
    return typed(tmp_path, *asked, program=program)


def ended(process, code=0):
    told, _ = process.communicate(timeout=120)
    assert process.returncode == code, told
    return told


def tree(folder):
    return {
        str(path.relative_to(folder)): path.read_text()
        for path in folder.rglob("*")
        if path.is_file() and path.name != "agent_ledger.log" and ".agent_context" not in path.parts
    }


def until(there):
    end = time.monotonic() + 60
    while not there():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.parametrize("is_taken_up", [False, True], ids=["at once", "taken up"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_changes_of_a_command_that_was_cut_off_are_shown_and_undone(tmp_path, work, number, is_taken_up):
    (work / "ruins.py").write_text(RUINS.format(s=600))
    before = tree(work)
    script = calls(("run_cmd", {"cmd": ["python", "ruins.py"]})), FAILED
    process = code(tmp_path, *script)
    until((work / "begun").exists)
    process.send_signal(number)
    ended(process, 130 if number != signal.SIGKILL else -number)
    if is_taken_up:
        (tmp_path / "script.md").write_text("".join(map(block, (PLAN, *script, FAILED))))
        told = ended(typed(tmp_path, "code", "--resume", "last"), 3)
        assert {"  changed: mine.txt", "  new: new.txt", "  removed: gone.txt"} <= set(told.splitlines()), told
    shown = ended(typed(tmp_path, "show", "last", "--diff"))
    assert {"-mine", "+theirs", "-still here"} <= set(shown.splitlines()), shown
    told = ended(typed(tmp_path, "undo", "last"))
    assert {"restored: mine.txt", "restored: gone.txt", "removed: new.txt"} <= set(told.splitlines())
    assert tree(work) == before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_command_is_cleaned_up_and_undo_spares_later_files(tmp_path, work, number):
    planting = "import os; os.mkdir('sub'); open('sub/dsa.toml', 'w').write('[code]'); os.mkdir('__pycache__')\n"
    (work / "ruins.py").write_text(planting + RUINS.format(s=600))
    process = code(tmp_path, calls(("run_cmd", {"cmd": ["python", "ruins.py"]})), FAILED)
    until((work / "begun").exists)
    process.send_signal(number)
    ended(process, 130)
    assert not (work / "sub" / "dsa.toml").exists()
    assert not (work / "__pycache__").exists()
    (work / "later.txt").write_text("mine\n")
    ended(typed(tmp_path, "undo", "last"))
    assert (work / "later.txt").exists()
    assert (work / "mine.txt").read_text() == TREE["mine.txt"]


@pytest.mark.parametrize("where", ["between", "behind"])
@pytest.mark.parametrize("is_taken_up", [False, True], ids=["at once", "taken up"])
def test_files_written_by_a_killed_call_are_undone_too(tmp_path, work, where, is_taken_up):
    before = tree(work)
    files = [{"path": name, "content": "theirs\n"} for name in ("mine.txt", "new.txt", "gone.txt")]
    (tmp_path / "killed.py").write_text(KILLED.format(where=where))
    script = calls(("write_files", {"files": files})), DONE
    ended(code(tmp_path, *script, program=(sys.executable, "killed.py")), -signal.SIGKILL)
    assert tree(work) != before
    if is_taken_up:
        told = ended(typed(tmp_path, "code", "--resume", "last"))
        assert "2 calls" not in told
        assert "1 call of tools, 3 files" in told
        assert set(tree(work).values()) == {"theirs\n"}
    ended(typed(tmp_path, "undo", "last"))
    assert tree(work) == before


HIDDEN = [".env", "node_modules/i.js", "env/lib/x.py", "out/made.txt"]


#: Each path once, alternately existing or new; the other case in a full run.
MADE = [
    pytest.param(was_there, path, marks=[] if place % 2 == was_there else pytest.mark.full)
    for place, path in enumerate(HIDDEN)
    for was_there in (True, False)
]


@pytest.mark.parametrize(("was_there", "path"), MADE)
def test_files_the_history_ignores_are_shown_and_undone_if_a_call_names_them(tmp_path, work, path, was_there):
    (work / ".gitignore").write_text(".env\nout/\n")
    (work / "env").mkdir()
    (work / "env" / "pyvenv.cfg").touch()
    (work / "env" / "many.py").write_text("not looked at")
    if was_there:
        (work / path).parent.mkdir(parents=True, exist_ok=True)
        (work / path).write_text("mine\n")
    before = tree(work)
    writes = calls(("write_file", {"path": path, "content": "theirs\n"}))
    looks = calls(("run_cmd", {"cmd": ["python", "--version"]}))
    told = ended(code(tmp_path, writes, looks, calls(("edit", {"path": path, "old": "theirs", "new": "ours"})), DONE))
    assert f"  {'changed' if was_there else 'new'}: {path}" in told.splitlines()
    shown = ended(typed(tmp_path, "show", "last", "--diff"))
    assert "+ours" in shown
    assert ("-mine" in shown) == was_there
    assert "many.py" not in shown
    ended(typed(tmp_path, "undo", "last"))
    assert tree(work) == before


@pytest.mark.parametrize("make", [make_submodule, make_work_tree])
def test_workspace_whose_git_entry_is_a_file_works_and_is_undone(tmp_path, make):
    """A submodule, and an additional work tree: git, commands and the history work there, and `.git` is unchanged."""
    work = make(tmp_path)
    folder = str(work.relative_to(tmp_path))
    (work / "make.py").write_text("open('made.txt', 'w').write('x')\nopen('.git', 'a').write('x')\n")
    (tmp_path / "dsa.toml").write_text("[code]\ncommit = true\n")
    before = tree(work)
    edits = calls(
        ("edit", {"path": "a.py", "old": "1", "new": "2"}), ("write_file", {"path": "sub/b.py", "content": "b\n"})
    )
    runs = calls(("run_cmd", {"cmd": ["python", "make.py"]}), ("git_status", {}), ("git_commit", {"message": "all"}))
    (tmp_path / "script.md").write_text("".join(map(block, (PLAN, edits, runs, DONE))))
    asked = ["code", "Do it", "--model", "scripted:script.md", "-w", folder, "--mode", "full-auto"]
    told = ended(typed(tmp_path, *asked))
    assert {"  changed: a.py", "  new: made.txt"} <= set(told.splitlines()), told
    assert git(work, "show", "--name-only", "--format=%s", "HEAD").split() == ["all", "a.py", "made.txt", "sub/b.py"]
    assert "+2" in ended(typed(tmp_path, "show", "last", "--diff"))
    told = ended(typed(tmp_path, "undo", "last"))
    assert {"restored: a.py", "removed: made.txt", "removed: sub/b.py"} <= set(told.splitlines()), told
    assert tree(work) == before


def test_written_file_hidden_by_a_new_gitignore_is_undone(tmp_path, work):
    before = tree(work)
    hides = calls(("write_file", {"path": ".gitignore", "content": "*\n"}))
    writes = calls(("write_file", {"path": "evil.py", "content": "x\n"}))
    assert "2 files" in ended(code(tmp_path, hides, writes, DONE))
    ended(typed(tmp_path, "undo", "last"))
    assert tree(work) == before


def test_change_of_a_hidden_file_restarts_the_count_of_a_command(tmp_path, work):
    (work / ".gitignore").write_text("local.py\n")
    (work / "run.py").write_text("print(open('local.py').read() if __import__('os').path.exists('local.py') else '')\n")
    runs = calls(("run_cmd", {"cmd": ["python", "run.py"]}))
    writes = [calls(("write_file", {"path": "local.py", "content": f"{number}\n"})) for number in range(3)]
    told = ended(code(tmp_path, runs, writes[0], runs, writes[1], runs, writes[2], runs, DONE))
    assert "call_looping" not in told


def test_diff_of_an_active_run_leaves_out_the_running_command(tmp_path, work):
    (work / "ruins.py").write_text(RUINS.format(s=600))
    process = code(tmp_path, WRITE, calls(("run_cmd", {"cmd": ["python", "ruins.py"]})))
    until((work / "begun").exists)
    shown = ended(typed(tmp_path, "show", "last", "--diff"))
    assert "+one" in shown
    assert "theirs" not in shown
    process.kill()
    ended(process, -signal.SIGKILL)
    assert "theirs" in ended(typed(tmp_path, "show", "last", "--diff"))


#: The program, with a limit on the number of files in a workspace.
BOUNDED = "from machines.coding.history import workspace_scan; workspace_scan._MOST = {most}; from dsa.cli.main import main; main()"


@pytest.mark.parametrize("most", [1_000, pytest.param(100_000, marks=pytest.mark.full)])
def test_workspace_with_too_many_files_is_undone_once_they_are_gone(tmp_path, work, most):
    program = [sys.executable, "-c", BOUNDED.format(most=most)] if most < 100_000 else DSA
    (work / "many.py").write_text(
        f"import os\nopen('mine.txt', 'w').write('theirs')\nos.mkdir('many')\nfor n in range({most + 1}): os.symlink('x', f'many/{{n}}')\n"
    )
    before = tree(work)
    told = ended(code(tmp_path, calls(("run_cmd", {"cmd": ["python", "many.py"]})), DONE, program=program), 3)
    assert f"more than {most:,} files" in told
    assert f"more than {most:,} files" in ended(typed(tmp_path, "undo", "last", program=program), 2)
    subprocess.run(["rm", "-r", work / "many"], check=True)
    assert "restored: mine.txt" in ended(typed(tmp_path, "undo", "last"))
    assert tree(work) == before


def test_undo_waits_for_calls_of_other_runs_in_the_folder(tmp_path, work):
    ended(code(tmp_path, WRITE, DONE))
    with stop() as never, alone(work, never):
        waiting = typed(tmp_path, "undo", "last")
        with pytest.raises(subprocess.TimeoutExpired):
            waiting.wait(2)
        assert (work / "a.txt").exists()
    assert "removed: a.txt" in ended(waiting)


def test_ignored_file_is_not_reported_as_new_and_its_loss_is_reported(tmp_path, work):
    (work / ".gitignore").write_text("data.txt\n")
    (work / "data.txt").write_text("precious\n")
    (work / "rm.py").write_text("import os; os.remove('data.txt')\n")
    writes = ("write_file", {"path": ".gitignore", "content": "*.log\n"})
    told = ended(code(tmp_path, calls(writes, ("run_cmd", {"cmd": ["python", "rm.py"]})), DONE))
    lines = [line.strip() for line in told.splitlines()]
    assert "new: data.txt" not in lines
    assert "removed: data.txt" in lines
    gone = "missing, and an undo cannot restore it, because a .gitignore named it when the run began: data.txt"
    assert gone in lines
    undone = ended(typed(tmp_path, "undo", "last"), 1).splitlines()
    assert undone == [
        "restored: .gitignore",
        "left alone: data.txt (the file is missing, and its content is not stored, because a .gitignore named it when the run began)",
        "not removed: .agent_context, agent_ledger.log; they describe the last run here for people, and no program needs them",
    ]
    assert sorted(path.name for path in work.iterdir()) == [
        ".agent_context", ".gitignore", "agent_ledger.log", "gone.txt", "mine.txt", "rm.py",
    ]  # fmt: skip
