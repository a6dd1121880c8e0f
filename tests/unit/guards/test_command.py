"""Programs that judge texts, on every rung of the sandbox that this machine has."""

import os
import resource
import stat
import sys
from pathlib import Path

import pytest
from conftest import NOT_TESTED
from each_row import each_row

from dsa.edge.sandbox import RUNGS, SandboxError, probe
from dsa.errors import BindingError
from dsa.guards import CommandGuard, build_guard
from dsa.guards.feedback import MOST_CHARACTERS, MOST_LINES
from dsa.lang import loads
from dsa.runtime.content import Artifact


@pytest.fixture(params=RUNGS)
def rung(request):
    """Each rung that this machine has."""
    if probe(request.param).fault:
        pytest.skip(f"{NOT_TESTED} on the sandbox's rung '{request.param}': {probe(request.param).fault}")
    return request.param


def _python_is_reachable():
    folders = Path(sys.executable).resolve().parents
    return os.geteuid() != 0 or all(folder.stat().st_mode & stat.S_IXOTH for folder in folders)


def judge(text, command="sh", **options):
    result = CommandGuard(command, **options).validate(Artifact(text))
    assert not result.fatal
    return result


def test_exit_code_decides_and_output_is_the_feedback(rung):
    passed = judge("echo fine", rung=rung)
    assert (passed.passed, passed.feedback) == (True, "sh ended with 0 (trust: cooperative).")
    failed = judge("echo out; echo err >&2; exit 3", rung=rung)
    assert (failed.passed, failed.feedback) == (False, "sh ended with 3.\nout\nerr")


def test_text_arrives_in_a_file_or_on_standard_input(rung):
    assert judge("abc\n", "grep -qx abc in/text.txt", file="in/text.txt", rung=rung).passed
    assert judge("abc\n", "grep -qx abc", rung=rung).passed
    assert not judge("abd\n", "grep -qx abc", rung=rung).passed
    listed = judge("x", "sh -c 'ls -A; exit 1'", rung=rung)
    assert listed.feedback == "sh ended with 1."  # what was standard input is no file


def test_text_can_be_taken_out_of_a_fence():
    reply = "Here:\n```sh\nexit 0\n```\n```python\nprint(1)\n```\n"
    assert judge(reply, fence="sh").passed
    assert judge(reply, "grep -q print", fence="python").passed
    assert not judge(reply).passed


def test_program_sees_neither_the_environment_nor_other_files(rung, monkeypatch, tmp_path):
    if rung == "limits":
        pytest.skip("this rung hides no files")
    monkeypatch.setenv("SECRET_KEY", "s3cret")
    (tmp_path / "other").write_text("other")
    told = judge(f"env; cat {tmp_path}/other; exit 1", rung=rung).feedback
    assert "s3cret" not in told
    assert "other\n" not in told.replace("/other", "")
    assert sorted(line.partition("=")[0] for line in told.splitlines() if "=" in line and line[0].isupper()) == [
        "HOME", "LC_ALL", "PATH", "PWD", "TMPDIR",
    ]  # fmt: skip


