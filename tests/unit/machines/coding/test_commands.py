"""Commands: how they are read, and whether rules allow them."""

import shlex
from pathlib import Path

import pytest
from each_row import each_row
from hypothesis import given
from hypothesis import strategies as st

from dsa.errors import ToolError
from machines.coding.tools.command_runner import fault, read_command
from machines.coding.tools.program_rules import Rules, python_start

# -- reading ----------------------------------------------------------------------------------------------------------


@each_row(
    ("cmd", "argv"),
    [
        (["python", "a b.py", "$HOME"], ("python", "a b.py", "$HOME")),
        ("python main.py --name 'A  B'", ("python", "main.py", "--name", "A  B")),
        ('pytest -k "a and not b"', ("pytest", "-k", "a and not b")),
        ("pytest 'tests/*.py'", ("pytest", "tests/*.py")),
        ("pytest tests/test_a.py::test_b[1-x]", ("pytest", "tests/test_a.py::test_b[1-x]")),
        (" ruff check . \n", ("ruff", "check", ".")),
        ('["python", "x.py"]', ("python", "x.py")),
        (r"python a\ b.py", ("python", "a b.py")),
        ("python x.py --a=b c#d", ("python", "x.py", "--a=b", "c#d")),
        ("python calc.py 3 '<' 4 '|'", ("python", "calc.py", "3", "<", "4", "|")),
        (["pytest", "-k", "a[1]", "x>y", "->", "*"], ("pytest", "-k", "a[1]", "x>y", "->", "*")),
        ("python -c 'print(1); print(2)'", ("python", "-c", "print(1); print(2)")),
    ],
)
def test_command_is_read_as_a_list_of_arguments(cmd, argv):
    assert read_command(cmd) == argv


@each_row(
    ("cmd", "code", "says"),
    [
        ("cd src && pytest -q", "shell_syntax", 'send ["pytest", "-q"] with cwd "src"'),
        ("pytest && ruff check .", "shell_syntax", 'make 2 calls, one after the other: ["pytest"], then ["ruff", "check", "."]'),
        ("PYTHONPATH=. DEBUG=1 python x.py", "shell_syntax", 'send ["python", "x.py"]'),
        (["python", "a.py", ">", "out.txt"], "shell_syntax", "as an argument, '>': output and errors are returned"),
        (["python", "a b.py", "|", "grep", "a"], "shell_syntax", 'a command is a list, such as ["python", "a b.py"]'),
        (["python", "a.py", "&&", "ls"], "shell_syntax", 'make 2 calls, one after the other: ["python", "a.py"], then ["ls"]'),
        (["cd", "src", "&&", "pytest"], "shell_syntax", 'send ["pytest"] with cwd "src"'),
        ('["python", "a.py", ";", "ls"]', "shell_syntax", "has ';' as an argument"),
        (["python", "a.py", "2>&1"], "shell_syntax", "write the whole command as one text, with this argument in quotes"),
        ("pytest | tail -5", "shell_syntax", "the output is returned"),
        ("python x.py > out.txt", "shell_syntax", "write_file"),
        ("python *.py", "shell_syntax", "name the files"),
        ("", "empty_command", "give a list"),
        ([], "empty_command", "give a list"),
        (["python", 3], "bad_command", "a list of texts"),
        (["python", "a\0b"], "bad_command", "NUL"),
        (["python", "\ud800"], "bad_command", "surrogate"),
        (["python", *["x"] * 300], "bad_command", "at most 256"),
        (["python", "x" * 200_000], "bad_command", "100000 characters"),
    ],
)  # fmt: skip
def test_invalid_command_is_refused_with_what_to_send(cmd, code, says):
    with pytest.raises(ToolError) as refused:
        read_command(cmd)
    assert (refused.value.code, says in str(refused.value)) == (code, True), str(refused.value)


