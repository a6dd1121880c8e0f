"""JSON schemas of payloads (draft 2020-12), judged with a bounded amount of work: models write the payloads.

`jsonschema` searches for patterns with `re`, compares every two items for `uniqueItems`, and tries each alternative anew below each other one, so a payload can
be made that takes for ever; then only `kill -9` helps. Here RE2 searches, equal items are found by their texts, and all work is counted: the same payload is
judged, or not, on every machine and in every replay, which a limit of time would not give.

Which policies there are: each with a description and the JSON Schema of its payload (seed 004, section 3.6).

Takes policies, gives them by name, says what is wrong with a payload, and describes them as tools for language models.
It calls nothing.
"""

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from fractions import Fraction
from functools import cache
from typing import Any, TypeVar

import attrs

from dsa.errors import BindingError
from dsa.runtime.json_text import sorted_text_of
from dsa.runtime.ledger import Handling
from dsa.runtime.policy.policies import Action, Policy, Step, error_step
from dsa.runtime.secrets import compiled
from dsa.text import closest

#: The work that there is for one payload, in keywords tried and parts looked at: 0.3 to 2.5 seconds; a call with a dozen arguments takes some 50.
MOST_WORK = 300_000
_LONGEST = 300  # characters of a message, and of a place: they quote what a model wrote
_PER_UNIT, _PER_SQUARE = (
    10,
    100,
)  # characters that are searched or written, and pairs that are compared, for as much as a keyword takes
_PER_FAULT = 10  # what a fault takes: all are kept until the one is chosen that is told
_DIALECT = "https://json-schema.org/draft/2020-12/schema"
#: Keywords whose value is no schema, whatever it looks like.
_DATA = frozenset({"const", "default", "enum", "examples"})
_WORK_LEFT: ContextVar[int] = ContextVar("_WORK_LEFT")

#: How jsonschema calls what judges by one keyword: with its validator, the keyword's value, what is judged, and the schema around the keyword.
_Keyword = Callable[[Any, Any, Any, Any], Any]


class _TooMuchWorkError(Exception):
    """Raised where a payload has used up the work that there is for one."""


@attrs.frozen
class PayloadFault:
    """Why a payload does not keep to its schema, and where: a JSON path."""

    where: str
    why: str


