"""What runs of a machine work with, made once in a process for each run, and found again by every effect.

Takes what makes it from a run's settings and its own folder, gives it by settings and name.
"""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar


class Closing(Protocol):
    """What is let go of at the end of a run."""

    def close(self) -> None:
        """Let go."""


T = TypeVar("T", bound=Closing)


class Known(Generic[T]):
    """The resources of the runs of one machine."""

    def __init__(self, make: Callable[[Mapping[str, Any], Path], T]) -> None:
        self._make = make
        self._of: dict[tuple[str, str], T] = {}

    def of(self, config: Mapping[str, Any], run_id: str) -> T:
        """Give what a run works with; `config["runs"]` is where runs are kept."""
        runs = os.path.abspath(config.get("runs") or ".dsa")  # noqa: PTH100  (asked for by every effect, and paths are slow)
        if (runs, run_id) not in self._of:
            self._of[runs, run_id] = self._make(config, Path(runs) / run_id)
        return self._of[runs, run_id]

    def let_go(self, resources: T) -> None:
        """Close what a run worked with, and forget it."""
        resources.close()
        for name, known in list(self._of.items()):
            if known is resources:
                del self._of[name]
