import http.server
import json
import threading
from contextlib import contextmanager

import pytest
from conftest import require_package
from each_row import each_row

from dsa.generators.provider import LiteLLMGenerator
from dsa.runtime.content import AmbientEnvironment, Context, PromptTemplate
from dsa.runtime.generation import GenerationError

require_package("litellm", "the extra `llm` is not installed")

CONTEXT = Context(AmbientEnvironment(constraints="Be brief."), "Say hi", feedback_history=(("hello", "too long"),))
ANSWER = {
    "id": "1", "object": "chat.completion", "created": 1, "model": "m",
    "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "hi"}}],
    "usage": {"prompt_tokens": 12, "completion_tokens": 3, "total_tokens": 15},
}  # fmt: skip


pytestmark = pytest.mark.usefixtures("litellm_leaves_no_loop")


@contextmanager
def serving(status, body, received=None, hang=None):
    """A real server that sends one answer to every request; with `hang` it waits for that event and sends nothing."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            request = self.rfile.read(int(self.headers["content-length"]))
            if received is not None:
                received.append(json.loads(request))
            if hang:
                hang.wait(30)
                return
            text = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *args):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        if hang:
            hang.set()
        server.shutdown()
        thread.join()
        server.server_close()


def test_error_message_contains_no_secret(monkeypatch):
    """Messages are recorded in the ledger and shown."""
    monkeypatch.setenv("SOME_API_KEY", "sk-very-secret-1")
    told = {"error": {"message": "bad sk-very-secret-1 for http://x/y?key=AIzaSecret2&a=b", "type": "x"}}
    with serving(418, told) as base:
        address = base.replace("//", "//me:secret3@")
        with pytest.raises(GenerationError) as caught:
            LiteLLMGenerator("openai/m", api_base=base).generate(CONTEXT)
    assert "bad [secret SOME_API_KEY] for" in str(caught.value)
    assert "?key=***&a=b" in str(caught.value)
    with pytest.raises(GenerationError) as unreachable:
        LiteLLMGenerator("openai/m", api_base=address).generate(CONTEXT)
    for secret in ("sk-very", "AIzaSecret2", "secret3"):
        assert secret not in f"{caught.value}{unreachable.value}"
    assert "//***@127.0.0.1" in str(unreachable.value)


@pytest.mark.parametrize(
    "numbers", [{"temperature": float("nan")}, {"temperature": -1}, {"max_tokens": 0}, {"timeout_s": 0.0}]
)
def test_invalid_numbers_are_refused(numbers):
    with pytest.raises(ValueError, match=next(iter(numbers))):
        LiteLLMGenerator("openai/m", **numbers)


def test_default_model_is_that_of_the_agent_program():
    with serving(500, {}) as base, pytest.raises(GenerationError, match=r"ollama/qwen2\.5-coder:7b"):
        LiteLLMGenerator(api_base=base).generate(CONTEXT)


def fault(message, **more):
    return {"error": {"message": message, "type": "x", **more}}


def test_generator_sends_the_rendered_prompt_and_returns_reply_and_usage(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    received = []
    with serving(200, ANSWER, received) as base:
        generator = LiteLLMGenerator("openai/m", seed=1, temperature=0.2, max_tokens=9, api_base=base)
        artifact = generator.generate(CONTEXT, PromptTemplate(role="You greet.", task="Do: {specification}"))
        generator.generate(CONTEXT)
    assert artifact.content == "hi"
    usage = artifact.usage
    assert (usage.model, usage.prompt_tokens, usage.completion_tokens, usage.cost_usd) == ("openai/m", 12, 3, None)
    assert usage.response_model == "m"
    (message,) = received[0]["messages"]
    assert message["role"] == "user"
    for part in ("You greet.", "Be brief.", "too long", "Do: Say hi"):
        assert part in message["content"]
    assert (received[0]["model"], received[0]["temperature"], received[0]["max_tokens"]) == ("m", 0.2, 9)
    assert received[0]["seed"] != received[1]["seed"]


def test_complete_sends_messages_and_tools_unchanged_and_returns_the_reply():
    messages = [{"role": "system", "content": "a"}, {"role": "user", "content": "b"}]
    tools = [{"type": "function", "function": {"name": "f", "description": "", "parameters": {"type": "object"}}}]
    received = []
    with serving(200, ANSWER, received) as base:
        generator = LiteLLMGenerator("openai/m", temperature=0.2, api_base=base)
        reply = generator.complete(messages, tools=tools, seed=7)
        generator.complete(messages, seed=8)
    assert (reply.content, reply.finish_reason) == ("hi", "stop")
    assert received[0] == {"model": "m", "messages": messages, "tools": tools, "temperature": 0.2, "seed": 7}
    assert received[1] == {"model": "m", "messages": messages, "temperature": 0.2, "seed": 8}


def test_address_may_come_from_the_environment(monkeypatch):
    with serving(200, ANSWER) as base:
        monkeypatch.setenv("OPENAI_BASE_URL", base)
        assert LiteLLMGenerator("openai/m").generate(CONTEXT).content == "hi"


@each_row(
    ("status", "body", "reason", "advice"),
    [
        (401, fault("no"), "authentication", "set the provider's key"),
        (403, fault("no"), "authentication", "set the provider's key"),
        (404, fault("no"), "not_found", "check its name"),
        (429, fault("no"), "rate_limit", "wait, or use another model"),
        (500, fault("no"), "server_error", "try again later"),
        (503, fault("no"), "server_error", "try again later"),
        (400, fault("the maximum context length is 10", code="context_length_exceeded"), "context_too_long", "shorten"),
        (
            400,
            fault("request (99 tokens) exceeds the available context size (9 tokens)"),
            "context_too_long",
            "shorten",
        ),
        (400, fault("no", code="content_policy_violation"), "content_filter", "reword"),
        (400, fault("odd request"), "failed", "odd request"),
        (200, b"<html>", "bad_answer", "check the address"),
        (200, {**ANSWER, "choices": []}, "bad_answer", "without text"),
        (200, {**ANSWER, "choices": [{"index": 0, "message": {"role": "assistant"}}]}, "bad_answer", "without text"),
    ],
)
def test_provider_errors_become_one_line_with_advice(status, body, reason, advice):
    with serving(status, body) as base, pytest.raises(GenerationError) as raised:
        LiteLLMGenerator("openai/m", api_base=base).generate(CONTEXT)
    assert raised.value.reason == reason
    assert advice in str(raised.value)
    assert "\n" not in str(raised.value)


def test_closed_port_is_unreachable():
    server = http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler)
    server.server_close()
    with pytest.raises(
        GenerationError, match=rf"cannot be reached at http://127.0.0.1:{server.server_port}/v1"
    ) as raised:
        LiteLLMGenerator("openai/m", api_base=f"http://127.0.0.1:{server.server_port}/v1").generate(CONTEXT)
    assert raised.value.reason == "unreachable"


def test_missing_answer_is_a_timeout():
    with serving(200, ANSWER, hang=threading.Event()) as base, pytest.raises(GenerationError) as raised:
        LiteLLMGenerator("openai/m", api_base=base, timeout_s=0.3).generate(CONTEXT)
    assert (raised.value.reason, "within 0.3 s" in str(raised.value)) == ("timeout", True)


def test_name_without_a_provider_is_reported():
    with pytest.raises(
        GenerationError, match="does not know a provider for 'nonsense'; write the model as provider/model"
    ):
        LiteLLMGenerator("nonsense").generate(CONTEXT)


@pytest.mark.parametrize(
    ("model", "variable"),
    [
        ("openai/gpt-4o-mini", "OPENAI_API_KEY"),
        ("anthropic/claude-3-haiku-20240307", "ANTHROPIC_API_KEY"),
        ("gemini/gemini-1.5-flash", "GEMINI_API_KEY"),
    ],
)
def test_missing_key_is_reported_at_once_with_its_variable(monkeypatch, model, variable):
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(GenerationError, match=f"but none is set; set {variable} in the environment.$") as raised:
        LiteLLMGenerator(model, retries=3).generate(CONTEXT)
    assert raised.value.reason == "authentication"


@pytest.mark.parametrize("address", ["127.0.0.1:1/v1", "nonsense", "http://h:port/v1"])
@pytest.mark.parametrize("given_by", ["api_base", "OPENAI_BASE_URL"])
def test_invalid_address_is_reported_at_once_with_its_origin(monkeypatch, address, given_by):
    monkeypatch.delenv("OPENAI_API_BASE", raising=False)
    if given_by != "api_base":
        monkeypatch.setenv(given_by, address)
    with pytest.raises(GenerationError) as raised:
        LiteLLMGenerator("openai/m", retries=3, api_base=address if given_by == "api_base" else "").generate(CONTEXT)
    assert str(raised.value).startswith(f"'{address}' is not an address for openai/m; write it as http://")
    assert str(raised.value).endswith(f"(the address comes from {given_by}).")
    assert raised.value.reason == "unreachable"


@pytest.mark.model
def test_generator_asks_a_real_model_over_http():
    xllamacpp = pytest.importorskip("xllamacpp")
    from dsa.generators.local_model import model_path

    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(model_path())
    parameters.n_ctx = 1024
    parameters.verbosity = -1
    parameters.warmup = False
    parameters.cpuparams.n_threads = 1  # several wait for each other where other tests run beside this one
    parameters.cpuparams_batch.n_threads = 1
    server = xllamacpp.Server(parameters)
    generator = LiteLLMGenerator(
        "openai/smollm2", api_base=f"{server.listening_address}/v1", max_tokens=400, temperature=0.0
    )
    artifact = generator.generate(Context(AmbientEnvironment(), "Hi"))  # its answer is short
    assert artifact.content.strip()
    assert 0 < artifact.usage.completion_tokens < 400
    assert artifact.usage.prompt_tokens > 3
    with pytest.raises(GenerationError, match="was cut off at its limit of tokens"):
        LiteLLMGenerator("openai/smollm2", api_base=f"{server.listening_address}/v1", max_tokens=3).generate(CONTEXT)
    with pytest.raises(GenerationError) as raised:
        generator.generate(Context(AmbientEnvironment(), "word " * 3000))
    assert raised.value.reason == "context_too_long"
