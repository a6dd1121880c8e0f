"""A person's permission for `dsa code` covers one call, by its place, and the files of its command as they were at that time."""

import pytest
from coding_typed import DONE, PLAN, calls, typed_in

from machines.coding.tools.program_rules import executed_files

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
def test_swapped_script_is_not_run(code, tmp_path, asked, swapped):
    work = tmp_path / "work"
    (work / "sub").mkdir()
    for file in (work / "job.py", work / "sub" / "job.py"):
        file.write_text(LEFT)
    assert code("Do it", script=(PLAN, calls(("run_cmd", asked)), DONE)).returncode == 3
    (work / swapped).write_text(MUTATED)
    sent = code("last", "permitted", command="send")
    assert f"not run: {swapped} has changed since the user was asked about this command" in " ".join(
        sent.stdout.split()
    )
    assert list(work.rglob("left.txt")) == []


PROGRAMS = "".join(f'[code.commands.programs.{name}]\narguments = "any"\n' for name in ("bash", "make", "node", "npm"))
TEST = "def test_it():\n    assert True\n"


#: Commands, a file that each one executes without naming it, and the name by which that file is listed.
READ = [
    (["python", "-m", "job"], "job.py", "job.py"),
    (["python", "-s", "-mjob"], "job.py", "job.py"),
    (["python", "-m", "pack"], "pack/__main__.py", "pack/__main__.py"),
    (["python", "-m", "pack.inner"], "pack/__init__.py", "pack/__init__.py"),
    (["python", "-m", "pack.inner"], "pack/inner.py", "pack/inner.py"),
    (["python", "pack"], "pack/__main__.py", "pack/__main__.py"),
    (["python", "link.py"], "job.py", "link.py"),
    (["pytest", "-q", "tests"], "tests/deep/test_b.py", "tests/*.py"),
    (["pytest", "-q", "tests"], "tests/helper.py", "tests/*.py"),
    (["pytest", "-q"], "tests/test_a.py", "*.py"),
    (["pytest", "tests/test_a.py::test_it"], "tests/test_a.py", "tests/test_a.py"),
    (["pytest", "tests/test_a.py"], "conftest.py", "conftest.py"),
    (["pytest", "tests/test_a.py"], "tests/conftest.py", "tests/conftest.py"),
    (["python", "-m", "pytest", "tests/deep"], "tests/conftest.py", "tests/conftest.py"),
    (["python", "-m", "unittest", "tests.test_a"], "tests/test_a.py", "tests/test_a.py"),
    (["python", "-m", "unittest", "discover", "tests"], "tests/test_a.py", "tests/*.py"),
    (["bash", "job.sh"], "job.sh", "job.sh"),
    (["make", "all"], "Makefile", "Makefile"),
    (["make", "-C", "pack", "all"], "pack/Makefile", "pack/Makefile"),
    (["make", "-frules.mk"], "rules.mk", "rules.mk"),
    (["node", "job.js"], "job.js", "job.js"),
    (["node", "pack"], "pack/index.js", "pack/index.js"),
    (["npm", "run", "build"], "package.json", "package.json"),
    (["npm", "--prefix", "pack", "run", "build"], "pack/package.json", "pack/package.json"),
]  # fmt: skip
#: One command for each way to find implicitly read files; `make test-full` runs all commands.
TYPED = (2, 4, 6, 8, 12, 13, 16, 18, 23)


def write_programs(work):
    for folder in ("pack", "tests/deep"):
        (work / folder).mkdir(parents=True)
    for name in (
        "pack/__init__.py",
        "pack/__main__.py",
        "pack/inner.py",
        "job.py",
        "conftest.py",
        "tests/conftest.py",
        "tests/helper.py",
    ):
        (work / name).write_text("")
    for name in ("tests/test_a.py", "tests/deep/test_b.py"):
        (work / name).write_text(TEST)
    for name in (
        "job.sh",
        "job.js",
        "Makefile",
        "pack/Makefile",
        "rules.mk",
        "package.json",
        "pack/package.json",
        "pack/index.js",
    ):
        (work / name).write_text("\n")
    (work / "link.py").symlink_to("job.py")


@pytest.mark.parametrize(("command", "swapped", "named"), READ)
def test_implicitly_read_files_are_among_the_files_of_a_command(tmp_path, command, swapped, named):
    write_programs(tmp_path)
    before = executed_files(command, tmp_path, ".")
    (tmp_path / swapped).write_text(MUTATED)
    after = executed_files(command, tmp_path, ".")
    assert before[named] != after[named]


@pytest.mark.parametrize(
    ("command", "swapped", "named"),
    [row if place in TYPED else pytest.param(*row, marks=pytest.mark.full) for place, row in enumerate(READ)],
)
def test_implicitly_read_files_are_bound_to_the_permission_too(code, tmp_path, command, swapped, named):
    work = tmp_path / "work"
    write_programs(work)
    (tmp_path / "dsa.toml").write_text(PROGRAMS)
    assert code("Do it", script=(PLAN, calls(("run_cmd", {"cmd": command})), DONE)).returncode == 3
    (work / swapped).write_text(MUTATED)
    sent = code("last", "permitted", command="send")
    told = " ".join(sent.stdout.split())
    assert "not run: " in told
    assert named in told.partition("not run: ")[2].partition(" since the user was asked")[0].replace(",", "").split()
    assert not (work / "left.txt").exists()


