"""The web page over real HTTP: access, pages, and actions of people."""

import os
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import httpx
import pytest
from hostile_texts import HOSTILE
from web_server import LEAVE, Outline, events, free_port, open_web_server, web_server

from dsa.edge.images import portable_renderer


@pytest.fixture
def server(tmp_path):
    with open_web_server(tmp_path) as here:
        yield here


# -- the gate ----------------------------------------------------------------------------------------------------------


def test_token_lets_one_browser_in(tmp_path):
    with web_server(tmp_path) as here:
        refused = here.client.get("/")
        assert refused.status_code == 401
        assert "press 'Let in another browser'" in Outline(refused.text).text
        assert here.client.get("/?token=guess").status_code == 401
        with httpx.Client() as other:
            answer = other.get(here.address)
            assert (answer.status_code, answer.headers["location"]) == (303, "/")
            cookie = answer.headers["set-cookie"].lower()
            assert "httponly" in cookie
            assert "samesite=strict" in cookie
        assert here.client.get(here.address).status_code == 401  # the token is spent
        assert here.client.get("/runs").status_code == 401
        assert here.client.get("/static/page.css").status_code == 200  # so that a refusal can be read


def test_invitation_lets_in_another_browser(server):
    address = next(
        values["value"] for tag, values in Outline(server.client.post("/invitation").text).elements if tag == "input"
    )
    with httpx.Client(follow_redirects=True) as other:
        assert other.get(address).status_code == 200
        assert other.get(f"{server.base}/runs").status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "localhost:1", "127.0.0.1.evil.example:80"])
def test_other_host_is_refused(server, host):
    assert server.client.get("/", headers={"host": host}).status_code == 403


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:1", "https://127.0.0.1"])
def test_post_from_another_origin_is_refused(server, origin):
    answer = server.client.post("/runs/new", data={"machine": "0"}, headers={"origin": origin})
    assert answer.status_code == 403
    assert "There are no runs here yet" in server.page("/runs").text


def test_post_without_origin_is_refused(server):
    cookies = {cookie.name: cookie.value for cookie in server.client.cookies.jar}
    with httpx.Client(base_url=server.base, cookies=cookies) as plain:
        assert plain.get("/runs").status_code == 200
        assert plain.post("/runs/new", data={"machine": "0"}).status_code == 403


def test_every_answer_forbids_inline_code_and_other_hosts(server):
    for path in ("/", "/machines/0", "/runs", "/static/page.js", "/nowhere", "/machines/0/explore"):
        headers = server.client.get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert (headers["x-content-type-options"], headers["referrer-policy"]) == ("nosniff", "same-origin")


def test_file_outside_the_static_folder_is_not_served(server):
    for path in ("/static/../server.py", "/static/%2e%2e/server.py", "/static/%2e%2e%2f%2e%2e%2fcli/main.py"):
        assert server.client.get(path).status_code == 404


def test_missing_extra_is_named(tmp_path):
    code = "import sys; sys.modules['starlette'] = None; import dsa.cli.main as m; m.main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "web"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "pip install '.[web]'" in done.stderr


# -- machines ----------------------------------------------------------------------------------------------------------


def test_machine_page_shows_verdicts_and_follows_the_file(server, tmp_path):
    page = server.page("/machines/0")
    assert "asks < days" in page.text
    live = "/machines/0/live?have="
    news = server.until(live, lambda news: "VIOLATED" in news["replace"].get("table", ""))
    assert "Counterexample: 4 steps" in Outline(news["replace"]["table"]).text
    assert "1 of 2 properties HOLD" in Outline(news["replace"]["status"]).text
    with server.client.stream("GET", live, headers={"last-event-id": news["id"]}) as answer:
        coming = events(answer)
        (tmp_path / "leave.md").write_text(LEAVE.replace("always asks < days", "always asks <= days"))
        found = next(news for _, news in coming if "2 of 2 properties HOLD" in news["replace"].get("status", ""))
    assert found["replace"].keys() <= {"status", "words", "table", "diagram", "proofs", "mutants"}


