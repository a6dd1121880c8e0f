"""Machines for the tests of targets: the shipped one, and one with every construct that a diagram must show."""

from pathlib import Path

import pytest

from dsa.lang import loads
from dsa.machine import Machine

ROOT = Path(__file__).parents[3]
GOLDEN = ROOT / "tests" / "golden" / "targets"


@pytest.fixture(scope="session")
def dual_state() -> Machine:
    path = ROOT / "machines" / "dual_state" / "machine.md"
    return loads(path.read_text(encoding="utf-8"), "machine.md")


@pytest.fixture(scope="session")
def review() -> Machine:
    return loads((GOLDEN / "review.md").read_text(encoding="utf-8"), "review.md")
