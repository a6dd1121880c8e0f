"""The policy registry: policies by name, each with a description and the JSON Schema of its payload (seed 004, section 3.6).

`Registry` checks payloads and describes policies as tools for language models. It does not call policies.

`PayloadSchema` checks a payload with a bounded amount of work (draft 2020-12), because models write the payloads. `jsonschema` alone searches with
`re`, compares every pair of items for `uniqueItems`, and tries nested alternatives again and again, so some payloads take for ever. Here RE2
searches, equal items are found by their texts, and all work is counted. Unlike a time limit, this gives the same result on every machine and in
every replay.
"""

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from fractions import Fraction
from functools import cache
from typing import Any, TypeVar

import attrs

from dsa.errors import BindingError, UndecidedError
from dsa.runtime.json_text import sorted_text_of
from dsa.runtime.ledger import Handling
from dsa.runtime.policy.policies import Action, Policy, Step, error_step
from dsa.runtime.secrets import compile_pattern
from dsa.text import closest

#: The most work for one payload, in keywords and parts: 0.3 to 2.5 seconds. A call with a dozen arguments takes about 50.
MOST_WORK = 300_000
_LONGEST = 300  # characters of a message, and of a path: they quote a model's text
_PER_UNIT, _PER_SQUARE = (
    10,
    100,
)  # the characters searched or written, and the pairs compared, that cost as much as one keyword
_PER_FAULT = 10  # the cost of a fault: all are kept until the best one is chosen
_DIALECT = "https://json-schema.org/draft/2020-12/schema"
#: The keywords whose value is data, not a schema.
_DATA = frozenset({"const", "default", "enum", "examples"})
_WORK_LEFT: ContextVar[int] = ContextVar("_WORK_LEFT")

#: A keyword's function in jsonschema. Its arguments are the validator, the keyword's value, the instance, and the schema around the keyword.
_Keyword = Callable[[Any, Any, Any, Any], Any]


@attrs.frozen
class PayloadFault:
    """Why a payload breaks its schema, and where (a JSON path)."""

    where: str
    why: str


class PayloadSchema:
    """A self-contained schema of draft 2020-12.

    Raises ValueError for an invalid schema, a reference to another document, or a pattern that RE2 does not support.
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        from jsonschema import Draft202012Validator
        from jsonschema.exceptions import SchemaError
        from referencing.jsonschema import EMPTY_REGISTRY

        try:
            Draft202012Validator.check_schema(schema)
        except SchemaError as error:
            raise ValueError(f"is not a valid JSON Schema: at {error.json_path}: {error.message}") from None
        plain = _without_dialect(schema)
        _require_references(plain)
        _require_patterns(plain)
        self._validator = _bounded_kind()(plain, registry=EMPTY_REGISTRY)

    def fault(self, payload: Mapping[str, Any]) -> PayloadFault | None:
        """Return what is wrong with a payload, or None. A payload that takes more than MOST_WORK is wrong."""
        from jsonschema.exceptions import best_match

        reset = _WORK_LEFT.set(MOST_WORK)
        try:
            error = best_match(self._validator.iter_errors(payload))
        except UndecidedError:
            return PayloadFault(
                "$",
                f"the payload could not be checked against its schema in {MOST_WORK:,} steps: send a smaller or simpler payload",
            )
        except RecursionError:
            return PayloadFault("$", "the payload is nested too deeply to be checked against its schema")
        finally:
            _WORK_LEFT.reset(reset)
        return None if error is None else PayloadFault(_clip(error.json_path), _clip(error.message))


def _clip(text: str) -> str:
    # The reason is at the end.
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST // 2]}..{text[-_LONGEST // 2 :]}"


# -- schemas as they are registered -----------------------------------------------------------------------------------


def _without_dialect(schema: Any) -> Any:  # noqa: ANN401  (JSON)
    """Return a schema without `$schema`: for a part with it, jsonschema would use its own class instead of the bounded one."""
    if isinstance(schema, Mapping):
        if isinstance(dialect := schema.get("$schema"), str) and dialect.rstrip("#") != _DIALECT:
            raise ValueError(f"has the dialect '{dialect}', but only {_DIALECT} is supported")
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
                raise ValueError(f"refers to '{reference}', which the schema does not contain") from None


def _require_patterns(schema: Mapping[str, Any]) -> None:
    keywords = list(_keywords(schema))
    by_pattern = [value for keyword, value in keywords if keyword == "patternProperties" and isinstance(value, Mapping)]
    # jsonschema searches with `re` there.
    if by_pattern and any(keyword == "unevaluatedProperties" for keyword, _ in keywords):
        raise ValueError(
            "has unevaluatedProperties together with patternProperties: write additionalProperties instead of unevaluatedProperties"
        )
    patterns = [value for keyword, value in keywords if keyword == "pattern" and isinstance(value, str)]
    for pattern in (*patterns, *(pattern for each in by_pattern for pattern in each)):
        try:
            _search_with(pattern)
        except ValueError as error:
            raise ValueError(
                f"has a pattern that cannot be used: {error}; replace lookaround with several patterns in allOf"
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
    """Return jsonschema's class with all work counted, and with our own keywords where its own need more than linear time."""
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
    return extend(Draft202012Validator, {name: _count_work(name, keyword) for name, keyword in keywords.items()})


