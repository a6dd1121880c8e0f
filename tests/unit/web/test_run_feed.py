"""The feed of a run: what it says of a run that this release can read, but not go on with."""

import asyncio

import attrs

import dsa
from dsa.web.run_feed import RunFeed

GREETING = "# greeting\n\n## Events\n| event | from |\n| --- | --- |\n| hello | outside |\n| bye | outside |\n\n## States\n| state | kind |\n| --- | --- |\n| idle | initial |\n| open | |\n| done | final |\n\n## Transitions\n| source | event | target |\n| --- | --- | --- |\n| idle | hello | open |\n| open | bye | done |\n"  # fmt: skip


def test_run_of_another_release_is_named_as_one(tmp_path):
    (tmp_path / "greeting.md").write_text(GREETING)

    async def scenario() -> list[str]:
        async with dsa.open_runs("memory:") as runs:
            run = await runs.start(str(tmp_path / "greeting.md"), "?")
            await run.rest()
            news = await runs.look(run.id)
            other = attrs.evolve(news, text=GREETING.replace("| source |", "| origin |"))
            return [RunFeed(runs, run.id, each).fragments().parts["status"].html for each in (news, other)]

    own, other = asyncio.run(scenario())
    assert "for this release" not in own
    assert "not a machine for this release of dsa" in other
    assert "waiting" in other, "what was recorded can be read"
