"""`dsa draw --format html`: one file that shows the results of `dsa check`, and explores the machine as `step` would, without a server."""

import re

import pytest
from click.testing import CliRunner
from pipe_browser import CHROMIUM, browser
from web_server import LEAVE, Outline

from dsa.cli.main import program


def written_page(folder, text=LEAVE):
    (folder / "leave.md").write_text(text)
    result = CliRunner().invoke(program, ["draw", str(folder / "leave.md"), "-o", str(folder / "leave.html")])
    assert result.exit_code == 0, result.output
    return folder / "leave.html"


def test_page_has_table_verdicts_and_diagram(tmp_path):
    page = Outline(written_page(tmp_path).read_text())
    assert "1 of 2 properties HOLD" in page.text
    assert "Counterexample: 4 steps" in page.text
    assert "asks < days" in page.text
    assert "Diagram of leave" in [values.get("aria-label") for _, values in page.elements]
    addresses = [values[name] for _, values in page.elements for name in ("href", "src", "action") if name in values]
    assert all(each.startswith("#") for each in addresses), "all links stay in the page"
    ids = [values["id"] for _, values in page.elements if "id" in values]
    assert len(ids) == len(set(ids))


def test_same_document_gives_the_same_page(tmp_path):
    assert written_page(tmp_path).read_bytes() == written_page(tmp_path).read_bytes()


def test_hostile_document_adds_no_html_element(tmp_path):
    mean = "</script><script>alert(1)</script><img src=x onerror=alert(1)>"
    plain, page = (
        Outline(written_page(tmp_path, LEAVE.replace("# leave", f"# leave\n\n{text}", 1)).read_text())
        for text in ("harmless", mean)
    )
    assert page.shape == plain.shape
    assert mean in page.text


def test_options_for_drawings_are_refused(tmp_path):
    page = written_page(tmp_path).with_suffix(".md")
    for option in ("--rows", "--full"):
        result = CliRunner().invoke(program, ["draw", str(page), "--format", "html", option])
        assert result.exit_code == 2
        assert "as it is written" in result.output


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
def test_explorer_walks_without_a_server(tmp_path):
    address = written_page(tmp_path).as_uri()
    with browser(tmp_path / "profile") as tab:
        tab.visit(address)
        tab.until_it_reads("Explorer", "idle")
        tab.press("asked")
        tab.press("again")
        tab.until_it_reads("asks = 1")
        assert tab.evaluate("document.querySelector('g.now').dataset.name") == "asking"
        assert tab.evaluate("document.querySelectorAll('g.past').length") > 0
        assert re.search("-", tab.evaluate("location.hash"))
        hash_there = tab.evaluate("location.hash")
        tab.press("approved")
        tab.until_it_reads("A run ends here")
        tab.press("Refused")
        assert "no row" in tab.text or "refused" in tab.text.lower()
        tab.evaluate("document.body.dispatchEvent(new KeyboardEvent('keydown', {key: 'Backspace', bubbles: true}))")
        tab.until_it_reads("asks = 1")
        tab.visit("about:blank")
        tab.visit(f"{address}{hash_there}")
        tab.until_it_reads("asks = 1")
        for width in (1440, 380):
            tab.show_at(width)
            assert tab.evaluate("document.documentElement.scrollWidth") <= width
        assert tab.complaints == []
