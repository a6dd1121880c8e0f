"""Errors and invalid answers of servers, in three providers' formats over real HTTP."""

import asyncio
import os

import pytest
from conftest import require_package
from stream_server import DROP, RESET, answered, refusing, serving
from wire_formats import COMPLETION_TOKENS, FORMATS, OPENAI, PROMPT_TOKENS

from dsa.generators.provider import LiteLLMGenerator, forget_clients_of_ended_loops
from dsa.runtime.content import AmbientEnvironment, Context
from dsa.runtime.generation import GenerationError

require_package("litellm", "the extra `llm` is not installed")

CONTEXT = Context(AmbientEnvironment(), "Say hello", step="greet")

pytestmark = pytest.mark.usefixtures("litellm_leaves_no_loop")
each_format = pytest.mark.parametrize("form", FORMATS, ids=str)
each_way = pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])


@pytest.fixture(autouse=True)
def keys(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k")


def made(form, address, **options):
    return LiteLLMGenerator(form.model, api_base=f"{address}{form.base}", **options)


def test_wait_that_is_too_long_is_named_as_the_reason_not_to_retry():
    for retries, told in ((3, True), (0, False)):
        with (
            serving(OPENAI.refusal(429, "slow", "retry-after: 60")) as (address, requests),
            pytest.raises(GenerationError) as raised,
        ):
            made(OPENAI, address, retries=retries).generate(CONTEXT)
        assert len(requests) == 1
        assert (
            "There was no further try: the server asks to wait 60 s, but the longest allowed wait is 30 s"
            in str(raised.value)
        ) == told


@each_format
def test_used_up_quota_is_not_retried(form):
    with (
        serving(form.refusal(429, "You exceeded your current quota, please check your plan.")) as (address, requests),
        pytest.raises(GenerationError, match="is used up; check your account at the provider") as raised,
    ):
        made(form, address, retries=3).generate(CONTEXT)
    assert (len(requests), raised.value.reason) == (1, "rate_limit")


@each_format
@each_way
@pytest.mark.parametrize("status", [400, 401, 402, 404, 408, 429, 500, 503])
def test_message_of_the_server_is_quoted_without_secrets(form, status, streamed, monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", "sk-very-secret-1")
    said = f"bad sk-very-secret-1 {'x' * 500}"
    with (
        serving(refusing(status, {"error": {"message": said}})) as (address, _),
        pytest.raises(GenerationError) as raised,
    ):
        made(form, address).generate(CONTEXT, on_text=print if streamed else None)
    assert "; it said: bad [secret SOME_API_KEY] xxx" in str(raised.value)
    assert len(str(raised.value)) < 400
    assert raised.value.server.status == status


@pytest.mark.parametrize("body", [b"<html><p>much</p></html>", b""])
def test_html_or_empty_error_body_is_not_quoted(body):
    with serving(refusing(500, body)) as (address, _), pytest.raises(GenerationError, match=r"try again later\.$"):
        made(OPENAI, address).generate(CONTEXT)


INVALID_ANSWERS = {
    "HTML": answered(b"<html><p>Welcome</p></html>", kind="text/html"),
    "HTML called JSON": answered(b"<html>", kind="application/json"),
    "no choices": answered(b'{"hello": 1}', kind="application/json"),
    "list": answered(b"[1]", kind="application/json"),
    "null": answered(b"null", kind="application/json"),
    "empty": answered(kind="application/json"),
}


@each_format
@each_way
@pytest.mark.parametrize("answer", INVALID_ANSWERS.values(), ids=INVALID_ANSWERS)
def test_invalid_answer_is_reported_and_not_retried(form, answer, streamed):
    with serving(answer) as (address, requests), pytest.raises(GenerationError, match="check the address") as raised:
        made(form, address, retries=2).generate(CONTEXT, on_text=print if streamed else None)
    asked = [each for each in requests if each.path == form.path]
    assert (raised.value.reason, len(asked)) == ("bad_answer", 1), str(raised.value)


def closing(text):
    """Answer without a length, then close: the beginning of an answer looks complete."""
    return [b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n" + text, DROP]


EARLY = {
    "at once": [DROP],
    "reset": [RESET],
    "in the head": [b"HTTP/1.1 200 OK\r\n", DROP],
    "in the middle": answered(b'{"cho', DROP, kind="application/json"),
    "without a length": closing(b'{"cho'),
    "after a value": closing(b'{"id": "1", "model": "m"'),
}


@each_format
@pytest.mark.parametrize("answer", EARLY.values(), ids=EARLY)
def test_server_that_closes_early_is_asked_again(form, answer):
    with (
        serving(answer) as (address, _),
        pytest.raises(GenerationError, match="broke off before it was complete") as raised,
    ):
        made(form, address).generate(CONTEXT)
    assert raised.value.reason == "interrupted"
    with serving(answer, form.whole("hi")) as (address, requests):
        retried = made(form, address, retries=1).generate(CONTEXT).usage.retried
    assert len(requests) == 2
    assert form is not OPENAI or retried == ("interrupted",), (
        "for others LiteLLM retries by itself and does not report it"
    )


@each_format
@each_way
def test_failed_answer_reports_its_usage(form, streamed):
    answer = form.stream("hel", end="length") if streamed else form.whole("hel", "length")
    with serving(answer) as (address, _), pytest.raises(GenerationError) as raised:
        made(form, address).generate(CONTEXT, on_text=print if streamed else None)
    usage = raised.value.usage
    assert (raised.value.reason, usage.prompt_tokens, usage.completion_tokens) == (
        "cut_off",
        PROMPT_TOKENS,
        COMPLETION_TOKENS,
    )


@each_format
@each_way
def test_blocking_call_leaves_no_client_behind(form, streamed, monkeypatch):
    """LiteLLM identifies a loop by a number that a later loop may reuse, and would use the old client: `Event loop is closed`."""
    import litellm

    kept = {}
    monkeypatch.setattr(litellm.in_memory_llm_clients_cache, "cache_dict", kept)
    with serving(form.stream("hi") if streamed else form.whole("hi")) as (address, _):
        made(form, address).generate(CONTEXT, on_text=print if streamed else None)
    assert not kept


def test_only_clients_of_ended_loops_are_forgotten(monkeypatch):
    import litellm

    kept = {}
    monkeypatch.setattr(litellm.in_memory_llm_clients_cache, "cache_dict", kept)

    async def begun():
        named = litellm.in_memory_llm_clients_cache.update_cache_key_with_event_loop
        kept.update({named("old"): 1, "another-x": 2})
        forget_clients_of_ended_loops(litellm)
        assert kept == {"another-x": 2}
        kept[named("own")] = 3
        forget_clients_of_ended_loops(litellm)
        assert len(kept) == 2

    asyncio.run(begun())


def test_usage_of_a_refusal_is_unknown():
    with serving(OPENAI.refusal(401, "no")) as (address, _), pytest.raises(GenerationError) as raised:
        made(OPENAI, address).generate(CONTEXT)
    assert raised.value.usage is None


@pytest.mark.parametrize(
    ("model", "variable"),
    [
        ("groq/m", "GROQ_API_KEY"),
        ("mistral/m", "MISTRAL_API_KEY"),
        ("deepseek/m", "DEEPSEEK_API_KEY"),
        ("openai/m", "OPENAI_API_KEY"),
    ],
)
def test_missing_key_is_reported_before_anything_is_sent(monkeypatch, model, variable):
    """The clients of some providers would send the request without a key."""
    for name in [name for name in os.environ if name.endswith(("_KEY", "_TOKEN"))]:
        monkeypatch.delenv(name)
    with pytest.raises(GenerationError) as caught:
        LiteLLMGenerator(model, retries=5).generate(Context(AmbientEnvironment(), "x"))
    assert caught.value.reason == "authentication"
    assert f"needs a key, but none is set; set {variable} in the environment" in str(caught.value)