@each_row(
    "operator",
    [">", ">>", "<", "<<", "<<<", "|", "||", "|&", "&&", "&", ";", "2>", "2>&1", "1>&2", ">&2", "&>", "&>>", "2>>", "2>/dev/null", ">|"],
)  # fmt: skip
def test_shell_operator_as_an_argument_is_refused(operator):
    for cmd in (["python", "a.py", operator, "b"], ["python", "a.py", operator]):
        with pytest.raises(ToolError, match="there is no shell here"):
            read_command(cmd)


@given(st.text(max_size=40) | st.lists(st.text(max_size=8), max_size=4))
def test_any_input_gives_arguments_or_a_tool_error(cmd):
    try:
        argv = read_command(cmd)
    except ToolError:
        return
    assert all(argv[:1])
    assert isinstance(fault(argv, Rules(), Path("/nowhere")), str)


@given(st.lists(st.text(st.characters(codec="ascii", exclude_characters="\0"), max_size=8), min_size=1, max_size=5))
def test_text_is_split_as_a_shell_would(words):
    """A list of arguments that `shlex` quotes comes back unchanged."""
    if words[0].strip() and not words[0].startswith("[") and "=" not in words[0]:
        assert read_command(shlex.join(words)) == tuple(words)


# -- rules ------------------------------------------------------------------------------------------------------------

ALLOWED = [
    ["python", "main.py"], ["python3", "-u", "src/main.py", "--out", "build/x.txt"], ["python", "-Bu", "main.py"], ["python", "-W", "error", "main.py"],
    ["python", "-X", "dev", "main.py"], ["python", "-m", "pytest", "-q"], ["python", "-m", "ruff", "check"], ["python", "-m", "unittest", "discover"],
    ["python", "-m", "json.tool", "a.json"], ["python", "-m", "compileall", "."], ["python", "-m", "own"], ["python", "-m", "own.part", "x"],
    ["python", "--version"], ["python", "-V"], ["python", "x.py", "https://example.org/"], ["python", "x.py", "/dev/null"], ["pytest"],
    ["python", "calc.py", "8", "/", "2"], ["python", "calc.py", "-3/4"], ["python", "x.py", "and/or", "//", "/no-such-folder/x", "~5"], ["python", "-m", "own", "8", "/", "2"],
    ["pytest", "-xvs", "tests/test_a.py::test_b", "-k", "a or /b", "--maxfail=1", "-p", "no:randomly", "-n2"], ["pytest", "-m", "not slow", "--rootdir=."],
    ["pytest", "-c", "pytest.ini"], ["ruff", "check", "--fix", "--select=E,F", "."], ["ruff", "format", "--check", "a.py"],
    ["ruff", "check", "--config", "ruff.toml"],
]  # fmt: skip


@each_row("argv", ALLOWED, ids=" ".join)
def test_commands_that_a_task_needs_are_allowed(argv, tmp_path):
    (tmp_path / "own").mkdir()
    assert fault(argv, Rules(), tmp_path) == ""


def test_workspace_module_may_not_hide_an_installed_one(tmp_path):
    for name in ("pip", "venv", "attrs"):
        (tmp_path / name).mkdir()
        assert "is not allowed" in fault(["python", "-m", name], Rules(), tmp_path) or name == "pip"
    assert "switched off" in fault(["python", "-m", "pip", "install", "x"], Rules(), tmp_path)


def test_paths_are_judged_from_the_folder_of_the_command(tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "out").symlink_to("/etc")
    assert fault(["python", "../main.py"], Rules(), tmp_path, "src") == ""
    for path in ("../../main.py", "../out/passwd", str(tmp_path.parent / "x.py"), f"{tmp_path}x/main.py"):
        assert "leads out" in fault(["python", path], Rules(), tmp_path, "src"), path
    assert fault(["python", str(tmp_path / "main.py")], Rules(), tmp_path, "src") == ""


