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


def test_a_file_goes_before_a_shipped_machine_of_that_name(folder):
    (folder / "dual_state").write_text(MACHINE, encoding="utf-8")
    assert load("dual_state").name == "m"


@pytest.mark.parametrize("name", ["nothing.md", ".", "", "x" * 5_000, "a\0b", "m.md/x", "\ud800"])
def test_what_is_no_document_is_said(name, folder):
    with pytest.raises(DocumentError):
        load(name)


@pytest.mark.parametrize("content", [b"\xff\xfe#\0 \0m\0", b"# \xe9", b"\x80"])
def test_what_is_not_utf8_is_said(content, folder):
    (folder / "m.md").write_bytes(content)
    with pytest.raises(DocumentError, match="not UTF-8"):
        load("m.md")


def test_line_ends_are_kept(folder):
    (folder / "m.md").write_bytes(MACHINE.replace("\n", "\r\n").encode())
    assert "\r\n" in read_text("m.md")
    assert load("m.md").name == "m"


def test_a_byte_order_mark_is_no_fault(folder):
    (folder / "m.md").write_bytes(b"\xef\xbb\xbf" + MACHINE.encode())
    assert load("m.md").name == "m"
    assert read_text("m.md").startswith("\ufeff#")  # so that laying out a file keeps it


def test_a_fault_raises_all_findings(folder):
    (folder / "m.md").write_text(MACHINE.replace("|go|a|", "|go|*|") + "|a|(|a|\n", encoding="utf-8")
    with pytest.raises(MachineError) as caught:
        load("m.md")
    assert len(caught.value.diagnostics) == 2
    assert str(caught.value).startswith("m.md:5:")


def test_a_spec_is_read_with_its_machine_beside_it(folder, monkeypatch):
    (folder / "specs").mkdir()
    (folder / "specs" / "s.md").write_text(SPEC.replace("m.md", "../m.md"), encoding="utf-8")
    assert len(load("specs/s.md").properties) == 1
    monkeypatch.chdir(folder / "specs")
    assert len(load("s.md").properties) == 1


@pytest.mark.parametrize("named", ["nothing.md", "s.md", ".", "x" * 5_000, "a\tb"])
def test_a_spec_that_names_no_machine_is_a_finding(named, folder):
    (folder / "s.md").write_text(SPEC.replace("m.md", named), encoding="utf-8")
    reading = read_document("s.md")
    assert reading.machine is None
    assert [(finding.code, finding.span.line) for finding in reading.diagnostics] == [("DSA113", 1)]


def test_the_faults_of_a_specs_machine_are_shown_in_its_file(folder):
    (folder / "m.md").write_text(MACHINE.replace("|go|a|", "|go|b!|"), encoding="utf-8")
    (folder / "s.md").write_text(SPEC, encoding="utf-8")
    assert {finding.span.path for finding in read_document("s.md").diagnostics} == {"m.md"}


def test_a_document_is_found_beside_another(folder):
    (folder / "x").mkdir()
    assert locate("m.md", folder / "x").name == "m.md"
    assert locate("../m.md", folder / "x").resolve() == (folder / "m.md").resolve()
