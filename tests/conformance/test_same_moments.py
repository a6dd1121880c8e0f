"""The same document with the same scripted world has the same moments on Temporal as in memory, without times, hosts and engine ids.

The world answers one effect at a time, the oldest first, so that both hear of everything in one order. Its answers depend only on the
number of earlier answers, and the events that people send on the number of earlier events. Neither depends on keys: a refused event of a person has
a number in memory, and none on Temporal.
"""

import asyncio
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest
from same_moments import comparable

import dsa
from dsa.edge.binding import effect_names
from dsa.edge.document_files import shipped_documents
from dsa.lang import digest
from dsa.machine import read_guards
from dsa.runs.child_runs import MachineGenerator
from dsa.runs.setup import document_of
from dsa.runtime.content import AmbientEnvironment, Artifact, Context, GeneratorInterface, GuardInterface, GuardResult
from dsa.runtime.ledger import EventEntry, Intents, ResultEntry
from dsa.runtime.status import person_effects

HEAD = """# {name}

## States
| state | kind |
| --- | --- |
| idle | initial |
| busy | |
{asked}| end.done | final |
| end.escalated | final |

"""
#: The events of all documents, and where they come from.
EVENTS = {
    "order": "outside",
    "approved": "outside",
    "stopped": "outside",
    "found": "look",
    "priced": "price",
    "sent": "send",
}
#: The documents by purpose: their rows, and the events that people send, in this order.
DOCUMENTS = {
    "a_timer": (
        """
| source | event | target | effects |
| --- | --- | --- | --- |
| idle | order | busy | |
| busy | after 1s | asked | |
| asked | approved | end.done | |
| busy | after 10m | end.escalated | |
""",
        (None, "approved"),
    ),
    "a_cancellation": (
        """
| source | event | target | effects |
| --- | --- | --- | --- |
| idle | order | busy | look, price |
| busy | found | asked | cancel, send |
| asked | sent | = | |
| asked | approved | end.done | |
""",
        ("approved",),
    ),
    "an_escalation": (
        """
| source | event | target | effects |
| --- | --- | --- | --- |
| idle | order | busy | look |
| busy | found | end.done | |
| busy | look.failed | end.escalated | |
""",
        (),
    ),
    "two_effects_at_once": (
        """
| source | event | target | effects |
| --- | --- | --- | --- |
| idle | order | busy | look, price, send |
| busy | found | = | |
| busy | priced | = | |
| busy | sent | asked | |
| asked | found | = | |
| asked | priced | = | |
| asked | approved | end.done | |
""",
        ("approved",),
    ),
}
#: Events that the table refuses before each event that it takes.
REFUSALS = ("order", "stopped", "approved")


@attrs.frozen
class HashedGuard(GuardInterface):
    """A guard whose verdict depends only on the artifact."""

    blocks = False

    def validate(self, artifact: Artifact, **dependencies: Any) -> GuardResult:
        return GuardResult(zlib.crc32(artifact.content.encode()) % 3 > 0, "a third fails")


@attrs.define
class World:
    """The world around one run: the policies of its effects wait here until it is their turn."""

    fails: bool = False
    count: int = 0
    waiting: dict[str, asyncio.Future[None]] = attrs.field(factory=dict)

    def bind(self, machine: dsa.Machine, settings: Mapping[str, Any]) -> dsa.Bindings:
        """Bind every effect and every guard of a machine."""
        effects = {name: self.policy(machine, name) for name, _ in effect_names(machine)}
        return dsa.Bindings(effects, {name: HashedGuard() for name in read_guards(machine.transitions)})

    def policy(self, machine: dsa.Machine, effect: str) -> Any:
        answers = [each for each in machine.answers.get(effect, ()) if not each.endswith(".failed")]

        async def perform(action: dsa.Action, context: dsa.PolicyContext) -> list[dsa.Step]:
            key = "/".join(context.key.split("/")[1:3])
            if not answers:
                return []
            turn = self.waiting[key] = asyncio.get_running_loop().create_future()
            await turn
            if self.fails:
                raise OSError("no route")
            self.count += 1
            answer = answers[zlib.crc32(f"{effect}{self.count}".encode()) % len(answers)]
            return [dsa.event_step(effect, answer, data={"number": self.count})]

        return perform

    async def work(self, run: dsa.RunHandle) -> None:
        """Let effects answer one at a time, the oldest first, until the run rests."""
        resting = asyncio.create_task(run.rest())
        while not resting.done():
            now = run.run
            asked = person_effects(now).values()
            oldest = next((key for key in now.keys if key not in asked and key not in now.sleeps), None)
            results = {entry.key for entry in now.ledger if isinstance(entry, ResultEntry)}
            others = (each for each in Intents(now.ledger).values() if each.effect not in now.machine.answers)
            is_in_order = all(each.key in results for each in others)  # those without answers end first, as in memory
            turn = self.waiting.pop(oldest, None) if oldest and is_in_order else None
            if turn is not None and not turn.done():
                turn.set_result(None)
            await asyncio.wait({resting}, timeout=0.01)
        await resting


