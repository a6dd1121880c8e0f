"""Long payloads of runs on Temporal are in a store that clients and workers reach; and no secret leaves a process, to the server or to the store."""

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from temporal_server import MISSING, temporal_program

import dsa
from dsa.errors import BindingError, OccurrenceError
from dsa.generators import FunctionGenerator
from dsa.runtime.content import GuardInterface, GuardResult
from dsa.runtime.generation import GenerationError
from dsa.runtime.run_store import StoreError

if temporal_program() is None:
    pytest.skip(MISSING, allow_module_level=True)

from dsa.temporal.payload_stores import GitStore
from dsa.temporal.payloads import MOST_OF_EVENT

MAKES = """# makes

## States
| state | kind |
| --- | --- |
| idle | initial |
| busy | |
| asked | |
| end.done | final |

## Events
| event | from |
| --- | --- |
| order | outside |
| approved | outside |
| made | make |

## Transitions
| source | event | effects | target |
| --- | --- | --- | --- |
| idle | order | make | busy |
| busy | made | | asked |
| busy | make.failed | | asked |
| asked | approved | | end.done |
"""
LONG = 1_500_000
#: The characters of an event that is nearly too long.
LONG_EVENT = MOST_OF_EVENT - 10_000


def makes(folder: Path) -> Path:
    path = folder / "makes.md"
    path.write_text(MAKES)
    return path


