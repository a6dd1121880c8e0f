import enum
import functools
import importlib.util
import json
from pathlib import Path
from typing import Annotated, Literal

import pydantic
import pytest
from each_row import each_row

from dsa.errors import BindingError
from dsa.guards import PydanticGuard, build_guard
from dsa.guards.feedback import MOST_CHARACTERS
from dsa.guards.text_guards import model_at
from dsa.lang import loads
from dsa.runtime.content import Artifact


class Colour(enum.Enum):
    red = "red"
    blue = "blue"


class Person(pydantic.BaseModel):
    name: str
    ages: list[int] = []
    colour: Colour = Colour.red
    size: Literal["small", "large"] = "small"

    @pydantic.field_validator("name")
    @classmethod
    def is_no_number(cls, name: str) -> str:
        if name == "zero":
            return str(1 / 0)
        if name.isdigit():
            raise ValueError("a name has letters")
        return name


def says(model, text, **options):
    result = PydanticGuard(model, **options).validate(Artifact(text))
    assert not result.fatal
    assert result.passed == (not result.feedback)
    return result.feedback


@pytest.mark.parametrize("text", ['{"name": "a"}', 'Here:\n```json\n{"name": "a", "ages": [1]}\n```\nDone.'])
def test_json_that_the_model_accepts_passes(text):
    assert says(Person, text) == ""


@each_row(
    ("text", "feedback"),
    [
        ("no", "This is not valid JSON: Expecting value in line 1, column 1."),
        ("{}", "name: Field required"),
        ("[]", "the whole: Input should be an object"),
        ('{"name": "1"}', "name: Value error, a name has letters"),
        (
            '{"name": "a", "ages": [1, "x"]}',
            "ages[1]: Input should be a valid integer, unable to parse string as an integer",
        ),
        ('{"name": "a", "ages": [NaN]}', "This is not valid JSON: NaN is not a number in JSON."),
        ('{"name": "a", "ages": [1e999]}', "This JSON has a number that is too large to be read: 1e999."),
        ('{"name": "a", "colour": "green"}', "colour: this is not one of the allowed values"),
        ('{"name": "a", "size": "x"}', "size: this is not one of the allowed values"),
    ],
)
def test_faults_are_named_with_their_places(text, feedback):
    assert says(Person, text) == feedback


def test_expected_values_are_shown_on_request():
    assert says(Person, '{"name": "a", "size": "x"}', show_expected=True) == "size: Input should be 'small' or 'large'"


def test_feedback_does_not_repeat_the_value():
    said = says(Person, json.dumps({"name": ["s3cret" * 1000], "ages": ["s3cret" * 1000] * 50}))
    assert "s3cret" not in said
    assert said.endswith("and 48 more")
    assert len(says(dict[str, int], json.dumps({"k" * 9000: "x"}))) < MOST_CHARACTERS


def test_lone_surrogate_is_a_fault_of_the_text():
    assert "JSON" in says(Person, '{"name": "\\ud800"}')


def test_any_type_that_pydantic_can_check_is_accepted():
    assert says(list[int], "[1, 2]") == ""
    assert says(list[int], '["x"]').startswith("[0]: Input should be a valid integer")
    assert says(Annotated[int, pydantic.Field(gt=3)], "2") == "the whole: Input should be greater than 3"
    with pytest.raises(ValueError, match="not a type that pydantic can check"):
        PydanticGuard(object())


@pytest.mark.parametrize(
    "model", [json.loads, len, functools.partial(json.loads), Person.model_validate, lambda value: value, "int"]
)
def test_function_is_refused_as_a_type(model):
    with pytest.raises(ValueError, match=r"is a (str|function|method|partial|builtin_function_or_method), not a type"):
        PydanticGuard(model)


def test_function_in_a_table_is_refused_with_its_line():
    text = "# m\n\n## Guards\n| guard | is | options |\n| - | - | - |\n| g | pydantic | model = json:loads |\n"
    with pytest.raises(
        BindingError, match=r"^<text>:6:.*guard g: loads is a function, not a type that can describe JSON"
    ):
        build_guard("g", loads(f"{text}\n## Steps\n| step | guard |\n| - | - |\n| a | g |\n"))


def test_unexpected_error_of_a_validator_is_raised():
    with pytest.raises(ZeroDivisionError):
        PydanticGuard(Person).validate(Artifact('{"name": "zero"}'))


def test_missing_pydantic_is_reported_with_the_install_command(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(BindingError, match=r"pip install '\.\[pydantic\]'"):
        PydanticGuard(int)


SHAPES = """
from __future__ import annotations
from pydantic import BaseModel

class Outer:
    class Person(BaseModel):
        name: str
        friends: list[Friend] = []

class Friend(BaseModel):
    name: str

number = 3
"""
TABLE = """# t

## Guards
| guard | judges | is | options |
| ----- | ------ | -- | ------- |
| form  |        | pydantic | model = {model} |

## Steps
| step | guard | task |
| ---- | ----- | ---- |
| a    | form  | x    |
"""


def test_table_can_name_a_model_in_a_file_or_a_module(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shapes.py").write_text(SHAPES)
    guard = build_guard("form", loads(TABLE.format(model="shapes.py:Outer.Person")))
    assert guard.validate(Artifact('{"name": "a", "friends": [{"name": 1}]}')).feedback.startswith("friends[0].name: ")
    assert model_at("collections.abc:Mapping").__name__ == "Mapping"


def test_file_with_a_model_is_found_from_the_document_folder(tmp_path, monkeypatch):
    (tmp_path / "doc").mkdir()
    (tmp_path / "doc" / "shapes.py").write_text(SHAPES)
    (tmp_path / "shapes.py").write_text("class Outer: Person = int")
    monkeypatch.chdir(tmp_path)
    row = loads(TABLE.format(model="shapes.py:Outer.Person"))
    assert build_guard("form", row, folder=Path("doc")).validate(Artifact('{"name": "a"}')).passed
    assert build_guard("form", row).validate(Artifact("3")).passed
    assert (
        build_guard("form", loads(TABLE.format(model="builtins:int")), folder=Path("doc"))
        .validate(Artifact("3"))
        .passed
    )
    whole = loads(TABLE.format(model=f"{tmp_path}/shapes.py:Outer.Person"))
    assert build_guard("form", whole, folder=Path("doc")).validate(Artifact("3")).passed
    with pytest.raises(BindingError, match=r"form: doc/nowhere\.py cannot be imported"):
        build_guard("form", loads(TABLE.format(model="nowhere.py:X")), folder=Path("doc"))


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("shapes.py", "'shapes.py' does not say where a pydantic model is defined: write module:Name or file.py:Name"),
        ("nowhere.py:X", "nowhere.py cannot be imported: FileNotFoundError: there is no such file"),
        ("nowhere:X", "nowhere cannot be imported: ModuleNotFoundError: No module named 'nowhere'"),
        ("json:Nothing", "json has nothing called 'Nothing'"),
        ("json.py:x y", "does not say where a pydantic model is defined"),
        ("quits.py:X", "quits.py cannot be imported: SystemExit: 0"),
        ("shapes.py:number", "3 is not a type that pydantic can check"),
    ],
)
def test_missing_or_invalid_model_is_reported_when_the_guard_is_built(tmp_path, monkeypatch, model, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shapes.py").write_text(SHAPES)
    (tmp_path / "quits.py").write_text("raise SystemExit(0)")
    with pytest.raises(BindingError) as raised:
        build_guard("form", loads(TABLE.format(model=model)))
    assert "guard form: " in str(raised.value)
    assert message in str(raised.value)
