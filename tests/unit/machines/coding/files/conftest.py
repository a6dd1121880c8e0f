"""A workspace, opened in both ways: by the kernel in one call, and name by name."""

import pytest

from machines.coding.tools.workspace import Workspace


@pytest.fixture(params=[False, True], ids=["openat2", "walk"])
def workspace(request, tmp_path):
    with Workspace(tmp_path, by_walk=request.param) as opened:
        yield opened
