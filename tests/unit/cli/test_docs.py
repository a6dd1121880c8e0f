"""`dsa docs`: pages are written or only checked; mistakes are reported, and then nothing is written."""

import errno
import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from dsa.cli.main import program
from dsa.docs import pages
from dsa.edge import images
from dsa.edge.document_files import locate

MACHINE = locate("dual_state").read_text(encoding="utf-8")
PAGE = """# A page

Before.

<!-- dsa:diagram m.md -->
<!-- /dsa -->

Between.

<!-- dsa:verdicts m.md format=line -->
old
<!-- /dsa -->
"""


def dsa(*arguments: str) -> Result:
    return CliRunner().invoke(program, ["docs", *arguments])


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("m.md").write_text(MACHINE, encoding="utf-8")


def write(name: str, text: str) -> None:
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_bytes(text.encode())


def contents() -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(Path().rglob("*")) if path.is_file()}


def test_blocks_are_written_and_then_fresh():
    write("a.md", PAGE)
    done = dsa("a.md")
    assert (done.exit_code, done.output) == (
        0, "wrote a.md: diagram of m.md, verdicts of m.md\n2 blocks in 1 page: 2 written\n",
    )  # fmt: skip
    text = Path("a.md").read_text(encoding="utf-8")
    assert "<!-- dsa:diagram m.md -->\n\n```mermaid\nstateDiagram-v2\n" in text
    assert "\n\nChecked: 0 errors, 0 warnings, 3 of 3 scenarios pass, 5 of 5 properties HOLD" in text
    assert text.startswith("# A page\n\nBefore.\n\n<!--")
    assert "\n<!-- /dsa -->\n\nBetween.\n\n<!--" in text
    again = dsa("a.md")
    assert (again.exit_code, again.output) == (0, "2 blocks in 1 page: all fresh\n")
    assert Path("a.md").read_text(encoding="utf-8") == text
    assert dsa("a.md", "--check").exit_code == 0


def test_check_names_file_line_and_block_and_changes_nothing():
    write("a.md", PAGE)
    dsa("a.md")
    write("m.md", MACHINE.replace("| retries += 1 ", "|              "))
    before = contents()
    done = dsa("a.md", "--check")
    line = next(n for n, text in enumerate(Path("a.md").read_text().splitlines(), 1) if "dsa:verdicts" in text)
    assert done.exit_code == 1
    assert done.output.splitlines() == [
        "a.md:5: diagram of m.md is stale",
        f"a.md:{line}: verdicts of m.md is stale",
        "2 blocks in 1 page: 2 stale; run dsa docs without --check to write them",
    ]
    assert contents() == before


def test_fresh_block_is_not_stale_when_only_prose_of_its_document_changes():
    write("a.md", PAGE)
    dsa("a.md")
    Path("m.md").write_text(
        MACHINE.replace("# dual_state\n", "# dual_state\n\nMore is said here.\n", 1), encoding="utf-8"
    )
    assert dsa("a.md", "--check").exit_code == 0


def test_line_ends_and_a_missing_final_newline_are_preserved():
    write("a.md", PAGE.replace("\n", "\r\n").rstrip())
    dsa("a.md")
    data = Path("a.md").read_bytes()
    assert data.count(b"\n") == data.count(b"\r\n") > PAGE.count("\n")
    assert data.endswith(b"<!-- /dsa -->")
    assert dsa("a.md", "--check").exit_code == 0


def test_folder_means_all_its_pages_except_hidden_ones_and_links():
    for name in ("b/x.md", "b/c/y.markdown", ".hidden/z.md", "node_modules/z.md", "b/z.txt"):
        write(name, PAGE.replace("m.md", "dual_state"))
    Path("b/link.md").symlink_to("x.md")
    Path("loop").symlink_to(".")
    assert dsa(".", "b/x.md").output.splitlines() == [
        "wrote b/c/y.markdown: diagram of dual_state, verdicts of dual_state",
        "wrote b/x.md: diagram of dual_state, verdicts of dual_state",
        "4 blocks in 2 pages: 4 written",
    ]
    assert PAGE.replace("m.md", "dual_state") == Path(".hidden/z.md").read_text() == Path("b/z.txt").read_text()


def test_document_path_is_relative_to_the_folder_of_the_page(monkeypatch):
    write("b/a.md", "<!-- dsa:table n.md -->\n<!-- /dsa -->\n")
    write("b/n.md", MACHINE)
    assert dsa("b/a.md").exit_code == 0
    write("c/a.md", "<!-- dsa:table m.md -->\n<!-- /dsa -->\n")
    assert "m.md: there is no such file in c, and no shipped machine" in dsa("c/a.md").output
    monkeypatch.chdir("c")
    assert dsa("../b", "--check").exit_code == 0


