"""The feed of a run: what a person reads of its questions, its parts, and of a run that this release cannot go on with."""

import asyncio

import attrs

import dsa
from dsa.edge.document_files import load
from dsa.runtime.ledger import ArtifactEntry
from dsa.web.machine_drawing import picture_marks
from dsa.web.run_feed import RunFeed

GREETING = "# greeting\n\n## Events\n| event | from |\n| --- | --- |\n| hello | outside |\n| bye | outside |\n\n## States\n| state | kind |\n| --- | --- |\n| idle | initial |\n| open | |\n| done | final |\n\n## Transitions\n| source | event | target |\n| --- | --- | --- |\n| idle | hello | open |\n| open | bye | done |\n"  # fmt: skip


def feeds(tmp_path, *variations):
    """Return the feeds of a run that waits for `bye`: each variation takes its id and its news, and gives the feed's."""
    (tmp_path / "greeting.md").write_text(GREETING)

    async def scenario() -> list[RunFeed]:
        async with dsa.open_runs("memory:") as runs:
            run = await runs.start(str(tmp_path / "greeting.md"), "?")
            await run.rest()
            news = await runs.look(run.id)
            return [RunFeed(runs, *vary(run.id, news)) for vary in variations]

    return asyncio.run(scenario())


def test_answer_says_where_it_leads(tmp_path):
    (feed,) = feeds(tmp_path, lambda run, news: (run, news))
    assert "Leads to done." in feed.fragments().parts["asks"].html


def test_part_of_a_run_has_a_link_to_the_whole_run_and_the_whole_run_to_the_part(tmp_path):
    def with_artifact(run, news):
        entry = ArtifactEntry("1/1", "plot", 1, f"{run}+1.1/0123456789ab", "0" * 64)
        return run, attrs.evolve(news, entries=(*news.entries, entry))

    whole, part = feeds(tmp_path, with_artifact, lambda run, news: (f"{run}+1.1", news))
    assert f'href="/runs/{whole.id}%2B1.1"' in whole.moments(0, len(whole.entries)).html
    assert f'href="/runs/{whole.id}"' in part.fragments().parts["status"].html
    assert "part of" not in whole.fragments().parts["status"].html


def test_step_that_a_run_is_at_is_marked():
    states = ("idle", "generating.g_test", "validating.g_test", "generating.g_impl")
    assert picture_marks(load("workflow"), (), states) == {"idle": "past", "g_test": "past", "g_impl": "now"}


def test_run_of_another_release_is_named_as_one(tmp_path):
    text = GREETING.replace("| source |", "| origin |")
    both = feeds(tmp_path, lambda run, news: (run, news), lambda run, news: (run, attrs.evolve(news, text=text)))
    own, other = (feed.fragments().parts["status"].html for feed in both)
    assert "for this release" not in own
    assert "not a machine for this release of dsa" in other
    assert "waiting" in other, "what was recorded can be read"
