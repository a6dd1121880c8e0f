import asyncio
import json
import threading

import pytest
from each_row import each_row
from stream_server import DROP, HANG, answered, events, lines, refusing, serving
from stream_shapes import TOOLS, call_chunk, chunk, entry, finished

from dsa.edge.http_stream import StreamLimits
from dsa.generators import ChatClient, OpenAICompatibleGenerator
from dsa.generators.compatible_server import ServerSettings
from dsa.runtime.content import AmbientEnvironment, Context, PromptTemplate
from dsa.runtime.generation import GenerationError
from dsa.text import is_unicode

pytest.importorskip("httpx", reason="the extra `llm` is not installed")

CONTEXT = Context(AmbientEnvironment(constraints="Be brief."), "Say hi", feedback_history=(("hello", "too long"),))
USAGE = {**chunk({}), "choices": [], "usage": {"prompt_tokens": 12, "completion_tokens": 3}}
HELLO = answered(events([chunk({"content": "hel"}), chunk({"content": "lo"}), finished("stop"), USAGE]))
CALL = answered(events([call_chunk(entry(0, '{"city": "Paris"}', given_id="a", name="get_weather")), finished()]))
MESSAGES = [{"role": "user", "content": "?"}]


def made(address, **options):
    return OpenAICompatibleGenerator(f"{address}/v1#m", **options)


# -- the generator ------------------------------------------------------------------------------------------------------


def test_generator_sends_the_rendered_prompt_and_returns_reply_and_usage():
    with serving(HELLO) as (address, requests):
        generator = made(address, seed=1, temperature=0.2, max_tokens=9)
        artifact = generator.generate(CONTEXT, PromptTemplate(role="You greet.", task="Do: {specification}"))
        generator.generate(CONTEXT)
    assert artifact.content == "hello"
    usage = artifact.usage
    assert (usage.prompt_tokens, usage.completion_tokens, usage.cost_usd) == (12, 3, None)
    assert (usage.model, usage.response_model) == (f"{address}/v1#m", "m")
    first, second = (request.body for request in requests)
    (message,) = first["messages"]
    assert message["role"] == "user"
    for part in ("You greet.", "Be brief.", "too long", "Do: Say hi"):
        assert part in message["content"]
    assert (first["model"], first["temperature"], first["max_tokens"]) == ("m", 0.2, 9)
    assert (first["stream"], first["stream_options"]) == (True, {"include_usage": True})
    assert first["seed"] != second["seed"]


def test_token_counts_that_are_not_sent_are_unknown():
    with serving(answered(events([chunk({"content": "hi"}), finished("stop")]))) as (address, _):
        usage = made(address).generate(CONTEXT).usage
    assert (usage.prompt_tokens, usage.completion_tokens) == (None, None)


@each_row(
    ("answer", "reason", "told"),
    [
        (answered(events([chunk({"content": "he"})], done=False), DROP), "interrupted", "is not complete"),
        (answered(events([chunk({"content": "he"})])), "interrupted", "without a finish reason"),
        (answered(events([chunk({"content": "he"})], done=False), HANG), "timeout", "fell silent for 0.2 s"),
        (answered(events([chunk({"content": "he"}), {"error": {"code": 502, "message": "gone"}}])), "server_error", "gone"),
        (answered(events([{"error": {"code": 429, "message": "slow"}}])), "rate_limit", "slow"),
        (answered(events([{"error": {"code": "context_length_exceeded", "message": "x"}}])), "context_too_long", "x"),
        (answered(events([chunk({"content": "he"}), finished("error")])), "server_error", "'error'"),
        (answered(events([chunk({"content": "he"})]) + b"data: {\n\n"), "bad_answer", "not valid JSON"),
        (answered(events([finished("stop")])), "bad_answer", "without text"),
        (answered(events([chunk({"content": "he"}), finished("length")])), "cut_off", "raise max_tokens"),
        (answered(events([chunk({"content": "he"}), finished("content_filter")])), "content_filter", "reword"),
        (refusing(400, {"error": {"message": "no", "code": "content_filter"}}), "content_filter", "no"),
        (refusing(400, {"error": {"message": "no", "code": "context_length_exceeded"}}), "context_too_long", "no"),
        (refusing(400, {"error": {"message": "The response was filtered due to the content management policy"}}), "content_filter", "reword"),
        (CALL, "bad_answer", "without text"),
        (refusing(404, {"error": {"message": "no such model"}}), "not_found", "no such model"),
    ],
    ids=[
        "drop", "no finish reason", "silence", "error", "only an error", "error code", "finish reason error", "not JSON", "empty", "limit", "filter",
        "filter by code", "too long by code", "filtered prompt", "tool call", "refused",
    ],
)  # fmt: skip
def test_incomplete_or_refused_answer_is_an_error(answer, reason, told):
    with serving(answer) as (address, _), pytest.raises(GenerationError) as raised:
        made(address, silence_s=0.2).generate(CONTEXT)
    assert (raised.value.reason, told in str(raised.value)) == (reason, True), str(raised.value)


