"""Answers of three providers in their own formats over real HTTP: called or awaited, whole or piece by piece."""

import asyncio
import contextlib
import threading
import zlib

import pytest
from conftest import require_package
from stream_server import HANG, answered, events, refusing, serving
from stream_shapes import chunk
from wire_formats import ANTHROPIC, COMPLETION_TOKENS, FORMATS, OLLAMA, OPENAI, PROMPT_TOKENS

from dsa.edge.http_stream import MOST_ANSWER_BYTES
from dsa.generators import provider, provider_errors
from dsa.generators.provider import LiteLLMGenerator
from dsa.runtime.content import AmbientEnvironment, Context, PromptTemplate
from dsa.runtime.generation import GenerationError

require_package("litellm", "the extra `llm` is not installed")

CONTEXT = Context(AmbientEnvironment(), "Say hello", step="greet")
COUNTS = (PROMPT_TOKENS, COMPLETION_TOKENS)
#: Prices from LiteLLM's list; it has all models used here except Ollama's, which is free.
COSTS = {"openai": 12 * 0.15e-6 + 3 * 0.6e-6, "anthropic": 12 * 3e-6 + 3 * 15e-6, "ollama": 0.0}


pytestmark = pytest.mark.usefixtures("litellm_leaves_no_loop")


@pytest.fixture(autouse=True)
def keys(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k")


def asked(generator, *arguments, **named):
    return generator.generate(*arguments, **named)


def awaited(generator, *arguments, **named):
    return asyncio.run(generator.agenerate(*arguments, **named))


both_ways = pytest.mark.parametrize("ask", [asked, awaited])
each_format = pytest.mark.parametrize("form", FORMATS, ids=str)
each_way = pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])


def made(form, address, **options):
    return LiteLLMGenerator(form.model, api_base=f"{address}{form.base}", **options)


@both_ways
@each_format
def test_whole_answer_has_all_that_the_provider_reports(ask, form):
    with serving(form.whole("hello")) as (address, requests):
        artifact = ask(made(form, address, seed=3), CONTEXT)
    usage = artifact.usage
    assert artifact.content == "hello"
    assert (usage.model, usage.prompt_tokens, usage.completion_tokens) == (form.model, *COUNTS)
    assert usage.cost_usd == pytest.approx(COSTS[form.name])
    assert usage.response_model == ("" if form is OLLAMA else "answers")
    assert requests[0].path == form.path


@both_ways
@each_format
def test_stream_is_shown_as_it_arrives_and_becomes_one_artifact(ask, form):
    shown = []
    with serving(form.stream("hel", "lo")) as (address, requests):
        artifact = ask(made(form, address), CONTEXT, on_text=shown.append)
    usage = artifact.usage
    assert (shown, artifact.content) == (["hel", "lo"], "hello")
    assert (usage.prompt_tokens, usage.completion_tokens) == COUNTS
    assert usage.cost_usd == pytest.approx(COSTS[form.name])
    assert usage.response_model == ""
    assert requests[0].body["stream"] is True


@both_ways
def test_token_counts_of_a_stream_are_requested(ask):
    with serving(OPENAI.stream("hi")) as (address, requests):
        ask(made(OPENAI, address), CONTEXT, on_text=print)
    assert requests[0].body["stream_options"] == {"include_usage": True}


@both_ways
@each_way
@pytest.mark.parametrize("form", [OPENAI, ANTHROPIC], ids=str)
def test_missing_token_counts_are_unknown_instead_of_zero(ask, form, streamed):
    """LiteLLM would fill in 0 tokens at $0, or count the tokens itself."""
    answer = form.stream("hi", counted=False) if streamed else form.whole("hi", counted=False)
    with serving(answer) as (address, _):
        usage = ask(made(form, address), CONTEXT, on_text=print if streamed else None).usage
    assert (usage.prompt_tokens, usage.completion_tokens, usage.cost_usd) == (None, None, None)


@each_way
def test_cost_of_a_model_without_a_price_is_unknown(streamed):
    with serving(OPENAI.stream("hi") if streamed else OPENAI.whole("hi")) as (address, _):
        generator = LiteLLMGenerator("openai/mine", api_base=f"{address}/v1")
        usage = generator.generate(CONTEXT, on_text=print if streamed else None).usage
    assert (usage.prompt_tokens, usage.cost_usd) == (PROMPT_TOKENS, None)


