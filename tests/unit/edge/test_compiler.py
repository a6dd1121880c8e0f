import os
from pathlib import Path

import pytest

from dsa.edge import processes as module
from dsa.edge.processes import compile_library, compiler
from dsa.errors import DsaError


def test_program_is_loaded_and_called():
    library = compile_library("int answer(int x) { return 6 * x; }\n")
    assert library.answer(7) == 42


def test_programs_with_the_same_names_stay_separate():
    first, second = (compile_library(f"int answer(void) {{ return {value}; }}\n") for value in (1, 2))
    assert (first.answer(), second.answer()) == (1, 2)


def test_compilation_leaves_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    compile_library("int answer(void) { return 1; }\n")
    with pytest.raises(DsaError):
        compile_library("no C\n")
    assert list(tmp_path.iterdir()) == []


def test_invalid_c_is_reported_in_one_sentence():
    with pytest.raises(DsaError, match=r"could not compile the code \(exit 1\): .*error") as caught:
        compile_library("int answer(void) { return wrong; }\n")
    assert "\n" not in str(caught.value)


def test_missing_compiler_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert compiler() is None
    with pytest.raises(DsaError, match="there is no C compiler"):
        compile_library("int answer(void) { return 1; }\n")


def fake(folder: Path, name: str, script: str) -> None:
    program = folder / name
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


def test_compiler_output_that_cannot_be_loaded_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    fake(tmp_path, "cc", 'while [ "$1" != -o ]; do shift; done; echo text > "$2"')
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DsaError, match="the library from cc could not be loaded"):
        compile_library("int answer(void) { return 1; }\n")


def test_compiler_that_does_not_end_is_stopped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    fake(tmp_path, "clang", "while :; do :; done")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(module, "TIME_LIMIT_S", 0.2)
    with pytest.raises(DsaError, match=r"clang could not compile the code: .*timed out"):
        compile_library("int answer(void) { return 1; }\n")


def test_folder_is_private(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    fake(tmp_path, "gcc", f'for last; do :; done; ls -ld "$(dirname "$last")" > {tmp_path}/listed; exit 1')
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}/bin")
    monkeypatch.setattr(module, "_NAMES", ("gcc",))
    with pytest.raises(DsaError, match="exit 1"):
        compile_library("int answer(void) { return 1; }\n")
    assert (tmp_path / "listed").read_text().startswith("drwx------")
