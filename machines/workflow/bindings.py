"""Bindings of the workflow machine: none of its own. Its effects are those of the dual-state agent, its guards the kinds `are_tests`, `syntax` and `tests`."""

from dsa.runtime.content import GuardInterface

guards: dict[str, GuardInterface] = {}