def _spend(units: int) -> None:
    left = _WORK_LEFT.get() - units
    if left < 0:
        raise UndecidedError(f"a payload takes more than {MOST_WORK:,} steps")
    _WORK_LEFT.set(left)


def _count_work(name: str, keyword: _Keyword) -> _Keyword:
    """Return a keyword that counts its own work: itself, the parts that it compares, and the messages that it writes."""
    is_squared = name.startswith("unevaluated")  # each part is looked up in a list of the others

    def check(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[Any]:  # noqa: ANN401  (JSON, and jsonschema's)
        parts = len(instance) if isinstance(instance, dict | list) else 0
        _spend(1 + parts + (len(value) if isinstance(value, dict | list) else 0))
        if is_squared:
            _spend(parts * parts // _PER_SQUARE)
        for error in keyword(validator, value, instance, schema) or ():
            _spend(_PER_FAULT + len(error.message) // _PER_UNIT)
            yield error

    return check


@cache
def _search_with(pattern: str) -> Callable[[str], bool]:
    search = compile_pattern(pattern).search

    def is_found(text: str) -> bool:
        _spend(len(text) // _PER_UNIT)
        return search(text.encode("utf-8", "surrogatepass")) is not None

    return is_found


def _pattern(validator: Any, pattern: str, instance: Any, _schema: Any) -> Iterator[Any]:  # noqa: ANN401  (JSON, and jsonschema's)
    from jsonschema.exceptions import ValidationError

    if validator.is_type(instance, "string") and not _search_with(pattern)(instance):
        yield ValidationError(f"{instance!r} does not match {pattern!r}")


def _pattern_properties(validator: Any, patterns: Any, instance: Any, _schema: Any) -> Iterator[Any]:  # noqa: ANN401  (JSON, and jsonschema's)
    if validator.is_type(instance, "object"):
        for pattern, schema in patterns.items():
            is_found = _search_with(pattern)
            for name, value in instance.items():
                if is_found(name):
                    yield from validator.descend(value, schema, path=name, schema_path=pattern)


def _additional_properties(keyword: _Keyword) -> _Keyword:
    """Return the keyword for properties that no pattern matches; jsonschema's own uses `re`."""

    def check(validator: Any, value_: Any, instance: Any, schema: Any) -> Iterator[Any]:  # noqa: ANN401  (JSON, and jsonschema's)
        if "patternProperties" in schema and validator.is_type(instance, "object"):
            searches = [_search_with(pattern) for pattern in schema["patternProperties"]]
            instance = {
                name: value for name, value in instance.items() if not any(is_match(name) for is_match in searches)
            }
            schema = {key: value for key, value in schema.items() if key != "patternProperties"}
        yield from keyword(validator, value_, instance, schema)

    return check


def _unique_items(validator: Any, value: Any, instance: Any, _schema: Any) -> Iterator[Any]:  # noqa: ANN401  (JSON, and jsonschema's)
    from jsonschema.exceptions import ValidationError

    if value and validator.is_type(instance, "array"):
        texts = [sorted_text_of(_with_whole_numbers(item)) for item in instance]
        _spend(sum(map(len, texts)) // _PER_UNIT)
        if len({*texts}) < len(texts):
            yield ValidationError(f"{instance!r} has non-unique elements")


def _with_whole_numbers(value: Any) -> Any:  # noqa: ANN401  (JSON)
    """Return a value in which equal numbers have the same text: 1 for 1.0."""
    if isinstance(value, dict):
        return {key: _with_whole_numbers(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_with_whole_numbers(part) for part in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _multiple_of(keyword: _Keyword) -> _Keyword:
    """Return the keyword, extended to whole numbers that are too large for a float."""
    from jsonschema.exceptions import ValidationError

    def check(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[Any]:  # noqa: ANN401  (JSON, and jsonschema's)
        try:
            yield from keyword(validator, value, instance, schema)
        except OverflowError:
            if (Fraction(instance) / Fraction(value)).denominator != 1:
                yield ValidationError(f"{instance!r} is not a multiple of {value}")

    return check


INVALID_PAYLOAD = "INVALID_PAYLOAD"

_ANY_OBJECT: dict[str, object] = {"type": "object"}
_IN_DOUBT = ("retry", "ask", "fail")
#: The names of functions that OpenAI's format, and those modelled on it, accept.
_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_PolicyT = TypeVar("_PolicyT", bound=Policy)


@attrs.frozen
class RegistryEntry:
    """A policy under its name. It may call `actions` in addition to those in the request.

    `in_doubt` says what to do about a call of it that was under way when its run was cut off.
    """

    name: str
    policy: Policy
    description: str
    schema: Mapping[str, Any]
    actions: frozenset[str]
    in_doubt: Handling
    _judge: PayloadSchema | None = attrs.field(default=None, repr=False, eq=False)

    def fault(self, payload: Mapping[str, Any]) -> Step | None:
        """Return an error step that says where and why a payload breaks the schema, or None."""
        fault = None if self._judge is None else self._judge.fault(payload)  # without a schema, any object is valid
        if fault is None:
            return None
        return error_step(self.name, INVALID_PAYLOAD, f"at {fault.where}: {fault.why}", about={"where": fault.where})

    def tool(self) -> dict[str, object]:
        """Describe the policy in OpenAI's function format. Raises ValueError for a name that the format does not accept."""
        if not _TOOL_NAME.fullmatch(self.name):
            msg = f"'{self.name}' cannot be a tool: its name must have 1 to 64 letters, digits, _ and -"
            raise ValueError(msg)
        function = {"name": self.name, "description": self.description, "parameters": dict(self.schema)}
        return {"type": "function", "function": function}


class Registry:
    """Policies by name. `policies` are registered without a schema."""

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
    ) -> Callable[[_PolicyT], _PolicyT]:
        """Return a decorator that registers a policy under a name.

        The default description is the first line of its docstring; without a schema, any object is a valid payload. The policy may call `actions`
        in addition to those in the request. `in_doubt` is what a resumed run does about a call of it that was under way: `retry` makes it again,
        `ask` waits until a person decides, `fail` counts it as failed. A payload that takes more than
        `dsa.runtime.policy.policy_registry.MOST_WORK` to check breaks its schema.

        Raises BindingError for a name in use, an object that is not a policy, an unknown word for `in_doubt`, and a schema that `PayloadSchema`
        refuses.
        """
        if in_doubt not in _IN_DOUBT:
            raise BindingError(f"in_doubt of '{name}' is '{in_doubt}'; it must be one of {', '.join(_IN_DOUBT)}")
        payload_schema = _ANY_OBJECT if schema is None else dict(schema)
        judge = None if schema is None else _judge(name, payload_schema)

        def add(policy: _PolicyT) -> _PolicyT:
            if name in self._policies:
                raise BindingError(f"there is already a policy '{name}'; register this one under another name")
            if not callable(policy) or isinstance(policy, type):
                raise BindingError(f"the policy '{name}' is {policy!r}, not an async function (action, context)")
            summary = description or (inspect.getdoc(policy) or "").partition("\n")[0]
            self._policies[name] = RegistryEntry(
                name, policy, summary, payload_schema, frozenset(actions), in_doubt, judge
            )
            return policy

        return add

    def union(self, other: "Registry") -> "Registry":
        """Return a registry with the policies of both; for a name in both, with this one's."""
        both = Registry()
        both._policies = {name: (self if name in self else other)[name] for name in (*self, *other)}
        return both

    def __getitem__(self, name: str) -> RegistryEntry:
        """Return the entry of a name. Raises BindingError if there is none."""
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
        """Return an error step if an action's payload breaks its policy's schema, else None. Raises BindingError."""
        return self[action.policy].fault(action.payload)

    def tools(self, names: Iterable[str]) -> list[dict[str, object]]:
        """Describe policies in OpenAI's function format, sorted by name. Raises BindingError or ValueError."""
        return [self[name].tool() for name in sorted(names)]


def _judge(name: str, schema: Mapping[str, Any]) -> PayloadSchema:
    try:
        return PayloadSchema(schema)
    except ValueError as error:
        raise BindingError(f"the schema of '{name}' {error}") from None