def on_disk(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


async def history_bytes(runs: Any, run_id: str) -> bytes:
    """Return all that the server has of a run, as bytes."""
    client = await runs.link.wait(runs.link.client())

    async def whole() -> bytes:
        events = [event async for event in client.get_workflow_handle(run_id).fetch_history_events()]
        return b"".join(event.SerializeToString() for event in events)

    return bytes(await runs.link.wait(whole()))


@dsa.answering("made")
async def make(action: dsa.Action, context: dsa.PolicyContext) -> list[dsa.Step]:
    """Answer with long data that must not reach the server."""
    text = action.payload["data"]["text"]
    return [dsa.event_step("make", "made", data={"text": text[::-1] + "m" * LONG})]


OWN_STORE = """class Bucket:
    def __init__(self):
        self.objects = {}

    async def put(self, name, content):
        self.objects[name] = content

    async def get(self, name):
        return self.objects[name]


bucket = Bucket()
nothing = {}
"""


class Shelf:
    """A store of each kind: its address, its contents, and ways to spoil and to empty it."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind, self.folder = kind, folder / "store"
        self.address = {"folder": str(self.folder), "git": f"git+{self.folder}", "own": "python:payload_bucket:bucket"}[
            kind
        ]
        if kind == "git":
            subprocess.run(["git", "init", "--quiet", "--bare", str(self.folder)], check=True)

    def git(self, *words: str, content: bytes = b"") -> bytes:
        return subprocess.run(["git", "-C", self.folder, *words], input=content, capture_output=True, check=True).stdout

    def contents(self) -> dict[str, bytes]:
        if self.kind == "folder":
            return {path.name: path.read_bytes() for path in self.folder.rglob("*") if path.is_file()}
        if self.kind == "own":
            return dict(sys.modules["payload_bucket"].bucket.objects)
        names = self.git("for-each-ref", "--format=%(refname)").decode().split()
        return {name.rpartition("/")[2]: self.git("cat-file", "blob", name) for name in names}

    def spoil(self) -> None:
        for name, content in self.contents().items():
            wrong = content[:-1] + b"?"
            if self.kind == "folder":
                (self.folder / name[:2] / name).write_bytes(wrong)
            elif self.kind == "own":
                sys.modules["payload_bucket"].bucket.objects[name] = wrong
            else:
                blob = self.git("hash-object", "-w", "--stdin", content=wrong).decode().strip()
                self.git("update-ref", f"refs/dsa/payloads/{name}", blob)

    def empty(self) -> None:
        if self.kind == "own":
            sys.modules["payload_bucket"].bucket.objects.clear()
        for name in self.contents():
            if self.kind == "folder":
                (self.folder / name[:2] / name).unlink()
            else:
                self.git("update-ref", "-d", f"refs/dsa/payloads/{name}")


@pytest.mark.parametrize("kind", ["folder", "git", "own"])
def test_long_data_is_in_the_store_and_the_server_has_only_references(
    kind: str, tmp_path: Path, namespaces: Iterator[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "payload_bucket.py").write_text(OWN_STORE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "payload_bucket", raising=False)
    shelf, where = Shelf(kind, tmp_path), next(namespaces)
    address = f"{where}?store={shelf.address}"

    async def fails(address: str, run_id: str, words: str) -> None:
        async with dsa.open_runs(address) as readers:
            with pytest.raises(StoreError, match=words):
                readers.entries(run_id)

    async def test() -> None:
        async with dsa.open_runs(address) as runs:
            run = await runs.start(makes(tmp_path), {"text": "go" * LONG}, bindings=dsa.Bindings({"make": make}))
            rest = await run.rest()
            assert rest.run.configuration.state == "asked", rest.failure
            answer = next(entry.data for entry in rest.run.ledger if getattr(entry, "event", "") == "made")
            assert answer["text"] == "og" * LONG + "m" * LONG
            assert isinstance(await runs.send(run.id, "approved", {"note": "n" * LONG}), dsa.Taken)
            assert (await run.rest()).outcome == "done"
            assert len(await history_bytes(runs, run.id)) < 30_000
            assert any(len(content) > LONG for content in shelf.contents().values())
            assert {name: sha256(content).hexdigest() for name, content in shelf.contents().items()} == {
                name: name for name in shelf.contents()
            }
            async with dsa.open_runs(Path(address)) as readers:  # a path loses slashes
                assert len(readers.entries(run.id)) == len(run.run.ledger)
            await fails(where, run.id, r"long payloads are in a store.*\?store=")
            shelf.spoil()
            await fails(address, run.id, "was changed: its content does not match its name")
            shelf.empty()
            await fails(address, run.id, "is missing in .*Do all workers and clients use the same store")

    asyncio.run(asyncio.wait_for(test(), 60))


@dsa.answering("made")
async def make_at_length(action: dsa.Action, context: dsa.PolicyContext) -> list[dsa.Step]:
    return [dsa.event_step("make", "made", data={"text": "m" * 2 * LONG})]


def test_value_too_long_for_the_server_is_refused_with_advice(tmp_path: Path, namespaces: Iterator[str]) -> None:
    """The sender gets the error at once, the run goes on, and an effect that returns such a value fails once."""
    words = r"for longer data, add a store to the address of workers and clients, such as \?store=/FOLDER$"
    path = makes(tmp_path)
    path.write_text(MAKES.replace("| busy | make.failed | | asked |\n", "").replace("made | | asked", "made | | busy"))
    path.write_text(path.read_text() + "| busy | order | | asked |\n")
    bindings = dsa.Bindings({"make": make_at_length})

    async def test() -> None:
        async with dsa.open_runs(next(namespaces)) as runs:
            with pytest.raises(StoreError, match=rf"^2\.9 MB is too much for the Temporal server at .*{words}"):
                await runs.start(path, {"text": "go" * LONG}, bindings=bindings)
            assert await runs.list() == ()
            run = await runs.start(path, {"text": "go"}, bindings=bindings)
            failure = (await run.rest()).failure
            assert failure is not None
            assert re.search(rf"^its result is too long: .*{words}", failure.message), failure
            with pytest.raises(StoreError, match=rf"^0\.5 MB is too much .*: an event may have 0.2 MB there; {words}"):
                await runs.send(run.id, "order", {"text": "x" * 500_000})
            assert isinstance(await runs.send(run.id, "order", {"text": "go"}), dsa.Taken)

    asyncio.run(asyncio.wait_for(test(), 30))


def test_run_that_no_worker_can_read_is_listed_as_damaged(tmp_path: Path, namespaces: Iterator[str]) -> None:
    """Its payloads are in a store that the only remaining worker does not name. The other runs are listed as usual."""
    where = next(namespaces)
    bindings = dsa.Bindings({"make": make})

    async def test() -> None:
        async with dsa.open_runs(f"{where}?store={tmp_path / 'store'}") as runs:
            await (await runs.start(makes(tmp_path), {"text": "go"}, bindings=bindings, run_id="stored")).rest()
        async with dsa.open_runs(where) as runs:
            path = makes(tmp_path)
            path.write_text(
                MAKES.replace(
                    "| idle | order | make | busy |", "| idle | order | | asked |\n| asked | order | make | busy |"
                )
            )
            await (await runs.start(path, {"text": "go"}, bindings=bindings, run_id="plain")).rest()
            with pytest.raises(StoreError, match=r"^run stored: its long payloads are in a store that the worker does"):
                await runs.look("stored")
            first, second = await runs.list()
            assert (first.run, first.status, second.run, second.status) == ("stored", "damaged", "plain", "waiting")
            assert (
                first.damage
                == "its long payloads are in a store that the worker does not use: start all workers with the same ?store=STORE"
            )

    asyncio.run(asyncio.wait_for(test(), 40))


@pytest.mark.parametrize(
    ("store", "words"),
    [
        ("s3://bucket", "is not a store: write /FOLDER, git"),
        ("git+--upload-pack=touch", "is not a store"),
        ("git+ext::touch", "is not a store"),
        ("python:no_such_module:bucket", "cannot be loaded: No module named"),
        ("python:payload_bucket:other", "cannot be loaded: module 'payload_bucket' has no attribute"),
        ("python:payload_bucket:nothing", "has no method `put`"),
    ],
)
def test_invalid_store_address_is_refused_with_a_reason(
    store: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "payload_bucket.py").write_text(OWN_STORE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "payload_bucket", raising=False)
    with pytest.raises(BindingError, match=words):
        dsa.open_runs(f"temporal://127.0.0.1:1/default?store={store}")


def test_unreachable_git_store_is_reported_with_its_address(tmp_path: Path) -> None:
    store = GitStore(str(tmp_path / "nowhere"))
    with pytest.raises(
        StoreError, match=r"the payload store .*nowhere failed: .*does not appear to be a git repository"
    ):
        asyncio.run(store.put("a" * 64, b"content"))


@pytest.mark.parametrize("is_pushed_by_another", [True, False])
def test_refused_push_is_an_error_unless_the_payload_is_already_there(
    *, is_pushed_by_another: bool, tmp_path: Path
) -> None:
    """The hook refuses the push: because another process has pushed the same payload meanwhile, or for another reason."""
    shelf = Shelf("git", tmp_path)
    hook = shelf.folder / "hooks" / "update"
    hook.parent.mkdir(exist_ok=True)
    push_of_another = 'git update-ref "$1" "$3"' if is_pushed_by_another else ""
    hook.write_text(f"#!/bin/sh\n{push_of_another}\nexit 1\n")
    hook.chmod(0o755)
    content = b"content" * 100
    name = sha256(content).hexdigest()
    if is_pushed_by_another:
        asyncio.run(GitStore(str(shelf.folder)).put(name, content))
        assert asyncio.run(GitStore(str(shelf.folder)).get(name)) == content
    else:
        with pytest.raises(StoreError, match="hook declined"):
            asyncio.run(GitStore(str(shelf.folder)).put(name, content))


def test_simultaneous_pushes_lose_nothing(tmp_path: Path) -> None:
    shelf = Shelf("git", tmp_path)
    contents = [bytes([number]) * 1000 for number in range(6)]

    async def push_all() -> None:
        stores = [GitStore(str(shelf.folder)) for _ in range(3)]  # one for each process
        names = [sha256(each).hexdigest() for each in contents]
        await asyncio.gather(
            *(store.put(name, each) for store in stores for name, each in zip(names, contents, strict=True))
        )
        assert [await GitStore(str(shelf.folder)).get(name) for name in names] == contents

    asyncio.run(push_all())
    assert sorted(shelf.contents().values()) == sorted(contents)


SECRET = "kx8-4f5TTq-not-for-the-server"


@dsa.answering("made")
async def leak(action: dsa.Action, context: dsa.PolicyContext) -> list[dsa.Step]:
    return [dsa.event_step("make", "made", data={"text": SECRET + "m" * 100_000})]


@dsa.answering("made")
async def raise_it(action: dsa.Action, context: dsa.PolicyContext) -> list[dsa.Step]:
    raise OSError(f"no access with {SECRET}")


JUDGES = """# judges

## States
| state | kind |
| --- | --- |
| idle | initial |
| generating | |
| validating | |
| asked | |
| end.done | final |

## Events
| event | from |
| --- | --- |
| specification | outside |
| artifact | query_llm |
| verdict | execute_guard |
| approved | outside |

## Guards
| guard | judges |
| --- | --- |
| picky | verdict |
| wary | approved |

## Transitions
| source | event | if | effects | target |
| --- | --- | --- | --- | --- |
| idle | specification | | query_llm | generating |
| generating | artifact | | execute_guard | validating |
| generating | query_llm.failed | | | asked |
| validating | verdict | picky.passed | | asked |
| validating | verdict | else | | asked |
| validating | execute_guard.failed | | | asked |
| asked | approved | wary.passed | | end.done |
| asked | approved | else | | end.done |
"""


def write_secret(_prompt: str) -> str:
    return f"print('{SECRET}')"


def fail_as_a_provider(_prompt: str) -> str:
    raise GenerationError(f"401 from the provider: the key {SECRET} is not valid")


class Picky(GuardInterface):
    """A guard whose feedback, or whose error, has a secret."""

    def __init__(self, *, fails: bool) -> None:
        self._fails = fails

    def validate(self, artifact: Any, **_dependencies: Any) -> GuardResult:
        if self._fails:
            raise ValueError(f"cannot judge with {SECRET}")
        return GuardResult(passed=False, feedback=f"I saw {SECRET}")


@pytest.mark.parametrize(
    ("generate", "guard"),
    [(fail_as_a_provider, Picky(fails=False)), (write_secret, Picky(fails=False)), (write_secret, Picky(fails=True))],
    ids=["error of a provider", "text and feedback", "error of a guard"],
)
def test_no_secret_of_a_provider_or_a_guard_reaches_the_server(
    generate: Any, guard: Any, tmp_path: Path, namespaces: Iterator[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_API_KEY", SECRET)
    (tmp_path / "judges.md").write_text(JUDGES)

    async def test() -> None:
        async with dsa.open_runs(next(namespaces)) as runs:
            bindings = dsa.Bindings(
                {}, {"picky": guard, "wary": guard}, generators={"llm": FunctionGenerator(generate)}
            )
            run = await runs.start(tmp_path / "judges.md", f"print {SECRET}", bindings=bindings)
            rest = await run.rest()
            assert rest.kind in {"waiting", "stopped"}, rest
            with suppress(StoreError, OccurrenceError):  # a guard that fails refuses it
                await runs.send(run.id, "approved", {"note": f"with {SECRET}"})
            client = await runs.link.wait(runs.link.client())

            async def everything() -> bytes:
                parts = list[bytes]()
                async for each in client.list_workflows():
                    history = client.get_workflow_handle(each.id, run_id=each.run_id).fetch_history_events()
                    parts += [event.SerializeToString() async for event in history]
                    parts.append(each.raw_info.SerializeToString())
                return b"".join(parts)

            events = bytes(await runs.link.wait(everything()))
            assert events.count(b"SHOP_API_KEY") >= 3  # the markers name the secret: in the data, the error, the answer
            assert SECRET.encode() not in events

    asyncio.run(asyncio.wait_for(test(), 60))


@pytest.mark.parametrize("policy", [leak, raise_it])
def test_no_secret_leaves_the_process(
    policy: Any, tmp_path: Path, namespaces: Iterator[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_API_KEY", SECRET)
    store, where = tmp_path / "store", next(namespaces)

    async def test() -> None:
        async with dsa.open_runs(f"{where}?store={store}") as runs:
            data = {"text": f"my key is {SECRET}", "long": "x" * 100_000}
            run = await runs.start(makes(tmp_path), data, bindings=dsa.Bindings({"make": policy}))
            assert (await run.rest()).run.configuration.state == "asked"
            await runs.send(run.id, "approved", {"note": f"with {SECRET}", "long": "x" * 100_000})
            await run.rest()
            history, files = await history_bytes(runs, run.id), on_disk(store)
            assert files
            assert b"SHOP_API_KEY" in history + b"".join(files.values())  # the marker names the secret
            for content in (history, *files.values()):
                assert SECRET.encode() not in content

    asyncio.run(asyncio.wait_for(test(), 60))


GATHERS = """# gathers

## States
| state | kind |
| --- | --- |
| idle | initial |
| busy | |
| end.done | final |

## Events
| event | from |
| --- | --- |
| order | outside |
| more | outside |
| approved | outside |

## Guards
| guard | judges | uses |
| --- | --- | --- |
| fine | approved | texts = all more.text? |

## Transitions
| source | event | if | target |
| --- | --- | --- | --- |
| idle | order | | busy |
| busy | more | | = |
| busy | approved | fine.passed | end.done |
| busy | approved | else | = |
"""


class Fine(GuardInterface):
    """A guard that always passes."""

    blocks = False

    def validate(self, artifact: Any, **_dependencies: Any) -> GuardResult:
        return GuardResult(passed=True)


def test_run_too_long_for_a_new_execution_stays_readable(tmp_path: Path, namespaces: Iterator[str]) -> None:
    """It does not continue in a new execution, whose input would be too long: the task of the workflow would fail for ever, and the run could not be read."""
    (tmp_path / "gathers.md").write_text(GATHERS)

    async def test() -> None:
        async with dsa.open_runs(next(namespaces)) as runs:
            runs.most_events = 1  # type: ignore[attr-defined]
            bindings = dsa.Bindings({}, {"fine": Fine()})
            run = await runs.start(tmp_path / "gathers.md", "go", bindings=bindings)
            for letter in "abcdefghijklmn":
                outcome = await runs.send(run.id, "more", {"text": letter * LONG_EVENT})
                assert isinstance(outcome, dsa.Taken)
            events = [each for each in (await runs.look(run.id)).entries if getattr(each, "event", "") == "more"]
            assert [each.data["text"][0] for each in events] == [*"abcdefghijklmn"]

    asyncio.run(asyncio.wait_for(test(), 60))


FANS = """# fans

## States
| state | kind |
| --- | --- |
| idle | initial |
| busy | |
| end.done | final |

## Events
| event | from |
| --- | --- |
| order | outside |
| more | outside |
| approved | outside |
| made | make |

## Effects
| effect | at once |
| --- | --- |
| make | 30 |

## Transitions
| source | event | if | effects | target |
| --- | --- | --- | --- | --- |
| idle | order | | make, make, make, make | busy |
| busy | more | | make | = |
| busy | made | | | = |
| busy | approved | | | end.done |
"""
GUARD = "## Guards\n| guard | judges |\n| --- | --- |\n| fine | made |\n\n"


def test_data_too_long_for_a_guard_request_is_reported(tmp_path: Path, namespaces: Iterator[str]) -> None:
    """Quotes double in length when JSON is nested in JSON. The server would refuse the request, and the task of the workflow would fail for ever."""
    path = tmp_path / "judges.md"
    judged = "| busy | made | fine.passed | | = |\n| busy | made | else | | = |"
    path.write_text(FANS.replace("## Effects", f"{GUARD}## Effects").replace("| busy | made | | | = |", judged))

    @dsa.answering("made")
    async def make(action: dsa.Action, context: dsa.PolicyContext) -> list[dsa.Step]:
        return [dsa.event_step("make", "made", data={"text": '"' * 900_000})]

    async def test() -> None:
        async with dsa.open_runs(next(namespaces)) as runs:
            run = await runs.start(path, "go", bindings=dsa.Bindings({"make": make}, {"fine": Fine()}))
            failure = (await run.rest()).failure
            assert failure is not None
            assert "too long: the server accepts about 2 MB at once; for longer data, add a store" in failure.message

    asyncio.run(asyncio.wait_for(test(), 60))


JUDGED = """# judged

## Steps
| step | guard | rmax | task |
| --- | --- | --- | --- |
| text | wary | 3 | Write. |
"""


@pytest.mark.parametrize("text", ["x" * 300_000, "\N{GRINNING FACE}" * 60_000], ids=["ASCII", "escaped in JSON"])
def test_rejected_texts_that_fill_pages_are_read_completely(
    text: str, tmp_path: Path, namespaces: Iterator[str]
) -> None:
    """A verdict is read with or after its artifact, and the length of an answer is that of its JSON."""
    (tmp_path / "judged.md").write_text(JUDGED)

    async def test() -> None:
        where = next(namespaces)
        async with dsa.open_runs(where) as runs:
            generators = {"llm": FunctionGenerator(lambda _prompt: text)}
            bindings = dsa.Bindings({}, {"wary": Picky(fails=False)}, generators=generators)
            run = await runs.start(tmp_path / "judged.md", "go", bindings=bindings)
            assert (await run.rest()).outcome == "failed"
            async with dsa.open_runs(where) as others:
                artifacts: Any = others.store.reader(run.id).artifacts  # type: ignore[attr-defined]
                assert [len(each.verdicts) for each in artifacts.attempts()] == [1, 1, 1, 1]

    asyncio.run(asyncio.wait_for(test(), 60))


def test_simultaneous_effects_with_long_data_do_not_end_the_workflow(tmp_path: Path, namespaces: Iterator[str]) -> None:
    """The server ends a workflow that requests more than 4 MB in one task, and the run would be lost."""
    (tmp_path / "fans.md").write_text(FANS)
    lengths = list[int]()

    @dsa.answering("made")
    async def count(action: dsa.Action, context: dsa.PolicyContext) -> list[dsa.Step]:
        lengths.append(len(action.payload["data"]["text"]))
        return [dsa.event_step("make", "made")]

    async def test() -> None:
        async with dsa.open_runs(next(namespaces)) as runs:
            bindings = dsa.Bindings({"make": count})
            run = await runs.start(tmp_path / "fans.md", {"text": "x" * LONG}, bindings=bindings)
            assert (await run.rest()).kind == "waiting"
            assert lengths == 4 * [LONG]

    asyncio.run(asyncio.wait_for(test(), 60))


def test_long_events_and_a_long_answer_fit_into_one_task(tmp_path: Path, namespaces: Iterator[str]) -> None:
    """The answer to a reader goes to the server in the same message as ten events that are accepted, if they have waited for a worker."""
    path = tmp_path / "fans.md"
    path.write_text(
        FANS.replace("make, make, make, make", "make").replace(
            "| busy | more | | make | = |", "| busy | more | | | = |"
        )
    )

    @dsa.answering("made")
    async def answer(action: dsa.Action, context: dsa.PolicyContext) -> list[dsa.Step]:
        return [dsa.event_step("make", "made", data={"text": "x" * 2_000_000})]

    async def test() -> None:
        where = next(namespaces)
        async with dsa.open_runs(where) as runs:
            run = await runs.start(path, "go", bindings=dsa.Bindings({"make": answer}))
            await run.rest()
        async with dsa.open_runs(where) as runs:  # without a worker
            handle = (await runs.link.wait(runs.link.client())).get_workflow_handle(run.id)  # type: ignore[attr-defined]
            message = {"occurrence": {"event": "more", "verdicts": {}, "data": {"text": "x" * LONG_EVENT}}, "at": None}
            sending = [handle.execute_update("send", message, id=f"more{number}") for number in range(10)]
            waiting = [asyncio.create_task(runs.link.wait(each)) for each in sending]  # type: ignore[attr-defined]
            await asyncio.sleep(0.5)  # so that the server has the events before the question
            waiting += [asyncio.create_task(runs.link.wait(handle.query("story", args=[4, 0])))]  # type: ignore[attr-defined]
            await asyncio.sleep(0.5)
            other = await runs.start(path, "go", bindings=dsa.Bindings({"make": answer}))  # its worker takes both
            *outcomes, story = await asyncio.gather(*waiting)
            assert len(json.dumps(story)) > 2_000_000
            assert len(outcomes) == 10
            events = [each for each in (await runs.look(run.id)).entries if getattr(each, "event", "") == "more"]
            assert len(events) == 10
            await other.rest()

    asyncio.run(asyncio.wait_for(test(), 60))


def test_long_events_that_arrive_together_are_all_taken(tmp_path: Path, namespaces: Iterator[str]) -> None:
    """The server gives ten of them to the worker in one task, and ends the workflow if the worker returns them in one message of more than 4 MB."""
    (tmp_path / "fans.md").write_text(FANS)

    @dsa.answering("made")
    async def answer(action: dsa.Action, context: dsa.PolicyContext) -> list[dsa.Step]:
        return [dsa.event_step("make", "made")]

    async def test() -> None:
        where = next(namespaces)
        async with dsa.open_runs(where) as runs, dsa.open_runs(where) as others:
            run = await runs.start(tmp_path / "fans.md", "go", bindings=dsa.Bindings({"make": answer}))
            await run.rest()
            data = {"text": "x" * LONG_EVENT}
            sending = [each.send(run.id, "more", data) for each in (runs, others) for _ in range(9)]
            assert [type(each) for each in await asyncio.gather(*sending)] == 18 * [dsa.Taken]
            assert isinstance(await runs.send(run.id, "approved"), dsa.Taken)
            events = [each for each in (await runs.look(run.id)).entries if getattr(each, "event", "") == "more"]
            assert len(events) == 18

    asyncio.run(asyncio.wait_for(test(), 60))
