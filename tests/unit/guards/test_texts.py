"""Texts of a form."""

import json

import pytest

from dsa.errors import BindingError
from dsa.guards import ModelGuard, RegexGuard, SchemaGuard, build_guard
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


def test_a_pattern_is_found_matched_whole_or_absent():
    assert says(RegexGuard(r"\d+"), "a 1 b") == ""
    assert r"must have the form \d+" in says(RegexGuard(r"\d+"), "none")
    assert says(RegexGuard(r"a.b", whole=True), "a\nb") == ""
    assert says(RegexGuard(r"a.b", whole=True), "xa\nb") != ""
    assert says(RegexGuard("TODO", absent=True), "done") == ""
    assert says(RegexGuard("TODO", absent=True, hint="finish it"), "TODO") == "finish it"
    with pytest.raises(ValueError, match="no regular expression"):
        RegexGuard("(")


@pytest.mark.parametrize(
    "text", ['{"name": "a"}', 'Here:\n```json\n{"name": "a", "ages": [1]}\n```', '```\n{"name": ""}\n```']
)
def test_json_that_keeps_to_its_schema_passes(text):
    assert says(SchemaGuard(SCHEMA), text) == ""


@pytest.mark.parametrize(
    ("text", "feedback"),
    [
        ("no", "not JSON: Expecting value in line 1, column 1"),
        ('{"name":\n 1,}', "not JSON: .* in line 2"),
        ('{"name": NaN}', "NaN is no number"),
        ("[" * 100_000, "nested too deeply|not JSON"),
        ("{}", "the whole: 'name' is a required property"),
        ('{"name": 1}', "name: 1 is not of type 'string'"),
        ('{"name": "a", "ages": [1, "b"]}', r"ages\[1\]: 'b' is not of type 'integer'"),
        (json.dumps({"name": "a", "ages": ["x"] * 9}), "and 6 more"),
    ],
)
def test_faults_are_named_with_their_places(text, feedback):
    import re

    assert re.search(feedback, says(SchemaGuard(SCHEMA), text))


def test_what_is_no_schema_is_refused():
    with pytest.raises(ValueError, match="no JSON schema"):
        SchemaGuard({"type": "nothing"})


def test_references_elsewhere_are_not_followed():
    guard = SchemaGuard({"$ref": "http://127.0.0.1:9/schema.json"})
    with pytest.raises(Exception, match=r"schema\.json"):
        guard.validate(Artifact("{}"))


class Model:
    """Stands for a pydantic model where pydantic is not installed: the method, and the errors it gives."""

    @classmethod
    def model_validate_json(cls, text):
        if json.loads(text).get("name") != "a":
            error = ValueError("bad")
            error.errors = lambda: [{"loc": ("name", 0), "msg": "should be a"}]
            raise error


def test_a_model_judges_json():
    assert says(ModelGuard(Model), '{"name": "a"}') == ""
    assert says(ModelGuard(Model), '{"name": "b"}') == "name[0]: should be a"
    assert "not JSON" in says(ModelGuard(Model), "b")
    with pytest.raises(TypeError, match="no pydantic model"):
        ModelGuard(int)


def test_a_real_pydantic_model_judges():
    pydantic = pytest.importorskip("pydantic")

    class Person(pydantic.BaseModel):
        name: str
        ages: list[int]

    assert says(ModelGuard(Person), '{"name": "a", "ages": [1]}') == ""
    assert "ages[0]: Input should be a valid integer" in says(ModelGuard(Person), '{"name": "a", "ages": ["x"]}')


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


def test_a_table_names_them(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.json").write_text(json.dumps(SCHEMA))
    assert says(built("regex", "pattern = [0-9]; whole = true"), "7") == ""
    assert says(built("json", "schema = s.json"), "{}") != ""
    assert built("forbidden", "calls = print; imports = re").validate(Artifact("import re")).fatal
    with pytest.raises(BindingError, match=r"the schema no\.json cannot be read"):
        built("json", "schema = no.json")
