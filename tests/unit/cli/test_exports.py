"""`dsa export`: files written, messages on standard error, exit codes."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from dsa.cli.main import program
from dsa.edge.document_files import load, locate
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


def test_tla_module_is_named_after_its_file_and_has_a_configuration():
    assert dsa("export", "dual_state", "--to", "tla", "-o", "Other.tla").exit_code == 0
    assert Path("Other.tla").read_text(encoding="utf-8").startswith("---- MODULE Other ----")
    assert "INVARIANT Property_1" in Path("Other.cfg").read_text(encoding="utf-8")
    assert dsa("export", "dual_state", "--to", "tla", "-o", "a-b.tla").exit_code == 2


def test_tla_configuration_never_overwrites_the_source_a_folder_or_the_module():
    assert [dsa("export", "dual_state", "--to", "tla", "-o", "m.tla").stdout for _ in range(2)] == [
        "wrote m.tla\nwrote m.cfg\n"
    ] * 2
    text = dumps(load("dual_state"))
    Path("d.cfg").write_text(text, encoding="utf-8")
    Path("folder.cfg").mkdir()
    refused = {
        ("d.cfg", "d.tla"): "d.cfg is the input file itself",
        ("dual_state", "folder.tla"): "-o folder.tla also writes folder.cfg: that is a folder",
        (
            "dual_state",
            "new.cfg",
        ): "-o new.cfg: TLC's configuration is written beside the module, under this name; give the module another name: -o new.tla",
    }
    for (file, output), said in refused.items():
        done = dsa("export", file, "--to", "tla", "-o", output)
        assert (done.exit_code, said in done.stderr, Path(output).exists()) == (2, True, False), done.stderr
    assert Path("d.cfg").read_text(encoding="utf-8") == text
    assert dsa("export", "d.cfg", "--to", "promela", "-o", "d.tla").stdout == "wrote d.tla\n"


SIGNED = """# signed
## Variables
| variable | domain | initial |
| - | - | - |
| ann | bool | false |
| bob | bool | false |
## States
| state | kind |
| - | - |
| open | initial, end when ann and bob |
## Transitions
| source | event | if | update | target |
| - | - | - | - | - |
| open | ann_signs | not ann | ann = true | = |
| open | bob_signs | not bob | bob = true | = |
"""


@pytest.mark.parametrize(
    ("tool", "engine"), [("scxml", "SCXML"), ("xstate", "XState"), ("statechart", "python-statemachine")]
)
def test_end_condition_is_marked_and_reported_as_unsupported_by_engines(tool, engine):
    Path("signed.md").write_text(SIGNED, encoding="utf-8")
    done = dsa("export", "signed.md", "--to", tool)
    assert (
        f"left out: open: end when ann and bob: {engine} ends only in final states, so the machine goes on waiting there"
        in done.stderr
    )
    marks = {"scxml": "<!-- end when ann and bob -->", "xstate": "// end when ann and bob"}
    assert marks.get(tool, "end when ann and bob") in done.stdout


@pytest.mark.parametrize("tool", ["promela", "tla", "prism"])
def test_end_condition_is_not_reported_for_model_checkers(tool):
    Path("signed.md").write_text(SIGNED, encoding="utf-8")
    assert "end when" not in dsa("export", "signed.md", "--to", tool).stderr


BROKEN = (
    locate("dual_state")
    .read_text(encoding="utf-8")
    .replace("g.failed and retries < rmax", "g.failed and retries <= rmax")
)


@pytest.mark.parametrize("command", [("export", "--to", "promela"), ("tests",)])
def test_machine_with_errors_causes_a_warning(command):
    Path("broken.md").write_text(BROKEN, encoding="utf-8")
    done = dsa(*command, "broken.md")
    assert done.exit_code == 0
    (said,) = [line for line in done.stderr.splitlines() if "has errors" in line]
    assert said.startswith("broken.md has errors: DSA306, DSA310 (see dsa check broken.md); ")
    assert "has errors" not in dsa(*command, "dual_state").stderr


@pytest.mark.parametrize("command", [("export", "--to", "promela"), ("tests",)])
def test_missing_output_folder_is_reported(command):
    done = dsa(*command, "dual_state", "-o", "no/test_m.py")
    assert (done.exit_code, "-o no/test_m.py: there is no folder no" in done.stderr) == (2, True)


def test_omitted_properties_are_reported_on_standard_error():
    done = dsa("export", "dual_state", "--to", "tla")
    assert "left out: at most rmax + 1 query_llm" in done.stderr
    assert "left out" not in done.stdout.splitlines()[0]
    assert dsa("export", "dual_state", "--to", "promela").stderr == ""


def test_parameter_values_are_exported_and_bad_arguments_refused():
    assert "#define p_rmax 7" in dsa("export", "dual_state", "--to", "promela", "--param", "rmax=7").stdout
    assert isinstance(dsa("export", "dual_state", "--to", "promela", "--param", "rmax=-1").exception, Exception)
    assert dsa("export", "dual_state", "--to", "uppaal").exit_code == 2


@pytest.mark.parametrize("command", [("export", "--to", "prism"), ("draw",)])
def test_output_overwrites_its_previous_version_but_never_its_source(command):
    text = dumps(load("dual_state"))
    Path("m.md").write_text(text, encoding="utf-8")
    assert [dsa(*command, "m.md", "-o", "made").exit_code for _ in range(2)] == [0, 0]
    done = dsa(*command, "m.md", "-o", "m.md")
    assert (done.exit_code, "m.md is the input file itself" in done.stderr) == (2, True)
    assert Path("m.md").read_text(encoding="utf-8") == text


@pytest.mark.parametrize("tool", ["promela", "tla"])
def test_unsupported_assumptions_of_properties_are_reported_as_omitted(tool):
    asked = ("even if ask fails", "even if ask never answers", "assuming weakly fair ok", "assuming fair ok")
    properties = "".join(f"- b leads to z {each}\n" for each in asked)
    Path("m.md").write_text(
        "# m\n## Events\n| event | from |\n| - | - |\n| go | outside |\n| ok | ask |\n## States\n| state | kind |\n| - | - |\n| a | initial |\n| b | |\n| z | final |\n"
        f"## Transitions\n| source | event | effects | target |\n| - | - | - | - |\n| a | go | ask | b |\n| b | ok | | z |\n## Properties\n{properties}",
        encoding="utf-8",
    )
    said = dsa("export", "m.md", "--to", tool)
    assert said.exit_code == 0
    assert [f"left out: b leads to z {each}: " in said.stderr for each in asked] == [True, True, True, False]
