"""A run that waits for the question of its part: no process holds either, and events for the part go through the whole."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from forked import DSA

import dsa
from dsa.runs.runs import Worker
from dsa.runtime.ledger import ArtifactEntry, ResultEntry, ResumedEntry

HOUR_MS = 3_600_000

STORY = """# story

## Generators
| generator | is      | options           |
| --------- | ------- | ----------------- |
| writer    | machine | file = chapter.md |

## Events
| event         | from          |
| ------------- | ------------- |
| specification | outside       |
| given_up      | outside       |
| artifact      | query_llm     |
| verdict       | execute_guard |

## Variables
| variable | scope    | domain | initial |
| -------- | -------- | ------ | ------- |
| told     | workflow | bool   | false   |

## Guards
| guard | judges  |
| ----- | ------- |
| any   | verdict |

## States
| state   | kind    |
| ------- | ------- |
| idle    | initial |
| writing |         |
| judging |         |
| told_it | final   |
| failed  | final   |

## Transitions
| source  | event            | if         | update      | effects       | target  |
| ------- | ---------------- | ---------- | ----------- | ------------- | ------- |
| idle    | specification    |            |             | query_llm     | writing |
| writing | artifact         |            |             | execute_guard | judging |
| writing | query_llm.failed |            |             |               | failed  |
| writing | given_up         |            |             |               | failed  |
| judging | verdict          | any.passed | told = true |               | told_it |
| judging | verdict          | else       |             |               | failed  |
"""

CHAPTER = """# chapter

## Generators
| generator | is | options |
| --------- | -- | ------- |
| llm       |    |         |

## Events
| event         | from          |
| ------------- | ------------- |
| specification | outside       |
| approved      | outside       |
| artifact      | query_llm     |
| verdict       | execute_guard |

## Variables
| variable | scope    | domain | initial |
| -------- | -------- | ------ | ------- |
| done     | workflow | bool   | false   |

## Guards
| guard | judges  |
| ----- | ------- |
| good  | verdict |

## States
| state     | kind    |
| --------- | ------- |
| idle      | initial |
| writing   |         |
| judging   |         |
| escalated |         |
| written   | final   |
| failed    | final   |

## Transitions
| source    | event         | if          | update      | effects       | target    |
| --------- | ------------- | ----------- | ----------- | ------------- | --------- |
| idle      | specification |             |             | query_llm     | writing   |
| writing   | artifact      |             |             | execute_guard | judging   |
| judging   | verdict       | good.passed | done = true |               | written   |
| judging   | verdict       | else        |             |               | escalated |
| escalated | approved      |             | done = true |               | written   |
| escalated | after 24h     |             |             |               | failed    |
"""

BINDINGS = """
import os, signal
from pathlib import Path

from dsa.runtime.content import Artifact, GeneratorInterface, GuardInterface, GuardResult, Usage


class Model(GeneratorInterface):
    def generate(self, context, template=None):
        with (Path(__file__).parent / "called.txt").open("a") as file:
            file.write(context.key + "\\n")
        if "KILLED" in os.environ:
            os.kill(os.getpid(), signal.SIGKILL)
        return Artifact("a chapter", usage=Usage("pen", 0.5, 10, 20, 0.25))


class Doubting(GuardInterface):
    blocks = False

    def validate(self, artifact, **dependencies):
        return GuardResult(passed=False, feedback="a person must see it", fatal=True)


class Content(GuardInterface):
    blocks = False

    def validate(self, artifact, **dependencies):
        return GuardResult(passed=True, feedback="")


