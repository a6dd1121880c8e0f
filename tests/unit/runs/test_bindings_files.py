"""Bindings in files: modules beside them can be imported, and faults have a line, for relative and absolute paths."""

import sys
from pathlib import Path

import pytest

from dsa.errors import BindingError
from dsa.runs.bindings import import_kinds


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder that no other test imports from; `sys.path` is restored afterwards."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "of").mkdir()
    return Path("of")


@pytest.mark.parametrize("absolute", [False, True], ids=["relative", "absolute"])
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import os\nx = = 1\n", ":2: this file cannot be imported: SyntaxError: invalid syntax"),
        ("\n\n1/0\n", ":3: this file cannot be imported: ZeroDivisionError: division by zero"),
    ],
)
def test_fault_in_a_file_of_bindings_has_a_line(folder, text, said, absolute):
    path = (folder / "mine.py").absolute() if absolute else folder / "mine.py"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(BindingError) as caught:
        import_kinds(str(path))
    assert str(caught.value) == f"{path}{said}"


def test_module_beside_the_bindings_can_be_imported(folder):
    (folder / "beside_for_this_test.py").write_text("FOUND = []\n", encoding="utf-8")
    (folder / "mine.py").write_text("from beside_for_this_test import FOUND\nFOUND.append(1)\n", encoding="utf-8")
    import_kinds(str(folder / "mine.py"))
    assert sys.modules.pop("beside_for_this_test").FOUND == [1]
    assert sys.path[-1] == str(folder.absolute())
