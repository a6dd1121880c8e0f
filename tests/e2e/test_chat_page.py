"""The page of a conversation: each call with its badges and reasons, tables, plots and files; and a conversation that continues in the page."""

import json
import subprocess
import sys
import threading
from contextlib import suppress

from chat_server import Said, chunks_of, playing
from chats import conversation, following, python, say, scripted, sql
from hostile_texts import ALL_AT_ONCE, foreign_in, texts_by_field
from web_server import Outline, events, web_server

from dsa.runtime.ledger import EffectEntry, EventEntry
from machines.chat.chat_display import ChatPage


def page_of(chat, runs_folder):
    view = ChatPage("/runs/x", runs_folder / chat.run_id)
    for entry in chat.run.ledger:
        view.take(entry)
    return view


def text_fields_shown(entries):
    """Return the fields whose texts a page shows, after filling each with all hostile texts; none of them may become an element."""
    shown = set()
    for field, changed in texts_by_field(entries, ALL_AT_ONCE):
        view = ChatPage("/runs/x", None)
        with suppress(ValueError, KeyError, TypeError, IndexError, AttributeError):  # then a run has no such view
            for entry in changed:
                view.take(entry)
            html = view.markup().html
            assert foreign_in(html) == [], field
            shown |= {field} if "&lt;script&gt;alert(1)" in html else set()
    return shown


def test_calls_have_badges_with_their_reasons(tmp_path):
    steps = [
        sql(),
        sql(),
        Said(calls=(("run_sql", {"query": "SELECT 1 AS one"}),)),
        sql("SELECT nothing FROM nowhere"),
        Said("There."),
    ]
    with conversation(tmp_path, scripted(*steps)) as (chat, _):
        say(chat, "How strong are they? <b>Now</b>")
        view = page_of(chat, tmp_path / "runs")
        page = Outline(view.markup().html)
        statuses = [call.status for call in chat.conversation.turn.calls]
        entries = list(chat.run.ledger)
    assert statuses == ["done", "duplicate_tool_call_skipped", "done", "failed"]
    text = page.text
    assert "How strong are they? <b>Now</b>" in text
    assert "skipped: done already" in text
    assert "the same call was made in this turn" in text
    assert "repaired" in text
    assert "alias" in text
    assert "nowhere" in text
    assert "Japan" in text, "the table is shown"
    assert text.rindex("There.") > text.rindex("nowhere")
    assert "b" not in {tag for tag, _ in page.elements}
    assert text_fields_shown(entries) >= {"text", "content", "columns", "rows", "message", "tool", "name"}


def test_empty_code_is_sent_back_with_a_reason(tmp_path):
    steps = [sql(), python(""), python("print(df.n.sum())"), Said("So many.")]
    with conversation(tmp_path, scripted(*steps)) as (chat, _):
        say(chat, "How many?")
        page = Outline(page_of(chat, tmp_path / "runs").markup().html)
        total = chat.conversation.turn.calls[-1].result["output"].strip()
    assert "sent back" in page.text
    assert "empty_python_payload_retried" in page.text
    assert total in page.text


def test_page_shows_files_and_pictures_of_the_conversation(tmp_path):
    steps = [
        sql(),
        python("df.to_csv('hp.csv')\ndf.plot.bar(x='Origin', y='hp')\nplt.savefig('hp.png')"),
        Said("There."),
    ]
    with conversation(tmp_path, scripted(*steps)) as (chat, _):
        say(chat, "Plot it.")
        view = page_of(chat, tmp_path / "runs")
        page = Outline(view.markup().html)
        names = {each.file_name for each in chat.conversation.inventory}
    pictures = [values for tag, values in page.elements if tag == "img"]
    assert [values["src"] for values in pictures] == ["/runs/x/files/hp.png"]
    links = {values["href"] for tag, values in page.elements if tag == "a"}
    assert links == {f"/runs/x/files/{name}" for name in names}
    assert view.file("hp.png").startswith(b"\x89PNG")
    assert view.file("../ledger.db") is None
    assert view.file("nothing.csv") is None


