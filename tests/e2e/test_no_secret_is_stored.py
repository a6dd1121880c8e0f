"""Secrets from every source, with the real program and real servers: none gets into anything that runs leave."""

import http.server
import json
import os
import re
import subprocess
import threading
from contextlib import contextmanager
from importlib.util import find_spec

import forked
import pytest
from forked import DSA
from secret_places import places, written
from stored_runs import ledger_of

from dsa.runtime.ledger import dump_line

#: A secret with every character that some format escapes, one that is recognized by its form alone, one that is named by an option.
AWKWARD = "Zq9/\"pä\\ss\n'w+rd~X7 ?=&"
SHAPED = "sk-proj-Q7vX0123456789abcdefZZZZ"
NAMED = "opensesame"

DOCUMENT = """# leaks

## Variables
| variable | scope    | domain | initial |
| -------- | -------- | ------ | ------- |
| good     | workflow | bool   | false   |
| tries    |          | 0..3   | 0       |

## Events
| event         | from          |
| ------------- | ------------- |
| specification | outside       |
| amended       | outside       |
| approved      | outside       |
| artifact      | query_llm     |
| verdict       | execute_guard |
| told          | tell          |

## Guards
| guard | judges  |
| ----- | ------- |
| g     | verdict |

## Effects
| effect          | kind     | retries |
| --------------- | -------- | ------- |
| query_llm       |          |         |
| execute_guard   |          |         |
| escalate_to_user|          |         |
| tell            | actuator | 1       |

## States
| state     | kind    |
| --------- | ------- |
| idle      | initial |
| writing   |         |
| judging   |         |
| telling   |         |
| asking    |         |
| succeeded | final   |
| failed    | final   |

## Transitions
| source  | event         | if                     | update      | effects          | target    |
| ------- | ------------- | ---------------------- | ----------- | ---------------- | --------- |
| idle    | specification |                        |             | query_llm        | writing   |
| writing | artifact      |                        |             | execute_guard    | judging   |
| judging | verdict       | g.passed               | good = true | tell             | telling   |
| judging | verdict       | g.failed and tries < 2 | tries += 1  | query_llm        | writing   |
| judging | verdict       | else                   |             | escalate_to_user | asking    |
| asking  | amended       |                        |             | execute_guard    | judging   |
| asking  | approved      |                        | good = true | tell             | telling   |
| telling | told          |                        |             |                  | succeeded |
| telling | tell.failed   |                        |             |                  | failed    |
"""

BINDINGS = '''
import base64, logging, os

from dsa.runtime.content import Artifact, GeneratorInterface, GuardInterface, GuardResult, Usage
from dsa.runtime.ledger import GuardVerdict, VerdictEntry
from dsa.runtime.policy.policies import Action, error_step, event_step, text_step
from dsa.runtime.policy.policy_registry import Registry

AWKWARD, SHAPED, NAMED = os.environ["AWKWARD_KEY"], os.environ["SHAPED"], os.environ["WORD"]
secret_names = ["WORD"]
ALL = f"{AWKWARD} {SHAPED} {NAMED}"
log = logging.getLogger("dsa.mine")


class Guard(GuardInterface):
    """Says what it sees and more; breaks down when a text asks for it."""

    def validate(self, artifact, **dependencies):
        if "break" in artifact.content:
            raise RuntimeError(f"the guard broke over {ALL!r}")
        return GuardResult(True, f"fine: {ALL}")


class Model(GeneratorInterface):
    def generate(self, context, template=None):
        log.warning("asking with %s", ALL)
        if "fail" in context.specification:
            basic = base64.b64encode(f"user:{AWKWARD}".encode()).decode()
            raise ConnectionError(f"401 for https://user:{NAMED}@host/?key={SHAPED}, Basic {basic}: {ALL!r}")
        text = f"key = {AWKWARD!r} or {SHAPED!r} or {NAMED!r}"
        return Artifact("clean" if len(context.feedback_history) == 1 else text, usage=Usage(f"m/{SHAPED}", 0.1))


policies = Registry()


@policies.register("look")
async def look(action, context):
    assert action.payload == {"with": ALL}, "who is called gets the request as it is"
    return [text_step("look", f"saw {ALL}")]


tried = []


async def tell(action, context):
    steps = await context.call(Action("look", {"with": ALL}))
    assert "[secret " in steps[0].payload["text"], "what was recorded is what is seen"
    verdict = VerdictEntry(action.payload["key"], "g", 1, context.run.step("g").latest, [GuardVerdict("mine", "failed", ALL)])
    context.artifacts.record_verdict(verdict)
    tried.append(1)
    if len(tried) == 1:
        raise ValueError(f"no {ALL}")
    return [event_step(action.policy, "told", data={ALL: [ALL, {"a": ALL}]}), text_step(ALL, ALL, about={"n": ALL})]


async def escalate_to_user(action, context):
    return [text_step(action.policy, ALL)]


generators = {"llm": Model()}
guards = {"g": Guard()}
effects = {"tell": tell, "escalate_to_user": escalate_to_user}
'''


