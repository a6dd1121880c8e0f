"""Guards of texts: patterns, JSON schemas, and options that name files."""

import json
import time
from pathlib import Path

import pytest
from each_row import each_row

from dsa.errors import BindingError
from dsa.guards import RegexGuard, SchemaGuard, build_guard
from dsa.lang import loads
from dsa.runtime.content import Artifact

SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "ages": {"type": "array", "items": {"type": "integer"}}},
    "required": ["name"],
}


def says(guard, text):
    result = guard.validate(Artifact(text))
    assert not result.fatal
    assert result.passed == (not result.feedback)
    return result.feedback


def test_pattern_is_found_matched_whole_or_absent():
    assert says(RegexGuard(r"\d+"), "a 1 b") == ""
    assert r"must contain the pattern \d+" in says(RegexGuard(r"\d+"), "none")
    assert says(RegexGuard(r"a.b", whole=True), "a\nb") == ""
    assert says(RegexGuard(r"a.b", whole=True), "xa\nb") != ""
    assert says(RegexGuard("TODO", absent=True), "done") == ""
    assert says(RegexGuard("TODO", absent=True, hint="finish it"), "TODO") == "finish it"
    with pytest.raises(ValueError, match="not a regular expression"):
        RegexGuard("(")


def test_text_fails_when_a_pattern_takes_too_long():
    guard = RegexGuard("(a+)+$", timeout_s=0.3)
    told = says(guard, "a" * 40 + "b")
    assert told == "This text could not be judged by the pattern (a+)+$ within 0.3 s: write it shorter and simpler."
    assert says(guard, "aa") == ""
    with pytest.raises(ValueError, match="not a valid time limit"):
        RegexGuard("a", timeout_s=0)


SLOW = {"type": "object", "properties": {"email": {"type": "string", "pattern": r"^([a-zA-Z0-9]+\.?)+@example\.com$"}}}


def test_text_fails_when_a_schema_takes_too_long(monkeypatch):
    monkeypatch.setattr("dsa.guards.text_guards._SCHEMA_S", 0.5)
    guard = SchemaGuard(SLOW)
    began_s = time.monotonic()
    told = says(guard, json.dumps({"email": "a" * 46 + "!"}))
    assert told == "This text could not be judged by the schema within 0.5 s: write it shorter and simpler."
    assert time.monotonic() - began_s < 5
    assert says(guard, json.dumps({"email": "ann@example.com"})) == ""


def test_many_items_and_deep_nesting_respect_the_limits(monkeypatch):
    monkeypatch.setattr("dsa.guards.text_guards._SCHEMA_S", 0.5)
    unique = SchemaGuard({"uniqueItems": True})
    assert "could not be judged by the schema" in says(unique, json.dumps([{"a": n} for n in range(20_000)]))
    nested: dict = {}
    nested["additionalProperties"] = {"$ref": "#"}
    told = says(SchemaGuard(nested), '{"a":' * 400 + "1" + "}" * 400)
    assert told == "" or "nested too deeply" in told


def test_texts_of_any_characters_are_matched():
    assert says(RegexGuard("^\ud800\0\u2028$"), "\ud800\0\u2028") == ""


@pytest.mark.parametrize(
    "text", ['{"name": "a"}', 'Here:\n```json\n{"name": "a", "ages": [1]}\n```', '```\n{"name": ""}\n```']
)
def test_json_that_matches_its_schema_passes(text):
    assert says(SchemaGuard(SCHEMA), text) == ""


@each_row(
    ("text", "feedback"),
    [
        ("no", "not valid JSON: Expecting value in line 1, column 1"),
        ('{"name":\n 1,}', "not valid JSON: .* in line 2"),
        ('{"name": NaN}', "NaN is not a number"),
        ("[" * 100_000, "nested too deeply|not valid JSON"),
        ("{}", "the whole: 'name' is a required property"),
        ('{"name": 1}', "name: 1 is not of type 'string'"),
        ('{"name": "a", "ages": [1, "b"]}', r"ages\[1\]: 'b' is not of type 'integer'"),
        (json.dumps({"name": "a", "ages": ["x"] * 9}), "and 6 more"),
    ],
)
def test_faults_are_named_with_their_places(text, feedback):
    import re

    assert re.search(feedback, says(SchemaGuard(SCHEMA), text))


