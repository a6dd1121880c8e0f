"""Bindings: each effect's policy, each guard and each generator by the names of a table.

`dsa.runs.bindings` finds them; here is what the driver is handed.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from dsa.declarations import Emit
from dsa.edge.environment import environment_secrets
from dsa.errors import Span
from dsa.immutable import immutable
from dsa.machine import Machine
from dsa.runtime.content import GeneratorInterface, GuardInterface
from dsa.runtime.policies import Policy
from dsa.runtime.registry import Registry
from dsa.runtime.secrets import Secrets


@attrs.frozen(field_transformer=immutable)
class Bindings:
    """Each effect's policy, each guard's GuardInterface, each generator, by the names of the table; and what must be kept nowhere.

    `policies` are those that the policies of effects may call, `config` is what all of them can read: the model and the seed. `notes` say
    what is odd and no fault: names of a module that the machine does not use. `spenders` are the effects that a budget of the whole run
    stops; None: all that have answers.
    """

    effects: Mapping[str, Policy]
    guards: Mapping[str, GuardInterface] = attrs.field(factory=dict)
    generators: Mapping[str, GeneratorInterface] = attrs.field(factory=dict)
    secrets: Secrets = attrs.field(factory=environment_secrets)
    policies: Registry = attrs.field(factory=Registry)
    config: Mapping[str, Any] = attrs.field(factory=dict)
    notes: tuple[str, ...] = ()
    spenders: frozenset[str] | None = None


def effect_names(machine: Machine) -> Iterator[tuple[str, Span | None]]:
    """Give each effect that a row emits, once, with the place of the first such row."""
    seen: set[str] = set()
    for row in machine.transitions:
        for item in row.effects:
            if isinstance(item, Emit) and item.effect not in seen:
                seen.add(item.effect)
                yield item.effect, item.span or row.span
