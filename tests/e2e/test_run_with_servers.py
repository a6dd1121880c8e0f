"""`dsa run` with models behind real servers: retries, tokens and cost, and the effect of a time limit."""

import json
import threading
from importlib.util import find_spec

import pytest
from click.testing import CliRunner
from results import results_of
from stored_runs import ledger_of
from stream_server import HANG, serving
from wire_formats import FORMATS, OPENAI

from dsa.cli.main import program
from dsa.runtime.ledger import ArtifactEntry

if find_spec("litellm") is None:  # importing it takes seconds in each worker
    pytest.skip("the extra `llm` is not installed", allow_module_level=True)

GOOD = "```python\ndef add(a, b):\n    return a + b\n```\n"
BAD = "```python\ndef add(a, b):\n    return a - b\n```\n"

MACHINE = """# adder

## Generators
| generator | is   | options   |
| --------- | ---- | --------- |
| llm       | {is} | {options} |

## Steps
| step | guard | rmax | task                                |
| ---- | ----- | ---- | ----------------------------------- |
| g    | cases | 9    | Write a function {{specification}}. |

## Cases: g
| call      | expected |
| --------- | -------- |
| add(2, 3) | 5        |
"""
LIMITED = """
## Effects
| effect                     | kind     | time limit |
| -------------------------- | -------- | ---------- |
| query_llm                  | actuator | 500ms      |
| execute_guard              | sensing  |            |
| refine_context             | internal |            |
| advance_state              | internal |            |
| reply_to_user              | actuator |            |
| reply_failure              | actuator |            |
| escalate_to_user           | actuator |            |
"""


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run the machine with a generator of these options; return the result and the run's ledger."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k")

    def call(kind, options, more=""):
        text = MACHINE.replace("{is}", kind).replace("{options}", options).replace("{{", "{").replace("}}", "}")
        (tmp_path / "adder.md").write_text(text + more)
        result = CliRunner().invoke(program, ["run", "adder.md", "def add(a, b)"])
        (directory,) = (tmp_path / ".dsa").glob("*-*-*")
        return result, ledger_of(directory), directory

    return call


def only(ledger, kind, **values):
    return [
        entry for entry in ledger if isinstance(entry, kind) and all(getattr(entry, n) == v for n, v in values.items())
    ]


@pytest.mark.parametrize("form", FORMATS, ids=str)
def test_run_works_with_a_provider_of_each_format(run, form):
    with serving(form.whole(BAD), form.whole(GOOD)) as (address, requests):
        result, ledger, _ = run("litellm", f"model = {form.model}; api_base = {address}{form.base}")
    assert result.exit_code == 0, result.output
    cost = {"openai": ", $0.000007", "anthropic": ", $0.000162", "ollama": ""}[form.name]
    assert f"2 model calls, 24 + 6 tokens{cost}, " in result.output
    first, second = only(ledger, ArtifactEntry)
    assert (first.prompt_tokens, second.completion_tokens) == (12, 3)
    assert "gave -1" in json.dumps(requests[-1].body), "the feedback was in the second prompt"


@pytest.mark.parametrize("kind", ["litellm", "openai_compatible"])
def test_retries_are_recorded_in_the_ledger_and_shown(run, kind, tmp_path):
    refusals = [OPENAI.refusal(429, "slow", "retry-after: 0"), OPENAI.refusal(503, "busy", "retry-after: 0")]
    good = OPENAI.whole(GOOD) if kind == "litellm" else OPENAI.stream(GOOD)
    with serving(*refusals, good) as (address, requests):
        model = f"openai/mine; api_base = {address}/v1" if kind == "litellm" else f"{address}/v1#mine"
        result, ledger, directory = run(kind, f"model = {model}; retries = 2")
    assert result.exit_code == 0, result.output
    assert "1 model call, 12 + 3 tokens, cost unknown, " in result.output
    (asked,) = results_of(ledger, "query_llm")
    assert asked.steps[0]["payload"]["retried"] == ["rate_limit", "server_error"]
    assert "was asked 3 times: rate_limit, server_error, then it answered" in asked.steps[0]["payload"]["text"]
    shown = CliRunner().invoke(program, ["show", str(directory)])
    assert ", after 2 failed tries: rate_limit, server_error" in shown.output
    assert CliRunner().invoke(program, ["replay", str(directory)]).exit_code == 0
    assert len(requests) == 3


def test_tokens_and_cost_of_a_failed_call_are_unknown(run):
    with serving(OPENAI.refusal(401, "no")) as (address, _):
        result, ledger, _ = run("litellm", f"model = openai/mine; api_base = {address}/v1; retries = 3")
    assert result.exit_code == 1
    assert "1 model call (1 failed), tokens unknown, cost unknown, " in result.output
    (failed,) = results_of(ledger, "query_llm")
    assert failed.steps[-1]["payload"]["code"] == "authentication"


def test_prompt_that_is_too_long_stops_the_run_before_any_request(run):
    with serving(OPENAI.whole(GOOD)) as (address, requests):
        result, ledger, _ = run("litellm", f"model = openai/mine; api_base = {address}/v1; max_prompt_tokens = 5")
    assert result.exit_code == 1
    assert "The prompt of step g has" in result.output
    (failed,) = results_of(ledger, "query_llm")
    assert failed.steps[-1]["payload"]["code"] == "prompt_too_long"
    assert requests == []


def test_prompt_stays_within_its_limit_on_every_attempt(run):
    answers = [OPENAI.stream(BAD.replace("a - b", f"a - b - {number}")) for number in range(8)]
    with serving(*answers, OPENAI.stream(GOOD)) as (address, requests):
        result, _, _ = run("openai_compatible", f"model = {address}/v1#mine; max_prompt_tokens = 420")
    assert result.exit_code == 0, result.output
    prompts = [request.body["messages"][0]["content"] for request in requests]
    assert len(prompts) == 9
    assert max(len(prompt.encode()) for prompt in prompts) <= 420
    assert "(7 earlier attempts are left out.)" in prompts[-1]
    assert "gave -8" in prompts[-1]


@pytest.mark.parametrize("kind", ["litellm", "openai_compatible"])
def test_time_limit_ends_the_request_as_well(run, kind):
    gone = threading.Event()

    def watched(connection):
        connection.recv(1)
        gone.set()

    with serving([watched], [HANG]) as (address, _):
        model = f"openai/mine; api_base = {address}/v1" if kind == "litellm" else f"{address}/v1#mine"
        result, ledger, _ = run(kind, f"model = {model}", LIMITED)
        assert gone.wait(10), "the server still has its connection"
    assert result.exit_code == 1, result.output
    (failed,) = results_of(ledger, "query_llm")
    assert failed.steps[-1]["payload"]["code"] == "TimeoutError"
