"""Servers that tests open, closed at the end of each test."""

import os

import pytest
from foreign_servers import Foreign, real


@pytest.fixture(scope="module")
def shared():
    """One server for the tests that do not change it."""
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
    """Return a named pipe; reading it waits until a server has written."""
    os.mkfifo(tmp_path / "mark")
    return tmp_path / "mark"