def test_wrong_markers_are_all_reported_and_nothing_is_written():
    write("a.md", PAGE)
    write("b.md", "<!-- dsa:diagram nothing.md -->\n<!-- /dsa -->\n\n<!-- dsa:tabel m.md -->\n<!-- /dsa -->\n")
    write("c.md", "<!-- dsa:table broken.md -->\n<!-- /dsa -->\n\n<!-- dsa:table m.md -->\n")
    write("broken.md", MACHINE.replace("| validating | verdict ", "| validatin | verdict "))
    before = contents()
    for arguments in ((".",), (".", "--check")):
        done = dsa(*arguments)
        assert done.exit_code == 2
        places = [line.partition(" ")[0] for line in done.stderr.splitlines() if not line.startswith(" ")]
        assert places == ["b.md:1:1:", "b.md:4:1:", "c.md:1:1:", "c.md:4:1:", "4"]
        assert done.stderr.count("hint: ") == 4
        assert "broken.md is not a machine: " in done.stderr
        assert "hint: `dsa check broken.md` shows where the errors are" in done.stderr
        assert done.stderr.endswith("4 markers are wrong; nothing was written\n")
    assert contents() == before


def test_page_is_unchanged_when_writing_fails(monkeypatch):
    write("a.md", PAGE)

    def full(*_arguments):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    before = contents()
    monkeypatch.setattr(os, "fsync", full)
    done = dsa("a.md")
    assert isinstance(done.exception, OSError)
    assert contents() == before


def test_page_without_blocks_gets_a_hint_how_to_begin_one():
    write("a.md", "# Nothing here\n")
    done = dsa("a.md")
    assert (done.exit_code, done.output) == (
        0, "no blocks in 1 page; begin one with <!-- dsa:diagram machine.md --> and end it with <!-- /dsa -->\n",
    )  # fmt: skip


def test_page_that_is_not_text_is_named_if_it_has_markers():
    Path("a.md").write_bytes(b"\xff\xfe\n")
    assert dsa("a.md").exit_code == 0
    Path("a.md").write_bytes(b"\xff\n<!-- dsa:table m.md -->\n<!-- /dsa -->\n")
    done = dsa("a.md")
    assert "a.md: is not UTF-8 text" in f"{done.output}{done.exception}"
    assert done.exit_code != 0


def test_machine_document_may_have_blocks_about_itself():
    write("m.md", MACHINE.replace("# dual_state\n", "# dual_state\n\n<!-- dsa:diagram m.md -->\n<!-- /dsa -->\n\n<!-- dsa:verdicts m.md -->\n<!-- /dsa -->\n", 1))  # fmt: skip
    assert dsa("m.md").exit_code == 0
    assert dsa("m.md", "--check").exit_code == 0
    assert CliRunner().invoke(program, ["check", "m.md"]).exit_code == 0


@pytest.mark.parametrize(
    ("name", "section", "block"),
    [("dual_state", "Constraints", "table"), ("specs/dual_state", "Scenario: added", "scenarios")],
)  # fmt: skip
def test_block_that_would_change_its_document_is_refused(name, section, block):
    text = locate(name).read_text(encoding="utf-8")
    write("d.md", f"{text}\n## {section}\n\n<!-- dsa:{block} m.md -->\n<!-- /dsa -->\n")
    before = contents()
    done = dsa("d.md")
    assert done.exit_code == 2
    assert "the blocks change what this document means" in done.stderr
    assert contents() == before


# -- drawings ---------------------------------------------------------------------------------------------------------

DRAWN = "<!-- dsa:diagram m.md format=svg -->\n<!-- /dsa -->\n"


def test_drawing_is_written_beside_the_page_and_then_fresh(monkeypatch):
    write("b/a.md", DRAWN.replace("m.md", "../m.md"))
    write("b/c.md", DRAWN.replace("m.md", "../m.md"))
    done = dsa("b")
    assert done.exit_code == 0
    assert "wrote b/a.md: diagram of ../m.md (dual_state.svg)\n" in done.output
    assert "](dual_state.svg)" in Path("b/a.md").read_text()
    assert Path("b/dual_state.svg").read_text().startswith("<svg xmlns=")
    before = contents()
    # Whether a drawing is fresh does not depend on the renderer.
    monkeypatch.setattr(images, "portable_renderer", lambda: None)
    assert (dsa("b").output, dsa("b", "--check").exit_code) == ("2 blocks in 2 pages: all fresh\n", 0)
    assert contents() == before