@both_ways
@each_format
@pytest.mark.parametrize("drop", [False, True], ids=["no end", "connection lost"])
def test_stream_that_breaks_off_is_an_error(ask, form, drop):
    shown = []
    with (
        serving(form.stream("hel", end=None, drop=drop)) as (address, requests),
        pytest.raises(GenerationError) as raised,
    ):
        ask(made(form, address, retries=2), CONTEXT, on_text=shown.append)
    assert raised.value.reason == "interrupted"
    assert (shown, len([each for each in requests if each.path == form.path])) == (["hel"], 1), "nothing is said twice"


@both_ways
@each_way
@each_format
@pytest.mark.parametrize(("end", "reason"), [("length", "cut_off"), ("content_filter", "content_filter")])
def test_stopped_answer_is_an_error(ask, form, streamed, end, reason):
    if form is OLLAMA and end == "content_filter":
        pytest.skip("Ollama has no filter")
    answer = form.stream("hel", end=end) if streamed else form.whole("hel", end)
    with serving(answer) as (address, requests), pytest.raises(GenerationError) as raised:
        ask(made(form, address, retries=2), CONTEXT, on_text=print if streamed else None)
    assert raised.value.reason == reason
    assert len([each for each in requests if each.path == form.path]) == 1, "another try would end the same way"


@pytest.mark.parametrize("reason", ["network_error", "insufficient_system_resource"])
def test_finish_reason_that_is_an_error_means_that_the_answer_broke_off(reason):
    with serving(OPENAI.stream("hel", end=reason)) as (address, _), pytest.raises(GenerationError, match="broke off"):
        made(OPENAI, address).generate(CONTEXT, on_text=print)


@both_ways
def test_error_in_the_middle_of_a_stream_is_reported(ask):
    answer = answered(events([chunk({"content": "hel"}), {"error": {"message": "boom", "code": 502}}]))
    with serving(answer) as (address, _), pytest.raises(GenerationError) as raised:
        ask(made(OPENAI, address), CONTEXT, on_text=print)
    assert raised.value.reason == "server_error"


@both_ways
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
def test_silence_is_a_timeout(ask, streamed):
    pieces = [
        OPENAI.stream("hel", end=None)[0],
        OPENAI.stream("hel", end=None)[1].replace(b"data: [DONE]\n\n", b": wait...\n\n"),
    ]
    with (
        serving([*(pieces if streamed else []), HANG]) as (address, _),
        pytest.raises(GenerationError, match=r"within 0\.5 s") as raised,
    ):
        ask(made(OPENAI, address, timeout_s=0.5), CONTEXT, on_text=print if streamed else None)
    assert raised.value.reason == "timeout"


@both_ways
@pytest.mark.parametrize("tail", [b": still here\n\n", b": still here  "], ids=["text", "comments"])
def test_answer_that_never_ends_is_a_timeout(ask, tail):
    """Pieces or comments keep coming: no single wait is too long, but the whole answer is."""
    head, body = OPENAI.stream("more", end=None)[:2]
    over = threading.Event()

    def dripping(connection):
        connection.sendall(head)
        with contextlib.suppress(OSError):  # the client has gone
            for _ in range(200):
                if over.wait(0.05):
                    return
                connection.sendall(body.replace(b"data: [DONE]\n\n", tail))

    with serving([dripping]) as (address, _):
        try:
            with pytest.raises(GenerationError, match=r"within 0\.5 s"):
                ask(made(OPENAI, address, timeout_s=0.5), CONTEXT, on_text=lambda text: None)
        finally:
            over.set()


@both_ways
def test_error_of_the_text_callback_is_raised_unchanged(ask):
    def broken(text):
        raise OSError("the screen is gone")

    with serving(OPENAI.stream("hi")) as (address, requests), pytest.raises(OSError, match="the screen is gone"):
        ask(made(OPENAI, address, retries=3), CONTEXT, on_text=broken)
    assert len(requests) == 1