@contextmanager
def listening(answer, kind="application/json"):
    """Run a real server; yield its address and the list of all bodies that it receives."""
    bodies = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            bodies.append(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(200)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *args):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", bodies
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def world(tmp_path):
    """Run the program with a document, its bindings and a collector of traces; keep all of its output."""
    (tmp_path / "leaks.md").write_text(DOCUMENT)
    (tmp_path / "bindings.py").write_text(BINDINGS)
    with listening(b"", "application/x-protobuf") as (collector, traces):
        outputs = []

        def run(*arguments, codes=(0,), **environment):
            environment = {"AWKWARD_KEY": AWKWARD, "SHAPED": SHAPED, "WORD": NAMED, **environment}
            environment["OTEL_EXPORTER_OTLP_ENDPOINT"] = collector
            done = subprocess.run(
                [*DSA, *arguments],
                cwd=tmp_path,
                env={**os.environ, **environment},
                capture_output=True,
                check=False,
                timeout=120,
            )
            outputs.append(done)
            assert done.returncode in codes, done.stderr.decode()
            # A crash of the program; tracebacks of users' code are logged.
            assert b'dsa/cli/main.py"' not in done.stderr, done.stderr.decode()
            return done.stdout.decode(), done.stderr.decode()

        run.folder, run.outputs, run.traces = tmp_path, outputs, traces
        yield run


def leaks(world):
    """Return the places that contain a secret."""
    pairs = [
        (f"{name} {n}", getattr(done, name)) for n, done in enumerate(world.outputs) for name in ("stdout", "stderr")
    ]
    pairs += [(f"trace {n}", body) for n, body in enumerate(world.traces)]
    return places((AWKWARD, SHAPED, NAMED), [*pairs, *written(world.folder / ".dsa")])


def ledger(world):
    (folder,) = (world.folder / ".dsa").glob("*-*-*")
    return [json.loads(dump_line(entry)) for entry in ledger_of(folder)]


def test_texts_of_models_guards_policies_and_people_are_stored_without_secrets(world):
    _, told = world("run", "leaks.md", f"make it with {AWKWARD} and {SHAPED}", "--log", "debug")
    assert "note: the specification contains a secret" in told
    assert "asking with [secret AWKWARD_KEY] [secret openai-key] [secret WORD]" in told
    assert world.traces
    entries = ledger(world)
    assert [entry.get("redacted", []) for entry in entries if entry["kind"] == "artifact"] == [
        ["AWKWARD_KEY", "WORD", "openai-key"],
        [],
    ]
    assert [entry["judgements"][0]["outcome"] for entry in entries if entry["kind"] == "verdict"] == [
        "failed",
        "passed",
    ]
    calls = [entry for entry in entries if entry["kind"] == "call"]
    assert calls[0]["payload"] == {"with": "[secret AWKWARD_KEY] [secret openai-key] [secret WORD]"}
    world("replay", "last")
    world("show", "last")
    world("show", "last", "--json")
    world("show", "last", "--jsonl")
    world("show", "last", "--provenance")
    assert leaks(world) == []


def test_text_with_a_secret_waits_for_a_person_who_sees_a_note(world):
    """The model repeats the secret in all attempts, which are stored without it; a person amends the text with the secret again, then approves it."""
    (world.folder / "mine.py").write_text(BINDINGS.replace("== 1 else", "== 9 else"))
    told, _ = world("run", "leaks.md", "make it", "--with", "mine.py", codes=(3,))
    assert re.search(r"^redacted  g 3 had AWKWARD_KEY, WORD, openai-key: the text is stored", told, re.MULTILINE)
    amended = json.dumps({"content": f"better: {AWKWARD}"})
    told, noted = world(
        "send", "last", "amended", "--data", amended, "--log", "info", "--log-format", "json", codes=(3,)
    )
    assert "note: what is sent contains a secret; the run and its model get [secret AWKWARD_KEY]" in noted
    assert "redacted  g 4 had AWKWARD_KEY" in told
    assert all(json.loads(line) for line in noted.splitlines() if not line.startswith("note: "))
    told, _ = world("send", "last", "approved", f"fine, {NAMED}", "--json")
    assert json.loads(told)["redacted"] == [{"step": "g", "attempt": 4, "secrets": ["AWKWARD_KEY"]}]
    verdicts = [
        entry for entry in ledger(world) if entry["kind"] == "verdict" and entry["judgements"][0]["guard"] == "g"
    ]
    assert {said["outcome"] for entry in verdicts for said in entry["judgements"]} == {"failed"}
    assert leaks(world) == []


