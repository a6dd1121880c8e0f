"""Fixtures for tests of generators."""

import asyncio
import contextlib
import warnings

import pytest


@pytest.fixture
def litellm_leaves_no_loop():
    """LiteLLM sets an event loop in the thread that calls it and never closes it; a later test would be blamed."""
    yield
    with warnings.catch_warnings(), contextlib.suppress(RuntimeError):  # RuntimeError: there is none after all
        warnings.simplefilter("ignore")
        asyncio.get_event_loop_policy().get_event_loop().close()
    asyncio.set_event_loop(None)