def test_list_of_machines_shows_the_status_of_each(tmp_path):
    faulty = LEAVE.replace("| asking | again    | asks < days |", "| asking | again    | asks <= days |")
    broken = LEAVE.replace("asks < days", "asks <")
    for name, text in (("leave.md", LEAVE), ("broken.md", broken), ("gone.md", LEAVE), ("faulty.md", faulty)):
        (tmp_path / name).write_text(text)
    (tmp_path / "empty.md").write_text("")
    with web_server(tmp_path, "leave.md", "broken.md", "gone.md", "faulty.md", "empty.md") as here:
        (tmp_path / "gone.md").unlink()
        here.client.get(here.address)
        first = " ".join(here.page("/").text.split())
        words = (
            "leave.md not checked yet Open it to check it.",
            "broken.md not a machine 2 errors (DSA108, DSA109), 0 warnings: nothing is drawn",
            "gone.md error gone.md: there is no such file",
        )
        assert [each in first for each in words] == [True] * 3, first
        assert "continues by itself once the file exists" in here.page("/machines/2").text
        elements = here.page("/machines/4").elements
        links = {values["href"] for _, values in elements if values.get("href", "").startswith("#line")}
        assert links == {"#line1"} & {f"#{values['id']}" for _, values in elements if "id" in values}
        for number, name in ((1, "broken.md"), (2, "gone.md"), (4, "empty.md")):
            page = here.page(f"/runs/new?machine={number}")
            assert f"{name} is currently not a machine, so no run of it can be started" in page.text
            assert page.fields("data") == []
        for number in (0, 3):
            here.page(f"/machines/{number}")
            here.until(f"/machines/{number}/live?have=", lambda news: "VIOLATED" in news["replace"].get("status", ""))
        second = here.page("/")
        text = " ".join(second.text.split())
        assert (
            "leave.md violated 1 of 2 properties is VIOLATED; 1 of 2 properties HOLD at days = 3 and at days = 1."
            in text
        )
        assert "The text itself has 0 errors, 1 warning (DSA309), 1 note.VIOLATED always asks < days" in text
        assert "faulty.md violated 1 of 2 properties is VIOLATED; 1 of 2" in text
        assert "The text itself has 1 error (DSA306), 0 warnings, 1 note.VIOLATED always asks < days" in text
        links = [values.get("href") for tag, values in second.elements if tag == "a"]
        line = faulty.splitlines().index("- always asks < days") + 1
        assert f"/machines/3#line{line}" in links
        ids = [values.get("id") for _, values in here.page("/machines/3").elements]
        assert f"line{line}" in ids


def test_mistake_in_the_document_is_shown_at_its_line(server, tmp_path):
    (tmp_path / "leave.md").write_text(LEAVE.replace("| idle   | asked ", "| idle   | axed  "))
    page = server.page("/machines/0")
    assert "not a machine" in page.text
    assert "axed" in page.text
    (tmp_path / "leave.md").unlink()
    assert "there is no such file" in server.page("/machines/0").text


def test_long_check_can_be_stopped(server, tmp_path):
    wide = LEAVE.replace("| asks     | workflow | 0..days | 0       |", "\n".join(
        ["| asks     | workflow | 0..days | 0 |", *(f"| n{number} | workflow | 0..9 | 0 |" for number in range(9))]
    )).replace("| asking | approved |", "\n".join(
        [*(f"| asking | e{number} | n{number} < 9 | n{number} += 1 | asking |" for number in range(9)), "| asking | approved |"]
    )).replace("| asked    | outside |", "\n".join(["| asked    | outside |", *(f"| e{number} | outside |" for number in range(9))]))  # fmt: skip
    (tmp_path / "leave.md").write_text(wide)
    server.page("/machines/0")
    live = "/machines/0/live?have="
    server.until(live, lambda news: "configurations, " in news["replace"].get("status", ""))
    assert server.client.post("/machines/0/stop/check").status_code == 200
    news = server.until(live, lambda news: "Check again" in news["replace"].get("status", ""))
    assert "stopped at the time limit" in Outline(news["replace"]["status"]).text
    assert "This check was stopped before its end." in Outline(news["replace"]["status"]).text
    (tmp_path / "leave.md").write_text(LEAVE)
    news = server.until(live, lambda news: "1 of 2 properties HOLD" in Outline(news["replace"].get("status", "")).text)
    assert "was stopped" not in Outline(news["replace"]["status"]).text


