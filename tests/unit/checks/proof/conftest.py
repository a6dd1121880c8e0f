"""A machine with a retry loop, in sessions of its own."""

import pytest

from dsa.checks.proof.session import Session
from dsa.edge.files import load


@pytest.fixture
def session() -> Session:
    return Session(load("specs/dual_state"), lambda: False)
