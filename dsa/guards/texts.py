"""Judge texts by their form: a pattern, a JSON schema, a pydantic model.

Takes what a text must look like, gives guards. They run nothing of the artifact.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import jsonschema
from jsonschema.protocols import Validator
from referencing import Registry

from dsa.guards.code import extract_fenced
from dsa.runtime.content import Artifact, GuardInterface, GuardResult

_MOST_FAULTS, _MOST_TEXT = 3, 160


class RegexGuard(GuardInterface):
    """Pass a text in which `pattern` is found; with `whole`, one that it matches from end to end; with `absent`, one without it.

    `hint` is the feedback; without it the pattern is shown. `.` matches line feeds too. ValueError for what is no pattern.
    """

    def __init__(self, pattern: str, *, whole: bool = False, absent: bool = False, hint: str = "") -> None:
        try:
            self._pattern = re.compile(pattern, re.DOTALL)
        except re.error as error:
            raise ValueError(f"'{pattern}' is no regular expression: {error}") from error
        self._whole, self._absent = whole, absent
        wanted = "must not have" if absent else "must be" if whole else "must have"
        self._feedback = hint or f"The text {wanted} the form {pattern}"

    def validate(self, artifact: Artifact, **dependencies: Artifact) -> GuardResult:  # noqa: ARG002  # the interface
        """Judge the text."""
        found = (self._pattern.fullmatch if self._whole else self._pattern.search)(artifact.content)
        return _judged("" if (found is not None) != self._absent else self._feedback)


class SchemaGuard(GuardInterface):
    """Pass a text that is JSON and keeps to a JSON schema (draft 2020-12 unless `$schema` says another).

    The JSON may stand in a fence. The feedback names the first faults with their places. References to other documents are not
    followed. ValueError for what is no schema.
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        kind = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
        try:
            kind.check_schema(schema)
        except jsonschema.SchemaError as error:
            raise ValueError(f"this is no JSON schema: {error.message}") from error
        self._validator: Validator = kind(schema, registry=Registry())

    def validate(self, artifact: Artifact, **dependencies: Artifact) -> GuardResult:  # noqa: ARG002  # the interface
        """Judge the JSON in the artifact."""
        try:
            value = json_in(artifact.content)
        except ValueError as fault:
            return _judged(str(fault))
        faults = sorted(self._validator.iter_errors(value), key=lambda error: list(map(str, error.absolute_path)))
        return _judged(_listed([(error.absolute_path, error.message) for error in faults]))


class _Model(Protocol):
    """A pydantic model's class, as far as it is used: pydantic itself is not needed here."""

    @classmethod
    def model_validate_json(cls, json_data: str) -> object: ...


class ModelGuard(GuardInterface):
    """Pass a text that is JSON and that a pydantic model accepts."""

    def __init__(self, model: type[_Model]) -> None:
        if not callable(getattr(model, "model_validate_json", None)):
            raise TypeError(f"{model!r} is no pydantic model: it has no model_validate_json")
        self._model = model

    def validate(self, artifact: Artifact, **dependencies: Artifact) -> GuardResult:  # noqa: ARG002  # the interface
        """Judge the JSON in the artifact."""
        try:
            value = json_in(artifact.content)
        except ValueError as fault:
            return _judged(str(fault))
        try:
            self._model.model_validate_json(json.dumps(value))
        except ValueError as error:  # pydantic's ValidationError is one, and says more
            listed: list[dict[str, Any]] = (
                error.errors() if hasattr(error, "errors") else [{"loc": (), "msg": str(error)}]
            )
            return _judged(_listed([(fault["loc"], fault["msg"]) for fault in listed]))
        return _judged("")


def json_in(text: str) -> Any:  # noqa: ANN401  # any JSON
    """Read the JSON of a reply: the first fence's, else all of it. ValueError with the line where it cannot be read."""
    written = extract_fenced(text, "json")
    try:
        return json.loads(written, parse_constant=_no_json)
    except json.JSONDecodeError as error:
        raise ValueError(f"This is not JSON: {error.msg} in line {error.lineno}, column {error.colno}.") from error
    except RecursionError as error:
        raise ValueError("This JSON is nested too deeply to be read.") from error


def _no_json(name: str) -> None:
    raise ValueError(f"This is not JSON: {name} is no number.")


def _listed(faults: Sequence[tuple[Iterable[str | int], str]]) -> str:
    said = [f"{_place(path)}: {_clip(message)}" for path, message in faults[:_MOST_FAULTS]]
    return "\n".join(said + ([f"and {len(faults) - _MOST_FAULTS} more"] if len(faults) > _MOST_FAULTS else []))


def _place(path: Iterable[str | int]) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).lstrip(".") or "the whole"


def _clip(text: str) -> str:
    plain = " ".join(text.split())
    return plain if len(plain) <= _MOST_TEXT else f"{plain[:_MOST_TEXT]}..."


def _judged(feedback: str) -> GuardResult:
    return GuardResult(passed=not feedback, feedback=feedback)