def test_pages_do_not_wait_for_a_drawing(tmp_path):
    (tmp_path / "leave.md").write_text(LEAVE)
    (tmp_path / "bin").mkdir()
    program, go = tmp_path / "bin" / "dot", tmp_path / "go"
    program.write_text(f'#!/bin/sh\nwhile [ ! -e {go} ]; do sleep 0.05; done\nexec {portable_renderer()} "$@"\n')
    program.chmod(0o755)
    with web_server(tmp_path, "leave.md", PATH=f"{program.parent}:{os.environ['PATH']}") as here:
        try:
            here.client.get(here.address)
            live = "/machines/0/live?have="
            here.client.get("/machines/0")
            here.until(live, lambda news: "VIOLATED" in news["replace"].get("status", ""))
            assert "is being drawn" in here.page("/machines/0").text
            run = here.start("?")
            place = here.page(run).fields("place")[0]
            with here.client.stream("GET", f"{run}/live?have=") as answer:
                coming = (news["replace"] for _, news in events(answer))
                assert "is being drawn" in next(coming)["diagram"]
                here.client.post(f"{run}/answer", data={"event": "approved", "place": place}, follow_redirects=False)
                next(each for each in coming if "finished" in each.get("status", ""))
        finally:
            go.touch()
        for address in (live, f"{run}/live?have="):
            here.until(address, lambda news: "<svg" in news["replace"].get("diagram", ""))
        assert "is being drawn" not in here.page(run).text
        assert "<svg" in here.client.get(run).text, "what is drawn comes with the page"


def test_shown_diagram_is_neither_sent_again_nor_removed(server, tmp_path):
    run = server.start("?")
    server.until(f"{run}/live?have=", lambda news: "<svg" in news["replace"].get("diagram", ""))
    live = next(values["data-live"] for tag, values in server.page(run).elements if tag == "body")
    assert "diagram" not in server.until(live, lambda news: "marks" in news)["replace"]
    server.page("/machines/0")
    with server.client.stream("GET", "/machines/0/live?have=") as answer:
        coming = (news["replace"]["diagram"] for _, news in events(answer) if "diagram" in news["replace"])
        assert "asking" in next(coming)
        (tmp_path / "leave.md").write_text(LEAVE.replace("asking", "thinking"))
        assert "thinking" in next(coming), "the diagram before stays until there is another one"


def test_proofs_are_opened_in_place(server):
    assert "Prove for all values" in server.client.get("/machines/0").text
    assert server.client.post("/machines/0/start/proofs").status_code == 200
    news = server.until(
        "/machines/0/live?have=", lambda news: "What every machine must do" in news["replace"].get("proofs", "")
    )
    assert "1 VIOLATED" in Outline(news["replace"]["proofs"]).text
    table = server.page("/machines/0").text
    assert "PROVED possible granted" in table
    assert "The evidence: " in table
    assert "Counterexample: 2 steps" in table


def test_evidence_has_lemmas_and_ranks(server):
    server.page("/machines/1")
    server.client.post("/machines/1/start/proofs")
    live = "/machines/1/live?have="
    news = server.until(live, lambda news: "What every machine must do" in news["replace"].get("proofs", ""))
    assert "rmax - retries" in Outline(news["replace"]["proofs"]).text
    assert "a decreasing rank" in Outline(news["replace"]["proofs"]).text


