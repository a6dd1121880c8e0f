"""`dsa export` and `dsa import`: files written, words on standard error, exit codes."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from dsa.cli.main import program
from dsa.edge.files import load
from dsa.lang import dumps


def dsa(*arguments: str) -> Result:
    return CliRunner().invoke(program, list(arguments))


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("tool", ["promela", "tla", "prism", "scxml", "xstate", "statechart"])
def test_export_prints_or_writes_the_same(tool):
    printed = dsa("export", "workflow", "--to", tool)
    written = dsa("export", "workflow", "--to", tool, "-o", "workflow.out")
    assert (printed.exit_code, written.exit_code) == (0, 0)
    assert Path("workflow.out").read_text(encoding="utf-8") == printed.stdout
    assert "wrote workflow.out\n" in written.stdout


def test_a_tla_module_is_named_like_its_file_and_has_a_configuration():
    assert dsa("export", "dual_state", "--to", "tla", "-o", "Other.tla").exit_code == 0
    assert Path("Other.tla").read_text(encoding="utf-8").startswith("---- MODULE Other ----")
    assert "INVARIANT Property_1" in Path("Other.cfg").read_text(encoding="utf-8")
    assert dsa("export", "dual_state", "--to", "tla", "-o", "a-b.tla").exit_code == 2


def test_what_is_not_said_stands_on_standard_error():
    done = dsa("export", "dual_state", "--to", "tla")
    assert "not said: at most rmax + 1 query_llm" in done.stderr
    assert "not said" not in done.stdout.splitlines()[0]
    assert dsa("export", "dual_state", "--to", "promela").stderr == ""


def test_parameters_are_put_in():
    assert "#define p_rmax 7" in dsa("export", "dual_state", "--to", "promela", "--param", "rmax=7").stdout
    assert isinstance(dsa("export", "dual_state", "--to", "promela", "--param", "rmax=-1").exception, Exception)
    assert dsa("export", "dual_state", "--to", "uppaal").exit_code == 2


def test_import_gives_back_what_was_exported():
    dsa("export", "dual_state", "--to", "scxml", "-o", "d.scxml", "--param", "rmax=5")
    done = dsa("import", "d.scxml")
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout == dumps(load("dual_state").at(rmax=5))
    assert dsa("import", "d.scxml", "-o", "d.md").stdout == "wrote d.md\n"
    assert load("d.md") == load("dual_state").at(rmax=5)


def test_a_file_that_was_changed_is_read_by_its_states():
    dsa("export", "dual_state", "--to", "scxml", "-o", "d.scxml")
    text = Path("d.scxml").read_text(encoding="utf-8")
    Path("d.scxml").write_text(text.replace("v_retries &lt; 3", "v_retries &lt; 2"), encoding="utf-8")
    done = dsa("import", "d.scxml")
    assert done.exit_code == 0
    assert "changed since dsa wrote it" in done.stderr
    assert "v_retries < 2" in done.stdout
    commented = text.replace("<final id", "<!-- an end -->\n <final  id")
    Path("d.scxml").write_text(commented, encoding="utf-8")
    assert dsa("import", "d.scxml").stderr == ""


def test_states_alone_can_be_asked_for():
    dsa("export", "dual_state", "--to", "scxml", "-o", "d.scxml")
    assert "waits_query_llm" in dsa("import", "--states", "d.scxml").stdout


def test_import_says_with_lines_what_it_cannot():
    Path("x.scxml").write_text(
        "<scxml>\n<parallel id='p'/>\n<state id='a'>\n<script/></state></scxml>", encoding="utf-8"
    )
    done = dsa("import", "x.scxml")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "x.scxml:2: not read: parallel states" in done.stderr
    assert "x.scxml:4: not read: scripts" in done.stderr
    assert done.stderr.endswith("x.scxml: no machine was written\n")
