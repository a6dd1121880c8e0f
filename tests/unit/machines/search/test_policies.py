"""The search agent, with a server that speaks OpenAI's protocol, with a script, and without a model."""

import asyncio
import contextlib
import http.server
import json
import shlex
import threading
import warnings
from pathlib import Path

import pytest
from stored_runs import dsa
from stream_server import DROP, answered, events
from stream_server import serving as streaming
from stream_shapes import call_chunk, chunk, entry, finished

from dsa.errors import DocumentError
from dsa.runtime.generation import GenerationError
from dsa.runtime.ledger import CallEntry, CallResultEntry
from dsa.runtime.policy.invocation import answer_of, ledger_of, run
from dsa.runtime.policy.policies import text_step
from machines.search.bindings import registry

QUESTION = {"text": "What is the latest Python version?"}


@pytest.fixture
def folder(tmp_path):
    over = tmp_path / "over"
    over.mkdir()
    (over / "news.md").write_text("# News\n\nPython 3.13 was released in October.\n\nNothing else.\n", "utf-8")
    (over / "other.md").write_text("Cats sleep.\n", "utf-8")
    return over


def ask(config, *, entries=(), append=None, payload=QUESTION, seed=()):
    """Run the search agent; return the entries too."""
    saved = list(entries)

    def keep(entry):
        (append or (lambda _entry: None))(entry)
        saved.append(entry)

    ledger = run("search_agent", payload, registry, ledger_of(entries), config=config, append=keep, seed=seed)
    return answer_of(asyncio.run(ledger)), saved


# -- without a model --------------------------------------------------------------------------------------------------


def test_heuristic_can_replace_a_model(folder):
    steps, _ = ask({"over": str(folder), "answers": "quoting_policy"})
    assert [(step.actor, step.type) for step in steps] == [
        ("assistant", "action_call"),
        ("web_search_policy", "action_result"),
        ("assistant", "text"),
    ]
    assert steps[1].payload["results"][0] == {
        "file": "news.md",
        "line": 3,
        "excerpt": "Python 3.13 was released in October.",
    }
    told, first, *_ = steps[2].payload["text"].split("\n\n")
    assert told == "No model was asked; these places contain the words:"
    assert first == "news.md:3: Python 3.13 was released in October."


@pytest.mark.parametrize("model", [None, "", "local"])
def test_model_that_cannot_call_tools_is_not_asked(folder, model):
    steps, entries = ask({"over": str(folder), "model": model})
    assert steps[-1].payload["text"].startswith("No model was asked")
    assert "llm_policy" not in {entry.policy for entry in entries if isinstance(entry, CallEntry)}


def test_examples_of_the_readme_work(monkeypatch, capsys, tmp_path):
    root = Path(__file__).parents[4]
    lines = (root / "machines" / "search" / "README.md").read_text("utf-8").splitlines()
    shown = [line.removeprefix("    ") for line in lines if line.startswith("    ")]
    monkeypatch.chdir(root)
    exec("\n".join(shown), {})
    assert "\nhow-to/write-a-guard.md:" in capsys.readouterr().out
    (command,) = (line for line in lines if line.startswith("dsa run --policy"))
    done = dsa(*shlex.split(command)[1:], "--runs", str(tmp_path))
    assert done.exit_code == 0, done.output
    assert "\nhow-to/write-a-guard.md:" in done.stdout


@pytest.mark.parametrize(
    ("over", "question", "told"),
    [
        ("over", "zebras?", "The files do not contain these words."),
        ("gone", "cats", "NO_FOLDER"),
        ("over", "??", "NO_WORDS"),
    ],
)
def test_failed_search_is_reported(folder, over, question, told):
    config = {"over": str(folder.parent / over), "answers": "quoting_policy"}
    steps, _ = ask(config, payload={"text": question})
    assert told in steps[-1].payload.values()


def test_question_without_text_is_refused(folder):
    (step,), _ = ask({"over": str(folder)}, payload={"question": "?"})
    assert (step.payload["code"], step.payload["where"]) == ("INVALID_PAYLOAD", "$")


def test_model_that_cannot_call_tools_is_refused_by_llm_policy():
    for model in ("", "local"):
        with pytest.raises(GenerationError, match="let quoting_policy answer"):
            ask({"model": model, "answers": "llm_policy"})


# -- with a script ----------------------------------------------------------------------------------------------------

SCRIPT = """
```json
{"content": "Let me search", "tool_calls": [{"name": "web_search_policy", "arguments": {"query": "Python version"}}]}
```

```
Python 3.13 was released (news.md:3).
```
"""


@pytest.fixture
def scripted(folder):
    script = folder.parent / "script.md"
    script.write_text(SCRIPT, "utf-8")
    return {"over": str(folder), "model": f"scripted:{script}"}


