import pytest

from dsa.edge.document_files import load, locate, read_document, read_text, shipped_documents
from dsa.errors import DocumentError, MachineError

MACHINE = "# m\n## Transitions\n|source|event|target|\n|-|-|-|\n|a|go|a|\n"
SPEC = "Machine: m.md\n\n## Properties\n- always a\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.md").write_text(MACHINE, encoding="utf-8")
    return tmp_path


def test_shipped_machines_are_found_by_name(folder):
    assert {"dual_state", "workflow"} <= set(shipped_documents())
    assert load("dual_state").name == "dual_state"


def test_file_takes_precedence_over_a_shipped_machine_of_the_same_name(folder):
    (folder / "dual_state").write_text(MACHINE, encoding="utf-8")
    assert load("dual_state").name == "m"


@pytest.mark.parametrize("name", ["nothing.md", ".", "", "x" * 5_000, "a\0b", "m.md/x", "\ud800"])
def test_missing_or_invalid_path_is_reported(name, folder):
    with pytest.raises(DocumentError):
        load(name)


@pytest.mark.parametrize("content", [b"\xff\xfe#\0 \0m\0", b"# \xe9", b"\x80"])
def test_non_utf8_file_is_reported(content, folder):
    (folder / "m.md").write_bytes(content)
    with pytest.raises(DocumentError, match="not UTF-8"):
        load("m.md")


def test_line_ends_are_preserved(folder):
    (folder / "m.md").write_bytes(MACHINE.replace("\n", "\r\n").encode())
    assert "\r\n" in read_text("m.md")
    assert load("m.md").name == "m"


def test_byte_order_mark_is_accepted(folder):
    (folder / "m.md").write_bytes(b"\xef\xbb\xbf" + MACHINE.encode())
    assert load("m.md").name == "m"
    assert read_text("m.md").startswith("\ufeff#")  # so that formatting a file keeps it


def test_load_raises_all_findings_at_once(folder):
    (folder / "m.md").write_text(MACHINE.replace("|go|a|", "|go|*|") + "|a|(|a|\n", encoding="utf-8")
    with pytest.raises(MachineError) as caught:
        load("m.md")
    assert len(caught.value.diagnostics) == 2
    assert str(caught.value).startswith("m.md:5:")


def test_machine_of_a_spec_is_found_relative_to_the_spec(folder, monkeypatch):
    (folder / "specs").mkdir()
    (folder / "specs" / "s.md").write_text(SPEC.replace("m.md", "../m.md"), encoding="utf-8")
    assert len(load("specs/s.md").properties) == 1
    monkeypatch.chdir(folder / "specs")
    assert len(load("s.md").properties) == 1


@pytest.mark.parametrize("named", ["nothing.md", "s.md", ".", "x" * 5_000, "a\tb"])
def test_spec_with_an_invalid_machine_is_a_finding(named, folder):
    (folder / "s.md").write_text(SPEC.replace("m.md", named), encoding="utf-8")
    reading = read_document("s.md")
    assert reading.machine is None
    assert [(finding.code, finding.span.line) for finding in reading.diagnostics] == [("DSA113", 1)]


def test_faults_in_the_machine_of_a_spec_point_to_the_machine_file(folder):
    (folder / "m.md").write_text(MACHINE.replace("|go|a|", "|go|b!|"), encoding="utf-8")
    (folder / "s.md").write_text(SPEC, encoding="utf-8")
    assert {finding.span.path for finding in read_document("s.md").diagnostics} == {"m.md"}


def test_document_is_located_relative_to_another_folder(folder):
    (folder / "x").mkdir()
    assert locate("m.md", folder / "x").name == "m.md"
    assert locate("../m.md", folder / "x").resolve() == (folder / "m.md").resolve()