def test_surviving_mutants_link_to_their_lines(server, tmp_path):
    failing = server.client.post("/machines/0/start/mutants")
    assert failing.status_code == 200
    live = "/machines/0/live?have="
    news = server.until(live, lambda news: "does not pass" in news["replace"].get("mutants", ""))
    (tmp_path / "leave.md").write_text(LEAVE.replace("always asks < days", "always asks <= days"))
    server.until(live, lambda news: "2 of 2 properties HOLD" in Outline(news["replace"].get("status", "")).text)
    server.client.post("/machines/0/start/mutants")
    news = server.until(live, lambda news: "faults of rows" in news["replace"].get("mutants", ""))
    outline = Outline(news["replace"]["mutants"])
    command = [sys.executable, "-m", "dsa", "mutate", "leave.md"]
    printed = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    survivors = [line for line in printed.splitlines() if "survives: line " in line]
    assert f"{len(survivors)} survivor" in outline.text
    assert all(line.partition(", ")[2].partition(": ")[2].split("  (")[0] in outline.text for line in survivors)
    lines = {values["href"] for tag, values in outline.elements if tag == "a"}
    assert lines
    assert lines <= {f"#{values['id']}" for _, values in server.page("/machines/0").elements if "id" in values}


def test_proofs_and_mutants_can_be_stopped(tmp_path):
    live = "/machines/0/live?have="
    with web_server(tmp_path, "chat") as here:
        here.client.get(here.address)
        here.page("/machines/0")
        for name, activity, rest in (
            ("mutants", "judging: ", "were not judged, because the work was stopped"),
            ("proofs", "proving: ", "UNKNOWN"),
        ):
            here.client.post(f"/machines/0/start/{name}")
            here.until(live, lambda news, name=name, activity=activity: activity in news["replace"].get(name, ""))
            assert here.client.post(f"/machines/0/stop/{name}").status_code == 200
            here.until(live, lambda news, name=name, rest=rest: rest in news["replace"].get(name, ""))
        assert here.client.post("/machines/0/stop/nothing").status_code == 404


def test_proofs_are_discarded_when_the_file_changes(server, tmp_path):
    server.page("/machines/0")
    server.client.post("/machines/0/start/proofs")
    live = "/machines/0/live?have="
    server.until(live, lambda news: "What every machine must do" in news["replace"].get("proofs", ""))
    (tmp_path / "leave.md").write_text(LEAVE.replace("- possible granted", "- possible idle"))
    news = server.until(live, lambda news: "possible idle" in news["replace"].get("table", ""))
    assert "What every machine must do" not in news["replace"]["proofs"]
    assert server.client.post("/machines/0/start/nothing").status_code == 404


def test_odds_match_the_command_and_have_a_plot(server, tmp_path):
    blank = server.page("/machines/1/odds").text
    assert "the odds of success are not known" in blank
    assert "guard g has no odds: write them in the column pass of Guards, or fill in 'g passes', for example" in blank
    query = "pass.g=0.5&target=0.9&p.rmax=2"
    page = server.page(f"/machines/1/odds?{query}")
    command = [
        sys.executable,
        "-m",
        "dsa",
        "odds",
        "dual_state",
        "--pass",
        "g=0.5",
        "--target",
        "0.9",
        "--param",
        "rmax=2",
    ]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    numbers, _, assumptions = printed.partition("\n\nassumed: ")
    assert numbers in page.text
    sentences = assumptions.strip().split("\nassumed: ")
    assert sentences[0] == "every effect is answered: none fails"
    places = [
        page.text.index(each) for each in ("These numbers assume:", *sentences, "probability of success", numbers)
    ]
    assert places == sorted(places), "what is assumed comes before the numbers, the most favourable first"
    assert "Success and cost at rmax = 0 to 10" in [values.get("aria-label") for _, values in page.elements]
    points = next(values["points"] for tag, values in page.elements if tag == "polyline").split()
    assert len(points) == 11
    heights = [float(each.partition(",")[2]) for each in points]
    assert heights == sorted(heights, reverse=True), "more retries, more success"
    wrong = server.client.get("/machines/1/odds?pass.g=often")
    assert wrong.status_code == 409
    assert "'often' is not a number" in Outline(wrong.text).text
    assert Outline(wrong.text).fields("pass.g") == ["often"]


