"""Exports of any machine: each target writes it, always the same way, or refuses it in words."""

from crowds import crowded_machines
from hypothesis import HealthCheck, Phase, given, settings

from dsa.errors import DsaError
from dsa.targets import emit
from dsa.testing.strategies import machines

LARGE = settings(
    deadline=None, suppress_health_check=list(HealthCheck), phases=(Phase.explicit, Phase.reuse, Phase.generate)
)


@settings(LARGE, max_examples=15)
@given(machines() | crowded_machines(claims=2))
def test_every_machine_is_exported_to_every_tool_or_refused_with_a_reason(machine):
    for tool in ("promela", "tla", "prism", "scxml", "xstate"):
        try:
            assert emit(machine, tool) == emit(machine, tool)
        except DsaError as refusal:
            words = ("outside its domain", "the odds of guard")
            assert any(each in str(refusal) for each in words)  # noqa: PT017  (as above)