def test_invalid_schema_is_refused():
    with pytest.raises(ValueError, match="not a JSON schema"):
        SchemaGuard({"type": "nothing"})


def test_remote_references_are_not_followed():
    guard = SchemaGuard({"$ref": "http://127.0.0.1:9/schema.json"})
    with pytest.raises(Exception, match=r"schema\.json"):
        guard.validate(Artifact("{}"))


@pytest.mark.parametrize(
    ("number", "feedback"),
    [
        ("-Infinity", "This is not valid JSON: -Infinity is not a number in JSON."),
        ("1e999", "This JSON has a number that is too large to be read: 1e999."),
        ("9" * 5000, "This JSON has a number that is too large to be read: it has 5000 digits."),
    ],
)
def test_numbers_that_cannot_be_read_are_reported(number, feedback):
    assert says(SchemaGuard({}), f'{{"a": [{number}]}}') == feedback


def test_expected_values_are_shown_only_on_request():
    schema = {"properties": {"a": {"const": 4711}, "b": {"enum": ["red", "blue"]}}}
    told = says(SchemaGuard(schema), '{"a": 1, "b": "green"}')
    assert told == "a: 1 is not the expected value\nb: 'green' is not one of the allowed values"
    shown = says(SchemaGuard(schema, show_expected=True), '{"a": 1, "b": "green"}')
    assert "4711" in shown
    assert "'red'" in shown


def test_long_value_does_not_hide_the_point_of_a_message():
    told = says(SchemaGuard({"type": "object"}), json.dumps(["x" * 9000]))
    assert told.startswith("the whole: ['xxx")
    assert told.endswith("is not of type 'object'")
    assert len(told) < 250
    deep = says(SchemaGuard({"additionalProperties": {"type": "null"}}), json.dumps({"k" * 9000: 1}))
    assert len(deep) < 250


TABLE = """# t

## Steps
| step | guard | task |
| ---- | ----- | ---- |
| a    | form  | x    |

## Guards
| guard | judges | is | options |
| ----- | ------ | -- | ------- |
| form  |        | {kind} | {options} |
"""


def built(kind, options):
    return build_guard("form", loads(TABLE.format(kind=kind, options=options)))


def test_table_can_name_guards_of_texts(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.json").write_text(json.dumps(SCHEMA))
    assert says(built("regex", "pattern = [0-9]; whole = true"), "7") == ""
    assert says(built("json", "schema = s.json"), "{}") != ""
    assert says(built("json", "schema = s.json; show_expected = true"), "{}") != ""
    assert built("forbidden", "calls = print; imports = re").validate(Artifact("import re")).fatal
    with pytest.raises(BindingError, match=r"the schema no\.json cannot be read"):
        built("json", "schema = no.json")


def test_schema_is_found_from_the_document_folder_only(tmp_path, monkeypatch):
    (tmp_path / "doc").mkdir()
    (tmp_path / "doc" / "s.json").write_text('{"type": "integer"}')
    (tmp_path / "s.json").write_text('{"type": "string"}')
    (tmp_path / "here.json").write_text("{}")
    monkeypatch.chdir(tmp_path)

    def judge(schema, folder):
        return build_guard("form", loads(TABLE.format(kind="json", options=f"schema = {schema}")), folder=folder)

    assert judge("s.json", Path("doc")).validate(Artifact("3")).passed
    assert judge("s.json", None).validate(Artifact('"a"')).passed
    assert judge(tmp_path / "s.json", Path("doc")).validate(Artifact('"a"')).passed
    with pytest.raises(BindingError, match=r"guard form: the schema doc/here\.json cannot be read: No such file"):
        judge("here.json", Path("doc"))


def test_file_of_tests_is_found_from_the_document_folder(tmp_path, monkeypatch):
    (tmp_path / "doc").mkdir()
    (tmp_path / "doc" / "t.py").write_text("def test_it(): pass")
    monkeypatch.chdir(tmp_path)
    table = TABLE.format(kind="pytest", options="file = t.py")
    assert build_guard("form", loads(table), folder=tmp_path / "doc")
    with pytest.raises(BindingError, match=r"guard form: the tests t\.py cannot be read: No such file"):
        build_guard("form", loads(table))
