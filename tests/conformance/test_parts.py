"""Parts on Temporal: a run that an effect waits for is a child workflow, and both runs have the same moments as in a folder."""

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import forked
import pytest
from same_moments import comparable
from temporal_server import at_work

import dsa
from dsa.runtime.ledger import ArtifactEntry, EventEntry, ResultEntry, ResumedEntry
from dsa.runtime.run_store import StoreError, UnknownRunError

TALE = """# tale

## Generators
| generator | is | options |
| --- | --- | --- |
| writer | machine | file = chapter.md |

## Events
| event | from |
| --- | --- |
| specification | outside |
| given_up | outside |
| artifact | query_llm |
| verdict | execute_guard |

## Variables
| variable | scope | domain | initial |
| --- | --- | --- | --- |
| told | workflow | bool | false |

## Guards
| guard | judges |
| --- | --- |
| any | verdict |

## States
| state | kind |
| --- | --- |
| idle | initial |
| writing | |
| judging | |
| told_it | final |
| failed | final |

## Transitions
| source | event | if | update | effects | target |
| --- | --- | --- | --- | --- | --- |
| idle | specification | | | query_llm | writing |
| writing | artifact | | | execute_guard | judging |
| writing | query_llm.failed | | | | failed |
| writing | given_up | | | cancel | failed |
| judging | verdict | any.passed | told = true | | told_it |
| judging | verdict | else | | query_llm | writing |
"""
CHAPTER = """# chapter

## Generators
| generator | is | options |
| --- | --- | --- |
| llm | | |

## Events
| event | from |
| --- | --- |
| specification | outside |
| looked | outside |
| approved | outside |
| artifact | query_llm |
| verdict | execute_guard |

## Variables
| variable | scope | domain | initial |
| --- | --- | --- | --- |
| done | workflow | bool | false |

## Guards
| guard | judges |
| --- | --- |
| good | verdict |

## States
| state | kind |
| --- | --- |
| idle | initial |
| writing | |
| judging | |
| asked | |
| written | final |
| failed | final |

## Transitions
| source | event | if | update | effects | target |
| --- | --- | --- | --- | --- | --- |
| idle | specification | | | query_llm | writing |
| writing | artifact | | | execute_guard | judging |
| judging | verdict | good.passed | done = true | | written |
| judging | verdict | good.failed | | | failed |
| judging | verdict | else | | | asked |
| asked | looked | | | | = |
| asked | approved | | done = true | | written |
| asked | after 1s | | | | failed |
"""
BINDINGS = """import asyncio
from pathlib import Path

from dsa.runtime.content import Artifact, AsyncGeneratorInterface, GuardInterface, GuardResult, Usage

HERE = Path(__file__).parent


class Model(AsyncGeneratorInterface):
    def generate(self, context, template=None):
        raise AssertionError("it is awaited")

    async def agenerate(self, context, template=None):
        with (HERE / "called").open("a") as file:
            file.write(context.key + "\\n")
        if (HERE / "holds").exists():
            (HERE / "holds").unlink()
            await asyncio.sleep(60)
        number = len((HERE / "called").read_text().splitlines())
        return Artifact(f"chapter {number}", usage=Usage("pen", 0.5, 10, 20, 0.25))


class Good(GuardInterface):
    blocks = False

    def validate(self, artifact, **dependencies):
        how = (HERE / "how").read_text()
        return GuardResult(passed=how == "passes", feedback="a person must see it", fatal=how == "asks")


class Any(GuardInterface):
    blocks = False

    def validate(self, artifact, **dependencies):
        return GuardResult(passed=artifact.content != "chapter 1" or "once" in str(dependencies), feedback="another one")


generators = {"llm": Model()}
guards = {"good": Good(), "any": Any()}
"""


def tale(folder: Path, how: str, *, chapter: str = CHAPTER) -> Path:
    """Write the documents and the code, and return the document of the whole."""
    folder.mkdir(exist_ok=True)
    (folder / "bindings.py").write_text(BINDINGS)
    (folder / "chapter.md").write_text(chapter)
    (folder / "tale.md").write_text(TALE)
    (folder / "how").write_text(how)
    (folder / "called").write_text("")
    return folder / "tale.md"


@asynccontextmanager
async def working(where: str | Path, at_once: int = 1) -> AsyncIterator[Any]:
    """Open runs, on Temporal beside a worker that has one place for effects."""
    async with dsa.open_runs(where) as runs:
        if not str(where).startswith("temporal:"):
            yield runs
            return
        async with at_work(runs, at_once=at_once):
            yield runs


Test = Callable[[Any, dsa.RunHandle], Awaitable[None]]