@pytest.mark.parametrize("change", ["source", "drawing", "missing"])
def test_drawing_that_does_not_match_its_machine_is_stale(change):
    write("a.md", DRAWN)
    dsa("a.md")
    drawing = Path("dual_state.svg")
    was = drawing.read_bytes()
    if change == "source":
        write("m.md", MACHINE.replace("escalate_to_user", "call_somebody"))
    elif change == "drawing":
        drawing.write_bytes(was.replace(b"generating", b"GENERATING", 1))
    else:
        drawing.unlink()
    done = dsa("a.md", "--check")
    assert (done.exit_code, done.output.splitlines()[0]) == (1, "a.md:1: diagram of m.md (dual_state.svg) is stale")
    assert dsa("a.md").exit_code == 0
    assert dsa("a.md", "--check").exit_code == 0
    assert (drawing.read_bytes() == was) == (change != "source")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("../x.svg", "'../x.svg' is not a name for a drawing"),
        ("/tmp/x.svg", "'/tmp/x.svg' is not a name for a drawing"),
        ("x.png", "'x.png' is not a name for a drawing"),
        ("no/x.svg", "'no/x.svg' is not a name for a drawing"),
        ("b/../../x.svg", "is not a name for a drawing"),
        ("theirs.svg", "theirs.svg exists already, and dsa docs did not draw it"),
        ("dangling.svg", "dangling.svg is a link, or its folder is a link"),
        ("out/x.svg", "out/x.svg is a link, or its folder is a link"),
    ],
)
def test_drawing_overwrites_no_other_file_and_stays_in_its_folder(name, message, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    write("theirs.svg", "<svg/>")
    write("b/x", "")
    Path("dangling.svg").symlink_to(elsewhere / "x.svg")
    Path("out").symlink_to(elsewhere)
    write("a.md", DRAWN.replace("format", f"file={name} format"))
    before = contents()
    done = dsa("a.md")
    assert done.exit_code == 2
    assert message in done.stderr
    assert contents() == before
    assert list(elsewhere.iterdir()) == []


def test_two_machines_with_one_name_need_two_drawings():
    write("other.md", MACHINE.replace("escalate_to_user", "call_somebody"))
    write("a.md", DRAWN + DRAWN.replace("m.md", "other.md"))
    done = dsa("a.md")
    assert done.exit_code == 2
    assert "a.md:3:1: dual_state.svg is the drawing of another block\n        hint: write file=NAME.svg" in done.stderr
    write("a.md", DRAWN + DRAWN.replace("m.md", "other.md file=other.svg"))
    assert dsa("a.md").exit_code == 0
    assert Path("other.svg").exists()


def test_drawing_needs_graphviz_pure_and_says_so(monkeypatch):
    monkeypatch.setattr(images, "portable_renderer", lambda: None)
    write("a.md", DRAWN)
    done = dsa("a.md")
    assert "pip install graphviz-pure" in str(done.exception)
    assert Path("a.md").read_text() == DRAWN


# -- JSON -------------------------------------------------------------------------------------------------------------


def test_json_has_the_promised_shape():
    write("a.md", PAGE)
    write("b.md", "\n<!-- dsa:tabel m.md -->\n<!-- /dsa -->\n")
    done = dsa("a.md", "--json", "--check")
    assert json.loads(done.stdout) == {
        "pages": [
            {
                "file": "a.md",
                "blocks": [
                    {"line": 5, "block": "diagram", "document": "m.md", "options": {}, "stale": True, "drawing": None},
                    {"line": 10, "block": "verdicts", "document": "m.md", "options": {"format": "line"}, "stale": True, "drawing": None},
                ],
                "faults": [],
            }
        ],
        "written": False,
    }  # fmt: skip
    assert done.exit_code == 1
    done = dsa("b.md", "--json")
    (page,) = json.loads(done.stdout)["pages"]
    assert page["faults"] == [
        {"path": "b.md", "line": 2, "column": 1, "end": 24, "message": "there is no block 'tabel'", "hint": "did you mean 'table'?"}
    ]  # fmt: skip
    assert done.exit_code == 2


def test_document_of_many_blocks_is_checked_once(monkeypatch):
    checked = []
    real = pages.check
    monkeypatch.setattr(pages, "check", lambda machine, **more: checked.append(machine.name) or real(machine, **more))
    write("a.md", PAGE + PAGE)
    write("b.md", PAGE)
    dsa("a.md", "b.md")
    assert checked == ["dual_state"]
