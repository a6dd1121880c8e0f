"""Commands begin faster here: one process imports the program, and forks for each call (`forked`)."""

import forked
import pytest


@pytest.fixture(scope="session", autouse=True)
def forking() -> None:
    """Have calls forked."""
    forked.start()