class PayloadSchema:
    """A schema that stands alone. Raises ValueError for what is none of draft 2020-12, refers to another document, or has a pattern that RE2 has not."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        from jsonschema import Draft202012Validator
        from jsonschema.exceptions import SchemaError
        from referencing.jsonschema import EMPTY_REGISTRY

        try:
            Draft202012Validator.check_schema(schema)
        except SchemaError as error:
            raise ValueError(f"is no JSON Schema: at {error.json_path}: {error.message}") from None
        plain = _without_dialect(schema)
        _require_references(plain)
        _require_patterns(plain)
        self._validator = _bounded_kind()(plain, registry=EMPTY_REGISTRY)

    def fault(self, payload: Mapping[str, Any]) -> PayloadFault | None:
        """Return what is wrong with a payload, None if nothing is. What cannot be judged within MOST_WORK is wrong."""
        from jsonschema.exceptions import best_match

        reset = _WORK_LEFT.set(MOST_WORK)
        try:
            found = best_match(self._validator.iter_errors(payload))
        except _TooMuchWorkError:
            return PayloadFault(
                "$", f"it could not be judged by its schema in {MOST_WORK:,} steps: send less, or plainer"
            )
        except RecursionError:
            return PayloadFault("$", "it is nested too deeply to be judged by its schema")
        finally:
            _WORK_LEFT.reset(reset)
        return None if found is None else PayloadFault(_clipped(found.json_path), _clipped(found.message))


def _clipped(text: str) -> str:
    return (
        text if len(text) <= _LONGEST else f"{text[: _LONGEST // 2]}..{text[-_LONGEST // 2 :]}"
    )  # why it is wrong stands at the end


# -- schemas as they are registered -----------------------------------------------------------------------------------


def _without_dialect(schema: Any) -> Any:  # noqa: ANN401  (JSON)
    """Return a schema without `$schema`, by which jsonschema would choose another class for a part of it than ours."""
    if isinstance(schema, Mapping):
        if isinstance(said := schema.get("$schema"), str) and said.rstrip("#") != _DIALECT:
            raise ValueError(f"is of '{said}', and only {_DIALECT} is read")
        return {
            key: value if key in _DATA else _without_dialect(value)
            for key, value in schema.items()
            if key != "$schema" or not isinstance(value, str)
        }
    return [_without_dialect(part) for part in schema] if isinstance(schema, list | tuple) else schema


def _require_references(schema: Mapping[str, Any]) -> None:
    from referencing.exceptions import Unresolvable
    from referencing.jsonschema import DRAFT202012, EMPTY_REGISTRY

    alone = EMPTY_REGISTRY.with_resource("", DRAFT202012.create_resource(schema)).resolver()
    for keyword, reference in _keywords(schema):
        if keyword in {"$ref", "$dynamicRef"} and isinstance(reference, str):
            try:
                alone.lookup(reference)
            except Unresolvable:
                raise ValueError(f"refers to '{reference}', which is not in it") from None


def _require_patterns(schema: Mapping[str, Any]) -> None:
    used = list(_keywords(schema))
    by_pattern = [value for keyword, value in used if keyword == "patternProperties" and isinstance(value, Mapping)]
    if by_pattern and any(
        keyword == "unevaluatedProperties" for keyword, _ in used
    ):  # jsonschema searches with `re` there
        raise ValueError(
            "has unevaluatedProperties together with patternProperties: write additionalProperties in place of the former"
        )
    patterns = [value for keyword, value in used if keyword == "pattern" and isinstance(value, str)]
    for pattern in (*patterns, *(pattern for each in by_pattern for pattern in each)):
        try:
            _searching(pattern)
        except ValueError as error:
            raise ValueError(
                f"has a pattern that cannot be searched for: {error}; what looks around becomes several patterns in allOf"
            ) from error


def _keywords(schema: object) -> Iterator[tuple[str, Any]]:
    if isinstance(schema, Mapping):
        for keyword, value in schema.items():
            yield keyword, value
            if keyword not in _DATA:
                yield from _keywords(value)
    elif isinstance(schema, list | tuple):
        for part in schema:
            yield from _keywords(part)


# -- keywords ---------------------------------------------------------------------------------------------------------


@cache
def _bounded_kind() -> Any:  # noqa: ANN401  (a class of jsonschema's)
    """Return jsonschema's class with all work counted, and with keywords of ours where its own take more than the text is long."""
    from jsonschema import Draft202012Validator
    from jsonschema.validators import extend

    ours: dict[str, _Keyword] = {
        "pattern": _pattern,
        "patternProperties": _pattern_properties,
        "additionalProperties": _additional_properties(Draft202012Validator.VALIDATORS["additionalProperties"]),
        "uniqueItems": _unique_items,
        "multipleOf": _multiple_of(Draft202012Validator.VALIDATORS["multipleOf"]),
    }
    keywords = {**Draft202012Validator.VALIDATORS, **ours}
    return extend(Draft202012Validator, {name: _counted(name, keyword) for name, keyword in keywords.items()})


def _spend(units: int) -> None:
    left = _WORK_LEFT.get() - units
    if left < 0:
        raise _TooMuchWorkError
    _WORK_LEFT.set(left)


