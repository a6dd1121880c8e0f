"""Hostile texts over real HTTP: in runs, in every address and every field of a form, and in documents. They all stay plain text."""

from urllib.parse import quote

import pytest
from hostile_texts import HOSTILE, foreign_in
from web_server import LEAVE, Outline, open_web_server, web_server


@pytest.fixture
def server(tmp_path):
    with open_web_server(tmp_path) as here:
        yield here


def test_hostile_text_of_a_run_adds_no_html_element(server):
    assert len(HOSTILE) == 40
    plain = server.page(server.start("harmless")).shape
    for text in HOSTILE:
        path = server.start(text)
        page = server.page(path)
        assert page.shape == plain, text
        assert not any(each in page.text for each in "\x00\u202e\u2028\u00ad\x1b")
    runs = server.page("/runs").elements
    assert [values for tag, values in runs if tag == "script"] == [{"src": "/static/page.js", "defer": None}]
    assert not {"img", "iframe", "style"} & {tag for tag, _ in runs}


ADDRESSES = (
    "/?token={0}", "/machines/{0}", "/machines/0/{0}", "/machines/0/live?have={0}", "/machines/1/explore?do=specification&do={0}", "/machines/0/explore?p.days={0}&{0}=1",
    "/machines/0/odds?{0}=1&p.{0}=1&pass.{0}=0.5&fatal.g={0}&event.again={0}&outside={0}&part={0}", "/runs?page={0}&due={0}&{0}=1", "/runs/new?machine={0}&{0}=1", "/runs/begin/{0}",
    "/runs/{0}", "/runs/{0}/attempts", "/runs/{0}/explore", "/runs/{0}/changes", "/runs/{0}/live", "RUN?before={0}", "RUN/attempts?before={0}", "RUN/explore?at={0}&do={0}", "RUN/earlier?before={0}",
    "RUN/files/{0}", "RUN/{0}", "/static/{0}", "/{0}",
)  # fmt: skip
FORMS = (
    ("RUN/answer", ("event", "place", "data", "form")), ("RUN/answer", ("event", "place")), ("RUN/resume", ("key", "decision", "data")), ("RUN/interrupt", ("run",)),
    ("/runs/{0}/answer", ("event", "place")), ("/machines/0/start/{0}", ()), ("/machines/0/stop/{0}", ()), ("/runs/begin/{0}", ("goal",)), ("/runs/new", ("machine", "p.days", "form")),
    ("/invitation", ("again",)),
)  # fmt: skip


def test_hostile_text_in_every_address_and_field_adds_no_html_element(server):
    run = server.start("?")
    for text in HOSTILE:
        plain = text[:200].replace("\0", "").replace("\ufeff", "")
        value, answers = quote(plain, safe=""), {}
        for address in (each for each in ADDRESSES if not each.endswith(("live", "have={0}"))):
            answers[address] = server.client.get(address.replace("RUN", run).format(value))
        for address, fields in FORMS:
            answers[address] = server.client.post(
                address.replace("RUN", run).format(value), data=dict.fromkeys(fields, text)
            )
        faults = {
            address: foreign_in(each.text)
            for address, each in answers.items()
            if "html" in each.headers.get("content-type", "html")
        }
        assert {address: each for address, each in faults.items() if each} == {}, text
        assert [address for address, each in answers.items() if each.status_code >= 500] == [], text
        assert all(each.url.host == "127.0.0.1" for each in answers.values())
    for address in ("/machines/0/live?have={0}", f"{run}/live?have={{0}}&after={{0}}"):
        news = server.until(
            address.format(quote("<script>", safe="")), lambda news: True, **{"last-event-id": "<script>"}
        )
        assert [foreign_in(html) for html in news["replace"].values() if foreign_in(html)] == []


def test_hostile_text_in_addresses_and_forms_keeps_the_page_structure(server):
    client = server.client
    usual = client.post("/runs/new", data={"machine": "0", "p.days": "no", "data": "x", "model": "y"})
    assert usual.status_code == 409
    same = dict.fromkeys(("status", "machine", "waiting"), "a")
    runs, explorer = client.get("/runs", params=same), client.get("/machines/0/explore", params={"do": "a"})
    odds = client.get("/machines/0/odds", params=dict.fromkeys(("vary", "success", "target", "pass.g", "p.days"), "a"))
    begun = client.post("/runs/begin/chat", data={"message": "a", "data": "a", "model": "a"})
    coding = ("goal", "workspace", "model", "mode")
    work = client.post("/runs/begin/coding", data=dict.fromkeys(coding, "a"))
    answer = client.get("/machines/0/odds", params={"part": "answer", "pass.g": "a"})
    for text in HOSTILE:
        mean = client.post("/runs/new", data={"machine": "0", "p.days": text, "data": text, "model": text})
        assert Outline(mean.text).shape == Outline(usual.text).shape, text
        mean = client.get("/runs", params=dict.fromkeys(same, text))
        assert Outline(mean.text).shape == Outline(runs.text).shape, text
        mean = client.get("/machines/0/explore", params={"do": text})
        assert Outline(mean.text).shape == Outline(explorer.text).shape, text
        mean = client.get(
            "/machines/0/odds", params=dict.fromkeys(("vary", "success", "target", "pass.g", "p.days"), text)
        )
        assert Outline(mean.text).shape == Outline(odds.text).shape, text
        mean = client.post("/runs/begin/chat", data={"message": text, "data": text, "model": text})
        assert Outline(mean.text).shape == Outline(begun.text).shape, text
        mean = client.post("/runs/begin/coding", data=dict.fromkeys(coding, text))
        assert (mean.status_code, Outline(mean.text).shape) == (409, Outline(work.text).shape), text
        mean = client.get("/machines/0/odds", params={"part": "answer", "pass.g": text})
        assert Outline(mean.text).shape == Outline(answer.text).shape, text
        lost = Outline(client.get(f"/runs/{quote(text[:200].replace(chr(0), ''), safe='')}").text)
        assert not {"img", "svg", "iframe", "form"} & {tag for tag, _ in lost.elements}, text


def test_hostile_document_adds_no_html_element(tmp_path):
    rows = "\n".join(f"| {text.replace(chr(0), '').replace('|', '')} | outside |" for text in HOSTILE[:20])
    name = "<img src=x onerror=alert(1)>.md"
    (tmp_path / name).write_text(
        LEAVE.replace("| asked    | outside |", f"| asked    | outside |\n{rows}") + "\n\n".join(HOSTILE)
    )
    with web_server(tmp_path, name) as here:
        here.client.get(here.address)
        for path in ("/", "/machines/0", "/machines/0/explore", "/runs/new?machine=0", "/machines/0/odds"):
            html = here.client.get(path).text
            assert foreign_in(html) == []
            page = Outline(html)
            assert not {"img", "iframe", "object", "base", "style", "math"} & {tag for tag, _ in page.elements}
            assert [values for tag, values in page.elements if tag == "script"] == [
                {"src": "/static/page.js", "defer": None}
            ]
            assert not any(key.startswith("on") or key == "style" for _, values in page.elements for key in values)