@pytest.mark.parametrize("end", ["length", "content_filter", "error"])
def test_failed_answer_reports_its_usage(end):
    answer = answered(events([chunk({"content": "he"}), finished(end), USAGE]))
    with serving(answer) as (address, _), pytest.raises(GenerationError) as raised:
        made(address).generate(CONTEXT)
    usage = raised.value.usage
    assert (usage.model, usage.prompt_tokens, usage.completion_tokens) == (f"{address}/v1#m", 12, 3)


def test_time_limit_applies_to_each_try():
    with serving([HANG], HELLO) as (address, requests):
        assert made(address, timeout_s=0.4, retries=1).generate(CONTEXT).usage.retried == ("timeout",)
    assert len(requests) == 2


def test_connection_loss_after_the_end_is_harmless():
    with serving(answered(events([chunk({"content": "hi"}), finished("stop")], done=False), DROP)) as (address, _):
        assert made(address).generate(CONTEXT).content == "hi"


def test_stream_error_contains_no_secret(monkeypatch):
    monkeypatch.setenv("DSA_API_KEY", "k3y")
    answer = answered(events([{"error": {"message": "k3y at http://me:pw@h?key=AIza"}}]))
    with serving(answer) as (address, _), pytest.raises(GenerationError) as raised:
        made(address).generate(CONTEXT)
    assert not any(secret in str(raised.value) for secret in ("k3y", "pw", "AIza"))


@pytest.mark.parametrize(
    "numbers",
    [{"temperature": -1}, {"max_tokens": 0}, {"timeout_s": 0.0}, {"silence_s": float("nan")}, {"retries": -1}],
)
def test_invalid_numbers_are_refused(numbers):
    with pytest.raises(ValueError, match="timeout_s" if "silence_s" in numbers else next(iter(numbers))):
        made("http://127.0.0.1:9", **numbers)


def test_refused_requests_are_retried_and_each_retry_is_reported():
    with serving(refusing(503, {}, "retry-after: 0"), refusing(429, {}, "retry-after: 0"), HELLO) as (
        address,
        requests,
    ):
        artifact = made(address, retries=2).generate(CONTEXT)
    assert (artifact.content, artifact.usage.retried) == ("hello", ("server_error", "rate_limit"))
    assert len(requests) == 3


def test_last_failure_states_the_number_of_tries():
    with (
        serving(refusing(503, {}, "retry-after: 0")) as (address, _),
        pytest.raises(GenerationError, match=r"The request was tried 3 times\.$"),
    ):
        made(address, retries=2).generate(CONTEXT)


def test_answer_can_be_awaited_and_shown_as_it_arrives():
    shown = []
    with serving(HELLO) as (address, _):
        awaited = asyncio.run(made(address).agenerate(CONTEXT, on_text=shown.append))
        assert awaited == made(address).generate(CONTEXT, on_text=shown.append)
    assert shown == ["hel", "lo"] * 2