def test_cancelling_the_wait_ends_the_request():
    """The server sees the connection close; a thread would have waited for the answer."""
    came, gone = threading.Event(), threading.Event()

    async def given_up(address):
        task = asyncio.ensure_future(made(OPENAI, address).agenerate(CONTEXT))
        await asyncio.to_thread(came.wait, 10)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.to_thread(gone.wait, 10)

    def watched(connection):
        came.set()
        connection.recv(1)
        gone.set()

    with serving([watched]) as (address, _):
        asyncio.run(given_up(address))
    assert gone.is_set()


def test_several_answers_can_be_awaited_at_once():
    async def all_of_them(address):
        return await asyncio.gather(*(made(OPENAI, address, seed=seed).agenerate(CONTEXT) for seed in range(5)))

    with serving(OPENAI.whole("hi")) as (address, requests):
        assert [artifact.content for artifact in asyncio.run(all_of_them(address))] == ["hi"] * 5
    assert len({request.body["seed"] for request in requests}) == 5


@both_ways
def test_repeated_call_has_the_same_seed_and_other_calls_have_others(ask):
    with serving(OPENAI.whole("hi")) as (address, requests):
        for seed, context in (
            (1, CONTEXT),
            (1, CONTEXT),
            (2, CONTEXT),
            (1, Context(AmbientEnvironment(), "Say hello", step="part")),
        ):
            ask(made(OPENAI, address, seed=seed), context)
    first, again, *others = (request.body["seed"] for request in requests)
    assert first == again
    assert len({first, *others}) == 3


def test_provider_without_seeds_receives_no_seed():
    with serving(ANTHROPIC.whole("hi")) as (address, requests):
        made(ANTHROPIC, address, seed=1).generate(CONTEXT)
    assert "seed" not in requests[0].body


# -- tries --------------------------------------------------------------------------------------------------------------


@both_ways
@each_way
def test_temporary_failures_are_retried_and_each_is_reported(ask, streamed):
    good = OPENAI.stream("hi") if streamed else OPENAI.whole("hi")
    refusals = [OPENAI.refusal(429, "slow", "retry-after: 0"), OPENAI.refusal(503, "busy", "retry-after: 0")]
    with serving(*refusals, good) as (address, requests):
        usage = ask(made(OPENAI, address, retries=2), CONTEXT, on_text=print if streamed else None).usage
    assert (usage.retried, len(requests)) == (("rate_limit", "server_error"), 3)
    assert usage.cost_usd == pytest.approx(COSTS["openai"]), "a refusal is not charged"
    assert len({request.body["seed"] for request in requests}) == 1


def test_cost_with_a_broken_off_try_is_unknown(monkeypatch):
    monkeypatch.setattr("dsa.edge.model_server.Retries.pause_s", lambda self, error, failed: 0.0)
    with serving([HANG], OPENAI.whole("hi")) as (address, _):
        usage = made(OPENAI, address, retries=1, timeout_s=0.5).generate(CONTEXT).usage
    assert (usage.retried, usage.cost_usd, usage.prompt_tokens) == (("timeout",), None, PROMPT_TOKENS)


@both_ways
def test_last_failure_states_the_number_of_tries(ask):
    with (
        serving(OPENAI.refusal(429, "slow", "retry-after: 0")) as (address, requests),
        pytest.raises(GenerationError, match=r"rate limit or quota; .* The request was tried 3 times\.$") as raised,
    ):
        ask(made(OPENAI, address, retries=2), CONTEXT)
    assert (raised.value.reason, len(requests)) == ("rate_limit", 3)


@both_ways
@pytest.mark.parametrize("status", [400, 401, 403, 404])
def test_permanent_failure_is_not_retried(ask, status):
    with serving(refusing(status, {"error": {"message": "no"}})) as (address, requests), pytest.raises(GenerationError):
        ask(made(OPENAI, address, retries=3), CONTEXT)
    assert len(requests) == 1


def test_failure_is_not_retried_without_the_option():
    with (
        serving(OPENAI.refusal(503, "busy")) as (address, requests),
        pytest.raises(GenerationError, match=r"later; it said: busy\.$"),
    ):
        made(OPENAI, address).generate(CONTEXT)
    assert len(requests) == 1


# -- the prompt's budget ------------------------------------------------------------------------------------------------