generators = {"llm": Model()}
guards = {"good": Doubting(), "any": Content()}
"""


class Clock:
    """A wall clock that a test moves."""

    ahead_ms = 0

    def now_s(self):
        return self.ahead_ms / 1000

    def wall_ms(self):
        return 1_800_000_000_000 + self.ahead_ms

    async def sleep(self, seconds):
        until = self.ahead_ms + 1000 * seconds
        while self.ahead_ms < until:  # noqa: ASYNC110  (a test sets it from anywhere)
            await asyncio.sleep(0.001)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "story.md").write_text(STORY)
    (tmp_path / "chapter.md").write_text(CHAPTER)
    (tmp_path / "bindings.py").write_text(BINDINGS)
    return tmp_path


def dsa_says(folder, *arguments, code=0, **environment):
    done = subprocess.run(
        [*DSA, *arguments], cwd=folder, env={**os.environ, **environment},
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def called(folder):
    return (folder / "called.txt").read_text().splitlines()


def test_whole_waits_with_the_question_of_its_part(folder):
    told = json.loads(dsa_says(folder, "run", "story.md", "cats", "--json", code=3))
    part = f"{told['run']}+1.1"
    assert (told["kind"], told["failure"]) == ("waiting", None)
    assert told["waits_for"] == {"approved": f"{part}@3", "given_up": "1"}
    assert told["due_ms"] is not None, "the part's timer is its own"
    (line,) = (each for each in json.loads(dsa_says(folder, "runs", "--json", "--waiting", "given_up")))
    assert (line["kind"], line["waits_for"]) == ("waiting", told["waits_for"])
    shown = dsa_says(folder, "show", told["run"])
    assert f"approved: {part}@3" in shown
    assert f"query_llm 1/1 waits for {part}" in shown
    assert "failed" not in shown
    said = dsa_says(folder, "send", f"{part}@3", "approved")
    assert "told_it" in said
    assert called(folder) == [f"{part}/1/1"], "what was approved is what is used: nothing is asked again"


def test_printed_command_accepts_the_printed_place(folder):
    told = json.loads(dsa_says(folder, "run", "story.md", "cats", "--json", code=3))
    assert "told_it" in dsa_says(folder, "send", f"{told['run']}@{told['waits_for']['approved']}", "approved")


def test_waiting_part_is_not_printed_as_an_error(folder):
    told = dsa_says(folder, "run", "story.md", "cats", code=3)
    assert re.search(r"any  attempt  1  waits .* for \S+\+1\.1$", told, re.MULTILINE), told
    assert "error" not in told


def test_answer_without_a_place_finds_the_part_that_asks(folder):
    told = json.loads(dsa_says(folder, "run", "story.md", "cats", "--json", code=3))
    assert "told_it" in dsa_says(folder, "send", told["run"], "approved")


def test_resuming_a_part_continues_the_whole(folder):
    told = json.loads(dsa_says(folder, "run", "story.md", "cats", "--json", code=3))
    again = json.loads(dsa_says(folder, "resume", f"{told['run']}+1.1", "--json", code=3))
    assert (again["run"], again["kind"], again["waits_for"]) == (told["run"], "waiting", told["waits_for"])
    assert len(called(folder)) == 1


@pytest.mark.parametrize("where", [".dsa", "memory:"])
def test_driver_of_the_whole_is_notified_of_the_answer(folder, where):
    async def story():
        async with dsa.open_runs(where if where == "memory:" else folder / where) as runs:
            run = await runs.start(folder / "story.md", "cats")
            rest = await run.rest()
            assert rest.kind == "waiting"
            place = rest.waits_for["approved"]
            late = await runs.send(run.id, "approved", at=place.replace("@3", "@1"))
            assert (late.delivery.reason, run.run.configuration.state) == ("late", "writing")
            posted = await runs.send(run.id, "approved", at=place)
            assert posted.delivery.reason == ""
            rest = await run.rest()
            assert rest.run.configuration.state == "told_it"
            assert [each.content for each in rest.accepted] == ["a chapter"]
            return run.run.ledger

    entries = asyncio.run(story())
    assert next(entry.effects for entry in entries if isinstance(entry, ResumedEntry)) == (("1/1", "again"),)
    results = [entry.steps[-1]["payload"].get("code") for entry in entries if isinstance(entry, ResultEntry)]
    assert "waiting" in results
    made = [(e.prompt_tokens, e.cost_usd) for e in entries if isinstance(e, ArtifactEntry)]
    assert made == [(10, 0.25)], "what the part took before it waited counts"


def test_budget_counts_the_try_that_waited_once(folder):
    told = json.loads(dsa_says(folder, "run", "story.md", "cats", "--json", "--budget", "query_llm.calls=1", code=3))
    assert "told_it" in dsa_says(folder, "send", told["run"], "approved")


@pytest.mark.parametrize("answered", [True, False])
def test_event_or_timer_of_a_part_makes_its_whole_due_but_not_the_part(folder, answered):
    clock = Clock()

    async def story():
        async with dsa.open_runs(folder / ".dsa", clock=clock) as runs:
            run = await runs.start(folder / "story.md", "cats")
            rest = await run.rest_within(0)
            part = f"{run.id}+1.1"
            if answered:
                runs.post(part, dsa.Occurrence("approved"), rest.waits_for["approved"].rpartition("@")[2])
            else:
                clock.ahead_ms += 25 * HOUR_MS
        async with dsa.open_runs(folder / ".dsa", clock=clock) as runs:
            taken = [each async for each in Worker(runs).take_up()]
            assert [(each.run, each.fault) for each in taken] == [(run.id, "")]
            state = taken[0].rest.run.configuration.state
            ended = runs.summary(part).summary.state
            assert [each async for each in Worker(runs).take_up()] == []
            return state, ended

    assert asyncio.run(story()) == (("told_it", "written") if answered else ("failed", "failed"))


def test_waiting_part_does_not_count_as_a_failure(folder):
    told = json.loads(dsa_says(folder, "run", "story.md", "cats", "--json", code=3))
    assert told["state"] == "writing"


def test_abandoned_part_can_continue_on_its_own(folder):
    told = json.loads(dsa_says(folder, "run", "story.md", "cats", "--json", code=3))
    assert dsa_says(folder, "send", told["run"], "given_up", code=1).count("failed")
    part = f"{told['run']}+1.1"
    assert "written" in dsa_says(folder, "send", part, "approved")
    assert json.loads(dsa_says(folder, "show", told["run"], "--json"))["state"] == "failed"


def test_timers_of_a_part_fire_while_the_whole_is_driven(folder):
    clock = Clock()

    async def story():
        async with dsa.open_runs(folder / ".dsa", clock=clock) as runs:
            run = await runs.start(folder / "story.md", "cats")
            rest = await run.rest()
            assert rest.due_ms == clock.wall_ms() + 24 * HOUR_MS
            clock.ahead_ms += 25 * HOUR_MS
            rest = await run.rest(through_timers=True)
            return rest.run.configuration.state, runs.summary(f"{run.id}+1.1").summary.state

    assert asyncio.run(story()) == ("failed", "failed")


def test_sleep_of_a_part_makes_its_whole_due(folder):
    slept = CHAPTER.replace("| escalated | after 24h     |", "| escalated | day_over      |")
    slept = slept.replace(
        "| else        |             |               | escalated |", "| else |  | wait_day | escalated |"
    )
    slept = slept.replace(
        "| verdict       | execute_guard |\n", "| verdict | execute_guard |\n| day_over | wait_day |\n"
    )
    effects = "| query_llm | | |\n| execute_guard | | |\n| wait_day | sleep | for = 24h |\n"
    (folder / "chapter.md").write_text(f"{slept}\n## Effects\n| effect | is | options |\n| - | - | - |\n{effects}")
    clock = Clock()

    async def story():
        async with dsa.open_runs(folder / ".dsa", clock=clock) as runs:
            run = await runs.start(folder / "story.md", "cats")
            rest = await run.rest_within(0)
            assert (rest.kind, rest.due_ms) == ("waiting", clock.wall_ms() + 24 * HOUR_MS)
            clock.ahead_ms += 25 * HOUR_MS
        async with dsa.open_runs(folder / ".dsa", clock=clock) as runs:
            (taken,) = [each async for each in Worker(runs).take_up()]
            return taken.rest.run.configuration.state, runs.summary(f"{run.id}+1.1").summary.state

    assert asyncio.run(story()) == ("failed", "failed")


def test_part_in_doubt_is_reported_with_its_effect_and_what_to_do(folder):
    effects = "## Effects\n| effect | in doubt |\n| - | - |\n| query_llm | ask |\n| execute_guard | retry |\n"
    (folder / "chapter.md").write_text(f"{CHAPTER}\n{effects}")
    unhandled = re.sub(r"^.*query_llm.failed.*\n", "", STORY, flags=re.MULTILINE)
    (folder / "story.md").write_text(unhandled)
    dsa_says(folder, "run", "story.md", "cats", code=-signal.SIGKILL, KILLED="1")
    told = json.loads(dsa_says(folder, "resume", "last", "--json", code=1))
    why = f"does not know whether query_llm happened: see `dsa show {told['run']}+1.1`"
    assert why in told["failure"]["message"]
    assert len(called(folder)) == 1, "the model is not called again without a decision"


KILLED = """
import asyncio, os, signal, sys
import dsa
from dsa.runs.child_runs import MachineGenerator

