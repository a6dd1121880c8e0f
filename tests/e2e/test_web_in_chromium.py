"""The web page as a person uses it in Chromium: reading, pressing and typing, with everything that the browser itself refuses."""

import pytest
from pipe_browser import CHROMIUM, browser
from web_server import LEAVE, Outline, free_port, web_server

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
HOSTILE = '<img src=x onerror="document.title=1"><script>document.title=1</script>'


@pytest.fixture
def visit(tmp_path):
    """A server with a machine, and a browser with access."""
    (tmp_path / "leave.md").write_text(LEAVE)
    with web_server(tmp_path, "leave.md") as server, browser(tmp_path / "profile") as tab:
        server.client.get(server.address)
        tab.visit(Outline(server.client.post("/invitation").text).values("aria-label", "Address")[0])
        yield server, tab, tmp_path
        assert tab.complaints == []


def test_machine_is_edited_and_checked(visit):
    _server, tab, folder = visit
    tab.press("leave.md")
    tab.until_it_reads("1 of 2 properties is VIOLATED")
    is_open = "document.querySelector('#counterexample1').closest('details').open"
    assert not tab.evaluate(is_open)
    tab.press("Counterexample")
    tab.until(is_open)  # the link at the row opens it
    assert "the counterexample ends with this row" in tab.text
    assert "asks = 3" in tab.text
    tab.evaluate("document.querySelector('#counterexample1').closest('details').querySelector('summary').focus()")
    (folder / "leave.md").write_text(LEAVE.replace("- possible granted", "- possible idle"))
    tab.until_it_reads("possible idle", "1 of 2 properties is VIOLATED")
    assert "asks = 3" in tab.text, "what was opened stays open"
    assert tab.evaluate("document.activeElement.textContent") == "Counterexample: 4 steps", (
        "the focus comes back with it"
    )
    tab.press("Walk through it in the explorer")
    tab.until_it_reads("The way here: 4 steps")
    assert tab.evaluate("document.querySelector('g.now').dataset.name") == "asking"
    tab.evaluate("document.body.dispatchEvent(new KeyboardEvent('keydown', {key: 'Backspace', bubbles: true}))")
    tab.until_it_reads("The way here: 3 steps")


def test_run_is_started_watched_and_answered(visit):
    server, tab, _ = visit
    tab.visit(f"{server.base}/runs/new?machine=0")
    tab.evaluate(f"document.querySelector('textarea').value = {HOSTILE!r}")
    tab.press("Start")
    tab.until("document.querySelector('g.now')?.dataset.name === 'asking'")
    assert HOSTILE in tab.text
    tab.press("Data of approved")
    tab.evaluate("document.querySelector('form[data-keep^=approved] textarea').value = 'typed'")
    run = tab.evaluate("location.pathname")
    place = server.page(run).fields("place")[0]
    server.client.post(f"{run}/answer", data={"event": "again", "place": place})
    tab.until_it_reads("asks = 1")  # another answer was faster, and the page shows it
    tab.press("Send approved")
    tab.until("document.querySelector('.badge')?.innerText === 'finished'")
    assert tab.evaluate("document.querySelector('g.now').dataset.name") == "granted"
    assert not tab.evaluate("document.title").startswith("1")


def test_open_page_reconnects_after_its_server_was_killed(tmp_path):
    (tmp_path / "leave.md").write_text(LEAVE)
    port = free_port()
    with browser(tmp_path / "profile") as tab:
        with web_server(tmp_path, "leave.md", port=port) as first:
            tab.visit(first.address)
            tab.visit(f"{first.base}/runs/new?machine=0")
            tab.evaluate("document.querySelector('textarea').value = 'two days'")
            tab.press("Start")
            tab.until_it_reads("waiting", "asking", "live")
            first.process.kill()
            first.process.wait(30)
            tab.until_it_reads("connecting again")
        with web_server(tmp_path, "leave.md", port=port):
            tab.until_it_reads("live")
            tab.press("Send approved")
            tab.until("document.querySelector('.badge')?.innerText === 'finished'")
            ids = tab.evaluate("[...document.querySelectorAll('#moments > tr')].map((each) => each.id)")
            assert ids == [f"moment{number}" for number in range(1, len(ids) + 1)]


