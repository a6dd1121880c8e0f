import base64
import html
import json
import re
from pathlib import Path
from urllib.parse import quote, quote_plus

import pytest
from each_row import each_row
from hypothesis import assume, example, given
from hypothesis import strategies as st

from dsa.runtime.secrets import SHAPES, Secrets, marker, marker_names

VALUE = "h7/Qz\"k\n+é\\s'w ~x?9"
SECRETS = Secrets({"SHOP_KEY": VALUE}, ())
PEM = (
    "-----BEGIN PRIVATE KEY-----\n"
    + "\n".join(f"{i}MIIEvQIBADANBgkqhkiG9w0BAQEF" for i in range(4))
    + "\n-----END PRIVATE KEY-----"
)
KEYS = {
    "openai-key": "sk-proj-abcDEF0123456789abcdef-_x",
    "github-token": "ghp_0123456789abcdefghijABCDEFGHIJ012345",
    "gitlab-token": "glpat-0123456789abcdefghij",
    "aws-key-id": "AKIAIOSFODNN7EXAMPLE",
    "google-key": "AIzaSyA0123456789abcdefghijklmnopqrstuv",
    "slack-token": "xoxb-0123456789-abcdef",
    "huggingface-token": "hf_0123456789abcdefghijABCDEFGHIJ",
    "private-key": PEM,
}  # fmt: skip


def in_base64(before, value, after, code=base64.b64encode):
    return code((before + value + after).encode()).decode()


FORMS = {
    "plain": VALUE,
    "JSON": json.dumps(VALUE)[1:-1],
    "JSON with non-ASCII letters": json.dumps(VALUE, ensure_ascii=False)[1:-1],
    "JSON in JSON": json.dumps(json.dumps({"key": VALUE})),
    "JSON with slashes": json.dumps(VALUE)[1:-1].replace("/", "\\/"),
    "Python": repr([VALUE]),
    "other line ends": VALUE.replace("\n", "\r\n"),
    "URL": quote(VALUE, safe=""),
    "URL path": quote(VALUE),
    "URL form": quote_plus(VALUE),
    "URL in lower case": re.sub("%..", lambda match: match[0].lower(), quote(VALUE, safe="")),
    "base64": in_base64("", VALUE, ""),
    "base64 of user:password": in_base64("user:", VALUE, ""),
    "base64 one off": in_base64("a", VALUE, "b"),
    "base64 two off": in_base64("ab", VALUE, "cde"),
    "base64 for URLs": in_base64("ab", VALUE, "cde", base64.urlsafe_b64encode),
    "URL in a URL": quote(quote(VALUE, safe=""), safe=""),
    "base64 in a URL": quote(in_base64("ab", VALUE, "cde"), safe=""),
    "base64 of base64": in_base64("x", in_base64("ab", VALUE, "cde"), ""),
    "base64 of UTF-16": base64.b64encode(f"a{VALUE}b".encode("utf-16-le")).decode(),
    "base64 of UTF-16, big-endian": base64.b64encode(f"ab{VALUE}".encode("utf-16-be")).decode(),
    "HTML": html.escape(VALUE),
    "HTML text": html.escape(VALUE, quote=False),
    "HTML by decimal numbers": "".join(f"&#{ord(each)};" for each in VALUE),
    "HTML by hexadecimal numbers": "".join(f"&#x{ord(each):X};" for each in VALUE),
    "HTML, quotes by numbers": html.escape(VALUE, quote=False).replace('"', "&#34;").replace("'", "&#39;"),
    "XML, special characters by hexadecimal numbers": re.sub("[&<>\"']", lambda found: f"&#x{ord(found[0]):x};", VALUE),
}  # fmt: skip


MARKUP = "s<e&c'r>e+t`"


