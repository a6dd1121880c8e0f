"""Code that names forbidden modules and functions."""

import pytest
from each_row import each_row

from dsa.guards import ForbiddenGuard
from dsa.runtime.content import Artifact


def judged(code, **options):
    return ForbiddenGuard(**options).validate(Artifact(code))


REACHES_OS_SYSTEM = [
    "import os\nos.system('ls')",
    "import os as o\no.system('ls')",
    "from os import system\nsystem('ls')",
    "from os import system as run\nrun('ls')",
    "import os\nrun = os.system\nrun('ls')",
    "import os\nagain = os\nrun = again.system\nmore = run\nmore('ls')",
    "import os\nrun: object = os.system",
    "import os\n(run := os.system)('ls')",
    "import os\ngetattr(os, 'system')('ls')",
    "import os, builtins\nbuiltins.getattr(os, 'system')('ls')",
    "def f():\n    import os\n    return [os.system for _ in range(3)]",
    "import os.path\nos.system('ls')",
    "import sys\nsys.modules['os'].system('ls')",
    "class A:\n    from os import system\n    system('ls')",
    "if False:\n    import os\nos.system('ls')",
]


@each_row("code", REACHES_OS_SYSTEM)
def test_forbidden_call_is_found_under_any_name(code):
    result = judged(code)
    assert result.fatal
    assert "os.system is forbidden" in result.feedback


@each_row(
    ("code", "name"),
    [
        ("import subprocess", "subprocess"),
        ("import subprocess as s", "subprocess"),
        ("from subprocess import run", "subprocess"),
        ("import multiprocessing.pool", "multiprocessing.pool"),
        ("__import__('subprocess')", "__import__"),
        ("import importlib\nimportlib.import_module('socket')", "importlib.import_module"),
        ("from importlib import import_module as i\ni('socket').socket()", "importlib.import_module"),
        ("eval('1')", "eval"),
        ("e = eval\ne('1')", "eval"),
        ("import builtins\nbuiltins.exec('1')", "builtins.exec"),
        ("__builtins__['eval']('1')", "builtins.eval"),
        ("import os\nos.execvp('ls', [])", "os.execvp"),
    ],
)
def test_forbidden_modules_and_builtins_are_found(code, name):
    result = judged(code)
    assert result.fatal
    assert f"{name} is forbidden" in result.feedback


@each_row(
    "code",
    [
        "import os\nprint(os.path.join('a', 'b'), os.environ)",
        "import re\nre.compile('a')",
        "def evaluate(): pass\nevaluate()",
        "def f(system): return system('ls')",
        "x = 'os.system(1)'  # os.system",
        "from .subprocess import run",
        "class A:\n    def eval(self): pass\nA().eval()",
        "import subprocesses",
    ],
)
def test_code_that_only_looks_forbidden_passes(code):
    assert judged(code).passed


def test_feedback_names_each_call_with_its_first_line():
    result = judged("import os\nos.system('a')\nos.system('b')\nos.popen('c')")
    assert result.feedback == "Security: os.system is forbidden (line 2); os.popen is forbidden (line 4)."


def test_long_list_of_forbidden_calls_is_shortened_with_a_count():
    code = "import os\n" + "\n".join(f"os.exec{n}()" for n in range(9))
    assert judged(code).feedback.endswith(", and 4 more.")


def test_forbidden_names_can_be_chosen():
    assert judged("import requests", imports=("requests",), calls=()).fatal
    assert judged("import subprocess", imports=("requests",), calls=()).passed
    result = judged("print(1)", imports=(), calls=("print",), fatal=False)
    assert (result.passed, result.fatal) == (False, False)
    with pytest.raises(ValueError, match="forbids nothing"):
        ForbiddenGuard((), ())


@each_row(
    ("imports", "calls"),
    [
        (("os os",), ()),
        (("os.*",), ()),
        (("os.",), ()),
        (("import os",), ()),
        (("",), ()),
        (("a-b",), ()),
        ((), ("eval()",)),
        ((), ("os.system os.popen",)),
        ((), (".system",)),
        ((), ("os.[a-z]*",)),
        ("os", ()),
        ((), "eval"),
    ],
)
def test_invalid_name_is_refused(imports, calls):
    with pytest.raises(ValueError, match=r"is not a name, so it would never match|is a single string: use a tuple"):
        ForbiddenGuard(imports, calls)


@pytest.mark.parametrize("calls", ["builtins.eval", "*al", "ev*", "eval"])
def test_builtin_is_forbidden_by_either_name_and_by_a_pattern(calls):
    assert judged("eval('1')", imports=(), calls=(calls,)).fatal
    assert judged("import builtins\nbuiltins.eval('1')", imports=(), calls=(calls,)).fatal


def test_submodule_can_be_forbidden_without_its_package():
    assert judged("import os.path", imports=("os.path",), calls=()).fatal
    assert judged("import os", imports=("os.path",), calls=()).passed


def test_invalid_python_fails_without_being_fatal():
    result = judged("import os(")
    assert (result.passed, result.fatal) == (False, False)
    assert "syntax error" in result.feedback


def test_forbidden_call_in_a_fence_is_found():
    assert judged("Sure!\n```python\nimport os\nos.system('x')\n```").fatal


def test_long_cyclic_chain_of_aliases_is_resolved():
    code = "import os\na0 = os.system\n" + "\n".join(f"a{n + 1} = a{n}" for n in range(200)) + "\na0 = a200\n"
    assert judged(code).fatal
