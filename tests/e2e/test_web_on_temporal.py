"""The web page on runs of a Temporal namespace: `dsa web` and `dsa work` in separate processes, over real HTTP and in Chromium."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import httpx
import pytest
from pipe_browser import CHROMIUM, browser
from temporal_commands import ORDER, worker_process
from web_server import Outline, WebServer, events, web_server

DOCUMENT = ORDER.replace("| end.sent | final |", "| end.sent | final |\n| end.dropped | final |").replace(
    "| approved | outside |", "| again | outside |\n| approved | outside |"
)
DOCUMENT += "| drafted | again | looking | look |\n| drafted | after 24h | end.dropped | |\n"
BINDINGS = """import asyncio
from pathlib import Path

import dsa


@dsa.answering("found")
async def look(action, context):
    while Path(__file__).with_name("wait").exists():
        await asyncio.sleep(0.05)
    return [dsa.event_step("look", "found", data={"order": "A17"})]


effects = {"look": look}
"""


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    (tmp_path / "order.md").write_text(DOCUMENT)
    (tmp_path / "bindings.py").write_text(BINDINGS)
    return tmp_path


def run_of(page: WebServer, text: str) -> str:
    """Start a run, and return the address of its page."""
    answer = page.client.post("/runs/new", data={"machine": "0", "data": text, "form": "text"})
    assert answer.status_code == 200, Outline(answer.text).text
    return answer.url.raw_path.decode()


def asks(news: dict) -> bool:
    return "Send approved" in news["replace"].get("asks", "")


@pytest.mark.limit(100)
def test_runs_are_listed_followed_answered_interrupted_and_resumed(desk: Path, namespaces: Iterator[str]) -> None:
    where = next(namespaces)
    with worker_process(desk, where), web_server(desk, "order.md", runs=where) as page:
        page.client.get(page.address)
        first, second = run_of(page, "where?"), run_of(page, "when?")
        page.until(f"{first}/live?have=&after=0", asks)
        page.until(f"{second}/live?have=&after=0", asks)

        place = page.page(first).fields("place")[0]
        with page.client.stream("GET", f"{first}/live?have=&after=4") as answer:
            coming = events(answer)
            sent = page.client.post(
                f"{first}/answer", data={"event": "approved", "place": place}, follow_redirects=False
            )
            assert sent.status_code == 303, sent.text
            text = ""
            for _, news in coming:
                text += Outline(news.get("append", {}).get("moments", "")).text
                if "finished" in news["replace"].get("status", ""):
                    break
        assert "drafted -> end.sent" in text
        late = page.client.post(f"{first}/answer", data={"event": "approved", "place": place})
        assert (late.status_code, "was not taken" in late.text) == (409, True)

        old = page.page(second).fields("place")[0]
        assert page.client.post(f"{second}/answer", data={"event": "again", "place": old}).status_code == 200
        page.until(
            f"{second}/live?have=&after=0", lambda news: asks(news) and f'value="{old}"' not in news["replace"]["asks"]
        )
        late = page.client.post(f"{second}/answer", data={"event": "approved", "place": old})
        assert "late" in Outline(late.text).text

        assert "Interrupt" in page.page(second).text
        assert page.client.post(f"{second}/interrupt", data={"run": "it"}).status_code == 200
        assert "interrupted" in page.page(second).text
        assert "Resume" in page.page(second).text
        assert page.client.post(f"{second}/resume", data={"run": "it"}).status_code == 200
        page.until(f"{second}/live?have=&after=0", asks)

        assert "finished sent" in page.page("/runs?status=finished&machine=order").text
        assert "where?" not in page.page("/runs?waiting=approved").text
        assert "1 of the runs that match, the newest first; 2 runs in all" in page.page("/runs?waiting=approved").text
        assert "No run matches" in page.page("/runs?machine=other").text
        assert "has generated nothing" in page.page(f"{first}/attempts").text
        assert "The way here: 2 steps" in page.page(f"{first}/explore?at=2").text
        assert page.client.get("/runs/nothing").status_code == 404


@pytest.mark.limit(100)
def test_page_says_that_no_worker_answers_and_continues_with_the_next(desk: Path, namespaces: Iterator[str]) -> None:
    where = next(namespaces)
    with web_server(desk, "order.md", runs=where) as page:
        page.client.get(page.address)
        with worker_process(desk, where):
            run = run_of(page, "where?")
            page.until(f"{run}/live?have=&after=0", asks)
            stream = page.client.stream("GET", f"{run}/live?have=&after=0")
            answer = stream.__enter__()
            coming = events(answer)
            next(coming)
        try:
            with ThreadPoolExecutor(1) as beside:
                alert = beside.submit(
                    lambda: next(
                        n for _, n in coming if "waits for a worker; start one" in n["replace"].get("status", "")
                    )
                )
                with httpx.Client(base_url=page.base, cookies=page.client.cookies, timeout=5) as other:
                    while wait([alert], timeout=0.25).not_done:  # other pages do not wait for a worker
                        assert other.get("/").status_code == 200
                alert.result()
            with worker_process(desk, where):
                next(news for _, news in coming if "alert" not in news["replace"].get("status", "alert"))
        finally:
            stream.__exit__(None, None, None)


@pytest.mark.limit(100)
@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
def test_person_watches_and_answers_in_chromium(desk: Path, namespaces: Iterator[str]) -> None:
    where = next(namespaces)
    (desk / "wait").touch()
    with (
        worker_process(desk, where),
        web_server(desk, "order.md", runs=where) as page,
        browser(desk / "profile") as tab,
    ):
        tab.visit(page.address)
        tab.visit(f"{page.base}/runs/new?machine=0")
        tab.evaluate("document.querySelector('textarea').value = 'where?'")
        tab.press("Start")
        tab.until("document.querySelector('g.now')?.dataset.name === 'looking'")
        tab.until_it_reads("under way")
        (desk / "wait").unlink()
        tab.until("document.querySelector('g.now')?.dataset.name === 'drafted'")
        tab.press("Send approved")
        tab.until("document.querySelector('.badge')?.innerText === 'finished'")
        tab.visit(f"{page.base}/runs")
        tab.until_it_reads("1 of 1 run", "where?", "finished")
        assert tab.complaints == []