@pytest.mark.parametrize("known", ["<>&", "<>&'+`"])
@pytest.mark.parametrize("written", ["\\u{:04x}", "\\u{:04X}"])
def test_secret_in_json_escaped_for_html_is_found(written, known):
    text = json.dumps({"key": MARKUP})
    for each in known:
        text = text.replace(each, written.format(ord(each)))
    assert json.loads(text) == {"key": MARKUP}
    secrets = Secrets({"KEY": MARKUP}, ())
    for told in (text, json.dumps(text)):
        assert secrets.suspects(told)
        assert json.loads(secrets.text(told)) in ({"key": "[secret KEY]"}, '{"key": "[secret KEY]"}')


@given(st.integers(0, 60), st.sampled_from((64, 76)), st.sampled_from(("\n", "\r\n", "\n    ")), st.booleans())
def test_base64_in_lines_is_found_wherever_the_lines_end(before, width, end, is_json):
    coded = in_base64("x" * before, "Tr0ub4dor&3 horse/battery", "y" * 9)
    text = end.join(coded[place : place + width] for place in range(0, len(coded), width))
    text = json.dumps(text) if is_json else text
    without = Secrets({"KEY": "Tr0ub4dor&3 horse/battery"}, ()).text(f"to {text} end")
    assert "[secret KEY]" in without


def test_value_with_a_common_prefix_is_found_in_base64_lines():
    one, two = ("a common beginning of both, and then " + end * 12 for end in "12")
    secrets, coded = Secrets({"ONE": one, "TWO": two}, ()), in_base64("", two, "")
    for place in range(1, len(coded)):
        assert "[secret TWO]" in secrets.text(f"{coded[:place]}\n{coded[place:]}")


ORDINARY = """
The docs say: write `&amp;` for &, &lt; for <, and &#39; or &#x27; for an apostrophe; JSON has \\u0026 and \\u003c, URLs have %20 and %2520.
aGVsbG8gd29ybGQsIHRoaXMgaXMgb3JkaW5hcnkgdGV4dCBpbiBiYXNlNjQsIHdyYXBwZWQgYXQgNzYg
Y29sdW1ucywgYW5kIG5vdGhpbmcgb2YgaXQgaXMgc2VjcmV0IGF0IGFsbA==
"""


@pytest.mark.parametrize(
    "value", ["correct horse", "Tr0ub4dor&3 horse/battery", "sk_live_4eC39HqLyjWDarjtT1zdp7dc", "p<w>&'q\"", "postgres"]
)
def test_ordinary_text_is_unchanged(value):
    secrets = Secrets({"KEY": value}, ())
    assert secrets.text(ORDINARY) is ORDINARY
    for page in sorted(Path(__file__).parents[3].glob("docs/how-to/*.md")):
        text = page.read_text("utf-8").replace(value, "")
        assert secrets.text(text) is text, page


@each_row("form", FORMS)
def test_value_is_found_in_every_encoding(form):
    text = f"before {FORMS[form]} after"
    without = SECRETS.text(text)
    assert "[secret SHOP_KEY]" in without
    assert without.startswith("before ")
    assert without.endswith(" after")
    for part in ("h7", "Qz", "x?9", "x%3F9", "x%3f9"):
        assert part not in without
    assert [name for _, name in SECRETS.places(text)] == ["SHOP_KEY"]


@each_row("name", KEYS)
def test_keys_are_recognised_by_their_shapes(name):
    secrets = Secrets()
    assert secrets.text(f"x = '{KEYS[name]}'\n") == f"x = '[secret {name}]'\n"
    assert secrets.text(f"key={KEYS[name]}") == f"key=[secret {name}]"
    shape = next(shape for shape in SHAPES if shape.name == name)
    assert shape.shortest <= len(KEYS[name])
    assert any(anchor in KEYS[name] for anchor in shape.anchors)


@each_row("text", [
    "a risk-based plan, sk-circle-fade-dot and task-oriented work",
    "sk-short1", "hf_hub_download(repo_id)", "AKIA", "XAKIAIOSFODNN7EXAMPLE", "AKIAIOSFODNN7EXAMPLEandmore",
    "github_pat_ is what they begin with", "ghp_", "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
    "a PRIVATE KEY is private", "xoxb-", "AIza", "{'secret': 1}",
])  # fmt: skip
def test_text_that_only_resembles_a_key_is_unchanged(text):
    assert Secrets().text(text) == text


