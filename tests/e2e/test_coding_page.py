"""The page of a coding run: the plan, the calls, and exactly the call that will run, which a person permits or refuses there."""

import pytest
from coding_typed import DONE, PLAN, calls, typed_in
from web_server import Outline, web_server

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


def test_call_is_shown_whole_and_permitted(asking, tmp_path):
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
    assert "made.txt" in after.text
    assert "<b>made</b>" in here.page(f"{run}/changes").text


def test_call_is_refused_with_a_reason(asking, tmp_path):
    here, run = asking
    page = here.page(run)
    keep = next(each for _, values in page.elements if (each := values.get("data-keep") or "").startswith("denied@"))
    form = {"event": "denied", "place": keep.partition("@")[2], "data": "not <b>today</b>", "form": "text"}
    assert here.client.post(f"{run}/answer", data=form).status_code == 200
    news = here.until(f"{run}/live?have=", lambda news: "today" in Outline(news["replace"].get("talk", "")).text)
    assert "not <b>today</b>" in Outline(news["replace"]["talk"]).text
    assert not (tmp_path / "work" / "made.txt").exists()