async def story(
    where: str,
    document: str | Path,
    world: World,
    people: Callable[[dsa.Rest, int], str | None],
    most_events: int | None = None,
) -> list[Any]:
    """Return the moments of a run in their comparable form, and the outcomes of the events that people sent.

    On Temporal the run goes on in a new execution after `most_events` events of its history.
    """
    async with dsa.open_runs(where) as runs:
        runs.most_events = most_events  # type: ignore[attr-defined]  # of runs on Temporal
        data = {"text": "go"} if "goal" in Path(str(document)).stem else "go"
        try:
            run = await runs.start(document, data, bindings=world.bind)
        except ValueError:
            run = await runs.start(document, bindings=world.bind)
        outcomes = list[Any]()
        for number in range(8):
            await world.work(run)
            rest = await run.rest()
            event = people(rest, number)
            if rest.kind != "waiting" or (event is None and rest.due_ms is None):
                break
            if event is None:
                await run.rest(through_timers=True)
                continue
            for name in (*REFUSALS, event):
                is_outside = name in {each.name for each in rest.run.machine.events if each.origin == "outside"}
                if is_outside and (name == event or name not in rest.waits_for):
                    outcome = await runs.send(run.id, name, {"number": number})
                    outcomes.append((name, type(outcome).__name__, getattr(outcome, "reason", None)))
        rest = await run.rest()
        await run.interrupt() if rest.kind != "finished" else None
        if where.startswith("temporal:"):
            await replay_history(where, run.id)
        return [
            rest.kind,
            str(rest.failure),
            outcomes,
            *comparable(run.id, [each.entry async for each in run.moments()]),
        ]


async def replay_history(where: str, run_id: str) -> None:
    """Replay the histories of a run as another worker would: each workflow task has to give the same commands. Raises what differs."""
    from temporalio.client import Client
    from temporalio.worker import Replayer

    from dsa.temporal.payloads import CONVERTER
    from dsa.temporal.server_link import RUNNER
    from dsa.temporal.temporal_runs import WORKFLOWS

    host, _, namespace = where.removeprefix("temporal://").partition("/")
    client = await Client.connect(host, namespace=namespace, data_converter=CONVERTER)
    replayer = Replayer(workflows=WORKFLOWS, workflow_runner=RUNNER, data_converter=CONVERTER)
    async for execution in client.list_workflows(f"WorkflowId = '{run_id}'"):
        history = await client.get_workflow_handle(run_id, run_id=execution.run_id).fetch_history()
        await replayer.replay_workflow(history)


def on_both(
    document: str | Path,
    world: Callable[[], World],
    people: Callable[[dsa.Rest, int], str | None],
    namespaces: Iterator[str],
    most_events: int | None = None,
) -> None:
    """Compare a run in memory with the same one on Temporal."""

    async def both() -> tuple[list[Any], list[Any]]:
        return await story("memory:", document, world(), people), await story(
            next(namespaces), document, world(), people, most_events
        )

    here, there = asyncio.run(asyncio.wait_for(both(), 100))
    assert there == here


#: The length of a history after which a run continues in a new execution: chosen by the server, and as early as possible.
MOST_EVENTS = (None, 1)


