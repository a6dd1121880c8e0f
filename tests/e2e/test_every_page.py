"""Every page and state in Chromium: an accessibility checker (axe-core) finds nothing serious, nothing runs over the edge, and the browser refuses nothing."""

import json

import pytest
from pipe_browser import browser
from web_gallery import PAGES, axe_faults, gallery, typed
from web_server import LEAVE, web_server

#: The widths and schemes in which each page is looked at.
EACH, ALL = ((1440, False), (380, True)), ((1440, True), (800, False), (800, True), (380, False))
OPEN_ALL = "document.querySelectorAll('details').forEach((each) => { each.open = true; })"
#: Answers that are not pages are what these pages are about; the browser notes them.
REFUSALS = ("status of 401", "status of 404", "status of 409")


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    with gallery(tmp_path_factory.mktemp("gallery")) as opened:
        yield opened


def faults_at(tab, width, *, is_dark):
    """Return what is wrong with the page that is shown, with all that can be opened open."""
    tab.evaluate(OPEN_ALL)
    faults = axe_faults(tab)
    over = tab.evaluate("document.documentElement.scrollWidth") - width
    faults += [f"{over} pixels wider than the window"] if over > 0 else []
    is_light = tab.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    faults += ["the other scheme"] if is_light is is_dark else []
    faults += [each for each in tab.complaints if not any(word in each for word in REFUSALS)]
    tab.complaints.clear()
    return [f"{width} {'dark' if is_dark else 'light'}: {fault}" for fault in faults]


def faults_of(here, name, sights):
    faults = []
    for width, is_dark in sights:
        here.tab.show_at(width, is_dark=is_dark)
        here.visit(name)
        faults += faults_at(here.tab, width, is_dark=is_dark)
    return faults


def test_every_page_can_be_read_by_everybody(here):
    faults = {name: faults_of(here, name, EACH) for name in PAGES}
    assert {name: each for name, each in faults.items() if each} == {}


@pytest.mark.full
@pytest.mark.limit(600)
def test_every_page_can_be_read_at_every_width_in_both_schemes(here):
    faults = {name: faults_of(here, name, ALL) for name in PAGES}
    assert {name: each for name, each in faults.items() if each} == {}


def test_proofs_and_mutants_can_be_read_by_everybody(here):
    here.tab.show_at(800)
    here.tab.visit(f"{here.server.base}/machines/2")
    here.tab.press("Prove for all values of the parameters")
    here.tab.until_it_reads("Prove again")
    here.tab.press("Plant small faults")
    here.tab.until_it_reads("Plant them again")
    assert faults_at(here.tab, 800, is_dark=False) == []


def test_answers_of_forms_can_be_read_by_everybody(here):
    here.tab.show_at(380)
    here.visit("start of a run")
    here.tab.evaluate("document.getElementById('p.days').value = 'many'")
    here.tab.press("Start")
    here.tab.until("document.querySelector('[role=alert]')")
    assert "many" in here.tab.text
    assert faults_at(here.tab, 380, is_dark=False) == []
    here.visit("start of a conversation")
    here.tab.press("Begin")
    here.tab.until_it_reads("the first message is empty")
    assert faults_at(here.tab, 380, is_dark=False) == []
    run = f"/runs/{here.runs['long']}"
    here.tab.visit(here.server.base + run)
    here.tab.evaluate(
        "const form = document.querySelector('form[data-keep^=again]'); document.body.append(form)"
    )  # it stays
    place = here.server.page(run).fields("place")[0]
    here.server.client.post(f"{run}/answer", data={"event": "approved", "place": place})
    here.tab.press("Send again")
    here.tab.until_it_reads("was not taken", "is final")
    assert faults_at(here.tab, 380, is_dark=False) == []
    here.tab.visit(here.server.base)
    here.tab.press("Let in another browser")
    here.tab.until_it_reads("Open this address in the other browser")
    assert faults_at(here.tab, 380, is_dark=False) == []


def test_pages_without_anything_can_be_read_by_everybody(tmp_path):
    with web_server(tmp_path) as server, browser(tmp_path / "profile") as tab:
        tab.show_at(380)
        tab.visit(f"{server.base}/runs")
        tab.until_it_reads("Open the address that")
        assert faults_at(tab, 380, is_dark=False) == []
        tab.visit(server.address)
        for path, words in (
            ("/", "No machine is open here"),
            ("/runs", "No run is kept here yet"),
            ("/runs/new", "No machine is open here"),
        ):
            tab.visit(f"{server.base}{path}")
            tab.until_it_reads(words)
            assert faults_at(tab, 380, is_dark=False) == []


def test_static_page_can_be_read_by_everybody(tmp_path):
    (tmp_path / "leave.md").write_text(LEAVE)
    assert typed(tmp_path, "draw", "leave.md", "--format", "html", "-o", "leave.html", runs=None).returncode == 0
    with browser(tmp_path / "profile") as tab:
        for width, is_dark in EACH:
            tab.show_at(width, is_dark=is_dark)
            tab.visit((tmp_path / "leave.html").as_uri())
            tab.until_it_reads("1 VIOLATED")
            assert faults_at(tab, width, is_dark=is_dark) == []


def test_checker_finds_what_it_must(here):
    here.visit("machines")
    here.tab.evaluate(
        f"document.body.insertAdjacentHTML('beforeend', {json.dumps('<img src=/static/icon.svg><button></button>')})"
    )
    assert {each.split(": ")[1] for each in axe_faults(here.tab)} == {"image-alt", "button-name"}
