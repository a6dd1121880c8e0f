"""Leave that a person gives to `dsa code` is for one call, by its place, and for the files that its command names, as they were then."""

import pytest
from coding_typed import DONE, PLAN, calls, typed_in

LEFT, MUTATED = "open('left.txt', 'w').write('benign')\n", "open('left.txt', 'w').write('mutated')\n"
RUN = {"cmd": ["python", "job.py"]}


@pytest.fixture
def code(tmp_path):
    return typed_in(tmp_path)


@pytest.mark.parametrize(
    ("asked", "swapped"),
    [
        (RUN, "job.py"),
        ({"cmd": ["python", "./sub/../job.py"]}, "job.py"),
        ({"cmd": ["python", "job.py"], "cwd": "sub"}, "sub/job.py"),
        ({"cmd": ["python", "job.py", "--with=sub/job.py"]}, "sub/job.py"),
    ],
)
def test_a_script_that_was_swapped_is_not_run(code, tmp_path, asked, swapped):
    work = tmp_path / "work"
    (work / "sub").mkdir()
    for file in (work / "job.py", work / "sub" / "job.py"):
        file.write_text(LEFT)
    assert code("Do it", script=(PLAN, calls(("run_cmd", asked)), DONE)).returncode == 3
    (work / swapped).write_text(MUTATED)
    sent = code("last", "permitted", command="send")
    assert f"not run: {swapped} has changed since leave was asked for this command" in " ".join(sent.stdout.split())
    assert list(work.rglob("left.txt")) == []


def test_a_script_that_is_gone_or_new_is_not_run(code, tmp_path):
    work = tmp_path / "work"
    (work / "job.py").write_text(LEFT)
    asked = {"cmd": ["python", "job.py", "more.py"]}
    assert code("Do it", script=(PLAN, calls(("run_cmd", asked)), DONE)).returncode == 3
    (work / "more.py").write_text("")
    sent = code("last", "permitted", command="send")
    assert "not run: more.py has changed" in sent.stdout
    assert not (work / "left.txt").exists()


def test_what_has_not_changed_is_run_whatever_else_has(code, tmp_path):
    work = tmp_path / "work"
    (work / "job.py").write_text(LEFT)
    assert code("Do it", script=(PLAN, calls(("run_cmd", RUN)), DONE)).returncode == 3
    (work / "other.py").write_text("new")
    (work / "job.py").touch()
    assert code("last", "permitted", command="send").returncode == 0
    assert (work / "left.txt").read_text() == "benign"


def test_a_second_leave_for_one_call_lets_no_other_happen(code, tmp_path):
    work = tmp_path / "work"
    (work / "job.py").write_text("import sys\nopen(f'{len(sys.argv)}.txt', 'w')\n")
    asked = calls(("run_cmd", RUN), ("run_cmd", {"cmd": ["python", "job.py", "--delete-everything"]}))
    first = code("Do it", script=(PLAN, asked, DONE))
    (shown,) = [line.split()[5] for line in first.stdout.splitlines() if line.startswith("let it happen: dsa send")]
    assert code(shown, "permitted", command="send").returncode == 3
    again = code(shown, "permitted", command="send")
    assert (again.returncode, sorted(each.name for each in work.glob("*.txt"))) == (1, ["1.txt"])
    run, _, place = shown.partition("@")
    (told,) = [line for line in again.stderr.splitlines() if line.startswith("what is asked now is question")]
    assert f", not {place}: " in told
    assert f"look at it (dsa show {run}), and answer with dsa send {run}@" in told
    assert code(told.rpartition("dsa send ")[2].split()[0], "permitted", command="send").returncode == 0
    assert (work / "2.txt").exists()


def test_nobody_is_asked_for_an_edit_that_cannot_be_made(code, tmp_path):
    (tmp_path / "work" / "a.txt").write_text("one\n")
    edits = calls(
        ("edit", {"path": "a.txt", "old": "two", "new": "three"}),
        ("edit", {"path": "none.txt", "old": "x", "new": "y"}),
    )
    write = calls(("write_file", {"path": "b.txt", "content": "b\n"}))
    done = code("Do it", script=(PLAN, edits, write, DONE))
    assert done.returncode == 3
    assert "leave is asked for write_file:" in done.stdout
    assert "leave is asked for edit" not in done.stdout
    assert "no_such_file: there is no 'none.txt'" in done.stdout
    assert (tmp_path / "work" / "a.txt").read_text() == "one\n"