def _counted(name: str, keyword: _Keyword) -> _Keyword:
    """Return a keyword that pays for itself, for the parts of what it compares, and for the messages that it writes."""
    is_squared = name.startswith("unevaluated")  # each part is looked up in a list of the others

    def judged(validator: Any, wanted: Any, instance: Any, schema: Any) -> Iterator[Any]:  # noqa: ANN401  (JSON, and jsonschema's)
        parts = len(instance) if isinstance(instance, dict | list) else 0
        _spend(1 + parts + (len(wanted) if isinstance(wanted, dict | list) else 0))
        if is_squared:
            _spend(parts * parts // _PER_SQUARE)
        for error in keyword(validator, wanted, instance, schema) or ():
            _spend(_PER_FAULT + len(error.message) // _PER_UNIT)
            yield error

    return judged


@cache
def _searching(pattern: str) -> Callable[[str], bool]:
    search = compiled(pattern).search

    def is_found(text: str) -> bool:
        _spend(len(text) // _PER_UNIT)
        return search(text.encode("utf-8", "surrogatepass")) is not None

    return is_found


def _pattern(validator: Any, pattern: str, instance: Any, _schema: Any) -> Iterator[Any]:  # noqa: ANN401  (JSON, and jsonschema's)
    from jsonschema.exceptions import ValidationError

    if validator.is_type(instance, "string") and not _searching(pattern)(instance):
        yield ValidationError(f"{instance!r} does not match {pattern!r}")


def _pattern_properties(validator: Any, patterns: Any, instance: Any, _schema: Any) -> Iterator[Any]:  # noqa: ANN401  (JSON, and jsonschema's)
    if validator.is_type(instance, "object"):
        for pattern, schema in patterns.items():
            is_found = _searching(pattern)
            for name, value in instance.items():
                if is_found(name):
                    yield from validator.descend(value, schema, path=name, schema_path=pattern)


def _additional_properties(keyword: _Keyword) -> _Keyword:
    """Return the keyword for what no pattern matches: jsonschema's own looks for that with `re`."""

    def judged(validator: Any, wanted: Any, instance: Any, schema: Any) -> Iterator[Any]:  # noqa: ANN401  (JSON, and jsonschema's)
        if "patternProperties" in schema and validator.is_type(instance, "object"):
            searches = [_searching(pattern) for pattern in schema["patternProperties"]]
            instance = {name: value for name, value in instance.items() if not any(found(name) for found in searches)}
            schema = {key: value for key, value in schema.items() if key != "patternProperties"}
        yield from keyword(validator, wanted, instance, schema)

    return judged


def _unique_items(validator: Any, wanted: Any, instance: Any, _schema: Any) -> Iterator[Any]:  # noqa: ANN401  (JSON, and jsonschema's)
    from jsonschema.exceptions import ValidationError

    if wanted and validator.is_type(instance, "array"):
        texts = [sorted_text_of(_with_whole_numbers(item)) for item in instance]
        _spend(sum(map(len, texts)) // _PER_UNIT)
        if len({*texts}) < len(texts):
            yield ValidationError(f"{instance!r} has non-unique elements")


def _with_whole_numbers(value: Any) -> Any:  # noqa: ANN401  (JSON)
    """Return a value in which numbers that are equal are written in the same way: 1.0 as 1."""
    if isinstance(value, dict):
        return {key: _with_whole_numbers(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_with_whole_numbers(part) for part in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _multiple_of(keyword: _Keyword) -> _Keyword:
    """Return the keyword also for whole numbers that are too large for a float, which jsonschema's own does not take."""
    from jsonschema.exceptions import ValidationError

    def judged(validator: Any, wanted: Any, instance: Any, schema: Any) -> Iterator[Any]:  # noqa: ANN401  (JSON, and jsonschema's)
        try:
            yield from keyword(validator, wanted, instance, schema)
        except OverflowError:
            if (Fraction(instance) / Fraction(wanted)).denominator != 1:
                yield ValidationError(f"{instance!r} is not a multiple of {wanted}")

    return judged


INVALID_PAYLOAD = "INVALID_PAYLOAD"

_ANY_OBJECT: dict[str, Any] = {"type": "object"}
_IN_DOUBT = ("retry", "ask", "fail")
#: What OpenAI's format, and those modelled on it, take as the name of a function.
_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_Given = TypeVar("_Given", bound=Policy)


@attrs.frozen
class RegistryEntry:
    """A policy under its name; `actions` are those that it may call whoever calls it.

    `in_doubt` says what is done about a call of it that was under way when its run was cut off.
    """

    name: str
    policy: Policy
    description: str
    schema: Mapping[str, Any]
    actions: frozenset[str]
    in_doubt: Handling
    _judge: PayloadSchema | None = attrs.field(default=None, repr=False, eq=False)

    def fault(self, payload: Mapping[str, Any]) -> Step | None:
        """Return an error step that says where a payload breaks the schema, and why; None when it does not."""
        found = None if self._judge is None else self._judge.fault(payload)  # without a schema any object is a payload
        if found is None:
            return None
        return error_step(self.name, INVALID_PAYLOAD, f"at {found.where}: {found.why}", about={"where": found.where})

    def tool(self) -> dict[str, Any]:
        """Describe the policy in OpenAI's function format. ValueError for a name that the format does not take."""
        if not _TOOL_NAME.fullmatch(self.name):
            msg = f"'{self.name}' can be no tool: its name needs 1 to 64 letters, digits, _ and -"
            raise ValueError(msg)
        function = {"name": self.name, "description": self.description, "parameters": dict(self.schema)}
        return {"type": "function", "function": function}


class Registry:
    """Policies by name. `policies` are registered as they are, with no schema."""

    def __init__(self, policies: Mapping[str, Policy] | None = None) -> None:
        self._policies: dict[str, RegistryEntry] = {}
        for name, policy in (policies or {}).items():
            self.register(name)(policy)

    def register(
        self,
        name: str,
        description: str = "",
        schema: Mapping[str, Any] | None = None,
        *,
        actions: Iterable[str] = (),
        in_doubt: Handling = "retry",
    ) -> Callable[[_Given], _Given]:
        """Register a policy under a name; to be used as a decorator.

        Without a description its docstring's first line is taken, without a schema any object is a payload. `actions` are
        policies that it may call whoever calls it. `in_doubt` is what a resumed run does about a call of it that was under way: `retry`
        makes it again, `ask` does nothing before somebody has said what became of it, `fail` takes it as failed. BindingError for a name
        taken, for what is no policy, for another word, and for what is no JSON Schema (2020-12) that stands alone, with patterns as RE2 has them.
        A payload that cannot be judged within `dsa.runtime.policy.policy_registry.MOST_WORK` breaks its schema.
        """
        if in_doubt not in _IN_DOUBT:
            raise BindingError(f"in_doubt of '{name}' is '{in_doubt}'; it is one of {', '.join(_IN_DOUBT)}")
        accepted = _ANY_OBJECT if schema is None else dict(schema)
        judge = None if schema is None else _judge(name, accepted)

        def add(policy: _Given) -> _Given:
            if name in self._policies:
                raise BindingError(f"there is a policy '{name}' already; register this one under another name")
            if not callable(policy) or isinstance(policy, type):
                raise BindingError(f"the policy '{name}' is {policy!r}, not an async function (action, context)")
            told = description or (inspect.getdoc(policy) or "").partition("\n")[0]
            self._policies[name] = RegistryEntry(name, policy, told, accepted, frozenset(actions), in_doubt, judge)
            return policy

        return add

    def including(self, other: "Registry") -> "Registry":
        """Return a registry with the policies of both; of a name that both have, this one's."""
        both = Registry()
        both._policies = {name: (self if name in self else other)[name] for name in (*self, *other)}
        return both

    def __getitem__(self, name: str) -> RegistryEntry:
        """Return what is registered under a name. Raises BindingError."""
        try:
            return self._policies[name]
        except KeyError:
            raise BindingError(f"no policy '{name}' is registered", hint=closest(name, self._policies)) from None

    def __contains__(self, name: object) -> bool:
        return name in self._policies

    def __iter__(self) -> Iterator[str]:
        return iter(self._policies)

    def __len__(self) -> int:
        return len(self._policies)

    def fault(self, action: Action) -> Step | None:
        """Return an error step when an action's payload breaks its policy's schema. Raises BindingError."""
        return self[action.policy].fault(action.payload)

    def tools(self, names: Iterable[str]) -> list[dict[str, Any]]:
        """Describe policies in OpenAI's function format, sorted by name. Raises BindingError or ValueError."""
        return [self[name].tool() for name in sorted(names)]


def _judge(name: str, schema: Mapping[str, Any]) -> PayloadSchema:
    try:
        return PayloadSchema(schema)
    except ValueError as error:
        raise BindingError(f"the schema of '{name}' {error}") from None