def test_files_of_the_option_read_are_available_and_read_only(rung, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for folder in (tmp_path, *tmp_path.parents):
        if not folder.stat().st_mode & stat.S_IXOTH and rung in ("landlock", "limits") and os.geteuid() == 0:
            pytest.skip("another user cannot come here")
    (tmp_path / "checks").mkdir()
    (tmp_path / "checks" / "run.sh").write_text("grep -q good text\n")
    options = {"file": "text", "read": ("checks",), "rung": rung}
    assert judge("good", "sh checks/run.sh", **options).passed
    assert not judge("bad", "sh checks/run.sh", **options).passed
    assert judge("x", f"sh -c 'test -f {tmp_path}/checks/run.sh'", file="text", read=(str(tmp_path / "checks"),)).passed
    if rung != "limits":
        judge("x", "sh -c 'echo 1 > checks/run.sh; echo 1 > checks/new'", **options)
        assert (tmp_path / "checks" / "run.sh").read_text() == "grep -q good text\n"
        assert not (tmp_path / "checks" / "new").exists()


def test_program_that_takes_too_long_is_killed_with_its_children(rung):
    result = judge("sleep 600 & sleep 600", timeout_s=0.3, rung=rung)
    assert result.feedback == "sh did not end within 0.3 s."


def test_flood_of_output_is_cut_to_its_beginning_and_end():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    said = judge("echo begin; head -c 300000000 /dev/zero | tr '\\0' x; echo; echo end; exit 1", timeout_s=60).feedback
    assert said.startswith("sh ended with 1.\nbegin\nxxx")
    assert said.endswith("...\nend")
    assert len(said) <= MOST_CHARACTERS
    assert len(said.split("\n")) <= MOST_LINES
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000  # kB


@pytest.mark.parametrize("signal", ["SEGV", "TERM", "KILL"])
def test_signal_is_named(rung, signal):
    assert judge(f"kill -{signal} $$; exit 0", rung=rung).feedback.startswith(f"sh was killed (SIG{signal})")


def test_processor_time_is_bounded_and_the_limit_is_reported(rung):
    code = "import signal\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass\n"
    if rung in ("landlock", "limits") and not _python_is_reachable():
        pytest.skip("another user cannot reach this Python")
    said = judge(code, "python x.py", file="x.py", timeout_s=1.4, rung=rung).feedback
    assert said in {"python used more than 1 s of processor time.", "python did not end within 1.4 s."}


def test_python_is_the_interpreter_that_runs_the_tests():
    code = f"import sys\nassert sys.version_info[:2] == {sys.version_info[:2]}\n"
    assert judge(f"```python\n{code}```", "python solution.py", file="solution.py", fence="python").passed
    failed = judge("1 / 0", "python3 solution.py", file="solution.py").feedback
    assert failed.splitlines()[0] == "python3 ended with 1."
    assert failed.splitlines()[-1] == "ZeroDivisionError: division by zero"


def test_program_inherits_no_open_files():
    code = "import os\nfor n in range(3, 256):\n    try: os.fstat(n)\n    except OSError: continue\n    raise SystemExit(n)\n"
    assert judge(code, "python x.py", file="x.py").passed


def test_text_that_cannot_be_written_to_a_file_fails():
    assert judge("\ud800").feedback == "The text has characters that are not allowed in a file."
    assert "too long" in judge("x" * 4_000_001).feedback
    assert judge("\0", "grep -qaP '\\x00'").passed


def test_program_that_cannot_be_started_raises_an_error(tmp_path):
    script = tmp_path / "tool"
    script.write_text("#!/nowhere/interpreter\n")
    script.chmod(0o755)
    with pytest.raises(
        SandboxError, match=r"tool cannot be started in the sandbox '\w+': No such file.*the option `read`"
    ):
        judge("x", str(script))


def test_program_with_missing_libraries_raises_an_error(tmp_path):
    script = tmp_path / "tool"
    script.write_text('#!/bin/sh\necho "$0: error while loading shared libraries: libx.so: nowhere" >&2\nexit 127\n')
    script.chmod(0o755)
    with pytest.raises(
        SandboxError, match=r"tool cannot be started .*shared libraries: libx.so: nowhere.*the option `read`"
    ):
        judge("x", str(script))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has folders that the sandbox's user cannot enter")
def test_error_explains_a_program_that_only_root_can_read(tmp_path):
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    (closed / "tool").write_text("#!/bin/sh\n")
    (closed / "tool").chmod(0o755)
    if probe("limits").fault or "own user" not in probe("limits").features:
        pytest.skip("root stays root here")
    with pytest.raises(SandboxError, match="'limits': Permission denied; the sandbox's user may not read the program"):
        judge("x", str(closed / "tool"), rung="limits")


def test_rung_without_a_required_feature_runs_nothing():
    with pytest.raises(SandboxError, match="lacks required features: no network"):
        judge("exit 0", require=("no network",), rung="limits")


@each_row(
    ("options", "message"),
    [
        ({"command": ""}, "the command is empty"),
        ({"command": "sh 'x"}, "No closing quotation"),
        ({"command": "sh", "file": "/etc/passwd"}, "is not in the folder in which"),
        ({"command": "sh", "file": "../x"}, "is not in the folder in which"),
        ({"command": "sh", "read": ("../x",)}, "is not in the folder in which"),
        ({"command": "sh", "read": ("nothing-here",)}, "no file or folder 'nothing-here'"),
        ({"command": "sh", "read": ("checks",), "file": "checks/x"}, "may only read"),
        ({"command": "sh", "timeout_s": 0}, "not a valid time limit"),
        ({"command": "sh", "memory_mb": 0}, "too little"),
        ({"command": "sh", "require": ("wings",)}, "'wings' is neither a feature nor a rung"),
    ],
)
def test_invalid_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        CommandGuard(**options)


TABLE = """# t

## Guards
| guard | judges | is | options |
| ----- | ------ | -- | ------- |
| tool  |        | command | {options} |

## Steps
| step | guard | task |
| ---- | ----- | ---- |
| a    | tool  | x    |
"""


def test_table_can_name_a_command():
    guard = build_guard("tool", loads(TABLE.format(options="command = grep -q 'a b'; timeout_s = 5")))
    assert guard.validate(Artifact("a b")).passed
    with pytest.raises(BindingError):
        CommandGuard("nonesuch-program")
    with pytest.raises(BindingError, match=r":6:3: guard tool: there is no program 'nonesuch-program': write its path"):
        build_guard("tool", loads(TABLE.format(options="command = nonesuch-program")))


def test_programs_and_files_to_read_are_found_from_the_document_folder(tmp_path, monkeypatch):
    for name, word in (("doc", "beside"), ("here", "here")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "words").write_text(word)
        program = tmp_path / name / "look"
        program.write_text(f"#!/bin/sh\ngrep -q {word} && grep -q {word} words\n")
        program.chmod(0o755)
    tmp_path.chmod(0o755)
    monkeypatch.chdir(tmp_path / "here")
    row = loads(TABLE.format(options="command = ./look; read = words"))
    near, here = build_guard("tool", row, folder=tmp_path / "doc"), build_guard("tool", row)
    assert [near.validate(Artifact(text)).passed for text in ("beside", "here")] == [True, False]
    assert [here.validate(Artifact(text)).passed for text in ("beside", "here")] == [False, True]
    with pytest.raises(BindingError, match=r"there is no program '\.\./doc/bin/look'"):
        build_guard("tool", loads(TABLE.format(options="command = bin/look")), folder=Path("../doc"))
    with pytest.raises(BindingError, match=r"there is no file or folder '\.\./doc/more' to read"):
        build_guard("tool", loads(TABLE.format(options="command = ./look; read = more")), folder=Path("../doc"))
    with pytest.raises(BindingError, match="there is no program 'nonesuch'"):
        build_guard("tool", loads(TABLE.format(options="command = nonesuch")), folder=tmp_path)