def test_odds_page_asks_for_missing_values_in_the_words_of_the_form(server):
    page = server.page("/machines/0/odds")
    assert (
        "no final state is called succeeded: choose the one that counts in 'The state that counts as success'"
        in page.text
    )
    assert "No plot: the odds of success are not known. Choose 'The state that counts as success'." in page.text
    assert "none is chosen" in page.text
    assert [values.get("placeholder") for _, values in page.elements if values.get("name") == "vary"] == ["days"]
    assert "none is chosen" not in server.page("/machines/1/odds").text
    assert (
        "probability of success"
        in server.page("/machines/0/odds?success=granted&vary=days&event.approved=0.5&event.again=0.5").text
    )


def test_messages_about_a_file_name_it_once(server, tmp_path):
    (tmp_path / "leave.md").write_text(LEAVE.replace("asks < days", "asks <", 1))
    answer = server.client.get("/machines/0/explore")
    assert answer.status_code == 409
    assert "pre" in [tag for tag, _ in Outline(answer.text).elements], "a caret points at a column"
    (tmp_path / "leave.md").unlink()
    text = Outline(server.client.get("/machines/0/odds").text).text
    assert "leave.md: there is no such file" in text
    assert "leave.md: leave.md" not in text
    assert "There is no machine at this address" in Outline(server.client.get("/machines/9").text).text


def test_explorer_walks_by_addresses(server):
    here = server.page("/machines/0/explore?do=asked&do=again&p.days=1")
    text = " ".join(here.text.split())
    assert "asks = 1" in text
    assert "Refused" in text
    assert "false: asks < days" in text
    choices = [values["href"] for tag, values in here.elements if tag == "a" and values.get("class") == "choice"]
    assert choices == ["/machines/0/explore?p.days=1&do=asked&do=again&do=approved"]
    assert "A run ends here" in server.page(choices[0]).text
    back = next(values["href"] for tag, values in here.elements if values.get("id") == "back")
    assert "asks = 0" in server.page(back).text
    assert "cannot be taken" in server.page("/machines/0/explore?do=approved").text
    assert server.client.get("/machines/0/explore?p.days=77").status_code == 409


def test_explorer_offers_each_verdict(server):
    here = server.page("/machines/1/explore?do=specification&do=artifact")
    choices = [values["href"] for tag, values in here.elements if tag == "a" and values.get("class") == "choice"]
    assert {each.rpartition("do=")[2] for each in choices} == {
        "verdict+g.passed",
        "verdict+g.failed",
        "verdict+g.fatal",
    }