@pytest.mark.parametrize(
    ("said", "cost"), [({"cost": 0.25}, 0.25), ({"cost": "0.25"}, None), ({"cost": -1}, None), ({}, None)]
)
def test_cost_reported_by_the_server_is_used(said, cost):
    """OpenRouter reports a cost."""
    usage = {**chunk({}), "choices": [], "usage": {"prompt_tokens": 12, "completion_tokens": 3, **said}}
    with serving(answered(events([chunk({"content": "hi"}), finished("stop"), usage]))) as (address, _):
        assert made(address).generate(CONTEXT).usage.cost_usd == cost


def test_prompt_is_limited_to_max_prompt_tokens():
    """Each byte counts as one token, because the server's tokenizer is unknown."""
    history = tuple((f"attempt {number}", f"reason {number}") for number in range(30))
    with serving(HELLO) as (address, requests):
        made(address, max_prompt_tokens=300).generate(Context(AmbientEnvironment(), "Psi", "attempt 29", history))
        with pytest.raises(GenerationError, match="one token for each byte"):
            made(address, max_prompt_tokens=300).generate(Context(AmbientEnvironment(), "é" * 151))
    (request,) = requests
    assert 250 < len(request.body["messages"][0]["content"].encode()) <= 300


# -- the client ---------------------------------------------------------------------------------------------------------


def test_text_is_shown_while_calls_arrive_and_calls_can_be_sent_back():
    chunks = [
        chunk({"content": "Let me "}), chunk({"content": "look."}),
        call_chunk({**entry(0, '{"city": "Paris"}', given_id="functions.get_weather:0", name="get_weather"), "extra_content": {"s": 1}}),
        finished(),
    ]  # fmt: skip
    shown = []
    with serving(answered(events(chunks)), HELLO) as (address, requests):
        client = ChatClient(f"{address}/v1#m")
        result = client.ask_and_wait(MESSAGES, TOOLS, ServerSettings(more={"tool_choice": "auto"}), shown.append)
        (call,) = result.executable
        tool = {"role": "tool", "tool_call_id": call.id, "content": "sunny"}
        client.ask_and_wait([*MESSAGES, result.as_message(), tool], TOOLS)
    assert shown == ["Let me ", "look."]
    assert (requests[0].body["tools"], requests[0].body["tool_choice"]) == (TOOLS, "auto")
    assert requests[1].body["messages"][1] == {
        "role": "assistant",
        "content": "Let me look.",
        "tool_calls": [
            {
                "extra_content": {"s": 1},
                "id": "functions.get_weather:0",
                "type": "function",
                "function": {"name": "get_weather", "arguments": '{"city": "Paris"}'},
            }
        ],
    }


def test_broken_off_stream_has_no_executable_calls():
    chunks = [chunk({"content": "Hm"}), call_chunk(entry(0, "{}", given_id="a", name="now"))]
    with serving(answered(events(chunks, done=False), DROP)) as (address, _):
        result = ChatClient(f"{address}#m").ask_and_wait(MESSAGES, TOOLS)
    assert (result.content, result.error.code, result.executable) == ("Hm", "interrupted", ())
    assert result.tool_calls[0].arguments == {}


@pytest.mark.parametrize(
    ("refusal", "gone", "instead"),
    [
        ("Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
         "max_tokens", ("max_completion_tokens", 9)),
        ("stream_options: Extra inputs are not permitted", "stream_options", None),
        ("Unsupported value: 'temperature' does not support 0.2 with this model.", "temperature", None),
        ('{"loc": ["body", "seed"], "msg": "Extra inputs"}', "seed", None),
    ],
)  # fmt: skip
def test_parameter_that_the_server_refuses_is_left_out(refusal, gone, instead):
    with serving(refusing(400, {"error": {"message": refusal}}), HELLO) as (address, requests):
        ChatClient(f"{address}#m").ask_and_wait(MESSAGES, settings=ServerSettings(0.2, 9, 1))
    before, after = (request.body for request in requests)
    assert set(before) - set(after) == {gone}
    assert instead is None or after[instead[0]] == instead[1]