def test_file_made_again_is_shown_once_and_named_by_later_calls(tmp_path):
    plot = "df.to_csv('{name}.csv')\nprint({number})"
    steps = [
        sql(),
        python(plot.format(name="hp", number=1)),
        python(plot.format(name="again", number=2)),
        python(plot.format(name="hp", number=3)),
        python(plot.format(name="again", number=2)),
        Said("There."),
    ]
    with conversation(tmp_path, scripted(*steps)) as (chat, _):
        say(chat, "Save it, and again.")
        page = Outline(page_of(chat, tmp_path / "runs").markup().html)
        statuses = [call.status for call in chat.conversation.turn.calls]
        assert [each.file_name for each in chat.conversation.inventory][1:] == ["hp.csv"]
    assert statuses == ["done", "done", "done", "done", "duplicate_tool_call_skipped"]
    assert page.text.count("kept once") == 2
    assert "again.csv has the content of hp.csv" in page.text
    assert "the same content again: hp.csv" in page.text
    assert "Its file: hp.csv" in page.text
    assert page.text.rindex(" bytes") < page.text.index("kept once"), "the call that made it has no badge"


def test_call_without_a_result_shows_its_progress(tmp_path):
    with conversation(tmp_path, following(sql(), answer="There.")) as (chat, _):
        say(chat, "?")
        entries = list(chat.run.ledger)
    taken, begun = (
        next(number for number, entry in enumerate(entries) if has(entry))
        for has in (
            lambda entry: isinstance(entry, EventEntry) and entry.event == "sql_call",
            lambda entry: isinstance(entry, EffectEntry) and entry.effect == "run_sql",
        )
    )
    page = ChatPage("/runs/x", None)
    for entry in entries[:taken]:
        page.take(entry)
    assert "This call waits until earlier calls are done." in Outline(page.markup().html).text
    for entry in entries[taken : begun + 1]:
        page.take(entry)
    assert "It is under way." in Outline(page.markup().html).text
    for entry in entries[begun + 1 :]:
        page.take(entry)
    assert "It is under way." not in Outline(page.markup().html).text


def half_now(text, gate):
    """Play a model that sends half of a text, and the rest when a gate opens."""

    def send(handler, _over):
        handler.send_response(200)
        handler.send_header("content-type", "text/event-stream")
        handler.send_header("transfer-encoding", "chunked")
        handler.end_headers()
        pieces = [f"data: {json.dumps(chunk)}\n\n".encode() for chunk in chunks_of(Said(text), 0)]
        for number, piece in enumerate([*pieces, b"data: [DONE]\n\n", b""]):
            if number == len(pieces) // 2:
                gate.wait(30)
            handler.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
            handler.wfile.flush()

    return send


def test_conversation_continues_in_the_page(tmp_path):
    (tmp_path / "numbers.csv").write_text("a,b\n1,2\n3,4\n")
    gate = threading.Event()
    query = Said(calls=(("run_sql", {"sql": "SELECT sum(a) AS total FROM numbers GROUP BY b ORDER BY b"}),))
    said = {0: Said("Hello."), 1: query, 2: half_now("The total is <i>four</i>, as far as I can see from here.", gate)}
    with playing(lambda _body, number: said[number]) as played, web_server(tmp_path) as here:
        here.client.get(here.address)
        command = [sys.executable, "-m", "dsa", "chat", "numbers.csv", "--model", played.model, "--ask", "Who are you?"]
        subprocess.run([*command, "--runs", str(tmp_path / ".dsa")], cwd=tmp_path, check=True, capture_output=True)
        addresses = [values.get("href") or "" for _, values in here.page("/runs").elements]
        run = next(each for each in addresses if each.startswith("/runs/2"))
        page = here.page(run)
        assert "Who are you?" in page.text
        assert "Your message" in page.text
        keep = next(
            each for _, values in page.elements if (each := values.get("data-keep") or "").startswith("message@")
        )
        form = {"event": "message", "place": keep.partition("@")[2], "data": "What is the sum?", "form": "text"}
        with here.client.stream("GET", f"{run}/live?have=&after=0") as answer:
            coming = (news["replace"] for _, news in events(answer))
            next(coming)
            sent = here.client.post(f"{run}/answer", data=form)
            assert sent.status_code == 200, Outline(sent.text).text
            next(each for each in coming if "The total is" in Outline(each.get("speech", "")).text)
            assert "The total is" not in here.page(run).text.partition("What has happened")[2], "not recorded yet"
            gate.set()
            talk = Outline(next(each["talk"] for each in coming if "from here." in each.get("talk", "")))
        assert "What is the sum?" in talk.text
        assert "The total is <i>four</i>, as far as I can see from here." in talk.text
        assert "i" not in {tag for tag, _ in talk.elements}
        here.until(f"{run}/live?have=", lambda news: "Your message" in news["replace"].get("asks", ""))
        assert here.client.get(f"{run}/files/nothing.csv").status_code == 404
        files = [values["href"] for tag, values in talk.elements if tag == "a"]
        file = here.client.get(files[0])
        assert file.text.split() == ["total", "1", "3"]
        assert file.headers["content-disposition"].startswith("attachment")
        assert file.headers["content-type"] == "application/octet-stream"
    assert played.faults == []


