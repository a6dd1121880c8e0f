import importlib.util
import json
import re
from pathlib import Path

import pytest
from each_row import each_row

from dsa.errors import DsaError
from dsa.runtime.secrets import SHAPES, SecretOptions, is_secret_name, secrets_in

SHAPE_NAMES = {shape.name for shape in SHAPES}


def named(environment, **chosen):
    """Return the names of the secrets that are looked for, without the shapes."""
    return set(secrets_in(environment, SecretOptions(**chosen)).names) - SHAPE_NAMES


@each_row("name", [
    "OPENAI_API_KEY", "ANTHROPIC_API_KEY", "AZURE_API_KEY", "AZURE_AD_TOKEN", "AZURE_CLIENT_SECRET", "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN", "AWS_BEARER_TOKEN_BEDROCK", "HF_TOKEN", "WATSONX_APIKEY", "WATSONX_ZENAPIKEY", "GIGACHAT_CREDENTIALS",
    "VERTEX_CREDENTIALS", "DATABASE_PASSWORD", "PGPASSWORD", "MYSQL_PWD_SECRET", "SNOWFLAKE_JWT", "SMTP_PASS", "GITHUB_PAT",
    "CIRCLE_OIDC_TOKEN_V2", "HCP_VAULT_APPROLE_SECRET_ID", "SLACK_WEBHOOK_URL", "api_key", "SIGNING_KEY_PEM", "NPM_AUTH",
])  # fmt: skip
def test_names_of_keys_are_recognised(name):
    assert is_secret_name(name)
    assert named({name: "x1y2z3a4b5"}) == {name}


@each_row("name", [
    "PATH", "HOME", "PWD", "USER", "TOKENIZERS_PARALLELISM", "KEYBOARD_LAYOUT", "OPENAI_API_BASE", "SSH_AUTH_SOCK", "GITHUB_TOKEN_FILE",
    "AWS_ACCESS_KEY_ID", "PASSWORD_STORE_DIR", "COMPASS", "SECRETARY", "PATIENT", "DISABLE_KEY_NAME", "AUTHOR", "COMPAT",
])  # fmt: skip
def test_other_names_are_not_taken_for_keys(name):
    assert not is_secret_name(name)
    assert named({name: "x1y2z3a4b5"}) == set()


def test_variables_that_litellm_reads_keys_from_are_recognised():
    """Every variable that its source reads and that is named like a key, without those of files, folders and addresses."""
    found = importlib.util.find_spec("litellm")
    if found is None:
        pytest.skip("the extra `llm` is not installed")
    folder = Path(found.submodule_search_locations[0]) / "llms"
    read = re.compile(r"""get_secret(?:_str)?\(\s*["']([A-Z][A-Z0-9_]+)["']""")
    names = {name for path in folder.rglob("*.py") for name in read.findall(path.read_text(errors="replace"))}
    assert "OPENAI_API_KEY" in names
    looking_like_keys = [name for name in names if re.search("KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL|JWT|AUTH", name)]
    unknown = sorted(name for name in looking_like_keys if not is_secret_name(name))
    assert [name for name in unknown if not name.endswith(("_FILE", "_DIR", "_URL", "_BASE"))] == []


def test_short_values_are_not_secrets_unless_chosen_by_name():
    environment = {"A_KEY": "1234567", "B_KEY": "12345678", "DEBUG_TOKEN": " true ", "PIN": "4711"}
    assert named(environment) == {"B_KEY"}
    assert named(environment, names=("PIN", "A_KEY", "GONE")) == {"A_KEY", "B_KEY", "PIN"}
    assert secrets_in(environment, SecretOptions(("PIN",))).text("4711") == "[secret PIN]"
    with pytest.raises(DsaError, match="the value of PIN has 3 characters"):
        secrets_in({"PIN": "123"}, SecretOptions(("PIN",)))
    with pytest.raises(DsaError, match="the value of WORD is a part of the marker that would replace it"):
        secrets_in({"WORD": "secret"}, SecretOptions(("WORD",)))


def test_passwords_in_addresses_and_values_of_headers_are_secrets():
    environment = {
        "DATABASE_URL": "postgres://me:hunter2hunter2@db.example/x",
        "PLAIN_URL": "http://db.example/x?a:b@c",
        "OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer%20abcdef012345,x=short",
    }
    secrets = secrets_in(environment)
    assert secrets.text("hunter2hunter2 abcdef012345") == (
        "[secret DATABASE_URL] [secret OTEL_EXPORTER_OTLP_HEADERS.authorization]"
    )
    assert secrets.text("http://db.example/x?a:b@c short") == "http://db.example/x?a:b@c short"


def test_secret_parts_of_json_credentials_are_secrets_too():
    account = {"type": "service_account", "project_id": "my-project", "private_key": "very private indeed", "n": 1}
    secrets = secrets_in({"VERTEX_CREDENTIALS": json.dumps(account)})
    assert secrets.text("very private indeed of my-project") == "[secret VERTEX_CREDENTIALS.private_key] of my-project"
    assert secrets.text(json.dumps(account)) == "[secret VERTEX_CREDENTIALS]"
    assert named({"VERTEX_CREDENTIALS": "{ no json"}) == {"VERTEX_CREDENTIALS"}


def test_patterns_are_numbered_and_any_secret_can_be_excluded():
    chosen = SecretOptions(patterns=("TICKET-[0-9]+", "cust_[a-z]+"), spared=("A_KEY", "openai-key", "pattern-2"))
    secrets = secrets_in({"A_KEY": "12345678"}, chosen)
    text = "TICKET-12 12345678 cust_abc sk-abcDEF0123456789abcdef"
    assert secrets.text(text) == "[secret pattern-1] 12345678 cust_abc sk-abcDEF0123456789abcdef"
    for pattern, fault in (("(", "is not a valid regular expression"), ("a*", "matches the empty text")):
        with pytest.raises(DsaError, match=re.escape(f"'{pattern}' {fault}")):
            secrets_in({}, SecretOptions(patterns=(pattern,)))


def test_options_chosen_twice_are_merged():
    assert SecretOptions(("A",), ("x",)) | SecretOptions(("B", "A"), (), ("C",)) == SecretOptions(
        ("A", "B"), ("x",), ("C",)
    )
    assert not SecretOptions()
    assert SecretOptions(spared=("A",))
