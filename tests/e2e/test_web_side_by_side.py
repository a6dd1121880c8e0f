"""Two browsers and the command line act on one run at once: no action is applied twice, every view shows the state, and pages survive their server."""

import json
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import attrs
import pytest
from forked import DSA
from pipe_browser import CHROMIUM, Browser, browser
from sample_sizes import sample_size
from web_server import LEAVE, Outline, free_port, web_server

from dsa.runs.runs import open_runs
from dsa.runtime.ledger import RowEntry
from dsa.runtime.timeline import event_records

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
#: A machine that asks again without limit.
ASKING = LEAVE.replace("asks < days", "true").replace(" asks += 1 ", "           ")
LIMIT_S, LOOK_S, SECOND_MS, HEAD_START_S = 30, 0.004, 1_000, 0.06
#: A script of the test in the page: records when each question could be answered, by the clock of this computer.
WATCH = """
window.seen = {};
const look = () => {
  const form = document.querySelector("form[data-keep^='again@']");
  if (form && !(form.dataset.keep in window.seen)) window.seen[form.dataset.keep] = Date.now();
};
new MutationObserver(look).observe(document.body, {childList: true, subtree: true, attributes: true});
look();
"""
POST = """
window.answer = (() => {{
  const form = document.querySelector("form[data-keep^='again@']");
  form.querySelector("textarea").value = {data};
  const fields = new URLSearchParams(new FormData(form));
  fields.set("place", {place});  // the page may show the next question by now
  return fetch(form.action, {{method: "POST", body: fields}}).then((answer) => answer.status, () => 0);
}})();
0
"""


@attrs.define
class Commits:
    """The places at which the run has asked, each with its time in ms; read from the store, as any process may."""

    folder: object
    run: str
    times: dict[str, float] = attrs.field(factory=dict)
    is_over: bool = False

    def follow(self) -> None:
        with open_runs(self.folder) as runs:
            while not self.is_over:
                place = runs.summary(self.run).summary.waits_for.get("again")
                if place is not None:
                    self.times.setdefault(place, time.time() * SECOND_MS)
                time.sleep(LOOK_S)

    @property
    def place(self) -> str:
        return list(self.times)[-1]

    @contextmanager
    def followed(self) -> Iterator["Commits"]:
        thread = threading.Thread(target=self.follow)
        thread.start()
        try:
            yield self
        finally:
            self.is_over = True
            thread.join()