def test_explorer_continues_from_a_run(server, tmp_path):
    path = server.start("?", **{"p.days": "2"})
    for _ in range(2):
        place = server.page(path).fields("place")[0]
        server.client.post(f"{path}/answer", data={"event": "again", "place": place})
    links = [values.get("href") for _, values in server.page(path).elements]
    assert f"{path}/explore" in links
    assert [each for each in links if each and "explore?at=" in each] == [f"{path}/explore?at={n}" for n in (1, 2, 3)]
    here = server.page(f"{path}/explore")
    assert "The way here: 3 steps" in here.text
    assert "asks = 2" in here.text
    assert "days = 2" in here.text
    choices = [values["href"] for tag, values in here.elements if values.get("class") == "choice"]
    assert choices == [f"{path}/explore?at=3&do=approved"]
    assert "A run ends here" in server.page(choices[0]).text
    before = server.page(f"{path}/explore?at=1")
    assert "asks = 0" in before.text
    assert f"{path}/explore?at=2" in [values.get("href") for _, values in before.elements], "as the run went on"
    elsewhere = server.page(f"{path}/explore?at=1&do=approved")
    assert "A run ends here" in elsewhere.text
    back = next(values["href"] for _, values in elsewhere.elements if values.get("id") == "back")
    assert back == f"{path}/explore?at=1"
    assert server.client.get("/runs/nothing/explore").status_code == 404
    assert "/machines/0#line32" in [values.get("href") for _, values in before.elements], (
        "the run has the table of the file"
    )
    file = tmp_path / "leave.md"
    file.write_text(file.read_text() + "\n")
    changed = server.page(f"{path}/explore?at=1")
    assert "/machines/0#line32" not in [values.get("href") for _, values in changed.elements]
    assert "line 32 asking | approved" in changed.text
    assert "asks = 2" in server.page(f"{path}/explore?at=999999999999").text


# -- runs --------------------------------------------------------------------------------------------------------------


def test_run_is_started_answered_and_listed(server):
    path = server.start("Two days in May?", **{"p.days": "2"})
    page = server.page(path)
    assert "leave at days = 2" in page.text
    assert "Nothing is under way in the run. It goes on with an event from outside" in page.text
    assert "Two days in May?" in page.text
    place = page.fields("place")[0]
    with server.client.stream("GET", f"{path}/live?have=&after=3") as answer:
        coming = events(answer)
        done = server.client.post(f"{path}/answer", data={"event": "approved", "place": place, "data": '{"by": "ann"}'})
        assert done.status_code == 200
        text = ""
        for _, news in coming:
            text += Outline(news.get("append", {}).get("moments", "")).text
            if "finished" in news["replace"].get("status", ""):
                break
    assert "approved" in text
    assert "asking -> granted" in text
    assert news["marks"]["granted"] == "now"
    assert "finished granted" in server.page("/runs?status=finished&machine=leave").text
    assert "No run matches" in server.page("/runs?status=waiting").text


def test_late_answer_is_refused_with_a_reason(server):
    path = server.start("?")
    place = server.page(path).fields("place")[0]
    assert server.client.post(f"{path}/answer", data={"event": "again", "place": place}).status_code == 200
    late = server.client.post(f"{path}/answer", data={"event": "approved", "place": place})
    assert late.status_code == 409
    assert "late: approved was sent to place 1, but its place is now 2" in Outline(late.text).text


def test_one_of_two_answers_to_one_place_is_taken(server):
    for _ in range(5):
        path = server.start("?")
        place = server.page(path).fields("place")[0]

        def answer(event: str, path=path, place=place) -> int:
            return server.client.post(f"{path}/answer", data={"event": event, "place": place}).status_code

        with ThreadPoolExecutor(2) as pool:
            codes = sorted(pool.map(answer, ["again", "approved"]))
        assert codes[0] == 200
        assert server.page(path).text.count("line 3") == 2  # the row of `asked`, and one more


def test_reconnected_page_misses_nothing(server):
    path = server.start("?")
    news = server.until(f"{path}/live?have=&after=0", lambda news: news.get("append"))
    number = int(news["id"].partition(":")[0])
    place = server.page(path).fields("place")[0]
    server.client.post(f"{path}/answer", data={"event": "again", "place": place})
    missed = server.until(
        f"{path}/live?have=&after=0", lambda news: news.get("append"), **{"last-event-id": news["id"]}
    )
    ids = [values["id"] for tag, values in Outline(missed["append"]["moments"]).elements if tag == "tr"]
    assert ids[0] == f"moment{number + 1}"
    assert "again" in missed["append"]["moments"]