def test_server_that_refuses_everything_gets_a_bounded_number_of_requests():
    refusal = refusing(400, {"error": "stream_options seed temperature max_tokens"})
    with serving(refusal) as (address, requests), pytest.raises(GenerationError):
        ChatClient(f"{address}#m").ask_and_wait(MESSAGES, settings=ServerSettings(0.2, 9, 1))
    assert len(requests) == 5


OLLAMA_SAID = answered(
    lines([
        {"message": {"content": "hi"}, "done": False},
        {"message": {"content": ""}, "done": True, "done_reason": "stop", "prompt_eval_count": 5, "eval_count": 6},
    ])
)  # fmt: skip


def test_ollama_protocol_has_its_own_request_format():
    call = {"id": "a", "type": "function", "function": {"name": "now", "arguments": '{"x": 1}'}}
    result = {"role": "tool", "tool_call_id": "a", "content": "12:00"}
    messages = [*MESSAGES, {"role": "assistant", "content": None, "tool_calls": [call]}, result]
    schema = {"type": "object"}
    held = {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}, "think": False}
    with serving(OLLAMA_SAID) as (address, requests):
        client = ChatClient(f"{address}/api#m")
        told = client.ask_and_wait(messages, TOOLS, ServerSettings(0.2, 9, 1, held, 20_000))
    assert (told.content, told.usage) == ("hi", {"prompt_tokens": 5, "completion_tokens": 6})
    body = requests[0].body
    assert requests[0].path == "/api/chat"
    assert body["options"] == {"temperature": 0.2, "num_predict": 9, "seed": 1, "num_ctx": 20_000}
    assert (body["format"], body["think"], "response_format" in body) == (schema, False, False)
    assert body["messages"][1:] == [
        {"role": "assistant", "content": "", "tool_calls": [{"id": "a", "function": {"name": "now", "arguments": {"x": 1}}}]},
        {**result, "tool_name": "now"},
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("characters", "max_tokens", "room"),
    [
        (0, None, 8_192),
        (11_000, None, 8_192),
        (14_000, None, 16_384),
        (14_000, 100, 8_192),
        (100, 100, 4_096),
        (90_000, 9, 32_768),
    ],
)
def test_ollama_context_size_grows_in_steps(characters, max_tokens, room):
    """Ollama loads the model again whenever the context size changes."""
    with serving(OLLAMA_SAID) as (address, requests):
        said = [{"role": "user", "content": "x" * characters}]
        ChatClient(f"{address}/api#m").ask_and_wait(said, settings=ServerSettings(max_tokens=max_tokens))
    assert requests[0].body["options"]["num_ctx"] == room


def test_client_can_be_asked_inside_a_running_loop():
    async def both(address):
        client = ChatClient(f"{address}#m")
        return await client.ask(MESSAGES), client.ask_and_wait(MESSAGES)

    with serving(HELLO) as (address, _):
        awaited, waited = asyncio.run(both(address))
    assert awaited == waited


def test_errors_inside_a_running_loop_are_the_same():
    async def asked(address):
        ChatClient(f"{address}#m").ask_and_wait(MESSAGES)

    with serving(refusing(401, {})) as (address, _), pytest.raises(GenerationError):
        asyncio.run(asked(address))


