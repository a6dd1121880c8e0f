"""The feed of a run: its questions, its parts, and runs that this release cannot continue."""

import asyncio
from types import SimpleNamespace
from typing import ClassVar

import attrs

import dsa
from dsa.edge.document_files import load
from dsa.runtime.ledger import ArtifactEntry
from dsa.web.document_markup import picture_marks
from dsa.web.markup import EMPTY
from dsa.web.run_feed import RunFeed
from dsa.web.run_pages import RunFeeds

GREETING = "# greeting\n\n## Events\n| event | from |\n| --- | --- |\n| hello | outside |\n| bye | outside |\n\n## States\n| state | kind |\n| --- | --- |\n| idle | initial |\n| open | |\n| done | final |\n\n## Transitions\n| source | event | target |\n| --- | --- | --- |\n| idle | hello | open |\n| open | bye | done |\n"  # fmt: skip

TALK = GREETING.replace("# greeting", "# talk").replace("| source | event | target |\n| --- | --- | --- |\n| idle | hello | open |\n| open | bye | done |", "| source | event | effects | target |\n| --- | --- | --- | --- |\n| idle | hello | think | open |\n| open | bye | | done |")  # fmt: skip


def feeds(tmp_path, *variations):
    """Return the feeds of a run that waits for `bye`: each variation takes its id and its news, and returns those of the feed."""
    (tmp_path / "greeting.md").write_text(GREETING)

    async def scenario() -> list[RunFeed]:
        async with dsa.open_runs("memory:") as runs:
            run = await runs.start(str(tmp_path / "greeting.md"), "?")
            await run.rest()
            news = await runs.look(run.id)
            return [RunFeed(runs, *vary(run.id, news)) for vary in variations]

    return asyncio.run(scenario())


def test_answer_names_the_state_it_leads_to(tmp_path):
    (feed,) = feeds(tmp_path, lambda run, news: (run, news))
    assert "Leads to done." in feed.fragments().parts["asks"].html


def test_run_and_its_part_link_to_each_other(tmp_path):
    def with_artifact(run, news):
        entry = ArtifactEntry("1/1", "plot", 1, f"{run}+1.1/0123456789ab", "0" * 64)
        return run, attrs.evolve(news, entries=(*news.entries, entry))

    whole, part = feeds(tmp_path, with_artifact, lambda run, news: (f"{run}+1.1", news))
    assert f'href="/runs/{whole.id}%2B1.1"' in whole.moments(0, len(whole.entries)).html
    assert f'href="/runs/{whole.id}"' in part.fragments().parts["status"].html
    assert "part of" not in whole.fragments().parts["status"].html
    assert ">1 attempt</a>" in whole.fragments().parts["status"].html
    assert "attempt" not in part.fragments().parts["status"].html


def test_current_step_of_a_run_is_marked():
    states = ("idle", "generating.g_test", "validating.g_test", "generating.g_impl")
    assert picture_marks(load("workflow"), (), states) == {"idle": "past", "g_test": "past", "g_impl": "now"}


class View:
    """A view that shows nothing but what a model says."""

    texts: ClassVar[dict[str, str]] = {}

    def take(self, entry):
        pass

    def markup(self):
        return EMPTY


def test_closed_page_stops_listening_to_the_run(tmp_path):
    (tmp_path / "talk.md").write_text(TALK)

    def listeners():
        return [each for each in asyncio.all_tasks() if each.get_coro().__qualname__ == "RunFeed._hear"]

    async def until(is_so):
        while not is_so():  # noqa: ASYNC110  (it happens in another task)
            await asyncio.sleep(0.001)

    async def scenario():
        gate = asyncio.Event()

        async def think(_action, _context):
            await gate.wait()
            return []

        async with dsa.open_runs("memory:") as runs:
            run = await runs.start(str(tmp_path / "talk.md"), "?", bindings=dsa.Bindings(effects={"think": think}))
            feeds, before = RunFeeds(), asyncio.all_tasks()
            request = SimpleNamespace(
                path_params={"run": run.id}, app=SimpleNamespace(state=SimpleNamespace(runs=runs))
            )
            for _ in range(5):
                feed = await feeds.feed(request)
                feed.view = View()
                events = feeds.changes(feed, "", 0)
                _ = [await anext(events) for _ in range(2)]
                await until(lambda: len(listeners()) == 1)
                await events.aclose()
                await until(lambda: not listeners())
            assert asyncio.all_tasks() <= before
            gate.set()
            await run.rest()

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_run_of_another_release_is_labelled(tmp_path):
    text = GREETING.replace("| source |", "| origin |")
    both = feeds(tmp_path, lambda run, news: (run, news), lambda run, news: (run, attrs.evolve(news, text=text)))
    own, other = (feed.fragments().parts["status"].html for feed in both)
    assert "for this release" not in own
    assert "not a machine for this release of dsa" in other
    assert "waiting" in other, "what was recorded can be read"


def test_pages_share_one_feed_and_leave_nothing_behind(tmp_path):
    (tmp_path / "greeting.md").write_text(GREETING)

    def followers():
        return [each for each in asyncio.all_tasks() if each.get_coro().__qualname__ == "RunFeed.follow"]

    async def scenario():
        async with dsa.open_runs("memory:") as runs:
            run = await runs.start(str(tmp_path / "greeting.md"), "?")
            await run.rest()
            feeds, before = RunFeeds(), asyncio.all_tasks()
            request = SimpleNamespace(
                path_params={"run": run.id}, app=SimpleNamespace(state=SimpleNamespace(runs=runs))
            )

            for _ in range(4):
                # Each page has read the run before one of them follows it.
                read = [await feeds.feed(request) for _ in range(50)]
                pages = [feeds.changes(feed, "", 0) for feed in read]
                for events in pages:
                    assert "moment1" in [await anext(events) for _ in range(2)][1]
                assert len(followers()) == 1
                for events in pages:
                    await events.aclose()
            if left := asyncio.all_tasks() - before:
                await asyncio.wait(left, timeout=30)
            assert asyncio.all_tasks() == before

    asyncio.run(scenario())