def moments(where: str | Path, document: Path, test: Test, most_events: int | None = None) -> dict[str, Any]:
    """Return the comparable moments of a tale and its parts after the actions of people."""

    async def whole() -> dict[str, Any]:
        async with working(where) as runs:
            runs.most_events = most_events
            run = await runs.start(document, "cats", run_id="tale")
            await test(runs, run)
            ids = [each for each in runs.ids() if each == "tale" or each.startswith("tale+")]
            return {each: plain(list(runs.get(each).run.ledger)) for each in ids}

    return asyncio.run(asyncio.wait_for(whole(), 60))


def plain(entries: list[Any]) -> list[Any]:
    """Return entries as `comparable` does, without deadlines in the questions of parts."""
    text = json.dumps([*comparable("tale", entries)])
    return list(json.loads(re.sub(r'"due_ms": \d+', '"due_ms": 0', text)))


async def ends(runs: Any, run: dsa.RunHandle) -> None:
    rest = await run.rest()
    assert (rest.kind, rest.run.configuration.state) == ("finished", "told_it")


async def approves(runs: Any, run: dsa.RunHandle) -> None:
    rest = await run.rest()
    assert rest.waits_for == {"approved": "tale+1.1@3", "given_up": "1", "looked": "tale+1.1@3"}
    await runs.send(run.id, "looked")  # the part stays where it is; the whole looks again
    await run.rest()
    await runs.send(run.id, "approved", at=rest.waits_for["approved"])
    rest = await run.rest()
    while rest.run.configuration.state != "told_it":  # the second chapter
        await runs.send(run.id, "approved")
        rest = await run.rest()


async def waits_too_long(runs: Any, run: dsa.RunHandle) -> None:
    rest = await run.rest()
    assert rest.due_ms is not None, "the timer of its part is its own"
    rest = await run.rest(through_timers=True)
    while rest.kind == "waiting":
        rest = await run.rest(through_timers=True)
    assert rest.run.configuration.state == "failed"


async def stops(runs: Any, run: dsa.RunHandle) -> None:
    rest = await run.rest()
    assert (rest.kind, rest.run.configuration.state) == ("finished", "failed")


#: How the guard of a part judges, and the actions of people.
CASES: dict[str, tuple[str, Test]] = {
    "guard passes": ("passes", ends),
    "a person approves": ("asks", approves),
    "timer fires": ("asks", waits_too_long),
    "guard fails": ("fails", stops),
}

#: Cases that continue in a new execution as soon as possible.
CONTINUED = [pytest.param(case, 1, marks=[] if case == "a person approves" else [pytest.mark.full]) for case in CASES]


@pytest.mark.parametrize(("case", "most_events"), [(case, None) for case in CASES] + CONTINUED)
def test_whole_and_parts_have_the_same_moments(
    case: str, most_events: int | None, tmp_path: Path, namespaces: Iterator[str]
) -> None:
    how, test = CASES[case]
    chapter = CHAPTER if test is waits_too_long else CHAPTER.replace("after 1s", "after 24h")
    document = tale(tmp_path / "code", how, chapter=chapter)
    here = moments(tmp_path / "runs", document, test)
    tale(tmp_path / "code", how, chapter=chapter)
    there = moments(next(namespaces), document, test, most_events)
    assert list(there) == list(here)
    for run in here:
        assert there[run] == here[run]


async def is_given_up(runs: Any, run: dsa.RunHandle, folder: Path) -> None:
    while not (folder / "called").read_text():  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    await runs.send(run.id, "given_up")
    assert (await run.rest()).run.configuration.state == "failed"
    while (status := (await runs.list())[-1].status) != "interrupted":
        assert status in {"under way", "cut off"}
        await asyncio.sleep(0.05)


def test_cancelled_effect_interrupts_its_part(tmp_path: Path, namespaces: Iterator[str]) -> None:
    """The part would work for a minute; its whole continues without it."""
    document = tale(tmp_path / "code", "passes")
    for where in (tmp_path / "runs", next(namespaces)):
        tale(tmp_path / "code", "passes")
        (tmp_path / "code" / "holds").touch()
        told = moments(where, document, lambda runs, run: is_given_up(runs, run, tmp_path / "code"))
        kinds = {run: [each["kind"] for each in entries] for run, entries in told.items()}
        assert kinds == {
            "tale": ["machine", "event", "row", "effect", "event", "row"],
            "tale+1.1": ["machine", "event", "row", "effect"],
        }


def test_part_is_a_child_workflow_and_is_removed_with_its_whole(tmp_path: Path, namespaces: Iterator[str]) -> None:
    where, document = next(namespaces), tale(tmp_path, "asks", chapter=CHAPTER.replace("after 1s", "after 24h"))

    async def whole() -> None:
        async with working(where) as runs:
            run = await runs.start(document, "cats", run_id="tale")
            await run.rest()
            client = await runs.link.wait(runs.link.client())
            about = await runs.link.wait(client.get_workflow_handle("tale+1.1").describe())
            assert about.parent_id == "tale"
            while len(parts := [each.run for each in await runs.list()]) < 2:  # noqa: ASYNC110
                await asyncio.sleep(0.1)  # a list may be a moment old
            assert sorted(parts) == ["tale", "tale+1.1"]
            await run.interrupt()
            await runs.remove("tale")
            for each in parts:
                with pytest.raises(UnknownRunError):
                    runs.get(each)

    asyncio.run(asyncio.wait_for(whole(), 60))


