import pytest
from each_row import each_row

from dsa.edge.model_server import read_endpoint


@pytest.mark.parametrize(
    ("text", "url", "model"),
    [
        ("http://127.0.0.1:11434/v1#qwen2.5:7b", "http://127.0.0.1:11434/v1/chat/completions", "qwen2.5:7b"),
        ("http://127.0.0.1:8080#m", "http://127.0.0.1:8080/v1/chat/completions", "m"),
        ("https://openrouter.ai/api/v1/#a/b:free", "https://openrouter.ai/api/v1/chat/completions", "a/b:free"),
        ("https://h/v1/chat/completions#m", "https://h/v1/chat/completions", "m"),
        ("https://h/openai/v1?api-version=1#m", "https://h/openai/v1/chat/completions?api-version=1", "m"),
        ("http://[::1]:1/v1#m", "http://[::1]:1/v1/chat/completions", "m"),
        ("http://localhost:11434/api#m", "http://localhost:11434/api/chat", "m"),
    ],
)
def test_address_and_model_are_read_from_an_endpoint(text, url, model):
    endpoint = read_endpoint(text)
    assert (endpoint.url, endpoint.model) == (url, model)
    assert endpoint.native == url.endswith("/api/chat")
    assert read_endpoint(endpoint.name) == endpoint


@each_row(
    ("text", "told"),
    [
        ("http://h/v1", "does not name a model"),
        ("http://h/v1# ", "does not name a model"),
        ("http:///v1#m", "not an address"),
        ("ftp://h/v1#m", "not an address"),
        ("http://h:port/v1#m", "not an address"),
        ("http://[::1/v1#m", "not an address"),
        ("http://h h/v1#m", "not an address"),
        ("http://me:geheim99@h/v1#m", "must not hold a password"),
        ("http://geheim99@h/v1#m", "must not hold a password"),
        ("http://h/v1?key=geheim99#m", "must not hold a password"),
    ],
)
def test_invalid_address_is_reported_without_its_secrets(text, told):
    with pytest.raises(ValueError, match=told) as raised:
        read_endpoint(text)
    assert "geheim99" not in str(raised.value)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "localhost", "x.localhost", "[::1]", "0.0.0.0"])
def test_local_addresses_are_recognized(host):
    assert read_endpoint(f"http://{host}:1/v1#m").on_this_machine


@pytest.mark.parametrize("host", ["128.0.0.1", "localhost.example", "[2001:db8::1]", "h"])
def test_addresses_of_other_machines_are_not_local(host):
    assert not read_endpoint(f"http://{host}:1/v1#m").on_this_machine


VARIABLES = {"OPENAI_API_KEY": "o", "OPENROUTER_API_KEY": "r", "DSA_API_KEY": " d\n", "MINE": "m"}


@pytest.mark.parametrize(
    ("address", "named", "key"),
    [
        ("https://api.openai.com/v1", "", ("OPENAI_API_KEY", "o")),
        ("http://api.openai.com/v1", "", ("OPENAI_API_KEY", "")),
        ("https://openrouter.ai/api/v1", "", ("OPENROUTER_API_KEY", "r")),
        ("https://api.openai.com.evil.example/v1", "", ("DSA_API_KEY", "d")),
        ("http://127.0.0.1:1/v1", "", ("DSA_API_KEY", "d")),
        ("https://api.openai.com/v1", "MINE", ("MINE", "m")),
        ("http://127.0.0.1:1/v1", "MISSING", ("MISSING", "")),
    ],
)
def test_key_is_used_only_for_its_own_server(address, named, key):
    assert read_endpoint(f"{address}#m").key(named, VARIABLES) == key