@both_ways
def test_prompt_that_is_too_long_is_reported_before_any_request(ask):
    with (
        serving(OPENAI.whole("hi")) as (address, requests),
        pytest.raises(GenerationError, match="by LiteLLM for openai/gpt-4o-mini"),
    ):
        ask(made(OPENAI, address, max_prompt_tokens=20), Context(AmbientEnvironment(), "word " * 50))
    assert requests == []


def test_prompt_is_limited_to_max_prompt_tokens_as_litellm_counts():
    import litellm

    history = [(f"attempt number {number} " * 5, f"reason {number} " * 5) for number in range(30)]
    with serving(OPENAI.whole("hi")) as (address, requests):
        generator = made(OPENAI, address, max_prompt_tokens=300)
        generator.generate(
            Context(AmbientEnvironment(), "Psi", history[-1][0], history), PromptTemplate(task="Do {specification}")
        )
    (message,) = requests[0].body["messages"]
    assert litellm.token_counter(model=OPENAI.model, messages=[message]) <= 300
    assert "reason 29" in message["content"]
    assert "earlier attempts are left out" in message["content"]


def test_token_counter_can_be_replaced():
    with serving(OPENAI.whole("hi")) as (address, _):
        generator = made(OPENAI, address, max_prompt_tokens=2, count_tokens=lambda text: len(text.split()))
        assert generator.generate(Context(AmbientEnvironment(), "two words")).content == "hi"
        with pytest.raises(GenerationError, match="by the function count_tokens"):
            generator.generate(Context(AmbientEnvironment(), "these are more"))


def test_counting_fetches_no_tokenizer(monkeypatch):
    """For some names LiteLLM would download one, and continue without it if the network is down."""
    asked = []

    def refused(*arguments, **_):
        asked.append(arguments)
        raise OSError("no network")

    monkeypatch.setattr("socket.getaddrinfo", refused)
    with pytest.raises(GenerationError):
        LiteLLMGenerator("openrouter/meta-llama/llama-3-70b-instruct", max_prompt_tokens=1).generate(CONTEXT)
    assert asked == []


def _pieces(count):
    """Return the beginning of an error message, `count` megabytes long."""
    return [b'{"error": {"message": "', *[b"y" * 1_000_000] * count]


def _packed(pieces):
    packing = zlib.compressobj(9, zlib.DEFLATED, 31)
    return b"".join([*map(packing.compress, pieces), packing.flush()])


_TOO_LARGE = {
    "streamed": lambda form, pieces: form.stream(*["y" * 1_000_000] * (len(pieces) - 1)),
    "a line of a stream": lambda _form, pieces: answered(b"data: ", *pieces),
    "whole": lambda _form, pieces: answered(*pieces, kind="application/json"),
    "packed": lambda _form, pieces: answered(
        _packed(pieces), kind="application/json", headers=["content-encoding: gzip"]
    ),
}


@each_way
@each_format
@pytest.mark.parametrize("how", _TOO_LARGE)
def test_answer_that_does_not_end_is_cut_off(how, form, streamed, monkeypatch):
    """All cases but one use a lower bound: the counting does not depend on its size."""
    if (how, form, streamed) == ("packed", OPENAI, True):
        most, count = MOST_ANSWER_BYTES, 70
    else:
        most, count = 2 * 1024 * 1024, 3
        monkeypatch.setattr(provider, "MOST_ANSWER_BYTES", most)
        monkeypatch.setattr(provider_errors, "MOST_ANSWER_BYTES", most)
    with serving(_TOO_LARGE[how](form, _pieces(count))) as (address, _), pytest.raises(GenerationError) as raised:
        made(form, address).generate(CONTEXT, on_text=(lambda _text: None) if streamed else None)
    assert (raised.value.reason, str(raised.value)) == (
        "bad_answer",
        f"{form.model} does not stop: its answer has more than {most:,} bytes, and was cut off there; set max_tokens.",
    )


@each_way
@each_format
def test_refusal_that_does_not_end_is_cut_off(form, streamed):
    refusal = answered(*_pieces(70), kind="application/json", status="400 X")
    with serving(refusal) as (address, _), pytest.raises(GenerationError) as raised:
        made(form, address).generate(CONTEXT, on_text=(lambda _text: None) if streamed else None)
    assert str(raised.value).startswith(f"{form.model} ")
    assert len(str(raised.value)) < 300