@attrs.define
class Scene:
    """A run, two browsers that show it, and its server, which may be killed."""

    folder: object
    port: int
    tabs: tuple[Browser, Browser]
    run: str = ""
    place: str = ""
    printed: str = ""
    stack: ExitStack = attrs.field(factory=ExitStack)
    server: object = None

    def open(self) -> None:
        """Start the server; the second time, pages connect to it by themselves."""
        self.server = self.stack.enter_context(web_server(self.folder, "asking.md", port=self.port))

    def kill(self) -> None:
        self.server.process.kill()
        self.server.process.wait(LIMIT_S)

    def begin(self) -> None:
        self.open()
        self.server.client.get(self.server.address)
        self.run = self.server.start("begin").rpartition("/")[2]
        for tab in self.tabs:
            tab.visit(Outline(self.server.client.post("/invitation").text).values("aria-label", "Address")[0])
            tab.visit(f"{self.server.base}/runs/{self.run}")
            tab.until_it_reads("live", "Send again")
            tab.evaluate(WATCH)

    def post(self, who: str, data: str):
        """Start to answer the present question, as browser 0 or 1, or on the command line; return a function that returns whether the answer was taken."""
        if who != "command":
            tab = self.tabs[int(who)]
            tab.evaluate(POST.format(data=json.dumps(data), place=json.dumps(self.place)))
            return lambda: {200: True, 409: False, 0: None}[tab.evaluate("window.answer")]
        command = [
            *DSA,
            "send",
            f"{self.run}@{self.place}",
            "again",
            "--data",
            data,
            "--runs",
            str(self.folder / ".dsa"),
        ]
        process = subprocess.Popen(
            command, cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

        def is_taken() -> bool:
            self.printed = process.communicate(timeout=LIMIT_S)[0]
            return {0: True, 3: True, 1: False}[process.returncode]

        return is_taken

    def data_taken(self) -> list[object]:
        """Return the data of the answers that were applied, from the ledger."""
        with open_runs(self.folder / ".dsa") as runs:
            records = event_records(runs.stored_run(self.run).entries)
        return [each.occurrence.data for each in records if isinstance(each.outcome, RowEntry)]


def shows(tab: Browser, place: str) -> None:
    """Wait until a page asks the question of a place."""
    tab.until(f"`again@{place}` in window.seen && document.querySelector(`form[data-keep='again@{place}']`)")


@pytest.fixture
def scene(tmp_path):
    (tmp_path / "asking.md").write_text(ASKING)
    with browser(tmp_path / "one") as one, browser(tmp_path / "two") as two:
        here = Scene(tmp_path, free_port(), (one, two))
        with here.stack:
            here.begin()
            yield here


@pytest.mark.limit(1200)
def test_one_of_two_simultaneous_posts_is_applied_and_shown_in_every_view(scene, figures):
    pairs, delays, taken_in_all = sample_size(12, full=200), [], ["begin"]
    kills = {pairs // 3, 2 * pairs // 3}
    with Commits(scene.folder / ".dsa", scene.run).followed() as commits:
        for number in range(pairs):
            for tab in scene.tabs:
                shows(tab, wait_for_place(commits, len(taken_in_all)))
            scene.place = commits.place
            actors = (("0", "1"), ("command", "0"), ("1", "command"))[number % 3]
            answers = {}
            for who in actors:
                answers[f"{number} by {who}"] = scene.post(who, f"{number} by {who}")
                if who == "command":  # the command takes a while to start, and should be first sometimes
                    time.sleep(number % 4 * HEAD_START_S)
            if number in kills:
                scene.kill()
            told = {data: answer() for data, answer in answers.items()}
            if number in kills:
                scene.open()
            new = scene.data_taken()[len(taken_in_all) :]
            assert len(new) <= 1, new
            assert set(new) <= set(told)
            if number not in kills:
                assert [data for data, is_taken in told.items() if is_taken] == new, (
                    "every answer reported as taken was taken",
                    told,
                    scene.printed,
                )
            taken_in_all += new
            if new:
                place = wait_for_place(commits, len(taken_in_all))
                for tab in scene.tabs:
                    shows(tab, place)
                    if number not in kills:  # a page waits half a second before it connects again
                        delays.append(tab.evaluate(f"window.seen[`again@{place}`]") - commits.times[place])
    moments = len_of_ledger(scene)
    for tab in scene.tabs:
        tab.until(f"document.querySelectorAll('#moments > tr').length === {moments}")
        ids = tab.evaluate("[...document.querySelectorAll('#moments > tr')].map((each) => each.id)")
        assert ids == [f"moment{number}" for number in range(1, moments + 1)], (
            "it has missed nothing, and was not loaded again"
        )
    by_command = sum("command" in str(data) for data in taken_in_all)
    slowest_ms = round(max(delays))
    figures("views", "two browsers and the command line", pairs=pairs, by_command=by_command, slowest_ms=slowest_ms)
    assert by_command, "the command line is first now and then"
    assert slowest_ms < sample_size(LIMIT_S * SECOND_MS, full=SECOND_MS)


def wait_for_place(commits: Commits, number: int) -> str:
    """Wait until the run has asked `number` times, and return the last place."""
    end = time.monotonic() + LIMIT_S
    while len(commits.times) < number:
        assert time.monotonic() < end, commits.times
        time.sleep(LOOK_S)
    return commits.place


def len_of_ledger(scene: Scene) -> int:
    with open_runs(scene.folder / ".dsa") as runs:
        return len(runs.stored_run(scene.run).entries)