def test_refusal_says_what_is_allowed(tmp_path):
    assert "allowed programs: python, python3, pytest" in fault(["node", "x.js"], Rules(), tmp_path)
    assert "write the code to a file" in fault(["python", "-c", "1"], Rules(), tmp_path)
    assert "runs code in its arguments" in fault(["python", "-m", "timeit", "-n1", "1"], Rules(), tmp_path)
    assert "standard input" in fault(["python", "/dev/stdin"], Rules(), tmp_path)
    assert "use read_file" in fault(["cat", "x"], Rules(), tmp_path)
    assert 'send ["python", "x.py"]' in fault(["python x.py"], Rules(), tmp_path)
    assert 'send ["python", "x.py"]' in fault([".venv/bin/python", "x.py"], Rules(), tmp_path)


def test_rules_are_read_from_a_mapping(tmp_path):
    rules = Rules.from_mapping(
        {"code": True, "pip": True, "modules": ["own"], "programs": {"make": {"arguments": ["test", "lint"]}, "npm": {"arguments": "any"}}}
    )  # fmt: skip
    assert fault(["python", "-c", "open('/etc/x')"], rules, tmp_path) == ""
    assert fault(["pip", "install", "-U", "attrs==26.1.0", "rich[x]>=1,<2"], rules, tmp_path) == ""
    assert fault(["make", "test", "lint"], rules, tmp_path) == ""
    assert "allowed arguments: test, lint" in fault(["make", "install"], rules, tmp_path)
    assert fault(["npm", "run", "x"], rules, tmp_path) == ""
    assert "leads out" in fault(["npm", "--prefix=/etc"], rules, tmp_path)
    assert "is not allowed" in fault(["python", "-m", "unittest"], rules, tmp_path)
    assert Rules.from_mapping({}) == Rules()


@pytest.mark.parametrize(
    ("allowed", "argv", "says"),
    [
        (["test", "lint"], ["make"], "make needs one of these arguments: test, lint"),
        (["test", ""], ["make"], ""),
        (["test", ""], ["make", "test"], ""),
        (["test", ""], ["make", ""], "allowed arguments: test"),
        ([], ["make"], ""),
        ([], ["make", "test"], "allowed arguments: none"),
        ("any", ["make"], ""),
    ],
)
def test_program_without_arguments_runs_only_where_the_rules_allow_it(tmp_path, allowed, argv, says):
    """Without arguments a program does its default action, which is not among the listed ones."""
    told = fault(argv, Rules.from_mapping({"programs": {"make": {"arguments": allowed}}}), tmp_path)
    assert told.endswith(says) if says else not told


@each_row(
    "data",
    [
        {"pips": True}, {"pip": "yes"}, {"modules": "pytest"}, {"modules": [1]}, {"programs": ["make"]}, {"programs": {"make": {}}},
        {"programs": {"make": {"arguments": "some"}}}, {"programs": {"make": {"arguments": [1]}}}, {"programs": {"bin/make": {"arguments": "any"}}},
        {"programs": {"python": {"arguments": "any"}}}, {"programs": {"make": {"arguments": "any", "more": 1}}},
    ],
)  # fmt: skip
def test_invalid_rules_are_reported(data):
    with pytest.raises(ValueError, match=r"\w"):
        Rules.from_mapping(data)


@each_row(
    ("arguments", "kind", "what"),
    [
        (["-Bum", "x", "a"], "module", "x"), (["-mx.y"], "module", "x.y"), (["-W", "error", "x.py"], "script", "x.py"), (["-Werror", "-Xdev", "x"], "script", "x"),
        (["-uc", "1"], "code", "1"), (["-c1"], "code", "1"), ([], "none", ""), (["-B"], "none", ""), (["-"], "input", ""), (["-i", "x"], "-i", ""), (["-W"], "none", ""),
    ],
)  # fmt: skip
def test_python_command_line_is_read_as_python_does(arguments, kind, what):
    start = python_start(arguments)
    assert (start.kind, start.what) == (kind, what)