def test_scripted_model_searches_and_answers_as_in_seed_004(scripted):
    steps, _ = ask(scripted)
    assert [(step.actor, step.type) for step in steps] == [
        ("assistant", "text"),
        ("assistant", "action_call"),
        ("web_search_policy", "action_result"),
        ("assistant", "text"),
    ]
    assert steps[-1].payload["text"] == "Python 3.13 was released (news.md:3)."


def test_run_cut_off_anywhere_resumes_with_recorded_results(scripted, folder):
    whole, entries = ask(scripted)
    searched = next(n for n, e in enumerate(entries) if isinstance(e, CallResultEntry) and "results" in str(e.steps))
    for length in range(1, len(entries) + 1):
        if length == searched + 1:  # the result is recorded: the files are not read again
            (folder / "news.md").write_text("Python 4 was released.\n", "utf-8")
        assert ask(scripted, entries=entries[:length]) == (whole, entries)


def test_run_stops_where_its_script_ends_and_can_be_resumed(scripted, folder):
    script = folder.parent / "script.md"
    script.write_text(SCRIPT.partition("```\nPython")[0], "utf-8")
    saved = []
    with pytest.raises(GenerationError, match="no reply left: all 1 are used"):
        ask(scripted, append=saved.append)
    script.write_text(SCRIPT, "utf-8")
    steps, _ = ask(scripted, entries=saved)
    assert steps[-1].payload["text"].startswith("Python 3.13")
    with pytest.raises(DocumentError, match="the script cannot be read"):
        ask({"model": "scripted:gone.md"})


# -- with a server ----------------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True, scope="module")
def litellm_leaves_no_loop():
    """LiteLLM sets an event loop in the thread that calls it and never closes it; a later test would be blamed."""
    yield
    with warnings.catch_warnings(), contextlib.suppress(RuntimeError):  # RuntimeError: there is no loop
        warnings.simplefilter("ignore")
        asyncio.get_event_loop_policy().get_event_loop().close()
    asyncio.set_event_loop(None)


def completion(content=None, calls=(), finish="stop"):
    tool_calls = [
        {"id": f"call_{n}", "type": "function", "function": {"name": name, "arguments": arguments}}
        for n, (name, arguments) in enumerate(calls)
    ]
    message = {"role": "assistant", "content": content} | ({"tool_calls": tool_calls} if calls else {})
    return {
        "id": "1", "object": "chat.completion", "created": 1, "model": "m",
        "choices": [{"index": 0, "finish_reason": "tool_calls" if calls else finish, "message": message}],
        "usage": {"prompt_tokens": 12, "completion_tokens": 3, "total_tokens": 15},
    }  # fmt: skip


def streamed(reply):
    """Yield an answer in pieces: its message, its finish reason, and its usage."""
    head = {name: reply[name] for name in ("id", "created", "model")} | {"object": "chat.completion.chunk"}
    (choice,) = reply["choices"]
    message = {**choice["message"]}
    if "tool_calls" in message:
        message["tool_calls"] = [{"index": at, **each} for at, each in enumerate(message["tool_calls"])]
    yield head | {"choices": [{"index": 0, "delta": message, "finish_reason": None}]}
    yield head | {"choices": [{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}]}
    yield head | {"choices": [], "usage": reply["usage"]}


@pytest.fixture(autouse=True)
def no_patience(monkeypatch):
    monkeypatch.setenv("DSA_RETRY_S", "0")


