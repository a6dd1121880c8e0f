"""Nothing of its own: effects are the dual-state agent's, guards the kinds `are_tests`, `syntax` and `tests`, all found by their names."""

from dsa.runtime.content import GuardInterface

guards: dict[str, GuardInterface] = {}