@pytest.mark.parametrize("most_events", MOST_EVENTS)
@pytest.mark.parametrize("name", sorted(DOCUMENTS))
def test_small_document_has_the_same_moments(
    name: str, most_events: int | None, tmp_path: Path, namespaces: Iterator[str]
) -> None:
    rows, sent = DOCUMENTS[name]
    origins = "".join(f"| {event} | {origin} |\n" for event, origin in EVENTS.items() if f"| {event} |" in rows)
    document = tmp_path / f"{name}.md"
    asked = "| asked | |\n" if "| asked |" in rows else ""
    events = f"## Events\n| event | from |\n| --- | --- |\n{origins}\n## Transitions{rows}"
    document.write_text(HEAD.format(name=name, asked=asked) + events)
    on_both(
        document,
        lambda: World(fails=name == "an_escalation"),
        lambda _rest, number: sent[number] if number < len(sent) else None,
        namespaces,
        most_events,
    )


def any_event(rest: dsa.Rest, number: int) -> str | None:
    """Return an event that a run waits for, which follows from the number of those before."""
    names = sorted(rest.waits_for)
    return names[zlib.crc32(f"{number}".encode()) % len(names)] if names else None


#: Pages about the language, which are not machine documents.
PROSE = ("README.md", "semantics.md", "table.md")
#: Documents that are compared in every run of the tests; the others take longer, or are specs of the same machines.
QUICK = ("dual_state", "examples/two_phase_commit", "katas/exhausted", "policy")
SHIPPED = [
    pytest.param(name, marks=[] if name in QUICK else [pytest.mark.full]) for name in sorted(shipped_documents())
]


@pytest.mark.parametrize("name", SHIPPED)
@pytest.mark.parametrize("most_events", [None, pytest.param(1, marks=pytest.mark.full)])
def test_shipped_machine_has_the_same_moments(name: str, most_events: int | None, namespaces: Iterator[str]) -> None:
    on_both(name, World, any_event, namespaces, most_events)


@dsa.answering("found", "unknown")
async def look_up(action: dsa.Action, context: dsa.PolicyContext) -> list[dsa.Step]:
    return [dsa.event_step("look_up", "found", data={"order": "A17"})]


@dsa.answering("sent")
async def reply(action: dsa.Action, context: dsa.PolicyContext) -> list[dsa.Step]:
    assert context.run.step("names").latest is not None
    return [dsa.event_step("reply", "sent")]


@pytest.mark.parametrize("most_events", MOST_EVENTS)
def test_agent_with_a_model_and_a_guard_has_the_same_moments(
    most_events: int | None, tmp_path: Path, namespaces: Iterator[str]
) -> None:
    """Artifacts, verdicts and feedback pass through Temporal: the second answer of the script passes, and the first is its parent."""
    guide = Path(__file__).parents[2] / "docs" / "how-to" / "embed.md"
    document, script = tmp_path / "support.md", tmp_path / "answers.md"
    document.write_text(guide.read_text().split("```markdown\n")[1].split("```")[0])
    script.write_text("```\nIt is on its way.\n```\n\n```\nOrder A17 is on its way.\n```\n")
    bindings = dsa.Bindings({"look_up": look_up, "reply": reply})

    async def one(where: str) -> tuple[list[Any], list[str], list[str]]:
        async with dsa.open_runs(where) as runs:
            runs.most_events = most_events  # type: ignore[attr-defined]  # of runs on Temporal
            how: dict[str, Any] = {"bindings": bindings, "model": f"scripted:{script}", "run_id": "agent"}
            run = await runs.start(document, "Where is my order?", **how)
            rest = await run.rest()
            stored_attempts = [each.artifact_id for each in run.artifacts.attempts()]
            return (
                [*comparable("agent", list(run.run.ledger))],
                [each.content for each in rest.accepted],
                stored_attempts,
            )

    async def both() -> tuple[Any, Any]:
        return await one("memory:"), await one(next(namespaces))

    here, there = asyncio.run(asyncio.wait_for(both(), 60))
    assert there == here
    assert here[1] == ["Order A17 is on its way.\n"]