def test_cost_of_a_part_is_counted_once(tmp_path: Path, namespaces: Iterator[str]) -> None:
    """The part ends before its whole looks again, and its model is called once for each chapter."""
    document = tale(tmp_path, "asks", chapter=CHAPTER.replace("after 1s", "after 24h"))

    async def whole() -> None:
        async with working(next(namespaces)) as runs:
            run = await runs.start(document, "cats", run_id="tale")
            await approves(runs, run)
            ledger = run.run.ledger
            made = [each.prompt_tokens for each in ledger if isinstance(each, ArtifactEntry)]
            assert made == [10, 10]
            assert (tmp_path / "called").read_text().split() == ["tale+1.1/1/1", "tale+3.1/1/1"]
            assert [each.event for each in ledger if isinstance(each, EventEntry)].count("artifact") == 2
            assert all(
                each.effects == (("1/1", "again"),) for each in list(ledger)[:6] if isinstance(each, ResumedEntry)
            )
            assert isinstance(ledger[4], ResultEntry)

    asyncio.run(asyncio.wait_for(whole(), 60))


def dsa_says(folder: Path, where: str, *words: str) -> str:
    forked.start()
    command = [*forked.DSA, *words, "--runs", where]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False).stdout


def begin_work(folder: Path, where: str) -> "subprocess.Popen[bytes]":
    """Start a worker with one place for effects."""
    command = [sys.executable, "-m", "dsa", "work", ".", "--runs", where, "--limit", "1"]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


@pytest.mark.limit(100)
def test_question_of_a_part_is_answered_from_another_process(tmp_path: Path, namespaces: Iterator[str]) -> None:
    """The worker that asked is killed before the answer comes: nothing is under way, so nothing is lost."""
    where = next(namespaces)
    tale(tmp_path, "asks", chapter=CHAPTER.replace("after 1s", "after 24h"))

    worker = begin_work(tmp_path, where)
    try:
        told = json.loads(dsa_says(tmp_path, where, "run", "tale.md", "cats", "--json"))
        part = f"{told['run']}+1.1"
        assert told["waits_for"] == {"approved": f"{part}@3", "given_up": "1", "looked": f"{part}@3"}
        worker.kill()
        worker.wait()
        worker = begin_work(tmp_path, where)
        sent = json.loads(dsa_says(tmp_path, where, "send", f"{part}@3", "approved", "--json"))
        assert (sent["run"], sent["waits_for"]["approved"]) == (told["run"], f"{told['run']}+3.1@3")
        assert "finished" in dsa_says(tmp_path, where, "show", part) + dsa_says(tmp_path, where, "runs")
    finally:
        worker.kill()
        worker.wait()


@pytest.mark.full
@pytest.mark.limit(100)
def test_worker_killed_while_a_part_runs_leaves_it_to_the_next(tmp_path: Path, namespaces: Iterator[str]) -> None:
    """The effects of whole and part are both in doubt; the effect of the whole finds the part that it had started."""
    where, document = next(namespaces), tale(tmp_path, "passes")
    (tmp_path / "holds").touch()

    async def whole() -> dict[str, list[Any]]:
        worker = begin_work(tmp_path, where)
        try:
            async with dsa.open_runs(where) as runs:
                run = await runs.start(document, "cats", run_id="tale")
                while not (tmp_path / "called").read_text():  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
                worker.kill()
                worker.wait()
                worker = begin_work(tmp_path, where)
                await is_told(run)
                assert {each for each in runs.ids() if each.startswith("tale+1.1.")} == set()
                return {each: [type(entry) for entry in runs.get(each).run.ledger] for each in ("tale", "tale+1.1")}
        finally:
            worker.kill()
            worker.wait()

    kinds = asyncio.run(asyncio.wait_for(whole(), 90))
    assert {run: types.count(ResumedEntry) for run, types in kinds.items()} == {"tale": 1, "tale+1.1": 1}
    assert (tmp_path / "called").read_text().split()[:2] == ["tale+1.1/1/1", "tale+1.1/1/1"]


async def is_told(run: dsa.RunHandle) -> None:
    """Wait until a tale is told; look again if no worker has answered for a while."""
    while True:
        try:
            rest = await run.rest()
        except StoreError:
            continue
        assert (rest.kind, rest.run.configuration.state) == ("finished", "told_it")
        return