def test_part_of_a_private_key_is_found_too():
    secrets = Secrets({"DEPLOY_KEY": PEM}, ())
    inside = PEM.splitlines()[2]
    assert secrets.text(f"    '{inside}'") == "    '[secret DEPLOY_KEY]'"
    assert secrets.text("-----BEGIN PRIVATE KEY-----") == "-----BEGIN PRIVATE KEY-----"
    assert Secrets().text(PEM[:80] + "\nand no end") == "[secret private-key]"


def test_values_are_redacted_in_json_texts_keys_and_numbers():
    secrets = Secrets({"PIN": "12345678", "WORD": "opensesame"}, ())
    given = {"opensesame": ["say opensesame", 12345678, 1234567, True, None, {"n": 12345678.5}]}
    assert secrets.value(given) == {
        "[secret WORD]": ["say [secret WORD]", "[secret PIN]", 1234567, True, None, {"n": "[secret PIN].5"}]
    }
    assert secrets.value(("a", 1)) == ["a", 1]


def test_longest_of_overlapping_values_is_named():
    secrets = Secrets({"SHORT": "abcdefgh", "LONG": "abcdefgh12345678", "TAIL": "12345678zz"}, ())
    assert secrets.text("abcdefgh") == "[secret SHORT]"
    assert secrets.text("abcdefgh12345678") == "[secret LONG]"
    assert secrets.text("abcdefgh12345678zz!") == "[secret LONG]!"


def test_markers_are_unchanged_even_if_a_pattern_matches_them():
    from dsa.runtime.secrets import SecretOptions, secrets_in

    secrets = secrets_in({}, SecretOptions(patterns=(r"\w+",)))
    once = secrets.text("a [secret KEY] b")
    assert once == "[secret pattern-1] [secret KEY] [secret pattern-1]"
    assert secrets.text(once) == once
    assert secrets.places(once) == ()


def test_names_of_redacted_secrets_are_read_from_markers():
    assert marker_names("x [secret B] y [secret A] [secret B]") == ("A", "B")
    assert marker_names("[secret ] [secret a\nb] secret A [Secret A]") == ()
    assert marker("ODD NAME]\n") == "[secret ODD_NAME__]"
    assert marker_names(marker("ODD NAME]\n")) == ("ODD_NAME__",)


def test_repr_shows_no_value():
    assert VALUE[:4] not in repr(SECRETS)
    assert repr(SECRETS) == "Secrets(SHOP_KEY)"
    assert Secrets({}, ()).text("anything") == "anything"


texts = st.text(st.characters(codec="utf-8"), max_size=40)
values = st.text(st.characters(codec="utf-8", exclude_categories=("Cc",)), min_size=6, max_size=30).filter(
    lambda value: value.strip() == value and value not in marker("A_KEY") and len(set(value)) > 3
)


@given(values, texts, texts, st.sampled_from(["raw", "json", "repr", "url", "base64"]))
@example("000000/0", "", "", "json")
def test_encoded_value_is_removed_from_any_text(value, before, after, form):
    coded = {
        "raw": value,
        "json": json.dumps(value)[1:-1],
        "repr": repr(value)[1:-1],
        "url": quote(value.encode(), safe=""),
        "base64": base64.b64encode(f"{before[:4]}{value}".encode()).decode(),
    }[form]
    assume(form != "base64" or len(value.encode()) >= 10)
    secrets = Secrets({"A_KEY": value}, ())
    text = before + coded + after
    assert secrets.suspects(text)
    without = secrets.text(text)
    assert secrets.text(without) == without
    assert value not in without
    assert "[secret A_KEY]" in without


@given(values, texts)
def test_text_without_the_value_is_returned_unchanged(value, text):
    secrets = Secrets({"A_KEY": value})
    if not secrets.places(text):
        assert secrets.text(text) is text
    if not secrets.suspects(text):
        assert secrets.places(text) == ()
        assert value not in text