def moments_of(news: dict) -> list[str]:
    """Return the ids of the moments in an event of the stream."""
    return [
        values["id"]
        for tag, values in Outline(news.get("append", {}).get("moments", "")).elements
        if tag == "tr" and values.get("id")
    ]


def test_pages_miss_nothing_when_a_killed_server_is_started_again(tmp_path):
    (tmp_path / "leave.md").write_text(LEAVE)
    port, ids = free_port(), list[str]()
    with web_server(tmp_path, "leave.md", port=port) as first:
        first.client.get(first.address)
        path = first.start("?")
        with first.client.stream("GET", f"{path}/live?have=&after=0") as answer:
            last_id, news = next(each for each in events(answer) if moments_of(each[1]))
            ids += moments_of(news)
            first.process.kill()
            first.process.wait(30)
        cookies = {cookie.name: cookie.value for cookie in first.client.cookies.jar}
    sent = [sys.executable, "-m", "dsa", "send", path.rpartition("/")[2], "again", "--runs", str(tmp_path / ".dsa")]
    assert subprocess.run(sent, check=False, capture_output=True).returncode == 3  # the run waits again
    with web_server(tmp_path, "leave.md", port=port) as second:
        second.client.cookies.update(cookies)
        place = second.page(path).fields("place")[0]
        is_sent = False
        with second.client.stream("GET", f"{path}/live?have=&after=0", headers={"last-event-id": last_id}) as answer:
            for _, news in events(answer):
                ids += moments_of(news)
                if not is_sent:
                    is_sent = second.client.post(
                        f"{path}/answer", data={"event": "approved", "place": place}
                    ).is_success
                if "finished granted" in Outline(news["replace"].get("status", "")).text:
                    break
        rows = second.page(path).elements
        assert httpx.get(first.address).status_code == 401, "a token is good once, whatever happens"
    assert ids == [f"moment{number}" for number in range(1, len(ids) + 1)]
    assert ids == [values["id"] for tag, values in rows if tag == "tr" and values.get("id")]


def test_cookie_expires_when_its_server_shuts_down(tmp_path):
    port = free_port()
    with web_server(tmp_path, port=port) as first:
        first.client.get(first.address)
        cookies = {cookie.name: cookie.value for cookie in first.client.cookies.jar}
        (secret,) = (tmp_path / "state" / "dsa").iterdir()
        assert secret.stat().st_mode & 0o777 == 0o600
        assert secret.read_text() in cookies.values()
    assert not secret.exists()
    with web_server(tmp_path, port=port) as second:
        assert httpx.get(f"{second.base}/runs", cookies=cookies).status_code == 401
    with web_server(tmp_path):
        assert not secret.exists()
        assert not list(secret.parent.iterdir()), "a port that the system chose does not come again"


def test_event_from_the_command_line_reaches_the_page(server, tmp_path):
    path = server.start("?")
    run = path.rpartition("/")[2]
    with server.client.stream("GET", f"{path}/live?have=&after=3") as answer:
        coming = events(answer)
        sent = [sys.executable, "-m", "dsa", "send", run, "approved", "--runs", str(tmp_path / ".dsa")]
        subprocess.run(sent, check=True, capture_output=True)
        assert any("finished" in news["replace"].get("status", "") for _, news in coming)