@pytest.mark.parametrize("command", [["./job.sh"], ["bash", "job.sh"], ["sub/job"]])
def test_script_of_the_workspace_cannot_be_run_as_a_program(code, tmp_path, command):
    (tmp_path / "work" / "job.sh").write_text("touch left.txt\n")
    (tmp_path / "work" / "job.sh").chmod(0o755)
    done = code("Do it", script=(PLAN, calls(("run_cmd", {"cmd": command})), DONE, DONE))
    assert "[command_not_allowed]" in done.stdout
    assert "needs permission" not in done.stdout
    assert not (tmp_path / "work" / "left.txt").exists()


def test_module_created_after_permission_was_requested_is_not_run(code, tmp_path):
    work = tmp_path / "work"
    (work / "pack").mkdir()
    (work / "pack" / "__main__.py").write_text(LEFT)
    assert code("Do it", script=(PLAN, calls(("run_cmd", {"cmd": ["python", "-m", "pack"]})), DONE)).returncode == 3
    (work / "pack" / "__init__.py").write_text(MUTATED)
    assert "not run: pack/__init__.py has changed" in code("last", "permitted", command="send").stdout
    assert not (work / "left.txt").exists()


def test_place_printed_after_a_refusal_is_that_of_the_question(code, tmp_path):
    (tmp_path / "work" / "job.py").write_text(LEFT)
    first = code("Do it", script=(PLAN, calls(("run_cmd", RUN)), DONE))
    (place,) = [
        line.split()[6] for line in first.stdout.splitlines() if line.startswith("to allow this call: dsa send")
    ]
    again = code(f"{place.partition('@')[0]}@1", "permitted", command="send")
    assert again.returncode == 1
    assert f"to allow this call: dsa send {place} permitted" in again.stdout
    assert code(place, "permitted", command="send").returncode == 0


def test_command_naming_a_file_created_meanwhile_is_not_run(code, tmp_path):
    work = tmp_path / "work"
    (work / "job.py").write_text(LEFT)
    asked = {"cmd": ["python", "job.py", "more.py"]}
    assert code("Do it", script=(PLAN, calls(("run_cmd", asked)), DONE)).returncode == 3
    (work / "more.py").write_text("")
    sent = code("last", "permitted", command="send")
    assert "not run: more.py has changed" in sent.stdout
    assert not (work / "left.txt").exists()


def test_unchanged_script_is_run_even_if_other_files_change(code, tmp_path):
    work = tmp_path / "work"
    (work / "job.py").write_text(LEFT)
    assert code("Do it", script=(PLAN, calls(("run_cmd", RUN)), DONE)).returncode == 3
    (work / "other.py").write_text("new")
    (work / "job.py").touch()
    assert code("last", "permitted", command="send").returncode == 0
    assert (work / "left.txt").read_text() == "benign"


def test_second_permission_for_one_call_does_not_permit_another(code, tmp_path):
    work = tmp_path / "work"
    (work / "job.py").write_text("import sys\nopen(f'{len(sys.argv)}.txt', 'w')\n")
    asked = calls(("run_cmd", RUN), ("run_cmd", {"cmd": ["python", "job.py", "--delete-everything"]}))
    first = code("Do it", script=(PLAN, asked, DONE))
    (shown,) = [
        line.split()[6] for line in first.stdout.splitlines() if line.startswith("to allow this call: dsa send")
    ]
    assert code(shown, "permitted", command="send").returncode == 3
    again = code(shown, "permitted", command="send")
    assert (again.returncode, sorted(each.name for each in work.glob("*.txt"))) == (1, ["1.txt"])
    run, _, place = shown.partition("@")
    (told,) = [line for line in again.stderr.splitlines() if line.startswith("the run asks question")]
    assert f", not {place}: " in told
    assert f"look at it (dsa show {run}), and answer with dsa send {run}@" in told
    assert code(told.rpartition("dsa send ")[2].split()[0], "permitted", command="send").returncode == 0
    assert (work / "2.txt").exists()


def test_impossible_edit_fails_without_asking_for_permission(code, tmp_path):
    (tmp_path / "work" / "a.txt").write_text("one\n")
    edits = calls(
        ("edit", {"path": "a.txt", "old": "two", "new": "three"}),
        ("edit", {"path": "none.txt", "old": "x", "new": "y"}),
    )
    write = calls(("write_file", {"path": "b.txt", "content": "b\n"}))
    done = code("Do it", script=(PLAN, edits, write, DONE))
    assert done.returncode == 3
    assert "write_file needs permission:" in done.stdout
    assert "edit needs permission" not in done.stdout
    assert "no_such_file: there is no 'none.txt'" in done.stdout
    assert (tmp_path / "work" / "a.txt").read_text() == "one\n"