CHAPTER = """# chapter

## Guards
| guard | judges | is | options |
| --- | --- | --- | --- |
| kind | draft | regex | pattern = please |

## Steps
| step | guard | rmax | task |
| --- | --- | --- | --- |
| draft | kind | 2 | Answer {specification} |
"""


class Polite(GeneratorInterface):
    """A model whose second answer is polite."""

    def __init__(self) -> None:
        self._count = 0

    def generate(self, context: Context, template: Any = None) -> Artifact:
        self._count += 1
        return Artifact(f"{'wait, please' if self._count > 1 else 'wait'} ({self._count})")


@pytest.mark.parametrize("most_events", MOST_EVENTS)
def test_child_run_has_the_same_moments(most_events: int | None, tmp_path: Path, namespaces: Iterator[str]) -> None:
    """The policy of an effect runs another machine. Bindings are objects, so whole and part are worked on by this process."""
    rows, _ = DOCUMENTS["two_effects_at_once"]
    origins = "".join(f"| {event} | {origin} |\n" for event, origin in EVENTS.items() if f"| {event} |" in rows)
    document, chapter = tmp_path / "tale.md", tmp_path / "chapter.md"
    events = f"## Events\n| event | from |\n| --- | --- |\n{origins}\n## Transitions{rows}"
    document.write_text(HEAD.format(name="tale", asked="| asked | |\n") + events)
    chapter.write_text(CHAPTER)

    async def one(where: str | Path) -> dict[str, list[Any]]:
        async with dsa.open_runs(where) as runs:
            runs.most_events = most_events  # type: ignore[attr-defined]  # of runs on Temporal
            options = dsa.Options(bindings=dsa.Bindings({}, generators={"llm": Polite()}))
            generator = MachineGenerator(runs, runs.setup(document_of(chapter), options))
            turns = {"price": asyncio.Event(), "send": asyncio.Event()}

            @dsa.answering("found")
            async def look(action: dsa.Action, context: dsa.PolicyContext) -> list[dsa.Step]:
                key = "/".join(context.key.split("/")[:3])
                artifact = await generator.agenerate(Context(AmbientEnvironment(), "where is it?", key=key))
                return [dsa.event_step("look", "found", data={"text": artifact.content})]

            def later(effect: str, event: str) -> Any:
                @dsa.answering(event)
                async def perform(action: dsa.Action, context: dsa.PolicyContext) -> list[dsa.Step]:
                    await turns[effect].wait()
                    return [dsa.event_step(effect, event)]

                return perform

            effects = {"look": look, "price": later("price", "priced"), "send": later("send", "sent")}
            run = await runs.start(document, "go", bindings=dsa.Bindings(effects), run_id="tale")
            for event, effect in (("found", "price"), ("priced", "send")):
                while event not in [each.event for each in run.run.ledger if isinstance(each, EventEntry)]:  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
                turns[effect].set()
            while (rest := await run.rest()).run.keys:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
            assert rest.run.configuration.state == "asked"
            await runs.send("tale", "approved")
            assert (await run.rest()).kind == "finished"
            return {each: [*comparable("tale", list(runs.get(each).run.ledger))] for each in ("tale", "tale+1.1")}

    async def both() -> tuple[Any, Any]:
        return await one(tmp_path / "runs"), await one(next(namespaces))

    here, there = asyncio.run(asyncio.wait_for(both(), 60))
    assert there == here
    assert [each["kind"] for each in here["tale+1.1"]].count("verdict") == 2


def test_no_machine_is_left_out() -> None:
    """Every runnable document in `machines/` and `specs/` is compared, or describes a machine that is."""
    root = Path(__file__).parents[2]
    compared = {digest(document_of(name).machine) for name in shipped_documents()}
    files = [*(root / "machines").glob("*/*.md"), *(root / "machines").glob("*/*/*.md"), *(root / "specs").glob("*.md")]
    documents = [path for path in files if "\n## " in path.read_text() and path.name not in PROSE]
    assert len(documents) >= len(compared)
    assert {path.name for path in documents if digest(document_of(path).machine) not in compared} == set()
