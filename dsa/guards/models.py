"""Judge JSON by a pydantic model, or by any type that pydantic can check.

Takes a type, or where it is found, gives a guard. Importing a model runs the code of its module, which is the user's own.
"""

import functools
import importlib
import importlib.util
import inspect
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from dsa.errors import install_hint
from dsa.guards.texts import faults_said, json_in
from dsa.guards.tool import ToolMissingError
from dsa.runtime.content import Artifact, GuardInterface, GuardResult

#: Faults whose message has the values that would have been right.
_TELLS_VALUES = frozenset({"enum", "literal_error", "union_tag_invalid"})
_FROM_FILE = "dsa_model_"


class PydanticGuard(GuardInterface):
    """Pass a text that is JSON and that a pydantic model accepts, or any type that pydantic can check, such as `list[int]`.

    The JSON may stand in a fence. The feedback names the first faults with their places and pydantic's messages; the values of an enumeration are
    named only with `show_expected`. What is no JSON, NaN among it, has failed. ToolMissingError where pydantic is not installed, ValueError for
    what it cannot check.
    """

    def __init__(self, model: Any, *, show_expected: bool = False) -> None:  # noqa: ANN401  # a type, of any kind
        if inspect.isroutine(model) or isinstance(model, functools.partial | str):
            named = getattr(model, "__qualname__", repr(model))
            raise ValueError(f"{named} is a {type(model).__name__}, and no type that JSON could be of")
        if importlib.util.find_spec("pydantic") is None:
            raise ToolMissingError(f"pydantic is not installed: {install_hint('pydantic')}")
        import pydantic

        try:
            self._type: pydantic.TypeAdapter[Any] = pydantic.TypeAdapter(model)
        except pydantic.errors.PydanticUserError as error:
            raise ValueError(f"{model!r} is nothing that pydantic can check: {error.message}") from error
        self._fault = pydantic.ValidationError
        self._show_expected = show_expected

    def validate(self, artifact: Artifact, **dependencies: Artifact) -> GuardResult:  # noqa: ARG002  # the interface
        """Judge the JSON in the artifact. What a validator of the model raises, other than ValueError and AssertionError, passes through."""
        try:
            value = json_in(artifact.content)
        except ValueError as fault:
            return GuardResult(passed=False, feedback=str(fault))
        try:
            self._type.validate_json(json.dumps(value))
        except self._fault as error:
            listed = error.errors(include_url=False, include_context=False, include_input=False)
            return GuardResult(passed=False, feedback=faults_said((each["loc"], self._said(each)) for each in listed))
        return GuardResult(passed=True)

    def _said(self, fault: Any) -> str:  # noqa: ANN401  # pydantic's ErrorDetails
        if fault["type"] in _TELLS_VALUES and not self._show_expected:
            return "this is none of the values that are allowed"
        return str(fault["msg"])


def model_at(place: str) -> Any:  # noqa: ANN401  # a type, of any kind
    """Give what `module:Name` or `file.py:Name` means; a relative file is named from the working folder. ValueError when there is no such thing."""
    where, _, name = place.rpartition(":")
    if not where or not all(part.isidentifier() for part in name.split(".")):
        raise ValueError(f"'{place}' names no model: write module:Name or file.py:Name")
    found: Any = _module(where)
    for part in name.split("."):
        if not hasattr(found, part):
            raise ValueError(f"{where} has nothing called '{name}'")
        found = getattr(found, part)
    return found


def _module(where: str) -> ModuleType:
    try:
        return _from_file(Path(where)) if where.endswith(".py") else importlib.import_module(where)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # sys.exit at its top would end the program as if all were well
        raise ValueError(f"{where} cannot be imported: {type(error).__name__}: {error}") from error


def _from_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise FileNotFoundError("there is no such file")
    name = f"{_FROM_FILE}{abs(hash(path.resolve())):x}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None, "a .py file has a loader"
    assert spec.loader is not None, "a .py file has a loader"
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # pydantic looks up there what annotations mean
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
