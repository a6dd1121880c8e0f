"""Servers that are opened for tests, and closed behind them."""

import os

import pytest
from foreign_servers import Foreign, real


@pytest.fixture(scope="module")
def shared():
    """One server for the tests that leave it as it is."""
    with Foreign({"test": real()}) as opened:
        yield opened


@pytest.fixture
def opened():
    """Open servers that are closed at the end of the test."""
    all_opened = []

    def opening(**servers):
        all_opened.append(Foreign(servers))
        return all_opened[-1]

    yield opening
    for each in all_opened:
        each.close()


@pytest.fixture
def mark(tmp_path):
    """Return a pipe with a name: who reads it waits until a server has written."""
    os.mkfifo(tmp_path / "mark")
    return tmp_path / "mark"
