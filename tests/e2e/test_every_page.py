"""Every page and state in Chromium: an accessibility checker (axe-core) finds nothing serious, nothing runs over the edge, and the browser refuses nothing."""

import json
from itertools import pairwise

import pytest
from pipe_browser import browser
from web_gallery import PAGES, axe_faults, typed
from web_server import LEAVE, web_server

#: The widths and schemes in which pages are checked, alternately.
TURNS = (1440, False), (380, True)
ALL = tuple((width, is_dark) for width in (1440, 800, 380) for is_dark in (False, True))
OPEN_ALL = "document.querySelectorAll('details').forEach((each) => { each.open = true; })"
#: Responses that the pages expect; the browser reports them as errors.
REFUSALS = ("status of 401", "status of 404", "status of 409")


def unnamed(tab) -> list[str]:
    """Return the controls without an accessible name, the duplicate ids, and the levels that headings skip."""
    nodes = tab.call("Accessibility.getFullAXTree")["nodes"]
    roles = {"button", "link", "textbox", "combobox", "checkbox", "radio", "image", "region", "DisclosureTriangle"}
    faults = [
        f"{node['role']['value']} without a name"
        for node in nodes
        if node.get("role", {}).get("value") in roles and not node.get("name", {}).get("value", "").strip()
    ]
    ids = tab.evaluate("[...document.querySelectorAll('[id]')].map((each) => each.id)")
    levels = tab.evaluate("[...document.querySelectorAll('h1, h2, h3, h4')].map((each) => Number(each.tagName[1]))")
    faults += [f"id {each} twice" for each in set(ids) if ids.count(each) > 1]
    return faults + [f"h{low} after h{high}" for high, low in pairwise([0, *levels]) if low > high + 1]


def faults_at(tab, width, *, is_dark):
    """Return the faults of the page that is shown, with all its details opened."""
    tab.evaluate(OPEN_ALL)
    faults = axe_faults(tab) + unnamed(tab)
    over = tab.evaluate("document.documentElement.scrollWidth") - width
    faults += [f"{over} pixels wider than the window"] if over > 0 else []
    is_light = tab.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    faults += ["the other scheme"] if is_light is is_dark else []
    faults += [each for each in tab.complaints if not any(word in each for word in REFUSALS)]
    tab.complaints.clear()
    return [f"{width} {'dark' if is_dark else 'light'}: {fault}" for fault in faults]


def faults_of(shown, name, sights):
    faults = []
    for width, is_dark in sights:
        shown.tab.show_at(width, is_dark=is_dark)
        shown.visit(name)
        faults += faults_at(shown.tab, width, is_dark=is_dark)
    return faults


def test_every_page_is_accessible(shown):
    faults = {name: faults_of(shown, name, [TURNS[number % 2]]) for number, name in enumerate(PAGES)}
    assert {name: each for name, each in faults.items() if each} == {}


@pytest.mark.full
@pytest.mark.limit(600)
def test_every_page_is_accessible_at_every_width_in_both_schemes(shown):
    faults = {name: faults_of(shown, name, ALL) for name in PAGES}
    assert {name: each for name, each in faults.items() if each} == {}


def test_proofs_and_mutants_are_accessible(shown):
    shown.tab.show_at(800)
    shown.tab.visit(f"{shown.server.base}/machines/2")
    shown.tab.press("Prove for all values of the parameters")
    shown.tab.until_it_reads("Prove again")
    shown.tab.press("Plant small faults")
    shown.tab.until_it_reads("Plant small faults again")
    assert faults_at(shown.tab, 800, is_dark=False) == []


def test_responses_to_forms_are_accessible(shown):
    shown.tab.show_at(380)
    shown.visit("start of a run")
    shown.tab.evaluate("document.getElementById('p.days').value = 'many'")
    shown.tab.press("Start")
    shown.tab.until("document.querySelector('[role=alert]')")
    assert "many" in shown.tab.text
    assert faults_at(shown.tab, 380, is_dark=False) == []
    shown.visit("start of a conversation")
    shown.tab.press("Begin")
    shown.tab.until_it_reads("the first message is empty")
    assert faults_at(shown.tab, 380, is_dark=False) == []
    run = f"/runs/{shown.runs['long']}"
    shown.tab.visit(shown.server.base + run)
    # The form stays.
    shown.tab.evaluate("const form = document.querySelector('form[data-keep^=again]'); document.body.append(form)")
    place = shown.server.page(run).fields("place")[0]
    shown.server.client.post(f"{run}/answer", data={"event": "approved", "place": place})
    shown.tab.press("Send again")
    shown.tab.until_it_reads("was not taken", "is final")
    assert faults_at(shown.tab, 380, is_dark=False) == []
    shown.tab.visit(shown.server.base)
    shown.tab.press("Let in another browser")
    shown.tab.until_it_reads("Open this address in the other browser")
    assert faults_at(shown.tab, 380, is_dark=False) == []


def test_empty_pages_are_accessible(tmp_path):
    with web_server(tmp_path) as server, browser(tmp_path / "profile") as tab:
        tab.show_at(380)
        tab.visit(f"{server.base}/runs")
        tab.until_it_reads("Open the address that")
        assert faults_at(tab, 380, is_dark=False) == []
        tab.visit(server.address)
        for path, words in (
            ("/", "No machine is open here"),
            ("/runs", "There are no runs here yet"),
            ("/runs/new", "No machine is open here"),
        ):
            tab.visit(f"{server.base}{path}")
            tab.until_it_reads(words)
            assert faults_at(tab, 380, is_dark=False) == []


def test_static_page_is_accessible(tmp_path):
    (tmp_path / "leave.md").write_text(LEAVE)
    assert typed(tmp_path, "draw", "leave.md", "--format", "html", "-o", "leave.html", runs=None).returncode == 0
    with browser(tmp_path / "profile") as tab:
        for width, is_dark in TURNS:
            tab.show_at(width, is_dark=is_dark)
            tab.visit((tmp_path / "leave.html").as_uri())
            tab.until_it_reads("1 of 2 properties is VIOLATED")
            assert faults_at(tab, width, is_dark=is_dark) == []


def test_accessibility_checker_finds_planted_faults(shown):
    shown.visit("machines")
    shown.tab.evaluate(
        f"document.body.insertAdjacentHTML('beforeend', {json.dumps('<img src=/static/icon.svg><button></button>')})"
    )
    assert {each.split(": ")[1] for each in axe_faults(shown.tab)} == {"image-alt", "button-name"}
