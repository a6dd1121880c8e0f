"""Which policies there are: each with a description and the JSON Schema of its payload (seed 004, section 3.6).

Takes policies, gives them by name, says what is wrong with a payload, and describes them as tools for language models.
It calls nothing.
"""

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

import attrs

from dsa.errors import BindingError
from dsa.runtime.ledger import Handling
from dsa.runtime.policies import Action, Policy, Step, error_step
from dsa.runtime.schemas import PayloadSchema
from dsa.words import closest

INVALID_PAYLOAD = "INVALID_PAYLOAD"

_ANY_OBJECT: dict[str, Any] = {"type": "object"}
_IN_DOUBT = ("retry", "ask", "fail")
#: What OpenAI's format, and those modelled on it, take as the name of a function.
_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_Given = TypeVar("_Given", bound=Policy)


@attrs.frozen
class Registered:
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
        """Give an error step that says where a payload breaks the schema, and why; None when it does not."""
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
        self._policies: dict[str, Registered] = {}
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
        A payload that cannot be judged within `dsa.runtime.schemas.MOST_WORK` breaks its schema.
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
            self._policies[name] = Registered(name, policy, told, accepted, frozenset(actions), in_doubt, judge)
            return policy

        return add

    def including(self, other: "Registry") -> "Registry":
        """Give a registry with the policies of both; of a name that both have, this one's."""
        both = Registry()
        both._policies = {name: (self if name in self else other)[name] for name in (*self, *other)}
        return both

    def __getitem__(self, name: str) -> Registered:
        """Give what is registered under a name. Raises BindingError."""
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
        """Give an error step when an action's payload breaks its policy's schema. Raises BindingError."""
        return self[action.policy].fault(action.payload)

    def tools(self, names: Iterable[str]) -> list[dict[str, Any]]:
        """Describe policies in OpenAI's function format, sorted by name. Raises BindingError or ValueError."""
        return [self[name].tool() for name in sorted(names)]


def _judge(name: str, schema: Mapping[str, Any]) -> PayloadSchema:
    try:
        return PayloadSchema(schema)
    except ValueError as error:
        raise BindingError(f"the schema of '{name}' {error}") from None