def test_several_threads_can_use_one_client():
    with serving(HELLO) as (address, _):
        client = ChatClient(f"{address}#m")
        results = []
        threads = [threading.Thread(target=lambda: results.append(client.ask_and_wait(MESSAGES))) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [result.content for result in results] == ["hello"] * 8


def test_time_limits_of_the_client_can_be_set():
    with serving([HANG]) as (address, _), pytest.raises(GenerationError, match=r"did not answer within 0\.2 s"):
        ChatClient(f"{address}#m", limits=StreamLimits(first_s=0.2)).ask_and_wait(MESSAGES)


@pytest.mark.model
def test_generator_asks_a_real_model_over_http():
    xllamacpp = pytest.importorskip("xllamacpp")
    from dsa.generators.local_model import model_path

    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(model_path())
    parameters.n_ctx = 1024
    parameters.verbosity = -1
    parameters.warmup = False
    parameters.cpuparams.n_threads = 1
    server = xllamacpp.Server(parameters)
    generator = OpenAICompatibleGenerator(f"{server.listening_address}/v1#smollm2", max_tokens=400, temperature=0.0)
    artifact = generator.generate(Context(AmbientEnvironment(), "Say hello."))
    assert artifact.content.strip()
    assert 0 < artifact.usage.completion_tokens < 400
    assert artifact.usage.prompt_tokens > 3
    with pytest.raises(GenerationError) as raised:
        generator.generate(Context(AmbientEnvironment(), "word " * 3000))
    assert raised.value.reason == "context_too_long"


@pytest.mark.parametrize("kind", ["application/json", "text/event-stream"])
def test_error_with_a_good_status_is_retried_like_any_other(kind):
    error = {"error": {"message": "busy", "code": 503}}
    said = events([error], done=False) if kind == "text/event-stream" else json.dumps(error, indent=1).encode()
    with serving(answered(said[:9], said[9:], kind=kind), HELLO) as (address, requests):
        assert made(address, retries=1).generate(CONTEXT).usage.retried == ("server_error",)
    assert len(requests) == 2


def test_error_with_a_good_status_quotes_the_server():
    error = {"error": {"message": "no such model", "code": "model_not_found"}}
    with serving(answered(json.dumps(error).encode(), kind="application/json")) as (address, requests):
        with pytest.raises(GenerationError, match="no such model") as caught:
            made(address, retries=3).generate(CONTEXT)
        assert (caught.value.reason, len(requests)) == ("not_found", 1)


@pytest.mark.parametrize("variable", ["OPENAI_API_KEY", "OPENROUTER_API_KEY"])
def test_missing_key_is_reported_before_anything_is_sent(monkeypatch, variable):
    monkeypatch.delenv(variable, raising=False)
    host = {"OPENAI_API_KEY": "api.openai.com", "OPENROUTER_API_KEY": "openrouter.ai"}[variable]
    with pytest.raises(GenerationError, match=f"needs a key, but none is set; set {variable}") as caught:
        OpenAICompatibleGenerator(f"https://{host}/v1#m", retries=5).generate(CONTEXT)
    assert caught.value.reason == "authentication"


@each_row("streamed", [True, False])
@each_row(
    ("content", "said"),
    [
        ("<think>draft</think>\n\nx = 1", "x = 1"),
        ("draft\n</think>\nx = 1", "x = 1"),
        ("<|channel|>analysis<|message|>draft<|end|><|start|>assistant<|channel|>final<|message|>x = 1<|return|>", "x = 1"),
        ("caf\u00e9 \U0001f600", "caf\u00e9 \U0001f600"),
        ("\ud83d\ude00 \ud83d", "\U0001f600 \ufffd"),
    ],
)  # fmt: skip
@each_row("escaped", [True, False])
def test_artifact_is_the_final_answer_however_it_is_split_or_escaped(content, said, streamed, escaped):
    if not escaped and not is_unicode(content):
        return
    if streamed:
        chunks = [chunk({"content": unit}) for unit in content] + [finished("stop")]
        sent = "".join(f"data: {json.dumps(each, ensure_ascii=escaped)}\n\n" for each in chunks).encode()
    else:
        message = {"role": "assistant", "content": content}
        body = {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
        sent = json.dumps(body, ensure_ascii=escaped).encode()
    pieces = [sent[at : at + 7] for at in range(0, len(sent), 7)]
    with serving(answered(*pieces)) as (address, _):
        assert made(address).generate(CONTEXT).content == said


def test_answer_with_only_a_draft_is_an_error():
    draft = answered(events([chunk({"content": "<think>never"}), finished("stop")]))
    with serving(draft) as (address, _), pytest.raises(GenerationError, match="only its reasoning, without an answer"):
        made(address).generate(CONTEXT)
