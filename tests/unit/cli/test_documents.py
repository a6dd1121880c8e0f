"""The commands that read documents and run nothing: check, why, expand, fmt, draw, new."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from dsa.cli.main import COMMANDS, program
from dsa.edge.document_files import locate
from dsa.lang import digest, dumps, loads, spell_out

DUAL_STATE = locate("dual_state").read_text(encoding="utf-8")


def dsa(*arguments: str) -> Result:
    return CliRunner().invoke(program, list(arguments))


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_every_listed_command_exists_and_has_help():
    for name in COMMANDS:
        done = dsa(name, "--help")
        assert done.exit_code == 0
        assert done.output.startswith(f"Usage: dsa {name}") or f" {name} " in done.output


def _without_scenarios(text: str, count: int) -> str:
    """Return a text without its last scenarios; the section Effects after them stays."""
    parts = text.split("## Scenario: ")
    return "## Scenario: ".join(parts[: len(parts) - count]) + text[text.index("## Effects") :]


def test_check_as_json_has_the_promised_shape():
    done = dsa("check", "--json", "dual_state", "nothing.md")
    good, missing = json.loads(done.stdout)["files"]
    assert done.exit_code == 2
    assert (missing["file"], missing["machine"]) == ("nothing.md", None)
    assert "there is no such file" in missing["unreadable"]
    assert good["unreadable"] is None
    assert good["digest"] == digest(loads(DUAL_STATE))
    assert [(e["parameters"], e["states"], e["transitions"]) for e in good["explorations"]] == [
        ({"rmax": 3}, 15, 17),
        ({"rmax": 0}, 6, 5),
    ]
    assert {item["verdict"] for item in good["properties"]} == {"HOLDS"}
    assert {str(item["values"]) for item in good["properties"]} == {"[{'rmax': 3}, {'rmax': 0}]"}
    assert [(item["name"], item["ok"]) for item in good["scenarios"]] == [
        ("refinement loop", True),
        ("no retry is left", True),
        ("a fatal verdict", True),
    ]
    assert (good["diagnostics"], good["rests"]) == ([], ["idle"])
    (progress,) = [item for item in good["properties"] if item["relies_on"]]
    assert progress["condition"] == "query_llm, execute_guard answer and do not fail"
    assert progress["relies_on"] == progress["must_not_fail"] == ["query_llm", "execute_guard"]


def test_finding_as_json_has_the_promised_shape():
    Path("m.md").write_text(DUAL_STATE.replace("retries += 1", "retries += 2"), encoding="utf-8")
    (file,) = json.loads(dsa("check", "--json", "m.md").stdout)["files"]
    assert {"code", "severity", "path", "line", "column", "message", "hint"} == set(file["diagnostics"][0])


@pytest.mark.parametrize(
    ("text", "options", "code"),
    [
        (DUAL_STATE, (), 0),
        (DUAL_STATE, ("--strict",), 0),
        (_without_scenarios(DUAL_STATE, 2), ("--strict",), 1),  # rows that no scenario takes
        (DUAL_STATE, ("--param", "rmax=7"), 0),
        (DUAL_STATE, ("--param", "rmax=-1"), 2),
        (DUAL_STATE, ("--param", "rmax"), 2),
        (DUAL_STATE, ("--max-states", "3"), 1),  # what was not reached is unknown
        (DUAL_STATE.replace("retries < rmax", "retires < rmax"), (), 1),
        (DUAL_STATE.replace("retries += 1", "retries += 2"), (), 1),
        ("", (), 1),
    ],
)
def test_check_has_the_promised_exit_code(text: str, options: tuple[str, ...], code: int):
    Path("m.md").write_text(text, encoding="utf-8")
    assert dsa("check", "m.md", *options).exit_code == code


def test_unreadable_file_is_one_sentence_and_exit_code_2():
    Path("binary.md").write_bytes(b"\xff\xfe\x00")
    Path("folder").mkdir()
    for name in ("binary.md", "folder", "nothing.md"):
        done = dsa("check", name)
        assert done.exit_code == 2
        assert name in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1


def test_notes_take_one_line_without_the_source():
    lines = dsa("check", "workflow").output.splitlines()
    notes = [line for line in lines if " info DSA211" in line]
    assert len(notes) == 2
    assert not any(line.startswith("      | ") for line in lines)


def test_check_says_what_it_assumes():
    output = dsa("check", "dual_state").output
    assert "HOLDS if query_llm, execute_guard answer and do not fail" in output
    assert "rests in: idle" in output
    assert "assum" not in output
    assert "5 of 5 properties HOLD" in output


def test_why_is_narrowed_by_state_and_values():
    done = dsa("why", "verdict", "--in", "validating", "--given", "g=failed", "--given", "retries=3", "dual_state")
    assert done.exit_code == 0
    assert "line 49: validating | verdict | generating  (not taken: retries < rmax is false)" in done.output
    assert done.output.count("accepted") == 1


def test_expand_prints_the_canonical_transitions():
    text = locate("workflow").read_text(encoding="utf-8")
    assert dsa("expand", "workflow").output == dumps(spell_out(loads(text)))


def test_fmt_changes_a_file_once_and_check_changes_nothing():
    untidy = DUAL_STATE.replace("| idle       |", "| idle |").replace("\n", "\r\n")
    Path("m.md").write_bytes(untidy.encode())
    assert dsa("fmt", "--check", "m.md").exit_code == 1
    assert Path("m.md").read_bytes() == untidy.encode()
    assert dsa("fmt", "m.md").exit_code == 0
    assert Path("m.md").read_bytes() == DUAL_STATE.replace("\n", "\r\n").encode()
    assert dsa("fmt", "--check", "m.md").exit_code == 0


@pytest.mark.parametrize(
    ("form", "start"),
    [
        ("mermaid", b"stateDiagram-v2"),
        ("dot", b"digraph"),
        ("table", b"| source"),
        ("svg", b"<?xml"),
        ("png", b"\x89PNG"),
    ],
)
def test_draw_writes_each_format(form: str, start: bytes):
    done = dsa("draw", "dual_state", "--format", form, "-o", "out")
    assert done.exit_code == 0, done.output
    assert Path("out").read_bytes().startswith(start)


@pytest.mark.parametrize("options", [(), ("--steps",)])
def test_new_writes_a_document_in_canonical_layout_that_passes(options: tuple[str, ...]):
    assert dsa("new", "mine", *options).exit_code == 0
    assert dsa("fmt", "--check", "mine.md").exit_code == 0
    assert dsa("check", "mine.md").exit_code == 0


def test_new_never_overwrites_and_refuses_invalid_names():
    Path("mine.md").write_text("precious", encoding="utf-8")
    assert dsa("new", "mine").exit_code == 2
    assert Path("mine.md").read_text(encoding="utf-8") == "precious"
    for bad in ("1st", "my machine", "else", "a/b", ""):
        assert dsa("new", bad).exit_code == 2, bad
    assert [path.name for path in Path().iterdir()] == ["mine.md"]


def test_new_scenarios_cover_the_missing_rows_and_pass_unchanged():
    text = _without_scenarios(DUAL_STATE, 2)
    Path("m.md").write_text(text, encoding="utf-8")
    made = dsa("new", "--scenarios", "m.md").output
    assert made.count("## Scenario:") == 2
    Path("m.md").write_text(f"{text}\n{made}", encoding="utf-8")
    done = dsa("check", "--strict", "m.md")
    assert done.exit_code == 0, done.output
    assert "3 of 3 scenarios pass" in done.output