artifact_of = MachineGenerator._artifact_of
def killed(self, rest, artifacts):
    if rest.run.is_finished:
        os.kill(os.getpid(), signal.SIGKILL)
    return artifact_of(self, rest, artifacts)
MachineGenerator._artifact_of = killed

async def story():
    async with dsa.open_runs(".dsa") as runs:
        (whole,) = [each for each in runs.ids() if "+" not in each]
        await runs.send(whole, "approved")
        await asyncio.sleep(30)  # the part ends meanwhile

asyncio.run(story())
"""


def test_crash_between_the_end_of_a_part_and_its_whole_loses_nothing(folder):
    told = json.loads(dsa_says(folder, "run", "story.md", "cats", "--json", code=3))
    done = subprocess.run([sys.executable, "-c", KILLED], cwd=folder, check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL
    stands = {line["run"]: line["kind"] for line in json.loads(dsa_says(folder, "runs", "--json"))}
    part = f"{told['run']}+1.1"  # the stored status of the part may be older than the resumption of the whole
    assert stands in ({told["run"]: "cut off", part: kind} for kind in ("cut off", "finished"))
    dsa_says(folder, "work", "--once")
    assert json.loads(dsa_says(folder, "show", told["run"], "--json"))["state"] == "told_it"
    assert len(called(folder)) == 1


def test_question_two_machines_deep_is_asked_at_the_top(folder):
    (folder / "book.md").write_text(STORY.replace("# story", "# book").replace("chapter.md", "story.md"))
    told = json.loads(dsa_says(folder, "run", "book.md", "cats", "--json", code=3))
    assert told["waits_for"]["approved"] == f"{told['run']}+1.1+1.1@3"
    assert told["waits_for"]["given_up"] == "1", "its own question comes first"
    assert "told_it" in dsa_says(folder, "send", told["waits_for"]["approved"], "approved")
    stands = {line["run"]: line["state"] for line in json.loads(dsa_says(folder, "runs", "--json"))}
    assert list(stands.values()) == ["told_it", "told_it", "written"]


def test_resumption_of_the_whole_is_recorded_once_and_replays(folder):
    told = json.loads(dsa_says(folder, "run", "story.md", "cats", "--json", code=3))
    dsa_says(folder, "send", told["run"], "approved")
    with dsa.open_runs(folder / ".dsa") as runs:
        entries = runs.get(told["run"]).run.ledger
    resumed = [entry.effects for entry in entries if isinstance(entry, ResumedEntry)]
    assert resumed == [(("1/1", "again"),)]
    dsa_says(folder, "replay", told["run"])
    assert Path(folder / ".dsa" / told["run"]).is_dir()