def test_page_of_another_site_cannot_post(visit, tmp_path):
    server, tab, _ = visit
    (tmp_path / "evil.html").write_text(
        f"<form method=post action='{server.base}/runs/new'><input name=machine value=0><input name=data value=evil></form><script>document.forms[0].submit()</script>"
    )
    tab.visit((tmp_path / "evil.html").as_uri())
    tab.until("document.title.startsWith('Another origin') || document.title.startsWith('Not let in')")
    assert "There are no runs here yet" in " ".join(server.page("/runs").text.split())
    tab.complaints.clear()  # the complaint is about the refusal itself


COUNT = """
window.counts = {now: 0, most: 0, all: 0};
const plain = window.fetch;
window.fetch = (...given) => {
  counts.now += 1; counts.all += 1; counts.most = Math.max(counts.most, counts.now);
  return plain(...given).finally(() => { counts.now -= 1; });
};
"""


def move(tab, name, *values):
    """Move the slider of a field to these values, one right after the other."""
    slider = f"document.querySelector('[data-twin=\"{name}\"]')"
    for value in values:
        tab.evaluate(f"{slider}.value = '{value}'; {slider}.dispatchEvent(new Event('input', {{bubbles: true}}))")


def test_sliders_change_numbers_and_plot_without_loading_a_page(tmp_path):
    with web_server(tmp_path, "dual_state") as server, browser(tmp_path / "profile") as tab:
        tab.visit(server.address)
        tab.visit(f"{server.base}/machines/0/odds")
        tab.until_it_reads("What is assumed")
        order = "document.querySelector('form[data-answer]').getBoundingClientRect().bottom <= document.querySelector('#answer').getBoundingClientRect().top"
        tab.show_at(380)
        assert tab.evaluate(order), "the form stands above its answer"
        tab.show_at(1440)
        assert not tab.evaluate(order), "beside it"
        tab.evaluate(COUNT)
        move(tab, "pass.g", 0.5)
        tab.until_it_reads("ends in", "probability of success")
        line = tab.evaluate("document.querySelector('.plot polyline').getAttribute('points')")
        move(tab, "pass.g", *(number / 100 for number in range(51, 91)))
        tab.until(
            "document.querySelector('[name=\"pass.g\"]').value === '0.9' && !document.querySelector('[aria-busy]')"
        )
        counts = tab.evaluate("counts")
        assert (counts["most"], counts["now"]) == (1, 0), "one request at a time"
        assert counts["all"] < 41, "what was passed over is not asked for"
        assert tab.evaluate("document.querySelector('.plot polyline').getAttribute('points')") != line
        move(tab, "p.rmax", 1)
        tab.until(
            "document.querySelector('#answer pre')?.innerText.includes('rmax = 1') && !document.querySelector('[aria-busy]')"
        )
        assert "succeeded  0.99" in tab.text, "1 - 0.1 * 0.1"
        tab.write("pass.g", "often")
        tab.until_it_reads("'often' is not a number")
        tab.write("pass.g", "0.3")
        tab.until_it_reads("ends in", "0.51")
        assert tab.evaluate("document.querySelector('[data-twin=\"pass.g\"]').value") == "0.3"
        assert tab.evaluate("counts.most") == 1
        shown, address = tab.evaluate("document.querySelector('#answer').innerText"), tab.evaluate("location.href")
        tab.visit(address)
        assert tab.evaluate("document.querySelector('#answer').innerText") == shown, (
            "the address is that of what is shown"
        )
        assert all("409" in each for each in tab.complaints), "of the mistake alone"


def test_notes_of_a_wide_table_can_be_read_on_a_narrow_screen(visit):
    server, tab, folder = visit
    row = "| asking | again    | asks < days |"
    wide = LEAVE.replace(row, row.replace("asks < days", "asks < days and " + " and ".join(["asks >= 0"] * 12)))
    (folder / "leave.md").write_text(wide)
    tab.show_at(380)
    tab.visit(f"{server.base}/machines/0")
    tab.until_it_reads("the counterexample ends with this row")
    table = "document.querySelector('tr.last-row').closest('table')"
    assert tab.evaluate(f"{table}.getBoundingClientRect().width") > 380
    note = "document.querySelector('tr.last-row + tr.notes .note').getBoundingClientRect()"
    for scrolled in (0, 60):
        tab.evaluate(f"{table}.parentElement.scrollLeft = {scrolled}")
        assert tab.evaluate(f"{note}.left") >= 0
        assert tab.evaluate(f"{note}.right") <= 380