@contextlib.contextmanager
def serving(*replies):
    """A real server that gives the replies in order; yields its settings and the list of requests."""
    received, left = [], list(replies)

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            received.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            reply = left.pop(0)
            is_answer = isinstance(reply, dict)
            text = events(streamed(reply)) if is_answer else b'{"error": {"message": "down", "type": "x"}}'
            self.send_response(200 if is_answer else reply)
            self.send_header("content-type", "text/event-stream" if is_answer else "application/json")
            self.send_header("content-length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *args):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield {"model": "openai/m", "api_base": f"http://127.0.0.1:{server.server_port}/v1"}, received
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


SEARCH = ("web_search_policy", '{"query": "Python version"}')


def test_model_searches_and_answers_over_http(folder):
    pytest.importorskip("litellm", reason="the extra `llm` is not installed")
    with serving(completion("Let me search", [SEARCH]), completion("Python 3.13")) as (model, received):
        steps, _ = ask(model | {"over": str(folder)})
    assert steps[-1].payload["text"] == "Python 3.13"
    usage = steps[0].payload["usage"]
    assert (usage["model"], usage["prompt_tokens"], usage["completion_tokens"]) == ("openai/m", 12, 3)
    first, second = received
    assert [message["role"] for message in first["messages"]] == ["system", "user"]
    assert first["messages"][1]["content"] == QUESTION["text"]
    assert first["tools"] == registry.tools(["web_search_policy"])
    assert [message["role"] for message in second["messages"]] == ["system", "user", "assistant", "tool"]
    (call,) = second["messages"][2]["tool_calls"]
    assert (call["function"]["name"], json.loads(call["function"]["arguments"])) == (SEARCH[0], json.loads(SEARCH[1]))
    assert second["messages"][3]["tool_call_id"] == call["id"]
    assert json.loads(second["messages"][3]["content"])["results"][0]["file"] == "news.md"


def test_model_sees_its_errors_and_can_go_on(folder):
    pytest.importorskip("litellm", reason="the extra `llm` is not installed")
    wrong = [(SEARCH[0], '{"query": '), (SEARCH[0], '{"words": "x"}'), ("delete_files", "{}"), ("search_agent", "{}")]
    with serving(completion(None, wrong), completion("I cannot.")) as (model, received):
        steps, _ = ask(model | {"over": str(folder)})
    codes = [json.loads(m["content"])["code"] for m in received[1]["messages"] if m["role"] == "tool"]
    assert codes == ["INVALID_PAYLOAD", "INVALID_PAYLOAD", "NOT_ALLOWED", "NOT_ALLOWED"]
    assert steps[-1].payload["text"] == "I cannot."


def test_model_that_never_ends_is_stopped(folder):
    with serving(*[completion(None, [SEARCH])] * 2) as (model, received):
        steps, _ = ask(model | {"over": str(folder), "max_turns": 2})
    assert (steps[-1].payload["code"], len(received)) == ("MAX_TURNS", 2)


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        (completion("half an answ", finish="length"), "cut off"),
        (completion(""), "it was empty"),
        (500, "server of openai/m failed"),
    ],
)
def test_run_stops_at_a_failing_model_and_resumes_from_there(folder, reply, why):
    pytest.importorskip("litellm", reason="the extra `llm` is not installed")
    saved = []
    with serving(completion(None, [SEARCH]), reply, completion("Python 3.13")) as (model, received):
        with pytest.raises(GenerationError, match=why):
            ask(model | {"over": str(folder)}, append=saved.append)
        steps, _ = ask(model | {"over": str(folder)}, entries=saved)
    assert steps[-1].payload["text"] == "Python 3.13"
    assert len(received) == 3  # the first turn and its search were not made again
    assert received[2]["messages"] == received[1]["messages"]


def test_seeded_ledger_is_the_conversation_so_far(folder):
    pytest.importorskip("litellm", reason="the extra `llm` is not installed")
    before = [text_step("user", "Who are you?"), text_step("assistant", "A searcher.")]
    with serving(completion("Hello")) as (model, received):
        ask(model | {"over": str(folder)}, seed=before)
    told = [(message["role"], message["content"]) for message in received[0]["messages"][1:]]
    assert told == [("user", "Who are you?"), ("assistant", "A searcher."), ("user", QUESTION["text"])]


# -- with a server that streams ---------------------------------------------------------------------------------------

ASKS = answered(events([call_chunk(entry(0, SEARCH[1], given_id="a", name=SEARCH[0])), finished()]))
ANSWERS = answered(events([chunk({"content": "Python 3.13"}), finished("stop") | {"usage": {"prompt_tokens": 7}}]))


def test_server_is_named_by_its_address(folder):
    with streaming(ASKS, ANSWERS) as (address, requests):
        steps, _ = ask({"model": f"{address}/v1#m", "over": str(folder), "temperature": 0.2, "max_tokens": 50})
    assert [step.type for step in steps] == ["action_call", "action_result", "text"]
    assert steps[-1].payload["text"] == "Python 3.13"
    assert steps[-1].payload["usage"] == {
        "model": f"{address}/v1#m", "prompt_tokens": 7, "completion_tokens": None, "cost_usd": None,
    }  # fmt: skip
    first, second = (request.body for request in requests)
    assert (first["model"], first["temperature"], first["max_tokens"]) == ("m", 0.2, 50)
    assert first["tools"] == registry.tools(["web_search_policy"])
    assert [message["role"] for message in second["messages"]] == ["system", "user", "assistant", "tool"]


def test_invalid_arguments_are_reported_to_the_model(folder):
    wrong = answered(events([call_chunk(entry(0, '{"query": 3, ', given_id="a", name=SEARCH[0])), finished()]))
    with streaming(wrong, ANSWERS) as (address, requests):
        steps, _ = ask({"model": f"{address}/v1#m", "over": str(folder)})
    assert steps[-1].payload["text"] == "Python 3.13"
    assert json.loads(requests[1].body["messages"][-1]["content"])["code"] == "INVALID_PAYLOAD"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (answered(events([chunk({"content": "Pyth"}), finished("error")])), "server_error"),
        (answered(events([finished("stop")])), "bad_answer"),
        (answered(events([chunk({"content": "Pyth"}), finished("length")])), "cut_off"),
        (answered(events([chunk({"content": "Pyth"})]), DROP), "interrupted"),
    ],
    ids=["error", "empty", "limit", "dropped"],
)
def test_incomplete_streamed_answer_stops_the_run(folder, answer, reason):
    with streaming(answer) as (address, _), pytest.raises(GenerationError) as caught:
        ask({"model": f"{address}/v1#m", "over": str(folder)})
    assert caught.value.reason == reason
