"""Names of models: no name that LiteLLM could know is refused."""

import re

import pytest
from each_row import each_row

from dsa.generators.model_options import require_model_name


@each_row(
    "name",
    [
        "local",
        "scripted:replies.md",
        "scripted:/a b/replies.md",
        "http://127.0.0.1:1/v1#m",
        "https://api.openai.com/v1#gpt-4o",
        "gpt-4o-mini",
        "openai/gpt-4o-mini",
        "ollama_chat/qwen2.5-coder:7b",
        "anthropic.claude-3-sonnet-20240229-v1:0",
        "bedrock/us.anthropic.claude-3-5-sonnet-20240620-v1:0",
        "ft:gpt-3.5-turbo:my-org:custom:id",
        "openrouter/meta-llama/llama-3:free",
        "cloudflare/@cf/meta/llama-2-7b-chat-int8",
        "huggingface/https://my.endpoint/x",
        "vertex_ai/claude-3@20240229",
        "1024-x-1024/50-steps/stability.stable-diffusion-xl-v1",
    ],
)
def test_possible_model_name_is_accepted(name):
    require_model_name(name)


@each_row(
    ("name", "said"),
    [
        ("", "the model has no name: write local, scripted:FILE, http://HOST/v1#MODEL, or a LiteLLM name"),
        ("  ", "the model has no name"),
        ("scripted:", "'scripted:' does not name a script: write scripted:FILE"),
        ("scripted: ", "does not name a script"),
        ("scriped:x.md", "'scriped:x.md' is not a model; did you mean 'scripted:x.md'?"),
        ("Scripted:x.md", "did you mean 'scripted:x.md'?"),
        ("scripted", "'scripted' is not a model; did you mean 'scripted:FILE'?"),
        ("lokal", "did you mean 'local'?"),
        ("127.0.0.1:18977/v1#m", "an address begins with http://, for example http://HOST/v1#MODEL"),
        ("127.0.0.1", "an address begins with http://"),
        ("localhost:8080", "an address begins with http://"),
        ("[::1]:8080/v1", "an address begins with http://"),
        ("models.example.org:8080/v1", "an address begins with http://"),
        ("models.example.org/v1#m", "an address begins with http://"),
        (
            "htp://127.0.0.1/v1#m",
            "'htp://127.0.0.1/v1#m' is not the address of a model: it must begin with http:// or https://",
        ),
        ("http://127.0.0.1/v1", "does not name a model"),
        ("http:///v1#m", "is not an address of a server"),
        ("openai/gpt 4", "'openai/gpt 4' is not a model: write local,"),
    ],
)
def test_impossible_model_name_is_refused_with_advice(name, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        require_model_name(name)