def test_run_in_doubt_is_decided_in_the_page(tmp_path):
    (tmp_path / "pay.md").write_text(
        LEAVE.partition("## Parameters")[0]
        + "## Events\n| event | from |\n| --- | --- |\n| asked | outside |\n| paid | pay |\n\n"
        + "## Effects\n| effect | kind |\n| --- | --- |\n| pay | actuator |\n\n"
        + "## States\n| state | kind |\n| --- | --- |\n| idle | initial |\n| paying | |\n| done | final |\n\n"
        + "## Transitions\n| source | event | effects | target |\n| --- | --- | --- | --- |\n"
        + "| idle | asked | pay | paying |\n| paying | paid | | done |\n"
    )
    (tmp_path / "bindings.py").write_text(
        "import os, dsa\n\n@dsa.answering('paid')\nasync def pay(action, context):\n    os._exit(9)\n\neffects = {'pay': pay}\n"
    )
    command = [sys.executable, "-m", "dsa", "run", "pay.md", "--data", "20", "--runs", str(tmp_path / ".dsa")]
    assert subprocess.run(command, cwd=tmp_path, capture_output=True, check=False).returncode == 9
    with web_server(tmp_path, "pay.md") as here:
        here.client.get(here.address)
        run = next(
            values["href"] for _, values in here.page("/runs").elements if values.get("href", "").startswith("/runs/2")
        )
        page = here.page(run)
        assert "in doubt" in page.text
        assert set(page.fields("decision")) == {"retry", "fail", "gave paid"}
        here.client.post(f"{run}/resume", data={"key": page.fields("key")[0], "decision": "gave paid", "data": ""})
        here.until(f"{run}/live?have=", lambda news: "finished done" in Outline(news["replace"].get("status", "")).text)


def test_attempts_are_shown_with_their_texts_and_differences(server, tmp_path):
    mean = "".join(f"# {text.splitlines()[0]}\n" for text in HOSTILE if "\x00" not in text)
    replies = [f"```\ndef add(a, b): return a - b\n{mean}```\n", f"```\ndef add(a, b): return a + b\n{mean}```\n"]
    (tmp_path / "replies.md").write_text("\n".join(replies))
    command = [
        sys.executable,
        "-m",
        "dsa",
        "run",
        "dual_state",
        "--model",
        "scripted:replies.md",
        "--runs",
        str(tmp_path / ".dsa"),
    ]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    runs = [values.get("href", "") for _, values in server.page("/runs").elements]
    run = next(address for address in runs if "dual_state" in address)
    assert f"{run}/attempts" in [values.get("href") for _, values in server.page(run).elements]
    page = server.page(f"{run}/attempts")
    assert "+def add(a, b): return a + b" in page.text
    assert "-def add(a, b): return a - b" in page.text
    assert "failed" in page.text
    assert not {"img", "iframe", "object", "base", "style", "svg"} & {tag for tag, _ in page.elements}
    path = server.start("?")
    assert "has generated nothing" in server.page(f"{path}/attempts").text
    assert "1 to 2 of 2 runs, the newest first" in server.page("/runs").text
    assert server.client.get("/runs/nothing/attempts").status_code == 404


def test_any_number_in_an_address_gets_an_answer(server):
    path = server.start("?")
    for number in ("9" * 5000, "-1", "0", "x", "٣"):
        for address in (
            f"{path}?before={number}",
            f"{path}/attempts?before={number}",
            f"/runs?page={number}",
            f"{path}/explore?at={number}",
            f"/runs/new?machine={number}",
        ):
            assert server.client.get(address).status_code == 200, address[:60]


def test_unknown_run_is_refused_by_name(server):
    answer = server.client.get("/runs/nothing")
    assert answer.status_code == 404
    assert "nothing" in Outline(answer.text).text


def test_damaged_run_is_named_and_its_pages_say_what_to_do(server, tmp_path):
    run, other = server.start("damaged"), server.start("sound")
    with closing(sqlite3.connect(tmp_path / ".dsa" / "ledger.db")) as database, database:
        database.execute("UPDATE runs SET seal = zeroblob(32) WHERE run = ?", (run.rpartition("/")[2],))
    assert "damaged its row in the table of runs was changed" in " ".join(server.page("/runs").text.split())
    for more in ("", "/attempts", "/explore", "/changes"):
        answer = server.client.get(run + more)
        text = Outline(answer.text).text
        assert answer.status_code == 409
        assert "This run is damaged" in text
        assert "others are not affected" in text
        assert "Restore it from a copy, or begin the run again." in text
    assert "Send approved" in server.page(other).text
