"""The page of a coding run: the plan, the calls, and exactly the call that will run, which a person permits or denies there."""

import asyncio
import json

import pytest
from coding_typed import DONE, PLAN, WRITE, block, calls, typed_in
from hostile_texts import ALL_AT_ONCE, faults_of_run
from web_server import Outline, web_server

from dsa.runs.runs import open_runs
from machines.coding.workspace_view import FOLDER

CODE = "open('made.txt', 'w').write('<b>made</b>')\n"
RUN = {"cmd": ["python", "job.py", "--with=<i>it</i>"]}


@pytest.fixture
def asking(tmp_path):
    """A coding run that asks for permission, and the server that shows it."""
    code = typed_in(tmp_path)
    (tmp_path / "work" / "job.py").write_text(CODE)
    done = code("Do <i>it</i>", script=(PLAN, calls(("run_cmd", RUN)), DONE))
    assert done.returncode == 3, done.stderr
    with web_server(tmp_path) as here:
        here.client.get(here.address)
        addresses = [values.get("href") or "" for _, values in here.page("/runs").elements]
        yield here, next(each for each in addresses if each.startswith("/runs/2"))


def test_call_is_shown_in_full_and_permitted(asking, tmp_path):
    here, run = asking
    page = here.page(run)
    assert "Do <i>it</i>" in page.text
    assert "write_file what is wanted" in page.text
    assert "run_cmd needs permission" in page.text
    assert "--with=<i>it</i>" in page.text
    assert not {"i", "b"} & {tag for tag, _ in page.elements}
    keep = next(each for _, values in page.elements if (each := values.get("data-keep") or "").startswith("permitted@"))
    form = {"event": "permitted", "place": keep.partition("@")[2], "data": "", "form": "text"}
    assert here.client.post(f"{run}/answer", data=form).status_code == 200
    here.until(f"{run}/live?have=", lambda news: "finished" in Outline(news["replace"].get("status", "")).text)
    assert (tmp_path / "work" / "made.txt").read_text() == "<b>made</b>"
    after = here.page(run)
    assert "needs permission" not in after.text
    assert "subtask completed mark_subtask_complete" in after.text
    assert "subtask_completed:" not in after.text, "a note that refuses nothing has no name of a refusal"
    assert "made.txt" in after.text
    assert "<b>made</b>" in here.page(f"{run}/changes").text


def test_call_is_refused_with_a_reason(asking, tmp_path):
    here, run = asking
    page = here.page(run)
    keep = next(each for _, values in page.elements if (each := values.get("data-keep") or "").startswith("denied@"))
    form = {"event": "denied", "place": keep.partition("@")[2], "data": "not <b>today</b>", "form": "text"}
    assert here.client.post(f"{run}/answer", data=form).status_code == 200
    news = here.until(f"{run}/live?have=", lambda news: "today" in Outline(news["replace"].get("talk", "")).text)
    assert "refused run_cmd" in Outline(news["replace"]["talk"]).text
    assert Outline(news["replace"]["talk"]).text.count("not_approved: not <b>today</b>") == 1
    assert not (tmp_path / "work" / "made.txt").exists()
    with open_runs(tmp_path / ".dsa") as runs:
        news = asyncio.run(runs.look(run.rpartition("/")[2]))
        faults, shown = faults_of_run(runs, run.rpartition("/")[2], news, ALL_AT_ONCE)
    assert faults == []
    assert shown >= {"description", "cmd", "text", "tool", "model", "content"}


def begun_in(folder, *script):
    """Write a script for the model beside a workspace, and return the values of the form."""
    (folder / "work").mkdir()
    (folder / "script.md").write_text("".join(map(block, script)))
    return {"goal": "Do <i>it</i>", "workspace": "work", "model": "scripted:script.md", "mode": "ask"}


def test_work_is_started_in_the_page_and_its_call_permitted(tmp_path):
    values = begun_in(tmp_path, PLAN, calls(("run_cmd", RUN)), DONE)
    (tmp_path / "work" / "job.py").write_text(CODE)
    with web_server(tmp_path) as here:
        here.client.get(here.address)
        links = [each.get("href") for _, each in Outline(here.client.get("/runs/new").text).elements]
        assert "/runs/begin/coding" in links
        begun = here.client.post("/runs/begin/coding", data=values)
        assert begun.status_code == 200, Outline(begun.text).text
        run = begun.url.raw_path.decode()
        live = f"{run}/live?have="
        news = here.until(live, lambda news: "Send permitted" in news["replace"].get("asks", ""))
        assert "--with=<i>it</i>" in Outline(news["replace"]["talk"]).text
        assert not (tmp_path / "work" / "made.txt").exists()
        place = here.page(run).fields("place")[0]
        form = {"event": "permitted", "place": place, "data": "", "form": "text"}
        assert here.client.post(f"{run}/answer", data=form).status_code == 200
        here.until(live, lambda news: "finished" in Outline(news["replace"].get("status", "")).text)
        assert (tmp_path / "work" / "made.txt").read_text() == "<b>made</b>"
        assert here.client.post(f"{run}/answer", data=form).status_code == 409, "it was answered"
    errors = (tmp_path / "stderr.txt").read_text()
    assert errors == "", errors


def test_record_of_work_started_in_the_page_is_in_the_workspace(tmp_path):
    values = begun_in(tmp_path, PLAN, WRITE, DONE) | {"mode": "full-auto"}
    with web_server(tmp_path) as here:
        here.client.get(here.address)
        run = here.client.post("/runs/begin/coding", data=values).url.raw_path.decode()
        here.until(f"{run}/live?have=", lambda news: "finished" in Outline(news["replace"].get("status", "")).text)
    assert (tmp_path / "work" / "a.txt").read_text() == "one\n"
    state = json.loads((tmp_path / "work" / FOLDER / "state.json").read_text())
    assert [each["status"] for task in state["tasks"] for each in task["subtasks"]] == ["completed"]


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"goal": " "}, "the goal is empty"),
        ({"workspace": "gone"}, "gone: the workspace must be an existing folder"),
        ({"workspace": "/"}, "the root of this machine cannot be the workspace"),
        ({"workspace": "~"}, "is your home folder"),
        ({"model": "local"}, "the local model cannot call tools"),
        ({"model": "scripted:gone.md"}, "gone.md"),
        ({"mode": "often"}, "mode = 'often' is not a mode"),
    ],
)
def test_work_that_cannot_start_is_refused_with_a_reason(tmp_path, more, why):
    values = begun_in(tmp_path, PLAN, WRITE, DONE) | more
    with web_server(tmp_path, HOME=str(tmp_path)) as here:
        here.client.get(here.address)
        refusal = here.client.post("/runs/begin/coding", data=values)
        assert refusal.status_code == 409
        assert why in Outline(refusal.text).text
        assert values["goal"].strip() in Outline(refusal.text).text, "what was typed stays"
        assert "There are no runs here yet" in here.page("/runs").text


def test_goal_already_in_progress_is_not_started_again(tmp_path):
    values = begun_in(tmp_path, PLAN, calls(("run_cmd", RUN)), DONE)
    with web_server(tmp_path) as here:
        here.client.get(here.address)
        run = here.client.post("/runs/begin/coding", data=values).url.raw_path.decode()
        here.until(f"{run}/live?have=", lambda news: "Send permitted" in news["replace"].get("asks", ""))
        again = here.client.post("/runs/begin/coding", data=values)
        assert again.status_code == 409
        assert f"run {run.rpartition('/')[2]} works on this goal" in Outline(again.text).text
