"""The program writes the same compiled modules as pytest, byte for byte, so that pytest reads them."""

import os
import subprocess
import sys

from rewritten_assertions import ROOT, keep, modules

TEST = "def test_sum():\n    a = 1\n    assert a + 1 == 2, 'a sum'\n"


def test_compiled_module_is_the_one_that_pytest_writes(tmp_path):
    path, folder = tmp_path / "test_sum.py", tmp_path / "__pycache__"
    path.write_text(TEST, encoding="utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    subprocess.run([sys.executable, "-m", "pytest", "-q", path.name], cwd=tmp_path, env=environment, check=True)
    (own,) = folder.glob("test_sum*.pyc")
    by_pytest = own.read_bytes()
    keep(path)
    assert own.read_bytes() == by_pytest  # it was up to date
    own.unlink()
    keep(path)
    assert own.read_bytes() == by_pytest
    path.write_text(TEST.replace("1", "2"), encoding="utf-8")
    keep(path)
    assert own.read_bytes() != by_pytest


def test_modules_of_tests_and_of_the_package_are_compiled():
    found = {path.relative_to(ROOT).as_posix() for path in modules(ROOT)}
    assert found >= {
        "tests/conftest.py",
        "tests/test_session.py",
        "tests/unit/generators/conftest.py",
        "dsa/machine.py",
    }