def test_conversation_can_be_started_in_the_page(tmp_path):
    (tmp_path / "numbers.csv").write_text("a,b\n1,2\n3,4\n")
    query = Said(calls=(("run_sql", {"sql": "SELECT a FROM numbers"}),))
    with playing(following(query, answer="Two rows.")) as played, web_server(tmp_path) as here:
        here.client.get(here.address)
        assert "/runs/begin/chat" in [
            values.get("href") for _, values in Outline(here.client.get("/runs/new").text).elements
        ]
        for typed, why in (
            ({"message": " ", "model": played.model}, "the first message is empty"),
            ({"message": "?", "data": "gone.csv", "model": played.model}, "gone.csv"),
            ({"message": "<i>?</i>", "data": "numbers.csv"}, "local model cannot call tools"),
        ):
            refusal = here.client.post("/runs/begin/chat", data=typed)
            assert refusal.status_code == 409
            assert why in Outline(refusal.text).text
            assert typed["message"].strip() in Outline(refusal.text).text, "what was typed stays"
        assert "There are no runs here yet" in here.page("/runs").text
        typed = {"message": "How many rows?", "data": "numbers.csv\n", "model": played.model}
        begun = here.client.post("/runs/begin/chat", data=typed)
        assert begun.status_code == 200
        live = f"{begun.url.raw_path.decode()}/live?have="
        news = here.until(live, lambda news: "Two rows." in Outline(news["replace"].get("talk", "")).text)
        assert "How many rows?" in Outline(news["replace"]["talk"]).text
        assert here.client.get("/runs/begin/nothing").status_code == 404
    assert played.faults == []


def turns_on(page):
    """Return the names of the turns on a page, and the addresses of its links to earlier turns."""
    names = [values.get("aria-label") or "" for tag, values in page.elements if tag == "section"]
    links = [values["href"] for tag, values in page.elements if tag == "a" and "earlier" in values["href"]]
    return [name for name in names if name.startswith("Turn")], links


def test_earlier_turns_are_a_link_away(tmp_path):
    with conversation(tmp_path, lambda _body, number: Said(f"Answer {number + 1}."), data=()) as (chat, _):
        say(chat, *(f"Question {number}." for number in range(1, 46)))
        run = chat.run_id
    (tmp_path / "runs").rename(tmp_path / ".dsa")
    with web_server(tmp_path) as here:
        here.client.get(here.address)
        newest, (link,) = turns_on(here.page(f"/runs/{run}"))
        assert newest == [f"Turn {number}" for number in range(26, 46)]
        middle, (first_link,) = turns_on(here.page(link))
        assert middle == [f"Turn {number}" for number in range(6, 26)]
        oldest, links = turns_on(here.page(first_link))
        assert (oldest, links) == ([f"Turn {number}" for number in range(1, 6)], [])
        assert "Question 1." in here.page(first_link).text
        assert "Answer 1." in here.page(first_link).text
        for number in ("1", "0", "-3", "x", "9" * 50):
            assert here.client.get(f"/runs/{run}/earlier?before={number}").status_code == 200
        assert "There is nothing before this" in here.page(f"/runs/{run}/earlier?before=1").text