@pytest.mark.parametrize("specification", ["fail", f"fail with {AWKWARD}"])
def test_error_of_a_provider_is_stored_without_secrets(world, specification):
    told, _ = world("run", "leaks.md", specification, codes=(1,))
    assert "stopped: query_llm (line " in told
    assert "401 for https://" in told
    world("runs")
    world("resume", "last", "--json", codes=(1,))
    assert leaks(world) == []


def test_error_of_a_guard_is_stored_without_secrets(world):
    (world.folder / "mine.py").write_text(BINDINGS.replace("clean", "break"))
    told, _ = world("run", "leaks.md", "make it", "--with", "mine.py", "--log", "error", codes=(1,))
    assert "the guard broke over" in told
    assert leaks(world) == []


def test_answer_of_a_person_is_stored_without_secrets(world):
    (world.folder / "mine.py").write_text(BINDINGS.replace("tried.append(1)", "os.kill(os.getpid(), 9)"))
    world("run", "leaks.md", "make it", "--with", "mine.py", codes=(-9,))
    told, _ = world("resume", "last", codes=(3,))
    key = re.search(r"--retry (\S+)", told)[1]
    told, noted = world("send", "last", "told", AWKWARD, "--answers", key, "--otel")
    assert "note: what is sent contains a secret" in noted
    assert ledger(world)[-1]["kind"] in {"row", "result"}
    assert leaks(world) == []


def test_exchange_with_a_real_model_server_is_stored_without_secrets(world):
    if find_spec("litellm") is None:  # importing it takes seconds
        pytest.skip("the extra `llm` is not installed")
    content = f"```\nkey = {SHAPED!r}  # {NAMED}\n```"
    answer = {
        "id": "1", "object": "chat.completion", "created": 1, "model": "tiny-1",
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": content}}],
        "usage": {"prompt_tokens": 12, "completion_tokens": 3, "total_tokens": 15},
    }  # fmt: skip
    (world.folder / "mine.py").write_text(BINDINGS.replace('generators = {"llm": Model()}', ""))
    with listening(json.dumps(answer).encode()) as (address, asked):
        keys = {"OPENAI_API_KEY": SHAPED, "OPENAI_API_BASE": f"{address}/v1", **forked.variables(forked.LITELLM)}
        world("run", "leaks.md", f"use {NAMED}", "--with", "mine.py", "--model", "openai/tiny", codes=(3,), **keys)
    prompts = [message["content"] for body in asked for message in json.loads(body)["messages"]]
    assert len(prompts) == 3
    assert all("[secret WORD]" in prompt and NAMED not in prompt and SHAPED not in prompt for prompt in prompts)
    artifacts = [entry for entry in ledger(world) if entry["kind"] == "artifact"]
    assert {(entry["model"], entry["response_model"]) for entry in artifacts} == {("openai/tiny", "tiny-1")}
    assert leaks(world) == []


def test_run_of_a_policy_is_stored_without_secrets(world):
    (world.folder / "mine.py").write_text(
        BINDINGS
        + """
@policies.register("search")
async def search(action, context):
    steps = await context.call(Action("look", {"with": ALL}))
    log.warning("seen %s", steps)
    if "fail" in str(action.payload):
        raise ValueError(f"no {ALL!r}")
    return [text_step(ALL, ALL)]
"""
    )
    world("run", "--policy", "search", f"find {AWKWARD}", "--with", "mine.py", "--log", "debug")
    world("run", "--policy", "search", f"fail {NAMED}", "--with", "mine.py", "--log", "debug", codes=(1,))
    world("show", "last")
    world("resume", "last", codes=(1,))
    assert world.traces
    assert leaks(world) == []


def test_document_with_a_secret_in_it_is_not_run(world):
    (world.folder / "leaks.md").write_text(DOCUMENT.replace("# leaks\n", f"# leaks\n\nThe key is {SHAPED}.\n"))
    _, told = world("run", "leaks.md", "make it", codes=(2,))
    assert "line 3 of the document contains the secret openai-key" in told
    world("run", "leaks.md", "make it", "--not-secret", "openai-key", "--quiet", SHAPED="nothing-secret")
    assert [where for where, _ in leaks(world) if "machine.md" in where], "it does not count as a secret now"
